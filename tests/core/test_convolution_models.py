"""Rule M5 under every model of accumulation: the convolution is the dot of its patches, whatever else
the profile and the plan say (M6, M7, C4, S2, A1).
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np
import pytest

from neuronsim import dtypes, ops, processor
from neuronsim.dtypes import DTYPES
from neuronsim.errors import UnsupportedOperator, UnsupportedType
from neuronsim.ops import WindowDimension
from neuronsim.profiles import Profile
from neuronsim.reference import formats, random
from tests.core.test_convolution import (
    Convolution,
    by_dot,
    numbers_of,
    operands_of,
    random_convolution,
    run,
    square,
)
from tests.support.draws import random_words
from tests.support.evaluation import evaluate
from tests.support.parameters import some
from tests.support.processors import check_everywhere
from tests.support.words import Words

W = WindowDimension
NARROW = ["bfloat16", "float16", "float8_e5m2", "float8_e4m3", "float8_e3m4"]
WIDE = ["float32", "tfloat32"]
# What the profile and the plan may say together (M6).
MODELS = [
    *((field, None) for field in ("psum128", "sequential", "exact", "product_bf16", "pairs")),
    *((field, t) for field in ("psum128", "sequential") for t in ("bfloat16", "float16")),
]
# One for each way through the core: in place, padded image, pairs, depthwise, groups, one pixel.
SHAPES = {
    "in place": Convolution(2, (9, 8), 33, 34, (W(1), W(1))),
    "padded": square(9, 3, 17, 33),
    "strided": square(11, 3, 16, 35, stride=2, batch=2),
    "dilated": Convolution(1, (11, 9), 6, 5, (W(3, 1, (2, 1), 2), W(2, 1, (0, 1), 1, 3, True))),
    "depthwise": square(9, 3, 1, 34, groups=34),
    "multiplied": square(8, 3, 1, 66, groups=22),
    "grouped": square(7, 3, 16, 20, groups=2),
    "batch groups": Convolution(4, (6, 7), 5, 6, (W(3, 1, (1, 1)), W(2)), 1, 2),
    "row": Convolution(1, (301,), 31, 7, (W(9, 1, (4, 4)),)),
    "deep": Convolution(1, (3,), 1400, 3, (W(3, 1, (1, 1)),)),
}


def check(c: Convolution, a: str, x: Words, b: str, y: Words, **more: Any) -> Words:
    run_it = partial(run, c, a, x, b, y, **more)
    return check_everywhere(run_it, by_dot(c, a, x, b, y, **more), threads=(1, 2))


def drawn(c: Convolution, a: str, b: str, seed: int = 1) -> tuple[Words, Words]:
    """Operands whose sums round; with an odd seed two places have anything, NaN and Inf too."""
    rng = np.random.default_rng([21, seed])
    found = []
    for t, shape in ((a, c.image_shape), (b, c.kernel_shape)):
        x = random_words(rng, t, shape, "near")
        if seed % 2:
            x.flat[rng.integers(x.size, size=2)] = random_words(rng, t, 2, "special")
        found.append(x)
    return found[0], found[1]


# ---- M6 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("field", "dtype"), MODELS)
@pytest.mark.parametrize(("a", "b"), [("bfloat16", "bfloat16"), ("float8_e4m3", "float16")])
def test_convolution_M6_of_narrow_types_is_the_dot_of_its_patches(
    shape: str, field: str, dtype: str | None, a: str, b: str, restored_processor: None
) -> None:
    c = SHAPES[shape]
    x, y = drawn(c, a, b)
    more: dict[str, Any] = {"dtype": dtypes.float32, "profile": Profile(accumulate=field)}
    if dtype is not None:
        more["accumulate"] = DTYPES[dtype]
    check(c, a, x, b, y, **more)


@pytest.mark.parametrize("seed", some(range(300), 120))
def test_convolution_M6_random_ones(seed: int, restored_processor: None) -> None:
    rng = np.random.default_rng([22, seed])
    c = random_convolution(rng)
    field, dtype = MODELS[seed % len(MODELS)]
    types = WIDE if field != "product_bf16" and seed % 4 == 0 else NARROW
    a, b, result = (str(t) for t in (*rng.choice(types, 2), rng.choice([*WIDE, *NARROW])))
    fields = {"accumulate": field, "subnormals": str(rng.choice(["keep", "flush"]))}
    fields["fp8_overflow"] = str(rng.choice(["inf", "nan", "saturate"]))
    more: dict[str, Any] = {"dtype": DTYPES[result], "profile": Profile(**fields)}
    if dtype is not None:
        more["accumulate"] = DTYPES[dtype]
    mode = ["near", "any", "special"][seed % 3]
    operands = operands_of(c, rng, a, b, mode)
    expected = by_dot(c, *operands, **more)
    isas = processor.available_isas()
    processor.set_isa(isas[seed % len(isas)])
    processor.set_num_threads(1 + seed % 2)
    np.testing.assert_array_equal(run(c, *operands, **more), expected, err_msg=str(c))


def test_convolution_M6_what_has_no_meaning_is_refused() -> None:
    c = Convolution(1, (3,), 1, 1, (W(2),))
    x, y = np.zeros(c.image_shape, np.uint16), np.zeros(c.kernel_shape, np.uint16)
    operands = ("bfloat16", x, "bfloat16", y)
    for fields, accumulate in (
        ({"accumulate": "exact"}, dtypes.bfloat16),
        ({"accumulate": "pairs"}, dtypes.float16),
        ({"accumulate": "exact", "rounding": "stochastic"}, None),
        ({"rounding": "stochastic"}, dtypes.bfloat16),
    ):
        with pytest.raises(UnsupportedOperator, match=r"M6|S2"):
            run(c, *operands, accumulate=accumulate, profile=Profile(**fields))
    wide = ("float32", x.astype(np.uint32), "float32", y.astype(np.uint32))
    with pytest.raises(UnsupportedType, match="product_bf16"):
        run(c, *wide, profile=Profile(accumulate="product_bf16"))
    with pytest.raises(UnsupportedType, match="sums in float8_e5m2: choose"):
        run(c, *operands, accumulate=dtypes.float8_e5m2)


# ---- C4 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("field", ["psum128", "sequential", "exact", "product_bf16", "pairs"])
@pytest.mark.parametrize(("a", "b"), [("bfloat16", "bfloat16"), ("bfloat16", "float16")])
def test_convolution_C4_flushes_operands_and_sums(
    shape: str, field: str, a: str, b: str, restored_processor: None
) -> None:
    """Sums about 2^-126, subnormal operands, and large partners that would show them."""
    c = SHAPES[shape]
    x, y = drawn(c, a, b, seed=2)
    rng = np.random.default_rng(23)
    low = x & 0x807F | np.uint16(3 << 7)  # 2^-124
    x = np.where(rng.random(x.shape) < 0.8, low, x & 0x807F).astype(np.uint16)
    if b == "bfloat16":
        y = np.where(rng.random(y.shape) < 0.02, y & 0x807F | 250 << 7, y).astype(np.uint16)
    results = []
    for subnormals in ("flush", "keep"):
        profile = Profile(accumulate=field, subnormals=subnormals)
        results.append(check(c, a, x, b, y, dtype=dtypes.float32, profile=profile))
    assert not np.array_equal(*results)


# ---- M7 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["padded", "depthwise", "grouped", "batch groups", "dilated"])
@pytest.mark.parametrize("t", ["int8", "uint8", "int16", "int32", "uint32", "int64"])
def test_convolution_M7_via_float32_is_the_dot_of_its_patches(
    shape: str, t: str, restored_processor: None
) -> None:
    c, rng = SHAPES[shape], np.random.default_rng(24)
    x, y = (random_words(rng, t, s) for s in (c.image_shape, c.kernel_shape))
    found = [check(c, t, x, t, y, profile=Profile(int_dot=field)) for field in ("via_float32", "exact")]
    assert not np.array_equal(*found)  # it saturates, and does not wrap


def test_convolution_M7_via_float32_adds_up_as_the_profile_says() -> None:
    c = Convolution(1, (300,), 1, 1, (W(300),))
    x, y = np.ones(c.image_shape, np.uint32), np.ones(c.kernel_shape, np.uint32)
    x[0, 0] = 1 << 24
    totals = {"psum128": (1 << 24) + 172, "sequential": 1 << 24, "exact": (1 << 24) + 300}
    for field, total in totals.items():
        profile = Profile(int_dot="via_float32", accumulate=field)
        assert run(c, "int32", x, "int32", y, profile=profile).tolist() == [[[total]]]


@pytest.mark.parametrize("accumulate", ["exact", "pairs", "product_bf16"])
def test_convolution_M7_of_integers_does_not_see_M6(accumulate: str, restored_processor: None) -> None:
    c, rng = SHAPES["padded"], np.random.default_rng(25)
    x, y = (random_words(rng, "int16", s) for s in (c.image_shape, c.kernel_shape))
    plain = by_dot(c, "int16", x, "int16", y)
    found = check(c, "int16", x, "int16", y, profile=Profile(accumulate=accumulate))
    np.testing.assert_array_equal(found, plain)


# ---- A1 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("cast", ["bfloat16", "float16", "tfloat32", "float8_e4m3"])
def test_convolution_A1_cast_rounds_both_operands_first(
    shape: str, cast: str, restored_processor: None
) -> None:
    c, t = SHAPES[shape], DTYPES[cast]
    x, y = drawn(c, "float32", "float32")
    result = {"dtype": dtypes.float32}
    found = check(c, "float32", x, "float32", y, cast=t, **result)
    narrow = [evaluate("convert", ("float32", v), dtype=t) for v in (x, y)]
    expected = run(c, cast, narrow[0], cast, narrow[1], **result)
    np.testing.assert_array_equal(found, expected)
    assert not np.array_equal(found, run(c, "float32", x, "float32", y))


@pytest.mark.parametrize("field", ["sequential", "exact", "product_bf16", "pairs"])
def test_convolution_A1_cast_under_every_model(field: str, restored_processor: None) -> None:
    for name in ("padded", "depthwise", "in place"):
        c = SHAPES[name]
        x, y = drawn(c, "float32", "float32")
        more = {"cast": dtypes.bfloat16, "profile": Profile(accumulate=field, subnormals="flush")}
        check(c, "float32", x, "float32", y, **more)


def test_convolution_A1_cast_leaves_other_types() -> None:
    c = SHAPES["padded"]
    for t in ("bfloat16", "int32"):
        rng = np.random.default_rng(26)
        x, y = (random_words(rng, t, s) for s in (c.image_shape, c.kernel_shape))
        plain = run(c, t, x, t, y)
        cast = run(c, t, x, t, y, cast=dtypes.float8_e5m2)
        np.testing.assert_array_equal(plain, cast)


# ---- S2 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("field", ["psum128", "sequential", "pairs"])
def test_convolution_S2_draws_for_its_result_only(
    shape: str, field: str, restored_processor: None
) -> None:
    """By the element's place in the result, in whatever order the dimensions lie."""
    rng = np.random.default_rng(27)
    c = SHAPES[shape]
    n = len(c.window) + 2
    c = dataclasses.replace(c, numbers=numbers_of(n - 2, *(rng.permutation(n) for _ in range(3))))
    x, y = drawn(c, "bfloat16", "bfloat16")
    profile = Profile(rounding="stochastic", accumulate=field)
    setting = ops.Setting(profile, 5, "0/main/c/")
    d = c.attributes["dimension_numbers"]
    operands = (
        ("bfloat16", x.transpose(np.argsort(d.input))),
        ("bfloat16", y.transpose(np.argsort(d.kernel))),
    )
    total = evaluate(
        "convolution",
        *operands,
        **c.attributes,
        dtype=dtypes.float32,
        profile=Profile(accumulate=field),
    )
    for result in (dtypes.bfloat16, dtypes.float8_e5m2):
        expected = evaluate("convert", ("float32", total), dtype=result, setting=setting)
        more = {**c.attributes, "dtype": result, "setting": setting}
        check_everywhere(partial(evaluate, "convolution", *operands, **more), expected, threads=(1, 2))


