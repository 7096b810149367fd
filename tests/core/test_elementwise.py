"""Rules E: every row of csrc/ops.def against the twin, on every type that the row has."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest

from neuronsim import _core, dtypes
from neuronsim.errors import UnsupportedType
from neuronsim.reference import elementwise as twin
from neuronsim.reference import formats
from neuronsim.reference.functions import FUNCTIONS
from tests.support.draws import random_words
from tests.support.evaluation import evaluate
from tests.support.processors import every_processor
from tests.support.words import Words

ROWS = {name: (arity, kind) for name, arity, kind in _core.OPS}
ARITHMETIC = ("reducer", "arithmetic", "floating", "function")
BINARY = [n for n, (arity, kind) in ROWS.items() if arity == 2 and kind in ARITHMETIC]
COMPARISONS = list(twin.COMPARISON)
INTEGER = [n for n in twin.INTEGER if ROWS[n][0] < 3]
CORRECTLY_ROUNDED = [n for n in FUNCTIONS if n in ROWS and ROWS[n][0] == 1]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
NARROW = ["tfloat32", "bfloat16", "float16", "float8_e5m2", "float8_e4m3", "float8_e3m4"]

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
    a, b = (x.ravel() for x in np.meshgrid(SPECIAL, SPECIAL))
    drawn = rng.integers(0, 1 << 32, (2, 4000), np.uint32)
    close = drawn & np.uint32(0x807FFFFF) | rng.integers(121, 134, (2, 4000), np.uint32) << np.uint32(
        23
    )
    return np.concatenate([a, drawn[0], close[0]]), np.concatenate([b, drawn[1], close[1]])


@cache
def expected_of_pairs(name: str) -> Words:
    a, b = (x.tolist() for x in float_pairs())
    f = twin.FLOAT.get(name) or (lambda x, y: twin.compare(name, x, y))
    return np.array([f(x, y) for x, y in zip(a, b, strict=True)], np.uint32)


@pytest.mark.parametrize("name", [*BINARY, *COMPARISONS])
def test_float32_E2_E7_equals_the_twin(isa: str, name: str) -> None:
    a, b = float_pairs()
    assert np.array_equal(evaluate(name, ("float32", a), ("float32", b)), expected_of_pairs(name))


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide"])
def test_float32_E2_is_the_processors_own_arithmetic(name: str) -> None:
    """A third party at a million points: NumPy computes these four in IEEE binary32."""
    rng = np.random.default_rng(11)
    a, b = rng.integers(0, 1 << 32, (2, 1 << 20), np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(a, b)
    ours = evaluate(name, ("float32", a.view(np.uint32)), ("float32", b.view(np.uint32)))
    nan = np.isnan(expected)
    assert np.array_equal(ours[~nan], expected[~nan].view(np.uint32))
    assert set(ours[nan].tolist()) == {0x7FC00000}  # E6


@pytest.mark.parametrize(
    ("a", "b", "largest", "smallest"),
    [
        (0x80000000, 0x00000000, 0x00000000, 0x80000000),
        (0x00000000, 0x80000000, 0x00000000, 0x80000000),
        (0x7F800001, 0x3F800000, 0x7FC00000, 0x7FC00000),
        (0x3F800000, 0xFFC00001, 0x7FC00000, 0x7FC00000),
    ],
)
def test_maximum_minimum_E7_zeros_and_nan(
    isa: str, a: int, b: int, largest: int, smallest: int
) -> None:
    x, y = (("float32", np.array([v] * 20, np.uint32)) for v in (a, b))
    assert evaluate("maximum", x, y).tolist() == [largest] * 20
    assert evaluate("minimum", x, y).tolist() == [smallest] * 20


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert"])
def test_bit_operations_E8_do_not_exist_for_floats(name: str) -> None:
    x = ("float32", SPECIAL)
    with pytest.raises(UnsupportedType, match="float32"):
        evaluate(name, *[x] * ROWS[name][0])


@pytest.mark.parametrize("name", CORRECTLY_ROUNDED)
def test_functions_E3_do_not_exist_for_integers(name: str) -> None:
    with pytest.raises(UnsupportedType, match="int32"):
        evaluate(name, ("int32", np.zeros(3, np.uint32)))


# ---- E1: narrow types --------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*BINARY, *CORRECTLY_ROUNDED, *COMPARISONS])
def test_narrow_E1_loads_computes_and_rounds_once(restored_processor: None, name: str) -> None:
    for type_name in NARROW:
        rng = np.random.default_rng(14)
        arity = ROWS[name][0]
        counts = (60, 30, 60) if name in FUNCTIONS else (120, 120, 100)
        columns = [
            np.concatenate(
                [random_words(rng, type_name, n, m) for n, m in zip(counts, modes, strict=True)]
            )
            for modes in itertools.repeat(("any", "near", "special"), arity)
        ]
        wide = [[formats.convert(type_name, "float32", w) for w in c.tolist()] for c in columns]
        if name in COMPARISONS:
            expected = [int(twin.compare(name, *p)) for p in zip(*wide, strict=True)]
        else:
            f = twin.FLOAT[name]
            expected = [formats.convert("float32", type_name, f(*p)) for p in zip(*wide, strict=True)]
        for where in every_processor((1,)):
            assert evaluate(name, *((type_name, c) for c in columns)).tolist() == expected, where


# ---- E6: what moves bits -----------------------------------------------------------------------


@pytest.mark.parametrize("type_name", ["float32", *NARROW])
def test_negative_and_abs_E6_flip_the_sign_and_nothing_else(isa: str, type_name: str) -> None:
    rng = np.random.default_rng(15)
    words = np.concatenate([random_words(rng, type_name, 700, m) for m in ("any", "special")])
    sign = words.dtype.type(1 << (8 * words.itemsize - 1))
    assert np.array_equal(evaluate("negative", (type_name, words)), words ^ sign)
    assert np.array_equal(evaluate("abs", (type_name, words)), words & ~sign)


@pytest.mark.parametrize("type_name", ["float32", *NARROW, *SIGNED, *UNSIGNED, "bool"])
def test_select_E6_moves_bits(isa: str, type_name: str) -> None:
    rng = np.random.default_rng(16)
    condition = rng.integers(0, 2, 900, np.uint8)
    a, b = (random_words(rng, type_name, 900, "special") for _ in range(2))
    ours = evaluate("select", ("bool", condition), (type_name, a), (type_name, b))
    assert np.array_equal(ours, np.where(condition == 1, a, b))
    one = evaluate("select", ("bool", np.array(1, np.uint8)), (type_name, a), (type_name, b))
    assert np.array_equal(one, a)


@pytest.mark.parametrize("type_name", ["float32", *NARROW])
def test_nan_E6_that_arithmetic_makes_is_canonical(isa: str, type_name: str) -> None:
    for name in [*BINARY, *CORRECTLY_ROUNDED]:
        f = formats.FORMATS[type_name]
        lowest = ((1 << f.exponent_bits) - 1 << f.mantissa_bits) + 1 << f.shift
        nans = [f.nan_bits | s | p for s in (0, f.sign_bit) for p in (0, 1 << f.shift)]
        nans += [lowest, lowest | f.sign_bit]
        words = np.array(nans, f"u{dtypes.DTYPES[type_name].itemsize}")
        ours = evaluate(name, *[(type_name, words)] * ROWS[name][0])
        assert ours.tolist() == [f.nan_bits] * len(nans)


# ---- E8: integers and bool ---------------------------------------------------------------------


def integer_expectation(name: str, type_name: str, columns: list[list[int]]) -> list[int]:
    info = np.iinfo(type_name)
    if name in COMPARISONS:
        return [int(twin.COMPARISON[name](*p)) for p in zip(*columns, strict=True)]
    mask = (1 << info.bits) - 1
    return [twin.INTEGER[name](*p) & mask for p in zip(*columns, strict=True)]


@cache
def all_pairs_of_bytes(name: str, type_name: str) -> tuple[list[Words], Words]:
    values = np.arange(256, dtype=np.uint8)
    grid = [x.ravel() for x in np.meshgrid(values, values)] if ROWS[name][0] == 2 else [values]
    return grid, np.array(
        integer_expectation(name, type_name, [x.view(type_name).tolist() for x in grid]), np.uint8
    )


@pytest.mark.parametrize("type_name", ["int8", "uint8"])
def test_every_pair_of_bytes_E8_equals_python(isa: str, type_name: str) -> None:
    for name in [*INTEGER, *COMPARISONS]:
        columns, expected = all_pairs_of_bytes(name, type_name)
        assert np.array_equal(evaluate(name, *((type_name, c) for c in columns)), expected)


@pytest.mark.parametrize("type_name", [*SIGNED[1:], *UNSIGNED[1:]])
def test_wide_integers_E8_equal_python(isa: str, type_name: str) -> None:
    for name in [*INTEGER, *COMPARISONS]:
        info, rng = np.iinfo(type_name), np.random.default_rng(17)
        edges = np.array(
            [0, 1, 2, 3, info.max, info.max - 1, info.min, info.min + 1, info.max // 2], type_name
        )
        edges = np.concatenate([edges, -edges]).view(f"u{edges.itemsize}")
        grid = [x.ravel() for x in np.meshgrid(edges, edges)]
        columns = [
            np.concatenate([g, random_words(rng, type_name, 400)]) for g in grid[: ROWS[name][0]]
        ]
        expected = integer_expectation(name, type_name, [c.view(type_name).tolist() for c in columns])
        assert evaluate(name, *((type_name, c) for c in columns)).tolist() == expected


@pytest.mark.parametrize("type_name", SIGNED)
def test_division_E8_by_zero_and_of_the_smallest(isa: str, type_name: str) -> None:
    info = np.iinfo(type_name)
    a = np.array([7, -7, 0, info.min, info.min, -7, 7], type_name)
    b = np.array([0, 0, 0, 0, -1, 2, -2], type_name)
    word = f"u{a.itemsize}"
    ours = evaluate("divide", (type_name, a.view(word)), (type_name, b.view(word))).view(type_name)
    assert ours.tolist() == [-1, -1, -1, -1, info.min, -3, -3]


@pytest.mark.parametrize("type_name", UNSIGNED)
def test_division_E8_of_unsigned_by_zero_is_all_ones(isa: str, type_name: str) -> None:
    a, b = np.array([7, 0, 7], type_name), np.array([0, 0, 2], type_name)
    assert evaluate("divide", (type_name, a), (type_name, b)).tolist() == [
        np.iinfo(type_name).max
    ] * 2 + [3]


@pytest.mark.parametrize("name", [*twin.BOOL, *COMPARISONS])
def test_bool_E8_equals_the_twin(isa: str, name: str) -> None:
    a, b = np.array([0, 0, 1, 1] * 9, np.uint8), np.array([0, 1, 0, 1] * 9, np.uint8)
    columns = [a, b][: ROWS[name][0]]
    f = twin.BOOL.get(name) or twin.COMPARISON[name]
    expected = [int(f(*p)) for p in zip(*(c.tolist() for c in columns), strict=True)]
    assert evaluate(name, *(("bool", c) for c in columns)).tolist() == expected
