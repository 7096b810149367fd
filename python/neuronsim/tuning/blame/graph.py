"""Who gives what to whom in a module, through tuples, loops and branches; and what has to stay in
float32 together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

from neuronsim.hlo.array_sources import array_sources
from neuronsim.hlo.module import Instruction, Module, find_callers, graph_computations
from neuronsim.hlo.opcodes import STRUCTURE

_PRODUCTS = ("dot", "convolution")


class Graphs:
    """The computations of an inlined module that are executed instruction by instruction: what is in
    them, what gives each array, and what calls them, as which of its computations.
    """

    def __init__(self, flat: Module) -> None:
        self.flat = flat
        graphs = graph_computations(flat)
        self.instructions: Mapping[str, Instruction] = {
            i.name: i for c in graphs for i in c.instructions
        }
        self._owners = {i.name: c.name for c in graphs for i in c.instructions}
        self._sources = {c.name: array_sources(c) for c in graphs}
        self._callers = {name: first for name, (first, *_) in find_callers(graphs).items()}


class Dataflow(Graphs):
    """The instructions of an inlined module that compute or move, and what lies between them."""

    def producers(self, name: str, operand: int) -> dict[str, frozenset[str]]:
        """What gives an operand, each with the loops that carry it there."""
        o = self.instructions[name].operands[operand]
        found: dict[str, frozenset[str]] = {}
        pending: list[tuple[str, int, frozenset[str]]] = [
            (o, n, frozenset()) for n in range(len(self.instructions[o].shape.arrays()))
        ]
        seen: set[tuple[str, int]] = set()
        while pending:
            given, number, loops = pending.pop()
            i, number = self._sources[self._owners[given]][given][number]
            if (i.name, number) in seen:
                continue
            seen.add((i.name, number))
            owner = self._owners[i.name]
            if i.opcode == "parameter" and owner in self._callers:
                caller = self._callers[owner]
                loop = caller.instruction
                if loop.opcode == "while":
                    carried = loops | {loop.name}
                    pending.append((caller.given, number, carried))
                    pending.append((self.flat.by_name[loop.called[0]].root, number, carried))
                else:
                    pending.append((caller.given, number, loops))
            elif i.opcode == "while":
                carried = loops | {i.name}
                pending.append((i.operands[0], number, carried))
                pending.append((self.flat.by_name[i.called[0]].root, number, carried))
            elif i.opcode == "conditional":
                pending += [(self.flat.by_name[c].root, number, loops) for c in i.called]
            else:
                found[i.name] = loops
        return found

    @cached_property
    def consumers(self) -> Mapping[str, Mapping[tuple[str, int], frozenset[str]]]:
        """What reads each instruction's values, as which operand, with the loops that carry them."""
        found: dict[str, dict[tuple[str, int], frozenset[str]]] = defaultdict(dict)
        for i in self.instructions.values():
            if i.opcode in STRUCTURE:
                continue
            for n in range(len(i.operands)):
                for given, loops in self.producers(i.name, n).items():
                    found[given][i.name, n] = loops
        return found

    @cached_property
    def cycles(self) -> list[frozenset[str]]:
        """The instructions of each recurrence, with its loops: those whose values come back to them in
        a later trip.
        """
        after = {n: {reader for reader, _ in self.consumers.get(n, ())} for n in self.instructions}
        before: dict[str, set[str]] = defaultdict(set)
        for n, following in after.items():
            for reader in following:
                before[reader].add(n)
        found: list[set[str]] = []
        for given, readers in self.consumers.items():
            for (reader, _), loops in readers.items():
                if not loops:
                    continue
                ahead = _reached(reader, after)
                if given not in ahead:
                    continue
                members = (ahead & _reached(given, before)) | loops
                for other in [f for f in found if f & (members - loops)]:
                    members |= other
                    found.remove(other)
                found.append(members)
        return [frozenset(f) for f in found]

    def constants_of(self, names: Iterable[str]) -> set[str]:
        """The constants that instructions read, with what spreads them."""
        found: set[str] = set()
        for name in names:
            for o in self.instructions[name].operands:
                way = [o]
                while self.instructions[way[-1]].opcode in ("broadcast", "reshape"):
                    way.append(self.instructions[way[-1]].operands[0])
                if self.instructions[way[-1]].opcode == "constant":
                    found |= set(way)
        return found

    def upstream(
        self, name: str, share: Callable[[str, int], float], least: float, *, products: bool = False
    ) -> dict[str, int]:
        """What gives an instruction at least a share of what it has, by how many steps away, up to
        products (with `products` up to the second ones) and what the model is given; with the loops
        between.
        """
        passed_products = {name: 0}
        found = {name: 0}
        pending = [(name, 1.0, 0)]
        passed = {name: 1.0}
        while pending:
            at, whole, distance = pending.pop(0)
            i = self.instructions[at]
            behind = passed_products[at] + (i.opcode in _PRODUCTS and distance > 0)
            if behind > products:
                continue
            parts: dict[str, float] = defaultdict(float)  # of a square its operand has all
            around: dict[str, frozenset[str]] = {}
            for n in range(len(i.operands)):
                for given, loops in self.producers(at, n).items():
                    parts[given] += whole * share(at, n)
                    around[given] = around.get(given, frozenset()) | loops
            for given, part in parts.items():
                if part < least:
                    continue
                for loop in around[given]:
                    found.setdefault(loop, distance + 1)
                if part <= passed.get(given, 0.0) * 1.01:
                    continue
                passed[given], passed_products[given] = part, behind
                if self.instructions[given].opcode == "parameter":
                    continue
                found[given] = min(distance + 1, found.get(given, 1 << 30))
                pending.append((given, part, distance + 1))
        return found

    def downstream(self, names: Iterable[str], leaves: Callable[[str], bool]) -> set[str]:
        """What reads values that leave a type, up to where they no longer do; with the loops."""
        found: set[str] = set()
        pending = [n for n in names if leaves(n)]
        seen = set(pending)
        while pending:
            for (reader, _), loops in self.consumers.get(pending.pop(), {}).items():
                found.add(reader)
                found |= loops
                if reader not in seen and leaves(reader):
                    pending.append(reader)
                seen.add(reader)
        return found


def _reached(name: str, after: Mapping[str, set[str]]) -> set[str]:
    """What steps lead to, from a name on, which is of it too."""
    found, pending = {name}, [name]
    while pending:
        new = after.get(pending.pop(), set()) - found
        found |= new
        pending += new
    return found
