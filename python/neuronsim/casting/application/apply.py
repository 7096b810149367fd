"""Applying a plan: the module rewritten with converts at the borders.

Parameters and results of the entry computation and of branches keep the model's types, and so do
tuples: a value that was rounded is the same in float32 (A2). A loop carries what its decision says.
What HLO's types cannot say stands in the frontend attributes of the instruction that it is about, the
reason in those of the instruction that has the decided one's name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from neuronsim import dtypes
from neuronsim.casting.application.commuting import commuted_operands
from neuronsim.casting.application.convert_merging import converted_bytes, merge_converts
from neuronsim.casting.application.quantizing import write_quantizations
from neuronsim.casting.application.scalars import retype_scalars
from neuronsim.casting.application.type_choice import (
    Planned,
    choose_types,
    may_convert_more,
    planned_as,
)
from neuronsim.casting.conversions import (
    UNROUNDED,
    carrier,
    convert,
    retyped,
    short_name,
    travels_in_float32,
    works_on_float32,
)
from neuronsim.casting.decisions.biases import find_biases
from neuronsim.casting.decisions.checks import check_plan
from neuronsim.casting.decisions.loops import decisions_of_loops
from neuronsim.casting.decisions.record import Decision, PlanRecord
from neuronsim.casting.policies.policy import Rounding
from neuronsim.casting.value_sets import contains
from neuronsim.dtypes import DType
from neuronsim.hlo.inlining import FlatModule, inline_calls
from neuronsim.hlo.instruction_settings import PREFIX
from neuronsim.hlo.module import (
    Alias,
    AnyShape,
    Computation,
    Instruction,
    Module,
    Shape,
    TupleShape,
    fresh_name,
    graph_computations,
)
from neuronsim.hlo.opcodes import APPLIES_SCALARS, row


def apply_plan(
    module: Module, plan: PlanRecord, clean: bool = True, requantize: str = "float32"
) -> FlatModule:
    """The module, inlined, with every decision of the plan written out. Raises InvalidArgument if the
    plan does not fit the module.

    A clean application has one convert for all readers of a value in one type. The literal one (`clean`
    is false) has one in front of each reader, but for what is given: constants and the entry's
    parameters are converted once (A2). They compute the same bits unless converts draw words of their
    own (S2): a plan that says so of any instruction is applied literally whatever `clean` is, and
    callers whose profile rounds stochastically take the literal application. There a convert is named
    after its reader, and draws the same words whatever the plan decides elsewhere. `requantize` is the
    profile's field (Q3).
    """
    check_plan(plan, module)
    flat = inline_calls(module)
    clean = clean and all(d.rounding != "stochastic" for d in plan.decisions.values())  # S2
    quantized = {n: d for n, d in plan.decisions.items() if d.quantizes}
    if not quantized:
        return _cast(flat, plan.decisions, plan.keep_output_type, clean)
    only = len(quantized) == len(plan.decisions)
    # What is quantized is decided as float32 until then: no cast moves in front of it.
    found = flat if only else _cast(flat, plan.decisions, plan.keep_output_type, clean)
    biased = {n for n, d in quantized.items() if d.bias}
    biases = {n: b for c in graph_computations(flat) for n, b in find_biases(c, biased).items()}
    return write_quantizations(found, quantized, biases, clean=clean, requantize=requantize)


def _cast(flat: FlatModule, decisions: Mapping[str, Decision], keep: bool, clean: bool) -> FlatModule:
    """The module with the decisions on float types written out."""
    if not decisions:
        return flat
    if not clean:
        return _rewritten(flat, decisions, keep, clean=False)
    chosen = choose_types(flat, decisions, keep_output_type=keep)
    found = merge_converts(_rewritten(flat, chosen, keep, clean=True))
    if chosen == decisions or not may_convert_more(decisions):
        return found
    own = merge_converts(_rewritten(flat, decisions, keep, clean=True))
    return min(found, own, key=converted_bytes)


def _rewritten(
    flat: FlatModule, decisions: Mapping[str, Decision], keep: bool, *, clean: bool
) -> FlatModule:
    """The module with these decisions written out."""
    shared = _Shared(flat, decisions, keep, clean)
    rewritten = {c.name: _Rewriter(c, decisions, shared).run() for c in graph_computations(flat)}
    computations = (rewritten.get(c.name, c) for c in flat.computations)
    planned = dataclasses.replace(flat, computations=(*shared.new_computations(), *computations))
    return FlatModule(planned if keep else _with_own_outputs(planned))


def _with_own_outputs(module: Module) -> Module:
    """The module with the entry's layout, and what lies in an input's memory, by the types that its
    results have now.
    """
    root = module.root.shape
    types = [s.dtype for s in root.arrays()]
    layout = module.entry_layout
    if layout is not None:
        layout = layout[0], _typed(layout[1], iter(types))
    parameters = [p.shape for p in module.parameters]

    def fits(alias: Alias) -> bool:
        path, number, inside, _ = alias
        given, result = _inside(parameters[number], inside), _inside(root, path)
        return [s.type for s in given.arrays()] == [s.type for s in result.arrays()]

    aliases = tuple(filter(fits, module.input_output_alias))
    return dataclasses.replace(module, entry_layout=layout, input_output_alias=aliases)


def _typed(shape: AnyShape, types: Iterator[DType]) -> AnyShape:
    """The shape with these element types, in order."""
    if isinstance(shape, Shape):
        return dataclasses.replace(shape, dtype=next(types))
    return dataclasses.replace(shape, elements=tuple(_typed(e, types) for e in shape.elements))


def _inside(shape: AnyShape, path: tuple[int, ...]) -> AnyShape:
    for index in path:
        assert isinstance(shape, TupleShape)
        shape = shape.elements[index]
    return shape


class _Shared:
    """What the computations of a module share: its names, computations of scalars in other types, each
    made once, and how the plan is applied.
    """

    def __init__(
        self, module: Module, decisions: Mapping[str, Decision], keep_output_type: bool, clean: bool
    ) -> None:
        self.by_name = module.by_name
        self.entry = module.entry
        self.carried = decisions_of_loops(module, decisions)
        self.draws = any(d.rounding == "stochastic" for d in decisions.values())
        self.keep_output_type = keep_output_type
        self.clean = clean
        self.taken = {i.name for i in module.instructions} | set(module.by_name)
        self.scalars: dict[tuple[str, str, DType], Computation] = {}

    def fresh(self, name: str) -> str:
        return fresh_name(name, self.taken)

    def retyped(self, name: str, opcode: str, dtype: DType) -> str:
        """The name of a computation that an instruction with this opcode applies, in another type."""
        if dtype is dtypes.float32:
            return name
        # Only what is rounded in float32 depends on what applies the computation.
        key = (name, opcode if travels_in_float32(dtype) else "", dtype)
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
        # By type, a tuple by those of its arrays, and rounding.
        self.converted: dict[tuple[str, object, Rounding], str] = {}
        self.taken: dict[tuple[str, int], str] = {}  # elements of tuples, by number

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
                self._keep(i if decision is None else _stating(i, reason=decision.reason))
            else:
                self._lower(i, decision)
        root = self._root(carried)  # may need converts, the last of the body
        return Computation(old.name, tuple(self.body.values()), root)

    def _root(self, carried: Decision | None) -> str:
        """The name of the result, in the types that the caller takes."""
        root = self.computation.root
        if self.computation.name == self.shared.entry and not self.shared.keep_output_type:
            return self._as_planned(root)
        shape = self.computation.by_name[root].shape
        if carried is None:
            return self._in_types_of(root, shape, "result")
        return self._in_types_of(root, retyped(shape, carried.output), "result", carried.rounding)

    def _emit(self, i: Instruction, planned: Planned) -> str:
        self.body[i.name] = i
        self.types[i.name] = planned
        return i.name

    def _keep(self, i: Instruction) -> None:
        """An instruction that the plan leaves alone reads its operands in the model's types."""
        operands = tuple(self._in_model_types(o, f"{i.name}.{n}") for n, o in enumerate(i.operands))
        self._emit(i if operands == i.operands else i.replace(operands=operands), _own_types(i.shape))

    def _receive(self, i: Instruction, carried: Decision) -> None:
        """The parameter of a loop's body or condition."""
        shape = retyped(i.shape, carried.output)
        self._emit(i.replace(shape=shape), _own_types(shape))

    def _loop(self, i: Instruction) -> None:
        """A loop carries its values in the type that its body and condition take."""
        carried = self.shared.carried.get(i.called[0])
        shape = i.shape if carried is None else retyped(i.shape, carried.output)
        rounding: Rounding = "" if carried is None else carried.rounding
        operand = self._in_types_of(i.operands[0], shape, f"{i.name}.0", rounding)
        loop = i.replace(operands=(operand,), shape=shape)
        decision = self.decisions.get(i.name)
        self._emit(_stating(loop, reason=decision.reason) if decision else loop, _own_types(shape))

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
        """The name of an instruction that takes an element of a tuple."""
        if (source, index) in self.taken:
            return self.taken[source, index]
        shape = self.body[source].shape
        planned = self.types[source]
        assert isinstance(shape, TupleShape)
        assert isinstance(planned, tuple)
        name = self.shared.fresh(f"{source}.{index}")
        attributes = {"tuple_index": index}
        taken = Instruction(name, "get-tuple-element", shape.elements[index], (source,), attributes)
        self.taken[source, index] = self._emit(taken, planned[index])
        return name

    def _in_model_types(self, name: str, place: str) -> str:
        """The name of this value in the types that the model gives it."""
        return self._in_types_of(name, self.computation.by_name[name].shape, place)

    def _in_types_of(self, name: str, shape: AnyShape, place: str, rounding: Rounding = "") -> str:
        """The name of a value in these types; `place` is where it is read: reader and operand."""
        if isinstance(shape, Shape):
            return self._as(name, shape.dtype, place, rounding)
        if name in self.tuples:
            pairs = enumerate(zip(self.tuples[name].operands, shape.elements, strict=True))
            elements = (self._in_types_of(o, e, f"{place}.{n}", rounding) for n, (o, e) in pairs)
            return self._tuple(name, tuple(elements))
        types = tuple(s.dtype for s in shape.arrays())
        if types == tuple(s.dtype for s in self.body[name].shape.arrays()):
            return name
        key = (name, types, rounding)
        if key not in self.converted or not self._is_shared(name):
            parts = [(self._element(name, n), e) for n, e in enumerate(shape.elements)]
            cast = tuple(self._in_types_of(part, e, place, rounding) for part, e in parts)
            whole = Instruction(self.shared.fresh(f"{name}.cast"), "tuple", shape, cast)
            self.converted[key] = self._emit(whole, _own_types(shape))
        return self.converted[key]

    def _is_shared(self, name: str) -> bool:
        """Whether all readers of a value share its converts: in a literal application those of what is
        given do (A2), and no others.
        """
        i = self.body[name]
        of_entry = i.opcode == "parameter" and self.computation.name == self.shared.entry
        return self.shared.clean or of_entry or i.opcode == "constant"

    def _names_rounding(self, rounding: Rounding) -> bool:
        """Whether the name of a shared convert has to tell its rounding, lest it take the one by which
        another convert of the value draws its words (S2).
        """
        if self.shared.clean or rounding == "stochastic":
            return False
        return rounding != "" or self.shared.draws

    def _as(self, name: str, wanted: DType, place: str, rounding: Rounding = "") -> str:
        """The name of this array in another float type, converted in front of its reader, or of the
        first that shares it.
        """
        have = self.types[name]
        assert isinstance(have, DType)
        if have is wanted or wanted.kind != "float" or have.kind != "float":
            return name
        if carrier(wanted) is carrier(have) and wanted is dtypes.float32:
            return name  # what travels in float32 is a float32
        if wanted is dtypes.float32:
            rounding = ""  # widening rounds nothing
        # Where a plan is cleaned, the profile's own rounding is to nearest too.
        key = (name, wanted, "" if self.shared.clean else rounding)
        is_shared = self._is_shared(name)
        if key not in self.converted or not is_shared:
            narrow = carrier(have) is not dtypes.float32
            if travels_in_float32(wanted) and narrow and not contains(wanted, have):
                source = self._as(name, dtypes.float32, place)
            else:
                source = name
            new = f"{name}.to_{short_name(wanted)}"
            if not is_shared:
                new = f"{new}.{place}"
            elif self._names_rounding(rounding):
                new = f"{new}.{rounding or 'profile'}"
            made = convert(self.shared.fresh(new), source, self.body[source].array, wanted)
            self.converted[key] = self._emit(made, wanted)
        found = self.converted[key]
        self.body[found] = _stating(self.body[found], rounding=rounding)
        return found

    def _operand(self, i: Instruction, number: int, d: Decision, *, wide: bool) -> str:
        name, place = i.operands[number], f"{i.name}.{number}"
        shape = self.computation.by_name[name].shape
        if not isinstance(shape, Shape) or shape.dtype is not dtypes.float32:
            return self._in_model_types(name, place)
        if number in d.float32_operands:
            return self._as(name, dtypes.float32, place)
        rounding, own = d.rounding, self.decisions.get(name)
        if own is not None and self.body[name].opcode == "constant" and own.output is d.operand:
            rounding = own.rounding or rounding  # what a decision converts once is rounded as it says
        rounded = self._as(name, d.operand, place, rounding)
        return self._as(rounded, dtypes.float32, place) if wide else rounded

    def _lower(self, i: Instruction, d: Decision) -> None:
        wide = _runs_in_float32(i, d)
        read, given = (dtypes.float32, dtypes.float32) if wide else (d.operand, carrier(d.output))
        operands = tuple(self._operand(i, n, d, wide=wide) for n in range(len(i.operands)))
        lowered = i.replace(operands=operands, shape=retyped(i.shape, given))
        if i.opcode in APPLIES_SCALARS:
            called = tuple(self.shared.retyped(n, i.opcode, read) for n in i.called)
            lowered = lowered.replace(attributes={**i.attributes, "called": called})
        lowered = _stating_how(lowered, d, rounds_steps=lowered.called != i.called)
        exact = self.shared.clean and bool(commuted_operands(i, self.shared.by_name, d.output))
        if _rounds_on_store(i, d, wide=wide, exact=exact):
            self._emit_rounded(lowered, d)
        else:
            self._emit(_stating(lowered, reason=d.reason), _planned_results(i, d))

    def _emit_rounded(self, i: Instruction, d: Decision) -> None:
        """The instruction under another name, and its float32 results rounded (E1) under its own."""
        raw = i.replace(name=self.shared.fresh(i.name + UNROUNDED))
        self._emit(raw, _own_types(raw.shape))
        if isinstance(raw.shape, Shape):
            rounded = convert(i.name, raw.name, raw.shape, d.output)
            rounded = _stating(rounded, rounding=d.rounding)
        else:
            parts = []
            results = _rounded_results(i, d)
            for n in range(len(raw.shape.elements)):
                part = self._element(raw.name, n)
                rounds = n in results
                parts.append(self._as(part, d.output, i.name, d.rounding) if rounds else part)
            elements = tuple(self.body[p].shape for p in parts)
            rounded = Instruction(i.name, "tuple", TupleShape(elements), tuple(parts))
        rounded = _stating(rounded, reason=d.reason).replace(metadata=i.metadata)
        self._emit(rounded, _planned_results(i, d))


