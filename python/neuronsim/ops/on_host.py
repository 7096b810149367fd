"""What NumPy lacks, or gives otherwise than the contract has it, of the elementwise operations on the
host's types (H1): each operation's row takes its function from here, or composes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from neuronsim.ops.rows import BitsArray


def sigmoid(x: BitsArray) -> BitsArray:
    return np.asarray(1 / (1 + np.exp(-x)))


def normal(x: BitsArray) -> BitsArray:
    return np.asarray(erfc(-x / math.sqrt(2)) / 2)


def silu_dx(x: BitsArray) -> BitsArray:
    s = sigmoid(x)
    return np.asarray(s * (1 + x * (1 - s)))


def gelu_dx(x: BitsArray) -> BitsArray:
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return np.asarray(normal(x) + x * density)


def with_limits(
    function: Callable[[BitsArray], BitsArray], at_plus_inf: float
) -> Callable[[BitsArray], BitsArray]:
    """The function with its limits at -Inf, -0, and at +Inf, where the formula has none (E3)."""

    def on_host(x: BitsArray) -> BitsArray:
        limited = np.where(x == np.inf, at_plus_inf, function(x))
        return np.where(x == -np.inf, -0.0, limited)

    return on_host


def floor_divide(x: BitsArray, y: BitsArray) -> BitsArray:
    """NumPy's, but where an operand is infinite the floor of the quotient, as E9 and the standard have
    it.
    """
    finite = np.isfinite(x) & np.isfinite(y)
    return np.where(finite, np.floor_divide(x, y), np.floor(np.divide(x, y)))


def but_of_specials(
    function: Callable[[BitsArray], BitsArray], elsewhere: Callable[[BitsArray], BitsArray]
) -> Callable[[BitsArray], BitsArray]:
    """NumPy's function, but another formula for complex numbers with a part that is not finite."""

    def on_host(x: BitsArray) -> BitsArray:
        if x.dtype.kind != "c":
            return function(x)
        return np.where(np.isfinite(x), function(x), elsewhere(x))

    return on_host


def reflected(
    function: Callable[[BitsArray], BitsArray], parity: Literal["odd", "even"] | None = None
) -> Callable[[BitsArray], BitsArray]:
    """The function, of complex numbers in the upper half plane, or the first quadrant if it has a
    parity, and reflected: the standard wants f(conj(z)) = conj(f(z)) and the parity to the last bit.
    """

    def on_host(x: BitsArray) -> BitsArray:
        if x.dtype.kind != "c":
            return function(x)
        above = x.copy()
        above.imag = np.abs(x.imag)
        lower, left = np.signbit(x.imag), np.signbit(x.real)
        if parity is not None:
            above.real = np.abs(x.real)
        found = np.array(function(above))
        found.imag = np.where(lower ^ left if parity == "even" else lower, -found.imag, found.imag)
        if parity == "odd":
            found.real = np.where(left, -found.real, found.real)
        return found

    return on_host


def reciprocal(x: BitsArray) -> BitsArray:
    """NumPy's, whose zeros have the signs of 1/conj(z) = conj(1/z), unlike a quotient's; of complex
    zeros the quotient, which is infinite.
    """
    if x.dtype.kind != "c":
        return np.asarray(1 / x)
    return np.where(x == 0, 1 / x, np.reciprocal(x))


def expm1(x: BitsArray) -> BitsArray:
    found = but_of_specials(np.expm1, lambda x: np.exp(x) - 1)(x)
    if x.dtype.kind == "c":
        found.real += 0.0  # a zero is +0
    return found


def tanh(x: BitsArray) -> BitsArray:
    """In the first quadrant of complex numbers: 1 + 0j at infinity, and a real part of 0 stays."""
    if x.dtype.kind != "c":
        return np.asarray(np.tanh(x))
    found = np.where(np.isinf(x.real), 1, np.tanh(x)).astype(x.dtype)
    found.real = np.where(x.real == 0, 0, found.real)
    return found


def tan(x: BitsArray) -> BitsArray:
    """In the first quadrant of complex numbers: 0 + 1j at infinity, an imaginary part of 0 stays."""
    if x.dtype.kind != "c":
        return np.asarray(np.tan(x))
    found = np.where(np.isinf(x.imag), 1j, np.tan(x)).astype(x.dtype)
    found.imag = np.where(x.imag == 0, 0, found.imag)
    return found


def one_plus(x: BitsArray) -> BitsArray:
    found = x.copy()
    found.real += 1  # the sign of an imaginary zero stays
    return found


erf = np.vectorize(math.erf, [np.float64])
erfc = np.vectorize(math.erfc, [np.float64])
