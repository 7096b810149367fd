"""Sums in the contract's order: reductions (R2, R3), matrix product (M2, M4), convolution (M5)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from neuronsim.reference.elementwise import FLOAT, NAN, add, fma
from neuronsim.reference.formats import convert, decode


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


def reduce_integer(reducer: Callable[..., int], elements: Sequence[int], initial: int) -> int:
    """One output of a simple reduction of integers; the caller wraps (E8)."""
    total = initial
    for x in elements:
        total = reducer(total, x)
    return total


def dot(
    lhs_format: str,
    rhs_format: str,
    result_format: str,
    lhs: Sequence[int],
    rhs: Sequence[int],
    *,
    tile: int = 128,
) -> int:
    """One output of a matrix product: fma down each tile from +0, then into PSUM (M2), one
    rounding to the result's format (M4).
    """
    psum = 0
    for start in range(0, len(lhs), tile):
        acc = 0
        for a, b in zip(lhs[start : start + tile], rhs[start : start + tile], strict=True):
            acc = fma(_widen(lhs_format, a), _widen(rhs_format, b), acc)
        psum = add(psum, acc)
    return convert("float32", result_format, psum)


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
