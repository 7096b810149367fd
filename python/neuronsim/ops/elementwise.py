"""Elementwise operations: result types, evaluation on the device's types and on the host's (H1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from neuronsim import dtypes
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.ops.computations import (
    applied_computations,
    check_computation,
    computation_program,
    evaluate_computation,
    is_on_host,
)
from neuronsim.ops.order import order_keys
from neuronsim.ops.programs import (
    CORE_KINDS,
    core_code,
    core_name,
    is_host,
    run_one,
    run_tile_program,
)
from neuronsim.ops.rows import ArrayType, Attributes, Bits, BitsArray, Op, Setting, by_name, same_type


def infer_abs(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    real = {dtypes.complex64: dtypes.float32, dtypes.complex128: dtypes.float64}
    return operands[0]._replace(dtype=real.get(operands[0].dtype, operands[0].dtype))


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


_OF_PARTS = {dtypes.float32: dtypes.complex64, dtypes.float64: dtypes.complex128}
_PARTS = {whole: part for part, whole in _OF_PARTS.items()}


def infer_complex(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    part = same_type(operands, "real and imaginary parts")
    if part.dtype not in _OF_PARTS:
        raise UnsupportedType(
            f"complex of {part.dtype.name}: the parts are float32 or float64 (H1): convert them first"
        )
    return part._replace(dtype=_OF_PARTS[part.dtype])


def infer_part(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    """The type of a part; of a float its real part is itself."""
    x = operands[0]
    if x.dtype.kind not in ("complex", "float"):
        raise UnsupportedType(
            f"a part of {x.dtype.name}: a complex or a float type is needed: convert it first"
        )
    return x._replace(dtype=_PARTS.get(x.dtype, x.dtype))


def evaluate_complex(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    found = np.empty(result.dims, result.dtype.storage)
    found.real, found.imag = (x.data for x in operands)
    return found


def evaluate_part(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    (x,) = operands
    if x.dtype.kind == "complex":
        return np.array(x.data.real if op.name == "real" else x.data.imag, order="C")
    return x.data if op.name == "real" else np.zeros(result.dims, result.dtype.storage)


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


# What XLA has on complex types, and NumPy computes (H1); rows without an opcode are the arrays' alone.
_ON_COMPLEX = frozenset(
    {
        *("add", "subtract", "multiply", "divide", "negative", "abs", "equal", "not_equal", "select"),
        *("power", "sqrt", "rsqrt", "exp", "expm1", "log", "log1p", "sigmoid", "sign"),
        *("sin", "cos", "tan", "asin", "acos", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
        *("isnan", "isinf", "log2", "log10", "reciprocal", "atan", "exp2"),
    }
)


def check_elementwise(op: Op, operand: DType, result: DType) -> None:
    """Raises UnsupportedType where an elementwise operation does not exist for a type."""
    if not is_host(operand):
        core_name(op, operand)
        core_code(result, op.label)
        return
    integral = op.core is not None and CORE_KINDS[op.core] == "integral"
    if integral or (operand.kind == "complex" and op.name not in _ON_COMPLEX):
        raise UnsupportedType(f"{op.name} is not defined for {operand.name}")


def _sigmoid_on_host(x: BitsArray) -> BitsArray:
    return np.asarray(1 / (1 + np.exp(-x)))


def _normal_on_host(x: BitsArray) -> BitsArray:
    return np.asarray(_erfc(-x / math.sqrt(2)) / 2)


def _silu_dx_on_host(x: BitsArray) -> BitsArray:
    s = _sigmoid_on_host(x)
    return np.asarray(s * (1 + x * (1 - s)))


def _gelu_dx_on_host(x: BitsArray) -> BitsArray:
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return np.asarray(_normal_on_host(x) + x * density)


def _with_limits(
    function: Callable[[BitsArray], BitsArray], at_plus_inf: float
) -> Callable[[BitsArray], BitsArray]:
    """The function with its limits at -Inf, -0, and at +Inf, where the formula has none (E3)."""

    def on_host(x: BitsArray) -> BitsArray:
        limited = np.where(x == np.inf, at_plus_inf, function(x))
        return np.where(x == -np.inf, -0.0, limited)

    return on_host


def _floor_divide_on_host(x: BitsArray, y: BitsArray) -> BitsArray:
    """NumPy's, but where an operand is infinite the floor of the quotient, as E9 and the standard have
    it.
    """
    finite = np.isfinite(x) & np.isfinite(y)
    return np.where(finite, np.floor_divide(x, y), np.floor(np.divide(x, y)))


def _but_of_specials(
    function: Callable[[BitsArray], BitsArray], elsewhere: Callable[[BitsArray], BitsArray]
) -> Callable[[BitsArray], BitsArray]:
    """NumPy's function, but another formula for complex numbers with a part that is not finite."""

    def on_host(x: BitsArray) -> BitsArray:
        if x.dtype.kind != "c":
            return function(x)
        return np.where(np.isfinite(x), function(x), elsewhere(x))

    return on_host


