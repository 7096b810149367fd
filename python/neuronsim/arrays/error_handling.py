"""NumPy's handling of floating-point errors, by the rules of the device's types.

What an operation met is known from its operands and its rounded result, element by element
(docs/diagnostics.md); to find it out it is evaluated twice. So nothing is reported unless asked for.

>>> from neuronsim.arrays.conversion import asarray
>>> with errstate(over="raise"):
...     asarray(65504.0, dtype="float16") * 2
Traceback (most recent call last):
neuronsim.errors.FloatingPointException: multiply: 1 of 1 float16 elements overflowed to Inf (C3): \
errstate(over='raise') makes this an error
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

from neuronsim.errors import InvalidArgument, UnsupportedType, nearest
from neuronsim.profiles import (
    ExceptionHandling,
    ExceptionMode,
    exception_handling,
    exception_receiver,
    set_exception_handling,
    set_exception_receiver,
)

__all__ = ["errstate", "geterr", "geterrcall", "seterr", "seterrcall"]

_UNCHANGED: Any = object()


def geterr() -> dict[str, ExceptionMode]:
    """What is done about each kind of error: "ignore" unless `seterr` or `errstate` changed it.

    >>> geterr()
    {'divide': 'ignore', 'over': 'ignore', 'under': 'ignore', 'invalid': 'ignore'}
    """
    return dataclasses.asdict(exception_handling())


def seterr(
    all: ExceptionMode | None = None,  # noqa: A002
    divide: ExceptionMode | None = None,
    over: ExceptionMode | None = None,
    under: ExceptionMode | None = None,
    invalid: ExceptionMode | None = None,
) -> dict[str, ExceptionMode]:
    """Choose what this thread or task does about each kind of error; returns what it did before.

    `divide` is a finite operand at a pole, `over` a finite value that becomes Inf or that float8
    saturates (C3), `under` one that is not zero and becomes zero (C4), `invalid` a NaN that arises
    (E6) or a float that an integer type does not hold (C6). Each is "ignore", "warn" (a
    RuntimeWarning), "raise" (FloatingPointException), "call" or "log" (see `seterrcall`), or "print".
    """
    before = geterr()
    given = {"divide": divide, "over": over, "under": under, "invalid": invalid}
    modes = get_args(ExceptionMode)
    for key, mode in {"all": all, **given}.items():
        if mode is not None and mode not in modes:
            raise InvalidArgument(
                f"{key}={mode!r} is no way to handle errors{nearest(str(mode), modes)}: "
                f"{', '.join(modes)} are"
            )
    chosen = {key: mode or all or before[key] for key, mode in given.items()}
    set_exception_handling(ExceptionHandling(**chosen))
    return before


def geterrcall() -> Any:
    """What the modes "call" and "log" use, or None."""
    return exception_receiver()


def seterrcall(func: Any) -> Any:
    """Choose the function that "call" calls with the kind of error and NumPy's flags, or the object
    whose method `write` "log" calls with a message; returns the one before.

    Raises UnsupportedType, which is a TypeError, if it is neither, nor None.
    """
    if not (func is None or callable(func) or callable(getattr(func, "write", None))):
        raise UnsupportedType(
            f"seterrcall takes a function, an object with a method `write`, or None, not {func!r}"
        )
    before = exception_receiver()
    set_exception_receiver(func)
    return before


@contextmanager
def errstate(
    *,
    call: Any = _UNCHANGED,
    all: ExceptionMode | None = None,  # noqa: A002
    divide: ExceptionMode | None = None,
    over: ExceptionMode | None = None,
    under: ExceptionMode | None = None,
    invalid: ExceptionMode | None = None,
) -> Iterator[None]:
    """`seterr`, and with `call` `seterrcall`, for the `with` block or the function that it decorates,
    in this thread or task only.

    >>> with errstate(divide="warn"):
    ...     geterr()["divide"]
    'warn'
    """
    handling, receiver = exception_handling(), exception_receiver()
    if call is not _UNCHANGED:
        seterrcall(call)
    try:
        seterr(all, divide, over, under, invalid)
        yield
    finally:
        set_exception_handling(handling)
        set_exception_receiver(receiver)
