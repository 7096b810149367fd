"""The reasons of a plan are true: they name the policy and the type that decided."""

from __future__ import annotations

import dataclasses

import pytest

import neuronsim
from neuronsim import dtypes
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies import find_policy
from neuronsim.casting.policies.policy import Category, Policy, Rule
from neuronsim.casting.policies.policy_file import parse_policy
from neuronsim.hlo.parse import from_text

pytestmark = pytest.mark.isa_independent

MODEL = "examples/digits/model.hlo.pb"
SMALL = from_text("""HloModule small
ENTRY main {
  x = f32[4,4] parameter(0)
  w = f32[4,4] parameter(1)
  d = f32[4,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT e = f32[4,4] exponential(d)
}
""")


@pytest.mark.parametrize("base", ["matmult/fp16", "all/fp16"])
def test_a_policy_with_another_low_type_says_its_own_name_and_type(base: str) -> None:
    text = f'schema = "neuronsim.policy/1"\nname = "mine"\nbase = "{base}"\nlow = "float(6,9)"'
    plan = neuronsim.plan(MODEL, policy=parse_policy(text, "toml"))
    reasons = {d.reason for d in plan.decisions.values()}
    assert all("mine" in r and "float(6,9)" in r for r in reasons)
    assert not any("fp16" in r or "float16" in r for r in reasons)
    own = neuronsim.plan(MODEL, policy=base)  # the control
    assert all(base in d.reason and "float16" in d.reason for d in own.decisions.values())


def test_a_rule_with_a_type_of_its_own_has_it_in_the_reason() -> None:
    rule = Rule("wide range", low=dtypes.bfloat16, operation=("exponential",))
    policy = dataclasses.replace(find_policy("all/fp16"), rules=(rule,))
    decisions = make_plan(SMALL, policy).decisions
    assert decisions["e"].reason == (
        "A2: all/fp16 rounds operands and result to bfloat16; wide range (it is exponential)"
    )
    assert decisions["d"].reason == "A2: all/fp16 rounds operands and result to float16"


def test_what_a_rule_leaves_in_float32_is_not_said_to_be_rounded() -> None:
    rule = Rule("as it is", low=dtypes.float32, operation=("exponential",))
    policy = dataclasses.replace(find_policy("all/fp16"), rules=(rule,))
    assert make_plan(SMALL, policy).kept["e"] == "as it is (it is exponential)"


@pytest.mark.parametrize(
    ("default", "words"),
    [
        ("always", "mine: it lowers what its lists do not name"),
        ("never", None),
        ("follow", "mine: it follows d"),
    ],
)
def test_what_no_list_names(default: Category, words: str | None) -> None:
    lists: dict[Category, frozenset[str]] = {"always": frozenset({"dot"})}
    policy = Policy("mine", dtypes.bfloat16, lists, default, "all_inputs_low")
    found = make_plan(SMALL, policy).decisions.get("e")
    assert (found and found.reason) == words
