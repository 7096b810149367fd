"""Special cases of elementwise functions, case by case as the array API standard 2025.12 lists them, of
every float type, by function, operator and in-place operator; complex types by real and imaginary part.
"""

from __future__ import annotations

import cmath
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from tests.support.operators import OPERATORS
from tests.support.parameters import each_of

import neuronsim as np
from neuronsim import dtypes
from neuronsim.dtypes import DTYPES, DType

pytestmark = pytest.mark.isa_independent

FLOATS = [t for t in DTYPES.values() if t.kind == "float" and t is not dtypes.float8_e4m3fn]
COMPLEX = [dtypes.complex64, dtypes.complex128]
inf, nan = math.inf, math.nan
VALUES = (nan, inf, 0.0, 1.0, 0.5, 0.375, 2.0, 3.0, 4.0, 8.0, 1.5, 7.0, 1e-3, 240.0)
SIGNED = (*VALUES, *(-v for v in VALUES))


def is_number(x: float, expected: float) -> bool:
    """Equal, zeros by their sign; any NaN is any other."""
    if math.isnan(expected):
        return math.isnan(x)
    return x == expected and math.copysign(1, x) == math.copysign(1, expected)


def is_integer(x: float) -> bool:
    return math.isfinite(x) and x == math.floor(x)


# What a case says of an operand that is not a number.
CONDITIONS: dict[str, Callable[[float], bool]] = {
    "any": lambda x: True,
    "not_nan": lambda x: not math.isnan(x),
    "infinite": math.isinf,
    "finite": math.isfinite,
    "+finite": lambda x: 0 < x < inf,
    "-finite": lambda x: -inf < x < 0,
    "nonzero": lambda x: math.isfinite(x) and x != 0,
    "zero": lambda x: x == 0,
    "not_zero": lambda x: x != 0,
    "not_1": lambda x: x != 1,
    ">0": lambda x: x > 0,
    "<0": lambda x: x < 0,
    ">1": lambda x: x > 1,
    "<1": lambda x: x < 1,
    "<-1": lambda x: x < -1,
    "|>1|": lambda x: abs(x) > 1,
    "|<1|": lambda x: abs(x) < 1,
    "|1|": lambda x: abs(x) == 1,
    ">0odd": lambda x: x > 0 and is_integer(x) and x % 2 == 1,
    "<0odd": lambda x: x < 0 and is_integer(x) and x % 2 == 1,
    ">0not_odd": lambda x: x > 0 and not (is_integer(x) and x % 2 == 1),
    "<0not_odd": lambda x: x < 0 and not (is_integer(x) and x % 2 == 1),
    "fraction": lambda x: math.isfinite(x) and not is_integer(x),
    "integer": is_integer,
    "half": lambda x: x - math.floor(x) == 0.5 if math.isfinite(x) else False,
    "+sign": lambda x: math.copysign(1, x) == 1,
    "-sign": lambda x: math.copysign(1, x) == -1,
}
PI = {"pi": 1.0, "pi/2": 0.5, "pi/4": 0.25, "3pi/4": 0.75}


def holds(condition: str, x: float) -> bool:
    of_condition = CONDITIONS.get(condition)
    return of_condition(x) if of_condition else is_number(x, float(condition))


