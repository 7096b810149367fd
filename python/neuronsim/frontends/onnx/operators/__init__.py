"""The rows of ONNX's operators, by subject."""

from neuronsim.frontends.onnx.operators import activations, elementwise, products, reductions
from neuronsim.frontends.onnx.table import OPERATORS

__all__ = ["NAMES", "activations", "elementwise", "products", "reductions"]

NAMES = tuple(sorted({name for _, name in OPERATORS}))
