"""Operators of quantized_decomposed, what PyTorch's quantizers write between floats and integers, and
those of training that round as these do, in the steps of PyTorch's own definitions, each rounded in
float32. Scales and zero points that PyTorch holds in float64 and int64 are float32 and int32 here,
which have the same values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.evaluation import select_elements
from neuronsim.dtypes import DType
from neuronsim.frontends.torch.promotion import as_type
from neuronsim.frontends.torch.table import Node, operator

_PREFIX = "quantized_decomposed."
_PER_TENSOR = ("default", "tensor", "tensor2")  # numbers, or tensors of one element


def _names(name: str, overloads: Sequence[str]) -> list[str]:
    return [f"{_PREFIX}{name}.{o}" for o in overloads]


def _float32(x: Any) -> Array:
    """A number or an array as float32, in which scales are held."""
    return as_type(x, dtypes.float32)


def _reciprocal(scale: Any) -> Array:
    """1 / scale, rounded to float32: of a number it is one of float64 before, which changes no bit."""
    return _float32(1.0 / scale) if isinstance(scale, float) else np.divide(1.0, _float32(scale))


def _scalar(x: Any) -> Any:
    """A number, or a tensor of one element without its axes."""
    return x.reshape(()) if isinstance(x, Array) else x


def _along(x: Any, axis: int, rank: int) -> Any:
    """A vector beside the axis of an array."""
    if not isinstance(x, Array):
        return x
    return x.reshape([-1 if n == axis % rank else 1 for n in range(rank)])


def _quantized(x: Array, scale: Any, zero: Any, limits: tuple[Any, Any], dtype: DType) -> Array:
    nearest = np.rint(np.multiply(_float32(x), _reciprocal(scale)))
    return _within(np.add(nearest, _float32(zero)), limits, dtype)


def _within(x: Array, limits: tuple[Any, Any], dtype: DType) -> Array:
    low, high = (_float32(_scalar(v)) for v in limits)
    return np.minimum(np.maximum(x, low), high).astype(dtype)


def _dequantized(x: Array, scale: Any, zero: Any, dtype: DType | None) -> Array:
    wide = _float32(x)
    if zero is not None:
        wide = np.subtract(wide, _float32(zero))
    return as_type(np.multiply(wide, _float32(scale)), dtype or dtypes.float32)


@operator(*_names("quantize_per_tensor", _PER_TENSOR))
def _quantize_per_tensor(
    node: Node, x: Array, scale: Any, zero: Any, low: Any, high: Any, dtype: DType
) -> Array:
    return _quantized(x, _scalar(scale), _scalar(zero), (low, high), dtype)


@operator(*_names("dequantize_per_tensor", _PER_TENSOR))
def _dequantize_per_tensor(
    node: Node,
    x: Array,
    scale: Any,
    zero: Any,
    low: Any,
    high: Any,
    dtype: DType,
    *,
    out_dtype: Any = None,
) -> Array:
    return _dequantized(x, _scalar(scale), _scalar(zero), out_dtype)


@operator(_PREFIX + "quantize_per_channel.default")
def _quantize_per_channel(
    node: Node, x: Array, scales: Array, zeros: Array, axis: int, low: int, high: int, dtype: DType
) -> Array:
    scale, zero = (_along(v, axis, x.ndim) for v in (scales, zeros))
    return _quantized(x, scale, zero, (low, high), dtype)


@operator(_PREFIX + "dequantize_per_channel.default")
def _dequantize_per_channel(
    node: Node,
    x: Array,
    scales: Array,
    zeros: Array | None,
    axis: int,
    low: int,
    high: int,
    dtype: DType,
    *,
    out_dtype: Any = None,
) -> Array:
    scale, zero = (_along(v, axis, x.ndim) for v in (scales, zeros))
    return _dequantized(x, scale, zero, out_dtype)


def _range_with_zero(node: Node, x: Array, **reduced: Any) -> tuple[Array, Array]:
    if x.dtype is not dtypes.float32:
        raise node.refuse(f"of {x.dtype.name} is not read: float32 is")
    low, high = np.min(x, **reduced), np.max(x, **reduced)
    return np.minimum(low, 0.0), np.maximum(high, 0.0)


@operator(_PREFIX + "choose_qparams.tensor")
def _choose(
    node: Node, x: Array, low: int, high: int, epsilon: float, dtype: DType
) -> tuple[Array, Array]:
    least, most = _range_with_zero(node, x)
    scale = np.maximum(np.divide(np.subtract(most, least), float(high - low)), epsilon)
    zero = np.subtract(float(low), np.rint(np.divide(least, scale)))
    zero = np.minimum(np.maximum(zero, float(low)), float(high))
    return scale.reshape((1,)), zero.astype(dtypes.int32).reshape((1,))


@operator(_PREFIX + "choose_qparams_symmetric.tensor")
def _choose_symmetric(
    node: Node, x: Array, low: int, high: int, epsilon: float, dtype: DType
) -> tuple[Array, Array]:
    least, most = _range_with_zero(node, x)
    largest = np.maximum(np.negative(least), most)
    scale = np.maximum(np.divide(largest, (high - low) / 2), epsilon).reshape((1,))
    return scale, np.full((1,), 128 if dtype is dtypes.uint8 else 0, dtype=dtypes.int32)


@operator(_PREFIX + "choose_qparams_per_token_asymmetric.default")
def _choose_per_token_asymmetric(node: Node, x: Array, dtype: DType) -> tuple[Array, Array]:
    """The end of the range that is off by less decides the zero point."""
    low, high = -128.0, 127.0
    least, most = _range_with_zero(node, x, axis=-1, keepdims=True)
    scale = np.maximum(np.divide(np.subtract(most, least), high - low), 2.0**-23)
    below, above = np.divide(least, scale), np.divide(most, scale)
    errors = np.add(np.add(low, below), np.add(high, above))
    zero = np.where(np.greater(errors, 0.0), np.subtract(low, below), np.subtract(high, above))
    zero = np.rint(np.minimum(np.maximum(zero, low), high))
    return scale, zero.astype(dtypes.int32)


@operator(_PREFIX + "choose_qparams_per_token.default")
def _choose_per_token(node: Node, x: Array, dtype: DType) -> tuple[Array, Array]:
    """The largest magnitude of each row over 127."""
    largest = np.max(np.abs(x), axis=-1, keepdims=True)
    if x.dtype is dtypes.float16:
        largest = _float32(largest)
    scales = np.divide(np.maximum(largest, as_type(1e-5, largest.dtype)), 127)
    return scales, np.zeros_like(scales)


@operator(_PREFIX + "quantize_per_token.default")
def _quantize_per_token(
    node: Node, x: Array, scales: Array, zeros: Array, low: int, high: int, dtype: DType
) -> Array:
    """The zero points are added before what is nearest is taken."""
    moved = np.add(np.multiply(_float32(x), _reciprocal(scales)), _float32(zeros))
    return _within(np.rint(moved), (low, high), dtype)


@operator(_PREFIX + "dequantize_per_token.default")
def _dequantize_per_token(
    node: Node,
    x: Array,
    scales: Array,
    zeros: Array,
    low: int,
    high: int,
    dtype: DType,
    output_dtype: DType = dtypes.float32,
) -> Array:
    return _dequantized(x, scales, zeros, output_dtype)


# ---- floats rounded as integers would be -----------------------------------------------------------


def _rounded(x: Array, scale: Any, zero: Any, low: int, high: int) -> list[Array]:
    """On the grid of the integers from `low` to `high`, and which of the elements lie inside of it: NaN
    is the lowest.
    """
    nearest = np.add(np.rint(np.multiply(_float32(x), _reciprocal(scale))), _float32(zero))
    inside = np.logical_and(np.greater_equal(nearest, low), np.less_equal(nearest, high))
    integers = np.fmin(np.fmax(nearest, float(low)), float(high))
    return [_dequantized(integers, scale, zero, x.dtype), inside]


@operator("aten.fake_quantize_per_tensor_affine_cachemask.default")
def _fake_quantize(
    node: Node, x: Array, scale: Any, zero_point: Any, quant_min: int, quant_max: int
) -> list[Array]:
    return _rounded(x, scale, zero_point, quant_min, quant_max)


@operator("aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default")
def _fake_quantize_by_tensors(
    node: Node,
    x: Array,
    scale: Array,
    zero_point: Array,
    fake_quant_enabled: Array,
    quant_min: int,
    quant_max: int,
) -> list[Array]:
    found, inside = _rounded(x, _scalar(scale), _scalar(zero_point), quant_min, quant_max)
    is_off = np.equal(_scalar(fake_quant_enabled), 0)
    return [np.where(is_off, x, found), np.logical_or(is_off, inside)]


@operator("aten.fake_quantize_per_channel_affine_cachemask.default")
def _fake_quantize_channels(
    node: Node, x: Array, scale: Array, zero_point: Array, axis: int, quant_min: int, quant_max: int
) -> list[Array]:
    scales, zeros = (_along(v, axis, x.ndim) for v in (scale, zero_point))
    return _rounded(x, scales, zeros, quant_min, quant_max)


@operator(
    "aten.fake_quantize_per_tensor_affine_cachemask_backward.default",
    "aten.fake_quantize_per_channel_affine_cachemask_backward.default",
)
def _fake_quantize_backward(node: Node, grad: Array, mask: Array) -> Array:
    """The gradients of elements inside of the grid."""
    return select_elements(mask, grad, 0)


_LEAST_SCALE = 6.1e-5  # PyTorch's own


def _parameters(
    low: Array, high: Array, least: int, most: int, *, symmetric: bool
) -> tuple[Array, Array]:
    """The scale and the zero point of a range on the integers from `least` to `most`; a symmetric one
    has 0 in the middle, if it has elements on both sides.
    """
    steps, crosses = most - least, np.logical_and(np.less(low, 0), np.greater(high, 0))
    if symmetric:
        half = steps // 2
        largest = np.maximum(np.abs(np.divide(low, -half - 1)), np.abs(np.divide(high, half)))
        low = np.where(crosses, np.multiply(largest, -half - 1), low)
        high = np.where(crosses, np.multiply(largest, half), high)
    low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    scale = np.divide(np.subtract(high, low), steps)
    scale = np.where(np.equal(np.divide(1.0, scale), float("inf")), as_type(0.1, scale.dtype), scale)
    wider = np.divide(np.maximum(scale, _LEAST_SCALE), scale)
    scale = np.maximum(scale, _LEAST_SCALE)
    below, above = (np.divide(np.multiply(v, wider), scale) for v in (low, high))
    is_from_low = np.less(np.subtract(abs(least), np.abs(below)), np.subtract(abs(most), np.abs(above)))
    zero = np.where(is_from_low, np.subtract(least, below), np.subtract(most, above))
    if symmetric:
        zero = np.where(crosses, as_type((least + most) / 2, zero.dtype), zero)
    return scale, np.rint(np.minimum(np.maximum(zero, float(least)), float(most)))


@operator("aten._fused_moving_avg_obs_fq_helper_functional.default")
def _observe_and_round(
    node: Node,
    x: Array,
    observer_on: Array,
    fake_quant_on: Array,
    running_min: Array,
    running_max: Array,
    scale: Array,
    zero_point: Array,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> list[Array]:
    """Rounded by the range so far, which goes towards that of each call: what is rounded, which
    elements lie inside, and the range and its parameters after the call.
    """
    axis = ch_axis % max(x.ndim, 1)
    if {running_min.size, scale.size} != {x.shape[axis] if per_row_fake_quant else 1}:
        raise node.refuse("before it has observed a range is not read: run the model once")
    others = tuple(d for d in range(x.ndim) if d != axis or not per_row_fake_quant)
    observes, rounds = (np.not_equal(_scalar(v), 0) for v in (observer_on, fake_quant_on))
    ranges = []
    for old, extreme in ((running_min, np.min), (running_max, np.max)):
        now = np.reshape(_float32(extreme(x, axis=others)), old.shape)
        moved = np.add(old, np.multiply(np.subtract(now, old), averaging_const))
        is_first = np.equal(np.abs(old), float("inf"))
        ranges.append(np.where(observes, np.where(is_first, now, moved), old))
    low, high = ranges
    own_scale, own_zero = _parameters(low, high, quant_min, quant_max, symmetric=symmetric_quant)
    if per_row_fake_quant:
        scales, zeros = (_along(v, axis, x.ndim) for v in (own_scale, own_zero))
    else:
        scales, zeros = _scalar(own_scale), _scalar(own_zero)
    found, inside = _rounded(x, scales, zeros, quant_min, quant_max)
    chosen = [
        np.where(rounds, np.reshape(new, old.shape).astype(old.dtype), old)
        for new, old in ((own_scale, scale), (own_zero, zero_point))
    ]
    is_off = np.logical_not(rounds)
    return [np.where(rounds, found, x), np.logical_or(is_off, inside), *ranges, *chosen]
