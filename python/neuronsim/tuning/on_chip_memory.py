"""What does not stay on the chip: the bytes that go to device memory and come back in a run, because
the values that are needed at one time do not fit in SBUF.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neuronsim.hlo.array_sources import ARRANGES
from neuronsim.hlo.module import Computation, Instruction, graph_computations, live_instructions
from neuronsim.hlo.opcodes import CONVERTS, STRUCTURE
from neuronsim.tuning.loop_facts import LoopFacts
from neuronsim.tuning.value_forms import on_engine

# What gives other elements of one array, or casts it: a DMA casts as it moves (neuron.md 4.2).
_VIEWS = CONVERTS | {"reshape", "bitcast", "slice", "broadcast"}


def spilled_bytes(known: LoopFacts, runs: Mapping[str, int], sbuf: int) -> int:
    """The bytes of a module's activations that are written to device memory and read again, and those
    of weights that a loop reads again in every trip because they do not fit; 0 for an unknown `sbuf`.

    Each computation has SBUF for itself; what is needed again last leaves first. What one instruction
    of an engine alone reads is passed on to it tile by tile, and takes no place.
    """
    if not sbuf:
        return 0
    total = 0
    for c in graph_computations(known.flat):
        if runs[c.name]:
            total += runs[c.name] * _moved(c, known, sbuf)
            weights = _weights(c, known)
            if runs[c.name] > 1 and weights > sbuf:
                total += (runs[c.name] - 1) * weights
    return total


def _weights(c: Computation, known: LoopFacts) -> int:
    """The bytes of constants that instructions of a loop's body read."""
    names = {o for i in c.instructions if i.opcode not in STRUCTURE for o in i.operands}
    found = (c.by_name[o] for o in names if known.is_constant(c, c.by_name[o]))
    return sum(s.nbytes for i in found if i.opcode not in _VIEWS for s in i.shape.arrays() if s.dims)


def _moved(c: Computation, known: LoopFacts, sbuf: int) -> int:
    """Of one run of a computation."""
    order, reads, sizes = _storage(c, known)
    if sum(sizes.values()) <= sbuf:
        return 0
    uses: dict[str, list[int]] = {}
    for at, names in enumerate(reads):
        for name in names:
            uses.setdefault(name, []).append(at)
    for later in uses.values():
        later.reverse()  # the next use is the last
    resident: set[str] = set()
    saved = {i.name for i in c.parameters}  # a copy is in device memory
    used = moved = 0
    for at, given in enumerate(order):
        for name in reads[at]:
            uses[name].pop()
            if name not in resident:
                moved += sizes[name]
        moved += sizes[given] if sizes[given] > sbuf and given in uses and given not in saved else 0
        resident.update(name for name in (*reads[at], given) if sizes[name] <= sbuf)
        resident = {name for name in resident if uses.get(name)}
        used = sum(sizes[name] for name in resident)
        while used > sbuf:
            name = max(resident, key=lambda n: (uses[n][-1], n))
            resident.remove(name)
            used -= sizes[name]
            moved += 0 if name in saved else sizes[name]
            saved.add(name)
    return moved


def _storage(
    c: Computation, known: LoopFacts
) -> tuple[list[str], list[tuple[str, ...]], dict[str, int]]:
    """What is stored, in order; what is read to compute each of these; and the bytes of all of them,
    in the widest type in which they are read.
    """
    live = live_instructions(c)
    root: dict[str, Instruction] = {}
    width: dict[str, int] = {}  # bytes of an element
    order: list[str] = []
    reads: list[tuple[str, ...]] = []
    for i in c.instructions:
        if i.name not in live or i.opcode in ARRANGES or known.is_constant(c, i):
            continue
        operands = [s for o in i.operands for s, _ in known.sources[c.name][o] if s.name in root]
        named = tuple(dict.fromkeys(root[s.name].name for s in operands))
        if i.opcode in _VIEWS and named:
            root[i.name] = root[named[0]]
            continue
        root[i.name] = i
        order.append(i.name)
        reads.append(named)
        for s in operands:
            _widen(width, root[s.name], s)
    for s, _ in known.sources[c.name][c.root]:
        if s.name in root:
            _widen(width, root[s.name], s)
    readers: dict[str, list[str]] = {}
    for reader, named in zip(order, reads, strict=True):
        for name in named:
            readers.setdefault(name, []).append(reader)
    sizes = {}
    for name in order:
        shapes = c.by_name[name].shape.arrays()
        whole = sum(s.size * width.get(name, s.dtype.itemsize) for s in shapes)
        sizes[name] = 0 if _passes_on(c, readers.get(name, [])) else whole
    return order, reads, sizes


def _passes_on(c: Computation, readers: Sequence[str]) -> bool:
    return len(readers) == 1 and on_engine(c.by_name[readers[0]])


def _widen(width: dict[str, int], stored: Instruction, read: Instruction) -> None:
    """A value is stored in the widest type that is read of it."""
    widest = max((s.dtype.itemsize for s in read.shape.arrays()), default=0)
    width[stored.name] = max(width.get(stored.name, 0), widest)
