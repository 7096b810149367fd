"""Running trials: what is known is not run again, what is finished is written down, and a search is
told when to stop.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np

from neuronsim import dtypes
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, InvalidData
from neuronsim.targets import find_target
from neuronsim.tuning.journal import Journal, Key
from neuronsim.tuning.metrics import Metric, interval, jackknife, value_of
from neuronsim.tuning.results import Stop
from neuronsim.tuning.statistics import Statistics, merge_statistics, ratio
from neuronsim.tuning.tasks import Dispatch, Part
from neuronsim.tuning.trials import (
    MERGED,
    Trial,
    Workload,
    group_trials,
    reference_plan,
    run_trials,
)

Progress = Callable[[str, int, int], None]
LADDER = 0.4  # of the time, what a ladder may take
AT_ONCE = 3.0  # seconds of it between looks at the time
# The types whose setting `all` AWS's ratio compares with.
_RATIO_TYPES = {dtypes.bfloat16: "bf16", dtypes.float16: "fp16", dtypes.tfloat32: "tf32"}


class Stopped(Exception):
    """Trials are to end, and why."""

    def __init__(self, why: Stop) -> None:
        super().__init__(why)
        self.why: Stop = why


class Runner:
    """Runs the trials of one workload, here or by an executor, each on each shard once."""

    def __init__(
        self,
        workload: Workload,
        *,
        journal: Journal | None = None,
        max_trials: int | None = None,
        timeout: float | None = None,
        progress: Progress | None = None,
        executor: Executor | None = None,
    ) -> None:
        _check_limits(max_trials, timeout)
        self.workload = workload
        self.metrics = [spec.metric for spec in workload.metrics]
        self.journal = journal
        self._known: dict[Key, Statistics] = dict(journal.found) if journal is not None else {}
        self._losses: dict[tuple[str, tuple[int, ...], DType | None], float] = {}
        self._begun: set[str] = set()
        self._sequential: dict[str, Trial] = {}  # what AWS's ratio compares with
        self.max_trials = max_trials
        self.timeout = math.inf if timeout is None else timeout
        self._started = time.monotonic()
        self._reserved = 0.0  # seconds of the end that no search may take
        self._shards = list(range(len(workload.shards)))
        self._before = (0, 0)  # trials that a stage has done in earlier calls, and has in all
        self._progress = progress
        self._dispatch = None if executor is None else Dispatch(workload, executor)
        self.limited = False  # a search is limited, what it starts from is not
        self.run = 0  # trials on shards that were run, and not known

    @property
    def metric(self) -> Metric:
        """The one that decides."""
        return self.metrics[0]

    @property
    def all_shards(self) -> list[int]:
        """The shards that figures are of: all, but for those that `measure_in_time` had no time for."""
        return list(self._shards)

    @property
    def samples(self) -> int:
        """How many samples these have."""
        return self.workload.samples(self._shards)

    @property
    def trials(self) -> int:
        """How many different plans were asked for by the search."""
        return len(self._begun)

    def reference(self) -> Trial:
        """Float32."""
        return Trial(reference_plan(self.workload.module))

    def measure(
        self, trials: Sequence[Trial], shards: Sequence[int], stage: str, *, sketches: bool = False
    ) -> list[Statistics]:
        """The statistics of each trial on these shards. Raises Stopped where the search is to end."""
        missing: dict[tuple[int, ...], dict[str, Trial]] = {}
        for t in trials:
            lacks = tuple(s for s in shards if not self._has((t.key, s), sketches))
            if lacks:
                missing.setdefault(lacks, {})[t.key] = t
        self._begin([t.key for t in trials])
        parts = (
            Part(group, shard)
            for lacks, lacking in missing.items()
            for group in group_trials(self.workload, list(lacking.values()))
            for shard in lacks
        )
        total = sum(len(lacks) * len(lacking) for lacks, lacking in missing.items())
        self._run(parts, total, stage, sketches=sketches)
        return [merge_statistics([self._known[t.key, s] for s in shards]) for t in trials]

    def measure_some(
        self, trials: Sequence[Trial], shards: Sequence[int], stage: str, share: float
    ) -> list[Statistics | None]:
        """What `measure` gives with sketches in so great a share of the time that is left: None for the
        trials that there was no time for.
        """
        reserved, left = self._reserved, self._time_left()
        self._reserved += (1 - share) * left if left < math.inf else 0.0
        try:
            self.measure(trials, shards, stage, sketches=True)
        except Stopped as stopped:
            if stopped.why != "timeout":
                raise
        finally:
            self._reserved = reserved
        self._check_time()
        own = [[self._known.get((t.key, s)) for s in shards] for t in trials]
        return [
            merge_statistics([s for s in x if s]) if all(s and s.sketch for s in x) else None
            for x in own
        ]

    def measure_in_time(self, trials: Sequence[Trial], stage: str) -> Stop:
        """Measure trials on all shards, but for no more than LADDER of the time that there is: what is
        left then is no shard of this runner any more. Shards that lie evenly among them are the first
        ones. Returns why there are fewer.
        """
        order = _evenly(len(self._shards))
        done: list[int] = []
        why: Stop = ""
        # More trials than are one module would be compiled again for each part of the shards.
        at_once = self._dispatch is not None or len(trials) > MERGED
        began, count = time.monotonic(), len(order) if at_once else 1
        try:
            while len(done) < len(order):
                part = order[len(done) : len(done) + count]
                self._before = (len(done) * len(trials), len(order) * len(trials))
                self.measure(trials, part, stage)
                done += part
                spent = time.monotonic() - self._started
                if len(done) < len(order) and spent > LADDER * self.timeout:
                    why = "timeout"
                    break
                each = (time.monotonic() - began) / len(done)
                count = max(1, int(AT_ONCE / each))
        except KeyboardInterrupt:
            if not done:
                raise
            why = "interrupted"
        finally:
            self._before = (0, 0)
        self._shards = sorted(done)
        return why

    def reserve(self, seconds: float) -> None:
        """Keep so much of the time, but no more than half of what is left, for what comes after a
        search.
        """
        self._reserved = max(0.0, min(seconds, self._time_left() / 2))

    def _time_left(self) -> float:
        return self._started + self.timeout - time.monotonic() - self._reserved

    def _has(self, key: Key, sketches: bool) -> bool:
        found = self._known.get(key)
        return found is not None and bool(found.sketch or not sketches)

    def _begin(self, keys: Sequence[str]) -> None:
        if not self.limited:
            return
        self._begun.update(keys)
        if self.max_trials is not None and len(self._begun) > self.max_trials:
            raise Stopped("max-trials")

    def _run(self, parts: Iterable[Part], total: int, stage: str, *, sketches: bool) -> None:
        done = 0
        self._report(stage, 0, total)

        def finished(part: Part, found: list[list[Statistics]]) -> None:
            nonlocal done
            self._finish(*part, found)
            done += len(part.trials)
            self._report(stage, done, total)

        if self._dispatch is not None:
            self._dispatch.run(parts, finished, self._check_time, sketches=sketches)
            return
        for part in parts:
            self._check_time()
            finished(part, run_trials(self.workload, part.trials, [part.shard], sketches=sketches))

    def _finish(self, group: Sequence[Trial], shard: int, found: list[list[Statistics]]) -> None:
        own = [((t.key, shard), s) for t, (s,) in zip(group, found, strict=True)]
        self._known |= dict(own)
        self.run += len(own)
        if self.journal is not None:
            self.journal.add(own)

    def _check_time(self) -> None:
        if self.limited and self._time_left() < 0:
            raise Stopped("timeout")

    def _report(self, stage: str, done: int, total: int) -> None:
        if self._progress is not None and total:
            before, whole = self._before
            self._progress(stage, before + done, whole or total)

    # ---- losses ----------------------------------------------------------------------------------

    def value(self, s: Statistics, shards: Sequence[int], metric: Metric | None = None) -> float:
        """A metric's value by statistics of these shards."""
        metric = metric or self.metric
        return value_of(metric, s, self._labels(shards) if metric.function is not None else None)

    def loss(self, s: Statistics, shards: Sequence[int], low: DType | None = None) -> float:
        """What the tolerance is compared with, on these shards; `low` is the type of aws_ratio's other
        run.
        """
        metric = self.metric
        if metric.name == "aws_ratio":
            found = self.ratio(s, shards, low)
            return 0.0 if math.isnan(found) else found - 1
        if metric.ideal is not None:
            return metric.loss(self.value(s, shards), metric.ideal)
        if metric.of_samples is not None:
            baseline = metric.transform(s.scores[metric.name].reference_mean)
        else:
            (own,) = self.measure_reference(shards)
            baseline = self.value(own, shards)
        return metric.loss(self.value(s, shards), baseline)

    def interval(
        self, trial: Trial, shards: Sequence[int], low: DType | None = None
    ) -> tuple[float, float] | None:
        """95 % bounds of the loss of a trial that was measured on these shards: by the samples' paired
        differences where each has a value, else by leaving out one shard after another; None where
        the data say nothing of it.
        """
        metric, parts = self.metric, [self._known[trial.key, s] for s in shards]
        if metric.of_samples is not None:
            return interval(metric, merge_statistics(parts).scores[metric.name])
        if metric.extreme:
            return None
        positive = metric.ideal is not None
        return self._jackknife(lambda own: self._loss_of(trial, own, low), shards, positive)

    def difference(
        self,
        trials: tuple[Trial, Trial],
        shards: Sequence[int],
        lows: tuple[DType | None, DType | None],
    ) -> tuple[float, float] | None:
        """95 % bounds of the first one's loss less the second's, with one shard after another left out
        of both; None as for `interval`.
        """
        metric, count = self.metric, self.workload.samples(shards)
        if metric.extreme:
            return None

        def loss(own: Sequence[int]) -> float:
            a, b = (self._loss_of(t, own, low) for t, low in zip(trials, lows, strict=True))
            return a - b

        found = self._jackknife(loss, shards)
        if found == (0.0, 0.0) and metric.of_samples is not None and metric.reads != "outputs":
            return -3.0 / count, 3.0 / count  # the rule of three: no sample tells them apart
        return found

    def _loss_of(self, trial: Trial, shards: Sequence[int], low: DType | None) -> float:
        key = trial.key, tuple(shards), low
        if key not in self._losses:
            own = merge_statistics([self._known[trial.key, s] for s in shards])
            self._losses[key] = self.loss(own, shards, low)
        return self._losses[key]

    def _jackknife(
        self, loss: Callable[[Sequence[int]], float], shards: Sequence[int], positive: bool = False
    ) -> tuple[float, float] | None:
        """The bounds of a loss of shards; of a positive one by its logarithm, so that they are too."""

        def own(numbers: Sequence[int]) -> float:
            return loss([shards[n] for n in numbers])

        try:
            if positive and 0 < own(range(len(shards))) < math.inf:
                try:
                    bounds = jackknife(lambda numbers: math.log(own(numbers)), len(shards))
                    return bounds and (math.exp(bounds[0]), math.exp(min(bounds[1], 700.0)))
                except ValueError:  # a single shard has all of it
                    pass
            return jackknife(own, len(shards))
        except InvalidData:  # a function that cannot do without some of the data
            return None

    def ratio(self, s: Statistics, shards: Sequence[int], low: DType | None) -> float:
        """AWS's ratio: the error over that of every float operation in the low type, with sums one
        after another; NaN where nothing is cast, or the type is none of AWS's.
        """
        name = None if low is None else _RATIO_TYPES.get(low)
        if name is None:
            return math.nan
        if name not in self._sequential:
            module, target = self.workload.module, find_target(self.workload.target)
            plan = make_plan(module, neuron_policy("all", name), target)
            self._sequential[name] = Trial(plan, accumulate="sequential")
        (base,) = self._measure_beside([self._sequential[name]], shards, "ratio")
        pairs = zip(s.outputs, base.outputs, strict=True)
        return max((_quotient(a.relative_error, b.relative_error) for a, b in pairs), default=math.nan)

    def measure_reference(self, shards: Sequence[int]) -> list[Statistics]:
        """Float32's statistics."""
        return self._measure_beside([self.reference()], shards, "float32")

    def _measure_beside(
        self, trials: Sequence[Trial], shards: Sequence[int], stage: str
    ) -> list[Statistics]:
        """Statistics of what losses are compared with, which no limit counts."""
        limited, self.limited = self.limited, False
        try:
            return self.measure(trials, shards, stage)
        finally:
            self.limited = limited

    def _labels(self, shards: Sequence[int]) -> Any:
        if self.workload.dataset.labels is None:
            return None
        own = [self.workload.labels(s) for s in shards]
        return np.concatenate([x for x in own if x is not None])

    def within(
        self,
        trial: Trial,
        shards: Sequence[int],
        budget: float,
        stage: str,
        low: DType | None = None,
    ) -> tuple[float | None, Sequence[int]]:
        """A trial's loss on these shards if it is within the budget, else None, and the shards that say
        so, whoever ran more: a hopeless one is abandoned after some of them.
        """
        (whole,) = self.measure_reference(shards) if self.metric.function is None else (None,)
        if self._dispatch is not None:  # workers would wait: the rest is worth beginning
            self.measure([trial], shards, stage)
        for n in range(1, len(shards) + 1):
            part = shards[:n]
            (s,) = self.measure([trial], part, stage)
            if n < len(shards) and whole is not None and self._is_hopeless(s, whole, budget, n):
                return None, part
        found = self.loss(s, shards, low)
        return found if found <= budget else None, shards

    def _is_hopeless(self, s: Statistics, whole: Statistics, budget: float, n: int) -> bool:
        """Whether the loss on all shards is above the budget by what some of them say: for errors that
        is sure, for means of samples it is at 95 %, after three shards.
        """
        metric = self.metric
        if metric.name in ("relative_error", "max_error", "nmse", "pcc", "sqnr") and s.is_broken:
            return True
        if metric.name == "relative_error":
            pairs = zip(s.outputs, whole.outputs, strict=True)
            return any(ratio(a.distance, b.scale) > budget for a, b in pairs if b.scale.mantissa)
        if metric.name == "max_error":
            return self.loss(s, []) > budget
        if metric.of_samples is None or n < 3:
            return False
        bounds = interval(metric, s.scores[metric.name])
        return bounds is not None and bounds[0] > budget


def _evenly(count: int) -> list[int]:
    """Numbers below `count`, of which the first ones always lie evenly: by their bits backwards.

    >>> _evenly(6)
    [0, 4, 2, 1, 5, 3]
    """
    bits = max(1, (count - 1).bit_length())
    return sorted(range(count), key=lambda n: int(f"{n:0{bits}b}"[::-1], 2))


def _quotient(a: float, b: float) -> float:
    if b:
        return a / b if not math.isinf(b) else (1.0 if math.isinf(a) else 0.0)
    return math.inf if a else 1.0


def _check_limits(max_trials: int | None, timeout: float | None) -> None:
    if max_trials is not None and (not isinstance(max_trials, int) or max_trials < 0):
        raise InvalidArgument(f"max_trials is a number of at least 0, not {max_trials!r}")
    if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
        raise InvalidArgument(f"timeout is a number of seconds above 0, not {timeout!r}")
