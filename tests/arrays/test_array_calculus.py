"""Functions of several float32 steps: the twin's steps one by one, rounded once at the end (R7)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy
import pytest
from beside_numpy import agree
from float32_steps import Step, number, steps
from tests.support.draws import normal
from tests.support.parameters import each_of
from tests.support.words import word_list

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import InvalidArgument, NeuronSimError, UnsupportedType
from neuronsim.reference import sums

pytestmark = pytest.mark.isa_independent

FLOATS = [t for t in DTYPES.values() if t.exponent_bits and t.device]


def exact(x: np.Array) -> list[Fraction]:
    return [Fraction(v) for v in x.reshape(-1).tolist()]


# ---- interp ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_R7_interp_is_its_formula(dtype: DType) -> None:
    xp = np.asarray([-2.0, -0.5, 0.75, 3.0], dtype=dtype)
    fp, x = normal(dtype, (4,)), normal(dtype, (20,), seed=1)
    places, heights, values = exact(xp), steps(fp), exact(x)
    known, expected = steps(xp), []
    for value, at in zip(values, steps(x), strict=True):
        j = sum(p <= value for p in places) - 1
        if j < 0 or value in places or j == 3:
            expected.append(heights[max(j, 0)].to(dtype))
            continue
        slope = (heights[j + 1] - heights[j]) / (known[j + 1] - known[j])
        expected.append((slope * (at - known[j]) + heights[j]).to(dtype))
    found = np.interp(x, xp, fp)
    assert found.dtype is dtype
    assert word_list(found) == expected


def test_interp_at_and_beyond_the_points() -> None:
    xp, fp = np.asarray([1.0, 2.0, 4.0]), np.asarray([10.0, numpy.inf, 30.0])
    x = np.asarray([0.0, 1.0, 2.0, 4.0, 5.0, numpy.nan])
    assert np.interp(x, xp, fp)[:5].tolist() == [10, 10, numpy.inf, 30, 30]
    assert numpy.isnan(np.interp(x, xp, fp)[5].item())
    beyond = np.interp(x, xp, fp, left=-1, right=numpy.inf)
    assert beyond[:5].tolist() == [-1, 10, numpy.inf, 30, numpy.inf]
    assert np.interp(2.5, [1.0], [7.0]).item() == 7
    assert np.interp(3, [1, 5], [0, 2]).dtype.name == "float32"


@pytest.mark.parametrize("period", [2.5, -0.5])
def test_interp_of_a_period_is_numpys(period: float) -> None:
    rng = numpy.random.default_rng(2)
    agree("interp", *rng.standard_normal((3, 7)), period=period, rtol=1e-7)


# ---- gradient, trapezoid, ediff1d --------------------------------------------------------------------


def slope_of(f: list[Step], h: list[Step], i: int, edge_order: int) -> Step:
    """At distances h; of equal ones the formulas of one distance are asked for by `uniform`."""
    two, n = number(2.0), len(f)
    if 0 < i < n - 1:
        a, b = h[i - 1], h[i]
        left, middle, right = -b / (a * (a + b)), (b - a) / (a * b), a / (b * (a + b))
        return left * f[i - 1] + middle * f[i] + right * f[i + 1]
    f, h = (f, h) if i == 0 else (f[::-1], h[::-1])
    a, b = h[0], h[1]
    if edge_order == 1:
        return (f[1] - f[0]) / a if i == 0 else (f[0] - f[1]) / a
    end = -(two * a + b) / (a * (a + b)) * f[0] + (a + b) / (a * b) * f[1] - a / (b * (a + b)) * f[2]
    return end if i == 0 else -end


@each_of("dtype", FLOATS, ids=lambda t: t.name)
@each_of("edge_order", [1, 2])
def test_R7_gradient_is_its_formula(dtype: DType, edge_order: int) -> None:
    f = normal(dtype, (2, 6))
    places = np.asarray([0.0, 0.5, 0.75, 1.5, 1.75, 3.0], dtype=dtype)
    known = steps(places)
    h = [b - a for a, b in itertools.pairwise(known)]
    rows = [steps(f[r]) for r in range(2)]
    expected = [slope_of(r, h, i, edge_order).to(dtype) for r in rows for i in range(6)]
    found = np.gradient(f, places, axis=1, edge_order=edge_order)
    assert found.dtype is dtype
    assert word_list(found) == expected
    half, two = number(0.5), number(2.0)
    expected = []
    for r in rows:
        inner = [(r[i + 1] - r[i - 1]) / (two * half) for i in range(1, 5)]
        ends = [slope_of(r, [half] * 5, i, edge_order) for i in (0, 5)]
        expected += [v.to(dtype) for v in (ends[0], *inner, ends[1])]
    assert word_list(np.gradient(f, 0.5, axis=-1, edge_order=edge_order)) == expected
    equal = np.asarray([0.0, 0.5, 1.0, 1.5, 2.0, 2.5], dtype=dtype)
    assert word_list(np.gradient(f, equal, axis=-1, edge_order=edge_order)) == expected


def test_gradient_of_several_axes_is_numpys() -> None:
    f = numpy.random.default_rng(3).standard_normal((4, 5, 3))
    for arguments, options in (
        ((), {}),
        ((0.5,), {"axis": (2, 0)}),
        ((0.5, 2.0), {"axis": (0, -1), "edge_order": 2}),
        ((1.0, numpy.cumsum([1.0, 2, 1, 2, 1]), 2.0), {}),
        (([0.0, 1.0, 4.0],), {"axis": 2}),
    ):
        agree("gradient", f, *arguments, **options, rtol=1e-7)
    assert np.gradient([1, 2, 4]).dtype.name == "float32"


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_R7_trapezoid_is_its_formula(dtype: DType) -> None:
    y, x = normal(dtype, (1, 530), seed=4), normal(dtype, (530,), seed=5)
    places = steps(x)
    heights = steps(y)
    terms = [
        ((places[i + 1] - places[i]) * (heights[i + 1] + heights[i]) / number(2.0)).word
        for i in range(529)
    ]
    total = sums.reduce_float("add", "float32", terms, 0)  # in two tiles
    assert word_list(np.trapezoid(y, x)) == [Step(total).to(dtype)]
    column = np.trapezoid(y.reshape(2, 265), dx=0.25, axis=0)
    assert column.dtype is dtype
    assert column.shape == (265,)


def test_trapezoid_takes_numpys_arguments() -> None:
    y = numpy.random.default_rng(5).standard_normal((4, 5))
    along = numpy.cumsum(numpy.abs(y), axis=0)
    for options in ({}, {"dx": 2.0}, {"axis": 0}, {"x": along, "axis": 0}, {"x": [0, 1, 3, 4, 7]}):
        agree("trapezoid", y, **options, rtol=1e-7)
    assert np.trapezoid([1, 2]).item() == 1.5


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_E2_ediff1d_rounds_each_difference_once(dtype: DType) -> None:
    x = normal(dtype, (3, 4))
    flat = steps(x)
    inner = [(flat[i + 1] - flat[i]).to(dtype) for i in range(11)]
    assert word_list(np.ediff1d(x)) == inner
    found = np.ediff1d(x, to_begin=[1.0], to_end=np.asarray(2.0))
    one, two = (number(v).to(dtype) for v in (1.0, 2.0))
    assert word_list(found) == [one, *inner, two]


def test_ediff1d_takes_ends_of_its_kind_only() -> None:
    x = np.asarray([1, 4, 9], dtype="uint8")
    assert np.ediff1d(x, 7, np.asarray(2, dtype="uint16")).tolist() == [2, 3, 5, 7]
    for end in (1.5, [1.5], np.asarray(1.5), np.asarray(-1)):
        for ends in ((end, None), (None, end)):
            with pytest.raises(UnsupportedType, match="no 'same_kind' cast"):
                np.ediff1d(x, *ends)


# ---- convolve, correlate -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_lengths_and_offsets_are_numpys(name: str, mode: Any) -> None:
    """Whole numbers, whose sums are exact, in each type that has them."""
    rng = numpy.random.default_rng(7)
    for n, m in ((1, 1), (5, 2), (5, 3), (2, 5), (3, 6), (4, 4), (1, 4)):
        for dtype in ("float32", "int32", "float64", "complex64", "int8"):
            a, b = (rng.integers(-4, 5, k).astype(dtype) for k in (n, m))
            if dtype == "complex64":
                a, b = a * (1 + 2j), b + 1j * numpy.arange(m)
                a, b = a.astype(dtype), b.astype(dtype)
            found = getattr(np, name)(np.asarray(a), np.asarray(b), mode)
            assert found.dtype.name == dtype
            assert found.tolist() == getattr(numpy, name)(a, b, mode).tolist()


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_M2_convolve_is_a_product_of_windows(dtype: DType) -> None:
    x, v = normal(dtype, (6,), seed=8), normal(dtype, (140,), seed=9)
    zero = [0] * 5
    padded = [*zero, *word_list(v), *zero]
    for function, weights in ((np.convolve, word_list(x)[::-1]), (np.correlate, word_list(x))):
        expected = [
            sums.dot(dtype.name, dtype.name, dtype.name, padded[i : i + 6], weights) for i in range(145)
        ]
        assert word_list(function(v, x, mode="full")) == expected
    long = normal(dtype, (150,), seed=10)  # more than one tile of 128
    expected = [
        sums.dot(dtype.name, dtype.name, dtype.name, word_list(long)[i : i + 140], word_list(v))
        for i in range(11)
    ]
    assert word_list(np.correlate(long, v)) == expected


# ---- polyval -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_R7_polyval_is_horners_rule(dtype: DType) -> None:
    p, x = normal(dtype, (5,), seed=11), normal(dtype, (2, 6), seed=12)
    expected = []
    for at in steps(x):
        first, *rest = steps(p)
        for coefficient in rest:
            first = first * at + coefficient
        expected.append(first.to(dtype))
    found = np.polyval(p, x)
    assert (found.dtype, found.shape) == (dtype, (2, 6))
    assert word_list(found) == expected


def test_polyval_of_integers_and_of_no_coefficients() -> None:
    assert np.polyval([3, 0, 1], 5).tolist() == 76
    assert np.polyval(np.asarray([100, 0], dtype="int8"), np.asarray(3, dtype="int8")).item() == 44
    assert np.polyval(np.zeros(0), [1.0, 2.0]).tolist() == [0, 0]
    assert np.polyval([1.0, 2.0], numpy.inf).item() == numpy.inf


# ---- the type of the steps, errors -------------------------------------------------------------------


def test_R7_a_narrow_formula_in_narrow_steps_gives_other_bits() -> None:
    """The control: rounding every step is not the rule."""
    p, x = normal(np.bfloat16, (5,), seed=11), normal(np.bfloat16, (64,), seed=12)
    stepwise = p[0] + x * 0
    for coefficient in p[1:]:
        stepwise = stepwise * x + coefficient
    assert word_list(stepwise) != word_list(np.polyval(p, x))


@each_of(
    ("call", "match"),
    [
        (lambda: np.interp(1.0, [1.0, 2.0], [1.0]), "fp for each xp"),
        (lambda: np.interp(1.0, [], []), "fp for each xp"),
        (lambda: np.interp(1.0, [1.0], [1.0], period=0), "period"),
        (lambda: np.interp(1.0, [1.0], [1j]), "imaginary part"),
        (lambda: np.gradient([1.0]), "needs one more"),
        (lambda: np.gradient([1.0, 2.0], edge_order=2), "needs one more"),
        (lambda: np.gradient([1.0, 2.0], edge_order=3), "1 or 2"),
        (lambda: np.gradient([1.0, 2.0], 1.0, 2.0), "2 spacings"),
        (lambda: np.gradient([1.0, 2.0], [1.0, 2.0, 3.0]), "2 coordinates"),
        (lambda: np.gradient([1.0, 2.0], axis=1), "axis"),
        (lambda: np.trapezoid(1.0), "axis"),
        (lambda: np.convolve([1.0], [1.0], "ful"), "did you mean 'full'"),
        (lambda: np.convolve([], [1.0]), "at least one"),
        (lambda: np.correlate([[1.0]], [1.0]), "one axis"),
        (lambda: np.polyval([[1.0]], 1.0), "one axis"),
        (lambda: np.polyval(np.ones(2, dtype="float8_e4m3fn"), 1.0), "float8_e4m3fn"),
        (lambda: np.interp(1.0, [1.0], np.ones(1, dtype="float8_e4m3fn")), None),
    ],
)
def test_wrong_arguments_of_composites(call: Callable[[], Any], match: str | None) -> None:
    if match is None:  # its type with float32 is float32
        assert call().dtype.name == "float32"
        return
    with pytest.raises(NeuronSimError, match=match) as error:
        call()
    assert isinstance(error.value, InvalidArgument | TypeError)
