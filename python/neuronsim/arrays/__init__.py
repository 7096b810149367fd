"""The array backend: NumPy's names on the device's number formats. A file is a chapter of the names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neuronsim.arrays import (
    calculus,
    creation,
    einstein_summation,
    elementwise,
    error_handling,
    files,
    functional,
    indexing,
    info,
    interop,
    logic,
    manipulation,
    order,
    padding,
    printing,
    products,
    reductions,
    sets,
    statistics,
    types,
    windows,
)

CHAPTERS = (
    calculus,
    creation,
    einstein_summation,
    elementwise,
    error_handling,
    files,
    functional,
    indexing,
    info,
    interop,
    logic,
    manipulation,
    order,
    padding,
    printing,
    products,
    reductions,
    sets,
    statistics,
    types,
    windows,
)


# Every public name of the chapters: what the package exports, and what NumPy's protocols find by name.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(chapter, name) for chapter in CHAPTERS for name in chapter.__all__
}
globals().update(FUNCTIONS)
__all__ = list(FUNCTIONS)