def _reflected(
    function: Callable[[BitsArray], BitsArray], parity: Literal["odd", "even"] | None = None
) -> Callable[[BitsArray], BitsArray]:
    """The function, of complex numbers in the upper half plane, or the first quadrant if it has a
    parity, and reflected: the standard wants f(conj(z)) = conj(f(z)) and the parity to the last bit.
    """

    def on_host(x: BitsArray) -> BitsArray:
        if x.dtype.kind != "c":
            return function(x)
        above = x.copy()
        above.imag = np.abs(x.imag)
        lower, left = np.signbit(x.imag), np.signbit(x.real)
        if parity is not None:
            above.real = np.abs(x.real)
        found = np.array(function(above))
        found.imag = np.where(lower ^ left if parity == "even" else lower, -found.imag, found.imag)
        if parity == "odd":
            found.real = np.where(left, -found.real, found.real)
        return found

    return on_host


def _reciprocal_on_host(x: BitsArray) -> BitsArray:
    """NumPy's, whose zeros have the signs of 1/conj(z) = conj(1/z), unlike a quotient's; of complex
    zeros the quotient, which is infinite.
    """
    if x.dtype.kind != "c":
        return np.asarray(1 / x)
    return np.where(x == 0, 1 / x, np.reciprocal(x))


def _expm1_on_host(x: BitsArray) -> BitsArray:
    found = _but_of_specials(np.expm1, lambda x: np.exp(x) - 1)(x)
    if x.dtype.kind == "c":
        found.real += 0.0  # a zero is +0
    return found


def _tanh_on_host(x: BitsArray) -> BitsArray:
    """In the first quadrant of complex numbers: 1 + 0j at infinity, and a real part of 0 stays."""
    if x.dtype.kind != "c":
        return np.asarray(np.tanh(x))
    found = np.where(np.isinf(x.real), 1, np.tanh(x)).astype(x.dtype)
    found.real = np.where(x.real == 0, 0, found.real)
    return found


def _tan_on_host(x: BitsArray) -> BitsArray:
    """In the first quadrant of complex numbers: 0 + 1j at infinity, an imaginary part of 0 stays."""
    if x.dtype.kind != "c":
        return np.asarray(np.tan(x))
    found = np.where(np.isinf(x.imag), 1j, np.tan(x)).astype(x.dtype)
    found.imag = np.where(x.imag == 0, 0, found.imag)
    return found


def _one_plus(x: BitsArray) -> BitsArray:
    found = x.copy()
    found.real += 1  # the sign of an imaginary zero stays
    return found


