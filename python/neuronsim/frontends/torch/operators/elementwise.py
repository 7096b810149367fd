"""Elementwise operators: arithmetic, comparisons, bits, and conversions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.evaluation import apply_elementwise, select_elements
from neuronsim.dtypes import DType
from neuronsim.frontends import lax
from neuronsim.frontends.primitives import apply, in_float, quotient, where
from neuronsim.frontends.torch.promotion import as_type, floating, promoted
from neuronsim.frontends.torch.table import Node, operator

_INTEGERS = ("signed", "unsigned")

# ---- of one operand --------------------------------------------------------------------------------

# Of floats, and integers as float32. What HLO has no opcode for is spelled by its neighbours that have
# one, of the same bits, as XLA has them: atan(x) is atan2(x, 1).
_OF_FLOATS: dict[str, Callable[[Array], Array]] = {
    **{n: getattr(np, n) for n in ("acos", "acosh", "asin", "asinh", "atanh", "cos", "cosh")},
    **{n: getattr(np, n) for n in ("erf", "erfc", "exp", "exp2", "expm1")},
    **{n: getattr(np, n) for n in ("log", "log10", "log1p", "log2", "rsqrt")},
    **{n: getattr(np, n) for n in ("sigmoid", "sin", "sinh", "sqrt", "tan", "tanh")},
    "atan": lambda x: np.atan(x) if x.dtype.kind == "complex" else np.atan2(x, 1),
    "reciprocal": lambda x: np.divide(1, x),
}
# Of any type, which stays.
_OF_ALL: dict[str, Callable[[Array], Array]] = {
    **{n: getattr(np, n) for n in ("abs", "ceil", "floor", "trunc")},
    "bitwise_not": np.bitwise_invert,
    "neg": np.negative,
    "relu": lambda x: np.maximum(x, 0),
    "round": np.rint,
}


def _row_of_one(function: Callable[[Array], Array], *, widens: bool) -> Callable[..., Array]:
    return lambda node, x: function(floating(x) if widens else x)


for _name, _function in _OF_FLOATS.items():
    operator(f"aten.{_name}.default")(_row_of_one(_function, widens=True))
for _name, _function in _OF_ALL.items():
    operator(f"aten.{_name}.default")(_row_of_one(_function, widens=False))


# Lanczos's approximation with g = 7, as XLA has it.
_LANCZOS = (
    *(676.520368121885098567, -1259.13921672240287047, 771.323428777653078849),
    *(-176.615029162140599066, 12.5073432786869048145, -0.138571095265720116896),
    *(9.984369578019570859563e-6, 1.50563273514931155834e-7),
)


@operator("aten.lgamma.default")
def _lgamma(node: Node, x: Array) -> Array:
    """The logarithm of |Gamma(x)|, below 1/2 by its reflection."""
    given = floating(x)
    wide = in_float(given)
    is_low = wide < 0.5
    z = where(is_low, -wide, wide - 1)
    series = np.full(z.shape, 0.99999999999980993228, z.dtype)
    for k, c in enumerate(_LANCZOS, 1):
        series = series + c / (z + k)
    logarithm = np.log1p(z / 7.5) + math.log(7.5)
    above = (z + 0.5 - (z + 7.5) / logarithm) * logarithm
    above = above + (np.log(series) + math.log(2 * math.pi) / 2)
    magnitude = np.abs(wide)
    part = magnitude - np.floor(magnitude)
    sine = np.log(np.sin(where(part > 0.5, 1 - part, part) * math.pi))
    below = where(np.isfinite(sine), math.log(math.pi) - sine - above, -sine)
    found = where(np.isinf(wide), math.inf, where(is_low, below, above))
    return found.astype(given.dtype)


@operator("aten.sign.default")
def _sign(node: Node, x: Array) -> Array:
    if x.dtype is dtypes.boolean:
        return x
    if x.dtype.exponent_bits or x.dtype.kind == "float":  # PyTorch's, of which NaN is 0
        return select_elements(np.not_equal(x, x), 0, apply_elementwise("sign", x))
    return apply_elementwise("sign", x)


operator("aten.signbit.default")(lambda node, x: np.signbit(x) if _is_float(x) else np.less(x, 0))
operator("aten.isnan.default")(lambda node, x: np.not_equal(x, x))
operator("aten.isinf.default")(lambda node, x: np.equal(np.abs(floating(x)), float("inf")))


@operator("aten.round.decimals")
def _round_to(node: Node, x: Array, *, decimals: int) -> Array:
    scale = 10.0 ** abs(decimals)
    wide = np.multiply(x, scale) if decimals > 0 else np.divide(x, scale)
    found = np.rint(wide)
    return np.divide(found, scale) if decimals > 0 else np.multiply(found, scale)


# ---- of two operands -------------------------------------------------------------------------------


def _scaled(y: Any, alpha: Any) -> Any:
    return y if alpha == 1 else np.multiply(y, alpha) if isinstance(y, Array) else y * alpha


@operator("aten.add.Tensor", "aten.add.Scalar")
def _add(node: Node, x: Any, y: Any, alpha: Any = 1) -> Array:
    return np.add(*promoted(x, _scaled(y, alpha), dtype=node.dtype))


@operator("aten.sub.Tensor", "aten.sub.Scalar")
def _sub(node: Node, x: Any, y: Any, alpha: Any = 1) -> Array:
    return np.subtract(*promoted(x, _scaled(y, alpha), dtype=node.dtype))


def _row_of_two(function: Callable[..., Array], *, in_own_type: bool = False) -> Callable[..., Array]:
    """A row of operands in the result's type, or in their common one."""
    return lambda node, x, y: function(*promoted(x, y, dtype=None if in_own_type else node.dtype))


