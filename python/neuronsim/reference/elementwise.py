"""Elementwise arithmetic (rules E): operands as float32 bits, one rounding to float32.

>>> hex(FLOAT["add"](0x3F800000, 0x33800000))  # 1 + 2^-24 is a tie and goes to even
'0x3f800000'
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

from neuronsim.reference.formats import (
    FORMATS,
    Number,
    decode,
    floor_log2,
    round_number,
    round_ratio,
)
from neuronsim.reference.functions import FUNCTIONS, INF, NAN, SIGN, nearest

_nearest_ratio = partial(round_ratio, "float32")


def _pair(a: int, b: int) -> tuple[Number, Number]:
    return decode("float32", a), decode("float32", b)


def add(a: int, b: int) -> int:
    x, y = _pair(a, b)
    if "nan" in (x.kind, y.kind):
        return NAN
    if "inf" in (x.kind, y.kind):
        if x.kind == y.kind and x.negative != y.negative:
            return NAN
        return a if x.kind == "inf" else b
    (n, d), (m, e) = x.ratio, y.ratio
    return _nearest_ratio(n * e + m * d, d * e, zero_negative=x.negative and y.negative)


def subtract(a: int, b: int) -> int:
    return add(a, b ^ SIGN)


def multiply(a: int, b: int) -> int:
    x, y = _pair(a, b)
    negative = x.negative != y.negative
    if "nan" in (x.kind, y.kind):
        return NAN
    if "inf" in (x.kind, y.kind):
        finite_zero = any(v.kind == "finite" and v.magnitude == 0 for v in (x, y))
        return NAN if finite_zero else INF | (SIGN if negative else 0)
    (n, d), (m, e) = x.ratio, y.ratio
    return _nearest_ratio(n * m, d * e, zero_negative=negative)


def divide(a: int, b: int) -> int:
    x, y = _pair(a, b)
    negative = x.negative != y.negative
    sign = SIGN if negative else 0
    if "nan" in (x.kind, y.kind) or x.kind == y.kind == "inf":
        return NAN
    if y.kind == "inf":
        return sign
    if x.kind == "inf":
        return INF | sign
    if y.magnitude == 0:
        return NAN if x.magnitude == 0 else INF | sign
    (n, d), (m, e) = x.ratio, y.ratio
    return _nearest_ratio(n * e if m > 0 else -n * e, d * abs(m), zero_negative=negative)


def fma(a: int, b: int, c: int) -> int:
    """A * b + c with one rounding (M2)."""
    x, y = _pair(a, b)
    z = decode("float32", c)
    if "inf" in (x.kind, y.kind, z.kind) or "nan" in (x.kind, y.kind, z.kind):
        product = multiply(a, b)
        # A finite product cannot change an infinite c; its overflow must not meet it either.
        if decode("float32", product).kind == "inf" and "inf" not in (x.kind, y.kind):
            product = 0
        return add(product, c)
    negative = x.negative != y.negative
    (n, d), (m, e), (k, f) = x.ratio, y.ratio, z.ratio
    zero_negative = negative and z.negative
    return _nearest_ratio(n * m * f + k * d * e, d * e * f, zero_negative=zero_negative)


def maximum(a: int, b: int) -> int:
    """E7: NaN wins, +0 is above -0."""
    x, y = _pair(a, b)
    if "nan" in (x.kind, y.kind):
        return NAN
    return a if total_order(a) >= total_order(b) else b


def minimum(a: int, b: int) -> int:
    x, y = _pair(a, b)
    if "nan" in (x.kind, y.kind):
        return NAN
    return a if total_order(a) <= total_order(b) else b


def total_order(bits: int) -> int:
    """A key that orders float32 bits as TOTALORDER does (E7)."""
    return ~bits & 0xFFFFFFFF if bits & SIGN else bits | SIGN


def negative(a: int) -> int:
    return a ^ SIGN


def absolute(a: int) -> int:
    return a & ~SIGN


def _whole(a: int, decide: Callable[[Fraction], int]) -> int:
    """E9: an integer near the value, exact; a zero keeps the sign."""
    x = decode("float32", a)
    if x.kind == "nan":
        return NAN
    if x.kind == "inf":
        return a
    return nearest(Fraction(decide(x.value)), zero_negative=x.negative)


def _half_away(x: Fraction) -> int:
    whole = math.floor(abs(x) + Fraction(1, 2))
    return -whole if x < 0 else whole


def sign(a: int) -> int:
    """-1 or 1 by the sign; zeros keep theirs (E9, HLO)."""
    x = decode("float32", a)
    if x.kind == "nan":
        return NAN
    return a if x.kind == "finite" and x.magnitude == 0 else (a & SIGN) | 0x3F800000


def fmod(a: int, b: int) -> int:
    """HLO's remainder (E9): exact, the sign of the dividend."""
    x, y = _pair(a, b)
    if "nan" in (x.kind, y.kind) or x.kind == "inf" or (y.kind == "finite" and y.magnitude == 0):
        return NAN
    if y.kind == "inf":
        return a
    return nearest(abs(x.value) % y.magnitude * (-1 if x.negative else 1), zero_negative=x.negative)


