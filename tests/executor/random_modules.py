"""Random verified HLO modules, drawn by hypothesis from a table with a case for every opcode.

A case adds one instruction of its opcode, with operands that it takes from the computation's values or
makes; the cases of control flow draw the computations that they call by the same table.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from neuronsim import dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.hlo.module import TOKEN, AnyShape, Computation, Instruction, Module, Shape, TupleShape
from neuronsim.hlo.opcodes import STRUCTURE
from neuronsim.profiles import Profile

T = TypeVar("T")
Types = tuple[DType, ...]
Case = Callable[["Builder"], Instruction]

FLOATS: Types = (
    *(dtypes.float32, dtypes.bfloat16, dtypes.float16),
    *(dtypes.float8_e5m2, dtypes.float8_e4m3, dtypes.float8_e3m4),
)
SIGNED: Types = (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)
UNSIGNED: Types = (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64)
INTEGERS: Types = SIGNED + UNSIGNED
BOOL, S32 = dtypes.boolean, dtypes.int32
NUMBERS: Types = FLOATS + INTEGERS
ALL: Types = (*NUMBERS, BOOL)
MOVABLE: Types = (*ALL, dtypes.float8_e4m3fn)
MAX_SIZE = 600  # elements of an array
MAX_DEPTH = 3  # of computations that call each other
PROFILE = Profile(int64="keep", batch_norm="xla")
# Several replicas execute these, in test_replicas.py.
OF_REPLICAS = ops.COLLECTIVES | {"replica-id", "partition-id"}
# And NumPy these, in tests/hlo/test_hlo_decompositions.py.
OF_THE_HOST = {row.opcode for row in ops.OPS.values() if row.host_only and row.opcode}
ELSEWHERE = OF_REPLICAS | OF_THE_HOST
HEALTH = list(HealthCheck)


def arrays(dtype: DType, dims: tuple[int, ...], seed: int, *, plain: bool = False) -> ops.Bits:
    """Data of a type: ordinary numbers, and in one array of two some of every special kind."""
    rng = np.random.default_rng(seed)
    special = seed % 2 == 1 and not plain
    if dtype is BOOL:
        return ops.Bits(np.asarray(rng.random(dims) < 0.5), dtype)
    if dtype.kind in ("signed", "unsigned"):
        info = np.iinfo(dtype.numpy)
        small = rng.integers(max(info.min, -9), 10, dims)
        wide = rng.integers(info.min, info.max, dims, dtype=dtype.numpy, endpoint=True)
        rare = rng.random(dims) < (0.2 if special else 0.0)
        return ops.Bits(np.where(rare, wide, small).astype(dtype.storage), dtype)
    values = rng.standard_normal(dims) * 2.0 ** rng.integers(-3, 4, dims)
    whole = rng.random(dims) < 0.2
    values = np.where(whole, np.rint(values), values)
    if special:
        kinds = (0.0, -0.0, math.inf, -math.inf, math.nan, 1e-40, -3e-41, 6e-8, 3.3e38, 65504.0, 1e-5)
        values = np.where(rng.random(dims) < 0.1, rng.choice(kinds, dims), values)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        data = np.asarray(values, np.float32).astype(dtype.numpy)
    if dtype.numpy is not dtype.storage:
        data = np.asarray(data).view(dtype.storage)
    return ops.Bits(np.asarray(data), dtype)


@functools.cache
def _below(count: int) -> st.SearchStrategy[int]:
    return st.integers(0, count - 1)


@dataclass
class State:
    """What the computations of one module share."""

    draw: Callable[[st.SearchStrategy[Any]], Any]
    opcodes: Sequence[str]
    types: Types
    computations: list[Computation] = field(default_factory=list)
    count: int = 0


@dataclass
class Builder:
    """A computation while it is drawn. `depth` counts the computations that call it."""

    state: State
    depth: int = 0
    instructions: list[Instruction] = field(default_factory=list)
    parameters: int = 0

    # ---- draws

    def below(self, count: int) -> int:
        return int(self.state.draw(_below(count)))

    def between(self, low: int, high: int) -> int:
        return low + self.below(high - low + 1)

    def one_of(self, values: Sequence[T]) -> T:
        return values[self.below(len(values))]

    def chance(self, of: int) -> bool:
        """One time of so many."""
        return self.below(of) == 0

    def subset(self, values: Sequence[T]) -> list[T]:
        return [v for v in values if self.chance(2)]

    def shuffled(self, values: Sequence[T]) -> list[T]:
        left = list(values)
        return [left.pop(self.below(len(left))) for _ in values]

    def dtype(self, allowed: Types) -> DType:
        """A type of those that the module uses, else any; float32 more often than others."""
        used = [t for t in self.state.types if t in allowed]
        if dtypes.float32 in allowed and self.chance(4):
            return dtypes.float32
        return self.one_of(used or allowed)

    def dims(self, least: int = 0, most: int = 5) -> tuple[int, ...]:
        """Dimensions: zero sizes and ones happen, and now and then one beyond a tile (M2, R2)."""
        if least <= 1 <= most and self.chance(24):
            return (self.one_of((130, 257, 515)),)
        rank = self.between(least, min(most, 5))
        sizes = (2, 3, 4, 1, 5, 7) if rank < 4 else (2, 1, 3)
        return tuple(0 if self.chance(40) else self.one_of(sizes) for _ in range(rank))

    # ---- instructions

    def add(
        self, opcode: str, shape: AnyShape, operands: Sequence[Instruction] = (), **attributes: Any
    ) -> Instruction:
        self.state.count += 1
        names = tuple(o.name for o in operands)
        i = Instruction(f"{opcode}.{self.state.count}", opcode, shape, names, attributes)
        self.instructions.append(i)
        return i

    def parameter(self, shape: AnyShape) -> Instruction:
        self.parameters += 1
        return self.add("parameter", shape, number=self.parameters - 1)

    def constant(self, value: ops.Bits) -> Instruction:
        return self.add("constant", Shape(value.dtype, value.data.shape), literal=value)

    def scalar(self, value: Any, dtype: DType = S32) -> Instruction:
        data = np.asarray(value, dtype.numpy)
        if dtype.numpy is not dtype.storage:
            data = data.view(dtype.storage)
        return self.constant(ops.Bits(data, dtype))

    def leaf(self, dtype: DType, dims: tuple[int, ...]) -> Instruction:
        """A new value: a parameter of the entry, a constant, or a repeated constant."""
        kind = self.below(4)
        if kind < 2 and self.depth == 0:
            return self.parameter(Shape(dtype, dims))
        if kind == 2 and dims:
            one = self.constant(arrays(dtype, (), self.below(100)))
            return self.add("broadcast", Shape(dtype, dims), [one], dimensions=())
        return self.constant(arrays(dtype, dims, self.below(100)))

    def found(self, wanted: Callable[[Shape], bool]) -> list[Instruction]:
        """The arrays among the values so far that are wanted, the newest first."""
        return [
            i for i in reversed(self.instructions) if isinstance(i.shape, Shape) and wanted(i.shape)
        ]

    def value(self, dtype: DType, dims: tuple[int, ...]) -> Instruction:
        """A value of this type: one that there is, one converted or repeated, or a new one."""
        same = self.found(lambda s: s.dtype is dtype and s.dims == dims)
        if same and not self.chance(4):
            return self.one_of(same[:8])
        others = self.found(lambda s: s.dims == dims and s.dtype in ALL)
        if others and dtype in ALL and self.chance(2):
            return self.add("convert", Shape(dtype, dims), [self.one_of(others[:8])])
        scalars = self.found(lambda s: s.dims == () and s.dtype is dtype) if dims else []
        if scalars and self.chance(3):
            return self.add("broadcast", Shape(dtype, dims), [self.one_of(scalars[:8])], dimensions=())
        return self.leaf(dtype, dims)

    def array(self, allowed: Types, least: int = 0, most: int = 5, size: int = MAX_SIZE) -> Instruction:
        """A value of any of these types with so many dimensions and at most `size` elements."""
        same = self.found(
            lambda s: s.dtype in allowed and least <= len(s.dims) <= most and math.prod(s.dims) <= size
        )
        if same and not self.chance(3):
            return self.one_of(same[:12])
        dims = self.dims(least, most)
        while math.prod(dims) > size:
            dims = tuple(min(n, 2) for n in dims)
        return self.value(self.dtype(allowed), dims)

    def index(self, dims: tuple[int, ...], bound: int) -> Instruction:
        """Indices, some of them outside of [0, bound)."""
        dtype = self.one_of((S32, S32, dtypes.int64, dtypes.uint8, dtypes.uint32))
        low = -1 if dtype.kind == "signed" else 0
        rng = np.random.default_rng(self.below(100))
        return self.constant(ops.Bits(rng.integers(low, bound + 2, dims).astype(dtype.storage), dtype))

    # ---- computations

    def callee(self) -> Builder:
        return Builder(self.state, self.depth + 1)

    def finish(self, name: str, root: Instruction) -> str:
        self.state.count += 1
        found = Computation(f"{name}.{self.state.count}", tuple(self.instructions), root.name)
        self.state.computations.append(found)
        return found.name

    def some(self, count: int) -> None:
        """So many instructions of any opcode."""
        for _ in range(count):
            # hypothesis repeats its draws, zeros above all: the same draw is another opcode here.
            opcodes = self.state.opcodes
            opcode = opcodes[(self.below(len(opcodes)) + 37 * self.state.count) % len(opcodes)]
            if opcode in CALLS and self.depth >= MAX_DEPTH:
                opcode = "add"
            CASES[opcode](self)

    def unread(self) -> list[Instruction]:
        """The values that nothing reads."""
        read = {o for i in self.instructions for o in i.operands}
        return [i for i in self.instructions if i.name not in read]

    def tuple(self, values: Sequence[Instruction]) -> Instruction:
        return self.add("tuple", TupleShape(tuple(v.shape for v in values)), values)

    def element(self, value: Instruction, number: int) -> Instruction:
        assert isinstance(value.shape, TupleShape)
        shape = value.shape.elements[number]
        return self.add("get-tuple-element", shape, [value], tuple_index=number)


# ---- elementwise ---------------------------------------------------------------------------------

# The types that XLA's verifier and the rows take both.
ELEMENTWISE: dict[str, Types] = {
    **dict.fromkeys(("add", "multiply", "maximum", "minimum"), ALL),
    **dict.fromkeys(("subtract", "divide", "remainder", "power", "clamp", "negate"), NUMBERS),
    **dict.fromkeys(("sign", "abs"), FLOATS + SIGNED),
    **dict.fromkeys(("floor", "ceil", "round-nearest-even", "round-nearest-afz", "is-finite"), FLOATS),
    **dict.fromkeys(("sqrt", "rsqrt", "cbrt", "exponential", "exponential-minus-one"), FLOATS),
    **dict.fromkeys(("log", "log-plus-one", "sine", "cosine", "tan", "asin", "acos", "atan2"), FLOATS),
    **dict.fromkeys(("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "logistic"), FLOATS),
    **dict.fromkeys(("and", "or", "xor", "not"), (*INTEGERS, BOOL)),
    **dict.fromkeys(("shift-left", "shift-right-arithmetic", "shift-right-logical"), INTEGERS),
    **dict.fromkeys(("popcnt", "count-leading-zeros"), INTEGERS),
    "compare": ALL,
    "select": ALL,
}


def elementwise(opcode: str) -> Case:
    def case(b: Builder) -> Instruction:
        x = b.array(ELEMENTWISE[opcode])
        return _elementwise(b, opcode, x)

    return case


def _elementwise(b: Builder, opcode: str, x: Instruction) -> Instruction:
    """An instruction of the opcode on a value and others of its dimensions."""
    dtype, dims = x.array.dtype, x.array.dims
    if opcode == "compare":
        return compare(b, x, b.value(dtype, dims))
    if opcode == "select":
        condition = b.value(BOOL, () if b.chance(4) else dims)
        return b.add("select", x.shape, [condition, x, b.value(dtype, dims)])
    if opcode == "clamp":
        bounds = [b.value(dtype, () if b.chance(2) else dims) for _ in range(2)]
        return b.add("clamp", x.shape, [bounds[0], x, bounds[1]])
    arity = ops.by_opcode(opcode, {}).arity
    operands = [x, *(b.value(dtype, dims) for _ in range(arity - 1))]
    if arity == 2 and b.chance(2):
        operands.reverse()
    result = BOOL if opcode == "is-finite" else dtype
    return b.add(opcode, Shape(result, dims), operands)


def compare(b: Builder, x: Instruction, y: Instruction, directions: str = "EQ NE LT LE GT GE") -> Any:
    dtype = x.array.dtype
    kind = {"signed": "SIGNED", "unsigned": "UNSIGNED", "bool": "UNSIGNED"}.get(dtype.kind, "")
    kind = kind or b.one_of(("FLOAT", "TOTALORDER"))
    direction = b.one_of(directions.split())
    return b.add(
        *("compare", Shape(BOOL, x.array.dims), [x, y]),
        comparison_direction=direction,
        comparison_type=kind,
    )


def convert(b: Builder) -> Instruction:
    x = b.array(MOVABLE)
    target = b.dtype(MOVABLE) if b.chance(2) else b.one_of(MOVABLE)
    return b.add("convert", Shape(target, x.array.dims), [x])


def reduce_precision(b: Builder) -> Instruction:
    x = b.array(FLOATS)
    bits = {"exponent_bits": b.between(2, 8), "mantissa_bits": b.between(0, 12)}
    return b.add("reduce-precision", x.shape, [x], **bits)


# ---- data movement -------------------------------------------------------------------------------


def broadcast(b: Builder) -> Instruction:
    x = b.array(MOVABLE, 0, 3, 64)
    dims = list(x.array.dims)
    places = list(range(len(dims)))
    for _ in range(b.between(0, 2)):
        at = b.between(0, len(dims))
        dims.insert(at, b.between(1, 3))
        places = [p + (p >= at) for p in places]
    return b.add("broadcast", Shape(x.array.dtype, tuple(dims)), [x], dimensions=tuple(places))


def reshape(b: Builder) -> Instruction:
    x = b.array(MOVABLE)
    left = math.prod(x.array.dims)
    dims: list[int] = []
    while left > 1 and len(dims) < 4:
        factors = [n for n in (2, 3, 5, 7, left) if left % n == 0]
        dims.append(b.one_of(factors))
        left //= dims[-1]
    if left != 1:
        dims.append(left)
    if len(dims) < 5 and b.chance(3):
        dims.insert(b.between(0, len(dims)), 1)
    return b.add("reshape", Shape(x.array.dtype, tuple(dims)), [x])


def copy(b: Builder) -> Instruction:
    x = b.array(MOVABLE)
    return b.add("copy", x.shape, [x])


def transpose(b: Builder) -> Instruction:
    x = b.array(MOVABLE)
    axes = b.shuffled(range(len(x.array.dims)))
    dims = tuple(x.array.dims[a] for a in axes)
    return b.add("transpose", Shape(x.array.dtype, dims), [x], dimensions=tuple(axes))


def reverse(b: Builder) -> Instruction:
    x = b.array(MOVABLE)
    return b.add("reverse", x.shape, [x], dimensions=tuple(b.subset(range(len(x.array.dims)))))


def slice_(b: Builder) -> Instruction:
    x = b.array(MOVABLE)
    ranges = []
    for n in x.array.dims:
        start = b.between(0, n)
        ranges.append((start, b.between(start, n), b.between(1, 3)))
    dims = tuple(len(range(*r)) for r in ranges)
    return b.add("slice", Shape(x.array.dtype, dims), [x], slice=tuple(ranges))


def concatenate(b: Builder) -> Instruction:
    x = b.array(MOVABLE, 1)
    axis = b.below(len(x.array.dims))
    parts = [x]
    for _ in range(b.between(0, 2)):
        dims = list(x.array.dims)
        dims[axis] = b.between(0, 3)
        parts.append(b.value(x.array.dtype, tuple(dims)))
    dims = list(x.array.dims)
    dims[axis] = sum(p.array.dims[axis] for p in parts)
    return b.add("concatenate", Shape(x.array.dtype, tuple(dims)), parts, dimensions=(axis,))


def iota(b: Builder) -> Instruction:
    dims = b.dims(1)
    shape = Shape(b.dtype(NUMBERS), dims)
    return b.add("iota", shape, dimensions=(b.below(len(dims)),))


def pad(b: Builder) -> Instruction:
    x = b.array(MOVABLE, size=60)
    rows = []
    for n in x.array.dims:
        interior = b.between(0, 2)
        full = n + max(n - 1, 0) * interior
        low = b.between(-1, 2)
        rows.append((low, b.between(max(-2, -full - low), 2), interior))
    dims = tuple(
        low + high + n + max(n - 1, 0) * interior
        for n, (low, high, interior) in zip(x.array.dims, rows, strict=True)
    )
    if any(n < 0 for n in dims):
        rows = [(0, 0, 0)] * len(dims)
        dims = x.array.dims
    filling = b.value(x.array.dtype, ())
    return b.add("pad", Shape(x.array.dtype, dims), [x, filling], padding=tuple(rows))


def _starts(b: Builder, dims: tuple[int, ...]) -> list[Instruction]:
    dtype = b.one_of((S32, dtypes.int64, dtypes.uint32))
    low = -1 if dtype.kind == "signed" else 0
    return [b.scalar(b.between(low, max(n, 0) + 1), dtype) for n in dims]


def dynamic_slice(b: Builder) -> Instruction:
    x = b.array(MOVABLE)
    sizes = tuple(b.between(0, n) for n in x.array.dims)
    starts = _starts(b, x.array.dims)
    return b.add("dynamic-slice", Shape(x.array.dtype, sizes), [x, *starts], dynamic_slice_sizes=sizes)


def dynamic_update_slice(b: Builder) -> Instruction:
    x = b.array(MOVABLE)
    update = b.value(x.array.dtype, tuple(b.between(0, n) for n in x.array.dims))
    return b.add("dynamic-update-slice", x.shape, [x, update, *_starts(b, x.array.dims)])


def bitcast_convert(b: Builder) -> Instruction:
    x = b.array(tuple(t for t in MOVABLE if t is not BOOL))
    source, dims = x.array.dtype, x.array.dims
    narrower = [t for t in NUMBERS if t.itemsize < source.itemsize]
    same = [t for t in NUMBERS if t.itemsize == source.itemsize]
    wider = [t for t in NUMBERS if dims and dims[-1] * source.itemsize == t.itemsize]
    wider = [t for t in wider if t.itemsize > source.itemsize]
    target = b.one_of(b.one_of([c for c in (same, narrower, wider) if c]))
    if target.itemsize < source.itemsize and len(dims) < 5:
        dims = (*dims, source.itemsize // target.itemsize)
    elif target.itemsize < source.itemsize:
        target = b.one_of(same)
    elif target.itemsize > source.itemsize:
        dims = dims[:-1]
    return b.add("bitcast-convert", Shape(target, dims), [x])


def bitcast(b: Builder) -> Instruction:
    """Another view of the same memory, row-major as all layouts here."""
    x = b.array(NUMBERS)
    target = b.one_of([t for t in NUMBERS if t.itemsize == x.array.dtype.itemsize])
    dims = x.array.dims[::-1] if b.chance(2) else x.array.dims
    return b.add("bitcast", Shape(target, dims), [x])


def get_dimension_size(b: Builder) -> Instruction:
    x = b.array(MOVABLE, 1)
    return b.add("get-dimension-size", Shape(S32), [x], dimensions=(b.below(len(x.array.dims)),))


def set_dimension_size(b: Builder) -> Instruction:
    x = b.array(MOVABLE, 1)
    axis = b.below(len(x.array.dims))
    size = b.scalar(x.array.dims[axis])
    return b.add("set-dimension-size", x.shape, [x, size], dimensions=(axis,))


@dataclass(frozen=True)
class Indexing:
    """How indices walk an operand: the windows' sizes, and which dimensions they leave out."""

    sizes: tuple[int, ...]
    left_out: tuple[int, ...]
    batching: tuple[int, ...]
    indexed: tuple[int, ...]
    batch: tuple[int, ...]  # dimensions of the indices without the vector
    places: tuple[int, ...]  # of the window's dimensions in the slices
    slices: tuple[int, ...]  # dimensions of the slices, all windows together
    vector_dim: int
    indices: Instruction


