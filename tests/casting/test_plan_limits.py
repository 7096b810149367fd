"""Plans edited by hand: what no plan may ask for (A2: entry types stay, only float values are cast)."""

from __future__ import annotations

import dataclasses

import pytest

from neuronsim import dtypes
from neuronsim.casting.apply import apply_plan
from neuronsim.casting.plan import Decision, make_plan
from neuronsim.casting.policy import neuron_policy
from neuronsim.errors import InvalidArgument
from neuronsim.hlo import proto
from neuronsim.hlo.module import Module

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


@pytest.mark.parametrize("auto_cast", ["none", "matmult", "all"])
def test_plan_fits_the_module_after_writing_and_reading_it(model: Module, auto_cast: str) -> None:
    plan = make_plan(model, neuron_policy(auto_cast, "bf16"))  # type: ignore[arg-type]
    again = proto.from_bytes(proto.to_bytes(model))
    assert proto.to_bytes(apply_plan(again, plan)) == proto.to_bytes(apply_plan(model, plan))
