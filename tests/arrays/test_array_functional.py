"""Python functions over arrays, comparisons of whole arrays, and window functions."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy
import pytest
from tests.support.parameters import each_of
from tests.support.words import assert_same

import neuronsim as np
from neuronsim.errors import InvalidArgument, UnsupportedType

pytestmark = pytest.mark.isa_independent


@each_of("axis", [0, 1, 2, -1])
@each_of("function", [lambda v: v[::2], lambda v: v[0], lambda v: v.reshape(1, -1)])
def test_apply_along_axis_is_numpys(axis: int, function: Any) -> None:
    data = numpy.arange(24.0).reshape(2, 3, 4)
    found = np.apply_along_axis(function, axis, np.asarray(data, "bfloat16"))
    expected = numpy.apply_along_axis(function, axis, data)
    assert found.dtype is np.bfloat16
    assert found.shape == expected.shape
    assert found.tolist() == expected.tolist()


def test_apply_along_axis_hands_on_further_arguments() -> None:
    found = np.apply_along_axis(lambda v, n, plus: v[n] + plus, 0, np.ones((3, 2)), 1, plus=2)
    assert found.tolist() == [3.0, 3.0]
    with pytest.raises(InvalidArgument, match="no vectors"):
        np.apply_along_axis(lambda v: v, 0, np.ones((3, 0)))


def test_apply_over_axes_keeps_the_axes_that_are_taken_away() -> None:
    data = numpy.arange(24.0).reshape(2, 3, 4)
    found = np.apply_over_axes(np.sum, np.asarray(data), (0, -1))
    assert found.tolist() == numpy.apply_over_axes(numpy.sum, data, (0, -1)).tolist()
    with pytest.raises(InvalidArgument, match="axes"):
        np.apply_over_axes(lambda x, axis: np.sum(x), np.asarray(data), (0,))


def test_vectorize_calls_the_function_with_python_numbers() -> None:
    seen: list[Any] = []

    def larger(a: float, b: int) -> float:
        seen.append((a, b))
        return a if a > b else b + 0.5

    found = np.vectorize(larger)(np.asarray([1.0, 4.0], "float16"), numpy.array([[2], [3]]))
    assert found.dtype is np.float32
    assert found.tolist() == [[2.5, 4.0], [3.5, 4.0]]
    assert {type(v) for pair in seen for v in pair} == {float, int}


def test_vectorize_rounds_each_result_once_to_otypes() -> None:
    found = np.vectorize(lambda x: x + 2**-8 + 2**-40, otypes=["bfloat16"])(np.ones(2, dtype="float64"))
    assert found.dtype is np.bfloat16
    assert found.tolist() == [1.0078125] * 2  # C1: through float32 it would be 1
    halves = np.vectorize(lambda x, name: (x / 2, name), otypes=["float32", "int32"], excluded=["name"])
    half, names = halves(np.asarray([2, 4]), name=7)
    assert (half.tolist(), names.tolist(), names.dtype) == ([1.0, 2.0], [7, 7], np.int32)
    assert np.vectorize(lambda x: x, otypes=["float32"])(np.zeros(0)).shape == (0,)
    with pytest.raises(InvalidArgument, match="otypes"):
        np.vectorize(lambda x: x)(np.zeros(0))


def test_vectorize_decorates() -> None:
    @np.vectorize
    def step(x: float) -> int:
        """Whether it is positive."""
        return int(x > 0)

    assert step.__doc__ == "Whether it is positive."
    assert step([-1.0, 2.0]).tolist() == [0, 1]


@each_of("dtype", ["float32", "bfloat16", "float8_e5m2", "int32", "float64", "complex64"])
def test_array_equal_is_of_shapes_and_values(dtype: str) -> None:
    x = np.asarray([1, 2, 3], dtype)
    assert np.array_equal(x, [1, 2, 3])
    assert not np.array_equal(x, [1, 2, 4])
    assert not np.array_equal(x, [[1, 2, 3]])
    assert np.array_equiv(x, [[1, 2, 3], [1, 2, 3]])
    assert not np.array_equiv(x, [1, 2])
    assert np.allclose(x, x)
    assert not np.allclose(x, x + 1)


def test_NaN_equals_NaN_only_where_it_is_asked_for() -> None:
    x = np.asarray([1.0, numpy.nan], "bfloat16")
    assert not np.array_equal(x, x)
    assert np.array_equal(x, x, equal_nan=True)
    assert not np.array_equal(x, [1.0, 2.0], equal_nan=True)
    assert not np.allclose(x, x)
    assert np.allclose(x, x, equal_nan=True)


@each_of("name", ["bartlett", "blackman", "hamming", "hanning"])
@each_of("count", [0, 1, 2, 9])
def test_windows_H1_are_numpys_rounded_once(name: str, count: int, restored_default: None) -> None:
    for dtype in ("float32", "bfloat16"):
        np.set_default_dtype(dtype)
        expected = np.asarray(getattr(numpy, name)(count), dtype=dtype)
        assert_same(getattr(np, name)(count), expected)


def test_kaiser_and_i0_H1() -> None:
    assert np.kaiser(7, 4.5).tobytes() == numpy.kaiser(7, 4.5).astype("float32").tobytes()
    x = np.asarray([0.0, 1.5, -3.0], "float16")
    exact = numpy.i0(numpy.array([0.0, 1.5, -3.0]))
    assert np.i0(x).tobytes() == exact.astype("float16").tobytes()
    with pytest.raises(UnsupportedType, match="number of points"):
        np.hanning(2.5)  # type: ignore[arg-type]


def test_sub_namespaces_are_imported_by_their_names_and_loaded_on_first_use() -> None:
    program = """
import sys
import neuronsim
assert "numpy.testing" not in sys.modules
import neuronsim.linalg
from neuronsim.random import default_rng
from neuronsim.testing import assert_allclose
assert neuronsim.linalg.norm is neuronsim.arrays.linalg.norm
assert default_rng is neuronsim.random.default_rng
import neuronsim.arrays.random
assert neuronsim.arrays.random is neuronsim.random
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("axis", [0, -1, (0, -1)])
def test_apply_over_axes_of_an_array_without_axes(axis: Any) -> None:
    found = np.apply_over_axes(lambda x, axis: x * 2, np.asarray(1.5), axis)
    theirs = numpy.apply_over_axes(lambda x, axis: x * 2, numpy.asarray(1.5), axis)
    assert (found.shape, found.item()) == (theirs.shape, theirs.item())
    with pytest.raises(IndexError):
        np.apply_over_axes(lambda x, axis: x, np.asarray(1.5), 1)