def _indexing(b: Builder, dims: tuple[int, ...]) -> Indexing:
    rank = len(dims)
    filled = [a for a in range(rank) if dims[a] > 0]
    batching = tuple(b.subset(filled)[:1]) if rank > 1 and b.chance(4) else ()
    free = [a for a in range(rank) if a not in batching]
    # XLA takes all updates for one where the index vectors are empty.
    indexed = tuple(b.shuffled(b.subset(free) or free[:1]))
    sizes = [1 if a in batching else min(dims[a], b.between(1, 3)) for a in range(rank)]
    left_out = tuple(a for a in free if sizes[a] == 1 and b.chance(2))
    batch = (*(dims[a] for a in batching), *(b.between(1, 3) for _ in range(b.between(0, 2))))
    window = [sizes[a] for a in range(rank) if a not in left_out + batching]
    count = len(batch) + len(window)
    places = tuple(sorted(b.shuffled(range(count))[: len(window)]))
    inner, outer = iter(window), iter(batch)
    slices = tuple(next(inner if n in places else outer) for n in range(count))
    vector_dim = len(batch)
    implicit = len(indexed) == 1 and b.chance(2)
    index_dims = batch if implicit else (*batch, len(indexed))
    indices = b.index(index_dims, max([dims[a] for a in indexed], default=0))
    return Indexing(
        *(tuple(sizes), left_out, batching, indexed, batch, places, slices, vector_dim, indices)
    )


