"""The public functions: compile, plan, lint, calibrate, tune, load, export_onnx.

>>> program = compile("examples/digits/model.hlo.pb", auto_cast="none")  # doctest: +SKIP
>>> program(x=images).shape  # doctest: +SKIP
(64, 10)
"""

from __future__ import annotations

import functools
import inspect
import os
import reprlib
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from neuronsim import dtypes, ops, processor
from neuronsim.arrays import files
from neuronsim.arrays.array_object import Array
from neuronsim.casting.decisions.checks import check_plan
from neuronsim.casting.decisions.post_training import Recipe, find_recipe
from neuronsim.casting.flags import Message
from neuronsim.casting.flags.integer_downcast import check_integer_downcasts
from neuronsim.casting.flags.io_config import check_io_config
from neuronsim.casting.lint import lint as lint_casts
from neuronsim.casting.plans.plan import Plan, make_plan
from neuronsim.casting.policies.calibration import Calibration, make_calibration
from neuronsim.casting.policies.neuron import policy_of
from neuronsim.casting.policies.policy import Policy
from neuronsim.dtypes import DTypeLike
from neuronsim.errors import (
    InvalidArgument,
    InvalidData,
    NonconformingModel,
    UnsupportedOperator,
    UnsupportedType,
    nearest,
)
from neuronsim.frontends.inputs import ModelInputs
from neuronsim.frontends.onnx.export import check_compiled_from, with_casts
from neuronsim.frontends.onnx.files import is_onnx
from neuronsim.frontends.onnx.files import read as read_onnx
from neuronsim.frontends.onnx.files import write as write_onnx
from neuronsim.frontends.onnx.quantized_export import quantize_nodes
from neuronsim.frontends.weights import Weights
from neuronsim.hlo import conformance
from neuronsim.hlo.findings import Finding, group, locations, summary
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import Module
from neuronsim.hlo.trip_counts import Trips
from neuronsim.hlo.verify import verify
from neuronsim.profiles import Profile
from neuronsim.program import CompiledProgram, checked_replicas
from neuronsim.program import load as load_program
from neuronsim.reading import (
    kind_of,
    name_of,
    read_model,
    read_unverified,
    read_verified,
    say,
)
from neuronsim.setups import (
    DEFAULT_SDK,
    CastRequest,
    CompileRequest,
    CompilerSetting,
    Setup,
    find_setup,
    release_words,
    resolve,
    tuning_profile,
)
from neuronsim.targets import find_target
from neuronsim.tuning.calibrated import quantized_rungs
from neuronsim.tuning.dataset import Arrays, Dataset, batches, load_dataset, reject_nan
from neuronsim.tuning.journal import Journal
from neuronsim.tuning.results import TuneResult
from neuronsim.tuning.rungs import ladder, own_rung, with_framework_types
from neuronsim.tuning.runner import Progress
from neuronsim.tuning.search import deciding_samples
from neuronsim.tuning.trials import MEMORY, MetricSpec, Workload, deciding_seed
from neuronsim.tuning.tuner import Question, tune_workload
from neuronsim.whole_files import open_regular

LISTED = 10  # kinds of findings that an error spells out


_P = ParamSpec("_P")
_Request = TypeVar("_Request")
_Result = TypeVar("_Result")


_OWN_ARGUMENTS = (
    '. Arguments of the model\'s own by name are example_kwargs={"mask": ...}, or input_shapes and '
    "input_types"
)


def refuse_unknown(
    function: str, keywords: Mapping[str, Any], known: Collection[str], advice: str = ""
) -> None:
    """Raises TypeError, as Python does, for a keyword that a function has not, with the nearest one."""
    for name in keywords:
        if name not in known:
            text = f"{function}() got an unexpected keyword argument {name!r}"
            raise TypeError(f"{text}{nearest(name, known)}{advice}")


