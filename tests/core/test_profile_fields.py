"""Profile's fields of C, S, E and R: each changes what its rule says, and nothing else."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import neuronsim as ns
from neuronsim import dtypes, ops
from neuronsim.errors import UnsupportedType
from neuronsim.profiles import Profile, use_profile
from neuronsim.reference import elementwise as twin
from neuronsim.reference import formats, sums
from tests.support.draws import mixed_words, random_words
from tests.support.evaluation import PLAIN_DOT, evaluate, evaluate_dot, evaluate_fold
from tests.support.parameters import each_of
from tests.support.processors import check_everywhere, everywhere
from tests.support.words import FLOAT8, FLOATS, INTEGERS, Words, encoded, pairs_of, widened, word_type

WIDE = FLOATS[:3]  # the types with float32's exponents, where C4 acts
BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "fmod", "remainder"]
UNARY = ["sqrt", "rsqrt", "exp", "tanh", "floor", "ceil", "trunc", "rint", "reciprocal", "sign"]


def stored(type_name: str, wide: int, **choices: Any) -> int:
    """A float32 result as it is stored."""
    return formats.round_number(type_name, formats.decode("float32", wide), **choices)


# ---- every field at once: what changes, and what does not ----------------------------------------

# Operations by name: row, operand types, attributes. All operands have zeros, subnormals, extremes,
# Inf, NaN, and values of every size.
CASES: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    **{f"add {t}": ("add", (t, t), {}) for t in (*FLOATS, "int8", "int32", "uint16", "int64")},
    **{f"divide {t}": ("divide", (t, t), {}) for t in ("float32", "bfloat16", "float16", "uint8")},
    "divide int64": ("divide", ("int64", "int64"), {}),
    "multiply float8_e4m3": ("multiply", ("float8_e4m3",) * 2, {}),
    "exp bfloat16": ("exp", ("bfloat16",), {}),
    "sqrt float32": ("sqrt", ("float32",), {}),
    **{f"sin {t}": ("sin", (t,), {}) for t in ("float32", "float16", "float8_e4m3")},
    "log bfloat16": ("log", ("bfloat16",), {}),
    "erf float32": ("erf", ("float32",), {}),
    "less float32": ("less", ("float32", "float32"), {}),
    "equal float16": ("equal", ("float16", "float16"), {}),
    **{f"negative {t}": ("negative", (t,), {}) for t in ("float32", "bfloat16", "float8_e4m3")},
    **{f"abs {t}": ("abs", (t,), {}) for t in ("float32", "float8_e5m2", "int32")},
    "select float32": ("select", ("bool", "float32", "float32"), {}),
    "select float8_e3m4": ("select", ("bool", "float8_e3m4", "float8_e3m4"), {}),
    "copysign bfloat16": ("copysign", ("bfloat16", "bfloat16"), {}),
    "bitwise_and int32": ("bitwise_and", ("int32", "int32"), {}),
    "shift_left uint32": ("shift_left", ("uint32", "uint32"), {}),
    "transpose float32": ("transpose", ("float32",), {"dimensions": (1, 0)}),
    **{
        f"{a} to {b}": ("convert", (a,), {"dtype": dtypes.DTYPES[b]})
        for a, b in (
            *(("float32", b) for b in ("bfloat16", "tfloat32", "float16", *FLOAT8, "float8_e4m3fn")),
            *(("float32", b) for b in ("float64", "int8", "int32", "uint64", "bool")),
            *(("bfloat16", b) for b in ("float32", "float16", "float8_e4m3", "int16")),
            *(("float16", b) for b in ("float32", "bfloat16", "float8_e5m2", "int32", "bool")),
            *(("float64", b) for b in ("float32", "bfloat16", "float16", "float8_e3m4", "int64")),
            *(("int32", b) for b in ("float32", "bfloat16", "float16", "float8_e4m3", "int8")),
            *(("int64", b) for b in ("float32", "bfloat16", "float8_e5m2", "int32")),
            *(("int16", b) for b in ("float32", "bfloat16")),
        )
    },
    "reduce-precision float32": (
        *("reduce_precision", ("float32",)),
        {"exponent_bits": 8, "mantissa_bits": 9},
    ),
    **{
        f"sum {t}": ("reduce", (t, t), {"dimensions": (1,), "reducer": "add"})
        for t in ("float32", "bfloat16", "float16", "float8_e4m3", "int32")
    },
    "largest bfloat16": ("reduce", ("bfloat16",) * 2, {"dimensions": (1,), "reducer": "maximum"}),
    **{
        f"dot {t}": ("dot", (t, t), {"dot_dimensions": PLAIN_DOT})
        for t in ("float32", "bfloat16", "float8_e4m3", "int32")
    },
    **{
        f"wide dot {t}": ("dot", (t, t), {"dot_dimensions": PLAIN_DOT, "dtype": dtypes.float32})
        for t in ("bfloat16", "float16")
    },
}  # fmt: skip

TO_FP8 = {case for case in CASES if case.split()[-1] in FLOAT8 and " to " in case}
CHANGES: list[tuple[str, str, set[str]]] = [
    (
        "subnormals",
        "flush",
        {
            *(f"add {t}" for t in WIDE),
            *("divide float32", "divide bfloat16", "less float32", "sqrt float32"),
            *("sin float32", "erf float32", "log bfloat16"),
            *("float32 to bfloat16", "float32 to tfloat32", "float32 to float64", "float32 to bool"),
            *("bfloat16 to float32", "float64 to float32", "float64 to bfloat16"),
            *("reduce-precision float32", "sum float32", "sum bfloat16", "largest bfloat16"),
            *("dot float32", "dot bfloat16", "wide dot bfloat16"),
        },
    ),
    *(
        (
            "fp8_overflow",
            value,
            {
                *(f"add {t}" for t in FLOAT8),
                *("multiply float8_e4m3", "sum float8_e4m3", "dot float8_e4m3"),
                *TO_FP8,
            },
        )
        for value in ("nan", "saturate")
    ),
    (
        "activation",
        "neuron_range",
        {"sqrt float32", "sin float32", "sin float16", "sin float8_e4m3", "log bfloat16"},
    ),
    # Integers that float32 does not hold are beyond float16 and float8.
    ("int_to_float", "exact", {"int32 to bfloat16"}),
    (
        "float_to_int",
        "nearest",
        {case for case in CASES if " to " in case and "float" in case and case.split()[-1] in INTEGERS},
    ),
    ("divide", "reciprocal_multiply", {"divide float32", "divide bfloat16"}),
    ("int32_elementwise", "via_float32", {"add int8", "add int32", "add uint16", "divide uint8"}),
    ("mixed_precision_accumulation", "off", {"sum bfloat16", "sum float16", "sum float8_e4m3"}),
    ("accumulate", "sequential", {"dot float32", "wide dot bfloat16", "wide dot float16"}),
    ("accumulate", "exact", {"dot float32", "wide dot bfloat16", "wide dot float16"}),
    ("accumulate", "product_bf16", {"dot bfloat16", "wide dot bfloat16", "wide dot float16"}),
    ("accumulate", "pairs", {"dot float32", "wide dot bfloat16", "wide dot float16"}),
    ("int_dot", "via_float32", {"dot int32"}),
    ("transpose", "tensor_engine", {"transpose float32"}),
    (
        "rounding",
        "stochastic",
        {
            *(f"add {t}" for t in FLOATS[1:]),
            *("divide bfloat16", "divide float16", "multiply float8_e4m3", "exp bfloat16"),
            *("sin float16", "sin float8_e4m3", "log bfloat16"),
            *("float32 to bfloat16", "float32 to tfloat32", "float32 to float16", *TO_FP8),
            *("float32 to float8_e4m3fn", "float16 to bfloat16", "bfloat16 to float16"),
            *("int32 to bfloat16", "int32 to float16", "int16 to bfloat16", "int32 to float8_e4m3"),
            *("sum bfloat16", "sum float16", "sum float8_e4m3", "dot bfloat16"),
            "dot float8_e4m3",
        }
        - {"float64 to float8_e3m4", "int64 to float8_e5m2"},
    ),
    # These are read by compile or by scalars beside arrays: no operation sees them.
    ("int64", "truncate", set()),
    ("scalar", "float32_immediate", set()),
    ("auto_cast_all", "observed", set()),
    # This one where a plan is written: tests/casting/test_quantization.py.
    ("requantize", "exact", set()),
    # And these by operations of several results: test_random_numbers.py, test_batch_norm.py.
    ("batch_norm", "xla", set()),
    ("rng_seed", "ignore", set()),
]  # fmt: skip
# What a value does not take (M6).
REFUSED = {("product_bf16", "dot float32")}
CHANGE_IDS = [f"{field}-{value}" for field, value, _ in CHANGES]


@functools.cache
def case_operands(case: str) -> list[tuple[str, Words]]:
    name, types, _ = CASES[case]
    rng = np.random.default_rng(len(case))
    if name == "reduce":
        # Long enough for two tiles; near 1, near the largest values, and near the smallest.
        x = random_words(rng, types[0], (40, 520), "near")
        f = formats.FORMATS.get(types[0])
        if f is not None:
            top = ((1 << f.exponent_bits) - 3) << f.mantissa_bits
            low = rng.integers(0, 3 << f.mantissa_bits, (20, 4)) << f.shift
            high = (top + rng.integers(0, 2 << f.mantissa_bits, (2, 520))) << f.shift
            x[:20] = 0
            x[:20, :4] = low.astype(x.dtype)
            x[0, :4] = 1 << f.shift
            x[20:22] = high.astype(x.dtype)
        return [(types[0], x), (types[0], np.zeros((), x.dtype))]
    if name == "dot":
        x, y = (random_words(rng, types[0], s, "near") for s in ((9, 300), (300, 9)))
        x[:2], y[:, :2] = (random_words(rng, types[0], s, "special") for s in ((2, 300), (300, 2)))
        if types[0] in WIDE:
            unit = 1 << (formats.FORMATS[types[0]].mantissa_bits + formats.FORMATS[types[0]].shift)
            x[2], y[:, 2] = 3 * unit, 127 * unit
            x[3], y[:, 3] = 63 * unit + unit // 2, 63 * unit + unit // 2
        return [(types[0], x), (types[0], y)]
    columns = []
    for t in types:
        parts = [random_words(rng, t, 1024, mode) for mode in ("any", "near", "special")]
        if t in WIDE:
            f = formats.FORMATS[t]
            close = rng.integers(0, 5 << f.mantissa_bits, 1024) << f.shift
            parts.append(close.astype(word_type(t)) | (parts[0] & word_type(t).type(f.sign_bit)))
        else:
            parts.append(random_words(rng, t, 1024, "special"))
        if t == "float64":
            scale = 2.0 ** rng.integers(-150, 140, 1024)
            parts[3] = ((1 + rng.random(1024)) * scale).view(np.uint64)
            parts[2] = (rng.standard_normal(1024) * 9).view(np.uint64)
        if t == "int32":  # integers that narrow floats round, and ties with a low bit
            parts[1] = rng.integers(-300, 300, 1024, np.int32).view(np.uint32)
            parts[2] = rng.integers(-60000, 60000, 1024, np.int32).view(np.uint32)
            tie = (1 << rng.integers(26, 31, 1024)) * 257 // 256 + 1
            parts[3] = tie.astype(np.uint32)
        columns.append(np.concatenate(parts).reshape(64, 64))
    return list(zip(types, columns, strict=True))


@each_of(("field", "value", "expected"), CHANGES, ids=CHANGE_IDS)
def test_a_field_changes_its_own_operations_and_no_other(
    field: str, value: str, expected: set[str]
) -> None:
    assert expected <= set(CASES)
    found = set()
    profile = Profile(**{field: value})
    for case, (name, _, attributes) in CASES.items():
        operands = case_operands(case)
        usual = evaluate(name, *operands, **attributes)
        setting = ops.Setting(profile, 5, "0/eager/x/")
        if (value, case) in REFUSED:
            with pytest.raises(UnsupportedType):
                evaluate(name, *operands, setting=setting, **attributes)
            continue
        if not np.array_equal(evaluate(name, *operands, setting=setting, **attributes), usual):
            found.add(case)
    assert sorted(found) == sorted(expected)


def test_every_field_with_a_choice_is_in_the_table_of_changes() -> None:
    choices = {
        (row["field"], v) for row in Profile().describe() for v in row["values"] if v != row["value"]
    }
    assert {(field, value) for field, value, _ in CHANGES} == choices


# ---- C3: fp8_overflow ----------------------------------------------------------------------------

OVERFLOWS = ["inf", "nan", "saturate"]


@functools.cache
def every_bfloat16() -> list[formats.Number]:
    return [formats.decode("bfloat16", w) for w in range(1 << 15)]


@pytest.mark.parametrize("overflow", OVERFLOWS)
@pytest.mark.parametrize("target", FLOAT8)
def test_overflow_C3_of_every_bfloat16_equals_the_twin(
    restored_processor: None, target: str, overflow: str
) -> None:
    words = np.arange(1 << 16, dtype=np.uint16)
    positive = [
        formats.round_number(target, x, fp8_overflow=overflow) for x in every_bfloat16()
    ]  # fmt: skip
    expected = np.array([*positive, *(w | 0x80 for w in positive)])
    profile = Profile(fp8_overflow=overflow)
    ours = everywhere("convert", ("bfloat16", words), profile=profile, dtype=dtypes.DTYPES[target])
    assert np.array_equal(ours, expected)


def overflow_points(target: str) -> list[float]:
    """Around the largest value, the tie beyond it and the next step; very large, Inf and NaN."""
    f = formats.FORMATS[target]
    top = ((1 << f.exponent_bits) - 1) << f.mantissa_bits
    largest = float(formats.decode(target, top - 1).magnitude)
    unit = largest - float(formats.decode(target, top - 2).magnitude)
    points = [largest - unit / 2, largest, largest + unit / 2, largest + unit, 2 * largest]
    near = [math.nextafter(x, to) for x in points for to in (0, math.inf)]
    near32 = [
        float(np.nextafter(np.float32(x), np.float32(to))) for x in points for to in (0, math.inf)
    ]
    huge = [float(np.finfo(np.float32).max), 1e300, math.inf, math.nan, 0.0, 2.0**-9]
    return [s * x for x in (*points, *near, *near32, *huge) for s in (1.0, -1.0)]


@each_of("overflow", OVERFLOWS)
@each_of("target", FLOAT8)
@each_of("source", ["float64", "float32", "tfloat32", "float16"])
def test_overflow_C3_at_the_bounds_equals_the_twin(
    restored_processor: None, source: str, target: str, overflow: str
) -> None:
    words = encoded(source, overflow_points(target))
    # words_of gives NaN no sign of its own
    nan = formats.FORMATS[source].nan_bits
    words = np.append(words, np.array([nan, nan | formats.FORMATS[source].sign_bit], words.dtype))
    expected = [
        formats.round_number(target, formats.decode(source, w), fp8_overflow=overflow)
        for w in words.tolist()
    ]
    ours = everywhere(
        "convert", (source, words), profile=Profile(fp8_overflow=overflow), dtype=dtypes.DTYPES[target]
    )
    assert ours.tolist() == expected


@each_of("overflow", OVERFLOWS)
@each_of("source", [*INTEGERS, "bool"])
def test_overflow_C3_of_integers_equals_the_twin(
    restored_processor: None, source: str, overflow: str
) -> None:
    edges = [0, 1, 15, 16, 17, 127, 239, 240, 247, 248, 249, 255, 256, 32767, 57344, 61439, 61440]
    edges += [65535, 2**31 - 1, 2**32 - 1, 2**62 + 1, 2**63 - 1, 2**64 - 1]
    low, high = (0, 1) if source == "bool" else (np.iinfo(source).min, np.iinfo(source).max)
    values = [v for x in edges for v in (x, -x, low, high) if low <= v <= high]
    words = np.array(values, source).view(word_type(source))
    profile = Profile(fp8_overflow=overflow)
    for target in FLOAT8:
        expected = [
            formats.round_number(target, formats.exact(v), fp8_overflow=overflow) for v in values
        ]  # fmt: skip
        if word_type(source).itemsize == 4:  # C1: through float32
            via = [formats.from_float("float32", v) for v in values]
            numbers = [formats.decode("float32", v) for v in via]
            expected = [formats.round_number(target, x, fp8_overflow=overflow) for x in numbers]
        ours = everywhere("convert", (source, words), profile=profile, dtype=dtypes.DTYPES[target])
        assert ours.tolist() == expected, target


@pytest.mark.parametrize("overflow", OVERFLOWS)
@pytest.mark.parametrize("type_name", FLOAT8)
def test_overflow_C3_of_arithmetic_is_at_the_store(
    restored_processor: None, type_name: str, overflow: str
) -> None:
    """The float32 result is rounded once; an Inf among the operands is Inf to `saturate` too."""
    rng = np.random.default_rng(21)
    x, y = (mixed_words(rng, type_name, 150, ("any", "special")) for _ in range(2))
    profile = Profile(fp8_overflow=overflow)
    pairs = list(zip(widened(type_name, x), widened(type_name, y), strict=True))
    for name in ("add", "multiply", "divide", "maximum", "exp", "reciprocal"):
        arity = 1 if name in ("exp", "reciprocal") else 2
        results = [twin.FLOAT[name](*p[:arity]) for p in pairs]
        ours = everywhere(name, *((type_name, v) for v in (x, y)[:arity]), profile=profile)
        assert ours.tolist() == [stored(type_name, r, fp8_overflow=overflow) for r in results], name


@pytest.mark.parametrize("overflow", OVERFLOWS)
@pytest.mark.parametrize("type_name", FLOAT8)
def test_overflow_C3_of_sums_and_products_is_at_the_store(
    restored_processor: None, type_name: str, overflow: str
) -> None:
    f = formats.FORMATS[type_name]
    largest = ((1 << f.exponent_bits) - 1) << f.mantissa_bits
    rows = [
        [largest - 1, 1, 0],
        [largest - 1, largest - 1, 0x80],
        [largest, 0, 0],
        [largest, largest | 0x80, 0],
    ]
    x = np.array(rows, np.uint8)
    x = np.concatenate([x, x ^ 0x80])
    one = encoded(type_name, [1.0] * 3).reshape(3, 1)
    profile = Profile(fp8_overflow=overflow)
    totals = [functools.reduce(twin.add, widened(type_name, row)) for row in x]
    expected = np.array([stored(type_name, t, fp8_overflow=overflow) for t in totals])
    check_everywhere(
        lambda: evaluate_fold("reduce", type_name, x, dimensions=(1,), profile=profile), expected
    )
    check_everywhere(
        lambda: evaluate_dot(type_name, x, type_name, one, type_name, profile=profile)[:, 0], expected
    )


@pytest.mark.parametrize("overflow", OVERFLOWS)
@pytest.mark.parametrize("target", FLOAT8)
def test_overflow_C3_of_python_numbers_equals_the_twin(target: str, overflow: str) -> None:
    """Also of integers that no 64 bits hold, alone and in lists."""
    values = [1.0, 1e9, -1e9, 300, 2**60, -(2**70), 10**30, math.inf, -math.inf]
    expected = [
        formats.round_number(target, formats.exact(v), fp8_overflow=overflow) for v in values
    ]  # fmt: skip
    with use_profile(fp8_overflow=overflow):
        single = [int(ns.asarray(v, target).bits.data) for v in values]
        together = ns.asarray(values, target).bits.data.tolist()
    assert single == expected
    assert together == expected


# ---- C4: subnormals ------------------------------------------------------------------------------


def flush(type_name: str, word: int) -> int:
    """C4 as written: a value of float32, tfloat32 or bfloat16 below 2^-126 is zero with its sign."""
    f = formats.FORMATS[type_name]
    x = formats.decode(type_name, word)
    is_small = x.kind == "finite" and x.magnitude < formats.Fraction(2) ** -126
    return word & f.sign_bit if type_name in WIDE and is_small else word


def flushed(operation: Callable[..., int]) -> Callable[..., int]:
    """A float32 operation whose operands and result are flushed."""

    def run(*operands: int) -> int:
        return flush("float32", operation(*(flush("float32", x) for x in operands)))

    return run


def small_words(rng: np.random.Generator, type_name: str, shape: Any, highest: int = 4) -> Words:
    """Subnormals and the smallest normal values, of either sign."""
    f = formats.FORMATS[type_name]
    field = rng.integers(0, highest << f.mantissa_bits, shape) << f.shift
    sign = rng.integers(0, 2, shape) * f.sign_bit
    return (field | sign).astype(word_type(type_name))


FLUSH = Profile(subnormals="flush")


def flush_operands(type_name: str, arity: int, n: int) -> list[Words]:
    """Operands among small values, and small values beside ordinary, large and special ones."""
    rng = np.random.default_rng(31 + arity)
    small = [small_words(rng, type_name, n) for _ in range(arity)]
    mixed = [random_words(rng, type_name, n, "near"), small_words(rng, type_name, n)] * 2
    around = [random_words(rng, type_name, n, mode) for mode in ("special", "any")] * 2
    f = formats.FORMATS[type_name]
    unit = 1 << (f.mantissa_bits + f.shift)
    # Products and quotients around 2^-126: exponents that add up to it.
    half = random_words(rng, type_name, (2, n), "any") & word_type(type_name).type(unit - 1)
    half = half | (rng.integers(62, 65, (2, n)) * unit).astype(half.dtype)
    parts = zip(small, mixed, mixed[1:], around, itertools.cycle(half), strict=False)
    return [np.concatenate(p) for p in parts]


@each_of("type_name", WIDE)
@each_of("name", [*BINARY, "floor_divide", "clamp", *UNARY])
def test_flush_C4_of_operands_and_results_equals_the_twin(
    restored_processor: None, name: str, type_name: str
) -> None:
    arity = 3 if name == "clamp" else 2 if name in (*BINARY, "floor_divide") else 1
    columns = flush_operands(type_name, arity, 60)
    operation = flushed(twin.FLOAT[name])
    rows = zip(*(widened(type_name, c) for c in columns), strict=True)
    expected = [stored(type_name, operation(*row), subnormals="flush") for row in rows]
    ours = everywhere(name, *((type_name, c) for c in columns), profile=FLUSH)
    assert ours.tolist() == expected


def test_flush_C4_keeps_what_rounds_up_to_the_smallest_normal(isa: str) -> None:
    """2^-63 · 2^-63 · (1 - 2^-24) is a tie whose RNE value is 2^-126; with 1 - 2^-23 it is below."""
    a = np.array([0x1FFFFFFF, 0x1FFFFFFE, 0x9FFFFFFF, 0x9FFFFFFE], np.uint32)
    b = np.full(4, 0x20000000, np.uint32)
    ours = evaluate("multiply", ("float32", a), ("float32", b), profile=FLUSH)
    assert ours.tolist() == [0x00800000, 0, 0x80800000, 0x80000000]
    usual = evaluate("multiply", ("float32", a), ("float32", b))
    assert usual.tolist() == [0x00800000, 0x007FFFFF, 0x80800000, 0x807FFFFF]


@pytest.mark.parametrize("target", WIDE)
def test_flush_C4_of_float64_is_judged_after_rounding(isa: str, target: str) -> None:
    """C1 rounds the float64 itself: its tie below 2^-126 goes up and stays, one step less does not."""
    m = formats.FORMATS[target].mantissa_bits
    tie = math.ldexp(1 - 2.0 ** -(m + 1), -126)
    smallest = math.ldexp(1, -126)
    below = math.nextafter(tie, 0)
    x = [tie, below, math.nextafter(tie, 1), smallest, math.nextafter(smallest, 0), 2.0**-149, 5e-324]
    words = np.array([s * v for v in x for s in (1, -1)]).view(np.uint64)
    ours = evaluate("convert", ("float64", words), profile=FLUSH, dtype=dtypes.DTYPES[target])
    kept = 1 << (m + formats.FORMATS[target].shift)
    sign = formats.FORMATS[target].sign_bit
    magnitudes = [kept, 0, kept, kept, kept, 0, 0]
    assert ours.tolist() == [v | s for v in magnitudes for s in (0, sign)]
    numbers = [formats.decode("float64", w) for w in words.tolist()]
    assert ours.tolist() == [formats.round_number(target, v, subnormals="flush") for v in numbers]


@each_of("source", [*FLOATS, "float64"])
@each_of("target", [*FLOATS, "float64", "float8_e4m3fn"])
def test_flush_C4_of_conversions_equals_the_twin(
    restored_processor: None, source: str, target: str
) -> None:
    rng = np.random.default_rng(32)
    words = mixed_words(rng, source, 60, ("any", "special"))
    if source in WIDE:
        words = np.concatenate([words, small_words(rng, source, 80)])
    elif source == "float64":
        scale = 2.0 ** rng.integers(-152, -124, 80)
        words = np.concatenate([words, ((1 + rng.random(80)) * scale).view(np.uint64)])
    expected = words.tolist()
    if source != target:  # the same type moves bits (C5)
        read = [formats.decode(source, flush(source, w)) for w in words.tolist()]
        expected = [formats.round_number(target, x, subnormals="flush") for x in read]
    ours = everywhere("convert", (source, words), profile=FLUSH, dtype=dtypes.DTYPES[target])
    assert ours.tolist() == expected


@pytest.mark.parametrize("source", WIDE)
def test_flush_C4_of_conversions_to_bool_and_integers(isa: str, source: str) -> None:
    """A subnormal reads as zero: false, and 0."""
    f = formats.FORMATS[source]
    unit = 1 << f.shift
    smallest = 1 << (f.mantissa_bits + f.shift)
    words = [unit, smallest - unit, smallest, f.sign_bit | unit, f.sign_bit | smallest, 0]
    x = (source, np.array(words, word_type(source)))
    true = evaluate("convert", x, profile=FLUSH, dtype=dtypes.boolean)
    assert true.tolist() == [0, 0, 1, 0, 1, 0]
    assert evaluate("convert", x, dtype=dtypes.boolean).tolist() == [1, 1, 1, 1, 1, 0]
    for rounding in ("truncate", "nearest"):
        profile = FLUSH.replace(float_to_int=rounding)
        assert not evaluate("convert", x, profile=profile, dtype=dtypes.int32).any()


@pytest.mark.parametrize("type_name", WIDE)
def test_flush_C4_comparisons_read_flushed_operands(restored_processor: None, type_name: str) -> None:
    a, b = flush_operands(type_name, 2, 80)
    columns = ([flush("float32", w) for w in widened(type_name, c)] for c in (a, b))
    read = list(zip(*columns, strict=True))
    for name in twin.COMPARISON:
        ours = everywhere(name, (type_name, a), (type_name, b), profile=FLUSH)
        assert ours.tolist() == [int(twin.compare(name, *p)) for p in read], name
        total = f"{name}_total_order"
        ours = everywhere(total, (type_name, a), (type_name, b), profile=FLUSH)
        assert ours.tolist() == [int(twin.compare_total_order(name, *p)) for p in read], total
    for name, predicate in twin.PREDICATE.items():
        ours = everywhere(name, (type_name, a), profile=FLUSH)
        assert ours.tolist() == [int(predicate(p[0])) for p in read], name


def flushed_sum(
    reducer: str, type_name: str, elements: Words, initial: Words, *, round_tiles: bool = False
) -> int:
    """R2 with C4: every operand and every step's result is flushed."""
    step = flushed(twin.FLOAT[reducer])
    wide = [flush("float32", w) for w in widened(type_name, elements)]
    tiles = [functools.reduce(step, wide[i : i + 512]) for i in range(0, len(wide), 512)]
    if round_tiles:
        tiles = widened(type_name, np.array([stored(type_name, t, subnormals="flush") for t in tiles]))
    (start,) = widened(type_name, initial)
    return stored(type_name, step(functools.reduce(step, tiles), start), subnormals="flush")