def test_convolution_S2_cast_operands_draw_words_of_their_own(restored_processor: None) -> None:
    """By their place in the operand as it is given, with the tiles "lhs" and "rhs"."""
    c = dataclasses.replace(
        SHAPES["padded"], numbers=numbers_of(2, (3, 1, 0, 2), (1, 3, 0, 2), range(4))
    )
    x, y = drawn(c, "float32", "float32", seed=2)
    setting = ops.Setting(Profile(rounding="stochastic"), 5, "0/main/c/")
    d = c.attributes["dimension_numbers"]
    given = [x.transpose(np.argsort(d.input)), y.transpose(np.argsort(d.kernel))]
    rounded = []
    for tile, words in zip(("lhs", "rhs"), given, strict=True):
        key = random.identifier(f"{setting.path}/{tile}")
        dense = np.ascontiguousarray(words)
        values = [
            formats.round_number(
                "bfloat16", formats.decode("float32", int(w)), word=random.word(5, key, i)
            )
            for i, w in enumerate(dense.ravel())
        ]
        rounded.append(np.array(values, np.uint16).reshape(words.shape))
    more = {**c.attributes, "dtype": dtypes.float32}
    expected = evaluate("convolution", *(("bfloat16", r) for r in rounded), **more)
    assert all(np.any(r != v >> 16) for r, v in zip(rounded, given, strict=True))
    more |= {"cast": dtypes.bfloat16, "setting": setting}
    run_it = partial(evaluate, "convolution", *(("float32", v) for v in given), **more)
    check_everywhere(run_it, expected, threads=(1, 2))


