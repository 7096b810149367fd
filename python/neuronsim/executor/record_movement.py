"""What moves elements as the core's steps: copies between parts of memory, or none.

A view (reshape, broadcast, transpose, slice, reverse) is no step: its readers walk the memory of what
it views.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neuronsim import _core, ops
from neuronsim.executor.memory import WINDOW, Place, address
from neuronsim.executor.recorder import StepRecorder
from neuronsim.executor.steps import BITCASTS, Call, Step, is_view
from neuronsim.ops import ArrayType, BitsArray

# So small a part of an array that later steps may overwrite is copied: finding it takes as long.
FEW_BYTES = 64


def record_view(r: StepRecorder, s: Step, action: Call) -> bool:
    """Whether the step is a view, which is recorded then; the others return whether they were."""
    op = action.op
    if not is_view(s):
        return False
    (operand,), ((name, t),) = s.operands, s.results
    if op.name == "transpose" and ops.relayout_type(t.dtype, action.attributes, r.profile):
        return False
    place = r.places[operand]
    if op.name in BITCASTS:
        place = r.as_dense(place)
    view = op.evaluate_array([place.bits], action.attributes, t, ops.Setting(r.profile))
    if view.size and not np.may_share_memory(view, place.array):
        # No strides walk the elements in the new order: they are moved first.
        moved = r.new_memory(ArrayType(t.dtype, place.array.shape), owner=r.at.scope.number)
        step = _core.record_copy(place.array, moved.standin)
        r.add(step, s.members, place.memory, moved)
        place, view = Place(moved.standin, t.dtype, moved), moved.standin.reshape(t.dims)
    if view.size == place.array.size:  # NumPy's broadcasts are read-only, to one row too
        view.flags.writeable = place.array.flags.writeable
    r.set_place(name, Place(view, t.dtype, place.memory))
    return True


def record_concatenate(r: StepRecorder, s: Step, action: Call) -> bool:
    """A copy of each part that does not lie in its place already."""
    (axis,) = action.attributes["dimensions"]
    ((name, t),) = s.results
    joined = r.joined.pop(name, None)
    if joined is not None:
        r.set_place(name, Place(joined.standin, t.dtype, joined))
    else:
        r.place_result(name, t)
    target = r.places[name]
    start = 0
    for o in s.operands:
        place = r.places[o]
        length = place.array.shape[axis]
        part = target.array[(slice(None),) * axis + (slice(start, start + length),)]
        if place.memory is not target.memory or address(place.array) != address(part):
            r.add(_core.record_copy(place.array, part), s.members, place.memory, target.memory)
        start += length
    return True


def record_pad(r: StepRecorder, s: Step, action: Call) -> bool:
    """A fill of the result, and a copy of the array into it."""
    array, value = (r.places[o] for o in s.operands)
    ((name, t),) = s.results
    output = r.place_result(name, t)
    target = r.places[name].memory
    fill = np.broadcast_to(value.array, t.dims)
    r.add(_core.record_copy(fill, output), s.members, value.memory, target)
    kept, inside = ops.pad_slices(array.array.shape, t.dims, action.attributes["padding"])
    part = array.array[kept]
    if part.size:
        r.add(_core.record_copy(part, output[inside]), s.members, array.memory, target)
    return True


def _starts(r: StepRecorder, names: Sequence[str], rank: int) -> list[tuple[BitsArray, int]] | None:
    """The places of a dynamic slice's indices: scalars, or once one vector of them."""
    arrays = [(r.places[n].array, r.places[n].dtype.code) for n in names]
    if len(arrays) == 1 and arrays[0][0].ndim == 1:
        arrays = [(arrays[0][0][n : n + 1], arrays[0][1]) for n in range(rank)]
    if len(arrays) != rank:
        return None
    return [(a, code) for a, code in arrays if code is not None]


def record_dynamic_slice(r: StepRecorder, s: Step, action: Call) -> bool:
    """A window on the array's own memory, or a copy where it is small or lies in pieces."""
    ((name, t),) = s.results
    source, indices = r.places[s.operands[0]], s.operands[1:]
    starts = _starts(r, indices, len(t.dims))
    if starts is None:
        return False
    limits = [n - k for n, k in zip(source.array.shape, t.dims, strict=True)]
    touched = [source.memory, *(r.places[n].memory for n in indices)]
    part = source.array[tuple(slice(n) for n in t.dims)]
    is_own = source.memory.owner == r.at.scope.number
    is_read_later = r.at.scope.last_use[s.operands[0]] > r.at.scope.step
    is_copied = part.nbytes <= FEW_BYTES and is_own and is_read_later
    if part.size and part.flags.c_contiguous and not is_copied:
        # Its readers walk the array's own memory, from where the step finds that it begins.
        window = r.new_memory(t, slot=WINDOW)
        step = _core.record_window(source.array, window.standin, starts, limits)
        r.add(step, s.members, *touched)
        r.set_place(name, Place(window.standin, t.dtype, source.memory))
        return True
    output = r.place_new(name, t)
    step = _core.record_dynamic_copy(source.array, output, starts, limits, True)
    r.add(step, s.members, *touched, r.places[name].memory)
    return True


def record_dynamic_update_slice(r: StepRecorder, s: Step, action: Call) -> bool:
    """A copy of the update into the array's memory, or into a copy of it that others still read."""
    ((name, t),) = s.results
    operand, update, *_ = (r.places[o] for o in s.operands)
    indices = s.operands[2:]
    starts = _starts(r, indices, len(t.dims))
    if starts is None:
        return False
    others = [update.memory, *(r.places[n].memory for n in indices)]
    target = r.take_over(s, operand, name, others)
    limits = [n - k for n, k in zip(t.dims, update.array.shape, strict=True)]
    step = _core.record_dynamic_copy(update.array, target, starts, limits, False)
    r.add(step, s.members, *others, r.places[name].memory)
    return True
