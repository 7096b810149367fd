"""What a plan does to each instruction, and why, in lines and sentences."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.conversions import carrier
from neuronsim.casting.decisions.reasons import told
from neuronsim.casting.decisions.record import Decision, PlanRecord
from neuronsim.casting.plans.casts import Cast
from neuronsim.casting.policies.operations import names_of
from neuronsim.errors import InvalidArgument, nearest
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    graph_computations,
    is_named,
    simple_reducer,
)
from neuronsim.hlo.recognition.composites import COMPOSITES, recognise

T = TypeVar("T")


@dataclass(frozen=True)
class Line:
    """One line of an explanation: an instruction, its decision or None, why, whether it sums, and the
    types of its arrays in the planned module, None where that has it no longer.
    """

    instruction: Instruction
    decision: Decision | None
    reason: str
    sums: bool
    given: tuple[str, ...] | None

    @property
    def differs(self) -> bool:
        """Whether the planned module gives other types than the decision says, or the model."""
        d, own = self.decision, self.instruction.shape.arrays()
        said = [s.dtype for s in own]
        if d is not None and d.bias:
            return False  # the result is the addition's
        if d is not None:
            said = [d.gives(t, n) for n, t in enumerate(said)]
        # What travels in float32 has no type of its own where nothing rounds it there (C9).
        pairs = zip(self.given or (), said, strict=False)
        return self.given is None or any(g not in (t.name, carrier(t).name) for g, t in pairs)


def lines(
    model: Module, plan: PlanRecord, patterns: Sequence[str] = (), planned: Module | None = None
) -> tuple[Line, ...]:
    """The instructions that a plan decides, or keeps for a reason; with `patterns` those whose name
    (`exp.1` or `main.2/exp.1`), opcode, metadata, composite or types match one of them, with shell
    wildcards. `planned` is the planned module, where it is there already.

    Raises InvalidArgument for a pattern that matches nothing, with the nearest name.
    """
    flat = inline_calls(model)
    given = _given_types(planned or apply_plan(model, plan))
    every = [(c, i) for c in graph_computations(flat) for i in c.instructions]
    if not patterns:
        considered = plan.decisions.keys() | plan.kept.keys()
        return tuple(_line(i, plan, flat, given) for _, i in every if i.name in considered)
    chosen: dict[str, Line] = {}
    for pattern in patterns:
        members = _members(flat, pattern)
        found = [i for c, i in every if i.name in members or _matches(c, i, plan, pattern)]
        if not found:
            hint = nearest(pattern, (*(i.name for _, i in every), *_KINDS))
            raise InvalidArgument(f"no instruction matches {pattern!r}{hint}")
        chosen |= {i.name: _line(i, plan, flat, given) for i in found}
    return tuple(chosen.values())


def find_line(model: Module, plan: PlanRecord, name: str) -> Line:
    """The line of one instruction. Raises InvalidArgument with the nearest name if it is not there."""
    flat = inline_calls(model)
    named = {i.name: i for c in graph_computations(flat) for i in c.instructions}
    if name not in named:
        raise InvalidArgument(f"{model.name!r} has no instruction {name!r}{nearest(name, named)}")
    return _line(named[name], plan, flat, _planned_types(_Same(plan), _Same(model)))


@dataclass(frozen=True, eq=False)
class _Same(Generic[T]):
    """An object as a key: equal to itself alone."""

    value: T

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


@functools.lru_cache(maxsize=1)
def _planned_types(plan: _Same[PlanRecord], model: _Same[Module]) -> dict[str, tuple[str, ...]]:
    """The types of a planned module, kept for the next instruction that is asked for."""
    return _given_types(apply_plan(model.value, plan.value))


@functools.lru_cache(maxsize=1)
def _biased(plan: _Same[PlanRecord]) -> dict[str, str]:
    """The products whose sums take biases, by the additions that have these."""
    return {d.bias: n for n, d in plan.value.decisions.items() if d.bias}


def _given_types(planned: Module) -> dict[str, tuple[str, ...]]:
    """The types of the arrays that each instruction of a planned module gives."""
    return {
        i.name: tuple(s.dtype.name for s in i.shape.arrays())
        for c in graph_computations(planned)
        for i in c.instructions
    }


def _line(i: Instruction, plan: PlanRecord, flat: Module, given: Mapping[str, tuple[str, ...]]) -> Line:
    d = plan.decisions.get(i.name)
    reason = d.reason if d else plan.kept.get(i.name, "")
    return Line(i, d, reason, sums(i, flat.by_name), given.get(i.name))


_KINDS = frozenset(pattern.kind for pattern in COMPOSITES)
_SUMMING = frozenset(
    {"dot", "convolution", "batch-norm-training", "batch-norm-grad"}
    | {"softmax", "softmax_backward", "log_softmax", "layer_norm", "rms_norm"}
    | {"neuron_rms_norm", "vector_norm"}
)


def sums(i: Instruction, computations: Mapping[str, Computation]) -> bool:
    """Whether an instruction adds or multiplies many elements up, so that its sums have a type."""
    if i.opcode in ("reduce", "reduce-window", "select-and-scatter"):
        return simple_reducer(computations[i.called[-1]]) in ("add", "multiply")
    return not _SUMMING.isdisjoint(names_of(i, computations))


def _members(flat: Module, pattern: str) -> frozenset[str]:
    """The instructions of the composites that a pattern names; to find these takes time."""
    if not fnmatch.filter(_KINDS, pattern):
        return frozenset()
    return frozenset(
        member
        for c in graph_computations(flat)
        for composite in recognise(c, flat)
        if fnmatch.fnmatchcase(composite.kind, pattern)
        for member in composite.members
    )


def _matches(computation: Computation, i: Instruction, plan: PlanRecord, pattern: str) -> bool:
    d = plan.decisions.get(i.name)
    types = (d.operand.name, d.accumulate.name, d.output.name) if d else ()
    others = any(fnmatch.fnmatchcase(text, pattern) for text in (i.opcode, *types))
    return others or is_named(computation, i, pattern)


def group(found: Iterable[Line], plan: PlanRecord) -> tuple[tuple[Line, ...], ...]:
    """Lines with the same opcode, types and short reason together, in the order of the first."""
    groups: dict[tuple[object, ...], list[Line]] = {}
    for line in found:
        d = line.decision
        types = d and tuple(types_of(d, sums=line.sums).values())
        given = line.given if line.differs else ()
        key = (line.instruction.opcode, types, given, told(line.reason, plan.policy).short)
        groups.setdefault(key, []).append(line)
    return tuple(tuple(g) for g in groups.values())


def types_of(d: Decision, *, sums: bool = True) -> Mapping[str, str]:
    """A decision's types as the columns of a table; that of the sums is empty where there are none."""
    if d.quantizes:
        read = ", ".join(q.type.name for q in d.quantized_operands if q is not None)
        result = d.quantized_result.type.name if d.quantized_result else "float32"
        return {
            "operands": read or "float32",
            "sums": _summed(d) if read and sums else "",
            "result": result,
        }
    operands = d.operand.name
    if d.float32_operands:
        operands += f" (float32: {', '.join(map(str, d.float32_operands))})"
    output = d.output.name
    if d.float32_results:
        output += f" (float32: {', '.join(map(str, d.float32_results))})"
    if d.relayout is not None:
        output += f", transposed in {d.relayout.name}"
    if d.rounding:
        output += f", rounded {d.rounding}"
    return {"operands": operands, "sums": d.accumulate.name if sums else "", "result": output}


