"""Progressions: each value is the exact start + i * step, rounded once (C1), or computed in steps (R7).

>>> linspace(0, 1, 4, dtype="bfloat16").tolist()
[0.0, 0.333984375, 0.66796875, 1.0]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes, ops
from neuronsim.arrays.arguments import whole
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray, common_arrays, convert, is_weak
from neuronsim.arrays.creation import chosen_type, full, zeros
from neuronsim.arrays.default_types import array_type, default_complex, default_dtype
from neuronsim.arrays.elementwise import where
from neuronsim.arrays.evaluation import apply_elementwise
from neuronsim.arrays.manipulation import broadcast_arrays, expand_dims, move_bits, stack
from neuronsim.dtypes import DType, DTypeLike, result_type
from neuronsim.errors import (
    REFUSALS,
    IntegerOverflow,
    InvalidArgument,
    OutOfMemory,
    UnsupportedType,
    refusal,
)

__all__ = ["arange", "geomspace", "linspace", "logspace"]


# ---- exact lines -----------------------------------------------------------------------------------


def exact_fraction(what: str, x: Any) -> Fraction:
    """The exact value of a real number or of an array of one element.

    Raises UnsupportedType if it is complex or no number, InvalidArgument if it is not finite, and
    IntegerOverflow if float64 does not reach it.
    """
    value = x if isinstance(x, int | float) else asarray(x).item()
    if isinstance(value, complex):
        raise UnsupportedType(f"{what} is a real number, not {value!r}")
    try:
        finite = math.isfinite(value)
    except OverflowError as error:
        raise IntegerOverflow(f"{what} is beyond float64: {error}") from error
    if not finite:
        raise InvalidArgument(f"{what} is a finite number, not {value!r}")
    return Fraction(value)


def progression(
    first: Fraction,
    step: Fraction,
    count: int,
    dtype: DType,
    integer: Callable[[Fraction], int] = math.trunc,
) -> Array:
    """`first + i * step` for i = 0 ... count - 1, in one axis; `integer` makes the values of an integer
    type. Raises IntegerOverflow for integers outside the type (C8), and
    OutOfMemory.

    >>> progression(Fraction(1), Fraction(1, 3), 3, dtypes.bfloat16).tolist()
    [1.0, 1.3359375, 1.6640625]
    """
    try:
        np.empty(count, dtype.storage)
    except (MemoryError, ValueError) as error:
        raise OutOfMemory(f"{count} values of {dtype.name}: {error}") from error
    over = math.lcm(first.denominator, step.denominator)
    start, stride = int(first * over), int(step * over)
    if dtype.kind in ("signed", "unsigned"):
        return _integers(start, stride, over, count, dtype, integer)
    if dtype.kind in ("complex", "bool"):
        part = dtypes.float32 if dtype is dtypes.complex64 else dtypes.float64
        return convert(progression(first, step, count, part), dtype)
    reach = max(abs(start), abs(stride), abs(start + (count - 1) * stride))
    if reach < 2**53 and over.bit_count() == 1 and over < 2**1000:
        return _convert((np.arange(count) * stride + start) / float(over), dtype)
    if count > _FEW and dtype is not dtypes.float64:
        return _bracketed(start, stride, over, count, dtype)
    return _nearest([start + i * stride for i in range(count)], over, dtype)


_FEW = 200  # from here on bracketing is the faster way


def _convert(values: npt.NDArray[Any], dtype: DType) -> Array:
    return convert(Array(ops.Bits(values, dtypes.float64)), dtype)


def _integers(
    start: int, stride: int, over: int, count: int, dtype: DType, integer: Callable[[Fraction], int]
) -> Array:
    if over != 1:
        values = [integer(Fraction(start + i * stride, over)) for i in range(count)]
        return asarray(values, dtype)
    if count:
        asarray([start, start + (count - 1) * stride], dtype)  # C8
    modulus = 2**64
    words = np.arange(count, dtype=np.uint64) * np.uint64(stride % modulus)
    words += np.uint64(start % modulus)
    return Array(ops.Bits(words.astype(dtype.storage), dtype))


def _nearest(numerators: list[int], over: int, dtype: DType) -> Array:
    """Each numerator / over, rounded once."""
    values = np.array([n / over for n in numerators], np.float64)
    if dtype is dtypes.float64:
        return _convert(values, dtype)
    # A float64 that is a value of a format of up to 24 significant bits, or a midpoint of two, ends in
    # 28 zeros. It is moved off what it does not equal, so that the next rounding is the only one.
    for i in np.flatnonzero(values.view(np.uint64) & ((1 << 28) - 1) == 0).tolist():
        numerator, denominator = float(values[i]).as_integer_ratio()
        beyond = numerators[i] * denominator - numerator * over
        if beyond:
            values[i] = math.nextafter(values[i], math.copysign(math.inf, beyond))
    return _convert(values, dtype)


def _bracketed(start: int, stride: int, over: int, count: int, dtype: DType) -> Array:
    """`_nearest` for many values: where a bound from below and one from above round to the same bits,
    these are the ones.
    """
    line = np.arange(count) * (stride / over) + start / over
    slack = 2.0**-50 * ((abs(start) + count * abs(stride)) / over)  # three roundings are less
    low, high = (_convert(bound, dtype).bits.data for bound in (line - slack, line + slack))
    words = np.dtype(f"u{dtype.itemsize}")
    unsure = np.flatnonzero(low.view(words) != high.view(words)).tolist()
    exact = _nearest([start + i * stride for i in unsure], over, dtype)
    low[unsure] = exact.bits.data
    return Array(ops.Bits(low, dtype))


def is_negative_zero(x: Any) -> bool:
    return isinstance(x, float) and x == 0 and math.copysign(1, x) < 0


def write_negative_zero(line: Array, place: int) -> None:
    """Give the zero at an end of a line of floats its sign, which exact values do not have."""
    if line.size and line.dtype.kind in ("float", "complex"):
        line.bits.data[place] = _convert(np.array(-0.0), line.dtype).bits.data


def length(start: Fraction, stop: Fraction, step: Fraction) -> int:
    """How many values lie in [start, stop): exact for integers, else as float64 division has it, which
    is how NumPy counts. Raises InvalidArgument for a step of 0 and for a count beyond any memory.
    """
    if step == 0:
        raise InvalidArgument("arange: the step is 0")
    if start.denominator == stop.denominator == step.denominator == 1:
        count = -int((start - stop) // step)
    else:
        try:
            ratio = (float(stop) - float(start)) / float(step)
            count = math.ceil(ratio)
        except OverflowError as error:
            raise InvalidArgument(f"arange: the count of values is beyond float64: {error}") from error
        if ratio == 0 and (stop - start) / step > 0:
            count = 1
    if count > _MOST:
        raise InvalidArgument(f"arange: {count} values do not fit in memory")
    return max(count, 0)


_MOST = 2**59


# ---- evenly spaced values --------------------------------------------------------------------------


def _common_type(operands: Sequence[Any]) -> DType:
    return common_arrays(*operands)[0].dtype


def _float_type(operands: Sequence[Any]) -> DType:
    """The operands' common type, or the default float type in the place of integers."""
    if all(map(is_weak, operands)):
        return default_complex() if complex in map(type, operands) else default_dtype()
    common = _common_type(operands)
    return common if common.kind in ("float", "complex") else default_dtype()