SUMS = [
    ("float32", "add", 40, False),
    ("float32", "add", 530, False),
    ("float32", "multiply", 3, False),
    ("float32", "maximum", 2, False),
    ("float32", "minimum", 1, False),
    ("tfloat32", "add", 40, False),
    ("bfloat16", "add", 530, True),
    ("bfloat16", "add", 530, False),
    ("bfloat16", "multiply", 3, True),
    ("float16", "multiply", 9, False),
]


def sum_operands(type_name: str, reducer: str, depth: int) -> tuple[Words, Words]:
    """Sums that go through the subnormal range, from elements on both sides of 2^-126."""
    rng = np.random.default_rng(depth)
    if reducer == "multiply":
        f = formats.FORMATS[type_name]
        m = f.mantissa_bits + f.shift
        low, high = (80, 90) if type_name in WIDE else (1, 8)
        x = small_words(rng, type_name, (24, depth), 1)
        x |= (rng.integers(low, high, x.shape) << m).astype(x.dtype)
    else:
        x = small_words(rng, type_name, (24, depth), 3 if depth < 512 else 1)
        x[::3] = small_words(rng, type_name, x[::3].shape, 2)
    return x, small_words(rng, type_name, (), 3)


@each_of(("type_name", "reducer", "depth", "round_tiles"), SUMS)
def test_flush_C4_every_step_of_a_reduction(
    restored_processor: None, type_name: str, reducer: str, depth: int, round_tiles: bool
) -> None:
    x, initial = sum_operands(type_name, reducer, depth)
    x = x[:6] if depth > 512 else x
    expected = np.array(
        [flushed_sum(reducer, type_name, row, initial, round_tiles=round_tiles) for row in x]
    )
    profile = FLUSH.replace(mixed_precision_accumulation="off" if round_tiles else "on")
    for axis, operand in ((1, x), (0, np.ascontiguousarray(x.T)), (1, np.asfortranarray(x))):
        more = {"profile": profile, "dimensions": (axis,), "reducer": reducer}
        run = functools.partial(evaluate_fold, "reduce", type_name, operand, initial, **more)
        check_everywhere(run, expected, threads=(1, 2))


