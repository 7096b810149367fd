"""Steps on memory that is planned while they are recorded: whose it is, and how long it is needed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from neuronsim import _core, ops
from neuronsim.executor.diagnostics import Observe
from neuronsim.executor.evaluate import PythonFunction
from neuronsim.executor.memory import ARENA, CONSTANTS, FIRST_INPUT, Memory, Place
from neuronsim.executor.steps import Call, Chain, Conditional, Product, Region, Step, While, is_view
from neuronsim.ops import ArrayType, Bits, BitsArray
from neuronsim.profiles import Profile

# Right operands whose columns a step packs for several products, by what tells them apart, with the
# memory of the columns.
_Packed: TypeAlias = dict[Hashable, tuple[_core.PackedColumns, Memory]]

# Movement that a loop need not repeat, as of weights that its body joins. (What has no native form is
# not among it: Python steps read the number of the trip.)
_JOINING = frozenset({"concatenate", "pad"})

_NO_REGION = -1


@dataclass
class Scope:
    """A region while its steps are recorded; `multiplied` says how often an array is the right operand
    of a product.
    """

    number: int = _NO_REGION
    last_use: Mapping[str, float] = field(default_factory=dict)
    multiplied: Counter[str] = field(default_factory=Counter)
    step: int = 0
    packed: _Packed = field(default_factory=dict)


@dataclass
class StepList:
    """Steps of the core that run one after the other, and the instructions of each."""

    calls: list[_core.Call] = field(default_factory=list)
    names: list[tuple[str, ...]] = field(default_factory=list)


@dataclass(eq=False)
class Loop:
    """A loop while its steps are recorded: where these begin, the steps around it, the number of its
    trip, the memory of what it changes, and all that it touched.
    """

    begin: int
    around: StepList
    trip: Place
    states: set[Memory]
    touched: set[Memory] = field(default_factory=set)
    packed: _Packed = field(default_factory=dict)


@dataclass
class Cursor:
    """Where the next step is recorded: after those of a list, in a region and in loops, the outermost
    first. `position` counts the steps of all lists, along which memory is planned; it stands still
    while steps are recorded that run before a loop.
    """

    steps: StepList = field(default_factory=StepList)
    position: int = 0
    scope: Scope = field(default_factory=Scope)
    loops: list[Loop] = field(default_factory=list)
    advances: bool = True


class StepRecorder:
    """What steps are recorded with: the places of arrays, and the core's steps so far."""

    def __init__(
        self,
        inputs: Sequence[tuple[str, ArrayType]],
        constants: Mapping[str, Bits],
        profile: Profile,
        observe: Observe,
        keeps_64_bits: bool,
    ) -> None:
        self.profile = profile
        self.keeps_64_bits = keeps_64_bits
        self.observe = observe
        self.records: list[str] = []
        self.python: list[str] = []
        self.places: dict[str, Place] = {}
        self.memories: list[Memory] = []
        self.wanted: dict[str, Place] = {}  # where a loop carries what its body gives
        self.parts: dict[str, tuple[Step, int]] = {}  # what begins a concatenation at an element
        self.joined: dict[str, Memory] = {}  # of concatenations, while their parts are made
        self.scopes = 0
        self.at = Cursor()
        for n, (name, t) in enumerate(inputs):
            self.place_given(name, Bits(np.empty(t.dims, t.dtype.storage), t.dtype), FIRST_INPUT + n)
        for name, value in constants.items():
            if any(s < 0 for s in value.data.strides):
                value = Bits(np.ascontiguousarray(value.data), value.dtype)
            self.place_given(name, value, CONSTANTS)

    def note_parts(self, region: Region) -> None:
        """Notes what a region's chains, concatenations and pads give that lies in one piece in a
        concatenation, which it then is stored in.
        """
        makers = {name: s for s in region.steps for name, _ in s.results}
        for s in region.steps:
            if not isinstance(s.action, Call) or s.action.op.name != "concatenate":
                continue
            (axis,), ((_, t),) = s.action.attributes["dimensions"], s.results
            if math.prod(t.dims[:axis]) != 1:
                continue
            at = 0
            for o in s.operands:
                maker = makers.get(o)
                while maker is not None and _is_reshape(maker):
                    o, maker = maker.operands[0], makers.get(maker.operands[0])
                if maker is not None and (isinstance(maker.action, Chain) or _joins(maker)):
                    self.parts.setdefault(o, (s, at))
                made = self.places[o].type if maker is None else dict(maker.results)[o]
                at += made.size

    def place_part(self, name: str, t: ArrayType) -> BitsArray | None:
        """Memory in a concatenation for an array that the next step stores."""
        if name not in self.parts or name in self.wanted:
            return None
        s, at = self.parts[name]
        ((_, whole),) = s.results
        if s.output not in self.joined:
            self.joined[s.output] = self.new_memory(whole, owner=self.at.scope.number)
        memory = self.joined[s.output]
        part = memory.standin.reshape(-1)[at : at + t.size].reshape(t.dims)
        self.set_place(name, Place(part, t.dtype, memory))
        return part

    def place_given(self, name: str, x: Bits, slot: int) -> None:
        """Says that an array is there before the first step."""
        memory = Memory(x.data, 0, 0, slot=slot)
        self.memories.append(memory)
        self.set_place(name, Place(x.data, x.dtype, memory))

    def new_memory(self, t: ArrayType, slot: int = ARENA, owner: int | None = None) -> Memory:
        """Memory that the next step uses first; a region that owns it may overwrite it."""
        standin = np.empty(t.dims, t.dtype.storage)
        memory = Memory(standin, self.at.position, self.at.position, owner, slot=slot)
        self.memories.append(memory)
        return memory

    def place_new(self, name: str, t: ArrayType) -> BitsArray:
        """Memory for an array that the next step stores."""
        memory = self.new_memory(t, owner=self.at.scope.number)
        self.set_place(name, Place(memory.standin, t.dtype, memory))
        return memory.standin

    def place_result(self, name: str, t: ArrayType) -> BitsArray:
        """The same in what the array is a part of, if it is one."""
        part = self.place_part(name, t)
        return self.place_new(name, t) if part is None else part

    def set_place(self, name: str, place: Place) -> None:
        """Says where an array lies."""
        self.places[name] = place
        if place.memory.owner == self.at.scope.number:
            place.memory.views.add(name)

    def add(self, step: _core.Call, names: tuple[str, ...], *touched: Memory) -> None:
        """Adds a step of these instructions, which reads or writes the memory."""
        self.at.steps.calls.append(step)
        self.at.steps.names.append(names)
        self.touch(touched)
        self.at.position += self.at.advances

    def add_observed(
        self,
        step: _core.Call,
        records: Sequence[str],
        names: tuple[str, ...],
        *touched: Memory,
        is_counted: bool = False,
    ) -> None:
        """Adds a step that has records, which belong to these instructions; one that every run counts
        has them even if nothing else does.
        """
        if self.observe != "off" or is_counted:
            assert step.record_count == len(records)
            step.set_first_record(len(self.records))
            self.records.extend(records)
        self.add(step, names, *touched)

    def add_inspection(
        self,
        function: PythonFunction,
        output: Place,
        operands: Sequence[Place],
        zeros: bool,
    ) -> None:
        """A step that looks into the result of the one before if that has Inf, NaN or `zeros`."""
        arrays = [output.array, *(p.array for p in operands)]
        if zeros and self.profile.fp8_overflow == "saturate":
            step = _core.record_python(function, arrays, [])  # nothing tells what saturated
        else:
            code = ops.core_code(output.dtype, "a result")
            step = _core.record_inspection(function, arrays, code, zeros)
        self.add(step, (), output.memory, *(p.memory for p in operands))

    def touch(self, memories: Iterable[Memory]) -> None:
        """Keeps memory until the next step at least."""
        for m in memories:
            m.last = max(m.last, self.at.position)
            for loop in self.at.loops:
                loop.touched.add(m)

    def loop_around(self, place: Place) -> Loop | None:
        """The outermost loop whose trips all find the same array there."""
        found = None
        if not np.may_share_memory(place.array, place.memory.standin):
            return None  # a window: where it lies is known only when it runs
        for loop in reversed(self.at.loops):
            if place.memory.first >= loop.begin or place.memory in loop.states:
                break
            found = loop
        return found

    def loop_around_step(self, s: Step) -> Loop | None:
        """The outermost loop whose trips would all compute the same. What is counted in every trip, if
        that is asked for, is computed there.
        """
        action = s.action
        if not self.at.loops or self.observe == "full" or isinstance(action, While | Conditional):
            return None
        moves = is_view(s) or _joins(s)
        judged = isinstance(action, Call) and ops.is_judged(action.op, action.attributes)
        meets = judged or not (moves or self._is_of_integers(s))
        counted = self.observe == "counts" and meets
        counted = counted or (isinstance(action, Chain) and action.is_counted)
        if counted or not (moves or isinstance(action, Chain | Product)):
            return None
        if self.is_in_python(action):
            return None
        if any(n in self.wanted or n in self.parts for n, _ in s.results):
            return None
        found = self.at.loops[0]
        for o in s.operands:
            around = self.loop_around(self.places[o])
            if around is None:
                return None
            found = max(found, around, key=self.at.loops.index)
        return found

    def _is_of_integers(self, s: Step) -> bool:
        """Whether it meets nothing that is counted."""
        types = (*(self.places[o].dtype for o in s.operands), *(t.dtype for _, t in s.results))
        exact = self.profile.int32_elementwise != "via_float32"
        return isinstance(s.action, Chain) and exact and not any(t.exponent_bits for t in types)

    def is_in_python(self, action: Chain | Call | Product) -> bool:
        """Whether it runs in Python: random words round it (S1), of which only such steps know theirs,
        or it is a product of integers by way of float32 (M7).
        """
        if isinstance(action, Product) and ops.goes_via_float32(
            action.result.dtype, action.call.attributes, self.profile
        ):
            return True
        profile = action.profile if isinstance(action, Call) else self.profile
        return profile.rounding == "stochastic"

    @contextmanager
    def nested(self) -> Iterator[list[_core.Call]]:
        """The steps that are recorded meanwhile are a list of their own."""
        around, self.at.steps = self.at.steps, StepList()
        yield self.at.steps.calls
        self.at.steps = around

    @contextmanager
    def before(self, loop: Loop) -> Iterator[None]:
        """The steps that are recorded meanwhile run before the loop, and nothing overwrites what they
        give.
        """
        around, loops = self.at, self.at.loops[: self.at.loops.index(loop)]
        self.at = Cursor(loop.around, loop.begin - 1, loops=loops, advances=False)
        yield
        self.at = around

    def may_overwrite(self, place: Place) -> bool:
        """Whether nothing reads the memory after this step."""
        m, scope = place.memory, self.at.scope
        if not place.is_whole or m.owner != scope.number:
            return False
        while m.views:  # what is not read any more never is again: it need not be asked about twice
            name = m.views.pop()
            if scope.last_use.get(name, -1) > scope.step:
                m.views.add(name)
                return False
        return True

    def save(self, place: Place) -> Place:
        """A copy of an array in memory of its own."""
        memory = self.new_memory(place.type)
        self.add(_core.record_copy(place.array, memory.standin), (), place.memory, memory)
        return Place(memory.standin, place.dtype, memory)

    def as_dense(self, place: Place) -> Place:
        """An array in row-major order."""
        return place if place.array.flags.c_contiguous else self.save(place)

    def take_over(self, s: Step, place: Place, name: str, others: Collection[Memory]) -> BitsArray:
        """A result that starts as an operand: in its memory if nothing reads that later, and it is none
        of the others.
        """
        if self.may_overwrite(place) and place.memory not in others:
            self.set_place(name, place)
            return place.array
        output = self.place_new(name, place.type)
        step = _core.record_copy(place.array, output)
        self.add(step, s.members, place.memory, self.places[name].memory)
        return output


def _joins(s: Step) -> bool:
    return isinstance(s.action, Call) and s.action.op.name in _JOINING


def _is_reshape(s: Step) -> bool:
    return isinstance(s.action, Call) and s.action.op.name == "reshape"
