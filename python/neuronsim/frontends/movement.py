"""NumPy's movements of elements as instructions: reshapes, broadcasts, indices, joins.

What is known of a movement before it runs is found by moving the numbers of the elements with NumPy
itself: `positions` of the result in the operand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, InvalidIndex
from neuronsim.frontends.recorder import Value, active_recorder
from neuronsim.records import is_int

Positions = npt.NDArray[np.int64]


def row(name: str, operands: Sequence[Value], **attributes: Any) -> Value:
    """One row of the op table, recorded where recording is."""
    return active_recorder().record(ops.by_name(name), operands, attributes)


def known(data: Any, dtype: DType) -> Value:
    """A constant."""
    return active_recorder().constant(ops.Bits(np.asarray(data, dtype.storage), dtype))


def converted(x: Value, dtype: DType) -> Value:
    """The values in another type by rules C."""
    return x if x.type.dtype is dtype else row("convert", [x], dtype=dtype)


def reinterpreted(x: Value, dtype: DType) -> Value:
    """The bits as another type of the same size."""
    if x.type.dtype is dtype:
        return x
    if dtypes.boolean in (dtype, x.type.dtype):  # whose bits are 0 and 1
        return converted(x, dtype)
    return row("bitcast_convert", [x], dtype=dtype, dims=x.type.dims)


def reshaped(x: Value, dims: Sequence[int]) -> Value:
    """The same elements, row-major, in another shape."""
    made = active_recorder().producer(x)
    if made is not None and made.opcode == "reshape":
        x = active_recorder().operand(made, 0)
    return x if tuple(dims) == x.type.dims else row("reshape", [x], dims=tuple(dims))


def transposed(x: Value, axes: Sequence[int]) -> Value:
    """The axes in another order."""
    order = tuple(axes)
    if order == tuple(range(len(order))):
        return x
    return row("transpose", [x], dimensions=order)


def broadcast(x: Value, dims: Sequence[int]) -> Value:
    """NumPy's broadcast: axes are added before the others, and those of length 1 repeated."""
    dims, own = tuple(dims), x.type.dims
    if dims == own:
        return x
    offset = len(dims) - len(own)
    if offset < 0 or any(n not in (1, dims[offset + d]) for d, n in enumerate(own)):
        raise InvalidArgument(f"{x.type} does not broadcast to {dims}")
    kept = [d for d, n in enumerate(own) if n == dims[offset + d]]
    x = reshaped(x, [own[d] for d in kept])
    return row("broadcast", [x], dims=dims, dimensions=tuple(offset + d for d in kept))


def joined(values: Sequence[Value], axis: int) -> Value:
    """The arrays, one after the other along an axis."""
    return values[0] if len(values) == 1 else row("concatenate", values, dimensions=(axis,))


@dataclass(frozen=True)
class _Lattice:
    """Elements of a row-major array that lie evenly: the number of the first one, and how far apart
    in these numbers neighbours along each axis are.
    """

    first: int
    steps: tuple[int, ...]
    dims: tuple[int, ...]


def moved(x: Value, function: Callable[[Positions], Any]) -> Value:
    """What a function of NumPy's that only moves elements makes of an array."""
    return taken_from(x, np.asarray(function(_numbers(x.type.dims))))


def taken_from(x: Value, positions: Positions) -> Value:
    """The elements whose numbers in `x`, row-major, these are: by slices if evenly spaced."""
    lattice = _lattice(positions)
    found = None if lattice is None else _at_lattice(x, lattice)
    if found is not None:
        return found
    flat = reshaped(x, (x.type.size,))
    return reshaped(taken(flat, known(positions.reshape(-1), dtypes.int64), 0), positions.shape)


def sliced(x: Value, key: Any) -> Value:
    """`x[key]` of integers, slices, new axes and `...`."""
    found = _at_lattice(x, _sliced_lattice(x.type.dims, key))
    return moved(x, lambda numbers: numbers[key]) if found is None else found


def replaced(x: Value, key: Any, update: Value) -> Value:
    """`x` with `x[key] = update`, of a key that is known."""
    dims = x.type.dims
    if is_basic(key):
        lattice = _sliced_lattice(dims, key)
        update = broadcast(update, lattice.dims)
        found = _with_block(x, lattice, update)
        if found is not None:
            return found
    places = np.asarray(_numbers(dims)[key])
    return put_at(x, places, broadcast(update, places.shape))