def _asked(
    record: Callable[_P, _Request],
) -> Callable[[Callable[[_Request], _Result]], Callable[_P, _Result]]:
    """A function of a record as one of its fields, for callers, type checkers and `help`."""

    def decorate(function: Callable[[_Request], _Result]) -> Callable[_P, _Result]:
        @functools.wraps(function)
        def call(*args: _P.args, **keywords: _P.kwargs) -> _Result:
            refuse_unknown(function.__name__, keywords, found.parameters, _OWN_ARGUMENTS)
            examples: dict[str, Any] = {"example_args": args[1:]} if len(args) > 1 else {}
            try:
                request = record(*args[:1], **examples, **keywords)  # type: ignore[arg-type]
            except TypeError as error:
                text = str(error).replace(f"{record.__name__}.__init__", function.__name__)
                raise TypeError(text) from None
            return function(request)

        returned = function.__annotations__["return"]
        found = inspect.signature(record)
        model, *others = (p for n, p in found.parameters.items() if n != "example_args")
        examples = inspect.Parameter("example_args", inspect.Parameter.VAR_POSITIONAL)
        signature = found.replace(parameters=[model, examples, *others], return_annotation=returned)
        call.__signature__ = signature  # type: ignore[attr-defined]
        return call

    return decorate


@processor.pinned
@_asked(CompileRequest)
def compile(request: CompileRequest) -> CompiledProgram:  # noqa: A001 (the public API's name)
    """Compile a model under a setting of the Neuron compiler.

    `model` is a file of `HloModuleProto`, HLO text or ONNX, its bytes, a folder of AWS's compile cache,
    an onnx.ModelProto, a Module, or a function of arrays, which is traced with `example_args`, and
    `example_kwargs` by name; by its name it is "module:function". Dimensions of inputs that the model
    leaves open are those of `input_shapes` by the inputs' names, a first one `batch`; a function's
    arguments of these shapes are float32, or of `input_types`. `input_values` are inputs whose values
    are known when it is compiled, and are no inputs of the program; neither are the example arguments
    that `constants` names by position or name, whose arrays are weights. Of models that are not HLO
    softmax, norms, mean and var are spelled out in their steps (R7), on all of which casts act;
    `composites="kept"` keeps each as one instruction. `weights` (an .npz or .safetensors file, or a
    mapping of arrays, by the parameters' names or numbers) are constants in the place of these
    parameters; see `neuronsim.frontends.weights.with_weights`. An ONNX model may end at tensors that
    `outputs` names, in front of what cannot be compiled. The casts are those of `plan` (a Plan or its
    file) or `policy` (a Policy, the name of one or a file of one; rules on magnitudes need the
    `calibration` of `calibrate`), which exclude each other and flags that cast; else of `flags`
    (options of `neuronx-cc`, or of `neuron-cc` for the target "inf1") and of `auto_cast` ("none",
    "matmult", "all") and `auto_cast_type` ("bf16", "fp16", "tf32", "fp8_e4m3"), with the defaults of
    the release `sdk`. `target` is that of the flags, else "trn1". With `clean` false the plan is
    applied literally, to the same values. Where no flag is given that decides values, a folder's own
    flags act too, else those of NEURON_CC_FLAGS, which a warning says.
    What there is to say of the flags is in the setup's `messages`; the warnings are raised as
    FlagWarning. What `profile` decides, flags do not.
    `threads` is `set_num_threads`, for the whole process. The program runs on `replicas` emulated
    devices at once, which exchange arrays in its collectives. What the model breaks of AWS's documented
    constraints is in the program's `conformance`; `strict` makes it an error.
    Raises InvalidModel, UnsupportedOperator, UnsupportedType, NonconformingModel, InvalidFlag or
    InvalidArgument.
    """
    return compiled_for(request)


def compiled_for(request: CompileRequest, data: Any = None) -> CompiledProgram:
    """The same; what the model leaves open of its inputs may be that of data."""
    setup, decider = find_setup(request, request.profile)
    setup = replace(setup, replicas=checked_replicas(request.replicas), clean=request.clean)
    if request.threads is not None:
        processor.set_num_threads(request.threads)
    read = read_verified(request.model, request, data)
    module = read.module
    setup = replace(setup, messages=setup.messages + read.messages)
    if request.strict:
        _require_conformance(module, setup)
    settings = setup.settings
    if io_config := setup.given.get("--io-config"):
        check_io_config(io_config, module)
    downcasts = check_integer_downcasts(module, settings.integer_downcast, setup.release, setup.target)
    made = plan_of(module, decider, setup, request.calibration)
    texts = list(downcasts)
    if settings.saturate_infinity and not any(d.saturate_infinity for d in made.decisions.values()):
        texts.append(
            "--enable-saturate-infinity has no effect: it acts on transposes that run on the tensor "
            "engine (M8), and the plan has none"
        )
    found = [Message("warning", text) for text in texts]
    if setup.target.int8_note and any(d.reads_integers for d in made.decisions.values()):
        found.append(Message("info", setup.target.int8_note))
    setup = replace(setup, messages=(*setup.messages, *found))
    say(setup.messages)
    return CompiledProgram(module, made, setup, read.calls)


