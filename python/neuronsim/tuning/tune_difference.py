"""What changed between two runs of `tune`, read from their JSON documents, and whether it is more than
noise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeGuard

from rich.console import Console

from neuronsim.errors import InvalidData
from neuronsim.tables import print_table, print_text

Verdict = Literal["same", "more than noise", "within noise", "noise not known"]
SCHEMA = "neuronsim.tune-difference/1"
# What two runs share where their figures can be compared sample by sample.
_CONDITIONS = ("model", "data_fingerprint", "samples", "release", "target", "metric", "tolerance")


@dataclass(frozen=True)
class SettingDifference:
    """A setting's loss (what the tolerance is compared with) and estimated seconds in both runs; None
    where a run has it not, or where it is not finite. The verdict is on the loss: by the 95 % intervals
    of both, where they have such.
    """

    name: str
    first_loss: float | None
    second_loss: float | None
    first_seconds: float | None
    second_seconds: float | None
    verdict: Verdict


@dataclass(frozen=True)
class TuneDifference:
    """What differs: the conditions, what is recommended, each setting's figures, and which instructions
    the recommended plans keep in float32, each alone.
    """

    conditions: Mapping[str, tuple[Any, Any]]
    recommended: tuple[str, str]
    settings: tuple[SettingDifference, ...]
    kept_in_first: tuple[str, ...]
    kept_in_second: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether anything but noise does."""
        changed = any(s.verdict not in ("same", "within noise") for s in self.settings)
        first, second = self.recommended
        return changed or first != second or self.kept_in_first != self.kept_in_second

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"schema": SCHEMA, "differs": self.differs}, indent=1)


def compare_runs(first: Mapping[str, Any], second: Mapping[str, Any]) -> TuneDifference:
    """Compare what two runs wrote with --json. Raises InvalidData for other documents."""
    for document in (first, second):
        stated = document.get("schema") if isinstance(document, Mapping) else None
        if not str(stated).startswith("neuronsim.tune/"):
            schema = "a document without a schema" if stated is None else stated
            raise InvalidData(f"what tune wrote with --json can be compared, not {schema}")
        if not _is_whole(document):
            raise InvalidData(
                f"a document with the schema {stated} lacks settings, or figures of them, that tune "
                "writes: run tune again"
            )
    conditions = {
        name: (first.get(name), second.get(name))
        for name in _CONDITIONS
        if first.get(name) != second.get(name)
    }
    of_first, of_second = (_figures(d) for d in (first, second))
    settings = tuple(
        _setting(name, of_first.get(name), of_second.get(name))
        for name in dict.fromkeys([*of_first, *of_second])
    )
    kept = [_kept(d) for d in (first, second)]
    return TuneDifference(
        conditions,
        (_recommended(first), _recommended(second)),
        settings,
        tuple(n for n in kept[0] if n not in kept[1]),
        tuple(n for n in kept[1] if n not in kept[0]),
    )


def _is_whole(document: Mapping[str, Any]) -> bool:
    """Whether what is read here has the form in which tune writes it."""
    rungs, plans = document.get("rungs"), document.get("plans") or []
    if not (_are_mappings(rungs) and _are_mappings(plans)):
        return False
    if not all(_are_mappings([p.get("figures")]) and _are_mappings(p.get("kept")) for p in plans):
        return False
    figures = [*rungs, *(p["figures"] for p in plans)]
    names = [x.get("name") for x in (*figures, *(k for p in plans for k in p["kept"]))]
    numbers = [r.get(n) for r in figures for n in ("loss", "relative_error", "estimated_seconds")]
    intervals = [r["interval"] for r in figures if r.get("interval") is not None]
    return (
        all(isinstance(n, str) for n in names)
        and all(x is None or isinstance(x, int | float) for x in numbers)
        and all(_is_interval(i) for i in intervals)
    )


def _are_mappings(x: Any) -> TypeGuard[list[Mapping[str, Any]]]:
    return isinstance(x, list) and all(isinstance(i, Mapping) for i in x)


def _is_interval(x: Any) -> bool:
    return isinstance(x, list) and len(x) == 2 and all(isinstance(i, int | float) for i in x)


def _figures(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    plans = [p["figures"] for p in document.get("plans") or ()]
    return {r["name"]: r for r in [*document["rungs"], *plans]}


def _recommended(document: Mapping[str, Any]) -> str:
    return str(document.get("chosen") or document.get("recommended"))


def _kept(document: Mapping[str, Any]) -> list[str]:
    plans = document.get("plans") or ()
    chosen = [p for p in plans if p["figures"]["name"] == document.get("chosen")]
    return [k["name"] for p in chosen for k in p["kept"]]


def _setting(
    name: str, first: Mapping[str, Any] | None, second: Mapping[str, Any] | None
) -> SettingDifference:
    losses = (_loss(first), _loss(second))
    before, after = (None if r is None else r.get("estimated_seconds") for r in (first, second))
    if first is None or second is None:
        verdict: Verdict = "more than noise"
    elif losses[0] == losses[1]:
        verdict = "same"
    else:
        verdict = _judged(losses, [r.get("interval") for r in (first, second)])
    return SettingDifference(name, losses[0], losses[1], before, after, verdict)


def _loss(r: Mapping[str, Any] | None) -> float | None:
    known = None if r is None else r.get("loss", r.get("relative_error"))
    return None if known is None else float(known)


def _judged(losses: Sequence[float | None], intervals: Sequence[Sequence[float] | None]) -> Verdict:
    """More than noise where neither loss is in the other's interval; one that is not finite always."""
    first, second = losses
    if first is None or second is None:
        return "more than noise"
    before, after = intervals
    if before is None or after is None:
        return "noise not known"
    (low, high), (least, most) = before, after
    return "within noise" if low <= second <= high or least <= first <= most else "more than noise"


def print_tune_difference(found: TuneDifference, console: Console) -> None:
    """What changed, on a terminal."""
    for name, (a, b) in found.conditions.items():
        print_text(console, f"{name.replace('_', ' ')}: {a} in the first run, {b} in the second")
    before, after = found.recommended
    same = f"both runs recommend {before}"
    print_text(console, same if before == after else f"recommended: {before}, then {after}")
    headers = ("setting", "loss", "then", "estimated us", "then us", "the loss changed")
    table = []
    for s in found.settings:
        times = [f"{x * 1e6:.4g}" if x else "" for x in (s.first_seconds, s.second_seconds)]
        table.append((s.name, _shown(s.first_loss), _shown(s.second_loss), *times, s.verdict))
    print_table(console, headers, table, right=headers[1:-1])
    for names, which in ((found.kept_in_first, "first"), (found.kept_in_second, "second")):
        if names:
            print_text(console, f"kept in float32 by the {which} alone: {', '.join(names)}")
    if any(s.verdict == "noise not known" for s in found.settings):
        print_text(console, "noise is known for metrics with paired intervals, such as top1")


def _shown(x: float | None) -> str:
    return "" if x is None else f"{x:.4g}"
