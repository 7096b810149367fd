"""A matcher of dataflow: patterns as data, found in a computation through casts, moves and broadcasts.

A pattern is matched from its root to its operands. Each place is a view: an instruction, and for every
dimension of it the axis of the root that it stands for, so that a sum over one axis that is spread over
another is no match. `moves` (reshapes, broadcasts, converts, copies, ...) between two operations of a
pattern are passed; a reshape only where it adds or takes away axes of one element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from typing import ClassVar, TypeAlias

import numpy as np

from neuronsim import ops
from neuronsim.hlo.array_sources import shown_elements
from neuronsim.hlo.module import Computation, Instruction, Module, Shape, simple_reducer

# Constants in the files of narrow models are rounded: half of bfloat16's last bit.
TOLERANCE = 2.0**-8
LONGEST_MOVES = 32  # casts and moves that are passed in a row
LARGEST_FUNCTION = 256  # instructions of an `Elementwise`

Pattern: TypeAlias = (
    "Op | Reduce | OneOf | Same | Number | Count | Anything | Spread | Given | Elementwise"
)


# Every pattern has `opcodes`: those that a match begins with, or None where that can be any.


@dataclass(frozen=True)
class Op:
    """An opcode and its operands; those of commutative operations in either order."""

    opcode: str
    operands: tuple[Pattern, ...]
    part: str = ""  # the name under which a match has the instruction

    @cached_property
    def opcodes(self) -> frozenset[str] | None:
        return frozenset({self.opcode})


@dataclass(frozen=True)
class Reduce:
    """A simple reduce (R2) of one array from the operation's identity. All of a pattern are over the
    same axes.
    """

    reducer: str
    operand: Pattern
    part: str = ""
    opcodes: ClassVar[frozenset[str] | None] = frozenset({"reduce"})


@dataclass(frozen=True)
class OneOf:
    """The first alternatives are preferred."""

    patterns: tuple[Pattern, ...]

    @cached_property
    def opcodes(self) -> frozenset[str] | None:
        known = [p.opcodes for p in self.patterns if p.opcodes is not None]
        return frozenset().union(*known) if len(known) == len(self.patterns) else None


@dataclass(frozen=True)
class Same:
    """A value that occurs several times as the pattern has it: one instruction, or several."""

    name: str
    pattern: Pattern

    @property
    def opcodes(self) -> frozenset[str] | None:
        return self.pattern.opcodes


@dataclass(frozen=True)
class Number:
    """An array of one number, which a file shows: this one, or any."""

    value: float | None = None
    opcodes: ClassVar[frozenset[str] | None] = None


@dataclass(frozen=True)
class Count:
    """The number of elements, more than one, that the reduces before it take, less some; or its
    reciprocal.
    """

    less: int = 0
    reciprocal: bool = False
    opcodes: ClassVar[frozenset[str] | None] = None


@dataclass(frozen=True)
class Anything:
    """Any value."""

    opcodes: ClassVar[frozenset[str] | None] = None


@dataclass(frozen=True)
class Spread:
    """A value that is the same along some axis of the root, or a constant: a norm's scale, say."""

    opcodes: ClassVar[frozenset[str] | None] = None


@dataclass(frozen=True)
class Given:
    """A value that the computation does not compute: a parameter or a constant."""

    opcodes: ClassVar[frozenset[str] | None] = None


@dataclass(frozen=True)
class Elementwise:
    """Any elementwise function of a value that was bound before, with constants."""

    name: str
    opcodes: ClassVar[frozenset[str] | None] = None


@dataclass(frozen=True)
class View:
    """An instruction; for each dimension its axis: of the root from 0, of a sum below 0, or None for
    dimensions of one element.
    """

    name: str
    axes: tuple[int | None, ...]


