"""The methods and attributes of an Array: the standard's and ndarray's."""

from __future__ import annotations

import copy
import math
import operator
import pickle
import sys
import weakref
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy
import pytest
from tests.support.parameters import each_of

import neuronsim as np
from neuronsim import arrays
from neuronsim.arrays.methods import METHODS
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import IntegerOverflow, InvalidArgument, UnsupportedType

pytestmark = pytest.mark.isa_independent  # the functions have tests of their own

ALL = list(DTYPES.values())
X = np.asarray([[1.5, -2.0, 0.5], [4.0, 3.0, -1.0]], dtype="bfloat16")


def test_every_method_of_the_table_is_a_function() -> None:
    assert set(METHODS) <= set(arrays.FUNCTIONS)


def test_every_public_name_of_ndarray_is_there_or_left_out_for_a_reason() -> None:
    left_out = {
        "byteswap": "the bits have the processor's byte order",
        "ctypes": "use numpy.asarray(x).ctypes",
        "data": "memoryview(x)",
        "dump": "pickle.dump",
        "dumps": "pickle.dumps",
        "getfield": "no structured types",
        "resize": "changes memory that others view: numpy.resize copies",
        "setfield": "no structured types",
        "tofile": "save",
    }
    missing = {n for n in dir(numpy.ndarray) if not n.startswith("_") and not hasattr(X, n)}
    assert missing == set(left_out)


def test_names_that_an_array_has_not_say_why() -> None:
    """NumPy's the reason, others the nearest name; private ones suggest nothing."""
    for name, why in (
        ("tofile", r"file\.write\(x\.tobytes\(\)\)"),
        ("data", r"memoryview\(x\)"),
        ("resize", "the function resize copies"),
        ("ctypes", r"numpy\.asarray\(x\)\.ctypes"),
    ):
        with pytest.raises(AttributeError, match=f"^Array has no '{name}': .*{why}"):
            getattr(X, name)
    with pytest.raises(AttributeError, match=r"^Array has no 'repeats' \(did you mean 'repeat'\?\)$"):
        X.repeats  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"^Array has no '__array_struct__'$"):
        X.__array_struct__  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(X, "tofile")
    # What a property of an array lacks is not said of the property.
    with pytest.raises(AttributeError, match="no attribute '_"):
        np.Array.__new__(np.Array).shape  # noqa: B018


