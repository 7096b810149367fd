"""Mixed operands: the lattice of types, and Python scalars, which are weak (C8)."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from tests.support.parameters import each_of

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.reference import elementwise, formats

pytestmark = pytest.mark.isa_independent

DEVICE_FLOATS = [t for t in DTYPES.values() if t.exponent_bits and t.device]


def word(x: np.Array) -> int:
    return int(x.bits.data.reshape(-1).view(f"u{x.dtype.itemsize}")[0])


# ---- Python scalars (C8) ----------------------------------------------------------------------------


@each_of("dtype", DEVICE_FLOATS, ids=lambda t: t.name)
@each_of("name", ["add", "multiply", "divide", "subtract"])
def test_C8_scalar_takes_the_arrays_type_before_the_operation(dtype: DType, name: str) -> None:
    x = np.asarray([1.25], dtype=dtype)
    for scalar in (0.1, 3, 1 / 3, True):
        rounded = formats.convert(dtype.name, "float32", formats.from_float(dtype.name, scalar))
        own = formats.convert(dtype.name, "float32", word(x))
        expected = formats.convert("float32", dtype.name, elementwise.FLOAT[name](own, rounded))
        found = getattr(np, name)(x, scalar)
        assert found.dtype is dtype
        assert word(found) == expected


# ---- broadcasting, select, operators -----------------------------------------------------------------


def test_where_broadcasts_and_takes_the_common_type() -> None:
    found = np.where(np.asarray([True, False]), np.ones((3, 1), dtype="bfloat16"), 0)
    assert found.dtype is np.bfloat16
    assert found.tolist() == [[1, 0]] * 3
    assert np.where(np.asarray(True), 1.5, 2).tolist() == 1.5


def test_where_takes_the_truth_of_any_condition_C6() -> None:
    assert np.where([3, 0], [1, 2], 9).tolist() == [1, 9]
    for dtype in DTYPES.values():
        assert np.where(np.asarray([0, 1], dtype), 1, 2).tolist() == [2, 1]
    assert np.where(np.asarray([-0.0, numpy.nan], "bfloat16"), 1, 2).tolist() == [2, 1]
    assert np.where(np.asarray(1j), 1, 2).shape == np.asarray(1j).astype(bool).bits.data.shape == ()


@each_of("value", [True, 1, 1.5, 1j])
@each_of("name", [t.name for t in DTYPES.values() if t.name != "float8_e4m3fn"])
def test_C8_result_type_of_a_number_is_that_of_the_operation(name: str, value: Any) -> None:
    """int32 with a complex number is complex128, which holds it."""
    x = np.zeros(2, dtype=name)
    found = np.where(np.asarray([True, False]), x, value)
    assert np.result_type(x, value) is np.result_type(value, name) is found.dtype
