"""How a plan quantizes an array (rules Q): its type, scales and zero points.

>>> q = Quantization(dtypes.uint8, (0.5,), (3,))
>>> q.quantized(np.float32([-9.0, 0.25, 0.75, 200.0, np.nan])).tolist()
[0, 3, 5, 255, 3]
>>> q.dequantized(np.uint8([0, 3, 255])).tolist()
[-1.5, 0.0, 126.0]
>>> Quantization(dtypes.float8_e4m3, (0.5,)).rounded(np.float32([-9.3, 1e9])).tolist()
[-9.0, 120.0]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes
from neuronsim.casting import fields
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument
from neuronsim.records import check_fields

INTEGERS = (dtypes.int8, dtypes.uint8)
FLOATS = (dtypes.float8_e4m3, dtypes.float8_e5m2)
TYPES = (*INTEGERS, *FLOATS)
_WHOLE = (*INTEGERS, dtypes.int32)  # which biases are quantized to (Q7)


def scale_limits(dtype: DType) -> tuple[float, float]:
    """The least and the greatest scale of a type (Q5, Q6): what its numbers stand for is finite and,
    but for 0, normal; so is, of integers, any difference of two.
    """
    whole = np.finfo(np.float32)
    if dtype in _WHOLE:
        return float(whole.tiny), float(whole.max / np.float32(1 << dtype.bits))
    return 2.0**-110, float(whole.max / np.float32(1 << 16))  # float8 has numbers from 2^-16 to 2^16


@dataclass(frozen=True)
class Quantization:
    """`scale` and `zero_point` have one number for the whole array, or one for each index of `axis`.
    A value x is nearest(x / scale) + zero point, within the limits of the type (Q1), and stands for
    (q - zero point) * scale (Q2). Of float8 it is x / scale within the limits, rounded (Q6), without a
    zero point. Biases alone are int32 (Q7). Scales are numbers of float32, normal ones.
    """

    type: DType
    scale: tuple[float, ...]
    zero_point: tuple[int, ...] = (0,)
    axis: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.type not in (*_WHOLE, *FLOATS):
            known = ", ".join(t.name for t in TYPES)
            raise InvalidArgument(f"an array is quantized to one of {known}, not {self.type.name}")
        counts = len(self.scale), len(self.zero_point)
        if 0 in counts or counts[0] != counts[1] or (self.axis is None and counts != (1, 1)):
            where = "an axis" if self.axis is not None else "a whole array"
            raise InvalidArgument(f"{counts[0]} scales and {counts[1]} zero points of {where}")
        if self.axis is not None and self.axis < 0:
            raise InvalidArgument(f"the axis of scales counts from 0, not {self.axis}")
        least, most = scale_limits(self.type)
        wrong = [s for s in self.scale if not (least <= s <= most and float(np.float32(s)) == s)]
        if wrong:
            raise InvalidArgument(
                f"a scale is a normal float32 from {least:.4g} to {most:.4g} (Q5, Q6), not "
                f"{fields.shown(wrong[0])}: a channel of zeros takes the scale 1"
            )
        if self.is_float and not self.is_symmetric:
            raise InvalidArgument(f"{self.type.name} has no zero point")
        low, high = self.limits
        if not all(low <= z <= high for z in self.zero_point):
            raise InvalidArgument(f"a zero point of {self.type.name} lies from {low} to {high}")
        object.__setattr__(self, "scale", tuple(map(float, self.scale)))

    @property
    def is_float(self) -> bool:
        """Whether the type is a float of 8 bits."""
        return self.type in FLOATS

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest number of the type, of floats the finite ones."""
        return limits_of(self.type)

    @property
    def is_symmetric(self) -> bool:
        """Whether every zero point is 0."""
        return not any(self.zero_point)

    def _spread(self, numbers: tuple[Any, ...], kind: Any, rank: int) -> npt.NDArray[Any]:
        array = np.array(numbers, kind)
        if self.axis is None:
            return array.reshape(())
        return array.reshape([-1 if d == self.axis else 1 for d in range(rank)])

    def quantized(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The integers (Q1, Q7), or floats (Q6), of float32 values: known before a program runs."""
        low, high = self.limits
        wide = np.float64 if self.type is dtypes.int32 else np.float32
        scale = self._spread(self.scale, wide, x.ndim)
        if self.is_float:
            with np.errstate(all="ignore"):
                inside = np.clip(x.astype(np.float32) / scale, np.float32(low), np.float32(high))
            return np.asarray(inside.astype(self.type.numpy))
        zero = self._spread(self.zero_point, np.int32, x.ndim)
        with np.errstate(all="ignore"):
            nearest = np.rint(x.astype(wide) / scale)
            moved = np.clip(nearest, (low - zero).astype(wide), (high - zero).astype(wide))
            whole = np.where(np.isnan(moved), wide(0), moved).astype(np.int32)
        return np.asarray((whole + zero).astype(self.type.numpy))

    def dequantized(self, q: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The float32 values that integers (Q2), or floats (Q6), stand for."""
        if self.is_float:
            return np.asarray(q.astype(np.float32) * self._spread(self.scale, np.float32, q.ndim))
        zero = self._spread(self.zero_point, np.int32, q.ndim)
        centred = (q.astype(np.int32) - zero).astype(np.float32)
        return np.asarray(centred * self._spread(self.scale, np.float32, q.ndim))

    def rounded(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The float32 values that the integers of float32 values stand for."""
        return self.dequantized(self.quantized(x))

    def sentence(self) -> str:
        """What it says, for people."""
        if self.axis is not None:
            spread = f"{len(self.scale)} scales along axis {self.axis}"
        else:
            spread = f"scale {self.scale[0]:.6g}"
        zero = "" if self.is_symmetric else f", zero point {self.zero_point[0]}"
        return f"{self.type.name} ({spread}{zero})"

    def to_json(self) -> dict[str, Any]:
        """The record as a document states it; scales as numbers that read back to the bit."""
        found: dict[str, Any] = {
            "type": self.type.name,
            "scale": list(self.scale),
            "zero_point": list(self.zero_point),
        }
        return found if self.axis is None else {**found, "axis": self.axis}


def read_quantization(value: Any) -> Quantization | None:
    """What `to_json` wrote, or None."""
    if value is None:
        return None
    problems: list[str] = []
    found = fields.read_fields(value, _KINDS, "", problems, ("type", "scale", "zero_point"))
    if problems:
        raise InvalidArgument(f"a quantization: {fields.joined(problems)}")
    return Quantization(**found)


def read_quantizations(value: Any) -> tuple[Quantization | None, ...]:
    """A list of them, one for each operand."""
    if not isinstance(value, list):
        raise InvalidArgument("a list of quantizations")
    return tuple(map(read_quantization, value))


def _numbers(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise InvalidArgument("a list of numbers")
    return tuple(map(fields.magnitude, value))


def _integers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or any(type(v) is not int or abs(v) > 255 for v in value):
        raise InvalidArgument("a list of integers of a byte")
    return tuple(value)


_KINDS: Mapping[str, fields.Kind] = {
    "type": fields.any_type,
    "scale": _numbers,
    "zero_point": _integers,
    "axis": fields.count,
}


def limits_of(dtype: DType) -> tuple[int, int]:
    """The least and the greatest number of a type that arrays are quantized to, of floats the finite
    ones.

    >>> limits_of(dtypes.uint8), limits_of(dtypes.float8_e4m3)
    ((0, 255), (-240, 240))
    """
    if dtype in _WHOLE:
        info = np.iinfo(dtype.numpy)
        return int(info.min), int(info.max)
    return -int(dtype.max), int(dtype.max)


def quantization_of(
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    dtype: DType,
    *,
    symmetric: bool,
    axis: int | None = None,
) -> Quantization:
    """The scale and the zero point by which the range from `low` to `high`, 0 among it, fills the type:
    of a symmetric one -127 to 127 (uint8: 128 is 0), of float8, which is always so, its finite numbers.
    A range of zero takes the scale 1, and one that asks for less than the least scale takes that.

    >>> quantization_of(-1.0, 3.0, dtypes.uint8, symmetric=False).zero_point
    (64,)
    """
    lows = np.minimum(np.atleast_1d(np.asarray(low, np.float64)), 0)
    highs = np.maximum(np.atleast_1d(np.asarray(high, np.float64)), 0)
    if not (np.isfinite(lows).all() and np.isfinite(highs).all()):
        raise InvalidArgument("a range that is not finite cannot be quantized: leave such values out")
    least, most = limits_of(dtype)
    if symmetric or dtype in FLOATS:
        bound = np.maximum(-lows, highs)
        scales = _float32_scales(bound / (most if dtype in FLOATS else 127), dtype)
        zero = np.full(scales.shape, 0 if least < 0 else 128)
    else:
        scales = _float32_scales((highs - lows) / (most - least), dtype)
        zero = np.clip(np.rint(least - lows / scales.astype(np.float64)), least, most).astype(int)
    return Quantization(dtype, tuple(scales.tolist()), tuple(int(z) for z in zero), axis)


def last_sums_below(ratios: Sequence[Fraction], first: int, count: int = 257) -> npt.NDArray[np.int32]:
    """For each ratio and each integer from `first` on, the last int32 sum whose product with the ratio
    has a nearest integer, ties to even, below that.

    >>> last_sums_below([Fraction(1, 2)], 1, 3).tolist()
    [[1, 2, 5]]
    """

    def last(k: int, ratio: Fraction) -> int:
        middle = (k - Fraction(1, 2)) / ratio
        is_tie = middle.denominator == 1
        found = middle.numerator // middle.denominator - (1 if is_tie and k % 2 == 0 else 0)
        return min(max(found, -(1 << 31)), (1 << 31) - 1)

    return np.array([[last(first + n, r) for n in range(count)] for r in ratios], np.int32)


def _float32_scales(wanted: npt.NDArray[np.float64], dtype: DType) -> npt.NDArray[np.float32]:
    least, most = scale_limits(dtype)
    found = np.where(wanted == 0, 1.0, np.clip(wanted, least, most)).astype(np.float32)
    assert all(map(math.isfinite, found.tolist()))
    return np.asarray(np.clip(found, np.float32(least), np.float32(most)))
