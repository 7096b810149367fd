"""Elementwise functions: one for each row of the table, and those that are written with them.

>>> exp(asarray([0.0, 1.0], dtype="bfloat16"))
Array([1.  , 2.72], dtype=bfloat16)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.arrays.array_object import Array, apply_elementwise, asarray, convert
from neuronsim.arrays.manipulation import broadcast_to
from neuronsim.errors import InvalidArgument

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


def _elementwise_function(row: ops.Op) -> Callable[..., Array]:
    def function(*operands: Any) -> Array:
        if len(operands) != row.arity:
            arrays = "1 array" if row.arity == 1 else f"{row.arity} arrays"
            raise TypeError(f"{row.name}() takes {arrays}, not {len(operands)}")
        return apply_elementwise(row.name, *operands)

    function.__name__ = function.__qualname__ = row.name
    of = "1 array" if row.arity == 1 else f"{row.arity} arrays"
    rounding = "rounded once (E1)"
    if row.name in ops.FUNCTIONS_OF_FLOATS:
        rounding = "the nearest float32 (E2-E4), rounded once more to a narrower type (E1)"
    function.__doc__ = (
        f"Elementwise {row.name}{f' (HLO `{row.opcode}`)' if row.opcode else ''} of {of}"
        f"{_FORMULAS.get(row.name, '')}, broadcast, in the common type, {rounding}."
    )
    return function


ELEMENTWISE = {
    row.name: _elementwise_function(row)
    for row in ops.OPS.values()
    if row.core is not None and row.name != "select"
}

# NumPy's names of the inverse functions, and the array API's of power.
arcsin, arccos, arctan = (ELEMENTWISE[name] for name in ("asin", "acos", "atan"))
arcsinh, arccosh, arctanh = (ELEMENTWISE[name] for name in ("asinh", "acosh", "atanh"))
arctan2, pow = ELEMENTWISE["atan2"], ELEMENTWISE["power"]  # noqa: A001


def where(condition: Any, x1: Any, x2: Any) -> Array:
    """x1 where the bool `condition` holds, x2 elsewhere; moves bits (E6)."""
    return apply_elementwise("select", condition, x1, x2)


def sign(x: Any) -> Array:
    """Elementwise -1, 0 or 1; the sign of -0 is +0 (E9), that of NaN is NaN.

    >>> sign(asarray([-2.0, -0.0, 3.0]))
    Array([-1.,  0.,  1.], dtype=float32)
    """
    a = asarray(x)
    found = apply_elementwise("sign", a)
    return where(apply_elementwise("equal", found, 0), 0, found) if a.dtype.kind == "float" else found


def nextafter(x1: Any, x2: Any) -> Array:
    """The next value of the operands' own type after x1 towards x2 (E9).

    >>> float(nextafter(asarray(1.0, "bfloat16"), asarray(2.0, "bfloat16")))
    1.0078125
    """
    weak = [isinstance(x, int | float) and not isinstance(x, np.generic) for x in (x1, x2)]
    a = asarray(x1, asarray(x2).dtype if weak[0] and not weak[1] else None)
    b = asarray(x2, a.dtype if weak[1] and not weak[0] else None)
    common = dtypes.result_type(a.dtype, b.dtype)
    try:
        dims = np.broadcast_shapes(a.shape, b.shape)
    except ValueError as error:
        raise InvalidArgument(f"nextafter: {a.shape} and {b.shape} do not broadcast") from error
    pair = [broadcast_to(convert(v, common), dims).bits for v in (a, b)]
    return Array(ops.apply("nextafter", pair))


def right_shift(x1: Any, x2: Any) -> Array:
    """NumPy's >>: arithmetic for signed types, logical for unsigned ones.

    >>> right_shift(asarray([-8, 8]), 1)
    Array([-4,  4], dtype=int64)
    """
    typed = [asarray(x) for x in (x1, x2) if not isinstance(x, int) or isinstance(x, np.generic)]
    unsigned = bool(typed) and all(a.dtype.kind == "unsigned" for a in typed)
    kind = "logical" if unsigned else "arithmetic"
    return apply_elementwise(f"shift_right_{kind}", x1, x2)


def clip(x: Any, min: Any = None, max: Any = None) -> Array:  # noqa: A002
    """minimum(maximum(x, min), max) (E7); a bound that is None does not act."""
    found = asarray(x)
    if min is not None:
        found = apply_elementwise("maximum", found, min)
    return found if max is None else apply_elementwise("minimum", found, max)


left_shift = ELEMENTWISE["shift_left"]
globals().update({name: f for name, f in ELEMENTWISE.items() if name not in globals()})
__all__ = [
    *ELEMENTWISE,
    *("arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh", "arctan2", "pow"),
    *("where", "nextafter", "clip", "left_shift", "right_shift"),
]
