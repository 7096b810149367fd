"""Resize and Upsample."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy

from neuronsim import arrays as np
from neuronsim import ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.errors import InvalidModel
from neuronsim.frontends.onnx.table import Node, operator
from neuronsim.frontends.primitives import (
    along,
    apply,
    axis_of,
    floats,
    in_float,
    integers,
    moved_axis,
    taken,
)

_Numbers: TypeAlias = "numpy.ndarray[Any, Any]"

FEW = 4  # elements that a result is made of; more are a product with a matrix


@operator("Upsample", since=7)
def _upsample_by_attribute(node: Node, x: Array) -> Array:
    return _resize(node, x, None, node.require("scales"), None, "asymmetric", "floor")


@operator("Upsample", since=9)
@operator("Resize", since=10)
def _resize_by_scales(node: Node, x: Array, scales: Array) -> Array:
    return _resize(node, x, None, floats(scales), None, "asymmetric", "floor")


@operator("Resize", since=11)
def _resize_by_inputs(
    node: Node,
    x: Array,
    roi: Array | None = None,
    scales: Array | None = None,
    sizes: Array | None = None,
) -> Array:
    mode = node.get("coordinate_transformation_mode", "half_pixel")
    given = floats(scales) if scales is not None and scales.size else None
    wanted = integers(sizes) if sizes is not None and sizes.size else None
    part = floats(roi) if mode == "tf_crop_and_resize" and roi is not None else None
    nearest = node.get("nearest_mode", "round_prefer_floor")
    return _resize(node, x, part, given, wanted, mode, nearest)


def _resize(
    node: Node,
    x: Array,
    roi: Sequence[float] | None,
    scales: Sequence[float] | None,
    sizes: Sequence[int] | None,
    coordinates: str,
    nearest: str,
) -> Array:
    axes = [axis_of(d, x.ndim) for d in node.get("axes") or range(x.ndim)]
    lengths = [x.shape[d] for d in axes]
    if len((scales if sizes is None else sizes) or ()) != len(axes):
        raise InvalidModel(f"resizes {len(axes)} axes by {scales or sizes}")
    if sizes is not None:
        factors, wanted = _by_sizes(node, lengths, sizes)
    else:
        assert scales is not None
        factors = list(scales)
        wanted = [math.floor(n * s) for n, s in zip(lengths, factors, strict=True)]
        if roi is not None:
            spans = zip(lengths, factors, roi[: len(axes)], roi[len(axes) :], strict=True)
            wanted = [math.floor(n * (b - a) * s) for n, s, a, b in spans]
    found = x
    for number, (axis, n, m, factor) in enumerate(zip(axes, lengths, wanted, factors, strict=True)):
        span = (0.0, 1.0) if roi is None else (roi[number], roi[number + len(axes)])
        if m == n and factor == 1 and span == (0, 1):
            continue
        at = _coordinates(node, coordinates, n, m, factor, span)
        found = _resized(node, found, axis, at, factor, nearest)
        if coordinates == "tf_crop_and_resize":
            outside = asarray((at < 0) | (at > n - 1))
            value = asarray(node.get("extrapolation_value", 0.0)).astype(found.dtype)
            found = np.where(along(outside, axis, x.ndim), value, found)
    if found.dtype is x.dtype:
        return found
    if not x.dtype.exponent_bits:
        found = np.rint(found)
    return found.astype(x.dtype)


def _by_sizes(
    node: Node, lengths: Sequence[int], sizes: Sequence[int]
) -> tuple[list[float], list[int]]:
    factors = [m / n if n else 1.0 for n, m in zip(lengths, sizes, strict=True)]
    policy = node.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return factors, list(sizes)
    one = min(factors) if policy == "not_larger" else max(factors)
    return [one] * len(factors), [math.floor(one * n + 0.5) for n in lengths]


def _coordinates(
    node: Node, mode: str, n: int, m: int, factor: float, span: tuple[float, float]
) -> Any:
    """Where in the array the elements of the result lie."""
    # What lies half way does so in float32, as other runtimes have it.
    wide: Any = numpy.float32 if node.get("mode", "nearest") == "nearest" else numpy.float64
    at = numpy.arange(m, dtype=wide)
    factor = wide(factor)
    match mode:
        case "asymmetric":
            return at / factor
        case "half_pixel":
            return (at + 0.5) / factor - 0.5
        case "half_pixel_symmetric":
            return n / 2 + (at + 0.5 - m / 2) / factor - 0.5  # so that the middle is exact
        case "pytorch_half_pixel":
            return (at + 0.5) / factor - 0.5 if m > 1 else numpy.zeros(m)
        case "align_corners":
            # ONNX's own tests have the length before it is rounded.
            return at * (n - 1) / (factor * n - 1) if m > 1 else numpy.zeros(m)
        case "tf_half_pixel_for_nn":
            return (at + 0.5) / factor
        case "tf_crop_and_resize":
            first, last = span
            if m > 1:
                return first * (n - 1) + at * (last - first) * (n - 1) / (m - 1)
            return numpy.full(m, 0.5 * (first + last) * (n - 1))
    raise node.refuse(f"has no coordinate_transformation_mode {mode!r}")


_ROUNDINGS: dict[str, Callable[[_Numbers], _Numbers]] = {
    "round_prefer_floor": lambda at: numpy.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: numpy.floor(at + 0.5),
    "floor": numpy.floor,
    "ceil": numpy.ceil,
}


def _resized(node: Node, x: Array, axis: int, at: _Numbers, factor: float, nearest: str) -> Array:
    """One axis resized, of which the result's elements lie at these places."""
    n = x.shape[axis]
    mode = node.get("mode", "nearest")
    if mode == "nearest":
        if nearest not in _ROUNDINGS:
            raise node.refuse(f"has no nearest_mode {nearest!r}")
        places = _ROUNDINGS[nearest](at).astype(numpy.int64)
        return taken(x, numpy.clip(places, 0, n - 1), axis)
    if mode not in ("linear", "bilinear", "cubic"):
        raise node.refuse(f"has no mode {mode!r}")
    antialias = bool(node.get("antialias", 0)) and factor < 1
    places, weights = _taps(node, at, factor if antialias else 1.0, cubic=mode == "cubic")
    if node.get("exclude_outside", 0) or antialias:
        if node.get("exclude_outside", 0):
            weights = numpy.where((places < 0) | (places >= n), 0, weights)
        weights = weights / weights.sum(0)
    return _weighted(in_float(x), axis, numpy.clip(places, 0, n - 1), weights)


