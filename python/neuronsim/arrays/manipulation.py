"""Shapes, axes, joining and splitting: bits are moved, and views are given where NumPy gives them (E6).

>>> x = asarray([[1.0, 2.0], [3.0, 4.0]], dtype="bfloat16")
>>> concat([x, flip(x, axis=0)], axis=1).tolist()
[[1.0, 2.0, 3.0, 4.0], [3.0, 4.0, 1.0, 2.0]]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.arrays.arguments import integers
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.axes import Axis, lengths, one_axis, reduced_axes
from neuronsim.arrays.conversion import asarray, common_arrays, convert, native, write
from neuronsim.arrays.default_types import array_type
from neuronsim.arrays.doors import moving
from neuronsim.dtypes import Casting, DTypeLike, can_cast
from neuronsim.errors import REFUSALS, InvalidArgument, InvalidIndex, UnsupportedType, refusal
from neuronsim.profiles import current_profile

__all__ = [
    *("append", "array_split", "astype", "atleast_1d", "atleast_2d", "atleast_3d", "block"),
    *("broadcast_arrays", "broadcast_shapes", "broadcast_to", "column_stack", "concat"),
    *("concatenate", "copyto", "delete", "dsplit", "dstack", "expand_dims", "flip", "fliplr"),
    *("flipud", "hsplit", "hstack", "insert", "isfortran", "moveaxis", "ndim"),
    *("packbits", "permute_dims", "ravel", "repeat", "reshape", "resize", "roll", "rollaxis", "rot90"),
    *("shape", "size", "split", "squeeze", "stack", "swapaxes", "tile", "transpose", "trim_zeros"),
    *("unpackbits", "unstack", "vsplit", "vstack"),
]

Order = Literal["A", "C", "F"]


def move_bits(function: Callable[..., Any], x: Any, *args: Any, **kwargs: Any) -> Array:
    """NumPy's `function` on the storage bits of `x`: for functions that only move them (E6).

    Raises InvalidIndex, InvalidArgument and so on in the place of NumPy's IndexError and ValueError.
    """
    a = asarray(x)
    try:
        moved = function(a.bits.data, *args, **kwargs)
    except REFUSALS as error:
        raise refusal(f"{function.__name__} of {a.bits.type}", error) from error
    return Array(ops.Bits(ops.whole(moved), a.dtype))


# ---- shapes ----------------------------------------------------------------------------------------


def shape(a: Any) -> tuple[int, ...]:
    """The length of each axis."""
    return asarray(a).shape


def ndim(a: Any) -> int:
    """The number of axes."""
    return asarray(a).ndim


def size(a: Any, axis: Axis = None) -> int:
    """The number of elements, or the length of an axis, or the product of those of several."""
    a = asarray(a)
    return math.prod(a.shape[d] for d in reduced_axes(a.shape, axis))


def isfortran(a: Any) -> bool:
    """Whether the elements lie in column-major order, and not also in row-major order."""
    return bool(asarray(a).flags.fnc)


@moving(lambda bits, shape: bits.reshape(shape))  # a method takes lengths one by one, too
def reshape(
    x: Any, /, shape: int | Sequence[int], order: Order = "C", *, copy: bool | None = None
) -> Array:
    """The same elements in another shape, of which one length may be -1: a view where one is possible
    (`copy=True` never gives one, `copy=False` raises InvalidArgument in the place of a copy).

    >>> reshape(asarray([1, 2, 3, 4]), (2, -1)).tolist()
    [[1, 2], [3, 4]]
    """
    return asarray(x).reshape(integers("a shape", shape), order=order, copy=copy)


def ravel(a: Any, order: Order | Literal["K"] = "C") -> Array:
    """All elements in one axis: a view where one is possible."""
    return move_bits(np.ravel, a, order)


def resize(a: Any, new_shape: int | Sequence[int]) -> Array:
    """The elements again and again until they fill `new_shape`; zeros if there are none."""
    return move_bits(np.resize, a, lengths(new_shape))


@moving(np.expand_dims)
def expand_dims(x: Any, /, axis: int | tuple[int, ...]) -> Array:
    """A view with an axis of length 1 at each place of `axis`."""
    return move_bits(np.expand_dims, x, axis)


@moving(np.squeeze)
def squeeze(x: Any, /, axis: Axis = None) -> Array:
    """A view without the axes `axis`, which have length 1; None: without every axis of that length."""
    return move_bits(np.squeeze, x, axis)


def atleast_1d(*arrays: Any) -> Any:
    """A view of each array with at least one axis: an Array of one, a tuple of several."""
    return _each(np.atleast_1d, arrays)


def atleast_2d(*arrays: Any) -> Any:
    """A view of each array with at least two axes, new ones before the others."""
    return _each(np.atleast_2d, arrays)


def atleast_3d(*arrays: Any) -> Any:
    """A view of each array with at least three axes; a vector lies along the middle one."""
    return _each(np.atleast_3d, arrays)


def _each(function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
    found = tuple(move_bits(function, x) for x in arrays)
    return found[0] if len(found) == 1 else found


def broadcast_shapes(*shapes: int | Sequence[int]) -> tuple[int, ...]:
    """The shape that arrays of these shapes broadcast to.

    >>> broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    return ops.broadcast_dims(*map(lengths, shapes))


