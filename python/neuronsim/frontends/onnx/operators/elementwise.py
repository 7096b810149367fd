"""Elementwise operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neuronsim import arrays as np
from neuronsim.arrays import nn
from neuronsim.arrays.array_object import Array
from neuronsim.frontends.onnx.table import Node, operator


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda node, *operands: function(*operands)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": lambda a, b: _divide(a, b),
    "Neg": np.negative,
    "Abs": np.abs,
    "Exp": np.exp,
    "Log": np.log,
    "Sqrt": np.sqrt,
    "Tanh": np.tanh,
    "Sigmoid": np.sigmoid,
    "Erf": np.erf,
    "Relu": lambda x: np.maximum(x, 0),
    "Identity": lambda x: x,
}
for _name, _function in _FUNCTIONS.items():
    operator(_name)(_plain(_function))


def _divide(a: Array, b: Array) -> Array:
    """Of integers towards zero."""
    if a.dtype.kind in ("signed", "unsigned"):
        whole = np.floor_divide(np.abs(a), np.abs(b)) if a.dtype.kind == "signed" else a // b
        return np.where((a < 0) != (b < 0), -whole, whole) if a.dtype.kind == "signed" else whole
    return np.divide(a, b)


@operator("Softmax", since=13)
def _softmax(node: Node, x: Array) -> Array:
    return nn.softmax(x, axis=node.get("axis", -1))
