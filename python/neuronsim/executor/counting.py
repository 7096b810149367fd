"""Loops whose trips only a counter decides: their condition is not asked, and no step counts. What
their bodies select by integers whose ranges follow from the counters is selected beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from neuronsim import dtypes
from neuronsim.dtypes import DType
from neuronsim.hlo.array_sources import Source, Sources, all_sources, literals
from neuronsim.hlo.inlining import FlatModule
from neuronsim.hlo.known_arrays import Arguments, Known, KnownArrays, unchanged
from neuronsim.hlo.module import Computation, Instruction, graph_computations
from neuronsim.hlo.trip_counts import counting_loops

Range: TypeAlias = tuple[int, int]  # the least and the greatest value
_LIMITS = {dtypes.int32: (-(1 << 31), (1 << 31) - 1), dtypes.uint32: (0, (1 << 32) - 1)}


@dataclass(frozen=True)
class CountedLoop:
    """A loop's trips and its counters by their places, as (start, step); and its body, which passes
    the counters on as it got them.
    """

    trips: int
    counters: Mapping[int, tuple[int, int]]
    body: Computation


def counted_loops(flat: FlatModule) -> dict[str, CountedLoop]:
    """The loops of a module that count, by their names; counters are integers of 32 bits."""
    counting = counting_loops(flat)
    if not counting:
        return {}
    found: dict[str, CountedLoop] = {}
    sources = all_sources(flat)
    # A computation that several instructions run has the ranges of all.
    arguments = Arguments[Range](flat, sources, lambda a, b: (min(a[0], b[0]), max(a[1], b[1])))
    for c in reversed(graph_computations(flat)):  # callers first
        ranges = _ranges(c, sources[c.name], arguments.of(c.name))
        for i in c.instructions:
            if i.name not in counting:
                arguments.add_called(i, ranges.values)
                continue
            body, condition = (flat.by_name[name] for name in i.called)
            trips = counting[i.name].count
            assert trips is not None
            counters = {
                n: (start, step)
                for n, (start, step) in counting[i.name].counters.items()
                if _fits(i.shape.arrays()[n].dtype, start, start + trips * step)
            }
            given = list(unchanged(i, ranges.values(i.operands[0]), flat, sources))
            arguments.add(condition.name, tuple(given))
            for n, (start, step) in counters.items():
                last = start + (trips - 1) * step
                given[n] = min(start, last), max(start, last)
            arguments.add(body.name, tuple(given))
            passing = _passing(body, sources[body.name], counters, tuple(given))
            if passing is not None:
                found[i.name] = CountedLoop(trips, counters, passing)
    return found


def _fits(dtype: DType, *numbers: int) -> bool:
    low, high = _LIMITS.get(dtype, (0, -1))
    return all(low <= n <= high for n in numbers)


def _passing(
    body: Computation, sources: Sources, counters: Collection[int], given: Known[Range]
) -> Computation | None:
    """The body that gives its counters as it got them; None where its root is no plain tuple."""
    root = body.by_name[body.root]
    if root.opcode != "tuple" or len(root.operands) != len(sources[root.name]):
        return None
    taken = {
        _argument(sources[i.name]): i.name for i in body.instructions if i.opcode == "get-tuple-element"
    }
    results = tuple(taken[n] if n in counters else o for n, o in enumerate(root.operands))
    chosen = _chosen(body, sources, given)
    read = (replace(i, operands=results) if i is root else i for i in body.instructions)
    return replace(body, instructions=tuple(i.reading(chosen) for i in read))


def _argument(sources: tuple[Source, ...]) -> int | None:
    """The place in a computation's tuple of the one array that this is."""
    if len(sources) != 1 or sources[0][0].opcode != "parameter":
        return None
    return sources[0][1]


def _ranges(c: Computation, sources: Sources, given: Known[Range]) -> KnownArrays[Range]:
    """What is known of a computation's integers of one element, by what is of its argument."""
    known = KnownArrays[Range](sources)
    for i in c.instructions:
        if i.opcode == "parameter":
            if given:
                known.made[i.name] = given
            continue
        shapes = i.shape.arrays()
        if len(shapes) != 1 or shapes[0].dtype not in _LIMITS or any(n != 1 for n in shapes[0].dims):
            continue
        low, high = _LIMITS[shapes[0].dtype]
        r = _constant(i) if i.opcode == "constant" else _result(i, c, known)
        if r is not None and low <= r[0] and r[1] <= high:
            known.made[i.name] = (r,)
    return known


def _constant(i: Instruction) -> Range | None:
    (value,) = literals(i.attributes["literal"])
    number = int(value.data.view(value.dtype.numpy).item())
    return number, number


def _result(i: Instruction, c: Computation, known: KnownArrays[Range]) -> Range | None:
    """The range of an instruction's result in integers without bounds."""
    if i.opcode == "select":
        taken = _taken(i, c, known)
        return None if taken is None else known.only(taken)
    operands = [known.only(o) for o in i.operands]
    if i.opcode not in _RESULTS or None in operands:
        return None
    return _RESULTS[i.opcode](*operands)


_RESULTS: Mapping[str, Callable[..., Range]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "subtract": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "copy": lambda a: a,
    "reshape": lambda a: a,
}


def _taken(i: Instruction, c: Computation, known: KnownArrays[Range]) -> str | None:
    """The operand that a selection gives, where the ranges of what it compares decide."""
    compared = c.by_name[i.operands[0]]
    if compared.opcode != "compare":
        return None
    a, b = map(known.only, compared.operands)
    direction = compared.attributes["comparison_direction"]
    if direction in ("GT", "LE"):
        a, b = b, a
    if a is None or b is None or direction not in ("LT", "GE", "GT", "LE"):
        return None
    below = a[1] < b[0]
    if not below and a[0] < b[1]:
        return None
    return i.operands[1 if below == (direction in ("LT", "GT")) else 2]


def _chosen(c: Computation, sources: Sources, given: Known[Range]) -> Mapping[str, str]:
    """Of the selections that are decided, the operand that they give."""
    found: dict[str, str] = {}
    known = _ranges(c, sources, given)
    for i in c.instructions:
        taken = _taken(i, c, known) if i.opcode == "select" else None
        if taken is not None:
            found[i.name] = found.get(taken, taken)
    return found
