"""Composites in float32 steps, rounded once at the end (R7).

>>> from neuronsim.arrays.array import asarray
>>> softmax(asarray([0.0, 0.0], dtype="bfloat16"))
Array([0.5, 0.5], dtype=bfloat16)
"""

from __future__ import annotations

from typing import Any

from neuronsim import dtypes
from neuronsim.arrays import functions
from neuronsim.arrays.array import Array, asarray, convert, elementwise


def softmax(x: Any, axis: int = -1) -> Array:
    """exp(x - max x) / sum of exp(x - max x) over `axis`."""
    a = asarray(x)
    wide = convert(a, dtypes.float32)
    powers = elementwise("exp", wide - functions.max(wide, axis, keepdims=True))
    return convert(powers / functions.sum(powers, axis, keepdims=True), a.dtype)


def layer_norm(x: Any, weight: Any = None, bias: Any = None, epsilon: float = 1e-5) -> Array:
    """(x - mean) * rsqrt(var + epsilon) over the last axis, the variance two-pass; then the affine."""
    a = asarray(x)
    wide = convert(a, dtypes.float32)
    centred = wide - functions.mean(wide, -1, keepdims=True)
    variance = functions.mean(centred * centred, -1, keepdims=True)
    result = centred * elementwise("rsqrt", variance + epsilon)
    if weight is not None:
        result = result * convert(asarray(weight), dtypes.float32)
    if bias is not None:
        result = result + convert(asarray(bias), dtypes.float32)
    return convert(result, a.dtype)
