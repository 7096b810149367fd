"""Operators that move elements: views are values of their own, as export has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy

from neuronsim import arrays as np
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.arrays.evaluation import select_elements
from neuronsim.frontends.primitives import apply, axis_of, flipped, joined, part, taken, transposed
from neuronsim.frontends.torch.promotion import as_type, promoted
from neuronsim.frontends.torch.table import Node, operator


def _inferred(x: Array, size: Sequence[int]) -> tuple[int, ...]:
    """A shape whose -1 is what is left."""
    known = math.prod(n for n in size if n != -1)
    return tuple(x.size // max(known, 1) if n == -1 else n for n in size)


@operator(
    "aten.view.default", "aten._unsafe_view.default", "aten.reshape.default",
    "aten._reshape_alias.default",
)  # fmt: skip
def _view(node: Node, x: Array, size: Sequence[int], stride: Any = None) -> Array:
    return np.reshape(x, _inferred(x, size))


@operator("aten.permute.default")
def _permute(node: Node, x: Array, dims: Sequence[int]) -> Array:
    return transposed(x, [axis_of(d, x.ndim) for d in dims])


operator("aten.t.default")(lambda node, x: transposed(x, range(x.ndim)[::-1]))


@operator("aten.transpose.int")
def _swapped(node: Node, x: Array, first: int, second: int) -> Array:
    order = list(range(x.ndim))
    if order:
        a, b = axis_of(first, x.ndim), axis_of(second, x.ndim)
        order[a], order[b] = order[b], order[a]
    return transposed(x, order)


@operator("aten.expand.default")
def _expand(node: Node, x: Array, size: Sequence[int], *, implicit: bool = False) -> Array:
    new = len(size) - x.ndim
    dims = [x.shape[d - new] if n == -1 else n for d, n in enumerate(size)]
    return x if tuple(dims) == x.shape else np.broadcast_to(x, tuple(dims))


operator("aten.repeat.default")(lambda node, x, repeats: np.tile(x, tuple(repeats)) if repeats else x)


@operator("aten.squeeze.dims", "aten.squeeze.dim", "aten.squeeze.default")
def _squeeze(node: Node, x: Array, dim: int | Sequence[int] | None = None) -> Array:
    axes = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = {axis_of(d, x.ndim) for d in axes} if x.ndim else set()
    return np.reshape(x, [n for d, n in enumerate(x.shape) if d not in gone or n != 1])


operator("aten.unsqueeze.default")(lambda node, x, dim: np.expand_dims(x, dim))


@operator("aten.cat.default")
def _cat(node: Node, tensors: Sequence[Array], dim: int = 0) -> Array:
    some = [x for x in tensors if x.shape != (0,)] or list(tensors[:1])
    return joined(promoted(*some, dtype=node.dtype), axis_of(dim, some[0].ndim))


@operator("aten.stack.default")
def _stack(node: Node, tensors: Sequence[Array], dim: int = 0) -> Array:
    return np.stack(promoted(*tensors, dtype=node.dtype), axis=dim)


@operator("aten.split_with_sizes.default", "aten.split_with_sizes_copy.default")
def _split_with_sizes(node: Node, x: Array, sizes: Sequence[int], dim: int = 0) -> list[Array]:
    axis, ends = axis_of(dim, x.ndim), numpy.cumsum(sizes).tolist()
    return [part(x, axis, e - n, e) for n, e in zip(sizes, ends, strict=True)]


@operator("aten.split.Tensor")
def _split(node: Node, x: Array, size: int, dim: int = 0) -> list[Array]:
    axis = axis_of(dim, x.ndim)
    n = x.shape[axis]
    return [part(x, axis, at, min(at + size, n)) for at in range(0, max(n, 1), max(size, 1))]


@operator("aten.unbind.int")
def _unbind(node: Node, x: Array, dim: int = 0) -> list[Array]:
    axis = axis_of(dim, x.ndim)
    return [_select(node, x, axis, n) for n in range(x.shape[axis])]


operator("aten.flip.default")(lambda node, x, dims: flipped(x, [axis_of(d, x.ndim) for d in dims]))


@operator("aten.roll.default")
def _roll(node: Node, x: Array, shifts: Sequence[int], dims: Sequence[int] = ()) -> Array:
    if not dims:
        return np.reshape(np.roll(np.reshape(x, (-1,)), shifts[0]), x.shape)
    return np.roll(x, tuple(shifts), axis=tuple(dims))


# ---- parts -----------------------------------------------------------------------------------------


def _span(n: int, start: int | None, end: int | None, step: int) -> tuple[int, int, int]:
    """The elements from, to and by which steps of an axis of n, as Python's slices count them."""
    first, last, _ = slice(start, end).indices(n)
    return first, max(first, last), step


