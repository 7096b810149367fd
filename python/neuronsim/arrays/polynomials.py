"""Arithmetic of polynomials, whose coefficients stand in an array, the highest power first.

>>> polymul([1.0, 2.0], [1.0, -2.0]), polyder([3, 0, 1]).tolist()
(Array([ 1.,  0., -4.], dtype=float32), [6, 0])
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neuronsim.arrays.arguments import whole
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.calculus import convolve
from neuronsim.arrays.conversion import asarray, common_arrays, is_weak, weak_type
from neuronsim.arrays.creation import zeros
from neuronsim.arrays.evaluation import apply_elementwise
from neuronsim.arrays.host import host_operand, on_host, real_type, rounded
from neuronsim.arrays.manipulation import broadcast_to, concat, trim_zeros
from neuronsim.arrays.steps import in_float32
from neuronsim.errors import InvalidArgument

__all__ = ["poly", "polyadd", "polyder", "polydiv", "polyint", "polymul", "polysub"]


def polyadd(a1: Any, a2: Any) -> Array:
    """The sum of two polynomials: of their coefficients, each rounded once (E1).

    >>> polyadd([1.0, 2.0], [5.0])
    Array([1., 7.], dtype=float32)
    """
    return apply_elementwise("add", *_of_one_length("polyadd", a1, a2))


def polysub(a1: Any, a2: Any) -> Array:
    """The difference of two polynomials: of their coefficients, each rounded once (E1)."""
    return apply_elementwise("subtract", *_of_one_length("polysub", a1, a2))


def polymul(a1: Any, a2: Any) -> Array:
    """The product of two polynomials: the convolution of their coefficients (M2), without zeros in
    front.
    """
    values = [trim_zeros(v, "f") for v in _coefficients("polymul", a1, a2)]
    a, b = (v if v.size else zeros(1, v.dtype) for v in values)
    return convolve(a, b)


def polyder(p: Any, m: int = 1) -> Array:
    """The derivative of order `m`: each time p[i] (n - i), where n is the degree, in float32 steps
    (R7); of integers in int64.

    >>> polyder([1.0, 1.0, 1.0, 1.0], 2)
    Array([6., 2.], dtype=float32)
    """
    (a,) = _coefficients("polyder", p)
    order = whole("m", m)
    if order == 0:
        return a
    return in_float32("p")(_derived)(a, order) if a.dtype.kind == "float" else _derived(a, order)


def _derived(p: Array, order: int) -> Array:
    for _ in range(order):
        p = p[:-1] * np.arange(len(p) - 1, 0, -1)
    return p


def polyint(p: Any, m: int = 1, k: Any = None) -> Array:
    """The integral of order `m`: each time p[i] / (n - i), where n is the number of coefficients, and
    behind them the next constant of `k`, by default 0, in float32 steps (R7).

    >>> polyint([6.0, 2.0], k=5.0)
    Array([3., 2., 5.], dtype=float32)
    """
    (a,) = _coefficients("polyint", p)
    order = whole("m", m)
    if order == 0:
        return a
    if k is None or is_weak(k):
        constants = asarray(0 if k is None else k, weak_type(0 if k is None else k, a.dtype))
    else:
        constants = asarray(k)
    constants = constants.reshape(-1)
    if constants.size == 1:
        constants = broadcast_to(constants, (order,))
    if constants.size < order:
        raise InvalidArgument(
            f"polyint: {order} constants of integration, or one, not {constants.size}"
        )
    return _integrated(a, constants[:order])


@in_float32("p", "constants")
def _integrated(p: Array, constants: Array) -> Array:
    for n in range(len(constants)):
        p = concat([p / np.arange(len(p), 0, -1), constants[n : n + 1]])
    return p


def poly(seq_of_zeros: Any) -> Array:
    """The coefficients of the polynomial with these zeros, or of a square matrix' characteristic one:
    NumPy's, in float64 on the exact values, rounded once (H1).

    >>> poly([2.0, -2.0])
    Array([ 1.,  0., -4.], dtype=float32)
    """
    a = host_operand(seq_of_zeros)
    found = np.asarray(on_host("poly", np.poly, a, operations=float(a.size) ** 2))
    return rounded(found, a.dtype if found.dtype.kind == "c" else real_type(a.dtype))


def polydiv(u: Any, v: Any) -> tuple[Array, Array]:
    """The quotient and the remainder of two polynomials: NumPy's, in float64 on the exact values,
    rounded once (H1).

    >>> polydiv([3.0, 5.0, 2.0], [2.0, 1.0])
    (Array([1.5 , 1.75], dtype=float32), Array([0.25], dtype=float32))
    """
    operands = [host_operand(a) for a in _coefficients("polydiv", u, v)]
    if any(a.size == 0 for a in operands):
        raise InvalidArgument("polydiv: a polynomial has a coefficient at least")
    sizes = operands[0].size * operands[1].size
    quotient, rest = on_host("polydiv", np.polydiv, *operands, operations=float(sizes))
    return rounded(quotient, operands[0].dtype), rounded(rest, operands[0].dtype)


def _coefficients(what: str, *polynomials: Any) -> list[Array]:
    """The coefficients in their common type, each along one axis."""
    values = common_arrays(*(asarray(p) for p in polynomials))
    for v in values:
        if v.ndim > 1:
            raise InvalidArgument(f"{what}: the coefficients have one axis, not {v.bits.type}")
    return [v.reshape(-1) for v in values]


def _of_one_length(what: str, a1: Any, a2: Any) -> list[Array]:
    values = _coefficients(what, a1, a2)
    length = max(v.size for v in values)
    return [concat([zeros(length - v.size, v.dtype), v]) for v in values]
