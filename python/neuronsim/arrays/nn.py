"""Composites in float32 steps, rounded once at the end (R7).

>>> from neuronsim.arrays.array import asarray
>>> softmax(asarray([0.0, 0.0], dtype="bfloat16"))
Array([0.5, 0.5], dtype=bfloat16)
"""

from __future__ import annotations

from typing import Any

from neuronsim import dtypes
from neuronsim.arrays import functions
from neuronsim.arrays.array import Array, asarray, convert, default_dtype, elementwise


def _float_array(x: Any) -> Array:
    """Integers and bool take the default float type."""
    a = asarray(x)
    return a if a.dtype.kind == "float" else convert(a, default_dtype())


def _wide(a: Array) -> Array:
    """The type of the steps: float32, or float64 on the host (H1)."""
    return a if a.dtype is dtypes.float64 else convert(a, dtypes.float32)


def softmax(x: Any, axis: int = -1) -> Array:
    """exp(x - max x) / sum of exp(x - max x) over `axis`."""
    a = _float_array(x)
    wide = _wide(a)
    powers = elementwise("exp", wide - functions.max(wide, axis, keepdims=True))
    return convert(powers / functions.sum(powers, axis, keepdims=True), a.dtype)


def layer_norm(x: Any, weight: Any = None, bias: Any = None, epsilon: float = 1e-5) -> Array:
    """(x - mean) * rsqrt(var + epsilon) over the last axis, the variance two-pass; then the affine."""
    a = _float_array(x)
    wide = _wide(a)
    centred = wide - functions.mean(wide, -1, keepdims=True)
    variance = functions.mean(centred * centred, -1, keepdims=True)
    result = centred * elementwise("rsqrt", variance + epsilon)
    if weight is not None:
        result = result * convert(asarray(weight), wide.dtype)
    if bias is not None:
        result = result + convert(asarray(bias), wide.dtype)
    return convert(result, a.dtype)
