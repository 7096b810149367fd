"""Products of the main namespace: shapes as NumPy's, values by the twin of M2 (M1, M2, M4, M7, R7)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy
import pytest
from tests.support.draws import normal
from tests.support.parameters import each_of
from tests.support.words import FLOATS, table, word_list

import neuronsim as np
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.reference import sums


def integers(shape: tuple[int, ...], seed: int = 0) -> Any:
    return numpy.random.default_rng(seed).integers(0, 4, shape)


def same(found: np.Array, expected: Any, dtype: str) -> None:
    assert found.shape == expected.shape
    assert found.dtype.name == dtype
    assert found.tolist() == expected.tolist()


# ---- shapes and small integers, exact in every type, as NumPy's --------------------------------------


def test_views_that_are_not_contiguous_give_the_same() -> None:
    a, b = integers((6, 4), 1), integers((6, 4), 2)
    x, y = (np.asarray(v).astype("bfloat16") for v in (a, b))
    same(np.tensordot(x[::2], y[1::2], (0, 0)), numpy.tensordot(a[::2], b[1::2], (0, 0)), "bfloat16")
    same(np.vecdot(x[::-1], y, axis=0), numpy.vecdot(a[::-1], b, axis=0), "bfloat16")


def test_scalars_multiply_and_take_the_arrays_type() -> None:
    x = np.asarray([1.0, 2.0], "bfloat16")
    for function in (np.dot, np.inner, np.kron):
        same(function(x, 2), numpy.array([2.0, 4.0]), "bfloat16")
        same(function(3, x), numpy.array([3.0, 6.0]), "bfloat16")
    assert np.dot(np.asarray(2), np.asarray(3)).item() == 6


def test_complex_numbers_are_conjugated_where_numpy_does() -> None:
    rng = numpy.random.default_rng(3)
    a, b = (rng.integers(-3, 4, (2, 3)) + 1j * rng.integers(-3, 4, (2, 3)) for _ in range(2))
    for name in ("vdot", "vecdot", "inner", "outer", "kron"):
        same(getattr(np, name)(a, b), getattr(numpy, name)(a, b), "complex128")
    same(np.vecmat(a[0, :2], b), numpy.vecmat(a[0, :2], b), "complex128")
    same(np.matvec(a, b[0]), numpy.matvec(a, b[0]), "complex128")


@each_of(
    ("call", "said"),
    [
        (lambda x: np.tensordot(x, x, 1), "differ in length"),
        (lambda x: np.tensordot(x, x, 3), "no 3 axes"),
        (lambda x: np.tensordot(x, x, ((0, 0), (0, 1))), "each once"),
        (lambda x: np.tensordot(x, x, ((0, 1), (0,))), "each once"),
        (lambda x: np.tensordot(x, x, ((0,), (0,), (0,))), "a pair"),
        (lambda x: np.tensordot(x, x, 1.5), "a pair"),
        (lambda x: np.vecdot(x, x[:, :2]), "do not contract"),
        (lambda x: np.vecdot(x, np.ones((3, 3))), "do not broadcast"),
        (lambda x: np.vecdot(x, x, axis=2), "axis 2"),
        (lambda x: np.cross(x[:, :2], x[:, :2]), "2 elements, not 3"),
        (lambda x: np.matvec(x[0], x[0]), "at least 2 axes"),
        (lambda x: np.vecmat(x[0], x[0]), "at least 2 axes"),
        (lambda x: np.matrix_transpose(x[0]), "at least 2 axes"),
        (lambda x: np.diagonal(x, axis1=0, axis2=-2), "are the same"),
        (lambda x: np.trace(x[0]), "at least 2 axes"),
        (lambda x: np.dot(x, x), "differ in length"),
        (lambda x: np.matmul(x, 2), "use \\*"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        call(np.ones((2, 3)))


# ---- values by the twin ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_M2_tensordot_sums_in_the_order_in_which_axes_are_listed(dtype: str) -> None:
    a, b = normal(dtype, (2, 20, 13), 1), normal(dtype, (13, 20, 2), 2)
    left, right = table(a), table(b)
    results = []
    for axes in (((1, 2), (1, 0)), ((2, 1), (0, 1))):
        found = np.tensordot(a, b, axes=axes)
        rows = left.transpose(0, *axes[0]).reshape(2, -1).tolist()
        columns = right.transpose(2, *axes[1]).reshape(2, -1).tolist()
        assert word_list(found) == [sums.dot(dtype, dtype, dtype, r, c) for r in rows for c in columns]
        results.append(word_list(found))
    if dtype == "float32":  # the control: the order is seen
        assert results[0] != results[1]


@pytest.mark.parametrize("dtype", FLOATS)
def test_M4_vecdot_is_rounded_once(dtype: str) -> None:
    a, b = normal(dtype, (3, 150), 3), normal(dtype, (150,), 4)
    rows, other = table(a).tolist(), word_list(b)
    assert word_list(np.vecdot(a, b)) == [sums.dot(dtype, dtype, dtype, r, other) for r in rows]
    assert word_list(np.vdot(a[0], b)) == word_list(np.inner(a[0], b)) == word_list(np.dot(a[0], b))
    assert word_list(np.vdot(a[0], b)) == [sums.dot(dtype, dtype, dtype, rows[0], other)]


@pytest.mark.parametrize("dtype", FLOATS)
def test_M4_dtype_is_what_psum_is_rounded_to(dtype: str) -> None:
    a, b = normal(dtype, (2, 150), 5), normal(dtype, (150, 2), 6)
    pairs = list(itertools.product(table(a).tolist(), table(b).T.tolist()))
    for result in ("float32", "bfloat16"):
        found = np.matmul(a, b, dtype=result)
        assert found.dtype.name == result
        assert word_list(found) == [sums.dot(dtype, dtype, result, r, c) for r, c in pairs]


def test_M4_dtype_of_other_kinds() -> None:
    x = np.asarray([[100, 100]], "int8")
    assert np.matmul(x, x.T, dtype="float32").tolist() == [[20000]]
    assert np.matmul(x, x.T, dtype="int64").tolist() == [[20000]]
    assert np.matmul(x, x.T, dtype="complex64").tolist() == [[20000]]
    assert np.matmul(x.astype("bfloat16"), x.T.astype("bfloat16"), dtype="float64").item() == 20000
    with pytest.raises(UnsupportedType, match="is not rounded to int32"):
        np.matmul(np.ones((2, 2)), np.ones((2, 2)), dtype="int32")


def test_out_takes_the_result_and_is_returned() -> None:
    x = np.asarray([[1.0, 2.0], [3.0, 4.0]])
    for call, expected in (
        (lambda out: np.matmul(x, x, out=out), [[7, 10], [15, 22]]),
        (lambda out: np.dot(x, x, out), [[7, 10], [15, 22]]),
        (lambda out: np.outer(x[0], x[1], out), [[3, 4], [6, 8]]),
    ):
        out = np.asarray(numpy.zeros((2, 2)), dtype="bfloat16")
        assert call(out) is out
        assert (out.tolist(), out.dtype.name) == (expected, "bfloat16")
    with pytest.raises(UnsupportedType, match="same_kind"):
        np.matmul(x, x, out=np.asarray(numpy.zeros((2, 2), int)))


def test_mixed_host_and_device_types_are_converted_first() -> None:
    a = np.asarray([1.5, 2.0], "bfloat16")
    assert np.dot(a, numpy.array([1.0, 2.0])).dtype is np.float64
    assert np.dot(a, numpy.array([1j, 2.0])).tolist() == 4 + 1.5j


# ---- data movement, traces ---------------------------------------------------------------------------


def test_R2_trace_is_a_sum_rounded_once() -> None:
    x = normal("bfloat16", (40, 40), 11)
    diagonal = word_list(np.diagonal(x))
    assert word_list(np.trace(x)) == [sums.reduce_float("add", "bfloat16", diagonal, 0)]
    assert word_list(np.linalg.trace(x)) == word_list(np.trace(x))
    wide = word_list(np.diagonal(x).astype("float32"))
    assert word_list(np.trace(x, dtype="float32")) == [sums.reduce_float("add", "float32", wide, 0)]
    assert np.trace(np.ones((3, 3), "int8")).dtype is np.int64
    assert np.trace(np.ones((3, 3), "uint8")).dtype is np.uint64
    assert np.linalg.trace(np.full((2, 2, 2), 100, "int8"), dtype="int8").tolist() == [-56, -56]
    assert np.linalg.trace(np.ones((2, 3, 4)), offset=2).tolist() == [2, 2]
    assert np.trace(np.zeros((0, 3))).tolist() == 0
    same(np.trace(np.ones((2, 3, 4))), numpy.trace(numpy.ones((2, 3, 4))), "float32")
