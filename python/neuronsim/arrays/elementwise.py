"""Elementwise functions: one for each row of the table, and those that are written with them.

>>> exp(asarray([0.0, 1.0], dtype="bfloat16"))
Array([1.  , 2.72], dtype=bfloat16)
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes, ops
from neuronsim.arrays.arguments import integers, number
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray, common_arrays, convert, float_array, is_weak, write
from neuronsim.arrays.default_types import array_type, default_dtype
from neuronsim.arrays.evaluation import apply_elementwise, elementwise_function
from neuronsim.arrays.indexing import nonzero
from neuronsim.arrays.manipulation import broadcast_shapes, broadcast_to, truth
from neuronsim.arrays.steps import in_float32
from neuronsim.arrays.ufuncs import Ufunc
from neuronsim.dtypes import Casting, DTypeLike
from neuronsim.errors import InvalidArgument, UnsupportedType, refusal

# What NumPy has no name for (E3).
_FORMULAS = {
    "sigmoid": ": 1 / (1 + e^-x)",
    "silu": ": x sigmoid(x)",
    "gelu": ": x Phi(x), Phi being the normal distribution",
    "gelu_tanh": ": x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))",
    "gelu_sigmoid": ": x sigmoid(1.702 x)",
    "softplus": ": ln(1 + e^x)",
    "mish": ": x tanh(softplus(x))",
    "rsqrt": ": 1 / sqrt(x)",
    "erf_dx": ": the derivative of erf",
    "silu_dx": ": the derivative of silu",
    "gelu_dx": ": the derivative of gelu",
    "gelu_sigmoid_dx": ": the derivative of gelu_sigmoid",
}
_INTEGRAL = ("signed", "unsigned", "bool")

# ---- one function for each row ---------------------------------------------------------------------


def _itself(x: Array) -> Array:
    return Array(ops.Bits(x.bits.data.copy(), x.dtype))


def _of_parts(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A function of floats for the real and the imaginary part (H1)."""
    return lambda z: Array(ops.apply("complex", [function(part(z)).bits for part in (real, imag)]))


def _is_finite_complex(z: Array) -> Array:
    parts = [apply_elementwise("isfinite", part(z)) for part in (real, imag)]
    return apply_elementwise("bitwise_and", *parts)


def _sign_of_float(x: Array) -> Array:
    """The sign of -0: the row has -0, arrays +0 (E9)."""
    found = apply_elementwise("sign", x)
    words = found.bits.data.view(f"u{found.dtype.itemsize}")
    words[words == 1 << (8 * found.dtype.itemsize - 1)] = 0
    return found


def _as_float(name: str) -> Callable[[Array], Array]:
    return lambda x: apply_elementwise(name, convert(x, default_dtype()))


# What takes the place of a row for the types of a kind.
_BY_KIND: dict[str, dict[str, Callable[[Array], Array]]] = {
    "floor": dict.fromkeys(_INTEGRAL, _itself),
    "ceil": dict.fromkeys(_INTEGRAL, _itself),
    "trunc": dict.fromkeys(_INTEGRAL, _itself),
    "rint": {
        **dict.fromkeys(_INTEGRAL, _as_float("rint")),
        "complex": _of_parts(lambda x: apply_elementwise("rint", x)),
    },
    "abs": {"bool": _itself},
    "sign": {"float": _sign_of_float},
    "signbit": dict.fromkeys(_INTEGRAL, lambda x: apply_elementwise("less", x, 0)),
    "isfinite": {"complex": _is_finite_complex},
}


def _by_kind(name: str, own: Mapping[str, Callable[[Array], Array]]) -> Callable[[Any], Array]:
    def compute(x: Any) -> Array:
        if hasattr(x, "__neuronsim_apply__"):
            return apply_elementwise(name, x)
        a = asarray(x)
        function = own.get(a.dtype.kind)
        return apply_elementwise(name, a) if function is None else function(a)

    return compute


