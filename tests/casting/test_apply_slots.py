"""Decisions by operand and result: what stays float32, relayouts, and results in planned types."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.casting.border_modules import tuple_of
from tests.casting.planning_by_hand import decide, plan_of, planned, stating
from tests.casting.reading import rounded
from tests.support.graphs import constant, inst, module_of, parameter
from tests.support.parameters import each_of
from tests.support.running import execute

from neuronsim import dtypes, ops
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.conversions import carrier
from neuronsim.casting.flags import CAST_TYPES
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.dtypes import DType, float_format
from neuronsim.hlo import proto
from neuronsim.hlo.module import Module, Shape, TupleShape
from neuronsim.hlo.opcodes import row, row_attributes
from neuronsim.hlo.verify import verify
from neuronsim.profiles import Profile

pytestmark = pytest.mark.isa_independent

F32, F16, BF16, TF32, S32 = (
    dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.tfloat32, dtypes.int32,
)  # fmt: skip
LOWS = [BF16, F16, TF32, dtypes.float8_e4m3, float_format(6, 9)]
Array = npt.NDArray[Any]
LOW = pytest.mark.parametrize("low", LOWS, ids=lambda t: t.name)


def run(module: Module, *inputs: Array) -> Any:
    types = [p.array.dtype for p in module.parameters]
    bits = [ops.Bits(x.view(t.storage), t) for x, t in zip(inputs, types, strict=True)]
    return execute(module, bits)


def same(got: ops.Bits, expected: Array) -> None:
    assert got.dtype is F32
    np.testing.assert_array_equal(got.data.view(np.uint32), expected.view(np.uint32))


# ---- what stays float32 ------------------------------------------------------------------------


@LOW
@pytest.mark.parametrize("given", [F32, BF16, TF32], ids=lambda t: t.name)
@pytest.mark.parametrize("kept", [(0,), (1,), (2,), (0, 2), (0, 1, 2)], ids=str)
def test_an_operand_stays_float32(low: DType, given: DType, kept: tuple[int, ...]) -> None:
    shape = (64,)
    body = [parameter(n, shape, number=k) for k, n in enumerate("xyz")]
    model = module_of(*body, inst("c", "clamp", shape, "x", "y", "z"))
    rng = np.random.default_rng(1)
    values = [rng.uniform(1, 2, shape).astype(np.float32) for _ in range(3)]
    read = [v if n in kept else rounded(v, low) for n, v in enumerate(values)]
    expected = rounded(np.minimum(np.maximum(read[0], read[1]), read[2]), given)
    same(run(planned(model, c=decide(low, given, float32_operands=kept)), *values), expected)


@LOW
@pytest.mark.parametrize("kept", [0, 1])
def test_a_product_may_keep_one_operand(low: DType, kept: int) -> None:
    """One product each, so that a single rounding is what is seen."""
    outer = ops.DotDimensions((), ())
    model = module_of(
        parameter("x", (4,)),
        parameter("y", (3,), number=1),
        inst("d", "dot", (4, 3), "x", "y", dot_dimensions=outer),
    )
    rng = np.random.default_rng(2)
    values = [rng.uniform(1, 2, s).astype(np.float32) for s in (4, 3)]
    read = [v if n == kept else rounded(v, low) for n, v in enumerate(values)]
    result = planned(model, d=decide(low, F32, float32_operands=(kept,)))
    same(run(result, *values), np.outer(*read))
    dot = next(i for i in result.entry_computation.instructions if i.opcode == "dot")
    types = {result.entry_computation.by_name[o].array.dtype for o in dot.operands}
    assert types == {F32}


@LOW
@pytest.mark.parametrize(
    ("operands", "results"), [((1, 2), (1, 2)), ((), (1, 2)), ((1, 2), ()), ((0,), (0,)), ((2,), (1,))]
)
def test_a_batch_norms_statistics_stay_float32(
    low: DType, operands: tuple[int, ...], results: tuple[int, ...]
) -> None:
    shapes = Shape(F32, (6, 4, 3)), Shape(F32, (3,)), Shape(F32, (3,))
    parameters = [parameter(f"p{n}", s, n) for n, s in enumerate(shapes)]
    attributes = {"epsilon": float(np.float32(1e-3)), "feature_index": 2}
    norm = inst("norm", "batch-norm-training", TupleShape(shapes), "p0", "p1", "p2", **attributes)
    model = module_of(*parameters, norm)
    rng = np.random.default_rng(7)
    values = [rng.uniform(0.5, 2, p.array.dims).astype(np.float32) for p in model.parameters]
    read = [ops.Bits(v if n in operands else rounded(v, low), F32) for n, v in enumerate(values)]
    setting = ops.Setting(Profile())
    found = ops.evaluate(row(norm), read, row_attributes(model, norm), setting, norm.result)
    expected = [b.data if n in results else rounded(b.data, low) for n, b in enumerate(found)]
    d = decide(low, float32_operands=operands, float32_results=results)
    for got, wanted in zip(run(planned(model, norm=d), *values), expected, strict=True):
        same(got, wanted)
    # With outputs in planned types the kept ones are float32.
    own = apply_plan(model, plan_of(model, {"norm": d}, keep_output_type=False))
    types = [s.dtype for s in own.root.shape.arrays()]
    assert types == [F32 if n in results else carrier(low) for n in range(3)]


def test_a_sole_result_that_stays_float32_is_not_rounded() -> None:
    model = module_of(parameter("x", (3,)), inst("y", "multiply", (3,), "x", "x"))
    x = np.array([1.1, 1.2, 1.3], np.float32)
    result = planned(model, y=decide(BF16, float32_results=(0,)))
    same(run(result, x), rounded(x, BF16) ** 2)
    assert stating(result, "reason") == {"y": "why"}


# ---- relayouts M8 ------------------------------------------------------------------------------


@each_of("own", [F32, BF16, F16], ids=lambda t: t.name)
@each_of("relayout", [BF16, F16], ids=lambda t: t.name)
@each_of("saturate", [True, False])
def test_a_relayout_of_any_float_M8(own: DType, relayout: DType, saturate: bool) -> None:
    turn = inst("t", "transpose", (3, 2), "x", dimensions=(1, 0), dtype=own)
    model = module_of(parameter("x", (2, 3), dtype=own), turn)
    x = np.array([[1.0009765625, -0.0, 3e38], [-2.7, 65504, 1e-3]])
    with np.errstate(over="ignore"):
        x = x.astype(np.float32).astype(own.numpy)
    decision = decide(F32, own, relayout=relayout, saturate_infinity=saturate)
    result = planned(model, t=decision)
    assert stating(result, "relayout") == {"t": relayout.name}
    assert stating(result, "saturate_infinity") == ({"t": "true"} if saturate else {})
    value = rounded(x.astype(np.float32), relayout)
    if saturate:
        value = np.clip(value, -relayout.max, relayout.max)
    elif np.isinf(value).any():
        # M8: an Inf times the identity's zeros is NaN in the others of its column.
        assert np.isnan(run(result, x).data.view(own.numpy).astype(np.float32)).any()
        return
    with np.errstate(over="ignore"):
        expected = (value.T + np.float32(0)).astype(own.numpy)
    np.testing.assert_array_equal(run(result, x).data, expected.view(own.storage))


@LOW
def test_a_relayout_of_a_low_value_runs_in_its_own_type_M8(low: DType) -> None:
    model = module_of(parameter("x", (2, 3)), inst("t", "transpose", (3, 2), "x", dimensions=(1, 0)))
    x = np.random.default_rng(5).uniform(0.5, 2, (2, 3)).astype(np.float32)
    result = planned(model, t=decide(low, relayout=F16))
    same(run(result, x), rounded(rounded(rounded(x, low), F16), low).T)
    (name,) = stating(result, "relayout")
    assert result.entry_computation.by_name[name].opcode == "transpose"


def test_a_relayouts_largest_value_is_rounded_to_an_open_format_M8_C9() -> None:
    """1e10 is Inf in float(6,9), which the relayout makes bfloat16's largest value: Inf again there."""
    model = module_of(parameter("x", (2, 1)), inst("t", "transpose", (1, 2), "x", dimensions=(1, 0)))
    d = decide(float_format(6, 9), relayout=BF16, saturate_infinity=True)
    x = np.array([[1e10], [-1.5]], np.float32)
    same(run(planned(model, t=d), x), np.array([[np.inf, -1.5]], np.float32))
    alone = dataclasses.replace(d, operand=F32, output=F32)
    infinite = np.array([[np.inf], [-1.5]], np.float32)
    same(run(planned(model, t=alone), infinite), np.array([[BF16.max, -1.5]], np.float32))


