"""Rules S: the words, every rounding that draws them, and where it stands; against the twin."""

from __future__ import annotations

import contextvars
import functools
import itertools
import math
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neuronsim as ns
from neuronsim import _core, api, dtypes, ops
from neuronsim.errors import InvalidArgument, UnsupportedOperator
from neuronsim.hlo import proto
from neuronsim.hlo.module import Module
from neuronsim.profiles import Profile, next_rounding, rounding_state, seed_rounding, use_profile
from neuronsim.reference import elementwise as twin
from neuronsim.reference import formats, random, sums
from tests.support import processors
from tests.support.draws import mixed_words, random_words
from tests.support.evaluation import PLAIN_DOT, evaluate, evaluate_fold
from tests.support.graphs import constant, inst, module_of, parameter
from tests.support.parameters import each_of
from tests.support.processes import run_python
from tests.support.processors import every_processor
from tests.support.words import FLOAT8, NARROW, Words, encoded, widened

STOCHASTIC = Profile(rounding="stochastic")
SEED, PATH = 0x0123456789ABCDEF, "4/main/y/"
SETTING = ops.Setting(STOCHASTIC, SEED, PATH)
# Folds whose results are drawn for: the operation, a type, the operand's shape, attributes.
FOLDS: list[tuple[str, str, tuple[int, ...], dict[str, Any]]] = [
    *(("cumulative", "bfloat16", (4, 5, 6), {"axis": axis}) for axis in range(3)),
    (
        *("reduce_window", "float16", (15, 20)),
        {"window": (ops.WindowDimension(2), ops.WindowDimension(3, stride=2, padding=(1, 1)))},
    ),
]