def remainder(a: int, b: int) -> int:
    """The arrays' % (E9): fmod, plus the divisor where the signs differ; zeros take its sign."""
    r, y = fmod(a, b), decode("float32", b)
    x = decode("float32", r)
    if x.kind == "nan":
        return NAN
    if x.magnitude == 0:
        return SIGN if y.negative else 0
    return add(r, b) if x.negative != y.negative else r


def floor_divide(a: int, b: int) -> int:
    """The arrays' // (E9): the floor of the exact quotient, rounded once."""
    x, y = _pair(a, b)
    if x.kind != "finite" or y.kind != "finite" or y.magnitude == 0:
        return divide(a, b)
    negative = x.negative != y.negative
    return nearest(Fraction(math.floor(x.value / y.value)), zero_negative=negative)


def clamp(low: int, x: int, high: int) -> int:
    """minimum(maximum(x, low), high) (E7)."""
    return minimum(maximum(x, low), high)


def nextafter(format_name: str, a: int, b: int) -> int:
    """The next encoding of the format after `a` towards `b` (E9)."""
    f = FORMATS[format_name]
    x, y = decode(format_name, a), decode(format_name, b)
    if "nan" in (x.kind, y.kind):
        return f.nan_bits
    unit, sign_bit = 1 << f.shift, f.sign_bit
    if _order(x) == _order(y):
        return b
    if x.kind == "finite" and x.magnitude == 0:
        return unit if _order(y) > 0 else sign_bit | unit
    return a + unit if (_order(y) > _order(x)) != x.negative else a - unit


def _order(x: Number) -> Fraction | float:
    return math.copysign(math.inf, -1 if x.negative else 1) if x.kind == "inf" else x.value


def reduce_precision(format_name: str, a: int, exponent_bits: int, mantissa_bits: int) -> int:
    """C9: nearest even at the mantissa bits; Inf above and zero below what the exponent bits reach."""
    f = FORMATS[format_name]
    x = decode(format_name, a)
    if x.kind == "nan":
        return f.nan_bits | (a & f.sign_bit)
    if x.kind == "inf" or x.magnitude == 0:
        return a
    # The position of the last bit kept is the format's own, also for its subnormals.
    exponent = max(floor_log2(x.magnitude), 1 - f.bias)
    unit = Fraction(2) ** (exponent - min(mantissa_bits, f.mantissa_bits))
    steps = round(x.magnitude / unit)
    if mantissa_bits == 0 and x.magnitude / unit == Fraction(3, 2):
        # Without a mantissa the exponent's last bit makes an encoding even (XLA's rule).
        steps = 2 if (exponent + f.bias) % 2 else 1
    rounded = steps * unit
    if exponent_bits < f.exponent_bits:
        bias = int(2 ** (exponent_bits - 1)) - 1
        if rounded >= Fraction(2) ** (bias + 1):
            return round_number(format_name, Number("inf", x.negative))
        if rounded < Fraction(2) ** (1 - bias):
            rounded = Fraction(0)
    return round_number(format_name, Number("finite", x.negative, rounded))


