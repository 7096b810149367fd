"""The memory that a kernel takes beside its operands and its result, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from neuronsim import processor
from neuronsim.bench.kernels import make_case
from neuronsim.errors import InvalidArgument

_CHILD = "import sys; from neuronsim.bench.memory import report; report(sys.argv[1])"


@dataclass(frozen=True)
class MemoryUse:
    """`extra` is how far the resident bytes rose in the run above those before it and the result."""

    op: str
    shape: tuple[int, ...]
    dtype: str
    layer: str | None
    isa: str
    threads: int
    result: int
    extra: int

    @property
    def mib(self) -> float:
        """The extra bytes in MiB."""
        return self.extra / 2**20

    def to_dict(self) -> dict[str, Any]:
        """Every figure, also the derived one."""
        return asdict(self) | {"mib": self.mib}


def measure_memory(
    op: str,
    shape: tuple[int, ...],
    dtype: str = "float32",
    *,
    layer: str | None = None,
    threads: int = 1,
    isa: str | None = None,
) -> MemoryUse:
    """The memory of one run of a kernel that starts cold; the arguments are those of `measure`.

    Linux counts it: raises InvalidArgument where /proc/self/clear_refs cannot reset the peak.
    """
    asked = {"op": op, "shape": shape, "dtype": dtype, "layer": layer, "threads": threads, "isa": isa}
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        # Freed memory goes back at once, else a result could reuse what making the operands freed.
        "MALLOC_MMAP_THRESHOLD_": "65536",
        "MALLOC_TRIM_THRESHOLD_": "65536",
    }
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, json.dumps(asked)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise InvalidArgument(f"the memory of {op} of {shape} was not measured: {reason}")
    found = json.loads(done.stdout)
    return MemoryUse(op, shape, dtype, layer, found["isa"], threads, found["result"], found["extra"])


def report(arguments: str) -> None:
    """Print the figures of one case as JSON: what the process of its own runs."""
    asked = json.loads(arguments)
    processor.set_num_threads(asked["threads"])
    if asked["isa"] is not None:
        processor.set_isa(asked["isa"])
    shape, layer = tuple(asked["shape"]), asked["layer"]
    # Starts the threads. Not the kernel itself on less: the scratch memory that its threads keep would
    # be there before it is measured.
    make_case("add", (1 << 18,), "float32").run()
    case = make_case(asked["op"], shape, asked["dtype"], layer=layer)
    Path("/proc/self/clear_refs").write_text("5")
    before = _resident("VmRSS")
    value = case.run()
    result = value.size * value.dtype.itemsize
    extra = _resident("VmHWM") - before - result
    print(json.dumps({"isa": processor.isa(), "result": result, "extra": max(extra, 0)}))


def _resident(field: str) -> int:
    """Bytes by a line of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