@functools.cache
def drawn(seed: int, path: str, count: int) -> list[int]:
    """The words of elements 0 to count - 1 of the rounding at this path (S2)."""
    identifier = random.identifier(path)
    blocks = [
        random.philox4x32(
            (b, 0, identifier & random.MASK, identifier >> 32), (seed & random.MASK, seed >> 32)
        )
        for b in range(-(-count // 4))
    ]
    return list(itertools.chain.from_iterable(blocks))[:count]


def rounded(
    target: str, numbers: Sequence[int], path: str = f"{PATH}/", seed: int = SEED, **more: Any
) -> list[int]:
    """Float32 bits rounded stochastically, element i with word i."""
    words = drawn(seed, path, len(numbers))
    return [
        formats.round_number(target, formats.decode("float32", x), word=w, **more)
        for x, w in zip(numbers, words, strict=True)
    ]


def rounded_to_nearest(numbers: Sequence[int]) -> list[int]:
    return [formats.convert("float32", "bfloat16", x) for x in numbers]


def float32_words(type_name: str, words: Words) -> Words:
    return np.array(widened(type_name, words), np.uint32).reshape(words.shape)


def carried(numbers: Words) -> Words:
    """Many float32 words rounded to bfloat16 by the core's random words: up where they carry."""
    r = _core.random_words(SEED, SETTING.identifier(), 0, numbers.size).astype(np.uint64)
    return ((numbers.astype(np.uint64) << np.uint64(16)) + r >> np.uint64(32)).astype(np.uint16)


everywhere = functools.partial(processors.everywhere, threads=(1, 2), setting=SETTING)


@pytest.fixture(autouse=True)
def own_rounding_state() -> Iterator[None]:
    """No test leaves its seed or its calls to the next."""
    before = rounding_state()
    yield
    seed_rounding(before.seed)
    for _ in range(before.calls):
        next_rounding()


# ---- S2: the words -------------------------------------------------------------------------------

ONES = (1 << 32) - 1
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_words_S2_are_random123s_known_answers(
    counter: tuple[int, int, int, int], key: tuple[int, int], expected: tuple[int, ...]
) -> None:
    assert random.philox4x32(counter, key) == expected


def test_words_S2_of_the_core_are_the_known_answers() -> None:
    """Its index has 63 bits, so the counter of ones is reached in its upper half only."""
    assert tuple(_core.random_words(0, 0, 0, 4).tolist()) == KNOWN[0][2]
    seed, identifier = 0x299F31D0A4093822, 0x0370734413198A2E
    block = 0x05A308D3243F6A88  # the top bits of the third counter do not fit an index
    expected = random.philox4x32((0x243F6A88, 0x05A308D3, 0x13198A2E, 0x03707344), KNOWN[2][1])
    assert tuple(_core.random_words(seed, identifier, block << 2, 4).tolist()) == expected


def test_words_S2_of_the_core_equal_the_twin() -> None:
    rng = np.random.default_rng(1)
    starts = [0, 1, 2, 3, 511, 512, 2**32 - 3, 2**34 - 6, 2**34, 2**40 + 5, 2**62 - 9]
    for start in starts:
        seed, identifier = (int(v) for v in rng.integers(0, 2**64, 2, np.uint64, endpoint=False))
        count = 9
        ours = _core.random_words(seed, identifier, start, count).tolist()
        assert ours == [random.word(seed, identifier, start + i) for i in range(count)], start
    long = _core.random_words(7, 9, 1, 2000).tolist()
    assert long[::61] == [random.word(7, 9, 1 + i) for i in range(0, 2000, 61)]


def test_identifier_S2_is_of_the_path() -> None:
    assert SETTING.identifier() == random.identifier("4/main/y//")
    assert SETTING.identifier("3") == random.identifier("4/main/y//3")
    assert ops.Setting(Profile(), SEED, PATH).identifier() == 0  # without draws there is none
    assert drawn(SEED, "a", 11) == [random.word(SEED, random.identifier("a"), i) for i in range(11)]


# ---- S1: conversions -----------------------------------------------------------------------------


@functools.cache
def float32_cases(target: str) -> list[int]:
    """Random, boundary, subnormal, near-overflow, Inf and NaN values of either sign."""
    rng = np.random.default_rng(2)
    f = formats.FORMATS[target]
    step = 2.0 ** (1 - f.bias - f.mantissa_bits)
    largest_field = (((1 << f.exponent_bits) - 1) << f.mantissa_bits) - 1
    if not f.has_inf:
        largest_field = (f.nan_bits >> f.shift) - 1
    largest = float(formats.decode(target, largest_field << f.shift).magnitude)
    unit = largest - float(formats.decode(target, (largest_field - 1) << f.shift).magnitude)
    values = [2.0 ** rng.integers(-3, 3) * (1 + x) for x in rng.random(150)]
    values += (rng.random(120) * step * 4).tolist() + (rng.random(60) * step).tolist()
    values += (largest - unit + rng.random(120) * unit * 3).tolist()
    values += [largest, largest + unit / 2, largest + unit, largest + 2 * unit, step, step / 2]
    # At powers of two the step changes.
    for e in (0, 1, -1, 1 - f.bias, 2 - f.bias):
        p = 2.0**e
        values += [p, p * (1 - 2.0**-20), p * (1 + 2.0**-20), p * (1 - 2.0**-24), p * (1 + 2.0**-9)]
    with np.errstate(over="ignore"):
        words = np.array(values, np.float32).view(np.uint32).tolist()
    words += rng.integers(0, 1 << 31, 150).tolist()
    words += [0, 1, 2, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F7FFFFE]
    words += [0x7F800000, 0x7F800001, 0x7FC00000]
    return [w | s for w in words for s in (0, 0x80000000)]


@pytest.mark.parametrize("target", [*NARROW, "float8_e4m3fn"])
def test_conversion_S1_equals_the_twin(restored_processor: None, target: str) -> None:
    numbers = float32_cases(target)
    words = np.array(numbers, np.uint32)
    ours = everywhere("convert", ("float32", words), dtype=dtypes.DTYPES[target])
    assert ours.tolist() == rounded(target, numbers)
    usual = evaluate("convert", ("float32", words), dtype=dtypes.DTYPES[target])
    assert not np.array_equal(ours, usual)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("tfloat32", "bfloat16"),
        ("tfloat32", "float16"),
        ("bfloat16", "float16"),
        ("bfloat16", "float8_e4m3"),
        ("float16", "bfloat16"),
        ("float16", "float8_e5m2"),
        ("float8_e3m4", "float8_e5m2"),
        ("float8_e5m2", "float8_e4m3"),
        ("float16", "float32"),
        ("bfloat16", "tfloat32"),
        ("tfloat32", "float32"),
    ],
)
def test_conversion_S1_between_narrow_types_equals_the_twin(isa: str, source: str, target: str) -> None:
    """They are float32 values too; widening is exact and moves nothing."""
    rng = np.random.default_rng(3)
    words = mixed_words(rng, source, 200)
    ours = evaluate("convert", (source, words), setting=SETTING, dtype=dtypes.DTYPES[target])
    wide = widened(source, words)
    assert ours.tolist() == (wide if target == "float32" else rounded(target, wide))


@each_of(
    ("target", "choices"),
    [
        *((t, {"fp8_overflow": overflow}) for t in FLOAT8 for overflow in ("nan", "saturate")),
        *((t, {"subnormals": "flush"}) for t in ("bfloat16", "tfloat32", "float16")),
    ],
)
def test_conversion_S1_overflows_as_C3_and_flushes_as_C4_says(
    isa: str, target: str, choices: dict[str, str]
) -> None:
    numbers = float32_cases(target)
    setting = SETTING._replace(profile=STOCHASTIC.replace(**choices))
    operand = ("float32", np.array(numbers, np.uint32))
    ours = evaluate("convert", operand, setting=setting, dtype=dtypes.DTYPES[target])
    if "subnormals" in choices:
        numbers = [x & 0x80000000 if x & 0x7F800000 == 0 else x for x in numbers]
    assert ours.tolist() == rounded(target, numbers, **choices)


@pytest.mark.parametrize("target", ["bfloat16", "float16", "float8_e4m3"])
def test_conversion_S2_of_a_large_array_takes_the_word_of_each_index(
    restored_processor: None, target: str
) -> None:
    """130,000 elements, shared out among threads; the twin at the ends of blocks and at random."""
    n = 130_003
    rng = np.random.default_rng(4)
    words = rng.integers(0x3C000000, 0x42000000, n, np.uint32)
    ours = everywhere("convert", ("float32", words), dtype=dtypes.DTYPES[target])
    ends = [k + d for k in range(512, n, 512 * 16) for d in (-1, 0, 1)]
    identifier = SETTING.identifier()
    for i in (*ends, *rng.integers(0, n, 500).tolist(), 0, n - 1):
        number = formats.decode("float32", int(words[i]))
        expected = formats.round_number(target, number, word=random.word(SEED, identifier, i))
        assert ours[i] == expected, i
    if target == "bfloat16":  # the whole array
        assert np.array_equal(ours, carried(words))


