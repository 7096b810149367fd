"""The report as one HTML file: no network, no string of a model as markup or script."""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from neuronsim.errors import InvalidArgument, counted
from neuronsim.json_documents import finite
from neuronsim.report_page.charts import figures
from neuronsim.report_page.documents import (
    Document,
    Documents,
    check_model,
    gather,
    read_as_written,
    rows,
)
from neuronsim.report_page.instruction_rows import instruction_table
from neuronsim.report_page.magnitudes import histograms
from neuronsim.report_page.scopes import scope_tree
from neuronsim.report_page.sources import shown
from neuronsim.report_page.summary import (
    answers,
    chosen_plan,
    fails,
    number,
    percent,
    recommended,
    seconds,
)

PLOTS = {
    "pareto": (
        "Error against time",
        "The settings of the ladder and the plans beyond it: lower left is better.",
    ),
    "timeline": ("Engines", "The estimated timeline: when each engine works on which instruction."),
    "depth": ("Error by depth", "The error that passes each instruction; crosses are to blame."),
    "ranges": ("Ranges", "The magnitudes of values, those next to the limits of the type first."),
}


def report_html(documents: Iterable[Document], *, command: str = "") -> str:
    """The page of what commands found, from their JSON documents (`gather` says which).

    Raises InvalidData for other documents, and InvalidArgument where Jinja2 or Plotly, which are in the
    extra `report`, are not installed.
    """
    found = gather(documents, command)
    libraries = extras()
    with read_as_written(found):
        check_model(found)
        return _page_of(found, command, *libraries)


def _page_of(found: Documents, command: str, jinja2: Any, offline: Any) -> str:
    """The page, with jinja2 and plotly.offline."""
    made = figures(found)
    table = instruction_table(found)
    sources = {shown(file): lines for file, lines in (found.graph.get("sources") or {}).items()}
    data = {"plots": made, "instructions": table, "sources": sources}
    scripts = {"script": _own("page.js")} | ({"plotly": offline.get_plotlyjs()} if made else {})
    markup = jinja2.utils.markupsafe.Markup
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    page: str = environment.from_string(_own("page.html.jinja")).render(
        title=found.model,
        about=_about(found),
        answers=answers(found),
        notes=[*map(str, found.tune.get("notes") or ()), *map(str, found.blame.get("notes") or ())],
        causes=[_cause(c, found) for c in rows(found.blame, "causes")],
        ladder=_ladder(found),
        wider=_wider(found),
        plots=[(name, *PLOTS[name]) for name in PLOTS if name in made],
        **scope_tree(found),
        has_plan=bool(table["rows"]),
        examined=str(found.blame.get("setting") or "") if "error" in table["headers"] else "",
        facts=_facts(found),
        command=command,
        footer="Made by neuronsim without a device: errors are computed, times are estimated.",
        css=markup(_own("page.css")),
        data=markup(_json(data)),
        plotly=markup(scripts.get("plotly", "")),
        script=markup(scripts["script"]),
        hashes=markup(" ".join(f"'sha256-{_digest(text)}'" for text in scripts.values())),
    )
    return page


def extras() -> tuple[Any, Any]:
    """Jinja2 and plotly.offline; raises InvalidArgument where one is not installed."""
    return _extra("jinja2"), _extra("plotly.offline")


