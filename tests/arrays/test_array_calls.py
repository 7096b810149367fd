"""The short ways of calls on small arrays: the bits, types and errors of the long ones, which they take
only where nothing shows it.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import itertools
import math
import pickle
import re
import resource
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from tests.support.draws import encodings, normal
from tests.support.evaluation import evaluated
from tests.support.operators import OPERATORS
from tests.support.parameters import each_of
from tests.support.words import assert_same

import neuronsim as np
from neuronsim import _core, ops
from neuronsim.arrays import evaluation, order, reductions
from neuronsim.arrays.evaluation import apply_elementwise
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import (
    IntegerOverflow,
    InvalidArgument,
    InvalidIndex,
    NeuronSimError,
    UnsupportedType,
)
from neuronsim.ops import Bits
from neuronsim.reference.formats import exact, round_number

pytestmark = [pytest.mark.isa_independent, pytest.mark.usefixtures("fresh_profile")]

DEVICE = [t for t in DTYPES.values() if t.device]
FLOATS = [t for t in DEVICE if t.exponent_bits]
INTEGERS = [t for t in DEVICE if t.kind in ("signed", "unsigned")]
ROWS = [row for row in ops.OPS.values() if row.core is not None]
SHAPES: list[tuple[int, ...]] = [(3, 4), (4,), (3, 1), (), (1,), (2, 3, 4), (0, 4), (0, 1)]


# ---- elementwise -----------------------------------------------------------------------------------


def types_of(row: ops.Op) -> list[DType]:
    def has(t: DType) -> bool:
        try:
            ops.check_elementwise(row, t, t)
        except UnsupportedType:
            return False
        return True

    return [t for t in DEVICE if has(t)]


def cases(row: ops.Op, dtype: DType) -> list[list[Any]]:
    """Operands that broadcast, lie anyhow in memory, or are Python numbers."""
    first = np.bool if row.name == "select" else dtype
    shaped = []
    for n, shape in enumerate(SHAPES):
        shapes = [shape, *[SHAPES[(n * k + k) % 5] for k in range(1, row.arity)]]
        shaped.append([encodings(first if k == 0 else dtype, s, k) for k, s in enumerate(shapes)])
    x = encodings(dtype, (6, 8))
    views = [x[::2, ::-2], x.T[:4, :3].T, np.broadcast_to(x[0, :4], (3, 4)), x[1:4, 2:6]]
    strided = [
        [v if k or first is dtype else v.astype(np.bool) for k in range(row.arity)] for v in views
    ]
    if row.arity == 1:
        return shaped + strided
    numbers = [[*pair[:-1], value] for pair in shaped for value in (1, True, 0.3, -2)]
    if row.name == "power" and dtype.kind == "signed":
        numbers = [n for n in numbers if n[-1] != -2]
    if row.arity == 2:
        numbers += [pair[::-1] for pair in numbers]
    return shaped + strided + numbers


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_gives_the_bits_of_the_long_way(row: ops.Op) -> None:
    for dtype in types_of(row):
        for operands in cases(row, dtype):
            try:
                expected = evaluation.evaluate_elementwise(row.name, *operands)
            except NeuronSimError as error:
                with pytest.raises(type(error)):
                    apply_elementwise(row.name, *operands)
                continue
            assert_same(apply_elementwise(row.name, *operands), expected)


@pytest.mark.parametrize("dtype", DEVICE, ids=lambda t: t.name)
def test_the_short_way_is_taken(dtype: DType, long_ways: list[str]) -> None:
    """Once one call remembered the program, whatever the shapes are."""
    x, line, scalar = (encodings(dtype, (3, 4)), encodings(dtype, (4,), 1), encodings(dtype, ()))
    mask = encodings(np.bool, (3, 1), 2)
    np.maximum(x, x)
    np.where(mask, x, x)
    before = len(long_ways)
    for a, b in ((x, x), (x, line), (scalar, x), (x.T[::-1], x[:1].T), (x[:0], x[:1])):
        np.maximum(a, b)
        np.where(mask[:1], a, b)
    assert len(long_ways) == before
    if dtype is not np.bool:
        np.maximum(x, 1)
        np.maximum(True, x)
        np.where(mask, 0, x)
        assert len(long_ways) == before
    if dtype.kind == "float":
        np.maximum(x, 0.1)
        assert len(long_ways) == before
    else:
        np.maximum(x, 0.5)  # a float beside integers: the default float type
        assert len(long_ways) > before


def refuse_long_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: str, *_: Any, **__: Any) -> Any:
        raise AssertionError(f"{name} took the long way")

    monkeypatch.setattr(ops, "apply", refused)


def test_mixed_types_take_the_short_way_of_their_common_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conversions are remembered, and so is the operation in the common type."""
    mask, cases = np.asarray([True, False, True]), []
    for a, b in itertools.permutations(DEVICE, 2):
        try:
            common = np.result_type(a, b)
        except UnsupportedType:
            continue
        x, y = encodings(a, (3,)), encodings(b, (2, 1), 1)
        wide = x.astype(common), y.astype(common)
        cases += [
            (lambda x=x, y=y: np.maximum(x, y), np.maximum(*wide)),
            (lambda x=x, y=y: np.where(mask, x, y), np.where(mask, *wide)),
        ]
    for t in INTEGERS:
        x = encodings(t, (3,))
        cases += [
            (lambda x=x: x / 2, x.astype("float32") / 2),
            (lambda x=x: np.exp(x), np.exp(x.astype("float32"))),
        ]
    for call, expected in cases:
        assert_same(call(), expected)
    refuse_long_ways(monkeypatch)
    for call, expected in cases:
        assert_same(call(), expected)