def _require_conformance(module: Module, setup: Setup) -> None:
    findings = conformance.check(module, setup.release, setup.target)
    if not findings:
        return
    groups = group(findings)
    listed = [f"{locations(g)}: {g[0].message} [{g[0].label}]" for g in groups]
    more = f"; and {len(listed) - LISTED} more kinds" if len(listed) > LISTED else ""
    raise NonconformingModel(
        f"{module.name!r} breaks what AWS documents for {setup.release} on {setup.target.name}: "
        f"{summary(findings)}: {'; '.join(listed[:LISTED])}{more}. `neuronsim lint` quotes "
        "the constraints and says what to do; without strict the model compiles"
    )


@processor.pinned
@_asked(CastRequest)
def lint(request: CastRequest) -> tuple[Finding, ...]:
    """What a model breaks of the constraints that AWS documents for a release, executable or not, and
    what its casts are known to break; see `compile` for the arguments.

    Raises InvalidModel for one that contradicts itself, InvalidArgument for an unknown release or
    target.
    """
    return lint_under_setup(request)[1]


def lint_under_setup(request: CastRequest, data: Any = None) -> tuple[Setup, tuple[Finding, ...]]:
    """The same, and the setup under which it was found; what the model leaves open is as in `data`."""
    setup, decider = find_setup(request)
    say(setup.messages)
    read = read_unverified(request.model, request, data)
    say(read.messages)
    module = read.module
    found = conformance.check(module, setup.release, setup.target)
    try:
        verify(module)
    except (UnsupportedOperator, UnsupportedType):  # the device may execute it
        return setup, found
    made = plan_of(module, decider, setup, request.calibration)
    of_casts = lint_casts(module, made, setup.target, request.calibration, profile=setup.profile)
    return setup, (*found, *of_casts)


@processor.pinned
@_asked(CastRequest)
def plan(request: CastRequest) -> Plan:
    """What a setting casts in a model, and why; see `compile` for the arguments. A plan that is given
    is checked.
    """
    return plan_with_model(request)[1]


def plan_with_model(request: CastRequest) -> tuple[Module, Plan]:
    """The same, and the model that it is of."""
    _, module, _, made = planned(request)
    return module, made


def planned(request: CastRequest, data: Any = None) -> tuple[Setup, Module, Policy | None, Plan]:
    """The setup of a request, its model, what that leaves open being as in `data`, the policy that
    decides the casts, if it is one, and its plan.
    """
    setup, decider = find_setup(request)
    say(setup.messages)
    module = read_model(request.model, request, data)
    made = plan_of(module, decider, setup, request.calibration)
    policy = None if isinstance(decider, Plan) else decider or _policy_of_flags(setup)
    return setup, module, policy, made


def check_calibration(calibration: Calibration | None, module: Module) -> None:
    """Raises InvalidArgument for what is no calibration, or one of another module."""
    if calibration is None:
        return
    if not isinstance(calibration, Calibration):
        raise InvalidArgument(f"calibration is what calibrate() gives, not {reprlib.repr(calibration)}")
    calibration.check(module)


def plan_of(
    module: Module, decider: Policy | Plan | None, setup: Setup, calibration: Calibration | None
) -> Plan:
    """The plan of the setup's flags, or that of the plan or policy in their place."""
    check_calibration(calibration, module)
    if isinstance(decider, Plan):
        check_plan(decider, module, setup.target)
        return decider
    return make_plan(module, decider or _policy_of_flags(setup), setup.target, calibration)


