"""Reductions and cumulative functions (rules R).

>>> sum(asarray([1.0, 2.0, 3.0], dtype="float16"))
Array(6., dtype=float16)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.arrays.array_object import Array, asarray, convert, float_array, number
from neuronsim.arrays.axes import Axis, kept_shape, one_axis, reduced_axes
from neuronsim.errors import InvalidArgument, UnsupportedOperator

__all__ = [
    *("cumulative_prod", "cumulative_sum", "max", "mean", "min", "prod", "reduce_window", "std"),
    *("sum", "var", "vector_norm"),
]


def _reduce(reducer: str, x: Array, axis: Axis, keepdims: bool) -> Array:
    reduced = reduced_axes(x, axis)
    initial = _identity(reducer, x, reduced)
    result = Array(ops.apply("reduce", [x.bits, initial.bits], dimensions=reduced, reducer=reducer))
    return result.reshape(kept_shape(x, reduced)) if keepdims else result


def _identity(reducer: str, x: Array, axes: Sequence[int]) -> Array:
    value = ops.by_name(reducer).identity
    if value is not None and math.isinf(value) and math.prod(x.shape[a] for a in axes) == 0:
        raise InvalidArgument(f"{reducer} of no elements has no value")
    return _limit(reducer, x)


def _limit(reducer: str, x: Array) -> Array:
    """The reducer's identity in the array's type."""
    value = ops.by_name(reducer).identity
    assert value is not None
    if math.isinf(value) and x.dtype.exponent_bits:
        # Its bits: a conversion of Inf may give something else (C3).
        t = x.dtype
        word = ((1 << t.exponent_bits) - 1) << (t.mantissa_bits + 8 * t.itemsize - t.bits)
        sign_bit = (1 << (8 * t.itemsize - 1)) if value < 0 else 0
        bits = np.array(word | sign_bit, f"u{t.itemsize}").view(t.storage)
        return Array(ops.Bits(bits, t))
    if math.isinf(value):
        if x.dtype.kind in ("signed", "unsigned"):
            info = np.iinfo(x.dtype.numpy)
            value = info.min if value < 0 else info.max
        elif x.dtype.kind == "bool":
            value = value > 0
    return asarray(value, x.dtype)


def _summable(x: Any) -> Array:
    """Integers and bool are summed in 64 bits, as the array API standard asks."""
    a = asarray(x)
    if a.dtype.kind in ("signed", "bool"):
        return convert(a, dtypes.int64)
    return convert(a, dtypes.uint64) if a.dtype.kind == "unsigned" else a


def sum(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Array:  # noqa: A001
    """The sum over `axis` by rule R2, accumulated in float32 and rounded once."""
    return _reduce("add", _summable(x), axis, keepdims)


def prod(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """The product over `axis` by rule R2."""
    return _reduce("multiply", _summable(x), axis, keepdims)


def max(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Array:  # noqa: A001
    """The maximum over `axis`; a NaN wins (E7)."""
    return _reduce("maximum", asarray(x), axis, keepdims)


def min(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Array:  # noqa: A001
    """The minimum over `axis`; a NaN wins (E7)."""
    return _reduce("minimum", asarray(x), axis, keepdims)


def statistic(name: str, x: Any, axis: Axis, keepdims: bool, **attributes: Any) -> Array:
    """A composite that gives one element for those of `axis` (R7)."""
    a = float_array(x)
    reduced = reduced_axes(a, axis)
    result = Array(ops.apply(name, [a.bits], dimensions=reduced, **attributes))
    return result.reshape(kept_shape(a, reduced)) if keepdims else result


def mean(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """Sum / n in float32 steps, rounded once at the end (R7); NaN of no elements.

    >>> mean(asarray([1.0, 2.0, 6.0], dtype="bfloat16"))
    Array(3., dtype=bfloat16)
    """
    return statistic("mean", x, axis, keepdims)


def var(x: Any, axis: Axis = None, *, correction: float = 0, keepdims: bool = False) -> Array:
    """The variance: sum of (x - mean)^2 over n - `correction`, in two passes (R7).

    >>> var(asarray([1.0, 2.0, 6.0]), correction=1)
    Array(7., dtype=float32)
    """
    return statistic("var", x, axis, keepdims, correction=_correction(correction))


def std(x: Any, axis: Axis = None, *, correction: float = 0, keepdims: bool = False) -> Array:
    """The standard deviation: the square root of the variance, rounded once at the end (R7)."""
    return statistic("std", x, axis, keepdims, correction=_correction(correction))


def _correction(value: Any) -> float:
    found = number("the correction", value)
    if not math.isfinite(found):
        raise InvalidArgument(f"the correction is a finite number, not {value!r}")
    return found


def vector_norm(
    x: Any,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    ord: float = 2,  # noqa: A002
) -> Array:
    """The norm of vectors in float32 steps (R7): of the order 2, 1, inf or -inf.

    >>> vector_norm(asarray([3.0, 4.0]))
    Array(5., dtype=float32)
    """
    if isinstance(ord, bool) or ord not in (1, 2, math.inf, -math.inf):
        raise UnsupportedOperator(f"vector_norm of the order {ord!r}: 1, 2, inf and -inf are known")
    a = float_array(x)
    if math.isinf(ord) and math.prod(a.shape[d] for d in reduced_axes(a, axis)) == 0:
        raise InvalidArgument(f"the norm of order {ord} of no elements has no value")
    return statistic("vector_norm", a, axis, keepdims, ord=ord)


def _cumulative(reducer: str, x: Array, axis: int | None) -> Array:
    if axis is None:
        if x.ndim > 1:
            raise InvalidArgument(f"an array of {x.ndim} axes needs axis=")
        axis = 0
    at = one_axis(x, axis)
    # The last element equals the reduction, which starts from the identity (R2, R4).
    initial = _limit(reducer, x)
    attributes = {"axis": at, "reducer": reducer}
    return Array(ops.apply("cumulative", [x.bits, initial.bits], **attributes))


def cumulative_sum(x: Any, axis: int | None = None) -> Array:
    """Element j is the sum of the elements 0 to j along `axis` by rule R2.

    >>> cumulative_sum(asarray([1.0, 2.0, 3.0]))
    Array([1., 3., 6.], dtype=float32)
    """
    return _cumulative("add", _summable(x), axis)


def cumulative_prod(x: Any, axis: int | None = None) -> Array:
    """Element j is the product of the elements 0 to j along `axis` by rule R2."""
    return _cumulative("multiply", _summable(x), axis)


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
    if ops.by_name(reducer).identity is None:
        raise InvalidArgument(f"{reducer} is no reducer: add, multiply, maximum and minimum are")
    start = _limit(reducer, a) if initial is None else asarray(initial, a.dtype)
    attributes = {"window": tuple(window), "reducer": reducer}
    return Array(ops.apply("reduce_window", [a.bits, start.bits], **attributes))
