"""What the host computes in float64 or complex128 and rounds once (H1)."""

from __future__ import annotations

from typing import Any

import numpy
from tests.support.words import assert_same

import neuronsim as np


def exact(x: np.Array) -> Any:
    """The elements in float64 or complex128, by NumPy."""
    return numpy.asarray(x.astype("complex128" if x.dtype.kind == "complex" else "float64"))


def check(found: np.Array, expected: Any, dtype: Any) -> None:
    """Bit for bit the one rounding of what NumPy gives for the exact values."""
    assert_same(found, np.asarray(numpy.asarray(expected)).astype(dtype))
