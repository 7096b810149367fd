"""Reductions, the places of limits, and cumulative sums and products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from neuronsim import arrays as np
from neuronsim.arrays import nn
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.evaluation import identity
from neuronsim.arrays.steps import in_float32
from neuronsim.frontends.onnx.table import Node, operator
from neuronsim.frontends.primitives import quotient

# A reduction of an array over some axes, which stay with length 1 if so asked.
_Reduction: TypeAlias = Callable[[Array, tuple[int, ...], bool], Array]


def _sum(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    return np.sum(x, axis=axes, dtype=x.dtype, keepdims=keepdims)


def _limit(function: Callable[..., Array], reducer: str) -> _Reduction:
    """Of no elements it is the reducer's identity."""

    def limit(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        is_empty = 0 in [x.shape[d] for d in axes]
        start = identity(reducer, x.dtype) if is_empty else None
        return function(x, axis=axes, keepdims=keepdims, initial=start)

    return limit


def _mean(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    if x.dtype.kind not in ("signed", "unsigned"):
        return np.mean(x, axis=axes, keepdims=keepdims)
    count = np.asarray(math.prod(x.shape[d] for d in axes), dtype=x.dtype)
    return quotient(_sum(x, axes, keepdims), count)


def _in_steps(steps: Callable[..., Array]) -> _Reduction:
    """A reduction of several steps, of floats in float32 (R7)."""
    wide = in_float32("x")(steps)

    def reduction(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        return wide(x, axes, keepdims).astype(x.dtype)

    return reduction


def _sum_of_squares(x: Any, axes: tuple[int, ...], keepdims: bool) -> Array:
    return _sum(np.multiply(x, x), axes, keepdims)


_REDUCTIONS: dict[str, _Reduction] = {
    "ReduceSum": _sum,
    "ReduceProd": lambda x, axes, keepdims: np.prod(x, axis=axes, dtype=x.dtype, keepdims=keepdims),
    "ReduceMax": _limit(np.max, "maximum"),
    "ReduceMin": _limit(np.min, "minimum"),
    "ReduceMean": _mean,
    "ReduceL1": _in_steps(lambda x, axes, keepdims: _sum(np.abs(x), axes, keepdims)),
    "ReduceL2": _in_steps(lambda x, axes, keepdims: np.sqrt(_sum_of_squares(x, axes, keepdims))),
    "ReduceSumSquare": _in_steps(_sum_of_squares),
    "ReduceLogSum": _in_steps(lambda x, axes, keepdims: np.log(_sum(x, axes, keepdims))),
    "ReduceLogSumExp": _in_steps(
        lambda x, axes, keepdims: nn.logsumexp(x, axis=axes, keepdims=keepdims)
    ),
}


def _reduced(node: Node, reduction: _Reduction, x: Array, axes: Sequence[int] | None) -> Array:
    """Over all axes where none are named, or over none with `noop_with_empty_axes`."""
    if not axes and node.get("noop_with_empty_axes", 0):
        return reduction(x, (), True)
    along = tuple(d % x.ndim for d in axes) if axes else tuple(range(x.ndim))
    return reduction(x, along, bool(node.get("keepdims", 1)))


def _by_attribute(reduction: _Reduction) -> Callable[..., Array]:
    return lambda node, x: _reduced(node, reduction, x, node.get("axes"))


def _by_input(reduction: _Reduction) -> Callable[..., Array]:
    def run(node: Node, x: Array, axes: Array | None = None) -> Array:
        return _reduced(node, reduction, x, None if axes is None else axes.tolist())

    return run


for _name, _reduction in _REDUCTIONS.items():
    operator(_name)(_by_attribute(_reduction))
    operator(_name, since=13 if _name == "ReduceSum" else 18)(_by_input(_reduction))


# ---- places ----------------------------------------------------------------------------------------


def _place(function: Callable[..., Array]) -> Callable[..., Array]:
    """Where the largest or the least element along an axis is: the first of equal ones, or the last."""

    def run(node: Node, x: Array) -> Array:
        axis, keepdims = node.get("axis", 0), bool(node.get("keepdims", 1))
        if not node.get("select_last_index", 0):
            return function(x, axis=axis, keepdims=keepdims)
        found = function(np.flip(x, axis), axis=axis, keepdims=keepdims)
        return np.subtract(x.shape[axis] - 1, found)

    return run


operator("ArgMax")(_place(np.argmax))
operator("ArgMin")(_place(np.argmin))


# ---- cumulative ------------------------------------------------------------------------------------


def _cumulative(function: Callable[..., Array]) -> Callable[..., Array]:
    """From the start, or with `reverse` from the end; with `exclusive` without the element itself."""

    def run(node: Node, x: Array, axis: Array) -> Array:
        at = int(axis.reshape(())) % x.ndim
        source = np.flip(x, at) if node.get("reverse", 0) else x
        exclusive = bool(node.get("exclusive", 0))
        found = function(source, axis=at, dtype=x.dtype, include_initial=exclusive)
        if exclusive:
            found = found[(slice(None),) * at + (slice(-1),)]
        return np.flip(found, at) if node.get("reverse", 0) else found

    return run


operator("CumSum", since=11)(_cumulative(np.cumulative_sum))
operator("CumProd", since=26)(_cumulative(np.cumulative_prod))


# ---- what is divided by reductions -------------------------------------------------------------------


@in_float32("x")
def _by_norm(x: Any, axis: int, p: int) -> Array:
    """The elements over their norm; zeros where that is 0."""
    along = (axis % x.ndim,)
    norm = _sum(np.abs(x), along, True) if p == 1 else np.sqrt(_sum_of_squares(x, along, True))
    return np.divide(x, np.where(np.equal(norm, 0), 1, norm))


operator("LpNormalization")(lambda node, x: _by_norm(x, node.get("axis", -1), node.get("p", 2)))


@operator("MeanVarianceNormalization", since=9)
def _mean_variance_normalization(node: Node, x: Array) -> Array:
    """Two-pass, where ONNX's body subtracts squares."""
    return _standardized(x, tuple(node.get("axes", (0, 2, 3))))


@in_float32("x")
def _standardized(x: Any, axes: tuple[int, ...]) -> Array:
    centred = np.subtract(x, np.mean(x, axis=axes, keepdims=True))
    deviation = np.sqrt(np.mean(np.multiply(centred, centred), axis=axes, keepdims=True))
    return np.divide(centred, np.add(deviation, 1e-9))
