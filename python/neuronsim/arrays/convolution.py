"""Convolutions (M5) and what is written with them. `nn` exports them.

>>> conv1d([[[1.0, 2.0, 3.0]]], [[[1.0, 10.0]]], bias=[0.5])
Array([[[21.5, 32.5]]], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from neuronsim import ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray, convert, float_array
from neuronsim.arrays.default_types import array_type
from neuronsim.arrays.layers import add_bias, psum_type
from neuronsim.arrays.manipulation import flip, reshape, swapaxes
from neuronsim.arrays.products import INTEGERS
from neuronsim.dtypes import DTypeLike, result_type
from neuronsim.errors import InvalidArgument

__all__ = ["conv", "conv1d", "conv2d", "conv3d", "conv_transpose"]

# A number for all spatial axes, or one for each; padding may have a pair (low, high) for each.
PerAxis = int | Sequence[int]
Padding = int | Sequence[int] | Sequence[tuple[int, int]]


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
    kinds = {a.dtype.kind, kernel.dtype.kind}
    converts_itself = dtype is not None and kinds | {array_type(dtype).kind} <= INTEGERS  # M7
    if len(kinds) > 1 and not converts_itself:  # M1: the lattice type first
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
        try:
            return tuple(_frozen(v) for v in value)
        except RecursionError as error:
            raise InvalidArgument(f"a list in itself is no value for each axis: {value!r}") from error
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
    pads = [(p, p) if isinstance(p, int) else p for p in per_axis("padding", padding, spatial)]
    columns = zip(
        (kernel[i] for i in numbers.kernel_spatial),
        per_axis("stride", stride, spatial),
        pads,
        per_axis("base_dilation", base_dilation, spatial),
        per_axis("dilation", dilation, spatial),
        strict=True,
    )
    return tuple(ops.WindowDimension(*column) for column in columns), numbers


def per_axis(name: str, value: Any, spatial: int) -> tuple[Any, ...]:
    """One value for each spatial axis; a pair is one of two integers."""
    if isinstance(value, int | np.integer):
        return (int(value),) * spatial
    values = tuple(tuple(v) if isinstance(v, list) else v for v in value)
    pairs = [v for v in values if isinstance(v, tuple)]
    if len(values) != spatial or any(name != "padding" or len(v) != 2 for v in pairs):
        raise InvalidArgument(f"{name}={value!r} is not one {name} for each of {spatial} spatial axes")
    return values


def _conv_and_bias(spatial: int, x: Any, w: Any, bias: Any, *window: Any) -> Array:
    a, kernel = asarray(x), asarray(w)
    if a.ndim != spatial + 2:
        raise InvalidArgument(
            f"conv{spatial}d: {a.bits.type} is not (batch, channel, {spatial} spatial axes)"
        )
    named = dict(zip(("stride", "padding", "dilation", "groups"), window, strict=True))
    return _biased(a, kernel, bias, **named)


def _biased(x: Array, w: Array, bias: Any, **window: Any) -> Array:
    """A convolution and its bias, one number for each output channel, rounded once."""
    if bias is None:
        return conv(x, w, **window)
    x, w = float_array(x), float_array(w)
    sums = conv(x, w, dtype=psum_type(x, w), **window)
    b = asarray(bias)
    if b.shape != (sums.shape[1],):
        raise InvalidArgument(
            f"the bias {b.bits.type} is not one number for each of {sums.shape[1]} channels"
        )
    return add_bias(sums, reshape(b, (-1,) + (1,) * (x.ndim - 2)), x, w)


def conv1d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Array:
    """`conv` of (batch, channel, length) by (output channel, channel of a group, length): sums by M5 in
    PSUM; the bias, one number for each output channel, is added in float32; one rounding.
    """
    return _conv_and_bias(1, x, w, bias, stride, padding, dilation, groups)


def conv2d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Array:
    """`conv1d` with two spatial axes."""
    return _conv_and_bias(2, x, w, bias, stride, padding, dilation, groups)


def conv3d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Array:
    """`conv1d` with three spatial axes."""
    return _conv_and_bias(3, x, w, bias, stride, padding, dilation, groups)


def conv_transpose(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
) -> Array:
    """The transposed convolution, over any number of spatial axes, as PyTorch has it: each element of
    `x` times the kernel `w` (input channel, output channel of a group, spatial...) is added `stride`
    apart, and `padding` is cut off both ends, less `output_padding` at the high one.

    It is the convolution (M5) of `x` with stride - 1 zeros between its elements by the reversed kernel;
    the bias is added in float32, and rounded once with the sum.

    >>> conv_transpose([[[1.0, 2.0]]], [[[1.0, 10.0]]], stride=2)
    Array([[[ 1., 10.,  2., 20.]]], dtype=float32)
    """
    a, kernel = asarray(x), asarray(w)
    spatial = a.ndim - 2
    if spatial < 0 or kernel.ndim != a.ndim or groups < 1 or kernel.shape[0] % groups:
        raise InvalidArgument(
            f"conv_transpose: {a.bits.type} and {kernel.bits.type} in {groups} groups: both have two "
            "axes for channels, and as many spatial axes"
        )
    columns = zip(
        *(per_axis("padding", padding, spatial), per_axis("output_padding", output_padding, spatial)),
        *(per_axis("dilation", dilation, spatial), kernel.shape[2:]),
        strict=True,
    )
    pads = [(d * (n - 1) - p, d * (n - 1) - p + more) for p, more, d, n in columns]
    inner, outer, *lengths = kernel.shape
    grouped = swapaxes(reshape(kernel, (groups, inner // groups, outer, *lengths)), 1, 2)
    turned = flip(
        reshape(grouped, (groups * outer, inner // groups, *lengths)), tuple(range(2, a.ndim))
    )
    return _biased(
        *(a, turned, bias),
        padding=pads,
        base_dilation=per_axis("stride", stride, spatial),
        dilation=dilation,
        groups=groups,
    )
