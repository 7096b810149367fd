"""Plans, their explanations and their differences as tables on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from neuronsim.casting.explain import Cast, Line, describe, group, types_of
from neuronsim.casting.plan import Plan
from neuronsim.casting.policy import Decision

EACH = 60  # lines up to which a table has a row for each instruction
NAMED = 3  # instructions that a row of many names
COLUMNS = ("instruction", "opcode", "operands", "sums", "result", "why")


def print_explanation(
    found: Sequence[Line], casts: Sequence[Cast], plan: Plan, console: Console, *, single: bool
) -> None:
    """A table of what a plan decides; where `single` instructions were asked for, every sentence on
    them.
    """
    if not found:
        console.print("The setting casts nothing.")
        return
    if single and len(found) <= EACH:
        for line in found:
            first, *rest = describe(line, casts, plan)
            console.print(first, markup=False, highlight=False, soft_wrap=True)
            for text in rest:
                console.print(f"  {text}", markup=False, highlight=False, soft_wrap=True)
        return
    groups = [(line,) for line in found] if len(found) <= EACH else group(found)
    table = Table(*COLUMNS)
    for g in groups:
        d = g[0].decision
        cells = tuple(types_of(d).values()) if d else ("", "", "as the model")
        label = d.reason.partition(":")[0] if d else ""
        table.add_row(*(Text(c) for c in (_names(g), g[0].instruction.opcode, *cells, label)))
    console.print(table)
    for reason in dict.fromkeys(g[0].decision.reason for g in groups if g[0].decision):
        console.print(reason, markup=False, highlight=False, soft_wrap=True)
    print_casts(casts, console)


def _names(lines: Sequence[Line]) -> str:
    named = ", ".join(line.instruction.name for line in lines[:NAMED])
    return named + (f" and {len(lines) - NAMED} more" if len(lines) > NAMED else "")


def print_casts(casts: Sequence[Cast], console: Console) -> None:
    """How many converts run, and how many bytes they read and write, by their types."""
    totals: dict[tuple[str, str], list[int]] = {}
    for c in casts:
        if not c.of_constant:
            total = totals.setdefault((c.from_type, c.to_type), [0, 0])
            total[0] += 1
            total[1] += c.bytes
    for (source, target), (count, size) in totals.items():
        console.print(
            f"{count} cast{'s' if count > 1 else ''} of {source} to {target} in each run, {size} bytes",
            highlight=False,
        )
    constants = sum(c.of_constant for c in casts)
    if constants:
        console.print(f"{constants} casts of constants, once at compilation", highlight=False)


def print_difference(
    difference: Mapping[str, tuple[Decision | None, Decision | None]],
    plans: tuple[Plan, Plan],
    console: Console,
) -> None:
    """A table of the instructions on which two plans differ, with the types in both."""
    if plans[0].keep_output_type != plans[1].keep_output_type:
        keeps, gives = sorted(p.policy for p in plans if p.keep_output_type), "low"
        console.print(f"only {keeps[0]} keeps the result's type: the other gives {gives} results")
    if not difference:
        console.print("The plans decide the same.")
        return
    table = Table("instruction", *(f"{p.policy}{n}" for p, n in zip(plans, _marks(plans), strict=True)))
    for name, pair in difference.items():
        table.add_row(name, *(Text(_brief(d)) for d in pair))
    console.print(table)


def _marks(plans: tuple[Plan, Plan]) -> tuple[str, str]:
    return (" (first)", " (second)") if plans[0].policy == plans[1].policy else ("", "")


def _brief(d: Decision | None) -> str:
    if d is None:
        return "as the model"
    operands, sums, result = types_of(d).values()
    return f"{operands} -> {sums} -> {result}"
