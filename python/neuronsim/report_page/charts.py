"""The plots of a report, as Plotly's figures: data and layout, without the library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, TypeAlias

from neuronsim.report_page.documents import Documents, rows

Figure: TypeAlias = dict[str, Any]


def figures(found: Documents) -> dict[str, Figure]:
    """Every plot that the documents have data for, by its name."""
    made = {
        "pareto": pareto(found),
        "depth": depth(found),
        "timeline": timeline(found),
        "ranges": ranges(found),
    }
    return {name: figure for name, figure in made.items() if figure}


def pareto(found: Documents) -> Figure:
    """Error against estimated time: the ladder, and the plans beyond it."""
    rungs, plans = rows(found.tune, "rungs"), rows(found.tune, "plans")
    if not rungs:
        return {}
    planned = [p["figures"] for p in plans]
    errors = [e for r in (*rungs, *planned) if (e := _error(r))]
    none = min(errors, default=1e-8) / 10  # where no error at all is drawn
    chosen = str(found.tune.get("chosen") or found.tune.get("recommended"))
    traces = [_points("ladder", rungs, "circle", none, chosen)]
    if planned:
        traces.append(_points("plans", planned, "diamond", none, chosen))
    _place_names(traces)
    traces.append(_front(traces))
    return _figure(traces, "estimated time, us", "error against float32", log=True)


def _front(traces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The line through the points that no other is below and left of."""
    every = sorted((x, y) for t in traces for x, y in zip(t["x"], t["y"], strict=True))
    best: list[tuple[float, float]] = []
    for x, y in every:
        if not best or y < best[-1][1]:
            best.append((x, y))
    line = {"shape": "hv", "dash": "dot", "width": 1}
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "Pareto front",
        "x": [x for x, _ in best],
        "y": [y for _, y in best],
        "line": line,
        "hoverinfo": "skip",
    }


def _points(
    name: str, figures_of: Sequence[Mapping[str, Any]], symbol: str, none: float, chosen: str
) -> dict[str, Any]:
    """A trace of settings; those of one place are one point, with all names."""
    at: dict[tuple[float, float], list[str]] = {}
    for f in sorted(figures_of, key=lambda f: f["estimated_seconds"]):
        if (e := _error(f)) is not None:
            place = float(f"{f['estimated_seconds'] * 1e6:.4g}"), float(f"{e or none:.2g}")
            at.setdefault(place, []).append(f["name"])
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": name,
        "x": [x for x, _ in at],
        "y": [y for _, y in at],
        "text": [text(", ".join(names)) for names in at.values()],
        "customdata": [text(", ".join(names)) for names in at.values()],
        "hovertemplate": "%{customdata}<br>%{x:.4g} us, error %{y:.3g}<extra></extra>",
        "cliponaxis": False,
        "marker": {"symbol": symbol, "size": [16 if chosen in names else 10 for names in at.values()]},
    }


# Where a point's name may stand: right and down from the point, in widths and heights of the name.
_PLACES = {
    "top center": (-0.5, -1.5),
    "bottom center": (-0.5, 0.5),
    "middle right": (0.1, -0.5),
    "middle left": (-1.1, -0.5),
}
_PLOT = (800.0, 220.0)  # pixels inside the axes, about
_LETTER = (6.6, 14.0)  # pixels


def _place_names(traces: Sequence[dict[str, Any]]) -> None:
    """Sets each point's `textposition`, so that names lie on no other name and no point if they can."""
    points = [(x, math.log10(y)) for t in traces for x, y in zip(t["x"], t["y"], strict=True)]
    if not points:
        return
    low = [min(p[k] for p in points) for k in range(2)]
    size = [max(p[k] for p in points) - low[k] or 1.0 for k in range(2)]
    pixels = [
        (_PLOT[0] * (x - low[0]) / size[0], _PLOT[1] * (1 - (y - low[1]) / size[1])) for x, y in points
    ]
    taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in pixels]
    for t in traces:
        t["textposition"] = []
        for words in t["text"]:
            x, y = pixels.pop(0)
            width, height = _LETTER[0] * len(words) + 12, _LETTER[1]
            boxes = {
                place: (x + dx * width, y + dy * height, x + (dx + 1) * width, y + (dy + 1) * height)
                for place, (dx, dy) in _PLACES.items()
            }
            best = min(
                boxes, key=lambda p: sum(_overlap(boxes[p], b) for b in taken) + _outside(boxes[p])
            )
            t["textposition"].append(best)
            taken.append(boxes[best])


_Box: TypeAlias = tuple[float, float, float, float]


def _overlap(a: _Box, b: _Box) -> float:
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    return max(wide, 0.0) * max(high, 0.0)


def _outside(a: _Box) -> float:
    """How much of a name lies beyond the plot's sides."""
    return (max(-50 - a[0], 0.0) + max(a[2] - _PLOT[0] - 50, 0.0)) * _LETTER[1]


def _error(f: Mapping[str, Any]) -> float | None:
    known = f.get("loss")
    error = known if known is not None and known > 0 else f.get("relative_error")
    return None if error is None else float(error)


