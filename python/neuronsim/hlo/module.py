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
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NewType, TypeAlias

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
MAX_INSTRUCTIONS = 1_000_000
MAX_REPEATED_INSTRUCTIONS = 20_000  # of loops and branches that run one computation: 1 to 2 s


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

    @cached_property
    def _inlined(self) -> Module | None:
        """The module without calls, which is found once; None where it is itself."""
        found = _inline_calls(self)
        vars(found)["_inlined"] = None
        return None if found is self else found

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


# Opcodes whose computation is executed instruction by instruction. Of these `inline_calls` puts the
# instructions of the first two in place; the others stay calls. Every other opcode that calls applies
# its computation to elements.
INLINED = frozenset({"call", "fusion"})
CONTROL_FLOW = frozenset({"while", "conditional"})
MAX_CALL_DEPTH = 100
MAX_CONTROL_FLOW_DEPTH = 100


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


def is_named(c: Computation, i: Instruction, pattern: str) -> bool:
    """Whether a pattern with shell wildcards names an instruction of a computation: by its own name,
    `exp.1`, with the computation's, `main.2/exp.1`, or by its op_name.
    """
    texts = (i.name, f"{c.name}/{i.name}", i.metadata.op_name)
    return any(fnmatch.fnmatchcase(text, pattern) for text in texts if text)


FlatModule = NewType("FlatModule", Module)  # one without calls


def inline_calls(module: Module) -> FlatModule:
    """The module with every `call` and `fusion` replaced by the callee's instructions, in all of its
    computations; those that are then not reachable are left out.

    An inlined instruction is named `call.instruction`, so that its origin stays visible. What is
    executed instruction by instruction has names that are unique in the result: where a module built in
    Python repeats one (readers of text number them), the entry computation keeps it and another becomes
    `computation.instruction`. Raises InvalidModel as `check_size` does.
    """
    return FlatModule(module if module._inlined is None else module._inlined)


def _inline_calls(module: Module) -> Module:
    check_size(module)
    reachable = _reachable(module.entry, module.by_name)
    computations = [c for c in module.computations if c.name in reachable]  # callees come first
    taken = {i.name for c in computations for i in c.instructions}
    inlined: dict[str, Computation] = {}
    for c in computations:
        calls = any(i.opcode in INLINED for i in c.instructions)
        inlined[c.name] = _with_inlined(c, inlined, taken) if calls else c
    reachable = _reachable(module.entry, inlined)
    kept = tuple(c for c in inlined.values() if c.name in reachable)
    kept = _with_unique_names(dataclasses.replace(module, computations=kept), taken)
    same = len(kept) == len(module.computations) and all(map(operator.is_, kept, module.computations))
    return module if same else dataclasses.replace(module, computations=kept)


def _with_inlined(
    computation: Computation, inlined: Mapping[str, Computation], taken: set[str]
) -> Computation:
    body: list[Instruction] = []
    renamed: dict[str, str] = {}
    for i in computation.instructions:
        i = i.reading(renamed)
        if i.opcode not in INLINED:
            body.append(i)
            continue
        callee = inlined[i.called[0]]
        local: dict[str, str] = {}
        for inner in callee.instructions:
            if inner.opcode == "parameter":
                local[inner.name] = i.operands[int(inner.attributes["number"])]
                continue
            local[inner.name] = fresh_name(f"{i.name}.{inner.name}", taken)
            body.append(
                inner.replace(name=local[inner.name], operands=tuple(local[o] for o in inner.operands))
            )
        renamed[i.name] = local[callee.root]
    root = renamed.get(computation.root, computation.root)
    return Computation(computation.name, tuple(body), root)


def _with_unique_names(module: Module, taken: set[str]) -> tuple[Computation, ...]:
    """The computations, with the names that occur in two graphs changed in one of them."""
    seen: set[str] = set()
    changed: dict[str, Computation] = {}
    for c in reversed(graph_computations(module)):  # the entry is last
        new = {i.name: i.name for i in c.instructions}
        twice = seen.intersection(new)
        seen.update(new)
        if twice:
            new |= {n: fresh_name(f"{c.name}.{n}", taken) for n in new if n in twice}
            changed[c.name] = c.renamed(new)
    return tuple(changed.get(c.name, c) for c in module.computations)


