"""What a cost model has to know of loops: which scalars the sequencer counts with, which instructions
leave a loop, and what engine wrote a value that a loop carries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from neuronsim import dtypes
from neuronsim.casting.application.commuting import commuted_operands
from neuronsim.hlo.array_sources import ARRANGES, Source, Sources, all_sources, passed_on
from neuronsim.hlo.constant_arrays import Constants, constant_arrays
from neuronsim.hlo.module import (
    Caller,
    Computation,
    Instruction,
    Module,
    Shape,
    find_callers,
    graph_computations,
)
from neuronsim.hlo.opcodes import NEVER_CONSTANT, STRUCTURE, row

Test: TypeAlias = Callable[[Instruction], bool]
_Array: TypeAlias = tuple[str, str, int]  # a computation, an instruction, an array's number there


@dataclass(frozen=True)
class LoopFacts:
    """What there is to know of the loops of a module whose calls are inlined, by computation: the
    arrays that are there before the run (`constants`), and where all arrays come from.
    """

    flat: Module
    constants: Mapping[str, Constants]
    sources: Mapping[str, Sources]
    _known: dict[tuple[Test, bool], dict[_Array, bool]] = field(default_factory=dict)

    @cached_property
    def callers(self) -> Mapping[str, Caller]:
        """What runs each computation: the first, where several do."""
        found = find_callers(graph_computations(self.flat))
        return {name: first for name, (first, *_) in found.items()}

    @cached_property
    def kept(self) -> Mapping[str, frozenset[int]]:
        """Of a loop's body and condition what no trip changes."""
        return {
            name: passed_on(self.flat.by_name[call.called[0]], self.sources[call.called[0]])
            for name, (_, call, _) in self.callers.items()
            if call.opcode == "while"
        }

    @cached_property
    def control(self) -> Mapping[str, set[str]]:
        """The integer and bool scalars that only constants and the counters of loops decide: a counter
        starts with such a value and goes on with one. All are, until one of what they hang on is not.
        """
        needs: dict[_Scalar, list[_Scalar]] = {}
        for c in graph_computations(self.flat):
            for i in c.instructions:
                if i.opcode == "while":
                    self._add_places(needs, c, i)
                if i.opcode != "parameter" and _is_scalar(i):
                    needs[c.name, i.name] = _needs_of(
                        c, i, self.constants[c.name], self.sources[c.name]
                    )
        readers: dict[_Scalar, list[_Scalar]] = {}
        dropped: list[_Scalar] = []
        for scalar, read in needs.items():
            for other in read:
                readers.setdefault(other, []).append(scalar)
            dropped += [other for other in read if other not in needs]
        seen = set(dropped)
        while dropped:
            following = readers.get(dropped.pop(), ())
            dropped += [scalar for scalar in following if scalar not in seen]
            seen.update(following)
        found: dict[str, set[str]] = {c.name: set() for c in graph_computations(self.flat)}
        for computation, name in needs.keys() - seen:
            if isinstance(name, str):
                found[computation].add(name)
        return found

    def _add_places(
        self, needs: dict[_Scalar, list[_Scalar]], c: Computation, loop: Instruction
    ) -> None:
        """What the scalars of a loop's tuple hang on: what the first trip gets, and the next ones."""
        body, condition = loop.called
        root = self.flat.by_name[body].root
        for n, shape in enumerate(loop.shape.arrays()):
            if shape.size > 1 or shape.dtype.kind not in _COUNTS:
                continue
            given = needs.setdefault((body, n), [])
            for around, name in ((c.name, loop.operands[0]), (body, root)):
                if self.constants[around][name][n] is None:
                    given.append(_scalar(around, self.sources[around][name][n]))
            needs.setdefault((condition, n), []).append((body, n))

    @cached_property
    def home(self) -> Mapping[str, Mapping[str, str]]:
        """The computation in which each instruction could run: the innermost whose values it reads."""
        callers, kept, sources = self.callers, self.kept, self.sources
        depth: dict[str, int] = {}
        outermost: dict[str, str] = {}  # where what hangs on nothing could run
        found: dict[str, dict[str, str]] = {}
        for c in reversed(graph_computations(self.flat)):
            in_loop = c.name in kept
            around = callers[c.name].computation.name if c.name in callers else ""
            outermost[c.name] = outermost[around] if in_loop else c.name
            depth[c.name] = depth[around] + 1 if around else 0
            own: dict[str, str] = {}
            found[c.name] = own

            def home(source: Source, c: Computation = c, own: Mapping[str, str] = own) -> str:
                i, n = source
                if i.opcode != "parameter":
                    return own[i.name]
                at = c
                while i.opcode == "parameter" and n in kept.get(at.name, ()):
                    caller = callers[at.name]
                    at = caller.computation
                    i, n = sources[at.name][caller.given][n]
                return at.name if i.opcode in STRUCTURE else found[at.name][i.name]

            for i in c.instructions:
                if not in_loop or i.opcode in NEVER_CONSTANT or i.opcode in ARRANGES:
                    own[i.name] = c.name
                    continue
                homes = [
                    home(source)
                    for o in i.operands
                    for source, constant in zip(
                        sources[c.name][o], self.constants[c.name][o], strict=True
                    )
                    if constant is None
                ]
                own[i.name] = max(homes, key=lambda name: depth[name], default=outermost[c.name])
        return found

    def is_constant(self, c: Computation, i: Instruction) -> bool:
        """Whether all that an instruction gives is there before the run."""
        values = self.constants[c.name].get(i.name, (None,))
        return bool(values) and None not in values

    def is_control(self, c: Computation, name: str) -> bool:
        """Whether a value is one of the sequencer's, or there before the run."""
        return name in self.control[c.name] or self.is_constant(c, c.by_name[name])

    def is_free(self, c: Computation, i: Instruction) -> bool:
        """Whether no engine computes an instruction in the run."""
        return i.name in self.control[c.name] or self.is_constant(c, i)

    def all_producers(self, c: Computation, name: str, test: Test) -> bool:
        """Whether all instructions that compute a value are so, through tuples and branches; what a
        loop carries is its trips' (`first_of_trips`).
        """
        return self._all(c, name, test, moved=False)

    def all_origins(self, c: Computation, name: str, test: Test) -> bool:
        """Whether all instructions that compute the elements of a value are so, wherever these were
        moved or chosen since, in loops before the first trip too.
        """
        return self._all(c, name, test, moved=True)

    def _all(self, c: Computation, name: str, test: Test, *, moved: bool) -> bool:
        """Each array is looked at once for all values that are asked for."""
        known = self._known.setdefault((test, moved), {})
        asked = (c.name, name, 0)
        readers: dict[_Array, list[_Array]] = {asked: []}
        failing: list[_Array] = []
        pending = [] if asked in known else [asked]
        while pending:
            array = pending.pop()
            following, ok = self._before(array, test, moved=moved)
            for other in following:
                if other in known:
                    ok &= known[other]
                elif other in readers:
                    readers[other].append(array)
                else:
                    readers[other] = [array]
                    pending.append(other)
            if not ok:
                failing.append(array)
        while failing:
            array = failing.pop()
            if array not in known:
                known[array] = False
                failing += readers[array]
        for array in readers:
            known.setdefault(array, True)
        return known[asked]

    def _before(self, array: _Array, test: Test, *, moved: bool) -> tuple[list[_Array], bool]:
        """The arrays that an array is made of, else whether what computes it is so."""
        at = self.flat.by_name[array[0]]
        i, n = self.sources[at.name][array[1]][array[2]]
        following = self._around(at, i, n, first=moved)
        if moved and i.opcode not in STRUCTURE:
            following = [(at.name, o, 0) for o in self._moved(i)]
        return following, bool(following) or test(i)

    def _moved(self, i: Instruction) -> tuple[str, ...]:
        """The operands whose elements an instruction gives, moved, chosen or with another sign."""
        numbers = commuted_operands(i, self.flat.by_name, dtypes.float32)
        if not numbers and row(i).cast == "movement":
            numbers = (0,)
        return tuple(i.operands[n] for n in numbers)

    def _around(self, c: Computation, i: Instruction, n: int, *, first: bool) -> list[_Array]:
        """Where an array comes from that a loop or branch gives, or is given: a loop's of its trips,
        and what the `first` one reads.
        """
        if i.opcode == "conditional":
            return [(name, self.flat.by_name[name].root, n) for name in i.called]
        if i.opcode == "while":
            body = self.flat.by_name[i.called[0]]
            kept = n in self.kept[body.name]
            trips = [] if kept else [(body.name, body.root, n)]
            return [*trips, (c.name, i.operands[0], n)] if kept or first else trips
        if i.opcode != "parameter" or c.name not in self.callers:
            return []
        caller = self.callers[c.name]
        if caller.instruction.opcode == "while":
            return self._around(caller.computation, caller.instruction, n, first=first)
        return [(caller.computation.name, caller.given, n)]

    def first_of_trips(self, c: Computation, name: str) -> list[tuple[Computation, str]]:
        """What the first trips of loops read where a value is one that they carry: what computes it
        before all of these loops, and the computation that has it.
        """
        found: dict[tuple[str, str], tuple[Computation, str]] = {}
        pending = [(c.name, name, 0, False)]
        seen = set(pending)
        while pending:
            around, value, number, carried = pending.pop()
            at = self.flat.by_name[around]
            i, n = self.sources[around][value][number]
            following: list[_Array] = []
            if i.opcode == "conditional":
                following = self._around(at, i, n, first=True)
            elif i.opcode == "parameter" and around in self.callers:
                caller = self.callers[around]
                is_loop = caller.instruction.opcode == "while"
                carried |= is_loop and n not in self.kept[around]
                following = [(caller.computation.name, caller.given, n)]
            elif carried and isinstance(i.shape, Shape):
                found[around, i.name] = at, i.name
            new = [(*array, carried) for array in following]
            pending += [array for array in new if array not in seen]
            seen.update(new)
        return list(found.values())

    def sliced(self, c: Computation, name: str) -> tuple[Computation, str] | None:
        """The array of which a value is a slice, at constants or at loops' counters, and the
        computation that has it: the one around a loop that does not change it.
        """
        at = c
        i, n = self.sources[at.name][name][0]
        slices = 0
        while True:
            if i.opcode in ("reshape", "slice", "dynamic-slice"):
                if not all(self.is_control(at, o) for o in i.operands[1:]):
                    return None
                slices += i.opcode != "reshape"
                i, n = self.sources[at.name][i.operands[0]][0]
                continue
            if i.opcode != "parameter" or n not in self.kept.get(at.name, ()):
                break
            caller = self.callers[at.name]
            at = caller.computation
            i, n = self.sources[at.name][caller.given][n]
        return (at, i.name) if slices and isinstance(i.shape, Shape) else None


def loop_facts(flat: Module) -> LoopFacts:
    """What there is to know of the loops of a module whose calls are inlined."""
    return LoopFacts(flat, constant_arrays(flat), all_sources(flat))


# ---- what the sequencer computes -----------------------------------------------------------------

# A scalar of a computation, by its instruction, or by its place in a loop's tuple.
_Scalar: TypeAlias = tuple[str, str | int]


_COUNTS = ("signed", "unsigned", "bool")


def _is_scalar(i: Instruction) -> bool:
    shapes = i.shape.arrays()
    return len(shapes) == 1 and shapes[0].size <= 1 and shapes[0].dtype.kind in _COUNTS


def _needs_of(c: Computation, i: Instruction, constants: Constants, sources: Sources) -> list[_Scalar]:
    (source,) = sources[i.name]
    if source[0] is not i:
        return [_scalar(c.name, source)]
    if i.opcode in NEVER_CONSTANT:
        return [(c.name, _OF_THE_RUN)]
    return [(c.name, o) for o in i.operands if None in constants[o]]


_OF_THE_RUN = -1  # a place that no loop has


def _scalar(computation: str, source: Source) -> _Scalar:
    i, n = source
    return computation, n if i.opcode == "parameter" else i.name