def test_flush_C4_of_many_sums_on_threads(restored_processor: None) -> None:
    """Enough outputs to be shared out, in float32 with NumPy's additions flushed step by step."""
    rng = np.random.default_rng(35)
    x = small_words(rng, "float32", (3000, 40), 3)
    total = np.where(x[:, 0] & 0x7F800000, x[:, 0], x[:, 0] & 0x80000000)
    for column in (*x.T[1:], np.zeros(3000, np.uint32)):
        read = np.where(column & 0x7F800000, column, column & 0x80000000)
        raw = (total.view(np.float32) + read.view(np.float32)).view(np.uint32)
        total = np.where(raw & 0x7F800000, raw, raw & 0x80000000)
    run = functools.partial(evaluate_fold, "reduce", "float32", x, dimensions=(1,))
    check_everywhere(lambda: run(profile=FLUSH), total, threads=(1, 2))
    usual = check_everywhere(run, threads=(1, 2))
    assert np.mean(usual != total) > 0.5


def flushed_dot(lhs: str, rhs: str, result: str, a: Words, b: Words) -> int:
    """M2 with C4: operands, every fma and every PSUM addition are flushed."""
    fma, add, psum = flushed(twin.fma), flushed(twin.add), 0
    terms = list(zip(widened(lhs, a), widened(rhs, b), strict=True))
    for start in range(0, len(a), 128):
        acc = functools.reduce(lambda acc, term: fma(*term, acc), terms[start : start + 128], 0)
        psum = add(psum, acc)
    return stored(result, psum, subnormals="flush")


