"""Operators and conversions to Python's numbers against array_api_strict, for every pair of types."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy
import pytest
from tests.support.operators import OPERATORS

import neuronsim as np

pytestmark = pytest.mark.isa_independent  # the bits have tests of their own

strict = pytest.importorskip("array_api_strict")

TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)
NUMBERS: dict[str, Any] = {"True": True, "3": 3, "2.5": 2.5, "1j": 1j}
WORDS = [o.word for o in OPERATORS.values()]


FEW = ("and", "or", "xor")  # that few pairs of types have


def operand(namespace: Any, name: str, which: int) -> Any:
    if name in NUMBERS:
        return NUMBERS[name]
    values = ([7, 2, 9, 3], [3, 5, 2, 1])[which]
    values = [v % 2 for v in values] if name == "bool" else values
    return namespace.asarray(values, dtype=getattr(namespace, name))


def is_left_out(name: str, a: str, b: str) -> bool:
    """No array; matmul of a number (NumPy's ValueError is ours, strict's is a TypeError); an order of
    complex numbers, which the standard does not define and strict lets through beside floats.
    """
    numbers = [x for x in (a, b) if x in NUMBERS]
    ordered = name in ("lt", "le", "gt", "ge")
    return len(numbers) == 2 or (name == "matmul" and bool(numbers)) or (ordered and "1j" in numbers)


def outcome(function: Any, *args: Any) -> Any:
    try:
        with numpy.errstate(all="ignore"):
            return function(*args)
    except (TypeError, OverflowError, ValueError) as error:
        return error


def is_ulps(found: Any, expected: Any, ulps: int) -> bool:
    return bool(numpy.allclose(found, expected, rtol=ulps * numpy.finfo(expected.dtype).eps, atol=0))


def check(name: str, ours: Any, theirs: Any) -> str | None:
    """What is wrong with our outcome, if strict has a result."""
    if isinstance(theirs, Exception):
        return None if not isinstance(ours, Exception) or isinstance(ours, type(theirs)) else repr(ours)
    if isinstance(ours, Exception):
        return repr(ours)
    native, expected = numpy.asarray(ours), numpy.asarray(theirs)
    if native.dtype != expected.dtype or native.shape != expected.shape:
        return f"{native.dtype}{native.shape}, not {expected.dtype}{expected.shape}"
    # NumPy's power is not correctly rounded.
    exact = expected.dtype.kind in "biu" or name != "pow"
    same = (native == expected).all() if exact else is_ulps(native, expected, 4)
    return None if same else f"{native}, not {expected}"


IN_PLACE = ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand")
UNARY = ("neg", "pos", "abs", "invert")


@pytest.mark.parametrize("name", [*WORDS, "matmul", *IN_PLACE, *UNARY])
def test_operators_agree_with_array_api_strict(name: str) -> None:
    function, of_two = getattr(operator, f"__{name}__"), name not in UNARY
    compared, wrong = 0, []
    for a, b in itertools.product((*TYPES, *NUMBERS), (*TYPES, *NUMBERS) if of_two else ("",)):
        if is_left_out(name, a, b) or (a in NUMBERS and (name in IN_PLACE or not of_two)):
            continue
        pairs = [[operand(n, a, 0), *([operand(n, b, 1)] if of_two else [])] for n in (np, strict)]
        ours, theirs = (outcome(function, *given) for given in pairs)
        compared += not isinstance(theirs, Exception)
        found = check(name.removeprefix("i") if name in IN_PLACE else name, ours, theirs)
        if found is not None:
            wrong.append((a, b, found))
        x = pairs[0][0]
        if name in IN_PLACE and not isinstance(ours, Exception):
            assert ours is x
            assert x.dtype.name == a
    assert wrong == []
    assert compared >= (20 if name in WORDS and name not in FEW else 2)


@pytest.mark.parametrize("convert", [bool, int, float, complex, operator.index])
def test_conversions_to_python_agree_with_array_api_strict(convert: Any) -> None:
    for dtype in TYPES:
        for value in (0, 1):
            x, y = (n.asarray(value, dtype=getattr(n, dtype)) for n in (np, strict))
            ours, theirs = outcome(convert, x), outcome(convert, y)
            if isinstance(theirs, Exception):
                assert isinstance(ours, type(theirs)), dtype
            else:
                assert (ours, type(ours)) == (theirs, type(theirs)), dtype
