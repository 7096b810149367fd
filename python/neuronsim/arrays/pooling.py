"""Pools: reductions of windows over the spatial axes of images (R4). `nn` exports them.

>>> max_pool([[[1.0, 3.0, 2.0, 5.0]]], 2)
Array([[[3., 5.]]], dtype=float32)
"""

from __future__ import annotations

import math
from typing import Any

from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.arrays.convolution import PerAxis, per_axis
from neuronsim.arrays.creation import ones
from neuronsim.arrays.evaluation import apply_elementwise
from neuronsim.arrays.reductions import reduce_window
from neuronsim.arrays.steps import in_float32
from neuronsim.errors import InvalidArgument
from neuronsim.ops import WindowDimension

__all__ = ["avg_pool", "max_pool"]


def _window(
    x: Array, size: PerAxis, stride: PerAxis | None, padding: PerAxis
) -> tuple[WindowDimension, ...]:
    """The window over (batch, channel, spatial...)."""
    spatial = x.ndim - 2
    if spatial < 0:
        raise InvalidArgument(f"a pool of {x.bits.type}: the axes are batch, channel and spatial ones")
    columns = zip(
        per_axis("size", size, spatial),
        per_axis("stride", size if stride is None else stride, spatial),
        per_axis("padding", padding, spatial),
        strict=True,
    )
    own = [WindowDimension(n, step, (pad, pad)) for n, step, pad in columns]
    return (WindowDimension(1), WindowDimension(1), *own)


def max_pool(x: Any, size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0) -> Array:
    """The maximum of each window of the spatial axes, which are `stride` (the size if None) apart:
    exact (E7); padding is no element (R4).
    """
    a = asarray(x)
    return reduce_window(a, "maximum", _window(a, size, stride, padding))


@in_float32("x")
def avg_pool(
    x: Any,
    size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    count_include_pad: bool = True,
) -> Array:
    """The sum of each window's elements (R4) over their number, with the padding's unless
    `count_include_pad` is False, in float32 steps (R7).

    >>> avg_pool([[[1.0, 3.0, 2.0, 5.0]]], 2)
    Array([[[2. , 3.5]]], dtype=float32)
    """
    window = _window(x, size, stride, padding)
    count: Array | int = math.prod(d.size for d in window)
    if not count_include_pad:
        count = reduce_window(ones(x.shape, dtype=x.dtype), "add", window)
    return apply_elementwise("divide", reduce_window(x, "add", window), count)
