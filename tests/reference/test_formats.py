"""The twin's formats (rules F and C) against rule F's table, struct, NumPy and ml_dtypes."""

from __future__ import annotations

import math
import re
import struct
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuronsim import _core
from neuronsim.reference import formats
from neuronsim.reference.formats import FORMATS, Number

pytestmark = pytest.mark.isa_independent

CONTRACT = Path(__file__).parents[2] / "docs" / "numerics.md"
NATIVE = {
    "float32": np.float32,
    "float16": np.float16,
    "float64": np.float64,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e4m3": ml_dtypes.float8_e4m3,
    "float8_e3m4": ml_dtypes.float8_e3m4,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
}


def largest(name: str) -> Fraction:
    f = FORMATS[name]
    below = (((1 << f.exponent_bits) - 1) << f.mantissa_bits if f.has_inf else f.nan_bits) - 1
    return formats.decode(name, below << f.shift).value


def equals(ours: Number, value: float) -> None:
    if math.isfinite(value):
        assert ours.kind == "finite"
        assert ours.value == Fraction(value)
    else:
        assert ours.kind == ("nan" if math.isnan(value) else "inf")


def test_formats_F_are_the_contracts_table() -> None:
    """The rows of docs/numerics.md, read from its text."""
    rows = re.findall(
        r"\| `(\w+)` \| 1/(\d)/(\d+) \| (\d+) \| ([\d.e]+) \| (yes|no) \| ([0-9A-F]+) \| (\d) byte",
        CONTRACT.read_text(),
    )
    assert {row[0] for row in rows} == set(FORMATS) - {"float64"}
    for name, e_bits, m_bits, bias, top, inf, nan, size in rows:
        f = FORMATS[name]
        found = (f.exponent_bits, f.mantissa_bits, f.bias, f.has_inf, f.nan_bits)
        assert found == (int(e_bits), int(m_bits), int(bias), inf == "yes", int(nan, 16)), name
        assert f.sign_bit == 1 << (8 * int(size) - 1)
        assert math.isclose(float(largest(name)), float(top), rel_tol=1e-7)


def test_formats_F_equal_the_cores() -> None:
    for name, e_bits, m_bits, bias, has_inf, nan_bits, size in _core.FORMATS:
        f = FORMATS[name]
        found = (f.exponent_bits, f.mantissa_bits, f.bias, f.has_inf, f.nan_bits)
        assert found == (e_bits, m_bits, bias, has_inf, nan_bits), name
        assert f.shift == 8 * size - 1 - e_bits - m_bits
    assert {row[0] for row in _core.FORMATS} == set(FORMATS) - {"float64"}


@pytest.mark.parametrize("name", [n for n in NATIVE if n not in ("float32", "float64")])
def test_decode_F_equals_the_library_at_every_encoding(name: str) -> None:
    native = np.dtype(NATIVE[name])
    words = np.arange(1 << (8 * native.itemsize), dtype=f"u{native.itemsize}")
    with np.errstate(invalid="ignore"):  # signalling NaNs
        values = words.view(native).astype(np.float64)
    for word, value in zip(words.tolist(), values.tolist(), strict=True):
        ours = formats.decode(name, word)
        assert ours.negative == (word >> (8 * native.itemsize - 1) == 1)
        equals(ours, value)


@pytest.mark.parametrize(("name", "codes"), [("float32", "If"), ("float64", "Qd")])
def test_decode_F_of_wide_formats_equals_struct(name: str, codes: str) -> None:
    @given(st.integers(0, 2 ** (8 * struct.calcsize(codes[0])) - 1))
    def check(word: int) -> None:
        value = struct.unpack("<" + codes[1], struct.pack("<" + codes[0], word))[0]
        equals(formats.decode(name, word), value)

    check()


@given(st.floats(allow_nan=False))
def test_float64_C1_round_trip(x: float) -> None:
    assert formats.from_float("float64", x) == struct.unpack("<Q", struct.pack("<d", x))[0]


@given(st.floats(allow_nan=False))
def test_float64_to_float32_C2_equals_struct_and_numpy(x: float) -> None:
    with np.errstate(all="ignore"):
        expected = int(np.float64(x).astype(np.float32).view(np.uint32))
    assert formats.from_float("float32", x) == expected


@given(st.floats(width=16, allow_nan=False) | st.floats(-70000, 70000) | st.floats(-1e-4, 1e-4))
def test_float64_to_float16_C2_equals_struct_and_numpy(x: float) -> None:
    with np.errstate(all="ignore"):
        expected = int(np.float64(x).astype(np.float16).view(np.uint16))
    assert formats.from_float("float16", x) == expected
    if abs(x) < 65519:
        assert struct.pack("<e", x) == struct.pack("<H", expected)


