"""What is kept of a setting's outputs on a shard of the data: sums that merge in float64, in the order
of the shards, so that every figure is the same wherever the shards were computed.

>>> reference = np.array([[0.0, 1.0], [2.0, 1.0]])
>>> one = output_statistics(reference[:1] + [[0.0, 0.5]], reference[:1])
>>> both = one + output_statistics(reference[1:], reference[1:])
>>> both.elements, both.max_error, round(both.relative_error, 6)
(4, 0.5, 0.204124)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64] | npt.NDArray[np.complex128]
ULP_BUCKETS = 34  # 0, 1, 2, 3 to 4, 5 to 8, ... units in the last place; the last one has the rest
SKETCH = 512  # numbers that stand for the difference of all outputs (a count sketch)


class Squares(NamedTuple):
    """A sum of squares, mantissa * 4**exponent, that neither overflows nor vanishes."""

    mantissa: float = 0.0
    exponent: int = 0

    @property
    def root(self) -> float:
        return _ldexp(math.sqrt(self.mantissa), self.exponent)


def squares(x: Values) -> Squares:
    """The sum of the squares of finite values; exact but for one rounding of each square."""
    size = np.abs(x)
    top = float(np.max(size, initial=0.0))
    if not top:
        return Squares()
    exponent = math.frexp(top)[1]
    return Squares(exact_sum(np.square(np.ldexp(size, -exponent))), exponent)


_FEW = 256  # numbers that Python adds as quickly
_PART = 30  # bits: 2^33 such integers have a sum of 64


def exact_sum(x: npt.NDArray[np.float64]) -> float:
    """The sum of finite numbers, rounded once, in whatever order they are; of many, what is below 2^-90
    of the largest is left out. They are added as integers, 30 bits at a time.

    >>> exact_sum(np.array([1.0, 2.0**-60, -1.0] * 100)) == 100 * 2.0**-60
    True
    """
    if x.size <= _FEW:
        return math.fsum(x.ravel().tolist())
    exponent = math.frexp(float(np.max(np.abs(x))))[1]
    rest, total = np.ldexp(x, _PART - exponent), 0
    for _ in range(3):
        part = np.rint(rest)
        total = (total << _PART) + int(part.astype(np.int64).sum())
        rest = (rest - part) * 2.0**_PART
    return _ldexp(total / (1 << 3 * _PART), exponent)


def add_squares(a: Squares, b: Squares) -> Squares:
    """The sum of two."""
    if not (a.mantissa and b.mantissa):
        return a if a.mantissa else b
    e = max(a.exponent, b.exponent)
    first, second = (math.ldexp(s.mantissa, 2 * (s.exponent - e)) for s in (a, b))
    return Squares(first + second, e)


def ratio(a: Squares, b: Squares) -> float:
    """The root of a quotient: 0 over 0 is 0, anything else over 0 is infinite."""
    if not b.mantissa:
        return math.inf if a.mantissa else 0.0
    return _ldexp(math.sqrt(a.mantissa) / math.sqrt(b.mantissa), a.exponent - b.exponent)


def _ldexp(x: float, exponent: int) -> float:
    try:
        return math.ldexp(x, exponent)
    except OverflowError:
        return math.inf


class Moments(NamedTuple):
    """Count, means, and central second moments of pairs of values."""

    pairs: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    yy: float = 0.0
    xy: float = 0.0

    @property
    def correlation(self) -> float:
        """Pearson's; 1 for two constants, 0 for one."""
        if not (self.xx and self.yy):
            return 1.0 if self.xx == self.yy else 0.0
        return max(-1.0, min(1.0, self.xy / math.sqrt(self.xx) / math.sqrt(self.yy)))


_NO_SQUARES = Squares()
_NO_MOMENTS = Moments()


