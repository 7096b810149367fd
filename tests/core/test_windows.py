"""Rule R4: a window's elements are those inside the operand. R2's second half: any computation."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from functools import cache, partial, reduce
from typing import Any

import numpy as np
import pytest

from neuronsim import _core, dtypes, ops
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.ops import WindowDimension, folds
from neuronsim.profiles import Profile
from neuronsim.reference import elementwise as twin
from neuronsim.reference import formats, random, sums
from tests.core.test_cumulative import expected_prefixes, integer_prefixes, prefixes, rounds_tiles
from tests.support.draws import random_words
from tests.support.evaluation import chain_of, evaluate, evaluate_fold, pair_chain
from tests.support.parameters import each_of
from tests.support.processors import check_everywhere
from tests.support.words import BITWISE, FLOATS, INTEGERS, REDUCERS, Words, encoded, widened, word_type

PLAIN = Profile()
OFF = Profile(mixed_precision_accumulation="off")
FLUSH = Profile(subnormals="flush")
windows = partial(evaluate_fold, "reduce_window")

Window = Sequence[WindowDimension]


# ---- the slow walk -----------------------------------------------------------------------------


def axis_places(n: int, d: WindowDimension) -> list[list[int | None]]:
    """For each output along an axis, the element at each window position, or None for no element:
    the axis is spread by the base dilation, padded or cropped, and the window laid upon it.
    """
    spread = {i * d.base_dilation: i for i in range(n)}
    length = (n - 1) * d.base_dilation + 1 if n else 0
    low, high = d.padding
    padded = [spread.get(p - low) for p in range(low + length + high)]
    reach = (d.size - 1) * d.window_dilation + 1
    starts = range(0, len(padded) - reach + 1, d.stride)
    return [padded[s : s + reach : d.window_dilation] for s in starts]


def window_elements(x: Words, window: Window) -> tuple[tuple[int, ...], list[list[tuple[int, ...]]]]:
    """The outputs' shape and each window's elements' indices, row-major over window positions."""
    places = [axis_places(n, d) for n, d in zip(x.shape, window, strict=True)]
    shape = tuple(len(p) for p in places)
    found = []
    for output in np.ndindex(shape):
        lines = [p[i] for p, i in zip(places, output, strict=True)]
        found.append([i for i in itertools.product(*lines) if None not in i])
    return shape, found


def folded(
    reducer: str,
    type_name: str,
    elements: list[int],
    initial: int,
    profile: Profile = PLAIN,
    **more: Any,
) -> int:
    """R2 and R3 on one window's elements."""
    if not elements:
        return initial
    if dtypes.DTYPES[type_name].kind != "float":
        return integer_prefixes(reducer, type_name, elements, initial)[-1]
    more["round_tiles"] = rounds_tiles(profile, type_name, reducer)
    if profile.subnormals == "flush":
        return prefixes(reducer, type_name, elements, initial, flush=True, **more)[-1]
    return sums.reduce_float(reducer, type_name, elements, initial, **more)


def expected_windows(
    reducer: str,
    type_name: str,
    x: Words,
    window: Window,
    initial: int,
    profile: Profile = PLAIN,
    **more: Any,
) -> Words:
    shape, windows = window_elements(x, window)
    out = [
        folded(reducer, type_name, [int(x[i]) for i in indices], initial, profile, **more)
        for indices in windows
    ]
    return np.array(out, x.dtype).reshape(shape)


def random_window(rng: np.random.Generator, shape: Sequence[int]) -> tuple[WindowDimension, ...]:
    """Any size, stride, padding of both signs and dilations; some leave the last dimensions alone."""
    pick: Callable[..., int] = lambda low, high: int(rng.integers(low, high + 1))  # noqa: E731
    plain = rng.random() < 0.2
    kept = pick(0, len(shape) - 1) if rng.random() < 0.3 else 0
    moving = tuple(
        WindowDimension(
            size=pick(1, 4 if len(shape) < 3 else 2),
            stride=pick(1, 3),
            padding=(0, 0) if plain else (pick(-2, 3), pick(-2, 3)),
            base_dilation=1 if plain else pick(1, 3),
            window_dilation=1 if plain else pick(1, 3),
        )
        for _ in range(len(shape) - kept)
    )
    return (*moving, *[WindowDimension(1)] * kept)


# ---- reduce_window against the walk ------------------------------------------------------------


