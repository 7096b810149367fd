"""Running a schedule: its memory, its calls, and rule C7's accounting."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from neuronsim import _core, ops
from neuronsim.errors import OutOfMemory
from neuronsim.executor.diagnostics import Diagnostics, Observe
from neuronsim.executor.memory import ALIGNMENT, address
from neuronsim.executor.record import Recording
from neuronsim.executor.schedule import Schedule
from neuronsim.executor.steps import Value, all_steps, tree
from neuronsim.ops import Bits, BitsArray
from neuronsim.processor import check_environment
from neuronsim.profiles import Profile


@dataclass
class Context:
    """What Python steps of a run need to know (S2) and where they say what they met."""

    seed: int
    call: int
    diagnostics: Diagnostics
    observe: Observe
    replica: ops.Replica = ops.ALONE

    def check(self) -> None:
        """Loops call it now and then: raises an error if the run is to end."""
        self.replica.check()


def run_schedule(
    schedule: Schedule,
    inputs: Mapping[str, Bits],
    diagnostics: Diagnostics | None = None,
    *,
    seed: int = 0,
    call: int = 0,
    replica: ops.Replica = ops.ALONE,
    times: list[int] | None = None,
    observe: Observe = "off",
    donate: bool = False,
) -> Value:
    """The result for these inputs, which have the schedule's types. `seed` and `call`, the number of
    earlier calls since seeding, choose the words of stochastic rounding (S2).

    `replica` meets the schedule's other runs in its collectives.

    `diagnostics` receives what the run met as far as `observe` asks for, that of constants included,
    and `times` the nanoseconds of each step. The result shares no memory with the inputs or the
    schedule, but with `donate` the inputs that the module's aliases name may be overwritten, and be
    results. With a listener among the diagnostics it runs instruction by instruction.
    """
    check_environment()
    schedule = on_this_processor(schedule)
    diagnostics = Diagnostics() if diagnostics is None else diagnostics
    if observe == "full":
        diagnostics.add(schedule.op_by_op.of_constants)
    elif schedule.met_constants:
        diagnostics.add(schedule.of_constants)
    context = Context(seed, call, diagnostics, observe, replica)
    try:
        told: Observe = "full" if diagnostics.listener is not None else observe
        recorded = schedule.recording("off" if donate else told, donate)
        arena = _arena(recorded)
        given = [
            _dense(name, inputs[name], schedule.profile, diagnostics) for name, _ in schedule.inputs
        ]
        taken = schedule.donated if donate else {}
        if taken:
            _copy_kept(given, taken.values())
        outputs = [
            given[taken[n]] if n in taken else ops.empty(t) for n, (_, t) in enumerate(schedule.results)
        ]
        memories = [arena, *given, *outputs]
        records = ops.empty_records(len(recorded.records)) if recorded.records else None
        found = recorded.executable.run(memories, context, times is not None, records)
    except MemoryError as error:
        made = [r for s in all_steps(schedule.steps) for r in s.results]
        name, largest = max([*made, *schedule.results], key=lambda r: r[1].nbytes)
        raise OutOfMemory(
            f"the program does not fit in this machine's memory: {error}. Its largest array is {name}, "
            f"{largest}"
        ) from error
    recorded.arenas.append(arena)
    if records is not None:
        diagnostics.add_records(recorded.records, records, observe)
    if observe == "counts":
        diagnostics.repeat(schedule.repeats)
    if times is not None:
        times.extend(found)
    pairs = zip(outputs, schedule.results, strict=True)
    return tree(schedule.shape, iter([Bits(a, t.dtype) for a, (_, t) in pairs]))


def on_this_processor(schedule: Schedule) -> Schedule:
    """The schedule for the instruction set in use."""
    isa = _core.isa()
    if isa != schedule.isa:
        if isa not in schedule.elsewhere:
            schedule.elsewhere[isa] = schedule.again(False)
        schedule = schedule.elsewhere[isa]
    return schedule


def _arena(recorded: Recording) -> BitsArray:
    try:
        return recorded.arenas.pop()
    except IndexError:
        memory = np.empty(recorded.arena_bytes + ALIGNMENT, np.uint8)
        begin = -address(memory) % ALIGNMENT
        return memory[begin : begin + recorded.arena_bytes]


def _dense(name: str, value: Bits, profile: Profile, diagnostics: Diagnostics) -> BitsArray:
    if profile.int64 == "truncate":
        value, changed = ops.truncate_int64(value)
        if changed:
            diagnostics.add_count("int64_truncated", name, changed)
    if value.data.flags.c_contiguous:
        return value.data
    return np.ascontiguousarray(value.data).reshape(value.data.shape)  # 0-d arrays stay so


def _copy_kept(given: list[BitsArray], taken: Collection[int]) -> None:
    """Copies those of the taken inputs, by number, that may not be overwritten."""
    shared = _sharing(given)
    for n in taken:
        if n in shared or not given[n].flags.writeable:
            given[n] = given[n].copy()


def _sharing(arrays: Sequence[BitsArray]) -> set[int]:
    """The numbers of dense arrays that share memory with another one."""
    begins = [address(a) for a in arrays]
    found: set[int] = set()
    end, owner = 0, 0  # of those before, the one that ends last
    for n in sorted(range(len(arrays)), key=begins.__getitem__):
        if begins[n] < end:
            found |= {n, owner}
        if begins[n] + arrays[n].nbytes > end:
            end, owner = begins[n] + arrays[n].nbytes, n
    return found


@dataclass(frozen=True)
class StepTiming:
    """The time of one step: the median of its runs in seconds, and its share of all steps'. What only
    copies a value to where a loop or the result has it belongs to no instruction.
    """

    instructions: tuple[str, ...]
    opcodes: tuple[str, ...]
    seconds: float
    share: float


def step_timings(schedule: Schedule, runs: Sequence[Sequence[int]]) -> tuple[StepTiming, ...]:
    """The timings of the steps by the `times` of some runs."""
    medians = np.median(np.array(runs, np.float64), axis=0) / 1e9
    total = float(medians.sum()) or 1.0
    return tuple(
        StepTiming(names, tuple(schedule.opcodes.get(n, "") for n in names), float(s), float(s) / total)
        for names, s in zip(schedule.recording().names, medians, strict=True)
    )
