"""Floats by their parts: sign, exponent and mantissa, and the values next to them.

>>> frexp(asarray([10.0, -0.25], "bfloat16"))
(Array([ 0.625, -0.5  ], dtype=bfloat16), Array([ 4, -1], dtype=int32))
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import INTEGRAL, asarray, convert, in_floats, real_float
from neuronsim.arrays.evaluation import apply_elementwise, select_elements
from neuronsim.arrays.manipulation import broadcast_shapes, broadcast_to
from neuronsim.arrays.ufuncs import Ufunc, as_ufunc
from neuronsim.errors import UnsupportedType

__all__ = ["copysign", "frexp", "ldexp", "modf", "nextafter", "spacing"]


@as_ufunc()
def copysign(x1: Any, x2: Any, /) -> Array:
    """The magnitude of x1 with the sign of x2, also of zeros and NaN (E6); integers become floats."""
    return apply_elementwise("copysign", *in_floats(x1, x2))


@as_ufunc()
def nextafter(x1: Any, x2: Any, /) -> Array:
    """The next value of the operands' own type after x1 towards x2 (E9).

    >>> float(nextafter(asarray(1.0, "bfloat16"), asarray(2.0, "bfloat16")))
    1.0078125
    """
    a, b = in_floats(x1, x2)
    dims = broadcast_shapes(a.shape, b.shape)
    return Array(ops.apply("nextafter", [broadcast_to(v, dims).bits for v in (a, b)]))


@as_ufunc()
def spacing(x: Any, /) -> Array:
    """The distance from |x| to the next larger value of the type, with the sign of x; Inf at the
    largest finite value, NaN of Inf and NaN.

    >>> spacing(asarray([1.0, -4.0], "bfloat16"))
    Array([ 0.0078, -0.0312], dtype=bfloat16)
    """
    a = real_float("spacing", x)
    size = apply_elementwise("abs", a)
    found = apply_elementwise("subtract", nextafter(size, math.inf), size)
    return select_elements(apply_elementwise("less", a, 0), apply_elementwise("negative", found), found)


@as_ufunc(2)
def modf(x: Any, /) -> tuple[Array, Array]:
    """The fraction and the whole part, both exact with the sign of x; Inf has the fraction 0.

    >>> modf(asarray([-2.5, 3.0]))
    (Array([-0.5,  0. ], dtype=float32), Array([-2.,  3.], dtype=float32))
    """
    a = real_float("modf", x)
    whole = apply_elementwise("trunc", a)
    rest = select_elements(apply_elementwise("isinf", a), 0, apply_elementwise("subtract", a, whole))
    return apply_elementwise("copysign", rest, a), whole


@as_ufunc(2)
def frexp(x: Any, /) -> tuple[Array, Array]:
    """The m and the int32 e of x = m 2^e with 1/2 <= |m| < 1, which moves bits; zeros, Inf and NaN are
    their own m, with e = 0.

    >>> frexp(asarray([10.0, -0.25], "bfloat16"))
    (Array([ 0.625, -0.5  ], dtype=bfloat16), Array([ 4, -1], dtype=int32))
    """
    a = real_float("frexp", x)
    wide = dtypes.float64 if a.dtype is dtypes.float64 else dtypes.float32
    data = convert(a, wide).bits.data
    if not isinstance(data, np.ndarray):  # what records
        part, power = _parts(Array(ops.Bits(data, wide)))
        return convert(part, a.dtype), power
    with np.errstate(invalid="ignore"):  # a signalling NaN
        mantissa, exponent = np.frexp(data)
    plain = ~np.isfinite(data)
    if plain.any():  # whose exponent C leaves open, and a NaN its payload
        words = f"u{wide.itemsize}"
        mantissa = np.where(plain, data.view(words), np.asarray(mantissa).view(words)).view(data.dtype)
        exponent = np.where(plain, 0, exponent)
    found = Array(ops.Bits(np.asarray(mantissa), wide))
    return convert(found, a.dtype), Array(ops.Bits(np.asarray(exponent, np.int32), dtypes.int32))


def _parts(x: Array) -> tuple[Array, Array]:
    """`frexp` by steps on the words of float32 or float64."""
    is_long = x.dtype is dtypes.float64
    word, digits, bias = (dtypes.int64, 52, 1022) if is_long else (dtypes.int32, 23, 126)
    width = word.bits
    bits = x.view(word)
    sign = bits & (-1 << width - 1)
    field, fraction = bits >> digits & 2 * bias + 3, bits & (1 << digits) - 1
    lacking = apply_elementwise("count_leading_zeros", fraction) - (width - 1 - digits)
    is_subnormal, is_plain = field == 0, (field == 2 * bias + 3) | (bits == sign)
    shifted = select_elements(is_subnormal, fraction << lacking, fraction)
    exponent = select_elements(is_subnormal, 1 - bias - lacking, field - bias)
    scaled = sign | bias << digits | shifted & (1 << digits) - 1
    mantissa = select_elements(is_plain, bits, scaled).view(x.dtype)
    return mantissa, select_elements(is_plain, 0, exponent).astype(dtypes.int32)


@as_ufunc()
def ldexp(x1: Any, x2: Any, /) -> Array:
    """x1 times 2 to the power of the integer x2, exact in float32 but for one rounding where the result
    is subnormal; to a narrower type one more (E1).

    >>> ldexp(asarray([0.75, 1.0], "bfloat16"), asarray([3, -200]))
    Array([6., 0.], dtype=bfloat16)
    """
    a, n = real_float("ldexp", x1), asarray(x2)
    if n.dtype.kind not in INTEGRAL:
        raise UnsupportedType(f"ldexp by {n.dtype.name}: the exponent is an integer")
    broadcast_shapes(a.shape, n.shape)  # which refuses others
    steps = np.clip(n.bits.data, 0 if n.dtype.kind == "unsigned" else -5000, 5000).astype(np.int64)
    if a.dtype is dtypes.float64:
        with np.errstate(all="ignore"):
            return Array(ops.Bits(np.asarray(np.ldexp(a.bits.data, steps)), a.dtype))
    # In float64 the power and the product are exact: 600 takes every float32 beyond its range.
    power = (np.clip(steps, -600, 600) + 1023 << 52).view(np.float64)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        exact = convert(a, dtypes.float32).bits.data.astype(np.float64) * power
    rounded = convert(Array(ops.Bits(np.asarray(exact), dtypes.float64)), dtypes.float32)
    return convert(apply_elementwise("multiply", rounded, 1.0), a.dtype)  # NaN canonical (E6)


# The examples of the functions that are no functions of Python.
__test__ = {name: f.__doc__ for name, f in globals().items() if isinstance(f, Ufunc)}
