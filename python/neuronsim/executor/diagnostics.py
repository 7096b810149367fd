"""What a run met, by instruction (docs/diagnostics.md)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from neuronsim import ops
from neuronsim.ops import Bits

# What is told of each instruction as it runs: its name, the trip counts of the loops around it ("3,0"),
# and the arrays that it gives, which are overwritten later.
Listener: TypeAlias = Callable[[str, str, Sequence[Bits]], None]

# What a call counts: what C7 and E3 demand; exceptions as well; and what all arrays consist of.
Observe: TypeAlias = Literal["off", "counts", "full"]
OBSERVE: tuple[Observe, ...] = get_args(Observe)
CATEGORIES = (*ops.ALWAYS, *ops.EVENTS)


@dataclass(frozen=True)
class Origin:
    """The first element at which an instruction made an Inf or NaN: its index, its value, and the
    elements of the operands that it is made of, if that is one of each.
    """

    index: tuple[int, ...]
    value: Any
    operands: tuple[Any, ...]


@dataclass
class Diagnostics:
    """What a run met: elements by category and instruction, and where it was observed in full what the
    results of each instruction consist of, and the first element of each origin of Inf and NaN, in the
    order in which they ran. A `listener` is told of every instruction's values.
    """

    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    statistics: dict[str, ops.Statistics] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    listener: Listener | None = None

    @property
    def is_any(self) -> bool:
        """Whether anything was met."""
        return bool(self.counts or self.statistics or self.origins)

    def of(self, category: str) -> dict[str, int]:
        """The counts of a category by instruction."""
        return {name: n for (c, name), n in self.counts.items() if c == category}

    def add(self, other: Diagnostics) -> None:
        """Adds what another run, or a part of one, met."""
        for (category, name), count in other.counts.items():
            self.add_count(category, name, count)
        for name, s in other.statistics.items():
            self._add_statistics(name, s)
        for name, origin in other.origins.items():
            self.origins.setdefault(name, origin)

    def without(self, instructions: Container[str]) -> Diagnostics:
        """The counts of all instructions but these."""
        return Diagnostics({k: n for k, n in self.counts.items() if k[1] not in instructions})

    def add_count(self, category: str, instruction: str, count: int) -> None:
        """Adds to what an instruction met."""
        key = category, instruction
        self.counts[key] = self.counts.get(key, 0) + count

    def add_events(self, instruction: str, events: Mapping[str, int]) -> None:
        """Adds the counts of some events that are not none."""
        for category, count in events.items():
            if count:
                self.add_count(category, instruction, count)

    def add_records(
        self, instructions: Iterable[str], records: npt.NDArray[np.int64], observe: Observe
    ) -> None:
        """Adds the core's records of steps, which belong to these instructions, as far as is asked."""
        if records.any():
            for name, row in zip(instructions, records, strict=True):
                met = ops.events_of(row)
                if observe == "off":
                    met = {c: n for c, n in met.items() if c in ops.ALWAYS}
                self.add_events(name, met)

    def repeat(self, repeats: Mapping[str, str]) -> None:
        """Gives each instruction that repeats another, and that one, what either of them met."""
        for category in CATEGORIES:
            own = self.of(category)
            met = {first: own[name] for name, first in repeats.items() if name in own}
            met |= {first: own[first] for first in repeats.values() if first in own}
            met |= {name: met[first] for name, first in repeats.items() if first in met}
            self.counts |= {(category, name): n for name, n in met.items()}

    def describe(self, name: str, evaluation: ops.Evaluation, results: Sequence[Bits]) -> None:
        """Adds what the results of an evaluated instruction consist of, and where Inf or NaN began."""
        for result in results:
            found = ops.statistics(result)
            if found is None:
                continue
            self._add_statistics(name, found)
            judged = ops.is_judged(evaluation.op, evaluation.attributes)
            if judged and name not in self.origins and (found.nan or found.infinite):
                self._add_origin(name, evaluation, result)

    def _add_statistics(self, name: str, found: ops.Statistics) -> None:
        known = self.statistics.get(name)
        self.statistics[name] = found if known is None else known + found

    def _add_origin(self, name: str, evaluation: ops.Evaluation, result: Bits) -> None:
        origins = ops.find_origins(evaluation, result)
        mask = origins.nan | origins.infinite
        if not mask.any():
            return
        place = np.unravel_index(int(np.argmax(mask)), mask.shape)
        dims = result.data.shape
        given = evaluation.operands if ops.is_elementwise(evaluation.op) else ()
        self.origins[name] = Origin(
            tuple(int(n) for n in place),
            ops.numbers(result)[place].item(),
            tuple(np.broadcast_to(ops.numbers(x), dims)[place].item() for x in given),
        )

    def to_dict(self, observe: Observe) -> dict[str, Any]:
        """The categories that a call with this `observe` counts, each with its instructions."""
        categories = ops.ALWAYS if observe == "off" else CATEGORIES
        found: dict[str, Any] = {c: self.of(c) for c in categories}
        if observe == "full":
            for name in ("statistics", "origins"):
                found[name] = {k: asdict(v) for k, v in getattr(self, name).items()}
        return found
