"""Pools, their gradients, images resized and sampled."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from neuronsim import arrays as np
from neuronsim import ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.frontends.interpolation import reflected, sampled
from neuronsim.frontends.primitives import (
    apply,
    in_float,
    moved_axis,
    padded,
    scattered_vectors,
    taken,
    where,
    windows_reduced,
)
from neuronsim.frontends.torch.table import Node, operator
from neuronsim.frontends.windows import Window, averages, places_of_maxima


def each(values: Any, rank: int, default: Sequence[int] | int = 1) -> list[int]:
    """A value for each spatial axis; one stands for all, and none for the default."""
    if isinstance(values, int):
        return [values] * rank
    if not values:
        return each(default, rank)
    return list(values) * rank if len(values) == 1 else list(values)


def _window(rank: int, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1) -> Window:
    sizes = each(kernel, rank)
    pads = [(p, p) for p in each(padding, rank, 0)]
    return Window(sizes, each(stride, rank, sizes), each(dilation, rank), pads)


def _batched(x: Array, rank: int) -> tuple[Array, bool]:
    """With an axis of samples, and whether it had none."""
    return (np.expand_dims(x, 0), True) if x.ndim == rank + 1 else (x, False)


def _first(x: Array, alone: bool) -> Array:
    return np.reshape(x, x.shape[1:]) if alone else x


def _average_pool(rank: int) -> Callable[..., Array]:
    def run(
        node: Node,
        x: Array,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Array:
        x, alone = _batched(x, rank)
        own = _window(rank, kernel_size, stride, padding)
        reached = own.reaching(x.shape[2:]) if ceil_mode else own
        found = averages(x, own, reached, counts_padding=count_include_pad, divisor=divisor_override)
        return _first(found, alone)

    return run


def _max_pool(rank: int) -> Callable[..., list[Array]]:
    def run(
        node: Node,
        x: Array,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> list[Array]:
        """The maxima, and where in their channel the first of each window lies."""
        x, alone = _batched(x, rank)
        own = _window(rank, kernel_size, stride, padding, dilation)
        reached = own.reaching(x.shape[2:]) if ceil_mode else own
        found = [_first(windows_reduced(x, "maximum", reached.dimensions), alone)]
        if node.wants(1):
            plane = numpy.arange(math.prod(x.shape[2:])).reshape(x.shape[2:])
            places = places_of_maxima(x, reached, numpy.broadcast_to(plane, x.shape))
            found.append(_first(places, alone))
        return found

    return run


for _rank in (1, 2, 3):
    operator(f"aten.avg_pool{_rank}d.default")(_average_pool(_rank))
    operator(f"aten.max_pool{_rank}d_with_indices.default")(_max_pool(_rank))


@operator("aten.max_pool2d_with_indices_backward.default")
def _max_pool_backward(
    node: Node,
    grad: Array,
    x: Array,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: Array,
) -> Array:
    """The gradients summed where the maxima lay."""
    planes = math.prod(x.shape[:-2])
    inner = x.shape[-2] * x.shape[-1]
    first = asarray(numpy.arange(planes)[:, None] * inner)
    vectors = np.reshape(np.reshape(indices, (planes, -1)) + first, (-1, 1))
    start = np.zeros((planes * inner,), dtype=grad.dtype)
    return np.reshape(scattered_vectors(start, vectors, np.reshape(grad, (-1,)), "add"), x.shape)


@operator("aten.avg_pool2d_backward.default")
def _average_pool_backward(
    node: Node,
    grad: Array,
    x: Array,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Array:
    """What each window takes of an element it gives back: a product with a matrix for each axis."""
    own = _window(2, kernel_size, stride, padding)
    reached = own.reaching(x.shape[-2:]) if ceil_mode else own
    lines = _window_matrices(x.shape[-2:], own, reached, counts_padding=count_include_pad)
    if divisor_override is not None:
        lines = [(m > 0).astype(numpy.float64) for m in lines]
        lines[0] /= divisor_override
    return _by_matrices(grad, lines)


def _window_matrices(
    lengths: Sequence[int], own: Window, reached: Window, *, counts_padding: bool
) -> list[numpy.ndarray[Any, Any]]:
    """For each axis how much of the mean of a window (row) an element (column) is."""
    found = []
    columns = zip(lengths, own.pads, reached.pads, reached.dimensions, strict=True)
    for n, (before, after), at, d in columns:
        starts = numpy.arange(d.output_size(n)) * d.stride - at[0]
        places = starts[:, None] + numpy.arange(d.size)
        low, high = (-before, n + after) if counts_padding else (0, n)
        counted = ((places >= low) & (places < high)).sum(1)
        inside = (places[:, :, None] == numpy.arange(n)).any(1)
        found.append(inside / numpy.maximum(counted, 1)[:, None])
    return found


def _by_matrices(x: Array, matrices: Sequence[numpy.ndarray[Any, Any]]) -> Array:
    """Each of the last axes, of as many elements as its matrix has rows, as what the columns weigh."""
    found = in_float(x)
    for axis, matrix in enumerate(matrices, start=x.ndim - len(matrices)):
        dimensions = ops.DotDimensions(lhs_contracting=(axis,), rhs_contracting=(0,))
        line = asarray(matrix).astype(found.dtype)
        found = moved_axis(apply("dot", found, line, dot_dimensions=dimensions), x.ndim - 1, axis)
    return found.astype(x.dtype)


def _adaptive_parts(n: int, m: int) -> tuple[numpy.ndarray[Any, Any], numpy.ndarray[Any, Any]]:
    """Where each of m parts of n elements begins and ends: neighbours may share some."""
    at = numpy.arange(m)
    return at * n // m, -(-(at + 1) * n // m)


def _adaptive_matrices(lengths: Sequence[int], sizes: Sequence[int]) -> list[numpy.ndarray[Any, Any]]:
    """For each axis how much of each mean (column) an element (row) is."""
    found = []
    for n, m in zip(lengths, sizes, strict=True):
        low, high = _adaptive_parts(n, m)
        rows = numpy.arange(n)[:, None]
        inside = (rows >= low) & (rows < high)
        found.append(inside / (high - low))
    return found


def _adaptive(rank: int) -> Callable[..., Array]:
    def run(node: Node, x: Array, output_size: Any) -> Array:
        """Means of parts that are as long as they can be: windows where all are alike."""
        lengths, sizes = x.shape[-rank:], each(output_size, rank)
        if all(m == 1 for m in sizes):
            return np.mean(x, axis=tuple(range(x.ndim - rank, x.ndim)), keepdims=True)
        if all(m and n % m == 0 for n, m in zip(lengths, sizes, strict=True)):
            whole, alone = _batched(x, rank)
            window = _window(rank, [n // m for n, m in zip(lengths, sizes, strict=True)])
            return _first(averages(whole, window, window, counts_padding=False), alone)
        return _by_matrices(x, _adaptive_matrices(lengths, sizes))

    return run


operator("aten.adaptive_avg_pool1d.default")(_adaptive(1))
operator("aten._adaptive_avg_pool2d.default")(_adaptive(2))
operator("aten._adaptive_avg_pool3d.default")(_adaptive(3))


def _adaptive_max(rank: int) -> Callable[..., list[Array]]:
    pool = _max_pool(rank)

    def run(node: Node, x: Array, output_size: Any) -> list[Array]:
        """The maxima of the same parts, and where in their channel the first of each lies."""
        lengths, sizes = x.shape[-rank:], each(output_size, rank)
        if all(m and n % m == 0 for n, m in zip(lengths, sizes, strict=True)):
            return pool(node, x, [n // m for n, m in zip(lengths, sizes, strict=True)])
        whole, alone = _batched(x, rank)
        plane = numpy.arange(math.prod(lengths)).reshape((1, 1, *lengths))
        for axis, (n, m) in enumerate(zip(lengths, sizes, strict=True), start=2):
            lines = _adaptive_lines(n, m)
            whole, plane = taken(whole, lines, axis), numpy.take(plane, lines, axis)
        # Parts that are shorter than others have their last elements twice.
        parts = zip(lengths, sizes, strict=True)
        longest = [len(_adaptive_lines(n, m)) // m if m else 1 for n, m in parts]
        window = _window(rank, longest)
        found = [_first(windows_reduced(whole, "maximum", window.dimensions), alone)]
        if node.wants(1):
            places = places_of_maxima(whole, window, numpy.broadcast_to(plane, whole.shape))
            found.append(_first(places, alone))
        return found

    return run


def _adaptive_lines(n: int, m: int) -> numpy.ndarray[Any, Any]:
    """The elements of m parts of n, one part after the other, each as long as the longest."""
    low, high = _adaptive_parts(n, m)
    steps = numpy.arange(max((high - low).tolist(), default=1))
    lines: numpy.ndarray[Any, Any] = numpy.minimum(low[:, None] + steps, high[:, None] - 1)
    return lines.reshape(-1)


operator("aten.adaptive_max_pool2d.default")(_adaptive_max(2))
operator("aten.adaptive_max_pool3d.default")(_adaptive_max(3))


@operator("aten._adaptive_avg_pool2d_backward.default")
def _adaptive_backward(node: Node, grad: Array, x: Array) -> Array:
    matrices = _adaptive_matrices(x.shape[-2:], grad.shape[-2:])
    return _by_matrices(grad, [m.T for m in matrices])


# ---- images ----------------------------------------------------------------------------------------


def _sizes(x: Array, output_size: Any, scale_factors: Any) -> tuple[list[int], list[float]]:
    """The lengths of the resized axes, and how many of their elements an old one becomes."""
    lengths = x.shape[2:]
    if output_size is not None:
        return list(output_size), [m / n for n, m in zip(lengths, output_size, strict=True)]
    factors = [float(v) for v in scale_factors]
    return [math.floor(n * f) for n, f in zip(lengths, factors, strict=True)], factors


def _nearest(node: Node, x: Array, output_size: Any, scale_factors: Any) -> Array:
    """The element before each place."""
    sizes, factors = _sizes(x, output_size, scale_factors)
    for axis, (m, f) in enumerate(zip(sizes, factors, strict=True), start=2):
        step = numpy.float32(1 / f)
        places = numpy.floor(numpy.arange(m, dtype=numpy.float32) * step).astype(numpy.int64)
        x = taken(x, numpy.minimum(places, x.shape[axis] - 1), axis)
    return x


for _rank in (1, 2, 3):
    operator(f"aten.upsample_nearest{_rank}d.vec")(_nearest)


def _check_float(node: Node, x: Array) -> None:
    """Raises for images of bytes, which PyTorch weighs in integers."""
    if x.dtype.kind in ("signed", "unsigned"):
        raise node.refuse(f"of {x.dtype.name} is not read: convert the image to float32")


def _linear(node: Node, x: Array, output_size: Any, align_corners: bool, scale_factors: Any) -> Array:
    """The mean of the two neighbours along each axis, weighed by how near they are."""
    _check_float(node, x)
    sizes, factors = _sizes(x, output_size, scale_factors)
    found = in_float(x)
    for axis, (m, f) in enumerate(zip(sizes, factors, strict=True), start=2):
        n = x.shape[axis]
        at = numpy.arange(m)
        if align_corners:
            places = at * ((n - 1) / (m - 1) if m > 1 else 0.0)
        else:
            places = numpy.maximum((at + 0.5) / f - 0.5, 0)
        low = numpy.minimum(numpy.floor(places).astype(numpy.int64), n - 1)
        share = places - low
        dims = [m if d == axis else 1 for d in range(x.ndim)]
        weights = asarray(share.reshape(dims)).astype(found.dtype)
        first, second = taken(found, low, axis), taken(found, numpy.minimum(low + 1, n - 1), axis)
        found = first * (1 - weights) + second * weights
    return found.astype(x.dtype)


operator("aten.upsample_linear1d.vec", "aten.upsample_bilinear2d.vec")(_linear)


def _antialiased(reach: float, kernel: Callable[[Any], Any]) -> Callable[..., Array]:
    def run(
        node: Node,
        x: Array,
        output_size: Sequence[int],
        align_corners: bool,
        *scales: float | None,
    ) -> Array:
        """The mean of the elements that a kernel as wide as an output reaches, weighed by it."""
        _check_float(node, x)
        lines, given = [], [*scales, None, None]
        for n, m, scale in zip(x.shape[-2:], output_size, given, strict=False):
            step = (n - 1) / max(m - 1, 1) if align_corners else 1 / scale if scale else n / m
            step = 0.0 if align_corners and m == 1 else step
            wide = max(step, 1.0)
            centre = step * (numpy.arange(m) + 0.5)
            low = numpy.maximum((centre - reach * wide + 0.5).astype(numpy.int64), 0)
            high = numpy.minimum((centre + reach * wide + 0.5).astype(numpy.int64), n)
            places = numpy.arange(n)[:, None]
            weights = kernel(numpy.abs(places - centre + 0.5) / wide)
            weights = numpy.where((places >= low) & (places < high), weights, 0.0)
            lines.append(weights / weights.sum(0))
        return _by_matrices(x, lines)

    return run


def _triangle(t: Any) -> Any:
    return numpy.maximum(1 - t, 0)


def _cubic(t: Any) -> Any:
    """Keys's of a = -1/2."""
    inner, outer = (1.5 * t - 2.5) * t * t + 1, ((-0.5 * t + 2.5) * t - 4) * t + 2
    return numpy.where(t < 1, inner, numpy.where(t < 2, outer, 0))


