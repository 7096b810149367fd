"""Plans edited by hand: what no plan may ask for (A2: entry types stay, only float values are cast)."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from tests.casting.reading import rounded
from tests.support.graphs import module_of
from tests.support.parameters import each_of
from tests.support.running import execute

from neuronsim import dtypes, ops
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument
from neuronsim.hlo import proto
from neuronsim.hlo.module import Instruction, Module, Shape
from neuronsim.hlo.verify import verify

pytestmark = pytest.mark.isa_independent

F32 = dtypes.float32

LOW = Decision(dtypes.bfloat16, dtypes.bfloat16, dtypes.bfloat16, "by hand")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("x", id="entry parameter"),
        pytest.param("n", id="integer parameter"),
        pytest.param("nn", id="integer sum"),
        pytest.param("out", id="tuple"),
    ],
)
def test_plan_casts_float_instructions_only_A2(model: Module, name: str) -> None:
    plan = make_plan(model, neuron_policy("none", "bf16"))
    with pytest.raises(InvalidArgument, match=rf"\b{name}\b"):
        apply_plan(model, dataclasses.replace(plan, decisions={name: LOW}))


def vectors() -> list[Instruction]:
    shape = Shape(F32, (3,))
    return [Instruction(n, "parameter", shape, (), {"number": k}) for k, n in enumerate("xy")]


@pytest.fixture(scope="module")
def steps() -> Module:
    """A product and a sum."""
    shape = Shape(F32, (3,))
    x, y = (Instruction(n, "parameter", shape, (), {"number": k}) for k, n in enumerate("xy"))
    return module_of(
        x,
        y,
        Instruction("m", "multiply", shape, ("x", "y")),
        Instruction("s", "add", shape, ("m", "y")),
    )


X = np.array([1.2345678, -0.7654321, 3.1415927], np.float32)
Y = np.array([0.87654321, 1.1111111, -0.33333334], np.float32)
KINDS = (F32, dtypes.tfloat32, dtypes.bfloat16, dtypes.float16)
PAIRS = list(itertools.product(KINDS, KINDS))


@each_of(("operand", "output"), PAIRS)
def test_an_instruction_may_read_one_type_and_give_another_E1(
    steps: Module, operand: DType, output: DType
) -> None:
    plan = make_plan(steps, neuron_policy("none", "bf16"))
    plan = dataclasses.replace(plan, decisions={"m": Decision(operand, F32, output, "by hand")})
    result = apply_plan(steps, plan)
    verify(result)
    product = rounded(rounded(X, operand) * rounded(Y, operand), output)
    got = execute(result, [ops.Bits(X, F32), ops.Bits(Y, F32)])
    np.testing.assert_array_equal(got.data.view(np.uint32), (product + Y).view(np.uint32))


@each_of(("operand", "output"), PAIRS)
def test_movement_may_read_one_type_and_give_another_E1(operand: DType, output: DType) -> None:
    x, _ = vectors()
    model = module_of(x, Instruction("r", "reverse", x.shape, ("x",), {"dimensions": (0,)}))
    plan = make_plan(model, neuron_policy("none", "bf16"))
    plan = dataclasses.replace(plan, decisions={"r": Decision(operand, F32, output, "by hand")})
    result = apply_plan(model, plan)
    verify(result)
    expected = rounded(rounded(X[::-1], operand), output)
    np.testing.assert_array_equal(execute(result, [ops.Bits(X, F32)]).data, expected)


@each_of(("operand", "output"), PAIRS)
def test_a_dot_keeps_the_algorithm_that_it_states_A1(operand: DType, output: DType) -> None:
    x, y = (
        Instruction(n, "parameter", Shape(F32, (3,)), (), {"number": k}) for k, n in enumerate("xy")
    )
    dimensions = ops.DotDimensions((0,), (0,))
    stated = {"dot_dimensions": dimensions, "algorithm": "ALG_DOT_F32_F32_F32"}
    model = module_of(x, y, Instruction("d", "dot", Shape(F32), ("x", "y"), stated))
    plan = make_plan(model, neuron_policy("none", "bf16"))
    plan = dataclasses.replace(plan, decisions={"d": Decision(operand, F32, output, "by hand")})
    result = apply_plan(model, plan)
    verify(result)
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
