"""Folds of any computation over windows of arrays (the second half of R2)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from neuronsim import _core
from neuronsim.errors import InvalidArgument
from neuronsim.ops.computations import (
    applied_computations,
    computation_chain,
    evaluate_computation,
)
from neuronsim.ops.rows import MAX_AXES, Bits, BitsArray, Evaluation, WindowDimension

# A step of a fold on arrays: the accumulators and the elements give the new accumulators.
FoldStep = Callable[[Sequence[BitsArray], Sequence[BitsArray]], Sequence[BitsArray]]


def core_window(window: Sequence[WindowDimension]) -> list[tuple[int, int, int, int, int]]:
    """A window as the core takes it: the high padding is in the output's shape."""
    return [(d.size, d.stride, d.padding[0], d.base_dilation, d.window_dilation) for d in window]


def fold_windows(
    e: Evaluation, window: Sequence[WindowDimension], dims: tuple[int, ...]
) -> tuple[BitsArray, ...]:
    """Acc = initial, then acc = computation(acc, element) in row-major order of each window's elements,
    by a computation of the host's types; the operands are arrays, then as many initial values.
    """
    (computation,) = applied_computations(e.attributes, 1)

    def step(acc: Sequence[BitsArray], elements: Sequence[BitsArray]) -> list[BitsArray]:
        pairs = zip((*acc, *elements), computation.parameters, strict=True)
        operands = [Bits(np.asarray(data), t) for data, t in pairs]
        return [b.data for b in evaluate_computation(computation, operands, e.setting)]

    return fold_on_host(step, e.operands, window, dims)


def bind_fold(
    e: Evaluation, window: Sequence[WindowDimension], outputs: Sequence[BitsArray]
) -> _core.Call:
    """The same of the device's types as a call, each instruction rounded as it is typed."""
    (computation,) = applied_computations(e.attributes, 1)
    program = computation_chain(computation, e.setting.profile)
    arrays, initial = _halves(e.operands)
    inputs, starts = [x.data for x in arrays], [x.data for x in initial]
    return _core.fold(program, core_window(window), inputs, starts, list(outputs))


def _halves(operands: Sequence[Bits]) -> tuple[Sequence[Bits], Sequence[Bits]]:
    return operands[: len(operands) // 2], operands[len(operands) // 2 :]


def fold_on_host(
    step: FoldStep,
    operands: Sequence[Bits],
    window: Sequence[WindowDimension],
    dims: tuple[int, ...],
) -> tuple[BitsArray, ...]:
    """The fold of the host's types (H1), all outputs side by side, or running along one dimension."""
    arrays, initial = _halves(operands)
    if (chain := _running(window, arrays[0].data.shape, dims)) is not None:
        return _fold_running(step, *chain, arrays, initial, dims)
    acc = [np.broadcast_to(x.data, dims) for x in initial]
    for present, places in window_elements(window, arrays[0].data.shape, dims):
        with np.errstate(all="ignore"):
            found = step(acc, [x.data[places] for x in arrays])
        acc = [np.where(present, new, old) for new, old in zip(found, acc, strict=True)]
    return tuple(np.array(a) for a in acc)


_FEW_ELEMENTS = 32  # taken in ascending order backwards too (R4)


def _running(
    window: Sequence[WindowDimension], shape: tuple[int, ...], dims: tuple[int, ...]
) -> tuple[int, bool] | None:
    """The axis along which windows run over the operand from its first element on, as those of a
    cumulative function, and whether they do so from its last one back (R4).
    """
    found = None
    for axis, (d, n, size) in enumerate(zip(window, shape, dims, strict=True)):
        if d.stride != 1 or d.base_dilation != 1 or n != size:
            return None
        if d.size == 1 and d.padding[0] == 0:
            continue
        low = d.padding[0]
        if found or d.window_dilation != 1 or d.size < n or low not in (0, d.size - 1):
            return None
        if low == 0 and n <= _FEW_ELEMENTS:
            return None
        found = axis, low == 0
    return found


def _fold_running(
    step: FoldStep,
    axis: int,
    backwards: bool,
    arrays: Sequence[Bits],
    initial: Sequence[Bits],
    dims: tuple[int, ...],
) -> tuple[BitsArray, ...]:
    acc = [np.broadcast_to(x.data, dims[:axis] + dims[axis + 1 :]) for x in initial]
    outputs = tuple(np.empty(dims, x.data.dtype) for x in initial)
    moved = [np.moveaxis(x.data, axis, 0) for x in arrays]
    targets = [np.moveaxis(output, axis, 0) for output in outputs]
    for at in range(dims[axis])[:: -1 if backwards else 1]:
        with np.errstate(all="ignore"):
            acc = [np.asarray(a) for a in step(acc, [x[at] for x in moved])]
        for target, value in zip(targets, acc, strict=True):
            target[at] = value
    return outputs


def window_elements(
    window: Sequence[WindowDimension], shape: tuple[int, ...], outputs: tuple[int, ...]
) -> Iterator[tuple[npt.NDArray[np.bool_], tuple[npt.NDArray[np.int64], ...]]]:
    """For each position of the windows, row-major: which outputs have an element there (R4), and its
    place along each axis of the operand.
    """
    if len(shape) == MAX_AXES:
        raise InvalidArgument(f"windows on the host over {len(shape)} axes: NumPy takes one index less")
    axes = []
    for d, n, size in zip(window, shape, outputs, strict=True):
        origin = np.arange(size) * d.stride - d.padding[0]
        # Only the positions where some window can meet the operand.
        last = (n - 1) * d.base_dilation
        begin = max(-(int(origin.max(initial=0)) // d.window_dilation), 0)
        end = min((last - int(origin.min(initial=0))) // d.window_dilation + 1, d.size) if n else 0
        lines = []
        for at in range(begin, end):
            index, hole = np.divmod(origin + at * d.window_dilation, d.base_dilation)
            present = (hole == 0) & (index >= 0) & (index < n)
            lines.append((present, np.where(present, index, 0)))
        axes.append(lines)
    for position in itertools.product(*axes):
        present = np.ones(outputs, np.bool_)
        for axis, (line, _) in enumerate(position):
            present &= line.reshape([-1 if a == axis else 1 for a in range(len(outputs))])
        yield present, np.ix_(*(index for _, index in position))