def _extra(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise InvalidArgument(
            f"a report needs {package}, which is not installed: pip install 'neuronsim[report]'"
        ) from None


def _own(name: str) -> str:
    return files("neuronsim.report_page").joinpath(name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _json(data: Any) -> str:
    """JSON that no HTML parser reads as markup."""
    text = json.dumps(finite(data), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _about(found: Documents) -> str:
    data = next((d["data"] for d in found.each() if d.get("data")), "")
    samples = next((d["samples"] for d in found.each() if d.get("samples")), None)
    target = next((d["target"] for d in found.each() if d.get("target")), "")
    of_data = f"{counted(samples, 'sample')} of {data}" if samples else str(data)
    return ", ".join(p for p in (of_data, f"target {target}" * bool(target)) if p)


def _ladder(found: Documents) -> dict[str, Any]:
    """The settings that tune measured, else those that cost estimated."""
    rungs = [*rows(found.tune, "rungs"), *(p["figures"] for p in rows(found.tune, "plans"))]
    if not rungs:
        return _estimates(found)
    labelled = any(r.get("top1") is not None for r in rungs)
    headers = ["setting", *(["accuracy"] if labelled else []), "relative error", "max error"]
    headers += ["not finite", "weights, MB", "estimated", "speed-up"]
    best = recommended(found).get("name")
    made = []
    for r in rungs:
        top1 = r.get("top1")
        accuracy = ["" if top1 is None else f"{100 * top1:.2f} %"] if labelled else []
        cells = [r["name"], *accuracy, number(r.get("relative_error")), number(r.get("max_error"))]
        cells += [str(r.get("not_finite", 0)), f"{(r.get('weight_bytes') or 0) / 1e6:.4g}"]
        cells += [seconds(r.get("estimated_seconds")), f"{r.get('estimated_speedup', 1):.2f}x"]
        kind = "chosen" if r["name"] == best else "failing" * fails(r, found)
        made.append({"cells": cells, "kind": kind})
    return {"headers": headers, "rows": made}


def _wider(found: Documents) -> dict[str, Any]:
    """The computing instructions that the recommended plan keeps in wider types than its base."""
    plan = chosen_plan(found)
    kept = rows(plan, "kept")
    if not kept:
        return {}
    measured = any(k.get("error") is not None for k in kept)
    headers = ["instruction", "opcode", "type", "scope", "source"]
    headers += ["alone in the low type: error"] * measured
    made = []
    for k in kept:
        scope = str(k.get("scope") or "")
        if _letters(scope) == _letters(str(k["name"])):
            scope = ""  # it is the name in another spelling
        cells = [str(k["name"]), str(k.get("opcode")), str(k.get("type")), scope]
        cells.append(shown(k.get("source")))
        cells += ["" if k.get("error") is None else number(k["error"])] * measured
        made.append(cells)
    used = [n for n in range(len(headers)) if any(cells[n] for cells in made)]
    moved = f"{plan.get('moved', 0)} more only move values"
    return {
        "below": f"Of {plan['base']} these compute in a wider type; {moved}.",
        "headers": [headers[n] for n in used],
        "rows": [[cells[n] for n in used] for cells in made],
    }


def _letters(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", " ", name).strip()


def _estimates(found: Documents) -> dict[str, Any]:
    settings = rows(found.cost, "settings")
    if not settings:
        return {}
    made = [
        {
            "cells": [
                s["setting"],
                seconds(s["seconds"]),
                seconds(s["overlapped_seconds"]),
                str(s["bound"]),
            ],
            "kind": "",
        }
        for s in settings
    ]
    return {"headers": ["setting", "estimated", "least", "bound by"], "rows": made}


# What proves each kind of cause, of its evidence, and in words.
_EVIDENCE: Mapping[str, Mapping[str, str]] = {
    "overflow": {"largest": "largest value", "top": "largest of {type}"},
    "underflow": {"smallest": "smallest value", "least": "least normal of {type}"},
    "integers": {"largest": "largest value", "exact": "{type} is exact up to"},
    "long reduction": {"exact": "a sum in {type} rests from"},
    "cancellation": {"cancelled": "terms over the result", "digits": "significant bits of {type}"},
    "steep function": {"largest_argument": "largest argument", "digits": "significant bits of {type}"},
    "rounding": {"digits": "significant bits of {type}"},
}


def _cause(c: Mapping[str, Any], found: Documents) -> dict[str, Any]:
    """A cause with its figures, and its histograms."""
    before, after = c.get("before") or {}, c.get("after") or {}
    texts = {k: str(c.get(k) or "") for k in ("instruction", "opcode", "kind", "said", "advice")}
    texts |= {"scope": str(c.get("scope") or ""), "source": shown(c.get("source"))}
    texts["type"] = str(c.get("type") or "")
    figures_of = [
        ("share of the error", f"{100 * (c.get('share') or 0):.3g} %"),
        ("bits lost", number(c.get("bits"))),
    ]
    evidence = c.get("evidence") or {}
    for name, text in _EVIDENCE.get(texts["kind"], {}).items():
        figures_of.append((text.format(type=texts["type"] or "the type"), number(evidence.get(name))))
    figures_of.append(
        ("outputs' error", f"{number(before.get('error'))}, kept {number(after.get('error'))}")
    )
    if before.get("top1") is not None:
        told = f"{percent(before['top1'])}, kept {percent(after.get('top1'))}"
        figures_of.append(("accuracy", told))
    keep = list(map(str, c.get("keep_float32") or ()))
    known = rows(found.graph, "instructions") or rows(found.observation, "instructions")
    drawn = any(x["name"] == texts["instruction"] for x in known)
    return {
        **texts,
        "figures": figures_of,
        "histograms": histograms(c),
        "rewritten": _rewritten(c),
        "keep": keep[:NAMED],
        "more": keep[NAMED:],
        "drawn": drawn,
    }


def _rewritten(c: Mapping[str, Any]) -> dict[str, str]:
    """What is said of a known rewrite of the source, which was measured."""
    before, after = ((c.get(k) or {}).get("error") for k in ("before", "rewritten"))
    if not c.get("rewrite") or after is None:
        return {}
    helps = before is None or after <= REPAIRED * before
    said = f"the error becomes {number(after)}" if helps else f"the error stays {number(after)}"
    return {"kind": "advice" if helps else "below", "said": f"Rewritten as {c['rewrite']}, {said}"}


REPAIRED = 0.5  # of the error: what a rewrite leaves at most
NAMED = 8  # instructions to keep that are not folded away


def _facts(found: Documents) -> Sequence[tuple[str, str]]:
    """What was run on which data, under which release."""
    facts: dict[str, str] = {}
    for d in found.each():
        for key in ("model", "data", "data_fingerprint", "samples", "setting", "casts", "release"):
            if d.get(key) and key not in facts:
                facts[key] = str(d[key])
        for key in ("target", "metric", "tolerance", "policy", "traced", "runs"):
            if d.get(key) and key not in facts:
                facts[key] = str(d[key])
    plan = chosen_plan(found)
    if plan:
        held_out = plan.get("held_out_loss")
        facts["held-out loss"] = "no samples held out" if held_out is None else number(held_out)
    return [(name.replace("_", " "), value) for name, value in facts.items()]
