"""Two runs side by side: the values of every instruction in float32 and under a plan.

An instance is one run of one instruction: its name, and the trip counts of the loops around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.hlo.array_sources import literals
from neuronsim.hlo.module import Instruction, Module, graph_computations
from neuronsim.hlo.opcodes import STRUCTURE, row, row_attributes
from neuronsim.ops import ArrayType, Bits
from neuronsim.profiles import Profile
from neuronsim.tuning.blame.graph import Graphs

# Values that two runs may keep in memory at one time; of the trips of loops beyond it nothing is kept.
MAX_BYTES = 2 << 30


class Instance(NamedTuple):
    """One run of an instruction, and which of the arrays that it gives."""

    name: str
    number: int
    trips: str


class Listening(Protocol):
    """What blame needs of a compiled program."""

    @property
    def module(self) -> Module: ...
    def bound(self, *arrays: Any) -> dict[str, Bits]: ...
    def listen(
        self, listener: Callable[[str, str, Sequence[Bits]], None], *arrays: Any, **named: Any
    ) -> Any: ...
    def __call__(self, *arrays: Any, **named: Any) -> Any: ...


@dataclass
class Values:
    """What a run gave: the arrays of each instruction by name and trips, in the order of the run."""

    module: Module
    inputs: Mapping[str, Bits]
    profile: Profile
    arrays: dict[tuple[str, str], tuple[Bits, ...]] = field(default_factory=dict)
    is_cut: bool = False

    @cached_property
    def instructions(self) -> Mapping[str, Instruction]:
        return {i.name: i for c in graph_computations(self.module) for i in c.instructions}

    def get(self, name: str, number: int, trips: str) -> Bits | None:
        """An array that an instruction gave; what was folded at compile time is computed here. None of
        what did not run.
        """
        found = self.arrays.get((name, trips)) or self.arrays.get((name, ""))
        if found is None:
            found = self._folded(name)
        return found[number] if found else None

    def at(self, instance: Instance | None) -> Bits | None:
        """The array of an instance; None where one of the two is not known."""
        return None if instance is None else self.get(*instance)

    def every(self, name: str) -> list[Bits]:
        """The first array that an instruction gave, of each trip that is kept."""
        keys = [key for key in self.arrays if key[0] == name] or [(name, "")]
        found = [self.get(n, 0, trips) for n, trips in keys]
        return [x for x in found if x is not None]

    def _folded(self, name: str) -> tuple[Bits, ...] | None:
        i = self.instructions.get(name)
        if i is None:
            return None
        if i.opcode == "constant":
            self.arrays[name, ""] = tuple(literals(i.attributes["literal"]))
        elif i.opcode == "parameter" and name in self.inputs:
            self.arrays[name, ""] = (self.inputs[name],)
        elif i.opcode in STRUCTURE:
            return None
        else:
            operands = [self.get(o, 0, "") for o in i.operands]
            if any(x is None for x in operands):
                return None
            given = [x for x in operands if x is not None]
            self.arrays[name, ""] = evaluated(self.module, i, given, self.profile)
        return self.arrays[name, ""]


def evaluated(
    module: Module, i: Instruction, operands: Sequence[Bits], profile: Profile
) -> tuple[Bits, ...]:
    """What an instruction gives for these operands."""
    attributes = row_attributes(module, i)
    return ops.evaluate(row(i), operands, attributes, ops.Setting(profile), i.result)


def listened(
    program: Listening, names: frozenset[str], inputs: Mapping[str, Any], profile: Profile
) -> Values:
    """A run of a program on inputs, which are in the order of its parameters: the values of the
    instructions of these names.
    """
    values = Values(program.module, program.bound(*inputs.values()), profile)
    held = 0

    def listener(name: str, trips: str, found: Sequence[Bits]) -> None:
        nonlocal held
        if name not in names:
            return
        held += sum(x.data.nbytes for x in found)
        if trips and held > MAX_BYTES:
            values.is_cut = True
            return
        values.arrays[name, trips] = tuple(Bits(x.data.copy(), x.dtype) for x in found)

    program.listen(listener, *inputs.values())
    return values


class Sources(Graphs):
    """Which instance gave an array, through tuples, loops and branches."""

    def __init__(self, flat: Module, values: Values) -> None:
        super().__init__(flat)
        self._values = values
        self._trips: dict[tuple[str, str], int] = {}
        for name, trips in values.arrays:
            if trips:
                around, _, last = trips.rpartition(",")
                loop = self._loop(self._owners[name])
                # What runs in the condition alone runs once more than the body.
                if loop is not None and not loop[1]:
                    key = loop[0], around
                    self._trips[key] = max(self._trips.get(key, 0), int(last) + 1)

    def _loop(self, computation: str) -> tuple[str, int] | None:
        """The innermost loop around a computation, and whether that is its condition."""
        while computation in self._callers:
            around, i, number = self._callers[computation]
            if i.opcode == "while":
                return i.name, number
            computation = around.name
        return None

    def of(self, name: str, trips: str, number: int = 0) -> Instance | None:
        """The instance that gave an array; None where it is not known."""
        for _ in range(1 << 20):
            i, number = self._sources[self._owners[name]][name][number]
            name = i.name
            if i.opcode == "parameter" and self._owners[name] in self._callers:
                stepped = self._outside(i, number, trips)
            elif i.opcode == "while":
                stepped = self._last(i, number, trips)
            elif i.opcode == "conditional":
                stepped = self._branch(i, number, trips)
            else:
                known = (name, trips) in self._values.arrays
                return Instance(name, number, trips if known else "")
            if stepped is None:
                return None
            name, number, trips = stepped
        return None

    def _outside(self, i: Instruction, number: int, trips: str) -> tuple[str, int, str] | None:
        caller = self._callers[self._owners[i.name]]
        if caller.instruction.opcode == "conditional":
            return caller.given, number, trips
        around, _, last = trips.rpartition(",")
        body_name = caller.instruction.called[0]
        body, root = self._sources[body_name], self.flat.by_name[body_name].root
        given, n = body[root][number]
        kept = given.opcode == "parameter" and n == number
        if kept or not last or int(last) == 0:
            return caller.given, number, around
        return root, number, f"{around},{int(last) - 1}" if around else str(int(last) - 1)

    def _last(self, i: Instruction, number: int, trips: str) -> tuple[str, int, str] | None:
        count = self._trips.get((i.name, trips), 0)
        if not count:
            return i.operands[0], number, trips
        root = self.flat.by_name[i.called[0]].root
        return root, number, f"{trips},{count - 1}" if trips else str(count - 1)

    def _branch(self, i: Instruction, number: int, trips: str) -> tuple[str, int, str] | None:
        chosen = self._values.at(self.of(i.operands[0], trips))
        if chosen is None:
            return None
        value = int(chosen.data.reshape(-1)[0])
        branches = len(i.called)
        n = (0 if value else 1) if chosen.dtype is dtypes.boolean else value
        n = n if 0 <= n < branches else branches - 1
        return self.flat.by_name[i.called[n]].root, number, trips


def rounded(x: Bits, dtype: DType, profile: Profile) -> Bits:
    """A float32 array with its values rounded to a type, to nearest even."""
    if dtype is dtypes.float32 or x.dtype is not dtypes.float32 or not dtype.exponent_bits:
        return x
    convert, setting = ops.by_name("convert"), ops.Setting(profile.replace(rounding="nearest_even"))
    for t in (dtype, dtypes.float32):
        (x,) = ops.evaluate(convert, [x], {}, setting, ArrayType(t, x.data.shape))
    return x


def widened(x: Bits) -> Bits:
    """An array of floats as float32."""
    if x.dtype.kind == "float" and x.dtype is not dtypes.float32 and x.dtype.exponent_bits:
        return Bits(np.asarray(ops.numbers(x)), dtypes.float32)
    return x


def reverse_order(sources: Sources, values: Values) -> Iterator[tuple[str, str]]:
    """The instances of a run from the last to the first, then what was folded, in reverse order."""
    ran = [key for key in values.arrays if sources.instructions[key[0]].opcode not in STRUCTURE]
    seen = set(ran)
    yield from reversed(ran)
    for name in reversed(list(sources.instructions)):
        if (name, "") not in seen and sources.instructions[name].opcode not in STRUCTURE:
            yield name, ""
