"""What is known of arrays before a module runs: of those of a computation, and of those that loops and
conditionals give the computations that they run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from neuronsim.hlo.array_sources import Source, Sources, passed_on
from neuronsim.hlo.module import Instruction, Module

T = TypeVar("T")
Known: TypeAlias = tuple[T | None, ...]  # of the arrays of an instruction: None where nothing is


@dataclass(frozen=True)
class KnownArrays(Generic[T]):
    """What is known of a computation's arrays, by the instructions that give arrays of their own."""

    sources: Sources
    made: dict[str, Known[T]] = field(default_factory=dict)

    def value(self, source: Source) -> T | None:
        """What is known of one array."""
        i, n = source
        return self.made[i.name][n] if i.name in self.made else None

    def values(self, name: str) -> Known[T]:
        """What is known of all arrays of an instruction."""
        return tuple(map(self.value, self.sources[name]))

    def only(self, name: str) -> T | None:
        """What is known of the array of an instruction that has one."""
        return self.value(self.sources[name][0]) if len(self.sources[name]) == 1 else None


def unchanged(
    loop: Instruction, initial: Known[T], module: Module, sources: Mapping[str, Sources]
) -> Known[T]:
    """Of what is known of a loop's arrays as it begins, what holds in all trips."""
    body = module.by_name[loop.called[0]]
    kept = passed_on(body, sources[body.name])
    return tuple(v if n in kept else None for n, v in enumerate(initial))


@dataclass(frozen=True)
class Arguments(Generic[T]):
    """What is known of each computation's argument: of one that several instructions run, what `join`
    makes of what they give. Instructions are added callers first.
    """

    module: Module
    sources: Mapping[str, Sources]
    join: Callable[[T, T], T | None]
    _found: dict[str, Known[T]] = field(default_factory=dict)

    def of(self, computation: str) -> Known[T]:
        """The argument of a computation; () that of the entry."""
        return self._found.get(computation, ())

    def add(self, computation: str, given: Known[T]) -> None:
        """Adds what a computation is given."""
        before = self._found.get(computation, given)
        pairs = zip(before, given, strict=True)
        self._found[computation] = tuple(
            None if a is None or b is None else self.join(a, b) for a, b in pairs
        )

    def add_called(self, i: Instruction, values: Callable[[str], Known[T]]) -> None:
        """Adds what an instruction gives the computations that it runs, by what is known of others."""
        if i.opcode == "while":
            given = unchanged(i, values(i.operands[0]), self.module, self.sources)
            for name in i.called:
                self.add(name, given)
        elif i.opcode == "conditional":
            for name, operand in zip(i.called, i.operands[1:], strict=True):
                self.add(name, values(operand))
