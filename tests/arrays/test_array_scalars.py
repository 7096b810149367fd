"""Mixed operands: the lattice of types, and Python scalars, which are weak (C8)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import NeuronSimError, UnsupportedType
from neuronsim.ops import Bits
from neuronsim.reference import elementwise, formats

pytestmark = pytest.mark.isa_independent

ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
DEVICE_FLOATS = [t for t in DTYPES.values() if t.exponent_bits and t.device]
INTEGERS = [t for t in DTYPES.values() if t.kind in ("signed", "unsigned")]


def word(x: np.Array) -> int:
    return int(x.bits.data.reshape(-1).view(f"u{x.dtype.itemsize}")[0])


# ---- Python scalars (C8) ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DEVICE_FLOATS, ids=lambda t: t.name)
@pytest.mark.parametrize("name", ["add", "multiply", "divide", "subtract"])
def test_C8_scalar_takes_the_arrays_type_before_the_operation(dtype: DType, name: str) -> None:
    x = np.asarray([1.25], dtype=dtype)
    for scalar in (0.1, 3, 1 / 3, True):
        rounded = formats.convert(dtype.name, "float32", formats.from_float(dtype.name, scalar))
        own = formats.convert(dtype.name, "float32", word(x))
        expected = formats.convert("float32", dtype.name, elementwise.FLOAT[name](own, rounded))
        found = getattr(np, name)(x, scalar)
        assert found.dtype is dtype
        assert word(found) == expected


@pytest.mark.parametrize("symbol", ARITHMETIC)
def test_scalars_on_either_side(symbol: str) -> None:
    op: Callable[[Any, Any], Any] = ARITHMETIC[symbol]
    x = np.asarray([1.5, -2.0, 4.0])
    assert op(x, 2).tolist() == [op(v, 2) for v in (1.5, -2.0, 4.0)]
    assert op(6, x).tolist() == [op(6, v) for v in (1.5, -2.0, 4.0)]


@pytest.mark.parametrize("compare", COMPARISONS)
def test_comparisons_with_scalars_on_either_side(compare: Callable[[Any, Any], Any]) -> None:
    x = np.asarray([1.0, 2.0, numpy.nan], dtype="bfloat16")
    assert compare(x, 2).tolist() == [compare(v, 2.0) for v in (1.0, 2.0, numpy.nan)]
    assert compare(2.0, x).tolist() == [compare(2.0, v) for v in (1.0, 2.0, numpy.nan)]


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda t: t.name)
def test_C8_int_outside_an_integer_type_is_an_overflow(dtype: DType) -> None:
    x = np.ones(2, dtype=dtype)
    info = numpy.iinfo(dtype.numpy)
    assert (x + int(info.max)).dtype is dtype
    for value in (int(info.max) + 1, int(info.min) - 1, 2**70):
        with pytest.raises(OverflowError, match=dtype.name):
            x + value


def test_C8_int_of_any_size_beside_a_float_array() -> None:
    assert (np.asarray([0.0]) + 2**70).tolist() == [2.0**70]
    assert (np.asarray([0.0], dtype="float16") + 10**6).tolist() == [numpy.inf]


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda t: t.name)
def test_C8_float_beside_an_integer_array_gives_the_default_type(dtype: DType) -> None:
    found = np.ones(1, dtype=dtype) + 0.5
    assert (found.dtype.name, found.tolist()) == ("float32", [1.5])


def test_C8_scalars_beside_bool() -> None:
    mask = np.asarray([True, False])
    assert (mask + 1).dtype is np.int64
    assert (mask + 1).tolist() == [2, 1]
    assert (mask * 0.5).tolist() == [0.5, 0.0]
    assert (mask & True).tolist() == [True, False]


def test_two_scalars_take_their_default_types() -> None:
    assert np.add(1, 2).dtype is np.int64
    assert np.add(1, 0.5).dtype is np.float32
    assert np.exp(0.0).item() == 1.0
    assert np.sqrt(4.0).dtype is np.float32


def test_numpy_scalars_are_not_weak() -> None:
    assert (np.ones(1, dtype="bfloat16") + numpy.float32(0.5)).dtype is np.float32
    assert (np.ones(1) + numpy.float64(0.5)).dtype is np.float64


def test_integer_division_gives_the_default_float_type() -> None:
    assert (np.asarray([7]) / 2).tolist() == [3.5]
    assert (np.asarray([7], dtype="int8") / np.asarray([2], dtype="int8")).dtype is np.float32


# ---- the lattice ------------------------------------------------------------------------------------


def test_pair_without_a_common_type_says_what_to_do() -> None:
    with pytest.raises(UnsupportedType, match=r"uint64 and int64.*astype"):
        np.ones(1, dtype="uint64") + np.ones(1, dtype="int64")


# ---- broadcasting, select, operators -----------------------------------------------------------------


def test_where_moves_bits_E6() -> None:
    payloads = np.Array(Bits(numpy.array([0x7FC1, 0xFF81], "u2"), np.bfloat16))
    picked = np.where(np.asarray([True, True]), payloads, np.zeros(2, dtype="bfloat16"))
    assert picked.bits.data.tolist() == [0x7FC1, 0xFF81]


def test_where_broadcasts_and_takes_the_common_type() -> None:
    found = np.where(np.asarray([True, False]), np.ones((3, 1), dtype="bfloat16"), 0)
    assert found.dtype is np.bfloat16
    assert found.tolist() == [[1, 0]] * 3
    assert np.where(np.asarray(True), 1.5, 2).tolist() == 1.5


def test_where_takes_the_truth_of_any_condition_C6() -> None:
    assert np.where([3, 0], [1, 2], 9).tolist() == [1, 9]
    for dtype in DTYPES.values():
        assert np.where(np.asarray([0, 1], dtype), 1, 2).tolist() == [2, 1]
    assert np.where(np.asarray([-0.0, numpy.nan], "bfloat16"), 1, 2).tolist() == [2, 1]
    assert np.where(np.asarray(1j), 1, 2).shape == np.asarray(1j).astype(bool).bits.data.shape == ()


@pytest.mark.parametrize("other", [None, "a", {}], ids=repr)
def test_operators_refuse_what_is_no_number(other: Any) -> None:
    with pytest.raises(TypeError):
        np.ones(2) + other
    with pytest.raises(TypeError):
        other + np.ones(2)


def test_bit_operators_and_invert() -> None:
    x = np.asarray([0b1100, 0b1010])
    assert (x & 0b0110).tolist() == [0b0100, 0b0010]
    assert (x | 1).tolist() == [13, 11]
    assert (x ^ x).tolist() == [0, 0]
    assert (~x).tolist() == [-13, -11]
    assert (~np.asarray([True, False])).tolist() == [False, True]
    with pytest.raises(UnsupportedType):
        ~np.ones(1)


def test_neg_abs_and_pos_move_bits_E6() -> None:
    x = np.Array(Bits(numpy.array([0x80, 0x3E, 0xFC, 0x7D, 0xFF], "u1"), np.float8_e5m2))
    assert (-x).bits.data.tolist() == (x.bits.data ^ 0x80).tolist()
    assert abs(x).bits.data.tolist() == (x.bits.data & 0x7F).tolist()
    assert (+x).bits.data.tolist() == x.bits.data.tolist()


def test_float8_e4m3fn_is_cast_but_not_computed_with() -> None:
    x = np.ones(2, dtype="float8_e4m3fn")
    assert x.astype("float32").tolist() == [1, 1]
    with pytest.raises(UnsupportedType, match="float8_e4m3fn"):
        x + x


OF_PYTHON = [(int, 1j, TypeError), (float, 1j, TypeError), (int, math.inf, OverflowError)]


@pytest.mark.parametrize(("convert", "value", "kind"), [*OF_PYTHON, (int, math.nan, ValueError)])
def test_numbers_that_python_has_not_are_refused_in_our_words(
    convert: Any, value: Any, kind: type[Exception]
) -> None:
    with pytest.raises(NeuronSimError) as refused:
        convert(np.asarray(value))
    assert isinstance(refused.value, kind)


@pytest.mark.parametrize("value", [True, 1, 1.5, 1j])
@pytest.mark.parametrize("name", [t.name for t in DTYPES.values() if t.name != "float8_e4m3fn"])
def test_C8_result_type_of_a_number_is_that_of_the_operation(name: str, value: Any) -> None:
    """int32 with a complex number is complex128, which holds it."""
    x = np.zeros(2, dtype=name)
    found = np.where(np.asarray([True, False]), x, value)
    assert np.result_type(x, value) is np.result_type(value, name) is found.dtype
