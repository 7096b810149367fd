"""Rules E: every row of csrc/ops.def against the twin, on every type that the row has."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from neuronsim import _core
from neuronsim.errors import UnsupportedType
from neuronsim.reference import elementwise as twin
from neuronsim.reference import formats
from neuronsim.reference.functions import FUNCTIONS
from tests.support.draws import mixed_words, random_words
from tests.support.evaluation import evaluate
from tests.support.processors import everywhere
from tests.support.words import FLOATS, NARROW, SIGNED, UNSIGNED, Words, pairs_of, widened, word_type

ROWS = {name: (arity, kind) for name, arity, kind in _core.OPS}
ARITHMETIC = ("reducer", "arithmetic", "floating", "function")
BINARY = [n for n, (arity, kind) in ROWS.items() if arity == 2 and kind in ARITHMETIC]
COMPARISONS = list(twin.COMPARISON)
INTEGER = [n for n in twin.INTEGER if ROWS[n][0] < 3]
OF_INTEGERS = [*INTEGER, *COMPARISONS, *twin.INTEGER_BITS]
CORRECTLY_ROUNDED = [n for n in FUNCTIONS if n in ROWS and ROWS[n][0] == 1]

_MAGNITUDES = [0x00000000, 0x00000001, 0x00000002, 0x00400000, 0x007FFFFF, 0x00800000, 0x00800001]
_MAGNITUDES += [0x1F800000, 0x20000000, 0x33800000, 0x33800001, 0x34000000, 0x3F7FFFFF, 0x3F800000]
_MAGNITUDES += [0x3F800001, 0x40000000, 0x40400000, 0x4B000000, 0x4B7FFFFF, 0x7E800000, 0x7F000000]
_MAGNITUDES += [0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FC00001, 0x7FFFFFFF]
SPECIAL = np.array([m | s for m in _MAGNITUDES for s in (0, 0x80000000)], np.uint32)


# ---- float32 -----------------------------------------------------------------------------------


@cache
def float_pairs() -> tuple[Words, Words]:
    """Every pair of special values, and random patterns: of any exponent, and of close exponents."""
    rng = np.random.default_rng(10)
    a, b = pairs_of(SPECIAL, SPECIAL)
    drawn = rng.integers(0, 1 << 32, (2, 4000), np.uint32)
    close = drawn & np.uint32(0x807FFFFF)
    close |= rng.integers(121, 134, (2, 4000), np.uint32) << np.uint32(23)
    return np.concatenate([a, drawn[0], close[0]]), np.concatenate([b, drawn[1], close[1]])


@cache
def expected_of_pairs(name: str) -> Words:
    a, b = (x.tolist() for x in float_pairs())
    f = twin.FLOAT.get(name) or (lambda x, y: twin.compare(name, x, y))
    return np.array([f(x, y) for x, y in zip(a, b, strict=True)], np.uint32)


@pytest.mark.parametrize("name", [*BINARY, *COMPARISONS])
def test_float32_E2_E7_equals_the_twin(isa: str, name: str) -> None:
    """From memory to memory, and by tiles, which take what does not lie side by side."""
    a, b = float_pairs()
    for x, y in ((a, b), (np.repeat(a, 2)[::2], b)):
        assert np.array_equal(evaluate(name, ("float32", x), ("float32", y)), expected_of_pairs(name))


REFUSED = [(n, "float32") for n in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert")]
REFUSED += [(name, "int32") for name in CORRECTLY_ROUNDED]


@pytest.mark.parametrize(("name", "type_name"), REFUSED)
def test_bit_operations_E8_and_functions_E3_do_not_exist_for_other_types(
    name: str, type_name: str
) -> None:
    with pytest.raises(UnsupportedType, match=type_name):
        evaluate(name, *[(type_name, SPECIAL)] * ROWS[name][0])


# ---- E1: narrow types --------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*BINARY, *CORRECTLY_ROUNDED, *COMPARISONS])
def test_narrow_E1_loads_computes_and_rounds_once(restored_processor: None, name: str) -> None:
    count = 50 if name in FUNCTIONS else 120
    for type_name in NARROW:
        rng = np.random.default_rng(14)
        columns = [mixed_words(rng, type_name, count) for _ in range(ROWS[name][0])]
        rows = list(zip(*(widened(type_name, c) for c in columns), strict=True))
        if name in COMPARISONS:
            expected = [int(twin.compare(name, *row)) for row in rows]
        else:
            results = (twin.FLOAT[name](*row) for row in rows)
            expected = [formats.convert("float32", type_name, r) for r in results]
        assert everywhere(name, *((type_name, c) for c in columns)).tolist() == expected, type_name


# ---- E6: what moves bits -----------------------------------------------------------------------


@pytest.mark.parametrize("type_name", FLOATS)
def test_negative_and_abs_E6_flip_the_sign_and_nothing_else(isa: str, type_name: str) -> None:
    words = mixed_words(np.random.default_rng(15), type_name, 700, ("any", "special"))
    sign = words.dtype.type(1 << (8 * words.itemsize - 1))
    assert np.array_equal(evaluate("negative", (type_name, words)), words ^ sign)
    assert np.array_equal(evaluate("abs", (type_name, words)), words & ~sign)


@pytest.mark.parametrize("type_name", [*FLOATS, *SIGNED, *UNSIGNED, "bool"])
def test_select_E6_moves_bits(isa: str, type_name: str) -> None:
    rng = np.random.default_rng(16)
    condition = rng.integers(0, 2, 900, np.uint8)
    a, b = (random_words(rng, type_name, 900, "special") for _ in range(2))
    ours = evaluate("select", ("bool", condition), (type_name, a), (type_name, b))
    assert np.array_equal(ours, np.where(condition == 1, a, b))
    one = evaluate("select", ("bool", np.array(1, np.uint8)), (type_name, a), (type_name, b))
    assert np.array_equal(one, a)


@pytest.mark.parametrize("type_name", FLOATS)
def test_nan_E6_that_arithmetic_makes_is_canonical(isa: str, type_name: str) -> None:
    for name in [*BINARY, *CORRECTLY_ROUNDED]:
        f = formats.FORMATS[type_name]
        lowest = ((1 << f.exponent_bits) - 1 << f.mantissa_bits) + 1 << f.shift
        nans = [f.nan_bits | s | p for s in (0, f.sign_bit) for p in (0, 1 << f.shift)]
        nans += [lowest, lowest | f.sign_bit]
        words = np.array(nans, word_type(type_name))
        ours = evaluate(name, *[(type_name, words)] * ROWS[name][0])
        assert ours.tolist() == [f.nan_bits] * len(nans)


# ---- E8: integers and bool ---------------------------------------------------------------------


def integer_expectation(name: str, type_name: str, columns: list[Words]) -> Words:
    bits = np.iinfo(type_name).bits
    rows = zip(*(c.view(type_name).tolist() for c in columns), strict=True)
    if name in COMPARISONS:
        return np.array([int(twin.COMPARISON[name](*row)) for row in rows], np.uint8)
    if name in twin.INTEGER_BITS:
        found = [twin.INTEGER_BITS[name](*row, bits) for row in rows]
    else:
        found = [twin.INTEGER[name](*row) for row in rows]
    return np.array([v & ((1 << bits) - 1) for v in found], word_type(type_name))


@cache
def all_pairs_of_bytes(name: str, type_name: str) -> tuple[list[Words], Words]:
    values = np.arange(256, dtype=np.uint8)
    grid = list(pairs_of(values, values)) if ROWS[name][0] == 2 else [values]
    return grid, integer_expectation(name, type_name, grid)


@pytest.mark.parametrize("type_name", ["int8", "uint8"])
def test_every_pair_of_bytes_E8_equals_python(isa: str, type_name: str) -> None:
    for name in OF_INTEGERS:
        columns, expected = all_pairs_of_bytes(name, type_name)
        assert np.array_equal(evaluate(name, *((type_name, c) for c in columns)), expected), name


def integer_edges(type_name: str) -> Words:
    info = np.iinfo(type_name)
    edges = [0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min + 1]
    x = np.array([*edges, info.max // 2, info.max // 3], type_name)
    return np.concatenate([x, -x]).view(word_type(type_name))


@pytest.mark.parametrize("type_name", [*SIGNED[1:], *UNSIGNED[1:]])
def test_wide_integers_E8_equal_python(isa: str, type_name: str) -> None:
    """Small divisors and exponents among them."""
    edges = integer_edges(type_name)
    for name in OF_INTEGERS:
        rng = np.random.default_rng(17)
        grid = pairs_of(edges, edges)[: ROWS[name][0]]
        columns = [np.append(g, random_words(rng, type_name, 800)) for g in grid]
        if len(columns) == 2:
            columns[1][-500:] &= edges.dtype.type(15)
        expected = integer_expectation(name, type_name, columns)
        assert np.array_equal(evaluate(name, *((type_name, c) for c in columns)), expected), name


@pytest.mark.parametrize("type_name", ["int32", "uint32", "int16", "int64", "int8", "uint8"])
def test_division_E8_by_one_for_all(isa: str, type_name: str) -> None:
    """Of the neighbours of its multiples, the largest among them; and by one that is another once."""
    info, rng = np.iinfo(type_name), np.random.default_rng(41)
    divisors = {*integer_edges(type_name).view(type_name).tolist(), 5, 10, 97, 641, 1000, 28657}
    divisors |= {int(d) for d in random_words(rng, type_name, 20).view(type_name)}
    for divisor in sorted(d for d in divisors if info.min <= d <= info.max):
        most = min(info.max // max(abs(divisor), 1), 1 << 30)
        quotients = [*rng.integers(0, most, 90, endpoint=True).tolist(), most]
        near = (s * q * divisor + d for q in quotients for s in (1, -1) for d in (-1, 0, 1))
        kept = [*(x for x in near if info.min <= x <= info.max), info.min, info.max]
        a = np.array(kept, type_name).view(word_type(type_name))
        b = np.full(a.shape, divisor, type_name).view(a.dtype)
        for other in (divisor, 3):
            b[len(b) // 2] = a.dtype.type(other & ((1 << info.bits) - 1))
            for name in ("divide", "fmod", "remainder", "floor_divide"):
                ours = evaluate(name, (type_name, a), (type_name, b))
                assert np.array_equal(ours, integer_expectation(name, type_name, [a, b])), (
                    name,
                    divisor,
                )


@pytest.mark.parametrize("type_name", ["int8", "uint8", "int32", "uint64"])
def test_power_E8_of_one_for_all_in_a_long_block(isa: str, type_name: str) -> None:
    """Of one exponent everywhere, and of two in different parts."""
    x = random_words(np.random.default_rng(42), type_name, 5000)
    for first, second in ((3, 3), (3, 6), (0, 5)):
        exponents = np.full(x.shape, first, x.dtype)
        exponents[1300:] = second
        ours = evaluate("power", (type_name, x), (type_name, exponents))
        assert np.array_equal(ours, integer_expectation("power", type_name, [x, exponents]))


@pytest.mark.parametrize("type_name", [*SIGNED, *UNSIGNED])
def test_division_E8_by_zero_and_of_the_smallest(isa: str, type_name: str) -> None:
    info = np.iinfo(type_name)
    cases = [(7, 0, info.max), (0, 0, info.max), (7, 2, 3)]
    if type_name in SIGNED:
        cases = [(7, 0, -1), (-7, 0, -1), (0, 0, -1), (info.min, 0, -1), (info.min, -1, info.min)]
        cases += [(-7, 2, -3), (7, -2, -3)]
    a, b, expected = np.array(cases, type_name).T
    operands = ((type_name, np.ascontiguousarray(x).view(word_type(type_name))) for x in (a, b))
    assert evaluate("divide", *operands).view(type_name).tolist() == expected.tolist()


@pytest.mark.parametrize("name", [*twin.BOOL, *COMPARISONS])
def test_bool_E8_equals_the_twin(isa: str, name: str) -> None:
    a, b = np.array([0, 0, 1, 1] * 9, np.uint8), np.array([0, 1, 0, 1] * 9, np.uint8)
    columns = [a, b][: ROWS[name][0]]
    f = twin.BOOL.get(name) or twin.COMPARISON[name]
    expected = [int(f(*p)) for p in zip(*(c.tolist() for c in columns), strict=True)]
    assert evaluate(name, *(("bool", c) for c in columns)).tolist() == expected
