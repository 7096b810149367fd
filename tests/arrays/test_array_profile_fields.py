"""Each field of Profile acts on the functions of arrays, and as the twin says."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy
import pytest
from float32_steps import Step, number, steps
from narrow_cases import finite, of_words, rows_of, stored, wide
from tests.support.words import word_list

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.profiles import Profile, rounding_state
from neuronsim.reference import composites, formats, random, sums
from neuronsim.reference.elementwise import FLOAT
from neuronsim.reference.formats import decode, round_number

NARROW = [t for t in DTYPES.values() if t.exponent_bits and t.device and t is not np.float32]
FLOAT8 = [t for t in NARROW if t.bits == 8]
WIDE_RANGE = [np.bfloat16, np.tfloat32]  # whose exponents are those of float32


@dataclass(frozen=True)
class Change:
    """What a field's value makes of a call."""

    value: str
    types: list[DType]
    found: Callable[[DType], np.Array]
    expected: Callable[[DType], np.Array]
    warns: tuple[str, ...] = field(default=())


def pairs(dtype: DType, scale: float = 1.5) -> tuple[np.Array, np.Array]:
    return finite(dtype, (40,), 21, scale), finite(dtype, (40,), 22, scale)


def by_steps(name: str, x: np.Array, y: np.Array) -> list[int]:
    return [FLOAT[name](*p) for p in zip(wide(x), wide(y), strict=True)]


def rounded(found: list[int], dtype: DType, shape: Any = None, **more: Any) -> np.Array:
    """Float32 words rounded once under a profile's fields."""
    numbers = [round_number(dtype.name, decode("float32", w), **more) for w in found]
    return of_words(numbers, dtype, shape)


# ---- S2: rounding ------------------------------------------------------------------------------------

SEED = 11


def drawn_words(operation: str, count: int) -> list[int]:
    """Of the first rounding operation since seeding (S2)."""
    place = random.identifier(f"0/eager/{operation}//")
    return [random.word(SEED, place, i) for i in range(count)]


def stochastically(operation: str, found: list[int], dtype: DType) -> np.Array:
    drawn = zip(found, drawn_words(operation, len(found)), strict=True)
    numbers = [round_number(dtype.name, decode("float32", w), word=r) for w, r in drawn]
    return of_words(numbers, dtype)


def float32_sums(x: np.Array) -> list[int]:
    wide_rows = rows_of(of_words(wide(x), np.float32, x.shape))
    return [sums.reduce_float("add", "float32", row, 0) for row in wide_rows]


def float32_means(x: np.Array) -> list[int]:
    wide_rows = rows_of(of_words(wide(x), np.float32, x.shape))
    return [composites.mean("float32", row)[0] for row in wide_rows]


def seeded(call: Callable[[], np.Array]) -> np.Array:
    np.seed_rounding(SEED)
    return call()


def many_rows(dtype: DType) -> np.Array:
    return finite(dtype, (20, 9), 23)


STOCHASTIC = [
    Change(
        "stochastic",
        NARROW,
        lambda t: seeded(lambda: np.add(*pairs(t))),
        lambda t: stochastically("add", by_steps("add", *pairs(t)), t),
    ),
    Change(
        "stochastic",
        NARROW,
        lambda t: seeded(lambda: np.sum(many_rows(t), axis=1)),
        lambda t: stochastically("reduce", float32_sums(many_rows(t)), t),
    ),
    Change(
        "stochastic",
        NARROW,
        lambda t: seeded(lambda: np.mean(many_rows(t), axis=1)),
        lambda t: stochastically("mean", float32_means(many_rows(t)), t),
    ),
]

# ---- C: conversions ----------------------------------------------------------------------------------

TINY = 2.0**-66  # whose products are subnormal


def tiny_pairs(dtype: DType) -> tuple[np.Array, np.Array]:
    return pairs(dtype, TINY)


def flushed_product(dtype: DType) -> np.Array:
    found = by_steps("multiply", *tiny_pairs(dtype))
    return rounded(found, dtype, subnormals="flush")


