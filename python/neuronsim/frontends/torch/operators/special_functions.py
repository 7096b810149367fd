"""Special functions that HLO has no opcode for, by formulas in steps of float32, or of float64 for
numbers of that type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.frontends.primitives import in_float, where
from neuronsim.frontends.torch.promotion import floating
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


operator("aten.erfinv.default")(_row_of(_erfinv))
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


@operator("aten.polygamma.default")
def _polygamma(node: Node, n: int, x: Array) -> Array:
    if n > 1:
        raise node.refuse(f"of order {n} is not read: orders 0 and 1 are")
    return (_trigamma if n else _digamma)(in_float(floating(x))).astype(node.dtype)


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