def test_E8_powers_of_integers_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their exponents are looked at before."""
    signed = [t for t in INTEGERS if t.kind == "signed"]
    bases = {t: np.asarray([-3, 2, 0, 7, 11], t) for t in signed}
    for t in signed:
        np.power(bases[t], 2)
    refuse_long_ways(monkeypatch)
    for t, x in bases.items():
        wide = numpy.asarray(x)
        exponents = np.asarray([[5], [0]], t)
        assert_same(x**3, np.asarray(wide ** t.numpy.type(3)))
        assert_same(x**exponents, np.asarray(wide ** numpy.asarray(exponents)))
        assert_same(2**exponents, np.asarray(t.numpy.type(2) ** numpy.asarray(exponents)))
        for negative in (-1, np.asarray([1, 2, -1, 0, 3], t)):
            with pytest.raises(InvalidArgument, match="use a float type"):
                x**negative


HOST = [t for t in DTYPES.values() if not t.device and t.code is None]


@pytest.mark.parametrize("dtype", HOST, ids=lambda t: t.name)
def test_H1_the_host_s_short_way_gives_the_bits_of_the_long_one(
    dtype: DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    special = numpy.asarray([0.0, -0.0, numpy.inf, -numpy.inf, numpy.nan, 1e-310, 3.5, -2.0])
    x = np.asarray(special, dtype)
    if dtype.kind == "complex":
        x.bits.data.imag = special[::-1]
    y, narrow = x[:, None] + 1, np.asarray(special, "float32")
    operands = [(x,), *itertools.product((x, y[:, :1].T, x[0], narrow, 2, 0.5, True), repeat=2)]
    operands += [(1j, narrow), (narrow, 1j), (x, np.ones(3, dtype)), (x, "1"), (10**400, x)]
    operands += [(x, y, x), (1, x, 2.0)]

    def outcomes() -> list[Any]:
        return [outcome(row.name, *each) for row in ROWS for each in operands if len(each) == row.arity]

    def outcome(name: str, *each: Any) -> Any:
        try:
            return evaluation.evaluate_elementwise(name, *each)
        except (NeuronSimError, OverflowError) as error:
            return type(error), str(error)

    short = outcomes()
    monkeypatch.setattr(evaluation, "_evaluate_on_host", lambda *_: None)
    for found, expected in zip(short, outcomes(), strict=True):
        if isinstance(expected, np.Array):
            assert_same(found, expected)
        else:
            assert found == expected


def test_H1_exceptions_of_the_host_are_counted() -> None:
    x = np.asarray([1e308, 1.0], "float64")
    assert (x * x).tolist() == [math.inf, 1]
    with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="1 of 2 float64"):
        x * x


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_C8_python_numbers_are_rounded_once(dtype: DType, long_ways: list[str]) -> None:
    """As the exact reference rounds them: to the type itself, not by way of float32."""
    zero = np.zeros(1, dtype)
    numbers = [
        0.1,
        1 + 2**-8 + 2**-40,
        1 + 2**-11 + 2**-40,
        1e30,
        -1e-30,
        2.0**-24 + 2.0**-60,
        -7,
        True,
    ]
    for _ in range(2):
        for number in numbers:
            found = np.maximum(np.where(np.asarray([True]), number, zero), np.asarray(-math.inf, dtype))
            word = round_number(dtype.name, exact(number))
            assert int(found.bits.data.view(f"u{dtype.itemsize}")[0]) == word, number
    assert len(long_ways) <= 2  # the first call of either function


def test_C8_integers_are_range_checked(long_ways: list[str]) -> None:
    for dtype in INTEGERS:
        x = np.zeros(2, dtype)
        info = numpy.iinfo(dtype.numpy)
        x + x
        before = len(long_ways)
        for value in (info.min, info.max):
            assert (x + int(value)).tolist() == [value, value]
        for value in (int(info.min) - 1, int(info.max) + 1):
            with pytest.raises(IntegerOverflow):
                x + value
        # uint64 holds more than the short way reads.
        assert len(long_ways) == before + 2 + (dtype is np.uint64)
    half = np.zeros(2, np.float16)
    big = 2**64 + 2**12
    assert (half + big).tolist() == [math.inf, math.inf]
    single = np.zeros(1)
    assert (single + (2**60 + 2**36 + 1)).tolist() == [float(2**60 + 2**37)]  # exact, then rounded


def test_C8_other_kinds_of_numbers_take_the_long_way(long_ways: list[str]) -> None:
    x = np.ones(2, np.bfloat16)
    x * x
    before = len(long_ways)
    assert (x * 1j).dtype is np.complex64
    assert (x * numpy.float32(2)).dtype is np.float32  # NumPy's scalars have a type
    assert (x * numpy.float64(2)).dtype is np.float64
    assert (x * [2.0]).dtype is np.float32
    assert (np.ones(2, np.bool) + 2).dtype is np.int64
    assert (np.ones(2, np.int8) * 0.5).dtype is np.float32
    assert len(long_ways) >= before + 6
    with pytest.raises(TypeError):
        x * "2"
    with pytest.raises(TypeError):
        np.multiply(x)
    with pytest.raises(TypeError):
        np.multiply(x, x, unknown=1)


def test_the_scalars_of_a_profile_are_seen() -> None:
    """C8: an immediate is float32, also once two arrays of the type have been multiplied."""
    x = np.asarray([3.0], np.bfloat16)
    with np.use_profile(scalar="float32_immediate"):
        immediate = x * 0.3
        for _ in range(2):
            x * x
            assert_same(x * 0.3, immediate)


@pytest.mark.parametrize(
    ("field", "value", "dtype", "number"),
    [
        ("fp8_overflow", "saturate", np.float8_e4m3, 1e9),
        ("fp8_overflow", "nan", np.float8_e5m2, 1e9),
        ("subnormals", "flush", np.bfloat16, 1e-40),
        ("int_to_float", "exact", np.float16, 2**24 + 1),
    ],
)
def test_numbers_are_rounded_as_the_profile_says(
    field: str, value: str, dtype: DType, number: Any, long_ways: list[str]
) -> None:
    x = np.asarray([1.0, -1.0], dtype)
    for fields in ({}, {field: value}, {}):
        with np.use_profile(**fields):
            expected = evaluated("multiply", x, np.full(2, number, dtype))
            for _ in range(2):
                assert_same(x * number, expected)
                assert_same(np.multiply(number, x), expected)
    assert len(long_ways) <= 3  # the first call under each profile


# ---- what takes the long way ------------------------------------------------------------------------


def test_errstate_is_seen_at_every_call() -> None:
    """Also where the calls before it met nothing, and so gave no reason to take the long way."""
    calls: list[Callable[[np.Array], Any]] = [
        lambda x: x * 2.0,
        lambda x: x + x,
        lambda x: np.add(x, x),
        lambda x: np.square(x),
        np.sum,
        np.prod,
        lambda x: np.matmul(x, x),
        lambda x: (x.astype(np.float32) * 2).astype(np.float16),
    ]
    large, small = np.full(2, 65504.0, np.float16), np.ones(2, np.float16)
    for call in calls:
        for _ in range(2):
            assert numpy.isinf(numpy.asarray(call(large), numpy.float64)).all()
        with np.errstate(over="raise"):
            for x in (small, small, large, small, large):
                if x is small:
                    call(x)
                    continue
                with pytest.raises(FloatingPointError):
                    call(x)
        call(large)


def test_C7_truncate_is_seen_after_a_short_call() -> None:
    x, large = np.asarray([2**40 + 5, 7]), np.asarray([3e9])
    for _ in range(2):
        assert (x + 1).tolist() == [2**40 + 6, 8]
        assert int(np.sum(x)) == 2**40 + 12
        assert x.astype(np.float32).tolist() == [2.0**40, 7.0]
    with np.use_profile(int64="truncate"):
        for call, said, expected in (
            (lambda: x + x, "add: 2 .*64 bits", [10, 14]),
            (lambda: x + np.asarray([1, 1]), "add: 1 .*64 bits", [6, 8]),
            (lambda: np.sum(x), "64 bits", 12),
            (lambda: x.astype(np.float32), "64 bits", [5.0, 7.0]),
            (lambda: large.astype("int64"), "C7", [2**31 - 1]),
            (lambda: np.count_leading_zeros(np.asarray([1])), "count_leading_zeros: 1 ", [31]),
        ):
            for _ in range(2):
                with pytest.warns(RuntimeWarning, match=said):
                    assert call().tolist() == expected


def test_S2_stochastic_rounding_draws_at_every_call() -> None:
    x, y = np.full(400, 1.0, np.bfloat16), np.full(400, 2.0**-9, np.bfloat16)
    single = np.asarray(numpy.linspace(1, 2, 400), np.float32)
    calls: list[Callable[[], np.Array]] = [
        lambda: x + y,
        lambda: single.astype(np.bfloat16) * 1.75,
        lambda: single.astype(np.bfloat16),
        lambda: np.sum(np.asarray(single.reshape(20, 20), np.bfloat16), axis=0),
    ]
    for call in calls:
        nearest = [call() for _ in range(2)][1]
        with np.use_profile(rounding="stochastic", seed=3):
            drawings = {call().tobytes() for _ in range(3)}
            assert len(drawings - {nearest.tobytes()}) == 3
        assert_same(call(), nearest)


def test_sign_of_minus_zero_is_the_function_s_own_E9() -> None:
    """The row has -0, the array function +0; neither takes the other's program."""
    x = np.asarray([-0.0, -2.0])
    for _ in range(2):
        assert math.copysign(1, np.sign(x).tolist()[0]) == 1
        assert math.copysign(1, apply_elementwise("sign", x).tolist()[0]) == -1
        assert math.copysign(1, np.sign(x).tolist()[0]) == 1