@pytest.mark.parametrize(
    ("lhs", "rhs", "result", "depth"),
    [
        ("float32", "float32", "float32", 1),
        ("float32", "float32", "float32", 6),
        ("float32", "float32", "bfloat16", 140),
        ("bfloat16", "bfloat16", "bfloat16", 5),
        ("bfloat16", "bfloat16", "float32", 260),
        ("tfloat32", "float32", "tfloat32", 129),
        ("bfloat16", "float16", "float32", 4),
    ],
)
def test_flush_C4_every_fma_and_psum_addition_of_a_dot(
    restored_processor: None, lhs: str, rhs: str, result: str, depth: int
) -> None:
    rng = np.random.default_rng(depth)
    # Ones and halves times values around 2^-126, so that products and sums fall on both sides.
    x = small_words(rng, lhs, (3, depth), 3)
    y = encoded(rhs, rng.choice([1.0, 0.5, -1.0, 1.5, 0.25], 4 * depth).tolist()).reshape(depth, 4)
    if rhs in WIDE:
        y[:, 3] = small_words(rng, rhs, depth, 2)
        x[2] = encoded(lhs, rng.choice([1.0, 0.5, -1.0], depth).tolist())
    expected = np.array([[flushed_dot(lhs, rhs, result, row, column) for column in y.T] for row in x])
    run = functools.partial(evaluate_dot, lhs, x, rhs, y, result)
    check_everywhere(lambda: run(profile=FLUSH), expected, threads=(1, 2))
    assert run().tolist() != expected.tolist()


