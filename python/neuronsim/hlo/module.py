"""The IR: a module of computations of instructions, static and immutable.

>>> parameter = Instruction("x", "parameter", Shape(dtypes.float32, (2,)), (), {"number": 0})
>>> double = Instruction("y", "add", Shape(dtypes.float32, (2,)), ("x", "x"))
>>> entry = Computation("main", (parameter, double), root="y")
>>> Module("doubled", "main", (entry,)).parameters[0].name
'x'
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from neuronsim import dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidModel, nearest
from neuronsim.hlo.attribute_names import ALLOWED, ANY_HAS


@dataclass(frozen=True, slots=True)
class Shape:
    """Element type, dimensions and layout (minor-most dimension first; None is row-major)."""

    dtype: DType
    dims: tuple[int, ...] = ()
    layout: tuple[int, ...] | None = None

    @property
    def type(self) -> ops.ArrayType:
        """The element type and dimensions."""
        return ops.ArrayType(self.dtype, self.dims)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return self.type.size

    @property
    def nbytes(self) -> int:
        """How many bytes these take."""
        return self.type.nbytes

    def arrays(self) -> tuple[Shape, ...]:
        """The array shapes inside: itself."""
        return (self,)


MAX_TUPLE_DEPTH = 64
MAX_TUPLE_ARRAYS = 1_000_000


@dataclass(frozen=True)
class TupleShape:
    """The shape of a tuple. A token is an empty one of its own kind.

    What walks over shapes relies on the limits: InvalidModel is raised for tuples that are nested
    deeper than MAX_TUPLE_DEPTH, and for more than MAX_TUPLE_ARRAYS arrays in one.
    """

    elements: tuple[AnyShape, ...]
    is_token: bool = False
    depth: int = field(init=False, repr=False, compare=False)  # of tuples inside each other
    # Where the arrays of each element begin among all, and how many there are.
    starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        depth, starts = 0, [0]
        for e in self.elements:
            inner, arrays = (e.depth, e.starts[-1]) if isinstance(e, TupleShape) else (0, 1)
            depth = max(depth, 1 + inner)
            starts.append(starts[-1] + arrays)
        if depth > MAX_TUPLE_DEPTH:
            raise InvalidModel(
                f"tuples are nested deeper than {MAX_TUPLE_DEPTH}: put their arrays into one tuple"
            )
        if starts[-1] > MAX_TUPLE_ARRAYS:
            raise InvalidModel(
                f"a tuple has {starts[-1]} arrays: neuronsim takes up to {MAX_TUPLE_ARRAYS}"
            )
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "starts", tuple(starts))

    def __hash__(self) -> int:
        return self._hash

    def arrays(self) -> tuple[Shape, ...]:
        """The array shapes inside, in order."""
        return self._arrays

    def place(self, index: int) -> slice:
        """Where the arrays of an element are among all of the tuple's."""
        return slice(self.starts[index], self.starts[index + 1])

    @cached_property
    def _hash(self) -> int:
        return hash((self.elements, self.is_token))

    @cached_property
    def _arrays(self) -> tuple[Shape, ...]:
        return tuple(s for e in self.elements for s in e.arrays())


def row_major(rank: int) -> tuple[int, ...]:
    """The layout of arrays of so many dimensions whose last one is the minor-most."""
    return tuple(reversed(range(rank)))


AnyShape: TypeAlias = Shape | TupleShape


def without_layouts(shape: AnyShape) -> object:
    """What of a shape decides values: two are alike whose arrays have the same types."""
    return shape.type if isinstance(shape, Shape) else tuple(map(without_layouts, shape.elements))


Literal: TypeAlias = "ops.Bits | tuple[Literal, ...]"  # of a constant: an array, or a tuple of them
TOKEN = TupleShape((), is_token=True)
# Which output lies in which input's memory: the output's index inside the result, the parameter's
# number, the index inside the parameter, and "MAY_ALIAS" or "MUST_ALIAS".
Alias: TypeAlias = tuple[tuple[int, ...], int, tuple[int, ...], str]


@dataclass(frozen=True, slots=True)
class Metadata:
    """Where an instruction came from."""

    op_type: str = ""
    op_name: str = ""
    source_file: str = ""
    source_line: int = 0


