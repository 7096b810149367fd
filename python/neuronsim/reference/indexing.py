"""Where the elements of pad, gather and scatter come from and go to, and the updates of R5.

Arrays are mappings from a position, one index for each dimension, to an element.

>>> scatter({(0,): 1, (1,): 2}, [((1,), 10), (None, 20), ((1,), 30)], lambda x, update: x + update)
{(0,): 1, (1,): 42}
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")
Position = tuple[int, ...]


def positions(dims: Sequence[int]) -> Iterable[Position]:
    """All positions of an array in row-major order."""
    return itertools.product(*(range(n) for n in dims))


def pad_source(
    position: Position, dims: Sequence[int], padding: Sequence[tuple[int, int, int]]
) -> Position | None:
    """Which element of an array of `dims` a place in the padded one holds; None for the padding.
    The padding of a dimension is (low, high, interior).
    """
    source = []
    for at, n, (low, _, interior) in zip(position, dims, padding, strict=True):
        index, between = divmod(at - low, interior + 1)
        if between or not 0 <= index < n:
            return None
        source.append(index)
    return tuple(source)


def slice_start(starts: Sequence[int], dims: Sequence[int], sizes: Sequence[int]) -> Position:
    """Where a dynamic slice begins: moved to where all of it is inside."""
    return tuple(min(max(at, 0), n - size) for at, n, size in zip(starts, dims, sizes, strict=True))


def gather_source(
    position: Position,
    dims: Sequence[int],
    indices: Mapping[Position, int],
    sizes: Sequence[int],
    *,
    offset_dims: Sequence[int],
    collapsed_slice_dims: Sequence[int],
    start_index_map: Sequence[int],
    operand_batching_dims: Sequence[int] = (),
    start_indices_batching_dims: Sequence[int] = (),
    index_vector_dim: int,
) -> Position:
    """Which element of an operand of `dims` a place of a gather's result holds."""
    batch = [at for d, at in enumerate(position) if d not in offset_dims]
    offsets = iter([at for d, at in enumerate(position) if d in offset_dims])
    start = _start(
        batch, indices, index_vector_dim, start_index_map,
        operand_batching_dims, start_indices_batching_dims,
    )  # fmt: skip
    source = []
    for d, n in enumerate(dims):
        inside = d not in collapsed_slice_dims and d not in operand_batching_dims
        at = start.get(d, 0)
        source.append(min(max(at, 0), n - sizes[d]) + (next(offsets) if inside else 0))
    return tuple(source)


def scatter_target(
    position: Position,
    dims: Sequence[int],
    indices: Mapping[Position, int],
    update_dims: Sequence[int],
    *,
    update_window_dims: Sequence[int],
    inserted_window_dims: Sequence[int],
    scatter_dims_to_operand_dims: Sequence[int],
    input_batching_dims: Sequence[int] = (),
    scatter_indices_batching_dims: Sequence[int] = (),
    index_vector_dim: int,
) -> Position | None:
    """Which element of an operand of `dims` an element of the updates goes to; None where its window is
    not all inside (R5).
    """
    batch = [at for d, at in enumerate(position) if d not in update_window_dims]
    window = iter(update_window_dims)
    start = _start(
        batch, indices, index_vector_dim, scatter_dims_to_operand_dims,
        input_batching_dims, scatter_indices_batching_dims,
    )  # fmt: skip
    target = []
    for d, n in enumerate(dims):
        inside = d not in inserted_window_dims and d not in input_batching_dims
        u = next(window) if inside else None
        size, offset = (1, 0) if u is None else (update_dims[u], position[u])
        at = start.get(d, 0)
        if not 0 <= at <= n - size:
            return None
        target.append(at + offset)
    return tuple(target)


def _start(
    batch: Sequence[int],
    indices: Mapping[Position, int],
    vector_dim: int,
    mapped: Sequence[int],
    batching: Sequence[int],
    indices_batching: Sequence[int],
) -> dict[int, int]:
    """The index of each indexed dimension for one place of the batch."""
    implicit = any(len(p) == len(batch) for p in indices)  # scalars stand for vectors of one number
    start = {}
    for n, d in enumerate(mapped):
        place = batch if implicit else [*batch[:vector_dim], n, *batch[vector_dim:]]
        start[d] = indices[tuple(place)]
    for d, b in zip(batching, indices_batching, strict=True):
        start[d] = batch[b - (b > vector_dim)]
    return start


def scatter(
    operand: Mapping[Position, T],
    updates: Iterable[tuple[Position | None, T]],
    computation: Callable[[T, T], T],
) -> dict[Position, T]:
    """R5: the updates one at a time, in the order given, each application as the computation rounds
    it; those without a target are skipped.
    """
    result = dict(operand)
    for target, update in updates:
        if target is not None:
            result[target] = computation(result[target], update)
    return result
