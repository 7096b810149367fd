"""Rule E10: sort is the stable bottom-up merge with any comparator; argsort, top-k, argmax, argmin."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from neuronsim import _core, dtypes
from neuronsim.errors import InvalidArgument
from neuronsim.profiles import Profile
from neuronsim.reference import formats
from neuronsim.reference.order import merge_order
from tests.support.draws import random_words
from tests.support.evaluation import chain_of, evaluate, pair_chain
from tests.support.parameters import each_of
from tests.support.processors import check_everywhere, every_processor
from tests.support.words import FLOATS, INTEGERS, Words, word_type

TYPES = [*FLOATS, "float8_e4m3fn", "float64", *INTEGERS, "bool"]
PLAIN = Profile()
LENGTHS = [0, 1, 2, 3, 7, 64, 65, 129]


# ---- twins in plain Python ---------------------------------------------------------------------


def number(type_name: str, word: int) -> float | int:
    """The value of a word; NaN and Inf as Python has them."""
    t = dtypes.DTYPES[type_name]
    if t.kind != "float":
        return formats.wrap(word, bits=8 * t.itemsize, signed=t.kind == "signed")
    v = formats.decode(type_name, word)
    if v.kind == "nan":
        return math.nan
    size = math.inf if v.kind == "inf" else float(v.magnitude)
    return -size if v.negative else size


def total_order(type_name: str, word: int) -> tuple[bool, int]:
    """TOTALORDER (E7) by sign and magnitude: -NaN first, then -Inf, ..., -0, +0, ..., +Inf, +NaN."""
    t = dtypes.DTYPES[type_name]
    if t.kind != "float":
        return True, int(number(type_name, word))
    sign = 1 << (8 * t.itemsize - 1)
    return (False, -(word ^ sign)) if word & sign else (True, word)


def sorted_indices(type_name: str, line: Sequence[int]) -> list[int]:
    """NaN last and all alike, -0 equal to +0; Python's sort is stable."""
    values = [number(type_name, w) for w in line]
    return sorted(
        range(len(line)), key=lambda i: (True, 0) if math.isnan(values[i]) else (False, values[i])
    )


def largest_indices(type_name: str, line: Sequence[int], k: int) -> list[int]:
    keys = [total_order(type_name, w) for w in line]
    found: list[int] = []
    for _ in range(k):
        rest = [i for i in range(len(line)) if i not in found]
        found.append(next(i for i in rest if all(keys[i] >= keys[j] for j in rest)))
    return found


def extreme_index(type_name: str, line: Sequence[int], largest: bool) -> int:
    """The first NaN, else the lowest index of the extreme value."""
    values = [number(type_name, w) for w in line]
    for i, v in enumerate(values):
        if math.isnan(v):
            return i
    return values.index(max(values) if largest else min(values))


def hard_words(rng: np.random.Generator, type_name: str, n: int) -> Words:
    """Many ties, both zeros, infinities, NaN of both signs with several payloads."""
    t = dtypes.DTYPES[type_name]
    if type_name == "float64":
        bits = [0, 1 << 63, 0x7FF << 52, 0xFFF << 52, 0x7FF8 << 48, 0xFFF8 << 48, 0x7FF8 << 48 | 1]
        bits += [0xFFF0 << 48 | 5, 1, 1 << 63 | 1, 0x3FF0 << 48, 0xBFF0 << 48]
        table = np.array(bits, np.uint64)
    elif t.kind == "float":
        f = formats.FORMATS[type_name]
        unit, sign = 1 << f.shift, f.sign_bit
        table = np.concatenate(
            [random_words(rng, type_name, 12, "special"), random_words(rng, type_name, 4, "near")]
        )
        more = [0, sign, f.nan_bits, sign | f.nan_bits, unit, sign | unit]
        if f.has_inf:
            top = ((1 << f.exponent_bits) - 1) << (f.mantissa_bits + f.shift)
            more += [top, sign | top, top | unit, sign | top | unit, f.nan_bits | unit]
        table = np.concatenate([table, np.array(more, table.dtype)])
    else:
        word = word_type(type_name)
        top = 1 if type_name == "bool" else int(np.iinfo(word).max)
        table = np.array(
            [0, 1, top, top >> 1, (top >> 1) + 1 & top, *random_words(rng, type_name, 4)], word
        )
    if t.kind == "float" and rng.random() < 0.3:
        table = np.array([w for w in table if not math.isnan(number(type_name, int(w)))])
    return np.asarray(table[rng.integers(0, len(table), n)])


