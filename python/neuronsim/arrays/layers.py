"""Layers with weights, and what feeds them. `nn` exports them.

>>> linear([[1.0, 2.0]], weight=[[1.0, 1.0], [0.0, 3.0]], bias=[0.5, 0.0])
Array([[3.5, 6. ]], dtype=float32)
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

from neuronsim import dtypes
from neuronsim.arrays.arguments import number
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray, convert, float_array
from neuronsim.arrays.default_types import array_type, default_dtype
from neuronsim.arrays.elementwise import where
from neuronsim.arrays.indexing import take
from neuronsim.arrays.manipulation import expand_dims
from neuronsim.arrays.normalization import softmax
from neuronsim.arrays.products import matmul, matrix_transpose
from neuronsim.arrays.progressions import arange
from neuronsim.dtypes import DType, DTypeLike, result_type
from neuronsim.errors import InvalidArgument

__all__ = ["attention", "embedding", "linear", "one_hot"]


def psum_type(*operands: Array) -> DType:
    """The type in which a product of these leaves PSUM: float32, or the host's type (H1)."""
    common = reduce(result_type, (x.dtype for x in operands))
    return dtypes.float32 if common.exponent_bits else common


def add_bias(sums: Array, bias: Any, *operands: Array) -> Array:
    """The sums of PSUM and the bias, added in float32 and rounded once to the common type of the
    product's operands and the bias.
    """
    b = float_array(bias)
    return convert(
        sums + convert(b, sums.dtype), reduce(result_type, (x.dtype for x in operands), b.dtype)
    )


def linear(x: Any, weight: Any, bias: Any = None) -> Array:
    """The product of x and the transposed `weight` (outputs, inputs), plus `bias`: sums by M2 in PSUM,
    in float32; the bias is added in float32; one rounding to the operands' common type.
    """
    a, w = float_array(x), float_array(weight)
    if w.ndim != 2:
        raise InvalidArgument(f"linear: the weight {w.bits.type} is not (outputs, inputs)")
    if bias is None:
        return matmul(a, matrix_transpose(w))
    sums = matmul(a, matrix_transpose(w), dtype=psum_type(a, w))
    return add_bias(sums, bias, a, w)


def attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
) -> Array:
    """softmax(query key^T * scale + mask) value, over the last two axes, (positions, features); the
    axes before them broadcast. `scale` is 1 / sqrt(features) by default.

    The products with the keys stay in PSUM (M2), in float32; times `scale`, and plus a float `mask`,
    are float32 steps (E2), and where a bool mask is False, or under `is_causal` a key lies after its
    query, -Inf takes their place. The softmax is in float32 steps (R7), rounded to the common type,
    as the tensor engine takes it; its product with the values is rounded once (M4). A query without
    any key gives NaN.

    >>> attention([[1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]], [[2.0], [4.0]])
    Array([[3.]], dtype=float32)
    """
    q, k, v = (float_array(x) for x in (query, key, value))
    for what, x in (("query", q), ("key", k), ("value", v)):
        if x.ndim < 2:
            raise InvalidArgument(
                f"attention: the {what} {x.bits.type} has no axes (positions, features)"
            )
    factor = 1 / math.sqrt(max(q.shape[-1], 1)) if scale is None else number("scale", scale)
    scores = matmul(q, matrix_transpose(k), dtype=psum_type(q, k)) * factor
    if mask is not None:
        m = asarray(mask)
        is_bool = m.dtype is dtypes.boolean
        scores = where(m, scores, -math.inf) if is_bool else scores + convert(m, scores.dtype)
    if is_causal:
        rows, columns = (arange(n) for n in scores.shape[-2:])
        scores = where(columns <= expand_dims(rows, 1), scores, -math.inf)
    common = reduce(result_type, (x.dtype for x in (q, k, v)))
    return matmul(convert(softmax(scores), common), v, dtype=common)


def embedding(indices: Any, weight: Any) -> Array:
    """The rows of `weight` at `indices`: moves bits (E6). Raises InvalidIndex for an index outside.

    >>> embedding([2, 0], [[1.0], [2.0], [3.0]])
    Array([[3.],
           [1.]], dtype=float32)
    """
    return take(asarray(weight), indices, axis=0)


def one_hot(indices: Any, num_classes: int, dtype: DTypeLike | None = None) -> Array:
    """A new last axis of `num_classes`, 1 at the index and 0 elsewhere; an index outside gives zeros.

    >>> one_hot([1, 3], 3, dtype="int8")
    Array([[0, 1, 0],
           [0, 0, 0]], dtype=int8)
    """
    a = asarray(indices)
    if a.dtype.kind not in ("signed", "unsigned"):
        raise InvalidArgument(f"one_hot of {a.bits.type}: indices are integers")
    target = default_dtype() if dtype is None else array_type(dtype)
    return convert(expand_dims(a, -1) == arange(num_classes, dtype=a.dtype), target)