def _function_of_row(row: ops.Op) -> Ufunc:
    compute: Callable[..., Any] = elementwise_function(row.name)
    by_kind = _BY_KIND.get(row.name, {})
    if by_kind:
        compute = _by_kind(row.name, by_kind)
    names = ("x",) if row.arity == 1 else tuple(f"x{n + 1}" for n in range(row.arity))
    scalar = ops.ArrayType(dtypes.float32, ())
    result = row.infer_array([scalar] * row.arity, {})
    of = "1 array" if row.arity == 1 else f"{row.arity} arrays"
    rounding = "rounded once (E1)"
    if row.name in ops.FUNCTIONS_OF_FLOATS:
        rounding = "the nearest float32 (E2-E4), rounded once more to a narrower type (E1)"
    doc = (
        f"Elementwise {row.name}{f' (HLO `{row.opcode}`)' if row.opcode else ''} of {of}"
        f"{_FORMULAS.get(row.name, '')}, broadcast, in the common type, {rounding}."
    )
    own = None if "float" in by_kind else row.name
    return Ufunc(row.name, compute, names, doc, predicate=result.dtype is dtypes.boolean, row=own)


ELEMENTWISE = {
    row.name: _function_of_row(row)
    for row in ops.OPS.values()
    if row.core is not None and row.name != "select"
}

# ---- functions that are written with them ----------------------------------------------------------


def _ufunc(nout: int = 1, *, predicate: bool = False) -> Callable[[Callable[..., Any]], Ufunc]:
    """Decorates a function of positional arrays that is to be a Ufunc."""

    def made(function: Callable[..., Any]) -> Ufunc:
        names = tuple(inspect.signature(function).parameters)
        doc = function.__doc__ or ""
        return Ufunc(function.__name__, function, names, doc, nout=nout, predicate=predicate)

    return made


def _floats(*operands: Any) -> list[Array]:
    """The operands in their common float type; integers and bool take the default one."""
    arrays = common_arrays(*operands)
    return [convert(a, default_dtype()) if a.dtype.kind in _INTEGRAL else a for a in arrays]


def _real_float(name: str, x: Any) -> Array:
    a = float_array(x)
    if a.dtype.kind != "float":
        raise UnsupportedType(
            f"{name} is not defined for {a.dtype.name}: take its real or imaginary part"
        )
    return a


def _integers(name: str, *operands: Any) -> list[Array]:
    arrays = common_arrays(*operands)
    if arrays[0].dtype.kind not in ("signed", "unsigned"):
        raise UnsupportedType(f"{name} is not defined for {arrays[0].dtype.name}: it takes integers")
    broadcast_shapes(*(a.shape for a in arrays))  # which refuses others
    return arrays


def where(condition: Any, x1: Any = None, x2: Any = None, /) -> Any:
    """x1 where `condition` holds or, of another type, is other than zero (C6), x2 elsewhere; moves bits
    (E6). Of a condition alone the indices where it holds, as `nonzero` gives them.

    >>> where(asarray([True, False]), asarray([1.0, 2.0]), 0)
    Array([1., 0.], dtype=float32)
    """
    if x1 is None and x2 is None:
        return nonzero(condition)
    if x1 is None or x2 is None:
        raise UnsupportedType("where() takes a condition alone, or with both x1 and x2")
    return _select(_truth(condition), x1, x2)


def _select(condition: Any, x1: Any, x2: Any) -> Array:
    return apply_elementwise("select", condition, x1, x2)


def _truth(x: Any) -> Array:
    """`truth`, of what records operations too."""
    return apply_elementwise("not_equal", x, False) if hasattr(x, "__neuronsim_apply__") else truth(x)


@_ufunc(predicate=True)
def logical_and(x1: Any, x2: Any, /) -> Array:
    """Whether both elements are not zero; NaN is not zero."""
    return apply_elementwise("bitwise_and", _truth(x1), _truth(x2))


@_ufunc(predicate=True)
def logical_or(x1: Any, x2: Any, /) -> Array:
    """Whether an element is not zero; NaN is not zero."""
    return apply_elementwise("bitwise_or", _truth(x1), _truth(x2))


@_ufunc(predicate=True)
def logical_xor(x1: Any, x2: Any, /) -> Array:
    """Whether one element and not the other is not zero; NaN is not zero."""
    return apply_elementwise("bitwise_xor", _truth(x1), _truth(x2))


