"""The metrics: how far a setting's outputs are from float32's, and how often they are right.

`METRICS` is the one table. A metric is either of errors, which whole outputs have (`Metric.error`), of
samples, each of which has a value (`Metric.of_samples`), or a function of all outputs and labels.

>>> logits, labels = np.array([[0.0, 1.0], [2.0, 1.0]]), np.array([1, 1])
>>> top_k(1)(logits, logits, labels)
(array([1., 0.]), array([1., 1.]))
>>> METRICS["top1"].loss(0.5, 0.75), METRICS["relative_error"].loss(0.01, 0.0)
(0.25, 0.01)
"""

from __future__ import annotations

import importlib
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from neuronsim.errors import InvalidArgument, InvalidData, nearest
from neuronsim.hlo.module import Shape
from neuronsim.tuning.statistics import OutputStatistics, Scores, Statistics, ulp_bound

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[Any]
# Values and weights of samples from class scores [samples, ..., classes], float32's, and labels.
OfSamples: TypeAlias = Callable[[Floats, Floats, "Labels | None"], tuple[Floats, Floats]]
Criterion = Literal["absolute", "relative"]
IGNORED = -100  # a label that does not count, as torch's losses have it
CONFIDENCE = 1.96  # standard errors on either side: 95 %
# NxDI's thresholds of relative errors of the largest logits (neuron.md 8).
LOGIT_TOLERANCES = ((5, 0.01), (50, 0.02), (1000, 0.03), (None, 0.05))


@dataclass(frozen=True)
class Metric:
    """A figure of a setting. `ideal` is that of float32's own outputs where the metric compares with
    these, None where it compares with labels. `error` makes it of each output, and the worst counts;
    `of_samples` of each sample, whose mean counts; `function` of everything at once. Of an `extreme`
    one the largest, or nearly, decides. `aws_ratio` needs another run and has none of them.
    """

    name: str
    about: str
    better: Literal["higher", "lower"]
    ideal: float | None = 0.0
    error: Callable[[OutputStatistics], float] | None = None
    of_samples: OfSamples | None = None
    function: Callable[..., Any] | None = None
    transform: Callable[[float], float] = float
    extreme: bool = False
    reads: Literal["outputs", "classes", "labels"] = "outputs"
    criterion: Criterion = "absolute"

    def loss(self, value: float, baseline: float) -> float:
        """What a tolerance is compared with: how much worse a value is than the baseline, float32's;
        over its magnitude by the relative criterion, unless that is zero. NaN is infinitely bad.
        """
        if self.name == "sqnr":  # more decibels than the tolerance: as a share of noise
            return math.inf if math.isnan(value) else 10 ** (-value / 20)
        if math.isinf(baseline) and value == baseline:
            return 0.0
        lost = baseline - value if self.better == "higher" else value - baseline
        if self.criterion == "relative" and baseline:
            lost /= abs(baseline)
        return math.inf if math.isnan(lost) else lost

    @property
    def usual_tolerance(self) -> float:
        """1 %, or as a ratio of signal to noise 40 dB."""
        return 40.0 if self.name == "sqnr" else 0.01

    def budget(self, tolerance: float) -> float:
        """The largest loss within a tolerance."""
        # A difference of two figures is off by a few units in the last place of a float64.
        return (10 ** (-tolerance / 20) if self.name == "sqnr" else tolerance) + 1e-12


def value_of(metric: Metric, s: Statistics, labels: Labels | None = None) -> float:
    """A metric's value by the statistics of a trial; raises InvalidData where its function fails."""
    if metric.error is not None:
        found = [metric.error(o) for o in s.outputs]
        return (max if metric.better == "lower" else min)(found, default=metric.ideal or 0.0)
    if metric.of_samples is not None:
        own = s.scores[metric.name]
        return metric.transform(own.largest if metric.extreme else own.mean)
    if metric.function is not None:
        return call_function(metric, s.results, labels)
    return math.nan


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def call_function(metric: Metric, results: Sequence[Any], labels: Labels | None) -> float:
    """The mean of what a user's function gives for outputs and labels; else raises InvalidData."""
    assert metric.function is not None
    given = results[0] if len(results) == 1 else tuple(results)
    try:
        found = np.asarray(metric.function(given, labels), np.float64)
    except Exception as error:
        raise InvalidData(
            f"the metric {metric.name} failed: {type(error).__name__}: {error}; it is called with the "
            "outputs [samples, ...] (a tuple of them where there are several) and the labels"
        ) from error
    if not found.size:
        raise InvalidData(f"the metric {metric.name} gave no number, but an empty array")
    return float(np.mean(found))