@pytest.mark.parametrize("target", WIDE)
def test_flush_C4_of_python_numbers_equals_the_twin(target: str) -> None:
    values = [1e-40, -1e-39, 2.0**-126, math.ldexp(1 - 2.0**-40, -126), 1.5]
    for numbers in (values, [*values, 2**60 + 1]):
        expected = [
            formats.round_number(target, formats.exact(v), subnormals="flush") for v in numbers
        ]  # fmt: skip
        with use_profile(subnormals="flush"):
            found = ns.asarray(numbers, target).bits.data
        assert found.view(word_type(target)).tolist() == expected


def test_flush_C4_in_a_chain_of_two_steps(isa: str) -> None:
    """Between two operations the subnormal is gone, whether or not they run as one program."""
    x = ns.asarray([2.0**-100, -(2.0**-100)])
    with use_profile(subnormals="flush"):
        small = x * 2.0**-40
        assert (small * 2.0**40).bits.data.view(np.uint32).tolist() == [0, 0x80000000]
    assert (x * 2.0**-40 * 2.0**40).tolist() == x.tolist()


# ---- C6: float_to_int ----------------------------------------------------------------------------

NEAREST = Profile(float_to_int="nearest")


@each_of("target", INTEGERS)
@each_of("source", ["float32", "bfloat16", "float16", "float64", "float8_e4m3"])
def test_nearest_C6_equals_the_twin(restored_processor: None, source: str, target: str) -> None:
    info, rng = np.iinfo(target), np.random.default_rng(41)
    points = [0.0, 0.5, 1.5, 2.5, 3.5, 0.25, 0.75, 254.5, 255.5, 65534.5, 2.0**22 + 0.5, 2.0**23 - 0.5]
    points += [2.0**51 + 0.5, 2.0**52 - 0.5, 2.0**53 + 1, 1e20, 1e38, math.inf, math.nan]
    for edge in (info.max, info.max + 1, info.min, info.min - 1):
        points += [float(edge) + d for d in (0, 0.5, -0.5, 0.25, -0.25)]
    near = [math.nextafter(x, to) for x in points for to in (0, math.inf)]
    words = encoded(source, [s * x for x in (*points, *near) for s in (1, -1)])
    one = words.dtype.type(1)
    words = np.unique(np.concatenate([words, words + one, words - one]))
    words = np.concatenate([words, random_words(rng, source, 200, "near")])
    signed = info.min < 0
    expected = [
        formats.float_to_integer(source, w, bits=info.bits, signed=signed, nearest=True)
        for w in words.tolist()
    ]
    ours = everywhere("convert", (source, words), profile=NEAREST, dtype=dtypes.DTYPES[target])
    assert ours.view(target).tolist() == expected


