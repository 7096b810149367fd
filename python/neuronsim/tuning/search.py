"""What all strategies of a search share: which data rank, decide and check, trials of choices, and the
best choice so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from neuronsim.casting.plans.plan import Plan
from neuronsim.dtypes import DType, bfloat16, float32
from neuronsim.tuning.dataset import Dataset
from neuronsim.tuning.marginal_costs import TypedCost
from neuronsim.tuning.results import Stop
from neuronsim.tuning.runner import Runner
from neuronsim.tuning.space import MAX_UNITS, Choice, Space, Unit
from neuronsim.tuning.statistics import Statistics
from neuronsim.tuning.trials import Trial, Workload

RANKING = 32  # samples by which instructions are ranked, at most
WORK = 1e-3  # estimated seconds of the device that a trial on these takes at most; of scores 4 times
SENSITIVITY = 0.5  # of the time that is left, what ranking may take
TRIALS = 2  # for each instruction that the base casts, where a strategy counts them,
MOST_TRIALS = 320  # and in all
HELD_OUT = 5  # every fifth shard is held out
MOST_UNLIKE = 8.0  # times the loss of all data, what the ranking samples may lose
WITNESSES = 3  # shards that tell what the ranking ones do not, at most


class Split(NamedTuple):
    """The shards by which instructions are ranked, by which choices are decided, and which no decision
    is made by.
    """

    ranking: list[int]
    deciding: list[int]
    held_out: list[int]


def split(workload: Workload, shards: Sequence[int], work: float = 0.0) -> Split:
    """Every HELD_OUT-th of the shards is held out, where there are as many; RANKING samples of the
    others, in shards that lie evenly among them, rank, or fewer of a model of so much work: the
    estimated seconds of a batch.
    """
    held_out = list(shards[HELD_OUT - 1 :: HELD_OUT])
    deciding = [s for s in shards if s not in held_out]
    own = max(1, workload.samples(deciding[:1]))
    wanted = min(len(deciding), max(1, RANKING // own))
    if work:
        scores = any(m.metric.of_samples is not None for m in workload.metrics[:1])
        most = (4 if scores else 1) * WORK / work / len(workload.shards[0])
        wanted = max(1, min(wanted, round(most)))
    places = sorted({round(n * (len(deciding) - 1) / max(wanted - 1, 1)) for n in range(wanted)})
    return Split([deciding[p] for p in places], deciding, held_out)


Prices: TypeAlias = Mapping[str, Mapping[DType, TypedCost]]


def deciding_samples(workload: Workload) -> Dataset:
    """The samples that decide, for a calibration that is to know nothing of those held out."""
    _, deciding, _ = split(workload, range(len(workload.shards)))
    rows = np.concatenate([workload.rows(s) for s in deciding])
    own = {name: array[rows] for name, array in workload.dataset.inputs.items()}
    return Dataset(own, None, workload.dataset.source)


@dataclass(frozen=True)
class Sensitivity:
    """What one unit in the low type alone does: the loss, the worst output's error, whether an output
    is then not finite, and the sketch of the difference, by the square root of the shards.
    """

    unit: Unit
    loss: float
    error: float
    broken: bool
    sketch: npt.NDArray[np.float64]


@dataclass
class Search:
    """A search for the instructions of a base that stay float32. `seconds` estimates a plan's time,
    `by_count` says that the fewest instructions are looked for, not the shortest time. `base` is the
    base's own choice, `start` what the search begins with. `best` is the best choice that is within the
    budget on the deciding data.
    """

    runner: Runner
    space: Space
    label: str
    budget: float
    seconds: Callable[[Plan], float]
    base: dict[str, str]
    by_count: bool = False
    cast_type: DType | None = None  # of the base: what AWS's ratio is about
    others: tuple[str, ...] = ()  # labels of bases whose types what is kept may have
    fallback: str = ""  # that of the base whose types what is kept has at first; "" for float32
    prices: Prices | None = None  # of instructions, where time counts
    work: float = 0.0  # estimated seconds of a batch in float32
    start: dict[str, str] = field(init=False)
    data: Split = field(init=False)
    best: dict[str, str] | None = None
    sensitivities: dict[str, Sensitivity] = field(default_factory=dict)
    passed: list[dict[str, str]] = field(default_factory=list)
    stopped: Stop = ""  # why it looked at less than there is

    def __post_init__(self) -> None:
        self.data = split(self.runner.workload, self.runner.all_shards, self.work)
        self.start = self.base
        self._before = self.runner.trials
        self._ranked = len(self.data.ranking)

    @property
    def room(self) -> int:
        """How many trials it may still take, of TRIALS for each instruction and MOST_TRIALS in all."""
        return min(TRIALS * len(self.low), MOST_TRIALS) - (self.runner.trials - self._before)

    def stop_short(self) -> None:
        """Remember that what is left of the trials is too few for what there is to look at."""
        self.stopped = self.stopped or "trials"

    @cached_property
    def low(self) -> tuple[str, ...]:
        """The instructions that the base casts."""
        return tuple(self.base)

    @cached_property
    def units(self) -> list[Unit]:
        """As many as half of the trials that there may be can rank: the rest is for what follows."""
        names, most = tuple(self.start), self.runner.max_trials
        found = self.space.units(names, MAX_UNITS)
        if most is None or len(found) <= most // 2:
            return found
        self.stopped = "max-trials"
        return self.space.units(names, max(1, most // 2))

    def start_with_gains(self, rest: str) -> bool:
        """Begin with those integers alone that save estimated time; the others are as the base `rest`
        has them. What quantizes an array counts for all products that read it, so these are left out
        together, then one by one. Returns whether any are left.
        """
        quantizing = [n for n, b in self.base.items() if self.space.bases[b].decisions[n].quantizes]
        known = set(self.space.lowered_by(rest)) if rest else set()
        read: dict[str, list[str]] = {}
        for n in quantizing:
            read.setdefault(next(iter(self.space.instructions[n].operands), n), []).append(n)
        seconds, before = self.seconds(self.space.plan(self.start)), 0.0
        while seconds != before:
            before = seconds
            single = ([n] for names in read.values() if len(names) > 1 for n in names)
            for names in (*read.values(), *single):
                if not any(self.start.get(n) == self.base[n] for n in names):
                    continue
                tried = {n: rest if n in names else b for n, b in self.start.items()}
                tried = {n: b for n, b in tried.items() if b != rest or n in known}
                if (found := self.seconds(self.space.plan(tried))) < seconds:
                    self.start, seconds = tried, found
        return any(self.start.get(n) == self.base[n] for n in quantizing)

    def beside(self, choice: Choice) -> dict[str, str]:
        """The integers that it begins with, and what another search chose for the others."""
        known = {n: b for n, b in choice.items() if b in self.space.bases}
        own = {n: b for n, b in self.start.items() if self.space.bases[b].decisions[n].quantizes}
        return {n: b for n in self.low if (b := own.get(n) or known.get(n, ""))}

    def trial(self, choice: Choice) -> Trial:
        return Trial(self.space.plan(choice))

    def without(self, kept: Iterable[Unit]) -> dict[str, str]:
        """What it begins with, with these units in float32, or as the fallback has them."""
        names = {m for u in kept for m in u.members}
        known = self.space.bases[self.fallback].decisions if self.fallback else {}
        given = {n: self.fallback if n in names else label for n, label in self.start.items()}
        return {n: label for n, label in given.items() if n not in names or n in known}

    def start_from_fallback(self) -> None:
        """Begin with the fallback as the best choice: whatever else passes is faster. It is within the
        budget on all data; where it loses more on what decides, so may others.
        """
        if not self.fallback:
            return
        choice = self.without(self.units)
        few, all_ = (
            self.losses([choice], "deciding", shards=shards)[0]
            for shards in (self.data.deciding, self.runner.all_shards)
        )
        if few > self.budget >= all_ > 0:
            self.budget *= min(MOST_UNLIKE, few / all_)
        if not self.fits(choice):
            self.fallback = ""

    def is_kept(self, name: str, choice: Choice) -> bool:
        """Whether a choice leaves an instruction in float32, or as the fallback has it."""
        label = choice.get(name, "")
        return label in ("", self.fallback) and label != self.start.get(name)

    def gain(self, name: str, label: str) -> float:
        """What an instruction saves in a base's type, in estimated seconds, its casts not counted."""
        priced = (self.prices or {}).get(name)
        d = self.space.bases[label].decisions[name]
        low = bfloat16 if d.quantizes else d.operand  # which integers are no dearer than
        return priced[float32].own - priced[low].own if priced is not None and low in priced else 0.0

    def loss(self, s: Statistics, shards: Sequence[int]) -> float:
        """A trial's loss on these shards."""
        return self.runner.loss(s, shards, self.cast_type)

    def losses(self, choices: Sequence[Choice], stage: str, *, shards: Sequence[int]) -> list[float]:
        """The losses of choices, measured together."""
        found = self.runner.measure([self.trial(c) for c in choices], shards, stage)
        return [self.loss(s, shards) for s in found]

    def fits(self, choice: dict[str, str], stage: str = "deciding") -> bool:
        """Whether a choice is within the budget: on the ranking data, then on all that decide."""
        trial = self.trial(choice)
        for shards, budget in (
            (self.data.ranking, self.ranking_budget),
            (self.data.deciding, self.budget),
        ):
            ordered = [*self.data.ranking, *(s for s in shards if s not in self.data.ranking)]
            found, told = self.runner.within(trial, ordered, budget, stage, self.cast_type)
            if found is None:
                if shards is self.data.deciding:
                    self._learn(trial, told, stage)
                return False
        self.passed.append(choice)
        if self.best is None or self.cost(choice) < self.cost(self.best):
            self.best = choice
        return True

    def _learn(self, trial: Trial, told: Sequence[int], stage: str) -> None:
        """A choice that passed on the ranking data failed on shards that decide. Where one says so,
        because an output is not finite or the loss is many times the budget, it is one of those that
        rank from now on: of what goes wrong there the others know nothing.
        """
        if len(self.data.ranking) >= self._ranked + WITNESSES:
            return
        few = self.runner.metric.of_samples is not None  # of a metric of samples one is no evidence
        for shard in told:
            (s,) = self.runner.measure([trial], [shard], stage)
            far = not few and not self.loss(s, [shard]) <= MOST_UNLIKE * self.budget
            if shard not in self.data.ranking and (s.is_broken or far):
                self.data.ranking.append(shard)
                return

    @property
    def ranking_budget(self) -> float:
        """What may be lost on the ranking samples: more than on all that decide, where the best choice
        so far loses more on them, or while that loses nothing, the first one.
        """
        for choice in (self.best, self.start):
            if choice is None:
                continue
            few, all_ = (
                self.losses([choice], "deciding", shards=shards)[0]
                for shards in (self.data.ranking, self.data.deciding)
            )
            if 0 < all_ < math.inf and few < math.inf:
                return self.budget * min(MOST_UNLIKE, max(1.0, few / all_))
        return self.budget

    def cost(self, choice: Choice) -> tuple[float, float]:
        """What is to be small: how many instructions are float32, or the estimated time, then the other
        one.
        """
        kept = float(sum(self.is_kept(n, choice) for n in self.low))
        return (kept, self.time(choice)) if self.by_count else (self.time(choice), kept)

    def time(self, choice: Choice) -> float:
        """The estimated seconds of a choice, or the bytes that are the objective."""
        return self.seconds(self.space.plan(choice))

    def measure_units(self, units: Sequence[Unit], stage: str = "sensitivity") -> None:
        """The sensitivity of each unit: it alone in the low type. Those that SENSITIVITY of the time
        that is left is not enough for have none.
        """
        new = [u for u in units if u.name not in self.sensitivities]
        choices = [{m: self.start[m] for m in u.members} for u in new]
        trials = [self.trial(c) for c in choices]
        found = self.runner.measure_some(trials, self.data.ranking, stage, SENSITIVITY)
        for u, s in zip(new, found, strict=True):
            if s is None:
                self.stopped = "timeout"
            else:
                self.sensitivities[u.name] = self._sensitivity(u, s)

    def _sensitivity(self, u: Unit, s: Statistics) -> Sensitivity:
        loss = self.loss(s, self.data.ranking)
        sketch = np.array(s.sketch) / math.sqrt(len(self.data.ranking))
        return Sensitivity(u, loss, worst_error(s), s.is_broken, sketch)

    def breaks(self, u: Unit) -> bool:
        """Whether a unit alone makes an output not finite, or may for what is known of it."""
        own = self.sensitivities.get(u.name)
        return own is None or own.broken

    def error(self, u: Unit) -> float:
        """The error that a unit makes alone; 0 where it was not measured."""
        own = self.sensitivities.get(u.name)
        return 0.0 if own is None else own.error

    def is_hopeless(self, part: Iterable[Unit], now: float) -> bool:
        """Whether units cannot go back to the low type if errors add even halfway as independent ones
        do: with the error that there is now. A measured one may say else: errors may cancel.
        """
        if self.runner.metric.name != "relative_error":
            return False
        own = [self.sensitivities.get(u.name) for u in part]
        if any(x is None for x in own):
            return False
        total = math.fsum((x.error / 2) ** 2 for x in own if x is not None)
        return now * now + total > self.ranking_budget**2

    def predicted(self, kept: Iterable[Unit], units: Sequence[Unit]) -> float:
        """The norm of the outputs' difference if units but these are low and errors add."""
        names = {u.name for u in kept}
        total = np.zeros(1)
        for u in units:
            if u.name not in names:
                if self.breaks(u):
                    return math.inf
                total = total + self.sensitivities[u.name].sketch
        return float(np.linalg.norm(total))


