"""Windows over the spatial axes of (batch, channel, spatial...): convolutions and pools as the front
doors have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy

from neuronsim import arrays as np
from neuronsim import ops
from neuronsim.arrays import nn
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray, float_array
from neuronsim.arrays.evaluation import identity
from neuronsim.arrays.layers import add_bias, psum_type
from neuronsim.frontends.primitives import flipped, in_float, padded, sliced, windows_reduced


@dataclass(frozen=True)
class Window:
    """A window over the spatial axes: one number, or a pair of pads, for each."""

    sizes: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[tuple[int, int]]

    @property
    def dimensions(self) -> list[ops.WindowDimension]:
        """The same as HLO's."""
        columns = zip(self.sizes, self.strides, self.pads, self.dilations, strict=True)
        return [ops.WindowDimension(n, s, p, 1, d) for n, s, p, d in columns]

    def output(self, lengths: Sequence[int]) -> list[int]:
        """How many windows there are along each axis."""
        return [d.output_size(n) for d, n in zip(self.dimensions, lengths, strict=True)]

    def reaching(self, lengths: Sequence[int]) -> Window:
        """The window as far as it may reach where its number along each axis is rounded up."""
        pads = []
        for n, k, s, d, (a, b) in zip(
            lengths, self.sizes, self.strides, self.dilations, self.pads, strict=True
        ):
            room = n + a + b - d * (k - 1) - 1
            count = -(-room // s) + 1
            if (count - 1) * s >= n + a:  # a window that begins behind the elements is none
                count -= 1
            pads.append((a, (count - 1) * s + d * (k - 1) + 1 - n - a))
        return replace(self, pads=pads)


def convolved(
    x: Array, w: Array, bias: Array | None, window: Window, spread: Sequence[int], groups: int
) -> Array:
    """A convolution, `spread - 1` zeros between the elements, and its bias, rounded once."""
    settings: dict[str, Any] = {
        "stride": window.strides, "padding": window.pads, "dilation": window.dilations,
        "base_dilation": spread, "groups": groups,
    }  # fmt: skip
    if bias is None:
        return nn.conv(x, w, **settings)
    x, w = float_array(x), float_array(w)
    sums = nn.conv(x, w, dtype=psum_type(x, w), **settings)
    return add_bias(sums, np.reshape(bias, (-1,) + (1,) * (x.ndim - 2)), x, w)


def transposed_kernel(w: Array, groups: int) -> Array:
    """The kernel (inputs, outputs of a group, ...) of a transposed convolution as that of the
    convolution which it is.
    """
    inner, outer, *sizes = w.shape
    grouped = np.reshape(w, (groups, inner // groups, outer, *sizes))
    order = (0, 2, 1, *range(3, grouped.ndim))
    turned = np.reshape(np.permute_dims(grouped, order), (groups * outer, inner // groups, *sizes))
    return flipped(turned, range(2, w.ndim))


def averages(
    x: Array, own: Window, reached: Window, *, counts_padding: bool, divisor: int | None = None
) -> Array:
    """The mean of the elements of each window, `own` as far as `reached`; or its sum over a divisor."""
    sums = windows_reduced(in_float(x), "add", reached.dimensions)
    if divisor is not None:
        return np.divide(sums, divisor).astype(x.dtype)
    counted = own.pads if counts_padding else [(0, 0)] * len(own.pads)
    counts: Any = numpy.ones((), numpy.float32)
    for n, pair, at, d in zip(x.shape[2:], counted, reached.pads, reached.dimensions, strict=True):
        starts = numpy.arange(d.output_size(n)) * d.stride - at[0]
        places = starts[:, None] + numpy.arange(d.size) * d.window_dilation
        inside = ((places >= -pair[0]) & (places < n + pair[1])).sum(1)
        counts = counts[..., None] * inside.astype(numpy.float32)
    if (counts == counts.flat[0]).all():
        counts = counts.flat[0]
    return np.divide(sums, asarray(counts).astype(sums.dtype)).astype(x.dtype)


def places_of_maxima(x: Array, window: Window, numbers: numpy.ndarray[Any, Any]) -> Array:
    """Of numbers, one for each element, that of the first of the largest elements of each window, or
    of its last NaN.
    """
    outside = [(0, 0, 0)] * 2 + [(a, b, 0) for a, b in window.pads]
    values = padded(x, outside, identity("maximum", x.dtype))
    places = padded(asarray(numbers), outside, -1)
    best = at = None
    for offset in numpy.ndindex(*window.sizes):
        columns = zip(offset, window.strides, window.dilations, window.output(x.shape[2:]), strict=True)
        ranges = [(0, n, 1) for n in x.shape[:2]]
        ranges += [(o * d, o * d + (n - 1) * s + 1, s) for o, s, d, n in columns]
        value, place = sliced(values, ranges), sliced(places, ranges)
        if best is None or at is None:
            best, at = value, place
        else:
            better = (value > best) | (value != value) | (at < 0)
            best, at = np.where(better, value, best), np.where(better, place, at)
    assert at is not None
    return at
