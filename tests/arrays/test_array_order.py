"""Sorting, extremes and windows of arrays: shapes, types, errors; NumPy where its rule is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import numpy.typing as npt
import pytest
from tests.support.parameters import each_of
from tests.support.words import of_words, words

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import InvalidArgument, UnsupportedOperator

FLOATS = [t for t in DTYPES.values() if t.exponent_bits and t.device]
INTEGERS = [t for t in DTYPES.values() if t.kind in ("signed", "unsigned")]
REAL = [*FLOATS, *INTEGERS, DTYPES["bool"]]
NUMPYS = ["float16", "float32", "float64", *(t.name for t in INTEGERS), "bool"]


def ties(dtype: str, shape: tuple[int, ...], seed: int = 0) -> npt.NDArray[Any]:
    """Few values, both zeros, and NaN among floats."""
    rng = numpy.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith("float"):
        values = [-numpy.inf, -2, -0.0, 0.0, 1, 1, 2.5, numpy.inf, numpy.nan]
        return rng.choice(values, shape).astype(dtype)
    info = numpy.iinfo(dtype)
    return rng.choice(numpy.array([info.min, 0, 1, 1, 2, info.max], dtype), shape)


# ---- sort and argsort ------------------------------------------------------------------------------


@each_of("dtype", NUMPYS)
@each_of("axis", [0, 1, -1])
def test_E10_descending_keeps_equal_elements_in_order(dtype: str, axis: int) -> None:
    """NaN first; the exact mirror would turn ties around."""
    x = ties(dtype, (30, 20), seed=1)
    order = np.argsort(np.asarray(x), axis=axis, descending=True)
    lines, orders = (numpy.moveaxis(a, axis, -1) for a in (x, numpy.asarray(order)))
    for line, found in zip(lines.tolist(), orders.tolist(), strict=True):
        expected = sorted(range(len(line)), key=lambda i: (line[i] == line[i], -line[i]))
        assert found == expected
    values = np.sort(np.asarray(x), axis=axis, descending=True)
    picked = numpy.take_along_axis(x, numpy.asarray(order), axis)
    assert numpy.asarray(values).tobytes() == picked.tobytes()


# ---- top_k -----------------------------------------------------------------------------------------


def test_E7_E10_top_k_is_in_total_order() -> None:
    """+NaN above +Inf, +0 above -0, -NaN last of all; equal keys by lower index."""
    bits = [0x8000, 0x7FC0, 0xFFC0, 0x0000, 0x7F80, 0x8000, 0x0000, 0xFF80, 0x7FC1]
    x = of_words(bits, np.bfloat16)
    values, order = np.top_k(x, 9)
    assert (values.dtype, order.dtype) == (np.bfloat16, np.int64)
    assert order.tolist() == [8, 1, 4, 3, 6, 0, 5, 7, 2]
    assert words(values).tolist() == [bits[i] for i in order.tolist()]


def test_top_k_of_no_elements() -> None:
    for shape, k in (((2, 0), 0), ((0, 5), 3)):
        values, order = np.top_k(np.ones(shape), k)
        assert values.shape == order.shape == (*shape[:-1], k)


# ---- windows ---------------------------------------------------------------------------------------

NUMPY_REDUCERS: dict[str, Callable[..., Any]] = {
    "add": numpy.sum,
    "multiply": numpy.prod,
    "maximum": numpy.max,
    "minimum": numpy.min,
}


@each_of("reducer", NUMPY_REDUCERS)
@each_of("dtype", ["float32", "bfloat16", "int32", "uint8"])
def test_R4_windows_are_numpys_sliding_windows(reducer: str, dtype: str) -> None:
    """Small whole numbers, whose sums and products are exact."""
    x = numpy.random.default_rng(6).integers(1, 4, (6, 9)).astype(numpy.int64)
    window = [np.WindowDimension(2, stride=2), np.WindowDimension(3)]
    found = np.reduce_window(np.asarray(x, dtype=dtype), reducer, window)
    views = numpy.lib.stride_tricks.sliding_window_view(x, (2, 3))[::2]
    expected = NUMPY_REDUCERS[reducer](views, axis=(2, 3))
    if dtype == "uint8":
        expected = expected % 256
    elif dtype == "bfloat16":
        expected = numpy.asarray(np.asarray(expected, dtype=dtype)).astype(numpy.int64)
    assert found.dtype.name == dtype
    assert numpy.asarray(found).astype(numpy.int64).tolist() == expected.tolist()


def test_R4_window_padding_is_no_element_and_the_initial_value_counts_once() -> None:
    x = np.asarray([-1.0, -2.0, -3.0])
    padded = [np.WindowDimension(3, padding=(1, 1))]
    assert np.reduce_window(x, "maximum", padded).tolist() == [-1, -1, -2]
    assert np.reduce_window(x, "add", padded).tolist() == [-3, -6, -5]
    assert np.reduce_window(x, "add", padded, initial=10).tolist() == [7, 4, 5]
    assert np.reduce_window(x, "multiply", padded, initial=np.asarray(2.0)).tolist() == [4, -12, 12]
    outside = [np.WindowDimension(1, padding=(1, -3))]
    for reducer, empty in (
        ("add", 0),
        ("multiply", 1),
        ("maximum", -numpy.inf),
        ("minimum", numpy.inf),
    ):
        assert np.reduce_window(x, reducer, outside).tolist() == [empty]


def test_window_of_bool_is_or_and_and() -> None:
    x = np.asarray([True, False, False, True])
    window = [np.WindowDimension(2)]
    for reducer, expected in (
        ("add", [True, False, True]),
        ("maximum", [True, False, True]),
        ("multiply", [False] * 3),
        ("minimum", [False] * 3),
    ):
        found = np.reduce_window(x, reducer, window)
        assert found.dtype.name == "bool"
        assert found.tolist() == expected


def test_reduce_window_H1_of_float64_is_on_the_host() -> None:
    x = np.array([1.0, 2**-40, 4.0], dtype="float64")
    found = np.reduce_window(x, "add", [np.WindowDimension(2)])
    assert found.dtype is np.float64
    assert found.tolist() == [1 + 2**-40, 4 + 2**-40]


def test_window_larger_than_the_array_has_no_output() -> None:
    assert np.reduce_window(np.ones(3), "add", [np.WindowDimension(4)]).shape == (0,)
    assert np.reduce_window(np.ones((0, 2)), "add", [np.WindowDimension(1)] * 2).shape == (0, 2)


# ---- the standard's and NumPy's arguments ------------------------------------------------------------


@each_of("name", ["argmax", "argmin"])
@each_of("dtype", NUMPYS)
def test_nan_arguments_pass_over_nan(name: str, dtype: str) -> None:
    x = ties(dtype, (6, 9), seed=2)
    x[:, 0] = x.dtype.type(1)  # an element that is a number in every row and column
    x[2] = x.dtype.type(0)
    numbers = numpy.where(
        numpy.isnan(x), -numpy.inf if name == "argmax" else numpy.inf, x.astype(float)
    )
    for axis in (None, 0, 1, -1):
        found = getattr(np, f"nan{name}")(np.asarray(x), axis)
        assert found.dtype.name == "int64"
        assert found.tolist() == getattr(numpy, name)(numbers, axis).tolist()
    kept = getattr(np, f"nan{name}")(np.asarray(x), axis=1, keepdims=True)
    assert kept.shape == (6, 1)


def test_nan_arguments_find_the_infinity_among_nan() -> None:
    """NumPy's, which puts infinities in the place of NaN, give 0 here."""
    for dtype in (*FLOATS, DTYPES["float64"]):
        for name, sign in (("nanargmax", -1), ("nanargmin", 1)):
            x = np.asarray([numpy.nan, sign * numpy.inf], dtype=dtype)
            assert getattr(np, name)(x).item() == 1
            with pytest.raises(InvalidArgument, match="nothing but NaN"):
                getattr(np, name)(x[:1])
    assert np.nanargmax(np.asarray([1 + 1j, numpy.nan, 2j])).item() == 0


