"""The instruction set and the number of threads in use: neither changes a bit (rule D1).

The environment variables NEURONSIM_ISA and NEURONSIM_NUM_THREADS set both at import.

>>> isa() in available_isas()
True
"""

from __future__ import annotations

import os

from neuronsim import _core
from neuronsim.errors import InvalidArgument


def isa() -> str:
    """The instruction set whose kernels run, by its x86-64 psABI name."""
    return str(_core.isa())


def available_isas() -> tuple[str, ...]:
    """The instruction sets that this processor has kernels for, narrowest first."""
    return tuple(_core.available_isas())


def set_isa(name: str) -> None:
    """Run the kernels of this instruction set; raises InvalidArgument if it is not available."""
    if name not in available_isas():
        raise InvalidArgument(
            f"instruction set {name!r} is not available here: NEURONSIM_ISA and set_isa take "
            + ", ".join(available_isas())
        )
    _core.select_isa(name)


def num_threads() -> int:
    """How many threads a kernel may use."""
    return int(_core.thread_count())


def set_num_threads(n: int) -> None:
    """Let kernels use `n` threads, at least 1."""
    if not isinstance(n, int) or n < 1:
        raise InvalidArgument(f"the number of threads is a positive integer, not {n!r}")
    _core.set_thread_count(n)


def _from_environment() -> None:
    name = os.environ.get("NEURONSIM_ISA")
    if name:
        set_isa(name)
    threads = os.environ.get("NEURONSIM_NUM_THREADS")
    if threads and not threads.isdecimal():
        raise InvalidArgument(f"NEURONSIM_NUM_THREADS is a positive integer, not {threads!r}")
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    set_num_threads(int(threads) if threads else usable or 1)


_from_environment()
