"""The reasons of a plan are true: they name the policy and the type that decided."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter

import pytest
from tests.casting.small_graphs import graph
from tests.support.parameters import each_of

import neuronsim
from neuronsim import dtypes
from neuronsim.casting.decisions.reasons import Reason, told
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies import POLICIES, find_policy, with_rules
from neuronsim.casting.policies.policy import Category, Policy, Propagate, Rule
from neuronsim.casting.policies.policy_file import parse_policy
from neuronsim.hlo import proto
from neuronsim.hlo.module import graph_computations
from neuronsim.hlo.opcodes import row
from neuronsim.hlo.parse import from_text

pytestmark = pytest.mark.isa_independent

MODEL = "examples/digits/model.hlo.pb"
SMALL = graph("x = parameter", "w = parameter", "d = dot x w", "e = exponential d")


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


MIXED = from_text("""HloModule mixed
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
body { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  q = f32[4] multiply(v, v)
  ROOT o = (s32[], f32[4]) tuple(j, q) }
condition { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT less = pred[] compare(i, n), direction=LT }
ENTRY main {
  x = f32[4,4] parameter(0)
  h = bf16[4,4] parameter(1)
  k = s32[4] parameter(2)
  d = f32[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  m = f32[4,4] dot(d, h), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  p = f32[4,4] dot(h, h), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  w = bf16[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[] constant(0)
  r = f32[4] reduce(m, z), dimensions={1}, to_apply=add
  f = f32[4] convert(k)
  t = f32[4] iota(), iota_dimension=0
  c = pred[4] compare(r, f), direction=LT
  e = f32[4] select(c, r, t)
  g = s32[4] convert(e)
  y = f32[4,4] transpose(p), dimensions={1,0}
  ten = s32[] constant(0)
  start = (s32[], f32[4]) tuple(ten, e)
  loop = (s32[], f32[4]) while(start), condition=condition, body=body
  after = f32[4] get-tuple-element(loop), index=1
  ROOT out = (f32[4,4], bf16[4,4], f32[4], s32[4]) tuple(y, w, after, g)
}
""")


def test_what_neuron_policies_say_is_rounded_is_what_a_plan_rounds() -> None:
    """The words of each reason against the model's own types and the decision's."""
    computations = graph_computations(MIXED)
    own = {i.name: (c, i) for c in computations for i in c.instructions}
    said = Counter[str]()
    for auto_cast, cast_type in itertools.product(("matmult", "all"), ("bf16", "fp16", "tf32")):
        plan = neuronsim.plan(MIXED, auto_cast=auto_cast, auto_cast_type=cast_type)
        for name, d in plan.decisions.items():
            c, i = own[name]
            reads = any(
                s.dtype is dtypes.float32 for o in i.operands for s in c.by_name[o].shape.arrays()
            )
            gives = any(s.dtype is dtypes.float32 for s in i.shape.arrays()) and d.output is d.operand
            found = re.search(
                r" rounds (?:float32 )?([a-z ]+?)(?: of the tensor engine)? to ", d.reason
            )
            if found is None:
                given = i.opcode in ("constant", "while")
                assert given or row(i).cast == "movement", d.reason
                continue
            assert found[1] == " and ".join(["operands"] * reads + ["result"] * gives), name
            said[found[1]] += 1
        for name, reason in plan.kept.items():
            _, i = own[name]
            assert i.opcode == "while" if "types of HLO" in reason else i.opcode == "dot", reason
            said[reason.partition(", but ")[2]] += 1
    assert set(said) == {
        "operands and result",
        "operands",
        "result",
        "it reads no float32, and its result keeps its type",
        "a loop carries types of HLO, and tfloat32 is none",
    }


@pytest.mark.parametrize("policy", [p for p in POLICIES if "bfloat16" in p and "modelopt" not in p])
def test_what_policies_say_of_neighbours_is_so(policy: str) -> None:
    """Each claim of a reason about other instructions, against the decisions of these."""
    checked = Counter[str]()
    for path in (MODEL, "tests/data/networks/unet.hlo.pb"):
        module = proto.read(path)
        plan = make_plan(module, dataclasses.replace(find_policy(policy), unlisted="ignore"))
        low = {n for n, d in plan.decisions.items() if d.output is dtypes.bfloat16}
        for name, d in plan.decisions.items():
            for what, other in re.findall(
                r"it (follows|is read by|is read only by) ([\w.-]+)", d.reason
            ):
                assert other in (low if what == "follows" else plan.decisions), (name, d.reason)
                checked[what] += 1
            for ends in re.findall(r"it is between ([\w.-]+) and ([\w.-]+)", d.reason):
                assert {*ends} <= plan.decisions.keys()
                assert all("as always" in plan.decisions[n].reason for n in ends)
                checked["between"] += 1
        entry = module.entry_computation
        for name, reason in plan.kept.items():
            assert "has no form" not in reason
            operands = {*entry.by_name[name].operands} if name in entry.by_name else set()
            if "none of the inputs that decide" in reason:
                assert not operands & low, (name, reason)
                checked["none"] += 1
            elif "not all of the inputs that decide" in reason:
                assert operands & low, (name, reason)
                assert not operands <= low, (name, reason)
                checked["some"] += 1
            else:
                assert ("as never" in reason) or "and no" in reason, reason
    assert checked or policy in (
        "tvm-rfc/bfloat16",
        "neural-compressor-modules/bfloat16",
    )  # lists alone


def test_a_policy_without_a_low_type_says_so() -> None:
    plan = make_plan(SMALL, Policy("mine", lists={"always": frozenset({"dot"})}))
    assert plan.kept == {"d": "mine: lists dot as always, but no lower type is given"}


@pytest.mark.parametrize(
    ("propagate", "words"),
    [
        ("none", "and mine spreads no types"),
        ("all_inputs_low", "and none of the inputs that decide its type is given as bfloat16"),
        ("allow_paths", "and no path that it could join lies between what is low"),
        ("depth_first", "and mine lowers what it lists as always alone"),
    ],
)
def test_why_what_could_follow_is_kept(propagate: Propagate, words: str) -> None:
    """Of a value that goes from no product to another, and after a product in float32."""
    lists: dict[Category, frozenset[str]] = {
        "always": frozenset({"tanh"}),
        "follow": frozenset({"exponential"}),
    }
    plan = make_plan(SMALL, Policy("mine", dtypes.bfloat16, lists, "never", propagate))
    assert plan.kept == {"e": f"mine: lists exponential as follow, {words}"}


@each_of("name", [n for n in POLICIES if not n.startswith("modelopt/")])
def test_a_reason_read_from_a_file_is_told_in_short_as_the_one_that_was_made(name: str) -> None:
    rules = (
        Rule("long sums", "never", depth_above=64),
        Rule("to the even", rounding="nearest_even", operation=("add", "multiply")),
        Rule("its place", "never", scope="*exp*"),
    )
    plan = neuronsim.plan(MODEL, policy=with_rules(find_policy(name), *rules))
    reasons = [*(d.reason for d in plan.decisions.values()), *plan.kept.values()]
    assert all(isinstance(r, Reason) for r in reasons)
    read = [told(str(r), plan.policy) for r in reasons]
    assert [(r.short, r.fact) for r in read] == [(r.short, r.fact) for r in reasons]
    assert "long sums" in {r.short for r in read}
