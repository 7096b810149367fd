"""Fourier transforms: NumPy's complex128 results, rounded once (H1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from rounded_once import check, exact
from tests.support.parameters import each_of
from tests.support.words import FLOATS

import neuronsim as np
from neuronsim.errors import InvalidArgument, UnsupportedType

pytestmark = pytest.mark.isa_independent

fft = np.fft

REAL = ("rfft", "ihfft", "rfftn", "rfft2")
TO_REAL = ("irfft", "hfft", "irfftn", "irfft2")
ONE_AXIS = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
SEVERAL = ("fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2")


def values(dtype: str) -> np.Array:
    rng = numpy.random.default_rng(1)
    x = rng.standard_normal((2, 3, 4))
    if dtype.startswith("complex"):
        return np.asarray((x + 1j * rng.standard_normal(x.shape)).astype(dtype))
    return np.asarray(x, dtype=dtype)


def result(name: str, dtype: str) -> str:
    wide = dtype in ("float64", "complex128")
    if name in TO_REAL:
        return "float64" if wide else "float32"
    return "complex128" if wide else "complex64"


@each_of("name", [*ONE_AXIS, *SEVERAL])
def test_H1_transforms_are_rounded_once(name: str) -> None:
    for dtype in [*FLOATS, "float64", "complex64", "complex128"]:
        x = values(dtype)
        own, numpys = getattr(fft, name), getattr(numpy.fft, name)
        if name in REAL and dtype.startswith("complex"):
            with pytest.raises(UnsupportedType, match="real numbers"):
                own(x)
            continue
        wide, target = exact(x), result(name, dtype)
        for norm in ("backward", "ortho", "forward", None):
            check(own(x, norm=norm), numpys(wide, norm=norm), target)
        if name in ONE_AXIS:
            check(own(x, n=5, axis=1), numpys(wide, n=5, axis=1), target)
            check(own(x, 2, 0), numpys(wide, 2, 0), target)
        else:
            check(own(x, s=(2, 6), axes=(0, 2)), numpys(wide, s=(2, 6), axes=(0, 2)), target)
            check(own(x, (4, 3), (-1, -2)), numpys(wide, (4, 3), (-1, -2)), target)
        out = np.asarray(numpy.empty(numpys(wide).shape, "complex128"))
        assert own(x, out=out) is out
        assert out.tolist() == own(x).tolist()


def test_lengths_without_axes_are_of_the_last_axes() -> None:
    x = values("float32")
    for name in ("fftn", "rfftn"):
        expected = getattr(numpy.fft, name)(exact(x), s=(2, 3), axes=(-2, -1))
        check(getattr(fft, name)(x, s=(2, 3)), expected, "complex64")


def test_the_rounding_is_seen() -> None:
    """The control: the bits are not those of the unrounded transform."""
    x = values("bfloat16")
    with pytest.raises(AssertionError):
        check(fft.fft(x, axis=1).astype("complex128"), numpy.fft.fft(exact(x), axis=1), "complex128")


def test_integers_are_transformed_and_give_the_default_types() -> None:
    x = np.asarray([1, 2, 3])
    assert fft.fft(x).dtype is np.complex64
    assert fft.irfft(x, 4).dtype is np.float32
    check(fft.fft(x), numpy.fft.fft([1, 2, 3]), "complex64")
    assert fft.fft([True, False]).tolist() == [1, 1]


@each_of("name", [n for n in fft.__all__ if not n.endswith(("shift", "freq"))])
def test_nothing_padded_with_zeros_is_transformed_to_zeros(name: str) -> None:
    """Some of NumPy's give memory that nothing was written to."""
    dtype = "float64" if name in ("rfft", "rfft2", "rfftn", "ihfft") else "complex128"
    for shape in [(2, 0), (0, 2), (0, 0), (2, 0, 3)]:
        x = np.zeros(shape, dtype=dtype)
        for n in range(1, 6):
            lengths = [{"n": n, "axis": a} for a in range(-len(shape), 0)]
            lengths = (
                lengths if name.endswith("fft") else [{"s": (n, n), "axes": (-2, -1)}, {"s": (2, n)}]
            )
            for options in lengths:
                # Memory that the next arrays of these sizes are made of.
                for size in range(1, 128):
                    del [numpy.full(size, numpy.nan) for _ in range(2)][:]
                assert not numpy.asarray(getattr(fft, name)(x, **options)).any()


@each_of(
    ("call", "said"),
    [
        (lambda x: fft.fft(x, norm="no"), "norm is"),
        (lambda x: fft.fft(x, axis=2), "axis 2"),
        (lambda x: fft.fftn(x, axes=(0, 5)), "axis 5"),
        (lambda x: fft.fft(x, n=0), "fft of float32"),
        (lambda x: fft.fftn(x, s=(2,), axes=(0, 1)), "fftn of float32"),
        (lambda x: fft.fft(x[0, 0]), "axis -1"),
        (lambda x: fft.fft(np.zeros((3, 0))), "fft of float32"),
        (lambda x: fft.fftshift(x, 2), "axis 2"),
        (lambda x: fft.fftfreq(0), "n is positive"),
        (lambda x: fft.fftfreq(1.5), "n is an integer"),
        (lambda x: fft.rfftfreq(4, d=0), "d is not 0"),
        (lambda x: fft.fftfreq(4, device="trn9"), "no device 'trn9'"),
        (lambda x: fft.rfftfreq(4, d="1"), "d is a number"),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        call(np.ones((2, 2)))


@each_of("dtype", [*FLOATS, "float64"])
@each_of("n", [1, 2, 3, 8, 9])
def test_frequencies_are_rounded_once(dtype: str, n: int) -> None:
    for name in ("fftfreq", "rfftfreq"):
        for d in (1.0, 0.3, -2):
            check(getattr(fft, name)(n, d=d, dtype=dtype), getattr(numpy.fft, name)(n, d), dtype)
    assert fft.fftfreq(n).dtype is fft.rfftfreq(n, 0.5).dtype is np.float32


@each_of("dtype", [*FLOATS, "float8_e4m3fn", "int8", "bool", "complex64"])
def test_shifts_move_bits(dtype: str) -> None:
    x = np.asarray(numpy.arange(15).reshape(3, 5) % 7).astype(dtype)
    for axes in (None, 0, -1, (0, 1), (1,)):
        for name in ("fftshift", "ifftshift"):
            found = getattr(fft, name)(x, axes=axes)
            assert found.dtype is x.dtype
            assert (found.bits.data == getattr(numpy.fft, name)(x.bits.data, axes)).all()
        assert fft.ifftshift(fft.fftshift(x, axes), axes).tobytes() == x.tobytes()


@each_of(
    ("call", "said"),
    [
        (lambda: fft.fft(np.ones(2, "float8_e4m3fn")), "float8_e4m3fn"),
        (lambda: fft.fftfreq(4, dtype="int32"), "float type, not int32"),
        *(
            (lambda name=name, given=given: getattr(fft, name)(np.ones((2, 2)), **given), None)
            for name in ("fftn", "ifftn", "rfftn", "irfftn", "fft2", "irfft2")
            for given in ({"axes": 1}, {"axes": -1}, {"s": 2}, {"s": (1.5, 2)})
        ),
    ],
)
def test_other_types_of_arrays_lengths_and_axes_are_refused(
    call: Callable[[], Any], said: str | None
) -> None:
    with pytest.raises(UnsupportedType, match=said):
        call()
