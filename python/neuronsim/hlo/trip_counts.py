"""How often the computations of a module run: the trips of its loops, and the branches that are taken.

A loop's trips are known where its condition hangs on constants alone: a counter in steps that are
constant, any state that a few trips compute from constants, or what XLA's compiler wrote down
(`known_trip_count`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from neuronsim import ops
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, NeuronSimError, nearest
from neuronsim.hlo.module import (
    AnyShape,
    Computation,
    Instruction,
    Module,
    TupleShape,
    graph_computations,
)
from neuronsim.hlo.opcodes import NEVER_CONSTANT, row, row_attributes
from neuronsim.profiles import Profile

ASSUMED_TRIPS = 1  # of a loop of which nothing is known, as XLA's cost analysis counts it
MOST = 2**63 - 1  # trips, and runs of a computation: more are counted as so many
OTHERS = "*"  # stands for the loops that have no name among assumed trips
SMALL = 64  # elements of an array that is folded
SIMULATED = 256  # trips of a loop that are followed one by one
FOLLOWED = 64  # instructions of a trip that are

# How a number of trips is known: from the module, as an upper bound, as the caller said, or not at all.
Evidence: TypeAlias = Literal["known", "bound", "given", "assumed"]
Trips: TypeAlias = "int | Mapping[str, int] | None"
Values: TypeAlias = tuple["ops.Bits | None", ...]  # of the arrays of an instruction, where known


@dataclass(frozen=True)
class LoopTrips:
    """How many trips a loop takes in each of its runs, and how that is known."""

    name: str
    trips: int
    evidence: Evidence


def loop_trips(flat: Module, assumed: Trips = None) -> tuple[LoopTrips, ...]:
    """The loops of a module whose calls are inlined, callers first, with their trips: where they are
    not known, those that are `assumed`, one number for all loops or by their names (`*` for all
    others); else an upper bound of the condition, else ASSUMED_TRIPS.

    Raises InvalidArgument for numbers that are no trips, names of no loop, and contradictions.
    """
    found = _find_trips(flat)
    given = _checked(assumed, found)
    return tuple(_loop(name, trips, given) for name, trips in found.items())


def _loop(name: str, found: _Found, given: Mapping[str, int]) -> LoopTrips:
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
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MOST:
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
    flat: Module, loops: Sequence[LoopTrips], cost: Callable[[Computation], float]
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


# ---- where arrays come from ----------------------------------------------------------------------

# What HLO arranges arrays with.
_ARRANGES = frozenset({"tuple", "opt-barrier", "add-dependency", "after-all"})


def element_range(shape: AnyShape, index: int) -> slice:
    """Where the arrays of a tuple's element lie among all of the tuple's."""
    assert isinstance(shape, TupleShape)
    return shape.place(index)


def passed_on(body: Computation, count: int) -> set[int]:
    """The places of a loop's tuple, of `count` arrays, that the body gives as it got them."""
    found: dict[str, tuple[int | None, ...]] = {}
    for i in body.instructions:
        flat = tuple(n for o in i.operands for n in found[o]) if i.opcode in _ARRANGES else ()
        if i.opcode == "parameter":
            found[i.name] = tuple(range(count))
        elif i.opcode in ("tuple", "opt-barrier"):
            found[i.name] = flat
        elif i.opcode == "get-tuple-element":
            source = body.by_name[i.operands[0]]
            found[i.name] = found[source.name][element_range(source.shape, i.attributes["tuple_index"])]
        else:
            found[i.name] = (None,) * len(i.shape.arrays())
    return {n for n, source in enumerate(found[body.root]) if n == source}


def source_of(c: Computation, name: str, number: int = 0) -> tuple[Instruction, int]:
    """The instruction that gives the array of this number of a value, and the array's number there:
    through tuples and what takes them apart.
    """
    i = c.by_name[name]
    while True:
        if i.opcode in ("tuple", "opt-barrier"):
            for operand in (c.by_name[o] for o in i.operands):
                count = len(operand.shape.arrays())
                if number < count:
                    break
                number -= count
            i = operand
        elif i.opcode == "get-tuple-element":
            operand = c.by_name[i.operands[0]]
            number += element_range(operand.shape, i.attributes["tuple_index"]).start
            i = operand
        elif i.opcode == "add-dependency":
            i = c.by_name[i.operands[0]]
        else:
            return i, number


