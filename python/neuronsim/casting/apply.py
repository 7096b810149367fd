"""Applying a plan: the module rewritten with converts at the borders, each shared by its readers.

Parameters and results of the entry computation and of branches keep the model's types, and so do
tuples: a value that was rounded is the same in float32 (A2). A loop carries what its decision says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeAlias

from neuronsim import dtypes
from neuronsim.casting.conversions import carrier, convert, retyped, short_name, works_on_float32
from neuronsim.casting.plan import Plan, check_plan
from neuronsim.casting.policy import Decision
from neuronsim.casting.scalars import retype_scalars
from neuronsim.dtypes import DType
from neuronsim.hlo.module import (
    AnyShape,
    Computation,
    Instruction,
    Module,
    Shape,
    TupleShape,
    fresh_name,
    graph_computations,
    inline_calls,
)
from neuronsim.hlo.opcodes import APPLIES_SCALARS, row

# The planned type of a value: of an array, or of each element of a tuple.
Planned: TypeAlias = "DType | tuple[Planned, ...]"


def apply_plan(module: Module, plan: Plan) -> Module:
    """The module, inlined, with every decision of the plan written out. Raises InvalidArgument if the
    plan does not fit the module.
    """
    check_plan(plan, module)
    flat = inline_calls(module)
    if not plan.decisions:
        return flat
    shared = _Shared(flat, _carried(flat, plan.decisions))
    rewritten = {c.name: _Rewriter(c, plan.decisions, shared).run() for c in graph_computations(flat)}
    computations = (rewritten.get(c.name, c) for c in flat.computations)
    return dataclasses.replace(flat, computations=(*shared.new_computations(), *computations))


def _carried(module: Module, decisions: Mapping[str, Decision]) -> dict[str, DType]:
    """The types in which loops carry float32 values, by the names of their bodies and conditions: one
    for each, as `check_plan` made sure.
    """
    return {
        name: decisions[i.name].output
        for c in graph_computations(module)
        for i in c.instructions
        if i.opcode == "while" and i.name in decisions
        for name in i.called
    }


class _Shared:
    """What the computations of a module share: its names, and computations of scalars in other types,
    each made once.
    """

    def __init__(self, module: Module, carried: Mapping[str, DType]) -> None:
        self.by_name = module.by_name
        self.carried = carried
        self.taken = {i.name for c in module.computations for i in c.instructions} | set(module.by_name)
        self.scalars: dict[tuple[str, str, DType], Computation] = {}

    def fresh(self, name: str) -> str:
        return fresh_name(name, self.taken)

    def retyped(self, name: str, opcode: str, dtype: DType) -> str:
        """The name of a computation that an instruction with this opcode applies, in another type."""
        if dtype is dtypes.float32:
            return name
        # Only tfloat32 depends on what applies the computation.
        key = (name, opcode if dtype is dtypes.tfloat32 else "", dtype)
        if key not in self.scalars:
            self.scalars[key] = retype_scalars(self.by_name[name], opcode, dtype, self.fresh)
        return self.scalars[key].name

    def new_computations(self) -> list[Computation]:
        return [c for c in self.scalars.values() if c.name not in self.by_name]


class _Rewriter:
    """Builds one computation anew in one pass over the old."""

    def __init__(
        self,
        computation: Computation,
        decisions: Mapping[str, Decision],
        shared: _Shared,
    ) -> None:
        self.computation = computation
        self.decisions = decisions
        self.shared = shared
        self.body: dict[str, Instruction] = {}
        self.types: dict[str, Planned] = {}
        self.tuples: dict[str, Instruction] = {}  # as the model makes them
        self.planned: dict[str, str] = {}  # tuples in the types that their elements are planned in
        self.made: dict[tuple[str, tuple[str, ...]], str] = {}  # tuples by their elements
        self.converted: dict[tuple[str, object], str] = {}  # by type, a tuple by those of its arrays

    def run(self) -> Computation:
        old = self.computation
        carried = self.shared.carried.get(old.name)
        if carried is None and not any(i.name in self.decisions for i in old.instructions):
            return old
        for i in old.instructions:
            decision = self.decisions.get(i.name)
            if i.opcode == "get-tuple-element":
                self._take(i)
            elif i.opcode == "parameter" and carried is not None:
                self._receive(i, carried)
            elif i.opcode == "while":
                self._loop(i)
            elif i.opcode == "tuple":
                self.tuples[i.name] = i  # made where its readers say of which types
            elif decision is None or i.opcode == "constant":
                self._keep(i)
            else:
                self._lower(i, decision)
        result = retyped(old.by_name[old.root].shape, carrier(carried or dtypes.float32))
        root = self._in_types_of(old.root, result)
        return Computation(old.name, tuple(self.body.values()), root)

    def _emit(self, i: Instruction, planned: Planned) -> str:
        self.body[i.name] = i
        self.types[i.name] = planned
        return i.name

    def _keep(self, i: Instruction) -> None:
        """An instruction that the plan leaves alone reads its operands in the model's types."""
        operands = tuple(map(self._in_model_types, i.operands))
        self._emit(i if operands == i.operands else i.replace(operands=operands), _own_types(i.shape))

    def _receive(self, i: Instruction, carried: DType) -> None:
        """The parameter of a loop's body or condition."""
        self._emit(i.replace(shape=retyped(i.shape, carrier(carried))), _planned(i.shape, carried))

    def _loop(self, i: Instruction) -> None:
        """A loop carries its values in the type that its body and condition take."""
        carried = self.shared.carried.get(i.called[0], dtypes.float32)
        shape = retyped(i.shape, carrier(carried))
        operand = self._in_types_of(i.operands[0], shape)
        self._emit(i.replace(operands=(operand,), shape=shape), _planned(i.shape, carried))

    def _take(self, i: Instruction) -> None:
        """An element of a tuple has the type that it has there."""
        source = self._as_planned(i.operands[0])
        shape = self.body[source].shape
        planned = self.types[source]
        assert isinstance(shape, TupleShape)
        assert isinstance(planned, tuple)
        index = i.attributes["tuple_index"]
        element = shape.elements[index]
        same = [s.dtype for s in element.arrays()] == [s.dtype for s in i.shape.arrays()]
        taken = i.replace(operands=(source,), shape=i.shape if same else element)
        self._emit(taken, planned[index])

    def _as_planned(self, name: str) -> str:
        """The name of a value in the types that it is planned in: a tuple's are its elements'."""
        if name in self.tuples and name not in self.planned:
            elements = tuple(map(self._as_planned, self.tuples[name].operands))
            self.planned[name] = self._tuple(name, elements)
        return self.planned.get(name, name)

    def _tuple(self, name: str, elements: tuple[str, ...]) -> str:
        """The name of a tuple with these for its elements: the first that is made keeps its own."""
        key = (name, elements)
        if key not in self.made:
            own = name if name not in self.body else self.shared.fresh(f"{name}.cast")
            shape = TupleShape(tuple(self.body[e].shape for e in elements))
            made = self.tuples[name].replace(name=own, operands=elements, shape=shape)
            self.made[key] = self._emit(made, tuple(self.types[e] for e in elements))
        return self.made[key]

    def _element(self, source: str, index: int) -> str:
        """The name of a new instruction that takes an element of a tuple."""
        shape = self.body[source].shape
        planned = self.types[source]
        assert isinstance(shape, TupleShape)
        assert isinstance(planned, tuple)
        name = self.shared.fresh(f"{source}.{index}")
        attributes = {"tuple_index": index}
        taken = Instruction(name, "get-tuple-element", shape.elements[index], (source,), attributes)
        return self._emit(taken, planned[index])

    def _in_model_types(self, name: str) -> str:
        """The name of this value in the types that the model gives it."""
        return self._in_types_of(name, self.computation.by_name[name].shape)

    def _in_types_of(self, name: str, shape: AnyShape) -> str:
        if isinstance(shape, Shape):
            return self._as(name, shape.dtype)
        if name in self.tuples:
            elements = zip(self.tuples[name].operands, shape.elements, strict=True)
            return self._tuple(name, tuple(self._in_types_of(o, e) for o, e in elements))
        types = tuple(s.dtype for s in shape.arrays())
        if types == tuple(s.dtype for s in self.body[name].shape.arrays()):
            return name
        key = (name, types)
        if key not in self.converted:
            parts = [(self._element(name, n), e) for n, e in enumerate(shape.elements)]
            cast = tuple(self._in_types_of(part, e) for part, e in parts)
            whole = Instruction(self.shared.fresh(f"{name}.cast"), "tuple", shape, cast)
            self.converted[key] = self._emit(whole, _own_types(shape))
        return self.converted[key]

    def _as(self, name: str, wanted: DType) -> str:
        """The name of this array in another float type, converted where it is read first."""
        have = self.types[name]
        assert isinstance(have, DType)
        if have is wanted or wanted.kind != "float" or have.kind != "float":
            return name
        if carrier(wanted) is carrier(have) and wanted is dtypes.float32:
            return name  # every tfloat32 is a float32
        key = (name, wanted)
        if key not in self.converted:
            new = self.shared.fresh(f"{name}.to_{short_name(wanted)}")
            self.converted[key] = self._emit(convert(new, name, self.body[name].array, wanted), wanted)
        return self.converted[key]

    def _operand(self, name: str, dtype: DType, *, wide: bool) -> str:
        if not _is_float32(self.computation.by_name[name].shape):
            return self._in_model_types(name)
        rounded = self._as(name, dtype)
        return self._as(rounded, dtypes.float32) if wide else rounded

    def _lower(self, i: Instruction, d: Decision) -> None:
        wide = _runs_in_float32(i, d)
        read, given = (dtypes.float32, dtypes.float32) if wide else (d.operand, carrier(d.output))
        operands = tuple(self._operand(o, d.operand, wide=wide) for o in i.operands)
        lowered = i.replace(operands=operands, shape=retyped(i.shape, given))
        if i.opcode in APPLIES_SCALARS:
            called = tuple(self.shared.retyped(n, i.opcode, read) for n in i.called)
            lowered = lowered.replace(attributes={**i.attributes, "called": called})
        planned = _planned(i.shape, d.output)
        if _rounds_on_store(i, d, wide=wide):
            self._emit_rounded(lowered, d.output, planned)
        else:
            self._emit(lowered, planned)

    def _emit_rounded(self, i: Instruction, dtype: DType, planned: Planned) -> None:
        """The instruction under another name, and its float32 results rounded (E1) under its own."""
        raw = i.replace(name=self.shared.fresh(f"{i.name}.f32"))
        self._emit(raw, _own_types(raw.shape))
        if isinstance(raw.shape, Shape):
            rounded = convert(i.name, raw.name, raw.shape, dtype)
        else:
            parts = []
            for n, e in enumerate(raw.shape.elements):
                part = self._element(raw.name, n)
                parts.append(self._as(part, dtype) if _is_float32(e) else part)
            elements = tuple(self.body[p].shape for p in parts)
            rounded = Instruction(i.name, "tuple", TupleShape(elements), tuple(parts))
        self._emit(rounded.replace(metadata=i.metadata), planned)