# Of a function each operand and the result.
ONE: dict[str, str] = {
    "abs": "nan nan, -0 0, -inf inf, any +sign",
    "acos": "nan nan, >1 nan, <-1 nan, 1 0",
    "acosh": "nan nan, <1 nan, 1 0, inf inf",
    "asin": "nan nan, >1 nan, <-1 nan, 0 0, -0 -0",
    "asinh": "nan nan, 0 0, -0 -0, inf inf, -inf -inf",
    "atan": "nan nan, 0 0, -0 -0, inf pi/2, -inf -pi/2",
    "atanh": "nan nan, <-1 nan, >1 nan, -1 -inf, 1 inf, 0 0, -0 -0",
    "ceil": "integer x1, inf inf, -inf -inf, 0 0, -0 -0, nan nan",
    "cos": "nan nan, zero 1, infinite nan",
    "cosh": "nan nan, zero 1, infinite inf",
    "exp": "nan nan, zero 1, inf inf, -inf 0",
    "expm1": "nan nan, 0 0, -0 -0, inf inf, -inf -1",
    "floor": "integer x1, inf inf, -inf -inf, 0 0, -0 -0, nan nan",
    "isfinite": "infinite false, nan false, finite true",
    "isinf": "infinite true, nan false, finite false",
    "isnan": "nan true, not_nan false",
    "log": "nan nan, <0 nan, zero -inf, 1 0, inf inf",
    "log1p": "nan nan, <-1 nan, -1 -inf, -0 -0, 0 0, inf inf",
    "log2": "nan nan, <0 nan, zero -inf, 1 0, inf inf",
    "log10": "nan nan, <0 nan, zero -inf, 1 0, inf inf",
    "negative": "nan nan, any -x1",
    "positive": "any x1",
    "reciprocal": "nan nan, 0 inf, -0 -inf, inf 0, -inf -0, +finite +sign, -finite -sign",
    "round": "integer x1, inf inf, -inf -inf, 0 0, -0 -0, nan nan, half even",
    "sign": "<0 -1, zero 0, >0 1, nan nan",
    "signbit": "0 false, -0 true, inf false, -inf true, +finite false, -finite true",
    "sin": "nan nan, 0 0, -0 -0, infinite nan",
    "sinh": "nan nan, 0 0, -0 -0, inf inf, -inf -inf",
    "square": "nan nan, infinite inf, zero 0, finite +sign",
    "sqrt": "nan nan, <0 nan, 0 0, -0 -0, inf inf",
    "tan": "nan nan, 0 0, -0 -0, infinite nan",
    "tanh": "nan nan, 0 0, -0 -0, inf 1, -inf -1",
    "trunc": "integer x1, inf inf, -inf -inf, 0 0, -0 -0, nan nan",
}
_NAN = "nan any nan, any nan nan"
_SUM = (
    f"{_NAN}, inf inf inf, -inf -inf -inf, inf finite inf, -inf finite -inf, finite inf inf, "
    "finite -inf -inf, zero nonzero x2, nonzero zero x1"
)
_QUOTIENT = (
    f"{_NAN}, infinite infinite nan, zero zero nan, 0 >0 0, -0 >0 -0, 0 <0 -0, -0 <0 0, >0 0 inf, "
    ">0 -0 -inf, <0 0 -inf, <0 -0 inf, inf +finite inf, inf -finite -inf, -inf +finite -inf, "
    "-inf -finite inf, +finite inf 0, +finite -inf -0, -finite inf -0, -finite -inf 0, "
    "+finite +finite +sign, -finite -finite +sign, +finite -finite -sign, -finite +finite -sign"
)
# Of a function each pair of operands and the result.
TWO: dict[str, str] = {
    "add": f"{_SUM}, inf -inf nan, -inf inf nan, -0 -0 -0, -0 0 0, 0 -0 0, 0 0 0",
    "atan2": (
        f"{_NAN}, >0 zero pi/2, 0 >0 0, 0 0 0, 0 -0 pi, 0 <0 pi, -0 >0 -0, -0 0 -0, -0 -0 -pi, "
        "-0 <0 -pi, <0 zero -pi/2, +finite inf 0, +finite -inf pi, -finite inf -0, -finite -inf -pi, "
        "inf finite pi/2, -inf finite -pi/2, inf inf pi/4, inf -inf 3pi/4, -inf inf -pi/4, "
        "-inf -inf -3pi/4"
    ),
    "copysign": "not_nan <0 -|x1|, not_nan -0 -|x1|, not_nan 0 |x1|, not_nan >0 |x1|",
    "divide": _QUOTIENT,
    "equal": "nan any false, any nan false, inf inf true, -inf -inf true, zero zero true, 1 -1 false",
    "floor_divide": _QUOTIENT,
    "greater": "nan any false, any nan false, inf finite true, zero zero false, -inf finite false",
    "greater_equal": "nan any false, any nan false, inf inf true, zero zero true, -inf finite false",
    "hypot": (
        "infinite any inf, any infinite inf, zero not_nan |x2|, not_nan zero |x1|, finite nan nan, "
        "nan nan nan, nan finite nan"
    ),
    "less": "nan any false, any nan false, -inf finite true, zero zero false, inf finite false",
    "less_equal": "nan any false, any nan false, -inf -inf true, zero zero true, inf finite false",
    "logaddexp": f"{_NAN}, inf not_nan inf, not_nan inf inf",
    "maximum": f"{_NAN}, inf not_nan inf, -inf not_nan x2",
    "minimum": f"{_NAN}, -inf not_nan -inf, inf not_nan x2",
    "multiply": (
        f"{_NAN}, infinite zero nan, zero infinite nan, inf >0 inf, inf <0 -inf, -inf >0 -inf, "
        "-inf <0 inf, >0 inf inf, <0 inf -inf, >0 -inf -inf, <0 -inf inf, +finite +finite +sign, "
        "-finite -finite +sign, +finite -finite -sign, -finite +finite -sign, 0 +finite 0, "
        "0 -finite -0, -0 +finite -0, -0 -finite 0, 0 -0 -0, -0 -0 0"
    ),
    "nextafter": f"{_NAN}, -0 0 0, 0 -0 -0, inf inf inf",
    "not_equal": "nan any true, any nan true, inf -inf true, -inf inf true, zero zero false",
    "pow": (
        "not_1 nan nan, any zero 1, nan not_zero nan, |>1| inf inf, |>1| -inf 0, |1| infinite 1, "
        "1 not_nan 1, |<1| inf 0, |<1| -inf inf, inf >0 inf, inf <0 0, -inf >0odd -inf, "
        "-inf >0not_odd inf, -inf <0odd -0, -inf <0not_odd 0, 0 >0 0, 0 <0 inf, -0 >0odd -0, "
        "-0 >0not_odd 0, -0 <0odd -inf, -0 <0not_odd inf, -finite fraction nan"
    ),
    "remainder": (
        f"{_NAN}, infinite any nan, zero zero nan, 0 >0 0, -0 >0 0, 0 <0 -0, -0 <0 -0, >0 zero nan, "
        "<0 zero nan, +finite inf x1, +finite -inf x2, -finite inf x2, -finite -inf x1, "
        "finite +finite +sign, finite -finite -sign"
    ),
    "subtract": (
        f"{_NAN}, inf inf nan, -inf -inf nan, inf -inf inf, -inf inf -inf, inf finite inf, "
        "-inf finite -inf, finite inf -inf, finite -inf inf, -0 0 -0, -0 -0 0, 0 -0 0, 0 0 0, "
        "zero nonzero -x2, nonzero zero x1"
    ),
}
# Of functions that the standard has not.
NUMPYS_ONE: dict[str, str] = {
    "cbrt": "nan nan, inf inf, -inf -inf, -0 -0, 8 2",
    "exp2": "nan nan, inf inf, -inf 0, 3 8",
    "rsqrt": "nan nan, 0 inf, -0 -inf, inf 0, -1 nan, 4 0.5",
    "deg2rad": "nan nan, -0 -0, inf inf",
    "rad2deg": "nan nan, -0 -0, inf inf",
    "fabs": "nan nan, -0 0, -inf inf",
    "sinc": "nan nan, 0 1, -0 1",
    "spacing": "nan nan, inf nan, -inf nan",
    "rint": "nan nan, inf inf, -0.5 -0",
    "isposinf": "inf true, -inf false, nan false, 1 false",
    "isneginf": "inf false, -inf true, nan false, -1 false",
    "logical_not": "0 true, -0 true, nan false, inf false, 0.5 false",
    "isreal": "1 true, nan true",
    "iscomplex": "1 false",
}
NUMPYS_TWO: dict[str, str] = {
    "fmax": "nan 1 1, nan nan nan, -0 0 0, 1 nan 1",
    "fmin": "nan 1 1, nan nan nan, 1 nan 1, 1 inf 1",
    "fmod": "inf 1 nan, -0 1 -0, -3 2 -1, -3 inf -3, 1 0 nan",
    "heaviside": "nan 1 nan, -0 0.5 0.5, 0 nan nan, -1 nan 0, inf nan 1",
    "float_power": "-0 3 -0, nan 0 1",
}
OF_FUNCTION: dict[str, tuple[Any, ...]] = {
    **{o.function: (o.plain, o.in_place) for o in OPERATORS.values()},
    "abs": (operator.abs,),
    "negative": (operator.neg,),
    "positive": (operator.pos,),
}