def _unrounded(x: Any) -> Array:
    """`x` in a type that holds it: Python's floats are not rounded before the values are."""
    exact = {float: dtypes.float64, complex: dtypes.complex128}.get(type(x))
    return asarray(x, exact)


def arange(
    start: Any,
    stop: Any = None,
    step: Any = 1,
    dtype: DTypeLike | None = None,
    *,
    device: Any = None,
    like: Any = None,
) -> Array:
    """The values start + i * step in [start, stop), or in [0, start) without `stop`, each rounded once
    from its exact value (C1). Without `dtype` they are int64 (uint64 beyond it) or the floats' type.

    >>> arange(3), arange(1, 2, 0.25, dtype="bfloat16").tolist()
    (Array([0, 1, 2], dtype=int64), [1.0, 1.25, 1.5, 1.75])
    """
    given = [x for x in (start, stop, step) if x is not None]
    first, last = (0, start) if stop is None else (start, stop)
    quick = dtype is None and device is None and all(type(x) is int and abs(x) < 2**31 for x in given)
    if quick and step:  # as small integers NumPy's are exact
        return Array(ops.Bits(np.arange(int(first), last, step, dtype=np.int64), dtypes.int64))
    a, b = exact_fraction("start", first), exact_fraction("stop", last)
    d = Fraction(1) if step is None else exact_fraction("step", step)
    count = length(a, b, d)
    if dtype is not None:
        target = array_type(dtype)
    elif all(type(x) is int for x in given) or (target := _common_type(given)).kind != "float":
        beyond = count > 0 and max(a, a + (count - 1) * d) >= 2**63
        target = dtypes.uint64 if beyond else dtypes.int64
    chosen_type(target, device)
    found = progression(a, d, count, target)
    if is_negative_zero(first):
        write_negative_zero(found, 0)
    return found


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """`num` evenly spaced values from `start` to `stop`, which is the last one if `endpoint`: each is
    rounded once from its exact value (C1); of an integer type, down. With `retstep` also their step.

    Arrays give one such line for each pair of elements, along the new `axis`. NumPy computes complex
    numbers and those that are not finite in float64 (H1).

    >>> linspace(0, 1, 4, dtype="bfloat16").tolist()
    [0.0, 0.333984375, 0.66796875, 1.0]
    """
    count = whole("num", num)
    own = _float_type([start, stop])
    target = own if dtype is None else array_type(dtype)
    chosen_type(target, device)
    shape: tuple[int, ...] = ()
    starts, stops = [start], [stop]
    if not isinstance(start, int | float) or not isinstance(stop, int | float):
        ends = broadcast_arrays(_unrounded(start), _unrounded(stop))
        shape = ends[0].shape
        starts, stops = (x.reshape(-1).tolist() for x in ends)
    intervals = count - 1 if endpoint else count
    if own.kind == "complex" or not all(map(math.isfinite, (*starts, *stops))):
        a, b = (_on_host(asarray(np.array(x))).reshape(shape) for x in (starts, stops))
        try:
            with np.errstate(invalid="ignore"):  # as Inf - Inf
                values, by = np.linspace(a, b, count, endpoint, retstep=True, axis=axis)
        except REFUSALS as error:
            raise refusal("linspace", error) from error
        found, step = convert(asarray(values), target), convert(asarray(by), own)
    else:
        pairs = list(zip(starts, stops, strict=True))
        steps = [(Fraction(b) - Fraction(a)) / max(intervals, 1) for a, b in pairs]
        lines = [_line(*ends, d, count, endpoint, target) for ends, d in zip(pairs, steps, strict=True)]
        if shape:
            rows = stack(lines) if lines else zeros(0, target)
            found = move_bits(np.moveaxis, rows.reshape((*shape, count)), -1, axis)
        else:
            found = lines[0]
        each = [progression(d, d, 1, own) for d in steps] if retstep else []
        step = stack(each).reshape(shape) if each else zeros(shape, own)
    return (found, step if intervals else full(shape, math.nan, own)) if retstep else found


