"""What the first screen of a report says: which setting, what it costs, what to change."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from neuronsim.errors import counted, first_few
from neuronsim.report_page.documents import Documents, rows


def answers(found: Documents) -> list[dict[str, Any]]:
    """The answers, each a question with a headline, lines below it and a line to paste."""
    answered = [_setting(found), _price(found), _change(found)]
    return [a for a in answered if a]


def _setting(found: Documents) -> dict[str, Any]:
    question = "Which setting?"
    if found.tune:
        plan, flags = chosen_plan(found), str(found.tune.get("recommended", ""))
        told = [f"the fastest within {_tolerance(found)}, on {found.tune.get('samples')} samples"]
        line = found.tune.get("flag_line")
        paste = [f'export NEURON_CC_FLAGS="{line}"'] if line or flags == "none" else []
        if not plan:
            return _answer(question, flags, told, paste)
        told += [f"of the flags alone {flags} is the best:"] * bool(paste)
        return _answer(question, f"{plan['base']} with {_kept(plan)}", told, paste)
    if found.blame:
        return _answer(question, str(found.blame.get("setting")), ["the one that was examined"])
    if found.observation:
        casts = str(found.observation.get("casts"))
        return _answer(question, casts, [f"on {found.observation.get('data')}"])
    if found.cost:
        return _answer(question, str(found.cost.get("setting", "all of AWS's table")), [])
    return _answer(question, str(found.graph.get("policy")), [])


def _kept(plan: Mapping[str, Any]) -> str:
    """How many computing instructions a plan keeps in which types."""
    types = Counter(str(k.get("type") or "float32") for k in rows(plan, "kept"))
    return ", ".join(f"{n} in {t}" for t, n in types.items()) or "no instruction changed"


def _tolerance(found: Documents) -> str:
    tolerance, metric = found.tune.get("tolerance"), str(found.tune.get("metric"))
    if not isinstance(tolerance, int | float):
        return metric
    if metric == "top1" and found.tune.get("criterion") != "relative":
        points = 100 * tolerance
        return f"{points:g} point{'' if points == 1 else 's'} of float32's accuracy"
    return f"{tolerance:g} of {metric.replace('_', ' ')}"


def _price(found: Documents) -> dict[str, Any]:
    question = "What does it cost me?"
    if found.tune:
        rung, exact = recommended(found), next(iter(rows(found.tune, "rungs")), {})
        speed = rung.get("estimated_speedup", 1)
        lines = []
        top1, base = rung.get("top1"), exact.get("top1")
        lost = f"a relative error of {number(rung.get('relative_error'))}"
        if isinstance(top1, int | float) and isinstance(base, int | float):
            points = round(100 * (base - top1), 2)
            lines += [f"accuracy {percent(top1)}, float32's {percent(base)}", lost]
            lost = f"{points:g} points of accuracy" if points > 0 else "no accuracy"
        times = [seconds(r.get("estimated_seconds")) for r in (rung, exact)]
        lines.append(f"estimated {times[0]} instead of {times[1]}")
        weights = [(r.get("weight_bytes") or 0) / 1e6 for r in (rung, exact)]
        lines.append(f"weights of {weights[0]:.4g} MB instead of {weights[1]:.4g} MB")
        if rung is exact:
            return _answer(question, "nothing, and nothing is gained", lines[:1])
        return _answer(question, f"{lost}, for {speed:.2f}x the speed", lines)
    if found.blame:
        lowered = found.blame.get("lowered") or {}
        lines = [f"{lowered.get('not_finite', 0)} values not finite"]
        if lowered.get("top1") is not None:
            before = found.blame.get("float32_top1")
            lines.append(f"accuracy {percent(lowered['top1'])}, float32's {percent(before)}")
        head = f"relative error {number(lowered.get('error'))}"
        return _answer(question, head, lines)
    if found.cost and "seconds" in found.cost:
        least = seconds(found.cost.get("overlapped_seconds"))
        lines = [f"at least {least}, bound by {found.cost.get('bound')}"]
        return _answer(question, f"{seconds(found.cost['seconds'])} estimated", lines)
    met = [x for x in rows(found.observation, "instructions") if x.get("counts")]
    if found.observation:
        head = counted(len(met), "instruction") if met else "nothing"
        return _answer(question, head, ["overflow, underflow, saturate or make a NaN"])
    return {}


def percent(x: Any) -> str:
    """A share to read."""
    return f"{100 * x:.2f} %" if isinstance(x, int | float) else "not known"


def _change(found: Documents) -> dict[str, Any]:
    question = "What do I change?"
    causes, plan = rows(found.blame, "causes"), chosen_plan(found)
    if plan:
        kept = rows(plan, "kept")
        lines = [_failing(found, causes[0])] if causes else []
        lines += _by_scope(kept)
        head = f"keep {len(kept)} instruction{'s' * (len(kept) != 1)} wider, by a policy"
        return _answer(question, head, lines, [_fix_command(found, str(plan["base"]))])
    if causes and found.tune and found.tune.get("recommended") not in ("none", _examined(found)):
        told = ["the setting above needs no change of the model", _failing(found, causes[0])]
        return _answer(question, "nothing but the flags", told)
    if causes:
        first = causes[0]
        told = [str(first.get("said", "")), str(first.get("advice", ""))]
        return _answer(question, f"{first['instruction']}: {first['kind']}", told)
    if found.tune:
        return _answer(question, "nothing but the flags", [_unsearched(found)])
    if found.blame:
        return _answer(question, "nothing", ["no instruction stands out"])
    first = next((x for x in rows(found.observation, "instructions") if "origin" in x), {})
    if first:
        told = [f"{first['opcode']}: {first['origin']['value']} at {first['origin']['index']}"]
        return _answer(question, f"{first['name']} is the first that is not finite", told)
    return {}


def _unsearched(found: Documents) -> str:
    """What is known of better plans where none is recommended, and of settings that fail."""
    if found.tune.get("search"):
        return "no plan of single instructions is better"
    failing = [str(r["name"]) for r in rows(found.tune, "rungs") if fails(r, found)]
    if not failing:
        return "every setting is within the tolerance"
    return f"not within the tolerance: {', '.join(failing)}; `neuronsim blame` says why"


def fails(r: Mapping[str, Any], found: Documents) -> bool:
    """Whether a setting gives what is not finite, or loses more than the tolerance."""
    loss, tolerance = r.get("loss"), found.tune.get("tolerance")
    if found.tune.get("metric") == "sqnr" and isinstance(tolerance, int | float):
        tolerance = 10 ** (-tolerance / 20)  # in dB, whose loss is the noise over the signal
    return bool(r.get("not_finite")) or (
        isinstance(loss, int | float) and isinstance(tolerance, int | float) and loss > tolerance
    )


def _failing(found: Documents, cause: Mapping[str, Any]) -> str:
    """What a setting that is not recommended breaks, and the repair in the source."""
    source = str(cause.get("source") or "").rpartition("/")[2]
    place = f" ({source})" if source else ""
    name = _short(cause.get("scope") or cause["instruction"])
    return f"{_examined(found)} fails, at {name}{place} by {cause['kind']}. Repair: {cause['advice']}"


SHORT = 32  # characters


def _short(scope: object) -> str:
    """A scope, of a long one the last two parts."""
    whole = str(scope)
    return whole if len(whole) <= SHORT else "/".join(whole.split("/")[-2:])


SCOPES_NAMED, KEPT_NAMED = 4, 6


def _by_scope(kept: Sequence[Mapping[str, Any]]) -> list[str]:
    """The instructions that a plan keeps, a line for each scope that they are in."""
    named: dict[str, list[str]] = {}
    for k in kept:
        scope, _, last = str(k.get("scope") or k["name"]).rpartition("/")
        named.setdefault(_short(scope), []).append(last)
    lines = []
    for scope, names in list(named.items())[:SCOPES_NAMED]:
        lines.append(f"{scope}: " * bool(scope) + first_few(names, KEPT_NAMED))
    rest = len(named) - SCOPES_NAMED
    return [*lines, f"and in {rest} other scopes"] if rest > 0 else lines


# The options of `tune` that `fix` has to be given too, as where `tune` prints that line: those with a
# value, and a switch.
ASKED = frozenset(
    {"--batch", "--input-shape", "--input-value", "--weights", "--outputs", "--calibration"}
    | {"--metric", "--tolerance", "--criterion", "--quantize", "--timeout", "--trips"}
    | {"--sdk", "--compiler-version", "--target"}
)
ASKED_ALONE = frozenset({"--lower-is-better"})


def _fix_command(found: Documents, base: str) -> str:
    words = ["neuronsim", "fix", found.model, "--data", str(found.tune.get("data")), "--base", base]
    given = shlex.split(found.command)
    for word, value in zip(given, [*given[1:], ""], strict=False):
        if word in ASKED:
            words += [word, value]
        elif word.partition("=")[0] in ASKED | ASKED_ALONE:
            words.append(word)
    scaled = base.startswith(("int8/", "fp8_"))  # a policy has no scales
    return shlex.join([*words, "--output", "plan.json" if scaled else "policy.toml"])


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


def _answer(
    question: str, head: str, lines: Sequence[str], paste: Sequence[str] = ()
) -> dict[str, Any]:
    return {"question": question, "head": head, "lines": [x for x in lines if x], "paste": list(paste)}
