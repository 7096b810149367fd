"""Window functions: NumPy's values, computed on the host in float64 and rounded once to the default
float type (H1, C1).

>>> hanning(5)
Array([0. , 0.5, 1. , 0.5, 0. ], dtype=float32)
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from neuronsim.arrays.arguments import number
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.arrays.default_types import default_dtype
from neuronsim.errors import InvalidArgument, refusal

__all__ = ["bartlett", "blackman", "hamming", "hanning", "i0", "kaiser"]


def _length(value: Any) -> int:
    try:
        count = operator.index(value)
        np.empty(max(count, 0))
    except (MemoryError, TypeError, ValueError) as error:
        raise refusal(f"the number of points, {value!r}", error) from error
    return max(count, 0)


def bartlett(M: int) -> Array:  # noqa: N803 (NumPy's name)
    """The triangle 1 - |2n / (M - 1) - 1| at M points n."""
    return asarray(np.bartlett(_length(M)), default_dtype())


def blackman(M: int) -> Array:  # noqa: N803
    """0.42 - 0.5 cos(2 pi n / (M - 1)) + 0.08 cos(4 pi n / (M - 1)) at M points n."""
    return asarray(np.blackman(_length(M)), default_dtype())


def hamming(M: int) -> Array:  # noqa: N803
    """0.54 - 0.46 cos(2 pi n / (M - 1)) at M points n."""
    return asarray(np.hamming(_length(M)), default_dtype())


def hanning(M: int) -> Array:  # noqa: N803
    """0.5 - 0.5 cos(2 pi n / (M - 1)) at M points n."""
    return asarray(np.hanning(_length(M)), default_dtype())


def kaiser(M: int, beta: float) -> Array:  # noqa: N803
    """i0(beta sqrt(1 - (2n / (M - 1) - 1)^2)) / i0(beta) at M points n."""
    return asarray(np.kaiser(_length(M), number("beta", beta)), default_dtype())


def i0(x: Any) -> Array:
    """The modified Bessel function of the first kind and order 0, in float64 on the host and rounded
    once to the type of `x` (H1); integers take the default float type.

    >>> i0([0.0, 1.0])
    Array([1.       , 1.2660658], dtype=float32)
    """
    a = asarray(x)
    if a.dtype.kind == "complex":
        raise InvalidArgument(f"i0 of {a.dtype.name}: a real type is needed")
    wide = a.astype("float64").bits.data.reshape(-1)
    return asarray(
        np.i0(wide).reshape(a.shape), a.dtype if a.dtype.kind == "float" else default_dtype()
    )