operator("aten._upsample_bilinear2d_aa.default")(_antialiased(1.0, _triangle))
operator("aten._upsample_bicubic2d_aa.default")(_antialiased(2.0, _cubic))


@operator("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
def _grid_sampler(
    node: Node, x: Array, grid: Array, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Array:
    """The elements at places of a grid (batch, ..., width height depth), -1 and 1 being the borders. Of
    places that are NaN PyTorch's kernels on a CPU make the first or the last, or NaN.
    """
    mode = ("linear", "nearest", "cubic")[interpolation_mode]
    padding = ("zeros", "border", "reflection")[padding_mode]
    wide = in_float(grid)
    places, borders, are_finite = [], [], []
    for axis, n in enumerate(x.shape[2:]):
        along = wide[..., x.ndim - 3 - axis] + 1
        at = along / 2 * (n - 1) if align_corners else (along * n - 1) / 2
        border = (0.0, n - 1.0) if align_corners else (-0.5, n - 0.5)
        if padding_mode and mode != "cubic":  # each of whose elements is moved alone
            at = reflected(at, *border) if padding == "reflection" else at
            at = np.clip(where(np.isnan(at), 0 if x.ndim == 4 else n - 1, at), 0, n - 1)
        places.append(at)
        borders.append(border)
        are_finite.append(np.isfinite(at))
    found = sampled(x, places, mode, padding if mode == "cubic" else "zeros", borders)
    if x.ndim == 4 and mode != "nearest" and padding == "zeros":
        is_finite = np.expand_dims(np.logical_and(*are_finite), 1)
        found = where(np.broadcast_to(is_finite, found.shape), found, math.nan)
    return found


@operator("aten.col2im.default")
def _col2im(
    node: Node,
    x: Array,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Array:
    """Blocks summed where they lie in an image: each element of a block is a grid of it."""
    alone = x.ndim == 2
    columns = np.expand_dims(x, 0) if alone else x
    sizes = list(zip(output_size, kernel_size, dilation, padding, stride, strict=True))
    counts = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in sizes]
    batch, channels = columns.shape[0], columns.shape[1] // math.prod(kernel_size)
    blocks = np.reshape(columns, (batch, channels, *kernel_size, *counts))
    found = None
    for offset in numpy.ndindex(*kernel_size):
        block = blocks[(slice(None), slice(None), *offset)]
        padding_ = [(0, 0, 0)] * 2
        for o, m, (n, _, d, p, s) in zip(offset, counts, sizes, strict=True):
            before = o * d - p
            padding_.append((before, n - before - ((m - 1) * s + 1), s - 1))
        term = padded(block, padding_)
        found = term if found is None else found + term
    assert found is not None
    return np.reshape(found, found.shape[1:]) if alone else found
