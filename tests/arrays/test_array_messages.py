"""What a newcomer's mistakes are answered with: what is wrong, and what to do."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.parameters import each_of

import neuronsim as np

pytestmark = pytest.mark.isa_independent

X = np.asarray([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "text": (lambda: np.array(["1", "2"], dtype=int), TypeError, "'1' is no number.*int or float"),
    "bytes": (lambda: np.asarray(b"ab"), TypeError, "b'ab' is no number.*frombuffer"),
    "a shape of two arguments": (lambda: np.zeros(2, 3), TypeError, "3 is not.*a shape is one tuple"),
    "bits of floats": (lambda: X & 1, TypeError, "bitwise_and is not.*float32: it takes integers"),
    "a shift of floats": (lambda: X << 1, TypeError, "shift_left is not.*float32: it takes integers"),
    "a difference of bools": (lambda: (X > 1) - (X > 2), TypeError, "subtract is not.*takes numbers"),
    "an order of complex numbers": (lambda: X * 1j > 1, TypeError, "greater is not.*complex64"),
    "a modulus of pow": (lambda: pow(np.asarray(2), 3, 5), TypeError, "power of int.* has no modulus"),
    "arrays too many": (lambda: np.add(1, 2, 3, 4), TypeError, "takes 2 arrays, not 4"),
    "no such argument": (lambda: np.add(1, 2, wher=True), TypeError, "no argument 'wher'"),
    "a precision of text": (lambda: np.set_printoptions(precision="a"), TypeError, "set_printoptions"),
    "options of text": (lambda: np.printoptions(precision="a").__enter__(), TypeError, "printoptions"),
    "a base of none": (lambda: np.base_repr(3, 40), ValueError, "base_repr"),
    "a text among numbers": (
        lambda: np.testing.assert_allclose(np.zeros(3), "a"),
        TypeError,
        "assert_allclose",
    ),
    "one choice of where": (lambda: np.where(X > 1, X), TypeError, "with both x1 and x2"),
}


@each_of("name", MISTAKES)
def test_a_mistake_is_named_with_what_to_do(name: str) -> None:
    call, error, message = MISTAKES[name]
    with pytest.raises(error, match=message) as raised:
        call()
    assert isinstance(raised.value, np.errors.NeuronSimError)


@pytest.mark.parametrize(
    "call",
    [
        lambda: np.polyfit([1, 1, 1], [1, 2, 3], 2),
        lambda: np.loadtxt(io.StringIO("")),
        lambda: np.genfromtxt(io.StringIO("")),
        lambda: np.nanmax([np.nan]),
    ],
)
def test_a_warning_is_of_the_users_line(call: Callable[[], Any]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert [w.filename for w in caught] == [__file__]
