"""NumPy's functions by name: creation, elementwise, reductions and data movement.

>>> sum(asarray([1.0, 2.0, 3.0], dtype="float16"))
Array(6., dtype=float16)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.arrays.array import (
    Array,
    array_type,
    asarray,
    convert,
    default_dtype,
    elementwise,
    matmul,
    right_shift,
)
from neuronsim.dtypes import DTypeLike
from neuronsim.errors import InvalidArgument, UnsupportedOperator

Axis = int | tuple[int, ...] | None


# ---- elementwise: one function for each row of the table ---------------------------------------


# What NumPy has no name for (E3).
_FORMULAS = {
    "sigmoid": ": 1 / (1 + e^-x)",
    "silu": ": x sigmoid(x)",
    "gelu": ": x Phi(x), Phi being the normal distribution",
    "gelu_tanh": ": x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))",
    "gelu_sigmoid": ": x sigmoid(1.702 x)",
    "softplus": ": ln(1 + e^x)",
    "mish": ": x tanh(softplus(x))",
    "rsqrt": ": 1 / sqrt(x)",
    "erf_dx": ": the derivative of erf",
    "silu_dx": ": the derivative of silu",
    "gelu_dx": ": the derivative of gelu",
    "gelu_sigmoid_dx": ": the derivative of gelu_sigmoid",
}


def _elementwise_function(row: ops.Op) -> Callable[..., Array]:
    def function(*operands: Any) -> Array:
        if len(operands) != row.arity:
            arrays = "1 array" if row.arity == 1 else f"{row.arity} arrays"
            raise TypeError(f"{row.name}() takes {arrays}, not {len(operands)}")
        return elementwise(row.name, *operands)

    function.__name__ = function.__qualname__ = row.name
    of = "1 array" if row.arity == 1 else f"{row.arity} arrays"
    rounding = "rounded once (E1)"
    if row.name in ops.FUNCTIONS_OF_FLOATS:
        rounding = "the nearest float32 (E2-E4), rounded once more to a narrower type (E1)"
    function.__doc__ = (
        f"Elementwise {row.name}{f' (HLO `{row.opcode}`)' if row.opcode else ''} of {of}"
        f"{_FORMULAS.get(row.name, '')}, broadcast, in the common type, {rounding}."
    )
    return function


ELEMENTWISE = {
    row.name: _elementwise_function(row)
    for row in ops.OPS.values()
    if row.core is not None and row.name != "select"
}

# NumPy's names of the inverse functions, and the array API's of power.
arcsin, arccos, arctan = (ELEMENTWISE[name] for name in ("asin", "acos", "atan"))
arcsinh, arccosh, arctanh = (ELEMENTWISE[name] for name in ("asinh", "acosh", "atanh"))
arctan2, pow = ELEMENTWISE["atan2"], ELEMENTWISE["power"]  # noqa: A001


def where(condition: Any, x1: Any, x2: Any) -> Array:
    """x1 where the bool `condition` holds, x2 elsewhere; moves bits (E6)."""
    return elementwise("select", condition, x1, x2)


def sign(x: Any) -> Array:
    """Elementwise -1, 0 or 1; the sign of -0 is +0 (E9), that of NaN is NaN.

    >>> sign(asarray([-2.0, -0.0, 3.0]))
    Array([-1.,  0.,  1.], dtype=float32)
    """
    a = asarray(x)
    found = elementwise("sign", a)
    return where(elementwise("equal", found, 0), 0, found) if a.dtype.kind == "float" else found


def nextafter(x1: Any, x2: Any) -> Array:
    """The next value of the operands' own type after x1 towards x2 (E9).

    >>> float(nextafter(asarray(1.0, "bfloat16"), asarray(2.0, "bfloat16")))
    1.0078125
    """
    weak = [isinstance(x, int | float) and not isinstance(x, np.generic) for x in (x1, x2)]
    a = asarray(x1, asarray(x2).dtype if weak[0] and not weak[1] else None)
    b = asarray(x2, a.dtype if weak[1] and not weak[0] else None)
    common = dtypes.result_type(a.dtype, b.dtype)
    try:
        dims = np.broadcast_shapes(a.shape, b.shape)
    except ValueError as error:
        raise InvalidArgument(f"nextafter: {a.shape} and {b.shape} do not broadcast") from error
    pair = [broadcast_to(convert(v, common), dims).bits for v in (a, b)]
    return Array(ops.apply("nextafter", pair))


def clip(x: Any, min: Any = None, max: Any = None) -> Array:  # noqa: A002
    """minimum(maximum(x, min), max) (E7); a bound that is None does not act."""
    found = asarray(x)
    if min is not None:
        found = elementwise("maximum", found, min)
    return found if max is None else elementwise("minimum", found, max)


# ---- creation ----------------------------------------------------------------------------------


def array(x: Any, dtype: DTypeLike | None = None, *, copy: bool = True) -> Array:
    """An Array of a copy of `x`; see `asarray`."""
    return asarray(x, dtype, copy=copy)


def full(shape: int | tuple[int, ...], fill_value: Any, dtype: DTypeLike | None = None) -> Array:
    """An array of one value."""
    value = asarray(fill_value, dtype)
    dims = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(n < 0 for n in dims):
        raise InvalidArgument(f"a shape has no negative lengths: {dims}")
    return Array(ops.Bits(np.full(dims, value.bits.data, value.dtype.storage), value.dtype))


def zeros(shape: int | tuple[int, ...], dtype: DTypeLike | None = None) -> Array:
    """An array of zeros of `dtype`, the default float type if None."""
    return full(shape, 0.0, default_dtype() if dtype is None else dtype)


def ones(shape: int | tuple[int, ...], dtype: DTypeLike | None = None) -> Array:
    """An array of ones of `dtype`, the default float type if None."""
    return full(shape, 1.0, default_dtype() if dtype is None else dtype)


def arange(
    start: float, stop: float | None = None, step: float = 1, dtype: DTypeLike | None = None
) -> Array:
    """Evenly spaced values in [start, stop), each rounded once."""
    values = np.arange(start, stop, step)
    return asarray(values.tolist() or np.asarray(values), dtype)


# ---- reductions --------------------------------------------------------------------------------


def _axes(axis: Axis, rank: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(rank))
    try:
        return tuple(map(operator.index, axis if isinstance(axis, tuple) else (axis,)))
    except TypeError as error:
        raise InvalidArgument(
            f"axis is an integer, a tuple of integers or None, not {axis!r}"
        ) from error


def reduced_axes(x: Array, axis: Axis) -> tuple[int, ...]:
    """The axes that `axis` names, ascending."""
    axes = _axes(axis, x.ndim)
    if not all(-x.ndim <= a < x.ndim for a in axes):
        raise InvalidArgument(f"axis {axis} is not one of {x.ndim} axes")
    reduced = tuple(sorted({a % x.ndim for a in axes}))
    if len(reduced) != len(axes):
        raise InvalidArgument(f"axis {axis} names an axis twice")
    return reduced


def _kept(x: Array, reduced: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with length 1 for the reduced axes."""
    return tuple(1 if d in reduced else n for d, n in enumerate(x.shape))


