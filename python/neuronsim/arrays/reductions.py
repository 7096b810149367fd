"""Reductions (rules R).

>>> sum(asarray([1.0, 2.0, 3.0], dtype="float16"))
Array(6., dtype=float16)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes, ops
from neuronsim.arrays.arguments import number
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.axes import Axis, folded_axes, kept_shape
from neuronsim.arrays.conversion import asarray, convert, float_array, write
from neuronsim.arrays.default_types import array_type
from neuronsim.arrays.doors import door, remembered
from neuronsim.arrays.evaluation import (
    apply_elementwise,
    identity,
    remember_reduction,
    remember_statistic,
    select_elements,
)
from neuronsim.arrays.manipulation import broadcast_to, truth
from neuronsim.arrays.steps import in_float32
from neuronsim.dtypes import DType, DTypeLike
from neuronsim.errors import InvalidArgument, UnsupportedType, warn

__all__ = [
    *("all", "amax", "amin", "any", "count_nonzero", "max", "mean", "min", "nanmax", "nanmean"),
    *("nanmin", "nanprod", "nanstd", "nansum", "nanvar", "prod", "ptp", "reduce_window", "std", "sum"),
    "var",
]


_REDUCERS = {
    "sum": "add",
    "prod": "multiply",
    "max": "maximum",
    "min": "minimum",
    "all": "multiply",
    "any": "add",
}

_SUMS = ("sum", "prod")  # of integers in 64 bits


def _reduce(
    name: str,
    x: Array,
    axis: Axis,
    keepdims: bool,
    out: Any = None,
    initial: Any = None,
    where: Any = True,
) -> Array:
    if initial is None and where is True and not keepdims and out is None:
        return _PLAIN[name](x, axis)
    result = _evaluate(name, x, axis, keepdims, initial, where)
    return result if out is None else write(out, result)


def _evaluate(
    name: str, x: Array, axis: Axis, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Array:
    reducer = _REDUCERS[name]
    if name not in _SUMS or summable(x, None)._dtype is x._dtype:  # what is asked for by `dtype` is not
        remember_reduction(name, reducer, x._dtype)
    reduced = folded_axes(x.shape, axis)
    start = _identity(reducer, x, reduced, where) if initial is None else _initial(initial, x.dtype)
    if where is not True:
        x = or_else(x, chosen(x, where), identity(reducer, x.dtype))
    result = Array(ops.apply("reduce", [x.bits, start.bits], dimensions=reduced, reducer=reducer))
    return result.reshape(kept_shape(x.shape, reduced)) if keepdims else result


_PLAIN = {name: door(partial(_evaluate, name), name) for name in _REDUCERS}


def _identity(reducer: str, x: Array, axes: Sequence[int], where: Any) -> Array:
    value = ops.by_name(reducer).identity
    if value is not None and math.isinf(value):
        if math.prod(x.shape[a] for a in axes) == 0:
            raise InvalidArgument(f"{reducer} of no elements has no value: give initial=")
        if where is not True:
            raise InvalidArgument(f"{reducer} with where= may have no elements: give initial=")
    return identity(reducer, x.dtype)


def _initial(value: Any, dtype: DType) -> Array:
    start = convert(asarray(value), dtype) if isinstance(value, Array) else asarray(value, dtype)
    if start.ndim:
        raise InvalidArgument(f"initial is a scalar, not an array of the shape {start.shape}")
    return start


def chosen(x: Array, where: Any) -> npt.NDArray[np.bool_]:
    """`where` as a mask of the shape of `x`."""
    mask = Array(ops.Bits(where, dtypes.boolean)) if _records(where) else asarray(where)
    if mask.dtype is not dtypes.boolean:
        raise InvalidArgument(f"where is a bool array, not {mask.dtype.name}")
    return broadcast_to(mask, x.shape).bits.data


def _records(data: Any) -> bool:
    """Whether this is the storage of a traced array."""
    return hasattr(data, "__neuronsim_adopt__")


def or_else(x: Array, mask: npt.NDArray[np.bool_], other: Array) -> Array:
    """`x` where the mask holds, else the scalar `other` of its type."""
    return select_elements(Array(ops.Bits(mask, dtypes.boolean)), x, other)


def summable(x: Any, dtype: DTypeLike | None) -> Array:
    """In the type to sum in: integers and bool in 64 bits, as the array API standard asks."""
    a = asarray(x)
    if dtype is not None:
        return convert(a, array_type(dtype))
    kind = a._dtype.kind
    if kind in ("signed", "bool"):
        return convert(a, dtypes.int64)
    return convert(a, dtypes.uint64) if kind == "unsigned" else a


@remembered
def sum(  # noqa: A001
    x: Any,
    /,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Array:
    """The sum over `axis` by rule R2, accumulated in float32 and rounded once; integers in 64 bits.

    With `dtype` the elements are converted to it first. `initial` is added last, in float32. What
    `where` leaves out counts as 0.

    >>> sum(asarray([[1, 2], [3, 4]]), axis=0, where=asarray([[True, False], [True, True]]))
    Array([4, 4], dtype=int64)
    """
    return _reduce("sum", summable(x, dtype), axis, keepdims, out, initial, where)


@remembered
def prod(
    x: Any,
    /,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Array:
    """The product over `axis` by rule R2; `sum` says what the other arguments do. What `where` leaves
    out counts as 1.
    """
    return _reduce("prod", summable(x, dtype), axis, keepdims, out, initial, where)


@remembered
def max(  # noqa: A001
    x: Any,
    /,
    axis: Axis = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Array:
    """The maximum over `axis`; a NaN wins (E7). No elements, and `where`, need `initial`."""
    return _reduce("max", asarray(x), axis, keepdims, out, initial, where)


@remembered
def min(  # noqa: A001
    x: Any,
    /,
    axis: Axis = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Array:
    """The minimum over `axis`; a NaN wins (E7). No elements, and `where`, need `initial`."""
    return _reduce("min", asarray(x), axis, keepdims, out, initial, where)


amax, amin = max, min


def ptp(a: Any, axis: Axis = None, out: Any = None, keepdims: bool = False) -> Array:
    """The maximum minus the minimum over `axis`, rounded once (E2)."""
    a = asarray(a)
    found = apply_elementwise("subtract", max(a, axis, None, keepdims), min(a, axis, None, keepdims))
    return found if out is None else write(out, found)


@remembered
def all(  # noqa: A001
    x: Any, /, axis: Axis = None, out: Any = None, keepdims: bool = False, *, where: Any = True
) -> Array:
    """Whether no element over `axis` is zero; True of no elements. NaN is not zero.

    >>> all(asarray([[1.0, 0.0], [2.0, 3.0]]), axis=1)
    Array([False,  True], dtype=bool)
    """
    return _reduce("all", truth(x), axis, keepdims, out, where=where)


@remembered
def any(  # noqa: A001
    x: Any, /, axis: Axis = None, out: Any = None, keepdims: bool = False, *, where: Any = True
) -> Array:
    """Whether an element over `axis` is not zero; False of no elements. NaN is not zero."""
    return _reduce("any", truth(x), axis, keepdims, out, where=where)


def count_nonzero(x: Any, /, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """How many elements over `axis` are not zero, an int64 array."""
    return sum(truth(x), axis, keepdims=keepdims)


# ---- means -----------------------------------------------------------------------------------------


def statistic(name: str, x: Any, axis: Axis, keepdims: bool, **attributes: Any) -> Array:
    """A composite that gives one element for those of `axis` (R7)."""
    a, correction = float_array(x), attributes.get("correction", 0)
    if name in ("mean", "var", "std") and correction in (0, 1):
        if axis is None and not keepdims:
            return _of_all(name, int(correction))(a)
        remember_statistic(_named(name, correction), name, a._dtype, correction)
    reduced = folded_axes(a.shape, axis)
    result = Array(ops.apply(name, [a.bits], dimensions=reduced, **attributes))
    return result.reshape(kept_shape(a.shape, reduced)) if keepdims else result


def _named(name: str, correction: float) -> str:
    """A function of the name has no correction unless it is told."""
    return f"{name} - 1" if correction else name


@cache
def _of_all(name: str, correction: int) -> Callable[[Array], Array]:
    """A statistic of all elements of a float array, by what its profile remembers."""

    def evaluated(x: Array) -> Array:
        remember_statistic(_named(name, correction), name, x._dtype, correction)
        own = {} if name == "mean" else {"correction": correction}
        return Array(ops.apply(name, [x.bits], dimensions=tuple(range(x.ndim)), **own))

    return door(evaluated, _named(name, correction))


def _averaged(x: Any, dtype: DTypeLike | None) -> Array:
    if dtype is None:
        return float_array(x)
    target = array_type(dtype)
    if target.kind not in ("float", "complex"):
        raise UnsupportedType(f"a mean of the type {target.name}: dtype= is a float or complex type")
    return convert(asarray(x), target)


def _finished(x: Array, result: Array, axes: tuple[int, ...], keepdims: bool, out: Any) -> Array:
    """A result with axes of length 1 for the reduced ones, without them if so asked, or in `out`."""
    if not keepdims:
        result = result.reshape(tuple(n for d, n in enumerate(x.shape) if d not in axes))
    return result if out is None else write(out, result)


@remembered
def mean(
    x: Any,
    /,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    keepdims: bool = False,
    *,
    where: Any = True,
) -> Array:
    """Sum / n in float32 steps, rounded once at the end (R7); NaN of no elements. With `where` only the
    chosen are summed and counted; with `dtype` the elements are converted first.

    >>> mean(asarray([1.0, 2.0, 6.0], dtype="bfloat16"))
    Array(3., dtype=bfloat16)
    """
    a = _averaged(x, dtype)
    if where is True and a.dtype.kind != "complex":
        result = statistic("mean", a, axis, keepdims)
        return result if out is None else write(out, result)
    axes = folded_axes(a.shape, axis)
    return _finished(a, _mean(a, axes, where), axes, keepdims, out)


@in_float32("x")
def _mean(x: Array, axes: tuple[int, ...], where: Any) -> Array:
    total = sum(x, axes, keepdims=True, where=where)
    return apply_elementwise("divide", total, _count(x, axes, where, 0.0, x.dtype))


def _count(x: Array, axes: tuple[int, ...], where: Any, correction: float, dtype: DType) -> Array:
    """How many elements are chosen, less the correction and at least 0, rounded once to the type, with
    axes of length 1 for the reduced ones.
    """
    if where is True:
        counts = np.full(kept_shape(x.shape, axes), math.prod(x.shape[a] for a in axes))
    else:
        mask = chosen(x, where)
        if _records(mask) and correction.is_integer():  # in integers, which lose nothing
            counted = count_nonzero(Array(ops.Bits(mask, dtypes.boolean)), axes, keepdims=True)
            return convert(apply_elementwise("maximum", counted - int(correction), 0), dtype)
        counts = np.count_nonzero(mask, axis=axes, keepdims=True)
    return asarray(np.maximum(counts - correction, 0.0), dtype)


@remembered
def var(
    x: Any,
    /,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = True,
    mean: Any = None,
    correction: float = 0.0,
) -> Array:
    """The variance: sum of |x - mean|^2 over n - `correction`, in two passes (R7); a negative divisor
    is 0. `ddof` is NumPy's name of `correction`; a `mean` that is known has length 1 for the axes.

    >>> var(asarray([1.0, 2.0, 6.0]), correction=1)
    Array(7., dtype=float32)
    """
    how = (axis, dtype, out, keepdims, where, mean)
    return _spread("var", x, _correction(ddof, correction), *how)


@remembered
def std(
    x: Any,
    /,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = True,
    mean: Any = None,
    correction: float = 0.0,
) -> Array:
    """The standard deviation: the square root of the variance (`var`), rounded once at the end (R7)."""
    how = (axis, dtype, out, keepdims, where, mean)
    return _spread("std", x, _correction(ddof, correction), *how)


def _correction(ddof: Any, correction: Any) -> float:
    if ddof and correction:
        raise InvalidArgument("ddof and correction are two names of one number: give one of them")
    found = number("the correction", ddof or correction)
    if not math.isfinite(found):
        raise InvalidArgument(f"the correction is a finite number, not {found!r}")
    return found


def _spread(name: str, x: Any, correction: float, *how: Any) -> Array:
    axis, dtype, out, keepdims, where, mean = how
    a = _averaged(x, dtype)
    if where is True and mean is None and a.dtype.kind != "complex":
        result = statistic(name, a, axis, keepdims, correction=correction)
        return result if out is None else write(out, result)
    axes = folded_axes(a.shape, axis)
    result = _deviation(a, axes, correction, where, mean, is_root=name == "std")
    return _finished(a, result, axes, keepdims, out)


@in_float32("x", "mean")
def _deviation(
    x: Array, axes: tuple[int, ...], correction: float, where: Any, mean: Array | None, is_root: bool
) -> Array:
    middle = _mean(x, axes, where) if mean is None else mean
    centred = apply_elementwise("subtract", x, middle)
    if x.dtype.kind == "complex":
        squares = asarray(centred.bits.data.real**2 + centred.bits.data.imag**2)
    else:
        squares = apply_elementwise("multiply", centred, centred)
    total = sum(squares, axes, keepdims=True, where=where)
    variance = apply_elementwise("divide", total, _count(x, axes, where, correction, total.dtype))
    return apply_elementwise("sqrt", variance) if is_root else variance


# ---- without NaN -------------------------------------------------------------------------------------


def is_not_nan(x: Array) -> npt.NDArray[np.bool_]:
    """Which elements are numbers."""
    if x.dtype.kind == "complex":
        return np.asarray(~np.isnan(x.bits.data))
    if x.dtype.kind != "float":
        return np.ones(x.shape, np.bool_)
    if not isinstance(x._data, np.ndarray):  # what records compares by rows
        return apply_elementwise("bitwise_invert", apply_elementwise("isnan", x)).bits.data
    keys = ops.order_keys(x.bits)
    return np.asarray(keys != np.iinfo(keys.dtype).max)


def _numbers(x: Array, where: Any) -> npt.NDArray[np.bool_]:
    """Which of the chosen elements are numbers."""
    return is_not_nan(x) if where is True else is_not_nan(x) & chosen(x, where)


def nansum(
    a: Any,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Array:
    """`sum` with NaN counted as 0."""
    a = asarray(a)
    return sum(a, axis, dtype, out, keepdims, initial, _numbers(a, where))


def nanprod(
    a: Any,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Array:
    """`prod` with NaN counted as 1."""
    a = asarray(a)
    return prod(a, axis, dtype, out, keepdims, initial, _numbers(a, where))


def nanmax(
    a: Any,
    axis: Axis = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Array:
    """The maximum of what is not NaN; of nothing but NaN it is NaN, with a RuntimeWarning.

    >>> nanmax(asarray([1.0, float("nan"), -2.0]))
    Array(1., dtype=float32)
    """
    return _nan_limit("max", asarray(a), axis, out, keepdims, initial, where)


def nanmin(
    a: Any,
    axis: Axis = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Array:
    """The minimum of what is not NaN; of nothing but NaN it is NaN, with a RuntimeWarning."""
    return _nan_limit("min", asarray(a), axis, out, keepdims, initial, where)


def _nan_limit(
    name: str, x: Array, axis: Axis, out: Any, keepdims: bool, initial: Any, where: Any
) -> Array:
    reducer = _REDUCERS[name]
    axes = folded_axes(x.shape, axis)
    if initial is None:
        _identity(reducer, x, axes, where)  # which says what lacks an initial value
    if initial is None and isinstance(x._data, np.ndarray):
        found = _PLAIN[name](x, axis).reshape(kept_shape(x.shape, axes))
        if is_not_nan(found).all():  # since a NaN wins (E7), there is none
            return _finished(x, found, axes, keepdims, out)
    mask = _numbers(x, where)
    start = identity(reducer, x.dtype) if initial is None else initial
    found = _evaluate(name, x, axes, True, start, mask)
    if initial is None and _records(mask):
        defined = any(Array(ops.Bits(mask, dtypes.boolean)), axes, keepdims=True).bits.data
        return _finished(x, or_else(found, defined, asarray(math.nan, x.dtype)), axes, keepdims, out)
    has_numbers = np.asarray(np.any(mask, axis=axes, keepdims=True))  # of no axes: a bool
    if initial is None and not has_numbers.all():
        warn(f"{reducer} of nothing but NaN is NaN")
        found = or_else(found, has_numbers, asarray(math.nan, x.dtype))
    return _finished(x, found, axes, keepdims, out)


def nanmean(
    a: Any,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    keepdims: bool = False,
    *,
    where: Any = True,
) -> Array:
    """`mean` of what is not NaN.

    >>> nanmean(asarray([1.0, float("nan"), 2.0]))
    Array(1.5, dtype=float32)
    """
    a = _averaged(a, dtype)
    return mean(a, axis, None, out, keepdims, where=_numbers(a, where))


def nanvar(
    a: Any,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = True,
    mean: Any = None,
    correction: float = 0.0,
) -> Array:
    """`var` of what is not NaN."""
    a = _averaged(a, dtype)
    how = (axis, None, out, keepdims, _numbers(a, where), mean)
    return _spread("var", a, _correction(ddof, correction), *how)


def nanstd(
    a: Any,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = True,
    mean: Any = None,
    correction: float = 0.0,
) -> Array:
    """`std` of what is not NaN."""
    a = _averaged(a, dtype)
    how = (axis, None, out, keepdims, _numbers(a, where), mean)
    return _spread("std", a, _correction(ddof, correction), *how)


# ---- windows -----------------------------------------------------------------------------------------


def reduce_window(
    x: Any, reducer: str, window: Sequence[ops.WindowDimension], initial: Any = None
) -> Array:
    """A reduction of every window of `x` by rules R2 and R4; `reducer` is add, multiply, maximum or
    minimum, and there is one WindowDimension for each axis.

    >>> x = asarray([1.0, 2.0, 3.0, 4.0])
    >>> reduce_window(x, "maximum", [ops.WindowDimension(2, stride=2)])
    Array([2., 4.], dtype=float32)
    """
    a = asarray(x)
    if not isinstance(reducer, str) or ops.by_name(reducer).identity is None:
        raise InvalidArgument(f"{reducer} is no reducer: add, multiply, maximum and minimum are")
    start = identity(reducer, a.dtype) if initial is None else asarray(initial, a.dtype)
    attributes = {"window": tuple(window), "reducer": reducer}
    return Array(ops.apply("reduce_window", [a.bits, start.bits], **attributes))
