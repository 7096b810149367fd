"""Decisions: lists and rules, several low types, loops, relayouts (A3), and what a target lacks."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.casting.small_graphs import F32, graph, looped, low_names, low_under, types
from tests.executor.random_modules import Example, modules
from tests.support.graphs import inst, parameter, unverified
from tests.support.parameters import each_of

from neuronsim import dtypes
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.decisions.checks import check_plan
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.flags import CAST_TYPES, CastSettings
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies import POLICIES, find_policy, with_rules
from neuronsim.casting.policies.neuron import neuron_policy, policy_of
from neuronsim.casting.policies.policy import Policy, Rule
from neuronsim.errors import InvalidArgument
from neuronsim.hlo.module import Shape
from neuronsim.hlo.verify import verify
from neuronsim.targets import Target, find_target

pytestmark = pytest.mark.isa_independent

F16, BF16, TF32 = dtypes.float16, dtypes.bfloat16, dtypes.tfloat32
TVM = dataclasses.replace(find_policy("tvm/float16"), unlisted="ignore")
TRN1, INF1 = find_target("trn1"), find_target("inf1")


# ---- policies ------------------------------------------------------------------------------------


def test_find_policy_knows_the_settings_and_the_field() -> None:
    for name in ("none", "matmult/bf16", "all/fp8_e4m3", "tvm/float16", "torch-cuda/bfloat16"):
        assert find_policy(name).name == name
    families = {name.partition("/")[0] for name in POLICIES}
    assert families == {
        *("none", "matmult", "all", "tvm", "tvm-float32-sums", "tvm-rfc", "tensorflow", "torch-cpu"),
        *("torch-cuda", "neural-compressor", "neural-compressor-modules", "modelopt"),
    }


def test_unknown_policy_names_the_nearest() -> None:
    with pytest.raises(
        InvalidArgument, match=r"unknown policy 'tvm/float61' \(did you mean 'tvm/float16'"
    ):
        find_policy("tvm/float61")


def test_an_empty_policy_decides_nothing() -> None:
    m = graph("x = parameter", "d = dot x x", "t = tanh d")
    for policy in (Policy("empty"), Policy("empty", F16), Policy("empty", propagate="allow_paths")):
        assert make_plan(m, policy, TRN1).decisions == {}


def test_all_problems_of_a_policy_are_told_at_once() -> None:
    m = graph("x = parameter", "d = dot x x")
    policy = Policy(
        "mine",
        lists={"always": frozenset({"dott", "tanh"}), "never": frozenset({"tanh", "softmaxx"})},
        float32_slots={"batch-norm": ((1,), ())},
        rules=(
            Rule("no type", "always", operation=("exponentia",)),
            Rule("wild", "never", operation=("exp*",)),
        ),
    )
    with pytest.raises(InvalidArgument) as error:
        make_plan(m, policy)
    for part in (
        *("'mine'", "'dott' is no operation (did you mean 'dot'?)", "'softmax'", "'exponential'"),
        *(
            "'tanh' is on 2 lists",
            "'batch-norm' is no operation",
            "'no type' lowers instructions to no",
        ),
    ):
        assert part in str(error.value), part
    assert "wild" not in str(error.value)


def test_a_policy_that_lists_row_names_of_hlo_opcodes_is_refused() -> None:
    """One name for one operation: HLO's where it has one."""
    with pytest.raises(InvalidArgument, match="'exp' is no operation"):
        make_plan(
            graph("x = parameter", "y = exponential x"),
            Policy("p", F16, {"always": frozenset({"exp"})}),
        )


def test_the_most_specific_name_decides() -> None:
    m = graph("x = parameter", "z = zero", "s = sum x z", "y = softmax x", "return s y")
    always = {"always": frozenset({"compute"})}
    assert low_under(Policy("p", F16, always), m) == {"s", "y"}
    for name, left in (
        ("reduce-add", {"y"}),
        ("reduce", {"y"}),
        ("softmax", {"s"}),
        ("custom-call", {"s"}),
    ):
        policy = Policy("p", F16, always | {"never": frozenset({name})})
        assert low_under(policy, m) == left, name
    both = Policy("p", F16, {"always": frozenset({"reduce-add"}), "never": frozenset({"reduce"})})
    assert low_under(both, m) == {"s"}


