"""Ufunc: its keywords and methods against NumPy's where those are exact, and against the slow twin."""

from __future__ import annotations

import copy
import inspect
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from tests.support.draws import encodings
from tests.support.parameters import each_of
from tests.support.words import assert_same, of_words, word_list

import neuronsim as np
from neuronsim.arrays.ufuncs import Ufunc
from neuronsim.dtypes import DTYPES
from neuronsim.errors import (
    IntegerOverflow,
    InvalidArgument,
    InvalidIndex,
    NeuronSimError,
    UnsupportedType,
)
from neuronsim.reference import elementwise as twin
from neuronsim.reference.formats import decode, round_number

pytestmark = pytest.mark.isa_independent

OURS = {name: f for name in np.__all__ if isinstance(f := getattr(np, name), Ufunc)}
NUMPYS = {n: f for n in dir(numpy) if isinstance(f := getattr(numpy, n), numpy.ufunc)}
# Functions of times, and products of matrices, which are functions of linalg.
NOT_UFUNCS = {"isnat", "matmul", "matvec", "vecdot", "vecmat"}
INTEGER_PAIRS = [
    *("add", "subtract", "multiply", "maximum", "minimum", "fmax", "fmin", "gcd"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor"),
]
RNG = numpy.random.default_rng(8)
N = RNG.integers(-50, 50, (4, 5))
B = numpy.array([0x3F81, 0xBE23, 0x4049, 0x3EAB, 0xC2F7, 0x3D10], numpy.uint16)  # of bfloat16


def bfloat16(found: Any) -> np.Array:
    return of_words(found, np.bfloat16)


def step(name: str, a: int, b: int) -> int:
    """The twin's result of a row on two bfloat16 words."""
    wide = [round_number("float32", decode("bfloat16", w)) for w in (a, b)]
    return round_number("bfloat16", decode("float32", twin.FLOAT[name](*wide)))


# ---- what it is --------------------------------------------------------------------------------------


def test_every_ufunc_of_numpy_is_one_here() -> None:
    assert set(NUMPYS) - set(OURS) == NOT_UFUNCS
    for name in set(NUMPYS) & set(OURS):
        theirs, ours = NUMPYS[name], OURS[name]
        assert (ours.nin, ours.nout, ours.nargs) == (theirs.nin, theirs.nout, theirs.nargs), name
        assert ours.identity == theirs.identity, name


@each_of("name", OURS)
def test_parameters_are_positional_and_then_numpys(name: str) -> None:
    parameters = list(inspect.signature(OURS[name]).parameters.values())
    operands, keywords = parameters[: OURS[name].nin], parameters[OURS[name].nin :]
    assert {p.kind for p in operands} == {inspect.Parameter.POSITIONAL_ONLY}
    assert all(p.default is p.empty for p in operands)
    assert [p.name for p in keywords] == ["out", "where", "dtype", "casting", "order", "subok"]
    assert OURS[name].__doc__


def test_a_copy_and_a_pickle_are_the_function_itself() -> None:
    for function in OURS.values():
        assert pickle.loads(pickle.dumps(function)) is function
        assert copy.deepcopy(function) is function
    assert repr(np.add) == "<neuronsim ufunc 'add'>"


# ---- keywords ----------------------------------------------------------------------------------------


def test_out_takes_the_result_and_is_given_back() -> None:
    x = np.asarray([1.5, -2.25, 3.0], "bfloat16")
    for given in ({"out": True}, {"out": ()}, None):
        out = np.zeros(3, dtype="float32")
        if given is None:
            found = np.add(x, x, out)
        else:
            found = np.add(x, x, out=(out,) if given["out"] == () else out)
        assert found is out
        assert out.tolist() == [3, -4.5, 6]
    view = np.zeros((3, 4), dtype="bfloat16")
    np.negative(x, out=view[:, 1])
    assert view[:, 1].tolist() == [-1.5, 2.25, -3]
    assert view[:, 0].tolist() == [0, 0, 0]
    fraction, whole = np.zeros(3), np.zeros(3)
    assert np.modf(x, out=(fraction, whole))[1] is whole
    assert (fraction.tolist(), whole.tolist()) == ([0.5, -0.25, 0], [1, -2, 3])


def test_out_of_another_kind_or_shape_is_refused() -> None:
    x = np.asarray([1.5, 2.0])
    with pytest.raises(UnsupportedType, match="same_kind"):
        np.add(x, x, out=np.zeros(2, dtype="int32"))
    assert np.add(x, x, out=np.zeros(2, dtype="int32"), casting="unsafe").tolist() == [3, 4]
    with pytest.raises(InvalidArgument):
        np.add(x, x, out=np.zeros(3))
    with pytest.raises(InvalidArgument, match="2 arrays"):
        np.modf(x, out=x)


@pytest.mark.parametrize("name", ["add", "multiply", "less", "floor_divide"])
def test_where_leaves_the_others_of_out_and_gives_zeros_without(name: str) -> None:
    a, b = N, N[::-1] * 2 + 1
    mask = a > 0
    kept = numpy.full(a.shape, 7).astype(getattr(numpy, name)(a, b).dtype)
    for out in (kept, numpy.zeros_like(kept)):
        expected = out.copy()
        getattr(numpy, name)(a, b, out=expected, where=mask)
        target = np.asarray(out, copy=True)
        assert_same(getattr(np, name)(np.asarray(a), b, out=target, where=np.asarray(mask)), expected)
    assert_same(getattr(np, name)(np.asarray(a), b, where=mask), expected)
    with pytest.raises(UnsupportedType, match="bool"):
        np.add(np.asarray(a), b, where=np.asarray(a))


def test_dtype_converts_the_operands_first() -> None:
    x = np.asarray([1 + 2**-7, 3.0])
    found = np.add(x, 2**-9, dtype=np.bfloat16)
    assert (found.dtype, found.tolist()) == (np.bfloat16, [1 + 2**-7, 3.0])
    assert np.add(np.asarray([200], "uint8"), 100, dtype="int64").tolist() == [300]
    assert np.less(x, 2, dtype="bool").tolist() == [True, False]
    assert np.sqrt(np.asarray([4]), dtype="float16").dtype is np.float16
    for call in (
        lambda: np.add(x, x, dtype="int32"),
        lambda: np.add(np.asarray([1]), 0.5, dtype="int32"),
        lambda: np.sqrt(np.asarray([1]), dtype="int32"),
        lambda: np.less(x, x, dtype="float32"),
        lambda: np.add(x, x, dtype="bfloat16", casting="safe"),
    ):
        with pytest.raises(UnsupportedType):
            call()
    with pytest.raises(InvalidArgument, match="casting"):
        np.add(x, x, dtype="float32", casting="any")


def test_wrong_calls_are_type_errors_that_name_the_function() -> None:
    x = np.asarray([1.0])
    for call in (lambda: np.add(x), lambda: np.add(x, x, x, x), lambda: np.add(x, x, x, out=x)):
        with pytest.raises(TypeError, match=r"add\(\) takes 2 arrays"):
            call()
    with pytest.raises(TypeError, match=r"'otu' \(did you mean 'out'\?\)"):
        np.add(x, x, otu=x)


# ---- methods -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1, None, (0, 1)])
def test_reduce_of_integers_is_numpys(axis: Any) -> None:
    for name in INTEGER_PAIRS:
        # Of several axes NumPy has no order of subtractions.
        if name != "subtract" or axis in (0, 1, -1):
            check_reduce(name, axis)


def check_reduce(name: str, axis: Any) -> None:
    theirs, ours = getattr(numpy, name), getattr(np, name)
    for x, keepdims in itertools.product((N, N.T[::2], N[:, :1]), (False, True)):
        expected = numpy.asarray(theirs.reduce(x, axis=axis, keepdims=keepdims))
        assert_same(ours.reduce(np.asarray(x), axis=axis, keepdims=keepdims), expected)
    expected = numpy.asarray(theirs.reduce(N, axis=0, initial=5))
    assert_same(ours.reduce(np.asarray(N), axis=0, initial=5), expected)


@each_of("name", INTEGER_PAIRS)
def test_accumulate_outer_and_reduceat_of_integers_are_numpys(name: str) -> None:
    theirs, ours = getattr(numpy, name), getattr(np, name)
    for axis in (0, 1, -1):
        assert_same(ours.accumulate(np.asarray(N), axis), theirs.accumulate(N, axis))
        expected = theirs.reduceat(N, [0, 2, 1, 3], axis)
        assert_same(ours.reduceat(np.asarray(N), [0, 2, 1, 3], axis), expected)
    assert_same(ours.outer(np.asarray(N), N[0]), theirs.outer(N, N[0]))
    assert_same(ours.outer(N[0], np.asarray(3)), theirs.outer(N[0], numpy.int64(3)))


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "subtract"])
def test_R2_reduceat_reduces_every_part_as_it_is_reduced_alone(name: str) -> None:
    """Parts of one length are reduced at once."""
    function, starts = getattr(np, name), [0, 7, 7, 140, 290, 300, 293, 1]
    for dtype, axis in itertools.product(("bfloat16", "float32", "int8"), (0, 1)):
        x = drawn(np.dtype(dtype), (301, 301), 4, "near")
        lines = x if axis == 0 else x.T
        parts = [
            function.reduce(lines[start:stop]) if start < stop else lines[start]
            for start, stop in itertools.pairwise([*starts, 301])
        ]
        found = function.reduceat(x, starts, axis)
        assert_same(found if axis == 0 else found.T, np.stack(parts))
    assert np.add.reduceat(np.zeros((3, 4)), [], 1).shape == (3, 0)


