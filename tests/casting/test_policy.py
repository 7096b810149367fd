"""Policies: which cast classes each setting lowers, and to what (A1, A2)."""

from __future__ import annotations

import pytest

from neuronsim import dtypes
from neuronsim.casting.flags import CAST_TYPES
from neuronsim.casting.policy import Lowering, Policy, neuron_policy
from neuronsim.errors import InvalidFlag

F32 = dtypes.float32
TYPES = pytest.mark.parametrize("cast_type", CAST_TYPES)


@TYPES
def test_none_lowers_nothing(cast_type: str) -> None:
    assert neuron_policy("none", cast_type) == Policy("none")
    assert neuron_policy("none", cast_type, "observed") == Policy("none")


@TYPES
def test_matmult_lowers_dots_and_keeps_float32_results_A1(cast_type: str) -> None:
    policy = neuron_policy("matmult", cast_type)
    assert policy.name == f"matmult/{cast_type}"
    assert set(policy.low) == {"matmult"}
    low = policy.low["matmult"]
    assert (low.operand, low.accumulate, low.output) == (CAST_TYPES[cast_type], F32, F32)
    assert low.reason.startswith("A1")


@TYPES
def test_all_lowers_every_engine_A2(cast_type: str) -> None:
    policy, t = neuron_policy("all", cast_type), CAST_TYPES[cast_type]
    assert set(policy.low) == {"matmult", "compute", "movement"}
    for name in ("matmult", "compute"):
        low = policy.low[name]
        assert (low.operand, low.accumulate, low.output) == (t, F32, t)
    moved = policy.low["movement"]
    assert moved.operand is moved.output is t
    assert all(low.reason.startswith("A2") for low in policy.low.values())


@TYPES
def test_observed_all_acts_as_matmult_A2(cast_type: str) -> None:
    def types(low: Lowering) -> tuple[dtypes.DType, ...]:
        return low.operand, low.accumulate, low.output

    observed = neuron_policy("all", cast_type, "observed").low
    matmult = neuron_policy("matmult", cast_type).low
    assert {k: types(v) for k, v in observed.items()} == {k: types(v) for k, v in matmult.items()}


def test_observed_changes_only_all() -> None:
    assert neuron_policy("matmult", "bf16", "observed") == neuron_policy("matmult", "bf16")


@pytest.mark.parametrize("auto_cast", ["none", "matmult", "all"])
def test_unknown_type_lists_the_known_ones(auto_cast: str) -> None:
    with pytest.raises(InvalidFlag, match="bf16, fp16, tf32, fp8_e4m3, not 'fp8'"):
        neuron_policy(auto_cast, "fp8")  # type: ignore[arg-type]
