"""Plans edited by hand: what no plan may ask for (A2: entry types stay, only float values are cast)."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from tests.casting.planning_by_hand import decide, planned
from tests.casting.reading import rounded
from tests.support.graphs import inst, module_of, parameter
from tests.support.parameters import each_of
from tests.support.running import execute

from neuronsim import dtypes, ops
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument
from neuronsim.hlo import proto
from neuronsim.hlo.module import Module

pytestmark = pytest.mark.isa_independent

F32 = dtypes.float32
F32 = dtypes.float32


@each_of("name", ["x", "n", "nn", "out"])  # parameters, a sum of integers, a tuple
def test_plan_casts_float_instructions_only_A2(model: Module, name: str) -> None:
    plan = make_plan(model, neuron_policy("none", "bf16"))
    low = decide(dtypes.bfloat16, accumulate=dtypes.bfloat16)
    with pytest.raises(InvalidArgument, match=rf"\b{name}\b"):
        apply_plan(model, dataclasses.replace(plan, decisions={name: low}))


VECTORS = [parameter("x", (3,)), parameter("y", (3,), 1)]


X = np.array([1.2345678, -0.7654321, 3.1415927], np.float32)
Y = np.array([0.87654321, 1.1111111, -0.33333334], np.float32)
KINDS = (F32, dtypes.tfloat32, dtypes.bfloat16, dtypes.float16)
PAIRS = list(itertools.product(KINDS, KINDS))


@each_of(("operand", "output"), PAIRS)
def test_an_instruction_may_read_one_type_and_give_another_E1(operand: DType, output: DType) -> None:
    product, total = inst("m", "multiply", (3,), "x", "y"), inst("s", "add", (3,), "m", "y")
    result = planned(module_of(*VECTORS, product, total), m=decide(operand, output))
    expected = rounded(rounded(X, operand) * rounded(Y, operand), output) + Y
    got = execute(result, [ops.Bits(X, F32), ops.Bits(Y, F32)])
    np.testing.assert_array_equal(got.data.view(np.uint32), expected.view(np.uint32))


@each_of(("operand", "output"), PAIRS)
def test_movement_may_read_one_type_and_give_another_E1(operand: DType, output: DType) -> None:
    model = module_of(VECTORS[0], inst("r", "reverse", (3,), "x", dimensions=(0,)))
    result = planned(model, r=decide(operand, output))
    expected = rounded(rounded(X[::-1], operand), output)
    np.testing.assert_array_equal(execute(result, [ops.Bits(X, F32)]).data, expected)


@each_of(("operand", "output"), PAIRS)
def test_a_dot_keeps_the_algorithm_that_it_states_A1(operand: DType, output: DType) -> None:
    stated = {"dot_dimensions": ops.DotDimensions((0,), (0,)), "algorithm": "ALG_DOT_F32_F32_F32"}
    model = module_of(*VECTORS, inst("d", "dot", (), "x", "y", **stated))
    result = planned(model, d=decide(operand, output))
    dot = next(i for i in result.entry_computation.instructions if i.opcode == "dot")
    by_name = result.entry_computation.by_name
    assert {n: v for n, v in dot.attributes.items() if n != "frontend_attributes"} == stated
    assert [by_name[n].array.dtype for n in (dot.name, *dot.operands)] == [F32, F32, F32]
    assert result.root.array.dtype is F32


@pytest.mark.parametrize("auto_cast", ["none", "matmult", "all"])
def test_plan_fits_the_module_after_writing_and_reading_it(model: Module, auto_cast: str) -> None:
    plan = make_plan(model, neuron_policy(auto_cast, "bf16"))  # type: ignore[arg-type]
    again = proto.from_bytes(proto.to_bytes(model))
    assert proto.to_bytes(apply_plan(again, plan)) == proto.to_bytes(apply_plan(model, plan))