@pytest.mark.parametrize("dtype", [*FLOATS, DTYPES["float64"]], ids=lambda t: t.name)
def test_argmax_writes_into_out(dtype: DType) -> None:
    x, out = np.asarray([[1.0, 2.0], [4.0, 3.0]], dtype=dtype), np.zeros(2, dtype="int64")
    assert np.argmax(x, 1, out) is out
    assert out.tolist() == [1, 0]
    assert np.nanargmin(x, 1, out).tolist() == [0, 1]


# ---- searchsorted, lexsort, partition ----------------------------------------------------------------


@each_of("side", ["left", "right"])
@each_of("dtype", [*REAL, DTYPES["float64"]], ids=lambda t: t.name)
def test_E10_searchsorted_equals_numpys_of_exact_values(dtype: DType, side: Any) -> None:
    """In float64, which holds every value that is drawn; NaN is last and -0 equals +0 there too."""
    known = ties("float64" if dtype.kind == "float" else dtype.name, (12,), seed=1)
    sought = ties("float64" if dtype.kind == "float" else dtype.name, (3, 7), seed=2)
    x, v = np.sort(np.asarray(known, dtype=dtype)), np.asarray(sought, dtype=dtype)
    exact = (numpy.asarray(a).astype(numpy.float64) for a in (x, v))
    wide = dtype.kind in ("signed", "unsigned")
    lists = (x.tolist(), v.tolist()) if wide else tuple(exact)
    expected = numpy.searchsorted(
        *(numpy.asarray(a, object if wide else None) for a in lists), side=side
    )
    found = np.searchsorted(x, v, side=side)
    assert (found.dtype.name, found.shape) == ("int64", (3, 7))
    assert found.tolist() == expected.tolist()
    unsorted = np.asarray(known, dtype=dtype)
    again = np.searchsorted(unsorted, v, side, np.argsort(unsorted))
    assert again.tolist() == expected.tolist()


