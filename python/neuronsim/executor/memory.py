"""Memory of a schedule's arrays while it is recorded, and its plan by liveness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from neuronsim.dtypes import DType
from neuronsim.ops import ArrayType, Bits, BitsArray

ALIGNMENT = 64  # bytes: a cache line
# The memories of a run: 0 is everything, so that offsets in it are addresses, 1 the arena, then come
# the inputs, the outputs and the windows, of slices whose place is known only when they run. What is
# NOWHERE is at no address.
CONSTANTS, NOWHERE, WINDOW, ARENA, FIRST_INPUT = 0, -1, -2, 1, 2


@dataclass(eq=False)
class Memory:
    """Memory of one array while the steps are recorded. It is needed from the step `first` to `last`.
    `owner` is the region whose steps may overwrite it, and `views` the arrays of that region that lie
    in it.
    """

    standin: BitsArray
    first: int
    last: int
    owner: int | None = None
    views: set[str] = field(default_factory=set)
    slot: int = ARENA

    @property
    def bytes(self) -> int:
        return int(self.standin.nbytes)


@dataclass(frozen=True)
class Place:
    """Where an array lies: a view of a memory's stand-in."""

    array: BitsArray
    dtype: DType
    memory: Memory

    @property
    def type(self) -> ArrayType:
        return ArrayType(self.dtype, self.array.shape)

    @property
    def bits(self) -> Bits:
        """The array as evaluations take it."""
        return Bits(self.array, self.dtype)

    @property
    def is_whole(self) -> bool:
        """Whether the array is its memory, in row-major order."""
        a, standin = self.array, self.memory.standin
        return (
            bool(a.flags.c_contiguous) and a.nbytes == standin.nbytes and address(a) == address(standin)
        )


def address(array: BitsArray) -> int:
    return int(array.__array_interface__["data"][0])


def is_same(a: Place, b: Place) -> bool:
    x, y = a.array, b.array
    return a.memory is b.memory and address(x) == address(y) and x.strides == y.strides


def plan_memory(memories: Sequence[Memory]) -> tuple[dict[Memory, int], int]:
    """Offsets in the arena, so that memories that are needed at one time do not overlap; and its size.
    The largest are placed first, each in the lowest gap (Greedy by size).
    """
    offsets: dict[Memory, int] = {}
    placed = np.empty((4, len(memories)), np.int64)  # begin, end, first, last
    for count, m in enumerate(sorted(memories, key=lambda m: (-m.bytes, m.first))):
        need = -(-m.bytes // ALIGNMENT) * ALIGNMENT
        begin, end, first, last = placed[:, :count]
        others = np.flatnonzero((first <= m.last) & (last >= m.first))
        others = others[np.argsort(begin[others], kind="stable")]
        free = np.maximum.accumulate(np.append(0, end[others]))  # from where, before each and after all
        at = int(free[np.append(begin[others] - free[:-1] >= need, True).argmax()])
        offsets[m] = at
        placed[:, count] = at, at + need, m.first, m.last
    return offsets, int(placed[1].max(initial=0))
