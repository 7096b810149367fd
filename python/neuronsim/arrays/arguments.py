"""What arguments that are numbers are.

>>> whole("num", 3), integers("axes", (0, 1))
(3, (0, 1))
"""

from __future__ import annotations

import operator
from numbers import Real
from typing import Any

import numpy as np

from neuronsim.errors import InvalidArgument, UnknownValue, UnsupportedType


def number(what: str, value: Any) -> float:
    """`value` as a float; raises InvalidArgument if it is not a number within float64's range."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real | np.number):
        raise InvalidArgument(f"{what} is a number, not {value!r}")
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidArgument(f"{what} is a number within float64's range: {error}") from error


def integers(what: str, value: Any) -> tuple[int, ...]:
    """An integer, or a sequence of them, as a tuple; raises UnsupportedType for anything else."""
    if type(value) is int:
        return (value,)
    if type(value) is tuple and all(type(n) is int for n in value):
        return value
    try:
        return tuple(map(operator.index, value if np.iterable(value) else (value,)))
    except UnknownValue:  # which says what to do
        raise
    except TypeError as error:
        raise UnsupportedType(f"{what} is an integer or some of them, not {value!r}") from error


def whole(what: str, x: Any) -> int:
    """`x` as a count. Raises UnsupportedType if it is no integer, InvalidArgument if it is negative."""
    try:
        count = operator.index(x)
    except UnknownValue:
        raise
    except TypeError as error:
        raise UnsupportedType(f"{what} is an integer, not {x!r}") from error
    if count < 0:
        raise InvalidArgument(f"{what} is not negative: {count}")
    return count
