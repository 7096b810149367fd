"""Calibration: what the values of every instruction are when a model runs in float32 on data.

>>> from neuronsim.hlo.module import Computation, Instruction, Module
>>> x = Instruction("x", "parameter", Shape(dtypes.float32, (2,)), (), {"number": 0})
>>> y = Instruction("y", "exponential", Shape(dtypes.float32, (2,)), ("x",))
>>> module = Module("m", "main", (Computation("main", (x, y), "y"),))
>>> run = {n: ops.Statistics(2, 0, 0, 0, 0, 1.0, 3.0, {0: 1, 2: 1}) for n in "xy"}
>>> calibration = make_calibration(module, [run])
>>> calibration.values["y"].largest
3.0
>>> Calibration.from_json(calibration.to_json()) == calibration
True
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from neuronsim import dtypes, json_documents, ops
from neuronsim.casting.fields import (
    KINDS,
    MAX_BYTES,
    count,
    joined,
    mapping,
    read_fields,
    read_text,
    shown,
    text,
)
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    Shape,
    find_callers,
    graph_computations,
)
from neuronsim.processor import pinned
from neuronsim.records import check_fields, readers

SCHEMA = "neuronsim.calibration/1"


@dataclass(frozen=True)
class Calibration:
    """What the float values of the instructions of `inline_calls(module)` were in a float32 run, by
    instruction; an instruction that did not run has none.

    An instruction with several results has them together. What only hands values on (a tuple's element,
    the values of a loop) has those of the instructions that they can come from. What a last batch was
    filled up with is taken out again, where it can be told (docs/diagnostics.md).
    """

    module: str
    fingerprint: str
    values: Mapping[str, ops.Statistics] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)

    def check(self, module: Module) -> None:
        """Raises InvalidArgument if the calibration was made for another module, or names what the
        module lacks.
        """
        if self.fingerprint != fingerprint(module):
            raise InvalidArgument(
                f"the calibration was made for {shown(self.module)} ({self.fingerprint}), not for "
                f"module {shown(module.name)} ({fingerprint(module)}); another batch, shape or weight "
                "makes another module: calibrate this one"
            )
        graphs = graph_computations(inline_calls(module))
        names = {i.name for c in graphs for i in c.instructions}
        problems = [f"it has no instruction {shown(n)}" for n in self.values if n not in names]
        if problems:
            raise InvalidArgument(
                f"the calibration does not fit module {shown(module.name)}: {joined(problems)}"
            )

    @pinned
    def to_json(self) -> str:
        """The calibration as JSON with a schema name."""
        values = {name: dataclasses.asdict(s) for name, s in self.values.items()}
        body = {"schema": SCHEMA, "module": self.module, "fingerprint": self.fingerprint}
        return json.dumps(body | {"values": values}, indent=1, sort_keys=True)

    @staticmethod
    @pinned
    def from_json(source: str) -> Calibration:
        """The calibration that `to_json` wrote; else raises InvalidArgument with all problems."""
        try:
            body = json_documents.parse(source)
        except InvalidArgument as error:
            raise InvalidArgument(f"not a calibration of neuronsim: {error}") from error
        schema = body.get("schema") if isinstance(body, dict) else None
        if schema != SCHEMA:
            raise InvalidArgument(
                f"not a calibration of neuronsim: its schema is {shown(schema)}, not {SCHEMA!r}"
            )
        problems: list[str] = []
        found = read_fields(body, _CALIBRATION, "", problems, _CALIBRATION)
        values = {}
        for name, given in found.get("values", {}).items():
            read = read_fields(given, _STATISTICS, f"values of {shown(name)}: ", problems, _STATISTICS)
            if read.keys() == _STATISTICS.keys():
                values[name] = s = ops.Statistics(**read)
                problems += [f"values of {shown(name)}: {p}" for p in _contradictions(s)]
        if problems:
            raise InvalidArgument(f"not a calibration of neuronsim: {joined(problems)}")
        return Calibration(found["module"], found["fingerprint"], values)


def _exponents(value: Any) -> dict[int, int]:
    try:
        found = {int(e): count(n) for e, n in mapping(value).items()}
    except ValueError as error:  # InvalidArgument is one
        raise InvalidArgument("an object of counts by exponent") from error
    if list(map(str, found)) != list(value):
        raise InvalidArgument("an object of counts by exponent, each written once as a plain integer")
    return found


def _contradictions(s: ops.Statistics) -> list[str]:
    """What statistics say that no array can be."""
    usual = sum(s.exponents.values())
    found = []
    if s.elements != s.nan + s.infinite + s.zero + usual:
        found.append(
            f"of elements: {shown(s.elements)}, nan, infinite and zero: "
            f"{shown(s.nan + s.infinite + s.zero)} and exponents: {shown(usual)} do not add up"
        )
    if s.subnormal > usual:
        found.append(f"subnormal: {shown(s.subnormal)} are more than exponents: {shown(usual)}")
    if s.smallest > s.largest:
        found.append(f"smallest: {s.smallest:g} is more than largest: {s.largest:g}")
    filled = [e for e, n in s.exponents.items() if n]
    for name, value, e in (
        ("smallest", s.smallest, min(filled, default=None)),
        ("largest", s.largest, max(filled, default=None)),
    ):
        if (_exponent(value) if value else None) != e:
            found.append(f"{name}: {value:g} is not among those that exponents count")
    return found


def _exponent(magnitude: float) -> int:
    """The least whole e with a magnitude up to 2^e."""
    fraction, e = math.frexp(magnitude)
    return e - (fraction == 0.5)


_CALIBRATION = {"schema": text, **readers(Calibration, KINDS), "values": mapping}
_STATISTICS = {**readers(ops.Statistics, KINDS), "exponents": _exponents}


@pinned
def load_calibration(path: str | Path) -> Calibration:
    """The calibration in a JSON file. Raises InvalidArgument for any other file."""
    return Calibration.from_json(read_text(path, "calibration", MAX_BYTES))


def make_calibration(module: Module, runs: Iterable[Mapping[str, ops.Statistics]]) -> Calibration:
    """The calibration of what some runs met: of each the statistics of the entry's parameters and of
    all instructions that it executed, by name.
    """
    met: dict[str, ops.Statistics] = {}
    for run in runs:
        for name, s in run.items():
            met[name] = met[name] + s if name in met else s
    flat = inline_calls(module)
    graphs = graph_computations(flat)
    for i in (i for c in graphs for i in c.instructions if i.opcode == "constant"):
        if isinstance(i.shape, Shape):
            constant = ops.statistics(i.attributes["literal"])
            if constant is not None:
                met[i.name] = constant
    values = dict(met)
    origins = _Origins(graphs, met)
    for i in (i for c in graphs for i in c.instructions):
        if i.name not in met and isinstance(i.shape, Shape) and i.shape.dtype.kind == "float":
            found = origins.of(i)
            if found is not None:
                values[i.name] = found
    return Calibration(module.name, fingerprint(module), values)


# A part of an instruction's value: its name, and the indices of tuples inside each other.
_Part = tuple[str, tuple[int, ...]]


class _Found(NamedTuple):
    """The instructions that made a part's values, a bit each, and what these were, if any ran."""

    makers: int
    values: ops.Statistics | None


