"""Rules E3 and E4: the functions are correctly rounded, at special, bounding, hard and all inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from neuronsim import processor
from neuronsim.reference.functions import FUNCTIONS, INF, NAN, SIGN
from tests.core import sums_of_exponentials
from tests.core.screening import Screening
from tests.support.evaluation import evaluate
from tests.support.words import Words

PAIR_FUNCTIONS = ["power", "atan2", "hypot", "logaddexp", "logaddexp2"]
ONE_VARIABLE = [name for name in FUNCTIONS if name not in PAIR_FUNCTIONS]
HARDEST = Path(__file__).parents[1] / "data" / "hardest.npz"  # by hardest.py beside it

SPECIAL = [0, 1, 2, 3, 5, 0x7FFFFE, 0x7FFFFF, 0x800000, 0x3F800000, 0x7F7FFFFF]
SPECIAL += [INF, 0x7F800001, 0x7FBFFFFF, NAN, 0x7FFFFFFF]


def both_signs(words: Words) -> Words:
    return np.concatenate([words, words | np.uint32(SIGN)])


def word(x: float) -> int:
    return int(np.float32(x).view(np.uint32))


def drawn(rng: np.random.Generator, n: int) -> Words:
    """Words of the binades where the functions are not yet constant, and a third of any binade."""
    words = rng.integers(0, 1 << 32, n, np.uint32)
    binades = rng.integers(97, 135, n - n // 3).astype(np.uint32) << np.uint32(23)
    words[n // 3 :] = words[n // 3 :] & np.uint32(0x807FFFFF) | binades
    return words


# ---- special, bounding and random inputs against the twin ----------------------------------------


@cache
def boundaries(name: str) -> list[int]:
    """Where the twin's results change their kind: domain ends, zeros, overflow, underflow, and where
    the function becomes its limit, its argument or its value at 0.
    """
    f = FUNCTIONS[name]
    constants = [f(0), f(SIGN), f(INF), f(SIGN | INF)]

    @cache
    def kind(w: int) -> tuple[object, ...]:
        y = f(w)
        magnitude = y & ~SIGN
        size = (magnitude > 0, magnitude >= 0x800000, magnitude >= INF, magnitude > INF)
        return (y & SIGN, size, y in constants, y == w, y == word(1))

    found = []
    small, large = word(2.0**-30), word(2.0**8)
    for sign in (0, SIGN):
        steps = [*range(0, small, 1 << 26), *range(small, large, 1 << 22), *range(large, INF, 1 << 26)]
        for first, end in pairwise([*steps, INF]):
            while kind(first | sign) != kind(end | sign):  # the first change, then the next
                low, high = first, end
                while high - low > 1:
                    middle = (low + high) // 2
                    same = kind(first | sign) == kind(middle | sign)
                    low, high = (middle, high) if same else (low, middle)
                found.append(high | sign)
                first = high
    return found


@cache
def function_inputs(name: str) -> Words:
    powers = np.ldexp(np.float32(1), np.arange(-149, 128)).astype(np.float32).view(np.uint32)
    around = powers[119:161, None] + np.arange(-1, 2)  # 2^-30 to 2^11
    bounds = np.array(boundaries(name), np.int64)[:, None] + np.arange(-3, 3)
    regular = np.concatenate([SPECIAL, powers, around.ravel()])
    edges = np.concatenate([both_signs(regular), bounds.ravel()])
    rng = np.random.default_rng([12, ONE_VARIABLE.index(name)])
    subnormal = both_signs(rng.integers(0, 1 << 23, 25, np.uint32))
    return np.concatenate([edges.astype(np.uint32), subnormal, drawn(rng, 400)])


@cache
def expected_of_function(name: str) -> Words:
    return np.array([FUNCTIONS[name](x) for x in function_inputs(name).tolist()], np.uint32)


@pytest.mark.parametrize("name", ONE_VARIABLE)
def test_function_E3_equals_the_twin(isa: str, name: str) -> None:
    x = function_inputs(name)
    ours = evaluate(name, ("float32", x))
    assert wrong_at(ours != expected_of_function(name), x) == []


def wrong_at(wrong: np.ndarray, *operands: Words) -> list[str]:
    """The first operands of wrong results, as hexadecimal words."""
    places = np.flatnonzero(wrong)[:5].tolist()
    return [" ".join(hex(x[i]) for x in operands) for i in places]


def test_boundaries_are_found() -> None:
    """A control of the search: bounds that are known."""
    known = {
        "exp": [88.72284, -103.97208],
        "erfc": [9.194549, 10.054],  # 2^-126 and 2^-150
        "acos": [1],
        "gelu": [-13.146246, -14.35607],
        "silu_dx": [-1.2784646],
        "sin": [np.pi],
    }
    for name, places in known.items():
        for place in places:
            assert np.isclose(np.array(boundaries(name), np.uint32).view(np.float32), place, 1e-4).any()


# ---- the hardest inputs --------------------------------------------------------------------------


@cache
def hardest() -> dict[str, Words]:
    with np.load(HARDEST) as file:
        return {name: file[name] for name in file.files}


@pytest.mark.parametrize("name", ONE_VARIABLE)
def test_function_E3_at_its_hardest_inputs(isa: str, name: str) -> None:
    x, expected = hardest()[name]
    assert x.size == 1000
    assert wrong_at(evaluate(name, ("float32", x)) != expected, x) == []


@pytest.mark.parametrize("name", ONE_VARIABLE)
def test_results_at_the_hardest_inputs_are_the_twins(name: str) -> None:
    x, expected = hardest()[name][:, ::20]
    assert [FUNCTIONS[name](w) for w in x.tolist()] == expected.tolist()


@pytest.mark.parametrize("name", ONE_VARIABLE)
def test_results_at_the_hardest_inputs_are_mpfrs(name: str) -> None:
    mpfr = pytest.importorskip("tests.core.mpfr")
    x, expected = hardest()[name]
    assert [mpfr.result(name, w) for w in x.tolist()] == expected.tolist()


# ---- many inputs, screened in double arithmetic --------------------------------------------------


Decide = Callable[..., int]


def wrongly_rounded(
    screening: Screening, name: str, result: Words, decide: Decide, *operands: Words
) -> tuple[list[tuple[int, ...]], int]:
    """The operands at which `result` is wrong, and how many had to be decided."""
    asked = screening.uncertain(name, result, *operands)
    wrong = []
    for place in asked.tolist():
        words = tuple(int(x[place]) for x in operands)
        if decide(*words) != int(result[place]):
            wrong.append(words)
    return wrong, len(asked)


@pytest.mark.parametrize("name", ONE_VARIABLE)
def test_function_E3_at_a_quarter_of_a_million_inputs(
    isa: str, screening: Screening, name: str
) -> None:
    x = drawn(np.random.default_rng([13, ONE_VARIABLE.index(name)]), 1 << 18)
    y = evaluate(name, ("float32", x))
    wrong, asked = wrongly_rounded(screening, name, y, FUNCTIONS[name], x)
    assert wrong == []
    assert asked < 100


# ---- functions of two variables ------------------------------------------------------------------


def join(*pairs: tuple[Words, Words]) -> tuple[Words, Words]:
    x, y = (np.concatenate(words) for words in zip(*pairs, strict=True))
    return x, y


def drawn_pairs(name: str, rng: np.random.Generator, n: int) -> tuple[Words, Words]:
    """A quarter each of any words, of exponents near one another, of powers between underflow and
    overflow, and of pairs that are hard: exact results, ties, and what is near to one.
    """
    q = n // 4
    return join(
        (rng.integers(0, 1 << 32, q, np.uint32), rng.integers(0, 1 << 32, q, np.uint32)),
        near_one_another(rng, q),
        powers_in_range(rng, q),
        HARD_PAIRS[name](rng, n - 3 * q),
    )


def near_one_another(rng: np.random.Generator, n: int) -> tuple[Words, Words]:
    first = rng.integers(1, 254, n)
    second = np.clip(first + rng.integers(-26, 27, n), 0, 255)
    x, y = (rng.integers(0, 1 << 32, n, np.uint32) & np.uint32(0x807FFFFF) for _ in range(2))
    return x | first.astype(np.uint32) << np.uint32(23), y | second.astype(np.uint32) << np.uint32(23)


def powers_in_range(rng: np.random.Generator, n: int) -> tuple[Words, Words]:
    """Positive bases, half of them near 1, and exponents that take them to 2^-152 to 2^129."""
    x = rng.integers(1, INF, n, np.uint32)
    x[::2] = rng.integers(word(0.5), word(2), len(x[::2]), np.uint32)
    with np.errstate(all="ignore"):
        exponents = rng.uniform(-152, 129, n) / np.log2(x.view(np.float32).astype(np.float64))
        return x, exponents.astype(np.float32).view(np.uint32)


def powers_of_few_bits(rng: np.random.Generator, n: int) -> tuple[Words, Words]:
    x = rng.integers(-(1 << 13), 1 << 13, n) * np.exp2(rng.integers(-12, 2, n))
    y = rng.integers(-40, 40, n) / rng.choice([1, 1, 4], n)
    return x.astype(np.float32).view(np.uint32), y.astype(np.float32).view(np.uint32)


def triples(rng: np.random.Generator, n: int) -> tuple[Words, Words]:
    """The legs of Pythagorean triples; many a hypotenuse has 25 bits."""
    m, k = rng.integers(2500, 4096, n), rng.integers(1, 2900, n)
    scale = np.exp2(rng.integers(-40, 40, n))
    x, y = (m * m - k * k) * scale, 2 * m * k * scale
    return x.astype(np.float32).view(np.uint32), y.astype(np.float32).view(np.uint32)


def hard_sums(name: str) -> Callable[[np.random.Generator, int], tuple[Words, Words]]:
    """Logarithms of about a float32's range, a 64th each beside ties and of nearly no sum."""
    ln_base = sums_of_exponentials.LN_BASES[name]

    def draw(rng: np.random.Generator, n: int) -> tuple[Words, Words]:
        k = n // 64
        x = rng.uniform(-110, 110, n - 2 * k).astype(np.float32)
        usual = x.view(np.uint32), (x - rng.exponential(8, x.size)).astype(np.float32).view(np.uint32)
        near_ties = sums_of_exponentials.near_ties(rng, k, ln_base)
        return join(usual, near_ties, sums_of_exponentials.cancelling(rng, k, ln_base))

    return draw


