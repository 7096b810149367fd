"""Types of arrays: limits, kinds, casts, common types against NumPy, ml_dtypes, array_api_strict."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import ml_dtypes
import numpy
import pytest
from tests.support.parameters import each_of

import neuronsim as np
from neuronsim.arrays.types import TYPE_NAMES
from neuronsim.dtypes import CASTING, DTYPES, DType
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.reference.formats import decode

pytestmark = pytest.mark.isa_independent

FLOATS = [t for t in DTYPES.values() if t.kind == "float"]
INTEGERS = [t for t in DTYPES.values() if t.kind in ("signed", "unsigned")]
NATIVE = [t for t in DTYPES.values() if t.name != "tfloat32" and t.numpy.isbuiltin == 1]
KINDS_OF_NUMPY = ["generic", "number", "integer", "signedinteger", "unsignedinteger", "inexact"]
KINDS_OF_NUMPY += ["floating", "complexfloating"]


@cache
def finite_magnitudes(t: DType) -> frozenset[Fraction]:
    """Of every encoding of a format of 16 bits or fewer, by the slow twin."""
    numbers = (decode(t.name, w) for w in range(1 << (t.bits - 1)))  # without a sign
    return frozenset(x.magnitude for x in numbers if x.kind == "finite")


# ---- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("t", FLOATS, ids=str)
def test_finfo_F_equals_the_libraries(t: DType) -> None:
    if t is np.tfloat32:  # no library has it: exact arithmetic on the format
        found = np.finfo(t)
        assert found.eps == 2.0**-10
        assert found.max == -found.min == math.ldexp(2 - 2.0**-10, 127)
        assert found.smallest_normal == found.tiny == 2.0**-126
        assert (found.smallest_subnormal, found.bits) == (2.0**-136, 19)
        return
    expected, found = ml_dtypes.finfo(t.numpy), np.finfo(t)
    for name in ("eps", "max", "min", "smallest_normal", "tiny", "smallest_subnormal"):
        value = getattr(found, name)
        assert type(value) is float
        assert value == float(getattr(expected, name)), name
    assert (found.bits, found.dtype) == (expected.bits, t)
    # By NumPy's formula; ml_dtypes says 1 digit of formats that hold none.
    digits = expected.precision if t.bits > 8 else int(-math.log10(float(expected.eps)))
    assert (found.precision, found.resolution) == (digits, 10.0**-digits)


@pytest.mark.parametrize("t", INTEGERS, ids=str)
def test_iinfo_equals_numpys(t: DType) -> None:
    expected, found = numpy.iinfo(t.numpy), np.iinfo(t)
    assert (found.bits, found.max, found.min) == (expected.bits, expected.max, expected.min)
    assert found.dtype is t
    assert all(type(v) is int for v in (found.bits, found.max, found.min))


def test_limits_take_types_names_and_arrays() -> None:
    x = np.ones((2, 2), dtype=np.bfloat16)
    assert np.finfo(x) == np.finfo("bfloat16") == np.finfo(ml_dtypes.bfloat16) == np.finfo(x.dtype)
    assert np.finfo(numpy.ones(2, numpy.float32)) == np.finfo(np.float32)
    assert np.iinfo(np.asarray([1, 2])) == np.iinfo(int) == np.iinfo(numpy.int64)


def test_finfo_of_a_complex_type_is_of_its_parts() -> None:
    assert np.finfo(np.complex64) == np.finfo(np.float32)
    assert np.finfo(np.complex128).dtype is np.float64
    assert np.finfo(np.complex128).bits == 64


# ---- kinds ---------------------------------------------------------------------------------------


@each_of("t", DTYPES.values(), ids=str)
def test_issubdtype_is_numpys_hierarchy(t: DType) -> None:
    """A device format stands where float16 does."""
    like = t.numpy if t in NATIVE else numpy.dtype(numpy.float16)
    for kind in KINDS_OF_NUMPY:
        expected = numpy.issubdtype(like, getattr(numpy, kind))
        assert np.issubdtype(t, getattr(np, kind)) is expected, kind
        assert np.issubdtype(t, getattr(numpy, kind)) is expected, kind
        assert np.issubdtype(t, kind) is expected, kind
    assert [o for o in DTYPES.values() if np.issubdtype(t, o)] == [t]


def test_isinstance_of_abstract_types_finds_scalars() -> None:
    three = np.asarray(3)
    assert isinstance(three, np.integer)
    assert isinstance(numpy.int8(3), np.signedinteger)
    assert isinstance(np.asarray(1.0, dtype=np.float8_e4m3), np.floating)
    assert not isinstance(three, np.floating)
    assert not isinstance(np.asarray([3]), np.integer)
    assert not isinstance(3, np.integer)
    assert not isinstance(numpy.str_("3"), np.generic)


def test_isinstance_of_types_finds_scalars() -> None:
    """As code asks NumPy's scalars: 0-d Arrays stand where NumPy has those."""
    assert isinstance(np.asarray([1.0, 2.0])[0], np.float32)
    assert isinstance(np.asarray([3])[0], (int, np.int64))
    assert isinstance(np.bool(True), (bool, np.bool_))
    assert isinstance(numpy.float64(1), np.float64)
    for x in (
        np.asarray([1.0]),
        np.bfloat16(1),
        1.0,
        "float32",
        numpy.ones(()),
        numpy.datetime64("2020"),
    ):
        assert not isinstance(x, np.float32)


