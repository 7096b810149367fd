"""Assertions on arrays: exact values, bits and units in the last place."""

from __future__ import annotations

import warnings
from typing import Any

import numpy
import pytest
from tests.support.words import of_words

import neuronsim as np
from neuronsim import testing
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.reference import formats

pytestmark = pytest.mark.isa_independent

FLOATS = [t for t in DTYPES.values() if t.exponent_bits]
IDS = {"ids": lambda t: t.name}
LARGEST = 2**63 - 1


# ---- NumPy's assertions --------------------------------------------------------------------------

X = np.asarray([1.0, 0.3, 2.5], np.bfloat16)
EXACT = [1.0, 0.30078125, 2.5]


@pytest.mark.parametrize(
    ("name", "desired", "other"),
    [
        ("assert_equal", EXACT, [1.0, 0.3, 2.5]),
        ("assert_array_equal", EXACT, [1.0, 0.3, 2.5]),
        ("assert_allclose", numpy.array(EXACT) * (1 + 5e-8), [1.0, 0.3, 2.5]),
        ("assert_almost_equal", [1.0, 0.30078125000001, 2.5], [1.0, 0.3, 2.5]),
        ("assert_array_almost_equal", [1.0, 0.3007813, 2.5], [1.0, 0.3, 2.5]),
        ("assert_array_less", [2, 1, 3], [1, 1, 3]),
    ],
)
def test_numpys_assertions_compare_exact_values(name: str, desired: Any, other: Any) -> None:
    check = getattr(testing, name)
    for form in (list, numpy.array, lambda v: np.asarray(numpy.array(v, float))):
        check(X, form(desired))
        with pytest.raises(AssertionError):
            check(X, form(other))


@pytest.mark.parametrize("dtype", list(DTYPES.values()), **IDS)
def test_every_type_equals_itself_and_nothing_else(dtype: DType) -> None:
    x = np.asarray([0, 1, 1], dtype)
    for check in (testing.assert_array_equal, testing.assert_bits_equal, testing.assert_equal):
        check(x, np.asarray(x, copy=True))
        with pytest.raises(AssertionError):
            check(x, np.asarray([0, 1, 0], dtype))


def test_shapes_nan_and_nested_values() -> None:
    nan = np.asarray([float("nan"), 1.0], np.float16)
    testing.assert_equal(nan, nan)
    testing.assert_allclose(nan, nan)
    with pytest.raises(AssertionError):
        testing.assert_allclose(nan, nan, equal_nan=False)
    with pytest.raises(AssertionError, match="shapes"):
        testing.assert_array_equal(np.ones(2), np.ones(3))
    testing.assert_equal({"a": [X, 1]}, {"a": [numpy.array(EXACT), 1]})
    with pytest.raises(AssertionError):
        testing.assert_equal({"a": [X]}, {"a": [numpy.array([1.0, 0.3, 2.5])]})
    testing.assert_allclose(X, 1.0, atol=np.asarray(2.0))
    testing.assert_approx_equal(np.asarray(1.5), 1.5)


