"""The table of operators: a function of arrays for each overload of ATen.

>>> @operator("example.twice.default")
... def _twice(node, x):
...     return x + x
>>> "example.twice.default" in OPERATORS
True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from neuronsim.dtypes import DType
from neuronsim.errors import UnsupportedOperator


@dataclass(frozen=True)
class Node:
    """A call in a graph: the overload, what the graph calls it, the types of its results (None of those
    that are no tensors), which of them are read, and how the first argument lies in PyTorch's memory:
    its strides and where it begins (None if that is not known).
    """

    target: str
    name: str
    dtypes: tuple[DType | None, ...] = ()
    read: frozenset[int] = frozenset({0})
    run_subgraph: Callable[[Any, Sequence[Any]], Any] | None = None
    memory: tuple[tuple[int, ...], int] | None = None

    @property
    def dtype(self) -> DType:
        """The type of the sole result."""
        (dtype,) = self.dtypes[:1]
        assert dtype is not None
        return dtype

    def wants(self, result: int) -> bool:
        """Whether a result is read."""
        return result in self.read

    def refuse(self, what: str) -> UnsupportedOperator:
        """The error of a form of the operator that neuronsim does not take."""
        return UnsupportedOperator(f"{self.target} {what}")


# The node, then the arguments of the overload's schema: tensors are arrays, types neuronsim's own, and
# what says how memory lies (layout, device, memory_format, ...) is left out.
Function: TypeAlias = Callable[..., Any]

OPERATORS: dict[str, Function] = {}


def operator(*names: str) -> Callable[[Function], Function]:
    """Makes a function the row of overloads, named as `aten.add.Tensor`."""

    def add(function: Function) -> Function:
        for name in names:
            assert name not in OPERATORS, name
            OPERATORS[name] = function
        return function

    return add
