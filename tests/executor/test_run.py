"""Execution: equal to one instruction at a time (D2), 64-bit integers (C7), and memory."""

from __future__ import annotations

import dataclasses
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.executor.random_modules import ELEMENTWISE, HEALTH, Example, modules
from tests.support import interpreter
from tests.support.draws import random_words
from tests.support.graphs import inst, module_of, parameter
from tests.support.hlo_text import text_module
from tests.support.parameters import each_of
from tests.support.running import contents, flat_bits, program_of
from tests.support.words import as_bits

from neuronsim import dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.executor.compile import compile_module
from neuronsim.executor.diagnostics import Diagnostics
from neuronsim.executor.run import run_schedule
from neuronsim.executor.schedule import Schedule
from neuronsim.hlo.module import Computation, Module, Shape, TupleShape
from neuronsim.hlo.verify import verify
from neuronsim.ops import Bits
from neuronsim.profiles import Profile
from neuronsim.targets import find_target

F32, BF16, PRED = dtypes.float32, dtypes.bfloat16, dtypes.boolean
S32, U32, S64, U64 = dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64
FLOATS = (F32, BF16, dtypes.float16, dtypes.float8_e5m2, dtypes.float8_e4m3, dtypes.float8_e3m4)
IN_CHAINS = (*ELEMENTWISE, "convert", "convert", "reduce-precision", "broadcast")


def inputs_of(module: Module, seed: int) -> dict[str, Bits]:
    """Many zeros, subnormals, largest numbers, Inf and NaN of either sign and with any payload."""
    rng = np.random.default_rng(seed)
    return {
        p.name: as_bits(t.name, random_words(rng, t.name, dims, "special"))
        for p in module.parameters
        for t, dims in [p.array.type]
    }


@settings(max_examples=100, deadline=None, suppress_health_check=HEALTH)
@given(modules(IN_CHAINS), st.integers(0, 2**32 - 1), st.sampled_from(["via_float32", "exact"]))
def test_chains_equal_one_at_a_time_D2(example: Example, seed: int, int_to_float: str) -> None:
    profile, module = Profile(int_to_float=int_to_float), example.module
    inputs = inputs_of(module, seed)
    program = compile_module(module, profile, find_target("host"))
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


@settings(max_examples=70, deadline=None, suppress_health_check=HEALTH)
@given(modules(IN_CHAINS, (S64, U64, F32, BF16, S32, PRED)), st.integers(0, 2**32 - 1))
def test_truncated_instructions_are_the_32_bit_ones_C7(example: Example, seed: int) -> None:
    module, target = example.module, find_target("host")
    inputs = inputs_of(module, seed)
    program = compile_module(module, Profile(int64="truncate"), target)
    assert program.recording().python == ()
    counts, each = Diagnostics(), Diagnostics()
    wide = run_schedule(program, inputs, counts)
    run_schedule(program.op_by_op, inputs, each)
    assert counts.of("int64_truncated") == each.of("int64_truncated")
    small = {n: narrowed(b) for n, b in inputs.items()}
    expected = run_schedule(compile_module(narrowed_module(module), Profile(), target), small)
    found = flat_bits(wide)
    assert [ops.truncate_int64(b)[1] for b in found] == [0] * len(found)
    assert [c for b in found for c in contents(narrowed(b))] == contents(expected)


def int64_run(program: Schedule, **inputs: Any) -> tuple[list[int | float], dict[str, int]]:
    counts = Diagnostics()
    types = {name: t.dtype for name, t in program.inputs}
    given = {n: Bits(np.asarray(v, types[n].storage), types[n]) for n, v in inputs.items()}
    value = run_schedule(program, given, counts)
    assert isinstance(value, Bits)
    return value.data.tolist(), counts.of("int64_truncated")


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


LIMITS = (-(2**63), 2**63 - 1, -(2**63) + 1, 2**63 - 2)


def test_limits_stay_limits_C7() -> None:
    c = inst("c", "constant", (4,), dtype=S64, literal=Bits(np.array(LIMITS), S64))
    assert int64_run(program_of(module_of(c))) == ([-(2**31), 2**31 - 1, 1, -2], {"c": 2})
    assert int64_run(program_of(module_of(c), "keep")) == (list(LIMITS), {})
    given = int64_run(program_of(module_of(parameter("x", (4,), dtype=S64))), x=LIMITS)
    assert given == ([0, -1, 1, -2], {"x": 4})
    most = inst("c", "constant", (1,), dtype=U64, literal=Bits(np.array([2**64 - 1], np.uint64), U64))
    assert int64_run(program_of(module_of(most))) == ([2**32 - 1], {"c": 1})


