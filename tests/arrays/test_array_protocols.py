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
N = np.asarray([6, 3, 12])

BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum"]
COMPARISONS = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]


@pytest.mark.parametrize("name", [*BINARY, *COMPARISONS])
def test_numpys_binary_functions_act_by_name(name: str) -> None:
    found, expected = getattr(numpy, name)(X, Y), getattr(np, name)(X, Y)
    assert isinstance(found, np.Array)
    assert found.dtype is expected.dtype
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", ["sqrt", "exp", "tanh", "negative", "abs", "absolute"])
def test_numpys_unary_functions_act_by_name(name: str) -> None:
    ours = "abs" if name == "absolute" else name
    positive = np.asarray([0.5, 2.0], dtype="bfloat16")
    assert getattr(numpy, name)(positive).tobytes() == getattr(np, ours)(positive).tobytes()


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("bitwise_and", "bitwise_and"), ("bitwise_or", "bitwise_or"), ("bitwise_xor", "bitwise_xor")],
)
def test_numpys_bit_functions_act_by_name(theirs: str, ours: str) -> None:
    assert getattr(numpy, theirs)(N, N).tolist() == getattr(np, ours)(N, N).tolist()


def test_numpys_invert_acts_by_name() -> None:
    assert numpy.invert(N).tolist() == (~N).tolist()


def test_ndarray_operators_defer_to_neuronsim() -> None:
    native = numpy.asarray([0.1, 0.2, 0.3], numpy.float32)
    for found in (native + X, native * X, native < X, native @ X):
        assert isinstance(found, np.Array)
    assert (native + X).tobytes() == (np.asarray(native) + X).tobytes()
    assert (native @ X.astype("float32")).item() == np.matmul(native, X.astype("float32")).item()


def test_matmul_of_numpy_acts_by_name() -> None:
    a = np.asarray([[1.0, 2.0]], dtype="bfloat16")
    assert numpy.matmul(a, a.T).dtype is np.bfloat16


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


@pytest.mark.parametrize("name", ["sum", "max", "sort", "argmax", "transpose", "where"])
def test_numpys_functions_act_by_name(name: str) -> None:
    args = (X > 0, X, Y) if name == "where" else (X,)
    found, expected = getattr(numpy, name)(*args), getattr(np, name)(*args)
    assert isinstance(found, np.Array)
    assert found.dtype is expected.dtype
    assert found.tobytes() == expected.tobytes()


def test_asarray_of_numpy_gives_the_hosts_array() -> None:
    native = numpy.asarray(X)
    assert native.dtype.name == "bfloat16"
    assert numpy.asarray(X, dtype=numpy.float64).tolist() == X.tolist()
    assert numpy.asarray(X).tobytes() == X.tobytes()
    assert numpy.array(X) is not numpy.array(X)
    with pytest.raises(ValueError, match="without a copy"):
        numpy.asarray(X, dtype=numpy.float64, copy=False)


def test_a_copy_is_a_copy() -> None:
    copied = numpy.array(X, copy=True)
    copied[0] = 9
    assert X.tolist()[0] == 1.5


# ---- float64 and complex: the host's (H1) -----------------------------------------------------------


def test_H1_float64_arithmetic_is_numpys() -> None:
    a, b = numpy.array([0.1, 2.0, -3.5]), numpy.array([0.3, 1e-20, 7.0])
    for name in [*BINARY, *COMPARISONS]:
        found = getattr(np, name)(np.asarray(a), np.asarray(b))
        expected = getattr(numpy, name)(a, b)
        assert found.tolist() == expected.tolist()
    for name in ("sqrt", "exp", "tanh", "negative", "abs"):
        assert getattr(np, name)(np.asarray(b)).tolist() == getattr(numpy, name)(b).tolist()


def test_H1_narrow_operands_are_widened() -> None:
    found = X + numpy.array([1e-10, 0.0, 0.0])
    assert found.dtype is np.float64
    assert found.tolist() == [1.5 + 1e-10, -2.25, 4.0]


def test_H1_complex_arithmetic_is_numpys() -> None:
    z = numpy.array([1 + 2j, 3 - 1j], numpy.complex64)
    product = np.asarray(z) * np.asarray(z)
    assert product.dtype is np.complex64
    assert product.tolist() == (z * z).tolist()
    assert abs(np.asarray(z)).tolist() == numpy.abs(z).tolist()


def test_H1_matmul_of_float64_is_numpys() -> None:
    a = numpy.random.default_rng(0).standard_normal((3, 4))
    assert np.matmul(a, a.T).tolist() == (a @ a.T).tolist()
    narrow = np.asarray(a, dtype="bfloat16")
    assert (narrow @ a.T).tolist() == (numpy.asarray(narrow, numpy.float64) @ a.T).tolist()


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
