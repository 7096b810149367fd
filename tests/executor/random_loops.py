"""Random nests of loops and branches whose arrays meet in every way: states swapped, passed on, given
twice, views of each other, updated in place, read by name from around the loop.

All arrays are `VECTOR`s, so that any may take any other's place; values are integers, so that a value
of another trip shows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from tests.executor.random_modules import BOOL, S32, Builder, State

from neuronsim import ops
from neuronsim.hlo.module import Instruction, Module, Shape, TupleShape, make_module
from neuronsim.hlo.verify import verify

LENGTH = 6
VECTOR, SCALAR = Shape(S32, (LENGTH,)), Shape(S32)
MAX_DEPTH = 2


@st.composite
def modules(draw: st.DrawFn) -> Module:
    """A module of two parameters."""
    b = Builder(State(draw, (), (S32,)))
    pool = [b.parameter(VECTOR), b.parameter(VECTOR)]
    block(b, pool, b.scalar(1), b.between(3, 8))
    root = b.tuple([b.one_of(pool[::-1]) for _ in range(b.between(1, 4))])
    entry = b.finish("main", root)
    module = make_module("loops", entry, b.state.computations)
    verify(module)
    return module


def inputs(seed: int) -> list[ops.Bits]:
    rng = np.random.default_rng(seed)
    return [ops.Bits(rng.integers(-99, 99, LENGTH, np.int32), S32) for _ in range(2)]


def block(b: Builder, pool: list[Instruction], count: Instruction, length: int) -> None:
    """Adds so many values to the pool; `count` is a scalar of the trip."""
    for _ in range(length):
        kinds = ("add", "update", "reverse", "window", "halves", "constant", "loop", "loop", "branch")
        kind = b.one_of(kinds if b.depth < MAX_DEPTH else kinds[:6])
        found = _VALUES[kind](b, pool, count)
        if kind == "loop" and b.chance(2):
            pool.clear()  # nothing reads them later: the loop may run in their memory
        pool += found


def _any(b: Builder, pool: Sequence[Instruction]) -> Instruction:
    """A value of the pool, the newer ones more often."""
    return b.one_of(pool[-3:] if b.chance(2) else pool)


def _add(b: Builder, pool: Sequence[Instruction], count: Instruction) -> list[Instruction]:
    return [b.add("add", VECTOR, [_any(b, pool), _any(b, pool)])]


def _update(b: Builder, pool: Sequence[Instruction], count: Instruction) -> list[Instruction]:
    part = _slice(b, _any(b, pool), b.below(4), 2)
    at = count if b.chance(2) else b.scalar(b.between(-1, LENGTH))
    return [b.add("dynamic-update-slice", VECTOR, [_any(b, pool), part, at])]


def _reverse(b: Builder, pool: Sequence[Instruction], count: Instruction) -> list[Instruction]:
    return [b.add("reverse", VECTOR, [_any(b, pool)], dimensions=(0,))]


def _window(b: Builder, pool: Sequence[Instruction], count: Instruction) -> list[Instruction]:
    part = b.add(*("dynamic-slice", Shape(S32, (2,)), [_any(b, pool), count]), dynamic_slice_sizes=(2,))
    zero = b.scalar(b.below(9))
    return [b.add("pad", VECTOR, [part, zero], padding=((1, 2, 1),))]


def _halves(b: Builder, pool: Sequence[Instruction], count: Instruction) -> list[Instruction]:
    parts = [_slice(b, _any(b, pool), b.below(4), 3) for _ in range(2)]
    return [b.add("concatenate", VECTOR, parts, dimensions=(0,))]


def _constant(b: Builder, pool: Sequence[Instruction], count: Instruction) -> list[Instruction]:
    return [b.constant(ops.Bits(np.arange(LENGTH, dtype=np.int32) * b.between(-2, 2), S32))]


def _slice(b: Builder, x: Instruction, start: int, length: int) -> Instruction:
    start = min(start, LENGTH - length)
    return b.add("slice", Shape(S32, (length,)), [x], slice=((start, start + length, 1),))


def _loop(b: Builder, pool: Sequence[Instruction], count: Instruction) -> list[Instruction]:
    carried = [_any(b, pool)]
    for _ in range(b.below(4)):
        carried.append(b.one_of(carried) if b.chance(3) else _any(b, pool))
    state = b.tuple([b.scalar(0), *carried])
    assert isinstance(state.shape, TupleShape)

    condition = b.callee()
    given = condition.parameter(state.shape)
    operands = [condition.element(given, 0), condition.scalar(b.below(4))]
    less = condition.add("compare", Shape(BOOL), operands, comparison_direction="LT")
    condition_name = condition.finish("condition", less)

    body = b.callee()
    given = body.parameter(state.shape)
    trip = body.element(given, 0)
    elements = [body.element(given, 1 + n) for n in range(len(carried))]
    values = list(elements)
    block(body, values, trip, body.between(0, 4))
    # Some of the states are passed on, some change places.
    following = [body.one_of((_any(body, values), e, body.one_of(elements))) for e in elements]
    trip = body.add("add", SCALAR, [trip, body.scalar(1)])
    body_name = body.finish("body", body.tuple([trip, *following]))

    loop = b.add("while", state.shape, [state], called=(body_name, condition_name))
    return [b.element(loop, 1 + n) for n in range(len(carried)) if n == 0 or b.chance(2)]


def _branch(b: Builder, pool: Sequence[Instruction], count: Instruction) -> list[Instruction]:
    given = b.tuple([_any(b, pool), _any(b, pool)])
    shape = TupleShape((VECTOR, VECTOR))
    called = []
    for _ in range(2):
        inner = b.callee()
        argument = inner.parameter(given.shape)
        values = [inner.element(argument, 0), inner.element(argument, 1)]
        block(inner, values, inner.scalar(2), inner.between(0, 3))
        root = inner.tuple([_any(inner, values), _any(inner, values)])
        called.append(inner.finish("branch", root))
    found = b.add("conditional", shape, [count, given, given], called=tuple(called))
    return [b.element(found, 0), b.element(found, 1)]


_VALUES = {
    "add": _add,
    "update": _update,
    "reverse": _reverse,
    "window": _window,
    "halves": _halves,
    "constant": _constant,
    "loop": _loop,
    "branch": _branch,
}
