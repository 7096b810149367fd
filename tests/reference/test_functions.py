"""Rules E3 and E4: the twin's functions against MPFR, special cases, ties; interval arithmetic."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from neuronsim.reference import functions as twin
from neuronsim.reference.formats import Number, decode, from_float, round_number
from neuronsim.reference.functions import FUNCTIONS
from neuronsim.reference.intervals import Interval, Undecided, pi

pytestmark = pytest.mark.isa_independent

NAN, INF, SIGN = 0x7FC00000, 0x7F800000, 0x80000000
TWO_VARIABLES = ["power", "atan2", "hypot", "logaddexp", "logaddexp2"]
ONE_VARIABLE = [name for name in FUNCTIONS if name not in TWO_VARIABLES]
EDGES = [0, 1, 2, 3, 5, 0x7FFFFF, 0x800000, 0x3F000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001]
EDGES += [0x40000000, 0x40400000, 0x42D00000, 0x7F7FFFFF, INF, 0x7F800001, NAN]


def word(x: float) -> int:
    return from_float("float32", x)


def sample(rng: np.random.Generator, n: int) -> list[int]:
    """Edges, any words, and words of the exponents where the functions are not yet constant."""
    drawn = rng.integers(0, 1 << 32, n, np.uint32)
    near = rng.integers(97, 135, n - n // 3).astype(np.uint32) << np.uint32(23)
    drawn[n // 3 :] = drawn[n // 3 :] & np.uint32(0x807FFFFF) | near
    return [*EDGES, *(e | SIGN for e in EDGES), *drawn.tolist()]


@pytest.mark.parametrize("name", ONE_VARIABLE)
def test_function_E3_equals_mpfr(name: str) -> None:
    mpfr = pytest.importorskip("tests.core.mpfr")
    words = sample(np.random.default_rng([61, ONE_VARIABLE.index(name)]), 300)
    wrong = [hex(w) for w in words if FUNCTIONS[name](w) != mpfr.result(name, w)]
    assert wrong == []


@pytest.mark.parametrize("name", TWO_VARIABLES)
def test_function_E4_equals_mpfr(name: str) -> None:
    mpfr = pytest.importorskip("tests.core.mpfr")
    rng = np.random.default_rng([62, len(name)])
    edges = [e | s for e in EDGES for s in (0, SIGN)]
    pairs = [(a, b) for a in edges for b in edges]
    pairs += zip(sample(rng, 500), rng.permutation(sample(rng, 500)).tolist(), strict=True)
    # Small integers and halves: powers that are exact, and Pythagorean triples.
    small = [word(float(x)) for x in rng.integers(-40, 40, 600) / 2]
    pairs += zip(small[:300], small[300:], strict=True)
    wrong = [(hex(a), hex(b)) for a, b in pairs if FUNCTIONS[name](a, b) != mpfr.result(name, a, b)]
    assert wrong == []


@pytest.mark.parametrize("name", ONE_VARIABLE)
def test_function_E3_gives_the_canonical_NaN(name: str) -> None:
    assert {FUNCTIONS[name](w) for w in (0x7F800001, 0xFFC00000, 0xFFFFFFFF)} == {NAN}


@pytest.mark.parametrize(
    ("name", "a", "b", "expected"),
    [
        ("power", math.nan, 0.0, 1.0),
        ("power", 1.0, math.nan, 1.0),
        ("power", -1.0, math.inf, 1.0),
        ("power", -0.5, -math.inf, math.inf),
        ("power", -0.0, -3.0, -math.inf),
        ("power", -0.0, 0.5, 0.0),
        ("power", -math.inf, -3.0, -0.0),
        ("power", -8.0, 0.5, math.nan),
        ("power", -(2.0**-50), 3.0, -0.0),  # a tie
        ("power", -(2.0**-50), 5.0, -0.0),
        ("power", 2.0, 3e38, math.inf),
        ("power", 4097.0, 2.0, 4097.0**2 - 1),  # a tie: 25 bits
        ("power", 4099.0, 2.0, 4099.0**2 - 1),
        ("power", 16.0, 1.25, 32.0),
        ("power", 81.0, -0.5, 1 / 9),
        ("atan2", -0.0, -0.0, -math.pi),
        ("atan2", 0.0, -0.0, math.pi),
        ("atan2", -0.0, 3.0, -0.0),
        ("atan2", math.inf, -math.inf, 3 * math.pi / 4),
        ("atan2", -1.0, 0.0, -math.pi / 2),
        ("atan2", -1e-30, 1e30, -0.0),
        ("atan2", 3 * 2.0**-149, 2.0, 2.0**-149),  # just below a tie
        ("hypot", math.nan, -math.inf, math.inf),
        ("hypot", -3.0, 4.0, 5.0),
        ("hypot", 3e38, 3e38, math.inf),
        ("logaddexp", math.nan, math.inf, math.nan),
        ("logaddexp", -math.inf, math.inf, math.inf),
        ("logaddexp", -math.inf, -math.inf, -math.inf),
        ("logaddexp", -math.inf, -0.0, 0.0),
        ("logaddexp", -(2.0**-149), -103.5, -0.0),  # e^-103.5 is 0.8 of 2^-149
        ("logaddexp", -(2.0**-149), -103.0, 0.0),
        ("logaddexp", 3e38, 3e38, 3e38),
        ("logaddexp2", -math.inf, 7.0, 7.0),
        ("logaddexp2", -1.0, -1.0, 0.0),
        ("logaddexp2", 0.5 + 2.0**-24, 0.5 + 2.0**-24, 1.5),  # a tie
        ("logaddexp2", 0.5 + 2.0**-24, 0.5, 1.5),
        ("logaddexp2", 0.0, -149.0, 2.0**-149),
    ],
)
def test_function_E4_special_cases(name: str, a: float, b: float, expected: float) -> None:
    assert FUNCTIONS[name](word(a), word(b)) == word(expected)


def test_hypot_E4_ties_go_to_even() -> None:
    """Pythagorean triples whose hypotenuse has 25 bits."""
    ties = []
    for m in range(4000, 4100):
        n = 5793**2 - m * m
        root = math.isqrt(n)
        for k in (root, root + 1):
            a, b, c = abs(m * m - k * k), 2 * m * k, m * m + k * k
            if math.gcd(a, b) == 1 and all(decode("float32", word(v)).value == v for v in (a, b)):
                ties.append((a, b, c))
    ties = [t for t in ties if t[2].bit_length() == 25 and t[2] % 2]
    assert ties
    for a, b, c in ties:
        expected = round_number("float32", Number("finite", False, Fraction(c)))
        assert FUNCTIONS["hypot"](word(a), word(b)) == expected


def test_decide_raises_at_a_tie_that_it_cannot_decide() -> None:
    with pytest.raises(AssertionError, match="tie"):
        twin.decide(lambda digits: Interval.of((1 + Fraction(1, 2**24)) ** 2, digits).sqrt())


def test_interval_contains_the_exact_value() -> None:
    """At 15 digits and at 60: the coarse interval is around the fine one."""
    rng = np.random.default_rng(63)
    for x in [*rng.normal(0, 5, 200).tolist(), 1e-30, 0.5, 1.0, 11.9, 12.1, 1e5, 1e30]:
        coarse, fine = (Interval.of(Fraction(x), digits) for digits in (15, 60))
        names = ["exp", "sin", "cos", "atan", "erf", *(["sqrt", "log"] if x > 0 else [])]
        for name in names:
            wide, narrow = getattr(coarse, name)(), getattr(fine, name)()
            assert wide.low <= narrow.low <= narrow.high <= wide.high, (name, x)


def test_interval_of_pi() -> None:
    assert str(pi(20).low).startswith("3.141592653589793238")
    assert pi(20).low < Decimal("3.14159265358979323846264338") < pi(20).high


def test_interval_division_by_what_may_be_zero_is_undecided() -> None:
    x = Interval(Decimal(-1), Decimal(1), 10)
    with pytest.raises(Undecided):
        1 / x
    with pytest.raises(Undecided):
        x.log()
