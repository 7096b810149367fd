"""Which number formats hold every value of another, so that a conversion there changes nothing.

>>> from neuronsim.dtypes import bfloat16, float16, float32
>>> contains(float32, float16), contains(bfloat16, float16)
(True, False)
"""

from __future__ import annotations

from dataclasses import dataclass

from neuronsim.dtypes import DType


@dataclass(frozen=True)
class ValueSet:
    """The values of a number format: of so many bits behind the first, up to the largest, multiples of
    the smallest, and perhaps Inf. NaN is in all of them.
    """

    mantissa_bits: int
    smallest: float
    largest: float
    has_inf: bool

    def contain(self, other: ValueSet) -> bool:
        """Whether they contain the others, which have as many bits or fewer."""
        return (
            other.mantissa_bits <= self.mantissa_bits
            and other.smallest >= self.smallest
            and other.largest <= self.largest
            and (self.has_inf or not other.has_inf)
        )


def values_of(dtype: DType) -> ValueSet:
    """The values of a device float format (rule F), or of an open one, carried by float32 (C9)."""
    if dtype.is_open:
        return values_of_reduce_precision(dtype.exponent_bits, dtype.mantissa_bits)
    smallest = dtype.smallest_normal * dtype.eps
    return ValueSet(dtype.mantissa_bits, smallest, dtype.max, dtype.has_inf)


def values_of_reduce_precision(exponent_bits: int, mantissa_bits: int) -> ValueSet:
    """The values that `reduce-precision` leaves of float32: those below the least normal number of
    fewer exponent bits than 8 become zero (C9).
    """
    exponent = 2 - 2 ** (exponent_bits - 1)
    smallest = 2.0 ** (exponent - (mantissa_bits if exponent_bits == 8 else 0))
    largest = (2 - 2.0**-mantissa_bits) * 2.0 ** (1 - exponent)
    return ValueSet(mantissa_bits, smallest, largest, has_inf=True)


def has_values(dtype: DType) -> bool:
    """Whether it is a float format of the device, of which `values_of` knows."""
    return dtype.kind == "float" and dtype.exponent_bits > 0


def contains(wide: DType, narrow: DType) -> bool:
    """Whether every value of a float format, Inf and subnormals too, is one of another, so that a
    conversion there changes nothing.
    """
    return wide is narrow or (
        has_values(wide) and has_values(narrow) and values_of(wide).contain(values_of(narrow))
    )
