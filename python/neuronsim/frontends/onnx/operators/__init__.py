"""The rows of ONNX's operators, by subject."""

from neuronsim.frontends.onnx.operators import (
    elementwise,
    indexing,
    padding,
    selection,
    shapes,
)
from neuronsim.frontends.onnx.table import OPERATORS

__all__ = ["NAMES", "elementwise", "indexing", "padding", "selection", "shapes"]

NAMES = tuple(sorted({name for _, name in OPERATORS}))
