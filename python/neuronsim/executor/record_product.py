"""Products as the core's steps: right operands packed once for several, and what looks into results."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace

from neuronsim import _core, dtypes, ops
from neuronsim.executor.evaluate import inspect_product
from neuronsim.executor.memory import Memory, Place
from neuronsim.executor.recorder import StepRecorder
from neuronsim.executor.steps import Product, Step
from neuronsim.ops import ArrayType

# Packing a right operand for so few rows takes a good part of the product's own time.
FEW_ROWS = 32


def record_product(r: StepRecorder, s: Step, action: Product) -> None:
    """A product, what packs its right operand once, and under `observe` what looks into it."""
    places = [r.places[o] for o in s.operands]
    fusion = ops.with_terms(action.fusion, [p.array for p in places[2:]])
    ((name, t),) = s.results
    output = r.place_new(name, t)
    evaluation = action.call.evaluation([p.bits for p in places[:2]], ops.Setting(r.profile))
    touched = [*(p.memory for p in places), r.places[name].memory]
    columns = _packed_once(r, s, action, evaluation, places[1])
    if columns is None:
        step = ops.bind_product(evaluation, output, fusion)
    else:
        packed, memory = columns
        step = ops.bind_product(evaluation, output, replace(fusion, packed=packed), memory.standin)
        touched.append(memory)
    if r.observe == "off":
        return r.add(step, s.members, *touched)
    for side, fused in enumerate((fusion.lhs, fusion.rhs)):
        if fused is not None:
            prologue = fused[0].prologue_on(places[side].array)
            r.add_observed(prologue, action.prologues[side], (), places[side].memory)
    sums = len(r.records)
    records = () if fusion.epilogue is None else (action.name, *action.epilogue)
    r.add_observed(step, records, s.members, *touched)
    return _inspect_product(r, s, action, sums)


def _packed_once(
    r: StepRecorder, s: Step, action: Product, evaluation: ops.Evaluation, rhs: Place
) -> tuple[_core.PackedColumns, Memory] | None:
    """The columns of a right operand that all trips of a loop multiply by, packed before that, or
    of one that several of these steps do, packed for the first of them.
    """
    loop = r.loop_around(rhs)
    name = s.operands[1]
    if action.fusion.packed is not None or (loop is None and r.at.scope.multiplied[name] < 2):
        return None
    if r.at.loops and ops.is_few(evaluation, action.fusion):
        return None
    fused = action.fusion.rhs
    lhs = ops.left_type(evaluation, action.fusion)
    attributes = repr(sorted(action.call.attributes.items()))
    key = (name, attributes, lhs, action.result, None if fused is None else fused[0])
    known = r.at.scope.packed if loop is None else loop.packed
    if key not in known:
        most_rows = FEW_ROWS if loop is None else math.inf
        found = ops.pack_in_run(evaluation, action.fusion, most_rows)
        if found is None:
            return None
        columns, pack = found
        with nullcontext() if loop is None else r.before(loop):
            memory = r.new_memory(ArrayType(dtypes.uint8, (columns.nbytes,)))
            r.add(pack(memory.standin), s.members, rhs.memory, memory)
        known[key] = columns, memory
    return known[key]


def _inspect_product(r: StepRecorder, s: Step, action: Product, sums: int) -> None:
    """A step that looks into a product whose result, or the sums that its epilogue took, call for
    it; `sums` is the number of their record.
    """
    t = action.result
    if not t.dtype.exponent_bits:
        return
    count = 1 if action.reads_packed else 2
    given = [r.places[o] for o in s.operands[:count]]
    types = [r.places[o].dtype for o in s.operands[:2]]
    function = inspect_product(action, types, r.profile)
    if action.fusion.epilogue is None:
        zeros = ops.rounds_sums(t.dtype, r.profile)
        r.add_inspection(function, r.places[s.output], given, zeros)
        return
    step = _core.record_sums_inspection(function, [p.array for p in given])
    step.set_first_record(sums)
    r.add(step, (), *(p.memory for p in given))