def test_conversion_S2_index_is_logical_not_where_it_lies(isa: str) -> None:
    """Transposed, reversed, strided and broadcast operands draw as dense copies of them do."""
    rng = np.random.default_rng(5)
    x = rng.integers(0x3F000000, 0x41000000, (30, 46), np.uint32)
    views = [
        x.T,
        x[::-1],
        x[:, ::2],
        np.broadcast_to(x[:, :1], x.shape),
        np.broadcast_to(x[0], x.shape),
    ]
    for view in views:
        ours = evaluate("convert", ("float32", view), setting=SETTING, dtype=dtypes.bfloat16)
        dense = ("float32", np.ascontiguousarray(view))
        theirs = evaluate("convert", dense, setting=SETTING, dtype=dtypes.bfloat16)
        assert np.array_equal(ours, theirs)
        assert ours.ravel().tolist() == rounded("bfloat16", view.ravel().tolist())


# ---- S1: what does not move ----------------------------------------------------------------------


@pytest.mark.parametrize("target", [*NARROW, "float8_e4m3fn"])
def test_exact_values_S1_never_move(isa: str, target: str) -> None:
    """Every value of the format, Inf, NaN and both zeros, whatever the seed."""
    t = dtypes.DTYPES[target]
    words = np.arange(1 << min(t.bits, 16), dtype=np.uint32)
    words = (words << np.uint32(16) if target == "tfloat32" else words).astype(f"u{t.itemsize}")
    x = evaluate("convert", (target, words), dtype=dtypes.float32)
    expected = evaluate("convert", ("float32", x), dtype=t)
    for seed in (0, 1, SEED):
        setting = SETTING._replace(seed=seed)
        ours = evaluate("convert", ("float32", x), setting=setting, dtype=t)
        assert np.array_equal(ours, expected)


def test_from_wider_types_S1_keeps_nearest_even(isa: str) -> None:
    """float64 and 64-bit integers are not float32 values; nor is an int32 that is taken exactly."""
    rng = np.random.default_rng(6)
    doubles = (rng.standard_normal(600) * 2.0 ** rng.integers(-9, 9, 600)).view(np.uint64)
    operands = [("float64", doubles)]
    for source in ("int64", "uint64"):
        small = rng.integers(0, 300, 300).astype(np.uint64)
        operands.append((source, np.concatenate([small, random_words(rng, source, 300)])))
    for operand in operands:
        for target in NARROW:
            ours = evaluate("convert", operand, setting=SETTING, dtype=dtypes.DTYPES[target])
            usual = evaluate("convert", operand, dtype=dtypes.DTYPES[target])
            assert np.array_equal(ours, usual), (operand[0], target)
    exact = SETTING._replace(profile=STOCHASTIC.replace(int_to_float="exact"))
    integers = ("int32", random_words(rng, "int32", 600))
    ours = evaluate("convert", integers, setting=exact, dtype=dtypes.bfloat16)
    usual = evaluate("convert", integers, profile=Profile(int_to_float="exact"), dtype=dtypes.bfloat16)
    assert np.array_equal(ours, usual)


@pytest.mark.parametrize("source", ["int32", "uint32", "int16", "uint8"])
def test_integers_S1_through_float32_are_rounded_stochastically(isa: str, source: str) -> None:
    """C1: to float32 by RNE, and that float32 value stochastically."""
    rng = np.random.default_rng(7)
    words = random_words(rng, source, 500)
    words[::2] &= words.dtype.type(127)
    values = words.view(source).tolist()
    via = [formats.from_float("float32", v) for v in values]
    for target in ("bfloat16", "float8_e4m3", "float8_e5m2", "float16"):
        ours = evaluate("convert", (source, words), setting=SETTING, dtype=dtypes.DTYPES[target])
        assert ours.tolist() == rounded(target, via), target
    single = evaluate("convert", (source, words), setting=SETTING, dtype=dtypes.float32)
    assert single.tolist() == via


def test_numbers_S1_of_python_keep_nearest_even() -> None:
    with use_profile(rounding="stochastic"):
        for value in (0.1, 1 / 3, 1e-3, 257):
            for target in ("bfloat16", "float16", "float8_e4m3"):
                found = {ns.asarray(value, target).bits.data.tobytes() for _ in range(20)}
                assert found == {encoded(target, [value]).tobytes()}


@pytest.mark.parametrize("name", ["negative", "abs", "select", "copysign", "less", "bitwise_and"])
def test_moves_S1_draw_nothing(name: str) -> None:
    rng = np.random.default_rng(8)
    for type_name in ("bfloat16", "float8_e4m3") if name != "bitwise_and" else ("int32",):
        a, b = ((type_name, random_words(rng, type_name, 300)) for _ in range(2))
        operands = [a] if name in ("negative", "abs") else [a, b]
        if name == "select":
            operands = [("bool", rng.integers(0, 2, 300, np.uint8)), a, b]
        ours = evaluate(name, *operands, setting=SETTING)
        assert np.array_equal(ours, evaluate(name, *operands)), type_name