@_ufunc(predicate=True)
def logical_not(x: Any, /) -> Array:
    """Whether the element is zero; NaN is not zero."""
    return apply_elementwise("bitwise_invert", _truth(x))


@_ufunc()
def positive(x: Any, /) -> Array:
    """The elements themselves, in an array of their own (E6)."""
    return _itself(asarray(x))


@_ufunc()
def square(x: Any, /) -> Array:
    """The product of x and x, rounded once (E1)."""
    return apply_elementwise("multiply", x, x)


def real(x: Any, /) -> Array:
    """The real part: of complex64 a float32; all other types are their own."""
    a = asarray(x)
    return Array(ops.apply("real", [a.bits])) if a.dtype.kind == "complex" else a


def imag(x: Any, /) -> Array:
    """The imaginary part: of complex64 a float32; of all other types zeros.

    >>> imag(asarray([1 + 2j])), imag(asarray([3]))
    (Array([2.], dtype=float32), Array([0], dtype=int64))
    """
    a = asarray(x)
    if a.dtype.kind == "complex":
        return Array(ops.apply("imag", [a.bits]))
    return Array(ops.Bits(np.zeros(a.shape, a.dtype.storage), a.dtype))


@_ufunc()
def conj(x: Any, /) -> Array:
    """The complex conjugate; real types are their own (E6)."""
    a = asarray(x)
    if a.dtype.kind != "complex":
        return _itself(a)
    return Array(ops.Bits(np.asarray(a.bits.data.conj()), a.dtype))


def angle(z: Any, deg: bool = False) -> Array:
    """atan2(imag(z), real(z)), with `deg` in degrees by `rad2deg`."""
    found = apply_elementwise("atan2", imag(z), real(z))
    return rad2deg(found) if deg else found


def isreal(x: Any, /) -> Array:
    """Whether the imaginary part is zero."""
    return apply_elementwise("equal", imag(x), 0)


def iscomplex(x: Any, /) -> Array:
    """Whether the imaginary part is not zero."""
    return apply_elementwise("not_equal", imag(x), 0)


def real_if_close(a: Any, tol: float = 100) -> Array:
    """The real part, if every imaginary one is below `tol` in absolute value; a `tol` above 1 counts in
    eps of the type. Real arrays stay.

    >>> real_if_close(asarray([1 + 1e-7j])), real_if_close(asarray([1 + 1e-7j]), tol=0.5e-7)
    (Array([1.], dtype=float32), Array([1.+1.e-07j], dtype=complex64))
    """
    x = asarray(a)
    if x.dtype.kind != "complex":
        return x
    parts, tol = x.bits.data.imag, number("tol", tol)
    limit = float(np.finfo(parts.dtype).eps) * tol if tol > 1 else tol
    return real(x) if np.all(np.abs(parts) < limit) else x


def isposinf(x: Any, /, out: Any = None) -> Array:
    """Whether the element is +Inf."""
    a = asarray(x)
    found = ELEMENTWISE["isinf"](a) & ~ELEMENTWISE["signbit"](a)
    return found if out is None else write(out, found)


def isneginf(x: Any, /, out: Any = None) -> Array:
    """Whether the element is -Inf."""
    a = asarray(x)
    found = ELEMENTWISE["isinf"](a) & ELEMENTWISE["signbit"](a)
    return found if out is None else write(out, found)


@_ufunc()
def copysign(x1: Any, x2: Any, /) -> Array:
    """The magnitude of x1 with the sign of x2, also of zeros and NaN (E6); integers become floats."""
    return apply_elementwise("copysign", *_floats(x1, x2))


@_ufunc()
def nextafter(x1: Any, x2: Any, /) -> Array:
    """The next value of the operands' own type after x1 towards x2 (E9).

    >>> float(nextafter(asarray(1.0, "bfloat16"), asarray(2.0, "bfloat16")))
    1.0078125
    """
    a, b = _floats(x1, x2)
    dims = broadcast_shapes(a.shape, b.shape)
    return Array(ops.apply("nextafter", [broadcast_to(v, dims).bits for v in (a, b)]))


