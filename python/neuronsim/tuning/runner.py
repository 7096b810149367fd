"""Running trials: what is known is not run again, what is finished is written down, and a search is
told when to stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import Any

import numpy as np

from neuronsim.errors import InvalidArgument
from neuronsim.tuning.journal import Journal, Key
from neuronsim.tuning.metrics import Metric, interval, value_of
from neuronsim.tuning.results import Stop
from neuronsim.tuning.statistics import Statistics, merge_statistics, ratio
from neuronsim.tuning.trials import Trial, Workload, group_trials, reference_plan, run_trials

Progress = Callable[[str, int, int], None]


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
        self._begun: set[str] = set()
        self._max_trials = max_trials
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._progress = progress
        self._executor = executor
        self.limited = False  # a search is limited, what it starts from is not
        self.run = 0  # trials on shards that were run, and not known

    @property
    def metric(self) -> Metric:
        """The one that decides."""
        return self.metrics[0]

    @property
    def all_shards(self) -> list[int]:
        return list(range(len(self.workload.shards)))

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
        tasks = [
            (group, lacks)
            for lacks, lacking in missing.items()
            for group in group_trials(self.workload, list(lacking.values()))
        ]
        self._run(tasks, stage, sketches=sketches)
        return [merge_statistics([self._known[t.key, s] for s in shards]) for t in trials]

    def _has(self, key: Key, sketches: bool) -> bool:
        found = self._known.get(key)
        return found is not None and bool(found.sketch or not sketches)

    def _begin(self, keys: Sequence[str]) -> None:
        if not self.limited:
            return
        self._begun.update(keys)
        if self._max_trials is not None and len(self._begun) > self._max_trials:
            raise Stopped("max-trials")

    def _run(
        self, tasks: Sequence[tuple[list[Trial], tuple[int, ...]]], stage: str, *, sketches: bool
    ) -> None:
        total = sum(len(group) * len(shards) for group, shards in tasks)
        done = 0
        parts = [(group, shard) for group, shards in tasks for shard in shards]
        self._report(stage, 0, total)
        if self._executor is not None:
            self._run_elsewhere(parts, stage, total, sketches=sketches)
            return
        for group, shard in parts:
            self._check_time()
            found = run_trials(self.workload, group, [shard], sketches=sketches)
            self._finish(group, shard, found)
            done += len(group)
            self._report(stage, done, total)

    def _run_elsewhere(
        self, parts: Sequence[tuple[list[Trial], int]], stage: str, total: int, *, sketches: bool
    ) -> None:
        """The same by the executor, in whatever order the tasks end."""
        assert self._executor is not None
        pending: dict[Future[Any], tuple[list[Trial], int]] = {
            self._executor.submit(run_trials, self.workload, group, [shard], sketches=sketches): (
                group,
                shard,
            )
            for group, shard in parts
        }
        done = 0
        try:
            while pending:
                ended, _ = wait(list(pending), return_when=FIRST_COMPLETED)
                for future in ended:
                    group, shard = pending.pop(future)
                    self._finish(group, shard, future.result())
                    done += len(group)
                    self._report(stage, done, total)
                self._check_time()
        finally:
            for future in pending:
                future.cancel()

    def _finish(self, group: Sequence[Trial], shard: int, found: list[list[Statistics]]) -> None:
        own = [((t.key, shard), s) for t, (s,) in zip(group, found, strict=True)]
        self._known |= dict(own)
        self.run += len(own)
        if self.journal is not None:
            self.journal.add(own)

    def _check_time(self) -> None:
        if self.limited and self._deadline is not None and time.monotonic() > self._deadline:
            raise Stopped("timeout")

    def _report(self, stage: str, done: int, total: int) -> None:
        if self._progress is not None and total:
            self._progress(stage, done, total)

    # ---- losses ----------------------------------------------------------------------------------

    def value(self, s: Statistics, shards: Sequence[int], metric: Metric | None = None) -> float:
        """A metric's value by statistics of these shards."""
        metric = metric or self.metric
        return value_of(metric, s, self._labels(shards) if metric.function is not None else None)

    def loss(self, s: Statistics, shards: Sequence[int]) -> float:
        """What the tolerance is compared with, on these shards."""
        metric = self.metric
        if metric.ideal is not None:
            return metric.loss(self.value(s, shards), metric.ideal)
        if metric.of_samples is not None:
            baseline = metric.transform(s.scores[metric.name].reference_mean)
        else:
            (own,) = self.measure_reference(shards)
            baseline = self.value(own, shards)
        return metric.loss(self.value(s, shards), baseline)

    def measure_reference(self, shards: Sequence[int]) -> list[Statistics]:
        """Float32's statistics, which no limit counts."""
        limited, self.limited = self.limited, False
        try:
            return self.measure([self.reference()], shards, "float32")
        finally:
            self.limited = limited

    def _labels(self, shards: Sequence[int]) -> Any:
        if self.workload.dataset.labels is None:
            return None
        own = [self.workload.labels(s) for s in shards]
        return np.concatenate([x for x in own if x is not None])

    def within(self, trial: Trial, shards: Sequence[int], budget: float, stage: str) -> float | None:
        """A trial's loss on these shards if it is within the budget, else None: a hopeless one is
        abandoned after some of them.
        """
        (whole,) = self.measure_reference(shards) if self.metric.function is None else (None,)
        for n in range(1, len(shards) + 1):
            part = shards[:n]
            (s,) = self.measure([trial], part, stage)
            if n < len(shards) and whole is not None and self._is_hopeless(s, whole, budget, n):
                return None
        found = self.loss(s, shards)
        return found if found <= budget else None

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


def _check_limits(max_trials: int | None, timeout: float | None) -> None:
    if max_trials is not None and (not isinstance(max_trials, int) or max_trials < 0):
        raise InvalidArgument(f"max_trials is a number of at least 0, not {max_trials!r}")
    if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
        raise InvalidArgument(f"timeout is a number of seconds above 0, not {timeout!r}")
