"""Graphs of ONNX run node by node on arrays, traced or known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuronsim.arrays.array_object import Array
from neuronsim.errors import InvalidModel, NeuronSimError, UnknownValue, UnsupportedOperator, nearest
from neuronsim.frontends.onnx import files, operators
from neuronsim.frontends.onnx.table import ONNX, Node, Row, lookup
from neuronsim.frontends.recorder import in_scope
from neuronsim.hlo.module import Metadata, sort_by_dependency

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto

# What Python and NumPy raise of attributes and inputs that contradict each other.
REFUSED = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, ValueError)
MAX_DEPTH = 50  # of functions and subgraphs inside each other


@dataclass(frozen=True)
class Context:
    """What the nodes of a model have in common: the versions of its domains, its own functions, the
    folder of its tensors; the names around a node, and how deeply it lies.
    """

    versions: Mapping[str, int]
    functions: Mapping[tuple[str, str], FunctionProto]
    folder: Path | None = None
    prefix: str = ""
    depth: int = 0
    outer: Mapping[str, Any] = field(default_factory=dict)  # arrays of the graphs around

    def inside(self, prefix: str, outer: Mapping[str, Any]) -> Context:
        """The context of a function's or a subgraph's nodes."""
        if self.depth == MAX_DEPTH:
            raise InvalidModel(f"functions and subgraphs are nested deeper than {MAX_DEPTH}")
        return Context(self.versions, self.functions, self.folder, prefix, self.depth + 1, outer)


def context_of(model: ModelProto, folder: Path | None) -> Context:
    """The context of a model's own graph."""
    versions = {_domain(o.domain): o.version for o in model.opset_import}
    versions.setdefault(ONNX, 1)
    newest = files.require_onnx().defs.onnx_opset_version()
    if not OLDEST <= versions[ONNX] <= newest:
        raise UnsupportedOperator(
            f"the model's operator set is ai.onnx {versions[ONNX]}: neuronsim reads {OLDEST} to "
            f"{newest}, the newest of the installed onnx. onnx.version_converter changes it"
        )
    functions = {(_domain(f.domain), f.name): f for f in model.functions}
    return Context(versions, functions, folder)


OLDEST = 1


def _domain(name: str) -> str:
    return ONNX if name == "ai.onnx" else name


def check_operators(graph: GraphProto, context: Context) -> None:
    """Raises UnsupportedOperator that lists every operator of a graph that has no row, and where."""
    missing: dict[str, list[str]] = {}
    _find_missing(graph.node, context, missing)
    if missing:
        listed = "; ".join(
            f"{name} ({', '.join(places[:3])}{f' and {len(places) - 3} more' if places[3:] else ''})"
            f"{nearest(name.rpartition('.')[2], operators.NAMES)}"
            for name, places in sorted(missing.items())
        )
        raise UnsupportedOperator(
            f"the model has operators that neuronsim does not read: {listed}. docs/onnx.md lists those "
            "that it does: export the model without them, or compute them outside"
        )


def _find_missing(nodes: Sequence[NodeProto], context: Context, missing: dict[str, list[str]]) -> None:
    for n in nodes:
        domain = _domain(n.domain)
        has_row = _row(n, context) is not None or (domain, n.op_type) in context.functions
        if not has_row and not _has_body(n, context):
            name = f"{domain}.{n.op_type}" if domain else n.op_type
            missing.setdefault(name, []).append(node_name(n))
        for a in n.attribute:
            for graph in (*([a.g] if a.HasField("g") else []), *a.graphs):
                _find_missing(graph.node, context, missing)


def _row(node: NodeProto, context: Context) -> Row | None:
    domain = _domain(node.domain)
    return lookup(domain, node.op_type, context.versions.get(domain, 1))


def _schema(node: NodeProto, context: Context) -> Any:
    """ONNX's own description of an operator in the model's version; None of one that it lacks."""
    defs = files.require_onnx().defs
    domain = _domain(node.domain)
    try:
        return defs.get_schema(node.op_type, context.versions.get(domain, 1), domain)
    except defs.SchemaError:
        return None