@pytest.mark.parametrize("name", ["add", "maximum"])
def test_reduceat_is_traced(name: str) -> None:
    x = numpy.arange(12, dtype="float32").reshape(2, 6)
    program = np.jit(lambda v: getattr(np, name).reduceat(v, [0, 2, 5, 1, 4], 1))
    assert_same(program(x), getattr(numpy, name).reduceat(x, [0, 2, 5, 1, 4], 1))


@each_of("method", ["reduce", "accumulate"])
@each_of("count", [1, 8, 40])
@each_of("name", ["subtract", "divide", "hypot"])
def test_steps_one_after_the_other_are_traced(name: str, count: int, method: str) -> None:
    """Of few steps and of so many that one call of the core takes them all in an array."""
    x = np.asarray(numpy.linspace(1, 2, 3 * count).reshape(count, 3), "bfloat16")
    function = getattr(getattr(np, name), method)
    assert_same(np.jit(function)(x, 0), function(x, 0))


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor", "bitwise_and"])
def test_reduce_starts_from_the_identity_and_leaves_out(name: str) -> None:
    for x in (N, N.astype("uint8"), N > 0):
        if name == "bitwise_and" or x.dtype != bool:
            mask = numpy.asarray(N) % 3 == 0
            expected = getattr(numpy, name).reduce(x, axis=0, where=mask)
            assert_same(getattr(np, name).reduce(np.asarray(x), axis=0, where=mask), expected)
        assert_same(
            getattr(np, name).reduce(np.asarray(x[:0]), axis=0),
            getattr(numpy, name).reduce(x[:0], axis=0),
        )
    with pytest.raises(InvalidArgument, match="no elements"):
        np.subtract.reduce(np.zeros((0, 2)))
    with pytest.raises(InvalidArgument, match="identity"):
        np.subtract.reduce(np.zeros((2, 2)), where=[True, False])


