"""Rule R4: element j of a cumulative function is the reduction of the elements 0 to j."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pytest

from neuronsim import _core, dtypes, ops
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.profiles import Profile
from neuronsim.reference import elementwise as twin
from neuronsim.reference import formats, random, sums
from tests.support.draws import random_words
from tests.support.evaluation import evaluate, evaluate_fold
from tests.support.parameters import each_of
from tests.support.processors import check_everywhere
from tests.support.words import BITWISE, FLOATS, INTEGERS, REDUCERS, Words, encoded, widened, word_type

PLAIN = Profile()
OFF = Profile(mixed_precision_accumulation="off")
FLUSH = Profile(subnormals="flush")
cumulative = partial(evaluate_fold, "cumulative")
reduce = partial(evaluate_fold, "reduce")


def prefixes(
    reducer: str,
    type_name: str,
    elements: Sequence[int],
    initial: int,
    *,
    tile: int = 512,
    round_tiles: bool = False,
    accumulate: str = "float32",
    flush: bool = False,
) -> list[int]:
    """What `sums.cumulative_float` gives, in linear time, and with C4's flush."""

    def settled(bits: int) -> int:
        tiny = 0 < bits & 0x7FFFFFFF < 0x00800000
        return bits & 0x80000000 if flush and tiny else bits

    def widened(format_name: str, bits: int) -> int:
        wide = formats.convert(format_name, "float32", bits)
        return settled(wide) if formats.FORMATS[format_name].exponent_bits == 8 else wide

    def rounded(format_name: str, bits: int) -> int:
        return widened(format_name, formats.convert("float32", format_name, bits))

    def step(a: int, b: int) -> int:
        return rounded(accumulate, settled(twin.FLOAT[reducer](a, b)))

    start = widened(type_name, initial)
    closed, acc, found = None, 0, []
    for j, element in enumerate(elements):
        x = widened(type_name, element)
        acc = x if j % tile == 0 else step(acc, x)
        result = rounded(type_name, acc) if round_tiles else acc
        total = result if closed is None else step(closed, result)
        if (j + 1) % tile == 0:
            closed = total
        last = step(total, start)
        if formats.decode("float32", last).kind == "nan":
            last = twin.NAN
        found.append(formats.convert("float32", type_name, last))
    return found


def integer_prefixes(reducer: str, type_name: str, elements: Sequence[int], initial: int) -> list[int]:
    """The same of integers and bool: the init's place does not matter (E8)."""
    t = dtypes.DTYPES[type_name]
    table = twin.BOOL if t.kind == "bool" else twin.INTEGER
    bits = 1 if t.kind == "bool" else t.bits
    signed = t.kind == "signed"
    total = formats.wrap(initial, bits=bits, signed=signed)
    found = []
    for x in elements:
        total = table[reducer](total, formats.wrap(x, bits=bits, signed=signed))
        total = formats.wrap(total, bits=bits, signed=signed)
        found.append(total & ((1 << bits) - 1))
    return found


def rounds_tiles(profile: Profile, type_name: str, reducer: str) -> bool:
    """R3: narrow floats, sums and products."""
    t = dtypes.DTYPES[type_name]
    narrow = t.kind == "float" and t.bits <= 16
    off = profile.mixed_precision_accumulation == "off"
    return off and narrow and reducer in ("add", "multiply")


def expected_prefixes(
    reducer: str, type_name: str, words: Words, axis: int, initial: int, profile: Profile = PLAIN
) -> Words:
    """The twin's answer for every line of an array of any rank."""
    moved = np.moveaxis(np.array(words), axis, -1)
    out = np.empty(moved.shape, words.dtype)
    for i in np.ndindex(moved.shape[:-1]):
        line = moved[i].tolist()
        if dtypes.DTYPES[type_name].kind == "float":
            out[i] = prefixes(
                reducer, type_name, line, initial,
                round_tiles=rounds_tiles(profile, type_name, reducer),
                flush=profile.subnormals == "flush",
            )  # fmt: skip
        else:
            out[i] = integer_prefixes(reducer, type_name, line, initial)
    return np.moveaxis(out, -1, axis)


