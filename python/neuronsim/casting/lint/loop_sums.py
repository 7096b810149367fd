"""Sums that a loop carries: what of its state it adds to, trip by trip, and where.

An addition is one if a way leads from its result back to what it adds to, by way of the state: through
moves, choices, conditionals, inner loops, other elements of the state, and factors that reach 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from neuronsim.casting.lint.narrow_types import digits, is_narrow
from neuronsim.casting.lint.planned_computation import MOVES, Broken, PlannedComputation
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Instruction, Shape

_Value: TypeAlias = tuple[str, int]  # of an instruction: its array, number -1, or a tuple's element


class _Way(NamedTuple):
    """That elements of a value are handed on, or that something is added to them."""

    given: _Value
    result: _Value
    added: str = ""


def narrow_sums(scope: PlannedComputation) -> Broken:
    """A loop that adds 1 to a bfloat16 stands still at 256; not one of at most 256 trips.
    Where the loop ends by that value, it never does.
    """
    if not scope.is_loop:
        return
    ways = list(_ways(scope))
    groups = _cycles(ways)
    reported = set[int]()
    for own, way in _own_first(scope, ways):
        group = groups[way.result]
        i = own.by_name[way.result[0]]
        dtype = own.gives(i)
        if groups[way.given] != group or group in reported or dtype is None or not is_narrow(dtype):
            continue
        step = own.graph.numbers.get(way.added)
        reported.add(group)
        compared = _compared(scope, groups, group)
        if scope.trips <= 2 ** digits(dtype) or (compared is not None and _ends(compared, step, dtype)):
            continue
        what = f"counts by {step:g}" if step is not None else "adds up"
        endless = ""
        if compared is not None:
            known = compared.limit is not None and step is not None
            endless = f", and the loop, which ends by that value, {'never' if known else 'hardly'} does"
        yield (
            i,
            f"the loop {what} in a {dtype.name} that it carries, {digits(dtype)} significant "
            f"bits: after {2 ** digits(dtype)} equal steps it stands still{endless}",
            (i.name,),
        )


def _own_first(
    scope: PlannedComputation, ways: Sequence[_Way]
) -> Iterator[tuple[PlannedComputation, _Way]]:
    """The additions of a loop's body and of its branches, the body's last one first. Inner loops report
    their own.
    """
    named = {name: s for s in _branches(scope) for name in s.by_name}
    sums = [w for w in reversed(ways) if w.added and w.result[0] in named]
    for w in sorted(sums, key=lambda w: w.result[0] not in scope.by_name):
        yield named[w.result[0]], w


def _branches(scope: PlannedComputation) -> Iterator[PlannedComputation]:
    """A computation, and those that it calls but does not repeat."""
    yield scope
    for i in scope.computation.instructions:
        if i.opcode == "conditional":
            for name in i.called:
                yield from _branches(scope.scopes[name])


# ---- the ways of a value through a body ----------------------------------------------------------


def _elements(i: Instruction) -> range:
    return range(-1, 0) if isinstance(i.shape, Shape) else range(len(i.shape.arrays()))


def _ways(scope: PlannedComputation) -> Iterator[_Way]:
    """How values are handed on in one trip, and from its end to the begin of the next."""
    yield from _once(scope)
    root = scope.by_name[scope.computation.root]
    (state,) = scope.computation.parameters
    for e in _elements(root):
        yield _Way((root.name, e), (state.name, e))


def _once(scope: PlannedComputation) -> Iterator[_Way]:
    for i in scope.computation.instructions:
        if i.opcode == "get-tuple-element":
            yield _Way((i.operands[0], i.attributes["tuple_index"]), (i.name, -1))
        elif i.opcode == "tuple":
            for n, o in enumerate(i.operands):
                yield _Way((o, -1), (i.name, n))
        elif i.opcode == "opt-barrier":
            for e in _elements(i):
                yield _Way((i.operands[0], e), (i.name, e))
        elif i.opcode == "conditional":
            for name, o in zip(i.called, i.operands[1:], strict=True):
                yield from _once(scope.scopes[name])
                yield from _called(scope, i, name, o)
        elif i.opcode == "while":
            yield from _ways(scope.scopes[i.called[0]])
            yield from _called(scope, i, i.called[0], i.operands[0])
        else:
            yield from _through(scope, i)


def _called(scope: PlannedComputation, i: Instruction, name: str, operand: str) -> Iterator[_Way]:
    """From the operand to a computation's parameter, and from its root to the result."""
    body = scope.scopes[name].computation
    for e in _elements(scope.by_name[operand]):
        yield _Way((operand, e), (body.parameters[0].name, e))
    for e in _elements(i):
        yield _Way((body.root, e), (i.name, e))


