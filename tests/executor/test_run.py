"""Execution: equal to one instruction at a time (D2), 64-bit integers (C7), and memory."""

from __future__ import annotations

import dataclasses
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import interpreter
from tests.support.graphs import inst, module_of, parameter
from tests.support.parameters import each_of
from tests.support.running import contents, program_of

from neuronsim import dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.errors import UnsupportedOperator, UnsupportedType
from neuronsim.executor.compile import compile_module
from neuronsim.executor.diagnostics import Diagnostics
from neuronsim.executor.run import run_schedule
from neuronsim.executor.schedule import Schedule
from neuronsim.executor.steps import TupleValue, Value
from neuronsim.hlo.module import Computation, Instruction, Module, TupleShape
from neuronsim.hlo.verify import verify
from neuronsim.ops import Bits
from neuronsim.profiles import Profile
from neuronsim.targets import find_target

F32, BF16, PRED = dtypes.float32, dtypes.bfloat16, dtypes.boolean
S32, U32, S64, U64 = dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64
FLOATS = (F32, BF16, dtypes.float16, dtypes.float8_e5m2, dtypes.float8_e4m3, dtypes.float8_e3m4)
EVERY = (*FLOATS, S32, dtypes.int8, dtypes.uint16, S64, PRED)
DIMS = (5,)


def random_bits(rng: np.random.Generator, dtype: DType, dims: tuple[int, ...]) -> Bits:
    """Any encoding, with many zeros, ones, largest numbers, Inf and NaN of either sign."""
    if dtype is PRED:
        return Bits(rng.random(dims) < 0.5, dtype)
    word = np.dtype(f"u{dtype.itemsize}")
    data = rng.integers(0, np.iinfo(word).max, dims, word, endpoint=True)
    if dtype.kind == "float":
        top = ((1 << dtype.exponent_bits) - 1) << dtype.mantissa_bits
        special = [
            0,
            1,
            top - 1,
            top,
            top + 1,
            dtype.nan_bits,
            top >> 1 & ~(1 << dtype.mantissa_bits) + 1,
        ]
        chosen = np.array(special, word)[rng.integers(0, len(special), dims)]
        sign = rng.integers(0, 2, dims).astype(word) << word.type(8 * word.itemsize - 1)
        data = np.where(rng.random(dims) < 0.4, chosen | sign, data)
    else:
        small = rng.integers(0, 3, dims).astype(word)
        data = np.where(rng.random(dims) < 0.3, small, data)
    return Bits(np.asarray(data, word).view(dtype.storage).reshape(dims), dtype)


def has(op: ops.Op, dtype: DType) -> bool:
    try:
        ops.check_elementwise(op, dtype, dtype)
    except (UnsupportedType, UnsupportedOperator):
        return False
    return True


