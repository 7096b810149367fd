"""The cost model: what a planned module takes on one NeuronCore, instruction by instruction.

`estimate` adds up the documented cycles of the engines (`engine_formulas`) and compares the sum with
the time that the memory needs. What it assumes: `assumptions.ASSUMPTIONS`, docs/cost-model.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from neuronsim.hlo.inlining import FlatModule, inline_calls
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    Shape,
    graph_computations,
    live_instructions,
)
from neuronsim.hlo.opcodes import CONVERTS
from neuronsim.hlo.trip_counts import LoopTrips, RunCounts, Trips, loop_trips, run_counts
from neuronsim.targets import Target
from neuronsim.tuning.instruction_costs import Facts, flops_of, instruction_parts, seconds_of
from neuronsim.tuning.loop_facts import loop_facts
from neuronsim.tuning.on_chip_memory import spilled_bytes
from neuronsim.tuning.value_forms import ValueForms


@dataclass(frozen=True)
class InstructionCost:
    """What one instruction takes in all of its `runs`: seconds by engine, one after another; the
    floating-point operations of products.
    """

    name: str
    opcode: str
    op_name: str
    computation: str
    by_engine: Mapping[str, float]
    runs: int
    flops: float

    @property
    def seconds(self) -> float:
        """On all engines."""
        return math.fsum(self.by_engine.values())


@dataclass(frozen=True)
class Estimate:
    """Estimated seconds of one run of a module, and where they go; the trips of its loops that are
    counted, and the conditionals, of which the dearest branch is.

    `seconds` is without overlap between engines; `overlapped_seconds`, the least that perfect overlap
    leaves, is the roofline's: the busiest engine's, or the memory's. `memory_seconds` are those of all
    `memory_bytes`: weights, inputs, results, movements and what does not fit on the chip
    (`spilled_bytes`).
    """

    seconds: float
    by_engine: dict[str, float]
    weight_seconds: float
    loops: tuple[LoopTrips, ...] = ()
    conditionals: tuple[str, ...] = ()
    memory_seconds: float = 0.0
    memory_bytes: int = 0
    spilled_bytes: int = 0
    flops: float = 0.0
    instructions: tuple[InstructionCost, ...] = ()

    @property
    def overlapped_seconds(self) -> float:
        """With perfect overlap of engines and memory."""
        return max(self.memory_seconds, *self.by_engine.values(), 0.0)

    @property
    def bound(self) -> str:
        """What keeps a perfectly overlapped run from being faster: an engine, or `memory`."""
        times = {**self.by_engine, "memory": self.memory_seconds}
        return max(times, key=lambda name: times[name])

    @property
    def intensity(self) -> float:
        """Floating-point operations of products for each byte of device memory."""
        return self.flops / self.memory_bytes if self.memory_bytes else 0.0


def estimate(module: Module, weight_bytes: int, target: Target, trips: Trips = None) -> Estimate:
    """The time of a planned module: its instructions one after another, those of a loop in every trip
    (`loop_trips`), or the time that the memory needs if that is longer.
    """
    flat = inline_calls(module)
    loops = loop_trips(flat, trips)
    known = loop_facts(flat)
    priced, runs = _price(flat, Facts(target, known, ValueForms(known)), loops)
    parts: dict[str, list[float]] = {}
    for i in priced:
        for engine, seconds in i.by_engine.items():
            parts.setdefault(engine, []).append(seconds)
    by_engine = {engine: math.fsum(seconds) for engine, seconds in parts.items()}
    if not target.bandwidth:
        return Estimate(0.0, {}, 0.0, loops, runs.conditionals)
    spilled = spilled_bytes(known, runs.counts, target.sbuf)
    movements = round(by_engine.get("dma", 0.0) * target.bandwidth)
    moved = weight_bytes + _io_bytes(flat) + spilled + movements
    memory = moved / target.bandwidth
    return Estimate(
        seconds=max(math.fsum(by_engine.values()), memory),
        by_engine=by_engine,
        weight_seconds=weight_bytes / target.bandwidth,
        loops=loops,
        conditionals=runs.conditionals,
        memory_seconds=memory,
        memory_bytes=moved,
        spilled_bytes=spilled,
        flops=math.fsum(i.flops for i in priced),
        instructions=priced,
    )


def _io_bytes(flat: Module) -> int:
    """The bytes of inputs and results, which the device's memory has before and after a run."""
    shapes = [s for p in flat.parameters for s in p.shape.arrays()] + list(flat.root.shape.arrays())
    return sum(s.nbytes for s in shapes)


