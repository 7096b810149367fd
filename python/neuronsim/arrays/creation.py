"""Creation functions.

>>> full((2,), 0.1, dtype="bfloat16")
Array([0.1, 0.1], dtype=bfloat16)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neuronsim import ops
from neuronsim.arrays.array_object import Array, asarray, default_dtype
from neuronsim.dtypes import DTypeLike
from neuronsim.errors import InvalidArgument

__all__ = ["arange", "array", "asarray", "full", "ones", "zeros"]


def array(x: Any, dtype: DTypeLike | None = None, *, copy: bool = True) -> Array:
    """An Array of a copy of `x`; see `asarray`."""
    return asarray(x, dtype, copy=copy)


def full(shape: int | tuple[int, ...], fill_value: Any, dtype: DTypeLike | None = None) -> Array:
    """An array of one value."""
    value = asarray(fill_value, dtype)
    dims = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(n < 0 for n in dims):
        raise InvalidArgument(f"a shape has no negative lengths: {dims}")
    return Array(ops.Bits(np.full(dims, value.bits.data, value.dtype.storage), value.dtype))


def zeros(shape: int | tuple[int, ...], dtype: DTypeLike | None = None) -> Array:
    """An array of zeros of `dtype`, the default float type if None."""
    return full(shape, 0.0, default_dtype() if dtype is None else dtype)


def ones(shape: int | tuple[int, ...], dtype: DTypeLike | None = None) -> Array:
    """An array of ones of `dtype`, the default float type if None."""
    return full(shape, 1.0, default_dtype() if dtype is None else dtype)


def arange(
    start: float, stop: float | None = None, step: float = 1, dtype: DTypeLike | None = None
) -> Array:
    """Evenly spaced values in [start, stop), each rounded once."""
    values = np.arange(start, stop, step)
    return asarray(values.tolist() or np.asarray(values), dtype)
