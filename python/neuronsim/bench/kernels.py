"""What can be timed: each kernel as a function of no arguments, with its traffic and its work."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim import ops
from neuronsim.arrays import functions
from neuronsim.arrays.array import Array, asarray, elementwise, matmul
from neuronsim.dtypes import DType, as_dtype
from neuronsim.errors import InvalidArgument, UnsupportedOperator, nearest

MAX_ELEMENTS = 1 << 32
_REDUCTIONS = ("sum", "prod", "max", "min", "mean")


@dataclass(frozen=True)
class Case:
    """One kernel on one problem. `elements` counts outputs, for a reduction inputs; `bytes` what must
    be read and written; `flops` the arithmetic; `operands` float32 values that peers start from.
    """

    op: str
    shape: tuple[int, ...]
    dtype: DType
    target: DType
    axis: int | None
    operands: tuple[npt.NDArray[np.float32], ...]
    run: Callable[[], Array]
    elements: int
    bytes: int
    flops: int


def kernel_names() -> tuple[str, ...]:
    """The names that `make_case` takes."""
    elementwise_names = (r.name for r in ops.OPS.values() if r.core is not None and r.name != "select")
    return (*elementwise_names, *_REDUCTIONS, "convert", "matmul")


def make_case(op: str, shape: tuple[int, ...], dtype: str, axis: int | None = None) -> Case:
    """The case of a kernel on a shape.

    `shape` is the operands' (for matmul rows, depth, columns); `dtype` one type or, for convert,
    "source:target"; `axis` is a reduction's. Raises UnsupportedOperator or InvalidArgument.

    >>> make_case("matmul", (8, 16, 4), "bfloat16").flops
    1024
    """
    if op not in kernel_names():
        raise UnsupportedOperator(f"no kernel is named {op!r}{nearest(op, kernel_names())}")
    if not shape or any(n < 1 for n in shape) or math.prod(shape) > MAX_ELEMENTS:
        raise InvalidArgument(
            f"a shape is positive lengths such as 4096x1024 with at most {MAX_ELEMENTS} elements, "
            f"not {shape}"
        )
    source_name, _, target_name = dtype.partition(":")
    source = as_dtype(source_name)
    target = as_dtype(target_name) if target_name else source
    if (op == "convert") != bool(target_name):
        raise InvalidArgument("convert, and nothing else, takes a pair of types: float32:bfloat16")
    if op == "matmul":
        return _matmul_case(shape, source)
    size = math.prod(shape)
    if axis is not None and (op not in _REDUCTIONS or not -len(shape) <= axis < len(shape)):
        raise InvalidArgument(f"{op} of {shape} has no axis {axis}")
    row = ops.OPS.get(op)
    arity = row.arity if row is not None and op != "convert" else 1
    values = tuple(_values(op, shape, seed) for seed in range(arity))
    arrays = [asarray(v, source) for v in values]
    run: Callable[[], Array]
    outputs = size
    if op == "convert":
        run = lambda: arrays[0].astype(target)  # noqa: E731
    elif op in _REDUCTIONS:
        reduction = getattr(functions, op)
        run = lambda: reduction(arrays[0], axis)  # noqa: E731
        outputs = 1 if axis is None else size // shape[axis]
    else:
        run = lambda: elementwise(op, *arrays)  # noqa: E731
    return Case(
        op=op,
        shape=shape,
        dtype=source,
        target=target,
        axis=axis,
        operands=values,
        run=run,
        elements=size,
        bytes=arity * size * source.itemsize + outputs * target.itemsize,
        flops=0 if op == "convert" else size,
    )


def _matmul_case(shape: tuple[int, ...], dtype: DType) -> Case:
    if len(shape) != 3:
        raise InvalidArgument(f"matmul takes ROWSxDEPTHxCOLUMNS, not {shape}")
    rows, depth, columns = shape
    values = (_values("matmul", (rows, depth), 0), _values("matmul", (depth, columns), 1))
    a, b = (asarray(v, dtype) for v in values)
    return Case(
        op="matmul",
        shape=shape,
        dtype=dtype,
        target=dtype,
        axis=None,
        operands=values,
        run=lambda: matmul(a, b),
        elements=rows * columns,
        bytes=(rows * depth + depth * columns + rows * columns) * dtype.itemsize,
        flops=2 * rows * depth * columns,
    )


def _values(op: str, shape: tuple[int, ...], seed: int) -> npt.NDArray[np.float32]:
    """Normal values; positive ones where the function needs them."""
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    positive: Any = np.abs(values) + np.float32(0.01)
    return positive if op in ("sqrt", "rsqrt", "divide", "prod") else values