def test_issubclass_of_types_is_numpys() -> None:
    types = ["float32", "float64", "int8", "uint8", "complex64", "bool"]
    types += [name for name in TYPE_NAMES if "longlong" not in name]  # NumPy's own, of 64 bits too
    for one, other in itertools.product(types, types):
        theirs = issubclass(getattr(numpy, one), getattr(numpy, other))
        assert issubclass(getattr(np, one), getattr(np, other)) == theirs, (one, other)
    assert issubclass(numpy.float32, np.floating)
    assert issubclass(np.asarray([1.0], "bfloat16").dtype.type, np.floating)
    for other in (int, float, str, object):
        assert not issubclass(other, np.integer)
        assert not issubclass(other, np.int64)


def test_complex_real_and_scalar() -> None:
    assert np.iscomplexobj(1j)
    assert np.iscomplexobj(np.asarray([1j, 2]))
    assert not np.iscomplexobj(np.asarray([1.0]))
    assert np.isrealobj([True])
    for x in (3, 2.5, 1j, True, "a", numpy.float32(1)):
        assert np.isscalar(x) is numpy.isscalar(x) is True
    for y in ([1], None, numpy.ones(1), (1,)):
        assert np.isscalar(y) is numpy.isscalar(y) is False
    assert np.isscalar(np.asarray(1.0))
    assert not np.isscalar(np.asarray([1.0]))


# ---- casts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("casting", CASTING)
def test_can_cast_between_numpys_types_is_numpys(casting: Any) -> None:
    for a, b in itertools.product(NATIVE, repeat=2):
        expected = numpy.can_cast(a.numpy, b.numpy, casting)
        assert np.can_cast(a, b, casting=casting) is expected, (a, b)


def test_a_safe_cast_to_a_device_format_loses_nothing() -> None:
    """Every pair of floats of 16 bits or fewer, every value: a safe cast is exact, others are not."""
    narrow = [t for t in FLOATS if t.bits <= 16]
    for a, b in itertools.product(narrow, repeat=2):
        exact = finite_magnitudes(a) <= finite_magnitudes(b) and (b.has_inf or not a.has_inf)
        if np.can_cast(a, b):
            assert exact, (a, b)
        elif exact:  # exact but outside the lattice's step: two kinds of float8 meet in bfloat16
            assert a.bits == b.bits == 8, (a, b)


@each_of(
    ("a", "b", "expected"),
    [
        ("int8", "float16", True),
        ("int8", "bfloat16", True),
        ("int16", "bfloat16", False),
        ("uint8", "float8_e4m3", False),
        ("bool", "float8_e4m3", True),
        ("float8_e4m3", "bfloat16", True),
        ("bfloat16", "tfloat32", True),
        ("tfloat32", "float32", True),
        ("float32", "tfloat32", False),
        ("bfloat16", "float16", False),
        ("int16", "tfloat32", False),
        ("bfloat16", "int64", False),
        ("bfloat16", "complex64", True),
    ],
)
def test_safe_casts_of_device_formats(a: str, b: str, expected: bool) -> None:
    assert np.can_cast(a, b) is expected
    assert np.can_cast(np.zeros(3, dtype=a), b) is expected