@dataclass(frozen=True)
class _Price:
    """What an instruction costs in one run of `home`, the computation in which it could run."""

    computation: Computation
    instruction: Instruction
    home: str
    by_engine: Mapping[str, float]


@dataclass(frozen=True)
class _SlicedCast:
    """A cast of slices of an array, in a loop or one by one: what one of the whole array costs, where
    it could run, and what those of the slices cost.
    """

    home: str
    whole: float
    slices: list[_Price]


def _price(
    flat: FlatModule, facts: Facts, loops: tuple[LoopTrips, ...]
) -> tuple[tuple[InstructionCost, ...], RunCounts]:
    """What every instruction that takes time costs, and how often each computation runs."""
    sliced: dict[tuple[object, ...], _SlicedCast] = {}
    prices: list[_Price] = []
    for c in graph_computations(flat):
        live = live_instructions(c)
        for i in c.instructions:
            if i.name in live:
                prices += _prices(c, i, facts, sliced)
    own: dict[str, list[float]] = {}
    for p in prices:
        own.setdefault(p.home, []).extend(p.by_engine.values())
    runs = run_counts(flat, loops, lambda c: math.fsum(own.get(c.name, ())))
    found = [_cost(p, runs, 1.0) for p in prices]
    for cast in sliced.values():
        each = math.fsum(sum(p.by_engine.values()) * runs.counts[p.home] for p in cast.slices)
        least = min(each, cast.whole * runs.counts[cast.home])
        found += [_cost(p, runs, least / each if each else 0.0) for p in cast.slices]
    return tuple(f for f in found if f.seconds), runs


def _cost(p: _Price, runs: RunCounts, share: float) -> InstructionCost:
    i, times = p.instruction, runs.counts[p.home]
    operands = [p.computation.by_name[o] for o in i.operands]
    return InstructionCost(
        name=i.name,
        opcode=i.opcode,
        op_name=i.metadata.op_name,
        computation=p.computation.name,
        by_engine={engine: seconds * times * share for engine, seconds in p.by_engine.items()},
        runs=times,
        flops=flops_of(i, operands) * times,
    )


def _prices(
    c: Computation, i: Instruction, facts: Facts, sliced: dict[tuple[object, ...], _SlicedCast]
) -> Iterator[_Price]:
    """What an instruction costs: in which computation, since what a loop does not change leaves it; on
    which engines; how many seconds. Casts of slices of one array are put together.
    """
    known = facts.known
    own = _Price(c, i, known.home[c.name][i.name], _seconds(c, i, facts))
    if i.opcode not in CONVERTS:
        yield own
        return
    if not own.by_engine:
        yield own
        if not facts.forms.is_cast_by_readers(c, i):
            # An engine casts as it stores in every trip; what the first one reads is cast on its own.
            for at, name in known.first_of_trips(c, i.operands[0]):
                if not known.is_constant(at, at.by_name[name]):
                    first = i.replace(operands=(name,))
                    yield _Price(at, first, at.name, _seconds(at, first, facts))
        return
    source = known.sliced(c, i.operands[0])
    if source is None:
        yield own
        return
    around, name = source
    key = around.name, name, i.opcode, i.array.dtype, i.attributes.get("mantissa_bits")
    if key not in sliced:
        shape = Shape(i.array.dtype, around.by_name[name].array.dims)
        whole = _seconds(around, i.replace(operands=(name,), shape=shape), facts)
        sliced[key] = _SlicedCast(around.name, math.fsum(whole.values()), [])
    sliced[key].slices.append(own)


def _seconds(c: Computation, i: Instruction, facts: Facts) -> dict[str, float]:
    """Those of one run of an instruction, by engine."""
    found: dict[str, float] = {}
    for part in instruction_parts(c, i, facts):
        seconds = seconds_of(part, facts.target)
        if seconds:
            found[part.engine] = found.get(part.engine, 0.0) + seconds
    return found
