"""Operators that read and write at places that arrays say, and those that choose by values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.arrays.evaluation import identity, select_elements
from neuronsim.frontends.primitives import (
    apply,
    axis_of,
    first_along,
    gathered_along,
    gathered_lines,
    gathered_vectors,
    in_float,
    is_known,
    moved_axis,
    padded,
    quotient,
    scattered_vectors,
    taken,
    transposed,
    wrapped,
)
from neuronsim.frontends.torch.operators.elementwise import truth
from neuronsim.frontends.torch.promotion import as_type
from neuronsim.frontends.torch.table import Node, operator

# ---- reading ---------------------------------------------------------------------------------------


@operator("aten.embedding.default")
def _embedding(
    node: Node,
    weight: Array,
    indices: Array,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Array:
    return gathered_along(weight, _inside(indices, weight.shape[0]), 0)


def _inside(indices: Array, length: int, first: int = 0) -> Array:
    """Indices, of which known ones are looked at: a gather clamps those that it is given."""
    if is_known(indices) and indices.size:
        places = numpy.asarray(indices)
        outside = places[(places < first) | (places >= length)]
        if outside.size:
            raise IndexError(f"index {outside[0]} of an axis of {length}")
    return indices


@operator("aten.nonzero_static.default")
def _nonzero_static(node: Node, x: Array, *, size: int, fill_value: int = -1) -> Array:
    """The places of the first elements that are not 0, then what fills the rest."""
    flat = np.reshape(truth(x), (-1,))
    order = np.argsort(np.logical_not(flat).astype(dtypes.int32), stable=True).astype(dtypes.int64)
    some = np.arange(size, dtype=dtypes.int64)
    place = gathered_along(order, np.minimum(some, max(x.size - 1, 0)), 0)
    is_there = np.less(some, np.sum(flat, dtype=dtypes.int64))
    columns = []
    for d in range(x.ndim):
        step = math.prod(x.shape[d + 1 :])
        columns.append(np.where(is_there, quotient(place, asarray(step)) % x.shape[d], fill_value))
    return np.stack(columns, axis=1).astype(dtypes.int64)


@operator("aten.embedding_renorm.default")
def _embedding_renorm(
    node: Node, weight: Array, indices: Array, max_norm: float, norm_type: float
) -> Array:
    """The rows that are read, no longer than they may be."""
    rows = np.arange(weight.shape[0], dtype=dtypes.int64)
    is_read = np.any(np.equal(np.reshape(indices, (-1, 1)), rows), axis=0)
    wide = np.abs(in_float(weight))
    if norm_type == math.inf:
        norms = np.max(wide, axis=1)
    else:
        norms = np.power(np.sum(np.power(wide, norm_type), axis=1), 1 / norm_type)
    counts = np.logical_and(is_read, np.greater(norms, max_norm))
    scale = np.where(counts, max_norm / (norms + 1e-7), 1)
    found: Array = (weight * scale[:, None]).astype(weight.dtype)
    return found


@operator("aten.embedding_dense_backward.default")
def _embedding_backward(
    node: Node,
    grad: Array,
    indices: Array,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Array:
    """The gradients of each row's uses summed; of the row of padding none."""
    if scale_grad_by_freq:
        raise node.refuse("with scale_grad_by_freq")
    width = grad.shape[-1]
    rows, lines = np.reshape(indices, (-1, 1)), np.reshape(grad, (-1, width))
    if padding_idx >= 0:
        lines = select_elements(np.equal(rows, padding_idx), 0, lines)
    wide = lines.astype(dtypes.float32) if grad.dtype.exponent_bits else lines
    start = np.zeros((num_weights, width), dtype=wide.dtype)
    return scattered_vectors(start, rows.astype(dtypes.int64), wide, "add").astype(grad.dtype)