def _policy_of_flags(setup: Setup) -> Policy:
    settings, profile = setup.settings, setup.profile
    chosen = policy_of(settings, profile.auto_cast_all)
    # A3: on Trn1 the profile decides that transposes run on the tensor engine, in float32.
    on_engine = settings.compiler == "neuronx-cc" and profile.transpose == "tensor_engine"
    if settings.saturate_infinity and on_engine:
        chosen = replace(chosen, relayout=dtypes.float32)
    return chosen


def hinting(function: Callable[_P, _Result]) -> Callable[_P, _Result]:
    """The function, whose error for a keyword that it has not names the nearest one that it has."""
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*args: _P.args, **keywords: _P.kwargs) -> _Result:
        refuse_unknown(function.__name__, keywords, known)
        return function(*args, **keywords)

    return call


@processor.pinned
@hinting
def calibrate(
    model: Any,
    data: str | Path | Mapping[str, Any],
    *,
    progress: Callable[[int, int], None] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    input_values: Mapping[str, Any] | None = None,
    batch: int = 1,
    weights: Weights | None = None,
    outputs: Sequence[str] = (),
) -> Calibration:
    """What the values of every instruction are when the model runs in float32 on data: what rules of a
    policy that compare magnitudes need.

    `data` is as in `tune`; labels are not read. `progress` is told how many batches are done, and of
    how many. It runs instruction by instruction, slowly. Raises NeuronSimError for a model or data that
    do not fit.
    """
    _check_progress(progress)
    inputs = ModelInputs(
        input_shapes=input_shapes,
        input_values=input_values,
        batch=batch,
        weights=weights,
        outputs=outputs,
    )
    module, setup = read_model(model, inputs, data), resolve(CompilerSetting(auto_cast="none"))
    program = CompiledProgram(module, plan_of(module, None, setup, None), setup)
    dataset = load_dataset(data, input_names=program.model.input_names())
    reject_nan(dataset)
    given = batches(program.model, dataset)

    def met(inputs: Arrays) -> dict[str, ops.Statistics]:
        arrays = [inputs[name] for name in program.inputs]
        program(*arrays, observe="full")
        bound = program.bound(*arrays)
        own = {name: s for name, x in bound.items() if (s := ops.statistics(x)) is not None}
        return own | {n: ops.Statistics(**s) for n, s in program.diagnostics["statistics"].items()}

    def runs() -> Iterator[dict[str, ops.Statistics]]:
        for done, (inputs, _) in enumerate(given, start=1):
            found = met(inputs)
            filler = given.filler if done == len(given) else None
            if filler is not None:
                fill = met(filler.inputs)
                found |= {
                    n: s.without(fill[n], filler.copies, filler.size)
                    for n, s in found.items()
                    if n in fill
                }
            yield found
            if progress is not None:
                progress(done, len(given))

    return make_calibration(program.model, runs())