HARD_PAIRS = {
    "power": powers_of_few_bits,
    **dict.fromkeys(("atan2", "hypot"), triples),
    **{name: hard_sums(name) for name in sums_of_exponentials.LN_BASES},
}


@cache
def pair_inputs(name: str) -> tuple[Words, Words]:
    numbers = map(word, (0.5, 1.5, 2, 3, 4097, 0x800001, 0xFFFFFF, 1e10))  # the last odd ones too
    edges = both_signs(np.array([*SPECIAL[:-2], *numbers], np.uint32))
    a, b = (x.ravel() for x in np.meshgrid(edges, edges))
    x, y = drawn_pairs(name, np.random.default_rng([14, len(name)]), 1200)
    return np.concatenate([a, x]), np.concatenate([b, y])


@cache
def expected_of_pairs(name: str) -> Words:
    pairs = zip(*(x.tolist() for x in pair_inputs(name)), strict=True)
    return np.array([FUNCTIONS[name](*p) for p in pairs], np.uint32)


def of_floats(*operands: Words) -> list[tuple[str, Words]]:
    return [("float32", x) for x in operands]


@pytest.mark.parametrize("name", PAIR_FUNCTIONS)
def test_function_E4_equals_the_twin(isa: str, name: str) -> None:
    operands = pair_inputs(name)
    ours = evaluate(name, *of_floats(*operands))
    assert wrong_at(ours != expected_of_pairs(name), *operands) == []


