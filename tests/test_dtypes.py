"""Element types: rule F's rows, names from elsewhere, and the lattice of mixed types."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import pytest

from neuronsim import _core, dtypes, ops
from neuronsim.dtypes import DTYPES, DType, as_dtype, result_type
from neuronsim.errors import UnsupportedType
from neuronsim.profiles import Profile
from neuronsim.reference import formats

FORMATS = [row[0] for row in _core.FORMATS]
PAIRS = list(itertools.combinations_with_replacement(DTYPES.values(), 2))


@pytest.mark.parametrize("name", DTYPES)
def test_names_codes_and_sizes_agree(name: str) -> None:
    t = DTYPES[name]
    assert t.name == name
    assert getattr(dtypes, "boolean" if name == "bool" else name) is t
    assert t.itemsize == t.storage.itemsize == t.numpy.itemsize
    assert repr(t) == f"neuronsim.{name}"
    if t.code is not None:
        assert _core.DTYPES[t.code] == name
    assert (t.code is None) == (t.kind == "complex")


def test_every_core_type_has_a_row() -> None:
    assert set(_core.DTYPES) <= set(DTYPES)
    assert [n for n in DTYPES if n not in _core.DTYPES] == ["complex64", "complex128"]


@pytest.mark.parametrize("name", [n for n in FORMATS if n != "tfloat32"])
def test_max_and_eps_F_equal_the_libraries_finfo(name: str) -> None:
    info = ml_dtypes.finfo(DTYPES[name].numpy)
    assert DTYPES[name].max == float(info.max)
    assert DTYPES[name].eps == float(info.eps)
    assert DTYPES[name].bits == info.bits
    assert DTYPES[name].mantissa_bits == info.nmant


def test_tfloat32_F_is_a_float32_with_thirteen_zero_bits() -> None:
    t = dtypes.tfloat32
    assert (t.bits, t.itemsize, t.storage, t.numpy) == (19, 4, np.dtype("f4"), np.dtype("f4"))
    assert t.max == (2 - 2.0**-10) * 2.0**127
    assert math.isclose(t.max, 3.4011621e38, rel_tol=1e-7)
    assert t.eps == 2.0**-10


def test_device_types_F() -> None:
    """e4m3fn is read and cast (NCC_EVRF051); float64 and complex are the host's (H1)."""
    host = {"float8_e4m3fn", "float64", "complex64", "complex128"}
    assert {t.name for t in DTYPES.values() if not t.device} == host


def test_dtypes_are_unique_and_cannot_be_changed() -> None:
    assert len(set(DTYPES.values())) == len(DTYPES)
    with pytest.raises(AttributeError):
        dtypes.float32.bits = 16  # type: ignore[misc]


@pytest.mark.parametrize("name", DTYPES)
def test_as_dtype_takes_names_numpy_types_and_itself(name: str) -> None:
    t = DTYPES[name]
    assert as_dtype(t) is t
    assert as_dtype(name) is t
    if name != "tfloat32":  # its NumPy type is float32's
        assert as_dtype(t.numpy) is t
        assert as_dtype(t.numpy.type) is t
    else:
        assert as_dtype(t.numpy) is dtypes.float32


def test_as_dtype_takes_pythons_types() -> None:
    assert as_dtype(float) is dtypes.float64
    assert as_dtype(int) is dtypes.int64
    assert as_dtype(bool) is dtypes.boolean
    assert as_dtype(complex) is dtypes.complex128


@pytest.mark.parametrize(
    "x", ["float31", "f4", "", np.longdouble, "U3", object, "datetime64[s]", np.dtype(">f4"), 3, None]
)
def test_as_dtype_refuses_the_rest(x: object) -> None:
    with pytest.raises(UnsupportedType, match="not an element type"):
        as_dtype(x)  # type: ignore[arg-type]


def test_as_dtype_names_the_nearest() -> None:
    with pytest.raises(UnsupportedType, match="did you mean 'bfloat16'"):
        as_dtype("bfloat61")


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("bfloat16", "float16", "float32"),
        ("bfloat16", "float32", "float32"),
        ("tfloat32", "float32", "float32"),
        ("tfloat32", "bfloat16", "tfloat32"),
        ("tfloat32", "float16", "tfloat32"),
        ("float8_e4m3", "float8_e5m2", "bfloat16"),
        ("float8_e4m3", "float8_e4m3fn", "bfloat16"),
        ("float8_e3m4", "float16", "float16"),
        ("float8_e5m2", "bfloat16", "bfloat16"),
        ("float8_e5m2", "tfloat32", "tfloat32"),
        ("float8_e5m2", "float32", "float32"),
        ("float64", "bfloat16", "float64"),
        ("int64", "float8_e4m3", "float8_e4m3"),
        ("uint8", "float16", "float16"),
        ("bool", "int8", "int8"),
        ("bool", "bfloat16", "bfloat16"),
        ("int8", "uint8", "int16"),
        ("int32", "uint32", "int64"),
        ("int64", "uint8", "int64"),
        ("complex64", "float32", "complex64"),
        ("complex64", "float64", "complex128"),
    ],
)
def test_result_type_of_mixed_types(a: str, b: str, expected: str) -> None:
    assert result_type(DTYPES[a], DTYPES[b]).name == expected
    assert result_type(DTYPES[b], DTYPES[a]).name == expected


@pytest.mark.parametrize(("a", "b"), PAIRS, ids=lambda t: t.name)
def test_result_type_is_symmetric_or_raises(a: DType, b: DType) -> None:
    try:
        found = result_type(a, b)
    except UnsupportedType:
        with pytest.raises(UnsupportedType, match=rf"{b.name} and {a.name} .*astype"):
            result_type(b, a)
        return
    assert found is result_type(b, a)
    assert result_type(found, a) is found
    if a is b:
        assert found is a


def test_result_type_outside_the_lattice_raises() -> None:
    """NumPy would take float64, which the device has not."""
    with pytest.raises(UnsupportedType, match="astype"):
        result_type(dtypes.int64, dtypes.uint64)


@pytest.mark.parametrize(
    ("a", "b"), [(a, b) for a, b in PAIRS if a.exponent_bits and b.exponent_bits], ids=lambda t: t.name
)
def test_result_type_of_floats_holds_every_value_of_both(a: DType, b: DType) -> None:
    result = result_type(a, b)
    for t in (a, b):
        words = np.arange(1 << min(t.bits, 16), dtype=np.uint64).astype(f"u{t.itemsize}")
        if t.itemsize == 4:
            words = words << np.uint32(16)
        number = np.array([formats.decode(t.name, w).kind != "nan" for w in words[::7].tolist()])
        convert, plain = ops.by_name("convert"), ops.Setting(Profile())
        bits = ops.Bits(words.view(t.storage), t)
        there = ops.evaluate(convert, [bits], {"dtype": result}, plain)
        back = ops.evaluate(convert, [there], {"dtype": t}, plain)
        assert np.array_equal(back.data.view(words.dtype)[::7][number], words[::7][number])