def _rounded_results(i: Instruction, d: Decision) -> list[int]:
    """The numbers of the float32 results that the decision gives another type."""
    arrays = enumerate(i.shape.arrays())
    return [n for n, s in arrays if s.dtype is dtypes.float32 and n not in d.float32_results]


def _runs_in_float32(i: Instruction, d: Decision) -> bool:
    """Whether it reads the rounded operands as float32 and its result is rounded after it (E1): where
    its meaning hangs on float32, or it has no form with two types. Products and converts do have one,
    but not between operands.
    """
    if d.float32_operands or d.float32_results:
        return True
    gives_float32 = any(s.dtype is dtypes.float32 for s in i.shape.arrays())
    two_types = gives_float32 and carrier(d.operand) is not carrier(d.output)
    has_form = i.opcode == "convert" or row(i).cast == "matmult"
    return works_on_float32(i) or (two_types and not has_form)


def _rounds_on_store(i: Instruction, d: Decision, *, wide: bool, exact: bool) -> bool:
    """Whether a float32 result needs an instruction that rounds it to the planned type: not where it is
    `exact`, as movement is, if its operands have the same.
    """
    if d.output is dtypes.float32 or not _rounded_results(i, d):
        return False
    kept = (exact or row(i).cast == "movement") and d.operand is d.output and d.relayout is None
    return wide or (travels_in_float32(d.output) and not kept)