def cases(text: str) -> list[list[str]]:
    return [case.split() for case in text.split(", ")]


def is_result(said: str, found: float, operands: tuple[float, ...], dtype: DType) -> bool:
    """Whether a result is what a case says."""
    plain = {"x1": operands[0], "-x1": -operands[0], "x2": operands[-1], "-x2": -operands[-1]}
    sizes = {"|x1|": abs(operands[0]), "-|x1|": -abs(operands[0]), "|x2|": abs(operands[-1])}
    even = math.copysign(round(operands[0]), operands[0]) if said == "even" else nan
    exact = {**plain, **sizes, "even": even}
    if said in ("true", "false"):
        return found is (said == "true")
    if said.lstrip("-") in PI:
        size = math.pi * PI[said.lstrip("-")] * (-1 if said[0] == "-" else 1)
        return math.isclose(found, size, rel_tol=2.0 ** -(dtype.mantissa_bits + 1))
    if said in exact:
        return is_number(found, exact[said])
    return holds(said, found) or (said in ("+sign", "-sign") and math.isnan(found))


def check(name: str, text: str, function: Any, dtype: DType, arity: int) -> int:
    """Every case of a function over all operands that it speaks of; how many there were."""
    values = [float(v) for v in dict.fromkeys(map(repr, np.asarray(SIGNED, dtype).tolist()))]
    pairs = list(itertools.product(range(len(values)), repeat=arity))
    operands = [np.asarray([values[i] for i in column], dtype) for column in zip(*pairs, strict=True)]
    found = function(*operands)
    is_truth = {"true", "false"} & {case[-1] for case in cases(text)}
    assert found.dtype is (np.bool if is_truth else dtype), name
    results = dict(zip(pairs, found.tolist(), strict=True))
    compared = 0
    for *conditions, said in cases(text):
        found_by = [[i for i, x in enumerate(values) if holds(c, x)] for c in conditions]
        for places in itertools.product(*found_by):
            pair = tuple(values[i] for i in places)
            assert is_result(said, results[places], pair, dtype), (name, dtype.name, conditions, pair)
        assert all(found_by), (name, conditions)
        compared += math.prod(map(len, found_by))
    return compared


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_special_cases_of_real_types(dtype: DType) -> None:
    for arity, table in ((1, ONE | NUMPYS_ONE), (2, TWO | NUMPYS_TWO)):
        for name, text in table.items():
            check(name, text, getattr(np, name), dtype, arity)
            for operation in OF_FUNCTION.get(name, ()):
                if operation is not None:
                    check(name, text, operation, dtype, arity)