# ---- results in planned types ------------------------------------------------------------------


@pytest.mark.parametrize("cast_type", CAST_TYPES)
@pytest.mark.parametrize("auto_cast", ["matmult", "all"])
def test_results_have_the_planned_types_or_the_models(
    model: Module, auto_cast: str, cast_type: str
) -> None:
    plan = make_plan(model, neuron_policy(auto_cast, cast_type))  # type: ignore[arg-type]
    kept = apply_plan(model, plan)
    own = apply_plan(model, dataclasses.replace(plan, keep_output_type=False))
    verify(own)
    assert kept.root.shape == model.root.shape
    assert own.parameters == model.parameters
    types = []
    for name, s in zip(model.root.operands, model.root.shape.arrays(), strict=True):
        decided = name in plan.decisions and s.dtype is F32
        types.append(carrier(plan.decisions[name].output) if decided else s.dtype)
    assert [s.dtype for s in own.root.shape.arrays()] == types
    assert [s.dims for s in own.root.shape.arrays()] == [s.dims for s in model.root.shape.arrays()]


def test_layouts_and_donated_inputs_follow_the_results_types() -> None:
    """The entry's layout keeps its dimension orders; an input whose result has another type now is no
    place for it.
    """
    x, w = parameter("x", (2, 3)), parameter("w", (2, 3), number=1)
    a, b = inst("a", "negate", (2, 3), "x"), inst("b", "negate", (2, 3), "w")
    inner = tuple_of("i", b)
    model = module_of(x, w, a, b, inner, tuple_of("out", a, inner))
    turned = Shape(F32, (2, 3), (0, 1))
    layout = (x.shape, turned), TupleShape((turned, TupleShape((turned,))))
    aliases = (((0,), 0, (), "MAY_ALIAS"), ((1, 0), 1, (), "MUST_ALIAS"))
    model = dataclasses.replace(model, entry_layout=layout, input_output_alias=aliases)
    own = apply_plan(model, plan_of(model, {"a": decide(BF16)}, keep_output_type=False))
    verify(own)
    low = dataclasses.replace(turned, dtype=BF16)
    assert own.program_shape == ((x.shape, turned), TupleShape((low, TupleShape((turned,)))))
    assert own.input_output_alias == (aliases[1],)
    assert proto.from_bytes(proto.to_bytes(own)).program_shape == own.program_shape
    kept = apply_plan(model, plan_of(model, {"a": decide(BF16)}))
    assert (kept.program_shape, kept.input_output_alias) == (model.program_shape, aliases)


