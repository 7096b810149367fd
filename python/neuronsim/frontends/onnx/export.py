"""A plan back in an ONNX model: casts at the borders of the nodes whose types it lowers.

A value that the plan rounds is cast to its type and back to float32, so that what runs the model
computes in float32 on values that the type holds. Products that scale or add a bias become several
nodes where the plan rounds these steps; other steps inside a node are not rounded, which is told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.casting.application.commuting import MOVES, commuted_operands
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, UnsupportedType, warn
from neuronsim.frontends.onnx.files import node_name, require_onnx, store, taken_names, type_number
from neuronsim.hlo.instruction_settings import read_settings
from neuronsim.hlo.module import Computation, Instruction, Module, Shape, fresh_name, graph_computations

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

CASTS_SINCE = 13  # the operator set whose Cast has bfloat16
_BIAS_SINCE = 11  # that whose Gemm may have none
# Operators of one product, whose first inputs are its operands.
_PRODUCTS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose"})


@dataclass
class _Types:
    """What a plan makes of a node: the types in which its steps read what others give, by the number
    of the node's input or, where that is not known, by the instruction that gives it; the types of what
    it gives; and the steps inside that the plan rounds, or sums in another type.
    """

    read: dict[int | str, set[DType]] = field(default_factory=lambda: defaultdict(set))
    given: set[DType] = field(default_factory=set)
    inside: list[str] = field(default_factory=list)

    @property
    def is_as_it_was(self) -> bool:
        types = self.given.union(*self.read.values())
        return types <= {dtypes.float32} and not self.inside


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
    parts = _split_products(found, entry, split)
    if parts:
        nodes |= parts
        borders = find_borders(original, planned, nodes)
        names |= set(parts.values())
    if not borders:
        return found
    version = _version(model)
    lowered = {t for types in borders.values() for t in types.given.union(*types.read.values())}
    if version < CASTS_SINCE and not lowered <= {dtypes.float16, dtypes.float32}:
        raise InvalidArgument(
            f"the model's operator set is {version}, and Cast has bfloat16 from {CASTS_SINCE} on: "
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


def _write_casts(model: ModelProto, borders: Mapping[str, _Types], tensors: _Tensors) -> None:
    """Add the casts to a model, and tell of those that it cannot have."""
    casts = _Casts(model, _types_of_tensors(model))
    nodes = list(model.graph.node)
    left_out: dict[str, list[str]] = {}
    del model.graph.node[:]
    for n in nodes:
        name = node_name(n)
        types = borders.get(name, _Types())
        inputs, unplaced = _casts_of_inputs(n, types, tensors)
        for at, dtype in inputs.items():
            n.input[at] = casts.of(n.input[at], dtype)
        written = _narrow(types.given)
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
        listed = [f"{name}: {steps[0]}" for name, steps in list(left_out.items())[:3]]
        more = f" and {len(left_out) - 3} more" if left_out.keys() - list(left_out)[:3] else ""
        warn(
            f"the plan's types of {sum(map(len, left_out.values()))} steps inside of {len(left_out)} "
            f"nodes are left out of the ONNX model, which computes them in float32: "
            f"{'; '.join(listed)}{more}"
        )


def _casts_of_inputs(
    n: NodeProto, types: _Types, tensors: _Tensors
) -> tuple[dict[int, DType], list[str]]:
    """The casts of a node's inputs by their numbers, and what is read narrower that is none of them."""
    everything = _narrow(set().union(*types.read.values()))
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
        dtype = _narrow(dtypes_read)
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


def _version(model: ModelProto) -> int:
    return next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)


# ---- what the plan rounds ----------------------------------------------------------------------------


def find_borders(original: Module, planned: Module, nodes: Mapping[str, str]) -> dict[str, _Types]:
    """What the plan makes of each node, but of those that it leaves as they were; `nodes` are those of
    the entry's instructions.
    """
    found: dict[str, _Types] = defaultdict(_Types)
    steps = _Steps(original, planned, nodes)
    for i in original.entry_computation.instructions:
        node = nodes[i.name]
        if not node or i.opcode in ("constant", "parameter") or not steps.is_kept(i):
            continue
        if not steps.is_move(i):
            for number, operand in enumerate(i.operands):
                steps.read(i, number, steps.sources(i, number, operand), found[node])
            if steps.is_rounded(i):
                found[node].inside.append(i.name)
        if steps.is_output(i) and _is_float32(i):
            found[node].given.add(steps.type_of(i.name))
            if steps.is_move(i):
                for leaf, dtype in steps.leaves(i.name, dtypes.float32):
                    steps.read(i, -1, [(leaf, dtype)], found[node])
    entry = original.entry
    for c in graph_computations(original):
        for i in c.instructions if c.name != entry else ():
            if i.metadata.op_name and _is_float32(i) and steps.is_kept(i) and steps.is_narrower(i):
                found[i.metadata.op_name].inside.append(i.name)
    return {node: types for node, types in found.items() if not types.is_as_it_was}


