"""Elementwise operations as chains of the core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from neuronsim import _core, dtypes
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import UnsupportedType
from neuronsim.ops.rows import ArrayType, Attributes, Bits, BitsArray, Evaluation, Op, by_name, empty
from neuronsim.profiles import Profile, kept_with_profile

CONVERT = _core.CONVERT  # the opcode of a conversion to the step's result type
FLOAT32 = _core.DTYPES.index("float32")
CORE = {name: index for index, (name, _, _) in enumerate(_core.OPS)}
CORE_KINDS = {name: kind for name, _, kind in _core.OPS}
# The step that makes NaN of what lies outside the documented input range of a function.
_RANGES = {name: _core.RESTRICT + index for index, name in enumerate(_core.INPUT_RANGES)}
_NARROW = [DTYPES[name].exponent_bits > 0 and name != "float32" for name in _core.DTYPES]
# The type whose instructions stand for those of 64 bits where these are truncated (C7).
TRUNCATED = {dtypes.int64: dtypes.int32, dtypes.uint64: dtypes.uint32}
_FLOAT_ONLY = ("floating", "function", "sign")
# The complex types by the type of their parts, and the other way.
COMPLEX = {dtypes.float32: dtypes.complex64, dtypes.float64: dtypes.complex128}
REAL = {whole: part for part, whole in COMPLEX.items()}
_HOST = frozenset({dtypes.float64, *REAL})
# What bool has beside comparisons and select (E8).
_ON_BOOL = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor", "logical_not"})

Link: TypeAlias = tuple[int, int, tuple[int, ...]]


def core_code(dtype: DType, what: str) -> int:
    """The core's number of an element type; raises UnsupportedType for the host's types."""
    if dtype.code is None:
        raise _lacking(what, dtype)
    return dtype.code


def _lacking(what: str, dtype: DType) -> UnsupportedType:
    return UnsupportedType(
        f"{what} of {dtype.name}: the device has no such type (rule F): {instead_of(dtype)}"
    )


def instead_of(dtype: DType) -> str:
    """What to do where a type that the device lacks is not computed with, on any target."""
    if dtype.kind == "complex":
        return "compute on real and imaginary parts"
    if dtype is dtypes.float8_e4m3fn:
        return "convert to bfloat16 or float32, which have all of its values"
    return "convert to float32"


def is_host(dtype: DType) -> bool:
    """Whether NumPy computes with the type on the host (H1)."""
    return dtype in _HOST


def is_float(dtype: DType) -> bool:
    """Whether it is a float that the device computes with, or the host (H1)."""
    return dtype.kind == "float" and (dtype.device or is_host(dtype))


def core_name(op: Op, operand: DType) -> str:
    """The row of `csrc/ops.def` that runs an elementwise operation on a type; raises UnsupportedType
    where it does not exist.
    """
    name = op.on_bool if operand is dtypes.boolean and op.on_bool else op.core
    assert name is not None
    kind = CORE_KINDS[name]
    if not operand.device and kind != "selection":  # which moves bits
        raise _lacking(op.label, operand)
    on_bool = kind in ("comparison", "selection") or name in _ON_BOOL
    if kind in (("integral",) if operand.kind == "float" else _FLOAT_ONLY) or (
        operand is dtypes.boolean and not on_bool
    ):
        takes = "integers" if kind == "integral" else "floats" if kind in _FLOAT_ONLY else "numbers"
        raise UnsupportedType(f"{op.name} is not defined for {operand.name}: it takes {takes}")
    return name


def is_chained(op: Op, types: Sequence[DType]) -> bool:
    """Whether the core computes an operation on values of these types as links of a chain."""
    if op.core is None:
        return op.name in ("convert", "reduce_precision") and all(t.code is not None for t in types)
    return not any(t.code is None or is_host(t) for t in types)


def lower(
    op: Op,
    attributes: Attributes,
    operands: Sequence[tuple[int, DType]],
    result: DType,
    profile: Profile,
    push: Callable[[Link], int],
) -> int:
    """An elementwise operation, convert or reduce-precision as links of a chain.

    `operands` are the numbers and types of values; `push` adds a step and gives its value's number.
    Returns the number of the result.
    """
    code = core_code(result, op.label)
    numbers = tuple(n for n, _ in operands)
    source = operands[-1][1]
    if op.name == "convert":
        to_integer = source.kind == "float" and result.kind in ("signed", "unsigned")
        nearest = to_integer and profile.float_to_int == "nearest"
        return push((_core.CONVERT_NEAREST if nearest else CONVERT, code, numbers))
    if op.name == "bitcast_convert":
        return push((_core.BITCAST, code, numbers))
    if op.name == "reduce_precision":
        return _lower_reduce_precision(source, attributes, numbers[0], push)
    opcode = CORE[core_name(op, source)]
    if has_input_range(op, profile):  # E3
        assert op.core is not None
        numbers = (push((_RANGES[op.core], core_code(source, op.label), numbers)),)
    if op.name == "divide" and source.kind == "float" and profile.divide == "reciprocal_multiply":
        inverse = push((CORE["reciprocal"], FLOAT32, numbers[1:]))
        return push((CORE["multiply"], code, (numbers[0], inverse)))
    narrow_integer = source.kind in ("signed", "unsigned") and source.bits <= 32
    # Powers of integers are exact, since E8 defines them for every exponent.
    arithmetic = CORE_KINDS.get(op.core or "") in ("reducer", "arithmetic") and op.name != "power"
    if narrow_integer and arithmetic and profile.int32_elementwise == "via_float32":  # E8
        floats = tuple(push((CONVERT, FLOAT32, (n,))) for n in numbers)
        return push((_core.CONVERT_NEAREST, code, (push((opcode, FLOAT32, floats)),)))
    return push((opcode, code, numbers))


def lower_counted(
    op: Op,
    attributes: Attributes,
    operands: Sequence[tuple[int, DType]],
    result: DType,
    profile: Profile,
    push: Callable[[Link], int],
) -> int:
    """The same with what C7 demands of 64-bit integers, which the operands have truncated: the links of
    the 32-bit instruction, and one that counts the elements that it changed.
    """
    truncates = _truncates(op, result, profile)
    if not truncates and (profile.int64 == "keep" or op.name != "convert"):
        return lower(op, attributes, operands, result, profile, push)

    def converted(number: int, target: DType) -> int:
        return push((CONVERT, core_code(target, op.label), (number,)))

    narrow = [
        (converted(n, TRUNCATED[t]), TRUNCATED[t]) if t in TRUNCATED else (n, t) for n, t in operands
    ]
    given = narrow if op.name == "convert" else operands
    if not truncates:
        return lower(op, attributes, given, result, profile, push)
    small = converted(lower(op, attributes, narrow, TRUNCATED[result], profile, push), result)
    is_float = given[0][1].kind == "float"
    exact = given[0][0] if is_float else lower(op, attributes, given, result, profile, push)
    return push((_core.TRUNCATED, core_code(result, op.label), (small, exact)))


def counts(op: Op, result: DType, profile: Profile) -> bool:
    """Whether every run counts what an elementwise operation meets: 64-bit integers that C7 changes,
    numbers outside an input range (E3).
    """
    return _truncates(op, result, profile) or has_input_range(op, profile)


def _truncates(op: Op, result: DType, profile: Profile) -> bool:
    return profile.int64 == "truncate" and result in TRUNCATED and op.name != "select"


def is_counted(links: Sequence[Link]) -> bool:
    """Whether a chain has such an operation."""
    return any(op == _core.TRUNCATED or _core.RESTRICT <= op < _core.CONSTANT for op, _, _ in links)


@kept_with_profile
def truncation(dtype: DType, profile: Profile) -> _core.Chain:
    """The chain that truncates 64-bit integers, which any operation may have made, and counts what it
    changes (C7).
    """
    code, narrow = core_code(dtype, "a result"), core_code(TRUNCATED[dtype], "a result")
    links = ((CONVERT, narrow, (0,)), (CONVERT, code, (1,)), (_core.TRUNCATED, code, (2, 0)))
    return make_chain((code,), links, (3,), profile)


def as_32_bits(value: Bits) -> Bits:
    """A truncated 64-bit integer as the 32-bit one that the device has (C7)."""
    narrow = TRUNCATED.get(value.dtype)
    return value if narrow is None else Bits(value.data.astype(narrow.storage), narrow)


def truncate_int64(value: Bits) -> tuple[Bits, int]:
    """C7: 64-bit integers become their low 32 bits extended; with the count of changed elements."""
    if value.dtype not in TRUNCATED:
        return value, 0
    low = value.data.astype(TRUNCATED[value.dtype].storage).astype(value.dtype.storage)
    changed = int(np.count_nonzero(low != value.data))
    return (Bits(low, value.dtype) if changed else value), changed


def truncate_constant(value: Bits) -> tuple[Bits, int]:
    """C7: as `truncate_int64`, but the least and the greatest int64 become those of int32, uncounted:
    they begin minima and maxima, pad and mask, and do so in 32 bits.
    """
    low, changed = truncate_int64(value)
    if not changed or value.dtype is not dtypes.int64:
        return low, changed
    narrow = np.iinfo(np.int32)
    kept = np.where(_is_end(value), value.data.clip(narrow.min, narrow.max), low.data)
    return Bits(kept, value.dtype), truncated_elements(value).size


def truncated_elements(value: Bits) -> BitsArray:
    """The elements of a constant that `truncate_constant` counts, as they are before."""
    low, _ = truncate_int64(value)
    changed = low.data != value.data
    return np.asarray(value.data[changed & ~_is_end(value) if value.dtype is dtypes.int64 else changed])


def _is_end(value: Bits) -> npt.NDArray[np.bool_]:
    """Which elements are the least or the greatest int64."""
    ends = np.iinfo(np.int64)
    return np.asarray((value.data == ends.min) | (value.data == ends.max))


def pusher(steps: list[Link], inputs: int) -> Callable[[Link], int]:
    """Adds a step to those of a chain of so many inputs, and gives its value's number."""

    def push(step: Link) -> int:
        steps.append(step)
        return inputs + len(steps) - 1

    return push


