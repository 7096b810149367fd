"""Rule R5: updates one at a time in their order. R4's selection of one element of each window."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from neuronsim import _core, dtypes
from neuronsim.ops import WindowDimension, folds
from neuronsim.reference import elementwise as twin
from neuronsim.reference import indexing, windows
from neuronsim.reference.sums import WindowAxis
from tests.core.test_windows import arithmetic, random_window
from tests.support.draws import random_words
from tests.support.evaluation import chain_of, core_scatter, pair_chain
from tests.support.parameters import each_of
from tests.support.processors import check_everywhere
from tests.support.words import FLOATS, INTEGERS, REDUCERS, Words, encoded, word_type


def apply(
    computation: _core.Chain, x: Words, places: Sequence[int] | np.ndarray, updates: Words
) -> Words:
    """The array after the core's scatter."""
    target = np.array(x)
    core_scatter(computation, np.asarray(places, np.int64), [updates], [target])
    return target


def slow(
    step: Callable[[int, int], int], x: Words, places: Sequence[int] | np.ndarray, updates: Words
) -> Words:
    """The twin's, on encodings."""
    operand = {(n,): int(v) for n, v in enumerate(x)}
    pairs = zip(places, updates, strict=True)
    listed = [((int(p),) if p >= 0 else None, int(u)) for p, u in pairs]
    return np.array(list(indexing.scatter(operand, listed, step).values()), x.dtype)