@pytest.mark.parametrize("name", ["subtract", "divide", "hypot", "logaddexp", "atan2", "power"])
def test_other_folds_round_every_step(name: str) -> None:
    """From the first to the last, in bfloat16, against the twin."""
    line = [w & 0x7FFF for w in B.tolist()] if name == "power" else B.tolist()
    steps = list(itertools.accumulate(line, lambda a, b: step(name, a, b)))
    ours = getattr(np, name)
    assert word_list(ours.accumulate(bfloat16(line))) == steps
    assert_same(ours.reduce(bfloat16(line)), of_words(steps[-1:], np.bfloat16, ()))
    # The control: from the last to the first is another line of numbers.
    backwards = list(itertools.accumulate(line[::-1], lambda a, b: step(name, a, b)))
    assert backwards[1:] != steps[1:]


FOLDED = [
    *("subtract", "divide", "hypot", "logaddexp", "power", "floor_divide", "maximum"),
    *("bitwise_and", "bitwise_xor"),
]


@pytest.mark.parametrize("shape", [(70,), (40, 3), (35, 300)])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=lambda t: t.name)
def test_R5_folds_of_many_elements_are_one_step_after_the_other_in_every_type(
    dtype: np.DType, shape: tuple[int, ...]
) -> None:
    """As a loop of them has it, whether one call of the core, NumPy (H1) or neither does it."""
    keep = numpy.random.default_rng(4).random(shape) < 0.5
    for name, mode in itertools.product(FOLDED, ("near", "special")):
        function, x = getattr(np, name), drawn(dtype, shape, 1, mode)
        try:
            lines = [*x.astype(function(x[:0], x[:0]).dtype)]
            expected = [*itertools.accumulate(lines, function)]
        except (UnsupportedType, InvalidArgument):
            continue
        assert_same(function.accumulate(x), np.stack(expected))
        if name == "maximum":  # which reduces by R2
            continue
        if function.identity is None:
            assert_same(function.reduce(x), expected[-1])
        chosen = np.full_like(lines[0], 1)
        for line, kept in zip(lines, keep, strict=True):
            chosen = np.where(kept, function(chosen, line), chosen)
        assert_same(function.reduce(x, initial=1, where=keep), chosen)