def identity(reducer: str, type_name: str) -> int:
    """The encoding from which a reduction of floats starts without changing it."""
    value = ops.by_name(reducer).identity
    assert value is not None
    return formats.from_float(type_name, value)


# ---- the oracle itself -------------------------------------------------------------------------


@pytest.mark.parametrize("reducer", REDUCERS)
@pytest.mark.parametrize("round_tiles", [False, True])
def test_oracle_R4_is_the_twins_definition(reducer: str, round_tiles: bool) -> None:
    """The linear walk of this file and the reduction of every prefix are one function."""
    rng = np.random.default_rng(50)
    for type_name in ("float32", "bfloat16", "float8_e4m3"):
        for mode in ("near", "special"):
            line = random_words(rng, type_name, 19, mode).tolist()
            initial = int(random_words(rng, type_name, (), "near"))
            slow = sums.cumulative_float(
                reducer, type_name, line, initial, tile=4, round_tiles=round_tiles
            )
            quick = prefixes(reducer, type_name, line, initial, tile=4, round_tiles=round_tiles)
            assert quick == slow


# ---- against the twin --------------------------------------------------------------------------


@each_of("reducer", REDUCERS)
@each_of("type_name", FLOATS)
def test_cumulative_R4_special_values(type_name: str, reducer: str) -> None:
    """NaN, Inf, signed zeros, subnormals and extremes, from an initial value that is not neutral."""
    rng = np.random.default_rng(51)
    for mode in ("any", "near", "special"):
        words = random_words(rng, type_name, (5, 12), mode)
        initial = random_words(rng, type_name, (), "near")
        for axis in (0, 1):
            found = cumulative(type_name, words, initial, axis=axis, reducer=reducer)
            expected = expected_prefixes(reducer, type_name, words, axis, int(initial), PLAIN)
            np.testing.assert_array_equal(found, expected)


def line_in_range(rng: np.random.Generator, reducer: str, type_name: str, n: int) -> Words:
    """Elements whose fold stays in range, so that every rounding can be seen."""
    words = random_words(rng, type_name, n, "near")
    if reducer != "multiply":
        return words
    one = encoded(type_name, [1])
    unit = 1 << formats.FORMATS[type_name].shift
    steps = rng.integers(-1, 2, n) * (rng.random(n) < 0.1) * unit
    return (one + steps).astype(words.dtype)


@each_of("length", [1, 511, 512, 513, 1025, 1600])
@each_of("reducer", ["add", "multiply"])
def test_cumulative_R2_R3_around_the_tile(length: int, reducer: str) -> None:
    rng = np.random.default_rng(length)
    for type_name in ("float32", "bfloat16"):
        line = line_in_range(rng, reducer, type_name, length)
        initial = identity(reducer, type_name)
        results = []
        for profile in (PLAIN, OFF):
            found = cumulative(type_name, line, initial, axis=0, reducer=reducer, profile=profile)
            if profile == PLAIN or type_name == "bfloat16":
                expected = expected_prefixes(reducer, type_name, line, 0, initial, profile)
                np.testing.assert_array_equal(found, expected)
            results.append(found)
        # Control: R3 is seen on narrow types, past the first tile, and nowhere else.
        if length != 513:
            assert np.array_equal(*results) != (type_name == "bfloat16" and length > 513)


@each_of("length", [1, 511, 513, 1600])
@pytest.mark.parametrize("type_name", ["float32", "bfloat16", "int16", "uint32"])
def test_cumulative_R4_of_lines_side_by_side(type_name: str, length: int, isa: str) -> None:
    """Each is what it is alone, in every layout, from either end."""
    words = random_words(np.random.default_rng(length), type_name, (2, length, 3, 9), "near")
    views = (words, words[:, ::-1], words.transpose(0, 1, 3, 2))
    for profile in (PLAIN, OFF, FLUSH):
        for view in views if profile == PLAIN else views[:1]:
            found = cumulative(type_name, view, axis=1, profile=profile)
            for a, b, c in ((0, 0, 0), (1, 2, 1), (1, 1, 2)):
                alone = cumulative(type_name, view[a, :, b, c], axis=0, profile=profile)
                np.testing.assert_array_equal(found[a, :, b, c], alone)