# ---- rules and several types ---------------------------------------------------------------------


def test_rules_state_types_category_and_rounding_of_instructions() -> None:
    m = graph("x = parameter", "a = dot x x", "b = dot a x", "c = dot b x", "e = exponential c")
    rules = (
        Rule("b in bfloat16", low=BF16, name=("b",)),
        Rule("c sums in float16", accumulate=F16, output=F32, rounding="nearest_even", name=("c",)),
        Rule("e too", "always", low=BF16, rounding="stochastic", operation=("exponential",)),
    )
    plan = make_plan(m, with_rules(neuron_policy("matmult", "fp16"), *rules))
    assert types(plan, "a") == (F16, F32, F32)
    assert types(plan, "b") == (BF16, F32, F32)
    assert types(plan, "c") == (F16, F16, F32)
    assert plan.decisions["c"].rounding == "nearest_even"
    assert types(plan, "e") == (BF16, F32, BF16)
    assert plan.decisions["e"].rounding == "stochastic"
    assert plan.decisions["e"].reason == "e too (it is exponential)"
    assert plan.decisions["b"].reason.startswith("A1: matmult/fp16")
    assert plan.decisions["b"].reason.endswith("; b in bfloat16 (it is named b)")
    check_plan(plan, m, None)
    apply_plan(m, plan)


def test_the_last_rule_wins() -> None:
    m = graph("x = parameter", "d = dot x x")
    first, second = Rule("keep", "never", name=("d",)), Rule("lower", "always", operation=("dot",))
    policy = Policy("p", F16)
    assert low_under(with_rules(policy, first, second), m) == {"d"}
    assert low_under(with_rules(policy, second, first), m) == set()


def test_a_rule_that_is_about_nothing_is_told() -> None:
    m = graph("x = parameter", "d = dot x x")
    rule = Rule("typo", "never", operation=("dot", "do?t"), name=("dd", "zzz*"), scope="net/e")
    with pytest.warns(UserWarning, match="no instruction is what the rule 'typo' is about") as told:
        make_plan(m, with_rules(Policy("p", F16), rule))
    assert str(told[0].message).partition("about: ")[2].split(", ") == [
        *("operation 'dot'", "operation 'do?t' (did you mean 'dot'?)"),
        *("name 'dd' (did you mean 'd'?)", "name 'zzz*'"),
        "scope 'net/e' (did you mean 'net/x'?)",
    ]
    assert told[0].filename == __file__  # and not a line of the package
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_plan(m, with_rules(Policy("p", F16), Rule("depth", "never", depth_above=9)))


@each_of("low", [*CAST_TYPES.values(), dtypes.float_format(6, 9)], ids=str)
@each_of("name", ["tvm-rfc/float16", "tensorflow/float16", "torch-cuda/float16"])
def test_every_format_can_be_the_low_type(name: str, low: dtypes.DType) -> None:
    """Plans are made in it, fit a device, and can be applied."""
    policy = dataclasses.replace(find_policy(name), low=low, accumulate=F32)
    m = graph("x = parameter", "w = constant", "a = dot x w", "t = tanh a", "b = dot t w")
    plan = make_plan(m, policy, TRN1)
    assert {d.operand for d in plan.decisions.values()} == {low}
    assert {"a", "t", "b"} <= set(plan.decisions)
    verify(apply_plan(m, plan))


def test_accumulate_is_of_sums_alone() -> None:
    """Of products and of add and multiply reduces; a maximum or a tanh sums nothing (R1)."""
    m = graph("x = parameter", "z = zero", "d = dot x x", "s = sum d z", "t = tanh d", "return s t")
    plan = make_plan(m, find_policy("tvm-rfc/float16"))
    assert {n: d.accumulate for n, d in plan.decisions.items() if n != "z"} == {
        "d": F16,
        "s": F16,
        "t": F32,
    }
    check_plan(plan, m)