@moving(np.broadcast_to)
def broadcast_to(x: Any, /, shape: int | Sequence[int], subok: bool = False) -> Array:
    """A read-only view of `x` broadcast to `shape`."""
    a, dims = asarray(x), lengths(shape)
    try:
        return Array(ops.Bits(np.broadcast_to(a.bits.data, dims), a.dtype))
    except ValueError as error:
        raise InvalidArgument(f"{a.bits.type} does not broadcast to {dims}") from error


def broadcast_arrays(*arrays: Any, subok: bool = False) -> tuple[Array, ...]:
    """Read-only views of the arrays, each in its own type, broadcast to one shape."""
    found = [asarray(x) for x in arrays]
    dims = broadcast_shapes(*(a.shape for a in found))
    return tuple(broadcast_to(a, dims) for a in found)


# ---- the order of axes and elements ----------------------------------------------------------------


def permute_dims(x: Any, /, axes: Sequence[int]) -> Array:
    """The array with its axes in the order `axes`: a view, unless the profile lets the tensor engine
    transpose (A3). `x.T`, `x.mT`, `swapaxes` and the like are this function too.
    """
    a = asarray(x)
    order = tuple(one_axis(a.shape, d) for d in integers("axes", axes))
    if current_profile().transpose == "move_bits" and len(set(order)) == len(order) == a.ndim:
        return a._like(a._data.transpose(order))
    return Array(ops.apply("transpose", [a.bits], dimensions=order))


def transpose(a: Any, axes: Sequence[int] | None = None) -> Array:
    """NumPy's transpose: `permute_dims`, or the reversal of all axes."""
    a = asarray(a)
    return permute_dims(a, tuple(reversed(range(a.ndim))) if axes is None else axes)


def swapaxes(a: Any, axis1: int, axis2: int) -> Array:
    """The array with two axes exchanged."""
    a = asarray(a)
    order = list(range(a.ndim))
    i, j = one_axis(a.shape, axis1), one_axis(a.shape, axis2)
    order[i], order[j] = j, i
    return permute_dims(a, order)


def moveaxis(x: Any, /, source: int | Sequence[int], destination: int | Sequence[int]) -> Array:
    """The array with the axes `source` at the places `destination`, the others in their order."""
    a = asarray(x)
    sources, places = (
        tuple(one_axis(a.shape, d) for d in (axes if np.iterable(axes) else (axes,)))
        for axes in (source, destination)
    )
    if len({*sources}) != len(sources) or len({*places}) != len(places) or len(places) != len(sources):
        raise InvalidArgument(
            f"moveaxis from {source} to {destination}: as many distinct axes as distinct places"
        )
    order = [d for d in range(a.ndim) if d not in sources]
    for place, d in sorted(zip(places, sources, strict=True)):
        order.insert(place, d)
    return permute_dims(a, order)


def rollaxis(a: Any, axis: int, start: int = 0) -> Array:
    """The array with `axis` moved before the axis `start`."""
    a = asarray(a)
    at = one_axis(a.shape, axis)
    (start,) = integers("start", (start,))
    if not -a.ndim <= start <= a.ndim:
        raise InvalidIndex(f"rollaxis before axis {start} of {a.bits.type}")
    place = start + a.ndim if start < 0 else start
    return moveaxis(a, at, place - 1 if at < place else place)