def depth(found: Documents) -> Figure:
    """The error of each instruction in the program's order."""
    blamed = rows(found.blame, "instructions")
    if not blamed:
        return {}
    order = {x["name"]: n for n, x in enumerate(rows(found.graph, "instructions"))}
    placed = sorted(blamed, key=lambda x: order.get(x["name"], len(order)))
    errors = [x.get("relative_error") for x in placed]
    causes = {c["instruction"] for c in rows(found.blame, "causes")}
    trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "relative error",
        "x": list(range(len(placed))),
        "y": [e if e else None for e in errors],
        "text": [text(x["name"]) for x in placed],
        "marker": {
            "size": [11 if x["name"] in causes else 5 for x in placed],
            "symbol": ["x" if x["name"] in causes else "circle" for x in placed],
        },
        "hovertemplate": "%{text}<br>error %{y:.3g}<extra></extra>",
    }
    return _figure([trace], "instructions in the program's order", "error that passes", log=True)


def timeline(found: Documents) -> Figure:
    """When each engine works on which instruction."""
    events = rows(found.cost, "timeline")
    engines = list(dict.fromkeys(str(e["engine"]) for e in events))
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": engine,
            "y": [engine] * len(own),
            "base": [e["start"] * 1e6 for e in own],
            "x": [(e["end"] - e["start"]) * 1e6 for e in own],
            "text": [text(e["instruction"]) for e in own],
            "textposition": "none",
            "hovertemplate": "%{text}<br>%{x:.3g} us from %{base:.4g}<extra></extra>",
        }
        for engine in engines
        if (own := [e for e in events if e["engine"] == engine])
    ]
    if not traces:
        return {}
    figure = _figure(traces, "us from the start of a run", "")
    figure["layout"] |= {"barmode": "overlay", "showlegend": False, "bargap": 0.3}
    return figure


RANGES_SHOWN = 60
# The largest value and the least normal one of the types that casts use.
TYPE_RANGES = {
    "float16": (2.0**-14, 65504.0),
    "bfloat16": (2.0**-126, 3.3895313892515355e38),
    "float32": (2.0**-126, 3.4028234663852886e38),
    "float8_e4m3": (2.0**-6, 240.0),
    "float8_e5m2": (2.0**-14, 57344.0),
}


def ranges(found: Documents) -> Figure:
    """The magnitudes of each instruction's values, against the range of the narrowest type that the run
    has: those that leave it first.
    """
    seen = [x for x in rows(found.observation, "instructions") if _magnitudes(x)]
    seen = [x for x in seen if "folded" not in x]
    if not seen:
        return {}
    dtype = _narrowest(seen)
    low, high = (math.log10(x) for x in TYPE_RANGES[dtype])
    worst = sorted(seen, key=lambda x: min(high - _magnitudes(x)[1], _magnitudes(x)[0] - low))
    shown = worst[:RANGES_SHOWN]
    trace = {
        "type": "bar",
        "orientation": "h",
        "name": "values",
        "y": [text(x["name"]) for x in shown],
        "base": [_magnitudes(x)[0] for x in shown],
        "x": [max(_magnitudes(x)[1] - _magnitudes(x)[0], 0.05) for x in shown],
        "hovertemplate": "%{y}<br>10^%{base:.3g} and larger<extra></extra>",
    }
    figure = _figure([trace], f"magnitude, powers of ten; lines: the range of {dtype}", "")
    lines = [
        {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": {"dash": "dash"}}
        for x in (low, high)
    ]
    figure["layout"] |= {"shapes": lines, "showlegend": False}
    figure["layout"]["yaxis"] |= {"autorange": "reversed"}
    figure["height"] = max(260, 18 * len(shown) + 90)
    return figure


def _magnitudes(x: Mapping[str, Any]) -> tuple[float, ...]:
    s = x.get("statistics") or {}
    try:
        low, high = float(s["smallest"]), float(s["largest"])
    except (KeyError, TypeError, ValueError):
        return ()
    usable = 0 < low <= high < math.inf
    return (math.log10(low), math.log10(high)) if usable else ()


def _narrowest(seen: Sequence[Mapping[str, Any]]) -> str:
    """The type with the least range that some value has."""
    types = {str(x.get("type", "")).partition("[")[0] for x in seen}
    known = [t for t in TYPE_RANGES if t in types] or ["float32"]
    return min(known, key=lambda t: TYPE_RANGES[t][1])


def text(x: object) -> str:
    """A name as Plotly's texts take it: it reads some markup in them."""
    return escape(str(x), quote=True)


def _figure(traces: Sequence[Mapping[str, Any]], x: str, y: str, *, log: bool = False) -> Figure:
    layout = {
        "margin": {"l": 70, "r": 16, "t": 24, "b": 56},
        "xaxis": {"title": {"text": x, "standoff": 8}, "automargin": True},
        "yaxis": {"title": {"text": y}, "automargin": True, "type": "log" if log else "-"},
        "legend": {"orientation": "h", "y": 1.12},
        "hovermode": "closest",
    }
    return {"data": list(traces), "layout": layout}