def _reduce(reducer: str, x: Array, axis: Axis, keepdims: bool) -> Array:
    reduced = reduced_axes(x, axis)
    initial = _identity(reducer, x, reduced)
    result = Array(ops.apply("reduce", [x.bits, initial.bits], dimensions=reduced, reducer=reducer))
    return result.reshape(_kept(x, reduced)) if keepdims else result


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


def float_array(x: Any) -> Array:
    """An array of a float type: integers and bool take the default one."""
    a = asarray(x)
    if a.dtype.kind in ("signed", "unsigned", "bool"):
        return convert(a, default_dtype())
    return a


def statistic(name: str, x: Any, axis: Axis, keepdims: bool, **attributes: Any) -> Array:
    """A composite that gives one element for those of `axis` (R7)."""
    a = float_array(x)
    reduced = reduced_axes(a, axis)
    result = Array(ops.apply(name, [a.bits], dimensions=reduced, **attributes))
    return result.reshape(_kept(a, reduced)) if keepdims else result


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


def number(what: str, value: Any) -> float:
    """`value` as a float; raises InvalidArgument if it is not a number within float64's range."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real | np.number):
        raise InvalidArgument(f"{what} is a number, not {value!r}")
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidArgument(f"{what} is a number within float64's range: {error}") from error


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


# ---- order (E10) -------------------------------------------------------------------------------


def one_axis(x: Array, axis: int) -> int:
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
        raise InvalidArgument(f"the axis is an integer, not {axis!r}")
    if not -x.ndim <= axis < x.ndim:
        raise InvalidArgument(f"axis {axis} is not one of {x.ndim} axes")
    return int(axis) % x.ndim


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


# ---- data movement -----------------------------------------------------------------------------


def reshape(x: Any, shape: tuple[int, ...]) -> Array:
    """The same elements in another shape."""
    return asarray(x).reshape(shape)


def permute_dims(x: Any, axes: tuple[int, ...]) -> Array:
    """The array with its axes in the order `axes`."""
    return Array(ops.apply("transpose", [asarray(x).bits], dimensions=tuple(axes)))


def transpose(x: Any, axes: tuple[int, ...] | None = None) -> Array:
    """NumPy's transpose: `permute_dims`, or the reversal of all axes."""
    a = asarray(x)
    return permute_dims(a, tuple(reversed(range(a.ndim))) if axes is None else axes)


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Array:
    """A read-only view of `x` broadcast to `shape`."""
    a = asarray(x)
    try:
        return Array(ops.Bits(np.broadcast_to(a.bits.data, shape), a.dtype))
    except ValueError as error:
        raise InvalidArgument(f"{a.bits.type} does not broadcast to {shape}") from error


def concat(arrays: Sequence[Any], axis: int = 0) -> Array:
    """Arrays joined along an axis, in their common type."""
    values = [asarray(x) for x in arrays]
    if not values:
        raise InvalidArgument("concat needs at least one array")
    common = values[0].dtype
    for v in values[1:]:
        common = dtypes.result_type(common, v.dtype)
    bits = [convert(v, common).bits for v in values]
    rank = values[0].ndim
    if not -rank <= axis < rank:
        raise InvalidArgument(f"concat along axis {axis} of {rank} axes")
    at = axis % rank
    return Array(ops.apply("concatenate", bits, dimensions=(at,)))


def astype(x: Any, dtype: DTypeLike) -> Array:
    """`x` converted by rules C."""
    return convert(asarray(x), array_type(dtype))


left_shift = ELEMENTWISE["shift_left"]
globals().update({name: f for name, f in ELEMENTWISE.items() if name not in globals()})
__all__ = [
    *ELEMENTWISE,
    *("arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh", "arctan2", "pow"),
    *("where", "array", "asarray", "full", "zeros", "ones", "arange", "matmul"),
    *("sum", "prod", "max", "min", "mean", "var", "std", "vector_norm"),
    *("reshape", "permute_dims", "transpose"),
    *("broadcast_to", "concat", "astype", "nextafter", "clip", "left_shift", "right_shift"),
    *("cumulative_sum", "cumulative_prod", "reduce_window"),
    *("argmax", "argmin", "argsort", "sort", "top_k"),
]