def random_places(rng: np.random.Generator, n: int, size: int) -> np.ndarray:
    """Runs of neighbours, repetitions, and some that are skipped."""
    kind = rng.integers(3)
    if kind == 0:
        places = rng.integers(-1, size, n)
    elif kind == 1:
        places = np.arange(n) % size
    else:
        starts = rng.integers(0, size, n)
        places = (starts[np.arange(n) // 5 * 5] + np.arange(n) % 5) % size
    return np.where(rng.random(n) < 0.1, -1, places)


@each_of("seed", range(24))
@each_of("type_name", FLOATS)
def test_scatter_R5_rounds_each_application(type_name: str, seed: int) -> None:
    rng = np.random.default_rng([100, seed])
    size, n = int(rng.integers(1, 40)), int(rng.integers(0, 300))
    x = random_words(rng, type_name, size, "near")
    updates = random_words(rng, type_name, n, ("near", "special")[seed % 2])
    places = random_places(rng, n, size)
    name = ("add", "multiply", "maximum", "minimum")[seed % 4]
    found = apply(pair_chain(name, type_name), x, places, updates)
    expected = slow(lambda a, u: arithmetic(name, type_name, a, u), x, places, updates)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("type_name", INTEGERS)
def test_scatter_E8_of_integers_wraps(type_name: str) -> None:
    rng = np.random.default_rng(101)
    x, updates = random_words(rng, type_name, 20), random_words(rng, type_name, 500)
    places = random_places(rng, 500, 20)
    mask = int(np.iinfo(x.dtype).max)
    found = apply(pair_chain("add", type_name), x, places, updates)
    np.testing.assert_array_equal(found, slow(lambda a, u: (a + u) & mask, x, places, updates))


@each_of("name", REDUCERS)
@each_of("type_name", ["int32", "uint32", "int64", "uint64"])
def test_scatter_E8_of_rows_of_integers(isa: str, type_name: str, name: str) -> None:
    rng = np.random.default_rng(106)
    for row in (1, 2, 5, 40):
        x, updates = (
            random_words(rng, type_name, (n, row)).view(dtypes.DTYPES[type_name].storage)
            for n in (9, 90)
        )
        places = random_places(rng, 90, 9)
        expected, is_there = x.copy(), places >= 0
        getattr(np, name).at(expected, places[is_there], updates[is_there])
        core_scatter(pair_chain(name, type_name), places, [updates], [x], row)
        np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum"])
def test_scatter_E6_E7_of_rows_is_that_of_their_elements(isa: str, name: str) -> None:
    rng = np.random.default_rng(107)
    for row in (2, 3, 4, 7, 8, 12, 16, 21):
        mode = ("near", "special")[row % 2]
        x, updates = (random_words(rng, "float32", (n, row), mode) for n in (5, 60))
        updates[::7] = random_words(rng, "float32", row, "special")
        places = random_places(rng, 60, 5)
        elements = np.where(places < 0, -1, places * row + np.arange(row)[:, None]).T
        expected = x.copy()
        chain = pair_chain(name, "float32")
        core_scatter(chain, elements.ravel(), [updates], [expected])
        core_scatter(chain, places, [updates], [x], row)
        np.testing.assert_array_equal(x, expected)


def test_scatter_R5_with_a_computation_of_two_steps_and_its_order(isa: str) -> None:
    """X * u + u does not commute, and each step is rounded."""
    rng = np.random.default_rng(102)
    x, updates = random_words(rng, "bfloat16", 9, "near"), random_words(rng, "bfloat16", 700, "near")
    places = random_places(rng, 700, 9)
    steps = [("multiply", "bfloat16", (0, 1)), ("add", "bfloat16", (2, 1))]
    found = apply(chain_of(["bfloat16"] * 2, steps, [3]), x, places, updates)

    def step(a: int, u: int) -> int:
        return arithmetic("add", "bfloat16", arithmetic("multiply", "bfloat16", a, u), u)

    np.testing.assert_array_equal(found, slow(step, x, places, updates))
    order = rng.permutation(700)
    other = apply(chain_of(["bfloat16"] * 2, steps, [3]), x, places[order], updates[order])
    assert np.any(other != found)


@pytest.mark.parametrize("n", [511, 512, 513, 1024, 1500])
def test_scatter_R5_at_distinct_places_fills_whole_tiles(n: int) -> None:
    rng = np.random.default_rng(103)
    x, updates = random_words(rng, "float32", 2000, "near"), random_words(rng, "float32", n, "near")
    add = pair_chain("add", "float32")
    for places in (np.arange(n), rng.permutation(2000)[:n], np.arange(n)[::-1].copy()):
        found = apply(add, x, places, updates)
        expected = slow(lambda a, u: twin.add(a, u), x, places, updates)
        np.testing.assert_array_equal(found, expected)


def test_scatter_R5_places_that_share_a_slot_are_not_one() -> None:
    """Multiples of large powers of two meet in the table of a batch's places."""
    size = 1 << 21
    places = np.arange(0, size, 1 << 11)
    add = pair_chain("add", "int32")
    target = np.zeros(size, np.int32)
    twice = np.concatenate([places, places])
    core_scatter(add, twice, [np.arange(len(twice), dtype=np.int32)], [target])
    n = len(places)
    np.testing.assert_array_equal(target[places], 2 * np.arange(n) + n)
    assert np.count_nonzero(target) == n


def test_scatter_R5_of_several_arrays_at_once() -> None:
    """The element of the larger key and its companion: a variadic scatter."""
    rng = np.random.default_rng(104)
    keys = rng.integers(-50, 50, 300).astype(np.int32)
    values = random_words(rng, "bfloat16", 300)
    places = random_places(rng, 300, 12)
    steps = [
        ("greater", "bool", (2, 0)),
        ("select", "int32", (4, 2, 0)),
        ("select", "bfloat16", (4, 3, 1)),
    ]
    computation = chain_of(["int32", "bfloat16"] * 2, steps, [5, 6])
    best, companion = np.full(12, -100, np.int32), np.zeros(12, np.uint16)
    core_scatter(computation, places, [keys, values], [best, companion])
    expected = indexing.scatter(
        {(n,): (-100, 0) for n in range(12)},
        [
            ((int(p),) if p >= 0 else None, (int(k), int(v)))
            for p, k, v in zip(places, keys, values, strict=True)
        ],
        lambda a, u: u if u[0] > a[0] else a,
    )
    assert list(zip(best.tolist(), companion.tolist(), strict=True)) == list(expected.values())


def test_scatter_E6_moved_elements_keep_their_nan() -> None:
    signalling = np.array([0x7F81, 0xFFC3], np.uint16)
    steps = [("greater", "bool", (0, 1)), ("select", "bfloat16", (2, 0, 1))]
    found = apply(chain_of(["bfloat16"] * 2, steps, [3]), np.zeros(2, np.uint16), [1, 0], signalling)
    assert found.tolist() == [0xFFC3, 0x7F81]


def test_scatter_C4_flush_acts_at_every_application() -> None:
    tiny = np.array([0x00400000, 0x00400000], np.uint32)
    flush = pair_chain("add", "float32", subnormals="flush")
    keep = pair_chain("add", "float32")
    zero = np.zeros(1, np.uint32)
    assert apply(flush, zero, [0, 0], tiny).tolist() == [0]
    assert apply(keep, zero, [0, 0], tiny).tolist() == [0x00800000]


def test_scatter_D1_every_path_gives_the_same_bits(restored_processor: None) -> None:
    rng = np.random.default_rng(105)
    x, updates = random_words(rng, "float16", 50, "near"), random_words(rng, "float16", 4000, "near")
    places = random_places(rng, 4000, 50)
    add = pair_chain("add", "float16")
    check_everywhere(lambda: apply(add, x, places, updates), threads=(1, 2))


def test_core_scatter_refuses_what_does_not_fit() -> None:
    def f32(*shape: int) -> Words:
        return np.zeros(shape, np.float32)

    add = pair_chain("add", "float32")
    good: dict[str, Any] = {
        "computation": add, "places": np.zeros(3, np.int64), "updates": [f32(3)], "targets": [f32(4)]
    }  # fmt: skip
    core_scatter(**good)
    pair = chain_of(["float32"] * 4, [("add", "float32", (0, 2)), ("add", "float32", (1, 3))], [4, 5])
    narrow = chain_of(["bfloat16", "float32"], [("add", "float32", (0, 1))], [2])
    changes: list[tuple[str, dict[str, Any]]] = [
        ("dense", {"places": np.zeros(2, np.int64)}),
        ("int64", {"places": np.zeros(3, np.int32)}),
        ("dense", {"updates": [f32(6)[::2]]}),
        ("float32", {"updates": [np.zeros(3, np.float64)]}),
        ("elements and updates", {"updates": [f32(3), f32(3)]}),
        ("elements and updates", {"updates": []}),
        ("dense", {"targets": [f32(8)[::2]]}),
        ("float32", {"targets": [np.zeros(4, np.uint16)]}),
        ("elements and updates", {"computation": pair}),
        ("targets", {"computation": narrow, "targets": [np.zeros(4, np.uint16)]}),
    ]
    for match, change in changes:
        with pytest.raises(ValueError, match=match):
            core_scatter(**{**good, **change})


def test_scatter_S2_refuses_a_stochastic_computation() -> None:
    add = pair_chain("add", "bfloat16", rounding="stochastic")
    with pytest.raises(ValueError, match="takes elements"):
        apply(add, np.zeros(1, np.uint16), [0], np.zeros(1, np.uint16))


# ---- select_and_scatter (R4) ---------------------------------------------------------------------


def numbers_of_windows(x: Words, window: Sequence[WindowDimension]) -> np.ndarray:
    """A small number for each window, by which it is told from others."""
    dims = [d.output_size(n) for d, n in zip(window, x.shape, strict=True)]
    return np.arange(1, math.prod(dims) + 1).reshape(dims) % 8


def words_of(type_name: str, numbers: np.ndarray) -> Words:
    if type_name not in FLOATS:
        return numbers.astype(word_type(type_name))
    return encoded(type_name, numbers.reshape(-1).tolist()).reshape(numbers.shape)


def selected(select: str, type_name: str, x: Words, window: Sequence[WindowDimension]) -> Words:
    """The sum, for each element, of the numbers of the windows that select it."""
    source, target = words_of(type_name, numbers_of_windows(x, window)), np.zeros(x.shape, x.dtype)
    _core.select_and_scatter(
        pair_chain(select, type_name, "bool"), pair_chain("add", type_name),
        folds.core_window(window), x, source, target,
    ).run()  # fmt: skip
    return target


def slow_selected(
    keeps: Callable[[int, int], bool], type_name: str, x: Words, window: Sequence[WindowDimension]
) -> Words:
    """The twin's."""
    numbers = numbers_of_windows(x, window)
    axes = [
        WindowAxis(d.size, d.stride, d.padding[0], d.base_dilation, d.window_dilation) for d in window
    ]
    sums = np.zeros(x.shape, np.int64)
    for output in indexing.positions(numbers.shape):
        kept: tuple[int, ...] | None = None
        for place in windows.window_elements(x.shape, axes, output):
            if kept is None or not keeps(int(x[kept]), int(x[place])):
                kept = place
        if kept is not None:
            sums[kept] += numbers[output]
    assert sums.max(initial=0) <= 2048  # which every type here adds up exactly
    return words_of(type_name, sums)


def total_key(word: int) -> int:
    return word ^ 0xFFFF if word & 0x8000 else word | 0x8000


SELECTIONS: dict[str, Callable[[int, int], bool]] = {
    "greater_equal_total_order": lambda a, b: total_key(a) >= total_key(b),
    "less_total_order": lambda a, b: total_key(a) < total_key(b),
    "not_equal_total_order": lambda a, b: a != b,
}


@each_of("seed", range(20))
@each_of("name", SELECTIONS)
def test_selection_R4_scans_row_major(name: str, seed: int) -> None:
    rng = np.random.default_rng([106, seed])
    shape = [int(n) for n in rng.integers(1, (90, 12, 6)[seed % 3], seed % 3 + 1)]
    window = random_window(rng, shape)
    x = random_words(rng, "float16", shape, "special")
    x = (x, np.asfortranarray(x), x[::-1])[int(rng.integers(3))]
    expected = slow_selected(SELECTIONS[name], "float16", x, window)
    np.testing.assert_array_equal(selected(name, "float16", x, window), expected)


@pytest.mark.parametrize("padding", [(0, 0), (1, 0)], ids=["inside", "padded"])
def test_selection_R4_of_windows_side_by_side(isa: str, padding: tuple[int, int]) -> None:
    """Those of max-pooling: all inside, which move on together, and some that are not."""
    x = random_words(np.random.default_rng(108), "float32", (3, 9, 8, 5), "near")
    pooled = WindowDimension(2, stride=2, padding=padding)
    window = (WindowDimension(1), pooled, pooled, WindowDimension(1))

    def keeps(a: int, b: int) -> bool:
        pair = np.array([a, b], np.uint32).view(np.float32)
        return bool(pair[0] >= pair[1])

    expected = slow_selected(keeps, "float32", x, window)
    np.testing.assert_array_equal(selected("greater_equal", "float32", x, window), expected)


def test_selection_R4_of_equal_elements_keeps_the_first_or_takes_the_last(isa: str) -> None:
    x = np.array([[5, 5], [5, 5]], np.int32)
    window = (WindowDimension(2), WindowDimension(2))
    assert selected("greater_equal", "int32", x, window).tolist() == [[1, 0], [0, 0]]
    assert selected("greater", "int32", x, window).tolist() == [[0, 0], [0, 1]]


def test_selection_R4_of_no_element_is_none(isa: str) -> None:
    window = (WindowDimension(2, stride=2, padding=(4, 0)),)
    x = words_of("float32", np.ones(2))
    expected = words_of("float32", np.array([0, 3])).tolist()
    assert selected("greater", "float32", x, window).tolist() == expected


def test_selection_D1_every_path_gives_the_same_places(restored_processor: None) -> None:
    x = random_words(np.random.default_rng(107), "bfloat16", (40, 50), "near")
    window = (WindowDimension(3, padding=(1, 1)), WindowDimension(5, stride=2, padding=(3, 3)))
    check_everywhere(lambda: selected("greater_equal", "bfloat16", x, window), threads=(1, 2))


def test_core_select_and_scatter_refuses_what_does_not_fit() -> None:
    above, add = pair_chain("greater", "float32", "bool"), pair_chain("add", "float32")
    good: dict[str, Any] = {
        "select": above, "computation": add, "window": [(2, 1, 0, 1, 1)],
        "operand": np.zeros(4, np.float32), "source": np.zeros(3, np.float32),
        "target": np.zeros(4, np.float32),
    }  # fmt: skip
    _core.select_and_scatter(**good).run()
    one = chain_of(["float32"], [("isnan", "bool", (0,))], [1])
    changes: list[tuple[str, dict[str, Any]]] = [
        ("gives a bool", {"select": add}),
        ("two elements", {"select": one}),
        ("two elements", {"select": chain_of([], [], [])}),
        ("one entry", {"window": []}),
        ("positive", {"window": [(2, 0, 0, 1, 1)]}),
        ("float32", {"operand": np.zeros(4, np.uint16)}),
        ("float32", {"source": np.zeros(3, np.uint16)}),
        ("float32", {"target": np.zeros(4, np.float64)}),
        ("dense", {"source": np.zeros(6, np.float32)[::2]}),
        ("dense", {"target": np.zeros(8, np.float32)[::2]}),
    ]
    for match, change in changes:
        with pytest.raises(ValueError, match=match):
            _core.select_and_scatter(**{**good, **change}).run()


def test_the_twins_of_R4_and_R5_agree_on_a_gradient_of_max_pooling() -> None:
    """Windows of two with stride one: 5 is chosen by both its windows, and gets both elements."""
    x = {(n,): v for n, v in enumerate([1, 5, 2, 7])}
    source = {(n,): v for n, v in enumerate([10, 20, 30])}
    found = windows.select_and_scatter(
        x, (4,), [WindowAxis(2)], source, (3,), 0, lambda a, b: a >= b, lambda a, u: a + u
    )
    assert list(found.values()) == [0, 30, 0, 30]
