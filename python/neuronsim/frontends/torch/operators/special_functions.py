"""Special functions that HLO has no opcode for, by formulas in steps of float32, or of float64 for
numbers of that type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.frontends import lax
from neuronsim.frontends.primitives import in_float, where
from neuronsim.frontends.torch.promotion import floating, promoted
from neuronsim.frontends.torch.table import Node, operator


def _row_of(function: Callable[[Array], Array]) -> Callable[..., Array]:
    return lambda node, x: function(in_float(floating(x))).astype(node.dtype)


def _polynomial(x: Array, coefficients: Sequence[float]) -> Array:
    """By Horner's rule, the highest power first."""
    found = np.full(x.shape, coefficients[0], x.dtype)
    for c in coefficients[1:]:
        found = found * x + c
    return found


def _is_wide(x: Array) -> bool:
    return x.dtype is dtypes.float64


# ---- of the error function -------------------------------------------------------------------------

# Giles's approximation of its inverse, by w = -log(1 - x^2), as XLA has it.
_CENTRE = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
    *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
)
_TAIL = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
    *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)


def _erfinv(x: Array) -> Array:
    size = np.abs(x)
    w = -(np.log1p(-size) + np.log1p(size))
    centre = _polynomial(w - 2.5, _CENTRE)
    tail = _polynomial(np.sqrt(w) - 3, _TAIL)
    found = where(np.less(w, 5), centre, tail) * size
    for _ in range(3 if _is_wide(x) else 0):  # Halley's steps
        off = where(np.greater(size, 0.5), 1 - size - np.erfc(found), np.erf(found) - size)
        step = off * np.exp(found * found) * (math.sqrt(math.pi) / 2)
        found = found - step / (1 + found * step)
    found = where(np.equal(size, 1), math.inf, found)
    return where(np.less(x, 0), -found, found)


def _erfcx(x: Array) -> Array:
    """exp(x^2) erfc(x): by both, above 2 by the continued fraction of Laplace."""
    part = np.floor(x * 256) / 256  # whose square is exact
    square = np.exp(part * part) * np.exp((x - part) * (x + part))
    low = where(np.greater(x, 2), 0, square * np.erfc(x))
    high = np.maximum(x, 2)
    found = high
    for n in reversed(range(1, 81 if _is_wide(x) else 31)):
        found = high + n / 2 / found
    found = where(np.greater(x, 2), 1 / (found * math.sqrt(math.pi)), low)
    return where(np.equal(x, -math.inf), math.inf, found)


def _log_ndtr(x: Array) -> Array:
    """The logarithm of the normal distribution's integral."""
    z = x * math.sqrt(0.5)
    below = np.log(_erfcx(where(np.less(x, -1), -z, 1)) / 2) - z * z
    return where(np.less(x, -1), below, np.log1p(np.erfc(where(np.less(x, -1), 0, z)) / -2))


def _ndtri(p: Array) -> Array:
    """Where the normal distribution's integral is p: by `erfinv`'s approximation where that holds, else
    by the asymptotic one, and Newton's steps on the logarithm.
    """
    low = np.minimum(p, 1 - p)
    inside = where(np.logical_and(np.greater(low, 0), np.less_equal(low, 0.5)), low, 0.5)
    logarithm = np.log(inside)
    w = -(np.log1p(-inside) + (logarithm + math.log(4)))  # -log(1 - (1 - 2 p)^2)
    near, far = np.maximum(np.minimum(w, 12), 0), np.maximum(-2 * logarithm, 12)
    tail = _polynomial(np.sqrt(near) - 3, _TAIL)
    centre = where(np.less(near, 5), _polynomial(near - 2.5, _CENTRE), tail)
    outer = np.sqrt(far - math.log(2 * math.pi) - np.log(far))
    found = where(np.less(w, 12), centre * (1 - 2 * inside) * math.sqrt(2), outer)
    for _ in range(4 if _is_wide(p) else 2):
        here = _log_ndtr(-found)
        step = (here - logarithm) * np.exp(here + found * found / 2) * math.sqrt(2 * math.pi)
        found = found + step
    found = where(np.equal(low, 0), math.inf, where(np.less(low, 0), math.nan, found))
    found = where(np.equal(p, p), found, math.nan)
    return where(np.less(p, 0.5), -found, found)


