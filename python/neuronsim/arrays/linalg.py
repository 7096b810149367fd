"""Products and linear algebra (rules M)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from neuronsim import ops
from neuronsim.arrays.array_object import Array, asarray, convert
from neuronsim.dtypes import result_type
from neuronsim.errors import InvalidArgument

__all__ = ["matmul"]


def matmul(x1: Any, x2: Any) -> Array:
    """The matrix product by rule M2, batched as NumPy's matmul is.

    >>> float(matmul(asarray([1.0, 2.0]), asarray([3.0, 4.0])))
    11.0
    """
    a = x1 if type(x1) is Array else asarray(x1)
    b = x2 if type(x2) is Array else asarray(x2)
    if a._dtype.kind != b._dtype.kind:  # M1: the lattice type first
        common = result_type(a.dtype, b.dtype)
        a, b = convert(a, common), convert(b, common)
    x, y = a._data, b._data
    row, column = x.ndim == 1, y.ndim == 1
    if x.ndim == 0 or y.ndim == 0:
        raise InvalidArgument("matmul needs arrays with at least one axis: use * for scalars")
    if row:
        x = x[np.newaxis]
    if column:
        y = y[:, np.newaxis]
    if x.shape[-1] != y.shape[-2]:
        raise InvalidArgument(f"matmul: {a.bits.type} and {b.bits.type} do not contract")
    if ops.is_host(result_type(a._dtype, b._dtype)):
        return asarray(np.matmul(np.asarray(a), np.asarray(b)))
    if y.ndim > 2 and x.shape[:-2] != y.shape[:-2]:
        try:
            batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        except ValueError as error:
            raise InvalidArgument(f"matmul: {a.shape} and {b.shape} do not broadcast") from error
        x = np.broadcast_to(x, (*batch, *x.shape[-2:]))
        y = np.broadcast_to(y, (*batch, *y.shape[-2:]))
    operands = (ops.Bits(x, a._dtype), ops.Bits(y, b._dtype))
    bits = ops.apply("dot", operands, dot_dimensions=_matmul_dimensions(x.ndim, y.ndim))
    if row or column:
        shape = bits.data.shape
        kept = shape[: -1 - row] + shape[len(shape) - 1 :] if row else shape
        return Array(ops.Bits(bits.data.reshape(kept[:-1] if column else kept), bits.dtype))
    return Array(bits)


@lru_cache
def _matmul_dimensions(left: int, right: int) -> ops.DotDimensions:
    """Which axes a matmul of arrays with so many axes contracts. A matrix on the right serves all rows
    on the left.
    """
    axes = tuple(range(right - 2))
    return ops.DotDimensions((left - 1,), (right - 2,), axes, axes)
