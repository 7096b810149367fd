"""Timing a kernel, its peer and the machine's limit alternately in one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from neuronsim import _core, processor
from neuronsim.bench.kernels import make_case
from neuronsim.bench.peers import peer_run
from neuronsim.errors import InvalidArgument

_FMA_STEPS = 20_000


@dataclass(frozen=True)
class Measurement:
    """The best of the repeats. `seconds` is ours, `peer_seconds` the peer's (None without one).

    The machine's limits: `copy_seconds` is NumPy's copy of as many bytes on one thread, `fma_seconds`
    the time of as many operations in independent multiply-adds of this instruction set, shared by the
    threads. With `touched` every result goes to memory that was written before, else to fresh memory.
    `ratio` is peer time over our time: above 1 neuronsim is faster.
    """

    op: str
    shape: tuple[int, ...]
    dtype: str
    isa: str
    threads: int
    peer: str | None
    touched: bool
    repeats: int
    seconds: float
    peer_seconds: float | None
    copy_seconds: float
    fma_seconds: float
    elements: int
    bytes: int
    flops: int

    @property
    def ns_per_element(self) -> float:
        """Nanoseconds for each element."""
        return 1e9 * self.seconds / self.elements

    @property
    def gb_per_s(self) -> float:
        """Bytes that must be read and written, in 10^9 a second."""
        return self.bytes / self.seconds / 1e9

    @property
    def gflop_per_s(self) -> float:
        """Arithmetic operations, in 10^9 a second."""
        return self.flops / self.seconds / 1e9

    @property
    def of_limit(self) -> float:
        """The speed as a fraction of the nearer of the machine's two limits."""
        return max(self.copy_seconds, self.fma_seconds) / self.seconds

    @property
    def ratio(self) -> float | None:
        """The peer's time over ours."""
        return None if self.peer_seconds is None else self.peer_seconds / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Every figure, also the derived ones."""
        derived = ("ns_per_element", "gb_per_s", "gflop_per_s", "of_limit", "ratio")
        return asdict(self) | {name: getattr(self, name) for name in derived}


def measure(
    op: str,
    shape: tuple[int, ...],
    dtype: str = "float32",
    *,
    axis: int | None = None,
    threads: int = 1,
    isa: str | None = None,
    peer: str | None = None,
    touched: bool = False,
    repeats: int = 7,
) -> Measurement:
    """Time one kernel; with `peer` alternately with the same kernel there, both with fresh results, or
    both with touched ones.

    `op` is one of `kernel_names()`; `shape` its operands' (matmul: rows, depth, columns); `dtype` a
    type or, for convert, "source:target"; `axis` a reduction's. The threads and the instruction set are
    restored afterwards. Raises NeuronSimError for what does not exist.

    >>> measure("add", (1000,), "bfloat16", repeats=1).bytes
    6000
    """
    if repeats < 1:
        raise InvalidArgument(f"the number of repeats is at least 1, not {repeats}")
    before = (processor.num_threads(), processor.isa())
    try:
        processor.set_num_threads(threads)
        if isa is not None:
            processor.set_isa(isa)
        case = make_case(op, shape, dtype, axis)
        if touched and case.run_touched is case.run:
            raise InvalidArgument(f"the result of {op} is always fresh: leave out touched")
        block = np.ones(max(case.bytes // 2, 1), np.uint8)
        other = block.copy()
        copy = (lambda: np.copyto(other, block)) if touched else block.copy
        flops: list[int] = []
        chains = lambda: flops.append(_core.run_fma_chains(_FMA_STEPS))  # noqa: E731
        runs: list[Callable[[], Any]] = [case.run_touched if touched else case.run, copy, chains]
        if peer is not None:
            runs.append(peer_run(peer, case, threads, touched))
        best = _alternate(runs, repeats)
        return Measurement(
            op=op,
            shape=shape,
            dtype=dtype,
            isa=processor.isa(),
            threads=threads,
            peer=peer,
            touched=touched,
            repeats=repeats,
            seconds=best[0],
            copy_seconds=best[1],
            fma_seconds=best[2] * case.flops / flops[0] / threads,
            peer_seconds=best[3] if peer is not None else None,
            elements=case.elements,
            bytes=case.bytes,
            flops=case.flops,
        )
    finally:
        processor.set_num_threads(before[0])
        processor.set_isa(before[1])


def _alternate(runs: list[Callable[[], Any]], repeats: int) -> list[float]:
    """The shortest time of each, all taking turns, short ones repeated within a turn."""
    loops = []
    for run in runs:
        run()  # which compiles and caches
        start = time.perf_counter()
        run()
        once = time.perf_counter() - start
        loops.append(max(1, int(2e-4 / max(once, 1e-7))))
    best = [float("inf")] * len(runs)
    for _ in range(repeats):
        for i, run in enumerate(runs):
            start = time.perf_counter()
            for _ in range(loops[i]):
                run()
            best[i] = min(best[i], (time.perf_counter() - start) / loops[i])
    return best
