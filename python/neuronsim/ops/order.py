"""Operations that order elements (E10), and nextafter, which steps along the order (E9)."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from neuronsim import _core, dtypes
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.ops.chains import core_code, is_float, is_host
from neuronsim.ops.computations import (
    ScalarComputation,
    ScalarStep,
    applied_computations,
    check_computation,
    computation_chain,
    evaluate_computation,
    is_on_host,
)
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
    check_axes,
    one_or_tuple,
    run_bound,
    same_dims,
    same_type,
    sole_axis,
)
from neuronsim.processor import interruptible


def infer_nextafter(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    result = same_type(operands, "operands")
    if not is_float(result.dtype):
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
    sole_axis(attributes, len(same_dims(operands)))
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


def evaluate_argument(e: Evaluation) -> BitsArray:
    found = run_bound(e._replace(result=e.result._replace(dtype=dtypes.int64)))
    if found is not None:
        return np.asarray(found[0], e.result.dtype.storage)
    find = np.argmax if e.op.name == "argmax" else np.argmin  # of complex numbers
    return np.asarray(find(e.operands[0].data, axis=e.attributes["axis"]), e.result.dtype.storage)


def bind_argument(e: Evaluation, outputs: Outputs) -> Calls:
    (x,), (places,) = e.operands, outputs
    if x.dtype.code is None or places.dtype.kind not in "iu" or places.itemsize < 4:
        return None
    lines = np.moveaxis(x.data, e.attributes["axis"], -1)
    return [_core.argument(x.dtype.code, e.op.name == "argmax", lines, places)]


def evaluate_argsort(e: Evaluation) -> BitsArray:
    found = run_bound(e)
    if found is not None:
        return found[0]
    (lines,) = line_blocks(e.attributes["axis"], e.operands[0].data)  # of complex numbers
    order = interruptible(16 * lines.size, lines.argsort, axis=1, kind="stable")
    return np.asarray(order).reshape(e.result.dims)


def bind_argsort(e: Evaluation, outputs: Outputs) -> Calls:
    (x,), axis = e.operands, e.attributes["axis"]
    if x.dtype.code is None:
        return None
    lines, places = (np.moveaxis(a, axis, -1) for a in (x.data, *outputs))
    return [_core.argsort(x.dtype.code, lines, places)]


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


def bind_top_k(e: Evaluation, outputs: Outputs) -> list[_core.Call]:
    return [_top(e.operands[0], True, *outputs)]


def bind_topk(e: Evaluation, outputs: Outputs) -> list[_core.Call]:
    (x,) = e.operands
    values, places = outputs
    return [_top(x, e.attributes["largest"], places, values)]


def _top(x: Bits, largest: bool, places: BitsArray, values: BitsArray | None = None) -> _core.Call:
    """The first elements of lines in TOTALORDER, equal ones by place."""
    code = dtypes.float64.code if x.dtype is dtypes.float64 else core_code(x.dtype, "top-k")
    assert code is not None
    return _core.top(code, largest, x.data, places, values)


def evaluate_sort(e: Evaluation) -> Data:
    found = run_bound(e)
    if found is None:
        (axis,) = e.attributes["dimensions"]
        (comparator,) = applied_computations(e.attributes, 1)
        moved = [Bits(np.moveaxis(x.data, axis, -1), x.dtype) for x in e.operands]
        order = _order_on_host(comparator, moved, e.setting)
        found = tuple(np.moveaxis(take_along(x.data, order, -1), -1, axis) for x in moved)
    return found


def bind_sort(e: Evaluation, outputs: Outputs) -> Calls:
    (axis,) = e.attributes["dimensions"]
    (comparator,) = applied_computations(e.attributes, 1)
    if is_on_host(comparator):
        return None
    operand_lines = [np.moveaxis(x.data, axis, -1) for x in e.operands]
    lines = (operand_lines, [np.moveaxis(a, axis, -1) for a in outputs])
    program = computation_chain(comparator, e.setting.profile)
    found = sort_keys(comparator)
    flushes = e.setting.profile.subnormals == "flush"  # before floats are compared (C4)
    if flushes and any(k.key.result_types[0].kind == "float" for k in found):
        found = ()
    keys = [(computation_chain(k.key, e.setting.profile), k.descends, k.total) for k in found]
    return [_core.sort_lines(program, keys, *lines)]


class SortKey(NamedTuple):
    """What a comparator asks first of two elements: whether `key` of the left ones is below that of the
    right ones, or above; floats in TOTALORDER if `total`.
    """

    key: ScalarComputation
    descends: bool
    total: bool


class _Comparison(NamedTuple):
    """Of a value of the left elements, by its number, and the same one of the right elements."""

    left: int
    right: int
    descends: bool
    total: bool


_DIRECTIONS = {"less": (False, False), "greater": (True, False)}
_DIRECTIONS |= {f"{name}_total_order": (d, True) for name, (d, _) in _DIRECTIONS.items()}
_EQUALS = {False: "equal", True: "equal_total_order"}


@functools.lru_cache(maxsize=1024)
def sort_keys(comparator: ScalarComputation) -> tuple[SortKey, ...]:
    """The keys by which a comparator orders, of equal ones by the next; none if it is not made of such
    comparisons alone.
    """
    (value,) = comparator.results
    found: list[_Comparison] = []
    while (last := _comparison(comparator, value)) is None:
        parts = _first_and_rest(comparator, value)
        if parts is None:
            return ()
        first, value = parts
        found.append(first)
    return tuple(_key_of(comparator, c) for c in (*found, last))


def _step(comparator: ScalarComputation, value: int) -> ScalarStep | None:
    count = len(comparator.parameters)
    return comparator.steps[value - count] if value >= count else None


def _named(comparator: ScalarComputation, value: int, name: str) -> tuple[int, ...]:
    """The operands of the step that gives a value, if it is one of this operation."""
    s = _step(comparator, value)
    return s.operands if s is not None and s.op is not None and s.op.name == name else ()


def _comparison(comparator: ScalarComputation, value: int) -> _Comparison | None:
    s = _step(comparator, value)
    if s is None or s.op is None or s.op.name not in _DIRECTIONS:
        return None
    left, right = s.operands
    descends, total = _DIRECTIONS[s.op.name]
    if _mirrored(comparator, left, right):
        return _Comparison(left, right, descends, total)
    turned = _mirrored(comparator, right, left)
    return _Comparison(right, left, not descends, total) if turned else None


def _first_and_rest(comparator: ScalarComputation, value: int) -> tuple[_Comparison, int] | None:
    """The comparison of first keys, and what decides where they are equal: `first | (equal & rest)`, in
    any order, or `select(equal, rest, first)`.
    """
    ways = [_named(comparator, value, "select")]
    for first, both in _either_way(_named(comparator, value, "bitwise_or")):
        pairs = _either_way(_named(comparator, both, "bitwise_and"))
        ways += [(equal, rest, first) for equal, rest in pairs]
    for equal, rest, first in filter(None, ways):
        c = _comparison(comparator, first)
        if c is not None and set(_named(comparator, equal, _EQUALS[c.total])) == {c.left, c.right}:
            return c, rest
    return None


def _either_way(operands: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return (operands, operands[::-1]) if operands else ()


def _key_of(comparator: ScalarComputation, c: _Comparison) -> SortKey:
    """The parameters of the left elements, and the steps on them."""
    count = len(comparator.parameters)
    numbers = {n: n // 2 for n in range(0, count, 2)}
    steps: list[ScalarStep] = []
    for n, s in enumerate(comparator.steps, count):
        if all(o in numbers for o in s.operands):
            numbers[n] = count // 2 + len(steps)
            steps.append(s._replace(operands=tuple(numbers[o] for o in s.operands)))
    name, parameters = comparator.name, comparator.parameters[::2]
    key = ScalarComputation(name, parameters, tuple(steps), (numbers[c.left],))
    return SortKey(key, c.descends, c.total)


def _mirrored(comparator: ScalarComputation, left: int, right: int) -> bool:
    """Whether a value is a function of the left elements that another is of the right ones."""
    count = len(comparator.parameters)
    pending, same = [(left, right)], set[tuple[int, int]]()
    while pending:
        pair = pending.pop()
        if pair in same:
            continue
        same.add(pair)
        a, b = pair
        if a < count or b < count:
            if a % 2 == 1 or b != a + 1 or b >= count:
                return False
            continue
        one, other = comparator.steps[a - count], comparator.steps[b - count]
        if one._replace(operands=()) != other._replace(operands=()):
            return False
        pending += zip(one.operands, other.operands, strict=True)
    return True


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


def evaluate_nextafter(e: Evaluation) -> BitsArray:
    x, towards = e.operands
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
