"""Activations. Those of several steps are in float32 steps, rounded once (R7)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from neuronsim import arrays as np
from neuronsim.arrays import nn
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.evaluation import select_elements
from neuronsim.arrays.steps import in_float32
from neuronsim.frontends.onnx.operators.elementwise import clipped
from neuronsim.frontends.onnx.table import Node, operator

# ---- of one rounding -------------------------------------------------------------------------------


operator("Relu")(lambda node, x: np.maximum(x, 0))
operator("Sigmoid")(lambda node, x: np.sigmoid(x))
operator("Tanh")(lambda node, x: np.tanh(x))
operator("Softplus")(lambda node, x: nn.softplus(x))
operator("Mish", since=18)(lambda node, x: nn.mish(x))
operator("Gelu", since=20)(lambda node, x: nn.gelu(x, node.get("approximate", "none")))


@operator("ThresholdedRelu", since=10)
def _thresholded_relu(node: Node, x: Array) -> Array:
    return select_elements(np.greater(x, node.get("alpha", 1.0)), x, 0)


# ---- of several steps ------------------------------------------------------------------------------


operator("LeakyRelu")(lambda node, x: nn.leaky_relu(x, node.get("alpha", 0.01)))


def _sloped(x: Array, slope: Array) -> Array:
    return select_elements(np.less(x, 0), np.multiply(x, slope), x)


@operator("PRelu")
def _prelu_of_channels(node: Node, x: Array, slope: Array) -> Array:
    """One slope, or one for each channel (axis 1)."""
    return _sloped(x, slope.reshape((-1, *[1] * (x.ndim - 2)) if slope.size > 1 else ()))


operator("PRelu", since=7)(lambda node, x, slope: _sloped(x, slope))
operator("Elu")(lambda node, x: nn.elu(x, node.get("alpha", 1.0)))


def _of_float32(names: dict[str, float]) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """Makes a function of an array in float32 and attributes, with their defaults, an operator's."""

    def decorate(function: Callable[..., Array]) -> Callable[..., Array]:
        wide = in_float32("x")(function)

        def run(node: Node, x: Array) -> Array:
            return wide(x, *(node.get(name, default) for name, default in names.items()))

        return run

    return decorate


@operator("Celu", since=12)
@_of_float32({"alpha": 1.0})
def _celu(x: Any, alpha: float) -> Array:
    return select_elements(np.greater(x, 0), x, np.multiply(np.expm1(np.divide(x, alpha)), alpha))


@operator("Selu")
@_of_float32({"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875})
def _selu(x: Any, alpha: float, gamma: float) -> Array:
    below = np.multiply(np.expm1(x), alpha)
    return np.multiply(np.where(np.greater(x, 0), x, below), gamma)


def _gate(x: Array, alpha: float, beta: float) -> Array:
    return clipped(np.add(np.multiply(x, alpha), beta), 0, 1)


@operator("HardSigmoid")
@_of_float32({"alpha": 0.2, "beta": 0.5})
def _hard_sigmoid(x: Any, alpha: float, beta: float) -> Array:
    return _gate(x, alpha, beta)


@operator("HardSwish", since=14)
@_of_float32({})
def _hard_swish(x: Any) -> Array:
    return np.multiply(x, _gate(x, 1 / 6, 0.5))


@operator("Softsign")
@_of_float32({})
def _softsign(x: Any) -> Array:
    return np.divide(x, np.add(np.abs(x), 1))


@operator("Shrink", since=9)
def _shrink(node: Node, x: Array) -> Array:
    """Integers in the default float type, cut to integers."""
    return _shrunk(x, node.get("lambd", 0.5), node.get("bias", 0.0)).astype(x.dtype)


@in_float32("x")
def _shrunk(x: Any, lambd: float, bias: float) -> Array:
    above = np.where(np.greater(x, lambd), np.subtract(x, bias), 0)
    found: Array = np.where(np.less(x, -lambd), np.add(x, bias), above)
    return found


@in_float32("x")
def swish(x: Any, alpha: float) -> Array:
    """The product of x and sigmoid(alpha x)."""
    return np.multiply(x, np.sigmoid(x if alpha == 1 else np.multiply(x, alpha)))


@operator("Swish", since=24)
def _swish(node: Node, x: Array) -> Array:
    alpha = node.get("alpha", 1.0)
    return nn.silu(x) if alpha == 1 else swish(x, alpha)


@in_float32("gate", "x")
def _gated(gate: Any, x: Any, alpha: float) -> Array:
    return np.multiply(swish(gate, alpha), x)


operator("SwiGLU", since=28)(lambda node, gate, x: _gated(gate, x, node.get("alpha", 1.0)))


# ---- softmax and its like --------------------------------------------------------------------------


def _hardmax(x: Array, axis: int) -> Array:
    """1 at the first of the largest elements along an axis, 0 elsewhere."""
    axis %= x.ndim
    places = np.arange(x.shape[axis], dtype="int64").reshape(-1, *[1] * (x.ndim - 1 - axis))
    return np.equal(places, np.argmax(x, axis=axis, keepdims=True)).astype(x.dtype)


def _along(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda node, x: function(x, axis=node.get("axis", -1))


def _of_matrices(function: Callable[..., Array]) -> Callable[..., Array]:
    """The axes before `axis` are rows, and those from it on columns."""

    def run(node: Node, x: Array) -> Array:
        axis = node.get("axis", 1)
        axis += x.ndim if axis < 0 else 0
        rows = x.reshape((math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
        return function(rows, axis=1).reshape(x.shape)

    return run


for _name, _function in {
    "Softmax": nn.softmax,
    "LogSoftmax": nn.log_softmax,
    "Hardmax": _hardmax,
}.items():
    operator(_name)(_of_matrices(_function))
    operator(_name, since=13)(_along(_function))
