"""PyTorch's door by the names of torch_neuronx: `trace` compiles a module or a function of tensors, and
`torch.compile(module, backend="neuronsim")` runs what dynamo captures.

>>> traced = trace(network, images, compiler_args="--auto-cast all")  # doctest: +SKIP
>>> traced(images)  # doctest: +SKIP
tensor(...)
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from neuronsim import api, json_documents, ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.arrays.files import DAMAGED
from neuronsim.arrays.manipulation import concatenate
from neuronsim.dtypes import DTYPES
from neuronsim.errors import (
    FlagWarning,
    InvalidArgument,
    InvalidData,
    InvalidModel,
    NeuronSimError,
    first_few,
    warn,
)
from neuronsim.frontends.composite_calls import with_composite_calls
from neuronsim.frontends.inputs import ModelInputs
from neuronsim.frontends.recorder import Recorder, recording
from neuronsim.frontends.torch.belonging import is_tensor
from neuronsim.frontends.torch.exporting import decompositions, with_aliases
from neuronsim.frontends.torch.graph import Context, check_operators, run_graph
from neuronsim.frontends.torch.places import Places
from neuronsim.frontends.torch.reading import record, tensors_of
from neuronsim.frontends.torch.structures import Layout, leaves_of
from neuronsim.frontends.torch.tensors import (
    part_of_torch,
    require_torch,
    to_array,
    to_tensor,
)
from neuronsim.frontends.tracer import traced_bits, value_of
from neuronsim.hlo import proto
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.module import Module
from neuronsim.program import CompiledProgram
from neuronsim.program import load as load_program
from neuronsim.whole_files import open_regular, replacing

__all__ = ["TracedModule", "backend", "load", "save", "trace", "with_weights"]

# What torch_neuron.trace takes of its partitioner and runtime, which is nothing here.
_WITHOUT_EFFECT = frozenset(
    {
        "compiler_timeout", "cpu_backend", "fallback", "inline_weights_to_neff", "minimum_segment_size",
        "op_whitelist", "optimizations", "partitioner_config", "separate_weights",
        "single_fusion_ratio_threshold", "skip_compiler", "subgraph_builder_function",
        "subgraph_inputs_pruning", "verbose",
    }
)  # fmt: skip
SAVED_VERSION = 1


class TracedModule:
    """What `trace` gives: called with tensors it runs the program and gives tensors, as the module that
    was traced does. Buffers that the module writes are its `state`, and go on from call to call. With
    `dynamic_batch_size` it takes any number of samples, and runs the program for each batch of them.
    """

    def __init__(
        self,
        program: CompiledProgram,
        weights: Mapping[str, str],
        layout: Layout,
        state: Mapping[str, Array],
        dynamic_batch_size: bool = False,
    ) -> None:
        self.program, self.layout = program, layout
        self.weights, self.state = dict(weights), dict(state)
        self.dynamic_batch_size = dynamic_batch_size

    def __call__(self, *args: Any, seed: int | None = None) -> Any:
        """The module's results for tensors (or other arrays), in the structure that it returns; memory
        is shared where the types are the same. `seed` is that of a program's call.

        Raises InvalidData for arguments that do not fit.
        """
        given = [x for x in leaves_of((args, {})) if is_tensor(x) or hasattr(x, "__array__")]
        count = len(self.program.inputs) - len(self.state)
        if len(given) != count:
            names = list(self.program.inputs)[:count]
            raise InvalidData(f"the module takes {', '.join(names)}: {len(given)} tensors are given")
        arrays = [to_array(x) if is_tensor(x) else x for x in given]
        if self.dynamic_batch_size:
            return self.layout.rebuilt([to_tensor(x) for x in self._in_batches(arrays, seed)])
        found = self.program(*arrays, *self.state.values(), seed=seed)
        results = list(found) if isinstance(found, tuple) else [found]
        own = len(results) - len(self.state)
        self.state = dict(zip(self.state, results[own:], strict=True))
        return self.layout.rebuilt([to_tensor(x) for x in results[:own]])

    def _in_batches(self, arrays: Sequence[Any], seed: int | None) -> list[Array]:
        """The results for all samples; the last batch is filled up with its last sample."""
        batch = self.program.inputs[next(iter(self.program.inputs))].dims[0]
        counts = {x.shape[:1] for x in arrays}
        if len(counts) != 1 or not (count := counts.pop()) or not count[0]:
            shapes = ", ".join(str(tuple(x.shape)) for x in arrays)
            raise InvalidData(f"the inputs begin with one number of samples, not {shapes}")
        parts = []
        for start in range(0, count[0], batch):
            rows = np.minimum(np.arange(start, start + batch), count[0] - 1)
            found = self.program(*(asarray(x)[rows] for x in arrays), seed=seed)
            parts.append(found if isinstance(found, tuple) else (found,))
        return [concatenate(several)[: count[0]] for several in zip(*parts, strict=True)]

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Put other weights in the place of the module's, by their names in its state dict: what was
        planned stays. With `strict` every weight must be there, and nothing else.

        Raises InvalidArgument that lists what is missing, left over, or of another shape.
        """
        others = {k: x for k, x in state_dict.items() if k not in self.state}
        constants = {self.weights.get(k, k): x for k, x in others.items()}
        self.program = with_weights(
            self.program, constants, strict=strict, unread=set(self.layout.unread)
        )
        for name in self.state.keys() & state_dict.keys():
            before = self.state[name].bits.type
            self.state[name] = _fitting(name, state_dict[name], before)

    def save(self, path: str | Path) -> None:
        """Write it as a file that `load` reads."""
        save(self, path)


