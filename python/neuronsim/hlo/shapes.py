"""The shapes that a file may give an array."""

from __future__ import annotations

import math
from functools import lru_cache

from neuronsim.dtypes import DType
from neuronsim.errors import InvalidModel
from neuronsim.hlo.module import Shape, row_major

MAX_RANK = 64
MAX_DIMENSION = 2**62


@lru_cache(maxsize=4096)  # a module has few shapes, and they are one object each
def check_shape(
    dtype: DType, dims: tuple[int, ...], *, is_dynamic: bool, layout: tuple[int, ...]
) -> Shape:
    """The shape of an array; `layout` may be empty. Raises InvalidModel for one that cannot be.

    The size may be any that 63 bits count: what does not fit into memory is refused where it would be
    allocated.
    """
    if len(dims) > MAX_RANK:
        raise InvalidModel(f"an array of {len(dims)} dimensions: neuronsim reads up to {MAX_RANK}")
    if is_dynamic:
        raise InvalidModel(
            f"[NCC_EMOD025] dynamic shape {dims} is not supported: export the model with fixed sizes"
        )
    if any(not 0 <= d <= MAX_DIMENSION for d in dims):
        raise InvalidModel(f"{dims[:8]} are not dimensions of an array")
    if math.prod(filter(None, dims)) * dtype.itemsize >= 2**63:  # even where a 0 makes it empty
        raise InvalidModel(f"dimensions {dims[:8]} overflow: no memory has so many bytes")
    if layout and sorted(layout) != list(range(len(dims))):
        raise InvalidModel(f"layout {layout[:8]} does not order {len(dims)} dimensions")
    return Shape(dtype, dims, layout if layout and layout != row_major(len(dims)) else None)