def test_nearest_C6_of_every_float16(isa: str) -> None:
    """A third party: NumPy's rint of the float16 value."""
    words = np.arange(1 << 16, dtype=np.uint16)
    x = words.view(np.float16).astype(np.float64)
    with np.errstate(invalid="ignore"):
        expected = np.clip(np.rint(np.where(np.isnan(x), 0, x)), -32768, 32767).astype(np.int16)
    ours = evaluate("convert", ("float16", words), profile=NEAREST, dtype=dtypes.int16)
    assert np.array_equal(ours.view(np.int16), expected)


# ---- E2: divide ----------------------------------------------------------------------------------

RECIPROCAL = Profile(divide="reciprocal_multiply")


@pytest.mark.parametrize("type_name", FLOATS)
def test_divide_E2_is_multiply_by_the_reciprocal(restored_processor: None, type_name: str) -> None:
    """Two roundings to float32 and, for a narrow type, one more at the store."""
    rng = np.random.default_rng(51)
    a, b = (mixed_words(rng, type_name, 300) for _ in range(2))
    pairs = zip(widened(type_name, a), widened(type_name, b), strict=True)
    quotients = [twin.multiply(x, twin.divide(0x3F800000, y)) for x, y in pairs]
    expected = [formats.convert("float32", type_name, q) for q in quotients]
    operands = ((type_name, a), (type_name, b))
    ours = everywhere("divide", *operands, profile=RECIPROCAL)
    assert ours.tolist() == expected
    if type_name == "float32":  # and so it is with the two instructions
        inverse = evaluate("reciprocal", operands[1])
        assert np.array_equal(ours, evaluate("multiply", operands[0], ("float32", inverse)))
    if type_name in ("float32", "bfloat16"):
        assert not np.array_equal(ours, evaluate("divide", *operands))


