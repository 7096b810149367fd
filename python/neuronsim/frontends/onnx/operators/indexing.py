"""Operators that take and write parts: slices, gathers, scatters."""

from __future__ import annotations

import math
from typing import Any

import numpy

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.errors import InvalidModel
from neuronsim.frontends.onnx.table import Node, operator
from neuronsim.frontends.primitives import (
    along,
    axis_of,
    flipped,
    gathered_along,
    gathered_lines,
    gathered_vectors,
    integers,
    is_known,
    joined,
    moved_axis,
    padded,
    scattered_vectors,
    sliced,
    taken,
    where,
    wrapped,
)


@operator("Slice")
def _slice_by_attributes(node: Node, x: Array) -> Array:
    starts, ends = node.require("starts"), node.require("ends")
    return _sliced(x, starts, ends, node.get("axes"), None)


@operator("Slice", since=10)
def _slice(
    node: Node,
    x: Array,
    starts: Array,
    ends: Array,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Array:
    return _sliced(x, starts, ends, axes, steps)


def _sliced(x: Array, starts: Any, ends: Any, axes: Any, steps: Any) -> Array:
    first, last = integers(starts), integers(ends)
    where = list(range(len(first))) if axes is None else [axis_of(d, x.ndim) for d in integers(axes)]
    by = [1] * len(first) if steps is None else integers(steps)
    if len({len(v) for v in (first, last, where, by)}) != 1 or 0 in by or len(first) > x.ndim:
        raise InvalidModel(
            f"slices from {first} to {last} by {by} of the axes {where} of {x.bits.type}"
        )
    ranges = [(0, n, 1) for n in x.shape]
    turned = []
    for axis, begin, end, step in zip(where, first, last, by, strict=True):
        n = x.shape[axis]
        if step < 0 and begin < -n:  # which ONNX, unlike NumPy, moves into the axis
            begin = 0
        places = range(n)[slice(begin, end, step)]
        if not places:
            ranges[axis] = (0, 0, 1)
            continue
        low, high = sorted((places[0], places[-1]))
        ranges[axis] = (low, high + 1, abs(step))
        if step < 0:
            turned.append(axis)
    return flipped(sliced(x, ranges), turned)


@operator("Gather")
def _gather(node: Node, x: Array, indices: Array) -> Array:
    return gathered(x, indices, axis_of(node.get("axis", 0), x.ndim))


def gathered(x: Array, indices: Array, axis: int) -> Array:
    """What lies at indices of an axis, which may count from its end; known ones are inside."""
    n = x.shape[axis]
    if not is_known(indices):
        return gathered_along(x, wrapped(indices, n), axis)
    places = numpy.asarray(indices).astype(numpy.int64)
    if places.size and not (-n <= places.min() and places.max() < n):
        raise InvalidModel(f"gathers outside of axis {axis} of {x.bits.type}")
    found = taken(x, numpy.where(places < 0, places + n, places).reshape(-1), axis)
    return np.reshape(found, (*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]))


@operator("GatherElements")
def _gather_elements(node: Node, x: Array, indices: Array) -> Array:
    axis = axis_of(node.get("axis", 0), x.ndim)
    if indices.ndim != x.ndim:
        raise InvalidModel(f"gathers elements of {x.bits.type} at {indices.bits.type}")
    own = [(0, n if d == axis else indices.shape[d], 1) for d, n in enumerate(x.shape)]
    return gathered_lines(sliced(x, own), wrapped(indices, x.shape[axis]), axis)


def _wrapped_vectors(indices: Array, dims: tuple[int, ...]) -> Array:
    """Index vectors along the last axis, those that count from the end as from the start."""
    if len(dims) < indices.shape[-1]:
        raise InvalidModel(f"index vectors of {indices.bits.type} for {len(dims)} axes")
    lengths = asarray(numpy.asarray(dims[: indices.shape[-1]], numpy.int64))
    wide = indices.astype(dtypes.int64)
    if is_known(wide) and not (numpy.asarray(wide) < 0).any():
        return wide
    return where(wide < 0, wide + lengths, wide)


@operator("GatherND")
def _gather_nd(node: Node, x: Array, indices: Array) -> Array:
    batch = node.get("batch_dims", 0)
    return gathered_vectors(x, _wrapped_vectors(indices, x.shape[batch:]), batch)


# ONNX's names of what a scatter does: the rows that do it.
_REDUCTIONS = {
    "none": "second",
    "add": "add",
    "mul": "multiply",
    "max": "maximum",
    "min": "minimum",
}