# ---- S1: how often -------------------------------------------------------------------------------

DRAWS = 1_000_000


def assert_share(count: int, chance: float) -> None:
    """Six standard deviations of a binomial count."""
    bound = 6 * math.sqrt(DRAWS * chance * (1 - chance)) + 1
    assert abs(count - DRAWS * chance) <= bound, (count, chance)


@pytest.mark.parametrize(
    ("target", "low", "step"),
    [
        ("bfloat16", 1.0, 2.0**-7),
        ("bfloat16", 2.0**-133 * 5, 2.0**-133),  # subnormals, of float32 too
        ("tfloat32", 3.0, 2.0**-9),
        ("float16", 1024.0, 1.0),
        ("float16", 2.0**-24 * 3, 2.0**-24),
        ("float16", 0.0, 2.0**-24),
        ("float8_e4m3", 208.0, 16.0),
        ("float8_e4m3", 240.0, 16.0),  # overflow is the upper neighbour
        ("float8_e5m2", 2.0**-16, 2.0**-16),
        ("float8_e3m4", 1.0, 2.0**-4),
    ],
)
def test_frequency_S1_is_the_distance(target: str, low: float, step: float) -> None:
    lower = formats.from_float(target, low)
    unit = 1 << formats.FORMATS[target].shift
    for n, fraction in enumerate((1 / 1024, 1 / 2, 1 / 4, 15 / 16)):
        x = np.float32(low + step * fraction)
        assert float(x) == low + step * fraction
        sign = -1 if n == 1 else 1
        words = np.full(DRAWS, sign * x, np.float32).view(np.uint32)
        setting = SETTING._replace(seed=n)
        ours = evaluate("convert", ("float32", words), setting=setting, dtype=dtypes.DTYPES[target])
        sign_bit = formats.FORMATS[target].sign_bit if sign < 0 else 0
        found, counts = np.unique(ours, return_counts=True)
        assert found.tolist() == [lower | sign_bit, (lower + unit) | sign_bit]
        assert_share(int(counts[1]), fraction)


def test_example_of_AWS_S_1024_and_halves_in_float16() -> None:
    """2048 additions of 0.5 to 1024: RNE stays, stochastic rounding ends near 2048."""
    x = total = ns.asarray(np.full(64, 1024.0), "float16")
    half = ns.asarray(np.full(64, 0.5), "float16")
    for _ in range(3):
        x = x + half
    assert x.tolist() == [1024.0] * 64
    seed_rounding(1)
    with use_profile(rounding="stochastic"):
        for _ in range(2048):
            total = total + half
    ends = np.asarray(total).astype(np.float64)
    # An addition moves by 1 with chance 1/2, above 2048 by 2 with chance 1/4: variance 3/4 at most.
    assert np.abs(ends - 2048).max() < 6 * math.sqrt(2048 * 0.75)
    assert abs(ends.mean() - 2048) < 6 * math.sqrt(2048 * 0.75 / 64)
    assert len(set(ends.tolist())) > 10


# ---- every operation's store ---------------------------------------------------------------------


@pytest.mark.parametrize("type_name", NARROW)
@pytest.mark.parametrize("name", ["add", "multiply", "divide", "maximum", "exp", "sqrt", "reciprocal"])
def test_store_S1_of_every_operation_is_stochastic(
    restored_processor: None, type_name: str, name: str
) -> None:
    rng = np.random.default_rng(10)
    arity = 2 if name in ("add", "multiply", "divide", "maximum") else 1
    columns = [mixed_words(rng, type_name, 70) for _ in range(arity)]
    results = [
        twin.FLOAT[name](*p) for p in zip(*(widened(type_name, c) for c in columns), strict=True)
    ]
    results = [
        twin.FLOAT[name](*p) for p in zip(*(widened(type_name, c) for c in columns), strict=True)
    ]
    ours = everywhere(name, *((type_name, c) for c in columns))
    assert ours.tolist() == rounded(type_name, results)
    single = [("float32", float32_words(type_name, c)) for c in columns]
    assert np.array_equal(evaluate(name, *single, setting=SETTING), evaluate(name, *single))


def test_store_S2_of_several_steps_has_an_id_for_each(isa: str) -> None:
    """The last has the tile "", those before it their numbers; float32 steps draw nothing."""
    rng = np.random.default_rng(11)
    a, b = (random_words(rng, "bfloat16", 300, "near") for _ in range(2))
    setting = SETTING._replace(profile=STOCHASTIC.replace(divide="reciprocal_multiply"))
    ours = evaluate("divide", ("bfloat16", a), ("bfloat16", b), setting=setting)
    pairs = zip(widened("bfloat16", a), widened("bfloat16", b), strict=True)
    quotients = [twin.multiply(x, twin.divide(0x3F800000, y)) for x, y in pairs]
    assert ours.tolist() == rounded("bfloat16", quotients)
    # reduce-precision to (8, 7) converts there and back: the way there is its last rounding.
    words = random_words(rng, "float32", 300, "near")
    ours = evaluate(
        "reduce_precision", ("float32", words), setting=SETTING, exponent_bits=8, mantissa_bits=7
    )
    there = np.array(rounded("bfloat16", words.tolist()))
    assert ours.tolist() == widened("bfloat16", there)
    # Other widths are no format's rounding (C9).
    five = {"exponent_bits": 5, "mantissa_bits": 10}
    ours = evaluate("reduce_precision", ("float32", words), setting=SETTING, **five)
    assert np.array_equal(ours, evaluate("reduce_precision", ("float32", words), **five))


