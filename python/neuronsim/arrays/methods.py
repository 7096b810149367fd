"""ndarray's methods that are the functions of the same name, with the array first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from neuronsim import _core

if TYPE_CHECKING:
    from neuronsim.arrays.array_object import Array


def function_named(name: str) -> Callable[..., Any]:
    """A function of a chapter, which imports the module that calls it."""
    from neuronsim import arrays

    return arrays.FUNCTIONS[name]


class FunctionMethods(_core.ArrayBase):
    """What an array has for NumPy's sake: these annotations are the table of the methods."""

    __slots__ = ()

    all: Callable[..., Array]
    any: Callable[..., Array]
    argmax: Callable[..., Array]
    argmin: Callable[..., Array]
    argpartition: Callable[..., Array]
    argsort: Callable[..., Array]
    choose: Callable[..., Array]
    clip: Callable[..., Array]
    conj: Callable[..., Array]
    conjugate: Callable[..., Array]
    cumprod: Callable[..., Array]
    cumsum: Callable[..., Array]
    diagonal: Callable[..., Array]
    dot: Callable[..., Array]
    max: Callable[..., Array]
    mean: Callable[..., Array]
    min: Callable[..., Array]
    nonzero: Callable[..., tuple[Array, ...]]
    prod: Callable[..., Array]
    ptp: Callable[..., Array]
    put: Callable[..., None]
    ravel: Callable[..., Array]
    repeat: Callable[..., Array]
    round: Callable[..., Array]
    searchsorted: Callable[..., Array]
    std: Callable[..., Array]
    sum: Callable[..., Array]
    swapaxes: Callable[..., Array]
    take: Callable[..., Array]
    trace: Callable[..., Array]
    var: Callable[..., Array]


def _method(name: str) -> Callable[..., Any]:
    def method(self: Array, /, *args: Any, **keywords: Any) -> Any:
        return function_named(name)(self, *args, **keywords)

    method.__name__ = name
    method.__qualname__ = f"Array.{name}"
    method.__doc__ = f"The function `{name}` of this array."
    return method


METHODS = tuple(FunctionMethods.__annotations__)
for _name in METHODS:
    setattr(FunctionMethods, _name, _method(_name))