@processor.pinned
@hinting
def tune(
    model: Any,
    data: str | Path | Mapping[str, Any],
    labels: Any = None,
    *,
    metric: str | Callable[..., Any] | Sequence[str | Callable[..., Any]] | None = None,
    tolerance: float | None = None,
    criterion: Literal["absolute", "relative"] = "absolute",
    higher_is_better: bool | None = None,
    strategy: str = "pareto",
    rungs: Policy | Plan | str | Path | Sequence[Policy | Plan | str | Path] = (),
    base: str = "",
    fix: bool = False,
    types: Sequence[str] = (),
    low_inputs: bool = False,
    quantize: Recipe | str | Sequence[Recipe | str] = (),
    calibration: Calibration | None = None,
    max_trials: int | None = None,
    timeout: float | None = None,
    journal: str | Path | None = None,
    resume: bool = False,
    memory: int = MEMORY,
    executor: Executor | None = None,
    sdk: str = DEFAULT_SDK,
    target: str = "trn1",
    profile: Profile | None = None,
    threads: int | None = None,
    trips: Trips = None,
    progress: Progress | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    input_values: Mapping[str, Any] | None = None,
    batch: int = 1,
    weights: Weights | None = None,
    outputs: Sequence[str] = (),
) -> TuneResult:
    """Measure the vendor's ladder of settings on data, recommend a rung, and search plans beyond it.

    `data` is an `.npz` file or a mapping whose keys are the entry parameters' names (a sole parameter
    may be `x`), plus optional `labels`; the leading axis is samples, or, one more than the inputs have,
    runs of a model without batches. `metric` is a name of
    `tuning.metrics.METRICS`, a function of outputs and labels (or "module:function"), or several of
    these: the first decides, by default top1 with class numbers as labels, else relative_error. A
    setting is within the `tolerance` (default: 0.01; of sqnr 40, that in dB) if its metric is worse
    than float32's by no more; by the `criterion` "relative" that is over the baseline, unless it is
    zero. `higher_is_better` is of a function. The recommended rung has the lowest estimated time of
    those within the tolerance.

    `rungs` are policies and plans that are measured beside the ladder, `low_inputs` measures each rung
    also with inputs and outputs cast by the framework, and `quantize` schemes of INT8 ("minmax", see
    `casting.decisions.post_training.find_recipe`), alone and beside bfloat16, calibrated on the samples
    that decide. Where a faster rung fails, or is the `base`, the
    `strategy` ("ladder" for none, see `tuning.strategies`) searches what to keep in wider types: for
    the shortest time, or with `fix` for the fewest instructions; what is kept may have any of the
    `types` ("bf16", "fp16", "tf32", "fp8_e4m3"), which are rungs too. `max_trials` and `timeout`
    (seconds) end the search with the best so far, as Ctrl-C does. A `journal` keeps what is finished,
    which `resume` does not run again. `memory` bounds the bytes of trials that are run at one time;
    `executor`, of concurrent.futures, runs them elsewhere, each worker with one thread. `weights` are
    those of `compile`.
    Loops whose trips are not known from the module are estimated with `trips`, one number for all or by
    their names ("*" for all others). Raises NeuronSimError for a model or data that do not fit.
    """
    _check_progress(progress)
    inputs = ModelInputs(
        input_shapes=input_shapes,
        input_values=input_values,
        batch=batch,
        weights=weights,
        outputs=outputs,
    )
    module = read_model(model, inputs, data)
    check_calibration(calibration, module)  # which no rule on values may ask for
    dataset: Dataset = load_dataset(data, labels, module.input_names())
    reject_nan(dataset)

    found = resolve(CompilerSetting(auto_cast="none", sdk=sdk, target=None), profile)
    device = find_target(target)
    own = tuning_profile(profile, sdk, target)
    specs = _metrics(metric, dataset, criterion, higher_is_better)
    if isinstance(memory, bool) or not isinstance(memory, Integral) or memory < 1:
        raise InvalidArgument(
            f"memory is bytes (--memory MiB of them), an integer of at least 1, not {memory!r}"
        )
    if not (executor is None or hasattr(executor, "submit")):
        raise InvalidArgument(
            f"executor is one of concurrent.futures, or another that has its submit, not {executor!r}"
        )
    if resume and journal is None:
        raise InvalidArgument(
            "resume (--resume) goes on with the journal of a run before: say which, journal= "
            "(--journal FILE)"
        )
    workload = Workload(module, dataset, own, device.name, specs, memory)
    measured = ladder(module, found.release, device, own, _sequence(types))
    measured += [own_rung(r, module, device, calibration) for r in _sequence(rungs)]
    if recipes := [find_recipe(r) for r in _sequence(quantize)]:
        samples, build = deciding_samples(workload), functools.partial(compile, auto_cast="none")
        measured += quantized_rungs(module, samples, recipes, measured, device, build)
    seed = deciding_seed(module, own, [r.plan for r in measured])
    question = Question(
        workload=replace(workload, seed=seed),
        rungs=with_framework_types(measured) if low_inputs else measured,
        target=device,
        release=release_words(found.release, device.compiler),
        tolerance=specs[0].metric.usual_tolerance if tolerance is None else tolerance,
        strategy=strategy,
        base=base,
        fix=fix,
        types=types,
        trips=trips,
        max_trials=max_trials,
        timeout=timeout,
    )
    kept = None if journal is None else Journal(journal, question.workload.key, resume=resume)
    say(resolve(CompilerSetting(sdk=sdk, target=target), profile).messages)
    before = processor.num_threads()
    try:
        usual = before if executor is None else 1  # one thread a worker
        processor.set_num_threads(usual if threads is None else threads)
        result = tune_workload(question, journal=kept, progress=progress, executor=executor)
        return replace(result, model=name_of(model, module))
    finally:
        processor.set_num_threads(before)
        if kept is not None:
            kept.close()


