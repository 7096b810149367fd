"""What runs met and how long their steps took: as a document, and as tables on a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from neuronsim.executor.diagnostics import CATEGORIES, OBSERVE, Diagnostics, Observe, Origin
from neuronsim.executor.run import StepTiming
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import Computation, Instruction, Module
from neuronsim.hlo.opcodes import NEVER_CONSTANT, STRUCTURE, row
from neuronsim.ops import Statistics
from neuronsim.tables import print_table, print_text

LISTED = 40  # instructions or steps of a table
SCHEMA = "neuronsim.observation/1"


def total_diagnostics(
    calls: Sequence[Mapping[str, Any]], of_constants: Mapping[str, Mapping[str, int]]
) -> Diagnostics:
    """What some calls met together; each call's diagnostics contain that of the constants, which
    happened once.
    """
    total = Diagnostics()
    for n, met in enumerate(calls):
        for category in CATEGORIES:
            for name, count in met.get(category, {}).items():
                again = of_constants[category].get(name, 0) if n else 0
                total.add_events(name, {category: count - again})
        for name, s in met.get("statistics", {}).items():
            total.add(Diagnostics(statistics={name: Statistics(**s)}))
        for name, origin in met.get("origins", {}).items():
            total.add(Diagnostics(origins={name: Origin(**origin)}))
    return total


def leave_out(
    total: Diagnostics,
    filler: Mapping[str, Any],
    of_constants: Mapping[str, Mapping[str, int]],
    copies: int,
    size: int,
) -> None:
    """Takes out what `copies` of a sample met, of a call on `size` of them and nothing else. What does
    not come as often for each sample, or more often than it was met, stays.
    """
    for category in CATEGORIES:
        for name, count in filler.get(category, {}).items():
            own = count - of_constants[category].get(name, 0)
            taken = own // size * copies
            if own % size == 0 and taken <= total.counts.get((category, name), 0):
                total.add_events(name, {category: -taken})
    for name, s in filler.get("statistics", {}).items():
        if name in total.statistics:
            met = total.statistics[name]
            total.statistics[name] = met.without(Statistics(**s), copies, size)


def observed(diagnostics: Diagnostics, module: Module) -> list[dict[str, Any]]:
    """What each instruction of a planned module met, in the order in which they run: its name, opcode,
    type and place in the source; `counts` by category; `statistics` of its results and the `origin` of
    an Inf or NaN, where those were observed. `folded` says why a terminal has no row for it: it is a
    constant, or moves what others computed.
    """
    found = []
    constants: set[str] = set()
    for i in _in_order(inline_calls(module)):
        if i.opcode == "constant" or (
            i.operands and constants.issuperset(i.operands) and i.opcode not in NEVER_CONSTANT
        ):
            constants.add(i.name)
        counts = {c: n for c in CATEGORIES if (n := diagnostics.counts.get((c, i.name)))}
        statistics, origin = diagnostics.statistics.get(i.name), diagnostics.origins.get(i.name)
        if not counts and statistics is None and origin is None:
            continue
        about: dict[str, Any] = {"name": i.name, "opcode": i.opcode}
        about |= {"type": ", ".join(str(s.type) for s in i.shape.arrays())}
        m = i.metadata
        about |= {"op_name": m.op_name} if m.op_name else {}
        about |= {"source": f"{m.source_file}:{m.source_line}"} if m.source_file else {}
        about |= {"operands": list(i.operands)} if i.operands else {}
        about |= {"counts": counts} if counts else {}
        about |= {"statistics": _finite(asdict(statistics))} if statistics else {}
        about |= {"origin": _finite(asdict(origin))} if origin else {}
        folded = "constant" if i.name in constants else _folded(i)
        about |= {"folded": folded} if folded else {}
        found.append(about)
    return found


def _in_order(flat: Module) -> Iterator[Instruction]:
    """The instructions of a module whose calls are inlined, as they run: a loop's before the loop."""
    seen: set[str] = set()
    pending: list[tuple[Computation, Iterator[Instruction]]] = []
    entry = flat.entry_computation
    pending.append((entry, iter(entry.instructions)))
    while pending:
        i = next(pending[-1][1], None)
        if i is None:
            pending.pop()
            continue
        inside = [n for n in i.called if i.opcode in ("while", "conditional") and n not in seen]
        seen.update(inside)
        yield i
        for name in reversed(inside):
            c = flat.by_name[name]
            pending.append((c, iter(c.instructions)))


