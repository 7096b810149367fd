"""Rules R2 and R3: reductions against the twin, on every instruction set."""

from __future__ import annotations

import math
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import neuronsim as ns
from neuronsim import dtypes
from neuronsim.profiles import Profile
from neuronsim.reference import sums
from neuronsim.reference.elementwise import BOOL, INTEGER
from neuronsim.reference.formats import wrap
from tests.support.draws import random_words
from tests.support.evaluation import CODES, core_reduce, evaluate_fold
from tests.support.parameters import each_of
from tests.support.processors import check_everywhere, every_processor
from tests.support.words import BITWISE, FLOATS, REDUCERS, Words

reduce = partial(evaluate_fold, "reduce")


def twin_reduce(
    reducer: str, type_name: str, words: Words, axes: tuple[int, ...], initial: int, **options: Any
) -> Words:
    """The reduction of words over ascending axes, last fastest."""
    t = dtypes.DTYPES[type_name]
    kept = [d for d in range(words.ndim) if d not in axes]
    moved = words.transpose([*kept, *sorted(axes)])
    depth = math.prod(moved.shape[len(kept) :])
    rows = moved.reshape([*moved.shape[: len(kept)], depth])
    out = np.empty(rows.shape[:-1], words.dtype)
    for i in np.ndindex(out.shape):
        elements = rows[i].tolist()
        if t.kind == "float":
            out[i] = sums.reduce_float(reducer, type_name, elements, initial, **options)
        else:
            out[i] = _twin_integer(reducer, t, elements, initial)
    return out


def _twin_integer(reducer: str, t: dtypes.DType, elements: list[int], initial: int) -> int:
    if t.kind == "bool":
        return sums.reduce_integer(BOOL[reducer], elements, initial)
    signed = t.kind == "signed"
    values = [wrap(v, bits=t.bits, signed=signed) for v in [*elements, initial]]
    total = sums.reduce_integer(INTEGER[reducer], values[:-1], values[-1])
    return total & ((1 << t.bits) - 1)


@cache
def about_the_tile(type_name: str, length: int) -> tuple[Words, list[Words]]:
    """Rows to add up, and the twin's sums for each value of mixed_precision_accumulation."""
    x = random_words(np.random.default_rng(length), type_name, (3, length), "near")
    return x, [
        twin_reduce("add", type_name, x, (1,), 0, round_tiles=rounds)
        for rounds in (False, type_name != "float32")
    ]


@each_of("length", [1, 511, 512, 513, 1023, 1024, 1025, 1600])
@each_of("type_name", ["float32", "bfloat16", "float16", "float8_e4m3"])
def test_reduce_R2_around_the_tile(length: int, type_name: str, isa: str) -> None:
    x, sums_of_rows = about_the_tile(type_name, length)
    for setting, expected in zip(("on", "off"), sums_of_rows, strict=True):
        profile = Profile(mixed_precision_accumulation=setting)
        found = reduce(type_name, x, dimensions=(1,), profile=profile)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["near", "special"])
@pytest.mark.parametrize("reducer", ["add", "maximum"])
@pytest.mark.parametrize("type_name", ["float32", "bfloat16", "float16"])
def test_reduce_R2_of_rows_side_by_side(type_name: str, reducer: str, kind: str, isa: str) -> None:
    """So many that their elements are turned in registers, and one that is left over."""
    x = random_words(np.random.default_rng(34), type_name, (33, 70), kind)
    start = int(x[0, 0])
    found = reduce(type_name, x, start, dimensions=(1,), reducer=reducer)
    expected = [reduce(type_name, row, start, dimensions=(0,), reducer=reducer) for row in x]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("reducer", REDUCERS)
def test_reduce_R2_of_nothing_is_the_initial_value(reducer: str) -> None:
    empty = np.zeros((4, 0), np.uint16)
    found = reduce("float16", empty, 0x8000, dimensions=(1,), reducer=reducer)  # -0
    np.testing.assert_array_equal(found, np.full(4, 0x8000, np.uint16))


def test_sum_R2_of_minus_zero_is_plus_zero() -> None:
    # Array functions start from the identity: -0 + +0 is +0.
    assert ns.sum(ns.asarray([-0.0])).tobytes() == b"\0\0\0\0"