def test_subclasses_take_the_long_way() -> None:
    class Mine(np.Array):
        __slots__ = ()

    x = np.asarray([1.0, 2.0])
    for _ in range(2):
        assert (x + x).tolist() == [2.0, 4.0]
        assert type(Mine(x.bits) + Mine(x.bits)) is np.Array
        assert type(np.add(Mine(x.bits), x)) is np.Array


ONES, NO_SUMS = np.ones((2, 3)), np.zeros(2, "float8_e4m3fn")
REFUSED: list[tuple[Callable[[], Any], type[Exception], str | None]] = [
    (lambda: ONES + ONES.T, InvalidArgument, "do not broadcast"),
    (lambda: np.add(ONES, ONES.T), InvalidArgument, "do not broadcast"),
    (lambda: np.where(ONES < 1, ONES, ONES.T), InvalidArgument, "do not broadcast"),
    (lambda: np.sum(ONES, axis=2), InvalidIndex, None),
    (lambda: np.sum(ONES, axis=1.0), InvalidArgument, None),
    (lambda: np.max(ONES[:0]), InvalidArgument, None),
    (lambda: np.max(NO_SUMS), UnsupportedType, None),
    (lambda: np.matmul(ONES, ONES), InvalidArgument, "do not contract"),
    (lambda: np.matmul(ONES, np.asarray(1.0)), InvalidArgument, "at least one axis"),
    (lambda: np.matmul(NO_SUMS, NO_SUMS), UnsupportedType, None),
    *((lambda f=f: f(ONES, 2), InvalidIndex, None) for f in (np.sort, np.argmax)),
    *((lambda f=f: f(ONES, 1.0), InvalidArgument, None) for f in (np.sort, np.argmax)),
    *((lambda f=f: f(ONES, True), InvalidArgument, None) for f in (np.sort, np.argmax)),
    (lambda: np.argmax(ONES[:0]), InvalidArgument, None),
]


