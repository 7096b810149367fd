"""Where the arrays of a computation come from: through tuples, and what takes these apart; which of
them a loop's body only passes on; and the arrays of a constant.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, TypeAlias

import numpy.typing as npt

from neuronsim import ops
from neuronsim.hlo.module import Computation, Instruction, Module, TupleShape, graph_computations

TUPLES = frozenset({"tuple", "get-tuple-element"})
# What arranges arrays and gives none of its own.
ARRANGES = TUPLES | {"opt-barrier", "add-dependency", "after-all"}

Source: TypeAlias = tuple[Instruction, int]  # what gives an array, and the array's number there
Sources: TypeAlias = Mapping[str, tuple[Source, ...]]  # of the arrays of each instruction


def array_sources(c: Computation, through: Container[str] = ARRANGES) -> Sources:
    """Of each array of each instruction of a computation, the instruction that gives it: none of those
    that are looked `through`.
    """
    found: dict[str, tuple[Source, ...]] = {}
    for i in c.instructions:
        match i.opcode if i.opcode in through else "":
            case "tuple":
                found[i.name] = tuple(s for o in i.operands for s in found[o])
            case "opt-barrier" | "add-dependency":
                found[i.name] = found[i.operands[0]]
            case "get-tuple-element":
                shape = c.by_name[i.operands[0]].shape
                assert isinstance(shape, TupleShape)
                found[i.name] = found[i.operands[0]][shape.place(i.attributes["tuple_index"])]
            case _:
                found[i.name] = tuple((i, n) for n in range(len(i.shape.arrays())))
    return found


def all_sources(flat: Module) -> dict[str, Sources]:
    """Those of each computation that is executed instruction by instruction."""
    return {c.name: array_sources(c) for c in graph_computations(flat)}


def passed_on(body: Computation, sources: Sources) -> frozenset[int]:
    """The places of a loop's tuple that its body gives as it got them."""
    return frozenset(
        n for n, (i, number) in enumerate(sources[body.root]) if i.opcode == "parameter" and number == n
    )


def shown_elements(i: Instruction) -> npt.NDArray[Any] | None:
    """The elements of a constant array, which the file shows; None of anything else."""
    literal = i.attributes.get("literal")
    return literal.data.view(literal.dtype.numpy) if isinstance(literal, ops.Bits) else None


def literals(literal: object) -> list[ops.Bits]:
    """The arrays of a constant, which may be a tuple."""
    if isinstance(literal, ops.Bits):
        return [literal]
    assert isinstance(literal, tuple)
    return [x for part in literal for x in literals(part)]