_SHIFTS = {"signed": "arithmetic", "unsigned": "logical", "bool": "logical"}
_IN_TYPE_OF_RESULT: dict[tuple[str, ...], Callable[..., Array]] = {
    ("mul.Tensor", "mul.Scalar"): np.multiply,
    ("div.Tensor", "div.Scalar"): np.divide,
    ("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor"): np.remainder,
    ("fmod.Tensor", "fmod.Scalar"): partial(apply_elementwise, "fmod"),
    ("bitwise_and.Tensor", "bitwise_and.Scalar"): np.bitwise_and,
    ("bitwise_or.Tensor", "bitwise_or.Scalar"): np.bitwise_or,
    ("bitwise_xor.Tensor", "bitwise_xor.Scalar"): np.bitwise_xor,
    ("bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar", "__lshift__.Scalar"): partial(
        apply_elementwise, "shift_left"
    ),
    ("bitwise_right_shift.Tensor", "bitwise_right_shift.Tensor_Scalar", "__rshift__.Scalar"): (
        lambda x, by: apply_elementwise(f"shift_right_{_SHIFTS[x.dtype.kind]}", x, by)
    ),
    ("copysign.Tensor", "copysign.Scalar"): np.copysign,
    ("fmax.default",): np.fmax,
    ("fmin.default",): np.fmin,
    ("hypot.default",): np.hypot,
    ("logaddexp2.default",): np.logaddexp2,
    ("nextafter.default",): np.nextafter,
}
_IN_OWN_TYPE: dict[tuple[str, ...], Callable[..., Array]] = {
    ("maximum.default",): np.maximum,
    ("minimum.default",): np.minimum,
    ("eq.Tensor", "eq.Scalar"): np.equal,
    ("ne.Tensor", "ne.Scalar"): np.not_equal,
    ("lt.Tensor", "lt.Scalar"): np.less,
    ("le.Tensor", "le.Scalar"): np.less_equal,
    ("gt.Tensor", "gt.Scalar"): np.greater,
    ("ge.Tensor", "ge.Scalar"): np.greater_equal,
}
for _overloads, _function in _IN_TYPE_OF_RESULT.items():
    operator(*(f"aten.{o}" for o in _overloads))(_row_of_two(_function))
for _overloads, _function in _IN_OWN_TYPE.items():
    operator(*(f"aten.{o}" for o in _overloads))(_row_of_two(_function, in_own_type=True))


