"""Rules M2, M4 and M7 at the edges: the fused multiply-add itself, layouts, batches, empty operands."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from neuronsim import dtypes, ops
from neuronsim.profiles import Profile
from neuronsim.reference import elementwise as twin
from tests.core.loop_dot import loop_dot
from tests.support.draws import random_words
from tests.support.evaluation import evaluate, evaluate_dot
from tests.support.processors import check_everywhere, every_processor
from tests.support.words import FLOATS, INTEGERS, Words

BATCHED = ops.DotDimensions((2,), (1,), (0,), (0,))
MATRICES = ops.DotDimensions((1,), (0,), (), ())
ONE = 0x3F800000


# ---- M2: one rounding for each product and sum -------------------------------------------------


@cache
def triples() -> tuple[np.ndarray, np.ndarray, np.ndarray, Words]:
    """a, b and c where a * b is near half a unit of c, or nearly -c, or of any size; a * b + c."""
    rng = np.random.default_rng(30)
    n = 1500
    words = rng.integers(0, 1 << 32, (3, n), np.uint32)
    close = words & np.uint32(0x807FFFFF) | rng.integers(110, 144, (3, n), np.uint32) << np.uint32(23)
    c = close[2].view(np.float32)
    # Half a unit of c, times (1 + e) and (1 - e): a tie but for a crumb that float64 cannot hold.
    e = np.ldexp(1.0, -rng.integers(1, 24, n))
    half = np.ldexp(rng.choice([-1.0, 1.0], n), np.frexp(c)[1] - 25)
    tie_a, tie_b = (half * (1 + e)).astype(np.float32), (1 - e).astype(np.float32)
    cancel_b = (-c.astype(np.float64) / close[0].view(np.float32)).astype(np.float32)
    tiny = words & np.uint32(0x807FFFFF) | rng.integers(0, 70, (3, n), np.uint32) << np.uint32(23)
    a = np.concatenate([words[0], close[0], tie_a.view(np.uint32), close[0], tiny[0]])
    b = np.concatenate([words[1], close[1], tie_b.view(np.uint32), cancel_b.view(np.uint32), close[1]])
    c_all = np.concatenate([words[2], close[2], close[2], close[2], tiny[2]])
    expected = [twin.fma(*t) for t in zip(a.tolist(), b.tolist(), c_all.tolist(), strict=True)]
    # PSUM starts at +0 and is never -0; NaN is made canonical at the end.
    expected = [twin.add(0, e) for e in expected]
    return a, b, c_all, np.array(expected, np.uint32)


def test_fma_M2_rounds_once(isa: str, threads: int) -> None:
    """The dot (c, a) . (1, b): the first step gives c exactly, the second is fma(a, b, c) of float32
    operands too (M3).
    """
    a, b, c, expected = triples()
    lhs = np.stack([c, a], axis=1)[:, None, :]
    rhs = np.stack([np.full_like(b, ONE), b], axis=1)[:, :, None]
    ours = evaluate("dot", ("float32", lhs), ("float32", rhs), dot_dimensions=BATCHED)
    assert np.array_equal(ours[:, 0, 0], expected)


def test_psum_M2_is_never_minus_zero(isa: str) -> None:
    """A product that underflows from below leaves -0 in the tile; PSUM's +0 absorbs it."""
    assert twin.fma(0x80000001, 1, 0) == 0x80000000
    for lhs, rhs in ((0x80000001, 0x00000001), (0x80000000, ONE)):
        for m, n in ((1, 1), (6, 1), (1, 6), (5, 6), (20, 30)):
            x, y = np.full((m, 1), lhs, np.uint32), np.full((1, n), rhs, np.uint32)
            for right in (y, np.repeat(y, 2, axis=1)[:, ::2]):
                assert not evaluate_dot("float32", x, "float32", right).any()


# ---- layouts, batches, empty operands ----------------------------------------------------------


def layouts(x: Words) -> Iterator[tuple[str, Words]]:
    """The same [batch, n, m] words by several strides."""
    yield "dense", x
    yield "columns", x.transpose(0, 2, 1).copy().transpose(0, 2, 1)
    yield "batch innermost", x.transpose(1, 2, 0).copy().transpose(2, 0, 1)
    yield "backwards", x[::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1]
    yield "every third", np.repeat(np.repeat(x, 3, axis=2), 2, axis=1)[:, ::2, ::3]


@pytest.mark.parametrize("type_name", ["float32", "bfloat16", "int16"])
def test_large_batch_M2_on_every_path(restored_processor: None, type_name: str) -> None:
    rng = np.random.default_rng(36)
    x, y = (random_words(rng, type_name, s, "near") for s in ((9, 65, 300), (9, 300, 130)))
    run = partial(evaluate, "dot", (type_name, x), (type_name, y), dot_dimensions=BATCHED)
    check_everywhere(run, threads=(1, 2, 3))


