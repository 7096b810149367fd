"""A plan back in an ONNX model: casts at the borders of the nodes whose types it lowers.

A value that the plan rounds is cast to its type and back to float32, so that what runs the model
computes in float32 on values that the type holds. Products that scale or add a bias become several
nodes where the plan rounds these steps; other steps inside a node are not rounded, which is told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any

from neuronsim import dtypes
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, first_few, warn
from neuronsim.frontends.onnx.borders import NodeTypes, find_borders, narrow_type
from neuronsim.frontends.onnx.files import (
    node_name,
    operator_set_version,
    require_onnx,
    taken_names,
    type_number,
)
from neuronsim.frontends.onnx.split_products import split_products
from neuronsim.hlo.module import Module, fresh_name

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

CASTS_SINCE = 13  # the operator set whose Cast has bfloat16
_FLOAT8_SINCE = 19  # and float8


def check_compiled_from(model: ModelProto, original: Module) -> None:
    """Raises InvalidArgument if no node of a module is the model's, or inside of one of its nodes."""
    names = {node_name(n) for n in model.graph.node}
    told = {i.metadata.op_name for i in original.entry_computation.instructions} - {""}
    if told and not any(_is_inside(name, names) for name in told):
        raise InvalidArgument("the program was not compiled from this model: none of its nodes is here")


def _is_inside(name: str, nodes: Set[str]) -> bool:
    """Whether a name is that of a node, or of one in a function or subgraph of it."""
    ends = [at for at, c in enumerate(name) if c == "/"]
    return name in nodes or any(name[:at] in nodes for at in ends)


def with_casts(
    model: ModelProto, original: Module, planned: Module, whole: Set[str] = frozenset()
) -> ModelProto:
    """A copy of a model with the casts of the module that a plan made of its own. A product's node
    keeps its name and its first inputs; those with a name in `whole` remain one node.

    Raises UnsupportedType for a plan in a format that ONNX does not have (tfloat32), InvalidArgument
    for a model whose operator set has no such Cast.
    """
    onnx = require_onnx()
    found: ModelProto = onnx.ModelProto()
    found.CopyFrom(model)
    names = {node_name(n) for n in model.graph.node}
    entry = original.entry_computation
    nodes = {i.name: i.metadata.op_name for i in entry.instructions}
    borders = find_borders(original, planned, nodes)
    split = {name for name, types in borders.items() if types.inside and name not in whole}
    parts = split_products(found, entry, split)
    if parts:
        nodes |= parts
        borders = find_borders(original, planned, nodes)
        names |= set(parts.values())
    if not borders:
        return found
    version = operator_set_version(model)
    lowered = {t for types in borders.values() for t in types.given.union(*types.read.values())}
    bytes_ = any(t.bits == 8 for t in lowered)
    since, low = (_FLOAT8_SINCE, "float8") if bytes_ else (CASTS_SINCE, "bfloat16")
    if version < since and not lowered <= {dtypes.float16, dtypes.float32}:
        raise InvalidArgument(
            f"the model's operator set is {version}, and Cast has {low} from {since} on: "
            "convert it with onnx.version_converter first"
        )
    outside = sorted(name for name in borders if name not in names)
    if outside:
        warn(
            f"the casts of {len(outside)} nodes inside of functions and subgraphs are left out of the "
            f"ONNX model, such as {outside[0]}"
        )
    _write_casts(found, borders, _Tensors(found, original, nodes))
    return found


def _write_casts(model: ModelProto, borders: Mapping[str, NodeTypes], tensors: _Tensors) -> None:
    """Add the casts to a model, and tell of those that it cannot have."""
    casts = _Casts(model, _types_of_tensors(model))
    nodes = list(model.graph.node)
    left_out: dict[str, list[str]] = {}
    del model.graph.node[:]
    for n in nodes:
        name = node_name(n)
        types = borders.get(name, NodeTypes())
        inputs, unplaced = _casts_of_inputs(n, types, tensors)
        for at, dtype in inputs.items():
            n.input[at] = casts.of(n.input[at], dtype)
        written = narrow_type(types.given)
        outputs = casts.around_outputs(n, written) if written is not None else []
        if outputs:
            n.name = name  # not that of the output, which is another one now
        mixed = ["its results"] if len(types.given) > 1 else []
        if steps := [*types.inside, *unplaced, *mixed]:
            left_out[f"{name} ({n.op_type})"] = steps
        model.graph.node.extend([*casts.made, n, *outputs])
        casts.made.clear()
    if casts.untyped:
        warn(
            f"the ONNX model has no casts of {len(casts.untyped)} tensors whose types onnx does not "
            f"infer, such as {casts.untyped[0]}"
        )
    if left_out:
        listed = first_few([f"{name}: {steps[0]}" for name, steps in left_out.items()], 3, "; ")
        warn(
            f"the plan's types of {sum(map(len, left_out.values()))} steps inside of {len(left_out)} "
            f"nodes are left out of the ONNX model, which computes them in float32: {listed}"
        )


