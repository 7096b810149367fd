"""A plan back in an ONNX model: casts at the borders of the nodes whose types it lowers.

A value that the plan rounds is cast to its type and back to float32, so that what runs the model
computes in float32 on values that the type holds. Steps inside a node are not rounded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from neuronsim import dtypes
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, UnsupportedType, warn
from neuronsim.frontends.onnx.files import node_name, require_onnx, type_number
from neuronsim.hlo.module import Instruction, Module, Shape, fresh_name

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

CASTS_SINCE = 13  # the operator set whose Cast has bfloat16
Borders = dict[
    str, tuple[DType | None, DType | None]
]  # of nodes: of their inputs, and of their outputs


def with_casts(model: ModelProto, original: Module, planned: Module) -> ModelProto:
    """A copy of a model with the casts of the module that a plan made of its own.

    Raises UnsupportedType for a plan in a format that ONNX does not have (tfloat32), InvalidArgument
    for a model whose operator set has no such Cast.
    """
    onnx = require_onnx()
    found: ModelProto = onnx.ModelProto()
    found.CopyFrom(model)
    told = {i.metadata.op_name for i in original.entry_computation.instructions} - {""}
    if told and not told & {node_name(n) for n in model.graph.node}:
        raise InvalidArgument("the program was not compiled from this model: none of its nodes is here")
    borders = find_borders(original, planned)
    if not borders:
        return found
    version = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    lowered = {t for pair in borders.values() for t in pair if t is not None}
    if version < CASTS_SINCE and lowered != {dtypes.float16}:
        raise InvalidArgument(
            f"the model's operator set is {version}, and Cast has bfloat16 from {CASTS_SINCE} on: "
            "convert it with onnx.version_converter first"
        )
    names = {node_name(n) for n in model.graph.node}
    inside = sorted(name for name in borders if name not in names)
    if inside:
        warn(
            f"the casts of {len(inside)} nodes inside of functions and subgraphs are left out of the "
            f"ONNX model, such as {inside[0]}"
        )
    casts = _Casts(found, _types_of_tensors(found))
    nodes = list(found.graph.node)
    del found.graph.node[:]
    for n in nodes:
        read, written = borders.get(node_name(n), (None, None))
        if read is not None:
            for at, tensor in enumerate(n.input):
                n.input[at] = casts.of(tensor, read)
        outputs = casts.around_outputs(n, written) if written is not None else []
        found.graph.node.extend([*casts.made, n, *outputs])
        casts.made.clear()
    if casts.untyped:
        warn(
            f"the ONNX model has no casts of {len(casts.untyped)} tensors whose types onnx does not "
            f"infer, such as {casts.untyped[0]}"
        )
    return found


def find_borders(original: Module, planned: Module) -> Borders:
    """The narrower type at which each node reads what others give, and that of what it gives, by the
    nodes' names; None where that is as it was.
    """
    before, after = original.entry_computation.by_name, planned.entry_computation.by_name
    reads: dict[str, set[DType]] = defaultdict(set)
    writes: dict[str, DType] = {}
    for name, i in before.items():
        node = i.metadata.op_name
        if not node or name not in after or i.opcode == "constant":
            continue
        for old, new in zip(i.operands, after[name].operands, strict=False):
            source = before[old]
            if _is_float32(source) and (source.metadata.op_name != node or _is_weight(source)):
                reads[node].add(_type_of(after[new]))
        if _is_float32(i):
            writes[node] = _type_of(after[name])  # the last one is what it gives
    found = {
        node: (_narrow(reads.get(node, ())), _narrow({writes[node]} if node in writes else ()))
        for node in {*reads, *writes}
    }
    return {node: pair for node, pair in found.items() if pair != (None, None)}


def _narrow(types: Iterable[DType]) -> DType | None:
    """The one type among these, if it is narrower than float32."""
    found = set(types)
    return next(iter(found)) if len(found) == 1 and found != {dtypes.float32} else None


def _is_float32(i: Instruction) -> bool:
    return isinstance(i.shape, Shape) and i.shape.dtype is dtypes.float32


def _is_weight(i: Instruction) -> bool:
    return i.opcode == "constant" and bool(i.array.dims)


def _type_of(i: Instruction) -> DType:
    if i.opcode == "reduce-precision":
        raise UnsupportedType(
            "ONNX has no type of this plan's reduce-precision (tfloat32): export plans of bfloat16, "
            "float16 or float8"
        )
    return i.array.dtype if isinstance(i.shape, Shape) else dtypes.float32


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
        self._taken = {name for n in model.graph.node for name in (n.name, *n.input, *n.output)}

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
        return [
            make("Cast", [tensor], [low], name=self._fresh(f"{low}.to"), to=type_number(dtype)),
            make("Cast", [low], [result], name=self._fresh(f"{low}.back"), to=number),
        ]

    def _fresh(self, name: str) -> str:
        return fresh_name(name, self._taken)
