"""Rules R2 and R3: reductions against the twin, on every instruction set."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import neuronsim as ns
from neuronsim import _core, dtypes
from neuronsim.profiles import Profile
from neuronsim.reference import sums
from neuronsim.reference.elementwise import BOOL, INTEGER
from neuronsim.reference.formats import wrap
from tests.support.draws import random_words
from tests.support.evaluation import core_reduce, evaluate
from tests.support.processors import every_processor
from tests.support.words import FLOATS, REDUCERS

Words = npt.NDArray[Any]


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


@pytest.mark.parametrize("length", [1, 511, 512, 513, 1023, 1024, 1025, 1600])
@pytest.mark.parametrize("type_name", ["float32", "bfloat16", "float8_e4m3"])
def test_reduce_R2_around_the_tile(length: int, type_name: str, isa: str) -> None:
    x, sums_of_rows = about_the_tile(type_name, length)
    zero = np.zeros((), x.dtype)
    for setting, expected in zip(("on", "off"), sums_of_rows, strict=True):
        found = evaluate(
            "reduce", (type_name, x), (type_name, zero), dimensions=(1,), reducer="add",
            profile=Profile(mixed_precision_accumulation=setting),
        )  # fmt: skip
        np.testing.assert_array_equal(found, expected)


def test_reduce_R2_several_axes_are_walked_last_fastest() -> None:
    # 40 x 50 elements in one output: tiles of 512 run across the rows.
    x = random_words(np.random.default_rng(7), "float32", (40, 3, 50), "near")
    zero = np.zeros((), np.uint32)
    for axes in ((0, 2), (2, 0)):
        found = evaluate("reduce", ("float32", x), ("float32", zero), dimensions=axes, reducer="add")
        np.testing.assert_array_equal(found, twin_reduce("add", "float32", x, (0, 2), 0))


@pytest.mark.parametrize("reducer", REDUCERS)
def test_reduce_R2_of_nothing_is_the_initial_value(reducer: str) -> None:
    empty = np.zeros((4, 0), np.uint16)
    initial = np.array(0x8000, np.uint16)  # -0
    found = evaluate(
        "reduce", ("float16", empty), ("float16", initial), dimensions=(1,), reducer=reducer
    )
    np.testing.assert_array_equal(found, np.full(4, 0x8000, np.uint16))


def test_sum_R2_of_minus_zero_is_plus_zero() -> None:
    # Array functions start from the identity: -0 + +0 is +0.
    assert ns.sum(ns.asarray([-0.0])).tobytes() == b"\0\0\0\0"


def test_reduce_E7_maximum_of_nan_and_zeros() -> None:
    x = np.array([[0x80000000, 0, 0x80000000], [0, 0x7FC12345, 0x7F800000]], np.uint32)
    low = np.array(0xFF800000, np.uint32)
    found = evaluate("reduce", ("float32", x), ("float32", low), dimensions=(1,), reducer="maximum")
    assert [hex(v) for v in found] == ["0x0", "0x7fc00000"]


@pytest.mark.parametrize("length", [17, 512, 1027])
@pytest.mark.parametrize(
    "type_name", ["float32", "bfloat16", "float8_e5m2", "int32", "int8", "uint8", "int64", "bool"]
)
def test_reduce_R2_that_is_free_of_order(restored_processor: None, type_name: str, length: int) -> None:
    """Maxima, minima and sums of integers of one long sequence, a few, and apart in memory."""
    is_float, rng = type_name in FLOATS, np.random.default_rng(length)
    bits = ["bitwise_and", "bitwise_or", "bitwise_xor"]
    names = ["maximum", "minimum"] if is_float else bits if type_name == "bool" else REDUCERS
    for mode in ("any", "special") if is_float else ("any",):
        x = random_words(rng, type_name, (2, length, 2), mode)
        for view in (x[:1, :, 0], np.ascontiguousarray(x[:, :, 1]), x[:, :, 0]):
            for name in names:
                expected = twin_reduce(name, type_name, view, (1,), int(x[0, 0, 0]))
                given = (type_name, view), (type_name, x[0, 0, 0, ...])
                for where in every_processor((1,)):
                    found = evaluate("reduce", *given, dimensions=(1,), reducer=name)
                    np.testing.assert_array_equal(found, expected, (where, name, mode))


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
    names = [name for name, _, _ in _core.OPS]
    zero, out = np.zeros((), np.float32), np.zeros((), np.float32)
    for name in ("exp", "subtract", "less", "select"):
        with pytest.raises(ValueError, match="not a reduction"):
            core_reduce(names.index(name), 0, np.zeros(3, np.float32), 0, zero, out)
