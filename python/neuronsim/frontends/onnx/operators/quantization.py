"""Quantized integers: to and from floats, and products of them."""

from __future__ import annotations

from typing import Any

import numpy

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.layers import psum_type
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidModel
from neuronsim.frontends.onnx.files import dtype_of
from neuronsim.frontends.onnx.operators.elementwise import cast, clipped, computable
from neuronsim.frontends.onnx.operators.windows import _window
from neuronsim.frontends.onnx.table import Node, operator
from neuronsim.frontends.windows import convolved


def _spread(node: Node, value: Array, x: Array) -> Array:
    """A scale or a zero point beside x: one number, one for each index of an axis, or one for each
    block along it.
    """
    axis, block = node.get("axis", 1), node.get("block_size", 0)
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


def quantized(values: Array, zero_point: Any, to: DType) -> Array:
    """The nearest integers plus the zero point, and the limits of the type where they lie beyond."""
    nearest = np.rint(values).astype(psum_type(values))
    if zero_point is not None:
        nearest = np.add(nearest, zero_point.astype(nearest.dtype))
    info = numpy.iinfo(to.numpy)
    return clipped(nearest, float(info.min), float(info.max)).astype(to)


@operator("QuantizeLinear", since=10)
def _quantize(node: Node, x: Array, scale: Array, zero_point: Array | None = None) -> Array:
    """The quotient in the scale's type, or that of `precision`."""
    code = node.get("output_dtype", 0)
    if zero_point is not None:
        to = zero_point.dtype
    else:
        to = dtype_of(code, "the attribute 'output_dtype'") if code else dtypes.uint8
    precise = node.get("precision", 0)
    dtype = dtype_of(precise, "the attribute 'precision'") if precise else scale.dtype
    values = np.divide(x.astype(dtype), _spread(node, scale, x).astype(dtype))
    if to.kind == "float":
        return cast(values, to, bool(node.get("saturate", 1)))
    return quantized(values, None if zero_point is None else _spread(node, zero_point, x), to)


@operator("DequantizeLinear", since=10)
def _dequantize(node: Node, x: Array, scale: Array, zero_point: Array | None = None) -> Array:
    """(x - zero point) scale, the difference exact, the product in float32, rounded once (R7)."""
    code = node.get("output_dtype", 0)
    to = dtype_of(code, "the attribute 'output_dtype'") if code else scale.dtype
    centred = computable(x)
    if x.dtype.kind != "float":
        centred = x.astype(dtypes.int32)
        if zero_point is not None and x.dtype is not dtypes.int32:
            centred = np.subtract(centred, _spread(node, zero_point, x).astype(dtypes.int32))
    wide = psum_type(scale)
    return np.multiply(centred.astype(wide), _spread(node, scale, x).astype(wide)).astype(to)


@operator("DynamicQuantizeLinear", since=11)
def _quantize_dynamically(node: Node, x: Array) -> tuple[Array, Array, Array]:
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


def _centred(x: Array, zero_point: Any) -> Array:
    """The difference from the zero point in int32."""
    wide = x.astype(dtypes.int32)
    return wide if zero_point is None else np.subtract(wide, zero_point.astype(dtypes.int32))


@operator("MatMulInteger", since=10)
def _matmul_integer(
    node: Node, a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None
) -> Array:
    return np.matmul(_centred(a, _rows(a_zero)), _centred(b, b_zero))


@operator("QLinearMatMul", since=10)
def _quantized_matmul(
    node: Node, a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array,
    scale: Array, zero_point: Array,
) -> Array:  # fmt: skip
    sums = np.matmul(_centred(a, _rows(a_zero)), _centred(b, b_zero))
    return _requantized(sums, _rows(a_scale), b_scale, scale, zero_point)


def _requantized(sums: Array, first: Array, second: Array, scale: Array, zero_point: Array) -> Array:
    """Sums of products as quantized integers, in float32."""
    x, y, z = (v.astype(dtypes.float32) for v in (first, second, scale))
    factor = np.divide(np.multiply(x, y), z)
    return quantized(np.multiply(sums.astype(dtypes.float32), factor), zero_point, zero_point.dtype)


# ---- convolutions ----------------------------------------------------------------------------------


def _by_channel(value: Any, rank: int, axis: int) -> Any:
    """What is given for each output channel beside an array whose axis they are."""
    if value is None or value.size == 1:
        return value if value is None else value.reshape(())
    return value.reshape(tuple(-1 if d == axis else 1 for d in range(rank)))


def _convolved(node: Node, x: Array, x_zero: Any, w: Array, w_zero: Any) -> Array:
    """Sums in int32; what pads is the zero point, 0 after the subtraction."""
    inner = x.ndim - 2
    window = _window(node, x.shape[2:], w.shape[2:])
    operands = _centred(x, x_zero), _centred(w, _by_channel(w_zero, w.ndim, 0))
    return convolved(*operands, None, window, [1] * inner, node.get("group", 1))


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
    sums = _convolved(node, x, x_zero, w, w_zero)
    if bias is not None:
        sums = np.add(sums, _by_channel(bias, sums.ndim, 1))
    return _requantized(sums, x_scale, _by_channel(w_scale, sums.ndim, 1), scale, zero_point)