# ---- the core's sort ---------------------------------------------------------------------------


def comparator(
    types: Sequence[str],
    steps: Sequence[tuple[str, str, Sequence[int]]],
    output: int,
    profile: Profile = PLAIN,
) -> _core.Chain:
    """A comparator by names: a left and a right element of each type, the steps, the bool value.

    It takes the places of `order_by` behind them, and does not look at these.
    """
    count = 2 * len(types)

    def moved(value: int) -> int:
        return value if value < count else value + 2

    listed = [(name, t, tuple(map(moved, given))) for name, t, given in steps]
    return chain_of([t for t in [*types, "int64"] for _ in "lr"], listed, [moved(output)], profile)


def simple(name: str, type_name: str, left: int = 0, right: int = 1) -> _core.Chain:
    return comparator([type_name], [(name, "bool", (left, right))], 2)


def order_by(program: _core.Chain, operands: Sequence[Words]) -> Words:
    """The order of the elements in each line: their places are sorted along with them."""
    shape = operands[0].shape
    order, found = np.empty(shape, np.int64), [np.empty(shape, x.dtype) for x in operands]
    places = np.broadcast_to(np.arange(shape[-1]), shape)
    _core.sort_lines(program, [], [*operands, places], [*found, order]).run()
    for x, moved in zip(operands, found, strict=True):
        np.testing.assert_array_equal(moved, np.take_along_axis(x, order, axis=-1))
    return order


def signed(x: int) -> int:
    return formats.wrap(x, bits=32, signed=True)


# Each comparator as the core has it and as Python says it, on float32 values or int32 words.
COMPARATORS: dict[str, tuple[str, _core.Chain, Callable[[Any, Any], bool]]] = {
    "less": ("float32", simple("less", "float32"), lambda a, b: a < b),
    "greater": ("float32", simple("greater", "float32"), lambda a, b: a > b),
    "less_equal": ("float32", simple("less_equal", "float32"), lambda a, b: a <= b),
    "not_equal": ("float32", simple("not_equal", "float32"), lambda a, b: a != b),
    "swapped less": ("float32", simple("less", "float32", 1, 0), lambda a, b: b < a),
    "always true": ("float32", simple("equal_total_order", "float32", 0, 0), lambda a, b: True),
    "always false": ("float32", simple("less", "float32", 0, 0), lambda a, b: False),
    "is the left one NaN": (
        "float32",
        comparator(["float32"], [("isnan", "bool", (0,))], 2),
        lambda a, b: math.isnan(a),
    ),
    "integer less": ("int32", simple("less", "int32"), lambda a, b: signed(a) < signed(b)),
    "xor below the right one": (
        "int32",
        comparator(["int32"], [("bitwise_xor", "int32", (0, 1)), ("less", "bool", (2, 1))], 3),
        lambda a, b: signed(a ^ b) < signed(b),
    ),
    "product below the difference": (
        "int32",
        comparator(
            ["int32"],
            [("multiply", "int32", (0, 1)), ("subtract", "int32", (0, 1)), ("less", "bool", (2, 3))],
            4,
        ),
        lambda a, b: signed(signed(a) * signed(b)) < signed(signed(a) - signed(b)),
    ),
}


def sort_words(rng: np.random.Generator, type_name: str, shape: Sequence[int]) -> Words:
    words = hard_words(rng, type_name, math.prod(shape)).reshape(shape)
    free = random_words(rng, type_name, shape, "near")
    return np.where(rng.random(shape) < 0.5, words, free)


def elements(type_name: str, line: Words) -> list[Any]:
    return [float(v) for v in line.view(np.float32)] if type_name == "float32" else line.tolist()


@each_of("name", COMPARATORS)
def test_sort_E10_equals_the_twin(name: str, restored_processor: None) -> None:
    """Any comparator, consistent or not, on every instruction set and by one thread or two."""
    type_name, program, comes_first = COMPARATORS[name]
    rng = np.random.default_rng(100)
    cases = [sort_words(rng, type_name, (n,)) for n in [*LENGTHS, 1000]]
    cases += [sort_words(rng, type_name, s) for s in ((3, 5, 9), (40, 17), (0, 4), (4, 0))]
    expected = []
    for words in cases:
        lines = words.reshape(-1, words.shape[-1]) if words.size else words[:0].reshape(0, 0)
        orders = [merge_order(elements(type_name, line), comes_first) for line in lines]
        expected.append(np.array(orders, np.int64).reshape(words.shape))
    for where in every_processor():
        for words, order in zip(cases, expected, strict=True):
            found = order_by(program, [words])
            np.testing.assert_array_equal(found, order, err_msg=f"{name} {words.shape} {where}")


