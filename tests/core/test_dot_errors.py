"""What a dot refuses: a clear error before any work, quickly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neuronsim import _core, ops
from neuronsim.errors import InvalidArgument, NeuronSimError, OutOfMemory, UnsupportedType
from neuronsim.profiles import Profile
from tests.support.evaluation import PLAIN_DOT, evaluate_dot
from tests.support.words import word_type


@pytest.fixture(autouse=True)
def quickly() -> Iterator[None]:
    start = time.process_time()
    yield
    assert time.process_time() - start < 2


def dot(a: str, x: tuple[int, ...], b: str, y: tuple[int, ...], **more: Any) -> None:
    """A dot of zeros, which take no memory."""
    lhs, rhs = (np.broadcast_to(np.zeros((), word_type(t)), s) for t, s in ((a, x), (b, y)))
    evaluate_dot(a, lhs, b, rhs, **more)


@pytest.mark.parametrize(
    ("x", "y", "dims", "message"),
    [
        ((2, 3), (3, 4), ops.DotDimensions((0,), (0,)), r"\(0,\) and \(0,\) do not match"),
        ((2, 3), (3, 4), ops.DotDimensions((2,), (0,)), r"lhs dimensions \(2,\)"),
        ((2, 3), (3, 4), ops.DotDimensions((1,), (-1,)), r"rhs dimensions \(-1,\)"),
        ((2, 3), (3, 4), ops.DotDimensions((1, 1), (0, 0)), "distinct"),
        ((2, 3), (2, 3), ops.DotDimensions((1,), (1,), (1,), (0,)), "distinct"),
        ((2, 3), (4, 3), ops.DotDimensions((1,), (1,), (0,), (0,)), "do not match"),
        ((2, 3), (3, 2), ops.DotDimensions((0, 1), (1,)), "do not match"),
        ((1 << 40, 3), (4, 1 << 40), PLAIN_DOT, "do not match"),
    ],
)
def test_dot_of_dimensions_that_do_not_fit(
    x: tuple[int, ...], y: tuple[int, ...], dims: ops.DotDimensions, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        dot("float32", x, "float32", y, dot_dimensions=dims)


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        ("float32", "int32", "float32"),
        ("int8", "bfloat16", "float32"),
        ("float64", "float64", "float32"),
        ("complex64", "complex64", "float32"),
        ("float8_e4m3fn", "bfloat16", "float32"),
        ("float32", "float32", "int32"),
        ("int32", "int32", "float32"),
        ("float32", "float32", "float64"),
        ("bool", "float16", "float16"),
    ],
)
def test_dot_M1_M7_of_types_that_the_engine_does_not_pair(a: str, b: str, result: str) -> None:
    with pytest.raises(UnsupportedType, match=f"dot of {a} and {b}"):
        dot(a, (2, 3), b, (3, 4), result=result)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ((1 << 31, 2), (2, 1 << 31)),  # 2^64
        ((1 << 24, 1), (1, 1 << 24)),  # 2^50, which fit an address
        ((1, 1 << 59), (1 << 59, 1)),  # operands too large to pack
    ],
)
@pytest.mark.parametrize("type_name", ["float32", "bfloat16"])
def test_dot_whose_size_overflows_is_out_of_memory(
    isa: str, type_name: str, x: tuple[int, ...], y: tuple[int, ...]
) -> None:
    with pytest.raises(OutOfMemory, match=f"dot of {type_name}"):
        dot(type_name, x, type_name, y)


def test_dot_of_more_elements_than_can_be_counted_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=f"would have {1 << 80} elements"):
        dot("float32", (1 << 40, 1), "float32", (1, 1 << 40))


def bind(
    a: tuple[Any, int, int],
    b: tuple[Any, int, int],
    output: Any,
    result: int,
    sums: tuple[str, int, int],
) -> None:
    """A product of operands, each with its type and how many of its dimensions are vectors."""
    sides = (*a[1:], None), (*b[1:], None)
    _core.Product(*sides, 1, result, sums, ops.numerics(Profile())).on(a[0], b[0], output)


def test_core_refuses_what_does_not_fit() -> None:
    x, y = np.zeros((1, 2, 3), np.float32), np.zeros((1, 2, 3), np.float32)  # batch, free, contracting
    out = np.zeros((1, 2, 2), np.float32)
    f32, f64, i32 = (_core.DTYPES.index(t) for t in ("float32", "float64", "int32"))
    plain = ("fma", f32, 128)
    for a, b, output, result, how in (
        ((x[0], f32, 1), (y, f32, 1), out, f32, plain),
        ((x, f32, 2), (y, f32, 1), out, f32, plain),
        ((x, f32, 1), (y[:, :, :2], f32, 1), out, f32, plain),
        ((x, f32, 1), (y.transpose(0, 2, 1), f32, 1), out, f32, plain),
        ((x, f32, 1), (y, f32, 1), np.zeros((1, 2, 3), np.float32), f32, plain),
        ((x, f32, 1), (y, f32, 1), out[0], f32, plain),
        ((x, f32, 1), (y, f32, 1), out, i32, plain),
        ((x, i32, 1), (y, f32, 1), out, f32, plain),
        ((x, f64, 1), (y, f64, 1), out, f64, plain),
        ((x, 99, 1), (y, f32, 1), out, f32, plain),
        ((x, f32, 1), (y.astype(np.float64), f32, 1), out, f32, plain),
        ((x, f32, 1), (y, f32, 1), out, f32, ("fma", f32, 0)),
        ((x, f32, 1), (y, f32, 1), out, f32, ("fma", f32, -128)),
        ((x, f32, 1), (y, f32, 1), out, f32, ("psum128", f32, 128)),
        ((x, f32, 1), (y, f32, 1), out, f32, ("", f32, 128)),
        ((x, f32, 1), (y, f32, 1), out, f32, ("fma", i32, 128)),
        ((x, f32, 1), (y, f32, 1), out, f32, ("fma", 99, 128)),
        ((x, f32, 1), (y, f32, 1), out, f32, ("exact", _core.DTYPES.index("bfloat16"), 128)),
    ):
        with pytest.raises(ValueError, match=r"\w+ \w+"):
            bind(a, b, output, result, how)


def test_core_refuses_columns_that_are_packed_nowhere(isa: str) -> None:
    """A product of columns that a run packs has their place; a convolution's are packed before."""
    x, y = np.ones((1, 2, 30), np.float32), np.ones((1, 40, 30), np.float32)
    out, side, plain = np.empty((1, 2, 40), np.float32), (0, 1, None), ("fma", 0, 128)
    numerics = ops.numerics(Profile())
    columns = _core.PackedColumns(0, y, side, 1, plain, numerics, 2, packs=False)
    product = _core.Product(side, side, 1, 0, plain, numerics, columns)
    place = np.empty(columns.nbytes, np.uint8)
    for no_place in (None, place[:-1], np.empty(2 * columns.nbytes, np.uint8)[::2]):
        with pytest.raises(ValueError, match="have no room"):
            product.on(x, y, out, [], no_place)
    with pytest.raises(ValueError, match="have no room"):
        columns.on(y, side, 1, place[1:])
    window = [(1, 1, 0, 1, 1, False)]
    with pytest.raises(ValueError, match="before it runs"):
        _core.Convolution((0, None), (0, None), window, 1, 1, 0, plain, numerics, columns)
    columns.on(y, side, 1, place).run()
    product.on(x, y, out, [], place).run()
    assert np.all(out == 30)


def test_operands_too_large_to_pack_are_a_memory_error(isa: str) -> None:
    # 2^63 bytes and more: the size must not wrap around to a small allocation.
    depth = 0x1555555555555556
    a = np.broadcast_to(np.ones(1, np.float32), (1, 1, depth))
    side, output = (0, 1, None), np.empty((1, 1, 1), np.float32)
    product = _core.Product(side, side, 1, 0, ("fma", 0, 128), ops.numerics(Profile()))
    with pytest.raises(MemoryError):
        product.on(a, a, output).run()


def test_every_error_is_the_librarys() -> None:
    for error in (InvalidArgument, UnsupportedType, OutOfMemory):
        assert issubclass(error, NeuronSimError)
