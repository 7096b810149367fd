"""Running a compiled program: its memory, its calls, and rule C7's accounting."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from neuronsim import _core, ops
from neuronsim.errors import OutOfMemory
from neuronsim.executor.diagnostics import Counts, Observe, empty_records
from neuronsim.executor.record import Recorded, record
from neuronsim.executor.steps import Call, Product, Step, Value, all_steps, constant_bytes, tree
from neuronsim.hlo.module import AnyShape
from neuronsim.ops import ArrayType, Bits, BitsArray
from neuronsim.processor import check_environment
from neuronsim.profiles import Profile


@dataclass(frozen=True)
class Program:
    """The compiled form: inputs by name, constants, steps, and the arrays that make up the result, in
    the order of `shape`. What is packed is so for the instruction set `isa`; `again` compiles the
    module for another, `each` with every instruction a step of its own. `opcodes` has those of the
    instructions by name.
    """

    inputs: tuple[tuple[str, ArrayType], ...]
    constants: Mapping[str, Bits]
    steps: tuple[Step, ...]
    results: tuple[tuple[str, ArrayType], ...]
    shape: AnyShape
    profile: Profile
    isa: str
    again: Callable[[], Program]
    donated: Mapping[int, int]  # the inputs, by number, whose memory results may take
    each: Callable[[], Program]
    opcodes: Mapping[str, str]
    of_constants: Counts = field(default_factory=Counts)

    @cached_property
    def recorded(self) -> Recorded:
        """The program on planned memory."""
        return self._recorded("off")

    @cached_property
    def overwriting(self) -> Recorded:
        """The same where results take the memory of donated inputs."""
        arguments = (self.inputs, self.constants, self.steps, self.results, self.profile)
        return record(*arguments, donated=self.donated)

    @cached_property
    def counting(self) -> Recorded:
        """The same with what it takes to count what the steps meet."""
        return self._recorded("counts")

    @cached_property
    def observed(self) -> Recorded:
        """The program instruction by instruction, each in Python."""
        return self.op_by_op._recorded("full")

    @cached_property
    def op_by_op(self) -> Program:
        """The same program without chains and fused products."""
        return self.each()

    def _recorded(self, observe: Observe) -> Recorded:
        arguments = (self.inputs, self.constants, self.steps, self.results, self.profile)
        return record(*arguments, observe)

    @cached_property
    def elsewhere(self) -> dict[str, Program]:
        """The same program for other instruction sets."""
        return {}

    @property
    def draws(self) -> bool:
        """Whether stochastic rounding is on, or an instruction states it: runs then take a seed."""
        calls = (s.action.profile for s in all_steps(self.steps) if isinstance(s.action, Call))
        return any(p.rounding == "stochastic" for p in (self.profile, *calls))

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that the program takes beside its inputs and results: `temporaries` of each run at one
        time, and for good `constants` and what is `packed` of them.
        """
        columns = {id(p): p.nbytes for s in all_steps(self.steps) if (p := _packed(s)) is not None}
        return {
            "temporaries": self.recorded.arena_bytes,
            "constants": constant_bytes(self.constants),
            "packed": sum(columns.values()),
        }

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
    observe: Observe
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
    observe: Observe = "off",
    donate: bool = False,
) -> Value:
    """The result for these inputs, which have the program's types. `seed` and `call`, the number of
    earlier calls since seeding, choose the words of stochastic rounding (S2).

    `replica` meets the program's other runs in its collectives.

    `counts` receives what the run met as far as `observe` asks for, that of constants included, and
    `times` the nanoseconds of each step. The result shares no memory with the inputs or the program,
    but with `donate` the inputs that the module's aliases name may be overwritten, and be results.
    """
    check_environment()
    program = on_this_processor(program)
    counts = Counts() if counts is None else counts
    counts.add(program.op_by_op.of_constants if observe == "full" else program.of_constants)
    context = Context(seed, call, counts, observe, replica)
    try:
        recorded = program.overwriting if donate else recorded_form(program, observe)
        arena = _arena(recorded)
        given = [_dense(name, inputs[name], program.profile, counts) for name, _ in program.inputs]
        taken = program.donated if donate else {}
        shared = _sharing(given) if taken else set()
        for n in taken.values():
            if n in shared or not given[n].flags.writeable:
                given[n] = given[n].copy()
        outputs = [
            given[taken[n]] if n in taken else _empty(t) for n, (_, t) in enumerate(program.results)
        ]
        memories = [arena, *given, *outputs]
        records = empty_records(len(recorded.records)) if observe == "counts" else None
        found = recorded.executable.run(memories, context, times is not None, records)
    except MemoryError as error:
        made = [r for s in all_steps(program.steps) for r in s.results]
        name, largest = max([*made, *program.results], key=lambda r: _bytes(r[1]))
        raise OutOfMemory(
            f"the program does not fit in this machine's memory: {error}. Its largest array is {name}, "
            f"{largest}"
        ) from error
    recorded.arenas.append(arena)
    if records is not None:
        counts.add_records(recorded.records, records)
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


def recorded_form(program: Program, observe: Observe) -> Recorded:
    """The program as the core runs it when so much is observed."""
    match observe:
        case "counts":
            return program.counting
        case "full":
            return program.observed
    return program.recorded


def _arena(recorded: Recorded) -> BitsArray:
    try:
        return recorded.arenas.pop()
    except IndexError:
        return np.empty(recorded.arena_bytes, np.uint8)


def _packed(s: Step) -> _core.PackedColumns | None:
    return s.action.fusion.packed if isinstance(s.action, Product) else None


def _dense(name: str, value: Bits, profile: Profile, counts: Counts) -> BitsArray:
    if profile.int64 == "truncate":
        value, changed = ops.truncate_int64(value)
        if changed:
            counts.add(Counts(int64_truncated={name: changed}))
    return np.ascontiguousarray(value.data).reshape(value.data.shape)  # 0-d arrays stay so


def _sharing(arrays: Sequence[BitsArray]) -> set[int]:
    """The numbers of dense arrays that share memory with another one."""
    begins = [int(a.__array_interface__["data"][0]) for a in arrays]
    found: set[int] = set()
    end, owner = 0, 0  # of those before, the one that ends last
    for n in sorted(range(len(arrays)), key=begins.__getitem__):
        if begins[n] < end:
            found |= {n, owner}
        if begins[n] + arrays[n].nbytes > end:
            end, owner = begins[n] + arrays[n].nbytes, n
    return found


def _bytes(t: ArrayType) -> int:
    return math.prod(t.dims) * t.dtype.itemsize


def _empty(t: ArrayType) -> BitsArray:
    return np.empty(t.dims, t.dtype.storage) if t.dtype.code is None else ops.empty(t)


@dataclass(frozen=True)
class StepTiming:
    """The time of one step: the median of its runs in seconds, and its share of all steps'. What only
    copies a value to where a loop or the result has it belongs to no instruction.
    """

    instructions: tuple[str, ...]
    opcodes: tuple[str, ...]
    seconds: float
    share: float


def step_timings(program: Program, runs: Sequence[Sequence[int]]) -> tuple[StepTiming, ...]:
    """The timings of the steps by the `times` of some runs."""
    medians = np.median(np.array(runs, np.float64), axis=0) / 1e9
    total = float(medians.sum()) or 1.0
    return tuple(
        StepTiming(names, tuple(program.opcodes.get(n, "") for n in names), float(s), float(s) / total)
        for names, s in zip(program.recorded.names, medians, strict=True)
    )
