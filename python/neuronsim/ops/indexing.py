"""Reading and writing parts of arrays: pad, slices at computed places, gather, scatter (R5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim import _core
from neuronsim.errors import InvalidArgument
from neuronsim.ops.computations import (
    ScalarComputation,
    applied_computations,
    check_computation,
    computation_program,
    evaluate_computation,
    is_on_host,
)
from neuronsim.ops.rows import (
    ArrayType,
    Attributes,
    Bits,
    BitsArray,
    Data,
    GatherDimensions,
    Op,
    Result,
    ScatterDimensions,
    Setting,
    check_axes,
    one_or_tuple,
)

_Integers = npt.NDArray[np.int64]


def infer_pad(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    x, value = operands
    padding: Sequence[tuple[int, int, int]] = attributes["padding"]
    if value != ArrayType(x.dtype, ()):
        raise InvalidArgument(f"{value} does not pad {x}")
    if len(padding) != len(x.dims):
        raise InvalidArgument(f"the padding of {x} has {len(x.dims)} dimensions, not {len(padding)}")
    dims = []
    for (low, high, interior), n in zip(padding, x.dims, strict=True):
        size = low + high + n + interior * max(n - 1, 0)
        if interior < 0 or size < 0:
            raise InvalidArgument(f"padding {low}_{high}_{interior} leaves {size} of {n} elements")
        dims.append(size)
    return ArrayType(x.dtype, tuple(dims))


def evaluate_pad(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    x, value = (b.data for b in operands)
    output = np.full(result.dims, value, x.dtype)
    source, target = [], []
    for (low, _, interior), n, size in zip(attributes["padding"], x.shape, result.dims, strict=True):
        step = interior + 1
        first = max(-(low // step), 0)  # negative padding crops
        last = max(min((size - 1 - low) // step + 1, n), first)
        start = low + first * step
        source.append(slice(first, last))
        target.append(slice(start, start + (last - first) * step, step))
    output[tuple(target)] = x[tuple(source)]
    return output


# ---- slices at computed places --------------------------------------------------------------------


def infer_dynamic_slice(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    x, *starts = operands
    sizes = tuple(attributes["dynamic_slice_sizes"])
    _check_starts(starts, x)
    _check_slice(sizes, x)
    return ArrayType(x.dtype, sizes)


def infer_dynamic_update_slice(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    if len(operands) < 2:
        raise InvalidArgument("takes an array, its update and where that begins")
    x, update, *starts = operands
    _check_starts(starts, x)
    if update.dtype is not x.dtype:
        raise InvalidArgument(f"{update} does not update {x}")
    _check_slice(update.dims, x)
    return x


def _check_starts(starts: Sequence[ArrayType], x: ArrayType) -> None:
    """A scalar for each dimension or, as XLA once had it, one vector."""
    rank = len(x.dims)
    is_vector = len(starts) == 1 and starts[0].dims == (rank,)
    if not is_vector and (len(starts) != rank or any(t.dims != () for t in starts)):
        raise InvalidArgument(
            f"a slice of {x} begins at {rank} scalars, not at {', '.join(map(str, starts))}"
        )
    for t in starts:
        _check_integers(t)


def _check_integers(t: ArrayType) -> None:
    if t.dtype.kind not in ("signed", "unsigned"):
        raise InvalidArgument(f"the indices {t} are not integers")


def _check_slice(sizes: Sequence[int], x: ArrayType) -> None:
    fits = len(sizes) == len(x.dims) and all(
        0 <= size <= n for size, n in zip(sizes, x.dims, strict=True)
    )
    if not fits:
        raise InvalidArgument(f"a slice of sizes {tuple(sizes)} does not fit in {x}")


def _clamped_slice(x: BitsArray, sizes: Sequence[int], starts: Sequence[Bits]) -> BitsArray:
    """The part of an array that begins at the starts, moved to where it fits."""
    places = [int(n) for b in starts for n in b.data.reshape(-1)]
    clamped = [min(max(at, 0), n - size) for at, n, size in zip(places, x.shape, sizes, strict=True)]
    parts: list[Any] = [slice(at, at + size) for at, size in zip(clamped, sizes, strict=True)]
    return x[(*parts, ...)]  # a view, also of an array without dimensions


def evaluate_dynamic_slice(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    return _clamped_slice(operands[0].data, result.dims, operands[1:])


def evaluate_dynamic_update_slice(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    x, update, *starts = operands
    output = np.array(x.data, order="C")
    _clamped_slice(output, update.data.shape, starts)[...] = update.data
    return output


# ---- gather ---------------------------------------------------------------------------------------


def infer_gather(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    x, indices = operands
    d: GatherDimensions = attributes["gather_dimensions"]
    sizes = tuple(attributes["slice_sizes"])
    _check_slice(sizes, x)
    batch = _check_index_vectors(
        x, indices, d.index_vector_dim, d.start_index_map,
        d.operand_batching_dims, d.start_indices_batching_dims, d.collapsed_slice_dims,
    )  # fmt: skip
    dropped = {*d.collapsed_slice_dims, *d.operand_batching_dims}
    for a in dropped:
        if sizes[a] > 1:
            raise InvalidArgument(f"the slices are {sizes[a]} long along dimension {a}, not 1")
    kept = [n for a, n in enumerate(sizes) if a not in dropped]
    rank = len(batch) + len(d.offset_dims)
    _check_ascending(d.offset_dims, rank, "offset_dims")
    if len(kept) != len(d.offset_dims):
        raise InvalidArgument(f"{len(d.offset_dims)} offset_dims hold slices of {len(kept)} dimensions")
    rest, slices = iter(batch), iter(kept)
    dims = tuple(next(slices) if a in d.offset_dims else next(rest) for a in range(rank))
    if 0 not in dims and any(sizes[a] == 0 for a in dropped):
        raise InvalidArgument(f"each element of the result is one of {x}, and slices hold none")
    return ArrayType(x.dtype, dims)


def _check_ascending(axes: Sequence[int], rank: int, what: str) -> None:
    check_axes(axes, rank, what)
    if list(axes) != sorted(axes):
        raise InvalidArgument(f"{what} {tuple(axes)} do not ascend")


def _check_index_vectors(
    x: ArrayType,
    indices: ArrayType,
    vector_dim: int,
    mapped: Sequence[int],
    batching: Sequence[int],
    indices_batching: Sequence[int],
    dropped: Sequence[int],
) -> tuple[int, ...]:
    """The checks that gather and scatter share; the shape in which the index vectors lie."""
    rank, dims = len(x.dims), indices.dims
    _check_integers(indices)
    if not 0 <= vector_dim <= len(dims):
        raise InvalidArgument(f"{indices} has no index vectors along dimension {vector_dim}")
    length = dims[vector_dim] if vector_dim < len(dims) else 1
    if length != len(mapped):
        raise InvalidArgument(f"index vectors of {length} numbers stand for dimensions {tuple(mapped)}")
    check_axes(mapped, rank, "indexed dimensions")
    _check_ascending(dropped, rank, "dropped dimensions")
    _check_ascending(batching, rank, "batching dimensions")
    check_axes((*dropped, *batching), rank, "dropped and batching dimensions")
    check_axes((*mapped, *batching), rank, "indexed and batching dimensions")
    check_axes(indices_batching, len(dims), "batching dimensions of the indices")
    if len(batching) != len(indices_batching) or vector_dim in indices_batching:
        raise InvalidArgument(f"batching dimensions {tuple(batching)} and {tuple(indices_batching)}")
    for a, b in zip(batching, indices_batching, strict=True):
        if x.dims[a] != dims[b]:
            raise InvalidArgument(f"dimension {a} of {x} and {b} of {indices} are not one batch")
    return (*dims[:vector_dim], *dims[vector_dim + 1 :])


def _index_vectors(
    indices: Bits,
    vector_dim: int,
    mapped: Sequence[int],
    batching: Sequence[int],
    indices_batching: Sequence[int],
) -> tuple[tuple[int, ...], dict[int, _Integers]]:
    """The shape in which the index vectors lie, and what they say of each indexed dimension. A batching
    dimension's index is the place in the batch.
    """
    data = indices.data
    if vector_dim == data.ndim:
        data = data[..., np.newaxis]
    if data.dtype == np.uint64:
        data = np.minimum(data, np.uint64(np.iinfo(np.int64).max))  # out of bounds either way
    vectors = np.moveaxis(data, vector_dim, -1).astype(np.int64)
    shape = vectors.shape[:-1]
    found = {a: vectors[..., n] for n, a in enumerate(mapped)}
    for a, b in zip(batching, indices_batching, strict=True):
        axis = b - (b > vector_dim)
        found[a] = _along(np.arange(shape[axis]), axis, len(shape))
    return shape, found


def _along(line: _Integers, axis: int, rank: int) -> _Integers:
    """A line as an array of `rank` dimensions."""
    return line.reshape([-1 if d == axis else 1 for d in range(rank)])


def evaluate_gather(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    d: GatherDimensions = attributes["gather_dimensions"]
    sizes: Sequence[int] = attributes["slice_sizes"]
    x = operands[0].data
    if 0 in result.dims:
        return np.empty(result.dims, x.dtype)
    batch, starts = _index_vectors(
        operands[1], d.index_vector_dim, d.start_index_map,
        d.operand_batching_dims, d.start_indices_batching_dims,
    )  # fmt: skip
    # A slice that spans a dimension begins at 0 wherever it was to begin.
    room = [n - size for n, size in zip(x.shape, sizes, strict=True)]
    starts = {a: np.clip(s, 0, room[a]) for a, s in starts.items() if room[a]}
    indexed = sorted(starts)
    spans = [a for a in range(x.ndim) if a not in starts]
    partial = [a for a in indexed if sizes[a] > 1]
    x = x[tuple(slice(None) if a in starts else slice(sizes[a]) for a in range(x.ndim))]
    # Every slice is a row of a view with an axis for where it begins and one for what lies in it.
    view = np.lib.stride_tricks.sliding_window_view(x, [sizes[a] for a in partial], tuple(partial))
    view = view.transpose(*indexed, *spans, *range(x.ndim, view.ndim))
    numbers = tuple(np.broadcast_to(starts[a], batch) for a in indexed)
    if indexed and view.flags.c_contiguous:  # rows side by side, as in a table of embeddings
        count = len(indexed)
        rows = view.reshape(-1, *view.shape[count:])
        slices = np.asarray(rows.take(np.ravel_multi_index(numbers, view.shape[:count]), axis=0))
    elif indexed:
        slices = np.asarray(view[numbers])
    else:
        slices = np.broadcast_to(view, batch + view.shape)
    axes = [*spans, *partial]
    order = sorted(range(len(axes)), key=axes.__getitem__)
    ordered = slices.transpose(*range(len(batch)), *(len(batch) + n for n in order))
    dropped = {*d.collapsed_slice_dims, *d.operand_batching_dims}
    kept = [n for a, n in enumerate(sizes) if a not in dropped]
    rest, offsets = iter(range(len(batch))), iter(range(len(batch), len(result.dims)))
    where = [next(offsets) if a in d.offset_dims else next(rest) for a in range(len(result.dims))]
    result_data: BitsArray = ordered.reshape((*batch, *kept)).transpose(where)
    return result_data


# ---- scatter --------------------------------------------------------------------------------------


def infer_scatter(operands: Sequence[ArrayType], attributes: Attributes) -> Result:
    if len(operands) < 3 or len(operands) % 2 == 0:
        raise InvalidArgument("takes arrays, one array of indices, and as many updates")
    count = len(operands) // 2
    arrays, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    d: ScatterDimensions = attributes["scatter_dimensions"]
    for group, what in ((arrays, "arrays"), (updates, "updates")):
        if any(t.dims != group[0].dims for t in group):
            raise InvalidArgument(f"{what} of different shapes: {', '.join(map(str, group))}")
    x, update = arrays[0], updates[0]
    batch = _check_index_vectors(
        x, indices, d.index_vector_dim, d.scatter_dims_to_operand_dims,
        d.input_batching_dims, d.scatter_indices_batching_dims, d.inserted_window_dims,
    )  # fmt: skip
    _check_ascending(d.update_window_dims, len(update.dims), "update_window_dims")
    window = [a for a in range(len(x.dims)) if not _is_dropped(a, d)]
    stated = tuple(n for a, n in enumerate(update.dims) if a not in d.update_window_dims)
    if stated != batch or len(window) != len(d.update_window_dims):
        raise InvalidArgument(f"updates {update} are not windows of {x} at {indices}")
    for a, u in zip(window, d.update_window_dims, strict=True):
        if update.dims[u] > x.dims[a]:
            raise InvalidArgument(f"windows of {update} are longer than dimension {a} of {x}")
    (computation,) = applied_computations(attributes, 1)
    types = [t.dtype for t in arrays]
    check_computation(computation, [*types, *(t.dtype for t in updates)], types)
    return one_or_tuple(arrays)


def _is_dropped(axis: int, d: ScatterDimensions) -> bool:
    return axis in d.inserted_window_dims or axis in d.input_batching_dims


def evaluate_scatter(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: Result, setting: Setting
) -> Data:
    count = len(operands) // 2
    arrays, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    shape, dims = arrays[0].data.shape, updates[0].data.shape
    places = _update_places(shape, dims, indices, attributes["scatter_dimensions"])
    targets = [np.array(x.data, order="C") for x in arrays]
    (computation,) = applied_computations(attributes, 1)
    apply_updates(computation, places, updates, targets, setting)
    return targets[0] if isinstance(result, ArrayType) else tuple(targets)


def _update_places(
    shape: tuple[int, ...], dims: tuple[int, ...], indices: Bits, d: ScatterDimensions
) -> _Integers:
    """For each element of the updates, its place in the operand's row-major order. Where any part of a
    window is out of bounds, all of it is -1.
    """
    batch, starts = _index_vectors(
        indices, d.index_vector_dim, d.scatter_dims_to_operand_dims,
        d.input_batching_dims, d.scatter_indices_batching_dims,
    )  # fmt: skip
    if 0 in shape:  # whatever the window, no place of it is there
        return np.full(dims, -1, np.int64)
    strides = [math.prod(shape[a + 1 :]) for a in range(len(shape))]
    window_axes = [a for a in range(len(shape)) if not _is_dropped(a, d)]
    window = {a: dims[u] for a, u in zip(window_axes, d.update_window_dims, strict=True)}
    inside = np.ones(batch, np.bool_)
    first = np.zeros(batch, np.int64)
    for a, start in starts.items():
        last = shape[a] - window.get(a, 1)
        inside &= (start >= 0) & (start <= last)
        first += np.clip(start, 0, max(last, 0)) * strides[a]
    offsets = np.zeros([window.get(a, 1) for a in window_axes], np.int64)
    for n, a in enumerate(window_axes):
        offsets += _along(np.arange(window[a]) * strides[a], n, len(window_axes))
    places = np.where(inside, first, -1).reshape((*batch, *(1 for _ in window_axes)))
    places = np.where(places < 0, -1, places + offsets)
    rest, inner = iter(range(len(batch))), iter(range(len(batch), places.ndim))
    order = [next(inner) if u in d.update_window_dims else next(rest) for u in range(len(dims))]
    return np.ascontiguousarray(places.transpose(order)).reshape(dims)  # it adds one to no dimensions


def apply_updates(
    computation: ScalarComputation,
    places: _Integers,
    updates: Sequence[Bits],
    targets: Sequence[BitsArray],
    setting: Setting,
) -> None:
    """R5: the updates, in row-major order, to the elements of dense targets at their places; those at a
    negative place are skipped.
    """
    count = len(targets)
    if is_on_host(computation):
        _apply_on_host(computation, places, updates, targets, setting)
    elif computation.results == tuple(range(count, 2 * count)):  # assignment: bits move, the last wins
        kept = np.flatnonzero(places.reshape(-1) >= 0)
        for target, update in zip(targets, updates, strict=True):
            target.reshape(-1)[places.reshape(-1)[kept]] = update.data.reshape(-1)[kept]
    else:
        program = computation_program(computation, setting.profile)
        dense = [np.ascontiguousarray(u.data) for u in updates]
        _core.scatter(program, places, dense, list(targets))


def _apply_on_host(
    computation: ScalarComputation,
    places: _Integers,
    updates: Sequence[Bits],
    targets: Sequence[BitsArray],
    setting: Setting,
) -> None:
    types = computation.parameters
    flat = [t.reshape(-1) for t in targets]
    rows = [u.data.reshape(-1) for u in updates]
    for n, at in enumerate(places.reshape(-1)):
        if at >= 0:
            values = [np.asarray(v) for v in (*(t[at] for t in flat), *(u[n] for u in rows))]
            operands = [Bits(v, t) for v, t in zip(values, types, strict=True)]
            results = evaluate_computation(computation, operands, setting)
            for t, found in zip(flat, results, strict=True):
                t[at] = found.data