def _sequence(x: Any) -> Sequence[Any]:
    return [x] if isinstance(x, str | Path | Policy | Plan | Recipe) else list(x)


def _metrics(
    metric: Any, dataset: Dataset, criterion: Any, higher_is_better: bool | None
) -> tuple[MetricSpec, ...]:
    """The metrics that are asked for, of which the first decides, or the usual one."""
    if metric is None:
        if dataset.labels is not None and dataset.labels.dtype.kind not in "iu":
            raise InvalidData(
                f"{dataset.source}: labels are class numbers for the metric top1, not "
                f"{dataset.labels.dtype}: say which metric reads them, or leave them out"
            )
        metric = "relative_error" if dataset.labels is None else "top1"
    is_one = isinstance(metric, str) or callable(metric) or not isinstance(metric, Iterable)
    names = [metric] if is_one else list(metric)
    better = None if higher_is_better is None else ("higher" if higher_is_better else "lower")
    specs = []
    for name in names:
        known = isinstance(name, str) and ":" not in name
        specs.append(MetricSpec(name, criterion, None if known else better))
        specs[-1].metric  # noqa: B018 (raises for a metric that there is not)
    if better is not None and all(s.better is None for s in specs):
        raise InvalidArgument(
            "higher_is_better (--lower-is-better) is of a function of one's own: of "
            f"{', '.join(map(str, names))} it is known which is better"
        )
    return tuple(specs)


def _check_progress(progress: Any) -> None:
    if not (progress is None or callable(progress)):
        raise InvalidArgument(f"progress is a function that is told how far it is, not {progress!r}")


@processor.pinned
def export_onnx(model: Any, program: CompiledProgram, output: str | Path) -> None:
    """Write an ONNX model with the casts of the program that `compile` made of it: Cast nodes to the
    plan's types and back at the borders of its nodes, and QuantizeLinear and DequantizeLinear in front
    of the products that read bytes, which any runtime of ONNX runs.

    Raises InvalidArgument for a model that is not ONNX's, UnsupportedType for casts to a format that
    ONNX does not have (tfloat32), InaccessibleFile if the file cannot be written.
    """
    if not is_onnx(model):
        raise InvalidArgument(
            f"export_onnx writes the casts into a model of ONNX, not {kind_of(model)}"
        )
    if not isinstance(program, CompiledProgram):
        raise InvalidArgument(f"export_onnx takes the program of compile, not {reprlib.repr(program)}")
    proto_, folder = read_onnx(model)
    original = inline_calls(program.model)
    check_compiled_from(proto_, original)
    decisions = program.plan.decisions
    quantized = quantize_nodes(
        proto_, original, decisions, folder
    )  # before the casts: these read bytes
    biases = {d.bias for d in decisions.values()} - {""}  # that int32 sums take (Q7)
    entry = original.entry_computation
    whole = {i.metadata.op_name for i in entry.instructions if i.name in biases}
    planned = with_casts(quantized, original, program.module, whole)
    write_onnx(planned, output, folder)


@processor.pinned
def load(
    file: files.File,
    mmap_mode: files.MmapMode | None = None,
    allow_pickle: bool = False,
    *,
    dtype: DTypeLike | None = None,
) -> CompiledProgram | Array | files.NpzFile:
    """The program that `CompiledProgram.save` wrote, or the arrays of a `.npy` or `.npz` file, for
    which the further arguments are: see `neuronsim.arrays.files.load`.

    Raises InvalidModel for a damaged program, InvalidData for damaged arrays.
    """
    if not (isinstance(file, str | os.PathLike) or hasattr(file, "read")):
        raise InvalidArgument(
            f"load opens a saved program (.nsim), a .npy or a .npz file, not {kind_of(file)}"
        )
    if isinstance(file, str | os.PathLike) and _is_program(Path(file)):
        return load_program(os.fspath(file))
    return files.load(file, mmap_mode, allow_pickle, dtype=dtype)


def _is_program(path: Path) -> bool:
    if path.suffix == ".nsim":
        return True
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            return "program.json" in archive.namelist()
    except files.DAMAGED:  # arrays, or of neither kind, which files.load says
        return False
