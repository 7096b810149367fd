"""Sums in the contract's order: reductions (R2, R3, R6), the matrix product (M2, M4, M6-M8),
convolution (M5).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from neuronsim.reference.elementwise import FLOAT
from neuronsim.reference.formats import (
    FORMATS,
    Number,
    convert,
    decode,
    float_to_integer,
    from_float,
    round_number,
    wrap,
)
from neuronsim.reference.functions import NAN


def reduce_float(
    reducer: str,
    format_name: str,
    elements: Sequence[int],
    initial: int,
    *,
    tile: int = 512,
    round_tiles: bool = False,
    accumulate: str = "float32",
) -> int:
    """One output of a simple reduction: bits of the format in, bits of the format out.

    Each tile is folded left to right from its first element; the tile results likewise; the initial
    value comes last; then one rounding. `round_tiles` rounds each tile's result (R3), `accumulate`
    every step's (R1).
    """

    def step(a: int, b: int) -> int:
        return _widen(accumulate, convert("float32", accumulate, FLOAT[reducer](a, b)))

    def fold(values: Sequence[int]) -> int:
        total = values[0]
        for x in values[1:]:
            total = step(total, x)
        return total

    if not elements:
        return initial
    wide = [_widen(format_name, x) for x in elements]
    tiles = [fold(wide[i : i + tile]) for i in range(0, len(wide), tile)]
    if round_tiles:
        tiles = [_widen(format_name, convert("float32", format_name, t)) for t in tiles]
    total = step(fold(tiles), _widen(format_name, initial))
    if decode("float32", total).kind == "nan":
        total = NAN
    return convert("float32", format_name, total)


def reduce_replicas(reducer: str, format_name: str, elements: Sequence[int]) -> int:
    """R6: one output of an all-reduce of what the group's replicas have, ascending: bits of the format
    in and out. One element alone stays as it is.
    """
    if len(elements) == 1:
        return elements[0]
    total = _widen(format_name, elements[0])
    for x in elements[1:]:
        total = FLOAT[reducer](total, _widen(format_name, x))
    if decode("float32", total).kind == "nan":
        total = NAN
    return convert("float32", format_name, total)


def reduce_integer(reducer: Callable[..., int], elements: Sequence[int], initial: int) -> int:
    """One output of a simple reduction of integers; the caller wraps (E8)."""
    total = initial
    for x in elements:
        total = reducer(total, x)
    return total


# Exact values in a matrix product: a finite one is a whole number of units of 2^-298, in which the
# product of any two float32 values is whole; Inf, NaN and -0 are Python's.
Exact = int | float
UNITS = 298


def dot(
    lhs_format: str,
    rhs_format: str,
    result_format: str,
    lhs: Sequence[int],
    rhs: Sequence[int],
    *,
    accumulate: str = "psum128",
    accumulate_format: str = "float32",
    tile: int = 128,
    subnormals: str = "keep",
    fp8_overflow: str = "inf",
) -> int:
    """One output of a matrix product: fma down each tile from +0, then into PSUM (M2), one
    rounding to the result's format (M4).

    `accumulate` is the profile's field and `accumulate_format` the plan's type, to which each fma's and
    each PSUM addition's float32 result is rounded (M6); `subnormals` and `fp8_overflow` are the
    profile's fields (C4, C3).

    >>> ones = [0x3F80] * 300
    >>> hex(dot("bfloat16", "bfloat16", "bfloat16", ones, ones))
    '0x4396'
    >>> hex(dot("bfloat16", "bfloat16", "bfloat16", ones, ones, accumulate_format="bfloat16"))
    '0x4396'
    """
    flush = subnormals == "flush"
    a = [_operand(lhs_format, x, flush) for x in lhs]
    b = [_operand(rhs_format, x, flush) for x in rhs]

    def kept(x: Exact) -> Exact:
        """What an addition leaves: float32, then the plan's type."""
        return _rounded(accumulate_format, _rounded("float32", x, flush), flush)

    if accumulate == "pairs":
        # VDPBF16PS adds the products of the odd half first; +0 stands behind an odd end.
        a, b = ([v for i in range(0, len(x), 2) for v in (*x[i + 1 : i + 2], x[i])] for x in (a, b))
    if accumulate in ("sequential", "pairs"):
        tile = max(len(a), 1)
    products = [_product(x, y) for x, y in zip(a, b, strict=True)]
    psum: Exact = 0
    if accumulate == "exact":
        for product in products:
            psum = _sum(psum, product)
        return _encode(result_format, psum, subnormals, fp8_overflow)
    if accumulate == "product_bf16":
        if max(FORMATS[f].bits for f in (lhs_format, rhs_format)) > 16:
            raise ValueError(
                f"product_bf16 of {lhs_format} and {rhs_format}: 16 bits are the most (M6)"
            )
        products = [_rounded("bfloat16", product, flush) for product in products]
    for start in range(0, len(products), tile):
        acc: Exact = 0
        for product in products[start : start + tile]:
            acc = kept(_sum(product, acc))
        psum = kept(_sum(psum, acc))
    return _encode(result_format, psum, subnormals, fp8_overflow)


