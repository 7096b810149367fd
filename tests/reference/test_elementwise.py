"""The twin's arithmetic (rules E) against NumPy's IEEE float32, Fractions and MPFR."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuronsim.reference import elementwise as twin
from neuronsim.reference.formats import FORMATS, Number, decode, round_number

pytestmark = pytest.mark.isa_independent

NAN, INF, SIGN = 0x7FC00000, 0x7F800000, 0x80000000
words = st.integers(0, 2**32 - 1) | st.floats(width=32).map(
    lambda x: int(np.float32(x).view(np.uint32))
)


@cache
def sample(seed: int, n: int = 4000) -> np.ndarray:
    """Patterns of any exponent, and of exponents near one another, and special ones."""
    rng = np.random.default_rng([51, seed])
    drawn = rng.integers(0, 1 << 32, n, np.uint32)
    drawn[n // 2 :] = drawn[n // 2 :] & 0x807FFFFF | rng.integers(118, 138, n - n // 2, np.uint32) << 23
    special = [0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x7F7FFFFF, INF, NAN, 0x7F800001]
    drawn[rng.integers(0, n, n // 5)] = rng.choice(np.array(special, np.uint32), n // 5)
    return drawn ^ (rng.integers(0, 2, n, np.uint32) << np.uint32(31))


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "sqrt"])
def test_arithmetic_E2_equals_numpy(name: str) -> None:
    operands = [sample(3)] if name == "sqrt" else [sample(1), sample(2)]
    with np.errstate(all="ignore"):
        theirs = getattr(np, name)(*(x.view(np.float32) for x in operands))
    expected = np.where(np.isnan(theirs), np.uint32(NAN), theirs.view(np.uint32)).tolist()
    rows = zip(*(x.tolist() for x in operands), strict=True)
    assert [twin.FLOAT[name](*row) for row in rows] == expected


@pytest.mark.parametrize("name", sorted(twin.COMPARISON))
def test_comparison_E7_equals_numpy(name: str) -> None:
    a, b = sample(4), sample(5)
    b[::7] = a[::7]
    b[::11] = a[::11] ^ np.uint32(SIGN)
    theirs = getattr(np, name)(a.view(np.float32), b.view(np.float32)).tolist()
    ours = [twin.compare(name, x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert ours == theirs


@given(words, words)
def test_maximum_and_minimum_E7(a: int, b: int) -> None:
    x, y = (np.uint32(v).view(np.float32) for v in (a, b))
    if np.isnan(x) or np.isnan(y):
        assert twin.maximum(a, b) == twin.minimum(a, b) == NAN
    elif a & ~SIGN == b & ~SIGN == 0:
        assert twin.maximum(a, b) == a & b
        assert twin.minimum(a, b) == a | b
    else:
        assert twin.maximum(a, b) == (a if x >= y else b)
        assert twin.minimum(a, b) == (a if x <= y else b)
    assert twin.maximum(a, b) == twin.maximum(b, a)
    assert twin.minimum(a, b) == twin.minimum(b, a)


def test_total_order_E7_by_hand() -> None:
    ascending = [0xFFC00000, 0xFF800000, 0xBF800000, 0x80000001, SIGN, 0, 1, 0x3F800000, INF, NAN]
    assert sorted(ascending, key=twin.total_order) == ascending


@given(words)
def test_negative_and_abs_E6_move_bits(a: int) -> None:
    assert twin.negative(a) == a ^ SIGN
    assert twin.absolute(a) == a & ~SIGN


@given(words, words, words)
def test_fma_M2_equals_fractions(a: int, b: int, c: int) -> None:
    x, y, z = (decode("float32", v) for v in (a, b, c))
    if {x.kind, y.kind, z.kind} == {"finite"}:
        exact = x.value * y.value + z.value
        if exact:
            assert twin.fma(a, b, c) == round_number("float32", Number("finite", exact < 0, abs(exact)))
        else:
            both = (x.negative != y.negative) and z.negative
            assert twin.fma(a, b, c) == (SIGN if both else 0)
    elif "nan" in (x.kind, y.kind, z.kind):
        assert twin.fma(a, b, c) == NAN


def test_fma_M2_equals_mpfr() -> None:
    gmpy2 = pytest.importorskip("gmpy2")
    float32 = gmpy2.context(precision=24, emax=128, emin=-148, subnormalize=True)
    a, b, c = sample(6), sample(7), sample(8)
    # A third of the sums nearly cancel.
    with np.errstate(all="ignore"):
        c[::3] = (-(a[::3].view(np.float32) * b[::3].view(np.float32))).view(np.uint32)
    for x, y, z in zip(a, b, c, strict=True):
        with gmpy2.context(float32):
            values = (gmpy2.mpfr(float(v.view(np.float32))) for v in (x, y, z))
            theirs = np.float32(float(gmpy2.fma(*values)))
        expected = NAN if np.isnan(theirs) else int(theirs.view(np.uint32))
        assert twin.fma(int(x), int(y), int(z)) == expected


@pytest.mark.parametrize(
    ("a", "b", "c", "expected"),
    [
        (0x7F000000, 0x40000000, 0xFF800000, 0xFF800000),  # a finite product beside -Inf
        (0x7F7FFFFF, 0x7F7FFFFF, 0xFF800000, 0xFF800000),  # also where the product alone overflows
        (INF, 0, 0x3F800000, NAN),
        (INF, 0x3F800000, 0xFF800000, NAN),
        (0, 0x3F800000, SIGN, 0),
        (SIGN, 0x3F800000, SIGN, SIGN),
        (0x80000001, 1, 0, SIGN),  # underflow keeps the sign of the exact result
    ],
)
def test_fma_M2_special_cases(a: int, b: int, c: int, expected: int) -> None:
    assert twin.fma(a, b, c) == expected


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_integer_division_E8_truncates(a: int, b: int) -> None:
    if b == 0:
        assert twin.divide_integer(a, b) == -1
    else:
        assert twin.divide_integer(a, b) == math.trunc(Fraction(a, b))


@given(st.integers(0, 1), st.integers(0, 1))
def test_bool_E8(a: int, b: int) -> None:
    for name in ("add", "maximum", "bitwise_or"):
        assert twin.BOOL[name](a, b) == (a or b)
    for name in ("multiply", "minimum", "bitwise_and"):
        assert twin.BOOL[name](a, b) == (a and b)
    assert twin.BOOL["bitwise_xor"](a, b) == int(a != b)
    assert twin.BOOL["bitwise_invert"](a) == int(not a)


def test_constants_are_the_formats() -> None:
    f = FORMATS["float32"]
    assert (f.nan_bits, 255 << 23, f.sign_bit) == (twin.NAN, twin.INF, twin.SIGN)
