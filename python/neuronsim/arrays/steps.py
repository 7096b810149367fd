"""Functions of several arithmetic steps: float32 steps, one rounding at the end (R7)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import common_arrays, convert, write
from neuronsim.arrays.default_types import default_dtype
from neuronsim.dtypes import DType
from neuronsim.errors import UnsupportedType

_Function = TypeVar("_Function", bound=Callable[..., Any])


def step_type(dtype: DType) -> DType:
    """The type in which the steps of a function of `dtype` run: float32, or the host's own type (H1).

    Raises UnsupportedType for a float type that the device does not compute with.

    >>> step_type(dtypes.bfloat16).name, step_type(dtypes.complex64).name
    ('float32', 'complex64')
    """
    if not dtype.exponent_bits:
        return dtype
    if not dtype.device:
        raise UnsupportedType(
            f"{dtype.name} is read and converted, not computed with (rule F): convert it with astype"
        )
    return dtypes.float32


def in_float32(*operands: str) -> Callable[[_Function], _Function]:
    """Decorates a function that is written in float32 steps (R7); `operands` are the names of those of
    its parameters that are arrays.

    They may be array-likes, numbers or None. They take their common type, integers and bool the default
    float type; the function gets them widened to float32, which is exact, or as they are where the type
    is the host's (H1). Of what it returns, an Array or a tuple or list of them, floats are rounded once
    to the common type and all else stays. If it has a parameter `out`, that takes the result.

    >>> @in_float32("x")
    ... def mean_square(x):
    ...     return x * x / 3
    >>> mean_square([3, 0]).dtype.name, mean_square(common_arrays([1.5])[0]).item()
    ('float32', 0.75)
    """

    def decorate(function: _Function) -> _Function:
        names = tuple(inspect.signature(function).parameters)
        has_out = "out" in names

        @functools.wraps(function)
        def in_steps(*args: Any, **kwargs: Any) -> Any:
            if len(args) > len(names):
                return function(*args, **kwargs)  # which raises Python's TypeError
            given = dict(zip(names, args, strict=False))
            out = given.get("out", kwargs.get("out")) if has_out else None
            if out is not None:
                kwargs = {name: value for name, value in kwargs.items() if name != "out"}
                given["out"] = None
            places = [name for name in operands if given.get(name, kwargs.get(name)) is not None]
            values = common_arrays(*(given[n] if n in given else kwargs[n] for n in places))
            common = values[0].dtype if values else default_dtype()
            if common.kind in ("signed", "unsigned", "bool"):
                common = default_dtype()
            wide = step_type(common)
            for name, value in zip(places, values, strict=True):
                (given if name in given else kwargs)[name] = convert(convert(value, common), wide)
            positional = [given.pop(name) for name in names[: len(args)]]
            found = _rounded(function(*positional, **given, **kwargs), common)
            return found if out is None else write(out, found)

        return cast(_Function, in_steps)

    return decorate


def _rounded(result: Any, dtype: DType) -> Any:
    if isinstance(result, Array):
        return convert(result, dtype) if result.dtype.kind == dtype.kind == "float" else result
    if isinstance(result, tuple | list):
        return type(result)(_rounded(x, dtype) for x in result)
    return result
