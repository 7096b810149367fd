"""Operations that order elements (E10), and nextafter, which steps along the order (E9)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neuronsim import dtypes
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.ops.programs import is_host
from neuronsim.ops.rows import (
    ArrayType,
    Attributes,
    Bits,
    BitsArray,
    Op,
    Setting,
    check_axes,
    same_type,
)


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
    return ArrayType(dtypes.int64, (*dims[:axis], *dims[axis + 1 :]))


def infer_argsort(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    check_axes([attributes["axis"]], len(operands[0].dims), "axis")
    return ArrayType(dtypes.int64, operands[0].dims)


def infer_top_k(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    dims, k = operands[0].dims, attributes["k"]
    if not dims or type(k) is not int or not 0 <= k <= dims[-1]:
        raise InvalidArgument(f"{operands[0]} has no {k} largest along its last axis")
    return ArrayType(dtypes.int64, (*dims[:-1], k))


def order_keys(x: Bits, *, nan_last: bool = True) -> BitsArray:
    """Integers in the order of the elements, so that NumPy can compare them whatever the caller's
    floating-point environment is (D1).

    With `nan_last` -0 equals +0 and every NaN is the same and largest (array sort); without, the
    order is TOTALORDER.
    """
    t = x.dtype
    if t.kind != "float":
        return x.data
    word = np.dtype(f"i{t.itemsize}")
    bits = np.ascontiguousarray(x.data).reshape(x.data.shape).view(word)
    positive = word.type(np.iinfo(word).max)
    key: BitsArray = bits ^ ((bits >> (8 * t.itemsize - 1)) & positive)
    if not nan_last:
        return key
    magnitude = bits & positive
    if t.exponent_bits:
        shift = 8 * t.itemsize - t.bits
        top = ((1 << t.exponent_bits) - 1) << (t.mantissa_bits + shift)
        is_nan = magnitude > top if t.has_inf else magnitude == t.nan_bits
    else:
        is_nan = magnitude > np.array(np.inf, t.numpy).view(word)
    key = np.where(magnitude == 0, word.type(0), key)
    return np.where(is_nan, positive, key)


def evaluate_argument(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    key = order_keys(operands[0])
    if op.name == "argmin" and operands[0].dtype.kind == "float":
        # The first NaN wins here too: it becomes the smallest key.
        key = np.where(key == np.iinfo(key.dtype).max, np.iinfo(key.dtype).min, key)
    find = np.argmax if op.name == "argmax" else np.argmin
    return np.asarray(find(key, axis=attributes["axis"]), np.int64)


def evaluate_argsort(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    order = np.argsort(order_keys(operands[0]), axis=attributes["axis"], kind="stable")
    return np.asarray(order, np.int64)


def evaluate_top_k(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    # ~key is in the opposite order, so that a stable sort leaves equal keys by index.
    order = np.argsort(~order_keys(operands[0], nan_last=False), axis=-1, kind="stable")
    return np.ascontiguousarray(order[..., : attributes["k"]], np.int64)


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
