"""Histograms: how many elements, or which sums of their weights (R2), are in each bin.

>>> digitize([0.2, 6.4, 3.0], [0.0, 1.0, 2.5, 4.0]).tolist()
[1, 4, 3]
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes, ops
from neuronsim.arrays.arguments import number, whole
from neuronsim.arrays.array_object import Array, exact_values, traced_part
from neuronsim.arrays.conversion import asarray, common_arrays, convert, float_array
from neuronsim.arrays.creation import zeros
from neuronsim.arrays.cumulative import diff
from neuronsim.arrays.default_types import default_dtype
from neuronsim.arrays.elementwise import ELEMENTWISE, where
from neuronsim.arrays.manipulation import atleast_2d, flip
from neuronsim.arrays.order import searchsorted
from neuronsim.arrays.progressions import linspace
from neuronsim.arrays.reductions import max, min, sum  # noqa: A004
from neuronsim.arrays.steps import in_float32, step_type
from neuronsim.errors import REFUSALS, InvalidArgument, UnknownValue, UnsupportedType, nearest, refusal

__all__ = [
    *("bincount", "digitize", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd"),
]

_Integers = npt.NDArray[np.int64]


_RULES = ("auto", "doane", "fd", "rice", "scott", "sqrt", "stone", "sturges")


def _bin_count(a: Array, rule: str, range: tuple[float, float] | None) -> int:  # noqa: A002
    """How many bins NumPy's rule of that name wants, by the exact values in float64 (H1)."""
    if rule not in _RULES:
        raise InvalidArgument(
            f"bins by the rule {rule!r}{nearest(rule, _RULES)}: the rules {', '.join(_RULES)} are "
            "known; or give their number"
        )
    try:
        with np.errstate(all="ignore"):
            return np.histogram_bin_edges(exact_values(a), rule, range).size - 1
    except REFUSALS as error:
        raise refusal(f"the bins of {a.bits.type} by the rule {rule!r}", error) from error


def histogram_bin_edges(
    a: Any,
    bins: Any = 10,
    range: tuple[float, float] | None = None,  # noqa: A002
    weights: Any = None,
) -> Array:
    """The edges of bins of one width from the least element to the largest, or over `range`, each edge
    rounded once from its exact value (C1), as `linspace` has them; 1/2 beyond both if they are equal.

    `bins` is their number, or NumPy's name of a rule for it ("auto", "doane", "fd", "rice", "scott",
    "sqrt", "stone", "sturges"), or an ascending array of edges, which stays.
    """
    a = asarray(a)
    operands = [a] if isinstance(bins, str) else [a, asarray(bins)]
    if any(x.dtype.kind == "complex" for x in operands):
        raise UnsupportedType("a histogram of complex numbers: they have no order")
    given = asarray(_bin_count(a, bins, range) if isinstance(bins, str) else bins)
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
        if a.size and (data := traced_part(a._data)) is not None:
            raise UnknownValue(
                "a histogram whose range is not given (range=, or edges as bins)", data.value
            )
        low, high = (min(a).tolist(), max(a).tolist()) if a.size else (0, 1)
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise InvalidArgument(f"the range of a histogram is finite and ascends, not ({low}, {high})")
    if low == high:
        low, high = low - 0.5, high + 0.5
    dtype = a.dtype if a.dtype.kind == "float" else default_dtype()
    found: Array = linspace(float(low), float(high), int(given) + 1, dtype=dtype)
    return found


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
    common, elements = common_arrays(edges, x)
    if traced_part((common._data, elements._data)) is not None:
        behind = searchsorted(common, elements, side="right").bits.data
        is_last = searchsorted(common[-1:], elements).bits.data == 0
        return np.minimum(behind, edges.size - 1) - 1, (behind > 0) & is_last & (edges.size > 1)
    bounds, keys = ops.order_keys(common.bits), ops.order_keys(elements.bits)
    if edges.size > 4 and x.size > 256:
        behind = _edges_behind(bounds, keys, common, elements)
    else:
        behind = np.searchsorted(bounds, keys, "right")
    inside = (behind > 0) & (keys <= bounds[-1]) & (edges.size > 1)
    return np.minimum(behind, edges.size - 1) - 1, inside