# ---- what is known of values ---------------------------------------------------------------------


def _folded(
    c: Computation, module: Module, arguments: Mapping[int, Values], only: set[str] | None = None
) -> dict[str, Values]:
    """The values of small arrays that hang on constants and on the known arguments alone."""
    found: dict[str, Values] = {}
    for i in c.instructions:
        if only is not None and i.name not in only:
            continue
        unknown: Values = (None,) * len(i.shape.arrays())
        operands = [found[o] for o in i.operands]
        flat = tuple(v for values in operands for v in values)
        match i.opcode:
            case "parameter":
                found[i.name] = arguments.get(int(i.attributes["number"]), unknown)
            case "constant":
                found[i.name] = tuple(map(_if_small, literals(i.attributes["literal"])))
            case "tuple" | "opt-barrier" | "after-all":
                found[i.name] = flat
            case "add-dependency":
                found[i.name] = operands[0]
            case "get-tuple-element":
                shape = c.by_name[i.operands[0]].shape
                found[i.name] = operands[0][element_range(shape, i.attributes["tuple_index"])]
            case "while":
                kept = passed_on(module.by_name[i.called[0]], len(flat))
                found[i.name] = tuple(v if n in kept else None for n, v in enumerate(flat))
            case _:
                found[i.name] = _evaluated(i, flat, module) or unknown
    return found


def literals(literal: object) -> list[ops.Bits]:
    """The arrays of a constant, which may be a tuple."""
    if isinstance(literal, ops.Bits):
        return [literal]
    assert isinstance(literal, tuple)
    return [x for part in literal for x in literals(part)]


def _if_small(value: ops.Bits) -> ops.Bits | None:
    return value if value.data.size <= SMALL else None


def _evaluated(i: Instruction, operands: Values, module: Module) -> Values | None:
    arrays = [v for v in operands if v is not None]
    size = sum(math.prod(s.dims) for s in i.shape.arrays())
    if i.opcode in NEVER_CONSTANT or len(arrays) < len(operands) or size > SMALL:
        return None
    try:
        attributes = row_attributes(module, i)
        return ops.evaluate_all(row(i), arrays, attributes, _SETTING, i.result)
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
class _Found:
    """A number of trips, if one is known: the exact one, or no less."""

    count: int | None
    is_exact: bool = True


_UNKNOWN = _Found(None, is_exact=False)


def _find_trips(flat: Module) -> dict[str, _Found]:
    """What is known of the trips of each loop, callers first."""
    found: dict[str, _Found] = {}
    graphs = graph_computations(flat)
    if not any(i.opcode == "while" for c in graphs for i in c.instructions):
        return found
    arguments: dict[str, Mapping[int, Values]] = {}
    for c in reversed(graphs):
        values = _folded(c, flat, arguments.get(c.name, {}))
        for i in c.instructions:
            if i.opcode == "while":
                initial = values[i.operands[0]]
                found[i.name] = _trips(i, flat, initial)
                kept = passed_on(flat.by_name[i.called[0]], len(initial))
                known = tuple(v if n in kept else None for n, v in enumerate(initial))
                given = [(name, known) for name in i.called]
            elif i.opcode == "conditional":
                given = [(n, values[o]) for n, o in zip(i.called, i.operands[1:], strict=True)]
            else:
                continue
            for name, known in given:
                arguments[name] = {0: _in_both(known, arguments.get(name, {}).get(0, known))}
    return found


def _in_both(first: Values, second: Values) -> Values:
    """What two callers give alike."""
    return tuple(
        a if a is not None and b is not None and a.data.tobytes() == b.data.tobytes() else None
        for a, b in zip(first, second, strict=True)
    )


def _trips(loop: Instruction, module: Module, initial: Values) -> _Found:
    body, condition = (module.by_name[name] for name in loop.called)
    counted = _counted(body, condition, module, initial)
    if counted.is_exact:
        return counted
    followed = _followed(body, condition, module, initial)
    if followed is None:
        followed = _stated(loop)
    return counted if followed is None else _Found(followed)