# ---- more than is padded at a time ---------------------------------------------------------------

# The core pads some samples, or some rows of one, at a time: those that take about 6 MiB.
LARGE = {
    "samples": Convolution(5, (30, 31), 600, 5, (W(3, 1, (1, 1)), W(3, 1, (1, 1)))),
    "rows": Convolution(1, (40, 43), 1000, 5, (W(3, 2, (1, 1)), W(3, 1, (1, 1)))),
    "batch groups": Convolution(4, (30, 31), 900, 4, (W(2, 1, (1, 0)), W(3)), 1, 2),
    "depthwise": Convolution(1, (40, 43), 1, 1000, (W(3, 1, (2, 1)), W(3, 2, (1, 1))), 1000),
    "a row": Convolution(2, (4100,), 500, 5, (W(4, 1, (2, 1), 1, 1, True),)),
    "dilated": Convolution(2, (21, 23), 900, 5, (W(3, 1, (2, 1), 2), W(3, 1, (1, 1)))),
}


def by_rows(c: Convolution, a: str, x: Words, b: str, y: Words, **more: Any) -> Words:
    """The convolution as several whose outputs are a few rows each: their padding crops the others."""
    parts = []
    first, rest = c.window[0], c.window[1:]
    rows, length = c.places[0], (c.image[0] - 1) * first.base_dilation + 1
    step = max(rows // 6, 1)
    for start in range(0, rows, step):
        count = min(step, rows - start)
        low = first.padding[0] - start * first.stride
        reach = (count - 1) * first.stride + (first.size - 1) * first.window_dilation + 1
        window = dataclasses.replace(first, padding=(low, reach - length - low))
        part = dataclasses.replace(c, window=(window, *rest))
        assert part.places == (count, *c.places[1:])
        parts.append(run(part, a, x, b, y, **more))
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize("label", LARGE)
def test_convolution_M5_of_more_than_is_padded_at_a_time(label: str, restored_processor: None) -> None:
    c = LARGE[label]
    x, y = drawn(c, "float32", "float32", seed=2)
    operands, result = ("float32", x, "float32", y), {"dtype": dtypes.float32}
    expected = by_rows(c, *operands, **result)
    drawing = ops.Setting(Profile(rounding="stochastic"), 5, "0/main/c/")
    rounded = evaluate("convert", ("float32", expected), dtype=dtypes.bfloat16, setting=drawing)
    check_everywhere(partial(run, c, *operands, **result), expected, threads=(1, 2))
    narrow = partial(run, c, *operands, dtype=dtypes.bfloat16, setting=drawing)
    check_everywhere(narrow, rounded, threads=(1, 2))
