"""Which axes `axis=` names, and which lengths `shape=`."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from neuronsim.arrays.arguments import integers
from neuronsim.errors import InvalidArgument, InvalidIndex

Axis = int | tuple[int, ...] | None
Shape = tuple[int, ...]


def _axes(rank: int, axis: Axis) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(rank))
    try:
        return tuple(map(operator.index, axis if isinstance(axis, tuple) else (axis,)))
    except TypeError as error:
        raise InvalidArgument(
            f"axis is an integer, a tuple of integers or None, not {axis!r}"
        ) from error


def reduced_axes(shape: Shape, axis: Axis) -> tuple[int, ...]:
    """The axes that `axis` names, ascending."""
    rank = len(shape)
    axes = _axes(rank, axis)
    if not all(-rank <= a < rank for a in axes):
        raise InvalidIndex(f"axis {axis} is not one of {rank} axes")
    reduced = tuple(sorted({a % rank for a in axes}))
    if len(reduced) != len(axes):
        raise InvalidArgument(f"axis {axis} names an axis twice")
    return reduced


def folded_axes(shape: Shape, axis: Axis) -> tuple[int, ...]:
    """The axes that a reduction's `axis` names: an array without axes has 0 and -1, as in NumPy."""
    is_scalars = not shape and isinstance(axis, int | np.integer) and axis in (0, -1)
    return () if is_scalars else reduced_axes(shape, axis)


def kept_shape(shape: Shape, reduced: tuple[int, ...]) -> Shape:
    """The shape with length 1 for the reduced axes."""
    return tuple(1 if d in reduced else n for d, n in enumerate(shape))


def one_axis(shape: Shape, axis: int) -> int:
    """The axis that `axis` names, counted from the first."""
    rank = len(shape)
    if type(axis) is not int and (isinstance(axis, bool) or not isinstance(axis, int | np.integer)):
        raise InvalidArgument(f"the axis is an integer, not {axis!r}")
    if not -rank <= axis < rank:
        raise InvalidIndex(f"axis {axis} is not one of {rank} axes")
    return int(axis) % rank


def lengths(shape: Any) -> tuple[int, ...]:
    """The length of each axis: `shape` is an integer or a sequence of them, not negative."""
    if type(shape) is int and shape >= 0:
        return (shape,)
    dims = integers("a shape", shape)
    if dims and min(dims) < 0:
        raise InvalidArgument(f"a shape has no negative lengths: {dims}")
    return dims