def _stated(loop: Instruction) -> int | None:
    """What XLA's compiler wrote down."""
    try:
        config = json.loads(loop.attributes.get("backend_config", b"") or b"{}")
        count = int(config["known_trip_count"]["n"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return count if 0 <= count <= MOST else None


def _counted(body: Computation, condition: Computation, module: Module, initial: Values) -> _Found:
    """The trips of a loop that counts in constant steps from a constant to a constant."""
    kept = passed_on(body, len(initial))
    known = {0: tuple(v if n in kept else None for n, v in enumerate(initial))}
    in_condition = _folded(condition, module, known)
    in_body = _folded(body, module, known)

    def value(c: Computation, values: Mapping[str, Values], name: str) -> int | None:
        return _number(values[name][0]) if len(values[name]) == 1 else None

    def step(place: int) -> int | None:
        made, _ = source_of(body, body.root, place)
        if made.opcode not in ("add", "subtract"):
            return None
        for carried, by in (made.operands, made.operands[::-1]):
            if _place(body, carried) == place and (size := value(body, in_body, by)) is not None:
                if made.opcode == "add":
                    return size
                return -size if carried == made.operands[0] else None
        return None

    def compared(i: Instruction, *, negated: bool = False) -> _Found:
        i, _ = source_of(condition, i.name)
        if i.opcode == "not":
            return compared(condition.by_name[i.operands[0]], negated=not negated)
        if i.opcode == ("or" if negated else "and"):
            parts = [compared(condition.by_name[o], negated=negated) for o in i.operands]
            bounds = [p.count for p in parts if p.count is not None]
            exact = all(p.is_exact for p in parts)
            return _Found(min(bounds), is_exact=exact) if bounds else _UNKNOWN
        if i.opcode != "compare":
            return _UNKNOWN
        direction = i.attributes["comparison_direction"]
        direction = _OPPOSITE[direction] if negated else direction
        for (carried, limit), test in (
            (i.operands, direction),
            (i.operands[::-1], _MIRRORED[direction]),
        ):
            place = _place(condition, carried)
            start = None if place is None else _number(initial[place])
            end = value(condition, in_condition, limit)
            if place is None or start is None or end is None:
                continue
            by = step(place)
            count = None if by is None else _count(start, by, end, test, _type(condition, carried))
            return _UNKNOWN if count is None else _Found(count)
        return _UNKNOWN

    return compared(condition.by_name[condition.root])


_OPPOSITE = {"LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT", "EQ": "NE", "NE": "EQ"}
_MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}


def _place(c: Computation, name: str) -> int | None:
    """The place in a loop's tuple of the array that this value is."""
    made, number = source_of(c, name)
    while made.opcode in ("copy", "reshape", "bitcast"):
        made, number = source_of(c, made.operands[0])
    return number if made.opcode == "parameter" else None


def _type(c: Computation, name: str) -> DType:
    return c.by_name[name].array.dtype


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


def _followed(body: Computation, condition: Computation, module: Module, initial: Values) -> int | None:
    """The trips of a loop that are found by taking them, as far as the condition hangs on constants."""
    asked, places = _slice(condition, {condition.root})
    computed: set[str] = set()
    while True:
        roots = [source_of(body, body.root, n) for n in places]
        computed, more = _slice(body, {i.name for i, _ in roots if i.opcode != "parameter"})
        more |= {n for i, n in roots if i.opcode == "parameter"}
        if more <= places:
            break
        places |= more
    if len(asked) + len(computed) > FOLLOWED or any(initial[n] is None for n in places):
        return None
    state = initial
    for count in range(SIMULATED + 1):
        (goes_on,) = _folded(condition, module, {0: state}, asked)[condition.root]
        number = _number(goes_on)
        if number is None:
            return None
        if not number:
            return count
        values = _folded(body, module, {0: state}, computed)
        following: list[ops.Bits | None] = [None] * len(state)
        for n in places:
            i, at = source_of(body, body.root, n)
            following[n] = state[at] if i.opcode == "parameter" else values[i.name][at]
        state = tuple(following)
    return None


def _slice(c: Computation, names: set[str]) -> tuple[set[str], set[int]]:
    """What these instructions hang on, and the places of a loop's tuple among it."""
    found, places = set(names), set[int]()
    for i in reversed(c.instructions):
        if i.name in found:
            found.update(i.operands)
            made, number = source_of(c, i.name)
            if made.opcode == "parameter":
                if i.opcode != "parameter":
                    places.update(range(number, number + len(i.shape.arrays())))
                elif i.name in names:
                    places.update(range(len(i.shape.arrays())))
    return found, places