@each_of("type_name", [t for t in TYPES if t not in ("float64", "float8_e4m3fn")])
@each_of("name", ["less", "less_total_order", "greater_total_order"])
def test_sort_E7_E10_compares_every_type(name: str, type_name: str) -> None:
    rng = np.random.default_rng(101)
    program = simple(name, type_name)
    key: Callable[[int], Any] = lambda w: total_order(type_name, w)  # noqa: E731
    if name == "less":
        key = lambda w: number(type_name, w)  # noqa: E731
    greater = name == "greater_total_order"
    for n in (1, 5, 130):
        words = hard_words(rng, type_name, n)
        keys = [key(w) for w in words.tolist()]
        order = merge_order(keys, lambda a, b: b < a if greater else a < b)
        assert order_by(program, [words]).tolist() == order


def test_sort_E10_several_operands(threads: int, isa: str) -> None:
    """The comparator may look at any of them: the second alone, or the second and then the third."""
    rng = np.random.default_rng(103)
    shape = (6, 70)
    first = random_words(rng, "float16", shape)
    second = random_words(rng, "int32", shape) % 4
    third = random_words(rng, "uint8", shape) % 4
    types = ["float16", "int32", "uint8"]
    by_second = comparator(types, [("less", "bool", (2, 3))], 6)
    steps = [
        ("less", "bool", (2, 3)),
        ("equal", "bool", (2, 3)),
        ("less", "bool", (4, 5)),
        ("bitwise_and", "bool", (7, 8)),
        ("bitwise_or", "bool", (6, 9)),
    ]
    lexicographic = comparator(types, steps, 10)
    one, two = (order_by(p, [first, second, third]) for p in (by_second, lexicographic))
    for row in range(shape[0]):
        pairs = list(zip(second[row].tolist(), third[row].tolist(), strict=True))
        assert one[row].tolist() == sorted(range(70), key=lambda i: pairs[i][0])
        assert two[row].tolist() == sorted(range(70), key=lambda i: pairs[i])


def test_sort_E10_a_bool_operand_may_be_the_answer(isa: str) -> None:
    """A comparator without steps: the left, or the right, element itself."""
    words = np.random.default_rng(104).integers(0, 2, 100, np.uint8)
    for output, comes_first in ((0, lambda a, b: a), (1, lambda a, b: b)):
        order = merge_order([bool(w) for w in words], comes_first)
        assert order_by(comparator(["bool"], [], output), [words]).tolist() == order


def test_sort_every_layout() -> None:
    rng = np.random.default_rng(105)
    less = simple("less_total_order", "bfloat16")
    x = random_words(rng, "bfloat16", (4, 6, 9), "near")
    wide = random_words(rng, "bfloat16", (8, 6, 27), "near")
    for view in (
        x,
        np.asfortranarray(x),
        x.transpose(2, 0, 1),
        x[::-1, :, ::-1],
        wide[::2, 1:5, ::-3],
        np.broadcast_to(x[:1, :1], (3, 2, 9)),
        np.broadcast_to(x[..., :1], (4, 6, 5)),
    ):
        found = order_by(less, [view])
        np.testing.assert_array_equal(found, order_by(less, [view.copy()]))
        keys = np.vectorize(lambda w: total_order("bfloat16", int(w))[1])(view)
        expected = np.argsort(keys, axis=-1, kind="stable")
        np.testing.assert_array_equal(found, expected)


def test_sort_C4_a_flushing_comparator_reads_zeros() -> None:
    words = np.array([0x00000003, 0x80000002, 0x00000001, 0xBF800000], np.uint32)
    program = comparator(["float32"], [("less", "bool", (0, 1))], 2, Profile(subnormals="flush"))
    assert order_by(program, [words]).tolist() == [3, 0, 1, 2]
    assert order_by(simple("less", "float32"), [words]).tolist() == [3, 1, 2, 0]


def test_sort_of_many_slices_D1(restored_processor: None) -> None:
    """More merges than lanes and pieces, the last of them partial."""
    x = random_words(np.random.default_rng(106), "int32", (700, 37)) % 50
    expected = np.argsort(x.view(np.int32), axis=-1, kind="stable")
    less = simple("less", "int32")
    check_everywhere(lambda: order_by(less, [x]), expected, threads=(1, 2))


