"""Every public name of the chapters: what the package exports and NumPy's protocols find."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from neuronsim.arrays import (
    activations,
    convolution,
    fft,
    layers,
    linalg,
    losses,
    normalization,
    pooling,
    stride_tricks,
)
from neuronsim.processor import pin_doors

CHAPTERS = tuple(
    importlib.import_module(f"neuronsim.arrays.{name}")
    for name in (
        *("calculus", "complex_numbers", "creation", "cumulative", "einstein_summation", "elementwise"),
        *("error_handling", "files", "float_parts", "functional", "grids", "histograms", "indexing"),
        *("info", "interop", "logic", "manipulation", "order", "padding", "printing", "products"),
        *("polynomials", "progressions", "reductions", "sets", "statistics", "types", "windows"),
    )
)

# D1: what a chapter computes with Python or NumPy does not follow the caller's environment either.
pin_doors(CHAPTERS)
pin_doors((fft, linalg, stride_tricks))
pin_doors((activations, convolution, layers, losses, normalization, pooling))

FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(chapter, name) for chapter in CHAPTERS for name in chapter.__all__
}
