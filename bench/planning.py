"""What planning a large module takes: `neuronsim explain`, `plan` and `lint`, as commands are run.

python -m bench.planning [--blocks N] [--rounds N]
python -m bench.planning --growth 500 1000 2000 4000 [--only CASE]

The module has 1,000 blocks of ten instructions, each a product, its softmax and a sum with the block's
input. Every figure is the best of the rounds, of a process of its own with its start.

With `--growth` the modules are those of `tests.large_modules` in these sizes: for each, and all that is
done with it, processor seconds at the largest size and the exponent e of the fit seconds = c * n**e.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from tests.large_modules import CASES, work_on

from neuronsim.bench import timer
from neuronsim.bench.report import shown, table_of
from neuronsim.hlo import parse, proto

COMMANDS = ("explain", "plan", "lint")
POLICIES = ("all/bf16", "matmult/bf16", "tvm/float16", "tensorflow/bfloat16")
GOAL_SECONDS = 2.0
HEAD = """HloModule blocks
larger { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT m = f32[] maximum(a, b) }
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY main {
  x0 = f32[16,16] parameter(0)
  w = f32[16,16] parameter(1)
  least = f32[] constant(-inf)
  zero = f32[] constant(0)
"""
BLOCK = """
  d{n} = f32[16,16] dot(x{n}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  m{n} = f32[16] reduce(d{n}, least), dimensions={{1}}, to_apply=larger
  mb{n} = f32[16,16] broadcast(m{n}), dimensions={{0}}
  s{n} = f32[16,16] subtract(d{n}, mb{n})
  e{n} = f32[16,16] exponential(s{n})
  t{n} = f32[16] reduce(e{n}, zero), dimensions={{1}}, to_apply=sum
  tb{n} = f32[16,16] broadcast(t{n}), dimensions={{0}}
  y{n} = f32[16,16] divide(e{n}, tb{n})
  z{n} = f32[16,16] multiply(y{n}, x{n})
  {root}x{next} = f32[16,16] add(z{n}, x{n})
"""


def blocks(count: int) -> bytes:
    """The module as a file."""
    roots = ["" if n + 1 < count else "ROOT " for n in range(count)]
    body = "".join(BLOCK.format(n=n, next=n + 1, root=root) for n, root in enumerate(roots))
    return proto.to_bytes(parse.from_text(HEAD + body + "}\n"))


def measure(command: str, path: Path, policy: str, rounds: int) -> float:
    """Seconds of the command in a process of its own."""
    arguments = [sys.executable, "-m", "neuronsim", command, str(path), "--policy", policy]
    # An installed package is compiled: a checkout keeps what its first run compiles.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

    def run_command() -> None:
        found = subprocess.run(arguments, check=True, capture_output=True, env=environment)
        assert found.stdout, f"{command} printed nothing"

    run = timer(run_command)
    return min(run(1) for _ in range(rounds))


def seconds_of(case: str, n: int, rounds: int) -> dict[str, float]:
    """The least processor seconds of all that is done with a case of this size."""
    found: dict[str, float] = {}
    for _ in range(rounds):
        for name, run in work_on(CASES[case](n)):
            start = time.process_time()
            run()
            found[name] = min(time.process_time() - start, found.get(name, math.inf))
    return found


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """The slope of the line through the logarithms, by least squares.

    >>> round(exponent([1, 2, 4], [3.0, 12.0, 48.0]), 6)
    2.0
    """
    x, y = ([math.log(v) for v in values] for values in (sizes, seconds))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    pairs = [(a - mean_x, b - mean_y) for a, b in zip(x, y, strict=True)]
    return sum(a * b for a, b in pairs) / sum(a * a for a, _ in pairs)


def print_growth(cases: Sequence[str], sizes: Sequence[int], rounds: int) -> None:
    """A table for each case: what is done, how long it takes at the largest size, and how it grows."""
    warnings.simplefilter("ignore")  # TVM's policy names what it does not list
    console = Console()
    for case in cases:
        measured = [seconds_of(case, n, rounds) for n in sizes]
        table = table_of(case, [f"s at {sizes[-1]}", "exponent"])
        for name, last in measured[-1].items():
            e = exponent(sizes, [max(m[name], 1e-6) for m in measured])
            table.add_row(name, shown(last), f"{e:.2f}")
        console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--growth", type=int, nargs="+", metavar="N", help="sizes, ascending")
    parser.add_argument("--only", choices=CASES, action="append", help="one case of --growth")
    options = parser.parse_args()
    if options.growth:
        print_growth(options.only or tuple(CASES), options.growth, options.rounds)
        return
    table = table_of("policy", [f"{command} s" for command in COMMANDS])
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "blocks.hlo.pb"
        path.write_bytes(blocks(options.blocks))
        for policy in POLICIES:
            seconds = [measure(c, path, policy, options.rounds) for c in COMMANDS]
            slowest = max(slowest, *seconds)
            table.add_row(policy, *map(shown, seconds))
    console = Console()
    console.print(table)
    console.print(f"slowest {slowest:.2f} s; goal at most {GOAL_SECONDS:.0f} s")


if __name__ == "__main__":
    main()
