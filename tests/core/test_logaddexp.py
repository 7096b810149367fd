"""Rule E4: ln(e^x + e^y) and log2(2^x + 2^y) are correctly rounded where that is hard.

`test_functions.py` has the pairs that every function of two variables is tried at, and 10^8 more.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache, partial

import numpy as np
import pytest

import neuronsim
from neuronsim import dtypes, ops
from neuronsim.profiles import Profile
from neuronsim.reference.functions import FUNCTIONS, INF, MINUS_INF, MINUS_ZERO, NAN, nearest
from neuronsim.reference.intervals import Interval
from tests.core.sums_of_exponentials import LN_BASES, cancelling, near_ties
from tests.support.evaluation import evaluate
from tests.support.words import Words

LARGEST, LEAST = 0x7F7FFFFF, 1

names = pytest.mark.parametrize("name", LN_BASES)


def words_of(values: object) -> Words:
    return np.asarray(values, np.float32).view(np.uint32)


def log_of_sum(name: str, x: Words, y: Words) -> Words:
    """The function, whose operands may change places."""
    found = evaluate(name, ("float32", x), ("float32", y))
    assert np.array_equal(found, evaluate(name, ("float32", y), ("float32", x)))
    return found


def differing(found: Words, expected: Words, x: Words, y: Words) -> list[str]:
    places = np.flatnonzero(found != expected)[:5].tolist()
    return [" ".join(hex(w[i]) for w in (x, y, found, expected)) for i in places]


@cache
def hard_pairs(name: str) -> tuple[Words, Words]:
    rng = np.random.default_rng([71, len(name)])
    drawn = [f(rng, 2000, LN_BASES[name]) for f in (near_ties, cancelling)]
    subnormal = rng.integers(0, 1 << 32, (2, 200), np.uint32) & np.uint32(0x807FFFFF)
    x, y = (np.concatenate(words) for words in zip(*drawn, subnormal, strict=True))
    return x, y


@names
@pytest.mark.parametrize("oracle", ["mpfr", "twin"])
def test_hard_pairs_E4_are_mpfrs_and_the_twins(isa: str, name: str, oracle: str) -> None:
    x, y = hard_pairs(name)
    if oracle == "mpfr":
        result = partial(pytest.importorskip("tests.core.mpfr").result, name)
    else:
        x, y, result = x[::8], y[::8], FUNCTIONS[name]
    expected = np.array([result(*p) for p in zip(x.tolist(), y.tolist(), strict=True)])
    assert differing(log_of_sum(name, x, y), expected.astype(np.uint32), x, y) == []


@names
def test_control_hard_pairs_are_beyond_double(name: str) -> None:
    """NumPy in float64, rounded, is wrong at some of each kind."""
    x, y = hard_pairs(name)
    found = log_of_sum(name, x, y)
    double = getattr(np, name)(*(w.view(np.float32).astype(np.float64) for w in (x, y)))
    wrong = double.astype(np.float32).view(np.uint32) != found
    assert wrong[:1000].any()
    assert wrong[2000:4000].any()


@names
def test_special_values_E4(isa: str, name: str) -> None:
    others = [0, LEAST, 0x3F800000, LARGEST, 0xBF800000, 0x80000000 | LARGEST, 0x80000001]
    cases = [(MINUS_INF, w, w) for w in others]
    cases += [(INF, w, INF) for w in [*others, INF, MINUS_INF, MINUS_ZERO]]
    cases += [(nan, w, NAN) for nan in (NAN, 0xFFC00001, 0x7F800001) for w in (0, INF, MINUS_INF, NAN)]
    cases += [
        (MINUS_INF, MINUS_INF, MINUS_INF),
        (MINUS_INF, MINUS_ZERO, 0),
        (LARGEST, LARGEST, LARGEST),
    ]
    x, y, expected = (np.array(words, np.uint32) for words in zip(*cases, strict=True))
    assert differing(log_of_sum(name, x, y), expected, x, y) == []


@names
def test_small_operand_E4_leaves_the_large_one(isa: str, name: str) -> None:
    """2^-160 moves nothing: neither 0, nor a subnormal, nor the largest number."""
    x = np.concatenate(
        [words_of(np.exp2(np.arange(-149.0, 128))), np.array([0, LEAST, LARGEST], np.uint32)]
    )
    x = np.concatenate([x, x | np.uint32(1 << 31)])
    x[x == MINUS_ZERO] = 0
    for distance in (160, 200, 201, 4000, 4100, 1e30, 3e38):
        with np.errstate(over="ignore"):
            y = words_of(x.view(np.float32) - np.float32(distance))
        apart = y.view(np.float32) < x.view(np.float32)
        assert apart.sum() > 200
        found = log_of_sum(name, x[apart], y[apart])
        assert differing(found, x[apart], x[apart], y[apart]) == []


def test_equal_operands_E4_add_ln_2(isa: str) -> None:
    rng = np.random.default_rng(72)
    around = np.arange(-40, 41) + int(words_of(-math.log(2)))  # the sum is nearly 1
    x = np.concatenate(
        [around.astype(np.uint32), words_of(rng.normal(0, 30, 300)), words_of([1e-45, -1e-45])]
    )
    ends = Interval.of(2, 60).log()
    expected = []
    for value in x.view(np.float32).astype(np.float64).tolist():
        low, high = (nearest(Fraction(value) + Fraction(end)) for end in (ends.low, ends.high))
        assert low == high
        expected.append(low)
    found = log_of_sum("logaddexp", x, x)
    assert differing(found, np.array(expected, np.uint32), x, x) == []


def test_equal_operands_E4_of_base_2_add_1(isa: str) -> None:
    """Ties to even included: IEEE addition."""
    rng = np.random.default_rng(73)
    x = rng.integers(0, 1 << 32, 4000, np.uint32)
    x[1000:] = words_of(rng.uniform(-4, 40, 3000))
    x[-3:] = [MINUS_INF, 0xBF800000, words_of(0.5 + 2.0**-24)]
    with np.errstate(all="ignore"):
        expected = words_of(x.view(np.float32) + np.float32(1))
    expected[np.isnan(expected.view(np.float32))] = NAN
    assert differing(log_of_sum("logaddexp2", x, x), expected, x, x) == []


@names
def test_sums_beside_ln_2_E4(isa: str, name: str) -> None:
    """Of subnormals the result is log 2 to the base: they change it by too little."""
    rng = np.random.default_rng(74)
    x, y = rng.integers(0, 1 << 32, (2, 300), np.uint32) & np.uint32(0x807FFFFF)
    expected = np.full_like(x, words_of(math.log(2) / LN_BASES[name]))
    assert differing(log_of_sum(name, x, y), expected, x, y) == []


@pytest.mark.isa_independent
@names
def test_zero_counts_as_underflow_unless_it_is_exact(name: str) -> None:
    """log2(2^-1 + 2^-1) is 0, and so is ln(e^0 + e^-Inf)."""
    x, y = words_of([0, 0, -1, 0]), words_of([-300, -(2.0**100), -1, -np.inf])
    found = evaluate(name, ("float32", x), ("float32", y))
    operands = [ops.Bits(w.view(np.float32), dtypes.float32) for w in (x, y)]
    result = ops.Bits(found.view(np.float32), dtypes.float32)
    setting = ops.Setting(Profile())
    evaluation = ops.Evaluation(ops.by_name(name), operands, {}, result.type, setting)
    met = ops.observe(evaluation, [result])
    assert met == {"underflow": 2}
    assert (found == 0).sum() == (4 if name == "logaddexp2" else 3)


@pytest.mark.isa_independent
@names
def test_host_types_H1_are_numpys(name: str) -> None:
    x, y = np.random.default_rng(75).normal(0, 9, (2, 50))
    found = getattr(neuronsim, name)(neuronsim.asarray(x), neuronsim.asarray(y))
    assert found.dtype.name == "float64"
    assert np.array_equal(np.asarray(found), getattr(np, name)(x, y))
