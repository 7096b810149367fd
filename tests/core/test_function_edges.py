"""Rule E3 at the edges of its kernels: lengths, places in memory, subnormal results, zeros and NaN."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from neuronsim import _core
from neuronsim.reference.functions import FUNCTIONS
from neuronsim.reference.functions import ONE_VARIABLE as TWIN
from tests.support.evaluation import chain_of, evaluate
from tests.support.words import Words

ONE_VARIABLE = [name for name, _, kind in _core.OPS if kind == "function"]
SIGN = 0x80000000
NAN, INF = 0x7FC00000, 0x7F800000
HARDEST = Path(__file__).parents[1] / "data" / "hardest.npz"


def program(name: str) -> _core.Chain:
    return chain_of(["float32"], [(name, "float32", (0,))], [1])


def drawn(seed: int, n: int) -> Words:
    """Words of the binades where most functions are not yet constant; every ninth any word."""
    rng = np.random.default_rng([23, seed])
    words = rng.integers(0, 1 << 32, n, np.uint32)
    binades = rng.integers(110, 131, n).astype(np.uint32) << np.uint32(23)
    return np.where(np.arange(n) % 9 == 4, words, words & np.uint32(0x807FFFFF) | binades)


def test_functions_E3_of_every_length_at_every_place(isa: str) -> None:
    """The end of an array is computed apart, and nothing beyond it is written."""
    for name in ONE_VARIABLE:
        run, x = program(name), drawn(1, 208)
        expected = np.empty(208, np.uint32)
        for i in range(208):
            run.on([x[i : i + 1]], [expected[i : i + 1]]).run()
        assert np.array_equal(expected, _all_at_once(run, x))
        for n in (*range(1, 41), 63, 64, 65, 127, 129, 193):
            for start in (0, 1, 3, 7):
                output = np.full(n + 20, 0xA5A5A5A5, np.uint32)
                run.on([x[start : start + n]], [output[start + 1 : start + 1 + n]]).run()
                assert np.array_equal(output[start + 1 : start + 1 + n], expected[start : start + n]), n
                assert (output[: start + 1] == 0xA5A5A5A5).all()
                assert (output[start + 1 + n :] == 0xA5A5A5A5).all()


def _all_at_once(run: _core.Chain, x: Words) -> Words:
    output = np.empty_like(x)
    run.on([x], [output]).run()
    return output


def test_functions_E3_in_place(isa: str) -> None:
    """The result takes the operand's place, lanes in doubt included."""
    for name in ONE_VARIABLE:
        x = np.concatenate(
            [drawn(2, 1501), np.arange(80, dtype=np.uint32) * np.uint32(0x04000003), drawn(3, 30)]
        )
        run = program(name)
        expected = _all_at_once(run, x)
        run.on([x], [x]).run()
        assert np.array_equal(x, expected)


def test_functions_E3_each_lane_alone_is_tested_for_doubt(isa: str) -> None:
    """The hardest inputs, each alone among easy ones: a neighbour in doubt would help it."""
    for name in ONE_VARIABLE:
        with np.load(HARDEST) as file:
            hard, expected = file[name]
        step = 17
        x = np.full(hard.size * step, np.float32(1.7 if name == "acosh" else 0.7).view(np.uint32))
        x[::step] = hard
        y = evaluate(name, ("float32", x))[::step]
        assert [hex(w) for w in hard[y != expected]] == []


# ---- subnormal results ---------------------------------------------------------------------------


def is_small(words: Words) -> Words:
    """Below twice the least normal number, in magnitude, and not zero."""
    return (words & np.uint32(SIGN - 1)) - np.uint32(1) < 0x00FFFFFF


