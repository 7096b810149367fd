"""Views that see an element several times: NumPy's `lib.stride_tricks`.

>>> sliding_window_view(asarray([1, 2, 3, 4]), 3).tolist()
[[1, 2, 3], [2, 3, 4]]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from neuronsim import ops
from neuronsim.arrays.absent_names import refuse
from neuronsim.arrays.arguments import integers
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.arrays.manipulation import move_bits
from neuronsim.errors import REFUSALS, InvalidArgument, InvalidIndex, UnsupportedType, refusal

__all__ = ["as_strided", "sliding_window_view"]

if not TYPE_CHECKING:
    __getattr__ = refuse("numpy.lib.stride_tricks", __all__)
    __dir__ = __all__.copy


def sliding_window_view(
    x: Any,
    window_shape: int | Sequence[int],
    axis: int | Sequence[int] | None = None,
    *,
    subok: bool = False,
    writeable: bool = False,
) -> Array:
    """All windows of a shape, as a read-only view whose last axes are those of a window: along `axis`,
    or along each axis. With `writeable` what is written into it is written into `x`.

    >>> sliding_window_view(asarray([[1, 2, 3], [4, 5, 6]]), (2, 2)).shape
    (1, 2, 2, 2)
    """
    return move_bits(
        np.lib.stride_tricks.sliding_window_view, x, window_shape, axis, writeable=writeable
    )


def as_strided(
    x: Any,
    shape: int | Sequence[int] | None = None,
    strides: int | Sequence[int] | None = None,
    subok: bool = False,
    writeable: bool = True,
) -> Array:
    """The memory of `x` from its first element on as an array of another shape and strides, in bytes: a
    view. Raises InvalidIndex where it would leave the memory that `x` is of, which NumPy reads.

    >>> x = asarray([1, 2, 3, 4, 5], dtype="int16")
    >>> as_strided(x, (2, 3), (4, 2)).tolist()
    [[1, 2, 3], [3, 4, 5]]
    """
    a = asarray(x)
    data = a.bits.data
    if not isinstance(data, np.ndarray):
        raise UnsupportedType("as_strided of a traced array, which has no strides: index it")
    dims = a.shape if shape is None else tuple(integers("shape", shape))
    steps = data.strides if strides is None else tuple(integers("strides", strides))
    try:
        view = np.lib.stride_tricks.as_strided(data, dims, steps, writeable=writeable)
    except REFUSALS as error:
        raise refusal(f"as_strided of {a.bits.type} to {dims}", error) from error
    if any(s % data.itemsize for s in steps):
        raise InvalidArgument(
            f"strides {steps} are no multiples of the {data.itemsize} bytes of an element"
        )
    if view.size:
        (low, high), (first, last) = map(np.lib.array_utils.byte_bounds, (_whole(data), view))
        if first < low or last > high:
            raise InvalidIndex(
                f"as_strided: shape {dims} with strides {steps} leaves the memory of {a.bits.type}"
            )
    return Array(ops.Bits(view, a.dtype))


def _whole(data: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array whose memory a view is of."""
    while isinstance(data.base, np.ndarray):
        data = data.base
    return data