def _is_float32(shape: AnyShape) -> bool:
    return isinstance(shape, Shape) and shape.dtype is dtypes.float32


def _gives_float32(i: Instruction) -> bool:
    return any(s.dtype is dtypes.float32 for s in i.shape.arrays())


def _runs_in_float32(i: Instruction, d: Decision) -> bool:
    """Whether it reads the rounded operands as float32 and its result is rounded after it (E1): where
    its meaning hangs on float32, or it has no form with two types. Products and converts do have one.
    """
    two_types = _gives_float32(i) and carrier(d.operand) is not carrier(d.output)
    has_form = i.opcode == "convert" or row(i).cast == "matmult"
    return works_on_float32(i) or (two_types and not has_form)


def _rounds_on_store(i: Instruction, d: Decision, *, wide: bool) -> bool:
    """Whether a float32 result needs an instruction that rounds it to the planned type."""
    if d.output is dtypes.float32 or not _gives_float32(i):
        return False
    moved = row(i).cast == "movement" and d.operand is d.output
    return wide or (d.output is dtypes.tfloat32 and not moved)


def _planned(shape: AnyShape, dtype: DType) -> Planned:
    """The planned types of a result whose float32 arrays are this type."""
    if isinstance(shape, Shape):
        return dtype if shape.dtype is dtypes.float32 else shape.dtype
    return tuple(_planned(e, dtype) for e in shape.elements)


def _own_types(shape: AnyShape) -> Planned:
    return _planned(shape, dtypes.float32)