# ---- loops ---------------------------------------------------------------------------------------

ROUND = ("b.t = tanh b.x", "b.d = dot b.t b.t")
BEFORE = ("x = parameter", "n = count", "d = dot x x", "init = carry d n", "loop = while init")
# One loop over a product, and two of one body.
LOOPED = looped(ROUND, *BEFORE, "y = element0 loop", "t = tanh y")
SHARED = looped(ROUND, *BEFORE, "again = while loop", "y = element0 again", "t = tanh y")


def test_what_a_loop_carries_is_float32_unless_the_policy_lists_loops() -> None:
    assert low_under(TVM, LOOPED) == {"d", "b.d"}
    lists = dict(TVM.lists)
    lists["never"] -= {"while"}
    follow = dataclasses.replace(TVM, lists=lists)  # unlisted operations follow
    assert low_under(follow, LOOPED) == {"d", "loop", "b.t", "b.d", "t"}
    reasons = {n: d.reason for n, d in make_plan(LOOPED, follow).decisions.items()}
    assert reasons["loop"].endswith("it follows d")
    assert reasons["b.t"].endswith("it follows loop")
    assert reasons["t"].endswith("it follows loop")


def test_loops_of_one_body_carry_one_type() -> None:
    """Two loops call it: neither is low unless both surely are."""
    lists = dict(TVM.lists)
    lists["never"] -= {"while"}
    follow = dataclasses.replace(TVM, lists=lists)
    assert low_under(follow, SHARED) == {"d", "b.d"}
    always = find_policy("all/bf16")
    assert {"loop", "again"} <= low_under(always, SHARED)
    one = with_rules(always, Rule("the second stays", "never", name=("again",)))
    plan = make_plan(SHARED, one)
    assert not {"loop", "again"} & set(plan.decisions)
    check_plan(plan, SHARED)


@pytest.mark.parametrize("low", [TF32, dtypes.float_format(6, 9)], ids=str)
def test_a_loop_carries_no_type_that_hlo_lacks(low: dtypes.DType) -> None:
    policy = dataclasses.replace(find_policy("tvm-rfc/float16"), low=low, accumulate=F32)
    plan = make_plan(LOOPED, policy)
    assert "loop" not in plan.decisions
    apply_plan(LOOPED, plan)


# ---- relayouts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("relayout", ["bf16", "fp16"])
@pytest.mark.parametrize("auto_cast", ["matmult", "all"])
def test_fast_relayout_transposes_in_its_type_A3(auto_cast: Any, relayout: str) -> None:
    """Every transpose of floats that moves the minor-most dimension, in whichever type of its own."""
    m = graph(
        *("x = parameter", "moves = transpose x", "h = to_float16 x", "moves16 = transpose h"),
        *("i = ints", "movesint = transpose i", "return moves moves16 movesint"),
        shapes={"moves16": Shape(F16, (4, 4)), "movesint": Shape(dtypes.int32, (4, 4))},
    )
    settings = CastSettings(auto_cast, "bf16", False, "neuron-cc", relayout, saturate_infinity=True)
    plan = make_plan(m, policy_of(settings), INF1)
    wanted = CAST_TYPES[relayout]
    relaid = {n: d for n, d in plan.decisions.items() if d.relayout}
    assert set(relaid) == {"moves", "moves16"}
    assert all(d.relayout is wanted and d.saturate_infinity for d in relaid.values())
    assert relaid["moves16"].output is F16
    assert relaid["moves"].output is (BF16 if auto_cast == "all" else F32)
    assert "A3" in relaid["moves"].reason
    check_plan(plan, m, INF1)
    # Control: trn1's settings have no relayout.
    trn1 = make_plan(m, policy_of(CastSettings(auto_cast, "bf16", False)), TRN1)
    assert not any(d.relayout for d in trn1.decisions.values())


