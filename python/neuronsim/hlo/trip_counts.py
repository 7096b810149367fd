"""How often the computations of a module run: the trips of its loops, and the branches that are taken.

A loop's trips are known where its condition hangs on constants alone: a counter in steps that are
constant, any state that a few trips compute from constants, or what XLA's compiler wrote down
(`known_trip_count`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from neuronsim import ops
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, NeuronSimError, nearest
from neuronsim.hlo.array_sources import ARRANGES, Source, Sources, all_sources, literals, passed_on
from neuronsim.hlo.inlining import FlatModule
from neuronsim.hlo.known_arrays import Arguments, Known, KnownArrays, unchanged
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    graph_computations,
)
from neuronsim.hlo.opcodes import NEVER_CONSTANT, row, row_attributes
from neuronsim.profiles import Profile
from neuronsim.records import is_int

ASSUMED_TRIPS = 1  # of a loop of which nothing is known, as XLA's cost analysis counts it
MOST = 2**63 - 1  # trips, and runs of a computation: more are counted as so many
OTHERS = "*"  # stands for the loops that have no name among assumed trips
SMALL = 64  # elements of an array that is folded
SIMULATED = 256  # trips of a loop that are followed one by one
FOLLOWED = 64  # instructions of a trip that are

# How a number of trips is known: from the module, as an upper bound, as the caller said, or not at all.
Evidence: TypeAlias = Literal["known", "bound", "given", "assumed"]
Trips: TypeAlias = "int | Mapping[str, int] | None"
Values: TypeAlias = Known[ops.Bits]


@dataclass(frozen=True)
class LoopTrips:
    """How many trips a loop takes in each of its runs, and how that is known."""

    name: str
    trips: int
    evidence: Evidence


def loop_trips(flat: FlatModule, assumed: Trips = None) -> tuple[LoopTrips, ...]:
    """The loops of a module whose calls are inlined, callers first, with their trips: where they are
    not known, those that are `assumed`, one number for all loops or by their names (`*` for all
    others); else an upper bound of the condition, else ASSUMED_TRIPS.

    Raises InvalidArgument for numbers that are no trips, names of no loop, and contradictions.
    """
    found = _find_trips(flat, _trips)
    given = _checked(assumed, found)
    return tuple(_loop(name, trips, given) for name, trips in found.items())


def _loop(name: str, found: TripCount, given: Mapping[str, int]) -> LoopTrips:
    count = given.get(name)
    if found.count is not None and count is not None:
        if count > found.count or (found.is_exact and count != found.count):
            least = "" if found.is_exact else "at most "
            raise InvalidArgument(
                f"{name} takes {least}{found.count} trips, as its condition says, not {count}"
            )
        return LoopTrips(name, count, "known" if found.is_exact else "given")
    if count is None and not found.is_exact:
        count = given.get(OTHERS)
        if count is not None and found.count is not None:
            count = min(count, found.count)
    if count is not None:
        return LoopTrips(name, count, "given")
    if found.count is None:
        return LoopTrips(name, ASSUMED_TRIPS, "assumed")
    return LoopTrips(name, found.count, "known" if found.is_exact else "bound")


def _checked(assumed: Trips, loops: Mapping[str, object]) -> Mapping[str, int]:
    if assumed is None:
        return {}
    given = assumed if isinstance(assumed, Mapping) else {OTHERS: assumed}
    for name, count in given.items():
        if not is_int(count, 0, MOST):
            raise InvalidArgument(f"trips are an integer of at least 0 and below 2**63, not {count!r}")
        if name != OTHERS and name not in loops:
            listed = f"its loops are {', '.join(loops)}" if loops else "it has none"
            raise InvalidArgument(
                f"the model has no loop {name!r}{nearest(str(name), loops)}: {listed}"
            )
    return given


# ---- how often computations run ------------------------------------------------------------------


@dataclass(frozen=True)
class RunCounts:
    """How often each computation of a module runs in a run of the module, with what it costs all in
    all, and the conditionals, of which the dearest branch is taken to run.
    """

    counts: Mapping[str, int]
    conditionals: tuple[str, ...]


def run_counts(
    flat: FlatModule, loops: Sequence[LoopTrips], cost: Callable[[Computation], float]
) -> RunCounts:
    """How often each computation that is executed instruction by instruction runs; `cost` says which
    branch is the dearest, as what one run of a computation costs without those that it calls.
    """
    trips = {loop.name: loop.trips for loop in loops}
    graphs = graph_computations(flat)
    total: dict[str, float] = {}
    taken: dict[str, str] = {}
    for c in graphs:  # callees come first
        total[c.name] = cost(c)
        for i in c.instructions:
            if i.opcode == "conditional":
                taken[i.name] = max(i.called, key=lambda n: total[n])
            for name, times in _calls(i, trips, taken):
                total[c.name] += total[name] * times
    counts = dict.fromkeys(total, 0)
    counts[flat.entry] = 1
    for c in reversed(graphs):
        for i in c.instructions:
            for name, times in _calls(i, trips, taken):
                counts[name] = min(MOST, counts[name] + counts[c.name] * times)
    return RunCounts(counts, tuple(taken))


def _calls(i: Instruction, trips: Mapping[str, int], taken: Mapping[str, str]) -> list[tuple[str, int]]:
    """The computations that an instruction runs, and how often."""
    if i.opcode == "while":
        body, condition = i.called
        return [(body, trips[i.name]), (condition, trips[i.name] + 1)]
    return [(taken[i.name], 1)] if i.opcode == "conditional" else []


# ---- what is known of values ---------------------------------------------------------------------


def _folded(
    c: Computation,
    module: Module,
    sources: Mapping[str, Sources],
    argument: Values,
    only: set[str] | None = None,
) -> KnownArrays[ops.Bits]:
    """The values of small arrays that hang on constants and on what is known of the argument alone."""
    known = KnownArrays[ops.Bits](sources[c.name])
    for i in c.instructions:
        if i.opcode in ARRANGES or (only is not None and i.name not in only):
            continue
        values: Values | None = None
        if i.opcode == "parameter":
            values = argument or None
        elif i.opcode == "constant":
            found = literals(i.attributes["literal"])
            values = tuple(v if v.data.size <= SMALL else None for v in found)
        elif i.opcode == "while":
            values = unchanged(i, known.values(i.operands[0]), module, sources)
        elif i.opcode not in NEVER_CONSTANT:
            values = _evaluated(i, tuple(v for o in i.operands for v in known.values(o)), module)
        if values is not None:
            known.made[i.name] = values
    return known


def _evaluated(i: Instruction, operands: Values, module: Module) -> Values | None:
    arrays = [v for v in operands if v is not None]
    size = sum(s.size for s in i.shape.arrays())
    if len(arrays) < len(operands) or size > SMALL:
        return None
    try:
        attributes = row_attributes(module, i)
        return ops.evaluate(row(i), arrays, attributes, _SETTING, i.result)
    except NeuronSimError:  # what has no value here hangs on the run
        return None


_SETTING = ops.Setting(Profile())


def _number(value: ops.Bits | None) -> int | None:
    """The value of an integer or bool array of one element."""
    if value is None or value.data.size != 1 or value.dtype.kind not in ("signed", "unsigned", "bool"):
        return None
    return int(value.data.reshape(-1).view(value.dtype.numpy)[0])


# ---- how many trips ------------------------------------------------------------------------------


@dataclass(frozen=True)
class TripCount:
    """A loop's number of trips, if one is known: the exact one, or no less; and which arrays of its
    tuple, by their places, are `start + n * step` in trip n, as (start, step).
    """

    count: int | None
    is_exact: bool = True
    counters: Mapping[int, tuple[int, int]] = field(default_factory=dict)


def counting_loops(flat: FlatModule) -> dict[str, TripCount]:
    """The loops whose number of trips counters alone decide, by their names."""
    found = _find_trips(flat, _counted).items()
    return {name: c for name, c in found if c.is_exact and c.count is not None}


_UNKNOWN = TripCount(None, is_exact=False)


def _find_trips(
    flat: FlatModule, trips: Callable[[Instruction, Module, Mapping[str, Sources], Values], TripCount]
) -> dict[str, TripCount]:
    """What is known of the trips of each loop, callers first."""
    found: dict[str, TripCount] = {}
    graphs = graph_computations(flat)
    if not any(i.opcode == "while" for c in graphs for i in c.instructions):
        return found
    sources = all_sources(flat)
    arguments = Arguments[ops.Bits](flat, sources, _alike)
    for c in reversed(graphs):
        known = _folded(c, flat, sources, arguments.of(c.name))
        for i in c.instructions:
            if i.opcode == "while":
                found[i.name] = trips(i, flat, sources, known.values(i.operands[0]))
            arguments.add_called(i, known.values)
    return found


def _alike(a: ops.Bits, b: ops.Bits) -> ops.Bits | None:
    return a if a.data.tobytes() == b.data.tobytes() else None


def _trips(
    loop: Instruction, module: Module, sources: Mapping[str, Sources], initial: Values
) -> TripCount:
    counted = _counted(loop, module, sources, initial)
    if counted.is_exact:
        return counted
    body, condition = (module.by_name[name] for name in loop.called)
    followed = _followed(body, condition, module, sources, initial)
    if followed is None:
        followed = _stated(loop)
    return counted if followed is None else TripCount(followed)


def _stated(loop: Instruction) -> int | None:
    """What XLA's compiler wrote down."""
    try:
        config = json.loads(loop.attributes.get("backend_config", b"") or b"{}")
        count = int(config["known_trip_count"]["n"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return count if 0 <= count <= MOST else None


def _counted(
    loop: Instruction, module: Module, sources: Mapping[str, Sources], initial: Values
) -> TripCount:
    """The trips of a loop that counts in constant steps from a constant to a constant: as long as all
    comparisons hold that its condition joins.
    """
    body, condition = (module.by_name[name] for name in loop.called)
    known = unchanged(loop, initial, module, sources)
    in_condition = _folded(condition, module, sources, known)
    in_body = _folded(body, module, sources, known)

    def step(place: int) -> int | None:
        made, _ = sources[body.name][body.root][place]
        if made.opcode not in ("add", "subtract"):
            return None
        for carried, by in (made.operands, made.operands[::-1]):
            if _place(carried, sources[body.name]) == place:
                size = _number(in_body.only(by))
                if size is not None:
                    if made.opcode == "add":
                        return size
                    return -size if carried == made.operands[0] else None
        return None

    def compared(i: Instruction, *, negated: bool) -> TripCount:
        if i.opcode != "compare":
            return _UNKNOWN
        direction = i.attributes["comparison_direction"]
        direction = _OPPOSITE[direction] if negated else direction
        for (carried, limit), test in (
            (i.operands, direction),
            (i.operands[::-1], _MIRRORED[direction]),
        ):
            place = _place(carried, sources[condition.name])
            start = None if place is None else _number(initial[place])
            end = _number(in_condition.only(limit))
            if place is None or start is None or end is None:
                continue
            by = step(place)
            dtype = condition.by_name[carried].array.dtype
            count = None if by is None else _count(start, by, end, test, dtype)
            return _UNKNOWN if count is None else TripCount(count)
        return _UNKNOWN

    parts = [compared(i, negated=negated) for i, negated in _joined(condition, sources[condition.name])]
    bounds = [p.count for p in parts if p.count is not None]
    if not bounds:
        return _UNKNOWN
    numbers = ((place, _number(v), step(place)) for place, v in enumerate(initial))
    counters = {place: (n, by) for place, n, by in numbers if n is not None and by is not None}
    return TripCount(min(bounds), is_exact=all(p.is_exact for p in parts), counters=counters)


def _joined(condition: Computation, sources: Sources) -> list[tuple[Instruction, bool]]:
    """What must hold, all of it, for a condition to hold, or where negated, must not."""
    found: list[tuple[Instruction, bool]] = []
    pending = [(condition.root, False)]
    seen = set(pending)
    while pending:
        name, negated = pending.pop()
        i, _ = sources[name][0]
        if i.opcode == "not":
            parts = [(i.operands[0], not negated)]
        elif i.opcode == ("or" if negated else "and"):
            parts = [(o, negated) for o in i.operands]
        else:
            found.append((i, negated))
            continue
        pending += [part for part in dict.fromkeys(parts) if part not in seen]
        seen.update(parts)
    return found


_OPPOSITE = {"LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT", "EQ": "NE", "NE": "EQ"}
_MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}


def _place(name: str, sources: Sources) -> int | None:
    """The place in a loop's tuple of the array that this value is."""
    made, number = sources[name][0]
    while made.opcode in ("copy", "reshape", "bitcast"):
        made, number = sources[made.operands[0]][0]
    return number if made.opcode == "parameter" else None


def _count(start: int, step: int, end: int, test: str, dtype: DType) -> int | None:
    """How many trips it takes until a counter fails the test; None where it never does, or where the
    counter would leave its type, of whose 64 bits the device has 32 (C7).
    """
    holds = {
        "LT": start < end,
        "LE": start <= end,
        "GT": start > end,
        "GE": start >= end,
        "EQ": start == end,
        "NE": start != end,
    }
    if not holds[test]:
        return 0
    distance = end - start
    match test:
        case "LT" | "GT":
            count = -(-distance // step) if step * distance > 0 else None
        case "LE" | "GE":
            up = test == "LE"
            count = distance // step + 1 if step and (step > 0) == up else None
        case "EQ":
            count = 1 if step else None
        case _:
            count = distance // step if step and distance % step == 0 and step * distance > 0 else None
    if count is None:
        return None
    bits = min(dtype.bits, 32)
    low, high = (
        (0, 2**bits - 1) if dtype.kind == "unsigned" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )
    return count if all(low <= n <= high for n in (start, end, start + count * step)) else None


def _followed(
    body: Computation,
    condition: Computation,
    module: Module,
    sources: Mapping[str, Sources],
    initial: Values,
) -> int | None:
    """The trips of a loop that are found by taking them, as far as the condition hangs on constants."""
    goes_on = sources[condition.name][condition.root][0]
    following = sources[body.name][body.root]
    asked, places = _Slice(condition, module, sources), _Slice(body, module, sources)
    if not asked.add(goes_on):
        return None
    pending = list(asked.places)
    followed = set(pending)
    while pending:
        if initial[pending[-1]] is None or not places.add(following[pending.pop()]):
            return None
        pending += places.places - followed
        followed |= places.places
    state = initial
    for count in range(SIMULATED + 1):
        number = _number(_folded(condition, module, sources, state, asked.computed).value(goes_on))
        if number is None:
            return None
        if not number:
            return count
        values = _folded(body, module, sources, state, places.computed)
        state = tuple(
            values.value(source) if n in followed else None for n, source in enumerate(following)
        )
    return None


class _Slice:
    """What some arrays of a computation hang on: instructions, and places of a loop's tuple."""

    def __init__(self, c: Computation, module: Module, sources: Mapping[str, Sources]) -> None:
        self.module, self.sources, self.all = module, sources[c.name], sources
        self.computed = {p.name for p in c.parameters}
        self.places: set[int] = set()
        self.seen: set[tuple[str, int]] = set()

    def add(self, source: Source) -> bool:
        """Adds what an array hangs on; False where that is more than is followed."""
        pending = [source]
        while pending:
            i, n = pending.pop()
            if (i.name, n) in self.seen:
                continue
            self.seen.add((i.name, n))
            if len(self.seen) > FOLLOWED:
                return False
            if i.opcode == "parameter":
                self.places.add(n)
                continue
            self.computed.add(i.name)
            if i.opcode == "while":
                if n in passed_on(self.module.by_name[i.called[0]], self.all[i.called[0]]):
                    pending.append(self.sources[i.operands[0]][n])
            elif i.opcode not in NEVER_CONSTANT:
                pending += [s for o in i.operands for s in self.sources[o]]
        return True
