"""Timing a kernel, its peer and the machine's limit alternately in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from neuronsim import _core, processor
from neuronsim.bench.kernels import PRODUCTS, make_case
from neuronsim.bench.layer import Layer
from neuronsim.bench.peers import Timer, open_peer, timer
from neuronsim.errors import InvalidArgument

_CHAIN_STEPS = 20_000
# For so long the threads of OpenBLAS, torch and onnxruntime wait in a loop for more work.
SETTLE_SECONDS = 0.1
# How long a turn lasts at least, in seconds: threads that slept take their time to wake.
_TURN, _WARM_TURN = 2e-4, 4e-3
_WARM_SECONDS = 0.05  # a run that takes longer fills the cache itself


@dataclass(frozen=True)
class Measurement:
    """The best of the repeats. `seconds` is ours, `peer_seconds` the peer's (None without one).

    The machine's limits: `copy_seconds` is NumPy's copy of as many bytes on one thread, `fma_seconds`
    the time of as many operations in independent multiply-adds of this instruction set, shared by the
    threads, `pairs_seconds` the same in VDPBF16PS, for a product of bfloat16 values that runs in pairs;
    `bfloat16_products` says which form ran. With `touched` every result goes to memory that was written
    before, else to fresh memory. `ratio` is peer time over our time: above 1 neuronsim is faster.
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
    pairs_seconds: float | None = None
    peer_detail: str = ""
    layer: str | None = None
    bfloat16_products: str | None = None

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
        return max(self.copy_seconds, self.peak_seconds) / self.seconds

    @property
    def peak_seconds(self) -> float:
        """The time of the arithmetic at the peak of the instruction that fits the operands."""
        return self.fma_seconds if self.pairs_seconds is None else self.pairs_seconds

    @property
    def of_peak(self) -> float:
        """The speed as a fraction of that peak."""
        return self.peak_seconds / self.seconds

    @property
    def ratio(self) -> float | None:
        """The peer's time over ours."""
        return None if self.peer_seconds is None else self.peer_seconds / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Every figure, also the derived ones."""
        derived = ("ns_per_element", "gb_per_s", "gflop_per_s", "of_limit", "of_peak", "ratio")
        return asdict(self) | {name: getattr(self, name) for name in derived}


def measure(
    op: str,
    shape: tuple[int, ...],
    dtype: str = "float32",
    *,
    axis: int | None = None,
    layer: Layer | str | None = None,
    threads: int = 1,
    isa: str | None = None,
    peer: str | None = None,
    touched: bool = False,
    repeats: int = 7,
) -> Measurement:
    """Time one kernel; with `peer` alternately with the same kernel there, both with fresh results, or
    both with touched ones.

    `op` is one of `kernel_names()`; `shape` its operands' (matmul: [batch,] rows, depth, columns;
    convolution: its input's); `dtype` a type or a pair of types as `make_case` takes it; `axis` a
    reduction's; `layer` a convolution's, such as "64k7x7s2p3". The threads and the instruction set are
    restored afterwards. Raises NeuronSimError for what does not exist.

    >>> measure("add", (1000,), "bfloat16", repeats=1).bytes
    6000
    """
    if repeats < 1:
        raise InvalidArgument(f"the number of repeats is at least 1, not {repeats}")
    with ExitStack() as stack:
        stack.enter_context(_on_processor(threads, isa))
        case = make_case(op, shape, dtype, axis, layer)
        if touched and case.run_touched is case.run:
            raise InvalidArgument(f"the result of {op} is always fresh: leave out touched")
        fma_flops = _core.run_fma_chains(_CHAIN_STEPS)
        products = processor.bfloat16_products(case.product_rows) if case.multiplies_bfloat16 else None
        pair_flops = _core.run_pair_chains(_CHAIN_STEPS) if products == "pairs" else 0
        timers = [
            timer(case.run_touched if touched else case.run),
            timer(_copy(case.bytes // 2, touched)),
            timer(lambda: _core.run_fma_chains(_CHAIN_STEPS)),
            timer(lambda: _core.run_pair_chains(_CHAIN_STEPS) if pair_flops else None),
        ]
        detail = ""
        if peer is not None:
            theirs, detail = stack.enter_context(open_peer(peer, case, threads, touched))
            timers.append(theirs)
        best = alternate(timers, repeats, op in PRODUCTS, SETTLE_SECONDS if threads > 1 else 0)
        work = case.flops / threads
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
            fma_seconds=best[2] * work / fma_flops,
            pairs_seconds=best[3] * work / pair_flops if pair_flops else None,
            peer_seconds=best[4] if peer is not None else None,
            peer_detail=detail,
            elements=case.elements,
            bytes=case.bytes,
            flops=case.flops,
            layer=None if case.layer is None else str(case.layer),
            bfloat16_products=products,
        )


@contextmanager
def _on_processor(threads: int, isa: str | None) -> Iterator[None]:
    """So many threads and this instruction set, or the one that is set, for a while."""
    before = processor.num_threads(), processor.isa()
    try:
        processor.set_num_threads(threads)
        processor.set_isa(before[1] if isa is None else isa)
        yield
    finally:
        processor.set_num_threads(before[0])
        processor.set_isa(before[1])


def _copy(size: int, touched: bool) -> Callable[[], Any]:
    """NumPy's copy of so many bytes, to fresh memory or to memory that was written before."""
    block = np.ones(max(size, 1), np.uint8)
    other = block.copy()
    return (lambda: np.copyto(other, block)) if touched else block.copy


def alternate(
    timers: Sequence[Timer], repeats: int, warm: bool = False, settle: float = 0.0
) -> list[float]:
    """The shortest time of one run of each, all taking turns, short ones repeated within a turn.

    A turn begins after `settle` seconds, in which the threads of the one before fall asleep, and if
    `warm` with a short run that does not count: a peer in a process of its own has kept its cache.
    """
    once = []
    for seconds in timers:
        seconds(1)  # which compiles and caches
        once.append(max(seconds(1), 1e-7))
    turn = _WARM_TURN if warm else _TURN
    loops = [max(1, int(turn / s)) for s in once]
    best = [float("inf")] * len(timers)
    for _ in range(repeats):
        for i, seconds in enumerate(timers):
            time.sleep(settle)
            if warm and once[i] < _WARM_SECONDS:
                seconds(1)
            best[i] = min(best[i], seconds(loops[i]) / loops[i])
    return best
