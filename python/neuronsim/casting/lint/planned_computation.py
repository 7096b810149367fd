"""A computation under a plan: the types in which each instruction reads and gives, and who reads it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np

from neuronsim import ops
from neuronsim.casting.decisions.record import Decision, PlanRecord
from neuronsim.casting.lint.intervals import ANY, Interval, intervals
from neuronsim.casting.lint.narrow_types import digits, is_narrow
from neuronsim.casting.lint.orderings import Orderings
from neuronsim.casting.policies.rules import RuleContext, reduction_depth
from neuronsim.dtypes import DType
from neuronsim.hlo.array_sources import shown_elements
from neuronsim.hlo.module import Computation, Instruction, Shape, simple_reducer
from neuronsim.hlo.recognition.composites import Composite, recognise
from neuronsim.hlo.recognition.patterns import Graph
from neuronsim.profiles import Profile
from neuronsim.targets import Severity, Target

MOVES = frozenset(
    {"broadcast", "reshape", "transpose", "copy", "convert", "slice", "bitcast", "reverse"}
    | {"reduce-precision", "opt-barrier"}
)

Broken: TypeAlias = Iterator[
    tuple[Instruction, str, tuple[str, ...]] | tuple[Instruction, str, tuple[str, ...], Severity]
]
"""Where, what, what to keep in float32; and how bad it is, where that is not as its rule says."""

_SELECTED = 200  # instructions between a value and the selects that take it


def _is_elementwise(i: Instruction) -> bool:
    known = i.opcode in ops.OPCODES and i.opcode != "custom-call"
    return known and i.opcode != "compare" and ops.is_elementwise(ops.by_opcode(i.opcode, i.attributes))


def _integer(i: Instruction) -> int | None:
    """The value of an integer constant."""
    literal = i.attributes.get("literal") if i.opcode == "constant" else None
    if not isinstance(literal, ops.Bits) or literal.data.size != 1:
        return None
    return int(literal.data.flat[0]) if literal.dtype.kind in ("signed", "unsigned") else None


def _index_vectors(computation: Computation, index: Instruction, axis: int) -> np.ndarray | None:
    """The index vectors of a scatter, one a row, where the file shows them."""
    source = index
    while source.opcode in ("reshape", "copy", "convert"):
        source = computation.by_name[source.operands[0]]
    dims = index.array.dims
    values = shown_elements(source)
    if source.opcode == "iota" and len(source.array.dims) == 1:
        values = np.arange(math.prod(dims))
    if values is None:
        return None
    values = values.reshape(dims)
    if axis == len(dims):
        return values.reshape(-1, 1)
    return np.moveaxis(values, axis, -1).reshape(-1, dims[axis])


class PlannedComputation:
    """A computation under a plan."""

    def __init__(
        self,
        computation: Computation,
        context: RuleContext,
        plan: PlanRecord,
        target: Target | None,
        profile: Profile | None,
        scopes: Mapping[str, PlannedComputation],
    ) -> None:
        self.computation = computation
        self.module = context.module
        self.graph = Graph(computation, context.module)
        self.by_name = computation.by_name
        self.target = target
        self.profile = profile
        self.scopes = scopes  # those of the module, by name
        self._context = context
        self._decisions = plan.decisions

    @property
    def is_loop(self) -> bool:
        """Whether it is the body of a loop."""
        return self.computation.name in self._context.bodies

    @property
    def loops(self) -> Sequence[tuple[PlannedComputation, Instruction]]:
        """The loops whose body it is, each with where it stands."""
        found = self._context.loops.get(self.computation.name, ())
        return [(self.scopes[name], loop) for name, loop in found]

    @cached_property
    def trips(self) -> float:
        """How often the one loop around it runs it; Inf where that is not plain."""
        loops = self.loops
        if len(loops) != 1 or loops[0][0].is_loop:
            return math.inf
        outer, loop = loops[0]
        limit = self.scopes[loop.called[1]]
        end = limit.by_name[limit.computation.root]
        state, root = outer.by_name[loop.operands[0]], self.by_name[self.computation.root]
        if end.attributes.get("comparison_direction") != "LT" or state.opcode != "tuple":
            return math.inf
        counter = limit.by_name[end.operands[0]]
        if counter.opcode != "get-tuple-element" or root.opcode != "tuple":
            return math.inf
        number = counter.attributes["tuple_index"]
        add = self.source(root.operands[number])
        terms = [self.source(o) for o in add.operands] if add.opcode == "add" else []
        carried = [t.attributes.get("tuple_index") == number for t in terms]
        steps = [n for t in terms if (n := self._count(t)) is not None and n > 0]
        first = outer._count(outer.source(state.operands[number]))
        limited = limit._count(limit.source(end.operands[1]))
        if sorted(carried) != [False, True] or not steps or first is None or limited is None:
            return math.inf
        dtype = self.gives(add)
        reached = max(abs(first), abs(limited))
        if dtype is not None and dtype.kind == "float" and reached > 2 ** digits(dtype) * steps[0]:
            return math.inf
        return max(0, -(-(limited - first) // steps[0]))

    def _count(self, i: Instruction) -> int | None:
        """The integer that an instruction's one element is, where the file shows it."""
        number = self.graph.numbers.get(i.name)
        if _integer(i) is not None or number is None:
            return _integer(i)
        return int(number) if math.isfinite(number) and number == int(number) else None

    def depth(self, i: Instruction) -> int:
        """The elements that one result sums; 0 where it sums none."""
        return reduction_depth(i, self._context)

    def reducer(self, i: Instruction) -> str | None:
        """The operation by which an instruction folds elements, if it is one."""
        return simple_reducer(self.module.by_name[i.called[-1]]) if i.called else None

    def folds_sums(self, i: Instruction) -> bool:
        """Whether the computation that a reduction applies adds to one of its accumulators."""
        body = self.module.by_name[i.called[0]]
        accumulators = {
            p.name for p in body.parameters if p.attributes["number"] < len(i.operands) // 2
        }
        from_them = set(accumulators)
        for j in body.instructions:
            if not from_them.isdisjoint(j.operands):
                if j.opcode in ("add", "subtract"):
                    return True
                from_them.add(j.name)
        return False

    def updates_of_one_place(self, i: Instruction) -> int:
        """The most updates of a scatter, or windows of a select-and-scatter, in one element."""
        if i.opcode == "select-and-scatter":
            sizes = self.by_name[i.operands[1]].array.dims
            meeting = zip(i.attributes["window"], sizes, strict=True)
            return math.prod(min(-(-d.size // d.stride), n) for d, n in meeting)
        if i.attributes.get("unique_indices"):
            return 1
        arrays = (len(i.operands) - 1) // 2
        index, updates = self.by_name[i.operands[arrays]], self.by_name[i.operands[arrays + 1]]
        numbers: ops.ScatterDimensions = i.attributes["scatter_dimensions"]
        batch = numbers.scatter_indices_batching_dims
        points = {*numbers.scatter_dims_to_operand_dims} <= {*numbers.inserted_window_dims}
        known = _index_vectors(self.computation, index, numbers.index_vector_dim)
        if points and known is not None and not batch:
            return int(np.unique(known, axis=0, return_counts=True)[1].max(initial=0))
        windows = numbers.update_window_dims
        count = math.prod(n for d, n in enumerate(updates.array.dims) if d not in windows)
        return count // max(1, math.prod(index.array.dims[d] for d in batch))  # which have their own

    def arrays_given(self, i: Instruction) -> list[DType]:
        """The types of the arrays that an instruction gives."""
        d, own = self.decision(i), [s.dtype for s in i.shape.arrays()]
        return own if d is None else [d.gives(t, n) for n, t in enumerate(own)]

    def observed(self, name: str) -> ops.Statistics | None:
        """What the values were in the float32 run, if there was one."""
        calibration = self._context.calibration
        return calibration.values.get(name) if calibration is not None else None

    @cached_property
    def composites(self) -> tuple[Composite, ...]:
        return recognise(self.computation, self.module)

    @cached_property
    def gates(self) -> frozenset[str]:
        """The sigmoids and softmaxes that the computation spells out."""
        return frozenset(c.root for c in self.composites if c.kind in ("sigmoid", "softmax"))

    @cached_property
    def intervals(self) -> Mapping[str, Interval]:
        return intervals(self.graph, self.composites)

    @cached_property
    def orderings(self) -> Orderings:
        return Orderings(self.graph, lambda name: self.intervals.get(name, ANY))

    def is_only_selected(self, i: Instruction, where: Callable[[str, bool], bool]) -> bool:
        """Whether all that is computed from an array, element by element, ends in selects that take it
        only where a predicate holds for which `where` is true.
        """
        pending, seen = [i], {i.name}
        while pending:
            given = pending.pop()
            readers = self._reads[given.name]
            if not readers or given.name == self.computation.root or len(seen) > _SELECTED:
                return False
            for user, number in readers:
                same = isinstance(user.shape, Shape) and user.array.dims == i.array.dims
                if user.opcode == "select" and number and same:
                    predicate = user.operands[0]
                    shaped = self.by_name[predicate].array.dims == i.array.dims
                    if shaped and where(predicate, number == 1):
                        continue
                elif not same or not _is_elementwise(user):
                    return False
                if user.name not in seen:
                    seen.add(user.name)
                    pending.append(user)
        return True

    @property
    def users(self) -> Mapping[str, Sequence[Instruction]]:
        return self.graph.users

    @cached_property
    def narrow_types(self) -> frozenset[DType]:
        """The narrow types in which the computation's instructions read."""
        decisions = (self._decisions.get(i.name) for i in self.computation.instructions)
        return frozenset(d.operand for d in decisions if d is not None and is_narrow(d.operand))

    def decision(self, i: Instruction) -> Decision | None:
        return self._decisions.get(i.name)

    def reads(self, i: Instruction, number: int) -> DType | None:
        """The type in which an instruction reads an array."""
        shape = self.by_name[i.operands[number]].shape
        d = self.decision(i)
        if not isinstance(shape, Shape):
            return None
        return shape.dtype if d is None else d.reads(shape.dtype, number)

    def gives(self, i: Instruction) -> DType | None:
        """The type of an array that an instruction gives."""
        if not isinstance(i.shape, Shape):
            return None
        d = self.decision(i)
        return i.shape.dtype if d is None else d.gives(i.shape.dtype, 0)

    def interval(self, name: str) -> Interval:
        """The values, also from what the data showed."""
        found = self.intervals.get(name, ANY)
        values = self.observed(name)
        if values is None:
            return found
        largest = math.inf if values.infinite else values.largest
        return Interval(max(found.low, -largest), min(found.high, largest))

    def source(self, name: str) -> Instruction:
        """The instruction whose values another one moves or converts."""
        return self._sources[name]

    @cached_property
    def _sources(self) -> Mapping[str, Instruction]:
        found: dict[str, Instruction] = {}
        for i in self.computation.instructions:
            element = self._element(i)
            if element:
                found[i.name] = found[element]
            else:
                found[i.name] = found[i.operands[0]] if i.opcode in MOVES and i.operands else i
        return found

    def _element(self, i: Instruction) -> str:
        """The value that an instruction takes out of a tuple of this computation; empty if none."""
        if i.opcode != "get-tuple-element":
            return ""
        held = self.by_name[i.operands[0]]
        while held.opcode == "opt-barrier":
            held = self.by_name[held.operands[0]]
        return held.operands[i.attributes["tuple_index"]] if held.opcode == "tuple" else ""

    @cached_property
    def _reads(self) -> Mapping[str, Sequence[tuple[Instruction, int]]]:
        """What reads each value, a tuple's element also by what takes it out; and as which operand."""
        found: dict[str, list[tuple[Instruction, int]]] = {
            i.name: [] for i in self.computation.instructions
        }
        for i in self.computation.instructions:
            for number, o in enumerate(i.operands):
                found[o].append((i, number))
            element = self._element(i)
            if element:
                found[element].append((i, 0))
        return found

    def readers(self, name: str) -> Iterator[tuple[Instruction, int]]:
        """What computes with a value, through moves, and as which operand it reads it."""
        pending, seen = [name], {name}
        while pending:
            for user, number in self._reads[pending.pop()]:
                moved = user.opcode in MOVES and not number
                if not moved and not self._element(user):
                    if user.opcode != "tuple" or not self._is_taken_apart(user):
                        yield user, number
                elif user.name not in seen:
                    seen.add(user.name)
                    pending.append(user.name)

    def _is_taken_apart(self, i: Instruction) -> bool:
        """Whether a tuple is only there for its elements to be taken out."""
        users = self.users[i.name]
        return bool(users) and i.name != self.computation.root and all(map(self._element, users))

    def narrowest(self, name: str) -> Iterator[tuple[Instruction, DType]]:
        """The types narrower than float32 to which a value is rounded before something computes with
        it, each with the first instruction that does.
        """
        pending, seen = [self.by_name[name]], {name}
        found = set[DType]()
        while pending:
            i = pending.pop()
            types = [(i, self.gives(i))]
            types += [(u, self.reads(u, n)) for u, n in self._reads[i.name]]
            for at, t in types:
                if t is not None and is_narrow(t) and t not in found:
                    found.add(t)
                    yield at, t
            for u in self.users[i.name]:
                if u.opcode in MOVES and u.name not in seen:
                    seen.add(u.name)
                    pending.append(u)