def subnormals(dtype: DType) -> np.Array:
    return np.asarray([2.0**-127, -(2.0**-128), 2.0**-126, 3 * 2.0**-127], dtype)


KEPT = [0.0, 0.0, 2.0**-126, 3 * 2.0**-127]


def flushed_dot(dtype: DType) -> np.Array:
    x, y = (word_list(v) for v in tiny_pairs(dtype))
    name = dtype.name
    return of_words([sums.dot(name, name, name, x, y, subnormals="flush")], dtype, ())


def large_pairs(dtype: DType) -> tuple[np.Array, np.Array]:
    """Half the largest value and above, so that many sums overflow."""
    f = formats.FORMATS[dtype.name]
    top = round_number(dtype.name, formats.exact(math.inf))
    draw = numpy.random.default_rng(5).integers(top - (2 << f.mantissa_bits), top, (2, 30))
    signs = numpy.random.default_rng(6).integers(0, 2, (2, 30)) * f.sign_bit
    x, y = (draw | signs).tolist()
    return of_words(x, dtype), of_words(y, dtype)


def overflowed(value: str) -> list[Change]:
    def dot(dtype: DType) -> np.Array:
        name = dtype.name
        x, y = (rows_of(v.reshape(3, 10)) for v in large_pairs(dtype))
        products = itertools.product(x, y)
        found = [sums.dot(name, name, name, *p, fp8_overflow=value) for p in products]
        return of_words(found, dtype, (3, 3))

    def of_float32(dtype: DType) -> np.Array:
        numbers = [1e6, -1e6, 300.0, 15.75, -16.0, 1.5]
        return of_words(
            [round_number(dtype.name, formats.exact(v), fp8_overflow=value) for v in numbers], dtype
        )

    def total(dtype: DType) -> np.Array:
        found = float32_sums(large_pairs(dtype)[0].reshape(5, 6))
        return rounded(found, dtype, fp8_overflow=value)

    return [
        Change(
            value,
            FLOAT8,
            lambda t: np.add(*large_pairs(t)),
            lambda t: rounded(by_steps("add", *large_pairs(t)), t, fp8_overflow=value),
        ),
        Change(value, FLOAT8, lambda t: np.sum(large_pairs(t)[0].reshape(5, 6), axis=1), total),
        Change(
            value,
            FLOAT8,
            lambda t: np.einsum("ik,jk->ij", *(v.reshape(3, 10) for v in large_pairs(t))),
            dot,
        ),
        Change(
            value,
            FLOAT8,
            lambda t: np.asarray([1e6, -1e6, 300.0, 15.75, -16.0, 1.5]).astype(t),
            of_float32,
        ),
    ]


INTEGERS = [1077936129, -1077936129, 2**24 + 2**16 + 1, 7]
FRACTIONS = [0.5, 1.5, 2.5, -2.5, -0.75, 3.25]


def nearest_integers(dtype: DType) -> np.Array:
    found = [
        formats.float_to_integer("float32", number(v).word, bits=32, signed=True, nearest=True)
        for v in FRACTIONS
    ]
    return np.asarray(found, dtype="int32")


def by_immediate(dtype: DType) -> np.Array:
    tenth = number(0.1)
    return stored([(x * tenth).word for x in steps(pairs(dtype)[0])], dtype)


def remainders_by_immediate(dtype: DType) -> np.Array:
    third = number(1 / 3).word
    return stored([FLOAT["remainder"](w, third) for w in wide(pairs(dtype)[0])], dtype)


# ---- E, R, M -----------------------------------------------------------------------------------------


def by_reciprocal(x: Step, y: Step) -> Step:
    return x * Step(FLOAT["reciprocal"](y.word))


def quotients(dtype: DType) -> np.Array:
    x, y = map(steps, pairs(dtype))
    return stored([by_reciprocal(a, b).word for a, b in zip(x, y, strict=True)], dtype)


