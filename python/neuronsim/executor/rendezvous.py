"""Where replicas that run in threads of one process meet in their collectives."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from neuronsim.errors import DivergentReplicas
from neuronsim.ops import Bits, BitsArray, Exchange


class Stopped(Exception):
    """The run of this replica ends because another failed."""


@dataclass
class _Arrival:
    """A replica that waits: where, for whom, with what; and what came of it."""

    place: str
    members: tuple[int, ...]
    operands: Sequence[Bits]
    found: Future[tuple[BitsArray, ...]] = field(default_factory=Future)


class Rendezvous:
    """The meeting point of `count` replicas. The last member of a group to arrive computes for all, so
    that nothing depends on the order of arrival.
    """

    def __init__(self, count: int) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[int, _Arrival] = {}
        self._running = set(range(count))
        self._stopped = False
        self.divergence: DivergentReplicas | None = None

    def meet(
        self,
        number: int,
        place: str,
        members: Sequence[int],
        operands: Sequence[Bits],
        exchange: Exchange,
    ) -> tuple[BitsArray, ...]:
        """What replica `number` gets of `exchange`, once every member is at this place. Raises Stopped
        if the run is stopped meanwhile.
        """
        own = _Arrival(place, tuple(members), operands)
        with self._changed:
            self.check()
            self._waiting[number] = own
            group = [self._waiting.get(m) for m in members]
            arrived = [
                a for a in group if a is not None and (a.place, a.members) == (place, own.members)
            ]
            is_last = len(arrived) == len(group)
            if is_last:
                for m in own.members:
                    del self._waiting[m]
            else:
                self._stop_if_stuck()
        # Without the lock, which whoever stops the run must find free.
        if is_last:
            self._settle(arrived, exchange)
        with self._changed:
            while not own.found.done():
                self.check()
                self._changed.wait()
        return own.found.result()

    def _settle(self, arrived: Sequence[_Arrival], exchange: Exchange) -> None:
        try:
            parts = exchange([a.operands for a in arrived])
            for a, part in list(zip(arrived, parts, strict=True)):
                a.found.set_result(part)
        except Exception as error:
            for a in arrived:
                a.found.set_exception(error)
        with self._changed:
            self._changed.notify_all()

    def _stop_if_stuck(self) -> None:
        if self._stopped or not self._waiting or self._waiting.keys() != self._running:
            return
        places: dict[str, list[int]] = {}
        for number, a in sorted(self._waiting.items()):
            places.setdefault(a.place.partition("/")[2], []).append(number)
        listed = [f"{_replicas(numbers)} at {place}" for place, numbers in places.items()]
        missing = {m for a in self._waiting.values() for m in a.members} - self._running
        if missing:
            listed.append(f"{_replicas(sorted(missing))} at the end")
        self.divergence = DivergentReplicas(
            f"the replicas wait for each other at different collectives: {', '.join(listed)}. Each "
            "member of a replica group executes the same collectives in the same order: look for a "
            "condition or a number of trips that differs between replicas"
        )
        self.stop()

    def leave(self, number: int) -> None:
        """Replica `number` has ended."""
        with self._changed:
            self._running.discard(number)
            self._waiting.pop(number, None)
            self._stop_if_stuck()
            self._changed.notify_all()

    def check(self) -> None:
        """Raises Stopped if the run is stopped."""
        if self._stopped:
            raise Stopped

    def stop(self) -> None:
        """Whoever waits, or comes to a collective, stops."""
        self._stopped = True
        with self._changed:
            self._changed.notify_all()

    def wait(self) -> None:
        """Until every replica has ended."""
        with self._changed:
            while self._running:
                self._changed.wait()


def _replicas(numbers: Sequence[int]) -> str:
    listed = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
    return f"replica{'s' if len(numbers) > 1 else ''} {listed}"
