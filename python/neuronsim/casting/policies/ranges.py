"""The range that a calibration's method keeps of the values of an array, for its quantization.

>>> seen = Seen("minmax")
>>> for batch in ([-1.0, 2.0], [0.5, 4.0]):
...     seen.add(np.float32(batch))
>>> seen.range()
(-1.0, 4.0)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim.dtypes import DType, int8
from neuronsim.errors import InvalidArgument, nearest

Floats = npt.NDArray[np.float64]
METHODS = ("minmax", "moving_average", "percentile", "entropy", "mse")
BINS = 2048
LEVELS = 256  # of an integer byte
AVERAGED = 0.1  # what a batch adds to a moving average
SHARES = tuple(np.linspace(1.0, 0.1, 91).tolist())  # of the whole range, that are tried


def check_method(method: str) -> None:
    """Raises InvalidArgument for a name that is no method's."""
    if method not in METHODS:
        known = ", ".join(METHODS)
        raise InvalidArgument(
            f"a method of calibration is one of {known}, not {method!r}{nearest(str(method), METHODS)}"
        )


def counts_values(method: str) -> bool:
    """Whether a method needs the values a second time, to count them within their range."""
    return method in ("percentile", "entropy", "mse")


@dataclass
class Seen:
    """What was seen of an array that is to be quantized in this type: its range, and, in a second pass,
    how often its values lie in each of BINS equal parts of it. Values that are Inf or NaN count as
    `left_out` and widen nothing.
    """

    method: str
    percentile: float = 99.999
    type: DType = int8
    low: float = math.inf
    high: float = -math.inf
    left_out: int = 0
    counts: Floats | None = field(default=None, repr=False)

    def add(self, x: npt.NDArray[Any]) -> None:
        """The values of a batch."""
        finite = x[np.isfinite(x)]
        self.left_out += x.size - finite.size
        if finite.size == 0:
            return
        low, high = float(finite.min()), float(finite.max())
        if self.method == "moving_average" and self.low <= self.high:
            low = self.low + AVERAGED * (low - self.low)
            high = self.high + AVERAGED * (high - self.high)
            self.low, self.high = low, high
            return
        self.low, self.high = min(self.low, low), max(self.high, high)

    def count(self, x: npt.NDArray[Any], copies: int = 1, size: int = 1) -> None:
        """The values of a batch again, once the range is known; or, where `copies` is negative, takes
        out so many of a sample of which the batch has `size` and nothing else.
        """
        if self.low >= self.high:
            return
        finite = x[np.isfinite(x)].astype(np.float64)
        found, _ = np.histogram(finite, BINS, (self.low, self.high))
        found = found * copies / size
        self.counts = found if self.counts is None else np.maximum(self.counts + found, 0)

    def range(self) -> tuple[float, float]:
        """The least and the greatest value that are kept; the caller sees that there are any."""
        if self.counts is None or not self.counts.any():
            return self.low, self.high
        return _CHOICES[self.method](self)

    @property
    def centres(self) -> Floats:
        """The middle of each part of the range."""
        edges = np.linspace(self.low, self.high, BINS + 1)
        return np.asarray((edges[:-1] + edges[1:]) / 2)


def _by_percentile(seen: Seen) -> tuple[float, float]:
    """Without the outermost values, half of them at either end."""
    assert seen.counts is not None
    cut = (1 - seen.percentile / 100) / 2 * seen.counts.sum()
    before = np.cumsum(seen.counts)
    first = int(np.searchsorted(before, cut, side="right"))
    last = int(np.searchsorted(before, before[-1] - cut, side="left"))
    width = (seen.high - seen.low) / BINS
    return seen.low + first * width, seen.low + (last + 1) * width


def _tried(seen: Seen, cost: Callable[[Seen, float, float], float]) -> tuple[float, float]:
    """Of the range and smaller ones in proportion the one with the least cost; of equal ones the
    widest.
    """
    ranges = [(seen.low * s, seen.high * s) for s in SHARES]
    costs = [cost(seen, *r) for r in ranges]
    return ranges[int(np.argmin(costs))]


def _values(seen: Seen, low: float, high: float) -> Floats:
    """What the bytes of the type stand for, from the least on (Q1, Q6)."""
    low, high = min(low, 0.0), max(high, 0.0)
    if seen.type.kind != "float":
        return np.linspace(low, high, LEVELS)
    own = np.arange(LEVELS, dtype=np.uint8).view(seen.type.numpy).astype(np.float64)
    return np.unique(own[np.isfinite(own)]) * (max(-low, high) / seen.type.max)


def _levels(seen: Seen, values: Floats) -> npt.NDArray[np.int64]:
    """Which of the values each part of the range becomes."""
    return np.searchsorted((values[:-1] + values[1:]) / 2, seen.centres)


def _squares(seen: Seen, low: float, high: float) -> float:
    """The squared error of what the values become."""
    assert seen.counts is not None
    values = _values(seen, low, high)
    return float((seen.counts * (seen.centres - values[_levels(seen, values)]) ** 2).sum())


def _smoothed(counts: Floats) -> Floats:
    """Counts without what is chance in so narrow parts, which a wide level would be blamed for."""
    width = BINS // LEVELS + 1
    return np.convolve(counts, np.full(width, 1 / width), "same")


def _divergence(seen: Seen, low: float, high: float) -> float:
    """Kullback and Leibler's divergence of the counts, those outside at the ends, from the counts
    inside as the bytes tell them: evenly among the parts that have any.
    """
    assert seen.counts is not None
    inside = (seen.centres >= low) & (seen.centres <= high)
    if not (seen.counts * inside).any():
        return math.inf
    counts = _smoothed(seen.counts)
    levels = _levels(seen, _values(seen, low, high))
    first, last = np.flatnonzero(inside)[[0, -1]]
    own = counts * inside
    p = own.copy()
    p[first] += counts[:first].sum()
    p[last] += counts[last + 1 :].sum()
    filled = (p > 0) & inside
    total = np.bincount(levels[inside], own[inside], LEVELS)
    parts = np.bincount(levels[filled], minlength=LEVELS)
    q = np.zeros(BINS)
    q[filled] = (total / np.maximum(parts, 1))[levels[filled]]
    p, q = p / p.sum(), q / q.sum()
    q = np.maximum(q, 1e-12)  # a level that had only what lay outside
    return float((p[filled] * np.log(p[filled] / q[filled])).sum())


_CHOICES: Mapping[str, Callable[[Seen], tuple[float, float]]] = {
    "percentile": _by_percentile,
    "entropy": lambda seen: _tried(seen, _divergence),
    "mse": lambda seen: _tried(seen, _squares),
}
