"""Matrix products of arrays: shapes as NumPy's, values by M1, M2, M4 and M7."""

from __future__ import annotations

import itertools

import numpy
import pytest

import neuronsim as np
from neuronsim.dtypes import DTYPES
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.reference import sums

NARROW = ("bfloat16", "float16", "tfloat32", "float32", "float8_e4m3", "float8_e5m2", "float8_e3m4")


def words(x: np.Array) -> list[int]:
    flat = numpy.ascontiguousarray(x.bits.data).reshape(-1)
    return [int(w) for w in flat.view(f"u{x.dtype.itemsize}")]


def sample(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.Array:
    return np.asarray(numpy.random.default_rng(seed).standard_normal(shape), dtype=dtype)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3,), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((2, 3), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((2, 3), (5, 3, 4)),
        ((5, 1, 2, 3), (7, 3, 4)),
        ((5, 2, 3), (3,)),
        ((3,), (5, 3, 4)),
        ((2, 0), (0, 4)),
        ((0, 3), (3, 4)),
    ],
    ids=str,
)
def test_shapes_are_numpys(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    rng = numpy.random.default_rng(0)
    a, b = (rng.integers(-4, 5, s).astype(numpy.float32) for s in (left, right))
    found = np.matmul(np.asarray(a), np.asarray(b))
    assert found.shape == numpy.matmul(a, b).shape
    assert found.tolist() == numpy.matmul(a, b).tolist()
    assert (np.asarray(a) @ b).tolist() == (a @ np.asarray(b)).tolist() == found.tolist()


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        ((2, 3), (4, 2), r"float32\[2,3\] and float32\[4,2\]"),
        ((3,), (2,), "do not contract"),
        ((), (3,), "use \\*"),
        ((2, 2, 3), (3, 3, 4), "do not broadcast"),
    ],
    ids=str,
)
def test_shapes_that_do_not_fit(left: tuple[int, ...], right: tuple[int, ...], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        np.matmul(np.ones(left), np.ones(right))


@pytest.mark.parametrize("name", NARROW)
def test_M2_M4_one_type_equals_the_twin(name: str) -> None:
    a, b = sample((2, 200), name, 1), sample((200, 3), name, 2)
    rows = numpy.array(words(a)).reshape(2, 200)
    columns = numpy.array(words(b)).reshape(200, 3).T
    expected = [sums.dot(name, name, name, r.tolist(), c.tolist()) for r in rows for c in columns]
    found = a @ b
    assert found.dtype.name == name
    assert words(found) == expected


@pytest.mark.parametrize(("left", "right"), list(itertools.combinations(NARROW, 2)))
def test_M1_mixed_pairs_are_products_of_the_exact_values(left: str, right: str) -> None:
    a, b = sample((1, 150), left, 3), sample((150, 1), right, 4)
    result = (a @ b).dtype.name
    # Every operand is exact in the type of both, so converting first changes no product.
    assert words(a @ b) == [sums.dot(left, right, result, words(a), words(b))]


def test_M1_integers_beside_floats_are_converted_first() -> None:
    a, b = np.asarray([[1, 2], [3, 4]], dtype="int32"), sample((2, 2), "bfloat16")
    assert (a @ b).tobytes() == (a.astype("bfloat16") @ b).tobytes()


@pytest.mark.parametrize("name", ["int8", "uint8", "int32", "uint64"])
def test_M7_integer_products_wrap(name: str) -> None:
    info = numpy.iinfo(name)
    a = numpy.array([[info.max, 3], [info.min, 7]], name)
    expected = (a.astype(object) @ a.astype(object)) % (1 << info.bits)
    found = numpy.asarray(np.asarray(a) @ np.asarray(a)).astype(f"u{info.bits // 8}")
    assert found.astype(object).tolist() == expected.tolist()


def test_M7_bool_products_are_an_or_of_ands() -> None:
    a = numpy.array([[True, False], [True, True]])
    assert (np.asarray(a) @ np.asarray(a)).tolist() == [[True, False], [True, True]]


def test_M6_sequential_profile_is_one_tile() -> None:
    a, b = sample((1, 300), "float32", 5), sample((300, 1), "float32", 6)
    with np.use_profile(accumulate="sequential"):
        found = a @ b
    assert words(found) == [sums.dot("float32", "float32", "float32", words(a), words(b), tile=300)]
    assert DTYPES["float32"] is found.dtype


def test_float8_e4m3fn_products_are_refused() -> None:
    with pytest.raises(UnsupportedType, match="float8_e4m3fn"):
        np.ones((2, 2), dtype="float8_e4m3fn") @ np.ones((2, 2), dtype="float8_e4m3fn")
