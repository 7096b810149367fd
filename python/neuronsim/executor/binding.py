"""Data as the inputs of a schedule."""

from __future__ import annotations

from typing import Any

import numpy as np

from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.errors import InvalidData
from neuronsim.ops import ArrayType


def as_input(value: Any, expected: ArrayType, name: str) -> Array:
    """An array in the type that the input of this name has; its shape is as it was given. Data may be
    integers of any width where the model takes floats, and wider or narrower floats. Raises InvalidData
    for other kinds, and for integers that the type does not hold.
    """
    array = asarray(value)
    if array.dtype is expected.dtype:
        return array
    kinds = (array.dtype.kind, expected.dtype.kind)
    integers = ("signed", "unsigned")
    if kinds[1] == "float" and kinds[0] in ("float", *integers, "bool"):
        return array.astype(expected.dtype)
    if kinds[0] in integers and kinds[1] in integers:
        info = np.iinfo(expected.dtype.numpy)
        data = np.asarray(array)
        if data.size == 0 or (int(data.min()) >= info.min and int(data.max()) <= info.max):
            return array.astype(expected.dtype)
        raise InvalidData(f"input {name!r} has values outside {expected.dtype.name}")
    raise InvalidData(f"input {name!r} is {array.dtype.name}, the model takes {expected.dtype.name}")