REDUCERS = """\
less {
a = s64[] parameter(0)
b = s64[] parameter(1)
ROOT r = s64[] minimum(a, b)
}
more {
a = s64[] parameter(0)
b = s64[] parameter(1)
ROOT r = s64[] maximum(a, b)
}
capped {
a = s64[] parameter(0)
b = s64[] parameter(1)
most = s64[] constant(9223372036854775807)
m = s64[] minimum(a, b)
ROOT r = s64[] minimum(m, most)
}
first {
a = s64[] parameter(0)
n = s32[] parameter(1)
b = s64[] parameter(2)
m = s32[] parameter(3)
is = pred[] compare(a, b), direction=GE
v = s64[] select(is, a, b)
k = s32[] select(is, n, m)
ROOT r = (s64[], s32[]) tuple(v, k)
}
"""
ENDS = """\
x = s64[2,3] parameter(0)
most = s64[] constant(9223372036854775807)
least = s64[] constant(-9223372036854775808)
zero = s32[] constant(0)
places = s32[2,3] iota(), iota_dimension=1
low = s64[2] reduce(x, most), dimensions={1}, to_apply=less
high = s64[2] reduce(x, least), dimensions={1}, to_apply=more
window = s64[2,2] reduce-window(x, least), window={size=1x2}, to_apply=more
pair = (s64[2], s32[2]) reduce(x, places, least, zero), dimensions={1}, to_apply=first
place = s32[2] get-tuple-element(pair), index=1
own = s64[2] reduce(x, most), dimensions={1}, to_apply=capped
ROOT all = (s64[2], s64[2], s64[2,2], s32[2], s64[2]) tuple(low, high, window, place, own)
"""


@pytest.mark.parametrize("op_by_op", [False, True])
def test_minima_and_maxima_begin_at_limits_C7(op_by_op: bool) -> None:
    module, x = text_module(ENDS, REDUCERS), np.array([[5, 7, 9], [-7, -2, -5]])
    program = compile_module(module, Profile(int64="truncate"), find_target("trn1"), op_by_op=op_by_op)
    counts = Diagnostics()
    found = [b.data.tolist() for b in flat_bits(run_schedule(program, {"x": Bits(x, S64)}, counts))]
    assert found == [[5, -7], [9, -2], [[7, 9], [-2, -2]], [2, 1], [5, -7]]
    assert counts.of("int64_truncated") == {}


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


def test_only_what_rules_demand_is_counted_of_every_run_C7() -> None:
    """The step that counts the truncated meets a NaN too, and a product beside it overflows."""
    body = [
        parameter("x", (3,)),
        inst("y", "convert", (3,), "x", dtype=S64),
        inst("z", "multiply", (3,), "x", "x"),
        inst("r", "tuple", TupleShape((Shape(S64, (3,)), Shape(F32, (3,)))), "y", "z"),
    ]
    program = program_of(module_of(*body))
    x = {"x": Bits(np.array([np.nan, 2**40, 1e30], np.float32), F32)}
    for observe, more in (("off", False), ("counts", True)):
        counts = Diagnostics()
        run_schedule(program, x, counts, observe=observe)
        assert counts.of("int64_truncated") == {"y": 2}
        assert (counts.of("saturated"), counts.of("overflow")) == (
            ({"y": 3}, {"z": 1}) if more else ({}, {})
        )


@pytest.mark.parametrize("opcode", ["scatter", "reduce"])
def test_what_the_core_adds_up_is_truncated_behind_C7(opcode: str) -> None:
    pair = [parameter(n, (), number=k, dtype=S64) for k, n in enumerate("ab")]
    add = Computation("f", (*pair, inst("t", "add", (), "a", "b", dtype=S64)), "t")
    body = [parameter("x", (2,), dtype=S64), parameter("u", (2,), number=1, dtype=S64)]
    if opcode == "reduce":
        body += [
            inst("c", "concatenate", (4,), "x", "u", dtype=S64, dimensions=(0,)),
            inst("z", "constant", (), dtype=S64, literal=Bits(np.array(0), S64)),
            inst("y", "reduce", (), "c", "z", dtype=S64, dimensions=(0,), called=("f",)),
        ]
        expected: Any = -(2**31) + 2
    else:
        where = Bits(np.array([[0], [0]]), S64)
        places = ops.ScatterDimensions((), (0,), (0,), (), (), 1)
        attributes = {"scatter_dimensions": places, "called": ("f",)}
        attributes |= {"indices_are_sorted": False, "unique_indices": False}
        body += [
            inst("i", "constant", (2, 1), dtype=S64, literal=where),
            inst("y", "scatter", (2,), "x", "i", "u", dtype=S64, **attributes),
        ]
        expected = [-(2**31) + 1, 1]
    program = program_of(module_of(*body, others=(add,)))
    assert program.recording().python == ()
    for _ in range(2):
        # What a computation adds, it adds in 32 bits (R2): nothing is changed behind it.
        met = {"y": 1} if opcode == "reduce" else {}
        assert int64_run(program, x=[2**31 - 1, 1], u=[1, 1]) == (expected, met)
        assert int64_run(program.op_by_op, x=[2**31 - 1, 1], u=[1, 1]) == (expected, met)


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