@each_of("length", [1, 513])
@pytest.mark.parametrize("type_name", ["bfloat16", "float8_e5m2"])
def test_cumulative_S2_of_lines_side_by_side(type_name: str, length: int, isa: str) -> None:
    """Words are those of the elements' indices, whichever lines lie side by side in memory."""
    words = random_words(np.random.default_rng(length), type_name, (2, length, 3, 3), "near")
    turned = np.ascontiguousarray(words.swapaxes(2, 3)).swapaxes(2, 3)  # three at a time: one by one
    found = [
        cumulative(type_name, view, axis=1, profile=Profile(rounding="stochastic"))
        for view in (words, turned)
    ]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("type_name", [*INTEGERS, "bool"])
def test_cumulative_E8_integers_wrap_and_bool_is_or_and_and(type_name: str) -> None:
    rng = np.random.default_rng(53)
    for shape, axis in (((3, 700), 1), ((600, 2), 0), ((2, 5, 3), 1)):
        words = random_words(rng, type_name, shape)
        initial = random_words(rng, type_name, ())
        for reducer in (*REDUCERS, *BITWISE):
            found = cumulative(type_name, words, initial, axis=axis, reducer=reducer)
            expected = expected_prefixes(reducer, type_name, words, axis, int(initial))
            np.testing.assert_array_equal(found, expected, err_msg=reducer)


def test_cumulative_E6_nan_stays_from_where_it_came() -> None:
    """Before it the prefixes are numbers, after it the canonical NaN, in the next tiles too."""
    for type_name in FLOATS:
        f = formats.FORMATS[type_name]
        line = np.zeros(1100, word_type(type_name))
        for place in (0, 1, 511, 512, 700):
            line[:] = 0
            line[place] = f.sign_bit | f.nan_bits | 1 << f.shift
            for reducer in REDUCERS:
                found = cumulative(type_name, line, axis=0, reducer=reducer)
                assert found.tolist() == [0] * place + [f.nan_bits] * (1100 - place)


@each_of("type_name", ["float32", "tfloat32", "bfloat16", "float16"])
@each_of("reducer", REDUCERS)
def test_cumulative_C4_flush(type_name: str, reducer: str) -> None:
    """Operands and every step below 2^-126 are zero; a float16 subnormal is a float32 normal."""
    rng = np.random.default_rng(54)
    words = random_words(rng, type_name, (6, 30), "special")
    if dtypes.DTYPES[type_name].exponent_bits == 8:  # sums and products about 2^-126
        m = formats.FORMATS[type_name].mantissa_bits + formats.FORMATS[type_name].shift
        words = np.where(words >> m & 0xFF == 0xFF, words & ~words.dtype.type(0xFC << m), words)
        tiny = random_words(rng, type_name, (6, 30), "any") & ~words.dtype.type(0xFC << m)
        words = np.concatenate([words, tiny], axis=1)
    results = []
    for profile in (PLAIN, FLUSH):
        found = cumulative(type_name, words, axis=1, reducer=reducer, profile=profile)
        expected = expected_prefixes(reducer, type_name, words, 1, 0, profile)
        np.testing.assert_array_equal(found, expected)
        results.append(found)
        last = reduce(type_name, words, dimensions=(1,), reducer=reducer, profile=profile)
        np.testing.assert_array_equal(found[:, -1], last)
    if dtypes.DTYPES[type_name].exponent_bits == 8 and reducer != "multiply":
        assert not np.array_equal(*results)


