"""Rules E1 and E2 on many pairs: all of every float8 type, and up to 10^9 random ones of the others.

The independent path uses nothing of the core: a table that the twin decoded gives float64, the
operation is exact or correctly decided there, NumPy rounds to float32, and a search among the
format's midpoints rounds to the format.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from neuronsim.reference import formats
from tests.support.draws import random_words
from tests.support.evaluation import evaluate
from tests.support.parameters import each_of
from tests.support.processors import every_processor
from tests.support.words import FLOAT8, NARROW, Words, pairs_of, pairs_of_bytes, word_type

COMPARISONS = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
ARITHMETIC = ["add", "subtract", "multiply", "divide", "maximum", "minimum"]
DIVISIONS = ["fmod", "remainder", "floor_divide"]
INTEGER = [*ARITHMETIC, *DIVISIONS, "bitwise_and", "bitwise_or", "bitwise_xor", *COMPARISONS]
FLOAT_CASES = [(t, n) for t in ("float32", "bfloat16", "float16", "tfloat32") for n in ARITHMETIC]
INTEGER_CASES = [(t, n) for t in ("int32", "int64", "uint32", "uint64") for n in INTEGER]
ALL_PAIRS = int(os.environ.get("NEURONSIM_TEST_PAIRS", 10**9))  # of all FLOAT_CASES together
CHUNK = 1 << 22


class Table(NamedTuple):
    """A format's encodings without the sign, decoded; and from where on the next one is nearer."""

    values: np.ndarray
    limits: np.ndarray
    shift: int
    word: np.dtype


@cache
def table(type_name: str) -> Table:
    f = formats.FORMATS[type_name]
    count = (f.sign_bit >> f.shift) - (1 << f.mantissa_bits)  # the finite ones
    if type_name == "tfloat32":
        # Counting from any encoding gives float32's own values; decoding 2^18 of them takes seconds.
        checked = np.arange(0, count, 251)
        values = (np.arange(count, dtype=np.uint32) << np.uint32(f.shift)).view(np.float32)
        values = values.astype(np.float64)
        decoded = [float(formats.decode(type_name, int(i) << f.shift).magnitude) for i in checked]
        assert values[checked].tolist() == decoded
    else:
        values = np.array([float(formats.decode(type_name, i).magnitude) for i in range(count)])
    following = np.append(values[1:], 2 * values[-1] - values[-2])  # beyond the largest: C3
    midpoints = (values + following) / 2
    # A tie goes to the even encoding: an odd one gives way at the midpoint, an even one just after.
    odd = np.arange(count) % 2 == 1
    limits = np.where(odd, midpoints, np.nextafter(midpoints, np.inf))
    return Table(values, limits, f.shift, word_type(type_name))


def decode(type_name: str, words: Words) -> np.ndarray:
    """The values as float64."""
    if type_name == "float32":
        return words.view(np.float32).astype(np.float64)
    t = table(type_name)
    f = formats.FORMATS[type_name]
    field = (words & t.word.type(f.sign_bit - 1)) >> t.word.type(t.shift)
    infinity = len(t.values)
    known = np.append(t.values, np.inf)
    magnitude = np.where(field > infinity, np.nan, known[np.minimum(field, infinity)])
    return np.copysign(magnitude, np.where(words & t.word.type(f.sign_bit), -1.0, 1.0))


def encode(type_name: str, x: np.ndarray) -> Words:
    """Float64 rounded once to float32 and once to the format (E1), a NaN canonical (E6)."""
    f = formats.FORMATS[type_name]
    with np.errstate(all="ignore"):
        single = x.astype(np.float32)
    if type_name == "float32":
        return np.where(np.isnan(single), np.uint32(f.nan_bits), single.view(np.uint32))
    t = table(type_name)
    magnitude = np.abs(single).astype(np.float64)
    field = np.searchsorted(t.limits, magnitude, side="right").astype(t.word) << t.word.type(t.shift)
    signed = field | np.where(np.signbit(single), t.word.type(f.sign_bit), t.word.type(0))
    return np.where(np.isnan(single), t.word.type(f.nan_bits), signed)


