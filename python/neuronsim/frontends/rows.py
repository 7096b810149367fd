"""Rows of the op table on traced arrays: what HLO has an opcode for is an instruction, composites are
spelled out by their formulas (R7), the rest are calls of the row's name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.composites import FORMULAS
from neuronsim.dtypes import DType
from neuronsim.frontends.movement import broadcast, converted, known, reshaped, row
from neuronsim.frontends.recorder import Value, active_recorder
from neuronsim.frontends.tracer import Tracer, traced_bits, value_of


def record_row(op: ops.Op, operands: Sequence[ops.Bits], attributes: ops.Attributes) -> ops.Bits:
    """The result of a row of which an operand is traced."""
    values = [value_of(x) for x in operands]
    if op.name in FORMULAS and not op.opcode and not active_recorder().shared.keeps_composites:
        value = spelled_out(op, values, attributes)
    else:
        value = active_recorder().record(op, values, attributes)
    return traced_bits(value)


class RecordedSteps:
    """The steps of a composite's formula over some axes: float32, or float64 on the host."""

    def __init__(self, dtype: DType, axes: Sequence[int]) -> None:
        self.dtype, self.axes = dtype, tuple(axes)

    def __call__(self, name: str, *operands: Value | float) -> Value:
        values = [x if isinstance(x, Value) else self.number(x) for x in operands]
        dims = ops.broadcast_dims(*(v.type.dims for v in values))
        return row(name, [broadcast(v, dims) for v in values])

    def number(self, x: float) -> Value:
        """A Python number rounded once (C1)."""
        wide = ops.Bits(np.asarray(x, np.float64), dtypes.float64)
        return active_recorder().constant(ops.apply("convert", [wide], dtype=self.dtype))

    def reduce(self, reducer: str, x: Value) -> Value:
        start = ops.by_name(reducer).identity
        assert start is not None
        initial = known(start, self.dtype)
        found = row("reduce", [x, initial], dimensions=self.axes, reducer=reducer)
        kept = [1 if d in self.axes else n for d, n in enumerate(x.type.dims)]
        return reshaped(found, kept)

    def count(self, x: Value) -> int:
        return math.prod(x.type.dims[d] for d in self.axes)


def spelled_out(op: ops.Op, operands: Sequence[Value], attributes: ops.Attributes) -> Value:
    """The formula, each step over the whole array; what it gives is rounded once."""
    result = op.infer_array([v.type for v in operands], attributes)
    x, *others = operands
    axes = sorted(attributes.get("dimensions", ()))
    own = [n if d in axes else 1 for d, n in enumerate(x.type.dims)]
    if op.infer is not ops.by_name("gelu_backward").infer:  # whose operands are all of one shape
        others = [reshaped(v, own) for v in others]
    dtype = dtypes.float64 if x.type.dtype is dtypes.float64 else dtypes.float32
    values = [converted(v, dtype) for v in (x, *others)]
    found: Value = FORMULAS[op.name](RecordedSteps(dtype, axes), values, attributes)
    return converted(reshaped(found, result.dims), result.dtype)


Tracer.record = staticmethod(record_row)
