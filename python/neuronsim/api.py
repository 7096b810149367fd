"""The public functions: compile, plan, tune, load. The only place that joins the floors below.

>>> program = compile("examples/digits/model.hlo.pb", auto_cast="none")  # doctest: +SKIP
>>> program(x=images).shape  # doctest: +SKIP
(64, 10)
"""

from __future__ import annotations

import json
import os
import struct
import threading
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from neuronsim import dtypes, ops, processor
from neuronsim.arrays.array import Array, asarray
from neuronsim.casting.apply import apply_plan
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
    InvalidArgument,
    InvalidData,
    InvalidFlag,
    InvalidModel,
    NeuronSimError,
    NonconformingModel,
    UnsupportedOperator,
    UnsupportedType,
    nearest,
)
from neuronsim.executor.compile import compile_module
from neuronsim.executor.diagnostics import OBSERVE, Counts, Observe
from neuronsim.executor.replicas import run_replicas
from neuronsim.executor.run import (
    Program,
    StepTiming,
    on_this_processor,
    run_program,
    step_timings,
)
from neuronsim.executor.steps import TupleValue, Value
from neuronsim.hlo import conformance, proto
from neuronsim.hlo.cache import cached_flags
from neuronsim.hlo.conformance import Finding
from neuronsim.hlo.module import Module
from neuronsim.hlo.verify import verify, verify_replicas
from neuronsim.profiles import (
    Profile,
    RoundingState,
    check_seed,
    default_profile,
    default_seed,
    in_force,
)
from neuronsim.targets import SAME_CORE, Release, Target, find_release, find_target
from neuronsim.tuning.dataset import (
    DAMAGED_ZIP,
    Dataset,
    batch_count,
    batches,
    load_dataset,
    reject_nan,
)
from neuronsim.tuning.ladder import LADDER, Progress, RungResult, TuneResult, measure_rungs

DEFAULT_SDK = "2.26"
SAVED_VERSION = 2
FLAGS_VARIABLE = "NEURON_CC_FLAGS"
MAX_REPLICAS = 256
LISTED = 10  # kinds of findings that an error spells out


@dataclass(frozen=True)
class Setup:
    """The records that `compile` freezes into a program, beside the plan."""

    settings: CastSettings
    release: Release
    target: Target
    profile: Profile
    without_effect: tuple[str, ...] = ()
    replicas: int = 1
    given: Mapping[str, str] = field(default_factory=dict)  # the flags with their values
    messages: tuple[Message, ...] = ()
    clean: bool = True  # `apply_plan`'s

    @property
    def compiler(self) -> str:
        """The release and the compiler whose flags count, in words."""
        if self.settings.compiler == "neuron-cc":
            return f"SDK {self.release.sdk}, neuron-cc"  # whose versions are not in RELEASES
        return str(self.release)