@pytest.mark.parametrize("type_name", ["float32", "tfloat32", "bfloat16"])
@pytest.mark.parametrize(("rows", "depth"), [(9, 300), (40, 32), (40, 300)])
def test_dot_M2_E6_without_psum_and_panels_is_a_part_of_a_wider_one(
    type_name: str, rows: int, depth: int, restored_processor: None
) -> None:
    """float32 sums go to the result at once, NaN canonical, and a right operand of whole vectors that
    is small or has few rows beside it is read where it lies; one column more is packed.
    """
    rng = np.random.default_rng([40, rows, depth])
    x = random_words(rng, type_name, (2, rows, depth), "near")
    y = random_words(rng, type_name, (2, depth, 65), "near")
    nan, infinity = (0xFFC0, 0x7F80) if type_name == "bfloat16" else (0xFFC00000, 0x7F800000)
    x[0, 3, 1], x[1, 5, 2], y[1, 2, 7], y[0, :, 9] = nan, 0, infinity, 0
    how: dict[str, Any] = {"dot_dimensions": BATCHED, "dtype": dtypes.float32}
    wide = evaluate("dot", (type_name, x), (type_name, y), **how)
    assert set(wide[0, 3].tolist()) == {0x7FC00000}
    assert wide[1, 5, 7] == 0x7FC00000
    for where in every_processor((1,)):
        for layout, part in layouts(y[:, :, :64]):
            found = evaluate("dot", (type_name, x), (type_name, part), **how)
            np.testing.assert_array_equal(found, wide[:, :, :64], err_msg=f"{where}, {layout}")


@pytest.mark.parametrize("type_name", ["tfloat32", "bfloat16", "float16", "float8_e5m2"])
def test_dot_M4_narrow_results_are_the_float32_sums_rounded(
    type_name: str, restored_processor: None
) -> None:
    rng = np.random.default_rng(44)
    x, y = (random_words(rng, type_name, s, "near") for s in ((2, 19, 150), (2, 150, 75)))
    dtype = dtypes.DTYPES[type_name]
    x[0, 3, 1] = random_words(rng, type_name, 1, "special")[0]
    x[1, 4] = 0x7FC00000 >> (32 - 8 * x.itemsize) if type_name != "float16" else 0x7E00  # NaN
    operands = (type_name, x), (type_name, y)
    sums = evaluate("dot", *operands, dot_dimensions=BATCHED, dtype=dtypes.float32)
    expected = evaluate("convert", ("float32", sums), dtype=dtype)
    assert len(set(expected.ravel().tolist())) > 50
    for where in every_processor((1,)):
        found = evaluate("dot", *operands, dot_dimensions=BATCHED, dtype=dtype)
        np.testing.assert_array_equal(found, expected, err_msg=str(where))


@pytest.mark.parametrize("type_name", ["float32", "tfloat32", "bfloat16", "float16"])
@pytest.mark.parametrize("value", ["nan", "infinity", "subnormal", "halfway"])
@pytest.mark.parametrize("depth", [40, 300])
def test_dot_M4_C4_E6_one_result_that_the_processor_would_store_otherwise(
    type_name: str, value: str, depth: int, restored_processor: None
) -> None:
    """One output of a register block is a NaN, infinite, subnormal or halfway between two values."""
    rng = np.random.default_rng(45)
    x, y = (rng.normal(size=s).astype(np.float32) for s in ((33, depth), (depth, 64)))
    x[17], y[:, 21] = 0, 0
    factors = {
        "nan": (np.nan, 1),
        "infinity": (2.0**100, 2.0**100),
        "subnormal": (2.0**-70, 5 * 2.0**-64 if type_name != "float16" else 5 * 2.0**46),
        "halfway": (1, 1 + 2.0**-8 + 2.0**-11),
    }
    x[17, 3], y[3, 21] = factors[value]
    operands = (("float32", x.view(np.uint32)), ("float32", y.view(np.uint32)))
    dtype = dtypes.DTYPES[type_name]
    sums = evaluate("dot", *operands, dot_dimensions=MATRICES, dtype=dtypes.float32)
    expected = evaluate("convert", ("float32", sums), dtype=dtype)
    for where in every_processor((1,)):
        found = evaluate("dot", *operands, dot_dimensions=MATRICES, dtype=dtype)
        np.testing.assert_array_equal(found, expected, err_msg=str(where))


# ---- small products ------------------------------------------------------------------------------