def type_difference(
    first: PlanRecord, second: PlanRecord
) -> dict[str, tuple[Decision | None, Decision | None]]:
    """The instructions that two plans give other types, roundings, slots or relayouts: `Plan.diff`
    without those that differ in the reason alone.
    """
    return {
        name: (a, b)
        for name, (a, b) in first.diff(second).items()
        if a is None or b is None or replace(a, reason=b.reason) != b
    }


def sentence(plan: PlanRecord, name: str, *, sums: bool) -> str:
    """What a plan decides of an instruction, and why."""
    d = plan.decisions.get(name)
    if d is None:
        if product := _biased(_Same(plan)).get(name):
            return f"{name} is made in the int32 sums of {product}, whose result it gives (Q7)"
        why = f" ({plan.kept[name]})" if name in plan.kept else ""
        return f"{name} keeps the types of the model under {plan.policy}{why}"
    if d.quantizes:
        return f"{name} {_integers(d)} ({d.reason})"
    summed = f", sums in {d.accumulate.name}" if sums else ""
    return f"{name} reads {d.operand.name}{summed} and gives {d.output.name} ({d.reason})"


def _integers(d: Decision) -> str:
    """What a decision quantizes."""
    read = " and ".join(q.sentence() for q in d.quantized_operands if q is not None)
    result = f"gives {d.quantized_result.sentence()}" if d.quantized_result else "gives float32"
    summed = _summed(d).replace("+ bias", f"with the bias of {d.bias}")
    return f"reads {read}, sums in {summed} and {result}" if read else f"reads float32 and {result}"