def trace(
    func: Any,
    example_inputs: Any,
    *_: Any,
    input_output_aliases: Mapping[Any, int] | None = None,
    compiler_workdir: str | Path | None = None,
    compiler_args: str | Sequence[str] | None = None,
    dynamic_batch_size: bool = False,
    **settings: Any,
) -> TracedModule:
    """Compile a torch.nn.Module or a function of tensors for example inputs: a tensor, or a tuple of
    them; with the arguments of torch_neuronx.trace and torch_neuron.trace.

    `compiler_args` are flags of the compiler; `compiler_workdir` is a folder for graph.hlo, as AWS's
    compiler takes it. `settings` are those of `neuronsim.compile`. What says how AWS's partitioner and
    runtime work has no effect, which a FlagWarning says. `input_output_aliases` are parameters and
    buffers of the module, each with the number of the result that is its next value: state, no result.
    With `dynamic_batch_size` what is traced takes any number of samples. Raises UnsupportedOperator and
    others.
    """
    func = with_aliases(func, input_output_aliases) if input_output_aliases else func
    idle = sorted(_WITHOUT_EFFECT & set(settings))
    if idle:
        warn(f"trace: {', '.join(idle)} has no effect: a program is one whole", FlagWarning)
    settings = {k: v for k, v in settings.items() if k not in _WITHOUT_EFFECT}
    if compiler_args is not None:
        settings["flags"] = compiler_args
    kept: Any = settings.pop("composites", "formulas")
    inputs = example_inputs if isinstance(example_inputs, tuple | list) else (example_inputs,)
    asked = ModelInputs(example_args=tuple(inputs), composites=kept)
    found = record(func, asked, keeps_state=True)
    if found.dropped:
        raise InvalidArgument(
            f"the module writes its inputs {', '.join(found.dropped)}: return the new values instead"
        )
    if compiler_workdir is not None:
        folder = Path(compiler_workdir)
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / "graph.hlo") as file:
            file.write(proto.to_bytes(with_composite_calls(found.module)))
    program = api.compile(found.module, **settings)
    if dynamic_batch_size:
        _check_batches(program, found.state)
    return TracedModule(program, found.weights, found.results, found.state, dynamic_batch_size)


