"""Arithmetic progressions: every value is rounded once from the exact one (C1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes, ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray, convert
from neuronsim.dtypes import DType
from neuronsim.errors import IntegerOverflow, InvalidArgument, OutOfMemory, UnsupportedType


def exact_fraction(what: str, x: Any) -> Fraction:
    """The exact value of a real number or of an array of one element.

    Raises UnsupportedType if it is complex or no number, InvalidArgument if it is not finite, and
    IntegerOverflow if float64 does not reach it.
    """
    value = x if isinstance(x, int | float) else asarray(x).item()
    if isinstance(value, complex):
        raise UnsupportedType(f"{what} is a real number, not {value!r}")
    try:
        finite = math.isfinite(value)
    except OverflowError as error:
        raise IntegerOverflow(f"{what} is beyond float64: {error}") from error
    if not finite:
        raise InvalidArgument(f"{what} is a finite number, not {value!r}")
    return Fraction(value)


def progression(
    first: Fraction,
    step: Fraction,
    count: int,
    dtype: DType,
    integer: Callable[[Fraction], int] = math.trunc,
) -> Array:
    """`first + i * step` for i = 0 ... count - 1, in one axis; `integer` makes the values of an integer
    type. Raises IntegerOverflow for integers outside the type (C8), and
    OutOfMemory.

    >>> progression(Fraction(1), Fraction(1, 3), 3, dtypes.bfloat16).tolist()
    [1.0, 1.3359375, 1.6640625]
    """
    try:
        np.empty(count, dtype.storage)
    except (MemoryError, ValueError) as error:
        raise OutOfMemory(f"{count} values of {dtype.name}: {error}") from error
    over = math.lcm(first.denominator, step.denominator)
    start, stride = int(first * over), int(step * over)
    if dtype.kind in ("signed", "unsigned"):
        return _integers(start, stride, over, count, dtype, integer)
    if dtype.kind in ("complex", "bool"):
        part = dtypes.float32 if dtype is dtypes.complex64 else dtypes.float64
        return convert(progression(first, step, count, part), dtype)
    reach = max(abs(start), abs(stride), abs(start + (count - 1) * stride))
    if reach < 2**53 and over.bit_count() == 1 and over < 2**1000:
        return _convert((np.arange(count) * stride + start) / float(over), dtype)
    if count > _FEW and dtype is not dtypes.float64:
        return _bracketed(start, stride, over, count, dtype)
    return _nearest([start + i * stride for i in range(count)], over, dtype)


_FEW = 200  # from here on bracketing is the faster way


def _convert(values: npt.NDArray[Any], dtype: DType) -> Array:
    return convert(Array(ops.Bits(values, dtypes.float64)), dtype)


def _integers(
    start: int, stride: int, over: int, count: int, dtype: DType, integer: Callable[[Fraction], int]
) -> Array:
    if over != 1:
        values = [integer(Fraction(start + i * stride, over)) for i in range(count)]
        return asarray(values, dtype)
    if count:
        asarray([start, start + (count - 1) * stride], dtype)  # C8
    modulus = 2**64
    words = np.arange(count, dtype=np.uint64) * np.uint64(stride % modulus)
    words += np.uint64(start % modulus)
    return Array(ops.Bits(words.astype(dtype.storage), dtype))


def _nearest(numerators: list[int], over: int, dtype: DType) -> Array:
    """Each numerator / over, rounded once."""
    values = np.array([n / over for n in numerators], np.float64)
    if dtype is dtypes.float64:
        return _convert(values, dtype)
    # A float64 that is a value of a format of up to 24 significant bits, or a midpoint of two, ends in
    # 28 zeros. It is moved off what it does not equal, so that the next rounding is the only one.
    for i in np.flatnonzero(values.view(np.uint64) & ((1 << 28) - 1) == 0).tolist():
        numerator, denominator = float(values[i]).as_integer_ratio()
        beyond = numerators[i] * denominator - numerator * over
        if beyond:
            values[i] = math.nextafter(values[i], math.copysign(math.inf, beyond))
    return _convert(values, dtype)


def _bracketed(start: int, stride: int, over: int, count: int, dtype: DType) -> Array:
    """`_nearest` for many values: where a bound from below and one from above round to the same bits,
    these are the ones.
    """
    line = np.arange(count) * (stride / over) + start / over
    slack = 2.0**-50 * ((abs(start) + count * abs(stride)) / over)  # three roundings are less
    low, high = (_convert(bound, dtype).bits.data for bound in (line - slack, line + slack))
    words = np.dtype(f"u{dtype.itemsize}")
    unsure = np.flatnonzero(low.view(words) != high.view(words)).tolist()
    exact = _nearest([start + i * stride for i in unsure], over, dtype)
    low[unsure] = exact.bits.data
    return Array(ops.Bits(low, dtype))


def is_negative_zero(x: Any) -> bool:
    return isinstance(x, float) and x == 0 and math.copysign(1, x) < 0


def write_negative_zero(line: Array, place: int) -> None:
    """Give the zero at an end of a line of floats its sign, which exact values do not have."""
    if line.size and line.dtype.kind in ("float", "complex"):
        line.bits.data[place] = _convert(np.array(-0.0), line.dtype).bits.data


def length(start: Fraction, stop: Fraction, step: Fraction) -> int:
    """How many values lie in [start, stop): exact for integers, else as float64 division has it, which
    is how NumPy counts. Raises InvalidArgument for a step of 0 and for a count beyond any memory.
    """
    if step == 0:
        raise InvalidArgument("arange: the step is 0")
    if start.denominator == stop.denominator == step.denominator == 1:
        count = -int((start - stop) // step)
    else:
        try:
            ratio = (float(stop) - float(start)) / float(step)
            count = math.ceil(ratio)
        except OverflowError as error:
            raise InvalidArgument(f"arange: the count of values is beyond float64: {error}") from error
        if ratio == 0 and (stop - start) / step > 0:
            count = 1
    if count > _MOST:
        raise InvalidArgument(f"arange: {count} values do not fit in memory")
    return max(count, 0)


_MOST = 2**59
