"""The operators on quantized integers that onnxruntime's quantizer writes (com.microsoft), by their
definitions in its docs/ContribOperators.md: what is no product is computed on the dequantized values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays import nn
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.frontends.onnx.carried import element_of
from neuronsim.frontends.onnx.operators.indexing import gathered
from neuronsim.frontends.onnx.operators.microsoft import attended, fused
from neuronsim.frontends.onnx.operators.quantization import (
    dequantize_linear,
    dequantized,
    integer_product,
    quantize_linear,
    quantized,
    quantized_dynamically,
    requantized,
    spread,
)
from neuronsim.frontends.onnx.operators.recurrent import lstm
from neuronsim.frontends.onnx.operators.windows import average_pool
from neuronsim.frontends.onnx.table import Node
from neuronsim.frontends.primitives import axis_of

fused("QuantizeLinear")(lambda node, x, scale, zero=None: quantize_linear(node, x, scale, zero))
fused("DequantizeLinear")(lambda node, x, scale, zero=None: dequantize_linear(node, x, scale, zero))


def _zero(zero_point: Array | None, like: Array) -> Array:
    """A zero point, 0 of the same type where it is left out."""
    return asarray(0, dtype=like.dtype) if zero_point is None else zero_point


def _result(values: Array, scale: Array, zero_point: Array) -> Array:
    return quantized(np.divide(values, scale), zero_point, zero_point.dtype)


def _binary(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    def run(
        node: Node, a: Array, a_scale: Array, a_zero: Array | None, b: Array, b_scale: Array,
        b_zero: Array | None, scale: Array, zero_point: Array | None = None,
    ) -> Array:  # fmt: skip
        values = function(dequantized(a, a_scale, a_zero), dequantized(b, b_scale, b_zero))
        return _result(values, scale, _zero(zero_point, a))

    return run


fused("QLinearAdd")(_binary(np.add))
fused("QLinearMul")(_binary(np.multiply))


def _unary(function: Callable[[Node, Array], Array]) -> Callable[..., Array]:
    def run(
        node: Node, x: Array, x_scale: Array, x_zero: Array | None, scale: Array,
        zero_point: Array | None = None,
    ) -> Array:  # fmt: skip
        values = function(node, dequantized(x, x_scale, x_zero))
        return _result(values, scale, _zero(zero_point, x))

    return run


fused("QLinearSigmoid")(_unary(lambda node, x: np.sigmoid(x)))
fused("QLinearLeakyRelu")(_unary(lambda node, x: nn.leaky_relu(x, node.get("alpha", 0.01))))


@fused("QLinearSoftmax")
def _softmax(
    node: Node, x: Array, x_scale: Array, x_zero: Array | None, scale: Array, zero_point: Array
) -> Array:
    """Before operator set 13 over the axis and all after it, together."""
    values, axis = dequantized(x, x_scale, x_zero), node.get("axis", -1)
    if int(node.require("opset")) >= 13:
        found = nn.softmax(values, axis)
    else:
        at = axis % x.ndim
        rows = np.reshape(values, (*x.shape[:at], -1))
        found = np.reshape(nn.softmax(rows), x.shape)
    return _result(found, scale, zero_point)


@fused("QLinearConcat")
def _concatenated(node: Node, scale: Array, zero_point: Array, *inputs: Array) -> Array:
    """Of each input its elements, its scale and its zero point."""
    parts = [dequantized(*inputs[i : i + 3]) for i in range(0, len(inputs), 3)]
    return _result(np.concat(parts, axis=int(node.require("axis"))), scale, zero_point)


@fused("QLinearWhere")
def _where(
    node: Node, condition: Array, x: Array, x_scale: Array, x_zero: Array, y: Array, y_scale: Array,
    y_zero: Array, scale: Array, zero_point: Array,
) -> Array:  # fmt: skip
    chosen = np.where(condition, dequantized(x, x_scale, x_zero), dequantized(y, y_scale, y_zero))
    return _result(chosen, scale, zero_point)


# ---- pools and means --------------------------------------------------------------------------------


def _channels_first(node: Node, x: Array) -> Array:
    return np.moveaxis(x, -1, 1) if node.get("channels_last", 0) else x


def _as_given(node: Node, x: Array) -> Array:
    return np.moveaxis(x, 1, -1) if node.get("channels_last", 0) else x


@fused("QLinearAveragePool")
def _average_pool(
    node: Node, x: Array, x_scale: Array, x_zero: Array | None, scale: Array,
    zero_point: Array | None = None,
) -> Array:  # fmt: skip
    values = average_pool(node, _channels_first(node, dequantized(x, x_scale, x_zero)))
    return _as_given(node, _result(values, scale, _zero(zero_point, x)))


@fused("QLinearGlobalAveragePool")
def _global_average_pool(
    node: Node, x: Array, x_scale: Array, x_zero: Array, scale: Array, zero_point: Array
) -> Array:
    """The mean of the integers, whose sum is exact, at the ratio of the scales."""
    image = _channels_first(node, x)
    centred = np.subtract(image.astype(dtypes.int32), x_zero.astype(dtypes.int32))
    axes = tuple(range(2, x.ndim))
    count = 1
    for d in axes:
        count *= image.shape[d]
    sums = np.sum(centred, axis=axes, keepdims=True, dtype=dtypes.int32).astype(dtypes.float32)
    factor = np.divide(x_scale, np.multiply(scale, float(count)))
    found = quantized(np.multiply(sums, factor), zero_point, zero_point.dtype)
    return _as_given(node, found)


@fused("QLinearReduceMean")
@_unary
def _mean(node: Node, x: Array) -> Array:
    axes = node.get("axes")
    along = None if axes is None else tuple(axes)
    return np.mean(x, axis=along, keepdims=bool(node.get("keepdims", 1)))


# ---- products ---------------------------------------------------------------------------------------


@fused("QGemm")
def _gemm(
    node: Node, a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array,
    c: Array | None = None, scale: Array | None = None, zero_point: Array | None = None,
) -> Array:  # fmt: skip
    """Alpha (A B) + C, where C has the scale alpha a_scale b_scale; floats where no scale is given."""
    a = np.matrix_transpose(a) if node.get("transA", 0) else a
    b = np.matrix_transpose(b) if node.get("transB", 0) else b
    sums = integer_product(a, a_zero, b, b_zero)
    if c is not None:
        sums = np.add(sums, c)
    first = np.multiply(a_scale, float(node.get("alpha", 1.0)))
    if scale is None:
        return np.multiply(sums.astype(dtypes.float32), np.multiply(first, b_scale))
    return requantized(sums, first, b_scale, scale, _zero(zero_point, a))


def _floats(sums: Array, first: Array, second: Array, bias: Array | None) -> Array:
    factor = np.multiply(first, second)
    found = np.multiply(sums.astype(dtypes.float32), factor)
    return found if bias is None else np.add(found, bias)


@fused("MatMulIntegerToFloat")
def _matmul_to_float(
    node: Node, a: Array, b: Array, a_scale: Array, b_scale: Array, a_zero: Array | None = None,
    b_zero: Array | None = None, bias: Array | None = None,
) -> Array:  # fmt: skip
    return _floats(integer_product(a, a_zero, b, b_zero), a_scale, b_scale, bias)


@fused("DynamicQuantizeMatMul")
def _dynamic_matmul(
    node: Node, a: Array, b: Array, b_scale: Array, b_zero: Array | None = None,
    bias: Array | None = None,
) -> Array:  # fmt: skip
    codes, scale, zero_point = quantized_dynamically(node, a)
    return _floats(integer_product(codes, zero_point, b, b_zero), scale, b_scale, bias)


@fused("MatMulNBits")
def _narrow_matmul(
    node: Node, a: Array, b: Array, scales: Array, zero_points: Array | None = None,
    group: Array | None = None, bias: Array | None = None,
) -> Array:  # fmt: skip
    """A product with the dequantized weights: integers of 2, 4 or 8 bits packed into bytes [to, block,
    byte], a scale and a zero point for each block of what is summed.
    """
    if group is not None:
        raise node.refuse("with g_idx, which is deprecated: quantize the model again without act_order")
    if node.get("weight_prepacked", 0):
        raise node.refuse("with weights packed for one device (weight_prepacked): export them plain")
    depth, columns, size, bits = (int(node.require(k)) for k in ("K", "N", "block_size", "bits"))
    if bits not in (2, 4, 8):
        raise node.refuse(f"of {bits} bits: neuronsim takes 2, 4 and 8")
    blocks = -(-depth // max(size, 1))
    codes = np.reshape(_unpacked(b, bits), (columns, blocks, size))
    steps = np.reshape(scales, (columns, blocks, 1))
    if zero_points is None:
        zero = asarray(1 << (bits - 1), dtype=codes.dtype)
    else:
        packed = zero_points.dtype.kind == "unsigned"
        lines = np.reshape(zero_points, (columns, -1))
        zero = (_unpacked(lines, bits) if packed else lines)[:, :blocks, None]
    if zero.dtype.kind == "float":
        weights = np.multiply(np.subtract(codes.astype(zero.dtype), zero), steps)
    else:
        weights = dequantized(codes, steps, zero)
    whole = np.reshape(weights, (columns, blocks * size))[:, :depth].astype(a.dtype)
    found = np.matmul(a, np.matrix_transpose(whole))
    return found if bias is None else found + bias


def _unpacked(x: Array, bits: int) -> Array:
    """Bytes as the integers that they hold along the last axis, the lowest bits first."""
    if bits == 8:
        return x
    shifts = np.arange(0, 8, bits, dtype="uint8")
    parts = np.bitwise_and(np.right_shift(x[..., None], shifts), (1 << bits) - 1)
    return np.reshape(parts, (*x.shape[:-1], x.shape[-1] * (8 // bits)))


@fused("GatherBlockQuantized")
def _gather_dequantized(
    node: Node, data: Array, indices: Array, scales: Array, zero_points: Array | None = None
) -> Array:
    """Rows of a quantized table, which stays one of integers: what is read is dequantized."""
    bits, size = node.get("bits", 4), node.get("block_size", 128)
    axis = axis_of(node.get("gather_axis", 0), data.ndim)
    along = axis_of(node.get("quantize_axis", 1), data.ndim)
    if element_of(data) is dtypes.uint8:  # several to a byte, with the middle as the default of zero
        if bits not in (2, 4, 8):
            raise node.refuse(f"of {bits} bits: neuronsim takes 2, 4 and 8")
        if along != data.ndim - 1:
            raise node.refuse(f"of bytes with blocks along axis {along}, which is not their last")
        data = _unpacked(data, bits)
        if zero_points is None:
            zero_points = asarray(1 << (bits - 1), dtype=dtypes.uint8)
        else:
            zero_points = _unpacked(zero_points, bits)[..., : scales.shape[-1]]
    codes = gathered(data, indices, axis)

    def beside(value: Array) -> Array:
        if axis == along:  # the indices choose inside of blocks
            return gathered(spread(value, data, along, size), indices, axis)
        at = along + (indices.ndim - 1 if along > axis else 0)
        return spread(gathered(value, indices, axis), codes, at, size)

    if zero_points is not None and zero_points.ndim:
        zero_points = beside(zero_points)
    return dequantized(codes, beside(scales), zero_points).astype(scales.dtype)


@fused("QAttention")
def _attention(
    node: Node, x: Array, weights: Array, bias: Array, x_scale: Array, weight_scale: Array,
    mask: Array | None = None, x_zero: Array | None = None, weight_zero: Array | None = None,
    past: Array | None = None,
) -> list[Array]:  # fmt: skip
    """The projections as a product of integers, the rest in floats as Attention has it."""
    together = _floats(integer_product(x, x_zero, weights, weight_zero), x_scale, weight_scale, bias)
    return attended(node, together, mask, None, past)


@fused("DynamicQuantizeLSTM")
def _dynamic_lstm(
    node: Node, x: Array, w: Array, r: Array, b: Array | None, lengths: Array | None,
    h: Array | None, c: Array | None, p: Array | None, w_scale: Array, w_zero: Array, r_scale: Array,
    r_zero: Array,
) -> list[Array]:  # fmt: skip
    """An LSTM whose weights are integers [direction, from, to], by scales of each direction or of each
    of their columns; the input as a whole and each step's state are quantized as they are.
    """

    def products(direction: int) -> list[Callable[[Array, Array], Array]]:
        given = ((w_scale, w_zero), (r_scale, r_zero))
        pairs = [tuple(v[direction] if v.ndim else v for v in pair) for pair in given]
        return [partial(_dynamic_product, node, *pair) for pair in pairs]

    w, r = (np.permute_dims(v, (0, 2, 1)) for v in (w, r))
    return lstm(node, x, (w, r, b, p), lengths, (h, c), products)


def _dynamic_product(node: Node, scale: Array, zero: Array, x: Array, weights: Array) -> Array:
    codes, x_scale, x_zero = quantized_dynamically(node, x)
    sums = integer_product(codes, x_zero, np.permute_dims(weights, (1, 0)), zero)
    return _floats(sums, x_scale, scale, None)
