"""NumPy's `lib`: of it what arrays are computed with.

>>> stride_tricks.sliding_window_view([1, 2, 3], 2).tolist()
[[1, 2], [2, 3]]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuronsim.arrays import stride_tricks
from neuronsim.arrays.absent_names import refuse

__all__ = ["stride_tricks"]

if not TYPE_CHECKING:
    __getattr__ = refuse("numpy.lib", __all__)
    __dir__ = __all__.copy
