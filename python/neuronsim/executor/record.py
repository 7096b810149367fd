"""Steps as the core's, recorded on stand-ins for memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from neuronsim import _core, dtypes, ops
from neuronsim.errors import NeuronSimError
from neuronsim.executor.evaluate import inspect_call, python_function
from neuronsim.executor.memory import (
    ARENA,
    CONSTANTS,
    FIRST_INPUT,
    NOWHERE,
    WINDOW,
    Memory,
    Place,
    address,
    is_same,
    plan_memory,
)
from neuronsim.executor.record_movement import (
    record_concatenate,
    record_dynamic_slice,
    record_dynamic_update_slice,
    record_pad,
    record_view,
)
from neuronsim.executor.record_product import record_product
from neuronsim.executor.recorder import Loop, Scope, StepRecorder
from neuronsim.executor.steps import (
    Arrays,
    Call,
    Chain,
    Conditional,
    Count,
    Product,
    Region,
    Step,
    While,
)
from neuronsim.ops import ArrayType, Bits, BitsArray

# What records the steps of these operations, or says that it does not. (Views are asked for before
# what draws.)
_MOVEMENT: dict[str, Callable[[StepRecorder, Step, Call], bool]] = {
    "concatenate": record_concatenate,
    "pad": record_pad,
    "dynamic_slice": record_dynamic_slice,
    "dynamic_update_slice": record_dynamic_update_slice,
}


@dataclass(frozen=True)
class Recording:
    """A schedule as the core runs it. `names` has the instructions of each of its steps, `records`
    those of each record of what steps meet, and `python` the steps, those of regions too, that are
    calls of Python. `arenas` is memory of earlier runs, for the next ones.
    """

    executable: _core.Executable
    names: tuple[tuple[str, ...], ...]
    records: tuple[str, ...]
    python: tuple[str, ...]
    arena_bytes: int
    constants: tuple[BitsArray, ...]  # kept: the executable has their addresses
    arenas: list[BitsArray] = field(default_factory=list)


def record_schedule(
    r: StepRecorder, steps: tuple[Step, ...], results: Arrays, donated: Mapping[int, int]
) -> Recording:
    """The steps on planned memory. A run's memories: nothing, the arena, the inputs, the results.
    `donated` names for results, by number, the inputs whose memory they take.

    Under `observe="counts"` with steps that look into what others give; under "full" every step is a
    Python one, which knows all of its operands and results.
    """
    named = [(name, p.memory) for name, p in r.places.items() if p.memory.slot >= FIRST_INPUT]
    given = [memory for _, memory in named]
    for name, memory in (named[n] for n in donated.values()):  # the steps may overwrite it
        memory.owner, memory.views = r.scopes, {name}
    _record_region(r, Region(steps, tuple(name for name, _ in results)))
    inputs, first_output = set(given), FIRST_INPUT + len(given)
    taken: set[str] = set()
    late: list[tuple[Place, Memory]] = []  # copies to inputs, which others may still read
    for n, (name, t) in enumerate(results):
        place = r.places[name]
        slot = first_output + n
        if n in donated:
            target = given[donated[n]]
            if place.memory is not target or not place.is_whole:
                late.append((r.save(place) if place.memory in inputs else place, target))
            continue
        if place.is_whole and place.memory.slot == ARENA and name not in taken:
            place.memory.slot = slot
            taken.add(name)
            continue
        output = r.new_memory(t, slot=slot)
        r.add(_core.record_copy(place.array, output.standin), (name,), place.memory, output)
    for place, target in late:
        r.add(_core.record_copy(place.array, target.standin), (), place.memory, target)
    windows = [m for m in r.memories if m.slot == WINDOW]
    for n, m in enumerate(windows, first_output + len(results)):
        m.slot = n
    offsets, size = plan_memory([m for m in r.memories if m.slot == ARENA])
    standins = [
        (
            m.standin,
            max(m.slot, 0),
            address(m.standin) if m.slot == CONSTANTS else offsets.get(m, 0),
        )
        for m in r.memories
    ]
    executable = _core.Executable(r.at.steps.calls, standins, len(r.records), len(windows))
    constants = tuple(m.standin for m in r.memories if m.slot == CONSTANTS)
    records, python = tuple(r.records), tuple(dict.fromkeys(r.python))
    return Recording(executable, tuple(r.at.steps.names), records, python, size, constants)


def _record_region(r: StepRecorder, region: Region) -> None:
    last_use: dict[str, float] = {}
    for n, s in enumerate(region.steps):
        last_use |= dict.fromkeys(s.reads, n)
    last_use |= dict.fromkeys(region.results, math.inf)
    r.note_parts(region)
    products = (s for s in region.steps if isinstance(s.action, Product))
    multiplied = Counter(s.operands[1] for s in products)
    around, r.at.scope = r.at.scope, Scope(r.scopes, last_use, multiplied)
    r.scopes += 1
    for n, s in enumerate(region.steps):
        r.at.scope.step = n
        _record(r, s)
    r.at.scope = around


def _record(r: StepRecorder, s: Step) -> None:
    action = s.action
    if isinstance(action, Product) and s.operands[1] not in r.places:
        # Its elements are in the packed columns: the array only says its shape.
        nothing = np.empty(action.rhs.dims, action.rhs.dtype.storage)
        r.place_given(s.operands[1], Bits(nothing, action.rhs.dtype), NOWHERE)
    loop = r.loop_around_step(s)
    if loop is not None:
        with r.before(loop):
            _record(r, s)
    elif isinstance(action, While):
        _record_while(r, s, action)
    elif isinstance(action, Conditional):
        _record_conditional(r, s, action)
    elif r.observe == "full":
        _record_python(r, s)
    elif isinstance(action, Call) and record_view(r, s, action):
        return
    elif r.is_in_python(action):
        _record_python(r, s)
    elif isinstance(action, Chain):
        _record_chain(r, s, action)
    elif isinstance(action, Product):
        record_product(r, s, action)
    else:
        _record_call(r, s, action)


def _record_while(r: StepRecorder, s: Step, action: While) -> None:
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
            _record_region(r, asked)
        (goes_on,) = (r.places[name] for name in asked.results)
        r.touch([goes_on.memory])
    with r.nested() as body:
        _record_body(r, action.body, states)
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


def _record_body(r: StepRecorder, body: Region, states: Sequence[Place]) -> None:
    """A loop's body, which may overwrite the states, and then the copies that carry them on."""
    owners = [(p.memory, p.memory.owner, p.memory.views) for p in states]
    for name, p in zip(body.parameters, states, strict=True):
        p.memory.owner, p.memory.views = r.scopes, {name}
    counts = Counter(body.results)
    pairs = zip(body.results, states, strict=True)
    r.wanted |= {name: place for name, place in pairs if counts[name] == 1}
    _record_region(r, body)
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


