"""Composites in float32 steps, rounded once at the end (R7), and convolution (M5).

>>> from neuronsim.arrays.array_object import asarray
>>> softmax(asarray([0.0, 0.0], dtype="bfloat16"))
Array([0.5, 0.5], dtype=bfloat16)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from neuronsim import ops
from neuronsim.arrays.array_object import Array, array_type, asarray, convert, float_array, number
from neuronsim.arrays.axes import Axis, one_axis
from neuronsim.arrays.elementwise import ELEMENTWISE
from neuronsim.arrays.manipulation import broadcast_to
from neuronsim.arrays.reductions import statistic
from neuronsim.dtypes import DTypeLike, result_type
from neuronsim.errors import InvalidArgument

__all__ = [
    *(
        "batch_norm",
        "conv",
        "gelu",
        "layer_norm",
        "log_softmax",
        "logsumexp",
        "mish",
        "relu",
        "rms_norm",
    ),
    *("sigmoid", "silu", "softmax", "softplus"),
]


def _by_rows(name: str, x: Any, axis: Any, terms: dict[str, Any], **attributes: Any) -> Array:
    """A composite over one axis; `terms` are as long as that axis, or one number."""
    a = float_array(x)
    if a.ndim == 0:
        raise InvalidArgument(f"{name} of a scalar: it needs an axis")
    at = one_axis(a, axis)
    return _composite(name, a, [], at, terms, attributes)


def _composite(
    name: str,
    x: Array,
    statistics: Sequence[Array],
    axis: int,
    terms: dict[str, Any],
    attributes: dict[str, Any],
) -> Array:
    given = {key: _term(name, key, t, x, axis) for key, t in terms.items() if t is not None}
    if terms:
        attributes["terms"] = tuple(given)
    operands = [v.bits for v in (x, *statistics, *given.values())]
    return Array(ops.apply(name, operands, dimensions=(axis,), **attributes))


def _term(name: str, what: str, term: Any, x: Array, axis: int) -> Array:
    t = float_array(term)
    try:
        return broadcast_to(t, (x.shape[axis],))
    except InvalidArgument as error:
        raise InvalidArgument(
            f"{name}: the {what} {t.bits.type} is not as long as axis {axis} of {x.bits.type}"
        ) from error


def _epsilon(value: Any) -> float:
    return number("epsilon", value)


def softmax(x: Any, axis: int = -1) -> Array:
    """exp(x - max x) / sum of exp(x - max x) over `axis`."""
    return _by_rows("softmax", x, axis, {})


def log_softmax(x: Any, axis: int = -1) -> Array:
    """(x - max x) - log(sum of exp(x - max x)) over `axis`."""
    return _by_rows("log_softmax", x, axis, {})


def logsumexp(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """log(sum of exp(x - m)) + m over `axis`, where m is max x, or 0 where that is infinite."""
    return statistic("logsumexp", x, axis, keepdims)


def layer_norm(x: Any, weight: Any = None, bias: Any = None, epsilon: float = 1e-5) -> Array:
    """(x - mean) * rsqrt(var + epsilon) over the last axis, the variance two-pass; then the affine."""
    terms = {"weight": weight, "bias": bias}
    return _by_rows("layer_norm", x, -1, terms, epsilon=_epsilon(epsilon))


def rms_norm(x: Any, weight: Any = None, epsilon: float = 1e-5) -> Array:
    """Scaled by the root mean square: x * rsqrt(mean of x^2 + epsilon) over the last axis; then times
    the weight.

    >>> rms_norm(asarray([2.0, 2.0, -2.0, 2.0]), epsilon=0.0)
    Array([ 1.,  1., -1.,  1.], dtype=float32)
    """
    return _by_rows("rms_norm", x, -1, {"weight": weight}, epsilon=_epsilon(epsilon))


def batch_norm(
    x: Any,
    mean: Any,
    variance: Any,
    weight: Any = None,
    bias: Any = None,
    epsilon: float = 1e-5,
    axis: int = 1,
) -> Array:
    """(x - mean) * rsqrt(variance + epsilon) with the statistics of each channel along `axis`, as
    inference has them; then the affine.

    >>> batch_norm(asarray([[3.0, 5.0]]), mean=[1.0, 1.0], variance=[4.0, 4.0], epsilon=0.0)
    Array([[1., 2.]], dtype=float32)
    """
    a = float_array(x)
    at = one_axis(a, axis)
    given = {"mean": mean, "variance": variance}
    statistics = [_term("batch_norm", key, v, a, at) for key, v in given.items()]
    attributes = {"epsilon": _epsilon(epsilon)}
    return _composite("batch_norm", a, statistics, at, {"weight": weight, "bias": bias}, attributes)


def conv(
    x: Any,
    w: Any,
    *,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | Sequence[tuple[int, int]] = 0,
    dilation: int | Sequence[int] = 1,
    base_dilation: int | Sequence[int] = 1,
    groups: int = 1,
    layout: Literal["channels_first", "channels_last"] = "channels_first",
    dtype: DTypeLike | None = None,
) -> Array:
    """The convolution of `x` by the kernel `w`, over any number of spatial axes, by rule M5:
    y[n, o, p] = sum over t and c of x[n, c, p * stride - padding + t * dilation] * w[o, c, t].

    The axes are, as in PyTorch, `x` (batch, channel, spatial...), `w` (output channel, input channel of
    a group, spatial...) and the result (batch, output channel, spatial...); with the layout
    "channels_last" (batch, spatial..., channel), (spatial..., input channel, output channel) and
    (batch, spatial..., output channel). Every number may be one for each spatial axis; a padding may be
    a pair (low, high), and where it is negative it crops. `base_dilation` puts base_dilation - 1 zeros
    between the elements of `x`, as a transposed convolution does. `dtype` is the result's type, by
    default the operands' common one.

    >>> x, w = asarray([[[1.0, 2.0, 3.0, 4.0]]]), asarray([[[1.0, 10.0]]])
    >>> conv(x, w, stride=2)
    Array([[[21., 43.]]], dtype=float32)
    """
    a, kernel = asarray(x), asarray(w)
    if a.dtype.kind != kernel.dtype.kind:  # M1: the lattice type first
        common = result_type(a.dtype, kernel.dtype)
        a, kernel = convert(a, common), convert(kernel, common)
    spatial = a.ndim - 2
    if spatial < 0 or kernel.ndim != a.ndim:
        raise InvalidArgument(
            f"conv: {a.bits.type} and {kernel.bits.type}: both have two axes for batch and channels, "
            "and as many spatial axes"
        )
    try:
        window, numbers = _conv_window(
            kernel.shape, *map(_frozen, (stride, padding, dilation, base_dilation)), layout
        )
    except TypeError as error:
        raise InvalidArgument(f"conv: {error}") from error
    return Array(
        ops.apply(
            "convolution",
            [a.bits, kernel.bits],
            window=window,
            dimension_numbers=numbers,
            feature_group_count=groups,
            batch_group_count=1,
            dtype=None if dtype is None else array_type(dtype),
        )
    )


def _frozen(value: Any) -> Any:
    """A value of `conv` for each axis as something that can be looked up."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_frozen(v) for v in value)
    return value