def test_the_table_has_every_function_with_special_cases() -> None:
    strict = pytest.importorskip("array_api_strict")
    module = strict._elementwise_functions
    functions = vars(module).items()
    listed = {n for n, f in functions if hasattr(f, "__module__") and f.__module__ == module.__name__}
    without = {"clip", "conj", "imag", "real"}  # clip has its own test, the others have none
    public = {n for n in listed if not n.startswith(("_", "bitwise_", "logical_"))}
    assert public - without == {*ONE, *TWO}


def sign_bits(x: np.Array) -> list[bool]:
    width = x.dtype.itemsize
    words = numpy.ascontiguousarray(x.bits.data).view(f"u{width}")
    return [bool(w >> (8 * width - 1)) for w in words.tolist()]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_signs_of_nan(dtype: DType) -> None:
    x = np.asarray([nan, nan, 2.0, -2.0, inf, -0.0], dtype)
    for sign, expected in ((-1.0, True), (1.0, False), (-0.0, True), (0.0, False), (-inf, True)):
        found = np.copysign(x, np.asarray(sign, dtype))
        assert sign_bits(found) == [expected] * 6
        assert np.isnan(found).tolist() == np.isnan(x).tolist()
        assert np.signbit(found).tolist() == [expected] * 6
        # a NaN has a sign as the second operand too
        again = np.copysign(np.asarray([1.0, -1.0], dtype), found[:2])
        assert sign_bits(again) == [expected] * 2


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_clip_propagates_nan(dtype: DType) -> None:
    x = np.asarray([nan, 0.0, 2.0], dtype)
    assert numpy.isnan(np.clip(x, -1.0, 1.0).tolist()).tolist() == [True, False, False]
    bound = np.asarray([0.0, nan, 1.0], dtype)
    for low, high in ((bound, None), (None, bound), (bound, bound)):
        assert numpy.isnan(np.clip(x, low, high).tolist()).tolist() == [True, True, False]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_special_values_of_statistics(dtype: DType) -> None:
    nothing = np.asarray([], dtype)
    assert [np.sum(nothing).item(), np.prod(nothing).item()] == [0, 1]
    assert all(math.isnan(f(nothing).item()) for f in (np.mean, np.std, np.var))
    x = np.asarray([[1.0, nan], [inf, 2.0]], dtype)
    for function in (np.max, np.min, np.mean, np.prod, np.sum, np.std, np.var):
        assert math.isnan(function(x).item())
        assert math.isnan(function(x, axis=1).tolist()[0])