def gather(b: Builder) -> Instruction:
    x = b.array(MOVABLE, 1, 3, 120)
    how = _indexing(b, x.array.dims)
    dimensions = ops.GatherDimensions(
        offset_dims=how.places,
        collapsed_slice_dims=how.left_out,
        start_index_map=how.indexed,
        operand_batching_dims=how.batching,
        start_indices_batching_dims=tuple(range(len(how.batching))),
        index_vector_dim=how.vector_dim,
    )
    return b.add(
        *("gather", Shape(x.array.dtype, how.slices), [x, how.indices]),
        gather_dimensions=dimensions,
        slice_sizes=how.sizes,
        indices_are_sorted=False,
    )


def _beside(dtype: DType) -> Types:
    """The types that XLA's verifier lets one instruction take beside a type: one type of float."""
    return tuple(t for t in ALL if t is dtype or t.kind != "float" or dtype.kind != "float")


def scatter(b: Builder) -> Instruction:
    x = b.array(ALL, 1, 3, 120)
    how = _indexing(b, x.array.dims)
    dimensions = ops.ScatterDimensions(
        update_window_dims=how.places,
        inserted_window_dims=how.left_out,
        scatter_dims_to_operand_dims=how.indexed,
        input_batching_dims=how.batching,
        scatter_indices_batching_dims=tuple(range(len(how.batching))),
        index_vector_dim=how.vector_dim,
    )
    operands, updates = [x], [b.value(x.array.dtype, how.slices)]
    if b.chance(4):
        dtype = b.dtype(_beside(x.array.dtype))
        operands.append(b.value(dtype, x.array.dims))
        updates.append(b.value(dtype, how.slices))
    types = tuple(o.array.dtype for o in operands)
    called = assignment(b, types) if b.chance(3) else reducer(b, types)
    shape: AnyShape = x.shape if len(operands) == 1 else TupleShape(tuple(o.shape for o in operands))
    return b.add(
        *("scatter", shape, [*operands, how.indices, *updates]),
        scatter_dimensions=dimensions,
        indices_are_sorted=False,
        unique_indices=False,
        called=(called,),
    )


