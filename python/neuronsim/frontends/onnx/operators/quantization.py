"""Quantized integers: to and from floats, and products of them (rules Q)."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays import nn
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.layers import psum_type
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidModel
from neuronsim.frontends.onnx.carried import Carried, ElementType, carried, element_of
from neuronsim.frontends.onnx.files import dtype_of, element_type
from neuronsim.frontends.onnx.operators.elementwise import cast, clipped, computable
from neuronsim.frontends.onnx.operators.windows import _window
from neuronsim.frontends.onnx.table import Node, operator
from neuronsim.frontends.primitives import padded
from neuronsim.frontends.tracer import is_traced


def _spread(node: Node, value: Array, x: Array) -> Array:
    return spread(value, x, node.get("axis", 1), node.get("block_size", 0))


def spread(value: Array, x: Array, axis: int, block: int) -> Array:
    """A scale or a zero point beside x: one number, one for each index of an axis, or one for each
    block along it.
    """
    if value.ndim == 0 or (value.size == 1 and not block):
        return value.reshape(())
    at = axis % x.ndim
    if not block:
        return value.reshape(tuple(-1 if d == at else 1 for d in range(x.ndim)))
    if value.ndim != x.ndim or value.shape[at] != -(-x.shape[at] // block):
        raise InvalidModel(
            f"scales {value.bits.type} of blocks of {block} along axis {at} of {x.bits.type}"
        )
    dims = value.shape
    repeated = np.broadcast_to(np.expand_dims(value, at + 1), (*dims[: at + 1], block, *dims[at + 1 :]))
    whole = repeated.reshape((*dims[:at], dims[at] * block, *dims[at + 1 :]))
    return whole[(slice(None),) * at + (slice(x.shape[at]),)]


def quantized(values: Array, zero_point: Any, to: ElementType) -> Array:
    """Q1: the nearest integers plus the zero point, and the limits of the type where they lie beyond;
    the zero point of NaN.
    """
    if isinstance(to, Carried):
        return carried(_within(values, zero_point, to.carrier, *to.limits), to)
    info = numpy.iinfo(to.numpy)
    return _within(values, zero_point, to, float(info.min), float(info.max))


def _within(values: Array, zero_point: Any, to: DType, least: float, most: float) -> Array:
    nearest = np.rint(values).astype(psum_type(values))
    if zero_point is None or not _any(zero_point):
        return clipped(nearest, least, most).astype(to)
    if to.bits > 16:
        raise InvalidModel(f"a zero point of {to.name}: one is of 8 or 16 bits")
    offset = zero_point.astype(nearest.dtype)
    low, high = np.subtract(least, offset), np.subtract(most, offset)
    moved = clipped(nearest, low, high).astype(dtypes.int32)
    return np.add(moved, zero_point.astype(dtypes.int32)).astype(to)


def _any(zero_point: Array) -> bool:
    """Whether a zero point is, or may be, other than 0."""
    return is_traced(zero_point.bits) or bool(numpy.any(zero_point.bits.data))


@operator("QuantizeLinear", since=10)
def quantize_linear(node: Node, x: Array, scale: Array, zero_point: Array | None = None) -> Array:
    """The quotient in the scale's type, or that of `precision`."""
    code = node.get("output_dtype", 0)
    if zero_point is not None:
        to = element_of(zero_point)
    else:
        to = element_type(code, "the attribute 'output_dtype'") if code else dtypes.uint8
    precise = node.get("precision", 0)
    dtype = dtype_of(precise, "the attribute 'precision'") if precise else scale.dtype
    values = np.divide(x.astype(dtype), _spread(node, scale, x).astype(dtype))
    if to.kind == "float":
        return cast(values, to, bool(node.get("saturate", 1)))
    return quantized(values, None if zero_point is None else _spread(node, zero_point, x), to)


@operator("DequantizeLinear", since=10)
def dequantize_linear(node: Node, x: Array, scale: Array, zero_point: Array | None = None) -> Array:
    """(x - zero point) scale, the difference exact, the product in float32, rounded once (R7)."""
    code = node.get("output_dtype", 0)
    to = dtype_of(code, "the attribute 'output_dtype'") if code else scale.dtype
    beside = None if zero_point is None else _spread(node, zero_point, x)
    return dequantized(x, _spread(node, scale, x), beside).astype(to)


def dequantized(x: Array, scale: Array, zero_point: Array | None) -> Array:
    """Q2: (x - zero point) scale, the difference exact, the product in float32."""
    centred = computable(x)
    if x.dtype.kind != "float":
        centred = x.astype(dtypes.int32)
        if zero_point is not None and x.dtype is not dtypes.int32 and _any(zero_point):
            centred = np.subtract(centred, zero_point.astype(dtypes.int32))
    wide = psum_type(scale)
    return np.multiply(centred.astype(wide), scale.astype(wide))


@operator("DynamicQuantizeLinear", since=11)
def quantized_dynamically(node: Node, x: Array) -> tuple[Array, Array, Array]:
    """To uint8, by a scale that takes in all elements and 0."""
    low, high = np.minimum(np.min(x), 0), np.maximum(np.max(x), 0)
    scale = np.divide(np.subtract(high, low), 255)
    scale = np.where(np.equal(scale, 0), 1, scale)
    zero_point = quantized(np.negative(np.divide(low, scale)), None, dtypes.uint8)
    return quantized(np.divide(x, scale), zero_point, dtypes.uint8), scale, zero_point


