"""Data movement: shapes, axes, joining."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.arrays.array_object import Array, array_type, asarray, convert
from neuronsim.dtypes import DTypeLike
from neuronsim.errors import InvalidArgument

__all__ = ["astype", "broadcast_to", "concat", "permute_dims", "reshape", "transpose"]


def reshape(x: Any, shape: tuple[int, ...]) -> Array:
    """The same elements in another shape."""
    return asarray(x).reshape(shape)


def permute_dims(x: Any, axes: tuple[int, ...]) -> Array:
    """The array with its axes in the order `axes`."""
    return Array(ops.apply("transpose", [asarray(x).bits], dimensions=tuple(axes)))


def transpose(x: Any, axes: tuple[int, ...] | None = None) -> Array:
    """NumPy's transpose: `permute_dims`, or the reversal of all axes."""
    a = asarray(x)
    return permute_dims(a, tuple(reversed(range(a.ndim))) if axes is None else axes)


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Array:
    """A read-only view of `x` broadcast to `shape`."""
    a = asarray(x)
    try:
        return Array(ops.Bits(np.broadcast_to(a.bits.data, shape), a.dtype))
    except ValueError as error:
        raise InvalidArgument(f"{a.bits.type} does not broadcast to {shape}") from error


def concat(arrays: Sequence[Any], axis: int = 0) -> Array:
    """Arrays joined along an axis, in their common type."""
    values = [asarray(x) for x in arrays]
    if not values:
        raise InvalidArgument("concat needs at least one array")
    common = values[0].dtype
    for v in values[1:]:
        common = dtypes.result_type(common, v.dtype)
    bits = [convert(v, common).bits for v in values]
    rank = values[0].ndim
    if not -rank <= axis < rank:
        raise InvalidArgument(f"concat along axis {axis} of {rank} axes")
    at = axis % rank
    return Array(ops.apply("concatenate", bits, dimensions=(at,)))


def astype(x: Any, dtype: DTypeLike) -> Array:
    """`x` converted by rules C."""
    return convert(asarray(x), array_type(dtype))
