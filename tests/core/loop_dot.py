"""The matrix product as a NumPy loop over k with all outputs at once: the oracle of large problems.

It shares only the table of formats with the twin; `test_dot_oracle.py` proves the two equal.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim.reference.formats import FORMATS, convert

Words = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
SMALLEST = np.float32(2.0**-126)


def loop_dot(
    a_type: str,
    x: Words,
    b_type: str,
    y: Words,
    result: str = "float32",
    *,
    accumulate: str = "psum128",
    accumulate_format: str = "float32",
    tile: int = 128,
    subnormals: str = "keep",
) -> Words:
    """The product of words [rows, depth] and [depth, columns] (M2, M4, M6, C4), as the twin's `dot`."""
    flush = subnormals == "flush"
    a, b = widened(a_type, x, flush), widened(b_type, y, flush)
    if accumulate == "exact":
        return rounded(result, exact_sums(a, b), flush)
    if accumulate == "pairs" and a.shape[1] % 2:
        a, b = np.pad(a, ((0, 0), (0, 1))), np.pad(b, ((0, 1), (0, 0)))
    depth = a.shape[1]
    if accumulate in ("sequential", "pairs"):
        tile = max(depth, 1)

    def kept(v: Floats) -> Floats:
        v = flushed(v) if flush else v
        if accumulate_format == "float32":
            return v
        return widened(accumulate_format, rounded(accumulate_format, v.astype(np.float64), flush))

    def sums_of_tiles(a: Floats, b: Floats) -> Floats:
        """The sums of tiles [tiles, rows, length] and [tiles, length, columns]."""
        acc = np.zeros((a.shape[0], a.shape[1], b.shape[2]), np.float32)
        a64, b64 = a.astype(np.float64), b.astype(np.float64)
        for k in (np.arange(a.shape[2]) ^ int(accumulate == "pairs")).tolist():
            left, right = a64[:, :, k, None], b64[:, k, None]
            if accumulate == "product_bf16":
                product = rounded("bfloat16", left * right, flush)
                acc = kept(acc + widened("bfloat16", product))
            else:
                acc = kept(fma_float32(left, right, acc))
        return acc

    psum = np.zeros((x.shape[0], y.shape[1]), np.float32)
    # Tiles know nothing of each other, so several small ones are added up at once.
    together = tile * max(1, 4096 // max(psum.size, 1))
    whole = depth - depth % tile
    cuts = [(k, min(k + together, whole), tile) for k in range(0, whole, together)]
    if whole < depth:
        cuts.append((whole, depth, depth - whole))
    with np.errstate(all="ignore"):
        for start, end, length in cuts:
            tiles = (end - start) // length
            left = a[:, start:end].reshape(-1, tiles, length).swapaxes(0, 1)
            right = b[start:end].reshape(tiles, length, -1)
            for acc in sums_of_tiles(left, right):
                psum = kept(psum + acc)
        return rounded(result, psum.astype(np.float64), flush)


def fma_float32(a: Doubles, b: Doubles, c: Floats) -> Floats:
    """The sum a * b + c of float32 values with one rounding: exact product in float64, then
    round-to-odd there.
    """
    product, wide = a * b, c.astype(np.float64)
    total = product + wide
    # Round-to-odd decides at midpoints of float32 alone, whose last 28 bits are zero in float64.
    decides = total.view(np.int64) & 0xFFFFFFF == 0
    if decides.any():
        part = total - product
        wide -= part
        error = np.subtract(product, np.subtract(total, part, out=part), out=part)
        error += wide
        decides &= error != 0
        if decides.any():
            error, some = error[decides], total[decides]
            step = np.where((error > 0) == (some > 0), 1, -1)
            total.view(np.int64)[decides] += np.where(np.isfinite(some), step, 0)
    return total.astype(np.float32)


def exact_sums(a: Floats, b: Floats) -> Doubles:
    """Exact sums of exact products, rounded to odd in float64, which a rounding to a narrower format
    does not notice.
    """
    out = np.empty((a.shape[0], b.shape[1]))
    with np.errstate(invalid="ignore"):
        for i, row in enumerate(a.astype(np.float64)):
            for j, products in enumerate((row[:, None] * b).T):
                if not np.isfinite(products).all():
                    # Infinities of one sign, or NaN: a finite part changes nothing.
                    out[i, j] = products[~np.isfinite(products)].sum()
                    continue
                terms = products.tolist()
                total = math.fsum(terms)
                rest = math.fsum([*terms, -total])
                if rest and not np.float64(total).view(np.int64) & 1:
                    total = math.nextafter(total, math.copysign(math.inf, rest))
                out[i, j] = total + 0.0  # an exact zero is +0
    return out


def widened(type_name: str, words: Words, flush: bool = False) -> Floats:
    """The float32 values of words; C4 reads subnormals with the exponents of float32 as zero."""
    if words.dtype == np.uint32:
        values = words.view(np.float32)
    elif type_name == "bfloat16":
        values = (words.astype(np.uint32) << np.uint32(16)).view(np.float32)
    elif type_name == "float16":
        values = words.view(np.float16).astype(np.float32)
    else:
        table = [convert(type_name, "float32", w) for w in range(256)]
        values = np.array(table, np.uint32)[words].view(np.float32)
    return flushed(values) if flush and FORMATS[type_name].exponent_bits == 8 else values


def flushed(values: Floats) -> Floats:
    return np.where(np.abs(values) < SMALLEST, np.copysign(np.float32(0), values), values)


def rounded(type_name: str, values: Doubles, flush: bool = False) -> Words:
    """The words of the type nearest to the values, ties to even; NaN canonical (C2-C5, E6)."""
    f = FORMATS[type_name]
    word = np.dtype(f"u{1 << math.ceil(math.log2(f.bits)) >> 3}")
    size = np.abs(np.where(np.isfinite(values), values, 0))
    exponent = np.maximum(np.where(size > 0, np.frexp(size)[1] - 1, -9999), 1 - f.bias)
    steps = np.rint(np.ldexp(size, f.mantissa_bits - exponent)).astype(np.int64)
    field = steps + ((exponent + f.bias - 1).astype(np.int64) << f.mantissa_bits)
    if flush and f.exponent_bits == 8:
        field = np.where(field < 1 << f.mantissa_bits, 0, field)
    top = ((1 << f.exponent_bits) - 1) << f.mantissa_bits
    field = np.where(np.isinf(values), top, np.minimum(field, top))
    out = field << f.shift | np.where(np.signbit(values), f.sign_bit, 0)
    return np.where(np.isnan(values), f.nan_bits, out).astype(word)