def _reducer(node: Node) -> str:
    name = node.get("reduction", "none")
    if name not in _REDUCTIONS:
        raise node.refuse(f"does not reduce by {name!r}")
    return _REDUCTIONS[name]


@operator("Scatter", "ScatterElements")
def _scatter_elements(node: Node, x: Array, indices: Array, updates: Array) -> Array:
    axis = axis_of(node.get("axis", 0), x.ndim)
    if indices.ndim != x.ndim or indices.shape != updates.shape:
        raise InvalidModel(f"scatters {updates.bits.type} into {x.bits.type} at {indices.bits.type}")
    places = wrapped(indices, x.shape[axis])
    columns = [
        places if d == axis else np.broadcast_to(along(numpy.arange(n), d, x.ndim), indices.shape)
        for d, n in enumerate(indices.shape)
    ]
    vectors = joined([np.reshape(c, (*indices.shape, 1)) for c in columns], x.ndim)
    return scattered_vectors(x, vectors, updates, _reducer(node))


@operator("ScatterND")
def _scatter_nd(node: Node, x: Array, indices: Array, updates: Array) -> Array:
    return scattered_vectors(x, _wrapped_vectors(indices, x.shape), updates, _reducer(node))


@operator("TensorScatter")
def _tensor_scatter(node: Node, cache: Array, update: Array, starts: Array | None = None) -> Array:
    axis = axis_of(node.get("axis", -2), cache.ndim)
    length = cache.shape[axis]
    batch, count = cache.shape[0], update.shape[axis]
    first = asarray(numpy.zeros(batch, numpy.int64)) if starts is None else starts.astype(dtypes.int64)
    places = np.reshape(first, (batch, 1)) + asarray(numpy.arange(count))
    if node.get("mode", "linear") == "circular":
        places = np.remainder(places, length)
    return written(cache, update, places, axis)


def written(cache: Array, update: Array, places: Array, axis: int) -> Array:
    """A cache with slices along an axis at each sample's own places [batch, count]."""
    target, new = (moved_axis(x, axis, 1) for x in (cache, update))
    vectors = np.reshape(places, (*places.shape, 1))
    return moved_axis(scattered_vectors(target, vectors, new, batch=1), 1, axis)


@operator("ReverseSequence")
def _reverse_sequence(node: Node, x: Array, lengths: Array) -> Array:
    return reversed_sequences(x, lengths, node.get("batch_axis", 1), node.get("time_axis", 0))


def reversed_sequences(x: Array, lengths: Array, batch: int, time: int) -> Array:
    """The first so many steps of each sample in the opposite order; `batch` and `time` are 0 and 1."""
    steps = asarray(numpy.arange(x.shape[time])).reshape((1, -1))
    ends = np.reshape(lengths.astype(dtypes.int64), (-1, 1))
    places = np.where(steps < ends, ends - 1 - steps, steps)
    whole = moved_axis(moved_axis(x, batch, 0), time if time > batch else time + 1, 1)
    found = gathered_vectors(whole, np.reshape(places, (*places.shape, 1)), 1)
    return moved_axis(moved_axis(found, 1, time if time > batch else time + 1), 0, batch)


@operator("Col2Im")
def _col2im(node: Node, x: Array, image: Array, block: Array) -> Array:
    lengths, kernel = integers(image), integers(block)
    rank = len(lengths)
    strides, dilations = (node.get(k) or [1] * rank for k in ("strides", "dilations"))
    pads = node.get("pads") or [0] * (2 * rank)
    columns = zip(lengths, pads[:rank], pads[rank:], dilations, kernel, strides, strict=True)
    counts = [(n + a + b - d * (k - 1) - 1) // s + 1 for n, a, b, d, k, s in columns]
    channels = x.shape[1] // max(math.prod(kernel), 1)
    blocks = np.reshape(x, (x.shape[0], channels, math.prod(kernel), *counts))
    found = None
    for number, offset in enumerate(numpy.ndindex(*kernel)):
        one = sliced(blocks, [
            (number, number + 1, 1) if d == 2 else (0, n, 1) for d, n in enumerate(blocks.shape)
        ])  # fmt: skip
        places = []
        for d, (at, count) in enumerate(zip(offset, counts, strict=True)):
            before = at * dilations[d] - pads[d]
            reach = before + (count - 1) * strides[d] + 1
            places.append((before, lengths[d] - reach, strides[d] - 1))
        part = padded(np.reshape(one, (x.shape[0], channels, *counts)), [(0, 0, 0)] * 2 + places)
        found = part if found is None else found + part
    assert found is not None
    return found
