"""Arrays of drawn bits, and whether a function moves them as NumPy moves integers of that width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import neuronsim as np
from neuronsim import ops
from neuronsim.dtypes import DType
from neuronsim.errors import NeuronSimError

SHAPES = [(), (0,), (1,), (3,), (1, 3), (2, 3), (2, 0, 3), (2, 1, 4), (2, 2, 2)]
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda x: x,
    "columns": lambda x: x.T,
    "reversed": lambda x: x[..., ::-1] if x.ndim else x,
}
Call = Callable[[Any, Any], Any]


def every_pattern(dtype: DType, shape: tuple[int, ...]) -> tuple[np.Array, numpy.ndarray]:
    """An array of drawn bits, NaN payloads and -0 among them, and these as unsigned integers."""
    draw = numpy.random.default_rng([dtype.bits, len(dtype.name), *shape])
    size = int(numpy.prod(shape))
    data = draw.integers(0, 256, (size, dtype.itemsize), numpy.uint8)
    if dtype is np.bool:
        data &= 1
    if size and dtype.kind != "bool":
        data[0], data[0, -1] = 0, 0x80  # -0
    words = data.reshape(-1).view(word_type(dtype)).reshape(shape)
    if dtype is np.tfloat32:
        words &= numpy.uint32(0xFFFFE000)
    return np.Array(ops.Bits(words.view(dtype.storage), dtype)), words


def word_type(dtype: DType) -> numpy.dtype[Any]:
    """What NumPy moves in the place of the elements."""
    return numpy.dtype("c16") if dtype.itemsize == 16 else numpy.dtype(f"u{dtype.itemsize}")


def assert_same(found: Any, expected: Any) -> None:
    """Equal structure, shapes and bits; numbers and shapes are equal."""
    if isinstance(expected, tuple | list):
        assert type(found) is type(expected)
        assert len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            assert_same(f, e)
    elif isinstance(expected, numpy.ndarray | numpy.generic):
        assert isinstance(found, np.Array)
        assert found.shape == expected.shape
        assert found.tobytes() == expected.tobytes()
    else:
        assert found == expected


def compare(call: Call, x: np.Array, words: numpy.ndarray) -> bool:
    """The same bits, memory and errors as NumPy; whether there is a result."""
    expected = outcome(call, words)
    if isinstance(expected, Exception):
        with pytest.raises(NeuronSimError) as caught:
            call(np, x)
        kinds = [k for k in (ValueError, IndexError, TypeError) if isinstance(expected, k)]
        assert all(isinstance(caught.value, kind) for kind in kinds), (caught.value, expected)
        return False
    found = call(np, x)
    assert_same(found, expected)
    # Of an array without axes NumPy makes a scalar, which is no view.
    if words.size > 1 and all(isinstance(p, numpy.ndarray) for p in parts(expected)):
        memory = [numpy.shares_memory(p.bits.data, x.bits.data) for p in parts(found)]
        assert memory == [numpy.shares_memory(p, words) for p in parts(expected)]
    return True


def outcome(call: Call, words: numpy.ndarray) -> Any:
    try:
        return call(numpy, words)
    except Exception as error:
        return error


def parts(x: Any) -> Any:
    return x if isinstance(x, tuple | list) else (x,)
