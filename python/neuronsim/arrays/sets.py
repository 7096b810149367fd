"""Sets: the distinct elements of arrays, equal by value (E10: -0 equals +0).

>>> unique_values(asarray([3, 1, 3, 2]))
Array([1, 2, 3], dtype=int64)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from neuronsim import ops
from neuronsim.arrays.array_object import Array, traced_part
from neuronsim.arrays.axes import one_axis
from neuronsim.arrays.conversion import asarray, common_arrays
from neuronsim.arrays.evaluation import apply_elementwise
from neuronsim.arrays.indexing import take
from neuronsim.arrays.manipulation import concat, moveaxis
from neuronsim.arrays.order import searchsorted, sort
from neuronsim.arrays.reductions import is_not_nan
from neuronsim.processor import interruptible

__all__ = [
    *("intersect1d", "isin", "setdiff1d", "setxor1d", "union1d", "unique", "unique_all"),
    *("unique_counts", "unique_inverse", "unique_values"),
]


class UniqueAllResult(NamedTuple):
    """What `unique_all` gives."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCountsResult(NamedTuple):
    """What `unique_counts` gives."""

    values: Array
    counts: Array


class UniqueInverseResult(NamedTuple):
    """What `unique_inverse` gives."""

    values: Array
    inverse_indices: Array


class _Distinct(NamedTuple):
    """The places of the first of equal elements, in ascending order of these; for every element, which
    of them it equals; how many equal each.
    """

    first: npt.NDArray[np.int64]
    inverse: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]


def _distinct(rows: Array, equal_nan: bool) -> _Distinct:
    """Of the rows of a matrix; NaN equals NaN only if so asked."""
    keys = ops.order_keys(rows.bits)
    n, width = keys.shape
    order = interruptible(16 * keys.size, np.lexsort, keys.T[::-1]) if width else np.arange(n)
    ordered, numbers = keys[order], is_not_nan(rows)[order]
    differ = ordered[1:] != ordered[:-1]
    if equal_nan:
        differ &= numbers[1:] | numbers[:-1]
    else:
        differ |= ~numbers[1:]
    starts = np.ones(n, np.bool_)
    starts[1:] = differ.any(axis=1)
    places = np.flatnonzero(starts)
    inverse = np.empty(n, np.int64)
    inverse[order] = np.cumsum(starts) - 1
    counts = np.diff(places, append=n)
    return _Distinct(order[places].astype(np.int64), inverse, counts.astype(np.int64))


def _elements(x: Any, *, equal_nan: bool = False) -> tuple[Array, _Distinct]:
    """All elements in row-major order, and which of them are distinct."""
    flat = asarray(x).reshape(-1)
    return flat, _distinct(flat.reshape(-1, 1), equal_nan)


def unique_all(x: Any, /) -> UniqueAllResult:
    """The distinct elements, ascending; where the first of each stands in row-major order; for every
    element of `x` the index of its equal; how often each occurs. Every NaN is distinct, -0 equals +0.

    >>> unique_all(asarray([5.0, 1.0, 5.0])).counts.tolist()
    [1, 2]
    """
    flat, found = _elements(x)
    values = take(flat, found.first)
    inverse = found.inverse.reshape(asarray(x).shape)
    return UniqueAllResult(values, *map(asarray, (found.first, inverse, found.counts)))


def unique_counts(x: Any, /) -> UniqueCountsResult:
    """The distinct elements, ascending, and how often each occurs. Every NaN is distinct."""
    flat, found = _elements(x)
    return UniqueCountsResult(take(flat, found.first), asarray(found.counts))


def unique_inverse(x: Any, /) -> UniqueInverseResult:
    """The distinct elements, ascending, and for every element of `x` the index of its equal. Every NaN
    is distinct.
    """
    flat, found = _elements(x)
    inverse = found.inverse.reshape(asarray(x).shape)
    return UniqueInverseResult(take(flat, found.first), asarray(inverse))


