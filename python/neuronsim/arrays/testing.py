"""NumPy's assertions on arrays, and assertions of bits and of units in the last place.

NumPy's compare exact values: every value of a device type is one of float64's.

>>> x = asarray([1.0, 0.3], dtype="bfloat16")
>>> assert_allclose(x, [1.0, 0.3], rtol=2**-8)
>>> assert_array_max_ulp(x, x)
Array([0, 0], dtype=int64)
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from neuronsim.arrays.absent_names import refuse
from neuronsim.arrays.array_object import Array, exact_values
from neuronsim.arrays.conversion import asarray
from neuronsim.arrays.manipulation import broadcast_to
from neuronsim.dtypes import as_dtype
from neuronsim.errors import REFUSALS, InvalidArgument, UnsupportedType, refusal
from neuronsim.processor import pin_doors, pinned

_MOST = np.iinfo(np.int64).max
_SHOWN = 5  # mismatches that a report lists


# ---- NumPy's assertions --------------------------------------------------------------------------


def _host(x: Any) -> Any:
    """`x` with its Arrays as ndarrays of their exact values."""
    if isinstance(x, Array):
        return exact_values(x)
    if isinstance(x, list | tuple):
        return type(x)(map(_host, x))
    return {key: _host(v) for key, v in x.items()} if isinstance(x, dict) else x


def _on_exact_values(function: Callable[..., Any]) -> Callable[..., Any]:
    @pinned
    @wraps(function)
    def assertion(*args: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        given = {name: _host(v) for name, v in options.items()}
        try:
            return function(*map(_host, args), **given)
        except REFUSALS as error:
            raise refusal(function.__name__, error) from error

    assertion.__doc__ = f"NumPy's {function.__name__}, of the exact values of Arrays."
    return assertion


_NUMPYS = (
    *("assert_", "assert_allclose", "assert_almost_equal", "assert_approx_equal"),
    *("assert_array_almost_equal", "assert_array_compare", "assert_array_equal"),
    *("assert_array_less", "assert_equal"),
)
# These look at no elements.
_PLAIN = (
    *("assert_no_warnings", "assert_raises", "assert_raises_regex", "assert_string_equal"),
    "assert_warns",
)
globals().update({name: _on_exact_values(getattr(np.testing, name)) for name in _NUMPYS})
globals().update({name: getattr(np.testing, name) for name in _PLAIN})


# ---- bits and units in the last place ------------------------------------------------------------


def _words(x: Array) -> npt.NDArray[Any]:
    """The storage bits as unsigned integers; a complex number is two."""
    size = x.dtype.itemsize // (2 if x.dtype.kind == "complex" else 1)
    flat = np.ascontiguousarray(x.bits.data).reshape(-1).view(f"u{size}")
    return flat.reshape(*x.shape, x.dtype.itemsize // size)


def assert_bits_equal(actual: Any, desired: Any) -> None:
    """Raises AssertionError unless both arrays have the same type, shape and bits, -0 and NaN too; its
    text counts the mismatches and shows the first of them, with their bits.

    >>> assert_bits_equal(asarray([1.0, 0.0]), asarray([1.0, -0.0]))
    Traceback (most recent call last):
    ...
    AssertionError: 1 of 2 elements of float32[2] differ in their bits:
      [1]: 0x00000000 (0.0), not 0x80000000 (-0.0)
    """
    __tracebackhide__ = True
    a, b = asarray(actual), asarray(desired)
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        raise AssertionError(f"the array is {a.bits.type}, not {b.bits.type}")
    x, y = _words(a), _words(b)
    differs = (x != y).any(axis=-1)
    if not differs.any():
        return
    lines = [f"{differs.sum()} of {a.size} elements of {a.bits.type} differ in their bits:"]
    for index in np.argwhere(differs)[:_SHOWN].tolist():
        place = tuple(index)
        found, expected = (_element(v, w[place]) for v, w in ((a[place], x), (b[place], y)))
        lines.append(f"  {index}: {found}, not {expected}")
    raise AssertionError("\n".join(lines))


def _element(x: Array, words: npt.NDArray[Any]) -> str:
    text = "_".join(f"{int(w):0{2 * words.itemsize}x}" for w in words)
    return f"0x{text} ({x})"


def _steps(x: Array) -> npt.NDArray[np.int64]:
    """The place of each element on its type's grid, counted from zero: -0 and +0 share it."""
    t = x.dtype
    words = np.ascontiguousarray(x.bits.data).reshape(x.shape).view(f"u{t.itemsize}").astype(np.uint64)
    unused = 8 * t.itemsize - t.bits  # below tfloat32's mantissa
    top = 8 * t.itemsize - 1
    magnitude = ((words & np.uint64((1 << top) - 1)) >> np.uint64(unused)).astype(np.int64)
    return np.where(words >> np.uint64(top), -magnitude, magnitude)


