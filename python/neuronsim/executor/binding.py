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
    integers of any width where the model takes floats, and wider or narrower floats; where finite ones
    become Inf or NaN, a warning says so. Raises InvalidData for other kinds, and for integers that the
    type does not hold.
    """
    array = asarray(value)
    if array.dtype is expected.dtype:
        return array
    kinds = (array.dtype.kind, expected.dtype.kind)
    integers = ("signed", "unsigned")
    if kinds[1] == "float" and kinds[0] in ("float", *integers, "bool"):
        narrow = array.astype(expected.dtype)
        lost = int(np.count_nonzero(np.isfinite(array) & ~np.isfinite(narrow)))
        if lost:
            beyond = f"{counted(lost, 'finite value')} beyond {expected.dtype.name}"
            warn(f"input {name!r}, {array.dtype.name}, has {beyond}: to the model Inf or NaN")
        return narrow
    if kinds[0] in integers and kinds[1] in integers:
        info = np.iinfo(expected.dtype.numpy)
        data = np.asarray(array)
        if data.size == 0 or (int(data.min()) >= info.min and int(data.max()) <= info.max):
            return array.astype(expected.dtype)
        raise InvalidData(f"input {name!r} has values outside {expected.dtype.name}")
    raise InvalidData(f"input {name!r} is {array.dtype.name}, the model takes {expected.dtype.name}")
