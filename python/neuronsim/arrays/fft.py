"""The Fourier transforms of the array API standard, and NumPy's of two axes.

They are NumPy's on the host, in complex128 on the exact values, rounded once (H1): to complex64 for the
device's types, to float32 where the result is real.

>>> fft(asarray([1.0, 0.0], dtype="bfloat16"))
Array([1.+0.j, 1.+0.j], dtype=complex64)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from neuronsim import ops
from neuronsim.arrays.absent_names import refuse
from neuronsim.arrays.arguments import integers, number
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.axes import one_axis
from neuronsim.arrays.conversion import asarray, write
from neuronsim.arrays.default_types import array_type, default_dtype
from neuronsim.arrays.device import check_device
from neuronsim.arrays.host import complex_type, host_operand, on_host, real_type, rounded
from neuronsim.dtypes import DTypeLike
from neuronsim.errors import InvalidArgument, UnsupportedType

__all__ = [
    *("fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift"),
    *("ihfft", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn"),
]

if not TYPE_CHECKING:
    __getattr__ = refuse("numpy.fft", __all__)
    __dir__ = __all__.copy

Norm = Literal["backward", "ortho", "forward"]


def _transform(
    name: str, x: Any, along: Sequence[int] | None, norm: str | None, out: Any, **options: Any
) -> Array:
    """NumPy's transform of that name, rounded once to complex or real numbers."""
    a = host_operand(x)
    if norm not in ("backward", "ortho", "forward", None):
        raise InvalidArgument(f"{name}: norm is backward, ortho or forward, not {norm!r}")
    for axis in () if along is None else integers(f"{name}: axes", along):
        one_axis(a.shape, axis)
    if a.dtype.kind == "complex" and name in _OF_REAL_NUMBERS:
        raise UnsupportedType(
            f"{name} is of real numbers, not {a.dtype.name}: take the real part first"
        )
    wide = complex_type(a.dtype)
    dtype = real_type(wide) if name in _TO_REAL_NUMBERS else wide
    lengths = options.get("s") or (options.get("n"),)
    padded = math.prod(n for n in lengths if isinstance(n, int))
    exact = on_host(
        name, getattr(np.fft, name), a, norm=norm, operations=16.0 * max(a.size, padded), **options
    )
    # Of no elements, padded with zeros, NumPy's inverse transforms to real numbers are undefined.
    found = rounded(exact if a.size else np.zeros_like(exact), dtype)
    return found if out is None else write(out, found)


_OF_REAL_NUMBERS = ("rfft", "rfft2", "rfftn", "ihfft")
_TO_REAL_NUMBERS = ("irfft", "irfft2", "irfftn", "hfft")


def _along_axis(name: str, what: str) -> Callable[..., Array]:
    def transform(
        x: Any,
        /,
        n: int | None = None,
        axis: int = -1,
        norm: Norm | None = "backward",
        out: Any = None,
    ) -> Array:
        return _transform(name, x, (axis,), norm, out, n=n, axis=axis)

    return _named(transform, name, f"{what} along `axis`, of `n` elements: cut, or padded with zeros.")


def _along_axes(name: str, what: str) -> Callable[..., Array]:
    def transform(
        x: Any,
        /,
        s: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        norm: Norm | None = "backward",
        out: Any = None,
    ) -> Array:
        s, axes = _several(f"{name}: s", s), _several(f"{name}: axes", axes)
        if axes is None and s is not None:
            axes = range(-len(integers(f"{name}: s", s)), 0)
        return _transform(name, x, axes, norm, out, s=s, axes=axes)

    return _named(
        transform, name, f"{what} along `axes`, all or the last len(s) of them, of `s` elements."
    )


def _several(what: str, value: Any) -> tuple[int, ...] | None:
    """The integers of a sequence, or None."""
    if value is not None and not np.iterable(value):
        raise UnsupportedType(f"{what} is a sequence of integers, not {value!r}")
    return None if value is None else integers(what, value)