# ---- computations of scalars ---------------------------------------------------------------------


def _scalars(b: Builder, types: Types) -> tuple[Builder, list[Instruction]]:
    inner = b.callee()
    return inner, [inner.parameter(Shape(t)) for t in types]


def _result(b: Builder, name: str, values: Sequence[Instruction]) -> str:
    return b.finish(name, values[0] if len(values) == 1 else b.tuple(values))


def assignment(b: Builder, types: Types) -> str:
    """A scatter's computation that returns the update."""
    inner, parameters = _scalars(b, types * 2)
    return _result(inner, "assign", parameters[len(types) :])


def reducer(b: Builder, types: Types) -> str:
    """A computation of two elements of each type: a simple reducer (R2), or a general one."""
    inner, parameters = _scalars(b, types * 2)
    general = b.chance(3)
    results = []
    for n, t in enumerate(types):
        x, y = parameters[n], parameters[n + len(types)]
        integral = ("and", "or", "xor") if t.kind != "float" else ()
        opcode = b.one_of(("add", "maximum", "minimum", "multiply", "add", *integral))
        if t in FLOATS[1:] and b.chance(3):  # as JAX writes sums of narrow types
            wide = [inner.add("convert", Shape(dtypes.float32), [v]) for v in (x, y)]
            total = inner.add(opcode, Shape(dtypes.float32), wide)
            results.append(inner.add("convert", Shape(t), [total]))
            continue
        total = inner.add(opcode, Shape(t), [y, x] if b.chance(4) else [x, y])
        if general:
            other = b.one_of(("maximum", "add", "minimum"))
            total = inner.add(other, Shape(t), [total, inner.scalar(b.between(0, 1), t)])
        results.append(total)
    return _result(inner, "reducer", results)


