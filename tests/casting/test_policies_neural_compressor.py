"""Neural Compressor: the conversion to bfloat16 decides as in its tests and documents.

Sources: test/tensorflow/quantization/utils (create_test_graph, test_do_transform, test_rn50_convert) of
the file whose class is TestBF16Convert, bf16_convert.py @18605b0, docs/mixed_precision.md of v1.14.
"""

from __future__ import annotations

import dataclasses

import pytest
from tests.casting.small_graphs import F32, SQUARE, graph, low_under

from neuronsim import dtypes
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies import find_policy, with_rules
from neuronsim.casting.policies.policy import Policy, Rule

pytestmark = pytest.mark.isa_independent

BF16 = dtypes.bfloat16
POLICY = find_policy("neural-compressor/bfloat16")


def converting(*names: str) -> Policy:
    """BF16Convert(graph, fp32_ops, bf16_ops) with these names for bf16_ops."""
    bare = dataclasses.replace(POLICY, lists={})
    return with_rules(bare, Rule("bf16_ops", "always", name=names))


# create_test_graph: the cast pair around relu is the model's own.
LINES = (
    *("input = image", "w1 = kernel", "w2 = kernel", "w3 = kernel", "b1 = image", "b2 = image"),
    *("conv1 = conv input w1", "conv1_bias_add = add conv1 b1", "cast = to_bfloat16 conv1_bias_add"),
    *("relu = abs cast", "cast2 = to_float32 relu", "conv2 = conv cast2 w2"),
    *("conv2_bias_add = add conv2 b2", "relu2 = abs conv2_bias_add", "log1 = log relu2"),
    "conv3 = conv log1 w3",
)


def test_do_transform() -> None:
    """bf16_ops are conv2 and relu2: those are bfloat16, and conv3 and the logarithm between are not;
    the model's cast back to float32, whose only reader is conv2, gives bfloat16 at once.
    """
    narrow = dataclasses.replace(graph("i = image").root.array, dtype=BF16)
    wide = graph("i = image").root.array
    lines = [line.replace("to_bfloat16", "convert").replace("to_float32", "convert") for line in LINES]
    m = graph(*lines, shapes={"cast": narrow, "relu": narrow, "cast2": wide})
    plan = make_plan(m, converting("conv2", "relu2"))
    assert set(plan.decisions) == {"conv2", "relu2", "cast2"}
    assert plan.decisions["cast2"].reason.endswith("it is read only by conv2")
    applied = apply_plan(m, plan).entry_computation.by_name
    assert (applied["conv2"].array.dtype, applied["conv3"].array.dtype) == (BF16, F32)
    assert applied["cast2"].array.dtype is BF16
    # Control: all that its own list names, conv3 among it.
    assert "conv3" in low_under(POLICY, m)


def test_rn50_convert() -> None:
    """Convolutions, pools and products but one: the one is float32, the others are bfloat16."""
    m = graph(
        *("x = parameter", "conv11 = dot x x", "relu = cbrt conv11", "conv14 = dot relu x"),
        "conv52 = dot conv14 x",
    )
    policy = dataclasses.replace(POLICY, lists={"always": frozenset({"dot", "convolution"})})
    fallback = Rule("falls back to fp32", "never", name=("conv14",))
    assert low_under(with_rules(policy, fallback), m) == {"conv11", "conv52"}
    assert low_under(policy, m) == {"conv11", "conv14", "conv52"}


def test_as_many_nodes_as_possible() -> None:
    """Its bf16 list is TensorFlow's lists without what these deny: softmax, means and sums are on it,
    exponentials and powers are not.
    """
    m = graph(
        *("x = parameter", "z = zero", "s = softmax x", "t = sum s z", "r = rows t", "q = rsqrt r"),
        *("e = exponential q", "p = power e x", "y = add p r"),
    )
    # What the result reads is a listed operation of float32 and low values: it is converted anyway.
    assert low_under(POLICY, m) == {"s", "t", "r", "q", "y"}
    # Control: TensorFlow's colouring has no product to start from.
    assert low_under(find_policy("tensorflow/bfloat16"), m) == set()


def test_depth_first_order_reaches_the_inputs_of_each() -> None:
    """By name: a is converted first, and from it the listed producers of its inputs."""
    m = graph("x = parameter", "c = dot x x", "b = tanh c", "a = tanh b")
    reasons = {n: d.reason for n, d in make_plan(m, POLICY).decisions.items()}
    assert reasons["b"].endswith("lists tanh as always; it is read by a")
    assert reasons["c"].endswith("lists dot as always; it is read by b")
    assert reasons["a"].endswith("lists tanh as always")


def test_a_cast_with_two_readers_stays() -> None:
    lines = ("i = ints", "f = convert i", "d = dot f f")
    assert low_under(POLICY, graph(*lines, shapes={"f": SQUARE})) == {"f", "d"}
    two = graph(*lines, "e = dot f d", shapes={"f": SQUARE})
    assert low_under(POLICY, two) == {"d", "e"}


def test_two_conversions_of_the_document_differ_in_their_plans() -> None:
    """docs/mixed_precision.md: TensorFlow's operations of the BF16 list are bfloat16 depth first, so
    that neighbours need no casts; PyTorch's modules are wrapped, each with casts of its own.
    """
    m = graph(
        *("x = parameter", "d = dot x x", "r = rsqrt d", "m = multiply r d", "t = tanh m"),
        *("e = exponential t", "y = dot e e"),
    )
    modules = find_policy("neural-compressor-modules/bfloat16")
    assert low_under(modules, m) == {"d", "t", "y"}
    assert low_under(POLICY, m) == {"d", "r", "m", "t", "y"}
    counts = [
        sum(
            i.opcode == "convert" for i in apply_plan(m, make_plan(m, p)).entry_computation.instructions
        )
        for p in (POLICY, modules)
    ]
    assert counts[0] < counts[1]