def means(dtype: DType) -> np.Array:
    totals = map(Step, float32_sums(many_rows(dtype)))
    return stored([by_reciprocal(t, number(9.0)).word for t in totals], dtype)


def factors(dtype: DType) -> tuple[np.Array, np.Array]:
    """Of sums whose order and roundings show: large values that cancel, deeper than a tile."""
    x, y = finite(dtype, (2, 300), 25, 0.5), finite(dtype, (300, 2), 26, 0.5)
    x[:, 3], x[:, 200] = 12.0, -12.0
    y[3], y[200] = 14.0, 14.0
    return x, y


def dots(accumulate: str) -> Callable[[DType], np.Array]:
    def expected(dtype: DType) -> np.Array:
        x, y = factors(dtype)
        columns = list(zip(*rows_of(y), strict=True))
        # Into float32, where a difference shows, as the result of dtype=float32 has it.
        found = [
            sums.dot(dtype.name, dtype.name, "float32", r, c, accumulate=accumulate)
            for r in rows_of(x)
            for c in columns
        ]
        return of_words(found, np.float32, (2, 2))

    return expected


def accumulated(value: str, types: list[DType]) -> Change:
    return Change(value, types, lambda t: np.matmul(*factors(t), dtype=np.float32), dots(value))


def long_rows(dtype: DType) -> np.Array:
    return finite(dtype, (2, 1100), 27)


def rounded_tiles(dtype: DType) -> np.Array:
    found = [
        sums.reduce_float("add", dtype.name, row, 0, round_tiles=True)
        for row in rows_of(long_rows(dtype))
    ]
    return of_words(found, dtype)


INTEGER_ROW = [2**25 + 1, 2, -(2**25), 5]


def integer_dot(dtype: DType) -> np.Array:
    found = sums.dot_integer_via_float32(INTEGER_ROW, [1, 1, 1, 1], bits=32, signed=True)
    return np.asarray(found, dtype="int32")


CHANNELS = [1.5, -0.25, 0.75, 0.3]  # mean, variance, weight and bias of a channel


def normalized(dtype: DType) -> np.Array:
    x = word_list(pairs(dtype)[0])
    terms = [wide(of_words([formats.from_float(dtype.name, abs(v))], dtype))[0] for v in CHANNELS]
    found = composites.xla_batch_norm(dtype.name, x, *terms)
    return of_words(found, dtype, (40, 1))


def batch_normalized(dtype: DType) -> np.Array:
    terms = [np.asarray([abs(v)], dtype) for v in CHANNELS]
    return np.nn.batch_norm(pairs(dtype)[0].reshape(40, 1), *terms)


def signed_zeros(dtype: DType) -> np.Array:
    return np.asarray([[-0.0, 1.0], [2.0, -0.0]], dtype)


