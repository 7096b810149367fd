"""TVM: ToMixedPrecision and the RFC before it decide as in their own tests and documents.

Sources: tests/python/relay/test_to_mixed_precision.py @0182cfd (an example's name there is in the name
or docstring of its test), rfcs/0006-AMP_pass.md @1c4e595, and "Relay Automatic FP16 Downcasting" (the
first stage).
"""

from __future__ import annotations

import dataclasses
import warnings

import pytest
from tests.casting.small_graphs import F32, graph, low_under, types

from neuronsim import dtypes
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.decisions.checks import check_plan
from neuronsim.casting.plans.casts import casts
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies import find_policy, with_rules
from neuronsim.casting.policies.policy import Policy, Rule
from neuronsim.errors import InvalidArgument
from neuronsim.targets import find_target

pytestmark = pytest.mark.isa_independent

F16, BF16 = dtypes.float16, dtypes.bfloat16
TVM = dataclasses.replace(find_policy("tvm/float16"), unlisted="ignore")
TENSORFLOW = find_policy("tensorflow/float16")
CONV = ("data = image", "weight = kernel", "conv = conv data weight")


@pytest.mark.parametrize("low", [F16, BF16, dtypes.float_format(6, 9)], ids=str)
def test_convert_single_conv(low: dtypes.DType) -> None:
    """Its operands go down, it accumulates in and gives the low type (test_convert_single_conv and, for
    another type, ..._fp64): outputs keep no original type by default.
    """
    policy = dataclasses.replace(TVM, low=low, accumulate=F16 if low is F16 else F32)
    plan = make_plan(graph(*CONV), policy)
    assert set(plan.decisions) == {"conv"}
    assert types(plan, "conv") == (low, F16 if low is F16 else F32, low)
    assert not plan.keep_output_type


def test_accumulation_type_is_what_the_policy_says() -> None:
    """TVM ships the low type; a user may register float32 with a low output."""
    plan = make_plan(graph(*CONV), find_policy("tvm-float32-sums/float16"))
    assert types(plan, "conv") == (F16, F32, F16)


def test_convert_conv_bn() -> None:
    """Every operand of the batch norm goes down: test_convert_conv_bn."""
    lines = (*CONV, *(f"{n} = vector" for n in ("gamma", "beta", "mean", "variance")))
    lines += ("bn = batch_norm conv gamma beta mean variance",)
    plan = make_plan(graph(*lines), TVM)
    assert set(plan.decisions) == {"conv", "bn"}
    assert plan.decisions["bn"].float32_operands == ()
    assert plan.decisions["bn"].reason == "tvm/float16: it follows conv"
    # Control: TensorFlow's type slot U keeps the statistics, so its colour differs.
    other = make_plan(graph(*lines, "weight2 = kernel", "conv2 = conv bn weight2"), TENSORFLOW)
    assert other.decisions["bn"].float32_operands == (1, 2, 3, 4)


@pytest.mark.parametrize(
    "lines",
    [
        ("a = parameter", "b = softmax a"),
        ("b = arange",),
        ("a = parameter", "z = zero", "b = sum a z"),
        ("a = parameter", "z = zero", "s = sum a z", "b = exponential s"),
    ],
    ids=["softmax", "arange", "summation", "exp of a sum"],
)
def test_do_not_convert(lines: tuple[str, ...]) -> None:
    assert low_under(TVM, graph(*lines)) == set()
    # Control: the RFC's first stage lowers everything.
    assert "b" in low_under(find_policy("tvm-rfc/float16"), graph(*lines))


def test_green_gray_propagates_simple() -> None:
    assert low_under(TVM, graph(*CONV, "sum = add conv conv")) == {"conv", "sum"}
    # Control: TensorFlow infers the addition only between two products.
    assert low_under(TENSORFLOW, graph(*CONV, "sum = add conv conv")) == {"conv"}


def test_green_red_not_use_extraneous_cast() -> None:
    """Two casts down for the convolution, one up for the softmax, and no more."""
    m = graph("x = parameter", "w = parameter", "dense = dot x w", "y = softmax dense")
    plan = make_plan(m, TVM)
    assert set(plan.decisions) == {"dense"}
    found = [(c.source, c.to_type) for c in casts(m, apply_plan(m, plan), plan)]
    assert sorted(found) == [("dense", "float32"), ("w", "float16"), ("x", "float16")]


def test_red_gray_propagates_simple() -> None:
    """After a softmax everything is float32 but what always runs low."""
    m = graph("a = parameter", "b = softmax a", "c = add b b", "d = dot c c")
    assert low_under(TVM, m) == {"d"}


def test_let_statement_simple() -> None:
    """r1 = var1 + var1 where var1 is a product; the second product reads r1."""
    m = graph(
        *("data = parameter", "weight = parameter", "var1 = dot data weight", "r1 = add var1 var1"),
        *("var2 = dot r1 weight", "r2 = add var2 var2"),
    )
    assert low_under(TVM, m) == {"var1", "r1", "var2", "r2"}


