"""A model's graph and plan as a document, for reports that show an instruction among others."""

from __future__ import annotations

from typing import Any

from neuronsim.casting.decisions.record import PlanRecord
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import Module, graph_computations
from neuronsim.report_page.sources import excerpts

SCHEMA = "neuronsim.graph/1"


def graph_document(
    model: Module, plan: PlanRecord | None, name: str, *, traced: bool = False
) -> dict[str, Any]:
    """Every instruction of a model in order: its opcode, type, operands and place in the source, and
    what a plan decides of it and why. Of a model that was `traced` here also the source's lines.
    """
    found, places = [], []
    for c in graph_computations(inline_calls(model)):
        for i in c.instructions:
            about: dict[str, Any] = {"name": i.name, "opcode": i.opcode}
            about["type"] = ", ".join(str(s.type) for s in i.shape.arrays())
            about["operands"] = list(i.operands)
            m = i.metadata
            about |= {"op_name": m.op_name} if m.op_name else {}
            if m.source_file:
                about["source"] = f"{m.source_file}:{m.source_line}"
                places.append((m.source_file, m.source_line))
            d = None if plan is None else plan.decisions.get(i.name)
            if d is not None:
                about["decided"] = d.output.name
                about["sums"] = d.accumulate.name
                about["reason"] = d.reason
            elif plan is not None and i.name in plan.kept:
                about["reason"] = plan.kept[i.name]
            found.append(about)
    policy = "" if plan is None else plan.policy
    return {
        "schema": SCHEMA,
        "model": name,
        "fingerprint": fingerprint(model),
        "policy": policy,
        "instructions": found,
        "sources": excerpts(places) if traced else {},
    }