def test_at_applies_one_index_after_the_other_R5() -> None:
    """Each application is rounded to the type, as the twin rounds it."""
    indices = [0, 2, 0, 0, 5, 2, 0]
    addends = [0x4380, 0x3C10, 0xC380, 0x3B81, 0x4120, 0xBE23, 0x3B80]  # the first 256, the third -256

    def applied(pairs: Any) -> list[int]:
        expected = B.tolist()
        for i, w in pairs:
            expected[i] = step("add", expected[i], w)
        return expected

    pairs = list(zip(indices, addends, strict=True))
    x = bfloat16(B.copy())
    assert np.add.at(x, indices, bfloat16(addends)) is None
    assert word_list(x) == applied(pairs)
    assert applied(pairs) != applied(pairs[::-1])  # the control


def test_at_takes_every_index_and_views() -> None:
    for index, value in (((slice(None), [1, 1, 0]), N[:, :3]), (N > 3, 2), ((0, [0, 0]), [1, 2])):
        expected = N.copy()
        numpy.multiply.at(expected, index, value)
        x = np.asarray(N, copy=True)
        np.multiply.at(x, index, value)
        assert_same(x, expected)
    expected, own = N.copy(), np.asarray(N, copy=True)
    numpy.subtract.at(expected.T[::2], [1, 1], 3)
    np.subtract.at(own.T[::2], np.asarray([1, 1]), 3)
    assert_same(own, expected)
    np.negative.at(own, ([0, 0, 1], [0, 0, 1]))
    numpy.negative.at(expected, ([0, 0, 1], [0, 0, 1]))
    assert_same(own, expected)
    with pytest.raises(UnsupportedType, match="float32"):
        np.add.at(own, [0], 0.5)
    with pytest.raises(InvalidArgument, match="broadcast"):
        np.add.at(own, [0, 1], numpy.ones((3, 5), numpy.int64))


