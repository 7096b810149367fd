"""Convolutions and pools."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy

from neuronsim import arrays as np
from neuronsim import ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.evaluation import identity
from neuronsim.errors import InvalidModel
from neuronsim.frontends.onnx.table import Node, operator
from neuronsim.frontends.primitives import (
    apply,
    in_float,
    integers,
    padded,
    scattered_vectors,
    windows_reduced,
)
from neuronsim.frontends.windows import (
    Window,
    averages,
    convolved,
    places_of_maxima,
    transposed_kernel,
)


def _window(node: Node, lengths: Sequence[int], sizes: Sequence[int] | None = None) -> Window:
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
    return Window(kernel, strides, dilations, pairs)


# ---- convolutions ------------------------------------------------------------------------------------


@operator("Conv")
def _conv(node: Node, x: Array, w: Array, bias: Array | None = None) -> Array:
    window = _window(node, x.shape[2:], w.shape[2:])
    return convolved(x, w, bias, window, [1] * (x.ndim - 2), node.get("group", 1))


@operator("ConvTranspose")
def _conv_transpose(node: Node, x: Array, w: Array, bias: Array | None = None) -> Array:
    rank, groups = x.ndim - 2, node.get("group", 1)
    sizes = w.shape[2:]
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
    kernel = transposed_kernel(w, groups)
    return convolved(x, kernel, bias, Window(sizes, [1] * rank, dilations, padding), strides, groups)


# ---- pools -------------------------------------------------------------------------------------------


def _pool(node: Node, x: Array) -> tuple[Window, Window]:
    """The window of a pool, and the same as far as it may reach with `ceil_mode`."""
    own = _window(node, x.shape[2:])
    rounds_up = node.get("ceil_mode", 0) and node.get("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    return own, own.reaching(x.shape[2:]) if rounds_up else own


@operator("AveragePool")
def average_pool(node: Node, x: Array) -> Array:
    own, reached = _pool(node, x)
    return averages(x, own, reached, counts_padding=bool(node.get("count_include_pad", 0)))


@operator("MaxPool")
def _max_pool(node: Node, x: Array) -> list[Array]:
    _, reached = _pool(node, x)
    found = windows_reduced(x, "maximum", reached.dimensions)
    return [found, places_of_maxima(x, reached, _numbers(node, x))] if node.wants(1) else [found]


def _numbers(node: Node, x: Array) -> Any:
    """The elements' numbers in the whole array, as the storage order counts them."""
    numbers = numpy.arange(math.prod(x.shape)).reshape(x.shape)
    if node.get("storage_order", 0):
        inner = math.prod(x.shape[2:])
        turned = numpy.arange(inner).reshape(x.shape[2:][::-1]).transpose()
        numbers = numbers // inner * inner + turned
    return numbers


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


operator("GlobalAveragePool")(lambda node, x: np.mean(x, axis=_spatial(x), keepdims=True))
operator("GlobalMaxPool")(lambda node, x: np.max(x, axis=_spatial(x), keepdims=True))


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
