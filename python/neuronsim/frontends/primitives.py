"""HLO's instructions as functions of arrays, known or traced: what the front doors' rows of shapes,
indices and windows are written with.

>>> from neuronsim.arrays.conversion import asarray
>>> taken(asarray([1.0, 2.0, 3.0]), [2, 1], 0).tolist()
[3.0, 2.0]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from neuronsim import arrays as np
from neuronsim import dtypes, ops
from neuronsim.arrays import random
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.arrays.evaluation import identity
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidModel
from neuronsim.frontends.movement import known, row
from neuronsim.frontends.recorder import active_recorder, current_recorder
from neuronsim.frontends.tracer import Tracer, is_traced, value_of
from neuronsim.hlo.module import Shape, TupleShape
from neuronsim.ops.computations import ScalarComputation, ScalarStep
from neuronsim.profiles import current_profile

MAX_RUNS = 16  # of places that are slices; of more a gather is shorter


def integers(x: Any) -> list[int]:
    """The numbers of an input that must be known; of an attribute as they are."""
    if isinstance(x, Array):
        x = x.reshape(-1).tolist()
    return [int(v) for v in x]


def floats(x: Any) -> list[float]:
    """The same of floats."""
    if isinstance(x, Array):
        x = x.reshape(-1).tolist()
    return [float(v) for v in x]


def is_known(*arrays: Any) -> bool:
    """Whether no array of these is traced."""
    return not any(isinstance(x, Array) and is_traced(x.bits) for x in arrays)


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the first; raises InvalidModel for one that is not there."""
    if not -rank <= axis < max(rank, 1):
        raise InvalidModel(f"axis {axis} of an array of {rank} axes")
    return axis % rank if rank else 0


def apply(name: str, *operands: Array, **attributes: Any) -> Array:
    """A row of the op table that gives one array."""
    return Array(ops.apply(name, [x.bits for x in operands], **attributes))


def apply_all(name: str, *operands: Array, **attributes: Any) -> tuple[Array, ...]:
    """A row of the op table that gives several."""
    op = ops.by_name(name)
    if is_known(*operands):
        setting = ops.Setting(current_profile())
        return tuple(map(Array, ops.evaluate(op, [x.bits for x in operands], attributes, setting)))
    recorder = active_recorder()
    value = recorder.record(op, [value_of(x.bits) for x in operands], attributes)
    assert isinstance(value.shape, TupleShape)
    found = []
    for n, shape in enumerate(value.shape.elements):
        assert isinstance(shape, Shape)
        data: Any = Tracer(recorder.element(value, n))
        found.append(Array(ops.Bits(data, shape.type.dtype)))
    return tuple(found)


def lapack(routine: str, *operands: Array, **letters: str) -> tuple[Array, ...]:
    """A call of LAPACK as JAX has it on a CPU: a letter for each setting that is not the usual one."""
    attributes = {**ops.LAPACK_DEFAULTS, **letters, "routine": routine}
    if routine in ("orgqr", "ungqr"):
        return (apply("lapack", *operands, **attributes),)
    return apply_all("lapack", *operands, **attributes)


def first_along(x: Array, k: int, axis: int, *, largest: bool) -> list[Array]:
    """The first `k` elements along an axis in descending order, or in ascending, and their places."""
    at = axis_of(axis, x.ndim)
    last = moved_axis(x, at, x.ndim - 1)
    values, places = apply_all("topk", last, k=k, largest=largest)
    return [moved_axis(v, x.ndim - 1, at) for v in (values, places.astype(dtypes.int64))]


def where(condition: Array, x: Any, y: Any) -> Array:
    """`np.where`, of which is known that it gives an array."""
    found: Array = np.where(condition, x, y)
    return found


def quotient(a: Array, b: Array) -> Array:
    """The quotient, of integers cut towards zero as HLO has it."""
    if a.dtype.kind not in ("signed", "unsigned"):
        return np.divide(a, b)
    operands = [x.bits for x in np.broadcast_arrays(a, b)]
    return Array(ops.apply("divide", operands))


def drawn(name: str, first: float, second: float, dims: Sequence[int], dtype: DType) -> Array:
    """Of the uniform distribution between two numbers, or the normal one of a mean and a deviation."""
    if current_recorder() is None:
        return getattr(random, name)(first, second, tuple(dims), dtype=dtype)  # type: ignore[no-any-return]
    numbers = [known(np.asarray(v, dtype=dtype).bits.data, dtype) for v in (first, second)]
    value = row("rng", numbers, distribution=f"RNG_{name.upper()}", dims=tuple(dims))
    data: Any = Tracer(value)
    return Array(ops.Bits(data, dtype))