@operator("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default")
def _embedding_bag(
    node: Node,
    weight: Array,
    indices: Array,
    offsets: Array,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> list[Array]:
    """The sum, mean or maximum of the rows of each bag, but of those of padding."""
    if any(map(node.wants, (1, 2, 3))):
        raise node.refuse("gives the bags alone")
    rows = gathered_along(weight, _inside(indices, weight.shape[0]), 0)
    if per_sample_weights is not None:
        rows = rows * np.expand_dims(per_sample_weights, -1)
    if is_known(offsets) and padding_idx < 0:
        found = _known_bags(rows, offsets, mode, include_last_offset)
    else:
        count = offsets.shape[0] - include_last_offset
        positions = asarray(numpy.arange(indices.shape[0]))
        bags = _searchsorted(node, offsets, positions, right=True) - 1
        if padding_idx >= 0:  # of no bag, as what is outside is left out
            bags = np.where(np.equal(indices, padding_idx), count, bags)
        found = _summed_bags(rows, bags, count, mode)
    nothing = np.zeros((0,), dtype=dtypes.int64)
    return [found, nothing, nothing, nothing]


def _known_bags(rows: Array, offsets: Array, mode: int, include_last_offset: bool) -> Array:
    """Those whose rows follow each other from known places on."""
    starts = numpy.asarray(offsets).tolist()
    ends = starts[1:] if include_last_offset else [*starts[1:], rows.shape[0]]
    function = (np.sum, np.mean, np.max)[mode]
    bags = [
        function(rows[a:b, :], axis=0) if b > a else np.zeros((rows.shape[1],), dtype=rows.dtype)
        for a, b in zip(starts, ends, strict=False)
    ]
    return np.stack(bags, axis=0)


def _summed_bags(rows: Array, bags: Array, count: int, mode: int) -> Array:
    """Those of rows whose bags are computed; bags without rows are 0."""
    vectors, wide = np.expand_dims(bags, -1), in_float(rows)
    start = np.zeros((count, rows.shape[1]), dtype=wide.dtype)
    if mode == 0:
        return scattered_vectors(start, vectors, wide, "add").astype(rows.dtype)
    ones = np.ones(bags.shape, dtype=dtypes.int32)
    met = scattered_vectors(np.zeros((count,), dtype=dtypes.int32), vectors, ones, "add")
    met = np.expand_dims(met, -1)
    if mode == 1:
        sums = scattered_vectors(start, vectors, wide, "add")
        return (sums / np.maximum(met, 1).astype(wide.dtype)).astype(rows.dtype)
    least = np.broadcast_to(identity("maximum", wide.dtype), start.shape)
    found = scattered_vectors(least, vectors, wide, "maximum")
    return select_elements(np.greater(met, 0), found, 0).astype(rows.dtype)


@operator("aten.index_select.default")
def _index_select(node: Node, x: Array, dim: int, index: Array) -> Array:
    if not x.ndim:
        return x
    axis = axis_of(dim, x.ndim)
    return gathered_along(x, _inside(np.reshape(index, (-1,)), x.shape[axis]), axis)


@operator("aten.gather.default")
def _gather(node: Node, x: Array, dim: int, index: Array, *, sparse_grad: bool = False) -> Array:
    """Of each line of `index` along an axis the elements there; the other axes may be shorter."""
    if not x.ndim:
        return np.broadcast_to(x, index.shape)
    axis = axis_of(dim, x.ndim)
    own = tuple(slice(None) if d == axis else slice(0, n) for d, n in enumerate(index.shape))
    places = _inside(np.reshape(index, index.shape or (1,)), x.shape[axis])
    return gathered_lines(x[own], places, axis).reshape(index.shape)


def _grid(x: Array, indices: Sequence[Array | None]) -> tuple[list[int], Array, int]:
    """Of advanced indices: which axes they are of, the vectors of their places, and where the axes of
    the places come in the result.
    """
    axes = [d for d, i in enumerate(indices) if i is not None]
    given = [
        wrapped(_inside(i, x.shape[d], -x.shape[d]), x.shape[d])
        for d, i in enumerate(indices)
        if i is not None
    ]
    dims = np.broadcast_arrays(*given) if len(given) > 1 else given
    vectors = np.stack([i.astype(dtypes.int64) for i in dims], axis=-1)
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    return axes, vectors, axes[0] if adjacent else 0


def _without_masks(indices: Sequence[Array | None]) -> list[Array | None]:
    """With the places of masks that are known in their place."""
    found: list[Array | None] = []
    for i in indices:
        if i is not None and i.dtype is dtypes.boolean:
            places = numpy.asarray(i).nonzero()  # a traced one says who asks
            found += [asarray(numpy.asarray(p, numpy.int64)) for p in places]
        else:
            found.append(i)
    return found


@operator("aten.index.Tensor", "aten._unsafe_index.Tensor")
def _index(node: Node, x: Array, indices: Sequence[Array | None]) -> Array:
    indices = _without_masks(indices)
    axes, vectors, at = _grid(x, indices)
    if len(axes) == 1:
        place = next(i for i in indices if i is not None)
        if is_known(place) and place.ndim == 1:
            return taken(x, numpy.asarray(wrapped(place, x.shape[axes[0]])), axes[0])
        return gathered_along(x, vectors[..., 0], axes[0])
    rest = [d for d in range(x.ndim) if d not in axes]
    found = gathered_vectors(transposed(x, [*axes, *rest]), vectors)
    around = vectors.ndim - 1
    order = [*range(around, around + at), *range(around), *range(around + at, found.ndim)]
    return transposed(found, order)


# ---- writing ---------------------------------------------------------------------------------------


@operator("aten.index_put.default", "aten._unsafe_index_put.default")
def _index_put(
    node: Node,
    x: Array,
    indices: Sequence[Array | None],
    values: Array,
    accumulate: bool = False,
) -> Array:
    mask = next((i for i in indices if i is not None), None)
    if mask is not None and mask.dtype is dtypes.boolean and values.size == 1 and not accumulate:
        before = list(indices).index(mask)
        dims = (1,) * before + mask.shape + (1,) * (x.ndim - before - mask.ndim)
        value = np.reshape(as_type(values, x.dtype), ())
        return select_elements(np.reshape(mask, dims), value, x)
    indices = _without_masks(indices)
    axes, vectors, at = _grid(x, indices)
    rest = [d for d in range(x.ndim) if d not in axes]
    places = vectors.shape[:-1]
    own = [x.shape[d] for d in rest]
    dims = (*own[:at], *places, *own[at:]) if at == axes[0] else (*places, *own)
    update = np.broadcast_to(as_type(values, x.dtype), dims)
    if at == axes[0]:  # the axes of the places first
        order = [*range(at, at + len(places)), *range(at), *range(at + len(places), len(dims))]
        update = transposed(update, order)
    turned = [*axes, *rest]
    found = scattered_vectors(transposed(x, turned), vectors, update, "add" if accumulate else "second")
    return transposed(found, numpy.argsort(turned).tolist())


def _scattered(x: Array, dim: int, index: Array, source: Array, reducer: str) -> Array:
    """Written, or reduced into the array, at a place along an axis for each element of `index`."""
    if not x.ndim:
        vector = np.reshape(x, (1,))
        places, values = (np.reshape(t, (-1,)) for t in (index, source))
        return np.reshape(_scattered(vector, 0, places, values, reducer), ())
    axis = axis_of(dim, x.ndim)
    dims = index.shape
    grid = [
        np.broadcast_to(
            np.reshape(asarray(numpy.arange(n)), [n if k == d else 1 for k in range(len(dims))]), dims
        )
        for d, n in enumerate(dims)
    ]
    grid[axis] = wrapped(index, x.shape[axis])
    vectors = np.stack(grid, axis=-1)
    own = source[tuple(slice(0, n) for n in dims)]
    return scattered_vectors(x, vectors, as_type(own, x.dtype), reducer)


operator("aten.scatter.src")(lambda node, x, dim, index, src: _scattered(x, dim, index, src, "second"))


@operator("aten.scatter.value")
def _scatter_value(node: Node, x: Array, dim: int, index: Array, value: Any) -> Array:
    filled = np.broadcast_to(np.reshape(as_type(value, x.dtype), ()), index.shape)
    return _scattered(x, dim, index, filled, "second")


@operator("aten.scatter.reduce")
def _scatter_into(node: Node, x: Array, dim: int, index: Array, src: Array, *, reduce: str) -> Array:
    return _scattered(x, dim, index, src, reduce)


@operator("aten.scatter.value_reduce")
def _scatter_value_into(
    node: Node, x: Array, dim: int, index: Array, value: Any, *, reduce: str
) -> Array:
    filled = np.broadcast_to(np.reshape(as_type(value, x.dtype), ()), index.shape)
    return _scattered(x, dim, index, filled, reduce)


@operator("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def _index_fill(node: Node, x: Array, dim: int, index: Array, value: Any) -> Array:
    if not x.ndim:
        return np.reshape(_index_fill(node, np.reshape(x, (1,)), 0, index, value), ())
    axis = axis_of(dim, x.ndim)
    lines = moved_axis(x, axis, 0)
    places = np.reshape(wrapped(index, x.shape[axis]), (-1, 1))
    update = np.broadcast_to(as_type(value, x.dtype), (places.shape[0], *lines.shape[1:]))
    return moved_axis(scattered_vectors(lines, places, update), 0, axis)


@operator("aten.put.default")
def _put(node: Node, x: Array, index: Array, source: Array, accumulate: bool = False) -> Array:
    """Written where the elements, row after row, are counted."""
    values = np.reshape(as_type(source, x.dtype), (-1,))
    places = np.reshape(wrapped(index, x.size), (-1, 1))
    reducer = "add" if accumulate else "second"
    return np.reshape(scattered_vectors(np.reshape(x, (-1,)), places, values, reducer), x.shape)


@operator("aten.scatter_add.default")
def _scatter_add(node: Node, x: Array, dim: int, index: Array, src: Array) -> Array:
    return _scattered(x, dim, index, src, "add")


@operator("aten.index_add.default")
def _index_add(node: Node, x: Array, dim: int, index: Array, source: Array, *, alpha: Any = 1) -> Array:
    axis = axis_of(dim, x.ndim)
    first, update = moved_axis(x, axis, 0), moved_axis(source, axis, 0)
    scaled = update if alpha == 1 else update * alpha
    found = scattered_vectors(first, np.reshape(index, (-1, 1)).astype(dtypes.int64), scaled, "add")
    return moved_axis(found, 0, axis)


_REDUCERS = {"sum": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum"}


@operator("aten.scatter_reduce.two")
def _scatter_reduce(
    node: Node,
    x: Array,
    dim: int,
    index: Array,
    src: Array,
    reduce: str,
    *,
    include_self: bool = True,
) -> Array:
    if reduce == "mean" or not include_self:
        return _reduced_without_self(x, dim, index, src, reduce, include_self)
    return _scattered(x, dim, index, src, _REDUCERS[reduce])


def _reduced_without_self(
    x: Array, dim: int, index: Array, src: Array, reduce: str, include_self: bool
) -> Array:
    """Where an element is met, what meets it alone, or their mean."""
    ones = np.ones(src.shape, dtype=dtypes.int32)
    met = _scattered(np.zeros(x.shape, dtype=dtypes.int32), dim, index, ones, "add")
    if reduce == "mean":
        start = x if include_self else select_elements(np.greater(met, 0), 0, x)
        sums = _scattered(start, dim, index, src, "add")
        count = np.maximum(met + 1 if include_self else met, 1)
        divide = np.divide if x.dtype.exponent_bits else np.floor_divide
        return divide(sums, as_type(count, sums.dtype)).astype(x.dtype)
    reducer = _REDUCERS[reduce]
    neutral = np.broadcast_to(identity(reducer, x.dtype), x.shape)
    start = select_elements(np.greater(met, 0), neutral, x)
    return _scattered(start, dim, index, src, reducer)


@operator("aten.index_reduce.default")
def _index_reduce(
    node: Node,
    x: Array,
    dim: int,
    index: Array,
    source: Array,
    reduce: str,
    *,
    include_self: bool = True,
) -> Array:
    """The same place along an axis for all of a slice."""
    if not x.ndim:
        x, source = (np.reshape(t, (1,)) for t in (x, source))
        return np.reshape(
            _index_reduce(node, x, 0, index, source, reduce, include_self=include_self), ()
        )
    axis = axis_of(dim, x.ndim)
    line = [-1 if d == axis else 1 for d in range(x.ndim)]
    places = np.broadcast_to(np.reshape(index, line), source.shape)
    found: Array = _scatter_reduce(node, x, axis, places, source, reduce, include_self=include_self)
    return found


@operator("aten.masked_scatter.default")
def _masked_scatter(node: Node, x: Array, mask: Array, source: Array) -> Array:
    """Where the mask holds the elements of the source, one after the other."""
    holds = np.reshape(np.broadcast_to(mask, x.shape), (-1,))
    count = np.cumulative_sum(holds.astype(dtypes.int64), dtype=dtypes.int64) - 1
    line = np.reshape(as_type(source, x.dtype), (-1,))
    places = np.clip(count, 0, max(line.size - 1, 0))
    found = select_elements(holds, gathered_along(line, places, 0), np.reshape(x, (-1,)))
    return np.reshape(found, x.shape)


# ---- losses of what labels say ---------------------------------------------------------------------


@operator("aten.multilabel_margin_loss_forward.default")
def _multilabel_margin(node: Node, x: Array, target: Array, reduction: int) -> list[Array]:
    """By how much other classes come near the labels before the first -1: PyTorch's own decomposition
    counts those behind it as class 0.
    """
    n = x.shape[-1]
    rows, labels = in_float(x).reshape((-1, n)), target.reshape((-1, n))
    ended = np.cumulative_sum(np.less(labels, 0).astype(dtypes.int32), axis=1)
    is_label = np.expand_dims(np.equal(ended, 0), -1)
    places = select_elements(is_label[..., 0], labels, 0)
    classes = asarray(numpy.arange(n))
    hits = np.logical_and(is_label, np.equal(np.expand_dims(places, -1), classes))
    is_target = np.any(hits, axis=1)
    own = np.expand_dims(gathered_lines(rows, places, 1), -1)
    margins = np.maximum(1 - own + np.expand_dims(rows, 1), 0)
    counts = np.logical_and(is_label, np.logical_not(np.expand_dims(is_target, 1)))
    losses = np.sum(select_elements(counts, margins, 0), axis=(1, 2)) / n
    if reduction:
        losses = (np.mean if reduction == 1 else np.sum)(losses)
    else:
        losses = losses.reshape(x.shape[:-1])
    return [losses.astype(x.dtype), is_target.reshape(target.shape).astype(x.dtype)]


# ---- choosing by values ----------------------------------------------------------------------------


@operator("aten.topk.default")
def _topk(
    node: Node, x: Array, k: int, dim: int = -1, largest: bool = True, ordered: bool = True
) -> list[Array]:
    if not x.ndim:
        return [x, np.zeros((), dtype=dtypes.int64)]
    return first_along(x, k, dim, largest=largest)


operator("aten.sort.default")(lambda node, x, dim=-1, descending=False: _sorted(x, dim, descending))


@operator("aten.sort.stable")
def _sort_stable(
    node: Node, x: Array, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> list[Array]:
    return _sorted(x, dim, descending)


def _sorted(x: Array, dim: int, descending: bool) -> list[Array]:
    """The elements in order, equal ones in their own, and where they were."""
    if not x.ndim or not x.size:
        return [x, np.zeros(x.shape, dtype=dtypes.int64)]
    axis = axis_of(dim, x.ndim)
    order = np.argsort(x, axis=axis, descending=descending, stable=True).astype(dtypes.int64)
    return [gathered_lines(x, order, axis), order]


@operator("aten.kthvalue.default")
def _kth(node: Node, x: Array, k: int, dim: int = -1, keepdim: bool = False) -> list[Array]:
    """The k-th least element along an axis, counted from 1, and where it is."""
    if not x.ndim:
        return _sorted(x, dim, False)
    if not 1 <= k <= x.shape[axis_of(dim, x.ndim)]:
        raise node.refuse(f"of the element number {k} in lines of {x.shape[axis_of(dim, x.ndim)]}")
    return _nth(_sorted(x, dim, False), k - 1, axis_of(dim, x.ndim), keepdim)


def _filled_axis(node: Node, x: Array, dim: int) -> int:
    """An axis whose lines have elements; refuses the others."""
    axis = axis_of(dim, x.ndim)
    if not x.shape[axis]:
        raise node.refuse("of lines without elements")
    return axis


@operator("aten.median.dim")
def _median(node: Node, x: Array, dim: int, keepdim: bool = False) -> list[Array]:
    """The lower one of two in the middle; the first NaN, which are sorted to the end, if any."""
    in_order = _sorted(x, dim, False)
    if not x.ndim:
        return in_order
    axis = _filled_axis(node, x, dim)
    values, places = _nth(in_order, (x.shape[axis] - 1) // 2, axis, keepdim)
    (last, _) = _nth(in_order, x.shape[axis] - 1, axis, keepdim)
    has_nan = np.not_equal(last, last)
    first = np.argmax(x, axis=axis, keepdims=keepdim).astype(dtypes.int64)  # of NaN
    return [select_elements(has_nan, last, values), select_elements(has_nan, first, places)]


@operator("aten.median.default")
def _median_of_all(node: Node, x: Array) -> Array:
    values: list[Array] = _median(node, np.reshape(x, -1), 0)
    return values[0]


@operator("aten.nanmedian.dim")
def _nanmedian(node: Node, x: Array, dim: int, keepdim: bool = False) -> list[Array]:
    """The lower one of two in the middle of those that are no NaN, which are sorted to the end."""
    in_order = _sorted(x, dim, False)
    if not x.ndim:
        return in_order
    axis = _filled_axis(node, x, dim)
    count = np.sum(np.equal(x, x), axis=axis, keepdims=True, dtype=dtypes.int64)
    middle = np.floor_divide(np.maximum(count, 1) - 1, 2)
    return _at(in_order, middle, axis, keepdim)


@operator("aten.nanmedian.default")
def _nanmedian_of_all(node: Node, x: Array) -> Array:
    values: list[Array] = _nanmedian(node, np.reshape(x, -1), 0)
    return values[0]


@operator("aten.mode.default")
def _mode(node: Node, x: Array, dim: int = -1, keepdim: bool = False) -> list[Array]:
    """The least of the elements that are there most often, and its last place (PyTorch's is any): the
    end of the first of the longest runs of equal ones in order.
    """
    in_order = _sorted(x, dim, False)
    if not x.ndim:
        return in_order
    axis = _filled_axis(node, x, dim)
    n = x.shape[axis]
    line = moved_axis(in_order[0], axis, x.ndim - 1)
    is_new = np.not_equal(line[..., 1:], line[..., :-1])
    starts = select_elements(is_new, asarray(numpy.arange(1, n, dtype=numpy.int32)), 0)
    first = apply("cumulative", starts, asarray(numpy.int32(0)), axis=x.ndim - 1, reducer="maximum")
    runs = asarray(numpy.arange(1, n, dtype=numpy.int32)) - first
    runs = padded(runs, [(0, 0, 0)] * (x.ndim - 1) + [(1, 0, 0)])
    last = np.argmax(moved_axis(runs, x.ndim - 1, axis), axis=axis, keepdims=True)
    return _at(in_order, last, axis, keepdim)


def _at(arrays: Sequence[Array], places: Array, axis: int, keepdim: bool) -> list[Array]:
    """One element of each line, at places that keep its axis."""
    found = [gathered_lines(x, places.astype(dtypes.int64), axis) for x in arrays]
    return found if keepdim else [np.squeeze(x, axis=axis) for x in found]


def _nth(arrays: Sequence[Array], n: int, axis: int, keepdim: bool) -> list[Array]:
    """One element of each line."""
    at = (slice(None),) * axis + ((slice(n, n + 1) if keepdim else n),)
    return [x[at] for x in arrays]


@operator("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def _searchsorted(
    node: Node,
    line: Array,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Array | None = None,
) -> Array:
    """How many elements of a sorted line, or of each, come before each value: by halves, as PyTorch
    does, so that NaN stands where it stands there.
    """
    last = line.ndim - 1
    ordered = line if sorter is None else gathered_lines(line, sorter, last)
    length = ordered.shape[last]
    comes_after = np.greater if right or side == "right" else np.greater_equal
    first = np.zeros(values.shape if isinstance(values, Array) else (), dtype=dtypes.int32)
    end = np.full(first.shape, length, dtype=dtypes.int32)
    for _ in range(length.bit_length()):
        middle = np.floor_divide(first + end, 2)
        at = np.minimum(middle, length - 1)
        met = gathered_along(ordered, at, 0) if last == 0 else gathered_lines(ordered, at, last)
        is_open = np.less(first, end)
        before = np.logical_and(is_open, np.logical_not(comes_after(met, values)))
        end = np.where(np.logical_and(is_open, np.logical_not(before)), middle, end)
        first = np.where(before, middle + 1, first)
    return first if out_int32 else first.astype(dtypes.int64)


@operator("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def _bucketize(
    node: Node, values: Any, boundaries: Array, *, out_int32: bool = False, right: bool = False
) -> Array:
    found: Array = _searchsorted(node, boundaries, values, out_int32=out_int32, right=right)
    return found


@operator("aten.repeat_interleave.Tensor")
def _repeat_interleave(node: Node, repeats: Array, *, output_size: int | None = None) -> Array:
    """The place of each element as often as it says; how many that are must be known."""
    ends = np.cumsum(repeats)
    count = np.sum(repeats).tolist() if output_size is None else output_size
    found: Array = _searchsorted(node, ends, asarray(numpy.arange(count)), right=True)
    return found.astype(node.dtype)


@operator("aten.nonzero.default")
def _nonzero(node: Node, x: Array) -> Array:
    """Of an array that is known: how many there are decides a shape."""
    places = numpy.asarray(truth(x)).nonzero()
    return asarray(numpy.asarray(places, numpy.int64).T.copy())