class _Origins:
    """The values that instructions only hand on, across tuples, loops and branches: those of all that
    made them, each counted once.
    """

    def __init__(self, graphs: Sequence[Computation], made: Mapping[str, ops.Statistics]) -> None:
        self._made = made
        self._numbered: list[str] = []  # which maker each bit stands for
        self._found: dict[_Part, _Found] = {}
        self._instructions = {i.name: i for c in graphs for i in c.instructions}
        self._owners = {i.name: c.name for c in graphs for i in c.instructions}
        self._roots = {c.name: c.root for c in graphs}
        self._callers = find_callers(graphs)

    def of(self, i: Instruction) -> ops.Statistics | None:
        """What the values of an array were."""
        part: _Part = (i.name, ())
        if part not in self._found:
            self._find(part)
        return self._found[part].values

    def _find(self, start: _Part) -> None:
        """Finds a part and all that it comes from, parts that come from each other together (Tarjan's
        strongly connected components).
        """
        numbers: dict[_Part, int] = {}
        lowest: dict[_Part, int] = {}  # of what is reached and still open
        opened: list[_Part] = []
        places: dict[_Part, int] = {}  # where they are in this list
        path: list[tuple[_Part, Iterator[_Part]]] = []

        def enter(part: _Part) -> None:
            numbers[part] = lowest[part] = len(numbers)
            places[part] = len(opened)
            opened.append(part)
            path.append((part, self._sources(part)))

        enter(start)
        while path:
            part, rest = path[-1]
            following = next((f for f in rest if f not in self._found), None)
            if following is None:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[part])
                if lowest[part] == numbers[part]:
                    self._settle(opened[places[part] :])
                    del opened[places[part] :]
            elif following in numbers:
                lowest[part] = min(lowest[part], numbers[following])
            else:
                enter(following)

    def _settle(self, members: Sequence[_Part]) -> None:
        """What parts have that come from each other, and from parts that are found."""
        name = members[0][0]
        if name in self._made:
            self._numbered.append(name)
            found = _Found(1 << (len(self._numbered) - 1), self._made[name])
        else:
            sources = {s for m in members for s in self._sources(m)}.difference(members)
            found = self._union([self._found[s] for s in sources])
        self._found |= dict.fromkeys(members, found)

    def _union(self, sources: Sequence[_Found]) -> _Found:
        """The makers of all sources: to the values of the source with the most are added those of the
        others' that it lacks.
        """
        makers, values = max(sources, key=lambda s: s.makers.bit_count(), default=_Found(0, None))
        for s in sources:
            missing = s.makers & ~makers
            makers |= missing
            while missing and values is not None:
                number = missing.bit_length() - 1
                values += self._made[self._numbered[number]]
                missing ^= 1 << number
        return _Found(makers, values)

    def _sources(self, part: _Part) -> Iterator[_Part]:
        """The parts that a part of a value can be; none of what is made."""
        if part[0] in self._made:
            return
        i, path = self._instructions[part[0]], part[1]
        match i.opcode:
            case "tuple":
                yield i.operands[path[0]], path[1:]
            case "get-tuple-element":
                yield i.operands[0], (int(i.attributes["tuple_index"]), *path)
            case "opt-barrier" | "add-dependency":
                yield i.operands[0], path
            case "while":
                yield i.operands[0], path
                yield self._roots[i.called[0]], path
            case "conditional":
                yield from ((self._roots[name], path) for name in i.called)
            case "parameter":
                for caller in self._callers.get(self._owners[i.name], ()):
                    loop = caller.instruction
                    yield loop.name if loop.opcode == "while" else caller.given, path


def share_rounded_to_zero(s: ops.Statistics, dtype: DType) -> float:
    """The share of the values that are not zero which a float type rounds to zero, to nearest even.

    It is exact for types with subnormals: those are the magnitudes up to half of the least value, a
    power of two (C1). Open formats without them make zero what is below their least normal value (C9);
    what is just below that and rounds up to it, and that value itself, count too. Values that are Inf
    or NaN count as not zero.
    """
    least_normal = 2 - (1 << (dtype.exponent_bits - 1))
    has_subnormals = not dtype.is_open or dtype.exponent_bits == dtypes.float32.exponent_bits
    largest_lost = least_normal - dtype.mantissa_bits - 1 if has_subnormals else least_normal
    lost = sum(n for e, n in s.exponents.items() if e <= largest_lost)
    nonzero = s.elements - s.zero
    return lost / nonzero if nonzero else 0.0
