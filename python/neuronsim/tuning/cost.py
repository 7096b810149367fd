"""A first cost model: the documented cycle formulas of NKI's instructions on one NeuronCore-v2.

Formulas: `reference/neuron.md` 6.3 of the project's notes (AWS's NKI documentation of SDK 2.25), with N
the elements of a partition. What the model leaves out: docs/limitations.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from neuronsim import dtypes, ops
from neuronsim.hlo.module import Computation, Instruction, Module, Shape, simple_reducer
from neuronsim.hlo.opcodes import STRUCTURE, row
from neuronsim.targets import Target

FIXED_OVERHEAD = 100  # cycles of any instruction
MINIMUM_INTERVAL = 64  # cycles between instructions of an engine
STATIONARY, MOVING = 128, 512  # the largest free sizes of the tensor engine's operands


@dataclass(frozen=True)
class Estimate:
    """Estimated seconds of one run of a module, and where they go."""

    seconds: float
    by_engine: dict[str, float]
    weight_seconds: float


def estimate(module: Module, weight_bytes: int, target: Target) -> Estimate:
    """The time of a planned module: its instructions one after another, or the
    time to load its weights if that is longer.
    """
    by_engine: dict[str, float] = {}
    for i in module.entry_computation.instructions:
        engine, seconds = instruction_seconds(i, module, target)
        if seconds:
            by_engine[engine] = by_engine.get(engine, 0.0) + seconds
    weights = weight_bytes / target.bandwidth if target.bandwidth else 0.0
    return Estimate(max(math.fsum(by_engine.values()), weights), by_engine, weights)


def instruction_seconds(i: Instruction, module: Module, target: Target) -> tuple[str, float]:
    """The engine that runs an instruction, and for how long."""
    if i.opcode in STRUCTURE or not target.clocks or not isinstance(i.shape, Shape):
        return "none", 0.0
    op = row(i)
    by_name = module.entry_computation.by_name
    operands = [by_name[o] for o in i.operands]
    if op.cost == "none" or (operands and all(o.opcode == "constant" for o in operands)):
        return "none", 0.0  # no work, or done once when the model is loaded
    if op.engine == "dma":
        size = math.prod(i.shape.dims) * i.shape.dtype.itemsize
        return "dma", 2 * size / target.bandwidth
    if op.cost == "tensor_copy" and all(_casts_on_store(o) for o in operands):
        return "none", 0.0
    cycles = _cycles(op, i, operands, module, target.partitions)
    return op.engine, (FIXED_OVERHEAD + cycles) / (target.clocks[op.engine] * 1e9)


def _casts_on_store(producer: Instruction) -> bool:
    """Engines cast without overhead as they write a result (neuron.md 4.2)."""
    return producer.opcode not in STRUCTURE and row(producer).engine in (
        "tensor",
        "vector",
        "scalar",
    )


def _cycles(
    op: ops.Op, i: Instruction, operands: Sequence[Instruction], module: Module, partitions: int
) -> float:
    n = math.ceil(math.prod(i.array.dims) / partitions)
    all_bf16 = all(o.array.dtype is dtypes.bfloat16 for o in [i, *operands])
    match op.cost:
        case "nc_matmul":
            sizes = _convolution_sizes if op.name == "convolution" else _dot_sizes
            product = sizes(i, operands[0].array, operands[1].array)
            return _matmul_cycles(*product, _passes(operands, module.entry_computation), partitions)
        case "tensor_reduce":
            depth = math.ceil(math.prod(operands[0].array.dims) / partitions)
            fast = all_bf16 and simple_reducer(module.by_name[i.called[0]]) in ("add", "maximum")
            return max(MINIMUM_INTERVAL, depth / 2 if fast else depth)
        case "tensor_tensor":
            if any(_is_scalar(o) for o in operands):
                return max(MINIMUM_INTERVAL, n)  # tensor_scalar
            fast = all_bf16 and op.name in ("add", "subtract", "multiply")
            return max(MINIMUM_INTERVAL, n if fast else 2 * n)
        case "reciprocal":  # divide: a reciprocal, then a product
            return max(MINIMUM_INTERVAL, 8 * n) + max(MINIMUM_INTERVAL, 2 * n)
        case "copy_predicated":
            return max(MINIMUM_INTERVAL, 2 * n)
        case "iota":
            return 50 + n
        case _:  # activation, tensor_scalar, tensor_copy
            return max(MINIMUM_INTERVAL, n)


def _is_scalar(i: Instruction) -> bool:
    return i.opcode == "broadcast" and not i.attributes["dimensions"]


def _passes(operands: Sequence[Instruction], entry: Computation) -> int:
    """A float32 product takes four passes; one whose operands are tfloat32 takes one."""
    return 4 if any(_is_full_float32(o, entry) for o in operands) else 1


def _is_full_float32(i: Instruction, entry: Computation) -> bool:
    """HLO carries tfloat32 in float32: it comes from a reduce-precision, perhaps moved since (C9)."""
    while i.opcode not in STRUCTURE and row(i).cast == "movement":
        i = entry.by_name[i.operands[0]]
    rounded = i.opcode == "reduce-precision" and (
        i.attributes["mantissa_bits"] <= dtypes.tfloat32.mantissa_bits
    )
    return i.array.dtype is dtypes.float32 and not rounded


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
