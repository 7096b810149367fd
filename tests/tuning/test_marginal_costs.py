"""What a single instruction costs in each type, with the casts at its borders."""

from __future__ import annotations

import dataclasses

import pytest
from tests.tuning.counted_loop import FIVE_TANH

from neuronsim import dtypes, reports
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.hlo.constant_arrays import weight_bytes
from neuronsim.hlo.module import Module
from neuronsim.hlo.parse import from_text
from neuronsim.targets import TARGETS
from neuronsim.tuning.cost import estimate
from neuronsim.tuning.marginal_costs import marginal_costs

pytestmark = pytest.mark.isa_independent

TRN1 = TARGETS["trn1"]
TENSOR, VECTOR, SCALAR = 2.8e9, 1.12e9, 1.4e9
F32, BF16, F16, TF32 = dtypes.float32, dtypes.bfloat16, dtypes.float16, dtypes.tfloat32

TEXT = """HloModule chain
ENTRY main {
  x = f32[1024,128] parameter(0)
  w = f32[128,512] constant({...})
  t = f32[1024,128] tanh(x)
  d = f32[1024,512] dot(t, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[1024,512] exponential(d)
  ROOT a = f32[1024,512] add(e, e)
}"""


@pytest.fixture(scope="module")
def module() -> Module:
    zeros = ", ".join(["{" + ", ".join(["0.5"] * 512) + "}"] * 128)
    return from_text(TEXT.replace("{...}", f"{{{zeros}}}"))


def test_a_product_costs_a_pass_in_narrow_types_and_four_in_float32(module: Module) -> None:
    d = marginal_costs(module, TRN1)["d"]
    # 1024 x 512 in tiles of 128 x 512: 8 of 512 cycles.
    assert d[F32].own == pytest.approx((100 + 4 * 8 * 512) / TENSOR)
    for narrow in (BF16, F16, TF32):
        assert d[narrow].own == pytest.approx((100 + 8 * 512) / TENSOR)
        assert d[narrow].casts == 0.0  # tanh stores its result for the product alone


def test_an_elementwise_instruction_has_its_fast_mode_in_bfloat16_alone(module: Module) -> None:
    a = marginal_costs(module, TRN1)["a"]
    n = 1024 * 512 / 128
    assert a[F32].own == a[F16].own == a[TF32].own == pytest.approx((100 + 2 * n) / VECTOR)
    assert a[BF16].own == pytest.approx((100 + n) / VECTOR)


def test_an_operand_that_others_read_takes_a_copy_at_the_border() -> None:
    module = from_text("""HloModule shared
ENTRY main {
  x = f32[128,1024] parameter(0)
  t = f32[128,1024] tanh(x)
  ROOT a = f32[128,1024] add(t, x)
}""")
    t = marginal_costs(module, TRN1)["t"]
    assert t[BF16].casts == pytest.approx((100 + 1024) / VECTOR)
    assert t[BF16].alone == t[BF16].own + t[BF16].casts > t[F32].alone


@pytest.mark.parametrize("name", ["t", "d", "e", "a"])
@pytest.mark.parametrize("dtype", [BF16, F16])
def test_what_one_costs_alone_is_the_estimate_of_a_plan_that_lowers_it_alone(
    module: Module, name: str, dtype: dtypes.DType
) -> None:
    cast_type = {BF16: "bf16", F16: "fp16"}[dtype]
    full = make_plan(module, neuron_policy("all", cast_type))  # type: ignore[arg-type]
    one = dataclasses.replace(full, decisions={name: full.decisions[name]})
    none = reports.cost(module, auto_cast="none").estimate
    planned = one.apply(module)
    found = estimate(planned, weight_bytes(planned), TRN1)
    costs = marginal_costs(module, TRN1)[name]
    engines = (sum(e.by_engine.values()) - e.by_engine.get("dma", 0.0) for e in (found, none))
    lowered, wide = engines
    assert lowered - wide == pytest.approx(costs[dtype].alone - costs[F32].alone, abs=2e-9)


def test_the_costs_of_a_loops_instructions_are_those_of_all_trips() -> None:
    module = from_text(FIVE_TANH)
    assert marginal_costs(module, TRN1)["y"][F32].own == pytest.approx(5 * 1100 / SCALAR)