def worst_error(s: Statistics) -> float:
    """The largest error of an output: relative, of integers the share that differs."""
    errors = (
        o.relative_error if o.scale.mantissa or o.infinite else max(o.share_differing, 0.0)
        for o in s.outputs
    )
    return max(errors, default=0.0)


def path_of(search: Search, costs: Mapping[str, float]) -> list[Unit]:
    """All units in the order in which keeping them float32 is worth it: first those that alone break an
    output, then whatever takes most of the summed difference for its cost. Differences add as vectors,
    so that errors that cancel are no reason to keep both.
    """
    broken = [u for u in search.units if search.breaks(u)]
    rest = [u for u in search.units if u not in broken]
    if not rest:
        return broken
    own = np.array([search.sensitivities[u.name].sketch for u in rest])
    squares = np.einsum("ij,ij->i", own, own)
    price = np.array([max(costs.get(u.name, 1.0), 1e-12) for u in rest])
    total = own.sum(axis=0)
    order, free = list(broken), np.ones(len(rest), bool)
    for _ in rest:
        gains = 2 * (own @ total) - squares
        # Once nothing takes from the sum any more, the largest errors come first.
        worth = np.where(gains > 0, gains / price, -1.0 / (1.0 + squares / price))
        at = int(np.argmax(np.where(free, worth, -np.inf)))
        order.append(rest[at])
        free[at] = False
        total = total - own[at]
    return order
