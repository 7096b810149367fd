"""Creation functions. `device=` is the only device, `like=` changes nothing.

>>> full((2,), 0.1, dtype="bfloat16")
Array([0.1, 0.1], dtype=bfloat16)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import cache, reduce
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes, ops
from neuronsim.arrays import elementwise
from neuronsim.arrays.arguments import whole
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.axes import lengths
from neuronsim.arrays.conversion import asarray, common_arrays, convert, is_weak
from neuronsim.arrays.default_types import array_type, default_complex, default_dtype
from neuronsim.arrays.device import check_device
from neuronsim.arrays.evaluation import apply_elementwise
from neuronsim.arrays.manipulation import broadcast_arrays, concat, expand_dims, move_bits, stack
from neuronsim.arrays.progressions import (
    exact_fraction,
    is_negative_zero,
    length,
    progression,
    write_negative_zero,
)
from neuronsim.dtypes import DType, DTypeLike, result_type
from neuronsim.errors import REFUSALS, InvalidArgument, UnsupportedType, nearest, refusal

__all__ = [
    *("arange", "array", "asanyarray", "asarray", "ascontiguousarray", "asfortranarray", "copy"),
    *("diag", "diagflat", "empty", "empty_like", "eye", "frombuffer", "fromfunction", "fromiter"),
    *("full", "full_like", "geomspace", "identity", "indices", "linspace", "logspace", "meshgrid"),
    *("mgrid", "ogrid", "ones", "ones_like", "r_", "c_", "require", "asarray_chkfinite"),
    *("tri", "tril", "triu", "vander", "zeros", "zeros_like"),
]

Shape = int | Sequence[int]
Order = Literal["K", "A", "C", "F"]


# ---- from data -------------------------------------------------------------------------------------


def array(
    object: Any,  # noqa: A002
    dtype: DTypeLike | None = None,
    *,
    copy: bool | None = True,
    order: Order = "K",
    subok: bool = False,
    ndmin: int = 0,
    device: Any = None,
    like: Any = None,
) -> Array:
    """An Array of a copy of `object` with at least `ndmin` axes; see `asarray`."""
    found = asarray(object, dtype, order, device=device, copy=copy)
    missing = whole("ndmin", ndmin) - found.ndim
    if missing > 64:
        raise InvalidArgument(f"an array has at most 64 axes, not {ndmin}")
    return found if missing <= 0 else found[(np.newaxis,) * missing]


asanyarray = asarray


def ascontiguousarray(a: Any, dtype: DTypeLike | None = None, *, like: Any = None) -> Array:
    """`a` with at least one axis and its elements in row-major order; copied if they are not."""
    return array(a, dtype, copy=None, order="C", ndmin=1)


def asfortranarray(a: Any, dtype: DTypeLike | None = None, *, like: Any = None) -> Array:
    """`a` with at least one axis and its elements in column-major order; copied if they are not."""
    return array(a, dtype, copy=None, order="F", ndmin=1)


def copy(a: Any, order: Order = "K", subok: bool = False) -> Array:
    """An Array of a copy of `a`."""
    return asarray(a, None, order, copy=True)


def asarray_chkfinite(a: Any, dtype: DTypeLike | None = None, order: Order | None = None) -> Array:
    """`asarray`; raises InvalidArgument, a ValueError, if an element is Inf or NaN."""
    found = asarray(a, dtype, order)
    if not elementwise.isfinite(found).bits.data.all():
        raise InvalidArgument(f"asarray_chkfinite: {found.bits.type} has Infs or NaNs")
    return found


_REQUIREMENTS = {
    **dict.fromkeys(("C", "C_CONTIGUOUS", "CONTIGUOUS"), "C"),
    **dict.fromkeys(("F", "F_CONTIGUOUS", "FORTRAN"), "F"),
    **dict.fromkeys(("A", "ALIGNED"), "A"),
    **dict.fromkeys(("W", "WRITEABLE"), "W"),
    **dict.fromkeys(("O", "OWNDATA"), "O"),
    **dict.fromkeys(("E", "ENSUREARRAY"), "E"),
}


def require(
    a: Any,
    dtype: DTypeLike | None = None,
    requirements: str | Iterable[str] | None = None,
    *,
    like: Any = None,
) -> Array:
    """`asarray`, copied where the memory lacks one of NumPy's requirements: "C" or "F" order,
    "W"riteable, "O"wn data; "A"ligned and "E"nsurearray hold for every Array.

    >>> require(asarray([1, 2])[::2], requirements="C").flags["C_CONTIGUOUS"]
    True
    """
    if not (requirements is None or np.iterable(requirements)):
        raise UnsupportedType(f"require: a sequence of requirements, not {requirements!r}")
    listed = [requirements] if isinstance(requirements, str) else [*(requirements or ())]
    unknown = [r for r in listed if str(r).upper() not in _REQUIREMENTS]
    if unknown:
        raise InvalidArgument(f"require: {unknown[0]!r}{nearest(unknown[0], _REQUIREMENTS)}")
    wanted = {_REQUIREMENTS[r.upper()] for r in listed}
    if {"C", "F"} <= wanted:
        raise InvalidArgument("require: an array has C or F order; ask for one of them")
    order: Order = "C" if "C" in wanted else "F" if "F" in wanted else "K"
    found = asarray(a, dtype, order)
    lacks = ("W" in wanted and not found.flags.writeable) or ("O" in wanted and not found.flags.owndata)
    return found.copy(order) if lacks else found


def frombuffer(
    buffer: Any,
    dtype: DTypeLike | None = None,
    count: int = -1,
    offset: int = 0,
    *,
    like: Any = None,
) -> Array:
    """The memory of `buffer` as elements of `dtype` (the default float type if None), not copied.

    Raises InvalidArgument if it does not hold `count` whole elements, or a pattern that is no value of
    the type: a tfloat32 with one of its low 13 bits set, a bool other than 0 and 1.

    >>> frombuffer(bytes.fromhex("803f0040"), "bfloat16").tolist()
    [1.0, 2.0]
    """
    target = default_dtype() if dtype is None else array_type(dtype)
    words = np.dtype(f"u{target.itemsize}") if target.kind != "complex" else target.storage
    try:
        data = np.frombuffer(buffer, words, count, offset)
    except (BufferError, *REFUSALS) as error:
        raise refusal(f"frombuffer of {target.name}", error) from error
    excluded = {dtypes.tfloat32: 0x1FFF, dtypes.boolean: 0xFE}.get(target, 0)
    if excluded and (data & excluded).any():
        raise InvalidArgument(f"frombuffer: not all of the bytes are values of {target.name}")
    return Array(ops.Bits(data.view(target.storage), target))


def fromiter(iter: Iterable[Any], dtype: DTypeLike, count: int = -1, *, like: Any = None) -> Array:  # noqa: A002
    """An axis of what `iter` gives: the first `count` numbers, or all if it is -1."""
    try:
        values = list(iter if count < 0 else itertools.islice(iter, count))
    except REFUSALS as error:
        raise refusal("fromiter", error) from error
    if len(values) < count:
        raise InvalidArgument(f"fromiter: {len(values)} numbers, not {count}")
    return asarray(values, dtype)


def fromfunction(
    function: Callable[..., Any],
    shape: Sequence[int],
    *,
    dtype: DTypeLike | None = None,
    like: Any = None,
    **kwargs: Any,
) -> Any:
    """What `function` gives for the indices of every element, one array of `shape` for each axis.

    >>> fromfunction(lambda i, j: i + 2 * j, (2, 2), dtype="int32").tolist()
    [[0, 2], [1, 3]]
    """
    return function(*indices(shape, default_dtype() if dtype is None else dtype), **kwargs)


# ---- constants -------------------------------------------------------------------------------------


def _allocated(make: Callable[[], npt.NDArray[Any]], dims: tuple[int, ...]) -> npt.NDArray[Any]:
    try:
        return make()
    except REFUSALS as error:
        raise refusal(f"an array of the shape {dims}", error) from error


def _chosen_type(dtype: DTypeLike | None, device: Any) -> DType:
    """What `dtype=` names, the default float type if None; checks `device=`."""
    if device is not None:
        check_device(device)
    return default_dtype() if dtype is None else array_type(dtype)


@cache
def _one(dtype: DType) -> Array:
    return asarray(1, dtype)


def _filled(value: Array, data: npt.NDArray[Any]) -> Array:
    try:
        data[...] = value.bits.data
    except ValueError as error:
        raise InvalidArgument(f"{value.bits.type} does not broadcast to {data.shape}") from error
    return Array(ops.Bits(data, value.dtype))


def full(
    shape: Shape,
    fill_value: Any,
    dtype: DTypeLike | None = None,
    order: Literal["C", "F"] = "C",
    *,
    device: Any = None,
    like: Any = None,
) -> Array:
    """An array of one value, or of an array of them broadcast, rounded once to `dtype` (C1)."""
    value = asarray(fill_value, dtype, device=device)
    dims = lengths(shape)
    return _filled(value, _allocated(lambda: np.empty(dims, value.dtype.storage, order), dims))


def full_like(
    x: Any,
    /,
    fill_value: Any,
    dtype: DTypeLike | None = None,
    order: Order = "K",
    subok: bool = True,
    shape: Shape | None = None,
    *,
    device: Any = None,
) -> Array:
    """`full` of the shape, type and layout of `x` where they are not given."""
    a = asarray(x)
    value = asarray(fill_value, a.dtype if dtype is None else dtype, device=device)
    dims = a.shape if shape is None else lengths(shape)

    def make() -> npt.NDArray[Any]:
        return np.empty_like(a.bits.data, value.dtype.storage, order, False, dims)

    return _filled(value, _allocated(make, dims))


def zeros(
    shape: Shape,
    dtype: DTypeLike | None = None,
    order: Literal["C", "F"] = "C",
    *,
    device: Any = None,
    like: Any = None,
) -> Array:
    """An array of zeros of `dtype`, the default float type if None."""
    target = _chosen_type(dtype, device)
    dims = lengths(shape)
    # Zero is zero bits in every type, and memory that nothing writes costs nothing.
    data = _allocated(lambda: np.zeros(dims, target.storage, order), dims)
    return Array(ops.Bits(data, target))


def ones(
    shape: Shape,
    dtype: DTypeLike | None = None,
    order: Literal["C", "F"] = "C",
    *,
    device: Any = None,
    like: Any = None,
) -> Array:
    """An array of ones of `dtype`, the default float type if None."""
    return full(shape, _one(_chosen_type(dtype, device)), order=order)


def empty(
    shape: Shape,
    dtype: DTypeLike | None = None,
    order: Literal["C", "F"] = "C",
    *,
    device: Any = None,
    like: Any = None,
) -> Array:
    """`zeros`: not every bit pattern is a value of every type, so nothing is left to chance."""
    return zeros(shape, dtype, order, device=device)


def zeros_like(
    x: Any,
    /,
    dtype: DTypeLike | None = None,
    order: Order = "K",
    subok: bool = True,
    shape: Shape | None = None,
    *,
    device: Any = None,
) -> Array:
    """Zeros of the shape, type and layout of `x` where they are not given."""
    a = asarray(x)
    target = _chosen_type(a.dtype if dtype is None else dtype, device)
    dims = a.shape if shape is None else lengths(shape)
    data = _allocated(lambda: np.zeros_like(a.bits.data, target.storage, order, False, dims), dims)
    return Array(ops.Bits(data, target))


def ones_like(
    x: Any,
    /,
    dtype: DTypeLike | None = None,
    order: Order = "K",
    subok: bool = True,
    shape: Shape | None = None,
    *,
    device: Any = None,
) -> Array:
    """Ones of the shape, type and layout of `x` where they are not given."""
    a = asarray(x)
    one = _one(_chosen_type(a.dtype if dtype is None else dtype, device))
    return full_like(a, one, one.dtype, order, subok, shape)


def empty_like(
    x: Any,
    /,
    dtype: DTypeLike | None = None,
    order: Order = "K",
    subok: bool = True,
    shape: Shape | None = None,
    *,
    device: Any = None,
) -> Array:
    """`zeros_like`, for the reason of `empty`."""
    return zeros_like(x, dtype, order, subok, shape, device=device)


# ---- evenly spaced values --------------------------------------------------------------------------


def _common_type(operands: Sequence[Any]) -> DType:
    return common_arrays(*operands)[0].dtype


def _float_type(operands: Sequence[Any]) -> DType:
    """The operands' common type, or the default float type in the place of integers."""
    if all(map(is_weak, operands)):
        return default_complex() if complex in map(type, operands) else default_dtype()
    common = _common_type(operands)
    return common if common.kind in ("float", "complex") else default_dtype()


