"""Taking, placing and choosing elements, and indices to do it with: bits are moved (E6).

>>> x = asarray([1.0, 2.0, 3.0], dtype="bfloat16")
>>> take(x, asarray([2, 0])).tolist(), compress([True, False, True], x).tolist()
([3.0, 1.0], [1.0, 3.0])
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes, ops
from neuronsim.arrays.array_object import Array, traced_part
from neuronsim.arrays.axes import lengths, one_axis
from neuronsim.arrays.conversion import (
    asarray,
    common_arrays,
    convert,
    is_weak,
    let_record,
    write,
)
from neuronsim.arrays.manipulation import broadcast_shapes, broadcast_to, move_bits, truth
from neuronsim.errors import REFUSALS, InvalidArgument, InvalidIndex, UnsupportedType, refusal

__all__ = [
    *("argwhere", "choose", "compress", "diag_indices", "diag_indices_from", "extract"),
    *("fill_diagonal", "flatnonzero", "index_exp", "ix_", "mask_indices", "ndenumerate", "ndindex"),
    "nonzero",
    *("piecewise", "place", "put", "put_along_axis", "putmask", "ravel_multi_index", "s_", "select"),
    *("take", "take_along_axis", "tril_indices", "tril_indices_from", "triu_indices"),
    *("triu_indices_from", "unravel_index"),
]

Mode = Literal["raise", "wrap", "clip"]
_WRAPS: tuple[object, ...] = ("wrap", b"wrap", 1)  # what NumPy takes for it
# NumPy's objects that give back the key they are indexed with.
s_, index_exp = np.s_, np.index_exp
ndindex = np.ndindex


def _indices(what: str, x: Any, mode: Mode = "raise", length: int = 1) -> npt.NDArray[np.int64]:
    """Integers as NumPy takes them for indices. Those that come in on the other side of `length` do it
    here: NumPy goes round once for each time that they contain it, and round nothing for ever.
    """
    a = asarray(x)
    if a.size and a.dtype.kind not in ("signed", "unsigned", "bool"):
        raise UnsupportedType(f"{what}: indices are integers, not {a.dtype.name}")
    data = a.bits.data
    if a.dtype is dtypes.uint64 and a.size and int(data.max()) >= 2**63:
        raise InvalidIndex(f"{what}: index {int(data.max())} is beyond every axis")
    data = data.astype(np.int64)
    if mode not in _WRAPS or not data.size:
        return data
    if length == 0:
        raise InvalidIndex(f"{what}: an axis without elements has no other side to come in on")
    return np.remainder(data, length)


def _written(name: str, x: Any, *arguments: Any, **keywords: Any) -> None:
    """NumPy's function of that name, which writes into `x`, on its bits."""
    if not isinstance(x, Array | np.ndarray):
        raise UnsupportedType(f"{name} writes into an array, not into {type(x).__name__}")
    traced = traced_part(arguments)
    if isinstance(x, Array) and traced is not None:
        let_record(x, traced)
    data = asarray(x, copy=False).bits.data
    if not data.flags.writeable:
        raise InvalidArgument(f"{name}: the array is read-only: write into a copy of it")
    try:
        getattr(np, name)(data, *arguments, **keywords)
    except (*REFUSALS, SystemError) as error:  # NumPy's, of a mode that is none
        raise refusal(f"{name} of {asarray(x).bits.type}", error) from error


def _stored(values: Any, x: Any) -> npt.NDArray[Any]:
    """The bits of `values` in the type of `x`, by rules C."""
    return asarray(values, asarray(x).dtype).bits.data


# ---- taking ----------------------------------------------------------------------------------------


def take(
    x: Any, /, indices: Any, axis: int | None = None, out: Any = None, mode: Mode = "raise"
) -> Array:
    """The elements at `indices` along `axis`, or of all elements in a row if it is None. An index
    outside raises InvalidIndex, comes in on the other side ("wrap") or is the nearest one ("clip").
    """
    a = asarray(x)
    length = a.size
    if axis is not None:
        with contextlib.suppress(TypeError, IndexError):  # NumPy says what is wrong with an axis
            length = (a.shape or (1,))[operator.index(axis)]
    places = _indices("take", indices, mode, length)
    if isinstance(a._data, np.ndarray) and (traced := traced_part(places)) is not None:
        a = Array(ops.Bits(traced.__neuronsim_storage__(a.bits), a.dtype))
    found = move_bits(np.take, a, places, axis, mode=mode)
    return found if out is None else write(out, found)


