"""Trials: plans run on shards of the data, and the statistics of their outputs.

A trial is a value: a plan, and how its module differs from the workload's. `run_trials` is a pure
function of values that can be pickled, so that any process gives the same statistics. Independent
trials are one module (`merging`): what they share is computed once.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from neuronsim import ops
from neuronsim.arrays.array_object import Array
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.decisions.quantization import Quantization
from neuronsim.casting.decisions.record import Decision, PlanRecord
from neuronsim.dtypes import DType, as_dtype
from neuronsim.errors import InvalidData
from neuronsim.executor.binding import as_input
from neuronsim.executor.compile import compile_module
from neuronsim.executor.diagnostics import Diagnostics
from neuronsim.executor.known_constants import KnownConstants
from neuronsim.executor.run import run_schedule
from neuronsim.executor.schedule import Schedule
from neuronsim.executor.steps import TupleValue, Value
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.inlining import FlatModule
from neuronsim.hlo.instruction_settings import read_settings
from neuronsim.hlo.module import Module, Shape
from neuronsim.processor import collector_at_rest
from neuronsim.profiles import Profile, default_seed, in_force
from neuronsim.targets import find_target
from neuronsim.tuning.dataset import (
    Batches,
    Dataset,
    batches,
    counted_rows,
    output_shapes,
    outputs_of_samples,
)
from neuronsim.tuning.framework_casts import with_framework_casts
from neuronsim.tuning.merging import Merger, may_merge
from neuronsim.tuning.metrics import Metric, find_classes, find_metric
from neuronsim.tuning.statistics import Scores, Statistics, output_statistics, scores, sketch

MAX_SHARDS = 32
MEMORY = 1 << 30  # bytes that the results of merged trials may take at one time
MERGED = 32  # trials that are one module at most
_KEPT_MODULES = 256  # planned modules, which share their constants
_KEPT = 4  # compiled modules that a process keeps
_KEPT_BYTES = 1 << 28  # of float32's outputs, by shard

Outputs = list[npt.NDArray[Any]]


class MetricSpec(NamedTuple):
    """A metric as values that can be pickled: what `find_metric` takes."""

    name: str | Callable[..., Any]
    criterion: Any = "absolute"
    better: Any = None

    @property
    def metric(self) -> Metric:
        return find_metric(self.name, criterion=self.criterion, better=self.better)


@dataclass(frozen=True)
class Workload:
    """What trials run on: a model, data, what decides bits, and the metrics whose statistics are kept.
    `memory` bounds the bytes of the results of trials that are run as one module, `most_shards` into
    how many parts the data are cut: 1 for a metric that reads all of them at once. `seed` is that of
    stochastic rounding and of random numbers: the caller's, not that of a worker's environment.
    """

    module: Module
    dataset: Dataset
    profile: Profile
    target: str
    metrics: tuple[MetricSpec, ...] = ()
    memory: int = MEMORY
    most_shards: int = MAX_SHARDS
    seed: int = field(default_factory=default_seed)

    @cached_property
    def key(self) -> str:
        """A hash of all that decides statistics: two models, or two data sets, never share it."""
        names = [str(m.name) for m in self.metrics]
        model, data = fingerprint(self.module), self.dataset.fingerprint
        own = model, data, repr(self.profile), self.target, names, self.most_shards, self.seed
        return hashlib.sha256(repr(own).encode()).hexdigest()[:32]

    @cached_property
    def _batches(self) -> Batches:
        return batches(self.module, self.dataset)

    @property
    def outputs_of_samples(self) -> list[bool]:
        """Of each output whether its leading axis is samples."""
        return outputs_of_samples(self.module, self._batches)

    @property
    def output_shapes(self) -> tuple[Shape, ...]:
        """The shapes of the outputs, with an axis of samples."""
        return output_shapes(self.module, self._batches.are_runs)

    @cached_property
    def shards(self) -> tuple[range, ...]:
        """The numbers of the batches of each shard: up to `most_shards`, the first ones larger."""
        count = len(self._batches)
        parts = np.array_split(np.arange(count), min(count, self.most_shards))
        return tuple(range(int(p[0]), int(p[-1]) + 1) for p in parts)

    def samples(self, shards: Sequence[int]) -> int:
        """How many samples shards have."""
        size, count = self._batches.size, self._batches.samples
        return sum(min(self.shards[s].stop * size, count) - self.shards[s].start * size for s in shards)

    def rows(self, shard: int) -> npt.NDArray[np.int64]:
        """The numbers of a shard's samples."""
        size, own = self._batches.size, self.shards[shard]
        return np.arange(own.start * size, min(own.stop * size, self._batches.samples))

    def inputs(self, shard: int) -> Iterator[tuple[int, dict[str, npt.NDArray[Any]], int]]:
        """The number of each batch of a shard, its arrays and how many of its samples count."""
        for b in self.shards[shard]:
            yield b, *self._batches[b]

    def labels(self, shard: int) -> npt.NDArray[Any] | None:
        """The labels of a shard's samples."""
        if self.dataset.labels is None:
            return None
        before = self.shards[shard].start * self._batches.size
        return self.dataset.labels[before : before + self.samples([shard])]

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"key": self.key}


