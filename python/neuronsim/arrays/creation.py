"""Creation functions. `device=` is the only device, `like=` changes nothing.

>>> full((2,), 0.1, dtype="bfloat16")
Array([0.1, 0.1], dtype=bfloat16)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes, ops
from neuronsim.arrays import elementwise
from neuronsim.arrays.arguments import whole
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.axes import lengths
from neuronsim.arrays.conversion import asarray, convert
from neuronsim.arrays.default_types import array_type, default_dtype
from neuronsim.arrays.device import check_device
from neuronsim.arrays.evaluation import apply_elementwise
from neuronsim.arrays.manipulation import move_bits, stack
from neuronsim.dtypes import DType, DTypeLike
from neuronsim.errors import REFUSALS, InvalidArgument, UnsupportedType, nearest, refusal

__all__ = [
    *("array", "asanyarray", "asarray", "asarray_chkfinite", "ascontiguousarray", "asfortranarray"),
    *("copy", "diag", "diagflat", "empty", "empty_like", "eye", "frombuffer", "fromiter", "full"),
    *("full_like", "identity", "ones", "ones_like", "require", "tri", "tril", "triu", "vander"),
    *("zeros", "zeros_like"),
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


# ---- constants -------------------------------------------------------------------------------------


def allocated(make: Callable[[], npt.NDArray[Any]], dims: tuple[int, ...]) -> npt.NDArray[Any]:
    try:
        return make()
    except REFUSALS as error:
        raise refusal(f"an array of the shape {dims}", error) from error


def chosen_type(dtype: DTypeLike | None, device: Any) -> DType:
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
    return _filled(value, allocated(lambda: np.empty(dims, value.dtype.storage, order), dims))


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

    return _filled(value, allocated(make, dims))


def zeros(
    shape: Shape,
    dtype: DTypeLike | None = None,
    order: Literal["C", "F"] = "C",
    *,
    device: Any = None,
    like: Any = None,
) -> Array:
    """An array of zeros of `dtype`, the default float type if None."""
    target = chosen_type(dtype, device)
    dims = lengths(shape)
    # Zero is zero bits in every type, and memory that nothing writes costs nothing.
    data = allocated(lambda: np.zeros(dims, target.storage, order), dims)
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
    return full(shape, _one(chosen_type(dtype, device)), order=order)


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
    target = chosen_type(a.dtype if dtype is None else dtype, device)
    dims = a.shape if shape is None else lengths(shape)
    data = allocated(lambda: np.zeros_like(a.bits.data, target.storage, order, False, dims), dims)
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
    one = _one(chosen_type(a.dtype if dtype is None else dtype, device))
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
    one = _one(chosen_type(dtype, device))
    rows = whole("the number of rows", N)
    columns = rows if M is None else whole("the number of columns", M)
    data = allocated(lambda: np.eye(rows, columns, k, one.dtype.storage, order), (rows, columns))
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
    one = _one(chosen_type(dtype, None))

    def make() -> npt.NDArray[Any]:
        # All of its memory first: NumPy takes seconds for the mask of what may not fit.
        data = np.zeros((rows, columns), one.dtype.storage)
        np.copyto(data, one.bits.data, where=np.tri(rows, columns, k, np.bool_))
        return data

    return Array(ops.Bits(allocated(make, (rows, columns)), one.dtype))


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
    allocated(lambda: np.empty(dims, wide.storage), dims)
    while len(columns) < width:
        columns.append(apply_elementwise("multiply", columns[-1], base))
    chosen = columns[:width]
    found = stack([*(chosen if increasing else reversed(chosen))], -1) if chosen else zeros((a.size, 0))
    return convert(found, a.dtype if wide is dtypes.float32 else wide)
