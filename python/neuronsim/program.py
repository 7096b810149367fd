"""A compiled program: its calls, what it met, and the `.nsim` file that holds it."""

from __future__ import annotations

import dataclasses
import io
import json
import threading
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np

from neuronsim import json_documents, ops, records
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.files import DAMAGED
from neuronsim.casting import fields
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.decisions.checks import check_plan
from neuronsim.casting.flags import ALL_INTEGER_DOWNCASTS, CastSettings
from neuronsim.casting.plans.plan import Plan
from neuronsim.errors import (
    InaccessibleFile,
    InvalidArgument,
    InvalidData,
    InvalidModel,
    NeuronSimError,
    counted,
    nearest,
)
from neuronsim.executor.binding import as_input, as_it_is
from neuronsim.executor.compile import compile_module
from neuronsim.executor.diagnostics import OBSERVE, Diagnostics, Listener, Observe
from neuronsim.executor.memory import address
from neuronsim.executor.replicas import run_replicas
from neuronsim.executor.run import StepTiming, on_this_processor, run_schedule, step_timings
from neuronsim.executor.schedule import Schedule
from neuronsim.executor.steps import TupleValue, Value
from neuronsim.frontends.call_documents import from_document, to_document
from neuronsim.frontends.calls import Calls
from neuronsim.frontends.weights import weights_hint
from neuronsim.hlo import conformance, proto
from neuronsim.hlo.array_sources import literals
from neuronsim.hlo.constant_arrays import weight_bytes
from neuronsim.hlo.findings import Finding
from neuronsim.hlo.module import Module, TupleShape
from neuronsim.hlo.verify import verify, verify_replicas
from neuronsim.processor import pinned
from neuronsim.profiles import Profile, RoundingState, check_seed, default_seed, in_force
from neuronsim.records import is_int
from neuronsim.setups import Setup
from neuronsim.tables import html_table
from neuronsim.targets import Release, find_release, find_target
from neuronsim.whole_files import open_regular, replacing

SAVED_VERSION = 3
_CALLS = "calls.json"  # of a program of a function: how its arguments and results lie in trees
MAX_REPLICAS = 256