def constant_link(value: Bits, what: str = "a constant") -> Link:
    """The step that gives the element of an array of one everywhere."""
    bits = int.from_bytes(value.data.tobytes(), "little", signed=True)
    mask = (1 << (8 * value.dtype.itemsize)) - 1
    code = core_code(value.dtype, what)
    return (_core.CONSTANT, code, (bits if value.dtype.itemsize == 8 else bits & mask,))


def _lower_reduce_precision(
    dtype: DType, attributes: Attributes, number: int, push: Callable[[Link], int]
) -> int:
    """C9: (8, 10) and (8, 7) are the conversions to tfloat32 and bfloat16, as stochastic rounding
    takes them.
    """
    code = core_code(dtype, "reduce-precision")
    exponent_bits, mantissa_bits = attributes["exponent_bits"], attributes["mantissa_bits"]
    if exponent_bits >= dtype.exponent_bits and mantissa_bits >= dtype.mantissa_bits:
        return push((CONVERT, code, (number,)))  # nothing to round: the bits move
    for t in (dtypes.tfloat32, dtypes.bfloat16):
        same = exponent_bits >= 8 and mantissa_bits == t.mantissa_bits
        if dtype is dtypes.float32 and same:
            there = push((CONVERT, core_code(t, "reduce-precision"), (number,)))
            return push((CONVERT, code, (there,)))
    packed = 32 * min(exponent_bits, dtype.exponent_bits) + min(mantissa_bits, dtype.mantissa_bits)
    return push((_core.REDUCE_PRECISION + packed, code, (number,)))