def test_cumulative_C4_flush_across_tiles() -> None:
    line = random_words(np.random.default_rng(55), "float32", 1100, "any") & 0x81FFFFFF
    found = cumulative("float32", line, axis=0, profile=FLUSH)
    np.testing.assert_array_equal(found, expected_prefixes("add", "float32", line, 0, 0, FLUSH))


@pytest.mark.parametrize("accumulate", ["bfloat16", "float16"])
def test_cumulative_R1_accumulates_in_the_plans_type(accumulate: str) -> None:
    for type_name in ("float32", accumulate):
        line = random_words(np.random.default_rng(56), type_name, 540, "near")
        dtype = dtypes.DTYPES[accumulate]
        found = cumulative(type_name, line, axis=0, accumulate=dtype)
        assert found.tolist() == prefixes("add", type_name, line.tolist(), 0, accumulate=accumulate)
        assert found[-1] == reduce(type_name, line, dimensions=(0,), accumulate=dtype)


@pytest.mark.parametrize("tile", [1, 3, 512, 600, 1025, 4000])
def test_core_R2_folds_by_the_tile_it_is_given(tile: int) -> None:
    """Also by one longer than the block of 512 elements that the core works on."""
    line = random_words(np.random.default_rng(57), "float32", 1700, "near")
    out = np.empty(1700, np.float32)
    plain = ops.numerics(PLAIN)
    reduction = _core.Reduction(0, 0, 0, tile, False, plain)
    reduction.on(line.view(np.float32), 0, np.zeros((), np.float32), out, 1).run()
    assert out.view(np.uint32).tolist() == prefixes("add", "float32", line.tolist(), 0, tile=tile)


# ---- layouts, paths, sizes ---------------------------------------------------------------------


def layouts(rng: np.random.Generator, type_name: str) -> Iterator[tuple[str, Words]]:
    """Arrays of rank 3 by several ways through memory."""
    x = random_words(rng, type_name, (4, 5, 6), "near")
    yield "dense", x
    yield "Fortran", np.asfortranarray(x)
    yield "transposed", x.transpose(1, 2, 0)
    yield "reversed", x[::-1, ::-1, ::-1]
    yield "sliced", random_words(rng, type_name, (8, 5, 18), "near")[::2, 1:, ::-3]
    for dims in ((1, 1, 6), (4, 5, 1)):
        yield f"broadcast {dims}", np.broadcast_to(random_words(rng, type_name, dims, "near"), x.shape)
    yield "one long axis", x.reshape(1, -1, 1)


@pytest.mark.parametrize("type_name", ["float32", "bfloat16", "float8_e3m4", "int16"])
def test_cumulative_R4_every_layout_and_axis(type_name: str, isa: str) -> None:
    rng = np.random.default_rng(58)
    initial = np.asarray(random_words(rng, type_name, (), "near"))
    for label, view in layouts(rng, type_name):
        for axis in (0, 1, 2):
            found = cumulative(type_name, view, initial, axis=axis)
            expected = expected_prefixes("add", type_name, view, axis, int(initial))
            np.testing.assert_array_equal(found, expected, err_msg=f"{label}, axis {axis}")


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (2, 0, 4), (1, 1), (1, 1, 1)])
def test_cumulative_R4_of_no_and_of_single_elements(shape: tuple[int, ...]) -> None:
    one = np.full(shape, 0x3F800000, np.uint32)
    for axis in range(len(shape)):
        found = cumulative("float32", one, 0x40000000, axis=axis)
        np.testing.assert_array_equal(found, np.full(shape, 0x40400000))


def test_cumulative_D1_every_path_gives_the_same_bits(restored_processor: None) -> None:
    """And the last element of each line is its reduction (R4)."""
    rng = np.random.default_rng(59)
    shapes = (((150, 513), 1), ((1100, 40), 0), ((3, 70, 9), 1))
    cases = itertools.product((*FLOATS, "int32", "uint8", "bool"), shapes, ("near", "special"))
    for i, (type_name, (shape, axis), mode) in enumerate(cases):
        words = random_words(rng, type_name, shape, mode)
        more = {"reducer": REDUCERS[i % 4], "profile": (PLAIN, OFF, FLUSH)[i % 3]}
        found = check_everywhere(
            partial(cumulative, type_name, words, axis=axis, **more), threads=(1, 2)
        )
        total = partial(reduce, type_name, words, dimensions=(axis,), **more)
        check_everywhere(total, np.take(found, -1, axis), threads=(1, 2))