operator("aten.erfinv.default")(_row_of(_erfinv))
operator("aten.special_ndtri.default")(_row_of(_ndtri))
operator("aten.special_erfcx.default")(_row_of(_erfcx))
operator("aten.special_log_ndtr.default")(_row_of(_log_ndtr))


# ---- of the logarithm of Gamma ---------------------------------------------------------------------

_SHIFT = 10  # where the asymptotic series is exact enough
_BERNOULLI = [
    Fraction(*b) for b in ((1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6))
]


def _above_half(x: Array) -> tuple[Array, Array, Array]:
    """Which numbers are below 1/2; themselves, or their reflections 1 - x; and their distance from the
    nearest integer.
    """
    is_low = np.less(x, 0.5)
    return is_low, where(is_low, 1 - x, x), x - np.rint(x)


def _digamma(x: Array) -> Array:
    is_low, z, part = _above_half(x)
    far = z + _SHIFT
    inverse = 1 / (far * far)
    terms = [-float(b / (2 * n)) for n, b in enumerate(_BERNOULLI, 1)]
    found = np.log(far) - 0.5 / far + _polynomial(inverse, [*terms[::-1], 0.0])
    for k in range(_SHIFT):
        found = found - 1 / (z + k)
    reflected = found - math.pi / np.tan(part * math.pi)
    found = where(is_low, reflected, found)
    pole = where(np.equal(x, 0), where(np.signbit(x), math.inf, -math.inf), math.nan)
    is_pole = np.logical_and(np.less_equal(x, 0), np.equal(part, 0))
    found = where(is_pole, pole, found)
    return where(np.equal(x, math.inf), math.inf, found)


def _trigamma(x: Array) -> Array:
    is_low, z, part = _above_half(x)
    far = z + _SHIFT
    inverse = 1 / (far * far)
    terms = [float(b) for b in _BERNOULLI]
    found = 1 / far + inverse / 2 + _polynomial(inverse, [*terms[::-1], 0.0]) / far
    for k in range(_SHIFT):
        found = found + 1 / ((z + k) * (z + k))
    sine = np.sin(part * math.pi)
    return where(is_low, math.pi**2 / (sine * sine) - found, found)


operator("aten.digamma.default")(_row_of(_digamma))


def _zeta_above(s: Array, q: Array) -> Array:
    """The sum of (q + k)^-s over all k from 0 on, of positive q: the first terms one by one, the rest
    by the formula of Euler and Maclaurin.
    """
    found, far = np.zeros_like(q), q + _SHIFT
    for k in range(_SHIFT):
        found = found + np.power(q + k, -s)
    term = np.power(far, -s)
    rest = far * term / (s - 1) + term / 2
    factor = s / far
    for n, b in enumerate(_BERNOULLI, 1):
        rest = rest + float(b / math.factorial(2 * n)) * factor * term
        factor = factor * (s + (2 * n - 1)) / far * (s + 2 * n) / far
    # Of large s the rest counts for nothing, and may be 0 times infinity.
    return where(np.less(term, found * 1e-20), found, found + rest)


def _zeta(s: Array, q: Array) -> Array:
    """Hurwitz's: what precedes the positive terms of a negative q is a part of the sum for -q."""
    s, q = np.broadcast_arrays(s, q)
    is_below, whole = np.less(q, 0), np.floor(q)
    first = where(is_below, q - whole, q)
    before = _zeta_above(s, where(is_below, 1 - first, 1)) - _zeta_above(s, where(is_below, 1 - q, 1))
    is_even = np.equal(s, np.floor(s / 2) * 2)
    found = _zeta_above(s, first) + where(is_below, where(is_even, before, -before), 0)
    is_real = np.logical_or(np.equal(s, np.floor(s)), np.logical_not(is_below))
    is_pole = np.logical_and(np.less_equal(q, 0), np.equal(q, whole))
    found = where(is_pole, math.inf, where(is_real, found, math.nan))
    found = where(np.equal(s, 1), math.inf, where(np.less(s, 1), math.nan, found))
    return where(np.logical_and(np.equal(s, s), np.equal(q, q)), found, math.nan)