@cache
def inputs_of_small_results(name: str) -> Words:
    """Found with what is tested: the inputs only have to be of the right sort. Half of what lies below
    2^-125 is a tie just below 2^-126, and half of 2^-149 one above zero.
    """
    run = program(name)
    ends = [(0, 1 << 24), (SIGN, SIGN + (1 << 24))]  # small arguments, and those of some size
    ends += [(s | 0x3F800000, s | 0x43800000) for s in (0, SIGN)]
    rng = np.random.default_rng([24, ONE_VARIABLE.index(name)])
    found = []
    for low, high in ends:
        x = rng.integers(low, high, 1 << 15).astype(np.uint32)
        x = x[is_small(_all_at_once(run, x))]
        found.append(x[:120])
    # The first and the last that are, with their neighbours.
    edges = [x[[x.argmin(), x.argmax()]] for x in found if x.size]
    near = [e + np.uint32(d & 0xFFFFFFFF) for e in edges for d in (-2, -1, 1, 2)]
    least = np.array([[4], [0x800000], [0x1000000]]) + np.arange(-3, 3)
    words = least.astype(np.uint32).ravel()
    return np.concatenate([*found, *near, words, words | np.uint32(SIGN)])


@cache
def expected_small(name: str) -> Words:
    return np.array([FUNCTIONS[name](w) for w in inputs_of_small_results(name).tolist()], np.uint32)


# Those whose results are subnormal only where their operands are.
OF_LARGE_OPERANDS = ["exp", "exp2", "erfc", "sigmoid", "silu", "gelu", "gelu_tanh", "gelu_sigmoid"]
OF_LARGE_OPERANDS += ["softplus", "mish", "erf_dx", "silu_dx", "gelu_dx", "gelu_sigmoid_dx"]


# More copies than a block of lanes has: one lane in doubt sends all of its block to the accurate step.
COPIES = 32


def test_small_results_E3_equal_the_twin(isa: str) -> None:
    for name in ONE_VARIABLE:
        x = inputs_of_small_results(name)
        y = evaluate(name, ("float32", np.repeat(x, COPIES))).reshape(-1, COPIES)
        assert [hex(w) for w in x[(y != expected_small(name)[:, None]).any(1)]] == []


def test_control_there_are_small_results() -> None:
    for name in OF_LARGE_OPERANDS:
        x = inputs_of_small_results(name) & np.uint32(SIGN - 1)
        assert (x > 0x3F800000).sum() > 50, name


# ---- special operands ----------------------------------------------------------------------------

NEGATIVE_ZERO_LIMIT = [name for name in ONE_VARIABLE if TWIN[name].at_minus_inf == SIGN]
ONE = 0x3F800000


def test_functions_E3_of_zeros(isa: str) -> None:
    for name in ONE_VARIABLE:
        expected = [FUNCTIONS[name](0), FUNCTIONS[name](SIGN)]
        for n in (1, 9, 33):
            for word, y in zip((0, SIGN), expected, strict=True):
                assert evaluate(name, ("float32", np.full(n, word, np.uint32))).tolist() == [y] * n


@pytest.mark.parametrize("name", NEGATIVE_ZERO_LIMIT)
def test_functions_E3_at_minus_infinity_underflow_with_their_sign(isa: str, name: str) -> None:
    x = np.array([-np.inf, -3e38, -1e30, -1e10, -500.0, -140.0], np.float32).view(np.uint32)
    assert evaluate(name, ("float32", x)).tolist() == [SIGN] * 6


def test_functions_E6_of_NaN_are_the_canonical_one(isa: str) -> None:
    for name in ONE_VARIABLE:
        rng = np.random.default_rng(25)
        payload = rng.integers(1, 1 << 23, 70, np.uint32)
        nan = np.uint32(INF) | payload | rng.integers(0, 2, 70, np.uint32) << np.uint32(31)
        x = rng.permutation(np.concatenate([nan, np.full(70, ONE, np.uint32)]))
        y = evaluate(name, ("float32", x))
        assert (y[x != ONE] == NAN).all()
        assert set(y[x == ONE].tolist()) == {FUNCTIONS[name](ONE)}
