"""What a plan makes of the nodes of an ONNX model: the types in which each reads its inputs and gives
its results, and the steps inside of it that the plan rounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.casting.application.commuting import MOVES, commuted_operands
from neuronsim.dtypes import DType
from neuronsim.errors import UnsupportedType
from neuronsim.hlo.instruction_settings import read_settings
from neuronsim.hlo.module import Instruction, Module, Shape, graph_computations

# Operators of one product, whose first inputs are its operands.
_PRODUCTS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose"})


@dataclass
class NodeTypes:
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


def find_borders(original: Module, planned: Module, nodes: Mapping[str, str]) -> dict[str, NodeTypes]:
    """What the plan makes of each node, but of those that it leaves as they were; `nodes` are those of
    the entry's instructions.
    """
    found: dict[str, NodeTypes] = defaultdict(NodeTypes)
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
        if steps.is_output(i) and is_float32(i):
            found[node].given.add(steps.type_of(i.name))
            if steps.is_move(i):
                for leaf, dtype in steps.leaves(i.name, dtypes.float32):
                    steps.read(i, -1, [(leaf, dtype)], found[node])
    entry = original.entry
    for c in graph_computations(original):
        for i in c.instructions if c.name != entry else ():
            if i.metadata.op_name and is_float32(i) and steps.is_kept(i) and steps.is_narrower(i):
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
            if is_float32(i) and isinstance(source.shape, Shape):
                wider = source.shape.dtype.kind == "float" and source.shape.dtype is not dtypes.float32
                return _type_of(source) if wider else dtypes.float32
        return _type_of(i)

    def reads(self, i: Instruction, number: int) -> DType:
        """The type in which an instruction reads an operand."""
        operands = self.computes(i).operands
        return self.type_of(operands[number]) if number < len(operands) else dtypes.float32

    def sources(self, i: Instruction, number: int, operand: str) -> list[tuple[Instruction, DType]]:
        """What gives an operand before the moves of its node, and the narrowest type on the way."""
        if not is_float32(self.before[operand]):
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
        self, i: Instruction, number: int, sources: list[tuple[Instruction, DType]], types: NodeTypes
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
        return is_float32(self.before[i.operands[number]])

    def is_rounded(self, i: Instruction) -> bool:
        """Whether the plan rounds a step inside of a node: its result is not what the node gives, or it
        is read in the node too, or what it sums or draws has no place in a Cast.
        """
        settings = read_settings(self.computes(i))
        narrow = settings.accumulate not in (None, dtypes.float32)
        if narrow or settings.rounding == "stochastic" or not is_float32(i):
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


def narrow_type(types: Set[DType]) -> DType | None:
    """The one type among these, if it is narrower than float32."""
    return next(iter(types)) if len(types) == 1 and types != {dtypes.float32} else None


def is_float32(i: Instruction) -> bool:
    """Whether what an instruction gives is an array of float32."""
    return isinstance(i.shape, Shape) and i.shape.dtype is dtypes.float32


def _type_of(i: Instruction) -> DType:
    if i.opcode == "reduce-precision":
        raise UnsupportedType(
            "ONNX has no type of this plan's reduce-precision (tfloat32): export casts to bfloat16 "
            "or float16"
        )
    found = i.array.dtype if isinstance(i.shape, Shape) else dtypes.float32
    return found if found.kind == "float" else dtypes.float32  # bytes are of the quantization


def _holds(dtype: DType, constant: Instruction) -> bool:
    """Whether a type has the number of a constant."""
    number = ops.numbers(constant.attributes["literal"])
    return bool(np.array_equal(number.astype(dtype.numpy).astype(np.float32), number, equal_nan=True))
