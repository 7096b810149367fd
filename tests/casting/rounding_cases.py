"""float32 values at which a rounding may differ: each value of a format, the midpoints between
neighbours, and what lies one float32 beside these.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes, ops
from neuronsim.casting.conversions import convert, travels_in_float32
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Instruction, Shape
from neuronsim.hlo.opcodes import row
from neuronsim.profiles import Profile

Floats = npt.NDArray[np.float32]
FLOAT8 = (dtypes.float8_e5m2, dtypes.float8_e4m3, dtypes.float8_e3m4)
FORMATS = (dtypes.bfloat16, dtypes.float16, *FLOAT8)  # that the device computes with
OPEN = (dtypes.tfloat32, dtypes.float_format(6, 9), dtypes.float_format(5, 2))
# float32 bits: zeros, subnormals, the least normal, the largest, Inf, NaN with and without payload.
SPECIAL = np.array(
    [0, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF],
    np.uint32,
)


def profiles(dtype: DType) -> list[Profile]:
    """Under which a conversion to the type may differ (C3, C4)."""
    overflows = ("inf", "nan", "saturate") if dtype.itemsize == 1 else ("inf",)
    return [
        Profile(rounding="nearest_even", subnormals=s, fp8_overflow=o)
        for s in ("keep", "flush")
        for o in overflows
    ]


def all_bits(dtype: DType) -> ops.Bits:
    """Every bit pattern of a format of 8 or 16 bits."""
    return ops.Bits(np.arange(1 << dtype.bits).astype(dtype.storage), dtype)


@functools.cache
def magnitudes(dtype: DType) -> Floats:
    """The finite values of a format that are not negative, in order, by its definition (rule F, C9); of
    a wide format those with the first or the last bits of the mantissa.
    """
    m, bias = dtype.mantissa_bits, (1 << (dtype.exponent_bits - 1)) - 1
    mantissas = np.arange(1 << m)
    if m > 8 and travels_in_float32(dtype):
        mantissas = np.unique([*mantissas[:4], *mantissas[-4:], 1 << (m - 1)])
    exponents = np.arange(1 - bias, bias + 1 + (not dtype.has_inf))
    normal = (1 + mantissas / 2.0**m) * 2.0 ** exponents[:, None].astype(np.float64)
    least = 1 - bias - m if not dtype.is_open or dtype.exponent_bits == 8 else 1 - bias
    subnormal = mantissas * 2.0 ** float(1 - bias - m)
    values = np.concatenate([subnormal[(subnormal == 0) | (subnormal >= 2.0**least)], normal.ravel()])
    values = np.unique(values[values <= dtype.max])
    return np.asarray(values, np.float32)


@functools.cache
def cases(dtype: DType) -> Floats:
    """The values of the format, midpoints, a float32 beside each on both sides, and what is special; of
    both signs, in ascending order, the NaN at the end.
    """
    values = magnitudes(dtype).astype(np.float64)
    after = values[-1] + (values[-1] - values[-2])  # the first that the format would have next
    midpoints = (values + np.append(values[1:], after)) / 2
    with np.errstate(over="ignore"):
        exact = np.concatenate([values, midpoints, [after, 2 * after]]).astype(np.float32)
    bits = exact.view(np.uint32).astype(np.int64)
    near = np.concatenate([bits - 1, bits, bits + 1, SPECIAL.astype(np.int64)])
    near = np.unique(near[(near >= 0) & (near <= 0x7FFFFFFF)]).astype(np.uint32)
    both = np.concatenate([near, near | np.uint32(1 << 31)]).view(np.float32)
    return np.asarray(both[np.argsort(both, kind="stable")])


def apply(i: Instruction, operands: list[ops.Bits], profile: Profile, **attributes: Any) -> ops.Bits:
    """The instruction evaluated by its row, alone."""
    given = {k: v for k, v in i.attributes.items() if k != "called"}
    shape = i.array
    given |= {"dims": shape.dims, "dtype": shape.dtype, **attributes}
    (found,) = ops.evaluate(row(i), operands, given, ops.Setting(profile), shape.type)
    return found


def rounded(x: ops.Bits, dtype: DType, profile: Profile) -> ops.Bits:
    """The array in a planned type, as an applied plan converts it."""
    i = convert("r", "x", Shape(x.dtype, x.data.shape), dtype)
    return apply(i, [x], profile)


def bits_of(x: ops.Bits) -> npt.NDArray[Any]:
    return np.ascontiguousarray(x.data).view(f"u{x.data.dtype.itemsize}")