def comparator(b: Builder, types: Types) -> str:
    """A comparator of a sort by its first operand; now and then by two."""
    inner, parameters = _scalars(b, tuple(t for t in types for _ in range(2)))
    first = compare(inner, *parameters[:2], "LT GT")
    if len(types) > 1 and b.chance(3):
        equal = compare(inner, *parameters[:2], "EQ")
        second = compare(inner, *parameters[2:4], "LT GT")
        both = inner.add("and", Shape(BOOL), [equal, second])
        first = inner.add("or", Shape(BOOL), [first, both])
    return inner.finish("comparator", first)


def selection(b: Builder, dtype: DType) -> str:
    inner, parameters = _scalars(b, (dtype, dtype))
    return inner.finish("selection", compare(inner, *parameters, "GE LE GT"))


# XLA has no code for some functions on CPUs.
MAPPED = tuple(sorted(ELEMENTWISE.keys() - {"acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh"}))


def scalar_map(b: Builder, types: Types) -> str:
    """A chain of elementwise operations on scalars."""
    inner, _ = _scalars(b, types)
    for _ in range(b.between(1, 4)):
        opcode = b.one_of(MAPPED)
        options = inner.found(lambda s, o=opcode: s.dtype in ELEMENTWISE[o])  # type: ignore[misc]
        if options:
            _elementwise(inner, opcode, b.one_of(options))
    return inner.finish("mapped", inner.instructions[-1])


# ---- operations with computations of scalars ------------------------------------------------------


def map_(b: Builder) -> Instruction:
    x = b.array(ALL)
    types = (x.array.dtype, *(b.dtype(_beside(x.array.dtype)) for _ in range(b.between(0, 1))))
    operands = [x, *(b.value(t, x.array.dims) for t in types[1:])]
    called = scalar_map(b, types)
    computation = b.state.computations[-1]
    result = computation.by_name[computation.root].array.dtype
    axes = tuple(range(len(x.array.dims)))
    return b.add("map", Shape(result, x.array.dims), operands, dimensions=axes, called=(called,))


def reduce(b: Builder) -> Instruction:
    x = b.array(ALL)
    dims = x.array.dims
    axes = b.shuffled(b.subset(range(len(dims))))
    operands = [x]
    if b.chance(4):
        operands.append(b.value(b.dtype(_beside(x.array.dtype)), dims))
    types = tuple(o.array.dtype for o in operands)
    initial = [b.scalar(0, t) if b.chance(2) else b.value(t, ()) for t in types]
    kept = tuple(n for a, n in enumerate(dims) if a not in axes)
    shapes = tuple(Shape(t, kept) for t in types)
    called = reducer(b, types)
    return b.add(
        *("reduce", shapes[0] if len(shapes) == 1 else TupleShape(shapes), [*operands, *initial]),
        dimensions=tuple(axes),
        called=(called,),
    )