def flip(x: Any, /, axis: Axis = None) -> Array:
    """A view with the order of the elements reversed along the axes, all of them if None."""
    a = asarray(x)
    return a._like(ops.whole(np.flip(a._data, reduced_axes(a.shape, axis))))


def fliplr(m: Any) -> Array:
    """A view with the second axis reversed."""
    return flip(m, 1)


def flipud(m: Any) -> Array:
    """A view with the first axis reversed."""
    return flip(m, 0)


def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """The array turned by k right angles, from the first of two axes to the second."""
    a = asarray(m)
    plane = integers("axes", axes)
    (turns,) = integers("k", (k,))
    if len(plane) != 2 or len(reduced_axes(a.shape, plane)) != 2:
        raise InvalidArgument(f"rot90 turns from one axis to another, not {axes}")
    first, second = plane
    turned = {
        0: lambda: a[...],
        1: lambda: swapaxes(flip(a, second), first, second),
        2: lambda: flip(a, (first, second)),
        3: lambda: flip(swapaxes(a, first, second), second),
    }
    return turned[turns % 4]()


def roll(x: Any, /, shift: int | Sequence[int], axis: Axis = None) -> Array:
    """A copy with the elements moved on by `shift` places along the axes, the last ones coming first;
    along all elements in a row if `axis` is None.
    """
    return move_bits(np.roll, x, shift, axis)


def repeat(x: Any, /, repeats: Any, axis: int | None = None) -> Array:
    """Every element, or slice along `axis`, as often as `repeats` says, one number or one for each.

    >>> repeat(asarray([1, 2]), asarray([1, 3])).tolist()
    [1, 2, 2, 2]
    """
    counts = asarray(repeats)
    if counts.size and counts.dtype.kind not in ("signed", "unsigned", "bool"):
        raise UnsupportedType(f"repeat: the counts are integers, not {counts.dtype.name}")
    a = asarray(x)
    elements = counts.bits.data.sum(dtype=np.float64) * a.size / max(counts.size, 1)
    if elements >= 2.0**59:  # which NumPy does not count
        raise InvalidArgument(f"repeat of {a.bits.type}: {elements:.0f} elements are too many")
    # Beyond int64 a count becomes negative, and is refused.
    return move_bits(np.repeat, a, counts.bits.data.astype(np.int64), axis)


def tile(x: Any, /, reps: int | Sequence[int]) -> Array:
    """The array side by side as often as `reps` says for each axis, the last ones if fewer."""
    return move_bits(np.tile, x, lengths(reps))


def trim_zeros(filt: Any, trim: str = "fb", axis: Axis = None) -> Array:
    """A view without the zeros at the front ("f") and the back ("b") of the axes, all of them if None.

    >>> trim_zeros(asarray([0.0, 1.0, 0.0, 2.0, -0.0])).tolist()
    [1.0, 0.0, 2.0]
    """
    a = asarray(filt)
    ends = str(trim).lower()
    if ends not in ("f", "b", "fb", "bf"):
        raise InvalidArgument(f"trim_zeros: trim is 'f', 'b' or both, not {trim!r}")
    mask = truth(a).bits.data
    kept = [slice(None)] * a.ndim
    for d in reduced_axes(a.shape, axis):
        places = np.flatnonzero(mask.any(axis=tuple(i for i in range(a.ndim) if i != d)))
        first, last = (places[0], places[-1] + 1) if places.size else (a.shape[d], 0)
        kept[d] = slice(first if "f" in ends else 0, last if "b" in ends else a.shape[d])
    return a[tuple(kept)]


def packbits(a: Any, /, axis: int | None = None, bitorder: Literal["big", "little"] = "big") -> Array:
    """Integers or bool as bits, 1 where an element is not 0, eight to a uint8 along `axis` (None: all
    elements in row-major order), the first one the highest, or with "little" the lowest.

    >>> packbits(asarray([True, False, False, False, False, False, False, True, True])).tolist()
    [129, 128]
    """
    x = asarray(a)
    if x.dtype.kind not in ("signed", "unsigned", "bool"):
        raise UnsupportedType(f"packbits of {x.bits.type}: integers or bool are packed")
    truths = Array(ops.Bits(truth(x).bits.data.view(np.uint8), dtypes.uint8))
    return move_bits(np.packbits, truths, axis=axis, bitorder=bitorder)


