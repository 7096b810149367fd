"""Every function of the standard on bfloat16, float16, tfloat32 and float8 equals the slow twin's."""

from __future__ import annotations

import itertools
from typing import Any

import numpy
import pytest
from narrow_cases import CASES, CREATED, INTEGERS_ONLY, MOVED, WITHOUT_CASE, X

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import UnsupportedType

NARROW = [t for t in DTYPES.values() if t.exponent_bits and t.device and t is not np.float32]


def check(found: Any, expected: Any) -> None:
    """The same structure, types, shapes and bits."""
    if isinstance(expected, tuple | list):
        assert len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            check(f, e)
        return
    assert isinstance(found, np.Array)
    assert found.shape == expected.shape
    name = expected.dtype.name
    assert found.dtype.name == name
    assert found.tobytes() == expected.tobytes(), (found, expected)


def test_every_function_of_the_standard_has_a_case_or_a_reason() -> None:
    strict = pytest.importorskip("array_api_strict")
    spaces = {"": strict, "linalg.": strict.linalg, "fft.": strict.fft}
    names = {
        prefix + n
        for prefix, space in spaces.items()
        for n in getattr(space, "__all__", dir(space))
        if callable(getattr(space, n)) and not isinstance(getattr(space, n), type(strict.float32))
    }
    reasons = set(itertools.chain.from_iterable(WITHOUT_CASE.values()))
    assert names - {"bool"} - set(CASES) - reasons == set()
    assert not set(CASES) & reasons


@pytest.mark.parametrize("dtype", NARROW, ids=lambda t: t.name)
@pytest.mark.parametrize("name", CASES)
def test_equals_the_twin(name: str, dtype: DType) -> None:
    case = CASES[name]
    check(case.found(dtype), case.expected(dtype))


@pytest.mark.parametrize("name", CASES)
def test_float8_e4m3fn_is_moved_converted_and_put_in_order_not_computed_with(name: str) -> None:
    """Rule F; C6 is the conversion to bool, E10 moves the elements."""
    case, dtype = CASES[name], np.float8_e4m3fn
    if case.rule in (MOVED, CREATED, "C6", "E10"):
        check(case.found(dtype), case.expected(dtype))
        return
    with pytest.raises(UnsupportedType, match="float8_e4m3fn"):
        case.found(dtype)


@pytest.mark.parametrize("dtype", NARROW, ids=lambda t: t.name)
def test_functions_of_integers_refuse_narrow_floats(dtype: DType) -> None:
    for name in WITHOUT_CASE[INTEGERS_ONLY]:
        operands = [X(dtype)] * (1 if name == "bitwise_invert" else 2)
        with pytest.raises(TypeError, match=dtype.name):
            getattr(np, name)(*operands)


def test_a_wrong_last_bit_or_type_is_found() -> None:
    """The control."""
    x = np.asarray([1.0, 2.0], "bfloat16")
    for other in (np.nextafter(x, x + 1), x.astype("float32"), x[None], numpy.ones(2)):
        with pytest.raises(AssertionError):
            check(other, x)
