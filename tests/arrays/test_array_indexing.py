"""Indices and assignment: NumPy's on the storage bits; what is written is rounded once (rules C)."""

from __future__ import annotations

import math
import operator
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy
import pytest
from tests.support.operators import IN_PLACE, OPERATORS
from tests.support.parameters import each_of, some

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import InvalidArgument, InvalidIndex, UnsupportedType
from neuronsim.ops import Bits
from neuronsim.reference import formats

pytestmark = pytest.mark.isa_independent  # bits are moved; conversions have tests of their own

ALL = list(DTYPES.values())
FLOATS = [t for t in ALL if t.exponent_bits]
INTEGERS = [t for t in ALL if t.kind in ("signed", "unsigned")]
SHAPE = (3, 4, 5)


def patterns(dtype: DType, shape: tuple[int, ...] = SHAPE) -> np.Array:
    """An array whose elements all differ in their bits, as far as the type has so many values."""
    count = math.prod(shape)
    if dtype.kind == "bool":
        data = numpy.arange(count) % 3 == 0
    elif dtype is np.tfloat32:
        data = (numpy.arange(count, dtype="u4") << 13).view("f4")
    elif dtype.storage.kind == "u":
        data = numpy.arange(count, dtype=dtype.storage)
    else:
        data = numpy.arange(count).astype(dtype.storage) + 1
    return np.Array(Bits(data.reshape(shape), dtype))


def raw(x: Any) -> tuple[tuple[int, ...], bytes]:
    data = x.bits.data if isinstance(x, np.Array) else numpy.asarray(x)
    return data.shape, data.tobytes()


KEYS: list[Any] = [
    *(1, -1, (0, 1, 2), slice(None), slice(None, None, -2), slice(5, 1), ..., None, ()),
    *((..., 1), (1, ...), (None, 1, None), (slice(None), None, 2), (..., None)),
    *([2, 0, 2], ([0, 1], [1, 2]), (slice(None), [3, 0]), ([0, 1], slice(1, 3), [1, 2])),
    *([], [[0, 1], [2, 0]], [True, False, True], True, False, (1, [0, 3], ...)),
    *(0, (1, 2), (0, 0, 0), (-3, -4, -5), (1, ..., 2), (1, True), [[1], [2]], [-1, 0, -1]),
    *(numpy.int64(2), numpy.array(1), numpy.array([-1, 0], "i1"), numpy.ones(SHAPE, bool)),
    *(numpy.arange(12).reshape(3, 4) % 2 == 0, (numpy.array([True, False, True]), 1)),
    *((numpy.ones((3, 4), bool), [0] * 12), (slice(0), 1), range(2)),
]


@each_of("key", KEYS, ids=repr)
def test_every_index_is_numpys(key: Any) -> None:
    for dtype in ALL:
        x = patterns(dtype)
        found, expected = x[key], x.bits.data[key]
        assert type(found) is np.Array
        assert found.dtype is dtype
        assert raw(found) == raw(expected)
        assert numpy.may_share_memory(found.bits.data, x.bits.data) == (
            isinstance(expected, numpy.ndarray) and numpy.may_share_memory(expected, x.bits.data)
        )


@each_of("key", KEYS, ids=repr)
def test_assignment_to_every_index_is_numpys(key: Any) -> None:
    for dtype in (np.bfloat16, np.int8, np.bool, np.complex64):
        x, value = patterns(dtype), patterns(dtype)[0, 0, 3]
        expected = x.bits.data.copy()
        expected[key] = value.bits.data
        x[key] = value
        assert raw(x) == raw(expected)


def as_arrays(key: Any) -> Any:
    """The index with Arrays for its ndarrays and lists."""
    if isinstance(key, tuple):
        return tuple(map(as_arrays, key))
    return np.asarray(key) if isinstance(key, list | numpy.ndarray) and len(numpy.shape(key)) else key


@each_of("key", [k for k in KEYS if repr(k) != "[]"], ids=repr)
def test_arrays_are_indices_like_ndarrays(key: Any) -> None:
    x = patterns(np.float16)
    assert raw(x[as_arrays(key)]) == raw(x[key])


def test_an_array_index_is_not_copied_or_converted() -> None:
    places = np.asarray(numpy.arange(3, dtype="u2"))
    assert numpy.shares_memory(np.arrays.array_object.index_bits(places), places.bits.data)  # type: ignore[attr-defined]


def test_views_write_through_and_fancy_copies_do_not() -> None:
    x = np.zeros((3, 4), dtype="bfloat16")
    x[1][2] = 5
    x[:, 0][...] = 7
    x[[0, 1]][...] = 9
    x[x == 7][0] = 11
    assert x.tolist() == [[7, 0, 0, 0], [7, 0, 5, 0], [7, 0, 0, 0]]
    assert x[1:].base is not None
    assert x[[0]].base is None or not numpy.shares_memory(x[[0]].bits.data, x.bits.data)


def test_an_overlapping_assignment_reads_before_it_writes() -> None:
    x = np.asarray([1, 2, 3, 4])
    x[1:] = x[:-1]
    assert x.tolist() == [1, 1, 2, 3]


