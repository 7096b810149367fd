"""Which axes `axis=` names, and which lengths `shape=`."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from neuronsim.arrays.array_object import Array
from neuronsim.errors import InvalidArgument, InvalidIndex, UnsupportedType

Axis = int | tuple[int, ...] | None


def _axes(axis: Axis, rank: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(rank))
    try:
        return tuple(map(operator.index, axis if isinstance(axis, tuple) else (axis,)))
    except TypeError as error:
        raise InvalidArgument(
            f"axis is an integer, a tuple of integers or None, not {axis!r}"
        ) from error


def reduced_axes(x: Array, axis: Axis) -> tuple[int, ...]:
    """The axes that `axis` names, ascending."""
    axes = _axes(axis, x.ndim)
    if not all(-x.ndim <= a < x.ndim for a in axes):
        raise InvalidIndex(f"axis {axis} is not one of {x.ndim} axes")
    reduced = tuple(sorted({a % x.ndim for a in axes}))
    if len(reduced) != len(axes):
        raise InvalidArgument(f"axis {axis} names an axis twice")
    return reduced


def folded_axes(x: Array, axis: Axis) -> tuple[int, ...]:
    """The axes that a reduction's `axis` names: an array without axes has 0 and -1, as in NumPy."""
    is_scalars = x.ndim == 0 and isinstance(axis, int | np.integer) and axis in (0, -1)
    return () if is_scalars else reduced_axes(x, axis)


def kept_shape(x: Array, reduced: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with length 1 for the reduced axes."""
    return tuple(1 if d in reduced else n for d, n in enumerate(x.shape))


def one_axis(x: Array, axis: int) -> int:
    if type(axis) is not int and (isinstance(axis, bool) or not isinstance(axis, int | np.integer)):
        raise InvalidArgument(f"the axis is an integer, not {axis!r}")
    if not -x.ndim <= axis < x.ndim:
        raise InvalidIndex(f"axis {axis} is not one of {x.ndim} axes")
    return int(axis) % x.ndim


def integers(what: str, value: Any) -> tuple[int, ...]:
    """An integer, or a sequence of them, as a tuple; raises UnsupportedType for anything else."""
    if type(value) is int:
        return (value,)
    if type(value) is tuple and all(type(n) is int for n in value):
        return value
    try:
        return tuple(map(operator.index, value if np.iterable(value) else (value,)))
    except TypeError as error:
        raise UnsupportedType(f"{what} is an integer or some of them, not {value!r}") from error


def lengths(shape: Any) -> tuple[int, ...]:
    """The length of each axis: `shape` is an integer or a sequence of them, not negative."""
    dims = integers("a shape", shape)
    if dims and min(dims) < 0:
        raise InvalidArgument(f"a shape has no negative lengths: {dims}")
    return dims
