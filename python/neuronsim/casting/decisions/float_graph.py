"""Which instruction makes each float32 array that another one reads, through tuples and loops.

>>> from neuronsim.hlo.module import Computation, Shape
>>> x = Instruction("x", "parameter", Shape(dtypes.float32), (), {"number": 0})
>>> y = Instruction("y", "exponential", Shape(dtypes.float32), ("x",))
>>> float_graph([Computation("main", (x, y), "y")]).reads["y"]
(Edge(producer='x', result=0, operand=0),)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from neuronsim import dtypes
from neuronsim.hlo.module import AnyShape, Computation, Instruction, Shape

# An array's producer and the number of its result, or a tuple of such.
_Origin: TypeAlias = "tuple[str, int] | list[_Origin]"


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
        origins: dict[str, _Origin] = {}
        for i in c.instructions:
            if i.opcode == "tuple":
                origins[i.name] = [origins[o] for o in i.operands]
                continue
            if i.opcode == "get-tuple-element":
                whole = origins[i.operands[0]]
                assert isinstance(whole, list)
                origins[i.name] = whole[i.attributes["tuple_index"]]
                continue
            if i.opcode == "parameter" and loop is not None:
                origins[i.name] = _made_by(loop, i.shape)
                continue
            origins[i.name] = _made_by(i.name, i.shape)
            listed.append((c, i))
            reads[i.name] = tuple(
                Edge(*made, number)
                for number, o in enumerate(i.operands)
                for made in _float32_arrays(origins[o], c.by_name[o].shape)
            )
            if i.opcode == "while":
                bodies.add(i.called[0])
                for name in i.called:
                    loops.setdefault(name, i.name)
        given = _float32_arrays(origins[c.root], c.by_name[c.root].shape)
        if loop is None:
            results.update(producer for producer, _ in given)
        elif c.name in bodies:
            carries[loop] = tuple(Edge(*made, 0) for made in given)
    return FloatGraph(tuple(listed), reads, carries, frozenset(results))


def _made_by(producer: str, shape: AnyShape) -> _Origin:
    numbers = iter(range(len(shape.arrays())))

    def origin(s: AnyShape) -> _Origin:
        if isinstance(s, Shape):
            return producer, next(numbers)
        return [origin(e) for e in s.elements]

    return origin(shape)


def _float32_arrays(origin: _Origin, shape: AnyShape) -> Iterator[tuple[str, int]]:
    if isinstance(origin, tuple):
        assert isinstance(shape, Shape)
        if shape.dtype is dtypes.float32:
            yield origin
    elif not isinstance(shape, Shape):
        for part, s in zip(origin, shape.elements, strict=True):
            yield from _float32_arrays(part, s)
