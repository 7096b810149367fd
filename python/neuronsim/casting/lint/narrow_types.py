"""Narrow types: how many bits of a float32 they keep, and where their range ends."""

from __future__ import annotations

import math

from neuronsim import dtypes
from neuronsim.dtypes import DType


def is_narrow(dtype: DType) -> bool:
    """Whether it is a float type with fewer significant bits than float32."""
    return dtype.kind == "float" and 0 < dtype.mantissa_bits < dtypes.float32.mantissa_bits


def digits(dtype: DType) -> int:
    """Significant bits."""
    return dtype.mantissa_bits + 1


def has_small_range(dtype: DType | None) -> bool:
    """Whether what float32 holds can lie beyond it."""
    return dtype is not None and is_narrow(dtype) and dtype.exponent_bits < 8


def range_of(dtype: DType) -> str:
    """What a message says of a type's largest value."""
    return f"{dtype.name}'s largest finite value is {dtype.max:g}"


def least_overflow(dtype: DType) -> float:
    """From which magnitude on a finite value becomes ±Inf, or NaN in a type without Inf (C3)."""
    step = 2.0 ** (math.floor(math.log2(dtype.max)) - dtype.mantissa_bits)
    return dtype.max + step / 2


def overflows(value: float, dtype: DType) -> bool:
    """Whether a finite value becomes ±Inf, or NaN in a type without Inf (C3)."""
    return math.isfinite(value) and abs(value) >= least_overflow(dtype)
