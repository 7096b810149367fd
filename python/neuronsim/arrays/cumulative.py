"""Cumulative functions (R2, R4) and differences.

>>> cumsum(asarray([1.0, 2.0, 3.0], dtype="float16"))
Array([1., 3., 6.], dtype=float16)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neuronsim import ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.axes import one_axis
from neuronsim.arrays.conversion import asarray, common_arrays, write
from neuronsim.arrays.evaluation import apply_elementwise, identity
from neuronsim.arrays.manipulation import broadcast_to, concat
from neuronsim.arrays.reductions import is_not_nan, or_else, summable
from neuronsim.arrays.steps import in_float32
from neuronsim.dtypes import DTypeLike
from neuronsim.errors import InvalidArgument

__all__ = [
    *("cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "diff", "nancumprod", "nancumsum"),
]


def _cumulative(reducer: str, x: Array, axis: int | None, include_initial: bool, out: Any) -> Array:
    if axis is None:
        if x.ndim > 1:
            raise InvalidArgument(f"an array of {x.ndim} axes needs axis=")
        axis = 0
    if not x.ndim:
        x = x.reshape((1,))
    at = one_axis(x.shape, axis)
    # The last element equals the reduction, which starts from the identity (R2, R4).
    initial = identity(reducer, x.dtype)
    attributes = {"axis": at, "reducer": reducer}
    found = Array(ops.apply("cumulative", [x.bits, initial.bits], **attributes))
    if include_initial:
        first = broadcast_to(initial, (*x.shape[:at], 1, *x.shape[at + 1 :]))
        found = concat([first, found], axis=at)
    return found if out is None else write(out, found)


def cumulative_sum(
    x: Any,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    include_initial: bool = False,
) -> Array:
    """Element j is the sum of the elements 0 to j along `axis` by rule R2; with `include_initial` a 0
    stands before them. Types are those of `sum`; an array without axes gets one, as in NumPy.

    >>> cumulative_sum(asarray([1.0, 2.0, 3.0]), include_initial=True)
    Array([0., 1., 3., 6.], dtype=float32)
    """
    return _cumulative("add", summable(x, dtype), axis, include_initial, out)


def cumulative_prod(
    x: Any,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    include_initial: bool = False,
) -> Array:
    """Element j is the product of the elements 0 to j along `axis` by rule R2; with `include_initial` a
    1 stands before them. Types are those of `prod`.
    """
    return _cumulative("multiply", summable(x, dtype), axis, include_initial, out)


def cumsum(a: Any, axis: int | None = None, dtype: DTypeLike | None = None, out: Any = None) -> Array:
    """`cumulative_sum` along `axis`, or of all elements in row-major order."""
    a = summable(a, dtype)
    return _cumulative("add", a.reshape(-1) if axis is None else a, axis, False, out)


def cumprod(a: Any, axis: int | None = None, dtype: DTypeLike | None = None, out: Any = None) -> Array:
    """`cumulative_prod` along `axis`, or of all elements in row-major order."""
    a = summable(a, dtype)
    return _cumulative("multiply", a.reshape(-1) if axis is None else a, axis, False, out)


def diff(x: Any, /, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Array:
    """The differences x[i + 1] - x[i] along `axis`, taken `n` times, in float32 steps, rounded once
    (R7); of integers in their own type, of bool `!=`. `prepend` and `append` extend `x` first, but if
    `n` is 0.

    >>> diff(asarray([1.0, 4.0, 9.0], "bfloat16"), prepend=0.0)
    Array([1., 3., 5.], dtype=bfloat16)
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
        raise InvalidArgument(f"n is how often differences are taken, 0 or more, not {n!r}")
    if n == 0:
        return asarray(x)
    given = [v for v in (prepend, x, append) if v is not None]
    parts = common_arrays(*given) if len(given) > 1 else [asarray(x)]
    a = parts[0 if prepend is None else 1]
    if a.ndim == 0:
        raise InvalidArgument("diff of a scalar: it needs an axis")
    at = one_axis(a.shape, axis)
    one = (*a.shape[:at], 1, *a.shape[at + 1 :])
    parts = [p if p.ndim else broadcast_to(p, one) for p in parts]
    a = concat(parts, axis=at) if len(parts) > 1 else a
    if a.dtype.kind in ("float", "complex"):
        return in_float32("x")(_differences)(a, n, at, "subtract")
    return _differences(a, n, at, "not_equal" if a.dtype.kind == "bool" else "subtract")


def _differences(x: Array, n: int, axis: int, operation: str) -> Array:
    before = (slice(None),) * axis
    length = x.shape[axis]
    for _ in range(n if n < length else length):  # then nothing is left
        x = apply_elementwise(operation, x[(*before, slice(1, None))], x[(*before, slice(-1))])
    return x


def nancumsum(
    a: Any, axis: int | None = None, dtype: DTypeLike | None = None, out: Any = None
) -> Array:
    """`cumsum` with NaN counted as 0."""
    a = asarray(a)
    return cumsum(or_else(a, is_not_nan(a), identity("add", a.dtype)), axis, dtype, out)


def nancumprod(
    a: Any, axis: int | None = None, dtype: DTypeLike | None = None, out: Any = None
) -> Array:
    """`cumprod` with NaN counted as 1."""
    a = asarray(a)
    return cumprod(or_else(a, is_not_nan(a), identity("multiply", a.dtype)), axis, dtype, out)