@pytest.mark.parametrize(
    "key",
    [
        *(3, -4, (0, 4), (0, 5), (0, 0, 0, 0), 2**70, (1, 2, 2**70), [3], "a", 1.0),
        *(numpy.ones(2, bool), np.asarray([4])),
    ],
    ids=repr,
)
def test_indices_outside_are_index_errors(key: Any) -> None:
    x = patterns(np.bfloat16)
    for act in (lambda: x[key], lambda: x.__setitem__(key, 1)):
        with pytest.raises(InvalidIndex, match=r"bfloat16\[3,4,5\]") as error:
            act()
        assert isinstance(error.value, IndexError)
        assert isinstance(error.value, ValueError)


@each_of("index", [np.asarray([1.0]), np.asarray(1.0, "bfloat16"), (slice(None), np.asarray([1.0]))])
def test_float_arrays_are_no_indices(index: Any) -> None:
    with pytest.raises(InvalidIndex, match="no index"):
        patterns(np.float32)[index]


# ---- what is written (C1, C6, C8) -------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_C1_a_value_is_rounded_once(dtype: DType) -> None:
    ulp = Fraction(1, 2**dtype.mantissa_bits)
    value = 1 + float(ulp / 2) + 2.0**-45  # above the tie; in float32 it would be the tie, to even
    for given in (
        value,
        [value],
        numpy.float64(value),
        numpy.array([value]),
        np.asarray(value, "float64"),
    ):
        x = np.zeros(1, dtype=dtype)
        x[0:1] = given
        assert Fraction(x.item()) == 1 + ulp
        assert x.bits.data.view(f"u{dtype.itemsize}").item() == formats.from_float(dtype.name, value)


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda t: t.name)
def test_C6_C8_values_for_integers(dtype: DType) -> None:
    info = numpy.iinfo(dtype.numpy)
    x = np.zeros(4, dtype=dtype)
    x[:] = [math.nan, 2.75, math.inf, -math.inf]
    assert x.tolist() == [0, 2, info.max, info.min]
    x[:] = np.asarray([300.0, -1.5, 1e30, 0.0])
    assert x.tolist() == [min(300, info.max), max(-1, info.min), info.max, 0]
    x[0] = int(info.max)
    x[1] = np.asarray(2**40 + 5)  # an array wraps
    assert x.tolist()[:2] == [info.max, (2**40 + 5) % 2**dtype.bits if dtype.bits < 64 else 2**40 + 5]
    for outside in (int(info.max) + 1, int(info.min) - 1, [0, 2**70]):
        with pytest.raises(OverflowError, match=dtype.name):
            x[:2] = outside


def test_C6_a_complex_value_for_a_real_array_raises() -> None:
    x = np.zeros(2)
    for value in (1j, [1j, 2], np.asarray([1j, 2]), numpy.array([1j, 2])):
        with pytest.raises(TypeError):
            x[:] = value
    z = np.asarray([0j, 0j])
    z[0] = 1.5
    z[1] = np.asarray(2.0, dtype="bfloat16")
    assert z.tolist() == [1.5, 2]


def test_values_that_do_not_broadcast_and_read_only_arrays() -> None:
    x = np.zeros((2, 3))
    with pytest.raises(InvalidArgument, match=r"float32\[2,3\]\[0\] = float32\[2\]"):
        x[0] = [1, 2]
    x.setflags(write=False)
    with pytest.raises(InvalidArgument, match="read-only"):
        x[0] = 1
    with pytest.raises(UnsupportedType, match="no number"):
        np.zeros(2)[0] = "1"
    assert x.tolist() == [[0] * 3] * 2


def test_tfloat32_stays_rounded() -> None:
    x = np.zeros(2, dtype="tfloat32")
    x[0] = numpy.float32(1 + 2**-20)
    x[1] = 1 + 2**-11 + 2**-30
    assert x.tolist() == [1, 1 + 2**-10]
    assert not (x.bits.data.view("u4") & 0x1FFF).any()
    with pytest.raises(ValueError, match="read-only"):
        numpy.asarray(x)[0] = 1 + 2**-20
    with pytest.raises(InvalidArgument, match="no tfloat32"):
        np.asarray([1 + 2**-20]).view("tfloat32")
    assert np.asarray([1.5]).view("tfloat32").dtype is np.tfloat32
    with pytest.raises(InvalidArgument, match="read-only"):
        x.view("uint32")[0] = 1


# ---- in-place operators ------------------------------------------------------------------------------


@each_of("symbol", IN_PLACE)
def test_in_place_operators_keep_the_object_and_write_through(symbol: str) -> None:
    _, _, plain, in_place = OPERATORS[symbol]
    assert in_place
    on_floats = symbol in ("+", "-", "*", "/", "//", "%", "**")
    dtypes = [*(FLOATS[:-1] if on_floats else []), *(INTEGERS if symbol != "/" else [])]
    for dtype in [t for t in dtypes if t.device]:
        whole = np.asarray([[7, 2, 9], [3, 5, 1]], dtype=dtype)
        view = whole[:, ::2]
        for other in (2, np.asarray([1, 3], dtype=dtype), [[2], [1]] if dtype is np.int64 else 1):
            expected = plain(view, other)
            found = in_place(view, other)
            assert found is view
            assert found.dtype is dtype
            assert raw(found) == raw(expected)
            assert whole[1, 2].bits.data == view[1, 1].bits.data
            assert whole[0, 1].item() == 2


