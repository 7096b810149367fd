"""The decorator of functions in float32 steps (R7): what they get, what becomes of their results."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import neuronsim as np
from neuronsim.arrays.steps import in_float32, step_type
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import UnsupportedType

pytestmark = pytest.mark.isa_independent

seen: list[str] = []


@in_float32("x", "y")
def third(x: Any, y: Any = None, *, scale: float = 1.0, out: Any = None) -> Any:
    """A third of x, or of x + y."""
    assert out is None
    seen[:] = [v.dtype.name for v in (x, y) if v is not None]
    return (x if y is None else x + y) * scale / 3


FLOATS = [t for t in DTYPES.values() if t.exponent_bits and t.device]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_R7_steps_are_float32_and_the_end_is_rounded_once(dtype: DType) -> None:
    x, y = np.asarray([1.0, 7.0], dtype=dtype), np.asarray([0.75, -2.0], dtype=dtype)
    found = third(x, y)
    assert seen == ["float32", "float32"]
    # NumPy's float32 quotient is IEEE's; the sums are exact.
    expected = np.asarray(numpy.array([1.75, 5.0], numpy.float32) / numpy.float32(3)).astype(dtype)
    assert found.dtype is dtype
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", ["float64", "complex64", "complex128"])
def test_H1_host_types_stay(dtype: str) -> None:
    assert third(np.asarray([3.0], dtype=dtype)).dtype.name == dtype
    assert seen == [dtype]


@pytest.mark.parametrize("default", ["float32", "bfloat16"])
def test_integers_take_the_default_type(default: str, restored_default: None) -> None:
    np.set_default_dtype(default)
    for x in (3, [3], True, np.asarray([3], dtype="uint8")):
        assert third(x).dtype.name == default
        assert seen == ["float32"]


def test_operands_take_their_common_type_however_they_are_given() -> None:
    narrow, other = np.asarray([1.0], dtype="bfloat16"), np.asarray([2.0], dtype="float16")
    assert third(narrow, other).dtype is np.float32
    assert third(narrow, y=2).dtype is third(x=narrow, y=2).dtype is np.bfloat16
    assert third(y=other, x=numpy.float64(1)).dtype is np.float64
    assert seen == ["float64", "float64"]


def test_only_floats_are_rounded_and_sequences_element_by_element() -> None:
    @in_float32("x")
    def several(x: Any) -> Any:
        return x / 3, x > 1, [x], len(x)

    third_of, above, (same,), length = several(np.asarray([1.5, 0.5], dtype="float16"))
    assert third_of.dtype is same.dtype is np.float16
    assert (above.tolist(), length) == ([True, False], 2)


def test_out_takes_the_rounded_result() -> None:
    x, out = np.asarray([1.0, 2.0], dtype="bfloat16"), np.zeros(2, dtype="float32")
    assert third(x, out=out) is out
    assert out.tolist() == third(x).tolist()
    narrow = np.zeros(2, dtype="bfloat16")
    assert third(x.astype("float32"), out=narrow) is narrow
    assert narrow.tolist() == third(x).tolist()


def test_types_that_are_not_computed_with_and_wrong_calls() -> None:
    with pytest.raises(UnsupportedType, match="float8_e4m3fn is read and converted"):
        third(np.ones(2, dtype="float8_e4m3fn"))
    assert step_type(DTYPES["int8"]) is DTYPES["int8"]
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        third(1.0, z=2)
    with pytest.raises(TypeError, match="positional argument"):
        third(1.0, 2.0, 3.0, 4.0, 5.0)
    assert third.__doc__ == "A third of x, or of x + y."
