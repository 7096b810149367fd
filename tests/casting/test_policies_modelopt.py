"""ModelOpt: AutoCast's rules exclude, and inclusion wins, as in its own tests and guide.

Sources: tests/unit/onnx/autocast/test_nodeclassifier.py @7af33d2 and a later version of it, which has
nodes_to_include and op_types_to_include; docs/source/guides/8_autocast.rst @0991404.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.casting.small_graphs import F32, graph, low_names, low_under

import neuronsim
from neuronsim import dtypes, ops
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies import find_policy, with_rules
from neuronsim.casting.policies.calibration import Calibration, make_calibration
from neuronsim.casting.policies.policy import Policy, Rule
from neuronsim.errors import InvalidArgument
from neuronsim.hlo.module import Module

pytestmark = pytest.mark.isa_independent

MODELOPT = find_policy("modelopt/float16")
# Their model: Add of an input and an initialiser up to 4, Mul by an initialiser of 0.5.
MODEL = graph(
    "x = parameter",
    "y = parameter",
    "add_node = add x y",
    "z = constant",
    "mul_node = multiply add_node z",
)


def calibration(module: Module, **values: float) -> Calibration:
    """A run in which every instruction's values are these magnitudes."""
    return make_calibration(
        module,
        [
            {
                n: s
                for n, v in values.items()
                if (s := ops.statistics(ops.Bits(np.full(3, v, np.float32), F32)))
            }
        ],
    )


def with_limits(data_max: float, init_max: float = 65504.0) -> Policy:
    first, second = MODELOPT.rules
    rules = (
        dataclasses.replace(first, above=data_max),
        dataclasses.replace(second, constant_above=init_max),
    )
    return dataclasses.replace(MODELOPT, rules=rules)


def test_defaults_of_the_guide() -> None:
    first, second = MODELOPT.rules
    assert (first.above, second.constant_above) == (512, 65504)
    assert not MODELOPT.keep_output_type
    assert (MODELOPT.default, MODELOPT.low) == ("always", dtypes.float16)


@pytest.mark.parametrize(("x", "low"), [(0.5, False), (-1.0, True)])
def test_node_classifier(x: float, low: bool) -> None:
    """data_max=3: a sum beyond 3 keeps the Add and the Mul, which reads it, in float32."""
    total = 3.5 if x > 0 else 2.5
    values = calibration(MODEL, x=x, y=2.0, add_node=total, mul_node=total / 2)
    plan = make_plan(MODEL, with_limits(3.0), calibration=values)
    assert ({"add_node", "mul_node"} <= low_names(plan)) == low
    assert ({"add_node", "mul_node"} & low_names(plan) == set()) == (not low)


@pytest.mark.parametrize("value", [9000.0, 11000.0, -9000.0, -11000.0])
def test_io_range_rule(value: float) -> None:
    """An output or an input beyond data_max, 10000, excludes; test_output_range_rule."""
    m = graph("x = parameter", "node1 = tanh x", "node5 = abs node1")
    values = calibration(m, x=1.0, node1=value, node5=1.0)
    kept = {"node1", "node5"} if abs(value) > 10000 else set()
    assert {"node1", "node5"} - low_names(
        make_plan(m, with_limits(10000.0), calibration=values)
    ) == kept


def test_initializer_range_rule() -> None:
    """init_max 1000 and an initialiser of 1100; without a reference run, so without data_max."""
    m = graph(
        "x = parameter",
        "c = big",
        "s = constant",
        "node2 = add x c",
        "node1 = add x s",
        "return node1 node2",
    )
    policy = dataclasses.replace(
        MODELOPT, rules=(dataclasses.replace(MODELOPT.rules[1], constant_above=1000.0),)
    )
    assert {"node1", "node2"} & low_under(policy, m) == {"node1"}
    wider = dataclasses.replace(
        policy, rules=(dataclasses.replace(policy.rules[0], constant_above=1200.0),)
    )
    assert {"node1", "node2"} <= low_under(wider, m)


@pytest.mark.parametrize(("excluded", "other"), [("add", "mul_node"), ("multiply", "add_node")])
def test_op_types_to_exclude(excluded: str, other: str) -> None:
    policy = dataclasses.replace(
        MODELOPT, rules=(Rule("op_types_to_exclude", "never", operation=(excluded,)),)
    )
    assert {"add_node", "mul_node"} & low_under(policy, MODEL) == {other}


def test_nodes_to_exclude_by_regex() -> None:
    """--nodes_to_exclude ".*attn.*" with --data_max inf."""
    m = graph("x = parameter", "layer.attn.1 = tanh x", "layer.2 = tanh layer.attn.1")
    policy = dataclasses.replace(MODELOPT, rules=(Rule("nodes_to_exclude", "never", regex=".*attn.*"),))
    assert low_under(policy, m) == {"layer.2"}


def test_include_wins_over_exclude() -> None:
    """op_types_to_exclude Add and nodes_to_include add_node; init_max 1 and op_types_to_include Mul."""
    exclude = Rule("op_types_to_exclude", "never", operation=("add",))
    include = Rule("nodes_to_include", "always", name=("add_node",))
    for rules in ((exclude, include), (include, exclude)):
        assert "add_node" in low_under(dataclasses.replace(MODELOPT, rules=rules), MODEL)
    # Control: elsewhere the last rule wins.
    last = dataclasses.replace(MODELOPT, rules=(include, exclude), include_wins=False)
    assert "add_node" not in low_under(last, MODEL)

    m = graph(
        "x = parameter", "y = big", "add_node = add x y", "z = big", "mul_node = multiply add_node z"
    )
    limit = dataclasses.replace(MODELOPT.rules[1], constant_above=1.0)
    mul = Rule("op_types_to_include", "always", operation=("multiply",))
    policy = with_rules(dataclasses.replace(MODELOPT, rules=(limit,)), mul)
    assert {"add_node", "mul_node"} & low_under(policy, m) == {"mul_node"}


def test_depth_of_reduction() -> None:
    """max_depth_of_reduction: a product that sums 4 elements is kept from 3 on."""
    m = graph("x = parameter", "d = dot x x", "t = tanh d")
    for depth, low in ((3, {"t"}), (4, {"d", "t"})):
        rule = Rule("max_depth_of_reduction", "never", depth_above=depth)
        assert low_under(dataclasses.replace(MODELOPT, rules=(rule,)), m) == low


def test_a_softmax_is_low_but_for_values_out_of_range() -> None:
    """Its maximum starts at -Inf, which is in no tensor of an ONNX graph."""
    model = "examples/digits/model.hlo.pb"
    run = neuronsim.calibrate(model, "examples/digits/test.npz")
    plan = neuronsim.plan(model, policy=MODELOPT, calibration=run)
    assert {"reduce_max.7", "exp.1"} <= low_names(plan)
    assert not any("inf" in why for why in plan.kept.values())
    assert "reduce_sum.64" in plan.kept  # the sum of squares


def test_a_reference_run_is_needed() -> None:
    with pytest.raises(InvalidArgument, match="calibrat"):
        make_plan(MODEL, MODELOPT)
