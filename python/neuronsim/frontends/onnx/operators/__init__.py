"""The rows of ONNX's operators, by subject."""

from neuronsim.frontends.onnx.operators import (
    elementwise,
    indexing,
    normalization,
    padding,
    selection,
    shapes,
    windows,
)
from neuronsim.frontends.onnx.table import OPERATORS

__all__ = ["NAMES", "elementwise", "indexing", "normalization", "padding", "selection", "shapes", "windows"]

NAMES = tuple(sorted({name for _, name in OPERATORS}))
