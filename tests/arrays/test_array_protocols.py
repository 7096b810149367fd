"""NumPy's functions on neuronsim arrays act by name, or refuse: no foreign numerics in silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import neuronsim as np
from neuronsim.errors import NeuronSimError, UnsupportedType

pytestmark = pytest.mark.isa_independent

X = np.asarray([1.5, -2.25, 4.0], dtype="bfloat16")
Y = np.asarray([0.1, 3.0, -7.0], dtype="bfloat16")


REFUSED: list[Callable[[], Any]] = [
    lambda: numpy.add(X, Y, out=numpy.zeros(3, int)),
    lambda: numpy.is_busday(X),
    lambda: numpy.sort_complex(X),
    lambda: numpy.frompyfunc(max, 2, 1)(X, Y),
]


@pytest.mark.parametrize("call", REFUSED)
def test_functions_that_neuronsim_does_not_compute_are_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(TypeError):  # which UnsupportedType is
        call()


def test_refusal_names_the_nearest_and_what_to_do() -> None:
    with pytest.raises(UnsupportedType, match=r"numpy\.busday_count \(did you mean.*numpy\.asarray"):
        numpy.busday_count(X, X)
    with pytest.raises(UnsupportedType, match=r"numpy\.isnat .*: .* no dates; or numpy\.asarray"):
        numpy.isnat(X)
    with pytest.raises(UnsupportedType, match=r"numpy\.isnat\.accumulate .*or numpy\.asarray"):
        np.arrays.methods.array_ufunc(numpy.isnat, "accumulate", (X,), {})


# ---- float64 and complex: the host's (H1) -----------------------------------------------------------


def test_H1_narrow_operands_are_widened() -> None:
    found = X + numpy.array([1e-10, 0.0, 0.0])
    assert found.dtype is np.float64
    assert found.tolist() == [1.5 + 1e-10, -2.25, 4.0]


@pytest.mark.parametrize(
    "function", [np.mean, np.sum, np.max, np.nn.softmax, np.nn.layer_norm], ids=lambda f: f.__name__
)
def test_H1_float64_is_never_computed_in_float32_in_silence(function: Callable[..., Any]) -> None:
    # Either NumPy's float64 result, or a refusal; 1 + 2^-40 is lost on the way through float32.
    values = numpy.array([1 + 2.0**-40, 1 - 2.0**-40, 3.0])
    try:
        found = function(np.asarray(values))
    except NeuronSimError:
        return
    exact = {
        "mean": lambda: numpy.mean(values),
        "sum": lambda: numpy.sum(values),
        "max": lambda: numpy.max(values),
        "softmax": lambda: numpy.exp(values - 3) / numpy.sum(numpy.exp(values - 3)),
        "layer_norm": lambda: (values - values.mean()) / numpy.sqrt(values.var() + 1e-5),
    }[function.__name__]()
    assert found.dtype is np.float64
    assert numpy.allclose(numpy.asarray(found), exact, rtol=1e-14, atol=0)
