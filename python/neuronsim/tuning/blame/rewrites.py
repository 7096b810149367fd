"""Known rewrites of the source, applied to a module: a variance in two passes, a softmax whose maximum
is taken away, a norm of values that are scaled before they are squared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neuronsim import dtypes
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    Shape,
    fresh_name,
    graph_computations,
    simple_reducer,
)
from neuronsim.hlo.recognition.composites import Composite, recognise
from neuronsim.ops import Bits


@dataclass(frozen=True)
class Rewrite:
    """A rewrite that a module allows: its name, what instructions it concerns, the module after it."""

    name: str
    instructions: frozenset[str]
    module: Module


def rewrites(module: Module) -> Iterator[Rewrite]:
    """All known rewrites that a module allows, each alone."""
    flat = inline_calls(module)
    for c in graph_computations(flat):
        for found in recognise(c, flat):
            parts = found.parts
            if "mean_of_squares" in parts and "variance" in parts and "mean" in parts:
                yield _made(flat, c, "two-pass variance", found.instructions, _two_pass(found))
            unshifted = "exponential" in parts and "shifted" not in parts
            if found.kind in ("softmax", "logsumexp") and unshifted:
                rewrite = _max_subtracted(found)
                yield _made(flat, c, "max-subtracted softmax", found.instructions, rewrite)
        for i in c.instructions:
            names = _norm(flat, c, i)
            if names is not None:
                yield _made(flat, c, "pre-scaled square", tuple(names), _pre_scaled(i, names))


class Editor:
    """A computation that is rewritten: instructions are put before others, or replaced."""

    def __init__(self, module: Module, computation: Computation) -> None:
        self.module, self.computation = module, computation
        self.instructions = list(computation.instructions)
        self.by_name = {i.name: i for i in self.instructions}
        self.taken = {i.name for i in module.instructions} | set(module.by_name)
        self.added: list[Computation] = []

    def put(
        self, before: str, opcode: str, shape: Shape, operands: tuple[str, ...], like: str, **given: Any
    ) -> str:
        """A new instruction in front of another, from where `like` comes."""
        name = fresh_name(f"rewritten.{opcode}", self.taken)
        made = Instruction(name, opcode, shape, operands, given, self.by_name[like].metadata)
        self.instructions.insert(self._place(before), made)
        self.by_name[name] = made
        return name

    def change(self, name: str, **changes: Any) -> None:
        """Another form of an instruction."""
        changed = self.by_name[name].replace(**changes)
        self.instructions[self._place(name)] = changed
        self.by_name[name] = changed

    def _place(self, name: str) -> int:
        return next(n for n, i in enumerate(self.instructions) if i.name == name)

    def constant(self, before: str, value: Any, like: str) -> str:
        literal = Bits(np.asarray(value, np.float32), dtypes.float32)
        shape = Shape(dtypes.float32, literal.data.shape)
        return self.put(before, "constant", shape, (), like, literal=literal)

    def maximum(self) -> str:
        """A computation that takes the larger of two numbers."""
        name = fresh_name("rewritten.maximum", self.taken)
        scalar = Shape(dtypes.float32)
        names = [fresh_name(f"{name}.{n}", self.taken) for n in "abc"]
        body = (
            Instruction(names[0], "parameter", scalar, (), {"number": 0}),
            Instruction(names[1], "parameter", scalar, (), {"number": 1}),
            Instruction(names[2], "maximum", scalar, (names[0], names[1])),
        )
        self.added.append(Computation(name, body, names[2]))
        return name

    def spread(self, before: str, name: str, dims: tuple[int, ...], axes: tuple[int, ...]) -> str:
        """A reduced value, with or without axes of one element, along the axes that were reduced."""
        kept = tuple(n for n in range(len(dims)) if n not in axes)
        flat = Shape(dtypes.float32, tuple(dims[n] for n in kept))
        if self.by_name[name].array.dims != flat.dims:
            name = self.put(before, "reshape", flat, (name,), name)
        shape = Shape(dtypes.float32, dims)
        return self.put(before, "broadcast", shape, (name,), name, dimensions=kept)

    def cloned(self, before: str, name: str, swapped: dict[str, str]) -> str:
        """A copy of what leads to an instruction from others, which are swapped for new ones."""
        if name in swapped:
            return swapped[name]
        i = self.by_name[name]
        operands = tuple(self.cloned(before, o, swapped) for o in i.operands)
        if operands == i.operands:
            return name
        made = i.replace(name=fresh_name(f"rewritten.{i.opcode}", self.taken), operands=operands)
        self.instructions.insert(self._place(before), made)
        self.by_name[made.name] = made
        swapped[name] = made.name
        return made.name

    def module_after(self) -> Module:
        changed = replace(self.computation, instructions=tuple(self.instructions))
        computations = (changed if c.name == changed.name else c for c in self.module.computations)
        return replace(self.module, computations=(*self.added, *computations))


_Change = Callable[[Editor], None]


def _made(
    flat: Module, c: Computation, name: str, instructions: tuple[str, ...], change: _Change
) -> Rewrite:
    editor = Editor(flat, c)
    change(editor)
    return Rewrite(name, frozenset(instructions), editor.module_after())


def _two_pass(found: Composite) -> _Change:
    """mean(x^2) - mean(x)^2 as mean((x - mean(x))^2)."""

    def change(e: Editor) -> None:
        at, x = found.parts["variance"], found.input
        dims = e.by_name[x].array.dims
        spread = e.spread(at, found.parts["mean"], dims, found.axes)
        difference = e.put(at, "subtract", Shape(dtypes.float32, dims), (x, spread), at)
        mean = e.cloned(at, found.parts["mean_of_squares"], {x: difference})
        shape = e.by_name[at].array
        if e.by_name[mean].array.dims == shape.dims:
            e.change(at, opcode="copy", operands=(mean,), attributes={})
        else:
            e.change(at, opcode="reshape", operands=(mean,), attributes={})

    return change


def _max_subtracted(found: Composite) -> _Change:
    """exp(x) / sum(exp(x)) as that of x - max(x), whose maximum a logarithm gets back."""

    def change(e: Editor) -> None:
        at = found.parts["exponential"]
        (x,) = e.by_name[at].operands
        dims = e.by_name[x].array.dims
        kept = tuple(n for n in range(len(dims)) if n not in found.axes)
        least = e.constant(at, -float("inf"), at)
        shape = Shape(dtypes.float32, tuple(dims[n] for n in kept))
        reduced = {"dimensions": found.axes, "called": (e.maximum(),)}
        top = e.put(at, "reduce", shape, (x, least), at, **reduced)
        spread = e.spread(at, top, dims, found.axes)
        e.change(at, operands=(e.put(at, "subtract", Shape(dtypes.float32, dims), (x, spread), at),))
        if found.kind == "logsumexp":
            root = e.by_name[found.root]
            kept_log = root.replace(name=fresh_name("rewritten.log", e.taken))
            e.instructions.insert(e._place(found.root), kept_log)
            e.by_name[kept_log.name] = kept_log
            if e.by_name[top].array.dims != root.array.dims:
                top = e.put(found.root, "reshape", root.array, (top,), at)
            e.change(found.root, opcode="add", operands=(kept_log.name, top), attributes={})

    return change


def _norm(module: Module, c: Computation, i: Instruction) -> list[str] | None:
    """The instructions from a square root back to the square, where they are those of a norm."""
    if i.opcode not in ("sqrt", "rsqrt"):
        return None
    names = [i.name]
    at = c.by_name[i.operands[0]]
    while at.opcode in ("reshape", "copy", "broadcast"):
        names.append(at.name)
        at = c.by_name[at.operands[0]]
    if at.opcode != "reduce" or len(at.operands) != 2:
        return None
    square = c.by_name[at.operands[0]]
    is_sum = simple_reducer(module.by_name[at.called[0]]) == "add"
    if not is_sum or square.opcode != "multiply" or square.operands[0] != square.operands[1]:
        return None
    return [*names, at.name, square.name]


def _pre_scaled(root: Instruction, names: list[str]) -> _Change:
    """sqrt(sum(x^2)) as m sqrt(sum((x / m)^2)), m being the largest magnitude, 1 where that is 0."""

    def change(e: Editor) -> None:
        at, total, square = root.name, e.by_name[names[-2]], e.by_name[names[-1]]
        x, axes = square.operands[0], tuple(total.attributes["dimensions"])
        dims, flat = e.by_name[x].array.dims, total.array
        zero = e.constant(at, 0.0, at)
        size = e.put(at, "abs", Shape(dtypes.float32, dims), (x,), at)
        reduced = {"dimensions": axes, "called": (e.maximum(),)}
        top = e.put(at, "reduce", flat, (size, zero), at, **reduced)
        one = e.put(at, "broadcast", flat, (e.constant(at, 1.0, at),), at, dimensions=())
        none = e.put(at, "broadcast", flat, (zero,), at, dimensions=())
        is_zero = e.put(
            at, "compare", Shape(dtypes.boolean, flat.dims), (top, none), at, comparison_direction="EQ"
        )
        scale = e.put(at, "select", flat, (is_zero, one, top), at)
        scaled = e.put(
            at, "divide", Shape(dtypes.float32, dims), (x, e.spread(at, scale, dims, axes)), at
        )
        own = e.cloned(at, root.operands[0], {x: scaled})
        moved = e.cloned(at, root.operands[0], {total.name: scale})
        norm = e.put(at, root.opcode, root.array, (own,), at)
        e.change(
            at,
            opcode="multiply" if root.opcode == "sqrt" else "divide",
            operands=(norm, moved),
            attributes={},
        )

    return change