@_ufunc()
def spacing(x: Any, /) -> Array:
    """The distance from |x| to the next larger value of the type, with the sign of x; Inf at the
    largest finite value, NaN of Inf and NaN.

    >>> spacing(asarray([1.0, -4.0], "bfloat16"))
    Array([ 0.0078, -0.0312], dtype=bfloat16)
    """
    a = _real_float("spacing", x)
    size = apply_elementwise("abs", a)
    found = apply_elementwise("subtract", nextafter(size, math.inf), size)
    return _select(apply_elementwise("less", a, 0), apply_elementwise("negative", found), found)


@_ufunc()
def right_shift(x1: Any, x2: Any, /) -> Array:
    """NumPy's >>: arithmetic where the common type is signed, logical where it is unsigned (E8).

    >>> right_shift(asarray([-8, 8]), 1), right_shift(asarray([255], "uint8"), asarray([True]))
    (Array([-4,  4], dtype=int64), Array([127], dtype=uint8))
    """
    a, b = common_arrays(x1, x2)
    kind = "logical" if a.dtype.kind == "unsigned" else "arithmetic"
    return apply_elementwise(f"shift_right_{kind}", a, b)


@_ufunc()
def bitwise_count(x: Any, /) -> Array:
    """How many bits of the integer's magnitude are set, as uint8.

    >>> bitwise_count(asarray([7, -8]))
    Array([3, 1], dtype=uint8)
    """
    a = asarray(x)
    if a.dtype is not dtypes.boolean:
        (a,) = _integers("bitwise_count", a)
        a = apply_elementwise("population_count", apply_elementwise("abs", a))
    return convert(a, dtypes.uint8)


@_ufunc()
def gcd(x1: Any, x2: Any, /) -> Array:
    """The greatest common divisor of integers, exact modulo 2^n."""
    return _of_integers(np.gcd, x1, x2)


@_ufunc()
def lcm(x1: Any, x2: Any, /) -> Array:
    """The least common multiple of integers, exact modulo 2^n."""
    return _of_integers(np.lcm, x1, x2)


def _of_integers(function: np.ufunc, x1: Any, x2: Any) -> Array:
    """NumPy's, in whose common type integers stay."""
    a, b = _integers(function.__name__, x1, x2)
    try:
        return Array(ops.Bits(np.asarray(function(a.bits.data, b.bits.data)), a.dtype))
    except ValueError as error:
        raise refusal(f"{function.__name__} of {a.bits.type} and {b.bits.type}", error) from error


@_ufunc(2)
def divmod(x1: Any, x2: Any, /) -> tuple[Array, Array]:  # noqa: A001
    """floor_divide and remainder (E8, E9)."""
    return apply_elementwise("floor_divide", x1, x2), apply_elementwise("remainder", x1, x2)


@_ufunc()
def float_power(x1: Any, x2: Any, /) -> Array:
    """x1 to the power of x2 in a float type, which integers take first (E4)."""
    return apply_elementwise("power", *_floats(x1, x2))


@_ufunc()
def fabs(x: Any, /) -> Array:
    """The magnitude in a float type, which integers take first (E6)."""
    return apply_elementwise("abs", _real_float("fabs", x))


def _but_for_nan(name: str, x1: Any, x2: Any) -> Array:
    """A row of two operands; where one is NaN, the other."""
    a, b = common_arrays(x1, x2)
    found = apply_elementwise(name, a, b)
    if a.dtype.kind != "float":
        return found
    found = _select(apply_elementwise("isnan", b), a, found)
    return _select(apply_elementwise("isnan", a), b, found)


@_ufunc()
def fmax(x1: Any, x2: Any, /) -> Array:
    """The maximum (E7), but of a number and NaN the number."""
    return _but_for_nan("maximum", x1, x2)


@_ufunc()
def fmin(x1: Any, x2: Any, /) -> Array:
    """The minimum (E7), but of a number and NaN the number."""
    return _but_for_nan("minimum", x1, x2)


@_ufunc()
def heaviside(x1: Any, x2: Any, /) -> Array:
    """0 below zero, x2 at zero, 1 above; NaN of NaN."""
    a, b = _floats(x1, x2)
    beside = _select(apply_elementwise("less", a, 0), convert(asarray(0), a.dtype), 1)
    found = _select(apply_elementwise("equal", a, 0), b, beside)
    return _select(apply_elementwise("isnan", a), a, found)