def unpackbits(
    a: Any,
    /,
    axis: int | None = None,
    count: int | None = None,
    bitorder: Literal["big", "little"] = "big",
) -> Array:
    """The eight bits of each uint8 along `axis`, each as a uint8, in the order of `packbits`; the first
    `count` of them, or without the last -count.
    """
    x = asarray(a)
    if x.dtype is not dtypes.uint8:
        raise UnsupportedType(
            f"unpackbits of {x.bits.type}: uint8 is unpacked; x.view('uint8') reads bits"
        )
    found = move_bits(np.unpackbits, x, axis=axis, count=count, bitorder=bitorder)
    if not x.size:
        found.bits.data[...] = 0  # which NumPy leaves undefined
    return found


def truth(x: Any) -> Array:
    """Whether each element is other than zero (C6: NaN is, -0 is not)."""
    return convert(asarray(x), dtypes.boolean)


# ---- joining ---------------------------------------------------------------------------------------


def _operands(arrays: Any, dtype: DTypeLike | None, casting: Casting, what: str) -> list[Array]:
    """The arrays of a sequence in their common type, or in `dtype` where `casting` allows it."""
    if not isinstance(arrays, list | tuple) and not np.iterable(arrays):
        raise UnsupportedType(f"{what} takes a sequence of arrays, not {type(arrays).__name__}")
    given = list(arrays)
    if not given:
        raise InvalidArgument(f"{what} needs at least one array")
    if dtype is None and all(type(x) is Array and x._dtype is given[0]._dtype for x in given):
        return given
    if dtype is None:
        return common_arrays(*given)
    found, target = [asarray(x) for x in given], array_type(dtype)
    for a in found:
        if not can_cast(a.dtype, target, casting):
            raise UnsupportedType(f"{what}: {a.dtype.name} to {target.name} is no {casting!r} cast")
    return [convert(a, target) for a in found]


def _joined(name: str, arrays: Sequence[Array], **axis: int) -> Array:
    """NumPy's function of that name on the bits of arrays of one type."""
    try:
        data = getattr(np, name)([a._data for a in arrays], **axis)
    except REFUSALS as error:
        raise refusal(f"{name} of {', '.join(str(a.bits.type) for a in arrays)}", error) from error
    return Array(ops.Bits(data, arrays[0].dtype))


@moving(np.concatenate)
def concat(
    arrays: Sequence[Any],
    /,
    axis: int | None = 0,
    out: Any = None,
    *,
    dtype: DTypeLike | None = None,
    casting: Casting = "same_kind",
) -> Array:
    """Arrays joined along an axis, or all their elements in a row if it is None, in their common type
    or in `dtype`.
    """
    values = _operands(arrays, dtype, casting, "concat")
    if axis is None:
        values, axis = [ravel(v) for v in values], 0
    found = _joined("concatenate", values, axis=one_axis(values[0].shape, axis))
    return found if out is None else write(out, found, casting=casting)


concatenate = concat


@moving(np.stack)
def stack(
    arrays: Sequence[Any],
    /,
    axis: int = 0,
    out: Any = None,
    *,
    dtype: DTypeLike | None = None,
    casting: Casting = "same_kind",
) -> Array:
    """Arrays of one shape joined along a new axis, in their common type or in `dtype`."""
    found = _joined("stack", _operands(arrays, dtype, casting, "stack"), axis=axis)
    return found if out is None else write(out, found, casting=casting)


def vstack(
    tup: Sequence[Any], *, dtype: DTypeLike | None = None, casting: Casting = "same_kind"
) -> Array:
    """Arrays joined along the first axis, vectors being rows."""
    return _joined("vstack", _operands(tup, dtype, casting, "vstack"))


def hstack(
    tup: Sequence[Any], *, dtype: DTypeLike | None = None, casting: Casting = "same_kind"
) -> Array:
    """Arrays joined along the second axis, vectors along their only one."""
    return _joined("hstack", _operands(tup, dtype, casting, "hstack"))


def dstack(tup: Sequence[Any]) -> Array:
    """Arrays joined along the third axis, vectors and matrices getting one."""
    return _joined("dstack", _operands(tup, None, "same_kind", "dstack"))


