"""Sorted results: which operations give values in order, which end is the largest, and which reduction
gives the place of a maximum.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from neuronsim.hlo.module import Computation, Instruction
from neuronsim.hlo.recognition.patterns import Graph


class Sorted(NamedTuple):
    """An array in order along an axis: the elements of another, or the first of them."""

    values: str
    axis: int
    descending: bool


def sorted_result(graph: Graph, i: Instruction) -> Sorted | None:
    """What an instruction sorts, if it is the sorted keys of a sort, or a top-k's values."""
    if i.opcode == "get-tuple-element":
        if i.attributes["tuple_index"] != 0:
            return None
        i = graph.by_name[i.operands[0]]
    if i.opcode == "topk":
        axis = len(graph.by_name[i.operands[0]].array.dims) - 1
        return Sorted(i.operands[0], axis, i.attributes["largest"])
    if i.opcode != "sort":
        return None
    direction = _direction(graph.module.by_name[i.called[0]])
    if direction not in _DESCENDING:
        return None
    return Sorted(i.operands[0], i.attributes["dimensions"][0], _DESCENDING[direction])


_DESCENDING = {"LT": False, "LE": False, "GT": True, "GE": True}
_TURNED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}


def _direction(comparator: Computation) -> str | None:
    """How a comparator orders its first two parameters, if it compares nothing else."""
    root = comparator.by_name[comparator.root]
    if root.opcode != "compare":
        return None
    direction = str(root.attributes["comparison_direction"])
    numbers = [_compared(comparator, o) for o in root.operands]
    return direction if numbers == [0, 1] else _TURNED.get(direction) if numbers == [1, 0] else None


def _compared(comparator: Computation, name: str) -> int | None:
    """The number of the parameter that a comparator compares, with one zero and one NaN made of all."""
    i = comparator.by_name[name]
    while i.opcode == "select":
        test = comparator.by_name[i.operands[0]]
        direction = test.attributes.get("comparison_direction")
        zero = direction == "EQ" and _is_zero(comparator, test.operands[1])
        if not zero and (direction != "NE" or test.operands[0] != test.operands[1]):
            return None
        i = comparator.by_name[i.operands[2]]
    return i.attributes["number"] if i.opcode == "parameter" else None


def _is_zero(comparator: Computation, name: str) -> bool:
    literal = comparator.by_name[name].attributes.get("literal")
    return literal is not None and not literal.data.any()


def place_in(graph: Graph, label: Any, size: int) -> int | None:
    """The number of the one element that a label (`orderings.Label`) of an axis names."""
    if label is None:
        return 0
    match label:
        case ("slice", start, step, inner):
            number = place_in(graph, inner, 0)
            return None if number is None else int(start + step * number)
        case ("reverse", inner):
            number = place_in(graph, inner, size)
            return None if number is None or not size else size - 1 - number
        case ("start", name, None) if size and name in graph.numbers:
            return min(max(0, int(graph.numbers[name])), size - 1)
    return None


def place_of_maximum(graph: Graph, i: Instruction) -> Instruction | None:
    """The reduce of which an instruction is the number of the largest element: an argmax, as JAX
    spells it out.
    """
    if i.opcode != "get-tuple-element" or i.attributes["tuple_index"] != 1:
        return None
    i = graph.by_name[i.operands[0]]
    if i.opcode != "reduce" or len(i.operands) != 4 or len(i.attributes["dimensions"]) != 1:
        return None
    numbers = graph.by_name[i.operands[1]]
    if numbers.opcode != "iota" or numbers.attributes["dimensions"] != i.attributes["dimensions"]:
        return None
    body = graph.module.by_name[i.called[0]]
    root = body.by_name[body.root]
    halves = [body.by_name[o] for o in root.operands] if root.opcode == "tuple" else []
    parameters = sorted(body.parameters, key=lambda p: int(p.attributes["number"]))
    names = [p.name for p in parameters]
    if [h.opcode for h in halves] != ["select", "select"]:
        return None
    if [h.operands[1:] for h in halves] != [(names[0], names[2]), (names[1], names[3])]:
        return None
    larger = all(_is_so_where_larger(body, h.operands[0], (names[0], names[2])) for h in halves)
    return i if larger else None


def _is_so_where_larger(body: Computation, name: str, values: tuple[str, str]) -> bool:
    """Whether a predicate holds wherever the first of two values is the larger."""
    i = body.by_name[name]
    if i.opcode == "or":
        return any(_is_so_where_larger(body, o, values) for o in i.operands)
    direction = i.attributes.get("comparison_direction")
    return i.opcode == "compare" and i.operands == values and direction in ("GT", "GE")