FLOAT: dict[str, Callable[..., int]] = {
    "add": add,
    "subtract": subtract,
    "multiply": multiply,
    "divide": divide,
    "maximum": maximum,
    "minimum": minimum,
    "clamp": clamp,
    "fmod": fmod,
    "remainder": remainder,
    "floor_divide": floor_divide,
    "sign": sign,
    "floor": lambda a: _whole(a, math.floor),
    "ceil": lambda a: _whole(a, math.ceil),
    "trunc": lambda a: _whole(a, math.trunc),
    "rint": lambda a: _whole(a, round),
    "round_half_away": lambda a: _whole(a, _half_away),
    "negative": negative,
    "abs": absolute,
    "copysign": lambda a, b: (a & ~SIGN) | (b & SIGN),
    **FUNCTIONS,
}

COMPARISON: dict[str, Callable[[Fraction | float | int, Fraction | float | int], bool]] = {
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
}


def compare(name: str, a: int, b: int) -> bool:
    """E7, FLOAT order on float32 bits: NaN compares false but for not_equal; -0 equals +0."""
    x, y = _pair(a, b)
    if "nan" in (x.kind, y.kind):
        return name == "not_equal"
    return COMPARISON[name](_order(x), _order(y))


def compare_total_order(name: str, a: int, b: int) -> bool:
    """E7, TOTALORDER on float32 bits; `name` is one of COMPARISON."""
    return COMPARISON[name](total_order(a), total_order(b))


PREDICATE: dict[str, Callable[[int], bool]] = {
    "isfinite": lambda a: decode("float32", a).kind == "finite",
    "isnan": lambda a: decode("float32", a).kind == "nan",
    "isinf": lambda a: decode("float32", a).kind == "inf",
    "signbit": lambda a: bool(a & SIGN),
}


def divide_integer(a: int, b: int) -> int:
    """E8: x/0 is -1 or all ones; the quotient truncates. The caller wraps."""
    if b == 0:
        return -1
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


def remainder_integer(a: int, b: int) -> int:
    """HLO's remainder (E8): by 0 the dividend."""
    return a if b == 0 else a - b * divide_integer(a, b)


def power_integer(a: int, b: int) -> int:
    """E8: a negative exponent gives 1 for base 1, 1 or -1 for -1, else 0. The caller wraps."""
    if b >= 0:
        return pow(a, b, 1 << 64)
    return 1 if a == 1 else (-1 if b % 2 else 1) if a == -1 else 0


def shift_left(a: int, b: int, bits: int) -> int:
    """E8: the amount is unsigned; by the width or more gives 0. The caller wraps."""
    amount = b & ((1 << bits) - 1)
    return a << amount if amount < bits else 0


def shift_right_arithmetic(a: int, b: int, bits: int) -> int:
    """E8: by the width or more gives the sign, which an unsigned type has in its top bit."""
    low = a & ((1 << bits) - 1)
    value = low - (1 << bits) if low >> (bits - 1) else low
    return value >> min(b & ((1 << bits) - 1), bits - 1)


def shift_right_logical(a: int, b: int, bits: int) -> int:
    """E8: the bits read as unsigned; by the width or more gives 0."""
    amount = b & ((1 << bits) - 1)
    return (a & ((1 << bits) - 1)) >> amount if amount < bits else 0


INTEGER: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": divide_integer,
    "maximum": max,
    "minimum": min,
    "clamp": lambda low, x, high: min(max(x, low), high),
    "fmod": remainder_integer,
    "remainder": lambda a, b: a % b if b else 0,
    "floor_divide": lambda a, b: a // b if b else 0,
    "sign": lambda a: (a > 0) - (a < 0),
    "power": power_integer,
    "negative": lambda a: -a,
    "abs": abs,
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "bitwise_invert": lambda a: ~a,
}

# These take the width of the type as well.
INTEGER_BITS: dict[str, Callable[..., int]] = {
    "shift_left": shift_left,
    "shift_right_arithmetic": shift_right_arithmetic,
    "shift_right_logical": shift_right_logical,
    "population_count": lambda a, bits: (a & ((1 << bits) - 1)).bit_count(),
    "count_leading_zeros": lambda a, bits: bits - (a & ((1 << bits) - 1)).bit_length(),
}

# E8 on bool: add and maximum are or, multiply and minimum are and.
BOOL: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a | b,
    "multiply": lambda a, b: a & b,
    "maximum": lambda a, b: a | b,
    "minimum": lambda a, b: a & b,
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "bitwise_invert": lambda a: 1 - a,
}