SMALL_PROFILES = [
    {},
    {"subnormals": "flush"},
    {"accumulate": "sequential"},
    {"accumulate": "product_bf16"},
]


@pytest.mark.parametrize("type_name", [*FLOATS, *INTEGERS[:-2]])
@pytest.mark.parametrize("seed", range(6))
def test_dot_M2_M7_of_small_products_is_a_part_of_a_larger_one(
    type_name: str, seed: int, restored_processor: None
) -> None:
    """Columns that fit the first cache are read where they lie, or staged; the last seeds' contraction
    has several tiles. Each element has the bits that it has among many columns, which are packed.
    """
    rng = np.random.default_rng([39, seed])
    batch, m, k, n = (int(v) for v in rng.integers(1, (4, 17, 17, 17)))
    if seed >= 3:
        m, k = (int(v) for v in rng.integers((15, 130), (40, 300)))
        n = int(rng.integers(1, 1 + 4096 // k))
    x = random_words(rng, type_name, (batch, m + 20, k), ("near", "special", "near")[seed % 3])
    y = random_words(rng, type_name, (batch, n + 1100, k), "near").swapaxes(1, 2)
    fields = SMALL_PROFILES[3 if (type_name, seed) == ("bfloat16", 2) else seed % 3]
    profile = Profile(**fields)
    layouts = [lambda w: w, lambda w: w.copy(), lambda w: w[:, ::-1][:, ::-1].copy(order="F")]
    expected = None
    for _ in every_processor((1,)):
        if expected is None:
            operands = (type_name, x), (type_name, y)
            expected = evaluate("dot", *operands, profile=profile, dot_dimensions=BATCHED)[:, :m, :n]
        for lay in layouts:
            small = (type_name, lay(x[:, :m])), (type_name, lay(y[:, :, :n]))
            found = evaluate("dot", *small, profile=profile, dot_dimensions=BATCHED)
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["near", "special"])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 7), (7, 1), (16, 1), (1, 16), (5, 6)])
def test_dot_M2_of_few_elements_in_every_layout(
    m: int, n: int, kind: str, restored_processor: None
) -> None:
    """A batch of matrices, rows or columns, each as it is and lying the other way."""
    rng = np.random.default_rng([41, m, n])
    x, y = (random_words(rng, "float32", dims, kind) for dims in ((3, m, 5), (3, 5, n)))
    each = [loop_dot("float32", a, "float32", b) for a, b in zip(x, y, strict=True)]
    turned = [w.swapaxes(1, 2).copy().swapaxes(1, 2) for w in (x, y)]
    for left in (x, turned[0], np.repeat(x, 2, axis=2)[:, :, ::2]):
        for right in (y, turned[1]):
            operands = ("float32", left), ("float32", right)
            check_everywhere(
                partial(evaluate, "dot", *operands, dot_dimensions=BATCHED),
                np.stack(each),
                threads=(1, 2),
            )


@pytest.mark.parametrize("kind", ["near", "special"])
@pytest.mark.parametrize("depth", [17, 100, 127, 128, 129, 300, 512, 1000, 2500])
def test_dot_M2_of_lines_is_the_diagonal_of_a_product(
    depth: int, kind: str, restored_processor: None
) -> None:
    """Of vectors and of batches of them: tiles of one or of many lines are lanes."""
    rng = np.random.default_rng([42, depth])
    x, y = (random_words(rng, "float32", (37, depth), kind) for _ in range(2))
    x[5], y[6, ::3] = 0x80000000, 0x80000000
    expected = np.diagonal(loop_dot("float32", x, "float32", y.T.copy()))
    apart = [np.repeat(w, 2, axis=0)[::2] for w in (x, y)]
    for lines, (left, right) in ((37, (x, y)), (3, (x, y)), (1, (x, y)), (20, apart)):
        operands = [("float32", w) for w in (left[:lines, None], right[:lines, :, None])]
        run = partial(evaluate, "dot", *operands, dot_dimensions=BATCHED)
        check_everywhere(run, expected[:lines, None, None], threads=(1, 2))


@pytest.mark.parametrize(("m", "k", "n"), [(1, 33, 100), (5, 64, 50), (17, 40, 70), (2, 120, 31)])
def test_dot_M2_of_small_products_packs_its_last_columns_alone(
    m: int, k: int, n: int, restored_processor: None
) -> None:
    """Those whose vector reaches beyond the operand's end; the others are read where they lie."""
    rng = np.random.default_rng([40, n])
    x, y = (random_words(rng, "float32", dims, "near") for dims in ((m, k), (k, n)))
    run = partial(evaluate_dot, "float32", x, "float32", y)
    check_everywhere(run, loop_dot("float32", x, "float32", y), threads=(1,))