def _has_body(node: NodeProto, context: Context) -> bool:
    schema = _schema(node, context)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def node_name(node: NodeProto) -> str:
    """What messages and instructions call a node: its name, or that of its first output."""
    return node.name or next(filter(None, node.output), node.op_type)


# ---- running ----------------------------------------------------------------------------------------


def run_graph(graph: GraphProto, inputs: Mapping[str, Array], context: Context) -> list[Any]:
    """The outputs of a graph for its inputs by name."""
    values: dict[str, Any] = dict(context.outer)
    for t in graph.initializer:
        values[t.name] = files.tensor(t, context.folder)
    for s in graph.sparse_initializer:
        raise UnsupportedOperator(f"the initializer {s.values.name!r} is sparse: make it dense")
    values.update(inputs)
    run_nodes(graph.node, values, context)
    return [_read(values, o.name, f"the output of {graph.name or 'the graph'}") for o in graph.output]


def run_nodes(nodes: Sequence[NodeProto], values: dict[str, Any], context: Context) -> None:
    """Adds to `values` what the nodes give, in an order in which each follows what it reads."""
    for n in _ordered(nodes, values):
        name = node_name(n)
        given = [_read(values, i, name) if i else None for i in n.input]
        metadata = Metadata(op_type=n.op_type, op_name=context.prefix + name)
        with in_scope(context.prefix + name, metadata):
            found = _run_node(n, given, values, context)
        for o, value in zip(n.output, found, strict=False):
            if o:
                values[o] = value


def _ordered(nodes: Sequence[NodeProto], values: Mapping[str, Any]) -> list[NodeProto]:
    producers: dict[str, int] = {}
    for at, n in enumerate(nodes):
        for o in filter(None, n.output):
            if o in producers:
                raise InvalidModel(f"{o!r} is the output of two nodes")
            producers[o] = at
    known = set(values)
    in_order = True
    for n in nodes:
        in_order = in_order and known.issuperset(i for i in n.input if i)
        known.update(n.output)
    if in_order:
        return list(nodes)
    names = [str(at) for at in range(len(nodes))]
    order = sort_by_dependency(
        names,
        lambda at: [str(producers[i]) for i in nodes[int(at)].input if i in producers],
        "the node",
    )
    return [nodes[int(at)] for at in order]


def _read(values: Mapping[str, Any], name: str, reader: str) -> Any:
    if name not in values:
        raise InvalidModel(f"{reader} reads {name!r}, which nothing gives")
    return values[name]


def _run_node(
    n: NodeProto, given: Sequence[Any], values: Mapping[str, Any], context: Context
) -> Sequence[Any]:
    domain, name = _domain(n.domain), context.prefix + node_name(n)
    row = _row(n, context)
    attributes = {a.name: _attribute(a, context) for a in n.attribute}
    if row is None:
        return _run_body(n, given, values, context)
    inner = context.inside(f"{name}/", values)

    def run_subgraph(graph: GraphProto, inputs: Sequence[Any]) -> list[Any]:
        named = dict(zip((i.name for i in graph.input), inputs, strict=False))
        return run_graph(graph, named, inner)

    version = context.versions.get(domain, 1)
    node = Node(n.op_type, name, version, domain, attributes, tuple(n.output), run_subgraph)
    try:
        found = row.function(node, *given)
    except UnknownValue as error:
        error.reader = error.reader or f"{name} ({n.op_type})"
        raise
    except NeuronSimError as error:
        raise type(error)(f"{name} ({n.op_type}): {error}") from error
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            text = f"{name} ({n.op_type}) does not take {len(given)} inputs"
            raise InvalidModel(text) from error
        raise InvalidModel(f"{name} ({n.op_type}): {error}") from error
    except REFUSED as error:
        raise InvalidModel(f"{name} ({n.op_type}): {error}") from error
    return found if isinstance(found, list | tuple) else (found,)