def extreme(choose: Callable[..., np.ndarray], prefers_negative: bool) -> Callable[..., np.ndarray]:
    """E7: of two zeros maximum takes +0 and minimum -0; NumPy's own gives NaN for a NaN."""

    def function(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        negative = np.signbit(a) | np.signbit(b)
        if not prefers_negative:
            negative = np.signbit(a) & np.signbit(b)
        return np.where((a == 0) & (b == 0), np.where(negative, -0.0, 0.0), choose(a, b))

    return function


def remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    r = np.fmod(a, b)
    moved = np.where((r != 0) & (np.signbit(r) != np.signbit(b)), r + b, r)
    return np.where(r == 0, np.copysign(r, b), moved)


# On float64 that decode from 24 bits or fewer: sums, products and quotients rounded to 53 bits first
# and then to 24 are those rounded once, because 53 >= 2·24 + 2.
IN_FLOAT64: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": extreme(np.maximum, False),
    "minimum": extreme(np.minimum, True),
    "fmod": np.fmod,
    "remainder": remainder,
    "floor_divide": lambda a, b: np.floor(np.divide(a, b)),
}


def expected_floats(name: str, type_name: str, a: Words, b: Words) -> Words:
    with np.errstate(all="ignore"):
        if type_name == "float32" and name in ("add", "subtract", "multiply", "divide"):
            # A third party: the processor's own binary32.
            found = getattr(np, name)(a.view(np.float32), b.view(np.float32))
            return np.where(np.isnan(found), np.uint32(0x7FC00000), found.view(np.uint32))
        x, y = decode(type_name, a), decode(type_name, b)
        if name in COMPARISONS:
            return np.asarray(getattr(np, name)(x, y), np.uint8)
        return encode(type_name, IN_FLOAT64[name](x, y))


# ---- the path itself -----------------------------------------------------------------------------


@pytest.mark.parametrize("type_name", NARROW)
def test_path_C2_rounds_as_the_twin(type_name: str) -> None:
    rng = np.random.default_rng(61)
    t = table(type_name)
    close = rng.integers(0, len(t.limits), 700)
    limits = t.limits[close].astype(np.float32)
    near = [limits, *(np.nextafter(limits, np.float32(to)) for to in (0, np.inf))]
    words = np.concatenate([random_words(rng, "float32", 1000), *(x.view(np.uint32) for x in near)])
    x = words.view(np.float32)
    expected = [formats.convert("float32", type_name, w) for w in words.tolist()]
    quiet = np.where(np.isnan(x), formats.FORMATS[type_name].nan_bits, np.array(expected))
    with np.errstate(invalid="ignore"):  # signalling NaN
        wide = x.astype(np.float64)
    assert np.array_equal(encode(type_name, wide), quiet)


@pytest.mark.parametrize("type_name", NARROW)
def test_path_F_decodes_and_encodes_every_value_to_itself(type_name: str) -> None:
    t, f = table(type_name), formats.FORMATS[type_name]
    words = np.arange(2 * (f.sign_bit >> f.shift), dtype=np.uint64).astype(t.word) << t.word.type(
        t.shift
    )
    x = decode(type_name, words)
    kept = ~np.isnan(x)
    assert kept.sum() == 2 * (len(t.values) + 1)
    assert np.array_equal(encode(type_name, x[kept]), words[kept])


# ---- every pair of float8 ------------------------------------------------------------------------


@cache
def expected_of_every_pair(name: str, type_name: str) -> Words:
    return expected_floats(name, type_name, *pairs_of_bytes())


@pytest.mark.parametrize("type_name", FLOAT8)
def test_every_pair_of_float8_E1_E2_E7_E9(isa: str, type_name: str) -> None:
    a, b = pairs_of_bytes()
    for name in [*ARITHMETIC, *DIVISIONS, *COMPARISONS]:
        ours = evaluate(name, (type_name, a), (type_name, b))
        assert np.array_equal(ours, expected_of_every_pair(name, type_name))


