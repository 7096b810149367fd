"""Composites: rule R7."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from neuronsim import _core, dtypes
from neuronsim.composites import FORMULAS, XLA_FORMULAS
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, UnsupportedType, warn
from neuronsim.ops.chains import (
    core_code,
    count_outside_range,
    is_float,
    is_host,
    outside_range_warning,
)
from neuronsim.ops.elementwise import converted
from neuronsim.ops.rows import (
    ArrayType,
    Attributes,
    Bits,
    BitsArray,
    Calls,
    Evaluation,
    Op,
    Outputs,
    Setting,
    broadcast_dims,
    by_name,
    check_axes,
    empty,
)
from neuronsim.profiles import Profile, kept_with_profile

# What a composite takes beside x: terms as long as a row, or statistics of each channel and such terms.
_TERMS = ("weight", "bias")


def _composite_operand(operands: Sequence[ArrayType], what: str, attributes: Attributes) -> ArrayType:
    x = operands[0]
    if not is_float(x.dtype):
        raise UnsupportedType(
            f"{what} of {x.dtype.name}: a float type of the device is needed (rule F)"
        )
    check_axes(attributes["dimensions"], len(x.dims), "dimensions")
    return x


def infer_by_rows(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    """A composite that gives a row for a row: softmax and the norms of layers."""
    x = _composite_operand(operands, "a composite (R7)", attributes)
    own = tuple(x.dims[d] for d in sorted(attributes["dimensions"]))
    for name, t in zip(attributes.get("terms", ()), operands[1:], strict=True):
        if name not in _TERMS or t.dims != own or t.dtype.kind != "float":
            raise InvalidArgument(f"the {name} {t} is not as long as a row of {x}: {list(own)}")
    return x


def infer_statistic(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    """A composite that gives one element for a row."""
    x = _composite_operand(operands, "a composite (R7)", attributes)
    kept = (n for d, n in enumerate(x.dims) if d not in attributes["dimensions"])
    return ArrayType(x.dtype, tuple(kept))


def infer_batch_norm(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    x = _composite_operand(operands, "batch_norm", attributes)
    own = tuple(x.dims[d] for d in attributes["dimensions"])
    for name, t in zip(("mean", "variance", *attributes["terms"]), operands[1:], strict=True):
        if t.dims != own or t.dtype.kind != "float":
            raise InvalidArgument(f"the {name} {t} is not as long as the channels of {x}: {list(own)}")
    return x


class ArraySteps:
    """The steps of a composite's formula over some axes: float32, or float64 on the host."""

    def __init__(self, dtype: DType, axes: Sequence[int], setting: Setting) -> None:
        self.dtype, self.axes, self.setting = dtype, tuple(axes), setting
        self.outside = 0  # elements that `neuron_range` made NaN (E3)

    def __call__(self, name: str, *operands: Bits | float) -> Bits:
        op = by_name(name)
        values = [x if isinstance(x, Bits) else self.number(x) for x in operands]
        dims = broadcast_dims(*(x.data.shape for x in values))
        values = [Bits(np.broadcast_to(x.data, dims), x.dtype) for x in values]
        result = op.infer_array([x.type for x in values], {})
        self.outside += count_outside_range(op, values, self.setting.profile)
        return Bits(op.evaluate_array(values, {}, result, self.setting), result.dtype)

    def number(self, x: float) -> Bits:
        """A Python number rounded once (C1)."""
        return converted(Bits(np.asarray(x, np.float64), dtypes.float64), self.dtype, self.setting)

    def reduce(self, reducer: str, x: Bits) -> Bits:
        op, start = by_name("reduce"), by_name(reducer).identity
        assert start is not None
        attributes = {"dimensions": self.axes, "reducer": reducer}
        operands = [x, Bits(np.asarray(start, self.dtype.storage), self.dtype)]
        result = op.infer_array([o.type for o in operands], attributes)
        found = op.evaluate_array(operands, attributes, result, self.setting)
        kept = tuple(1 if d in self.axes else n for d, n in enumerate(x.data.shape))
        return Bits(found.reshape(kept), self.dtype)

    def count(self, x: Bits) -> int:
        return math.prod(x.data.shape[d] for d in self.axes)


def run_formula(
    op: Op,
    x: Bits,
    others: Sequence[Bits],
    axes: Sequence[int],
    attributes: Attributes,
    setting: Setting,
) -> Any:
    """What the formula gives, in the type of its steps; `others` have the dimensions of x or 1."""
    dtype = dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32
    steps = ArraySteps(dtype, axes, setting)
    values = [converted(v, dtype, setting) for v in (x, *others)]
    formula = FORMULAS[op.name]
    if setting.profile.batch_norm == "xla":
        formula = XLA_FORMULAS.get(op.name, formula)
    found = formula(steps, values, attributes)
    if steps.outside:
        warn(outside_range_warning(op.name, steps.outside))
    return found


