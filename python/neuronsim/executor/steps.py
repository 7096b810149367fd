"""What a schedule consists of: steps on named arrays, and the values around a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from neuronsim import _core, ops
from neuronsim.hlo.module import AnyShape, Shape
from neuronsim.ops import ArrayType, Attributes, Bits
from neuronsim.profiles import Profile


@dataclass(frozen=True)
class TupleValue:
    """The arrays of a tuple."""

    elements: tuple[Value, ...]


Value = Bits | TupleValue


@dataclass(frozen=True)
class Chain:
    """Elementwise instructions run as one chain. Inputs are the step's operands;
    `instructions` names the one that each link belongs to, and `outputs` are the numbers of the values
    that are the step's results.
    """

    links: tuple[ops.Link, ...]
    instructions: tuple[str, ...]
    inputs: tuple[int, ...]  # the core's codes of the operands' types
    outputs: tuple[int, ...]

    @cached_property
    def is_counted(self) -> bool:
        """Whether every run counts what it meets (C7, E3)."""
        return ops.is_counted(self.links)

    def program(self, profile: Profile) -> _core.Chain:
        """The chain as the core runs it."""
        return ops.make_chain(self.inputs, self.links, self.outputs, profile)

    def renumbered(self, numbers: Mapping[int, int]) -> tuple[ops.Link, ...]:
        """The links on values of other numbers."""
        return tuple(
            (op, result, values if op == _core.CONSTANT else tuple(numbers[v] for v in values))
            for op, result, values in self.links
        )

    def identifiers(self, setting: ops.Setting, trips: str) -> list[int]:
        """The ids of the links' random words (S2): an instruction's last rounding has the tile ""."""
        if setting.profile.rounding != "stochastic":
            return []
        found = []
        for name in dict.fromkeys(self.instructions):
            own = setting._replace(path=f"{setting.path}{name}/{trips}")
            pairs = zip(self.links, self.instructions, strict=True)
            rounded = [link for link, instruction in pairs if instruction == name]
            found += [own.identifier(tile) for tile in ops.link_tiles(rounded)]
        return found


@dataclass(frozen=True)
class Call:
    """One instruction run by its row of the op table; `result` is what the graph states. Its profile is
    the program's, or has the rounding that the instruction itself states.
    """

    op: ops.Op
    attributes: Attributes
    result: ops.Result
    profile: Profile

    def evaluation(self, operands: Sequence[Bits], setting: ops.Setting) -> ops.Evaluation:
        return ops.Evaluation(self.op, operands, self.attributes, self.result, setting)


@dataclass(frozen=True)
class Product:
    """A dot or convolution, the call of the instruction `name`, with what is fused into it. The step's
    operands are the call's two and then the epilogue's others; `rhs` is its right operand's type.
    `prologues` and `epilogue` name the instructions that the fused programs' links belong to.
    """

    name: str
    call: Call
    rhs: ArrayType
    fusion: ops.Fusion = ops.NO_FUSION
    prologues: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    epilogue: tuple[str, ...] = ()

    @property
    def result(self) -> ArrayType:
        """The type that the call gives."""
        assert isinstance(self.call.result, ArrayType)
        return self.call.result

    @property
    def reads_packed(self) -> bool:
        """Whether the core takes all of its right operand's elements from the packed columns: it may
        turn a convolution of an odd number of features to another form.
        """
        if self.fusion.packed is None:
            return False
        if self.call.op.name == "dot":
            return True
        numbers: ops.ConvolutionDimensions = self.call.attributes["dimension_numbers"]
        return self.rhs.dims[numbers.kernel_input_feature] % 2 == 0


@dataclass(frozen=True)
class Region:
    """A computation that a step runs: its results by name and, of a loop's, the states that each trip
    begins with.
    """

    steps: tuple[Step, ...]
    results: tuple[str, ...]
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Count:
    """The trips of a loop that counts, and the arrays that are `start + n * step` in trip n: their
    names and types, starts and steps.
    """

    trips: int
    counters: tuple[tuple[str, ArrayType, int, int], ...]


@dataclass(frozen=True)
class While:
    """A loop over the arrays that its body changes: the step's operands are their initial values. What
    the body only passes on, its regions read by its own name. It goes on as its condition says, or
    counts.
    """

    condition: Region | Count
    body: Region


@dataclass(frozen=True)
class Conditional:
    """The step's first operand chooses a branch; the branches read what is around them by name."""

    branches: tuple[Region, ...]


BITCASTS = ("bitcast_convert", "bitcast")
VIEWS = ("broadcast", "reshape", "transpose", "slice", "reverse", "copy", *BITCASTS)

Action = Chain | Call | Product | While | Conditional
Arrays: TypeAlias = tuple[tuple[str, ArrayType], ...]  # their names and types


@dataclass(frozen=True)
class Step:
    """What to run on which arrays. `results` are the names and types of those that it gives."""

    name: str
    computation: str
    action: Action
    operands: tuple[str, ...]
    results: Arrays
    members: tuple[str, ...]

    @property
    def output(self) -> str:
        """The name of the array of a step that gives one."""
        ((name, _),) = self.results
        return name

    @property
    def result(self) -> ArrayType:
        """The type of the array of a step that gives one."""
        ((_, t),) = self.results
        return t

    @property
    def regions(self) -> tuple[Region, ...]:
        """The computations that it runs."""
        if isinstance(self.action, While):
            condition, body = self.action.condition, self.action.body
            return (body,) if isinstance(condition, Count) else (condition, body)
        return self.action.branches if isinstance(self.action, Conditional) else ()

    @cached_property
    def inner_reads(self) -> tuple[str, ...]:
        """The arrays that its regions read from around it."""
        read = dict.fromkeys(n for region in self.regions for n in region_reads(region))
        if isinstance(self.action, While) and isinstance(self.action.condition, Count):
            for name, *_ in self.action.condition.counters:
                read.pop(name, None)
        return tuple(read)

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The arrays whose elements it and its regions read from around it: a right operand that is
        packed is not read.
        """
        packed = isinstance(self.action, Product) and self.action.reads_packed
        operands = (self.operands[0], *self.operands[2:]) if packed else self.operands
        return tuple(dict.fromkeys((*operands, *self.inner_reads)))


def is_view(s: Step) -> bool:
    """Whether it may be one of its operand's memory."""
    return isinstance(s.action, Call) and s.action.op.name in VIEWS


def region_reads(region: Region) -> tuple[str, ...]:
    """The arrays that a region reads from around it."""
    own = {*region.parameters, *(name for s in region.steps for name, _ in s.results)}
    read = (*(name for s in region.steps for name in s.reads), *region.results)
    return tuple(name for name in dict.fromkeys(read) if name not in own)


def all_steps(steps: Sequence[Step]) -> Iterator[Step]:
    """Every step, those of regions after the one that runs them."""
    for s in steps:
        yield s
        for region in s.regions:
            yield from all_steps(region.steps)


def stored_bytes(value: Bits) -> int:
    """Bytes that an array takes; what a broadcast repeats counts once."""
    data = value.data
    distinct = math.prod(n for n, s in zip(data.shape, data.strides, strict=True) if s != 0)
    return int(distinct * data.itemsize)


def tree(shape: AnyShape, arrays: Iterator[Bits]) -> Value:
    """The arrays in the order of a shape, as the shape nests them."""
    if isinstance(shape, Shape):
        return next(arrays)
    return TupleValue(tuple(tree(s, arrays) for s in shape.elements))