def _along_two_axes(name: str, what: str) -> Callable[..., Array]:
    def transform(
        x: Any,
        /,
        s: Sequence[int] | None = None,
        axes: Sequence[int] = (-2, -1),
        norm: Norm | None = "backward",
        out: Any = None,
    ) -> Array:
        s, along = _several(f"{name}: s", s), _several(f"{name}: axes", axes)
        return _transform(name, x, along, norm, out, s=s, axes=along)

    return _named(transform, name, f"{what} along two axes, of `s` elements.")


def _named(function: Callable[..., Array], name: str, text: str) -> Callable[..., Array]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{text}

    `norm` says where 1/n is: "backward" (in the inverse), "forward", or "ortho", its root in both.
    NumPy's on the host, rounded once (H1).
    """
    return function


fft = _along_axis("fft", "The Fourier transform")
ifft = _along_axis("ifft", "The inverse Fourier transform")
rfft = _along_axis("rfft", "The first half of the Fourier transform of real numbers")
irfft = _along_axis("irfft", "The inverse of rfft: real numbers")
hfft = _along_axis("hfft", "The real Fourier transform of a Hermitian signal, given its first half")
ihfft = _along_axis("ihfft", "The inverse of hfft")
fftn = _along_axes("fftn", "The Fourier transform")
ifftn = _along_axes("ifftn", "The inverse Fourier transform")
rfftn = _along_axes(
    "rfftn", "The Fourier transform of real numbers, of whose last axis the first half,"
)
irfftn = _along_axes("irfftn", "The inverse of rfftn: real numbers,")
fft2 = _along_two_axes("fft2", "The Fourier transform")
ifft2 = _along_two_axes("ifft2", "The inverse Fourier transform")
rfft2 = _along_two_axes("rfft2", "The Fourier transform of real numbers")
irfft2 = _along_two_axes("irfft2", "The inverse of rfft2: real numbers")


def fftfreq(n: int, /, d: float = 1.0, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """The frequencies of `fft`'s elements, 0 and up, then the negative ones, for samples `d` apart:
    NumPy's in float64, rounded once to `dtype` (H1).

    >>> fftfreq(4, dtype="bfloat16")
    Array([ 0.  ,  0.25, -0.5 , -0.25], dtype=bfloat16)
    """
    return _frequencies("fftfreq", n, d, dtype, device)


def rfftfreq(n: int, /, d: float = 1.0, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """The frequencies of `rfft`'s elements, 0 and up; see `fftfreq`.

    >>> rfftfreq(4)
    Array([0.  , 0.25, 0.5 ], dtype=float32)
    """
    return _frequencies("rfftfreq", n, d, dtype, device)


def _frequencies(name: str, n: Any, d: Any, dtype: DTypeLike | None, device: Any) -> Array:
    check_device(device)
    target = default_dtype() if dtype is None else array_type(dtype)
    if target.kind != "float":
        raise UnsupportedType(f"{name}: the frequencies are of a float type, not {target.name}")
    try:
        count = operator.index(n)
    except TypeError as error:
        raise InvalidArgument(f"{name}: n is an integer, not {n!r}") from error
    spacing = number(f"{name}: d", d)
    if count < 1 or spacing == 0:
        raise InvalidArgument(f"{name}: n is positive and d is not 0, not {n!r} and {d!r}")
    return rounded(on_host(name, lambda: getattr(np.fft, name)(count, spacing)), target)


def fftshift(x: Any, /, axes: int | Sequence[int] | None = None) -> Array:
    """The elements rolled by half of each axis, so that the frequency 0 is in the middle; moves bits.

    >>> fftshift(asarray([0, 1, -2, -1]))
    Array([-2, -1,  0,  1], dtype=int64)
    """
    return _rolled(np.fft.fftshift, x, axes)


def ifftshift(x: Any, /, axes: int | Sequence[int] | None = None) -> Array:
    """The inverse of `fftshift`."""
    return _rolled(np.fft.ifftshift, x, axes)


def _rolled(roll: Callable[..., Any], x: Any, axes: int | Sequence[int] | None) -> Array:
    a = asarray(x)
    at = tuple(
        one_axis(a.shape, d) for d in (range(a.ndim) if axes is None else integers("axes", axes))
    )
    return Array(ops.Bits(roll(a.bits.data, at), a.dtype)) if at else a.copy()