@dataclass(frozen=True, slots=True)
class Instruction:
    """One operation. Operands are names in the same computation, defined before it.

    `unread` holds protobuf fields that neuronsim does not interpret; the writer gives them back.

    Raises InvalidModel for attributes that its opcode has not.
    """

    name: str
    opcode: str
    shape: AnyShape
    operands: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    metadata: Metadata = Metadata()
    unread: bytes = b""

    def __post_init__(self) -> None:
        known = ALLOWED.get(self.opcode, ANY_HAS)
        if self.attributes.keys() <= known:
            return
        if known is ANY_HAS and self.opcode not in ops.OPCODES:
            return  # which nothing here reads
        wrong = next(k for k in self.attributes if k not in known)
        raise InvalidModel(
            f"{self.name}: {self.opcode} has no attribute {wrong!r}{nearest(wrong, known)}: it has "
            f"{', '.join(sorted(known))}"
        )

    @property
    def called(self) -> tuple[str, ...]:
        """The names of the computations that this instruction calls."""
        return tuple(self.attributes.get("called", ()))

    @property
    def array(self) -> Shape:
        """The shape of an instruction that is known to be an array."""
        if not isinstance(self.shape, Shape):
            raise InvalidModel(f"{self.name}: {self.opcode} cannot give a tuple")
        return self.shape

    @property
    def result(self) -> ops.Result:
        """The type of the array, or the types of the arrays, that it gives."""
        s = self.shape
        return s.type if isinstance(s, Shape) else tuple(a.type for a in s.arrays())

    def replace(self, **changes: Any) -> Instruction:
        """A copy with other fields."""
        return dataclasses.replace(self, **changes)

    def reading(self, others: Mapping[str, str]) -> Instruction:
        """A copy that reads others in the place of some operands; itself where it has none of these."""
        operands = tuple(others.get(o, o) for o in self.operands)
        return self if operands == self.operands else self.replace(operands=operands)


@dataclass(frozen=True)
class Computation:
    """Instructions in an order where each follows its operands."""

    name: str
    instructions: tuple[Instruction, ...]
    root: str

    @cached_property
    def by_name(self) -> Mapping[str, Instruction]:
        """Instructions by name."""
        return {i.name: i for i in self.instructions}

    @cached_property
    def parameters(self) -> tuple[Instruction, ...]:
        """The parameters in order of their numbers."""
        found = [i for i in self.instructions if i.opcode == "parameter"]
        return tuple(sorted(found, key=lambda i: int(i.attributes["number"])))

    def renamed(self, names: Mapping[str, str]) -> Computation:
        """A copy whose instructions have these names."""
        read = [(names[i.name], i.reading(names)) for i in self.instructions]
        renamed = (i if i.name == name else i.replace(name=name) for name, i in read)
        return Computation(self.name, tuple(renamed), names[self.root])

    def users(self) -> dict[str, list[Instruction]]:
        """For every instruction, those that read it."""
        found: dict[str, list[Instruction]] = {i.name: [] for i in self.instructions}
        for i in self.instructions:
            for operand in dict.fromkeys(i.operands):
                found[operand].append(i)
        return found


@dataclass(frozen=True)
class Module:
    """A program. Computations are in an order where each follows those that it calls.

    `entry_layout` holds the shapes that the file's entry_computation_layout gives the parameters and
    the result, where their layouts are not those of the instructions.
    """

    name: str
    entry: str
    computations: tuple[Computation, ...]
    parameter_names: tuple[str, ...] = ()
    input_output_alias: tuple[Alias, ...] = ()
    entry_layout: tuple[tuple[AnyShape, ...], AnyShape] | None = None

    @cached_property
    def by_name(self) -> Mapping[str, Computation]:
        """Computations by name."""
        return {c.name: c for c in self.computations}

    @cached_property
    def scalar_computations(self) -> dict[str, ops.ScalarComputation]:
        """Those that were lowered so far (`opcodes.scalar_computation`)."""
        return {}

    @property
    def instructions(self) -> Iterator[Instruction]:
        """The instructions of all computations."""
        return (i for c in self.computations for i in c.instructions)

    @property
    def entry_computation(self) -> Computation:
        return self.by_name[self.entry]

    @property
    def parameters(self) -> tuple[Instruction, ...]:
        """The entry computation's parameters in order."""
        return self.entry_computation.parameters

    @property
    def root(self) -> Instruction:
        """The instruction whose value the program returns."""
        return self.entry_computation.by_name[self.entry_computation.root]

    @property
    def program_shape(self) -> tuple[tuple[AnyShape, ...], AnyShape]:
        """The shapes of the parameters and of the result, in the entry computation's layout."""
        own = tuple(p.shape for p in self.parameters), self.root.shape
        if self.entry_layout is not None and _types(self.entry_layout) == _types(own):
            return self.entry_layout
        return own

    def replace_entry(self, entry: Computation) -> Module:
        """A copy with another entry computation."""
        others = tuple(c for c in self.computations if c.name != self.entry)
        return dataclasses.replace(self, entry=entry.name, computations=(*others, entry))

    def input_names(self) -> tuple[str, ...]:
        """The names that data may use for the parameters: the instruction's, without its number.

        XLA numbers names (`x.1`); the part before the number is kept where it stays unique.
        """
        names = [p.name for p in self.parameters]
        short = [n.rpartition(".")[0] if n.rpartition(".")[2].isdecimal() else n for n in names]
        counts = Counter([*short, *names])
        pairs = zip(short, names, strict=True)
        return tuple(s if s and counts[s] == (2 if s == n else 1) else n for s, n in pairs)

    def known_inputs(self) -> dict[str, str]:
        """Which of the `input_names` each name stands for: itself, the parameter's, and the one that it
        has where the module comes from, such as ONNX's `onnx::Conv_0`.
        """
        names = self.input_names()
        known = {n: n for n in names}
        for own, p in zip(names, self.parameters, strict=True):
            known.setdefault(p.name, own)
        for own, given in zip(names, self.parameter_names, strict=False):
            known.setdefault(given, own)
        return known


