"""Averages, quantiles, histograms, covariances: the twin's float32 steps one by one, rounded once at
the end (R7); NumPy in float64, which computes host types.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import beside_numpy
import numpy
import pytest
from float32_steps import Step, number, steps, total
from tests.support.draws import normal
from tests.support.parameters import each_of
from tests.support.words import assert_same, word_list

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import NeuronSimError, UnsupportedType
from neuronsim.reference import sums
from neuronsim.reference.elementwise import FLOAT

pytestmark = pytest.mark.isa_independent

FLOATS = [t for t in DTYPES.values() if t.exponent_bits and t.device]
INTEGERS = [t for t in DTYPES.values() if t.kind in ("signed", "unsigned")]
agree = functools.partial(beside_numpy.agree, atol=1e-12)
HALF, ONE, TWO = number(0.5), number(1.0), number(2.0)
METHODS = [
    *("linear", "lower", "higher", "nearest", "midpoint", "inverted_cdf", "averaged_inverted_cdf"),
    *("interpolated_inverted_cdf", "hazen", "weibull", "median_unbiased", "normal_unbiased"),
]


def ascending(x: np.Array) -> list[Step]:
    return sorted(steps(x), key=lambda s: Fraction(float(numpy.uint32(s.word).view(numpy.float32))))


NUMPYS_OWN = [
    *np.arrays.statistics.__all__,
    *np.arrays.calculus.__all__,
    *("argpartition", "lexsort", "nanargmax", "nanargmin", "partition"),
    *("intersect1d", "setdiff1d", "setxor1d", "union1d", "unique"),
    *("cumprod", "cumsum", "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmin", "nanprod"),
    *("nanstd", "nansum", "nanvar", "ptp"),
]


@each_of("name", NUMPYS_OWN)
def test_functions_that_the_standard_has_not_take_numpys_arguments(name: str) -> None:
    """Quantiles have no weights; `gradient` names the spacings that NumPy does not."""
    own, theirs = (inspect.signature(getattr(m, name)).parameters for m in (np, numpy))
    known = [
        p for p in theirs if p != "weights" or ("quantile" not in name and "percentile" not in name)
    ]
    assert [p if p != "spacing" else "varargs" for p in own] == known
    by_name = [p for p in theirs if theirs[p].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert all(own[p].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for p in by_name if p in own)


# ---- average -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_R7_average_is_the_weighted_sum_over_that_of_the_weights(dtype: DType) -> None:
    x, w = normal(dtype, (2, 20)), np.abs(normal(dtype, (20,), seed=1))
    expected = []
    for row in range(2):
        products = [a * b for a, b in zip(steps(x[row]), steps(w), strict=True)]
        expected.append((total(products) / total(steps(w))).to(dtype))
    found, counted = np.average(x, 1, w, returned=True)
    assert found.dtype is counted.dtype is dtype
    assert word_list(found) == expected
    assert word_list(counted) == [total(steps(w)).to(dtype)] * 2
    assert word_list(np.average(x, axis=1)) == word_list(np.mean(x, axis=1))


def test_average_takes_numpys_arguments() -> None:
    rng = numpy.random.default_rng(2)
    x, w = rng.standard_normal((3, 4, 5)), rng.random((3, 4, 5))
    for axis in (None, 0, -1, (0, 2)):
        for weights in (None, w):
            options = {"axis": axis, "weights": weights}
            agree("average", x, returned=True, **options)
            agree("average", x, keepdims=True, **options)
    agree("average", x + 1j, axis=1, weights=numpy.array([1.0, 2, 3, 4]))
    assert np.average([1, 2]).item() == 1.5


# ---- quantiles ---------------------------------------------------------------------------------------


@each_of("dtype", FLOATS, ids=lambda t: t.name)
@each_of("n", [1, 2, 7, 8])
def test_R7_median_is_half_the_sum_of_the_middle_two(dtype: DType, n: int) -> None:
    x = normal(dtype, (3, n), seed=n)
    expected = []
    for row in range(3):
        a = ascending(x[row])
        low, high = a[(n - 1) // 2], a[n // 2]
        expected.append((low if n % 2 else (low + high) / TWO).to(dtype))
    found = np.median(x, axis=-1)
    assert found.dtype is dtype
    assert word_list(found) == expected


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_R7_quantile_is_its_formula(dtype: DType) -> None:
    x, n = normal(dtype, (11,), seed=3), 11
    a = ascending(x)
    wanted = [0.0, 0.03125, 0.1, 0.25, 0.3, 0.5, 0.71, 0.96875, 1.0]
    wanted += numpy.random.default_rng(3).random(80).tolist()
    expected = []
    for q in wanted:
        place = q * (n - 1)
        low = min(math.floor(place), n - 1)
        t, rest = number(place - low), place - low
        if rest == 0 or a[low].word == a[low + 1].word:
            expected.append(a[low].to(dtype))
            continue
        step = a[low + 1] - a[low]
        near = a[low] + step * t if rest < 0.5 else a[low + 1] - step * (ONE - t)
        expected.append(near.to(dtype))
    found = np.quantile(x, wanted)
    assert found.dtype is dtype
    assert word_list(found) == expected
    # 100 q is exact for these.
    assert word_list(np.percentile(x, q=[25, 50, 3.125])) == [expected[i] for i in (3, 5, 1)]


@each_of("method", METHODS)
def test_methods_are_numpys(method: str) -> None:
    rng = numpy.random.default_rng(4)
    x = rng.standard_normal((4, 6, 5))
    holes = numpy.where(rng.random(x.shape) < 0.3, numpy.nan, x)
    for axis, keepdims in ((None, False), (1, True), (-1, False), ((0, 2), True)):
        for q in (0.3, [0.0, 0.25, 0.5, 1.0]):
            options = {"axis": axis, "keepdims": keepdims, "method": method}
            agree("quantile", x, q, **options)
            agree("nanquantile", holes, q, **options)
            agree("nanpercentile", holes, 60.0, **options)
    square = numpy.array([[0.1, 0.9, 0.5]])
    agree("quantile", x, square, axis=0, method=method)


@each_of("dtype", [*FLOATS, *INTEGERS], ids=lambda t: t.name)
@each_of("method", ["lower", "higher", "nearest", "inverted_cdf"])
def test_methods_that_take_an_element_keep_its_bits(dtype: DType, method: str) -> None:
    x = np.asarray([5, 1, 3, 2, 4], dtype=dtype)
    found = np.percentile(x, [0, 30, 100], method=method)
    assert found.dtype is dtype
    exact = numpy.percentile(numpy.array([5.0, 1, 3, 2, 4]), [0, 30, 100], method=method)
    assert found.tolist() == exact.tolist()
    top = numpy.iinfo(dtype.numpy).max if dtype.kind != "float" else 4
    assert np.quantile(np.asarray([top], dtype=dtype), 0.5, method=method).item() == top


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_quantiles_of_nan_and_of_nothing(dtype: DType) -> None:
    nan = numpy.nan
    x = np.asarray([[1.0, nan, 3.0], [2.0, 4.0, 1.0], [nan, nan, nan]], dtype=dtype)
    assert numpy.isnan(np.median(x, axis=1).tolist()).tolist() == [True, False, True]
    assert numpy.isnan(np.quantile(x, 0.0, axis=1).tolist()).tolist() == [True, False, True]
    with pytest.warns(RuntimeWarning, match="nothing but NaN"):
        assert np.nanmedian(x, axis=1)[:2].tolist() == [2, 2]
    with pytest.warns(RuntimeWarning, match="nothing but NaN"):
        assert np.nanquantile(x, [1.0], axis=1)[:, :2].tolist() == [[3, 4]]
    empty = np.median(np.zeros((2, 0), dtype=dtype), axis=1)
    assert (empty.dtype, numpy.isnan(empty.tolist()).all()) == (dtype, True)
    assert np.quantile(np.zeros((0, 3), dtype=dtype), [0.5], axis=1).shape == (1, 0)


def test_quantiles_between_infinities_and_equal_elements() -> None:
    x = np.asarray([-numpy.inf, 1.0, numpy.inf, numpy.inf])
    assert np.quantile(x, [0, 1 / 3, 1]).tolist() == [-numpy.inf, 1, numpy.inf]
    assert np.quantile(x, 0.9).item() == numpy.inf  # NumPy: NaN, the step between them
    out = np.zeros(2, dtype="bfloat16")
    assert np.quantile(np.asarray([1.0, 2.0]), [0.5, 0.25], out=out) is out
    assert out.tolist() == [1.5, 1.25]
    assert np.median([1, 2]).dtype.name == "float32"
    assert np.median(np.asarray([3.0, 1.0, 2.0]), overwrite_input=True).item() == 2


# ---- histograms --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_C1_edges_are_rounded_once(dtype: DType) -> None:
    x = np.asarray([-1.0, 0.3, 2.0], dtype=dtype)
    edges = np.histogram_bin_edges(x, 7)
    exact = [Fraction(-1) + Fraction(3 * i, 7) for i in range(8)]
    assert edges.dtype is dtype
    # The error of one rounding is at most half the distance of the neighbours.
    for found, edge in zip(edges.tolist(), exact, strict=True):
        outwards = np.asarray([-9.0, 9.0], dtype=dtype)
        near = np.nextafter(np.asarray([found, found], dtype=dtype), outwards).tolist()
        assert all(abs(Fraction(found) - edge) <= abs(Fraction(v) - edge) for v in near)


@each_of("dtype", [*FLOATS, *INTEGERS, DTYPES["float64"]], ids=lambda t: t.name)
def test_histogram_counts_by_exact_comparison(dtype: DType) -> None:
    rng = numpy.random.default_rng(5)
    x = np.asarray(rng.integers(0, 12, (5, 40)) / (1 if dtype.kind != "float" else 4), dtype=dtype)
    for bins in (5, np.asarray([0, 1, 2, 9], dtype=dtype)):
        counts, edges = np.histogram(x, bins)
        values, ends = x.reshape(-1).tolist(), edges.tolist()
        expected = [sum(a <= v < b for v in values) for a, b in itertools.pairwise(ends)]
        expected[-1] += sum(v == ends[-1] for v in values)
        assert counts.dtype.name == "int64"
        assert counts.tolist() == expected


EDGES = {
    "of one width": numpy.linspace(0, 1, 51),
    "of any width": [0, 0.01, 0.3, 0.31, 0.9, 1],
    "without width": [0, 0, 0.5, 0.5, 0.5, 1, 1],
    "without end": [-numpy.inf, 0, 0.2, 0.3, numpy.inf],
    "all of one": [0.5] * 6,
    "huge": [-3e38, 0, 1, 2, 3e38],
    "with NaN": [0, 0.1, 0.2, 0.3, numpy.nan],
}


@each_of("edges", EDGES)
def test_bins_of_many_elements_are_those_of_one_alone(edges: str) -> None:
    """However the bin is found: elements at the edges and beside them too."""
    bounds = np.asarray(EDGES[edges], "float32")
    beside = [bounds, np.nextafter(bounds, 2), np.nextafter(bounds, -2)]
    others = np.asarray([math.nan, math.inf, -math.inf, -0.0, 1e-45])
    x = np.concatenate([normal("float32", (400,), 5), *beside, others])
    counts = np.histogram(x, bounds)[0]
    alone = [np.histogram(v, bounds)[0].tolist() for v in x]
    assert counts.tolist() == [sum(column) for column in zip(*alone, strict=True)]


@pytest.mark.filterwarnings("ignore:The number of bins estimated")  # by "stone", of few elements
def test_histogram_takes_numpys_arguments() -> None:
    rng = numpy.random.default_rng(6)
    x, w = rng.standard_normal((6, 20)), rng.random((6, 20))
    for bins in (10, 1, numpy.array([-1.0, 0.0, 0.5, 2.0])):
        for options in ({}, {"range": (-1, 1)}, {"density": True}, {"weights": w}):
            agree("histogram", x, bins, **options)
        agree("histogram", x, bins, weights=w, density=True)
    for rule in ("auto", "doane", "fd", "rice", "scott", "sqrt", "stone", "sturges"):
        for values in (x, x[:1, :1], numpy.zeros(0)):
            agree("histogram", values, rule)
        integers = rng.integers(0, 9, 200)  # whose bins are one wide at least
        expected = numpy.histogram(integers, rule)[0]
        assert np.histogram(integers, rule)[0].tolist() == expected.tolist()
        agree("histogram", x, rule, (-1, 3))
    with pytest.raises(NeuronSimError, match="'freedman': the rules auto, doane"):
        np.histogram(x, "freedman")
    with pytest.raises(NeuronSimError, match="rule 'fd': autodetected range"):
        np.histogram(numpy.array([math.nan, 1.0]), "fd")
    for few in (numpy.ones(4), numpy.zeros(0), numpy.array([numpy.nan, 1.0, 2.0])):
        agree("histogram", few, 3, (0.5, 3.0))
    agree("histogram_bin_edges", numpy.ones(4))
    counts, _ = np.histogram([1, 2, 2, 7], 3, weights=[1, 10, 100, 1000])
    assert (counts.dtype.name, counts.tolist()) == ("int64", [111, 0, 1000])


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_R2_weights_of_a_bin_are_summed_in_their_order(dtype: DType) -> None:
    rng = numpy.random.default_rng(7)
    place, w = rng.integers(0, 3, 300), normal(dtype, (300,), seed=7)
    place[5] = 4
    expected = []
    for i in range(6):
        chosen = [word_list(w)[j] for j in numpy.flatnonzero(place == i)]
        expected.append(sums.reduce_float("add", dtype.name, chosen, 0))
    found = np.bincount(np.asarray(place), w, minlength=6)
    assert found.dtype is dtype
    assert word_list(found) == expected
    in_bins, _ = np.histogram(np.asarray(place), 5, (0, 5), weights=w)
    assert word_list(in_bins) == expected[:5]


def test_R2_bincount_adds_the_weights_of_distant_places_in_their_order() -> None:
    """Places of one half of their bits are different places."""
    rng = numpy.random.default_rng(2)
    places = rng.choice([3, 3 + (1 << 16), 5 << 16, (5 << 16) + 3, 65535], 400)
    w = normal(np.float32, (400,), seed=7)
    found = np.bincount(np.asarray(places), w)
    for place in numpy.unique(places):
        assert_same(found[int(place)], np.sum(w[np.asarray(places == place)]))
    assert numpy.count_nonzero(numpy.asarray(found)) == 5


def test_bincount_and_digitize_are_numpys() -> None:
    for x in (numpy.array([1, 5, 1, 0], "uint8"), numpy.zeros(0, int), numpy.array([True, False])):
        for minlength in (0, 8):
            agree("bincount", x, minlength=minlength)
    agree("bincount", numpy.array([2, 0, 2]), numpy.array([0.5, 1.0, 2.0]))
    values = numpy.round(numpy.random.default_rng(8).standard_normal((3, 30)), 1)
    for bins in ([-1.0, 0.0, 0.5], [0.5, 0.0, -1.0], [0.1], [0.0, 0.0, 1.0]):
        for right in (False, True):
            agree("digitize", values, numpy.array(bins), right)
    nan = np.digitize([numpy.nan, -numpy.inf], [0.0, 1.0])
    assert (nan.dtype.name, nan.tolist()) == ("int64", [2, 0])


# ---- covariances -------------------------------------------------------------------------------------


def covariance(rows: list[list[Step]], dtype: DType, ddof: float) -> list[list[Step]]:
    n = len(rows[0])
    means = [total(r) / number(float(n)) for r in rows]
    centred = [[v - m for v in r] for r, m in zip(rows, means, strict=True)]

    def product(a: list[Step], b: list[Step]) -> Step:
        left, right = [v.word for v in a], [v.word for v in b]
        return Step(sums.dot("float32", "float32", "float32", left, right))

    divisor = number(n - ddof)
    return [[product(a, b) / divisor for b in centred] for a in centred]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_R7_cov_is_its_formula(dtype: DType) -> None:
    m, y = normal(dtype, (2, 140), seed=9), normal(dtype, (140,), seed=10)
    rows = [steps(m[0]), steps(m[1]), steps(y)]
    for options, ddof in (({}, 1), ({"bias": True}, 0), ({"ddof": 2}, 2)):
        expected = [v.to(dtype) for row in covariance(rows, dtype, ddof) for v in row]
        found = np.cov(m, y, **options)
        assert (found.dtype, found.shape) == (dtype, (3, 3))
        assert word_list(found) == expected
    assert word_list(np.cov(m.T, rowvar=False)) == word_list(np.cov(m))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_R7_corrcoef_is_its_formula(dtype: DType) -> None:
    m = normal(dtype, (3, 20), seed=11)
    c = covariance([steps(m[i]) for i in range(3)], dtype, 1)
    roots = [Step(FLOAT["sqrt"](c[i][i].word)) for i in range(3)]
    expected = []
    for i in range(3):
        for j in range(3):
            value = c[i][j] / roots[i] / roots[j]
            value = Step(FLOAT["minimum"](FLOAT["maximum"](value.word, (-ONE).word), ONE.word))
            expected.append(value.to(dtype))
    assert word_list(np.corrcoef(m)) == expected


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_R7_cov_with_weights_is_its_formula(dtype: DType) -> None:
    x, often, w = normal(dtype, (6,), seed=12), [1, 2, 1, 3, 1, 2], [0.5, 1.0, 2.0, 0.25, 1.0, 3.0]
    values, weights = steps(x), [number(float(f)) * number(a) for f, a in zip(often, w, strict=True)]
    all_weights = total(weights)
    middle = total([v * a for v, a in zip(values, weights, strict=True)]) / all_weights
    centred = [v - middle for v in values]
    taken = total([a * number(b) for a, b in zip(weights, w, strict=True)])
    divisor = all_weights - ONE * taken / all_weights
    left = [(v * a).word for v, a in zip(centred, weights, strict=True)]
    product = Step(sums.dot("float32", "float32", "float32", left, [v.word for v in centred]))
    found = np.cov(x, fweights=often, aweights=np.asarray(w, dtype=dtype))
    assert (found.dtype, found.shape) == (dtype, ())
    assert word_list(found) == [(product / divisor).to(dtype)]


def test_cov_takes_numpys_arguments() -> None:
    rng = numpy.random.default_rng(13)
    m, y = rng.standard_normal((3, 8)), rng.standard_normal((2, 8))
    often, w = rng.integers(1, 4, 8), rng.random(8)
    for name in ("cov", "corrcoef"):
        for arguments in ((m,), (m, y), (m[0],), (m[0], y[0]), (m + 1j * m[::-1],)):
            agree(name, *arguments)
        agree(name, m, rowvar=False)
    for options in (
        {"fweights": often},
        {"aweights": w},
        {"fweights": often, "aweights": w, "ddof": 0},
        {"fweights": often, "aweights": w, "bias": True},
    ):
        for x in (m, m[0]):
            agree("cov", x, **options)
    assert np.cov(np.asarray(m), dtype="bfloat16").dtype.name == "bfloat16"
    with pytest.warns(RuntimeWarning, match="degree of freedom"):
        assert numpy.isnan(numpy.asarray(np.cov(np.asarray(m[:, :1])))).all()


# ---- errors ------------------------------------------------------------------------------------------


@each_of(
    ("call", "match"),
    [
        (lambda: np.average([1.0, 2.0], weights=[1.0, -1.0]), "add up to 0"),
        (lambda: np.average([[1.0, 2.0]], weights=[1.0, 2.0]), "same shape"),
        (lambda: np.quantile([1.0], 1.5), r"\[0, 1\]"),
        (lambda: np.percentile([1.0], -1), r"\[0, 100\]"),
        (lambda: np.quantile([1.0], numpy.nan), r"\[0, 1\]"),
        (lambda: np.quantile([1.0], 0.5, method="linaer"), "did you mean 'linear'"),
        (lambda: np.median([1j]), "no order"),
        (lambda: np.median([1.0], axis=1), "axis"),
        (lambda: np.median(np.ones(4, dtype="float8_e4m3fn")), "float8_e4m3fn"),
        (lambda: np.histogram([1.0], 0), "1 or more"),
        (lambda: np.histogram([1.0], 2.5), "1 or more"),
        (lambda: np.histogram([1.0], "sturgis"), "sturges"),
        (lambda: np.histogram([1.0], [2.0, 1.0]), "ascend"),
        (lambda: np.histogram([1.0], range=(1, 0)), "ascends"),
        (lambda: np.histogram([numpy.inf]), "finite"),
        (lambda: np.histogram([1.0], weights=[1.0, 2.0]), "weights"),
        (lambda: np.bincount([-1]), "from 0"),
        (lambda: np.bincount([1.0]), "integers"),
        (lambda: np.bincount([1], weights=[1.0, 2.0]), "weights"),
        (lambda: np.digitize([1.0], [0.0, 2.0, 1.0]), "ascend or descend"),
        (lambda: np.digitize([1.0], [[0.0]]), "one axis"),
        (lambda: np.cov(np.ones((2, 2, 2))), "two axes"),
        (lambda: np.cov([1.0, 2.0], [1.0, 2.0, 3.0]), "2 and 3 observations"),
        (lambda: np.cov([1.0, 2.0], fweights=[1.0, 2.0]), "integers"),
        (lambda: np.cov([1.0, 2.0], aweights=[1.0, -2.0]), "negative"),
    ],
)
def test_wrong_arguments_of_statistics(call: Callable[[], Any], match: str) -> None:
    with pytest.raises(NeuronSimError, match=match) as error:
        call()
    assert isinstance(error.value, ValueError | TypeError)


def test_bins_of_complex_numbers_are_refused() -> None:
    z = np.asarray([1j, 2.0])
    for call in (
        lambda: np.digitize(z, [0.0, 1.0]),
        lambda: np.digitize([0.5], np.asarray([0j, 1.0])),
        lambda: np.histogram(z),
        lambda: np.histogram(z, "auto"),
        lambda: np.histogram([0.5], np.asarray([0j, 1.0])),
        lambda: np.histogram2d(z, z),
    ):
        with pytest.raises(UnsupportedType, match="no order"):
            call()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("strides", [(0, 4, 0, 0), (0, 4, 0, 4), (4, 4, 4, 8)])
def test_statistics_of_nothing_whatever_its_strides(strides: tuple[int, ...]) -> None:
    """Some of them look like rows side by side, of which there are none to divide by."""
    memory = numpy.zeros(8, "float32")
    x = np.asarray(numpy.lib.stride_tricks.as_strided(memory, (0, 3, 0, 2), strides), copy=False)
    assert x.bits.data.strides == strides
    for statistic in (np.mean, np.var, np.std):
        assert numpy.isnan(statistic(x).item())
        assert statistic(x, axis=(0, 2)).shape == (3, 2)
    assert np.linalg.vector_norm(x) == 0
