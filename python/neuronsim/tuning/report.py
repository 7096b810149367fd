"""The ladder as a table in the terminal."""

from __future__ import annotations

import math

from rich import box
from rich.console import Console
from rich.table import Table

from neuronsim.targets import TARGETS
from neuronsim.tuning.ladder import RungResult, TuneResult

FULL_WIDTH = 77  # columns that the whole table takes


def print_ladder(result: TuneResult, console: Console) -> None:
    """Print the measured ladder, the recommendation and the flag line."""
    labelled = result.rungs[0].top1 is not None
    # A narrow terminal has room for the figures that decide.
    wide = console.width >= FULL_WIDTH
    scores = wide and result.rungs[0].top1_agreement is not None
    table = Table(
        title=f"{result.model} on {result.samples} samples of {result.data}",
        caption=_caption(result),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
        pad_edge=False,
    )
    table.add_column("setting", no_wrap=True)
    names = ["accuracy"] if labelled else []
    same = ["top-1 same"] if scores else []
    largest = ["max error"] if wide else []
    for name in (*names, "rel error", *largest, *same, "MB", "speed-up"):
        table.add_column(name, justify="right", no_wrap=True)
    for r in result.rungs:
        chosen = r.name == result.recommended
        table.add_row(*_cells(r, chosen, wide), style="bold green" if chosen else None)
    console.print(table)
    r = result.recommended_rung
    console.print(f"\nWithin {_tolerance(result)}, the fastest setting is [bold]{r.name}[/bold]:\n")
    for name, count in result.rungs[0].int64_truncated.items():
        console.print(f"warning: {name}: {count} 64-bit integers lose their high 32 bits (C7)\n")
    console.print(f'    export NEURON_CC_FLAGS="{result.flag_line}"', highlight=False, soft_wrap=True)


def _caption(result: TuneResult) -> str:
    return (
        "errors and equal top-1 classes are against float32 (setting none); MB are the weights; the "
        "speed-up is estimated "
        f"for {TARGETS[result.target].description}; flag defaults of {result.release}"
    )


def _cells(r: RungResult, chosen: bool, wide: bool) -> list[str]:
    accuracy = [] if r.top1 is None else [f"{100 * r.top1:.2f} %"]
    same = [] if r.top1_agreement is None or not wide else [f"{100 * r.top1_agreement:.2f} %"]
    largest = [_error(r.max_error)] if wide else []
    return [
        f"{'>' if chosen else ' '} {r.name}",
        *accuracy,
        _error(r.relative_error),
        *largest,
        *same,
        f"{r.weight_bytes / 1e6:.3f}",
        f"{r.estimated_speedup:.2f}x",
    ]


def _error(x: float) -> str:
    return "0" if x == 0 else f"{x:.1e}" if math.isfinite(x) else "inf"


def _tolerance(result: TuneResult) -> str:
    if result.metric == "top1":
        points = 100 * result.tolerance
        return f"{points:g} point{'' if points == 1 else 's'} of float32's accuracy"
    return f"a relative error of {result.tolerance:g}"