def unique_values(x: Any, /) -> Array:
    """The distinct elements, ascending. Every NaN is distinct, -0 equals +0."""
    flat, found = _elements(x)
    return take(flat, found.first)


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,  # noqa: A002
) -> Any:
    """NumPy's: the distinct elements, ascending whatever `sorted` says, or the distinct slices along
    `axis`, ordered by their elements; then what else is asked for, as `unique_all` has it. One NaN
    stands for all, unless `equal_nan` is False.

    >>> unique(asarray([[1, 2], [1, 2], [0, 5]]), axis=0).tolist()
    [[0, 5], [1, 2]]
    """
    a = asarray(ar)
    if axis is None:
        source, found = _elements(a, equal_nan=equal_nan)
        shape, at = a.shape, 0
    else:
        source, at = a, one_axis(a.shape, axis)
        width = a.size // a.shape[at] if a.shape[at] else 0
        found = _distinct(moveaxis(a, at, 0).reshape((a.shape[at], width)), equal_nan)
        shape = (a.shape[at],)
    values = take(source, found.first, at)
    asked = (
        (return_index, found.first),
        (return_inverse, found.inverse.reshape(shape)),
        (return_counts, found.counts),
    )
    more = [asarray(indices) for wanted, indices in asked if wanted]
    return (values, *more) if more else values


def isin(
    x1: Any,
    x2: Any,
    /,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    kind: str | None = None,
) -> Array:
    """For each element of `x1` whether it equals an element of `x2`, both in their common type; NaN
    equals none. `assume_unique` and `kind` change nothing. Traced, each element is looked up in
    `x2`, sorted.

    >>> isin(asarray([1, 2, 3]), [3, 1])
    Array([ True, False,  True], dtype=bool)
    """
    a, among = common_arrays(x1, x2)
    if traced_part((a._data, among._data)) is not None:
        found = _found_by_place(a, among)
        return ~found if invert else found
    known = ops.order_keys(among.bits)[is_not_nan(among)]
    return asarray(np.asarray((np.isin(ops.order_keys(a.bits), known) & is_not_nan(a)) != bool(invert)))


def _found_by_place(a: Array, among: Array) -> Array:
    """`isin` of what records: whether the element is at its own place among those sorted."""
    if not among.size:
        return asarray(np.zeros(a.shape, np.bool_))
    line = sort(among.reshape(-1))
    places = apply_elementwise("minimum", searchsorted(line, a), among.size - 1)
    return apply_elementwise("equal", take(line, places), a)


def intersect1d(ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False) -> Any:
    """The distinct elements, ascending, that both have, in their common type; with `return_indices`
    also where the first of each stands in both. `assume_unique` changes nothing.
    """
    a, b = common_arrays(ar1, ar2)
    (flat, found), (other, others) = _elements(a), _elements(b)
    first = found.first[isin(take(flat, found.first), other).bits.data]
    values = take(flat, first)
    if not return_indices:
        return values
    second = others.first[isin(take(other, others.first), values).bits.data]
    return values, asarray(first), asarray(second)


def union1d(ar1: Any, ar2: Any) -> Array:
    """The distinct elements, ascending, of both together, in their common type."""
    found: Array = unique(concat([v.reshape(-1) for v in common_arrays(ar1, ar2)]))
    return found


def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Array:
    """The distinct elements of `ar1`, ascending, that `ar2` does not have; with `assume_unique` all of
    them, in their order.
    """
    a, b = common_arrays(ar1, ar2)
    flat = a.reshape(-1) if assume_unique else unique(a)
    return take(flat, np.flatnonzero(isin(flat, b, invert=True).bits.data))


def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Array:
    """The distinct elements, ascending, that only one of both has; a NaN of both is
    two. `assume_unique` changes nothing.
    """
    a, b = common_arrays(ar1, ar2)
    return sort(concat([setdiff1d(a, b), setdiff1d(b, a)]))