@pytest.mark.parametrize("name", PAIR_FUNCTIONS)
def test_function_E4_at_a_quarter_of_a_million_pairs(isa: str, screening: Screening, name: str) -> None:
    operands = drawn_pairs(name, np.random.default_rng([15, len(name)]), 1 << 18)
    y = evaluate(name, *of_floats(*operands))
    wrong, asked = wrongly_rounded(screening, name, y, FUNCTIONS[name], *operands)
    assert wrong == []
    assert asked < 10000


@pytest.mark.parametrize("exponent", [2.0, -1.0, 3.0, 0.5, -0.5, 1.0, 0.0, -2.0, 1.5])
def test_power_E4_of_one_exponent_is_that_of_several(isa: str, exponent: float) -> None:
    """Squares, reciprocals, cubes and roots have ways of their own where all exponents are the same."""
    word = int(np.float32(exponent).view(np.uint32))
    rng = np.random.default_rng([16, word])
    x = np.concatenate(
        [
            both_signs(np.array(SPECIAL, np.uint32)),
            powers_in_range(rng, 40000)[0],
            rng.integers(0, 1 << 32, 9000, np.uint32),
        ]
    )
    ties = np.sqrt(np.arange(1 << 24, (1 << 24) + 3000, dtype=np.float64)).astype(np.float32)
    x = np.concatenate([x, ties.view(np.uint32), (1 / ties).view(np.uint32)]).astype(np.uint32)
    several = np.full(x.size, word, np.uint32)
    several[::256] ^= 1  # in each tile
    other = several != word
    one = evaluate("power", *of_floats(x, np.full_like(several, word)))
    assert np.array_equal(one[~other], evaluate("power", *of_floats(x, several))[~other])


