"""Plan: for every instruction the types that it reads, sums in and gives, and why."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuronsim import dtypes
from neuronsim.casting.policy import Policy
from neuronsim.dtypes import DType, as_dtype
from neuronsim.errors import InvalidArgument, NeuronSimError
from neuronsim.hlo import proto
from neuronsim.hlo.module import Instruction, Module, Shape, inline_calls
from neuronsim.hlo.opcodes import STRUCTURE, row

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
    """A hash of the module, by which a plan knows the one that it was made for."""
    return hashlib.sha256(proto.to_bytes(module)).hexdigest()[:16]


def make_plan(module: Module, policy: Policy) -> Plan:
    """What a policy decides for a module. The instructions are those after `inline_calls`."""
    flat = inline_calls(module)
    decisions = {}
    for i in flat.entry_computation.instructions:
        decision = _decide(flat, i, policy)
        if decision is not None:
            decisions[i.name] = decision
    return Plan(policy.name, module.name, fingerprint(module), decisions)


def _decide(module: Module, i: Instruction, policy: Policy) -> Decision | None:
    if not isinstance(i.shape, Shape):
        return None
    gives_float32 = i.shape.dtype is dtypes.float32
    if i.opcode == "constant" and gives_float32 and "compute" in policy.low:
        low = policy.low["compute"].output
        return Decision(low, dtypes.float32, low, "A2: constants are converted once")
    if i.opcode in STRUCTURE:
        return None
    op = row(i)
    by_name = module.entry_computation.by_name
    shapes = [by_name[o].shape for o in i.operands]
    reads_float32 = any(isinstance(s, Shape) and s.dtype is dtypes.float32 for s in shapes)
    lowering = policy.low.get(op.cast)
    if lowering is None or not (reads_float32 or gives_float32):
        return None
    if op.cast == "matmult" and not all(
        isinstance(s, Shape) and s.dtype is dtypes.float32 for s in shapes
    ):
        return None  # a product of narrower operands is no float32 product (A1)
    output = lowering.output if gives_float32 else i.shape.dtype
    return Decision(lowering.operand, lowering.accumulate, output, lowering.reason)


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
    names = inline_calls(module).entry_computation.by_name
    problems = [f"it has no instruction {n!r}" for n in plan.decisions if n not in names]
    for name, d in plan.decisions.items():
        if name in names:
            problems += _type_problems(names[name], d)
    if plan.fingerprint != fingerprint(module):
        problems.insert(0, f"the plan was made for {plan.module!r} ({plan.fingerprint})")
    if problems:
        raise InvalidArgument(f"the plan does not fit module {module.name!r}: {'; '.join(problems)}")


def _type_problems(i: Instruction, d: Decision) -> list[str]:
    found = []
    if not isinstance(i.shape, Shape):
        return [f"{i.name} gives a tuple"]
    own = i.shape.dtype
    if d.operand.kind != "float" or not d.operand.device:
        found.append(f"{i.name} cannot read {d.operand.name}")
    fits = d.output.kind == "float" and d.output.device if own is dtypes.float32 else d.output is own
    if not fits:
        found.append(f"{i.name} gives {own.name} and cannot give {d.output.name}")
    if d.accumulate is not dtypes.float32:
        found.append(f"{i.name} sums in float32; {d.accumulate.name} is not there yet (R1, M6)")
    return found


def _text(d: Mapping[str, Any], key: str) -> str:
    if not isinstance(d[key], str):
        raise InvalidArgument(f"{key} is {d[key]!r}, not a text")
    return str(d[key])


def describe(plan: Plan) -> list[dict[str, Any]]:
    """The decisions as rows for a table."""
    return [{"instruction": name, **d.to_dict()} for name, d in plan.decisions.items()]