def test_in_place_matmul() -> None:
    x, m = np.asarray([[1.0, 2.0], [3.0, 4.0]]), np.asarray([[0.0, 1.0], [1.0, 0.0]])
    kept = x
    x @= m
    assert x is kept
    assert x.tolist() == [[2, 1], [4, 3]]
    vector, wide = np.ones(2), np.ones((2, 3))
    for left, right in ((x, vector), (x, np.ones((2, 1))), (vector, vector), (x, wide)):
        with pytest.raises(InvalidArgument, match=None if right is wide else "keeps its shape"):
            left @= right


def test_in_place_operators_keep_the_type() -> None:
    x = np.asarray([1.5, 2.5], dtype="bfloat16")
    x += np.asarray([2.0**-6, 0.0], dtype="float64")
    x *= np.asarray([2.0])
    x -= 1
    assert x.dtype is np.bfloat16
    assert x.tolist() == [2.03125, 4]
    n = np.asarray([7, 8])
    refused: list[Callable[[], Any]] = [
        lambda: operator.itruediv(n, 2),
        lambda: operator.iadd(n, 0.5),
        lambda: operator.iadd(n, np.asarray(1.0)),
        lambda: operator.imul(x, 1j),
        lambda: operator.isub(np.asarray([1], dtype="uint8"), np.asarray([1], dtype="int8")),
        lambda: operator.iadd(np.asarray([True]), 1),
        lambda: operator.iand(x, 1),
    ]
    for call in refused:
        with pytest.raises(TypeError):
            call()
    assert n.tolist() == [7, 8]


def test_in_place_operators_broadcast_only_into_the_left_operand() -> None:
    x = np.zeros((2, 3))
    x += [1, 2, 3]
    assert x.tolist() == [[1, 2, 3]] * 2
    row = np.zeros(3)
    with pytest.raises(InvalidArgument, match=r"float32\[3\] keeps its shape.*float32\[2,3\]"):
        row += x
    assert row.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "call",
    [
        lambda: ~np.ones(2),
        lambda: -np.asarray([True]),
        lambda: np.asarray([True]) & 1.0,
        lambda: np.ones(2) + "a",
        lambda: np.ones(2) @ None,
        lambda: np.asarray([1j]) % 2,
    ],
)
def test_operators_of_the_wrong_kind_are_type_errors(call: Callable[[], Any]) -> None:
    with pytest.raises(TypeError):
        call()


class Foreign:
    def __radd__(self, other: Any) -> str:
        return "mine"

    __rmatmul__ = __ror__ = __rdivmod__ = __radd__


def test_operators_leave_foreign_operands_to_their_class() -> None:
    x = np.asarray([1, 2])
    assert x + Foreign() == x @ Foreign() == x | Foreign() == divmod(x, Foreign()) == "mine"  # type: ignore
    x += Foreign()
    assert x == "mine"


def test_lists_are_operands_on_either_side() -> None:
    x = np.asarray([1.5, 2.5], dtype="bfloat16")
    pair = [1, 2]
    for other in (pair, tuple(pair), numpy.array(pair)):
        for found in (x + other, other + x):
            assert found.tolist() == [2.5, 4.5]
            assert found.dtype is np.bfloat16
    assert (x * [0.5, 2.0]).dtype is np.float32  # a list of floats has the default type
    assert ([1, 2] @ x).item() == 6.5
    assert (numpy.float64(2) * x).dtype is np.float64
    assert isinstance(numpy.int8(2) * x, np.Array)
    assert (x == [1.5, 0]).tolist() == [True, False]


@pytest.mark.isa_independent
@pytest.mark.parametrize("first", some(["np.zeros(0)[0]", "np.zeros(3)[[9]]", "np.zeros(0)[0] + 1"], 1))
def test_an_index_outside_is_an_error_as_the_first_thing_that_a_process_does(first: str) -> None:
    """The core looked NumPy up where an error was set, and ended the process."""
    run = subprocess.run(
        [sys.executable, "-c", f"import neuronsim as np; {first}"], capture_output=True, text=True
    )
    assert (run.returncode, "InvalidIndex" in run.stderr.splitlines()[-1]) == (1, True), run


@pytest.mark.isa_independent
@pytest.mark.parametrize("key", [False, True, numpy.asarray(False), (False,)])
def test_values_of_too_many_axes_for_a_bool_index_are_refused(key: Any) -> None:
    for value in (np.zeros((1, 2)), numpy.zeros((2, 2)), np.zeros((1, 1), "int8")):
        x = np.asarray(1.0, "float8_e4m3")
        with pytest.raises(UnsupportedType, match="0 or 1-dimensional"):
            x[key] = value
        assert x.tolist() == 1.0