def test_a_transpose_that_keeps_the_minor_most_dimension_is_no_relayout_A3() -> None:
    m = unverified(
        parameter("x", (2, 3, 4)),
        inst("keeps", "transpose", (3, 2, 4), "x", dimensions=(1, 0, 2)),
        inst("moves", "transpose", (3, 4, 2), "x", dimensions=(1, 2, 0)),
    )
    assert set(make_plan(m, Policy("p", relayout=F16)).decisions) == {"moves"}


# ---- targets -------------------------------------------------------------------------------------

NARROW_CONVOLUTION = dataclasses.replace(
    TRN1,
    name="conv16",
    types=frozenset({F32, F16, dtypes.int32, dtypes.boolean}),
    engine_types={
        **dict.fromkeys(("tensor", "vector", "scalar", "gpsimd"), frozenset({F32, dtypes.int32})),
        "convolution": frozenset({F32, F16}),
    },
)
MIXED = (
    *("x = image", "k = kernel", "c = conv x k", "a = add c c", "b = abs a", "p = parameter"),
    *("d = dot p p", "return b d"),
)


def test_float16_only_in_convolution() -> None:
    """The convolution is float16; what follows it is float32, since its engines lack float16; so is
    the other product. Neighbours follow the type that is there.
    """
    m = graph(*MIXED)
    plan = make_plan(m, TVM, NARROW_CONVOLUTION)
    assert low_names(plan) == {"c"}
    assert types(plan, "c") == (F16, F16, F16)
    assert plan.decisions["d"] == Decision(
        F32, F32, F32, "conv16: the tensor engine has no float16 for dot, so it runs in float32"
    )
    assert plan.decisions["a"].reason.startswith("conv16: the vector engine has no float16 for add")
    check_plan(plan, m, NARROW_CONVOLUTION)
    # Control: without a target, and on trn1, everything is float16.
    assert low_names(make_plan(m, TVM)) == low_names(make_plan(m, TVM, TRN1)) == {"c", "a", "b", "d"}


@pytest.mark.parametrize(
    ("policy", "operand", "output"),
    [
        ("none", BF16, F32),
        ("matmult/fp16", F16, F32),
        ("matmult/tf32", BF16, F32),
        ("tvm/float16", F16, F16),
        ("tensorflow/bfloat16", BF16, BF16),
    ],
)
def test_inf1_has_no_float32_product(policy: str, operand: dtypes.DType, output: dtypes.DType) -> None:
    """A product that a policy leaves in float32, or would have in a type that is not there, is
    bfloat16; trn1 computes all of these as the policy says.
    """
    m = graph("p = parameter", "d = dot p p")
    plan = make_plan(m, find_policy(policy), INF1)
    assert (plan.decisions["d"].operand, plan.decisions["d"].output) == (operand, output)
    check_plan(plan, m, INF1)
    low = find_policy(policy).low
    on_trn1 = make_plan(m, find_policy(policy), TRN1).decisions
    assert set(on_trn1) == ({"d"} if low else set())
    assert all(d.operand is low for d in on_trn1.values())


@each_of("target", [TRN1, INF1, NARROW_CONVOLUTION], ids=lambda t: t.name)
@each_of("name", [n for n in POLICIES if not n.startswith("modelopt")])
@pytest.mark.filterwarnings("ignore:tvm")
def test_every_policy_fits_every_target(name: str, target: Target) -> None:
    for m in (graph(*MIXED), LOOPED):
        plan = make_plan(m, find_policy(name), target)
        check_plan(plan, m, target)
        verify(apply_plan(m, plan))


NAMES = [n for n in POLICIES if not n.startswith("modelopt")]


@pytest.mark.filterwarnings("ignore:tvm")
@settings(max_examples=50, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(modules(), st.sampled_from(NAMES), st.sampled_from([None, TRN1, INF1]))
def test_random_modules_are_planned(example: Example, name: str, target: Target | None) -> None:
    """Tuples, branches, calls and several results among them: the plan fits and can be applied."""
    plan = make_plan(example.module, find_policy(name), target)
    check_plan(plan, example.module, target)
    verify(apply_plan(example.module, plan))
