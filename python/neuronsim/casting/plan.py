"""Plan: for every instruction the types that it reads, sums in and gives, and why."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from neuronsim import dtypes, ops
from neuronsim.casting.calibration import Calibration
from neuronsim.casting.castable import is_castable, own_type, reads
from neuronsim.casting.conversions import travels_in_float32
from neuronsim.casting.decisions import decide
from neuronsim.casting.fingerprint import fingerprint
from neuronsim.casting.policy import Decision, Policy, Rounding
from neuronsim.dtypes import DType, as_dtype
from neuronsim.errors import InvalidArgument, NeuronSimError, nearest
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
from neuronsim.targets import Target

SCHEMA = "neuronsim.plan/2"


@dataclass(frozen=True)
class Plan:
    """Decisions by instruction name, for the module with this fingerprint. Instructions without a
    decision keep the types of the model, as the entry computation's results do, unless
    `keep_output_type` is false.
    """

    policy: str
    module: str
    fingerprint: str
    decisions: Mapping[str, Decision]
    keep_output_type: bool = True

    def to_json(self) -> str:
        """The plan as JSON with a schema name."""
        body = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)} | {"schema": SCHEMA}
        body["decisions"] = {name: _to_json(d) for name, d in self.decisions.items()}
        return json.dumps(body, indent=1, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Plan:
        """The plan that `to_json` wrote; else raises InvalidArgument with all problems."""
        try:
            body = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidArgument(f"not a plan of neuronsim: {error}") from error
        schema = body.get("schema") if isinstance(body, dict) else None
        if schema != SCHEMA:
            older = " (an older version wrote it: plan the model again)" if schema in _OLDER else ""
            raise InvalidArgument(
                f"not a plan of neuronsim: its schema is {schema!r}, not {SCHEMA!r}{older}"
            )
        problems: list[str] = []
        texts = {
            name: _read(body, name, str, "", problems) for name in ("policy", "module", "fingerprint")
        }
        listed = _read(body, "decisions", dict, {}, problems)
        decisions = {name: _from_json(name, d, problems) for name, d in listed.items()}
        keep = _read(body, "keep_output_type", bool, True, problems)
        _reject_unknown(body, {"schema", *(f.name for f in dataclasses.fields(Plan))}, "", problems)
        if problems:
            raise InvalidArgument(f"not a plan of neuronsim: {'; '.join(problems)}")
        return Plan(**texts, decisions=decisions, keep_output_type=keep)

    def diff(self, other: Plan) -> dict[str, tuple[Decision | None, Decision | None]]:
        """The instructions on which two plans differ, with both decisions."""
        names = dict.fromkeys([*self.decisions, *other.decisions])
        pairs = {n: (self.decisions.get(n), other.decisions.get(n)) for n in names}
        return {n: (a, b) for n, (a, b) in pairs.items() if a != b}

    def apply(self, module: Module) -> Module:
        """The module with every decision written out as converts; see `apply_plan`."""
        from neuronsim.casting.apply import apply_plan  # which needs plans

        return apply_plan(module, self)

    def explain(self, name: str) -> str:
        """One sentence on what the plan does to an instruction, and why."""
        d = self.decisions.get(name)
        if d is None:
            return f"{name} keeps the types of the model under {self.policy}"
        return (
            f"{name} reads {d.operand.name}, sums in {d.accumulate.name} and gives {d.output.name} "
            f"({d.reason})"
        )


_OLDER = ("neuronsim.plan/1",)
_TYPES = ("operand", "accumulate", "output")  # of a Decision; it always states them
_OPTIONAL = {f.name: f for f in dataclasses.fields(Decision) if f.default is not dataclasses.MISSING}


def _to_json(d: Decision) -> dict[str, Any]:
    """A decision with what it states: types by their names."""
    stated = {n: getattr(d, n) for n, f in _OPTIONAL.items() if getattr(d, n) != f.default}
    stated |= {n: getattr(d, n) for n in (*_TYPES, "reason")}
    return {n: v.name if isinstance(v, DType) else v for n, v in stated.items()}


def _from_json(name: str, body: Any, problems: list[str]) -> Decision:
    where = f"decision {name!r}: "
    if not isinstance(body, dict):
        problems.append(f"{where}it is {body!r}")
        body = {}
    found: dict[str, Any] = {n: _read(body, n, str, "float32", problems, where) for n in _TYPES}
    found["relayout"] = _read(body, "relayout", str, None, problems, where, optional=True)
    for field_name, text in list(found.items()):
        if text is not None:
            try:
                found[field_name] = as_dtype(text)
            except NeuronSimError as error:
                problems.append(f"{where}{field_name}: {error}")
                found[field_name] = dtypes.float32
    found["reason"] = _read(body, "reason", str, "", problems, where)
    found["rounding"] = _read(body, "rounding", str, "", problems, where, optional=True)
    if found["rounding"] not in get_args(Rounding):
        problems.append(f"{where}rounding cannot be {found['rounding']!r}")
    found["saturate_infinity"] = _read(
        body, "saturate_infinity", bool, False, problems, where, optional=True
    )
    for n in ("float32_operands", "float32_results"):
        numbers = _read(body, n, list, [], problems, where, optional=True)
        if not all(isinstance(x, int) and not isinstance(x, bool) and x >= 0 for x in numbers):
            problems.append(f"{where}{n} is {numbers!r}, not numbers of arrays")
        found[n] = tuple(numbers)
    _reject_unknown(body, {f.name for f in dataclasses.fields(Decision)}, where, problems)
    return Decision(**found)


def _read(
    body: Mapping[str, Any],
    key: str,
    kind: type,
    default: Any,
    problems: list[str],
    where: str = "",
    *,
    optional: bool = False,
) -> Any:
    """A value of this kind from a JSON object, or the default and one problem more."""
    if key not in body:
        if not optional:
            problems.append(f"{where}{key} is missing")
        return default
    if not isinstance(body[key], kind):
        words = {str: "a text", dict: "an object", bool: "true or false", list: "a list"}
        problems.append(f"{where}{key} is {body[key]!r}, not {words[kind]}")
        return default
    return body[key]


def _reject_unknown(body: Mapping[str, Any], known: set[str], where: str, problems: list[str]) -> None:
    problems += [f"{where}{n!r} is unknown{nearest(n, known)}" for n in body if n not in known]


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
    decided = decide(inline_calls(module), policy, target, calibration)
    return Plan(policy.name, module.name, fingerprint(module), decided, policy.keep_output_type)


def load_plan(path: str | Path) -> Plan:
    """The plan in a JSON file."""
    try:
        return Plan.from_json(Path(path).read_text())
    except OSError as error:
        raise InvalidArgument(f"cannot read the plan {str(path)!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{path} is not a plan of neuronsim: it is not text") from error


def check_plan(plan: Plan, module: Module, target: Target | None = None) -> None:
    """Raises InvalidArgument, with all problems, if the plan was made for another module, names what
    it lacks, or asks for what cannot be: of an instruction, or of the target's engines.
    """
    flat = inline_calls(module)
    graphs = graph_computations(flat)
    names = {i.name for c in graphs for i in c.instructions}
    unknown = [n for n in plan.decisions if n not in names]
    problems = []
    for n, name in enumerate(unknown):
        hint = nearest(name, names) if n < _HINTS else ""
        problems.append(f"it has no instruction {name!r}{hint}")
    for c in graphs:
        for i in c.instructions:
            if i.name in plan.decisions:
                problems += _problems(c, i, plan.decisions[i.name], flat.by_name, target)
    problems += _loop_problems(graphs, plan.decisions)
    if plan.fingerprint != fingerprint(module):
        problems.insert(0, f"the plan was made for {plan.module!r} ({plan.fingerprint})")
    if problems:
        raise InvalidArgument(f"the plan does not fit module {module.name!r}: {'; '.join(problems)}")


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
    if d.rounding not in get_args(Rounding):
        accepted = _listed(get_args(Rounding))
        found.append(f"{i.name} cannot round {d.rounding!r}: roundings are {accepted}")
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
    product = has_row and row(i).cast == "matmult" and d.output is dtypes.float32
    if own_type(i) is dtypes.float32 and not product:
        types.append(d.output)
    lacking = [t for t in dict.fromkeys(types) if not target.computes_with(t, engine, i.opcode)]
    if d.relayout is not None and not target.computes_with(d.relayout, "tensor", i.opcode):
        lacking.append(d.relayout)
    where = f"its {engine} engine" if engine else "it"
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