def _unrounded(x: Any) -> Array:
    """`x` in a type that holds it: Python's floats are not rounded before the values are."""
    exact = {float: dtypes.float64, complex: dtypes.complex128}.get(type(x))
    return asarray(x, exact)


def arange(
    start: Any,
    stop: Any = None,
    step: Any = 1,
    dtype: DTypeLike | None = None,
    *,
    device: Any = None,
    like: Any = None,
) -> Array:
    """The values start + i * step in [start, stop), or in [0, start) without `stop`, each rounded once
    from its exact value (C1). Without `dtype` they are int64 (uint64 beyond it) or the floats' type.

    >>> arange(3), arange(1, 2, 0.25, dtype="bfloat16").tolist()
    (Array([0, 1, 2], dtype=int64), [1.0, 1.25, 1.5, 1.75])
    """
    given = [x for x in (start, stop, step) if x is not None]
    first, last = (0, start) if stop is None else (start, stop)
    quick = dtype is None and device is None and all(type(x) is int and abs(x) < 2**31 for x in given)
    if quick and step:  # as small integers NumPy's are exact
        return Array(ops.Bits(np.arange(int(first), last, step, dtype=np.int64), dtypes.int64))
    a, b = exact_fraction("start", first), exact_fraction("stop", last)
    d = Fraction(1) if step is None else exact_fraction("step", step)
    count = length(a, b, d)
    if dtype is not None:
        target = array_type(dtype)
    elif all(type(x) is int for x in given) or (target := _common_type(given)).kind != "float":
        beyond = count > 0 and max(a, a + (count - 1) * d) >= 2**63
        target = dtypes.uint64 if beyond else dtypes.int64
    _chosen_type(target, device)
    found = progression(a, d, count, target)
    if is_negative_zero(first):
        write_negative_zero(found, 0)
    return found


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """`num` evenly spaced values from `start` to `stop`, which is the last one if `endpoint`: each is
    rounded once from its exact value (C1); of an integer type, down. With `retstep` also their step.

    Arrays give one such line for each pair of elements, along the new `axis`. NumPy computes complex
    numbers and those that are not finite in float64 (H1).

    >>> linspace(0, 1, 4, dtype="bfloat16").tolist()
    [0.0, 0.333984375, 0.66796875, 1.0]
    """
    count = whole("num", num)
    own = _float_type([start, stop])
    target = own if dtype is None else array_type(dtype)
    _chosen_type(target, device)
    shape: tuple[int, ...] = ()
    starts, stops = [start], [stop]
    if not isinstance(start, int | float) or not isinstance(stop, int | float):
        ends = broadcast_arrays(_unrounded(start), _unrounded(stop))
        shape = ends[0].shape
        starts, stops = (x.reshape(-1).tolist() for x in ends)
    intervals = count - 1 if endpoint else count
    if own.kind == "complex" or not all(map(math.isfinite, (*starts, *stops))):
        a, b = (_on_host(asarray(np.array(x))).reshape(shape) for x in (starts, stops))
        try:
            with np.errstate(invalid="ignore"):  # as Inf - Inf
                values, by = np.linspace(a, b, count, endpoint, retstep=True, axis=axis)
        except REFUSALS as error:
            raise refusal("linspace", error) from error
        found, step = convert(asarray(values), target), convert(asarray(by), own)
    else:
        pairs = list(zip(starts, stops, strict=True))
        steps = [(Fraction(b) - Fraction(a)) / max(intervals, 1) for a, b in pairs]
        lines = [_line(*ends, d, count, endpoint, target) for ends, d in zip(pairs, steps, strict=True)]
        if shape:
            rows = stack(lines) if lines else zeros(0, target)
            found = move_bits(np.moveaxis, rows.reshape((*shape, count)), -1, axis)
        else:
            found = lines[0]
        each = [progression(d, d, 1, own) for d in steps] if retstep else []
        step = stack(each).reshape(shape) if each else zeros(shape, own)
    return (found, step if intervals else full(shape, math.nan, own)) if retstep else found


