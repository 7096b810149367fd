"""The functions of rules E3 and E4 by MPFR: 500 bits, then one rounding to float32.

The 500 bits decide every case but exact ties, and MPFR gets these exactly. It is imported only where
gmpy2 is (`pytest.importorskip("gmpy2")` first).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gmpy2
import numpy as np
from gmpy2 import mpfr

from neuronsim.reference.functions import ONE_VARIABLE

NAN = 0x7FC00000
ONE, MINUS_ZERO = mpfr(1), mpfr("-0")
WIDE = gmpy2.context(precision=500)
FLOAT32 = gmpy2.context(precision=24, emax=128, emin=-148, subnormalize=True)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + gmpy2.exp(-x))


def _softplus(x: Any) -> Any:
    return x + gmpy2.log1p(gmpy2.exp(-x)) if x > 0 else gmpy2.log1p(gmpy2.exp(x))


def _normal_cdf(x: Any) -> Any:
    return gmpy2.erfc(-x / gmpy2.sqrt(mpfr(2))) / 2


def _normal_density(x: Any) -> Any:
    return gmpy2.exp(-x * x / 2) / gmpy2.sqrt(2 * gmpy2.const_pi())


def _gelu_tanh(x: Any) -> Any:
    cubic = x + mpfr(44715) / 1000000 * x * x * x
    return x * _sigmoid(2 * gmpy2.sqrt(2 / gmpy2.const_pi()) * cubic)


def _gelu_sigmoid(x: Any) -> Any:
    return x * _sigmoid(mpfr(1702) / 1000 * x)


def _logistic_product_dx(c: Any, x: Any) -> Any:
    return _sigmoid(c * x) * (1 + c * x * _sigmoid(-c * x))


def _gelu_dx(x: Any) -> Any:
    slope = _normal_cdf(x) + x * _normal_density(x)
    return (
        MINUS_ZERO if gmpy2.is_zero(slope) else slope
    )  # both terms have underflown, the sum is below 0


def _rsqrt(x: Any) -> Any:
    return gmpy2.div(1, x) if gmpy2.is_zero(x) else gmpy2.rec_sqrt(x)  # its rec_sqrt(-0) is +Inf (D3)


def _log_of_sum(x: Any, y: Any, exponential: Any, log_of_one_plus: Any) -> Any:
    high, low = (x, y) if x > y else (y, x)  # a NaN is one of them
    difference = low - high if low != high else mpfr(0)
    return high + log_of_one_plus(exponential(difference))


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": gmpy2.exp,
    "exp2": gmpy2.exp2,
    "expm1": gmpy2.expm1,
    "log": gmpy2.log,
    "log2": gmpy2.log2,
    "log10": gmpy2.log10,
    "log1p": gmpy2.log1p,
    "sin": gmpy2.sin,
    "cos": gmpy2.cos,
    "tan": gmpy2.tan,
    "asin": gmpy2.asin,
    "acos": gmpy2.acos,
    "atan": gmpy2.atan,
    "sinh": gmpy2.sinh,
    "cosh": gmpy2.cosh,
    "tanh": gmpy2.tanh,
    "asinh": gmpy2.asinh,
    "acosh": gmpy2.acosh,
    "atanh": gmpy2.atanh,
    "erf": gmpy2.erf,
    "erfc": gmpy2.erfc,
    "rsqrt": _rsqrt,
    "sqrt": gmpy2.sqrt,
    "reciprocal": lambda x: 1 / x,
    "cbrt": gmpy2.cbrt,
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "gelu": lambda x: x * _normal_cdf(x),
    "gelu_tanh": _gelu_tanh,
    "gelu_sigmoid": _gelu_sigmoid,
    "softplus": _softplus,
    "mish": lambda x: x * gmpy2.tanh(_softplus(x)),
    "erf_dx": lambda x: 2 / gmpy2.sqrt(gmpy2.const_pi()) * gmpy2.exp(-x * x),
    "silu_dx": lambda x: _logistic_product_dx(ONE, x),
    "gelu_dx": _gelu_dx,
    "gelu_sigmoid_dx": lambda x: _logistic_product_dx(mpfr(1702) / 1000, x),
}

PAIR_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "power": lambda x, y: x**y,
    "atan2": gmpy2.atan2,
    "hypot": gmpy2.hypot,
    "logaddexp": lambda x, y: _log_of_sum(x, y, gmpy2.exp, gmpy2.log1p),
    "logaddexp2": lambda x, y: _log_of_sum(
        *(x, y, gmpy2.exp2, lambda r: gmpy2.log1p(r) / gmpy2.const_log2())
    ),
}


def value(name: str, *words: int) -> Any:
    """The function at float32 words, as an mpfr of 500 bits."""
    points = [float(np.uint32(w).view(np.float32)) for w in words]
    with gmpy2.context(WIDE):
        if len(points) == 2:
            return PAIR_FUNCTIONS[name](*map(mpfr, points))
        found = FUNCTIONS[name](mpfr(points[0]))
        if not gmpy2.is_nan(found) or np.isfinite(points[0]):
            return found
        limit = np.uint32(ONE_VARIABLE[name](*words))  # where the formula gives 0 times infinity
        return mpfr(float(limit.view(np.float32)))


def to_float32(x: Any) -> int:
    """The float32 word nearest to an mpfr."""
    with gmpy2.context(FLOAT32):
        rounded = np.float32(float(mpfr(x)))
    return NAN if np.isnan(rounded) else int(rounded.view(np.uint32))


def result(name: str, *words: int) -> int:
    """The correctly rounded result, as a float32 word."""
    return to_float32(value(name, *words))


def distance(name: str, word: int) -> float:
    """How far the value lies from the nearest boundary between two roundings, in float32 spacings."""
    exact = value(name, word)
    with gmpy2.context(WIDE):
        magnitude = abs(exact)
        exponent = max(gmpy2.get_exp(magnitude), -125)  # the value is below 2^exponent
        steps = magnitude * mpfr(2) ** (24 - exponent)
        return float(abs(steps - gmpy2.floor(steps) - mpfr("0.5")))
