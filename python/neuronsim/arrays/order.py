"""Searching and sorting (rule E10): NaN last, -0 equal to +0, every sort stable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes, ops
from neuronsim.arrays.arguments import integers
from neuronsim.arrays.array_object import Array, traced_part
from neuronsim.arrays.axes import one_axis
from neuronsim.arrays.conversion import asarray, common_arrays, write
from neuronsim.arrays.doors import remembered
from neuronsim.arrays.evaluation import remember_order, select_elements
from neuronsim.arrays.manipulation import concat
from neuronsim.arrays.reductions import is_not_nan, max, min  # noqa: A004
from neuronsim.errors import InvalidArgument, InvalidIndex, UnsupportedType

__all__ = [
    *("argmax", "argmin", "argpartition", "argsort", "lexsort", "nanargmax", "nanargmin", "partition"),
    *("searchsorted", "sort", "top_k"),
]


@remembered
def argmax(x: Any, /, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Array:
    """The index of the largest element along `axis`, or in row-major order: the first NaN wins, else
    the lowest index of equal ones.

    >>> int(argmax(asarray([1.0, float("nan"), 3.0])))
    1
    """
    return _argument("argmax", asarray(x), axis, out, keepdims)


@remembered
def argmin(x: Any, /, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Array:
    """The index of the smallest element along `axis`, or in row-major order: the first NaN wins, else
    the lowest index of equal ones.
    """
    return _argument("argmin", asarray(x), axis, out, keepdims)


def _argument(name: str, x: Array, axis: int | None, out: Any, keepdims: bool) -> Array:
    remember_order(name, x._dtype)
    source = x if x.ndim and (axis is not None or x.ndim == 1) else x.reshape(-1)
    at = 0 if axis is None else one_axis(source.shape, axis)
    found = Array(ops.apply(name, [source.bits], axis=at))
    if keepdims:
        kept = tuple(1 if axis is None or d == at else n for d, n in enumerate(x.shape))
        found = found.reshape(kept)
    return found if out is None else write(out, found)


def nanargmax(a: Any, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Array:
    """`argmax` of what is not NaN; raises InvalidArgument where there is nothing but NaN, of which a
    traced array gives the place 0.
    """
    return _nan_argument("argmax", asarray(a), axis, out, keepdims)


def nanargmin(a: Any, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Array:
    """`argmin` of what is not NaN; raises InvalidArgument where there is nothing but NaN, of which a
    traced array gives the place 0.
    """
    return _nan_argument("argmin", asarray(a), axis, out, keepdims)


def _nan_argument(name: str, a: Array, axis: int | None, out: Any, keepdims: bool) -> Array:
    if axis is not None:
        at = one_axis(a.shape or (1,), axis)
        axis = at if a.ndim else None
    mask = is_not_nan(a)
    length = a.size if axis is None else a.shape[axis]
    if length and traced_part(a._data) is not None and a.dtype.kind != "complex":
        return _traced_nan_argument(name, a, mask, axis, out, keepdims)
    if not length or not np.all(np.any(mask, axis=axis)):
        raise InvalidArgument(f"nan{name} of nothing but NaN, or of no elements, has no value")
    keys = ops.order_keys(a.bits)
    if a.dtype.kind == "complex":
        keys = np.where(mask, keys, -np.inf if name == "argmax" else np.inf)
    elif a.dtype.kind == "float" and name == "argmax":
        keys = np.where(mask, keys, np.iinfo(keys.dtype).min)  # the key of NaN is the largest
    find = np.argmax if name == "argmax" else np.argmin
    found = asarray(np.asarray(find(keys, axis=axis, keepdims=keepdims), np.int64))
    return found if out is None else write(out, found)


def _traced_nan_argument(
    name: str, a: Array, mask: Any, axis: int | None, out: Any, keepdims: bool
) -> Array:
    """The first place of the extreme among the numbers, which a NaN before it may not be."""
    if a.dtype.kind != "float":
        return _argument(name, a, axis, out, keepdims)
    is_number = Array(ops.Bits(mask, dtypes.boolean))
    beyond = -math.inf if name == "argmax" else math.inf
    numbers = select_elements(is_number, a, beyond)
    reduce = max if name == "argmax" else min
    is_extreme = numbers == reduce(numbers, axis=axis, keepdims=True)
    return _argument("argmax", is_extreme & is_number, axis, out, keepdims)


def argsort(
    x: Any,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    descending: bool = False,
    stable: bool = True,
) -> Array:
    """The indices that sort `x`, stable whatever `kind` and `stable` ask: NaN last, -0 equal to +0;
    descending reverses the order. With the axis None all elements in row-major order.
    """
    _check_order(order)
    a = asarray(x)
    found = _argsort(a if a.ndim and axis is not None else a.reshape(-1), axis, descending)
    return Array(ops.Bits(found, dtypes.int64))


def _check_order(order: Any) -> None:
    if order is not None:
        raise UnsupportedType(f"order={order!r}: there are no arrays with fields")


def _argsort(x: Array, axis: int | None, descending: bool = False) -> npt.NDArray[np.int64]:
    at = 0 if axis is None else one_axis(x.shape, axis)
    if not descending:
        result = ops.ArrayType(dtypes.int64, x.shape)
        ascending: npt.NDArray[np.int64] = ops.apply("argsort", [x.bits], axis=at, result=result).data
        return ascending
    # Equal elements keep their order: sort the reversed array, and reverse the result.
    last = ops.Bits(np.flip(x.bits.data, at), x.dtype)
    reversed_order = np.flip(ops.apply("argsort", [last], axis=at).data, at)
    found: npt.NDArray[np.int64] = ops.whole(x.shape[at] - 1 - reversed_order)
    return found


@remembered
def sort(
    x: Any,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    descending: bool = False,
    stable: bool = True,
) -> Array:
    """The elements in order, stable whatever `kind` and `stable` ask: NaN last (descending: first), -0
    equal to +0 (E10). With the axis None all elements in row-major order.

    >>> sort(asarray([float("nan"), 2.0, -1.0]))
    Array([-1.,  2., nan], dtype=float32)
    """
    _check_order(order)
    a = asarray(x).reshape(-1) if axis is None else asarray(x)
    remember_order("sort", a._dtype)
    indices = _argsort(a, axis, descending)
    at = 0 if axis is None else one_axis(a.shape, axis)
    data = a._data[indices] if a.ndim == 1 else ops.take_along(a._data, indices, at)
    return Array(ops.Bits(data, a._dtype))


def partition(
    a: Any,
    kth: int | Sequence[int],
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
) -> Array:
    """`a` sorted along `axis`, which has the kth elements in their places as NumPy's partition has."""
    _check_kth(asarray(a), kth, axis)
    return sort(a, axis, kind, order)


