"""Elementwise operations: result types, evaluation on the device's types and on the host's (H1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neuronsim import dtypes
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.ops.chains import (
    COMPLEX,
    CORE_KINDS,
    REAL,
    core_code,
    core_name,
    is_host,
    run_chain,
    run_one,
)
from neuronsim.ops.computations import (
    applied_computations,
    check_computation,
    computation_chain,
    evaluate_computation,
    is_on_host,
)
from neuronsim.ops.order import order_keys
from neuronsim.ops.rows import (
    ArrayType,
    Attributes,
    Bits,
    BitsArray,
    Evaluation,
    Op,
    Setting,
    by_name,
    same_dims,
    same_type,
)


def infer_abs(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    return operands[0]._replace(dtype=REAL.get(operands[0].dtype, operands[0].dtype))


def infer_comparison(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    return ArrayType(dtypes.boolean, same_type(operands, "operands").dims)


def infer_predicate(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    return operands[0]._replace(dtype=dtypes.boolean)


def infer_clamp(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    low, x, high = operands
    for bound in (low, high):
        if bound.dtype is not x.dtype or bound.dims not in (x.dims, ()):
            raise InvalidArgument(f"the bound {bound} does not clamp {x}")
    return x


def infer_select(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    condition, *branches = operands
    result = same_type(branches, "branches")
    if condition.dtype is not dtypes.boolean or condition.dims not in (result.dims, ()):
        raise InvalidArgument(f"the condition {condition} does not select between {result}")
    return result


def infer_convert(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    target: DType = attributes["dtype"]
    if operands[0].dtype.kind == "complex" and target.kind != "complex":
        raise UnsupportedType(
            "convert of a complex value to a real type (C6): take its real part (`real`)"
        )
    return ArrayType(target, operands[0].dims)


def infer_complex(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    part = same_type(operands, "real and imaginary parts")
    if part.dtype not in COMPLEX:
        raise UnsupportedType(
            f"complex of {part.dtype.name}: the parts are float32 or float64 (H1): convert them first"
        )
    return part._replace(dtype=COMPLEX[part.dtype])


def infer_part(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    """The type of a part; of a float its real part is itself."""
    x = operands[0]
    if x.dtype.kind not in ("complex", "float"):
        raise UnsupportedType(
            f"a part of {x.dtype.name}: a complex or a float type is needed: convert it first"
        )
    return x._replace(dtype=REAL.get(x.dtype, x.dtype))


def evaluate_complex(e: Evaluation) -> BitsArray:
    found = np.empty(e.result.dims, e.result.dtype.storage)
    found.real, found.imag = (x.data for x in e.operands)
    return found


def evaluate_part(e: Evaluation) -> BitsArray:
    (x,) = e.operands
    if x.dtype.kind == "complex":
        return np.array(x.data.real if e.op.name == "real" else x.data.imag, order="C")
    return x.data if e.op.name == "real" else np.zeros(e.result.dims, e.result.dtype.storage)


def infer_reduce_precision(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    exponent_bits, mantissa_bits = attributes["exponent_bits"], attributes["mantissa_bits"]
    if exponent_bits < 1 or mantissa_bits < 0:
        raise InvalidArgument(
            f"reduce-precision to {exponent_bits} exponent and {mantissa_bits} mantissa bits: the "
            "least are 1 and 0"
        )
    if not operands[0].dtype.exponent_bits or not operands[0].dtype.device:
        raise UnsupportedType(
            f"reduce-precision of {operands[0].dtype.name}: a float type of the device is needed: "
            "convert to one, which rounds as it does (C9)"
        )
    return operands[0]


def check_elementwise(op: Op, operand: DType, result: DType) -> None:
    """Raises UnsupportedType where an elementwise operation does not exist for a type."""
    if not is_host(operand):
        core_name(op, operand)
        core_code(result, op.label)
        return
    integral = op.core is not None and CORE_KINDS[op.core] == "integral"
    if integral or (operand.kind == "complex" and not op.on_complex):
        raise UnsupportedType(f"{op.name} is not defined for {operand.name}")


def _evaluate_on_host(op: Op, operands: Sequence[Bits]) -> BitsArray:
    values = [x.data for x in operands]
    with np.errstate(all="ignore"):
        if op.total_order:
            return np.asarray(
                getattr(np, op.name.removesuffix("_total_order"))(
                    *(order_keys(x, nan_last=False) for x in operands)
                )
            )
        function = op.on_host or getattr(np, op.name)
        return np.asarray(function(*values))


def infer_map(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    dims = same_dims(operands)
    (computation,) = applied_computations(attributes, 1)
    check_computation(computation, [t.dtype for t in operands], computation.result_types[:1])
    return ArrayType(computation.result_types[0], dims)


def evaluate_map(e: Evaluation) -> BitsArray:
    (computation,) = applied_computations(e.attributes, 1)
    if is_on_host(computation):
        (found,) = evaluate_computation(computation, e.operands, e.setting)
        return found.data
    program = computation_chain(computation, e.setting.profile)
    return run_chain(program, [x.data for x in e.operands], [e.result])[0]


def evaluate_elementwise(e: Evaluation) -> BitsArray:
    if is_host(e.operands[-1].dtype):
        return _evaluate_on_host(e.op, e.operands)
    return run_one(e)


def evaluate_convert(e: Evaluation) -> BitsArray:
    (x,) = e.operands
    if x.dtype is e.result.dtype:
        return x.data
    if x.dtype.kind == "complex":
        with np.errstate(all="ignore"):
            return x.data.astype(e.result.dtype.storage)
    if e.result.dtype.kind == "complex":  # the real part, rounded once
        return converted(x, REAL[e.result.dtype], e.setting).data.astype(e.result.dtype.storage)
    return run_one(e)


def converted(x: Bits, dtype: DType, setting: Setting) -> Bits:
    if x.dtype is dtype:
        return x
    result = ArrayType(dtype, x.data.shape)
    return Bits(run_one(Evaluation(by_name("convert"), [x], {}, result, setting)), dtype)
