"""Formats and conversions (rules F and C): decode to an exact value, round an exact value once.

>>> hex(from_float("bfloat16", 1 + 2**-8 + 2**-40))
'0x3f81'
>>> hex(round_number("float8_e4m3", Number("finite", False, Fraction(248))))
'0x78'
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Literal


@dataclass(frozen=True)
class FormatRow:
    """A format as rule F gives it; `shift` places the encoding in its storage word."""

    exponent_bits: int
    mantissa_bits: int
    has_inf: bool
    nan_bits: int
    shift: int = 0

    @cached_property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @cached_property
    def sign_bit(self) -> int:
        return 1 << (self.exponent_bits + self.mantissa_bits + self.shift)

    @cached_property
    def top(self) -> int:
        """The field of the largest exponent, without mantissa or shift."""
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    @cached_property
    def largest(self) -> int:
        """The field of the largest finite value, without shift."""
        return self.top - 1 if self.has_inf else (self.nan_bits >> self.shift) - 1


FORMATS = {
    "float32": FormatRow(8, 23, True, 0x7FC00000),
    "tfloat32": FormatRow(8, 10, True, 0x7FC00000, shift=13),
    "bfloat16": FormatRow(8, 7, True, 0x7FC0),
    "float16": FormatRow(5, 10, True, 0x7E00),
    "float8_e5m2": FormatRow(5, 2, True, 0x7E),
    "float8_e4m3": FormatRow(4, 3, True, 0x7C),
    "float8_e3m4": FormatRow(3, 4, True, 0x78),
    "float8_e4m3fn": FormatRow(4, 3, False, 0x7F),
    "float64": FormatRow(11, 52, True, 0x7FF8000000000000),
}


@dataclass(frozen=True)
class Number:
    """The exact value of an encoding: `magnitude` counts for the kind `finite`, zero included."""

    kind: Literal["finite", "inf", "nan"]
    negative: bool
    magnitude: Fraction = Fraction(0)

    @property
    def value(self) -> Fraction:
        return -self.magnitude if self.negative else self.magnitude

    @cached_property
    def ratio(self) -> tuple[int, int]:
        """The value's numerator and denominator: Python's own fractions take several times as long."""
        numerator, denominator = self.magnitude.as_integer_ratio()
        return -numerator if self.negative else numerator, denominator


@lru_cache(1 << 16)  # sums and windows ask for the same words again and again
def decode(format_name: str, bits: int) -> Number:
    """The exact value of storage bits."""
    f, bits = FORMATS[format_name], int(bits)
    negative = bool(bits & f.sign_bit)
    field = (bits & (f.sign_bit - 1)) >> f.shift
    exponent, mantissa = field >> f.mantissa_bits, field & ((1 << f.mantissa_bits) - 1)
    top = (1 << f.exponent_bits) - 1
    if f.has_inf and exponent == top:
        return Number("nan" if mantissa else "inf", negative)
    if not f.has_inf and field == f.nan_bits >> f.shift:
        return Number("nan", negative)
    if exponent == 0:
        scale, significand = 1 - f.bias, mantissa
    else:
        scale, significand = exponent - f.bias, mantissa + (1 << f.mantissa_bits)
    unit = scale - f.mantissa_bits
    value = Fraction(significand << unit) if unit >= 0 else Fraction(significand, 1 << -unit)
    return Number("finite", negative, value)


def round_number(
    format_name: str,
    x: Number,
    *,
    word: int | None = None,
    fp8_overflow: str = "inf",
    subnormals: str = "keep",
) -> int:
    """The format's nearest value, ties to even (C2), as storage bits; overflow by C3, NaN by C5.

    With a 32-bit `word` the rounding is stochastic (S1). `fp8_overflow` and `subnormals` are the
    profile's fields (C3, C4).
    """
    f = FORMATS[format_name]
    sign = f.sign_bit if x.negative else 0
    if x.kind == "nan":
        return sign | f.nan_bits
    if x.kind == "inf":
        return sign | _overflow(f, fp8_overflow if fp8_overflow == "nan" else "inf")
    numerator, denominator = x.magnitude.as_integer_ratio()
    overflow = _overflow(f, fp8_overflow)
    return sign | _rounded(f, numerator, denominator, word, overflow, subnormals == "flush")


def round_ratio(format_name: str, numerator: int, denominator: int, *, zero_negative: bool) -> int:
    """The value nearest to a ratio, as `round_number` gives it; the denominator is positive."""
    f = FORMATS[format_name]
    field = _rounded(f, abs(numerator), denominator, None, _overflow(f, "inf"), False)
    return field | f.sign_bit if numerator < 0 or (zero_negative and not numerator) else field


def _overflow(f: FormatRow, fp8_overflow: str) -> int:
    """What is beyond the largest finite value (C3)."""
    if not f.has_inf:
        return f.nan_bits
    if fp8_overflow != "inf" and f.exponent_bits + f.mantissa_bits == 7:
        return f.nan_bits if fp8_overflow == "nan" else f.top - 1
    return f.top << f.shift


def _rounded(
    f: FormatRow, numerator: int, denominator: int, word: int | None, overflow: int, flush: bool
) -> int:
    """A ratio that is not negative, whether it is in lowest terms or not."""
    if not numerator:
        return 0
    exponent = _floor_log2(numerator, denominator)
    # In units of 2^unit, as a ratio.
    unit = max(exponent, 1 - f.bias) - f.mantissa_bits
    whole, part = numerator << max(-unit, 0), denominator << max(unit, 0)
    steps, rest = divmod(whole, part)
    if word is None:
        steps += 2 * rest > part or (2 * rest == part and steps % 2 == 1)
    else:
        steps += rest * 2**32 // part + word >= 2**32
    if flush and f.exponent_bits == 8 and steps < 1 << f.mantissa_bits:
        return 0
    # The encodings are in the order of the values, so counting units past the binade's start, which a
    # carry into the next binade does too, gives the encoding.
    field = steps + max(exponent + f.bias - 1, 0) * (1 << f.mantissa_bits)
    return overflow if field > f.largest else field << f.shift


def floor_log2(x: Fraction) -> int:
    return _floor_log2(x.numerator, x.denominator)


def _floor_log2(numerator: int, denominator: int) -> int:
    e = numerator.bit_length() - denominator.bit_length()
    return e if denominator << max(e, 0) <= numerator << max(-e, 0) else e - 1


def exact(x: float | int) -> Number:
    """The exact value of a Python number."""
    if isinstance(x, int):
        return Number("finite", x < 0, Fraction(abs(x)))
    negative = math.copysign(1.0, x) < 0
    if math.isnan(x):
        return Number("nan", negative)
    if math.isinf(x):
        return Number("inf", negative)
    return Number("finite", negative, Fraction(abs(x)))


def from_float(format_name: str, x: float | int) -> int:
    """A Python number rounded once (C1)."""
    return round_number(format_name, exact(x))


@lru_cache(1 << 16, typed=True)  # what moves has its caller's type of integer
def convert(source: str, target: str, bits: int) -> int:
    """Float to float (C1-C5); the same type moves bits."""
    return bits if source == target else round_number(target, decode(source, bits))


def integer_to_float(target: str, value: int, *, bits: int, via_float32: bool = True) -> int:
    """An integer of a type of `bits` bits to a float (C1, field `int_to_float`)."""
    if via_float32 and bits <= 32:
        return convert("float32", target, from_float("float32", value))
    return from_float(target, value)


def float_to_integer(
    source: str, encoding: int, *, bits: int, signed: bool, nearest: bool = False
) -> int:
    """Truncates toward zero, or rounds to nearest even; saturates, NaN to 0 (C6); the result is the
    integer's value.
    """
    x = decode(source, encoding)
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    if x.kind == "nan":
        return 0
    if x.kind == "inf":
        return low if x.negative else high
    whole = round(x.value) if nearest else math.trunc(x.value)
    return min(max(whole, low), high)


def wrap(value: int, *, bits: int, signed: bool) -> int:
    """The value modulo 2^bits (E8, C6)."""
    low = value & ((1 << bits) - 1)
    return low - (1 << bits) if signed and low >> (bits - 1) else low
