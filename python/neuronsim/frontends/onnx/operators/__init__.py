"""The rows of ONNX's operators, by subject."""

from neuronsim.frontends.onnx.operators import (
    activations,
    control,
    elementwise,
    indexing,
    losses,
    normalization,
    padding,
    primitives,
    products,
    quantization,
    random,
    recurrent,
    reductions,
    resizing,
    sampling,
    selection,
    shapes,
    signals,
    windows,
)
from neuronsim.frontends.onnx.table import OPERATORS

__all__ = [
    "NAMES",
    "activations",
    "control",
    "elementwise",
    "indexing",
    "losses",
    "normalization",
    "padding",
    "primitives",
    "products",
    "quantization",
    "random",
    "recurrent",
    "reductions",
    "resizing",
    "sampling",
    "selection",
    "shapes",
    "signals",
    "windows",
]

NAMES = tuple(sorted({name for _, name in OPERATORS}))
