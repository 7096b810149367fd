"""Elementwise operators: arithmetic, comparisons, bits, and conversions."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from neuronsim import arrays as np
from neuronsim import dtypes, ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.evaluation import apply_elementwise, select_elements
from neuronsim.arrays.layers import psum_type
from neuronsim.errors import InvalidModel
from neuronsim.frontends.onnx.carried import (
    Carried,
    CarriedArray,
    ElementType,
    convert,
    element_of,
)
from neuronsim.frontends.onnx.files import dtype_of, element_type
from neuronsim.frontends.onnx.table import Node, operator
from neuronsim.frontends.primitives import quotient
from neuronsim.frontends.tracer import is_traced

_INTEGERS = ("signed", "unsigned")

# ---- arithmetic ------------------------------------------------------------------------------------


def _power(x: Array, exponent: Array) -> Array:
    """In the type of the base; a square is a product, of the same bits."""
    if not is_traced(exponent.bits) and exponent.size == 1 and float(exponent.reshape(())) == 2.0:
        dims = ops.broadcast_dims(x.shape, exponent.shape)
        return np.broadcast_to(np.multiply(x, x), dims)
    if x.dtype.kind in _INTEGERS and exponent.dtype.kind == "float":
        wide = psum_type(exponent)
        return np.power(x.astype(wide), exponent.astype(wide)).astype(x.dtype)
    return np.power(x, exponent.astype(x.dtype))


# Operators that are one function of arrays. What HLO has no opcode for is spelled by its neighbours
# that have one, of the same bits: isnan(x) is x != x, atan(x) is atan2(x, 1), as XLA has them.
_PLAIN: dict[str, Callable[..., Array]] = {
    **{n: getattr(np, n.lower()) for n in ("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atanh", "Ceil")},
    **{n: getattr(np, n.lower()) for n in ("Cos", "Cosh", "Equal", "Erf", "Exp", "Floor", "Greater")},
    **{n: getattr(np, n.lower()) for n in ("Less", "Log", "Sin", "Sinh", "Sqrt", "Tan", "Where")},
    "Add": np.add,
    "And": np.bitwise_and,
    "Atan": lambda x: np.atan2(x, 1),
    "BitwiseAnd": np.bitwise_and,
    "BitwiseNot": np.bitwise_invert,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Div": quotient,
    "GreaterOrEqual": np.greater_equal,
    "LessOrEqual": np.less_equal,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Not": np.bitwise_invert,
    "Or": np.bitwise_or,
    "Pow": _power,
    "Reciprocal": lambda x: np.divide(1, x),
    "Round": np.rint,
    "Sign": lambda x: apply_elementwise("sign", x),  # HLO's, of which -0 is -0
    "Sub": np.subtract,
    "Xor": np.bitwise_xor,
}


def _plain(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda node, *operands: function(*operands)


def _beside(node: Node, a: Array, b: Array) -> Array:
    """Before version 7: the second operand, whose axes are those of the first from `axis` on."""
    axis = node.get("axis")
    return b if axis is None else b.reshape((*b.shape, *[1] * (a.ndim - axis % a.ndim - b.ndim)))


def _with_axis(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda node, a, b: function(a, _beside(node, a, b))


_HAD_AXIS = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")

for _name, _function in _PLAIN.items():
    operator(_name, since=7 if _name in _HAD_AXIS else 1)(_plain(_function))
for _name in _HAD_AXIS:
    operator(_name)(_with_axis(_PLAIN[_name]))


operator("Identity")(lambda node, x: x)


@operator("Mod")
def _mod(node: Node, a: Array, b: Array) -> Array:
    """The remainder with the sign of the dividend, or without `fmod` of the divisor."""
    rest = apply_elementwise("fmod", a, b)
    if node.get("fmod", 0) or a.dtype.kind == "unsigned":
        return rest
    if a.dtype.kind == "float":
        return np.remainder(a, b)
    differs = np.bitwise_and(np.not_equal(rest, 0), np.less(np.bitwise_xor(rest, b), 0))
    return select_elements(differs, np.add(rest, b), rest)


def _folded(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda node, *operands: reduce(function, operands)


for _name, _function in {"Max": np.maximum, "Min": np.minimum, "Sum": np.add}.items():
    operator(_name)(_folded(_function))


@operator("Mean")
def _mean(node: Node, *operands: Array) -> Array:
    """In float32 steps (R7)."""
    dtype = operands[0].dtype
    wide = [x.astype(psum_type(x)) for x in operands]
    return np.divide(reduce(np.add, wide), len(wide)).astype(dtype)


def clipped(x: Array, low: Any, high: Any) -> Array:
    """minimum(maximum(x, low), high); a bound that is None does not act."""
    if low is not None:
        x = np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


operator("Clip", since=6)(lambda node, x: clipped(x, node.get("min"), node.get("max")))
operator("Clip", since=11)(lambda node, x, low=None, high=None: clipped(x, low, high))


# ---- bits and predicates ---------------------------------------------------------------------------


@operator("BitShift", since=11)
def _bit_shift(node: Node, x: Array, by: Array) -> Array:
    """Bits that leave the type are lost; a shift right of a signed integer keeps the sign."""
    if node.require("direction") == "LEFT":
        return apply_elementwise("shift_left", x, by)
    kind = "arithmetic" if x.dtype.kind == "signed" else "logical"
    return apply_elementwise(f"shift_right_{kind}", x, by)


@operator("BitCast", since=26)
def _bit_cast(node: Node, x: Array) -> Array:
    to = dtype_of(node.require("to"), "the attribute 'to'")
    if isinstance(x, CarriedArray):
        raise node.refuse(f"of {x.element.name}, whose bits nobody has: neuronsim casts it")
    if to.itemsize != x.dtype.itemsize:
        raise InvalidModel(f"{x.dtype.name} to {to.name}: both have as many bits")
    if dtypes.boolean in (to, x.dtype):  # whose bits are 0 and 1
        return x.astype(to)
    return Array(ops.apply("bitcast_convert", [x.bits], dtype=to, dims=x.shape))


def computable(x: Array) -> Array:
    """Floats that are converted alone (rule F) in float32, which is exact."""
    return x.astype(dtypes.float32) if x.dtype.exponent_bits and not x.dtype.device else x


@operator("IsNaN", since=9)
def _is_nan(node: Node, x: Array) -> Array:
    wide = computable(x)
    return np.not_equal(wide, wide)


@operator("IsInf", since=10)
def _is_inf(node: Node, x: Array) -> Array:
    wide = computable(x)
    below, above = node.get("detect_negative", 1), node.get("detect_positive", 1)
    if below and above:
        return np.equal(np.abs(wide), float("inf"))
    if not below and not above:
        return np.zeros(x.shape, dtype=dtypes.boolean)
    return np.equal(wide, float("-inf" if below else "inf"))


# ---- conversions -----------------------------------------------------------------------------------


def cast(x: Array, to: ElementType, saturate: bool = True, round_mode: str = "up") -> Array:
    """In another type by rules C; what an 8-bit float does not hold is its largest value, or without
    `saturate` NaN or Inf.
    """
    if isinstance(to, Carried):
        return convert(x, to, saturate, round_mode)
    narrows = to.kind == "float" and to.bits == 8 and x.dtype is not to
    if narrows:
        x = x if x.dtype.bits > 8 and x.dtype.kind == "float" else x.astype(dtypes.float32)
        x = clipped(x, -to.max, to.max) if saturate else x
    return x.astype(to)


def _cast_to(node: Node, x: Array, to: ElementType) -> Array:
    return cast(x, to, bool(node.get("saturate", 1)), node.get("round_mode", "up"))


@operator("Cast", since=6)
def _cast(node: Node, x: Array) -> Array:
    return _cast_to(node, x, element_type(node.require("to"), "the attribute 'to'"))


operator("CastLike", since=15)(lambda node, x, like: _cast_to(node, x, element_of(like)))