def float32_sum(reducer: str, type_name: str, elements: Words, initial: Words) -> int:
    """R2 in float32, not yet rounded to the type."""
    (start,) = widened(type_name, initial)
    return sums.reduce_float(reducer, "float32", widened(type_name, elements), start)


@pytest.mark.parametrize("type_name", ["bfloat16", "float16", "float8_e4m3", "tfloat32"])
@pytest.mark.parametrize("reducer", ["add", "multiply"])
def test_reduce_S1_rounds_each_output_by_its_index(
    restored_processor: None, type_name: str, reducer: str
) -> None:
    rng = np.random.default_rng(12)
    x = random_words(rng, type_name, (5, 6, 7), "near")
    initial = np.asarray(formats.from_float(type_name, 1.25), x.dtype)
    for axes in ((1,), (0, 2), (2,), (0, 1, 2)):
        kept = [d for d in range(3) if d not in axes]
        rows = x.transpose([*kept, *axes]).reshape(-1, math.prod(x.shape[d] for d in axes))
        totals = [float32_sum(reducer, type_name, r, initial) for r in rows]
        for operand in (x, np.asfortranarray(x)):
            operands = (type_name, operand), (type_name, initial)
            ours = everywhere("reduce", *operands, dimensions=axes, reducer=reducer)
            assert ours.ravel().tolist() == rounded(type_name, totals), axes


@pytest.mark.parametrize("type_name", ["bfloat16", "float8_e4m3"])
@pytest.mark.parametrize("depth", [300, 512, 1100])
@pytest.mark.parametrize("outputs", [3, 20])
def test_reduce_S2_R3_rounds_each_tile_with_its_own_id(
    restored_processor: None, type_name: str, depth: int, outputs: int
) -> None:
    """Tile t has the tile number in its path, the final rounding the empty one."""
    rng = np.random.default_rng(14)
    values = (rng.random((outputs, depth)) * 0.01 + 0.001) * (10 if type_name == "float8_e4m3" else 1)
    x = encoded(type_name, values.ravel()).reshape(outputs, depth)
    initial = encoded(type_name, [0.3])
    numbers = float32_words(type_name, x)
    tiles = []
    for t, start in enumerate(range(0, depth, 512)):
        piece = np.ascontiguousarray(numbers[:, start : start + 512])
        totals = evaluate_fold("reduce", "float32", piece, dimensions=(1,))
        tiles.append(widened(type_name, np.array(rounded(type_name, totals.tolist(), f"{PATH}/{t}"))))
    tiles.append(widened(type_name, np.repeat(initial, outputs)))
    results = [functools.reduce(twin.add, column) for column in zip(*tiles, strict=True)]
    profile = STOCHASTIC.replace(mixed_precision_accumulation="off")
    more: dict[str, Any] = {"setting": SETTING._replace(profile=profile), "reducer": "add"}
    for axis, operand in ((1, x), (0, np.ascontiguousarray(x.T))):
        operands = (type_name, operand), (type_name, initial[0, ...])
        ours = everywhere("reduce", *operands, dimensions=(axis,), **more)
        assert ours.tolist() == rounded(type_name, results)


@each_of(("name", "type_name", "shape", "more"), FOLDS)
def test_reduce_window_and_cumulative_S2_index_is_that_of_the_result(
    restored_processor: None, name: str, type_name: str, shape: tuple[int, ...], more: dict[str, Any]
) -> None:
    """Row-major in the array that is given back, whichever axis is summed along."""
    x = random_words(np.random.default_rng(15), type_name, shape, "near")
    totals = evaluate_fold(name, "float32", float32_words(type_name, x), **more)
    operands = (type_name, x), (type_name, np.zeros((), x.dtype))
    ours = everywhere(name, *operands, reducer="add", **more)
    assert ours.ravel().tolist() == rounded(type_name, totals.ravel().tolist())


def test_reduce_window_S2_R3_rounds_each_tile_with_its_own_id(restored_processor: None) -> None:
    rng = np.random.default_rng(22)
    x = encoded("bfloat16", rng.random(620) * 0.1)
    starts, zero = range(0, 620 - 599, 2), np.zeros(1, np.uint16)
    tiles = []
    for n, (low, high) in enumerate(((0, 512), (512, 600))):
        totals = [float32_sum("add", "bfloat16", x[j + low : j + high], zero) for j in starts]
        tiles.append(widened("bfloat16", np.array(rounded("bfloat16", totals, f"{PATH}/{n}"))))
    profile = STOCHASTIC.replace(mixed_precision_accumulation="off")
    ours = everywhere(
        "reduce_window",
        *(("bfloat16", x), ("bfloat16", zero[0, ...])),
        setting=SETTING._replace(profile=profile),
        window=(ops.WindowDimension(600, stride=2),),
        reducer="add",
    )
    assert ours.tolist() == rounded("bfloat16", [twin.add(*p) for p in zip(*tiles, strict=True)])