def take_along_axis(x: Any, /, indices: Any, axis: int | None = -1) -> Array:
    """The elements at `indices`, which has as many axes as `x`, each in its own line along `axis`: what
    `argsort` gives sorts.
    """
    return move_bits(np.take_along_axis, x, _indices("take_along_axis", indices), axis)


def compress(condition: Any, a: Any, axis: int | None = None, out: Any = None) -> Array:
    """The slices along `axis`, or elements in a row if it is None, for which the condition holds."""
    a, holds = asarray(a), truth(condition).bits.data
    if traced_part(a._data) is not None and isinstance(holds, np.ndarray) and holds.ndim == 1:
        return take(a, np.flatnonzero(holds), axis, out)  # how many there are is known
    try:
        data = np.compress(holds, a.bits.data, axis)
    except REFUSALS as error:
        raise refusal(f"compress of {a.bits.type}", error) from error
    found = Array(ops.Bits(data, a.dtype))
    return found if out is None else write(out, found)


def extract(condition: Any, arr: Any) -> Array:
    """The elements for which the condition, of as many elements, holds."""
    return compress(asarray(condition).reshape(-1), arr)


def choose(a: Any, choices: Any, out: Any = None, mode: Mode = "raise") -> Array:
    """Each element of the choice that `a` numbers there, broadcast, in the choices' common type. Traced
    numbers beyond the choices are that of the nearest one.
    """
    if not np.iterable(choices):
        raise UnsupportedType(f"choose takes a sequence of choices, not {choices!r}")
    values = common_arrays(*choices)
    try:
        places = _indices("choose", a, mode, len(values))
        data = np.choose(places, [v.bits.data for v in values], mode=mode)
    except REFUSALS as error:
        raise refusal("choose", error) from error
    found = Array(ops.Bits(ops.whole(data), values[0].dtype))
    return found if out is None else write(out, found)


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Array:
    """Each element of the choice whose bool condition is the first to hold there, else of `default`,
    broadcast, in the choices' common type.

    >>> x = asarray([1.0, 5.0, 9.0], dtype="bfloat16")
    >>> select([x < asarray(2.0, "bfloat16")], [x], 7).tolist()
    [1.0, 7.0, 7.0]
    """
    if not np.iterable(condlist) or not np.iterable(choicelist):
        raise UnsupportedType("select takes a sequence of conditions and one of choices")
    if len(condlist) != len(choicelist) or not len(condlist):
        raise InvalidArgument(
            f"select: {len(condlist)} conditions and {len(choicelist)} choices: as many, one or more"
        )
    conditions = [asarray(c) for c in condlist]
    for c in conditions:
        if c.dtype is not dtypes.boolean:
            raise UnsupportedType(f"select: a condition is a bool array, not {c.dtype.name}")
    values = common_arrays(*choicelist, default)
    bits = [v.bits.data for v in values]
    dims = broadcast_shapes(*(c.shape for c in conditions), *(v.shape for v in values))
    found = np.broadcast_to(bits[-1], dims)
    for condition, choice in zip(reversed(conditions), reversed(bits[:-1]), strict=True):
        found = np.where(condition.bits.data, choice, found)
    return Array(ops.Bits(found, values[0].dtype))


def piecewise(
    x: Any, condlist: Any, funclist: Sequence[Callable[..., Any] | Any], *args: Any, **kw: Any
) -> Array:
    """Each function of the elements for which its condition holds, the last one to hold counting; one
    more function is for those for which none does, else they are 0. A line of bools is one condition,
    a number a constant. The result has the type of `x` (C). Traced, each runs on all elements, and
    acts on each alone.
    """
    a = asarray(x)
    if not np.iterable(funclist):
        raise UnsupportedType(f"piecewise takes a sequence of functions, not {funclist!r}")
    is_one = is_weak(condlist) or (a.ndim > 0 and len(condlist) > 0 and not np.ndim(condlist[0]))
    given = [condlist] if is_one else condlist
    masks = [broadcast_to(truth(c), a.shape).bits.data for c in given]
    if len(funclist) == len(masks) + 1:
        masks.append(~functools.reduce(operator.or_, masks or [np.zeros(a.shape, np.bool_)]))
    if len(funclist) != len(masks):
        raise InvalidArgument(
            f"piecewise: {len(masks)} conditions, as many functions or one more, not {len(funclist)}"
        )
    if traced_part((a._data, *masks)) is not None:
        return _piecewise_traced(a, masks, funclist, args, kw)
    found = np.zeros(a.shape, a.dtype.storage)
    for mask, function in zip(masks, funclist, strict=True):
        chosen = Array(ops.Bits(a.bits.data[mask], a.dtype))
        if callable(function) and not chosen.size:
            continue
        values = _stored(function(chosen, *args, **kw) if callable(function) else function, a)
        try:
            found[mask] = values
        except (TypeError, ValueError) as error:
            raise refusal(f"piecewise of {a.bits.type}", error) from error
    return Array(ops.Bits(found, a.dtype))


