"""Arrays as words: their storage bits as unsigned integers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim import Array, dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.reference import formats

Words = npt.NDArray[Any]

# Names of element types: those of floats that the device computes with, and of integers.
FLOAT8 = ["float8_e5m2", "float8_e4m3", "float8_e3m4"]
NARROW = ["tfloat32", "bfloat16", "float16", *FLOAT8]  # narrower than float32
FLOATS = ["float32", *NARROW]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
REDUCERS = ["add", "multiply", "maximum", "minimum"]
BITWISE = ["bitwise_and", "bitwise_or", "bitwise_xor"]


def word_type(type_name: str) -> np.dtype[Any]:
    """The unsigned integers that hold a type's encodings."""
    return np.dtype(f"u{dtypes.DTYPES[type_name].itemsize}")


def words(x: Array | ops.Bits) -> Words:
    """In the array's shape."""
    data = (x if isinstance(x, ops.Bits) else x.bits).data
    return np.ascontiguousarray(data).reshape(data.shape).view(f"u{data.itemsize}")


def as_bits(type_name: str, words: Words) -> ops.Bits:
    """The array of a type whose storage bits are these words."""
    t = dtypes.DTYPES[type_name]
    return ops.Bits(np.asarray(words).view(t.storage), t)


def word_list(x: Array | ops.Bits) -> list[int]:
    """In one row, as Python's numbers, which the twin takes."""
    return [int(w) for w in words(x).ravel()]


def table(x: Array) -> Words:
    """The words of `word_list` in the array's shape."""
    return np.array(word_list(x)).reshape(x.shape)


def of_words(found: Iterable[int], dtype: DType, shape: tuple[int, ...] | None = None) -> Array:
    """The array of these storage words, in one row or a shape."""
    data = np.array(list(found), f"u{dtype.itemsize}").view(dtype.storage)
    return Array(ops.Bits(data if shape is None else data.reshape(shape), dtype))


def assert_same(found: Any, expected: Any) -> None:
    """The same structure, types, shapes and bits; expected are Arrays, or NumPy's."""
    if isinstance(expected, tuple | list):
        for f, e in zip(found, expected, strict=True):
            assert_same(f, e)
        return
    assert type(found) is Array
    assert (found.dtype.name, found.shape) == (expected.dtype.name, expected.shape)
    assert found.tobytes() == expected.tobytes(), (found, expected)


def bits(values: Any, dtype: DType = dtypes.float32) -> ops.Bits:
    """Values that NumPy converts to the type."""
    return ops.Bits(np.asarray(values, dtype.numpy).view(dtype.storage), dtype)


def encoded(type_name: str, values: Iterable[float]) -> Words:
    """The words of the values, rounded by the twin."""
    found = [formats.from_float(type_name, v) for v in values]
    return np.array(found, word_type(type_name))


def widened(type_name: str, words: Words) -> list[int]:
    """The words in one row as those of float32, by the twin."""
    return [formats.convert(type_name, "float32", w) for w in words.ravel().tolist()]


def pairs_of(x: Any, y: Any) -> tuple[Words, Words]:
    """Every element of one with every element of the other."""
    first, second = np.meshgrid(x, y)
    return first.ravel(), second.ravel()


def pairs_of_bytes() -> tuple[Words, Words]:
    every = np.arange(256, dtype=np.uint8)
    return pairs_of(every, every)