def deciding_seed(module: Module, profile: Profile, plans: Iterable[PlanRecord]) -> int:
    """The seed of stochastic rounding; 0 where nothing rounds so: a journal then fits any seed."""
    stated = (read_settings(i).rounding for i in module.instructions)
    decided = (d.rounding for p in plans for d in p.decisions.values())
    return default_seed() if "stochastic" in {profile.rounding, *stated, *decided} else 0


@dataclass(frozen=True)
class Trial:
    """A plan to be run, literally. `framework_type` is the type to which the framework casts inputs and
    outputs, if it does; `accumulate` stands in the place of the profile's.
    """

    plan: PlanRecord
    framework_type: DType | None = None
    accumulate: str = ""

    @cached_property
    def key(self) -> str:
        """A hash of what the trial changes: the reasons do not count."""
        decided = sorted((n, _types(d)) for n, d in self.plan.decisions.items())
        io = self.framework_type and self.framework_type.name
        own = decided, self.plan.keep_output_type, io, self.accumulate
        return hashlib.sha256(repr(own).encode()).hexdigest()[:24]


def _types(d: Decision) -> tuple[Any, ...]:
    names = (d.operand.name, d.accumulate.name, d.output.name, d.rounding)
    relayout = d.relayout and d.relayout.name
    own = (*names, d.float32_operands, d.float32_results, relayout, d.saturate_infinity)
    return (*own, d.bias, *map(_scales, (*d.quantized_operands, d.quantized_result)))


def _scales(q: Quantization | None) -> tuple[Any, ...] | None:
    return None if q is None else (q.type.name, q.scale, q.zero_point, q.axis)


def planned_module(
    module: Module, trial: Trial, *, clean: bool = False, requantize: str = "float32"
) -> FlatModule:
    """The module of a trial, `requantize` as the profile says (Q3). A clean one, whose time is
    estimated, has the framework's casts outside: its parameters are of the low type.
    """
    if trial.framework_type is None:
        return apply_plan(module, trial.plan, clean, requantize)
    cast = with_framework_casts(module, trial.framework_type, outside=clean)
    plan = replace(trial.plan, fingerprint=fingerprint(cast))
    return apply_plan(cast, plan, clean, requantize)


@dataclass
class Group:
    """Trials that are one compiled module."""

    schedule: Schedule
    names: tuple[Mapping[str, str], ...]


def group_trials(workload: Workload, trials: Sequence[Trial]) -> Iterator[list[Trial]]:
    """The trials in groups that are one module each: up to MERGED, whose results fit in the memory. A
    trial whose bits hang on names (S2) is alone, as is one of another profile.
    """
    group: list[Trial] = []
    merger: Merger | None = None  # of the group
    for t in trials:
        part = _planned(workload, t)
        alone = workload.profile.rounding == "stochastic" or not may_merge(part)
        fits = 0 < len(group) < MERGED and t.accumulate == group[0].accumulate
        if merger is not None and fits and not alone:
            with collector_at_rest():
                merger.add(part)
            if merger.fits(workload.memory):
                group.append(t)
                continue
            merger = None  # it has one too many
        if group:
            yield _remember(workload, group, merger)
        group, merger = [t], None if alone else Merger(workload.module.name, [part])
    if group:
        yield _remember(workload, group, merger)


def _remember(workload: Workload, group: list[Trial], merger: Merger | None) -> list[Trial]:
    """The group, whose merged module is kept for `_compiled`, which is next to need it."""
    with _lock:
        _merged.clear()
        if merger is not None and len(group) > 1:
            _merged[_group_key(workload, group)] = merger
    return group


