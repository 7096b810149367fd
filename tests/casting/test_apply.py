"""Applied plans: where the converts stand, and that the result is what A1 and A2 say."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tests.casting.reading import by_rows, read_module
from tests.support.graphs import computation, constant, inst, module_of, parameter, reducer

from neuronsim import dtypes, ops
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.flags import CAST_TYPES
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.executor.compile import compile_module
from neuronsim.executor.run import run_schedule
from neuronsim.executor.steps import TupleValue, Value
from neuronsim.hlo.module import Module, Shape, TupleShape
from neuronsim.hlo.verify import verify
from neuronsim.profiles import Profile
from neuronsim.reference.formats import convert
from neuronsim.reference.sums import reduce_float
from neuronsim.targets import find_target

F32, BF16, TF32 = dtypes.float32, dtypes.bfloat16, dtypes.tfloat32
TYPES = pytest.mark.parametrize("cast_type", CAST_TYPES)
SETTINGS = [("none", "bf16"), *itertools.product(("matmult", "all"), CAST_TYPES)]
EVERY_SETTING = pytest.mark.parametrize(("auto_cast", "cast_type"), SETTINGS)
Words = np.ndarray[Any, Any]


def applied(module: Module, auto_cast: str, cast_type: str = "bf16") -> Module:
    plan = make_plan(module, neuron_policy(auto_cast, cast_type))  # type: ignore[arg-type]
    result = apply_plan(module, plan)
    verify(result)
    return result


def execute(module: Module, inputs: Mapping[str, Words], accumulation: str = "off") -> Value:
    profile = Profile(int64="truncate", mixed_precision_accumulation=accumulation)
    program = compile_module(module, profile, find_target("trn1"))
    types = {name: t.dtype for name, t in program.inputs}
    return run_schedule(program, {n: ops.Bits(v, types[n]) for n, v in inputs.items()})


def words_of(value: Value) -> list[list[int]]:
    arrays = value.elements if isinstance(value, TupleValue) else (value,)
    bits = [a for a in arrays if isinstance(a, ops.Bits)]
    return [np.ascontiguousarray(a.data).view(f"u{a.dtype.itemsize}").ravel().tolist() for a in bits]


def inputs() -> dict[str, Words]:
    rng = np.random.default_rng(11)
    x = rng.normal(size=(3, 5)).astype(np.float32)
    x[2] *= 60  # e4m3 overflows in this row, and so does float16, which else rounds as tf32 does
    x[2, 0] = 70_000
    return {"x": x, "n": np.array([3, -70_000, 257], np.int32)}


@EVERY_SETTING
def test_applied_module_computes_A1_A2(model: Module, auto_cast: str, cast_type: str) -> None:
    low, given = CAST_TYPES[cast_type], list(inputs().values())
    expected = read_module(model, given, low, auto_cast, **by_rows(model))
    found = words_of(execute(applied(model, auto_cast, cast_type), inputs()))
    assert found == [np.ascontiguousarray(e).view(f"u{e.itemsize}").ravel().tolist() for e in expected]


# ---- where the converts stand ------------------------------------------------------------------


@EVERY_SETTING
def test_entry_parameters_and_results_keep_their_types_A2(
    model: Module, auto_cast: str, cast_type: str
) -> None:
    result = applied(model, auto_cast, cast_type)
    assert result.parameters == model.parameters
    assert result.root.shape == model.root.shape


def test_none_changes_nothing(model: Module) -> None:
    assert applied(model, "none") == model


@TYPES
def test_matmult_converts_only_around_the_dot_A1(model: Module, cast_type: str) -> None:
    before, after = (m.entry_computation.by_name for m in (model, applied(model, "matmult", cast_type)))
    short = {"bf16": "bf16", "fp16": "f16", "tf32": "tf32", "fp8_e4m3": "f8e4m3"}[cast_type]
    assert set(after) - set(before) == {f"x.to_{short}", f"w.to_{short}"}
    assert after["d"].operands == (f"x.to_{short}", f"w.to_{short}")
    assert after["d"].shape == before["d"].shape
    assert all(after[n] == before[n] for n in before if n != "d")


@EVERY_SETTING
def test_one_convert_for_each_value_and_type(model: Module, auto_cast: str, cast_type: str) -> None:
    result = applied(model, auto_cast, cast_type).entry_computation
    made = [i for i in result.instructions if ".to_" in i.name]
    keys = [(i.operands, i.shape, i.opcode) for i in made]
    assert len(set(keys)) == len(keys)
    assert all(result.users()[i.name] for i in made)


def test_the_shared_convert_is_read_by_all() -> None:
    body = [parameter("x", (3,)), inst("a", "exponential", (3,), "x"), inst("b", "tanh", (3,), "x")]
    result = applied(module_of(*body, inst("c", "add", (3,), "a", "b")), "all").entry_computation
    assert [i.name for i in result.users()["x"]] == ["x.to_bf16"]
    assert [i.name for i in result.users()["x.to_bf16"]] == ["a", "b"]
    # Between lowered instructions no value is widened and narrowed again.
    assert [i.opcode for i in result.instructions].count("convert") == 2


@TYPES
def test_reducers_are_retyped_A2(model: Module, cast_type: str) -> None:
    result, low = applied(model, "all", cast_type), CAST_TYPES[cast_type]
    carrier = F32 if low is TF32 else low  # tfloat32 travels in float32
    reduces = [i for i in result.entry_computation.instructions if i.opcode == "reduce"]
    called = result.by_name[reduces[0].called[0]]
    assert {i.array.dtype for i in called.instructions} == {carrier}
    assert applied(model, "matmult", cast_type).by_name["sum"] == model.by_name["sum"]


def test_tf32_is_reduce_precision_and_the_dot_is_float32_C9(model: Module) -> None:
    for auto_cast in ("matmult", "all"):
        by_name = applied(model, auto_cast, "tf32").entry_computation.by_name
        d = by_name["d" if auto_cast == "matmult" else "d.f32"]
        assert d.opcode == "dot"
        assert d.array.dtype is F32
        for operand in (by_name[o] for o in d.operands):
            assert operand.opcode == "reduce-precision"
            bits = operand.attributes["exponent_bits"], operand.attributes["mantissa_bits"]
            assert bits == (8, 10)
        assert all(s.dtype is not TF32 for i in by_name.values() for s in i.shape.arrays())


@TYPES
def test_integers_and_preds_are_untouched_A2(model: Module, cast_type: str) -> None:
    by_name = applied(model, "all", cast_type).entry_computation.by_name
    for name in ("n", "nn", "hh"):
        assert by_name[name] == model.entry_computation.by_name[name]
    assert by_name["c"].array.dtype is dtypes.boolean
    assert by_name["k"].array.dtype is dtypes.int32


@pytest.mark.parametrize("root", ["parameter", "constant"])
def test_a_root_that_is_an_input_keeps_its_bits_A2(root: str) -> None:
    fine = np.array([1 + 2**-20], np.float32)
    one = parameter("x", (1,)) if root == "parameter" else constant("x", fine)
    module = applied(module_of(one), "all")
    assert words_of(execute(module, {"x": fine} if root == "parameter" else {})) == [[0x3F800008]]


def test_a_lone_result_is_rounded_and_widened_A2() -> None:
    result = applied(module_of(parameter("x", (1,)), inst("y", "exponential", (1,), "x")), "all")
    assert result.root.opcode == "convert"
    assert result.root.array.dtype is F32
    assert words_of(execute(result, {"x": np.ones(1, np.float32)})) == [[0x402E0000]]  # 2.71875


def test_calls_are_inlined_and_cast() -> None:
    inner = computation("f", parameter("a", (2,)), inst("e", "tanh", (2,), "a"))
    call = inst("f1", "call", (2,), "x", called=("f",))
    result = applied(module_of(parameter("x", (2,)), call, others=(inner,)), "all")
    assert result.entry_computation.by_name["f1.e"].array.dtype is BF16


def test_a_tuple_has_its_elements_types() -> None:
    body = [
        parameter("x", (2,)),
        inst("a", "tanh", (2,), "x"),
        inst("p", "tuple", TupleShape((Shape(F32, (2,)),)), "a"),
        inst("g", "get-tuple-element", (2,), "p", tuple_index=0),
        inst("b", "tanh", (2,), "g"),
    ]
    by_name = applied(module_of(*body), "all").entry_computation.by_name
    assert by_name["p"].operands == ("a",)
    assert by_name["p"].shape == TupleShape((Shape(BF16, (2,)),))
    assert by_name["b"].operands == ("g",)


@pytest.mark.parametrize(("cast_type", "taken"), [("bf16", "x.to_bf16"), ("tf32", "y.f32")])
def test_a_new_name_does_not_replace_an_instruction(cast_type: str, taken: str) -> None:
    body = [parameter("x", (1,)), inst(taken, "negate", (1,), "x"), inst("y", "add", (1,), "x", taken)]
    result = applied(module_of(*body), "all", cast_type)
    assert words_of(execute(result, {"x": np.ones(1, np.float32)})) == [[0]]


@TYPES
@pytest.mark.parametrize("auto_cast", ["matmult", "all"])
def test_a_planned_module_can_be_planned_again(model: Module, auto_cast: str, cast_type: str) -> None:
    # A saved, planned module is a model like any other; casting what is cast changes no bit.
    once = applied(model, auto_cast, cast_type)
    twice = applied(once, auto_cast, cast_type)
    assert words_of(execute(twice, inputs())) == words_of(execute(once, inputs()))


def test_a_new_reducer_does_not_replace_a_computation() -> None:
    body = [
        parameter("x", (2,)),
        parameter("h", (2,), 1, BF16),
        constant("zero", 0.0),
        constant("low", 0.0, BF16),
        inst("a", "reduce", (), "x", "zero", dimensions=(0,), called=("f",)),
        inst("b", "reduce", BF16, "h", "low", dimensions=(0,), called=("f.bf16",)),
        inst("o", "tuple", TupleShape((Shape(F32), Shape(BF16))), "a", "b"),
    ]
    others = (reducer("f"), reducer("f.bf16", "maximum", BF16))
    result = applied(module_of(*body, others=others), "all")
    assert len({c.name for c in result.computations}) == len(result.computations)
    given = {"x": np.array([1, 2], np.float32), "h": np.array([0x3F80, 0x4000], np.uint16)}
    assert words_of(execute(result, given)) == [[0x40400000], [0x4000]]


# ---- R3 ----------------------------------------------------------------------------------------


def long_reduce(model: Module) -> Module:
    r = inst("r", "reduce", (), "x", "zero", dimensions=(0,), called=("sum",))
    body = (parameter("x", (1100,)), constant("zero", 0.0), r)
    return module_of(*body, others=(model.by_name["sum"],))


@pytest.mark.parametrize("accumulation", ["on", "off"])
@TYPES
def test_long_reduce_R3(model: Module, cast_type: str, accumulation: str) -> None:
    low = CAST_TYPES[cast_type].name
    # Multiples of 2^-3 near 1: exact in every type, so only the sums round.
    x = (1 + np.random.default_rng(2).integers(0, 8, 1100) / 8).astype(np.float32)
    if cast_type == "fp8_e4m3":
        x /= 64
    tiles = accumulation == "off" and cast_type != "tf32"
    narrow = [convert("float32", low, v) for v in x.view(np.uint32).tolist()]
    expected = convert(low, "float32", reduce_float("add", low, narrow, 0, round_tiles=tiles))
    result = execute(applied(long_reduce(model), "all", cast_type), {"x": x}, accumulation)
    assert words_of(result) == [[expected]]


def test_mixed_precision_accumulation_changes_a_long_bf16_sum_R3(model: Module) -> None:
    module = applied(long_reduce(model), "all")
    x = np.ones(1100, np.float32)
    x[0] = x[512] = 2  # two tiles of 513, which bfloat16 rounds to 512, and one of 75
    x[1099] = 0
    values = [execute(module, {"x": x}, a) for a in ("on", "off")]
    assert [float(v.data) for v in values if isinstance(v, ops.Bits)] == [1104.0, 1096.0]


def test_accumulation_changes_nothing_within_a_tile_or_in_float32_R3(model: Module) -> None:
    x = np.random.default_rng(3).normal(size=1100).astype(np.float32)
    wide = applied(long_reduce(model), "matmult")
    assert words_of(execute(wide, {"x": x}, "on")) == words_of(execute(wide, {"x": x}, "off"))
    body = long_reduce(model).entry_computation.instructions
    short = applied(module_of(parameter("x", (512,)), *body[1:], others=(model.by_name["sum"],)), "all")
    given = {"x": x[:512]}
    assert words_of(execute(short, given, "on")) == words_of(execute(short, given, "off"))