def test_sort_D1_S2_a_slice_does_not_depend_on_its_batch() -> None:
    """A comparator that would round stochastically is refused, or orders a slice as it does alone."""
    steps = [("convert", "bfloat16", (0,)), ("convert", "bfloat16", (1,)), ("less", "bool", (2, 3))]
    stochastic = Profile(rounding="stochastic")
    words = random_words(np.random.default_rng(112), "float32", (3, 40), "near") & 0xFFFF | 0x3F800000
    try:
        program = comparator(["float32"], steps, 4, stochastic)
        together = order_by(program, [words])
        alone = [order_by(program, [line]) for line in words]
    except ValueError as error:
        assert "stochastic" in str(error)  # noqa: PT017 (either is right)
        return
    np.testing.assert_array_equal(together, alone)


def test_sort_refuses_what_does_not_fit() -> None:
    def f32(*shape: int) -> Words:
        return np.zeros(shape, np.float32)

    less, compares = pair_chain("less", "float32", "bool"), ("less", "bool", (0, 1))
    pair = chain_of(["float32", "float32", "int32", "int32"], [compares], [4])
    for program, operands in (
        (less, []),
        (less, [f32()]),
        (less, [f32(3), f32(3)]),
        (less, [np.zeros(3, np.float64)]),
        (less, [np.zeros(3, np.uint16)]),
        (pair, [f32(3)]),
        (pair, [f32(3), np.zeros(4, np.int32)]),
        (pair, [f32(3), np.zeros((3, 1), np.int32)]),
        (pair, [f32(3), np.zeros(3, np.int64)]),
        (pair_chain("add", "float32"), [f32(3)]),
        (chain_of(["float32"] * 3, [compares], [3]), [f32(3)]),
        (chain_of(["float32", "bfloat16"], [compares], [2]), [f32(3)]),
        (chain_of(["float32"] * 2, [compares], [2, 2]), [f32(3)]),
        (chain_of([], [], []), []),
    ):
        with pytest.raises(ValueError, match=r"operand|comparator|shapes|items|type"):
            _core.sort_lines(program, [], operands, list(map(np.array, operands))).run()


# ---- argsort, top_k, argmax, argmin ------------------------------------------------------------


def check_order_rows(type_name: str, words: Words, label: str) -> None:
    """The four rows along the last axis of a matrix."""
    operand = (type_name, words)
    order = evaluate("argsort", operand, axis=1)
    highest, lowest = (evaluate(name, operand, axis=1) for name in ("argmax", "argmin"))
    k = min(words.shape[1], 6)
    top = evaluate("top_k", operand, k=k)
    for i, line in enumerate(words.tolist()):
        assert order[i].tolist() == sorted_indices(type_name, line), label
        assert highest[i] == extreme_index(type_name, line, largest=True), label
        assert lowest[i] == extreme_index(type_name, line, largest=False), label
        assert top[i].tolist() == largest_indices(type_name, line, k), label


@each_of("type_name", TYPES)
def test_order_E10_every_type(type_name: str) -> None:
    """NaN of both signs and several payloads, signed zeros, infinities, ties."""
    rng = np.random.default_rng(107)
    for n in (1, 2, 5, 40):
        for _ in range(6):
            words = np.stack([hard_words(rng, type_name, n) for _ in range(3)])
            check_order_rows(type_name, words, f"{type_name} {n}")


@each_of("type_name", ["float32", "bfloat16", "int8", "int32", "uint64"])
def test_top_k_E10_of_long_lines(type_name: str) -> None:
    """Many ties on both sides of where what was kept is cut, side by side in memory and apart."""
    rng = np.random.default_rng(109)
    few = random_words(rng, type_name, 700)
    for n, k in ((6000, 100), (6000, 1500), (700, 64)):
        words = few[rng.integers(0, len(few), n)]
        keys = [total_order(type_name, w) for w in words.tolist()]
        expected = sorted(range(n), key=keys.__getitem__, reverse=True)[:k]
        for line in (words, np.repeat(words, 3)[::3], np.flip(np.flip(words).copy())):
            assert evaluate("top_k", (type_name, line), k=k).tolist() == expected, (n, k)


