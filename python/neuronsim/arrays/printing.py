"""Arrays as text: the shortest digits that name each element among those of its type.

>>> asarray([1 / 3, 1e10, -0.0], dtype="bfloat16")
Array([ 3.34e-01,  1.00e+10, -0.00e+00], dtype=bfloat16)
>>> print(asarray([0.1, 0.2], dtype="float8_e4m3"))
[0.1 0.2]

The options are NumPy's own: what `numpy.set_printoptions` sets holds here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache, wraps
from math import copysign, frexp, isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes, ops
from neuronsim.arrays.array_object import Array, exact_values
from neuronsim.arrays.conversion import asarray
from neuronsim.dtypes import DType
from neuronsim.errors import REFUSALS, InvalidArgument, refusal

__all__ = [
    *("array2string", "array_repr", "array_str", "base_repr", "binary_repr"),
    *("format_float_positional", "format_float_scientific", "get_printoptions", "printoptions"),
    "set_printoptions",
]

get_printoptions = np.get_printoptions


def _refusing(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy's, whose refusals become ours."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except REFUSALS as error:
            raise refusal(function.__name__, error) from error

    return call


set_printoptions = _refusing(np.set_printoptions)
# Of Python integers and what is one by __index__.
base_repr, binary_repr = _refusing(np.base_repr), _refusing(np.binary_repr)


@contextmanager
def printoptions(*args: Any, **options: Any) -> Iterator[Any]:
    """NumPy's printoptions: `set_printoptions` for a block, as whose value it gives the options."""
    with ExitStack() as opened:
        try:
            chosen = opened.enter_context(np.printoptions(*args, **options))
        except REFUSALS as error:
            raise refusal("printoptions", error) from error
        yield chosen


# NumPy finds the shortest digits of these types itself.
_PRINTED_BY_NUMPY = (dtypes.float16, dtypes.float32)


@lru_cache(maxsize=1 << 16)
def _shortest(magnitude: float, dtype: DType) -> float:
    """The number with the fewest decimal digits that rounds to this one in its type (C2); of several
    the nearest to it.
    """
    if not isfinite(magnitude) or magnitude == 0:
        return magnitude
    fraction, exponent = frexp(magnitude)
    least = frexp(dtype.smallest_normal)[1]
    gap = 2.0 ** (max(exponent, least) - 1 - dtype.mantissa_bits)
    at_binade = fraction == 0.5 and exponent > least
    is_even = magnitude / gap % 2 == 0
    exact = Decimal(magnitude)
    low, high = exact - Decimal(gap / (4 if at_binade else 2)), exact + Decimal(gap / 2)
    for digits in range(1, 18):
        for rounding in (ROUND_HALF_EVEN, ROUND_CEILING):  # below a binade the gap is half as wide
            found = Context(prec=digits, rounding=rounding).plus(exact)
            if low < found < high or (is_even and found in (low, high)):
                return float(found)
    raise AssertionError("17 digits name every float64")


def _printed(x: Array) -> npt.NDArray[Any]:
    """The elements in a NumPy type that prints them with their shortest digits."""
    if not x.dtype.exponent_bits or x.dtype in _PRINTED_BY_NUMPY:
        return np.asarray(x)
    exact = exact_values(x)
    digits = [copysign(_shortest(abs(value), x.dtype), value) for value in exact.ravel().tolist()]
    return np.array(digits, np.float64).reshape(x.shape)


def _edges(x: Array, count: int) -> Array:
    """The array without what a summary leaves out: along each axis `count` elements at each end, and
    one between them that stands for the others.
    """
    kept = (np.r_[: count + 1, n - count : n] if n > 2 * count else np.arange(n) for n in x.shape)
    return Array(ops.Bits(x.bits.data[np.ix_(*kept)], x.dtype))