def check_size(module: Module) -> None:
    """Raises InvalidModel for a module whose computations call each other too deeply or too often: if
    it nests calls deeper than MAX_CALL_DEPTH, or loops and conditionals deeper than
    MAX_CONTROL_FLOW_DEPTH; if it has more than MAX_INSTRUCTIONS where calls are inlined and what each
    loop and conditional runs is its own; if what they run beyond the first time that it is named has
    more than MAX_REPEATED_INSTRUCTIONS, and more than all has where each is compiled once.
    """
    sizes: dict[str, int] = {}  # with what loops and conditionals run; beyond the limit, just above it
    inlined_sizes: dict[str, int] = {}  # without that
    calls: dict[str, int] = {}  # how deeply each computation nests calls
    control: dict[str, int] = {}  # and loops and conditionals
    for c in module.computations:  # callees come first
        size = inlined_size = len(c.instructions)
        call_depth, control_depth = 0, 0
        for i in c.instructions:
            if i.opcode not in INLINED | CONTROL_FLOW:
                continue
            inlined = i.opcode in INLINED
            for name in i.called[:1] if inlined else i.called:
                if name not in sizes:
                    raise InvalidModel(
                        f"{c.name}: called computation {name!r} does not stand before it"
                    )
                size += sizes[name]
                inlined_size += inlined_sizes[name] if inlined else 0
                control_depth = max(control_depth, control[name] + (not inlined))
                call_depth = max(call_depth, calls[name] + 1) if inlined else call_depth
        sizes[c.name] = min(size, MAX_INSTRUCTIONS + 1)
        inlined_sizes[c.name] = min(inlined_size, MAX_INSTRUCTIONS + 1)
        calls[c.name], control[c.name] = call_depth, control_depth
    for depth, limit, what, verb in (
        (max(calls.values()), MAX_CALL_DEPTH, "calls", "inlines"),
        (max(control.values()), MAX_CONTROL_FLOW_DEPTH, "loops and conditionals", "executes"),
    ):
        if depth > limit:
            raise InvalidModel(
                f"[NCC_EVRF007] {module.name!r} nests {what} {depth} deep: neuronsim {verb} up to "
                f"{limit} levels. Export the model with fewer of them inside each other"
            )
    whole, regions = _compiled(module)
    total = sum(sizes[n] for n in whole)
    if max(total, *sizes.values()) > MAX_INSTRUCTIONS:
        raise InvalidModel(
            f"[NCC_EVRF007] {module.name!r} has more than {MAX_INSTRUCTIONS} instructions when its "
            "calls are inlined and each loop and conditional runs computations of its own: neuronsim "
            f"executes up to {MAX_INSTRUCTIONS}. Export a part of the model"
        )
    once = sum(inlined_sizes[n] for n in whole | regions)
    limit = max(MAX_REPEATED_INSTRUCTIONS, once)
    if total - once > limit:
        raise InvalidModel(
            f"[NCC_EVRF007] {module.name!r} repeats {total - once} instructions in loops and branches "
            "that run one computation: neuronsim compiles it for each of them, up to "
            f"{limit} instructions beyond the first time. Nest fewer of them, or select between results"
        )


def _compiled(module: Module) -> tuple[set[str], set[str]]:
    """What is compiled, or applied to elements, on its own and no part of another: the entry and what
    other instructions than calls, loops and conditionals name; and what loops and conditionals run.
    """
    whole, regions, inlined = {module.entry}, set[str](), set[str]()
    for c in reversed(module.computations):  # callers first
        if c.name not in whole | regions | inlined:
            continue
        for i in c.instructions:
            if i.opcode in INLINED:
                inlined.update(i.called[:1])
            elif i.called:
                (regions if i.opcode in CONTROL_FLOW else whole).update(i.called)
    return whole, regions


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


def _reachable(entry: str, by_name: Mapping[str, Computation]) -> set[str]:
    found, pending = {entry}, [entry]
    while pending:
        for i in by_name[pending.pop()].instructions:
            for name in i.called:
                if name not in found:
                    found.add(name)
                    pending.append(name)
    return found
