"""Windows over arrays: reduce-window and select-and-scatter (R4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from neuronsim import _core, dtypes
from neuronsim.errors import InvalidArgument
from neuronsim.ops.chains import is_host
from neuronsim.ops.computations import (
    ScalarComputation,
    applied_computations,
    check_computation,
    computation_chain,
    evaluate_computation,
    is_on_host,
)
from neuronsim.ops.folds import (
    FoldStep,
    bind_fold,
    core_window,
    fold_on_host,
    fold_windows,
    window_elements,
)
from neuronsim.ops.indexing import apply_on_host
from neuronsim.ops.reductions import check_reduction, reduction
from neuronsim.ops.rows import (
    ArrayType,
    Attributes,
    Bits,
    BitsArray,
    Calls,
    Data,
    Evaluation,
    Outputs,
    Result,
    Setting,
    WindowDimension,
    one_or_tuple,
    run_bound,
)

MAX_WINDOW = 1 << 31


def infer_reduce_window(operands: Sequence[ArrayType], attributes: Attributes) -> Result:
    arrays = check_reduction(operands, attributes, "windows")
    dims = _output_dims(arrays[0], attributes["window"])
    return one_or_tuple([ArrayType(t.dtype, dims) for t in arrays])


def _output_dims(array: ArrayType, window: Sequence[WindowDimension]) -> tuple[int, ...]:
    if len(window) != len(array.dims):
        raise InvalidArgument(f"a window over {array} has {len(array.dims)} dimensions")
    check_window(window)
    if any(d.reversal for d in window):
        raise InvalidArgument("the window of a reduction is not reversed: only a convolution's is (M5)")
    return tuple(d.output_size(n) for d, n in zip(window, array.dims, strict=True))


def check_window(window: Sequence[WindowDimension]) -> None:
    for d in window:
        if not isinstance(d, WindowDimension):
            raise InvalidArgument(f"a window consists of WindowDimension, not {d!r}")
        lengths = (d.size, d.stride, d.base_dilation, d.window_dilation)
        if not all(1 <= n <= MAX_WINDOW for n in lengths):
            raise InvalidArgument(
                f"sizes, strides and dilations of a window are from 1 to {MAX_WINDOW}: {d}"
            )
        if not all(abs(n) <= MAX_WINDOW for n in d.padding):
            raise InvalidArgument(f"the padding of a window is at most {MAX_WINDOW} either way: {d}")


def evaluate_reduce_window(e: Evaluation) -> Data:
    window: tuple[WindowDimension, ...] = e.attributes["window"]
    if e.attributes["reducer"] is not None and is_host(e.operands[0].dtype):
        host: np.ufunc = getattr(np, e.attributes["reducer"])
        step: FoldStep = lambda acc, elements: [host(acc[0], elements[0])]  # noqa: E731
        return fold_on_host(step, e.operands, window, e.result.dims)[0]
    found = run_bound(e)
    if found is None:
        found = fold_windows(e, window, e.types[0].dims)
    return found


def bind_reduce_window(e: Evaluation, outputs: Outputs) -> Calls:
    """Windows reduced by one operation, or by any computation of the device's types."""
    window: tuple[WindowDimension, ...] = e.attributes["window"]
    if e.attributes["reducer"] is not None:
        array, initial = e.operands
        settled = reduction(e.attributes["reducer"], array.dtype, e.attributes, e.setting.profile)
        return [settled.over(core_window(window), array.data, initial.data, outputs[0])]
    (computation,) = applied_computations(e.attributes, 1)
    return None if is_on_host(computation) else [bind_fold(e, window, outputs)]


def infer_select_and_scatter(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    x, source, initial = operands
    dims = _output_dims(x, attributes["window"])
    if source != ArrayType(x.dtype, dims) or initial != ArrayType(x.dtype, ()):
        raise InvalidArgument(
            f"the windows of {x} take {ArrayType(x.dtype, dims)} and an initial value, not {source} "
            f"and {initial}"
        )
    select, scatter = applied_computations(attributes, 2)
    check_computation(select, [x.dtype] * 2, [dtypes.boolean])
    check_computation(scatter, [x.dtype] * 2, [x.dtype])
    return x


def evaluate_select_and_scatter(e: Evaluation) -> BitsArray:
    found = run_bound(e)
    if found is not None:
        return found[0]
    x, source, initial = e.operands
    select, scatter = applied_computations(e.attributes, 2)
    output = np.full(e.result.dims, initial.data, x.data.dtype)
    places = _select_on_host(select, e.attributes["window"], x, source.data.shape, e.setting)
    apply_on_host(scatter, places, [source], [output], e.setting)
    return output


def bind_select_and_scatter(e: Evaluation, outputs: Outputs) -> Calls:
    x, source, initial = (o.data for o in e.operands)
    select, scatter = applied_computations(e.attributes, 2)
    if is_on_host(select):
        return None
    (output,) = outputs
    one, other = (computation_chain(c, e.setting.profile) for c in (select, scatter))
    window = core_window(e.attributes["window"])
    return [
        _core.record_copy(np.broadcast_to(initial, output.shape), output),
        _core.select_and_scatter(one, other, window, x, source, output),
    ]


def _select_on_host(
    select: ScalarComputation,
    window: Sequence[WindowDimension],
    x: Bits,
    dims: tuple[int, ...],
    setting: Setting,
) -> npt.NDArray[np.int64]:
    places = np.full(dims, -1, np.int64)
    numbers = np.arange(x.data.size).reshape(x.data.shape)
    current = np.zeros(dims, x.data.dtype)
    for present, at in window_elements(window, x.data.shape, dims):
        following = x.data[at]
        (keeps,) = evaluate_computation(
            select, [Bits(current, x.dtype), Bits(following, x.dtype)], setting
        )
        taken = present & ((places < 0) | ~keeps.data)
        current = np.where(taken, following, current)
        places = np.where(taken, numbers[at], places)
    return places
