"""Functions that take, place and choose elements move bits (E6) as NumPy's do with integers of that
width, and those that give indices give NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from moved_bits import SHAPES, Call, assert_same, compare, every_pattern
from tests.support.parameters import each_of

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import IntegerOverflow, InvalidIndex, NeuronSimError

pytestmark = pytest.mark.isa_independent

TYPES = pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=lambda t: t.name)
PLACES = numpy.array([2, 0, -1, 0])


def line(x: Any) -> Any:
    return x.reshape(-1)


# ---- taking ----------------------------------------------------------------------------------------

TAKING: dict[str, Call] = {
    "take": lambda xp, x: xp.take(x, xp.asarray([0, 0, -1])),
    "take_list": lambda xp, x: xp.take(x, [[0], [-1]]),
    "take_one": lambda xp, x: xp.take(x, 0),
    "take_outside": lambda xp, x: xp.take(x, [99]),
    "take_wrap": lambda xp, x: xp.take(x, PLACES * 7, mode="wrap"),
    "take_clip": lambda xp, x: xp.take(x, PLACES * 7, mode="clip"),
    "take_rows": lambda xp, x: xp.take(x, [0, -1, 0], axis=0),
    "take_columns": lambda xp, x: xp.take(x, [[0], [0]], axis=-1),
    "take_missing_axis": lambda xp, x: xp.take(x, [0], axis=5),
    "take_along_axis": lambda xp, x: xp.take_along_axis(x, xp.zeros(x.shape, dtype="int64"), axis=0),
    "take_along_last": lambda xp, x: xp.take_along_axis(x, xp.zeros(x.shape, dtype="int64"), axis=-1),
    "take_along_missing": lambda xp, x: xp.take_along_axis(x, xp.asarray([0]), axis=4),
    "compress": lambda xp, x: xp.compress([True], x),
    "compress_rows": lambda xp, x: xp.compress([True], x, axis=0),
    "compress_outside": lambda xp, x: xp.compress([False] * 40 + [True], x),
    "compress_columns": lambda xp, x: xp.compress([False, True], x, axis=-1),
    "extract": lambda xp, x: xp.extract(xp.ones(x.shape, dtype="bool"), x),
    "choose": lambda xp, x: xp.choose(xp.zeros(x.shape, dtype="int64"), [x, x]),
    "choose_outside": lambda xp, x: xp.choose(3, [x, x]),
    "select": lambda xp, x: xp.select([xp.zeros(x.shape, dtype="bool"), xp.asarray(True)], [x, x], x),
    "select_uneven": lambda xp, x: xp.select([xp.asarray(True)], [x, x]),
}


@TYPES
def test_taking_moves_the_bits_of_every_type_E6(dtype: DType) -> None:
    results = 0
    for shape in SHAPES:
        x, words = every_pattern(dtype, shape)
        for call in TAKING.values():
            results += compare(call, x, words)
    assert results > len(TAKING) * len(SHAPES) // 2


@pytest.mark.parametrize("kind", ["int8", "int32", "int64", "uint8", "uint32", "uint64"])
def test_indices_are_of_every_integer_type(kind: str) -> None:
    x = np.asarray([1.0, 2.0, 3.0], "bfloat16")
    places = np.asarray([2, 0], kind)
    assert np.take(x, places).tolist() == [3, 1]
    assert np.take_along_axis(x, places).tolist() == [3, 1]
    assert np.take(x, np.asarray([], kind)).shape == (0,)
    y = np.zeros(3, "bfloat16")
    np.put(y, places, [1.0, 2.0])
    assert y.tolist() == [2, 0, 1]


def test_taking_into_out() -> None:
    x = np.asarray([1.0, 2.0, 3.0])
    for call in (
        lambda out: np.take(x, [0, 2], out=out),
        lambda out: np.compress([True, False, True], x, out=out),
        lambda out: np.choose([0, 0], [[1.0, 3.0]], out=out),
    ):
        out = np.zeros(2, "bfloat16")
        assert call(out) is out
        assert out.tolist() == [1, 3]


def test_choices_take_their_common_type_C8() -> None:
    narrow, other = np.asarray([1.0, 2.0], "bfloat16"), np.asarray([3.0, 4.0], "float16")
    assert np.choose([0, 1], [narrow, other]).dtype is np.float32
    found = np.where(np.asarray([True, False]), np.ones((3, 1), dtype="bfloat16"), 0)
    assert (found.dtype, found.tolist()) == (np.bfloat16, [[1, 0]] * 3)
    assert np.where(np.asarray(True), 1.5, 2).tolist() == 1.5
    assert np.select([[True, False]], [narrow], 0.5).dtype is np.bfloat16
    assert np.select([[True, False], [True, True]], [narrow, other]).tolist() == [1, 4]
    with pytest.raises(TypeError):
        np.select([[1, 0]], [narrow])


def test_conditions_are_the_truth_of_any_type_C6() -> None:
    for dtype in (t for t in DTYPES.values() if t.kind in ("float", "complex")):
        condition = np.asarray([0.0, -0.0, 1.0, numpy.nan], dtype)
        assert np.compress(condition, [1, 2, 3, 4]).tolist() == [3, 4]
        assert np.flatnonzero(condition).tolist() == [2, 3]
        assert np.where(condition, 1, 2).tolist() == [2, 2, 1, 1]
    for dtype in DTYPES.values():
        assert np.where(np.asarray([0, 1], dtype), 1, 2).tolist() == [2, 1]
    assert np.where([3, 0], [1, 2], 9).tolist() == [1, 9]
    assert np.where(np.asarray(1j), 1, 2).shape == np.asarray(1j).astype(bool).bits.data.shape == ()


@pytest.mark.parametrize(
    ("conditions", "functions"),
    [
        (lambda x: [x < 0, x >= 0], [lambda v: -v, lambda v: v * 2]),
        (lambda x: [x < 0], [7, lambda v: v + 1]),
        (lambda x: numpy.asarray([x < 0, x > 1]), [5, 6, 7]),
        (lambda x: [x > 99], [lambda v: v / 0]),
    ],
)
def test_piecewise_is_numpys_on_exact_values(conditions: Any, functions: Any) -> None:
    for values in ([-2.0, -0.5, 0.0, 3.0], [[-1.0, 2.0]]):
        x = numpy.asarray(values, numpy.float32)
        for dtype in ("float32", "bfloat16", "tfloat32"):
            y = np.asarray(values, dtype)
            found = np.piecewise(y, conditions(y), functions)
            assert found.dtype.name == dtype
            assert found.tolist() == numpy.piecewise(x, conditions(x), functions).tolist()
    line = np.asarray([-1.0, 2.0])
    assert np.piecewise(line, line < 0, [5]).tolist() == [5, 0]
    assert np.piecewise([], [[]], [5]).tolist() == []
    with pytest.raises(ValueError, match="piecewise"):
        np.piecewise(np.ones(2), [[True, False]], [1, 2, 3])


# ---- placing ---------------------------------------------------------------------------------------

PLACING: dict[str, Call] = {
    "put": lambda xp, x: xp.put(x, [0, -1], line(x)[:2]),
    "put_outside": lambda xp, x: xp.put(x, [99], line(x)[:1]),
    "put_wrap": lambda xp, x: xp.put(x, PLACES * 5, line(x)[:3], mode="wrap"),
    "put_clip": lambda xp, x: xp.put(x, PLACES * 5, line(x)[:3], mode="clip"),
    "put_along_axis": lambda xp, x: xp.put_along_axis(
        x, xp.zeros((*x.shape[:-1], 1), dtype="int64"), line(x)[-1:], axis=-1
    ),
    "put_along_missing": lambda xp, x: xp.put_along_axis(x, xp.asarray([0]), line(x)[:1], axis=7),
    "place": lambda xp, x: xp.place(x, xp.ones(x.shape, dtype="bool"), line(x)[1:3]),
    "putmask": lambda xp, x: xp.putmask(x, xp.ones(x.shape, dtype="bool"), line(x)[1:]),
    "fill_diagonal": lambda xp, x: xp.fill_diagonal(x, line(x)[-1:]),
    "fill_diagonal_wrap": lambda xp, x: xp.fill_diagonal(x, line(x)[-1:], wrap=True),
}


@TYPES
@pytest.mark.parametrize("name", PLACING)
def test_placing_moves_the_bits_of_every_type_E6(dtype: DType, name: str) -> None:
    for shape in [(4,), (3, 3), (5, 2), (2, 2, 2), (2, 3, 2)]:
        x, words = every_pattern(dtype, shape)
        x, words = np.copy(x), words.copy()
        compare(PLACING[name], x, words)
        assert_same(x, words)


@each_of("name", PLACING)
def test_placing_writes_through_views(name: str) -> None:
    x, words = every_pattern(np.bfloat16, (4, 4))
    x, words = np.copy(x), words.copy()
    compare(PLACING[name], x[::2, ::-1], words[::2, ::-1])
    assert_same(x, words)


def test_placing_converts_by_rules_C() -> None:
    for call in (
        lambda x, v: np.put(x, [0], v),
        lambda x, v: np.put_along_axis(x, np.asarray([0]), v, axis=0),
        lambda x, v: np.place(x, [True, False, False], v),
        lambda x, v: np.putmask(x, [True, False, False], v),
        lambda x, v: np.fill_diagonal(x.reshape(3, 1), v),
    ):
        x = np.zeros(3, "bfloat16")
        call(x, 1 + 2**-8 + 2**-40)  # C1: one rounding
        assert x.tolist() == [1.0078125, 0, 0]
        y = np.zeros(3, "int8")
        call(y, np.asarray(-1.5))  # C6
        assert y.tolist() == [-1, 0, 0]
        with pytest.raises(IntegerOverflow):
            call(y, 300)
        with pytest.raises(TypeError):
            call(x, 1j)
        with pytest.raises(ValueError, match="read-only"):
            call(np.broadcast_to(np.ones(1), 3), 0)
        native = numpy.zeros(3, numpy.float32)
        call(native, 2)
        assert native.tolist() == [2, 0, 0]


# ---- indices ---------------------------------------------------------------------------------------

INDICES: dict[str, Call] = {
    "argwhere": lambda xp, x: xp.argwhere(x),
    "flatnonzero": lambda xp, x: xp.flatnonzero(x),
    "nonzero": lambda xp, x: xp.nonzero(x),
    "diag_indices_from": lambda xp, x: xp.diag_indices_from(x),
    "tril_indices_from": lambda xp, x: xp.tril_indices_from(x, 1),
    "triu_indices_from": lambda xp, x: xp.triu_indices_from(x, -1),
}


@each_of("name", INDICES)
@each_of("dtype", ["int8", "bool", "uint64"])
def test_indices_of_an_array_are_numpys(dtype: str, name: str) -> None:
    for shape in [*SHAPES, (3, 3)]:
        words = numpy.random.default_rng(3).integers(0, 2, shape).astype(dtype)
        compare(INDICES[name], np.asarray(words.copy()), words)


@TYPES
def test_nonzero_goes_by_value_and_not_by_bits_C6(dtype: DType) -> None:
    values = [0.0, 1.0, 0.0] if dtype.kind in ("bool", "signed", "unsigned") else [0.0, 1.0, -0.0]
    x = np.asarray([values], dtype)
    assert [i.tolist() for i in np.nonzero(x)] == [[0], [1]]
    assert all(i.dtype is np.int64 for i in np.nonzero(x))
    assert np.argwhere(x).tolist() == [[0, 1]]


CALLS: dict[str, Callable[[Any], Any]] = {
    "diag_indices": lambda xp: xp.diag_indices(3, 3),
    "ix_": lambda xp: xp.ix_([0, 2], xp.asarray([True, False, True]), [1]),
    "ix_empty": lambda xp: xp.ix_([], [1]),
    "ravel_multi_index": lambda xp: xp.ravel_multi_index(xp.asarray([[1, 0], [2, 2]]), (2, 3)),
    "ravel_multi_index_modes": lambda xp: xp.ravel_multi_index(
        ([5, 1], [-1, 9]), (2, 3), mode=("clip", "wrap")
    ),
    "ravel_multi_index_columns": lambda xp: xp.ravel_multi_index((1, 2), (2, 3), order="F"),
    "tril_indices": lambda xp: xp.tril_indices(3, -1, 5),
    "triu_indices": lambda xp: xp.triu_indices(4, 1),
    "unravel_index": lambda xp: xp.unravel_index(xp.asarray([[5, 0]]), (2, 3)),
    "unravel_index_columns": lambda xp: xp.unravel_index(4, (2, 3), order="F"),
}


@each_of("name", CALLS)
def test_indices_are_numpys(name: str) -> None:
    assert_same(CALLS[name](np), CALLS[name](numpy))


def test_every_element_with_its_index() -> None:
    for shape in SHAPES:
        x, words = every_pattern(np.float8_e3m4, shape)
        found = list(np.ndenumerate(x))
        assert [i for i, _ in found] == [i for i, _ in numpy.ndenumerate(words)]
        assert [v.tobytes() for _, v in found] == [v.tobytes() for _, v in numpy.ndenumerate(words)]
        assert list(np.ndindex(shape)) == list(numpy.ndindex(shape))


@each_of(
    ("call", "kind"),
    [
        (lambda: np.take(np.ones(3), [1.5]), TypeError),
        (lambda: np.take(np.ones(3), np.asarray([2**63], "uint64")), IndexError),
        (lambda: np.take(np.ones(0), [0]), IndexError),
        (lambda: np.take(np.ones(3), [0], mode="near"), ValueError),
        (lambda: np.take_along_axis(np.ones((2, 2)), [0], axis=0), ValueError),
        (lambda: np.put([1, 2], [0], 1), TypeError),
        (lambda: np.place(np.ones(2), [True], [1]), ValueError),
        (lambda: np.putmask(np.ones(2), [True], [1]), ValueError),
        (lambda: np.place(np.ones(2), [True, True], []), ValueError),
        (lambda: np.fill_diagonal(np.ones(2), 1), ValueError),
        (lambda: np.nonzero(np.asarray(1)), ValueError),
        (lambda: np.ix_([[1]]), ValueError),
        (lambda: np.ix_([1.5]), TypeError),
        (lambda: np.unravel_index(6, (2, 3)), ValueError),
        (lambda: np.unravel_index(1.5, (2, 3)), TypeError),
        (lambda: np.ravel_multi_index(([2], [0]), (2, 3)), ValueError),
        (lambda: np.diag_indices_from(np.ones((2, 3))), ValueError),
        (lambda: np.tril_indices_from(np.ones(2)), ValueError),
        (lambda: np.select([], []), ValueError),
        (lambda: np.choose([0, 1, 2], [[1, 2], [3, 4]]), ValueError),
    ],
)
def test_wrong_arguments_are_refused(call: Callable[[], Any], kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, NeuronSimError)


def test_ix_keeps_the_types_of_integers() -> None:
    arguments = (numpy.asarray([1, 2], "uint8"), numpy.asarray([0], "int32"), numpy.asarray([True]))
    found = np.ix_(*map(np.asarray, arguments))
    assert [i.dtype.name for i in found] == [str(i.dtype) for i in numpy.ix_(*arguments)]


@pytest.mark.parametrize("far", [2**62, -(2**62) - 1, 2**40])
def test_indices_far_outside_come_in_on_the_other_side_at_once(far: int) -> None:
    """NumPy goes round once for each time that an index contains the length: hours."""
    x = np.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], "bfloat16")
    flat = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    for mode in ("wrap", 1):
        assert np.take(x, [far], mode=mode).tolist() == [flat[far % 6]]
        assert np.take(x, [far], axis=1, mode=mode).tolist() == [[1.0 + far % 3], [4.0 + far % 3]]
        assert x.take(far, axis=-2, mode=mode).tolist() == flat[:3] if far % 2 == 0 else flat[3:]
        assert np.choose([far], [7, 8, 9], mode=mode).tolist() == [7 + far % 3]
        for put in (np.put, np.Array.put):
            written = x.copy()
            put(written, [far], 9, mode=mode)
            assert written.reshape(-1).tolist() == [
                9.0 if i == far % 6 else v for i, v in enumerate(flat)
            ]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (0, 1, 0)])
def test_no_index_comes_in_on_the_other_side_of_nothing(shape: tuple[int, ...]) -> None:
    """NumPy never ends where another axis has no elements either."""
    x = np.zeros(shape)
    with pytest.raises(InvalidIndex, match="no other side"):
        np.take(x, [0], axis=0, mode="wrap")
    with pytest.raises(InvalidIndex):
        np.put(x, [0], 1, mode="wrap")
    assert np.take(x, np.zeros(0, "int32"), axis=0, mode="wrap").shape == shape