def _line(start: Any, stop: Any, step: Fraction, count: int, endpoint: bool, dtype: DType) -> Array:
    found = progression(Fraction(start), step, count, dtype, math.floor)
    # As start + 0 * step has it, and as the last value is `stop` itself.
    if is_negative_zero(start) and step < 0:
        write_negative_zero(found, 0)
    if is_negative_zero(stop) and endpoint and count > 1:
        write_negative_zero(found, -1)
    return found


def _on_host(x: Array) -> Any:
    """An ndarray of float64 or complex128 (H1)."""
    return np.asarray(convert(x, dtypes.complex128 if x.dtype.kind == "complex" else dtypes.float64))


def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Array:
    """Powers base ** linspace(start, stop): the exponents are rounded to float32, the power is the
    nearest float32 (E4), rounded once more to a narrower type (R7). float64 and complex: NumPy's (H1).

    >>> logspace(0, 3, 4).tolist()
    [1.0, 10.0, 100.0, 1000.0]
    """
    own = _float_type([start, stop, base])
    target = own if dtype is None else array_type(dtype)
    wide = _step_type(own, target)
    exponents = linspace(start, stop, num, endpoint, dtype=wide, axis=axis)
    bases = convert(_unrounded(base), wide)
    if bases.ndim:
        bases = expand_dims(bases, axis)
    return convert(apply_elementwise("power", bases, exponents), target)


