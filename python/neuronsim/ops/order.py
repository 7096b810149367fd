"""Operations that order elements (E10), and nextafter, which steps along the order (E9)."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from neuronsim import _core, dtypes
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.ops.computations import (
    ScalarComputation,
    applied_computations,
    check_computation,
    computation_program,
    evaluate_computation,
    is_on_host,
)
from neuronsim.ops.programs import is_host
from neuronsim.ops.rows import (
    ArrayType,
    Attributes,
    Bits,
    BitsArray,
    Data,
    Op,
    Result,
    Setting,
    check_axes,
    one_or_tuple,
    same_type,
    sole_axis,
)
from neuronsim.processor import interruptible


def infer_nextafter(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    result = same_type(operands, "operands")
    if result.dtype.kind != "float" or not (result.dtype.device or is_host(result.dtype)):
        raise UnsupportedType(f"nextafter of {result.dtype.name}: the operands are device floats")
    return result


def infer_argument(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    dims, axis = operands[0].dims, attributes["axis"]
    check_axes([axis], len(dims), "axis")
    if dims[axis] == 0:
        raise InvalidArgument(f"{operands[0]} has no element along axis {axis}")
    return ArrayType(attributes.get("dtype") or dtypes.int64, (*dims[:axis], *dims[axis + 1 :]))


def infer_argsort(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    check_axes([attributes["axis"]], len(operands[0].dims), "axis")
    return ArrayType(dtypes.int64, operands[0].dims)


def infer_top_k(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    dims, k = operands[0].dims, attributes["k"]
    if not dims or type(k) is not int or not 0 <= k <= dims[-1]:
        raise InvalidArgument(f"{operands[0]} has no {k} largest along its last axis")
    if operands[0].dtype.kind == "complex":
        raise UnsupportedType(f"top-k of {operands[0]}: complex numbers have no TOTALORDER")
    return ArrayType(dtypes.int64, (*dims[:-1], k))


def infer_topk(operands: Sequence[ArrayType], attributes: Attributes) -> Result:
    found = infer_top_k(operands, attributes)
    return ArrayType(operands[0].dtype, found.dims), ArrayType(dtypes.int32, found.dims)


def infer_sort(operands: Sequence[ArrayType], attributes: Attributes) -> Result:
    dims = operands[0].dims
    if any(t.dims != dims for t in operands):
        raise InvalidArgument(f"arrays of different shapes: {', '.join(map(str, operands))}")
    sole_axis(attributes, len(dims))
    (comparator,) = applied_computations(attributes, 1)
    check_computation(comparator, [t.dtype for t in operands for _ in "lr"], [dtypes.boolean])
    return one_or_tuple(operands)


def order_keys(x: Bits, *, nan_last: bool = True) -> BitsArray:
    """Integers in the order of the elements, so that NumPy can compare them whatever the caller's
    floating-point environment is (D1).

    With `nan_last` -0 equals +0 and every NaN is the same and largest (array sort); without, the
    order is TOTALORDER.
    """
    t = x.dtype
    if t.kind != "float":
        return x.data
    assert t.code is not None  # as every float has that an array has
    if nan_last:
        return _core.order_keys(np.asarray(x.data, order="C"), t.code)
    word = np.dtype(f"i{t.itemsize}")
    bits = np.ascontiguousarray(x.data).reshape(x.data.shape).view(word)
    positive = word.type(np.iinfo(word).max)
    key: BitsArray = bits ^ ((bits >> (8 * t.itemsize - 1)) & positive)
    return key


def evaluate_argument(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    key = order_keys(operands[0])
    if op.name == "argmin" and operands[0].dtype.kind == "float":
        # The first NaN wins here too: it becomes the smallest key.
        key = np.where(key == np.iinfo(key.dtype).max, np.iinfo(key.dtype).min, key)
    find = key.argmax if op.name == "argmax" else key.argmin
    return np.asarray(find(axis=attributes["axis"]), result.dtype.storage)


def evaluate_argsort(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    (keys,) = line_blocks(attributes["axis"], order_keys(operands[0]))
    order = interruptible(16 * keys.size, keys.argsort, axis=1, kind="stable")
    return np.asarray(order).reshape(result.dims)


def take_along(data: BitsArray, indices: BitsArray, axis: int) -> BitsArray:
    """NumPy's take_along_axis of arrays of one shape but for that axis."""
    if not (isinstance(data, np.ndarray) and isinstance(indices, np.ndarray)):  # what records
        return np.take_along_axis(data, indices, axis)
    lines, places = line_blocks(axis, data, indices)
    taken = interruptible(4 * places.size, np.take_along_axis, lines, places, 1)
    return np.asarray(taken).reshape(indices.shape)