@dataclass(frozen=True)
class Match:
    """What a pattern found so far: values by their names in `Same`, the instruction that first read
    each, instructions by their `part`, and all instructions of the pattern.
    """

    values: Mapping[str, View]
    parts: Mapping[str, str]
    found: frozenset[str]
    same_axes: Mapping[int, int]
    root_axes: frozenset[int]
    reduced: tuple[frozenset[int], ...] = ()
    count: int = 0
    sums: int = 0

    def axis(self, label: int) -> int:
        """The axis that a summed axis turned out to be."""
        while label in self.same_axes:
            label = self.same_axes[label]
        return label

    @property
    def axes(self) -> frozenset[int] | None:
        """The axes that all reduces take, or None where they differ."""
        sets = {frozenset(self.axis(a) for a in r) for r in self.reduced}
        return sets.pop() if len(sets) == 1 else frozenset() if not sets else None


class Graph:
    """A computation as patterns read it."""

    def __init__(self, computation: Computation, module: Module) -> None:
        self.computation = computation
        self.module = module
        self.by_name = computation.by_name
        self._sources: dict[str, Instruction] = {}

    @cached_property
    def numbers(self) -> Mapping[str, float]:
        """The instructions whose elements are all one number that the file shows."""
        found: dict[str, float] = {}
        for i in self.computation.instructions:
            number = _number(i, found)
            if number is not None:
                found[i.name] = number
        return found

    @cached_property
    def users(self) -> Mapping[str, Sequence[Instruction]]:
        """The instructions that read each."""
        return self.computation.users()

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Where each instruction stands in the program's order."""
        return {i.name: n for n, i in enumerate(self.computation.instructions)}

    def reducer(self, i: Instruction) -> str | None:
        """The operation of a reduce of one array."""
        if len(i.operands) != 2 or not isinstance(i.shape, Shape):
            return None
        return self._reducers[i.called[0]]

    @cached_property
    def _reducers(self) -> Mapping[str, str | None]:
        names = {i.called[0] for i in self.computation.instructions if i.opcode == "reduce"}
        return {n: simple_reducer(self.module.by_name[n]) for n in names}

    def match(self, pattern: Pattern, root: str) -> Match | None:
        """The first match of a pattern at this instruction."""
        i = self.by_name[root]
        if not isinstance(i.shape, Shape):
            return None
        axes = tuple(n if d != 1 else None for n, d in enumerate(i.shape.dims))
        start = Match({}, {}, frozenset(), {}, frozenset(a for a in axes if a is not None))
        return next(
            (m for m in self._match(pattern, View(root, axes), start) if m.axes is not None), None
        )

    def _match(self, pattern: Pattern, view: View, m: Match) -> Iterator[Match]:
        return _MATCHERS[type(pattern)](self, pattern, view, m)

    # ---- one function for each kind of pattern -----------------------------------------------------

    def op(self, p: Op, view: View, m: Match) -> Iterator[Match]:
        i = self._source_instruction(view.name)
        if i.opcode != p.opcode or len(i.operands) != len(p.operands):
            return
        orders = [o for o in _orders(i) if self._may_match(p.operands, o)]
        if not orders:  # most end here
            return
        view, passed = self._source(view)
        m = _with_part(m, p.part, i.name, passed)
        for operands in orders:
            yield from self._operands(p.operands, [View(o, view.axes) for o in operands], m)

    def _may_match(self, patterns: Sequence[Pattern], names: Sequence[str]) -> bool:
        """Whether the source of each value has an opcode of its pattern."""
        for p, name in zip(patterns, names, strict=True):
            if p.opcodes is not None and self._source_instruction(name).opcode not in p.opcodes:
                return False
        return True

    def _operands(
        self, patterns: Sequence[Pattern], views: Sequence[View], m: Match
    ) -> Iterator[Match]:
        if not patterns:
            yield m
            return
        for first in self._match(patterns[0], views[0], m):
            yield from self._operands(patterns[1:], views[1:], first)

    def reduce(self, p: Reduce, view: View, m: Match) -> Iterator[Match]:
        i = self._source_instruction(view.name)
        if i.opcode != "reduce" or self.reducer(i) != p.reducer:
            return
        if not _IDENTITY[p.reducer](self.numbers.get(i.operands[1], math.nan)):
            return
        dims, reduced = self.by_name[i.operands[0]].array.dims, set(i.attributes["dimensions"])
        count = math.prod(dims[d] for d in reduced)
        if m.count not in (0, count):
            return
        view, passed = self._source(view)
        kept, axes, new = iter(view.axes), list[int | None](), set[int]()
        for d, size in enumerate(dims):
            if d not in reduced:
                axes.append(next(kept))
            elif size == 1:
                axes.append(None)
            else:
                new.add(-m.sums - len(new) - 1)
                axes.append(-m.sums - len(new))
        m = _with_part(m, p.part, i.name, passed)
        m = replace(m, count=count, sums=m.sums + len(new), reduced=(*m.reduced, frozenset(new)))
        yield from self._match(p.operand, View(i.operands[0], tuple(axes)), m)

    def one_of(self, p: OneOf, view: View, m: Match) -> Iterator[Match]:
        for alternative in p.patterns:
            yield from self._match(alternative, view, m)

    def same(self, p: Same, view: View, m: Match) -> Iterator[Match]:
        source, _ = self._source(view, spread=not isinstance(p.pattern, Anything))
        bound = m.values.get(p.name)
        if bound is not None:
            joined = _joined(m, bound, source)
            if joined is not None:
                yield joined
            elif bound.name != source.name and not isinstance(p.pattern, Anything):
                yield from self._match(p.pattern, view, m)  # computed twice
            return
        for found in self._match(p.pattern, view, m):
            parts = {f"{p.name} operand": view.name, **found.parts}
            yield replace(found, values={**found.values, p.name: source}, parts=parts)

    def number(self, p: Number, view: View, m: Match) -> Iterator[Match]:
        number = self.numbers.get(view.name)
        if number is not None and (p.value is None or _close(number, p.value)):
            yield m

    def counted(self, p: Count, view: View, m: Match) -> Iterator[Match]:
        number = self.numbers.get(view.name, 0.0)
        if p.reciprocal:
            number = 1 / number if number else 0.0
        if m.count > 1 and _close(number, m.count - p.less):
            yield m

    def anything(self, p: Anything, view: View, m: Match) -> Iterator[Match]:
        yield m

    def spread(self, p: Spread, view: View, m: Match) -> Iterator[Match]:
        source, _ = self._source(view)
        constant = view.name in self.numbers or self.by_name[source.name].opcode == "constant"
        if constant or not m.root_axes <= {*source.axes}:
            yield m

    def given(self, p: Given, view: View, m: Match) -> Iterator[Match]:
        source, _ = self._source(view)
        if self.by_name[source.name].opcode in ("parameter", "constant", "get-tuple-element"):
            yield m

    def elementwise(self, p: Elementwise, view: View, m: Match) -> Iterator[Match]:
        value = m.values[p.name]
        pending, found = [view], set[str]()
        while pending:
            view = pending.pop()
            if view.name in self.numbers or view.name in found:
                continue
            source, _ = self._source(view, spread=False)
            if source.name == value.name and _joined(m, value, source) is not None:
                continue
            i = self.by_name[view.name]
            known = i.opcode in ops.OPCODES and i.opcode != "custom-call"
            if not known or not ops.is_elementwise(ops.by_opcode(i.opcode, i.attributes)):
                return
            found.add(i.name)
            if len(found) > LARGEST_FUNCTION:
                return
            pending += [View(o, view.axes) for o in i.operands]
        if found:
            yield replace(m, found=m.found | found)

    # ---- moves -------------------------------------------------------------------------------------

    def _source(self, view: View, *, spread: bool = True) -> tuple[View, frozenset[str]]:
        """The view that a value's casts and moves begin with, and those. Without `spread` not through
        broadcasts.
        """
        passed = set[str]()
        while len(passed) < LONGEST_MOVES:
            i = self.by_name[view.name]
            if i.opcode == "broadcast" and not spread:
                break
            before = self._before(i, view)
            if before is None:
                break
            passed.add(i.name)
            view = before
        return view, frozenset(passed)

    def _source_instruction(self, name: str) -> Instruction:
        """A value's source, at whose opcode most patterns fail."""
        found = self._sources.get(name)
        if found is None:
            shape = self.by_name[name].shape
            rank = len(shape.dims) if isinstance(shape, Shape) else 0
            source, _ = self._source(View(name, (None,) * rank))
            found = self._sources[name] = self.by_name[source.name]
        return found

    def _before(self, i: Instruction, view: View) -> View | None:
        if not i.operands or not isinstance(i.shape, Shape):
            return None
        operand = self.by_name[i.operands[0]]
        if i.opcode == "select" and i.operands[0] in self.numbers:
            return View(i.operands[1 if self.numbers[i.operands[0]] else 2], view.axes)
        if not isinstance(operand.shape, Shape):
            return None
        dims = operand.shape.dims
        if i.opcode in _SAME_PLACE and dims == i.shape.dims:
            return View(operand.name, view.axes)
        if i.opcode == "broadcast":
            places = i.attributes["dimensions"]
            axes = tuple(view.axes[d] if n != 1 else None for d, n in zip(places, dims, strict=True))
            return View(operand.name, axes)
        if i.opcode == "transpose":
            back = dict(zip(i.attributes["dimensions"], view.axes, strict=True))
            return View(operand.name, tuple(back[d] for d in range(len(dims))))
        if i.opcode == "reshape" and [n for n in dims if n != 1] == [n for n in i.shape.dims if n != 1]:
            rest = iter([a for a, n in zip(view.axes, i.shape.dims, strict=True) if n != 1])
            return View(operand.name, tuple(next(rest) if n != 1 else None for n in dims))
        return None