@pinned
class CompiledProgram:
    """A model compiled under one setting. Call it with arrays, by position or by name."""

    def __init__(self, model: Module, plan: Plan, setup: Setup, calls: Calls | None = None) -> None:
        self._model = model
        self._calls = calls
        self._plan = plan
        self._setup = setup
        verify_replicas(model, setup.replicas)
        # Each convert draws words of its own (S2), and a transpose may compute (A3).
        moves = setup.profile.rounding != "stochastic" and setup.profile.transpose == "move_bits"
        clean = setup.clean and moves
        self._module = apply_plan(model, plan, clean, setup.profile.requantize)
        self._schedule: Schedule = compile_module(self._module, setup.profile, setup.target)
        self._met: tuple[Diagnostics, Observe] = (Diagnostics(), "off")  # of the last call
        self._rounding = RoundingState(default_seed() if self._schedule.draws else 0)
        self._lock = threading.Lock()  # of _rounding: no two calls share words
        # The program's choices decide the inputs' bits, not those of the eager arrays around a call; to
        # nearest, since no instruction rounds them.
        self._input_profile = setup.profile.replace(rounding="nearest_even")

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle, and a copy, is what `save` writes: packed weights are this processor's."""
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            self.write(archive)
        return _unpickled, (content.getvalue(),)

    def __repr__(self) -> str:
        about = "; ".join(value for _, value in self._summary())
        return f"<CompiledProgram {self._model.name!r}: {about}>"

    def _repr_html_(self) -> str:
        return html_table(f"CompiledProgram {self._model.name}", self._summary())

    def _summary(self) -> list[tuple[str, str]]:
        """What goes in and comes out, under which casts, and how large it is."""
        setup, flat = self._setup, self._module
        count = sum(len(c.instructions) for c in flat.computations)
        replicas = f", {setup.replicas} replicas" if setup.replicas > 1 else ""
        given = ", ".join(f"{name} {t}" for name, t in self.inputs.items())
        return [
            ("inputs and results", f"{given} -> {', '.join(map(str, self.outputs))}"),
            ("casts", f"{setup.casts} ({setup.compiler}, {setup.target.name}{replicas})"),
            ("size", f"{counted(count, 'instruction')}, {self.weight_bytes / 1e6:.3g} MB of weights"),
        ]

    @property
    def inputs(self) -> dict[str, ops.ArrayType]:
        """The entry parameters' names and types, those of one replica."""
        return {name: t for name, (_, t) in self._numbered.items()}

    @cached_property
    def _numbered(self) -> dict[str, tuple[str, ops.ArrayType]]:
        """The parameters as the schedule has them, by the names that data may use."""
        return dict(zip(self._model.input_names(), self._schedule.inputs, strict=True))

    @cached_property
    def _known_inputs(self) -> dict[str, str]:
        return self._model.known_inputs()

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
        met, observe = self._met
        return met.to_dict(observe)

    @property
    def constant_diagnostics(self) -> dict[str, dict[str, int]]:
        """What the folding of constants met, by category and instruction."""
        return self._schedule.of_constants.to_dict("counts")

    @property
    def opcodes(self) -> Mapping[str, str]:
        """The HLO opcodes of the instructions that `diagnostics` and `timings` name."""
        return self._schedule.opcodes

    @property
    def python_steps(self) -> tuple[str, ...]:
        """The instructions that a call runs in Python, since the core has no step for them: each costs
        some 50 us and holds Python's lock. `opcodes` has what they are.
        """
        return on_this_processor(self._schedule).recording().python

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that the program takes beside its inputs and results: `temporaries` of each run at one
        time, and for good `constants` and what is `packed` of them, and `model`, the model's literals
        that are none of these: `save`, observed runs and other instruction sets need them.
        """
        kept = {address(c.data) for c in self._schedule.constants.values()}
        arrays = {
            address(x.data): x.data.nbytes
            for module in (self._model, self._module)
            for i in module.instructions
            for x in literals(i.attributes.get("literal", ()))
        }
        own = sum(size for place, size in arrays.items() if place not in kept)
        return {**self._schedule.memory, "model": own}

    @cached_property
    def weight_bytes(self) -> int:
        """Bytes of the weights: of the model's constants of at least one dimension, each once in each
        type in which the program reads it. What it takes here is in `memory`.
        """
        return weight_bytes(self._module)

    def __call__(
        self,
        *arrays: Any,
        seed: int | None = None,
        observe: Observe = "off",
        donate: bool = False,
        **named: Any,
    ) -> Any:
        """Run the program; returns an Array, or a tuple where the module's root is one. A program of a
        function takes the function's arguments and returns what it returns, with Arrays as leaves; its
        inputs one by one, by position or by name, do too.

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
        result = self._run(arrays, named, seed=seed, observe=observe, donate=donate)
        if self._calls is None:
            return result
        return self._calls.rebuild(result if isinstance(result, tuple) else (result,))

    def results(
        self, *arrays: Any, seed: int | None = None, observe: Observe = "off", **named: Any
    ) -> Any:
        """The same without `donate`, of a function too as the module has them: an Array, or a tuple of
        Arrays in the place of what the function returns.
        """
        return self._run(arrays, named, seed=seed, observe=observe)

    def _run(
        self,
        arrays: Sequence[Any],
        named: Mapping[str, Any],
        *,
        seed: int | None,
        observe: Observe,
        donate: bool = False,
    ) -> Array | tuple[Any, ...]:
        if donate and (observe != "off" or self._setup.replicas > 1):
            raise InvalidArgument("donate is for runs of one replica that are not observed")
        if observe not in OBSERVE:
            raise InvalidArgument(
                f"observe cannot be {observe!r}{nearest(str(observe), OBSERVE)}: it is one of "
                + ", ".join(OBSERVE)
            )
        diagnostics = Diagnostics()
        inputs = self._bind(arrays, named)
        with self._lock:
            state = self._rounding if seed is None else RoundingState(check_seed(seed))
            self._rounding = RoundingState(state.seed, state.calls + 1)
        if self._setup.replicas == 1:
            value = run_schedule(
                self._schedule,
                inputs[0],
                diagnostics,
                seed=state.seed,
                call=state.calls,
                observe=observe,
                donate=donate,
            )
        else:
            value = _stacked(run_replicas(self._schedule, inputs, diagnostics, state, observe))
        self._met = (diagnostics, observe)
        return _wrap(value)

    def listen(self, listener: Listener, *arrays: Any, **named: Any) -> Array | tuple[Any, ...]:
        """Run instruction by instruction and tell a listener of each: its name, the trip counts of the
        loops around it ("3,0"; "" outside) and its arrays, whose memory is reused afterwards. What is
        folded at compile time is not run. It counts as no call: random words and `diagnostics` stay.

        Raises InvalidArgument for a program of several replicas, InvalidData for wrong inputs.
        """
        if self._setup.replicas > 1:
            raise InvalidArgument("listen is for programs of one replica")
        (inputs,), state = self._bind(arrays, named), self._rounding
        told = Diagnostics(listener=listener)
        return _wrap(run_schedule(self._schedule, inputs, told, seed=state.seed, call=state.calls))

    def timings(self, *arrays: Any, repeats: int = 5, **named: Any) -> tuple[StepTiming, ...]:
        """How long each step of the program takes with these inputs, in the order in which they run:
        the median of `repeats` runs after one that is not timed. A loop or conditional is one step; an
        instruction that repeats an earlier one is none. The runs count as no calls: random words and
        `diagnostics` stay.

        Raises InvalidArgument for fewer than one repeat and for a program of several replicas, and
        InvalidData for inputs that do not fit.
        """
        if not is_int(repeats):
            raise InvalidArgument(f"repeats is an integer of at least 1, not {repeats!r}")
        if repeats < 1:
            raise InvalidArgument(f"repeats must be at least 1, not {repeats}")
        if self._setup.replicas > 1:
            raise InvalidArgument("replicas wait for each other: their steps' times are not their own")
        (inputs,), state = self._bind(arrays, named), self._rounding
        runs: list[list[int]] = []
        for _ in range(repeats + 1):
            runs.append([])
            run_schedule(self._schedule, inputs, seed=state.seed, call=state.calls, times=runs[-1])
        return step_timings(on_this_processor(self._schedule), runs[1:])

    def bound(self, *arrays: Any) -> dict[str, ops.Bits]:
        """The inputs as the program reads them, in their types, by the names of its parameters. Raises
        InvalidArgument for a program of several replicas, InvalidData for wrong inputs.
        """
        if self._setup.replicas > 1:
            raise InvalidArgument("bound is for programs of one replica")
        return self._bind(arrays, {})[0]

    def _bind(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[dict[str, ops.Bits]]:
        """The inputs of each replica."""
        replicas = self._setup.replicas
        plain = self._plain_inputs
        if plain and len(arrays) == len(plain) and not named and replicas == 1:
            known = ((p, as_it_is(x, t)) for x, (p, t) in zip(arrays, plain, strict=True))
            found = {p: bits for p, bits in known if bits is not None}
            if len(found) == len(plain):
                return [found]
        given = self._given(arrays, named)
        bound: list[dict[str, ops.Bits]] = [{} for _ in range(replicas)]
        others = []
        for name, (parameter, expected) in self._numbered.items():
            bits = as_it_is(given[name], expected)
            if bits is None:
                others.append((name, parameter, expected))
            else:
                for inputs in bound:
                    inputs[parameter] = bits
        if not others:
            return bound
        with in_force(self._input_profile):
            for name, parameter, expected in others:
                array = as_input(given[name], expected, name)
                own = array.shape == (replicas, *expected.dims) and replicas > 1
                if array.shape != expected.dims and not own:
                    axis = ""
                    if replicas > 1:
                        axis = f", or an axis of {replicas} replicas before that"
                    elif array.shape and len(array) and array.shape[1:] == expected.dims[1:]:
                        axis = f": a model that leaves this open is compiled with batch={len(array)}"
                    raise InvalidData(
                        f"input {name!r} is {array.bits.type}, the model takes {expected}{axis}"
                    )
                for n, inputs in enumerate(bound):
                    inputs[parameter] = (
                        ops.Bits(array.bits.data[n, ...], array.dtype) if own else array.bits
                    )
        return bound

    @cached_property
    def _plain_inputs(self) -> tuple[tuple[str, ops.ArrayType], ...]:
        """The parameters, if a call gives one array for each of them."""
        is_plain = self._calls is None or self._calls.is_plain
        return tuple(self._numbered.values()) if is_plain else ()

    def _given(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a call gives for each input."""
        names = self._numbered
        if self._calls is None:  # None is no input: a module has optional arguments
            numbered = dict(enumerate(x for x in arrays if x is not None))
            named = {name: x for name, x in named.items() if x is not None}
        else:
            numbered, named = self._calls.bind(arrays, named)
        if len(numbered) > len(names):
            raise InvalidData(
                f"the model takes {counted(len(names), 'input')}, {len(numbered)} were given"
            )
        given = {name: numbered[n] for n, name in enumerate(names) if n in numbered}
        for key, value in named.items():
            name = self._known_inputs.get(key)
            if name is None:
                listed = ", ".join(names)
                raise InvalidData(
                    f"no input is named {key!r}{nearest(key, list(names))}; there are {listed}"
                )
            if name in given:
                raise InvalidData(f"input {name!r} is given twice")
            given[name] = value
        missing = [n for n in names if n not in given]
        if missing:
            hint = weights_hint(self._model, missing)
            raise InvalidData(f"inputs missing: {', '.join(missing)}{hint}")
        return given

    def save(self, path: str | Path) -> None:
        """Write the program as a `.nsim` file that `load` reads without the model. A file that is there
        stays as it is until the new one is whole. A program of a function is called as before, where
        its arguments and results are tuples, named ones too, lists and dicts, else with its inputs one
        by one.

        Raises InaccessibleFile if the file cannot be written.
        """
        with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            self.write(archive)

    def write(self, archive: zipfile.ZipFile) -> None:
        """Write the program's members into an archive, beside what else is in it."""
        header = _header(self._setup)
        members: tuple[tuple[str, bytes], ...] = (
            ("program.json", json.dumps(header, indent=1).encode()),
            ("plan.json", self._plan.to_json().encode()),
            ("model.hlo.pb", proto.to_bytes(self._model)),
        )
        calls = None if self._calls is None else to_document(self._calls, _count(self._model))
        if calls is not None:
            members += ((_CALLS, json.dumps(calls, indent=1, allow_nan=False).encode()),)
        for name, data in members:
            # A fixed date: the same program gives the same file.
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)


def _stacked(values: Sequence[Value]) -> Value:
    """The values of all replicas as one, with a leading axis."""
    first = values[0]
    if isinstance(first, ops.Bits):
        return ops.Bits(np.stack([v.data for v in values if isinstance(v, ops.Bits)]), first.dtype)
    parts = zip(*(v.elements for v in values if isinstance(v, TupleValue)), strict=True)
    return TupleValue(tuple(_stacked(p) for p in parts))


def checked_replicas(replicas: Any) -> int:
    """A number of replicas that a program can have; raises InvalidArgument for another."""
    if not is_int(replicas, 1, MAX_REPLICAS):
        raise InvalidArgument(f"replicas is an integer from 1 to {MAX_REPLICAS}, not {replicas!r}")
    return int(replicas)


def _wrap(value: Value) -> Array | tuple[Any, ...]:
    if isinstance(value, TupleValue):
        return tuple(_wrap(v) for v in value.elements)
    return Array(value)


@pinned
def load(path: str | Path) -> CompiledProgram:
    """The program that `CompiledProgram.save` wrote. Raises InvalidModel for any other file.

    The program keeps copies: what becomes of the file later does not matter.
    """
    try:
        with open_regular(path) as file:
            return _read(file, path)
    except InaccessibleFile as error:
        raise InvalidModel(str(error)) from error


def _unpickled(content: bytes) -> CompiledProgram:
    return _read(io.BytesIO(content), "the pickle")


def _read(file: IO[bytes], path: str | Path) -> CompiledProgram:
    try:
        with zipfile.ZipFile(file) as archive:
            header = json_documents.parse(_member(archive, "program.json").decode())
            plan_text = _member(archive, "plan.json").decode()
            model = _member(archive, "model.hlo.pb")
            called = _member(archive, _CALLS).decode() if _CALLS in archive.namelist() else None
        setup = _setup(header)
        saved_plan = Plan.from_json(plan_text)
    except (*DAMAGED, KeyError, NeuronSimError) as error:
        raise InvalidModel(f"{path} is not a program that neuronsim saved: {error}") from error
    module = proto.from_bytes(model)
    verify(module)
    try:
        check_plan(saved_plan, module, setup.target)
    except InvalidArgument as error:
        raise InvalidModel(f"{path} is not a program that neuronsim saved: {error}") from error
    calls = None
    if called is not None:
        try:
            document = json_documents.parse(called)
            calls = from_document(document, len(module.parameters), _count(module))
        except NeuronSimError as error:
            raise InvalidModel(f"{path} is not a program that neuronsim saved: {error}") from error
    return CompiledProgram(module, saved_plan, setup, calls)


def _count(module: Module) -> int:
    """How many results a program has."""
    shape = module.root.shape
    return len(shape.elements) if isinstance(shape, TupleShape) else 1


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    """A member of a saved program, which save stores as it is."""
    info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        raise InvalidModel(f"its member {name!r} is not as save wrote it")
    return archive.read(info)


# ---- the header of a saved program ---------------------------------------------------------------


def _header(setup: Setup) -> dict[str, Any]:
    """What a saved program says of itself, beside its plan and its model."""
    return {
        "version": SAVED_VERSION,
        "settings": asdict(setup.settings),
        "release": asdict(setup.release),
        "target": setup.target.name,
        "profile": setup.profile.to_dict(),
        "without_effect": list(setup.without_effect),
        "replicas": setup.replicas,
        "clean": setup.clean,
        "decided_by": setup.decided_by,
        "given": dict(setup.given),
    }


def _setup(header: Any) -> Setup:
    """The setup that a header says. Raises InvalidModel or InvalidArgument, with all problems."""
    version = header.get("version") if isinstance(header, dict) else None
    if not isinstance(version, int) or version != SAVED_VERSION:
        raise InvalidModel(
            f"it has version {fields.shown(version)}, this neuronsim reads {SAVED_VERSION}: compile "
            "the model again"
        )
    problems: list[str] = []
    found = fields.read_fields(header, _HEADER, "", problems, _HEADER)
    parts = {
        name: fields.read_fields(found.pop(name, {}), kinds, f"{name}: ", problems, kinds)
        for name, kinds in (("settings", _SETTINGS), ("release", _RELEASE), ("profile", _PROFILE))
    }
    if problems:
        raise InvalidArgument(fields.joined(problems))
    del found["version"]
    profile = Profile(**parts["profile"])
    return Setup(
        CastSettings(**parts["settings"]), Release(**parts["release"]), profile=profile, **found
    )


def _texts(*accepted: str) -> fields.Kind:
    """A list of texts, of these where some are given."""
    one = fields.one_of(*accepted) if accepted else fields.text

    def read(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise InvalidArgument("a list of texts")
        return tuple(map(one, value))

    return read


def _version(value: Any) -> str:
    if not all(part.isdecimal() for part in fields.text(value).split(".")) and value != "":
        raise InvalidArgument("a version such as 2.21.18209.0")
    return str(value)


def _choice_of(field_: dataclasses.Field[Any]) -> fields.Kind:
    """A value of a profile's field."""
    values = field_.metadata["values"]

    def read(value: Any) -> Any:
        if not any(type(value) is type(v) and value == v for v in values):
            raise InvalidArgument(f"one of {', '.join(map(repr, values))}")
        return value

    return read


# Beside what the annotations of the records say.
_SETTINGS: Mapping[str, fields.Kind] = {
    **records.readers(CastSettings),
    "integer_downcast": _texts(*ALL_INTEGER_DOWNCASTS),
}
_RELEASE: Mapping[str, fields.Kind] = {
    **records.readers(Release),
    "sdk": lambda value: find_release(fields.text(value)).sdk,
    "compiler": _version,
    "date": fields.text,
}
_PROFILE: Mapping[str, fields.Kind] = {f.name: _choice_of(f) for f in dataclasses.fields(Profile)}
_HEADER: Mapping[str, fields.Kind] = {
    "version": fields.count,
    "settings": fields.mapping,
    "release": fields.mapping,
    "target": lambda value: find_target(fields.text(value)),
    "profile": fields.mapping,
    "without_effect": _texts(),
    "replicas": checked_replicas,
    "clean": fields.truth,
    "decided_by": fields.text,
    "given": fields.texts_by_name,
}
