"""What tuning found, as records and as JSON (schema neuronsim.tune/2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

from neuronsim.casting.plans.plan import Plan
from neuronsim.errors import counted
from neuronsim.hlo.trip_counts import LoopTrips
from neuronsim.json_documents import finite
from neuronsim.processor import pinned
from neuronsim.tables import html_table

SCHEMA = "neuronsim.tune/2"
# Why a search ended before its end.
Stop = Literal["", "max-trials", "timeout", "interrupted", "trials"]


@dataclass(frozen=True)
class OutputError:
    """How far one of the model's outputs is from float32's: `output_N` of `run` is that of `index` N.

    `error` is what a tolerance of relative_error is compared with: the relative Frobenius error of a
    floating output, of integers and truth values the share of elements that differ (`differing`).
    `ulps` has, where the metric ulp is asked for, how many elements are 0, 1, 2, 3 to 4, 5 to 8, ...
    units in the last place away.
    """

    index: int
    instruction: str
    type: str
    error: float
    relative_error: float | None
    max_error: float | None
    differing: float | None
    not_finite: int
    ulps: tuple[int, ...] = ()


@dataclass(frozen=True)
class RungResult:
    """One setting's figures; errors are against float32.

    `relative_error` and `max_error` are those of the floating output that has the worst of each, None
    where no output is floating; `outputs` has every output's. `top1` is None without labels and both
    top-1 figures where the model does not give class scores. `scores` has the values of all metrics
    that were asked for, `loss` what the tolerance is compared with, and `interval` 95 % bounds of it by
    the paired samples, where the metric has such. `verdict` is AWS's class of the metric aws_ratio.
    `int64_truncated` counts, by instruction, the 64-bit integers that lost their high half over all
    batches (C7).
    """

    name: str
    flags: str
    top1: float | None
    relative_error: float | None
    max_error: float | None
    not_finite: int
    top1_agreement: float | None
    weight_bytes: int
    estimated_seconds: float
    estimated_speedup: float
    int64_truncated: Mapping[str, int] = field(default_factory=dict)
    outputs: tuple[OutputError, ...] = ()
    loss: float | None = None
    interval: tuple[float, float] | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    verdict: str = ""
    difference: tuple[float, float] | None = None  # of its loss less the recommended one's, at 95 %
    framework_type: str = ""  # to which the framework casts inputs and outputs

    @property
    def worst_error(self) -> float:
        """The largest error of any output: what a tolerance of relative_error is compared with."""
        return max((o.error for o in self.outputs), default=self.relative_error or 0.0)


@dataclass(frozen=True)
class KeptInstruction:
    """An instruction that a plan computes in another type than its base does, and its error when it
    alone is in the base's type (None where that was not measured).
    """

    name: str
    opcode: str
    scope: str
    source: str
    type: str
    error: float | None = None


@dataclass(frozen=True)
class PlanResult:
    """A plan beyond the ladder: its figures on all data, the setting that it changes, and what it keeps
    in wider types: computing instructions (`kept`), and how many that only move data.
    `held_out_loss` is that of the samples that no decision was made by; None where there are none.
    """

    figures: RungResult
    base: str
    kept: tuple[KeptInstruction, ...]
    moved: int
    held_out_loss: float | None
    within: bool
    plan: Plan

    @property
    def name(self) -> str:
        return self.figures.name


@dataclass(frozen=True)
class SearchRecord:
    """How a search went: which samples ranked the instructions, which none looked at, how many trials
    were run and how many instructions could be cast.
    """

    strategy: str
    instructions: int
    trials: int
    ranking_samples: int
    held_out_samples: int
    stopped: Stop = ""


@pinned
@dataclass(frozen=True)
class TuneResult:
    """The measured ladder and the recommended rung, and the plans beyond it, of which `chosen` names
    the recommended one ("" where no plan is better than the rung). The estimates count the `loops` with
    these trips, and of the `conditionals` the dearest branch. `notes` say what a reader must know of
    the outcome.
    """

    model: str
    fingerprint: str
    data: str
    data_fingerprint: str
    samples: int
    release: str
    target: str
    metric: str
    tolerance: float
    rungs: tuple[RungResult, ...]
    recommended: str
    seconds: Mapping[str, float]
    loops: tuple[LoopTrips, ...] = ()
    conditionals: tuple[str, ...] = ()
    criterion: str = "absolute"
    plans: tuple[PlanResult, ...] = ()
    chosen: str = ""
    search: SearchRecord | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        about = "; ".join(f"{name} {value}" for name, value in self._summary()[:3])
        return f"<TuneResult {self.model}: {about}>"

    def _repr_html_(self) -> str:
        return html_table(f"TuneResult {self.model}", self._summary())

    def _summary(self) -> list[tuple[str, str]]:
        """The recommendation, what it is for, and every rung's figures."""
        r = self.recommended_rung
        accuracy = "" if r.top1 is None else f"accuracy {r.top1:.4g}, "
        error = f"{accuracy}error {r.worst_error:.3g}, speed-up {r.estimated_speedup:.3g}"
        data = (
            f"{self.data}, {counted(self.samples, 'sample')}, {self.metric} within {self.tolerance:g}"
        )
        rows = [("recommended", f"{r.name}: {error}"), ("flags", r.flags), ("data", data)]
        for rung in (*self.rungs, *(p.figures for p in self.plans)):
            figures = f"error {rung.worst_error:.3g}, speed-up {rung.estimated_speedup:.3g}"
            rows.append((rung.name, figures))
        return rows

    @property
    def recommended_rung(self) -> RungResult:
        """The rung to use."""
        return next(r for r in self.rungs if r.name == self.recommended)

    @property
    def chosen_plan(self) -> PlanResult | None:
        """The plan to use instead, if there is one."""
        return next((p for p in self.plans if p.name == self.chosen), None)

    @property
    def flag_line(self) -> str:
        """The recommended options, for NEURON_CC_FLAGS."""
        return self.recommended_rung.flags

    def to_json(self) -> str:
        """Every figure as JSON; numbers that are not finite are null. `seconds` is the time taken
        here, the only part that two runs do not share.
        """
        body: dict[str, Any] = {f.name: _plain(getattr(self, f.name)) for f in fields(self)}
        body |= {"schema": SCHEMA, "flag_line": self.flag_line}
        return json.dumps(finite(body), indent=1, sort_keys=True, allow_nan=False)


def _plain(x: Any) -> Any:
    """A record as JSON has it; a plan as its own JSON."""
    if isinstance(x, Plan):
        return json.loads(x.to_json())
    if is_dataclass(x):
        return {f.name: _plain(getattr(x, f.name)) for f in fields(x)}
    if isinstance(x, Mapping):
        return {k: _plain(v) for k, v in x.items()}
    return [_plain(v) for v in x] if isinstance(x, list | tuple) else x
