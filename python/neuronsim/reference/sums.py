"""Sums in the contract's order: reductions (R2, R3) and the matrix product (M2, M4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
