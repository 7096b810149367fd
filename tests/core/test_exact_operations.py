"""Rules E6 to E9: the operations whose result is exact or rounded once, against the twin and others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from neuronsim import _core, dtypes
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.reference import elementwise as twin
from neuronsim.reference import formats
from tests.core.test_elementwise import integer_edges, integer_expectation
from tests.support.draws import MODES, mixed_words, random_words
from tests.support.evaluation import evaluate
from tests.support.parameters import each_of
from tests.support.processors import everywhere
from tests.support.words import (
    FLOAT8,
    FLOATS,
    INTEGERS,
    NARROW,
    SIGNED,
    Words,
    pairs_of,
    pairs_of_bytes,
    widened,
    word_type,
)

ROWS = {name: (arity, kind) for name, arity, kind in _core.OPS}
WHOLE = ["floor", "ceil", "trunc", "rint", "round_half_away"]
UNARY = [*WHOLE, "sign", "reciprocal"]
DIVISIONS = ["fmod", "remainder", "floor_divide"]
PREDICATES = list(twin.PREDICATE)
TOTAL = [f"{name}_total_order" for name in twin.COMPARISON]
SHIFTS = ["shift_left", "shift_right_arithmetic", "shift_right_logical"]
COUNTS = ["population_count", "count_leading_zeros"]
NAN = np.uint32(0x7FC00000)


def sign_of(type_name: str) -> Any:
    word = word_type(type_name)
    return word.type(1 << (8 * word.itemsize - 1))


def both_signs(magnitudes: Iterable[int], type_name: str = "float32") -> Words:
    positive = np.unique(np.fromiter(magnitudes, np.int64)).astype(word_type(type_name))
    return np.concatenate([positive, positive | sign_of(type_name)])


def bits_of(x: Any) -> Words:
    """float32 as words, every NaN the canonical one (E6)."""
    single = np.asarray(x, np.float32)
    return np.where(np.isnan(single), NAN, single.view(np.uint32))


def drawn_pairs(
    seed: int, type_name: str, count: int, modes: Sequence[str] = ("any", "special")
) -> tuple[Words, Words]:
    """All pairs of a type of 8 bits; of the others so many random ones of each mode."""
    if type_name in FLOAT8:
        return pairs_of_bytes()
    rng = np.random.default_rng(seed)
    return mixed_words(rng, type_name, count, modes), mixed_words(rng, type_name, count, modes)


def expected_words(name: str, type_name: str, *columns: Words) -> list[int]:
    """The twin's result as E1 says: float32 operands, one rounding to the type."""
    f = twin.FLOAT[name]
    wide = [widened(type_name, c) for c in columns]
    return [formats.convert("float32", type_name, f(*row)) for row in zip(*wide, strict=True)]


# ---- floor, ceil, trunc, rint, round_half_away, sign, reciprocal ---------------------------------


@cache
def single_points() -> Words:
    """float32 where the operations of one variable turn: zeros, subnormals, ties and their
    neighbours, the last fractions below 2^24, extremes, NaN with payload; and random patterns.
    """
    halves = [int(np.float32(k / 2).view(np.uint32)) for k in (*range(66), 255, 256, 257, 2047)]
    corners = [0x4A7FFFFF, 0x4A800000, 0x4AFFFFFF, 0x4B000000, 0x4B7FFFFF, 0x4B800000, 0x4BFFFFFF]
    corners += [0x5F000000, 0x4F000000, 0x00800000, 0x00400000, 0x7E800000, 0x7F000000, 0x7F7FFFF0]
    near = [w + d for w in (*halves, *corners) for d in range(-9, 10) if w + d >= 0]
    special = [0, 1, 2, 3, 0x7FFFFE, 0x7FFFFF, 0x800001, 0x7F7FFFFE, 0x7F7FFFFF, 0x7F800000]
    special += [0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FC00001, 0x7FFFFFFF]
    rng = np.random.default_rng(31)
    drawn = rng.integers(0, 1 << 32, 3000, np.uint32)
    fractions = rng.integers(0, 1 << 23, 3000, np.uint32)
    fractions |= rng.integers(120, 153, 3000, np.uint32) << np.uint32(23)
    return np.concatenate([both_signs([*near, *special]), drawn, fractions])


