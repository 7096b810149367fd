"""Users' rules: what each condition matches and what not, depths by hand, the last rule wins."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.support.hlo_text import text_module
from tests.support.parameters import each_of
from tests.support.places import DIGITS

import neuronsim
from neuronsim import api, dtypes
from neuronsim.casting.policies.calibration import Calibration
from neuronsim.casting.policies.operations import names_of
from neuronsim.casting.policies.policy import Rule
from neuronsim.casting.policies.rules import (
    RuleContext,
    check_rules,
    match,
    match_rules,
    reduction_depth,
)
from neuronsim.errors import InvalidArgument
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import Module, graph_computations

pytestmark = pytest.mark.isa_independent  # matching computes nothing

SMALL = text_module("""
  x = f32[4,3] parameter(0)
  w = f32[3,2] constant({{1, 2}, {3, 4}, {5, -700}})
  small = f32[] constant(-1e-6)
  limit = f32[] constant(inf)
  top = f32[4,2] broadcast(limit), dimensions={}
  tiny = f32[4,2] broadcast(small), dimensions={}
  tinier = f32[4,2] transpose(tiny), dimensions={0,1}
  dot.1 = f32[4,2] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={op_name="jit(f)/layer0/dot_general"}
  low = f32[4,2] minimum(dot.1, top)
  dot.12 = f32[4,2] add(low, tinier), metadata={op_name="jit(f)/layer1/add"}
  zero = f32[] constant(0)
  near = f32[4,2] subtract(dot.12, dot.1)
  exp.1 = f32[4,2] exponential(near)
  ROOT total = f32[4] reduce(exp.1, zero), dimensions={1}, to_apply=add
