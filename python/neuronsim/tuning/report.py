"""The ladder as a table in the terminal."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from neuronsim.errors import counted, first_few
from neuronsim.hlo.trip_counts import LoopTrips
from neuronsim.tables import print_drawn, print_text
from neuronsim.targets import find_target
from neuronsim.tuning.metrics import METRICS
from neuronsim.tuning.results import OutputError, PlanResult, RungResult, TuneResult
from neuronsim.tuning.rungs import FASTEST, is_plan, scheme_of

FULL_WIDTH = 77  # columns that the whole table takes
DIFFER = 10  # those of the share of integers that differ
NAMES = 22  # those of a setting's name among them
# The metrics that the table has beside the one that decides, and those if there is room.
_ALWAYS, _WIDE = ("top1", "relative_error"), ("max_error", "top1_agreement")
LISTED = 8  # loops, conditionals or outputs that are named


def print_ladder(
    result: TuneResult,
    console: Console,
    model: str = "",
    same: Sequence[str] = (),
    asked: Sequence[str] = (),
    repairs: str = "",
) -> None:
    """Print the measured ladder, the recommendation and the flag line. `model` is what it was asked of:
    its title, and what the next commands name, with the options `same`, and `fix` with those that say
    what is `asked`. With the name of a setting that was to be repaired the answer is of that alone.
    """
    model = model or result.model
    print_text(
        console, f"{model} on {counted(result.samples, 'sample')} of {result.data}", style="italic"
    )
    print_drawn(console, _ladder_table(result, console.width))
    r = result.recommended_rung
    for note in _notes(result):
        console.print()
        print_text(console, note)
    if not repairs:
        _print_failures(result, console, model, same, asked)
    console.print()
    for name, count in result.rungs[0].int64_truncated.items():
        print_text(
            console,
            f"warning: {name}: {count} 64-bit integers lose their high 32 bits (C7)",
            style="red",
        )
        console.print()
    if repairs:
        _print_repair(result, repairs, console)
        return
    print_text(console, f"Within {_tolerance(result)}, the fastest setting is {r.name}:", style="bold")
    _print_flags(r, console)
    if result.chosen_plan is not None:
        console.print()
        _print_plan(result, result.chosen_plan, console)


def _print_flags(r: RungResult, console: Console) -> None:
    """The line that means a setting."""
    console.print()
    if r.flags or r.name == "none":
        console.print(f'    export NEURON_CC_FLAGS="{r.flags}"', highlight=False, soft_wrap=True)
    else:
        console.print("    no flag means it: its plan or policy is the setting", highlight=False)


def _print_repair(result: TuneResult, base: str, console: Console) -> None:
    """What repairs a setting that was asked of, if anything has to."""
    plan = result.chosen_plan
    if plan is None:
        print_text(console, f"no repair of {base} within {_tolerance(result)} was found", style="red")
    elif plan.kept:
        _print_plan(result, plan, console, only_repairs=True)
    else:
        said = f"{base} needs no repair: all of it may compute so within {_tolerance(result)}"
        print_text(console, f"{said}:", style="bold")
        _print_flags(next(r for r in result.rungs if r.name == base), console)


def _ladder_table(result: TuneResult, width: int) -> Table:
    """The rungs and the plans, with as many figures as a terminal of this width has room for."""
    labelled = result.rungs[0].top1 is not None
    exact = _has_exact(result)
    # A narrow terminal has room for the figures that decide, which are never cut for names.
    settings = [r.name for r in (*result.rungs, *(p.figures for p in result.plans))]
    long = any(n.startswith(("int8/", "fp8_")) for n in settings)
    more = max(0, max(map(len, settings)) - NAMES) if long else 0
    full = FULL_WIDTH + DIFFER * exact + more
    shown = (*_ALWAYS, *_WIDE) if width >= full else _ALWAYS
    decides = [] if result.metric in shown else [result.metric]
    wide = width >= full + sum(max(len(n), DIFFER) for n in decides)
    scores = wide and result.rungs[0].top1_agreement is not None
    table = Table(
        caption=_caption(result, scores),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
        pad_edge=False,
    )
    table.add_column("setting", no_wrap=not long, overflow="fold" if long else "ellipsis")
    names = ["accuracy"] if labelled else []
    same = ["top-1 same"] if scores else []
    largest = ["max error"] if wide else []
    differ = ["differ"] if exact else []
    relative = ["rel error"] if wide or not decides else []
    for name in (*names, *decides, *relative, *largest, *differ, *same, "MB", "speed-up"):
        table.add_column(name, justify="right", no_wrap=True)
    plan = result.chosen_plan
    marked = result.recommended if plan is None else plan.name if plan.kept else plan.base
    for r in result.rungs:
        chosen = r.name == marked
        style = "bold green" if chosen else ("red" if _fails(result, r) else None)
        table.add_row(*_cells(r, chosen, wide, exact, decides), style=style)
    for p in result.plans:
        if p.name == p.base or not p.kept:  # a rung, which is there
            continue
        chosen = p.name == marked
        style = "bold green" if chosen else (None if p.within else "red")
        table.add_row(*_cells(p.figures, chosen, wide, exact, decides), style=style)
    return table


def _fails(result: TuneResult, r: RungResult) -> bool:
    """Whether a rung is not within the tolerance, or makes values that are not finite."""
    return r.loss is not None and r.loss > budget_of(result)


def budget_of(result: TuneResult) -> float:
    """The largest loss within the tolerance."""
    if result.metric == "sqnr":
        return METRICS["sqnr"].budget(result.tolerance)
    return result.tolerance + 1e-12


def failing_rung(result: TuneResult) -> RungResult | None:
    """Of the settings that are not within the tolerance the fastest."""
    failing = [r for r in result.rungs if _fails(result, r) and not r.framework_type]
    return min(failing, key=lambda r: r.estimated_seconds, default=None)


def _print_failures(
    result: TuneResult, console: Console, model: str, same: Sequence[str], asked: Sequence[str]
) -> None:
    """Of the failing settings the fastest, what it breaks, and the command that says why."""
    worst = failing_rung(result)
    if worst is None or result.plans:  # these repair it
        return
    broken = (
        f", {worst.not_finite} values of the outputs are not finite"
        if worst.not_finite > result.rungs[0].not_finite
        else ""
    )
    console.print()
    failed = f"{worst.name} is not within the tolerance{broken}."
    print_text(console, f"{failed} What is to blame, and what repairs it:", style="red")
    console.print()
    option, value, flags = deciding(result, worst)
    of_it = [model, "--data", result.data, *same]
    blame = shlex.join(["blame", *of_it, *([f"--{option}", value] if option else [])])
    fix = shlex.join(["fix", *of_it, *asked, "--base", worst.name])
    for command in (f"{blame} {flags}".rstrip(), fix):
        console.print(f"    neuronsim {command}", highlight=False, markup=False, soft_wrap=True)


def deciding(result: TuneResult, r: RungResult) -> tuple[str, str, str]:
    """What means a rung for other commands: an option with its value, if one does, and flags."""
    if r.flags:
        return "", "", r.flags
    scheme = scheme_of(r.name)
    if not scheme:
        return "plan" if is_plan(Path(r.name)) else "policy", r.name, ""
    fastest = FASTEST[find_target(result.target).compiler]
    others = next(x for x in result.rungs if x.name == (fastest if "+" in r.name else "none"))
    return "quantize", scheme, others.flags


def _print_plan(
    result: TuneResult, p: PlanResult, console: Console, *, only_repairs: bool = False
) -> None:
    r = result.recommended_rung
    gain = r.estimated_seconds / p.figures.estimated_seconds if p.figures.estimated_seconds else 1.0
    if p.name == p.base:
        print_text(console, f"Its plan is what --output writes: {p.name}", style="bold")
        return
    if not p.kept:
        print_text(console, f"{p.base} needs no repair: all of it may compute so.", style="bold")
        return
    is_better = gain > 1.005 and not only_repairs
    found = (
        f"Better: {p.name}, {gain:.2f}x the speed of {r.name}" if is_better else f"Repaired: {p.name}"
    )
    wide = ", ".join(f"{n} in {t}" for t, n in Counter(k.type for k in p.kept).items())
    moved = f" ({p.moved} more only move values)" if p.moved else ""
    only = f"with {wide} of the computing instructions{moved}"
    print_text(console, f"{found}. It is {p.base} {only}:", style="bold")
    for k in p.kept[:LISTED]:
        place = k.source or ("" if says_the_same(k.name, k.scope) else k.scope)
        error = "" if k.error is None else f": error {_error(k.error)} alone in the low type"
        of = f" of {place}" if place else ""
        print_text(console, f"  {k.name} ({k.opcode}, {k.type}){of}{error}")
    if len(p.kept) > LISTED:
        console.print(f"  and {len(p.kept) - LISTED} more, which --json and --output list")
    if p.held_out_loss is not None and result.search is not None:
        count = result.search.held_out_samples
        samples = f"{counted(count, 'sample')} that no decision was made by"
        print_text(console, f"On {samples} its loss is {p.held_out_loss:.3g}.")


def says_the_same(name: str, scope: str) -> bool:
    """Whether a scope is no more than an instruction's name in another spelling.

    >>> says_the_same("net_norm_Sum", "net/norm/Sum"), says_the_same("reduce.3", "net/norm/Sum")
    (True, False)
    """
    plain, other = (re.sub(r"[^A-Za-z0-9]+", " ", x).strip() for x in (name, scope))
    return plain == other


def _caption(result: TuneResult, scores: bool) -> str:
    none = " (setting none)" if result.rungs[0].name == "none" else ""  # which on Inf1 casts products
    return (
        f"errors{' and equal top-1 classes' if scores else ''} are against float32{none}; MB "
        "are the weights; the speed-up is estimated "
        f"for {find_target(result.target).description}; flag defaults of {result.release}"
    )


def _has_exact(result: TuneResult) -> bool:
    """Whether an output is of integers or truth values."""
    return any(o.differing is not None for o in result.rungs[0].outputs)


def _notes(result: TuneResult) -> Iterator[str]:
    """What there is to know of the figures of this model beside the caption."""
    outputs = result.rungs[0].outputs
    yield from result.notes
    if len(outputs) > 1:
        of_each = "; ".join(_named_error(o) for o in result.recommended_rung.outputs[:LISTED])
        more = f"; and {len(outputs) - LISTED} more" if len(outputs) > LISTED else ""
        yield (
            "The errors are those of the worst output, and a setting is within a tolerance with all "
            f"of them. Under {result.recommended}: {of_each}{more}"
        )
    for o in outputs:
        if o.not_finite:
            yield (
                f"Under none {o.not_finite} values of output_{o.index} are not finite: where a setting "
                "gives the same, that counts as no error"
            )
    if result.loops:
        yield f"Trips of loops in the estimate: {first_few([*map(_trips, result.loops)], LISTED)}"
    if any(loop.evidence in ("bound", "assumed") for loop in result.loops):
        yield "How many trips a loop takes that does not count to a constant, --trips N or NAME=N says"
    if result.conditionals:
        named = first_few(result.conditionals, LISTED)
        yield f"Of {named} the estimate takes the dearest branch, in every trip"


def _named_error(o: OutputError) -> str:
    share = f"{100 * o.error:.3g} % differ"
    return f"output_{o.index} ({o.instruction}) {_error(o.error) if o.differing is None else share}"


def _trips(loop: LoopTrips) -> str:
    why = {
        "known": "",
        "bound": " at most, and so many assumed",
        "given": " given",
        "assumed": " assumed",
    }
    return f"{loop.name} {loop.trips}{why[loop.evidence]}"


def _cells(r: RungResult, chosen: bool, wide: bool, exact: bool, decides: Sequence[str]) -> list[str]:
    accuracy = [] if r.top1 is None else [f"{100 * r.top1:.2f} %"]
    same = [] if r.top1_agreement is None or not wide else [f"{100 * r.top1_agreement:.2f} %"]
    relative = [_error(r.relative_error)] if wide or not decides else []
    largest = [_error(r.max_error)] if wide else []
    shares = [o.differing for o in r.outputs if o.differing is not None]
    differ = [f"{100 * max(shares):.2f} %"] if exact else []
    return [
        f"{'>' if chosen else ' '} {r.name}",
        *accuracy,
        *(_score(name, r.scores.get(name)) for name in decides),
        *relative,
        *largest,
        *differ,
        *same,
        f"{r.weight_bytes / 1e6:.3f}",
        f"{r.estimated_speedup:.2f}x",
    ]


def _score(name: str, x: float | None) -> str:
    if x is not None and name.startswith("top"):
        return f"{100 * x:.2f} %"
    if x is not None and name in METRICS and METRICS[name].better == "higher":
        return f"{x:.6g}"  # near 1, or decibels
    return _error(x)


def _error(x: float | None) -> str:
    if x is None:
        return "-"
    # Three digits: 1.01e-02 is seen to be above a tolerance of 0.01.
    return "0" if x == 0 else f"{x:.2e}" if math.isfinite(x) else "inf"


def _tolerance(result: TuneResult) -> str:
    if result.metric == "top1":
        points = 100 * result.tolerance
        return f"{points:g} point{'' if points == 1 else 's'} of float32's accuracy"
    shared = f" and {100 * result.tolerance:g} % of integers that differ" if _has_exact(result) else ""
    if result.metric == "relative_error" and result.criterion == "absolute":
        return f"a relative error of {result.tolerance:g}{shared}"
    if result.metric == "sqnr":
        return f"a signal to noise ratio of {result.tolerance:g} dB"
    of = " of float32's" if result.criterion == "relative" else ""
    return f"a loss of {result.tolerance:g}{of} in {result.metric}"
