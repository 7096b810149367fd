"""Data as the inputs of a schedule."""

from __future__ import annotations

from typing import Any

import numpy as np

from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.errors import InvalidData, counted, warn
from neuronsim.ops import ArrayType, Bits


def as_it_is(value: Any, expected: ArrayType) -> Bits | None:
    """Data that has an input's type and shape as it stands; None for any other."""
    dtype, dims = expected
    if type(value) is Array:
        return value.bits if value.dtype is dtype and value.shape == dims else None
    if type(value) is not np.ndarray or value.dtype != dtype.numpy or value.shape != dims:
        return None
    if dtype is dtypes.tfloat32 or not value.flags.aligned:
        return None
    return Bits(value if dtype.storage is dtype.numpy else value.view(dtype.storage), dtype)


def as_input(value: Any, expected: ArrayType, name: str) -> Array:
    """An array in the type that the input of this name has; its shape is as it was given. Data may be
    integers of any width where the model takes floats, and wider or narrower floats; finite ones of
    float64 that are beyond float32 are warned of. Raises InvalidData for other kinds, and for integers
    that the type does not hold.
    """
    array = asarray(value)
    if array.dtype is expected.dtype:
        return array
    kinds = (array.dtype.kind, expected.dtype.kind)
    integers = ("signed", "unsigned")
    if kinds[1] == "float" and kinds[0] in ("float", *integers, "bool"):
        if array.dtype is dtypes.float64 and expected.dtype.device:
            _tell_of_lost(np.asarray(array), name)
        return array.astype(expected.dtype)
    if kinds[0] in integers and kinds[1] in integers:
        info = np.iinfo(expected.dtype.numpy)
        data = np.asarray(array)
        if data.size == 0 or (int(data.min()) >= info.min and int(data.max()) <= info.max):
            return array.astype(expected.dtype)
        raise InvalidData(f"input {name!r} has values outside {expected.dtype.name}")
    raise InvalidData(f"input {name!r} is {array.dtype.name}, the model takes {expected.dtype.name}")


def _tell_of_lost(values: np.ndarray[Any, np.dtype[np.float64]], name: str) -> None:
    with np.errstate(over="ignore"):
        lost = int(np.count_nonzero(np.isfinite(values) & np.isinf(values.astype(np.float32))))
    if lost:
        warn(f"input {name!r} has {counted(lost, 'finite value')} of float64 beyond float32")
