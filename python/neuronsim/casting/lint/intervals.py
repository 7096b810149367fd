"""Intervals: between which numbers an instruction's values lie, as far as a computation alone shows.

Parameters of a float type can be anything; integers have the range of their type, and the index of an
iota, a pixel of eight bits, the result of a tanh or a clamp are bounded. The numbers are those of exact
arithmetic: a type's rounding is not part of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from neuronsim import dtypes
from neuronsim.casting.lint.orderings import Orderings
from neuronsim.dtypes import DType
from neuronsim.hlo.array_sources import shown_elements
from neuronsim.hlo.module import Instruction, Shape
from neuronsim.hlo.recognition.composites import Composite
from neuronsim.hlo.recognition.patterns import Graph


class Interval(NamedTuple):
    """The least and the greatest value; NaN is in none."""

    low: float
    high: float

    @property
    def magnitude(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))


ANY = Interval(-math.inf, math.inf)


def intervals(graph: Graph, composites: Iterable[Composite]) -> dict[str, Interval]:
    """The interval of every array of a computation. Composites add what their formulas imply: what is
    left of a maximum is not positive, and a softmax lies between 0 and 1.
    """
    implied: dict[str, Interval] = {}
    for c in composites:
        if "maximum" in c.parts and "shifted" in c.parts:
            implied[c.parts["shifted"]] = Interval(-math.inf, 0)
        if c.kind in _RESULTS:
            implied[c.root] = _RESULTS[c.kind]
        if "variance" in c.parts:
            implied[c.parts["variance"]] = Interval(0, math.inf)
    found: dict[str, Interval] = {}
    orderings = Orderings(graph, lambda name: found.get(name, ANY))
    exponents = _exponents(graph)
    for i in graph.computation.instructions:
        if isinstance(i.shape, Shape):
            own = _interval(i, _given(i, orderings, found), graph)
            bound = implied.get(i.name, ANY)
            own = Interval(max(own.low, bound.low), min(own.high, bound.high))
            asked = i.name in exponents or i.opcode == "reduce"
            found[i.name] = _ordered(i, own, graph, orderings) if asked else own
    return found


def _exponents(graph: Graph) -> set[str]:
    """What exponentials read, and of what that is a part, a multiple or a choice: only there does it
    matter whether a difference can be positive, and to find out takes time.
    """
    found: set[str] = set()
    for i in reversed(graph.computation.instructions):
        if i.opcode in ("exponential", "exponential-minus-one") or (
            i.name in found and i.opcode in (*_MOVES, *_CHOICES, *_SCALES)
        ):
            found.update(i.operands)
    return found


def _given(i: Instruction, orderings: Orderings, found: Mapping[str, Interval]) -> list[Interval]:
    """The intervals of an instruction's operands; of a select's where it takes them."""
    given = [found.get(o, ANY) for o in i.operands]
    if i.opcode == "select" and orderings.by_name[i.operands[0]].array.dims == i.array.dims:
        for n, truth in ((1, True), (2, False)):
            where, _ = interval_where(orderings, found, i.operands[n], i.operands[0], truth)
            given[n] = where if where.low <= where.high else given[n]
    return given


def _ordered(i: Instruction, own: Interval, graph: Graph, orderings: Orderings) -> Interval:
    """The interval with what comparisons of values imply: a difference from a maximum is not positive,
    and a sum of the exponentials of such differences at least 1.
    """
    if i.opcode in ("add", "subtract") and i.array.dtype.kind == "float":
        if own.high > 0 and orderings.is_never_positive(i.name):
            return Interval(own.low, 0)
        if own.low < 0 and orderings.is_never_negative(i.name):
            return Interval(0, own.high)
        return own
    sums = i.opcode == "reduce" and graph.reducer(i) == "add" and 0 <= own.low < 1
    return Interval(1, own.high) if sums and orderings.sums_up_one(i) else own


class _Facts(NamedTuple):
    """What a predicate says of arrays: intervals, least magnitudes, and which are not zero."""

    intervals: dict[str, Interval]
    magnitudes: dict[str, float]
    nonzero: set[str]


def interval_where(
    orderings: Orderings, found: Mapping[str, Interval], name: str, predicate: str, truth: bool
) -> tuple[Interval, bool]:
    """The values of an array at the elements for which a predicate of the same shape is so, as far as
    elementwise operations tell; and whether it says that they are not zero.
    """
    facts = _Facts({}, {}, set())
    _collect(orderings, found, predicate, truth, facts)
    return _under(orderings, found, name, facts, _DEPTH), _same_place(orderings, name) in facts.nonzero


def _same_place(orderings: Orderings, name: str) -> str:
    """The value that casts and copies in its own shape hand on, where it is computed first."""
    graph = orderings.graph
    i = graph.by_name[name]
    while i.opcode in ("convert", "copy", "reduce-precision", "opt-barrier") and i.operands:
        before = graph.by_name[i.operands[0]]
        if not isinstance(before.shape, Shape) or before.array.dtype.kind != i.array.dtype.kind:
            break
        i = before
    return orderings.representative(i.name)


def _collect(
    orderings: Orderings,
    found: Mapping[str, Interval],
    predicate: str,
    truth: bool,
    facts: _Facts,
) -> None:
    i = orderings.by_name[_same_place(orderings, predicate)]
    if i.opcode == "not":
        _collect(orderings, found, i.operands[0], not truth, facts)
    elif i.opcode == ("and" if truth else "or"):
        for o in i.operands:
            _collect(orderings, found, o, truth, facts)
    elif i.opcode == "compare":
        direction = i.attributes["comparison_direction"]
        direction = direction if truth else _OPPOSITE[direction]
        a, b = (_same_place(orderings, o) for o in i.operands)
        _compared(orderings, a, direction, found.get(b, ANY), facts)
        _compared(orderings, b, _TURNED[direction], found.get(a, ANY), facts)


def _compared(orderings: Orderings, name: str, direction: str, other: Interval, facts: _Facts) -> None:
    """That an array's elements are below, or not below, and so on, others in an interval."""
    low = other.low if direction in ("GT", "GE", "EQ") else -math.inf
    high = other.high if direction in ("LT", "LE", "EQ") else math.inf
    known = facts.intervals.get(name, ANY)
    facts.intervals[name] = Interval(max(low, known.low), min(high, known.high))
    if (direction == "GT" and low >= 0) or (direction == "LT" and high <= 0):
        facts.nonzero.add(name)
    if direction == "NE" and other == Interval(0, 0):
        facts.nonzero.add(name)
    i = orderings.by_name[name]
    inner = _same_place(orderings, i.operands[0]) if i.operands else ""
    if i.opcode == "abs":
        facts.magnitudes[inner] = max(low, facts.magnitudes.get(inner, 0.0))
        facts.intervals[inner] = Interval(-high, high)
    elif i.opcode == "multiply" and i.operands[0] == i.operands[1]:
        facts.magnitudes[inner] = max(math.sqrt(max(0, low)), facts.magnitudes.get(inner, 0.0))


