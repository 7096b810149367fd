"""Random modules of one instruction, right ones and ones that are slightly wrong.

    python -m tests.executor.random_instructions --count 2000

The opcode is any of the table; types, shapes with dimensions of length zero and attributes are drawn
by `random_modules`, then now and then a number in an attribute, a dimension or a type is changed, and
the shapes of results are inferred again. A module is refused with a NeuronSimError, or the compiled
program gives the bits of the row's evaluator and, where the exact twin has the opcode and the arrays
are small, the twin's. tests/core/sanitized.py runs this under sanitizers on every instruction set.
"""

from __future__ import annotations

import dataclasses
import math
import os
import random
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from tests import campaign
from tests.executor import twin
from tests.executor.random_modules import (
    CASES,
    ELEMENTWISE,
    EXECUTED,
    MOVABLE,
    PROFILE,
    Builder,
    State,
    arrays,
)
from tests.support import interpreter
from tests.support.running import flat

from neuronsim import api, ops
from neuronsim.arrays.array_object import Array
from neuronsim.errors import NeuronSimError
from neuronsim.hlo import text
from neuronsim.hlo.module import Computation, Instruction, Module, Shape, TupleShape
from neuronsim.hlo.opcodes import STRUCTURE, row, row_attributes
from neuronsim.hlo.verify import verify

SECONDS = 2.0 * int(os.environ.get("NEURONSIM_TEST_SLOWNESS", "1"))  # sanitizers are slow
TWIN_ELEMENTS = 120
NUMBERS = (0, 0, 1, 2, 3, 5, -1, -2, 7, 16, 64, 127, 1 << 31, 1 << 32, 1 << 62, -(1 << 63))
ONE = tuple(o for o in EXECUTED if o not in ("parameter", "constant"))
SHAPED = tuple(o for o in ONE if o not in ELEMENTWISE)  # those whose attributes say which elements meet


class Sown(Builder):
    """A builder that draws from a generator of numbers, with more dimensions of length zero."""

    def __init__(self, rng: random.Random, state: State, depth: int = 0) -> None:
        super().__init__(state, depth)
        self.rng = rng

    def below(self, count: int) -> int:
        return self.rng.randrange(count)

    def callee(self) -> Builder:
        return Sown(self.rng, self.state, self.depth + 1)

    def dims(self, least: int = 0, most: int = 5) -> tuple[int, ...]:
        found = super().dims(least, most)
        return tuple(0 if self.rng.random() < 0.08 else n for n in found)


def module(seed: int) -> tuple[str, Module]:
    """The opcode and the module of a seed."""
    rng = random.Random(f"instruction {seed}")
    opcode = rng.choice(ONE if rng.random() < 0.4 else SHAPED)
    b = Sown(rng, State(lambda _: 0, ONE, tuple(rng.sample(MOVABLE, 4))))
    CASES[opcode](b)
    root = b.tuple(b.unread())
    entry = Computation("main", tuple(b.instructions), root.name)
    found = Module("one", "main", (*b.state.computations, entry))
    if rng.random() < 0.3:
        found = inferred(emptied(found, rng))
    for _ in range(rng.choice((0, 0, 1, 1, 1, 2))):
        found = inferred(mutated(found, rng))
    return opcode, found


# ---- changes -------------------------------------------------------------------------------------


def with_entry(m: Module, instructions: list[Instruction]) -> Module:
    entry = dataclasses.replace(m.entry_computation, instructions=tuple(instructions))
    others = tuple(c for c in m.computations if c.name != m.entry)
    return Module(m.name, m.entry, (*others, entry))


def emptied(m: Module, rng: random.Random) -> Module:
    """The module with a dimension of a parameter or constant of length zero."""
    instructions = list(m.entry_computation.instructions)
    leaves = [n for n, i in enumerate(instructions) if i.opcode in ("parameter", "constant")]
    leaves = [
        n for n in leaves if isinstance(instructions[n].shape, Shape) and instructions[n].array.dims
    ]
    if not leaves:
        return m
    at = rng.choice(leaves)
    dims = list(instructions[at].array.dims)
    dims[rng.randrange(len(dims))] = 0
    instructions[at] = with_shape(
        instructions[at], Shape(instructions[at].array.dtype, tuple(dims)), rng
    )
    return with_entry(m, instructions)