_erf = np.vectorize(math.erf, [np.float64])
_erfc = np.vectorize(math.erfc, [np.float64])
_ON_HOST: dict[str, Callable[..., Any]] = {
    "floor_divide": _floor_divide_on_host,
    "exp": _reflected(np.exp),
    "expm1": _reflected(_expm1_on_host),
    "log": _reflected(np.log),
    "log1p": _reflected(_but_of_specials(np.log1p, lambda x: np.log(_one_plus(x)))),
    "log2": _reflected(np.log2),
    "log10": _reflected(np.log10),
    "sqrt": _reflected(np.sqrt),
    "reciprocal": _reciprocal_on_host,
    "sin": _reflected(np.sin, "odd"),
    "cos": _reflected(np.cos, "even"),
    "tan": _reflected(_tan_on_host, "odd"),
    "sinh": _reflected(np.sinh, "odd"),
    "cosh": _reflected(np.cosh, "even"),
    "tanh": _reflected(_tanh_on_host, "odd"),
    "sign": _but_of_specials(np.sign, lambda x: np.where(np.isnan(x), math.nan * (1 + 1j), np.sign(x))),
    "rsqrt": _reflected(lambda x: _reciprocal_on_host(np.sqrt(x))),
    "asin": _reflected(np.arcsin, "odd"),
    "acos": _reflected(np.arccos),
    "atan": _reflected(np.arctan, "odd"),
    "atan2": np.arctan2,
    "asinh": _reflected(np.arcsinh, "odd"),
    "acosh": _reflected(np.arccosh),
    "atanh": _reflected(np.arctanh, "odd"),
    "erf": _erf,
    "erfc": _erfc,
    "sigmoid": _reflected(_sigmoid_on_host),
    "silu": _with_limits(lambda x: x * _sigmoid_on_host(x), math.inf),
    "gelu": _with_limits(lambda x: x * _normal_on_host(x), math.inf),
    "gelu_tanh": _with_limits(
        lambda x: x * _sigmoid_on_host(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)), math.inf
    ),
    "gelu_sigmoid": _with_limits(lambda x: x * _sigmoid_on_host(1.702 * x), math.inf),
    "softplus": lambda x: np.logaddexp(x, 0),
    "mish": _with_limits(lambda x: x * np.tanh(np.logaddexp(x, 0)), math.inf),
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    "silu_dx": _with_limits(_silu_dx_on_host, 1),
    "gelu_dx": _with_limits(_gelu_dx_on_host, 1),
    "gelu_sigmoid_dx": _with_limits(lambda x: _silu_dx_on_host(1.702 * x), 1),
    "select": np.where,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "round_half_away": lambda x: np.copysign(np.floor(np.abs(x) + (np.abs(x) % 1 >= 0.5)), x),
}


def _evaluate_on_host(op: Op, operands: Sequence[Bits]) -> BitsArray:
    values = [x.data for x in operands]
    with np.errstate(all="ignore"):
        if op.total_order:
            return np.asarray(
                getattr(np, op.name.removesuffix("_total_order"))(
                    *(order_keys(x, nan_last=False) for x in operands)
                )
            )
        function = _ON_HOST.get(op.name) or getattr(np, op.name)
        return np.asarray(function(*values))


def infer_map(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    dims = operands[0].dims
    if any(t.dims != dims for t in operands):
        raise InvalidArgument(f"arrays of different shapes: {', '.join(map(str, operands))}")
    (computation,) = applied_computations(attributes, 1)
    check_computation(computation, [t.dtype for t in operands], computation.result_types[:1])
    return ArrayType(computation.result_types[0], dims)


def evaluate_map(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    (computation,) = applied_computations(attributes, 1)
    if is_on_host(computation):
        (found,) = evaluate_computation(computation, operands, setting)
        return found.data
    program = computation_program(computation, setting.profile)
    return run_tile_program(program, [x.data for x in operands], [result])[0]


def evaluate_elementwise(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    if is_host(operands[-1].dtype):
        return _evaluate_on_host(op, operands)
    return run_one(op, operands, attributes, result, setting)


def evaluate_convert(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    (x,) = operands
    if x.dtype is result.dtype:
        return x.data
    if x.dtype.kind == "complex":
        with np.errstate(all="ignore"):
            return x.data.astype(result.dtype.storage)
    if result.dtype.kind == "complex":  # the real part, rounded once
        return converted(x, _PARTS[result.dtype], setting).data.astype(result.dtype.storage)
    return run_one(op, operands, attributes, result, setting)


def converted(x: Bits, dtype: DType, setting: Setting) -> Bits:
    if x.dtype is dtype:
        return x
    result = ArrayType(dtype, x.data.shape)
    return Bits(run_one(by_name("convert"), [x], {}, result, setting), dtype)