def _group_key(workload: Workload, trials: Sequence[Trial]) -> tuple[str, ...]:
    return (workload.key, *(t.key for t in trials))


def run_trials(
    workload: Workload, trials: Sequence[Trial], shards: Sequence[int], *, sketches: bool = False
) -> list[list[Statistics]]:
    """For each trial the statistics of each shard; the trials are run as one module. Statistics are
    against those of float32, the plan without decisions.
    """
    found: list[list[Statistics]] = [[] for _ in trials]
    for shard in shards:
        with collector_at_rest():
            group = _compiled(workload, trials)
            reference = _reference(workload, shard)
            outputs, truncated = _run(workload, group, shard)
        for own, results, lost in zip(found, outputs, truncated, strict=True):
            own.append(_statistics(workload, shard, results, reference, lost, sketches=sketches))
    return found


def _planned(workload: Workload, trial: Trial) -> FlatModule:
    """A trial's module, which grouping and compiling both need."""
    key = (workload.key, trial.key)
    with _lock:
        found = _modules.get(key)
    if found is None:
        with collector_at_rest():
            found = planned_module(workload.module, trial, requantize=workload.profile.requantize)
    with _lock:
        _modules[key] = found
        while len(_modules) > _KEPT_MODULES:
            _modules.popitem(last=False)
    return found


_lock = threading.Lock()  # of what this process keeps: threads may share it
_modules: OrderedDict[tuple[str, str], FlatModule] = OrderedDict()
_programs: OrderedDict[tuple[str, ...], Group] = OrderedDict()
_references: OrderedDict[tuple[str, int], Outputs] = OrderedDict()
_constants: dict[str, KnownConstants] = {}  # of the last workload
_merged: dict[tuple[str, ...], Merger] = {}  # the last group's


def _compiled(workload: Workload, trials: Sequence[Trial]) -> Group:
    key = _group_key(workload, trials)
    with _lock:
        found = _programs.get(key)
        merger = _merged.pop(key, None)
    if found is None:
        profile, target = workload.profile, find_target(workload.target)
        if trials[0].accumulate:
            profile = profile.replace(accumulate=trials[0].accumulate)
        if len(trials) == 1:
            module = _planned(workload, trials[0])
            own = {i.name: i.name for i in module.instructions}
            names: tuple[Mapping[str, str], ...] = (own,)
        else:
            parts = (_planned(workload, t) for t in trials)
            merged = (merger or Merger(workload.module.name, parts)).finish()
            module, names = merged.module, merged.names
        with _lock:
            if workload.key not in _constants:
                _constants.clear()
            known = _constants.setdefault(workload.key, KnownConstants(workload.memory))
        found = Group(compile_module(module, profile, target, known=known), names)
    with _lock:
        _programs[key] = found
        _programs.move_to_end(key)
        while len(_programs) > _KEPT:
            _programs.popitem(last=False)
    return found


def _reference(workload: Workload, shard: int) -> Outputs:
    """Float32's outputs on a shard."""
    key = (workload.key, shard)
    with _lock:
        found = _references.get(key)
    if found is not None:
        return found
    trial = Trial(reference_plan(workload.module))
    ((found,), _) = _run(workload, _compiled(workload, [trial]), shard)
    with _lock:
        _references[key] = found
        while sum(a.nbytes for o in _references.values() for a in o) > _KEPT_BYTES:
            if len(_references) == 1:
                break
            _references.popitem(last=False)
    return found


def reference_plan(module: Module) -> PlanRecord:
    """The plan that leaves a model as it is."""
    return PlanRecord("none", module.name, fingerprint(module), {})


