"""Sequences of tensors, whose lengths are known while a model is traced, and optionals, of which it is
known whether they have an element: None is one without, any other value one that has it.
"""

from __future__ import annotations

from typing import Any

import numpy

from neuronsim import arrays as np
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.errors import InvalidModel
from neuronsim.frontends.onnx.operators.control import run_body
from neuronsim.frontends.onnx.table import Node, Tensors, operator
from neuronsim.frontends.primitives import axis_of, integers, joined, part


def _of(given: Any) -> tuple[Array, ...]:
    if not isinstance(given, Tensors):
        raise InvalidModel("reads a tensor where a sequence belongs")
    return given.items


def _place(position: Array, length: int, last: int) -> int:
    """A place in a sequence, counted from its start; it lies before `last`."""
    (at,) = integers(position)
    if not -length <= at < last:
        raise InvalidModel(f"place {at} of a sequence of {length} tensors")
    return at + length if at < 0 else at


operator("SequenceEmpty")(lambda node: Tensors(()))
operator("SequenceLength")(lambda node, s: asarray(numpy.int64(len(_of(s)))))


@operator("SequenceConstruct")
def _construct(node: Node, *given: Array) -> Tensors:
    if len({x.dtype for x in given}) != 1:
        raise InvalidModel(f"a sequence of {', '.join(str(x.bits.type) for x in given) or 'nothing'}")
    return Tensors(given)


@operator("SequenceAt")
def _at(node: Node, given: Tensors, position: Array) -> Array:
    items = _of(given)
    return items[_place(position, len(items), len(items))]


@operator("SequenceInsert")
def _insert(node: Node, given: Tensors, x: Array, position: Array | None = None) -> Tensors:
    items = _of(given)
    at = len(items) if position is None else _place(position, len(items), len(items) + 1)
    return Tensors((*items[:at], x, *items[at:]))


@operator("SequenceErase")
def _erase(node: Node, given: Tensors, position: Array | None = None) -> Tensors:
    items = _of(given)
    last = asarray(-1) if position is None else position
    at = _place(last, len(items), len(items))
    return Tensors((*items[:at], *items[at + 1 :]))


@operator("SplitToSequence")
def _split(node: Node, x: Array, lengths: Array | None = None) -> Tensors:
    axis = axis_of(node.get("axis", 0), x.ndim)
    n = x.shape[axis]
    if lengths is not None and lengths.ndim:
        sizes = integers(lengths)
    else:
        (size,) = [1] if lengths is None else integers(lengths)
        sizes = [min(size, n - at) for at in range(0, n, size)] if size > 0 else []
    if sum(sizes) != n or any(s < 0 for s in sizes):
        raise InvalidModel(f"splits axis {axis} of {x.bits.type} into {sizes}")
    ends = numpy.cumsum(sizes).tolist()
    parts = [part(x, axis, end - size, end) for end, size in zip(ends, sizes, strict=True)]
    if lengths is None and not node.get("keepdims", 1):
        parts = [np.reshape(p, (*x.shape[:axis], *x.shape[axis + 1 :])) for p in parts]
    return Tensors(tuple(parts))


@operator("ConcatFromSequence")
def _concat(node: Node, given: Tensors) -> Array:
    items = _of(given)
    stacks = node.get("new_axis", 0)
    ranks = {x.ndim for x in items}
    if len(ranks) != 1 or len({x.dtype for x in items}) != 1:
        raise InvalidModel(f"joins {', '.join(str(x.bits.type) for x in items) or 'nothing'}")
    axis = axis_of(node.require("axis"), items[0].ndim + (1 if stacks else 0))
    return np.stack(items, axis=axis) if stacks else joined(items, axis)


@operator("SequenceMap")
def _map(node: Node, first: Tensors, *more: Tensors | Array) -> list[Tensors]:
    """The body's outputs for each tensor of the first sequence and of the others, beside tensors."""
    body, steps = node.require("body"), range(len(_of(first)))
    found = [
        run_body(node, body, [x.items[n] if isinstance(x, Tensors) else x for x in (first, *more)])
        for n in steps
    ]
    return [Tensors(tuple(outputs[n] for outputs in found)) for n in range(len(body.output))]


# ---- optionals --------------------------------------------------------------------------------------

operator("Optional", since=15)(lambda node, x=None: x)
operator("OptionalHasElement", since=15)(lambda node, x=None: asarray(x is not None))


@operator("OptionalGetElement", since=15)
def _element(node: Node, x: Array | Tensors | None) -> Array | Tensors:
    if x is None:
        raise InvalidModel("reads an optional that has no element")
    return x