def put_at(x: Value, places: Positions, update: Value) -> Value:
    """`x` with other elements at the places of these numbers, row-major."""
    lattice = _lattice(places)
    block = None if lattice is None else _with_block(x, lattice, update)
    if block is not None:
        return block
    # Each element is one of the old, or one of the new that follow them.
    source = _numbers(x.type.dims).reshape(-1).copy()
    source[places.reshape(-1)] = source.size + np.arange(places.size)
    flat = [reshaped(v, (v.type.size,)) for v in (x, update)]
    return reshaped(taken(joined(flat, 0), known(source, dtypes.int64), 0), x.type.dims)


def is_basic(key: Any) -> bool:
    """Whether NumPy gives a view at this key: integers, slices, new axes and `...` alone."""
    parts = key if isinstance(key, tuple) else (key,)
    return all(
        k is None
        or k is Ellipsis
        or (isinstance(k, int | slice | np.integer) and not isinstance(k, bool))
        for k in parts
    )


def row_major(dims: Sequence[int], dtype: npt.DTypeLike) -> Any:
    """The layout of an array of its own: addresses and no memory, since nobody reads it."""
    one = np.empty(1, dtype)
    return np.lib.stride_tricks.as_strided(one, dims, [s * one.itemsize for s in _strides(dims)])


def _numbers(dims: Sequence[int]) -> Positions:
    return np.arange(math.prod(dims), dtype=np.int64).reshape(dims)


def _strides(dims: Sequence[int]) -> list[int]:
    """How far apart in row-major numbers neighbours along each axis are."""
    return [math.prod(dims[d + 1 :]) for d in range(len(dims))]


def _sliced_lattice(dims: Sequence[int], key: Any) -> _Lattice:
    whole = row_major(dims, np.int8)
    # An Ellipsis more makes a view of what NumPy would copy as an element.
    part = whole[(*(key if isinstance(key, tuple) else (key,)), *_ellipsis(key))]
    (first, _), (start, _) = (a.__array_interface__["data"] for a in (whole, part))
    return _Lattice(start - first, part.strides, part.shape)


def _ellipsis(key: Any) -> tuple[Any, ...]:
    parts = key if isinstance(key, tuple) else (key,)
    return () if any(k is Ellipsis for k in parts) else (Ellipsis,)


def _lattice(positions: Positions) -> _Lattice | None:
    """Numbers that lie evenly; None of others."""
    if positions.size == 0:
        return _Lattice(0, (0,) * positions.ndim, positions.shape)
    first = int(positions.flat[0])
    steps = tuple(
        int(positions[tuple(int(e == d) for e in range(positions.ndim))]) - first if n > 1 else 0
        for d, n in enumerate(positions.shape)
    )
    spread = np.full(positions.shape, first, np.int64)
    for d, (n, step) in enumerate(zip(positions.shape, steps, strict=True)):
        spread += (np.arange(n) * step).reshape([n if e == d else 1 for e in range(positions.ndim)])
    return _Lattice(first, steps, positions.shape) if np.array_equal(spread, positions) else None


def _along_axes(dims: Sequence[int], lattice: _Lattice) -> dict[int, int] | None:
    """Along which axis of a row-major array each axis of a lattice goes that goes anywhere; None where
    one goes along several.
    """
    strides, found = _strides(dims), dict[int, int]()
    for d, (step, length) in enumerate(zip(lattice.steps, lattice.dims, strict=True)):
        if length == 1 or step == 0:
            continue
        for axis, (s, n) in enumerate(zip(strides, dims, strict=True)):
            if n > 1 and step % s == 0 and abs(step) < s * n and axis not in found.values():
                place = lattice.first // s % n
                if not 0 <= place + step // s * (length - 1) < n:
                    return None
                found[d] = axis
                break
        else:
            return None
    return found


