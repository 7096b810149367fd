"""A computation under a plan: the types in which each instruction reads and gives, and who reads it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from neuronsim import dtypes, ops
from neuronsim.casting.lint.intervals import ANY, Interval, intervals
from neuronsim.casting.plans.plan import Plan
from neuronsim.casting.policies.patterns import Graph
from neuronsim.casting.policies.policy import Decision
from neuronsim.casting.policies.recognition import Composite, recognise
from neuronsim.casting.policies.rules import RuleContext, reduction_depth
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Computation, Instruction, Shape
from neuronsim.profiles import Profile
from neuronsim.targets import Target


def is_narrow(dtype: DType) -> bool:
    """Whether it is a float type with fewer significant bits than float32."""
    return dtype.kind == "float" and 0 < dtype.mantissa_bits < dtypes.float32.mantissa_bits


MOVES = frozenset(
    {"broadcast", "reshape", "transpose", "copy", "convert", "slice", "bitcast", "reverse"}
    | {"reduce-precision", "opt-barrier"}
)


class PlannedComputation:
    """A computation under a plan."""

    def __init__(
        self,
        computation: Computation,
        context: RuleContext,
        plan: Plan,
        target: Target | None,
        profile: Profile | None,
    ) -> None:
        self.computation = computation
        self.module = context.module
        self.graph = Graph(computation, context.module)
        self.by_name = computation.by_name
        self.target = target
        self.profile = profile
        self._context = context
        self._decisions = plan.decisions

    @property
    def is_loop(self) -> bool:
        """Whether it is the body of a loop."""
        return self.computation.name in self._context.bodies

    def depth(self, i: Instruction) -> int:
        """The elements that one result sums; 0 where it sums none."""
        return reduction_depth(i, self._context)

    def observed(self, name: str) -> ops.Statistics | None:
        """What the values were in the float32 run, if there was one."""
        calibration = self._context.calibration
        return calibration.values.get(name) if calibration is not None else None

    @cached_property
    def composites(self) -> tuple[Composite, ...]:
        return recognise(self.computation, self.module)

    @cached_property
    def intervals(self) -> Mapping[str, Interval]:
        return intervals(self.graph, self.composites)

    @property
    def users(self) -> Mapping[str, Sequence[Instruction]]:
        return self.graph.users

    def decision(self, i: Instruction) -> Decision | None:
        return self._decisions.get(i.name)

    def reads(self, i: Instruction, number: int) -> DType | None:
        """The type in which an instruction reads an array."""
        shape = self.by_name[i.operands[number]].shape
        d = self.decision(i)
        if not isinstance(shape, Shape):
            return None
        planned = d is not None and shape.dtype is dtypes.float32 and number not in d.float32_operands
        return d.operand if planned and d is not None else shape.dtype

    def gives(self, i: Instruction) -> DType | None:
        """The type of an array that an instruction gives."""
        if not isinstance(i.shape, Shape):
            return None
        d = self.decision(i)
        planned = d is not None and i.shape.dtype is dtypes.float32 and not d.float32_results
        return d.output if planned and d is not None else i.shape.dtype

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
            found[i.name] = found[i.operands[0]] if i.opcode in MOVES and i.operands else i
        return found

    @cached_property
    def _reads(self) -> Mapping[str, Sequence[tuple[Instruction, int]]]:
        """What reads each value, and as which operand."""
        found: dict[str, list[tuple[Instruction, int]]] = {
            i.name: [] for i in self.computation.instructions
        }
        for i in self.computation.instructions:
            for number, o in enumerate(i.operands):
                found[o].append((i, number))
        return found

    def readers(self, name: str) -> Iterator[tuple[Instruction, int]]:
        """What computes with a value, through moves, and as which operand it reads it."""
        pending, seen = [name], {name}
        while pending:
            for user, number in self._reads[pending.pop()]:
                if user.opcode not in MOVES or number:
                    yield user, number
                elif user.name not in seen:
                    seen.add(user.name)
                    pending.append(user.name)

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
