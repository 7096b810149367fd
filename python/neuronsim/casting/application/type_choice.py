"""The types in which what commutes with rounding runs: those that convert the fewest bytes.

Not for a profile of stochastic rounding, where a convert that is moved or shared draws other words
(S2), nor for one that has transposes on the tensor engine, which then compute (A3, M8).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.casting.application.commuting import commuted_operands
from neuronsim.casting.application.minimum_cut import minimum_cut
from neuronsim.casting.conversions import carrier
from neuronsim.casting.decisions.loops import decisions_of_loops
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.policies.policy import Rounding
from neuronsim.casting.value_sets import contains, has_values, values_of
from neuronsim.dtypes import DType
from neuronsim.hlo.inlining import FlatModule
from neuronsim.hlo.module import (
    AnyShape,
    Computation,
    Instruction,
    Module,
    Shape,
    graph_computations,
)

# The planned type of a value: of an array, or of each element of a tuple.
Planned: TypeAlias = "DType | tuple[Planned, ...]"
# How a value is held: as float32 that is not rounded yet, in the low type, or rounded as float32. In a
# network it is two nodes, on the sink's side where the value is rounded, and where it is also wide.
_Held: TypeAlias = tuple[bool, bool]
_UNROUNDED, _LOW, _WIDE = (False, False), (True, False), (True, True)
_NO, _YES = 0, 1  # nodes of a network: its source and its sink
_NEVER = 1 << 62  # a capacity that no cut takes
_FIRST = 64  # elements of a constant
_AT_ONCE = 1000  # instructions of a network: the time for a cut grows faster than their number


def choose_types(
    module: FlatModule,
    decisions: Mapping[str, Decision],
    *,
    keep_output_type: bool = True,
) -> dict[str, Decision]:
    """The decisions with other types for instructions with which rounding commutes
    (`commuted_operands`), so that applying them converts the fewest bytes and gives the same bits.

    The module is one without calls (`inline_calls`). The low types are gone through in the order in
    which the decisions first name them; for each, an instruction that now runs in it or in float32 may
    run in either, before or after what the plan rounds is rounded, and a minimum cut says how. Of equal
    choices the one nearest to the plan is taken. Without `keep_output_type` the entry's result stays as
    the plan has it.
    """
    chosen = dict(decisions)
    for low in _low_types(decisions):
        carried = decisions_of_loops(module, chosen)
        for c in graph_computations(module):
            own_root = c.name == module.entry and not keep_output_type
            chosen |= _Chooser(c, module, chosen, carried, low, own_root=own_root).run()
    return chosen


def _low_types(decisions: Mapping[str, Decision]) -> list[DType]:
    named = dict.fromkeys(t for d in decisions.values() for t in (d.operand, d.output))
    return [t for t in named if t is not dtypes.float32 and has_values(t)]


def may_convert_more(decisions: Mapping[str, Decision]) -> bool:
    """Whether the types that `choose_types` chooses may convert more bytes than those of the decisions:
    of several low types the choice for one does not foresee the next one's, and converts from float8,
    which C3 may change, are merged less than it assumes.
    """
    low = _low_types(decisions)
    return len(low) > 1 or any(t.itemsize == 1 for t in low)


@dataclass
class _Readers:
    """Who reads a value: instructions whose type is to be chosen, and in which types all others do.
    `exactly` says that one of those must not find it rounded to the low type.
    """

    free: dict[str, None] = field(default_factory=dict)
    types: set[DType] = field(default_factory=set)
    exactly: bool = False


class _Chooser:
    """Chooses, in one computation, which instructions run in one low type and which in float32."""

    def __init__(
        self,
        computation: Computation,
        module: Module,
        decisions: Mapping[str, Decision],
        carried: Mapping[str, Decision],
        low: DType,
        *,
        own_root: bool,
    ) -> None:
        self.c = computation
        self.by_name = computation.by_name
        self.module = module
        self.decisions = decisions
        self.carried = carried
        self.low = low
        self.free: dict[str, tuple[int, ...]] = {}  # with the operands that commute
        self.kept: dict[str, Planned] = {}
        self.elements: dict[str, str] = {}  # what a get-tuple-element takes from a tuple made here
        self.readers: dict[str, _Readers] = {}
        self.own_root = own_root
        self.rounded: set[str] = set()  # values that the plan rounds, or that need none
        self.representable: set[str] = set()  # those that need none
        self.exact: set[str] = set()  # free instructions whose values are read as they are

    def run(self) -> dict[str, Decision]:
        """The decisions that change."""
        if not any(self._names_low(i.name) for i in self.c.instructions):
            return {}
        if self.low.itemsize == 1 and _keeps_given(self.module, self.decisions, self.low):
            return {}
        for i in self.c.instructions:
            self.kept[i.name] = self._kept(i)
        given = self._leaves(self.c.root) if self.own_root else set()
        for i in self.c.instructions:
            if i.name not in given and (numbers := self._commuted(i)):
                self.free[i.name] = numbers
        self._find_readers()
        self._find_what_is_rounded()
        held: dict[str, _Held] = {}
        for members in self._regions():
            if any(map(self._meets_low, members)):
                for start in range(0, len(members), _AT_ONCE):
                    held |= self._cut(members[start : start + _AT_ONCE], held)
        chosen = {name: self._chosen(name, held) for name in self.free}
        return {name: d for name, d in chosen.items() if d is not None}

    def _names_low(self, name: str) -> bool:
        d = self.decisions.get(name)
        return d is not None and self.low in (d.operand, d.output)

    def _commuted(self, i: Instruction) -> tuple[int, ...]:
        """The operands that commute with rounding, if either type may be chosen for the instruction."""
        if not isinstance(i.shape, Shape) or i.shape.dtype is not dtypes.float32:
            return ()
        d = self.decisions.get(i.name)
        if d is not None:
            f32 = dtypes.float32
            plain = dataclasses.replace(d, operand=f32, output=f32)
            if plain != Decision(f32, f32, f32, d.reason) or not {d.operand, d.output} <= {
                self.low,
                f32,
            }:
                return ()
        numbers = commuted_operands(i, self.module.by_name, self.low)
        return numbers if all(self._may_be_low(i.operands[n]) for n in numbers) else ()

    def _may_be_low(self, name: str) -> bool:
        """Whether it is float32, and no constant whose own decision says how it is rounded."""
        i, d = self.by_name[name], self.decisions.get(name)
        stated = d is not None and d.rounding != "" and i.opcode == "constant"
        return i.array.dtype is dtypes.float32 and not stated

    def _kept(self, i: Instruction) -> Planned:
        """The type in which the plan keeps the value of an instruction that is not free."""
        d = self.decisions.get(i.name)
        if i.opcode == "tuple":
            return tuple(self.kept[o] for o in i.operands)
        if i.opcode == "get-tuple-element":
            index = i.attributes["tuple_index"]
            whole: Planned = self.kept[i.operands[0]]
            source = self._source(i.operands[0])
            assert isinstance(whole, tuple)
            if self.by_name[source].opcode == "tuple":
                self.elements[i.name] = self._source(self.by_name[source].operands[index])
            element: Planned = whole[index]
            return element
        if i.opcode in ("parameter", "while"):
            carried, _ = self._carried(self.c.name if i.opcode == "parameter" else i.called[0])
            return planned_as(i.shape, carried)
        if d is None or i.opcode == "constant":
            return planned_as(i.shape, dtypes.float32)
        if isinstance(i.shape, Shape):
            return planned_as(i.shape, d.gives(dtypes.float32, 0))
        return tuple(planned_as(e, d.gives(dtypes.float32, n)) for n, e in enumerate(i.shape.elements))

    def _carried(self, name: str) -> tuple[DType, Rounding]:
        """The type, and the rounding, in which a loop that calls the computation carries values."""
        d = self.carried.get(name)
        return (dtypes.float32, "") if d is None else (d.output, d.rounding)

    def _source(self, name: str) -> str:
        """The instruction that computes what the named one takes from a tuple."""
        return self.elements.get(name, name)

    def _leaves(self, name: str) -> set[str]:
        """The arrays that a value holds, by name."""
        i = self.by_name[self._source(name)]
        return {x for o in i.operands for x in self._leaves(o)} if i.opcode == "tuple" else {i.name}

    def _find_readers(self) -> None:
        for i in self.c.instructions:
            d = self.decisions.get(i.name)
            if i.name in self.free:
                for n in self.free[i.name]:
                    self._readers_of(i.operands[n]).free[i.name] = None
            elif i.opcode == "while":
                self._read(i.operands[0], *self._carried(i.called[0]))
            elif i.opcode in ("tuple", "get-tuple-element"):
                continue  # their readers say in which types
            elif d is None:
                for o in i.operands:
                    self._read(o, dtypes.float32)
            else:
                for n, o in enumerate(i.operands):
                    self._read(o, d.reads(dtypes.float32, n), d.rounding)
        if not self.own_root:
            self._read(self.c.root, *self._carried(self.c.name))

    def _read(self, name: str, dtype: DType, rounding: Rounding = "") -> None:
        source = self.by_name[self._source(name)]
        if source.opcode == "tuple":
            for o in source.operands:
                self._read(o, dtype, rounding)
        elif isinstance(source.shape, Shape) and source.shape.dtype is dtypes.float32:
            readers = self._readers_of(source.name)
            readers.types.add(dtype)
            # The profile rounds to nearest too, so that a reader may state it.
            readers.exactly |= rounding == "stochastic" or dtype is not self.low

    def _readers_of(self, name: str) -> _Readers:
        return self.readers.setdefault(self._source(name), _Readers())

    def _sources(self, name: str) -> list[str]:
        """What a free instruction reads that commutes."""
        operands = self.by_name[name].operands
        return list(dict.fromkeys(self._source(operands[n]) for n in self.free[name]))

    def _find_what_is_rounded(self) -> None:
        for name in self.by_name:
            if name in self.free:
                sources = self._sources(name)
                if self.representable.issuperset(sources):
                    self.representable.add(name)
                if self._names_low(name) or self.rounded.issuperset(sources):
                    self.rounded.add(name)
            elif name in self.readers and self._is_representable(name):
                self.representable.add(name)
                self.rounded.add(name)
        for name in reversed(self.free):
            if name not in self.rounded and self._is_read_exactly(name):
                self.exact.add(name)

    def _is_read_exactly(self, name: str) -> bool:
        """Whether someone must find the value as the plan has it, and no rounding of it."""
        readers = self.readers.get(name, _Readers())
        return readers.exactly or any(n in self.exact for n in readers.free)

    def _is_representable(self, name: str) -> bool:
        """Whether rounding to the low type changes no bit of a value that is not free."""
        i, kept = self.by_name[name], self._kept_type(name)
        if i.opcode == "constant":
            return _constant_is_representable(i.attributes["literal"], self.low)
        if self.low.itemsize == 1:  # which may have stored Inf as NaN, and only its own (C3)
            return kept is self.low
        if kept is not dtypes.float32:
            return contains(self.low, kept)
        if i.opcode == "convert" and name not in self.decisions:
            return contains(self.low, self.by_name[i.operands[0]].array.dtype)
        return False

    def _kept_type(self, name: str) -> DType:
        kept = self.kept[name]
        assert isinstance(kept, DType)
        return kept

    # ---- the minimum cut

    def _meets_low(self, name: str) -> bool:
        """Whether an instruction, or what it reads, or who reads it, is in the low type."""
        given = (s for s in self._sources(name) if s not in self.free)
        return (
            self._names_low(name)
            or self.low in self.readers.get(name, _Readers()).types
            or any(self._kept_type(s) is self.low for s in given)
        )

    def _regions(self) -> list[list[str]]:
        """The free instructions, those together whose choices meet at a value."""
        parent: dict[str, str] = {}

        def find(name: str) -> str:
            top = name
            while parent.setdefault(top, top) != top:
                top = parent[top]
            while parent[name] != top:
                parent[name], name = top, parent[name]
            return top

        for name in self.free:
            for source in self._sources(name):
                if source in self.free or self.by_name[source].opcode != "constant":
                    parent[find(name)] = find(source)
        regions: dict[str, list[str]] = {}
        for name in self.free:
            regions.setdefault(find(name), []).append(name)
        return list(regions.values())

    def _cut(self, members: list[str], held: Mapping[str, _Held]) -> dict[str, _Held]:
        """How the values of a region's instructions are held so that the fewest bytes are converted: a
        cut whose arcs are converts. Of a large region this is a part; what is held elsewhere is as it
        was found, or as the plan has it.
        """
        weight = len(members) + 1  # of a byte; a choice other than the plan's weighs 1
        network = _Network()
        values = dict.fromkeys([*members, *(s for m in members for s in self._sources(m))])
        free = [name for name in members if name not in self.exact]
        nodes: dict[str, tuple[int, int]] = {}
        alike: Counter[str] = Counter()  # by the last of those that are held in one way
        last: dict[str, str] = {}
        for name in reversed(free):
            following = self._held_alike(name)
            last[name] = last.get(following, name)
            alike[last[name]] += 1
        for name, count in alike.items():
            nodes[name] = is_rounded, is_wide = network.value()
            if self._as_planned(name) == _LOW:
                network.arcs += [(is_rounded, _YES, count), (_NO, is_wide, count)]
            else:
                network.arcs.append((is_wide, is_rounded, count))
        nodes |= {name: nodes[other] for name, other in last.items()}
        for name in values:
            if self.by_name[name].opcode == "constant":
                continue  # converted before the program runs
            if last.get(name, name) != name:
                continue  # never converted
            readers = self.readers.get(name, _Readers()).free
            for other in (name, *(n for n in readers if n not in self.exact)):
                if other in self.free and other not in nodes:
                    nodes[other] = _NODES[held.get(other, self._as_planned(other))]
            if name not in nodes:
                nodes[name] = self._node_of_given(network, name)
            self._add_converts(network, name, nodes, weight)
        _, no = minimum_cut(network.nodes, network.arcs, _NO, _YES)
        return {name: (nodes[name][0] not in no, nodes[name][1] not in no) for name in free}

    def _held_alike(self, name: str) -> str:
        """The only reader of a free instruction's value, if it reads no other, and gives one as large
        and planned alike, else "". A convert between them may as well stand before the one or after
        the other, so that some cheapest choice holds both in one way.
        """
        readers = self.readers.get(name, _Readers())
        if readers.types or len(readers.free) != 1:
            return ""
        (reader,) = readers.free
        fits = (
            reader not in self.exact
            and self._sources(reader) == [self._source(name)]
            and self._size(reader) == self._size(name)
            and self._as_planned(reader) == self._as_planned(name)
        )
        return reader if fits else ""

    def _size(self, name: str) -> int:
        return self.by_name[name].array.size

    def _as_planned(self, name: str) -> _Held:
        d = self.decisions.get(name)
        return _LOW if d is not None and d.operand is d.output is self.low else _UNROUNDED

    def _node_of_given(self, network: _Network, name: str) -> tuple[int, int]:
        """The nodes of a value about which nothing is chosen."""
        if self._kept_type(name) is self.low:
            return _NODES[_LOW]
        if name not in self.representable:
            return _NODES[_UNROUNDED]
        is_rounded, is_wide = network.value()  # float32 may count as either
        network.arcs.append((is_wide, is_rounded, _NEVER))
        return is_rounded, is_wide

    def _add_converts(
        self, network: _Network, name: str, nodes: Mapping[str, tuple[int, int]], weight: int
    ) -> None:
        """The arcs for the converts of a value. All who read it in one type share one."""
        readers = self.readers.get(name, _Readers())
        rounded, wide = nodes[name]
        all_of = [nodes[n] for n in readers.free if n not in self.exact]
        if self.low in readers.types:
            all_of.append(_NODES[_LOW])
        in_float32 = dtypes.float32 in readers.types or any(n in self.exact for n in readers.free)
        widened = [w for _, w in all_of]
        if in_float32 and name in self.representable:
            widened.append(rounded)  # only what is kept in the low type is widened for these
        elif in_float32 and name in self.rounded:
            all_of.append(_NODES[_WIDE])
            widened.append(_YES)
        kept = dtypes.float32 if name in self.free else self._kept_type(name)
        weight *= self._size(name)
        narrowing = weight * _bytes(dtypes.float32 if kept is self.low else kept, self.low)
        widening = weight * _bytes(self.low, dtypes.float32)
        others = readers.types - {self.low, dtypes.float32} if name in self.rounded else set()
        for other in others:
            more = weight * (_bytes(dtypes.float32, other) - _bytes(self.low, other))
            network.arcs += [(rounded, _YES, more), (_NO, wide, more)]
        if kept not in (self.low, dtypes.float32) and dtypes.float32 not in readers.types:
            network.share_from([r for r, _ in all_of], _YES, weight * _bytes(kept, dtypes.float32))
        network.share_to(rounded, [r for r, _ in all_of] + [_YES] * bool(others), narrowing)
        network.share_to(wide, widened, widening)
        network.share_from([w for _, w in all_of], wide, narrowing)
        if not (in_float32 and rounded == _YES):  # then it is widened anyway
            network.share_from([r for r, _ in all_of], rounded, widening)

    def _chosen(self, name: str, held: Mapping[str, _Held]) -> Decision | None:
        """The decision for an instruction whose value is held so."""
        how = held.get(name, _UNROUNDED)  # as all are in a region without the low type
        operand = output = self.low if how == _LOW else dtypes.float32
        as_they_are: tuple[int, ...] = ()
        if how == _WIDE:
            rounds = [
                n for n in self.free[name] if self._is_unrounded(self.by_name[name].operands[n], held)
            ]
            if rounds:
                operand = self.low
                as_they_are = tuple(n for n in self.free[name] if n not in rounds)
        elif how == _UNROUNDED and name in self.rounded - self.representable:
            output = self.low if self._is_read_exactly(name) else output
        d = self.decisions.get(name)
        if d is None and operand is output is dtypes.float32:
            return None
        if d is not None and (d.operand, d.output) == (operand, output) and not as_they_are:
            return d
        dtype = self.low if how == _LOW else dtypes.float32
        opcode = self.by_name[name].opcode
        reason = f"{opcode} commutes with rounding: as {dtype.name} the fewest bytes are converted"
        if d is not None:
            reason = f"{d.reason}; {reason}"
        return Decision(operand, dtypes.float32, output, reason, float32_operands=as_they_are)

    def _is_unrounded(self, name: str, held: Mapping[str, _Held]) -> bool:
        """Whether who needs a value rounded has to round it."""
        source = self._source(name)
        if source in self.representable:
            return False
        if source in held:
            return held[source] == _UNROUNDED
        return source in self.free or self._kept_type(source) is not self.low


_NODES = {_UNROUNDED: (_NO, _NO), _LOW: (_YES, _NO), _WIDE: (_YES, _YES)}


class _Network:
    """What `minimum_cut` takes, while it is made."""

    def __init__(self) -> None:
        self.nodes = 2
        self.arcs: list[tuple[int, int, int]] = []

    def value(self) -> tuple[int, int]:
        """New nodes of a value: only what is rounded can be wide."""
        self.nodes += 2
        self.arcs.append((self.nodes - 2, self.nodes - 1, _NEVER))
        return self.nodes - 2, self.nodes - 1

    def share_to(self, given: int, readers: list[int], weight: int) -> None:
        """Weighs once if the given node is on the source's side and any reader is not."""
        if weight and given != _YES and readers:
            shared, others = self._shared(readers, _YES)
            self.arcs.append((given, shared, weight))
            self.arcs += [(shared, reader, _NEVER) for reader in others]

    def share_from(self, readers: list[int], given: int, weight: int) -> None:
        """Weighs once if any reader is on the source's side and the given node is not."""
        if weight and given != _NO and readers:
            shared, others = self._shared(readers, _NO)
            self.arcs.append((shared, given, weight))
            self.arcs += [(reader, shared, _NEVER) for reader in others]

    def _shared(self, readers: list[int], certain: int) -> tuple[int, list[int]]:
        """A node for all readers, and which of them it needs: one that decides stands for all."""
        if certain in readers or len(readers) == 1:
            return certain if certain in readers else readers[0], []
        self.nodes += 1
        return self.nodes - 1, readers


