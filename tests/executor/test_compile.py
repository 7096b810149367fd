"""Compilation: what is folded, grouped, dropped and inlined, and what a target refuses."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from tests.support.graphs import computation, constant, inst, module_of, parameter
from tests.support.running import flat_bits, program_of

from neuronsim import dtypes, ops
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.dtypes import DType
from neuronsim.errors import OutOfMemory, UnsupportedType
from neuronsim.executor.compile import SMALL_ELEMENTS
from neuronsim.executor.merging import MAX_LINKS
from neuronsim.executor.run import run_schedule
from neuronsim.executor.schedule import Schedule
from neuronsim.executor.steps import Chain, Product, TupleValue, all_steps, stored_bytes
from neuronsim.executor.target_checks import check_memory, check_types
from neuronsim.hlo.module import Instruction, Shape, TupleShape
from neuronsim.targets import find_target

F32, BF16, S32, PRED = dtypes.float32, dtypes.bfloat16, dtypes.int32, dtypes.boolean
DOT = ops.DotDimensions((1,), (0,))


def pair(name: str, *operands: str, dims: tuple[int, ...] = (3,)) -> Instruction:
    return Instruction(name, "tuple", TupleShape((Shape(F32, dims),) * len(operands)), operands)


def run(program: Schedule, **inputs: Any) -> list[Any]:
    types = {name: t.dtype for name, t in program.inputs}
    given = {n: ops.Bits(np.asarray(v, types[n].storage), types[n]) for n, v in inputs.items()}
    value = run_schedule(program, given)
    arrays = value.elements if isinstance(value, TupleValue) else (value,)
    return [a.data.astype(float).tolist() for a in arrays if isinstance(a, ops.Bits)]


def constant_bytes(program: Schedule) -> int:
    """Bytes of the constants, each counted once in its own type, packed ones too."""
    packed = {
        s.operands[1]: s.action.rhs
        for s in all_steps(program.steps)
        if isinstance(s.action, Product) and s.action.reads_packed
    }
    sizes = [
        math.prod(t.dims) * t.dtype.itemsize for n, t in packed.items() if n not in program.constants
    ]
    return sum(map(stored_bytes, program.constants.values())) + sum(sizes)


X = [1.0, -2.0, 4.0]


# ---- chains ------------------------------------------------------------------------------------


def test_a_chain_groups_a_tree() -> None:
    body = [
        parameter("x", (3,)),
        inst("h", "convert", (3,), "x", dtype=BF16),
        inst("w", "convert", (3,), "h"),
        inst("n", "negate", (3,), "x"),
        inst("p", "reduce-precision", (3,), "n", exponent_bits=8, mantissa_bits=10),
        inst("y", "add", (3,), "w", "p"),
    ]
    program = program_of(module_of(*body))
    (step,) = program.steps
    assert isinstance(step.action, Chain)
    assert set(step.members) == {"h", "w", "n", "p", "y"}
    assert step.operands == ("x",)
    assert run(program, x=[1.001953125, 0, 3]) == [[1 - 1.001953125, 0, 0]]


def test_a_value_whose_readers_are_in_one_chain_is_in_it() -> None:
    body = [
        parameter("x", (3,)),
        inst("a", "negate", (3,), "x"),
        inst("b", "abs", (3,), "a"),
        inst("c", "multiply", (3,), "a", "b"),
    ]
    program = program_of(module_of(*body))
    assert [s.members for s in program.steps] == [("a", "b", "c")]
    assert run(program, x=X) == [[-1, 4, -16]]


def test_a_value_with_a_reader_elsewhere_ends_its_chain() -> None:
    body = [
        parameter("x", (3,)),
        inst("a", "negate", (3,), "x"),
        inst("b", "abs", (3,), "a"),
        inst("r", "reverse", (3,), "a", dimensions=(0,)),
        inst("c", "multiply", (3,), "r", "b"),
    ]
    program = program_of(module_of(*body))
    assert [s.members for s in program.steps] == [("a",), ("r",), ("b", "c")]
    assert run(program, x=X) == [[-4, 4, -4]]


def test_a_chain_stops_where_the_dimensions_change() -> None:
    body = [
        parameter("x", (3,)),
        parameter("p", (), number=1, dtype=PRED),
        inst("q", "not", (), "p", dtype=PRED),
        inst("n", "negate", (3,), "x"),
        inst("y", "select", (3,), "q", "x", "n"),
    ]
    program = program_of(module_of(*body))
    assert [s.members for s in program.steps] == [("q",), ("n", "y")]
    assert run(program, x=X, p=True) == [[-1, 2, -4]]


@pytest.mark.parametrize("length", [MAX_LINKS - 1, MAX_LINKS, MAX_LINKS + 1, 3 * MAX_LINKS + 5])
def test_long_chains_split(length: int) -> None:
    names = ["x", *(f"n{k}" for k in range(length))]
    body = [inst(b, "negate", (3,), a) for a, b in itertools.pairwise(names)]
    program = program_of(module_of(parameter("x", (3,)), *body))
    members = [m for s in program.steps for m in s.members]
    assert members == names[1:]
    assert all(len(s.members) <= MAX_LINKS for s in program.steps)
    assert len(program.steps) == -(-length // MAX_LINKS)
    assert run(program, x=X) == [[v * (-1) ** length for v in X]]


def test_a_wide_tree_splits() -> None:
    level = [f"l{k}" for k in range(64)]
    given = [f"x{k}" for k in range(64)]
    body = [parameter(x, (3,), k) for k, x in enumerate(given)]
    body += [inst(n, "negate", (3,), x) for n, x in zip(level, given, strict=True)]
    while len(level) > 1:
        sums = [f"{a}+{b}" for a, b in zip(level[::2], level[1::2], strict=True)]
        body += [
            inst(s, "add", (3,), a, b) for s, a, b in zip(sums, level[::2], level[1::2], strict=True)
        ]
        level = sums
    program = program_of(module_of(*body))
    members = [m for s in program.steps for m in s.members]
    assert sorted(members) == sorted(i.name for i in body[64:])
    assert all(len(s.members) <= MAX_LINKS for s in program.steps)
    assert run(program, **dict.fromkeys(given, X)) == [[-64 * v for v in X]]


def test_int64_is_grouped_C7() -> None:
    s64 = dtypes.int64
    body = [
        parameter("x", (3,), dtype=s64),
        inst("n", "negate", (3,), "x", dtype=s64),
        inst("y", "abs", (3,), "n", dtype=s64),
    ]
    module = module_of(*body)
    for int64 in ("keep", "truncate"):
        program = program_of(module, int64)
        assert ([s.name for s in program.steps], program.recording().python) == (["y"], ())
    assert not program_of(module, "keep").steps[0].action.is_counted
    assert program_of(module, "truncate").steps[0].action.is_counted


def test_what_is_counted_stays_apart_C7() -> None:
    """Every run looks into the links of a chain that counts, so that others are not among them."""
    s64 = dtypes.int64
    body = [
        parameter("x", (3,), dtype=s64),
        parameter("f", (3,), number=1),
        inst("n", "add", (3,), "x", "x", dtype=s64),
        inst("c", "convert", (3,), "n"),
        inst("y", "multiply", (3,), "c", "f"),
    ]
    assert [s.name for s in program_of(module_of(*body), "keep").steps] == ["y"]
    assert [s.name for s in program_of(module_of(*body), "truncate").steps] == ["n", "y"]


def test_words_of_64_bits_are_truncated_where_they_are_read_C7() -> None:
    """A bitcast gives words that are no numbers: what reads these truncates them, in Python."""
    s64, u32 = dtypes.int64, dtypes.uint32
    body = [
        parameter("x", (2, 2), dtype=u32),
        inst("w", "bitcast-convert", (2,), "x", dtype=s64),
        inst("s", "maximum", (2,), "w", "w", dtype=s64),
    ]
    program = program_of(module_of(*body))
    assert program.recording().python == ("s",)
    found = run_schedule(program, {"x": ops.Bits(np.array([[7, 1], [2**31, 0]], np.uint32), u32)})
    assert isinstance(found, ops.Bits)
    assert found.data.tolist() == [7, -(2**31)]


@pytest.mark.parametrize("opcode", ["bitcast", "bitcast-convert"])
def test_a_bitcast_to_another_type_gives_words_C7(opcode: str) -> None:
    """A u64 of more than 31 bits is no s64 that C7 leaves: readers truncate it wherever they run."""
    s64, u64 = dtypes.int64, dtypes.uint64
    body = [
        parameter("x", (2,), dtype=u64),
        inst("b", opcode, (2,), "x", dtype=s64),
        inst("m", "maximum", (2,), "b", "b", dtype=s64),
        inst("y", "tuple", (), "b", "m"),
    ]
    body[-1] = body[-1].replace(shape=TupleShape((body[1].shape, body[2].shape)))
    program = program_of(module_of(*body))
    given = {"x": ops.Bits(np.array([7, 2**32 - 1], np.uint64), u64)}
    for schedule in (program, program.op_by_op):
        found = [x.data.tolist() for x in flat_bits(run_schedule(schedule, given))]
        assert found == [[7, 2**32 - 1], [7, -1]]


def test_a_bitcast_that_is_a_reshape_leaves_chains_C7() -> None:
    s64 = dtypes.int64
    body = [
        parameter("x", (2, 3), dtype=s64),
        inst("b", "bitcast", (6,), "x", dtype=s64),
        inst("n", "negate", (6,), "b", dtype=s64),
    ]
    assert program_of(module_of(*body)).recording().python == ()


# ---- constants ---------------------------------------------------------------------------------


def test_constant_expressions_are_folded() -> None:
    body = [
        parameter("x", (3,)),
        constant("c", 2.0),
        inst("h", "convert", (), "c", dtype=BF16),
        inst("w", "convert", (), "h"),
        inst("e", "multiply", (), "w", "c"),
        inst("b", "broadcast", (3,), "e", dimensions=()),
        inst("i", "iota", (3,), dimensions=(0,)),
        inst("s", "add", (3,), "b", "i"),
        inst("d", "dot", (), "x", "s", dot_dimensions=ops.DotDimensions((0,), (0,))),
    ]
    program = program_of(module_of(*body))
    assert [s.members for s in program.steps] == [("d",)]
    assert constant_bytes(program) == 12  # of s, which is packed
    assert run(program, x=X) == [1 * 4 - 2 * 5 + 4 * 6]


def test_a_constant_is_cast_once_for_an_elementwise_reader() -> None:
    body = [
        parameter("x", (3,), dtype=BF16),
        constant("c", X),
        inst("h", "convert", (3,), "c", dtype=BF16),
        inst("y", "add", (3,), "x", "h", dtype=BF16),
    ]
    program = program_of(module_of(*body))
    assert [s.members for s in program.steps] == [("y",)]
    assert set(program.constants) == {"h"}
    assert constant_bytes(program) == 6


def test_weights_halve_under_matmult_bf16_A1() -> None:
    w = np.random.default_rng(1).normal(size=(32, 4))
    module = module_of(
        parameter("x", (2, 32)),
        constant("w", w),
        inst("d", "dot", (2, 4), "x", "w", dot_dimensions=DOT),
    )
    planned = apply_plan(module, make_plan(module, neuron_policy("matmult", "bf16")))
    before, after = program_of(module), program_of(planned)
    assert (constant_bytes(before), constant_bytes(after)) == (512, 256)
    assert not after.constants  # what is packed is not kept beside it
    assert not any("w.to_bf16" in s.members for s in after.steps)


def test_a_broadcast_constant_takes_no_memory() -> None:
    size = 2 * SMALL_ELEMENTS
    body = [constant("c", 1.0), inst("b", "broadcast", (size,), "c", dimensions=())]
    program = program_of(module_of(*body))
    assert program.steps == ()
    assert constant_bytes(program) == 4


def test_a_large_weight_is_cast_once() -> None:
    size = 2 * SMALL_ELEMENTS
    body = [constant("c", np.ones(size)), inst("h", "convert", (size,), "c", dtype=BF16)]
    program = program_of(module_of(*body))
    assert program.steps == ()
    assert constant_bytes(program) == 2 * size


def test_a_constant_that_grows_is_not_folded() -> None:
    body = [
        constant("c", 1.0),
        inst("b", "broadcast", (SMALL_ELEMENTS + 1,), "c", dimensions=()),
        inst("n", "negate", (SMALL_ELEMENTS + 1,), "b"),
    ]
    assert [s.members for s in program_of(module_of(*body)).steps] == [("n",)]


# ---- roots and dead code -----------------------------------------------------------------------


def test_dead_code_is_dropped() -> None:
    body = [
        parameter("x", (3,)),
        constant("unused", [7.0]),
        inst("dead", "exponential", (1,), "unused"),
        inst("y", "negate", (3,), "x"),
        inst("after", "tanh", (3,), "y"),
        inst("aside", "abs", (3,), "x"),
    ]
    program = program_of(module_of(*body, root="y"))
    assert [s.members for s in program.steps] == [("y",)]
    assert not program.constants
    assert run(program, x=X) == [[-1, 2, -4]]


def test_an_unused_parameter_stays_an_input() -> None:
    program = program_of(
        module_of(parameter("x", (3,)), parameter("z", (2,), number=1), inst("y", "negate", (3,), "x"))
    )
    assert [n for n, _ in program.inputs] == ["x", "z"]
    assert run(program, x=X, z=[0, 0]) == [[-1, 2, -4]]


def test_inputs_are_in_the_order_of_their_numbers() -> None:
    body = [parameter("b", (3,), number=1), parameter("a", (3,)), inst("y", "subtract", (3,), "a", "b")]
    program = program_of(module_of(*body))
    assert [n for n, _ in program.inputs] == ["a", "b"]


TURNED = [-x for x in X]
# The entry's instructions, the number of steps, and the results.
ROOTS: dict[str, tuple[list[Instruction], int, list[Any]]] = {
    "parameter": ([parameter("x", (3,))], 0, [X]),
    "parameter that others read": (
        [parameter("x", (3,)), inst("y", "negate", (3,), "x"), pair("t", "y", "x")],
        *(1, [TURNED, X]),
    ),
    "constant": ([constant("c", X)], 0, [X]),
    "folded to a tuple": (
        [constant("c", X), inst("n", "negate", (3,), "c"), pair("t", "c", "n")],
        *(0, [X, TURNED]),
    ),
    "tuple of a parameter twice": ([parameter("x", (3,)), pair("t", "x", "x")], 0, [X, X]),
    "tuple of a constant twice": ([constant("c", X), pair("t", "c", "c")], 0, [X, X]),
    "tuple of a value twice": (
        [parameter("x", (3,)), inst("y", "negate", (3,), "x"), pair("t", "y", "y")],
        *(1, [TURNED, TURNED]),
    ),
}


@pytest.mark.parametrize("case", ROOTS)
def test_a_root_that_is_a(case: str) -> None:
    body, steps, results = ROOTS[case]
    program = program_of(module_of(*body))
    assert len(program.steps) == steps
    for _ in range(2):
        assert run(program, **({"x": X} if program.inputs else {})) == results
    if case == "folded to a tuple":
        assert constant_bytes(program) == 24


# ---- what a target refuses ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "code"),
    [
        (dtypes.float64, "NCC_ESPP004"),
        (dtypes.complex128, "NCC_EVRF004"),
        (dtypes.complex64, "NCC_EVRF004"),
        (dtypes.float8_e4m3fn, "NCC_EVRF051"),
    ],
)
def test_types_that_trn1_does_not_have(dtype: DType, code: str) -> None:
    module = module_of(parameter("x", (3,), dtype=dtype))
    with pytest.raises(UnsupportedType, match=rf"\[{code}\] trn1 has no {dtype.name}.*instruction x "):
        program_of(module)
    check_types(module, find_target("host"))


def test_a_type_inside_the_graph_is_found_and_counted() -> None:
    body = [
        parameter("x", (3,)),
        inst("d", "convert", (3,), "x", dtype=dtypes.float64),
        inst("e", "convert", (3,), "d"),
        inst("f", "convert", (3,), "e", dtype=dtypes.float64),
        inst("g", "convert", (3,), "f"),
    ]
    with pytest.raises(UnsupportedType, match="instruction d and 1 more of 'm'"):
        program_of(module_of(*body))


@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.float8_e4m3fn])
def test_the_host_target_runs_converts_of_its_types_H1(dtype: DType) -> None:
    body = [
        parameter("x", (3,)),
        inst("d", "convert", (3,), "x", dtype=dtype),
        inst("e", "convert", (3,), "d"),
    ]
    assert run(program_of(module_of(*body), "keep", "host"), x=X) == [X]


@pytest.mark.parametrize("target", ["trn1", "host"])
def test_an_array_larger_than_the_memory(target: str) -> None:
    gib = find_target(target).memory // 2**30
    fits = module_of(parameter("x", (gib, 2**28)))
    check_memory(fits, find_target(target))
    with pytest.raises(OutOfMemory, match=r"\[NCC_EOOM001\] x is float32\[17,268435456\]: 17 GiB"):
        program_of(module_of(parameter("x", (gib + 1, 2**28))), target=target)
    # The same number of elements in two bytes each fits.
    check_memory(module_of(parameter("x", (gib + 1, 2**28), dtype=BF16)), find_target(target))


def test_an_intermediate_larger_than_the_memory() -> None:
    body = [parameter("x", ()), inst("b", "broadcast", (2**33,), "x", dimensions=())]
    with pytest.raises(OutOfMemory, match=r"\[NCC_EOOM001\] b "):
        program_of(module_of(*body))


# ---- calls -------------------------------------------------------------------------------------


def test_a_callee_that_gives_a_tuple() -> None:
    f = computation("f", parameter("p", (3,)), inst("n", "negate", (3,), "p"), pair("t", "p", "n"))
    call = Instruction("r", "call", f.by_name["t"].shape, ("x",), {"called": ("f",)})
    take = [inst(f"g{k}", "get-tuple-element", (3,), "r", tuple_index=k) for k in (0, 1)]
    body = [parameter("x", (3,)), call, *take, inst("d", "subtract", (3,), "g0", "g1")]
    assert run(program_of(module_of(*body, others=(f,))), x=X) == [[2, -4, 8]]
