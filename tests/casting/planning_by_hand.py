"""Plans written decision by decision, applied, and what the planned module states of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuronsim import dtypes
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.plans.plan import Plan
from neuronsim.dtypes import DType
from neuronsim.hlo import parse, proto, text
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.instruction_settings import stated_settings
from neuronsim.hlo.module import Module
from neuronsim.hlo.verify import verify

F32 = dtypes.float32


def plan_of(module: Module, decisions: Mapping[str, Decision], **more: Any) -> Plan:
    return Plan("by hand", module.name, fingerprint(module), decisions, **more)


def settings(module: Module) -> list[str]:
    """What every instruction of the module states."""
    computations = module.computations
    return sorted(str(stated_settings(i.attributes)) for c in computations for i in c.instructions)


def planned(module: Module, clean: bool = True, **decisions: Decision) -> Module:
    """The verified application, which comes through both file formats as it is."""
    result = apply_plan(module, plan_of(module, decisions), clean=clean)
    verify(result)
    assert fingerprint(proto.from_bytes(proto.to_bytes(result))) == fingerprint(result)
    again = parse.from_text(text.to_text(result))  # which renames what two computations call alike
    assert settings(again) == settings(result)
    return result


def decide(operand: DType, output: DType | None = None, **more: Any) -> Decision:
    return Decision(
        operand, more.pop("accumulate", F32), output or operand, more.pop("reason", "why"), **more
    )


def stating(module: Module, key: str) -> dict[str, str]:
    """The instructions that state something under a key of neuronsim's, with what."""
    found = {}
    for c in module.computations:
        for i in c.instructions:
            value = i.attributes.get("frontend_attributes", {}).get(f"neuronsim.{key}")
            if value is not None:
                found[i.name] = value
    return found