def moments(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> Moments:
    """Those of two arrays of finite values."""
    n = x.size
    if not n:
        return Moments()
    mean_x, mean_y = (exact_sum(v) / n for v in (x, y))
    a, b = x - mean_x, y - mean_y
    sums = (exact_sum(p * q) for p, q in ((a, a), (b, b), (a, b)))
    return Moments(n, mean_x, mean_y, *sums)


def add_moments(a: Moments, b: Moments) -> Moments:
    """Those of both (Chan's rule)."""
    if not (a.pairs and b.pairs):
        return a if a.pairs else b
    n = a.pairs + b.pairs
    dx, dy = b.x - a.x, b.y - a.y
    w = a.pairs * b.pairs / n
    return Moments(
        n,
        a.x + dx * b.pairs / n,
        a.y + dy * b.pairs / n,
        a.xx + b.xx + dx * dx * w,
        a.yy + b.yy + dy * dy * w,
        a.xy + b.xy + dx * dy * w,
    )


@dataclass(frozen=True)
class OutputStatistics:
    """One output against float32's. `infinite` says that a value is not finite where the reference's
    is, or is not the same where that is not; `differing` counts the elements that are not equal. The
    `moments` and the histogram of `ulps` are there where a metric asks for them.
    """

    elements: int = 0
    differing: int = 0
    not_finite: int = 0
    infinite: bool = False
    max_error: float = 0.0
    distance: Squares = _NO_SQUARES
    scale: Squares = _NO_SQUARES
    moments: Moments = _NO_MOMENTS
    ulps: tuple[int, ...] = ()

    @property
    def relative_error(self) -> float:
        """The Frobenius norm of the difference over the reference's."""
        return math.inf if self.infinite else ratio(self.distance, self.scale)

    @property
    def largest_error(self) -> float:
        return math.inf if self.infinite else self.max_error

    @property
    def share_differing(self) -> float:
        return self.differing / self.elements if self.elements else 0.0

    def __add__(self, other: OutputStatistics) -> OutputStatistics:
        ulps = tuple(a + b for a, b in zip(self.ulps, other.ulps, strict=True))
        return OutputStatistics(
            self.elements + other.elements,
            self.differing + other.differing,
            self.not_finite + other.not_finite,
            self.infinite or other.infinite,
            max(self.max_error, other.max_error),
            add_squares(self.distance, other.distance),
            add_squares(self.scale, other.scale),
            add_moments(self.moments, other.moments),
            ulps,
        )


def output_statistics(
    outputs: npt.NDArray[Any],
    reference: npt.NDArray[Any],
    *,
    correlates: bool = False,
    mantissa_bits: int | None = None,
) -> OutputStatistics:
    """Those of an output: floats as float64 or complex128, integers and truth values as they are. With
    `correlates` they have moments, with `mantissa_bits`, those of the output's type, a histogram.
    """
    if reference.dtype.kind not in "fc":
        differing = int(np.count_nonzero(outputs != reference))
        return OutputStatistics(reference.size, differing)
    not_finite = int(np.count_nonzero(~np.isfinite(outputs)))
    same = (outputs == reference) | (np.isnan(outputs) & np.isnan(reference))
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.where(same, 0.0, outputs - reference)
    known = np.isfinite(difference)
    infinite = not bool(known.all())
    finite = np.isfinite(reference)
    difference = np.where(known, difference, 0.0)
    both = finite & known
    real = reference.dtype.kind == "f"
    return OutputStatistics(
        elements=reference.size,
        differing=reference.size - int(np.count_nonzero(same)),
        not_finite=not_finite,
        infinite=infinite,
        max_error=float(np.max(np.abs(difference), initial=0.0)),
        distance=squares(difference),
        scale=squares(reference[finite]),
        moments=moments(outputs[both], reference[both]) if correlates and real else Moments(),
        ulps=_histogram(difference, reference, finite, known, mantissa_bits) if real else (),
    )


def _histogram(
    difference: Values,
    reference: Values,
    finite: npt.NDArray[np.bool_],
    known: npt.NDArray[np.bool_],
    mantissa_bits: int | None,
) -> tuple[int, ...]:
    """How many elements are 0, 1, 2, 3 to 4, ... units in the last place of the reference away."""
    if mantissa_bits is None:
        return ()
    with np.errstate(over="ignore"):
        exponent = np.frexp(np.where(finite, reference, 1.0))[1] - 1 - mantissa_bits
        ulps = np.ldexp(np.abs(difference), -np.maximum(exponent, -149))
    bucket = np.where(ulps < 0.5, 0, 1 + np.ceil(np.log2(np.maximum(ulps, 1.0))))
    bucket = np.where(known, np.minimum(bucket, ULP_BUCKETS - 1), ULP_BUCKETS - 1)
    found = np.bincount(bucket.ravel().astype(np.int64), minlength=ULP_BUCKETS)
    return tuple(int(n) for n in found)


def ulp_bound(histogram: Sequence[int], share: float) -> float:
    """The smallest bound of a bucket within which this share of the elements is; infinite in the last.

    >>> ulp_bound([90, 5, 4, 1], 0.99), ulp_bound([0, 1], 0.99)
    (2.0, inf)
    """
    total, seen = sum(histogram), 0
    for n, count in enumerate(histogram):
        seen += count
        if seen >= share * total:
            if n == len(histogram) - 1 and count:
                return math.inf
            return float(2 ** (n - 1)) if n else 0.0
    return 0.0


@dataclass(frozen=True)
class Scores:
    """Sums of a figure that each sample has: of its values and of those of float32's outputs, their
    weights, and the differences of the two, paired sample by sample.
    """

    samples: int = 0
    weight: float = 0.0
    value: float = 0.0
    reference: float = 0.0
    largest: float = 0.0
    difference: float = 0.0
    squared: float = 0.0
    changed: int = 0  # samples whose value is another one

    @property
    def mean(self) -> float:
        return self.value / self.weight if self.weight else math.nan

    @property
    def reference_mean(self) -> float:
        return self.reference / self.weight if self.weight else math.nan

    @property
    def standard_error(self) -> float:
        """Of the difference of the means, by the paired differences; infinite for a single sample."""
        n = self.samples
        if n < 2 or not self.weight:
            return math.inf
        variance = max(0.0, (self.squared - self.difference**2 / n) / (n - 1))
        return math.sqrt(n * variance) / self.weight

    def __add__(self, other: Scores) -> Scores:
        return Scores(
            self.samples + other.samples,
            self.weight + other.weight,
            self.value + other.value,
            self.reference + other.reference,
            max(self.largest, other.largest),
            self.difference + other.difference,
            self.squared + other.squared,
            self.changed + other.changed,
        )


def scores(
    values: npt.NDArray[np.float64],
    reference: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
) -> Scores:
    """Those of samples with these values, float32's and weights. A value may be NaN, and then is the
    sum.
    """
    difference = values - reference
    weight, value, expected = (
        math.fsum(x.tolist()) if np.isfinite(x).all() else float(np.sum(x))
        for x in (weights, values, reference)
    )
    finite = np.isfinite(difference).all()
    return Scores(
        samples=len(values),
        weight=weight,
        value=value,
        reference=expected,
        largest=float(np.max(values, initial=-math.inf)),
        difference=math.fsum(difference.tolist()) if finite else math.nan,
        squared=math.fsum((difference * difference).tolist()) if finite else math.nan,
        changed=int(np.count_nonzero(difference)),
    )


@dataclass(frozen=True)
class Statistics:
    """What a trial gave on some of the data. `sketch` stands for the difference of the outputs, each
    over its reference's norm: sketches add as differences do, and their products are nearly those of
    the differences. `results` are the outputs themselves, where a metric is a function of them all.
    """

    samples: int
    outputs: tuple[OutputStatistics, ...]
    scores: Mapping[str, Scores] = field(default_factory=dict)
    truncated: Mapping[str, int] = field(default_factory=dict)
    sketch: tuple[float, ...] = ()
    results: tuple[npt.NDArray[Any], ...] = ()

    @property
    def is_broken(self) -> bool:
        """Whether an output is not finite where float32's is."""
        return any(o.infinite for o in self.outputs)

    def __add__(self, other: Statistics) -> Statistics:
        names = self.scores.keys() & other.scores.keys()
        return Statistics(
            self.samples + other.samples,
            tuple(a + b for a, b in zip(self.outputs, other.outputs, strict=True)),
            {n: self.scores[n] + other.scores[n] for n in sorted(names)},
            _counts(self.truncated, other.truncated),
            tuple(a + b for a, b in zip(self.sketch, other.sketch, strict=False)),  # if both have one
            tuple(map(np.concatenate, zip(self.results, other.results, strict=True))),
        )


def _counts(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(a) + Counter(b)) if a or b else {}


def merge_statistics(shards: Sequence[Statistics]) -> Statistics:
    """Those of all shards, which come in their order."""
    if len(shards) == 1:
        return shards[0]
    total, *others = (replace(s, results=()) if s.results else s for s in shards)
    for s in others:
        total = total + s
    results = list(zip(*(s.results for s in shards), strict=True))
    if not results:
        return total
    return replace(total, results=tuple(np.concatenate(parts) for parts in results))


def sketch(
    outputs: Sequence[npt.NDArray[Any]], reference: Sequence[npt.NDArray[Any]], shard: int
) -> tuple[float, ...]:
    """A count sketch of the difference on one shard: each element, with a sign, goes to one of SKETCH
    sums. Values that are not finite count as none.
    """
    total = np.zeros(SKETCH)
    for n, (a, b) in enumerate(zip(outputs, reference, strict=True)):
        if b.dtype.kind not in "fc":
            difference = (a != b).astype(np.float64)
            norm = math.sqrt(max(b.size, 1))
        else:
            with np.errstate(invalid="ignore", over="ignore"):
                difference = np.abs(a - b) if b.dtype.kind == "c" else a - b
            difference = np.where(np.isfinite(difference), difference, 0.0)
            norm = squares(b[np.isfinite(b)]).root or 1.0
        place = np.arange(b.size, dtype=np.uint64) + np.uint64((shard * 1009 + n) << 32)
        mixed = _mix(place)
        sign = 1.0 - 2.0 * ((mixed >> np.uint64(60)) & np.uint64(1)).astype(np.float64)
        bucket = (mixed & np.uint64(SKETCH - 1)).astype(np.int64)
        total += np.bincount(bucket, sign * difference.ravel() / norm, minlength=SKETCH)
    return tuple(total.tolist())


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A hash of 64 bits (splitmix64's finalizer)."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