@_ufunc(2)
def modf(x: Any, /) -> tuple[Array, Array]:
    """The fraction and the whole part, both exact with the sign of x; Inf has the fraction 0.

    >>> modf(asarray([-2.5, 3.0]))
    (Array([-0.5,  0. ], dtype=float32), Array([-2.,  3.], dtype=float32))
    """
    a = _real_float("modf", x)
    whole = apply_elementwise("trunc", a)
    rest = _select(apply_elementwise("isinf", a), 0, apply_elementwise("subtract", a, whole))
    return apply_elementwise("copysign", rest, a), whole


@_ufunc(2)
def frexp(x: Any, /) -> tuple[Array, Array]:
    """The m and the int32 e of x = m 2^e with 1/2 <= |m| < 1, which moves bits; zeros, Inf and NaN are
    their own m, with e = 0.

    >>> frexp(asarray([10.0, -0.25], "bfloat16"))
    (Array([ 0.625, -0.5  ], dtype=bfloat16), Array([ 4, -1], dtype=int32))
    """
    a = _real_float("frexp", x)
    if a.dtype is dtypes.float64:
        mantissa, exponent = np.frexp(a.bits.data)
    else:
        mantissa, exponent = _parts_of_float32(convert(a, dtypes.float32))
    wide = dtypes.float64 if a.dtype is dtypes.float64 else dtypes.float32
    found = Array(ops.Bits(np.asarray(mantissa), wide))
    return convert(found, a.dtype), Array(ops.Bits(np.asarray(exponent, np.int32), dtypes.int32))


def _parts_of_float32(x: Array) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    words = x.bits.data.view(np.uint32)
    field, fraction = words >> 23 & 0xFF, words & 0x7FFFFF
    zeros = ops.apply("count_leading_zeros", [ops.Bits(np.asarray(fraction), dtypes.uint32)]).data
    # A subnormal's first bit moves to the place of the hidden one.
    shift = np.where(field == 0, zeros - 8, 0).astype(np.int32)
    fraction = fraction << np.where(fraction == 0, 0, shift) & 0x7FFFFF
    plain = (field == 0xFF) | (words & 0x7FFFFFFF == 0)
    mantissa = np.where(plain, words, words & 0x80000000 | 126 << 23 | fraction)
    exponent = np.where(plain, 0, field.astype(np.int32) + (field == 0) - shift - 126)
    return mantissa.astype(np.uint32).view(np.float32), exponent


@_ufunc()
def ldexp(x1: Any, x2: Any, /) -> Array:
    """x1 times 2 to the power of the integer x2, exact in float32 but for one rounding where the result
    is subnormal; to a narrower type one more (E1).

    >>> ldexp(asarray([0.75, 1.0], "bfloat16"), asarray([3, -200]))
    Array([6., 0.], dtype=bfloat16)
    """
    a, n = _real_float("ldexp", x1), asarray(x2)
    if n.dtype.kind not in _INTEGRAL:
        raise UnsupportedType(f"ldexp by {n.dtype.name}: the exponent is an integer")
    broadcast_shapes(a.shape, n.shape)  # which refuses others
    steps = np.clip(n.bits.data, 0 if n.dtype.kind == "unsigned" else -5000, 5000).astype(np.int64)
    if a.dtype is dtypes.float64:
        with np.errstate(all="ignore"):
            return Array(ops.Bits(np.asarray(np.ldexp(a.bits.data, steps)), a.dtype))
    mantissa, exponent = frexp(convert(a, dtypes.float32))
    total = exponent.bits.data + steps - 1
    power = np.clip(total, -149, 127)
    # What one factor does not reach makes the mantissa, first and exactly, smaller or larger.
    rest = np.clip(total - power, -2, 1) + 1
    scaled = apply_elementwise("multiply", mantissa, _power_of_two(rest))
    return convert(apply_elementwise("multiply", scaled, _power_of_two(power)), a.dtype)


def _power_of_two(n: npt.NDArray[Any]) -> Array:
    """2^n in float32 for n from -149 to 127."""
    words = np.where(n < -126, 1 << np.maximum(n + 149, 0), np.maximum(n + 127, 0) << 23)
    return Array(ops.Bits(np.asarray(words, np.uint32).view(np.float32), dtypes.float32))