# ---- movement ----------------------------------------------------------------------------------------


def sliced(x: Array, ranges: Sequence[tuple[int, int, int]]) -> Array:
    """The elements from, to and by which steps along each axis, all forwards."""
    if all(r == (0, n, 1) for r, n in zip(ranges, x.shape, strict=True)):
        return x
    return apply("slice", x, slice=tuple(ranges))


def part(x: Array, axis: int, begin: int, end: int, step: int = 1) -> Array:
    """A slice along one axis."""
    return sliced(x, [(begin, end, step) if d == axis else (0, n, 1) for d, n in enumerate(x.shape)])


def flipped(x: Array, axes: Sequence[int]) -> Array:
    """The elements in the opposite order along some axes."""
    axes = [d for d in axes if x.shape[d] > 1]
    return apply("reverse", x, dimensions=tuple(sorted(axes))) if axes else x


def padded(x: Array, padding: Sequence[tuple[int, int, int]], value: Any = 0) -> Array:
    """Elements before, after and between those of each axis; a negative number takes some away."""
    if all(p == (0, 0, 0) for p in padding):
        return x
    fill = asarray(value, x.dtype).reshape(())
    return apply("pad", x, fill, padding=tuple(padding))


def joined(arrays: Sequence[Array], axis: int) -> Array:
    """The arrays, one after the other along an axis."""
    some = [x for x in arrays if x.shape[axis]] or list(arrays[:1])
    return some[0] if len(some) == 1 else apply("concatenate", *some, dimensions=(axis,))


def transposed(x: Array, order: Sequence[int]) -> Array:
    """The axes in another order."""
    return x if list(order) == list(range(x.ndim)) else np.permute_dims(x, tuple(order))


def moved_axis(x: Array, source: int, to: int) -> Array:
    """One axis at another place."""
    order = [d for d in range(x.ndim) if d != source]
    order.insert(to, source)
    return transposed(x, order)


def along(values: Any, axis: int, rank: int) -> Array:
    """A line as an array of that many axes."""
    line = asarray(values)
    return line.reshape([-1 if d == axis else 1 for d in range(rank)])


# ---- places that are known ---------------------------------------------------------------------------


def taken(x: Array, places: Sequence[int] | numpy.ndarray[Any, Any], axis: int) -> Array:
    """The slices at known places along an axis, by slices where those are few; none is negative."""
    line = numpy.asarray(places, numpy.int64)
    n = x.shape[axis]
    if line.size and (line.min() < 0 or line.max() >= n):
        raise InvalidModel(f"a place outside of axis {axis} of {x.bits.type}")
    times, rest = divmod(line.size, max(n, 1))
    if n > 1 and times > 1 and not rest and (line == numpy.repeat(numpy.arange(n), times)).all():
        dims = (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :])
        full = (*dims[: axis + 1], times, *dims[axis + 2 :])
        spread = np.broadcast_to(x.reshape(dims), full)
        return spread.reshape((*x.shape[:axis], n * times, *x.shape[axis + 1 :]))
    runs = _runs(line.tolist())
    if len(runs) <= MAX_RUNS:
        return joined([_run(x, axis, *r) for r in runs] or [part(x, axis, 0, 0)], axis)
    return gathered_along(x, asarray(line), axis)


def _runs(line: list[int]) -> list[tuple[int, int, int]]:
    """Evenly spaced places, one run after the other: first, step and count."""
    runs: list[tuple[int, int, int]] = []
    at = 0
    while at < len(line):
        count = 1
        step = line[at + 1] - line[at] if at + 1 < len(line) else 0
        while at + count < len(line) and line[at + count] - line[at + count - 1] == step:
            count += 1
        if count == 2 and at + 2 < len(line):  # one alone, and the next run may be longer
            count, step = 1, 0
        runs.append((line[at], step, count))
        at += count
        if len(runs) > MAX_RUNS:
            break
    return runs


def _run(x: Array, axis: int, first: int, step: int, count: int) -> Array:
    if not step:
        one = part(x, axis, first, first + 1)
        dims = [count if d == axis else n for d, n in enumerate(one.shape)]
        return one if count == 1 else np.broadcast_to(one, dims)
    last = first + step * (count - 1)
    found = part(x, axis, min(first, last), max(first, last) + 1, abs(step))
    return flipped(found, [axis]) if step < 0 else found