def _stating_how(i: Instruction, d: Decision, *, rounds_steps: bool) -> Instruction:
    """The instruction that computes, with what its types do not say of how it does."""
    narrow = any(s.dtype.kind == "float" and s.dtype.bits < 32 for s in i.shape.arrays())
    rounds = (narrow or rounds_steps) and row(i).cast != "movement"
    sums = d.accumulate is not dtypes.float32
    # What the model stated before, a plan states anew.
    sums |= PREFIX + "accumulate" in i.attributes.get("frontend_attributes", {})
    return _stating(
        i,
        accumulate=d.accumulate.name if sums else "",
        rounding=d.rounding if rounds or sums or d.relayout else "",
        relayout=d.relayout.name if d.relayout else "",
        saturate_infinity="true" if d.saturate_infinity else "",
    )


def _stating(i: Instruction, **settings: str) -> Instruction:
    """The instruction with these settings in its frontend attributes, beside those that it has."""
    given: Mapping[str, str] = i.attributes.get("frontend_attributes", {})
    stated = {**given, **{PREFIX + name: text for name, text in settings.items() if text}}
    if stated == given:
        return i
    return i.replace(attributes={**i.attributes, "frontend_attributes": dict(sorted(stated.items()))})


def _planned_results(i: Instruction, d: Decision) -> Planned:
    """The planned types of an instruction's arrays."""
    f32 = dtypes.float32
    if isinstance(i.shape, Shape):
        return planned_as(i.shape, d.gives(f32, 0))
    return tuple(planned_as(e, d.gives(f32, n)) for n, e in enumerate(i.shape.elements))


def _own_types(shape: AnyShape) -> Planned:
    return planned_as(shape, dtypes.float32)