@operator("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def _div_by_mode(node: Node, x: Any, y: Any, *, rounding_mode: str | None = None) -> Array:
    a, b = promoted(x, y, dtype=node.dtype)
    if rounding_mode == "floor":
        found = np.floor_divide(a, b)
        if not _is_float(a):
            return found
        # At infinities by the remainder, as Python has it: 1.0 // -inf is -1, inf // 1.0 is NaN.
        is_below = np.logical_and(np.not_equal(np.less(a, 0), np.less(b, 0)), np.not_equal(a, 0))
        is_below = np.logical_and(is_below, np.equal(np.abs(b), math.inf))
        found = where(is_below, -1, found)
        return where(np.equal(np.abs(a), math.inf), math.nan, found)
    return np.trunc(np.divide(a, b)) if rounding_mode and _is_float(a) else quotient(a, b)


def _is_float(x: Array) -> bool:
    return x.dtype.kind not in (*_INTEGERS, "bool")


@operator("aten.gcd.default")
def _gcd(node: Node, x: Array, y: Array) -> Array:
    """By Euclid's steps, all elements at once."""
    pair = [np.abs(v) for v in np.broadcast_arrays(*promoted(x, y))]

    def step(pair: list[Array]) -> list[Array]:
        high, low = pair
        is_done = np.equal(low, 0)
        rest = np.remainder(high, where(is_done, 1, low).astype(low.dtype))
        return [where(is_done, high, low), where(is_done, low, rest)]

    return lax.while_loop(lambda pair: np.any(np.not_equal(pair[1], 0)), step, pair)[0]  # type: ignore[no-any-return]


@operator("aten.lcm.default")
def _lcm(node: Node, x: Array, y: Array) -> Array:
    x, y = promoted(x, y)
    common = _gcd(node, x, y)
    return np.abs(quotient(x, where(np.equal(common, 0), 1, common).astype(x.dtype)) * y)


@operator("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar")
def _pow(node: Node, x: Any, y: Any) -> Array:
    """Of a few exponents a product, a root or a quotient, as PyTorch has them."""
    if not isinstance(y, Array):
        base = as_type(x, node.dtype)
        match y if isinstance(y, complex) else float(y):
            case 1.0:
                return base
            case 2.0:
                return np.multiply(base, base)
            case 3.0:
                return np.multiply(np.multiply(base, base), base)
            case 0.5:
                return np.sqrt(base)
            case -0.5:
                return np.rsqrt(base)
            case -1.0:
                return np.divide(1, base)
    return np.power(*promoted(x, y, dtype=node.dtype))


@operator("aten.atan2.default", "aten.atan2.out")
def _atan2(node: Node, x: Array, y: Array, out: Any = None) -> Array:
    return np.atan2(*promoted(x, y, dtype=node.dtype))


def truth(x: Array) -> Array:
    """Which elements are not 0."""
    return x if x.dtype is dtypes.boolean else np.not_equal(x, 0)


def _logical(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda node, x, y: function(truth(x), truth(y))


for _name in ("and", "or", "xor"):
    operator(f"aten.logical_{_name}.default")(_logical(getattr(np, f"bitwise_{_name}")))


@operator("aten.logical_not.default")
def _logical_not(node: Node, x: Array) -> Array:
    return np.bitwise_invert(x) if x.dtype is dtypes.boolean else np.equal(x, 0)


# ---- choices ---------------------------------------------------------------------------------------


@operator("aten.clamp.default", "aten.clamp.Tensor")
def _clamp(node: Node, x: Array, low: Any = None, high: Any = None, **bounds: Any) -> Array:
    low, high = bounds.get("min", low), bounds.get("max", high)
    x = as_type(x, node.dtype)
    if low is not None:
        x = np.maximum(x, as_type(low, node.dtype))
    return x if high is None else np.minimum(x, as_type(high, node.dtype))


@operator("aten.hardtanh.default")
def _hardtanh(node: Node, x: Array, low: float = -1.0, high: float = 1.0) -> Array:
    return np.minimum(np.maximum(x, low), high)


@operator("aten.where.self")
def _where(node: Node, condition: Array, x: Any, y: Any) -> Array:
    return select_elements(truth(condition), *promoted(x, y, dtype=node.dtype))


@operator("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def _masked_fill(node: Node, x: Array, mask: Array, value: Any) -> Array:
    return select_elements(mask, as_type(value, x.dtype), x)


# ---- conversions -----------------------------------------------------------------------------------


def convert(x: Array, dtype: DType | None) -> Array:
    """In another type, or as it is: floats become integers towards zero, complex numbers lose their
    imaginary parts where they become real ones.
    """
    if dtype is None or x.dtype is dtype:
        return x
    if x.dtype.kind == "complex" and dtype.kind != "complex":
        x = truth(x) if dtype is dtypes.boolean else apply("real", x)
    return x.astype(dtype)


@operator("aten._to_copy.default", "prims.convert_element_type.default")
def _converted(node: Node, x: Array, dtype: DType | None = None) -> Array:
    return convert(x, dtype)


@operator("aten.view.dtype")
def _view_as(node: Node, x: Array, dtype: DType) -> Array:
    """The words of the elements, lowest first, as elements of another size along the last axis."""
    if "complex" in (x.dtype.kind, dtype.kind):
        raise node.refuse(
            f"of {x.dtype.name} as {dtype.name}: view_as_real and view_as_complex are read"
        )
    if x.dtype is dtypes.boolean:  # a byte that is 0 or 1
        x = x.astype(dtypes.uint8)
    to = dtypes.uint8 if dtype is dtypes.boolean else dtype
    *outer, last = x.shape or (1,)
    if to.itemsize < x.dtype.itemsize:
        parts = x.dtype.itemsize // to.itemsize
        split = apply("bitcast_convert", x, dtype=to, dims=(*x.shape, parts))
        found = np.reshape(split, (*outer, last * parts))
    elif to.itemsize > x.dtype.itemsize:
        parts = to.itemsize // x.dtype.itemsize
        split = np.reshape(x, (*outer, last // parts, parts))
        found = apply("bitcast_convert", split, dtype=to, dims=split.shape[:-1])
    else:
        found = apply("bitcast_convert", x, dtype=to, dims=x.shape)
    return truth(found) if dtype is dtypes.boolean else found


operator("aten.frexp.Tensor")(lambda node, x: np.frexp(x))


@operator(
    "aten.alias.default", "aten.detach.default", "aten.lift_fresh_copy.default", "aten.clone.default",
    "aten.contiguous.default",
)  # fmt: skip
def _same(node: Node, x: Array) -> Array:
    return x


@operator("aten.copy.default")
def _copy(node: Node, x: Array, source: Array) -> Array:
    return np.broadcast_to(as_type(source, x.dtype), x.shape)
