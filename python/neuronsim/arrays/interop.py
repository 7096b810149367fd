"""Memory that arrays share, with each other and by DLPack with other libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from neuronsim.arrays import dlpack
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.arrays.device import check_device
from neuronsim.errors import REFUSALS, refusal

__all__ = ["from_dlpack", "may_share_memory", "shares_memory"]


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """An Array of the memory of an object with `__dlpack__` (of torch, JAX, NumPy, ...), shared unless
    `copy` is true; read-only if the exporter says so, or cannot say. Raises UnsupportedType for a type
    that neuronsim has not, and UnsupportedBuffer (a BufferError) for memory of another device.
    """
    if device is not None:
        check_device(device)
    return Array(dlpack.from_dlpack(x, copy))


def may_share_memory(a: Any, b: Any, /, max_work: Any = 0) -> bool:
    """Whether the ranges of memory of two arrays overlap: whether they could share elements."""
    return _share(np.may_share_memory, a, b, max_work)


def shares_memory(a: Any, b: Any, /, max_work: Any = -1) -> bool:
    """Whether two arrays share an element; exact unless `max_work` ends the search.

    >>> x = asarray(np.zeros(4, np.float32))
    >>> shares_memory(x, x[::2]), shares_memory(x[::2], x[1::2]), may_share_memory(x[::2], x[1::2])
    (True, False, True)
    """
    return _share(np.shares_memory, a, b, max_work)


def _share(function: Callable[..., bool], a: Any, b: Any, max_work: Any) -> bool:
    try:
        return function(asarray(a).bits.data, asarray(b).bits.data, max_work)
    except REFUSALS as error:
        raise refusal(function.__name__, error) from error
