"""Graphs of ONNX run node by node on arrays, traced or known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from neuronsim.arrays.array_object import Array
from neuronsim.errors import (
    REFUSALS,
    InvalidModel,
    NeuronSimError,
    OutOfMemory,
    UnknownValue,
    UnsupportedOperator,
    first_few,
    nearest,
)
from neuronsim.frontends.onnx import files, operators
from neuronsim.frontends.onnx.carried import Carried, CarriedArray, carried, element_of
from neuronsim.frontends.onnx.files import node_name
from neuronsim.frontends.onnx.table import ONNX, Node, Row, lookup
from neuronsim.frontends.recorder import in_scope
from neuronsim.hlo.module import Metadata, sort_by_dependency

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto

MAX_DEPTH = 50  # of functions and subgraphs inside each other
# Runs of nodes: so many, and for each node of the file so many more. Functions that call each other
# twice, and loops of known steps, would make endless work of a small file.
FREE_RUNS, RUNS_EACH = 20_000, 100
MAX_COPIED = 1 << 28  # bytes of functions' bodies, with the attributes of their calls
# What Python, NumPy and onnx raise for inputs and attributes that do not fit.
_MISFITS = (*REFUSALS, ArithmeticError, AssertionError, LookupError)


@dataclass
class Budget:
    """How much work a model may still make."""

    runs: int = FREE_RUNS
    copied: int = MAX_COPIED

    def spend(self, *, runs: int = 0, copied: int = 0) -> None:
        """Raises UnsupportedOperator when it is used up."""
        self.runs -= runs
        self.copied -= copied
        if self.runs < 0 or self.copied < 0:
            raise UnsupportedOperator(
                "the model's functions and loops of known steps run its nodes too often to be spelled "
                f"out: neuronsim runs each up to {RUNS_EACH} times, and {FREE_RUNS} more in all"
            )


@dataclass(frozen=True)
class Context:
    """What the nodes of a model have in common: the versions of its domains, its own functions, the
    folder of its tensors; the names around a node, and how deeply it lies.
    """

    versions: Mapping[str, int]
    functions: Mapping[tuple[str, str], FunctionProto]
    folder: files.Folder | None = None
    prefix: str = ""
    depth: int = 0
    outer: Mapping[str, Any] = field(default_factory=dict)  # arrays of the graphs around
    budget: Budget = field(default_factory=Budget)

    def inside(self, prefix: str, outer: Mapping[str, Any]) -> Context:
        """The context of a function's or a subgraph's nodes."""
        _check_depth(self.depth + 1)
        return replace(self, prefix=prefix, depth=self.depth + 1, outer=outer)


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise InvalidModel(f"functions and subgraphs are nested deeper than {MAX_DEPTH}")


def context_of(model: ModelProto, folder: files.Folder | None) -> Context:
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


def _in_function(function: FunctionProto, context: Context) -> Context:
    """The context of a function's nodes: with its own versions of the domains."""
    own = {_domain(o.domain): o.version for o in function.opset_import}
    return replace(context, versions={**context.versions, **own})


OLDEST = 1


def _domain(name: str) -> str:
    return ONNX if name == "ai.onnx" else name


def check_operators(graph: GraphProto, context: Context) -> None:
    """Raises UnsupportedOperator that lists every operator of a graph, and of the functions that it
    calls, that has no row, and where; InvalidModel for a function that calls itself.
    """
    survey = _Survey()
    survey.look(graph.node, context, "")
    context.budget.runs += RUNS_EACH * survey.nodes
    if survey.missing:
        listed = "; ".join(
            f"{name} ({first_few(places, 3)}){nearest(name.rpartition('.')[2], operators.NAMES)}"
            for name, places in sorted(survey.missing.items())
        )
        raise UnsupportedOperator(
            f"the model has operators that neuronsim does not read: {listed}. docs/onnx.md lists those "
            "that it does: export the model without them, or compute them outside"
        )


@dataclass
class _Survey:
    """What a look at all nodes finds: the operators that have no row, and where; how many there are."""

    missing: dict[str, list[str]] = field(default_factory=dict)
    nodes: int = 0
    seen: dict[tuple[str, str], bool] = field(default_factory=dict)  # functions: False inside of them

    def look(self, nodes: Sequence[NodeProto], context: Context, prefix: str, depth: int = 0) -> None:
        """At nodes, their subgraphs and the functions that they call."""
        _check_depth(depth)
        for n in nodes:
            files.check_text((n.op_type, n.domain, n.name, *n.input, *n.output), "a node")
            self.nodes += 1
            domain = _domain(n.domain)
            if _row(n, context) is None:
                if (domain, n.op_type) in context.functions:
                    self._look_inside((domain, n.op_type), context, depth)
                elif not _has_body(n, context):
                    name = f"{domain}.{n.op_type}" if domain else n.op_type
                    self.missing.setdefault(name, []).append(prefix + node_name(n))
            for a in n.attribute:
                files.check_text((a.name, a.ref_attr_name), "an attribute")
                for graph in files.graphs_of(a):
                    files.check_graph(graph)
                    self.look(graph.node, context, f"{prefix}{node_name(n)}/", depth + 1)

    def _look_inside(self, called: tuple[str, str], context: Context, depth: int) -> None:
        if self.seen.get(called) is False:
            raise InvalidModel(f"the function {called[1]!r} of the domain {called[0]!r} calls itself")
        if called not in self.seen:
            self.seen[called] = False
            function = context.functions[called]
            inner = _in_function(function, context)
            self.look(function.node, inner, f"{function.name}/", depth + 1)
            self.seen[called] = True


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