def column_stack(tup: Sequence[Any]) -> Array:
    """Arrays joined along the second axis, vectors being columns."""
    return _joined("column_stack", _operands(tup, None, "same_kind", "column_stack"))


def block(arrays: Any) -> Array:
    """Nested lists of blocks joined: the innermost along the last axis, the next along the one before.

    >>> block([[asarray([1, 2]), 3], [asarray([4, 5, 6])]]).tolist()
    [[1, 2, 3], [4, 5, 6]]
    """
    leaves: list[Any] = []

    def place(x: Any) -> Any:
        if isinstance(x, list):
            return [place(v) for v in x]
        leaves.append(x)
        return len(leaves) - 1

    try:
        places = place(arrays)
    except RecursionError as error:
        raise InvalidArgument("block: a list in itself is no array") from error
    if not leaves:
        raise InvalidArgument("block needs at least one array")
    values = common_arrays(*leaves)

    def filled(x: Any) -> Any:
        return [filled(v) for v in x] if isinstance(x, list) else values[x].bits.data

    try:
        data = np.block(filled(places))
    except REFUSALS as error:
        raise refusal("block", error) from error
    return Array(ops.Bits(data, values[0].dtype))


def append(arr: Any, values: Any, axis: int | None = None) -> Array:
    """`concat` of two: all their elements in a row if `axis` is None."""
    return concat(common_arrays(arr, values), axis)


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Array:
    """A copy with `values`, converted to the type of `arr`, before the places `obj` along `axis`, or of
    all elements in a row if it is None.
    """
    a = asarray(arr)
    return move_bits(np.insert, a, native(obj), asarray(values, a.dtype).bits.data, axis)


def delete(arr: Any, obj: Any, axis: int | None = None) -> Array:
    """A copy without the places `obj` along `axis`, or of all elements in a row if it is None."""
    return move_bits(np.delete, arr, native(obj), axis)


def copyto(dst: Any, src: Any, casting: Casting = "same_kind", where: Any = True) -> None:
    """Write `src`, converted by rules C and broadcast, into `dst` where `where` holds."""
    write(dst, src, where, casting, broadcasts=True)


# ---- splitting -------------------------------------------------------------------------------------


def _parts(name: str, x: Any, indices_or_sections: Any, **axis: int) -> list[Array]:
    a = asarray(x)
    given = indices_or_sections
    cuts: Any = integers(name, given) if np.iterable(given) else integers(name, given)[0]
    try:
        parts = getattr(np, name)(a.bits.data, cuts, **axis)
    except (*REFUSALS, ZeroDivisionError) as error:
        raise refusal(f"{name} of {a.bits.type}", error) from error
    return [Array(ops.Bits(p, a.dtype)) for p in parts]


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Views of the parts along an axis: as many as an integer says, the first ones longer by one where
    it does not divide the length; or cut before each index of a sequence.

    >>> [p.tolist() for p in array_split(asarray([1, 2, 3]), 2)]
    [[1, 2], [3]]
    """
    return _parts("array_split", ary, indices_or_sections, axis=axis)


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """`array_split` that raises InvalidArgument where the parts are not of one length."""
    return _parts("split", ary, indices_or_sections, axis=axis)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    """`split` along the second axis, of a vector along its only one."""
    return _parts("hsplit", ary, indices_or_sections)


def vsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    """`split` of an array of at least two axes along the first one."""
    return _parts("vsplit", ary, indices_or_sections)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    """`split` of an array of at least three axes along the third one."""
    return _parts("dsplit", ary, indices_or_sections)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Array, ...]:
    """Views of the slices along an axis, without it."""
    a = asarray(x)
    at = one_axis(a.shape, axis)
    rows = np.moveaxis(a.bits.data, at, 0)
    return tuple(Array(ops.Bits(rows[i, ...], a.dtype)) for i in range(len(rows)))


# ---- types -----------------------------------------------------------------------------------------


def astype(x: Any, dtype: DTypeLike, /, *, copy: bool = True, device: Any = None) -> Array:
    """`x` converted by rules C, rounded once; without `copy` the array itself if it has the type."""
    a = asarray(x, device=device)
    found = convert(a, array_type(dtype))
    return asarray(found, copy=copy and found is a)
