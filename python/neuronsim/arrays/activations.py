"""Activations: functions of one variable. `nn` exports them.

>>> from neuronsim.arrays.conversion import asarray
>>> silu(asarray([-1.0, 2.0], dtype="bfloat16"))
Array([-0.27,  1.76], dtype=bfloat16)
"""

from __future__ import annotations

from typing import Any, Literal

from neuronsim.arrays.arguments import number
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.arrays.elementwise import ELEMENTWISE, where
from neuronsim.arrays.evaluation import apply_elementwise
from neuronsim.arrays.steps import in_float32
from neuronsim.errors import InvalidArgument

__all__ = [
    *("elu", "gelu", "hard_sigmoid", "hardtanh", "leaky_relu", "logsigmoid", "mish", "relu", "relu6"),
    *("sigmoid", "silu", "softplus", "tanh"),
]

# ---- correctly rounded, or exact (E3, E7) ----------------------------------------------------------


def relu(x: Any) -> Array:
    """maximum(x, 0) (E7): NaN stays NaN, -0 becomes +0.

    >>> relu([-1.5, 2.5])
    Array([0. , 2.5], dtype=float32)
    """
    return ELEMENTWISE["maximum"](x, 0)


def sigmoid(x: Any) -> Array:
    """1 / (1 + e^-x).

    >>> sigmoid(asarray([0.0, 2.0], dtype="bfloat16"))
    Array([0.5 , 0.88], dtype=bfloat16)
    """
    return ELEMENTWISE["sigmoid"](x)


def silu(x: Any) -> Array:
    """The product of x and its sigmoid.

    >>> silu(asarray([-1.0, 2.0], dtype="bfloat16"))
    Array([-0.27,  1.76], dtype=bfloat16)
    """
    return ELEMENTWISE["silu"](x)


_GELU = {"none": "gelu", "tanh": "gelu_tanh", "sigmoid": "gelu_sigmoid"}


def gelu(x: Any, approximate: Literal["none", "tanh", "sigmoid"] = "none") -> Array:
    """The product of x and the normal distribution's Φ(x), or one of two functions near it: of "tanh"
    x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))), of "sigmoid" x / (1 + e^-1.702x).

    >>> x = asarray(1.0, dtype="float16")
    >>> gelu(x), gelu(x, approximate="sigmoid")
    (Array(0.8413, dtype=float16), Array(0.8457, dtype=float16))
    """
    if approximate not in _GELU:
        raise InvalidArgument(f"gelu: approximate is one of {', '.join(_GELU)}, not {approximate!r}")
    return ELEMENTWISE[_GELU[approximate]](x)


def softplus(x: Any) -> Array:
    """ln(1 + e^x).

    >>> softplus(asarray([-100.0, 100.0], dtype="float16"))
    Array([  0., 100.], dtype=float16)
    """
    return ELEMENTWISE["softplus"](x)


def mish(x: Any) -> Array:
    """The product of x and tanh(ln(1 + e^x)).

    >>> mish(asarray([-1.0, 2.0], dtype="bfloat16"))
    Array([-0.303,  1.945], dtype=bfloat16)
    """
    return ELEMENTWISE["mish"](x)


def tanh(x: Any) -> Array:
    """The hyperbolic tangent, correctly rounded (E3)."""
    return apply_elementwise("tanh", x)


def logsigmoid(x: Any) -> Array:
    """The logarithm of the sigmoid, -softplus(-x): correctly rounded as this is (E3).

    >>> logsigmoid([-100.0, 0.0])
    Array([-100.       ,   -0.6931472], dtype=float32)
    """
    return -softplus(-asarray(x))


def hardtanh(x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Array:
    """minimum(maximum(x, min_val), max_val): exact; the bounds are rounded to the type (C8, E7)."""
    return apply_elementwise("minimum", apply_elementwise("maximum", x, min_val), max_val)


def relu6(x: Any) -> Array:
    """minimum(maximum(x, 0), 6): exact (E7).

    >>> relu6([-1.0, 2.5, 7.0])
    Array([0. , 2.5, 6. ], dtype=float32)
    """
    return hardtanh(x, 0, 6)


# ---- in float32 steps (R7) -------------------------------------------------------------------------


@in_float32("x")
def leaky_relu(x: Any, negative_slope: float = 0.01) -> Array:
    """Where x > 0 the element, elsewhere x * negative_slope: one product in float32 (R7).

    >>> leaky_relu([-2.0, 3.0], 0.5)
    Array([-1.,  3.], dtype=float32)
    """
    below = apply_elementwise("multiply", x, number("negative_slope", negative_slope))
    found: Array = where(x > 0, x, below)
    return found


@in_float32("x")
def elu(x: Any, alpha: float = 1.0) -> Array:
    """Where x > 0 the element, elsewhere alpha * expm1(x) in float32 steps (R7)."""
    below = apply_elementwise("expm1", x) * number("alpha", alpha)
    found: Array = where(x > 0, x, below)
    return found


@in_float32("x")
def hard_sigmoid(x: Any) -> Array:
    """relu6(x + 3) / 6 in float32 steps (R7).

    >>> hard_sigmoid([-4.0, 0.0, 4.0])
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    return apply_elementwise("divide", relu6(x + 3), 6)