@_ufunc()
@in_float32("x")
def deg2rad(x: Any, /) -> Array:
    """The product of x and the float32 nearest to pi / 180 (R7): of two roundings, so not always the
    nearest float32.
    """
    return apply_elementwise("multiply", x, math.pi / 180)


@_ufunc()
@in_float32("x")
def rad2deg(x: Any, /) -> Array:
    """The product of x and the float32 nearest to 180 / pi (R7): of two roundings, so not always the
    nearest float32.
    """
    return apply_elementwise("multiply", x, 180 / math.pi)


@in_float32("x")
def sinc(x: Any, /) -> Array:
    """sin(p) / p of p = x times the float32 nearest to pi, in float32 steps (R7); 1 at zero."""
    p = apply_elementwise("multiply", x, math.pi)
    found = apply_elementwise("divide", apply_elementwise("sin", p), p)
    return _select(apply_elementwise("equal", x, 0), 1, found)


def round(x: Any, /, decimals: int = 0, out: Any = None) -> Array:  # noqa: A001
    """The nearest integers, ties to even; integers are themselves. With `decimals` rint(x 10^d) / 10^d,
    with negative ones rint(x / 10^-d) 10^-d, in float32 steps (R7); of integers exactly.

    >>> round(asarray([2.5, 1.5])), round(asarray([25, -151]), -1)
    (Array([2., 2.], dtype=float32), Array([  20, -150], dtype=int64))
    """
    a, (places,) = asarray(x), integers("decimals", (decimals,))
    if places < -38 or places > 38:
        raise InvalidArgument(f"round to {places} decimals: from -38 to 38 10^d is a float32")
    found = _rounded(a, places)
    return found if out is None else write(out, found)


def _rounded(a: Array, places: int) -> Array:
    integral = a.dtype.kind in _INTEGRAL
    if integral and places >= 0:
        return _itself(a)
    if integral:
        return _rounded_integers(a, 10**-places)
    if places == 0:
        return ELEMENTWISE["rint"](a)
    if a.dtype.kind == "complex":
        return _of_parts(lambda part: _rounded(part, places))(a)
    found: Array = _rounded_decimals(a, places)
    return found


@in_float32("x")
def _rounded_decimals(x: Any, places: int) -> Array:
    there, back = ("multiply", "divide") if places > 0 else ("divide", "multiply")
    scale = 10.0 ** (places if places > 0 else -places)
    return apply_elementwise(back, apply_elementwise("rint", apply_elementwise(there, x, scale)), scale)


def _rounded_integers(a: Array, unit: int) -> Array:
    (a,) = _integers("round", a)
    if unit > np.iinfo(a.dtype.numpy).max:
        return apply_elementwise("multiply", a, 0)
    below, rest = divmod(a, unit)
    other = unit - rest
    odd = (below & 1) == 1
    up = (rest > other) | ((rest == other) & odd)
    nearest = apply_elementwise("add", below, convert(up, a.dtype))
    return apply_elementwise("multiply", nearest, unit)


def clip(
    x: Any,
    /,
    min: Any = None,  # noqa: A002
    max: Any = None,  # noqa: A002
    out: Any = None,
    *,
    a_min: Any = None,
    a_max: Any = None,
    where: Any = True,
    dtype: DTypeLike | None = None,
    casting: Casting = "same_kind",
) -> Array:
    """minimum(maximum(x, min), max) in the type of x (E7); a bound that is None does not act.

    Raises UnsupportedType for bounds of another kind, as 0.5 is for integers.

    >>> clip(asarray([-1, 5]), 0, 3)
    Array([0, 3], dtype=int64)
    """
    found = asarray(x) if dtype is None else convert(asarray(x), array_type(dtype))
    target = found.dtype
    bounds = {"maximum": a_min if min is None else min, "minimum": a_max if max is None else max}
    for name, bound in bounds.items():
        if bound is not None:
            if not _bounds(bound, target):
                raise UnsupportedType(
                    f"clip of {target.name} by {bound!r}: x and bounds are all integers or all floats"
                )
            found = apply_elementwise(name, found, bound)
    acts = any(bound is not None for bound in bounds.values())
    found = convert(found, target) if acts else _itself(found)
    if out is None and where is True:
        return found
    return positive(found, out=out, where=where, casting=casting)