def _step_type(own: DType, target: DType) -> DType:
    """The type in which a formula on `own` that gives `target` runs (R7): float32, or the host's."""
    host = [t for t in (own, target) if t in (dtypes.float64, dtypes.complex64, dtypes.complex128)]
    return reduce(result_type, host) if host else dtypes.float32


def geomspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Array:
    """`num` values of one ratio from `start` to `stop`: start * (stop / start) ** (i / intervals), in
    float32 steps, rounded once (R7); the ends are exact. Where stop / start is beyond float32 it is
    start ** (1 - i / intervals) * stop ** (i / intervals). float64 and complex: NumPy's (H1).

    Raises InvalidArgument for a zero and for real ends of different signs.

    >>> geomspace(1, 8, 4, dtype="bfloat16").tolist()
    [1.0, 2.0, 4.0, 8.0]
    """
    count = whole("num", num)
    own = _float_type([start, stop])
    target = own if dtype is None else array_type(dtype)
    ends = broadcast_arrays(_unrounded(start), _unrounded(stop))
    wide = _step_type(own, target)
    if wide is not dtypes.float32:
        try:
            values = np.geomspace(_on_host(ends[0]), _on_host(ends[1]), count, endpoint, axis=axis)
        except REFUSALS as error:
            raise refusal("geomspace", error) from error
        return convert(asarray(values), target)
    a, b = (convert(x, wide) for x in ends)
    if not (apply_elementwise("sign", a).bits.data * apply_elementwise("sign", b).bits.data > 0).all():
        raise InvalidArgument("geomspace: the ends are of one sign, and not 0")
    intervals = count - 1 if endpoint else count
    exponents = progression(Fraction(0), Fraction(1, max(intervals, 1)), count, wide)
    exponents = exponents.reshape((count, *(1,) * a.ndim))
    ratio = apply_elementwise("divide", b, a)
    line = apply_elementwise("multiply", a, apply_elementwise("power", ratio, exponents))
    beyond = ~elementwise.isfinite(ratio) | (ratio == 0)
    if beyond.bits.data.any():
        sizes = [apply_elementwise("abs", x) for x in (a, b)]
        powers = map(apply_elementwise, ("power",) * 2, sizes, (1 - exponents, exponents))
        size = apply_elementwise("multiply", *powers)
        line = elementwise.where(beyond, apply_elementwise("copysign", size, a), line)
    found = convert(line, target).bits.data
    found[:1] = convert(ends[0], target).bits.data
    if endpoint and count > 1:
        found[-1:] = convert(ends[1], target).bits.data
    return move_bits(np.moveaxis, Array(ops.Bits(found, target)), 0, axis)