# ---- products --------------------------------------------------------------------------------------


def _rows(value: Any) -> Any:
    """What is given for each row of a matrix as a column."""
    return value.reshape((-1, 1)) if value is not None and value.ndim == 1 and value.size > 1 else value


def _moves(zero_point: Any) -> bool:
    return zero_point is not None and _any(zero_point)


def _wide(x: Array) -> Array:
    return x.astype(dtypes.int32)


def integer_product(a: Array, a_zero: Any, b: Array, b_zero: Any) -> Array:
    """(a - its zero point) (b - its zero point) in int32: the bytes' product, less each zero point
    times the sums of the other side's rows or columns (Q4).
    """
    if min(a.ndim, b.ndim) < 2:
        left, right = (
            np.subtract(_wide(x), _wide(z)) if _moves(z) else _wide(x)
            for x, z in ((a, a_zero), (b, b_zero))
        )
        return np.matmul(left, right)
    sums = np.matmul(a, b, dtype=dtypes.int32)
    depth = a.shape[-1]
    if _moves(a_zero):
        columns = np.sum(_wide(b), axis=-2, keepdims=True, dtype=dtypes.int32)
        if _moves(b_zero):
            columns = np.subtract(columns, np.multiply(_wide(b_zero), depth))
        sums = np.subtract(sums, np.multiply(_wide(a_zero), columns))
    if _moves(b_zero):
        rows = np.sum(_wide(a), axis=-1, keepdims=True, dtype=dtypes.int32)
        sums = np.subtract(sums, np.multiply(rows, _wide(b_zero)))
    return sums


@operator("MatMulInteger", since=10)
def _matmul_integer(
    node: Node, a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None
) -> Array:
    return integer_product(a, _rows(a_zero), b, b_zero)


@operator("QLinearMatMul", since=10)
def _quantized_matmul(
    node: Node, a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array,
    scale: Array, zero_point: Array,
) -> Array:  # fmt: skip
    sums = integer_product(a, _rows(a_zero), b, b_zero)
    return requantized(sums, _rows(a_scale), b_scale, scale, zero_point)


def requantized(sums: Array, first: Array, second: Array, scale: Array, zero_point: Any) -> Array:
    """Q3: sums of products as quantized integers, by one multiplication in float32."""
    x, y, z = (v.astype(dtypes.float32) for v in (first, second, scale))
    factor = np.divide(np.multiply(x, y), z)
    return quantized(np.multiply(sums.astype(dtypes.float32), factor), zero_point, zero_point.dtype)


# ---- convolutions ----------------------------------------------------------------------------------


def _by_channel(value: Any, rank: int, axis: int) -> Any:
    """What is given for each output channel beside an array whose axis they are."""
    if value is None or value.size == 1:
        return value if value is None else value.reshape(())
    return value.reshape(tuple(-1 if d == axis else 1 for d in range(rank)))


def _convolved(
    node: Node, x: Array, x_zero: Any, w: Array, w_zero: Any, bias: Array | None = None
) -> Array:
    """Sums in int32: of the bytes padded with the zero point, less it times the kernel's sums, plus the
    bias.
    """
    inner, groups = x.ndim - 2, node.get("group", 1)
    window = _window(node, x.shape[2:], w.shape[2:])
    w_zero = _by_channel(w_zero, w.ndim, 0)
    if _moves(w_zero):  # windows would have to be summed: int16 holds the difference
        w = np.subtract(w.astype(dtypes.int16), w_zero.astype(dtypes.int16))
    if _moves(x_zero):
        pads = [(0, 0, 0), (0, 0, 0), *((a, b, 0) for a, b in window.pads)]
        x = padded(x, pads, x_zero.reshape(()))
        window = dataclasses.replace(window, pads=[(0, 0)] * inner)
    settings: dict[str, Any] = {
        "stride": window.strides, "padding": window.pads, "dilation": window.dilations,
        "groups": groups,
    }  # fmt: skip
    sums = nn.conv(x, w, dtype=dtypes.int32, **settings)
    taken = None if bias is None else np.negative(bias)
    if _moves(x_zero):
        kernel = np.sum(_wide(w), axis=tuple(range(1, w.ndim)), dtype=dtypes.int32)
        of_zero = np.multiply(_wide(x_zero).reshape(()), kernel)
        taken = of_zero if taken is None else np.add(of_zero, taken)
    return sums if taken is None else np.subtract(sums, _by_channel(taken, sums.ndim, 1))


@operator("ConvInteger", since=10)
def _conv_integer(
    node: Node, x: Array, w: Array, x_zero: Array | None = None, w_zero: Array | None = None
) -> Array:
    return _convolved(node, x, x_zero, w, w_zero)


@operator("QLinearConv", since=10)
def _quantized_conv(
    node: Node, x: Array, x_scale: Array, x_zero: Array, w: Array, w_scale: Array, w_zero: Array,
    scale: Array, zero_point: Array, bias: Array | None = None,
) -> Array:  # fmt: skip
    sums = _convolved(node, x, x_zero, w, w_zero, bias)
    return requantized(sums, x_scale, _by_channel(w_scale, sums.ndim, 1), scale, zero_point)
