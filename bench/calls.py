"""What a call costs beside NumPy's: 30 common functions of 16 elements, and the memory of an Array.

python -m bench.calls [--dtype DTYPE] [--rounds N] [--json FILE]

The two take turns; a ratio is the best time of one over the best of the other.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import sys
import timeit
import tracemalloc
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy
from rich.console import Console
from rich.markup import escape

import neuronsim
from neuronsim.bench.report import table_of
from neuronsim.whole_files import write_text

GOAL_RATIO = 2.0
GOAL_BYTES = 200
ELEMENTS = 16
CALLS = 200  # few, so that some of the rounds meet no interruption

Call = Callable[[ModuleType, Any, Any], Any]

# x: 16 positive float32 values, i: eight indices into them.
FUNCTIONS: dict[str, Call] = {
    "x + x": lambda np, x, i: x + x,
    "x * 2.0": lambda np, x, i: x * 2.0,
    "-x": lambda np, x, i: -x,
    "x < x": lambda np, x, i: x < x,
    "x *= 1.0": lambda np, x, i: x.__imul__(1.0),
    "x[2:8]": lambda np, x, i: x[2:8],
    "x[3]": lambda np, x, i: x[3],
    "x[i]": lambda np, x, i: x[i],
    "add": lambda np, x, i: np.add(x, x),
    "maximum": lambda np, x, i: np.maximum(x, x),
    "divide": lambda np, x, i: np.divide(x, x),
    "exp": lambda np, x, i: np.exp(x),
    "sqrt": lambda np, x, i: np.sqrt(x),
    "tanh": lambda np, x, i: np.tanh(x),
    "abs": lambda np, x, i: np.abs(x),
    "where": lambda np, x, i: np.where(x < 0.5, x, x),
    "clip": lambda np, x, i: np.clip(x, 0.25, 0.75),
    "sum": lambda np, x, i: np.sum(x),
    "max": lambda np, x, i: np.max(x),
    "mean": lambda np, x, i: np.mean(x),
    "argmax": lambda np, x, i: np.argmax(x),
    "sort": lambda np, x, i: np.sort(x),
    "matmul": lambda np, x, i: np.matmul(x, x),
    "reshape": lambda np, x, i: np.reshape(x, (4, 4)),
    "concatenate": lambda np, x, i: np.concatenate((x, x)),
    "stack": lambda np, x, i: np.stack((x, x)),
    "broadcast_to": lambda np, x, i: np.broadcast_to(x, (4, 16)),
    "asarray": lambda np, x, i: np.asarray(x),
    "zeros": lambda np, x, i: np.zeros(ELEMENTS),
    "astype": lambda np, x, i: x.astype(np.float16),
}


def seconds(call: Call, peers: dict[str, tuple[Any, ...]], rounds: int) -> dict[str, float]:
    """The best time of one call of each peer; they take turns."""
    best = dict.fromkeys(peers, math.inf)
    for _ in range(rounds):
        for name, arguments in peers.items():
            taken = timeit.timeit(lambda a=arguments: call(*a), number=CALLS) / CALLS
            best[name] = min(best[name], taken)
    return best


def array_bytes(count: int = 10_000) -> float:
    """The bytes that an Array takes beside its elements' own."""
    data = numpy.ones(ELEMENTS, numpy.float32)
    kept: list[Any] = [None] * count
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for n in range(count):
        kept[n] = neuronsim.asarray(data.copy())
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return taken / count - data.nbytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="float32", help="of neuronsim's arrays; NumPy's are float32")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    x = numpy.linspace(0.125, 1, ELEMENTS, dtype=numpy.float32)
    i = numpy.arange(0, ELEMENTS, 2)
    peers = {
        "numpy": (numpy, x, i),
        "neuronsim": (
            neuronsim,
            neuronsim.asarray(x.copy(), dtype=options.dtype, copy=True),
            neuronsim.asarray(i),
        ),
    }
    found: dict[str, dict[str, float]] = {}
    table = table_of("call", [*(f"{peer} us" for peer in peers), "ratio"])
    for name, call in FUNCTIONS.items():
        times = found[name] = seconds(call, peers, options.rounds)
        ratio = times["neuronsim"] / times["numpy"]
        shown = [f"{times[peer] * 1e6:.2f}" for peer in peers]
        table.add_row(escape(name), *shown, f"{ratio:.2f}")
    ratios = [t["neuronsim"] / t["numpy"] for t in found.values()]
    mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    console = Console(width=None if sys.stdout.isatty() else 100)
    console.print(table)
    console.print(f"geometric mean {mean:.2f} (goal {GOAL_RATIO:g})")
    own = array_bytes()
    console.print(f"an Array takes {own:.0f} bytes beside its elements (goal {GOAL_BYTES})")
    if options.json:
        figures = {"seconds": found, "geometric_mean": mean, "array_bytes": own}
        write_text(options.json, json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