@operator("aten.slice.Tensor")
def _slice(
    node: Node,
    x: Array,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Array:
    axis = axis_of(dim, x.ndim)
    return part(x, axis, *_span(x.shape[axis], start, end, step))


@operator("aten.select.int")
def _select(node: Node, x: Array, dim: int, index: int) -> Array:
    axis = axis_of(dim, x.ndim)
    at = index + x.shape[axis] if index < 0 else index
    dims = [n for d, n in enumerate(x.shape) if d != axis]
    return np.reshape(part(x, axis, at, at + 1), dims)


def _replaced(x: Array, source: Array, axis: int, places: numpy.ndarray[Any, Any]) -> Array:
    """With the slices at places along an axis in the place of its own; slices that follow each other
    are joined with what is around them.
    """
    n = x.shape[axis]
    update = as_type(source, x.dtype)
    if not places.size:
        return x
    if (numpy.diff(places) == 1).all():
        before, after = part(x, axis, 0, int(places[0])), part(x, axis, int(places[-1]) + 1, n)
        return joined([before, update, after], axis)
    order = numpy.arange(n)
    order[places] = n + numpy.arange(places.size)
    return taken(joined([x, update], axis), order, axis)


@operator("aten.slice_scatter.default")
def _slice_scatter(
    node: Node,
    x: Array,
    source: Array,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Array:
    axis = axis_of(dim, x.ndim)
    return _replaced(x, source, axis, numpy.arange(*_span(x.shape[axis], start, end, step)))


@operator("aten.select_scatter.default")
def _select_scatter(node: Node, x: Array, source: Array, dim: int, index: int) -> Array:
    axis = axis_of(dim, x.ndim)
    return _replaced(x, np.expand_dims(source, axis), axis, numpy.array([index % x.shape[axis]]))


@operator("aten.diagonal.default", "aten.diagonal_copy.default")
def _diagonal(node: Node, x: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    return np.diagonal(x, offset, dim1, dim2)


@operator("aten.diagonal_scatter.default")
def _diagonal_scatter(
    node: Node, x: Array, source: Array, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Array:
    """With other elements on a diagonal, those of the last axis of `source`."""
    if not source.size:
        return x
    axes = [axis_of(d, x.ndim) for d in (dim1, dim2)]
    rows, columns = numpy.indices([x.shape[a] for a in axes])
    is_on = columns - rows == offset
    places = numpy.where(is_on, rows if offset >= 0 else columns, 0)
    spread = taken(as_type(source, x.dtype), places.reshape(-1), source.ndim - 1)
    spread = np.reshape(spread, (*source.shape[:-1], *is_on.shape))
    # The two axes go from the end to where they are.
    order = [a for a in range(x.ndim) if a not in axes] + axes
    back = [order.index(a) for a in range(x.ndim)]
    wide = numpy.broadcast_to(is_on, spread.shape).transpose(back)
    return select_elements(asarray(wide), transposed(spread, back), x)


@operator("aten.as_strided.default", "aten.as_strided_copy.default")
def _as_strided(
    node: Node, x: Array, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Array:
    """Elements by their places in PyTorch's memory."""
    places = _strided_places(node, x, size, stride, storage_offset)
    if places.size == x.size and (places.reshape(-1) == numpy.arange(x.size)).all():
        return np.reshape(x, tuple(size))
    return np.reshape(taken(np.reshape(x, (-1,)), places.reshape(-1), 0), tuple(size))


@operator("aten.as_strided_scatter.default")
def _as_strided_scatter(
    node: Node,
    x: Array,
    source: Array,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Array:
    """With others in the place of these elements."""
    places = _strided_places(node, x, size, stride, storage_offset).reshape(-1)
    order = numpy.arange(x.size)
    order[places] = x.size + numpy.arange(places.size)
    both = [np.reshape(x, (-1,)), np.reshape(as_type(source, x.dtype), (-1,))]
    return np.reshape(taken(joined(both, 0), order, 0), x.shape)


def _strided_places(
    node: Node, x: Array, size: Sequence[int], stride: Sequence[int], storage_offset: int | None
) -> numpy.ndarray[Any, Any]:
    """Which elements of an array, row after row, a view of PyTorch's memory has, where the array lies
    as its node says, or row after row.
    """
    strides, offset = node.memory or (None, 0)
    first = offset if storage_offset is None else storage_offset
    places = _places(size, stride, first)
    if strides is not None:
        own = _places(x.shape, strides, offset).reshape(-1)
        order = numpy.argsort(own, kind="stable")
        at = numpy.minimum(numpy.searchsorted(own, places, sorter=order), max(own.size - 1, 0))
        found = order[at] if own.size else at
        is_outside = bool(places.size) and (not own.size or (own[found] != places).any())
        places = found
    else:
        is_outside = bool(places.size) and places.max() >= x.size
    if is_outside:
        raise node.refuse("reads memory around its tensor, as a view of a larger one")
    return places


def _places(size: Sequence[int], stride: Sequence[int], first: int) -> numpy.ndarray[Any, Any]:
    """Where the elements of a strided array lie."""
    places = numpy.full(tuple(size), first, numpy.int64)
    for d, (n, step) in enumerate(zip(size, stride, strict=True)):
        dims = [n if k == d else 1 for k in range(len(size))]
        places = places + (numpy.arange(n) * step).reshape(dims)
    return places


operator("aten.tril.default")(lambda node, x, diagonal=0: np.tril(x, k=diagonal))
operator("aten.triu.default")(lambda node, x, diagonal=0: np.triu(x, k=diagonal))


# ---- padding ---------------------------------------------------------------------------------------


def _pairs(x: Array, pad: Sequence[int]) -> list[tuple[int, int]]:
    """What each axis gets before and after it: PyTorch says the last axis first."""
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)][::-1]
    return [(0, 0)] * (x.ndim - len(pairs)) + pairs


@operator("aten.constant_pad_nd.default")
def _constant_pad(node: Node, x: Array, pad: Sequence[int], value: Any = 0) -> Array:
    padding = tuple((a, b, 0) for a, b in _pairs(x, pad))
    if all(p == (0, 0, 0) for p in padding):
        return x
    return apply("pad", x, asarray(value, x.dtype).reshape(()), padding=padding)


def _padded_by(x: Array, pad: Sequence[int], mode: str) -> Array:
    """By elements of its own: their places along each axis are known."""
    for axis, (a, b) in enumerate(_pairs(x, pad)):
        if a or b:
            n = x.shape[axis]
            line = numpy.arange(max(-a, 0), n + min(b, 0))
            wide = (max(a, 0), max(b, 0))
            x = taken(x, numpy.pad(line, wide, mode=mode), axis)  # type: ignore[call-overload]
    return x


for _rank in (1, 2, 3):

    @operator(f"aten.reflection_pad{_rank}d.default")
    def _reflection_pad(node: Node, x: Array, padding: Sequence[int]) -> Array:
        return _padded_by(x, padding, "reflect")

    @operator(f"aten.replication_pad{_rank}d.default")
    def _replication_pad(node: Node, x: Array, padding: Sequence[int]) -> Array:
        return _padded_by(x, padding, "edge")
