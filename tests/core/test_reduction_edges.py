"""Rules R2 and R3 at the edges: every memory layout, special values, no elements, controls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np
import pytest

from neuronsim import _core, dtypes
from neuronsim.dtypes import DTYPES
from neuronsim.errors import UnsupportedType
from neuronsim.profiles import Profile
from neuronsim.reference import formats, sums
from tests.support.draws import random_words
from tests.support.evaluation import core_reduce, evaluate, evaluate_fold
from tests.support.parameters import each_of
from tests.support.words import BITWISE, FLOATS, Words, encoded

FOLDS: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
OFF = Profile(mixed_precision_accumulation="off")
reduce = partial(evaluate_fold, "reduce")


def float32_of(type_name: str, words: Words) -> np.ndarray:
    return evaluate("convert", (type_name, words), dtype=dtypes.float32).view(np.float32)


def rounded(type_name: str, x: np.ndarray) -> Words:
    return evaluate("convert", ("float32", x.view(np.uint32)), dtype=DTYPES[type_name])


# ---- every way through memory ------------------------------------------------------------------


def folded(reducer: str, x: np.ndarray, round_tile: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """R2 on float32 [outputs, depth] by NumPy, every output at once; the initial value is a 1."""
    fold = FOLDS[reducer]
    with np.errstate(all="ignore"):
        total = None
        for start in range(0, x.shape[1], 512):
            part = x[:, start]
            for k in range(start + 1, min(start + 512, x.shape[1])):
                part = fold(part, x[:, k])
            part = round_tile(part)
            total = part if total is None else fold(total, part)
        total = fold(total, np.float32(1))
    return np.where(np.isnan(total), np.float32(np.nan), total)


def placements(x: Words) -> Iterator[tuple[str, Words, tuple[int, ...]]]:
    """[outputs, depth] in memory by several strides, and the axes to reduce."""
    yield "elements side by side", x, (1,)
    yield "outputs side by side", np.asfortranarray(x), (1,)
    yield "the first axis", np.ascontiguousarray(x.T), (0,)
    yield "elements backwards", np.ascontiguousarray(x[:, ::-1])[:, ::-1], (1,)
    yield "outputs backwards", np.ascontiguousarray(x[::-1])[::-1], (1,)
    yield "every third element", np.repeat(x, 3, axis=1)[:, ::3], (1,)
    yield "every second output", np.repeat(np.asfortranarray(x), 2, axis=0)[::2], (1,)
    if x.shape[1] % 2 == 0:
        halves = x.reshape(x.shape[0], 2, x.shape[1] // 2)
        yield "two reduced axes", halves.transpose(1, 0, 2).copy(), (0, 2)
        swapped = halves.transpose(2, 0, 1).copy().transpose(2, 1, 0)
        yield "two reduced axes, swapped in memory", swapped, (0, 2)
    if x.shape[0] % 2 == 0:
        pairs = x.reshape(2, x.shape[0] // 2, x.shape[1])
        yield "two kept axes", pairs.transpose(2, 0, 1).copy(), (0,)
        yield "two kept axes apart", pairs.transpose(0, 2, 1).copy(), (1,)


SHAPES = [(1, 1), (1, 5000), (3, 2600), (15, 2048), (16, 2048), (17, 513), (130, 17), (200, 40)]
SHAPES += [(40, 1030), (129, 16), (300, 2), (2, 512), (2, 2047), (33, 15)]


@pytest.mark.parametrize("type_name", ["float32", "bfloat16", "float8_e4m3"])
def test_every_placement_R2_R3_gives_the_same_bits(isa: str, threads: int, type_name: str) -> None:
    for shape in SHAPES:
        rng = np.random.default_rng(shape)
        words = random_words(rng, type_name, shape, "near")
        one, narrow = formats.from_float(type_name, 1), DTYPES[type_name].bits <= 16

        def there_and_back(x: np.ndarray) -> np.ndarray:
            return float32_of(type_name, rounded(type_name, x))

        wide = float32_of(type_name, words)
        for reducer in FOLDS:
            for profile in (Profile(), OFF):
                rounds = profile == OFF and narrow and reducer in ("add", "multiply")
                total = folded(reducer, wide, there_and_back if rounds else lambda x: x)
                expected = rounded(type_name, total)
                more = {"reducer": reducer, "profile": profile}
                for label, view, axes in placements(words):
                    ours = reduce(type_name, view, one, dimensions=axes, **more)
                    assert np.array_equal(ours.ravel(), expected), (reducer, label)


@each_of("n", [65536, 65537, 66048, 131072, 131585])
@each_of("type_name", ["float32", "bfloat16"])
def test_hundreds_of_tiles_R2_R3(isa: str, threads: int, type_name: str, n: int) -> None:
    """Few outputs with many tiles run tile by tile, in pieces of 128; the last one may be partial."""
    words = random_words(np.random.default_rng(n), type_name, (3, n), "near")
    wide = float32_of(type_name, words)
    tiles = np.zeros((3, -(-n // 512), 512), np.float32)  # x + 0 is x: there is no -0 here
    tiles.reshape(3, -1)[:, :n] = wide
    part = tiles[..., 0]
    for k in range(1, 512):
        part = part + tiles[..., k]
    for profile in (Profile(), OFF):
        if profile == OFF and type_name != "float32":
            part = float32_of(type_name, rounded(type_name, part))
        total = np.zeros(3, np.float32)
        for tile in range(part.shape[1]):
            total = total + part[:, tile]
        expected = rounded(type_name, total)
        turned = words[:, ::-1].copy()[:, ::-1]
        for view in (words, np.asfortranarray(words), words[::-1][::-1], turned):
            ours = reduce(type_name, view, dimensions=(1,), profile=profile)
            assert np.array_equal(ours, expected)


# ---- integers and bool -------------------------------------------------------------------------


def test_float_has_no_bitwise_reduction() -> None:
    for reducer in BITWISE:
        with pytest.raises(UnsupportedType, match="float32"):
            reduce("float32", np.zeros(3, np.uint32), dimensions=(0,), reducer=reducer)


# ---- the initial value, signed zeros, NaN ------------------------------------------------------


def test_initial_value_R2_comes_last(isa: str) -> None:
    """First, 2^24 would absorb each 1; last, it meets their sum."""
    initial = encoded("float32", [2.0**24])[0]
    for n, expected in ((2, 2.0**24 + 2), (600, 2.0**24 + 600)):
        ours = reduce("float32", encoded("float32", [1] * n), initial, dimensions=(0,))
        assert ours.view(np.float32) == expected
    assert np.float32(2.0**24) + np.float32(1) == 2.0**24


def test_overflow_C3_happens_once_at_the_end(isa: str) -> None:
    """R1: 65504 + 65504 - 65504 stays inside, because only the float32 total is rounded."""
    x = np.array([0x7BFF, 0x7BFF, 0xFBFF], np.uint16)
    assert reduce("float16", x, dimensions=(0,)) == 0x7BFF
    assert reduce("float16", x[:2], dimensions=(0,)) == 0x7C00


# ---- R3, and controls that another tile is noticed ---------------------------------------------


def test_accumulation_R3_rounds_each_tile(isa: str) -> None:
    """Tiles of 257 and 258: their sum 515 is 516 in bfloat16; rounded to 256 and 258 first, 512."""
    x = np.zeros(1024, np.uint16)
    x[:257] = x[512 : 512 + 258] = 0x3F80
    for profile, expected in ((Profile(), 516), (OFF, 512)):
        ours = reduce("bfloat16", x, dimensions=(0,), profile=profile)
        assert formats.decode("bfloat16", int(ours)).value == expected


@each_of("reducer", FOLDS)
@each_of("type_name", FLOATS)
def test_accumulation_R3_acts_on_narrow_sums_and_products_only(type_name: str, reducer: str) -> None:
    rng = np.random.default_rng(26)
    words = random_words(rng, type_name, (200, 1100), "near")
    start = 0
    if reducer == "multiply":  # few factors other than 1, so that the product stays in range
        start = formats.from_float(type_name, 1)
        step = (rng.random(words.shape) < 0.004) << formats.FORMATS[type_name].shift
        words = (start + step * rng.integers(-1, 2, words.shape)).astype(words.dtype)
    more = {"dimensions": (1,), "reducer": reducer}
    on, off = (reduce(type_name, words, start, profile=p, **more) for p in (Profile(), OFF))
    narrow = dtypes.DTYPES[type_name].bits <= 16
    assert np.array_equal(on, off) != (narrow and reducer in ("add", "multiply"))


def test_core_refuses_what_does_not_fit() -> None:
    x, zero, out = np.zeros((3, 4), np.float32), np.zeros((), np.float32), np.zeros(3, np.float32)
    for arguments in (
        (0, 0, x, 1, zero, out, 0, False),
        (-1, 0, x, 1, zero, out, 512, False),
        (len(_core.OPS), 0, x, 1, zero, out, 512, False),
        (0, 99, x, 1, zero, out, 512, False),
        (0, 0, x, 3, zero, out, 512, False),
        (0, 0, x, -1, zero, out, 512, False),
        (0, 0, x, 1, np.zeros(2, np.float32), out, 512, False),
        (0, 0, x, 1, zero, np.zeros(4, np.float32), 512, False),
        (0, 0, x, 1, zero, np.zeros(3, np.float64), 512, False),
        (0, 0, x, 1, zero, np.zeros(6, np.float32)[::2], 512, False),
    ):
        with pytest.raises(ValueError, match=r"reduction|unknown|shape|items|dense|tile|initial"):
            core_reduce(*arguments)


@cache
def tiles_that_follow(type_name: str) -> tuple[Words, list[list[int]]]:
    """Rows, and the twin's sums of some for each value of mixed_precision_accumulation."""
    words = random_words(np.random.default_rng(28), type_name, (40, 1024), "near")
    return words, [
        [
            sums.reduce_float("add", type_name, words[row].tolist(), 0, round_tiles=rounds)
            for row in (0, 15, 16, 17, 39)
        ]
        for rounds in (False, type_name == "bfloat16")
    ]


@pytest.mark.parametrize("type_name", ["float32", "bfloat16"])
def test_many_outputs_R2_whose_tiles_follow_in_memory(isa: str, threads: int, type_name: str) -> None:
    words, sums_of_rows = tiles_that_follow(type_name)
    for setting, expected in zip(("on", "off"), sums_of_rows, strict=True):
        profile = Profile(mixed_precision_accumulation=setting)
        ours = reduce(type_name, words, dimensions=(1,), profile=profile)
        assert ours[[0, 15, 16, 17, 39]].tolist() == expected