def _run(workload: Workload, group: Group, shard: int) -> tuple[list[Outputs], list[dict[str, int]]]:
    """For each trial of a group its outputs on a shard, and how many 64-bit integers of which
    instructions lost their high half (C7), those of constants in the first shard.
    """
    schedule, seed = group.schedule, workload.seed if group.schedule.draws else 0
    collected: list[list[Outputs]] = [[] for _ in group.names]
    of_constants = schedule.of_constants.of("int64_truncated")
    met: Counter[str] = Counter(of_constants if shard == 0 else {})
    plain = workload.profile.replace(rounding="nearest_even")
    names, of_samples = workload.module.input_names(), workload.outputs_of_samples
    for number, arrays, counted in workload.inputs(shard):
        with in_force(plain):
            bound = {
                parameter: as_input(arrays[name], expected, name).bits
                for (parameter, expected), name in zip(schedule.inputs, names, strict=True)
            }
        diagnostics = Diagnostics()
        value = run_schedule(schedule, bound, diagnostics, seed=seed, call=number)
        met.update(
            {k: v for k, v in diagnostics.of("int64_truncated").items() if k not in of_constants}
        )
        parts = (value,) if len(group.names) == 1 else _elements(value)
        for own, part in zip(collected, parts, strict=True):
            results = (_wide(np.asarray(Array(x))) for x in _arrays(part))
            own.append(counted_rows(results, of_samples, counted))
    outputs = [[np.concatenate(p) for p in zip(*own, strict=True)] for own in collected]
    truncated = [
        {name: met[merged] for name, merged in names_.items() if merged in met}
        for names_ in group.names
    ]
    return outputs, truncated


def _elements(value: Value) -> tuple[Value, ...]:
    assert isinstance(value, TupleValue)
    return value.elements


def _arrays(value: Value) -> list[ops.Bits]:
    return [x for e in value.elements for x in _arrays(e)] if isinstance(value, TupleValue) else [value]


def _wide(output: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An output's values as float64 or complex128, which hold them; integers as they are."""
    kind = as_dtype(output.dtype).kind
    if kind not in ("float", "complex"):
        return output
    return output.astype(np.complex128 if kind == "complex" else np.float64)


def _statistics(
    workload: Workload,
    shard: int,
    outputs: Outputs,
    reference: Outputs,
    truncated: Mapping[str, int],
    *,
    sketches: bool,
) -> Statistics:
    metrics = [spec.metric for spec in workload.metrics]
    names = {m.name for m in metrics}
    shapes = workload.module.root.shape.arrays()
    per_output = tuple(
        output_statistics(
            a,
            b,
            correlates="pcc" in names,
            mantissa_bits=s.dtype.mantissa_bits if "ulp" in names else None,
        )
        for a, b, s in zip(outputs, reference, shapes, strict=True)
    )
    labels = workload.labels(shard)
    of_samples = {
        m.name: _scores(workload, m, outputs, reference, labels)
        for m in metrics
        if m.of_samples is not None
    }
    return Statistics(
        samples=workload.samples([shard]),
        outputs=per_output,
        scores=of_samples,
        truncated=truncated,
        sketch=sketch(outputs, reference, shard) if sketches else (),
        results=tuple(outputs) if any(m.function is not None for m in metrics) else (),
    )


def _scores(
    workload: Workload,
    metric: Metric,
    outputs: Outputs,
    reference: Outputs,
    labels: npt.NDArray[Any] | None,
) -> Scores:
    assert metric.of_samples is not None
    if metric.reads == "outputs":
        return _worst_of_outputs(metric, outputs, reference)
    shapes = workload.output_shapes
    classes = find_classes(shapes, labels if metric.reads == "labels" else None)
    classes = classes or find_classes(shapes, labels)
    if classes is None:
        raise InvalidData(f"the metric {metric.name} needs an output of class scores")
    x, r = (np.moveaxis(o[classes.output], classes.axis, -1) for o in (outputs, reference))
    values, weights = metric.of_samples(x, r, labels)
    expected, _ = metric.of_samples(r, r, labels)
    return scores(values, expected, weights)


def _worst_of_outputs(metric: Metric, outputs: Outputs, reference: Outputs) -> Scores:
    """Of each sample the worst value of its floating outputs."""
    assert metric.of_samples is not None
    pairs = [(a, b) for a, b in zip(outputs, reference, strict=True) if b.dtype.kind == "f"]
    count = max(map(len, reference))
    if not pairs:
        whole = np.full(count, metric.ideal or 0.0)
        return scores(whole, whole, np.ones(count))
    values = [_of_all(metric.of_samples(a, b, None)[0], count) for a, b in pairs]
    expected = [_of_all(metric.of_samples(b, b, None)[0], count) for _, b in pairs]
    worst = np.minimum if metric.better == "higher" else np.maximum
    return scores(worst.reduce(values), worst.reduce(expected), np.ones(count))


def _of_all(values: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """A value for each sample: that of its batch, where an output has one row a batch."""
    return np.repeat(values, count // len(values))