@pytest.mark.parametrize("name", [n for n in NATIVE if n not in ("float32", "float64")])
def test_float32_C2_C3_C4_equals_the_library(name: str) -> None:
    """From float32: from float64 ml_dtypes rounds twice (D3)."""
    rng = np.random.default_rng(50)
    words = rng.integers(0, 1 << 32, 6000, np.uint32)
    words[2000:] = words[2000:] & 0x807FFFFF | rng.integers(100, 148, 4000, np.uint32) << np.uint32(23)
    words[4000:] &= np.uint32(0xFFFFE000)  # ties
    x = words.view(np.float32)
    x = x[~np.isnan(x)]
    with np.errstate(all="ignore"):
        native = x.astype(NATIVE[name])
    expected = native.view(f"u{native.itemsize}").tolist()
    assert [formats.convert("float32", name, w) for w in x.view(np.uint32).tolist()] == expected


@pytest.mark.parametrize("name", FORMATS)
def test_rounding_C2_at_ties_by_hand(name: str) -> None:
    """1, 1 + u/2, 1 + u and 1 + 3u/2 for the format's unit u, and either side of the ties."""
    f = FORMATS[name]
    one = f.bias << f.mantissa_bits
    unit = Fraction(1, 1 << f.mantissa_bits)
    crumb = unit / 2**80
    for value, steps in (
        (Fraction(1), 0),
        (1 + unit / 2, 0),
        (1 + unit / 2 + crumb, 1),
        (1 + unit / 2 - crumb, 0),
        (1 + unit, 1),
        (1 + 3 * unit / 2, 2),
        (1 + 3 * unit / 2 - crumb, 1),
        (2 - unit / 4, 1 << f.mantissa_bits),
    ):
        for negative in (False, True):
            bits = formats.round_number(name, Number("finite", negative, value))
            assert bits == (one + steps) << f.shift | (f.sign_bit if negative else 0)


@pytest.mark.parametrize("name", FORMATS)
def test_overflow_C3_and_underflow_C4_by_hand(name: str) -> None:
    f = FORMATS[name]
    top = ((1 << f.exponent_bits) - 1) << f.mantissa_bits
    overflow = top << f.shift if f.has_inf else f.nan_bits
    last = (top - 1) << f.shift if f.has_inf else f.nan_bits - 1
    largest_finite = largest(name)
    unit = largest_finite - formats.decode(name, last - (1 << f.shift)).value
    # The last value below Inf is odd, so its tie goes up; 448 of e4m3fn is even, so 464 goes down.
    threshold = largest_finite + unit / 2
    smallest = formats.decode(name, 1 << f.shift).value
    for magnitude, expected in (
        (threshold - unit / 2**60, last),
        (threshold, overflow if f.has_inf else last),
        (threshold + unit / 2**60, overflow),
        (threshold * 2**200, overflow),
        (smallest / 2, 0),
        (smallest / 2 + smallest / 2**60, 1 << f.shift),
        (smallest * 3 / 2, 2 << f.shift),
        (smallest / 2**500, 0),
    ):
        for sign in (0, f.sign_bit):
            number = Number("finite", sign != 0, magnitude)
            assert formats.round_number(name, number) == expected | sign
    for sign in (0, f.sign_bit):
        assert formats.round_number(name, Number("inf", sign != 0)) == overflow | sign
        assert formats.round_number(name, Number("nan", sign != 0)) == f.nan_bits | sign
        assert formats.round_number(name, Number("finite", sign != 0)) == sign


@given(st.integers(-(2**70), 2**70))
def test_integers_C1_are_rounded_once(x: int) -> None:
    assert formats.from_float("float64", x) == struct.unpack("<Q", struct.pack("<d", float(x)))[0]


def test_integers_C1_via_float32_or_exact() -> None:
    x = 1077936129
    assert formats.integer_to_float("bfloat16", x, bits=32) == 0x4E80
    assert formats.integer_to_float("bfloat16", x, bits=32, via_float32=False) == 0x4E81
    assert formats.integer_to_float("bfloat16", x, bits=64) == 0x4E81


@given(st.floats(width=32, allow_nan=False))
def test_float_to_integer_C6_truncates_and_saturates(x: float) -> None:
    word = formats.from_float("float32", x)
    for bits, signed in ((8, True), (32, True), (64, True), (8, False), (32, False), (64, False)):
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        ours = formats.float_to_integer("float32", word, bits=bits, signed=signed)
        if math.isinf(x):
            assert ours == (low if x < 0 else high)
        else:
            assert ours == max(low, min(high, int(x)))
    assert formats.float_to_integer("float32", 0x7FC00000, bits=32, signed=True) == 0


@given(st.integers(-(2**70), 2**70))
def test_wrap_E8_equals_struct(x: int) -> None:
    for bits, code in ((8, "b"), (16, "h"), (32, "i"), (64, "q")):
        raw = (x % (1 << bits)).to_bytes(bits // 8, "little")
        assert formats.wrap(x, bits=bits, signed=True) == struct.unpack("<" + code, raw)[0]
        assert formats.wrap(x, bits=bits, signed=False) == x % (1 << bits)
