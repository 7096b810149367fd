"""Which axes `axis=` names."""

from __future__ import annotations

import operator

import numpy as np

from neuronsim.arrays.array_object import Array
from neuronsim.errors import InvalidArgument

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
        raise InvalidArgument(f"axis {axis} is not one of {x.ndim} axes")
    reduced = tuple(sorted({a % x.ndim for a in axes}))
    if len(reduced) != len(axes):
        raise InvalidArgument(f"axis {axis} names an axis twice")
    return reduced


def kept_shape(x: Array, reduced: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with length 1 for the reduced axes."""
    return tuple(1 if d in reduced else n for d, n in enumerate(x.shape))


def one_axis(x: Array, axis: int) -> int:
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
        raise InvalidArgument(f"the axis is an integer, not {axis!r}")
    if not -x.ndim <= axis < x.ndim:
        raise InvalidArgument(f"axis {axis} is not one of {x.ndim} axes")
    return int(axis) % x.ndim
