"""Every function of the standard on bfloat16, float16, tfloat32 and float8 equals the slow twin's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy
import pytest
from narrow_cases import (
    CASES,
    CREATED,
    FUNCTIONS_OF_ONE,
    FUNCTIONS_OF_TWO,
    INTEGERS_ONLY,
    MOVED,
    WITHOUT_CASE,
    X,
    exactly,
    stored,
    wide,
)
from tests.support.parameters import each_of
from tests.support.words import assert_same, of_words

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.reference.elementwise import FLOAT

NARROW = [t for t in DTYPES.values() if t.exponent_bits and t.device and t is not np.float32]


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


@each_of("name", CASES)
def test_equals_the_twin(name: str) -> None:
    for dtype in NARROW:
        case = CASES[name]
        assert_same(case.found(dtype), case.expected(dtype))


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", [t for t in NARROW if t.bits <= 16], ids=str)
def test_E1_every_value_rounds_the_twins_float32(dtype: DType) -> None:
    every = range(0, 1 << dtype.bits, 1 if dtype.bits == 8 else 17)
    x, y = (of_words(w, dtype) for w in (every, numpy.random.default_rng(5).permutation(every)))
    for name in FUNCTIONS_OF_ONE:
        assert_same(getattr(np, name)(x), stored([FLOAT[name](w) for w in wide(x)], dtype))
    for name in FUNCTIONS_OF_TWO:
        pairs = zip(wide(x), wide(y), strict=True)
        assert_same(getattr(np, name)(x, y), stored([FLOAT[name](*p) for p in pairs], dtype))


@each_of("name", CASES)
def test_float8_e4m3fn_is_moved_converted_and_put_in_order_not_computed_with(name: str) -> None:
    """Rule F; C6 is the conversion to bool, E10 moves the elements."""
    case, dtype = CASES[name], np.float8_e4m3fn
    if case.rule in (MOVED, CREATED, "C6", "E10"):
        assert_same(case.found(dtype), case.expected(dtype))
        return
    with pytest.raises(UnsupportedType, match="float8_e4m3fn"):
        case.found(dtype)


@pytest.mark.parametrize("dtype", NARROW, ids=lambda t: t.name)
def test_functions_of_integers_refuse_narrow_floats(dtype: DType) -> None:
    for name in WITHOUT_CASE[INTEGERS_ONLY]:
        operands = [X(dtype)] * (1 if name == "bitwise_invert" else 2)
        with pytest.raises(TypeError, match=dtype.name):
            getattr(np, name)(*operands)


@each_of("name", ["add", "multiply", "divide", "subtract"])
def test_C8_a_number_takes_the_arrays_type_before_the_operation(name: str) -> None:
    for dtype, number in itertools.product([*NARROW, np.float32], (0.1, 3, 1 / 3, True)):
        x, rounded = np.asarray([1.25], dtype=dtype), exactly([float(number)], dtype)
        expected = stored([FLOAT[name](*wide(x), *wide(rounded))], dtype)
        assert_same(getattr(np, name)(x, number), expected)


# ---- set_default_dtype -------------------------------------------------------------------------------

DEFAULTS = [np.bfloat16, np.float16, np.tfloat32]
INTEGERS = np.asarray([1, 2, 3])
FLAGS = np.asarray([True, False, True])

# What makes floats without arrays of them: the default type.
OF_NOTHING: dict[str, Callable[[], Any]] = {
    "arange": lambda: np.arange(0.0, 1.0, 0.25),
    "asarray": lambda: np.asarray([0.1, 2]),
    "empty": lambda: np.empty(2),
    "eye": lambda: np.eye(2),
    "fft.fftfreq": lambda: np.fft.fftfreq(4),
    "fft.rfftfreq": lambda: np.fft.rfftfreq(4),
    "frombuffer": lambda: np.frombuffer(bytes(8)),
    "full": lambda: np.full(2, 0.1),
    "geomspace": lambda: np.geomspace(1, 8, 4),
    "hamming": lambda: np.hamming(3),
    "histogram": lambda: np.histogram(INTEGERS)[1],
    "identity": lambda: np.identity(2),
    "kaiser": lambda: np.kaiser(3, 1.5),
    "linspace": lambda: np.linspace(0, 1, 3),
    "logspace": lambda: np.logspace(0, 1, 3),
    "nn.one_hot": lambda: np.nn.one_hot(INTEGERS, 4),
    "ones": lambda: np.ones(2),
    "random": lambda: np.random.default_rng(0).random(2),
    "tri": lambda: np.tri(2),
    "zeros": lambda: np.zeros(2),
}
# Functions of floats that take integers and bool.
OF_INTEGERS: dict[str, Callable[[Any], Any]] = {
    **{n: getattr(np, n) for n in FUNCTIONS_OF_ONE if n not in ("ceil", "floor", "trunc")},
    **{n: getattr(np, n) for n in ("mean", "var", "std", "median", "average", "sinc", "deg2rad")},
    **{f"nn.{n}": getattr(np.nn, n) for n in ("softmax", "gelu", "silu", "sigmoid", "layer_norm")},
    "divide": lambda x: x / 2,
    "divide by a float": lambda x: x / 0.5,
    "multiply by a float": lambda x: x * 0.5,
    "hypot": lambda x: np.hypot(x, x),
    "atan2": lambda x: np.atan2(x, x),
    "logaddexp": lambda x: np.logaddexp(x, x),
    "interp": lambda x: np.interp(x, x, x),
    "percentile": lambda x: np.percentile(x, 30),
    "linalg.vector_norm": lambda x: np.linalg.vector_norm(x),
}


@pytest.fixture(params=DEFAULTS, ids=lambda t: t.name)
def default(request: pytest.FixtureRequest, restored_default: None) -> DType:
    np.set_default_dtype(request.param)
    found: DType = request.param
    return found


def test_creation_functions_give_the_default_type(default: DType) -> None:
    assert {n: call().dtype.name for n, call in OF_NOTHING.items()} == dict.fromkeys(
        OF_NOTHING, default.name
    )
    assert np.asarray([1, 2]).dtype is np.arange(3).dtype is np.full(2, 7).dtype is np.int64
    assert np.asarray(1j).dtype is np.fft.fft(INTEGERS).dtype is np.complex64
    assert np.asarray(numpy.zeros(1)).dtype is np.float64
    assert np.default_dtype() is default
    with pytest.raises(InvalidArgument, match="int8"):
        np.set_default_dtype("int8")


@pytest.mark.parametrize("x", [INTEGERS, FLAGS], ids=["int64", "bool"])
def test_functions_of_integers_give_the_default_type(default: DType, x: np.Array) -> None:
    found = {n: call(x).dtype.name for n, call in OF_INTEGERS.items()}
    assert found == dict.fromkeys(OF_INTEGERS, default.name)
    for call in (np.sum, np.prod, np.cumulative_sum):
        assert call(x).dtype is np.int64


def test_integers_are_rounded_to_the_default_type_before_the_function(default: DType) -> None:
    """E1 on what C1 gives; the function of the integer itself is another number."""
    large = [70001, 12345, 4099, 257]
    given = exactly(list(map(float, large)), default)
    assert_same(np.asarray(large) * 1.0, given)
    for name in ("sqrt", "log", "cbrt"):
        found = getattr(np, name)(np.asarray(large))
        assert_same(found, stored([FLOAT[name](w) for w in wide(given)], default))
    line_of_thirds = [Fraction(i, 3) for i in range(4)]
    assert_same(np.linspace(0, 1, 4), exactly(line_of_thirds, default))
    assert_same(np.asarray(0.1)[None], exactly([0.1], default))


def test_a_wrong_last_bit_or_type_is_found() -> None:
    """The control."""
    x = np.asarray([1.0, 2.0], "bfloat16")
    for other in (np.nextafter(x, x + 1), x.astype("float32"), x[None], numpy.ones(2)):
        with pytest.raises(AssertionError):
            assert_same(other, x)
