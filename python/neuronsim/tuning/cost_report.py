"""What is told of estimates: one setting's with its instructions, or those of AWS's table."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console

from neuronsim.hlo.trip_counts import LoopTrips
from neuronsim.tables import print_table, print_text
from neuronsim.tuning.assumptions import ASSUMPTIONS
from neuronsim.tuning.cost import Estimate, InstructionCost
from neuronsim.tuning.cost_order import Disagreement
from neuronsim.tuning.timeline import Timeline

SCHEMA = "neuronsim.cost/1"
LISTED = 20  # instructions of a table


@dataclass(frozen=True)
class CostReport:
    """The estimate of a model under one setting, on a target; the timeline of its engines."""

    model: str
    fingerprint: str
    setting: str
    target: str
    description: str
    estimate: Estimate
    timeline: Timeline

    def to_json(self) -> str:
        """Every figure, in seconds and bytes, with the assumptions."""
        found = self.estimate
        body = {
            "schema": SCHEMA,
            "model": self.model,
            "fingerprint": self.fingerprint,
            "setting": self.setting,
            "target": self.target,
            **summary(found, self.timeline),
            "by_engine": found.by_engine,
            "instructions": [_instruction(i) for i in found.instructions],
            "loops": [asdict(loop) for loop in found.loops],
            "conditionals": found.conditionals,
            "timeline": [asdict(event) for event in self.timeline.events],
            "assumptions": [asdict(a) for a in ASSUMPTIONS],
        }
        return json.dumps(body, indent=1)


def summary(found: Estimate, times: Timeline) -> dict[str, object]:
    """The figures of a whole run."""
    return {
        "seconds": found.seconds,
        "timeline_seconds": times.seconds,
        "overlapped_seconds": found.overlapped_seconds,
        "bound": found.bound,
        "memory_seconds": found.memory_seconds,
        "memory_bytes": found.memory_bytes,
        "spilled_bytes": found.spilled_bytes,
        "flops": found.flops,
        "flops_per_byte": found.intensity,
    }


def _instruction(i: InstructionCost) -> dict[str, object]:
    known = asdict(i) | {"seconds": i.seconds}
    return {k: v for k, v in known.items() if v != ""}


def ladder_json(reports: Sequence[CostReport], found: Sequence[Disagreement]) -> str:
    """The figures of several settings, and where they contradict AWS's order."""
    settings = [
        {"setting": r.setting, **summary(r.estimate, r.timeline), "by_engine": r.estimate.by_engine}
        for r in reports
    ]
    body = {
        "schema": SCHEMA,
        "model": reports[0].model,
        "fingerprint": reports[0].fingerprint,
        "target": reports[0].target,
        "settings": settings,
        "disagreements": [str(d) for d in found],
        "assumptions": [asdict(a) for a in ASSUMPTIONS],
    }
    return json.dumps(body, indent=1)


# ---- on a terminal -------------------------------------------------------------------------------


def print_cost(report: CostReport, console: Console) -> None:
    """The time of one setting, what it is spent on, and the instructions that take most."""
    found = report.estimate
    _print_title(report, f"under {report.setting}", console)
    if not found.instructions:
        print_text(console, f"nothing is known of what {report.target} takes: see --assumptions")
        return
    bound = _BOUND.get(found.bound, found.bound)
    waiting, least = _time(report.timeline.seconds), _time(found.overlapped_seconds)
    print_text(
        console,
        f"estimated {_time(found.seconds)} without overlap of engines, {waiting} as instructions wait "
        f"for each other, {least} with perfect overlap (bound by {bound})",
    )
    rate = found.flops / found.seconds / 1e12
    spilled, moved = found.spilled_bytes / 1e6, found.memory_bytes / 1e6
    print_text(
        console,
        f"{found.flops / 1e9:.3g} GFLOP of products ({rate:.3g} TFLOPS), {moved:.4g} "
        "MB of device memory read and written"
        + f", {spilled:.4g} of them not fitting on the chip"
        * (spilled > 0),
    )
    busy = sorted({**found.by_engine, "memory": found.memory_seconds}.items())
    rows = [(engine, _time(s), f"{s / found.seconds:.1%}") for engine, s in busy]
    print_table(console, ("engine", "busy", "share"), rows, right=("busy", "share"))
    _print_instructions(found, console)
    _print_loops(found.loops, console)


def _print_instructions(found: Estimate, console: Console) -> None:
    dearest = sorted(found.instructions, key=lambda i: -i.seconds)
    headers, rows = ("instruction", "opcode", "engines", "time", "share"), []
    for i in dearest[:LISTED]:
        name = f"{i.name} ({i.op_name})" if i.op_name else i.name
        share = i.seconds / math.fsum(found.by_engine.values())
        times = f"{_time(i.seconds)}{f' in {i.runs} runs' * (i.runs > 1)}"
        rows.append((name, i.opcode, " ".join(i.by_engine), times, f"{share:.1%}"))
    print_table(console, headers, rows, right=("time", "share"))
    if len(dearest) > LISTED:
        print_text(console, f"and {len(dearest) - LISTED} more instructions; --json has all")


def print_cost_ladder(
    reports: Sequence[CostReport], found: Sequence[Disagreement], console: Console
) -> None:
    """The settings of AWS's table with their estimated times."""
    first = reports[0]
    _print_title(first, "by setting", console)
    headers, rows = ("setting", "estimated", "speed-up", "least", "bound by"), []
    for r in reports:
        e = r.estimate
        speed = first.estimate.seconds / e.seconds if e.seconds else 1.0
        cells = (_time(e.seconds), f"{speed:.2f}x", _time(e.overlapped_seconds))
        name = "/".join(r.setting.split()[1::2])  # of options and values the values, as tune has them
        rows.append((name, *cells, _BOUND.get(e.bound, e.bound)))
    print_table(console, headers, rows, right=headers[1:-1])
    print_text(
        console, "estimated: one engine after another; least: all of them at once (the roofline)"
    )
    for d in found:
        print_text(console, f"note: {d}")
    _print_loops(first.estimate.loops, console)


def print_assumptions(console: Console) -> None:
    """What the model assumes, each with its source."""
    for a in ASSUMPTIONS:
        print_text(console, f"{a.subject}: {a.text}")
        print_text(console, f"    [{a.source}]")


_BOUND = {"memory": "the memory", "dma": "movements"}


def _print_title(report: CostReport, what: str, console: Console) -> None:
    print_text(console, f"{report.model} {what}, on {report.description}")


def _print_loops(loops: Sequence[LoopTrips], console: Console) -> None:
    for loop in loops:
        known = (
            "" if loop.evidence in ("known", "given") else f" ({loop.evidence}; --trips says better)"
        )
        print_text(console, f"loop {loop.name}: {loop.trips} trips{known}")


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e6:.4g} us"
