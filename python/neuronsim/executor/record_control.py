"""Loops and conditionals as the core's steps: their regions, and what lies in memory around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from neuronsim import _core, dtypes
from neuronsim.executor.memory import Place, is_same
from neuronsim.executor.recorder import Loop, StepRecorder
from neuronsim.executor.steps import Conditional, Count, Region, Step, While
from neuronsim.ops import ArrayType

# Records the steps of a region.
_Regions: TypeAlias = Callable[[StepRecorder, Region], None]


def record_while(r: StepRecorder, s: Step, action: While, record_region: _Regions) -> None:
    """A loop, which carries its states on in the same memory from trip to trip."""
    states: list[Place] = []
    # What is read again in every trip, and what is a state already.
    kept = {r.places[name].memory for name in s.inner_reads}
    for o, (name, _) in zip(s.operands, s.results, strict=True):
        r.take_over(s, r.places[o], name, kept)
        states.append(r.places[name])
        kept.add(r.places[name].memory)
    trips = r.new_memory(ArrayType(dtypes.int64, ()))
    trip = Place(trips.standin, dtypes.int64, trips)
    r.at.position += 1  # for what is packed before the loop
    r.at.loops.append(Loop(r.at.position, r.at.steps, trip, {p.memory for p in states}))
    r.touch([trips, *(p.memory for p in states)])
    asked = action.condition
    if isinstance(asked, Count):
        counters = [r.new_memory(t) for _, t, *_ in asked.counters]
        r.touch(counters)
        for (name, t, *_), memory in zip(asked.counters, counters, strict=True):
            r.set_place(name, Place(memory.standin, t.dtype, memory))
    else:
        with r.nested() as condition:
            record_region(r, asked)
        (goes_on,) = (r.places[name] for name in asked.results)
        r.touch([goes_on.memory])
    with r.nested() as body:
        _record_body(r, action.body, states, record_region)
    loop = r.at.loops.pop()
    if isinstance(asked, Count):
        pairs = zip(counters, asked.counters, strict=True)
        counted = [(m.standin, start, by) for m, (_, _, start, by) in pairs]
        step = _core.record_count(asked.trips, counted, body, trips.standin)
        own = [trips, *counters]
    else:
        step = _core.record_while(condition, goes_on.array, body, trips.standin)
        own = [trips]
    # What lies around the loop is read again in the next trip.
    r.add(step, s.members, *(m for m in loop.touched if m.first < loop.begin), *own)


def _record_body(
    r: StepRecorder, body: Region, states: Sequence[Place], record_region: _Regions
) -> None:
    """A loop's body, which may overwrite the states, and then the copies that carry them on."""
    owners = [(p.memory, p.memory.owner, p.memory.views) for p in states]
    for name, p in zip(body.parameters, states, strict=True):
        p.memory.owner, p.memory.views = r.scopes, {name}
    counts = Counter(body.results)
    pairs = zip(body.results, states, strict=True)
    r.wanted |= {name: place for name, place in pairs if counts[name] == 1}
    record_region(r, body)
    results = [r.places[name] for name in body.results]
    memories = {p.memory for p in states}
    pending = [n for n, made in enumerate(results) if not is_same(made, states[n])]
    for n in pending:
        if results[n].memory in memories:  # another state, that a copy may overwrite before
            results[n] = r.save(results[n])
    for n in pending:
        step = _core.record_copy(results[n].array, states[n].array)
        r.add(step, (), results[n].memory, states[n].memory)
    for memory, owner, views in owners:
        memory.owner, memory.views = owner, views


def record_conditional(r: StepRecorder, s: Step, action: Conditional, record_region: _Regions) -> None:
    """A conditional, whose branches end with copies to the same results."""
    index = r.places[s.operands[0]]
    outputs = [r.place_new(name, kind) for name, kind in s.results]
    targets = [r.places[name].memory for name, _ in s.results]
    r.touch([index.memory])
    branches = []
    for branch in action.branches:
        with r.nested() as steps:
            record_region(r, branch)
            for name, output, target in zip(branch.results, outputs, targets, strict=True):
                place = r.places[name]
                r.add(_core.record_copy(place.array, output), (), place.memory, target)
        branches.append(steps)
    if index.dtype is dtypes.boolean:
        branches.reverse()  # true takes the first branch
    assert index.dtype.code is not None
    step = _core.record_conditional((index.array, index.dtype.code), branches)
    r.add(step, s.members, index.memory, *targets)
