"""One kernel on one problem: what is run, and how much it reads, writes and computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes, ops
from neuronsim.bench.layer import Layer
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument

MAX_ELEMENTS = 1 << 32


@dataclass(frozen=True)
class Case:
    """One kernel on one problem. `elements` counts outputs, for a reduction inputs; `bytes` what must
    be read and written; `flops` the arithmetic; `operands` float32 values that peers start from. `cast`
    is what a product's operands are rounded to inside the run (A1), `layer` a convolution's.
    """

    op: str
    shape: tuple[int, ...]
    dtype: DType
    target: DType
    operands: tuple[npt.NDArray[np.float32], ...]
    run: Callable[[], Any]
    run_touched: Callable[[], Any]
    elements: int
    bytes: int
    flops: int
    axis: int | None = None
    cast: DType | None = None
    layer: Layer | None = None

    @property
    def is_predicate(self) -> bool:
        """Whether the result is bool."""
        row = ops.OPS.get(self.op)
        like = ops.ArrayType(self.dtype, ())
        return (
            row is not None
            and row.core is not None
            and (row.infer_array([like] * row.arity, {}).dtype is not self.dtype)
        )

    @property
    def product_rows(self) -> int:
        """How many rows the core's product has; a narrow one it turns round."""
        if self.op != "matmul":
            return self.elements // int(self.operands[1].shape[0])
        rows, columns = self.shape[-3], self.shape[-1]
        return min(rows, columns) if columns <= 8 else rows

    @property
    def multiplies_bfloat16(self) -> bool:
        """Whether the product's operands are bfloat16 values, which VDPBF16PS multiplies in pairs."""
        packed = self.cast or self.dtype
        fits = packed is dtypes.bfloat16 or (packed.bits == 8 and packed.exponent_bits > 0)
        return self.op in ("matmul", "convolution") and fits


def normal_values(shape: tuple[int, ...], seed: int) -> npt.NDArray[np.float32]:
    """Normal values that depend on the seed alone."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def check_shape(shape: tuple[int, ...], arrays: Sequence[tuple[int, ...]]) -> None:
    """Raises InvalidArgument if a shape has no element or one of its arrays has too many."""
    if not shape or min(shape) < 1 or any(math.prod(a) > MAX_ELEMENTS for a in arrays):
        raise InvalidArgument(
            f"a shape is positive lengths such as 4096x1024, of arrays with at most {MAX_ELEMENTS} "
            f"elements, not {shape}"
        )