def ulp_diff(a: Any, b: Any) -> Array:
    """How many steps of their float type's own grid lie between two arrays, broadcast, as int64.

    -0 and +0 are 0 apart, and so are two NaNs; a NaN and a number are int64's largest value apart,
    which is also the most that is counted. A Python number takes the other's type (C8). Raises
    UnsupportedType if the types differ or are not floats.

    >>> ulp_diff(asarray([1.0, -0.0], dtype="bfloat16"), asarray([1.0156, 0.0], dtype="bfloat16"))
    Array([2, 0], dtype=int64)
    """
    x, y = _of_one_type(a, b)
    try:
        p, q = np.broadcast_arrays(_steps(x), _steps(y))
        nan_p, nan_q = np.broadcast_arrays(np.isnan(exact_values(x)), np.isnan(exact_values(y)))
    except ValueError as error:
        raise InvalidArgument(f"ulp_diff: {x.shape} and {y.shape} do not broadcast") from error
    # Of float64 the difference can exceed int64: as a uint64 it is exact.
    distance = np.maximum(p, q).astype(np.uint64) - np.minimum(p, q).astype(np.uint64)
    distance = np.minimum(distance, np.uint64(_MOST)).astype(np.int64)
    return asarray(np.where(nan_p | nan_q, np.where(nan_p & nan_q, 0, _MOST), distance))


def _of_one_type(a: Any, b: Any) -> tuple[Array, Array]:
    is_number = [isinstance(v, int | float) and not isinstance(v, np.generic) for v in (a, b)]
    x = asarray(a, asarray(b).dtype if is_number[0] and not is_number[1] else None)
    y = asarray(b, x.dtype if is_number[1] else None)
    if x.dtype is not y.dtype or x.dtype.kind != "float":
        raise UnsupportedType(
            f"{x.dtype.name} and {y.dtype.name}: units in the last place are of one float type; "
            "convert one with astype"
        )
    return x, y


def assert_array_max_ulp(a: Any, b: Any, maxulp: int = 1, dtype: Any = None) -> Array:
    """Raises AssertionError if elements are more than `maxulp` steps of their type's grid apart, else
    gives `ulp_diff`; with `dtype` both are converted to it first.
    """
    __tracebackhide__ = True
    if dtype is not None:
        a, b = (asarray(v, as_dtype(dtype)) for v in (a, b))
    found = ulp_diff(a, b)
    distance = found.bits.data
    if (distance > maxulp).any():
        x, y = _of_one_type(a, b)
        worst = np.unravel_index(int(distance.argmax()), found.shape)
        left, right = (broadcast_to(v, found.shape)[worst] for v in (x, y))
        raise AssertionError(
            f"{(distance > maxulp).sum()} of {found.size} elements are more than {maxulp} ulp of "
            f"{x.dtype.name} apart, the most at {[int(i) for i in worst]}: {left} and {right}, "
            f"{int(distance.max())} ulp"
        )
    return found


def assert_max_ulp(actual: Any, desired: Any, maxulp: int = 1) -> Array:
    """`assert_array_max_ulp`, under the name that says which side is expected."""
    __tracebackhide__ = True
    return assert_array_max_ulp(actual, desired, maxulp)


def assert_array_almost_equal_nulp(x: Any, y: Any, nulp: int = 1) -> None:
    """Raises AssertionError if elements are more than `nulp` steps of their type's grid apart."""
    __tracebackhide__ = True
    assert_array_max_ulp(x, y, nulp)


__all__ = [
    *_NUMPYS,
    *_PLAIN,
    *("assert_array_almost_equal_nulp", "assert_array_max_ulp", "assert_bits_equal"),
    *("assert_max_ulp", "ulp_diff"),
]

pin_doors((sys.modules[__name__],))

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., Any]: ...  # NumPy's assertions

else:
    __getattr__ = refuse("numpy.testing", __all__)