# ---- grids -----------------------------------------------------------------------------------------


def meshgrid(
    *arrays: Any, copy: bool = True, sparse: bool = False, indexing: Literal["xy", "ij"] = "xy"
) -> tuple[Array, ...]:
    """The coordinates of a grid, one array for each axis, each in its own type; of "xy" the first two
    axes are exchanged. `sparse` leaves the other axes at length 1, `copy=False` gives views.

    >>> [x.tolist() for x in meshgrid(asarray([1, 2]), asarray([3, 4]))]
    [[[1, 2], [1, 2]], [[3, 3], [4, 4]]]
    """
    if indexing not in ("xy", "ij"):
        raise InvalidArgument(f"meshgrid: indexing is 'xy' or 'ij', not {indexing!r}")
    lines = [asarray(x) for x in arrays]
    data = [x.bits.data for x in lines]
    try:
        grid = np.meshgrid(*data, copy=copy, sparse=sparse, indexing=indexing)
    except REFUSALS as error:
        raise refusal("meshgrid", error) from error
    return tuple(Array(ops.Bits(g, x.dtype)) for g, x in zip(grid, lines, strict=True))


def indices(dimensions: Sequence[int], dtype: DTypeLike = dtypes.int64, sparse: bool = False) -> Any:
    """The indices of the elements of an array: one array for each axis, stacked unless `sparse`."""
    target = array_type(dtype)
    dims = lengths(dimensions)
    if sparse:
        try:
            return tuple(asarray(x, target) for x in np.indices(dims, sparse=True))
        except REFUSALS as error:
            raise refusal("indices", error) from error
    return asarray(_allocated(lambda: np.indices(dims), dims), target)