def _types(shapes: tuple[tuple[AnyShape, ...], AnyShape]) -> list[ops.ArrayType]:
    """The types of all arrays in the parameters and the result, without their layouts."""
    return [s.type for shape in (*shapes[0], shapes[1]) for s in shape.arrays()]


def make_computation(name: str, instructions: Iterable[Instruction], root: str) -> Computation:
    """A computation of a file's instructions, put in order.

    Raises InvalidModel for names that occur twice or not at all, and for an instruction that needs
    itself.
    """
    listed = tuple(instructions)
    _require_unique((i.name for i in listed), f"instructions of {name}")
    by_name = {i.name: i for i in listed}
    for i in listed:
        for operand in i.operands:
            if operand not in by_name:
                raise InvalidModel(
                    f"{name}/{i.name}: operand {operand!r} is no instruction of the computation"
                )
    if root not in by_name:
        raise InvalidModel(f"{name}: its root does not exist")
    order = sort_by_dependency(by_name, lambda n: by_name[n].operands, "instruction")
    return Computation(name, tuple(by_name[n] for n in order), root)


def make_module(
    name: str,
    entry: str,
    computations: Iterable[Computation],
    *,
    parameter_names: tuple[str, ...] = (),
    input_output_alias: tuple[Alias, ...] = (),
    entry_layout: tuple[tuple[AnyShape, ...], AnyShape] | None = None,
) -> Module:
    """A module of a file's computations, put in order.

    Raises InvalidModel for names that occur twice or not at all, and for a computation that calls
    itself.
    """
    listed = tuple(computations)
    _require_unique((c.name for c in listed), "computations")
    by_name = {c.name: c for c in listed}
    if entry not in by_name:
        raise InvalidModel(f"the entry computation {entry!r} does not exist")
    calls = {c.name: list(dict.fromkeys(n for i in c.instructions for n in i.called)) for c in listed}
    for caller, callees in calls.items():
        for callee in callees:
            if callee not in by_name:
                raise InvalidModel(f"{caller}: called computation {callee!r} does not exist")
    order = sort_by_dependency(by_name, lambda n: calls[n], "computation")
    module = Module(name, entry, tuple(by_name[n] for n in order), parameter_names, input_output_alias)
    laid_out = dataclasses.replace(module, entry_layout=entry_layout)
    return laid_out if laid_out.program_shape != module.program_shape else module


def _require_unique(names: Iterable[str], what: str) -> None:
    counts = Counter(names)
    if counts:
        twice, times = counts.most_common(1)[0]
        if times > 1:
            raise InvalidModel(f"two {what} are named {twice!r}")


def sort_by_dependency(
    names: Iterable[str], needs: Callable[[str], Iterable[str]], what: str
) -> list[str]:
    """Names in an order where each follows what it needs; raises InvalidModel on a cycle."""
    order: list[str] = []
    state: dict[str, bool] = {}  # False while on the path, True when placed
    for start in names:
        path = [(start, iter(needs(start)))] if start not in state else []
        state.setdefault(start, False)
        while path:
            name, rest = path[-1]
            following = next(rest, None)
            if following is None:
                state[name] = True
                order.append(name)
                path.pop()
            elif state.get(following) is False:
                raise InvalidModel(f"{what} {following!r} needs itself")
            elif following not in state:
                state[following] = False
                path.append((following, iter(needs(following))))
    return order