def _record_conditional(r: StepRecorder, s: Step, action: Conditional) -> None:
    """A conditional, whose branches end with copies to the same results."""
    index = r.places[s.operands[0]]
    outputs = [r.place_new(name, kind) for name, kind in s.results]
    targets = [r.places[name].memory for name, _ in s.results]
    r.touch([index.memory])
    branches = []
    for branch in action.branches:
        with r.nested() as steps:
            _record_region(r, branch)
            for name, output, target in zip(branch.results, outputs, targets, strict=True):
                place = r.places[name]
                r.add(_core.record_copy(place.array, output), (), place.memory, target)
        branches.append(steps)
    if index.dtype is dtypes.boolean:
        branches.reverse()  # true takes the first branch
    assert index.dtype.code is not None
    step = _core.record_conditional((index.array, index.dtype.code), branches)
    r.add(step, s.members, index.memory, *targets)


def _record_chain(r: StepRecorder, s: Step, action: Chain) -> None:
    inputs = [r.places[o] for o in s.operands]
    dims = s.results[0][1].dims
    program = action.program(r.profile)
    outputs = [_new_of_chain(r, name, t, inputs, s) for name, t in s.results]
    arrays = [np.broadcast_to(p.array, dims) for p in inputs]
    step = program.on(arrays, outputs)
    touched = [*(p.memory for p in inputs), *(r.places[name].memory for name, _ in s.results)]
    r.add_observed(step, action.instructions, s.members, *touched, is_counted=action.is_counted)


def _new_of_chain(
    r: StepRecorder, name: str, t: ArrayType, inputs: Sequence[Place], s: Step
) -> BitsArray:
    """Memory for what a chain stores: a loop's state where it is to be, if nothing reads that any
    more. The chain itself may, element by element, if it stores nothing else.
    """
    part = r.place_part(name, t)
    if part is not None:
        return part
    state = r.wanted.get(name)
    if state is None or not r.may_overwrite(state):
        return r.place_new(name, t)
    read = [p for p in inputs if p.memory is state.memory]
    alone = len(s.results) == 1 and all(p.is_whole and p.array.shape == t.dims for p in read)
    if read and not alone:
        return r.place_new(name, t)
    r.set_place(name, state)
    return state.array