def _keeps_given(module: Module, decisions: Mapping[str, Decision], dtype: DType) -> bool:
    """Whether the model gives values in this type that a decision keeps in it, so that nothing stored
    them there: a float8 may then hold an Inf that its conversion takes to NaN (C3).
    """
    return any(
        i.opcode == "convert"
        and i.name in decisions
        and decisions[i.name].output is c.by_name[i.operands[0]].array.dtype is dtype
        for c in graph_computations(module)
        for i in c.instructions
    )


def planned_as(shape: AnyShape, dtype: DType) -> Planned:
    """The types of a result whose float32 arrays are kept in this type."""
    if isinstance(shape, Shape):
        return dtype if shape.dtype is dtypes.float32 else shape.dtype
    return tuple(planned_as(e, dtype) for e in shape.elements)


def _bytes(source: DType, wanted: DType) -> int:
    """What converting an element reads and writes; nothing where float32 carries both and is wanted."""
    if source is wanted or (wanted is dtypes.float32 and carrier(source) is wanted):
        return 0
    return carrier(source).itemsize + carrier(wanted).itemsize


def _constant_is_representable(literal: ops.Bits, dtype: DType) -> bool:
    """Whether every element of a float32 constant is zero or a finite normal number of the type."""
    found = values_of(dtype)
    for data in (literal.data.flat[:_FIRST], literal.data):  # of weights the first ones say it
        size = np.abs(data)
        rest = data.view(np.uint32) & ((1 << (23 - found.mantissa_bits)) - 1)
        fits = (size >= dtype.smallest_normal) & (size <= found.largest) & (rest == 0)
        if not np.all((size == 0) | fits):
            return False
    return True