SCATTERED = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "bitwise_xor"]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=lambda t: t.name)
def test_at_is_one_operation_after_the_other_in_every_type_R5(dtype: np.DType) -> None:
    """As a loop of them has it, whether a scatter of the core, NumPy (H1) or neither does it."""
    places = numpy.random.default_rng(3).integers(0, 7, 60)
    for name, mode in itertools.product(SCATTERED, ("near", "special")):
        function, updates = getattr(np, name), drawn(dtype, (60,), 1, mode)
        expected = drawn(dtype, (7,), 2, mode)
        own = np.zeros((7, 2), dtype)[:, 0]  # which does not lie densely
        own[...] = expected
        try:
            for place, update in zip(places.tolist(), updates, strict=True):
                expected[place] = function(expected[place], update)
        except (UnsupportedType, InvalidArgument):
            with pytest.raises((UnsupportedType, InvalidArgument)):
                function.at(own, places, updates)
            continue
        if function(own, own).dtype is dtype:
            function.at(own, places, updates)
            assert_same(own, expected)


def drawn(dtype: np.DType, shape: tuple[int, ...], seed: int, mode: str) -> np.Array:
    if dtype.code is not None:
        return encodings(dtype, shape, seed, mode)
    return np.asarray(numpy.random.default_rng(seed).normal(size=shape), dtype)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_at_of_many_complex_factors_is_one_product_after_the_other_R5_H1(dtype: str) -> None:
    rng = numpy.random.default_rng(8)
    factors = np.asarray((rng.normal(size=40) + 1j * rng.normal(size=40)).astype(dtype))
    x = expected = np.ones(1, dtype=dtype)
    x = x.copy()
    np.multiply.at(x, numpy.zeros(40, int), factors)
    for k in range(40):
        expected = expected * factors[k]
    assert_same(x, expected)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_R2_reduce_of_limits_takes_a_type(name: str) -> None:
    x = numpy.asarray([[1.5, 2.0004883], [3.25, -1.0]], "float32")
    for axis in (None, 0, 1):
        found = getattr(np, name).reduce(x, axis=axis, dtype="float16")
        assert_same(found, getattr(numpy, name).reduce(x, axis=axis, dtype="float16"))


def test_C8_at_takes_numbers_and_narrower_types_as_the_operation_does() -> None:
    x = np.asarray([1.0, 2.0], "bfloat16")
    np.add.at(x, [0, 0], 2**-8)
    np.multiply.at(x, [1], np.asarray([3], "int8"))
    assert x.tolist() == [1, 6]
    np.add.at(x, [0, 0], True)
    assert x.tolist() == [3, 6]
    n = np.asarray([1, 2], "int8")
    np.add.at(n, [1, 1, 1], 127)
    assert n.tolist() == [1, 127]  # 2 + 3 * 127, in eight bits
    with pytest.raises(IntegerOverflow):
        np.add.at(n, [0], 128)


@pytest.mark.parametrize("default", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["add", "divide", "power", "sqrt", "maximum", "equal", "negative"])
def test_C8_functions_of_numbers_alone_are_those_of_arrays_of_their_type(
    name: str, default: str
) -> None:
    function: Any = getattr(np, name)
    before = np.default_dtype()
    np.set_default_dtype(default)
    try:
        for numbers in itertools.product((2, 0.1, -0.0, 3.25, numpy.nan), repeat=function.nin):
            common = np.result_type(*map(np.asarray, numbers))
            arrays = [np.asarray(x, dtype=common) for x in numbers]
            for _ in range(2):  # by the ordinary way, then by what it remembers
                assert_same(function(*numbers), function(*arrays))
    finally:
        np.set_default_dtype(before)


