"""Element types: rule F's rows, names from elsewhere, and the lattice of mixed types."""

from __future__ import annotations

import copy
import functools
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import neuronsim
from neuronsim import _core, dtypes, ops
from neuronsim.dtypes import DTYPES, DType, as_dtype, float_format, result_type
from neuronsim.errors import UnsupportedType
from neuronsim.profiles import Profile
from neuronsim.reference import formats
from tests.support.parameters import each_of

pytestmark = pytest.mark.isa_independent

FORMATS = [row[0] for row in _core.FORMATS]
PAIRS = list(itertools.combinations_with_replacement(DTYPES.values(), 2))


@each_of("name", DTYPES)
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


def test_device_types_F() -> None:
    """e4m3fn is read and cast (NCC_EVRF051); float64 and complex are the host's (H1)."""
    host = {"float8_e4m3fn", "float64", "complex64", "complex128"}
    assert {t.name for t in DTYPES.values() if not t.device} == host


def test_dtypes_are_unique_and_cannot_be_changed() -> None:
    assert len(set(DTYPES.values())) == len(DTYPES)
    with pytest.raises(AttributeError):
        dtypes.float32.bits = 16  # type: ignore[misc]


@each_of("name", DTYPES)
def test_as_dtype_takes_names_numpy_types_and_itself(name: str) -> None:
    t = DTYPES[name]
    assert as_dtype(t) is t
    assert as_dtype(name) is t
    of_numpy = dtypes.float32 if name == "tfloat32" else t
    assert as_dtype(t.numpy) is as_dtype(t.numpy.type) is of_numpy


def test_as_dtype_takes_pythons_types() -> None:
    expected = (dtypes.float64, dtypes.int64, dtypes.boolean, dtypes.complex128)
    assert tuple(map(as_dtype, (float, int, bool, complex))) == expected


@each_of(
    "x",
    [
        *("float31", ">f4", "f3", "", np.longdouble, "longdouble", "g", "U3", "S", "a", "O", object),
        *("V2", "<V1", "datetime64[s]", "f4,f4", np.dtype(">f4"), np.dtype("f4,f4"), 3, None),
    ],
)
def test_as_dtype_refuses_the_rest(x: object) -> None:
    with pytest.raises(UnsupportedType, match="not an element type"):
        as_dtype(x)  # type: ignore[arg-type]


@each_of(
    "spelling",
    [
        *("?", "b1", "|b1", "bool_", "b", "i1", "h", "<i2", "i", "=i4", "intc", "l", "q", "p", "int"),
        *("int_", "longlong", "B", "u1", "H", "u2", "I", "<u4", "L", "Q", "P", "uint", "ulonglong"),
        *("e", "f2", "half", "f", "f4", "<f4", "=f4", "single", "d", "f8", "float", "double"),
        *("F", "c8", "csingle", "D", "<c16", "complex", "cdouble", "byte", "short", "ushort"),
    ],
)
def test_numpys_codes_and_names_are_its_types(spelling: str) -> None:
    assert as_dtype(spelling).numpy == np.dtype(spelling)
    assert as_dtype(spelling) == spelling


def test_as_dtype_names_the_nearest() -> None:
    with pytest.raises(UnsupportedType, match="did you mean 'bfloat16'"):
        as_dtype("bfloat61")


