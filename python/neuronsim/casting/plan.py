"""Plan: for every instruction the types that it reads, sums in and gives, and why."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.casting.policy import Policy
from neuronsim.dtypes import DType, as_dtype
from neuronsim.errors import InvalidArgument, NeuronSimError
from neuronsim.hlo.module import (
    CONTROL_FLOW,
    Computation,
    Instruction,
    Module,
    Shape,
    graph_computations,
    inline_calls,
)
from neuronsim.hlo.opcodes import row

SCHEMA = "neuronsim.plan/1"


@dataclass(frozen=True)
class Decision:
    """The types of one instruction: of its float operands, of its sums, of its result."""

    operand: DType
    accumulate: DType
    output: DType
    reason: str

    def to_dict(self) -> dict[str, str]:
        return {
            "operand": self.operand.name,
            "accumulate": self.accumulate.name,
            "output": self.output.name,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Plan:
    """Decisions by instruction name, for the module with this fingerprint. Instructions without a
    decision keep the types of the model.
    """

    policy: str
    module: str
    fingerprint: str
    decisions: Mapping[str, Decision]

    def to_json(self) -> str:
        """The plan as JSON with a schema name."""
        body = dataclasses.asdict(self) | {"schema": SCHEMA}
        body["decisions"] = {name: d.to_dict() for name, d in self.decisions.items()}
        return json.dumps(body, indent=1, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Plan:
        """The plan that `to_json` wrote; raises InvalidArgument for anything else."""
        try:
            body = json.loads(text)
            if not all(isinstance(body[k], str) for k in ("policy", "module", "fingerprint")):
                raise InvalidArgument("policy, module and fingerprint must be texts")
            if body.get("schema") != SCHEMA:
                raise InvalidArgument(f"the schema is {body.get('schema')!r}, not {SCHEMA!r}")
            decisions = {
                name: Decision(
                    as_dtype(_text(d, "operand")),
                    as_dtype(_text(d, "accumulate")),
                    as_dtype(_text(d, "output")),
                    _text(d, "reason"),
                )
                for name, d in body["decisions"].items()
            }
            return Plan(body["policy"], body["module"], body["fingerprint"], decisions)
        except (
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
            NeuronSimError,
        ) as error:
            raise InvalidArgument(f"not a plan of neuronsim: {error}") from error

    def diff(self, other: Plan) -> dict[str, tuple[Decision | None, Decision | None]]:
        """The instructions on which two plans differ, with both decisions."""
        names = dict.fromkeys([*self.decisions, *other.decisions])
        pairs = {n: (self.decisions.get(n), other.decisions.get(n)) for n in names}
        return {n: (a, b) for n, (a, b) in pairs.items() if a != b}

    def explain(self, name: str) -> str:
        """One sentence on what the plan does to an instruction, and why."""
        d = self.decisions.get(name)
        if d is None:
            return f"{name} keeps the types of the model under {self.policy}"
        return (
            f"{name} reads {d.operand.name}, sums in {d.accumulate.name} and gives {d.output.name} "
            f"({d.reason})"
        )


def fingerprint(module: Module) -> str:
    """A hash of the module, by which a plan knows the one that it was made for: of its instructions,
    their types and attributes, the constants' bits; not of layouts and metadata, which change no value.
    """
    digest = hashlib.sha256(repr((module.name, module.entry)).encode())
    for c in module.computations:
        digest.update(repr((c.name, c.root)).encode())
        for i in c.instructions:
            literal = i.attributes.get("literal")
            attributes = _stated(i.attributes) if literal is None else []
            types = [(s.dtype.name, s.dims) for s in i.shape.arrays()]
            digest.update(repr((i.name, i.opcode, types, i.operands, attributes)).encode())
            for bits in _arrays(literal):
                digest.update(np.ascontiguousarray(bits.data).data)
    return digest.hexdigest()[:16]


# What an attribute says that a file need not say.
_USUAL = {
    "feature_group_count": (1,),
    "batch_group_count": (1,),
    "comparison_type": ("FLOAT", "SIGNED", "UNSIGNED"),
}


def _stated(attributes: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The attributes as every file keeps them: without those that are as usual, and with fractions as
    float32.
    """
    return sorted(
        (name, float(np.float32(value)) if isinstance(value, float) else value)
        for name, value in attributes.items()
        if value and value not in _USUAL.get(name, ())
    )


def _arrays(literal: Any) -> Iterator[ops.Bits]:
    """The arrays of a constant: one, those of a tuple, or none where there is no literal."""
    if isinstance(literal, ops.Bits):
        yield literal
    elif literal is not None:
        for part in literal:
            yield from _arrays(part)


def make_plan(module: Module, policy: Policy) -> Plan:
    """What a policy decides for a module. The instructions are those after `inline_calls`, in every
    computation that is executed instruction by instruction.
    """
    decisions = {}
    graphs = graph_computations(inline_calls(module))
    fixed = _of_fixed_types(graphs)
    for c in graphs:
        for i in c.instructions:
            decision = _decide(c, i, policy)
            if decision is not None and not (i.opcode == "while" and fixed.intersection(i.called)):
                decisions[i.name] = decision
    return Plan(policy.name, module.name, fingerprint(module), decisions)


def _of_fixed_types(graphs: Sequence[Computation]) -> set[str]:
    """The computations whose parameters and results keep the model's types: branches, and what loops
    call that share a computation with such.
    """
    loops: dict[str, list[str]] = {}
    pending: list[str] = []
    for i in (i for c in graphs for i in c.instructions):
        if i.opcode == "conditional":
            pending += i.called
        elif i.opcode == "while":
            for name in i.called:
                loops.setdefault(name, []).extend(i.called)
    found: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += loops.get(name, ())
    return found