def _bounds(bound: Any, target: dtypes.DType) -> bool:
    """Whether a bound of `clip` has the kind of its array: a Python integer has that of floats too."""
    if type(bound) is float:
        return target.kind == "float"
    kind = asarray(bound).dtype.kind
    if is_weak(bound) and kind == "signed":
        return target.kind != "bool"
    integers = ("signed", "unsigned")
    return kind == target.kind or (kind in integers and target.kind in integers)


def isclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Array:
    """Whether |a - b| <= atol + rtol |b| with b finite, or a == b, in float32 steps (R7).

    >>> isclose(asarray([1.0, 1.1]), 1.000001)
    Array([ True, False], dtype=bool)
    """
    found: Array = _is_close(a, b, rtol, atol, equal_nan)
    return found


@in_float32("a", "b")
def _is_close(a: Any, b: Any, rtol: float, atol: float, equal_nan: bool) -> Array:
    gap = apply_elementwise("abs", apply_elementwise("subtract", a, b))
    size = apply_elementwise("multiply", apply_elementwise("abs", b), rtol)
    near = apply_elementwise("less_equal", gap, apply_elementwise("add", size, atol))
    found = logical_or(near & ELEMENTWISE["isfinite"](b), apply_elementwise("equal", a, b))
    if equal_nan:
        both = logical_and(apply_elementwise("isnan", a), apply_elementwise("isnan", b))
        found = logical_or(found, both)
    return found


def nan_to_num(
    x: Any,
    copy: bool = True,
    nan: Any = 0.0,
    posinf: Any = None,
    neginf: Any = None,
) -> Array:
    """`nan` for NaN, `posinf` and `neginf` for the infinities, without them the largest and the least
    finite value of the type; with copy=False in place.

    >>> nan_to_num(asarray([math.nan, math.inf, 1.0], "float8_e4m3"))
    Array([  0., 240.,   1.], dtype=float8_e4m3)
    """
    a = asarray(x)
    if a.dtype.kind == "complex":
        found = _of_parts(lambda part: nan_to_num(part, True, nan, posinf, neginf))(a)
    elif a.dtype.kind in _INTEGRAL:
        found = _itself(a)
    else:
        largest = a.dtype.max if a.dtype.exponent_bits else float(np.finfo(np.float64).max)
        found = _select(apply_elementwise("isnan", a), nan, a)
        found = _select(isposinf(a), largest if posinf is None else posinf, found)
        found = _select(isneginf(a), -largest if neginf is None else neginf, found)
    return found if copy else write(a, found)


# ---- names -----------------------------------------------------------------------------------------

ELEMENTWISE["copysign"] = copysign
globals().update({name: f for name, f in ELEMENTWISE.items() if name not in globals()})

# NumPy's and the array API's further names of a function.
_ALIASES = {
    **{f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "tan2")},
    "absolute": "abs",
    "around": "round",
    "bitwise_left_shift": "shift_left",
    "bitwise_not": "bitwise_invert",
    "bitwise_right_shift": "right_shift",
    "conjugate": "conj",
    "degrees": "rad2deg",
    "fix": "trunc",
    "invert": "bitwise_invert",
    "left_shift": "shift_left",
    "mod": "remainder",
    "pow": "power",
    "radians": "deg2rad",
    "true_divide": "divide",
}
globals().update({alias: globals()[name] for alias, name in _ALIASES.items()})

__all__ = [
    *dict.fromkeys([*ELEMENTWISE, *(name for name, f in globals().items() if isinstance(f, Ufunc))]),
    *("angle", "around", "clip", "imag", "isclose", "iscomplex", "isneginf", "isposinf", "isreal"),
    *("nan_to_num", "real", "real_if_close", "round", "sinc", "where"),
]
# The examples of the functions that are no functions of Python.
__test__ = {name: f.__doc__ for name, f in globals().items() if isinstance(f, Ufunc)}

if TYPE_CHECKING:

    def __getattr__(name: str) -> Ufunc: ...  # those of ELEMENTWISE and _ALIASES
