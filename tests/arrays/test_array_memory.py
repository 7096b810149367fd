"""Where elements lie: shared memory, order, requirements, packed bits; joining by r_ and c_."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from moved_bits import assert_same, every_pattern
from tests.support.parameters import each_of

import neuronsim as np
from neuronsim.dtypes import DTYPES
from neuronsim.errors import InvalidArgument, UnsupportedType

pytestmark = pytest.mark.isa_independent


def test_shared_memory_is_what_numpy_finds() -> None:
    x = np.zeros(8, dtype="bfloat16")
    for a, b in ((x, x[2:]), (x[::2], x[1::2]), (x[:4], x[4:]), (x, x.copy()), (x, x.view("uint8"))):
        bits = a.bits.data, b.bits.data
        assert np.shares_memory(a, b) is numpy.shares_memory(*bits)
        assert np.may_share_memory(a, b) is numpy.may_share_memory(*bits)
    assert np.may_share_memory(x[::2], x[1::2])
    assert not np.shares_memory(x[::2], x[1::2])
    assert numpy.shares_memory(x, x[1:])  # by NumPy's protocol


def test_isfortran_of_orders() -> None:
    x = np.zeros((2, 3), dtype="float16")
    assert not np.isfortran(x)
    assert np.isfortran(x.T)
    assert not np.isfortran(x[0])


@pytest.mark.parametrize(
    "requirements", [None, "C", "F", "W", "O", "A", ["C", "O"], ["F", "WRITEABLE"]]
)
def test_require_gives_what_is_asked(requirements: Any) -> None:
    x = np.asarray([[1.5, 2, 3], [4, 5, 6]], dtype="bfloat16")
    frozen = x.copy()
    frozen.setflags(write=False)
    for a in (x, x.T, x[:, ::2], frozen, [[1.5, 2], [3, 4]]):
        given = np.asarray(a, "bfloat16")
        found = np.require(a, "bfloat16", requirements)
        theirs = numpy.require(given.bits.data, None, requirements)
        assert found.dtype is np.bfloat16
        assert found.tolist() == given.tolist()
        for flag in ("C_CONTIGUOUS", "F_CONTIGUOUS", "WRITEABLE"):
            assert found.flags[flag] == theirs.flags[flag], (flag, requirements)
    assert np.require(x, requirements=["C", "W", "A", "E"]) is x


def test_asarray_chkfinite_raises_at_inf_and_nan() -> None:
    assert np.asarray_chkfinite([1, 2.5], "bfloat16").tolist() == [1, 2.5]
    assert np.asarray_chkfinite([1, 2]).dtype is np.int64
    infinite = [([1, v],) for v in (numpy.inf, -numpy.inf, numpy.nan, complex(0, numpy.inf))]
    for bad in (*infinite, ([70000.0], "float16")):  # Inf in this type (C3)
        with pytest.raises(ValueError, match="Infs or NaNs"):
            np.asarray_chkfinite(*bad)


def test_truth_is_read_only() -> None:
    assert np.True_
    assert not np.False_
    assert (np.True_.dtype, np.False_.shape) == (np.bool, ())
    assert (np.True_ & [True, False]).tolist() == [True, False]
    with pytest.raises(ValueError, match="read-only"):
        np.True_[...] = False


@each_of("bitorder", ["big", "little"])
@each_of("shape", [(0,), (1,), (8,), (11,), (3, 10), (2, 0)])
def test_bits_are_packed_as_numpys(shape: tuple[int, ...], bitorder: Any) -> None:
    draw = numpy.random.default_rng(3)
    for dtype in ("bool", "int8", "uint16", "int64"):
        x = (draw.integers(0, 2, shape) * 100).astype(dtype)
        for axis in (None, *range(-len(shape), len(shape))):
            packed = numpy.packbits(x, axis, bitorder)
            ours = np.packbits(np.asarray(x), axis, bitorder)
            assert ours.dtype is np.uint8
            assert_same(ours, packed)
            if packed.size:  # of none NumPy's bits are undefined
                assert_same(np.unpackbits(ours, axis), numpy.unpackbits(packed, axis))
            for count in (None, 3, *([-1] if packed.size else [])):
                found = np.unpackbits(np.asarray(packed), axis, count, bitorder)
                expected = numpy.unpackbits(packed, axis, count, bitorder)
                assert_same(found, expected if packed.size else numpy.zeros_like(expected))


KEYS: list[Any] = [
    ([1, 2], 3, [4]),
    (slice(0, 4), 9),
    slice(3),
    (slice(5, 0, -2), [7]),
    ("-1", [[1, 2]], [[3, 4]]),
    ("0,2", [1, 2], [3, 4]),
    ("0,2,0", [1, 2], [3, 4]),
    ("1,2,0", [1, 2], slice(2)),
    ("0,3", [[1, 2]], [[3, 4]]),
    ("0,3,0", [[1, 2]], [[3, 4]]),
    ("0,3,1", [[1, 2]], [[3, 4]]),
    ("2,3,1", [1, 2], [3, 4]),
    ("2,3,-2", [1, 2], [3, 4]),
    [[1, 2], [3, 4]],
]


@each_of("key", KEYS, ids=repr)
def test_joined_as_numpy_joins(key: Any) -> None:
    for ours, theirs in ((np.r_, numpy.r_), (np.c_, numpy.c_)):
        try:
            expected = theirs[key]
        except ValueError:
            with pytest.raises(InvalidArgument):
                _ = ours[key]
            continue
        assert_same(ours[key], expected)


@each_of("dtype", DTYPES.values(), ids=lambda t: t.name)
def test_joining_moves_bits_of_every_type(dtype: Any) -> None:
    a, wa = every_pattern(dtype, (3,))
    b, wb = every_pattern(dtype, (2,))
    for ours, theirs in ((np.r_, numpy.r_), (np.c_, numpy.c_)):
        assert_same(ours[a, a], theirs[wa, wa])
    assert_same(np.r_[a, b], numpy.r_[wa, wb])


def test_numbers_that_are_joined_are_weak_and_lines_are_mgrids() -> None:
    x = np.asarray([1.5], dtype="bfloat16")
    assert np.r_[x, 0.1].dtype is np.bfloat16  # C8
    assert np.r_[x, [0.1]].dtype is np.float32
    assert np.r_[0:1:5j].tolist() == [0, 0.25, 0.5, 0.75, 1]


def test_mask_indices_are_numpys() -> None:
    for k in (-1, 0, 1):
        found = np.mask_indices(3, np.triu, k)
        assert_same(found, numpy.mask_indices(3, numpy.triu, k))


def test_real_if_close_by_the_types_eps() -> None:
    small, large = 1 + 99 * 2.0**-23 * 1j, 1 + 101 * 2.0**-23 * 1j
    assert np.real_if_close([small]).dtype is np.float32
    assert np.real_if_close([large]).dtype is np.complex64
    assert np.real_if_close(np.asarray([small], "complex128")).dtype is np.complex128
    assert np.real_if_close([1 + 0.25j], tol=0.5).tolist() == [1]
    x = np.asarray([1.5], dtype="bfloat16")
    assert np.real_if_close(x) is x


@each_of(
    ("call", "error", "said"),
    [
        (lambda: np.require([1], requirements=["C", "F"]), InvalidArgument, "C or F"),
        (lambda: np.require([1], requirements=["WRITEBLE"]), InvalidArgument, "mean 'WRITEABLE'"),
        (lambda: np.packbits(np.ones(3)), UnsupportedType, "integers or bool"),
        (lambda: np.unpackbits(np.ones(3, dtype="int8")), UnsupportedType, "uint8 is unpacked"),
        (lambda: np.packbits(np.asarray([True]), bitorder="middle"), InvalidArgument, "little"),
        (lambda: np.r_["r", [1, 2]], InvalidArgument, "matrix class"),
        (lambda: np.r_[()], InvalidArgument, "nothing to join"),
    ],
)
def test_what_cannot_lie_so_is_refused(call: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call()