BF16 = [np.bfloat16]
DEEP = [np.bfloat16, np.float16, np.tfloat32]  # whose products have more bits than a sum keeps
CHANGES: dict[str, list[Change]] = {
    "rounding": STOCHASTIC,
    "subnormals": [
        Change("flush", WIDE_RANGE, lambda t: np.multiply(*tiny_pairs(t)), flushed_product),
        Change("flush", WIDE_RANGE, lambda t: np.vecdot(*tiny_pairs(t)), flushed_dot),
        Change(
            "flush",
            WIDE_RANGE,
            lambda t: np.sum(subnormals(t)[:, None], axis=1),
            lambda t: of_words([formats.from_float(t.name, v) for v in KEPT], t),
        ),
    ],
    "fp8_overflow": overflowed("saturate") + overflowed("nan"),
    "int_to_float": [
        Change(
            "exact",
            BF16,
            lambda t: np.asarray(INTEGERS, dtype="int32").astype(t),
            lambda t: of_words([formats.from_float(t.name, v) for v in INTEGERS], t),
        )
    ],
    "float_to_int": [
        Change("nearest", NARROW, lambda t: np.asarray(FRACTIONS, t).astype("int32"), nearest_integers)
    ],
    "int64": [
        Change(
            "truncate",
            BF16,
            lambda t: np.sum(np.asarray([2**31, 2**31 + 5])),
            lambda t: np.asarray(5),
            ("C7",),
        )
    ],
    "scalar": [
        Change("float32_immediate", NARROW, lambda t: pairs(t)[0] * 0.1, by_immediate),
        Change(
            "float32_immediate",
            NARROW,
            lambda t: np.remainder(pairs(t)[0], 1 / 3),
            remainders_by_immediate,
        ),
    ],
    "divide": [
        Change("reciprocal_multiply", [np.float32], lambda t: np.divide(*pairs(t)), quotients),
        Change("reciprocal_multiply", [np.float32], lambda t: np.mean(many_rows(t), axis=1), means),
    ],
    "activation": [
        Change(
            "neuron_range",
            NARROW,
            lambda t: np.sin(np.asarray([1.0, 4.0], t)),
            lambda t: stored([FLOAT["sin"](number(1.0).word), 0x7FC00000], t),
            ("neuron_range",),
        )
    ],
    "int32_elementwise": [
        Change(
            "via_float32",
            BF16,
            lambda t: np.asarray([2**24 + 1, 5], "int32") + np.asarray([0, 1], "int32"),
            lambda t: np.asarray([2**24, 6], "int32"),
        )
    ],
    "mixed_precision_accumulation": [
        Change(
            "off", [np.bfloat16, np.float8_e4m3], lambda t: np.sum(long_rows(t), axis=1), rounded_tiles
        )
    ],
    "batch_norm": [Change("xla", [np.float32], batch_normalized, normalized)],
    "accumulate": [
        accumulated("sequential", DEEP),
        accumulated("exact", DEEP),
        accumulated("product_bf16", [np.float16]),
        accumulated("pairs", BF16),
    ],
    "int_dot": [
        Change(
            "via_float32",
            BF16,
            lambda t: np.matmul(np.asarray(INTEGER_ROW, "int32"), np.ones(4, "int32")),
            integer_dot,
        )
    ],
    "transpose": [
        Change(
            "tensor_engine",
            NARROW,
            lambda t: np.permute_dims(signed_zeros(t), (1, 0)),
            lambda t: np.asarray([[0.0, 2.0], [1.0, 0.0]], t),
        )
    ],
}
# Fields that no function of arrays can show, and why.
SILENT = {
    "rng_seed": "of RngBitGenerator, an instruction of graphs",
    "auto_cast_all": "of --auto-cast, which graphs have",
    "requantize": "of what a plan with bytes writes",
}


@pytest.fixture(autouse=True)
def own_seed() -> Iterator[None]:
    before = rounding_state().seed
    yield
    np.seed_rounding(before)


def test_every_field_with_a_choice_has_a_case_or_a_reason() -> None:
    choices = {f.name for f in fields(Profile) if len(f.metadata["values"]) > 1}
    assert choices == set(CHANGES) | set(SILENT)
    for name, changes in CHANGES.items():
        values = next(f.metadata["values"] for f in fields(Profile) if f.name == name)
        assert {c.value for c in changes} == set(values[1:]), name


EVERY = [
    pytest.param(name, change, dtype, id=f"{name}-{change.value}-{i}-{dtype.name}")
    for name, changes in CHANGES.items()
    for i, change in enumerate(changes)
    for dtype in change.types
]


@pytest.mark.parametrize(("name", "change", "dtype"), EVERY)
def test_a_field_acts_as_the_twin_says(name: str, change: Change, dtype: DType) -> None:
    plain = change.found(dtype)
    expected = change.expected(dtype)
    with np.use_profile(**{name: change.value}):
        if change.warns:
            with pytest.warns(RuntimeWarning, match=change.warns[0]):
                found = change.found(dtype)
        else:
            found = change.found(dtype)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()
    assert plain.tobytes() != found.tobytes()  # the field shows here
    assert change.found(dtype).tobytes() == plain.tobytes()
