"""Rules F and C: every conversion, against the twin, against NumPy in float64 and against ml_dtypes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import ml_dtypes
import numpy as np
import pytest

from neuronsim import dtypes
from neuronsim.profiles import Profile
from neuronsim.reference import formats
from tests.core.test_every_conversion import FORMATS, NARROW, value
from tests.support.draws import mixed_words, random_words
from tests.support.evaluation import chain_of, evaluate
from tests.support.parameters import each_of
from tests.support.processors import everywhere
from tests.support.words import INTEGERS, Words, encoded, word_type

FLOATS = ["float32", *NARROW]


def low_bit_patterns() -> Iterator[Words]:
    """2^24 float32 in 16 blocks: every sign, exponent and upper 11 bits of the mantissa, with lower
    bits that make ties, their neighbours and sticky bits.
    """
    upper = np.arange(1 << 20, dtype=np.uint32) << np.uint32(12)
    patterns = [0, 1, 2, 0x3FF, 0x400, 0x401, 0x7FE, 0x7FF, 0x800, 0x801, 0x802, 0xBFF, 0xC00]
    for lower in (*patterns, 0xFFD, 0xFFE, 0xFFF):
        yield upper | np.uint32(lower)


@cache
def boundaries(target: str) -> tuple[Words, Words]:
    """Every value of the format (of more than 8 bits all exponents with some mantissas), every
    midpoint between neighbours, the overflow threshold and a few steps beyond, and each one's two
    float32 neighbours; and what the twin makes of them.
    """
    _, m_bits, beyond, nan, shift = FORMATS[target]
    largest = float(value(target, beyond - 1))
    positive: list[int] = []
    for field in range(nan >> shift):
        place = field % (1 << m_bits)
        if min(place % (1 << m_bits - 1), -place % (1 << m_bits - 1)) <= 4:
            positive.append(field)
    decoded = [formats.decode(target, f << shift) for f in positive]
    following = [formats.decode(target, (f + 1) << shift) for f in positive]
    points = [float(v.magnitude) for v in decoded if v.kind == "finite"]
    for low, high in zip(decoded, following, strict=True):
        if low.kind == high.kind == "finite":
            points.append(float(low.magnitude + high.magnitude) / 2)
    unit = math.ldexp(1, math.frexp(largest)[1] - 1 - m_bits)
    points += [largest + unit * k / 2 for k in range(1, 12)]
    points = [x for x in points if x <= float(np.finfo(np.float32).max)]
    exact = np.array(points)
    centre = exact.astype(np.float32)
    assert np.array_equal(centre.astype(np.float64), exact)
    bits = centre.view(np.uint32)
    bits = np.unique(np.concatenate([bits, bits + 1, bits[bits > 0] - 1]))
    return bits, np.array([formats.convert("float32", target, int(b)) for b in bits], np.int64)


@pytest.mark.parametrize("target", NARROW)
def test_every_boundary_C2_C3_C4_equals_the_twin(isa: str, target: str) -> None:
    bits, expected = boundaries(target)
    for sign in (0, 1):
        words = bits | np.uint32(sign << 31)
        ours = evaluate("convert", ("float32", words), dtype=dtypes.DTYPES[target])
        assert np.array_equal(ours, expected | sign << (8 * ours.itemsize - 1))


@pytest.mark.parametrize("target", [t for t in NARROW if hasattr(ml_dtypes, t)])
def test_2_to_24_inputs_C2_equal_ml_dtypes_from_float32(target: str) -> None:
    dtype = dtypes.DTYPES[target]
    for bits in low_bit_patterns():
        x = bits.view(np.float32)
        with np.errstate(all="ignore"):
            theirs = x.astype(dtype.numpy).view(f"u{dtype.itemsize}")
        ours = evaluate("convert", ("float32", bits), dtype=dtype)
        assert np.array_equal(ours[~np.isnan(x)], theirs[~np.isnan(x)])


@each_of("target", FLOATS)
@each_of("source", FLOATS)
def test_every_pair_of_formats_C1_equals_the_twin(
    restored_processor: None, source: str, target: str
) -> None:
    rng = np.random.default_rng(1)
    words = mixed_words(rng, source, 300)
    ours = everywhere("convert", (source, words), dtype=dtypes.DTYPES[target])
    assert ours.tolist() == [formats.convert(source, target, w) for w in words.tolist()]


# ---- C1: one rounding of the exact source ------------------------------------------------------


def float64_cases(target: str, rng: np.random.Generator) -> Words:
    """Ties of the target moved by far less than float32 can see, and values of every size."""
    m_bits, shift = (23, 0) if target == "float32" else (FORMATS[target][1], FORMATS[target][4])
    mantissa = 1 + rng.integers(0, 1 << m_bits, 400) / (1 << m_bits) + 2.0 ** -(m_bits + 1)
    ties = mantissa * 2.0 ** rng.integers(-160, 135, 400)
    nudged = [ties, ties * (1 + 2.0**-40), ties * (1 - 2.0**-40), np.nextafter(ties, 0)]
    special = [0.0, 2.0**-150, 2.0**-149, 5e-324, 2.0**-1022, 2.0**128, 1e300, np.inf, np.nan]
    special += [float(formats.decode(target, 1 << shift).magnitude) / 2]
    values = np.concatenate([*nudged, rng.integers(0, 2**63, 400).view(np.float64), special])
    return np.concatenate([values, -values]).view(np.uint64)


@pytest.mark.parametrize("target", FLOATS)
def test_float64_C1_is_rounded_once(isa: str, target: str) -> None:
    words = float64_cases(target, np.random.default_rng(2))
    ours = evaluate("convert", ("float64", words), dtype=dtypes.DTYPES[target])
    assert ours.tolist() == [formats.convert("float64", target, int(w)) for w in words]


def integer_cases(source: str, rng: np.random.Generator) -> list[int]:
    """Ties of every format at every size the type has, one off each, the extremes, random values."""
    info = np.iinfo(source)
    values = {0, 1, int(info.min), int(info.max), int(info.max) - 1}
    for size in range(2, info.bits):
        for m_bits in (2, 3, 4, 7, 10, 23, 52):
            tie = (1 << size) + (1 << max(size - m_bits - 1, 0))
            odd = tie + (1 << max(size - m_bits, 0))
            values |= {s * (v + d) for v in (tie, odd) for d in (-1, 0, 1) for s in (1, -1)}
    values |= {int(v) for v in rng.integers(info.min, info.max, 200, source)}
    return sorted(v for v in values if info.min <= v <= info.max)


@each_of("field", ["via_float32", "exact"])
@each_of("source", INTEGERS)
def test_integer_to_float_C1_equals_the_twin(restored_processor: None, source: str, field: str) -> None:
    values = integer_cases(source, np.random.default_rng(3))
    words = np.array(values, source).view(f"u{np.dtype(source).itemsize}")
    profile = Profile(int_to_float=field)
    for target in (*FLOATS, "float64"):
        bits = np.iinfo(source).bits
        twin = [
            formats.integer_to_float(target, v, bits=bits, via_float32=field == "via_float32")
            if target != "float64"
            else formats.from_float(target, v)
            for v in values
        ]
        ours = everywhere("convert", (source, words), profile=profile, dtype=dtypes.DTYPES[target])
        assert ours.tolist() == twin, target


def test_int32_C1_via_float32_or_exact(isa: str) -> None:
    """The documented example: DMA and copies go through FP32."""
    x = np.array([1077936129], np.uint32)
    for field, expected in (("via_float32", 0x4E80), ("exact", 0x4E81)):
        profile = Profile(int_to_float=field)
        ours = evaluate("convert", ("int32", x), profile=profile, dtype=dtypes.bfloat16)
        assert ours.tolist() == [expected]


def test_bool_C1_is_zero_or_one() -> None:
    x = np.array([0, 1], np.uint8)
    for target in (*FLOATS, *INTEGERS, "float64"):
        ours = evaluate("convert", ("bool", x), dtype=dtypes.DTYPES[target])
        one = formats.from_float(target, 1) if target not in INTEGERS else 1
        assert ours.tolist() == [0, one], target


# ---- C3, C4, C5 --------------------------------------------------------------------------------

EDGES = [
    ("bfloat16", float(np.finfo(np.float32).max), math.inf),
    ("tfloat32", float(np.finfo(np.float32).max), math.inf),
    ("float16", 65519.99609375, 65504.0),
    ("float16", 65520.0, math.inf),
    ("float8_e5m2", 61439.99609375, 57344.0),
    ("float8_e5m2", 61440.0, math.inf),
    ("float8_e4m3", 247.9, 240.0),
    ("float8_e4m3", 248.0, math.inf),
    ("float8_e3m4", 15.749999, 15.5),
    ("float8_e3m4", 15.75, math.inf),
    ("float8_e4m3fn", 464.0, 448.0),
    ("float8_e4m3fn", 464.00003, math.nan),
    ("float8_e4m3fn", math.inf, math.nan),
]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_overflow_C3_is_judged_after_rounding(isa: str, source: str, sign: int) -> None:
    for target, x, expected in EDGES:
        value = np.array([sign * x], source)
        ours = evaluate(
            "convert", (source, value.view(f"u{value.itemsize}")), dtype=dtypes.DTYPES[target]
        )
        # NaN carries the sign too, and Python's does not show it.
        expected_bits = formats.from_float(target, math.copysign(expected, sign))
        assert ours.tolist() == [expected_bits]


@pytest.mark.parametrize("source", ["float32", "tfloat32", "bfloat16", "float16", "float64"])
def test_nan_C5_is_the_quiet_one_with_its_sign(isa: str, source: str) -> None:
    """Widening included; the same type moves bits."""
    for target in FLOATS:
        f = formats.FORMATS[source]
        low = 1 << f.shift
        top = ((1 << f.exponent_bits) - 1) << (f.mantissa_bits + f.shift)
        payloads = [f.nan_bits, f.nan_bits | low, top | low, top | low << 1]
        words = np.array([p | s for p in payloads for s in (0, f.sign_bit)], word_type(source))
        ours = evaluate("convert", (source, words), dtype=dtypes.DTYPES[target])
        t = formats.FORMATS[target]
        quiet = [t.nan_bits, t.nan_bits | t.sign_bit] * len(payloads)
        assert ours.tolist() == (words.tolist() if source == target else quiet)


@each_of("source", [*FLOATS, *INTEGERS, "bool", "float64"])
def test_same_type_C5_moves_bits_in_a_chain(isa: str, source: str) -> None:
    """The op table returns the operand, a fused chain runs the step: both must move bits."""
    words = random_words(np.random.default_rng(4), source, 600, "special")
    output = np.empty_like(words)
    chain_of([source], [("convert", source, (0,))], [1]).on([words], [output]).run()
    assert np.array_equal(output, words)


@each_of("target", NARROW)
@each_of("source", ["float32", "float64", "int64", "int32"])
def test_there_and_back_C1_in_registers(isa: str, source: str, target: str) -> None:
    """A chain rounds without storing: the same values as through memory."""
    rng = np.random.default_rng(11)
    words = mixed_words(rng, source, 700)
    if source == "float32":
        words = np.concatenate([words, boundaries(target)[0][::5]])
    steps = [("convert", target, (0,)), ("convert", "float32", (1,))]
    output = np.empty(words.size, np.uint32)
    chain_of([source], steps, [2]).on([words], [output]).run()
    stored = evaluate("convert", (source, words), dtype=dtypes.DTYPES[target])
    assert np.array_equal(output, evaluate("convert", (target, stored), dtype=dtypes.float32))


@pytest.mark.parametrize("source", FLOATS)
def test_widening_to_float64_C5_is_exact(source: str) -> None:
    rng = np.random.default_rng(5)
    words = mixed_words(rng, source, 500, ("any", "special"))
    ours = evaluate("convert", (source, words), dtype=dtypes.float64)
    assert ours.tolist() == [formats.convert(source, "float64", int(w)) for w in words]


# ---- C6 ----------------------------------------------------------------------------------------


@each_of("target", INTEGERS)
@each_of("source", [*FLOATS, "float64"])
def test_float_to_integer_C6_truncates_and_saturates(
    restored_processor: None, source: str, target: str
) -> None:
    info = np.iinfo(target)
    edges = [0.0, 0.5, 0.9999999, 1.0, 1.5, 2.5, 255.5, 3e9, 1e20, 1e38, math.inf, math.nan]
    for edge in (info.max, info.min, info.max + 1):
        edges += [float(edge), float(edge) + 0.5, float(edge) - 0.5, math.nextafter(float(edge), 0)]
    words = encoded(source, [v for x in edges for v in (x, -x)])
    rng = np.random.default_rng(6)
    if source == "float64":
        drawn = rng.standard_normal(400) * 2.0 ** rng.integers(-3, 66, 400)
        words = np.concatenate([words, drawn.view(np.uint64)])
    else:
        words = np.concatenate([words, mixed_words(rng, source, 200, ("any", "near"))])
    signed = info.min < 0
    twin = [formats.float_to_integer(source, int(w), bits=info.bits, signed=signed) for w in words]
    ours = everywhere("convert", (source, words), dtype=dtypes.DTYPES[target])
    assert ours.view(target).tolist() == twin


@pytest.mark.parametrize("source", INTEGERS)
def test_integer_to_integer_C6_wraps(isa: str, source: str) -> None:
    for target in INTEGERS:
        info = np.iinfo(source)
        edges = np.array([info.min, info.max, info.max - 1, 0, 1], source).view(word_type(source))
        words = np.append(edges, random_words(np.random.default_rng(7), source, 300))
        ours = evaluate("convert", (source, words), dtype=dtypes.DTYPES[target])
        bits, signed = np.iinfo(target).bits, np.iinfo(target).min < 0
        assert ours.view(target).tolist() == [
            formats.wrap(v, bits=bits, signed=signed) for v in words.view(source).tolist()
        ]


@each_of("source", [*FLOATS, "float64", *INTEGERS])
def test_to_bool_C6_is_not_zero_and_nan_is_true(isa: str, source: str) -> None:
    words = random_words(np.random.default_rng(8), source, 600, "special")
    words[:3] = 0, 0, 1 << 13 if source == "tfloat32" else 1
    ours = evaluate("convert", (source, words), dtype=dtypes.boolean)
    if source in INTEGERS:
        expected = [int(w != 0) for w in words.tolist()]
    else:
        values = [formats.decode(source, w) for w in words.tolist()]
        expected = [int(v.kind != "finite" or v.magnitude != 0) for v in values]
    assert ours.tolist() == expected