""")


def context_of(module: Module, x: Any = None, **more: Any) -> RuleContext:
    """With a calibration, where there is an input `x` to run it on."""
    flat = inline_calls(module)
    names = {
        i.name: names_of(i, flat.by_name) for c in graph_computations(flat) for i in c.instructions
    }
    calibration = None
    if x is not None:
        calibration = neuronsim.calibrate(module, {"x": np.asarray(x, np.float32)})
    return RuleContext(flat, names, **{"calibration": calibration, **more})


@pytest.fixture(scope="module")
def small() -> RuleContext:
    x = [[1, 2, 0], [0.5, 1, -0.01], [0, 0, 0.02], [3, 1, 0.01]]
    return context_of(SMALL, x, low=dtypes.float16)


@pytest.fixture(scope="module")
def digits() -> RuleContext:
    calibration = neuronsim.calibrate(DIGITS / "model.hlo.pb", DIGITS / "test.npz")
    return context_of(api.read_model(DIGITS / "model.hlo.pb"), calibration=calibration)


def matched(context: RuleContext, **conditions: Any) -> set[str]:
    return set(match_rules([Rule("r", **conditions)], context)[0])


# ---- patterns ----------------------------------------------------------------------------------------


@each_of(
    ("condition", "given", "expected"),
    [
        # An operation is any of the policy's names.
        ("operation", ("reduce-add",), {"total"}),
        ("operation", ("reduce-*",), {"total"}),
        ("operation", ("reduce-maximum",), set()),
        ("operation", ("expo*", "dot"), {"exp.1", "dot.1"}),
        ("operation", ("matmult",), {"dot.1"}),
        ("operation", ("ADD",), set()),
        ("operation", ("reduc",), set()),
        # A name has wildcards.
        ("name", ("dot.1",), {"dot.1"}),
        ("name", ("dot.*",), {"dot.1", "dot.12"}),
        ("name", ("dot.1", "exp.?"), {"dot.1", "exp.1"}),
        ("name", ("dot",), set()),
        # A regular expression matches the whole name.
        ("regex", r"dot\.1", {"dot.1"}),  # and not dot.12
        ("regex", r"dot\.\d+", {"dot.1", "dot.12"}),
        ("regex", r"ot\.1", set()),
        ("regex", r"dot|exp", set()),
        ("regex", r"tin.*", {"tiny", "tinier"}),
        # A scope is the metadata's op_name.
        ("scope", "*/layer0/*", {"dot.1"}),
        ("scope", "jit(f)/*", {"dot.1", "dot.12"}),
        ("scope", "layer0", set()),
    ],
)
def test_operation_name_regex_and_scope(
    small: RuleContext, condition: str, given: Any, expected: set[str]
) -> None:
    assert matched(small, **{condition: given}) == expected


def test_all_conditions_must_hold(small: RuleContext) -> None:
    assert matched(small, name=("dot.*",), scope="*/layer1/*") == {"dot.12"}
    assert matched(small, name=("exp.*",), scope="*/layer1/*") == set()
    assert matched(small) == set(small.instructions)


# ---- numbers of a float32 run ------------------------------------------------------------------------


def test_above_finds_the_sum_of_squares_that_leaves_float16(digits: RuleContext) -> None:
    found, _ = match_rules([Rule("range", above=65504.0, operation=("reduce-add",))], digits)
    assert "reduce_sum.64" in found
    assert digits.calibration is not None
    largest = digits.calibration.values["reduce_sum.64"].largest
    x = np.load(DIGITS / "test.npz")["x"].astype(np.float64)
    assert largest == (x.reshape(len(x), -1) ** 2).sum(1).max()
    fact = f"the values of reduce_sum.64 are up to {largest:g} > 65504"
    assert found["reduce_sum.64"].fact == f"it is reduce-add; {fact}"
    assert "reduce_sum.64" not in matched(digits, above=largest)
    below = math.nextafter(largest, 0.0)
    assert "reduce_sum.64" in matched(digits, above=below)


def test_above_looks_at_operands_and_results(small: RuleContext) -> None:
    assert small.calibration is not None
    at_most = small.calibration.values["dot.1"].largest
    assert 13 < at_most < 700
    assert matched(small, above=699.0) == {"w", "dot.1"}
    assert matched(small, above=700.0) == set()  # an infinite constant is Inf in every type


def test_infinities_that_are_computed_are_above_all() -> None:
    module = text_module("""x = f32[2] parameter(0)
        top = f32[] constant(inf)
        tops = f32[2] broadcast(top), dimensions={}
        low = f32[2] minimum(x, tops)
        ROOT huge = f32[2] exponential(low)""")
    assert matched(context_of(module, [1.0, 200.0]), above=1e30) == {"huge"}


START = """
  x = f32[4,3] parameter(0)
  least = f32[] constant(LEAST)
  top = f32[4] reduce(x, least), dimensions={1}, to_apply=max
  tops = f32[4,3] broadcast(top), dimensions={0}
  near = f32[4,3] subtract(x, tops)
  ROOT e = f32[4,3] exponential(near)
