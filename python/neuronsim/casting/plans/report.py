"""Plans, their explanations and their differences as tables on a terminal."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rich.console import Console

from neuronsim.casting.decisions.reasons import told
from neuronsim.casting.decisions.record import Decision, PlanRecord
from neuronsim.casting.plans.casts import Cast, CastCounts
from neuronsim.casting.plans.explain import (
    Line,
    describe,
    described,
    group,
    sums,
    type_difference,
    types_of,
)
from neuronsim.errors import counted
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import Instruction, Module, graph_computations
from neuronsim.tables import print_table, print_text

EACH = 60  # lines up to which a table has a row for each instruction
NAMED = 3  # instructions that a row of many names
COLUMNS = ("instruction", "opcode", "operands", "sums", "result", "why")


def print_explanation(
    found: Sequence[Line],
    casts: Sequence[Cast],
    counts: CastCounts,
    plan: PlanRecord,
    console: Console,
    *,
    single: bool,
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
    decided = [line for line in found if line.decision]
    each = tuple((line,) for line in decided) if len(decided) <= EACH else group(decided, plan)
    groups = (*each, *group((line for line in found if not line.decision), plan))
    rows = []
    for g in groups:
        d = g[0].decision
        cells = tuple(types_of(d, sums=g[0].sums).values()) if d else ("", "", "as the model")
        if g[0].differs:
            cells = ("", "", described(g[0].given or ()) or "merged")
        names = _named([(line.instruction.name, _scope(line.instruction)) for line in g])
        rows.append((names, g[0].instruction.opcode, *cells, told(g[0].reason, plan.policy).short))
    print_text(console, plan.policy)
    print_table(console, COLUMNS, rows)
    for line, *_ in groups:
        if told(line.reason, plan.policy).fact:
            text = f"{line.instruction.name}: {line.reason}"
            console.print(text, markup=False, highlight=False, soft_wrap=True)
    print_casts(casts, counts, console)


def _scope(i: Instruction) -> str:
    """Where in the source it comes from, in brackets."""
    return f" ({i.metadata.op_name})" if i.metadata.op_name else ""


def _named(scoped: Sequence[tuple[str, str]]) -> str:
    """The first of many names with their scopes; what several have in turn stands behind the last."""
    more = f" and {len(scoped) - NAMED} more" if len(scoped) > NAMED else ""
    scopes = itertools.groupby(scoped[:NAMED], key=lambda pair: pair[1])
    return "; ".join(", ".join(name for name, _ in pairs) + scope for scope, pairs in scopes) + more


def print_casts(casts: Sequence[Cast], counts: CastCounts, console: Console) -> None:
    """How many converts run, and how many bytes they read and write, by their types; and what is
    assumed of loops and branches.
    """
    totals: dict[tuple[str, str], list[int]] = {}
    for c in casts:
        if not c.of_constant and c.runs:
            total = totals.setdefault((c.from_type, c.to_type), [0, 0])
            total[0] += c.runs
            total[1] += c.runs * c.bytes
    for (source, target), (count, size) in totals.items():
        console.print(
            f"{counted(count, 'cast')} of {source} to {target} in each run, {size} bytes",
            highlight=False,
        )
    assumed = [(f"{x.name} {x.trips}", "") for x in counts.loops if x.evidence in ("bound", "assumed")]
    if assumed and totals:
        text = f"with so many trips of loops whose number is not known (--trips): {_named(assumed)}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    spared = sum(not c.of_constant and not c.runs for c in casts)
    if spared:
        text = f"{spared} more in branches that cast fewer bytes than others, or loops without trips"
        console.print(text, highlight=False)
    constants = sum(c.of_constant for c in casts)
    if constants:
        told = f"{counted(constants, 'cast')} of constants, once at compilation"
        console.print(told, highlight=False)


def print_difference(
    first: PlanRecord, second: PlanRecord, console: Console, model: Module | None = None
) -> None:
    """A table of the instructions to which two plans give other types, grouped by these, and by opcode
    where the module is given. Reasons alone make no difference.
    """
    if first.keep_output_type != second.keep_output_type:
        keeps = first.policy if first.keep_output_type else second.policy
        console.print(f"only {keeps} keeps the result's type: the other gives low results")
    difference = type_difference(first, second)
    if not difference:
        console.print("The plans decide the same types.")
        return
    flat = inline_calls(model) if model else None
    known = {i.name: i for c in graph_computations(flat) for i in c.instructions} if flat else {}
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, pair in difference.items():
        i = known.get(name)
        summing = i is None or flat is None or sums(i, flat.by_name)
        key = (i.opcode if i else "", *(_brief(d, sums=summing) for d in pair))
        groups.setdefault(key, []).append(name)
    marks = (" (first)", " (second)") if first.policy == second.policy else ("", "")
    titles = (f"{p.policy}{n}" for p, n in zip((first, second), marks, strict=True))
    headers = ("instructions", "count", *(["opcode"] if known else []), *titles)
    rows = []
    for (opcode, *briefs), names in groups.items():
        listed = _named([(n, _scope(known[n]) if n in known else "") for n in names])
        rows.append((listed, str(len(names)), *([opcode] if known else []), *briefs))
    print_table(console, headers, rows, right=("count",))
    total = len({*first.decisions, *second.decisions})
    console.print(f"{len(difference)} of the {total} instructions that either plan decides differ")


def _brief(d: Decision | None, *, sums: bool) -> str:
    return " -> ".join(filter(None, types_of(d, sums=sums).values())) if d else "as the model"