class _Steps:
    """The instructions of a module beside what a plan made of them."""

    def __init__(self, original: Module, planned: Module, nodes: Mapping[str, str]) -> None:
        self.nodes = nodes
        self.before = {i.name: i for c in graph_computations(original) for i in c.instructions}
        self.after = {i.name: i for c in graph_computations(planned) for i in c.instructions}
        self.computations = original.by_name
        self.outputs = {original.root.name}  # what others read
        self.readers: dict[str, list[str]] = defaultdict(list)
        for i in self.before.values():
            for o in i.operands:
                self.readers[o].append(i.name)
        self.computing: dict[str, int] = defaultdict(int)  # steps of a node that are no moves
        for i in original.entry_computation.instructions:
            self.outputs.update(o for o in i.operands if nodes[o] != nodes[i.name])
            self.computing[nodes[i.name]] += not self.is_move(i) and i.opcode != "constant"
        self.outputs -= {i.name for i in self.before.values() if i.opcode == "constant"}

    def is_kept(self, i: Instruction) -> bool:
        """Whether the planned module has an instruction of this name."""
        return i.name in self.after

    def is_move(self, i: Instruction) -> bool:
        """Whether it computes nothing of the values that it reads."""
        return i.opcode in MOVES and i.opcode not in ("abs", "negate")

    def is_output(self, i: Instruction) -> bool:
        """Whether others than its node read it."""
        return i.name in self.outputs

    def computes(self, i: Instruction) -> Instruction:
        """What computes a value in the planned module: it may have another name, if what rounds its
        result has its own.
        """
        p = self.after[i.name]
        if p.opcode in ("convert", "reduce-precision") and i.opcode != p.opcode:
            return self.after[p.operands[0]]
        return p

    def type_of(self, name: str) -> DType:
        """The type of a value in the planned module: of what is widened again, the narrow one."""
        i = self.after[name]
        if i.opcode == "convert" and name not in self.before and i.operands:
            source = self.after[i.operands[0]]
            if _is_float32(i) and isinstance(source.shape, Shape):
                wider = source.shape.dtype.kind == "float" and source.shape.dtype is not dtypes.float32
                return _type_of(source) if wider else dtypes.float32
        return _type_of(i)

    def reads(self, i: Instruction, number: int) -> DType:
        """The type in which an instruction reads an operand."""
        operands = self.computes(i).operands
        return self.type_of(operands[number]) if number < len(operands) else dtypes.float32

    def sources(self, i: Instruction, number: int, operand: str) -> list[tuple[Instruction, DType]]:
        """What gives an operand before the moves of its node, and the narrowest type on the way."""
        if not _is_float32(self.before[operand]):
            return []
        return list(self.leaves(operand, self.reads(i, number), self.nodes[i.name]))

    def leaves(
        self, name: str, dtype: DType, node: str | None = None
    ) -> Iterator[tuple[Instruction, DType]]:
        """What gives a value before the moves of its node, and the type in which it is read."""
        i = self.before[name]
        node = self.nodes[name] if node is None else node
        if self.nodes[name] != node or not self.is_move(i) or not self.is_kept(i):
            yield i, dtype
            return
        dtype = self.type_of(name) if dtype is dtypes.float32 else dtype
        moved = MOVES[i.opcode]
        for number in range(len(i.operands)) if moved is None else moved:
            own = self.reads(i, number)
            yield from self.leaves(i.operands[number], own if dtype is dtypes.float32 else dtype, node)

    def read(
        self, i: Instruction, number: int, sources: list[tuple[Instruction, DType]], types: _Types
    ) -> None:
        """Note what a step reads."""
        node = self.nodes[i.name]
        for source, dtype in sources:
            is_constant = source.opcode == "constant"
            is_number = is_constant and not source.array.dims
            of_product = i.metadata.op_type in _PRODUCTS and node == i.metadata.op_name and number >= 0
            if is_number and (i.opcode == "multiply" if of_product else self.computing[node] > 1):
                # It may be the operator's own, which no Cast reaches.
                if dtype is dtypes.float32 and not of_product:
                    types.read[source.name].add(dtype)  # so that not all inputs are cast
                elif not _holds(dtype, source):
                    types.inside.append(source.name)
            elif is_constant or self.nodes[source.name] != node:
                key: int | str = 2 if of_product else source.name
                key = number if of_product and i.opcode in ("dot", "convolution") else key
                types.read[key].add(dtype)
                if of_product and i.opcode == "add" and dtype is not dtypes.float32:
                    types.inside.append(i.name)  # it may be scaled before it is rounded
            elif dtype not in (dtypes.float32, self.result(source)):
                types.inside.append(i.name)

    def result(self, i: Instruction) -> DType:
        """The type that a step's result has in the planned module."""
        return self.type_of(i.name) if self.is_kept(i) else dtypes.float32

    def is_narrower(self, i: Instruction) -> bool:
        """Whether a result is narrower than it was."""
        operands = range(len(i.operands))
        narrow = {self.result(i), *(self.reads(i, n) for n in operands if self._is_wide(i, n))}
        return not narrow <= {dtypes.float32}

    def _is_wide(self, i: Instruction, number: int) -> bool:
        return _is_float32(self.before[i.operands[number]])

    def is_rounded(self, i: Instruction) -> bool:
        """Whether the plan rounds a step inside of a node: its result is not what the node gives, or it
        is read in the node too, or what it sums or draws has no place in a Cast.
        """
        settings = read_settings(self.computes(i))
        narrow = settings.accumulate not in (None, dtypes.float32)
        if narrow or settings.rounding == "stochastic" or not _is_float32(i):
            return narrow or settings.rounding == "stochastic"
        dtype = self.result(i)
        if dtype is dtypes.float32:
            return False
        numbers = commuted_operands(i, self.computations, dtype)
        wide = [n for n in range(len(i.operands)) if self._is_wide(i, n)]
        if all(n in numbers and self.reads(i, n) is dtype for n in wide) and wide:
            return False  # one of the values that it reads
        return not self._is_given(i)

    def _is_given(self, i: Instruction) -> bool:
        """Whether a step's result, perhaps moved, is what the node gives, and nothing else."""
        node, pending, seen = self.nodes[i.name], [i.name], set()
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            readers = [r for r in self.readers[name] if self.nodes[r] == node]
            if not readers and name not in self.outputs:
                return False
            if not all(self.is_move(self.before[r]) for r in readers):
                return False
            pending += readers
        return True