def live_instructions(c: Computation) -> set[str]:
    """The instructions that the root depends on."""
    found, pending = {c.root}, [c.root]
    while pending:
        for o in c.by_name[pending.pop()].operands:
            if o not in found:
                found.add(o)
                pending.append(o)
    return found


def simple_reducer(computation: Computation) -> str | None:
    """The row of `ops` that a computation applies to its two parameters, if it is one (R2).

    Converts to a wider float and back around it are ignored.
    """
    by_name = computation.by_name

    def strip(name: str, *, widening: bool) -> Instruction:
        i = by_name[name]
        while i.opcode == "convert":
            source = by_name[i.operands[0]]
            narrow, wide = (source, i) if widening else (i, source)
            if not _holds(wide.array.dtype, narrow.array.dtype):
                break
            i = source
        return i

    body = strip(computation.root, widening=False)
    if body.opcode not in ("add", "multiply", "maximum", "minimum", "and", "or", "xor"):
        return None
    sources = [strip(name, widening=True) for name in body.operands]
    if len(computation.parameters) != 2 or {s.opcode for s in sources} != {"parameter"}:
        return None
    if {s.attributes["number"] for s in sources} != {0, 1}:
        return None
    declared = {p.shape for p in computation.parameters}
    if len(declared) != 1 or by_name[computation.root].shape not in declared:
        return None
    return ops.by_opcode(body.opcode, {}).name


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether float32 or a wider type holds every value of a narrower float."""
    return (
        wide in (dtypes.float32, dtypes.float64) and narrow.kind == "float" and narrow.bits <= wide.bits
    )


# Opcodes whose computation is executed instruction by instruction. Of these `inlining` puts the
# instructions of the first two in place; the others stay calls. Every other opcode that calls applies
# its computation to elements.
INLINED = frozenset({"call", "fusion"})
CONTROL_FLOW = frozenset({"while", "conditional"})


def graph_computations(module: Module) -> tuple[Computation, ...]:
    """The computations that are executed instruction by instruction, in the module's order: the
    entry's, bodies and conditions of loops, branches, and what these call.
    """
    found = {module.entry}
    for c in reversed(module.computations):  # callers first
        if c.name in found:
            found.update(
                n for i in c.instructions if i.opcode in CONTROL_FLOW | INLINED for n in i.called
            )
    return tuple(c for c in module.computations if c.name in found)


class Caller(NamedTuple):
    """A loop or conditional that runs a computation: where it stands, and which of those that it names
    this is.
    """

    computation: Computation
    instruction: Instruction
    number: int

    @property
    def given(self) -> str:
        """The operand that the computation gets, a loop's in the first trip."""
        i = self.instruction
        return i.operands[0 if i.opcode == "while" else 1 + self.number]


def find_callers(graphs: Sequence[Computation]) -> dict[str, list[Caller]]:
    """What runs each of the computations that are executed instruction by instruction, those of outer
    computations first.
    """
    found: dict[str, list[Caller]] = {}
    for c in reversed(graphs):
        for i in c.instructions:
            if i.opcode in CONTROL_FLOW:
                for n, name in enumerate(i.called):
                    found.setdefault(name, []).append(Caller(c, i, n))
    return found


def is_named(c: Computation, i: Instruction, pattern: str) -> bool:
    """Whether a pattern with shell wildcards names an instruction of a computation: by its own name,
    `exp.1`, with the computation's, `main.2/exp.1`, or by its op_name.
    """
    texts = (i.name, f"{c.name}/{i.name}", i.metadata.op_name)
    return any(fnmatch.fnmatchcase(text, pattern) for text in texts if text)


def fresh_name(name: str, taken: set[str]) -> str:
    """The name, with a number if it is taken; then it is."""
    if name not in taken:
        taken.add(name)
        return name
    below, number = 0, 1  # numbers are given in order, so the first free one can be searched for
    while f"{name}.{number}" in taken:
        below, number = number, 2 * number
    while number - below > 1:
        middle = (below + number) // 2
        below, number = (middle, number) if f"{name}.{middle}" in taken else (below, middle)
    found = f"{name}.{number}"
    taken.add(found)
    return found
