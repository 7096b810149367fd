"""Sums in Einstein's convention: an axis is a label, and a label that the result lacks is summed.

>>> einsum("ij,jk->ik", [[1.0, 2.0]], [[3.0], [4.0]])
Array([[11.]], dtype=float32)
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np

from neuronsim import ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import common_arrays, convert, write
from neuronsim.arrays.default_types import array_type
from neuronsim.arrays.evaluation import apply_elementwise
from neuronsim.arrays.products import contract, operand_type, widened
from neuronsim.dtypes import DType, DTypeLike
from neuronsim.errors import InvalidArgument

__all__ = ["einsum"]

# Letters, integers of the list form, and ("...", n) for the axes that an ellipsis stands for.
Label: TypeAlias = Hashable
_ELLIPSIS = "..."


def einsum(
    *operands: Any, out: Any = None, dtype: DTypeLike | None = None, optimize: Any = False
) -> Array:
    """NumPy's einsum: subscripts and arrays, or arrays each with a list of labels.

    Two arrays whose summed labels are of both are one product by M2, in the order in which the first
    has them, rounded once (M4); without a sum they are multiplied (E2). Otherwise the steps are
    float32, rounded once at the end (R7): arrays are contracted in pairs from the left, a label of one
    of them alone is summed first (R2). `optimize` is accepted and changes nothing. The products of host
    types are NumPy's (H1).

    >>> einsum("ii", [[1, 2], [3, 4]]), einsum([1, 2], [0], [3, 4], [0])
    (Array(5, dtype=int64), Array(11, dtype=int64))
    """
    terms, output, values = _parse(operands)
    arrays = common_arrays(*values)
    labels = [_labels(term, a) for term, a in zip(terms, arrays, strict=True)]
    kept = _implied(labels) if output is None else _output(output, labels)
    lengths = _lengths(labels, arrays)
    common = arrays[0].dtype
    result = common if dtype is None else array_type(dtype)
    if not _is_one_rounding(labels, kept, common is result):
        arrays = [widened(convert(a, operand_type(common, result))) for a in arrays]
    parts = [_taken(a, own, lengths) for a, own in zip(arrays, labels, strict=True)]
    found, own = parts[0]
    for i, (array, others) in enumerate(parts[1:], 2):
        needed = {*kept, *(label for _, later in parts[i:] for label in later)}
        found, own = _summed(found, own, needed | set(others))
        array, others = _summed(array, others, needed | set(own))
        found, own = _product(found, own, array, others, needed, result if i == len(parts) else None)
    found, own = _summed(found, own, set(kept))
    order = [own.index(label) for label in kept]
    total = convert(Array(ops.Bits(found.bits.data.transpose(order), found.dtype)), result)
    return total if out is None else write(out, total)


def _is_one_rounding(
    labels: Sequence[Sequence[Label]], kept: Sequence[Label], keeps_type: bool
) -> bool:
    """Whether it has no steps in float32: one product over all labels that are summed, one sum, or one
    multiplication.
    """
    summed = {label for own in labels for label in own} - set(kept)
    if len(labels) == 2 and summed:
        return all(summed <= set(own) for own in labels)
    return len(labels) <= 2 and keeps_type


# ---- what the subscripts say -----------------------------------------------------------------------


def _parse(operands: Sequence[Any]) -> tuple[list[list[Label]], list[Label] | None, list[Any]]:
    """The labels of each array, those of the result if they are given, and the arrays."""
    if not operands:
        raise InvalidArgument("einsum needs subscripts and arrays")
    if not isinstance(operands[0], str):
        pairs = [*zip(operands[::2], operands[1::2], strict=False)]
        output = _listed(operands[-1]) if len(operands) % 2 else None
        return [_listed(own) for _, own in pairs], output, [array for array, _ in pairs]
    text, *values = operands
    inputs, arrow, output_text = text.replace(" ", "").partition("->")
    terms = [_letters(term, text) for term in inputs.split(",")]
    if len(terms) != len(values):
        raise InvalidArgument(
            f"einsum({text!r}) has subscripts of {len(terms)} arrays, and there are {len(values)}"
        )
    return terms, _letters(output_text, text) if arrow else None, values


def _letters(term: str, text: str) -> list[Label]:
    before, dots, after = term.partition(_ELLIPSIS)
    if not (before + after).isalpha() and before + after:
        raise InvalidArgument(
            f"einsum({text!r}): {term!r} is not letters and at most one ellipsis, '...'"
        )
    return [*before, *([_ELLIPSIS] if dots else []), *after]


def _listed(labels: Any) -> list[Label]:
    try:
        found: list[Label] = [_ELLIPSIS if v is Ellipsis else operator.index(v) for v in labels]
    except TypeError as error:
        raise InvalidArgument(
            f"einsum: the labels of an array are a list of integers and Ellipsis, not {labels!r}"
        ) from error
    if found.count(_ELLIPSIS) > 1:
        raise InvalidArgument(f"einsum: {labels!r} has more than one Ellipsis")
    return found


def _labels(term: list[Label], x: Array) -> list[Label]:
    """A label for each axis; an ellipsis stands for the last axes of those that it may have."""
    spare = x.ndim - len(term) + (_ELLIPSIS in term)
    if spare < 0 or (spare and _ELLIPSIS not in term):
        raise InvalidArgument(
            f"einsum: {''.join(map(str, term))!r} does not name the {x.ndim} axes of {x.bits.type}"
        )
    if _ELLIPSIS not in term:
        return term
    at = term.index(_ELLIPSIS)
    return [*term[:at], *((_ELLIPSIS, n) for n in range(-spare, 0)), *term[at + 1 :]]


def _broadcast_labels(labels: Sequence[Sequence[Label]]) -> list[Label]:
    """Those of the longest ellipsis."""
    found = {label for own in labels for label in own if isinstance(label, tuple)}
    return [(_ELLIPSIS, n) for n in range(-len(found), 0)]


def _implied(labels: Sequence[Sequence[Label]]) -> list[Label]:
    """Without an output: the ellipsis and the labels that occur once, in order."""
    every = [label for own in labels for label in own]
    once = [label for label in every if not isinstance(label, tuple) and every.count(label) == 1]
    return [*_broadcast_labels(labels), *sorted(once, key=lambda v: (isinstance(v, str), v))]


def _output(term: list[Label], labels: Sequence[Sequence[Label]]) -> list[Label]:
    broadcast = _broadcast_labels(labels)
    if broadcast and _ELLIPSIS not in term:
        raise InvalidArgument("einsum: the output needs the ellipsis of the arrays, '...'")
    found = [v for label in term for v in (broadcast if label == _ELLIPSIS else [label])]
    known = {label for own in labels for label in own}
    for label in found:
        if found.count(label) > 1:
            raise InvalidArgument(f"einsum: the output has the label {label!r} twice")
        if label not in known:
            raise InvalidArgument(f"einsum: the output has the label {label!r}, which no array has")
    return found


def _lengths(labels: Sequence[Sequence[Label]], arrays: Sequence[Array]) -> dict[Label, int]:
    """The length of each label; an axis of length 1 broadcasts."""
    lengths: dict[Label, int] = {}
    for own, array in zip(labels, arrays, strict=True):
        for label, length in zip(own, array.shape, strict=True):
            known = lengths.setdefault(label, length)
            differs = any(n != length for v, n in zip(own, array.shape, strict=True) if v == label)
            if differs or (known != length and 1 not in (known, length)):
                shapes = ", ".join(str(a.bits.type) for a in arrays)
                raise InvalidArgument(
                    f"einsum of {shapes}: the axes with the label {label!r} differ in length"
                )
            if known == 1:
                lengths[label] = length
    return lengths


# ---- the steps -------------------------------------------------------------------------------------


def _taken(x: Array, labels: list[Label], lengths: dict[Label, int]) -> tuple[Array, list[Label]]:
    """The array broadcast to the lengths, with the diagonal of each label that it repeats."""
    data, shape = x.bits.data, tuple(lengths[label] for label in labels)
    if shape != data.shape:
        data = np.broadcast_to(data, shape)
    writeable = data.flags.writeable
    own = list(labels)
    for label in dict.fromkeys(labels):
        while own.count(label) > 1:
            first = own.index(label)
            second = own.index(label, first + 1)
            data = np.diagonal(data, 0, first, second)
            data.flags.writeable = writeable  # as NumPy's einsum has it
            own = [v for i, v in enumerate(own) if i not in (first, second)] + [label]
    return Array(ops.Bits(data, x.dtype)), own


def _summed(x: Array, labels: list[Label], needed: set[Label]) -> tuple[Array, list[Label]]:
    """The sum over the labels that nothing needs (R2), in the array's own type (M7)."""
    axes = tuple(i for i, label in enumerate(labels) if label not in needed)
    if not axes:
        return x, labels
    zero = ops.Bits(np.zeros((), x.dtype.storage), x.dtype)
    total = ops.apply("reduce", [x.bits, zero], dimensions=axes, reducer="add")
    return Array(total), [label for label in labels if label in needed]


