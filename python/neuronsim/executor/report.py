"""Diagnostics and timings as tables on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from neuronsim.executor.diagnostics import CATEGORIES, OBSERVE, Diagnostics, Observe, Origin
from neuronsim.executor.run import StepTiming
from neuronsim.ops import Statistics

LISTED = 40  # instructions or steps of a table


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


def print_diagnostics(
    diagnostics: Diagnostics, observe: Observe, opcodes: Mapping[str, str], console: Console
) -> None:
    """Tables of what was met; nothing for what `observe` does not ask for."""
    if observe == OBSERVE[0]:
        return
    found = {c: getattr(diagnostics, c) for c in CATEGORIES if getattr(diagnostics, c)}
    names = list(dict.fromkeys(n for met in found.values() for n in met))
    if not names:
        console.print("No instruction overflowed, underflowed, saturated or made a NaN.")
    else:
        table = Table("instruction", "opcode", *(c.replace("_", " ") for c in found))
        for name in names[:LISTED]:
            cells = (str(met.get(name, "")) for met in found.values())
            table.add_row(name, opcodes.get(name, ""), *cells)
        console.print(table)
        _print_rest(len(names), "instructions", console)
    for name, o in diagnostics.origins.items():
        given = f" from {', '.join(map(str, o.operands))}" if o.operands else ""
        console.print(f"{name}{list(o.index)} is {o.value}{given}", markup=False)
        break  # the first one is the cause of what follows
    if observe == "full":
        _print_statistics(diagnostics.statistics, opcodes, console)


def _print_rest(count: int, what: str, console: Console) -> None:
    if count > LISTED:
        console.print(f"and {count - LISTED} more {what}")


def _print_statistics(
    statistics: Mapping[str, Statistics], opcodes: Mapping[str, str], console: Console
) -> None:
    columns = ("elements", "NaN", "Inf", "zero", "subnormal", "smallest", "largest")
    table = Table("instruction", "opcode", *columns)
    for name, s in list(statistics.items())[:LISTED]:
        whole = (s.elements, s.nan, s.infinite, s.zero, s.subnormal)
        magnitudes = (f"{s.smallest:.4g}", f"{s.largest:.4g}")
        table.add_row(name, opcodes.get(name, ""), *map(str, whole), *magnitudes)
    console.print(table)
    _print_rest(len(statistics), "instructions", console)


def print_timings(timings: Sequence[StepTiming], console: Console) -> None:
    """A table of the steps that take longest."""
    table = Table("instructions", "opcodes", "ms", "share")
    for t in sorted(timings, key=lambda t: -t.seconds)[:LISTED]:
        row = (" ".join(t.instructions) or "(copy)", " ".join(dict.fromkeys(t.opcodes)))
        table.add_row(*row, f"{t.seconds * 1e3:.3f}", f"{t.share:.1%}")
    console.print(table)
    _print_rest(len(timings), "steps", console)