def interval(metric: Metric, s: Scores) -> tuple[float, float] | None:
    """Bounds of 95 % of a mean's loss, by the samples' paired differences; None where one sample, or
    the metric's kind, gives none. Where no sample differs, by the rule of three.
    """
    if metric.extreme or s.samples < 2 or math.isnan(s.difference):
        return None
    value, baseline = (metric.transform(m) for m in (s.mean, s.reference_mean))
    lost = metric.loss(value, baseline)
    if math.isinf(lost):
        return None
    if not s.changed:
        # The slope of the transform, and the most that one sample could lose.
        most = 3.0 / s.samples if metric.reads != "outputs" and metric.transform is float else 0.0
        return lost, lost + most
    slope = metric.transform(s.mean) if metric.transform is not float else 1.0
    wide = CONFIDENCE * s.standard_error * abs(slope)
    if metric.criterion == "relative" and baseline:
        wide /= abs(baseline)
    return lost - wide, lost + wide


_STUDENT = {2: 4.303, 3: 3.182, 4: 2.776}  # 97.5 % of t by degrees of freedom


def jackknife(loss: Callable[[Sequence[int]], float], count: int) -> tuple[float, float] | None:
    """Bounds of 95 % of a loss that is one number of all data: by what it is without each of their
    `count` parts, which `loss` takes the numbers of. None with fewer than three parts, or where it is
    not finite without one of them.

    >>> values = (1.0, 2.0, 3.0, 6.0)
    >>> low, high = jackknife(lambda parts: sum(values[n] for n in parts) / len(parts), 4)
    >>> round((low + high) / 2, 6), round((high - low) / 2, 3)  # a mean's: t times its standard error
    (3.0, 3.437)
    """
    if count < 3:
        return None
    whole = loss(range(count))
    without = [loss([n for n in range(count) if n != left]) for left in range(count)]
    if not all(map(math.isfinite, (whole, *without))):
        return None
    mean = math.fsum(without) / count
    error = math.sqrt((count - 1) / count * math.fsum((x - mean) ** 2 for x in without))
    degrees = count - 1
    # Beyond the table the first terms of its series, which are right within 1 %.
    most = _STUDENT.get(degrees, CONFIDENCE + 2.372 / degrees + 2.823 / degrees**2)
    return whole - most * error, whole + most * error


# ---- of class scores -----------------------------------------------------------------------------


def predictions(outputs: Floats) -> npt.NDArray[np.int64]:
    """The top class along the last axis, -1 where an output is NaN: that is never right."""
    return np.where(np.isnan(outputs).any(axis=-1), -1, np.argmax(outputs, axis=-1))


def accuracy(outputs: Sequence[npt.NDArray[Any]], shapes: Sequence[Shape], labels: Labels) -> float:
    """The share of labels that are the top class, as top1 has it, of a model's outputs, whose shapes
    are these; `check_labels` says whether they have any.
    """
    classes = find_classes(shapes, labels)
    assert classes is not None
    x = np.moveaxis(outputs[classes.output].astype(np.float64), classes.axis, -1)
    right, valid = top_k(1)(x, x, labels)
    return float(right.sum() / valid.sum())


def check_labels(labels: Labels | None, outputs: Sequence[Shape]) -> None:
    """Raises InvalidData where there are labels, and top1 cannot read them."""
    if labels is not None:
        check_metric(METRICS["top1"], labels, outputs)