def _product(
    x: Array,
    own: list[Label],
    y: Array,
    others: list[Label],
    needed: set[Label],
    dtype: DType | None,
) -> tuple[Array, list[Label]]:
    """The product over the labels that both have and nothing needs."""
    batch = [label for label in own if label in others and label in needed]
    summed = [label for label in own if label in others and label not in needed]
    if not summed:
        return _multiplied(x, own, y, others, batch)
    dimensions = ops.DotDimensions(
        *(tuple(map(side.index, shared)) for shared in (summed, batch) for side in (own, others))
    )
    found = contract(x.bits, y.bits, dimensions, dtype)
    free = [label for side in (own, others) for label in side if label not in (*batch, *summed)]
    return found, [*batch, *free]


def _multiplied(
    x: Array, own: list[Label], y: Array, others: list[Label], batch: list[Label]
) -> tuple[Array, list[Label]]:
    """The products without a sum (E2)."""
    labels = [*own, *(label for label in others if label not in batch)]
    order = [others.index(label) for label in labels if label in others]
    data = y.bits.data.transpose(order)
    lengths = iter(data.shape)
    right = Array(ops.Bits(data, y.dtype)).reshape(
        tuple(next(lengths) if label in others else 1 for label in labels)
    )
    left = x.reshape((*x.shape, *(1 for _ in labels[len(own) :])))
    return apply_elementwise("multiply", left, right), labels
