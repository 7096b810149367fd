"""Arrays as a user meets them: NumPy's results within the formats' precision, C1 and C8."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import neuronsim as np
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument

pytestmark = pytest.mark.isa_independent

FLOATS = [np.float32, np.bfloat16, np.float16]


@pytest.fixture
def restored_default() -> Iterator[None]:
    before = np.default_dtype()
    yield
    np.set_default_dtype(before)


def random(shape: tuple[int, ...], dtype: DType, seed: int = 0) -> np.Array:
    return np.asarray(numpy.random.default_rng(seed).standard_normal(shape), dtype=dtype)


def exact(x: np.Array) -> numpy.ndarray:
    return numpy.array(x.tolist())


# ---- composites against float64 ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
@pytest.mark.parametrize("shape", [(5,), (3, 1), (4, 130), (2, 3, 700)])
def test_R7_softmax_is_within_its_rounding_of_float64(shape: tuple[int, ...], dtype: DType) -> None:
    x = random(shape, dtype)
    powers = numpy.exp(exact(x) - exact(x).max(axis=-1, keepdims=True))
    expected = powers / powers.sum(axis=-1, keepdims=True)
    # Half a unit of the type for the one rounding, and the float32 steps before it.
    bound = (dtype.eps / 2 + 32 * np.float32.eps) * expected + 2.0**-25
    found = np.nn.softmax(x)
    assert (found.dtype, found.shape) == (dtype, shape)
    assert (abs(exact(found) - expected) <= bound).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
@pytest.mark.parametrize("shape", [(5,), (4, 130), (2, 3, 700)])
def test_R7_layer_norm_is_within_its_rounding_of_float64(shape: tuple[int, ...], dtype: DType) -> None:
    x, weight, bias = random(shape, dtype), random(shape[-1:], dtype, 1), random(shape[-1:], dtype, 2)
    wide = exact(x)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    scaled = centred / numpy.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    expected = scaled * exact(weight) + exact(bias)
    steps = abs(scaled * exact(weight)) + abs(exact(bias)) + abs(exact(weight))
    bound = dtype.eps / 2 * abs(expected) + 32 * np.float32.eps * steps + 2.0**-25
    found = np.nn.layer_norm(x, weight, bias)
    assert (found.dtype, found.shape) == (dtype, shape)
    assert (abs(exact(found) - expected) <= bound).all()


def test_R7_softmax_survives_large_logits() -> None:
    x = np.asarray([1e30, 1e30, -1e30], dtype=np.bfloat16)
    assert np.nn.softmax(x).tolist() == [0.5, 0.5, 0.0]


def test_R7_layer_norm_of_a_constant_is_its_bias() -> None:
    x = np.full((2, 8), 3.0, np.bfloat16)
    assert np.nn.layer_norm(x, bias=np.ones(8)).tolist() == [[1.0] * 8] * 2


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2)])
def test_R2_sum_and_mean_are_within_their_rounding_of_float64(dtype: DType, axis: Any) -> None:
    x = random((3, 40, 50), dtype)
    wide = exact(x)
    terms, n = abs(wide).sum(axis=axis), wide.size // numpy.sum(wide, axis=axis).size
    for found, expected, scale in (
        (np.sum(x, axis), wide.sum(axis=axis), terms),
        (np.mean(x, axis), wide.mean(axis=axis), terms / n),
    ):
        bound = dtype.eps / 2 * abs(expected) + 64 * np.float32.eps * scale
        assert (abs(exact(found) - expected) <= bound).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_M2_matmul_is_within_its_rounding_of_float64(dtype: DType) -> None:
    a, b = random((7, 300), dtype), random((2, 300, 9), dtype, 1)
    expected = exact(a) @ exact(b)
    bound = dtype.eps / 2 * abs(expected) + 300 * np.float32.eps * (abs(exact(a)) @ abs(exact(b)))
    assert (abs(exact(a @ b) - expected) <= bound).all()


# ---- C1 and C8 at their edges --------------------------------------------------------------------


def test_C1_a_number_between_two_bfloat16_is_rounded_once() -> None:
    assert np.asarray(1 + 2**-8 + 2**-40, dtype=np.bfloat16).item() == 1.0078125
    assert np.asarray(numpy.float64(1 + 2**-8 + 2**-40), np.bfloat16).item() == 1.0078125
    assert np.asarray([1 + 2**-8 + 2**-40]).astype(np.bfloat16).item() == 1.0  # float32 comes first
    assert np.asarray(1 + 2**-8, dtype=np.bfloat16).item() == 1.0  # a tie goes to even


def test_C1_an_integer_in_a_list_of_floats_is_rounded_once() -> None:
    # Just above the tie between 2^62 and 2^62 + 2^55; float64 on the way would drop the one.
    n = 2**62 + 2**54 + 1
    assert int(np.asarray(n, np.bfloat16)) == 2**62 + 2**55
    assert int(np.asarray([n, 1], np.bfloat16)[0]) == 2**62 + 2**55
    assert int(np.asarray([n, 0.5], np.bfloat16)[0]) == 2**62 + 2**55


def test_C1_32_bit_integers_go_through_float32_unless_the_profile_says_exact() -> None:
    n = numpy.int32(1077936129)
    assert np.asarray(n).astype("bfloat16").tobytes() == b"\x80\x4e"
    with np.use_profile(int_to_float="exact"):
        assert np.asarray(n).astype("bfloat16").tobytes() == b"\x81\x4e"


def test_C8_a_complex_number_takes_complex64() -> None:
    # "Default types: float32 (`set_default_dtype` changes it), int64, complex64".
    assert np.asarray(1j).dtype is np.complex64


@pytest.mark.usefixtures("restored_default")
def test_C8_the_default_type_is_that_of_floats_and_creation() -> None:
    np.set_default_dtype("bfloat16")
    assert np.default_dtype() is np.bfloat16
    made = (np.asarray(0.1), np.asarray([0.1]), np.zeros(2), np.ones(2), np.full(2, 0.5))
    assert {x.dtype for x in made} == {np.bfloat16}
    assert (np.asarray([1, 2]) + 0.5).dtype is np.bfloat16
    assert (np.asarray([1, 2]) / 2).dtype is np.bfloat16
    assert np.asarray(numpy.zeros(2)).dtype is np.float64  # an ndarray keeps its type
    with pytest.raises(InvalidArgument, match="float type, not int8"):
        np.set_default_dtype(np.int8)


# ---- one session ---------------------------------------------------------------------------------


def test_numpys_code_runs_with_the_import_changed() -> None:
    x = np.asarray([[1.0, 2.5], [1 / 3, 7.0]], dtype=np.bfloat16)
    assert repr(x) == "Array([[1.   , 2.5  ],\n       [0.334, 7.   ]], dtype=bfloat16)"
    assert [row.tolist() for row in x] == [[1.0, 2.5], [0.333984375, 7.0]]
    assert (x @ x.T).tolist() == [[7.25, 17.875], [17.875, 49.0]]
    assert np.where(x > 1, x, 0).tolist() == [[0.0, 2.5], [0.0, 7.0]]
    assert numpy.add(x, 1).dtype is np.bfloat16
    assert x[x > 1].tolist() == [2.5, 7.0]


def test_a_misspelt_name_gets_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"no 'matmull' \(did you mean 'matmul'\?\)"):
        np.matmull  # noqa: B018
