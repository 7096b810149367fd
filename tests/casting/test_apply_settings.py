"""What applied plans state in frontend attributes, and on which instruction: the type of sums, the
rounding, the relayout, the reason (R1, S1, M8).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from tests.casting.border_modules import borders, network, sums, tuple_of
from tests.casting.planning_by_hand import decide, planned, stating
from tests.support.graphs import computation, constant, inst, module_of, parameter, reducer
from tests.support.parameters import each_of
from tests.support.running import result_bytes

from neuronsim import dtypes, ops
from neuronsim.casting.conversions import carrier
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.flags import CAST_TYPES
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.dtypes import DType, float_format
from neuronsim.hlo import parse, text
from neuronsim.hlo.module import Instruction, Module, Shape, TupleShape

F32, F16, BF16, TF32, S32 = (
    dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.tfloat32, dtypes.int32,
)  # fmt: skip
TYPES = pytest.mark.parametrize("cast_type", CAST_TYPES)


# ---- reasons -----------------------------------------------------------------------------------


@TYPES
@pytest.mark.parametrize("auto_cast", ["matmult", "all"])
def test_every_decided_instruction_states_why_under_its_own_name(
    model: Module, auto_cast: str, cast_type: str
) -> None:
    plan = make_plan(model, neuron_policy(auto_cast, cast_type))  # type: ignore[arg-type]
    given = {n: dataclasses.replace(d, reason=f"{d.reason}: {n}") for n, d in plan.decisions.items()}
    result = planned(model, **given)
    assert stating(result, "reason") == {n: d.reason for n, d in given.items()}
    by_name = result.entry_computation.by_name
    for name, d in given.items():
        if by_name[name].opcode != "constant":
            assert by_name[name].array.dtype is carrier(d.output), name


def test_several_results_state_their_reason_where_they_are_joined() -> None:
    shapes = [Shape(F32, dims) for dims in ((2, 3), (3,), (3,))]
    given = [parameter(n, s, k) for k, (n, s) in enumerate(zip("xso", shapes, strict=True))]
    norm = inst(
        *("n", "batch-norm-training", TupleShape(tuple(shapes)), *"xso"), epsilon=0.001, feature_index=1
    )
    result = planned(module_of(*given, norm), n=decide(TF32, reason="mixed"))
    assert result.entry_computation.by_name["n"].opcode == "tuple"
    assert stating(result, "reason") == {"n": "mixed"}


def test_a_reason_may_be_any_text() -> None:
    reason = 'a "quoted" {reason}, with = and \\ and \N{SNOWMAN}\n'
    model = module_of(parameter("x", (2,)), inst("y", "negate", (2,), "x"))
    result = planned(model, y=decide(BF16, reason=reason))
    again = parse.from_text(text.to_text(result))
    assert stating(again, "reason") == stating(result, "reason") == {"y": reason}


def test_what_the_model_states_stays_but_for_the_type_of_sums() -> None:
    given = {"_owner": "me", "neuronsim.accumulate": "float16", "neuronsim.rounding": "nearest_even"}
    more = {"dot_dimensions": ops.DotDimensions((0,), (0,)), "frontend_attributes": given}
    model = module_of(parameter("x", (3,)), inst("d", "dot", (), "x", "x", **more))
    d = planned(model, d=decide(BF16, F32, reason="again")).entry_computation.by_name["d"]
    assert d.attributes["frontend_attributes"] == {
        "_owner": "me",
        "neuronsim.accumulate": "float32",  # as the decision says
        "neuronsim.reason": "again",
        "neuronsim.rounding": "nearest_even",
    }


# ---- the type of sums R1 -----------------------------------------------------------------------


@each_of("accumulate", [F16, BF16], ids=lambda t: t.name)
@each_of(
    ("operand", "output", "suffix"),
    [(BF16, BF16, ""), (F32, F32, ""), (TF32, F32, ""), (TF32, TF32, ".f32"), (F32, TF32, ".f32")],
)
def test_the_instruction_that_sums_states_the_type_R1_M6(
    operand: DType, output: DType, suffix: str, accumulate: DType
) -> None:
    d = decide(operand, output, accumulate=accumulate)
    result = planned(sums(), **dict.fromkeys("dcrmv", d))
    assert stating(result, "accumulate") == {f"{n}{suffix}": accumulate.name for n in "dcrmv"}


def test_float32_sums_are_not_stated_R1() -> None:
    result = planned(sums(), **dict.fromkeys("dcrmv", decide(BF16)))
    assert stating(result, "accumulate") == {}


def test_sums_are_computed_in_their_type_R1_M6() -> None:
    """Eighths below 16: products and sums are exact in float32, so that float16 alone rounds."""
    rng = np.random.default_rng(6)
    x, w = (rng.integers(-128, 128, s).astype(np.float32) / 8 for s in ((3, 100), (100, 3)))
    dot = ops.DotDimensions((1,), (0,))
    model = module_of(
        parameter("x", (3, 100)),
        parameter("w", (100, 3), number=1),
        constant("zero", 0.0),
        inst("d", "dot", (3, 3), "x", "w", dot_dimensions=dot),
        inst("r", "reduce", (3,), "x", "zero", dimensions=(1,), called=("add",)),
        tuple_of("out", ("d", (3, 3)), ("r", (3,))),
        others=(reducer("add"),),
    )
    products, total = np.zeros((3, 3), np.float16), np.zeros(3, np.float16)
    for k in range(100):
        products = (products + np.outer(x[:, k], w[k])).astype(np.float16)
        total = (total + x[:, k]).astype(np.float16)
    assert not np.array_equal(products, x @ w)
    result = planned(model, **dict.fromkeys("dr", decide(F32, accumulate=F16)))
    got = result_bytes(result, x, w)
    assert got == [v.astype(np.float32).tobytes() for v in (products, total)]


# ---- rounding S1 -------------------------------------------------------------------------------


def every(module: Module, low: DType, rounding: Any) -> dict[str, Decision]:
    policy = dataclasses.replace(neuron_policy("all", "bf16"), low=low)
    decisions = make_plan(module, policy).decisions
    return {n: dataclasses.replace(d, rounding=rounding) for n, d in decisions.items()}


LOWS = [*CAST_TYPES.values(), float_format(6, 9)]


@each_of("low", LOWS, ids=lambda t: t.name)
@each_of("clean", [True, False])
def test_a_plan_that_rounds_to_nearest_does_under_a_stochastic_profile_S1(
    low: DType, clean: bool
) -> None:
    """Were one rounding not stated, its words would show."""
    model = network()
    x = np.random.default_rng(2).normal(size=(4, 6)).astype(np.float32)
    expected = result_bytes(planned(model, **every(model, low, "")), x)
    stated = planned(model, clean=clean, **every(model, low, "nearest_even"))
    assert result_bytes(stated, x, rounding="stochastic") == result_bytes(stated, x) == expected
    plain = planned(model, clean=clean, **every(model, low, ""))
    if low is not float_format(6, 9):  # C9: reduce-precision to it is no conversion, so draws no words
        assert result_bytes(plain, x, rounding="stochastic") != expected


@pytest.mark.parametrize("low", CAST_TYPES.values(), ids=lambda t: t.name)
def test_a_plan_that_rounds_stochastically_does_under_any_profile_S1(low: DType) -> None:
    """The words are those of a stochastic profile: they depend on names and seed alone (S2)."""
    model = network()
    x = np.random.default_rng(2).normal(size=(4, 6)).astype(np.float32)
    plain = planned(model, clean=False, **every(model, low, ""))
    stated = planned(model, clean=False, **every(model, low, "stochastic"))
    for seed in (0, 7):
        assert result_bytes(stated, x, seed=seed) == result_bytes(
            plain, x, rounding="stochastic", seed=seed
        )


@each_of(
    ("name", "decision", "expected"),
    [
        ("e", decide(BF16), {"x.to_bf16", "e"}),
        ("e", decide(TF32), {"x.to_tf32", "e"}),
        ("e", decide(BF16, F16), {"x.to_bf16", "e"}),  # the store, not the exponential
        ("e", decide(BF16, F32), {"x.to_bf16"}),
        ("e", decide(F32, BF16), {"e"}),
        ("e", decide(F32), set()),
        ("v", decide(BF16), {"e.to_bf16"}),  # a movement rounds nothing
        ("v", decide(float_format(6, 9)), {"e.to_e6m9"}),
        ("d", decide(BF16, F32), {"v.to_bf16", "e.to_bf16"}),
        ("d", decide(BF16), {"v.to_bf16", "e.to_bf16", "d"}),
        ("d", decide(TF32, F32), {"v.to_tf32", "e.to_tf32"}),
        ("d", decide(F32, accumulate=F16), {"d"}),
        ("d", decide(BF16, F32, float32_operands=(1,)), {"v.to_bf16"}),
        ("r", decide(BF16), {"v.to_bf16", "zero.to_bf16", "r"}),
        ("r", decide(F32, TF32, accumulate=BF16), {"r.f32", "r"}),
        ("t", decide(F32, relayout=BF16), {"t"}),
        ("t", decide(BF16, relayout=F16), {"m.to_bf16", "t"}),
        ("t", decide(BF16), {"m.to_bf16"}),
        ("k", decide(BF16, dtypes.boolean), {"e.to_bf16", "v.to_bf16"}),
        ("h", decide(BF16, F16), {"e.to_bf16", "h"}),
        ("s", decide(BF16), {"x.to_bf16", "u.to_bf16", "s"}),
        ("s", decide(TF32), {"x.to_tf32", "u.to_tf32", "s.f32", "s"}),  # R5: each application
    ],
)
def test_the_rounding_stands_where_it_is_done_S1(
    name: str, decision: Decision, expected: set[str]
) -> None:
    model = borders()
    result = planned(model, **{name: dataclasses.replace(decision, rounding="nearest_even")})
    assert stating(result, "rounding") == dict.fromkeys(expected, "nearest_even")


def test_what_a_loop_carries_is_rounded_as_its_decision_says_S1() -> None:
    """On the way in and after each trip; what it gives is widened."""
    state = TupleShape((Shape(F32, (2,)), Shape(S32)))

    def element(name: str, source: str, index: int) -> Instruction:
        return inst(name, "get-tuple-element", state.elements[index], source, tuple_index=index)

    trip = computation(
        "body",
        inst("p", "parameter", state, number=0),
        *(element("p.x", "p", 0), element("p.n", "p", 1), constant("one", 1, S32)),
        *(inst("y", "multiply", (2,), "p.x", "p.x"), inst("n1", "add", S32, "p.n", "one")),
        inst("next", "tuple", state, "y", "n1"),
    )
    asked = computation(
        "condition",
        inst("q", "parameter", state, number=0),
        *(element("q.n", "q", 1), constant("three", 3, S32)),
        inst("more", "compare", dtypes.boolean, "q.n", "three", comparison_direction="LT"),
    )
    model = module_of(
        parameter("x", (2,)),
        inst("e", "negate", (2,), "x"),
        constant("zero", 0, S32),
        inst("first", "tuple", state, "e", "zero"),
        inst("l", "while", state, "first", called=("body", "condition")),
        element("out", "l", 0),
        others=(trip, asked),
    )
    x = np.array([1.2345678, 1.0987654], np.float32)
    drawn = {}
    for rounding in ("", "nearest_even", "stochastic"):
        result = planned(model, clean=False, l=decide(BF16, rounding=rounding))
        made = ("e.to_bf16.l.0.0", "y.to_bf16.result.0")
        stated = dict.fromkeys(made, rounding) if rounding else {}
        assert stating(result, "rounding") == stated
        assert stating(result, "reason") == {"l": "why"}
        for profile in ("nearest_even", "stochastic"):
            drawn[rounding, profile] = result_bytes(result, x, rounding=profile)
    nearest, random = drawn["", "nearest_even"], drawn["", "stochastic"]
    assert nearest != random
    assert drawn["nearest_even", "stochastic"] == drawn["nearest_even", "nearest_even"] == nearest
    assert drawn["stochastic", "stochastic"] == drawn["stochastic", "nearest_even"] == random


def test_a_constant_is_rounded_as_its_own_decision_says_S1() -> None:
    model = module_of(
        parameter("x", (2,)),
        constant("k", np.full(2, 1 / 3)),
        inst("a", "add", (2,), "x", "k"),
        inst("b", "add", (2,), "a", "k"),
        inst("c", "add", (2,), "b", "k"),
    )
    decisions = {
        "k": decide(BF16, rounding="nearest_even"),
        "a": decide(BF16, F32),
        "b": decide(BF16, F32, rounding="stochastic"),
        "c": decide(F16, F32, rounding="stochastic"),  # the constant is not decided to float16
    }
    result = planned(model, clean=False, **decisions)
    assert stating(result, "rounding") == {
        "k.to_bf16.nearest_even": "nearest_even",
        "a.to_bf16.b.0": "stochastic",
        "b.to_f16.c.0": "stochastic",
        "k.to_f16": "stochastic",
    }
