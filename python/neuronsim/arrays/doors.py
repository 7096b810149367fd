"""How functions of arrays are called: by the core, which first looks for what it can run at once.

>>> import numpy as np
>>> @moving(np.ndarray.reshape)
... def reshape(x, shape):
...     raise ValueError(f"{x.shape} is not {shape}")
>>> from neuronsim.arrays.conversion import asarray
>>> reshape(asarray([1, 2, 3]), (3, 1)).shape
(3, 1)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypeVar

from neuronsim import _core
from neuronsim.dtypes import DType
from neuronsim.processor import check_environment
from neuronsim.profiles import current_profile

_Function = TypeVar("_Function", bound=Callable[..., Any])


def door(
    function: _Function, operation: str | _core.EagerCall | None, writes: bool = False
) -> _Function:
    """The function, in whose place runs what its profile remembers by the name `operation`, or this
    call; if it `writes`, into its first argument. As every door it runs as D1 says.
    """
    made = _core.DoorMethod(function, operation, writes)
    return update_wrapper(made, function)  # type: ignore[return-value]


def remembered(function: _Function) -> _Function:
    """Decorates a function whose calls are remembered by its own name."""
    return door(function, function.__name__)


def moving(move: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Decorates a function that does to arrays of one type what NumPy's `move` does to their bits, if
    it gets integers and tuples of them beside the arrays.
    """
    return lambda function: door(function, _core.EagerMove(move))


def remember(
    operation: str, dtype: DType, call: Callable[[], _core.EagerCall], target: DType | None = None
) -> None:
    """Keeps with the profile what the doors of that operation run on arrays of a type, or to convert
    them to the type `target`: unless the profile draws, truncates or says something beside.
    """
    profile = current_profile()
    plain = profile.rounding == "nearest_even" and profile.int64 == "keep" and profile.handling is None
    if plain and (operation, dtype, target) not in profile.eager:
        check_environment()
        profile.eager.keep((operation, dtype, target), call())
