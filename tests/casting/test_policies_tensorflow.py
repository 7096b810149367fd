"""TensorFlow: the colouring of `auto_mixed_precision` decides as in its own tests.

Source: tensorflow/core/grappler/optimizers/auto_mixed_precision_test.cc @0059df7; a test or row has the
name of its example there. Operations there that HLO has under another name: MatMul dot, Relu the
absolute value (on the clear list as well), Identity copy, SparseMatMul (on no list) a cube root, the
loop's Enter, Merge, Switch, NextIteration and Exit a while. A value that is fetched there is the
operand of an Identity, the result here; a node that must be preserved is pinned by a rule whose low
type is float32.
"""

from __future__ import annotations

import dataclasses

import pytest
from tests.casting.small_graphs import F32, SQUARE, graph, looped, low_under, types
from tests.support.parameters import each_of

from neuronsim import dtypes
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies import find_policy, with_rules
from neuronsim.casting.policies.policy import Policy, Rule
from neuronsim.hlo.module import Computation, Instruction, Module
from neuronsim.hlo.verify import verify

pytestmark = pytest.mark.isa_independent

F16, BF16 = dtypes.float16, dtypes.bfloat16
FLOAT16, BFLOAT16 = find_policy("tensorflow/float16"), find_policy("tensorflow/bfloat16")
TVM = dataclasses.replace(find_policy("tvm/float16"), unlisted="ignore")


def preserved(policy: Policy, *names: str) -> Policy:
    return with_rules(policy, Rule("it is preserved", low=F32, name=names))


# The graph of an example, and what is low of it in float16.
EXAMPLES: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "no_op": (
        (
            *("input = constant", "deny1 = exponential input", "clr1 = abs deny1"),
            *("infer1 = sqrt clr1", "clr2 = abs infer1"),
        ),
        set(),
    ),
    # Clear operations around a product, upstream, downstream and through each other.
    "bidirectional_clear_chain": (
        (
            *("input = constant", "clr1 = abs input", "clr2 = abs input", "allow1 = dot clr1 clr1"),
            *("clr3 = concatenate clr1 clr2", "clr4 = abs clr2", "return allow1 clr3 clr4"),
        ),
        {"clr1", "clr2", "allow1", "clr3", "clr4"},
    ),
    "already_fp16": (
        (
            *("input = constant", "cst1 = to_float16 input", "clr1 = abs cst1"),
            *("cst2 = to_float32 clr1", "clr2 = abs cst2"),
        ),
        set(),
    ),
    # The chain in the source's own comment: deny, infer, clear, infer, clear, allow, infer becomes
    # deny, deny, deny, deny, clear, allow, infer; the clear one then joins the product.
    "deny_path_ends_at_the_last_inferred_operation": (
        (
            *("x = parameter", "deny = exponential x", "infer1 = tanh deny", "clear1 = abs infer1"),
            *("infer2 = tanh clear1", "clear2 = abs infer2", "allow = dot clear2 x"),
            "infer3 = tanh allow",
        ),
        {"clear2", "allow"},
    ),
    # ErfOp, LogOp, Log1pOp, SigmoidOp, SoftmaxOp, SqrtOp, TanhOp: each is low between two products.
    **{
        f"simple_unary_infer_op_{opcode}": (
            (
                *("input = parameter", "eye = constant", "allow1 = dot input eye"),
                *(f"infer1 = {opcode} allow1", "allow2 = dot infer1 eye"),
            ),
            {"allow1", "infer1", "allow2"},
        )
        for opcode in ("erf", "log", "log-plus-one", "logistic", "softmax", "sqrt", "tanh")
    },
}


@each_of(("lines", "low"), EXAMPLES.values(), ids=EXAMPLES)
def test_examples(lines: tuple[str, ...], low: set[str]) -> None:
    assert low_under(FLOAT16, graph(*lines)) == low


