"""Plan: for every instruction the types that it reads, sums in and gives, and why."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from neuronsim import dtypes, json_documents, ops
from neuronsim.casting import fields
from neuronsim.casting.conversions import travels_in_float32
from neuronsim.casting.decisions.castable import is_castable, is_product, own_type, reads
from neuronsim.casting.decisions.decide import decide
from neuronsim.casting.policies.calibration import Calibration
from neuronsim.casting.policies.policy import Decision, Policy, Rounding
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, nearest
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.module import (
    CONTROL_FLOW,
    Computation,
    Instruction,
    Module,
    Shape,
    graph_computations,
    inline_calls,
    simple_reducer,
)
from neuronsim.hlo.opcodes import row
from neuronsim.processor import pinned
from neuronsim.records import check_fields
from neuronsim.targets import Target

SCHEMA = "neuronsim.plan/2"


@dataclass(frozen=True)
class Plan:
    """Decisions by instruction name, for the module with this fingerprint. Instructions without a
    decision keep the types of the model, as the entry computation's results do, unless
    `keep_output_type` is false; `kept` says why of those that the policy considered.
    """

    policy: str
    module: str
    fingerprint: str
    decisions: Mapping[str, Decision]
    keep_output_type: bool = True
    kept: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)

    @pinned
    def to_json(self) -> str:
        """The plan as JSON with a schema name."""
        body = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)} | {"schema": SCHEMA}
        body["decisions"] = {name: _to_json(d) for name, d in self.decisions.items()}
        return json.dumps(body, indent=1, sort_keys=True)

    @staticmethod
    @pinned
    def from_json(text: str) -> Plan:
        """The plan that `to_json` wrote; else raises InvalidArgument with all problems."""
        try:
            body = json_documents.parse(text)
        except InvalidArgument as error:
            raise InvalidArgument(f"not a plan of neuronsim: {error}") from error
        schema = body.get("schema") if isinstance(body, dict) else None
        if schema != SCHEMA:
            older = " (an older version wrote it: plan the model again)" if schema in _OLDER else ""
            raise InvalidArgument(
                f"not a plan of neuronsim: its schema is {fields.shown(schema)}, not {SCHEMA!r}{older}"
            )
        problems: list[str] = []
        found = fields.read_fields(body, _PLAN, "", problems, _REQUIRED)
        found.pop("schema")
        stated = found.pop("decisions", {})
        read = {name: _from_json(name, d, problems) for name, d in stated.items()}
        decisions = {name: d for name, d in read.items() if d is not None}
        if problems:
            raise InvalidArgument(f"not a plan of neuronsim: {fields.joined(problems)}")
        return Plan(**found, decisions=decisions)

    def diff(self, other: Plan) -> dict[str, tuple[Decision | None, Decision | None]]:
        """The instructions on which two plans differ, or their reasons, with both decisions."""
        names = dict.fromkeys([*self.decisions, *other.decisions])
        pairs = {n: (self.decisions.get(n), other.decisions.get(n)) for n in names}
        return {n: (a, b) for n, (a, b) in pairs.items() if a != b}

    def apply(self, module: Module) -> Module:
        """The module with every decision written out as converts; see `apply_plan`."""
        from neuronsim.casting.application.apply import apply_plan  # which needs plans

        return apply_plan(module, self)

    def explain(self, name: str, module: Module | None = None) -> str:
        """One sentence on what the plan does to an instruction, and why.

        The module, where it is given, tells the instructions that the plan says nothing of, and which
        sum: without it only sums in another type than float32 are told. Raises InvalidArgument with the
        nearest name for an instruction that is not there.
        """
        from neuronsim.casting.plans.explain import find_line, line_sentence, sentence  # need plans

        if module is not None:
            return line_sentence(find_line(module, self, name), self)
        known = {**self.kept, **self.decisions}
        if name not in known:
            raise InvalidArgument(
                f"the plan says nothing of an instruction {name!r}{nearest(name, known)}: give the "
                "module too, for those that the policy does not consider"
            )
        d = self.decisions.get(name)
        return sentence(self, name, sums=d is not None and d.accumulate is not dtypes.float32)


_OLDER = ("neuronsim.plan/1",)
_PLAN: Mapping[str, fields.Kind] = {
    "schema": fields.text,
    "policy": fields.text,
    "module": fields.text,
    "fingerprint": fields.text,
    "decisions": fields.mapping,
    "keep_output_type": fields.truth,
    "kept": fields.texts_by_name,
}
_REQUIRED = ("policy", "module", "fingerprint", "decisions", "keep_output_type", "kept")
_DECISION: Mapping[str, fields.Kind] = {
    "operand": fields.any_type,
    "accumulate": fields.any_type,
    "output": fields.any_type,
    "reason": fields.text,
    "rounding": fields.one_of(*get_args(Rounding)),
    "float32_operands": fields.counts,
    "float32_results": fields.counts,
    "relayout": fields.float_type,
    "saturate_infinity": fields.truth,
}
_STATED = ("operand", "accumulate", "output", "reason")  # of every decision
_OPTIONAL = {f.name: f.default for f in dataclasses.fields(Decision) if f.name not in _STATED}


def _to_json(d: Decision) -> dict[str, Any]:
    """A decision with what it states: types by their names."""
    found = {n: getattr(d, n) for n in _DECISION}
    stated = {n: v for n, v in found.items() if n in _STATED or v != _OPTIONAL[n]}
    return {n: v.name if isinstance(v, DType) else v for n, v in stated.items()}


def _from_json(name: str, body: Any, problems: list[str]) -> Decision | None:
    """A decision, or None and its problems."""
    before = len(problems)
    found = fields.read_fields(body, _DECISION, f"decision {fields.shown(name)}: ", problems, _STATED)
    return Decision(**found) if len(problems) == before else None


@pinned
def make_plan(
    module: Module,
    policy: Policy,
    target: Target | None = None,
    calibration: Calibration | None = None,
) -> Plan:
    """What a policy decides for a module, where a target has the types (`decisions.decide`). Rules on
    values need a calibration of the module. The instructions are those after `inline_calls`, in every
    computation that is executed instruction by instruction.

    Raises InvalidArgument, with all problems, for a policy that names unknown operations or
    contradicts itself, and for rules without what they need.
    """
    if calibration is not None:
        calibration.check(module)
    decided, kept = decide(inline_calls(module), policy, target, calibration)
    return Plan(policy.name, module.name, fingerprint(module), decided, policy.keep_output_type, kept)


@pinned
def load_plan(path: str | Path) -> Plan:
    """The plan in a JSON file. Raises InvalidArgument for any other file."""
    return Plan.from_json(fields.read_text(path, "plan", fields.MAX_BYTES))


def check_plan(plan: Plan, module: Module, target: Target | None = None) -> None:
    """Raises InvalidArgument, with all problems, if the plan was made for another module, names what
    it lacks, or asks for what cannot be: of an instruction, or of the target's engines.
    """
    flat = inline_calls(module)
    graphs = graph_computations(flat)
    names = {i.name for c in graphs for i in c.instructions}
    unknown = [n for n in (*plan.decisions, *plan.kept) if n not in names]
    problems = []
    for n, name in enumerate(unknown):
        hint = nearest(name[:100], names) if n < _HINTS else ""
        problems.append(f"it has no instruction {fields.shown(name)}{hint}")
    for c in graphs:
        for i in c.instructions:
            if i.name in plan.decisions:
                problems += _problems(c, i, plan.decisions[i.name], flat.by_name, target)
    problems += _loop_problems(graphs, plan.decisions)
    if plan.fingerprint != fingerprint(module):
        problems.insert(0, f"the plan was made for {fields.shown(plan.module)} ({plan.fingerprint})")
    if problems:
        raise InvalidArgument(
            f"the plan does not fit module {fields.shown(module.name)}: {fields.joined(problems)}"
        )


_HINTS = 10  # unknown names for which the nearest is looked up: that takes time in large modules


def _problems(
    computation: Computation,
    i: Instruction,
    d: Decision,
    by_name: Mapping[str, Computation],
    target: Target | None,
) -> list[str]:
    """What a decision asks of an instruction that cannot be."""
    if not (is_castable(computation, i) or (d.relayout and _is_float_transpose(i))):
        return [f"{i.name} is a {i.opcode} that keeps the types of the model (A2)"]
    found = [
        *_type_problems(i, d),
        *_slot_problems(computation, i, d),
        *_sum_problems(i, d, by_name),
        *_relayout_problems(i, d),
    ]
    if target is not None:
        found += _target_problems(computation, i, d, target)
    return found


def _type_problems(i: Instruction, d: Decision) -> list[str]:
    found = []
    own = own_type(i)
    if d.operand.kind != "float" or not d.operand.device:
        found.append(f"{i.name} cannot read {d.operand.name}")
    fits = d.output.kind == "float" and d.output.device if own is dtypes.float32 else d.output is own
    if not fits:
        found.append(f"{i.name} gives {own.name} and cannot give {d.output.name}")
    if i.opcode == "while" and (d.operand is not d.output or travels_in_float32(d.output)):
        found.append(
            f"{i.name} carries its values in one type that HLO has, not read as {d.operand.name} and "
            f"given as {d.output.name} (A2)"
        )
    opened = [t.name for t in dict.fromkeys((d.operand, d.output)) if t.is_open]
    if d.rounding == "stochastic" and opened:
        found.append(
            f"{i.name} cannot round stochastically to {_listed(opened)}: reduce-precision draws no "
            "words (C9, S1)"
        )
    return found


def _slot_problems(computation: Computation, i: Instruction, d: Decision) -> list[str]:
    """Of the numbers of operands and results that stay float32."""
    operands = [computation.by_name[o].shape for o in i.operands]
    found = []
    for what, numbers, shapes in (
        ("operand", d.float32_operands, operands),
        ("result", d.float32_results, i.shape.arrays()),
    ):
        if numbers and i.opcode in ("while", "constant"):
            found.append(f"{i.name} is a {i.opcode}: no {what} of it alone stays float32")
            continue
        float32 = [
            n for n, s in enumerate(shapes) if isinstance(s, Shape) and s.dtype is dtypes.float32
        ]
        wrong = [n for n in numbers if n not in float32]
        if wrong:
            where = f"its float32 {what}s are {_listed(float32)}" if float32 else "it has none"
            found.append(f"{i.name} has no float32 {what} {_listed(wrong)}: {where}")
    return found


def _sum_problems(i: Instruction, d: Decision, by_name: Mapping[str, Computation]) -> list[str]:
    if d.accumulate is dtypes.float32:
        return []
    if d.accumulate not in ops.ACCUMULATE_TYPES:
        accepted = _listed(t.name for t in ops.ACCUMULATE_TYPES)
        return [
            f"{i.name} cannot sum in {d.accumulate.name}: the types of sums are {accepted} (R1, M6)"
        ]
    if not _sums(i, by_name):
        return [
            f"{i.name} does not sum in {d.accumulate.name}: products, and add and multiply reduces and "
            "reduce-windows of one array, have a type of their sums (R1, M6)"
        ]
    if i.attributes.get("algorithm"):
        return [
            f"{i.name} sums as its algorithm {i.attributes['algorithm']} says, not in "
            f"{d.accumulate.name}"
        ]
    if d.rounding == "stochastic":
        return [
            f"{i.name} sums in {d.accumulate.name} under stochastic rounding: S2 has no words for its "
            "steps"
        ]
    return []


def _sums(i: Instruction, by_name: Mapping[str, Computation]) -> bool:
    if i.opcode in ("reduce", "reduce-window"):
        return simple_reducer(by_name[i.called[0]]) in ("add", "multiply")
    return i.opcode in ("dot", "convolution")


def _is_float_transpose(i: Instruction) -> bool:
    return i.opcode == "transpose" and own_type(i).exponent_bits > 0


def _relayout_problems(i: Instruction, d: Decision) -> list[str]:
    if d.relayout is None:
        if d.saturate_infinity:
            return [f"{i.name} saturates infinities only where it is a relayout (M8)"]
        return []
    if not _is_float_transpose(i):
        return [f"{i.name} ({i.opcode}) is no transpose of floats, so no relayout (A3, M8)"]
    found = []
    if d.relayout.is_open or not (d.relayout.exponent_bits and d.relayout.device):
        found.append(f"{i.name} cannot be a relayout in {d.relayout.name} (M8)")
    axes = i.attributes["dimensions"]
    if not axes or axes[-1] == len(axes) - 1:
        found.append(
            f"{i.name} is no relayout: its transpose by {tuple(axes)} does not move the minor-most "
            "dimension (A3)"
        )
    return found


def _target_problems(
    computation: Computation, i: Instruction, d: Decision, target: Target
) -> list[str]:
    """Types that the engine of an instruction does not compute with. A product's sums are float32 and
    are given as such whatever it reads (M2, M4).
    """
    has_row = i.opcode in ops.OPCODES
    engine = row(i).engine if has_row else ""
    reads_float32 = any(s.dtype is dtypes.float32 for s in reads(computation, i))
    types = [d.operand] if reads_float32 or not has_row else []
    if d.float32_operands:
        types.append(dtypes.float32)
    product = is_product(i) and d.output is dtypes.float32
    if own_type(i) is dtypes.float32 and not product:
        types.append(d.output)
    lacking = [t for t in dict.fromkeys(types) if not target.computes_with(t, engine, i.opcode)]
    if d.relayout is not None and not target.computes_with(d.relayout, "tensor", i.opcode):
        lacking.append(d.relayout)
    where = f"its {engine} engine" if engine not in ("", "none") else "it"
    return [f"{target.name} lacks {t.name} for {i.name}: {where} has no such type" for t in lacking]


def _listed(values: Iterable[object]) -> str:
    return ", ".join(str(v) or "the profile" for v in values)


def decisions_of_loops(module: Module, decisions: Mapping[str, Decision]) -> dict[str, Decision]:
    """How loops carry float32 values, by the names of their bodies and conditions: one decision for
    each, as `check_plan` made sure.
    """
    return {
        name: decisions[i.name]
        for c in graph_computations(module)
        for i in c.instructions
        if i.opcode == "while" and i.name in decisions
        for name in i.called
    }


def _loop_problems(graphs: Sequence[Computation], decisions: Mapping[str, Decision]) -> list[str]:
    """Computations that two callers would have in different types."""
    callers: dict[str, tuple[str, DType, str]] = {}
    problems = []
    for i in (i for c in graphs for i in c.instructions if i.opcode in CONTROL_FLOW):
        d = decisions.get(i.name) if i.opcode == "while" else None
        dtype, rounding = (d.output, d.rounding) if d else (dtypes.float32, "")
        for name in i.called:
            other, carried, rounded = callers.setdefault(name, (i.name, dtype, rounding))
            shared = f"{other} and {i.name} share {name} and cannot"
            if carried is not dtype:
                problems.append(f"{shared} carry {carried.name} and {dtype.name}")
            elif rounded != rounding:
                problems.append(f"{shared} round as {_listed([rounded, rounding])} say")
    return problems