def test_errors_are_those_of_the_long_way() -> None:
    """Also where the function and the types were met before."""
    for _ in range(2):
        for function in (np.add, lambda x, y: x @ y.T):
            function(ONES, ONES)
        for function in (np.max, np.sum, np.sort, np.argmax):
            function(ONES)
        for call, error, said in REFUSED:
            with pytest.raises(error, match=said):
                call()
        assert float(np.sum(ONES[:0])) == 0.0
        assert np.sort(ONES[:0]).shape == (0, 3)
        assert int(np.argmax(np.asarray(2.0))) == 0
    huge = np.broadcast_to(np.ones(()), (2**31, 1, 1)), np.broadcast_to(np.ones(()), (1, 2**31, 4))
    with pytest.raises((InvalidArgument, MemoryError)):
        huge[0] + huge[1]


# ---- reductions, products, order --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize(
    "field", [{}, {"mixed_precision_accumulation": "off"}, {"subnormals": "flush"}]
)
def test_reductions_give_the_bits_of_the_table(name: str, field: dict[str, str]) -> None:
    reducer = reductions._REDUCERS[name]
    for dtype in DEVICE:
        x = encodings(dtype, (7, 5, 300), 1)
        views = [x[0, 0], x[0, 0, 0], x[..., :3], x[:, ::2, 1], x.T[:9, :, 0], x[:1, :1, :600:2], x[0]]
        with np.use_profile(**field):
            for v in views:
                for axis in (None, *range(-v.ndim, v.ndim)):
                    axes = tuple(range(v.ndim)) if axis is None else (axis % v.ndim,)
                    start = evaluation.identity(reducer, dtype)
                    expected = evaluated("reduce", v, start, dimensions=axes, reducer=reducer)
                    for _ in range(2):
                        assert_same(reductions._reduce(name, v, axis, False), expected)


STATISTICS = [("mean", {}), ("var", {"correction": 0}), ("std", {"correction": 1.5})]


@pytest.mark.parametrize(("name", "attributes"), STATISTICS)
@pytest.mark.parametrize(
    "field", [{}, {"subnormals": "flush"}, {"divide": "reciprocal_multiply"}, {"fp8_overflow": "nan"}]
)
def test_R7_statistics_give_the_bits_of_the_table(
    name: str, attributes: dict[str, Any], field: dict[str, str]
) -> None:
    function = {"mean": np.mean, "var": np.var, "std": np.std}[name]
    for dtype in FLOATS:
        x = encodings(dtype, (7, 300), 1)
        with np.use_profile(**field):
            for v in (x, x[0], x.T[::-2, 1], x[0, 0], x[:, 1:2], np.broadcast_to(x[:, :1], (7, 9))):
                dimensions = tuple(range(v.ndim))
                expected = evaluated(name, v, dimensions=dimensions, **attributes)
                for _ in range(2):
                    assert_same(function(v, **attributes), expected)


