"""What AWS documents of a NeuronCore's instructions: the cycles that each takes, and the peaks.

The formulas are those of the Neuron Kernel Interface's documentation of SDK 2.25 ("Estimated
instruction cost" of `nki.isa`), N the elements of a partition. No constant
here is fitted to a measurement.

>>> engine_cycles("activation", 1000), engine_cycles("tensor_tensor", 1000)
(1000, 2000)
>>> engine_cycles("tensor_tensor", 1000, operation="add", bfloat16=True)
1000
>>> matmul_cycles(128, 512), matmul_cycles(128, 512, passes=FLOAT32_PASSES)
(512, 2048)
"""

from __future__ import annotations

import math

from neuronsim.errors import InvalidArgument

FIXED_OVERHEAD = 100  # cycles of any instruction
MINIMUM_INTERVAL = 64  # MIN_II: cycles between instructions of an engine
GPSIMD_START = 150  # cycles of any instruction of GpSimd's own, FIXED_OVERHEAD among them
STATIONARY, MOVING = 128, 512  # the largest free sizes of the tensor engine's operands
FLOAT32_PASSES = 4  # what a product of float32 takes, of those of all narrower types

_FAST_TENSOR_TENSOR = ("add", "multiply", "subtract")
_FAST_REDUCE = ("add", "maximum")


def engine_cycles(
    instruction: str,
    elements: float,
    *,
    operation: str = "",
    bfloat16: bool = False,
    psum: bool = False,
) -> float:
    """The cycles of an instruction of the vector, scalar or GpSimd engine on so many elements of a
    partition, without FIXED_OVERHEAD.

    `operation` is what it applies, `bfloat16` whether all operands and results are that, `psum` whether
    one operand of two is in PSUM. Raises InvalidArgument for an instruction without a formula.
    """
    n = elements
    match instruction:
        case "activation" | "tensor_scalar" | "tensor_copy" | "bn_stats" | "max8" | "vector_transpose":
            return max(MINIMUM_INTERVAL, n)
        case "activation_reduce" | "tensor_scalar_reduce":
            return max(MINIMUM_INTERVAL, n) + MINIMUM_INTERVAL
        case "tensor_tensor":
            fast = psum or (bfloat16 and operation in _FAST_TENSOR_TENSOR)
            return max(MINIMUM_INTERVAL, n if fast else 2 * n)
        case "scalar_tensor_tensor":
            fast = bfloat16 and operation == "subtract multiply" and n % 2 == 0
            return n if fast else 2 * n
        case "copy_predicated":
            return max(MINIMUM_INTERVAL, n if psum else 2 * n)
        case "tensor_tensor_scan":
            return max(MINIMUM_INTERVAL, 2 * n)
        case "tensor_reduce":
            return n / 2 if bfloat16 and operation in _FAST_REDUCE else n
        case "reciprocal":
            return max(MINIMUM_INTERVAL, 8 * n)
        case "bn_aggr":
            return max(MINIMUM_INTERVAL, 13 * (n / 3))
        case "memset":
            return max(MINIMUM_INTERVAL, n / 2 if bfloat16 else n)
        case "iota" | "affine_select":
            return GPSIMD_START - FIXED_OVERHEAD + n
        case "tensor_copy_dynamic":
            return max(600, n)
    raise InvalidArgument(f"{instruction!r} has no documented formula")


def matmul_cycles(stationary: int, moving: int, *, passes: float = 1) -> float:
    """The cycles of one `nc_matmul`: free sizes of its operands up to STATIONARY and MOVING."""
    return passes * max(min(MINIMUM_INTERVAL, stationary), moving)


def product_cycles(
    batch: int, rows: int, depth: int, columns: int, *, passes: float, partitions: int
) -> float:
    """Those of products of matrices in tiles of STATIONARY x MOVING: `depth` is contracted along the
    partitions, and either operand may be the stationary one.
    """
    sides = ((rows, columns), (columns, rows))
    one = min(_tiled_cycles(stationary, moving) for stationary, moving in sides)
    return float(batch * math.ceil(depth / partitions) * one * passes)


def _tiled_cycles(stationary: int, moving: int) -> float:
    return sum(
        count * others * matmul_cycles(s, m)
        for s, count in _tiles(stationary, STATIONARY)
        for m, others in _tiles(moving, MOVING)
    )


def _tiles(n: int, size: int) -> list[tuple[int, int]]:
    """The sizes of the tiles of n, and how many there are of each."""
    whole, rest = divmod(n, size)
    return [(s, count) for s, count in ((size, whole), (rest, 1)) if s and count]
