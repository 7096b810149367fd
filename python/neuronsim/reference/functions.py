"""The correctly rounded functions (rules E3 and E4) on float32 words.

A function is its formula on intervals and its values where the formula has none. The digits are
raised until both ends of the interval round to the same float32; where the exact value can be a tie,
which would never end, it is computed algebraically.

>>> hex(FUNCTIONS["exp"](0x3F800000))
'0x402df854'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from math import isqrt
from typing import Literal

from neuronsim.reference.formats import decode, round_ratio
from neuronsim.reference.intervals import Interval, Undecided, pi

NAN = 0x7FC00000
INF = 0x7F800000
SIGN = 0x80000000
ONE = 0x3F800000
MINUS_INF, MINUS_ONE, MINUS_ZERO = SIGN | INF, SIGN | ONE, SIGN
HALF_PI = 0x3FC90FDB

Formula = Callable[[Interval], Interval]


def nearest(value: Fraction, *, zero_negative: bool = False) -> int:
    """The float32 word nearest to an exact value."""
    return round_ratio("float32", *value.as_integer_ratio(), zero_negative=zero_negative)


def _nearest_end(end: Decimal, *, zero_negative: bool) -> int:
    if end.is_infinite():
        return MINUS_INF if end < 0 else INF
    return round_ratio("float32", *end.as_integer_ratio(), zero_negative=zero_negative)


def decide(evaluate: Callable[[int], Interval]) -> int:
    """Raise the digits until both ends of the interval round to the same float32 (E3)."""
    digits = 40
    while digits < 3000:
        try:
            y = evaluate(digits)
        except Undecided:
            pass
        else:
            # The exact value is not zero here, so an end that is zero or rounds to it has its sign.
            low, high = (_nearest_end(end, zero_negative=y.low < 0) for end in (y.low, y.high))
            if low == high and not y.low < 0 < y.high:
                return low
        digits *= 2
    raise AssertionError("an exact tie that is not computed algebraically")


# ---- formulas that have no operation of their own ------------------------------------------------


def _tanh(x: Interval) -> Interval:
    return 1 - 2 / ((2 * x).exp() + 1)


def _asin(x: Interval) -> Interval:
    return 2 * (x / (1 + (1 - x * x).sqrt())).atan()


def _sigmoid(x: Interval) -> Interval:
    return 1 / (1 + (-x).exp())


def _normal_cdf(x: Interval) -> Interval:
    return (1 + (x / Interval.of(2, x.digits).sqrt()).erf()) / 2


def _softplus(x: Interval) -> Interval:
    return x + (1 + (-x).exp()).log() if x.low > 0 else (1 + x.exp()).log()


def _gelu_tanh(x: Interval) -> Interval:
    cubic = x + 44715 * x * x * x / 1000000
    return x / 2 * (1 + _tanh((2 / pi(x.digits)).sqrt() * cubic))


def _gelu_dx(x: Interval) -> Interval:
    slope = x * (-(x * x) / 2).exp() / (2 * pi(x.digits)).sqrt()
    if x.high < -20:  # the distribution is below -slope / x^2 there, so the sum is below 0
        return Interval(slope.low, Decimal(0), x.digits)
    return _normal_cdf(x) + slope


def _product_dx(x: Interval) -> Interval:
    """The derivative of c x sigmoid(c x) by c x."""
    s = _sigmoid(x)
    return s * (1 + x * (1 - s))


def _gelu_sigmoid_argument(x: Interval) -> Interval:
    return 1702 * x / 1000


# ---- functions of one variable (E3) --------------------------------------------------------------


def keep(a: int) -> int:
    """At a zero: the zero with its sign."""
    return a


def pole(a: int) -> int:
    """At a zero: Inf with its sign."""
    return INF | a


@dataclass(frozen=True)
class Function:
    """A formula, its limits, and its values at points where it has none or is exactly zero. Without
    an entry the formula holds at zeros too; outside the closed domain the result is NaN. The formula
    of an odd or even function has to hold for positive arguments only.
    """

    formula: Formula
    at_minus_inf: int
    at_inf: int
    at_zero: Callable[[int], int] | None = None
    at: Mapping[int, int] = field(default_factory=dict)
    domain: tuple[float, float] = (-math.inf, math.inf)
    parity: Literal["odd", "even", ""] = ""

    def __call__(self, a: int) -> int:
        x = decode("float32", a)
        if x.kind == "nan":
            return NAN
        if x.kind == "inf":
            return self.at_minus_inf if x.negative else self.at_inf
        if x.magnitude == 0 and self.at_zero is not None:
            return self.at_zero(a)
        if x.value in self.at:
            return self.at[int(x.value)]
        if not self.domain[0] <= x.value <= self.domain[1]:
            return NAN
        sign = SIGN if self.parity == "odd" and x.negative else 0
        argument = x.magnitude if self.parity else x.value
        return sign ^ decide(lambda digits: self.formula(Interval.of(argument, digits)))


POSITIVE, UNIT = (0, math.inf), (-1, 1)

ONE_VARIABLE = {
    "exp": Function(Interval.exp, 0, INF),
    # -150 is the only tie of them all: half of the least float32.
    "exp2": Function(lambda x: (x * Interval.of(2, x.digits).log()).exp(), 0, INF, at={-150: 0}),
    "expm1": Function(lambda x: x.exp() - 1, MINUS_ONE, INF, keep),
    "log": Function(Interval.log, NAN, INF, lambda _: MINUS_INF, {1: 0}, POSITIVE),
    "log2": Function(
        lambda x: x.log() / Interval.of(2, x.digits).log(),
        *(NAN, INF, lambda _: MINUS_INF, {1: 0}, POSITIVE),
    ),
    "log10": Function(
        lambda x: x.log() / Interval.of(10, x.digits).log(),
        *(NAN, INF, lambda _: MINUS_INF, {1: 0}, POSITIVE),
    ),
    "log1p": Function(lambda x: (1 + x).log(), NAN, INF, keep, {-1: MINUS_INF}, (-1, math.inf)),
    "sin": Function(Interval.sin, NAN, NAN, keep, parity="odd"),
    "cos": Function(Interval.cos, NAN, NAN, parity="even"),
    "tan": Function(lambda x: x.sin() / x.cos(), NAN, NAN, keep, parity="odd"),
    "asin": Function(_asin, NAN, NAN, keep, domain=UNIT, parity="odd"),
    "acos": Function(lambda x: pi(x.digits) / 2 - _asin(x), NAN, NAN, at={1: 0}, domain=UNIT),
    "atan": Function(Interval.atan, SIGN | HALF_PI, HALF_PI, keep, parity="odd"),
    "sinh": Function(lambda x: (x.exp() - (-x).exp()) / 2, MINUS_INF, INF, keep, parity="odd"),
    "cosh": Function(lambda x: (x.exp() + (-x).exp()) / 2, INF, INF, parity="even"),
    "tanh": Function(_tanh, MINUS_ONE, ONE, keep, parity="odd"),
    "asinh": Function(lambda x: (x + (x * x + 1).sqrt()).log(), MINUS_INF, INF, keep, parity="odd"),
    "acosh": Function(
        lambda x: (x + (x * x - 1).sqrt()).log(), NAN, INF, at={1: 0}, domain=(1, math.inf)
    ),
    "atanh": Function(
        lambda x: ((1 + x) / (1 - x)).log() / 2, NAN, NAN, keep, {-1: MINUS_INF, 1: INF}, UNIT, "odd"
    ),
    "erf": Function(Interval.erf, MINUS_ONE, ONE, keep, parity="odd"),
    "erfc": Function(lambda x: 1 - x.erf(), 0x40000000, 0),
    # No root of a float32 is a tie: the square or cube of 25 significant bits has more than 24.
    "rsqrt": Function(lambda x: 1 / x.sqrt(), NAN, 0, pole, domain=POSITIVE),
    "sqrt": Function(Interval.sqrt, NAN, INF, keep, domain=POSITIVE),
    "cbrt": Function(lambda x: (x.log() / 3).exp(), MINUS_INF, INF, keep, parity="odd"),
    # Nor is a reciprocal: it has finitely many bits only for powers of two.
    "reciprocal": Function(lambda x: 1 / x, MINUS_ZERO, 0, pole, parity="odd"),
    "sigmoid": Function(_sigmoid, 0, ONE),
    "silu": Function(lambda x: x * _sigmoid(x), MINUS_ZERO, INF, keep),
    "gelu": Function(lambda x: x * _normal_cdf(x), MINUS_ZERO, INF, keep),
    "gelu_tanh": Function(_gelu_tanh, MINUS_ZERO, INF, keep),
    "gelu_sigmoid": Function(lambda x: x * _sigmoid(_gelu_sigmoid_argument(x)), MINUS_ZERO, INF, keep),
    "softplus": Function(_softplus, 0, INF),
    "mish": Function(lambda x: x * _tanh(_softplus(x)), MINUS_ZERO, INF, keep),
    "erf_dx": Function(lambda x: 2 / pi(x.digits).sqrt() * (-(x * x)).exp(), 0, 0, parity="even"),
    "silu_dx": Function(_product_dx, MINUS_ZERO, ONE),
    "gelu_dx": Function(_gelu_dx, MINUS_ZERO, ONE),
    "gelu_sigmoid_dx": Function(lambda x: _product_dx(_gelu_sigmoid_argument(x)), MINUS_ZERO, ONE),
}


# ---- functions of two variables (E4): special cases by Annex F of C ------------------------------


def power(a: int, b: int) -> int:
    x, y = decode("float32", a), decode("float32", b)
    if (y.kind == "finite" and y.magnitude == 0) or a == ONE:
        return ONE  # whatever the other is, NaN included
    if "nan" in (x.kind, y.kind):
        return NAN
    if y.kind == "inf":
        if x.kind == "finite" and x.magnitude == 1:
            return ONE
        above_one = x.kind == "inf" or x.magnitude > 1
        return 0 if above_one == y.negative else INF
    whole = y.magnitude.denominator == 1
    sign = SIGN if x.negative and whole and y.magnitude.numerator % 2 else 0
    if x.kind == "inf" or x.magnitude == 0:
        return sign | (0 if (x.kind == "inf") == y.negative else INF)
    if x.negative and not whole:
        return NAN
    exact = _exact_power(x.magnitude, y.value)
    if exact is not None:
        return sign | nearest(exact)
    return sign | decide(lambda n: (Interval.of(y.value, n) * Interval.of(x.magnitude, n).log()).exp())


def _exact_power(x: Fraction, y: Fraction) -> Fraction | None:
    """x^y where it has finitely many bits, and few enough to be a tie."""
    zeros = (x.numerator & -x.numerator).bit_length() - 1
    root = x.numerator >> zeros
    binary = y * (zeros - (x.denominator.bit_length() - 1))  # x^y = root^y 2^binary
    for _ in range(y.denominator.bit_length() - 1):  # that many square roots
        if root == 1:
            break
        if isqrt(root) ** 2 != root:
            return None
        root = isqrt(root)
    if binary.denominator != 1 or abs(binary) > 1000:
        return None
    if root != 1 and (y < 0 or root.bit_length() * y.numerator > 1000):
        return None
    odd = 1 if root == 1 else pow(root, y.numerator)
    return odd * Fraction(2) ** int(binary)


def atan2(b: int, a: int) -> int:
    """The angle of the point (a, b)."""
    y, x = decode("float32", b), decode("float32", a)
    if "nan" in (x.kind, y.kind):
        return NAN
    sign = b & SIGN
    if y.kind == "finite" and (y.magnitude == 0 or x.kind == "inf"):
        return sign | (decide(pi) if x.negative else 0)
    if y.kind == "inf":
        quarters = 2 if x.kind == "finite" else 3 if x.negative else 1
        return sign | decide(lambda digits: quarters * pi(digits) / 4)
    if x.magnitude == 0:
        return sign | HALF_PI
    slope = y.magnitude / x.magnitude
    if x.negative:
        return sign | decide(lambda digits: pi(digits) - Interval.of(slope, digits).atan())
    return sign | decide(lambda digits: Interval.of(slope, digits).atan())


def hypot(a: int, b: int) -> int:
    x, y = decode("float32", a), decode("float32", b)
    if "inf" in (x.kind, y.kind):
        return INF  # also beside NaN
    if "nan" in (x.kind, y.kind):
        return NAN
    # Ties and float32 are multiples of 2^-150: the root's floor in these units decides, with a half
    # for what is above it.
    square = int((x.magnitude**2 + y.magnitude**2) * 2**300)
    root = isqrt(square)
    return nearest(Fraction(2 * root + (root * root != square), 2**151))


def _log_of_sum(a: int, b: int, ln_base: Callable[[int], Interval]) -> int:
    """The logarithm of c^a + c^b to the base c, ln c being given to so many digits. It is irrational
    but for operands that are equal, of base 2.
    """
    x, y = decode("float32", a), decode("float32", b)
    if "nan" in (x.kind, y.kind):
        return NAN
    if INF in (a, b):
        return INF
    if MINUS_INF in (a, b):  # a zero is ln 1, which is +0
        other = b if a == MINUS_INF else a
        return 0 if other == MINUS_ZERO else other
    high, low = max(x.value, y.value), min(x.value, y.value)

    def formula(digits: int) -> Interval:
        scale = ln_base(digits)
        ratio = (Interval.of(low - high, digits) * scale).exp()
        return Interval.of(high, digits) + (1 + ratio).log() / scale

    return decide(formula)


def logaddexp(a: int, b: int) -> int:
    """ln(e^a + e^b)."""
    return _log_of_sum(a, b, lambda digits: Interval.of(1, digits))


def logaddexp2(a: int, b: int) -> int:
    """log2(2^a + 2^b)."""
    x, y = decode("float32", a), decode("float32", b)
    if x.kind == y.kind == "finite" and x.value == y.value:
        return nearest(x.value + 1)
    return _log_of_sum(a, b, lambda digits: Interval.of(2, digits).log())


FUNCTIONS: dict[str, Callable[..., int]] = {
    **ONE_VARIABLE,
    **{f.__name__: f for f in (power, atan2, hypot, logaddexp, logaddexp2)},
}