# ---- common types --------------------------------------------------------------------------------


def name_of(strict_type: Any) -> str:
    return str(strict_type).removeprefix("array_api_strict.")


def test_result_type_agrees_with_array_api_strict() -> None:
    """Every pair of the standard's types and Python scalars: where it defines a type, that one."""
    strict = pytest.importorskip("array_api_strict")
    scalars = [True, 3, 2.5, 1j]
    types = [t for t in NATIVE if t is not np.float16]
    for a, b in itertools.product(types, repeat=2):
        try:
            expected = strict.result_type(*(getattr(strict, t.name) for t in (a, b)))
        except TypeError:
            continue
        assert np.result_type(a, b).name == np.promote_types(a, b).name
        assert np.result_type(np.zeros(2, dtype=a), b) == name_of(expected)
    for t, x in itertools.product(types, scalars):
        try:
            expected = strict.result_type(getattr(strict, t.name), x)
        except TypeError:
            continue
        assert np.result_type(t, x) == name_of(expected), (t, x)


def test_result_type_C8_of_weak_numbers() -> None:
    """The default types are float32, int64 and complex64."""
    cases = [
        ((np.int8, 2.5), np.float32),
        ((np.bool, 2.5), np.float32),
        ((np.bool, 3), np.int64),
        ((np.bfloat16, 3, 2.5, True), np.bfloat16),
        ((np.float8_e4m3, 1j), np.complex64),
        ((np.float64, 1j), np.complex128),
        ((np.uint8, 1j), np.complex64),
        ((1, 2.5), np.float32),
        ((1, True), np.int64),
        ((True,), np.bool),
        ((1j,), np.complex64),
        ((float,), np.float64),
        ((numpy.float64(2.5), np.float32), np.float64),
        ((numpy.ones(2, numpy.int8), "int16"), np.int16),
    ]
    for operands, expected in cases:
        assert np.result_type(*operands) is expected, operands
        assert np.result_type(*reversed(operands)) is expected, operands


def test_result_type_is_that_of_an_operation() -> None:
    """Of arrays with arrays and with numbers: what + gives."""
    types = [t for t in DTYPES.values() if t.device and t.kind != "bool"]
    for a, b in itertools.combinations_with_replacement(types, 2):
        x, y = np.ones(1, dtype=a), np.ones(1, dtype=b)
        try:
            expected = (x + y).dtype
        except UnsupportedType:
            with pytest.raises(UnsupportedType):
                np.result_type(x, y)
            continue
        assert np.result_type(x, y) is expected
    types = [t for t in DTYPES.values() if t is not np.float8_e4m3fn]
    for t, number in itertools.product(types, (True, 1, 2.5, 1j)):
        x = np.ones(2, dtype=t)
        found = np.where(np.asarray([True, False]), x, number).dtype
        assert np.result_type(x, number) is np.result_type(number, t.name) is found
        assert (t.kind == "bool" and number is True) or (x + number).dtype is found


def test_common_type_of_numbers() -> None:
    x = [np.asarray([1.0], dtype=t) for t in ("float32", "float64", "bfloat16", "float16")]
    assert np.common_type(x[0], x[1]) is np.float64
    assert np.common_type(x[2], x[3]) is np.float32
    assert np.common_type(x[2]) is np.bfloat16
    assert np.common_type(x[2], np.asarray([1j])) is np.complex64
    assert np.common_type() is np.float32


@each_of("x", [0, 1, 255, 256, -1, -129, 2**40, -(2**40), 0.5, 1e30, 1e300, True, 1j])
def test_min_scalar_type_is_numpys(x: Any) -> None:
    assert np.min_scalar_type(x) == numpy.min_scalar_type(x)
    assert np.min_scalar_type(numpy.ones(3, numpy.int16)) is np.int16
    assert np.min_scalar_type(np.asarray(1.0, dtype=np.bfloat16)) is np.bfloat16