def _piecewise_traced(
    a: Array, masks: Sequence[Any], functions: Sequence[Any], args: Any, kw: Any
) -> Array:
    """Each function of all elements, chosen where its condition holds: how many it is for is not known
    while it is traced.
    """
    records = traced_part((a._data, *masks))
    x = Array(ops.Bits(records.__neuronsim_storage__(a.bits), a.dtype)).reshape(-1)
    found = asarray(0, a.dtype).bits.data
    for mask, function in zip(masks, functions, strict=True):
        values = asarray(function, a.dtype) if not callable(function) else None
        if values is None:
            given = records.__neuronsim_each__(lambda f=function: f(x, *args, **kw), "piecewise")
            values = asarray(given, a.dtype)
        if values.shape not in ((), x.shape):
            raise InvalidArgument(
                f"piecewise: a function of {x.bits.type} gives {values.bits.type}: one number, or one "
                "for each element"
            )
        chosen = values.reshape(a.shape) if values.ndim else values
        found = np.where(mask, chosen.bits.data, found)
    return broadcast_to(Array(ops.Bits(found, a.dtype)), a.shape)


# ---- placing ---------------------------------------------------------------------------------------


def put(a: Any, ind: Any, v: Any, mode: Mode = "raise") -> None:
    """Write `v`, converted by rules C and repeated, at `ind` of all elements in a row."""
    _written("put", a, _indices("put", ind, mode, np.size(a)), _stored(v, a), mode=mode)


def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None) -> None:
    """Write `values`, converted by rules C and broadcast, where `take_along_axis` reads."""
    places = _indices("put_along_axis", indices)
    if isinstance(arr, Array) and axis is not None and traced_part((arr._data, places)) is not None:
        at = one_axis(arr.shape, axis)
        if len(places.shape) != arr.ndim:
            raise InvalidArgument(
                f"put_along_axis of {arr.bits.type}: the indices have as many axes, not "
                f"{len(places.shape)}"
            )
        grid = np.ogrid[tuple(slice(n) for n in arr.shape)]
        arr[tuple(places if d == at else line for d, line in enumerate(grid))] = values
        return
    _written("put_along_axis", arr, places, _stored(values, arr), axis)


def place(arr: Any, mask: Any, vals: Any) -> None:
    """Write `vals`, converted by rules C, one after the other and repeated, where the mask holds."""
    holds = truth(mask)
    if isinstance(arr, Array) and traced_part((arr._data, holds._data)) is not None:
        values = asarray(vals, arr.dtype).reshape(-1)
        if not values.size:
            raise InvalidArgument(f"place: no values for {arr.bits.type}")
        line = convert(holds.reshape(-1), dtypes.int64)
        zero = asarray(0, dtypes.int64).bits
        before = Array(ops.apply("cumulative", [line.bits, zero], axis=0, reducer="add")) - 1
        putmask(arr, holds, take(values, before % values.size))
        return
    _written("place", arr, truth(mask).bits.data, _stored(vals, arr).reshape(-1))


def putmask(x: Any, /, mask: Any, values: Any) -> None:
    """Write, where the mask holds, what stands there in `values`, converted by rules C and repeated."""
    _written("putmask", x, truth(mask).bits.data, _stored(values, x))


def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    """Write `val`, converted by rules C and repeated, on the diagonal; `wrap`: again below."""
    if isinstance(a, Array) and traced_part(a._data) is not None:
        mask = np.zeros(a.shape, np.bool_)
        fill_diagonal(mask, True, wrap)
        places, values = np.nonzero(mask), asarray(val).reshape(-1)
        if values.size:
            a[places] = take(values, np.arange(len(places[0])) % values.size)
        return
    _written("fill_diagonal", a, _stored(val, a), wrap)


# ---- indices ---------------------------------------------------------------------------------------


def _int64(data: Any) -> Array:
    return Array(ops.Bits(ops.whole(data).astype(np.int64, copy=False), dtypes.int64))


def _all_int64(arrays: Sequence[Any]) -> tuple[Array, ...]:
    return tuple(map(_int64, arrays))


def nonzero(x: Any, /) -> tuple[Array, ...]:
    """The indices of the elements other than zero, row-major, an int64 array for each axis (C6: NaN is
    other than zero, -0 is not). Raises InvalidArgument for an array without axes.
    """
    a = asarray(x)
    if a.ndim == 0:
        raise InvalidArgument("nonzero of an array without axes: give it one with reshape(-1)")
    return _all_int64(truth(a).bits.data.nonzero())


