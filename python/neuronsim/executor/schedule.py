"""Schedule: what a module is compiled to, and what the core makes of it for each kind of run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from neuronsim import _core
from neuronsim.executor.diagnostics import Diagnostics, Observe
from neuronsim.executor.record import Recording, record_schedule
from neuronsim.executor.recorder import StepRecorder
from neuronsim.executor.steps import Arrays, Call, Product, Step, all_steps, stored_bytes
from neuronsim.hlo.module import AnyShape
from neuronsim.ops import Bits
from neuronsim.profiles import Profile


@dataclass(frozen=True)
class Schedule:
    """The compiled form: inputs by name, constants, steps, and the arrays that make up the result, in
    the order of `shape`. What is packed is so for the instruction set `isa`; `again` compiles the
    module for the one in use, and for True with each instruction a step of its own. `opcodes` has those
    of the instructions by name.
    """

    inputs: Arrays
    constants: Mapping[str, Bits]
    steps: tuple[Step, ...]
    results: Arrays
    shape: AnyShape
    profile: Profile
    isa: str
    again: Callable[[bool], Schedule]
    donated: Mapping[int, int]  # the inputs, by number, whose memory results may take
    opcodes: Mapping[str, str]
    repeats: Mapping[str, str]  # by instruction that repeats others: the first of them
    keeps_64_bits: bool  # whether there may be 64-bit integers that C7 did not truncate
    of_constants: Diagnostics = field(default_factory=Diagnostics)
    # The same schedule for other instruction sets, and what was recorded of this one.
    elsewhere: dict[str, Schedule] = field(init=False, default_factory=dict, repr=False, compare=False)
    _recordings: dict[tuple[Observe, bool], Recording] = field(
        init=False, default_factory=dict, repr=False, compare=False
    )

    @cached_property
    def met_constants(self) -> bool:
        """Whether the folding of constants met anything."""
        return self.of_constants.is_any

    @cached_property
    def op_by_op(self) -> Schedule:
        """The same schedule without chains and fused products."""
        return self.again(True)

    def recording(self, observe: Observe = "off", donate: bool = False) -> Recording:
        """The schedule on planned memory, with what it takes to observe so much: under "full"
        instruction by instruction, each in Python. With `donate` results take the memory of donated
        inputs.
        """
        found = self._recordings.get((observe, donate))
        if found is None:
            s = self.op_by_op if observe == "full" else self
            recorder = StepRecorder(s.inputs, s.constants, s.profile, observe, s.keeps_64_bits)
            found = record_schedule(recorder, s.steps, s.results, s.donated if donate else {})
            self._recordings[observe, donate] = found
        return found

    @property
    def draws(self) -> bool:
        """Whether stochastic rounding is on, or an instruction states it: runs then take a seed."""
        calls = (s.action.profile for s in all_steps(self.steps) if isinstance(s.action, Call))
        return any(p.rounding == "stochastic" for p in (self.profile, *calls))

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that the schedule takes beside its inputs and results: `temporaries` of each run at one
        time, and for good `constants` and what is `packed` of them.
        """
        columns = {id(p): p.nbytes for s in all_steps(self.steps) if (p := _packed(s)) is not None}
        return {
            "temporaries": self.recording().arena_bytes,
            "constants": sum(map(stored_bytes, self.constants.values())),
            "packed": sum(columns.values()),
        }


def _packed(s: Step) -> _core.PackedColumns | None:
    return s.action.fusion.packed if isinstance(s.action, Product) else None
