"""Operations on arrays: by what the profile remembers of small calls, else by the one door `ops.apply`.

>>> apply_elementwise("add", asarray([1.0, 2.5], dtype="bfloat16"), 1)
Array([2. , 3.5], dtype=bfloat16)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neuronsim import _core, dtypes, ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import (
    INTEGRAL,
    asarray,
    conversion_program,
    convert,
    is_weak,
    typed,
    weak_array,
)
from neuronsim.arrays.default_types import default_dtype
from neuronsim.arrays.doors import remember
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.processor import check_environment
from neuronsim.profiles import Profile, current_profile


def apply_elementwise(name: str, *operands: Any) -> Array:
    """Evaluate an elementwise row of `ops` on arrays and numbers, broadcast, in their common type."""
    return elementwise_function(name)(*operands)  # type: ignore[no-any-return]


def select_elements(condition: Any, x1: Any, x2: Any) -> Array:
    """x1 where the bool `condition` holds, x2 elsewhere."""
    return apply_elementwise("select", condition, x1, x2)


@functools.cache
def elementwise_function(name: str) -> _core.Door:
    """An elementwise row of `ops` as a function of arrays and numbers."""
    ops.by_name(name)

    def otherwise(*operands: Any) -> Array:
        return evaluate_elementwise(name, *operands)

    return _core.Door(otherwise, name)


# What gives floats for integers, as NumPy's functions and its true division do.
_TO_FLOAT = ops.FUNCTIONS_OF_FLOATS | {"divide"}
_NOT_PLAIN = _TO_FLOAT | {"power"}


def evaluate_elementwise(name: str, *operands: Any) -> Array:
    """`apply_elementwise` by the ordinary way, whatever the profile remembers."""
    if not all(isinstance(x, Array) or is_weak(x) for x in operands):
        arrays = [x if is_weak(x) else asarray(x) for x in operands]
        return elementwise_function(name)(*arrays)  # type: ignore[no-any-return]
    first = operands[0]
    profile = current_profile()
    is_plain = type(first) is Array and (first.dtype.exponent_bits or name not in _NOT_PLAIN)
    if is_plain and first.dtype.device and not _unlike(first, operands):
        result: ops.Bits = ops.apply(name, [x.bits for x in operands])
        _remember(name, (first.dtype,) * len(operands), result.dtype, profile)
        return Array(result)
    if ops.is_host(dtype := next((x._dtype for x in operands if type(x) is Array), dtypes.boolean)):
        on_host = _evaluate_on_host(name, operands, dtype, profile)
        if on_host is not None:
            return on_host
    condition = [asarray(x) for x in operands[:1]] if name == "select" else []
    arrays, common = typed(operands[len(condition) :])
    if common.kind in INTEGRAL and name in _TO_FLOAT:
        common = default_dtype()
    values = [*condition, *(convert(a, common) for a in arrays)]
    if ops.is_host(common) and not condition:
        on_host = _evaluate_on_host(name, values, common, profile)
        if on_host is not None:
            return on_host
    immediate = profile.scalar == "float32_immediate" and common.device and common.bits < 32
    if immediate and common.kind == "float" and not ops.moves_bits(ops.by_name(name)):  # C8
        values = [
            asarray(x, dtypes.float32) if is_weak(x) else v
            for x, v in zip(operands, values, strict=True)
        ]
    elif common.device and (
        any(a.dtype is not common for a in arrays) or not any(isinstance(x, Array) for x in operands)
    ):  # as arrays of one type they may take the short way
        return elementwise_function(name)(*values)  # type: ignore[no-any-return]
    if name == "power" and common.kind == "signed" and isinstance(values[1]._data, np.ndarray):
        if (values[1]._data < 0).any() and 0 not in _broadcast_dims(name, values):
            raise InvalidArgument(
                "integers to negative integer powers are not integers: use a float type"
            )
        return _natural_power(*values)  # type: ignore[no-any-return]
    return _evaluate_typed(name, values, common)


def _evaluate_on_host(
    name: str, operands: Sequence[Any], dtype: DType, profile: Profile
) -> Array | None:
    """What NumPy's function gives for known arrays of one of the host's types and real numbers (H1);
    None where more is to be said, or it gives none.
    """
    known = _host_function(name, dtype)
    if known is None or profile.handling is not None:
        return None
    values = []
    for x in operands:
        if type(x) is Array:
            if x._dtype is not dtype or not isinstance(x._data, np.ndarray):
                return None
            values.append(x._data)
        elif isinstance(x, complex):
            return None
        else:
            values.append(weak_array(x, dtype)._data)
    check_environment()
    function, result = known
    try:
        with np.errstate(all="ignore"):
            return Array(ops.Bits(np.asarray(function(*values)), result))
    except ValueError:  # the shapes do not broadcast
        return None


@functools.cache
def _host_function(name: str, dtype: DType) -> tuple[Callable[..., Any], DType] | None:
    """NumPy's function for a row on a type of the host, and the type of what it gives."""
    op = ops.by_name(name)
    if name == "select" or op.total_order:
        return None
    try:
        ops.check_elementwise(op, dtype, dtype)
        result = op.infer_array([ops.ArrayType(dtype, ())] * op.arity, {})
    except (InvalidArgument, UnsupportedType):
        return None
    return op.on_host or getattr(np, name), result.dtype