def _decide(computation: Computation, i: Instruction, policy: Policy) -> Decision | None:
    if not policy.low or not _is_castable(computation, i):
        return None
    if i.opcode == "constant":
        if "compute" not in policy.low:
            return None
        low = policy.low["compute"].output
        return Decision(
            low, dtypes.float32, low, f"A2: {policy.name} converts constants to {low.name} once"
        )
    if i.opcode == "while":
        low = policy.low["movement"].output if "movement" in policy.low else dtypes.float32
        if low in (dtypes.float32, dtypes.tfloat32):
            return None  # no other HLO type carries the values
        reason = f"A2: {policy.name} carries the values of loops as {low.name}"
        return Decision(low, dtypes.float32, low, reason)
    op = row(i)
    lowering = policy.low.get(op.cast)
    if lowering is None:
        return None
    if op.cast == "matmult" and any(t.dtype is not dtypes.float32 for t in _reads(computation, i)):
        return None  # a product of narrower operands is no float32 product (A1)
    own = _own_type(i)
    output = lowering.output if own is dtypes.float32 else own
    return Decision(lowering.operand, lowering.accumulate, output, lowering.reason)


def _is_castable(computation: Computation, i: Instruction) -> bool:
    """Whether a plan may decide an instruction (A2): one that reads or gives float32 arrays on an
    engine. What has no row only passes values on and keeps the model's types; so does the host's work
    (H1).
    """
    if i.opcode == "constant":
        return isinstance(i.shape, Shape) and i.shape.dtype is dtypes.float32
    if i.opcode == "while":
        types = [s.dtype for s in i.shape.arrays()]
        return dtypes.float32 in types and not any(t.kind == "complex" for t in types)
    if i.opcode not in ops.OPCODES:
        return False
    types = [s.dtype for s in (*i.shape.arrays(), *_reads(computation, i))]
    if dtypes.float32 not in types or any(t.kind == "complex" for t in types):
        return False
    return row(i).cast != "host"


def _reads(computation: Computation, i: Instruction) -> list[Shape]:
    """The shapes of the operands that are arrays."""
    shapes = (computation.by_name[o].shape for o in i.operands)
    return [s for s in shapes if isinstance(s, Shape)]


def _own_type(i: Instruction) -> DType:
    """The type that the model gives what a decision's output is about: float32 where there is any."""
    types = [s.dtype for s in i.shape.arrays()]
    return dtypes.float32 if dtypes.float32 in types or not types else types[0]


def load_plan(path: str | Path) -> Plan:
    """The plan in a JSON file."""
    try:
        return Plan.from_json(Path(path).read_text())
    except OSError as error:
        raise InvalidArgument(f"cannot read the plan {str(path)!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{path} is not a plan of neuronsim: it is not text") from error


def check_plan(plan: Plan, module: Module) -> None:
    """Raises InvalidArgument, with all problems, if the plan was made for another module, names what
    it lacks, or asks for types that cannot be.
    """
    graphs = graph_computations(inline_calls(module))
    found = {i.name: (c, i) for c in graphs for i in c.instructions if i.name in plan.decisions}
    problems = [f"it has no instruction {n!r}" for n in plan.decisions if n not in found]
    for name, d in plan.decisions.items():
        if name in found:
            problems += _type_problems(*found[name], d)
    problems += _loop_problems(graphs, plan.decisions)
    if plan.fingerprint != fingerprint(module):
        problems.insert(0, f"the plan was made for {plan.module!r} ({plan.fingerprint})")
    if problems:
        raise InvalidArgument(f"the plan does not fit module {module.name!r}: {'; '.join(problems)}")


def _type_problems(computation: Computation, i: Instruction, d: Decision) -> list[str]:
    if not _is_castable(computation, i):
        return [f"{i.name} is a {i.opcode} that keeps the types of the model (A2)"]
    found = []
    own = _own_type(i)
    if d.operand.kind != "float" or not d.operand.device:
        found.append(f"{i.name} cannot read {d.operand.name}")
    fits = d.output.kind == "float" and d.output.device if own is dtypes.float32 else d.output is own
    if not fits:
        found.append(f"{i.name} gives {own.name} and cannot give {d.output.name}")
    if d.accumulate is not dtypes.float32:
        found.append(f"{i.name} sums in float32; {d.accumulate.name} is not there yet (R1, M6)")
    if i.opcode == "while" and (d.operand is not d.output or d.output is dtypes.tfloat32):
        found.append(
            f"{i.name} carries its values in one type that HLO has, not read as {d.operand.name} and "
            f"given as {d.output.name} (A2)"
        )
    return found


def _loop_problems(graphs: Sequence[Computation], decisions: Mapping[str, Decision]) -> list[str]:
    """Computations that two callers would have in different types."""
    callers: dict[str, tuple[str, DType]] = {}
    problems = []
    for i in (i for c in graphs for i in c.instructions if i.opcode in CONTROL_FLOW):
        d = decisions.get(i.name) if i.opcode == "while" else None
        dtype = d.output if d else dtypes.float32
        for name in i.called:
            other, carried = callers.setdefault(name, (i.name, dtype))
            if carried is not dtype:
                problems.append(
                    f"{other} and {i.name} share {name} and cannot carry {carried.name} "
                    f"and {dtype.name}"
                )
    return problems


def _text(d: Mapping[str, Any], key: str) -> str:
    if not isinstance(d[key], str):
        raise InvalidArgument(f"{key} is {d[key]!r}, not a text")
    return str(d[key])


def describe(plan: Plan) -> list[dict[str, Any]]:
    """The decisions as rows for a table."""
    return [{"instruction": name, **d.to_dict()} for name, d in plan.decisions.items()]