def _edges_behind(
    bounds: npt.NDArray[Any], keys: npt.NDArray[Any], edges: Array, x: Array
) -> _Integers:
    """How many edges are not above each element. Where bins have one width, a quotient is nearly the
    bin; it is taken where the order confirms it, and looked for otherwise.
    """
    last = edges.size - 1
    with np.errstate(all="ignore"):
        low, high = convert(edges[[0, -1]], dtypes.float64).bits.data
        quotient = (convert(x, dtypes.float64).bits.data - low) * (last / (high - low))
        guess = np.fmin(np.fmax(quotient, 0), last - 1).astype(np.int64)  # of NaN 0
    behind: _Integers = guess + 1
    wrong = (keys < bounds[guess]) | (keys >= bounds[behind])
    behind[wrong] = np.searchsorted(bounds, keys[wrong], "right")
    return behind


def _counted(
    place: _Integers, inside: npt.NDArray[np.bool_], weights: Array | None, count: int
) -> Array:
    if traced_part((place, inside)) is not None:
        outside = Array(ops.Bits(np.where(inside, place, count), dtypes.int64))
        return _scattered(outside, weights, count)
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
    inside = functools.reduce(operator.and_, insides)
    if 0 in dims:
        raise InvalidArgument(f"histogramdd: bins along each axis, not {dims}")
    place: Any = 0
    for p, n in zip(places, dims, strict=True):
        place = place * n + np.where(inside, p, 0)
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
    # Of 16 bits NumPy sorts in linear time: the lower ones first.
    halves = [(place >> bits).astype(np.uint16) for bits in (0, 16) if count > 1 << bits or not bits]
    order = np.lexsort(halves) if count <= 1 << 32 else np.argsort(place, kind="stable")
    sizes = np.bincount(place, minlength=count)
    starts = np.cumsum(sizes) - sizes
    totals = zeros(sizes.shape, dtype=sum(weights).dtype)
    for size in np.flatnonzero(np.bincount(sizes)[1:]) + 1:  # one reduction for all with so many
        chosen = np.flatnonzero(sizes == size)
        rows = order[starts[chosen][:, np.newaxis] + np.arange(size)]
        totals[chosen] = sum(weights[rows], -1)
    return totals


@in_float32("edges")
def _density(edges: Array, counts: Array) -> Any:
    wide = convert(counts, edges.dtype)
    return wide / diff(edges) / sum(wide)


def bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Array:
    """How often each of the integers 0, 1, ... occurs among the elements, at least `minlength` of them,
    int64; with `weights` the sums (R2) of the weights of those elements, in their order, rounded once.
    Of a traced array `minlength`, which is needed, is all of them: integers beyond are left out.

    >>> bincount([1, 3, 1], weights=[0.5, 2.0, 1.0])
    Array([0. , 1.5, 0. , 2. ], dtype=float32)
    """
    a = asarray(x)
    if a.size == 0:
        a = a.astype(dtypes.int64)
    if a.ndim != 1 or a.dtype.kind not in ("signed", "unsigned", "bool"):
        raise InvalidArgument(f"bincount of integers along one axis, not of {a.bits.type}")
    if (data := traced_part(a._data)) is not None:
        count = whole("minlength", minlength)
        if not count and a.size:
            raise UnknownValue("the length of bincount without minlength", data.value)
        return _scattered(a.astype(dtypes.int64), weights, count)
    place = a.bits.data.astype(np.int64, copy=False)
    if place.size and place.min() < 0:
        raise InvalidArgument(f"bincount of integers from 0, not of {place.min()}")
    try:
        sizes = np.bincount(place, minlength=whole("minlength", minlength))
    except REFUSALS as error:
        raise refusal(f"bincount of {a.bits.type}", error) from error
    if weights is None:
        return asarray(sizes)
    w = float_array(weights)
    if w.shape != a.shape:
        raise InvalidArgument(f"weights of the shape {w.shape} for {a.shape}")
    return _sums(place, w, sizes.size)


def _scattered(places: Array, weights: Any, count: int) -> Array:
    """How often each of the integers below `count` is among traced ones."""
    if weights is not None:
        raise UnknownValue("which weights a sum has", traced_part(places._data).value)
    slot = where((places < 0) | (places > count), count, places)  # of what is left out
    found = zeros(count + 1, dtype=dtypes.int64)
    ELEMENTWISE["add"].at(found, slot, 1)
    return found[:count]


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