def test_searchsorted_takes_numbers_and_types_that_differ() -> None:
    x = np.asarray([1, 3, 5])
    assert np.searchsorted(x, 3).item() == 1
    assert np.searchsorted(x, 3.5).shape == ()
    assert np.searchsorted(x, np.asarray([4.5, 0], dtype="bfloat16")).tolist() == [2, 0]
    assert np.searchsorted(np.zeros(0), [1.0, 2.0]).tolist() == [0, 0]
    assert np.searchsorted(x, np.zeros((2, 0), dtype="int64")).shape == (2, 0)
    assert np.searchsorted(np.asarray([1j, 1, 2 + 1j]), 1 + 0j).item() == 1


def test_E10_lexsort_orders_by_the_last_key_first() -> None:
    rows = ties("float32", (3, 40), seed=8)
    for axis in (-1, 0):
        keys = [np.asarray(r.reshape(40, 1) if axis == 0 else r) for r in rows]
        order = np.lexsort(keys, axis=axis)
        numpy.testing.assert_array_equal(
            numpy.asarray(order).ravel(), numpy.lexsort(numpy.asarray(rows))
        )
    mixed = [np.asarray(rows[0], dtype="bfloat16"), np.asarray([1, 0] * 20, dtype="int8")]
    expected = numpy.lexsort([numpy.asarray(mixed[0]).astype("float32"), [1, 0] * 20])
    assert np.lexsort(mixed).tolist() == expected.tolist()


