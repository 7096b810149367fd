"""Elementwise functions: one for each row of the table, and those that are written with them.

>>> exp(asarray([0.0, 1.0], dtype="bfloat16"))
Array([1.  , 2.72], dtype=bfloat16)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.arrays.arguments import integers
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.complex_numbers import imag, real
from neuronsim.arrays.conversion import (
    INTEGRAL,
    asarray,
    common_arrays,
    convert,
    copied,
    in_floats,
    is_weak,
    real_float,
    write,
)
from neuronsim.arrays.default_types import array_type, default_dtype
from neuronsim.arrays.evaluation import apply_elementwise, elementwise_function, select_elements
from neuronsim.arrays.float_parts import copysign
from neuronsim.arrays.indexing import nonzero
from neuronsim.arrays.manipulation import broadcast_shapes, truth
from neuronsim.arrays.steps import in_float32
from neuronsim.arrays.ufuncs import Ufunc, as_ufunc
from neuronsim.dtypes import Casting, DTypeLike
from neuronsim.errors import InvalidArgument, UnsupportedType, refusal

# ---- one function for each row ---------------------------------------------------------------------


def _of_parts(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A function of floats for the real and the imaginary part (H1)."""
    return lambda z: Array(ops.apply("complex", [function(part(z)).bits for part in (real, imag)]))


def _is_finite_complex(z: Array) -> Array:
    parts = [apply_elementwise("isfinite", part(z)) for part in (real, imag)]
    return apply_elementwise("bitwise_and", *parts)


def _sign_of_float(x: Array) -> Array:
    """The sign of -0: the row has -0, arrays +0 (E9)."""
    found = apply_elementwise("sign", x)
    if not isinstance(found._data, np.ndarray):  # what records has no words to write
        return select_elements(apply_elementwise("equal", found, 0), 0, found)
    words = found.bits.data.view(f"u{found.dtype.itemsize}")
    words[words == 1 << (8 * found.dtype.itemsize - 1)] = 0
    return found


# What takes the place of a row for the types of a kind.
_BY_KIND: dict[str, dict[str, Callable[[Array], Array]]] = {
    "floor": dict.fromkeys(INTEGRAL, copied),
    "ceil": dict.fromkeys(INTEGRAL, copied),
    "trunc": dict.fromkeys(INTEGRAL, copied),
    "rint": {
        **dict.fromkeys(INTEGRAL, lambda x: apply_elementwise("rint", convert(x, default_dtype()))),
        "complex": _of_parts(lambda x: apply_elementwise("rint", x)),
    },
    "abs": {"bool": copied},
    "sign": {"float": _sign_of_float},
    "signbit": dict.fromkeys(INTEGRAL, lambda x: apply_elementwise("less", x, 0)),
    "isfinite": {"complex": _is_finite_complex},
}


def _by_kind(name: str, own: Mapping[str, Callable[[Array], Array]]) -> Callable[[Any], Array]:
    def compute(x: Any) -> Array:
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
        f"{row.formula and f': {row.formula}'}, broadcast, in the common type, {rounding}."
    )
    own = None if "float" in by_kind else row.name
    return Ufunc(
        row.name,
        compute,
        names,
        doc,
        predicate=result.dtype is dtypes.boolean,
        row=own,
        module=__name__,
    )


ELEMENTWISE = {
    row.name: _function_of_row(row)
    for row in ops.OPS.values()
    if row.core is not None and row.name != "select"
}

# ---- functions that are written with them ----------------------------------------------------------


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
    return select_elements(truth(condition), x1, x2)


@as_ufunc(predicate=True)
def logical_and(x1: Any, x2: Any, /) -> Array:
    """Whether both elements are not zero; NaN is not zero."""
    return apply_elementwise("bitwise_and", truth(x1), truth(x2))


@as_ufunc(predicate=True)
def logical_or(x1: Any, x2: Any, /) -> Array:
    """Whether an element is not zero; NaN is not zero."""
    return apply_elementwise("bitwise_or", truth(x1), truth(x2))


@as_ufunc(predicate=True)
def logical_xor(x1: Any, x2: Any, /) -> Array:
    """Whether one element and not the other is not zero; NaN is not zero."""
    return apply_elementwise("bitwise_xor", truth(x1), truth(x2))


@as_ufunc(predicate=True)
def logical_not(x: Any, /) -> Array:
    """Whether the element is zero; NaN is not zero."""
    return apply_elementwise("bitwise_invert", truth(x))


@as_ufunc()
def positive(x: Any, /) -> Array:
    """The elements themselves, in an array of their own (E6)."""
    return copied(asarray(x))


@as_ufunc()
def square(x: Any, /) -> Array:
    """The product of x and x, rounded once (E1)."""
    return apply_elementwise("multiply", x, x)