def _window(b: Builder, dims: tuple[int, ...], *, dilated: bool) -> tuple[ops.WindowDimension, ...]:
    rows = []
    for n in dims:
        low, high = (b.between(0, 1), b.between(0, 1)) if b.chance(2) else (0, 0)
        base = b.between(1, 2) if dilated and b.chance(3) else 1
        window = b.between(1, 2) if dilated and b.chance(3) else 1
        room = (n - 1) * base + 1 + low + high if n else low + high
        most = max(1, min(3, (room - 1) // window + 1))
        size = b.between(1, most)
        rows.append(ops.WindowDimension(size, b.between(1, 2), (low, high), base, window))
    return tuple(rows)


def _windows(window: Sequence[ops.WindowDimension], dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(w.output_size(n) for w, n in zip(window, dims, strict=True))


def reduce_window(b: Builder) -> Instruction:
    x = b.array(ALL, 0, 4, 200)
    window = _window(b, x.array.dims, dilated=True)
    operands = [x]
    if b.chance(5):
        operands.append(b.value(b.dtype(_beside(x.array.dtype)), x.array.dims))
    types = tuple(o.array.dtype for o in operands)
    initial = [b.value(t, ()) for t in types]
    shapes = tuple(Shape(t, _windows(window, x.array.dims)) for t in types)
    called = reducer(b, types)
    shape = shapes[0] if len(shapes) == 1 else TupleShape(shapes)
    return b.add("reduce-window", shape, [*operands, *initial], window=window, called=(called,))


def select_and_scatter(b: Builder) -> Instruction:
    x = b.array(NUMBERS, 1, 4, 200)
    window = _window(b, x.array.dims, dilated=False)
    source = b.value(x.array.dtype, _windows(window, x.array.dims))
    initial = b.value(x.array.dtype, ())
    called = (selection(b, x.array.dtype), reducer(b, (x.array.dtype,)))
    return b.add("select-and-scatter", x.shape, [x, source, initial], window=window, called=called)


def sort(b: Builder) -> Instruction:
    x = b.array(ALL, 1)
    axis = b.below(len(x.array.dims))
    operands = [x, *(b.value(b.dtype(ALL), x.array.dims) for _ in range(b.below(3)))]
    called = comparator(b, tuple(o.array.dtype for o in operands))
    shape: AnyShape = x.shape if len(operands) == 1 else TupleShape(tuple(o.shape for o in operands))
    return b.add(
        *("sort", shape, operands), dimensions=(axis,), is_stable=not b.chance(6), called=(called,)
    )


def topk(b: Builder) -> Instruction:
    x = b.array((dtypes.float32, dtypes.bfloat16, S32), 1, 3)
    *batch, size = x.array.dims
    dims = (*batch, b.between(0, size))
    shape = TupleShape((Shape(x.array.dtype, dims), Shape(S32, dims)))
    return b.add("topk", shape, [x], k=dims[-1], largest=True)


# ---- products, normalization, random numbers -----------------------------------------------------


def _product_types(b: Builder) -> tuple[DType, DType, DType]:
    narrow: Types = FLOATS[1:]
    if b.chance(3):
        t = b.dtype((dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.uint32))
        return t, t, b.one_of((t, S32 if t.kind == "signed" else dtypes.uint32))
    if b.chance(2):
        t = b.dtype(narrow)
        return t, t, b.one_of((t, dtypes.float32))
    return (dtypes.float32,) * 3


def dot(b: Builder) -> Instruction:
    lhs_type, rhs_type, result = _product_types(b)
    batch = [b.between(1, 2) for _ in range(b.below(2))]
    depth = [b.one_of((3, 1, 2, 5, 0, 130)) for _ in range(b.below(3))]
    if len(depth) > 1:
        depth = [min(n, 5) for n in depth]
    free = [[b.between(1, 4) for _ in range(b.below(3))] for _ in range(2)]
    sides = []
    for t, own in zip((lhs_type, rhs_type), free, strict=True):
        labels = [("b", n) for n in range(len(batch))] + [("k", n) for n in range(len(depth))]
        labels += [("f", n) for n in range(len(own))]
        labels = b.shuffled(labels)
        sizes = {"b": batch, "k": depth, "f": own}
        order = {"f": iter(range(len(own)))}
        labels = [(k, next(order["f"])) if k == "f" else (k, n) for k, n in labels]
        dims = tuple(sizes[k][n] for k, n in labels)
        sides.append((b.value(t, dims), labels))
    (lhs, left), (rhs, right) = sides
    dimensions = ops.DotDimensions(
        lhs_contracting=tuple(left.index(("k", n)) for n in range(len(depth))),
        rhs_contracting=tuple(right.index(("k", n)) for n in range(len(depth))),
        lhs_batch=tuple(left.index(("b", n)) for n in range(len(batch))),
        rhs_batch=tuple(right.index(("b", n)) for n in range(len(batch))),
    )
    dims = (*batch, *free[0], *free[1])
    return b.add("dot", Shape(result, dims), [lhs, rhs], dot_dimensions=dimensions, algorithm="")


def convolution(b: Builder) -> Instruction:
    lhs_type, rhs_type, result = _product_types(b)
    rank = b.below(3)
    spatial = tuple(b.between(1, 5) for _ in range(rank))
    features, batches = b.one_of(((1, 1), (1, 1), (2, 1), (1, 2)))
    reads, writes = b.between(1, 3), b.between(1, 2) * features * batches
    batch = b.between(1, 2) * batches
    rows = _window(b, spatial, dilated=True)
    window = tuple(
        ops.WindowDimension(
            *(w.size, w.stride, w.padding, w.base_dilation, w.window_dilation), b.chance(4)
        )
        for w in rows
    )
    axes = [b.shuffled(range(rank + 2)) for _ in range(3)]
    numbers = ops.ConvolutionDimensions(
        *(axes[0][0], axes[0][1], tuple(axes[0][2:])),
        *(axes[1][0], axes[1][1], tuple(axes[1][2:])),
        *(axes[2][0], axes[2][1], tuple(axes[2][2:])),
    )

    def placed(order: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
        found = dict(zip(order, sizes, strict=True))
        return tuple(found[a] for a in range(rank + 2))

    lhs = b.value(lhs_type, placed(axes[0], (batch, reads * features, *spatial)))
    rhs = b.value(rhs_type, placed(axes[1], (reads, writes, *(w.size for w in window))))
    dims = placed(axes[2], (batch // batches, writes, *_windows(window, spatial)))
    return b.add(
        *("convolution", Shape(result, dims), [lhs, rhs]),
        window=window,
        dimension_numbers=numbers,
        feature_group_count=features,
        batch_group_count=batches,
    )


def _channels(b: Builder, count: int) -> tuple[Instruction, list[Instruction], int]:
    x = b.array((dtypes.float32, dtypes.bfloat16, dtypes.float16), 1, 4)
    axis = b.below(len(x.array.dims))
    line = (x.array.dims[axis],)
    return x, [b.value(x.array.dtype, line) for _ in range(count)], axis


EPSILON = 0.001953125


def batch_norm_inference(b: Builder) -> Instruction:
    x, lines, axis = _channels(b, 4)
    return b.add("batch-norm-inference", x.shape, [x, *lines], epsilon=EPSILON, feature_index=axis)


def batch_norm_training(b: Builder) -> Instruction:
    x, lines, axis = _channels(b, 2)
    shape = TupleShape((x.shape, lines[0].shape, lines[0].shape))
    return b.add("batch-norm-training", shape, [x, *lines], epsilon=EPSILON, feature_index=axis)


def batch_norm_grad(b: Builder) -> Instruction:
    x, lines, axis = _channels(b, 3)
    gradient = b.value(x.array.dtype, x.array.dims)
    shape = TupleShape((x.shape, lines[0].shape, lines[0].shape))
    return b.add("batch-norm-grad", shape, [x, *lines, gradient], epsilon=EPSILON, feature_index=axis)


def rng_bit_generator(b: Builder) -> Instruction:
    algorithm = b.one_of(("RNG_THREE_FRY", "RNG_PHILOX", "RNG_DEFAULT"))
    # ThreeFry's state is a key and a counter; Philox's has two words of counter.
    state = b.value(dtypes.uint64, (2 if algorithm == "RNG_THREE_FRY" else 3,))
    bits = Shape(b.dtype(UNSIGNED), b.dims(0, 3))
    shape = TupleShape((state.shape, bits))
    return b.add("rng-bit-generator", shape, [state], rng_algorithm=algorithm)


def rng(b: Builder) -> Instruction:
    t = b.dtype((dtypes.float32, dtypes.bfloat16, S32))
    normal = t is not S32 and b.chance(2)
    distribution = "RNG_NORMAL" if normal else "RNG_UNIFORM"
    bounds = [b.scalar(0, t), b.scalar(b.between(1, 9), t)]
    return b.add("rng", Shape(t, b.dims(0, 3)), bounds, distribution=distribution)


def rng_get_and_update_state(b: Builder) -> Instruction:
    return b.add("rng-get-and-update-state", Shape(dtypes.uint64, (2,)), delta=b.between(1, 9))


def complex_(b: Builder) -> Instruction:
    parts = b.value(dtypes.float32, b.dims(0, 3))
    whole = Shape(dtypes.complex64, parts.array.dims)
    return b.add("complex", whole, [parts, b.value(dtypes.float32, whole.dims)])


def part(opcode: str) -> Case:
    def add(b: Builder) -> Instruction:
        whole = complex_(b)
        return b.add(opcode, Shape(dtypes.float32, whole.array.dims), [whole])

    return add


def custom_call(b: Builder) -> Instruction:
    """A row of another opcode, and one of custom calls alone."""
    target = b.one_of(("AwsNeuronGelu", "AwsNeuronSoftmax", "AwsNeuronModuleMarkerStart-Forward"))
    x = b.value(b.dtype((dtypes.float32, dtypes.bfloat16)), b.dims(1, 3))
    return b.add("custom-call", x.shape, [x], custom_call_target=target, backend_config=b"")


# ---- structure and control flow ------------------------------------------------------------------


def parameter(b: Builder) -> Instruction:
    return b.parameter(Shape(b.dtype(ALL), b.dims())) if b.depth == 0 else constant(b)


def constant(b: Builder) -> Instruction:
    return b.constant(arrays(b.dtype(MOVABLE), b.dims(), b.below(100)))


def tuple_(b: Builder) -> Instruction:
    values = [b.array(MOVABLE) for _ in range(b.between(1, 3))]
    tuples = [i for i in b.instructions if isinstance(i.shape, TupleShape)]
    if tuples and b.chance(2):
        values.append(b.one_of(tuples))
    return b.tuple(values)


def get_tuple_element(b: Builder) -> Instruction:
    tuples = [i for i in b.instructions if isinstance(i.shape, TupleShape) and i.shape.elements]
    value = b.one_of(tuples) if tuples else tuple_(b)
    assert isinstance(value.shape, TupleShape)
    return b.element(value, b.below(len(value.shape.elements)))


def opt_barrier(b: Builder) -> Instruction:
    if b.chance(2):
        x = b.array(MOVABLE)
        return b.add("opt-barrier", x.shape, [x])
    value = tuple_(b)
    return b.add("opt-barrier", value.shape, [value])


def _arguments(b: Builder) -> list[Instruction]:
    return [b.array(MOVABLE) for _ in range(b.between(0, 2))]


def _sink(b: Builder) -> Instruction:
    """What a computation returns: its last value, or several of its last."""
    last = b.instructions[-3:]
    return b.tuple(last) if b.chance(3) else last[-1]


def _body(b: Builder, arguments: Sequence[Instruction], name: str, opcodes: Sequence[str] = ()) -> str:
    inner = b.callee()
    if opcodes:
        inner.state = State(b.state.draw, opcodes, b.state.types, b.state.computations)
        inner.state.count = b.state.count
    for a in arguments:
        inner.parameter(a.shape)
    inner.some(b.between(1, 4))
    # XLA asks that everything in a fusion is read.
    found = inner.finish(name, inner.tuple(inner.unread()) if opcodes else _sink(inner))
    b.state.count = inner.state.count
    return found


def _root(b: Builder, computation: str) -> Instruction:
    found = next(c for c in b.state.computations if c.name == computation)
    return found.by_name[found.root]


def call(b: Builder) -> Instruction:
    arguments = _arguments(b)
    called = _body(b, arguments, "callee")
    return b.add("call", _root(b, called).shape, arguments, called=(called,))


def fusion(b: Builder) -> Instruction:
    arguments = [b.array(ALL) for _ in range(b.between(1, 2))]
    fused = [o for o in b.state.opcodes if o in FUSED]
    called = _body(b, arguments, "fused", fused)
    return b.add(*("fusion", _root(b, called).shape, arguments), called=(called,), fusion_kind="kLoop")


def _like(b: Builder, shape: Shape) -> Instruction:
    """A value of a shape that depends on the computation's own where it can."""
    (*_, x) = b.found(lambda s: s.type == shape.type) or [b.leaf(shape.dtype, shape.dims)]
    options = [o for o in ("add", "maximum", "negate", "sine", "xor") if shape.dtype in ELEMENTWISE[o]]
    if not options or b.chance(4):
        return b.value(shape.dtype, shape.dims)
    opcode = b.one_of(options)
    operands = [x, b.value(shape.dtype, shape.dims)][: ops.by_opcode(opcode, {}).arity]
    return b.add(opcode, shape, operands)


def while_(b: Builder) -> Instruction:
    """A loop with a counter; its trips are bounded by a constant."""
    arrays_ = [b.array(ALL, size=60) for _ in range(b.between(0, 2))]
    values = [b.scalar(0), *arrays_]
    state = b.tuple(values)
    shapes = [v.array for v in values]

    condition = b.callee()
    given = condition.parameter(state.shape)
    counter = condition.element(given, 0)
    limit = condition.scalar(b.between(0, 3))
    less = condition.add(
        *("compare", Shape(BOOL), [counter, limit]), comparison_direction="LT", comparison_type="SIGNED"
    )
    if b.chance(3):
        condition.some(1)
    condition_name = condition.finish("condition", less)

    body = b.callee()
    given = body.parameter(state.shape)
    elements = [body.element(given, n) for n in range(len(values))]
    body.some(b.between(0, 3))
    following = [body.add("add", Shape(S32), [elements[0], body.scalar(1)])]
    following += [_like(body, s) for s in shapes[1:]]
    body_name = body.finish("body", body.tuple(following))
    return b.add("while", state.shape, [state], called=(body_name, condition_name))


def conditional(b: Builder) -> Instruction:
    """By pred, of two branches, or by index, of one to three; an index outside takes the last."""
    shape = b.array(ALL, size=100).array
    by_index = b.chance(2)
    selector = b.scalar(b.between(-1, 3)) if by_index else b.value(BOOL, ())
    arguments, called = [], []
    for _ in range(b.between(1, 3) if by_index else 2):
        x = b.array(MOVABLE)
        inner = b.callee()
        inner.parameter(x.shape)
        inner.some(b.between(0, 2))
        arguments.append(x)
        called.append(inner.finish("branch", _like(inner, shape)))
    return b.add("conditional", shape, [selector, *arguments], called=tuple(called))


def after_all(b: Builder) -> Instruction:
    tokens = [i for i in b.instructions if i.opcode == "after-all"]
    return b.add("after-all", TOKEN, b.subset(tokens))


def add_dependency(b: Builder) -> Instruction:
    x = b.array(MOVABLE)
    return b.add("add-dependency", x.shape, [x, after_all(b)])


CALLS = frozenset({"call", "fusion", "while", "conditional"})
CASES: dict[str, Case] = {
    **{opcode: elementwise(opcode) for opcode in ELEMENTWISE},
    "add-dependency": add_dependency,
    "after-all": after_all,
    "batch-norm-grad": batch_norm_grad,
    "batch-norm-inference": batch_norm_inference,
    "batch-norm-training": batch_norm_training,
    "bitcast": bitcast,
    "bitcast-convert": bitcast_convert,
    "broadcast": broadcast,
    "call": call,
    "complex": complex_,
    "concatenate": concatenate,
    "conditional": conditional,
    "constant": constant,
    "convert": convert,
    "convolution": convolution,
    "copy": copy,
    "custom-call": custom_call,
    "dot": dot,
    "dynamic-slice": dynamic_slice,
    "dynamic-update-slice": dynamic_update_slice,
    "fusion": fusion,
    "gather": gather,
    "get-dimension-size": get_dimension_size,
    "get-tuple-element": get_tuple_element,
    "imag": part("imag"),
    "iota": iota,
    "map": map_,
    "opt-barrier": opt_barrier,
    "pad": pad,
    "parameter": parameter,
    "real": part("real"),
    "reduce": reduce,
    "reduce-precision": reduce_precision,
    "reduce-window": reduce_window,
    "reshape": reshape,
    "reverse": reverse,
    "rng": rng,
    "rng-bit-generator": rng_bit_generator,
    "rng-get-and-update-state": rng_get_and_update_state,
    "scatter": scatter,
    "select-and-scatter": select_and_scatter,
    "set-dimension-size": set_dimension_size,
    "slice": slice_,
    "sort": sort,
    "topk": topk,
    "transpose": transpose,
    "tuple": tuple_,
    "while": while_,
}
FUSED = frozenset(
    {*ELEMENTWISE, "convert", "reduce-precision", "broadcast", "reshape", "transpose", "slice"}
    | {"concatenate", "pad", "iota", "reduce", "dynamic-slice"}
)
EXECUTED = tuple(sorted((ops.OPCODES | STRUCTURE) & CASES.keys()))


@dataclass(frozen=True)
class Example:
    """A module and data for its parameters."""

    module: Module
    inputs: tuple[ops.Bits, ...]

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How hypothesis shows a failing example."""
        rows = [
            f"{c.name}: {i.name} = {_listed(i.shape)} {', '.join(i.operands)} {dict(i.attributes)}"
            for c in self.module.computations
            for i in c.instructions
        ]
        printer.text("\n" + "\n".join(rows))


def _listed(shape: AnyShape) -> str:
    return ", ".join(str(s.type) for s in shape.arrays())


@st.composite
def modules(draw: Any, opcodes: Sequence[str] = EXECUTED, types: Types = ()) -> Example:
    """A module of some 5 to 40 instructions, most of these types; its root is the tuple of all values
    that nothing reads.
    """
    if not types:
        types = tuple(draw(st.lists(st.sampled_from(MOVABLE), min_size=3, max_size=5, unique=True)))
    b = Builder(State(draw, opcodes, types))
    b.some(b.between(8, 24))
    root = b.tuple(b.unread())
    entry = Computation("main", tuple(b.instructions), root.name)
    module = Module("random", "main", (*b.state.computations, entry))
    seed = b.below(100)
    inputs = tuple(
        arrays(p.array.dtype, p.array.dims, seed + n) for n, p in enumerate(module.parameters)
    )
    return Example(module, inputs)


@functools.cache
def examples(count: int, opcodes: tuple[str, ...] = EXECUTED) -> tuple[Example, ...]:
    """The first so many modules that hypothesis draws, the same on every run."""
    found: list[Example] = []

    @settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=HEALTH,
    )
    @given(modules(opcodes))
    def collect(example: Example) -> None:
        found.append(example)

    collect()
    return tuple(found)
