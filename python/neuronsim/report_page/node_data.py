"""Figures of instructions as Model Explorer's node data, by the names of the source."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from neuronsim.errors import InvalidData
from neuronsim.report_page.documents import Document, Documents, gather, read_as_written, rows

# From light to dark: the more, the worse.
_GRADIENT = (
    {"stop": 0.0, "bgColor": "#fff7ec"},
    {"stop": 0.5, "bgColor": "#fdbb84"},
    {"stop": 1.0, "bgColor": "#b30000"},
)


def node_data(documents: Iterable[Document]) -> str:
    """JSON that Model Explorer reads beside the model: for each node the share of the outputs' error
    that arises there, else how many elements overflowed, underflowed, saturated or became NaN. Nodes
    have the names that Model Explorer gives them: those of the ONNX file, or of the nodes of PyTorch's
    exported program; of other models those of the framework's scopes, and an instruction without such
    its own.

    Raises InvalidData where no document has figures of instructions.
    """
    found = gather(documents)
    with read_as_written(found):
        values = _values(found)
    if not values:
        raise InvalidData("node data needs what blame or run --observe wrote with --json")
    results = {name: {"value": value} for name, value in values.items()}
    return json.dumps({"results": results, "gradient": list(_GRADIENT)}, indent=1)


def _values(found: Documents) -> dict[str, float]:
    values: dict[str, float] = {}
    for x in rows(found.blame, "instructions"):
        name = _node(found.model, x, x.get("scope"))
        values[name] = values.get(name, 0.0) + float(x.get("own") or 0.0)
    if not values:
        for x in rows(found.observation, "instructions"):
            name = _node(found.model, x, x.get("op_name"))
            values[name] = values.get(name, 0.0) + float(sum((x.get("counts") or {}).values()))
    return values


def _node(model: str, x: Document, scope: Any) -> str:
    """The node that an instruction is of. A scope of PyTorch's ends with the node's name."""
    whole = str(scope or x["name"])
    exported = model.endswith(".pt2") or (":" in model and not os.path.exists(model))
    return whole.rpartition("/")[2] if exported else whole
