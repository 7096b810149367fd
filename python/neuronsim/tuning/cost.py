"""A first cost model: the documented cycle formulas of NKI's instructions on one NeuronCore-v2.

Formulas: `reference/neuron.md` 6.3 of the project's notes (AWS's NKI documentation of SDK 2.25), with N
the elements of a partition. What the model leaves out: docs/limitations.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from neuronsim import dtypes, ops
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    Shape,
    graph_computations,
    inline_calls,
    live_instructions,
)
from neuronsim.hlo.opcodes import APPLIES_SCALARS, CONVERTS, STRUCTURE, row, scalar_computation
from neuronsim.hlo.trip_counts import LoopTrips, Trips, loop_trips, run_counts
from neuronsim.targets import Target
from neuronsim.tuning.loop_facts import LoopFacts, loop_facts

FIXED_OVERHEAD = 100  # cycles of any instruction
MINIMUM_INTERVAL = 64  # cycles between instructions of an engine
STATIONARY, MOVING = 128, 512  # the largest free sizes of the tensor engine's operands


@dataclass(frozen=True)
class Estimate:
    """Estimated seconds of one run of a module, and where they go; the trips of its loops that are
    counted, and the conditionals, of which the dearest branch is.
    """

    seconds: float
    by_engine: dict[str, float]
    weight_seconds: float
    loops: tuple[LoopTrips, ...] = ()
    conditionals: tuple[str, ...] = ()


def estimate(module: Module, weight_bytes: int, target: Target, trips: Trips = None) -> Estimate:
    """The time of a planned module: its instructions one after another, those of a loop in every trip
    (`loop_trips`), or the time to load its weights once if that is longer.
    """
    flat = inline_calls(module)
    loops = loop_trips(flat, trips)
    known = loop_facts(flat)
    own: dict[str, dict[str, float]] = {c.name: {} for c in graph_computations(flat)}
    sliced: dict[tuple[object, ...], _SlicedCast] = {}
    for c in graph_computations(flat):
        live = live_instructions(c)
        for i in c.instructions:
            if i.name not in live:
                continue
            for home, engine, seconds in _costs(c, i, known, target, sliced):
                if seconds:
                    own[home][engine] = own[home].get(engine, 0.0) + seconds
    runs = run_counts(flat, loops, lambda c: math.fsum(own[c.name].values()))
    parts: dict[str, list[float]] = {}
    for name, of_engines in own.items():
        if runs.counts[name]:
            for engine, seconds in of_engines.items():
                parts.setdefault(engine, []).append(seconds * runs.counts[name])
    for cast in sliced.values():
        each = math.fsum(seconds * runs.counts[home] for home, seconds in cast.slices)
        parts.setdefault(cast.engine, []).append(min(each, cast.whole * runs.counts[cast.home]))
    by_engine = {engine: math.fsum(seconds) for engine, seconds in parts.items()}
    weights = weight_bytes / target.bandwidth if target.bandwidth else 0.0
    total = max(math.fsum(by_engine.values()), weights)
    return Estimate(total, by_engine, weights, loops, runs.conditionals)


@dataclass(frozen=True)
class _SlicedCast:
    """A cast of slices of an array, in a loop or one by one: what one of the whole array costs, where
    it could run, and what those of the slices cost.
    """

    home: str
    engine: str
    whole: float
    slices: list[tuple[str, float]]


def _costs(
    c: Computation,
    i: Instruction,
    known: LoopFacts,
    target: Target,
    sliced: dict[tuple[object, ...], _SlicedCast],
) -> list[tuple[str, str, float]]:
    """What an instruction costs: in which computation, since what a loop does not change leaves it; on
    which engine; how many seconds. Casts of slices of one array are put together.
    """
    own = (known.home[c.name][i.name], *instruction_seconds(c, i, known, target))
    if i.opcode not in CONVERTS or not target.clocks:
        return [own]
    if not own[2]:
        # An engine casts as it stores in every trip; what the first one reads is cast on its own.
        first = known.first_of_trips(c, i.operands[0])
        return [own] + [
            (at.name, *instruction_seconds(at, i.replace(operands=(name,)), known, target))
            for at, name in first
            if not known.is_constant(at, at.by_name[name])
        ]
    source = known.sliced(c, i.operands[0])
    if source is None:
        return [own]
    around, name = source
    key = around.name, name, i.opcode, i.array.dtype, i.attributes.get("mantissa_bits")
    if key not in sliced:
        shape = Shape(i.array.dtype, around.by_name[name].array.dims)
        cast = i.replace(operands=(name,), shape=shape)
        engine, seconds = instruction_seconds(around, cast, known, target)
        sliced[key] = _SlicedCast(around.name, engine, seconds, [])
    sliced[key].slices.append((own[0], own[2]))
    return []


def instruction_seconds(
    c: Computation, i: Instruction, known: LoopFacts, target: Target
) -> tuple[str, float]:
    """The engine that runs an instruction, and for how long."""
    if i.opcode in STRUCTURE or not target.clocks:
        return "none", 0.0
    op = row(i)
    operands = [c.by_name[o] for o in i.operands]
    if op.cost == "none" or known.is_free(c, i):
        return "none", 0.0  # no work, or done once when the model is loaded, or the sequencer's
    if op.engine == "dma":
        return "dma", 2 * _moved_bytes(c, i, known) / target.bandwidth
    if i.opcode in CONVERTS and _is_free_cast(c, i, known):
        return "none", 0.0
    cycles = _cycles(op, i, operands, c, known, target.partitions)
    return op.engine, (FIXED_OVERHEAD + cycles) / (target.clocks[op.engine] * 1e9)


def _moved_bytes(c: Computation, i: Instruction, known: LoopFacts) -> int:
    """The bytes that a movement writes. A slice at a loop's counter is an access pattern, as one at a
    constant is; an update is written where the array lies.
    """
    shapes = i.shape.arrays()
    if i.opcode == "dynamic-slice" and all(known.is_control(c, o) for o in i.operands[1:]):
        return 0
    if i.opcode == "dynamic-update-slice":
        shapes = c.by_name[i.operands[1]].shape.arrays()
    return sum(math.prod(s.dims) * s.dtype.itemsize for s in shapes)


def _is_free_cast(c: Computation, i: Instruction, known: LoopFacts) -> bool:
    """Whether an engine casts as it stores what a cast reads, or the cast changes nothing."""
    if i.opcode == "reduce-precision":
        bits = i.attributes["mantissa_bits"]
        if _is_rounded(c, c.by_name[i.operands[0]], bits, known):
            return True
    return known.all_producers(c, i.operands[0], _casts_on_store)


def _casts_on_store(producer: Instruction) -> bool:
    """Engines cast without overhead as they write a result (neuron.md 4.2)."""
    return producer.opcode not in STRUCTURE and row(producer).engine in (
        "tensor",
        "vector",
        "scalar",
    )


def _elements(i: Instruction) -> int:
    return sum(math.prod(s.dims) for s in i.shape.arrays())


def _cycles(
    op: ops.Op,
    i: Instruction,
    operands: Sequence[Instruction],
    c: Computation,
    known: LoopFacts,
    partitions: int,
) -> float:
    n = math.ceil(_elements(i) / partitions)
    all_bf16 = all(s.dtype is dtypes.bfloat16 for o in (i, *operands) for s in o.shape.arrays())
    if i.opcode in APPLIES_SCALARS:
        return _applied_cycles(
            i, operands, known.flat, partitions, fast=all_bf16 and op.engine == "vector"
        )
    match op.cost:
        case "nc_matmul":
            sizes = _convolution_sizes if op.name == "convolution" else _dot_sizes
            product = sizes(i, operands[0].array, operands[1].array)
            return _matmul_cycles(*product, _passes(operands, c, known), partitions)
        case "tensor_tensor":
            if any(o.opcode == "broadcast" and not o.attributes["dimensions"] for o in operands):
                return max(MINIMUM_INTERVAL, n)  # tensor_scalar
            return _elementwise_cycles(op, n, fast=all_bf16)
        case "iota":
            return 50 + n
        case "tensor_copy" if operands and i.opcode not in CONVERTS:
            # What selects reads all of its operands.
            read = sum(_elements(o) for o in operands)
            return max(MINIMUM_INTERVAL, n, math.ceil(read / partitions))
        case _:
            return _elementwise_cycles(op, n, fast=all_bf16)


def _elementwise_cycles(op: ops.Op, n: int, *, fast: bool) -> float:
    match op.cost:
        case "tensor_tensor":
            doubled = fast and op.name in ("add", "subtract", "multiply")
            return max(MINIMUM_INTERVAL, n if doubled else 2 * n)
        case "reciprocal":  # divide: a reciprocal, then a product
            return max(MINIMUM_INTERVAL, 8 * n) + max(MINIMUM_INTERVAL, 2 * n)
        case "copy_predicated":
            return max(MINIMUM_INTERVAL, 2 * n)
        case _:  # activation, tensor_scalar, tensor_copy
            return max(MINIMUM_INTERVAL, n)


def _applied_cycles(
    i: Instruction, operands: Sequence[Instruction], module: Module, partitions: int, *, fast: bool
) -> float:
    """The cycles of an instruction that applies computations to elements: each of their operations on
    as many elements as it is applied to. A simple reducer is one tensor_reduce.
    """
    total = 0.0
    for name, applications in zip(i.called, _applications(i, operands), strict=True):
        computation = scalar_computation(module, name, i.opcode)
        n = math.ceil(applications / partitions)
        if computation.reducer is not None and i.opcode in ("reduce", "reduce-window"):
            is_fast = fast and computation.reducer in ("add", "maximum")
            total += max(MINIMUM_INTERVAL, n / 2 if is_fast else n)
            continue
        steps = [s.op for s in computation.steps if s.op is not None and s.op.cost != "tensor_copy"]
        if not steps:  # it copies
            total += max(MINIMUM_INTERVAL, n)
        for step in steps:
            total += _elementwise_cycles(step, n, fast=fast)
    return total


def _applications(i: Instruction, operands: Sequence[Instruction]) -> list[int]:
    """How often an instruction applies each of its computations."""
    match i.opcode:
        case "reduce-window" | "select-and-scatter":
            window = math.prod(d.size for d in i.attributes["window"])
            if i.opcode == "reduce-window":
                return [math.prod(i.shape.arrays()[0].dims) * window]
            sources = _elements(operands[1])
            return [sources * window, sources]  # select in each window, then scatter
        case "sort":
            dims = operands[0].array.dims
            length = dims[i.attributes["dimensions"][0]] if dims else 1
            rounds = math.ceil(math.log2(length)) if length > 1 else 1  # of a merge sort
            return [math.prod(dims) * rounds]
        case "scatter":
            return [_elements(operands[-1])]
        case "all-reduce" | "reduce-scatter":
            return [sum(map(_elements, operands))]
        case "map":
            return [_elements(i)]
        case _:
            return [_elements(operands[0])]


def _passes(operands: Sequence[Instruction], c: Computation, known: LoopFacts) -> int:
    """A float32 product takes four passes; one whose operands are tfloat32 takes one. HLO carries
    tfloat32 in float32: it comes from a reduce-precision, perhaps moved since (C9).
    """
    wide = (o for o in operands if o.array.dtype is dtypes.float32)
    bits = dtypes.tfloat32.mantissa_bits
    return 1 if all(_is_rounded(c, o, bits, known) for o in wide) else 4


def _is_rounded(c: Computation, i: Instruction, mantissa_bits: int, known: LoopFacts) -> bool:
    """Whether a reduce-precision rounded all elements of a value to so many bits, or they are a
    scalar, such as a zero, that has no more.
    """
    return known.all_origins(c, i.name, _has_no_more_than(mantissa_bits))


@functools.cache
def _has_no_more_than(mantissa_bits: int) -> Callable[[Instruction], bool]:
    """One test for each number of bits, by which what was found is kept."""
    return lambda i: (
        i.attributes["mantissa_bits"] <= mantissa_bits
        if i.opcode == "reduce-precision"
        else _has_bits(i, mantissa_bits)
    )


def _has_bits(i: Instruction, mantissa_bits: int) -> bool:
    literal = i.attributes.get("literal")
    if not isinstance(literal, ops.Bits) or literal.dtype is not dtypes.float32 or literal.data.ndim:
        return False
    dropped = dtypes.float32.mantissa_bits - mantissa_bits
    bits = int.from_bytes(literal.data.tobytes(), "little")
    return bits & ((1 << max(dropped, 0)) - 1) == 0


def _dot_sizes(i: Instruction, lhs: Shape, rhs: Shape) -> tuple[int, int, int, int]:
    """How many products there are, and their rows, depth and columns."""
    d: ops.DotDimensions = i.attributes["dot_dimensions"]
    batch = math.prod(lhs.dims[a] for a in d.lhs_batch)
    depth = math.prod(lhs.dims[a] for a in d.lhs_contracting)
    rows = math.prod(lhs.dims) // max(batch * depth, 1)
    columns = math.prod(rhs.dims) // max(batch * depth, 1)
    return batch, rows, depth, columns


def _convolution_sizes(i: Instruction, lhs: Shape, rhs: Shape) -> tuple[int, int, int, int]:
    """Those of the matrix of patches and the kernel, one product for each group (M5)."""
    d: ops.ConvolutionDimensions = i.attributes["dimension_numbers"]
    groups = i.attributes["feature_group_count"] * i.attributes["batch_group_count"]
    outputs = rhs.dims[d.kernel_output_feature]
    depth = math.prod(n for axis, n in enumerate(rhs.dims) if axis != d.kernel_output_feature)
    return groups, math.prod(i.array.dims) // max(outputs, 1), depth, outputs // groups


def _matmul_cycles(
    batch: int, rows: int, depth: int, columns: int, passes: int, partitions: int
) -> float:
    sides = ((rows, columns), (columns, rows))  # either operand may be the stationary one
    one = min(_tiled_cycles(stationary, moving) for stationary, moving in sides)
    return float(batch * math.ceil(depth / partitions) * one * passes)


def _tiled_cycles(stationary: int, moving: int) -> int:
    total = 0
    for s in _tiles(stationary, STATIONARY):
        total += sum(max(min(MINIMUM_INTERVAL, s), m) for m in _tiles(moving, MOVING))
    return total


def _tiles(n: int, size: int) -> list[int]:
    return [min(size, n - at) for at in range(0, n, size)]
