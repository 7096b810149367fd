"""The kernel suite: every ratio of one run against the peers that are installed.

python bench/kernels.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys

from rich.console import Console

from neuronsim.bench import Measurement, measure
from neuronsim.bench.report import print_measurements
from neuronsim.errors import NeuronSimError

ROWS = (4096, 4096)
CASES: tuple[tuple[str, tuple[int, ...], str, int | None, tuple[str, ...]], ...] = (
    ("convert", ROWS, "float32:bfloat16", None, ("ml_dtypes", "torch")),
    ("convert", ROWS, "float32:float16", None, ("numpy", "torch")),
    ("convert", ROWS, "float32:float8_e5m2", None, ("ml_dtypes", "torch")),
    ("convert", ROWS, "bfloat16:float32", None, ("ml_dtypes", "torch")),
    ("add", ROWS, "float32", None, ("numpy", "torch")),
    ("add", ROWS, "bfloat16", None, ("ml_dtypes", "torch")),
    ("exp", ROWS, "float32", None, ("numpy", "torch")),
    ("tanh", ROWS, "float32", None, ("numpy", "torch")),
    ("rsqrt", ROWS, "float32", None, ("numpy", "torch")),
    ("sum", ROWS, "float32", 1, ("numpy", "torch")),
    ("sum", ROWS, "float32", 0, ("numpy", "torch")),
    ("matmul", (1024, 1024, 1024), "float32", None, ("numpy", "torch")),
    ("matmul", (1024, 1024, 1024), "bfloat16", None, ("torch",)),
    ("matmul", (64, 512, 384), "float32", None, ("numpy", "torch")),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    found: list[Measurement] = []
    for op, shape, dtype, axis, peers in CASES:
        for peer in peers:
            try:
                found.append(measure(op, shape, dtype, axis=axis, threads=options.threads, peer=peer))
            except NeuronSimError as error:
                console.print(f"left out: {op} {dtype} against {peer}: {error}", highlight=False)
    print_measurements(found, console)
    if options.json:
        with open(options.json, "w") as file:
            json.dump([m.to_dict() for m in found], file, indent=1)


if __name__ == "__main__":
    main()
