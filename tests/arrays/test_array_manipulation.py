"""Manipulation functions move bits (E6): on arrays of every type they do to the bits what NumPy's
functions do to integers of that width; views are views, and errors are of NumPy's classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from moved_bits import LAYOUTS, SHAPES, Call, assert_same, compare, every_pattern
from tests.support.parameters import each_of

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import (
    InvalidArgument,
    NeuronSimError,
    UnsupportedOperator,
    UnsupportedType,
)
from neuronsim.reference import formats

pytestmark = pytest.mark.isa_independent

TYPES = pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=lambda t: t.name)

# ---- every function, type, shape and axis ----------------------------------------------------------

OF_ONE = (
    *("atleast_1d", "atleast_3d", "flip", "fliplr", "flipud", "matrix_transpose", "ndim", "ravel"),
    *("shape", "size", "squeeze", "transpose"),
)
OF_A_PAIR = ("column_stack", "dstack", "hstack", "vstack")
CALLS: dict[str, Call] = {
    **{n: lambda xp, x, n=n: getattr(xp, n)(x) for n in OF_ONE},
    **{n: lambda xp, x, n=n: getattr(xp, n)([x, x]) for n in OF_A_PAIR},
    "atleast_2d": lambda xp, x: xp.atleast_2d(x, x),
    "broadcast_arrays": lambda xp, x: xp.broadcast_arrays(x, x[..., None]),
    "broadcast_to": lambda xp, x: xp.broadcast_to(x, (2, *x.shape)),
    "concatenate_all": lambda xp, x: xp.concatenate([x, x], axis=None),
    "delete_all": lambda xp, x: xp.delete(x, slice(0, 1)),
    "hsplit": lambda xp, x: xp.hsplit(x, 1),
    "vsplit": lambda xp, x: xp.vsplit(x, [1]),
    "dsplit": lambda xp, x: xp.dsplit(x, [1, 2]),
    "ravel_columns": lambda xp, x: xp.ravel(x, order="F"),
    "ravel_memory": lambda xp, x: xp.ravel(x, order="K"),
    "repeat_all": lambda xp, x: xp.repeat(x, 2),
    "reshape_row": lambda xp, x: xp.reshape(x, (1, -1)),
    "reshape_one": lambda xp, x: xp.reshape(x, x.size),
    "reshape_columns": lambda xp, x: xp.reshape(x, (x.size, 1), order="F"),
    "reshape_wrong": lambda xp, x: xp.reshape(x, (5, 7)),
    "resize": lambda xp, x: xp.resize(x, (3, 2)),
    "roll_all": lambda xp, x: xp.roll(x, 2),
    "rot90": lambda xp, x: [xp.rot90(x, k) for k in range(-1, 4)],
    "rot90_axes": lambda xp, x: xp.rot90(x, 1, (-1, 0)),
    "rot90_same": lambda xp, x: xp.rot90(x, 1, (0, 0)),
    "tile": lambda xp, x: xp.tile(x, (2, 1, 2)),
    "tile_once": lambda xp, x: xp.tile(x, 2),
    "block": lambda xp, x: xp.block([[x, x], [x, x]]),
}
BY_AXIS = ("expand_dims", "flip", "rollaxis", "size", "squeeze")
CALLS_OF_AXIS: dict[str, Callable[[Any, Any, int], Any]] = {
    **{n: lambda xp, x, axis, n=n: getattr(xp, n)(x, axis) for n in BY_AXIS},
    "array_split": lambda xp, x, axis: xp.array_split(x, 2, axis=axis),
    "concat": lambda xp, x, axis: xp.concat([x, x], axis=axis),
    "delete": lambda xp, x, axis: xp.delete(x, [0], axis=axis),
    "expand_dims_pair": lambda xp, x, axis: xp.expand_dims(x, (0, axis)),
    "moveaxis": lambda xp, x, axis: xp.moveaxis(x, axis, 0),
    "moveaxis_back": lambda xp, x, axis: xp.moveaxis(x, 0, axis),
    "moveaxis_pair": lambda xp, x, axis: xp.moveaxis(x, (axis, 0), (0, -1)),
    "permute_dims": lambda xp, x, axis: xp.permute_dims(x, (axis, *range(1, x.ndim))),
    "repeat": lambda xp, x, axis: xp.repeat(x, 3, axis=axis),
    "roll": lambda xp, x, axis: xp.roll(x, -1, axis=axis),
    "roll_twice": lambda xp, x, axis: xp.roll(x, (1, 2), axis=(axis, 0)),
    "rollaxis_to": lambda xp, x, axis: xp.rollaxis(x, 0, axis),
    "split": lambda xp, x, axis: xp.split(x, [1], axis=axis),
    "split_equally": lambda xp, x, axis: xp.split(x, 2, axis=axis),
    "split_by_none": lambda xp, x, axis: xp.split(x, 0, axis=axis),
    "stack": lambda xp, x, axis: xp.stack([x, x], axis=axis),
    "swapaxes": lambda xp, x, axis: xp.swapaxes(x, axis, 0),
    "unstack": lambda xp, x, axis: xp.unstack(x, axis=axis),
}


@TYPES
def test_functions_move_the_bits_of_every_type_E6(dtype: DType) -> None:
    for shape in SHAPES:
        x, words = every_pattern(dtype, shape)
        for call in CALLS.values():
            compare(call, x, words)
        for call_of_axis in CALLS_OF_AXIS.values():
            compare(lambda xp, v, f=call_of_axis: f(xp, v, -1), x, words)


@each_of("name", CALLS_OF_AXIS)
@each_of("dtype", [np.bfloat16, np.tfloat32], ids=lambda t: t.name)
def test_every_axis_of_every_shape_and_layout(dtype: DType, name: str) -> None:
    results = 0
    for shape in SHAPES:
        for layout in LAYOUTS.values():
            x, words = (layout(v) for v in every_pattern(dtype, shape))
            for axis in range(-len(shape) - 2, len(shape) + 2):
                call = CALLS_OF_AXIS[name]
                results += compare(lambda xp, v, f=call, a=axis: f(xp, v, a), x, words)
    assert results > 3 or name == "split_by_none"


@each_of("name", CALLS)
def test_every_layout(name: str) -> None:
    results = 0
    for shape in SHAPES:
        for layout in LAYOUTS.values():
            results += compare(CALLS[name], *(layout(v) for v in every_pattern(np.float8_e4m3, shape)))
    assert results > 3 or name in ("reshape_wrong", "rot90_same")


def test_a_function_that_moves_other_bits_is_found() -> None:
    """The control."""
    x, words = every_pattern(np.bfloat16, (2, 3))
    for wrong in (
        lambda xp, v: xp.roll(v, 1 if xp is np else 2),
        lambda xp, v: v.T if xp is np else v.T.copy(),
        lambda xp, v: xp.expand_dims(v, 0 if xp is np else 1),
    ):
        with pytest.raises(AssertionError):
            compare(wrong, x, words)


@TYPES
@pytest.mark.parametrize("mode", ["constant", "edge", "empty", "reflect", "symmetric", "wrap"])
def test_pad_moves_bits_E6(dtype: DType, mode: str) -> None:
    for shape in ((3,), (2, 3), (1, 2, 3)):
        for widths in (2, (1, 0), ((0, 1),) * len(shape), {0: 1}, {-1: (2, 3)}):
            kind = "constant" if mode == "empty" else mode
            x, words = every_pattern(dtype, shape)
            assert_same(np.pad(x, widths, mode), numpy.pad(words, widths, kind))
    x, words = every_pattern(dtype, ())
    assert_same(np.pad(x, 2, mode), numpy.pad(words, 2, kind))  # no axis, nothing to pad


# ---- views -----------------------------------------------------------------------------------------


def test_broadcast_views_are_read_only() -> None:
    for view in (np.broadcast_to(np.ones(1), 3), *np.broadcast_arrays(np.ones(1), np.ones(2))):
        assert not view.bits.data.flags.writeable


def test_reshape_takes_one_shape_and_an_order() -> None:
    with pytest.raises(UnsupportedType, match="order must be str"):
        np.reshape(np.arange(12), 6, 2)  # type: ignore[arg-type]
    assert np.reshape(np.arange(12), (6, 2)).shape == (6, 2)


def test_reshape_copies_as_it_is_told() -> None:
    x = np.zeros((2, 3), "float16")
    copied = np.reshape(x, (6,), copy=True)
    copied[0] = 1
    assert x[0, 0].item() == 0
    assert np.reshape(x, 6, copy=False).shape == (6,)
    with pytest.raises(InvalidArgument, match="needs a copy"):
        np.reshape(x.T, (6,), copy=False)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_C6_complex_to_bool_is_whether_a_number_is_not_zero(dtype: str) -> None:
    numbers = [0j, complex(-0.0, 0.0), 1j, complex(0, numpy.nan), 2 + 0j, complex(-numpy.inf, 0)]
    z = np.asarray(numbers, dtype)
    expected = [False, False, True, True, True, True]
    for found in (np.astype(z, np.bool), z.astype(bool), np.asarray(numbers, dtype=np.bool)):
        assert (found.tolist(), found.dtype) == (expected, np.bool)
    assert np.astype(z[0], np.bool).shape == ()


def test_astype_copies_unless_told_otherwise() -> None:
    x = np.ones(2, "bfloat16")
    assert np.astype(x, "bfloat16", copy=False) is x
    copied = np.astype(x, "bfloat16")
    copied[0] = 2
    assert x.tolist() == [1, 1]
    for empty in (np.ones((0, 2)), np.zeros(0, np.bool)):
        copies = np.astype(empty, empty.dtype), empty.astype(empty.dtype), np.asarray(empty, copy=True)
        assert all(found is not empty for found in copies)
    assert np.astype(x, "float32", device="trn1").dtype is np.float32
    assert np.asarray([1.5]).astype("complex64").tolist() == [1.5 + 0j]
    with pytest.raises(UnsupportedType, match="real part"):  # C6
        np.asarray([1j]).astype("float32")
    with pytest.raises(InvalidArgument, match="device"):
        np.astype(x, "float32", device="gpu")


TRANSPOSES: dict[str, Callable[[np.Array], np.Array]] = {
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "the method": lambda x: x.transpose(),
    "permute_dims": lambda x: np.permute_dims(x, (1, 0)),
    "matrix_transpose": lambda x: np.matrix_transpose(x),
    "swapaxes": lambda x: np.swapaxes(x, 0, 1),
    "moveaxis": lambda x: np.moveaxis(x, 0, 1),
}


@each_of("name", TRANSPOSES)
def test_A3_every_transpose_is_the_same(name: str) -> None:
    x = np.asarray([[1.0, -0.0], [numpy.inf, 2.0]])
    view = TRANSPOSES[name](x)
    assert view.tobytes() == x.bits.data.T.tobytes()
    view[0, 0] = 7.0
    assert x[0, 0] == 7.0
    with np.use_profile(transpose="tensor_engine"):
        moved = TRANSPOSES[name](x)
    # M8: the infinity in row 1 makes NaN of what shares its product, and -0 becomes +0.
    assert numpy.isnan(numpy.asarray(moved)[0, 0])
    assert not numpy.signbit(numpy.asarray(moved)[1, 0])


# ---- types -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["concat", "stack", "hstack", "vstack", "dstack", "column_stack"])
def test_joining_converts_to_the_common_type_C1(name: str) -> None:
    join = getattr(np, name)
    x, y = np.asarray([1 / 3], "bfloat16"), np.asarray([1 / 3], "float16")
    found = join([x, y])
    assert found.dtype is np.float32
    assert found.reshape(-1).tolist() == [x.item(), y.item()]
    assert join([x, numpy.ones(1, numpy.int8)]).dtype is np.bfloat16
    assert join([x, [1.0]]).dtype is np.float32  # a list has its own type
    for wrong, error, said in (
        ([np.ones(1, "uint64"), np.ones(1, "int64")], UnsupportedType, "uint64 and int64"),
        ([], InvalidArgument, "at least one"),
        (3, UnsupportedType, "sequence"),
    ):
        with pytest.raises(error, match=said):
            join(wrong)


@pytest.mark.parametrize("name", ["concat", "stack", "hstack", "vstack"])
def test_joining_into_a_given_type_C1(name: str) -> None:
    x = np.asarray([1 + 2**-9 + 2**-40], "float64")
    found = getattr(np, name)([x, x], dtype="bfloat16")
    assert found.dtype is np.bfloat16
    expected = formats.from_float("bfloat16", 1 + 2**-9 + 2**-40)
    assert found.bits.data.reshape(-1).tolist() == [expected] * 2
    with pytest.raises(UnsupportedType, match="same_kind"):
        getattr(np, name)([x], dtype="int8")
    assert getattr(np, name)([x], dtype="int8", casting="unsafe").dtype is np.int8


@pytest.mark.parametrize("name", ["concat", "stack"])
def test_joining_into_out(name: str) -> None:
    parts = [np.asarray([1.0, 2.0]), np.asarray([3.0, 4.0])]
    expected = getattr(np, name)(parts)
    out = np.zeros(expected.shape, "bfloat16")
    assert getattr(np, name)(parts, out=out) is out
    assert out.tolist() == expected.tolist()
    with pytest.raises(InvalidArgument):
        getattr(np, name)(parts, out=np.zeros(7))


def test_block_and_append_take_weak_numbers_C8() -> None:
    x = np.asarray([1.0, 2.0], "bfloat16")
    assert np.append(x, 0.1).dtype is np.bfloat16
    assert np.append(x, [[3, 4]]).tolist() == [1, 2, 3, 4]
    assert np.append([[1, 2]], [[3, 4]], axis=0).tolist() == [[1, 2], [3, 4]]
    assert np.block([x, 3]).dtype is np.bfloat16
    assert np.block([[x], [x]]).tolist() == [[1, 2], [1, 2]]
    assert np.block(x).tolist() == [1, 2]


def test_insert_converts_what_it_inserts_C1() -> None:
    x = np.asarray([1.0, 2.0, 3.0], "bfloat16")
    found = np.insert(x, [0, 2], [1 + 2**-9, 7])
    assert found.dtype is np.bfloat16
    assert found.tolist() == [1, 1, 2, 7, 3]
    assert np.insert(x, np.asarray([1]), 9).tolist() == [1, 9, 2, 3]
    assert np.insert([[1, 2], [3, 4]], 1, [8, 9], axis=1).tolist() == [[1, 8, 2], [3, 9, 4]]
    assert np.delete(x, np.asarray([True, False, False])).tolist() == [2, 3]
    assert np.delete(x, []).tolist() == [1, 2, 3]
    assert np.delete(np.asarray([[1, 2], [3, 4]]), -1, axis=1).tolist() == [[1], [3]]


@pytest.mark.parametrize("counts", [[1, 0, 2], numpy.array([2, 2, 2], numpy.uint64), 2, [3]], ids=repr)
def test_repeat_by_counts(counts: Any) -> None:
    x = np.asarray([[1, 2, 3]], "int8")
    numbers = numpy.asarray(counts).astype(int)
    expected = numpy.repeat(numpy.asarray([[1, 2, 3]]), numbers, axis=1).tolist()
    assert np.repeat(x, counts, axis=1).tolist() == expected
    given = counts if isinstance(counts, int) else np.asarray(counts)
    assert np.repeat(x, given, axis=1).tolist() == expected
    for nothing in ([], np.zeros(0), np.zeros(0, "int64")):
        assert np.repeat(np.zeros(0, "int8"), nothing).tolist() == []


@each_of(
    ("call", "kind"),
    [
        (lambda: np.repeat(np.ones(2), 1.5), TypeError),
        (lambda: np.repeat(np.ones(2), [1, 2, 3]), ValueError),
        (lambda: np.repeat(np.ones(2), -1), ValueError),
        (lambda: np.repeat(np.ones(2), numpy.uint64(2**64 - 1)), ValueError),
        (lambda: np.insert(np.asarray([1], "int8"), 0, 300), OverflowError),
        (lambda: np.insert(np.ones(3), 9, 1), IndexError),
        (lambda: np.delete(np.ones(3), 9), IndexError),
        (lambda: np.append([[1, 2]], [3], axis=0), ValueError),
        (lambda: np.block([]), ValueError),
        (lambda: np.block([[np.ones(2)], [np.ones(3)]]), ValueError),
        (lambda: np.block([[np.ones(2)], np.ones(2)]), ValueError),
        (lambda: np.reshape(np.ones(2), 1.5), TypeError),
        (lambda: np.reshape(np.ones(2), (-1, -1)), ValueError),
        (lambda: np.resize(np.ones(2), (-1,)), ValueError),
        (lambda: np.broadcast_to(np.ones(2), (1.5,)), TypeError),
        (lambda: np.broadcast_to(np.ones(2), 3), ValueError),
        (lambda: np.broadcast_arrays(np.ones(2), np.ones(3)), ValueError),
        (lambda: np.broadcast_shapes((2,), (3,)), ValueError),
        (lambda: np.broadcast_shapes((-2,)), ValueError),
        (lambda: np.tile(np.ones(2), (-1,)), ValueError),
        (lambda: np.permute_dims(np.ones((2, 2)), (0,)), ValueError),
        (lambda: np.moveaxis(np.ones((2, 2)), (0, 1), (0, 0)), ValueError),
        (lambda: np.moveaxis(np.ones((2, 2)), (0, 1), (0,)), ValueError),
        (lambda: np.stack([np.ones(2), np.ones(3)]), ValueError),
        (lambda: np.split(np.ones(2), 1.5), TypeError),
        (lambda: np.trim_zeros(np.ones(2), "x"), ValueError),
        (lambda: np.rot90(np.ones((2, 2)), 1, (0,)), ValueError),
        (lambda: np.pad(np.ones(2), -1), ValueError),
        (lambda: np.pad(np.ones(2), 1.5), TypeError),
        (lambda: np.pad(np.ones(2), (1, 2, 3)), ValueError),
        (lambda: np.pad(np.ones(2), 1, "mirror"), ValueError),
        (lambda: np.pad(np.ones(2), 1, "edge", stat_length=1), ValueError),
        (lambda: np.pad(np.ones(2), 1, "reflect", reflect_type="odd"), UnsupportedOperator),
        (lambda: np.pad(np.ones(2), 1, lambda *_: None), UnsupportedOperator),
        (lambda: np.pad(np.ones(0), 1, "edge"), ValueError),
    ],
)
def test_wrong_arguments_are_refused(call: Callable[[], Any], kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, NeuronSimError)


def test_broadcast_shapes_are_numpys() -> None:
    for shapes in [(), ((),), ((2, 1), (3,)), ((0,), (1,)), (5, (1, 1))]:
        assert np.broadcast_shapes(*shapes) == numpy.broadcast_shapes(*shapes)
    for shapes in [
        ((2,), (3,)),
        ((0,), (2,)),
        ((2,), (0,)),
        ((2, 1), (3, 2, 2), (3, 1, 3)),
        ((2**40, 1), (1, 2**40)),
    ]:
        with pytest.raises(ValueError, match=r"mismatch|too large"):
            numpy.broadcast_shapes(*shapes)
        with pytest.raises(InvalidArgument):
            np.broadcast_shapes(*shapes)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int8"])
def test_arrays_of_many_axes_broadcast(dtype: str) -> None:
    """Of up to 64 axes, by which NumPy's ufuncs compute and its broadcast_shapes does not."""
    draw = numpy.random.default_rng(5)
    x = draw.integers(-9, 9, (2, *[1] * 61, 3)).astype("float32" if dtype == "bfloat16" else dtype)
    y = draw.integers(-9, 9, (4, *[1] * 62, 1)).astype(x.dtype)
    a, b = np.asarray(x, dtype=dtype), np.asarray(y, dtype=dtype)
    for name in ("add", "maximum", "less", "subtract"):
        found, expected = getattr(np, name)(a, b), getattr(numpy, name)(x, y)
        assert (found.shape, found.tolist()) == (expected.shape, expected.tolist())
    assert np.where(a > b, a, b).tolist() == numpy.maximum(x, y).tolist()
    assert [v.shape for v in np.broadcast_arrays(a, b)] == [(x + y).shape] * 2
    line = np.asarray(draw.integers(-9, 9, (1,) * 63 + (5,)), dtype=dtype)
    assert np.sort(line).reshape(-1).tolist() == sorted(line.reshape(-1).tolist())
    pair = np.ones((1,) * 23 + (2,), dtype=dtype)
    assert np.kron(pair, pair).shape == (1,) * 23 + (4,)
    for product in (np.tensordot, np.multiply.outer, np.kron):
        with pytest.raises(InvalidArgument):
            product(line, line) if product is not np.tensordot else product(line, line, 0)


