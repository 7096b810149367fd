"""Comparisons of whole arrays: Python's True or False."""

from __future__ import annotations

from typing import Any

from neuronsim import ops
from neuronsim.arrays import elementwise, reductions
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.errors import InvalidArgument

__all__ = ["allclose", "array_equal", "array_equiv"]


def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether every element is close, by `isclose`.

    >>> allclose(asarray([1.0, 2.0]), [1.0, 2.00001])
    True
    """
    return bool(reductions.all(elementwise.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """Whether the shapes are the same and all elements equal; NaN equals NaN only with `equal_nan`."""
    try:
        x, y = asarray(a1), asarray(a2)
    except InvalidArgument:
        return False
    return x.shape == y.shape and _all_equal(x, y, equal_nan)


def array_equiv(a1: Any, a2: Any) -> bool:
    """Whether the arrays broadcast to one another and all elements are equal.

    >>> array_equiv([[1, 2], [1, 2]], [1, 2]), array_equal([[1, 2], [1, 2]], [1, 2])
    (True, False)
    """
    try:
        x, y = asarray(a1), asarray(a2)
        ops.broadcast_dims(x.shape, y.shape)
    except ValueError:
        return False
    return _all_equal(x, y, equal_nan=False)


def _all_equal(x: Array, y: Array, equal_nan: bool) -> bool:
    same = elementwise.equal(x, y)
    if equal_nan:
        both = elementwise.logical_and(elementwise.not_equal(x, x), elementwise.not_equal(y, y))
        same = elementwise.logical_or(same, both)
    return bool(reductions.all(same))
