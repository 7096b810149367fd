"""Elementwise operators: arithmetic, comparisons, bits, and conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.evaluation import apply_elementwise, select_elements
from neuronsim.dtypes import DType
from neuronsim.frontends.primitives import apply, quotient
from neuronsim.frontends.torch.promotion import as_type, floating, promoted
from neuronsim.frontends.torch.table import Node, operator

_INTEGERS = ("signed", "unsigned")

# ---- of one operand --------------------------------------------------------------------------------

# Of floats, and integers as float32. What HLO has no opcode for is spelled by its neighbours that have
# one, of the same bits, as XLA has them: atan(x) is atan2(x, 1).
_OF_FLOATS: dict[str, Callable[[Array], Array]] = {
    **{n: getattr(np, n) for n in ("acos", "acosh", "asin", "asinh", "atanh", "cos", "cosh", "erf")},
    **{n: getattr(np, n) for n in ("exp", "expm1", "log", "log10", "log1p", "log2", "rsqrt")},
    **{n: getattr(np, n) for n in ("sigmoid", "sin", "sinh", "sqrt", "tan", "tanh")},
    "atan": lambda x: np.atan2(x, 1),
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


@operator("aten.sign.default")
def _sign(node: Node, x: Array) -> Array:
    if x.dtype is dtypes.boolean:
        return x
    if x.dtype.exponent_bits or x.dtype.kind == "float":  # PyTorch's, of which NaN is 0
        return select_elements(np.not_equal(x, x), 0, apply_elementwise("sign", x))
    return apply_elementwise("sign", x)


@operator("aten.isnan.default")
def _isnan(node: Node, x: Array) -> Array:
    return np.not_equal(x, x)


@operator("aten.isinf.default")
def _isinf(node: Node, x: Array) -> Array:
    return np.equal(np.abs(floating(x)), float("inf"))


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


@operator("aten.mul.Tensor", "aten.mul.Scalar")
def _mul(node: Node, x: Any, y: Any) -> Array:
    return np.multiply(*promoted(x, y, dtype=node.dtype))


@operator("aten.div.Tensor", "aten.div.Scalar")
def _div(node: Node, x: Any, y: Any) -> Array:
    return np.divide(*promoted(x, y, dtype=node.dtype))


@operator("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def _div_by_mode(node: Node, x: Any, y: Any, *, rounding_mode: str | None = None) -> Array:
    a, b = promoted(x, y, dtype=node.dtype)
    if rounding_mode == "floor":
        return np.floor_divide(a, b)
    return np.trunc(np.divide(a, b)) if rounding_mode and _is_float(a) else quotient(a, b)


def _is_float(x: Array) -> bool:
    return x.dtype.kind not in (*_INTEGERS, "bool")


@operator("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def _remainder(node: Node, x: Any, y: Any) -> Array:
    a, b = promoted(x, y, dtype=node.dtype)
    return np.remainder(a, b)


@operator("aten.fmod.Tensor", "aten.fmod.Scalar")
def _fmod(node: Node, x: Any, y: Any) -> Array:
    return apply_elementwise("fmod", *promoted(x, y, dtype=node.dtype))


@operator("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar")
def _pow(node: Node, x: Any, y: Any) -> Array:
    """Of a few exponents a product, a root or a quotient, as PyTorch has them."""
    if not isinstance(y, Array):
        base = as_type(x, node.dtype)
        match float(y):
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


for _name in ("maximum", "minimum"):

    @operator(f"aten.{_name}.default")
    def _extreme(node: Node, x: Array, y: Array, kind: str = _name) -> Array:
        function: Callable[..., Array] = getattr(np, kind)
        return function(*promoted(x, y))


def _comparison(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda node, x, y: function(*promoted(x, y))


for _name, _full in {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}.items():  # fmt: skip
    operator(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar")(_comparison(getattr(np, _full)))


def _bits(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda node, x, y: function(*promoted(x, y, dtype=node.dtype))


for _name in ("and", "or", "xor"):
    operator(f"aten.bitwise_{_name}.Tensor", f"aten.bitwise_{_name}.Scalar")(
        _bits(getattr(np, f"bitwise_{_name}"))
    )


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


def _shift(name: str) -> Callable[..., Array]:
    def run(node: Node, x: Any, y: Any) -> Array:
        a, b = promoted(x, y, dtype=node.dtype)
        return apply_elementwise(name, a, b)

    return run


operator("aten.bitwise_left_shift.Tensor", "aten.__lshift__.Scalar")(_shift("shift_left"))
operator("aten.bitwise_right_shift.Tensor", "aten.__rshift__.Scalar")(_shift("shift_right_arithmetic"))

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
    """In another type, or as it is: floats become integers towards zero."""
    return x if dtype is None or x.dtype is dtype else x.astype(dtype)


@operator("aten._to_copy.default")
def _to_copy(node: Node, x: Array, *, dtype: DType | None = None) -> Array:
    return convert(x, dtype)


@operator("prims.convert_element_type.default")
def _convert(node: Node, x: Array, dtype: DType) -> Array:
    return convert(x, dtype)


@operator("aten.view.dtype")
def _view_as(node: Node, x: Array, dtype: DType) -> Array:
    if dtype.itemsize != x.dtype.itemsize:
        raise node.refuse(f"of {x.dtype.name} as {dtype.name}: elements of one size are taken")
    return apply("bitcast_convert", x, dtype=dtype, dims=x.shape)


@operator("aten.alias.default", "aten.detach.default", "aten.lift_fresh_copy.default")
def _same(node: Node, x: Array) -> Array:
    return x


@operator("aten.clone.default", "aten.contiguous.default")
def _clone(node: Node, x: Array) -> Array:
    return x


@operator("aten.copy.default")
def _copy(node: Node, x: Array, source: Array) -> Array:
    return np.broadcast_to(as_type(source, x.dtype), x.shape)