def line_blocks(axis: int, *arrays: BitsArray) -> list[BitsArray]:
    """Arrays whose axes before and behind `axis` are one each: some of NumPy's functions take 32 axes
    only, and it indexes by 63 arrays.
    """
    at = axis % arrays[0].ndim
    dims = arrays[0].shape
    before, behind = math.prod(dims[:at]), math.prod(dims[at + 1 :])
    return [x.reshape(before, x.shape[at], behind) for x in arrays]


def _first_indices(x: Bits, k: int, *, largest: bool) -> BitsArray:
    """Those of the first k elements in TOTALORDER, equal ones by index."""
    found = interruptible(16 * x.data.size, _places_of_first, x, k, largest)
    return np.asarray(found)


def _places_of_first(x: Bits, k: int, largest: bool) -> BitsArray:
    keys = order_keys(x, nan_last=False)
    keys = ~keys if largest else keys  # in the opposite order
    dims = (*keys.shape[:-1], k)
    if k == 0:
        return np.zeros(dims, np.int64)
    keys = keys.reshape(math.prod(dims[:-1]), keys.shape[-1])
    last = np.partition(keys, k - 1, axis=-1)[..., k - 1 : k]
    before, ties = keys < last, keys == last
    room = k - np.count_nonzero(before, axis=-1, keepdims=True)
    chosen = before | (ties & (np.cumsum(ties, axis=-1) <= room))
    indices = np.nonzero(chosen)[-1].reshape(len(keys), k)
    order = np.argsort(np.take_along_axis(keys, indices, 1), axis=1, kind="stable")
    return np.take_along_axis(indices, order, 1).reshape(dims)


def evaluate_top_k(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    return _first_indices(operands[0], attributes["k"], largest=True)


def evaluate_topk(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: Result, setting: Setting
) -> Data:
    (x,) = operands
    order = _first_indices(x, attributes["k"], largest=attributes["largest"])
    return take_along(x.data, order, -1), order.astype(np.int32)


def evaluate_sort(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: Result, setting: Setting
) -> Data:
    (axis,) = attributes["dimensions"]
    (comparator,) = applied_computations(attributes, 1)
    moved = [Bits(np.moveaxis(x.data, axis, -1), x.dtype) for x in operands]
    if is_on_host(comparator):
        order = _order_on_host(comparator, moved, setting)
    else:
        program = computation_program(comparator, setting.profile)
        order = _core.sort(program, [x.data for x in moved])
    sorted_arrays = (take_along(x.data, order, -1) for x in moved)
    found = tuple(np.moveaxis(a, -1, axis) for a in sorted_arrays)
    return found[0] if isinstance(result, ArrayType) else found


def _order_on_host(
    comparator: ScalarComputation, operands: Sequence[Bits], setting: Setting
) -> BitsArray:
    shape = operands[0].data.shape
    order = np.empty(shape, np.int64)
    for line in np.ndindex(shape[:-1]):

        def compare(left: int, right: int, line: tuple[int, ...] = line) -> int:
            at = ((*line, left), (*line, right))
            pairs = [Bits(np.asarray(x.data[i]), x.dtype) for x in operands for i in at]
            (comes_first,) = evaluate_computation(comparator, pairs, setting)
            return -int(comes_first.data)

        order[line] = sorted(range(shape[-1]), key=functools.cmp_to_key(compare))
    return order


def evaluate_nextafter(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    x, towards = operands
    if is_host(x.dtype):
        return np.asarray(np.nextafter(x.data, towards.data))
    # E9: one step on the type's own grid, which integer order follows.
    key, goal = order_keys(x), order_keys(towards)
    word = key.dtype
    nan = word.type(np.iinfo(word).max)
    unit = word.type(1 << (8 * x.dtype.itemsize - x.dtype.bits))
    magnitude = x.data.view(word) & nan
    sign = x.data.view(word) & ~nan
    away = (goal > key) == (key >= 0)
    stepped = np.where(away, magnitude + unit, magnitude - unit) | sign
    smallest = np.where(goal > key, unit, unit | ~nan)
    moved = np.where(magnitude == 0, smallest, stepped)
    result_bits = np.where(key == goal, towards.data.view(word), moved)
    quiet = np.array(x.dtype.nan_bits, f"u{x.dtype.itemsize}").view(word)
    found = np.where((key == nan) | (goal == nan), quiet, result_bits)
    return np.asarray(found, word).view(x.dtype.storage)