def test_array_namespace() -> None:
    for version in (None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"):
        assert X.__array_namespace__(api_version=version) is np


def test_device() -> None:
    assert X.to_device(X.device) is X
    assert str(X.device) == "trn1"


def test_sizes_and_flags() -> None:
    x = np.zeros((2, 3), dtype="bfloat16")
    assert (x.itemsize, x.nbytes, x.strides, x.size, x.ndim) == (2, 12, (6, 2), 6, 2)
    assert x.flags.c_contiguous
    assert x.flags.writeable
    assert not x.T.flags.c_contiguous
    x.setflags(write=False)
    assert not x.flags.writeable
    assert x.base is None
    assert x[1:].base is not None
    assert isinstance(x[1:].base, np.Array)


def test_shape_is_settable() -> None:
    x = np.asarray(numpy.arange(6.0))
    y = x
    x.shape = (2, -1)
    assert y.tolist() == [[0, 1, 2], [3, 4, 5]]
    x.shape = 6
    assert x.shape == (6,)
    for wrong in ((4, 2), (-1, -1)):
        with pytest.raises(InvalidArgument):
            x.shape = wrong
    transposed = np.asarray(numpy.arange(6.0).reshape(2, 3)).T
    with pytest.raises(InvalidArgument, match="without a copy"):
        transposed.shape = (6,)


def test_transposes_are_views() -> None:
    x = np.zeros((2, 3, 4))
    assert (x.T.shape, x.mT.shape) == ((4, 3, 2), (2, 4, 3))
    assert x.transpose(1, 0, 2).shape == x.transpose((1, 0, 2)).shape == (3, 2, 4)
    assert x.transpose(None).shape == x.transpose().shape == (4, 3, 2)
    x.T[0, 0, 1] = 5
    x.mT[0, 1, 0] = 6
    x.swapaxes(0, 2)[2, 0, 0] = 7
    assert x[:, 0].tolist() == [[0, 6, 7, 0], [5, 0, 0, 0]]


def test_real_and_imag_are_views() -> None:
    z = np.asarray([1 + 2j, 3 - 4j])
    z.real[0] = 7
    z.imag = [5, 6]
    assert z.tolist() == [7 + 5j, 3 + 6j]
    z.real = 0
    assert z.tolist() == [5j, 6j]
    assert (z.real.dtype, np.asarray([1j], "complex128").imag.dtype) == (np.float32, np.float64)
    assert X.real is X
    assert X.imag.tolist() == [[0] * 3] * 2


@each_of("dtype", ["float32", "bool", "complex64", "bfloat16"])
@each_of("shape", [(), (0,), (1,), (2, 3), (0, 1, 0, 3), (1,) * 32])
def test_flat_is_numpys(shape: tuple[int, ...], dtype: str) -> None:
    """Of every shape and by any index; what NumPy refuses is refused."""
    keys = [
        *(0, -1, 5, -7, ..., slice(None), slice(None, None, -1), slice(0), [], [0, 0], (0, 0), "a"),
        2**70,
    ]
    for key in keys:
        for value in (1, [1], [0, 1], numpy.float32(1), []):
            expected = numpy.zeros(shape, "float32" if dtype == "bfloat16" else dtype)
            x = np.asarray(expected, dtype=dtype, copy=True)
            try:
                many = expected.flat[key]
                # One element takes one number with NumPy, and no values no elements.
                expected.flat[key] = numpy.ravel(value)[0] if numpy.ndim(many) == 0 else value
            except (IndexError, OverflowError, ValueError):
                with pytest.raises(InvalidArgument):
                    x.flat[key] = value
                continue
            if numpy.size(value) == 0 != numpy.size(many):
                with pytest.raises(InvalidArgument, match="no values"):
                    x.flat[key] = value
                continue
            x.flat[key] = value
            assert x.tolist() == expected.tolist()
            assert x.flat[key].tolist() == expected.flat[key].tolist()
    x = np.zeros((1,) * 64)
    x.flat[...] = 2  # where NumPy refuses
    assert x.item() == 2
    conjugate = np.conj(np.asarray(1j))
    conjugate.fill(5)
    assert conjugate.tolist() == 5


def test_views_of_another_type_move_no_bits() -> None:
    bits = numpy.array([0x3F80, 0x7FC1, 0x8000], "u2")
    x = np.asarray(bits).view("bfloat16")
    assert (x.dtype, x[0].item()) == (np.bfloat16, 1)
    x[0] = 2
    assert bits[0] == 0x4000
    assert x.view("int16").view(np.bfloat16).view().tobytes() == bits.tobytes()
    assert np.asarray([1.0, 2.0]).view("uint8").shape == (8,)
    assert np.asarray([0, 1], "uint8").view("bool").tolist() == [False, True]


@each_of("dtype", ALL, ids=lambda t: t.name)
def test_copies_pickles_and_bytes_keep_the_bits(dtype: DType) -> None:
    x = np.asarray([[1, 0, 1], [0, 1, 1]], dtype=dtype).T
    out_of_band: list[Any] = []
    copies = [
        x.copy(),
        copy.copy(x),
        copy.deepcopy(x),
        pickle.loads(pickle.dumps(x)),
        pickle.loads(pickle.dumps(x, 5, buffer_callback=out_of_band.append), buffers=out_of_band),
        x.astype(dtype),
    ]
    assert len(out_of_band) == 1
    for y in copies:
        assert y.dtype is dtype
        assert (y.shape, y.tobytes()) == (x.shape, x.tobytes())
        assert not numpy.shares_memory(x.bits.data, y.bits.data) or y is copies[4]
    assert x.astype(dtype, copy=False) is x
    assert x.flatten().tobytes() == x.tobytes() == x.copy("F").tobytes()
    assert x.tobytes("F") == x.T.tobytes()
    assert x.copy("F").flags.f_contiguous


def test_astype_casts_as_casting_allows() -> None:
    x = np.asarray([1.5])
    assert x.astype("int8").tolist() == [1]
    assert x.astype("float64", casting="safe").dtype is np.float64


def test_arrays_are_weakly_referenced_and_small() -> None:
    x = np.ones(3)
    for y in (x[1:], x + x):
        reference = weakref.ref(y)
        assert reference() is y
        assert sys.getsizeof(y) < 64
    y = None
    assert reference() is None


def test_fill_sort_and_partition_are_in_place() -> None:
    x = np.asarray([[3.0, 1.0, 2.0], [math.nan, 5.0, 4.0]], dtype="float16")
    view = x[:, :2]
    x.sort()
    assert x[0].tolist() == [1, 2, 3]
    assert view[1].tolist() == [4, 5]
    x.sort(axis=0)
    x.partition(1)
    view.fill(0.1)
    assert view.tolist() == [[float(numpy.float16(0.1))] * 2] * 2


def test_put_take_and_compress() -> None:
    x = np.asarray([1.0, 2.0, 3.0], dtype="bfloat16")
    x.put([0, 2], [7, 1 / 3])
    assert x.tolist() == [7, 2, float(ml_dtypes.bfloat16(1 / 3))]
    assert x.compress([True, False, True]).tolist() == [7, x[2].item()]
    assert x.searchsorted(5.0).dtype is np.int64


def test_item() -> None:
    assert X.item(1) == X.item(0, 1) == X.item((0, 1)) == -2
    assert X.item(-1) == -1


# ---- arrays as Python's numbers ----------------------------------------------------------------------


def test_only_arrays_without_axes_are_numbers() -> None:
    zero_d = np.asarray(2.5, dtype="bfloat16")
    assert (float(zero_d), int(zero_d), complex(zero_d), bool(zero_d)) == (2.5, 2, 2.5 + 0j, True)
    assert complex(np.asarray(1 + 2j)) == 1 + 2j
    assert operator.index(np.asarray(7, dtype="uint8")) == 7


def test_truth_of_arrays() -> None:
    assert bool(np.asarray([[3]]))
    assert not np.asarray([0.0])


def test_format() -> None:
    x = np.asarray(1 / 3, dtype="bfloat16")
    assert f"{x:.3f} {x:>8.2e}" == "0.334 3.34e-01"
    assert f"{np.asarray(7):04d}" == "0007"
    assert f"{X}" == str(X)
    assert f"{np.asarray(1j):.1f}" == "0.0+1.0j"


def test_divmod_round_and_unary_operators() -> None:
    x = np.asarray([7.5, -7.5])
    quotient, remainder = divmod(x, 2)
    assert (quotient.tolist(), remainder.tolist()) == ([3, -4], [1.5, 0.5])
    assert [v.tolist() for v in divmod(16, x)] == [[2, -3], [1, -6.5]]
    assert round(np.asarray([2.5, 3.5])).tolist() == [2, 4]
    assert (round(np.asarray(2.5)), round(np.asarray(True))) == (2, 1)
    assert [type(round(v)) for v in (x[0], np.asarray(3), x[:1])] == [int, int, np.Array]
    assert [round(v) for v in np.asarray([2.5, 3.5], dtype="bfloat16")] == [2, 4]
    assert round(x[0], 0).dtype is np.float32
    positive = +x
    positive[0] = 0
    assert x[0].item() == 7.5


def test_len_iter_contains_and_hash() -> None:
    assert len(X) == 2
    assert [r.shape for r in X] == [(3,), (3,)]
    assert -2.0 in X
    assert 17 not in X


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_functions_give_views_of_the_parts_as_the_attributes_do(
    shape: tuple[int, ...], dtype: str
) -> None:
    for function, part in ((np.real, "real"), (np.imag, "imag"), (np.real_if_close, "real")):
        x = np.full(shape, 3.0, dtype)
        view = function(x)
        view[...] = 7
        assert np.all(getattr(x, part) == 7)


ONE_HALF = np.asarray([1.5])
OF_REAL = (float, int, round, math.floor, math.sqrt)
NUMBERS = (int, float, complex, operator.index)
NOT_ALONE = (np.asarray([2]), np.asarray([1, 2]), np.zeros(0))


@each_of(
    ("call", "error", "said"),
    [
        (lambda: X.__array_namespace__(api_version="2020.10"), ValueError, r"2020\.10"),
        *((lambda d=d: X.to_device(d), InvalidArgument, "device") for d in ("cuda", 3)),
        (lambda: X.to_device(X.device, stream=1), ValueError, "stream"),
        (lambda: np.zeros(3).mT, InvalidArgument, "matrix_transpose"),
        (lambda: setattr(X, "imag", 1), InvalidArgument, "read-only"),
        (lambda: X.view("complex128"), InvalidArgument, r"bfloat16\[2,3\] as complex128"),
        (lambda: np.asarray([2], "uint8").view("bool"), InvalidArgument, "no bool"),
        (lambda: ONE_HALF.astype("int8", casting="same_kind"), UnsupportedType, "same_kind"),
        (lambda: ONE_HALF.astype("float16", casting="safe"), UnsupportedType, "safe"),
        (lambda: ONE_HALF.astype("float64", casting="no"), UnsupportedType, "no"),
        (lambda: ONE_HALF.astype("int8", casting="none"), InvalidArgument, "casting"),
        (lambda: X.item(), InvalidArgument, "6 elements"),
        (lambda: X.item(6), IndexError, None),
        *((lambda n=n, x=x: n(x), TypeError, r"int64\[|float32\[") for n in NUMBERS for x in NOT_ALONE),
        *((lambda x=x: operator.index(np.asarray(x)), TypeError, "no index") for x in (1.0, True)),
        *((lambda n=n: bool(np.ones(n)), ValueError, "neither true nor false") for n in (2, 0)),
        (lambda: format(X, ".3f"), TypeError, r"bfloat16\[2,3\]"),
        *((lambda f=f: f(np.asarray(1.0)), TypeError, None) for f in (len, iter, hash)),
        (lambda: operator.delitem(X, 0), ValueError, "cannot be deleted: neuronsim.delete copies"),
        (lambda: hash(X), TypeError, "unhashable"),
        # Numbers that Python has not: errors of ours that are Python's own too.
        *((lambda f=f: f(np.asarray(1j)), UnsupportedType, "its real part first") for f in OF_REAL),
        *((lambda f=f: f(np.asarray(numpy.inf)), IntegerOverflow, "infinity") for f in (int, round)),
        *((lambda f=f: f(np.asarray(numpy.nan)), InvalidArgument, "NaN") for f in (int, round)),
        (lambda: f"{np.asarray(numpy.inf):zz}", InvalidArgument, "Unknown format code"),
        (lambda: round(np.asarray(1.5), 0.5), UnsupportedType, "decimals"),
    ],
)
def test_what_an_array_has_not_is_refused(
    call: Callable[[], Any], error: type[Exception], said: str | None
) -> None:
    with pytest.raises(error, match=said):
        call()
