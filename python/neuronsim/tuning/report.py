"""The ladder as a table in the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from neuronsim.hlo.trip_counts import LoopTrips
from neuronsim.targets import TARGETS
from neuronsim.tuning.results import OutputError, RungResult, TuneResult

FULL_WIDTH = 77  # columns that the whole table takes
DIFFER = 10  # those of the share of integers that differ
LISTED = 8  # loops, conditionals or outputs that are named


def print_ladder(result: TuneResult, console: Console) -> None:
    """Print the measured ladder, the recommendation and the flag line."""
    labelled = result.rungs[0].top1 is not None
    exact = _has_exact(result)
    # A narrow terminal has room for the figures that decide.
    wide = console.width >= FULL_WIDTH + DIFFER * exact
    scores = wide and result.rungs[0].top1_agreement is not None
    table = Table(
        title=f"{result.model} on {result.samples} samples of {result.data}",
        caption=_caption(result),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
        pad_edge=False,
    )
    table.add_column("setting", no_wrap=True)
    names = ["accuracy"] if labelled else []
    same = ["top-1 same"] if scores else []
    largest = ["max error"] if wide else []
    differ = ["differ"] if exact else []
    for name in (*names, "rel error", *largest, *differ, *same, "MB", "speed-up"):
        table.add_column(name, justify="right", no_wrap=True)
    for r in result.rungs:
        chosen = r.name == result.recommended
        table.add_row(*_cells(r, chosen, wide, exact), style="bold green" if chosen else None)
    console.print(table)
    r = result.recommended_rung
    for note in _notes(result):
        console.print(f"\n{note}", markup=False, highlight=False)
    console.print(f"\nWithin {_tolerance(result)}, the fastest setting is [bold]{r.name}[/bold]:\n")
    for name, count in result.rungs[0].int64_truncated.items():
        console.print(f"warning: {name}: {count} 64-bit integers lose their high 32 bits (C7)\n")
    console.print(f'    export NEURON_CC_FLAGS="{result.flag_line}"', highlight=False, soft_wrap=True)


def _caption(result: TuneResult) -> str:
    return (
        "errors and equal top-1 classes are against float32 (setting none); MB are the weights; the "
        "speed-up is estimated "
        f"for {TARGETS[result.target].description}; flag defaults of {result.release}"
    )


def _has_exact(result: TuneResult) -> bool:
    """Whether an output is of integers or truth values."""
    return any(o.differing is not None for o in result.rungs[0].outputs)


def _notes(result: TuneResult) -> Iterator[str]:
    """What there is to know of the figures of this model beside the caption."""
    outputs = result.rungs[0].outputs
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
        yield f"Trips of loops in the estimate: {_listed([_trips(loop) for loop in result.loops])}"
    if any(loop.evidence in ("bound", "assumed") for loop in result.loops):
        yield "How many trips a loop takes that does not count to a constant, --trips N or NAME=N says"
    if result.conditionals:
        yield f"Of {_listed(result.conditionals)} the estimate takes the dearest branch, in every trip"


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


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _cells(r: RungResult, chosen: bool, wide: bool, exact: bool) -> list[str]:
    accuracy = [] if r.top1 is None else [f"{100 * r.top1:.2f} %"]
    same = [] if r.top1_agreement is None or not wide else [f"{100 * r.top1_agreement:.2f} %"]
    largest = [_error(r.max_error)] if wide else []
    shares = [o.differing for o in r.outputs if o.differing is not None]
    differ = [f"{100 * max(shares):.2f} %"] if exact else []
    return [
        f"{'>' if chosen else ' '} {r.name}",
        *accuracy,
        _error(r.relative_error),
        *largest,
        *differ,
        *same,
        f"{r.weight_bytes / 1e6:.3f}",
        f"{r.estimated_speedup:.2f}x",
    ]


def _error(x: float | None) -> str:
    if x is None:
        return "-"
    return "0" if x == 0 else f"{x:.1e}" if math.isfinite(x) else "inf"


def _tolerance(result: TuneResult) -> str:
    if result.metric == "top1":
        points = 100 * result.tolerance
        return f"{points:g} point{'' if points == 1 else 's'} of float32's accuracy"
    shared = f" and {100 * result.tolerance:g} % of integers that differ" if _has_exact(result) else ""
    return f"a relative error of {result.tolerance:g}{shared}"
