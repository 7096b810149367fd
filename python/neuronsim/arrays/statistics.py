"""Statistics: weighted averages, quantiles, covariances, in float32 steps (R7).

>>> median(asarray([3.0, 1.0, 2.0, 8.0], dtype="bfloat16"))
Array(2.5, dtype=bfloat16)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes, ops
from neuronsim.arrays.arguments import number
from neuronsim.arrays.array_object import Array, traced_part
from neuronsim.arrays.axes import Axis, reduced_axes
from neuronsim.arrays.conversion import asarray, convert, float_array, write
from neuronsim.arrays.default_types import array_type
from neuronsim.arrays.elementwise import where
from neuronsim.arrays.evaluation import apply_elementwise
from neuronsim.arrays.indexing import take, take_along_axis
from neuronsim.arrays.manipulation import atleast_2d, broadcast_to, concat, moveaxis
from neuronsim.arrays.order import sort
from neuronsim.arrays.products import matmul
from neuronsim.arrays.reductions import all as all_of
from neuronsim.arrays.reductions import any as any_of
from neuronsim.arrays.reductions import is_not_nan, mean, sum  # noqa: A004
from neuronsim.arrays.steps import in_float32
from neuronsim.dtypes import DType, DTypeLike
from neuronsim.errors import InvalidArgument, UnsupportedType, nearest, warn

__all__ = [
    *("average", "corrcoef", "cov", "median", "nanmedian", "nanpercentile", "nanquantile"),
    *("percentile", "quantile"),
]

_Floats = npt.NDArray[np.float64]
_Integers = npt.NDArray[np.int64]


@in_float32("a", "weights")
def average(
    a: Any,
    axis: Axis = None,
    weights: Any = None,
    returned: bool = False,
    *,
    keepdims: bool = False,
) -> Any:
    """The sum of a w over the sum of w (R2, R7), or the mean without weights; `weights` has the shape
    of `a`, or one axis as long as `axis`. With `returned` also the sum of the weights. Raises
    InvalidArgument if that is 0; traced it is not looked at.

    >>> average([1.0, 4.0], weights=[3.0, 1.0])
    Array(1.75, dtype=float32)
    """
    axes = reduced_axes(a.shape, axis)
    if weights is None:
        found = mean(a, axis, keepdims=keepdims)
        counted = math.prod(a.shape[d] for d in axes)
        total = broadcast_to(asarray(float(counted), a.dtype), found.shape)
    else:
        if weights.shape != a.shape:
            if len(axes) != 1 or weights.shape != (a.shape[axes[0]],):
                raise InvalidArgument(
                    f"weights of the shape {weights.shape} for {a.shape} and the axis {axis}: they "
                    "have the same shape, or one axis, which is named"
                )
            weights = weights.reshape(tuple(n if d in axes else 1 for d, n in enumerate(a.shape)))
            weights = broadcast_to(weights, a.shape)
        total = sum(weights, axis, keepdims=keepdims)
        if traced_part(total._data) is None and not all_of(total):
            raise InvalidArgument("the weights of an average add up to 0")
        found = sum(a * weights, axis, keepdims=keepdims) / total
    return (found, total) if returned else found


# ---- quantiles --------------------------------------------------------------------------------------

# By the number of elements of each line: the places of two elements of the sorted line, and the weight
# of the second.
_Places = Callable[[_Integers], tuple[_Integers, _Integers, _Floats]]
_Join = Callable[[Array, Array, _Floats], Array]


def _by_places(x: Any, places: _Places, join: _Join, shape: tuple[int, ...], *how: Any) -> Array:
    """What `join` makes of two elements of each sorted line, for each of the leading axes `shape`,
    which `places` puts first as one. NaN where a line has a NaN, or with `ignore_nan` nothing else.
    """
    axis, out, keepdims, ignore_nan = how
    a = asarray(x)
    if a.dtype.kind == "complex":
        raise UnsupportedType("quantiles of complex numbers: they have no order")
    axes = reduced_axes(a.shape, axis)
    kept = [d for d in range(a.ndim) if d not in axes]
    n = math.prod(a.shape[d] for d in axes)
    lines = Array(ops.Bits(a.bits.data.transpose([*kept, *axes]), a.dtype))
    rows = sort(lines.reshape((*(a.shape[d] for d in kept), n)))
    if n == 0:
        rows = broadcast_to(asarray(math.nan, float_array(a).dtype), (*rows.shape[:-1], 1))
    has_number = Array(ops.Bits(is_not_nan(rows), dtypes.boolean))
    undefined = ~(any_of if ignore_nan else all_of)(has_number, axis=-1)
    is_traced = traced_part(undefined._data) is not None
    some_undefined = is_traced or undefined.bits.data.any()
    if not ignore_nan:
        low, high, weight = places(np.full(undefined.shape, rows.shape[-1]))
    elif is_traced:
        low, high, weight = _looked_up(places, has_number, float_array(a).dtype)
    else:
        if some_undefined:
            warn("a quantile of nothing but NaN is NaN")
        low, high, weight = places(np.maximum(np.count_nonzero(has_number.bits.data, axis=-1), 1))
    first, second = (moveaxis(take_along_axis(rows, np.moveaxis(p, 0, -1)), -1, 0) for p in (low, high))
    found = join(first, second, weight)
    if some_undefined:
        found = where(undefined, math.nan, found)
    ones = tuple(1 if d in axes else n for d, n in enumerate(a.shape))
    found = found.reshape((*shape, *(ones if keepdims else (a.shape[d] for d in kept))))
    return found if out is None else write(out, found)


def _looked_up(places: _Places, has_number: Array, dtype: DType) -> Any:
    """The places by how many elements of a line are numbers, which the running program counts."""
    counts = apply_elementwise("maximum", sum(has_number, axis=-1), 1) - 1
    tables = places(np.arange(1, has_number.shape[-1] + 1))
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    low, high, weight = (asarray(t) for t in tables)
    return tuple(take(t, counts, axis=1) for t in (low, high, convert(weight, wide)))


def median(
    a: Any, axis: Axis = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False
) -> Array:
    """The middle element of the sorted ones along `axis`, or (a + b) / 2 of the middle two, in float32
    steps (R7); NaN if there is one, or no element. `overwrite_input` changes nothing.
    """
    return _by_places(a, _middle, _half_way, (), axis, out, keepdims, False)


def nanmedian(
    a: Any, axis: Axis = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False
) -> Array:
    """`median` of what is not NaN.

    >>> nanmedian(asarray([1.0, float("nan"), 2.0]))
    Array(1.5, dtype=float32)
    """
    return _by_places(a, _middle, _half_way, (), axis, out, keepdims, True)


def _middle(counts: _Integers) -> tuple[_Integers, _Integers, _Floats]:
    low, high = ((counts - 1) // 2)[np.newaxis], (counts // 2)[np.newaxis]
    return low, high, (high - low) / 2


@in_float32("low", "high")
def _half_way(low: Array, high: Array, weight: _Floats) -> Any:
    return where(weight == 0, low, (low + high) / 2)


@in_float32("low", "high")
def _between(low: Array, high: Array, weight: _Floats) -> Any:
    step, w = high - low, asarray(weight, low.dtype)
    near = where(w < 0.5, low + step * w, high - step * (1 - w))
    return where((w == 0) | (low == high), low, near)


# Hyndman and Fan, Sample Quantiles in Statistical Packages (1996): the place of the quantile q among n
# elements, counted from 0, is q (n + 1 - alpha - beta) + alpha - 1.
_ALPHA_BETA = {
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "linear": (1.0, 1.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}
# The element that a method takes, or the two whose mean it is.
_TAKEN: dict[str, tuple[Callable[[_Floats, _Integers], _Floats], ...]] = {
    "lower": (lambda q, n: np.floor(q * (n - 1)),),
    "higher": (lambda q, n: np.ceil(q * (n - 1)),),
    "nearest": (lambda q, n: np.rint(q * (n - 1)),),
    "inverted_cdf": (lambda q, n: np.ceil(q * n) - 1,),
    "midpoint": (lambda q, n: np.floor(q * (n - 1)), lambda q, n: np.ceil(q * (n - 1))),
    "averaged_inverted_cdf": (lambda q, n: np.ceil(q * n) - 1, lambda q, n: np.floor(q * n)),
}


def _quantile(
    x: Any, q: Any, scale: float, axis: Axis, out: Any, method: str, keepdims: bool, ignore_nan: bool
) -> Array:
    known = [*_ALPHA_BETA, *_TAKEN]
    if method not in known:
        raise InvalidArgument(
            f"the method of a quantile is one of {', '.join(known)}, not {method!r}"
            f"{nearest(method, known)}"
        )
    wanted = convert(asarray(q), dtypes.float64) if isinstance(q, Array) else asarray(q, dtypes.float64)
    quantiles = wanted.bits.data / scale
    if not np.all((quantiles >= 0) & (quantiles <= 1)):
        raise InvalidArgument(f"quantiles are in [0, 1] and percentiles in [0, 100], not {q!r}")

    def places(counts: _Integers) -> tuple[_Integers, _Integers, _Floats]:
        each = quantiles.reshape((-1, *(1 for _ in counts.shape)))
        if method in _ALPHA_BETA:
            alpha, beta = _ALPHA_BETA[method]
            place = np.clip(each * (counts + 1 - alpha - beta) + alpha - 1, 0, counts - 1)
            low = np.floor(place)
            high, weight = low + 1, place - low
        else:
            ends = [np.clip(of(each, counts), 0, counts - 1) for of in _TAKEN[method]]
            low, high = ends[0], ends[-1]
            weight = np.where(low == high, 0.0, 0.5)
        top = np.minimum(high, counts - 1)
        return low.astype(np.int64), top.astype(np.int64), weight

    join = (lambda low, high, weight: low) if len(_TAKEN.get(method, "ab")) == 1 else _between
    return _by_places(x, places, join, quantiles.shape, axis, out, keepdims, ignore_nan)


def quantile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Array:
    """The quantiles `q`, from 0 to 1, along `axis`; their axes come first. NaN if there is one.

    `method` says by NumPy's names which place the quantile has among the n sorted elements, in float64:
    "linear" q (n - 1). Between the elements a and b, at t, it is a + (b - a) t if t < 1/2, else
    b - (b - a) (1 - t), in float32 steps (R7); "lower", "higher", "nearest" and "inverted_cdf" take an
    element and keep the type. `overwrite_input` changes nothing.

    >>> quantile([1.0, 2.0, 5.0], [0.5, 0.75])
    Array([2. , 3.5], dtype=float32)
    """
    return _quantile(a, q, 1, axis, out, method, keepdims, False)


def percentile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Array:
    """`quantile` at q / 100."""
    return _quantile(a, q, 100, axis, out, method, keepdims, False)


def nanquantile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Array:
    """`quantile` of what is not NaN."""
    return _quantile(a, q, 1, axis, out, method, keepdims, True)


def nanpercentile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Array:
    """`percentile` of what is not NaN."""
    return _quantile(a, q, 100, axis, out, method, keepdims, True)


# ---- covariances ------------------------------------------------------------------------------------


def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: float | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: DTypeLike | None = None,
) -> Array:
    """The covariances of the variables that are the rows of `m`, and of `y` (columns, if `rowvar` is
    False): C = (X W) X^H / d in float32 steps, the product by M2, rounded once (R7).

    X are the rows less their averages sum(x w) / sum(w). The weights w of the observations are
    `fweights` (how often each counts) times `aweights`, or 1; d is sum(w) - ddof sum(w aweights) /
    sum(w), or n - ddof without weights, and 0 if negative. `ddof` is 0 with `bias`, else 1.

    >>> cov([[1.0, 2.0, 3.0], [1.0, 0.0, -1.0]])
    Array([[ 1., -1.],
           [-1.,  1.]], dtype=float32)
    """
    x, other = _converted(dtype, m, y)
    return _covariance(x, other, rowvar, bias, ddof, fweights, aweights)


def _converted(dtype: DTypeLike | None, *operands: Any) -> list[Any]:
    if dtype is None:
        return list(operands)
    target = array_type(dtype)
    return [None if x is None else convert(asarray(x), target) for x in operands]


@in_float32("m", "y", "aweights")
def _covariance(
    m: Any,
    y: Any,
    rowvar: bool,
    bias: bool,
    ddof: float | None,
    fweights: Any,
    aweights: Any,
) -> Array:
    x = _variables(m, rowvar)
    if y is not None:
        other = _variables(y, rowvar)
        if other.shape[1] != x.shape[1]:
            raise InvalidArgument(f"cov of {x.shape[1]} and {other.shape[1]} observations")
        x = concat([x, other])
    n = x.shape[1]
    weights = _observation_weights(n, fweights, aweights, x)
    less = number("ddof", (0 if bias else 1) if ddof is None else ddof)
    if weights is None:
        centred = x - mean(x, 1, keepdims=True)
        weighted, divisor = centred, asarray(float(n) - less, centred.dtype)
    else:
        total = sum(weights)
        centred = x - sum(x * weights, 1, keepdims=True) / total
        weighted = centred * weights
        taken = total if aweights is None else sum(weights * aweights)
        divisor = total - less * taken / total
    if traced_part(divisor._data) is not None:
        divisor = apply_elementwise("maximum", divisor, 0)
    elif not (divisor.real if divisor.dtype.kind == "complex" else divisor) > 0:
        warn("cov of no degree of freedom (n <= ddof)")
        divisor = asarray(0.0, divisor.dtype)
    conjugate = centred.bits.data.conj() if centred.dtype.kind == "complex" else centred.bits.data
    product = matmul(weighted, Array(ops.Bits(conjugate.T, centred.dtype)))
    found = product / divisor
    return found.reshape(()) if found.shape == (1, 1) else found


def _variables(x: Array, rowvar: bool) -> Array:
    if x.ndim > 2:
        raise InvalidArgument(f"cov of variables and observations, two axes, not {x.ndim}")
    rows: Array = atleast_2d(x)
    return rows if rowvar or x.ndim < 2 else rows.T


def _observation_weights(n: int, fweights: Any, aweights: Array | None, like: Array) -> Array | None:
    given = []
    if fweights is not None:
        counts = asarray(fweights)
        if counts.dtype.kind not in ("signed", "unsigned"):
            raise UnsupportedType(f"fweights are integers, not {counts.dtype.name}")
        given.append(convert(counts, like.dtype))
    if aweights is not None:
        given.append(aweights)
    for w in given:
        is_known = traced_part(w._data) is None
        if w.shape != (n,) or (is_known and not all_of(w >= 0 if w.dtype.kind != "complex" else w)):
            raise InvalidArgument(f"weights of observations: {n}, none of them negative")
    return given[0] * given[1] if len(given) == 2 else given[0] if given else None


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: DTypeLike | None = None) -> Array:
    """The correlations of the variables: with C from `cov`, C[i, j] / s[i] / s[j] in float32 steps,
    where s is the square root of the diagonal, limited to [-1, 1] and rounded once (R7).

    >>> corrcoef([1.0, 2.0, 4.0], [0.0, -1.0, -3.0]).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    first, second = _converted(dtype, x, y)
    return _correlations(first, second, rowvar)


@in_float32("x", "y")
def _correlations(x: Any, y: Any, rowvar: bool) -> Array:
    c = cov(x, y, rowvar)
    if c.ndim == 0:
        return c / c
    diagonal = np.arange(c.shape[0])
    s = apply_elementwise("sqrt", c[diagonal, diagonal])
    found = c / s[:, np.newaxis] / s
    if found.dtype.kind == "complex":
        return found
    return apply_elementwise("minimum", apply_elementwise("maximum", found, -1), 1)