def _taps(node: Node, at: _Numbers, scale: float, *, cubic: bool) -> tuple[_Numbers, _Numbers]:
    """For each of the elements that a result is made of, where they lie and what they weigh."""
    reach = (2 if cubic else 1) / scale
    first = numpy.floor(at - reach).astype(numpy.int64) + 1
    count = math.ceil(2 * reach)
    places = first + numpy.arange(count)[:, None]
    distance = numpy.abs(places - at) * scale
    if not cubic:
        return places, numpy.maximum(1 - distance, 0)
    a = node.get("cubic_coeff_a", -0.75)
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return places, numpy.where(distance < 1, near, numpy.where(distance < 2, far, 0))


def _weighted(x: Array, axis: int, places: _Numbers, weights: _Numbers) -> Array:
    """The sums of some elements along an axis, each with its weight."""
    weights = weights.astype(numpy.float32)
    used = [k for k in range(len(weights)) if weights[k].any()]
    if len(used) > FEW:
        matrix = numpy.zeros((x.shape[axis], places.shape[1]), numpy.float32)
        numpy.add.at(matrix, (places, numpy.arange(places.shape[1])), weights)
        dimensions = ops.DotDimensions(lhs_contracting=(axis,), rhs_contracting=(0,))
        product = apply("dot", x, asarray(matrix).astype(x.dtype), dot_dimensions=dimensions)
        return moved_axis(product, x.ndim - 1, axis)
    found = None
    for k in used:
        factor = asarray(weights[k]).astype(x.dtype)
        term = taken(x, places[k], axis) * along(factor, axis, x.ndim)
        found = term if found is None else found + term
    return x if found is None else found
