"""Sets: distinct elements by value, of every type."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from tests.support.parameters import each_of

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import InvalidArgument

pytestmark = pytest.mark.isa_independent  # it moves bits and compares their order

TYPES = list(DTYPES.values())


def drawn(dtype: DType, shape: tuple[int, ...], seed: int = 0, *, with_nan: bool = True) -> np.Array:
    """Few values; both zeros and NaN among floats."""
    rng = numpy.random.default_rng(seed)
    if dtype.kind in ("float", "complex"):
        values = [-2.0, -0.0, 0.0, 1.0, 1.5, 3.0, *([numpy.nan] if with_nan else [])]
        x = rng.choice(values, shape)
        return np.asarray(
            x + 1j * rng.choice([0.0, 1.0], shape) if dtype.kind == "complex" else x, dtype
        )
    return np.asarray(rng.integers(0, 2 if dtype.kind == "bool" else 6, shape), dtype=dtype)


def exact(x: np.Array) -> Any:
    """In a type of NumPy that has all values of ours, and compares them."""
    own = numpy.asarray(x)
    return own.astype(numpy.float64) if x.dtype.exponent_bits else own


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.name)
@pytest.mark.parametrize("shape", [(30,), (4, 6), (0,), ()], ids=str)
def test_unique_functions_are_array_api_stricts(dtype: DType, shape: tuple[int, ...]) -> None:
    strict = pytest.importorskip("array_api_strict")
    x = drawn(dtype, shape)
    theirs = strict.unique_all(strict.asarray(exact(x)))
    found = np.unique_all(x)
    assert found._fields == theirs._fields
    for ours, other in zip(found, theirs, strict=True):
        assert ours.shape == other.shape
        numpy.testing.assert_array_equal(exact(ours), numpy.asarray(other))
    assert found.values.dtype is dtype
    assert {a.dtype.name for a in found[1:]} == {"int64"}
    # Each of the others gives a part of that, and its elements are those of `x`, bit for bit.
    assert found.values.tobytes() == x.reshape(-1)[found.indices].tobytes()
    counts, inverse = np.unique_counts(x), np.unique_inverse(x)
    for part in (counts.values, inverse.values, np.unique_values(x)):
        assert part.tobytes() == found.values.tobytes()
    assert counts.counts.tolist() == found.counts.tolist()
    assert inverse.inverse_indices.tolist() == found.inverse_indices.tolist()


@pytest.mark.parametrize("equal_nan", [True, False])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_unique_is_numpys(equal_nan: bool, axis: int | None) -> None:
    for dtype in TYPES:
        x = drawn(dtype, (12, 2), seed=1, with_nan=axis is None)
        options = {"return_index": True, "return_inverse": True, "return_counts": True, "axis": axis}
        if dtype.kind == "complex" and axis is None:
            numbers = exact(x)  # NumPy's order of complex NaN is its own
            x = np.asarray(numbers[~numpy.isnan(numbers)])
        # With -0 as +0: NumPy compares the bytes of rows.
        theirs = numpy.unique(exact(x) + exact(x).dtype.type(0), equal_nan=equal_nan, **options)
        found = np.unique(x, equal_nan=equal_nan, **options)
        for ours, other in zip(found, theirs, strict=True):
            assert ours.shape == other.shape
            numpy.testing.assert_array_equal(exact(ours), other)
        alone = np.unique(x, axis=axis, equal_nan=equal_nan)
        assert alone.dtype is dtype
        assert alone.tobytes() == found[0].tobytes()


def test_unique_of_rows_with_nan() -> None:
    x = np.asarray([[1.0, numpy.nan], [1.0, numpy.nan], [0.0, -0.0], [-0.0, 0.0]], dtype="bfloat16")
    assert np.unique(x, axis=0).shape == (2, 2)
    assert np.unique(x, axis=0, equal_nan=False).shape == (3, 2)
    assert np.unique(np.zeros((0, 3)), axis=0).shape == (0, 3)
    assert np.unique(np.zeros((2, 0)), axis=0).shape == (1, 0)
    with pytest.raises(InvalidArgument, match="axis"):
        np.unique(x, axis=2)


@each_of("dtype", TYPES, ids=lambda t: t.name)
@each_of("invert", [False, True])
def test_isin_compares_values(dtype: DType, invert: bool) -> None:
    x, known = drawn(dtype, (5, 7), seed=2), drawn(dtype, (3,), seed=3)
    found = np.isin(x, known, invert=invert)
    assert found.dtype.name == "bool"
    expected = numpy.array([any(v == k for k in known.tolist()) for v in x.reshape(-1).tolist()])
    assert found.tolist() == (expected.reshape(5, 7) != invert).tolist()


def test_isin_takes_numbers_and_nan_equals_none() -> None:
    assert np.isin(3, np.asarray([1, 3])).tolist() is True
    assert np.isin(np.asarray([1, 3]), 3).tolist() == [False, True]
    assert np.isin(np.asarray([numpy.nan]), np.asarray([numpy.nan])).tolist() == [False]
    assert np.isin(np.asarray([0.0, -0.0]), np.asarray([-0.0])).tolist() == [True, True]
    assert np.isin(np.asarray([1.5, 2.0], dtype="float16"), np.asarray([2])).tolist() == [False, True]
    assert np.isin(np.zeros((2, 0)), [1.0]).shape == (2, 0)
    assert np.isin(np.ones(2), np.zeros(0)).tolist() == [False, False]


@each_of("dtype", TYPES, ids=lambda t: t.name)
@each_of("name", ["intersect1d", "union1d", "setdiff1d", "setxor1d"])
def test_set_operations_are_numpys(name: str, dtype: DType) -> None:
    a, b = drawn(dtype, (2, 3), seed=4, with_nan=False), drawn(dtype, (5,), seed=6, with_nan=False)
    found = getattr(np, name)(a, b)
    assert found.dtype is dtype
    numpy.testing.assert_array_equal(exact(found), getattr(numpy, name)(exact(a), exact(b)))
    none = getattr(np, name)(a, b[:0])
    numpy.testing.assert_array_equal(exact(none), getattr(numpy, name)(exact(a), exact(b[:0])))


def test_set_operations_take_the_common_type() -> None:
    a, b = np.asarray([3, 1, 1], dtype="int8"), np.asarray([1.0, 0.5], dtype="bfloat16")
    for function in (np.intersect1d, np.union1d, np.setdiff1d, np.setxor1d):
        assert function(a, b).dtype is np.bfloat16
    values, first, second = np.intersect1d([5, 2, 2, 7], [2, 9, 5], return_indices=True)
    assert (values.tolist(), first.tolist(), second.tolist()) == ([2, 5], [1, 0], [0, 2])
    assert np.setdiff1d([4, 1, 4, 2], [2], assume_unique=True).tolist() == [4, 1, 4]


def test_zeros_are_one_element_the_first() -> None:
    x = np.asarray([-0.0, 0.0], dtype="float16")
    assert np.unique_values(x).tobytes() == np.unique(x).tobytes() == b"\x00\x80"