def _under(
    orderings: Orderings, found: Mapping[str, Interval], name: str, facts: _Facts, depth: int
) -> Interval:
    name = _same_place(orderings, name)
    i, known = orderings.by_name[name], found.get(name, ANY)
    fact = facts.intervals.get(name, ANY)
    own = Interval(max(known.low, fact.low), min(known.high, fact.high))
    if i.opcode in ("abs", "multiply") and len({*i.operands}) == 1:
        least = facts.magnitudes.get(_same_place(orderings, i.operands[0]), 0.0)
        own = Interval(max(own.low, least if i.opcode == "abs" else least**2), own.high)
    if i.opcode in _FUNCTIONS and depth:
        given = [_under(orderings, found, o, facts, depth - 1) for o in i.operands]
        computed = _interval(i, given, orderings.graph)
        own = Interval(max(own.low, computed.low), min(own.high, computed.high))
    return own


_DEPTH = 5  # instructions through which a predicate is followed
_OPPOSITE = {"LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT", "EQ": "NE", "NE": "EQ"}
_TURNED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}
_RESULTS = {
    "softmax": Interval(0, 1),
    "sigmoid": Interval(0, 1),
    "log_softmax": Interval(-math.inf, 0),
    "softplus": Interval(0, math.inf),
}


def _of_type(dtype: DType) -> Interval:
    if dtype.kind in ("signed", "unsigned"):
        info = np.iinfo(dtype.numpy)
        return Interval(float(info.min), float(info.max))
    return Interval(0, 1) if dtype is dtypes.boolean else ANY


def _interval(i: Instruction, given: Sequence[Interval], graph: Graph) -> Interval:
    shape = i.array
    if i.opcode == "constant":
        return _of_literal(i, shape)
    if i.opcode == "iota":
        axis = i.attributes["dimensions"][0]
        return Interval(0, max(0, shape.dims[axis] - 1))
    if i.opcode == "reduce" and len(given) == 2:
        return _of_reduce(i, given, graph)
    if i.opcode == "multiply" and i.operands[0] == i.operands[1]:
        least = max(0.0, given[0].low, -given[0].high)
        return Interval(least**2, given[0].magnitude ** 2)
    if i.opcode == "multiply" and _is_negative_of(i.operands[0], i.operands[1], graph):
        return Interval(-(given[0].magnitude ** 2), 0)
    if i.opcode in _MOVES:
        return given[0]
    if i.opcode in _CHOICES and given:
        chosen = given[_CHOICES[i.opcode]]
        return Interval(min(g.low for g in chosen), max(g.high for g in chosen))
    function = _FUNCTIONS.get(i.opcode)
    if function is None:
        return _of_type(shape.dtype)
    found = function(*given)
    return Interval(*(x if not math.isnan(x) else y for x, y in zip(found, ANY, strict=True)))