def test_methods_that_a_function_does_not_have_are_refused() -> None:
    x = np.asarray([1.0, 2.0])
    for call, error in (
        (lambda: np.exp.reduce(x), InvalidArgument),
        (lambda: np.divmod.reduce(x), InvalidArgument),
        (lambda: np.exp.outer(x, x), InvalidArgument),
        (lambda: np.exp.at(x, [0], x), InvalidArgument),
        (lambda: np.add.at(x, [0]), InvalidArgument),
        (lambda: np.add.reduceat(x, [0.5]), InvalidArgument),
        (lambda: np.add.reduceat(x, [2]), InvalidIndex),
        (lambda: np.add.at(x, [2], 1), InvalidIndex),
        (lambda: np.add.at(x, [0.5], 1), InvalidIndex),
    ):
        with pytest.raises(error):
            call()


@each_of("shape", [(), (0,), (2, 0), (0, 1, 0, 3), (2, 1, 3)])
@each_of("name", INTEGER_PAIRS)
def test_methods_of_empty_arrays_are_numpys(name: str, shape: tuple[int, ...]) -> None:
    """Shapes, types, values and refusals, along every axis."""
    ours, theirs = getattr(np, name), getattr(numpy, name)
    none = numpy.zeros(0, numpy.int64)
    calls = {
        "reduce": lambda f, x, axis: f.reduce(x, axis=axis),
        "reduce and keep": lambda f, x, axis: f.reduce(x, axis=axis, keepdims=True),
        "accumulate": lambda f, x, axis: f.accumulate(x, axis=axis),
        "reduceat": lambda f, x, axis: f.reduceat(x, [0], axis=axis),
        "reduceat nothing": lambda f, x, axis: f.reduceat(x, none, axis=axis),
        "at nothing": lambda f, x, axis: f.at(x, none, 1),
    }
    x = numpy.ones(shape, numpy.int64)
    for method, call in calls.items():
        for axis in (0, -1, 1, (), None) if method.startswith("reduce") else (0, -1, 1):
            if not isinstance(axis, int) and method.startswith("reduceat"):
                continue
            try:
                expected = call(theirs, x.copy(), axis)
            except (IndexError, TypeError, ValueError) as error:
                if "not reorderable" not in str(error):
                    with pytest.raises(NeuronSimError):
                        call(ours, np.asarray(x.copy()), axis)
                continue
            found = call(ours, np.asarray(x.copy()), axis)
            assert (found is None) == (expected is None)
            if found is not None:
                assert_same(found, numpy.asarray(expected))


# ---- NumPy's protocol --------------------------------------------------------------------------------


@each_of("name", sorted(set(NUMPYS) - NOT_UFUNCS))
def test_numpys_ufunc_calls_ours(name: str) -> None:
    integral = name.startswith(("bit", "invert", "left", "right", "gcd", "lcm"))
    x = np.asarray([1, 2, 3]) if integral else np.asarray([0.25, 0.5, 1.0], "bfloat16")
    operands = [x, np.asarray([1, 2, 3])] if name == "ldexp" else [x] * NUMPYS[name].nin
    found, expected = NUMPYS[name](*operands), OURS[name](*operands)
    for f, e in zip(*((r if isinstance(r, tuple) else (r,)) for r in (found, expected)), strict=True):
        assert isinstance(f, np.Array)
        assert (f.dtype, f.tobytes()) == (e.dtype, e.tobytes())


def test_numpys_methods_and_keywords_call_ours() -> None:
    x, nd = np.asarray([1.5, -2.25, 4.0], "bfloat16"), numpy.ones(3, numpy.float32)
    assert numpy.add.reduce(x).dtype is np.bfloat16
    assert numpy.add.accumulate(x).tolist() == [1.5, -0.75, 3.25]
    assert numpy.multiply.outer(nd, x).shape == (3, 3)
    assert numpy.add.reduceat(x, [0, 1]).tolist() == [1.5, 1.75]
    assert numpy.add(x, nd, dtype=numpy.float64).dtype is np.float64
    assert numpy.add(x, 1, where=[True, False, True]).tolist() == [2.5, 0, 5]
    out = np.zeros(3)
    assert numpy.add(x, nd, out=out) is out
    assert numpy.add.reduce(x[None], axis=0, out=out) is out
    assert out.tolist() == x.tolist()
    numpy.add.at(out, [0, 0], x[:2])
    assert out.tolist() == [0.75, -2.25, 4]
    # NumPy's own array takes what it holds.
    assert numpy.add(x, nd, out=nd) is nd
    assert nd.tolist() == [2.5, -1.25, 5]
    with pytest.raises(UnsupportedType, match="same_kind"):
        numpy.add(x, nd, out=numpy.zeros(3, numpy.int32))
    nd += x
    assert nd.tolist() == [4, -3.5, 9]


