"""Complex numbers: their parts, and what real ones have in common with them (H1).

>>> imag(asarray([1 + 2j])), imag(asarray([3]))
(Array([2.], dtype=float32), Array([0], dtype=int64))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neuronsim import ops
from neuronsim.arrays.arguments import number
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray, copied
from neuronsim.arrays.evaluation import apply_elementwise
from neuronsim.arrays.ufuncs import as_ufunc

__all__ = ["conj", "conjugate", "imag", "iscomplex", "isreal", "real", "real_if_close"]


def real(x: Any, /) -> Array:
    """A view of the real part: of complex64 a float32; all other types are their own."""
    return asarray(x).real


def imag(x: Any, /) -> Array:
    """A view of the imaginary part: of complex64 a float32; of all other types zeros.

    >>> imag(asarray([1 + 2j])), imag(asarray([3]))
    (Array([2.], dtype=float32), Array([0], dtype=int64))
    """
    a = asarray(x)
    if a.dtype.kind == "complex":
        return a.imag
    return Array(ops.Bits(np.zeros(a.shape, a.dtype.storage), a.dtype))


@as_ufunc()
def conj(x: Any, /) -> Array:
    """The complex conjugate; real types are their own (E6)."""
    a = asarray(x)
    if a.dtype.kind != "complex":
        return copied(a)
    return Array(ops.Bits(np.asarray(a.bits.data.conj()), a.dtype))


conjugate = conj


def isreal(x: Any, /) -> Array:
    """Whether the imaginary part is zero."""
    return apply_elementwise("equal", imag(x), 0)


def iscomplex(x: Any, /) -> Array:
    """Whether the imaginary part is not zero."""
    return apply_elementwise("not_equal", imag(x), 0)


def real_if_close(a: Any, tol: float = 100) -> Array:
    """The real part, if every imaginary one is below `tol` in absolute value; a `tol` above 1 counts in
    eps of the type. Real arrays stay.

    >>> real_if_close(asarray([1 + 1e-7j])), real_if_close(asarray([1 + 1e-7j]), tol=0.5e-7)
    (Array([1.], dtype=float32), Array([1.+1.e-07j], dtype=complex64))
    """
    x = asarray(a)
    if x.dtype.kind != "complex":
        return x
    parts, tol = x.bits.data.imag, number("tol", tol)
    limit = float(np.finfo(parts.dtype).eps) * tol if tol > 1 else tol
    return real(x) if np.all(np.abs(parts) < limit) else x
