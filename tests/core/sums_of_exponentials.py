"""Pairs of float32 words whose log(c^x + c^y) to the base c is hard to round (E4)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]

LN_BASES = {"logaddexp": 1.0, "logaddexp2": np.log(2.0)}


def near_ties(rng: np.random.Generator, n: int, ln_base: float) -> tuple[Words, Words]:
    """A float32 number, and the one that takes the sum nearest to a tie some steps above it. Half of
    the second ones are near 0, so that it comes very near.
    """
    x = (rng.choice([-1, 1], n) * np.exp2(rng.uniform(-30, 6, n))).astype(np.float32)
    steps = rng.integers(0, 50, n)
    deep = slice(n // 2)
    x[deep] = rng.uniform(0.01, 16, n // 2)
    wide, unit = x.astype(np.float64), np.spacing(np.abs(x)).astype(np.float64)
    rest = np.log1p(np.exp(-wide[deep] * ln_base)) / ln_base
    steps[deep] = rest / unit[deep]
    y = wide + np.log(np.expm1((steps + 0.5) * unit * ln_base)) / ln_base
    return x.view(np.uint32), y.astype(np.float32).view(np.uint32)


def cancelling(rng: np.random.Generator, n: int, ln_base: float) -> tuple[Words, Words]:
    """c^x + c^y is nearly 1: half of the y are nearly 0, half of the others nearly -Inf."""
    y = -np.exp2(rng.uniform(-140, 6.5, n)).astype(np.float32)
    x = np.log(-np.expm1(y.astype(np.float64) * ln_base)) / ln_base
    return x.astype(np.float32).view(np.uint32), y.view(np.uint32)