def test_reduce_S2_has_no_words_for_an_accumulate_type() -> None:
    with pytest.raises(UnsupportedOperator, match="S2"):
        evaluate_fold(
            *("reduce", "bfloat16", np.zeros((3, 4), np.uint16)),
            setting=SETTING, dimensions=(1,), accumulate=dtypes.bfloat16,
        )  # fmt: skip


@pytest.mark.parametrize("result", ["bfloat16", "float16", "float8_e4m3", "float32"])
def test_dot_S1_rounds_each_result_by_its_index(restored_processor: None, result: str) -> None:
    """M4: the float32 PSUM value; the index is row-major over batch, rows and columns."""
    rng = np.random.default_rng(17)
    x = random_words(rng, "bfloat16", (2, 15, 5), "near")
    y = random_words(rng, "bfloat16", (2, 5, 70), "near")
    dims = ops.DotDimensions((2,), (1,), (0,), (0,))
    operands = (("bfloat16", x), ("bfloat16", y))
    single = evaluate("dot", *operands, dot_dimensions=dims, dtype=dtypes.float32)
    sample = sums.dot("bfloat16", "bfloat16", "float32", x[1, 3].tolist(), y[1, :, 69].tolist())
    assert single[1, 3, 69] == sample
    ours = everywhere("dot", *operands, dot_dimensions=dims, dtype=dtypes.DTYPES[result])
    totals = single.ravel().tolist()
    assert ours.ravel().tolist() == (totals if result == "float32" else rounded(result, totals))


def test_dot_S2_of_many_results_on_threads(restored_processor: None) -> None:
    rng = np.random.default_rng(18)
    x, y = (rng.integers(0x3F00, 0x4100, s, np.uint16) for s in ((260, 140), (140, 300)))
    operands = (("bfloat16", x), ("bfloat16", y))
    ours = everywhere("dot", *operands, dot_dimensions=PLAIN_DOT)
    totals = evaluate("dot", *operands, dot_dimensions=PLAIN_DOT, dtype=dtypes.float32).ravel()
    assert np.array_equal(ours.ravel(), carried(totals))


# ---- eager arrays --------------------------------------------------------------------------------


def eager_operands() -> tuple[ns.Array, ns.Array, list[int]]:
    """Two bfloat16 arrays, and their sums in float32."""
    rng = np.random.default_rng(19)
    a, b = (rng.integers(0x3E00, 0x4000, 200, np.uint16) for _ in range(2))
    totals = [twin.add(*p) for p in zip(widened("bfloat16", a), widened("bfloat16", b), strict=True)]
    x, y = (ns.Array(ops.Bits(v, dtypes.bfloat16)) for v in (a, b))
    return x, y, totals


def bits(x: ns.Array) -> list[int]:
    found: list[int] = x.bits.data.tolist()
    return found


def test_eager_S2_counts_the_calls_since_seeding() -> None:
    """call/eager/name: two successive operations share no word, and seeding begins anew."""
    x, y, totals = eager_operands()
    with use_profile(rounding="stochastic"):
        for _ in range(2):
            seed_rounding(77)
            first, second, third = bits(x + y), bits(x + y), bits(x - y)
            assert first == rounded("bfloat16", totals, "0/eager/add//", 77)
            assert second == rounded("bfloat16", totals, "1/eager/add//", 77)
            assert first != second
            minus = zip(*(widened("bfloat16", v.bits.data) for v in (x, y)), strict=True)
            differences = [twin.subtract(*p) for p in minus]
            assert third == rounded("bfloat16", differences, "2/eager/subtract//", 77)
        assert bits(x + y) == rounded("bfloat16", totals, "3/eager/add//", 77)


def test_eager_S2_the_profile_outside_is_nearest_even() -> None:
    x, y, totals = eager_operands()
    usual = rounded_to_nearest(totals)
    for _ in range(2):  # the short way of equal types and shapes must not remember the wrong program
        assert bits(x + y) == usual
        with use_profile(rounding="stochastic"):
            assert bits(x + y) != usual
    assert bits(x + y) == usual


def test_eager_S2_use_profile_goes_on_counting() -> None:
    x, y, totals = eager_operands()
    seed_rounding(5)
    for call in range(3):
        with use_profile(rounding="stochastic"):
            assert bits(x + y) == rounded("bfloat16", totals, f"{call}/eager/add//", 5)
        x + y  # nearest even draws nothing


def test_eager_S2_movement_is_no_rounding_operation() -> None:
    """`call` counts earlier rounding operations: data movement, and bits that are moved, are none."""
    x, y, totals = eager_operands()
    with use_profile(rounding="stochastic"):
        seed_rounding(6)
        ns.transpose(x.reshape(10, 20)), ns.concat([x, y]), ns.where(x > y, x, y), -x
        assert bits(x + y) == rounded("bfloat16", totals, "0/eager/add//", 6)