class Grid:
    """What `mgrid[...]` and `ogrid[...]` are: slices start:stop:step make the lines of a grid, as
    `arange` does, or as `linspace` does where the step is imaginary, 5j being 5 values with both ends.

    >>> mgrid[0:2, 0:1:3j].tolist()
    [[[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]], [[0.0, 0.5, 1.0], [0.0, 0.5, 1.0]]]
    """

    def __init__(self, *, sparse: bool) -> None:
        self._sparse = sparse

    def __getitem__(self, key: slice | tuple[slice, ...]) -> Any:
        if not isinstance(key, tuple):
            return _grid_line(key)
        if not key:
            raise InvalidArgument("a grid has at least one axis")
        lines = common_arrays(*map(_grid_line, key))
        grid = meshgrid(*lines, indexing="ij", sparse=self._sparse)
        return grid if self._sparse else stack(grid)


mgrid, ogrid = Grid(sparse=False), Grid(sparse=True)


def _grid_line(part: slice) -> Array:
    if not isinstance(part, slice):
        raise UnsupportedType(f"a grid is made of slices, not of {part!r}")
    start = 0 if part.start is None else part.start
    if isinstance(part.step, complex):
        found: Array = linspace(start, part.stop, int(abs(part.step)))
        return found
    return arange(start, part.stop, part.step)


class Joined:
    """What `r_[...]` and `c_[...]` are: arrays, numbers (weak, C8) and slices, which are lines as in
    `mgrid`, joined along an axis. A string as the first item says "axis", "axis,ndmin" or
    "axis,ndmin,place": the axis, the least number of axes, and where an item with fewer has its own.

    >>> r_[1:3, 0, asarray([7, 8])].tolist(), c_[asarray([1, 2]), asarray([3, 4])].tolist()
    ([1, 2, 0, 7, 8], [[1, 3], [2, 4]])
    """

    def __init__(self, axis: int, ndmin: int, place: int) -> None:
        self._layout = axis, ndmin, place

    def __getitem__(self, key: Any) -> Array:
        items = list(key) if isinstance(key, tuple) else [key]
        axis, ndmin, place = self._layout
        if items and isinstance(items[0], str):
            layout = items.pop(0)
            try:
                numbers = [int(v) for v in layout.split(",")]
            except ValueError:
                numbers = []
            if not 1 <= len(numbers) <= 3:
                raise InvalidArgument(
                    f"a layout is up to three integers, as in '0,2', not {layout!r}: there are no "
                    "matrices of NumPy's matrix class"
                )
            axis, ndmin, place = (*numbers, *self._layout[len(numbers) :])
        if not items:
            raise InvalidArgument("nothing to join: an item or more is needed")
        parts = common_arrays(*(_grid_line(x) if isinstance(x, slice) else x for x in items))
        return concat([_with_least_axes(x, ndmin, place) for x in parts], axis)


r_, c_ = Joined(0, 1, -1), Joined(-1, 2, 0)


def _with_least_axes(x: Array, ndmin: int, place: int) -> Array:
    """A view with `ndmin` axes at least, the array's own from the axis `place` on."""
    missing = max(ndmin - x.ndim, 0)
    before = min(max(place if place >= 0 else place + missing + 1, 0), missing)
    return x.reshape((*[1] * before, *x.shape, *[1] * (missing - before)))