def test_every_pair_E9_of_float8_has_a_decided_floor() -> None:
    """No float64 quotient is rounded up to an integer, so that np.floor of it is right."""
    for type_name in FLOAT8:
        values = table(type_name).values[1:]
        a, b = pairs_of(values, values)
        unit = values[0]
        whole = [int(v / unit) for v in values.tolist()]  # exact: multiples of the smallest
        floors = [x // y for y in whole for x in whole]
        assert np.floor(a / b).tolist() == floors


# ---- random pairs --------------------------------------------------------------------------------


def draw(rng: np.random.Generator, type_name: str, n: int) -> Words:
    """Half of any exponent, three eighths of close ones, the rest with zeros, extremes and NaN."""
    near, special = 3 * n // 8, n // 8
    sizes = {"any": n - near - special, "near": near, "special": special}
    return np.concatenate([random_words(rng, type_name, size, mode) for mode, size in sizes.items()])


def check(name: str, type_name: str, a: Words, b: Words, expected: Words) -> None:
    """Our result on every instruction set is the expected one."""
    for where in every_processor((1,)):
        ours = evaluate(name, (type_name, a), (type_name, b))
        wrong = np.flatnonzero(ours != expected)
        shown = [tuple(hex(int(v[i])) for v in (a, b, ours, expected)) for i in wrong[:5]]
        assert shown == [], f"{len(wrong)} of {len(a)} wrong on {where}"


def check_random_floats(type_name: str, name: str, count: int) -> None:
    rng = np.random.default_rng([62, FLOAT_CASES.index((type_name, name))])
    while count > 0:
        n = min(count, CHUNK)
        a, b = draw(rng, type_name, n), draw(rng, type_name, n)
        check(name, type_name, a, b, expected_floats(name, type_name, a, b))
        count -= n


@each_of(("type_name", "name"), FLOAT_CASES)
def test_random_pairs_E2(restored_processor: None, type_name: str, name: str) -> None:
    count = min(1 << 20, ALL_PAIRS // len(FLOAT_CASES))
    check_random_floats(type_name, name, count)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("type_name", "name"), FLOAT_CASES)
def test_random_pairs_E2_10_to_9(restored_processor: None, type_name: str, name: str) -> None:
    """10^9 pairs over all cases; the variable NEURONSIM_TEST_PAIRS gives another number."""
    count = -(-ALL_PAIRS // len(FLOAT_CASES))
    check_random_floats(type_name, name, count)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide"])
def test_path_E2_in_float64_equals_the_processors_float32(name: str) -> None:
    """The double rounding is innocuous: both of the independent paths agree."""
    rng = np.random.default_rng(63)
    a, b = draw(rng, "float32", 1 << 19), draw(rng, "float32", 1 << 19)
    with np.errstate(all="ignore"):
        wide = encode("float32", IN_FLOAT64[name](decode("float32", a), decode("float32", b)))
    assert np.array_equal(expected_floats(name, "float32", a, b), wide)


# ---- integers ------------------------------------------------------------------------------------


def truncated(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """NumPy's floor division one up where it is inexact and negative; E8's value for a zero divisor."""
    inexact = (np.fmod(x, y) != 0) & ((x < 0) != (y < 0))
    return np.where(y == 0, x.dtype.type(0) - x.dtype.type(1), np.floor_divide(x, y) + inexact)


def expected_integers(name: str, type_name: str, a: Words, b: Words) -> Words:
    x, y = a.view(type_name), b.view(type_name)
    with np.errstate(all="ignore"):
        if name in COMPARISONS:
            return np.asarray(getattr(np, name)(x, y), np.uint8)
        if name == "divide":
            found = truncated(x, y)
        elif name == "fmod":
            found = np.where(y == 0, x, np.fmod(x, y))
        else:
            found = getattr(np, name)(x, y)
    return np.asarray(found, type_name).view(a.dtype)


@each_of(("type_name", "name"), INTEGER_CASES)
def test_random_pairs_E8_of_integers_equal_numpys(
    restored_processor: None, type_name: str, name: str
) -> None:
    rng = np.random.default_rng([64, INTEGER_CASES.index((type_name, name))])
    n = min(1 << 18, ALL_PAIRS)
    a, b = random_words(rng, type_name, n), random_words(rng, type_name, n)
    info = np.iinfo(type_name)
    small = np.array([0, 1, 2, 3, 10, info.max, info.min, info.max - 1], type_name)
    edges = np.concatenate([small, -small]).view(a.dtype)
    b[: n // 2] >>= rng.integers(0, info.bits, n // 2).astype(a.dtype)  # divisors of any length
    for x in (a, b):
        where = rng.integers(0, n, n // 8)
        x[where] = edges[rng.integers(0, len(edges), n // 8)]
    check(name, type_name, a, b, expected_integers(name, type_name, a, b))