@pytest.mark.parametrize("reducer", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_windows_R4_of_bools_that_are_any_byte_but_zero(reducer: str) -> None:
    words = np.random.default_rng(31).choice(np.array([0, 1, 2, 128, 255], np.uint8), (40, 300))
    initial = int(reducer == "bitwise_and")
    for window in ((1, 5), (3, 1), (2, 2)):
        sizes = tuple(WindowDimension(n) for n in window)
        ours, expected = (
            windows("bool", w, initial, window=sizes, reducer=reducer)
            for w in (words, (words != 0).astype(np.uint8))
        )
        assert np.array_equal(ours, expected), window


@each_of("seed", range(60))
def test_windows_R4_equal_the_walk(seed: int) -> None:
    """Random shapes, windows, types, layouts and special values."""
    rng = np.random.default_rng([70, seed])
    type_name = str(rng.choice(FLOATS if seed % 4 else [*INTEGERS, "bool"]))
    kind = dtypes.DTYPES[type_name].kind
    rank = seed % 4 + 1 if seed % 4 else int(rng.integers(1, 5))
    longest = (80, 12, 6, 4)[rank - 1]
    for _ in range(4):
        shape = [int(n) for n in rng.integers(1, longest + 1, rank)]
        window = random_window(rng, shape)
        reducer = str(rng.choice(REDUCERS if kind == "float" else [*REDUCERS, *BITWISE]))
        x = random_words(rng, type_name, shape, str(rng.choice(["any", "near", "special"])))
        x = (x, np.asfortranarray(x), x[::-1], x[..., ::-1])[int(rng.integers(4))]
        initial = random_words(rng, type_name, (), "near")
        more = {"window": window, "reducer": reducer, "profile": (PLAIN, OFF)[int(rng.integers(2))]}
        found = windows(type_name, x, initial, **more)
        expected = expected_windows(reducer, type_name, x, window, int(initial), more["profile"])
        np.testing.assert_array_equal(found, expected, err_msg=f"{reducer} {shape} {window}")


def test_control_the_random_windows_have_every_kind() -> None:
    """Windows that are empty, partial and full, no outputs at all, more outputs than lanes, and last
    dimensions that are left alone.
    """
    empty = partial = full = none = many = kept = 0
    for seed in range(40):
        rng = np.random.default_rng([71, seed])
        shape = [int(n) for n in rng.integers(1, 20, seed % 3 + 1)]
        window = random_window(rng, shape)
        dims, windows = window_elements(np.zeros(shape), window)
        sizes = [len(w) for w in windows]
        most = math.prod(d.size for d in window)
        empty += 0 in sizes
        partial += any(0 < n < most for n in sizes)
        full += most in sizes
        none += 0 in dims
        many += len(windows) > 64
        kept += len(shape) > 1 and window[-1] == WindowDimension(1)
        assert dims == tuple(d.output_size(n) for d, n in zip(window, shape, strict=True))
    assert min(empty, partial, full, none, many, kept) >= 2


@each_of("channels", [3, 100, 600])
@each_of("type_name", ["float32", "bfloat16", "int32", "int8"])
def test_windows_R4_of_channels_last_are_those_of_planes(
    type_name: str, channels: int, isa: str
) -> None:
    """Several places, one, and a part of one fill a tile; a row's first and last windows are cut."""
    rng = np.random.default_rng([72, channels])
    x = random_words(rng, type_name, (2, 3, 13, channels), "any")
    rows = WindowDimension(2, padding=(1, 0))
    columns = WindowDimension(3, stride=2, padding=(2, 4), window_dilation=2)
    kept = WindowDimension(1)
    is_float = dtypes.DTYPES[type_name].kind == "float"
    for reducer, profile in itertools.product(REDUCERS, (PLAIN, OFF, FLUSH) if is_float else (PLAIN,)):
        more = {"reducer": reducer, "profile": profile}
        initial = random_words(rng, type_name, (), "near")
        found = windows(type_name, x, initial, window=(kept, rows, columns, kept), **more)
        planes = np.ascontiguousarray(np.moveaxis(x, -1, 1))
        expected = windows(type_name, planes, initial, window=(kept, kept, rows, columns), **more)
        np.testing.assert_array_equal(np.moveaxis(found, -1, 1), expected)


@each_of("reducer", REDUCERS)
def test_windows_R4_of_places_two_apart(reducer: str, isa: str) -> None:
    """Rows of less than a vector, of a few, and that end where the array does."""
    rng = np.random.default_rng(73)
    for length in (2, 3, 31, 32, 33, 34, 64, 65, 100):
        x = random_words(rng, "float32", (3, length), "any")
        initial = random_words(rng, "float32", (), "near")
        for padding in ((0, 0), (1, 1), (0, 2)):
            along = WindowDimension(3, stride=2, padding=padding)
            window = (WindowDimension(2, padding=(1, 0)), along)
            found = windows("float32", x, initial, window=window, reducer=reducer)
            expected = expected_windows(reducer, "float32", x, window, int(initial))
            np.testing.assert_array_equal(found, expected, err_msg=f"{length} {padding}")


# ---- windows that run along one dimension ------------------------------------------------------


def running(shape: Sequence[int], axis: int, backwards: bool, more: int = 0) -> Window:
    """The window of a cumulative function, which may be longer than the axis."""
    low = shape[axis] - 1 + more
    window = [WindowDimension(1) for _ in shape]
    window[axis] = WindowDimension(low + 1, padding=(0, low) if backwards else (low, 0))
    return tuple(window)


@cache
def running_problems(type_name: str, backwards: bool) -> list[tuple[list[Any], dict[str, Any], Words]]:
    """Operands and attributes of windows that run along an axis, and what they give: the cumulative
    function of the array, or of a reversed one; of small ones the walk, which folds each window.
    """
    rng = np.random.default_rng(90)
    is_float = dtypes.DTYPES[type_name].kind == "float"
    reducers = REDUCERS if is_float else ["add", "maximum", *BITWISE]
    profiles = (PLAIN, OFF, FLUSH) if is_float else (PLAIN,)
    problems = []
    shapes = (((700,), 0, 0), ((3, 5, 2), 1, 2), ((2, 3, 9), 2, 0), ((1, 70, 9), 1, 0))
    for shape, axis, more in shapes:
        x = random_words(rng, type_name, shape, "any" if len(shape) == 1 else "near")
        initial = np.asarray(random_words(rng, type_name, (), "near"))
        window = running(shape, axis, backwards, more)
        operands = [(type_name, np.asfortranarray(x)), (type_name, initial)]
        for reducer, profile in itertools.product(reducers, profiles):
            turned = np.flip(x, axis) if backwards else x
            expected = expected_prefixes(reducer, type_name, turned, axis, int(initial), profile)
            expected = np.flip(expected, axis) if backwards else expected
            if math.prod(shape) < 100:
                walked = expected_windows(reducer, type_name, x, window, int(initial), profile)
                assert backwards or np.array_equal(walked, expected)
                expected = walked
            attributes = {"window": window, "reducer": reducer, "profile": profile}
            problems.append((operands, attributes, expected))
    return problems


@each_of("backwards", [False, True])
@each_of("type_name", [*FLOATS, *INTEGERS, "bool"])
def test_windows_R4_that_run_along_a_dimension_are_the_cumulative_function(
    type_name: str, backwards: bool, isa: str
) -> None:
    """On any axis and layout and across a tile."""
    for operands, attributes, expected in running_problems(type_name, backwards):
        found = evaluate("reduce_window", *operands, **attributes)
        np.testing.assert_array_equal(found, expected, err_msg=str(attributes))


@pytest.mark.parametrize("backwards", [False, True])
def test_windows_R1_that_run_along_a_dimension_accumulate_in_the_plans_type(backwards: bool) -> None:
    x = random_words(np.random.default_rng(91), "bfloat16", (600,), "near")
    window = running(x.shape, 0, backwards)
    found = windows("bfloat16", x, window=window, accumulate=dtypes.float16)
    step = -1 if backwards else 1
    expected = prefixes("add", "bfloat16", x[::step].tolist(), 0, accumulate="float16")
    assert found[::step].tolist() == expected


@pytest.mark.parametrize(
    ("op", "backwards"), [("cumulative", False), ("reduce_window", False), ("reduce_window", True)]
)
def test_cumulative_S2_R3_every_element_draws_for_each_tile(op: str, backwards: bool) -> None:
    """Element j rounds tile t by word j of the draw of tile t, whatever the elements before it drew."""
    profile = Profile(rounding="stochastic", mixed_precision_accumulation="off")
    setting = ops.Setting(profile, 7, "0/main/w/")
    x = random_words(np.random.default_rng(92), "bfloat16", (1100,), "near")
    own = {"axis": 0} if op == "cumulative" else {"window": running(x.shape, 0, backwards)}
    found = evaluate_fold(op, "bfloat16", x, setting=setting, **own)
    wide = widened("bfloat16", x[::-1] if backwards else x)

    def rounded(word: int, tile: str, j: int) -> int:
        number = formats.decode("float32", word)
        drawn = random.word(7, random.identifier(f"0/main/w//{tile}"), j)
        return formats.round_number("bfloat16", number, word=drawn)

    expected, acc, closed = [], 0, list[int]()
    for k, element in enumerate(wide):
        j = len(wide) - 1 - k if backwards else k
        if k % 512 == 0 and k:
            closed.append(acc)
        acc = element if k % 512 == 0 else twin.add(acc, element)
        tiles = widened(
            "bfloat16", np.array([rounded(t, str(n), j) for n, t in enumerate((*closed, acc))])
        )
        total = reduce(twin.add, tiles)
        expected.append(rounded(twin.add(total, 0), "", j))
    assert found.tolist() == (expected[::-1] if backwards else expected)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("type_name", ["float32", "bfloat16", "int32", "float64"])
def test_windows_R4_that_run_along_a_dimension_take_linear_time(
    type_name: str, backwards: bool
) -> None:
    """A window for each of 2^17 elements that read it all would take a minute, or minutes."""
    x = np.zeros(1 << 17, word_type(type_name))
    before = time.process_time()
    windows(type_name, x, window=running(x.shape, 0, backwards))
    assert time.process_time() - before < 5


LONG: list[tuple[tuple[int, ...], tuple[WindowDimension, ...]]] = [
    ((1300,), (WindowDimension(1200, stride=50, padding=(100, 0)),)),
    ((1100,), (WindowDimension(1025, stride=75),)),
    ((700,), (WindowDimension(1300, stride=70, padding=(300, 339), base_dilation=2),)),
    ((40, 50), (WindowDimension(30, stride=8, padding=(3, 8)), WindowDimension(40, stride=9))),
    ((9, 10, 8), (WindowDimension(9), WindowDimension(9), WindowDimension(8))),
    ((60, 30), (WindowDimension(29, window_dilation=2, stride=2), WindowDimension(30))),
]


@each_of("case", range(len(LONG)))
@each_of("type_name", ["float32", "bfloat16", "float8_e4m3"])
def test_windows_R2_R3_of_more_than_a_tile(type_name: str, case: int) -> None:
    """Neighbouring windows that lie over an edge reach the tile's end at different positions."""
    shape, window = LONG[case]
    x = random_words(np.random.default_rng(72), type_name, shape, "near")
    initial = encoded(type_name, [1.5])[0]
    for profile in (PLAIN, OFF) if type_name != "float32" else (PLAIN,):
        found = windows(type_name, x, initial, window=window, profile=profile)
        expected = expected_windows("add", type_name, x, window, int(initial), profile)
        np.testing.assert_array_equal(found, expected)
    if type_name == "float32" and case == 0:  # control: another tile would be seen
        other = expected_windows("add", type_name, x, window, int(initial), tile=511)
        assert np.any(found != other)


@each_of("type_name", [*FLOATS, *INTEGERS, "bool"])
def test_windows_R4_with_no_element_are_the_initial_value(type_name: str, isa: str) -> None:
    """Only padding, only holes, or an operand without elements: the bits of the init."""
    rng = np.random.default_rng(73)
    initial = random_words(rng, type_name, (), "near")
    x = random_words(rng, type_name, (3,), "near")
    window = (WindowDimension(2, stride=2, padding=(4, 5), base_dilation=3),)
    for reducer in REDUCERS:
        found = windows(type_name, x, initial, window=window, reducer=reducer)
        expected = expected_windows(reducer, type_name, x, window, int(initial))
        np.testing.assert_array_equal(found, expected)
        assert found[:2].tolist() == found[-2:].tolist() == [initial] * 2
        assert (
            windows(type_name, x[:0], initial, window=window, reducer=reducer).tolist() == [initial] * 4
        )


def test_windows_R4_padding_is_no_element() -> None:
    """XLA's padding by the init would absorb: max of negatives, a product, a sum from 2^24."""
    values = np.array([-3, -1, -2], np.float32).view(np.uint32)
    around = (WindowDimension(3, padding=(1, 1)),)
    before = (WindowDimension(2, padding=(1, 0)),)
    for x, window, reducer, initial, expected in (
        ([-3, -1, -2], around, "maximum", -np.inf, [-1, -1, -1]),
        ([-3, -1, -2], around, "multiply", 1, [3, -6, 2]),
        ([-3, -1, -2], around, "multiply", 2, [6, -12, 4]),
        ([-3, -1, -2], around, "add", 10, [6, 4, 7]),
        ([1, 1], before, "add", 2.0**24, [2.0**24, 2.0**24 + 2]),  # 1 is absorbed once, 1 + 1 is not
    ):
        values, start = encoded("float32", x), encoded("float32", [initial])[0]
        found = windows("float32", values, start, window=window, reducer=reducer)
        assert found.view(np.float32).tolist() == expected


@each_of("reducer", REDUCERS)
@each_of("type_name", ["float32", "bfloat16", "float16"])
def test_windows_C4_flush(type_name: str, reducer: str) -> None:
    rng = np.random.default_rng(74)
    x = random_words(rng, type_name, (100,), "special")
    if type_name != "float16":  # near 2^-126
        x = x & x.dtype.type({"float32": 0x81FFFFFF, "bfloat16": 0x81FF}[type_name])
    window = (WindowDimension(4, stride=1, padding=(2, 2), window_dilation=3),)
    results = []
    for profile in (PLAIN, FLUSH):
        found = windows(type_name, x, window=window, reducer=reducer, profile=profile)
        expected = expected_windows(reducer, type_name, x, window, 0, profile)
        np.testing.assert_array_equal(found, expected)
        results.append(found)
    if type_name != "float16" and reducer == "add":
        assert np.any(results[0] != results[1])


@pytest.mark.parametrize(
    "window",
    [(WindowDimension(600, stride=20),), (WindowDimension(24, stride=2),)],
    ids=["tiles", "rows"],
)
def test_windows_R1_accumulate_in_the_plans_type(window: Window) -> None:
    x = random_words(np.random.default_rng(75), "float32", 640, "near")
    found = windows("float32", x, window=window, accumulate=dtypes.bfloat16)
    expected = expected_windows("add", "float32", x, window, 0, accumulate="bfloat16")
    np.testing.assert_array_equal(found, expected)


@each_of("type_name", [*FLOATS, "int32", "uint8", "bool"])
def test_windows_R4_of_full_extent_are_the_reduction(type_name: str, isa: str) -> None:
    rng = np.random.default_rng(76)
    for shape, axes in (
        ((1600,), (0,)),
        ((20, 70), (0, 1)),
        ((9, 600), (1,)),
        ((3, 40, 5, 30), (1, 3)),
    ):
        x = random_words(rng, type_name, shape, "near")
        initial = random_words(rng, type_name, (), "near")
        window = tuple(WindowDimension(n if d in axes else 1) for d, n in enumerate(shape))
        for reducer, profile in itertools.product(REDUCERS, (PLAIN, OFF, FLUSH)):
            more: dict[str, Any] = {"reducer": reducer, "profile": profile}
            ours = windows(type_name, x, initial, window=window, **more)
            total = evaluate_fold("reduce", type_name, x, initial, dimensions=axes, **more)
            assert np.array_equal(ours.ravel(), total.ravel())


def test_windows_D1_every_path_gives_the_same_bits(restored_processor: None) -> None:
    rng = np.random.default_rng(77)
    window = (
        WindowDimension(9, stride=2, padding=(5, 4), window_dilation=2),
        WindowDimension(70, stride=3, padding=(40, 30), base_dilation=2),
    )
    cases = [
        (t, random_words(rng, t, (40, 60), mode))
        for t in (*FLOATS, "int8", "bool")
        for mode in ("near", "special")
    ]

    def run() -> Words:
        choices = zip(itertools.cycle(REDUCERS), itertools.cycle((PLAIN, OFF, FLUSH)), strict=False)
        found = [
            windows(t, x, window=window, reducer=reducer, profile=profile)
            for (t, x), (reducer, profile) in zip(cases, choices, strict=False)
        ]
        return np.stack(found)

    check_everywhere(run, threads=(1, 2))


def test_windows_of_rank_0_R4() -> None:
    one = encoded("float32", [1])[0, ...]
    assert windows("float32", one, one, window=()) == 0x40000000


@pytest.mark.parametrize(
    ("window", "match"),
    [
        ((WindowDimension(2),), "dimensions"),
        ((WindowDimension(2),) * 3, "dimensions"),
        ((WindowDimension(0), WindowDimension(1)), "are from 1 to"),
        ((WindowDimension(1, stride=0), WindowDimension(1)), "are from 1 to"),
        ((WindowDimension(1, base_dilation=0), WindowDimension(1)), "are from 1 to"),
        ((WindowDimension(1), WindowDimension(1, window_dilation=-1)), "are from 1 to"),
    ],
)
def test_windows_refuse_what_is_no_window(window: tuple[WindowDimension, ...], match: str) -> None:
    with pytest.raises(InvalidArgument, match=match):
        windows("float32", np.zeros((3, 4), np.uint32), window=window)


def test_windows_refuse_other_types() -> None:
    x, more = np.zeros(3, np.uint32), {"window": (WindowDimension(2),)}
    with pytest.raises(InvalidArgument, match="initial"):
        evaluate("reduce_window", ("float32", x), ("int32", x[0, ...]), **more, reducer="add")
    with pytest.raises(UnsupportedType, match="float32"):
        windows("float32", x, **more, reducer="bitwise_or")
    with pytest.raises(ValueError, match="not a reduction"):
        windows("float32", x, **more, reducer="less")


def test_windows_H1_of_float64_are_numpys() -> None:
    x = np.array([1.0, 2**-40, 4.0]).view(np.uint64)
    found = windows("float64", x, window=(WindowDimension(2),))
    assert found.view(np.float64).tolist() == [1 + 2**-40, 4 + 2**-40]


def test_core_refuses_what_is_no_window() -> None:
    x, zero, out = np.zeros(4, np.float32), np.zeros((), np.float32), np.zeros(3, np.float32)
    plain = ops.numerics(PLAIN)
    reduction = _core.Reduction(0, 0, 0, 512, False, plain)
    for rows in (
        [],
        [(2, 1, 0, 1, 1)] * 2,
        [(-1, 1, 0, 1, 1)],
        [(2, 0, 0, 1, 1)],
        [(2, 1, 0, 0, 1)],
        [(2, 1, 0, 1, 0)],
    ):
        with pytest.raises(ValueError, match="window"):
            reduction.over(rows, x, zero, out).run()
    for start, output in (
        (np.zeros(2, np.float32), out),
        (zero, np.zeros(3)),
        (zero, np.zeros((3, 1), np.float32)),
    ):
        with pytest.raises(ValueError, match=r"initial|items|dimension"):
            reduction.over([(2, 1, 0, 1, 1)], x, start, output).run()


# ---- any computation ---------------------------------------------------------------------------


def fold(
    computation: _core.Chain,
    window: Window,
    inputs: Sequence[Words],
    initial: Sequence[int],
    types: Sequence[str],
) -> list[Words]:
    """`_core.fold` on words; `types` are the accumulators'."""
    dims = [d.output_size(n) for d, n in zip(window, inputs[0].shape, strict=True)]
    words = [word_type(t) for t in types]
    outputs = [np.empty(dims, w) for w in words]
    starts = [np.array(v, w) for v, w in zip(initial, words, strict=True)]
    _core.fold(computation, folds.core_window(window), list(inputs), starts, outputs).run()
    return outputs


def slow_fold(
    step: Callable[[Sequence[int], Sequence[int]], Sequence[int]],
    window: Window,
    inputs: Sequence[Words],
    initial: Sequence[int],
) -> list[Words]:
    """From `initial`, acc = step(acc, elements) in row-major order; gives words of 64 bits."""
    shape, windows = window_elements(inputs[0], window)
    results = []
    for indices in windows:
        acc = list(initial)
        for i in indices:
            acc = list(step(acc, [int(x[i]) for x in inputs]))
        results.append(acc)
    columns = np.array(results, np.uint64).reshape(*shape, len(initial))
    return [columns[..., i] for i in range(len(initial))]


def arithmetic(name: str, type_name: str, *operands: int) -> int:
    """One step on encodings of a type: E1's one rounding."""
    wide = (formats.convert(type_name, "float32", x) for x in operands)
    return formats.convert("float32", type_name, twin.FLOAT[name](*wide))


def multiply_and_add(type_name: str, *outputs: int) -> _core.Chain:
    """The value acc * k + x of the accumulators and elements acc, _, x and k, as value 5."""
    steps = [("multiply", type_name, (0, 3)), ("add", type_name, (4, 2))]
    return chain_of([type_name] * 4, steps, outputs)


WINDOWS: list[tuple[tuple[int, ...], tuple[WindowDimension, ...]]] = [
    ((30,), (WindowDimension(30),)),
    ((100,), (WindowDimension(5, stride=1, padding=(3, 2), window_dilation=2),)),
    ((7, 9), (WindowDimension(3, padding=(1, 1)), WindowDimension(4, stride=2, base_dilation=2))),
    ((4, 3, 5), (WindowDimension(4), WindowDimension(1), WindowDimension(3, padding=(-1, 1)))),
    ((3,), (WindowDimension(2, padding=(4, 3)),)),
]


@each_of("case", range(len(WINDOWS)))
@each_of("type_name", ["bfloat16", "float16", "float8_e4m3", "tfloat32", "float32"])
def test_fold_R2_rounds_each_step_as_typed(type_name: str, case: int, isa: str) -> None:
    """It is acc * c + x, the product rounded and then the sum; c is a second array, and its accumulator
    passes through.
    """
    shape, window = WINDOWS[case]
    rng = np.random.default_rng([80, case])
    x, c = (random_words(rng, type_name, shape, mode) for mode in ("near", "special"))
    half = np.full(shape, formats.from_float(type_name, 0.5), x.dtype)
    c = np.where(rng.random(shape) < 0.9, half, c).astype(x.dtype)
    initial = encoded(type_name, [3, -7]).tolist()
    computation = multiply_and_add(type_name, 5, 1)

    def step(acc: Sequence[int], element: Sequence[int]) -> tuple[int, int]:
        product = arithmetic("multiply", type_name, acc[0], element[1])
        return arithmetic("add", type_name, product, element[0]), acc[1]

    found = fold(computation, window, (x, c), initial, [type_name] * 2)
    for ours, expected in zip(found, slow_fold(step, window, (x, c), initial), strict=True):
        np.testing.assert_array_equal(ours, expected)


@each_of("case", range(len(WINDOWS)))
@each_of("type_name", ["float32", "bfloat16", "int16"])
def test_fold_R2_argmax_by_value_and_index(type_name: str, case: int, isa: str) -> None:
    """Two arrays of different types, compared and selected; values with many ties and NaN."""
    shape, window = WINDOWS[case]
    t = dtypes.DTYPES[type_name]
    rng = np.random.default_rng([82, case])
    x = random_words(rng, type_name, shape, "special")
    if t.kind != "float":
        x = x % x.dtype.type(5)
    index = rng.permutation(math.prod(shape)).reshape(shape).astype(np.uint32)
    low = 0x8000 if type_name == "int16" else formats.from_float(type_name, -math.inf)
    initial = [low, 0xFFFFFFFF]
    steps = [
        ("greater_equal", "bool", (0, 2)),
        ("select", type_name, (4, 0, 2)),
        ("select", "int32", (4, 1, 3)),
    ]
    computation = chain_of([type_name, "int32"] * 2, steps, [5, 6])

    def number(word: int) -> float:
        if t.kind != "float":
            return formats.wrap(word, bits=16, signed=True)
        v = formats.decode(type_name, word)
        if v.kind == "nan":
            return math.nan
        return float(v.value) if v.kind == "finite" else math.copysign(math.inf, -v.negative)

    def step(acc: Sequence[int], element: Sequence[int]) -> Sequence[int]:
        return acc if number(acc[0]) >= number(element[0]) else element

    found = fold(computation, window, (x, index), initial, [type_name, "int32"])
    for ours, expected in zip(found, slow_fold(step, window, (x, index), initial), strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_fold_R2_order_is_row_major_and_the_initial_value_comes_first() -> None:
    """The value acc * 31 + x in int64 tells every order; the layout does not matter."""
    rng = np.random.default_rng(84)
    x = random_words(rng, "int64", (6, 5, 7)) & 0xFFFF
    k = np.full(x.shape, 31, np.uint64)
    computation = multiply_and_add("int64", 5, 1)
    window = (WindowDimension(3, stride=2), WindowDimension(5), WindowDimension(4, padding=(1, 1)))

    def step(acc: Sequence[int], element: Sequence[int]) -> tuple[int, int]:
        return (acc[0] * element[1] + element[0]) & (2**64 - 1), acc[1]

    (expected, _) = slow_fold(step, window, (x, k), (5, 0))
    other = np.ascontiguousarray(x.transpose(2, 0, 1)).transpose(1, 2, 0)
    broadcast = np.broadcast_to(np.array(31, np.uint64), x.shape)
    views = (x, np.asfortranarray(x), other, x[::-1].copy()[::-1])
    for view, factors in (*((v, k) for v in views), (x, broadcast)):
        found, _ = fold(computation, window, (view, factors), (5, 0), ["int64"] * 2)
        np.testing.assert_array_equal(found, expected)


def test_fold_E6_arithmetic_gives_the_canonical_nan_and_movement_keeps_it(isa: str) -> None:
    for type_name in FLOATS:
        f = formats.FORMATS[type_name]
        word = f"u{dtypes.DTYPES[type_name].itemsize}"
        inf = formats.from_float(type_name, math.inf)
        payload = f.sign_bit | f.nan_bits | 1 << f.shift
        x = np.array([inf, f.sign_bit | inf, 0, payload, 0, 0], word)
        window = (WindowDimension(2, stride=2),)
        add = pair_chain("add", type_name)
        (found,) = fold(add, window, (x,), [0], [type_name])
        assert found.tolist() == [f.nan_bits, f.nan_bits, 0], type_name
        for output, expected in ((1, [f.sign_bit | inf, payload, 0]), (0, [payload] * 3)):
            move = chain_of([type_name] * 2, [], [output])
            (found,) = fold(move, window, (x,), [payload], [type_name])
            assert found.tolist() == expected, type_name
        outside = (WindowDimension(1, padding=(1, -6)),)
        (found,) = fold(add, outside, (x,), [payload], [type_name])
        assert found.tolist() == [payload]  # no element: the init's bits
        negate = chain_of([type_name] * 2, [("negative", type_name, (1,))], [2])
        (found,) = fold(negate, window, (x,), [0], [type_name])
        assert found.tolist() == [inf, payload ^ f.sign_bit, f.sign_bit], type_name


def test_fold_C4_flush_acts_at_every_step() -> None:
    x = random_words(np.random.default_rng(86), "float32", (50, 8), "any") & 0x80FFFFFF | 0x00400000
    window = (WindowDimension(1), WindowDimension(8))

    def settled(bits: int) -> int:
        return bits & 0x80000000 if bits & 0x7F800000 == 0 else bits

    (expected,) = slow_fold(
        lambda acc, e: [settled(twin.add(settled(acc[0]), settled(e[0])))], window, (x,), [0]
    )

    def of(**fields: str) -> Words:
        return fold(pair_chain("add", "float32", **fields), window, (x,), [0], ["float32"])[0]

    np.testing.assert_array_equal(of(subnormals="flush"), expected)
    assert np.any(of() != expected)


def test_fold_D1_every_path_gives_the_same_bits(restored_processor: None) -> None:
    x, y = (random_words(np.random.default_rng(87), "bfloat16", (60, 50), "near") for _ in "xy")
    computation = multiply_and_add("bfloat16", 5, 3)
    window = (WindowDimension(3, padding=(1, 1)), WindowDimension(5, stride=2, padding=(3, 3)))
    check_everywhere(
        lambda: np.stack(fold(computation, window, (x, y), (0, 0), ["bfloat16"] * 2)), threads=(1, 2)
    )


def test_fold_of_no_outputs_and_no_window() -> None:
    add = pair_chain("add", "float32")
    x = random_words(np.random.default_rng(88), "float32", (4,), "near")
    out = np.empty((0,), np.uint32)
    _core.fold(add, [(5, 1, 0, 1, 1)], [x], [np.zeros((), np.uint32)], [out]).run()
    (found,) = fold(add, (WindowDimension(2),), (x[:0],), [5], ["float32"])
    assert found.shape == (0,)
    out = np.empty((2,), np.uint32)
    _core.fold(add, [(0, 1, 0, 1, 1)], [x], [np.array(9, np.uint32)], [out]).run()
    assert out.tolist() == [9, 9]  # a window of size 0 has no element
    (found,) = fold(add, (), (x[0, ...],), [0], ["float32"])
    assert found == x[0]


def test_fold_refuses_what_does_not_fit() -> None:
    def f32(*shape: int) -> Words:
        return np.zeros(shape, np.float32)

    add = pair_chain("add", "float32")
    rows = [(2, 1, 0, 1, 1)]
    good: dict[str, Any] = {
        "computation": add, "window": rows, "inputs": [f32(4)], "initial": [f32()], "outputs": [f32(3)]
    }  # fmt: skip
    _core.fold(**good).run()
    to_bool = pair_chain("less", "float32", "bool")
    steps = [("add", "float32", (0, 2)), ("add", "float32", (1, 3))]
    pair = {"computation": chain_of(["float32"] * 4, steps, [4, 5]), "initial": [f32()] * 2}
    three = chain_of(["float32"] * 3, [("add", "float32", (0, 1))], [3])
    narrow = chain_of(["bfloat16", "float32"], [("add", "float32", (0, 1))], [2])
    for change in (
        {"computation": to_bool},
        {"computation": narrow},
        {"computation": pair["computation"]},
        {"computation": three},
        pair | {"inputs": [f32(4), f32(5)], "outputs": [f32(3)] * 2},
        pair | {"inputs": [f32(4)] * 2, "outputs": [f32(3), f32(2)]},
        {"inputs": [f32(4)] * 2},
        {"inputs": []},
        {"initial": []},
        {"outputs": []},
        {"inputs": [], "initial": [], "outputs": []},
        {"initial": [f32(2)]},
        {"initial": [np.zeros((), np.float64)]},
        {"inputs": [np.zeros(4, np.uint16)]},
        {"outputs": [np.zeros(3, np.uint8)]},
        {"outputs": [f32(6)[::2]]},
        {"outputs": [f32(3, 1)]},
        {"inputs": [f32(4, 1)]},
        {"window": []},
        {"window": rows * 2},
        {"window": [(-1, 1, 0, 1, 1)]},
        {"window": [(2, 0, 0, 1, 1)]},
        {"window": [(2, 1, 0, 0, 1)]},
        {"window": [(2, 1, 0, 1, 0)]},
    ):
        with pytest.raises(ValueError, match=r"."):
            _core.fold(**{**good, **change}).run()


def test_fold_S2_refuses_a_stochastic_computation() -> None:
    """Its steps would need words that the rule does not give."""
    add = pair_chain("add", "bfloat16", rounding="stochastic")
    x, zero, out = np.zeros(4, np.uint16), np.zeros((), np.uint16), np.zeros(3, np.uint16)
    with pytest.raises(ValueError, match="stochastic"):
        _core.fold(add, [(2, 1, 0, 1, 1)], [x], [zero], [out]).run()


@cache
def three_tiles_and_a_bit(reducer: str, accumulate: str) -> tuple[Words, list[int]]:
    """Words, and every eighth of the twin's windows of 1600 of them."""
    words = random_words(np.random.default_rng(3), "float32", 1640, "near")
    return words, [
        sums.reduce_float(reducer, "float32", words[i : i + 1600].tolist(), 0, accumulate=accumulate)
        for i in range(0, 41, 8)
    ]


@pytest.mark.parametrize("accumulate", ["bfloat16", "float16"])
@pytest.mark.parametrize("reducer", ["add", "multiply"])
def test_windows_R1_accumulate_across_tiles(isa: str, accumulate: str, reducer: str) -> None:
    """Three tiles and a bit: with two and an initial 0 the last rounding hides the one between them."""
    words, expected = three_tiles_and_a_bit(reducer, accumulate)
    window, dtype = (WindowDimension(1600),), dtypes.DTYPES[accumulate]
    ours = windows("float32", words, window=window, reducer=reducer, accumulate=dtype)
    assert ours.tolist()[::8] == expected


@pytest.mark.parametrize("reach", [3, 2**30, 2**31])
def test_windows_that_reach_as_far_as_32_bits_count_R4(reach: int) -> None:
    """Each window has an element of the operand, and one that lies far before it."""
    x = np.arange(1, 6, dtype=np.float32)
    window = (WindowDimension(2, padding=(reach, 0), window_dilation=reach),)
    found = windows("float32", x.view(np.uint32), window=window)
    expected = x + np.concatenate([np.zeros(min(reach, 5)), x[: max(5 - reach, 0)]])
    assert found.view(np.float32).tolist() == expected.tolist()