@each_of("dtype", REAL, ids=lambda t: t.name)
def test_partitions_have_the_kth_in_its_place(dtype: DType) -> None:
    numbers = numpy.random.default_rng(0).integers(0, 2 if dtype.kind == "bool" else 12, (4, 9))
    x = np.asarray(numbers, dtype=dtype)
    values = numpy.asarray(x).astype(numpy.float64)
    found = numpy.asarray(np.partition(x, 3, axis=1)).astype(numpy.float64)
    order = numpy.asarray(np.argpartition(x, [3, -1], axis=1))
    for part in (found, numpy.take_along_axis(values, order, 1)):
        numpy.testing.assert_array_equal(part[:, 3], numpy.partition(values, 3, axis=1)[:, 3])
        assert (part[:, :3] <= part[:, 3:4]).all()
        assert (part[:, 4:] >= part[:, 3:4]).all()
    assert np.partition(x[:, :0], 3).shape == np.argpartition(x[:, :0], -1).shape == (4, 0)


# ---- errors ------------------------------------------------------------------------------------------

MATRIX, LINE = np.ones((2, 3)), np.asarray([1.0, 2.0, 3.0])
ONE, PAIR = [np.WindowDimension(1)], [np.WindowDimension(1), np.WindowDimension(2)]


def windowed(*window: Any, reducer: str = "add", x: np.Array = LINE, **options: Any) -> np.Array:
    return np.reduce_window(x, reducer, list(window), **options)


@each_of(
    ("call", "said"),
    [
        *((lambda a=a: np.sort(MATRIX, axis=a), f"axis {a}") for a in (2, -3, 7)),
        *((lambda a=a: np.argsort(MATRIX, axis=a), f"axis {a}") for a in (2, -3, 7)),
        (lambda: np.sort(np.asarray(1.0), axis=-1), "axis"),
        (lambda: np.argsort(np.asarray(1.0), axis=1), "axis"),
        *((lambda k=k: np.top_k(LINE, k), f"no {k} largest") for k in (4, -1)),
        (lambda: np.top_k(np.ones((2, 0)), 1), "no 1 largest"),
        *((lambda k=k: np.top_k(np.ones(()), k), f"no {k} largest") for k in (0, 1)),
        *((lambda k=k: np.top_k(LINE, k), None) for k in (1.5, True)),
        (lambda: np.argmax(LINE, (0,)), None),
        (lambda: windowed(*PAIR, reducer="subtract", x=MATRIX), "subtract is no reducer"),
        (lambda: windowed(*ONE, x=MATRIX), "dimensions"),
        (lambda: windowed(np.WindowDimension(0)), "are from 1 to"),
        (lambda: windowed(*PAIR, x=MATRIX, initial=[1.0, 2.0]), "initial"),
        (lambda: windowed(np.WindowDimension(2.5)), None),
        (lambda: windowed(np.WindowDimension(1, 2**63)), None),
        (lambda: windowed(np.WindowDimension(1, 1, (2**62, 0))), None),
        (lambda: windowed((2, 1)), None),
        (lambda: np.searchsorted(MATRIX, 1), "one axis"),
        (lambda: np.searchsorted(LINE, 1, side="middle"), "side"),
        (lambda: np.searchsorted(LINE, 1, sorter=[0, 1]), "index for each"),
        (lambda: np.searchsorted(LINE, 1, sorter=[0.0, 1.0, 2.0]), "index for each"),
        *((lambda keys=keys: np.lexsort(keys), "one shape") for keys in ([], [[1, 2], [1]])),
        *((lambda k=k: np.partition(LINE, k), "no place") for k in (3, -4, 1.0)),
    ],
)
def test_wrong_arguments_of_orders_and_windows(call: Callable[[], Any], said: str | None) -> None:
    with pytest.raises(InvalidArgument, match=said):
        call()


def test_reducers_and_fields_that_there_are_not() -> None:
    with pytest.raises(UnsupportedOperator, match="maximun"):
        windowed(*ONE, reducer="maximun")
    for function in (np.sort, np.argsort):
        with pytest.raises(TypeError, match="fields"):
            function(LINE, order="name")
