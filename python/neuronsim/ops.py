"""The operations: one row each, and `apply`, the one door to every evaluation.

A row says what an operation is called (NumPy, HLO, XlaBuilder), what its result's type is, how it is
evaluated on ndarrays of bits, which engine runs it, what the compiler's casts do to it and what it
costs. Arithmetic bodies are the core's (`csrc/ops.def`); data movement is NumPy's on the bits.

>>> by_name("exp").opcode, by_name("exp").engine
('exponential', 'scalar')
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from neuronsim import _core, dtypes
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, UnsupportedOperator, UnsupportedType, nearest
from neuronsim.processor import check_environment
from neuronsim.profiles import Profile, current_profile

BitsArray: TypeAlias = npt.NDArray[Any]
Attributes: TypeAlias = Mapping[str, Any]
Engine = Literal["tensor", "vector", "scalar", "gpsimd", "dma", "none"]
# What `--auto-cast` does to an operation (A1, A2): `matmult` under both settings, `compute` under
# `all`; data movement follows its operand; `host` instructions are never on an engine.
CastClass = Literal["matmult", "compute", "movement", "host"]


class ArrayType(NamedTuple):
    """Element type and dimensions of one array."""

    dtype: DType
    dims: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.dims))}]"


@dataclass(frozen=True, slots=True)
class Bits:
    """One array as the evaluators see it: an ndarray of storage bits and what they mean."""

    data: BitsArray
    dtype: DType

    @property
    def type(self) -> ArrayType:
        return ArrayType(self.dtype, self.data.shape)


@dataclass(frozen=True)
class DotDimensions:
    """Which dimensions a dot contracts and which it walks as batch, as HLO lists them."""

    lhs_contracting: tuple[int, ...] = ()
    rhs_contracting: tuple[int, ...] = ()
    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()


Infer: TypeAlias = Callable[[Sequence[ArrayType], Attributes], ArrayType]
Evaluate: TypeAlias = Callable[["Op", Sequence[Bits], Attributes, ArrayType, Profile], BitsArray]


@dataclass(frozen=True)
class Op:
    """One operation. `core` names the row of `csrc/ops.def` that an elementwise operation runs,
    `on_bool` the row that takes its place on bool (E8); `identity` starts a reduction by it; `cost`
    names the instruction of the Neuron Kernel Interface whose documented formula prices it.
    """

    name: str
    opcode: str
    xla_builder: str
    arity: int
    engine: Engine
    cast: CastClass
    cost: str
    infer: Infer
    evaluate: Evaluate
    core: str | None = None
    on_bool: str | None = None
    direction: str | None = None
    identity: float | None = None
    operator: str | None = None


# ---- result types ------------------------------------------------------------------------------


def _same_type(operands: Sequence[ArrayType], what: str) -> ArrayType:
    for t in operands[1:]:
        if t != operands[0]:
            raise InvalidArgument(f"{what} of different types: {', '.join(map(str, operands))}")
    return operands[0]


def _infer_same(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    return _same_type(operands, "operands")


def _infer_abs(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    real = {dtypes.complex64: dtypes.float32, dtypes.complex128: dtypes.float64}
    return operands[0]._replace(dtype=real.get(operands[0].dtype, operands[0].dtype))


def _infer_comparison(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    if attributes.get("comparison_type") == "TOTALORDER":
        raise UnsupportedOperator("compare with type=TOTALORDER is not executed yet")
    return ArrayType(dtypes.boolean, _same_type(operands, "operands").dims)


def _infer_select(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    condition, *branches = operands
    result = _same_type(branches, "branches")
    if condition.dtype is not dtypes.boolean or condition.dims not in (result.dims, ()):
        raise InvalidArgument(f"the condition {condition} does not select between {result}")
    return result


def _infer_convert(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    target: DType = attributes["dtype"]
    for t in (operands[0].dtype, target):
        if t.kind == "complex" and t is not operands[0].dtype:
            raise UnsupportedType(f"convert to {t.name}: complex types are the host's (rule H1)")
    if operands[0].dtype.kind == "complex" and target.kind != "complex":
        raise UnsupportedType("convert of a complex value to a real type (C6): take its real part")
    return ArrayType(target, operands[0].dims)


def _infer_reduce_precision(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    _reduced_format(operands[0].dtype, attributes)
    return operands[0]


def _reduced_format(dtype: DType, attributes: Attributes) -> DType:
    bits = (attributes["exponent_bits"], attributes["mantissa_bits"])
    if dtype is dtypes.float32:
        for t in (dtypes.float32, dtypes.tfloat32, dtypes.bfloat16):
            if bits == (t.exponent_bits, t.mantissa_bits):
                return t
    raise UnsupportedOperator(
        f"reduce-precision of {dtype.name} to {bits[0]} exponent and {bits[1]} mantissa bits is not "
        "executed yet: float32 to (8, 23), (8, 10) and (8, 7) is"
    )


def _check_axes(axes: Sequence[int], rank: int, what: str) -> None:
    if len(set(axes)) != len(axes) or not all(0 <= a < rank for a in axes):
        raise InvalidArgument(f"{what} {tuple(axes)} are not distinct axes of {rank} dimensions")


def _sole_axis(attributes: Attributes, rank: int) -> int:
    axes: Sequence[int] = attributes["dimensions"]
    _check_axes(axes, rank, "dimensions")
    if len(axes) != 1:
        raise InvalidArgument(f"dimensions {tuple(axes)} must be one axis")
    return axes[0]


def _infer_broadcast(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    dims, mapping = attributes["dims"], attributes["dimensions"]
    _check_axes(mapping, len(dims), "dimensions")
    if tuple(dims[d] for d in mapping) != operands[0].dims:
        raise InvalidArgument(f"{operands[0]} does not lie along axes {mapping} of {tuple(dims)}")
    return ArrayType(operands[0].dtype, tuple(dims))


def _infer_reshape(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    dims = tuple(attributes["dims"])
    if math.prod(dims) != math.prod(operands[0].dims):
        raise InvalidArgument(f"{operands[0]} has not as many elements as shape {dims}")
    return ArrayType(operands[0].dtype, dims)


def _infer_transpose(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    axes = attributes["dimensions"]
    _check_axes(axes, len(operands[0].dims), "dimensions")
    if len(axes) != len(operands[0].dims):
        raise InvalidArgument(f"{tuple(axes)} does not permute the axes of {operands[0]}")
    return ArrayType(operands[0].dtype, tuple(operands[0].dims[a] for a in axes))


def _infer_reverse(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    _check_axes(attributes["dimensions"], len(operands[0].dims), "dimensions")
    return operands[0]


def _infer_slice(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    ranges: Sequence[tuple[int, int, int]] = attributes["slice"]
    dims = operands[0].dims
    if len(ranges) != len(dims):
        raise InvalidArgument(f"a slice of {operands[0]} needs {len(dims)} ranges")
    for (start, limit, stride), size in zip(ranges, dims, strict=True):
        if not (0 <= start <= limit <= size and stride >= 1):
            raise InvalidArgument(f"slice [{start}:{limit}:{stride}] leaves an axis of {size}")
    return ArrayType(operands[0].dtype, tuple(len(range(*r)) for r in ranges))


def _infer_concatenate(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    first = operands[0]
    axis = _sole_axis(attributes, len(first.dims))
    for t in operands[1:]:
        if (
            t.dtype is not first.dtype
            or len(t.dims) != len(first.dims)
            or any(a != b for d, (a, b) in enumerate(zip(t.dims, first.dims, strict=True)) if d != axis)
        ):
            raise InvalidArgument(f"{t} cannot follow {first} along axis {axis}")
    joined = sum(t.dims[axis] for t in operands)
    return ArrayType(first.dtype, (*first.dims[:axis], joined, *first.dims[axis + 1 :]))


def _infer_iota(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    dims = tuple(attributes["dims"])
    _sole_axis(attributes, len(dims))
    return ArrayType(attributes["dtype"], dims)


def _infer_reduce(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    array, initial = operands
    if initial != ArrayType(array.dtype, ()):
        raise InvalidArgument(f"the initial value of a reduction of {array} cannot be {initial}")
    _check_axes(attributes["dimensions"], len(array.dims), "dimensions")
    kept = (n for d, n in enumerate(array.dims) if d not in attributes["dimensions"])
    return ArrayType(array.dtype, tuple(kept))


def _infer_dot(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    lhs, rhs = operands
    d: DotDimensions = attributes["dot_dimensions"]
    _check_axes(d.lhs_contracting + d.lhs_batch, len(lhs.dims), "lhs dimensions")
    _check_axes(d.rhs_contracting + d.rhs_batch, len(rhs.dims), "rhs dimensions")
    for left, right in ((d.lhs_contracting, d.rhs_contracting), (d.lhs_batch, d.rhs_batch)):
        if tuple(lhs.dims[i] for i in left) != tuple(rhs.dims[i] for i in right):
            raise InvalidArgument(f"dot of {lhs} and {rhs}: axes {left} and {right} do not match")
    free_lhs = (n for i, n in enumerate(lhs.dims) if i not in d.lhs_contracting + d.lhs_batch)
    free_rhs = (n for i, n in enumerate(rhs.dims) if i not in d.rhs_contracting + d.rhs_batch)
    dtype = attributes.get("dtype") or dtypes.result_type(lhs.dtype, rhs.dtype)
    operand_kinds = {_dot_kind(lhs.dtype), _dot_kind(rhs.dtype)}
    if operand_kinds != {_dot_kind(dtype)} or "host" in operand_kinds:
        raise UnsupportedType(
            f"dot of {lhs.dtype.name} and {rhs.dtype.name} to {dtype.name}: operands and result must be "
            "all device floats, or all integers or bool (M1, M7)"
        )
    batch = tuple(lhs.dims[i] for i in d.lhs_batch)
    return ArrayType(dtype, (*batch, *free_lhs, *free_rhs))


def _dot_kind(dtype: DType) -> str:
    if dtype.kind in ("signed", "unsigned", "bool"):
        return "integer"
    return "float" if dtype.exponent_bits and dtype.device else "host"


# ---- evaluation --------------------------------------------------------------------------------

CONVERT = _core.CONVERT  # the tile-program opcode of a conversion to the step's result type
_CORE = {name: index for index, (name, _, _) in enumerate(_core.OPS)}
_CORE_KINDS = {name: kind for name, _, kind in _core.OPS}


def core_code(dtype: DType, what: str) -> int:
    """The core's number of an element type; raises UnsupportedType for the host's types."""
    if dtype.code is None:
        raise UnsupportedType(f"{what} of {dtype.name}: the device has no such type (rule F)")
    return dtype.code


def is_host(dtype: DType) -> bool:
    """Whether NumPy computes with the type on the host (H1)."""
    return dtype in (dtypes.float64, dtypes.complex64, dtypes.complex128)


def core_step(op: Op, operand: DType, result: DType) -> tuple[int, int]:
    """The tile-program opcode and the result's code of an elementwise operation.

    `operand` is the type of the last operand. Raises UnsupportedType where the operation does not
    exist for the type.
    """
    if not operand.device:
        raise UnsupportedType(f"{op.opcode} of {operand.name}: the device has no such type (rule F)")
    name = op.on_bool if operand is dtypes.boolean and op.on_bool else op.core
    assert name is not None
    integer = operand.kind != "float"
    kind = _CORE_KINDS[name]
    if (integer and kind == "floating") or (not integer and kind == "integral"):
        raise UnsupportedType(f"{op.opcode} is not defined for {operand.name}")
    return _CORE[name], core_code(result, op.opcode)


_ON_COMPLEX = frozenset(
    {"add", "subtract", "multiply", "divide", "negative", "abs", "equal", "not_equal"}
)


def check_elementwise(op: Op, operand: DType, result: DType) -> None:
    """Raises UnsupportedType where an elementwise operation does not exist for a type."""
    if not is_host(operand):
        core_step(op, operand, result)
        return
    integral = op.core is not None and _CORE_KINDS[op.core] == "integral"
    if integral or (operand.kind == "complex" and op.name not in (*_ON_COMPLEX, "select")):
        raise UnsupportedType(f"{op.opcode} is not defined for {operand.name}")


@lru_cache(maxsize=4096)
def tile_program(
    inputs: tuple[int, ...],
    steps: tuple[tuple[int, int, tuple[int, ...]], ...],
    outputs: tuple[int, ...],
    via_float32: bool,
) -> _core.TileProgram:
    """A compiled tile program; equal programs are compiled once."""
    listed = [(op, result, list(operands)) for op, result, operands in steps]
    return _core.TileProgram(list(inputs), listed, list(outputs), via_float32)


def run_tile_program(
    program: _core.TileProgram, inputs: Sequence[BitsArray], results: Sequence[ArrayType]
) -> list[BitsArray]:
    """Run a program over the dims of its results; inputs are broadcast to them without a copy."""
    outputs = [np.empty(t.dims, t.dtype.storage) for t in results]
    dims = results[0].dims
    program.run([x if x.shape == dims else np.broadcast_to(x, dims) for x in inputs], outputs)
    return outputs


def _run_one(opcode: int, operands: Sequence[Bits], result: ArrayType, profile: Profile) -> BitsArray:
    codes = tuple(core_code(x.dtype, "an operand") for x in operands)
    step = (opcode, core_code(result.dtype, "the result"), tuple(range(len(operands))))
    via_float32 = profile.int_to_float == "via_float32"
    program = tile_program(codes, (step,), (len(operands),), via_float32)
    return run_tile_program(program, [x.data for x in operands], [result])[0]


def _evaluate_on_host(op: Op, operands: Sequence[Bits]) -> BitsArray:
    values = [x.data for x in operands]
    with np.errstate(all="ignore"):
        if op.name == "rsqrt":
            return np.asarray(1 / np.sqrt(values[0]))
        return np.asarray(np.where(*values) if op.name == "select" else getattr(np, op.name)(*values))


def _evaluate_elementwise(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, profile: Profile
) -> BitsArray:
    if is_host(operands[-1].dtype):
        return _evaluate_on_host(op, operands)
    opcode, _ = core_step(op, operands[-1].dtype, result.dtype)
    return _run_one(opcode, operands, result, profile)


def _evaluate_convert(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, profile: Profile
) -> BitsArray:
    if operands[0].dtype is result.dtype:
        return operands[0].data
    return _run_one(CONVERT, operands, result, profile)


def _evaluate_reduce_precision(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, profile: Profile
) -> BitsArray:
    step = reduce_precision_steps(operands[0].dtype, attributes)
    program = tile_program((dtypes.float32.code or 0,), step, (len(step),), True)
    return run_tile_program(program, [operands[0].data], [result])[0]


def reduce_precision_steps(
    dtype: DType, attributes: Attributes
) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
    """C9 as tile-program steps on value 0: to the format and back, in float32 storage."""
    target = _reduced_format(dtype, attributes)
    there = (CONVERT, core_code(target, "reduce-precision"), (0,))
    back = (CONVERT, core_code(dtypes.float32, "reduce-precision"), (1,))
    return there, back


def _evaluate_copy(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, profile: Profile
) -> BitsArray:
    return operands[0].data


def _evaluate_broadcast(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, profile: Profile
) -> BitsArray:
    x = operands[0].data
    order = sorted(range(x.ndim), key=lambda i: int(attributes["dimensions"][i]))
    aligned = x.transpose(order)
    shape = [1] * len(result.dims)
    for i in order:
        shape[attributes["dimensions"][i]] = x.shape[i]
    return np.broadcast_to(aligned.reshape(shape), result.dims)


def _evaluate_reshape(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, profile: Profile
) -> BitsArray:
    return operands[0].data.reshape(result.dims)


def _evaluate_transpose(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, profile: Profile
) -> BitsArray:
    return operands[0].data.transpose(attributes["dimensions"])


def _evaluate_reverse(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, profile: Profile
) -> BitsArray:
    return np.flip(operands[0].data, tuple(attributes["dimensions"]))


def _evaluate_slice(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, profile: Profile
) -> BitsArray:
    return operands[0].data[tuple(slice(*r) for r in attributes["slice"])]


def _evaluate_concatenate(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, profile: Profile
) -> BitsArray:
    return np.concatenate([x.data for x in operands], axis=attributes["dimensions"][0])


def _evaluate_iota(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, profile: Profile
) -> BitsArray:
    (axis,) = attributes["dimensions"]
    if 0 in result.dims:
        return np.empty(result.dims, result.dtype.storage)
    count = Bits(np.arange(result.dims[axis], dtype=np.int64), dtypes.int64)
    line_type = ArrayType(result.dtype, (result.dims[axis],))
    line = Bits(_run_one(CONVERT, [count], line_type, profile), result.dtype)
    return _evaluate_broadcast(op, [line], {"dimensions": (axis,)}, result, profile)


def _evaluate_reduce(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, profile: Profile
) -> BitsArray:
    array, initial = operands
    reducer = by_name(attributes["reducer"])
    if is_host(array.dtype):
        host: np.ufunc = getattr(np, reducer.name)
        axes = tuple(attributes["dimensions"])
        return np.asarray(host(host.reduce(array.data, axis=axes), initial.data))
    opcode, code = core_step(reducer, array.dtype, array.dtype)
    reduced = sorted(attributes["dimensions"])  # R2: ascending axis number, last fastest
    kept = [d for d in range(array.data.ndim) if d not in reduced]
    output = np.empty(result.dims, result.dtype.storage)
    round_tiles = (
        profile.mixed_precision_accumulation == "off"
        and array.dtype.kind == "float"
        and array.dtype.bits <= 16
        and reducer.name in ("add", "multiply")
    )  # R3
    moved = array.data.transpose(kept + reduced)
    _core.reduce(opcode, code, moved, len(kept), initial.data, output, profile.reduce_tile, round_tiles)
    return output


def _evaluate_dot(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, profile: Profile
) -> BitsArray:
    lhs, rhs = operands
    d: DotDimensions = attributes["dot_dimensions"]
    free_lhs = [i for i in range(lhs.data.ndim) if i not in d.lhs_contracting + d.lhs_batch]
    free_rhs = [i for i in range(rhs.data.ndim) if i not in d.rhs_contracting + d.rhs_batch]

    def size(x: Bits, axes: Sequence[int]) -> int:
        return math.prod(x.data.shape[i] for i in axes)

    batch, depth = size(lhs, d.lhs_batch), size(lhs, d.lhs_contracting)
    rows, columns = size(lhs, free_lhs), size(rhs, free_rhs)
    # M2: the contraction index is row-major over the contracting dimensions as the dot lists them.
    a = lhs.data.transpose([*d.lhs_batch, *free_lhs, *d.lhs_contracting])
    b = rhs.data.transpose([*d.rhs_batch, *d.rhs_contracting, *free_rhs])
    a, b = a.reshape(batch, rows, depth), b.reshape(batch, depth, columns)
    output = np.empty((batch, rows, columns), result.dtype.storage)
    tile = 128 if profile.accumulate == "psum128" else max(depth, 1)  # M2, M6
    a_code, b_code = core_code(lhs.dtype, "dot"), core_code(rhs.dtype, "dot")
    _core.dot(a, a_code, b, b_code, output, core_code(result.dtype, "dot"), tile)
    return output.reshape(result.dims)


# ---- the rows ----------------------------------------------------------------------------------

OPS: dict[str, Op] = {}


def _elementwise(
    name: str,
    opcode: str,
    xla_builder: str,
    arity: int,
    engine: Engine,
    cost: str,
    infer: Infer = _infer_same,
    core: str | None = None,
    **more: Any,
) -> None:
    OPS[name] = Op(
        name=name,
        opcode=opcode,
        xla_builder=xla_builder,
        arity=arity,
        engine=engine,
        cast="compute",
        cost=cost,
        infer=infer,
        evaluate=_evaluate_elementwise,
        core=core or name,
        **more,
    )


def _other(
    name: str,
    opcode: str,
    xla_builder: str,
    arity: int,
    engine: Engine,
    cast: CastClass,
    cost: str,
    infer: Infer,
    evaluate: Evaluate,
) -> None:
    OPS[name] = Op(name, opcode, xla_builder, arity, engine, cast, cost, infer, evaluate)


# A wrong column is easier to see when the table stays a table.
# fmt: off
_elementwise("add",         "add",         "Add",   2, "vector", "tensor_tensor", on_bool="bitwise_or",  identity=0.0, operator="+")
_elementwise("subtract",    "subtract",    "Sub",   2, "vector", "tensor_tensor", operator="-")
_elementwise("multiply",    "multiply",    "Mul",   2, "vector", "tensor_tensor", on_bool="bitwise_and", identity=1.0, operator="*")
_elementwise("divide",      "divide",      "Div",   2, "vector", "reciprocal",    operator="/")
_elementwise("maximum",     "maximum",     "Max",   2, "vector", "tensor_tensor", on_bool="bitwise_or",  identity=-math.inf)
_elementwise("minimum",     "minimum",     "Min",   2, "vector", "tensor_tensor", on_bool="bitwise_and", identity=math.inf)
_elementwise("sqrt",        "sqrt",        "Sqrt",  1, "scalar", "activation")
_elementwise("rsqrt",       "rsqrt",       "Rsqrt", 1, "scalar", "activation")
_elementwise("exp",         "exponential", "Exp",   1, "scalar", "activation")
_elementwise("tanh",        "tanh",        "Tanh",  1, "scalar", "activation")
_elementwise("negative",    "negate",      "Neg",   1, "vector", "tensor_scalar")
_elementwise("abs",         "abs",         "Abs",   1, "vector", "tensor_scalar", _infer_abs)
_elementwise("bitwise_and",    "and", "And", 2, "vector", "tensor_tensor", operator="&")
_elementwise("bitwise_or",     "or",  "Or",  2, "vector", "tensor_tensor", operator="|")
_elementwise("bitwise_xor",    "xor", "Xor", 2, "vector", "tensor_tensor", operator="^")
_elementwise("bitwise_invert", "not", "Not", 1, "vector", "tensor_scalar", on_bool="logical_not")
_elementwise("equal",         "compare", "Eq", 2, "vector", "tensor_tensor", _infer_comparison, direction="EQ", operator="==")
_elementwise("not_equal",     "compare", "Ne", 2, "vector", "tensor_tensor", _infer_comparison, direction="NE", operator="!=")
_elementwise("less",          "compare", "Lt", 2, "vector", "tensor_tensor", _infer_comparison, direction="LT", operator="<")
_elementwise("less_equal",    "compare", "Le", 2, "vector", "tensor_tensor", _infer_comparison, direction="LE", operator="<=")
_elementwise("greater",       "compare", "Gt", 2, "vector", "tensor_tensor", _infer_comparison, direction="GT", operator=">")
_elementwise("greater_equal", "compare", "Ge", 2, "vector", "tensor_tensor", _infer_comparison, direction="GE", operator=">=")
_elementwise("select",        "select",  "Select", 3, "vector", "copy_predicated", _infer_select)

_other("convert",   "convert",   "ConvertElementType", 1, "vector", "compute",  "tensor_copy",   _infer_convert, _evaluate_convert)
_other("reduce_precision", "reduce-precision", "ReducePrecision", 1, "vector", "compute", "tensor_copy", _infer_reduce_precision, _evaluate_reduce_precision)
_other("reduce",    "reduce",    "Reduce",         2, "vector", "compute",  "tensor_reduce", _infer_reduce,    _evaluate_reduce)
_other("dot",       "dot",       "DotGeneral",     2, "tensor", "matmult",  "nc_matmul",     _infer_dot,       _evaluate_dot)
_other("broadcast", "broadcast", "BroadcastInDim", 1, "none",   "movement", "none",          _infer_broadcast, _evaluate_broadcast)
_other("reshape",   "reshape",   "Reshape",        1, "none",   "movement", "none",          _infer_reshape,   _evaluate_reshape)
_other("copy",      "copy",      "Copy",           1, "dma",    "movement", "dma",           _infer_same,      _evaluate_copy)
_other("transpose", "transpose", "Transpose",      1, "dma",    "movement", "dma",           _infer_transpose, _evaluate_transpose)
_other("reverse",   "reverse",   "Rev",            1, "dma",    "movement", "dma",           _infer_reverse,   _evaluate_reverse)
_other("slice",     "slice",     "Slice",          1, "none",   "movement", "none",          _infer_slice,     _evaluate_slice)
_other("concatenate", "concatenate", "Concatenate", -1, "dma",  "movement", "dma",           _infer_concatenate, _evaluate_concatenate)
_other("iota",      "iota",      "Iota",           0, "gpsimd", "compute",  "iota",          _infer_iota,      _evaluate_iota)
# fmt: on

_BY_OPCODE: dict[tuple[str, str | None], Op] = {(op.opcode, op.direction): op for op in OPS.values()}
OPCODES = frozenset(op.opcode for op in OPS.values())


def by_name(name: str) -> Op:
    """The row with this array name; raises UnsupportedOperator with the nearest known name."""
    if name not in OPS:
        raise UnsupportedOperator(f"neuronsim has no operation {name!r}{nearest(name, OPS)}")
    return OPS[name]


def by_opcode(opcode: str, attributes: Attributes) -> Op:
    """The row of an HLO opcode; a compare's direction chooses among six."""
    row = _BY_OPCODE.get((opcode, attributes.get("comparison_direction")))
    if row is None:
        raise UnsupportedOperator(
            f"[NCC_EVRF001] neuronsim does not execute the operator {opcode!r} yet"
            f"{nearest(opcode, OPCODES)}; it executes {', '.join(sorted(OPCODES))}"
        )
    return row


def evaluate(
    op: Op,
    operands: Sequence[Bits],
    attributes: Attributes,
    profile: Profile,
    result: ArrayType | None = None,
) -> Bits:
    """Evaluate a row on bits. `result` is the type that a graph states; else it is inferred."""
    check_environment()
    if result is None:
        result = op.infer([x.type for x in operands], attributes)
    return Bits(op.evaluate(op, operands, attributes, result, profile), result.dtype)


def apply(name: str, operands: Sequence[Any], **attributes: Any) -> Any:
    """Evaluate an operation on arrays, or record it if an operand records.

    An operand with `__neuronsim_apply__(op, operands, attributes)` takes over, as a tracer does.
    """
    op = by_name(name)
    for x in operands:
        record = getattr(x, "__neuronsim_apply__", None)
        if record is not None:
            return record(op, operands, attributes)
    return evaluate(op, operands, attributes, current_profile())
