"""Rule E3: sin, cos and tan of arguments that are many turns, and Payne and Hanek's reduction."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from neuronsim.reference.functions import FUNCTIONS
from neuronsim.reference.intervals import pi
from tests.core.screening import Screening
from tests.support.evaluation import evaluate
from tests.support.words import Words

NAMES = ["sin", "cos", "tan"]
SIGN = np.uint32(0x80000000)
RIGHT_ANGLE = Fraction(pi(400).low) / 2


def nearest_to_multiples(exponent: int, count: int) -> list[int]:
    """The words m 2^exponent, m of 24 bits, nearest to multiples of π/2 in turns: by the convergents
    of 2^exponent over π/2, and multiples of their denominators.
    """
    rest = Fraction(2) ** exponent / RIGHT_ANGLE
    before, q = 0, 1
    denominators = []
    rest -= rest.numerator // rest.denominator
    while rest != 0 and q < 1 << 24:
        denominators.append(q)
        rest = 1 / rest
        digit = rest.numerator // rest.denominator
        before, q = q, digit * q + before
        rest -= digit
    found = []
    for q in reversed(denominators):
        for m in range(-(-(1 << 23) // q) * q, 1 << 24, q):
            found.append((exponent + 150 << 23) | (m - (1 << 23)))
            if len(found) >= count:
                return found
            if q < 1 << 12:
                break
    return found


@cache
def large_arguments() -> Words:
    """Of every exponent from 22 on: the ends, random ones, and those nearest to multiples of π/2."""
    rng = np.random.default_rng(21)
    words: list[int] = []
    for power in range(22, 128):
        binade = power + 127 << 23
        words += [binade, binade + 1, binade | 0x7FFFFF, binade | 0x400000, binade | 0x555555]
        words += [binade | m for m in rng.integers(0, 1 << 23, 4).tolist()]
        words += nearest_to_multiples(power - 23, 6)
    found = np.array(words, np.uint32)
    return np.where(rng.random(found.size) < 0.5, found, found | SIGN)


@cache
def expected(name: str) -> Words:
    return np.array([FUNCTIONS[name](w) for w in large_arguments().tolist()], np.uint32)


@pytest.mark.parametrize("name", NAMES)
def test_large_arguments_E3_equal_the_twin(isa: str, name: str) -> None:
    x = large_arguments()
    y = evaluate(name, ("float32", x))
    assert [hex(w) for w in x[y != expected(name)]] == []


def test_control_the_arguments_are_near_multiples() -> None:
    """Of 2^24 numbers the nearest to a multiple is about 2^-24 of a turn away; some are nearer, of
    which x = 16367173 2^72 is known.
    """
    found = nearest_to_multiples(72, 6)
    assert (72 + 150 << 23 | 16367173 - (1 << 23)) in found
    for power in (30, 64, 95, 127):
        first = nearest_to_multiples(power - 23, 1)[0]
        x = Fraction(float(np.uint32(first).view(np.float32)))
        turns = x / RIGHT_ANGLE
        assert abs(turns - round(turns)) < Fraction(1, 1 << 21)


@pytest.mark.parametrize("name", NAMES)
def test_nearest_numbers_to_multiples_E3(isa: str, screening: Screening, name: str) -> None:
    """The float32 nearest to kπ/2 for k up to 2^20, and their neighbours."""
    quarter = float(RIGHT_ANGLE)
    middle = (np.arange(1, 1 << 20) * quarter).astype(np.float32).view(np.uint32)
    for step in (-1, 0, 1):
        x = middle + np.uint32(step & 0xFFFFFFFF)
        y = evaluate(name, ("float32", x))
        asked = screening.uncertain(name, y, x)
        assert len(asked) < 200
        wrong = [hex(x[i]) for i in asked.tolist() if FUNCTIONS[name](int(x[i])) != y[i]]
        assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_vectors_of_small_and_large_arguments_E3(isa: str, name: str) -> None:
    """The lanes that are reduced one by one do not change their neighbours."""
    large = large_arguments()[::7][:96]
    small = np.linspace(-9, 9, 97, dtype=np.float32)[:96].view(np.uint32)
    special = np.array(
        [0, SIGN, 0x7F800000, 0xFF800000, 0x7FC00001, 1, 0x4AFFFFFF, 0x4B000000], np.uint32
    )
    rng = np.random.default_rng(22)
    x = rng.permutation(np.concatenate([large, small, np.resize(special, 64)]))
    alone = np.array([evaluate(name, ("float32", x[i : i + 1]))[0] for i in range(x.size)])
    assert np.array_equal(evaluate(name, ("float32", x)), alone)
