"""Random arrays, the same for the same generator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tests.support.words import Words

from neuronsim import Array, asarray, dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.reference.formats import FORMATS

MODES = ("any", "near", "special")  # of random_words


def random_words(rng: np.random.Generator, type_name: str, shape: Any, mode: str = "any") -> Words:
    """Random encodings: `any` has all bit patterns, `near` exponents within a few binades of 1 (so
    that additions meet), `special` mostly zeros, subnormals, extremes, Inf and NaN.
    """
    t = dtypes.DTYPES[type_name]
    word = np.dtype(f"u{t.itemsize}")
    top_word = 1 if t is dtypes.boolean else np.iinfo(word).max
    words = np.asarray(rng.integers(0, top_word, shape, word, endpoint=True))
    if t.kind != "float":
        return words
    f = FORMATS[type_name]
    shift, all_ones = f.shift, int(np.iinfo(word).max)
    words &= word.type(all_ones ^ ((1 << shift) - 1))
    m, top = f.mantissa_bits + shift, (1 << f.exponent_bits) - 1
    if mode == "near":
        bias = top >> 1
        spread = min(6, bias - 1)
        exponent = rng.integers(bias - spread, bias + spread, shape)
        words = (words & word.type(all_ones ^ (top << m))) | exponent.astype(word) << word.type(m)
    elif mode == "special":
        one = 1 << shift
        largest = (top << m if f.has_inf else f.nan_bits) - one
        table = [0, one, (1 << m) - one, 1 << m, (top >> 1) << m, largest, top << m]
        table += [f.nan_bits, f.nan_bits | one, (top << m) | one]
        values = np.array([v | s for v in table for s in (0, 1 << (8 * t.itemsize - 1))], word)
        chosen = rng.integers(0, len(values), shape)
        words = np.where(rng.random(shape) < 0.7, values[chosen], words)
    return np.asarray(words)


def encodings(dtype: DType, shape: tuple[int, ...], seed: int = 0, mode: str = "any") -> Array:
    """An array of random encodings."""
    words = random_words(np.random.default_rng([83, seed]), dtype.name, shape, mode)
    return Array(ops.Bits(words.view(dtype.storage), dtype))


def mixed_words(
    rng: np.random.Generator, type_name: str, count: int, modes: Sequence[str] = MODES
) -> Words:
    """So many random encodings of each mode, one mode after the other."""
    return np.concatenate([random_words(rng, type_name, count, mode) for mode in modes])


def normal(dtype: DType | str, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Normally distributed numbers, rounded to the type."""
    return asarray(np.random.default_rng(seed).standard_normal(shape), dtype=dtype)
