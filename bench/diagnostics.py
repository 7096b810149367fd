"""What `observe="counts"` costs whole networks: the time of an observed call over that of a plain one.

python -m bench.diagnostics [--only NETWORK]... [--threads 1|2] [--rounds N]

Both run alternately in one process, with the networks, settings and turns of `bench.networks`; a figure
is the best of the rounds.
"""

from __future__ import annotations

import argparse

from bench.networks import NETWORKS, SETTINGS
from rich.console import Console
from tests.data.make_networks import make_network, to_hlo

import neuronsim
from neuronsim.bench import SETTLE_SECONDS, alternate, timer
from neuronsim.bench.report import shown, table_of
from neuronsim.bench.suite import geometric_mean


def measure(name: str, setting: str, threads: int, rounds: int) -> tuple[float, float]:
    """Seconds of a plain and of an observed call."""
    network = make_network(name)
    program = neuronsim.compile(to_hlo(network), threads=threads, **SETTINGS[setting])
    runs = [
        timer(lambda: program(*network.inputs)),
        timer(lambda: program(*network.inputs, observe="counts")),
    ]
    settle = SETTLE_SECONDS if threads > 1 else 0
    plain, observed = alternate(runs, rounds, warm=True, settle=settle)
    return plain, observed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=NETWORKS, help="default: all")
    parser.add_argument("--threads", type=int, choices=(1, 2), help="default: both")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    table = table_of("network", ["setting", "threads", "plain ms", "counts ms", "ratio"])
    ratios = []
    for threads in (1, 2) if options.threads is None else (options.threads,):
        for name in options.only or NETWORKS:
            for setting in SETTINGS:
                plain, observed = measure(name, setting, threads, options.rounds)
                ratios.append(observed / plain)
                figures = (shown(plain, 1e3), shown(observed, 1e3), shown(ratios[-1]))
                table.add_row(name, setting, str(threads), *figures)
    console = Console()
    console.print(table)
    console.print(f"geometric mean {geometric_mean(ratios):.3f}; goal at most 1.10")


if __name__ == "__main__":
    main()
