"""Searching and sorting (rule E10)."""

from __future__ import annotations

from typing import Any

import numpy as np

from neuronsim import ops
from neuronsim.arrays.array_object import Array, asarray
from neuronsim.arrays.axes import one_axis

__all__ = ["argmax", "argmin", "argsort", "sort", "top_k"]


def argmax(x: Any, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """The index of the largest element: the first NaN wins, else the lowest index of equal ones.

    >>> int(argmax(asarray([1.0, float("nan"), 3.0])))
    1
    """
    return _argument("argmax", asarray(x), axis, keepdims)


def argmin(x: Any, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """The index of the smallest element: the first NaN wins, else the lowest index of equal ones."""
    return _argument("argmin", asarray(x), axis, keepdims)


def _argument(name: str, x: Array, axis: int | None, keepdims: bool) -> Array:
    source = x.reshape(-1) if axis is None else x
    at = 0 if axis is None else one_axis(x, axis)
    found = Array(ops.apply(name, [source.bits], axis=at))
    kept = tuple(1 if axis is None or d == at else n for d, n in enumerate(x.shape))
    return found.reshape(kept) if keepdims else found


def argsort(x: Any, axis: int = -1, *, descending: bool = False) -> Array:
    """The indices that sort `x`, stable: NaN last, -0 equal to +0; descending reverses the order."""
    a = asarray(x)
    at = one_axis(a, axis)
    if not descending:
        return Array(ops.apply("argsort", [a.bits], axis=at))
    # Equal elements keep their order: sort the reversed array, and reverse the result.
    last = Array(ops.Bits(np.flip(a.bits.data, at), a.dtype))
    order = np.flip(np.asarray(Array(ops.apply("argsort", [last.bits], axis=at))), at)
    return asarray(a.shape[at] - 1 - order)


def sort(x: Any, axis: int = -1, *, descending: bool = False) -> Array:
    """The elements in order, stable: NaN last (descending: first), -0 equal to +0 (E10).

    >>> sort(asarray([float("nan"), 2.0, -1.0]))
    Array([-1.,  2., nan], dtype=float32)
    """
    a = asarray(x)
    order = np.asarray(argsort(a, axis, descending=descending))
    return Array(ops.Bits(np.take_along_axis(a.bits.data, order, one_axis(a, axis)), a.dtype))


def top_k(x: Any, k: int) -> tuple[Array, Array]:
    """The k largest elements along the last axis in TOTALORDER, and their indices; of equal ones the
    lower index comes first (E10).

    >>> top_k(asarray([1.0, 3.0, 2.0]), 2)[1]
    Array([1, 2], dtype=int64)
    """
    a = asarray(x)
    order = Array(ops.apply("top_k", [a.bits], k=k))
    values = np.take_along_axis(a.bits.data, np.asarray(order), -1)
    return Array(ops.Bits(values, a.dtype)), order