# ---- DTypes as NumPy's ---------------------------------------------------------------------------


def test_dtype_finds_what_names_a_type() -> None:
    for t in DTYPES.values():
        assert np.dtype(t) is np.dtype(t.name) is np.dtype(np.zeros(2, dtype=t)) is t
    assert np.dtype(float) is np.float64
    assert np.dtype(numpy.dtype("int8")) is np.int8


@each_of("t", DTYPES.values(), ids=str)
def test_a_type_called_makes_arrays(t: DType) -> None:
    zero, pair = t(), t([0, 1])
    assert (zero.dtype, zero.shape, bool(zero)) == (t, (), False)
    assert (pair.dtype, pair.shape) == (t, (2,))
    assert np.zeros(2, dtype=t).dtype.type(1).dtype is t


def test_a_type_called_rounds_once_C1() -> None:
    """1 + 2^-8 + 2^-40 is 1.0 through float32."""
    assert np.bfloat16(1 + 2**-8 + 2**-40).item() == 1.0078125
    assert np.int8(numpy.float64(3.9)).item() == 3


@each_of("t", DTYPES.values(), ids=str)
def test_types_equal_their_names_and_numpys(t: DType) -> None:
    own = [o for o in DTYPES.values() if o == t.name]
    assert own == [t]
    assert t == t.name == str(t) == f"{t}"
    assert hash(t) == hash(np.dtype(t.name))
    assert {t: 1}[np.dtype(t.name)] == 1
    if t is np.tfloat32:
        assert t != numpy.float32
        assert t != numpy.dtype("float32")
    else:
        assert t == t.numpy == t.numpy.type
        assert t.numpy == t
    for other in (None, 3, "f3", "", [], numpy.dtype("U3"), object(), "float(6,9)"):
        assert t != other


def test_other_names_are_numpys() -> None:
    names = ["byte", "short", "intc", "int_", "intp", "long", "longlong", "ubyte", "ushort", "uintc"]
    names += ["uint", "uintp", "ulong", "ulonglong", "half", "single", "double", "csingle", "cdouble"]
    for name in [*names, "bool_"]:
        assert getattr(np, name) == getattr(numpy, name), name
    assert np.ndarray is np.Array
    for name in ("e", "euler_gamma", "inf", "newaxis", "pi"):
        assert getattr(np, name) == getattr(numpy, name)
    assert math.isnan(np.nan)


@each_of(
    ("call", "error", "said"),
    [
        *((lambda t=t: np.finfo(t), InvalidArgument, "iinfo") for t in (np.int8, np.bool, "uint64")),
        *((lambda t=t: np.iinfo(t), InvalidArgument, "finfo") for t in (np.float32, np.bool)),
        *((lambda t=t: np.iinfo(t), InvalidArgument, "finfo") for t in (np.bfloat16, np.complex64)),
        (lambda: np.iinfo("int4"), UnsupportedType, None),
        (lambda: np.isdtype(np.float32, "real floatin"), InvalidArgument, "mean 'real floating'"),
        (lambda: np.isdtype(np.float32, None), UnsupportedType, None),
        (lambda: np.isdtype("floaty", "real floating"), UnsupportedType, None),
        (lambda: np.can_cast("int8", "int8", casting="samekind"), InvalidArgument, "mean 'same_kind'"),
        (lambda: np.result_type(), InvalidArgument, "needs an array"),
        (lambda: np.promote_types("int64", "uint64"), UnsupportedType, "astype"),
        (lambda: np.result_type("bfloat17"), UnsupportedType, "bfloat17"),
        (lambda: np.common_type(np.asarray([True])), InvalidArgument, "bool"),
        (lambda: np.dtype("float(6,9)"), UnsupportedType, "no arrays of float"),
        (lambda: np.int8(300), OverflowError, None),
    ],
)
def test_what_is_no_type_or_has_none_is_refused(
    call: Callable[[], Any], error: type[Exception], said: str | None
) -> None:
    with pytest.raises(error, match=said):
        call()