def argpartition(
    a: Any,
    kth: int | Sequence[int],
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
) -> Array:
    """The indices that sort `a` along `axis`, and so partition it at every kth element."""
    _check_kth(asarray(a), kth, axis)
    return argsort(a, axis, kind, order)


def _check_kth(x: Array, kth: Any, axis: int | None) -> None:
    length = x.shape[one_axis(x.shape, axis)] if x.ndim and axis is not None else x.size
    try:
        places = integers("kth", kth)
    except UnsupportedType as error:
        raise InvalidArgument(f"kth={kth!r} is no place among {length} elements") from error
    if length and not all(-length <= k < length for k in places):
        raise InvalidArgument(f"kth={kth!r} is no place among {length} elements")


def lexsort(keys: Any, axis: int = -1) -> Array:
    """The indices that sort by several keys, arrays of one shape: by the last of them, equal elements
    by the one before it, and so on; stable, in the order of `sort`.

    >>> lexsort(([3, 1, 2], [1.0, 1.0, 0.0])).tolist()
    [2, 1, 0]
    """
    columns = [asarray(k) for k in keys]
    if not columns or any(c.shape != columns[0].shape for c in columns):
        shapes = ", ".join(str(c.shape) for c in columns)
        raise InvalidArgument(f"lexsort takes keys of one shape, at least one, not ({shapes})")
    first, *others = [c if c.ndim else c.reshape(1) for c in columns]
    at = one_axis(first.shape, axis)
    order = _argsort(first, at)
    for line in others:  # each sort is stable: equal elements stay in the order of the keys before
        moved = Array(ops.Bits(ops.take_along(line.bits.data, order, at), line.dtype))
        order = ops.take_along(order, _argsort(moved, at), at)
    return Array(ops.Bits(order, dtypes.int64)).reshape(columns[0].shape)


def searchsorted(
    x1: Any, x2: Any, /, side: Literal["left", "right"] = "left", sorter: Any = None
) -> Array:
    """Where the elements of `x2` would stand in the sorted `x1`, both in their common type: before its
    equal elements ("left") or behind them ("right"). `sorter` are indices that sort `x1`. Traced, the
    places are found by sorting both.

    >>> searchsorted(asarray([1.0, 2.0, 2.0, 5.0]), [2.0, 9.0], side="right").tolist()
    [3, 4]
    """
    if side not in ("left", "right"):
        raise InvalidArgument(f"side is 'left' or 'right', not {side!r}")
    a, values = common_arrays(x1, x2)
    if a.ndim != 1:
        raise InvalidArgument(f"searchsorted in an array of one axis, not {a.bits.type}")
    if sorter is not None:
        indices = asarray(sorter)
        if indices.dtype.kind not in ("signed", "unsigned") or indices.shape != a.shape:
            raise InvalidArgument(f"the sorter has an index for each of {a.size} elements")
        try:
            a = a[indices]
        except InvalidIndex as error:
            raise InvalidIndex(f"the sorter: {error}") from error
    if traced_part((a._data, values._data)) is not None:
        return _searched_by_ranks(a, values, side)
    keys, wanted = (ops.order_keys(x.bits) for x in (a, values))
    return asarray(np.asarray(np.searchsorted(keys, wanted, side), np.int64))


def _searched_by_ranks(a: Array, values: Array, side: str) -> Array:
    """The places among both, less those among the values alone: what is stable puts the values before
    equal elements where they are the first operand.
    """
    line = values.reshape(-1)
    if side == "left":
        among = _ranks(concat([line, a]))[: line.size]
    else:
        among = _ranks(concat([a, line]))[a.size :]
    return (among - _ranks(line)).reshape(values.shape)


def _ranks(x: Array) -> Array:
    return argsort(argsort(x))


def top_k(x: Any, k: int) -> tuple[Array, Array]:
    """The k largest elements along the last axis in TOTALORDER, and their indices; of equal ones the
    lower index comes first (E10).

    >>> top_k(asarray([1.0, 3.0, 2.0]), 2)[1]
    Array([1, 2], dtype=int64)
    """
    a = asarray(x)
    order = Array(ops.apply("top_k", [a.bits], k=k))
    values = ops.take_along(a.bits.data, order.bits.data, -1)
    return Array(ops.Bits(values, a.dtype)), order