def test_cumulative_R4_of_a_million_elements() -> None:
    """Linear in the length; a line's tiles by NumPy, whose `accumulate` is a fold in float32."""
    n = 1 << 20
    words = random_words(np.random.default_rng(60), "float32", n, "near")
    found = cumulative("float32", words, axis=0)
    tiles = np.add.accumulate(words.view(np.float32).reshape(-1, 512), axis=1)
    before = np.add.accumulate(tiles[:, -1])
    expected = np.concatenate([tiles[:1], before[:-1, None] + tiles[1:]])
    assert np.array_equal(found.view(np.float32), expected.ravel())
    assert found[-1] == reduce("float32", words, dimensions=(0,))


# ---- stochastic rounding -----------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "axis"), [((7,), 0), ((3, 5), 1), ((5, 3), 0), ((2, 4, 3), 1)])
def test_cumulative_S2_an_elements_word_is_that_of_its_logical_index(
    shape: tuple[int, ...], axis: int
) -> None:
    """Row-major in the array, whatever axis the sums run along."""
    words = random_words(np.random.default_rng(61), "bfloat16", shape, "near")
    setting = ops.Setting(Profile(rounding="stochastic"), 7, "0/main/c/")
    found = cumulative("bfloat16", words, axis=axis, setting=setting)
    wide = np.array(widened("bfloat16", words), np.uint32).reshape(shape)
    totals = expected_prefixes("add", "float32", wide, axis, 0)
    identifier = random.identifier("0/main/c//")
    assert identifier == setting.identifier()
    expected = [
        formats.round_number(
            "bfloat16", formats.decode("float32", int(v)), word=random.word(7, identifier, i)
        )
        for i, v in enumerate(totals.ravel())
    ]
    assert found.ravel().tolist() == expected


# ---- the host's types and errors ---------------------------------------------------------------


def test_cumulative_H1_of_float64_counts_the_initial_value() -> None:
    """As `reduce` does: the last element equals it (R4)."""
    x, start = (np.array(v).view(np.uint64) for v in ([1.0, 2.0, 4.0], 10.0))
    found = cumulative("float64", x, start, axis=0).view(np.float64)
    total = reduce("float64", x, start, dimensions=(0,)).view(np.float64)
    assert total == 17
    assert found.tolist() == [11, 13, 17]


def test_cumulative_refuses_what_does_not_fit() -> None:
    x, zero = np.zeros((2, 3), np.uint32), np.zeros((), np.uint32)
    for start, axis, reducer, error, message in (
        *((("float32", zero), axis, "add", InvalidArgument, "axis") for axis in (2, -1, 5)),
        (("float16", zero.astype(np.uint16)), 0, "add", InvalidArgument, "initial"),
        (("float32", np.zeros(1, np.uint32)), 0, "add", InvalidArgument, "initial"),
        (("float32", zero), 0, "bitwise_and", UnsupportedType, "float32"),
        (("float32", zero), 0, "subtract", ValueError, "not a reduction"),
    ):
        with pytest.raises(error, match=message):
            evaluate("cumulative", ("float32", x), start, axis=axis, reducer=reducer)


def test_core_refuses_an_output_of_another_shape() -> None:
    x, zero = np.zeros((2, 3), np.float32), np.zeros((), np.float32)
    reduction = _core.Reduction(0, 0, 0, 512, False, ops.numerics(PLAIN))
    for out in (np.zeros(2, np.float32), np.zeros((3, 2), np.float32)):
        with pytest.raises(ValueError, match="shape"):
            reduction.on(x, 1, zero, out, cumulative_inner=1)