def _row_of_two(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    def row(node: Node, x: Any, y: Any) -> Array:
        pair = [in_float(floating(v)) for v in promoted(x, y, dtype=node.dtype)]
        return function(*pair).astype(node.dtype)

    return row


operator(
    "aten.special_zeta.default", "aten.special_zeta.other_scalar", "aten.special_zeta.self_scalar"
)(_row_of_two(_zeta))  # fmt: skip


@operator("aten.polygamma.default")
def _polygamma(node: Node, n: int, x: Array) -> Array:
    wide = in_float(floating(x))
    if n <= 1:
        return (_trigamma if n else _digamma)(wide).astype(node.dtype)
    series = _zeta(np.full(wide.shape, n + 1.0, wide.dtype), wide)
    return (series * (math.factorial(n) * (-1.0) ** (n + 1))).astype(node.dtype)


# ---- of the incomplete Gamma function --------------------------------------------------------------

_MOST_STEPS = 10_000.0  # near x = a it takes some square roots of a


def _log1p_less(x: Array) -> Array:
    """log(1 + x) - x, near 0 by its series."""
    is_near = np.less(np.abs(x), 0.25)
    near = where(is_near, x, 0)
    terms = [(-1.0) ** (n + 1) / n for n in range(2, 28 if _is_wide(x) else 14)]
    return where(is_near, _polynomial(near, terms[::-1]) * near * near, np.log1p(x) - x)


def _gamma_density(a: Array, x: Array) -> Array:
    """x^a e^-x / Gamma(a + 1), by Stirling's formula at a, or at a + 10."""
    is_low = np.less(a, _SHIFT)
    far = where(is_low, a + _SHIFT, a)
    inverse = 1 / (far * far)
    terms = [float(b / (2 * n * (2 * n - 1))) for n, b in enumerate(_BERNOULLI, 1)]
    correction = _polynomial(inverse, terms[::-1]) / far
    high = far * _log1p_less((x - far) / far)
    low = a * np.log(x) - x - far * (np.log(far) - 1)
    found = np.exp(where(is_low, low, high) - correction) / np.sqrt(far * (2 * math.pi))
    for k in range(1, _SHIFT + 1):
        found = found * where(is_low, a + k, 1)
    return found


def _gamma_series(a: Array, x: Array, least: float) -> Array:
    """1 + x / (a + 1) + x^2 / (a + 1) / (a + 2) + ..., where x is not much above a."""

    def step(carried: list[Array]) -> list[Array]:
        n, term, found = carried
        term = term * (x / (a + n))
        return [n + 1, term, found + term]

    def goes_on(carried: list[Array]) -> Array:
        n, term, found = carried
        return np.logical_and(np.any(np.greater(term, found * (least / 20))), np.less(n, _MOST_STEPS))

    one = np.ones_like(x)
    return lax.while_loop(goes_on, step, [asarray(1, x.dtype), one, one])[2]  # type: ignore[no-any-return]


def _gamma_fraction(a: Array, x: Array, least: float) -> Array:
    """Legendre's continued fraction, where x is above a + 1, from its front, as Lentz has it: each
    element as far as its factors are other than 1.
    """

    def step(carried: list[Array]) -> list[Array]:
        n, above, below, found, off = carried
        part, base = n * (a - n), x - a + (2 * n + 1)
        below = 1 / (base + part * below)
        above = base + part / above
        factor = where(np.greater(off, least), above * below, 1)
        return [n + 1, above, below, found * factor, np.abs(factor - 1)]

    def goes_on(carried: list[Array]) -> Array:
        return np.logical_and(np.any(np.greater(carried[4], least)), np.less(carried[0], _MOST_STEPS))

    first = 1 / (x - a + 1)
    start = [asarray(1, x.dtype), np.full(x.shape, 1e30, x.dtype), first, first, np.ones_like(x)]
    return lax.while_loop(goes_on, step, start)[3]  # type: ignore[no-any-return]


def _incomplete_gamma(*, upper: bool) -> Callable[[Array, Array], Array]:
    """The integral of t^(a - 1) e^-t from 0 to x, or from x on, by Gamma(a)."""

    def function(a: Array, x: Array) -> Array:
        a, x = np.broadcast_arrays(a, x)
        least = 1e-15 if _is_wide(x) else 2e-7
        inner = np.logical_and(np.greater(a, 0), np.greater(x, 0))
        inner = np.logical_and(inner, np.logical_and(np.less(a, math.inf), np.less(x, math.inf)))
        a_in, x_in = where(inner, a, 1), where(inner, x, 1)
        is_low = np.less_equal(x_in, a_in + 1)
        density = _gamma_density(a_in, x_in)
        low = density * _gamma_series(a_in, where(is_low, x_in, 0), least)
        by_fraction = _gamma_fraction(where(is_low, 1, a_in), where(is_low, 3, x_in), least)
        high = density * a_in * by_fraction
        below = where(is_low, low, 1 - high)
        found = where(is_low, 1 - low, high) if upper else below
        is_all = np.logical_or(np.less(a, x), np.equal(a, 0))  # of what is 0 or infinite
        found = where(inner, found, where(is_all, 0.0 if upper else 1.0, 1.0 if upper else 0.0))
        is_none = np.logical_or(np.less(a, 0), np.less(x, 0))
        is_none = np.logical_or(is_none, np.logical_and(np.equal(a, x), np.logical_not(inner)))
        is_none = np.logical_or(is_none, np.not_equal(a + x, a + x))
        return where(is_none, math.nan, np.minimum(np.maximum(found, 0), 1))

    return function


operator("aten.igamma.default")(_row_of_two(_incomplete_gamma(upper=False)))
operator("aten.igammac.default")(_row_of_two(_incomplete_gamma(upper=True)))


# ---- Bessel's, modified ----------------------------------------------------------------------------


def _modified_bessel(order: int, *, scaled: bool) -> Callable[[Array], Array]:
    """I_0 or I_1, times exp(-|x|) if scaled: by the power series, whose terms are all positive, and far
    from 0 by the asymptotic one. At infinities they have their limits, of which PyTorch makes NaN.
    """

    def function(x: Array) -> Array:
        bound, terms, far_terms = (20, 50, 25) if _is_wide(x) else (12, 32, 12)
        size = np.abs(x)
        near = np.minimum(size, bound)
        quarter = near * near / 4
        series = np.ones_like(x)
        for k in reversed(range(1, terms)):
            series = 1 + series * (quarter * (1 / (k * (k + order))))
        series = series * near / 2 if order else series
        far = np.maximum(size, bound)
        asymptotic = np.ones_like(x)
        for k in reversed(range(1, far_terms)):
            factor = ((2 * k - 1) ** 2 - 4 * order**2) / (8 * k)
            asymptotic = 1 + asymptotic * (factor / far)
        root = np.sqrt(far * (2 * math.pi))
        if scaled:
            found = where(np.less_equal(size, bound), series * np.exp(-near), asymptotic / root)
        else:
            half = np.exp(far / 2)  # exp(far) may be too large where its quotient is not
            found = where(np.less_equal(size, bound), series, asymptotic / root * half * half)
        found = where(np.equal(size, math.inf), 0.0 if scaled else math.inf, found)
        found = where(np.not_equal(x, x), x, found)
        return where(np.less(x, 0), -found, found) if order else found

    return function


for _name, _order, _scaled in (
    ("i0", 0, False), ("special_i0e", 0, True), ("special_i1", 1, False), ("special_i1e", 1, True),
):  # fmt: skip
    operator(f"aten.{_name}.default")(_row_of(_modified_bessel(_order, scaled=_scaled)))
