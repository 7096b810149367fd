"""Data movement: NumPy's shapes, and no bit changed."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest

import neuronsim as np
from neuronsim.errors import InvalidArgument, UnsupportedType

pytestmark = pytest.mark.isa_independent

X = numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 4)


def test_permute_and_transpose() -> None:
    x = np.asarray(X)
    assert np.permute_dims(x, (2, 0, 1)).tolist() == X.transpose(2, 0, 1).tolist()
    assert np.transpose(x).tolist() == X.T.tolist()
    assert np.transpose(x, (1, 0, 2)).tolist() == X.transpose(1, 0, 2).tolist()
    for axes in ((0, 1), (0, 0, 1), (0, 1, 3)):
        with pytest.raises(InvalidArgument):
            np.permute_dims(x, axes)


def test_broadcast_to() -> None:
    x = np.asarray([1.0, 2.0], dtype="bfloat16")
    assert np.broadcast_to(x, (3, 2)).tolist() == [[1, 2]] * 3
    with pytest.raises(InvalidArgument, match=r"bfloat16\[2\].*\(3,\)"):
        np.broadcast_to(x, (3,))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_concat(axis: int) -> None:
    found = np.concat([np.asarray(X), X + 1], axis=axis)
    assert found.tolist() == numpy.concatenate([X, X + 1], axis=axis).tolist()


def test_concat_takes_the_common_type() -> None:
    found = np.concat([np.ones(1, dtype="bfloat16"), np.ones(2, dtype="float16")])
    assert found.dtype is np.float32
    with pytest.raises(UnsupportedType):
        np.concat([np.ones(1, dtype="uint64"), np.ones(1, dtype="int64")])


@pytest.mark.parametrize("axis", [2, 5, -3])
def test_concat_along_a_missing_axis_is_refused(axis: int) -> None:
    with pytest.raises(InvalidArgument):
        np.concat([np.ones((2, 2)), np.ones((2, 2))], axis=axis)


def test_concat_of_arrays_that_do_not_fit() -> None:
    with pytest.raises(InvalidArgument):
        np.concat([np.ones((2, 2)), np.ones((2, 3))])
    with pytest.raises(InvalidArgument):
        np.concat([np.ones((2, 2)), np.ones(2)])
    with pytest.raises(InvalidArgument, match="at least one"):
        np.concat([])


def test_movement_keeps_nan_payloads_E6() -> None:
    bits = numpy.array([0x7FA00001, 0xFFC12345, 0x80000000], "u4").view("f4")
    x = np.asarray(bits)
    moved = np.concat([np.transpose(np.reshape(x, (3, 1)))[:, ::-1], np.broadcast_to(x, (1, 3))])
    assert moved.bits.data.view("u4").tolist() == [
        bits.view("u4")[::-1].tolist(),
        bits.view("u4").tolist(),
    ]


def test_astype_function_and_method_agree() -> None:
    x = np.asarray([1.7, -1.7, numpy.nan, 3e9])
    for name in ("int32", "uint8", "bool", "float16", "int64"):
        assert np.astype(x, name).tobytes() == x.astype(name).tobytes()
    assert x.astype("int32").tolist() == [1, -1, 0, 2**31 - 1]  # C6
    assert x.astype("float32", copy=False) is x
    assert x.astype("float32") is not x


def test_complex_to_real_is_refused_C6() -> None:
    with pytest.raises(UnsupportedType, match="real part"):
        np.asarray([1j]).astype("float32")
    assert np.asarray([1.5]).astype("complex64").tolist() == [1.5 + 0j]


@pytest.mark.parametrize(
    "transposed",
    [
        lambda x: x.T,
        lambda x: x.mT,
        lambda x: x.transpose(),
        lambda x: np.permute_dims(x, (1, 0)),
        lambda x: np.matrix_transpose(x),
        lambda x: np.swapaxes(x, 0, 1),
        lambda x: np.moveaxis(x, 0, 1),
    ],
)
def test_A3_every_transpose_is_the_same(transposed: Callable[[np.Array], np.Array]) -> None:
    x = np.asarray([[1.0, -0.0], [numpy.inf, 2.0]])
    view = transposed(x)
    assert view.tobytes() == x.bits.data.T.tobytes()
    view[0, 0] = 7.0
    assert x[0, 0] == 7.0
    with np.use_profile(transpose="tensor_engine"):
        moved = transposed(x)
    # M8: the infinity in row 1 makes NaN of what shares its product, and -0 becomes +0.
    assert numpy.isnan(numpy.asarray(moved)[0, 0])
    assert not numpy.signbit(numpy.asarray(moved)[1, 0])