def _line(start: Any, stop: Any, step: Fraction, count: int, endpoint: bool, dtype: DType) -> Array:
    found = progression(Fraction(start), step, count, dtype, math.floor)
    # As start + 0 * step has it, and as the last value is `stop` itself.
    if is_negative_zero(start) and step < 0:
        write_negative_zero(found, 0)
    if is_negative_zero(stop) and endpoint and count > 1:
        write_negative_zero(found, -1)
    return found


def _on_host(x: Array) -> Any:
    """An ndarray of float64 or complex128 (H1)."""
    return np.asarray(convert(x, dtypes.complex128 if x.dtype.kind == "complex" else dtypes.float64))


def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Array:
    """Powers base ** linspace(start, stop): the exponents are rounded to float32, the power is the
    nearest float32 (E4), rounded once more to a narrower type (R7). float64 and complex: NumPy's (H1).

    >>> logspace(0, 3, 4).tolist()
    [1.0, 10.0, 100.0, 1000.0]
    """
    own = _float_type([start, stop, base])
    target = own if dtype is None else array_type(dtype)
    wide = _step_type(own, target)
    exponents = linspace(start, stop, num, endpoint, dtype=wide, axis=axis)
    bases = convert(_unrounded(base), wide)
    if bases.ndim:
        bases = expand_dims(bases, axis)
    return convert(apply_elementwise("power", bases, exponents), target)


def _step_type(own: DType, target: DType) -> DType:
    """The type in which a formula on `own` that gives `target` runs (R7): float32, or the host's."""
    host = [t for t in (own, target) if t in (dtypes.float64, dtypes.complex64, dtypes.complex128)]
    return reduce(result_type, host) if host else dtypes.float32


def geomspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Array:
    """`num` values of one ratio from `start` to `stop`: start * (stop / start) ** (i / intervals), in
    float32 steps, rounded once (R7); the ends are exact. Where stop / start is beyond float32 it is
    start ** (1 - i / intervals) * stop ** (i / intervals). float64 and complex: NumPy's (H1).

    Raises InvalidArgument for a zero and for real ends of different signs.

    >>> geomspace(1, 8, 4, dtype="bfloat16").tolist()
    [1.0, 2.0, 4.0, 8.0]
    """
    count = whole("num", num)
    own = _float_type([start, stop])
    target = own if dtype is None else array_type(dtype)
    ends = broadcast_arrays(_unrounded(start), _unrounded(stop))
    wide = _step_type(own, target)
    if wide is not dtypes.float32:
        try:
            values = np.geomspace(_on_host(ends[0]), _on_host(ends[1]), count, endpoint, axis=axis)
        except REFUSALS as error:
            raise refusal("geomspace", error) from error
        return convert(asarray(values), target)
    a, b = (convert(x, wide) for x in ends)
    if not (apply_elementwise("sign", a).bits.data * apply_elementwise("sign", b).bits.data > 0).all():
        raise InvalidArgument("geomspace: the ends are of one sign, and not 0")
    intervals = count - 1 if endpoint else count
    exponents = progression(Fraction(0), Fraction(1, max(intervals, 1)), count, wide)
    exponents = exponents.reshape((count, *(1,) * a.ndim))
    ratio = apply_elementwise("divide", b, a)
    line = apply_elementwise("multiply", a, apply_elementwise("power", ratio, exponents))
    beyond = ~apply_elementwise("isfinite", ratio) | (ratio == 0)
    if beyond.bits.data.any():
        sizes = [apply_elementwise("abs", x) for x in (a, b)]
        powers = map(apply_elementwise, ("power",) * 2, sizes, (1 - exponents, exponents))
        size = apply_elementwise("multiply", *powers)
        line = where(beyond, apply_elementwise("copysign", size, a), line)
    found = convert(line, target).bits.data
    found[:1] = convert(ends[0], target).bits.data
    if endpoint and count > 1:
        found[-1:] = convert(ends[1], target).bits.data
    return move_bits(np.moveaxis, Array(ops.Bits(found, target)), 0, axis)