_SAME_PLACE = frozenset({"convert", "copy", "reduce-precision", "opt-barrier", "bitcast"})
_COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum"})
_IDENTITY: Mapping[str, Callable[[float], bool]] = {
    "add": lambda x: x == 0,
    "maximum": lambda x: x < -6e4,  # -Inf, or the least finite value of a type
}
_MATCHERS: Mapping[type, Callable[..., Iterator[Match]]] = {
    Op: Graph.op,
    Reduce: Graph.reduce,
    OneOf: Graph.one_of,
    Same: Graph.same,
    Number: Graph.number,
    Count: Graph.counted,
    Anything: Graph.anything,
    Spread: Graph.spread,
    Given: Graph.given,
    Elementwise: Graph.elementwise,
}


def _close(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= TOLERANCE * abs(b)


def _orders(i: Instruction) -> Iterator[tuple[str, ...]]:
    distinct = len(set(i.operands)) > 1
    yield from permutations(i.operands) if i.opcode in _COMMUTATIVE and distinct else [i.operands]


def _with_part(m: Match, part: str, name: str, passed: frozenset[str]) -> Match:
    parts = {part: name, **m.parts} if part else m.parts  # the first that a part names stays
    return replace(m, parts=parts, found=m.found | passed | {name})


def _joined(m: Match, a: View, b: View) -> Match | None:
    """The match in which two views of a value are one, or None."""
    if a.name != b.name:
        return None
    same = dict(m.same_axes)
    for x, y in zip(a.axes, b.axes, strict=True):
        if x is None or y is None:
            continue
        while x in same:
            x = same[x]
        while y in same:
            y = same[y]
        if x == y:
            continue
        if x >= 0 and y >= 0:
            return None
        same[min(x, y)] = max(x, y)
    joined = replace(m, same_axes=same)
    axes = [joined.axis(x) for x in a.axes if x is not None]
    return joined if len(set(axes)) == len(axes) else None  # no two dimensions are one axis


_ARITHMETIC: Mapping[str, Callable[..., object]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "negate": np.negative,
    "sqrt": np.sqrt,
    **dict.fromkeys(("broadcast", "reshape", "convert", "copy", "transpose"), lambda x: x),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "is-finite": np.isfinite,
}
_COMPARISONS: Mapping[str, Callable[..., object]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def _number(i: Instruction, known: Mapping[str, float]) -> float | None:
    values = shown_elements(i)
    if values is not None:
        if values.size == 0 or values.dtype.kind == "c" or (values != values.flat[0]).any():
            return None
        return float(values.flat[0])
    function = _ARITHMETIC.get(i.opcode)
    if i.opcode == "compare":
        function = _COMPARISONS[i.attributes["comparison_direction"]]
    if function is None or not i.operands or not isinstance(i.shape, Shape):
        return None
    if not all(o in known for o in i.operands):
        return None
    with np.errstate(all="ignore"):
        return float(np.float64(function(*(np.float64(known[o]) for o in i.operands))))  # type: ignore[arg-type]