def outside_range_warning(name: str, count: int) -> str:
    """What is said of elements that `neuron_range` made NaN."""
    elements = "1 element" if count == 1 else f"{count} elements"
    return (
        f"{name}: {elements} outside the input range that AWS documents for the function became NaN "
        "(E3, activation='neuron_range')"
    )


def has_input_range(op: Op, profile: Profile) -> bool:
    """Whether a documented input range of the activation table holds for the operation (E3)."""
    return profile.activation == "neuron_range" and op.core in _RANGES


def count_outside_range(op: Op, operands: Sequence[Bits], profile: Profile) -> int:
    """How many numbers among the operand's elements `neuron_range` makes NaN."""
    if not has_input_range(op, profile) or not operands[0].dtype.exponent_bits:
        return 0
    (x,) = operands
    if x.dtype.code is None:
        return 0  # the host's types are on no engine
    boolean = core_code(dtypes.boolean, op.label)
    assert op.core is not None
    steps = (
        (_RANGES[op.core], x.dtype.code, (0,)),
        (CORE["isnan"], boolean, (1,)),
        (CORE["isnan"], boolean, (0,)),
        (CORE["bitwise_xor"], boolean, (2, 3)),
    )
    chain = make_chain((x.dtype.code,), steps, (4,), profile)
    (found,) = run_chain(chain, [x.data], [ArrayType(dtypes.boolean, x.data.shape)])
    return int(np.count_nonzero(found))