def evaluate_formula(e: Evaluation) -> BitsArray:
    """A composite by its formula, each step over the whole array."""
    x, *others = e.operands
    axes = sorted(e.attributes["dimensions"])
    own = [n if d in axes else 1 for d, n in enumerate(x.data.shape)]
    terms = [Bits(t.data.reshape(own), t.dtype) for t in others]
    found: Bits = run_formula(e.op, x, terms, axes, e.attributes, e.setting)
    shaped = Bits(found.data.reshape(e.result.dims), found.dtype)
    return converted(shaped, e.result.dtype, e.setting).data


LONGEST_ROW, _LONGEST_COLUMN = 1 << 20, 1 << 12


def composes_in_core(profile: Profile) -> bool:
    """Whether the core's kernels round as the profile says."""
    return (
        profile.rounding == "nearest_even"
        and profile.subnormals == "keep"
        and profile.divide == "ieee"
        and profile.fp8_overflow == "inf"
        and profile.activation == "exact"
    )


def evaluate_composite(e: Evaluation) -> BitsArray:
    x, *terms = e.operands
    if not _is_in_core(x, e.attributes, e.setting.profile):
        return evaluate_formula(e)
    order, kept = _rows_order(x, e.attributes)
    moved, by_rows = x.data.transpose(order), e.op.infer is infer_by_rows
    output = empty(ArrayType(x.dtype, moved.shape if by_rows else moved.shape[:kept]))
    wide = [np.ascontiguousarray(converted(t, dtypes.float32, e.setting).data) for t in terms]
    kernel = composite_kernel(e.op.name, x.dtype, e.setting.profile)
    kernel.on(moved, kept, output, **_numbers(e.attributes, moved.shape[kept:], wide)).run()
    return output.transpose(np.argsort(order)) if by_rows else output


def bind_composite(e: Evaluation, outputs: Outputs) -> Calls:
    """The kernel of a composite whose terms are float32, and whose result is stored row by row."""
    x, terms, (output,) = e.operands[0], e.operands[1:], outputs
    order, kept = _rows_order(x, e.attributes)
    target = output.transpose(order) if e.op.infer is infer_by_rows else output
    dense = all(a.flags.c_contiguous for a in (target, *(t.data for t in terms)))
    wide = all(t.dtype is dtypes.float32 for t in terms)
    if not (dense and wide and _is_in_core(x, e.attributes, e.setting.profile)):
        return None
    moved = x.data.transpose(order)
    kernel = composite_kernel(e.op.name, x.dtype, e.setting.profile)
    numbers = _numbers(e.attributes, moved.shape[kept:], [t.data for t in terms])
    return [kernel.on(moved, kept, target, **numbers)]


@kept_with_profile
def composite_kernel(name: str, dtype: DType, profile: Profile) -> _core.Composite:
    """A composite as the core takes it."""
    return _core.Composite(name, core_code(dtype, by_name(name).label), profile.reduce_tile)


def _is_in_core(x: Bits, attributes: Attributes, profile: Profile) -> bool:
    axes, rank = sorted(attributes["dimensions"]), x.data.ndim
    row = math.prod(x.data.shape[d] for d in axes)
    # Rows that fit the kernel's blocks; reductions are quicker along others.
    follows = axes == list(range(rank - len(axes), rank))
    fits = row <= (LONGEST_ROW if follows else _LONGEST_COLUMN)
    return not is_host(x.dtype) and composes_in_core(profile) and attributes.get("ord", 2) == 2 and fits


def _rows_order(x: Bits, attributes: Attributes) -> tuple[list[int], int]:
    """The axes with those of a row last, and how many others there are."""
    axes = sorted(attributes["dimensions"])
    return [*(d for d in range(x.data.ndim) if d not in axes), *axes], x.data.ndim - len(axes)


def _numbers(attributes: Attributes, row: Sequence[int], terms: Sequence[BitsArray]) -> dict[str, Any]:
    """What a composite's kernel takes beside the arrays of the rows."""
    return {
        "epsilon": attributes.get("epsilon", 0.0),
        "divisor": max(math.prod(row) - attributes.get("correction", 0), 0),
        **dict(zip(attributes.get("terms", ()), terms, strict=True)),
    }