# ---- E8: int32_elementwise -----------------------------------------------------------------------

VIA_FLOAT = Profile(int32_elementwise="via_float32")
VIA_BINARY = [*BINARY, "floor_divide"]


def integer_operands(type_name: str) -> list[Words]:
    info, rng = np.iinfo(type_name), np.random.default_rng(61)
    edges = [0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min + 1, info.max // 2]
    edges += [
        v for v in (-1, -2, -7, 16777216, 16777217, 16777219, -16777217) if info.min <= v <= info.max
    ]
    grid = pairs_of(np.array(edges, type_name), np.array(edges, type_name))
    small = [rng.integers(max(info.min, -9), 10, 100).astype(type_name) for _ in grid]
    word = word_type(type_name)
    return [
        np.concatenate([g.view(word), s.view(word), random_words(rng, type_name, 150)])
        for g, s in zip(grid, small, strict=True)
    ]


@each_of("name", [*VIA_BINARY, "sign"])
@each_of("type_name", ["int8", "int16", "int32", "uint8", "uint16", "uint32"])
def test_integers_E8_via_float32_equal_the_twin(
    restored_processor: None, type_name: str, name: str
) -> None:
    """Operands to float32 by RNE, the operation there, and back by RNE with saturation."""
    info = np.iinfo(type_name)
    columns = integer_operands(type_name)[: 1 if name == "sign" else 2]
    rows = zip(*(c.view(type_name).tolist() for c in columns), strict=True)
    floats = [[formats.from_float("float32", v) for v in row] for row in rows]
    expected = [
        formats.float_to_integer(
            "float32", twin.FLOAT[name](*f), bits=info.bits, signed=info.min < 0, nearest=True
        )
        for f in floats
    ]
    operands = [(type_name, c) for c in columns]
    ours = everywhere(name, *operands, profile=VIA_FLOAT)
    assert ours.view(type_name).tolist() == expected


@pytest.mark.parametrize("type_name", ["int64", "uint64", "int32", "uint8"])
def test_integers_E8_via_float32_leaves_bits_and_64_bits_alone(isa: str, type_name: str) -> None:
    a, b = integer_operands(type_name)
    names = ["bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right_logical", "power"]
    if type_name.endswith("64"):
        names += VIA_BINARY
    for name in names:
        operands = ((type_name, a), (type_name, b))
        ours = evaluate(name, *operands, profile=VIA_FLOAT)
        assert np.array_equal(ours, evaluate(name, *operands)), name
    for name in ("bitwise_invert", "population_count", "count_leading_zeros"):
        ours = evaluate(name, (type_name, a), profile=VIA_FLOAT)
        assert np.array_equal(ours, evaluate(name, (type_name, a))), name


# ---- C8: scalar ----------------------------------------------------------------------------------

SYMBOLS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
}


@each_of("type_name", FLOATS)
@each_of("name", SYMBOLS)
def test_scalar_C8_is_a_float32_immediate(type_name: str, name: str) -> None:
    """An instruction's scalar is float32: the array's element meets it unrounded."""
    rng = np.random.default_rng(71)
    words = mixed_words(rng, type_name, 100, ("near", "special"))
    t = dtypes.DTYPES[type_name]
    x = ns.Array(ops.Bits(words.view(t.storage), t))
    for scalar in (0.1, -3, 1 / 3, True, 1e-40):
        immediate = formats.from_float("float32", scalar)
        wide = widened(type_name, words)
        with use_profile(scalar="float32_immediate"):
            right, left = SYMBOLS[name](x, scalar), SYMBOLS[name](scalar, x)
        for found, pairs in (
            (right, [(w, immediate) for w in wide]),
            (left, [(immediate, w) for w in wide]),
        ):
            assert found.dtype is t
            expected = [formats.convert("float32", type_name, twin.FLOAT[name](*p)) for p in pairs]
            assert found.bits.data.view(words.dtype).tolist() == expected