def test_reduce_E7_maximum_of_nan_and_zeros() -> None:
    x = np.array([[0x80000000, 0, 0x80000000], [0, 0x7FC12345, 0x7F800000]], np.uint32)
    found = reduce("float32", x, 0xFF800000, dimensions=(1,), reducer="maximum")
    assert [hex(v) for v in found] == ["0x0", "0x7fc00000"]


@pytest.mark.parametrize("reducer", ["maximum", "minimum"])
@pytest.mark.parametrize("type_name", ["float32", "bfloat16", "float16"])
def test_reduce_E7_sees_the_one_that_differs(type_name: str, reducer: str, isa: str) -> None:
    """A NaN, a zero of the other sign, an infinity or another number at each place of a row."""
    bits = dtypes.DTYPES[type_name].bits
    sign, one = (
        1 << (bits - 1),
        int(np.ones(1, dtypes.DTYPES[type_name].storage).view(f"u{bits // 8}")[0]),
    )
    infinity = {"float32": 0x7F800000, "bfloat16": 0x7F80, "float16": 0x7C00}[type_name]
    nan = infinity | 1 << (bits - 9)
    for usual, other in (
        (one, nan),
        (sign, 0),
        (0, sign),
        (infinity, infinity | sign),
        (one | sign, one),
    ):
        for length, several in ((37, 37), (37, 5), (17, 15), (32, 16), (33, 17), (513, 33)):
            x = np.full((several, length), usual, f"u{bits // 8}")
            for row in range(several):
                x[row, row * length // several] = other
            found = reduce(type_name, x, usual, dimensions=(1,), reducer=reducer)
            expected = twin_reduce(reducer, type_name, x, (1,), usual)
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("length", [17, 512, 1027])
@pytest.mark.parametrize(
    "type_name", ["float32", "bfloat16", "float8_e5m2", "int32", "int8", "uint8", "int64", "bool"]
)
def test_reduce_R2_that_is_free_of_order(restored_processor: None, type_name: str, length: int) -> None:
    """Maxima, minima and sums of integers of one long sequence, a few, and apart in memory."""
    is_float, rng = type_name in FLOATS, np.random.default_rng(length)
    names = ["maximum", "minimum"] if is_float else BITWISE if type_name == "bool" else REDUCERS
    for mode in ("any", "special") if is_float else ("any",):
        x = random_words(rng, type_name, (2, length, 2), mode)
        for view in (x[:1, :, 0], np.ascontiguousarray(x[:, :, 1]), x[:, :, 0]):
            for name in names:
                expected = twin_reduce(name, type_name, view, (1,), int(x[0, 0, 0]))
                start = x[0, 0, 0]
                check_everywhere(
                    partial(reduce, type_name, view, start, dimensions=(1,), reducer=name), expected
                )


def test_reduce_large_arrays_agree_on_every_path(restored_processor: None) -> None:
    """Rows, columns and all of a large array: the same bits on every path, the twin's on samples."""
    x = random_words(np.random.default_rng(8), "float32", (700, 900), "near")
    array = ns.asarray(x.view(np.float32))
    zero = [sums.reduce_float("add", "float32", x[r].tolist(), 0) for r in (0, 399, 699)]
    seen = set()
    for _ in every_processor():
        rows, columns, total = (ns.sum(array, axis).tobytes() for axis in (1, 0, None))
        seen.add((rows, columns, total))
        words = np.frombuffer(rows, np.uint32)
        assert [int(words[r]) for r in (0, 399, 699)] == zero
        column = np.frombuffer(columns, np.uint32)[17]
        assert int(column) == sums.reduce_float("add", "float32", x[:, 17].tolist(), 0)
    assert len(seen) == 1


def test_reduce_refuses_what_is_no_reducer() -> None:
    zero, out = np.zeros((), np.float32), np.zeros((), np.float32)
    for name in ("exp", "subtract", "less", "select"):
        with pytest.raises(ValueError, match="not a reduction"):
            core_reduce(CODES[name], 0, np.zeros(3, np.float32), 0, zero, out)