def _is_negative_of(a: str, b: str, graph: Graph) -> bool:
    """Whether one of two values is the other with its sign turned."""
    i, j = graph.by_name[a], graph.by_name[b]
    return (i.opcode == "negate" and i.operands[0] == b) or (
        j.opcode == "negate" and j.operands[0] == a
    )


def _of_literal(i: Instruction, shape: Shape) -> Interval:
    values = shown_elements(i)
    if values is None or values.size == 0 or values.dtype.kind == "c":
        return _of_type(shape.dtype)
    # np.nanmin knows nothing of bfloat16.
    wide = values.astype(np.float64)
    numbers = wide[~np.isnan(wide)]
    return Interval(float(numbers.min()), float(numbers.max())) if numbers.size else ANY


def _of_reduce(i: Instruction, given: Sequence[Interval], graph: Graph) -> Interval:
    reducer = graph.reducer(i)
    if reducer in ("maximum", "minimum"):
        return Interval(min(g.low for g in given), max(g.high for g in given))
    if reducer != "add":
        return _of_type(i.array.dtype)
    dims = graph.by_name[i.operands[0]].array.dims
    count = math.prod(dims[d] for d in i.attributes["dimensions"])
    low, high = (count * x if x else 0.0 for x in given[0])
    return Interval(low + given[1].low, high + given[1].high)


def _product(a: Interval, b: Interval) -> Interval:
    corners = [x * y if x and y else 0.0 for x in a for y in b]
    return Interval(min(corners), max(corners))


def _quotient(a: Interval, b: Interval) -> Interval:
    if b.low <= 0 <= b.high:
        return ANY
    corners = [x / y if not math.isinf(x) or not math.isinf(y) else 0.0 for x in a for y in b]
    return Interval(min(corners), max(corners))


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf


def _log(x: float) -> float:
    return math.log(x) if 0 < x < math.inf else math.inf if x > 0 else -math.inf


def _log1p(x: float) -> float:
    return math.log1p(x) if -1 < x < math.inf else math.inf if x > 0 else -math.inf


def _clamp(low: Interval, x: Interval, high: Interval) -> Interval:
    return Interval(min(max(low.low, x.low), high.low), min(max(low.high, x.high), high.high))


def _abs(x: Interval) -> Interval:
    return Interval(0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high)), x.magnitude)


_MOVES = frozenset(
    {"broadcast", "reshape", "transpose", "copy", "convert", "slice", "reverse", "bitcast"}
    | {"reduce-precision", "gather", "dynamic-slice", "opt-barrier"}
)
_CHOICES = {  # the operands whose elements they take
    "select": slice(1, 3),
    "concatenate": slice(None),
    "pad": slice(0, 2),
    "dynamic-update-slice": slice(0, 2),
}
_SCALES = frozenset({"multiply", "divide", "negate", "clamp", "maximum", "minimum", "abs"})
_FUNCTIONS: Mapping[str, Callable[..., Interval]] = {
    "add": lambda a, b: Interval(a.low + b.low, a.high + b.high),
    "subtract": lambda a, b: Interval(a.low - b.high, a.high - b.low),
    "multiply": _product,
    "divide": _quotient,
    "maximum": lambda a, b: Interval(max(a.low, b.low), max(a.high, b.high)),
    "minimum": lambda a, b: Interval(min(a.low, b.low), min(a.high, b.high)),
    "clamp": _clamp,
    "negate": lambda a: Interval(-a.high, -a.low),
    "abs": _abs,
    "exponential": lambda a: Interval(_exp(a.low), _exp(a.high)),
    "sqrt": lambda a: Interval(math.sqrt(max(0, a.low)), math.sqrt(max(0, a.high))),
    "rsqrt": lambda a: Interval(0, math.inf),
    **dict.fromkeys(("tanh", "sine", "cosine", "erf", "sign"), lambda a: Interval(-1, 1)),
    "logistic": lambda a: Interval(0, 1),
    "log-plus-one": lambda a: Interval(_log1p(a.low), _log1p(a.high)),
    "log": lambda a: Interval(_log(a.low), _log(a.high)),
    "exponential-minus-one": lambda a: Interval(_exp(a.low) - 1, _exp(a.high) - 1),
}