def with_shape(i: Instruction, shape: Shape, rng: random.Random) -> Instruction:
    """A parameter or constant of another shape."""
    if i.opcode == "parameter":
        return dataclasses.replace(i, shape=shape)
    literal = arrays(shape.dtype, shape.dims, rng.randrange(100))
    return dataclasses.replace(i, shape=shape, attributes={"literal": literal})


def mutated(m: Module, rng: random.Random) -> Module:
    """The module with an attribute, a dimension or a type changed, or an operand more or less."""
    listed = list(m.entry_computation.instructions)
    at = rng.randrange(len(listed) - 1) if rng.random() < 0.4 else max(len(listed) - 2, 0)
    i = listed[at]
    kind = rng.random()
    if i.opcode in ("parameter", "constant") and isinstance(i.shape, Shape):
        listed[at] = with_shape(i, other_shape(i.shape, rng), rng)
    elif kind < 0.6 and i.attributes:
        listed[at] = dataclasses.replace(i, attributes=other_value(i.attributes, rng))
    elif kind < 0.8 and i.operands:
        operands = list(i.operands)
        which = rng.randrange(len(operands))
        match rng.randrange(3):
            case 0:
                operands[which] = rng.choice([j.name for j in listed[:at]] or operands)
            case 1:
                del operands[which]
            case _:
                operands.insert(which, rng.choice(operands))
        listed[at] = dataclasses.replace(i, operands=tuple(operands))
    elif isinstance(i.shape, Shape):
        listed[at] = dataclasses.replace(i, shape=other_shape(i.shape, rng))
    return with_entry(m, listed)


def other_shape(s: Shape, rng: random.Random) -> Shape:
    if rng.random() < 0.2:
        return Shape(rng.choice(MOVABLE), s.dims)
    dims = list(s.dims)
    if dims and rng.random() < 0.8:
        at = rng.randrange(len(dims))
        dims[at] = rng.choice((0, 0, 1, dims[at] + 1, max(dims[at] - 1, 0), 2))
    else:
        dims.insert(rng.randrange(len(dims) + 1), rng.choice((0, 1, 1, 2)))
    return Shape(s.dtype, tuple(dims))


