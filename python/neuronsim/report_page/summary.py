"""What the first screen of a report says: which setting, what it costs, what to change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from neuronsim.report_page.documents import Documents, rows


def answers(found: Documents) -> list[dict[str, Any]]:
    """The answers, each a question with a headline, lines below it and a line to paste."""
    answered = [_setting(found), _price(found), _change(found)]
    return [a for a in answered if a]


def _setting(found: Documents) -> dict[str, Any]:
    if found.tune:
        chosen = found.tune.get("chosen") or found.tune.get("recommended", "")
        samples = found.tune.get("samples")
        told = [f"fastest within {_tolerance(found)} of float32, on {samples} samples"]
        if found.tune.get("chosen"):
            told.append(f"a plan beyond {found.tune.get('recommended')}, the best setting of flags")
        line = f'export NEURON_CC_FLAGS="{found.tune["flag_line"]}"'
        paste = "" if found.tune.get("chosen") else line
        return _answer("Which setting?", str(chosen), told, paste)
    if found.blame:
        return _answer("Which setting?", str(found.blame.get("setting")), ["the one that was examined"])
    if found.observation:
        casts = str(found.observation.get("casts"))
        return _answer("Which setting?", casts, [f"on {found.observation.get('data')}"])
    if found.cost:
        return _answer("Which setting?", str(found.cost.get("setting", "all of AWS's table")), [])
    return _answer("Which setting?", str(found.graph.get("policy")), [])


def _tolerance(found: Documents) -> str:
    tolerance, metric = found.tune.get("tolerance"), found.tune.get("metric")
    return f"{tolerance:g} ({metric})" if isinstance(tolerance, int | float) else str(metric)


def _price(found: Documents) -> dict[str, Any]:
    if found.tune:
        rung = recommended(found)
        lines = [f"estimated {seconds(rung.get('estimated_seconds'))}"]
        if isinstance(rung.get("top1"), int | float):
            base = rows(found.tune, "rungs")[0].get("top1")
            lines.append(f"accuracy {100 * rung['top1']:.2f} %, float32's {100 * (base or 0):.2f} %")
        lines.append(f"relative error {number(rung.get('relative_error'))}")
        lines.append(f"weights {(rung.get('weight_bytes') or 0) / 1e6:.4g} MB")
        return _answer(
            "What does it cost me?", f"{rung.get('estimated_speedup', 1):.2f}x faster", lines
        )
    if found.blame:
        lowered = found.blame.get("lowered") or {}
        lines = [f"{lowered.get('not_finite', 0)} values not finite"]
        if lowered.get("top1") is not None:
            before = found.blame.get("float32_top1")
            lines.append(f"accuracy {_percent(lowered['top1'])}, float32's {_percent(before)}")
        head = f"relative error {number(lowered.get('error'))}"
        return _answer("What does it cost me?", head, lines)
    if found.cost and "seconds" in found.cost:
        least = seconds(found.cost.get("overlapped_seconds"))
        lines = [f"at least {least}, bound by {found.cost.get('bound')}"]
        return _answer("What does it cost me?", f"{seconds(found.cost['seconds'])} estimated", lines)
    met = [x for x in rows(found.observation, "instructions") if x.get("counts")]
    if found.observation:
        head = f"{len(met)} instructions" if met else "nothing"
        return _answer("What does it cost me?", head, ["overflow, underflow, saturate or make a NaN"])
    return {}


def _percent(x: Any) -> str:
    return f"{100 * x:.2f} %" if isinstance(x, int | float) else "not known"


def _change(found: Documents) -> dict[str, Any]:
    question = "What do I change?"
    causes = rows(found.blame, "causes")
    if causes and found.tune and _examined(found) != recommended(found).get("name"):
        worst, plan = causes[0], chosen_plan(found)
        said = f"under {_examined(found)}, {worst['instruction']} is to blame: {worst['kind']}"
        head = f"keep {len(rows(plan, 'kept'))} instructions in float32" if plan else "the flags alone"
        return _answer(question, head, [said, str(worst.get("advice", ""))])
    if causes:
        first = causes[0]
        told = [str(first.get("said", "")), str(first.get("advice", ""))]
        return _answer(question, f"{first['instruction']}: {first['kind']}", told)
    plan = chosen_plan(found)
    if plan:
        kept = rows(plan, "kept")
        named = ", ".join(str(k["name"]) for k in kept[:5])
        more = f" and {len(kept) - 5} more" if len(kept) > 5 else ""
        head = f"keep {len(kept)} instructions in float32" if kept else "apply the plan"
        return _answer(question, head, [named + more] if named else [])
    if found.tune:
        return _answer(question, "the flags alone", ["no plan of single instructions is better"])
    if found.blame:
        return _answer(
            question,
            "nothing",
            [
                "no instruction stands out",
            ],
        )
    first = next((x for x in rows(found.observation, "instructions") if "origin" in x), {})
    if first:
        told = [f"{first['opcode']}: {first['origin']['value']} at {first['origin']['index']}"]
        return _answer(question, f"{first['name']} is the first that is not finite", told)
    return {}


def _examined(found: Documents) -> str:
    """The setting that blame examined, by the name that tune has for it."""
    setting = str(found.blame.get("setting"))
    named = (r["name"] for r in rows(found.tune, "rungs") if setting in (r["name"], r.get("flags")))
    return next(named, setting)


def chosen_plan(found: Documents) -> Mapping[str, Any]:
    """The recommended plan beyond the ladder, or the best one; empty where there is none."""
    plans = rows(found.tune, "plans")
    named = found.tune.get("chosen")
    return next((p for p in plans if p["figures"]["name"] == named), {})


def recommended(found: Documents) -> Mapping[str, Any]:
    """The figures of what a tune run recommends."""
    plan = chosen_plan(found)
    if plan:
        figures: Mapping[str, Any] = plan["figures"]
        return figures
    rungs = rows(found.tune, "rungs")
    return next((r for r in rungs if r["name"] == found.tune.get("recommended")), {})


def number(x: Any) -> str:
    """A figure of a document, where null is what is not finite."""
    if x is None:
        return "not finite"
    return f"{x:.3g}" if isinstance(x, int | float) and math.isfinite(x) else str(x)


def seconds(x: Any) -> str:
    """A time."""
    if not isinstance(x, int | float):
        return "not known"
    return f"{x:.3g} s" if x >= 1 else f"{x * 1e3:.3g} ms" if x >= 1e-3 else f"{x * 1e6:.3g} us"


def _answer(question: str, head: str, lines: list[str], paste: str = "") -> dict[str, Any]:
    return {"question": question, "head": head, "lines": [x for x in lines if x], "paste": paste}
