"""NumPy's functions on the storage of traced arrays: what only moves elements, and arithmetic on
integers and bool.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.dtypes import as_dtype
from neuronsim.errors import InvalidArgument, UnknownValue, UnsupportedType
from neuronsim.frontends import movement
from neuronsim.frontends.movement import broadcast, converted, joined, known, moved, reshaped, row
from neuronsim.frontends.recorder import Value
from neuronsim.frontends.tracer import Tracer, as_value, value_of

_UFUNCS = {
    **{n: n for n in ("add", "subtract", "multiply", "negative", "maximum", "minimum", "remainder")},
    **{n: n for n in ("bitwise_and", "bitwise_or", "bitwise_xor", "equal", "not_equal")},
    **{n: n for n in ("less", "less_equal", "greater", "greater_equal")},
    "invert": "bitwise_invert",
    "left_shift": "shift_left",
    "logical_and": "bitwise_and",
    "logical_or": "bitwise_or",
    "logical_not": "bitwise_invert",
}


def _of_integers(name: str, *inputs: Any) -> Tracer:
    """Arithmetic on integers and bool that lie in arrays, such as indices and masks."""
    types = [x.value.type.dtype for x in inputs if isinstance(x, Tracer)]
    if any(t.exponent_bits for t in types):
        raise UnknownValue(f"numpy.{name} of its bits", _values(inputs)[0])
    common = np.result_type(*(x.dtype if isinstance(x, Tracer) else x for x in inputs))
    dtype = as_dtype(common)
    values = [
        converted(x.value, dtype) if isinstance(x, Tracer) else known(np.asarray(x), dtype)
        for x in inputs
    ]
    dims = ops.broadcast_dims(*(v.type.dims for v in values))
    return Tracer(row(name, [broadcast(v, dims) for v in values]))


def _value(x: Any, like: Any = None) -> Value:
    if isinstance(x, Tracer):
        return x.value
    data = np.asarray(x)
    dtype = like.value.type.dtype if isinstance(like, Tracer) else as_dtype(data.dtype)
    return value_of(ops.Bits(np.asarray(data, dtype.storage), dtype))


def _values(arrays: Sequence[Any]) -> list[Value]:
    like = next(x for x in arrays if isinstance(x, Tracer))
    return [_value(x, like) for x in arrays]


def _concatenate(arrays: Sequence[Any], axis: int | None = 0, **ignored: Any) -> Tracer:
    values = _values(arrays)
    if axis is None:
        values, axis = [reshaped(v, (v.type.size,)) for v in values], 0
    rank = len(values[0].type.dims)
    if not -rank <= axis < rank:
        raise InvalidArgument(f"axis {axis} of arrays of {rank} axes")
    return Tracer(joined(values, axis % rank))


def _stack(arrays: Sequence[Any], axis: int = 0, **ignored: Any) -> Tracer:
    values = _values(arrays)
    dims = values[0].type.dims
    if any(v.type.dims != dims for v in values):
        raise InvalidArgument("stack takes arrays of one shape")
    at = axis % (len(dims) + 1)
    return Tracer(joined([reshaped(v, (*dims[:at], 1, *dims[at:])) for v in values], at))


def _stacked(axis: Callable[[int], int], least: Callable[[Any], Any]) -> Any:
    def stack(arrays: Sequence[Any], **ignored: Any) -> Tracer:
        wide = [least(x) if not isinstance(x, Tracer) else _by_positions(least)(x) for x in arrays]
        return _concatenate(wide, axis(wide[0].ndim))

    return stack


def _by_positions(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one array that only moves elements, and gives one or several arrays."""

    def move(x: Any, *args: Any, **keywords: Any) -> Any:
        if not isinstance(x, Tracer):
            unknown = next(v for v in (*args, *keywords.values()) if isinstance(v, Tracer))
            raise UnknownValue(f"numpy.{function.__name__}", unknown.value)
        numbers = np.arange(x.size, dtype=np.int64).reshape(x.shape)
        found = function(numbers, *args, **keywords)
        if isinstance(found, list | tuple):
            return [Tracer(movement.taken_from(x.value, np.asarray(f))) for f in found]
        return Tracer(movement.taken_from(x.value, np.asarray(found)))

    return move


