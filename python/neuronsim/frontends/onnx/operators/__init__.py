"""The rows of ONNX's operators, by subject."""

from neuronsim.frontends.onnx.operators import (
    control,
    elementwise,
    indexing,
    normalization,
    padding,
    recurrent,
    resizing,
    sampling,
    selection,
    shapes,
    windows,
)
from neuronsim.frontends.onnx.table import OPERATORS

__all__ = [
    "NAMES",
    "control",
    "elementwise",
    "indexing",
    "normalization",
    "padding",
    "recurrent",
    "resizing",
    "sampling",
    "selection",
    "shapes",
    "windows",
]

NAMES = tuple(sorted({name for _, name in OPERATORS}))