@kept_with_profile
def numerics(profile: Profile) -> _core.Numerics:
    """The profile's choices as the core takes them."""
    return _core.Numerics(
        integers_via_float32=profile.int_to_float == "via_float32",
        fp8_overflow=profile.fp8_overflow,
        flush_subnormals=profile.subnormals == "flush",
        stochastic=profile.rounding == "stochastic",
    )


@kept_with_profile
def make_chain(
    inputs: tuple[int, ...], steps: tuple[Link, ...], outputs: tuple[int, ...], profile: Profile
) -> _core.Chain:
    """A compiled chain."""
    listed = [(op, result, list(operands)) for op, result, operands in steps]
    return _core.Chain(list(inputs), listed, list(outputs), numerics(profile))


def run_chain(
    chain: _core.Chain,
    inputs: Sequence[BitsArray],
    results: Sequence[ArrayType],
    seed: int = 0,
    ids: Sequence[int] = (),
    records: BitsArray | None = None,
) -> list[BitsArray]:
    """Run a chain over the dims of its results; inputs are broadcast to them without a copy.
    Stochastic rounding takes a seed and an id for each step (S2). What each step meets is added to its
    row of `records`.
    """
    outputs = [empty(t) for t in results]
    dims = results[0].dims
    broadcast = [x if x.shape == dims else np.broadcast_to(x, dims) for x in inputs]
    chain.on(broadcast, outputs).run(seed, list(ids), records)
    return outputs


def link_tiles(steps: Sequence[Link]) -> list[str]:
    """What the steps of one operation put for the tile in their ids (S2): the last one that rounds to a
    narrower float nothing, the others their number.
    """
    rounding = [n for n, (_, code, _) in enumerate(steps) if _NARROW[code]]
    last = rounding[-1] if rounding else len(steps) - 1
    return ["" if n == last else str(n) for n in range(len(steps))]


def elementwise_chain(
    op: Op, attributes: Attributes, operands: tuple[DType, ...], result: DType, profile: Profile
) -> tuple[_core.Chain, tuple[Link, ...]]:
    """The chain of one operation, and its steps."""
    if op.name != "reduce_precision":
        return _lowered(op.name, (), operands, result, profile)
    # The only one whose attributes decide its steps.
    bits = attributes["exponent_bits"], attributes["mantissa_bits"]
    return _lowered(op.name, bits, operands, result, profile)


@kept_with_profile
def _lowered(
    name: str, bits: tuple[int, ...], operands: tuple[DType, ...], result: DType, profile: Profile
) -> tuple[_core.Chain, tuple[Link, ...]]:
    op, attributes = by_name(name), dict(zip(("exponent_bits", "mantissa_bits"), bits, strict=False))
    steps: list[Link] = []
    push = pusher(steps, len(operands))
    last = lower(op, attributes, list(enumerate(operands)), result, profile, push)
    codes = tuple(core_code(t, "an operand") for t in operands)
    return make_chain(codes, tuple(steps), (last,), profile), tuple(steps)


def run_one(e: Evaluation) -> BitsArray:
    types = tuple(x.dtype for x in e.operands)
    chain, steps = elementwise_chain(e.op, e.attributes, types, e.result.dtype, e.setting.profile)
    ids = [e.setting.identifier(tile) for tile in link_tiles(steps)] if chain.draws else []
    return run_chain(chain, [x.data for x in e.operands], [e.result], e.setting.seed, ids)[0]