@cache
def expected_of_points(name: str) -> Words:
    return np.array([twin.FLOAT[name](w) for w in single_points().tolist()], np.uint32)


def half_away(x: np.ndarray) -> np.ndarray:
    """In float64 the sum with a half is exact wherever it decides the integer."""
    wide = x.astype(np.float64)
    return np.copysign(np.trunc(np.abs(wide) + 0.5), wide)


def hlo_sign(x: np.ndarray) -> np.ndarray:
    return np.where((x == 0) | np.isnan(x), x, np.copysign(np.float32(1), x))


NUMPY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "round_half_away": half_away,
    "sign": hlo_sign,
    "reciprocal": lambda x: np.float32(1) / x,
}


def check_against_numpy(name: str, words: Words) -> None:
    with np.errstate(all="ignore"):
        expected = bits_of(NUMPY[name](words.view(np.float32)))
    assert np.array_equal(evaluate(name, ("float32", words)), expected)


@pytest.mark.parametrize("name", UNARY)
def test_float32_E3_E9_equals_the_twin_and_numpy(isa: str, name: str) -> None:
    ours = evaluate(name, ("float32", single_points()))
    assert np.array_equal(ours, expected_of_points(name))
    drawn = np.random.default_rng(32).integers(0, 1 << 32, 1 << 18, np.uint32)
    fractions = drawn & np.uint32(0x81FFFFFF) | np.uint32(0x3E000000)  # magnitudes 2^-3 to 2^1
    fractions += np.uint32(0x01000000) * (drawn >> np.uint32(25) & np.uint32(15))
    check_against_numpy(name, np.concatenate([single_points(), drawn, fractions]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", UNARY)
def test_every_float32_E3_E9_equals_numpy(isa: str, name: str) -> None:
    block = np.arange(1 << 22, dtype=np.uint32)
    for start in range(0, 1 << 32, 1 << 22):
        check_against_numpy(name, block + np.uint32(start))


@each_of("type_name", NARROW)
@each_of("name", UNARY)
def test_narrow_E3_E9_equals_the_twin(restored_processor: None, name: str, type_name: str) -> None:
    if type_name in FLOAT8:
        words = np.arange(256, dtype=np.uint8)
    else:
        words = mixed_words(np.random.default_rng(33), type_name, 400, ("any", "special"))
        shift = formats.FORMATS[type_name].shift
        halves = [formats.from_float(type_name, k / 2) for k in range(66)]
        units = [h + (d << shift) for h in halves[1:] for d in (-1, 0, 1)]
        words = np.concatenate([words, both_signs([0, *units], type_name)])
    ours = everywhere(name, (type_name, words))
    assert ours.tolist() == expected_words(name, type_name, words)


@each_of("type_name", ["bfloat16", "float16"])
@each_of("name", UNARY)
def test_every_16_bit_value_E1_E9_equals_numpy_in_float32(isa: str, name: str, type_name: str) -> None:
    t = dtypes.DTYPES[type_name]
    words = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(all="ignore"):
        found = NUMPY[name](words.view(t.numpy).astype(np.float32)).astype(np.float32).astype(t.numpy)
    expected = np.where(np.isnan(found), np.uint16(t.nan_bits), found.view(np.uint16))
    assert np.array_equal(evaluate(name, (type_name, words)), expected)


# ---- fmod, remainder, floor_divide ---------------------------------------------------------------


def near_midpoints(count: int) -> tuple[list[int], list[int]]:
    """Operands whose exact quotient is nearly halfway between two floats, at every distance of the
    exponents: (M + r/b)·2^j for an odd 25-bit integer M, a 24-bit b and a small r. For 0 <= j < 24
    the floor can be the tie M·2^j itself. Every second b is just above r·2^j, so that the quotient is
    M·2^j + 1 but for less than float64 holds: only its exact floor is a tie.
    """
    rng = np.random.default_rng(34)
    dividends: list[int] = []
    divisors: list[int] = []
    exponents = itertools.cycle(range(-30, 150))
    while len(dividends) < count:
        if len(dividends) % 2:
            j = int(rng.integers(8, 24))
            r = int(rng.integers(1 << 23 - j, 1 << 24 - j)) | 1
            b = (r << j) + int(rng.integers(0, 1 << j - 6)) | 1
        else:
            j = next(exponents)
            r = int(rng.choice([-5, -3, -1, 1, 3, 5]))
            b = int(rng.integers(1 << 23, 1 << 24)) | 1
        m = -r * pow(b, -1, 1 << 25) % (1 << 25)
        a, rest = divmod(m * b + r, 1 << 25)
        assert rest == 0
        if m >> 24 != 1 or a >> 23 != 1:
            continue
        # With a·2^25 = M·b + r, a·2^ea over b·2^eb is (M + r/b)·2^(ea - eb - 25).
        difference = 25 + j
        eb = int(rng.integers(max(-149, -149 - difference), min(104, 104 - difference) + 1))
        for value, exponent, into in ((a, eb + difference, dividends), (b, eb, divisors)):
            into.append(int(np.float32(math.ldexp(value, exponent)).view(np.uint32)))
    return dividends, divisors


@cache
def division_pairs() -> tuple[Words, Words]:
    """Pairs of special values; random exponents over the full range, and close ones; multiples and
    their neighbours; quotients near midpoints; dividends of 1 to 32 units of a subnormal divisor.
    """
    rng = np.random.default_rng(35)
    special = both_signs(
        (
            *(0, 1, 2, 3, 0x7FFFFF, 0x800000, 0x800001, 0x3F7FFFFF, 0x3F800000, 0x3F800001),
            *(0x40400000, 0x4AFFFFFF, 0x4B000000, 0x4B7FFFFF, 0x4B800000, 0x7F000000),
            *(0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF),
        )
    )
    columns: list[Sequence[Words]] = [pairs_of(special, special)]
    drawn = rng.integers(0, 1 << 32, (2, 4000), np.uint32)
    columns.append(drawn)
    columns.append([drawn[0], drawn[0] & np.uint32(0x7F800000) | drawn[1] & np.uint32(0x807FFFFF)])
    close = drawn & np.uint32(0x807FFFFF)
    close |= rng.integers(121, 134, (2, 4000), np.uint32) << np.uint32(23)
    columns.append(close[:, :2000])
    divisor = rng.uniform(0.5, 2, 2000).astype(np.float32) * np.float32(2) ** rng.integers(
        -120, 90, 2000
    )
    factor = np.floor(2.0 ** rng.uniform(0, 26, 2000)) * rng.choice([-1, 1], 2000)
    multiple = (divisor * factor).astype(np.float32).view(np.uint32)
    multiple += rng.integers(-1, 2, 2000).astype(np.uint32)
    columns.append([multiple, divisor.astype(np.float32).view(np.uint32)])
    a, b = (np.array(x, np.uint32) for x in near_midpoints(2500))
    signs = rng.integers(0, 2, (2, 2500), np.uint32) << np.uint32(31)
    columns.append([a | signs[0], b | signs[1]])
    tiny = both_signs(range(33))
    columns.append(pairs_of(tiny, both_signs([1, 2, 3, 5, 7, 0x800000])))
    return np.concatenate([c[0] for c in columns]), np.concatenate([c[1] for c in columns])


@cache
def expected_divisions(name: str) -> Words:
    a, b = (x.tolist() for x in division_pairs())
    return np.array([twin.FLOAT[name](*pair) for pair in zip(a, b, strict=True)], np.uint32)


def test_points_E9_meet_what_they_aim_at() -> None:
    """The pairs near midpoints do give quotients on both sides of them, and floors that are ties."""
    dividends, divisors = near_midpoints(2500)
    ties = beside = 0
    for a, b in zip(dividends, divisors, strict=True):
        quotient = formats.decode("float32", a).value / formats.decode("float32", b).value
        whole = math.floor(quotient)
        if whole.bit_length() > 24:
            rest = whole & ((1 << (whole.bit_length() - 24)) - 1)
            half = 1 << (whole.bit_length() - 25)
            ties += rest == half
            beside += 0 < abs(rest - half) <= half >> 20
    assert ties > 100
    assert beside > 500


@pytest.mark.parametrize("name", DIVISIONS)
def test_division_E9_equals_the_twin(isa: str, name: str) -> None:
    a, b = division_pairs()
    ours = evaluate(name, ("float32", a), ("float32", b))
    expected = expected_divisions(name)
    wrong = np.flatnonzero(ours != expected)
    assert [tuple(hex(v) for v in (a[i], b[i], ours[i], expected[i])) for i in wrong[:5]] == []


def random_divisions(seed: int, n: int) -> tuple[Words, Words]:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 1 << 32, (2, n), np.uint32)
    b[n // 2 :] = b[n // 2 :] & np.uint32(0x807FFFFF) | a[n // 2 :] & np.uint32(0x7F800000)
    return a, b


@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_fmod_and_remainder_E9_equal_numpy(isa: str, name: str) -> None:
    """C's fmodf is exact, and NumPy's remainder adds the divisor in float32 as E9 says."""
    a, b = (
        np.concatenate(x) for x in zip(division_pairs(), random_divisions(36, 1 << 16), strict=True)
    )
    with np.errstate(all="ignore"):
        expected = bits_of(getattr(np, name)(a.view(np.float32), b.view(np.float32)))
    assert np.array_equal(evaluate(name, ("float32", a), ("float32", b)), expected)


def test_floor_divide_E9_equals_numpy_in_float64_where_that_is_exact(isa: str) -> None:
    """Quotients below 2^28: a - fmod(a, b) fits float64 and its quotient is the integer itself."""
    a, b = (
        np.concatenate(x) for x in zip(division_pairs(), random_divisions(37, 1 << 16), strict=True)
    )
    x, y = a.view(np.float32), b.view(np.float32)
    with np.errstate(all="ignore"):
        quotient = np.abs(x.astype(np.float64) / y)
        decided = np.isfinite(x) & np.isfinite(y) & (quotient < 2**28)
        expected = np.floor_divide(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    assert decided.sum() > 30000
    ours = evaluate("floor_divide", ("float32", a), ("float32", b)).view(np.float32)
    assert np.array_equal(ours[decided], expected[decided])
    # The sign of a zero is that of the quotient.
    zero = decided & (expected == 0)
    assert np.array_equal(np.signbit(ours[zero]), np.signbit(x[zero]) != np.signbit(y[zero]))


@each_of(
    ("a", "b", "fmod", "remainder", "floor"),
    [
        (7.0, -3.0, 1.0, -2.0, -3.0),
        (-7.0, 3.0, -1.0, 2.0, -3.0),
        (-6.0, 3.0, -0.0, 0.0, -2.0),
        (6.0, -3.0, 0.0, -0.0, -2.0),
        (0.0, -3.0, 0.0, -0.0, -0.0),
        (-1e-30, 1.0, -1e-30, 1.0, -1.0),  # the addition rounds to the divisor itself
        (5.0, math.inf, 5.0, 5.0, 0.0),
        (5.0, 0.0, math.nan, math.nan, math.inf),
        (math.inf, 2.0, math.nan, math.nan, math.inf),
        (0.0, 0.0, math.nan, math.nan, math.nan),
        (1e38, 1e-38, 2.3509886e-39, 2.3509886e-39, math.inf),
    ],
)
def test_division_E9_by_hand(
    isa: str, a: float, b: float, fmod: float, remainder: float, floor: float
) -> None:
    x, y = (("float32", np.array([v], np.float32).view(np.uint32)) for v in (a, b))
    if a == 1e38:
        fmod = remainder = float(np.fmod(np.float32(a), np.float32(b)))
    for name, expected in (("fmod", fmod), ("remainder", remainder), ("floor_divide", floor)):
        assert evaluate(name, x, y).tolist() == bits_of([expected]).tolist(), name


@each_of("type_name", NARROW)
@each_of("name", DIVISIONS)
def test_narrow_division_E1_E9_equals_the_twin(
    restored_processor: None, type_name: str, name: str
) -> None:
    rng = np.random.default_rng(38)
    modes = [("any", "any"), ("near", "near"), ("special", "special"), ("any", "special")]
    pairs = [[random_words(rng, type_name, 350, m) for m in pair] for pair in modes]
    a, b = map(np.concatenate, zip(*pairs, strict=True))
    ours = everywhere(name, (type_name, a), (type_name, b))
    assert ours.tolist() == expected_words(name, type_name, a, b)


# ---- clamp ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_name", FLOATS)
def test_clamp_E7_equals_the_twin(restored_processor: None, type_name: str) -> None:
    """Bounds in either order, ±0 and NaN with payload in every place."""
    f = formats.FORMATS[type_name]
    largest = ((1 << f.exponent_bits) - 1 << f.mantissa_bits) - 1 << f.shift
    one = f.bias << f.mantissa_bits + f.shift
    few = both_signs([0, 1 << f.shift, one, largest, f.nan_bits, f.nan_bits | 1 << f.shift], type_name)
    rng = np.random.default_rng(39)
    columns = [
        np.concatenate([g.ravel(), random_words(rng, type_name, 300, "near")])
        for g in np.meshgrid(few, few, few)
    ]
    ours = everywhere("clamp", *((type_name, c) for c in columns))
    assert ours.tolist() == expected_words("clamp", type_name, *columns)


@pytest.mark.parametrize("type_name", INTEGERS)
def test_clamp_E7_on_integers_equals_python(isa: str, type_name: str) -> None:
    info, rng = np.iinfo(type_name), np.random.default_rng(40)
    edges = np.array(
        [0, 1, 2, info.max, info.max - 1, info.min, info.min + 1, info.max // 3], type_name
    )
    columns = [
        np.concatenate([g.ravel().view(word_type(type_name)), random_words(rng, type_name, 300)])
        for g in np.meshgrid(edges, edges, edges)
    ]
    rows = zip(*(c.view(type_name).tolist() for c in columns), strict=True)
    ours = evaluate("clamp", *((type_name, c) for c in columns)).view(type_name)
    assert ours.tolist() == [min(max(x, low), high) for low, x, high in rows]


def test_clamp_E7_takes_bounds_without_axes(isa: str) -> None:
    x = np.arange(-50, 50, dtype=np.int8).reshape(10, 10)
    bounds = [("int8", np.array(v, np.int8)) for v in (-3, 7)]
    ours = evaluate("clamp", bounds[0], ("int8", x.view(np.uint8)), bounds[1]).view(np.int8)
    assert np.array_equal(ours, np.clip(x, -3, 7))
    with pytest.raises(InvalidArgument, match="does not clamp"):
        evaluate("clamp", ("int8", np.zeros(3, np.uint8)), ("int8", x), bounds[1])


# ---- copysign and the predicates -----------------------------------------------------------------


@pytest.mark.parametrize("type_name", FLOATS)
def test_copysign_E6_moves_the_sign_and_nothing_else(isa: str, type_name: str) -> None:
    """A NaN's payload stays, as do those of both operands' signs."""
    a, b = drawn_pairs(41, type_name, 2000)
    sign = sign_of(type_name)
    ours = evaluate("copysign", (type_name, a), (type_name, b))
    assert np.array_equal(ours, a & ~sign | b & sign)


def test_copysign_E6_equals_the_twin() -> None:
    a, b = division_pairs()
    expected = [twin.FLOAT["copysign"](*p) for p in zip(a.tolist(), b.tolist(), strict=True)]
    assert evaluate("copysign", ("float32", a), ("float32", b)).tolist() == expected


@each_of("type_name", FLOATS)
@each_of("name", PREDICATES)
def test_predicate_E7_equals_the_twin_and_numpy(isa: str, name: str, type_name: str) -> None:
    t = dtypes.DTYPES[type_name]
    every = single_points() if t.itemsize == 4 else np.arange(1 << t.bits, dtype=word_type(type_name))
    if type_name != "tfloat32":
        with np.errstate(invalid="ignore"):  # ml_dtypes' isnan of a signalling NaN
            expected = getattr(np, name)(every.view(t.numpy))
        assert np.array_equal(evaluate(name, (type_name, every)), expected)
    few = mixed_words(np.random.default_rng(42), type_name, 700, ("any", "special"))
    few = every if type_name in FLOAT8 else few
    predicate = twin.PREDICATE[name]
    assert evaluate(name, (type_name, few)).tolist() == [
        int(predicate(w)) for w in widened(type_name, few)
    ]


@pytest.mark.parametrize("type_name", [*INTEGERS, "bool"])
def test_predicate_E7_of_integers(isa: str, type_name: str) -> None:
    every, word = [0, 1] if type_name == "bool" else np.arange(256), word_type(type_name)
    words = np.array(every, word) << word.type(8 * (word.itemsize - 1))
    negative = words.view(type_name) < 0 if type_name in SIGNED else np.zeros(len(words), bool)
    for name in PREDICATES:
        expected = negative if name == "signbit" else np.full(len(words), name == "isfinite")
        assert np.array_equal(evaluate(name, (type_name, words)), expected), name


# ---- total order ---------------------------------------------------------------------------------


def order_of(type_name: str, words: Words) -> Words:
    """Encodings as integers in TOTALORDER, NaN by payload: the signed word, negative ones mirrored."""
    bits = words.astype(np.int64)
    half = 1 << (8 * words.itemsize - 1)
    return np.where(bits >= half, half - 1 - bits, bits)


@pytest.mark.parametrize("name", TOTAL)
def test_total_order_E7_equals_the_twin(isa: str, name: str) -> None:
    few = both_signs(
        (
            *(0, 1, 2, 0x7FFFFF, 0x800000, 0x3F800000, 0x3F800001, 0x7F7FFFFF, 0x7F800000),
            *(0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FC00001, 0x7FFFFFFF),
        )
    )
    rng = np.random.default_rng(43)
    a, b = (np.append(g, rng.integers(0, 1 << 32, 1000, np.uint32)) for g in pairs_of(few, few))
    plain = name.removesuffix("_total_order")
    expected = [twin.compare_total_order(plain, *p) for p in zip(a.tolist(), b.tolist(), strict=True)]
    ours = evaluate(name, ("float32", a), ("float32", b))
    assert ours.tolist() == expected
    assert np.array_equal(ours, getattr(np, plain)(order_of("float32", a), order_of("float32", b)))


@pytest.mark.parametrize("name", TOTAL)
def test_narrow_total_order_E7_is_that_of_the_encodings(isa: str, name: str) -> None:
    """All pairs of float8, and samples of the others; the payloads of NaN count as in float32."""
    order = getattr(np, name.removesuffix("_total_order"))
    for type_name in NARROW:
        a, b = drawn_pairs(44, type_name, 3000)
        expected = order(order_of(type_name, a), order_of(type_name, b))
        assert np.array_equal(evaluate(name, (type_name, a), (type_name, b)), expected)


@pytest.mark.parametrize("name", TOTAL)
def test_total_order_E7_of_integers_is_the_plain_order(isa: str, name: str) -> None:
    for type_name in [*INTEGERS, "bool"]:
        rng = np.random.default_rng(45)
        a, b = (random_words(rng, type_name, 600) for _ in range(2))
        b[::5] = a[::5]
        plain = evaluate(name.removesuffix("_total_order"), (type_name, a), (type_name, b))
        theirs = getattr(np, name.removesuffix("_total_order"))(a.view(type_name), b.view(type_name))
        ours = evaluate(name, (type_name, a), (type_name, b))
        assert np.array_equal(ours, plain)
        assert np.array_equal(ours, theirs)


# ---- nextafter -----------------------------------------------------------------------------------


@pytest.mark.parametrize("type_name", FLOATS)
def test_nextafter_E9_equals_the_twin(type_name: str) -> None:
    rng = np.random.default_rng(46)
    modes = [("any", "any"), ("special", "special"), ("near", "near"), ("any", "special")]
    drawn = [[random_words(rng, type_name, 800, m) for m in p] for p in modes]
    a, b = map(np.concatenate, zip(*drawn, strict=True))
    b[::9] = a[::9]
    expected = [twin.nextafter(type_name, *p) for p in zip(a.tolist(), b.tolist(), strict=True)]
    assert evaluate("nextafter", (type_name, a), (type_name, b)).tolist() == expected


@pytest.mark.parametrize("type_name", ["float32", "bfloat16", "float16", *FLOAT8])
def test_nextafter_E9_equals_numpy_or_ml_dtypes(type_name: str) -> None:
    """All pairs of float8, where only a NaN's bits and the zero that equals the other are ours."""
    t = dtypes.DTYPES[type_name]
    a, b = drawn_pairs(47, type_name, 20000, MODES)
    x, y = a.view(t.numpy), b.view(t.numpy)
    with np.errstate(all="ignore"):
        theirs = np.nextafter(x, y)
        assert theirs.dtype == t.numpy
        expected = np.where(np.isnan(theirs), a.dtype.type(t.nan_bits), theirs.view(a.dtype))
        expected = np.where(x == y, b, expected)
    assert np.array_equal(evaluate("nextafter", (type_name, a), (type_name, b)), expected)


@pytest.mark.parametrize("type_name", ["float8_e4m3fn", "int8", "bool"])
def test_nextafter_E9_does_not_exist_for_other_types(type_name: str) -> None:
    x = (type_name, np.zeros(3, np.uint8))
    with pytest.raises(UnsupportedType, match=type_name):
        evaluate("nextafter", x, x)


# ---- integers ------------------------------------------------------------------------------------


@each_of("type_name", INTEGERS)
@each_of("name", SHIFTS)
def test_shift_E8_by_every_amount(isa: str, name: str, type_name: str) -> None:
    """0 to the width + 1, and amounts that are huge, or negative and therefore huge."""
    info, rng = np.iinfo(type_name), np.random.default_rng(48)
    values = np.concatenate([integer_edges(type_name), random_words(rng, type_name, 20)])
    amounts = [*range(info.bits + 2), 2 * info.bits - 1, 2 * info.bits, info.max, info.max - 1]
    if type_name in SIGNED:
        amounts += [-1, -2, -info.bits, info.min, info.min + 1]
    if info.bits == 64:
        amounts += [2**32, 2**32 + 1, 2**62]
    kept = np.array([n for n in amounts if n <= info.max], type_name).view(word_type(type_name))
    columns = list(pairs_of(values, kept))
    ours = evaluate(name, *((type_name, c) for c in columns))
    assert np.array_equal(ours, integer_expectation(name, type_name, columns))


@each_of("type_name", INTEGERS)
@each_of("name", SHIFTS)
def test_shift_E8_equals_numpy(isa: str, name: str, type_name: str) -> None:
    """NumPy too shifts everything out from the width on, and reads a negative amount as huge."""
    rng = np.random.default_rng(49)
    bits = np.iinfo(type_name).bits
    a = random_words(rng, type_name, 5000)
    b = np.where(
        rng.random(5000) < 0.8, rng.integers(0, bits + 2, 5000), random_words(rng, "int8", 5000)
    )
    b = b.astype(np.int8).astype(type_name).view(a.dtype)
    signed, unsigned = f"i{a.itemsize}", f"u{a.itemsize}"
    if name == "shift_left":
        expected = np.left_shift(a.view(unsigned), b.view(unsigned))
    else:
        kind = signed if name == "shift_right_arithmetic" else unsigned
        expected = np.right_shift(a.view(kind), b.view(kind)).view(unsigned)
    assert np.array_equal(evaluate(name, (type_name, a), (type_name, b)), expected)


@each_of("type_name", INTEGERS)
@each_of("name", COUNTS)
def test_counts_E8_equal_python(isa: str, name: str, type_name: str) -> None:
    bits, rng = np.iinfo(type_name).bits, np.random.default_rng(50)
    powers = np.array([1 << k for k in range(bits)] + [(1 << k) - 1 for k in range(bits + 1)], object)
    words = np.concatenate([powers.astype(word_type(type_name)), random_words(rng, type_name, 500)])
    patterns = [f"{w:0{bits}b}" for w in words.tolist()]
    if name == "population_count":
        expected = [p.count("1") for p in patterns]
        numpys = np.bitwise_count(words)
        assert numpys.tolist() == expected
    else:
        expected = [len(p) - len(p.lstrip("0")) for p in patterns]
    assert evaluate(name, (type_name, words)).tolist() == expected
    assert integer_expectation(name, type_name, [words]).tolist() == expected


@pytest.mark.parametrize("type_name", INTEGERS)
def test_integers_E8_equal_pythons_own_operators(isa: str, type_name: str) -> None:
    """Python's // and %, math.fmod's sign, and pow modulo 2^n."""
    rng = np.random.default_rng(52)
    info = np.iinfo(type_name)
    a = np.concatenate([random_words(rng, type_name, 800), integer_edges(type_name)])
    b = rng.permutation(a)
    b[::2] %= a.dtype.type(23)

    def ours(name: str) -> list[int]:
        found: list[int] = evaluate(name, (type_name, a), (type_name, b)).view(type_name).tolist()
        return found

    pairs = list(zip(a.view(type_name).tolist(), b.view(type_name).tolist(), strict=True))
    wrap = np.dtype(type_name).type
    results = zip(pairs, *map(ours, ("floor_divide", "remainder", "fmod", "power")), strict=True)
    for (x, y), floor, modulo, rest, power in results:
        if y == 0:
            assert (floor, modulo, rest) == (0, 0, x)
        elif (x, y) != (info.min, -1):
            assert (floor, modulo) == divmod(x, y)
            assert rest == int(math.copysign(1, x)) * (abs(x) % abs(y))
        else:
            assert (floor, modulo, rest) == (info.min, 0, 0)
        if y >= 0:
            assert power == np.array(pow(x, y, 1 << info.bits), np.uint64).astype(wrap), (x, y)


@pytest.mark.parametrize("type_name", INTEGERS)
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 6, 13, 100])
def test_integers_E8_to_one_power_equal_pythons(isa: str, type_name: str, exponent: int) -> None:
    rng = np.random.default_rng(53)
    x = np.concatenate([random_words(rng, type_name, 700), integer_edges(type_name)])
    found = evaluate("power", (type_name, x), (type_name, np.full_like(x, exponent)))
    modulus = 1 << np.iinfo(type_name).bits
    assert found.tolist() == [pow(v, exponent, modulus) for v in x.tolist()]


REFUSED = [(name, t) for name in (*SHIFTS, *COUNTS) for t in FLOATS]
REFUSED += [(n, t) for n in (*WHOLE, "reciprocal", "copysign") for t in ("int8", "uint64", "bool")]


@each_of(("name", "type_name"), REFUSED)
def test_operations_E8_of_integers_and_E9_of_floats_do_not_exist_for_the_others(
    name: str, type_name: str
) -> None:
    x = (type_name, np.zeros(3, word_type(type_name)))
    with pytest.raises(UnsupportedType, match=type_name):
        evaluate(name, *[x] * ROWS[name][0])


def test_bool_E8_has_the_operations_of_the_rule(isa: str) -> None:
    """The others are refused; what is written is one of the two encodings."""
    for name in [n for n, (arity, _) in ROWS.items() if arity < 3]:
        if name == "logical_not":
            continue
        a, b = np.array([0, 0, 1, 1] * 9, np.uint8), np.array([0, 1, 0, 1] * 9, np.uint8)
        try:
            ours = evaluate(name, *[("bool", a), ("bool", b)][: ROWS[name][0]])
        except UnsupportedType:
            assert name not in twin.BOOL
            assert ROWS[name][1] != "comparison"
            continue
        assert name in twin.BOOL or ROWS[name][1] == "comparison"
        assert set(ours.tolist()) <= {0, 1}
