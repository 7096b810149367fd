"""The record of a plan: for every instruction the types that it reads, sums in and gives, and why; as
JSON.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from neuronsim import json_documents
from neuronsim.casting import fields
from neuronsim.casting.decisions.quantization import (
    Quantization,
    read_quantization,
    read_quantizations,
)
from neuronsim.casting.policies.policy import Rounding
from neuronsim.dtypes import DType, float32
from neuronsim.errors import InvalidArgument
from neuronsim.processor import pinned
from neuronsim.records import check_fields, readers

SCHEMA = "neuronsim.plan/3"


@dataclass(frozen=True)
class Decision:
    """The types of one instruction: of its float operands, of its sums, of its result; and why.

    Operands and results with these numbers stay float32 (`float32_operands`, `float32_results`): the
    statistics of a batch norm, say. A transpose with a `relayout` runs on the tensor engine in that
    type (A3, M8), where `saturate_infinity` replaces ±Inf. A product may read its operands quantized,
    and any float32 result may be (rules Q): the float types are then float32. `bias` is the name of the
    addition whose bias the int32 sums of such a product take (Q7): the result is then the addition's.
    """

    operand: DType
    accumulate: DType
    output: DType
    reason: str
    rounding: Rounding = ""
    float32_operands: tuple[int, ...] = ()
    float32_results: tuple[int, ...] = ()
    relayout: DType | None = None
    saturate_infinity: bool = False
    quantized_operands: tuple[Quantization | None, ...] = ()
    quantized_result: Quantization | None = None
    bias: str = ""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def quantizes(self) -> bool:
        """Whether it is a decision about scaled bytes: the float types are then the model's."""
        return any(self.quantized_operands) or self.quantized_result is not None

    def reads(self, dtype: DType, number: int) -> DType:
        """The type in which it has an operand that the model has in this one."""
        return self.operand if dtype is float32 and number not in self.float32_operands else dtype

    def gives(self, dtype: DType, number: int) -> DType:
        """The type in which it has a result that the model has in this one."""
        return self.output if dtype is float32 and number not in self.float32_results else dtype

    @property
    def reads_integers(self) -> bool:
        """Whether its operands are integers of 8 bits, which not every target multiplies."""
        return any(q is not None and not q.is_float for q in self.quantized_operands)


def without_biases(decisions: Mapping[str, Decision]) -> dict[str, Decision]:
    """The decisions without those on additions whose biases the sums of a product take (Q7)."""
    taken = {d.bias for d in decisions.values()}
    return {n: d for n, d in decisions.items() if n not in taken}


@dataclass(frozen=True)
class PlanRecord:
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

    @classmethod
    @pinned
    def from_json(cls, text: str) -> Self:
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
        return cls(**found, decisions=decisions)

    def diff(self, other: PlanRecord) -> dict[str, tuple[Decision | None, Decision | None]]:
        """The instructions on which two plans differ, or their reasons, with both decisions."""
        names = dict.fromkeys([*self.decisions, *other.decisions])
        pairs = {n: (self.decisions.get(n), other.decisions.get(n)) for n in names}
        return {n: (a, b) for n, (a, b) in pairs.items() if a != b}


_OLDER = ("neuronsim.plan/1", "neuronsim.plan/2")
_REQUIRED = tuple(f.name for f in dataclasses.fields(PlanRecord))
_PLAN: Mapping[str, fields.Kind] = {
    "schema": fields.text,
    **readers(PlanRecord, fields.KINDS),
    "decisions": fields.mapping,
}
_DECISION: Mapping[str, fields.Kind] = {
    **readers(Decision, fields.KINDS),
    **dict.fromkeys(("operand", "accumulate", "output"), fields.any_type),
    "quantized_operands": read_quantizations,
    "quantized_result": read_quantization,
}
_STATED = ("operand", "accumulate", "output", "reason")  # of every decision
_OPTIONAL = {f.name: f.default for f in dataclasses.fields(Decision) if f.name not in _STATED}


def _to_json(d: Decision) -> dict[str, Any]:
    """A decision with what it states: types by their names."""
    found = {n: getattr(d, n) for n in _DECISION}
    stated = {n: v for n, v in found.items() if n in _STATED or v != _OPTIONAL[n]}
    return {n: _stated(v) for n, v in stated.items()}


def _stated(value: Any) -> Any:
    """A field's value in a document."""
    if isinstance(value, DType):
        return value.name
    if isinstance(value, Quantization):
        return value.to_json()
    return [_stated(v) for v in value] if isinstance(value, tuple) else value


def _from_json(name: str, body: Any, problems: list[str]) -> Decision | None:
    """A decision, or None and its problems."""
    before = len(problems)
    found = fields.read_fields(body, _DECISION, f"decision {fields.shown(name)}: ", problems, _STATED)
    return Decision(**found) if len(problems) == before else None
