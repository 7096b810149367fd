"""The public functions: compile, plan, lint, calibrate, tune, load.

>>> program = compile("examples/digits/model.hlo.pb", auto_cast="none")  # doctest: +SKIP
>>> program(x=images).shape  # doctest: +SKIP
(64, 10)
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from neuronsim import dtypes, ops, processor
from neuronsim.casting.calibration import Calibration, make_calibration
from neuronsim.casting.flags import (
    AUTO_CASTS,
    CAST_TYPES,
    CastSettings,
    Message,
    parse_flags,
)
from neuronsim.casting.integer_downcast import check_integer_downcasts
from neuronsim.casting.io_config import check_io_config
from neuronsim.casting.lint import lint as lint_casts
from neuronsim.casting.plan import Plan, check_plan, make_plan
from neuronsim.casting.policy import Policy, policy_of
from neuronsim.casting.policy_file import load_policy
from neuronsim.errors import (
    FlagWarning,
    InvalidFlag,
    NonconformingModel,
    UnsupportedOperator,
    UnsupportedType,
    nearest,
)
from neuronsim.hlo import conformance, proto
from neuronsim.hlo.cache import cached_flags
from neuronsim.hlo.conformance import Finding
from neuronsim.hlo.module import Module
from neuronsim.hlo.verify import verify
from neuronsim.profiles import (
    Profile,
    default_profile,
)
from neuronsim.program import CompiledProgram, Setup, checked_replicas, load
from neuronsim.targets import SAME_CORE, find_release, find_target
from neuronsim.tuning.dataset import (
    Dataset,
    batch_count,
    batches,
    load_dataset,
    reject_nan,
)
from neuronsim.tuning.ladder import LADDER, Progress, RungResult, TuneResult, measure_rungs

DEFAULT_SDK = "2.26"
FLAGS_VARIABLE = "NEURON_CC_FLAGS"
LISTED = 10  # kinds of findings that an error spells out


def read_model(model: str | Path | bytes | memoryview | Module) -> Module:
    """The verified module of a file, its bytes, or a Module. Raises InvalidModel and others."""
    module = _read(model)
    verify(module)
    return module


def _read(model: str | Path | bytes | memoryview | Module) -> Module:
    if isinstance(model, Module):
        return model
    return proto.from_bytes(model) if isinstance(model, bytes | memoryview) else proto.read(model)


def resolve(
    flags: str | Sequence[str],
    auto_cast: str | None,
    auto_cast_type: str | None,
    sdk: str,
    target: str,
    profile: Profile | None,
) -> Setup:
    """The setup that the arguments of `compile` mean; raises InvalidFlag or InvalidArgument."""
    release, device = find_release(sdk), find_target(target)
    parsed = parse_flags(flags, release, device.compiler)
    if target in SAME_CORE:
        parse_flags(["--target", target], release)  # the release may be older
    settings = parsed.settings
    if device.compiler == "neuron-cc" and (auto_cast, auto_cast_type) != (None, None):
        raise InvalidFlag(
            "auto_cast and auto_cast_type (--auto-cast, --auto-cast-type) are options of neuronx-cc: "
            f"for {target} use --fast-math in the flags"
        )
    for name, value, known in (
        ("auto_cast", auto_cast, list(AUTO_CASTS)),
        ("auto_cast_type", auto_cast_type, list(CAST_TYPES)),
    ):
        if value is None:
            continue
        flag = "--" + name.replace("_", "-")
        if value not in known:
            raise InvalidFlag(
                f"{name} ({flag}) cannot be {value!r}{nearest(value, known)}: it accepts "
                + ", ".join(known)
            )
        parse_flags([flag, value], release)  # the release may be older
        chosen = AUTO_CASTS.get(value, value)
        if flag in parsed.given and getattr(settings, name) != chosen:
            raise InvalidFlag(
                f"{name}={value!r} contradicts {flag} {getattr(settings, name)} in the flags: "
                "give one of them"
            )
        settings = replace(settings, **{name: chosen})  # type: ignore[arg-type]
    if profile is None:
        accumulation = "on" if settings.mixed_precision_accumulation else "off"
        profile = default_profile().replace(
            int64="truncate" if device.truncates_int64 else "keep",
            mixed_precision_accumulation=accumulation,
        )
        if settings.int_dot == "via_float32":
            profile = profile.replace(int_dot="via_float32")
    return Setup(
        settings,
        release,
        device,
        profile,
        parsed.without_effect,
        given=parsed.given,
        messages=parsed.messages,
    )


def compile(  # noqa: A001 (the public API's name)
    model: str | Path | bytes | Module,
    *,
    flags: str | Sequence[str] = "",
    auto_cast: str | None = None,
    auto_cast_type: str | None = None,
    sdk: str = DEFAULT_SDK,
    target: str = "trn1",
    policy: Policy | str | Path | None = None,
    plan: Plan | None = None,
    calibration: Calibration | None = None,
    clean: bool = True,
    profile: Profile | None = None,
    threads: int | None = None,
    replicas: int = 1,
    strict: bool = False,
) -> CompiledProgram:
    """Compile a model under a setting of the Neuron compiler.

    `model` is a file of `HloModuleProto` or HLO text, its bytes, a folder of AWS's compile cache or a
    Module. The casts are those of `plan`, else of `policy` (a Policy, the name of one or a file of one;
    rules on magnitudes need the `calibration` of `calibrate`), else of `flags` (options of
    `neuronx-cc`, or of `neuron-cc` for the target "inf1") and of `auto_cast` ("none", "matmult", "all")
    and `auto_cast_type` ("bf16", "fp16", "tf32", "fp8_e4m3"), with the defaults of the release `sdk`.
    With `clean` false the plan is applied literally, to the same values. Where no flags are given, a
    folder's own count, else those of NEURON_CC_FLAGS, which a warning says. What there is to say of the
    flags is in the setup's `messages`; the warnings are raised as FlagWarning.
    `threads` is `set_num_threads`, for the whole process. The program runs on `replicas` emulated
    devices at once, which exchange arrays in its collectives. What the model breaks of AWS's documented
    constraints is in the program's `conformance`; `strict` makes it an error.
    Raises InvalidModel, UnsupportedOperator, UnsupportedType, NonconformingModel, InvalidFlag or
    InvalidArgument.
    """
    setup = _resolve_for(model, flags, auto_cast, auto_cast_type, sdk, target, profile)
    setup = replace(setup, replicas=checked_replicas(replicas), clean=clean)
    if threads is not None:
        processor.set_num_threads(threads)
    module = read_model(model)
    if strict:
        _require_conformance(module, setup)
    settings = setup.settings
    if io_config := setup.given.get("--io-config"):
        check_io_config(io_config, module)
    downcasts = check_integer_downcasts(module, settings.integer_downcast, setup.release, setup.target)
    if plan is None:
        plan = make_plan(module, _chosen(policy, setup), setup.target, calibration)
    else:
        check_plan(plan, module, setup.target)
    texts = list(downcasts)
    if settings.saturate_infinity and not any(d.saturate_infinity for d in plan.decisions.values()):
        texts.append(
            "--enable-saturate-infinity has no effect: it acts on transposes that run on the tensor "
            "engine (M8), and the plan has none"
        )
    found = tuple(Message("warning", text) for text in texts)
    setup = replace(setup, messages=setup.messages + found)
    _warn(setup.messages)
    return CompiledProgram(module, plan, setup)


def _warn(messages: Sequence[Message]) -> None:
    for message in messages:
        if message.level == "warning":
            warnings.warn(message.text, FlagWarning, stacklevel=3)


def _require_conformance(module: Module, setup: Setup) -> None:
    findings = conformance.check(module, setup.release, setup.target)
    if not findings:
        return
    groups = conformance.group(findings)
    listed = [f"{conformance.locations(g)}: {g[0].message} [{g[0].label}]" for g in groups]
    more = f"; and {len(listed) - LISTED} more kinds" if len(listed) > LISTED else ""
    raise NonconformingModel(
        f"{module.name!r} breaks what AWS documents for {setup.release} on {setup.target.name}: "
        f"{conformance.summary(findings)}: {'; '.join(listed[:LISTED])}{more}. `neuronsim lint` quotes "
        "the constraints and says what to do; without strict the model compiles"
    )


def lint(
    model: str | Path | bytes | Module,
    *,
    flags: str | Sequence[str] = "",
    auto_cast: str | None = None,
    auto_cast_type: str | None = None,
    sdk: str = DEFAULT_SDK,
    target: str = "trn1",
    policy: Policy | str | Path | None = None,
    plan: Plan | None = None,
    calibration: Calibration | None = None,
) -> tuple[Finding, ...]:
    """What a model breaks of the constraints that AWS documents for a release, executable or not, and
    what its casts are known to break; see `compile` for the arguments.

    Raises InvalidModel for one that contradicts itself, InvalidArgument for an unknown release or
    target.
    """
    setup = _resolve_for(model, flags, auto_cast, auto_cast_type, sdk, target, None)
    _warn(setup.messages)
    module = _read(model)
    found = conformance.check(module, setup.release, setup.target)
    try:
        verify(module)
    except (UnsupportedOperator, UnsupportedType):  # the device may execute it
        return found
    if plan is None:
        plan = make_plan(module, _chosen(policy, setup), setup.target, calibration)
    profile = setup.profile
    return (*found, *lint_casts(module, plan, setup.target, calibration, profile=profile))


def _resolve_for(
    model: str | Path | bytes | Module,
    flags: str | Sequence[str],
    auto_cast: str | None,
    auto_cast_type: str | None,
    *others: Any,
) -> Setup:
    """The setup of a model: where no flags are given, by those of its folder or of the environment."""
    text = ""
    if not flags and (auto_cast, auto_cast_type) == (None, None):
        flags = _folder_flags(model)
        text = "" if flags else os.environ.get(FLAGS_VARIABLE, "").strip()
    if not text:
        return resolve(flags, auto_cast, auto_cast_type, *others)
    try:
        setup = resolve(text, None, None, *others)
    except InvalidFlag as error:
        raise InvalidFlag(f"in the environment variable {FLAGS_VARIABLE}: {error}") from error
    message = Message("warning", f"the flags are those of {FLAGS_VARIABLE}: {text}")
    return replace(setup, messages=(message, *setup.messages))


def _folder_flags(model: str | Path | bytes | Module) -> list[str]:
    """The flags that lie beside the model in a folder of AWS's compile cache."""
    is_folder = isinstance(model, str | Path) and Path(model).is_dir()
    return cached_flags(Path(str(model))) if is_folder else []


