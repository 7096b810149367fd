"""Operators that choose by values: the largest elements, and what no shape says the number of."""

from __future__ import annotations

from typing import Any

import numpy

from neuronsim import arrays as np
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.frontends.onnx.table import Node, operator
from neuronsim.frontends.primitives import (
    axis_of,
    first_along,
    integers,
    taken,
)

operator("TopK")(lambda node, x: first_along(x, node.require("k"), node.get("axis", -1), largest=True))


@operator("TopK", since=10)
def _top_k(node: Node, x: Array, k: Array) -> list[Array]:
    (count,) = integers(k)
    return first_along(x, count, node.get("axis", -1), largest=bool(node.get("largest", 1)))


@operator("NonZero")
def _nonzero(node: Node, x: Array) -> Array:
    if not x.ndim:  # as if it were a line, whose axis is none of the array's
        return asarray(numpy.zeros((0, int(bool(x))), numpy.int64))
    places = (numpy.asarray(x) != 0).nonzero()
    return asarray(numpy.asarray(places, numpy.int64))


@operator("Compress")
def _compress(node: Node, x: Array, condition: Array) -> Array:
    axis = node.get("axis")
    if axis is None:
        x, axis = np.reshape(x, (-1,)), 0
    holds = numpy.asarray(condition).reshape(-1).astype(bool)
    return taken(x, numpy.flatnonzero(holds), axis_of(axis, x.ndim))


@operator("Unique")
def _unique(node: Node, x: Array) -> list[Array]:
    axis = node.get("axis")
    data: Any = numpy.asarray(x)
    _, first, inverse, counts = numpy.unique(
        data if axis is not None else data.reshape(-1),
        return_index=True, return_inverse=True, return_counts=True, axis=axis,
    )  # fmt: skip
    inverse = inverse.reshape(-1)
    if not node.get("sorted", 1):  # in the order in which they come
        order = numpy.argsort(first, kind="stable")
        first, counts = first[order], counts[order]
        inverse = numpy.argsort(order, kind="stable")[inverse]
    whole, at = (np.reshape(x, (-1,)), 0) if axis is None else (x, axis_of(axis, x.ndim))
    rest = [asarray(numpy.asarray(v, numpy.int64)) for v in (first, inverse, counts)]
    return [taken(whole, first, at), *rest]


@operator("NonMaxSuppression")
def _non_max_suppression(
    node: Node,
    boxes: Array,
    scores: Array,
    most: Array | None = None,
    overlap: Array | None = None,
    least: Array | None = None,
) -> Array:
    corners = numpy.asarray(boxes).astype(numpy.float64)
    if node.get("center_point_box", 0):
        center, size = corners[..., :2], corners[..., 2:]
        corners = numpy.concatenate([center - size / 2, center + size / 2], -1)
    low = numpy.minimum(corners[..., :2], corners[..., 2:])
    high = numpy.maximum(corners[..., :2], corners[..., 2:])
    count = integers(most)[0] if most is not None else 0
    limit = float(overlap.reshape(())) if overlap is not None else 0.0
    floor = float(least.reshape(())) if least is not None else None
    values = numpy.asarray(scores).astype(numpy.float64)
    chosen = [
        [batch, kind, box]
        for batch in range(values.shape[0])
        for kind in range(values.shape[1])
        for box in _kept(low[batch], high[batch], values[batch, kind], count, limit, floor)
    ]
    return asarray(numpy.asarray(chosen, numpy.int64).reshape(-1, 3))


def _kept(low: Any, high: Any, scores: Any, count: int, limit: float, floor: float | None) -> list[int]:
    """The boxes of one kind, the best first, of which none overlaps a better one by more."""
    order = numpy.argsort(-scores, kind="stable")
    if floor is not None:
        order = order[scores[order] > floor]
    areas = (high - low).prod(-1)
    kept: list[int] = []
    for box in order:
        if len(kept) == count:
            break
        shared = numpy.maximum(
            numpy.minimum(high[kept], high[box]) - numpy.maximum(low[kept], low[box]), 0
        ).prod(-1)
        union = areas[kept] + areas[box] - shared
        if not (shared > limit * union).any():
            kept.append(int(box))
    return kept
