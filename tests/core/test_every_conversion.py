"""Conversions at every input (rules C1-C5): against step functions of exact rational boundaries.

Rounding is monotone, so all that an oracle needs are the places where the result steps to the next
encoding: the midpoints between neighbouring values, which are exact. Nothing is shared with the core.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache, partial
from itertools import pairwise

import numpy as np
import pytest

from neuronsim import dtypes
from neuronsim.profiles import Profile
from tests.support.evaluation import evaluate
from tests.support.parameters import each_of, some
from tests.support.processors import check_everywhere
from tests.support.words import Words, word_type

# name: exponent bits, mantissa bits, the first encoding that is no finite number, NaN's word, and how
# far the encoding lies from the word's lowest bit
FORMATS = {
    "tfloat32": (8, 10, 0xFF << 10, 0x7FC00000, 13),
    "bfloat16": (8, 7, 0xFF << 7, 0x7FC0, 0),
    "float16": (5, 10, 0x1F << 10, 0x7E00, 0),
    "float8_e5m2": (5, 2, 0x1F << 2, 0x7E, 0),
    "float8_e4m3": (4, 3, 0xF << 3, 0x7C, 0),
    "float8_e3m4": (3, 4, 0x7 << 4, 0x78, 0),
    "float8_e4m3fn": (4, 3, 0x7F, 0x7F, 0),
}
NARROW = sorted(FORMATS)
INF = 0x7F800000


def unit(name: str) -> Fraction:
    """The least value above zero."""
    e_bits, m_bits, *_ = FORMATS[name]
    return Fraction(2) ** (2 - (1 << (e_bits - 1)) - m_bits)


def units(name: str, encoding: int) -> int:
    """The value of a positive encoding in units, also of the first one beyond the finite numbers."""
    m_bits = FORMATS[name][1]
    exponent, mantissa = encoding >> m_bits, encoding & ((1 << m_bits) - 1)
    return (mantissa + ((1 << m_bits) if exponent else 0)) << (max(exponent, 1) - 1)


def value(name: str, encoding: int) -> Fraction:
    return units(name, encoding) * unit(name)


@cache
def steps(name: str, source: str = "float32") -> Words:
    """The first word of the source's positive words that rounds to each encoding from 1 on."""
    beyond = FORMATS[name][2]
    found = [units(name, k) for k in range(beyond + 1)]
    half = unit(name) / 2
    middles = [below + above for below, above in pairwise(found)]
    wide = np.array([float(m) for m in middles]) * float(half)
    sample = slice(None, None, max(1, beyond // 64))
    assert [Fraction(float(w)) for w in wide[sample]] == [m * half for m in middles[sample]]
    floats = wide.astype(source)
    assert np.array_equal(floats.astype(np.float64), wide), "a midpoint is exact in the source"
    # A tie goes to the even encoding: to k if k is even, else the next word is the first.
    odd = np.arange(1, beyond + 1) % 2
    return np.asarray(floats.view(f"u{floats.itemsize}") + odd.astype(f"u{floats.itemsize}"))


def expected(name: str, words: Words, source: str = "float32") -> Words:
    """The conversion of float words, by search among the steps."""
    size = 8 * words.itemsize
    sign = words >> (size - 1)
    magnitude = words & words.dtype.type((1 << (size - 1)) - 1)
    encoding = np.searchsorted(steps(name, source), magnitude, side="right")
    return finish(name, encoding, sign, magnitude, 0x7FF << 52 if source == "float64" else INF)


def finish(name: str, encoding: Words, sign: Words, magnitude: Words, inf: int) -> Words:
    e_bits, m_bits, beyond, nan, shift = FORMATS[name]
    encoding = np.where(magnitude == inf, beyond, encoding) << shift
    encoding = np.where(magnitude > inf, nan, encoding)
    return (encoding | sign.astype(np.int64) << (e_bits + m_bits + shift)).astype(word_type(name))


def expected_range(name: str, start: int, count: int) -> Words:
    """The same for the float32 words [start, start + count), which lie in order: by repetition."""
    sign, low = start >> 31, start & 0x7FFFFFFF
    found = steps(name)
    first = int(np.searchsorted(found, low, side="right"))
    last = int(np.searchsorted(found, low + count - 1, side="right"))
    edges = np.concatenate([[low], found[first:last].astype(np.int64), [low + count]])
    encoding = np.repeat(np.arange(first, last + 1), np.diff(edges))
    magnitude = np.arange(low, low + count, dtype=np.int64)
    return finish(name, encoding, np.full(1, sign), magnitude, INF)


def check(name: str, source: str, words: Words, right: Words | None = None, **more: Profile) -> None:
    """The conversion on every instruction set; of floats by the oracle where nothing else is given."""
    right = expected(name, words, source) if right is None else right
    run = partial(evaluate, "convert", (source, words), dtype=dtypes.DTYPES[name], **more)
    check_everywhere(run, right)


@pytest.mark.isa_independent
@pytest.mark.parametrize("name", NARROW)
def test_control_the_two_forms_of_the_oracle_agree(name: str) -> None:
    for start in (0, 0x38000000, 0x3F7FF000, 0x477FE000, 0x7F7F0000, 0x80000000, 0xC77FF000):
        words = np.arange(start, start + 0x20000, dtype=np.uint64).astype(np.uint32)
        assert np.array_equal(expected(name, words), expected_range(name, start, 0x20000))


@pytest.mark.parametrize("name", NARROW)
def test_every_binade_C2_C3_C4_on_every_isa(restored_processor: None, name: str) -> None:
    """2^22 inputs: around every 2^10th float32."""
    words = np.arange(0, 1 << 32, 1 << 10, dtype=np.uint64).astype(np.uint32) ^ np.uint32(0x200)
    check(name, "float32", words)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NARROW)
def test_all_float32_inputs_C2_C3_C4_C5_on_every_isa(restored_processor: None, name: str) -> None:
    count = 1 << 20
    for start in range(0, 1 << 32, count):
        words = np.arange(start, start + count, dtype=np.uint64).astype(np.uint32)
        check(name, "float32", words, expected_range(name, start, count))


def near_steps(name: str) -> Words:
    """float64 words at every midpoint and value and their neighbours, of both signs."""
    found = steps(name, "float64")
    values = np.array([float(units(name, k)) for k in range(FORMATS[name][2])]) * float(unit(name))
    values = values.view(np.uint64)
    around = np.concatenate([w + np.uint64(d) for w in (found, values[1:]) for d in (0, 1)])
    around = np.concatenate([around, found - np.uint64(1), values[1:] - np.uint64(1)])
    return np.concatenate([around, around | np.uint64(1 << 63)])


@pytest.mark.parametrize("name", NARROW)
def test_float64_C1_at_every_boundary_and_midpoint(restored_processor: None, name: str) -> None:
    check(name, "float64", near_steps(name))


def random_float64(rng: np.random.Generator, n: int) -> Words:
    """Half of any bits, half with the exponents of the narrow formats and bits near their ties."""
    words = rng.integers(0, 1 << 64, n, np.uint64)
    half = n // 2
    exponent = rng.integers(1023 - 160, 1023 + 140, half).astype(np.uint64) << np.uint64(52)
    mantissa = rng.integers(0, 1 << 13, half, np.uint64) << np.uint64(39)
    sticky = rng.integers(-2, 3, half).astype(np.int64)
    near = (exponent | mantissa).astype(np.int64) + sticky
    words[:half] = near.astype(np.uint64) | (words[:half] & np.uint64(1 << 63))
    return words


@pytest.mark.parametrize("count", some([1, 100], 1))
@pytest.mark.parametrize("name", NARROW)
def test_float64_C1_at_millions_of_random_values(
    restored_processor: None, name: str, count: int
) -> None:
    rng = np.random.default_rng(60)
    for _ in range(count):
        check(name, "float64", random_float64(rng, 1 << 20))


# ---- integers ------------------------------------------------------------------------------------


def rounded_integers(name: str, magnitude: Words) -> Words:
    """The encodings of unsigned 64-bit integers by shifts and one rounding to even."""
    e_bits, m_bits, beyond, _, _ = FORMATS[name]
    bias = (1 << (e_bits - 1)) - 1
    bits = np.frexp(magnitude.astype(np.float64))[1].astype(np.int64)
    too_long = (magnitude >> np.maximum(bits - 1, 0).astype(np.uint64)) == 0
    bits = np.where(too_long & (magnitude > 0), bits - 1, bits)  # float64 rounded up to a power of 2
    drop = np.maximum(bits - 1 - m_bits, 0).astype(np.uint64)
    whole, rest = magnitude >> drop, magnitude & ((np.uint64(1) << drop) - np.uint64(1))
    half = np.where(drop > 0, np.uint64(1) << (np.maximum(drop, 1) - np.uint64(1)), 0)
    up = (drop > 0) & ((rest > half) | ((rest == half) & (whole % 2 == 1)))
    kept = whole + up.astype(np.uint64)
    shift = np.maximum(m_bits - (bits - 1), 0).astype(np.uint64)
    exponent = np.maximum(bits - 1, 0)
    # Integers from 1 on are normal in every format here.
    encoding = (kept << shift).astype(np.int64) + ((exponent + bias - 1) << m_bits)
    return np.where(magnitude == 0, 0, np.minimum(encoding, beyond))


def check_integers(name: str, source: str, words: Words) -> None:
    e_bits, m_bits, _, nan, shift = FORMATS[name]
    signed = words.view(source)
    negative = signed < 0
    magnitude = np.where(negative, np.uint64(0) - signed.astype(np.uint64), signed.astype(np.uint64))
    encoding = rounded_integers(name, magnitude) << shift
    if name == "float8_e4m3fn":
        encoding = np.where(encoding > 0x7E, nan, encoding)
    right = encoding | negative.astype(np.int64) << (e_bits + m_bits + shift)
    check(name, source, words, right, profile=Profile(int_to_float="exact"))


def near_ties(rng: np.random.Generator, source: str, n: int) -> Words:
    """Random integers of any length, with low bits that make ties of every format and neighbours."""
    info = np.iinfo(source)
    length = rng.integers(1, info.bits + 1, n).astype(np.uint64)
    words = rng.integers(0, 1 << 64, n, np.uint64) >> (np.uint64(64) - length)
    keep = rng.integers(1, 14, n).astype(np.uint64)
    low = np.maximum(length.astype(np.int64) - keep.astype(np.int64), 0).astype(np.uint64)
    tie = (words >> low) << low
    words = np.where(rng.random(n) < 0.7, tie + rng.integers(-1, 2, n).astype(np.uint64), words)
    negated = np.where(rng.random(n) < 0.5, np.uint64(0) - words, words) if info.min < 0 else words
    return negated.astype(f"u{info.bits // 8}")


@each_of("source", ["int64", "uint64", "int32", "uint32", "int16", "uint8"])
@each_of("name", NARROW)
def test_integers_C1_at_ties_and_at_random(restored_processor: None, name: str, source: str) -> None:
    check_integers(name, source, near_ties(np.random.default_rng(61), source, 1 << 16))


@pytest.mark.exhaustive
@pytest.mark.parametrize("source", ["int64", "uint64"])
@pytest.mark.parametrize("name", NARROW)
def test_integers_C1_at_10_to_8_random_values(restored_processor: None, name: str, source: str) -> None:
    rng = np.random.default_rng(62)
    for _ in range(100):
        check_integers(name, source, near_ties(rng, source, 1 << 20))


def test_control_the_integer_oracle_is_exact() -> None:
    rng = np.random.default_rng(63)
    for name in NARROW:
        words = near_ties(rng, "uint64", 300)
        for word, found in zip(words.tolist(), rounded_integers(name, words).tolist(), strict=True):
            beyond = FORMATS[name][2]
            low = max((k for k in (found - 1, found) if value(name, k) <= word), default=0)
            gap = value(name, low + 1) - value(name, low)
            if found == beyond:
                assert word >= (value(name, beyond - 1) + value(name, beyond)) / 2
            else:
                assert abs(value(name, found) - word) <= gap / 2, (name, word)
                assert math.isfinite(float(gap))
