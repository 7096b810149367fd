"""Random modules of many instructions that commute with rounding, and random decisions for them: by a
seed, without hypothesis, so that hundreds take seconds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tests.executor.random_modules import arrays

from neuronsim import dtypes, ops
from neuronsim.casting.decisions.record import Decision
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Computation, Instruction, Module, Shape, TupleShape, graph_computations
from neuronsim.hlo.opcodes import row

F32, S32, PRED = dtypes.float32, dtypes.int32, dtypes.boolean
DIMS = ((), (3,), (4, 3), (3, 4), (2, 4, 3))
REDUCERS = ("maximum", "minimum", "add")


@dataclass(frozen=True)
class Example:
    """A module, data for its parameters, and what a plan decides."""

    module: Module
    inputs: tuple[ops.Bits, ...]
    decisions: dict[str, Decision]


@dataclass
class _Body:
    """A computation while it is made."""

    rng: random.Random
    prefix: str = ""
    parameters: bool = True  # whether new values may be parameters
    body: list[Instruction] = field(default_factory=list)

    def add(self, opcode: str, shape: Any, *operands: Instruction, **attributes: Any) -> Instruction:
        names = tuple(o.name for o in operands)
        i = Instruction(f"{self.prefix}{opcode}.{len(self.body)}", opcode, shape, names, attributes)
        self.body.append(i)
        return i

    def leaf(self, dims: tuple[int, ...], dtype: DType = F32) -> Instruction:
        kind = self.rng.randrange(5)
        if kind < 3 and self.parameters:
            number = sum(i.opcode == "parameter" for i in self.body)
            return self.add("parameter", Shape(dtype, dims), number=number)
        if kind == 3:  # every low type has it
            data = np.full(dims, self.rng.choice((0.0, 1.5, -2.0)), np.float32)
        else:
            data = np.random.default_rng(self.rng.randrange(1000)).standard_normal(dims)
        if dtype is not F32:
            return self.add("convert", Shape(dtype, dims), self.constant(data))
        return self.constant(data)

    def constant(self, data: Any) -> Instruction:
        literal = ops.Bits(np.asarray(data, np.float32), F32)
        return self.add("constant", Shape(F32, literal.data.shape), literal=literal)

    def index(self, value: int) -> Instruction:
        return self.add("constant", Shape(S32), literal=ops.Bits(np.asarray(value, np.int32), S32))

    def value(self, dims: tuple[int, ...] | None = None) -> Instruction:
        """A float32 array that there is, of these dimensions, or a new one."""
        found = [
            i
            for i in self.body
            if isinstance(i.shape, Shape) and i.shape.dtype is F32 and dims in (None, i.shape.dims)
        ]
        if found and self.rng.random() < 0.85:
            return self.rng.choice(found[-12:])
        return self.leaf(self.rng.choice(DIMS) if dims is None else dims)

    def ranked(self, least: int = 1) -> Instruction:
        for _ in range(4):
            x = self.value()
            if len(x.array.dims) >= least and math.prod(x.array.dims) <= 200:
                return x
        return self.value((4, 3))


Case = Callable[[_Body], Instruction]


def _elementwise(opcode: str, arity: int) -> Case:
    def case(b: _Body) -> Instruction:
        x = b.value()
        return b.add(opcode, x.shape, x, *(b.value(x.array.dims) for _ in range(arity - 1)))

    return case


def _broadcast(b: _Body) -> Instruction:
    x = b.value()
    if math.prod(x.array.dims) > 60:
        return _elementwise("copy", 1)(b)
    dims = (b.rng.choice((2, 4)), *x.array.dims)
    return b.add("broadcast", Shape(F32, dims), x, dimensions=tuple(range(1, len(dims))))


def _reshape(b: _Body) -> Instruction:
    x = b.value()
    return b.add("reshape", Shape(F32, (*x.array.dims[::-1], 1)[: max(1, len(x.array.dims))]), x)


def _transpose(b: _Body) -> Instruction:
    x = b.ranked(2)
    axes = tuple(reversed(range(len(x.array.dims))))
    return b.add("transpose", Shape(F32, x.array.dims[::-1]), x, dimensions=axes)


def _slice(b: _Body) -> Instruction:
    x = b.ranked()
    ranges = tuple((0, max(1, n // 2), 1) for n in x.array.dims)
    return b.add("slice", Shape(F32, tuple(stop for _, stop, _ in ranges)), x, slice=ranges)


def _concatenate(b: _Body) -> Instruction:
    x = b.ranked()
    y = b.value(x.array.dims)
    dims = (2 * x.array.dims[0], *x.array.dims[1:])
    return b.add("concatenate", Shape(F32, dims), x, y, dimensions=(0,))


def _pad(b: _Body) -> Instruction:
    x = b.ranked()
    dims = (x.array.dims[0] + 2, *x.array.dims[1:])
    padding = ((1, 1, 0), *((0, 0, 0) for _ in dims[1:]))
    return b.add("pad", Shape(F32, dims), x, b.value(()), padding=padding)


def _reverse(b: _Body) -> Instruction:
    x = b.ranked()
    return b.add("reverse", x.shape, x, dimensions=(0,))


def _dynamic_slice(b: _Body) -> Instruction:
    x = b.ranked()
    sizes = (1, *x.array.dims[1:])
    at = [b.index(1) for _ in sizes]
    return b.add("dynamic-slice", Shape(F32, sizes), x, *at, dynamic_slice_sizes=sizes)


def _dynamic_update_slice(b: _Body) -> Instruction:
    x = b.ranked()
    update = b.value((1, *x.array.dims[1:]))
    return b.add("dynamic-update-slice", x.shape, x, update, *(b.index(0) for _ in x.array.dims))


def _select(b: _Body) -> Instruction:
    x = b.value()
    y = b.value(x.array.dims)
    kind = {"comparison_direction": "LT", "comparison_type": "FLOAT"}
    where = b.add("compare", Shape(PRED, x.array.dims), x, b.value(x.array.dims), **kind)
    return b.add("select", x.shape, where, x, y)


def _clamp(b: _Body) -> Instruction:
    x = b.value()
    return b.add("clamp", x.shape, b.value(()), x, b.value(()))


def _reduce(b: _Body) -> Instruction:
    x = b.ranked()
    called = (b.rng.choice(REDUCERS),)
    return b.add("reduce", Shape(F32, x.array.dims[1:]), x, b.value(()), dimensions=(0,), called=called)


def _reduce_window(b: _Body) -> Instruction:
    x = b.ranked()
    dims = (x.array.dims[0] + 1, *x.array.dims[1:])
    window = (ops.WindowDimension(2, padding=(1, 1)), *(ops.WindowDimension(1) for _ in dims[1:]))
    called = (b.rng.choice(REDUCERS),)
    return b.add("reduce-window", Shape(F32, dims), x, b.value(()), window=window, called=called)


def _dot(b: _Body) -> Instruction:
    dot = ops.DotDimensions((1,), (0,))
    return b.add("dot", Shape(F32, (4, 4)), b.value((4, 3)), b.value((3, 4)), dot_dimensions=dot)


def _of_narrow(b: _Body) -> Instruction:
    """A value that the model itself has in a narrow type."""
    narrow = (dtypes.bfloat16, dtypes.float16, dtypes.float8_e4m3, dtypes.float8_e5m2)
    dtype = b.rng.choice(narrow)
    x = b.leaf(b.rng.choice(DIMS), dtype)
    return b.add("convert", Shape(F32, x.array.dims), x)


def _narrow_and_back(b: _Body) -> Instruction:
    x = b.value()
    dtype = b.rng.choice((dtypes.bfloat16, dtypes.float16))
    low = b.add("convert", Shape(dtype, x.array.dims), x)
    return b.add("convert", x.shape, low)


def _reduce_precision(b: _Body) -> Instruction:
    x = b.value()
    return b.add("reduce-precision", x.shape, x, exponent_bits=8, mantissa_bits=b.rng.choice((7, 10)))


def _through_tuple(b: _Body) -> Instruction:
    x, y = b.value(), b.value()
    whole = b.add("tuple", TupleShape((x.shape, y.shape)), x, y)
    if b.rng.random() < 0.3:
        whole = b.add("opt-barrier", whole.shape, whole)
    return b.add("get-tuple-element", y.shape, whole, tuple_index=1)


COMPUTES = (
    *(_elementwise(n, 2) for n in ("add", "multiply", "subtract")),
    *(_elementwise(n, 1) for n in ("exponential", "tanh")),
    _dot,
)
COMMUTES = (
    *(_elementwise(n, 1) for n in ("negate", "abs", "copy")),
    *(_elementwise(n, 2) for n in ("maximum", "minimum")),
    *(_broadcast, _broadcast, _reshape, _transpose, _slice, _slice, _concatenate, _pad, _reverse),
    *(_dynamic_slice, _dynamic_update_slice, _select, _clamp, _reduce, _reduce, _reduce_window),
)
BORDERS = (_of_narrow, _narrow_and_back, _reduce_precision, _through_tuple)


def _reducer(opcode: str) -> Computation:
    a, b = (Instruction(f"{opcode}.{n}", "parameter", Shape(F32), (), {"number": n}) for n in (0, 1))
    names = (a.name, b.name)
    return Computation(
        opcode, (a, b, Instruction(f"{opcode}.r", opcode, Shape(F32), names)), f"{opcode}.r"
    )


def _loop(b: _Body, some: Callable[[_Body, int], None]) -> list[Computation]:
    """A loop of three trips that carries an array, in the body so far; its computations."""
    shape = TupleShape((Shape(S32), Shape(F32, (4, 3))))
    inner, test = _Body(b.rng, "b.", parameters=False), _Body(b.rng, "c.")
    given = inner.add("parameter", shape, number=0)
    count = inner.add("get-tuple-element", Shape(S32), given, tuple_index=0)
    inner.add("get-tuple-element", Shape(F32, (4, 3)), given, tuple_index=1)
    some(inner, 5)
    following = inner.add("add", Shape(S32), count, inner.index(1))
    result = inner.add("tuple", shape, following, inner.value((4, 3)))
    tested = test.add("parameter", shape, number=0)
    number = test.add("get-tuple-element", Shape(S32), tested, tuple_index=0)
    kind = {"comparison_direction": "LT", "comparison_type": "SIGNED"}
    root = test.add("compare", Shape(PRED), number, test.index(3), **kind)
    start = b.add("tuple", shape, b.index(0), b.value((4, 3)))
    loop = b.add("while", shape, start, called=("body", "condition"))
    b.add("get-tuple-element", Shape(F32, (4, 3)), loop, tuple_index=1)
    return [
        Computation("body", tuple(inner.body), result.name),
        Computation("condition", tuple(test.body), root.name),
    ]


def example(seed: int, lows: Sequence[DType], *, size: int = 14, plain: bool = False) -> Example:
    """A module by its seed, of about so many operations, with decisions for these low types. A plain
    one has no tuples but its root, no loops, and no converts of its own.
    """
    rng = random.Random(seed)
    b = _Body(rng)

    def some(body: _Body, count: int) -> None:
        for _ in range(count):
            kinds = (COMMUTES, COMMUTES, COMPUTES) if plain else (*[COMMUTES] * 3, COMPUTES, BORDERS)
            rng.choice(rng.choice(kinds))(body)

    some(b, size // 2)
    loops = _loop(b, some) if not plain and rng.random() < 0.4 else []
    some(b, size - size // 2)
    read = {o for i in b.body for o in i.operands}
    arrays_made = [i for i in b.body if isinstance(i.shape, Shape)]
    last = [i for i in arrays_made if i.name not in read] + rng.sample(arrays_made, 1)
    b.add("tuple", TupleShape(tuple(i.shape for i in last)), *last)
    entry = Computation("main", tuple(b.body), b.body[-1].name)
    module = Module("m", "main", (*map(_reducer, REDUCERS), *loops, entry))
    inputs = tuple(
        arrays(p.array.dtype, p.array.dims, 2 * seed + n) for n, p in enumerate(module.parameters)
    )
    return Example(module, inputs, _decisions(rng, module, lows, plain=plain))


def _decisions(
    rng: random.Random, module: Module, lows: Sequence[DType], *, plain: bool
) -> dict[str, Decision]:
    share = rng.choice((0.3, 0.6, 0.9))
    found = {}
    for c in graph_computations(module):
        for i in c.instructions:
            if rng.random() > share or not _is_castable(c, i):
                continue
            low = rng.choice(lows)
            own = [s.dtype for s in i.shape.arrays()]
            operand, output = low, low if F32 in own else own[0]
            if i.opcode == "while":
                if low is dtypes.tfloat32 or low.is_open:
                    continue
            elif i.opcode == "dot" or (i.opcode != "constant" and not plain):
                operand = low if plain else rng.choice((low, low, low, F32))
                output = rng.choice((output, output, output, F32)) if F32 in own else output
            found[i.name] = Decision(operand, F32, output, "chosen at random")
    return found


def _is_castable(c: Computation, i: Instruction) -> bool:
    if i.opcode in ("while", "constant"):
        return F32 in [s.dtype for s in i.shape.arrays()]
    if i.opcode not in ops.OPCODES or row(i).cast == "host":
        return False
    read = [c.by_name[o].array.dtype for o in i.operands]
    return F32 in (*read, *(s.dtype for s in i.shape.arrays()))