def _check_batches(program: CompiledProgram, state: Mapping[str, Array]) -> None:
    """Raises InvalidArgument for what cannot be run batch by batch."""
    if state:
        raise InvalidArgument(f"dynamic_batch_size: the module has a state, {', '.join(state)}")
    types = [*program.inputs.values(), *program.outputs]
    if len({t.dims[:1] for t in types}) != 1 or not types[0].dims:
        raise InvalidArgument(
            f"dynamic_batch_size: every input and result begins with the samples' axis, and they are "
            f"{', '.join(map(str, types))}"
        )


# ---- weights ---------------------------------------------------------------------------------------


def with_weights(
    program: CompiledProgram,
    weights: Mapping[str, Any],
    *,
    strict: bool = False,
    unread: set[str] | None = None,
) -> CompiledProgram:
    """The program with other constants in the place of its own, by their names in the module, which are
    those of a state dict: its plan and its settings stay, and nothing is traced or planned anew. With
    `strict` all weights of the program (its constants of at least one dimension that have a parameter's
    name) must be given, and nothing else; without, at least one.

    Raises InvalidArgument that lists what is missing, left over, or of another shape.
    """
    entry = program.model.entry_computation
    own = {i.name: i for i in entry.instructions if i.opcode == "constant"}
    left = [k for k in weights if k not in own and k not in (unread or ())]
    if left and own.keys().isdisjoint(weights):
        raise InvalidArgument(
            f"none of these is a weight of the program: {first_few(left, 4)}; its own are "
            f"{first_few(sorted(n for n, i in own.items() if not i.metadata.op_type), 4)}"
        )
    named = {n for n, i in own.items() if not i.metadata.op_type and i.shape.arrays()[0].dims}
    missing = [n for n in own if n in named and n not in weights] if strict else []
    if missing or (left and strict):
        said = [f"missing: {', '.join(missing)}"] * bool(missing)
        said += [f"left over: {', '.join(left)}"] * bool(left)
        raise InvalidArgument(f"the weights do not fit the program: {'; '.join(said)}")
    literals = {
        name: _fitting(name, weights[name], i.attributes["literal"].type).bits
        for name, i in own.items()
        if name in weights
    }
    changed = [
        i.replace(attributes={**i.attributes, "literal": literals[i.name]}) if i.name in literals else i
        for i in entry.instructions
    ]
    computations = tuple(
        replace(c, instructions=tuple(changed)) if c is entry else c for c in program.model.computations
    )
    model: Module = replace(program.model, computations=computations)
    plan = replace(program.plan, fingerprint=fingerprint(model))
    return CompiledProgram(model, plan, program.setup)


def _fitting(name: str, x: Any, expected: ops.ArrayType) -> Array:
    """A weight as an array of its own memory, which has the type of the one before."""
    array = to_array(tensors_of(x) if not is_tensor(x) else x)
    if array.shape != expected.dims or array.dtype is not expected.dtype:
        raise InvalidArgument(f"the weight {name!r} is {array.bits.type}, and {expected} is needed")
    return array.copy()


# ---- files -----------------------------------------------------------------------------------------


def save(traced: TracedModule, path: str | Path) -> None:
    """Write a traced module as a file that `load` reads. Raises InaccessibleFile if it cannot be."""
    state = [(n, x.bits.dtype.name, list(x.shape)) for n, x in traced.state.items()]
    header = {
        "version": SAVED_VERSION, "weights": traced.weights, "state": state,
        "dynamic_batch_size": traced.dynamic_batch_size, **traced.layout.to_dict(),
    }  # fmt: skip
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        traced.program.write(archive)
        archive.writestr("traced.json", json.dumps(header, indent=1))
        for n, x in enumerate(traced.state.values()):
            archive.writestr(f"state/{n}", np.ascontiguousarray(x.bits.data).tobytes())


