"""Interval arithmetic: real numbers between two decimals, and the functions that rule E3 is made of.

Every operation rounds the lower end down and the upper end up, so the exact result lies between the
ends; more digits bring them together.

>>> str(Interval.of(Fraction(2), 12).sqrt())
'[1.41421356236, 1.41421356238]'
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, DivisionByZero, InvalidOperation
from fractions import Fraction
from functools import cache
from math import isqrt

# Beyond this exp(x) is taken as "very large" or "nearly 0"; times any float32 it stays so in float32.
EXP_LIMIT = 300
# 1 - erf(x) is no longer computed but bounded from here on: e^-x^2 is far below the least float32.
ERF_LIMIT = 12
GUARD = 10


class Undecided(ArithmeticError):
    """The interval is too wide for the operation: compute again with more digits."""


@cache
def _context(digits: int, rounding: str) -> Context:
    return Context(digits, rounding, -9999, 9999, traps=[InvalidOperation, DivisionByZero])


class Interval:
    """The numbers from `low` to `high`, which may be infinite; operations keep `digits` digits."""

    __slots__ = ("digits", "high", "low")

    def __init__(self, low: Decimal, high: Decimal, digits: int) -> None:
        self.low, self.high, self.digits = low, high, digits

    @staticmethod
    def of(x: Fraction | int, digits: int) -> Interval:
        numerator, denominator = Decimal(x.numerator), Decimal(x.denominator)
        down, up = _context(digits, ROUND_FLOOR), _context(digits, ROUND_CEILING)
        return Interval(down.divide(numerator, denominator), up.divide(numerator, denominator), digits)

    def __str__(self) -> str:
        return f"[{self.low}, {self.high}]"

    @property
    def _down(self) -> Context:
        return _context(self.digits, ROUND_FLOOR)

    @property
    def _up(self) -> Context:
        return _context(self.digits, ROUND_CEILING)

    def _interval(self, x: Interval | int) -> Interval:
        return x if isinstance(x, Interval) else _constant(x, self.digits)

    def _around(self, low: Decimal, high: Decimal) -> Interval:
        """From results that were rounded to nearest; a zero is exact."""
        below = self._down.next_minus(low) if low else low
        above = self._up.next_plus(high) if high else high
        return Interval(below, above, self.digits)

    def __neg__(self) -> Interval:
        return Interval(self.high.copy_negate(), self.low.copy_negate(), self.digits)

    def __add__(self, other: Interval | int) -> Interval:
        y = self._interval(other)
        return Interval(self._down.add(self.low, y.low), self._up.add(self.high, y.high), self.digits)

    def __sub__(self, other: Interval | int) -> Interval:
        return self + -self._interval(other)

    def __mul__(self, other: Interval | int) -> Interval:
        y, down, up = self._interval(other), self._down, self._up
        if self.low >= 0 and y.low >= 0:
            low, high = down.multiply(self.low, y.low), up.multiply(self.high, y.high)
            return Interval(low, high, self.digits)
        pairs = [(a, b) for a in (self.low, self.high) for b in (y.low, y.high)]
        low = min([down.multiply(a, b) for a, b in pairs])
        return Interval(low, max([up.multiply(a, b) for a, b in pairs]), self.digits)

    def __truediv__(self, other: Interval | int) -> Interval:
        y, down, up = self._interval(other), self._down, self._up
        if y.low <= 0 <= y.high:
            raise Undecided
        if self.low >= 0 and y.low > 0:
            low, high = down.divide(self.low, y.high), up.divide(self.high, y.low)
            return Interval(low, high, self.digits)
        pairs = [(a, b) for a in (self.low, self.high) for b in (y.low, y.high)]
        low = min([down.divide(a, b) for a, b in pairs])
        return Interval(low, max([up.divide(a, b) for a, b in pairs]), self.digits)

    def __radd__(self, other: int) -> Interval:
        return self + other

    def __rsub__(self, other: int) -> Interval:
        return self._interval(other) - self

    def __rmul__(self, other: int) -> Interval:
        return self * other

    def __rtruediv__(self, other: int) -> Interval:
        return self._interval(other) / self

    def sqrt(self) -> Interval:
        return self._around(self._down.sqrt(max(self.low, Decimal(0))), self._up.sqrt(self.high))

    def exp(self) -> Interval:
        limit, down = Decimal(EXP_LIMIT), self._down
        low = high = down.exp(min(max(self.low, -limit), limit))
        if self.high != self.low:
            high = down.exp(min(max(self.high, -limit), limit))
        y = self._around(low, high)
        low, high = y.low, y.high
        if self.low < -limit:
            low = Decimal(0)
        elif self.low == 0:
            low = Decimal(1)
        if self.high > limit:
            high = Decimal("inf")
        return Interval(low, high, self.digits)

    def log(self) -> Interval:
        if self.low <= 0:
            raise Undecided
        low = high = self._down.ln(self.low)
        if self.high != self.low:
            high = self._up.ln(self.high)
        return self._around(low, high)

    def _widened(self, low: int, high: int, places: int) -> Interval:
        """From integers in units of 10^-places that are right to 10^-digits."""
        error = pow(10, places - self.digits)
        return Interval(
            self._down.scaleb(self._down.create_decimal(low - error), -places),
            self._up.scaleb(self._up.create_decimal(high + error), -places),
            self.digits,
        )

    def atan(self) -> Interval:
        places = self.digits + GUARD
        low = high = _atan(self.low, places)
        if self.high != self.low:
            high = _atan(self.high, places)
        return self._widened(low, high, places)

    def sin(self) -> Interval:
        return self._trigonometric(0)

    def cos(self) -> Interval:
        return self._trigonometric(1)

    def _trigonometric(self, quarters: int) -> Interval:
        """The sine of self + quarters * pi/2; its slope is at most 1."""
        places = self.digits + GUARD
        y = _sin(self.low, quarters, places)
        width = _scaled(self._up.subtract(self.high, self.low), places) + 1
        return self._widened(y - width, y + width, places)

    def erf(self) -> Interval:
        """2x/sqrt(pi) e^(-x^2) sum over n of (2x^2)^n / (2n+1)!!, whose terms are all positive."""
        if self.low >= ERF_LIMIT:
            return 1 - Interval(Decimal(0), (-(self * self)).exp().high, self.digits)
        if self.high <= -ERF_LIMIT:
            return -(-self).erf()
        w = 2 * self * self
        places = self.digits + GUARD
        s = _odd_factorial_series(w.low, places)
        # The sum's logarithm has a slope below 1/2, so over the width of w it grows by a factor below
        # 1 + width; its own relative error is far below 10^-digits.
        width = Interval(Decimal(0), self._up.subtract(w.high, w.low), self.digits)
        error = Decimal((0, (1,), -self.digits))
        tolerance = Interval(-error, error, self.digits)
        total = Interval.of(Fraction(s, 10**places), self.digits) * (1 + width) * (1 + tolerance)
        return 2 * self / pi(self.digits).sqrt() * (-(self * self)).exp() * total


@cache
def _constant(x: int, digits: int) -> Interval:
    return Interval.of(x, digits)


@cache
def pi(digits: int) -> Interval:
    places = digits + GUARD
    return Interval.of(0, digits)._widened(_pi(places), _pi(places), places)


def _scaled(x: Decimal, places: int) -> int:
    return int(Fraction(x) * 10**places)


@cache
def _pi(places: int) -> int:
    """Machin: pi = 16 atan(1/5) - 4 atan(1/239), in units of 10^-places, to about one unit."""
    one: int = 10 ** (places + GUARD)
    value = 16 * _atan_series(one // 5, one) - 4 * _atan_series(one // 239, one)
    unit: int = 10**GUARD
    return value // unit


def _atan_series(t: int, one: int) -> int:
    square, power, total, n = t * t // one, t, 0, 1
    while power:
        total += power // n if n % 4 == 1 else -(power // n)
        power = power * square // one
        n += 2
    return total


def _atan(x: Decimal, places: int) -> int:
    one = 10**places
    if x < 0:
        return -_atan(x.copy_negate(), places)
    if x > 1:
        return _pi(places) // 2 - _atan(
            Context(places, Emin=-9999, Emax=9999).divide(Decimal(1), x), places
        )
    t = _scaled(x, places)
    for _ in range(3):  # atan t = 2 atan(t / (1 + sqrt(1 + t^2)))
        t = t * one // (one + isqrt(one * one + t * t))
    return 8 * _atan_series(t, one)


def _sin(x: Decimal, quarters: int, places: int) -> int:
    """sin(x + quarters * pi/2)."""
    # pi has as many more places as the multiple of pi/2 below x has digits.
    extra = max(x.adjusted(), 0) + 3
    half = _pi(places + extra) // 2
    turns, r = divmod(_scaled(x, places + extra) + half // 2, half)
    r = (r - half // 2) // 10**extra
    one, n = 10**places, (turns + quarters) % 4
    square = r * r // one
    term, k, total = (r, 1, 0) if n % 2 == 0 else (one, 0, 0)
    while term not in (0, -1):
        total += term
        term = -(term * square // one) // ((k + 1) * (k + 2))
        k += 2
    return -total if n >= 2 else total


def _odd_factorial_series(w: Decimal, places: int) -> int:
    """The sum over n of w^n / (2n+1)!!."""
    one, argument = 10**places, _scaled(w, places)
    term, total, n = one, 0, 0
    while term:
        total += term
        n += 1
        term = term * argument // (one * (2 * n + 1))
    return total
