"""The types in which operators of ATen compute: PyTorch's promotion of their operands."""

from __future__ import annotations

from typing import Any

from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.dtypes import DType
from neuronsim.frontends.torch.tensors import dtype_of, require_torch, torch_dtype


def _stand_in(x: Any) -> Any:
    """What PyTorch asks of an operand: a tensor without memory, or the number."""
    if not isinstance(x, Array):
        return x
    dims = (1,) if x.ndim else ()
    return require_torch().empty(dims, dtype=torch_dtype(x.dtype), device="meta")


def common_type(*operands: Any) -> DType:
    """The type of tensors and Python's numbers together: an array without axes, and a number, count
    only where their kind is higher.
    """
    torch = require_torch()
    arrays = [x for x in operands if isinstance(x, Array)]
    if all(x.dtype is arrays[0].dtype for x in arrays) and len(arrays) == len(operands):
        return arrays[0].dtype
    found = _stand_in(operands[0])
    if len(operands) == 1:
        return dtype_of(torch.result_type(found, found))
    for x in operands[1:]:
        kind = torch.result_type(found, _stand_in(x))
        found = torch.empty((1,), dtype=kind, device="meta")
    return dtype_of(found.dtype)


def promoted(*operands: Any, dtype: DType | None = None) -> list[Array]:
    """The operands in their common type, or in this one: numbers are rounded to it once (C1)."""
    to = common_type(*operands) if dtype is None else dtype
    return [as_type(x, to) for x in operands]


def as_type(x: Any, dtype: DType) -> Array:
    """An array or a number in a type."""
    if isinstance(x, Array):
        return x if x.dtype is dtype else x.astype(dtype)
    return asarray(x, dtype)


def floating(x: Array) -> Array:
    """Integers and bool as float32, PyTorch's default type; floats as they are."""
    is_float = x.dtype.kind in ("float", "complex") or x.dtype.exponent_bits
    return x if is_float else x.astype(dtypes.float32)