def _narrow(types: Set[DType]) -> DType | None:
    """The one type among these, if it is narrower than float32."""
    return next(iter(types)) if len(types) == 1 and types != {dtypes.float32} else None


def _is_float32(i: Instruction) -> bool:
    return isinstance(i.shape, Shape) and i.shape.dtype is dtypes.float32


def _type_of(i: Instruction) -> DType:
    if i.opcode == "reduce-precision":
        raise UnsupportedType(
            "ONNX has no type of this plan's reduce-precision (tfloat32): export plans of bfloat16, "
            "float16 or float8"
        )
    found = i.array.dtype if isinstance(i.shape, Shape) else dtypes.float32
    return found if found.kind == "float" else dtypes.float32  # bytes are of the quantization


def _holds(dtype: DType, constant: Instruction) -> bool:
    """Whether a type has the number of a constant."""
    number = ops.numbers(constant.attributes["literal"])
    return bool(np.array_equal(number.astype(dtype.numpy).astype(np.float32), number, equal_nan=True))


# ---- products of several steps -----------------------------------------------------------------------


def _split_products(model: ModelProto, entry: Computation, names: Set[str]) -> dict[str, str]:
    """Make the products of these nodes, which scale or add a bias, several nodes: the product, with the
    node's name, and the steps behind it. Gives the nodes' names by their instructions.
    """
    groups: dict[str, list[Instruction]] = defaultdict(list)
    for i in entry.instructions:
        if i.metadata.op_name in names:
            groups[i.metadata.op_name].append(i)
    splitter = _Splitter(model)
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for n in nodes:
        steps = splitter.steps(n, groups.get(node_name(n), ()))
        model.graph.node.extend(splitter.split(n, steps) if steps is not None else [n])
    return splitter.parts


@dataclass(frozen=True)
class _ProductSteps:
    """The instructions of a product's node: of the product itself, of its scaling, of its bias's, and
    of their sum.
    """

    product: Instruction
    scaled: tuple[str, ...]
    bias: tuple[str, ...]
    sum: tuple[str, ...]


