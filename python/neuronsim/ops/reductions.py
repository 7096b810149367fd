"""Reductions and cumulative functions: rules R1 to R4."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from neuronsim import _core, dtypes
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, UnsupportedOperator
from neuronsim.ops.computations import (
    applied_computations,
    check_computation,
    computation_program,
    is_on_host,
)
from neuronsim.ops.folds import bind_fold, fold_windows
from neuronsim.ops.programs import CORE, core_code, core_name, empty, is_host, numerics
from neuronsim.ops.rows import (
    ArrayType,
    Attributes,
    Bits,
    BitsArray,
    Data,
    Op,
    Result,
    Setting,
    WindowDimension,
    by_name,
    check_axes,
    one_or_tuple,
    run_bound,
)


def infer_reduce(operands: Sequence[ArrayType], attributes: Attributes) -> Result:
    arrays = check_reduction(operands, attributes, "a reduction")
    dims = arrays[0].dims
    check_axes(attributes["dimensions"], len(dims), "dimensions")
    kept = tuple(n for d, n in enumerate(dims) if d not in attributes["dimensions"])
    return one_or_tuple([ArrayType(t.dtype, kept) for t in arrays])


def check_reduction(
    operands: Sequence[ArrayType], attributes: Attributes, what: str
) -> Sequence[ArrayType]:
    """The arrays among the operands of a reduction: they have one shape, an initial value each, and a
    computation that goes with them.
    """
    count = len(operands) // 2
    arrays, initial = operands[:count], operands[count:]
    if count == 0 or len(initial) != count:
        raise InvalidArgument("takes arrays and as many initial values")
    for t, start in zip(arrays, initial, strict=True):
        if t.dims != arrays[0].dims:
            raise InvalidArgument(f"arrays of different shapes: {', '.join(map(str, arrays))}")
        if start != ArrayType(t.dtype, ()):
            raise InvalidArgument(f"the initial value of {what} of {t} cannot be {start}")
    if "accumulate" in attributes and attributes["reducer"] is None:
        raise InvalidArgument(
            f"{what} that sums in {attributes['accumulate'].name} applies one operation to its two "
            "parameters; another computation rounds as its instructions are typed (R1, R2)"
        )
    if "computations" in attributes:
        (computation,) = applied_computations(attributes, 1)
        types = [t.dtype for t in arrays]
        check_computation(computation, types * 2, types)
    return arrays


def infer_cumulative(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    array, initial = operands
    if initial != ArrayType(array.dtype, ()):
        raise InvalidArgument(f"the initial value of a cumulative {array} cannot be {initial}")
    check_axes([attributes["axis"]], len(array.dims), "axis")
    return array


def evaluate_reduce(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: Result, setting: Setting
) -> Data:
    if attributes["reducer"] is None:
        return _fold(operands, attributes, result, setting)
    assert isinstance(result, ArrayType)
    array, initial = operands
    reducer = by_name(attributes["reducer"])
    if is_host(array.dtype):
        host: np.ufunc = getattr(np, reducer.name)
        axes = tuple(attributes["dimensions"])
        return np.asarray(host.reduce(array.data, axis=axes, initial=initial.data[()]))
    output = empty(result)
    _core.reduce(*_reduce_call(operands, attributes, output, setting))
    return output


def _reduce_call(
    operands: Sequence[Bits], attributes: Attributes, output: BitsArray, setting: Setting
) -> tuple[Any, ...]:
    array, initial = operands
    reduced = sorted(attributes["dimensions"])  # R2: ascending axis number, last fastest
    kept = [d for d in range(array.data.ndim) if d not in reduced]
    depth = math.prod(array.data.shape[d] for d in reduced)
    moved = array.data.transpose(kept + reduced)
    reducer = by_name(attributes["reducer"])
    settled = reduction(reducer, array.dtype, attributes, depth, setting)
    return settled, moved, len(kept), initial.data, output


def record_reduce(
    operands: Sequence[Bits], attributes: Attributes, output: BitsArray, setting: Setting
) -> _core.Step:
    """A simple reduce as a step of a compiled program that stores into `output`. The arrays only stand
    for memory.
    """
    return _core.record_reduce(*_reduce_call(operands, attributes, output, setting))


def bind_reduce(
    operands: Sequence[Bits], attributes: Attributes, outputs: Sequence[BitsArray], setting: Setting
) -> list[_core.Step] | None:
    """A reduction by any computation; None for a simple one, whose steps `record_reduce` makes."""
    if attributes["reducer"] is not None:
        return None
    (computation,) = applied_computations(attributes, 1)
    if is_on_host(computation):
        return None
    arrays, initial = operands[: len(outputs)], operands[len(outputs) :]
    reduced = attributes["dimensions"]
    shape = arrays[0].data.shape
    if len(arrays) == 2:
        kept = [d for d in range(len(shape)) if d not in reduced]
        order = [*kept, *sorted(reduced)]
        program = computation_program(computation, setting.profile)
        moved = [x.data.transpose(order) for x in arrays]
        starts = [x.data for x in initial]
        chosen = _core.choose(program, len(kept), moved, starts, list(outputs))
        if chosen is not None:
            return [chosen]
    window, dims = _whole_window(shape, reduced)
    wide = [o.reshape(dims) for o in outputs]
    return [bind_fold(computation, window, arrays, initial, wide, setting)]


def _whole_window(
    shape: Sequence[int], reduced: Sequence[int]
) -> tuple[list[WindowDimension], tuple[int, ...]]:
    """The window that spans the reduced dimensions, and the dimensions of its outputs."""
    window = [WindowDimension(n if d in reduced else 1) for d, n in enumerate(shape)]
    return window, tuple(1 if d in reduced else n for d, n in enumerate(shape))


def _fold(
    operands: Sequence[Bits], attributes: Attributes, result: Result, setting: Setting
) -> tuple[BitsArray, ...]:
    """A reduction by any computation: one window spans the reduced dimensions."""
    found = run_bound(by_name("reduce"), operands, attributes, result, setting)
    if found is not None:
        return found
    arrays, initial = operands[: len(operands) // 2], operands[len(operands) // 2 :]
    reduced = attributes["dimensions"]
    shape = arrays[0].data.shape
    window, dims = _whole_window(shape, reduced)
    types = (result,) if isinstance(result, ArrayType) else result
    wide = [ArrayType(t.dtype, dims) for t in types]
    (computation,) = applied_computations(attributes, 1)
    found = fold_windows(computation, window, arrays, initial, wide, setting)
    return tuple(a.reshape(t.dims) for a, t in zip(found, types, strict=True))


def reduction(
    reducer: Op, dtype: DType, attributes: Attributes, depth: int, setting: Setting
) -> _core.Reduction:
    """Rules R1-R3 as the core takes them; `accumulate` is the plan's type of every step (R1)."""
    profile = setting.profile
    if profile.rounding == "stochastic" or "accumulate" in attributes:
        return _settled(reducer, dtype, attributes, depth, setting)
    known = profile.derived.setdefault("reductions", {})
    key = (reducer.name, dtype)
    found: _core.Reduction | None = known.get(key)
    if found is None:
        found = known[key] = _settled(reducer, dtype, attributes, depth, setting)
    return found


