"""Flat: the elements of an array in row-major order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from neuronsim.arrays.array_object import Array, index_bits, shown
from neuronsim.arrays.conversion import asarray, is_weak, weak_array
from neuronsim.errors import REFUSALS, InvalidArgument, InvalidIndex
from neuronsim.processor import pinned


@pinned
class Flat:
    """The elements of an array in row-major order, as NumPy's flatiter."""

    __slots__ = ("_array",)

    def __init__(self, array: Array) -> None:
        self._array = array

    def __len__(self) -> int:
        return self._array.size

    def __iter__(self) -> Iterator[Array]:
        return iter(self._array.reshape(-1))

    def __getitem__(self, key: Any) -> Array:
        return self._array.reshape(-1)[key].copy()

    def __setitem__(self, key: Any, value: Any) -> None:
        what = f"flat[{shown(key)}] of {self._array.bits.type}"
        try:
            places = np.arange(len(self))[index_bits(key)].reshape(-1)
        except REFUSALS as error:
            raise InvalidIndex(f"{what}: {error}") from error
        dtype = self._array.dtype
        given = weak_array(value, dtype) if is_weak(value) else asarray(value, dtype)
        if given.size == 0 != places.size:
            raise InvalidArgument(f"{what}: no values for {places.size} elements")
        try:
            np.put(self._array._data, places, given._data)  # again and again
        except ValueError as error:
            raise InvalidArgument(f"{what}: {error}") from error
