"""What a search may choose: units of instructions, each in the type of one of some plans or uncast.

What only moves values is not chosen: it is in the type of what it moves, or of all who read it, where
rounding changes nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from neuronsim import ops
from neuronsim.casting.decisions.record import Decision, without_biases
from neuronsim.casting.plans.plan import Plan
from neuronsim.dtypes import float32
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    graph_computations,
    live_instructions,
)
from neuronsim.hlo.opcodes import row
from neuronsim.tuning import islands

MAX_UNITS = 128  # more instructions are put together by their places in the source


@dataclass(frozen=True)
class Unit:
    """Instructions that are in one type."""

    name: str
    members: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.members)


Choice = Mapping[str, str]  # the plan, by its label, of each computing instruction that is cast


@dataclass(frozen=True)
class Space:
    """Plans that combine those of `bases`, which are of one module, by their labels. `uncast` decides
    where none of them does: of what the target does not have in float32.
    """

    module: Module
    bases: Mapping[str, Plan]
    uncast: Mapping[str, Decision] = field(default_factory=dict)

    @cached_property
    def _graphs(self) -> tuple[Computation, ...]:
        return graph_computations(inline_calls(self.module))

    @cached_property
    def instructions(self) -> Mapping[str, Instruction]:
        """Those that are executed one by one, in order, without what no result hangs on."""
        found: dict[str, Instruction] = {}
        for c in self._graphs:
            live = live_instructions(c)
            found |= {i.name: i for i in c.instructions if i.name in live}
        return found

    @cached_property
    def computing(self) -> tuple[str, ...]:
        """The instructions that compute and that some base casts, and weights that one quantizes."""
        decided = {n: d for p in self.bases.values() for n, d in p.decisions.items()}
        quantized = {n for p in self.bases.values() for n, d in p.decisions.items() if d.quantizes}
        return tuple(
            n for n, i in self.instructions.items() if n in quantized or (n in decided and not moves(i))
        )

    def lowered_by(self, label: str) -> tuple[str, ...]:
        """The computing instructions that a base casts."""
        return tuple(n for n in self.computing if n in self.bases[label].decisions)

    def joined(self, labels: Sequence[str]) -> dict[str, str]:
        """The choice of bases together: of each instruction the first that casts it."""
        first = {n: label for label in reversed(labels) for n in self.lowered_by(label)}
        return {n: first[n] for n in self.computing if n in first}

    def plan(self, choice: Choice, name: str = "tuned") -> Plan:
        """The plan of a choice: a base itself where all that it casts is in it."""
        labels = set(choice.values())
        if len(labels) == 1:
            (label,) = labels
            if len(choice) == len(self.lowered_by(label)):
                return self.bases[label]
        first = next(iter(self.bases.values()))
        decisions: dict[str, Decision] = {}
        for c in self._graphs:
            decisions |= without_biases(self._decisions(c, choice))
        kept = {n: f"{name} keeps it as it is, for accuracy" for n in self.computing if n not in choice}
        return replace(first, policy=name, decisions=decisions, kept=kept)

    def _decisions(self, c: Computation, choice: Choice) -> dict[str, Decision]:
        """The decisions in one computation: those that are chosen, and those of what moves values."""
        given: dict[str, str | None] = {}  # the label that a value has been rounded by
        for i in c.instructions:
            label = choice.get(i.name)
            if label is not None:
                d = self.bases[label].decisions[i.name]
                given[i.name] = label if d.output is d.operand and not d.quantizes else None
            elif moves(i) and i.opcode != "constant":
                sources = {
                    given.get(o)
                    for o in i.operands
                    if c.by_name[o].opcode != "constant"
                    and any(s.dtype is float32 for s in c.by_name[o].shape.arrays())
                }
                given[i.name] = sources.pop() if len(sources) == 1 else None
        users = c.users()
        wanted: dict[str, str | None] = {}  # the label by which all readers round a value
        found: dict[str, Decision] = {}
        for i in reversed(c.instructions):
            label = choice.get(i.name)
            if label is None and moves(i):
                read = {wanted.get(u.name) for u in users[i.name]}
                of_readers = read.pop() if len(read) == 1 and i.name != c.root else None
                label = given.get(i.name) or of_readers
            own = self.uncast if label is None else self.bases[label].decisions
            decided = own.get(i.name)
            wanted[i.name] = None if decided is not None and decided.quantizes else label
            if decided is not None:
                found[i.name] = decided
        return found

    # ---- units -----------------------------------------------------------------------------------

    def units(self, names: Sequence[str], most: int = MAX_UNITS) -> list[Unit]:
        """Instructions, each on its own; where there are more than `most`, islands (`islands`): those
        that follow each other in one scope of the source, else those that leave by one value. Loops
        that share a computation are one unit.
        """
        joined = self._loops(names)
        own = [Unit(n, joined.get(n, (n,))) for n in names if joined.get(n, (n,))[0] == n]
        if len(own) <= most:
            return own
        members = {u.name: u.members for u in own}
        found = self._scopes(list(members), most) or self._dominated(list(members), most)
        return [Unit(p[0], tuple(m for n in p for m in members[n])) for p in found]

    def _scopes(self, names: Sequence[str], most: int) -> list[list[str]]:
        """The islands of the innermost scopes that are few enough; none where these say too little."""
        depth = max(scope_of(self.instructions[n]).count("/") for n in names) + 1
        best: list[list[str]] = []
        for level in range(1, depth + 1):
            found = islands.by_scope(self.instructions, names, level)
            if len(found) > most:
                break
            if len(found) > max(1, most // 4):
                best = found
        return best

    def _dominated(self, names: Sequence[str], most: int) -> list[list[str]]:
        found = []
        for c in self._graphs:
            own = [n for n in names if n in c.by_name]
            share = max(1, most * len(own) // len(names))
            found += islands.by_dominance(c, own, share)
        return found

    def _loops(self, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        loops = [n for n in names if self.instructions[n].opcode == "while"]
        joined: dict[str, tuple[str, ...]] = {}
        for n in loops:
            called = set(self.instructions[n].called)
            same = tuple(m for m in loops if called & set(self.instructions[m].called))
            joined[n] = same
        return joined


def moves(i: Instruction) -> bool:
    """Whether an instruction computes nothing: it moves values, or is a constant."""
    if i.opcode == "constant":
        return True
    return i.opcode in ops.OPCODES and row(i).cast == "movement"


def scope_of(i: Instruction) -> str:
    """Where an instruction is from: its scope in the source's names."""
    return i.metadata.op_name