# ---- matrices --------------------------------------------------------------------------------------


def eye(
    N: Any,  # noqa: N803 (NumPy's name)
    M: Any = None,  # noqa: N803
    k: int = 0,
    dtype: DTypeLike | None = None,
    order: Literal["C", "F"] = "C",
    *,
    device: Any = None,
    like: Any = None,
) -> Array:
    """Ones on the diagonal `k` of N rows and M columns (as many if None), zeros elsewhere; of `dtype`,
    the default float type if None.
    """
    one = _one(_chosen_type(dtype, device))
    rows = whole("the number of rows", N)
    columns = rows if M is None else whole("the number of columns", M)
    data = _allocated(lambda: np.eye(rows, columns, k, one.dtype.storage, order), (rows, columns))
    data[data != 0] = one.bits.data
    return Array(ops.Bits(data, one.dtype))


def identity(n: int, dtype: DTypeLike | None = None, *, like: Any = None) -> Array:
    """The identity matrix of n rows."""
    return eye(n, dtype=dtype)


def tri(
    N: int,  # noqa: N803 (NumPy's name)
    M: int | None = None,  # noqa: N803
    k: int = 0,
    dtype: DTypeLike | None = None,
    *,
    like: Any = None,
) -> Array:
    """Ones at and below the diagonal `k` of N rows and M columns, zeros above."""
    rows = whole("the number of rows", N)
    columns = rows if M is None else whole("the number of columns", M)
    one = _one(_chosen_type(dtype, None))

    def make() -> npt.NDArray[Any]:
        # All of its memory first: NumPy takes seconds for the mask of what may not fit.
        data = np.zeros((rows, columns), one.dtype.storage)
        np.copyto(data, one.bits.data, where=np.tri(rows, columns, k, np.bool_))
        return data

    return Array(ops.Bits(_allocated(make, (rows, columns)), one.dtype))


def _triangle(name: str, x: Any, k: int) -> Array:
    a = asarray(x)
    if a.ndim < 1:
        raise InvalidArgument(f"{name} of {a.bits.type}: an array of an axis or more has a triangle")
    return move_bits(getattr(np, name), a, k)


def tril(x: Any, /, k: int = 0) -> Array:
    """`x` with zeros above the diagonal `k` of its last two axes; a vector is every row of a matrix."""
    return _triangle("tril", x, k)


def triu(x: Any, /, k: int = 0) -> Array:
    """`x` with zeros below the diagonal `k` of its last two axes; a vector is every row of a matrix."""
    return _triangle("triu", x, k)


def diag(v: Any, k: int = 0) -> Array:
    """A matrix with `v` on its diagonal `k`; of a matrix that diagonal, a read-only view."""
    return move_bits(np.diag, v, k)


def diagflat(v: Any, k: int = 0) -> Array:
    """A matrix with all elements of `v` on its diagonal `k`."""
    return move_bits(np.diagflat, v, k)


def vander(
    x: Any,
    N: int | None = None,  # noqa: N803 (NumPy's name)
    increasing: bool = False,
) -> Array:
    """The powers 0 to N - 1 of `x`, a column each, the highest first unless `increasing`: each is the
    last one times x, in float32 steps, rounded once (R7); of integers int64, modulo 2^64.
    """
    a = asarray(x)
    if a.ndim != 1:
        raise InvalidArgument(f"vander of {a.bits.type}: it has one axis")
    wide = dtypes.float32 if a.dtype.kind == "float" and a.dtype.device else a.dtype
    wide = (
        dtypes.int64
        if wide.kind in ("bool", "signed", "unsigned") and wide is not dtypes.uint64
        else wide
    )
    base = convert(a, wide)
    columns = [ones_like(base)]
    width = a.size if N is None else whole("N", N)
    dims = (a.size, width)
    _allocated(lambda: np.empty(dims, wide.storage), dims)
    while len(columns) < width:
        columns.append(apply_elementwise("multiply", columns[-1], base))
    chosen = columns[:width]
    found = stack([*(chosen if increasing else reversed(chosen))], -1) if chosen else zeros((a.size, 0))
    return convert(found, a.dtype if wide is dtypes.float32 else wide)