def _folded(i: Instruction) -> str:
    moves = i.opcode in STRUCTURE or row(i).cast == "movement" or row(i).cost == "none"
    return "movement" if moves and i.opcode != "parameter" else ""


def _finite(x: Any) -> Any:
    """Numbers that are not finite as texts, since JSON has none."""
    if isinstance(x, Mapping):
        return {k: _finite(v) for k, v in x.items()}
    if isinstance(x, tuple | list):
        return [_finite(v) for v in x]
    if isinstance(x, complex):
        return str(x)
    if hasattr(x, "item"):
        x = x.item()
    return str(x) if isinstance(x, float) and not math.isfinite(x) else x


def print_observed(
    found: Sequence[Mapping[str, Any]], observe: Observe, console: Console, title: str
) -> None:
    """Tables of what `observed` gives; nothing for what `observe` does not ask for."""
    if observe == OBSERVE[0]:
        return
    print_text(console, title)
    _print_counts([x for x in found if "counts" in x], console)
    first = next((x for x in found if "origin" in x), None)
    if first is not None:  # the cause of what follows
        origin = first["origin"]
        given = f" from {', '.join(map(str, origin['operands']))}" if origin["operands"] else ""
        text = f"{_scoped(first)}: the element {origin['index']} is {origin['value']}{given}"
        print_text(console, f"{text}; it is the first that is not finite")
    if observe == "full":
        _print_statistics([x for x in found if "statistics" in x], console)


def _scoped(about: Mapping[str, Any]) -> str:
    """An instruction's name, and where in the source it comes from."""
    return f"{about['name']} ({about['op_name']})" if "op_name" in about else str(about["name"])


def _print_counts(found: Sequence[Mapping[str, Any]], console: Console) -> None:
    categories = [c for c in CATEGORIES if any(c in x["counts"] for x in found)]
    if not found:
        print_text(console, "No instruction overflowed, underflowed, saturated or made a NaN.")
        return
    headers = ("instruction", "opcode", *(c.replace("_", " ") for c in categories))
    rows = [
        (_scoped(x), x["opcode"], *(str(x["counts"].get(c, "")) for c in categories))
        for x in found[:LISTED]
    ]
    print_table(console, headers, rows, right=headers[2:])
    _print_rest(len(found), "instructions", console)


def _print_rest(count: int, what: str, console: Console, where: str = "; --json has all") -> None:
    if count > LISTED:
        print_text(console, f"and {count - LISTED} more {what}{where}")


def _print_statistics(found: Sequence[Mapping[str, Any]], console: Console) -> None:
    whole = ("elements", "nan", "infinite", "zero", "subnormal")
    counted = ("elements", "NaN", "Inf", "zero", "subnormal")
    headers = ("instruction", "opcode", *counted, "smallest", "largest")
    shown = [x for x in found if "folded" not in x]
    rows = []
    for x in shown[:LISTED]:
        s = x["statistics"]
        magnitudes = (f"{float(s['smallest']):.4g}", f"{float(s['largest']):.4g}")
        rows.append((_scoped(x), x["opcode"], *(str(s[name]) for name in whole), *magnitudes))
    print_table(console, headers, rows, right=headers[2:])
    _print_rest(len(shown), "instructions", console)
    kinds = [x["folded"] for x in found if "folded" in x]
    constants, movements = kinds.count("constant"), kinds.count("movement")
    if kinds:
        text = f"{constants} constants and {movements} instructions that only move values have no row"
        print_text(console, f"{text}; --json has them")


def print_timings(timings: Sequence[StepTiming], module: Module, console: Console) -> None:
    """A table of the steps of a planned module that take longest."""
    instructions = inline_calls(module).instructions
    names = {i.name: f"{i.name} ({i.metadata.op_name})" for i in instructions if i.metadata.op_name}
    rows = []
    for t in sorted(timings, key=lambda t: -t.seconds)[:LISTED]:
        listed = " ".join(names.get(name, name) for name in t.instructions) or "(copy)"
        opcodes = " ".join(dict.fromkeys(t.opcodes))
        rows.append((listed, opcodes, f"{t.seconds * 1e3:.3f}", f"{t.share:.1%}"))
    print_table(console, ("instructions", "opcodes", "ms", "share"), rows, right=("ms", "share"))
    _print_rest(len(timings), "steps", console, "")
