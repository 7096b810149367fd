"""Policies: which cast classes each setting lowers, and to what (A1, A2)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from neuronsim import dtypes
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.flags import CAST_TYPES, CastSettings
from neuronsim.casting.plans.plan import Plan
from neuronsim.casting.policies.calibration import Calibration
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.casting.policies.policy import Policy, Rule
from neuronsim.errors import InvalidArgument, InvalidFlag
from neuronsim.targets import Release, Target, find_release, find_target

pytestmark = pytest.mark.isa_independent

F32 = dtypes.float32
TYPES = pytest.mark.parametrize("cast_type", CAST_TYPES)


@TYPES
def test_none_lowers_nothing(cast_type: str) -> None:
    assert neuron_policy("none", cast_type) == Policy("none")
    assert neuron_policy("none", cast_type, "observed") == Policy("none")


@TYPES
def test_matmult_lowers_products_and_keeps_float32_results_A1(cast_type: str) -> None:
    policy = neuron_policy("matmult", cast_type)
    assert policy.name == f"matmult/{cast_type}"
    assert policy.lists == {"always": {"matmult"}}
    assert (policy.low, policy.accumulate, policy.product_output) == (CAST_TYPES[cast_type], F32, F32)
    assert policy.reasons["matmult"].startswith("A1")


@TYPES
def test_all_lowers_every_engine_A2(cast_type: str) -> None:
    policy = neuron_policy("all", cast_type)
    assert policy.lists == {"always": {"matmult", "compute", "movement", "constant", "while"}}
    assert (policy.low, policy.accumulate, policy.product_output) == (CAST_TYPES[cast_type], F32, None)
    assert all(reason.startswith("A2") for reason in policy.reasons.values())


@TYPES
def test_observed_all_acts_as_matmult_A2(cast_type: str) -> None:
    observed, matmult = neuron_policy("all", cast_type, "observed"), neuron_policy("matmult", cast_type)
    assert dataclasses.replace(observed, name="", reasons={}) == dataclasses.replace(
        matmult, name="", reasons={}
    )


def test_observed_changes_only_all() -> None:
    assert neuron_policy("matmult", "bf16", "observed") == neuron_policy("matmult", "bf16")


@pytest.mark.parametrize("auto_cast", ["none", "matmult", "all"])
def test_unknown_type_lists_the_known_ones(auto_cast: str) -> None:
    with pytest.raises(InvalidFlag, match="bf16, fp16, tf32, fp8_e4m3, not 'fp8'"):
        neuron_policy(auto_cast, "fp8")  # type: ignore[arg-type]


def test_lists_stand_for_tuples_and_sets() -> None:
    rule = Rule("b", name=["a", "b"])  # type: ignore[arg-type]
    policy = Policy("p", lists={"always": ["dot"]}, rules=[rule])  # type: ignore[dict-item,arg-type]
    assert (rule.name, policy.lists, policy.rules) == (("a", "b"), {"always": {"dot"}}, (rule,))
    assert hash(rule) == hash(Rule("b", name=("a", "b")))


@pytest.mark.parametrize(
    "kind", [Rule, Policy, Decision, Plan, Calibration, Target, Release, CastSettings], ids=str
)
def test_every_field_of_a_record_is_checked(kind: type) -> None:
    """An object of no type that any field has is refused in each of them."""
    usual: dict[type, Any] = {
        Rule: Rule("b"),
        Policy: Policy("p"),
        Decision: Decision(F32, F32, F32, "r"),
        Plan: Plan("p", "m", "f", {}),
        Calibration: Calibration("m", "f"),
        Target: find_target("trn1"),
        Release: find_release("2.26"),
        CastSettings: CastSettings("none", "bf16", True),
    }
    for f in dataclasses.fields(kind):
        with pytest.raises(InvalidArgument, match=f.name):
            dataclasses.replace(usual[kind], **{f.name: object()})
