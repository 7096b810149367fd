"""Rule M6: every way of adding up, on every path; C4 in the sums; what the plan's type does."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import neuronsim as ns
from neuronsim import dtypes
from neuronsim.errors import UnsupportedOperator, UnsupportedType
from neuronsim.profiles import Profile, avx512_bf16, in_force
from neuronsim.reference import formats
from tests.core.loop_dot import loop_dot
from tests.support.draws import random_words
from tests.support.evaluation import evaluate_dot
from tests.support.processors import check_everywhere
from tests.support.words import encoded, word_type

MODELS = ["psum128", "sequential", "exact", "product_bf16", "pairs"]


def dot_of(t: str, lhs: list[float], rhs: list[float], result: str = "float32", **more: Any) -> int:
    """The word of one dot product of numbers."""
    found = evaluate_dot(t, encoded(t, lhs)[None, :], t, encoded(t, rhs)[:, None], result, **more)
    return int(found[0, 0])


def choices(accumulate: str, accumulate_format: str, **fields: str) -> tuple[dict[str, Any], ...]:
    """What the loop takes, and what the operation does."""
    loops = {"accumulate": accumulate, "accumulate_format": accumulate_format, **fields}
    profile = Profile(accumulate=accumulate, **fields)
    return loops, {"accumulate": dtypes.DTYPES[accumulate_format], "profile": profile}


def number(word: int, type_name: str = "float32") -> float:
    x = formats.decode(type_name, word)
    return float(x.value) if x.kind == "finite" else float("nan" if x.kind == "nan" else "inf")


# ---- large -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accumulate", "accumulate_format"),
    [
        (m, t)
        for m in MODELS
        for t in ("float32", "bfloat16", "float16")
        if t == "float32" or m in ("psum128", "sequential")
    ],
)
@pytest.mark.parametrize(("a", "b"), [("bfloat16", "bfloat16"), ("float16", "float8_e4m3")])
def test_dot_M6_large_products_of_every_model(
    a: str, b: str, accumulate: str, accumulate_format: str, isa: str, threads: int
) -> None:
    for subnormals in ["keep", "flush"]:
        rng = np.random.default_rng(72)
        x, y = random_words(rng, a, (19, 333), "near"), random_words(rng, b, (333, 37), "near")
        for part, row in ((x, 3), (y.T, 5)):  # NaN, Inf and others in one row each
            part[row] = random_words(rng, a if part is x else b, 333, "special")
            part[row, rng.random(333) < 0.97] = 0
        if a == "bfloat16":  # sums about 2^-126
            x[7:11] = x[7:11] & 0x807F | np.uint16(63 << 7)
            y[:, 9:20] = y[:, 9:20] & 0x807F | np.uint16(61 << 7)
        loops, ours = choices(accumulate, accumulate_format, subnormals=subnormals)
        expected = loop_dot(a, x, b, y, **loops)
        np.testing.assert_array_equal(evaluate_dot(a, x, b, y, **ours), expected)


@pytest.mark.parametrize("accumulate_format", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("subnormals", ["keep", "flush"])
@pytest.mark.parametrize("columns", [3, 16, 45])
def test_dot_M6_small_products_of_columns_as_they_lie(
    accumulate_format: str, subnormals: str, columns: int, isa: str
) -> None:
    # Rows of b are neither as far apart as a panel's nor as its own columns are many.
    rng = np.random.default_rng(columns)
    x, y = (random_words(rng, "float32", shape, "near") for shape in ((21, 23), (23, 67)))
    loops, ours = choices("psum128", accumulate_format, subnormals=subnormals)
    expected = loop_dot("float32", x, "float32", y[:, 5 : 5 + columns], **loops)
    found = evaluate_dot("float32", x, "float32", y[:, 5 : 5 + columns], **ours)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("accumulate", "accumulate_format"),
    [*((m, "float32") for m in MODELS), ("psum128", "bfloat16"), ("sequential", "float16")],
)
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 5001, 70), (27, 4611, 45)])
def test_dot_M6_every_model_beyond_a_cache_chunk(
    accumulate: str,
    accumulate_format: str,
    rows: int,
    depth: int,
    columns: int,
    restored_processor: None,
) -> None:
    """A depth that is cut where the caches end, which no sum may notice."""
    rng = np.random.default_rng(81)
    x = random_words(rng, "bfloat16", (rows, depth), "near")
    y = random_words(rng, "bfloat16", (depth, columns), "near")
    loops, ours = choices(accumulate, accumulate_format)
    operands = "bfloat16", x, "bfloat16", y
    run = partial(evaluate_dot, *operands, **ours)
    check_everywhere(run, loop_dot(*operands, **loops), threads=(1, 2))


@pytest.mark.parametrize("accumulate", ["psum128", "sequential", "exact", "pairs"])
@pytest.mark.parametrize("type_name", ["float32", "tfloat32"])
def test_dot_M6_wide_types(type_name: str, accumulate: str, isa: str) -> None:
    rng = np.random.default_rng(73)
    x = random_words(rng, type_name, (27, 259), "near")
    y = random_words(rng, type_name, (259, 35), "near")
    for result in ("float32", "bfloat16"):
        operands = type_name, x, type_name, y, result
        found = evaluate_dot(*operands, profile=Profile(accumulate=accumulate))
        np.testing.assert_array_equal(found, loop_dot(*operands, accumulate=accumulate))


# ---- exact -----------------------------------------------------------------------------------------


def test_dot_M6_exact_loses_nothing(isa: str) -> None:
    exact = Profile(accumulate="exact")
    lhs = [2.0**127, 1.0, -(2.0**127), 2.0**-149]
    assert number(dot_of("float32", lhs, [2.0**127, 1.0, 2.0**127, 2.0**-149], profile=exact)) == 1
    # Products beyond the range of float32 that cancel.
    big = [2.0**127, -(2.0**127), 3.0]
    assert number(dot_of("float32", big, [4.0, 4.0, 1.0], profile=exact)) == 3
    small = [2.0**-149] * 4
    assert dot_of("float32", small, [2.0**-3] * 4, profile=exact) == 0  # half, to even
    assert dot_of("float32", [*small, 2.0**-149], [2.0**-3] * 4 + [2.0**-149], profile=exact) == 1
    assert dot_of("float32", [-(2.0**-149)], [2.0**-149], profile=exact) == 0x80000000
    assert dot_of("float32", [1.0, -1.0], [1.0, 1.0], profile=exact) == 0
    assert dot_of("float32", [-0.0], [1.0], profile=exact) == 0
    assert dot_of("float32", [2.0**127] * 2, [1.0] * 2, profile=exact) == 0x7F800000


def test_dot_M6_exact_rounds_once_directly_to_the_result(isa: str) -> None:
    exact = Profile(accumulate="exact")
    x = [1.0, 2.0**-8, 2.0**-100]  # in float32, or float64, it would be a tie
    ones = [1.0] * 3
    assert dot_of("float32", x, ones, "bfloat16", profile=exact) == 0x3F81
    assert dot_of("float32", x, ones, "bfloat16") == 0x3F80
    y = [16.0, 2.0**0, -(2.0**-60)]  # 17 - a crumb, between 16 and 18 of float8_e4m3
    assert dot_of("float32", y, ones, "float8_e4m3", profile=exact) == 0x58
    for overflow, word in (("inf", 0x78), ("nan", 0x7C), ("saturate", 0x77)):
        profile = Profile(accumulate="exact", fp8_overflow=overflow)
        assert dot_of("float32", [248.0], [1.0], "float8_e4m3", profile=profile) == word


def test_dot_M6_exact_of_inf_and_nan(isa: str) -> None:
    inf, nan, one = float("inf"), float("nan"), 1.0
    for lhs, rhs, word in (
        ([inf, one], [one, one], 0x7F800000),
        ([-inf, 2.0**127], [one, 2.0], 0xFF800000),
        ([inf, inf], [one, -one], 0x7FC00000),
        ([inf, one], [0.0, one], 0x7FC00000),
        ([nan, inf], [0.0, one], 0x7FC00000),
        ([inf, -inf, 1.0], [one, -one, one], 0x7F800000),
    ):
        assert dot_of("float32", lhs, rhs, profile=Profile(accumulate="exact")) == word


def test_dot_M6_exact_does_not_depend_on_the_order(isa: str) -> None:
    rng = np.random.default_rng(74)
    x, y = random_words(rng, "float32", (5, 700)), random_words(rng, "float32", (700, 5))
    x, y = x & np.uint32(0xBFFFFFFF), y & np.uint32(0xBFFFFFFF)  # finite, of any size
    order = rng.permutation(700)
    expected = loop_dot("float32", x, "float32", y, accumulate="exact")
    for o in (np.arange(700), order, order[::-1]):
        found = evaluate_dot("float32", x[:, o], "float32", y[o], profile=Profile(accumulate="exact"))
        np.testing.assert_array_equal(found, expected)


# ---- product_bf16 ----------------------------------------------------------------------------------


def test_dot_M6_product_bf16_rounds_products_once(isa: str) -> None:
    profile = Profile(accumulate="product_bf16")
    z = 1 + 2.0**-7
    assert number(dot_of("bfloat16", [z], [z], profile=profile)) == 1 + 2.0**-6
    assert number(dot_of("bfloat16", [z, 2.0**-20], [1.0] * 2, profile=profile)) == z + 2.0**-20
    assert dot_of("bfloat16", [2.0**127], [2.0], profile=profile) == 0x7F800000
    # 207 * 1583 = 5 * 2^16 + 1: above a tie of bfloat16, on it in float32's subnormals.
    x, y = encoded("bfloat16", [207 * 2.0**-126]), encoded("float16", [1583 * 2.0**-24])
    found = evaluate_dot("bfloat16", x[:, None], "float16", y[:, None], "bfloat16", profile=profile)
    assert found.tolist() == [[3]]
    assert dot_of("bfloat16", [2.0**-67], [2.0**-67], profile=profile) == 0


@pytest.mark.parametrize(
    ("a", "b"), [("float32", "float32"), ("tfloat32", "tfloat32"), ("bfloat16", "float32")]
)
def test_dot_M6_product_bf16_of_wide_types_is_refused(a: str, b: str) -> None:
    x, y = (np.zeros((1, 1), word_type(t)) for t in (a, b))
    profile = Profile(accumulate="product_bf16")
    with pytest.raises(UnsupportedType, match=r"product_bf16.*16 bits"):
        evaluate_dot(a, x, b, y, profile=profile)


# ---- the plan's accumulate type --------------------------------------------------------------------


def test_dot_M6_accumulate_type_rounds_every_step(isa: str) -> None:
    ones = [1.0] * 300
    bf16, f16 = dtypes.bfloat16, dtypes.float16
    sequential = Profile(accumulate="sequential")
    assert number(dot_of("bfloat16", ones, ones, accumulate=bf16)) == 300
    assert number(dot_of("bfloat16", ones, ones, accumulate=bf16, profile=sequential)) == 256
    assert dot_of("float16", [65504.0, 16.0], [1.0] * 2, accumulate=f16) == 0x7F800000
    assert number(dot_of("float16", [65504.0, 15.0], [1.0] * 2, accumulate=f16)) == 65504
    # Two roundings: in float32 it is the tie 1 + 2^-8, which goes to even.
    assert number(dot_of("float32", [1 + 2.0**-8, 2.0**-30], [1.0] * 2, accumulate=bf16)) == 1
    # PSUM too: 256 of a tile and 1 of the next.
    tiles = [2.0] * 128 + [1.0]
    assert number(dot_of("bfloat16", tiles, [1.0] * 129, accumulate=bf16)) == 256
    # A sum that float16 cannot hold becomes a zero with its sign, in PSUM as well.
    assert dot_of("float32", [-(2.0**-30)], [1.0], accumulate=f16) == 0


@pytest.mark.parametrize("t", ["tfloat32", "float8_e5m2", "float64", "int32"])
def test_dot_M6_other_accumulate_types_are_refused(t: str) -> None:
    x = np.zeros((1, 1), np.uint32)
    with pytest.raises(UnsupportedType, match=f"sums in {t}: choose"):
        evaluate_dot("float32", x, "float32", x, accumulate=dtypes.DTYPES[t])


def test_dot_M6_what_has_no_meaning_is_refused() -> None:
    x = np.zeros((1, 1), np.uint16)
    stochastic = {"rounding": "stochastic"}
    for fields, accumulate, message in (
        ({"accumulate": "exact"}, dtypes.bfloat16, "'exact'"),
        ({"accumulate": "pairs"}, dtypes.bfloat16, "'pairs'"),
        ({"accumulate": "product_bf16"}, dtypes.float16, "'product_bf16'"),
        ({"accumulate": "exact", **stochastic}, None, "stochastic"),
        ({"accumulate": "product_bf16", **stochastic}, None, "stochastic"),
        (stochastic, dtypes.float16, "stochastic"),
    ):
        profile = Profile(**fields)
        with pytest.raises(UnsupportedOperator, match=message):
            evaluate_dot("bfloat16", x, "bfloat16", x, accumulate=accumulate, profile=profile)


# ---- C4 --------------------------------------------------------------------------------------------


def test_dot_C4_flushes_operands_and_every_result(isa: str) -> None:
    flush = Profile(subnormals="flush")
    tiny = 2.0**-127
    assert dot_of("float32", [tiny], [2.0**127], profile=flush) == 0
    assert number(dot_of("float32", [tiny], [2.0**127])) == 1
    assert number(dot_of("float32", [2.0**-64] * 2, [2.0**-63] * 2)) == 2.0**-126
    assert dot_of("float32", [2.0**-64] * 2, [2.0**-63] * 2, profile=flush) == 0
    edge = [2.0**-126, -(2.0**-75)], [1.0, 2.0**-75]
    assert dot_of("float32", *edge, profile=flush) == 0x00800000
    # What PSUM's last addition leaves keeps its sign.
    lhs = [2.0**-126, *[0.0] * 127, -1.5 * 2.0**-126]
    assert dot_of("float32", lhs, [1.0] * 129, profile=flush) == 0x80000000
    # And what an earlier one leaves is gone for the next.
    lhs += [0.0] * 127 + [1.5 * 2.0**-126]
    assert number(dot_of("float32", lhs, [1.0] * 257, profile=flush)) == 1.5 * 2.0**-126
    assert number(dot_of("float32", lhs, [1.0] * 257)) == 2.0**-126
    assert number(dot_of("float16", [2.0**-20], [1.0], profile=flush)) == 2.0**-20


# ---- arrays ----------------------------------------------------------------------------------------


def test_a_named_profile_decides_eager_products() -> None:
    ones = ns.ones(300, dtype=ns.bfloat16)
    big = ns.concat([ns.full(1, 2.0**24, dtype=ns.bfloat16), ones[1:]])
    wide = [x.astype(ns.float32) for x in (big, ones)]
    with in_force(avx512_bf16):
        assert float(ns.matmul(*wide)) == 2.0**24
    assert float(ns.matmul(*wide)) == 2.0**24 + 172
    with ns.use_profile(accumulate="exact"):
        assert float(ns.matmul(*wide)) == 2.0**24 + 300
