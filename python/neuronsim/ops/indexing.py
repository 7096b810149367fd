"""Reading and writing parts of arrays: pad, slices at computed places, gather, scatter (R5)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from neuronsim import _core
from neuronsim.errors import InvalidArgument
from neuronsim.ops.chains import core_code
from neuronsim.ops.computations import (
    ScalarComputation,
    applied_computations,
    check_computation,
    computation_chain,
    evaluate_computation,
    is_on_host,
)
from neuronsim.ops.rows import (
    ArrayType,
    Attributes,
    Bits,
    BitsArray,
    Calls,
    Data,
    Evaluation,
    GatherDimensions,
    Outputs,
    Result,
    ScatterDimensions,
    Setting,
    check_axes,
    one_or_tuple,
    run_bound,
    same_dims,
)

_Integers = npt.NDArray[np.int64]
_Dimension = tuple[int, int, int, int]


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


def evaluate_pad(e: Evaluation) -> BitsArray:
    x, value = (b.data for b in e.operands)
    output = np.full(e.result.dims, value, x.dtype)
    kept, inside = pad_slices(x.shape, e.result.dims, e.attributes["padding"])
    output[inside] = x[kept]
    return output


def pad_slices(
    dims: Sequence[int], padded: Sequence[int], padding: Sequence[tuple[int, int, int]]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The part of an array that a pad keeps, as an index, and where that lies in the result."""
    kept, inside = [], []
    for (low, _, interior), n, size in zip(padding, dims, padded, strict=True):
        step = interior + 1
        first = max(-(low // step), 0)  # negative padding crops
        last = max(min((size - 1 - low) // step + 1, n), first)
        start = low + first * step
        kept.append(slice(first, last))
        inside.append(slice(start, start + (last - first) * step, step))
    return (*kept, ...), (*inside, ...)  # with the ellipsis the part of a scalar is an array as well


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


def evaluate_dynamic_slice(e: Evaluation) -> BitsArray:
    return _clamped_slice(e.operands[0].data, e.result.dims, e.operands[1:])


def evaluate_dynamic_update_slice(e: Evaluation) -> BitsArray:
    x, update, *starts = e.operands
    output = np.array(x.data, order="C")
    _clamped_slice(output, update.data.shape, starts)[...] = update.data
    return output


# ---- gather ---------------------------------------------------------------------------------------


def infer_gather(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    x, indices = operands
    d: GatherDimensions = attributes["gather_dimensions"]
    sizes = tuple(attributes["slice_sizes"])
    _check_slice(sizes, x)
    batch = _check_index_vectors(x, indices, _of_gather(d))
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


class _Vectors(NamedTuple):
    """Where a gather's or scatter's index vectors lie, and the array's dimensions that they index, that
    are batches in both, by `indices_batching` in the indices, and that no window has.
    """

    dim: int
    mapped: Sequence[int]
    batching: Sequence[int]
    indices_batching: Sequence[int]
    dropped: Sequence[int]


def _of_gather(d: GatherDimensions) -> _Vectors:
    batching = d.operand_batching_dims, d.start_indices_batching_dims
    return _Vectors(d.index_vector_dim, d.start_index_map, *batching, d.collapsed_slice_dims)


def _of_scatter(d: ScatterDimensions) -> _Vectors:
    mapped, batching = d.scatter_dims_to_operand_dims, d.input_batching_dims
    indices_batching = d.scatter_indices_batching_dims
    return _Vectors(d.index_vector_dim, mapped, batching, indices_batching, d.inserted_window_dims)


def _check_index_vectors(x: ArrayType, indices: ArrayType, v: _Vectors) -> tuple[int, ...]:
    """The checks that gather and scatter share; the shape in which the index vectors lie."""
    vector_dim, mapped, batching, indices_batching, dropped = v
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


def _index_vectors(indices: Bits, v: _Vectors) -> tuple[tuple[int, ...], dict[int, _Integers]]:
    """The shape in which the index vectors lie, and what they say of each indexed dimension. A batching
    dimension's index is the place in the batch.
    """
    data = indices.data
    if v.dim == data.ndim:
        data = data[..., np.newaxis]
    if data.dtype == np.uint64:
        data = np.minimum(data, np.uint64(np.iinfo(np.int64).max))  # out of bounds either way
    vectors = np.moveaxis(data, v.dim, -1).astype(np.int64)
    shape = vectors.shape[:-1]
    found = {a: vectors[..., n] for n, a in enumerate(v.mapped)}
    for a, b in zip(v.batching, v.indices_batching, strict=True):
        axis = b - (b > v.dim)
        found[a] = _along(np.arange(shape[axis]), axis, len(shape))
    return shape, found


def _along(line: _Integers, axis: int, rank: int) -> _Integers:
    """A line as an array of `rank` dimensions."""
    return line.reshape([-1 if d == axis else 1 for d in range(rank)])


def bind_gather(e: Evaluation, outputs: Outputs) -> list[_core.Call]:
    d: GatherDimensions = e.attributes["gather_dimensions"]
    sizes: Sequence[int] = e.attributes["slice_sizes"]
    (x, indices), (output,) = e.operands, outputs
    if output.size == 0:
        return []
    data = x.data
    batch = [a for a in range(output.ndim) if a not in d.offset_dims]
    rows = _index_rows(data.strides, indices.data, _of_gather(d))
    dimensions = _collapsed((*row, output.strides[a]) for row, a in zip(rows, batch, strict=True))
    room = [n - size for n, size in zip(data.shape, sizes, strict=True)]
    strides = data.strides
    parts = _components(indices.data, _of_gather(d), room, strides)
    dropped = {*d.collapsed_slice_dims, *d.operand_batching_dims}
    kept = [a for a in range(data.ndim) if a not in dropped]
    shape, source = [sizes[a] for a in kept], [strides[a] for a in kept]
    target = [output.strides[a] for a in d.offset_dims]
    code = core_code(indices.dtype, "an index")
    return [_core.gather(data, indices.data, code, dimensions, parts, shape, source, target, output)]


def _index_rows(strides: Sequence[int], indices: BitsArray, v: _Vectors) -> list[tuple[int, int, int]]:
    """For each dimension in which the index vectors lie: its length, its distance in the indices, in
    bytes, and in the array, which has these strides: 0 but for a batching dimension.
    """
    own = dict(zip(v.indices_batching, v.batching, strict=True))
    return [
        (n, indices.strides[a], strides[own[a]] if a in own else 0)
        for a, n in enumerate(indices.shape)
        if a != v.dim
    ]


def _collapsed(dimensions: Iterable[_Dimension]) -> list[_Dimension]:
    """The same walk in as few dimensions as it has: each is a length and distances. The core works
    along the last one, in which JAX's indices often have one element.
    """
    found: list[_Dimension] = []
    for n, *steps in dimensions:
        if n == 1:
            continue
        if found and list(found[-1][1:]) == [n * step for step in steps]:
            n *= found.pop()[0]
        found.append((n, steps[0], steps[1], steps[2]))
    return found


def _components(
    indices: BitsArray, v: _Vectors, room: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int, int]]:
    """For each number of an index vector: where it lies, the last start and the dimension's stride."""
    step = indices.strides[v.dim] if v.dim < indices.ndim else 0
    return [(n * step, room[a], strides[a]) for n, a in enumerate(v.mapped)]


# ---- scatter --------------------------------------------------------------------------------------


def infer_scatter(operands: Sequence[ArrayType], attributes: Attributes) -> Result:
    if len(operands) < 3 or len(operands) % 2 == 0:
        raise InvalidArgument("takes arrays, one array of indices, and as many updates")
    count = len(operands) // 2
    arrays, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    d: ScatterDimensions = attributes["scatter_dimensions"]
    for group, what in ((arrays, "arrays"), (updates, "updates")):
        same_dims(group, what)
    x, update = arrays[0], updates[0]
    batch = _check_index_vectors(x, indices, _of_scatter(d))
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


def evaluate_scatter(e: Evaluation) -> Data:
    found = run_bound(e)
    return _scatter_on_host(e) if found is None else found


def bind_scatter(e: Evaluation, outputs: Outputs) -> Calls:
    (computation,) = applied_computations(e.attributes, 1)
    if is_on_host(computation):
        return None
    d: ScatterDimensions = e.attributes["scatter_dimensions"]
    count = len(outputs)
    indices, updates = e.operands[count], [u.data for u in e.operands[count + 1 :]]
    shape, dims = outputs[0].shape, updates[0].shape
    if 0 in shape or 0 in dims:
        return []
    strides = [math.prod(shape[a + 1 :]) for a in range(len(shape))]
    window_axes = [a for a in range(len(shape)) if not _is_dropped(a, d)]
    window = dict(zip(d.update_window_dims, window_axes, strict=True))
    sizes = {a: dims[u] for u, a in window.items()}
    rows = _index_rows(strides, indices.data, _of_scatter(d))
    batch = iter(rows)
    walk = [(n, 0, strides[window[u]]) if u in window else next(batch) for u, n in enumerate(dims)]
    row = 1  # neighbouring updates that go to neighbours
    while walk and len(walk) - 1 in window and (walk[-1][0] == 1 or walk[-1][2] == row):
        row *= walk.pop()[0]
    room = [n - sizes.get(a, 1) for a, n in enumerate(shape)]
    parts = _components(indices.data, _of_scatter(d), room, strides)
    program = computation_chain(computation, e.setting.profile)
    dimensions = _collapsed((*each, 0) for each in walk)
    code = core_code(indices.dtype, "an index")
    places = (indices.data, code, dimensions, parts, row)
    return [_core.scatter_rows(program, *places, updates, list(outputs))]


def _scatter_on_host(e: Evaluation) -> tuple[BitsArray, ...]:
    count = len(e.operands) // 2
    arrays, indices, updates = e.operands[:count], e.operands[count], e.operands[count + 1 :]
    shape, dims = arrays[0].data.shape, updates[0].data.shape
    places = _update_places(shape, dims, indices, e.attributes["scatter_dimensions"])
    targets = [np.array(x.data, order="C") for x in arrays]
    (computation,) = applied_computations(e.attributes, 1)
    apply_on_host(computation, places, updates, targets, e.setting)
    return tuple(targets)


def _update_places(
    shape: tuple[int, ...], dims: tuple[int, ...], indices: Bits, d: ScatterDimensions
) -> _Integers:
    """For each element of the updates, its place in the operand's row-major order. Where any part of a
    window is out of bounds, all of it is -1.
    """
    batch, starts = _index_vectors(indices, _of_scatter(d))
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


def apply_on_host(
    computation: ScalarComputation,
    places: _Integers,
    updates: Sequence[Bits],
    targets: Sequence[BitsArray],
    setting: Setting,
) -> None:
    """R5: the updates, in row-major order, to the elements of dense targets at their places; those at a
    negative place are skipped.
    """
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