@each_of("seeds_itself", [False, True])
def test_eager_S2_state_is_of_the_context(seeds_itself: bool) -> None:
    """Another thread starts at its own call 0; a copied context can be seeded on its own, and counts
    on its own: else two tasks that run at the same time would draw by which comes first (D1).
    """
    x, y, totals = eager_operands()
    seed_rounding(8)
    found: list[list[int]] = []

    def elsewhere() -> None:
        if seeds_itself:
            seed_rounding(9)
        with use_profile(rounding="stochastic"):
            found.append(bits(x + y))

    for _ in range(2):
        contextvars.copy_context().run(elsewhere)
    if seeds_itself:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    expected = rounded("bfloat16", totals, "0/eager/add//", 9 if seeds_itself else 8)
    assert found == [expected] * len(found)
    assert (rounding_state().seed, rounding_state().calls) == (8, 0)


def test_eager_S2_astype_and_reductions_draw() -> None:
    x, y, totals = eager_operands()
    single = x.astype("float32") + y.astype("float32")
    with use_profile(rounding="stochastic"):
        seed_rounding(10)
        assert bits(single.astype("bfloat16")) == rounded("bfloat16", totals, "0/eager/convert//", 10)
        seed_rounding(11)
        found = {bits(ns.sum(x.astype("float8_e4m3")).reshape(1))[0] for _ in range(40)}
    assert len(found) > 1


BAD_SEEDS = [-1, 1 << 64, 1.0, "7", None, True, b"1"]


@pytest.mark.parametrize("seed", BAD_SEEDS)
def test_seed_S2_is_an_unsigned_64_bit_integer(seed: Any) -> None:
    before = rounding_state()
    with pytest.raises(InvalidArgument, match="seed"):
        seed_rounding(seed)
    assert rounding_state() == before
    if seed is not None:  # which means no seed
        with pytest.raises(InvalidArgument, match="seed"):
            compiled()(np.zeros(COUNT, np.float32), np.zeros(COUNT, np.float32), seed=seed)


def test_seed_S2_takes_the_extremes() -> None:
    x, y, totals = eager_operands()
    with use_profile(rounding="stochastic"):
        for seed in (0, 1 << 32, (1 << 64) - 1):
            seed_rounding(seed)
            assert bits(x + y) == rounded("bfloat16", totals, "0/eager/add//", seed)


# ---- the environment -----------------------------------------------------------------------------

SCRIPT = """
import sys, numpy, neuronsim as ns
x = ns.asarray(numpy.linspace(1, 2, 200, dtype="float32"))
try:
    print(ns.current_profile().rounding, x.astype("bfloat16").bits.data.tolist())
except ns.errors.InvalidArgument as error:
    sys.exit(str(error))
program = ns.compile(sys.argv[1], auto_cast="none")
print(program.setup.profile.rounding, program(x).bits.data.tolist())
"""


@pytest.mark.parametrize("seed", ["12", "seven"])
def test_environment_S2_gives_the_defaults(seed: str, tmp_path: Path) -> None:
    """Of eager arrays, and of compiled models, which the runtime's variables are about first of all."""
    path = tmp_path / "model.hlo.pb"
    path.write_bytes(proto.to_bytes(converter()))
    named = {"NEURON_RT_STOCHASTIC_ROUNDING_EN": "1", "NEURON_RT_STOCHASTIC_ROUNDING_SEED": seed}
    found = run_python(SCRIPT, path, **named)
    if seed == "seven":
        assert "NEURON_RT_STOCHASTIC_ROUNDING_SEED" in found.stderr
        assert found.returncode == 1
        return
    numbers = np.linspace(1, 2, COUNT, dtype=np.float32).view(np.uint32).tolist()
    paths = ("0/eager/convert//", "0/main/low//")
    assert found.stdout.splitlines() == [
        f"stochastic {rounded('bfloat16', numbers, path, 12)}" for path in paths
    ]


# ---- compiled programs ---------------------------------------------------------------------------

COUNT = 200
P = parameter("p", (COUNT,))


def converter() -> Module:
    return module_of(P, inst("low", "convert", (COUNT,), "p", dtype=dtypes.bfloat16))


@functools.cache
def compiled(**fields: Any) -> api.CompiledProgram:
    """Two roundings to bfloat16 in one chain: bf16(bf16(p) + q)."""
    low = dtypes.bfloat16
    module = module_of(
        *(P, parameter("q", (COUNT,), 1)),
        inst("low", "convert", (COUNT,), "p", dtype=low),
        inst("other", "convert", (COUNT,), "q", dtype=low),
        inst("total", "add", (COUNT,), "low", "other", dtype=low),
    )
    profile = Profile(rounding="stochastic", **fields)
    return api.compile(module, auto_cast="none", profile=profile)


@functools.cache
def compiled_inputs() -> tuple[Words, Words]:
    rng = np.random.default_rng(20)
    p, q = (rng.random(COUNT).astype(np.float32) + 1 for _ in range(2))
    return p, q


def expected_totals(seed: int, call: int, computation: str = "main") -> list[int]:
    at = f"{call}/{computation}"
    p, q = (v.view(np.uint32).tolist() for v in compiled_inputs())
    low = rounded("bfloat16", p, f"{at}/low//", seed)
    other = rounded("bfloat16", q, f"{at}/other//", seed)
    operands = (widened("bfloat16", np.array(v)) for v in (low, other))
    totals = [twin.add(*pair) for pair in zip(*operands, strict=True)]
    return rounded("bfloat16", totals, f"{at}/total//", seed)


def test_program_S2_chain_has_an_id_for_each_instruction(restored_processor: None) -> None:
    """One chain, whose steps draw by the names of their instructions."""
    for where in every_processor():
        found = compiled()(*compiled_inputs(), seed=3)
        assert found.bits.data.tolist() == expected_totals(3, 0), where