SIMPLE = (
    *("input = constant", "deny1 = exponential input", "clr1 = abs deny1", "infer1 = sqrt clr1"),
    *("clr2 = abs infer1", "allow1 = dot clr2 clr2", "clr3 = abs allow1", "infer2 = log clr3"),
    *("clr4 = abs infer2", "deny2 = cbrt clr4", "clr5 = abs deny2"),
)


@pytest.mark.parametrize("policy", [FLOAT16, BFLOAT16], ids=lambda p: p.name)
def test_simple(policy: Policy) -> None:
    """Also `AutoMixedPrecisionMklTest.Simple`."""
    plan = make_plan(graph(*SIMPLE), policy)
    assert set(plan.decisions) == {"clr2", "allow1", "clr3"}
    assert types(plan, "allow1") == (policy.low, F32, policy.low)
    assert plan.decisions["allow1"].reason == f"{policy.name}: lists dot as always"
    assert plan.decisions["clr3"].reason == (
        f"{policy.name}: it leads to or from allow1 through what only moves or selects values"
    )
    # Control: TVM's rule lowers what follows the product.
    assert low_under(TVM, graph(*SIMPLE)) == {"allow1", "clr3", "infer2", "clr4", "deny2", "clr5"}


def test_preserve_fetches() -> None:
    m = graph(
        *("input = constant", "allow1 = dot input input", "clr1 = abs allow1", "infer1 = sqrt clr1"),
        *("deny1 = exponential infer1", "clr2 = abs deny1", "allow2 = dot clr2 clr2"),
        *("clr3 = abs allow2", "deny2 = exponential clr3", "clr4 = abs deny2"),
    )
    assert low_under(preserved(FLOAT16, "allow1", "clr2", "clr3"), m) == {"allow2"}
    # Control: with nothing to preserve the products and what is clear around them are low.
    assert low_under(FLOAT16, m) == {"allow1", "clr1", "clr2", "allow2", "clr3"}


def test_preserve_cpu_nodes() -> None:
    m = graph(
        *("input = constant", "clr1 = abs input", "allow1 = dot clr1 clr1", "infer1 = tanh allow1"),
        *("allow2 = dot infer1 infer1", "clr2 = abs allow2"),
    )
    assert low_under(preserved(FLOAT16, "allow2"), m) == {"clr1", "allow1"}
    assert low_under(FLOAT16, m) == {"clr1", "allow1", "infer1", "allow2", "clr2"}


def test_fused_batch_norm() -> None:
    """The batch norm and its gradient are low between convolutions; their statistics are of the type
    attribute U, which stays float32.
    """
    m = graph(
        *("input = image", "weight = kernel", "scale = vector", "offset = vector"),
        *("allow1 = conv input weight", "fbn1 = batch_norm_training allow1 scale offset"),
        *("y = element0 fbn1", "mean = element1 fbn1", "variance = element2 fbn1"),
        *("bng1 = batch_norm_grad allow1 scale mean variance y", "dx = element0 bng1"),
        *("infer1 = add y dx", "allow2 = conv infer1 weight"),
    )
    plan = make_plan(m, FLOAT16)
    assert set(plan.decisions) == {"allow1", "fbn1", "bng1", "infer1", "allow2"}
    fbn1, bng1 = plan.decisions["fbn1"], plan.decisions["bng1"]
    assert (fbn1.float32_operands, fbn1.float32_results) == ((1, 2), (1, 2))
    assert (bng1.float32_operands, bng1.float32_results) == ((1, 2, 3), (1, 2))
    shapes = apply_plan(m, plan).entry_computation.by_name["fbn1"].shape
    assert [s.dtype for s in shapes.arrays()][1:] == [F32, F32]
    # Control: TVM lowers all of it.
    assert make_plan(m, TVM).decisions["fbn1"].float32_results == ()


