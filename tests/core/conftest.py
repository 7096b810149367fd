"""The core seen from the tests: every array is an ndarray of words (unsigned storage bits)."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pytest

from neuronsim import _core, dtypes, ops
from neuronsim.profiles import Profile
from neuronsim.reference.formats import FORMATS

Words = npt.NDArray[Any]


class Evaluate(Protocol):
    def __call__(
        self,
        name: str,
        *operands: tuple[str, Words],
        profile: Profile = ...,
        setting: ops.Setting | None = ...,
        result: str | None = None,
        **attributes: Any,
    ) -> Words: ...


class RandomWords(Protocol):
    def __call__(
        self, rng: np.random.Generator, type_name: str, shape: Any, mode: str = ...
    ) -> Words: ...


@pytest.fixture(scope="session")
def evaluate() -> Evaluate:
    """Evaluate a row of the op table on (type name, words) operands; gives words."""

    def run(
        name: str,
        *operands: tuple[str, Words],
        profile: Profile = Profile(),  # noqa: B008 (frozen)
        setting: ops.Setting | None = None,
        result: str | None = None,
        **attributes: Any,
    ) -> Words:
        op = ops.by_name(name)
        bits = []
        for type_name, words in operands:
            t = dtypes.DTYPES[type_name]
            bits.append(ops.Bits(np.asarray(words).view(t.storage), t))
        stated = op.infer([x.type for x in bits], attributes)
        if result is not None:
            stated = stated._replace(dtype=dtypes.DTYPES[result])
        data = ops.evaluate(op, bits, attributes, setting or ops.Setting(profile), stated).data
        assert data.dtype == stated.dtype.storage
        assert data.shape == stated.dims
        return data.view(f"u{data.itemsize}")

    return run


@pytest.fixture(scope="session")
def random_words() -> RandomWords:
    """Random encodings: `any` has all bit patterns, `near` exponents within a few binades of 1 (so
    that additions meet), `special` mostly zeros, subnormals, extremes, Inf and NaN.
    """

    def draw(rng: np.random.Generator, type_name: str, shape: Any, mode: str = "any") -> Words:
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

    return draw


@pytest.fixture(scope="session")
def core_reduce() -> Any:
    """The core's reduce with a reduction of plain rules: op, dtype, input, kept, initial, output."""

    def run(
        op: int,
        dtype: int,
        x: Words,
        kept: int,
        initial: Words,
        output: Words,
        tile: int = 512,
        round_tiles: bool = False,
    ) -> None:
        plain = ops.numerics(Profile())
        reduction = _core.Reduction(op, dtype, 0, tile, round_tiles, plain, 0, [])
        _core.reduce(reduction, x, kept, initial, output)

    return run