def other_value(value: Any, rng: random.Random, depth: int = 0) -> Any:
    """The value with one number inside it changed, or an element of a tuple more, less or elsewhere."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((value + 1, value - 1, *NUMBERS))
    if isinstance(value, float):
        return rng.choice((0.0, -1.0, math.nan, math.inf, value * 2))
    if isinstance(value, dict):
        key = rng.choice([k for k in value if k != "called"] or list(value))
        if key == "called":
            return {**value, key: value[key][1:]}
        return {**value, key: other_value(value[key], rng)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value) if f.init]
        name = rng.choice(names)
        try:
            return dataclasses.replace(value, **{name: other_value(getattr(value, name), rng)})
        except NeuronSimError:
            return value
    if isinstance(value, tuple):
        listed = list(value)
        match rng.randrange(5) if depth == 0 else 4:  # what is inside has the length that its type says
            case 0 if listed:
                del listed[rng.randrange(len(listed))]
            case 1:
                listed.insert(0, listed[0] if listed else rng.choice((0, 1, 7)))
            case 2 if len(listed) > 1:
                listed.reverse()
            case _ if listed:
                at = rng.randrange(len(listed))
                listed[at] = other_value(listed[at], rng, depth + 1)
        return tuple(listed)
    return value


def inferred(m: Module) -> Module:
    """The module with the shapes that the changed operands and attributes give, where they give any."""
    listed: list[Instruction] = []
    by_name: dict[str, Instruction] = {}
    for i in m.entry_computation.instructions:
        try:
            if i.opcode == "tuple":
                i = dataclasses.replace(
                    i, shape=TupleShape(tuple(by_name[o].shape for o in i.operands))
                )
            elif i.opcode not in STRUCTURE:
                types = [by_name[o].array.type for o in i.operands]
                given = row(i).infer(types, row_attributes(m, i))
                shapes = [
                    Shape(t.dtype, t.dims)
                    for t in (
                        given
                        if isinstance(given, tuple) and not isinstance(given, ops.ArrayType)
                        else (given,)
                    )
                ]
                single = isinstance(i.shape, Shape) and len(shapes) == 1
                i = dataclasses.replace(i, shape=shapes[0] if single else TupleShape(tuple(shapes)))
        except Exception:
            pass  # the verifier, not this, is what is tried: it gets the shape as it was
        by_name[i.name] = i
        listed.append(i)
    return with_entry(m, listed)


# ---- one module ----------------------------------------------------------------------------------


def by_row_and_twin(
    m: Module, i: Instruction, operands: tuple[ops.Bits, ...], setting: ops.Setting
) -> tuple[ops.Bits, ...]:
    """The row's evaluator, whose small results must be the exact twin's."""
    found = interpreter.by_row(m, i, operands, setting)
    known = i.opcode in twin.EVALUATE or row(i).core is not None
    size = sum(x.data.size for x in (*operands, *found))
    if not known or size > TWIN_ELEMENTS:
        return found
    try:
        with campaign.limit(SECONDS):
            expected = twin.apply(m, i, operands, setting)
    except (KeyError, ValueError, TypeError, IndexError, AssertionError, campaign.TooSlow):
        return found  # a form that the twin has not
    for ours, exact in zip(found, expected, strict=True):
        if ours.data.tobytes() != exact.data.tobytes():
            raise Different(
                f"{i.name}: {ours.data.tolist()!r:.150}, the twin's {exact.data.tolist()!r:.150}"
            )
    return found


class Different(Exception):
    """A result is not the oracle's."""


def try_one(m: Module, seed: int) -> tuple[str, str]:
    """What became of a module: "agrees", "refused", or what is wrong with it."""
    try:
        with campaign.limit(SECONDS):
            verify(m)
            inputs = tuple(
                arrays(p.array.dtype, p.array.dims, seed % 97 + n) for n, p in enumerate(m.parameters)
            )
            program = api.compile(m, auto_cast="none", target="host", profile=PROFILE)
            found = flat(program(*(Array(x) for x in inputs), seed=0))
        expected, _ = interpreter.evaluate(m, inputs, PROFILE, by_row_and_twin)
        for ours, theirs in zip(found, interpreter.leaves(expected), strict=True):
            if ours.bits.type != theirs.type or ours.bits.data.tobytes() != theirs.data.tobytes():
                return (
                    "different",
                    f"{ours.bits.data.tolist()!r:.150}, op by op {theirs.data.tolist()!r:.150}",
                )
    except NeuronSimError as error:
        return "refused", str(error)
    except campaign.TooSlow:
        return "hang", f"more than {SECONDS} s"
    except Different as error:
        return "different", str(error)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return (
            "foreign",
            f"{type(error).__name__}: {error} ({last.filename.rsplit('/', 1)[-1]}:{last.lineno})",
        )
    return "agrees", ""


def run(start: int, count: int, at: Callable[[int], object] = lambda n: None) -> campaign.Outcome:
    """The modules of so many seeds."""
    outcome = campaign.Outcome()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for seed in range(start, start + count):
            at(seed)
            opcode, m = module(seed)
            kind, detail = try_one(m, seed)
            outcome.counts[kind] += 1
            if kind not in ("agrees", "refused"):
                outcome.findings.append((seed, f"{opcode}, {kind}", detail, listed(m)))
    return outcome


def listed(m: Module) -> str:
    try:
        return text.to_text(m, dialect="short")
    except Exception as error:  # a module that has no text
        return f"no text: {error}"


if __name__ == "__main__":
    sys.exit(campaign.main("tests.executor.random_instructions", __doc__, run, count=2000, chunk=200))
