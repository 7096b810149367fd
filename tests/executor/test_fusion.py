"""Fused products (D2): equal to one instruction at a time, with proof that something was fused."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from tests.support import interpreter
from tests.support.draws import random_words
from tests.support.graphs import inst, module_of, parameter
from tests.support.parameters import each_of
from tests.support.processors import every_processor
from tests.support.running import contents
from tests.support.words import as_bits, words

from neuronsim import dtypes, ops, processor
from neuronsim.dtypes import DType
from neuronsim.executor.compile import compile_module
from neuronsim.executor.diagnostics import Diagnostics
from neuronsim.executor.known_constants import KnownConstants
from neuronsim.executor.run import run_schedule
from neuronsim.executor.schedule import Schedule
from neuronsim.executor.steps import Chain, Product, Step
from neuronsim.hlo.module import Computation, Instruction, Module, Shape, TupleShape
from neuronsim.hlo.verify import verify
from neuronsim.ops import Bits, ConvolutionDimensions, DotDimensions, WindowDimension
from neuronsim.profiles import Profile
from neuronsim.targets import find_target

F32, BF16, F16 = dtypes.float32, dtypes.bfloat16, dtypes.float16
S32, S64, PRED = dtypes.int32, dtypes.int64, dtypes.boolean
NARROW = (BF16, F16, dtypes.float8_e5m2, dtypes.float8_e4m3, dtypes.float8_e3m4)
FLOATS = (F32, *NARROW)
PLAIN = DotDimensions((1,), (0,))
Dims = tuple[int, ...]


def const(name: str, value: Bits) -> Instruction:
    return inst(name, "constant", value.data.shape, dtype=value.dtype, literal=value)


def near_bits(rng: np.random.Generator, dtype: DType, dims: Dims) -> Bits:
    """Values within a few binades of 1, so that sums round; any integers."""
    return as_bits(dtype.name, random_words(rng, dtype.name, dims, "near"))


def with_specials(rng: np.random.Generator, x: Bits) -> Bits:
    """A few zeros, subnormals, Inf and NaN of either sign among the values."""
    special = random_words(rng, x.dtype.name, x.data.shape, "special")
    return as_bits(x.dtype.name, np.where(rng.random(x.data.shape) < 0.02, special, words(x)))


def one_at_a_time(module: Module, inputs: dict[str, Bits], profile: Profile, seed: int = 0) -> Any:
    """D2: every instruction on its own, by the op table."""
    apply = interpreter.by_row_in_32_bits if profile.int64 == "truncate" else interpreter.by_row
    given = [inputs[p.name] for p in module.parameters]
    return interpreter.evaluate(module, given, profile, apply, seed)[0]


def inputs_of(module: Module, seed: int, *, special: bool = False) -> dict[str, Bits]:
    rng = np.random.default_rng(seed)
    found = {p.name: near_bits(rng, p.array.dtype, p.array.dims) for p in module.parameters}
    if special:
        found = {n: with_specials(rng, x) if x.dtype.exponent_bits else x for n, x in found.items()}
    return found


def compiled(module: Module, profile: Profile | None = None) -> Schedule:
    return compile_module(module, profile or Profile(), find_target("trn1"))


def products(program: Schedule) -> list[Product]:
    return [s.action for s in program.steps if isinstance(s.action, Product)]


def fused(product: Product) -> set[str]:
    found = {n for n in ("lhs", "rhs", "packed", "epilogue") if getattr(product.fusion, n) is not None}
    assert product.fusion.terms == ()  # these come with each run
    return found


def check_everywhere(
    module: Module, fusions: list[set[str]], profile: Profile | None = None, *, special: bool = False
) -> Schedule:
    """What is fused into each product, and the program's bits on each processor, where it is compiled
    anew and where it was compiled for another one.
    """
    profile = profile or Profile()
    inputs = inputs_of(module, 1, special=special)
    first = compiled(module, profile)
    expected = contents(one_at_a_time(module, inputs, profile))
    for where in every_processor():
        program = compiled(module, profile)
        assert [fused(p) for p in products(program)] == fusions, where
        assert contents(run_schedule(program, inputs)) == expected, where
        assert contents(run_schedule(first, inputs)) == expected, f"compiled elsewhere, run on {where}"
    return first


# ---- random graphs -----------------------------------------------------------------------------


class Graph:
    """A random module that grows around a product, and what must have been fused into it."""

    def __init__(self, seed: int, profile: Profile) -> None:
        self.rng = np.random.default_rng([12, seed])
        self.profile = profile
        self.body: list[Instruction] = []
        self.fusion: set[str] = set()
        self.types = NARROW if profile.accumulate == "product_bf16" else FLOATS

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high, endpoint=True))

    def flip(self, chance: float = 0.5) -> bool:
        return bool(self.rng.random() < chance)

    def type(self, types: tuple[DType, ...] = FLOATS) -> DType:
        return types[self.integer(0, len(types) - 1)]

    def add(self, opcode: str, like: Instruction, *operands: str, **more: Any) -> Instruction:
        """An instruction of the dimensions and type of `like`, where `more` has no others."""
        dims, dtype = more.pop("dims", like.array.dims), more.pop("dtype", like.array.dtype)
        made = inst(f"i{len(self.body)}", opcode, dims, *operands, dtype=dtype, **more)
        self.body.append(made)
        return made

    def param(self, dtype: DType, dims: Dims) -> Instruction:
        number = sum(i.opcode == "parameter" for i in self.body)
        self.body.append(parameter(f"p{number}", dims, number=number, dtype=dtype))
        return self.body[-1]

    def operand(self, side: str, dims: Dims, packed: str = "rhs") -> Instruction:
        """A parameter, a parameter and its chain, or, on the side that may be packed, a constant."""
        if side == packed and self.flip(0.4):
            if self.profile.accumulate in ("psum128", "sequential"):  # else nothing would read it
                self.fusion.add("packed")
            self.body.append(const("w", near_bits(self.rng, self.type(self.types), dims)))
            return self.body[-1]
        length = self.integer(0, 4)
        last = self.param(self.type(self.types if not length else FLOATS), dims)
        for n in range(length):
            last = self.chain_step(last, last=n == length - 1)
        if length:
            self.fusion.add(side)
        return last

    def chain_step(self, x: Instruction, *, last: bool) -> Instruction:
        kind = self.integer(0, 4)
        if last and x.array.dtype not in self.types:
            kind = 0
        if kind == 0:
            return self.add("convert", x, x.name, dtype=self.type(self.types if last else FLOATS))
        if kind == 1:
            widths = {"exponent_bits": 8, "mantissa_bits": self.integer(0, 3) * 3 + 1}
            return self.add("reduce-precision", x, x.name, **widths)
        if kind == 2 and x is self.body[-1] and x.opcode == "parameter":
            return self.add("multiply", x, x.name, x.name)
        return self.add(["negate", "abs", "tanh"][self.integer(0, 2)], x, x.name)

    def dot(self) -> Instruction:
        batch, free, others = (self.lengths(most) for most in (3, 21, 35))
        depth = (self.integer(1, 300),) if self.flip() else self.lengths(13) or (1,)
        sides = []
        # A matrix by a vector is computed as the vector by the matrix.
        turns = len(free) > 0 and not others
        dims: list[int] = [*batch]
        for name, own in (("lhs", free), ("rhs", others)):
            order = [int(n) for n in self.rng.permutation(len(batch + own + depth))]
            lengths = [(batch + own + depth)[n] for n in order]
            where = [order.index(n) for n in range(len(order))]
            made = self.operand(name, tuple(lengths), "lhs" if turns else "rhs")
            dims += [lengths[n] for n in sorted(where[len(batch) : len(batch + own)])]
            sides.append((made, tuple(where[: len(batch)]), tuple(where[len(batch + own) :])))
        if turns:
            turned = {"lhs": "rhs", "rhs": "lhs", "packed": "packed"}
            self.fusion = {turned[name] for name in self.fusion}
        if max(math.prod(free), math.prod(batch + others), math.prod(depth)) <= 16:
            self.fusion.discard("packed")  # a tiny product reads its operands as they lie
        (lhs, lhs_batch, lhs_contracting), (rhs, rhs_batch, rhs_contracting) = sides
        numbers = DotDimensions(lhs_contracting, rhs_contracting, lhs_batch, rhs_batch)
        more = {"dims": tuple(dims), "dtype": self.type(), "dot_dimensions": numbers}
        return self.add("dot", lhs, lhs.name, rhs.name, **more)

    def lengths(self, most: int) -> Dims:
        return tuple(self.integer(1, most) for _ in range(self.integer(0, 2)))

    def convolution(self) -> Instruction:
        groups = self.integer(2, 5) if self.flip() else 1
        reads = 1 if self.flip() else self.integer(1, 17)  # of a group: 1 is depthwise
        writes = groups * self.integer(1, 3 if groups > 1 else 37)
        size, width = self.integer(1, 3), self.integer(1, 3)
        height, length = self.integer(size, 11), self.integer(width, 13)
        window = (
            WindowDimension(size, self.integer(1, 2), (self.integer(0, 2), 1)),
            WindowDimension(width, 1, (1, self.integer(0, 2)), self.integer(1, 2), 1, self.flip(0.3)),
        )
        first = self.flip()  # NCHW, else NHWC
        channel, spatial = (1, (2, 3)) if first else (3, (1, 2))
        numbers = ConvolutionDimensions(0, channel, spatial, 2, 3, (0, 1), 0, channel, spatial)

        def arranged(n: int, c: int, *lengths: int) -> Dims:
            return (n, c, *lengths) if first else (n, *lengths, c)

        batch = self.integer(1, 3)
        x = self.operand("lhs", arranged(batch, groups * reads, height, length))
        w = self.operand("rhs", (size, width, reads, writes))
        if groups > 1:
            self.fusion.discard("packed")
        places = (window[0].output_size(height), window[1].output_size(length))
        more = {"window": window, "dimension_numbers": numbers, "feature_group_count": groups}
        more |= {"batch_group_count": 1, "dims": arranged(batch, writes, *places)}
        return self.add("convolution", x, x.name, w.name, **more, dtype=self.type())

    def term(self, like: Instruction) -> Instruction:
        """What an epilogue reads beside the product: an array, or a bias along one axis."""
        t, dims = like.array.type
        if not dims or self.flip():
            return self.param(t, dims)
        axis = self.integer(0, len(dims) - 1)
        bias = self.param(t, (dims[axis],))
        return self.add("broadcast", like, bias.name, dimensions=(axis,))

    def epilogue(self, product: Instruction) -> None:
        """Instructions of which each reads the last one, and some of them the product again."""
        last = product
        steps = self.integer(0, 6)
        for n in range(steps):
            t = last.array.dtype
            kind = self.integer(0, 5)
            if kind == 0:
                last = self.add("convert", last, last.name, dtype=self.type())
            elif kind == 1:
                bound = self.term(last)
                flags = {"dtype": PRED, "comparison_direction": "LT"}
                smaller = self.add("compare", last, last.name, bound.name, **flags)
                if n == steps - 1:
                    return
                other = product if t is product.array.dtype else bound
                last = self.add("select", bound, smaller.name, other.name, bound.name)
            elif kind == 2:
                last = self.add(["tanh", "negate", "floor"][self.integer(0, 2)], last, last.name)
            elif kind == 3 and t is product.array.dtype and last is not product:
                last = self.add("multiply", last, last.name, product.name)
            else:
                term = self.term(last)
                pair = [last.name, term.name][:: 1 if self.flip() else -1]
                opcode = ["add", "subtract", "multiply", "maximum"][self.integer(0, 3)]
                last = self.add(opcode, last, *pair)

    def module(self) -> Module:
        module = Module("random", "main", (Computation("main", tuple(self.body), self.body[-1].name),))
        verify(module)
        return module


PROFILES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {},
    {"subnormals": "flush"},
    {"accumulate": "sequential", "fp8_overflow": "saturate"},
    {"accumulate": "exact"},
    {"accumulate": "product_bf16"},
    {"accumulate": "pairs", "divide": "reciprocal_multiply"},
)


def reads_product_in_one_chain(module: Module, name: str) -> bool:
    """Whether all that reads a product lies in one tree of elementwise instructions, of which every
    inner value is read once.
    """
    users = module.entry_computation.users()
    ends = set()
    for last in (i.name for i in users[name]):
        while len(users[last]) == 1:
            last = users[last][0].name
        ends.add(last)
    return len(ends) == 1


@each_of("seed", range(120))
def test_random_fused_products_equal_one_at_a_time_D2(seed: int, restored_processor: None) -> None:
    profile = Profile(**PROFILES[seed % len(PROFILES)])
    graph = Graph(seed, profile)
    product = graph.convolution() if seed % 3 == 2 else graph.dot()
    graph.epilogue(product)
    module = graph.module()
    inputs = inputs_of(module, seed, special=seed % 4 == 1)
    expected = contents(one_at_a_time(module, inputs, profile))
    first = compiled(module, profile)
    may_end = profile.accumulate != "exact" and module.entry_computation.root != product.name
    for where in every_processor():
        program = compiled(module, profile)
        (found,) = products(program)
        assert fused(found) - {"epilogue"} == graph.fusion, where
        if not may_end:
            assert found.fusion.epilogue is None
        elif reads_product_in_one_chain(module, product.name):
            assert found.fusion.epilogue is not None
        assert contents(run_schedule(program, inputs)) == expected, where
        assert contents(run_schedule(first, inputs)) == expected, f"compiled elsewhere, run on {where}"


def test_control_the_random_graphs_have_everything() -> None:
    """Every kind of fusion, many of each, dots and convolutions, results that are bool."""
    seen: dict[str, int] = {}
    for seed in range(120):
        graph = Graph(seed, Profile(**PROFILES[seed % len(PROFILES)]))
        graph.epilogue(graph.convolution() if seed % 3 == 2 else graph.dot())
        program = compiled(graph.module(), graph.profile)
        for name in fused(products(program)[0]):
            seen[name] = seen.get(name, 0) + 1
        root = graph.body[-1].array.dtype
        seen[root.name] = seen.get(root.name, 0) + 1
    assert min(seen[n] for n in ("lhs", "rhs", "packed", "epilogue")) >= 20
    assert min(seen[n] for n in ("bool", "float32", "bfloat16")) >= 3


# ---- random networks ---------------------------------------------------------------------------


def random_network(seed: int) -> Module:
    """Products and chains that read each other in every way: 24 arrays of 11 x 11, tiny products, or of
    17 x 17, of which a few are results.
    """
    rng = np.random.default_rng([13, seed])
    dims, types = ((11, 11), (17, 17))[seed % 2], (F32, BF16, F16)
    body = [parameter(f"p{n}", dims, number=n, dtype=types[n % 3]) for n in range(3)]
    body += [const(f"c{n}", near_bits(rng, types[n], dims)) for n in range(2)]
    while len(body) < 24:
        # Often the last value, so that chains and products follow each other.
        read = [body[-1 if rng.random() < 0.5 else int(rng.integers(len(body)))] for _ in range(2)]
        a, b = read[:: 1 if rng.random() < 0.5 else -1]
        name, same = f"i{len(body)}", [i for i in body if i.array.dtype is a.array.dtype]
        kind = int(rng.integers(6))
        if kind < 2:
            made = dot_of(a.name, b.name, *dims, name, types[int(rng.integers(3))])
        elif kind == 2:
            made = inst(name, "convert", dims, a.name, dtype=types[int(rng.integers(3))])
        elif kind == 3:
            opcode = str(rng.choice(["negate", "tanh", "abs"]))
            made = inst(name, opcode, dims, a.name, dtype=a.array.dtype)
        else:
            pair = [a.name, same[int(rng.integers(len(same)))].name]
            opcode = str(rng.choice(["add", "subtract", "maximum"]))
            made = inst(name, opcode, dims, *pair[:: 1 if kind == 4 else -1], dtype=a.array.dtype)
        body.append(made)
    results = [body[-1], *(body[int(n)] for n in rng.choice(23, int(rng.integers(3)), replace=False))]
    shapes = TupleShape(tuple(i.shape for i in results))
    body.append(Instruction("out", "tuple", shapes, tuple(i.name for i in results)))
    module = Module("network", "main", (Computation("main", tuple(body), "out"),))
    verify(module)
    return module


@each_of("seed", range(100))
def test_random_networks_equal_one_at_a_time_D2(seed: int, restored_processor: None) -> None:
    module = random_network(seed)
    inputs = inputs_of(module, seed)
    processor.set_isa(processor.available_isas()[seed % len(processor.available_isas())])
    expected = contents(one_at_a_time(module, inputs, Profile()))
    program = compiled(module)
    assert contents(run_schedule(program, inputs)) == expected
    members = [m for s in program.steps for m in s.members]
    assert len(members) == len(set(members))  # nothing is computed twice


def test_control_the_random_networks_fuse() -> None:
    found = [fused(p) for seed in range(100) for p in products(compiled(random_network(seed)))]
    for name in ("lhs", "rhs", "packed", "epilogue"):
        assert sum(name in f for f in found) >= 10
    assert sum(len(f) >= 2 for f in found) >= 10


# ---- operands ----------------------------------------------------------------------------------


def dot_of(
    lhs: str, rhs: str, m: int, n: int, name: str = "d", dtype: DType = F32, opcode: str = "dot"
) -> Instruction:
    return inst(name, opcode, (m, n), lhs, rhs, dot_dimensions=PLAIN, dtype=dtype)


def test_a_chain_read_twice_is_computed_once(restored_processor: None) -> None:
    body = [
        parameter("x", (20, 20)),
        parameter("y", (20, 20), number=1),
        inst("a", "convert", (20, 20), "x", dtype=BF16),
        dot_of("a", "a", 20, 20, "square"),
        inst("b", "convert", (20, 20), "y", dtype=BF16),
        dot_of("b", "x", 20, 20, "first"),
        dot_of("b", "y", 20, 20, "second"),
        inst("s", "add", (20, 20), "first", "second"),
        inst("t", "add", (20, 20), "s", "square"),
    ]
    program = check_everywhere(module_of(*body), [set(), set(), {"epilogue"}])
    assert [s.members for s in program.steps if isinstance(s.action, Chain)] == [("a", "b")]
    assert program.steps[-1].members == ("square", "s", "t")


def test_a_chain_that_is_a_result_too_stays(restored_processor: None) -> None:
    shapes = (Shape(BF16, (9, 12)), Shape(F32, (9, 10)))
    body = [
        parameter("x", (9, 12)),
        parameter("y", (12, 10), number=1),
        inst("a", "convert", (9, 12), "x", dtype=BF16),
        dot_of("a", "y", 9, 10),
        Instruction("out", "tuple", TupleShape(shapes), ("a", "d")),
    ]
    check_everywhere(module_of(*body), [set()])


@each_of("dtype", [F32, BF16, dtypes.float8_e4m3], ids=lambda t: t.name)
@each_of("depth", [1, 97, 300, 5001])
def test_a_constant_right_operand_is_packed_once(
    restored_processor: None, dtype: DType, depth: int
) -> None:
    w = near_bits(np.random.default_rng(3), dtype, (depth, 71))
    for rows in (1, 19):
        body = [parameter("x", (rows, depth), dtype=dtype), const("w", w), dot_of("x", "w", rows, 71)]
        check_everywhere(module_of(*body), [{"packed"}], special=rows > 1)


def test_a_packed_constant_keeps_the_order_of_its_contracting_dimensions_M2(
    restored_processor: None,
) -> None:
    numbers = DotDimensions((1, 2), (1, 0))
    w = const("w", near_bits(np.random.default_rng(9), F32, (7, 9, 24)))
    product = inst("d", "dot", (20, 24), "x", "w", dot_dimensions=numbers)
    check_everywhere(module_of(parameter("x", (20, 9, 7)), w, product), [{"packed"}])


def test_a_constant_that_is_cast_is_packed_as_it_is_cast(restored_processor: None) -> None:
    w = near_bits(np.random.default_rng(3), F32, (130, 40))
    body = [
        parameter("x", (9, 130), dtype=BF16),
        const("w", w),
        inst("c", "convert", (130, 40), "w", dtype=BF16),
        dot_of("x", "c", 9, 40),
    ]
    program = check_everywhere(module_of(*body), [{"packed"}])
    assert [p.rhs.dtype for p in products(program)] == [BF16]
    assert not program.constants


# ---- what reads the product --------------------------------------------------------------------


def layer(m: int = 35, k: int = 130, n: int = 45, dtype: DType = F32) -> list[Instruction]:
    return [
        parameter("x", (m, k)),
        parameter("y", (k, n), number=1),
        dot_of("x", "y", m, n, dtype=dtype),
    ]


@pytest.mark.parametrize("dtype", [F32, BF16, dtypes.float8_e5m2], ids=lambda t: t.name)
def test_comparisons_and_selects_of_products_E7(restored_processor: None, dtype: DType) -> None:
    body = [
        *layer(dtype=dtype),
        parameter("t", (35, 45), number=2, dtype=dtype),
        parameter("mask", (35, 45), number=3, dtype=PRED),
        inst("p", "compare", (35, 45), "t", "d", dtype=PRED, comparison_direction="GT"),
        inst("q", "and", (35, 45), "mask", "p", dtype=PRED),
    ]
    check_everywhere(module_of(*body), [{"epilogue"}], special=True)
    body.append(inst("s", "select", (35, 45), "q", "d", "t", dtype=dtype))
    check_everywhere(module_of(*body), [{"epilogue"}], special=True)


@pytest.mark.parametrize("columns", [32, 64, 70])
@pytest.mark.parametrize("opcode", ["negate", "abs", "add"])
def test_an_epilogue_takes_the_canonical_nan_E6(
    restored_processor: None, opcode: str, columns: int
) -> None:
    """Whole register blocks of sums are read where they lie, unless bits of a NaN would show."""
    term = ["d"] if opcode == "add" else []
    body = [*layer(35, 29, columns), inst("o", opcode, (35, columns), "d", *term)]
    check_everywhere(module_of(*body), [{"epilogue"}], special=True)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=lambda t: t.name)
@pytest.mark.parametrize("columns", [20, 33, 64, 90])
def test_terms_that_join_the_sums_one_after_another_E2_E6(
    restored_processor: None, columns: int, dtype: DType
) -> None:
    """A bias, what the sums are taken from, a constant, and the type in which they are stored."""
    zero = Bits(np.zeros((), np.float32), F32)
    body = [
        *layer(n=columns),
        parameter("bias", (columns,), number=2),
        parameter("t", (35, columns), number=3),
        const("zero", zero),
        inst("b", "broadcast", (35, columns), "bias", dimensions=(1,)),
        inst("z", "broadcast", (35, columns), "zero", dimensions=()),
        inst("sum", "add", (35, columns), "d", "b"),
        inst("rest", "subtract", (35, columns), "t", "sum"),
        inst("less", "subtract", (35, columns), "rest", "b"),
        inst("scaled", "multiply", (35, columns), "less", "t"),
        inst("inverse", "divide", (35, columns), "b", "scaled"),
        inst("ratio", "divide", (35, columns), "inverse", "t"),
        inst("bounded", "minimum", (35, columns), "t", "ratio"),
        inst("relu", "maximum", (35, columns), "bounded", "z"),
    ]
    if dtype is not F32:
        body.append(inst("narrow", "convert", (35, columns), "relu", dtype=dtype))
    check_everywhere(module_of(*body), [{"epilogue"}], special=True)


@pytest.mark.parametrize("special", [False, True], ids=["numbers", "special"])
@pytest.mark.parametrize("dtype", [F32, BF16, dtypes.float16], ids=lambda t: t.name)
@pytest.mark.parametrize(("depth", "columns"), [(29, 64), (29, 70), (130, 96), (300, 70)])
@pytest.mark.parametrize("last", [("relu", "x0"), ("x0", "relu")], ids=["taken", "taken_from"])
def test_terms_that_the_register_blocks_join_E2_E6(
    restored_processor: None,
    depth: int,
    columns: int,
    dtype: DType,
    special: bool,
    last: tuple[str, str],
) -> None:
    """What outputs are joined with before they are stored, in one tile or several: values of rows, of
    columns and of elements, and a constant.
    """
    shape = (35, columns)
    body = [
        *layer(k=depth, n=columns),
        parameter("mean", (columns,), number=2),
        parameter("gain", (35,), number=3),
        parameter("x0", shape, number=4),
        const("zero", Bits(np.zeros((), np.float32), F32)),
        inst("means", "broadcast", shape, "mean", dimensions=(1,)),
        inst("gains", "broadcast", shape, "gain", dimensions=(0,)),
        inst("zeros", "broadcast", shape, "zero", dimensions=()),
        inst("centred", "subtract", shape, "d", "means"),
        inst("scaled", "multiply", shape, "centred", "gains"),
        inst("sum", "add", shape, "x0", "scaled"),
        inst("relu", "maximum", shape, "sum", "zeros"),
        inst("last", "subtract", shape, *last),
    ]
    if dtype is not F32:
        body.append(inst("narrow", "convert", shape, "last", dtype=dtype))
    check_everywhere(module_of(*body), [{"epilogue"}], special=special)


def test_int64_terms_are_counted_on_their_own_C7(restored_settings: None) -> None:
    body = [
        *layer(),
        parameter("i", (35, 45), number=2, dtype=S64),
        inst("f", "convert", (35, 45), "i"),
        inst("s", "add", (35, 45), "d", "f"),
    ]
    module, profile = module_of(*body), Profile(int64="truncate")
    counts = Diagnostics()
    inputs = inputs_of(module, 1)
    small = inputs | {"i": ops.truncate_int64(inputs["i"])[0]}
    program = compiled(module, profile)
    assert [fused(p) for p in products(program)] == [{"epilogue"}]
    found = run_schedule(program, inputs, counts)
    assert contents(found) == contents(one_at_a_time(module, small, profile))
    assert set(counts.of("int64_truncated")) == {"i"}


def test_a_product_read_by_two_steps_is_stored(restored_processor: None) -> None:
    body = [
        *layer(),
        inst("n", "negate", (35, 45), "d"),
        inst("t", "transpose", (45, 35), "d", dimensions=(1, 0)),
        dot_of("n", "t", 35, 35, "e"),
    ]
    check_everywhere(module_of(*body), [set(), {"lhs"}])


def test_a_product_that_is_the_root_stays_one(restored_processor: None) -> None:
    body = [*layer(), inst("n", "negate", (35, 45), "d")]
    check_everywhere(module_of(*body, root="d"), [set()])
    shapes = TupleShape((Shape(F32, (35, 45)),) * 2)
    body.append(Instruction("out", "tuple", shapes, ("d", "n")))
    check_everywhere(module_of(*body), [set()])


OTHER_TERMS = {
    "a_scalar": [
        parameter("low", (), number=2),
        parameter("high", (), number=3),
        inst("c", "clamp", (35, 45), "low", "d", "high"),
    ],
    "in_any_order": [
        parameter("t", (45, 35), number=2),
        inst("u", "transpose", (35, 45), "t", dimensions=(1, 0)),
        inst("r", "reverse", (35, 45), "u", dimensions=(0, 1)),
        inst("s", "add", (35, 45), "r", "d"),
    ],
}


@pytest.mark.parametrize("term", OTHER_TERMS)
def test_a_term_may_be_a_scalar_or_lie_in_any_order(restored_processor: None, term: str) -> None:
    check_everywhere(module_of(*layer(), *OTHER_TERMS[term]), [{"epilogue"}])


@pytest.mark.parametrize("dtype", [F32, BF16, dtypes.int8])
@pytest.mark.parametrize("contracted", [2, 3])
def test_short_rows_go_through_a_prologue_together(
    restored_processor: None, dtype: DType, contracted: int
) -> None:
    """Heads of attention: rows of seven elements far apart, a tile full of them at once."""
    result = dtypes.int32 if dtype is dtypes.int8 else F32
    depth = (90, 7)[contracted - 2]
    body = [parameter("q", (2, 90, 3, 7) if depth == 7 else (2, 7, 3, 90), 0, dtype)]
    body.append(parameter("k", (2, 90, 3, 7), 1, dtype))
    for name in "qk":
        given = body["qk".index(name)].shape.dims
        turned = (given[0], given[2], given[1], given[3])
        body.append(inst(f"{name}t", "transpose", turned, name, dtype=dtype, dimensions=(0, 2, 1, 3)))
        body.append(inst(f"{name}n", "negate", turned, f"{name}t", dtype=dtype))
    dimensions = DotDimensions((3,), (contracted,), (0, 1), (0, 1))
    shape = (2, 3, 90, 90) if depth == 7 else (2, 3, 7, 7)
    body.append(inst("d", "dot", shape, "qn", "kn", dtype=result, dot_dimensions=dimensions))
    check_everywhere(module_of(*body, root="d"), [{"lhs", "rhs"}])


# ---- convolutions ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("features", [2, 3])
def test_packed_columns_of_a_convolution_that_reaches_far(
    restored_processor: None, dtype: DType, features: int
) -> None:
    """Its windows are copied one by one: an image of them would be larger than 6 MiB."""
    far = 2_000_000
    numbers = ConvolutionDimensions(0, 2, (1,), 1, 2, (0,), 0, 2, (1,))
    attributes = {"dimension_numbers": numbers, "feature_group_count": 1, "batch_group_count": 1}
    window = (WindowDimension(2, window_dilation=far),)
    body = [
        parameter("x", (1, far + 3, features), dtype=dtype),
        const("w", near_bits(np.random.default_rng(4), dtype, (2, features, 5))),
        inst("c", "convolution", (1, 3, 5), "x", "w", window=window, **attributes),
        inst("n", "negate", (1, 3, 5), "c"),
    ]
    check_everywhere(module_of(*body), [{"packed", "epilogue"}])


@pytest.mark.parametrize(("batch", "size", "groups"), [(3, 30, 1), (1, 45, 1), (1, 45, 900)])
def test_terms_of_a_convolution_that_is_padded_in_pieces(
    restored_processor: None, batch: int, size: int, groups: int
) -> None:
    """More than the 6 MiB of samples, or of rows, that the core pads at a time."""
    writes = 3 if groups == 1 else 900
    numbers = ConvolutionDimensions(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    attributes = {"dimension_numbers": numbers, "feature_group_count": groups, "batch_group_count": 1}
    window = (WindowDimension(3, 1, (1, 1)), WindowDimension(2))
    image, out = (batch, size, size, 900), (batch, size, size - 1, writes)
    body = [
        parameter("x", image),
        parameter("w", (3, 2, 900 // groups, writes), number=1),
        parameter("t", out, number=2),
        parameter("bias", (writes,), number=3),
        inst("a", "reduce-precision", image, "x", exponent_bits=8, mantissa_bits=10),
        inst("c", "convolution", out, "a", "w", window=window, **attributes),
        inst("b", "broadcast", out, "bias", dimensions=(3,)),
        inst("s", "add", out, "c", "t"),
        inst("r", "multiply", out, "s", "b"),
    ]
    check_everywhere(module_of(*body), [{"lhs", "epilogue"}])


@pytest.mark.parametrize("length", [32, 29])
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_terms_of_a_convolution_of_few_channels(
    restored_processor: None, length: int, dtype: DType
) -> None:
    """Lines of whole vectors join their terms in the register blocks, others after them (M2: two tiles
    of steps).
    """
    numbers = ConvolutionDimensions(0, 1, (2, 3), 1, 0, (2, 3), 0, 1, (2, 3))
    attributes = {"dimension_numbers": numbers, "feature_group_count": 1, "batch_group_count": 1}
    window = (WindowDimension(7, 2, (3, 3)), WindowDimension(7, 2, (3, 3)))
    out = (2, 21, 9, length)
    body = [
        parameter("x", (2, 3, 17, 2 * length)),
        const("w", near_bits(np.random.default_rng(8), F32, (21, 3, 7, 7))),
        parameter("t", out, number=1, dtype=dtype),
        parameter("bias", (21,), number=2, dtype=dtype),
        inst("c", "convolution", out, "x", "w", window=window, dtype=dtype, **attributes),
        inst("b", "broadcast", out, "bias", dimensions=(1,), dtype=dtype),
        inst("s", "add", out, "c", "b", dtype=dtype),
        inst("r", "maximum", out, "s", "t", dtype=dtype),
    ]
    check_everywhere(module_of(*body), [{"packed", "epilogue"}], special=True)


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize(("window", "groups"), [(1, 1), (1, 2), (2, 1), (4, 1), (4, 2)])
@pytest.mark.parametrize("is_in_planes", [False, True], ids=["channels_last", "planes"])
def test_terms_of_a_convolution_whose_input_has_holes(
    restored_processor: None, dtype: DType, window: int, groups: int, is_in_planes: bool
) -> None:
    """Phases of the outputs, and with a window of 1 some that read no element (M5)."""
    dims = (
        (0, 1, (2,), 1, 2, (0,), 0, 1, (2,)) if is_in_planes else (0, 2, (1,), 1, 2, (0,), 0, 2, (1,))
    )
    attributes = {"dimension_numbers": ConvolutionDimensions(*dims)}
    attributes |= {"feature_group_count": groups, "batch_group_count": 1}
    read = (WindowDimension(window, padding=(1, 2), base_dilation=3),)
    image, out = (2, 140, 64), (2, 418 + 4 - window, 70)
    if is_in_planes:
        image, out = (2, 64, 140), (2, 70, out[1])
    body = [
        parameter("x", image),
        parameter("w", (window, 64 // groups, 70), number=1),
        parameter("t", out, number=2),
        parameter("bias", (70,), number=3),
        inst("c", "convolution", out, "x", "w", window=read, **attributes),
        inst("b", "broadcast", out, "bias", dimensions=(1 if is_in_planes else 2,)),
        inst("s", "add", out, "c", "b"),
        inst("r", "multiply", out, "s", "t"),
    ]
    if dtype is not F32:
        body.append(inst("narrow", "convert", out, "r", dtype=dtype))
    check_everywhere(module_of(*body), [{"epilogue"}])


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_terms_of_a_product_of_nothing_M2(restored_processor: None, dtype: DType) -> None:
    """Many blocks of rows and columns share the PSUM in which the terms join."""
    body = [
        parameter("x", (40, 0)),
        parameter("w", (0, 1100), number=1),
        parameter("bias", (1100,), number=2),
        inst("d", "dot", (40, 1100), "x", "w", dot_dimensions=PLAIN),
        inst("b", "broadcast", (40, 1100), "bias", dimensions=(1,)),
        inst("s", "add", (40, 1100), "d", "b"),
        inst("n", "convert", (40, 1100), "s", dtype=dtype),
    ]
    check_everywhere(module_of(*body[: len(body) - (dtype is F32)]), [{"epilogue"}])


# ---- what is left alone ------------------------------------------------------------------------


def test_exact_sums_round_to_the_product_and_then_on_M6(restored_processor: None) -> None:
    body = [*layer(), inst("c", "convert", (35, 45), "d", dtype=BF16)]
    body[2:2] = [inst("a", "convert", (35, 130), "x", dtype=BF16)]
    body[3] = dot_of("a", "y", 35, 45)
    check_everywhere(module_of(*body), [{"lhs"}], Profile(accumulate="exact"))


def test_stochastic_rounding_draws_the_same_words_S2(restored_processor: None) -> None:
    profile = Profile(rounding="stochastic")
    w = near_bits(np.random.default_rng(6), BF16, (130, 45))
    body = [
        parameter("x", (35, 130)),
        const("w", w),
        inst("a", "convert", (35, 130), "x", dtype=BF16),
        dot_of("a", "w", 35, 45, dtype=BF16),
        inst("n", "multiply", (35, 45), "d", "d", dtype=BF16),
        inst("o", "convert", (35, 45), "n", dtype=dtypes.float8_e4m3),
    ]
    module = module_of(*body)
    inputs = inputs_of(module, 1)
    expected = contents(one_at_a_time(module, inputs, profile, seed=9))
    assert expected != contents(one_at_a_time(module, inputs, profile, seed=10))
    for where in every_processor():
        program = compiled(module, profile)
        assert [fused(p) for p in products(program)] == [{"packed"}], where
        assert len(program.steps) == 3
        assert contents(run_schedule(program, inputs, seed=9)) == expected, where


# ---- controls ----------------------------------------------------------------------------------


def changed(program: Schedule, **fusion: Any) -> Schedule:
    """The program whose only product has another fusion."""

    def other(s: Step) -> Step:
        if not isinstance(s.action, Product):
            return s
        product = dataclasses.replace(s.action, fusion=dataclasses.replace(s.action.fusion, **fusion))
        operands = s.operands if product.fusion.epilogue else s.operands[:2]
        return dataclasses.replace(s, action=product, operands=operands)

    return dataclasses.replace(program, steps=tuple(other(s) for s in program.steps))


def dense_layer() -> Module:
    w = near_bits(np.random.default_rng(7), BF16, (130, 45))
    return module_of(
        parameter("x", (35, 130)),
        const("w", w),
        parameter("t", (35, 45), number=1),
        inst("a", "convert", (35, 130), "x", dtype=BF16),
        dot_of("a", "w", 35, 45),
        inst("s", "add", (35, 45), "d", "t"),
    )


def test_control_packed_columns_are_read_on_their_processor_only(restored_processor: None) -> None:
    """Columns of another operand show where they were packed; elsewhere they are not looked at."""
    module = dense_layer()
    inputs = inputs_of(module, 1)
    expected = contents(one_at_a_time(module, inputs, Profile()))
    isas = processor.available_isas()
    if len(isas) < 2:
        pytest.skip("this processor has one instruction set")
    for isa in isas:
        processor.set_isa(isa)
        program = compiled(module)
        (product,) = products(program)
        wrong = near_bits(np.random.default_rng(8), BF16, (130, 45))
        operands = [ops.standin(ops.ArrayType(BF16, (32, 130))), wrong]
        evaluation = product.call.evaluation(operands, ops.Setting(Profile()))
        program = changed(program, packed=ops.pack_columns(evaluation))
        for other in isas:
            processor.set_isa(other)
            assert (contents(run_schedule(program, inputs)) == expected) == (other != isa)


def test_products_of_one_constant_share_its_packing() -> None:
    w = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) / 4096
    body = [
        parameter("x", (4, 64), 0),
        parameter("y", (4, 64), 1),
        const("w", Bits(w, F32)),
        *(inst(n, "dot", (4, 64), n[1], "w", dot_dimensions=PLAIN) for n in ("ax", "by")),
        inst("s", "add", (4, 64), "ax", "by"),
    ]
    module = module_of(*body)
    first, second = (p.fusion.packed for p in products(compiled(module)))
    assert first is second is not None
    known = KnownConstants()
    again = [compile_module(module, Profile(), find_target("trn1"), known=known) for _ in range(2)]
    one, two = (products(program)[0].fusion.packed for program in again)
    assert one is two is not first
    other = compile_module(module, Profile(), find_target("trn1"), known=KnownConstants(limit=1))
    inputs = inputs_of(module, 3)
    values = [run_schedule(p, inputs).data.tobytes() for p in (*again, other, compiled(module))]
    assert len(set(values)) == 1


def test_a_store_of_constants_keeps_to_its_limit() -> None:
    known = KnownConstants(limit=2048)
    arrays = [Bits(np.full(256, n, np.float32), F32) for n in range(3)]
    for x in arrays:
        known.of("sum", x, lambda x=x: float(x.data.sum()))
    assert len(known) == 1
    assert known.of("sum", arrays[2], lambda: -1.0) == 512.0
    assert known.of("sum", arrays[0], lambda: -1.0) == -1.0  # it was given up
