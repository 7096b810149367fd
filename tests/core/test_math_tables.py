"""The constants and polynomials behind rule E3: the script gives the file, the stated errors hold, and
the values in float64 are within the bound on which the rounding test relies.
"""

from __future__ import annotations

import contextlib
import ctypes
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import cache, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuronsim import _core, processor
from neuronsim.reference.functions import ONE_VARIABLE as TWIN
from neuronsim.reference.intervals import Interval, Undecided
from tests.core.screening import compiler
from tests.support.places import ROOT

mp = pytest.importorskip("mpmath").mp.clone()
mp.prec = 250

MATH = ROOT / "csrc" / "functions" / "fast"
TABLES = (MATH / "tables.h").read_text()
FUNCTIONS = [name for name, _, kind in _core.OPS if kind == "function"]
Real = Any  # an mpmath number

pytestmark = pytest.mark.isa_independent


def test_the_script_regenerates_the_file_byte_for_byte() -> None:
    done = subprocess.run(
        [sys.executable, str(MATH / "make_tables.py")], capture_output=True, text=True, check=True
    )
    assert done.stdout == TABLES


# ---- constants -----------------------------------------------------------------------------------


def numbers(name: str) -> list[float]:
    """The values of a constant, row by row."""
    found = re.search(rf" {name}(?:\[\d+\])*(?:\[\d+\])? = (.*?);", TABLES, re.DOTALL)
    assert found is not None, name
    return [float.fromhex(x) for x in re.findall(r"-?0x[0-9a-f.]+p[+-]?\d+", found[1])]


def exactly(values: list[float]) -> Real:
    return mp.fsum(mp.mpf(x) for x in values)