def plan(
    model: str | Path | bytes | Module,
    *,
    flags: str | Sequence[str] = "",
    auto_cast: str | None = None,
    auto_cast_type: str | None = None,
    sdk: str = DEFAULT_SDK,
    target: str = "trn1",
    policy: Policy | str | Path | None = None,
    calibration: Calibration | None = None,
) -> Plan:
    """What a setting casts in a model, and why; see `compile` for the arguments."""
    setup = _resolve_for(model, flags, auto_cast, auto_cast_type, sdk, target, None)
    _warn(setup.messages)
    return make_plan(read_model(model), _chosen(policy, setup), setup.target, calibration)


def _chosen(policy: Policy | str | Path | None, setup: Setup) -> Policy:
    if policy is not None:
        return policy if isinstance(policy, Policy) else load_policy(policy)
    settings, profile = setup.settings, setup.profile
    chosen = policy_of(settings, profile.auto_cast_all)
    # A3: on Trn1 the profile decides that transposes run on the tensor engine, in float32.
    on_engine = settings.compiler == "neuronx-cc" and profile.transpose == "tensor_engine"
    if settings.saturate_infinity and on_engine:
        chosen = replace(chosen, relayout=dtypes.float32)
    return chosen


def calibrate(
    model: str | Path | bytes | Module,
    data: str | Path | Mapping[str, Any],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Calibration:
    """What the values of every instruction are when the model runs in float32 on data: what rules of a
    policy that compare magnitudes need.

    `data` is as in `tune`; labels are not read. `progress` is told how many batches are done, and of
    how many. It runs instruction by instruction, slowly. Raises NeuronSimError for a model or data that
    do not fit.
    """
    program = compile(model, auto_cast="none")
    dataset = load_dataset(data, input_names=program.model.input_names())
    reject_nan(dataset)
    total = batch_count(program.model, dataset)

    def runs() -> Iterator[dict[str, ops.Statistics]]:
        for done, (inputs, _) in enumerate(batches(program.model, dataset), start=1):
            arrays = [inputs[name] for name in program.inputs]
            program(*arrays, observe="full")
            met = program.diagnostics["statistics"]
            (bound,) = program._bind(arrays, {})
            given = {name: s for name, x in bound.items() if (s := ops.statistics(x)) is not None}
            yield given | {name: ops.Statistics(**s) for name, s in met.items()}
            if progress is not None:
                progress(done, total)

    return make_calibration(program.model, runs())


def tune(
    model: str | Path | bytes | Module,
    data: str | Path | Mapping[str, Any],
    labels: Any = None,
    *,
    metric: str | None = None,
    tolerance: float = 0.01,
    sdk: str = DEFAULT_SDK,
    target: str = "trn1",
    profile: Profile | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> TuneResult:
    """Measure the vendor's ladder of settings on data and recommend a rung.

    `data` is an `.npz` file or a mapping whose keys are the entry parameters' names (a sole parameter
    may be `x`), plus optional `labels`; the leading axis is samples. `metric` is "top1" (needs labels)
    or "relative_error"; the default is the first that the data allow. The recommended rung has the
    lowest estimated time among those whose metric is within `tolerance` of float32's: for top1 the
    accuracy lost, for relative_error the relative Frobenius error itself.
    Raises NeuronSimError for a model or data that do not fit.
    """
    module = read_model(model)
    dataset: Dataset = load_dataset(data, labels, module.input_names())
    reject_nan(dataset)

    release = find_release(sdk)
    settings = [CastSettings(a, t, release.mixed_precision_accumulation) for a, t in LADDER]

    def build(s: CastSettings) -> CompiledProgram:
        setup = resolve("", s.auto_cast, s.auto_cast_type, sdk, target, profile)
        return CompiledProgram(module, make_plan(module, _chosen(None, setup), setup.target), setup)

    before = processor.num_threads()
    try:
        processor.set_num_threads(before if threads is None else threads)
        return measure_rungs(
            module,
            dataset,
            settings,
            build,
            metric=metric,
            tolerance=tolerance,
            release=str(release),
            target=find_target(target),
            progress=progress,
        )
    finally:
        processor.set_num_threads(before)


__all__ = [
    "CompiledProgram",
    "RungResult",
    "TuneResult",
    "calibrate",
    "compile",
    "lint",
    "load",
    "plan",
    "tune",
]