@each_of(
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


def test_result_type_is_symmetric_or_raises() -> None:
    for a, b in PAIRS:
        try:
            found = result_type(a, b)
        except UnsupportedType:
            with pytest.raises(UnsupportedType, match=rf"{b.name} and {a.name} .*astype"):
                result_type(b, a)
            continue
        assert found is result_type(b, a)
        assert result_type(found, a) is found
        if a is b:
            assert found is a


@each_of(
    ("a", "b"), [(a, b) for a, b in PAIRS if a.exponent_bits and b.exponent_bits], ids=lambda t: t.name
)
def test_result_type_of_floats_holds_every_value_of_both(a: DType, b: DType) -> None:
    convert, plain = ops.by_name("convert"), ops.Setting(Profile())
    for t in (a, b):
        words = numbers_of(t)
        bits = ops.Bits(words.view(t.storage), t)
        (there,) = ops.evaluate(convert, [bits], {"dtype": result_type(a, b)}, plain)
        (back,) = ops.evaluate(convert, [there], {"dtype": t}, plain)
        assert np.array_equal(back.data.view(words.dtype), words)


@functools.cache
def numbers_of(t: DType) -> np.ndarray:
    """Words of every seventh value that is a number, of the wider types by their upper 16 bits."""
    words = np.arange(0, 1 << min(t.bits, 16), 7, dtype=np.uint64).astype(f"u{t.itemsize}")
    words <<= words.dtype.type(16 if t.itemsize == 4 else 0)
    return words[[formats.decode(t.name, w).kind != "nan" for w in words.tolist()]]


# ---- open formats --------------------------------------------------------------------------------

OPEN = [(e, m) for e in range(2, 9) for m in range(1, 24) if (e, m) not in ((8, 10), (8, 23))]


def test_an_open_format_is_one_instance_that_its_name_finds_C9() -> None:
    for bits in OPEN:
        t = float_format(*bits)
        assert t is float_format(*bits)
        assert as_dtype(t.name) is as_dtype(t) is t
        assert as_dtype(f"float({bits[0]}, {bits[1]})") is t
        assert copy.deepcopy(t) is pickle.loads(pickle.dumps(t)) is t
        assert (t.is_open, t.kind, t.bits, t.code) == (True, "float", 1 + sum(bits), None)
        assert (t.exponent_bits, t.mantissa_bits) == bits
        assert t.name not in DTYPES


def test_open_formats_that_have_a_name_are_it_C9() -> None:
    assert float_format(8, 10) is as_dtype("float(8,10)") is dtypes.tfloat32
    assert float_format(8, 23) is as_dtype("float(8,23)") is dtypes.float32
    assert not any(t.is_open for t in DTYPES.values())
    # C9: (5, 10) has no subnormals, as float16 has.
    assert float_format(5, 10) is not dtypes.float16


@pytest.mark.parametrize(
    ("bits", "like"), [((5, 10), "float16"), ((8, 7), "bfloat16"), ((5, 2), "float8_e5m2")]
)
def test_an_open_formats_range_is_that_of_the_type_with_its_bits_F(
    bits: tuple[int, int], like: str
) -> None:
    info, t = ml_dtypes.finfo(DTYPES[like].numpy), float_format(*bits)
    assert (t.max, t.eps) == (float(info.max), float(info.eps))
    assert t.smallest_normal == DTYPES[like].smallest_normal == float(info.smallest_normal)


@pytest.mark.parametrize("bits", [(1, 9), (9, 9), (0, 1), (6, 0), (6, 24), (-6, 9)], ids=str)
def test_bits_that_float32_cannot_carry_are_refused_C9(bits: tuple[int, int]) -> None:
    with pytest.raises(UnsupportedType, match=r"2 to 8 exponent bits and 1 to 23 mantissa bits"):
        float_format(*bits)
    with pytest.raises(UnsupportedType):
        as_dtype(f"float({bits[0]},{bits[1]})")


@pytest.mark.parametrize(
    "name", ["float(6)", "float(6,9", "float(6;9)", "float(6,9) ", "float(\u0666,9)"]
)
def test_what_only_looks_like_an_open_format_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedType, match="not an element type"):
        as_dtype(name)


@each_of(
    "make",
    [
        lambda t: neuronsim.asarray([1.0, 2.0], dtype=t),
        lambda t: neuronsim.asarray([2**60], dtype=t),
        lambda t: neuronsim.asarray(np.ones(2, np.float32), dtype=t),
        lambda t: neuronsim.asarray([1.0]).astype(t),
        lambda t: neuronsim.astype([1.0], t),
        lambda t: neuronsim.zeros(3, dtype=t),
        lambda t: neuronsim.arange(3, dtype=t),
        lambda t: neuronsim.set_default_dtype(t),
        lambda t: neuronsim.nn.conv(np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2)), dtype=t),
    ],
)
@each_of("given", ["float(6,9)", float_format(6, 9)], ids=["name", "type"])
def test_there_are_no_arrays_of_an_open_format_C9(make: Callable[[Any], Any], given: Any) -> None:
    with pytest.raises(UnsupportedType, match=r"no arrays of float\(6,9\): .*for arrays take"):
        make(given)


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.4.0", reason="before NumPy asks types")
def test_numpy_takes_types() -> None:
    for dtype in DTYPES.values():
        if dtype is dtypes.tfloat32:
            continue
        assert np.dtype(dtype) == dtype.numpy
        assert np.zeros(2, bool).astype(dtype).dtype == dtype.numpy
    with pytest.raises(UnsupportedType, match=r"NumPy has no tfloat32: make an Array"):
        np.zeros(2).astype(dtypes.tfloat32)
    with pytest.raises(UnsupportedType, match=r"NumPy has no float\(6,9\)"):
        np.dtype(float_format(6, 9))
    assert np.dtype("float32") != dtypes.tfloat32