@st.composite
def modules(draw: st.DrawFn, types: tuple[DType, ...] = EVERY) -> Module:
    """An elementwise module of mixed types with shared values, constants and several results."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    body: list[Instruction] = []
    scalars: list[Instruction] = []
    for k in range(draw(st.integers(1, 3))):
        body.append(parameter(f"p{k}", DIMS, number=k, dtype=draw(st.sampled_from(types))))
    for k in range(draw(st.integers(0, 2))):
        literal = random_bits(rng, draw(st.sampled_from(types)), draw(st.sampled_from([(), DIMS])))
        made = inst(f"c{k}", "constant", literal.data.shape, dtype=literal.dtype, literal=literal)
        (body if made.array.dims else scalars).append(made)
    pool = list(body)  # the values of DIMS
    body += scalars
    for k in range(draw(st.integers(1, 16))):
        made = draw_instruction(draw, f"i{k}", pool, scalars, types)
        pool.append(made)
        body.append(made)
    results = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=4, unique_by=lambda i: i.name))
    root = results[0].name
    if len(results) > 1:
        shape = TupleShape(tuple(i.shape for i in results))
        body.append(Instruction("out", "tuple", shape, tuple(i.name for i in results)))
        root = "out"
    module = Module("random", "main", (Computation("main", tuple(body), root),))
    verify(module)
    return module


def draw_instruction(
    draw: st.DrawFn, name: str, pool: list[Instruction], scalars: list[Instruction], types: Any
) -> Instruction:
    # Recent values first, so that chains grow; hypothesis shrinks toward them too.
    recent = st.sampled_from(pool[::-1])
    a = draw(recent)
    t = a.array.dtype
    same = [i for i in pool[::-1] if i.array.dtype is t]
    preds = [i for i in pool if i.array.dtype is PRED]
    kinds = ["unary", "binary", "convert", "compare"]
    kinds += ["broadcast"] * bool(scalars) + ["select"] * bool(preds) + ["precision"] * (t is F32)
    kind = draw(st.sampled_from(kinds))
    if kind == "broadcast":
        source = draw(st.sampled_from(scalars))
        return inst(name, "broadcast", DIMS, source.name, dtype=source.array.dtype, dimensions=())
    if kind == "select":
        b, condition = draw(st.sampled_from(same)), draw(st.sampled_from(preds))
        return inst(name, "select", DIMS, condition.name, a.name, b.name, dtype=t)
    if kind == "precision":
        m = draw(st.sampled_from([23, 10, 7]))
        return inst(name, "reduce-precision", DIMS, a.name, exponent_bits=8, mantissa_bits=m)
    if kind == "compare":
        b = draw(st.sampled_from(same))
        direction = draw(st.sampled_from(["EQ", "NE", "LT", "LE", "GT", "GE"]))
        return inst(name, "compare", DIMS, a.name, b.name, dtype=PRED, comparison_direction=direction)
    arity = 1 if kind == "unary" else 2
    rows = [
        op
        for op in ops.OPS.values()
        if op.core and op.opcode and op.arity == arity and op.direction is None and has(op, t)
    ]
    if kind == "convert" or not rows:
        return inst(name, "convert", DIMS, a.name, dtype=draw(st.sampled_from(types)))
    others = [draw(st.sampled_from(same)).name for _ in range(arity - 1)]
    op = draw(st.sampled_from(rows))
    result = op.infer([a.array.type] * arity, {}).dtype
    return inst(name, op.opcode, DIMS, a.name, *others, dtype=result)


def inputs_of(module: Module, seed: int) -> dict[str, Bits]:
    rng = np.random.default_rng(seed)
    return {p.name: random_bits(rng, p.array.dtype, p.array.dims) for p in module.parameters}


@settings(max_examples=150, deadline=None)
@given(modules(), st.integers(0, 2**32 - 1), st.sampled_from(["via_float32", "exact"]))
def test_chains_equal_one_at_a_time_D2(module: Module, seed: int, int_to_float: str) -> None:
    profile = Profile(int_to_float=int_to_float)
    inputs = inputs_of(module, seed)
    program = compile_module(module, profile, find_target("trn1"))
    given = [inputs[p.name] for p in module.parameters]
    expected, _ = interpreter.evaluate(module, given, profile)
    assert contents(run_schedule(program, inputs)) == contents(expected)


@each_of("dtype", FLOATS, ids=lambda t: t.name)
@each_of("count", [1, 2])
def test_a_convert_to_the_same_type_moves_bits_C5_D2(dtype: DType, count: int) -> None:
    top = ((1 << dtype.exponent_bits) - 1) << dtype.mantissa_bits
    sign = 1 << (8 * dtype.itemsize - 1)
    nans = np.array([top + 1, top + 1 | sign, dtype.nan_bits], f"u{dtype.itemsize}")
    body = [parameter("x", (3,), dtype=dtype)]
    for k in range(count):
        body.append(inst(f"c{k}", "convert", (3,), body[-1].name, dtype=dtype))
    value = run_schedule(program_of(module_of(*body)), {"x": Bits(nans.view(dtype.storage), dtype)})
    assert contents(value) == [(dtype.name, (3,), nans.tobytes())]


# ---- C7 ----------------------------------------------------------------------------------------

NARROW = {S64: S32, U64: U32}


def narrowed(bits: Bits) -> Bits:
    if bits.dtype not in NARROW:
        return bits
    t = NARROW[bits.dtype]
    return Bits(bits.data.astype(t.storage), t)


def narrowed_module(module: Module) -> Module:
    """The module with s32 and u32 in the place of s64 and u64."""

    def shape(s: Any) -> Any:
        if isinstance(s, TupleShape):
            return TupleShape(tuple(shape(e) for e in s.elements))
        return dataclasses.replace(s, dtype=NARROW.get(s.dtype, s.dtype))

    body = []
    for i in module.entry_computation.instructions:
        literal = i.attributes.get("literal")
        more = {"literal": narrowed(literal)} if literal is not None else {}
        body.append(i.replace(shape=shape(i.shape), attributes={**i.attributes, **more}))
    entry = module.entry_computation
    result = module.replace_entry(Computation(entry.name, tuple(body), entry.root))
    verify(result)
    return result


def flat(value: Value) -> list[Bits]:
    return [b for v in value.elements for b in flat(v)] if isinstance(value, TupleValue) else [value]


@settings(max_examples=100, deadline=None)
@given(modules((S64, U64, F32, BF16, S32, PRED)), st.integers(0, 2**32 - 1))
def test_truncated_instructions_are_the_32_bit_ones_C7(module: Module, seed: int) -> None:
    inputs = inputs_of(module, seed)
    target = find_target("trn1")
    wide = run_schedule(compile_module(module, Profile(int64="truncate"), target), inputs)
    small = {n: narrowed(b) for n, b in inputs.items()}
    expected = run_schedule(compile_module(narrowed_module(module), Profile(), target), small)
    for a, b in zip(flat(wide), flat(expected), strict=True):
        assert ops.truncate_int64(a)[1] == 0
        assert contents(narrowed(a)) == contents(b)


def int64_run(program: Schedule, **inputs: Any) -> tuple[list[int | float], dict[str, int]]:
    counts = Diagnostics()
    types = {name: t.dtype for name, t in program.inputs}
    given = {n: Bits(np.asarray(v, types[n].storage), types[n]) for n, v in inputs.items()}
    value = run_schedule(program, given, counts)
    assert isinstance(value, Bits)
    return value.data.tolist(), counts.int64_truncated


def test_parameters_are_truncated_and_counted_C7() -> None:
    module = module_of(parameter("x", (4,), dtype=S64))
    given = np.array([2**32 + 5, 2**31, -1, 7])
    assert int64_run(program_of(module), x=given) == ([5, -(2**31), -1, 7], {"x": 2})
    assert given.tolist() == [2**32 + 5, 2**31, -1, 7]
    assert int64_run(program_of(module, "keep"), x=given) == (given.tolist(), {})


def test_unsigned_parameters_are_zero_extended_C7() -> None:
    program = program_of(module_of(parameter("x", (3,), dtype=U64)))
    assert int64_run(program, x=np.array([2**31, 2**64 - 1, 2**32], np.uint64)) == (
        [2**31, 2**32 - 1, 0],
        {"x": 2},
    )


def constant_add() -> Module:
    literal = Bits(np.array([2**40 + 1, 2**31 - 1]), S64)
    return module_of(
        parameter("x", (2,), dtype=S64),
        inst("c", "constant", (2,), dtype=S64, literal=literal),
        inst("y", "add", (2,), "x", "c", dtype=S64),
    )


def test_constants_and_sums_are_counted_by_name_C7() -> None:
    program = program_of(constant_add())
    for _ in range(2):  # the counts are those of one call
        assert int64_run(program, x=[1, 1]) == ([2, -(2**31)], {"c": 1, "y": 1})
    assert int64_run(program, x=[2**32, 0]) == ([1, 2**31 - 1], {"x": 1, "c": 1})


def test_keep_leaves_all_C7() -> None:
    program = program_of(constant_add(), "keep")
    assert int64_run(program, x=[1, 1]) == ([2**40 + 2, 2**31], {})


def test_folded_instructions_are_counted_C7() -> None:
    literal = Bits(np.array([2**31 - 1]), S64)
    body = [
        inst("c", "constant", (1,), dtype=S64, literal=literal),
        inst("y", "add", (1,), "c", "c", dtype=S64),
    ]
    assert int64_run(program_of(module_of(*body))) == ([-2], {"y": 1})


@pytest.mark.parametrize(
    ("dtype", "expected", "changed"),
    [(S64, [2**31 - 1, -(2**31), 0, 2**31 - 1, -1], 3), (U64, [3 * 10**9, 0, 0, 2**32 - 1, 0], 1)],
)
def test_floats_saturate_in_32_bits_C7(dtype: DType, expected: list[int], changed: int) -> None:
    module = module_of(parameter("x", (5,)), inst("y", "convert", (5,), "x", dtype=dtype))
    x = [3e9, -3e9, np.nan, np.inf, -1.5]
    assert int64_run(program_of(module), x=x) == (expected, {"y": changed})
    kept, counts = int64_run(program_of(module, "keep"), x=x)
    assert kept[0] == 3 * 10**9
    assert counts == {}


@pytest.mark.parametrize("dtype", [S64, U64])
def test_integers_to_floats_are_the_32_bit_convert_C7_C1(dtype: DType) -> None:
    # C1: s32 1077936129 goes through float32 to bfloat16 0x4E80; exactly it would be 0x4E81.
    module = module_of(parameter("x", (1,), dtype=dtype), inst("y", "convert", (1,), "x", dtype=BF16))
    assert int64_run(program_of(module), x=[1077936129]) == ([0x4E80], {})
    assert int64_run(program_of(module, "keep"), x=[1077936129]) == ([0x4E81], {})


def test_moved_values_are_counted_once_C7() -> None:
    body = [
        parameter("x", (2,), dtype=S64),
        inst("b", "broadcast", (3, 2), "x", dtype=S64, dimensions=(1,)),
        inst("r", "reshape", (6,), "b", dtype=S64),
    ]
    result, counts = int64_run(program_of(module_of(*body)), x=[2**32 + 1, 2])
    assert result == [1, 2] * 3
    assert counts == {"x": 1}


def test_sums_of_int64_wrap_in_32_bits_C7() -> None:
    pair = [parameter(n, (), number=k, dtype=S64) for k, n in enumerate("ab")]
    add = Computation("f", (*pair, inst("t", "add", (), "a", "b", dtype=S64)), "t")
    body = [
        parameter("x", (3,), dtype=S64),
        inst("z", "constant", (), dtype=S64, literal=Bits(np.array(0), S64)),
        inst("y", "reduce", (), "x", "z", dtype=S64, dimensions=(0,), called=("f",)),
    ]
    program = program_of(module_of(*body, others=(add,)))
    assert int64_run(program, x=[2**31 - 1, 2, 3]) == (-(2**31) + 4, {"y": 1})


# ---- values ------------------------------------------------------------------------------------


@each_of("opcode", ["dot", "concatenate", "add"])
@each_of("source", ["x", "y"])
@each_of("dtype", [F32, S64])
def test_an_instruction_may_read_a_value_twice(opcode: str, source: str, dtype: DType) -> None:
    dims = (4, 2) if opcode == "concatenate" else (2, 2)
    attributes: dict[str, Any] = {
        "dot": {"dot_dimensions": ops.DotDimensions((1,), (0,))},
        "concatenate": {"dimensions": (0,)},
    }.get(opcode, {})
    body = [
        parameter("x", (2, 2), dtype=dtype),
        inst("y", "negate", (2, 2), "x", dtype=dtype),
        inst("z", opcode, dims, source, source, dtype=dtype, **attributes),
    ]
    program = program_of(module_of(*body))
    x = np.arange(4, dtype=dtype.storage).reshape(2, 2)
    v = x if source == "x" else -x
    expected = {"dot": v @ v, "concatenate": np.concatenate([v, v]), "add": v + v}[opcode]
    result = run_schedule(program, {"x": Bits(x, dtype)})
    assert isinstance(result, Bits)
    np.testing.assert_array_equal(result.data, expected)


def test_a_program_runs_again_on_other_inputs() -> None:
    program = program_of(module_of(parameter("x", (2,)), inst("y", "negate", (2,), "x")))
    first = run_schedule(program, {"x": Bits(np.array([1, 2], np.float32), F32)})
    second = run_schedule(program, {"x": Bits(np.array([3, 4], np.float32), F32)})
    assert [v.data.tolist() for v in (first, second) if isinstance(v, Bits)] == [[-1, -2], [-3, -4]]


@pytest.mark.parametrize("readers", [1, 2])
def test_values_are_freed(readers: int) -> None:
    side, count = 128, 40
    dot = ops.DotDimensions((1,), (0,))
    body = [parameter("x", (side, side)), parameter("w", (side, side), number=1)]
    for k in range(count):
        last = body[-1].name if k else "x"
        body.append(inst(f"d{k}", "dot", (side, side), last, "w", dot_dimensions=dot))
        if readers == 2:
            body.append(inst(f"s{k}", "add", (side, side), f"d{k}", last))
    program = program_of(module_of(*body))
    x = Bits(np.zeros((side, side), np.float32), F32)
    run_schedule(program, {"x": x, "w": x})
    tracemalloc.start()
    try:
        run_schedule(program, {"x": x, "w": x})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5 * x.data.nbytes