# ---- all inputs ----------------------------------------------------------------------------------


@pytest.fixture
def mpfr_decides(restored_processor: None) -> Callable[[str], Decide]:
    """The judge of what double arithmetic leaves open, on the widest instruction set."""
    mpfr = pytest.importorskip("tests.core.mpfr")
    processor.set_isa(processor.available_isas()[-1])
    return lambda name: lambda *words: int(mpfr.result(name, *words))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ONE_VARIABLE)
def test_function_E3_at_every_input(
    mpfr_decides: Callable[[str], Decide], screening: Screening, name: str
) -> None:
    """One or two minutes for a function: `-s` shows how far it is, `-k NAME` takes one."""
    step, asked = 1 << 22, 0
    for start in range(0, 1 << 32, step):
        x = np.arange(start, start + step, dtype=np.uint64).astype(np.uint32)
        y = evaluate(name, ("float32", x))
        wrong, n = wrongly_rounded(screening, name, y, mpfr_decides(name), x)
        asked += n
        if (start + step) % (1 << 29) == 0:
            print(
                f"{name}: {(start + step) / 2**32:.0%}, {asked} asked, {len(wrong)} wrong", flush=True
            )
        assert wrong == [], [hex(w) for (w,) in wrong[:5]]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PAIR_FUNCTIONS)
def test_function_E4_at_a_hundred_million_pairs(
    mpfr_decides: Callable[[str], Decide], screening: Screening, name: str
) -> None:
    step, asked = 1 << 20, 0
    for seed in range(100):
        operands = drawn_pairs(name, np.random.default_rng([16, len(name), seed]), step)
        y = evaluate(name, *of_floats(*operands))
        wrong, n = wrongly_rounded(screening, name, y, mpfr_decides(name), *operands)
        asked += n
        if (seed + 1) % 10 == 0:
            print(f"{name}: {(seed + 1) * step} pairs, {asked} asked, {len(wrong)} wrong", flush=True)
        assert wrong == [], [(hex(a), hex(b)) for a, b in wrong[:5]]
