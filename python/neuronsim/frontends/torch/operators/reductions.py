"""Sums, means, extremes and their like along axes, and what runs along one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.evaluation import identity
from neuronsim.dtypes import DType
from neuronsim.frontends.primitives import (
    along,
    apply,
    axis_of,
    gathered_lines,
    in_float,
    padded,
    scattered_vectors,
)
from neuronsim.frontends.torch.operators.elementwise import convert, truth
from neuronsim.frontends.torch.promotion import floating
from neuronsim.frontends.torch.table import Node, operator


def axes_of(x: Array, dim: int | Sequence[int] | None) -> tuple[int, ...]:
    """Axes counted from the first: those of `dim`, all of None and of none."""
    if dim is None or (isinstance(dim, Sequence) and not dim):
        return tuple(range(x.ndim))
    dims = [dim] if isinstance(dim, int) else dim
    return tuple(sorted(axis_of(d, x.ndim) for d in dims)) if x.ndim else ()


def _in_type_of_result(function: Callable[..., Array]) -> Callable[..., Array]:
    def run(
        node: Node, x: Array, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None
    ) -> Array:
        """Integers as int64."""
        axes = axes_of(x, dim)
        wide = convert(x, node.dtype)
        return function(wide, axis=axes, keepdims=keepdim, dtype=node.dtype) if axes else wide

    return run


operator("aten.sum.dim_IntList", "aten.sum.default")(_in_type_of_result(np.sum))
operator("aten.prod.dim_int", "aten.prod.default")(_in_type_of_result(np.prod))
operator("aten.mean.dim", "aten.mean.default")(_in_type_of_result(np.mean))


@operator("aten.var.correction")
def _var(node: Node, x: Array, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Array:
    correction = 1 if correction is None else correction
    axes = axes_of(x, dim)
    wide = floating(x)
    if x.dtype.kind == "complex":
        parts = [apply(name, x) for name in ("real", "imag")]
        real, imaginary = (np.var(v, axis=axes, correction=correction, keepdims=keepdim) for v in parts)
        return real + imaginary
    found: Array = np.var(wide, axis=axes, correction=correction, keepdims=keepdim)
    return found


@operator("aten.var.dim")
def _var_of_axes(node: Node, x: Array, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Array:
    found: Array = _var(node, x, dim, correction=int(unbiased), keepdim=keepdim)
    return found


@operator("aten.var_mean.correction", "aten.std_mean.correction")
def _spread_and_mean(
    node: Node, x: Array, dim: Any = None, *, correction: Any = 1, keepdim: bool = False
) -> tuple[Array, Array]:
    spread = _var(node, x, dim, correction=correction, keepdim=keepdim)
    mean: Array = np.mean(floating(x), axis=axes_of(x, dim), keepdims=keepdim)
    return np.sqrt(spread) if ".std_mean." in node.target else spread, mean


def _extreme(function: Callable[..., Array]) -> Callable[..., Array]:
    def run(node: Node, x: Array, dim: Any = (), keepdim: bool = False) -> Array:
        axes = axes_of(x, dim)
        return function(x, axis=axes, keepdims=keepdim) if axes else x

    return run


operator("aten.amax.default", "aten.max.default")(_extreme(np.max))
operator("aten.amin.default", "aten.min.default")(_extreme(np.min))


def _with_place(find: Callable[..., Array], place: Callable[..., Array]) -> Callable[..., Any]:
    """The extremes along an axis and where the first of each lies."""

    def run(node: Node, x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
        if not x.ndim:
            return x, np.zeros((), dtype=dtypes.int64)
        axis = axis_of(dim, x.ndim)
        values = find(x, axis=axis, keepdims=keepdim)
        return values, place(x, axis=axis, keepdims=keepdim).astype(dtypes.int64)

    return run


operator("aten.max.dim")(_with_place(np.max, np.argmax))
operator("aten.min.dim")(_with_place(np.min, np.argmin))


def _place(function: Callable[..., Array]) -> Callable[..., Array]:
    def run(node: Node, x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
        if not x.ndim:
            return np.zeros((), dtype=dtypes.int64)
        if dim is None:
            found = function(np.reshape(x, (-1,)), axis=0).astype(dtypes.int64)
            return np.reshape(found, (1,) * x.ndim) if keepdim else found
        return function(x, axis=axis_of(dim, x.ndim), keepdims=keepdim).astype(dtypes.int64)

    return run


operator("aten.argmax.default")(_place(np.argmax))
operator("aten.argmin.default")(_place(np.argmin))


def _of_truth(function: Callable[..., Array]) -> Callable[..., Array]:
    def run(node: Node, x: Array, dim: Any = None, keepdim: bool = False) -> Array:
        axes = axes_of(x, dim)
        return function(truth(x), axis=axes, keepdims=keepdim) if axes else truth(x)

    return run


for _name, _function in {"any": np.any, "all": np.all}.items():
    _overloads = (f"{_name}.default", f"{_name}.dim", f"{_name}.dims", f"_is_{_name}_true.default")
    operator(*(f"aten.{o}" for o in _overloads))(_of_truth(_function))


def _cumulative(function: Callable[..., Array]) -> Callable[..., Array]:
    def run(node: Node, x: Array, dim: int, *, dtype: DType | None = None) -> Array:
        wide = convert(x, node.dtype)
        return function(wide, axis=axis_of(dim, x.ndim), dtype=node.dtype) if x.ndim else wide

    return run


operator("aten.cumsum.default")(_cumulative(np.cumulative_sum))
operator("aten.cumprod.default")(_cumulative(np.cumulative_prod))


@operator("aten.logcumsumexp.default")
def _log_sums(node: Node, x: Array, dim: int) -> Array:
    """Of the last 1, 2, 4, ... elements, so that none is lost beside a larger one that follows."""
    if not x.ndim:
        return x
    axis, found, step = axis_of(dim, x.ndim), in_float(x), 1
    n = x.shape[axis]
    while step < n:
        moved = [(step, -step, 0) if d == axis else (0, 0, 0) for d in range(x.ndim)]
        found = np.logaddexp(found, padded(found, moved, float("-inf")))
        step *= 2
    return found.astype(x.dtype)


def _running(reducer: str) -> Callable[..., list[Array]]:
    def run(node: Node, x: Array, dim: int) -> list[Array]:
        """The extreme of the elements so far and the last place of it; from a NaN on that."""
        if not x.ndim or not x.size:
            return [x, np.zeros(x.shape, dtype=dtypes.int64)]
        axis = axis_of(dim, x.ndim)
        extreme = _so_far(reducer, x, identity(reducer, x.dtype), axis)
        is_it = np.logical_or(np.equal(x, extreme), np.not_equal(x, x))
        places = along(np.arange(x.shape[axis], dtype=dtypes.int32), axis, x.ndim)
        chosen = np.where(is_it, places, 0)
        found = _so_far("maximum", chosen, np.zeros((), dtype=dtypes.int32), axis).astype(dtypes.int64)
        return [gathered_lines(x, found, axis), found]

    return run


def _so_far(reducer: str, x: Array, first: Array, axis: int) -> Array:
    return apply("cumulative", x, first, axis=axis, reducer=reducer)


operator("aten.cummax.default")(_running("maximum"))
operator("aten.cummin.default")(_running("minimum"))


@operator("aten.histc.default")
def _histogram(node: Node, x: Array, bins: int = 100, *bounds: Any) -> Array:
    """How many elements lie in each of equal parts of a range, that of the elements where none is
    given; what is outside, and NaN, is in none.
    """
    flat = convert(np.reshape(x, -1), node.dtype)
    least, most = [*bounds, 0, 0][:2]
    low, high = (np.asarray(v, dtype=node.dtype) for v in (least, most))
    if least == most and flat.size:
        low, high = np.min(flat), np.max(flat)
    one = np.equal(low, high)
    low, high = np.where(one, low - 1, low), np.where(one, high + 1, high)
    inside = np.logical_and(np.greater_equal(flat, low), np.less_equal(flat, high))
    place = np.floor(np.where(inside, (flat - low) / (high - low) * bins, -1))
    index = np.minimum(place, bins - 1).astype(dtypes.int64)
    counts = np.zeros((bins,), dtype=dtypes.int64)
    ones = np.ones(flat.shape, dtype=dtypes.int64)
    return convert(scattered_vectors(counts, index[:, None], ones, "add"), node.dtype)
