"""NumPy's float32 product as a peer, with an OpenBLAS that the caller's environment does not choose.

OpenBLAS reads its settings when NumPy loads it, and a machine's environment may hold it to an older
processor: the peer runs in a process of its own and takes turns with ours by a pipe.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from neuronsim.errors import InvalidArgument, UnsupportedOperator


@contextmanager
def sgemm_worker(
    shape: tuple[int, ...], threads: int, core_type: str | None = None
) -> Iterator[tuple[Callable[[int], float], str]]:
    """The seconds that so many products take in NumPy, and a word on what computes them.

    `core_type` is one of OpenBLAS's names of processors, None leaves the choice to OpenBLAS. Raises
    InvalidArgument if threadpoolctl is missing, UnsupportedOperator if NumPy has no such OpenBLAS.
    """
    if importlib.util.find_spec("threadpoolctl") is None:
        raise InvalidArgument("comparing with NumPy's OpenBLAS needs threadpoolctl: pip install it")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        environment[name] = str(threads)
    if core_type is not None:
        environment["OPENBLAS_CORETYPE"] = core_type
    # -P: this package's files are no top-level modules there.
    command = [sys.executable, "-P", str(Path(__file__).with_name("sgemm_worker.py"))]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as worker:
        assert worker.stdin is not None
        try:
            blas = _ask(worker, json.dumps(shape))
            found = blas.get("architecture")
            if core_type is not None and str(found).lower() != core_type.lower():
                raise UnsupportedOperator(
                    f"NumPy has no OpenBLAS for {core_type} here: it loads {blas or 'none'}"
                )
            name = f"{blas.get('internal_api', 'NumPy')} {blas.get('version', '')} {found or ''}"
            yield lambda runs: float(_ask(worker, str(runs))), name.strip()
        finally:
            worker.terminate()


def _ask(worker: subprocess.Popen[str], line: str) -> Any:
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        worker.stdin.write(line + "\n")
        worker.stdin.flush()
        answer = worker.stdout.readline()
    except BrokenPipeError:
        answer = ""
    if not answer:
        raise InvalidArgument(f"NumPy's process ended with status {worker.wait()} at {line}")
    return json.loads(answer)
