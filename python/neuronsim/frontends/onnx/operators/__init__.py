"""The rows of ONNX's operators, by subject."""

from neuronsim.frontends.onnx.operators import elementwise
from neuronsim.frontends.onnx.table import OPERATORS

__all__ = ["NAMES", "elementwise"]

NAMES = tuple(sorted({name for _, name in OPERATORS}))