# Of a function of complex numbers the real and imaginary part of the operand, and of the result; `~` is
# either sign, `cis` the signs and sizes of infinity or zero times cos(b) + sin(b)j.
PARTS: dict[str, str] = {
    "abs": (
        "infinite any inf, any infinite inf, zero any |x2|, any zero |x1|, nan finite nan, "
        "finite nan nan, nan nan nan"
    ),
    "acos": (
        "zero 0 pi/2 -0, zero nan pi/2 nan, finite inf pi/2 -inf, nonzero nan nan nan, "
        "-inf +finite pi -inf, inf +finite 0 -inf, -inf inf 3pi/4 -inf, inf inf pi/4 -inf, "
        "infinite nan nan ~inf, nan finite nan nan, nan inf nan -inf, nan nan nan nan"
    ),
    "acosh": (
        "zero 0 0 pi/2, finite inf inf pi/2, nonzero nan nan nan, 0 nan nan ~pi/2, "
        "-inf +finite inf pi, inf +finite inf 0, -inf inf inf 3pi/4, inf inf inf pi/4, "
        "infinite nan inf nan, nan finite nan nan, nan inf inf nan, nan nan nan nan"
    ),
    "asinh": (
        "0 0 0 0, +finite inf inf pi/2, finite nan nan nan, inf +finite inf 0, inf inf inf pi/4, "
        "nan 0 nan 0, nan nonzero nan nan, nan inf ~inf nan, nan nan nan nan"
    ),
    "atanh": (
        "0 0 0 0, 0 nan 0 nan, 1 0 inf 0, +finite inf 0 pi/2, nonzero nan nan nan, inf +finite 0 pi/2, "
        "inf inf 0 pi/2, inf nan 0 nan, nan finite nan nan, nan inf ~0 pi/2, nan nan nan nan"
    ),
    "cosh": (
        "0 0 1 0, 0 inf nan ~0, 0 nan nan ~0, nonzero inf nan nan, nonzero nan nan nan, inf 0 inf 0, "
        "inf nonzero inf cis, inf inf ~inf nan, inf nan inf nan, nan zero nan ~0, nan nonzero nan nan, "
        "nan nan nan nan"
    ),
    "exp": (
        "zero 0 1 0, finite inf nan nan, finite nan nan nan, inf 0 inf 0, -inf finite 0 cis, "
        "inf nonzero inf cis, -inf inf ~0 ~0, inf inf ~inf nan, -inf nan ~0 ~0, inf nan ~inf nan, "
        "nan 0 nan 0, nan not_zero nan nan, nan nan nan nan"
    ),
    "expm1": (
        "zero 0 0 0, finite inf nan nan, finite nan nan nan, inf 0 inf 0, -inf finite -1 cis, "
        "inf nonzero inf cis, -inf inf -1 ~0, inf inf ~inf nan, -inf nan -1 ~0, inf nan ~inf nan, "
        "nan 0 nan 0, nan not_zero nan nan, nan nan nan nan"
    ),
    "isfinite": "nan any false, any nan false, infinite any false, any infinite false, 0 finite true",
    "isinf": "infinite any true, any infinite true, finite finite false, nan nan false, 1 nan false",
    "isnan": "nan any true, any nan true, not_nan not_nan false",
    "log": (
        "-0 0 -inf pi, 0 0 -inf 0, finite inf inf pi/2, finite nan nan nan, -inf +finite inf pi, "
        "inf +finite inf 0, -inf inf inf 3pi/4, inf inf inf pi/4, infinite nan inf nan, "
        "nan finite nan nan, nan inf inf nan, nan nan nan nan"
    ),
    "log1p": (
        "-1 0 -inf 0, finite inf inf pi/2, finite nan nan nan, -inf +finite inf pi, inf +finite inf 0, "
        "-inf inf inf 3pi/4, inf inf inf pi/4, infinite nan inf nan, nan finite nan nan, "
        "nan inf inf nan, nan nan nan nan"
    ),
    "reciprocal": "nan nan nan nan",
    "sign": "zero zero 0 0, nan any nan nan, any nan nan nan",
    "sinh": (
        "0 0 0 0, 0 inf ~0 nan, 0 nan ~0 nan, +finite inf nan nan, +finite nan nan nan, inf 0 inf 0, "
        "inf +finite inf cis, inf inf ~inf nan, inf nan ~inf nan, nan 0 nan 0, nan nonzero nan nan, "
        "nan nan nan nan"
    ),
    "square": "nan nan nan nan",
    "sqrt": (
        "zero 0 0 0, any inf inf inf, finite nan nan nan, -inf +finite 0 inf, inf +finite inf 0, "
        "-inf nan nan ~inf, inf nan inf nan, nan finite nan nan, nan nan nan nan"
    ),
    # Of (0, infinity) and (0, NaN) the standard allows what older C libraries have.
    "tanh": (
        "0 0 0 0, nonzero inf nan nan, 0 inf 0 nan, nonzero nan nan nan, 0 nan 0 nan, inf +finite 1 0, "
        "inf inf 1 ~0, inf nan 1 ~0, nan 0 nan 0, nan nonzero nan nan, nan nan nan nan"
    ),
}
# A function by another one of the operand times j: f(z) = -j g(jz), or g(jz).
TURNED = {"asin": "asinh", "atan": "atanh", "sin": "sinh", "tan": "tanh", "cos": "cosh"}


