"""Reductions and cumulative functions: rules R1 to R4."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from neuronsim import _core, dtypes
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, UnsupportedOperator
from neuronsim.ops.chains import CORE, core_code, core_name, is_host, numerics
from neuronsim.ops.computations import (
    applied_computations,
    check_computation,
    computation_chain,
    is_on_host,
)
from neuronsim.ops.folds import bind_fold, fold_windows
from neuronsim.ops.rows import (
    ArrayType,
    Attributes,
    BitsArray,
    Calls,
    Data,
    Evaluation,
    Outputs,
    Result,
    WindowDimension,
    by_name,
    check_axes,
    evaluate_bound,
    one_or_tuple,
    run_bound,
)
from neuronsim.profiles import Profile, kept_with_profile


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


def evaluate_reduce(e: Evaluation) -> Data:
    if e.attributes["reducer"] is not None and is_host(e.operands[0].dtype):
        array, initial = e.operands
        host: np.ufunc = getattr(np, e.attributes["reducer"])
        axes = tuple(e.attributes["dimensions"])
        return np.asarray(host.reduce(array.data, axis=axes, initial=initial.data[()]))
    found = run_bound(e)
    return _fold_on_host(e) if found is None else found


def bind_reduce(e: Evaluation, outputs: Outputs) -> Calls:
    """A reduction by one operation, or by any computation of the device's types."""
    arrays, initial = e.operands[: len(outputs)], e.operands[len(outputs) :]
    shape, reduced = arrays[0].data.shape, sorted(e.attributes["dimensions"])
    kept = [d for d in range(len(shape)) if d not in reduced]
    order = [*kept, *reduced]  # R2: ascending axis number, last fastest
    moved = [x.data.transpose(order) for x in arrays]
    starts = [x.data for x in initial]
    if e.attributes["reducer"] is not None:
        (array,) = arrays
        settled = reduction(e.attributes["reducer"], array.dtype, e.attributes, e.setting.profile)
        return [settled.on(moved[0], len(kept), starts[0], outputs[0])]
    (computation,) = applied_computations(e.attributes, 1)
    if is_on_host(computation):
        return None
    if len(arrays) == 2:
        program = computation_chain(computation, e.setting.profile)
        chosen = _core.choose(program, len(kept), moved, starts, list(outputs))
        if chosen is not None:
            return [chosen]
    window, dims = _whole_window(e)
    return [bind_fold(e, window, [o.reshape(dims) for o in outputs])]


def _whole_window(e: Evaluation) -> tuple[list[WindowDimension], tuple[int, ...]]:
    """The window that spans the reduced dimensions, and the dimensions of its outputs."""
    shape, reduced = e.operands[0].data.shape, e.attributes["dimensions"]
    window = [WindowDimension(n if d in reduced else 1) for d, n in enumerate(shape)]
    return window, tuple(1 if d in reduced else n for d, n in enumerate(shape))


def _fold_on_host(e: Evaluation) -> tuple[BitsArray, ...]:
    """A reduction by a computation of the host's types: one window spans the reduced dimensions."""
    window, dims = _whole_window(e)
    found = fold_windows(e, window, dims)
    return tuple(a.reshape(t.dims) for a, t in zip(found, e.types, strict=True))


def reduction(name: str, dtype: DType, attributes: Attributes, profile: Profile) -> _core.Reduction:
    """Rules R1-R3 as the core takes them; `accumulate` is the plan's type of every step (R1)."""
    return _settled(name, dtype, attributes.get("accumulate", dtypes.float32), profile)


@kept_with_profile
def _settled(name: str, dtype: DType, accumulate: DType, profile: Profile) -> _core.Reduction:
    reducer = by_name(name)
    if profile.rounding == "stochastic" and accumulate is not dtypes.float32:
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
    return _core.Reduction(
        op=CORE[core_name(reducer, dtype)],
        dtype=core_code(dtype, reducer.label),
        accumulate=core_code(accumulate, reducer.label),
        tile=profile.reduce_tile,
        round_tiles=round_tiles,
        numerics=numerics(profile),
    )


def evaluate_cumulative(e: Evaluation) -> Data:
    array, initial = e.operands
    if is_host(array.dtype):
        host: np.ufunc = getattr(np, e.attributes["reducer"])
        return np.asarray(host(host.accumulate(array.data, axis=e.attributes["axis"]), initial.data))
    return evaluate_bound(e)


def bind_cumulative(e: Evaluation, outputs: Outputs) -> Calls:
    array, initial = e.operands
    if is_host(array.dtype):
        return None
    axis, (output,) = e.attributes["axis"], outputs
    if not output.size:
        return []
    rank = array.data.ndim
    moved = array.data if axis == rank - 1 else np.moveaxis(array.data, axis, -1)
    settled = reduction(e.attributes["reducer"], array.dtype, e.attributes, e.setting.profile)
    inner = math.prod(array.data.shape[axis + 1 :])
    return [settled.on(moved, rank - 1, initial.data, output, inner)]