CONSTANTS: dict[str, Callable[[], Real]] = {
    "ln2": lambda: mp.ln(2),
    "log2_e": lambda: mp.log(mp.e, 2),
    "log10_e": lambda: mp.log10(mp.e),
    "log10_2": lambda: mp.log10(2),
    "inverse_pi": lambda: 1 / mp.pi,
    "sqrt_2": lambda: mp.sqrt(2),
    "two_by_sqrt_pi": lambda: 2 / mp.sqrt(mp.pi),
    "inverse_sqrt_2pi": lambda: mp.npdf(0),
    "gelu_tanh_linear": lambda: mp.sqrt(8 / mp.pi),
    "gelu_tanh_cubic": lambda: mp.sqrt(8 / mp.pi) * 44715 / 10**6,
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constant_is_the_nearest_float64(name: str) -> None:
    assert numbers(name) == [float(CONSTANTS[name]())]


def test_entries_are_the_nearest_float64() -> None:
    for name, parts in (("powers_of_two", 16), ("powers_of_two_by_quarters", 4)):
        assert numbers(name) == [float(mp.mpf(2) ** (mp.mpf(j) / parts)) for j in range(parts)]
    assert numbers("log_values") == [float(-mp.ln(c)) for c in numbers("log_inverses")]
    assert numbers("atan_values") == [float(mp.atan(mp.mpf(j) / 8)) for j in range(16)]


def test_erf_is_one_from_the_end_of_its_polynomial_on() -> None:
    (end,), (scale,) = numbers("erf_end"), numbers("erf_scale")
    assert 1 - mp.erf(end) < mp.mpf(2) ** -25 * (1 - mp.mpf(2) ** -10)  # well above the midpoint
    assert abs(end * end * mp.mpf(scale) - 2) < 2.0**-52


def test_constants_of_several_parts() -> None:
    for name, value, error in (
        ("pi_parts", mp.pi, 2**-105),
        ("half_pi_parts", mp.pi / 2, 2**-105),
        ("gelu_sigmoid_parts", mp.mpf("1.702"), 2**-80),
    ):
        assert abs(exactly(numbers(name)) - value) < error
    # Products with numbers of 24 bits are exact.
    for part in [*numbers("pi_parts")[:2], numbers("gelu_sigmoid_parts")[0]]:
        mantissa = int(abs(part).hex().partition(".")[2].partition("p")[0], 16)
        assert mantissa % (1 << 52 - 27) == 0


def test_roots_of_the_derivatives() -> None:
    (silu,), (gelu,) = numbers("silu_dx_root"), numbers("gelu_dx_root")
    slopes = (
        (silu, lambda x: 1 + mp.exp(-x) + x * mp.exp(-x)),
        (gelu, lambda x: mp.ncdf(x) + x * mp.npdf(x)),
    )
    for root, slope in slopes:
        assert slope(mp.mpf(root) - 2.0**-50) * slope(mp.mpf(root) + 2.0**-50) < 0


def test_the_bits_of_one_over_pi() -> None:
    found = re.search(r"inverse_pi_bits\[5\] = {(.*?)}", TABLES)
    assert found is not None
    words = [int(w, 16) for w in found[1].split(",")]
    joined = 0
    for word in words:
        joined = joined << 64 | word
    with mp.workprec(400):
        assert joined == int(mp.floor(mp.ldexp(1 / mp.pi, 319)))


# ---- polynomials ---------------------------------------------------------------------------------


def stated() -> dict[str, float]:
    """Each polynomial's stated relative error, as a power of two."""
    found = re.findall(r"// Relative error 2\^(-[\d.]+)\.\ninline constexpr double (\w+)\[", TABLES)
    return {name: float(power) for power, name in found}


QUARTERS = [(j / 4, (j + 1) / 4) for j in range(16)]
TAILS = [2.0**o * (1 + q / 4) - 1 for o in range(4) for q in range(4)]
# What each polynomial stands for in x, with the function that it enters; and where it is used.
LN2, PI = float(mp.ln(2)), float(mp.pi)
(ERF_SCALE,), (TAIL_MIDDLE,) = numbers("erf_scale"), numbers("tail_middle")


def scaled_tail(a: Real) -> Real:
    """e^(a^2/2) times what of the normal distribution lies below -a."""
    return mp.exp(a * a / 2) * mp.ncdf(-a)


POLYNOMIALS: dict[str, tuple[Callable[[Real], Real], Callable[[Real, Real], Real], float, float]] = {
    "exp_coefficients": (mp.exp, lambda r, p: 1 + r + r * r * p, -LN2 / 32, LN2 / 32),
    "expm1_coefficients": (mp.expm1, lambda r, p: r + r * r * p, -LN2 / 32, LN2 / 32),
    "exp_coefficients_by_quarters": (mp.exp, lambda r, p: 1 + r + r * r * p, -LN2 / 8, LN2 / 8),
    "expm1_coefficients_by_quarters": (mp.expm1, lambda r, p: r + r * r * p, -LN2 / 8, LN2 / 8),
    "log_coefficients": (mp.log1p, lambda r, p: r + r * r * p, -0.029999, 0.029999),
    "sin_coefficients": (mp.sin, lambda x, p: x + x**3 * p, 0.0, PI / 2),
    "atan_coefficients": (mp.atan, lambda t, p: t + t**3 * p, 0.0, 1 / 15),
    "tail_whole_coefficients": (
        lambda t: scaled_tail(TAIL_MIDDLE * (1 + t) / (1 - t)),
        lambda t, p: p / (TAIL_MIDDLE * (1 + t) / (1 - t) + TAIL_MIDDLE),
        -1.0,
        (15 - TAIL_MIDDLE) / (15 + TAIL_MIDDLE),
    ),
    "erf_whole_coefficients": (
        lambda v: mp.erf(mp.sqrt((v + 1) / ERF_SCALE)),
        lambda v, p: mp.sqrt((v + 1) / ERF_SCALE) * p,
        -1 + 2.0**-40,
        1.0,
    ),
}
EVEN = {"sin_coefficients", "atan_coefficients"}


def of_samples(low: float, high: float, seed: int) -> list[Real]:
    drawn = np.random.default_rng(seed).uniform(low, high, 300).tolist()
    return [mp.mpf(x) for x in (low, high, *drawn) if x != 0]


def value(coefficients: list[float], x: Real) -> Real:
    """The polynomial with these coefficients, in ascending powers."""
    return reduce(lambda y, c: y * x + c, reversed(coefficients), mp.mpf(0))


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomial_has_the_stated_error(name: str) -> None:
    function, joined, low, high = POLYNOMIALS[name]
    coefficients = numbers(name)
    worst = mp.mpf(0)
    for x in of_samples(low, high, len(name)):
        p = value(coefficients, x * x if name in EVEN else x)
        worst = max(worst, abs(joined(x, p) / function(x) - 1))
    # Stated to a tenth, of the samples of the script.
    assert float(mp.log(worst, 2)) < stated()[name] + 0.1


@pytest.mark.parametrize(
    ("name", "function", "intervals"),
    [
        ("erf_coefficients", lambda x: mp.erf(x) / x, QUARTERS),
        (
            "tail_coefficients",
            scaled_tail,
            list(zip(TAILS, [*TAILS[1:], 15.0], strict=True)),
        ),
    ],
)
def test_piecewise_polynomial_has_the_stated_error(
    name: str, function: Callable[[Real], Real], intervals: list[tuple[float, float]]
) -> None:
    rows = np.array(numbers(name)).reshape(-1, 16)
    centres = [(low + high) / 2 for low, high in intervals]
    if name == "tail_coefficients":
        assert numbers("tail_centres") == centres
    worst = mp.mpf(0)
    for j, (low, high) in enumerate(intervals):
        coefficients = rows[:, j].tolist()
        for x in of_samples(low, high, j)[:60]:
            worst = max(worst, abs(value(coefficients, x - centres[j]) / function(x) - 1))
    assert float(mp.log(worst, 2)) < stated()[name] + 0.1


def test_stated_errors_are_below_that_of_the_rounding_test() -> None:
    assert set(stated()) == {*POLYNOMIALS, "erf_coefficients", "tail_coefficients"}
    assert max(stated().values()) < -43


# ---- values --------------------------------------------------------------------------------------


LOGARITHMS = ("log", "log2", "log10", "log1p")
OF_LARGE = ("rsqrt", "cbrt", "atan", "asinh", "acosh", *LOGARITHMS)
LIMIT = mp.mpf(2) ** -42  # rounded.h


@cache
def inputs(name: str) -> np.ndarray:
    """Any words, words about 1, multiples of small fractions, at which intervals begin, and the floats
    about multiples of π/2.
    """
    rng = np.random.default_rng([18, FUNCTIONS.index(name)])
    words = rng.integers(0, 1 << 32, 700, np.uint32)
    binades = rng.integers(100, 134, 500).astype(np.uint32) << np.uint32(23)
    words[200:] = words[200:] & np.uint32(0x807FFFFF) | binades
    turns = np.float32(rng.integers(-(1 << 18), 1 << 18, 60) * (PI / 2))
    ends = np.float32(rng.integers(-512, 513, 140) / 32)
    ends = (ends.view(np.uint32) + rng.integers(-1, 2, 140).astype(np.uint32)).view(np.float32)
    small = np.float32(rng.uniform(-20, 20, 100))
    x = np.concatenate([words.view(np.float32), turns, ends, small])
    x[::2] = np.abs(x[::2]) if name in ("rsqrt", "acosh", *LOGARITHMS) else x[::2]
    x = x[np.isfinite(x) & (np.abs(x) >= 2.0**-126)]
    return x[: x.size // 8 * 8]


def exact(name: str, x: float) -> Real:
    """The value of the twin's formula within 10^-20 of it, or 0 for what is beyond float32's range."""
    f, digits = TWIN[name], 40
    argument = Fraction(abs(x) if f.parity else x)
    while digits < 3000:
        with contextlib.suppress(Undecided):
            y = f.formula(Interval.of(argument, digits))
            if max(abs(y.low), abs(y.high)) < Decimal(2) ** -126 or y.low > Decimal(2) ** 128:
                return mp.mpf(0)
            if y.high - y.low <= abs(y.low) * Decimal("1e-20"):
                return (-1 if f.parity == "odd" and x < 0 else 1) * mp.mpf(str(y.low))
        digits *= 2
    raise AssertionError(f"{name} at {x} is not decided")


@cache
def exact_values(name: str) -> list[Real]:
    """The values at the inputs, None where the function has none or float32 neither."""
    found = []
    for x in inputs(name).tolist():
        f = mp.mpf(x)
        low, high = TWIN[name].domain
        outside = (
            (not low < x < high)
            or (name == "erf" and abs(f) > 3.9)  # 1 in float32, by a bound
            or (abs(f) > 2**20 and name not in OF_LARGE)
        )
        y = mp.mpf(0) if outside else exact(name, x)
        found.append(y if mp.mpf(2) ** -126 <= abs(y) < mp.mpf(2) ** 128 else None)
    return found


# Without a fused multiply-add, and with one by tables in memory and in registers.
MARCHES = ["x86-64", "x86-64-v3", "x86-64-v4"]


@pytest.fixture(scope="module", params=MARCHES)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if compiler() is None:
        pytest.skip("no C++ compiler is installed")
    if platform.machine() != "x86_64" or request.param not in processor.available_isas():
        pytest.skip(f"this processor has no {request.param}")
    built = tmp_path_factory.mktemp("values") / "values.so"
    flags = ["-std=c++20", "-O2", "-ffp-contract=off", "-fno-strict-aliasing", "-fno-math-errno"]
    flags += ["-shared", "-fPIC", f"-march={request.param}", f"-I{ROOT / 'csrc'}", "-w"]
    source = str(Path(__file__).with_name("function_values.cpp"))
    subprocess.run([compiler() or "c++", *flags, source, "-o", str(built)], check=True)
    return ctypes.CDLL(str(built))


def values(library: ctypes.CDLL, name: str) -> list[float]:
    x = np.ascontiguousarray(inputs(name))
    y = np.empty(x.size)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, y)]
    library.function_values.restype = ctypes.c_bool
    assert library.function_values(name.encode(), ctypes.c_int64(x.size), *pointers)
    return list(y.tolist())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_value_in_float64_is_within_the_bound_of_the_rounding_test(
    library: ctypes.CDLL, name: str
) -> None:
    pairs = [
        (abs(mp.mpf(y) / exact - 1), x)
        for x, y, exact in zip(
            inputs(name).tolist(), values(library, name), exact_values(name), strict=True
        )
        if exact is not None and y == y
    ]
    worst, where = max(pairs)
    print(f"{name}: 2^{float(mp.log(worst, 2)) if worst else -99:.1f} at {where.hex()}")
    assert worst < LIMIT, where.hex()
    assert len(pairs) > 200
