"""The tree of scopes with what is lost in each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from neuronsim.report_page.documents import Documents, rows

OPEN = 0.1  # share of the whole from which a branch is open
MOST = 400  # scopes that are shown


@dataclass
class _Node:
    value: float = 0.0
    children: dict[str, _Node] = field(default_factory=dict)


def scope_tree(found: Documents) -> dict[str, Any]:
    """`scopes`, nested with their figures, and what these are (`scopes_below`)."""
    values, below, unit = _values(found)
    root = _Node()
    for scope, value in sorted(values.items())[:MOST]:
        node = root
        node.value += value
        for part in scope.split("/"):
            node = node.children.setdefault(part, _Node())
            node.value += value
    if not root.value:
        return {"scopes": [], "scopes_below": ""}
    return {"scopes": _listed(root, root.value, unit), "scopes_below": below}


def _values(found: Documents) -> tuple[Mapping[str, float], str, str]:
    """What each scope has, by the first document that tells."""
    blamed = found.blame.get("scopes") or {}
    if blamed:
        own = _own_of(blamed)
        return own, "The share of the outputs' error that arises in each scope.", "%"
    counts: dict[str, float] = {}
    for x in rows(found.observation, "instructions"):
        if x.get("op_name") and x.get("counts"):
            counts[x["op_name"]] = counts.get(x["op_name"], 0) + sum(x["counts"].values())
    if counts:
        return counts, "Elements that overflowed, underflowed, saturated or became NaN.", ""
    times: dict[str, float] = {}
    for x in rows(found.cost, "instructions"):
        if x.get("op_name"):
            times[x["op_name"]] = times.get(x["op_name"], 0) + x["seconds"] * 1e6
    return times, "Estimated microseconds of the engines.", "us"


def _own_of(scopes: Mapping[str, Any]) -> dict[str, float]:
    """What a scope has beyond those inside it, where sums were given."""
    own = {name: float(value or 0) for name, value in scopes.items()}
    for name in sorted(own, key=len, reverse=True):
        inside = [n for n in own if n.startswith(f"{name}/") and "/" not in n[len(name) + 1 :]]
        own[name] = max(own[name] - sum(float(scopes[n] or 0) for n in inside), 0.0)
    return own


def _listed(node: _Node, whole: float, unit: str, above: str = "") -> list[dict[str, Any]]:
    found = []
    for name, child in sorted(node.children.items(), key=lambda c: (-c[1].value, c[0])):
        while len(child.children) == 1:  # a scope that has one inside is written with it
            inner, only = next(iter(child.children.items()))
            if only.value != child.value:
                break
            name, child = f"{name}/{inner}", only
        share = child.value / whole
        shown = f"{100 * share:.3g} %" if share >= 1e-4 or not share else "below 0.01 %"
        figure = shown if unit == "%" else f"{child.value:.4g} {unit}".strip()
        found.append(
            {
                "name": name or "(no scope)",
                "path": above + name,
                "figure": figure,
                "width": round(100 * share, 1),
                "open": share >= OPEN,
                "children": _listed(child, whole, unit, f"{above}{name}/"),
            }
        )
    return found
