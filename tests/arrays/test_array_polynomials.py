"""Fits, zeros and unwrapped phases: NumPy's float64 rounded once (H1), float32 steps (R7)."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy
import pytest
from beside_numpy import agree
from float32_steps import Step, number, steps
from rounded_once import check, exact
from tests.support.draws import normal
from tests.support.parameters import each_of
from tests.support.words import assert_same, word_list

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.reference.elementwise import FLOAT

pytestmark = pytest.mark.isa_independent

FLOATS = [t for t in DTYPES.values() if t.exponent_bits and t.device]


def value(s: Step) -> Fraction:
    return Fraction(float(numpy.uint32(s.word).view(numpy.float32)))


def unwrapped(p: list[Step], period: Step, least: Fraction) -> list[Step]:
    half = period / number(2.0)
    found, total = [p[0]], number(0.0)
    for before, after in itertools.pairwise(p):
        d = after - before
        r = Step(FLOAT["remainder"]((d + half).word, period.word)) - half
        if value(r) == -value(half) and value(d) > 0:
            r = half
        change = number(0.0) if abs(value(d)) < max(least, value(half)) else r - d
        total = change if len(found) == 1 else total + change
        found.append(after + total)
    return found


@each_of("dtype", FLOATS, ids=lambda t: t.name)
@each_of(("period", "discont"), [(None, None), (1.5, None), (2.0, 1.25)])
def test_R7_unwrap_is_its_formula(dtype: DType, period: float | None, discont: float | None) -> None:
    p = normal(dtype, (12,)) * 3
    options = {} if period is None else {"period": period}
    found = np.unwrap(p, discont, **options)
    one = number(2 * numpy.pi if period is None else period)
    least = value(number(discont or 0.0))
    expected = [s.to(dtype) for s in unwrapped(steps(p), one, least)]
    assert found.dtype is dtype
    assert word_list(found) == expected


def test_unwrap_takes_numpys_arguments() -> None:
    p = numpy.random.default_rng(1).standard_normal((3, 4, 5)) * 8
    for options in ({}, {"axis": 0}, {"axis": -2, "period": 1.0}, {"discont": 4.0}):
        agree("unwrap", p, **options)
    assert np.unwrap([0, 1, 5], period=4).tolist() == numpy.unwrap([0, 1, 5], period=4).tolist()
    for p in ([0.0, 2.0, 0.0], [0.0, -2.0, 0.0, 2.0]):  # steps of half a period keep their sign
        assert np.unwrap(p, period=4).tolist() == numpy.unwrap(p, period=4).tolist()
    assert np.unwrap([3.0]).tolist() == [3]


@pytest.mark.parametrize("dtype", [*FLOATS, np.float64], ids=lambda t: t.name)
def test_H1_polyfit_is_numpys_rounded_once(dtype: DType) -> None:
    x, y, w = (normal(dtype, (9,), seed) for seed in range(3))
    wide = list(map(exact, (x, y, w)))
    for deg in (0, 1, 2):
        check(np.polyfit(x, y, deg), numpy.polyfit(*wide[:2], deg), dtype)
    check(np.polyfit(x, y, 2, w=w), numpy.polyfit(*wide[:2], 2, w=wide[2]), dtype)


def test_polyfit_gives_what_full_and_cov_ask() -> None:
    draw = numpy.random.default_rng(5)
    x, y = draw.standard_normal(8), draw.standard_normal((8, 2))
    for deg, options in ((2, {"full": True}), (1, {"cov": True})):
        results = np.polyfit(np.asarray(x), y, deg, **options), numpy.polyfit(x, y, deg, **options)
        assert all(itertools.starmap(numpy.array_equal, zip(*results, strict=True)))


@pytest.mark.parametrize("dtype", [*FLOATS, np.float64], ids=lambda t: t.name)
def test_H1_roots_are_numpys_rounded_once(dtype: DType) -> None:
    for p in ([1.0, 0.5, -2.0], [0.0, 2.0, 0.0, 1.5], [3.0], []):
        a = np.asarray(p, dtype=dtype)
        theirs = numpy.roots(exact(a))
        own = np.complex128 if dtype is np.float64 else np.complex64
        check(np.roots(a), theirs, own if theirs.dtype.kind == "c" else dtype)


@each_of("dtype", FLOATS, ids=lambda t: t.name)
def test_R7_derivatives_and_integrals_are_their_formulas(dtype: DType) -> None:
    p, k = normal(dtype, (6,)), normal(dtype, (2,), 1)
    for order in (1, 2):
        derived, integrated = steps(p), steps(p)
        for n in range(order):
            top = len(derived) - 1
            derived = [s * number(float(top - i)) for i, s in enumerate(derived[:-1])]
            top = len(integrated)
            integrated = [s / number(float(top - i)) for i, s in enumerate(integrated)]
            integrated.append(steps(k)[n])
        for found, expected in ((np.polyder(p, order), derived), (np.polyint(p, order, k), integrated)):
            assert found.dtype is dtype
            assert word_list(found) == [s.to(dtype) for s in expected]


@each_of("dtype", FLOATS, ids=lambda t: t.name)
def test_sums_and_products_of_polynomials_are_those_of_coefficients(dtype: DType) -> None:
    p, q = normal(dtype, (6,)), normal(dtype, (4,), 1)
    zeros = np.zeros(2, dtype)
    for found, expected in (
        (np.polyadd(p, q), p + np.concat([zeros, q])),
        (np.polysub(q, p), np.concat([zeros, q]) - p),
        (np.polymul(np.concat([zeros, p]), q), np.convolve(p, q)),
        (np.polymul(zeros, q), np.convolve(zeros[:1], q)),
    ):
        assert_same(found, expected)


@pytest.mark.parametrize("dtype", [*FLOATS, np.float64], ids=lambda t: t.name)
def test_H1_polynomials_of_zeros_and_quotients_are_numpys_rounded_once(dtype: DType) -> None:
    p, q = normal(dtype, (6,)), normal(dtype, (3,), 1)
    check(np.poly(p), numpy.poly(exact(p)), dtype)
    check(np.poly(p[:4].reshape(2, 2)), numpy.poly(exact(p[:4]).reshape(2, 2)), dtype)
    for pair in ((p, q), (q, p), (p, p)):
        for found, expected in zip(np.polydiv(*pair), numpy.polydiv(*map(exact, pair)), strict=True):
            check(found, expected, dtype)
    check(np.poly([1j, -1j]), [1, 0, 1], np.float32)  # of conjugate pairs real
    check(np.poly([1j]), numpy.poly([1j]), np.complex64)


def test_polynomials_take_numpys_arguments() -> None:
    p, q = numpy.array([3.0, 0.0, -2.0, 5.0]), numpy.array([0.0, 2.0, 1.0])
    for name in ("polyadd", "polysub", "polymul"):
        for pair in ((p, q), (q, 4.0), (0.0, p)):
            agree(name, *pair)
        of_integers = getattr(np, name)([1, 2, 3], [4, 5])
        assert of_integers.dtype is np.int64
        assert of_integers.tolist() == getattr(numpy, name)([1, 2, 3], [4, 5]).tolist()
    agree("polydiv", p, q[1:])
    for m in (0, 1, 3, 9):
        agree("polyder", p, m)
        agree("polyint", p, m)
        agree("polyint", p, m, 2.0)
    agree("polyint", p, 2, [1.0, 2.0, 3.0])
    assert np.polyder([3, 2, 1]).tolist() == [6, 2]
    narrow = np.polyder(np.ones(200, "int8"))
    assert narrow.dtype is np.int64
    assert narrow.tolist() == list(range(199, 0, -1))
    assert np.polyint([3, 2, 1]).dtype is np.float32
    assert np.polyint(np.asarray([1.0], "bfloat16"), k=0.5).dtype is np.bfloat16
    assert np.poly([]).tolist() == 1


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: np.polyfit([], [], 1), InvalidArgument),
        (lambda: np.poly(np.ones((2, 3))), InvalidArgument),
        (lambda: np.polyadd([[1.0]], [1.0]), InvalidArgument),
        (lambda: np.polyder([1.0], -1), InvalidArgument),
        (lambda: np.polyder([1.0], 0.5), UnsupportedType),
        (lambda: np.polyint([1.0], 3, [1.0, 2.0]), InvalidArgument),
        (lambda: np.polydiv([], [1.0]), InvalidArgument),
        (lambda: np.polyfit([1.0, 2.0], [1.0], 1), InvalidArgument),
        (lambda: np.polyfit([[1.0]], [1.0], 1), InvalidArgument),
        (lambda: np.polyfit([1.0, 2.0], [1.0, 2.0], -1), InvalidArgument),
        (lambda: np.roots([[1.0]]), InvalidArgument),
        (lambda: np.linalg.tensorsolve(np.ones((2, 3)), np.ones(2)), numpy.linalg.LinAlgError),
        (lambda: np.linalg.tensorinv(np.ones((2, 3)), 1), numpy.linalg.LinAlgError),
        (lambda: np.linalg.tensorinv(np.ones((2, 2)), 0), InvalidArgument),
        (lambda: np.histogramdd(np.ones((3, 2)), bins=[2]), InvalidArgument),
        (lambda: np.histogramdd(np.ones((3, 2)), weights=np.ones(2)), InvalidArgument),
        (lambda: np.roots(np.ones(2, dtype="float8_e4m3fn")), UnsupportedType),
    ],
)
def test_fits_and_histograms_refuse_what_they_do_not_take(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


def test_tensorsolve_and_tensorinv_are_solve_and_inv() -> None:
    draw = numpy.random.default_rng(6)
    a, b = draw.standard_normal((2, 3, 6)), draw.standard_normal((2, 3))
    c = a.transpose(2, 0, 1)
    agree("linalg.tensorsolve", a, b, rtol=1e-7)
    agree("linalg.tensorsolve", c, b, axes=[0], rtol=1e-7)
    agree("linalg.tensorinv", a, 2, rtol=1e-7)


@pytest.mark.parametrize("dtype", [*FLOATS, np.float64], ids=lambda t: t.name)
def test_histograms_of_points_count_as_numpys(dtype: DType) -> None:
    x, y = normal(dtype, (40,)), normal(dtype, (40,), 1)
    wide = [exact(v) for v in (x, y)]
    edges = [-2.0, -0.5, 0.25, 2.0]
    for bins in (edges, [edges, edges[:3]]):
        found = np.histogram2d(x, y, np.asarray(bins, dtype) if bins is edges else bins)
        theirs = numpy.histogram2d(*wide, bins)
        assert found[0].dtype is np.int64
        assert [f.tolist() for f in found] == [t.tolist() for t in theirs]
    points = np.stack([x, y, x], -1)
    counts, lines = np.histogramdd(points, [edges] * 3)
    assert counts.tolist() == numpy.histogramdd((*wide, wide[0]), [edges] * 3)[0].tolist()
    assert len(lines) == 3


def test_histogramdd_takes_numpys_arguments() -> None:
    draw = numpy.random.default_rng(7)
    sample, weights = draw.standard_normal((30, 2)), draw.random(30)
    for options in (
        {"bins": 4},
        {"bins": (2, 3)},
        {"bins": 3, "range": ((-1, 1), None)},
        {"density": True},
        {"weights": weights},
        {"weights": weights, "density": True},
    ):
        agree("histogramdd", sample, **options)
