"""Statistics: weighted averages, quantiles, histograms, covariances, in float32 steps (R7).

>>> median(asarray([3.0, 1.0, 2.0, 8.0], dtype="bfloat16"))
Array(2.5, dtype=bfloat16)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes, ops
from neuronsim.arrays.arguments import number, whole
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.axes import Axis, reduced_axes
from neuronsim.arrays.conversion import asarray, common_arrays, convert, float_array, write
from neuronsim.arrays.creation import linspace, zeros
from neuronsim.arrays.default_types import array_type, default_dtype
from neuronsim.arrays.elementwise import where
from neuronsim.arrays.evaluation import apply_elementwise
from neuronsim.arrays.indexing import take_along_axis
from neuronsim.arrays.manipulation import atleast_2d, broadcast_to, concat, flip, moveaxis
from neuronsim.arrays.order import searchsorted, sort
from neuronsim.arrays.products import matmul
from neuronsim.arrays.reductions import all as all_of
from neuronsim.arrays.reductions import diff, is_not_nan, max, mean, min, sum  # noqa: A004
from neuronsim.arrays.steps import in_float32, step_type
from neuronsim.dtypes import DTypeLike
from neuronsim.errors import REFUSALS, InvalidArgument, UnsupportedType, nearest, refusal, warn

__all__ = [
    *("average", "bincount", "corrcoef", "cov", "digitize", "histogram", "histogram2d"),
    *("histogram_bin_edges", "histogramdd"),
    *("median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"),
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
    InvalidArgument if that is 0.

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
        if not all_of(total):
            raise InvalidArgument("the weights of an average add up to 0")
        found = sum(a * weights, axis, keepdims=keepdims) / total
    return (found, total) if returned else found


# ---- quantiles --------------------------------------------------------------------------------------

# By the number of elements of each line: the places of two elements of the sorted line, and the weight
# of the second.
_Places = Callable[[_Integers], tuple[_Integers, _Integers, _Floats]]


def _by_places(
    x: Any,
    places: _Places,
    join: Callable[[Array, Array, _Floats], Array],
    shape: tuple[int, ...],
    axis: Axis,
    out: Any,
    keepdims: bool,
    ignore_nan: bool,
) -> Array:
    """What `join` makes of two elements of each sorted line, for each of the leading axes `shape`,
    which `places` puts first as one. NaN where a line has a NaN, or with `ignore_nan` nothing else.
    """
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
    numbers = np.count_nonzero(is_not_nan(rows), axis=-1)
    counts = numbers if ignore_nan else np.full_like(numbers, rows.shape[-1])
    undefined = (counts == 0) if ignore_nan else (numbers < counts)
    if ignore_nan and undefined.any():
        warn("a quantile of nothing but NaN is NaN")
    low, high, weight = places(np.maximum(counts, 1))
    first, second = (moveaxis(take_along_axis(rows, np.moveaxis(p, 0, -1)), -1, 0) for p in (low, high))
    found = join(first, second, weight)
    if undefined.any():
        found = where(undefined, math.nan, found)
    ones = tuple(1 if d in axes else n for d, n in enumerate(a.shape))
    found = found.reshape((*shape, *(ones if keepdims else (a.shape[d] for d in kept))))
    return found if out is None else write(out, found)


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


def _first_of(low: Array, high: Array, weight: _Floats) -> Array:
    return low


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

    join = _first_of if len(_TAKEN.get(method, "ab")) == 1 else _between
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


# ---- histograms -------------------------------------------------------------------------------------

# How many bins NumPy's names stand for, by the number of elements.
_BIN_COUNTS: dict[str, Callable[[int], float]] = {
    "sqrt": math.sqrt,
    "sturges": lambda n: math.log2(n) + 1,
    "rice": lambda n: 2 * n ** (1 / 3),
}


def histogram_bin_edges(
    a: Any,
    bins: Any = 10,
    range: tuple[float, float] | None = None,  # noqa: A002
    weights: Any = None,
) -> Array:
    """The edges of bins of one width from the least element to the largest, or over `range`, each edge
    rounded once from its exact value (C1), as `linspace` has them; 1/2 beyond both if they are equal.

    `bins` is their number, or "sqrt", "sturges" or "rice", or an ascending array of edges, which stays.
    """
    a = asarray(a)
    if a.dtype.kind == "complex":
        raise UnsupportedType("a histogram of complex numbers: they have no order")
    if isinstance(bins, str):
        if bins not in _BIN_COUNTS:
            raise InvalidArgument(
                f"bins by the rule {bins!r}{nearest(bins, _BIN_COUNTS)}: the rules "
                f"{', '.join(_BIN_COUNTS)} are known; or give their number"
            )
        bins = math.ceil(_BIN_COUNTS[bins](a.size)) if a.size else 1
    given = asarray(bins)
    if given.ndim == 1:
        if not _ascends(given):
            raise InvalidArgument("the edges of bins ascend")
        if given.size == 0:
            raise InvalidArgument("the bins have no edges")
        return given
    if given.ndim or given.dtype.kind not in ("signed", "unsigned") or int(given) < 1:
        raise InvalidArgument(f"bins is a number, 1 or more, or an array of edges, not {bins!r}")
    if range is not None:
        if not isinstance(range, Sequence) or len(range) != 2:
            raise InvalidArgument(f"the range is a pair of numbers, not {range!r}")
        low, high = (number("an end of the range", v) for v in range)
    else:
        if a.dtype.kind == "complex":
            raise UnsupportedType(f"a histogram of {a.bits.type}: complex numbers have no order")
        low, high = (min(a).tolist(), max(a).tolist()) if a.size else (0, 1)
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise InvalidArgument(f"the range of a histogram is finite and ascends, not ({low}, {high})")
    if low == high:
        low, high = low - 0.5, high + 0.5
    dtype = a.dtype if a.dtype.kind == "float" else default_dtype()
    edges: Array = linspace(float(low), float(high), int(given) + 1, dtype=dtype)
    return edges


def _ascends(x: Array) -> bool:
    keys = ops.order_keys(x.bits)
    return bool(np.all(keys[1:] >= keys[:-1]))


def histogram(
    a: Any,
    bins: Any = 10,
    range: tuple[float, float] | None = None,  # noqa: A002
    density: bool | None = None,
    weights: Any = None,
) -> tuple[Array, Array]:
    """How many elements are in each bin, int64, and the edges (`histogram_bin_edges`). A bin has its
    lower edge, the last one both; elements are compared with the edges in their common type.

    With `weights` the sums (R2) of the weights in each bin, in their order; with `density` divided in
    float32 steps by the width of the bin, then by the sum of all (R7), in the type of the edges.

    >>> histogram(asarray([1.0, 2.0, 2.5, 3.0]), bins=[1.0, 2.0, 3.0])[0]
    Array([1, 3], dtype=int64)
    """
    a, edges = asarray(a), histogram_bin_edges(a, bins, range)
    place, inside = _bins(a.reshape(-1), edges)
    w = None if weights is None else asarray(weights)
    if w is not None:
        if w.shape != a.shape:
            raise InvalidArgument(f"weights of the shape {w.shape} for {a.shape}")
        w = w.reshape(-1)
    counts = _counted(place, inside, w, edges.size - 1)
    return (_density(edges, counts) if density else counts), edges


def _bins(x: Array, edges: Array) -> tuple[_Integers, npt.NDArray[np.bool_]]:
    """The bin of each element, and whether there is one."""
    behind = searchsorted(edges, x, side="right").bits.data
    inside = (behind > 0) & (searchsorted(edges, x).bits.data < edges.size) & (edges.size > 1)
    return np.minimum(behind, edges.size - 1) - 1, inside


def _counted(
    place: _Integers, inside: npt.NDArray[np.bool_], weights: Array | None, count: int
) -> Array:
    if weights is None:
        return asarray(np.bincount(place[inside], minlength=count).astype(np.int64))
    return _sums(place[inside], weights[inside], count)


def histogramdd(
    sample: Any,
    bins: Any = 10,
    range: Sequence[Any] | None = None,  # noqa: A002
    density: bool | None = None,
    weights: Any = None,
) -> tuple[Array, list[Array]]:
    """How many points are in each bin of a grid, int64, and the edges along each axis, as `histogram`
    has them. The points are the rows of a matrix, or a sequence of their coordinates; `bins` is a
    number or a sequence of what `histogram` takes for bins, `range` a sequence of ranges.

    With `weights` the sums (R2) of the weights; with `density` divided in float32 steps by the widths
    of the bin, axis by axis, then by the sum of all (R7), in the edges' common type.

    >>> histogramdd(([1.0, 2.0, 2.0], [0.0, 5.0, 5.0]), bins=2)[0].tolist()
    [[1, 0], [0, 2]]
    """
    if hasattr(sample, "shape"):
        points = atleast_2d(sample)
        lines = [points[:, d] for d in np.arange(points.shape[-1])]
    else:
        lines = [asarray(v) for v in sample] if np.iterable(sample) else []
    if not lines or any(v.ndim != 1 or v.size != lines[0].size for v in lines):
        raise InvalidArgument("histogramdd takes a matrix of points, or as many numbers for each axis")
    each = [*bins] if np.iterable(bins) else [bins] * len(lines)
    if not (range is None or np.iterable(range)):
        raise UnsupportedType(f"histogramdd: a sequence of ranges, not {range!r}")
    ranges = [None] * len(lines) if range is None else [*range]
    if len(each) != len(lines) or len(ranges) != len(lines):
        raise InvalidArgument(f"histogramdd: bins and range are for {len(lines)} axes")
    edges = [histogram_bin_edges(*v) for v in zip(lines, each, ranges, strict=True)]
    places, insides = zip(*map(_bins, lines, edges), strict=True)
    dims = tuple(e.size - 1 for e in edges)
    inside = np.logical_and.reduce(insides)
    if 0 in dims:
        raise InvalidArgument(f"histogramdd: bins along each axis, not {dims}")
    place = np.ravel_multi_index([np.where(inside, p, 0) for p in places], dims)
    w = None if weights is None else asarray(weights)
    if w is not None and w.shape != lines[0].shape:
        raise InvalidArgument(f"weights of the shape {w.shape} for {lines[0].size} points")
    counts = _counted(place, inside, w, math.prod(dims)).reshape(dims)
    return (_grid_density(counts, *edges) if density else counts), edges


def _grid_density(counts: Array, *edges: Array) -> Array:
    common = common_arrays(*edges)[0].dtype
    dtype = common if common.kind == "float" else default_dtype()
    found = wide = convert(counts, step_type(dtype))
    for d, e in enumerate(edges):
        widths = diff(convert(e, wide.dtype))
        found = found / widths.reshape((-1, *[1] * (found.ndim - 1 - d)))
    return convert(found / sum(wide), dtype)


def histogram2d(
    x: Any,
    y: Any,
    bins: Any = 10,
    range: Sequence[Any] | None = None,  # noqa: A002
    density: bool | None = None,
    weights: Any = None,
) -> tuple[Array, Array, Array]:
    """`histogramdd` of points in a plane, and the edges along x and y; one array of `bins` is for both.

    >>> histogram2d([1.0, 2.0], [0.0, 5.0], bins=[0.0, 2.0, 6.0])[0].tolist()
    [[1, 0], [0, 1]]
    """
    is_one = not isinstance(bins, int | np.integer) and len(bins) not in (1, 2)
    each = [bins, bins] if is_one else bins
    found, (along_x, along_y) = histogramdd((x, y), each, range, density, weights)
    return found, along_x, along_y


def _sums(place: _Integers, weights: Array, count: int) -> Array:
    """The sum of the weights at each place (R2)."""
    order = np.argsort(place, kind="stable")
    sizes = np.bincount(place, minlength=count)
    starts = np.cumsum(sizes) - sizes
    totals = zeros(sizes.shape, dtype=sum(weights).dtype)
    for size in np.unique(sizes[sizes > 0]):  # one reduction for all places with so many weights
        chosen = np.flatnonzero(sizes == size)
        rows = order[starts[chosen][:, np.newaxis] + np.arange(size)]
        totals.bits.data[chosen] = sum(weights[rows], -1).bits.data
    return totals


@in_float32("edges")
def _density(edges: Array, counts: Array) -> Any:
    wide = convert(counts, edges.dtype)
    return wide / diff(edges) / sum(wide)


def bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Array:
    """How often each of the integers 0, 1, ... occurs among the elements, at least `minlength` of them,
    int64; with `weights` the sums (R2) of the weights of those elements, in their order, rounded once.

    >>> bincount([1, 3, 1], weights=[0.5, 2.0, 1.0])
    Array([0. , 1.5, 0. , 2. ], dtype=float32)
    """
    a = asarray(x)
    if a.size == 0:
        a = a.astype(dtypes.int64)
    if a.ndim != 1 or a.dtype.kind not in ("signed", "unsigned", "bool"):
        raise InvalidArgument(f"bincount of integers along one axis, not of {a.bits.type}")
    place = a.bits.data.astype(np.int64)
    if place.size and place.min() < 0:
        raise InvalidArgument(f"bincount of integers from 0, not of {place.min()}")
    try:
        sizes = np.bincount(place, minlength=whole("minlength", minlength))
    except REFUSALS as error:
        raise refusal(f"bincount of {a.bits.type}", error) from error
    if weights is None:
        return asarray(sizes.astype(np.int64))
    w = float_array(weights)
    if w.shape != a.shape:
        raise InvalidArgument(f"weights of the shape {w.shape} for {a.shape}")
    return _sums(place, w, sizes.size)


def digitize(x: Any, bins: Any, right: bool = False) -> Array:
    """The index of the bin of each element: i where bins[i-1] <= x < bins[i], or with `right`
    bins[i-1] < x <= bins[i]; of descending bins accordingly. Compared in the common type.

    >>> digitize([0.2, 6.4, 3.0], [0.0, 1.0, 2.5, 4.0]).tolist()
    [1, 4, 3]
    """
    a, edges = common_arrays(x, asarray(bins))
    if a.dtype.kind == "complex":
        raise UnsupportedType(f"digitize of {a.bits.type}: complex numbers have no order")
    if edges.ndim != 1:
        raise InvalidArgument(f"bins have one axis, not {edges.bits.type}")
    if _ascends(edges):
        return searchsorted(edges, a, side="left" if right else "right")
    upwards = flip(edges)
    if not _ascends(upwards):
        raise InvalidArgument("bins ascend or descend")
    found = searchsorted(upwards, a, side="left" if right else "right")
    return asarray(edges.size - found.bits.data)


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
    given = _converted(dtype, m, y)
    found: Array = _covariance(*given, rowvar, bias, ddof, fweights, aweights)
    return found


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
) -> Any:
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
    if not (divisor.real if divisor.dtype.kind == "complex" else divisor) > 0:
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
        if w.shape != (n,) or not all_of(w >= 0 if w.dtype.kind != "complex" else w):
            raise InvalidArgument(f"weights of observations: {n}, none of them negative")
    return given[0] * given[1] if len(given) == 2 else given[0] if given else None


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: DTypeLike | None = None) -> Array:
    """The correlations of the variables: with C from `cov`, C[i, j] / s[i] / s[j] in float32 steps,
    where s is the square root of the diagonal, limited to [-1, 1] and rounded once (R7).

    >>> corrcoef([1.0, 2.0, 4.0], [0.0, -1.0, -3.0]).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    found: Array = _correlations(*_converted(dtype, x, y), rowvar)
    return found


@in_float32("x", "y")
def _correlations(x: Any, y: Any, rowvar: bool) -> Any:
    c = cov(x, y, rowvar)
    if c.ndim == 0:
        return c / c
    diagonal = np.arange(c.shape[0])
    s = apply_elementwise("sqrt", c[diagonal, diagonal])
    found = c / s[:, np.newaxis] / s
    if found.dtype.kind == "complex":
        return found
    return apply_elementwise("minimum", apply_elementwise("maximum", found, -1), 1)