def _through(scope: PlannedComputation, i: Instruction) -> Iterator[_Way]:
    """From an elementwise operation's, a choice's or a sum's operands to its result."""
    result = (i.name, -1)
    if i.opcode == "add":
        first, second = i.operands
        yield _Way((first, -1), result, second)
        yield _Way((second, -1), result, first)
    elif i.opcode == "subtract":
        yield _Way((i.operands[0], -1), result, i.operands[1])
    elif i.opcode in ("reduce", "reduce-window") and len(i.operands) == 2:
        reducer = scope.reducer(i)
        if reducer in ("add", "maximum", "minimum"):
            yield _Way((i.operands[0], -1), result, i.operands[0] if reducer == "add" else "")
    elif i.opcode == "scatter" and len(i.operands) == 3:
        added = i.operands[2] if scope.reducer(i) == "add" else ""
        yield _Way((i.operands[0], -1), result, added)
        yield _Way((i.operands[2], -1), result)
    elif i.opcode == "multiply":
        for n, o in enumerate(i.operands):
            if _reaches_one(scope, i, 1 - n):
                yield _Way((o, -1), result)
    elif i.opcode == "divide":
        if _reaches_one(scope, i, 1):
            yield _Way((i.operands[0], -1), result)
    else:
        taken = slice(0, 1) if i.opcode in MOVES else _HANDS_ON.get(i.opcode, slice(0))
        for o in i.operands[taken]:
            yield _Way((o, -1), result)


# The operands whose elements are elements of the result.
_HANDS_ON = {
    "select": slice(1, 3),
    "maximum": slice(None),
    "minimum": slice(None),
    "clamp": slice(None),
    "abs": slice(None),
    "dynamic-update-slice": slice(0, 2),
    "dynamic-slice": slice(0, 1),
    "gather": slice(0, 1),
    "concatenate": slice(None),
    "pad": slice(0, 2),
}


def _reaches_one(scope: PlannedComputation, i: Instruction, number: int) -> bool:
    """Whether a factor is known to lie between two numbers, none negative, that 1 lies between in the
    type in which it is read. A gate, which sigmoids make, stays below 1.
    """
    name, dtype = i.operands[number], scope.reads(i, number)
    if dtype is None or dtype.kind != "float":
        return False
    low, high = scope.interval(name)
    known = 0 <= low <= 1 and (1 - dtype.eps / 4) <= high < float("inf")  # 0.999 is 1 in bfloat16
    return known and not _is_gate(scope, name)


def _is_gate(scope: PlannedComputation, name: str) -> bool:
    """Whether a factor is computed from a sigmoid or a softmax."""
    pending, seen = [name], set[str]()
    while pending and len(seen) < _FORMULA:
        i = scope.source(pending.pop())
        if i.opcode == "logistic" or i.name in scope.gates:
            return True
        if i.name not in seen and i.opcode in _OF_GATES:
            seen.add(i.name)
            pending += i.operands
    return False


_FORMULA = 20  # instructions
_OF_GATES = frozenset({"add", "subtract", "multiply", "select", "maximum", "minimum", "negate"})


# ---- cycles --------------------------------------------------------------------------------------


def _cycles(ways: Sequence[_Way]) -> Mapping[_Value, int]:
    """A number for each value, the same for those from which ways lead to each other (Kosaraju's
    strongly connected components).
    """
    after: dict[_Value, list[_Value]] = {}
    before: dict[_Value, list[_Value]] = {}
    for given, result, _ in ways:
        after.setdefault(given, []).append(result)
        before.setdefault(result, []).append(given)
        after.setdefault(result, [])
        before.setdefault(given, [])
    left: list[_Value] = []
    seen = set[_Value]()
    for start in after:
        path = [(start, iter(after[start]))] if start not in seen else []
        seen.add(start)
        while path:
            value, rest = path[-1]
            following = next((v for v in rest if v not in seen), None)
            if following is None:
                left.append(path.pop()[0])
            else:
                seen.add(following)
                path.append((following, iter(after[following])))
    groups: dict[_Value, int] = {}
    for number, start in enumerate(reversed(left)):
        pending = [start]
        while pending:
            value = pending.pop()
            if value not in groups:
                groups[value] = number
                pending += (v for v in before[value] if v not in groups)
    return groups


# ---- loops that end by a sum ---------------------------------------------------------------------


class _End(NamedTuple):
    """What a carried value is compared with for a loop to end, and where it begins; None if unknown."""

    first: float | None
    limit: float | None


def _compared(scope: PlannedComputation, groups: Mapping[_Value, int], group: int) -> _End | None:
    """How a loop ends by one of some values that it carries, if that alone ends it."""
    loops = scope.loops
    if len(loops) != 1:
        return None
    outer, loop = loops[0]
    condition = scope.scopes[loop.called[1]]
    (state,) = scope.computation.parameters
    test = condition.source(condition.computation.root)
    if test.opcode == "not":
        test = condition.source(test.operands[0])
    if test.opcode != "compare":
        return None
    for name, other in (test.operands, test.operands[::-1]):
        i = condition.source(name)
        part = i.attributes["tuple_index"] if i.opcode == "get-tuple-element" else -1
        if i.opcode in ("get-tuple-element", "parameter") and groups.get((state.name, part)) == group:
            begin = outer.by_name[loop.operands[0]]
            held = begin.operands[part] if begin.opcode == "tuple" and part >= 0 else begin.name
            return _End(outer.graph.numbers.get(held), condition.graph.numbers.get(other))
    return None


def _ends(end: _End, step: float | None, dtype: DType) -> bool:
    """Whether a count reaches its limit before a step is too small for the values to change."""
    if step is None or end.limit is None:
        return False
    largest: float = max(abs(end.limit), abs(end.first or 0.0))
    return largest <= 2.0 ** digits(dtype) * abs(step)