@lru_cache(4096)
def _conv_window(
    kernel: tuple[int, ...], stride: Any, padding: Any, dilation: Any, base_dilation: Any, layout: str
) -> tuple[tuple[ops.WindowDimension, ...], ops.ConvolutionDimensions]:
    """The window and the dimension numbers of a convolution by a kernel of this shape."""
    spatial = len(kernel) - 2
    inner = tuple(range(spatial))
    if layout == "channels_first":
        moved = tuple(i + 2 for i in inner)
        numbers = ops.ConvolutionDimensions(0, 1, moved, 1, 0, moved, 0, 1, moved)
    elif layout == "channels_last":
        moved, last = tuple(i + 1 for i in inner), spatial + 1
        numbers = ops.ConvolutionDimensions(0, last, moved, spatial, last, inner, 0, last, moved)
    else:
        raise InvalidArgument(f"conv: the layout is channels_first or channels_last, not {layout!r}")
    pads = [(p, p) if isinstance(p, int) else p for p in _per_axis("padding", padding, spatial)]
    columns = zip(
        (kernel[i] for i in numbers.kernel_spatial),
        _per_axis("stride", stride, spatial),
        pads,
        _per_axis("base_dilation", base_dilation, spatial),
        _per_axis("dilation", dilation, spatial),
        strict=True,
    )
    return tuple(ops.WindowDimension(*column) for column in columns), numbers


def _per_axis(name: str, value: Any, spatial: int) -> tuple[Any, ...]:
    """One value for each spatial axis; a pair is one of two integers."""
    if isinstance(value, int | np.integer):
        return (int(value),) * spatial
    values = tuple(tuple(v) if isinstance(v, list) else v for v in value)
    pairs = [v for v in values if isinstance(v, tuple)]
    if len(values) != spatial or any(name != "padding" or len(v) != 2 for v in pairs):
        raise InvalidArgument(
            f"conv: {name}={value!r} is not one {name} for each of {spatial} spatial axes"
        )
    return values


# ---- activations: functions of one variable, correctly rounded (E3) -----------------------------


def relu(x: Any) -> Array:
    """maximum(x, 0) (E7): NaN stays NaN, -0 becomes +0.

    >>> relu([-1.5, 2.5])
    Array([0. , 2.5], dtype=float32)
    """
    return ELEMENTWISE["maximum"](x, 0)


def sigmoid(x: Any) -> Array:
    """1 / (1 + e^-x).

    >>> sigmoid(asarray([0.0, 2.0], dtype="bfloat16"))
    Array([0.5 , 0.88], dtype=bfloat16)
    """
    return ELEMENTWISE["sigmoid"](x)


def silu(x: Any) -> Array:
    """The product of x and its sigmoid.

    >>> silu(asarray([-1.0, 2.0], dtype="bfloat16"))
    Array([-0.27,  1.76], dtype=bfloat16)
    """
    return ELEMENTWISE["silu"](x)


_GELU = {"none": "gelu", "tanh": "gelu_tanh", "sigmoid": "gelu_sigmoid"}


def gelu(x: Any, approximate: Literal["none", "tanh", "sigmoid"] = "none") -> Array:
    """The product of x and the normal distribution's Φ(x), or one of two functions near it: of "tanh"
    x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))), of "sigmoid" x / (1 + e^-1.702x).

    >>> x = asarray(1.0, dtype="float16")
    >>> gelu(x), gelu(x, approximate="sigmoid")
    (Array(0.8413, dtype=float16), Array(0.8457, dtype=float16))
    """
    if approximate not in _GELU:
        raise InvalidArgument(f"gelu: approximate is one of {', '.join(_GELU)}, not {approximate!r}")
    return ELEMENTWISE[_GELU[approximate]](x)


def softplus(x: Any) -> Array:
    """ln(1 + e^x).

    >>> softplus(asarray([-100.0, 100.0], dtype="float16"))
    Array([  0., 100.], dtype=float16)
    """
    return ELEMENTWISE["softplus"](x)


def mish(x: Any) -> Array:
    """The product of x and tanh(ln(1 + e^x)).

    >>> mish(asarray([-1.0, 2.0], dtype="bfloat16"))
    Array([-0.303,  1.945], dtype=bfloat16)
    """
    return ELEMENTWISE["mish"](x)
