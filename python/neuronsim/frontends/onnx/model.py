"""A model's graph as a module, for shapes and values of its inputs.

docs/onnx.md lists the operators.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neuronsim import ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.errors import (
    InvalidArgument,
    InvalidModel,
    UnknownValue,
    UnsupportedType,
    first_few,
    nearest,
)
from neuronsim.frontends.onnx import files
from neuronsim.frontends.onnx.carried import Carried, ElementType, carried, from_values
from neuronsim.frontends.onnx.graph import check_operators, context_of, run_graph
from neuronsim.frontends.recorder import Recorder, recording
from neuronsim.frontends.tracer import is_traced, traced_bits, value_of
from neuronsim.hlo.module import Module

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, ValueInfoProto


LISTED = 5  # outputs, in an error message


def to_module(
    model: str | os.PathLike[str] | bytes | ModelProto,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    input_values: Mapping[str, Any] | None = None,
    batch: int = 1,
    sample_shapes: Mapping[str, Sequence[int]] | None = None,
    composites: str = "formulas",
    outputs: Sequence[str] = (),
    examples: Sequence[Any] = (),
) -> Module:
    """The module of an ONNX model. What its inputs leave open is said by `input_shapes`, or by
    `examples` of the first of them; a first dimension that nothing says is `batch`, another one that of
    `sample_shapes`, the shapes of data without their first axis, or the first one too where these have
    all of an input's. `input_values` are inputs whose values are known. With `composites="kept"`
    softmax, norms, mean and var stay one instruction each. With `outputs` the graph ends at these
    tensors, and what only its own outputs need is left out.

    Raises InvalidModel, UnsupportedOperator, UnsupportedType, or InvalidArgument for inputs that it
    does not have, or whose shape or value must be known.
    """
    proto, folder = files.read(model)
    files.check_graph(proto.graph)
    proto = _ending_at(proto, outputs) if outputs else proto
    context = context_of(proto, folder)
    check_operators(proto.graph, context)
    recorder = Recorder(proto.graph.name or (folder and Path(str(model)).stem) or "model")
    recorder.shared.keeps_composites = composites == "kept"
    with recording(recorder):
        shapes = {**_shapes_of(proto.graph, examples), **(input_shapes or {})}
        values, samples = input_values or {}, sample_shapes or {}
        given = _inputs(proto, shapes, values, (batch, samples), recorder)
        try:
            found = run_graph(proto.graph, given, context)
            results = [
                value_of(_array_of(o.name, x).bits)
                for o, x in zip(proto.graph.output, found, strict=True)
            ]
        except UnknownValue as error:
            raise _of_inputs(error, given, proto.graph) from error
        return recorder.finish(results)


def _ending_at(proto: ModelProto, outputs: Sequence[str]) -> ModelProto:
    """The model with these tensors as its outputs. Raises InvalidArgument for a name of none."""
    graph = proto.graph
    given = {name: n for n, node in enumerate(graph.node) for name in node.output if name}
    known = [*given, *(i.name for i in graph.input)]
    for name in outputs:
        if name not in known:
            own = [o.name for o in graph.output]
            raise InvalidArgument(
                f"outputs: the model has no tensor {name!r}{nearest(name, known)}: its own outputs are "
                f"{first_few(own, LISTED)}, and any tensor of a node may be one"
            )
    needed, pending = set(), list(outputs)
    kept: set[int] = set()
    while pending:
        name = pending.pop()
        if name in needed:
            continue
        needed.add(name)
        if name in given and given[name] not in kept:
            kept.add(given[name])
            pending += files.names_read(graph.node[given[name]])
    found = type(proto)()
    found.CopyFrom(proto)
    del found.graph.node[:], found.graph.output[:], found.graph.input[:]
    found.graph.node.extend(node for n, node in enumerate(graph.node) if n in kept)
    found.graph.input.extend(i for i in graph.input if i.name in needed)
    for name in outputs:
        found.graph.output.add().name = name
    return found


def _array_of(name: str, x: Any) -> Array:
    if x is None:
        raise UnsupportedType(
            f"the output {name!r} is an optional one that has no element: neuronsim gives tensors. "
            "outputs=(...), on the command line --outputs, ends the model at others"
        )
    if not isinstance(x, Array):
        raise UnsupportedType(
            f"the output {name!r} is no tensor: neuronsim gives tensors, those of a sequence by nodes "
            "SequenceAt or ConcatFromSequence"
        )
    return x


class UnknownInput(InvalidArgument):
    """A value that decides what the program is depends on inputs: their names are in `inputs`."""

    def __init__(self, message: str, inputs: tuple[str, ...]) -> None:
        super().__init__(message)
        self.inputs = inputs


def _of_inputs(
    error: UnknownValue, given: Mapping[str, Array | None], graph: GraphProto
) -> InvalidArgument:
    """What to say of a value that must be known, in the model's own names."""
    traced = {name: x.bits for name, x in given.items() if x is not None and is_traced(x.bits)}
    parameters = {value_of(bits).name: name for name, bits in traced.items()}
    value = error.value
    names = tuple(parameters[p] for p in value.recorder.sources(value) if p in parameters)
    reader = error.reader or "a node"
    listed = ", ".join(map(repr, names)) or "what no input decides"
    return UnknownInput(
        f"{reader} decides shapes or steps of the program by values that depend on the input {listed}: "
        f"say them with input_values={{{names[0]!r}: ...}}, on the command line "
        f"--input-value {names[0]}=...{_in_front_of(reader, graph)}"
        if names
        else f"{reader} decides shapes of the program by values that are drawn while it runs",
        names,
    )