@lru_cache(1 << 16)
def _operand(format_name: str, bits: int, flush: bool) -> Exact:
    """An operand in units of 2^-149; C4: a subnormal with the exponents of float32 reads as zero."""
    x = decode(format_name, bits)
    if x.kind != "finite":
        return math.nan if x.kind == "nan" else -math.inf if x.negative else math.inf
    if flush and FORMATS[format_name].exponent_bits == 8 and x.magnitude < Fraction(2) ** -126:
        return _signed(0, x.negative)
    return _signed(int(x.magnitude * 2 ** (UNITS // 2)), x.negative)


def _signed(magnitude: int, negative: bool) -> Exact:
    return -(magnitude or 0.0) if negative else magnitude


def _product(x: Exact, y: Exact) -> Exact:
    if isinstance(x, int) and isinstance(y, int) and x and y:
        return x * y
    # Only the sign of a finite factor counts, and whether it is zero.
    signs = (float((v > 0) - (v < 0)) if isinstance(v, int) else v for v in (x, y))
    product = math.prod(signs)
    return product if product or math.copysign(1, product) < 0 else 0


def _sum(x: Exact, y: Exact) -> Exact:
    if isinstance(x, int) and isinstance(y, int):
        return x + y
    if isinstance(x, float) and isinstance(y, float):
        return x + y
    whole, other = (x, y) if isinstance(x, int) else (y, x)
    return other or whole  # -0 changes nothing


def _rounded(format_name: str, x: Exact, flush: bool) -> Exact:
    """The nearest value of the format, ties to even (C2), overflow to Inf (C3)."""
    if isinstance(x, float):
        return x
    f = FORMATS[format_name]
    magnitude = abs(x)
    exponent = max(magnitude.bit_length() - 1 - UNITS, 1 - f.bias)
    place = UNITS + exponent - f.mantissa_bits  # of the last bit
    steps, rest = magnitude >> place, magnitude & ((1 << place) - 1)
    half = 1 << (place - 1)
    steps += rest > half or (rest == half and steps % 2 == 1)
    value = steps << place
    if flush and f.exponent_bits == 8 and value < 1 << (UNITS - 126):
        return _signed(0, x < 0)
    if value >> (UNITS + f.bias + 1):
        return -math.inf if x < 0 else math.inf
    return _signed(value, x < 0)


def _encode(format_name: str, x: Exact, subnormals: str, fp8_overflow: str) -> int:
    if isinstance(x, int):
        number = Number("finite", x < 0, Fraction(abs(x), 1 << UNITS))
    elif x == 0:
        number = Number("finite", True)
    else:
        number = Number("nan", False) if math.isnan(x) else Number("inf", x < 0)
    return round_number(format_name, number, subnormals=subnormals, fp8_overflow=fp8_overflow)


def dot_integer(lhs: Sequence[int], rhs: Sequence[int], *, bits: int, signed: bool) -> int:
    """One output of a product of integer values: operands in the result's type, modulo 2^bits (M7)."""
    total = sum(
        wrap(a, bits=bits, signed=signed) * wrap(b, bits=bits, signed=signed)
        for a, b in zip(lhs, rhs, strict=True)
    )
    return wrap(total, bits=bits, signed=signed)


def dot_bool(lhs: Sequence[int], rhs: Sequence[int]) -> int:
    """One output of a product of truth values: or of ands (M7)."""
    return int(any(a != 0 and b != 0 for a, b in zip(lhs, rhs, strict=True)))


def dot_integer_via_float32(
    lhs: Sequence[int], rhs: Sequence[int], *, bits: int, signed: bool, accumulate: str = "psum128"
) -> int:
    """M7's `via_float32`: values to float32, M2 there, back to the nearest, saturating."""
    a, b = ([from_float("float32", x) for x in values] for values in (lhs, rhs))
    total = dot("float32", "float32", "float32", a, b, accumulate=accumulate)
    return float_to_integer("float32", total, bits=bits, signed=signed, nearest=True)


def transpose(
    format_name: str,
    relayout_format: str,
    words: Sequence[Sequence[int]],
    *,
    saturate_infinity: bool = False,
    subnormals: str = "keep",
    block: int = 128,
) -> list[list[int]]:
    """The transpose on the tensor engine (M8): words[k][m] times the identity in blocks of 128, where
    words first become the relayout type.
    """
    depth, columns = len(words), len(words[0]) if words else 0
    f = FORMATS[relayout_format]
    infinity = round_number(relayout_format, Number("inf", False))
    one, zero = from_float(relayout_format, 1), from_float(relayout_format, 0)

    def relayout(word: int) -> int:
        y = convert(format_name, relayout_format, word)
        if saturate_infinity and y & ~f.sign_bit == infinity:
            return y - (1 << f.shift)  # the largest finite value
        return y

    moved = [[relayout(words[k][m]) for k in range(depth)] for m in range(columns)]
    result: list[list[int]] = [[] for _ in range(columns)]
    for start in range(0, depth, block):
        size = min(block, depth - start)
        for n in range(size):
            identity = [one if k == n else zero for k in range(size)]
            for m in range(columns):
                row = moved[m][start : start + size]
                formats = relayout_format, relayout_format, format_name
                result[m].append(dot(*formats, row, identity, subnormals=subnormals))
    return result


@dataclass(frozen=True)
class WindowAxis:
    """One spatial dimension of a convolution's window; what lies behind the image is padding too."""

    size: int
    stride: int = 1
    padding_low: int = 0
    base_dilation: int = 1
    window_dilation: int = 1
    reversal: bool = False


Position = tuple[int, ...]


def convolution_terms(
    image: Mapping[tuple[int, Position, int], int],
    kernel: Mapping[tuple[Position, int, int], int],
    window: Sequence[WindowAxis],
    output: tuple[int, Position, int],
    *,
    batch: int,
    outputs: int,
    features: int,
    feature_groups: int = 1,
    batch_groups: int = 1,
) -> tuple[list[int], list[int]]:
    """What one output of a convolution, at (batch, position, output feature), multiplies (M5).

    `image` is found by (batch, position, feature) and `kernel` by (window position, input feature,
    output feature). There are `batch` images and `outputs` output features; the kernel reads
    `features` input features, those of the output's feature group. What the image does not have is a
    zero that counts.
    """
    n, place, out = output
    feature_group = out // (outputs // feature_groups)
    n += out // (outputs // batch_groups) * (batch // batch_groups)
    lhs, rhs = [], []
    for offsets in itertools.product(*(range(axis.size) for axis in window)):
        read: list[int] = []
        weight: list[int] = []
        for axis, at, offset in zip(window, place, offsets, strict=True):
            dilated = at * axis.stride - axis.padding_low + offset * axis.window_dilation
            index, rest = divmod(dilated, axis.base_dilation)
            read.append(-1 if rest else index)  # no image has a position -1
            weight.append(axis.size - 1 - offset if axis.reversal else offset)
        for feature in range(features):
            lhs.append(image.get((n, tuple(read), feature_group * features + feature), 0))
            rhs.append(kernel[tuple(weight), feature, out])
    return lhs, rhs


def convolution(
    lhs_format: str,
    rhs_format: str,
    result_format: str,
    image: Mapping[tuple[int, Position, int], int],
    kernel: Mapping[tuple[Position, int, int], int],
    window: Sequence[WindowAxis],
    output: tuple[int, Position, int],
    *,
    tile: int = 128,
    **sizes: int,
) -> int:
    """One output of a convolution: the dot of its terms (M5). `sizes` are those of
    `convolution_terms`.
    """
    lhs, rhs = convolution_terms(image, kernel, window, output, **sizes)
    return dot(lhs_format, rhs_format, result_format, lhs, rhs, tile=tile)


def _widen(format_name: str, bits: int) -> int:
    return convert(format_name, "float32", bits)


def cumulative_float(
    reducer: str,
    format_name: str,
    elements: Sequence[int],
    initial: int,
    *,
    tile: int = 512,
    round_tiles: bool = False,
) -> list[int]:
    """Element j is the reduction of the elements 0 to j (R4)."""
    return [
        reduce_float(
            reducer, format_name, elements[: j + 1], initial, tile=tile, round_tiles=round_tiles
        )
        for j in range(len(elements))
    ]
