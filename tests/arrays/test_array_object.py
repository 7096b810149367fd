"""The Array itself: shape, indexing, conversion to Python and NumPy, text."""

from __future__ import annotations

import math

import numpy
import pytest
from tests.support.parameters import each_of

import neuronsim as np
from neuronsim.arrays.conversion import common_arrays, write
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import InvalidArgument, UnsupportedType

pytestmark = pytest.mark.isa_independent

X = np.asarray(numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 4))


def test_arrays_compare_elementwise() -> None:
    equal = X == X
    assert isinstance(equal, np.Array)
    assert equal.dtype is np.bool
    assert not X == None  # noqa: E711, SIM201 (None is no array: identity, as NumPy's scalars)


def test_missing_names_say_which_is_near() -> None:
    with pytest.raises(AttributeError, match="did you mean 'matmul'"):
        np.matmull  # noqa: B018
    with pytest.raises(AttributeError, match="neuronsim has no 'zzzz'"):
        np.zzzz  # noqa: B018
    assert not hasattr(np, "zzzz")


def test_every_public_name_exists() -> None:
    for name in np.__all__:
        assert hasattr(np, name)
    assert set(np.__all__) <= set(dir(np))
    assert len(set(np.__all__)) == len(np.__all__)


# ---- what the other chapters build on ----------------------------------------------------------------


@each_of("dtype", list(DTYPES.values()), ids=lambda t: t.name)
def test_write_gives_out_and_keeps_its_type(dtype: DType) -> None:
    whole = np.zeros((4, 3), dtype=dtype)
    out = whole[::2]
    for given in (out, (out,)):
        assert write(given, [[1], [0]], casting="unsafe", broadcasts=True) is out
        assert out.dtype is dtype
        assert whole.tolist() == [[1] * 3, [0] * 3, [0] * 3, [0] * 3]
    with pytest.raises(InvalidArgument, match="does not broadcast"):
        write(out, np.zeros((3, 2, 3), dtype=dtype), broadcasts=True)
    with pytest.raises(InvalidArgument, match="the result"):
        write(out, np.zeros((2, 1), dtype=dtype))
    out.setflags(write=False)
    with pytest.raises(InvalidArgument, match="read-only"):
        write(out, out)


def test_write_where_and_into_ndarrays() -> None:
    out = numpy.zeros(3, numpy.float32)
    assert write(out, np.asarray([1.5, 2.5, 3.5], "bfloat16"), where=[True, False, True]) is out
    assert out.tolist() == [1.5, 0, 3.5]
    with pytest.raises(UnsupportedType, match="where is a bool array"):
        write(out, 1, where=[1, 0, 1])
    with pytest.raises(UnsupportedType, match="out is an array"):
        write([0.0], 1)
    with pytest.raises(InvalidArgument, match="copy"):
        write(numpy.zeros(2, ">f4"), 1)


def test_common_arrays_have_one_type_and_their_own_shapes() -> None:
    x = np.asarray([1.5, 2.0], "bfloat16")
    for operands, dtype in (
        ((x, 0.1), "bfloat16"),
        ((x, 2, True), "bfloat16"),
        ((x, [1, 2, 3]), "bfloat16"),
        ((x, [0.1]), "float32"),
        ((x, numpy.float64(1)), "float64"),
        ((x, 1j), "complex64"),
        ((1, 2), "int64"),
        ((1, 2.5), "float32"),
        ((True, 1j), "complex64"),
        ((np.asarray([1]), 0.5), "float32"),
        ((np.asarray([True]), 2), "int64"),
    ):
        found = common_arrays(*operands)
        assert {a.dtype.name for a in found} == {dtype}, operands
        assert [a.shape for a in found] == [numpy.shape(numpy.asarray(v)) for v in operands]
    with pytest.raises(UnsupportedType, match="uint64 and int64"):
        common_arrays(np.zeros(1, dtype="uint64"), np.zeros(1, dtype="int64"))
    with pytest.raises(OverflowError, match="uint8"):
        common_arrays(np.zeros(1, dtype="uint8"), 256)


def test_weak_numbers_that_are_kept_are_told_apart() -> None:
    x = np.asarray([0.0])
    for first, second in ((0.0, -0.0), (1, True), (1.0, 1), (math.nan, -math.nan), (0j, -0j)):
        for number in (first, second, first):
            dtype = np.complex64 if isinstance(number, complex) else np.float32
            assert common_arrays(x, number)[1].tobytes() == np.asarray([number], dtype).tobytes()
    values = np.zeros(1)
    values[0] = 3.0
    values += 1  # what is kept is not written into
    values[0] = 3.0
    assert values.tolist() == [3]
    with np.use_profile(fp8_overflow="saturate"):
        assert common_arrays(np.zeros(1, dtype="float8_e5m2"), 1e9)[1].item() == 57344
    assert common_arrays(np.zeros(1, dtype="float8_e5m2"), 1e9)[1].item() == math.inf
