"""Several planned forms of a model as one module: what they share is there, and computed, once.

Instructions are merged by value numbering (`hlo.value_keys`).

>>> from neuronsim import dtypes
>>> from neuronsim.hlo.module import Shape
>>> shape = Shape(dtypes.float32, (2,))
>>> x = Instruction("x", "parameter", shape, (), {"number": 0})
>>> e = Instruction("e", "exponential", shape, ("x",))
>>> forms = [e.replace(name="y", opcode=o, operands=("e",)) for o in ("tanh", "sine")]
>>> one, two = (Module("m", "main", (Computation("main", (x, e, y), "y"),)) for y in forms)
>>> merged = Merger("m", [one, two]).finish()
>>> [i.name for i in merged.module.entry_computation.instructions], merged.names[1]["y"]
(['x', 'e', 'y', 'y.1', 'results'], 'y.1')
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from neuronsim.hlo.inlining import FlatModule
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    TupleShape,
    fresh_name,
    graph_computations,
    live_instructions,
)
from neuronsim.hlo.value_keys import ValueKeys, is_decided


@dataclass(frozen=True)
class Merged:
    """A module whose result is a tuple of those of its parts, and for each part the names that its
    instructions have in it.
    """

    module: FlatModule
    names: tuple[Mapping[str, str], ...]


def may_merge(module: Module) -> bool:
    """Whether a module's values hang on nothing but its inputs: random words hang on names (S2)."""
    return all(is_decided(i) for c in graph_computations(module) for i in c.instructions)


class Merger:
    """A merged module that grows by one part at a time; these have the same parameters."""

    def __init__(self, name: str, parts: Iterable[Module] = ()) -> None:
        self._name = name
        self._entry = _Body()
        self._numbers: dict[Hashable, int] = {}  # of computations, by what they do
        self._computations: dict[int, Computation] = {}
        self._taken: set[str] = set()
        self._taken_computations: set[str] = {"merged"}
        self._names: list[Mapping[str, str]] = []
        self._roots: list[str] = []
        for part in parts:
            self.add(part)

    def __len__(self) -> int:
        return len(self._roots)

    def add(self, part: Module) -> None:
        """Add a module without calls."""
        keys = ValueKeys(part, self._numbers)
        entry = part.entry_computation
        own = self._place(entry, self._entry, keys, keep=live_instructions(entry))
        inner: dict[str, str] = {}
        for c in graph_computations(part):
            if c is not entry:
                merged = self._computation(c.name, keys)
                pairs = zip(c.instructions, merged.instructions, strict=True)
                inner |= {a.name: b.name for a, b in pairs}
        self._names.append(inner | own)
        self._roots.append(own[entry.root])

    def fits(self, limit: int) -> bool:
        """Whether the results that live at one time have at most so many bytes."""
        return self._entry.bytes <= limit or self.peak_bytes() <= limit

    def peak_bytes(self) -> int:
        """The most bytes that results take at one time, run in order: an upper bound of a run's memory
        without what chains and fused products save.
        """
        body, size, last = self._entry.instructions, self._entry.size, dict(self._entry.last)
        for root in self._roots:
            last[root] = len(body)
        now = peak = 0
        for at, i in enumerate(body):
            now += size[i.name]
            if now > peak:
                peak = now
            for o in i.operands:
                if last[o] == at:
                    now -= size[o]
                    last[o] = -1  # an operand may be read twice
            if i.name not in last:
                now -= size[i.name]
        return peak

    def finish(self) -> Merged:
        """The module of all parts."""
        by_name = {i.name: i for i in self._entry.instructions}
        shape = TupleShape(tuple(by_name[r].shape for r in self._roots))
        root = Instruction(fresh_name("results", self._taken), "tuple", shape, tuple(self._roots))
        entry = Computation("merged", (*self._entry.instructions, root), root.name)
        module = Module(self._name, "merged", (*self._computations.values(), entry))
        return Merged(FlatModule(module), tuple(self._names))

    def _place(
        self, c: Computation, body: _Body, keys: ValueKeys, keep: set[str] | None = None
    ) -> dict[str, str]:
        """Put a computation's instructions into a body, where they are not yet; returns their names."""
        names: dict[str, str] = {}
        for i in c.instructions:
            if keep is not None and i.name not in keep and i.opcode != "parameter":
                continue
            operands = tuple(names[o] for o in i.operands)
            key = keys.of(i, operands)
            found = body.known.get(key)
            if found is None:
                found = body.known[key] = fresh_name(i.name, self._taken)
                body.add(self._renamed(i, found, operands, keys))
            names[i.name] = found
        return names

    def _renamed(
        self, i: Instruction, name: str, operands: tuple[str, ...], keys: ValueKeys
    ) -> Instruction:
        changes: dict[str, Any] = {"name": name, "operands": operands}
        if i.called:
            called = tuple(self._computation(n, keys).name for n in i.called)
            changes["attributes"] = {**i.attributes, "called": called}
        return i.replace(**changes)

    def _computation(self, name: str, keys: ValueKeys) -> Computation:
        """That of the merged module which does the same; the first of its kind becomes one."""
        number = keys.of_computation(name)
        if number not in self._computations:
            c = keys.module.by_name[name]
            own = fresh_name(name, self._taken_computations)
            names = {i.name: fresh_name(i.name, self._taken) for i in c.instructions}
            body = tuple(
                self._renamed(i, names[i.name], tuple(names[o] for o in i.operands), keys)
                for i in c.instructions
            )
            self._computations[number] = Computation(own, body, names[c.root])
        return self._computations[number]


@dataclass
class _Body:
    """The instructions of a computation that grows, by what they compute; the bytes of their results,
    one by one and of all, and the number of what reads each last.
    """

    instructions: list[Instruction] = field(default_factory=list)
    known: dict[Hashable, str] = field(default_factory=dict)
    size: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    bytes: int = 0

    def add(self, i: Instruction) -> None:
        for o in i.operands:
            self.last[o] = len(self.instructions)
        self.size[i.name] = _bytes(i)
        self.bytes += self.size[i.name]
        self.instructions.append(i)


def _bytes(i: Instruction) -> int:
    if i.opcode in ("parameter", "tuple", "get-tuple-element"):
        return 0
    return sum(s.nbytes for s in i.shape.arrays())
