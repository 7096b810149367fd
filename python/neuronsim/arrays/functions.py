"""NumPy's functions by name: creation, elementwise, reductions and data movement.

>>> sum(asarray([1.0, 2.0, 3.0], dtype="float16"))
Array(6., dtype=float16)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.arrays.array import Array, asarray, convert, default_dtype, elementwise, matmul
from neuronsim.dtypes import DTypeLike, as_dtype
from neuronsim.errors import InvalidArgument, UnsupportedType

Axis = int | tuple[int, ...] | None


# ---- elementwise: one function for each row of the table ---------------------------------------


def _elementwise_function(row: ops.Op) -> Callable[..., Array]:
    def function(*operands: Any) -> Array:
        if len(operands) != row.arity:
            raise TypeError(f"{row.name}() takes {row.arity} arrays, not {len(operands)}")
        return elementwise(row.name, *operands)

    function.__name__ = function.__qualname__ = row.name
    function.__doc__ = (
        f"Elementwise {row.name} (HLO `{row.opcode}`) of {row.arity} array"
        f"{'s' if row.arity > 1 else ''}, broadcast, in the common type, rounded once (E1)."
    )
    return function


ELEMENTWISE = {
    row.name: _elementwise_function(row)
    for row in ops.OPS.values()
    if row.core is not None and row.name != "select"
}


def where(condition: Any, x1: Any, x2: Any) -> Array:
    """x1 where the bool `condition` holds, x2 elsewhere; moves bits (E6)."""
    return elementwise("select", condition, x1, x2)


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
    return axis if isinstance(axis, tuple) else (operator.index(axis),)


def _reduce(reducer: str, x: Array, axis: Axis, keepdims: bool) -> Array:
    axes = _axes(axis, x.ndim)
    if not all(-x.ndim <= a < x.ndim for a in axes):
        raise InvalidArgument(f"axis {axis} is not one of {x.ndim} axes")
    reduced = tuple(sorted({a % x.ndim for a in axes}))
    if len(reduced) != len(axes):
        raise InvalidArgument(f"axis {axis} names an axis twice")
    initial = _identity(reducer, x, reduced)
    result = Array(ops.apply("reduce", [x.bits, initial.bits], dimensions=reduced, reducer=reducer))
    kept = tuple(1 if d in reduced else n for d, n in enumerate(x.shape))
    return result.reshape(kept) if keepdims else result


def _identity(reducer: str, x: Array, axes: Sequence[int]) -> Array:
    value = ops.by_name(reducer).identity
    assert value is not None
    if math.isinf(value):
        if math.prod(x.shape[a] for a in axes) == 0:
            raise InvalidArgument(f"{reducer} of no elements has no value")
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


def mean(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """Sum / n in float32 steps, rounded once at the end (R7)."""
    a = asarray(x)
    if a.dtype.kind != "float":
        raise UnsupportedType(f"mean of {a.dtype.name}: convert to a float type first")
    wide = a if a.dtype is dtypes.float64 else convert(a, dtypes.float32)
    total = sum(wide, axis, keepdims=keepdims)
    count = a.size // total.size if total.size else 0
    return convert(elementwise("divide", total, count), a.dtype)


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
    return convert(asarray(x), as_dtype(dtype))


globals().update(ELEMENTWISE)
__all__ = [
    *ELEMENTWISE,
    *("where", "array", "asarray", "full", "zeros", "ones", "arange", "matmul"),
    *("sum", "prod", "max", "min", "mean", "reshape", "permute_dims", "transpose"),
    *("broadcast_to", "concat", "astype"),
]