def test_assertions_of_no_arrays() -> None:
    with testing.assert_raises(InvalidArgument):
        np.ones(-1)
    with testing.assert_raises_regex(ValueError, "negative"):
        np.ones(-1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of NumPy 2.4
        with testing.assert_warns(UserWarning):
            warnings.warn("w", UserWarning, stacklevel=1)
    assert set(testing.__all__) <= set(dir(testing))


# ---- bits ----------------------------------------------------------------------------------------


def test_bits_tell_zeros_nans_and_types_apart() -> None:
    zeros = np.asarray([0.0, -0.0], np.bfloat16)
    with pytest.raises(AssertionError) as raised:
        testing.assert_bits_equal(zeros, np.asarray([0.0, 0.0], np.bfloat16))
    assert str(raised.value) == (
        "1 of 2 elements of bfloat16[2] differ in their bits:\n  [1]: 0x8000 (-0.0), not 0x0000 (0.0)"
    )
    quiet, other = (of_words([w], np.bfloat16) for w in (0x7FC0, 0x7FC1))
    testing.assert_bits_equal(quiet, quiet)
    testing.assert_bits_equal(np.zeros((0, 1)), np.zeros((0, 1)))
    for x, y, said in (
        (quiet, other, "0x7fc0"),
        (zeros, zeros.astype(np.float16), r"bfloat16\[2\], not float16\[2\]"),
        (np.zeros(0), np.zeros((0, 1)), r"float32\[0\], not float32\[0,1\]"),
        (np.asarray([1 + 0j]), np.asarray([1 + 1j]), r"\[0\]: 0x3f800000_00000000"),
        (np.asarray(1.0), np.asarray(2.0), r"\[\]: 0x"),
    ):
        with pytest.raises(AssertionError, match=said):
            testing.assert_bits_equal(x, y)


def test_the_report_is_short_and_has_places() -> None:
    x = np.zeros((3, 4), np.float32)
    with pytest.raises(AssertionError) as raised:
        testing.assert_bits_equal(x, x + 1)
    lines = str(raised.value).splitlines()
    assert lines[0].startswith("12 of 12 ")
    assert len(lines) == 6
    assert lines[5] == "  [1, 0]: 0x00000000 (0.0), not 0x3f800000 (1.0)"


# ---- units in the last place ---------------------------------------------------------------------


def grid(dtype: DType) -> tuple[np.Array, list[int]]:
    """Encodings of a type in the order of their values, and the place of each by exact decoding."""
    count = 1 << dtype.bits
    step = max(1, count // 2**11)
    shift = 8 * dtype.itemsize - dtype.bits
    encodings = [(w << shift) for w in range(0, count, step)]
    numbers = [(formats.decode(dtype.name, e), e) for e in encodings]
    finite = [(n, e) for n, e in numbers if n.kind == "finite"]
    sign = 1 << (8 * dtype.itemsize - 1)
    places = [-((e & ~sign) >> shift) if n.negative else e >> shift for n, e in finite]
    values = [-n.magnitude if n.negative else n.magnitude for n, _ in finite]
    ordered = sorted(zip(values, places, strict=True))
    assert [p for _, p in ordered] == sorted(places)  # the place is monotonic in the value
    return of_words([e for _, e in finite], dtype), places


@pytest.mark.parametrize("dtype", FLOATS, **IDS)
def test_ulps_are_steps_on_the_types_own_grid(dtype: DType) -> None:
    x, places = grid(dtype)
    order = numpy.random.default_rng(0).permutation(x.size)
    found = testing.ulp_diff(x, x[order])
    assert found.dtype is np.int64
    expected = [abs(p - places[i]) for p, i in zip(places, order.tolist(), strict=True)]
    assert found.tolist() == expected


@pytest.mark.parametrize("dtype", [t for t in FLOATS if t.device], **IDS)
def test_a_step_of_nextafter_is_one_ulp(dtype: DType) -> None:
    x = np.asarray([1.0, -1.0, 0.0, 1.9], dtype)
    above = np.nextafter(x, np.asarray([4.0, 4.0, 4.0, 4.0], dtype))
    assert testing.ulp_diff(x, above).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("dtype", [*FLOATS, np.float64], **IDS)
def test_zeros_and_nan(dtype: DType) -> None:
    a = np.asarray([0.0, -0.0, float("nan"), float("nan"), 1.0], dtype)
    b = np.asarray([-0.0, 0.0, float("nan"), 1.0, float("nan")], dtype)
    assert testing.ulp_diff(a, b).tolist() == [0, 0, 0, LARGEST, LARGEST]


def test_float64_saturates_at_the_largest_count() -> None:
    x = numpy.array([numpy.finfo(float).max, 1.0])
    assert testing.ulp_diff(-x, x).tolist() == [LARGEST, 2 * 0x3FF0000000000000]
    assert testing.ulp_diff(x, numpy.nextafter(x, 0)).tolist() == [1, 1]


def test_numbers_broadcast_and_types() -> None:
    x = np.asarray([[1.0], [1.0078125]], np.bfloat16)
    assert testing.ulp_diff(x, 1.0).tolist() == [[0], [1]]
    assert testing.ulp_diff(1, x).tolist() == [[0], [1]]
    assert testing.ulp_diff(x, x[:, 0]).tolist() == [[0, 1], [1, 0]]
    assert testing.ulp_diff(np.zeros((0, 2)), np.zeros((0, 2))).shape == (0, 2)
    assert testing.ulp_diff(x.T[:, ::-1], x.T).tolist() == [[1, 1]]
    for wrong, error, said in (
        ((x, np.ones((2, 1))), UnsupportedType, "bfloat16 and float32"),
        (([1], [2]), UnsupportedType, "int64"),
        ((np.ones(2), np.ones(3)), InvalidArgument, "broadcast"),
    ):
        with pytest.raises(error, match=said):
            testing.ulp_diff(*wrong)


def test_assertions_of_ulps() -> None:
    a, b = np.asarray([1.0, 2.0], np.bfloat16), np.asarray([1.0078125, 2.03125], np.bfloat16)
    assert testing.assert_array_max_ulp(a, b, 2).tolist() == [1, 2]
    assert testing.assert_max_ulp(a, b, maxulp=2).tolist() == [1, 2]
    testing.assert_array_almost_equal_nulp(a, b, 2)
    for check in (
        testing.assert_array_max_ulp,
        testing.assert_max_ulp,
        testing.assert_array_almost_equal_nulp,
    ):
        with pytest.raises(
            AssertionError, match=r"1 of 2 .* 1 ulp of bfloat16 .*\[1\]: 2.0 and 2.03, 2 ulp"
        ):
            check(a, b)
    with pytest.raises(AssertionError, match="float32"):
        testing.assert_array_max_ulp(a, b, 2, dtype=np.float32)
    f = numpy.float32([1, 2])
    assert testing.assert_array_max_ulp(f, numpy.nextafter(f, 9)).tolist() == [1, 1]