class CompiledProgram:
    """A model compiled under one setting. Call it with arrays, by position or by name."""

    def __init__(self, model: Module, plan: Plan, setup: Setup) -> None:
        self._model = model
        self._plan = plan
        self._setup = setup
        verify_replicas(model, setup.replicas)
        # Each convert draws words of its own (S2), and a transpose may compute (A3).
        moves = setup.profile.rounding != "stochastic" and setup.profile.transpose == "move_bits"
        self._module = apply_plan(model, plan, clean=setup.clean and moves)
        self._program: Program = compile_module(self._module, setup.profile, setup.target)
        self._diagnostics = Counts().to_dict("off")
        self._rounding = RoundingState(default_seed() if self._program.draws else 0)
        self._lock = threading.Lock()  # of _rounding: no two calls share words
        # The program's choices decide the inputs' bits, not those of the eager arrays around a call; to
        # nearest, since no instruction rounds them.
        self._input_profile = setup.profile.replace(rounding="nearest_even")

    @property
    def inputs(self) -> dict[str, ops.ArrayType]:
        """The entry parameters' names and types, those of one replica."""
        types = (t for _, t in self._program.inputs)
        return dict(zip(self._model.input_names(), types, strict=True))

    @property
    def outputs(self) -> tuple[ops.ArrayType, ...]:
        """The types of the results, those of one replica."""
        return tuple(s.type for s in self._module.root.shape.arrays())

    @property
    def model(self) -> Module:
        """The module as it was given."""
        return self._model

    @property
    def module(self) -> Module:
        """The planned module: the model with its converts, as it is executed."""
        return self._module

    @property
    def plan(self) -> Plan:
        """Which types each instruction uses, and why."""
        return self._plan

    @property
    def setup(self) -> Setup:
        """The settings, release, target and profile that the program was compiled with."""
        return self._setup

    @cached_property
    def conformance(self) -> tuple[Finding, ...]:
        """What the model breaks of the constraints that AWS documents for its release and target."""
        return conformance.check(self._model, self._setup.release, self._setup.target)

    @property
    def diagnostics(self) -> dict[str, Any]:
        """What the last call met: for each category how many elements of which instructions.

        Every call counts 64-bit integers that C7 truncated (`int64_truncated`) and elements that the
        profile's `activation="neuron_range"` made NaN (`outside_range`, E3); one with
        `observe="counts"` also `overflow`, `underflow`, `division_by_zero`, `nan_origin` and
        `saturated`; one with `observe="full"` has `statistics` of the results of each instruction and
        the first elements at which instructions made Inf or NaN (`origins`) as well. What the folding
        of constants met is part of each call's.
        """
        return self._diagnostics

    @property
    def constant_diagnostics(self) -> dict[str, dict[str, int]]:
        """What the folding of constants met, by category and instruction."""
        return self._program.of_constants.to_dict("counts")

    @property
    def opcodes(self) -> Mapping[str, str]:
        """The HLO opcodes of the instructions that `diagnostics` and `timings` name."""
        return self._program.opcodes

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that the program takes beside its inputs and results: `temporaries` of each run at one
        time, and for good `constants` and what is `packed` of them.
        """
        return self._program.memory

    @property
    def weight_bytes(self) -> int:
        """Bytes of the constants as the program keeps them."""
        return self._program.constant_bytes

    def __call__(
        self,
        *arrays: Any,
        seed: int | None = None,
        observe: Observe = "off",
        donate: bool = False,
        **named: Any,
    ) -> Array | tuple[Any, ...]:
        """Run the program; returns an Array, or a tuple where the module's root is one.

        Compiled for N replicas, N above 1, it takes arrays with a leading axis of N, and gives such; an
        input without that axis is the same for every replica. `diagnostics` is then the sum over them.

        Under stochastic rounding `seed` starts its random words anew; without it they go on from the
        last call's, so that no two calls share any (S2). `observe` says what `diagnostics` then holds;
        the values are the same. "full" runs instruction by instruction, slowly.
        With `donate` the inputs that the module's `input_output_alias` names (`donate_argnums` of
        `jax.jit`) may be overwritten, and results take their memory: a cache is updated in place.
        Raises InvalidData for inputs that do not fit and InvalidArgument for another `observe`, and for
        `donate` with one or with several replicas.
        """
        if donate and (observe != "off" or self._setup.replicas > 1):
            raise InvalidArgument("donate is for runs of one replica that are not observed")
        if observe not in OBSERVE:
            raise InvalidArgument(
                f"observe cannot be {observe!r}{nearest(str(observe), OBSERVE)}: it is one of "
                + ", ".join(OBSERVE)
            )
        counts = Counts()
        inputs = self._bind(arrays, named)
        with self._lock:
            state = self._rounding if seed is None else RoundingState(check_seed(seed))
            self._rounding = replace(state, calls=state.calls + 1)
        if self._setup.replicas == 1:
            value = run_program(
                self._program,
                inputs[0],
                counts,
                seed=state.seed,
                call=state.calls,
                observe=observe,
                donate=donate,
            )
        else:
            value = _stacked(run_replicas(self._program, inputs, counts, state, observe))
        self._diagnostics = counts.to_dict(observe)
        return _wrap(value)

    def timings(self, *arrays: Any, repeats: int = 5, **named: Any) -> tuple[StepTiming, ...]:
        """How long each step of the program takes with these inputs, in the order in which they run:
        the median of `repeats` runs after one that is not timed. A loop or conditional is one step. The
        runs count as no calls: random words and `diagnostics` stay.

        Raises InvalidArgument for fewer than one repeat and for a program of several replicas, and
        InvalidData for inputs that do not fit.
        """
        if repeats < 1:
            raise InvalidArgument(f"repeats must be at least 1, not {repeats}")
        if self._setup.replicas > 1:
            raise InvalidArgument("replicas wait for each other: their steps' times are not their own")
        (inputs,), state = self._bind(arrays, named), self._rounding
        runs: list[list[int]] = []
        for _ in range(repeats + 1):
            runs.append([])
            run_program(self._program, inputs, seed=state.seed, call=state.calls, times=runs[-1])
        return step_timings(on_this_processor(self._program), runs[1:])

    def _bind(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[dict[str, ops.Bits]]:
        """The inputs of each replica."""
        names = list(self.inputs)
        if len(arrays) > len(names):
            raise InvalidData(f"the model takes {len(names)} inputs, {len(arrays)} were given")
        given: dict[str, Any] = dict(zip(names, arrays, strict=False))
        for name, value in named.items():
            if name not in names:
                listed = ", ".join(names)
                raise InvalidData(
                    f"no input is named {name!r}{nearest(name, names)}; there are {listed}"
                )
            if name in given:
                raise InvalidData(f"input {name!r} is given twice")
            given[name] = value
        missing = [n for n in names if n not in given]
        if missing:
            raise InvalidData(f"inputs missing: {', '.join(missing)}")
        replicas = self._setup.replicas
        bound: list[dict[str, ops.Bits]] = [{} for _ in range(replicas)]
        pairs = zip(self._program.inputs, names, strict=True)
        with in_force(self._input_profile):
            for (parameter, expected), name in pairs:
                array = asarray(given[name])
                if array.dtype is not expected.dtype:
                    array = _convert_input(array, expected, name)
                own = array.shape == (replicas, *expected.dims) and replicas > 1
                if array.shape != expected.dims and not own:
                    axis = f", or an axis of {replicas} replicas before that" if replicas > 1 else ""
                    raise InvalidData(
                        f"input {name!r} is {array.bits.type}, the model takes {expected}{axis}"
                    )
                for n, inputs in enumerate(bound):
                    inputs[parameter] = (
                        ops.Bits(array.bits.data[n, ...], array.dtype) if own else array.bits
                    )
        return bound

    def save(self, path: str | Path) -> None:
        """Write the program as a `.nsim` file that `load` reads without the model.

        Raises InvalidArgument if the file cannot be written.
        """
        setup = self._setup
        header = {
            "version": SAVED_VERSION,
            "settings": asdict(setup.settings),
            "release": asdict(setup.release),
            "target": setup.target.name,
            "profile": setup.profile.to_dict(),
            "without_effect": list(setup.without_effect),
            "replicas": setup.replicas,
            "clean": setup.clean,
        }
        try:
            with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
                for name, data in (
                    ("program.json", json.dumps(header, indent=1).encode()),
                    ("plan.json", self._plan.to_json().encode()),
                    ("model.hlo.pb", proto.to_bytes(self._model)),
                ):
                    # A fixed date: the same program gives the same file.
                    archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
        except OSError as error:
            raise InvalidArgument(f"cannot write {str(path)!r}: {error.strerror}") from error


def _stacked(values: Sequence[Value]) -> Value:
    """The values of all replicas as one, with a leading axis."""
    first = values[0]
    if isinstance(first, ops.Bits):
        return ops.Bits(np.stack([v.data for v in values if isinstance(v, ops.Bits)]), first.dtype)
    parts = zip(*(v.elements for v in values if isinstance(v, TupleValue)), strict=True)
    return TupleValue(tuple(_stacked(p) for p in parts))


def _checked_replicas(replicas: Any) -> int:
    is_number = isinstance(replicas, int) and not isinstance(replicas, bool)
    if not is_number or not 1 <= replicas <= MAX_REPLICAS:
        raise InvalidArgument(f"replicas is an integer from 1 to {MAX_REPLICAS}, not {replicas!r}")
    return int(replicas)


def _wrap(value: Value) -> Array | tuple[Any, ...]:
    if isinstance(value, TupleValue):
        return tuple(_wrap(v) for v in value.elements)
    return Array(value)


def _convert_input(array: Array, expected: ops.ArrayType, name: str) -> Array:
    """Data may be integers of any width where the model takes floats, and wider or narrower floats."""
    kinds = (array.dtype.kind, expected.dtype.kind)
    integers = ("signed", "unsigned")
    if kinds[1] == "float" and kinds[0] in ("float", *integers, "bool"):
        return array.astype(expected.dtype)
    if kinds[0] in integers and kinds[1] in integers:
        info = np.iinfo(expected.dtype.numpy)
        data = np.asarray(array)
        if data.size == 0 or (int(data.min()) >= info.min and int(data.max()) <= info.max):
            return array.astype(expected.dtype)
        raise InvalidData(f"input {name!r} has values outside {expected.dtype.name}")
    raise InvalidData(f"input {name!r} is {array.dtype.name}, the model takes {expected.dtype.name}")


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
    setup = replace(setup, replicas=_checked_replicas(replicas), clean=clean)
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


def load(path: str | Path) -> CompiledProgram:
    """The program that `CompiledProgram.save` wrote. Raises InvalidModel for any other file."""
    try:
        with zipfile.ZipFile(path) as archive:
            data = proto.mapped(Path(path))
            header = json.loads(bytes(_member(archive, "program.json", data)))
            plan_text = bytes(_member(archive, "plan.json", data)).decode()
            model = _member(archive, "model.hlo.pb", data)
        if header["version"] != SAVED_VERSION:
            raise InvalidModel(
                f"{path} has version {header['version']}, this neuronsim reads {SAVED_VERSION}: "
                "compile the model again"
            )
        setup = Setup(
            CastSettings(**_tuples(header["settings"])),
            Release(**header["release"]),
            find_target(header["target"]),
            Profile(**header["profile"]),
            tuple(header["without_effect"]),
            _checked_replicas(header["replicas"]),
            clean=bool(header["clean"]),
        )
        saved_plan = Plan.from_json(plan_text)
    except OSError as error:
        raise InvalidModel(f"cannot read {str(path)!r}: {error.strerror}") from error
    except (*DAMAGED_ZIP, KeyError, TypeError, NeuronSimError) as error:
        raise InvalidModel(f"{path} is not a program that neuronsim saved: {error}") from error
    return CompiledProgram(read_model(model), saved_plan, setup)


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a record from JSON, which has lists for tuples."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in {**fields}.items()}


def _member(archive: zipfile.ZipFile, name: str, file: memoryview) -> memoryview:
    """A member of a saved program in the mapped file: save stores it as it is, so that its weights are
    read from there.
    """
    info = archive.getinfo(name)
    local = info.header_offset  # of its header of 30 bytes, that its name and extra fields follow
    lengths = struct.unpack("<HH", file[local + 26 : local + 30])
    begin = local + 30 + sum(lengths)
    data = file[begin : begin + info.file_size]
    is_stored = info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size
    if not is_stored or len(data) != info.file_size or zlib.crc32(data) != info.CRC:
        raise InvalidModel(f"its member {name!r} is not as save wrote it")
    return data


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
