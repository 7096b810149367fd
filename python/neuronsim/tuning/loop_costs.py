"""What a cost model has to know of loops: which scalars the sequencer counts with, which instructions
leave a loop, and what engine wrote a value that a loop carries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from neuronsim.hlo.constant_arrays import Constants, constant_arrays
from neuronsim.hlo.module import Computation, Instruction, Module, Shape, graph_computations
from neuronsim.hlo.opcodes import NEVER_CONSTANT, STRUCTURE, row
from neuronsim.hlo.trip_counts import passed_on, source_of


@dataclass(frozen=True)
class LoopCosts:
    """Of a module whose calls are inlined, by computation: the arrays that are there before the run;
    the scalars that only loops' counters and constants decide (`control`); where each instruction could
    run, outside a loop that does not change what it reads (`home`); and what runs the computation.
    """

    flat: Module
    constants: Mapping[str, Constants]
    control: Mapping[str, set[str]]
    home: Mapping[str, Mapping[str, str]]
    callers: Mapping[str, tuple[Computation, Instruction]]

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

    def producers(self, c: Computation, name: str) -> list[Instruction]:
        """The instructions that compute a value, through tuples and branches; what a loop carries is
        its trips' (`first_of_trips`).
        """
        return self._origins(c, name, moved=False)

    def origins(self, c: Computation, name: str) -> list[Instruction]:
        """The instructions that compute the elements of a value, wherever these were moved since, in
        loops before the first trip too.
        """
        return self._origins(c, name, moved=True)

    def _origins(self, c: Computation, name: str, *, moved: bool) -> list[Instruction]:
        found: list[Instruction] = []
        pending = [(c, name, 0)]
        seen: set[tuple[str, str, int]] = set()
        while pending:
            at, value, number = pending.pop()
            if (at.name, value, number) in seen:
                continue
            seen.add((at.name, value, number))
            i, n = source_of(at, value, number)
            following = self._around(at, i, n, first=moved)
            if moved and i.opcode not in STRUCTURE and row(i).cast == "movement":
                following = [(at, o, 0) for o in _moved(i)]
            pending += following
            found += [] if following else [i]
        return found

    def _around(
        self, c: Computation, i: Instruction, n: int, *, first: bool
    ) -> list[tuple[Computation, str, int]]:
        """Where an array comes from that a loop or branch gives, or is given: a loop's of its trips,
        and what the `first` one reads.
        """
        if i.opcode == "conditional":
            branches = [self.flat.by_name[name] for name in i.called]
            return [(b, b.root, n) for b in branches]
        if i.opcode == "while":
            body = self.flat.by_name[i.called[0]]
            kept = n in passed_on(body, len(i.shape.arrays()))
            trips = [] if kept else [(body, body.root, n)]
            return [*trips, (c, i.operands[0], n)] if kept or first else trips
        if i.opcode != "parameter" or c.name not in self.callers:
            return []
        caller, call = self.callers[c.name]
        if call.opcode == "while":
            return self._around(caller, call, n, first=first)
        return [(caller, call.operands[1 + call.called.index(c.name)], n)]

    def first_of_trips(self, c: Computation, name: str) -> tuple[Computation, str] | None:
        """What the first trip of a loop reads where a value is one that it carries: the computation
        around the loop, and the instruction that gives it there.
        """
        source, n = source_of(c, name)
        if source.opcode != "parameter" or c.name not in self.callers:
            return None
        caller, call = self.callers[c.name]
        if call.opcode != "while" or n in passed_on(c, len(call.shape.arrays())):
            return None
        around, _ = source_of(caller, call.operands[0], n)
        return (caller, around.name) if isinstance(around.shape, Shape) else None

    def sliced(self, c: Computation, name: str) -> tuple[Computation, str] | None:
        """The array of which a value is a slice, at constants or at loops' counters, and the
        computation that has it: the one around a loop that does not change it.
        """
        at = c
        i, n = source_of(at, name)
        slices = 0
        while True:
            if i.opcode in ("reshape", "slice", "dynamic-slice"):
                if not all(self.is_control(at, o) for o in i.operands[1:]):
                    return None
                slices += i.opcode != "reshape"
                i, n = source_of(at, i.operands[0])
                continue
            around = self.callers.get(at.name) if i.opcode == "parameter" else None
            if around is None or around[1].opcode != "while":
                break
            body = self.flat.by_name[around[1].called[0]]
            if n not in passed_on(body, len(around[1].shape.arrays())):
                break
            at = around[0]
            i, n = source_of(at, around[1].operands[0], n)
        return (at, i.name) if slices and isinstance(i.shape, Shape) else None


def _moved(i: Instruction) -> tuple[str, ...]:
    """The operands whose elements a movement gives."""
    if i.opcode == "concatenate":
        return i.operands
    return i.operands[: 2 if i.opcode in ("dynamic-update-slice", "pad") else 1]


def loop_costs(flat: Module) -> LoopCosts:
    """What there is to know of the loops of a module whose calls are inlined."""
    graphs = graph_computations(flat)
    callers: dict[str, tuple[Computation, Instruction]] = {}
    for c in reversed(graphs):
        for i in c.instructions:
            if i.opcode in ("while", "conditional"):
                callers |= {name: (c, i) for name in i.called if name not in callers}
    constants = constant_arrays(flat)
    control = _control(flat, constants)
    return LoopCosts(flat, constants, control, _homes(flat, constants, callers), callers)


# ---- what the sequencer computes -----------------------------------------------------------------


def _control(flat: Module, constants: Mapping[str, Constants]) -> dict[str, set[str]]:
    """The integer and bool scalars that only constants and the counters of loops decide: a counter
    starts with such a value and goes on with one.
    """
    graphs = graph_computations(flat)
    loops = [(c, i) for c in graphs for i in c.instructions if i.opcode == "while"]
    # The places of each computation's tuple: all scalars at first, until what follows says otherwise.
    places: dict[str, set[int]] = {c.name: set() for c in graphs}
    for _, loop in loops:
        scalars = {n for n, s in enumerate(loop.shape.arrays()) if _is_scalar(s.dims, s.dtype.kind)}
        for name in loop.called:
            places[name] = set(scalars)
    while True:
        found = {c.name: _control_of(c, places[c.name], constants[c.name]) for c in reversed(graphs)}
        changed = False
        for c, loop in loops:
            body = flat.by_name[loop.called[0]]
            kept = {
                n
                for n in places[body.name]
                if _decided(c, loop.operands[0], n, places, found, constants)
                and _decided(body, body.root, n, places, found, constants)
            }
            changed |= any(places[name] != kept for name in loop.called)
            for name in loop.called:
                places[name] &= kept
        if not changed:
            return found


def _is_scalar(dims: tuple[int, ...], kind: str) -> bool:
    return math.prod(dims) <= 1 and kind in ("signed", "unsigned", "bool")


def _control_of(c: Computation, places: set[int], constants: Constants) -> set[str]:
    found: set[str] = set()
    for i in c.instructions:
        if len(i.shape.arrays()) != 1 or not _is_scalar(*_of(i)) or i.opcode == "parameter":
            continue
        source, n = source_of(c, i.name)
        if source.opcode == "parameter":
            is_control = n in places
        elif source is not i:
            is_control = source.name in found
        else:
            is_control = i.opcode not in NEVER_CONSTANT and all(
                o in found or None not in constants[o] for o in i.operands
            )
        if is_control:
            found.add(i.name)
    return found


def _of(i: Instruction) -> tuple[tuple[int, ...], str]:
    (shape,) = i.shape.arrays()
    return shape.dims, shape.dtype.kind


def _decided(
    c: Computation,
    name: str,
    number: int,
    places: Mapping[str, set[int]],
    found: Mapping[str, set[str]],
    constants: Mapping[str, Constants],
) -> bool:
    """Whether an array of a value is control, or constant."""
    if constants[c.name][name][number] is not None:
        return True
    source, n = source_of(c, name, number)
    return n in places[c.name] if source.opcode == "parameter" else source.name in found[c.name]


# ---- what leaves a loop --------------------------------------------------------------------------


def _homes(
    flat: Module,
    constants: Mapping[str, Constants],
    callers: Mapping[str, tuple[Computation, Instruction]],
) -> dict[str, dict[str, str]]:
    """The computation in which each instruction could run: the innermost whose values it reads."""
    graphs = graph_computations(flat)
    depth: dict[str, int] = {}
    outermost: dict[str, str] = {}  # where what hangs on nothing could run
    found: dict[str, dict[str, str]] = {}
    for c in reversed(graphs):
        in_loop = c.name in callers and callers[c.name][1].opcode == "while"
        outermost[c.name] = outermost[callers[c.name][0].name] if in_loop else c.name
        depth[c.name] = depth[callers[c.name][0].name] + 1 if c.name in callers else 0
        own: dict[str, str] = {}
        found[c.name] = own
        kept = _given(c, flat, callers)
        for i in c.instructions:
            if not in_loop or i.opcode in NEVER_CONSTANT:
                own[i.name] = c.name
                continue
            homes = []
            for o in i.operands:
                for n, constant in enumerate(constants[c.name][o]):
                    source, at = source_of(c, o, n)
                    if constant is not None:
                        continue
                    if source.opcode == "parameter":
                        homes.append(_home_of(at, kept, c, found))
                    else:
                        homes.append(own[source.name])
            own[i.name] = max(homes, key=lambda name: depth[name], default=outermost[c.name])
    return found


def _given(
    c: Computation, flat: Module, callers: Mapping[str, tuple[Computation, Instruction]]
) -> Mapping[int, tuple[Computation, Instruction, int]]:
    """The arrays of a loop's tuple that no trip changes, with what gives them around the loop."""
    if c.name not in callers or callers[c.name][1].opcode != "while":
        return {}
    caller, loop = callers[c.name]
    places = passed_on(flat.by_name[loop.called[0]], len(loop.shape.arrays()))
    return {n: (caller, *source_of(caller, loop.operands[0], n)) for n in places}


def _home_of(
    place: int,
    given: Mapping[int, tuple[Computation, Instruction, int]],
    c: Computation,
    found: Mapping[str, Mapping[str, str]],
) -> str:
    if place not in given:
        return c.name
    caller, source, _ = given[place]
    return caller.name if source.opcode in STRUCTURE else found[caller.name][source.name]