_LENGTHS_BY_VALUES = ("Compress", "NonMaxSuppression", "NonZero", "Unique")


def _in_front_of(reader: str, graph: GraphProto) -> str:
    """How the model ends in front of a node whose results are as long as values say, for an error
    message.
    """
    given = {name for n in graph.node for name in n.output}
    nodes = [n for n in graph.node if f"{files.node_name(n)} ({n.op_type})" == reader]
    before = [name for n in nodes[:1] for name in n.input if name in given]
    if not before or nodes[0].op_type not in _LENGTHS_BY_VALUES:
        return ""
    return (
        f"; or end the model in front of it, outputs={tuple(before)!r}, on the command line --outputs "
        f"{','.join(before)}"
    )


def _declared(graph: GraphProto) -> list[ValueInfoProto]:
    """The inputs that have no values of the model's own."""
    initialized = {t.name for t in graph.initializer}
    return [i for i in graph.input if i.name not in initialized]


def _shapes_of(graph: GraphProto, examples: Sequence[Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of example arguments by the names of a graph's inputs."""
    names = [i.name for i in _declared(graph)]
    if len(examples) > len(names):
        raise InvalidArgument(
            f"{len(examples)} example arguments, and the inputs are {', '.join(names)}"
        )
    return {name: np.shape(x) for name, x in zip(names, examples, strict=False)}


def _inputs(
    model: ModelProto,
    shapes: Mapping[str, Sequence[int]],
    known: Mapping[str, Any],
    open_dims: tuple[int, Mapping[str, Sequence[int]]],
    recorder: Recorder,
) -> dict[str, Array | None]:
    """The graph's inputs by name: traced, or the values that are known, None of optional ones that are
    absent.
    """
    declared = _declared(model.graph)
    names = [i.name for i in declared]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidModel(f"the model has two inputs of the name {twice[0]!r}")
    for name in (*shapes, *known):
        if name not in names:
            raise InvalidArgument(
                f"the model has no input {name!r}{nearest(name, names)}: it has {', '.join(names)}"
            )
    symbols: dict[str, int] = {}
    absent = _absent(declared, known)
    declared = [i for i in declared if i.name not in absent]
    for i in declared:
        if i.name in shapes or (i.name in known and not _fills(known[i.name], i)):
            dims = tuple(shapes[i.name]) if i.name in shapes else np.shape(known[i.name])
            _bind(i, dims, symbols)
    found: dict[str, Array | None] = dict.fromkeys(absent)
    for i in declared:
        dtype = _element_type(i)
        if i.name in known and not _fills(known[i.name], i):
            found[i.name] = _known_array(known[i.name], dtype, i.name)
            continue
        dims = tuple(shapes[i.name]) if i.name in shapes else _dims(i, symbols, open_dims, model)
        if any(n < 0 for n in dims):
            raise InvalidArgument(f"the input {i.name!r} has the shape {dims}")
        ops.check_dims(f"the input {i.name!r}", dims)
        if i.name in known:
            found[i.name] = _known_array(np.full(dims, known[i.name]), dtype, i.name)
            continue
        own = dtype.carrier if isinstance(dtype, Carried) else dtype
        traced = Array(traced_bits(recorder.parameter(i.name, ops.ArrayType(own, dims))))
        found[i.name] = carried(traced, dtype) if isinstance(dtype, Carried) else traced
    return found


def _absent(declared: Sequence[ValueInfoProto], known: Mapping[str, Any]) -> list[str]:
    """The inputs whose known value is None: optional ones. Raises InvalidArgument for others."""
    found = [i for i in declared if i.name in known and known[i.name] is None]
    for i in found:
        if not i.type.HasField("optional_type"):
            raise InvalidArgument(
                f"the input {i.name!r} is None, and it is no optional one: it needs a value"
            )
    return [i.name for i in found]


def _known_array(value: Any, dtype: ElementType, name: str) -> Array:
    if isinstance(dtype, Carried):
        return from_values(value, dtype, f"the input {name!r}")
    return asarray(value, dtype)


def _fills(value: Any, i: ValueInfoProto) -> bool:
    """Whether a known value is one number for all elements of an input that has axes."""
    return not np.ndim(value) and bool(_tensor_type(i).shape.dim)


def _tensor_type(i: ValueInfoProto) -> Any:
    """The type of an input that is a tensor, or of the one that an optional input may have."""
    own = i.type.optional_type.elem_type if i.type.HasField("optional_type") else i.type
    return own.tensor_type


def _element_type(i: ValueInfoProto) -> ElementType:
    own = i.type.optional_type.elem_type if i.type.HasField("optional_type") else i.type
    if not own.HasField("tensor_type"):
        kind = own.WhichOneof("value") or "nothing"
        raise UnsupportedType(f"the input {i.name!r} is a {kind}: neuronsim takes tensors")
    return files.element_type(_tensor_type(i).elem_type, f"the input {i.name!r}")


def _bind(i: ValueInfoProto, dims: Sequence[int], symbols: dict[str, int]) -> None:
    """Checks a shape that is given against the declared one, and learns its symbols."""
    if not _tensor_type(i).HasField("shape"):
        return
    declared = _tensor_type(i).shape.dim
    text = [d.dim_param or (d.dim_value if d.HasField("dim_value") else "?") for d in declared]
    wrong = InvalidArgument(f"the input {i.name!r} is {text}, and {list(dims)} is given")
    if len(declared) != len(dims):
        raise wrong
    for d, n in zip(declared, dims, strict=True):
        if d.HasField("dim_value") and d.dim_value > 0 and d.dim_value != n:
            raise wrong
        if _symbol(d) and symbols.setdefault(d.dim_param, n) != n:
            raise InvalidArgument(
                f"the inputs' dimension {d.dim_param!r} is both {symbols[d.dim_param]} and {n}"
            )


def _symbol(d: Any) -> str:
    """The name that a dimension shares with others; "" of one that has none: some exporters write a
    question mark for each that they do not know.
    """
    return str(d.dim_param).strip("?")


def _dims(
    i: ValueInfoProto,
    symbols: dict[str, int],
    open_dims: tuple[int, Mapping[str, Sequence[int]]],
    model: ModelProto,
) -> tuple[int, ...]:
    """The declared shape, its open dimensions by the other inputs', the first by the batch, and the
    samples'.
    """
    if not _tensor_type(i).HasField("shape"):
        raise InvalidArgument(
            f"the model does not say how many dimensions the input {i.name!r} has: "
            f"{_say(i.name, '2,3')}"
        )
    batch, samples = open_dims
    dims: list[int] = []
    declared, sample = _tensor_type(i).shape.dim, tuple(samples.get(i.name, ()))
    missing = len(declared) - len(sample)  # none where each sample is a run of its own
    known = sample if missing == 0 else (batch, *sample) if missing == 1 else (batch,)
    for at, d in enumerate(declared):
        if d.HasField("dim_value") and d.dim_value > 0:
            dims.append(int(d.dim_value))
        elif d.dim_param in symbols:
            dims.append(symbols[d.dim_param])
        elif at < len(known):
            dims.append(known[at])
            if _symbol(d):
                symbols[d.dim_param] = known[at]
        else:
            readers = [n.name or n.op_type for n in model.graph.node if i.name in n.input]
            open_ = d.dim_param or f"number {at}"
            shown = ",".join(
                [*map(str, dims), "N", *["..."] * (len(_tensor_type(i).shape.dim) > at + 1)]
            )
            raise InvalidArgument(
                f"the dimension {open_} of the input {i.name!r}, which {', '.join(readers[:3])} reads, "
                f"is not known: {_say(i.name, shown)}"
            )
    return tuple(dims)


def _say(name: str, dims: str) -> str:
    flag = f"--input-shape {name}={dims}"
    return f"say it with input_shapes={{{name!r}: ({dims})}}, on the command line {flag}"