def load(path: str | Path) -> TracedModule:
    """The traced module that `save` wrote. Raises InvalidModel for any other file."""
    require_torch()
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            header = json_documents.parse(archive.read("traced.json").decode())
            if header.get("version") != SAVED_VERSION:
                raise InvalidModel(f"it has version {header.get('version')}")
            state = {}
            for n, (name, dtype, dims) in enumerate(header["state"]):
                bits = np.frombuffer(archive.read(f"state/{n}"), DTYPES[dtype].storage)
                state[name] = Array(ops.Bits(bits.reshape(dims).copy(), DTYPES[dtype]))
            layout = Layout.from_dict(header)
        program = load_program(path)
        batches = bool(header.get("dynamic_batch_size"))
        return TracedModule(program, dict(header["weights"]), layout, state, batches)
    except (*DAMAGED, KeyError, TypeError, AttributeError, NeuronSimError) as error:
        raise InvalidModel(f"{path} is no traced module that neuronsim saved: {error}") from error


# ---- torch.compile ---------------------------------------------------------------------------------


def backend(
    graph_module: Any,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    **more: Any,
) -> Callable[..., Any]:
    """The backend of `torch.compile(module, backend="neuronsim", options={...})`: graphs of dynamo's,
    forward and, where gradients are needed, backward, run as programs. `options` are the arguments of
    `neuronsim.compile`.
    """
    torch = require_torch()
    aot_autograd = part_of_torch("_dynamo.backends.common").aot_autograd
    settings = {**(options or {}), **more}

    def compiler(graph: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        return _boxed(_Graph(graph, settings))

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        run = aot_autograd(fw_compiler=compiler, bw_compiler=compiler, decompositions=decompositions())
        return run(graph_module, example_inputs)  # type: ignore[no-any-return]


def _boxed(run: Callable[..., Any]) -> Callable[..., Any]:
    return part_of_torch("_functorch.aot_autograd").make_boxed_func(run)  # type: ignore[no-any-return]


class _Graph:
    """A graph of operators on tensors and sizes, compiled for each combination of types and sizes that
    it is called with.
    """

    def __init__(self, graph_module: Any, settings: Mapping[str, Any]) -> None:
        self.graph_module, self.settings = graph_module, dict(settings)
        self.places = Places.of_program(graph_module)
        check_operators(graph_module, self.places)
        self.programs: dict[Any, tuple[CompiledProgram | None, list[Any]]] = {}

    def __call__(self, *args: Any) -> list[Any]:
        given = [to_array(x) if is_tensor(x) else x for x in args]
        key = tuple(x.bits.type if isinstance(x, Array) else x for x in given)
        if key not in self.programs:
            self.programs[key] = self._compiled(given)
        program, plain = self.programs[key]
        found: Any = ()
        if program is not None:
            found = program(*(x for x in given if isinstance(x, Array)))
        results = iter(found if isinstance(found, tuple) else (found,))
        return [to_tensor(next(results)) if x is _TENSOR else x for x in plain]

    def _compiled(self, given: Sequence[Any]) -> tuple[CompiledProgram | None, list[Any]]:
        """The program, and its results with marks in the places of tensors."""
        recorder = Recorder("graph")
        with recording(recorder):
            traced: list[Any] = []
            for n, x in enumerate(given):
                if isinstance(x, Array):
                    value = recorder.parameter(f"x{n}", x.bits.type)
                    traced.append(Array(traced_bits(value)))
                else:
                    traced.append(x)
            found = run_graph(self.graph_module, traced, Context(self.places))
            values = [value_of(x.bits) for x in found if isinstance(x, Array)]
            plain = [_TENSOR if isinstance(x, Array) else x for x in found]
            if not values:
                return None, plain
            module = recorder.finish(values, as_tuple=True)
        return api.compile(module, **self.settings), plain


_TENSOR = object()