def _summed(d: Decision) -> str:
    """What a product of scaled bytes sums in."""
    if d.bias:
        return "int32 + bias"
    return "int32" if d.reads_integers else "float32"


def line_sentence(line: Line, plan: PlanRecord) -> str:
    """What a plan does to an instruction, as the planned module has it, and why."""
    name, d = line.instruction.name, line.decision
    if not line.differs:
        return sentence(plan, name, sums=line.sums)
    if line.given is None:
        return f"{name} is no more there: another convert does for it, and the bits are the same"
    given = f"{name} gives {described(line.given)} in the planned module"
    why = f" ({line.reason})" if line.reason else ""
    if d is None and line.instruction.opcode in _HOLDS:
        return f"{given}, in which loops and tuples hold what was rounded{why}"
    if d is None:
        return f"{given}: the cast of what is read later is in front of it, with the same bits{why}"
    if line.instruction.opcode == "constant":
        return f"{given}, which is cast to {d.output.name} before the run{why}"
    return f"{given}: its casts to {d.output.name} are elsewhere, with the same bits{why}"


def described(types: Sequence[str]) -> str:
    """The types of some arrays, each once."""
    return ", ".join(dict.fromkeys(types))


def describe(line: Line, found: Sequence[Cast], plan: PlanRecord) -> list[str]:
    """What a plan does to one instruction and why, with the casts around it, as sentences."""
    i, d = line.instruction, line.decision
    first = line_sentence(line, plan).removeprefix(i.name).strip()
    texts = [f"{i.name} ({i.opcode}): {first}"]
    if i.metadata.op_name:
        texts.append(f"it comes from {i.metadata.op_name}")
    for c in found:
        times = "" if c.runs == 1 else f", {c.runs} times in each run"
        size = f"{c.bytes} bytes{' at compilation' if c.of_constant else times}"
        if i.name in c.readers:
            texts.append(f"{c.name} casts {c.source} for it, {c.from_type} to {c.to_type}, {size}")
            if d is None and c.to_type != "float32" and i.opcode not in _HOLDS:
                texts.append(
                    f"clean-up moved this cast, of what is read later, in front of the {i.opcode}, "
                    "which commutes with rounding: the bits are the same"
                )
        elif c.source == i.name or (c.name == i.name and d is not None):
            texts.append(f"{c.name} casts its value, {c.from_type} to {c.to_type}, {size}: {c.reason}")
    return texts


# What holds values of any type and computes nothing.
_HOLDS = frozenset(
    {"tuple", "get-tuple-element", "while", "conditional", "parameter", "opt-barrier", "add-dependency"}
)
