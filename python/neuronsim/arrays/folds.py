"""Steps of a row one after the other, each rounded to their type, in one call (R5): what `Ufunc.at`,
`reduce` and `accumulate` do where no rule on reductions says how.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes, ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import convert
from neuronsim.dtypes import DType, result_type
from neuronsim.profiles import current_profile

FEW_STEPS = 32  # which are quicker one call each
FEW_LINES = 256  # above which a call for each step, of all lines, is quicker than `running`

# Of integers the others give floats, or look at the elements before.
_OF_INTEGERS = frozenset(
    {
        *("add", "subtract", "multiply", "maximum", "minimum", "bitwise_and", "bitwise_or"),
        "bitwise_xor",
    }
)
_ON_HOST = frozenset(
    {
        *("add", "subtract", "multiply", "divide", "maximum", "minimum"),
        *("hypot", "logaddexp", "logaddexp2"),
    }
)


def is_plain() -> bool:
    """Whether the profile draws, truncates and says nothing beside."""
    profile = current_profile()
    return profile.rounding == "nearest_even" and profile.int64 == "keep" and profile.handling is None


def applies(row: ops.Op, target: DType, other: DType) -> bool:
    """Whether the operation on elements of a type gives that type, whatever the elements are, so that
    one call or, of the host's types, NumPy takes the steps (H1).
    """
    if not is_plain() or result_type(target, other) is not target:
        return False
    if ops.is_host(target):
        # NumPy's `multiply.at` of complex numbers rounds otherwise than its `multiply`.
        has = target.kind != "complex" or (row.on_complex and row.name != "multiply")
        return has and row.on_host is None and row.name in _ON_HOST
    element = ops.ArrayType(target, ())
    is_closed = target.device and row.infer_array([element, element], {}) == element
    return is_closed and (target.exponent_bits > 0 or row.name in _OF_INTEGERS)


def update(row: ops.Op, target: Array, places: npt.NDArray[np.int64], updates: Array) -> None:
    """One update after the other at these places of the row-major order (R5)."""
    t, data = target.dtype, target.bits.data
    given = convert(updates, t)
    flat = data.reshape(-1)  # a copy of what does not lie in this order
    if ops.is_host(t):
        with np.errstate(all="ignore"):
            getattr(np, row.name).at(flat, places, given.bits.data)
        found = flat
    else:
        found = _scattered(row, ops.Bits(flat, t), places, given.bits)
    data[...] = found.reshape(data.shape)


def fold(row: ops.Op, lines: Array, mask: npt.NDArray[np.bool_] | None) -> Array:
    """The first of the lines, updated by the others in their order, where the mask holds."""
    t, data = lines.dtype, lines.bits.data
    if mask is not None:
        folded = Array(ops.Bits(np.array(data[0]), t))
        places = np.broadcast_to(np.arange(folded.size).reshape(folded.shape), data.shape)
        kept = mask[1:]
        update(row, folded, places[1:][kept], Array(ops.Bits(data[1:][kept], t)))
        return folded
    if ops.is_host(t):
        with np.errstate(all="ignore"):
            return Array(ops.Bits(np.asarray(getattr(np, row.name).reduce(data)), t))
    width = data[0].size
    rows, first = data.reshape(len(data), width), ops.Bits(data[0].reshape(width), t)
    # Index vectors without numbers: each update is of the whole line.
    everywhere = np.empty((len(data) - 1, 0), np.int64)
    found = _scattered(row, first, everywhere, ops.Bits(rows[1:], t))
    return Array(ops.Bits(found.reshape(data.shape[1:]), t))


def _scattered(
    row: ops.Op, target: ops.Bits, places: npt.NDArray[np.int64], updates: ops.Bits
) -> npt.NDArray[np.generic]:
    window = tuple(range(1, updates.data.ndim))
    inserted = () if window else (0,)
    found: ops.Bits = ops.apply(
        "scatter",
        [target, ops.Bits(places, dtypes.int64), updates],
        scatter_dimensions=ops.ScatterDimensions(window, inserted, inserted, index_vector_dim=1),
        computations=(_step(row.name, target.dtype),),
    )
    return found.data


@functools.cache
def _step(name: str, dtype: DType) -> ops.ScalarComputation:
    """A row as a computation; one object, since what is compiled is kept by it."""
    step = ops.ScalarStep(ops.by_name(name), {}, (0, 1), dtype)
    return ops.ScalarComputation(name, (dtype, dtype), (step,), (2,))


def running(row: ops.Op, lines: Array) -> Array:
    """Every line after its update by the ones before: element j of a cumulative function."""
    t, data = lines.dtype, lines.bits.data
    if ops.is_host(t):
        with np.errstate(all="ignore"):
            return Array(ops.Bits(np.asarray(getattr(np, row.name).accumulate(data)), t))
    is_first = np.zeros((len(data), *[1] * (data.ndim - 1)), np.bool_)
    is_first[:1] = True
    operands = [
        lines.bits,
        ops.Bits(np.broadcast_to(is_first, data.shape), dtypes.boolean),
        *(ops.Bits(np.zeros((), dtype.storage), dtype) for dtype in (t, dtypes.boolean)),
    ]
    window = [ops.WindowDimension(1)] * data.ndim
    window[0] = ops.WindowDimension(len(data), padding=(len(data) - 1, 0))
    attributes = {
        "window": tuple(window),
        "reducer": None,
        "computations": (_first_or_step(row.name, t),),
    }
    setting = ops.Setting(current_profile())
    found, _ = ops.evaluate(ops.by_name("reduce_window"), operands, attributes, setting)
    return Array(found)


@functools.cache
def _first_or_step(name: str, dtype: DType) -> ops.ScalarComputation:
    """The same, but of the first line the line itself, whatever was before."""
    flag = dtypes.boolean
    step = ops.ScalarStep(ops.by_name(name), {}, (0, 2), dtype)
    chosen = ops.ScalarStep(ops.by_name("select"), {}, (3, 2, 4), dtype)
    return ops.ScalarComputation(name, (dtype, flag, dtype, flag), (step, chosen), (5, 3))
