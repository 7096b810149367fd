"""`jit`: functions of arrays that are compiled when they are first called with arguments of a kind.

>>> import neuronsim as np
>>> @np.jit
... def scaled(x, k):
...     return {"scaled": np.tanh(x) * k}
>>> scaled(np.asarray([0.0, 1.0]), 2.0)["scaled"].tolist()[0]
0.0
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from neuronsim import api
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.arrays.default_types import default_dtype
from neuronsim.errors import InvalidArgument
from neuronsim.frontends.functions import Traced, is_array, trace
from neuronsim.frontends.pytrees import flatten
from neuronsim.frontends.recorder import current_recorder
from neuronsim.processor import pinned
from neuronsim.profiles import current_profile
from neuronsim.program import CompiledProgram

MOST_PROGRAMS = 256  # of one function


@pinned
class CompiledFunction:
    """What `jit` makes of a function. `program` gives the compiled program of a call."""

    def __init__(
        self, function: Callable[..., Any], static: frozenset[str], settings: dict[str, Any]
    ) -> None:
        functools.update_wrapper(self, function)
        self._function, self._static, self._settings = function, static, settings
        self._programs: dict[Any, tuple[Traced, CompiledProgram]] = {}

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if current_recorder() is not None:  # a part of what is traced around it
            return self._function(*args, **keywords)
        traced, program, arrays = self._compiled(args, keywords)
        found = program(*arrays)
        return traced.rebuild(found if isinstance(found, tuple) else (found,))

    def program(self, *args: Any, **keywords: Any) -> CompiledProgram:
        """The program that a call with these arguments runs: its plan, module, timings."""
        return self._compiled(args, keywords)[1]

    def _compiled(
        self, args: Sequence[Any], keywords: dict[str, Any]
    ) -> tuple[Traced, CompiledProgram, list[Any]]:
        static, args, keywords = self._split(args, keywords)
        leaves, tree = flatten((tuple(args), keywords))
        arrays = [x for x in leaves if is_array(x)]
        key = (
            tree,
            repr(tree),  # which tells 1 from True among the keys of dicts
            tuple(_kind(x) if is_array(x) else _static(x) for x in leaves),
            tuple((name, _static(x)) for name, x in sorted(static.items())),
            current_profile(),
            default_dtype(),
        )
        known = self._programs.pop(key, None)
        if known is None:
            function = functools.partial(self._function, **static)
            function.__name__ = getattr(self._function, "__name__", "function")  # type: ignore[attr-defined]
            traced = trace(function, args, keywords)
            settings = {"auto_cast": "none", "profile": current_profile(), **self._settings}
            known = traced, api.compile(traced.module, **settings)
            if len(self._programs) >= MOST_PROGRAMS:
                del self._programs[next(iter(self._programs))]
        self._programs[key] = known  # the last that was used
        return *known, arrays

    def _split(
        self, args: Sequence[Any], keywords: dict[str, Any]
    ) -> tuple[dict[str, Any], Sequence[Any], dict[str, Any]]:
        """The static arguments by name, and the others."""
        if not self._static:
            return {}, args, keywords
        bound = inspect.signature(self._function).bind(*args, **keywords)
        static = {n: v for n, v in bound.arguments.items() if n in self._static}
        return static, (), {n: v for n, v in bound.arguments.items() if n not in self._static}


def _kind(x: Any) -> Any:
    return (x if isinstance(x, Array) else asarray(x)).bits.type


def _static(x: Any) -> Any:
    """What tells static arguments apart: type and value; an array's bytes."""
    if is_array(x):
        array = asarray(x)
        return array.bits.type, array.tobytes()
    try:
        hash(x)
    except TypeError:
        raise InvalidArgument(
            f"jit: an argument of {type(x).__name__} is neither an array nor hashable: give arrays, "
            "numbers, and tuples, lists and dicts of them"
        ) from None
    if isinstance(x, tuple | frozenset):
        return type(x), tuple(map(_static, x))
    return type(x), repr(x) if isinstance(x, float | complex) else x


def jit(
    function: Callable[..., Any] | None = None,
    *,
    static_argnames: str | Sequence[str] = (),
    **settings: Any,
) -> Any:
    """A function of arrays that runs as a compiled program, with the bits that it has without.

    Arrays among the arguments, in tuples, lists and dicts too, are traced; all else, and what
    `static_argnames` names, is part of the program: it is traced and compiled anew for each
    combination of shapes, types, static values, profile and default type. Python's `if` and `while` act
    on what is known then; on arrays `neuronsim.where` and `neuronsim.lax` do. `settings` are those of
    `compile`; without them nothing is cast, and the profile in force acts.

    Raises UnknownValue at the line that needs the values of a traced array.
    """
    if function is None:
        return functools.partial(jit, static_argnames=static_argnames, **settings)
    if not callable(function):
        raise InvalidArgument(f"jit takes a function, not {function!r}")
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    parameters = list(inspect.signature(function).parameters)
    for name in names:
        if name not in parameters:
            raise InvalidArgument(f"jit: static_argnames has {name!r}, and there are {parameters}")
    return CompiledFunction(function, frozenset(names), settings)