def _per_sample(counted: npt.NDArray[Any], valid: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    """Sums over the positions of each sample, and how many there are."""
    n = len(counted)
    own = np.where(valid, counted, 0.0).reshape(n, -1).sum(axis=1, dtype=np.float64)
    return own, valid.reshape(n, -1).sum(axis=1, dtype=np.float64)


def _largest(x: Floats, k: int) -> npt.NDArray[np.int64]:
    """The classes of the k largest scores, the earlier of equal ones first."""
    return np.argsort(-x, axis=-1, kind="stable")[..., :k]


def top_k(k: int) -> OfSamples:
    """Whether the label is among the k largest scores."""

    def values(x: Floats, _: Floats, labels: Labels | None) -> tuple[Floats, Floats]:
        assert labels is not None
        right: npt.NDArray[np.bool_]
        if k == 1:
            right = np.equal(predictions(x), labels)
        else:
            right = (_largest(x, k) == labels[..., None]).any(axis=-1) & ~np.isnan(x).any(axis=-1)
        return _per_sample(right, labels != IGNORED)

    return values


def top_k_agreement(k: int) -> OfSamples:
    """The share of float32's k top classes that are among the setting's."""

    def values(x: Floats, r: Floats, _: Labels | None) -> tuple[Floats, Floats]:
        if k == 1:
            shared = (predictions(x) == predictions(r)) & ~np.isnan(x).any(axis=-1)
        else:
            own, theirs = _largest(x, k), _largest(r, k)
            found = (own[..., :, None] == theirs[..., None, :]).any(axis=-1).mean(axis=-1)
            shared = np.where(np.isnan(x).any(axis=-1), 0.0, found)
        return _per_sample(shared, np.ones(shared.shape, bool))

    return values


def _log_softmax(x: Floats) -> Floats:
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        shifted: Floats = x - np.max(x, axis=-1, keepdims=True)
        result: Floats = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    return result


def _cross_entropy(x: Floats, _: Floats, labels: Labels | None) -> tuple[Floats, Floats]:
    assert labels is not None
    valid = labels != IGNORED
    place = np.where(valid, labels, 0)[..., None]
    own = np.negative(np.take_along_axis(_log_softmax(x), place, axis=-1)[..., 0])
    return _per_sample(own, valid)


def _kl(x: Floats, r: Floats, _: Labels | None) -> tuple[Floats, Floats]:
    log_p, log_q = _log_softmax(r), _log_softmax(x)
    p = np.exp(log_p)
    with np.errstate(invalid="ignore"):
        own = np.sum(np.where(p > 0, p * (log_p - log_q), 0.0), axis=-1)
    own = np.maximum(own, 0.0)  # rounding of equal ones
    return _per_sample(own, np.ones(own.shape, bool))


def _logit_check(x: Floats, r: Floats, _: Labels | None) -> tuple[Floats, Floats]:
    order = np.argsort(-r, axis=-1, kind="stable")
    with np.errstate(invalid="ignore"):
        distance = np.take_along_axis(np.abs(x - r), order, axis=-1)
    size = np.take_along_axis(np.abs(r), order, axis=-1)
    found = np.zeros(r.shape[:-1])
    for k, tolerance in LOGIT_TOLERANCES:
        largest = np.max(distance[..., :k], axis=-1)
        allowed = 1e-5 + tolerance * np.max(size[..., :k], axis=-1)
        found = np.maximum(found, largest / allowed)
    found = np.where(np.isnan(found), math.inf, found)
    return found.reshape(len(found), -1).max(axis=1), np.ones(len(found))


def _cosine(x: Floats, r: Floats, _: Labels | None) -> tuple[Floats, Floats]:
    a, b = (v.reshape(len(v), -1) for v in (x, r))
    same = (a == b).all(axis=1)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        tops = (np.max(np.abs(v), axis=1, keepdims=True, initial=0.0) for v in (a, b))
        a, b = (v / np.where(t > 0, t, 1.0) for v, t in zip((a, b), tops, strict=True))
        found = (a * b).sum(axis=1) / np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    return np.where(same, 1.0, np.where(np.isnan(found), -1.0, found)), np.ones(len(found))


# ---- the table -----------------------------------------------------------------------------------


def _floating(o: OutputStatistics) -> float:
    return o.relative_error if o.scale.mantissa or o.distance.mantissa or o.infinite else 0.0


def _error(o: OutputStatistics) -> float:
    """The relative error of floats; of integers and truth values the share that differs."""
    return _floating(o) or (o.share_differing if _is_exact(o) else 0.0)


def _is_exact(o: OutputStatistics) -> bool:
    return not (o.distance.mantissa or o.scale.mantissa or o.infinite or o.not_finite)


def _decibels(o: OutputStatistics) -> float:
    return -20 * math.log10(_floating(o)) if _floating(o) else math.inf


def _ulp(o: OutputStatistics) -> float:
    return ulp_bound(o.ulps, 0.99)


METRICS: Mapping[str, Metric] = {
    m.name: m
    for m in (
        Metric("top1", "share of labels that are the top class", "higher", None,
               of_samples=top_k(1), reads="labels"),
        Metric("top5", "share of labels among the five top classes (any topK)", "higher", None,
               of_samples=top_k(5), reads="labels"),
        Metric("cross_entropy", "mean of -log p(label)", "lower", None,
               of_samples=_cross_entropy, reads="labels"),
        Metric("perplexity", "exp of the mean of -log p(label)", "lower", None,
               of_samples=_cross_entropy, transform=_exp, reads="labels"),
        Metric("relative_error", "Frobenius norm of the difference", "lower", error=_error),
        Metric("max_error", "largest difference", "lower", error=lambda o: o.largest_error,
               extreme=True),
        Metric("nmse", "squared error over float32's squares", "lower",
               error=lambda o: _floating(o) ** 2),
        Metric("sqnr", "signal to noise in dB: the tolerance is what is needed", "higher", math.inf,
               error=_decibels),
        Metric("cosine", "mean of the samples' cosines with float32's", "higher", 1.0,
               of_samples=_cosine),
        Metric("pcc", "Pearson's correlation with float32's", "higher", 1.0,
               error=lambda o: -1.0 if o.infinite else o.moments.correlation),
        Metric("ulp", "units in the last place that 99 % are within", "lower", error=_ulp,
               extreme=True),
        Metric("top1_agreement", "share of equal top classes", "higher", 1.0,
               of_samples=top_k_agreement(1), reads="classes"),
        Metric("top5_agreement", "share of float32's five top classes kept (any topK)", "higher", 1.0,
               of_samples=top_k_agreement(5), reads="classes"),
        Metric("kl", "mean Kullback-Leibler divergence of the classes", "lower",
               of_samples=_kl, reads="classes"),
        Metric("logit_check", "largest error of the top logits over AWS's threshold", "lower",
               of_samples=_logit_check, extreme=True, reads="classes"),
        Metric("aws_ratio", "error over that of all in the type, summed one by one", "lower",
               1.0),
    )
}  # fmt: skip
_TOP = re.compile(r"top([1-9]\d{0,3})(_agreement)?")


def find_metric(
    name: str | Callable[..., Any],
    *,
    criterion: Criterion = "absolute",
    better: Literal["higher", "lower"] | None = None,
) -> Metric:
    """A metric by its name, or a function of outputs and labels: itself or "module:function". Raises
    InvalidArgument with the nearest name.
    """
    if criterion not in ("absolute", "relative"):
        raise InvalidArgument(f"the criterion is absolute or relative, not {criterion!r}")
    if callable(name):
        label = getattr(name, "__name__", "metric")
        return Metric(label, "a function", better or "higher", None, function=name, criterion=criterion)
    if not isinstance(name, str):
        raise InvalidArgument(f"a metric is a name or a function of outputs and labels, not {name!r}")
    if ":" in name:
        found = _import_function(name)
        return Metric(name, "a function", better or "higher", None, function=found, criterion=criterion)
    top = _TOP.fullmatch(name)
    if name not in METRICS and top is None:
        listed = ", ".join(METRICS)
        raise InvalidArgument(
            f"the metric is one of {listed}, or a function as module:function, not {name!r}"
            f"{nearest(name, METRICS)}"
        )
    if name in METRICS:
        metric = METRICS[name]
    else:
        assert top is not None
        k = int(top[1])
        base = METRICS["top5_agreement" if top[2] else "top5"]
        make = top_k_agreement if top[2] else top_k
        metric = replace(base, name=name, of_samples=make(k))
    if better is not None and better != metric.better:
        raise InvalidArgument(
            f"of {name} a {metric.better} value is better: say so of a function alone"
        )
    return replace(metric, criterion=criterion)


def _import_function(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidArgument(f"the metric {name}: {error}") from error
    if not callable(found):
        raise InvalidArgument(f"the metric {name} is no function of outputs and labels")
    return found  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Classes:
    """Which output scores classes, how many, and along which axis."""

    output: int
    count: int
    axis: int


def find_classes(outputs: Sequence[Shape], labels: Labels | None) -> Classes | None:
    """The output that scores classes: the first whose shape is the labels' with one axis more, the last
    or, for labels per pixel, the one after the samples. Without labels the only output, if it is
    [samples, classes].
    """
    floating = [n for n, s in enumerate(outputs) if s.dtype.kind == "float"]
    if labels is None:
        shapes = [(n, outputs[n].dims) for n in floating] if len(outputs) == 1 else []
        return next((Classes(n, d[1], -1) for n, d in shapes if len(d) == 2 and d[1] > 1), None)
    inner = labels.shape[1:]
    for n in floating:
        dims = outputs[n].dims[1:]
        if len(dims) == len(inner) + 1 and dims[:-1] == inner and dims[-1] > 1:
            return Classes(n, dims[-1], -1)
        if inner and len(dims) == len(inner) + 1 and dims[1:] == inner and dims[0] > 1:
            return Classes(n, dims[0], 1)
    return None


def _check_top(metric: Metric, classes: Classes | None) -> None:
    """Raises InvalidData for more classes than there are: every output would be right."""
    top = _TOP.fullmatch(metric.name)
    if top is not None and classes is not None and int(top[1]) > classes.count:
        raise InvalidData(
            f"the metric {metric.name} is of {top[1]} classes, and the model has {classes.count}: use "
            f"a smaller one, such as top1{top[2] or ''}"
        )


def check_metric(metric: Metric, labels: Labels | None, outputs: Sequence[Shape]) -> None:
    """Raises InvalidData where the labels or outputs are not what a metric reads."""
    if metric.reads == "classes" and find_classes(outputs, None) is None:
        with_labels = None if labels is None or labels.dtype.kind not in "iu" else labels
        if with_labels is None or find_classes(outputs, with_labels) is None:
            raise InvalidData(
                f"the metric {metric.name} needs a model with one output [samples, classes]: use the "
                "metric relative_error for this one"
            )
    if metric.reads != "labels":
        _check_top(metric, find_classes(outputs, None) or find_classes(outputs, labels))
        return
    if labels is None:
        raise InvalidData(f"the metric {metric.name} needs labels: add an array `labels` to the data")
    if labels.dtype.kind not in "iu":
        raise InvalidData(
            f"the metric {metric.name} takes class numbers as labels, and they are {labels.dtype}"
            f"{list(labels.shape)}: leave them out, or say a metric (module:function) that reads them"
        )
    found = find_classes(outputs, labels)
    if found is None:
        shapes = ", ".join(str(s.type) for s in outputs)
        raise InvalidData(
            f"the metric {metric.name} needs an output of class scores for labels "
            f"{list(labels.shape)}, [samples, ..., classes] or [samples, classes, ...], and the "
            f"model gives {shapes}: use the metric relative_error for this one"
        )
    _check_top(metric, found)
    counted = labels[labels != IGNORED]
    if not counted.size:
        raise InvalidData(f"all labels are {IGNORED}, which does not count")
    low, high = int(counted.min()), int(counted.max())
    if low < 0 or high >= found.count:
        raise InvalidData(f"the labels go from {low} to {high}, the model has {found.count} classes")
