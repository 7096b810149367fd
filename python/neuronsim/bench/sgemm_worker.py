"""NumPy's float32 product in a process of its own, whose OpenBLAS the environment chooses.

`bench.sgemm` starts it as a script and writes lines to it: first a shape as JSON, answered by what
NumPy multiplies with; then numbers of runs, each answered by the seconds that they took together.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterable, Iterator

import numpy as np


def answers(lines: Iterable[str]) -> Iterator[str]:
    """One answer a line.

    >>> [json.loads(a) for a in answers(["[2, 3, 4]", "5"])][1] > 0
    True
    """
    questions = iter(lines)
    *batch, rows, depth, columns = json.loads(next(questions))
    x = np.random.default_rng(0).standard_normal((*batch, rows, depth), np.float32)
    y = np.random.default_rng(1).standard_normal((*batch, depth, columns), np.float32)
    x @ y
    yield json.dumps(blas())
    for line in questions:
        runs = range(int(line))
        start = time.perf_counter()
        for _ in runs:
            x @ y
        yield json.dumps(time.perf_counter() - start)


def blas() -> dict[str, str]:
    """The BLAS that NumPy has loaded, its version and the processor that it takes this one for."""
    try:
        threadpools = importlib.import_module("threadpoolctl")
    except ImportError:
        return {}
    found = [
        i for i in threadpools.threadpool_info() if i["user_api"] == "blas" and "numpy" in i["filepath"]
    ]
    keys = ("internal_api", "version", "architecture")
    return {k: str(found[0].get(k)) for k in keys} if found else {}


if __name__ == "__main__":
    for answer in answers(sys.stdin):
        print(answer, flush=True)
