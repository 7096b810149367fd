"""Quantized integers (rules Q) on exact numbers.

>>> from neuronsim.reference.formats import from_float
>>> half = from_float("float32", 0.5)
>>> [quantize(from_float("float32", x), half, 3, bits=8, signed=False) for x in (0.75, 1.25, -9.0)]
[5, 5, 0]
"""

from __future__ import annotations

from fractions import Fraction

from neuronsim.reference.formats import Number, decode, integer_to_float, round_number


def _limits(bits: int, signed: bool) -> tuple[int, int]:
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


def _nearest(ratio: int, zero_point: int, bits: int, signed: bool) -> int:
    """The nearest integer to a float32, ties to even, plus the zero point, within the limits."""
    low, high = _limits(bits, signed)
    x = decode("float32", ratio)
    if x.kind == "nan":
        return zero_point
    if x.kind == "inf":
        return low if x.negative else high
    return min(max(round(x.value) + zero_point, low), high)


def quantize(x: int, scale: int, zero_point: int, *, bits: int, signed: bool) -> int:
    """Q1: the integer of float32 bits, by a scale that is float32 bits."""
    value, by = decode("float32", x), decode("float32", scale)
    if value.kind == "finite":
        ratio = round_number(
            "float32", Number("finite", value.negative, value.magnitude / by.magnitude)
        )
    else:
        ratio = x
    return _nearest(ratio, zero_point, bits, signed)


def dequantize(q: int, scale: int, zero_point: int) -> int:
    """Q2: the float32 bits that an integer stands for."""
    return _product(integer_to_float("float32", q - zero_point, bits=32), scale)


def requantize(
    total: int,
    scales: tuple[int, int],
    scale: int,
    zero_point: int,
    *,
    bits: int,
    signed: bool,
    exact: bool = False,
) -> int:
    """Q3: a product's sum in int32 as an integer: by the operands' scales over the result's, rounded in
    float32 step by step or, where it is exact, once to the integer.
    """
    if exact:
        a, b, c = (decode("float32", s).magnitude for s in (*scales, scale))
        low, high = _limits(bits, signed)
        return min(max(round(Fraction(total) * a * b / c) + zero_point, low), high)
    factor = _product(*scales)
    by, own = decode("float32", factor), decode("float32", scale)
    factor = round_number("float32", Number("finite", False, by.magnitude / own.magnitude))
    ratio = _product(integer_to_float("float32", total, bits=32), factor)
    return _nearest(ratio, zero_point, bits, signed)


def quantize_bias(x: int, scales: tuple[int, int]) -> int:
    """Q7: the int32 number of a bias, float32 bits, by the operands' scales: their product rounded to
    float32, the quotient once to float64.
    """
    value, by = decode("float32", x), decode("float32", _product(*scales))
    if value.kind == "nan":
        return 0
    low, high = _limits(32, True)
    if value.kind == "inf":
        return low if value.negative else high
    return min(max(round(float(value.value / Fraction(by.magnitude))), low), high)


def _product(x: int, y: int) -> int:
    """The product of finite float32 values, rounded once."""
    a, b = decode("float32", x), decode("float32", y)
    magnitude = Fraction(a.magnitude * b.magnitude)
    return round_number("float32", Number("finite", a.negative != b.negative, magnitude))