def _record_call(r: StepRecorder, s: Step, action: Call) -> None:
    record = _MOVEMENT.get(action.op.name)
    if record is not None and record(r, s, action):
        return
    if not _record_bound(r, s, action):
        _record_python(r, s)


def _record_bound(r: StepRecorder, s: Step, action: Call) -> bool:
    """The calls that the operation's row makes of its kernels."""
    op = action.op
    counted = r.observe == "counts" and ops.is_judged(op, action.attributes)
    places = [r.places[o] for o in s.operands]
    types = [p.dtype for p in places]
    reducer = action.attributes.get("reducer")  # what one operation reduces is looked at afterwards
    if op.bind is None or (counted and reducer is None):
        return False
    # Movement gives what is truncated already (C7).
    truncates = r.profile.int64 == "truncate" and op.cast != "movement"
    truncates = truncates and op.name not in ops.KEEPS_64_BITS
    all_types = (*types, *(t.dtype for _, t in s.results))
    if truncates and r.keeps_64_bits and any(t in ops.TRUNCATED for t in all_types):
        return False
    # Asked first on arrays that only stand for memory: it may be none of the core's.
    if not _is_bound(s, action, places):
        return False
    dtype = s.results[0][1].dtype
    inspected = bool(counted and dtype.exponent_bits and reducer in ("add", "multiply"))
    count = len(s.results) if op.takes_over else 0
    if op.dense:
        places[count:] = map(r.as_dense, places[count:])
    if op.takes_over:
        outputs = _take_over(r, s, places, keeps=inspected)
    else:
        outputs = [r.place_new(name, t) for name, t in s.results]
    given = [r.places[name] for name, _ in s.results]
    operands = [p.bits for p in places]
    steps = op.bind(action.evaluation(operands, ops.Setting(action.profile)), outputs)
    assert steps is not None
    touched = [p.memory for p in places[count:]]
    touched += [r.places[name].memory for name, _ in s.results]
    for step in steps:
        r.add(step, s.members, *touched)
    for place, (name, t) in zip(given, s.results, strict=True):
        if truncates and t.dtype in ops.TRUNCATED:
            _record_truncation(r, s, place, name, t)
    if inspected:
        function = inspect_call(s, action, types, ops.Setting(action.profile))
        r.add_inspection(function, r.places[s.output], places, reducer == "multiply")
    return True


def _take_over(r: StepRecorder, s: Step, places: Sequence[Place], *, keeps: bool) -> list[BitsArray]:
    """Results that start as the first operands; `keeps`: these are read again and stay as they were."""
    outputs = []
    for n, (name, _) in enumerate(s.results):
        others = [p.memory for at, p in enumerate(places) if keeps or at != n]
        outputs.append(r.take_over(s, places[n], name, others))
    return outputs


def _record_truncation(r: StepRecorder, s: Step, result: Place, name: str, t: ArrayType) -> None:
    """A step that truncates 64-bit integers (C7), and counts what it changes."""
    step = ops.truncation(t.dtype, r.profile).on([result.array], [r.place_new(name, t)])
    records = (s.name,) * step.record_count
    r.add_observed(step, records, (), result.memory, r.places[name].memory, is_counted=True)


def _is_bound(s: Step, action: Call, places: Sequence[Place]) -> bool:
    """Whether the core computes it of operands that lie there."""
    operands = [p.bits for p in places]
    if action.op.dense:
        operands = [Bits(np.empty(x.data.shape, x.data.dtype), x.dtype) for x in operands]
    outputs = [np.empty(t.dims, t.dtype.storage) for _, t in s.results]
    assert action.op.bind is not None
    try:
        made = action.op.bind(action.evaluation(operands, ops.Setting(action.profile)), outputs)
    except NeuronSimError:
        return False  # its Python step says so when it runs
    return made is not None


def _record_python(r: StepRecorder, s: Step) -> None:
    inputs = [r.places[o] for o in s.operands]
    outputs = [r.place_new(name, t) for name, t in s.results]
    r.python.append(s.name)
    read = [*inputs, *(loop.trip for loop in r.at.loops)]
    function = python_function(s, [p.dtype for p in inputs], r.profile)
    step = _core.record_python(function, [p.array for p in read], outputs)
    touched = [*(p.memory for p in read), *(r.places[name].memory for name, _ in s.results)]
    r.add(step, s.members, *touched)