def _run_body(
    n: NodeProto, given: Sequence[Any], values: Mapping[str, Any], context: Context
) -> Sequence[Any]:
    """A function of the model's own, or the body that ONNX gives an operator."""
    domain, name = _domain(n.domain), context.prefix + node_name(n)
    function = context.functions.get((domain, n.op_type))
    if function is None:
        function = _body_of_schema(n, given, context)
    set_by_node = {a.name: a for a in n.attribute}
    defaults = {a.name: a for a in function.attribute_proto}
    if (domain, n.op_type) not in context.functions:
        own = _schema(n, context).attributes.values()
        defaults |= {a.name: a.default_value for a in own if a.default_value.name}
    nodes = [_with_references(inner, {**defaults, **set_by_node}) for inner in function.node]
    versions = {_domain(o.domain): o.version for o in function.opset_import}
    inner = context.inside(f"{name}/", {})
    inner = Context(
        {**context.versions, **versions}, inner.functions, inner.folder, inner.prefix, inner.depth, {}
    )
    local: dict[str, Any] = dict(zip(function.input, given, strict=False))
    for missing in list(function.input)[len(given) :]:
        local[missing] = None
    run_nodes(nodes, local, inner)
    return [_read(local, o, name) if o in local else None for o in function.output]


def _body_of_schema(n: NodeProto, given: Sequence[Any], context: Context) -> FunctionProto:
    onnx: Any = files.require_onnx()
    schema = _schema(n, context)
    if schema is None or not (schema.has_function or schema.has_context_dependent_function):
        raise UnsupportedOperator(f"{node_name(n)}: neuronsim does not read the operator {n.op_type!r}")
    version = context.versions.get(_domain(n.domain), 1)
    proto: FunctionProto = onnx.FunctionProto()
    if schema.has_context_dependent_function:
        types = [
            onnx.helper.make_tensor_type_proto(files.type_number(x.dtype), x.shape).SerializeToString()
            if x is not None
            else onnx.TypeProto().SerializeToString()
            for x in given
        ]
        best = max(v for v in schema.context_dependent_function_opset_versions if v <= version)
        proto.ParseFromString(
            schema.get_context_dependent_function_with_opset_version(best, n.SerializeToString(), types)
        )
    else:
        best = max(v for v in schema.function_opset_versions if v <= version)
        proto.ParseFromString(schema.get_function_with_opset_version(best))
    return proto


def _with_references(node: NodeProto, attributes: Mapping[str, AttributeProto]) -> NodeProto:
    """A node of a function's body with the attributes of the call in the place of references."""
    if not any(a.ref_attr_name or a.HasField("g") or a.graphs for a in node.attribute):
        return node
    copied = type(node)()
    copied.CopyFrom(node)
    del copied.attribute[:]
    for a in node.attribute:
        if a.ref_attr_name:
            if a.ref_attr_name not in attributes:
                continue
            found = copied.attribute.add()
            found.CopyFrom(attributes[a.ref_attr_name])
            found.name = a.name
            continue
        found = copied.attribute.add()
        found.CopyFrom(a)
        for graph in (*([found.g] if found.HasField("g") else []), *found.graphs):
            inner = [_with_references(n, attributes) for n in graph.node]
            del graph.node[:]
            graph.node.extend(inner)
    return copied


def _attribute(a: AttributeProto, context: Context) -> Any:
    kinds = files.require_onnx().AttributeProto
    match a.type:
        case kinds.FLOAT:
            return float(a.f)
        case kinds.INT:
            return int(a.i)
        case kinds.STRING:
            return a.s.decode("utf-8", "replace")
        case kinds.FLOATS:
            return [float(v) for v in a.floats]
        case kinds.INTS:
            return [int(v) for v in a.ints]
        case kinds.STRINGS:
            return [v.decode("utf-8", "replace") for v in a.strings]
        case kinds.TENSOR:
            return files.tensor(a.t, context.folder)
        case kinds.GRAPH:
            return a.g
        case kinds.GRAPHS:
            return list(a.graphs)
    raise UnsupportedOperator(f"the attribute {a.name!r} is of a kind that neuronsim does not read")