def _at_lattice(x: Value, lattice: _Lattice) -> Value | None:
    """The elements by a transpose, slices, reversals and broadcasts; None where they do not suffice."""
    if 0 in lattice.dims:
        return broadcast(known(0, x.type.dtype), lattice.dims)
    dims = x.type.dims
    source = _along_axes(dims, lattice)
    if source is None:
        return None
    strides = _strides(dims)
    place = [lattice.first // s % n for s, n in zip(strides, dims, strict=True)]
    ranges = [(p, p + 1, 1) for p in place]
    turned = []
    for d, axis in source.items():
        step = lattice.steps[d] // strides[axis]
        last = place[axis] + step * (lattice.dims[d] - 1)
        ranges[axis] = (min(place[axis], last), max(place[axis], last) + 1, abs(step))
        if step < 0:
            turned.append(axis)
    if ranges != [(0, n, 1) for n in dims]:
        x = row("slice", [x], slice=tuple(ranges))
    if turned:
        x = row("reverse", [x], dimensions=tuple(sorted(turned)))
    order = sorted(source, key=lambda d: source[d])
    x = reshaped(x, [lattice.dims[d] for d in order])
    kept = sorted(source)
    x = transposed(x, [order.index(d) for d in kept])
    if kept != list(range(len(lattice.dims))) or x.type.dims != lattice.dims:
        full = [n if d in source else 1 for d, n in enumerate(lattice.dims)]
        x = broadcast(reshaped(x, full), lattice.dims)
    return x


def _with_block(x: Value, lattice: _Lattice, update: Value) -> Value | None:
    """`x` with other elements where a lattice is a block of neighbours; None where it is not."""
    dims = x.type.dims
    if 0 in lattice.dims:
        return x
    source = _along_axes(dims, lattice)
    repeated = any(s == 0 and n > 1 for s, n in zip(lattice.steps, lattice.dims, strict=True))
    if source is None or repeated or sorted(source.values()) != list(source.values()):
        return None
    strides, sizes = _strides(dims), [1] * len(dims)
    for d, axis in source.items():
        if lattice.steps[d] != strides[axis]:
            return None
        sizes[axis] = lattice.dims[d]
    if sizes == list(dims):
        return reshaped(update, dims)
    begin = [known(lattice.first // s % n, dtypes.int32) for s, n in zip(strides, dims, strict=True)]
    return row("dynamic_update_slice", [x, reshaped(update, sizes), *begin])


def wrapped(indices: Value, length: int) -> Value:
    """Indices that count from the end as those that count from the start."""
    wide = converted(indices, dtypes.int64)
    if indices.type.dtype.kind == "unsigned":
        return wide
    dims = wide.type.dims
    below = row("less", [wide, broadcast(known(0, dtypes.int64), dims)])
    shifted = row("add", [wide, broadcast(known(length, dtypes.int64), dims)])
    return row("select", [below, shifted, wide])


def taken(x: Value, indices: Value, axis: int) -> Value:
    """The slices of `x` at places along an axis, all of which lie in it: the axis becomes those of
    `indices`. A place outside is the nearest one, as HLO's gather has it.
    """
    dims, places = x.type.dims, indices.type.dims
    batch, rank = range(axis, axis + len(places)), len(dims) - 1 + len(places)
    dimensions = ops.GatherDimensions.slices((axis,), batch, rank)
    sizes = tuple(min(n, 1) if d == axis else n for d, n in enumerate(dims))
    return row("gather", [x, indices], gather_dimensions=dimensions, slice_sizes=sizes)


def taken_along(x: Value, indices: Value, axis: int) -> Value:
    """Of each line along an axis the elements at its own places; the other axes broadcast."""
    dims, places = x.type.dims, indices.type.dims
    others = tuple(
        n if d == axis else max(n, places[d]) if 0 not in (n, places[d]) else 0
        for d, n in enumerate(dims)
    )
    x = broadcast(x, others)
    indices = broadcast(indices, [p if d == axis else others[d] for d, p in enumerate(places)])
    dimensions = ops.GatherDimensions.lines(axis, len(dims))
    sizes = tuple(min(n, 1) for n in others)
    return row("gather", [x, indices], gather_dimensions=dimensions, slice_sizes=sizes)


# ---- indices that are traced --------------------------------------------------------------------


def indexed(x: Value, key: Sequence[Any]) -> Value:
    """`x[key]` where some of the key's parts are `Value`s of integers."""
    parts = _expanded(key, len(x.type.dims))
    # Integers beside arrays of indices are arrays of them too, as NumPy has it.
    plain = tuple(slice(None) if isinstance(k, Value | np.ndarray | int) else k for k in parts)
    x = sliced(x, plain)
    axes, stacked, batch = _index_vectors(parts, x)
    rank = len(x.type.dims) - len(axes) + len(batch)
    dimensions = ops.GatherDimensions.slices(axes, batch, rank)
    sizes = tuple(min(n, 1) if d in axes else n for d, n in enumerate(x.type.dims))
    return row("gather", [x, stacked], gather_dimensions=dimensions, slice_sizes=sizes)


def updated(x: Value, key: Sequence[Any], update: Value, computation: str | None = None) -> Value:
    """`x` with `x[key] = update`, where some of the key's parts are `Value`s of integers: the last of
    those that name one place stays, or what a computation gives of an element and its update.
    """
    parts = _expanded(key, len(x.type.dims))
    if any(k is None or (isinstance(k, slice) and k != slice(None)) for k in parts):
        # In the part that slices and new axes make, which is then put back.
        part = tuple(slice(None) if isinstance(k, Value | np.ndarray | int) else k for k in parts)
        whole = [slice(None) if k is None or isinstance(k, slice) else k for k in parts]
        return replaced(x, part, updated(sliced(x, part), whole, update, computation))
    axes, stacked, batch = _index_vectors(parts, x)
    dims = [n for d, n in enumerate(x.type.dims) if d not in axes]
    dims[batch.start : batch.start] = stacked.type.dims[:-1]
    dimensions = ops.ScatterDimensions(
        update_window_dims=tuple(d for d in range(len(dims)) if d not in batch),
        inserted_window_dims=axes,
        scatter_dims_to_operand_dims=axes,
        index_vector_dim=len(batch),
    )
    recorder = active_recorder()
    if computation is None:
        computation = recorder.reducer("second", x.type.dtype)
    return recorder.add(
        "scatter", x.shape, [x, stacked, broadcast(update, dims)],
        {"scatter_dimensions": dimensions, "called": (computation,)},
    )  # fmt: skip


def updated_at(x: Value, places: Positions, update: Value, computation: str) -> Value:
    """The same at the places of these numbers, row-major."""
    flat, line = reshaped(x, (x.type.size,)), places.reshape(-1)
    update = reshaped(broadcast(update, places.shape), line.shape)
    return reshaped(updated(flat, [line], update, computation), x.type.dims)


def _index_vectors(parts: Sequence[Any], x: Value) -> tuple[tuple[int, ...], Value, range]:
    """Which axes of what the slices and new axes leave are indexed by arrays, the vectors of these
    indices, and which axes of the result they make: those in their place, or the first where others
    stand between them, as NumPy has it.
    """
    places = {axis: k for axis, k in enumerate(parts) if isinstance(k, Value | np.ndarray) or is_int(k)}
    indices = []
    for axis, k in places.items():
        length = x.type.dims[axis]
        if not isinstance(k, Value):
            array = np.asarray(k, np.int64)
            if ((array < -length) | (array >= length)).any():
                raise InvalidIndex(f"index {k} is outside of axis {axis} of {x.type}")
            k = known(array, dtypes.int64)
        indices.append(wrapped(k, length))
    shape = ops.broadcast_dims(*(v.type.dims for v in indices))
    stacked = joined([reshaped(broadcast(v, shape), (*shape, 1)) for v in indices], len(shape))
    axes = tuple(places)
    first = axes[0] if axes == tuple(range(axes[0], axes[0] + len(axes))) else 0
    return axes, stacked, range(first, first + len(shape))


def _expanded(key: Sequence[Any], rank: int) -> list[Any]:
    """The key with `...` spelled out, a part for each axis."""
    parts = list(key)
    if not any(k is Ellipsis for k in parts):
        parts.append(Ellipsis)
    named = sum(k is not None and k is not Ellipsis for k in parts)
    if named > rank:
        raise InvalidIndex(f"{named} indices of an array of {rank} axes")
    at = next(n for n, k in enumerate(parts) if k is Ellipsis)
    return [*parts[:at], *[slice(None)] * (rank - named), *parts[at + 1 :]]