# ---- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("trim", ["fb", "f", "b", "F"])
def test_trim_zeros_takes_negative_zero_for_zero(trim: str) -> None:
    for values in ([0, -0.0, 1, 0, numpy.nan, -0.0], [0.0, -0.0], [1.0], []):
        for name in ("bfloat16", "float8_e5m2", "tfloat32", "float64", "complex64"):
            expected = numpy.trim_zeros(numpy.array(values), trim)
            found = np.trim_zeros(np.asarray(values, name), trim)
            assert numpy.array_equal(numpy.asarray(found).astype("c16"), expected, equal_nan=True)
    plane = numpy.pad([[1.0, 2.0]], 2)
    assert np.trim_zeros(np.asarray(plane)).tolist() == numpy.trim_zeros(plane).tolist()
    by_axis = np.trim_zeros(np.asarray(plane), trim, axis=0)
    assert by_axis.tolist() == numpy.trim_zeros(plane, trim, axis=0).tolist()


def test_pad_constants_are_converted_C1() -> None:
    found = np.pad(np.asarray([1.0], "bfloat16"), 1, constant_values=(1 + 2**-9, 0.1))
    expected = [1.0, 1.0, formats.decode("bfloat16", formats.from_float("bfloat16", 0.1))]
    assert found[:2].tolist() == expected[:2]
    assert found[2:].bits.data.tolist() == [formats.from_float("bfloat16", 0.1)]
    pairs = ((1, 2), (3, 4))
    x = numpy.ones((2, 2), numpy.float32)
    expected_plane = numpy.pad(x, 1, constant_values=pairs)
    assert np.pad(np.asarray(x), 1, constant_values=pairs).tolist() == expected_plane.tolist()


