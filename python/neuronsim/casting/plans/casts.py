"""The converts that a plan puts into a module, how often they run, and what decided on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from neuronsim.casting.application.convert_merging import converted_before
from neuronsim.casting.conversions import UNROUNDED
from neuronsim.casting.decisions.record import PlanRecord
from neuronsim.hlo.array_sources import Sources, array_sources
from neuronsim.hlo.constant_arrays import Constants, constant_arrays
from neuronsim.hlo.inlining import FlatModule, inline_calls
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    graph_computations,
)
from neuronsim.hlo.opcodes import CONVERTS
from neuronsim.hlo.trip_counts import LoopTrips, Trips, loop_trips, run_counts


@dataclass(frozen=True)
class Cast:
    """A convert that a plan put into a module: of whose value, from which type to which, how many bytes
    it reads and writes each time, for which readers, and why. It is done `runs` times in a run: in each
    trip of a loop, and in the branches that are counted (`CastCounts`); a constant's once, at
    compilation.
    """

    name: str
    source: str
    from_type: str
    to_type: str
    bytes: int
    readers: tuple[str, ...]
    reason: str
    of_constant: bool
    runs: int = 1


@dataclass(frozen=True)
class CastCounts:
    """What is counted of a planned module's casts: the trips of its loops, and its conditionals, of
    which the branch whose casts read and write the most bytes is.
    """

    loops: tuple[LoopTrips, ...]
    conditionals: tuple[str, ...]


def casts(model: Module, planned: FlatModule, plan: PlanRecord) -> tuple[Cast, ...]:
    """The converts of a planned module that its model does not have, in the order of execution; loops
    whose trips are not known count as `CastCounts` says.
    """
    return count_casts(model, planned, plan)[0]


def count_casts(
    model: Module, planned: FlatModule, plan: PlanRecord, trips: Trips = None
) -> tuple[tuple[Cast, ...], CastCounts]:
    """The same, and what is counted: loops whose trips are not known with `trips` (`loop_trips`)."""
    own = {i.name: i for c in graph_computations(inline_calls(model)) for i in c.instructions}
    loops = loop_trips(planned, trips)
    constants = constant_arrays(planned)
    graphs = graph_computations(planned)
    found = {c.name: _casts_of(c, own, constants[c.name], plan) for c in graphs}
    counted = run_counts(
        planned, loops, lambda c: sum(x.bytes for x in found[c.name] if not x.of_constant)
    )
    made = (replace(x, runs=counted.counts[c.name]) for c in graphs for x in found[c.name])
    return tuple(made), CastCounts(loops, counted.conditionals)


def _casts_of(
    c: Computation, own: Mapping[str, Instruction], constants: Constants, plan: PlanRecord
) -> list[Cast]:
    """The casts of one computation."""
    users, before = c.users(), converted_before(c)
    of_given = _of_given(c, constants, array_sources(c))
    unrounded = _unrounded(c, own)
    rounded = frozenset(unrounded.values())
    found = []
    for i in c.instructions:
        known = own.get(unrounded.get(i.name, i.name))
        is_own = known is not None and known.opcode == i.opcode and i.name not in rounded
        if i.opcode not in CONVERTS or is_own:
            continue
        source = c.by_name[i.operands[0]]
        sizes = source.array.dtype.itemsize + i.array.dtype.itemsize
        readers = tuple(unrounded.get(u.name, u.name) for u in users[i.name])
        found.append(
            Cast(
                name=i.name,
                source=source.name,
                from_type=_type(source),
                to_type=_type(i),
                bytes=i.array.size * sizes,
                readers=readers or (c.root,),
                reason=_reason(i, readers, plan),
                of_constant=i.name in before or i.name in of_given,
            )
        )
    return found


def _of_given(c: Computation, constants: Constants, sources: Sources) -> set[str]:
    """The converts of a constant that a loop or branch is given."""
    first: dict[str, Instruction] = {}  # what a chain of converts begins with
    for i in c.instructions:
        if i.opcode in CONVERTS:
            source, _ = sources[i.operands[0]][0]
            first[i.name] = first.get(source.name, source)
    return {
        name for name, i in first.items() if i.opcode == "parameter" and None not in constants[name]
    }


def _unrounded(planned: Computation, own: Mapping[str, Instruction]) -> dict[str, str]:
    """The instructions whose result another one rounds under the model's name (`apply_plan`), with that
    name.
    """
    found = {}
    for i in planned.instructions:
        name = i.name.rpartition(UNROUNDED)[0]
        if i.name not in own and name in own and own[name].opcode == i.opcode:
            found[i.name] = name
    return found


def _type(i: Instruction) -> str:
    """The type of a value, where a reduce-precision made it, the format that it rounded to."""
    if i.opcode != "reduce-precision":
        return i.array.dtype.name
    bits = i.attributes["exponent_bits"], i.attributes["mantissa_bits"]
    return "tfloat32" if bits == (8, 10) else f"float({bits[0]},{bits[1]})"


def _reason(i: Instruction, readers: Sequence[str], plan: PlanRecord) -> str:
    if i.name in plan.decisions:
        return f"its result is rounded: {plan.decisions[i.name].reason}"
    low = _type(i)
    if low != "float32":
        for reader in readers:
            if reader in plan.decisions:
                return f"{reader} reads {low}: {plan.decisions[reader].reason}"
    if readers:
        decision = plan.decisions.get(readers[0])
        kept = decision.reason if decision else plan.kept.get(readers[0], "the model's type")
        return f"{readers[0]} reads {low}: {kept}"
    return f"the result keeps the model's type {low} (A2)"