def test_program_S2_calls_go_on_without_a_seed() -> None:
    program, inputs = compiled(), compiled_inputs()
    first = program(*inputs, seed=3).tobytes()
    second, third = program(*inputs).tobytes(), program(*inputs).tobytes()
    assert len({first, second, third}) == 3
    assert program(*inputs, seed=3).tobytes() == first
    assert program(*inputs).bits.data.tolist() == expected_totals(3, 1)
    assert program(*inputs).bits.data.tolist() == expected_totals(3, 2)
    assert program(*inputs, seed=4).bits.data.tolist() == expected_totals(4, 0)


def test_program_S2_has_calls_of_its_own() -> None:
    """Neither eager operations nor another program change its words; a loaded one starts anew."""
    program, inputs = compiled(), compiled_inputs()
    program(*inputs, seed=21)
    with use_profile(rounding="stochastic"):
        x, y, _ = eager_operands()
        x + y
    other = api.CompiledProgram(program.model, program.plan, program.setup)
    assert other(*inputs, seed=5).bits.data.tolist() == expected_totals(5, 0)
    assert program(*inputs).bits.data.tolist() == expected_totals(21, 1)


def test_program_S2_loaded_starts_at_call_0(tmp_path: Path) -> None:
    program, inputs = compiled(), compiled_inputs()
    program.save(tmp_path / "p.nsim")
    again = api.load(tmp_path / "p.nsim")
    assert again.setup.profile.rounding == "stochastic"
    assert again(*inputs).bits.data.tolist() == expected_totals(0, 0)
    assert again(*inputs).bits.data.tolist() == expected_totals(0, 1)


def test_program_S2_nearest_even_ignores_the_seed() -> None:
    program = api.compile(converter(), auto_cast="none")
    p, _ = compiled_inputs()
    usual = rounded_to_nearest(p.view(np.uint32).tolist())
    assert program(p, seed=3).bits.data.tolist() == program(p).bits.data.tolist() == usual


@pytest.mark.parametrize("fields", [{"rounding": "stochastic"}, {"fp8_overflow": "nan"}])
def test_program_takes_its_own_profile_for_its_inputs(fields: dict[str, str]) -> None:
    """Inputs of another type are converted as the program's profile says, not as eager arrays are: the
    same program, inputs and profile give the same bits.
    """
    low = dtypes.float8_e4m3
    module = module_of(
        parameter("p", (COUNT,), dtype=low), inst("y", "negate", (COUNT,), "p", dtype=low)
    )
    program = api.compile(module, auto_cast="none", profile=Profile())
    x = compiled_inputs()[0] * np.float32(200)
    expected = program(x).bits.data.tolist()
    with use_profile(**fields):
        assert program(x).bits.data.tolist() == expected


def test_program_S2_without_a_chain_equals_the_twin() -> None:
    """A reduction and a dot stand under their own names, and the constant is rounded at each call."""
    low, outer = dtypes.bfloat16, ops.DotDimensions()
    module = module_of(
        parameter("p", (COUNT,), dtype=low),
        constant("c", compiled_inputs()[0]),
        inst("k", "convert", (COUNT,), "c", dtype=low),
        inst("d", "dot", (COUNT, COUNT), "p", "k", dtype=low, dot_dimensions=outer),
    )
    program = api.compile(module, auto_cast="none", profile=STOCHASTIC)
    p = np.full(COUNT, 0x3F81, np.uint16)
    found = program(ns.Array(ops.Bits(p, low)), seed=30)
    numbers = compiled_inputs()[0].view(np.uint32).tolist()
    for call in range(2):
        weights = rounded("bfloat16", numbers, f"{call}/main/k//", 30)
        row = [twin.multiply(0x3F810000, k) for k in widened("bfloat16", np.array(weights))]
        expected = rounded("bfloat16", row * 3, f"{call}/main/d//", 30)
        assert found.bits.data[:3].ravel().tolist() == expected
        found = program(ns.Array(ops.Bits(p, low)))


@pytest.mark.parametrize(
    ("target", "e"), [("float8_e5m2", -16), ("float8_e4m3", -9), ("float8_e3m4", -6)]
)
def test_carry_S1_is_judged_to_the_last_bit(isa: str, target: str, e: int) -> None:
    """Below the smallest subnormal 2^e, F has 32 bits: F + r = 2^32 goes up, one less does not."""
    n = 20_000
    r = _core.random_words(SEED, SETTING.identifier(), 0, n).astype(np.int64)
    missing = 2**32 - r
    usable = missing < 2**24  # so that float32 holds it
    assert usable.sum() > 30
    for less in (0, 1):
        f = np.where(usable, missing - less, 0)
        x = np.ldexp(f.astype(np.float64), e - 32).astype(np.float32).view(np.uint32)
        ours = evaluate("convert", ("float32", x), setting=SETTING, dtype=dtypes.DTYPES[target])
        assert (ours[usable] == 1 - less).all()
    i = int(np.flatnonzero(usable)[0])
    number = formats.exact(math.ldexp(int(missing[i]), e - 32))
    assert formats.round_number(target, number, word=int(r[i])) == 1