def test_reductions_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((3, 4))
    first = np.sum(x, axis=1)
    monkeypatch.setattr(ops, "apply", lambda *args, **attributes: pytest.fail("the long way"))
    assert_same(np.sum(x, axis=1), first)
    assert float(np.sum(x)) == 12.0
    with pytest.raises(pytest.fail.Exception):
        np.sum(x, keepdims=True)


def test_a_call_with_a_type_says_nothing_of_calls_without() -> None:
    """What is summed in another type than its own is not what the type's sum is."""
    types = [*FLOATS, *(DTYPES[n] for n in ("int8", "uint16", "int32", "int64", "bool"))]
    arrays = [np.asarray(numpy.array([1, 0, 1, 1]), dtype=t) for t in types]
    functions = (np.sum, np.prod, np.mean, np.cumulative_sum, np.any, np.max, lambda x: x @ x)

    def plain() -> list[tuple[DType, bytes]]:
        return [(r.dtype, r.tobytes()) for r in (f(x) for f in functions for x in arrays)]

    with np.use_profile():
        expected = plain()
    with np.use_profile():
        for x, t in itertools.product(arrays, types):
            for f in (np.sum, np.prod, np.mean, np.cumulative_sum):
                with contextlib.suppress(NeuronSimError):
                    f(x, dtype=t)
                    f(x, axis=0, dtype=t)
        for _ in range(2):
            assert plain() == expected


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
@pytest.mark.parametrize("accumulate", ["psum128", "sequential", "exact"])
def test_M2_small_products_give_the_bits_of_the_table(dtype: DType, accumulate: str) -> None:
    shapes = [((4,), (4,)), ((3, 300), (300,)), ((300,), (300, 5)), ((2, 9), (9, 3)), ((2, 0), (0, 3))]
    with np.use_profile(accumulate=accumulate):
        for left, right in shapes:
            x, y = encodings(dtype, left[::-1], 2).T, encodings(dtype, right, 3)
            axes = ops.DotDimensions((len(left) - 1,), (0,))
            expected = evaluated("dot", x, y, dot_dimensions=axes)
            for _ in range(2):
                assert_same(np.matmul(x, y), expected)
                assert_same(x @ y, expected)


def test_packed_columns_follow_every_write() -> None:
    """A read-only matrix is packed once; what can still be written into never is."""
    rows = normal(np.bfloat16, (3, 96))

    def product_is_right(w: np.Array) -> bool:
        found = (rows @ w).tobytes()
        expected = (rows @ w.copy()).tobytes()  # to copy gives the memory away
        rows @ w  # packs it again, for what follows
        return found == expected

    w = normal(np.bfloat16, (96, 64))
    view = w[:]  # which stays writable
    w.setflags(write=False)
    for value in (1.0, 2.0):
        assert product_is_right(w)
        view[0] = value
        assert product_is_right(w)
    del view
    for value in (3.0, 4.0):
        for _ in range(3):
            assert product_is_right(w)
        w.setflags(write=True)
        w[0] = value
        w.setflags(write=False)
        assert product_is_right(w)
    memory = normal(np.bfloat16, (96, 64)).bits.data
    shared = np.Array(Bits(memory, np.bfloat16))
    shared.setflags(write=False)
    assert product_is_right(shared)
    memory.flags.writeable = True
    memory[0] = 0
    memory.flags.writeable = False
    assert product_is_right(shared)
    ways: dict[str, Callable[[np.Array], Any]] = {
        "bits": lambda w: w.bits.data,
        "an ndarray": lambda w: numpy.asarray(w).base,
        "a view": lambda w: w[1:].bits.data.base,
        "the base of a view": lambda w: w.T.base.bits.data,
    }
    for name, way in ways.items():
        given = normal(np.bfloat16, (96, 64))
        given.flags.writeable = False
        assert product_is_right(given)
        assert given.shape == (96, 64)
        memory = way(given)
        memory.flags.writeable = True
        memory[0] = 0
        memory.flags.writeable = False
        del memory
        assert product_is_right(given), name


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_M2_packed_columns_give_the_bits_of_the_product(dtype: DType) -> None:
    for m, k, n in ((1, 96, 64), (9, 300, 40), (40, 64, 130)):
        x, w = normal(dtype, (m, k)), normal(dtype, (k, n))
        expected = x @ w
        w.setflags(write=False)
        for rows in (x, x[:1], x):
            for _ in range(2):
                assert_same(rows @ w, expected[: len(rows)])
        with np.use_profile(subnormals="flush"):
            assert_same(x @ w, x @ w.copy())
        assert_same(w.T @ w, w.T @ w.copy())


def test_packed_columns_are_freed_with_their_matrix() -> None:
    x = np.ones((4, 512))

    def leaves() -> int:
        gc.collect()
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * resource.getpagesize()

    def many() -> None:
        for _ in range(60):
            w = np.zeros((512, 512))
            w.setflags(write=False)
            assert (x @ w).shape == (4, 512)

    many()
    before = leaves()
    many()
    assert leaves() - before < 30 << 20  # a packed matrix has 1 MiB