def test_scalar_C8_immediate_changes_arrays_integers_and_float32_not_at_all(isa: str) -> None:
    values = {
        "float32": (ns.asarray([1.5, 2.5]), 0.1),
        "int32": (ns.asarray([7, -9], "int32"), 3),
        "float16": (ns.asarray([1.5, 2.5], "float16"), ns.asarray([0.1, 0.2], "float16")),
    }
    for x, y in values.values():
        usual = [op(x, y).tobytes() for op in SYMBOLS.values()]
        with use_profile(scalar="float32_immediate"):
            assert [op(x, y).tobytes() for op in SYMBOLS.values()] == usual


# ---- C9: reduce-precision ------------------------------------------------------------------------

EXPONENTS = [1, 2, 3, 4, 5, 7, 8, 11]


def precision_words(type_name: str) -> Words:
    rng = np.random.default_rng(81)
    parts = [mixed_words(rng, type_name, 60)]
    parts.append(small_words(rng, type_name, 40, 2))
    f = formats.FORMATS[type_name]
    # The bounds of every exponent width: largest values, their ties, and the least normal ones.
    edges = []
    for e, m in itertools.product((1, 2, 3, 5), (1, 3)):
        bias = (1 << (e - 1)) - 1
        for value in (2.0 ** (bias + 1), 2.0 ** (1 - bias)):
            edges += [value, value * (1 - 2.0 ** -(m + 2)), value * (1 - 2.0 ** -(m + 1)), value * 0.75]
    edge_words = encoded(type_name, [s * v for v in edges for s in (1, -1)])
    assert f.mantissa_bits >= 2
    return np.concatenate([*parts, edge_words])


@each_of("exponent_bits", EXPONENTS)
@each_of("type_name", ["float32", "bfloat16", "float16", "float8_e5m2", "float8_e3m4"])
def test_reduce_precision_C9_of_any_widths_equals_the_twin(
    restored_processor: None, type_name: str, exponent_bits: int
) -> None:
    """Where both widths are the type's or more there is nothing to round: the bits move, NaN's too."""
    words = precision_words(type_name)
    f = formats.FORMATS[type_name]
    for mantissa_bits in (0, 1, 2, 7, 10, 22, 52):
        ours = everywhere(
            "reduce_precision",
            (type_name, words),
            exponent_bits=exponent_bits,
            mantissa_bits=mantissa_bits,
        )
        expected = words.tolist()
        if exponent_bits < f.exponent_bits or mantissa_bits < f.mantissa_bits:
            expected = [
                twin.reduce_precision(type_name, w, exponent_bits, mantissa_bits) for w in expected
            ]
        assert ours.tolist() == expected, mantissa_bits


# ---- R1: the accumulate type ---------------------------------------------------------------------


@each_of("accumulate", ["bfloat16", "float16", "tfloat32", "float32"])
@each_of("reducer", ["add", "multiply", "maximum"])
@each_of("type_name", ["float32", "bfloat16", "float8_e4m3"])
def test_reduce_R1_rounds_every_step_to_the_accumulate_type(
    restored_processor: None, type_name: str, reducer: str, accumulate: str
) -> None:
    rng = np.random.default_rng(91)
    x = random_words(rng, type_name, (4, 60), "near")
    x[3] = random_words(rng, type_name, 60, "special")
    initial = encoded(type_name, [1.0])[0]
    expected = [
        sums.reduce_float(reducer, type_name, row, int(initial), accumulate=accumulate)
        for row in x.tolist()
    ]
    more = {"reducer": reducer, "accumulate": dtypes.DTYPES[accumulate]}
    for axis, operand in ((1, x), (0, np.ascontiguousarray(x.T))):
        more["dimensions"] = (axis,)
        run = functools.partial(evaluate_fold, "reduce", type_name, operand, initial, **more)
        check_everywhere(run, np.array(expected), threads=(1, 2))


def test_reduce_R1_across_tiles(restored_processor: None) -> None:
    """Ones in bfloat16 steps stop at 256 within a tile; 256 + 256 is exact."""
    ones = encoded("bfloat16", [1.0] * 1100).reshape(1, 1100)
    run = functools.partial(evaluate_fold, "reduce", "bfloat16", ones, dimensions=(1,))
    tiles = encoded("bfloat16", [256.0 + 256.0 + 76.0])
    check_everywhere(lambda: run(accumulate=dtypes.bfloat16), tiles)
    assert run().tolist() == encoded("bfloat16", [1100.0]).tolist()
    profile = Profile(mixed_precision_accumulation="off")  # the tiles are bfloat16 already
    check_everywhere(lambda: run(accumulate=dtypes.bfloat16, profile=profile), tiles)


def test_flush_C4_acts_on_the_float32_product_before_the_store(isa: str) -> None:
    """(181/128)^2 is 2 - 7/2^14: below 2^-126 in float32; bfloat16 would round it up to 2^-126."""
    values = np.array([181 / 128 * 2.0**-63, 181 / 128 * 2.0**-64], np.float32)
    a, b = (np.array([w >> 16], np.uint16) for w in values.view(np.uint32).tolist())
    keep = evaluate("multiply", ("bfloat16", a), ("bfloat16", b))
    flush = Profile(subnormals="flush")
    flushed = evaluate("multiply", ("bfloat16", a), ("bfloat16", b), profile=flush)
    assert (keep.tolist(), flushed.tolist()) == ([0x0080], [0])
