"""In which types the values of a planned module are stored and read: which casts an engine does as it
writes or reads, what it reads from PSUM, where products leave their sums, and which instructions it
quantizes by.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from neuronsim import dtypes
from neuronsim.hlo.array_sources import ARRANGES, Source
from neuronsim.hlo.module import CONTROL_FLOW, Computation, Instruction, TupleShape, live_instructions
from neuronsim.hlo.opcodes import CONVERTS, STRUCTURE, row
from neuronsim.tuning.loop_facts import LoopFacts

ON_ENGINE = ("vector", "scalar")  # engines that cast as they read and write (neuron.md 4.2)
_RENAMES = frozenset({"reshape", "bitcast"})  # the same elements in the same order
_ANY: tuple[object, ...] = ()  # the form of a value that no narrower cast reads
_PRODUCTS = frozenset({"dot", "convolution"})
_OUTPUT = Instruction("", "output", TupleShape(()))  # what reads the results
BYTES = (dtypes.int8, dtypes.uint8)
# Of instructions that quantize or dequantize (rules Q): one engine's does all, and the last is named.
Part = Literal["inside", "last"]


@dataclass
class ValueForms:
    """Of a module whose calls are inlined, by computation, what reads each array: found when asked."""

    known: LoopFacts
    _readers: dict[str, dict[tuple[str, int], list[Instruction]]] = field(default_factory=dict)
    _stored: dict[tuple[str, str, int], tuple[object, ...] | None] = field(default_factory=dict)
    _direct: dict[tuple[str, str], bool] = field(default_factory=dict)
    _quantizing: dict[str, dict[str, Part]] = field(default_factory=dict)

    def readers(self, c: Computation, source: Source) -> list[Instruction]:
        """The instructions that read an array of a computation, through tuples; an instruction without
        a name is the run's results. What a loop carries is read where a trip reads it.
        """
        if c.name not in self._readers:
            self._readers[c.name] = self._read_in(c)
        return self._readers[c.name].get((source[0].name, source[1]), [])

    def _read_in(self, c: Computation) -> dict[tuple[str, int], list[Instruction]]:
        found: dict[tuple[str, int], list[Instruction]] = {}
        sources = self.known.sources[c.name]
        live = live_instructions(c)
        for i in c.instructions:
            if i.name not in live or i.opcode in ARRANGES:
                continue
            for o in dict.fromkeys(i.operands):
                for source, n in sources[o]:
                    found.setdefault((source.name, n), []).append(i)
        if c.name == self.known.flat.entry:
            for source, n in sources[c.root]:
                found.setdefault((source.name, n), []).append(_OUTPUT)
        return found

    def source(self, c: Computation, name: str) -> Source:
        """What gives the first array of an instruction."""
        return self.known.sources[c.name][name][0]

    # ---- casts -----------------------------------------------------------------------------------

    def is_cast_by_readers(self, c: Computation, cast: Instruction) -> bool:
        """Whether only engines read a wider form of a value: they widen what they read."""
        if cast.opcode != "convert":
            return False
        narrow, wide = c.by_name[cast.operands[0]].array.dtype, cast.array.dtype
        floats = narrow.kind == wide.kind == "float"
        if not floats or narrow.itemsize >= wide.itemsize:
            return False
        readers = self.readers(c, (cast, 0))
        return bool(readers) and all(on_engine(r) for r in readers)

    def is_stored(self, c: Computation, cast: Instruction) -> bool:
        """Whether a cast gives the one form in which what computes a value stores it: nothing reads the
        value as it is, and no cast to another type is before it. Each further form takes a copy.
        """
        source, n = self.source(c, cast.operands[0])
        place = c.name, source.name, n
        if place not in self._stored:
            self._stored[place] = self._stored_form(c, (source, n))
        return self._stored[place] in (_ANY, _form(cast))

    def _stored_form(self, c: Computation, source: Source) -> tuple[object, ...] | None:
        """The type that what computes a value gives it: None where that is its own."""
        readers = [r for r in self.readers(c, source) if r.opcode not in CONTROL_FLOW]
        if any(reader.opcode not in CONVERTS for reader in readers):
            return None
        narrow = (_form(r) for r in readers if not self.is_cast_by_readers(c, r))
        return next(narrow, _ANY)

    # ---- PSUM ------------------------------------------------------------------------------------

    def has_reader_of_psum(self, c: Computation, product: Instruction) -> bool:
        """Whether one instruction of an engine alone reads a product's sums, however they are cast and
        reshaped: it reads them from PSUM.
        """
        place = c.name, product.name
        if place not in self._direct:
            readers = self._through(c, product)
            self._direct[place] = len(readers) == 1 and on_engine(readers[0])
        return self._direct[place]

    def is_read_from_psum(self, c: Computation, name: str) -> bool:
        """Whether an operand is a product's sums, which its reader takes from PSUM."""
        i = self.source(c, name)[0]
        while i.opcode in CONVERTS or i.opcode in _RENAMES:
            i = self.source(c, i.operands[0])[0]
        return i.opcode in _PRODUCTS and self.has_reader_of_psum(c, i)

    def _through(self, c: Computation, i: Instruction) -> list[Instruction]:
        """What reads a value, through casts and reshapes of it."""
        found: list[Instruction] = []
        pending = [i]
        while pending:
            for reader in self.readers(c, (pending.pop(), 0)):
                renames = reader.opcode in CONVERTS or reader.opcode in _RENAMES
                (pending if renames else found).append(reader)
        return found

    # ---- integers --------------------------------------------------------------------------------

    def quantizing(self, c: Computation, i: Instruction) -> Part | None:
        """Whether an instruction is one of those that quantize an array, or scale the sums of a
        product of bytes and add its bias: one instruction of an engine, func(x * scale + bias), which
        casts as it writes. Where a function alone reads what was scaled, it is that instruction.
        """
        if c.name not in self._quantizing:
            found: dict[str, Part] = {}
            for end in c.instructions:
                names, last = self._quantizes(c, end), end.name
                if not names and (names := self._scales_sums(c, end)):
                    last = "" if self._is_activated(c, end) else last
                found.update((n, "last" if n == last else "inside") for n in names)
            self._quantizing[c.name] = found
        return self._quantizing[c.name].get(i.name)

    def _quantizes(self, c: Computation, end: Instruction) -> list[str]:
        """Q1 from its last convert back: the names, or none."""
        if end.opcode != "convert" or end.array.dtype not in BYTES:
            return []
        names = [end.name]
        at = self._before(c, end, 0)
        if at is not None and at.opcode == "add":
            names.append(at.name)
            at = self._beside_constant(c, at)
            names += [at.name] if at is not None else []
            at = self._before(c, at, 0) if at is not None and at.opcode == "convert" else None
        for opcode, operand in (("clamp", 1), ("round-nearest-even", 0)):
            if at is None or at.opcode != opcode:
                return []
            names.append(at.name)
            at = self._before(c, at, operand)
        if at is None or at.opcode not in ("divide", "multiply") or not self._is_scaled(c, at):
            return []
        sums = self._sums(c, at) if at.opcode == "multiply" else []
        return [*names, at.name, *sums]

    def _scales_sums(self, c: Computation, end: Instruction) -> list[str]:
        """Q3 without requantizing, from the product with the scale back, or the sum with a bias after
        it.
        """
        biased = end.opcode == "add" and end.array.dtype.kind == "float"
        at = self._beside_constant(c, end, casts=True) if biased else end
        if at is None or at.opcode != "multiply" or not self._is_scaled(c, at):
            return []
        sums = self._sums(c, at)
        return [*dict.fromkeys((end.name, at.name)), *sums] if sums else []

    def _is_activated(self, c: Computation, scaled: Instruction) -> bool:
        readers = self._through(c, scaled)
        return len(readers) == 1 and on_engine(readers[0]) and row(readers[0]).cost == "activation"

    def _is_scaled(self, c: Computation, i: Instruction) -> bool:
        return i.array.dtype is dtypes.float32 and self.known.is_constant(c, c.by_name[i.operands[1]])

    def _sums(self, c: Computation, scaled: Instruction) -> list[str]:
        """What lies between a product of bytes and the scale: a convert, zero points' parts, a bias."""
        at = self._before(c, scaled, 0)
        if at is None or at.opcode != "convert":
            return []
        names = [at.name]
        at = self._before(c, at, 0)
        while at is not None and at.opcode == "subtract":
            names.append(at.name)
            at = self._beside_constant(c, at)
        is_sums = at is not None and at.opcode in _PRODUCTS and at.array.dtype is dtypes.int32
        return names if is_sums else []

    def _before(self, c: Computation, i: Instruction, operand: int) -> Instruction | None:
        """What gives an operand, if nothing else reads it."""
        found = self.source(c, i.operands[operand])[0]
        return found if len(self.readers(c, (found, 0))) == 1 else None

    def _beside_constant(
        self, c: Computation, i: Instruction, *, casts: bool = False
    ) -> Instruction | None:
        """What gives the first operand where the second is there before the run; before its casts."""
        if not self.known.is_constant(c, c.by_name[i.operands[1]]):
            return None
        found = self._before(c, i, 0)
        while casts and found is not None and found.opcode in CONVERTS:
            found = self._before(c, found, 0)
        return found


def _form(cast: Instruction) -> tuple[object, ...]:
    return cast.array.dtype, cast.attributes.get("exponent_bits"), cast.attributes.get("mantissa_bits")


def on_engine(i: Instruction) -> bool:
    """Whether an instruction runs on an engine that casts as it reads."""
    if i.opcode == "output" or i.opcode in STRUCTURE or i.opcode in CONVERTS:
        return False
    return row(i).engine in ON_ENGINE