@pytest.mark.parametrize("dtype", [*FLOATS, np.float8_e4m3fn, np.float64], ids=lambda t: t.name)
def test_E10_keys_order_as_the_values_do(dtype: DType) -> None:
    """By NumPy's order of the exact values in float64; every pattern of the narrow types."""
    word = numpy.dtype(f"u{dtype.itemsize}")
    if dtype.bits <= 16:
        patterns = numpy.arange(1 << dtype.bits).astype(word)
        x = np.Array(Bits(patterns.view(dtype.storage), dtype))
    else:
        special = [0.0, -0.0, math.inf, -math.inf, math.nan, -math.nan, 1e-45, -1e-45, 5e-324]
        x = (
            np.concat([encodings(dtype, (5000,)), np.asarray(special, dtype)])
            if dtype.exponent_bits
            else (np.asarray(numpy.array([*special, *numpy.random.default_rng(1).normal(size=500)])))
        )
    values = numpy.array(x.tolist())
    expected = numpy.argsort(values, kind="stable")
    assert np.argsort(x).tolist() == expected.tolist()
    assert np.sort(x).tobytes() == x.bits.data[expected].tobytes()
    keys = ops.order_keys(x.bits)
    assert keys.dtype == numpy.dtype(f"i{dtype.itemsize}")
    numbers = ~numpy.isnan(values)
    assert (numpy.diff(keys[expected][numbers[expected]]) == 0).tolist() == (
        values[expected][numbers[expected]][1:] == values[expected][numbers[expected]][:-1]
    ).tolist()
    assert set(keys[~numbers].tolist()) <= {numpy.iinfo(keys.dtype).max}
    assert int(np.argmax(x)) == int(numpy.argmax(values))
    assert int(np.argmin(x)) == int(numpy.argmin(values))


def test_E10_keys_of_views_are_those_of_their_elements() -> None:
    x = encodings(np.bfloat16, (6, 8))
    for v in (x.T, x[::2, ::-3], x[3, 4], x[:0], np.broadcast_to(x[0], (2, 8))):
        dense = Bits(numpy.array(v.bits.data, order="C"), v.dtype)
        found = ops.order_keys(v.bits)
        assert found.shape == v.shape
        assert found.tolist() == ops.order_keys(dense).tolist()
    with pytest.raises(ValueError, match="floats"):
        _core.order_keys(numpy.zeros(2, numpy.int32), _core.DTYPES.index("int32"))
    assert order.argmax(x[0, :1]).shape == ()


# ---- order, moves, in place, doors -------------------------------------------------------------------


LAYOUTS: list[Callable[[np.Array], np.Array]] = [
    *(lambda x: x, lambda x: x[0], lambda x: x[0, 0], lambda x: x.T, lambda x: x[::2, ::-3, 1]),
    *(
        lambda x: x[:, :1],
        lambda x: np.broadcast_to(x[:, :1], x.shape),
        lambda x: x[:0],
        lambda x: x[1, 2, 3],
    ),
]


@pytest.mark.parametrize("dtype", [*DEVICE, np.float8_e4m3fn, np.float64], ids=lambda t: t.name)
def test_E10_orders_give_the_bits_of_the_table(dtype: DType) -> None:
    """Of every layout and axis: with equal elements, zeros of both signs and many NaNs."""
    if dtype is np.float64:
        x = np.asarray(numpy.random.default_rng(3).integers(-3, 3, (5, 6, 7)) / 3.0)
    else:
        x = encodings(dtype, (5, 6, 7), 9)
    for n, value in enumerate(
        (0.0, -0.0, math.nan, math.inf, -math.inf) if dtype.exponent_bits else (0, 1)
    ):
        x[n % 5, :, n::4] = value
    for layout in LAYOUTS:
        v = layout(x)
        for axis in range(-v.ndim, v.ndim):
            at = axis % v.ndim
            order = evaluated("argsort", v, axis=at).bits.data
            expected = np.Array(Bits(numpy.take_along_axis(v.bits.data, order, at), dtype))
            for _ in range(2):
                assert_same(np.sort(v, axis), expected)
                assert_same(np.sort(v, axis=axis), expected)
            for name in ("argmax", "argmin") if v.shape[at] else ():
                expected = evaluated(name, v, axis=at)
                for _ in range(2):
                    assert_same(getattr(np, name)(v, axis=axis), expected)
        if v.size and v.ndim:
            assert_same(np.sort(v), np.sort(v, -1))
            assert_same(np.argmax(v), evaluated("argmax", v.reshape(-1), axis=0))
            assert_same(v.argmin(None), evaluated("argmin", v.reshape(-1), axis=0))


