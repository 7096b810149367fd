"""Elements between elements: GridSample, AffineGrid, RoiAlign, MaxRoiPool, DeformConv."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.errors import InvalidModel
from neuronsim.frontends.interpolation import reflected, sampled
from neuronsim.frontends.onnx.table import Node, operator
from neuronsim.frontends.primitives import (
    gathered_along,
    gathered_vectors,
    in_float,
    integers,
    joined,
    moved_axis,
    part,
    where,
)

_MODES = {"bilinear": "linear", "bicubic": "cubic"}  # of version 16


def _number(values: Any, like: Array) -> Array:
    return asarray(numpy.asarray(values)).astype(like.dtype)


@operator("GridSample", since=16)
def _grid_sample(node: Node, x: Array, grid: Array) -> Array:
    default = "bilinear" if node.version < 20 else "linear"
    mode = _MODES.get(node.get("mode", default), node.get("mode", default))
    padding, corners = node.get("padding_mode", "zeros"), node.get("align_corners", 0)
    if mode not in ("nearest", "linear", "cubic"):
        raise node.refuse(f"has no mode {mode!r}")
    if padding not in ("zeros", "border", "reflection"):
        raise node.refuse(f"has no padding_mode {padding!r}")
    rank = x.ndim - 2
    wide = in_float(grid)
    places, borders = [], []
    for d, n in enumerate(x.shape[2:]):
        along = part(wide, wide.ndim - 1, rank - 1 - d, rank - d)
        along = np.reshape(along, along.shape[:-1])
        at = (along + 1) / 2 * (n - 1) if corners else ((along + 1) * n - 1) / 2
        border = (0.0, n - 1.0) if corners else (-0.5, n - 0.5)
        if mode == "nearest":
            at = np.rint(at)
        if padding == "border" and mode != "cubic":  # each of whose elements is clipped alone
            at = np.clip(at, 0, n - 1)
        elif padding == "reflection":
            at = reflected(at, *border)
            at = np.trunc(at) if mode == "nearest" else at
        places.append(at)
        borders.append(border)
    return sampled(x, places, mode, padding, borders)


@operator("AffineGrid", since=20)
def _affine_grid(node: Node, theta: Array, size: Array) -> Array:
    n, _, *dims = integers(size)
    if theta.shape != (n, len(dims), len(dims) + 1) or len(dims) not in (2, 3):
        raise InvalidModel(f"a grid of {dims} for {n} samples by {theta.bits.type}")
    axes = []
    for length in dims:
        line = numpy.arange(length, dtype=numpy.float64)
        if node.get("align_corners", 0):
            axes.append(2 * line / (length - 1) - 1 if length > 1 else line * 0)
        else:
            axes.append((2 * line + 1) / length - 1)
    grid = numpy.meshgrid(*axes, indexing="ij")[::-1]
    points = numpy.stack([*grid, numpy.ones(dims)]).reshape(len(dims) + 1, -1)
    wide = in_float(theta)
    found = np.permute_dims(wide @ _number(points, wide), (0, 2, 1))
    return np.reshape(found, (n, *dims, len(dims))).astype(theta.dtype)


# ---- regions -----------------------------------------------------------------------------------------


def _columns(rois: Array) -> list[Array]:
    """The columns of regions (region, ...)."""
    return [np.reshape(part(rois, 1, k, k + 1), (-1,)) for k in range(rois.shape[1])]


@operator("RoiAlign", since=10)
def _roi_align_of_pixels(node: Node, x: Array, rois: Array, batch: Array) -> Array:
    return _roi_align(node, x, rois, batch, half_pixel=False)


@operator("RoiAlign", since=16)
def _roi_align_of_corners(node: Node, x: Array, rois: Array, batch: Array) -> Array:
    mode = node.get("coordinate_transformation_mode", "half_pixel")
    return _roi_align(node, x, rois, batch, half_pixel=mode == "half_pixel")


def _roi_align(node: Node, x: Array, rois: Array, batch: Array, *, half_pixel: bool) -> Array:
    scale, ratio = node.get("spatial_scale", 1.0), node.get("sampling_ratio", 0)
    shift = 0.5 if half_pixel else 0.0
    x1, y1, x2, y2 = (c * scale - shift for c in _columns(in_float(rois)))
    lines, counts = [], []
    for first, last, bins, n in (
        (y1, y2, node.get("output_height", 1), x.shape[2]),
        (x1, x2, node.get("output_width", 1), x.shape[3]),
    ):
        length = last - first
        if not half_pixel:
            length = np.maximum(length, 1)
        size = np.reshape(length / bins, (-1, 1, 1))
        if ratio > 0:
            count = numpy.full(rois.shape[0], ratio)
        else:
            count = numpy.ceil(numpy.asarray(length / bins).astype(numpy.float64)).astype(int)
        most = int(max(count.max(initial=1), 1))
        each = _number(count.reshape(-1, 1, 1), size)
        numbers = _number(numpy.arange(bins).reshape(1, -1, 1), size)
        inner = _number(numpy.arange(most) + 0.5, size)
        at = np.reshape(first, (-1, 1, 1)) + numbers * size + inner * size / np.maximum(each, 1)
        used = numpy.arange(most) < count.reshape(-1, 1, 1)
        lines.append(_line_taps(at, asarray(used), n))
        counts.append(count)
    total = numpy.maximum(counts[0] * counts[1], 1).reshape(-1, 1, 1, 1)
    return _pooled(x, batch, lines, total, is_maximum=node.get("mode", "avg") == "max")


def _line_taps(at: Array, used: Array, n: int) -> tuple[list[tuple[Array, Array]], Array]:
    """For places (region, bin, point) the two elements around each with their weights, and whether the
    place is one.
    """
    inside = used & (at >= -1) & (at <= n)
    at = np.clip(at, 0, n - 1)
    low = np.minimum(np.floor(at), n - 1)
    high = np.minimum(low + 1, n - 1)
    t = at - low
    return [(low.astype(dtypes.int64), 1 - t), (high.astype(dtypes.int64), t)], inside


def _pooled(x: Array, batch: Array, lines: Sequence[Any], total: Any, *, is_maximum: bool) -> Array:
    """The mean, or the maximum, of the points of each bin of each region."""
    (rows, rows_in), (columns, columns_in) = lines
    (r, bins_h, points_h), (_, bins_w, points_w) = rows_in.shape, columns_in.shape
    dims = (r, bins_h, points_h, bins_w, points_w)
    down, across = (r, bins_h, points_h, 1, 1), (r, 1, 1, bins_w, points_w)
    sample = np.broadcast_to(np.reshape(batch.astype(dtypes.int64), (r, 1, 1, 1, 1)), dims)
    last = moved_axis(in_float(x), 1, 3)
    inside = np.reshape(rows_in, down) & np.reshape(columns_in, across)
    inside = np.reshape(inside, (*dims, 1))
    reduce = np.maximum if is_maximum else np.add
    found = None
    for (y, wy), (z, wz) in itertools.product(rows, columns):
        places = [np.broadcast_to(np.reshape(p, to), dims) for p, to in ((y, down), (z, across))]
        vectors = joined([np.reshape(p, (*dims, 1)) for p in (sample, *places)], 5)
        weight = np.reshape(wy, down) * np.reshape(wz, across)
        term = gathered_vectors(last, vectors) * np.reshape(weight, (*dims, 1))
        term = np.where(inside, term, _number(0, term))
        found = term if found is None else reduce(found, term)
    assert found is not None
    if is_maximum:
        pooled = np.max(found, axis=(2, 4))
    else:
        pooled = np.sum(found, axis=(2, 4)) / _number(total, found)
    return np.permute_dims(pooled, (0, 3, 1, 2)).astype(x.dtype)


@operator("MaxRoiPool")
def _max_roi_pool(node: Node, x: Array, rois: Array) -> Array:
    scale = node.get("spatial_scale", 1.0)
    batch, *corners = _columns(in_float(rois))
    x1, y1, x2, y2 = (np.floor(c * scale + 0.5) for c in corners)
    found = gathered_along(x, batch.astype(dtypes.int64), 0)
    lowest = _number(-math.inf, x)
    masks = []
    for axis, first, last, bins in zip(
        (2, 3), (y1, x1), (y2, x2), node.require("pooled_shape"), strict=True
    ):
        n = x.shape[axis]
        size = np.reshape(np.maximum(last - first + 1, 1) / bins, (-1, 1))
        numbers = _number(numpy.arange(bins).reshape(1, -1), size)
        start = np.reshape(first, (-1, 1))
        begin = np.clip(np.floor(numbers * size) + start, 0, n)
        end = np.clip(np.ceil((numbers + 1) * size) + start, 0, n)
        line = _number(numpy.arange(n), size)
        masks.append(
            (line >= np.reshape(begin, (-1, bins, 1))) & (line < np.reshape(end, (-1, bins, 1)))
        )
    rows, columns = masks  # (region, bin, place)
    r, c, h, w = found.shape
    wide = np.where(np.reshape(columns, (r, 1, 1, -1, w)), np.reshape(found, (r, c, h, 1, w)), lowest)
    across = np.max(wide, axis=4)
    tall = np.where(
        np.reshape(rows, (r, 1, -1, h, 1)), np.reshape(across, (r, c, 1, h, across.shape[3])), lowest
    )
    pooled = np.max(tall, axis=3)
    return where(pooled == lowest, _number(0, x), pooled)


@operator("DeformConv", since=19)
def _deform_conv(
    node: Node,
    x: Array,
    w: Array,
    offset: Array,
    bias: Array | None = None,
    mask: Array | None = None,
) -> Array:
    groups, parts = node.get("group", 1), node.get("offset_group", 1)
    sizes = w.shape[2:]
    rank, count = len(sizes), math.prod(sizes)
    strides, dilations = (node.get(k) or [1] * rank for k in ("strides", "dilations"))
    pads = node.get("pads") or [0] * (2 * rank)
    n, channels = x.shape[:2]
    out = offset.shape[2:]
    if channels % max(parts, 1) or offset.shape[1] != parts * count * rank or len(out) != rank:
        raise InvalidModel(f"the offsets {offset.bits.type} of {parts} groups of {x.bits.type}")
    shifts = np.reshape(in_float(offset), (n * parts, count, rank, *out))
    grid = numpy.stack(numpy.meshgrid(*map(numpy.arange, sizes), indexing="ij")).reshape(rank, count)
    places = []
    for d in range(rank):
        line = numpy.arange(out[d]) * strides[d] - pads[d]
        kernel = (grid[d] * dilations[d]).reshape(count, *(1,) * rank)
        base = kernel + line.reshape([-1 if e == d else 1 for e in range(rank)])
        own = np.reshape(part(shifts, 2, d, d + 1), (n * parts, count, *out))
        places.append(own + _number(base, own))
    blocks = np.reshape(in_float(x), (n * parts, channels // parts, *x.shape[2:]))
    taken = sampled(blocks, places)
    if mask is not None:
        taken = taken * np.reshape(in_float(mask), (n * parts, 1, count, *out))
    columns = np.reshape(taken, (n, groups, channels // groups * count, math.prod(out)))
    kernel = np.reshape(in_float(w), (groups, w.shape[0] // groups, -1))
    found = np.reshape(kernel @ columns, (n, w.shape[0], *out))
    if bias is not None:
        found = found + np.reshape(in_float(bias), (-1,) + (1,) * rank)
    return found.astype(x.dtype)