def is_part(said: str, found: float, b: float, size: float, turn: Callable[[float], float]) -> bool:
    if said[0] == "~":
        return is_result(said[1:], abs(found), (b,), dtypes.float32)
    if said == "cis":
        return is_number(found, size * turn(b))
    return is_result(said, found, (b,), dtypes.float32)


@each_of("dtype", COMPLEX, ids=lambda t: t.name)
@each_of("name", PARTS)
def test_H1_special_cases_of_complex_types(name: str, dtype: DType) -> None:
    x = complex_operands(dtype)
    operands, results = x.tolist(), getattr(np, name)(x).tolist()
    for first, second, *said in cases(PARTS[name]):
        held = 0
        for z, found in zip(operands, results, strict=True):
            if not (holds(first, z.real) and holds(second, z.imag)):
                continue
            held += 1
            if len(said) == 1:
                assert is_result(said[0], found, (z.real, z.imag), dtype), (name, z, found)
                continue
            size = inf if z.real == inf else 0.0
            turned = "cis" in said
            real = "cis" if turned and said[0] != "-1" else said[0]
            assert is_part(real, found.real, z.imag, size, math.cos), (name, z, found, said)
            assert is_part(said[1], found.imag, z.imag, size, math.sin), (name, z, found, said)
        assert held, (name, first, second)


