"""The table of every instruction: what is decided of it and why, and what it met."""

from __future__ import annotations

from typing import Any

from neuronsim.report_page.documents import Documents, rows
from neuronsim.report_page.summary import chosen_plan, number

ALL = "all instructions"
HEADERS = ("instruction", "opcode", "type", "computes in", "why", "met", "error", "scope")


def instruction_table(found: Documents) -> dict[str, Any]:
    """Headers, rows of texts with the kinds that the filter knows, and these kinds."""
    graph = {x["name"]: x for x in rows(found.graph, "instructions")}
    met = {x["name"]: x for x in rows(found.observation, "instructions")}
    blamed = {x["name"]: x for x in rows(found.blame, "instructions")}
    plan = chosen_plan(found)
    kept = {k["name"]: k for k in rows(plan, "kept")}
    decisions = (plan.get("plan") or {}).get("decisions") or {} if plan else {}
    causes = {c["instruction"] for c in rows(found.blame, "causes")}
    made = []
    for name in dict.fromkeys([*graph, *met, *blamed, *decisions, *kept]):
        about = {**blamed.get(name, {}), **met.get(name, {}), **graph.get(name, {})}
        decided = _decided(decisions.get(name), about)
        counts = met.get(name, {}).get("counts") or {}
        said = ", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in counts.items())
        error = blamed.get(name, {}).get("relative_error")
        why = str(about.get("reason") or (decisions.get(name) or {}).get("reason") or "")
        scope = str(about.get("op_name") or about.get("scope") or kept.get(name, {}).get("scope") or "")
        cells = [name, about.get("opcode") or kept.get(name, {}).get("opcode") or ""]
        cells += [about.get("type") or "", decided, why, said, "" if error is None else number(error)]
        kinds = ["met something"] * bool(counts) + ["to blame"] * (name in causes)
        kinds += [f"computes in {decided}"] * bool(decided) + ["kept in float32"] * (name in kept)
        made.append({"cells": [*map(str, cells), scope], "kinds": kinds})
    used = [n for n in range(len(HEADERS)) if n == 0 or any(r["cells"][n] for r in made)]
    for r in made:
        r["cells"] = [r["cells"][n] for n in used]
    kinds = list(dict.fromkeys(k for r in made for k in r["kinds"]))
    return {"headers": [HEADERS[n] for n in used], "rows": made, "filters": [ALL, *sorted(kinds)]}


def _decided(decision: Any, about: dict[str, Any]) -> str:
    """The type of the recommended plan, else that of the graph's."""
    if isinstance(decision, dict):
        return str(decision.get("output") or "")
    return str(about.get("decided") or "")
