"""Rules M2 and D1 on products that are cut in registers, caches and threads, against the NumPy k-loop;
and on bfloat16 and float8 data that a path through VDPBF16PS must not take.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from neuronsim import processor
from tests.core.loop_dot import loop_dot
from tests.support.draws import random_words
from tests.support.evaluation import evaluate_dot
from tests.support.parameters import each_of, some
from tests.support.processors import check_everywhere
from tests.support.words import FLOATS, Words

LARGE = 100_000  # multiplications from which a product is cut in blocks


def check(a: str, x: Words, b: str, y: Words) -> Words:
    """On every instruction set the product is the loop's."""
    return check_everywhere(lambda: evaluate_dot(a, x, b, y), loop_dot(a, x, b, y))


def check_bfloat16(x: Words, y: Words) -> Words:
    return check("bfloat16", x, "bfloat16", y)


# ---- registers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("depth", "least"), [(131, 770), (1101, 91), (10_001, 10), (LARGE + 1, 1)])
@pytest.mark.parametrize(
    ("a", "b"), some([("float32", "float32"), ("bfloat16", "bfloat16"), ("float8_e4m3", "float16")], 2)
)
def test_dot_M2_every_register_remainder(
    a: str, b: str, depth: int, least: int, restored_processor: None
) -> None:
    """Rows 1 to 30 by every third of columns 1 to 70: the corner of one large product, each with the
    least of these depths that makes it large.
    """
    most = {131: 2101, 1101: 770, 10_001: 91, LARGE + 1: 10}[depth]
    shapes = [(r, c) for r in range(1, 31) for c in range(1 + r % 3, 71, 3) if least <= r * c < most]
    assert all(r * c * depth > LARGE for r, c in shapes)
    rng = np.random.default_rng([61, depth])
    rows, columns = max(r for r, _ in shapes), max(c for _, c in shapes)
    x = random_words(rng, a, (rows, depth), "near")
    y = random_words(rng, b, (depth, columns), "near")
    expected = loop_dot(a, x, b, y)
    for isa in processor.available_isas():
        processor.set_isa(isa)
        for number, (r, c) in enumerate(shapes):
            processor.set_num_threads(2 if number % 16 == 5 else 1)
            found = evaluate_dot(a, x[:r], b, y[:, :c])
            np.testing.assert_array_equal(found, expected[:r, :c], err_msg=f"{isa}, {r}x{c}")


@pytest.mark.parametrize(("depth", "rows"), [(131, (7, 8, 9, 14, 15, 29, 57, 241)), (2600, (13, 31))])
@pytest.mark.parametrize("a", ["float32", "float16", "bfloat16"])
def test_dot_M2_rows_packed_side_by_side(
    a: str, depth: int, rows: tuple[int, ...], restored_processor: None
) -> None:
    """Around the least rows and columns from which they are, in one piece and in several blocks."""
    rng = np.random.default_rng([67, depth])
    x = random_words(rng, a, (max(rows), depth), "near")
    y = random_words(rng, "float32", (depth, 673), "near")
    expected = loop_dot(a, x, "float32", y)
    for isa in processor.available_isas():
        processor.set_isa(isa)
        for r in rows:
            for columns in (127, 128, 161, 639, 640, 673):
                found = evaluate_dot(a, x[:r], "float32", y[:, :columns])
                np.testing.assert_array_equal(found, expected[:r, :columns], f"{isa}, {r}x{columns}")


# ---- caches and threads --------------------------------------------------------------------------

# Beyond 4096 steps, 1024 and 2048 columns, 200 rows, one at a time and together.
CACHES = [(3, 4097, 21), (13, 8321, 7), (5, 4096, 130), (2, 12_417, 35)]
CACHES += [(3, 131, 2049), (7, 257, 1025), (1, 300, 4101), (2, 129, 3073)]
# A last chunk of one step, whose short panels are taken together, behind chunks whose sums wait.
CACHES += [(7, 35 * 4608 + 1, 40)]
# Right operands in place: in two chunks of the depth, and with a page for each step.
CACHES += [(31, 4700, 32), (31, 140, 1024)]
# The most rows that take it from memory without packing, and one more.
CACHES += [(16, 2049, 2051), (17, 2049, 2051)]
CACHES += [(201, 140, 33), (419, 129, 17), (1031, 128, 5)]
CACHES += [(1, 5000, 300), (300, 4100, 1), (205, 4129, 37), (31, 4225, 1033), (217, 131, 2051)]