def test_functions_that_are_not_numpys_are_refused() -> None:
    x = np.asarray([1.0])

    def exp(v: float) -> float:
        return v

    for call, error, said in (
        (lambda: numpy.frompyfunc(exp, 1, 1)(x), TypeError, "exp"),
        (lambda: numpy.frompyfunc(max, 2, 1)(x, x), TypeError, None),
        (lambda: numpy.add(x, x, out=numpy.zeros(1, int)), TypeError, None),
        (lambda: numpy.is_busday(x), TypeError, None),
        (lambda: numpy.sort_complex(x), TypeError, None),
        (lambda: numpy.isnat(x), TypeError, "did you mean 'isnan'"),
        (lambda: numpy.isnat(x), UnsupportedType, r"numpy\.isnat .*: .* no dates; or numpy\.asarray"),
        (lambda: numpy.busday_count(x, x), UnsupportedType, r"_count \(did you mean.*numpy\.asarray"),
        (lambda: x.__array_ufunc__(numpy.matmul, "reduce", x), UnsupportedType, r"matmul\.reduce"),
        (lambda: x.__array_ufunc__(numpy.isnat, "accumulate", x), UnsupportedType, "or numpy.asarray"),
    ):
        with pytest.raises(error, match=said):
            call()
    special = pytest.importorskip("scipy.special")
    for function in (special.erf, special.expit, special.exp10):
        with pytest.raises(UnsupportedType, match=r"numpy\.asarray"):
            function(x)


# ---- float64 and complex: the host's (H1) -----------------------------------------------------------


def test_H1_narrow_operands_are_widened() -> None:
    found = np.asarray([1.5, -2.25, 4.0], dtype="bfloat16") + numpy.array([1e-10, 0.0, 0.0])
    assert found.dtype is np.float64
    assert found.tolist() == [1.5 + 1e-10, -2.25, 4.0]


EXACT: dict[Callable[[Any], Any], Callable[[Any], Any]] = {
    np.mean: numpy.mean,
    np.sum: numpy.sum,
    np.max: numpy.max,
    np.nn.softmax: lambda v: numpy.exp(v - 3) / numpy.sum(numpy.exp(v - 3)),
    np.nn.layer_norm: lambda v: (v - v.mean()) / numpy.sqrt(v.var() + 1e-5),
}


@each_of("function", EXACT)
def test_H1_float64_is_never_computed_in_float32_in_silence(function: Callable[[Any], Any]) -> None:
    """Either NumPy's float64 result, or a refusal; 1 + 2^-40 is lost on the way through float32."""
    values = numpy.array([1 + 2.0**-40, 1 - 2.0**-40, 3.0])
    try:
        found = function(np.asarray(values))
    except NeuronSimError:
        return
    assert found.dtype is np.float64
    assert numpy.allclose(numpy.asarray(found), EXACT[function](values), rtol=1e-14, atol=0)


@pytest.mark.parametrize("shape", [(), (0,), (0, 2)])
@pytest.mark.parametrize("indices", [[0], [[0, -1]], 0])
def test_at_refuses_places_that_an_array_has_not(shape: tuple[int, ...], indices: Any) -> None:
    for ufunc, operands in ((np.add, (1,)), (np.negative, ())):
        with pytest.raises(InvalidIndex):
            ufunc.at(np.zeros(shape), indices, *operands)
