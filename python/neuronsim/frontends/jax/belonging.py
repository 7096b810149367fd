"""Which functions are JAX's: what it jitted, lowered or exported, and what calls it.

Nothing is called to find out: the names that a function's code reads say which packages it uses.
"""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

FAMILY = frozenset({"jax", "jaxlib", "flax", "equinox", "haiku", "optax", "chex"})
OWN = "neuronsim"
_STAGES = ("Traced", "Lowered", "Compiled", "Exported")
_MOST_SEEN = 2000  # objects


def is_jax(model: Any, example_args: Sequence[Any] = ()) -> bool:
    """Whether a model is JAX's: what it made of a function, an object of one of its libraries, or a
    function that reads their names, or that is given its arrays and reads none of neuronsim's.
    """
    if "jax" not in sys.modules or isinstance(model, type | ModuleType):
        return False
    if is_stage(model):
        return True
    if not callable(model):
        return False
    read = packages_read(model)
    return bool(read & FAMILY) or (OWN not in read and any(map(_is_of_jax, _leaves(example_args))))


def is_stage(model: Any) -> bool:
    """Whether a model is what JAX made of a function and its arguments: traced, lowered, compiled or
    exported.
    """
    return type(model).__name__ in _STAGES and "jax" in packages(model)


def packages(x: Any) -> set[str]:
    """The packages of an object's classes."""
    return {c.__module__.partition(".")[0] for c in type(x).__mro__}


def raised_in_jax(error: BaseException) -> bool:
    """Whether a function failed inside JAX, which may leave its own frames out, and then says so."""
    if any("JAX has removed its internal frames" in note for note in getattr(error, "__notes__", ())):
        return True
    frames = traceback.walk_tb(error.__traceback__)
    return any(f.f_globals.get("__name__", "").partition(".")[0] in FAMILY for f, _ in frames)


def _leaves(x: Any) -> list[Any]:
    leaves: list[Any] = sys.modules["jax"].tree_util.tree_leaves(x)
    return leaves


def _is_of_jax(x: Any) -> bool:
    return bool(packages(x) & {"jax", "jaxlib"})


def packages_read(function: Any) -> set[str]:
    """Those of FAMILY and neuronsim whose names a function's code reads, or those of the functions that
    it reads.
    """
    found: set[str] = set()
    pending, seen = [function], set[int]()
    while pending and len(seen) < _MOST_SEEN:
        x = pending.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        roots = {x.__name__.partition(".")[0]} if isinstance(x, ModuleType) else packages(x)
        if isinstance(x, FunctionType | type):
            roots = {(x.__module__ or "").partition(".")[0]}
        known = roots & (FAMILY | {OWN})
        found |= known
        if not known:
            pending += _reads(x)
    return found


def _reads(x: Any) -> Iterator[Any]:
    """What a function or an object that is called reads: functions, globals and variables around it."""
    if isinstance(x, functools.partial):
        yield from (x.func, *x.args, *x.keywords.values())
    elif isinstance(x, MethodType):
        yield from (x.__func__, x.__self__)
    elif isinstance(x, FunctionType):
        yield from _names_read(x)
    elif isinstance(x, type):
        yield from x.__mro__[1:]
        yield from (f for f in vars(x).values() if isinstance(f, FunctionType))
    elif not isinstance(x, ModuleType) and callable(x):
        yield type(x)
    wrapped = getattr(x, "__wrapped__", None) if callable(x) else None
    if wrapped is not None:
        yield wrapped


def _names_read(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not bound yet
            continue
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [c for c in code.co_consts if isinstance(c, CodeType)]
        for name in code.co_names:
            if name in function.__globals__:
                yield function.__globals__[name]
            elif name.partition(".")[0] in FAMILY and name in sys.modules:  # imported inside
                yield sys.modules[name]