@pytest.mark.parametrize(("rows", "depth", "columns"), CACHES)
@pytest.mark.parametrize(("a", "b"), [("float32", "tfloat32"), ("bfloat16", "bfloat16")])
def test_dot_M2_every_cache_and_thread_remainder(
    a: str, b: str, rows: int, depth: int, columns: int, restored_processor: None
) -> None:
    """Every path gives the same bits, and rows and columns about the edges of blocks the loop's."""
    rng = np.random.default_rng([62, rows, depth, columns])
    x = random_words(rng, a, (rows, depth), "near")
    y = random_words(rng, b, (depth, columns), "near")
    edges = [0, 11, 12, 23, 24, 199, 200, 215, 216, 1023, 1024, 1025, 2047, 2048, 4095, 4096]
    kept_rows = sorted({i for i in (*edges, rows // 2, rows - 1) if i < rows})
    kept_columns = sorted(
        {j for j in (*edges, columns // 2, columns - 2, columns - 1) if 0 <= j < columns}
    )
    found = check_everywhere(lambda: evaluate_dot(a, x, b, y), threads=(1, 2, 3))
    expected = loop_dot(a, x[kept_rows], b, y[:, kept_columns])
    np.testing.assert_array_equal(found[np.ix_(kept_rows, kept_columns)], expected)


@pytest.mark.parametrize("kind", ["near", "special"])
@pytest.mark.parametrize("b", FLOATS)
@each_of("rows", [1, 2, 3, 4, 7, 8])
def test_dot_M2_few_rows_by_columns_as_they_lie(
    rows: int, b: str, kind: str, restored_processor: None
) -> None:
    """Every type's elements, the last vector's few among them, and no line of the cache whole."""
    rng = np.random.default_rng([65, len(kind)])
    x = random_words(rng, "float32", (rows, 301), kind)
    y = random_words(rng, b, (301, 1101), "near")
    y[::7, ::5] = random_words(rng, b, y[::7, ::5].shape, kind)
    run = partial(evaluate_dot, "float32", x, b, y)
    check_everywhere(run, loop_dot("float32", x, b, y), threads=(1, 2))


@pytest.mark.parametrize("result", FLOATS)
@pytest.mark.parametrize("b", ["bfloat16", "float16"])
def test_dot_result_M4_of_large_products_is_rounded_once(
    b: str, result: str, restored_processor: None
) -> None:
    rng = np.random.default_rng(63)
    x, y = random_words(rng, "bfloat16", (29, 301), "near"), random_words(rng, b, (301, 67), "near")
    run = partial(evaluate_dot, "bfloat16", x, b, y, result)
    check_everywhere(run, loop_dot("bfloat16", x, b, y, result), threads=(1, 2))


def test_control_M2_tile_length_and_order_show() -> None:
    """On this data tiles of 64, one long tile, another order and NumPy's product give other bits."""
    rng = np.random.default_rng(0)
    x, y = (random_words(rng, "float32", s, "near") for s in ((8, 500), (500, 8)))
    f32 = "float32"
    found = evaluate_dot(f32, x, f32, y)
    np.testing.assert_array_equal(found, loop_dot(f32, x, f32, y))
    assert np.any(found != loop_dot(f32, x, f32, y, tile=64))
    for other in ("sequential", "pairs", "exact"):
        assert np.any(found != loop_dot(f32, x, f32, y, accumulate=other)), other
    assert np.any(found != (x.view(np.float32) @ y.view(np.float32)).view(np.uint32))


# ---- data that VDPBF16PS would get wrong ---------------------------------------------------------

ROWS, DEPTH, COLUMNS = 34, 4 * 128 + 65, 70  # the last tile has an odd length
TILE = slice(256, 384)
Spoil = Callable[[np.random.Generator, np.ndarray], None]


def bfloat16_words(values: np.ndarray) -> Words:
    """Words of values that bfloat16 holds."""
    words = np.asarray(values, np.float32).view(np.uint32)
    assert not (words & 0xFFFF).any()
    return (words >> 16).astype(np.uint16)


def everywhere(word: int) -> Spoil:
    def spoil(rng: np.random.Generator, part: np.ndarray) -> None:
        part[...] = word

    return spoil


def somewhere(*words: int) -> Spoil:
    def spoil(rng: np.random.Generator, part: np.ndarray) -> None:
        chosen = rng.random(part.shape) < 0.02
        chosen.flat[rng.integers(part.size)] = True
        part[chosen] = rng.choice(np.array(words, part.dtype), int(chosen.sum()))

    return spoil


SPOILS: dict[str, Spoil] = {
    "nothing": lambda rng, part: None,
    "subnormals": somewhere(0x0001, 0x8001, 0x007F, 0x807F),
    "one binade above": somewhere(0x0080, 0x8080, 0x00FF),
    "infinities": somewhere(0x7F80),
    "infinities of both signs": somewhere(0x7F80, 0xFF80),
    "nan": somewhere(0x7FC1, 0xFF81),
    "zeros": everywhere(0x0000),
    "minus zeros": everywhere(0x8000),
    "zeros and subnormals": somewhere(0x0000, 0x8000, 0x0003),
    "largest": somewhere(0x7F7F, 0xFF7F),
}
PLACES = {
    "one tile": (slice(None), TILE),
    "one row": (5, slice(None)),
    "the last row": (-1, slice(None)),
    "one row of one tile": (17, TILE),
    "one element": (slice(11, 12), slice(300, 301)),
    "the odd end": (slice(None), slice(-1, None)),
}


@pytest.mark.parametrize("side", ["lhs", "rhs"])
@pytest.mark.parametrize("name", SPOILS)
def test_dot_M2_bfloat16_with_a_spoiled_part(name: str, side: str, restored_processor: None) -> None:
    """Ordinary data but for subnormals, Inf, NaN or zeros in one tile, row or place of one side."""
    for place in PLACES:
        rng = np.random.default_rng([64, len(name), len(place)])
        x = random_words(rng, "bfloat16", (ROWS, DEPTH), "near")
        y = random_words(rng, "bfloat16", (DEPTH, COLUMNS), "near")
        SPOILS[name](rng, (x if side == "lhs" else y.T)[PLACES[place]])
        check_bfloat16(x, y)


@pytest.mark.parametrize("side", ["lhs", "rhs"])
@pytest.mark.parametrize("subnormals", [0.01, 1.0])
def test_dot_M2_bfloat16_subnormals_beside_large(
    side: str, subnormals: float, restored_processor: None
) -> None:
    """Subnormals whose products are no smaller than others: only the exponent tells them."""
    rng = np.random.default_rng([82, len(side)])
    x = random_words(rng, "bfloat16", (ROWS, DEPTH), "near")
    y = random_words(rng, "bfloat16", (DEPTH, COLUMNS), "near")
    small, large = (x, y) if side == "lhs" else (y, x)
    chosen = rng.random(small.shape) < subnormals
    small[chosen] &= 0x807F
    large[...] = large & 0x807F | rng.integers(200, 240, large.shape).astype(np.uint16) << 7
    check_bfloat16(x, y)


@pytest.mark.parametrize(("row", "tile"), [(0, 0), (17, 2), (33, 4)])
def test_dot_M2_bfloat16_subnormals_alone_in_a_tile(
    row: int, tile: int, restored_processor: None
) -> None:
    """A row of zeros but for subnormals in one tile, beside ordinary rows: its sums are those of the
    subnormals, which large elements lift, and only that row's block has to go without VDPBF16PS there.
    """
    rng = np.random.default_rng([83, row])
    x = random_words(rng, "bfloat16", (ROWS, DEPTH), "near")
    y = random_words(rng, "bfloat16", (DEPTH, COLUMNS), "near")
    y[...] = y & 0x807F | rng.integers(200, 240, y.shape).astype(np.uint16) << 7
    part = slice(128 * tile, 128 * (tile + 1))
    x[row, : part.start] = x[row, part.stop :] = 0
    x[row, part] &= 0x807F
    assert (check_bfloat16(x, y)[row] != 0).all()


EXPONENTS = [-110, -112, -113, -114, -118, -120, -126, -134, -135, -136, -140, -150]


@pytest.mark.parametrize("shift", [-63, -56, -20, 0])
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_dot_M2_bfloat16_sums_about_the_least_normal(
    exponent: int, shift: int, restored_processor: None
) -> None:
    """Sums of products whose exponents add up to -112, the last that VDPBF16PS never flushes, and less;
    in one tile, where half of the rows have nothing else.
    """
    rng = np.random.default_rng([65, -exponent, -shift])
    left, right = shift + exponent // 2, exponent - exponent // 2 - shift
    if not (-126 <= left <= 100 and -126 <= right <= 100):
        left, right = -50, exponent + 50
    x = random_words(rng, "bfloat16", (ROWS, DEPTH), "near")
    y = random_words(rng, "bfloat16", (DEPTH, COLUMNS), "near")
    x[::2], y[TILE] = 0, 0
    # (1 + 2^-7)^2 - (1 + 2^-6) = 2^-14: at -112 it is 2^-126.
    cancel_x = np.zeros((ROWS, 128))
    cancel_y = np.zeros((128, COLUMNS))
    cancel_x[:, 0:2], cancel_y[0:2] = [1 + 2**-7, -(1 + 2**-6)], [[1 + 2**-7], [1]]
    # And sums of a few more, of both signs.
    few = slice(4, 10)
    cancel_x[:, few] = rng.integers(128, 200, (ROWS, 6)) / 128 * rng.choice([-1, 0, 1], (ROWS, 6))
    cancel_y[few] = rng.integers(128, 200, (6, COLUMNS)) / 128
    cancel_x[::4, few] = 0
    x[:, TILE] = bfloat16_words(np.ldexp(cancel_x, left))
    y[TILE] = bfloat16_words(np.ldexp(cancel_y, right))
    found = check_bfloat16(x, y)
    if exponent == -113:
        assert np.any((found[::4] & 0x7FFFFFFF) < 0x00800000)  # what a flush would change


@pytest.mark.parametrize("largest", [90, 95, 96, 97, 110, 127])
def test_dot_M2_bfloat16_tiny_beside_large(largest: int, restored_processor: None) -> None:
    """A tile with exponents that add up to -135 and, elsewhere in it, to 95 and more."""
    rng = np.random.default_rng([66, largest])
    x = np.zeros((ROWS, DEPTH), np.uint16)
    y = np.zeros((DEPTH, COLUMNS), np.uint16)
    size = np.ldexp(
        rng.integers(128, 256, (ROWS, 128)) / 128, rng.choice([-67, largest - 60], (ROWS, 1))
    )
    x[:, TILE] = bfloat16_words(size * rng.choice([-1, 1], (ROWS, 128)))
    exponents = rng.choice([-68, 60], (1, COLUMNS))
    y[TILE] = bfloat16_words(np.ldexp(rng.integers(128, 256, (128, COLUMNS)) / 128, exponents))
    x[:, :256] = random_words(rng, "bfloat16", (ROWS, 256), "near")
    check_bfloat16(x, y)


@pytest.mark.parametrize("mode", ["near", "special", "any"])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("float8_e5m2", "float8_e5m2"),
        ("float8_e4m3", "float8_e3m4"),
        ("bfloat16", "float8_e5m2"),
        ("float8_e4m3", "bfloat16"),
        ("float16", "float16"),
        ("bfloat16", "float16"),
    ],
)
def test_dot_M2_narrow_pairs_with_special_values_in_one_tile(
    a: str, b: str, mode: str, restored_processor: None
) -> None:
    rng = np.random.default_rng([67, len(a), len(b), len(mode)])
    x = random_words(rng, a, (ROWS, DEPTH), "near")
    y = random_words(rng, b, (DEPTH, COLUMNS), "near")
    for t, part in ((a, x[:, TILE]), (b, y[TILE])):
        part[...] = random_words(rng, t, part.shape, mode)
        part[rng.random(part.shape) < 0.97] = 0  # or NaN would be in every sum
    x[::2, :256], x[::2, 384:] = 0, 0
    check(a, x, b, y)


@pytest.mark.parametrize("exponent", [-111, -112, -113, -119, -120, -122])
def test_dot_M2_bfloat16_by_float8_about_the_least_normal(
    exponent: int, restored_processor: None
) -> None:
    """(1 + 2^-7) - 1 = 2^-7: here the products would bear exponents down to -119."""
    x = np.zeros((ROWS, DEPTH))
    x[:, [300, 301]] = [1 + 2**-7, -1]
    words = bfloat16_words(np.ldexp(x, exponent + 12))
    y = np.zeros((DEPTH, COLUMNS), np.uint8)
    y[[300, 301]] = 3 << 2  # 2^-12 in float8_e5m2
    found = check("bfloat16", words, "float8_e5m2", y)
    assert (found.view(np.float32) == 2.0 ** (exponent - 7)).all()