def _views_by_positions(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one array that gives views of it."""

    def view(x: Tracer, *args: Any, **keywords: Any) -> Any:
        numbers = np.arange(x.size, dtype=np.int64).reshape(x.shape)

        def one(positions: Any, layout: Any) -> Tracer:
            return x.view_of(
                lambda v: movement.taken_from(v, positions),
                lambda base, v: movement.put_at(base, positions, v),
                layout,
            )

        found, layouts = (function(a, *args, **keywords) for a in (numbers, x.layout))
        if isinstance(found, list | tuple):
            return [one(np.asarray(f), a) for f, a in zip(found, layouts, strict=True)]
        return one(np.asarray(found), layouts)

    return view


def _by_filled_positions(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one array that moves elements, and puts zeros where there are none."""

    def move(x: Tracer, *args: Any, **keywords: Any) -> Tracer:
        dims, dtype = x.shape, x.value.type.dtype
        numbers = np.arange(1, x.size + 1, dtype=np.int64).reshape(dims)
        found = np.asarray(function(numbers, *args, **keywords))
        zero = known(0, dtype)
        if found.shape == dims and not (found != numbers)[found != 0].any():
            mask = known(found != 0, dtypes.boolean)
            return Tracer(row("select", [mask, x.value, broadcast(zero, dims)]))
        flat = joined([reshaped(zero, (1,)), reshaped(x.value, (x.size,))], 0)
        return Tracer(movement.taken_from(flat, found))

    return move


def _by_joint_positions(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of several arrays, perhaps in lists, that only moves elements."""

    def move(*args: Any, **keywords: Any) -> Any:
        values: list[Value] = []
        traced = [x for x in _leaves(args) if isinstance(x, Tracer)]

        def numbered(x: Any) -> Any:
            if isinstance(x, list | tuple):
                return type(x)(numbered(v) for v in x)
            if not isinstance(x, Tracer | np.ndarray) or x.dtype != traced[0].dtype:
                return x
            start = sum(v.type.size for v in values)
            values.append(_value(x, traced[0]))
            return start + np.arange(x.size, dtype=np.int64).reshape(x.shape)

        found = function(*(numbered(x) for x in args), **keywords)
        flat = joined([reshaped(v, (v.type.size,)) for v in values], 0)
        if isinstance(found, list | tuple):
            return [Tracer(movement.taken_from(flat, np.asarray(f))) for f in found]
        return Tracer(movement.taken_from(flat, np.asarray(found)))

    return move


def _meshgrid(*lines: Any, **how: Any) -> list[Any]:
    def along(x: Any, *, at: int) -> Any:
        others = (np.zeros(v.size) for v in lines)
        return np.meshgrid(*(x if n == at else v for n, v in enumerate(others)), **how)[at]

    return [
        _by_positions(along)(x, at=at) if isinstance(x, Tracer) else along(x, at=at)
        for at, x in enumerate(lines)
    ]


def _leaves(x: Any) -> list[Any]:
    return [v for part in x for v in _leaves(part)] if isinstance(x, list | tuple) else [x]


def _clip(x: Any, low: Any = None, high: Any = None, **ignored: Any) -> Any:
    found = x if low is None else np.maximum(x, low)
    return found if high is None else np.minimum(found, high)


def _right_shift(x: Any, by: Any) -> Tracer:
    dtype = as_dtype((x if isinstance(x, Tracer) else by).dtype)
    kind = "logical" if dtype.kind == "unsigned" else "arithmetic"
    return _of_integers(f"shift_right_{kind}", x, by)


def _view_by(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that gives a view: of the array without or with axes of length 1."""

    def view(x: Tracer, *args: Any, **keywords: Any) -> Tracer:
        shape = function(np.broadcast_to(np.empty((), np.int8), x.shape), *args, **keywords).shape
        return x.reshape(shape)

    return view


def _broadcast_to(x: Any, shape: Any, subok: bool = False) -> Tracer:
    dims = tuple(shape) if np.iterable(shape) else (operator.index(shape),)
    return (
        Tracer(x.value, x, None, None)
        if dims == x.shape
        else x.view_of(lambda v: broadcast(v, dims), None, np.broadcast_to(x.layout, dims))
    )


def _take(
    x: Any, indices: Any, axis: int | None = None, out: Any = None, mode: Any = "raise"
) -> Tracer:
    value = _value(x)
    if axis is None:
        value, axis = reshaped(value, (value.type.size,)), 0
    axis %= max(len(value.type.dims), 1)
    if not isinstance(indices, Tracer):
        return Tracer(moved(value, lambda numbers: np.take(numbers, indices, axis, None, mode)))
    places = indices.value
    length = value.type.dims[axis]
    places = converted(places, dtypes.int64) if mode == "clip" else movement.wrapped(places, length)
    return Tracer(movement.taken(value, places, axis))


def _take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Tracer:
    if not isinstance(indices, Tracer):
        return Tracer(moved(x.value, lambda n: np.take_along_axis(n, indices, axis)))
    value = _value(x)
    if axis is None:
        value, axis = reshaped(value, (value.type.size,)), 0
    axis %= len(value.type.dims)
    places = movement.wrapped(indices.value, value.type.dims[axis])
    return Tracer(movement.taken_along(value, places, axis))


def _where(condition: Any, x: Any, y: Any) -> Tracer:
    like = next((v for v in (x, y) if isinstance(v, Tracer)), None)
    mask = _value(condition)
    if mask.type.dtype is not dtypes.boolean:
        mask = row("not_equal", [mask, broadcast(known(0, mask.type.dtype), mask.type.dims)])
    a, b = (_value(v, like) for v in (x, y))
    dims = ops.broadcast_dims(*(v.type.dims for v in (mask, a, b)))
    return Tracer(row("select", [broadcast(v, dims) for v in (mask, a, b)]))


def _copyto(target: Any, source: Any, casting: Any = None, where: Any = True) -> None:
    if not isinstance(target, Tracer):
        raise UnknownValue("a copy into NumPy's array", source.value)
    new = broadcast(as_value(source, target.value), target.shape)
    if where is not True:
        new = _where(where, Tracer(new), target).value
    target.write(broadcast(new, target.shape))


def _choose(places: Any, choices: Any, out: Any = None, mode: Any = "raise") -> Tracer:
    """Places beyond the choices are the nearest one, as those of HLO's gather are."""
    like = next((c for c in choices if isinstance(c, Tracer)), None)
    values = [_value(c, like) for c in choices]
    number = converted(_value(places), dtypes.int64)
    dims = ops.broadcast_dims(number.type.dims, *(v.type.dims for v in values))
    number = broadcast(number, dims)
    found = broadcast(values[0], dims)
    for k, v in enumerate(values[1:], 1):
        beyond = row("greater_equal", [number, broadcast(known(k, dtypes.int64), dims)])
        found = row("select", [beyond, broadcast(v, dims), found])
    return Tracer(found)


def _put(target: Any, places: Any, values: Any, mode: Any = "raise") -> None:
    if not isinstance(target, Tracer):
        raise UnknownValue("a put into NumPy's array", _values([places, values])[0])
    size = target.size
    new = as_value(values, target.value)
    if new.type.size == 0 or places.size == 0:
        return
    line = _repeated(new, (places.size,))
    flat = reshaped(target.value, (size,))
    if isinstance(places, Tracer):
        at = reshaped(converted(places.value, dtypes.int64), (places.size,))
        if mode == "clip":
            at = _clip(Tracer(at), 0, size - 1).value
        found = movement.updated(flat, [at], line)
    else:
        found = movement.put_at(flat, np.take(np.arange(size), places, mode=mode).reshape(-1), line)
    target.write(reshaped(found, target.shape))


def _putmask(target: Any, mask: Any, values: Any) -> None:
    if not isinstance(target, Tracer):
        raise UnknownValue("a putmask into NumPy's array", _values([mask, values])[0])
    if mask.size != target.size:
        raise InvalidArgument(f"putmask: a mask of {mask.size} elements for {target.size}")
    new = as_value(values, target.value)
    if new.type.size:
        holds = reshaped(_value(mask), target.shape)
        target.write(row("select", [holds, _repeated(new, target.shape), target.value]))


def _repeated(values: Value, dims: Sequence[int]) -> Value:
    """All values one after the other, again and again, in a shape."""
    return moved(values, lambda numbers: np.resize(numbers, dims))


def _unravel_index(places: Any, shape: Any, order: str = "C") -> tuple[Tracer, ...]:
    dims = (shape,) if isinstance(shape, int) else tuple(shape)
    found = []
    for step, n in zip(_steps(dims, order), dims, strict=True):
        quotient = row("divide", [places.value, _all(step, places.value)])
        found.append(Tracer(row("remainder", [quotient, _all(n, places.value)])))
    return tuple(found)


def _ravel_multi_index(places: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Tracer:
    modes = (mode,) * len(dims) if isinstance(mode, str) else tuple(mode)
    if len(places) != len(dims) or len(modes) != len(dims):
        raise InvalidArgument(f"ravel_multi_index: {len(places)} indices for {len(dims)} axes")
    found: Any = 0
    for at, n, step, how in zip(places, dims, _steps(dims, order), modes, strict=True):
        inside = np.remainder(at, n) if how == "wrap" else _clip(at, 0, n - 1) if how == "clip" else at
        found = inside * step + found
    assert isinstance(found, Tracer)
    return found


def _steps(dims: Sequence[int], order: str) -> list[int]:
    """How far apart in an array's numbers neighbours along each axis are."""
    if order == "F":
        return [math.prod(dims[:d]) for d in range(len(dims))]
    return [math.prod(dims[d + 1 :]) for d in range(len(dims))]


def _all(number: int, like: Value) -> Value:
    return broadcast(known(number, like.type.dtype), like.type.dims)


def _like(value: int) -> Callable[..., Any]:
    def like(
        x: Tracer, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None
    ) -> Any:
        dims = x.shape if shape is None else shape
        return np.full(dims, value, x.dtype if dtype is None else dtype)

    return like


def _pad(x: Any, widths: Any, mode: Any = "constant", **keywords: Any) -> Tracer:
    if mode != "constant":
        return Tracer(moved(x.value, lambda numbers: np.pad(numbers, widths, mode, **keywords)))
    fill = keywords.get("constant_values", 0)
    value = fill.value if isinstance(fill, Tracer) else None
    if value is None:
        data = np.asarray(fill)
        if data.ndim and (data != data.flat[0]).any():
            raise UnsupportedType("pad of a traced array takes one constant")
        value = known(data.flat[0] if data.size else 0, x.value.type.dtype)
    pairs = np.broadcast_to(np.asarray(widths), (x.ndim, 2)).tolist()
    return Tracer(
        row("pad", [x.value, reshaped(value, ())], padding=tuple((a, b, 0) for a, b in pairs))
    )


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **{f: _by_positions(f) for f in (
        *(np.roll, np.repeat, np.tile, np.resize),
        *(np.diagonal, np.delete, np.lib.stride_tricks.sliding_window_view),
        *(np.fft.fftshift, np.fft.ifftshift),
    )},
    **{f: _views_by_positions(f) for f in (
        *(np.flip, np.fliplr, np.flipud, np.rot90, np.rollaxis, np.unstack),
        *(np.split, np.array_split, np.hsplit, np.vsplit, np.dsplit),
    )},
    **{f: _by_filled_positions(f) for f in (np.tril, np.triu, np.diag, np.diagflat)},
    **{f: _by_joint_positions(f) for f in (np.block, np.insert)},
    np.choose: _choose,
    np.clip: _clip,
    np.put: _put,
    np.putmask: _putmask,
    np.ravel_multi_index: _ravel_multi_index,
    np.unravel_index: _unravel_index,
    np.meshgrid: _meshgrid,
    **{f: _view_by(f) for f in (
        *(np.atleast_1d, np.atleast_2d, np.atleast_3d, np.expand_dims, np.squeeze),
    )},
    np.hstack: _stacked(lambda rank: min(rank - 1, 1), np.atleast_1d),
    np.vstack: _stacked(lambda rank: 0, np.atleast_2d),
    np.dstack: _stacked(lambda rank: 2, np.atleast_3d),
    np.column_stack: _stacked(
        lambda rank: 1, lambda x: x if x.ndim > 1 else x.reshape(-1, 1)
    ),
    np.concatenate: _concatenate,
    np.stack: _stack,
    np.broadcast_to: _broadcast_to,
    np.take: _take,
    np.take_along_axis: _take_along_axis,
    np.where: _where,
    np.copyto: _copyto,
    np.copy: lambda x, *args, **ignored: x.copy(),
    np.pad: _pad,
    np.empty_like: _like(0),
    np.zeros_like: _like(0),
    np.ones_like: _like(1),
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.size: lambda x, axis=None: x.size if axis is None else x.shape[axis],
    np.ravel: lambda x, order="C": x.ravel(order),
    np.reshape: lambda x, shape, order="C", **more: x.reshape(shape, order=order),
    np.transpose: lambda x, axes=None: x.transpose() if axes is None else x.transpose(axes),
    np.swapaxes: lambda x, a, b: x.transpose(_swapped(x.ndim, a, b)),
    np.moveaxis: lambda x, source, to: x.transpose(_moved_axes(x.ndim, source, to)),
    np.may_share_memory: lambda a, b, *more: a is b,
    np.shares_memory: lambda a, b, *more: a is b,
}  # fmt: skip


def _swapped(rank: int, a: int, b: int) -> list[int]:
    order = list(range(rank))
    order[a], order[b] = order[b], order[a]
    return order


def _moved_axes(rank: int, source: int | Sequence[int], to: int | Sequence[int]) -> list[int]:
    froms, tos = (np.lib.array_utils.normalize_axis_tuple(a, rank) for a in (source, to))
    order = [d for d in range(rank) if d not in froms]
    for place, axis in sorted(zip(tos, froms, strict=True)):
        order.insert(place, axis)
    return order


Tracer.functions.update(_FUNCTIONS)
Tracer.ufuncs["right_shift"] = _right_shift
Tracer.ufuncs.update({name: partial(_of_integers, row_name) for name, row_name in _UFUNCS.items()})