"""


@pytest.mark.parametrize("least", ["-inf", "-3e38"])
def test_the_initial_value_of_a_maximum_has_no_range(least: str) -> None:
    context = context_of(text_module(START.replace("LEAST", least)), [[1, 2, 300], [0, 0, -1]])
    own = {"least"} if least != "-inf" else set()  # a constant that float16 does not hold
    assert matched(context, above=512.0) == own
    assert matched(context, constant_above=512.0) == own
    assert {"top", "x", "tops", "near"} <= matched(context, above=299.0)  # the control: its operand


def test_constants_are_seen_through_what_moves_them(small: RuleContext) -> None:
    assert matched(small, constant_above=699.0) == {"w", "dot.1"}
    assert matched(small, constant_above=700.0) == set()  # Inf stays Inf in every type
    assert matched(small, constant_above=5e-7) == {*("w", "dot.1", "small", "tiny", "tinier", "dot.12")}


def test_constants_need_no_calibration() -> None:
    context = context_of(SMALL)
    found, _ = match_rules([Rule("initial values", constant_above=65.0)], context)
    assert found["dot.1"].fact == "the constant w is up to 700 > 65"


@pytest.mark.parametrize("low", [dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3])
def test_underflow_share_is_what_ml_dtypes_makes_zero_C1(low: dtypes.DType) -> None:
    rng = np.random.default_rng(8)
    values = np.float32(10.0 ** rng.uniform(-12, 3, 4000))
    values[::7] = 0
    module = text_module("x = f32[4000] parameter(0)\nROOT y = f32[4000] negate(x)")
    context = context_of(module, values, low=low)
    with np.errstate(over="ignore"):
        rounded = values.astype({16: low.numpy, 8: ml_dtypes.float8_e4m3}[low.bits])
    share = float((rounded == 0).sum() - (values == 0).sum()) / (values != 0).sum()
    assert matched(context, underflow_above=share) == set()
    if low is dtypes.bfloat16:
        assert share == 0
    else:
        assert matched(context, underflow_above=math.nextafter(share, 0)) == {"x", "y"}
        assert matched(context, underflow_above=share / 2, low=dtypes.bfloat16) == set()
        fact = match(Rule("r", underflow_above=share / 2), context.instructions["y"], context)
        assert fact == f"{low.name} makes zero a share of {share:g} > {share / 2:g}"


def test_underflow_without_a_low_type_is_none() -> None:
    context = context_of(SMALL, np.ones((4, 3)))
    assert matched(context, underflow_above=0.0) == set()
    assert "small" not in matched(context, underflow_above=0.0, low=dtypes.float16)  # 1e-6 stays
    assert "small" in matched(context, underflow_above=0.0, low=dtypes.float8_e4m3)


def test_cancellation_is_of_sums_and_differences(small: RuleContext) -> None:
    assert small.calibration is not None
    values = small.calibration.values
    factor = max(values["dot.12"].largest, values["dot.1"].largest) / values["near"].largest
    assert 1e4 < factor < math.inf
    assert matched(small, cancellation_above=factor * 0.999) == {"near"}
    assert matched(small, cancellation_above=factor) == set()
    assert matched(small, cancellation_above=0.5) == {"near", "dot.12"}
    assert matched(small, operation=("add", "subtract")) == {"near", "dot.12"}


def test_a_difference_that_is_zero_everywhere_cancels_without_end() -> None:
    text = "x = f32[2] parameter(0)\ny = f32[2] negate(x)\nROOT z = f32[2] add(x, y)"
    for x, expected in ((3.0, {"z"}), (0.0, set())):
        context = context_of(text_module(text), np.full(2, x))
        assert matched(context, cancellation_above=1e30) == expected


# ---- depth -------------------------------------------------------------------------------------------

DEPTHS = {
    "dot": (
        "a = f32[2,5,3,7] parameter(0)\n b = f32[7,2,3,4] parameter(1)\n"
        "ROOT r = f32[2,5,4] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={1},"
        " lhs_contracting_dims={2,3}, rhs_contracting_dims={2,0}",
        3 * 7,
    ),
    "vectors": (
        "a = f32[9] parameter(0)\n ROOT r = f32[] dot(a, a), lhs_contracting_dims={0},"
        " rhs_contracting_dims={0}",
        9,
    ),
    "convolution": (
        "a = f32[2,8,8,6] parameter(0)\n b = f32[3,2,6,4] parameter(1)\n"
        "ROOT r = f32[2,6,7,4] convolution(a, b), window={size=3x2}, dim_labels=b01f_01io->b01f",
        3 * 2 * 6,
    ),
    "groups": (
        "a = f32[2,8,8,6] parameter(0)\n b = f32[3,2,2,9] parameter(1)\n"
        "ROOT r = f32[2,6,7,9] convolution(a, b), window={size=3x2}, dim_labels=b01f_01io->b01f,"
        " feature_group_count=3",
        3 * 2 * (6 // 3),
    ),
    "reduce": (
        "a = f32[4,5,6] parameter(0)\n z = f32[] constant(0)\n"
        "ROOT r = f32[5] reduce(a, z), dimensions={0,2}, to_apply=add",
        4 * 6,
    ),
    "maximum": (
        "a = f32[4,5,6] parameter(0)\n z = f32[] constant(0)\n"
        "ROOT r = f32[5] reduce(a, z), dimensions={0,2}, to_apply=max",
        0,
    ),
    "window": (
        "a = f32[9,9] parameter(0)\n z = f32[] constant(0)\n"
        "ROOT r = f32[7,8] reduce-window(a, z), window={size=3x2}, to_apply=add",
        3 * 2,
    ),
    "cumulative": (
        "a = f32[50] parameter(0)\n z = f32[] constant(0)\n"
        "ROOT r = f32[50] reduce-window(a, z), window={size=50 pad=49_0}, to_apply=add",
        50,
    ),
    "pool": (
        "a = f32[9,9] parameter(0)\n z = f32[] constant(0)\n"
        "ROOT r = f32[7,8] reduce-window(a, z), window={size=3x2}, to_apply=max",
        0,
    ),
    "batch norm": (
        "a = f32[4,5,6] parameter(0)\n s = f32[5] parameter(1)\n"
        "ROOT r = (f32[4,5,6], f32[5], f32[5]) batch-norm-training(a, s, s), epsilon=0.001,"
        " feature_index=1",
        4 * 6,
    ),
    "elementwise": ("a = f32[4] parameter(0)\n ROOT r = f32[4] add(a, a)", 0),
}


@each_of("case", DEPTHS)
def test_depth_is_what_one_result_sums(case: str) -> None:
    body, expected = DEPTHS[case]
    context = context_of(text_module(body))
    assert reduction_depth(context.instructions["r"], context) == expected
    assert matched(context, depth_above=expected) == set()
    assert matched(context, depth_above=max(expected - 1, 0)) == ({"r"} if expected else set())


def test_fact_of_a_depth() -> None:
    context = context_of(SMALL)
    found, _ = match_rules([Rule("long sums", depth_above=2)], context)
    assert {n: m.fact for n, m in found.items()} == {"dot.1": "elements in each sum: 3 > 2"}


# ---- several rules -----------------------------------------------------------------------------------


def test_the_last_rule_that_matches_wins(small: RuleContext) -> None:
    first, second = Rule("dots", "never", name=("dot.*",)), Rule("dot.1", "always", name=("dot.1",))
    for rules, winner in (([first, second], second), ([second, first], first)):
        found, unmatched = match_rules(rules, small)
        assert (found["dot.1"].rule, found["dot.12"].rule, unmatched) == (winner, first, ())


def test_rules_that_match_nothing_are_reported(small: RuleContext) -> None:
    rules = [Rule("a", name=("no such",)), Rule("b", name=("dot.1",)), Rule("c", operation=("conv*",))]
    found, unmatched = match_rules(rules, small)
    assert set(found) == {"dot.1"}
    assert [r.reason for r in unmatched] == ["a", "c"]
    # A rule that another overrules everywhere did match.
    assert match_rules([rules[1], Rule("d", name=("dot.1",))], small)[1] == ()


def test_numbers_without_a_calibration_are_an_error_that_says_how_to_get_them() -> None:
    context = context_of(SMALL)
    rules = [
        Rule("range", above=1.0),
        Rule("fine", name=("dot.1",)),
        Rule("small", underflow_above=0.1, cancellation_above=3.0),
        Rule("wrong", regex="(dot"),
    ]
    with pytest.raises(InvalidArgument) as caught:
        match_rules(rules, context)
    for part in (
        "rule 1 (range) has above;",
        "neuronsim.calibrate(model, data)",
        "rule 3 (small) has underflow_above, cancellation_above;",
        "rule 4 (wrong): regex is '(dot', not a regular expression",
    ):
        assert part in str(caught.value)
    with pytest.raises(InvalidArgument, match="calibrate"):
        match(rules[0], context.instructions["dot.1"], context)
    check_rules(rules[1:2], None)


def test_instructions_that_did_not_run_match_no_numbers(small: RuleContext) -> None:
    assert small.calibration is not None
    idle = dataclasses.replace(small, calibration=Calibration("small", ""))
    for conditions in ({"above": 0.0}, {"underflow_above": 0.0}, {"cancellation_above": 0.0}):
        assert matched(idle, **conditions) == set()
        assert matched(small, **conditions) != set() or "underflow_above" in conditions