@pytest.mark.parametrize("low", [BF16, TF32], ids=lambda t: t.name)
def test_a_lone_result_is_in_its_planned_type(low: DType) -> None:
    model = module_of(parameter("x", (3,)), inst("y", "multiply", (3,), "x", "x"))
    own = apply_plan(model, plan_of(model, {"y": decide(low)}, keep_output_type=False))
    assert own.root.name == "y"
    assert own.root.array.dtype is carrier(low)
    x = np.array([1.1, 1.2, 1.3], np.float32)
    got = run(own, x)
    expected = rounded(rounded(x, low) ** 2, low)
    np.testing.assert_array_equal(got.data.view(got.dtype.numpy).astype(np.float32), expected)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("name", ["x", "k"])
def test_a_result_that_is_given_keeps_its_type_A2(name: str, keep: bool) -> None:
    fine = ops.Bits(np.array([1 + 2**-20] * 3, np.float32), F32)
    x, k, y = parameter("x", (3,)), constant("k", fine.data), inst("y", "add", (3,), "x", "k")
    model = module_of(x, k, y, tuple_of("out", x if name == "x" else k, y))
    decisions = dict.fromkeys(("k", "y"), decide(BF16))
    result = apply_plan(model, plan_of(model, decisions, keep_output_type=keep))
    verify(result)
    types = [s.dtype for s in result.root.shape.arrays()]
    assert types == [F32, F32 if keep else BF16]
    got = run(result, fine.data)
    assert got[0].data.tobytes() == fine.data.tobytes()


def test_every_subset_of_slots_is_what_it_says() -> None:
    """Both operands and the result of a sum, low or not, by brute force."""
    model = module_of(
        parameter("x", (50,)), parameter("y", (50,), number=1), inst("s", "add", (50,), "x", "y")
    )
    rng = np.random.default_rng(3)
    values = [rng.normal(size=50).astype(np.float32) for _ in range(2)]
    seen = set()
    for operands, result in itertools.product([(), (0,), (1,), (0, 1)], [(), (0,)]):
        read = [v if n in operands else rounded(v, BF16) for n, v in enumerate(values)]
        expected = read[0] + read[1] if result else rounded(read[0] + read[1], BF16)
        d = decide(BF16, float32_operands=operands, float32_results=result)
        same(run(planned(model, s=d), *values), expected)
        seen.add(expected.tobytes())
    assert len(seen) == 8
