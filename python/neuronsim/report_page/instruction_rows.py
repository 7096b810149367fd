"""The table of every instruction: what is decided of it and why, what it met, and what it reads."""

from __future__ import annotations

from typing import Any

from neuronsim.report_page.documents import Documents, rows
from neuronsim.report_page.sources import shown
from neuronsim.report_page.summary import chosen_plan, number

ALL = "all instructions"
HEADERS = ("instruction", "opcode", "type", "computes in", "why", "met", "error", "scope", "source")
# The relative error from which on an instruction's values are poor, and bad.
POOR, BAD = 0.01, 0.1


def instruction_table(found: Documents) -> dict[str, Any]:
    """Headers, rows of texts with the kinds that the filter knows, and these kinds. A row also has the
    numbers of the rows that it `reads`, and how `good` its values are: 0 to 2, None if not known.
    """
    graph = {x["name"]: x for x in rows(found.graph, "instructions")}
    met = {x["name"]: x for x in rows(found.observation, "instructions")}
    blamed = {x["name"]: x for x in rows(found.blame, "instructions")}
    plan = chosen_plan(found)
    kept = {k["name"]: k for k in rows(plan, "kept")}
    decisions = (plan.get("plan") or {}).get("decisions") or {} if plan else {}
    causes = {c["instruction"] for c in rows(found.blame, "causes")}
    made: list[dict[str, Any]] = []
    numbers = {n: k for k, n in enumerate(dict.fromkeys([*graph, *met, *blamed, *decisions, *kept]))}
    for name in numbers:
        about = {**blamed.get(name, {}), **met.get(name, {}), **graph.get(name, {})}
        decided = _decided(decisions.get(name), about)
        counts = met.get(name, {}).get("counts") or {}
        said = ", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in counts.items())
        error = blamed.get(name, {}).get("relative_error")
        why = str(about.get("reason") or (decisions.get(name) or {}).get("reason") or "")
        scope = str(about.get("op_name") or about.get("scope") or kept.get(name, {}).get("scope") or "")
        cells = [name, about.get("opcode") or kept.get(name, {}).get("opcode") or ""]
        cells += [about.get("type") or "", decided, why, said, "" if error is None else number(error)]
        cells += [scope, shown(about.get("source") or kept.get(name, {}).get("source"))]
        kinds = ["met something"] * bool(counts) + ["to blame"] * (name in causes)
        kinds += [f"computes in {decided}"] * bool(decided) + ["kept in float32"] * (name in kept)
        good = None if error is None else 2 - (error >= POOR) - (error >= BAD)
        reads = [numbers[o] for o in dict.fromkeys(about.get("operands") or ()) if o in numbers]
        made.append({"cells": list(map(str, cells)), "kinds": kinds, "reads": reads, "good": good})
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
