"""Arrays from numbers, lists and other arrays: one rounding from the exact value (C1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy
import pytest

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import InvalidArgument, NeuronSimError, UnsupportedType
from neuronsim.reference import formats

FLOATS = [t for t in DTYPES.values() if t.exponent_bits]
INTEGERS = [t for t in DTYPES.values() if t.kind in ("signed", "unsigned")]


@pytest.fixture
def restored_default() -> Iterator[None]:
    before = np.default_dtype()
    yield
    np.set_default_dtype(before)


def words(x: np.Array) -> list[int]:
    flat = numpy.ascontiguousarray(x.bits.data).reshape(-1)
    return [int(w) for w in flat.view(f"u{x.dtype.itemsize}")]


# ---- types -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.5, "float32"),
        ([1, 2.5], "float32"),
        ([], "float32"),
        (3, "int64"),
        ([1, 2], "int64"),
        (True, "bool"),
        ([True, False], "bool"),
        (2**63, "uint64"),
        (numpy.float64(1.5), "float64"),
        (numpy.float16(1.5), "float16"),
        (numpy.int8(1), "int8"),
        (numpy.zeros(2), "float64"),
        (numpy.zeros(2, ml_dtypes.bfloat16), "bfloat16"),
        (numpy.zeros(2, ml_dtypes.float8_e4m3), "float8_e4m3"),
        (numpy.zeros(2, "c8"), "complex64"),
    ],
    ids=repr,
)
def test_type_of_what_comes_in(value: Any, expected: str) -> None:
    assert np.asarray(value).dtype.name == expected


def test_default_type_is_what_python_floats_give(restored_default: None) -> None:
    assert np.default_dtype() is np.float32
    np.set_default_dtype("bfloat16")
    assert np.asarray([0.1]).dtype is np.bfloat16
    assert np.zeros(2).dtype is np.bfloat16
    assert (np.asarray([1, 2]) + 0.5).dtype is np.bfloat16
    assert np.asarray(numpy.zeros(1)).dtype is np.float64
    with pytest.raises(InvalidArgument, match="int8"):
        np.set_default_dtype("int8")


@pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=lambda t: t.name)
def test_a_type_may_be_given_in_three_ways(dtype: DType) -> None:
    for given in (dtype, dtype.name, *([dtype.numpy] if dtype is not np.tfloat32 else [])):
        assert np.asarray([1, 0], dtype=given).dtype is dtype


@pytest.mark.parametrize("name", ["float33", "bfloat", "object", "", "f4", None.__class__])
def test_unknown_types_are_refused(name: Any) -> None:
    with pytest.raises(UnsupportedType, match="element type"):
        np.asarray([1.0], dtype=name)
    with pytest.raises(UnsupportedType, match="float32"):
        np.asarray([1.0], dtype="float3")


@pytest.mark.parametrize(
    "value", ["a", [None], object(), [{}], {1, 2}, numpy.zeros(1, "M8[D]")], ids=repr
)
def test_values_that_are_no_numbers_are_refused(value: Any) -> None:
    with pytest.raises(NeuronSimError):
        np.asarray(value)
    with pytest.raises((NeuronSimError, TypeError)):
        np.asarray(value, dtype="float32")


# ---- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_python_floats_are_rounded_once_C1(dtype: DType) -> None:
    values = [0.0, -0.0, 1 + 2**-8 + 2**-40, 1 / 3, -1e-3, 247.9, 248.0, 3e38, 1e-46, -1e300, numpy.inf]
    expected = [formats.from_float(dtype.name, v) for v in values]
    assert words(np.asarray(values, dtype=dtype)) == expected
    assert [words(np.asarray(v, dtype=dtype))[0] for v in values] == expected


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_large_python_ints_are_rounded_once_C1(dtype: DType) -> None:
    # 2^70 + 2^60 + 1 lies just above a tie of several formats; float64 would lose the last bit.
    values = [2**70 + 2**60 + 1, -(2**64) - 1, 2**24 + 1, 7, 10**400]
    expected = [formats.from_float(dtype.name, v) for v in values]
    assert words(np.asarray(values, dtype=dtype)) == expected


def test_readme_example_is_rounded_once_C1() -> None:
    assert np.asarray(1 + 2**-8 + 2**-40, dtype="bfloat16").item() == 1.0078125


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda t: t.name)
def test_ints_at_the_ends_of_a_type_are_exact(dtype: DType) -> None:
    info = numpy.iinfo(dtype.numpy)
    values = [int(info.min), int(info.max)]
    assert np.asarray(values, dtype=dtype).tolist() == values
    assert np.asarray(values[1], dtype=dtype).item() == values[1]


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda t: t.name)
def test_python_ints_outside_an_integer_type_are_an_overflow(dtype: DType) -> None:
    info = numpy.iinfo(dtype.numpy)
    for value in (int(info.max) + 1, int(info.min) - 1, 2**70):
        with pytest.raises(OverflowError):
            np.asarray(value, dtype=dtype)
        with pytest.raises(OverflowError):
            np.asarray([value], dtype=dtype)


def test_ndarrays_of_narrow_floats_keep_their_bits() -> None:
    for name in ("bfloat16", "float8_e4m3", "float8_e5m2", "float8_e3m4", "float8_e4m3fn"):
        dtype = DTYPES[name]
        every = numpy.arange(2**dtype.bits).astype(dtype.storage)
        array = np.asarray(every.view(dtype.numpy))
        assert array.dtype is dtype
        assert array.tobytes() == every.tobytes()
        assert numpy.asarray(array).dtype == dtype.numpy
        assert numpy.asarray(array).tobytes() == every.tobytes()


def test_tfloat32_arrays_are_rounded_on_the_way_in() -> None:
    x = np.asarray([1 + 2**-11 + 2**-20, 1 / 3], dtype="tfloat32")
    assert all(w & 0x1FFF == 0 for w in words(x))
    assert x[0].item() == 1 + 2**-10


def test_strides_and_shapes_come_in_whole() -> None:
    base = numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 4)
    for native in (base.T, base[:, ::-1], base[..., ::2], base[:0], base[0, 0, 0]):
        assert np.asarray(native).tolist() == native.tolist()


@pytest.mark.parametrize("dtype", [">f4", ">i8", ">f2"])
def test_other_byte_orders_are_read(dtype: str) -> None:
    assert np.asarray(numpy.array([1, 2, 3], dtype)).tolist() == [1, 2, 3]


def test_asarray_shares_and_array_copies() -> None:
    native = numpy.zeros(3, numpy.float32)
    shared, copied = np.asarray(native), np.array(native)
    native[0] = 7
    assert shared.tolist() == [7, 0, 0]
    assert copied.tolist() == [0, 0, 0]
    again = np.asarray(shared)
    assert again.bits.data is shared.bits.data
    assert np.asarray(shared, copy=True).bits.data is not shared.bits.data


def test_lists_of_arrays_are_stacked() -> None:
    rows = [np.asarray([1, 2], dtype="bfloat16"), np.asarray([3, 4], dtype="bfloat16")]
    stacked = np.asarray(rows)
    assert stacked.dtype is np.bfloat16
    assert stacked.tolist() == [[1, 2], [3, 4]]
    assert np.asarray([[r[0], r[1]] for r in rows], dtype="float32").tolist() == [[1, 2], [3, 4]]


def test_ragged_lists_are_refused() -> None:
    with pytest.raises(ValueError, match="inhomogeneous"):
        np.asarray([[1.0], [1.0, 2.0]])


# ---- creation functions -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=lambda t: t.name)
def test_zeros_ones_and_full_of_every_type(dtype: DType) -> None:
    assert np.zeros((2, 3), dtype=dtype).tolist() == [[0] * 3] * 2
    assert np.ones(2, dtype=dtype).tolist() == [1, 1]
    assert np.full((1, 2), 1, dtype=dtype).tolist() == [[1, 1]]
    assert np.zeros((), dtype=dtype).shape == ()
    assert np.zeros((0, 3), dtype=dtype).shape == (0, 3)


def test_full_takes_the_type_of_its_value() -> None:
    assert np.full(2, 3).dtype is np.int64
    assert np.full(2, 0.5).dtype is np.float32
    assert np.full(2, True).dtype is np.bool


@pytest.mark.parametrize(
    ("arguments", "dtype"),
    [
        ((5,), "int64"),
        ((2, 5), "int64"),
        ((5, 0, -2), "int64"),
        ((0,), "int64"),
        ((0.0, 1.0, 0.25), "float32"),
        ((1.5,), "float32"),
    ],
)
def test_arange_has_numpys_values(arguments: tuple[float, ...], dtype: str) -> None:
    found = np.arange(*arguments)
    assert found.dtype.name == dtype
    assert found.tolist() == numpy.arange(*arguments).tolist()


def test_arange_rounds_each_value_once_C1() -> None:
    found = np.arange(0, 1, 0.1, dtype="bfloat16")
    assert words(found) == [formats.from_float("bfloat16", float(v)) for v in numpy.arange(0, 1, 0.1)]
