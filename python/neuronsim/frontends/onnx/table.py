"""The table of operators: a function of arrays for each, and for each version whose meaning differs.

>>> @operator("Twice", since=3, domain="example")
... def _twice(node, x):
...     return x + x
>>> lookup("example", "Twice", 5).since, lookup("example", "Twice", 2)
(3, None)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from neuronsim.errors import InvalidModel, UnsupportedOperator

if TYPE_CHECKING:
    from neuronsim.arrays.array_object import Array

ONNX = ""  # the domain ai.onnx
MICROSOFT = "com.microsoft"
MACHINE_LEARNING = "ai.onnx.ml"

# Runs a subgraph of a node: its inputs, by place, and what its nodes read of the graphs around it.
RunSubgraph: TypeAlias = "Callable[[Any, Sequence[Any]], list[Any]]"


@dataclass(frozen=True)
class Node:
    """An operator's node: what it is called, its attributes as Python's numbers, texts, lists, arrays
    (of tensors) and graphs; the names of its outputs, "" of those that nobody reads.
    """

    op_type: str
    name: str
    version: int
    domain: str = ONNX
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    run_subgraph: RunSubgraph | None = None

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or what it is without one."""
        return self.attributes.get(name, default)

    def require(self, name: str) -> Any:
        """An attribute that there must be."""
        if name not in self.attributes:
            raise InvalidModel(f"{self.op_type} needs the attribute {name!r}")
        return self.attributes[name]

    def refuse(self, what: str) -> UnsupportedOperator:
        """The error of a form of the operator that neuronsim does not take."""
        return UnsupportedOperator(f"{self.op_type} {what}")

    def wants(self, output: int) -> bool:
        """Whether an output is read."""
        return output < len(self.outputs) and bool(self.outputs[output])


@dataclass(frozen=True)
class Tensors:
    """A sequence: no tensor itself, and as long as is known while the model is traced."""

    items: tuple[Array, ...]


# The node and its inputs, None of those that are left out: one array, or one for each output.
Function: TypeAlias = Callable[..., Any]


@dataclass(frozen=True)
class Row:
    """An operator from a version of its domain's operator set on."""

    op_type: str
    since: int
    domain: str
    function: Function


OPERATORS: dict[tuple[str, str], list[Row]] = {}


def operator(*names: str, since: int = 1, domain: str = ONNX) -> Callable[[Function], Function]:
    """Makes a function the row of operators, from a version on until that of their next row."""

    def add(function: Function) -> Function:
        for name in names:
            rows = OPERATORS.setdefault((domain, name), [])
            rows.append(Row(name, since, domain, function))
            rows.sort(key=lambda r: r.since)
        return function

    return add


learning_operator = partial(operator, domain=MACHINE_LEARNING)


def lookup(domain: str, op_type: str, version: int) -> Row | None:
    """The row of an operator in a version of its domain."""
    rows = OPERATORS.get((domain, op_type), ())
    return next((r for r in reversed(rows) if r.since <= version), None)