@each_of("dtype", ["float32", "bfloat16", "int16", "float64"])
@each_of(
    ("mode", "keywords"),
    [
        ("maximum", {}),
        ("minimum", {"stat_length": 2}),
        ("mean", {"stat_length": (2, 1)}),
        ("median", {"stat_length": 2}),
        ("linear_ramp", {}),
        ("linear_ramp", {"end_values": ((-4, 8), (0, 2))}),
    ],
)
def test_pad_by_arithmetic_on_values_that_are_exact(
    dtype: str, mode: str, keywords: dict[str, Any]
) -> None:
    # Multiples of 8 whose means and quarter steps every type holds.
    x = numpy.array([[8, 24, 40], [-16, 0, 64]])
    for widths in (1, (2, 4), {1: (4, 2)}):
        expected = numpy.pad(x.astype(float), widths, mode, **keywords)
        found = np.pad(np.asarray(x, dtype), widths, mode, **keywords)
        assert found.dtype.name == dtype
        whole = numpy.floor if mode == "linear_ramp" else numpy.rint
        assert found.tolist() == (whole(expected) if dtype == "int16" else expected).tolist()


def test_integer_lists_and_numbers_are_arrays() -> None:
    assert np.concat([[1, 2], [3]]).dtype is np.int64
    assert np.reshape([1, 2], (2, 1)).tolist() == [[1], [2]]
    assert (np.ndim(3), np.shape([[1, 2]]), np.size([[1, 2]])) == (0, (1, 2), 2)
    assert np.atleast_1d(3).tolist() == [3]
    assert np.tile(3, 2).tolist() == [3, 3]


@each_of("mode", ["constant", "edge", "wrap", "mean", "linear_ramp"])
@each_of("width", [3, (1, 2)])
def test_pad_of_an_array_without_axes_is_its_copy(mode: Any, width: Any) -> None:
    x = np.asarray(2.5, dtype="bfloat16")
    found = np.pad(x, width, mode)
    assert (found.shape, found.dtype, found.item()) == ((), np.bfloat16, 2.5)
    assert not np.shares_memory(found, x)