def _evaluate_typed(name: str, values: Sequence[Array], common: DType) -> Array:
    """Evaluate a row on arrays that are to be broadcast; `common` is their type but for a condition
    and for numbers that are float32 immediates (C8).
    """
    op, dims = ops.by_name(name), _broadcast_dims(name, values)
    ops.check_elementwise(op, common, common)
    # NumPy itself broadcasts host types (H1), if their elements are not looked at beside.
    broadcasts = ops.is_host(common) and current_profile().handling is None
    if broadcasts and all(isinstance(v._data, np.ndarray) for v in values):
        bits = [v.bits for v in values]
    else:
        bits = [
            v.bits if v.shape == dims else ops.Bits(np.broadcast_to(v.bits.data, dims), v.dtype)
            for v in values
        ]
    like = [ops.ArrayType(common, dims)] * len(values)
    if name == "select":
        like[0] = ops.ArrayType(values[0].dtype, dims)
    found = Array(ops.apply(name, bits, result=op.infer_array(like, {})))
    if all(t.dtype is b.dtype for t, b in zip(like, bits, strict=True)):
        _remember(name, tuple(b.dtype for b in bits), found.dtype, current_profile())
    return found


def _broadcast_dims(name: str, values: Sequence[Array]) -> tuple[int, ...]:
    shapes = [v.shape for v in values]
    if shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    try:
        return ops.broadcast_dims(*shapes)
    except ValueError as error:
        listed = ", ".join(map(str, shapes))
        raise InvalidArgument(f"{name}: the shapes {listed} do not broadcast") from error


# Powers of integers whose exponents are known not to be negative: what the short way does not look at.
_NATURAL_POWER = "power by natural numbers"
_natural_power = _core.Door(
    lambda base, exponent: _evaluate_typed("power", [base, exponent], base.dtype), _NATURAL_POWER
)


def _unlike(first: Array, operands: Sequence[Any]) -> bool:
    """Whether an operand is not an Array of the first one's type and shape."""
    return any(
        type(x) is not Array or x.dtype is not first.dtype or x.shape != first.shape for x in operands
    )


def _remember(name: str, types: tuple[DType, ...], result: DType, profile: Profile) -> None:
    """Keeps the program of an operation for the short way (`_core.Door`), which says nothing of errors:
    what the operands are, and how Python numbers are rounded to their type (C1, C8).
    """
    op, dtype = ops.by_name(name), types[-1]
    if ops.has_input_range(op, profile) or not dtype.device:
        return
    is_checked = name == "power" and dtype.kind == "signed"

    def call() -> _core.EagerCall:
        program, _ = ops.elementwise_chain(op, {}, types, result, profile)
        takes_floats = dtype.exponent_bits > 0 and profile.scalar == "dtype"
        takes_integers = dtype.kind in ("signed", "unsigned") or takes_floats
        numbers = [
            conversion_program(t, dtype, profile) if takes else None
            for t, takes in ((dtypes.float64, takes_floats), (dtypes.int64, takes_integers))
        ]
        return _core.EagerChain(result, list(types), program, *numbers)

    remember(_NATURAL_POWER if is_checked else name, dtype, call)


# ---- reductions, products, order -------------------------------------------------------------------


def identity(reducer: str, dtype: DType) -> Array:
    """The reducer's identity in a type: the value that changes no other that the profile has (C7)."""
    truncates = current_profile().int64 == "truncate"
    return _identity(reducer, dtype, ops.TRUNCATED.get(dtype, dtype) if truncates else dtype)


@functools.lru_cache
def _identity(reducer: str, dtype: DType, numbers: DType) -> Array:
    """The identity among the numbers of another type."""
    value = ops.by_name(reducer).identity
    assert value is not None
    if math.isinf(value) and dtype.exponent_bits:
        # Its bits: a conversion of Inf may give something else (C3).
        word = ((1 << dtype.exponent_bits) - 1) << (
            dtype.mantissa_bits + 8 * dtype.itemsize - dtype.bits
        )
        sign_bit = (1 << (8 * dtype.itemsize - 1)) if value < 0 else 0
        bits = np.array(word | sign_bit, f"u{dtype.itemsize}").view(dtype.storage)
        return Array(ops.Bits(bits, dtype))
    if math.isinf(value):
        if dtype.kind in ("signed", "unsigned"):
            info = np.iinfo(numbers.numpy)
            value = info.min if value < 0 else info.max
        elif dtype.kind == "bool":
            value = value > 0
    return asarray(value, dtype)


def remember_reduction(name: str, reducer: str, dtype: DType) -> None:
    def call() -> _core.EagerCall:
        settled = ops.reduction(reducer, dtype, {}, current_profile())
        return _core.eager_reduction(dtype, settled, identity(reducer, dtype)._data)

    if dtype.device:
        remember(name, dtype, call)


def remember_statistic(operation: str, name: str, dtype: DType, correction: float) -> None:
    def call() -> _core.EagerCall:
        composite = ops.composite_kernel(name, dtype, current_profile())
        return _core.eager_statistic(dtype, composite, ops.LONGEST_ROW, correction)

    if dtype.device and dtype.kind == "float" and ops.composes_in_core(current_profile()):
        remember(operation, dtype, call)


def remember_product(dtype: DType) -> None:
    profile = current_profile()

    def call() -> _core.EagerCall:
        how = ops.accumulation(dtype, dtype, 0, None, profile)
        return _core.EagerProduct(dtype, how.core, ops.numerics(profile))

    if dtype.device and dtype.kind == "float" and profile.accumulate == "psum128":
        remember("matmul", dtype, call)


def remember_order(name: str, dtype: DType) -> None:
    """Of "sort", "argmax" or "argmin"."""

    def call() -> _core.EagerCall:
        if name == "sort":
            return _core.eager_sort(dtype)
        return _core.eager_argument(dtype, dtypes.int64, name == "argmax")

    if dtype.code is not None:
        remember(name, dtype, call)
