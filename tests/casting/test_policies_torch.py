"""torch.autocast: its lists and promotions decide as its documentation says.

Sources: the examples in the docstring of `torch.autocast` (torch/amp/autocast_mode.py), the op
reference in docs/source/amp.md @4e0ff98.
"""

from __future__ import annotations

import pytest
from tests.casting.small_graphs import F32, graph, low_under, types

from neuronsim import dtypes
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies import find_policy, with_rules
from neuronsim.casting.policies.policy import Policy, Rule

pytestmark = pytest.mark.isa_independent

F16, BF16 = dtypes.float16, dtypes.bfloat16
CUDA, CPU = find_policy("torch-cuda/float16"), find_policy("torch-cpu/bfloat16")
BOTH = pytest.mark.parametrize("policy", [CUDA, CPU], ids=lambda p: p.name)
MM = ("a = parameter", "b = parameter", "c = parameter", "d = parameter", "e = dot a b")


@BOTH
def test_example_of_mm(policy: Policy) -> None:
    """Products of float32 give the low type, also of mixed inputs; sums are float32's."""
    plan = make_plan(graph(*MM, "f = dot d e"), policy)
    assert types(plan, "e") == types(plan, "f") == (policy.low, F32, policy.low)
    assert not plan.keep_output_type


def test_example_of_a_disabled_subregion() -> None:
    """A region with enabled=False is a rule on its instructions; products after it are low again."""
    m = graph(*MM, "f = dot c e", "g = dot d f")
    disabled = Rule("enabled=False", "never", scope="net/f")
    assert low_under(with_rules(CUDA, disabled), m) == {"e", "g"}
    assert low_under(CUDA, m) == {"e", "f", "g"}


def test_float32_list_of_cuda() -> None:
    """softmax, exp, pow, rsqrt, log and sum run in float32 and give it; the next product is low."""
    for line in ("softmax e", "exponential e", "rsqrt e", "log e", "power e e"):
        m = graph(*MM, f"f = {line}", "g = add f f", "h = dot g d")
        assert low_under(CUDA, m) == {"e", "h"}, line
        # Control: the CPU's list has none of these; they run in the type of their inputs.
        assert low_under(CPU, m) == {"e", "f", "g", "h"}, line
    m = graph(*MM, "z = zero", "f = sum e z", "g = rows f", "h = dot g d")
    assert low_under(CUDA, m) == {"e", "h"}
    assert low_under(CPU, m) == {"e", "f", "g", "h"}


@BOTH
def test_unlisted_operations_run_in_the_type_of_their_inputs(policy: Policy) -> None:
    assert low_under(policy, graph(*MM, "f = tanh e", "g = abs f")) == {"e", "f", "g"}
    assert low_under(policy, graph(*MM, "f = tanh a")) == {"e"}


@BOTH
def test_mixed_inputs_promote_to_the_widest(policy: Policy) -> None:
    """Sums promote natively, cat by its list: float16 and float32 give float32."""
    m = graph(*MM, "f = add e a", "g = concatenate e a", "h = concatenate e e", "return f g h")
    assert low_under(policy, m) == {"e", "h"}


@BOTH
def test_numbers_promote_nothing(policy: Policy) -> None:
    """`e * 0` with a Python number has the type of `e`."""
    m = graph(*MM, "z = zero", "n = spread z", "f = multiply e n")
    assert low_under(policy, m) == {"e", "f"}


@BOTH
def test_a_bias_is_a_term_of_its_product(policy: Policy) -> None:
    """What addmm and linear do: their bias is cast too; a residual that is no bias promotes."""
    m = graph(*MM, "v = vector", "bias = columns v", "f = add e bias", "g = add f a")
    assert low_under(policy, m) == {"e", "f"}


def test_a_float32_operation_drags_all_after_it_until_the_next_product() -> None:
    """What its users complain of after a layer norm, on CUDA."""
    m = graph(
        *(*MM, "z = zero", "n = spread z", "s = sum e z", "r = rows s", "x = subtract e r"),
        *("f = rsqrt x", "g = tanh f", "h = dot g d", "i = tanh h"),
    )
    assert {"g", "h", "i"} & low_under(CUDA, m) == {"h", "i"}
    assert {"g", "h", "i"} <= low_under(CPU, m)


@BOTH
def test_batch_norm_follows_its_input_alone(policy: Policy) -> None:
    """Its parameters and statistics stay float32 beside a narrow input."""
    lines = (
        *("x = image", "w = kernel", "conv = conv x w"),
        *(f"{n} = vector" for n in ("scale", "offset", "mean", "variance")),
    )
    plan = make_plan(graph(*lines, "bn = batch_norm conv scale offset mean variance"), policy)
    assert plan.decisions["bn"].float32_operands == (1, 2, 3, 4)
    assert "bn" not in low_under(policy, graph(*lines, "bn = batch_norm x scale offset mean variance"))


@BOTH
def test_a_cast_gives_what_it_states(policy: Policy) -> None:
    """Ops called with an explicit dtype are not eligible."""
    m = graph(*MM, "i = to_int e", "f = convert i", "g = tanh f", shapes={"f": graph(*MM).root.array})
    assert low_under(policy, m) == {"e"}
