"""Which instruction makes each float32 array that another one reads, through tuples and loops.

>>> from neuronsim.hlo.module import Computation, Shape
>>> x = Instruction("x", "parameter", Shape(dtypes.float32), (), {"number": 0})
>>> y = Instruction("y", "exponential", Shape(dtypes.float32), ("x",))
>>> float_graph([Computation("main", (x, y), "y")]).reads["y"]
(Edge(producer='x', result=0, operand=0),)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from neuronsim import dtypes
from neuronsim.hlo.array_sources import TUPLES, Source, array_sources
from neuronsim.hlo.module import Computation, Instruction


class Edge(NamedTuple):
    """One float32 array: which instruction makes it, as which of its arrays, and the number of the
    operand that reads it.
    """

    producer: str
    result: int
    operand: int


@dataclass(frozen=True)
class FloatGraph:
    """Instructions, those of a caller before those that it calls, and the float32 arrays between them.

    `reads` has what each reads, `carries` what the body of each loop gives back to it. Parameters of a
    loop's body and condition are the loop's own arrays, and no instructions here. `results` are the
    producers of what the entry and branches give.
    """

    instructions: tuple[tuple[Computation, Instruction], ...]
    reads: dict[str, tuple[Edge, ...]]
    carries: dict[str, tuple[Edge, ...]]
    results: frozenset[str]


def float_graph(graphs: Sequence[Computation]) -> FloatGraph:
    """The graph of what is executed instruction by instruction (`graph_computations`). Where several
    loops call one computation, its parameter belongs to the first.
    """
    listed: list[tuple[Computation, Instruction]] = []
    reads: dict[str, tuple[Edge, ...]] = {}
    carries: dict[str, tuple[Edge, ...]] = {}
    results: set[str] = set()
    loops: dict[str, str] = {}  # by body or condition
    bodies: set[str] = set()
    for c in reversed(graphs):
        loop = loops.get(c.name)
        sources = array_sources(c, TUPLES)
        for i in c.instructions:
            if i.opcode in TUPLES or (i.opcode == "parameter" and loop is not None):
                continue
            listed.append((c, i))
            reads[i.name] = tuple(
                Edge(*made, number)
                for number, o in enumerate(i.operands)
                for made in _float32_arrays(sources[o], loop)
            )
            if i.opcode == "while":
                bodies.add(i.called[0])
                for name in i.called:
                    loops.setdefault(name, i.name)
        given = _float32_arrays(sources[c.root], loop)
        if loop is None:
            results.update(producer for producer, _ in given)
        elif c.name in bodies:
            carries[loop] = tuple(Edge(*made, 0) for made in given)
    return FloatGraph(tuple(listed), reads, carries, frozenset(results))


def _float32_arrays(sources: Iterable[Source], loop: str | None) -> Iterator[tuple[str, int]]:
    """Those of these arrays that are float32; what a loop's computation is given is the loop's."""
    for i, number in sources:
        if i.shape.arrays()[number].dtype is dtypes.float32:
            yield (loop if loop is not None and i.opcode == "parameter" else i.name), number