def complex_operands(dtype: DType) -> np.Array:
    return np.asarray([complex(a, b) for a, b in itertools.product(SIGNED, SIGNED)], dtype)


def is_same(a: complex, b: complex, *, is_near: bool = False, any_zero_sign: bool = False) -> bool:
    """Whether numbers are equal by the signs of zeros, any NaN being any other; near: to 6 digits."""

    def is_same_part(v: float, w: float) -> bool:
        if any_zero_sign and v == w == 0:
            return True
        return is_number(v, w) or (is_near and v != w and math.isclose(v, w, rel_tol=1e-6))

    return is_same_part(a.real, b.real) and is_same_part(a.imag, b.imag)


def turned_by_j(z: complex) -> complex:
    return complex(-z.imag, z.real)


def negative(z: complex) -> complex:
    return complex(-z.real, -z.imag)


# Functions of which f(-z) = -f(z), and f(z).
ODD, EVEN = ("asinh", "atanh", "sinh", "tanh", "asin", "atan", "sin", "tan"), ("cosh", "cos")


@pytest.mark.parametrize("dtype", COMPLEX, ids=lambda t: t.name)
def test_H1_complex_functions_are_symmetric(dtype: DType) -> None:
    """To the last bit, as the standard's notes ask."""
    z = complex_operands(dtype)
    for name in (*PARTS, *TURNED, "log2", "log10", "rsqrt", "sigmoid"):
        if name in ("abs", "sign", "square") or name.startswith("is"):
            continue
        function = getattr(np, name, None) or getattr(np.nn, name)
        results = function(z).tolist()
        for own, other in zip(function(np.conj(z)).tolist(), results, strict=True):
            assert is_same(own, other.conjugate()), (name, own, other)
        assert all(cmath.isnan(v) for v in function(np.asarray([complex(nan, nan)], dtype)).tolist())
        for own, other in zip(function(-z).tolist(), results, strict=True):
            assert name not in ODD or is_same(own, negative(other)), (name, own, other)
            assert name not in EVEN or is_same(own, other), (name, own, other)


@pytest.mark.parametrize("dtype", COMPLEX, ids=lambda t: t.name)
def test_H1_circular_functions_are_hyperbolic_ones_turned(dtype: DType) -> None:
    """`sin` has the special cases of -1j * sinh(x * 1j), `cos` those of cosh(x * 1j), and so on; a zero
    beside NaN is of no certain sign.
    """
    z = complex_operands(dtype)
    turned = np.asarray([turned_by_j(v) for v in z.tolist()], dtype)
    for name, other in TURNED.items():
        for own, w in zip(
            getattr(np, name)(z).tolist(), getattr(np, other)(turned).tolist(), strict=True
        ):
            expected = w if name == "cos" else complex(w.imag, -w.real)
            assert is_same(own, expected, is_near=True, any_zero_sign=cmath.isnan(w)), (name, own, w)
    for name, base in (("log2", 2.0), ("log10", 10.0)):
        for own, w in zip(getattr(np, name)(z).tolist(), np.log(z).tolist(), strict=True):
            expected = complex(w.real / math.log(base), w.imag / math.log(base))
            assert is_same(own, expected, is_near=True), (name, own, w)