def angle(z: Any, deg: bool = False) -> Array:
    """atan2(imag(z), real(z)), with `deg` in degrees by `rad2deg`."""
    found = apply_elementwise("atan2", imag(z), real(z))
    return rad2deg(found) if deg else found


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


@as_ufunc()
def right_shift(x1: Any, x2: Any, /) -> Array:
    """NumPy's >>: arithmetic where the common type is signed, logical where it is unsigned (E8).

    >>> right_shift(asarray([-8, 8]), 1), right_shift(asarray([255], "uint8"), asarray([True]))
    (Array([-4,  4], dtype=int64), Array([127], dtype=uint8))
    """
    a, b = common_arrays(x1, x2)
    kind = "logical" if a.dtype.kind == "unsigned" else "arithmetic"
    return apply_elementwise(f"shift_right_{kind}", a, b)


@as_ufunc()
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


@as_ufunc()
def gcd(x1: Any, x2: Any, /) -> Array:
    """The greatest common divisor of integers, exact modulo 2^n."""
    return _of_integers(np.gcd, x1, x2)


@as_ufunc()
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


@as_ufunc(2)
def divmod(x1: Any, x2: Any, /) -> tuple[Array, Array]:  # noqa: A001
    """floor_divide and remainder (E8, E9)."""
    return apply_elementwise("floor_divide", x1, x2), apply_elementwise("remainder", x1, x2)


@as_ufunc()
def float_power(x1: Any, x2: Any, /) -> Array:
    """x1 to the power of x2 in a float type, which integers take first (E4)."""
    return apply_elementwise("power", *in_floats(x1, x2))


@as_ufunc()
def fabs(x: Any, /) -> Array:
    """The magnitude in a float type, which integers take first (E6)."""
    return apply_elementwise("abs", real_float("fabs", x))


def _but_for_nan(name: str, x1: Any, x2: Any) -> Array:
    """A row of two operands; where one is NaN, the other."""
    a, b = common_arrays(x1, x2)
    found = apply_elementwise(name, a, b)
    if a.dtype.kind != "float":
        return found
    found = select_elements(apply_elementwise("isnan", b), a, found)
    return select_elements(apply_elementwise("isnan", a), b, found)


@as_ufunc()
def fmax(x1: Any, x2: Any, /) -> Array:
    """The maximum (E7), but of a number and NaN the number."""
    return _but_for_nan("maximum", x1, x2)


@as_ufunc()
def fmin(x1: Any, x2: Any, /) -> Array:
    """The minimum (E7), but of a number and NaN the number."""
    return _but_for_nan("minimum", x1, x2)


@as_ufunc()
def heaviside(x1: Any, x2: Any, /) -> Array:
    """0 below zero, x2 at zero, 1 above; NaN of NaN."""
    a, b = in_floats(x1, x2)
    beside = select_elements(apply_elementwise("less", a, 0), convert(asarray(0), a.dtype), 1)
    found = select_elements(apply_elementwise("equal", a, 0), b, beside)
    return select_elements(apply_elementwise("isnan", a), a, found)


@as_ufunc()
@in_float32("x")
def deg2rad(x: Any, /) -> Array:
    """The product of x and the float32 nearest to pi / 180 (R7): of two roundings, so not always the
    nearest float32.
    """
    return apply_elementwise("multiply", x, math.pi / 180)


@as_ufunc()
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
    return select_elements(apply_elementwise("equal", x, 0), 1, found)


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
    integral = a.dtype.kind in INTEGRAL
    if integral and places >= 0:
        return copied(a)
    if integral:
        return _rounded_integers(a, 10**-places)
    if places == 0:
        return ELEMENTWISE["rint"](a)
    if a.dtype.kind == "complex":
        return _of_parts(lambda part: _rounded(part, places))(a)
    return _rounded_decimals(a, places)


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
    found = convert(found, target) if acts else copied(found)
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
    return _is_close(a, b, rtol, atol, equal_nan)


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
    elif a.dtype.kind in INTEGRAL:
        found = copied(a)
    else:
        largest = a.dtype.max if a.dtype.exponent_bits else float(np.finfo(np.float64).max)
        found = select_elements(apply_elementwise("isnan", a), nan, a)
        found = select_elements(isposinf(a), largest if posinf is None else posinf, found)
        found = select_elements(isneginf(a), -largest if neginf is None else neginf, found)
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

_UFUNCS = {
    name: f for name, f in globals().items() if isinstance(f, Ufunc) and f.__module__ == __name__
}
__all__ = [
    *dict.fromkeys([*ELEMENTWISE, *_UFUNCS]),
    *("angle", "around", "clip", "isclose", "isneginf", "isposinf", "nan_to_num", "round", "sinc"),
    "where",
]
__test__ = {name: f.__doc__ for name, f in _UFUNCS.items()}  # the examples of what is no function

if TYPE_CHECKING:

    def __getattr__(name: str) -> Ufunc: ...  # those of ELEMENTWISE and _ALIASES
