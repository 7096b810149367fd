"""What a single instruction costs in each type: the weights of a knapsack over estimated time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from neuronsim import dtypes
from neuronsim.dtypes import DType
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    Shape,
    TupleShape,
    graph_computations,
    live_instructions,
)
from neuronsim.hlo.opcodes import CONVERTS, STRUCTURE, row
from neuronsim.hlo.trip_counts import Trips, loop_trips, run_counts
from neuronsim.targets import Target
from neuronsim.tuning.instruction_costs import (
    Facts,
    casts_on_store,
    copy_part,
    element_count,
    instruction_parts,
    seconds_of,
    typed_parts,
)
from neuronsim.tuning.loop_facts import loop_facts
from neuronsim.tuning.value_forms import ON_ENGINE, ValueForms


@dataclass(frozen=True)
class TypedCost:
    """Seconds of an instruction in a type, in all of its runs: `own` its engines', `casts` those of the
    converts at its borders while all instructions around it stay float32.
    """

    own: float
    casts: float

    @property
    def alone(self) -> float:
        """What the instruction costs if it alone has the type."""
        return self.own + self.casts


def marginal_costs(
    module: Module,
    target: Target,
    types: Iterable[DType] = (dtypes.bfloat16, dtypes.float16, dtypes.tfloat32),
    trips: Trips = None,
) -> dict[str, dict[DType, TypedCost]]:
    """For each instruction of an unplanned module that reads or gives float32 and takes time: its cost
    in float32 and in each of the `types`.

    An instruction whose neighbours have its type has no casts there: the cost of a set of lowered
    instructions is at least the sum of its `own`, and at most that of its `alone`.
    """
    flat = inline_calls(module)
    known = loop_facts(flat)
    facts = Facts(target, known, ValueForms(known))
    prices = {
        c.name: [(i, _in_types(c, i, facts, types)) for i in _priced(c, facts)]
        for c in graph_computations(flat)
    }
    runs = run_counts(
        flat,
        loop_trips(flat, trips),
        lambda c: math.fsum(costs[dtypes.float32].own for _, costs in prices[c.name]),
    )
    found: dict[str, dict[DType, TypedCost]] = {}
    for name, priced in prices.items():
        for i, costs in priced:
            times = runs.counts[known.home[name][i.name]]
            found[i.name] = {t: TypedCost(x.own * times, x.casts * times) for t, x in costs.items()}
    return found


def _priced(c: Computation, facts: Facts) -> list[Instruction]:
    """The instructions that have a cost and float32 operands or results."""
    live = live_instructions(c)
    return [
        i
        for i in c.instructions
        if i.name in live
        and i.opcode not in STRUCTURE
        and i.opcode not in CONVERTS
        and any(_is_wide(j) for j in (i, *(c.by_name[o] for o in i.operands)))
        and instruction_parts(c, i, facts)
    ]


def _is_wide(i: Instruction) -> bool:
    return any(s.dtype is dtypes.float32 for s in i.shape.arrays())


def _in_types(
    c: Computation, i: Instruction, facts: Facts, types: Iterable[DType]
) -> Mapping[DType, TypedCost]:
    own = math.fsum(seconds_of(p, facts.target) for p in instruction_parts(c, i, facts))
    found = {dtypes.float32: TypedCost(own, 0.0)}
    operands = [c.by_name[o] for o in i.operands]
    casts = _border_seconds(c, i, operands, facts)
    for t in types:
        stored = dtypes.float32 if t is dtypes.tfloat32 or t.is_open else t  # which carries them (C9)
        parts = typed_parts(c, _as(i, stored), [_as(o, stored) for o in operands], 1, facts)
        lowered = math.fsum(seconds_of(p, facts.target) for p in parts)
        found[t] = TypedCost(min(lowered, own), casts)
    return found


def _as(i: Instruction, dtype: DType) -> Instruction:
    """An instruction with its float32 arrays in another type."""
    if isinstance(i.shape, TupleShape):
        elements = tuple(
            Shape(dtype, s.dims) if isinstance(s, Shape) and s.dtype is dtypes.float32 else s
            for s in i.shape.elements
        )
        return i.replace(shape=TupleShape(elements))
    return i.replace(shape=Shape(dtype, i.shape.dims)) if i.shape.dtype is dtypes.float32 else i


def _border_seconds(
    c: Computation, i: Instruction, operands: Sequence[Instruction], facts: Facts
) -> float:
    """The casts of what an instruction reads and gives in a narrow type, where all others have float32:
    a copy of each operand that no engine stores for it alone, and of a result that no engine stores.
    """
    total = 0.0
    for o in {o.name: o for o in operands}.values():
        if not _is_wide(o) or facts.known.is_constant(c, o):
            continue
        alone = len(facts.forms.readers(c, facts.forms.source(c, o.name))) == 1
        if not (alone and facts.known.all_producers(c, o.name, casts_on_store)):
            total += seconds_of(copy_part(element_count(o), facts.target), facts.target)
    readers = facts.forms.readers(c, (i, 0))
    widened = all(r.opcode not in STRUCTURE and _widens(r) for r in readers)
    if _is_wide(i) and not casts_on_store(i) and not widened:
        total += seconds_of(copy_part(element_count(i), facts.target), facts.target)
    return total


def _widens(reader: Instruction) -> bool:
    """Whether an instruction's engine widens what it reads."""
    return reader.opcode != "output" and row(reader).engine in ON_ENGINE
