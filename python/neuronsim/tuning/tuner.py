"""Tuning a model: the ladder, the search beyond it, and what is recommended."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from neuronsim import dtypes
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.flags import CAST_TYPES
from neuronsim.casting.plans.plan import Plan
from neuronsim.dtypes import float32
from neuronsim.errors import InvalidArgument, InvalidData, counted, nearest
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.trip_counts import Trips, loop_trips
from neuronsim.targets import INT8, Target
from neuronsim.tuning.dataset import check_outputs, without_a_number
from neuronsim.tuning.journal import Journal
from neuronsim.tuning.ladder import Meter, Objective, always_asked, recommend
from neuronsim.tuning.marginal_costs import marginal_costs
from neuronsim.tuning.metrics import check_metric, find_classes
from neuronsim.tuning.results import (
    KeptInstruction,
    PlanResult,
    RungResult,
    SearchRecord,
    Stop,
    TuneResult,
)
from neuronsim.tuning.rungs import FLOAT32, Rung
from neuronsim.tuning.runner import Progress, Runner, Stopped
from neuronsim.tuning.search import Search, split
from neuronsim.tuning.space import Space, moves, scope_of
from neuronsim.tuning.statistics import Statistics
from neuronsim.tuning.strategies import STRATEGIES
from neuronsim.tuning.trials import MetricSpec, Trial, Workload

NAMES = ("ladder", *STRATEGIES)
BETTER = 0.995  # of a rung's time, what a plan takes that is better; one with INT8, which was asked for
WORTH = 0.95  # what another one takes that is worth keeping up instead of a flag
ALIKE = 1.01  # of the fastest plan's time, what one with fewer exceptions may take
FRONT = 3  # points of the front beside the chosen plan


@dataclass(frozen=True)
class Question:
    """What is asked of a workload: the rungs to measure, the tolerance of the first metric, how to
    search, from which rung ("" for what the ladder shows), and whether for the fewest float32
    instructions (`fix`) or the shortest time, or the fewest bytes of the `objective`. What is kept may
    have any of the `types`, which --auto-cast-type names; without, where time counts, AWS's three.
    """

    workload: Workload
    rungs: Sequence[Rung]
    target: Target
    release: str
    tolerance: float
    strategy: str = "ladder"
    base: str = ""
    fix: bool = False
    trips: Trips = None
    max_trials: int | None = None
    timeout: float | None = None
    objective: Objective = "performance"
    types: Sequence[str] = ()


@dataclass
class _Tuning:
    """What is asked and measured with; what the ladder says: the rungs' figures, the best one, and the
    loss that is within the tolerance; and what is found so far.
    """

    q: Question
    meter: Meter
    rungs: Sequence[RungResult]
    best: RungResult
    budget: float
    notes: list[str]
    stopped: Stop
    plans: list[PlanResult] = field(default_factory=list)
    record: SearchRecord | None = None

    @property
    def runner(self) -> Runner:
        return self.meter.runner


def tune_workload(
    q: Question,
    *,
    journal: Journal | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> TuneResult:
    """Measure the rungs and search beyond them. Raises NeuronSimError for what does not fit."""
    started = time.perf_counter()
    workload = _with_usual_metrics(q)
    _check(q, workload)
    runner = Runner(
        workload,
        journal=journal,
        max_trials=q.max_trials,
        timeout=q.timeout,
        progress=progress,
        executor=executor,
    )
    meter = Meter(runner, q.target, q.trips)
    notes = _notes_on_bits(q)
    rungs, stopped = _measure_rungs(q, meter, notes)
    measured = time.perf_counter()
    budget = runner.metric.budget(q.tolerance)
    best = _best_rung(q, rungs, budget)
    if (best.loss or 0.0) > budget:
        notes.append(
            f"no setting is within the tolerance: {best.name} has the smallest loss, {best.loss:.3g}"
        )
    t = _Tuning(q, meter, rungs, best, budget, notes, stopped)
    if q.strategy != "ladder" and t.stopped == "interrupted":
        t.notes.append("the search was interrupted before it began")
        t.record = SearchRecord(q.strategy, 0, runner.trials, 0, 0, t.stopped)
    elif q.strategy != "ladder":
        runner.reserve((measured - started) * (FRONT + 1) / len(rungs))
        _search(t)
    chosen = _choose(t)
    own = next((r for r in q.rungs if r.name == best.name and r.quantizes), None)
    if not chosen and own is not None and (best.loss or 0.0) <= budget:  # no flag says it
        chosen = best.name
        t.plans.append(PlanResult(best, best.name, (), 0, None, within=True, plan=own.plan))
    whole = meter.estimate(runner.reference())[0]
    t.rungs = _compared(t)
    return TuneResult(
        model=workload.module.name,
        fingerprint=fingerprint(workload.module),
        data=workload.dataset.source,
        data_fingerprint=workload.dataset.fingerprint,
        samples=runner.samples,
        release=q.release,
        target=q.target.name,
        metric=runner.metric.name,
        criterion=runner.metric.criterion,
        tolerance=q.tolerance,
        rungs=tuple(t.rungs),
        recommended=best.name,
        seconds={"ladder": measured - started, "search": time.perf_counter() - measured},
        loops=whole.loops,
        conditionals=whole.conditionals,
        plans=tuple(t.plans),
        chosen=chosen,
        search=t.record,
        notes=(*t.notes, *_doubts(t)),
    )


def _with_usual_metrics(q: Question) -> Workload:
    w = q.workload
    asked = [spec.metric.name for spec in w.metrics]
    more = always_asked(asked, w.output_shapes, w.dataset.labels)
    return dataclasses.replace(w, metrics=(*w.metrics, *(MetricSpec(name) for name in more)))


def _check(q: Question, workload: Workload) -> None:
    """Everything that can be known to be wrong before any work."""
    loop_trips(inline_calls(workload.module), q.trips)
    if q.strategy not in NAMES:
        raise InvalidArgument(
            f"the strategy is one of {', '.join(NAMES)}, not {q.strategy!r}"
            f"{nearest(str(q.strategy), NAMES)}"
        )
    metric = workload.metrics[0].metric
    low = -math.inf if metric.name == "sqnr" else 0
    if not (isinstance(q.tolerance, int | float) and low <= q.tolerance < math.inf):
        raise InvalidArgument(f"the tolerance is a number of at least 0, not {q.tolerance!r}")
    shapes = workload.output_shapes
    for spec in workload.metrics:
        check_metric(spec.metric, workload.dataset.labels, shapes)
    check_outputs(workload.module, workload.dataset)
    names = [r.name for r in q.rungs]
    if q.base and q.base not in names:
        raise InvalidArgument(
            f"no rung is named {q.base!r}{nearest(q.base, names)}; there are {', '.join(names)}"
        )


def _measure_rungs(q: Question, meter: Meter, notes: list[str]) -> tuple[list[RungResult], Stop]:
    """The figures of the rungs, on as many of the data as there is time for, and why not on all."""
    runner = meter.runner
    distinct = {t.key: t for t in (runner.reference(), *(r.trial for r in q.rungs))}
    stopped = runner.measure_in_time(list(distinct.values()), "ladder")
    shards = runner.all_shards
    if stopped:
        ended = (
            "it was interrupted); another run measures all"
            if stopped == "interrupted"
            else f"of {q.timeout:g} s in all): --timeout inf measures all"
        )
        notes.append(
            f"the settings were measured on {runner.samples} of the {runner.workload.dataset.count} "
            f"samples, which lie evenly among them ({ended}"
        )
    (reference,) = runner.measure([runner.reference()], shards, q.rungs[0].name)
    notes += _baseline(runner, reference)
    for metric in (m for m in runner.metrics if m.name != "aws_ratio"):
        own = runner.value(reference, shards, metric)
        if not math.isfinite(own) and own != metric.ideal:
            raise InvalidData(
                f"the metric {metric.name} of float32's own outputs is {'NaN' if own != own else own}, "
                "so that nothing can be compared with it: look at the labels and the outputs"
            )
    every = runner.measure(list(distinct.values()), shards, "ladder")
    statistics = dict(zip(distinct, every, strict=True))
    return [meter.figures(r, statistics[r.trial.key]) for r in q.rungs], stopped


def _baseline(runner: Runner, reference: Statistics) -> list[str]:
    """What makes float32's own results a bad thing to compare with. Raises InvalidData where none of
    them is a number.
    """
    found = []
    shapes = runner.workload.output_shapes
    pairs = zip(reference.outputs, shapes, strict=True)
    floats = {n: o for n, (o, s) in enumerate(pairs) if s.dtype.kind == "float" and o.elements}
    if floats and all(o.not_finite == o.elements for o in reference.outputs):
        raise without_a_number()
    for n, o in floats.items():
        what = "NaN or infinite" if o.not_finite == o.elements else ""
        if not o.not_finite and not o.scale.mantissa:
            what = "0, as that of untrained weights may be,"
        if what:
            found.append(
                f"output_{n} is {what} everywhere in float32: its errors say nothing of the settings"
            )
    top1 = reference.scores.get("top1")
    classes = find_classes(shapes, runner.workload.dataset.labels)
    if top1 is not None and classes is not None and top1.mean <= 1 / classes.count:
        found.append(
            f"float32's own accuracy is {100 * top1.mean:.3g} %, no better than chance of "
            f"{classes.count} classes: look at the labels, and at how the inputs are prepared"
        )
    return found


def _notes_on_bits(q: Question) -> list[str]:
    """What there is to say of how bits are decided: that they hang on a seed, and where plans quantize
    for a target that does not run their products.
    """
    said = []
    if q.workload.profile.rounding == "stochastic":
        said.append(f"results in narrower floats round stochastically, from the seed {q.workload.seed}")
    if all(r.runs_on(q.target) for r in q.rungs):
        return said
    hint = (
        f"; --target {q.target.name}{INT8} is the same device as if its compiler made them, and "
        "searches plans with them"
    )
    return [*said, f"{q.target.int8_note}: none is recommended{hint if q.target.int8_rate else ''}"]


def _best_rung(q: Question, rungs: Sequence[RungResult], budget: float) -> RungResult:
    """The recommended one of those that the compiler has: not float32 where it casts in any case, and
    quantized ones only where the target runs them.
    """
    quantized = {r.name: r for r in q.rungs if r.quantizes}
    own = [r for r in rungs if r.name not in quantized]
    best = recommend(
        [r for r in own if r.name != FLOAT32] or own, budget, in_order=q.target.compiler == "neuron-cc"
    )
    more = [r for r in rungs if r.name in quantized and quantized[r.name].runs_on(q.target)]
    return recommend([best, *more], budget)


def _search(t: _Tuning) -> None:
    q, runner = t.q, t.runner
    bases = _bases(t)
    if not bases:
        return
    runner.limited = True
    searches: list[Search] = []
    try:
        for rung in bases:
            if not q.fix and len(rung.parts) < 2 and any(_is_as_fast(s, rung) for s in searches):
                continue  # what is repaired is no faster than what is not
            search = _one_search(t, rung)
            rest = rung.parts[-1].name if len(rung.parts) > 1 else ""
            if rung.parts and not q.base and not search.start_with_gains(rest):
                family = rung.name.partition("/")[0].upper()
                t.notes.append(f"{family} saves no estimated time: {rung.name} is not searched from")
                continue
            before = next((s.best for s in searches if s.label == rest), None)
            searches.append(search)
            if before is not None:
                search.fits(search.beside(before), "integers")
            STRATEGIES[q.strategy](search)
    except Stopped as stopped:
        t.stopped = stopped.why
    except KeyboardInterrupt:
        t.stopped = "interrupted"
    runner.limited = False
    parts = searches[0].data if searches else split(runner.workload, runner.all_shards)
    t.stopped = t.stopped or next((s.stopped for s in searches if s.stopped), "")
    t.record = SearchRecord(
        strategy=q.strategy,
        instructions=max((len(s.low) for s in searches), default=0),
        trials=runner.trials,
        ranking_samples=runner.workload.samples(parts.ranking),
        held_out_samples=runner.workload.samples(parts.held_out),
        stopped=t.stopped,
    )
    said = len(t.notes)
    try:
        for s in searches:
            _report_search(t, s)
    except KeyboardInterrupt:
        t.stopped = "interrupted"
    if t.stopped:
        so_far = "the best plan so far" if t.plans else "it has found none yet"
        t.notes.insert(said, f"{_STOPPED[t.stopped]}: {so_far}")


def _is_as_fast(s: Search, rung: Rung) -> bool:
    return s.best is not None and s.time(s.best) <= s.seconds(rung.plan)


_STOPPED: Mapping[str, str] = {
    "max-trials": "so few trials (--max-trials) are not enough for the search to end",
    "timeout": "the search ended at its limit of time (--timeout)",
    "interrupted": "the search was interrupted",
    "trials": "the search ended at its own limit, of two trials an instruction and 320 in all",
}


def _bases(t: _Tuning) -> list[Rung]:
    """The rungs to repair: the one asked for, else the fastest of each low type among those that are
    faster than the best and fail; and those of which INT8 is a part, where the target runs it.
    """
    q = t.q
    by_name = {r.name: r for r in q.rungs}
    if q.base:
        return [by_name[q.base]]
    faster = [
        r
        for r in t.rungs
        if (r.loss or 0.0) > t.budget
        and r.estimated_seconds < t.best.estimated_seconds * WORTH
        and not r.framework_type
    ]
    found: dict[Any, Rung] = {}
    for r in sorted(faster, key=lambda r: r.estimated_seconds):
        own = by_name[r.name]
        asked = {CAST_TYPES[name] for name in q.types}
        able = own.low in asked or (not asked and own.low not in (None, dtypes.tfloat32))
        if able and not own.quantizes:
            found.setdefault(own.low, own)
    mixed = [r for r in q.rungs if len(r.parts) > 1 and r.runs_on(q.target) and not q.fix]
    return [*found.values(), *mixed]


def _one_search(t: _Tuning, rung: Rung) -> Search:
    q, meter, best = t.q, t.meter, t.best
    others = _others(q, rung)
    parts = {r.name: r.plan for r in rung.parts or (rung,)}
    # What is not fast enough otherwise is as in the best rung: the plan is then faster than that.
    mixes = q.strategy == "pareto" and not (q.base or q.fix) and (best.loss or 0.0) <= t.budget
    fallback = best.name if mixes and best.name in others else ""
    plans = (rung.plan, *others.values())
    types = {d.operand for p in plans for d in p.decisions.values()} - {float32}
    by_time = q.objective == "performance" and not q.fix
    module = q.workload.module
    none = next(r.plan.decisions for r in q.rungs if r.name == "none")  # Inf1's casts products
    space = Space(module, {**parts, **others}, none)
    return Search(
        runner=t.runner,
        space=space,
        label=rung.name,
        budget=t.budget,
        seconds=meter.cost_of(q.objective),
        by_count=q.fix,
        base=space.joined(tuple(parts)),
        cast_type=rung.low,
        fallback=fallback,
        others=tuple(sorted(others, key=lambda n: meter.seconds(others[n]))),
        work=meter.estimate(t.runner.reference())[0].seconds,
        prices=marginal_costs(module, q.target, types, q.trips) if by_time else None,
    )


def _others(q: Question, rung: Rung) -> dict[str, Plan]:
    """The plans whose decisions what is kept may have: the base's with float32 sums, where its are not;
    those of other types, where these are asked for or time counts; and one's own rungs.
    """
    found: dict[str, Plan] = {}
    decisions = rung.plan.decisions
    if any(d.accumulate is not float32 for d in decisions.values()):
        wide = {n: dataclasses.replace(d, accumulate=float32) for n, d in decisions.items()}
        found[f"{rung.name} with float32 sums"] = dataclasses.replace(rung.plan, decisions=wide)
    types = q.types or (() if q.fix else ("fp16", "bf16", "tf32"))
    named = {f"{auto_cast}/{t}" for t in types for auto_cast in ("all", "matmult")}
    for r in q.rungs:
        own = not r.flags and r.name != FLOAT32
        other = r.name != rung.name and not r.framework_type and not r.quantizes
        if (own or r.name in named) and other and r.low:
            found[r.name] = r.plan
    return found


def _report_search(t: _Tuning, s: Search) -> None:
    """The plans of a search: its best, and others on the way that are faster than the best rung, each
    run on all data.
    """
    q, runner = t.q, t.runner
    asked = q.base or q.fix or next(r for r in q.rungs if r.name == s.label).quantizes
    timed = q.objective == "performance" and not asked
    limit = t.best.estimated_seconds if timed else math.inf
    if s.best is None or (s.best == s.without(s.units) if s.fallback else s.time(s.best) >= limit):
        faster = f"faster than {t.best.name} " if s.best is not None else ""
        t.notes.append(f"from {s.label} no plan {faster}within the tolerance was found")
        return
    others = [c for c in s.passed if c != s.best and s.time(c) < limit]
    points = [s.best, *_spread(others, FRONT)] if q.strategy == "pareto" and not q.fix else [s.best]
    names = [f"{s.label} tuned", *(f"{s.label} tuned {n}" for n in range(2, len(points) + 1))]
    plans = [
        dataclasses.replace(s.space.plan(c), policy=name) for c, name in zip(points, names, strict=True)
    ]
    everything = runner.measure([Trial(p) for p in plans], runner.all_shards, "front")
    for choice, plan, statistics in zip(points, plans, everything, strict=True):
        rung = Rung(plan.policy, "", plan, s.cast_type)
        figures = t.meter.figures(rung, statistics)
        held_out = None
        if s.data.held_out:
            (own,) = runner.measure([Trial(plan)], s.data.held_out, "held out")
            held_out = s.loss(own, s.data.held_out)
        within = (figures.loss or 0.0) <= t.budget
        kept = _kept(s, choice)
        result = PlanResult(figures, s.label, kept, _moved(s, plan), held_out, within, plan)
        t.plans.append(result)
    first = t.plans[-len(points)]
    if not first.within:
        t.notes.append(
            f"{first.name} is within the tolerance on the data that decided, not on all: its loss "
            f"is {first.figures.loss:.3g}; more data, or a smaller tolerance, would give a safer plan"
        )


def _spread(choices: Sequence[dict[str, str]], count: int) -> list[dict[str, str]]:
    """Some of the choices that passed, evenly from the first on."""
    if len(choices) <= count:
        return list(choices)
    return [choices[round(n * (len(choices) - 1) / (count - 1))] for n in range(count)]


def _kept(s: Search, choice: Mapping[str, str]) -> tuple[KeptInstruction, ...]:
    found = []
    by_member = {m: u for u in s.units for m in u.members}
    for name in s.low:
        label = choice.get(name, "")
        if label == s.base[name]:
            continue
        i = s.space.instructions[name]
        own = s.sensitivities.get(name) or s.sensitivities.get(by_member[name].name)
        m = i.metadata
        found.append(
            KeptInstruction(
                name,
                i.opcode,
                scope_of(i),
                f"{m.source_file}:{m.source_line}" if m.source_file else "",
                _type_of(s.space.bases[label].decisions[name]) if label else "float32",
                None if own is None else (math.inf if own.broken else own.error),
            )
        )
    return tuple(found)


def _type_of(d: Decision) -> str:
    """What an instruction computes in, in words."""
    same = d.output is d.operand or d.output.kind == "bool"
    gives = "" if same else f", {d.output.name} result"
    sums = "" if d.accumulate is float32 else f", {d.accumulate.name} sums"
    return f"{d.operand.name}{gives}{sums}{f', {d.rounding}' if d.rounding else ''}"


def _moved(s: Search, plan: Plan) -> int:
    """How many instructions that only move values are wider than in the base."""
    base = s.space.plan(s.base).decisions
    gone = [n for n in base if n not in plan.decisions and n in s.space.instructions]
    return sum(moves(s.space.instructions[n]) for n in gone)


def _choose(t: _Tuning) -> str:
    """The plan to use instead of the best rung, if one is worth it: a flag is simpler to keep. One that
    is within the tolerance on the held-out samples too is preferred, then of those of nearly one speed
    the one with the fewest exceptions.
    """
    asked = t.q.base or t.q.fix
    own = next((p for p in t.plans if p.within), None) if asked else _worthy(t)
    if own is None:
        return ""
    if own.held_out_loss is not None and own.held_out_loss > t.budget:
        t.notes.append(
            f"on the held-out samples alone the loss of {own.name} is {own.held_out_loss:.3g}, above "
            "the tolerance: measure it on more data before relying on it"
        )
    return own.name


def _worthy(t: _Tuning) -> PlanResult | None:
    """Of plans within the tolerance the one that is worth more than the best rung, if one is."""
    own = preferred(t.plans, t.budget)
    if own is None:
        return None
    gain = gain_of(own, t.best)
    asked = next(r for r in t.q.rungs if r.name == own.base).quantizes
    if gain * (BETTER if asked else WORTH) > 1:
        return own
    if gain > 1:
        t.notes.append(
            f"{own.name} would be {gain:.2f}x the speed of {t.best.name}, with {len(own.kept)} "
            f"exceptions to keep up: below {1 / WORTH - 1:.0%} the flags are recommended. "
            f"--base {own.base} gives the plan"
        )
    return None


def preferred(plans: Sequence[PlanResult], budget: float) -> PlanResult | None:
    """Of plans within the tolerance, on the held-out samples too if one is, and of nearly the shortest
    time the one with the fewest exceptions.
    """
    able = [p for p in plans if p.within]
    able = [p for p in able if (p.held_out_loss or 0.0) <= budget] or able
    fastest = min((p.figures.estimated_seconds for p in able), default=math.inf)
    alike = [p for p in able if p.figures.estimated_seconds <= fastest * ALIKE]
    return min(alike, key=lambda p: (len(p.kept), p.figures.estimated_seconds), default=None)


def gain_of(plan: PlanResult, best: RungResult) -> float:
    """How many times as fast as a rung a plan is estimated to be."""
    own = plan.figures.estimated_seconds
    return best.estimated_seconds / own if own else 1.0


def _compared(t: _Tuning) -> list[RungResult]:
    """The rungs with the bounds of their losses less the best one's."""
    own = {r.name: r for r in t.q.rungs}
    ours, shards = own[t.best.name], t.runner.all_shards

    def bounds(r: Rung) -> tuple[float, float] | None:
        return t.runner.difference((r.trial, ours.trial), shards, (r.low, ours.low))

    return [
        r if r.name == t.best.name else dataclasses.replace(r, difference=bounds(own[r.name]))
        for r in t.rungs
    ]


def _doubts(t: _Tuning) -> list[str]:
    """Where the data are too few to tell a setting from the tolerance, or from the best one."""
    rungs, runner = t.rungs, t.runner
    unsure = [
        r.name
        for r in rungs[1:]
        if r.interval is not None and r.interval[0] <= t.budget < r.interval[1]
    ]
    within = [r for r in rungs[1:] if (r.loss or 0.0) <= t.budget and r.difference is not None]
    alike = [r.name for r in within if r.difference and r.difference[0] <= 0 <= r.difference[1]]
    said = []
    if unsure:
        said.append(
            f"whether {', '.join(unsure)} {'is' if len(unsure) == 1 else 'are'} within the tolerance"
        )
    if alike:
        said.append(f"{', '.join(alike)} and {t.best.name} apart")
    number = counted(runner.samples, "sample")
    known = any(r.interval is not None for r in rungs[1:])
    if len(rungs) > 1 and not known and not runner.metric.extreme:
        return [f"{number} do{'' if runner.samples != 1 else 'es'} not tell how sure these losses are"]
    few = f"{number} {'are' if runner.samples != 1 else 'is'} too few to tell"
    return [f"{few} {', nor '.join(said)} (95 % intervals of the loss)"] if said else []