def _casts_of_inputs(
    n: NodeProto, types: NodeTypes, tensors: _Tensors
) -> tuple[dict[int, DType], list[str]]:
    """The casts of a node's inputs by their numbers, and what is read narrower that is none of them."""
    everything = narrow_type(set().union(*types.read.values()))
    if everything is not None:
        return dict.fromkeys((at for at, tensor in enumerate(n.input) if tensor), everything), []
    found: dict[int, DType] = {}
    unplaced = []
    read_as: dict[int, set[DType]] = defaultdict(set)
    for source, dtypes_read in types.read.items():
        places = [source] if isinstance(source, int) else tensors.places(n, source)
        places = [at for at in places if at < len(n.input)]
        if dtypes_read == {dtypes.float32} and len(places) != 1:
            continue
        at = places[0] if len(places) == 1 else None
        if at is None:
            unplaced.append(f"what it reads of {source}")
        else:
            read_as[at] |= dtypes_read
    for at, dtypes_read in read_as.items():
        dtype = narrow_type(dtypes_read)
        if dtype is not None:
            found[at] = dtype
        elif len(dtypes_read) > 1:
            unplaced.append(f"what it reads of {n.input[at]}")
    return found, unplaced


class _Tensors:
    """What gives the tensors of a model: the nodes and the inputs of the program."""

    def __init__(self, model: ModelProto, original: Module, nodes: Mapping[str, str]) -> None:
        self._given = {o: node_name(n) for n in model.graph.node for o in n.output if o}
        self._nodes = nodes
        self._stored = {t.name for t in model.graph.initializer}
        for n in model.graph.node:  # and what is computed of these alone
            if self._stored.issuperset(n.input):
                self._stored.update(n.output)
        entry = original.entry_computation
        self._constants = {i.name for i in entry.instructions if i.opcode == "constant"}
        parameters = [p.name for p in original.parameters]
        self._inputs = dict(zip(parameters, original.parameter_names or parameters, strict=True))

    def places(self, n: NodeProto, source: str) -> list[int]:
        """The numbers of the inputs of a node that may be what an instruction gives."""
        if source in self._inputs:
            return [at for at, tensor in enumerate(n.input) if tensor == self._inputs[source]]
        if source in self._constants:
            return [at for at, tensor in enumerate(n.input) if tensor in self._stored]
        node = self._nodes[source]
        return [at for at, t in enumerate(n.input) if t and node and self._given.get(t) == node]


# ---- casts -------------------------------------------------------------------------------------------


def _types_of_tensors(model: ModelProto) -> dict[str, int]:
    """ONNX's numbers of the types of the graph's tensors, of those that are known."""
    onnx: Any = require_onnx()
    graph = onnx.shape_inference.infer_shapes(model).graph
    declared = (*graph.input, *graph.value_info, *graph.output)
    types = {v.name: int(v.type.tensor_type.elem_type) for v in declared}
    types |= {t.name: int(t.data_type) for t in graph.initializer}
    return {name: number for name, number in types.items() if number}


class _Casts:
    """The casts of a graph, one pair for each tensor and type."""

    def __init__(self, model: ModelProto, types: dict[str, int]) -> None:
        self.types = types
        self.untyped: list[str] = []
        self.made: list[NodeProto] = []
        self._known: dict[tuple[str, str], str] = {}
        self._taken = taken_names(model.graph)

    def of(self, tensor: str, dtype: DType) -> str:
        """The tensor after a cast to a type and back."""
        if not self._is_float32(tensor):
            return tensor
        key = (tensor, dtype.name)
        if key not in self._known:
            self._known[key] = self._fresh(f"{tensor}.{dtype.name}")
            self.made += self._pair(tensor, dtype, self._known[key])
        return self._known[key]

    def around_outputs(self, n: NodeProto, dtype: DType) -> list[NodeProto]:
        """The casts after a node, whose outputs are renamed."""
        found: list[NodeProto] = []
        for at, tensor in enumerate(n.output):
            if self._is_float32(tensor):
                n.output[at] = self._fresh(f"{tensor}.computed")
                found += self._pair(n.output[at], dtype, tensor)
        return found

    def _is_float32(self, tensor: str) -> bool:
        found = self.types.get(tensor)
        if found is None and tensor and tensor not in self.untyped:
            self.untyped.append(tensor)
        return found == type_number(dtypes.float32)

    def _pair(self, tensor: str, dtype: DType, result: str) -> list[NodeProto]:
        onnx: Any = require_onnx()
        low = self._fresh(f"{result}.cast")
        make, number = onnx.helper.make_node, type_number(dtypes.float32)
        beyond = {"saturate": 0} if dtype.bits == 8 else {}  # Inf, as the plan's casts give (C3)
        to = type_number(dtype)
        return [
            make("Cast", [tensor], [low], name=self._fresh(f"{low}.to"), to=to, **beyond),
            make("Cast", [low], [result], name=self._fresh(f"{low}.back"), to=number),
        ]

    def _fresh(self, name: str) -> str:
        return fresh_name(name, self._taken)