def test_statistics_carry_no_colour() -> None:
    """A value that comes from a product through statistics alone is not between products."""
    m = graph(
        *("input = image", "weight = kernel", "scale = vector", "offset = vector"),
        *("allow1 = conv input weight", "fbn1 = batch_norm_training allow1 scale offset"),
        *("mean = element1 fbn1", "n = add mean mean", "r = rows n", "allow2 = dot r r"),
    )
    assert "n" not in low_under(FLOAT16, m)
    assert "n" in low_under(dataclasses.replace(FLOAT16, float32_slots={}), m)


def test_repeated_and_list_type_attrs() -> None:
    """A tuple (IdentityN) hands on the colours of its elements."""
    m = graph(*("input = constant", "allow1 = dot input input", "return allow1 allow1"))
    entry = m.entry_computation
    taken = [
        Instruction(f"clr1.{n}", "get-tuple-element", SQUARE, ("out",), {"tuple_index": n})
        for n in range(2)
    ]
    infer1 = Instruction("infer1", "add", SQUARE, ("clr1.0", "clr1.1"))
    allow2 = entry.by_name["allow1"].replace(name="allow2", operands=("infer1", "infer1"))
    body = (*entry.instructions, *taken, infer1, allow2)
    m = m.replace_entry(Computation("main", body, "allow2"))
    verify(m)
    assert low_under(FLOAT16, m) == {"allow1", "infer1", "allow2"}


def test_existing_cast() -> None:
    """A cast to float32 that only products read gives their type at once."""
    lines = ("input = ints", "cst1 = convert input", "allow1 = dot cst1 cst1")
    m = graph(*lines, shapes={"cst1": SQUARE})
    plan = make_plan(m, FLOAT16)
    assert set(plan.decisions) == {"cst1", "allow1"}
    assert plan.decisions["cst1"].reason == "tensorflow/float16: it is read only by allow1"
    applied = apply_plan(m, plan).entry_computation.by_name
    assert applied["cst1"].array.dtype is F16
    assert applied["allow1"].operands == ("cst1", "cst1")
    # Control: one that something else reads as well stays.
    more = graph(*lines, "e = exponential cst1", "return allow1 e", shapes={"cst1": SQUARE})
    assert low_under(FLOAT16, more) == {"allow1"}


def test_recurrent_edge_color_mismatch() -> None:
    """The value of a loop lies between a denied and an inferred operation, so that its next value,
    which a product gives, is float32 too.
    """

    def after(first: str) -> Module:
        begin = ("input = parameter", "n = count", f"first = {first} input", "init = carry first n")
        trip = ("infer1 = sqrt b.x", "allow1 = dot infer1 infer1")
        return looped(trip, *begin, "loop = while init", "x = element0 loop")

    assert low_under(FLOAT16, after("exponential")) == {"allow1"}
    # Control: from a clear operation the whole loop runs low.
    assert low_under(FLOAT16, after("abs")) == {"allow1", "infer1", "loop", "first"}


def test_denied_operations_poison_what_is_between_products() -> None:
    m = graph(*("x = parameter", "a = dot x x", "e = exponential x", "s = add a e", "b = dot s s"))
    assert low_under(FLOAT16, m) == {"a", "b"}
    # Control: an operation on no list affects nothing.
    other = graph(*("x = parameter", "a = dot x x", "e = cbrt x", "s = add a e", "b = dot s s"))
    assert low_under(FLOAT16, other) == {"a", "s", "b"}


def test_lists_differ_per_type() -> None:
    """Sum, Mean and Rsqrt: denied or unlisted in float16, inferred in bfloat16."""
    m = graph(*("x = parameter", "a = dot x x", "z = zero", "s = sum a z", "r = rows s", "b = dot r x"))
    assert low_under(FLOAT16, m) == {"a", "r", "b"}
    assert low_under(BFLOAT16, m) == {"a", "s", "r", "b"}
    m = graph("x = parameter", "a = dot x x", "q = rsqrt a", "b = dot q x")
    assert (low_under(FLOAT16, m), low_under(BFLOAT16, m)) == ({"a", "b"}, {"a", "q", "b"})
