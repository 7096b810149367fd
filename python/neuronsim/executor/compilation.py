"""What the computations of a module have in common while they are compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from neuronsim.executor.counting import CountedLoop
from neuronsim.executor.diagnostics import Diagnostics
from neuronsim.executor.known_constants import KnownConstants
from neuronsim.hlo.instruction_settings import read_settings
from neuronsim.hlo.module import Instruction, Module
from neuronsim.ops import ArrayType, Bits
from neuronsim.profiles import Profile


@dataclass
class Compilation:
    """What the computations of a schedule have in common. Arrays have names: an instruction's in the
    entry computation, after those of the instructions that run it in another; `#n` for the n-th array
    of a tuple.
    """

    module: Module
    profile: Profile
    op_by_op: bool
    counted: Mapping[str, CountedLoop]
    keeps_64_bits: bool  # whether there may be 64-bit integers that C7 did not truncate
    constants: dict[str, Bits] = field(default_factory=dict)
    types: dict[str, ArrayType] = field(default_factory=dict)
    diagnostics: Diagnostics = field(default_factory=Diagnostics)  # of the constants
    profiles: dict[str, Profile] = field(default_factory=dict)  # by the rounding that they have
    known: KnownConstants = field(default_factory=KnownConstants)
    shares: bool = False  # what is folded with other schedules

    def profile_of(self, i: Instruction) -> Profile:
        """The profile by which an instruction runs: with its own rounding, if it states one."""
        rounding = read_settings(i).rounding or self.profile.rounding
        if rounding not in self.profiles:
            same = rounding == self.profile.rounding
            self.profiles[rounding] = self.profile if same else self.profile.replace(rounding=rounding)
        return self.profiles[rounding]