def test_E10_orders_of_long_lines_take_the_first() -> None:
    """Longer than what is looked at in one go."""
    x = numpy.full((3, 7000), 2.0, numpy.float32)
    x[0, [3000, 6000]], x[1, [2500, 5000]], x[1, 6000] = 3.0, math.nan, 9.0
    for dtype in (np.float32, np.bfloat16, np.int8):
        v = np.asarray(x[:1] if dtype is np.int8 else x, dtype)
        expected = [3000, 2500, 0][: len(v)]
        for _ in range(2):
            assert np.argmax(v, 1).tolist() == expected
            assert np.argmax(v[:, ::-1], 1).tolist() == [999, 1999, 0][: len(v)]
            assert np.argmin(v, 1).tolist() == [0, 2500, 0][: len(v)]
            assert np.argmin(-v, 1).tolist() == expected


def outcome(function: Callable[..., Any], given: tuple[Any, ...]) -> tuple[Any, NeuronSimError | None]:
    try:
        return function(*given), None
    except NeuronSimError as error:
        return None, error


def test_moves_are_those_of_the_function() -> None:
    """What NumPy does to the bits in the place of a function, the function itself does too."""
    x = encodings(np.bfloat16, (2, 3, 4))
    y, z = x[..., ::2], encodings(np.float16, (2, 3, 4))
    cases: list[tuple[Any, tuple[Any, ...]]] = [
        *(
            (np.reshape, (v, s))
            for v in (x, y, x.T)
            for s in ((6, -1), -1, [2, -1], (5, 5), "a", (True, -1), 6.0)
        ),
        *(
            (np.concat, (v, *a))
            for v in ((x, x), [x, y], (x, z), (x, 1), (), x)
            for a in ((), (2,), (-1,), (3,), (True,))
        ),
        *((np.stack, (v, *a)) for v in ((x, x), [x, y], (x, z), ()) for a in ((), (3,), (-1,), (4,))),
        *(
            (np.broadcast_to, (v, s))
            for v in (x, y)
            for s in ((5, 2, 3, 4), (2, 3, 1), 4, "a", (-1, 2, 3, 4))
        ),
        *((np.expand_dims, (x, a)) for a in (0, -1, (0, 2), 7, 1.0, (0, 0))),
        *((np.squeeze, (x[:1], *a)) for a in ((), (0,), (1,), ((0,),), (None,), (1.0,))),
        *((f, (5, 1)) for f in (np.reshape, np.concat, np.stack, np.broadcast_to, np.expand_dims)),
    ]
    for function, given in cases:
        expected, said = outcome(inspect.unwrap(function), given)
        if said is not None:
            with pytest.raises(type(said), match=re.escape(str(said))):
                function(*given)
            continue
        result = function(*given)
        assert_same(result, expected)
        assert result.flags.writeable == expected.flags.writeable
        assert result.strides == expected.strides
        base = given[0] if isinstance(given[0], np.Array) else x
        shares = [numpy.shares_memory(r.bits.data, base.bits.data) for r in (result, expected)]
        assert shares[0] == shares[1]


VIEWS: list[Callable[[np.Array], np.Array]] = [
    *(lambda x: x, lambda x: x[1:5], lambda x: x[:, ::2], lambda x: x.T, lambda x: x[::-1]),
    lambda x: x[2],
]
OTHERS: list[Callable[[np.Array], Any]] = [
    *(lambda x: x, lambda x: x[::-1], lambda x: 1.5, lambda x: encodings(np.bfloat16, x.shape, 8)),
]


@each_of("symbol", "+-*/")
def test_in_place_operators_write_what_the_operators_give(symbol: str) -> None:
    _, _, plain, in_place = OPERATORS[symbol]
    base = encodings(np.bfloat16, (6, 8), 7)
    for view, other in itertools.product(VIEWS, OTHERS):
        x = base.copy()
        v, rest = view(x), x.copy()
        data, expected = v.bits.data, plain(v, other(v))
        assert in_place(v, other(v)) is v
        assert_same(v, expected)
        assert v.bits.data is data
        view(rest)[...] = expected
        assert_same(x, rest)  # nothing beside it
    x = base.copy()
    x.setflags(write=False)
    for left, right, error in (
        (x, 1.0, "read-only"),
        (base[:1], base, "keeps its shape"),
        (np.asarray([1, 2]), np.asarray([0.5, 1.0]), "float32"),
    ):
        with pytest.raises((InvalidArgument, UnsupportedType), match=error):
            in_place(left, right)


def test_keywords_are_taken_as_python_takes_them() -> None:
    x = np.asarray([[1.0, 2.0], [3.0, 4.0]])
    for _ in range(2):
        assert np.sum(x, axis=0).tolist() == x.sum(axis=0).tolist() == [4.0, 6.0]
        assert np.sort(x, axis=0, descending=True).tolist() == [[3.0, 4.0], [1.0, 2.0]]
        assert np.sum(x, None, np.float16).dtype is np.float16
        assert np.max(x, axis=1, keepdims=True).shape == (2, 1)
        assert np.reshape(x, shape=(4,)).shape == (4,)
        for wrong in (
            lambda: np.sum(x=x),
            lambda: np.matmul(x, x2=x),
            lambda: np.sum(x, axes=0),
            lambda: np.sum(x, 0, axis=0),
            lambda: np.sum(),
        ):
            with pytest.raises(TypeError):
                wrong()


