"""What is wrong with a setting, and what mends it: blame, and lint's repairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from neuronsim import processor
from neuronsim.api import calibrate, hinting, lint_under_setup, planned
from neuronsim.casting.decisions.post_training import Recipe, find_recipe
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.lint import repaired
from neuronsim.casting.plans.plan import Plan, make_plan
from neuronsim.casting.policies import with_rules
from neuronsim.casting.policies.calibration import Calibration
from neuronsim.casting.policies.policy import Policy, Rule
from neuronsim.casting.policies.rules import compared
from neuronsim.errors import InvalidArgument
from neuronsim.frontends.weights import Weights
from neuronsim.hlo import conformance
from neuronsim.hlo.findings import Finding
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.module import Module
from neuronsim.program import CompiledProgram
from neuronsim.quantization import quantize as quantized_plan
from neuronsim.reading import name_of
from neuronsim.records import is_int
from neuronsim.setups import DEFAULT_SDK, CastRequest, Setup
from neuronsim.tuning.blame.measure import blame as measure_blame
from neuronsim.tuning.blame.measure import is_usual, usual_error
from neuronsim.tuning.blame.result import BlameResult, Cause, OutputFigures
from neuronsim.tuning.blame.subject import Subject
from neuronsim.tuning.dataset import BatchedData, load_batches, output_shapes
from neuronsim.tuning.metrics import check_labels

Progress = Callable[[str, int, int], None]


@processor.pinned
@hinting
def blame(
    model: Any,
    data: str | Path | Mapping[str, Any],
    labels: Any = None,
    *,
    flags: str | Sequence[str] = "",
    auto_cast: str | None = None,
    auto_cast_type: str | None = None,
    sdk: str = DEFAULT_SDK,
    target: str | None = None,
    policy: Policy | str | Path | None = None,
    plan: Plan | str | Path | None = None,
    calibration: Calibration | None = None,
    quantize: Recipe | str | None = None,
    max_causes: int = 5,
    rewrite: bool = False,
    progress: Progress | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    input_values: Mapping[str, Any] | None = None,
    batch: int = 1,
    weights: Weights | None = None,
    outputs: Sequence[str] = (),
) -> BlameResult:
    """Which instructions move a model's outputs under a setting: by how much, why, and what to do.

    `data` is as in `tune`, or one array for each input in its own shape; the arguments that decide the
    casts are as in `compile`. The model runs in float32 and under the setting side by side, instruction
    by instruction, and the outputs' error is traced back to where it arises; each cause is measured by
    runs in which it stays float32 (docs/blame.md). At most `max_causes` are named. With `rewrite` the
    known rewrites of the source and of quantizations are applied to the module and measured too. With
    `quantize`, a scheme or a Recipe, products read bytes, calibrated on the data, and the rest is as
    the setting says.
    Raises NeuronSimError for a model or data that do not fit.
    """
    if not is_int(max_causes, 1):
        raise InvalidArgument(f"max_causes is an integer of at least 1, not {max_causes!r}")
    request = CastRequest(
        model,
        flags=flags,
        auto_cast=auto_cast,
        auto_cast_type=auto_cast_type,
        sdk=sdk,
        target=target,
        policy=policy,
        plan=plan,
        calibration=calibration,
        input_shapes=input_shapes,
        input_values=input_values,
        batch=batch,
        weights=weights,
        outputs=outputs,
    )
    setup, module, decider, made = planned(request, data)
    given = _batches(module, data, labels)
    setting = setup.casts or made.policy
    if quantize is not None:
        recipe = find_recipe(quantize)
        setting = f"{recipe.setting} and {setting}"
        made = quantized_plan(module, data, recipe, others=made)

    def replanned(rewritten: Module) -> Subject | None:
        if decider is None or quantize is not None:
            return None
        # What the calibration says of the model it does not say of another module.
        own = calibrate(rewritten, data) if any(map(compared, decider.rules)) else None
        found = make_plan(rewritten, decider, setup.target, own)
        return _subject(rewritten, found, setup, given)

    return measure_blame(
        _subject(module, made, setup, given),
        model=name_of(model, module),
        setting=setting,
        data=given.source,
        samples=given.count,
        max_causes=max_causes,
        replanned=replanned if rewrite else None,
        progress=progress,
    )


def _batches(module: Module, data: Any, labels: Any = None) -> BatchedData:
    given = load_batches(module, data, labels)
    check_labels(given.labels, output_shapes(module, given.are_runs))
    return given


def _subject(module: Module, plan: Plan, setup: Setup, given: BatchedData) -> Subject:
    literal = replace(setup, clean=False)  # every instruction then has its own name's value

    def build(decisions: Mapping[str, Decision], other: Module | None = None) -> CompiledProgram:
        made = replace(plan, decisions=decisions, kept={})
        if other is not None:
            made = replace(made, fingerprint=fingerprint(other))
        return CompiledProgram(other or module, made, literal)

    return Subject(
        module=module,
        decisions=plan.decisions,
        build=build,
        profile=setup.profile.replace(rounding="nearest_even"),
        batches=given.inputs,
        are_runs=given.are_runs,
        labels=given.labels,
    )


@dataclass(frozen=True)
class Repair:
    """A policy that keeps in float32 what lint found, and what blame did where the data show that this
    is not enough (`blamed`); the findings before and those that are `left`, which it cannot repair;
    with data the outputs' figures before and after, measured.
    """

    policy: Policy
    findings: tuple[Finding, ...]
    left: tuple[Finding, ...]
    kept: tuple[str, ...]
    before: OutputFigures | None = None
    after: OutputFigures | None = None
    usual: float = 0.0
    blamed: tuple[str, ...] = ()

    @property
    def unmended(self) -> str:
        """What the measurement says against the repair; empty if nothing."""
        if self.after is None or is_usual(self.after, self.usual):
            return ""
        if self.before is not None and self.after == self.before and not self.kept:
            return (
                f"the worst sample is off by {self.after.worst_sample:.2g} of its norm, and lint finds "
                "nothing to keep: `neuronsim blame` says which operations it comes from"
            )
        count = f"{self.after.not_finite} outputs are not finite, " if self.after.not_finite else ""
        return (
            f"{count}the worst sample is still off by {self.after.worst_sample:.2g} of its norm (usual "
            f"are {self.usual:.2g}): `neuronsim blame --policy` says what is left"
        )


@processor.pinned
def repair(
    request: CastRequest, data: str | Path | Mapping[str, Any] | None = None
) -> tuple[Setup, Repair]:
    """The setup of a request and the repair of what lint finds under it. With `data` these are the
    calibration, unless the request has one, and the repair is measured on them.

    Raises InvalidArgument for a plan: a policy's rules repair policies and flags.
    """
    if data is not None and request.calibration is None:
        named = ("input_shapes", "input_values", "batch", "weights", "outputs")
        inputs = {n: getattr(request, n) for n in named}
        request = replace(request, calibration=calibrate(request.model, data, **inputs))
    setup, module, policy, made = planned(request, data)
    if policy is None:
        raise InvalidArgument("lint repairs flags and policies: a plan has no rules to add")
    _, findings = lint_under_setup(request, data)
    found, left = repaired(module, policy, setup.target, request.calibration, profile=setup.profile)
    names = tuple(dict.fromkeys(n for rule in found.rules[len(policy.rules) :] for n in rule.name))
    unlisted = conformance.check(module, setup.release, setup.target)  # whatever the types
    whole = Repair(found, findings, (*unlisted, *left), names)
    if data is None:
        return setup, whole
    given = _batches(module, data)

    def subject_of(chosen: Policy) -> Subject:
        plan = make_plan(module, chosen, setup.target, request.calibration)
        return _subject(module, plan, setup, given)

    broken, mended = _subject(module, made, setup, given), subject_of(found)
    broken.check_reference()
    usual = usual_error(broken.flow, broken.decisions)
    whole = replace(whole, before=_figures(broken), after=_figures(mended), usual=usual)
    if not whole.unmended:
        return setup, whole
    keep = measure_blame(
        mended,
        model=name_of(request.model, module),
        setting=found.name,
        data=given.source,
        samples=given.count,
    ).keep_float32
    if not keep:
        return setup, whole
    more = with_rules(found, Rule("blame: it moves the outputs on the data", "never", name=keep))
    kept, after = tuple(dict.fromkeys((*names, *keep))), _figures(subject_of(more))
    return setup, replace(whole, policy=more, kept=kept, after=after, blamed=keep)


def _figures(subject: Subject) -> OutputFigures:
    return subject.figures(subject.outputs(subject.build(subject.decisions)))


__all__ = ["BlameResult", "Cause", "Repair", "blame", "repair"]
