"""Biases in the int32 sums of products of integers (Q7): which additions have one, the integers that
it becomes, and where it cannot be there.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes, ops
from neuronsim.casting.decisions.quantization import Quantization
from neuronsim.errors import InvalidArgument
from neuronsim.hlo.module import Computation, Instruction


@dataclass(frozen=True, eq=False)
class Bias:
    """What an addition adds to a product's result, which nothing else reads: values that are known
    before the program runs, one, or one for each index of an axis of the result, whose rank they have.
    `number` is that of the addition's operand, `operands` are the dimensions of the product's.
    """

    product: Instruction
    operands: tuple[tuple[int, ...], tuple[int, ...]]
    addition: Instruction
    number: int
    values: npt.NDArray[np.float32]
    axis: int | None


def find_biases(c: Computation, products: Container[str]) -> dict[str, Bias]:
    """The biases of those of these products, by name, that have one."""
    able = [i for i in c.instructions if i.name in products and i.opcode in ("dot", "convolution")]
    users = c.users() if able else {}
    found = (_bias(c, i, users[i.name]) for i in able)
    return {b.product.name: b for b in found if b is not None}


def _bias(c: Computation, product: Instruction, users: Sequence[Instruction]) -> Bias | None:
    if len(users) != 1 or users[0].opcode != "add" or c.root == product.name:
        return None
    number = 1 if users[0].operands[0] == product.name else 0
    values = _known_values(c, users[0].operands[number])
    if values is None or values.dtype != np.float32 or not values.size:
        return None
    values = values[tuple(slice(None) if step else slice(0, 1) for step in values.strides)]
    varies = [n for n in range(values.ndim) if not _is_constant(values, n)]
    if len(varies) > 1:
        return None
    own = values[tuple(slice(None) if n in varies else slice(0, 1) for n in range(values.ndim))]
    lhs, rhs = (c.by_name[o].array.dims for o in product.operands)
    return Bias(product, (lhs, rhs), users[0], number, own, varies[0] if varies else None)


def _is_constant(x: npt.NDArray[Any], axis: int) -> bool:
    first = np.broadcast_to(x.take([0], axis), x.shape)
    return np.array_equal(x, first, equal_nan=True)


def _known_values(c: Computation, name: str) -> npt.NDArray[Any] | None:
    """The values of a constant, or of one that is moved."""
    i = c.by_name[name]
    if i.opcode == "constant":
        return np.asarray(ops.numbers(i.attributes["literal"]))
    if i.opcode not in ("reshape", "transpose", "broadcast", "copy"):
        return None
    x = _known_values(c, i.operands[0])
    if x is None or i.opcode == "copy":
        return x
    if i.opcode == "transpose":
        return x.transpose(i.attributes["dimensions"])
    if i.opcode == "broadcast":
        at = i.attributes["dimensions"]
        x = np.expand_dims(x, [n for n in range(len(i.array.dims)) if n not in at])
        return np.broadcast_to(x, i.array.dims)
    return x.reshape(i.array.dims)


def integer_bias(
    bias: Bias, lhs: Quantization, rhs: Quantization
) -> tuple[Quantization, npt.NDArray[np.int32]]:
    """How a bias is quantized where the product's operands are so, along the axis of the result that
    has the scales, and its integers, of the result's rank (Q7).

    Raises InvalidArgument, which says why, for one that the int32 sums may not hold.
    """
    if lhs.is_float:
        raise InvalidArgument("the sums of float8 are float32")
    axis = result_axis(bias.product, rhs.axis, bias.operands)
    if axis is not None and bias.axis not in (None, axis):
        raise InvalidArgument("it runs along another axis than the scales")
    if not np.isfinite(bias.values).all():
        raise InvalidArgument("it is not finite")
    with np.errstate(over="ignore"):
        scales = np.array(lhs.scale, np.float32) * np.array(rhs.scale, np.float32)
    by = Quantization(dtypes.int32, tuple(scales.tolist()), (0,) * scales.size, axis)
    integers = by.quantized(bias.values)
    largest, depth = int(np.abs(integers.astype(np.int64)).max()), _depth(bias)
    if largest + depth * _reach(lhs) * _reach(rhs) >= (1 << 31) - 1:
        raise InvalidArgument(
            f"it is up to {largest:.4g} times the scale of the sums, which with {depth} products of "
            "bytes may leave int32"
        )
    return by, integers


def why_not(bias: Bias, lhs: Quantization, rhs: Quantization) -> str:
    """Why the sums of a product may not take its bias; empty where they may."""
    try:
        integer_bias(bias, lhs, rhs)
    except InvalidArgument as error:
        return str(error)
    return ""


def _reach(q: Quantization) -> int:
    """How far a byte may be from the zero point."""
    low, high = q.limits
    return max(max(high - z, z - low) for z in q.zero_point)


def _depth(bias: Bias) -> int:
    """How many products each sum has, at most."""
    i, (_, rhs) = bias.product, bias.operands
    if i.opcode == "convolution":
        output = i.attributes["dimension_numbers"].kernel_output_feature
        return math.prod(size for n, size in enumerate(rhs) if n != output)
    return math.prod(rhs[n] for n in i.attributes["dot_dimensions"].rhs_contracting)


def channel_axes(i: Instruction, rank: int) -> tuple[int, ...]:
    """The axes of a product's right operand, of this rank, that may have scales: the result's."""
    if i.opcode == "convolution":
        return (i.attributes["dimension_numbers"].kernel_output_feature,)
    d: ops.DotDimensions = i.attributes["dot_dimensions"]
    return d.free_rhs(rank)


def result_axis(i: Instruction, axis: int | None, operands: Sequence[tuple[int, ...]]) -> int | None:
    """Where an axis of the right operand is in a product's result; the operands by their dimensions."""
    if axis is None:
        return None
    if i.opcode == "convolution":
        numbers: ops.ConvolutionDimensions = i.attributes["dimension_numbers"]
        return numbers.output_feature
    d: ops.DotDimensions = i.attributes["dot_dimensions"]
    lhs, rhs = map(len, operands)
    return len(d.lhs_batch + d.free_lhs(lhs)) + d.free_rhs(rhs).index(axis)
