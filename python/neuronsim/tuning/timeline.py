"""When each engine works on which instruction: the estimate's instructions as engines start them."""

from __future__ import annotations

from dataclasses import dataclass

from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import Module, find_callers, graph_computations
from neuronsim.tuning.cost import Estimate, InstructionCost

MEMORY = "memory"  # the row of all bytes of device memory


@dataclass(frozen=True)
class Event:
    """An engine at work on an instruction, in seconds from the start of the run."""

    instruction: str
    engine: str
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """Events in the order of the program, and when the last one ends."""

    events: tuple[Event, ...]
    seconds: float


def timeline(module: Module, found: Estimate) -> Timeline:
    """The entry computation's instructions, each as soon as its operands are there and its engines are
    free: engines run beside each other, each its own instructions in the program's order. A loop or a
    conditional is one event for each engine, all of its trips. The memory works beside all of them.

    `seconds` lies between the estimate's `overlapped_seconds` and its `seconds`.
    """
    flat = inline_calls(module)
    entry = flat.entry_computation
    callers = find_callers(graph_computations(flat))
    by_name: dict[str, list[InstructionCost]] = {}
    for cost in found.instructions:
        name, computation = cost.name, cost.computation
        while computation in callers:
            first = callers[computation][0]
            computation, name = first.computation.name, first.instruction.name
        by_name.setdefault(name, []).append(cost)
    ready: dict[str, float] = {}
    free: dict[str, float] = {}
    events: list[Event] = []
    for i in entry.instructions:
        at = max((ready[o] for o in i.operands), default=0.0)
        for cost in by_name.get(i.name, ()):
            for engine, seconds in cost.by_engine.items():
                start = max(at, free.get(engine, 0.0))
                at = free[engine] = start + seconds
                events.append(Event(cost.name, engine, start, at))
        ready[i.name] = at
    if found.memory_seconds:
        events.append(Event("device memory", MEMORY, 0.0, found.memory_seconds))
    return Timeline(tuple(events), max((e.end for e in events), default=0.0))