def flatnonzero(a: Any) -> Array:
    """The indices, of all elements in a row, of those other than zero."""
    return _int64(np.flatnonzero(truth(a).bits.data))


def argwhere(a: Any) -> Array:
    """The indices of the elements other than zero, a row for each."""
    return _int64(np.argwhere(truth(a).bits.data))


def ix_(*args: Any) -> tuple[Array, ...]:
    """Index arrays of which each lies along its own axis, so that they choose rows and columns; a bool
    vector stands for the places where it holds.
    """
    lines = [asarray(x) for x in args]
    if any(x.ndim != 1 for x in lines):
        raise InvalidArgument("ix_ takes vectors")
    kept = ("bool", "signed", "unsigned")
    data = [x.bits.data if x.dtype.kind in kept else _indices("ix_", x) for x in lines]
    try:
        return tuple(asarray(i) for i in np.ix_(*data))
    except REFUSALS as error:
        raise refusal("ix_", error) from error


def unravel_index(indices: Any, shape: Any, order: Literal["C", "F"] = "C") -> tuple[Array, ...]:
    """The index along each axis of the elements that `indices` counts in an array of that shape.

    >>> [int(i) for i in unravel_index(5, (2, 3))]
    [1, 2]
    """
    try:
        found = np.unravel_index(_indices("unravel_index", indices), lengths(shape), order)
    except REFUSALS as error:
        raise refusal("unravel_index", error) from error
    return _all_int64(found)


def ravel_multi_index(
    multi_index: Sequence[Any],
    dims: Any,
    mode: Mode | tuple[Mode, ...] = "raise",
    order: Literal["C", "F"] = "C",
) -> Array:
    """The number, counted in an array of that shape, of the elements at these indices."""
    places = tuple(_indices("ravel_multi_index", i) for i in multi_index)
    try:
        return _int64(np.ravel_multi_index(places, lengths(dims), mode, order))
    except REFUSALS as error:
        raise refusal("ravel_multi_index", error) from error


def _found_indices(function: Callable[..., Any], *args: Any) -> tuple[Array, ...]:
    """NumPy's indices for counts of rows and columns."""
    try:
        return _all_int64(function(*args))
    except REFUSALS as error:
        raise refusal(function.__name__, error) from error


def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """The indices of the diagonal of an array of `ndim` axes of length n."""
    return _found_indices(np.diag_indices, n, ndim)


def diag_indices_from(arr: Any) -> tuple[Array, ...]:
    """`diag_indices` of an array of at least two axes of one length."""
    a = asarray(arr)
    if a.ndim < 2 or len({*a.shape}) != 1:
        raise InvalidArgument(f"diag_indices_from of {a.bits.type}: at least two axes of one length")
    return diag_indices(a.shape[0], a.ndim)


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, ...]:
    """The indices of the elements at and below the diagonal k of a matrix of n rows and m columns."""
    return _found_indices(np.tril_indices, n, k, m)


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, ...]:
    """The indices of the elements at and above the diagonal k of a matrix of n rows and m columns."""
    return _found_indices(np.triu_indices, n, k, m)


def mask_indices(n: int, mask_func: Callable[[Any, Any], Any], k: Any = 0) -> tuple[Array, ...]:
    """The indices of what `mask_func`, as `tril` and `triu` are, leaves of n rows and columns.

    >>> [x.tolist() for x in mask_indices(2, lambda x, k: asarray([[0, 1], [0, 0]]))]
    [[0], [1]]
    """
    try:
        ones = _int64(np.ones(lengths((n, n))))
    except REFUSALS as error:
        raise refusal("mask_indices", error) from error
    return nonzero(mask_func(ones, k))


def _matrix_shape(name: str, x: Any) -> tuple[int, int]:
    a = asarray(x)
    if a.ndim != 2:
        raise InvalidArgument(f"{name} of {a.bits.type}: a matrix has two axes")
    return a.shape[0], a.shape[1]


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Array, ...]:
    """`tril_indices` of the shape of a matrix."""
    rows, columns = _matrix_shape("tril_indices_from", arr)
    return tril_indices(rows, k, columns)


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Array, ...]:
    """`triu_indices` of the shape of a matrix."""
    rows, columns = _matrix_shape("triu_indices_from", arr)
    return triu_indices(rows, k, columns)


def ndenumerate(arr: Any) -> Iterator[tuple[tuple[int, ...], Array]]:
    """The index and the element, an array without axes, of each element in row-major order."""
    a = asarray(arr)
    return ((index, a[index]) for index in np.ndindex(a.shape))
