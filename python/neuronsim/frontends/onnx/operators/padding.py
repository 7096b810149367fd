"""Pad and CenterCropPad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from neuronsim.arrays.array_object import Array
from neuronsim.errors import InvalidModel
from neuronsim.frontends.onnx.table import Node, operator
from neuronsim.frontends.primitives import axis_of, integers, padded, taken


@operator("Pad", since=2)
def _pad_by_attributes(node: Node, x: Array) -> Array:
    return _pad(node, x, node.require("pads"), range(x.ndim), node.get("value", 0.0))


@operator("Pad", since=11)
def _pad_by_inputs(
    node: Node, x: Array, pads: Array, value: Array | None = None, axes: Array | None = None
) -> Array:
    where = range(x.ndim) if axes is None else [axis_of(d, x.ndim) for d in integers(axes)]
    return _pad(node, x, integers(pads), where, 0 if value is None else value)


def _pad(node: Node, x: Array, pads: Sequence[int], axes: Sequence[int], value: Any) -> Array:
    if len(pads) != 2 * len(axes):
        raise InvalidModel(f"pads {len(axes)} axes by {list(pads)}")
    pairs = dict(zip(axes, zip(pads[: len(axes)], pads[len(axes) :], strict=True), strict=True))
    mode = node.get("mode", "constant")
    if mode == "constant":
        return padded(x, [(*pairs.get(d, (0, 0)), 0) for d in range(x.ndim)], value)
    if mode not in ("edge", "reflect", "wrap"):
        raise node.refuse(f"has no mode {mode!r}")
    for axis, (before, after) in pairs.items():
        if before or after:
            x = taken(x, _places(x.shape[axis], before, after, mode), axis)
    return x


def _places(length: int, before: int, after: int, mode: Any) -> Any:
    """Which elements of an axis lie in the padded one."""
    kept = numpy.arange(length)[max(-before, 0) : length + min(after, 0)]
    if not kept.size:
        raise InvalidModel(f"padding by {before} and {after} leaves nothing of {length} elements")
    return numpy.pad(kept, (max(before, 0), max(after, 0)), mode)


@operator("CenterCropPad")
def _center_crop_pad(node: Node, x: Array, shape: Array) -> Array:
    wanted = integers(shape)
    axes = [axis_of(d, x.ndim) for d in node.get("axes", range(x.ndim))]
    pairs = [(0, 0, 0)] * x.ndim
    for axis, n in zip(axes, wanted, strict=True):
        room = abs(n - x.shape[axis])
        before, after = room // 2, room - room // 2
        pairs[axis] = (before, after, 0) if n > x.shape[axis] else (-before, -after, 0)
    return padded(x, pairs)