def array2string(
    a: Any,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
    separator: str = " ",
    prefix: str = "",
    **options: Any,
) -> str:
    """`a` as NumPy's array2string writes it, with NumPy's options, in the shortest digits of its type;
    a smaller `precision` rounds those. `floatmode="fixed"` and a `formatter` take the exact values.

    >>> array2string(asarray([1 / 3, 2.5], dtype="bfloat16"), separator=", ", precision=2)
    '[0.33, 2.5 ]'
    """
    x = asarray(a)
    if not isinstance(x._layout, np.ndarray):  # its elements are known when the program runs
        return f"Array(traced {x.bits.type})"
    chosen: dict[str, Any] = {**get_printoptions()} | {
        name: v for name, v in options.items() if v is not None
    }
    if x.size > chosen["threshold"]:
        x = _edges(x, chosen["edgeitems"])
        options["threshold"] = 0
    exact = chosen["formatter"] or chosen["floatmode"] == "fixed"
    layout = (max_line_width, precision, suppress_small, separator, prefix)
    try:
        return np.array2string(exact_values(x) if exact else _printed(x), *layout, **options)
    except REFUSALS as error:
        raise refusal(f"the text of {x.bits.type}", error) from error


def array_repr(
    arr: Any,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """What `repr` gives: the elements, the type and, where elements are left out, the shape.

    >>> array_repr(asarray([1.0, 0.3], dtype="bfloat16"))
    'Array([1. , 0.3], dtype=bfloat16)'
    """
    x = asarray(arr)
    if not isinstance(x._layout, np.ndarray):
        return array2string(x)
    options = get_printoptions()
    width = options["linewidth"] if max_line_width is None else max_line_width
    text = array2string(x, width, precision, suppress_small, ", ", "Array(", suffix=")")
    hidden = x.size > options["threshold"] or (x.size == 0 and x.shape != (0,))
    end = (f"shape={x.shape}, " if hidden else "") + f"dtype={x.dtype.name})"
    start = f"Array({text},"
    fits = len(start) - (start.rfind("\n") + 1) + 1 + len(end) <= width
    return start + (" " if fits else "\n" + " " * len("Array(")) + end


def array_str(
    a: Any,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """What `str` and `print` give: the elements alone; without axes, the number.

    >>> array_str(asarray(1 / 3, dtype="bfloat16"))
    '0.334'
    """
    x = asarray(a)
    if x.ndim == 0 and isinstance(x._layout, np.ndarray):
        return str(_printed(x)[()])
    return array2string(x, max_line_width, precision, suppress_small)


def _number(x: Any, unique: bool) -> Any:
    """A NumPy number with the digits that a format_float function writes."""
    a = asarray(x, dtypes.float64) if isinstance(x, float | int) else asarray(x)
    if a.size != 1:
        raise InvalidArgument(f"the text of one number, not of {a.bits.type}")
    return (_printed(a) if unique else exact_values(a)).reshape(())[()]


def format_float_positional(
    x: Any, precision: int | None = None, unique: bool = True, *args: Any, **options: Any
) -> str:
    """A number without an exponent, as NumPy's function of this name writes it: in the shortest digits
    of its type, or those of its exact value with `unique=False`.

    >>> format_float_positional(asarray(1 / 3, dtype="float8_e4m3"))
    '0.34'
    """
    return _formatted(np.format_float_positional, x, precision, unique, *args, **options)


def format_float_scientific(
    x: Any, precision: int | None = None, unique: bool = True, *args: Any, **options: Any
) -> str:
    """A number with an exponent; see `format_float_positional`.

    >>> format_float_scientific(asarray(1 / 3, dtype="bfloat16"))
    '3.34e-01'
    """
    return _formatted(np.format_float_scientific, x, precision, unique, *args, **options)


def _formatted(
    function: Callable[..., str], x: Any, precision: Any, unique: bool, *args: Any, **options: Any
) -> str:
    try:
        return function(_number(x, unique), precision, unique, *args, **options)
    except REFUSALS as error:
        raise refusal(function.__name__, error) from error