@pytest.mark.parametrize(
    "type_name", ["float8_e5m2", "float8_e4m3", "float8_e3m4", "float8_e4m3fn", "int8", "uint8"]
)
def test_order_E10_every_byte(type_name: str) -> None:
    words = np.random.default_rng(108).permutation(np.repeat(np.arange(256, dtype=np.uint8), 2))
    order = evaluate("argsort", (type_name, words), axis=0)
    assert order.tolist() == sorted_indices(type_name, words.tolist())
    top = evaluate("top_k", (type_name, words), k=512)
    keys = [total_order(type_name, w) for w in words.tolist()]
    assert sorted(top.tolist()) == list(range(512))
    assert all(
        keys[a] > keys[b] or (keys[a] == keys[b] and a < b) for a, b in itertools.pairwise(top.tolist())
    )


def test_order_E10_of_bools_that_are_any_byte_but_zero() -> None:
    words = np.random.default_rng(109).choice(np.array([0, 1, 2, 128, 255], np.uint8), (5, 300))
    plain = (words != 0).astype(np.uint8)
    for name in ("argsort", "argmax", "argmin"):
        ours, expected = (evaluate(name, ("bool", w), axis=1) for w in (words, plain))
        assert np.array_equal(ours, expected), name
    ours, expected = (evaluate("top_k", ("bool", w), k=40) for w in (words, plain))
    assert np.array_equal(ours, expected)


@pytest.mark.parametrize("type_name", ["float32", "bfloat16", "float8_e4m3", "uint16", "int64"])
def test_order_E10_axes_and_layouts(type_name: str) -> None:
    rng = np.random.default_rng(109)
    x = hard_words(rng, type_name, 4 * 5 * 6).reshape(4, 5, 6)
    for view in (
        x,
        np.asfortranarray(x),
        x.transpose(2, 0, 1),
        x[::-1, :, ::-2],
        np.broadcast_to(x[:1], (3, 5, 6)),
    ):
        for axis in range(3):
            moved = np.moveaxis(view, axis, -1)
            order = np.moveaxis(evaluate("argsort", (type_name, view), axis=axis), axis, -1)
            highest = evaluate("argmax", (type_name, view), axis=axis)
            lowest = evaluate("argmin", (type_name, view), axis=axis)
            for i in np.ndindex(moved.shape[:-1]):
                line = moved[i].tolist()
                assert order[i].tolist() == sorted_indices(type_name, line)
                assert highest[i] == extreme_index(type_name, line, largest=True)
                assert lowest[i] == extreme_index(type_name, line, largest=False)
        top = evaluate("top_k", (type_name, view), k=3)
        for i in np.ndindex(view.shape[:-1]):
            assert top[i].tolist() == largest_indices(type_name, view[i].tolist(), 3)


def test_order_E10_is_the_sort_of_its_comparator() -> None:
    """Argsort of numbers is sort by less, top-k sort by greater_total_order."""
    rng = np.random.default_rng(110)
    for type_name in (*FLOATS, *INTEGERS):
        x = random_words(rng, type_name, (5, 90), "near")
        order = evaluate("argsort", (type_name, x), axis=1)
        np.testing.assert_array_equal(order, order_by(simple("less", type_name), [x]))
        special = random_words(rng, type_name, (5, 90), "special")
        top = evaluate("top_k", (type_name, special), k=90)
        merged = order_by(simple("greater_total_order", type_name), [special])
        np.testing.assert_array_equal(top, merged)


@pytest.mark.parametrize("type_name", ["int64", "uint64"])
def test_order_E10_of_integers_beyond_doubles(type_name: str) -> None:
    big = 2**62
    line = np.array([big + 1, big, big + 2, 0, 2**64 - 1, 2**63, big + 1], np.uint64)
    check_order_rows(type_name, line[None], type_name)


def test_order_refuses_what_does_not_fit() -> None:
    x = ("float32", np.zeros((2, 3), np.uint32))
    for name in ("argsort", "argmax", "argmin"):
        for axis in (2, -1):
            with pytest.raises(InvalidArgument, match="axis"):
                evaluate(name, x, axis=axis)
    for name in ("argmax", "argmin"):
        with pytest.raises(InvalidArgument, match="no element"):
            evaluate(name, ("float32", np.zeros((2, 0), np.uint32)), axis=1)
        assert evaluate(name, ("float32", np.zeros((0, 2), np.uint32)), axis=1).shape == (0,)
    for k in (-1, 4):
        with pytest.raises(InvalidArgument, match="largest"):
            evaluate("top_k", x, k=k)
    with pytest.raises(InvalidArgument, match="largest"):
        evaluate("top_k", ("float32", np.zeros((), np.uint32)), k=0)
    assert evaluate("top_k", x, k=0).shape == (2, 0)
    assert evaluate("argsort", ("float32", np.zeros((2, 0), np.uint32)), axis=1).shape == (2, 0)
