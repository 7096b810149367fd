"""Replica groups in XLA's short form: device numbers counted up, reshaped and transposed.

>>> expand_iota(2, 2, [2, 2], [1, 0])
((0, 2), (1, 3))
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from neuronsim.errors import InvalidModel

MAX_DEVICES = 1 << 16


def expand_iota(
    groups: int, devices: int, reshape: Sequence[int], permutation: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """The groups of `[groups,devices]<=[reshape]T(permutation)`.

    Raises InvalidModel where the numbers do not fit each other or name more than MAX_DEVICES.
    """
    dims = tuple(reshape) or (groups * devices,)
    axes = tuple(permutation) or tuple(range(len(dims)))
    size = groups * devices
    legal = min(groups, devices, *dims) > 0 and math.prod(dims[:64]) == size and len(dims) <= 32
    if not legal or sorted(axes) != list(range(len(dims))):
        raise InvalidModel(
            f"replica groups [{groups},{devices}]<={list(dims[:8])} contradict themselves"
        )
    if size > MAX_DEVICES:
        raise InvalidModel(f"replica groups of {size} devices: neuronsim reads up to {MAX_DEVICES}")
    numbers = np.arange(size).reshape(dims).transpose(axes).reshape(groups, devices)
    return tuple(map(tuple, numbers.tolist()))
