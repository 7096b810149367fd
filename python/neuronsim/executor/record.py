"""Steps as the core's, recorded on stand-ins for memory.

A view (reshape, broadcast, transpose, slice, reverse) is no step: its readers walk the memory of what
it views.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from neuronsim import _core, dtypes, ops
from neuronsim.errors import NeuronSimError
from neuronsim.executor.evaluate import PythonFunction, inspect_call, inspect_product, python_function
from neuronsim.executor.memory import (
    ARENA,
    CONSTANTS,
    FIRST_INPUT,
    NOWHERE,
    Memory,
    Place,
    address,
    is_same,
    plan_memory,
)
from neuronsim.executor.recorder import Loop, Recorder, Scope
from neuronsim.executor.steps import (
    BITCASTS,
    Arrays,
    Call,
    Chain,
    Conditional,
    Count,
    Product,
    Region,
    Step,
    While,
    is_view,
)
from neuronsim.ops import ArrayType, Bits, BitsArray

# So small a part of an array that later steps may overwrite is copied: finding it takes as long.
FEW_BYTES = 64
# Packing a right operand for so few rows takes a good part of the product's own time.
FEW_ROWS = 32


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


class ScheduleRecorder(Recorder):
    """Records steps on planned memory. A run's memories: nothing, the arena, the inputs, the results.

    Under `observe="counts"` with steps that look into what others give; under "full" every step is a
    Python one, which knows all of its operands and results.
    """

    def run(self, steps: tuple[Step, ...], results: Arrays, donated: Mapping[int, int]) -> Recording:
        """The steps; `donated` names for results, by number, the inputs whose memory they take."""
        named = [(name, p.memory) for name, p in self.places.items() if p.memory.slot >= FIRST_INPUT]
        given = [memory for _, memory in named]
        for name, memory in (named[n] for n in donated.values()):  # the steps may overwrite it
            memory.owner, memory.views = self.scopes, {name}
        self._steps(Region((), steps, tuple(name for name, _ in results)))
        inputs = set(given)
        taken: set[str] = set()
        late: list[tuple[Place, Memory]] = []  # copies to inputs, which others may still read
        for n, (name, t) in enumerate(results):
            place = self.places[name]
            slot = self.first_output + n
            if n in donated:
                target = given[donated[n]]
                if place.memory is not target or not place.is_whole:
                    late.append((self._saved(place, t) if place.memory in inputs else place, target))
                continue
            if place.is_whole and place.memory.slot == ARENA and name not in taken:
                place.memory.slot = slot
                taken.add(name)
                continue
            output = self._memory(t, slot=slot)
            self._add(_core.record_copy(place.array, output.standin), (name,), place.memory, output)
        for place, target in late:
            self._add(_core.record_copy(place.array, target.standin), (), place.memory, target)
        for n, m in enumerate(self.windows):
            m.slot = self.first_output + len(results) + n
        offsets, size = plan_memory([m for m in self.memories if m.slot == ARENA])
        standins = [
            (
                m.standin,
                max(m.slot, 0),
                address(m.standin) if m.slot == CONSTANTS else offsets.get(m, 0),
            )
            for m in self.memories
        ]
        executable = _core.Executable(self.recorded, standins, len(self.records), len(self.windows))
        constants = tuple(m.standin for m in self.memories if m.slot == CONSTANTS)
        records, python = tuple(self.records), tuple(dict.fromkeys(self.python))
        return Recording(executable, tuple(self.names), records, python, size, constants)

    # ---- steps ---------------------------------------------------------------------------------

    def _steps(self, region: Region) -> None:
        last_use: dict[str, float] = {}
        for n, s in enumerate(region.steps):
            last_use |= dict.fromkeys(s.reads, n)
        last_use |= dict.fromkeys(region.results, math.inf)
        self._note_parts(region)
        products = (s for s in region.steps if isinstance(s.action, Product))
        multiplied = Counter(s.operands[1] for s in products)
        around, self.scope = self.scope, Scope(self.scopes, last_use, multiplied)
        self.scopes += 1
        for n, s in enumerate(region.steps):
            self.scope.step = n
            self._record(s)
        self.scope = around

    def _record(self, s: Step) -> None:
        action = s.action
        if isinstance(action, Product) and s.operands[1] not in self.places:
            # Its elements are in the packed columns: the array only says its shape.
            nothing = np.empty(action.rhs.dims, action.rhs.dtype.storage)
            self.places[s.operands[1]] = Place(nothing, Memory(nothing, 0, 0, slot=NOWHERE))
            self.memories.append(self.places[s.operands[1]].memory)
            self.types[s.operands[1]] = action.rhs
        loop = self._loop_around_step(s)
        if loop is not None:
            with self._before(loop):
                self._record(s)
        elif isinstance(action, While):
            self._record_while(s, action)
        elif isinstance(action, Conditional):
            self._record_conditional(s, action)
        elif self.observe == "full":
            self._record_python(s)
        elif isinstance(action, Call) and self._record_view(s, action):
            return
        elif self._draws(action):
            self._record_python(s)
        elif isinstance(action, Chain):
            self._record_chain(s, action)
        elif isinstance(action, Product):
            self._record_product(s, action)
        else:
            self._record_call(s, action)

    def _record_chain(self, s: Step, action: Chain) -> None:
        inputs = [self.places[o] for o in s.operands]
        dims = s.results[0][1].dims
        program = action.program(self.profile)
        outputs = [self._new_of_chain(name, t, inputs, s) for name, t in s.results]
        arrays = [np.broadcast_to(p.array, dims) for p in inputs]
        step = program.on(arrays, outputs)
        touched = [*(p.memory for p in inputs), *(self.places[name].memory for name, _ in s.results)]
        self._add_observed(step, action.instructions, s.members, *touched, is_counted=action.is_counted)

    def _new_of_chain(self, name: str, t: ArrayType, inputs: Sequence[Place], s: Step) -> BitsArray:
        """Memory for what a chain stores: a loop's state where it is to be, if nothing reads that any
        more. The chain itself may, element by element, if it stores nothing else.
        """
        part = self._part(name, t)
        if part is not None:
            return part
        state = self.wanted.get(name)
        if state is None or not self._may_overwrite(state):
            return self._new(name, t)
        read = [p for p in inputs if p.memory is state.memory]
        alone = len(s.results) == 1 and all(p.is_whole and p.array.shape == t.dims for p in read)
        if read and not alone:
            return self._new(name, t)
        self._set(name, state, t)
        return state.array

    def _record_product(self, s: Step, action: Product) -> None:
        if ops.goes_via_float32(action.result.dtype, action.attributes, self.profile):
            return self._record_python(s)
        places = [self.places[o] for o in s.operands]
        operands = [Bits(p.array, self.types[o].dtype) for p, o in zip(places, s.operands, strict=True)]
        fusion = ops.with_terms(action.fusion, [x.data for x in operands[2:]])
        ((name, t),) = s.results
        output = self._new(name, t)
        evaluation = action.evaluation(operands[:2], self.setting)
        touched = [*(p.memory for p in places), self.places[name].memory]
        columns = self._packed_once(s, action, evaluation, places[1])
        if columns is None:
            step = ops.bind_product(evaluation, output, fusion)
        else:
            packed, memory = columns
            step = ops.bind_product(evaluation, output, replace(fusion, packed=packed), memory.standin)
            touched.append(memory)
        if self.observe == "off":
            return self._add(step, s.members, *touched)
        for side, fused in enumerate((fusion.lhs, fusion.rhs)):
            if fused is not None:
                prologue = fused[0].prologue_on(places[side].array)
                self._add_observed(prologue, action.prologues[side], (), places[side].memory)
        sums = len(self.records)
        records = () if fusion.epilogue is None else (action.name, *action.epilogue)
        self._add_observed(step, records, s.members, *touched)
        return self._inspect_product(s, action, sums)

    def _packed_once(
        self, s: Step, action: Product, evaluation: ops.Evaluation, rhs: Place
    ) -> tuple[_core.PackedColumns, Memory] | None:
        """The columns of a right operand that all trips of a loop multiply by, packed before that, or
        of one that several of these steps do, packed for the first of them.
        """
        loop = self._loop_around(rhs)
        name = s.operands[1]
        if action.fusion.packed is not None or (loop is None and self.scope.multiplied[name] < 2):
            return None
        if self.loops and ops.is_few(evaluation, action.fusion):
            return None
        fused = action.fusion.rhs
        lhs = evaluation.operands[0].dtype if action.fusion.lhs is None else action.fusion.lhs[1]
        attributes = repr(sorted(action.attributes.items()))
        key = (name, attributes, lhs, action.result, None if fused is None else fused[0])
        known = self.scope.packed if loop is None else loop.packed
        if key not in known:
            most_rows = FEW_ROWS if loop is None else math.inf
            found = ops.pack_in_run(evaluation, action.fusion, most_rows)
            if found is None:
                return None
            columns, pack = found
            with nullcontext() if loop is None else self._before(loop):
                memory = self._memory(ArrayType(dtypes.uint8, (columns.nbytes,)))
                self._add(pack(memory.standin), s.members, rhs.memory, memory)
            known[key] = columns, memory
        return known[key]

    def _inspect_product(self, s: Step, action: Product, sums: int) -> None:
        """A step that looks into a product whose result, or the sums that its epilogue took, call for
        it; `sums` is the number of their record.
        """
        t = action.result
        if not t.dtype.exponent_bits:
            return None
        count = 1 if action.reads_packed else 2
        given = [self.places[o] for o in s.operands[:count]]
        function = inspect_product(action, [self.types[o].dtype for o in s.operands[:2]], self.profile)
        if action.fusion.epilogue is None:
            zeros = ops.rounds_sums(t.dtype, self.profile)
            return self._add_inspection(function, self.places[s.output], t.dtype, given, zeros)
        step = _core.record_sums_inspection(function, [p.array for p in given])
        step.set_first_record(sums)
        return self._add(step, (), *(p.memory for p in given))

    def _add_inspection(
        self,
        function: PythonFunction,
        output: Place,
        dtype: dtypes.DType,
        operands: Sequence[Place],
        zeros: bool,
    ) -> None:
        """A step that looks into the result of the one before if that has Inf, NaN or `zeros`."""
        arrays = [output.array, *(p.array for p in operands)]
        if zeros and self.profile.fp8_overflow == "saturate":
            step = _core.record_python(function, arrays, [])  # nothing tells what saturated
        else:
            code = ops.core_code(dtype, "a result")
            step = _core.record_inspection(function, arrays, code, zeros)
        self._add(step, (), output.memory, *(p.memory for p in operands))

    def _record_call(self, s: Step, action: Call) -> None:
        recorders: dict[str, Callable[[Step, Call], bool]] = {
            "concatenate": self._record_concatenate,
            "pad": self._record_pad,
            "dynamic_slice": self._record_dynamic_slice,
            "dynamic_update_slice": self._record_dynamic_update_slice,
        }
        recorder = recorders.get(action.op.name)
        if recorder is not None and recorder(s, action):
            return
        if not self._record_bound(s, action):
            self._record_python(s)

    def _record_bound(self, s: Step, action: Call) -> bool:
        """The calls that the operation's row makes of its kernels."""
        op = action.op
        counted = self.observe == "counts" and ops.is_judged(op, action.attributes)
        types = [*(self.types[o] for o in s.operands), *(t for _, t in s.results)]
        reducer = action.attributes.get("reducer")  # what one operation reduces is looked at afterwards
        if op.bind is None or (counted and reducer is None):
            return False
        # Movement gives what is truncated already (C7).
        truncates = self.profile.int64 == "truncate" and op.cast != "movement"
        truncates = truncates and op.name not in ops.KEEPS_64_BITS
        if truncates and self.keeps_64_bits and any(t.dtype in ops.TRUNCATED for t in types):
            return False
        # Asked first on arrays that only stand for memory: it may be none of the core's.
        if not self._is_bound(s, action):
            return False
        dtype = s.results[0][1].dtype
        inspected = bool(counted and dtype.exponent_bits and reducer in ("add", "multiply"))
        count = len(s.results) if op.takes_over else 0
        places = [self.places[o] for o in s.operands]
        if op.dense:
            places[count:] = [self._dense(p, t) for p, t in zip(places, types, strict=False)][count:]
        if count:
            memories = [p.memory for p in places]
            # What is inspected afterwards stays as it was.
            others = [memories if inspected else memories[:n] + memories[n + 1 :] for n in range(count)]
            outputs = [
                self._taken_over(s, places[n], name, t, others[n])
                for n, (name, t) in enumerate(s.results)
            ]
        else:
            outputs = [self._new(name, t) for name, t in s.results]
        given = [self.places[name] for name, _ in s.results]
        pairs = zip(places, types, strict=False)
        operands = [Bits(p.array, t.dtype) for p, t in pairs]
        steps = op.bind(action.evaluation(operands, ops.Setting(action.profile)), outputs)
        assert steps is not None
        touched = [p.memory for p in places[count:]]
        touched += [self.places[name].memory for name, _ in s.results]
        for step in steps:
            self._add(step, s.members, *touched)
        for place, (name, t) in zip(given, s.results, strict=True):
            if truncates and t.dtype in ops.TRUNCATED:
                truncation = ops.truncation(t.dtype, self.profile)
                step = truncation.on([place.array], [self._new(name, t)])
                names = (s.name,) * step.record_count
                memory = self.places[name].memory
                self._add_observed(step, names, (), place.memory, memory, is_counted=True)
        if inspected:
            operand_types = [self.types[o].dtype for o in s.operands]
            function = inspect_call(s, action, operand_types, ops.Setting(action.profile))
            output = self.places[s.output]
            self._add_inspection(function, output, dtype, places, reducer == "multiply")
        return True

    def _is_bound(self, s: Step, action: Call) -> bool:
        """Whether the core computes it."""
        operands = [Bits(self.places[o].array, self.types[o].dtype) for o in s.operands]
        if action.op.dense:
            operands = [Bits(np.empty(x.data.shape, x.data.dtype), x.dtype) for x in operands]
        outputs = [np.empty(t.dims, t.dtype.storage) for _, t in s.results]
        assert action.op.bind is not None
        try:
            made = action.op.bind(action.evaluation(operands, ops.Setting(action.profile)), outputs)
        except NeuronSimError:
            return False  # its Python step says so when it runs
        return made is not None

    def _taken_over(
        self, s: Step, place: Place, name: str, t: ArrayType, others: Collection[Memory]
    ) -> BitsArray:
        """A result that starts as an operand: in its memory if nothing reads that later, and it is none
        of the others.
        """
        if self._may_overwrite(place) and place.memory not in others:
            self._set(name, place, t)
            return place.array
        output = self._new(name, t)
        step = _core.record_copy(place.array, output)
        self._add(step, s.members, place.memory, self.places[name].memory)
        return output

    def _record_view(self, s: Step, action: Call) -> bool:
        op = action.op
        if not is_view(s):
            return False
        (operand,), ((name, t),) = s.operands, s.results
        if op.name == "transpose" and ops.relayout_type(t.dtype, action.attributes, self.profile):
            return False
        place = self.places[operand]
        if op.name in BITCASTS:
            place = self._dense(place, self.types[operand])
        source = Bits(place.array, self.types[operand].dtype)
        view = op.evaluate_array([source], action.attributes, t, self.setting)
        if view.size and not np.may_share_memory(view, place.array):
            # No strides walk the elements in the new order: they are moved first.
            moved = self._memory(ArrayType(t.dtype, place.array.shape), owner=self.scope.number)
            step = _core.record_copy(place.array, moved.standin)
            self._add(step, s.members, place.memory, moved)
            place, view = Place(moved.standin, moved), moved.standin.reshape(t.dims)
        if view.size == place.array.size:  # NumPy's broadcasts are read-only, to one row too
            view.flags.writeable = place.array.flags.writeable
        self._set(name, Place(view, place.memory), t)
        return True

    def _record_python(self, s: Step) -> None:
        inputs = [self.places[o] for o in s.operands]
        types = [self.types[o].dtype for o in s.operands]
        outputs = [self._new(name, t) for name, t in s.results]
        self.python.append(s.name)
        step = _core.record_python(
            python_function(s, types, self.profile),
            [p.array for p in (*inputs, *self.trips)],
            outputs,
        )
        touched = [*(p.memory for p in (*inputs, *self.trips))]
        self._add(step, s.members, *touched, *(self.places[name].memory for name, _ in s.results))

    def _record_concatenate(self, s: Step, action: Call) -> bool:
        (axis,) = action.attributes["dimensions"]
        ((name, t),) = s.results
        target = self.joined.pop(name, None) or self._memory(t, owner=self.scope.number)
        self._set(name, Place(target.standin, target), t)
        start = 0
        for o in s.operands:
            place = self.places[o]
            length = place.array.shape[axis]
            part = target.standin[(slice(None),) * axis + (slice(start, start + length),)]
            if place.memory is not target or address(place.array) != address(part):
                self._add(_core.record_copy(place.array, part), s.members, place.memory, target)
            start += length
        return True

    def _record_pad(self, s: Step, action: Call) -> bool:
        array, value = (self.places[o] for o in s.operands)
        padding: Sequence[tuple[int, int, int]] = action.attributes["padding"]
        ((name, t),) = s.results
        output = self._new(name, t)
        target = self.places[name].memory
        fill = np.broadcast_to(value.array, t.dims)
        self._add(_core.record_copy(fill, output), s.members, value.memory, target)
        kept: list[Any] = []  # of the array: negative padding takes elements away
        inside: list[Any] = []
        for n, end, (low, _, interior) in zip(array.array.shape, t.dims, padding, strict=True):
            step = interior + 1
            first = max(0, -(low // step))
            begin = low + first * step
            count = max(0, min(n - first, -((begin - end) // step)))
            kept.append(slice(first, first + count))
            inside.append(slice(begin, begin + count * step, step))
        # With the ellipsis the part of a scalar is an array as well.
        part = array.array[(*kept, ...)]
        if part.size:
            self._add(_core.record_copy(part, output[(*inside, ...)]), s.members, array.memory, target)
        return True

    def _starts(self, names: Sequence[str], rank: int) -> list[tuple[BitsArray, int]] | None:
        """The places of a dynamic slice's indices: scalars, or once one vector of them."""
        arrays = [(self.places[n].array, self.types[n].dtype.code) for n in names]
        if len(arrays) == 1 and arrays[0][0].ndim == 1:
            arrays = [(arrays[0][0][n : n + 1], arrays[0][1]) for n in range(rank)]
        if len(arrays) != rank:
            return None
        return [(a, code) for a, code in arrays if code is not None]

    def _record_dynamic_slice(self, s: Step, action: Call) -> bool:
        ((name, t),) = s.results
        source, indices = self.places[s.operands[0]], s.operands[1:]
        starts = self._starts(indices, len(t.dims))
        if starts is None:
            return False
        limits = [n - k for n, k in zip(source.array.shape, t.dims, strict=True)]
        touched = [source.memory, *(self.places[n].memory for n in indices)]
        part = source.array[tuple(slice(n) for n in t.dims)]
        is_own = source.memory.owner == self.scope.number
        is_read_later = self.scope.last_use[s.operands[0]] > self.scope.step
        is_copied = part.nbytes <= FEW_BYTES and is_own and is_read_later
        if part.size and part.flags.c_contiguous and not is_copied:
            # Its readers walk the array's own memory, from where the step finds that it begins.
            window = self._memory(t, slot=NOWHERE)
            self.windows.append(window)
            step = _core.record_window(source.array, window.standin, starts, limits)
            self._add(step, s.members, *touched)
            self._set(name, Place(window.standin, source.memory), t)
            return True
        output = self._new(name, t)
        step = _core.record_dynamic_copy(source.array, output, starts, limits, True)
        self._add(step, s.members, *touched, self.places[name].memory)
        return True

    def _record_dynamic_update_slice(self, s: Step, action: Call) -> bool:
        ((name, t),) = s.results
        operand, update, *_ = (self.places[o] for o in s.operands)
        indices = s.operands[2:]
        starts = self._starts(indices, len(t.dims))
        if starts is None:
            return False
        others = [update.memory, *(self.places[n].memory for n in indices)]
        target = self._taken_over(s, operand, name, t, others)
        limits = [n - k for n, k in zip(t.dims, update.array.shape, strict=True)]
        step = _core.record_dynamic_copy(update.array, target, starts, limits, False)
        self._add(step, s.members, *others, self.places[name].memory)
        return True

    # ---- control flow --------------------------------------------------------------------------

    def _nested(self) -> tuple[list[_core.Call], list[tuple[str, ...]]]:
        """Starts a list of steps of its own; returns the one around it."""
        around = self.recorded, self.names
        self.recorded, self.names = [], []
        return around

    def _record_while(self, s: Step, action: While) -> None:
        states: list[Place] = []
        # What is read again in every trip, and what is a state already.
        kept = {self.places[name].memory for name in s.inner_reads}
        for o, (name, t) in zip(s.operands, s.results, strict=True):
            self._taken_over(s, self.places[o], name, t, kept)
            states.append(self.places[name])
            kept.add(self.places[name].memory)
        trips = self._memory(ArrayType(dtypes.int64, ()))
        self.trips.append(Place(trips.standin, trips))
        self.position += 1  # for what is packed before the loop
        around = self._nested()
        self.loops.append(Loop(self.position, around, {p.memory for p in states}))
        self._touch([trips, *(p.memory for p in states)])
        asked = action.condition
        if isinstance(asked, Count):
            counters = [self._memory(t) for _, t, *_ in asked.counters]
            self._touch(counters)
            for (name, t, *_), memory in zip(asked.counters, counters, strict=True):
                self.places[name], self.types[name] = Place(memory.standin, memory), t
        else:
            self._steps(asked)
            condition, self.recorded, self.names = self.recorded, [], []
            (goes_on,) = (self.places[name] for name in asked.results)
            self._touch([goes_on.memory])
        self._record_body(action.body, states)
        body = self.recorded
        self.recorded, self.names = around
        loop = self.loops.pop()
        self.trips.pop()
        if isinstance(asked, Count):
            pairs = zip(counters, asked.counters, strict=True)
            counted = [(m.standin, start, by) for m, (_, _, start, by) in pairs]
            step = _core.record_count(asked.trips, counted, body, trips.standin)
            own = [trips, *counters]
        else:
            step = _core.record_while(condition, goes_on.array, body, trips.standin)
            own = [trips]
        # What lies around the loop is read again in the next trip.
        self._add(step, s.members, *(m for m in loop.touched if m.first < loop.begin), *own)

    def _record_body(self, body: Region, states: Sequence[Place]) -> None:
        """A loop's body, which may overwrite the states, and then the copies that carry them on."""
        owners = [(p.memory, p.memory.owner, p.memory.views) for p in states]
        for name, p in zip(body.parameters, states, strict=True):
            p.memory.owner, p.memory.views = self.scopes, {name}
        counts = Counter(body.results)
        pairs = zip(body.results, states, strict=True)
        self.wanted |= {name: place for name, place in pairs if counts[name] == 1}
        self._steps(body)
        results = [self.places[name] for name in body.results]
        memories = {p.memory for p in states}
        pending = [n for n, r in enumerate(results) if not is_same(r, states[n])]
        for n in pending:
            if results[n].memory in memories:  # another state, that a copy may overwrite before
                results[n] = self._saved(results[n], self.types[body.results[n]])
        for n in pending:
            step = _core.record_copy(results[n].array, states[n].array)
            self._add(step, (), results[n].memory, states[n].memory)
        for memory, owner, views in owners:
            memory.owner, memory.views = owner, views

    def _record_conditional(self, s: Step, action: Conditional) -> None:
        index, t = self.places[s.operands[0]], self.types[s.operands[0]]
        outputs = [self._new(name, kind) for name, kind in s.results]
        targets = [self.places[name].memory for name, _ in s.results]
        self._touch([index.memory])
        branches = []
        around = self._nested()
        for branch in action.branches:
            self._steps(branch)
            for name, output, target in zip(branch.results, outputs, targets, strict=True):
                place = self.places[name]
                self._add(_core.record_copy(place.array, output), (), place.memory, target)
            branches.append(self.recorded)
            self.recorded = []
        self.recorded, self.names = around
        if t.dtype is dtypes.boolean:
            branches.reverse()  # true takes the first branch
        assert t.dtype.code is not None
        step = _core.record_conditional((index.array, t.dtype.code), branches)
        self._add(step, s.members, index.memory, *targets)
