"""Where the estimates of settings contradict AWS's table of option combinations, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from neuronsim.hlo.opcodes import CONVERTS
from neuronsim.tuning.cost import Estimate

# AWS's tables of options in the order of rising speed (neuron.md 1.5 and 2.3), by the compiler whose
# flags they are.
SETTINGS_BY_SPEED: dict[str, tuple[str, ...]] = {
    "neuronx-cc": (
        "--auto-cast none",
        "--auto-cast matmult --auto-cast-type tf32",
        "--auto-cast all --auto-cast-type tf32",
        "--auto-cast matmult --auto-cast-type fp16",
        "--auto-cast all --auto-cast-type fp16",
        "--auto-cast matmult --auto-cast-type bf16",
        "--auto-cast all --auto-cast-type bf16",
    ),
    "neuron-cc": (
        "--fp32-cast matmult-fp16",
        "--fp32-cast matmult",
        "--fp32-cast matmult-bf16",
        "--fp32-cast all",
    ),
}
_EQUAL = 1e-9  # of the larger: two sums of one set of times differ by so much at most


@dataclass(frozen=True)
class Disagreement:
    """AWS's table has `faster` above `slower`, and its estimate is `seconds` longer; `because` says
    what takes more time, the most first, in seconds.
    """

    faster: str
    slower: str
    seconds: float
    because: tuple[tuple[str, float], ...]

    def __str__(self) -> str:
        parts = ", ".join(f"{what} take {_microseconds(more)} more" for what, more in self.because)
        return (
            f"AWS's table has {self.faster} faster than {self.slower}; here it is estimated "
            f"{_microseconds(self.seconds)} slower: {parts}"
        )


def disagreements(ladder: Sequence[tuple[str, Estimate]]) -> tuple[Disagreement, ...]:
    """Of settings with their estimates, in AWS's order of rising speed: each neighbours of which the
    first is estimated to be the faster one. Ties are none.
    """
    return tuple(_compare(ladder))


def _compare(ladder: Sequence[tuple[str, Estimate]]) -> Iterator[Disagreement]:
    for (slower, first), (faster, second) in pairwise(ladder):
        more = second.seconds - first.seconds
        if more > _EQUAL * second.seconds:
            yield Disagreement(faster, slower, more, _reasons(first, second))


def _reasons(first: Estimate, second: Estimate) -> tuple[tuple[str, float], ...]:
    """What the second takes more time for than the first, the most first."""
    if second.memory_seconds >= second.seconds:
        return (("the bytes of device memory", second.memory_seconds - first.seconds),)
    before, after = _by_kind(first), _by_kind(second)
    kinds = {kind: after.get(kind, 0.0) - before.get(kind, 0.0) for kind in before | after}
    rising = [(kind, more) for kind, more in kinds.items() if more > 0]
    return tuple(sorted(rising, key=lambda reason: (-reason[1], reason[0])))


def _by_kind(found: Estimate) -> dict[str, float]:
    """An estimate's seconds by what they are spent on."""
    parts: dict[str, list[float]] = {}
    for i in found.instructions:
        for engine, seconds in i.by_engine.items():
            kind = "casts" if i.opcode in CONVERTS else _KIND[engine]
            parts.setdefault(kind, []).append(seconds)
    return {kind: math.fsum(seconds) for kind, seconds in parts.items()}


_KIND = {
    "tensor": "products",
    "vector": "instructions of the vector engine",
    "scalar": "instructions of the scalar engine",
    "gpsimd": "instructions of GpSimd",
    "dma": "movements",
}


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} us"
