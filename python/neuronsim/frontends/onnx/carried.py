"""Element types of ONNX's that no engine of Trn1 has, whose values travel in a type that holds each of
them: integers of 2 and 4 bits in bytes, the float of 4 bits in one of 8, others of 8 in one of 16.

Operators see arrays of that type; those that quantize or convert ask what an array stands for.

>>> from neuronsim.arrays.conversion import asarray
>>> x = convert(asarray([-9, 7, 8]), CARRIED["INT4"])
>>> x.tolist(), element_of(x).name, x.dtype.name
([7, 7, -8], 'INT4', 'int8')
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from neuronsim import arrays, dtypes, ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, InvalidModel


@dataclass(frozen=True)
class Carried:
    """A type: its bits, the type of ml_dtypes, and the one in which its values travel."""

    name: str
    bits: int
    numpy: np.dtype[Any]
    carrier: DType

    @property
    def kind(self) -> str:
        """That of the carrier: "signed", "unsigned" or "float"."""
        return self.carrier.kind

    @property
    def values(self) -> np.ndarray[Any, Any]:
        """The value of each code."""
        return np.arange(1 << self.bits, dtype=np.uint8).view(self.numpy).astype(np.float32)

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the largest value."""
        return float(np.nanmin(self.values)), float(np.nanmax(self.values))

    def packed_size(self, count: int) -> int:
        """How many bytes so many elements take, the last of which may be filled up."""
        return -(-count * self.bits // 8)


ElementType: TypeAlias = DType | Carried


def _row(name: str, bits: int, numpy: str, carrier: DType) -> tuple[str, Carried]:
    return name, Carried(name, bits, np.dtype(getattr(ml_dtypes, numpy)), carrier)


CARRIED = dict(
    [
        _row("INT4", 4, "int4", dtypes.int8),
        _row("UINT4", 4, "uint4", dtypes.uint8),
        _row("INT2", 2, "int2", dtypes.int8),
        _row("UINT2", 2, "uint2", dtypes.uint8),
        _row("FLOAT4E2M1", 4, "float4_e2m1fn", dtypes.float8_e5m2),
        _row("FLOAT8E4M3FNUZ", 8, "float8_e4m3fnuz", dtypes.float16),
        _row("FLOAT8E5M2FNUZ", 8, "float8_e5m2fnuz", dtypes.float16),
        _row("FLOAT8E8M0", 8, "float8_e8m0fnu", dtypes.bfloat16),
    ]
)


class CarriedArray(Array):
    """An array whose elements stand for those of another type. What is computed of it is plain."""

    __slots__ = ("element",)
    element: Carried


def carried(x: Array, element: Carried) -> CarriedArray:
    """An array of the carrier's as one of these elements."""
    found = CarriedArray(x.bits)
    found.element = element
    return found


def element_of(x: Array) -> ElementType:
    """What an array's elements are: its type, or the one that they stand for."""
    return x.element if isinstance(x, CarriedArray) else x.dtype


def unpacked(codes: np.ndarray[Any, Any], element: Carried, dims: Sequence[int]) -> CarriedArray:
    """The array of bytes that each hold several elements, the first in the lowest bits."""
    storage = element.values.astype(element.carrier.numpy).view(element.carrier.storage)
    shifts = np.arange(0, 8, element.bits)
    by_byte = storage[np.arange(256)[:, None] >> shifts & (1 << element.bits) - 1]
    elements = by_byte[codes].reshape(-1)[: math.prod(dims)]
    return carried(Array(ops.Bits(elements.reshape(dims), element.carrier)), element)


def from_values(values: Any, element: Carried, what: str) -> CarriedArray:
    """The array of values that the type has; raises InvalidArgument for others."""
    numbers = np.asarray(values).astype(np.float64)
    held = np.isin(numbers, element.values) | (np.isnan(numbers) & np.isnan(element.values).any())
    if not held.all():
        low, high = element.limits
        raise InvalidArgument(
            f"{what} is of {element.name}, and has no value {numbers[~held].flat[0]:g}: its values lie "
            f"between {low:g} and {high:g}"
        )
    return carried(asarray(numbers, element.carrier), element)


# ---- conversions -----------------------------------------------------------------------------------


def convert(x: Array, element: Carried, saturate: bool = True, round_mode: str = "up") -> CarriedArray:
    """Numbers as these elements, as ONNX's evaluator has it."""
    if element.kind != "float":
        found = _low_bits(x.astype(dtypes.int32), element)
    else:
        wide = x.astype(dtypes.float32)
        match element.name:
            case "FLOAT4E2M1":
                found = _of_4_bits(wide)
            case "FLOAT8E8M0":
                found = _power_of_two(wide, element, saturate, round_mode)
            case _:
                found = _without_negative_zero(wide, element, saturate)
    return carried(found.astype(element.carrier), element)


def _low_bits(x: Array, element: Carried) -> Array:
    """Integers keep their lowest bits, after floats have lost their fraction."""
    shift = 32 - element.bits
    low = arrays.left_shift(x, shift)
    return arrays.right_shift(low if element.kind == "signed" else low.astype(dtypes.uint32), shift)


def _of_4_bits(x: Array) -> Array:
    """The nearest value, the even one of two; -0 of NaN, which the type does not have."""
    size = arrays.abs(x)
    step = arrays.where(size < 2, 0.5, arrays.where(size < 4, 1.0, 2.0))
    nearest = arrays.minimum(arrays.multiply(arrays.rint(arrays.divide(size, step)), step), 6.0)
    found: Array = arrays.where(arrays.equal(x, x), arrays.copysign(nearest, x), -0.0)
    return found


def _without_negative_zero(x: Array, element: Carried, saturate: bool) -> Array:
    """The nearest value: below 1 those of Trn1's type of as many bits, halved, as the exponents begin
    one lower, and above it those themselves.
    """
    own = dtypes.float8_e4m3 if "E4M3" in element.name else dtypes.float8_e5m2
    _, most = element.limits
    half = (most + 2.0 ** math.ceil(math.log2(most))) / 2  # where NaN begins
    below = arrays.multiply(arrays.minimum(arrays.maximum(x, -1.0), 1.0), 2.0)
    above = arrays.minimum(arrays.maximum(x, -most), most)
    small, large = (v.astype(own).astype(dtypes.float32) for v in (below, above))
    nearest = arrays.where(arrays.abs(x) < 1, arrays.divide(small, 2.0), large)
    found: Array = arrays.where(arrays.equal(nearest, 0), 0.0, nearest)
    return found if saturate else arrays.where(arrays.abs(x) < half, found, float("nan"))


def _power_of_two(x: Array, element: Carried, saturate: bool, round_mode: str) -> Array:
    """The exponent of float32 alone, raised by its fraction; the sign is lost, as ONNX's evaluator has
    it.
    """
    bits = x.view(dtypes.int32)
    exponent = arrays.bitwise_and(arrays.right_shift(bits, 23), 255)
    fraction = arrays.bitwise_and(bits, (1 << 23) - 1)
    match round_mode:
        case "up":
            rises = fraction > 0
        case "nearest":
            half = arrays.where(exponent > 0, 1 << 22, (1 << 22) + 1)
            rises = fraction >= half
        case "down":
            rises = fraction < 0
        case _:
            raise InvalidModel(f"a round_mode {round_mode!r}: it is up, down or nearest")
    most = 254 if saturate else 255
    code = arrays.minimum(exponent + rises.astype(dtypes.int32), most)
    code = arrays.where(exponent < 255, code, 255)  # NaN, also of Inf
    found: Array = arrays.take(asarray(element.values, element.carrier), code)
    return found
