"""The arrays of a module that are there before it runs: its constants and what is computed of them,
where loops and branches pass them on too; and how many bytes of weights that is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from neuronsim import ops
from neuronsim.hlo.array_sources import ARRANGES, Sources, all_sources, literals, passed_on
from neuronsim.hlo.known_arrays import Arguments, Known, unchanged
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    Shape,
    graph_computations,
    live_instructions,
)
from neuronsim.hlo.opcodes import CONVERTS, NEVER_CONSTANT, row


@dataclass(frozen=True)
class ConstantArray:
    """An array that is there before the program runs: the literals of at least one dimension that it is
    made of, the one whose elements it holds, cast, moved or changed one by one (or ""), in which type,
    whether all elements are equal, and how many elements that literal has.
    """

    sources: frozenset[str]
    form_of: str
    type: str
    is_splat: bool
    size: int


_Arrays: TypeAlias = Known["ConstantArray"]
Constants: TypeAlias = Mapping[str, _Arrays]


def constant_arrays(flat: Module) -> dict[str, Constants]:
    """The arrays of each instruction of a module whose calls are inlined, by computation: None is one
    that the run computes.

    A product, sum or the like of an array whose elements are all equal counts as the run's: it is how a
    recurrence starts, which code that is not in a loop could spare itself in the first trip.
    """
    found: dict[str, Constants] = {}
    weights, sources = _Weights(), all_sources(flat)
    arguments = Arguments[ConstantArray](flat, sources, lambda a, b: a if a == b else None)
    for c in reversed(graph_computations(flat)):  # callers first
        values: dict[str, _Arrays] = {}
        for i in c.instructions:
            values[i.name] = _arrays_of(c, i, values, arguments.of(c.name), flat, sources, weights)
            arguments.add_called(i, values.__getitem__)
        found[c.name] = values
    return found


def _arrays_of(
    c: Computation,
    i: Instruction,
    values: Mapping[str, _Arrays],
    given: _Arrays,
    flat: Module,
    sources: Mapping[str, Sources],
    weights: _Weights,
) -> _Arrays:
    if i.opcode in ARRANGES:
        return tuple(values[source.name][n] for source, n in sources[c.name][i.name])
    unknown: _Arrays = (None,) * len(i.shape.arrays())
    if i.opcode == "parameter":
        return given or unknown
    if i.opcode == "constant":
        return tuple(map(weights.constant, literals(i.attributes["literal"])))
    operands: _Arrays = tuple(v for o in i.operands for v in values[o])
    if i.opcode == "while":
        return unchanged(i, operands, flat, sources)
    # What reads nothing, an iota, is computed in each run.
    if i.opcode in NEVER_CONSTANT or not operands or None in operands:
        return unknown
    return _computed(i, [v for v in operands if v is not None]) or unknown


class _Weights:
    """The literals of a module. One that the file has several times is one weight, as calls of a layer
    give it, and optimisers of loops; not where all elements are equal, as new biases are.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[object, ...], list[tuple[ops.Bits, str]]] = {}
        self.count = 0

    def constant(self, bits: ops.Bits) -> ConstantArray:
        """What the analysis says of a literal."""
        is_splat = _is_splat(bits)
        if not bits.data.ndim:
            return ConstantArray(frozenset(), "", bits.dtype.name, is_splat, 0)
        start = id(bits) if is_splat else bits.data.reshape(-1)[:8].tobytes()
        alike = self.known.setdefault((bits.type, start), [])
        for other, name in alike:
            same = other is bits or (not is_splat and np.array_equal(other.data, bits.data))
            if same:
                return ConstantArray(frozenset([name]), name, bits.dtype.name, is_splat, bits.data.size)
        self.count += 1
        alike.append((bits, f"#{self.count}"))
        return ConstantArray(
            frozenset([f"#{self.count}"]), f"#{self.count}", bits.dtype.name, is_splat, bits.data.size
        )


def _is_splat(bits: ops.Bits) -> bool:
    elements = bits.data.reshape(-1)[:2]
    if not elements.size:
        return True
    return bool((elements == elements[:1]).all()) and bool((bits.data == elements[:1]).all())


def _computed(i: Instruction, operands: list[ConstantArray]) -> _Arrays | None:
    op = row(i)
    one_by_one = op.core is not None or op.cast == "movement" or i.opcode in CONVERTS
    is_splat = bool(operands) and all(v.is_splat for v in operands)
    if not one_by_one and any(v.is_splat for v in operands[: 2 if op.cast == "matmult" else 1]):
        return None
    sources = frozenset[str]().union(*(v.sources for v in operands))
    forms = {v.form_of for v in operands if v.sources}
    form_of = forms.pop() if one_by_one and len(forms) == 1 else ""
    arrays = i.shape.arrays()
    if i.opcode == "reduce-precision":
        types = [f"float({i.attributes['exponent_bits']},{i.attributes['mantissa_bits']})"]
    elif op.cast == "movement" and len({v.type for v in operands}) == 1:
        types = [operands[0].type] * len(arrays)
    else:
        types = [s.dtype.name for s in arrays]
    size = max((v.size for v in operands if form_of), default=0)
    return tuple(ConstantArray(sources, form_of, t, is_splat, size) for t in types)


# ---- weights -------------------------------------------------------------------------------------


def weight_bytes(flat: Module) -> int:
    """The bytes of a planned module's weights: of its constants of at least one dimension, each once in
    each type in which the run reads it, however often it does, whole, in slices or transposed.

    What is computed of several constants before the run counts where not all of these are read
    themselves.
    """
    read: dict[tuple[str, str], int] = {}
    computed: dict[str, tuple[int, frozenset[str]]] = {}

    def keep(place: str, array: ConstantArray, shape: Shape) -> None:
        if array.form_of:
            key = array.form_of, array.type
            read[key] = array.size * shape.dtype.itemsize
        elif array.sources:
            computed[place] = shape.nbytes, array.sources

    _each_read(flat, keep)
    own = {name for name, _ in read}
    return sum(read.values()) + sum(n for n, made_of in computed.values() if not made_of <= own)


def _each_read(flat: Module, keep: Callable[[str, ConstantArray, Shape], None]) -> None:
    """Calls `keep` for each constant array that what the run computes reads, or a computation gives."""
    found, sources = constant_arrays(flat), all_sources(flat)
    bodies = {
        i.called[0] for c in graph_computations(flat) for i in c.instructions if i.opcode == "while"
    }
    for c in graph_computations(flat):
        values, live = found[c.name], live_instructions(c)

        def given(
            name: str, without: frozenset[int], c: Computation = c, values: Constants = values
        ) -> None:
            pairs = zip(values[name], c.by_name[name].shape.arrays(), strict=True)
            for n, (array, shape) in enumerate(pairs):
                if array is not None and n not in without:
                    keep(f"{c.name}/{name}#{n}", array, shape)

        for i in c.instructions:
            if (
                i.name not in live
                or i.opcode in ARRANGES
                or (values[i.name] and None not in values[i.name])
            ):
                continue
            if i.opcode == "while":
                given(i.operands[0], passed_on(flat.by_name[i.called[0]], sources[i.called[0]]))
            else:
                for o in i.operands[:1] if i.opcode == "conditional" else i.operands:
                    given(o, frozenset())
        given(c.root, passed_on(c, sources[c.name]) if c.name in bodies else frozenset())
