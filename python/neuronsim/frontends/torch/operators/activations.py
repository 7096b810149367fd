"""Activations, and softmax and its like: each rounded once (R7)."""

from __future__ import annotations

import math
from typing import Any

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays import nn
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.arrays.evaluation import select_elements
from neuronsim.arrays.steps import in_float32
from neuronsim.frontends.primitives import apply, where
from neuronsim.frontends.torch.table import Node, operator

operator("aten.gelu.default")(lambda node, x, *, approximate="none": nn.gelu(x, approximate))


@operator("aten.gelu_backward.default")
def _gelu_backward(node: Node, grad: Array, x: Array, *, approximate: str = "none") -> Array:
    if approximate != "none":
        return _gelu_tanh_backward(grad, x)
    return apply("gelu_backward", grad, x)


@in_float32("grad", "x")
def _gelu_tanh_backward(grad: Any, x: Any) -> Array:
    """The gradient times that of x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3)."""
    k, c = 0.7978845608028654, 0.044715
    square = x * x
    tanh = np.tanh(k * (x + c * x * square))
    inner = k * (1 + 3 * c * square)
    found: Array = grad * (0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * inner)
    return found


operator("aten.silu.default")(lambda node, x: nn.silu(x))
operator("aten.silu_backward.default")(lambda node, grad, x: apply("silu_backward", grad, x))


@operator("aten.leaky_relu.default")
def _leaky_relu(node: Node, x: Array, negative_slope: float = 0.01) -> Array:
    return nn.leaky_relu(x, negative_slope)


@operator("aten.rrelu_with_noise_functional.default")
def _randomized_leaky_relu(
    node: Node,
    x: Array,
    noise: Array,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
) -> list[Array]:
    """Of the mean slope."""
    if training:
        raise node.refuse("in training is not read: call eval() of the module")
    return [nn.leaky_relu(x, (lower + upper) / 2), noise]


@operator("aten.elu.default")
def _elu(
    node: Node, x: Array, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Array:
    return _scaled_elu(x, alpha, scale, input_scale)


@in_float32("x")
def _scaled_elu(x: Any, alpha: float, scale: float, input_scale: float) -> Array:
    """Above 0 scale x, else alpha scale (exp(input_scale x) - 1)."""
    inner = x if input_scale == 1 else np.multiply(x, input_scale)
    below = np.expm1(inner)
    below = below if alpha * scale == 1 else np.multiply(below, alpha * scale)
    return select_elements(np.greater(x, 0), x if scale == 1 else np.multiply(x, scale), below)


@operator("aten.softplus.default")
def _softplus(node: Node, x: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    if beta == 1 and threshold >= 17:  # from where on the two are equal in float32
        return nn.softplus(x)
    return _softplus_of_beta(x, beta, threshold)


@in_float32("x")
def _softplus_of_beta(x: Any, beta: float, threshold: float) -> Array:
    scaled = np.multiply(x, beta)
    soft = np.divide(nn.softplus(scaled), beta)
    return select_elements(np.greater(scaled, threshold), x, soft)


def _in_steps(x: Array, half_to_float: bool) -> Array:
    return x.astype(dtypes.float32) if half_to_float else x


@operator("aten._softmax.default")
def _softmax(node: Node, x: Array, dim: int, half_to_float: bool) -> Array:
    return (
        nn.softmax(_in_steps(x, half_to_float), axis=dim) if x.ndim else np.ones((), dtype=node.dtype)
    )


@operator("aten._safe_softmax.default")
def _safe_softmax(node: Node, x: Array, dim: int, dtype: Any = None) -> Array:
    """0 in rows that are -Inf as a whole, which their largest element tells."""
    found = nn.softmax(x.astype(node.dtype), axis=dim)
    top = np.max(x.astype(node.dtype), axis=dim, keepdims=True)
    return where(np.equal(top, -math.inf), asarray(0, found.dtype), found)


@operator("aten._log_softmax.default")
def _log_softmax(node: Node, x: Array, dim: int, half_to_float: bool) -> Array:
    wide = _in_steps(x, half_to_float)
    return nn.log_softmax(wide, axis=dim) if x.ndim else np.zeros((), dtype=node.dtype)


@operator("aten._softmax_backward_data.default")
def _softmax_backward(node: Node, grad: Array, y: Array, dim: int, input_dtype: Any) -> Array:
    if not y.ndim:
        return np.zeros((), dtype=node.dtype)
    found = apply("softmax_backward", grad, y, dimensions=(dim % y.ndim,))
    return found if found.dtype is input_dtype else found.astype(input_dtype)