@pytest.mark.parametrize("dtype", COMPLEX, ids=lambda t: t.name)
def test_H1_complex_arithmetic_is_that_of_the_parts(dtype: DType) -> None:
    """The special cases of real numbers apply to each part, those of products to finite numbers."""
    few = [
        complex(a, b) for a, b in itertools.product((nan, inf, -inf, 0.0, -0.0, 1.0, -2.0), repeat=2)
    ]
    pairs = list(itertools.product(few, repeat=2))
    x, y = (np.asarray(column, dtype) for column in zip(*pairs, strict=True))
    results = {n: getattr(np, n)(x, y).tolist() for n in ("add", "subtract", "multiply", "divide")}
    truths = [np.equal(x, y).tolist(), np.not_equal(x, y).tolist()]
    for i, (v, w) in enumerate(pairs):
        assert is_same(results["add"][i], complex(v.real + w.real, v.imag + w.imag)), (v, w)
        assert is_same(results["subtract"][i], complex(v.real - w.real, v.imag - w.imag)), (v, w)
        is_equal = v.real == w.real and v.imag == w.imag
        assert [t[i] for t in truths] == [is_equal, not is_equal], (v, w)
        if cmath.isfinite(v) and cmath.isfinite(w):
            product = complex(v.real * w.real - v.imag * w.imag, v.real * w.imag + v.imag * w.real)
            assert is_same(results["multiply"][i], product), (v, w)
            assert not w or is_same(results["divide"][i], v / w, is_near=True, any_zero_sign=True), (
                v,
                w,
            )
    neither = np.asarray([complex(nan, nan)], dtype)
    for function in (np.multiply, np.divide):
        found = function(neither, neither).item()
        assert is_same(found, complex(nan, nan))
    z = complex_operands(dtype)
    for name, part in (("negative", operator.neg), ("positive", operator.pos), ("round", round_part)):
        for own, v in zip(getattr(np, name)(z).tolist(), z.tolist(), strict=True):
            assert is_same(own, complex(part(v.real), part(v.imag))), (name, own, v)
    for own, v in zip(np.conj(z).tolist(), z.tolist(), strict=True):
        assert is_same(own, complex(v.real, -v.imag))
    for own, v in zip(np.square(z).tolist(), (z * z).tolist(), strict=True):
        assert is_same(own, v), (own, v)
    with numpy.errstate(all="ignore"):
        theirs = numpy.reciprocal(numpy.asarray(z)).tolist()
    for own, v, x in zip(np.reciprocal(z).tolist(), theirs, z.tolist(), strict=True):
        assert is_same(own, v if x else complex(inf, nan)), (x, own, v)


def round_part(x: float) -> float:
    return math.copysign(round(x), x) if math.isfinite(x) else x


def test_a_wrong_special_case_is_found() -> None:
    """The control: a zero of the wrong sign, a NaN that is lost, a case that nothing meets."""
    for name, wrong in (("negative", "any x1"), ("maximum", "nan any x2"), ("sqrt", "-0 0")):
        with pytest.raises(AssertionError):
            check(name, wrong, getattr(np, name), dtypes.float32, 1 + (name == "maximum"))
    with pytest.raises(AssertionError):
        check("abs", "<1 +sign", lambda x: x, dtypes.float32, 1)
    assert check("abs", ONE["abs"], np.abs, dtypes.float32, 1) > 20
