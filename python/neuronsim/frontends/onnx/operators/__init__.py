"""The rows of ONNX's operators, by subject."""

from neuronsim.frontends.onnx.operators import (
    activations,
    elementwise,
    losses,
    products,
    quantization,
    random,
    reductions,
    signals,
)
from neuronsim.frontends.onnx.table import OPERATORS

__all__ = [
    *("NAMES", "activations", "elementwise", "losses", "products", "quantization", "random"),
    *("reductions", "signals"),
]

NAMES = tuple(sorted({name for _, name in OPERATORS}))