def _settled(
    reducer: Op, dtype: DType, attributes: Attributes, depth: int, setting: Setting
) -> _core.Reduction:
    profile = setting.profile
    accumulate: DType = attributes.get("accumulate", dtypes.float32)
    stochastic = profile.rounding == "stochastic"
    if stochastic and accumulate is not dtypes.float32:
        raise UnsupportedOperator(
            f"a reduction that accumulates in {accumulate.name} under stochastic rounding: S2 has no "
            "words for its steps: accumulate in float32, or round to nearest"
        )
    round_tiles = (
        profile.mixed_precision_accumulation == "off"
        and dtype.kind == "float"
        and dtype.bits <= 16
        and reducer.name in ("add", "multiply")
    )  # R3
    tiles = -(-depth // profile.reduce_tile) if round_tiles else 0
    return _core.Reduction(
        op=CORE[core_name(reducer, dtype)],
        dtype=core_code(dtype, reducer.label),
        accumulate=core_code(accumulate, reducer.label),
        tile=profile.reduce_tile,
        round_tiles=round_tiles,
        numerics=numerics(profile),
        seed=setting.seed,
        ids=[setting.identifier(t) for t in ("", *map(str, range(tiles)))] if stochastic else [],
    )


def evaluate_cumulative(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    array, initial = operands
    axis, reducer = attributes["axis"], by_name(attributes["reducer"])
    if is_host(array.dtype):
        host: np.ufunc = getattr(np, reducer.name)
        return np.asarray(host(host.accumulate(array.data, axis=axis), initial.data))
    moved = np.moveaxis(array.data, axis, -1)
    output = empty(result)
    settled = reduction(reducer, array.dtype, attributes, moved.shape[-1], setting)
    inner = math.prod(array.data.shape[axis + 1 :])
    if output.size:
        _core.reduce(settled, moved, moved.ndim - 1, initial.data, output, inner)
    return output
