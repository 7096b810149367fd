"""Padding: what comes before and after the elements along each axis.

>>> pad(asarray([1.0, 2.0, 3.0], dtype="bfloat16"), (1, 2), mode="reflect").tolist()
[2.0, 1.0, 2.0, 3.0, 2.0, 1.0]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from neuronsim.arrays import reductions, statistics
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.axes import one_axis
from neuronsim.arrays.conversion import asarray
from neuronsim.arrays.evaluation import apply_elementwise
from neuronsim.arrays.manipulation import concat, flip, move_bits, repeat
from neuronsim.arrays.progressions import linspace
from neuronsim.errors import InvalidArgument, UnsupportedOperator, UnsupportedType, nearest

__all__ = ["pad"]

_MOVING = ("constant", "edge", "empty", "reflect", "symmetric", "wrap")
_STATISTICS: dict[str, Callable[..., Array]] = {
    "maximum": reductions.max,
    "mean": reductions.mean,
    "median": statistics.median,
    "minimum": reductions.min,
}
_KEYWORDS = {
    "constant": {"constant_values"},
    "linear_ramp": {"end_values"},
    "reflect": {"reflect_type"},
    "symmetric": {"reflect_type"},
    **{name: {"stat_length"} for name in _STATISTICS},
}


def pad(array: Any, pad_width: Any, mode: str = "constant", **kwargs: Any) -> Array:
    """`array` with `pad_width` more elements on each side: a number, (before, after), or such a pair
    for each axis; or a dict from axes to these. Modes and keywords are NumPy's.

    "constant" (`constant_values`, by rules C), "edge", "reflect", "symmetric", "wrap" and "empty"
    (zeros) move bits. "maximum", "minimum", "mean" and "median" (of integers rounded) reduce the
    `stat_length` elements at that side, "linear_ramp" is `linspace` from `end_values`. Raises
    UnsupportedOperator for odd reflections and for functions.
    """
    a = asarray(array)
    known = {*_MOVING, *_STATISTICS, "linear_ramp"}
    if not isinstance(mode, str) or kwargs.get("reflect_type", "even") != "even":
        raise UnsupportedOperator(f"pad: modes are {', '.join(sorted(known))}, not {mode!r} {kwargs}")
    if mode not in known:
        raise InvalidArgument(f"pad: there is no mode {mode!r}{nearest(mode, known)}")
    if unknown := {*kwargs} - _KEYWORDS.get(mode, set()):
        raise InvalidArgument(f"pad: the mode {mode!r} takes no {', '.join(sorted(unknown))}")
    if isinstance(pad_width, Mapping):
        given = {one_axis(a.shape, axis): width for axis, width in pad_width.items()}
        pad_width = [np.broadcast_to(given.get(d, 0), 2) for d in range(a.ndim)]
    widths = _pairs("pad_width", pad_width, a.ndim)
    if not a.ndim:
        return a.copy()
    if mode == "linear_ramp":
        ends = _pairs("end_values", kwargs.get("end_values", 0), a.ndim)
        return _ramps(a, widths, ends)
    if mode in _STATISTICS:
        counts = _pairs("stat_length", kwargs.get("stat_length") or max(a.shape, default=0), a.ndim)
        return _statistics(a, widths, _STATISTICS[mode], counts)
    if mode == "constant":
        values = asarray(kwargs.get("constant_values", 0), a.dtype)
        return move_bits(np.pad, a, widths, constant_values=values.bits.data)
    # What NumPy leaves as it is in memory need not be a value of the type.
    return move_bits(np.pad, a, widths, "constant" if mode == "empty" else mode)


def _pairs(name: str, value: Any, rank: int) -> list[tuple[Any, Any]]:
    """(before, after) of each axis."""
    try:
        pairs = np.broadcast_to(np.asarray(value), (rank, 2)).tolist()
    except ValueError as error:
        raise InvalidArgument(
            f"pad: {name} {value} is no number, pair or pair for each of {rank} axes"
        ) from error
    if name != "end_values":
        if not all(isinstance(n, int) for pair in pairs for n in pair):
            raise UnsupportedType(f"pad: {name} is made of integers, not {value}")
        if any(n < 0 for pair in pairs for n in pair):
            raise InvalidArgument(f"pad: {name} is not negative: {value}")
    return [(before, after) for before, after in pairs]


def _along(x: Array, axis: int, part: slice) -> Array:
    return x[(slice(None),) * axis + (part,)]


def _statistics(
    x: Array,
    widths: list[tuple[int, int]],
    statistic: Callable[..., Array],
    counts: list[tuple[int, int]],
) -> Array:
    for axis, ((before, after), (first, last)) in enumerate(zip(widths, counts, strict=True)):
        n = x.shape[axis]
        sides = (slice(0, min(first, n)), slice(n - min(last, n), n))
        found = [statistic(_along(x, axis, side), axis=axis, keepdims=True) for side in sides]
        if x.dtype.kind in ("signed", "unsigned"):
            found = [apply_elementwise("rint", v) if v.dtype.kind == "float" else v for v in found]
        left, right = (
            repeat(v.astype(x.dtype), width, axis)
            for v, width in zip(found, (before, after), strict=True)
        )
        x = concat([left, x, right], axis)
    return x


def _ramps(x: Array, widths: list[tuple[int, int]], ends: list[tuple[Any, Any]]) -> Array:
    for axis, ((before, after), (first, last)) in enumerate(zip(widths, ends, strict=True)):
        edges = (_along(x, axis, slice(0, 1)), _along(x, axis, slice(-1, None)))
        left, right = (
            _ramp(end, edge, width, axis)
            for end, edge, width in zip((first, last), edges, (before, after), strict=True)
        )
        x = concat([left, x, flip(right, axis)], axis)
    return x


def _ramp(end: Any, edge: Array, width: int, axis: int) -> Array:
    """`width` elements from `end` towards `edge`, which is not one of them."""
    line = edge.reshape(tuple(n for d, n in enumerate(edge.shape) if d != axis))
    found: Array = linspace(end, line, width, endpoint=False, dtype=edge.dtype, axis=axis)
    return found