def test_where_simple() -> None:
    """The condition decides nothing: it is no float."""
    m = graph("p = preds", "data = parameter", "w = parameter", "a = dot data w", "b = select p a a")
    assert low_under(TVM, m) == {"a", "b"}


def test_convert_follow_node_with_integer_arguments() -> None:
    """A follow operation of parameters is low: these can always be converted."""
    m = graph("x = parameter", "b = parameter", "y = add x b")
    plan = make_plan(m, TVM)
    assert plan.decisions["y"].reason == "tvm/float16: it reads only what can be converted"
    # Control: under torch's promotion parameters are what they are.
    assert low_under(find_policy("torch-cuda/float16"), m) == set()


def test_lstm() -> None:
    """One unit of test_lstm: two products and a bias, four gates, the state; all of it runs low."""
    m = graph(
        *("x = parameter", "h = parameter", "c = parameter", "wx = parameter", "wh = parameter"),
        *("b = vector", "bias = columns b", "ix = dot x wx", "hh = dot h wh", "g = add ix hh"),
        *("gates = add g bias", "i = logistic gates", "t = tanh gates", "keep = multiply i c"),
        *("new = multiply i t", "state = add keep new", "th = tanh state", "y = multiply i th"),
    )
    names = {i.name for i in m.entry_computation.instructions if i.opcode != "parameter"}
    assert low_under(TVM, m) == names - {"bias"}  # a parameter repeated is a parameter


def test_number_of_the_program_decides_nothing() -> None:
    """`conv * 0.5` is low as in Relay, and the number of a float32 operation is not rounded."""
    m = graph(
        *("a = parameter", "d = dot a a", "z = zero", "n = spread z", "y = add d n"),
        *("e = exponential a", "f = add e n"),
    )
    assert low_under(TVM, m) == {"d", "y"}


@pytest.mark.parametrize("mode", ["error", "warn", "ignore"])
def test_missing_op_mode(mode: str) -> None:
    """missing_op_mode 0, 1 and 2: an operation without registration follows, with its count told."""
    m = graph("x = parameter", "d = dot x x", "r = rsqrt d", "s = rsqrt r")
    policy = dataclasses.replace(TVM, unlisted=mode)
    if mode == "error":
        with pytest.raises(InvalidArgument, match=r"follows its inputs\): rsqrt \(2\)\. List them"):
            make_plan(m, policy)
    elif mode == "warn":
        with pytest.warns(UserWarning, match=r"rsqrt \(2\)"):
            assert low_under(policy, m) == {"d", "r", "s"}
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert low_under(policy, m) == {"d", "r", "s"}
    assert find_policy("tvm/float16").unlisted == "warn"


def test_rfc_function_of_a_call() -> None:
    """rfcs/0006: a convolution is low where its input has more than 100 elements, and follows
    otherwise; it accumulates in float32 and gives the low type.
    """
    rules = (
        Rule("small inputs follow", "follow", operation=("convolution",), accumulate=F32),
        Rule("more than 100 elements", "always", name=("large*",), accumulate=F32),
    )
    m = graph(
        *("x = image", "k = kernel", "y = exponential x", "small = conv y k", "large = conv y k"),
        "return small large",
    )
    plan = make_plan(m, with_rules(TVM, *rules))
    assert set(plan.decisions) == {"large"}
    assert types(plan, "large") == (F16, F32, F16)
    assert plan.decisions["large"].reason == "more than 100 elements (it is named large*)"


def test_first_stage_of_the_rfc() -> None:
    """Inputs and parameters go down, everything runs in float16, sums too, and the output goes up."""
    m = graph("x = parameter", "w = constant", "d = dot x w", "e = softmax d")
    plan = make_plan(m, find_policy("tvm-rfc/float16"))
    assert set(plan.decisions) == {"w", "d", "e"}
    assert types(plan, "d") == (F16, F16, F16)
    assert plan.keep_output_type
    assert apply_plan(m, plan).root.array.dtype is F32
    check_plan(plan, m, find_target("trn1"))


def test_composites_keep_the_category_of_their_operator() -> None:
    """A decomposed layer norm stays NEVER (the defect of PR 9782, where its parts followed), and a
    decomposed softmax too: no exponential or sum decides, what recognition finds does.
    """
    m = graph(
        *("x = parameter", "d = dot x x", "z = zero", "n = spread z", "s = sum d z", "r = rows s"),
        *("e = exponential d", "t = sum e z", "b = rows t", "y = divide e b"),
    )
    assert "y" not in low_under(TVM, m)
    policy: Policy = dataclasses.replace(TVM, lists={**TVM.lists, "never": frozenset({"softmax"})})
    assert "e" not in low_under(policy, m)
    # Control: without the composite the exponential would follow.
    bare = dataclasses.replace(TVM, lists={**TVM.lists, "never": frozenset()})
    assert "e" in low_under(bare, m)