# ---- running ----------------------------------------------------------------------------------------


def run_graph(graph: GraphProto, inputs: Mapping[str, Any], context: Context) -> list[Any]:
    """The outputs of a graph for its inputs by name, None of optional ones without an element."""
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
    context.budget.spend(runs=len(nodes))
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
    labels = [f"{node_name(n)} ({n.op_type}, number {at})" for at, n in enumerate(nodes)]
    places = {label: at for at, label in enumerate(labels)}
    order = sort_by_dependency(
        labels,
        lambda label: [labels[producers[i]] for i in nodes[places[label]].input if i in producers],
        "the node",
    )
    return [nodes[places[label]] for label in order]


def _read(values: Mapping[str, Any], name: str, reader: str) -> Any:
    if name not in values:
        raise InvalidModel(f"{reader} reads {name!r}, which nothing gives")
    return values[name]


def _run_node(
    n: NodeProto, given: Sequence[Any], values: Mapping[str, Any], context: Context
) -> Sequence[Any]:
    domain, name = _domain(n.domain), context.prefix + node_name(n)
    row = _row(n, context)
    if row is None:
        return _run_body(n, given, context)
    inner = context.inside(f"{name}/", values)

    def run_subgraph(graph: GraphProto, inputs: Sequence[Any]) -> list[Any]:
        named = dict(zip((i.name for i in graph.input), inputs, strict=False))
        return run_graph(graph, named, inner)

    version = context.versions.get(domain, 1)
    try:
        attributes = {a.name: _attribute(a, context) for a in n.attribute}
        node = Node(n.op_type, name, version, domain, attributes, tuple(n.output), run_subgraph)
        found = row.function(node, *given)
    except UnknownValue as error:
        error.reader = error.reader or f"{name} ({n.op_type})"
        raise
    except NeuronSimError as error:
        if str(error).startswith(f"{name}/"):  # of a node inside, which is named
            raise
        raise type(error)(f"{name} ({n.op_type}): {error}") from error
    except MemoryError as error:
        raise OutOfMemory(f"{name} ({n.op_type}): {error}") from error
    except _MISFITS as error:
        uncalled = error.__traceback__ is not None and error.__traceback__.tb_next is None
        if isinstance(error, TypeError) and uncalled:
            text = f"{name} ({n.op_type}) does not take {len(given)} inputs"
        else:
            text = f"{name} ({n.op_type}): its inputs or attributes do not fit: {error}"
        raise InvalidModel(text) from error
    outputs = found if isinstance(found, list | tuple) else (found,)
    if any(isinstance(x, CarriedArray) for x in given):
        return _of_the_inputs_types(_schema(n, context), given, outputs)
    return outputs


def _of_the_inputs_types(schema: Any, given: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    """A node's outputs, which stand for elements of the type that an input of the same type variable
    has: what a node moves is plain arrays to its function.
    """
    if schema is None:
        return list(outputs)

    def variable(formal: Any, at: int) -> str | None:
        own = formal[min(at, len(formal) - 1)]
        return str(own.type_str) if own.is_homogeneous else None  # a loop's states have their own

    elements = {
        variable(schema.inputs, at): x.element
        for at, x in enumerate(given)
        if isinstance(x, CarriedArray)
    }
    elements.pop(None, None)
    found = list(outputs)
    for at, x in enumerate(found):
        element = elements.get(variable(schema.outputs, at))
        if element is not None and _is_plain(x, element):
            found[at] = carried(x, element)
    return found


def _is_plain(x: Any, element: Carried) -> bool:
    return type(x) is Array and x.dtype is element.carrier


def _run_body(n: NodeProto, given: Sequence[Any], context: Context) -> Sequence[Any]:
    """A function of the model's own, or the body that ONNX gives an operator."""
    domain, name = _domain(n.domain), context.prefix + node_name(n)
    function = context.functions.get((domain, n.op_type))
    if function is None:
        try:
            function = _body_of_schema(n, given, context)
        except NeuronSimError:
            raise
        except Exception as error:  # onnx's own, of several kinds
            raise InvalidModel(f"{name} ({n.op_type}): {error}") from error
    set_by_node = {a.name: a for a in n.attribute}
    defaults = {a.name: a for a in function.attribute_proto}
    if (domain, n.op_type) not in context.functions:
        own = _schema(n, context).attributes.values()
        defaults |= {a.name: a.default_value for a in own if a.default_value.name}
    inner = _in_function(function, context.inside(f"{name}/", {}))
    nodes = []
    for body in function.node:
        nodes.append(_with_references(body, {**defaults, **set_by_node}))
        if nodes[-1] is not body:
            context.budget.spend(copied=nodes[-1].ByteSize())
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
            onnx.helper.make_tensor_type_proto(
                files.type_number(element_of(x)), x.shape
            ).SerializeToString()
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
    if not any(a.ref_attr_name or files.graphs_of(a) for a in node.attribute):
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
        for graph in files.graphs_of(found):
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
        case kinds.TYPE_PROTO:
            return a.tp
        case kinds.GRAPHS:
            return list(a.graphs)
    raise UnsupportedOperator(f"the attribute {a.name!r} is of a kind that neuronsim does not read")