class _Splitter:
    """The nodes and tensors that stand for the steps of products."""

    def __init__(self, model: ModelProto) -> None:
        self.model = model
        self.version = _version(model)
        self.parts: dict[str, str] = {}
        self._taken = taken_names(model.graph)

    def steps(self, n: NodeProto, group: Sequence[Instruction]) -> _ProductSteps | None:
        """The steps of a node, if it is a product that can be several nodes."""
        if n.domain not in ("", "ai.onnx") or n.op_type not in ("Gemm", "Conv", "ConvTranspose"):
            return None
        if n.op_type == "Gemm" and self.version < _BIAS_SINCE:
            return None
        computing = [i for i in group if i.opcode not in MOVES and i.opcode != "constant"]
        products = [i for i in computing if i.opcode in ("dot", "convolution")]
        adds = [i for i in computing if i.opcode == "add"]
        others = [i for i in computing if i.opcode not in ("dot", "convolution", "add", "multiply")]
        if len(products) != 1 or len(adds) > 1 or others or not all(map(_is_float32, computing)):
            return None
        behind = {products[0].name}  # the product, and what is computed of it
        for i in group:
            if behind.intersection(i.operands):
                behind.add(i.name)
        scales = [i for i in computing if i.opcode == "multiply"]
        before = {i.name: i for i in group}
        ends = {i.name for i in group if i.opcode != "constant"} - {
            o for i in group for o in i.operands
        }
        if ends != {i.name for i in (adds or [i for i in scales if i.name in behind])[-1:]}:
            return None  # more than these steps

        def feeding(step: Instruction) -> tuple[str, ...]:
            """A step and the moves and numbers that only lead to it."""
            found, pending = [step.name], list(step.operands)
            while pending:
                name = pending.pop()
                if name in before and before[name].opcode in {*MOVES, "constant"}:
                    found.append(name)
                    pending += before[name].operands
            return tuple(found)

        scaled = tuple(x for i in scales if i.name in behind for x in feeding(i))
        bias = tuple(x for i in scales if i.name not in behind for x in feeding(i))
        added = tuple(x for i in adds for x in feeding(i))
        return _ProductSteps(products[0], scaled, bias, added)

    def split(self, n: NodeProto, steps: _ProductSteps) -> list[NodeProto]:
        """The nodes in the place of one."""
        onnx: Any = require_onnx()
        make, name = onnx.helper.make_node, node_name(n)
        result, bias = n.output[0], n.input[2] if len(n.input) > 2 else ""
        factors = {a.name: float(a.f) for a in n.attribute if a.name in ("alpha", "beta")}
        factors = factors if n.op_type == "Gemm" else {}
        kept = [a for a in n.attribute if a.name not in factors]
        del n.attribute[:], n.input[2:]
        n.attribute.extend(kept)
        n.name = name  # it may have had none
        found = [n]

        def step(operator: str, operands: list[str], what: str, own: tuple[str, ...]) -> str:
            """The tensor of a further node."""
            label, tensor = self._fresh(f"{name}.{what}"), self._fresh(f"{result}.{what}")
            found.append(make(operator, operands, [tensor], name=label))
            self.parts |= dict.fromkeys(own, label)
            return tensor

        n.output[0] = self._fresh(f"{result}.product")
        last = n.output[0]
        alpha, beta = factors.get("alpha", 1.0), factors.get("beta", 1.0)
        if alpha != 1:
            number = store(self.model, f"{name}.alpha", np.array(alpha, np.float32), self._taken)
            last = step("Mul", [last, number], "scaled", steps.scaled)
        if bias and beta != 0:
            if n.op_type != "Gemm":
                dims = [-1] + [1] * (len(steps.product.array.dims) - 2)
                shape = store(self.model, f"{name}.shape", np.array(dims, np.int64), self._taken)
                bias = step("Reshape", [bias, shape], "channels", ())
            elif beta != 1:
                number = store(self.model, f"{name}.beta", np.array(beta, np.float32), self._taken)
                bias = step("Mul", [bias, number], "bias", steps.bias)
            last = step("Add", [last, bias], "sum", steps.sum)
        found[-1].output[0] = result
        return found

    def _fresh(self, name: str) -> str:
        return fresh_name(name, self._taken)


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
        return [
            make("Cast", [tensor], [low], name=self._fresh(f"{low}.to"), to=type_number(dtype)),
            make("Cast", [low], [result], name=self._fresh(f"{low}.back"), to=number),
        ]

    def _fresh(self, name: str) -> str:
        return fresh_name(name, self._taken)
