"""Long runs of numbered random cases, in processes of their own, so that one that ends its process is
named and the others go on. Case n depends on n alone: a campaign goes on with `--start`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SHOWN = 2  # findings of one kind that are printed


@dataclass
class Outcome:
    """What became of some cases: counts, and each finding's case, kind, what is wrong, and a script."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[int, str, str, str]] = field(default_factory=list)


# Runs so many cases from the first on; says which before each.
Run = Callable[[int, int, Callable[[int], object]], Outcome]


class TooSlow(BaseException):
    """A case takes longer than it may; no handler of the package catches it."""


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """So much time of the processor; one call that never comes back to Python ends the process."""

    def stop(*_: Any) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_VIRTUAL, 10 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def main(module: str, description: str | None, run: Run, count: int, chunk: int) -> int:
    """The command line of a generator; gives the exit code, 1 if there were findings."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--start", type=int, default=0, help="the first case")
    parser.add_argument("--count", type=int, default=count, help="how many cases")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        found = run(arguments.start, arguments.count, lambda n: arguments.worker.write_text(str(n)))
        print(json.dumps({"counts": found.counts, "findings": found.findings}))
        return 0
    return _in_processes(module, arguments.start, arguments.count, chunk)


def _in_processes(module: str, start: int, count: int, chunk: int) -> int:
    total: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    began, end, told = time.monotonic(), start + count, 0.0
    environment = {"OPENBLAS_NUM_THREADS": "1", "NEURONSIM_NUM_THREADS": "1"} | os.environ
    with tempfile.TemporaryDirectory() as folder:
        current = Path(folder) / "current"
        while start < end:
            size = min(chunk, end - start)
            command = [sys.executable, "-m", module, "--worker", str(current)]
            command += ["--start", str(start), "--count", str(size)]
            ended = subprocess.run(command, capture_output=True, text=True, env=environment)
            if ended.returncode:
                case = int(current.read_text()) if current.exists() else start
                print(f"case {case} ended its process with {ended.returncode}:\n{ended.stderr[-2500:]}")
                total["ended the process"] += 1
                start = case + 1
                continue
            report = json.loads(ended.stdout.splitlines()[-1])
            total.update(report["counts"])
            for case, kind, detail, script in report["findings"]:
                total["findings"] += 1
                alike = re.sub(
                    r"\([^()]*\)|'[^']*'|v?[0-9]+", "_", f"{kind} {detail:.60} {script[-60:]}"
                )
                seen[alike] += 1
                if seen[alike] <= SHOWN:
                    print(f"case {case}: {kind}: {detail}\n    {script}", flush=True)
            start += size
            if time.monotonic() > told + 60:
                told = time.monotonic()
                print(f"next --start {start}, {told - began:.0f} s, {dict(total)}", flush=True)
    print(f"{time.monotonic() - began:.0f} s, {dict(total)}")
    return 1 if total["findings"] or total["ended the process"] else 0
