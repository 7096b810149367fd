"""A ladder of settings measured on data: figures of each, and the choice of a rung."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from neuronsim.casting.plans.plan import Plan
from neuronsim.dtypes import DType
from neuronsim.hlo.array_sources import array_sources
from neuronsim.hlo.constant_arrays import weight_bytes
from neuronsim.hlo.module import Shape
from neuronsim.hlo.trip_counts import Trips
from neuronsim.targets import Target
from neuronsim.tuning.cost import Estimate, estimate
from neuronsim.tuning.merging import Merger, may_merge
from neuronsim.tuning.metrics import find_classes
from neuronsim.tuning.results import OutputError, RungResult
from neuronsim.tuning.rungs import Rung
from neuronsim.tuning.runner import Runner
from neuronsim.tuning.statistics import OutputStatistics, Statistics
from neuronsim.tuning.trials import Trial, planned_module

# AWS's classes of the ratio of errors (neuron.md 8), each up to its bound.
VERDICTS = (
    (1.0, "over-precision"),
    (1.2, "accept"),
    (3.0, "possible bug"),
    (10.0, "likely bug"),
    (math.inf, "wrong algorithm"),
)

Objective = Literal["performance", "modelsize", "footprint"]


@dataclass
class Meter:
    """The figures of settings of one workload: errors by a runner, times by the cost model."""

    runner: Runner
    target: Target
    trips: Trips
    _estimates: dict[str, tuple[Estimate, int]] = field(default_factory=dict)

    def estimate(self, trial: Trial) -> tuple[Estimate, int]:
        """The estimated time of a trial's clean module, and the bytes of its weights."""
        if trial.key not in self._estimates:
            module = planned_module(self.runner.workload.module, trial, clean=True)
            size = weight_bytes(module)
            self._estimates[trial.key] = estimate(module, size, self.target, self.trips), size
        return self._estimates[trial.key]

    def seconds(self, plan: Plan) -> float:
        """The estimated time of a plan."""
        return self.estimate(Trial(plan))[0].seconds

    def cost_of(self, objective: Objective) -> Callable[[Plan], float]:
        """What a search makes small: the estimated time, the bytes of the weights (modelsize), or of
        these and the results that live at one time (footprint).
        """
        if objective == "performance":
            return self.seconds
        return self._weights if objective == "modelsize" else self._footprint

    def _weights(self, plan: Plan) -> float:
        return float(self.estimate(Trial(plan))[1])

    def _footprint(self, plan: Plan) -> float:
        module = planned_module(self.runner.workload.module, Trial(plan), clean=True)
        if not may_merge(module):  # what is not merged has no such sum
            return self._weights(plan)
        merger = Merger(module.name)
        merger.add(module)
        return self._weights(plan) + merger.peak_bytes()

    def figures(self, rung: Rung, s: Statistics) -> RungResult:
        """A rung's, by its statistics on all data."""
        found, size = self.estimate(rung.trial)
        reference = self.estimate(self.runner.reference())[0].seconds
        errors = self._output_errors(s)
        shards = self.runner.all_shards
        asked = any(m.name == "aws_ratio" for m in self.runner.metrics)
        ratio = self.runner.ratio(s, shards, rung.low) if asked else math.nan
        values = {
            m.name: ratio if m.name == "aws_ratio" else self.runner.value(s, shards, m)
            for m in self.runner.metrics
        }
        agreement = s.scores.get("top1_agreement")
        top1 = s.scores.get("top1")
        return RungResult(
            name=rung.name,
            flags=rung.flags,
            top1=None if top1 is None else top1.mean,
            relative_error=_worst(e.relative_error for e in errors),
            max_error=_worst(e.max_error for e in errors),
            not_finite=sum(e.not_finite for e in errors),
            top1_agreement=None if agreement is None else agreement.mean,
            weight_bytes=size,
            estimated_seconds=found.seconds,
            estimated_speedup=reference / found.seconds if found.seconds else 1.0,
            int64_truncated=dict(s.truncated),
            outputs=errors,
            loss=self.runner.loss(s, shards, rung.low),
            interval=self.runner.interval(rung.trial, shards, rung.low),
            scores=values,
            verdict="" if math.isnan(ratio) else next(v for bound, v in VERDICTS if ratio < bound),
            framework_type=rung.framework_type.name if rung.framework_type else "",
        )

    def _output_errors(self, s: Statistics) -> tuple[OutputError, ...]:
        module = self.runner.workload.module
        shapes = module.root.shape.arrays()
        sources = array_sources(module.entry_computation)[module.root.name]
        found = []
        for n, (own, shape) in enumerate(zip(s.outputs, shapes, strict=True)):
            place: dict[str, Any] = {
                "index": n,
                "instruction": sources[n][0].name,
                "type": str(shape.type),
            }
            found.append(OutputError(**place, **_errors(own, shape.dtype)))
        return tuple(found)


def _errors(o: OutputStatistics, dtype: DType) -> dict[str, Any]:
    if dtype.kind not in ("float", "complex"):
        share = o.share_differing
        return {
            "error": share,
            "relative_error": None,
            "max_error": None,
            "differing": share,
            "not_finite": 0,
        }
    return {
        "error": o.relative_error,
        "relative_error": o.relative_error,
        "max_error": o.largest_error,
        "differing": None,
        "not_finite": o.not_finite,
        "ulps": o.ulps,
    }


def _worst(errors: Iterable[float | None]) -> float | None:
    return max((e for e in errors if e is not None), default=None)


def always_asked(runner_metrics: Sequence[str], shapes: Sequence[Shape], labels: Any) -> list[str]:
    """The metrics that every table has where the model gives them, beside those that were asked for."""
    found = []
    integers = labels is not None and labels.dtype.kind in "iu"
    if integers and find_classes(shapes, labels) is not None and "top1" not in runner_metrics:
        found.append("top1")
    if "top1_agreement" not in runner_metrics and find_classes(shapes, None) is not None:
        found.append("top1_agreement")
    return found


def recommend(rungs: Sequence[RungResult], budget: float, *, in_order: bool = False) -> RungResult:
    """The lowest estimated time within the budget of loss; ties take the smaller error, or with
    `in_order`, where no time is known, the later rung, which AWS says is faster.
    """
    fitting = [(n, r) for n, r in enumerate(rungs) if (r.loss or 0.0) <= budget]
    if not fitting:
        return min(rungs, key=lambda r: (math.inf if r.loss is None else r.loss, r.worst_error))
    if in_order:
        return max(fitting, key=lambda pair: pair[0])[1]
    return min((r for _, r in fitting), key=lambda r: (r.estimated_seconds, r.worst_error))
