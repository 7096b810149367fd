"""Running a compiled program: its memory, its calls, and rule C7's accounting."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

import numpy as np

from neuronsim import _core, ops
from neuronsim.errors import OutOfMemory
from neuronsim.executor.record import Recorded, record
from neuronsim.executor.steps import Counts, Product, Step, Value, all_steps, constant_bytes, tree
from neuronsim.hlo.module import AnyShape
from neuronsim.ops import ArrayType, Bits, BitsArray
from neuronsim.processor import check_environment
from neuronsim.profiles import Profile


@dataclass(frozen=True)
class Program:
    """The compiled form: inputs by name, constants, steps, and the arrays that make up the result, in
    the order of `shape`. What is packed is so for the instruction set `isa`; `again` compiles the
    module for another.
    """

    inputs: tuple[tuple[str, ArrayType], ...]
    constants: Mapping[str, Bits]
    steps: tuple[Step, ...]
    results: tuple[tuple[str, ArrayType], ...]
    shape: AnyShape
    profile: Profile
    isa: str
    again: Callable[[], Program]
    of_constants: Counts = field(default_factory=Counts)

    @cached_property
    def recorded(self) -> Recorded:
        """The program on planned memory."""
        return record(self.inputs, self.constants, self.steps, self.results, self.profile)

    @cached_property
    def arenas(self) -> list[BitsArray]:
        """Memory of earlier runs, for the next ones."""
        return []

    @cached_property
    def elsewhere(self) -> dict[str, Program]:
        """The same program for other instruction sets."""
        return {}

    @property
    def constant_bytes(self) -> int:
        """Bytes of the constants, each counted once in its own type, packed ones too."""
        packed = {
            s.operands[1]: s.action.rhs
            for s in all_steps(self.steps)
            if isinstance(s.action, Product) and s.action.reads_packed
        }
        sizes = (
            math.prod(t.dims) * t.dtype.itemsize for n, t in packed.items() if n not in self.constants
        )
        return constant_bytes(self.constants) + sum(sizes)


@dataclass
class Context:
    """What Python steps of a run need to know (S2) and where they say what they met."""

    seed: int
    call: int
    counts: Counts
    replica: ops.Replica = ops.ALONE

    def check(self) -> None:
        """Loops call it now and then: raises an error if the run is to end."""
        self.replica.check()


def run_program(
    program: Program,
    inputs: Mapping[str, Bits],
    counts: Counts | None = None,
    *,
    seed: int = 0,
    call: int = 0,
    replica: ops.Replica = ops.ALONE,
    times: list[int] | None = None,
) -> Value:
    """The result for these inputs, which have the program's types. `seed` and `call`, the number of
    earlier calls since seeding, choose the words of stochastic rounding (S2).

    `replica` meets the program's other runs in its collectives.

    `counts` receives what the run met, that of constants included, and `times` the nanoseconds of each
    step. The result shares no memory with the inputs or the program.
    """
    check_environment()
    program = on_this_processor(program)
    counts = Counts() if counts is None else counts
    counts.add(program.of_constants)
    context = Context(seed, call, counts, replica)
    try:
        recorded = program.recorded
        outputs = [_empty(t) for _, t in program.results]
        arena = _arena(program)
        given = (_dense(name, inputs[name], program.profile, counts) for name, _ in program.inputs)
        found = recorded.executable.run([arena, *given, *outputs], context, times is not None)
    except MemoryError as error:
        largest = max(all_steps(program.steps), key=_result_bytes)
        raise OutOfMemory(
            f"the program does not fit in this machine's memory: {error}. Its largest array is "
            f"{largest.name}, {' and '.join(str(t) for _, t in largest.results)}"
        ) from error
    program.arenas.append(arena)
    if times is not None:
        times.extend(found)
    pairs = zip(outputs, program.results, strict=True)
    return tree(program.shape, iter([Bits(a, t.dtype) for a, (_, t) in pairs]))


def on_this_processor(program: Program) -> Program:
    """The program for the instruction set in use."""
    isa = _core.isa()
    if isa != program.isa:
        if isa not in program.elsewhere:
            program.elsewhere[isa] = program.again()
        program = program.elsewhere[isa]
    return program


def _arena(program: Program) -> BitsArray:
    try:
        return program.arenas.pop()
    except IndexError:
        return np.empty(program.recorded.arena_bytes, np.uint8)


def _dense(name: str, value: Bits, profile: Profile, counts: Counts) -> BitsArray:
    if profile.int64 == "truncate":
        value, changed = ops.truncate_int64(value)
        if changed:
            counts.add(Counts(int64_truncated={name: changed}))
    return np.ascontiguousarray(value.data)


def _empty(t: ArrayType) -> BitsArray:
    return np.empty(t.dims, t.dtype.storage) if t.dtype.code is None else ops.empty(t)


def _result_bytes(step: Step) -> int:
    return sum(math.prod(t.dims) * t.dtype.itemsize for _, t in step.results)


def step_names(program: Program) -> tuple[str, ...]:
    """The instructions of each step, as `times` lists them."""
    return tuple("+".join(chain(names)) for names in program.recorded.names)
