"""Convolutions and pools."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from neuronsim import arrays as np
from neuronsim import ops
from neuronsim.arrays import nn
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray, float_array
from neuronsim.arrays.evaluation import identity
from neuronsim.arrays.layers import add_bias, psum_type
from neuronsim.errors import InvalidModel
from neuronsim.frontends.onnx.operators.primitives import (
    apply,
    flipped,
    in_float,
    integers,
    padded,
    scattered_vectors,
    sliced,
    windows_reduced,
)
from neuronsim.frontends.onnx.table import Node, operator


@dataclass(frozen=True)
class _Window:
    """A window over the spatial axes, as the attributes have it."""

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


def _window(node: Node, lengths: Sequence[int], sizes: Sequence[int] | None = None) -> _Window:
    kernel = node.get("kernel_shape") or sizes
    rank = len(lengths)
    if kernel is None or len(kernel) != rank or any(n < 1 for n in kernel):
        raise InvalidModel(f"a window of {kernel} over {rank} axes")
    strides, dilations = (node.get(k) or [1] * rank for k in ("strides", "dilations"))
    pads = node.get("pads") or [0] * (2 * rank)
    if len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank:
        raise InvalidModel(f"strides {strides}, dilations {dilations}, pads {pads} of {rank} axes")
    pairs = list(zip(pads[:rank], pads[rank:], strict=True))
    mode = node.get("auto_pad", "NOTSET")
    if mode == "VALID":
        pairs = [(0, 0)] * rank
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        columns = zip(lengths, kernel, strides, dilations, strict=True)
        more = [max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0) for n, k, s, d in columns]
        low = [m // 2 if mode == "SAME_UPPER" else m - m // 2 for m in more]
        pairs = [(a, m - a) for a, m in zip(low, more, strict=True)]
    elif mode != "NOTSET":
        raise node.refuse(f"has no auto_pad {mode!r}")
    return _Window(kernel, strides, dilations, pairs)


# ---- convolutions ------------------------------------------------------------------------------------


@operator("Conv")
def _conv(node: Node, x: Array, w: Array, bias: Array | None = None) -> Array:
    window = _window(node, x.shape[2:], w.shape[2:])
    return convolved(x, w, bias, window, [1] * (x.ndim - 2), node.get("group", 1))


def convolved(
    x: Array, w: Array, bias: Array | None, window: _Window, spread: Sequence[int], groups: int
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


@operator("ConvTranspose")
def _conv_transpose(node: Node, x: Array, w: Array, bias: Array | None = None) -> Array:
    rank, groups = x.ndim - 2, node.get("group", 1)
    inner, outer, *sizes = w.shape
    strides, dilations = (node.get(k) or [1] * rank for k in ("strides", "dilations"))
    more = node.get("output_padding") or [0] * rank
    pads = node.get("pads") or [0] * (2 * rank)
    pairs = list(zip(pads[:rank], pads[rank:], strict=True))
    mode, wanted = node.get("auto_pad", "NOTSET"), node.get("output_shape")
    reach = [d * (k - 1) for d, k in zip(dilations, sizes, strict=True)]
    lengths = [s * (n - 1) for s, n in zip(strides, x.shape[2:], strict=True)]
    if wanted or mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = wanted or [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
        total = [
            n + r + 1 + m - o for n, r, m, o in zip(lengths, reach, more, wanted[-rank:], strict=True)
        ]
        half = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in total]
        pairs = [(a, t - a) for a, t in zip(half, total, strict=True)]
    padding = [(r - a, r - b + m) for r, (a, b), m in zip(reach, pairs, more, strict=True)]
    grouped = np.reshape(w, (groups, inner // groups, outer, *sizes))
    order = (0, 2, 1, *range(3, grouped.ndim))
    turned = np.reshape(np.permute_dims(grouped, order), (groups * outer, inner // groups, *sizes))
    kernel = flipped(turned, range(2, x.ndim))
    return convolved(x, kernel, bias, _Window(sizes, [1] * rank, dilations, padding), strides, groups)


# ---- pools -------------------------------------------------------------------------------------------


def _pool(node: Node, x: Array) -> tuple[_Window, _Window]:
    """The window of a pool, and the same as far as it may reach with `ceil_mode`."""
    lengths = x.shape[2:]
    own = _window(node, lengths)
    if not node.get("ceil_mode", 0) or node.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return own, own
    pads = []
    for n, k, s, d, (a, b) in zip(
        lengths, own.sizes, own.strides, own.dilations, own.pads, strict=True
    ):
        room = n + a + b - d * (k - 1) - 1
        count = -(-room // s) + 1
        if (count - 1) * s >= n + a:  # a window that begins behind the elements is none
            count -= 1
        pads.append((a, (count - 1) * s + d * (k - 1) + 1 - n - a))
    return own, _Window(own.sizes, own.strides, own.dilations, pads)


@operator("AveragePool")
def average_pool(node: Node, x: Array) -> Array:
    own, reached = _pool(node, x)
    sums = windows_reduced(in_float(x), "add", reached.dimensions)
    counted = own.pads if node.get("count_include_pad", 0) else [(0, 0)] * len(own.pads)
    counts: Any = numpy.ones((), numpy.float32)
    for n, pair, at, d in zip(x.shape[2:], counted, reached.pads, reached.dimensions, strict=True):
        starts = numpy.arange(d.output_size(n)) * d.stride - at[0]
        places = starts[:, None] + numpy.arange(d.size) * d.window_dilation
        inside = ((places >= -pair[0]) & (places < n + pair[1])).sum(1)
        counts = counts[..., None] * inside.astype(numpy.float32)
    if (counts == counts.flat[0]).all():
        counts = counts.flat[0]
    return np.divide(sums, asarray(counts).astype(sums.dtype)).astype(x.dtype)


@operator("MaxPool")
def _max_pool(node: Node, x: Array) -> list[Array]:
    _, reached = _pool(node, x)
    found = windows_reduced(x, "maximum", reached.dimensions)
    return [found, _places_of_maxima(node, x, reached)] if node.wants(1) else [found]


def _places_of_maxima(node: Node, x: Array, window: _Window) -> Array:
    """Where in the whole array the first of the largest elements of each window lies."""
    numbers = numpy.arange(math.prod(x.shape)).reshape(x.shape)
    if node.get("storage_order", 0):
        inner = math.prod(x.shape[2:])
        turned = numpy.arange(inner).reshape(x.shape[2:][::-1]).transpose()
        numbers = numbers // inner * inner + turned
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
            better = (value > best) | (at < 0)
            best, at = np.where(better, value, best), np.where(better, place, at)
    assert at is not None
    return at


@operator("LpPool")
def _lp_pool(node: Node, x: Array) -> Array:
    _, reached = _pool(node, x)
    p = node.get("p", 2)
    sums = windows_reduced(_power(in_float(x), p), "add", reached.dimensions)
    return _root(sums, p).astype(x.dtype)


def _power(x: Array, p: int) -> Array:
    return x * x if p == 2 else np.abs(x) if p == 1 else np.power(np.abs(x), p)


def _root(x: Array, p: int) -> Array:
    return np.sqrt(x) if p == 2 else x if p == 1 else np.power(x, 1 / p)


def _spatial(x: Array) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@operator("GlobalAveragePool")
def _global_average_pool(node: Node, x: Array) -> Array:
    return np.mean(x, axis=_spatial(x), keepdims=True)


@operator("GlobalMaxPool")
def _global_max_pool(node: Node, x: Array) -> Array:
    return np.max(x, axis=_spatial(x), keepdims=True)


@operator("GlobalLpPool")
def _global_lp_pool(node: Node, x: Array) -> Array:
    p = node.get("p", 2)
    sums = np.sum(_power(in_float(x), p), axis=_spatial(x), keepdims=True)
    return _root(sums, p).astype(x.dtype)


@operator("MaxUnpool")
def _max_unpool(node: Node, x: Array, places: Array, shape: Array | None = None) -> Array:
    window = _window(node, x.shape[2:])
    columns = zip(x.shape[2:], window.strides, window.sizes, window.pads, strict=True)
    own = [*x.shape[:2], *((n - 1) * s + k - a - b for n, s, k, (a, b) in columns)]
    full = integers(shape) if shape is not None else own
    flat = np.zeros((math.prod(own),), dtype=x.dtype)
    vectors = np.reshape(places, (-1, 1))
    written = np.reshape(scattered_vectors(flat, vectors, np.reshape(x, (-1,))), own)
    return padded(written, [(0, n - m, 0) for n, m in zip(full, own, strict=True)])


@operator("LRN")
def _lrn(node: Node, x: Array) -> Array:
    size = node.require("size")
    alpha, beta, bias = (node.get(k, d) for k, d in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    wide = in_float(x)
    low = (size - 1) // 2
    window = [ops.WindowDimension(1) for _ in x.shape]
    window[1] = ops.WindowDimension(size, padding=(low, size - 1 - low))
    start = identity("add", wide.dtype)
    sums = apply("reduce_window", wide * wide, start, window=tuple(window), reducer="add")
    return (wide / np.power(sums * (alpha / size) + bias, beta)).astype(x.dtype)
