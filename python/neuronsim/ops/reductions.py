"""Reductions, cumulative functions and windows: rules R1 to R4."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from neuronsim import _core, dtypes
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, UnsupportedOperator, UnsupportedType
from neuronsim.ops.programs import CORE, core_code, core_name, empty, is_host, numerics
from neuronsim.ops.rows import (
    ArrayType,
    Attributes,
    Bits,
    BitsArray,
    Op,
    Setting,
    WindowDimension,
    by_name,
    check_axes,
)


def infer_reduce(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    array, initial = operands
    if initial != ArrayType(array.dtype, ()):
        raise InvalidArgument(f"the initial value of a reduction of {array} cannot be {initial}")
    check_axes(attributes["dimensions"], len(array.dims), "dimensions")
    kept = (n for d, n in enumerate(array.dims) if d not in attributes["dimensions"])
    return ArrayType(array.dtype, tuple(kept))


def infer_cumulative(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    array, initial = operands
    if initial != ArrayType(array.dtype, ()):
        raise InvalidArgument(f"the initial value of a cumulative {array} cannot be {initial}")
    check_axes([attributes["axis"]], len(array.dims), "axis")
    return array


MAX_WINDOW = 1 << 31


def infer_reduce_window(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    array, initial = operands
    window: Sequence[WindowDimension] = attributes["window"]
    if initial != ArrayType(array.dtype, ()):
        raise InvalidArgument(f"the initial value of windows of {array} cannot be {initial}")
    if len(window) != len(array.dims):
        raise InvalidArgument(f"a window over {array} has {len(array.dims)} dimensions")
    check_window(window)
    if any(d.reversal for d in window):
        raise InvalidArgument("the window of a reduction is not reversed: only a convolution's is (M5)")
    dims = tuple(d.output_size(n) for d, n in zip(window, array.dims, strict=True))
    return ArrayType(array.dtype, dims)


def check_window(window: Sequence[WindowDimension]) -> None:
    for d in window:
        if not isinstance(d, WindowDimension):
            raise InvalidArgument(f"a window consists of WindowDimension, not {d!r}")
        lengths = (d.size, d.stride, d.base_dilation, d.window_dilation)
        if not all(isinstance(n, int) and 1 <= n <= MAX_WINDOW for n in lengths):
            raise InvalidArgument(
                f"sizes, strides and dilations of a window are from 1 to {MAX_WINDOW}: {d}"
            )
        if not all(isinstance(n, int) and abs(n) <= MAX_WINDOW for n in d.padding):
            raise InvalidArgument(f"the padding of a window is at most {MAX_WINDOW} either way: {d}")


def evaluate_reduce(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
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
    reduction = _reduction(reducer, array.dtype, attributes, depth, setting)
    return reduction, moved, len(kept), initial.data, output


def record_reduce(
    op: Op, operands: Sequence[Bits], attributes: Attributes, output: BitsArray, setting: Setting
) -> _core.Step:
    """A simple reduce or reduce-window as a step of a compiled program that stores into `output`. The
    arrays only stand for memory.
    """
    if op.name == "reduce":
        return _core.record_reduce(*_reduce_call(operands, attributes, output, setting))
    return _core.record_reduce_windows(*_window_call(operands, attributes, output, setting))


def _reduction(
    reducer: Op, dtype: DType, attributes: Attributes, depth: int, setting: Setting
) -> _core.Reduction:
    """Rules R1-R3 as the core takes them; `accumulate` is the plan's type of every step (R1)."""
    profile = setting.profile
    accumulate: DType = attributes.get("accumulate", dtypes.float32)
    stochastic = profile.rounding == "stochastic"
    if stochastic and accumulate is not dtypes.float32:
        raise UnsupportedOperator(
            f"a reduction that accumulates in {accumulate.name} under stochastic rounding: S2 has no "
            "words for its steps"
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
    output = empty(ArrayType(result.dtype, moved.shape))
    reduction = _reduction(reducer, array.dtype, attributes, moved.shape[-1], setting)
    inner = math.prod(array.data.shape[axis + 1 :])
    _core.reduce(reduction, moved, moved.ndim - 1, initial.data, output, max(inner, 1))
    return np.moveaxis(output, -1, axis)


def evaluate_reduce_window(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    array = operands[0]
    if is_host(array.dtype):
        raise UnsupportedType(f"reduce-window of {array.dtype.name}: the device has no such type")
    output = empty(result)
    _core.reduce_windows(*_window_call(operands, attributes, output, setting))
    return output


def _window_call(
    operands: Sequence[Bits], attributes: Attributes, output: BitsArray, setting: Setting
) -> tuple[Any, ...]:
    array, initial = operands
    window: tuple[WindowDimension, ...] = attributes["window"]
    reducer = by_name(attributes["reducer"])
    elements = min(math.prod(d.size for d in window), array.data.size)
    reduction = _reduction(reducer, array.dtype, attributes, elements, setting)
    return reduction, core_window(window), array.data, initial.data, output


def core_window(window: Sequence[WindowDimension]) -> list[tuple[int, int, int, int, int]]:
    """A window as the core takes it: the high padding is in the output's shape."""
    return [(d.size, d.stride, d.padding[0], d.base_dilation, d.window_dilation) for d in window]
