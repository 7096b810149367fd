"""What is written into arrays: one rounding (C1, C8), memory that overlaps, what `where` leaves out."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest
from tests.support.parameters import each_of

import neuronsim as np
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.reference.formats import exact, round_number

pytestmark = pytest.mark.isa_independent

# Just above the middle of two bfloat16: by way of float32 it becomes the middle, and then 1.
ABOVE_A_TIE = 1 + 2**-8 + 2**-40
NARROW = ("float32", "tfloat32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2", "float8_e3m4")


@each_of("dtype", [*NARROW, "float8_e4m3fn"])
@each_of("value", [ABOVE_A_TIE, -0.1, 2**60 + 1, True])
def test_copyto_rounds_a_number_once_C1(dtype: str, value: float) -> None:
    x = np.zeros(2, dtype=dtype)
    np.copyto(x, value, where=[True, False])
    words = x.view(f"uint{8 * x.itemsize}").tolist()
    assert words == [round_number(dtype, exact(value)), 0]


def test_copyto_takes_a_float64_whole() -> None:
    x = numpy.zeros(2)
    np.copyto(x, 0.1)
    assert x.tolist() == [0.1, 0.1]


def test_copyto_of_integers_C8() -> None:
    x = np.zeros(2, dtype="uint8")
    np.copyto(x, 5)
    assert x.tolist() == [5, 5]
    for wrong in (300, -1):
        with pytest.raises(OverflowError):
            np.copyto(x, wrong)
    for wrong in (1.5, numpy.int64(5)):  # which has a type of its own
        with pytest.raises(UnsupportedType):
            np.copyto(x, wrong)
    assert x.tolist() == [5, 5]


def test_flat_repeats_values() -> None:
    x, y = np.zeros((2, 3), dtype="bfloat16").T, numpy.zeros((2, 3)).T
    for key, value in ((slice(None), [1.0, 2.0]), (slice(1, 3), [5.0, 6.0, 7.0]), (0, 9.0)):
        x.flat[key] = value
        y.flat[key] = value
        assert x.tolist() == y.tolist()
    x.flat[1:1] = []
    x.flat[:] = x[::-1]
    y.flat[:] = y[::-1].copy()
    assert x.tolist() == y.tolist()
    with pytest.raises(InvalidArgument, match="no values for 6 elements"):
        x.flat[:] = []


def test_at_reads_its_operand_before_it_writes_R5() -> None:
    x, y = np.arange(8.0), numpy.arange(8.0)
    np.add.at(x, [0, 0, 2], x[1:4])
    numpy.add.at(y, [0, 0, 2], y[1:4].copy())
    assert x.tolist() == y.tolist()


STEPPED = ("subtract", "hypot", "logaddexp", "power", "divide", "remainder", "float_power", "copysign")
INTEGRAL = ("logical_xor", "bitwise_xor", "bitwise_or", "bitwise_and", "gcd", "logical_and")


@each_of("name", [*STEPPED, *INTEGRAL, "fmax", "fmin"])
@each_of("axis", [0, 1, (0, 1)])
def test_reduce_leaves_out_what_where_does_not_choose(name: str, axis: Any) -> None:
    x: Any = numpy.array([[3, 2, 4], [1, 5, 2], [2, 2, 3], [7, 1, 6]])
    x = x if name in INTEGRAL else x.astype(numpy.float32)
    mask = numpy.array(
        [[True, False, True], [False, True, True], [False, False, True], [True, True, False]]
    )
    found = getattr(np, name).reduce(np.asarray(x), axis=axis, where=mask, initial=2)
    ours, lines = getattr(np, name), numpy.ma.array(x, mask=~mask)
    rows = [lines.compressed()] if axis == (0, 1) else list(lines.T if axis == 0 else lines)
    for element, row in zip(found.reshape(-1), rows, strict=True):
        chosen = row.compressed() if isinstance(row, numpy.ma.MaskedArray) else row
        total: Any = np.asarray(2, found.dtype if name.startswith("logical") else x.dtype)
        for v in chosen:
            total = ours(total, np.asarray(v))
        assert element.tobytes() == total.tobytes()


def test_matrix_product_in_place_of_an_ndarray() -> None:
    x = y = numpy.array([[1.0, 2.0], [3.0, 4.0]], numpy.float32)
    x @= np.asarray([[1, 1 + 2**-7], [0, 1]], "bfloat16")
    assert x is y
    assert x.tolist() == [[1, 3.0078125], [3, 7.0234375]]
    with pytest.raises(TypeError, match="axes"):
        numpy.matmul(x, np.asarray(x), axes=[(0, 1), (0, 1), (1, 0)])


def test_clip_takes_bounds_of_other_libraries() -> None:
    x = np.asarray([1.0, 2.0, 9.0], "bfloat16")
    assert np.clip(x, numpy.float32([2, 0, 0]), None).tolist() == [2, 2, 9]
    assert np.clip(x, numpy.float32([2, 0, 0]), numpy.float32([3, 1, 4])).tolist() == [2, 1, 4]
    assert np.clip(x, None, None) is not x


def test_what_is_no_number_is_in_no_array() -> None:
    x = np.asarray([1.0, 0.0])
    assert "a" not in x
    assert None not in x
    assert 1 in x


@pytest.mark.parametrize("ends", [(1e-30, 1e30), (-1e30, -1e-30), (2.0**-140, 2.0**120)])
def test_geomspace_whose_ratio_is_beyond_float32(ends: tuple[float, float]) -> None:
    found = [float(v) for v in np.geomspace(*ends, 9)]
    exact = numpy.geomspace(*map(float, numpy.float32(ends)), 9)
    assert all(math.isclose(a, b, rel_tol=2e-5) for a, b in zip(found, exact, strict=True))
    assert found[::8] == [float(numpy.float32(end)) for end in ends]


@pytest.mark.parametrize("name", ["fmax", "gcd", "logical_or", "hypot", "subtract"])
def test_reductions_of_one_element_are_no_views(name: str) -> None:
    x = np.asarray([[3, 4]], "bool" if name == "logical_or" else None)
    found = getattr(np, name).reduce(x, axis=0)
    assert not numpy.shares_memory(found.bits.data, x.bits.data)


def test_a_constant_polynomial_is_no_view() -> None:
    p = np.asarray([2.5], "float32")
    found = np.polyval(p, np.zeros(2))
    found[0] = 1
    assert (found.tolist(), p.tolist()) == ([1, 2.5], [2.5])


def test_flat_gives_copies() -> None:
    x = np.zeros(4, dtype="bfloat16")
    x.flat[1:3][0] = 5
    assert x.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int8"])
def test_views_of_einsum_are_written_through(dtype: str) -> None:
    x, y = np.zeros((2, 3, 2), dtype=dtype), numpy.zeros((2, 3, 2))
    np.einsum("iji->ji", x)[...] = 1
    numpy.einsum("iji->ji", y)[...] = 1
    np.einsum("ijk->kji", x)[1, :, 0] = 2
    numpy.einsum("ijk->kji", y)[1, :, 0] = 2
    assert x.tolist() == y.tolist()
    x.setflags(write=False)
    assert not np.einsum("iji->ij", x).flags.writeable


def test_every_nan_is_in_one_array_only() -> None:
    x, y = [2.0, math.nan, 1.0], [1.0, math.nan, math.nan]
    found, known = np.setxor1d(x, y), numpy.setxor1d(x, y)
    assert numpy.array_equal(numpy.asarray(found), known, equal_nan=True)


@pytest.mark.parametrize(
    "call",
    [
        lambda n, x, out: n.sum(x, out=out),
        lambda n, x, out: n.max(x, out=out),
        lambda n, x, out: n.mean(x, out=out),
        lambda n, x, out: n.median(x, out=out),
        lambda n, x, out: n.dot(x, x, out=out),
        lambda n, x, out: n.hypot.reduce(x, out=out),
        lambda n, x, out: n.einsum("i->", x, out=out),
    ],
)
def test_only_elementwise_results_are_broadcast_into_out(call: Any) -> None:
    for n, x in ((numpy, numpy.ones(3)), (np, np.ones(3))):
        call(n, x, n.zeros(()))
        with pytest.raises(ValueError, match=r"out|Output"):
            call(n, x, n.zeros(2))
        assert n.add(x, 1, out=n.zeros((2, 3))).tolist() == [[2, 2, 2], [2, 2, 2]]
