"""A search on two spawned processes against one: the digits model on its samples many times over.

python -m bench.scale [--repeat 20] [--rounds 1] [--json FILE]

Each round runs the search by one process and by two, which start with it, so that what starting them
and sending the model costs is counted. A machine that is busy with something else measures nothing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import neuronsim
from neuronsim.bench.report import table_of
from neuronsim.bench.suite import load_average, terminal, write_figures

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
GOAL = 0.6
LEAST_SECONDS = 60.0  # of one process: a shorter sweep says little


def search(processes: int, data: dict[str, Any]) -> tuple[float, str]:
    """The seconds of a search by so many processes, and its JSON but for the times."""
    start = time.perf_counter()
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawning) as executor:
        found = neuronsim.tune(
            str(DIGITS / "model.hlo.pb"),
            data,
            tolerance=0.0002,
            metric="relative_error",
            strategy="sensitivity",
            base="all/bf16",
            fix=True,
            executor=executor,
        )
    body = json.loads(found.to_json())
    del body["seconds"]
    return time.perf_counter() - start, json.dumps(body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeat", type=int, default=20, help="times the samples; default: 20")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    console = terminal(100)
    load_average(console)
    with np.load(DIGITS / "test.npz") as archive:
        data = {n: np.concatenate([archive[n]] * options.repeat) for n in archive.files}
    rounds = [[search(n, data) for n in (1, 2)] for _ in range(options.rounds)]
    one, two = (min(r[n][0] for r in rounds) for n in range(2))
    same = len({body for r in rounds for _, body in r}) == 1
    columns = ("one, s", "two, s", "two / one", "goal", "same JSON")
    table = table_of(f"search of {len(data['x'])} samples", columns)
    shown = (f"{one:.1f}", f"{two:.1f}", f"{two / one:.2f}", f"{GOAL}", "yes" if same else "no")
    table.add_row("processes", *shown)
    console.print(table)
    if one < LEAST_SECONDS:
        console.print(f"less than {LEAST_SECONDS:g} s by one process: give a larger --repeat")
    write_figures(options.json, {"seconds": {"one": one, "two": two}, "same": same})


if __name__ == "__main__":
    main()