# ---- places that are computed ------------------------------------------------------------------------


def wrapped(indices: Array, length: int) -> Array:
    """Indices that count from the end as those that count from the start."""
    wide = indices.astype(dtypes.int64)
    if indices.dtype.kind == "unsigned" or (is_known(wide) and not (np.asarray(wide) < 0).any()):
        return wide
    return where(wide < 0, wide + length, wide)


def gathered_along(x: Array, indices: Array, axis: int) -> Array:
    """The slices at places along an axis, which becomes the axes of `indices`."""
    batch = range(axis, axis + indices.ndim)
    rank = x.ndim - 1 + indices.ndim
    dimensions = ops.GatherDimensions.slices((axis,), batch, rank)
    sizes = tuple(min(n, 1) if d == axis else n for d, n in enumerate(x.shape))
    return apply("gather", x, indices, gather_dimensions=dimensions, slice_sizes=sizes)


def gathered_lines(x: Array, indices: Array, axis: int) -> Array:
    """Of each line along an axis the elements at its own places; the other axes are as long."""
    dimensions = ops.GatherDimensions.lines(axis, x.ndim)
    sizes = tuple(min(n, 1) for n in x.shape)
    return apply("gather", x, indices, gather_dimensions=dimensions, slice_sizes=sizes)


def gathered_vectors(x: Array, indices: Array, batch: int = 0) -> Array:
    """The slices at which the vectors along the last axis of `indices` point; the first `batch` axes
    are both arrays' own.
    """
    count = indices.shape[-1]
    around = indices.ndim - 1
    rest = x.ndim - batch - count
    dimensions = ops.GatherDimensions(
        offset_dims=tuple(range(around, around + rest)),
        collapsed_slice_dims=tuple(range(batch, batch + count)),
        start_index_map=tuple(range(batch, batch + count)),
        operand_batching_dims=tuple(range(batch)),
        start_indices_batching_dims=tuple(range(batch)),
        index_vector_dim=around,
    )
    sizes = tuple(min(n, 1) if d < batch + count else n for d, n in enumerate(x.shape))
    return apply("gather", x, indices, gather_dimensions=dimensions, slice_sizes=sizes)


def scattered_vectors(
    x: Array, indices: Array, updates: Array, reducer: str = "second", batch: int = 0
) -> Array:
    """`x` with the updates written, or reduced into it, where `gathered_vectors` reads; what is outside
    is left out.
    """
    count, around = indices.shape[-1], indices.ndim - 1
    dimensions = ops.ScatterDimensions(
        update_window_dims=tuple(range(around, updates.ndim)),
        inserted_window_dims=tuple(range(batch, batch + count)),
        scatter_dims_to_operand_dims=tuple(range(batch, batch + count)),
        input_batching_dims=tuple(range(batch)),
        scatter_indices_batching_dims=tuple(range(batch)),
        index_vector_dim=around,
    )
    computation = _computation(reducer, x.dtype)
    return apply(
        "scatter", x, indices, updates,
        scatter_dimensions=dimensions, reducer=reducer, computations=(computation,),
    )  # fmt: skip


def _computation(reducer: str, dtype: DType) -> ScalarComputation:
    """What a scatter applies to an element and its update."""
    if reducer == "second":
        return ScalarComputation("second", (dtype, dtype), (), (1,))
    op = ops.by_name(reducer)
    if dtype is dtypes.boolean and op.on_bool:
        op = ops.by_name(op.on_bool)
    step = ScalarStep(op, {}, (0, 1), dtype)
    return ScalarComputation(reducer, (dtype, dtype), (step,), (2,), reducer)


# ---- windows -----------------------------------------------------------------------------------------


def windows_reduced(x: Array, reducer: str, window: Sequence[ops.WindowDimension]) -> Array:
    """The reduction of each window over the last axes."""
    whole = [ops.WindowDimension(1)] * (x.ndim - len(window))
    start = identity(reducer, x.dtype)
    return apply("reduce_window", x, start, window=(*whole, *window), reducer=reducer)


def in_float(x: Array) -> Array:
    """The array in the type in which its sums are: float32, or the host's own (R7)."""
    return x if ops.is_host(x.dtype) else x.astype(dtypes.float32)
