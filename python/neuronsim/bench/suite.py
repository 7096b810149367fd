"""What the scripts of `bench/` share: suites of measurements, and what they print and write."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Collection
from typing import Any

from rich.console import Console

from neuronsim.bench.measure import Measurement, measure
from neuronsim.errors import NeuronSimError
from neuronsim.whole_files import write_text


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options of a suite of kernels."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--touched", action="store_true", help="results to memory written before")
    parser.add_argument("--only", metavar="OP")
    return parser


def terminal(width: int) -> Console:
    """Standard output, so wide where it is no terminal."""
    return Console(width=None if sys.stdout.isatty() else width)


def left_out(console: Console, what: str, why: object) -> None:
    """Say what a suite does not measure here, and why."""
    console.print(f"left out: {what}: {why}", highlight=False, markup=False)


def measured(
    console: Console, op: str, shape: tuple[int, ...], dtype: str, *, peer: str, **more: Any
) -> list[Measurement]:
    """What `measure` gives, or nothing and a word on what there is not here."""
    try:
        return [measure(op, shape, dtype, peer=peer, **more)]
    except NeuronSimError as error:
        left_out(console, f"{op} {dtype} {shape} against {peer}", error)
        return []


def load_average(console: Console) -> float:
    """The machine's load over the last minute; a busy one measures nothing, which is said."""
    load = os.getloadavg()[0]
    if load > 0.5:
        console.print(f"the load average is {load:.1f}: something else runs here", style="red")
    return load


def geometric_mean(ratios: Collection[float]) -> float:
    """The mean of ratios.

    >>> geometric_mean([2.0, 8.0])
    4.0
    """
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def write_figures(file: str | None, figures: Any) -> None:
    """Write figures as JSON, where a file was named."""
    if file:
        write_text(file, json.dumps(figures, indent=1))