NOT_PLAIN = [{"rounding": "stochastic"}, {"int64": "truncate"}]


@pytest.mark.parametrize("field", NOT_PLAIN, ids=str)
def test_profiles_that_draw_or_say_something_remember_nothing(field: dict[str, str]) -> None:
    x = encodings(np.bfloat16, (4, 4))
    functions = (
        np.sum,
        np.mean,
        np.sort,
        np.argmax,
        np.exp,
        lambda v: v @ v,
        lambda v: v.astype(np.float16),
    )
    names = ("sum", "mean", "sort", "argmax", "exp", "matmul")
    with np.use_profile(**field) as profile:
        for function in functions:
            function(x)
        assert not any((name, np.bfloat16, None) in profile.eager for name in names)
        assert ("convert", np.bfloat16, np.float16) not in profile.eager
    with np.use_profile() as profile:
        for function in functions:
            function(x)
        assert all((name, np.bfloat16, None) in profile.eager for name in names)
        assert ("convert", np.bfloat16, np.float16) in profile.eager


def test_doors_are_pickled_and_watched_as_functions_are() -> None:
    for function in (np.sum, np.reshape, np.zeros, np.add, np.linalg.norm):
        assert pickle.loads(pickle.dumps(function)) is function
        assert copy.deepcopy(function) is function
        assert weakref.ref(function)() is function
    assert repr([np.linalg.norm, np.Array.sum]).count("<neuronsim function '") == 2
    assert inspect.signature(np.sum).parameters["axis"].default is None
    assert np.Array.sum.__doc__ == "The function `sum` of this array."


# ---- indices, numbers, memory -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DEVICE, ids=lambda t: t.name)
def test_C1_python_floats_and_conversions_are_the_tables(dtype: DType) -> None:
    for value in (0.1, -2.5, 1e30, math.inf, 3.0):
        wide = np.Array(Bits(numpy.asarray(value), np.float64))
        expected = evaluated("convert", wide, dtype=dtype)
        for _ in range(2):
            assert_same(np.asarray(value, dtype), expected)
            assert_same(wide.astype(dtype), expected)
    for source in DEVICE:
        x = encodings(source, (4, 6), 5)
        for v in (x, x.T[::2], x[0, 0], x[:0]):
            expected = evaluated("convert", v, dtype=dtype)
            for _ in range(2):
                assert_same(v.astype(dtype), expected)
    assert not numpy.shares_memory(x.astype(x.dtype).bits.data, x.bits.data)


def test_an_array_takes_few_bytes_beside_its_elements() -> None:
    data = numpy.ones(16, numpy.float32)
    made: list[Callable[[], np.Array]] = [
        lambda: np.asarray(data.copy()),
        lambda: np.zeros(16),
        lambda: np.exp(shared),
    ]
    shared = np.asarray(data)
    for make in made:
        kept: list[Any] = [None] * 500
        make()
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for n in range(len(kept)):
            kept[n] = make()
        each = (tracemalloc.get_traced_memory()[0] - before) / len(kept)
        tracemalloc.stop()
        assert each - data.nbytes < 200
    shared[0] = 7
    assert data[0] == 7  # one memory


def test_bits_are_not_changed_and_are_pickled() -> None:
    x = encodings(np.bfloat16, (3,)).bits
    with pytest.raises(AttributeError):
        x.dtype = np.float16
    found = pickle.loads(pickle.dumps(x))
    assert (found.dtype, found.data.tobytes()) == (x.dtype, x.data.tobytes())
    for wrong in ((), (x.data,), (x.data, x.dtype, 1)):
        with pytest.raises(TypeError):
            Bits(*wrong)
    for wrong in ((), (x.data,), (x, x)):
        with pytest.raises(TypeError):
            np.Array(*wrong)


def test_functions_and_methods_are_called_as_pythons_are() -> None:
    """Bound, unbound, with keywords, and not bound where a class holds them."""
    x = np.asarray([1.0, 4.0])

    class Layer:
        activation, total = np.sqrt, np.sum

    assert Layer().activation(x).tolist() == [1.0, 2.0]
    with pytest.raises(NeuronSimError):
        Layer().total(x)  # bound, as Python's functions are
    assert np.Array.__add__(x, x).tolist() == x.__add__(x).tolist() == [2.0, 8.0]
    assert x.__add__("a") is NotImplemented
    assert np.add(x, x, out=x).tolist() == [2.0, 8.0]
    assert (-x).tolist() == abs(-x).__neg__().tolist() == [-2.0, -8.0]
    with pytest.raises(TypeError):
        _core.Door(print, 5)
    with pytest.raises(TypeError):
        _core.Door.__new__(_core.Door)(x)
    with pytest.raises(TypeError):
        _core.use_arrays(np.Array, "no context variable")


def test_functions_are_freed_with_what_they_refer_to() -> None:
    made = np.Ufunc if hasattr(np, "Ufunc") else type(np.add)
    function = made("mine", lambda x: x, ("x",), "The array itself.")
    assert function(1) == 1
    watched = weakref.ref(function)
    del function
    gc.collect()
    assert watched() is None
