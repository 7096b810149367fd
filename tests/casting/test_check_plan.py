"""What no plan may ask for: `check_plan` lists all of it at once."""

from __future__ import annotations

import dataclasses

import pytest
from tests.casting.border_modules import SCATTER, sums, tuple_of
from tests.casting.planning_by_hand import decide, plan_of
from tests.support.graphs import computation, constant, inst, module_of, parameter, reducer
from tests.support.parameters import each_of

from neuronsim import dtypes, ops
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.decisions.checks import check_plan
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.plans.plan import Plan
from neuronsim.dtypes import DType, float_format
from neuronsim.errors import InvalidArgument
from neuronsim.hlo.module import Module, Shape, TupleShape
from neuronsim.targets import TARGETS, Target

pytestmark = pytest.mark.isa_independent  # nothing here is computed by the kernels

F32, F16, BF16, TF32, S32 = (
    dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.tfloat32, dtypes.int32,
)  # fmt: skip


@pytest.fixture
def steps() -> Module:
    """One instruction of each kind that a rule is about."""
    return module_of(
        parameter("x", (4,)),
        parameter("m", (2, 3), number=1),
        parameter("n", (1,), number=2, dtype=S32),
        parameter("u", (1,), number=3),
        parameter("i", (2, 3), number=4, dtype=S32),
        constant("zero", 0.0),
        inst("e", "exponential", (4,), "x"),
        inst("top", "reduce", (), "e", "zero", dimensions=(0,), called=("max",)),
        inst("dot", "dot", (), "e", "e", dot_dimensions=DOT, algorithm="ALG_DOT_F32_F32_F32"),
        inst("plain", "dot", (), "e", "e", dot_dimensions=DOT),
        inst("turn", "transpose", (3, 2), "m", dimensions=(1, 0)),
        inst("stay", "transpose", (2, 3), "m", dimensions=(0, 1)),
        inst("turni", "transpose", (3, 2), "i", dimensions=(1, 0), dtype=S32),
        inst("less", "compare", (4,), "e", "x", comparison_direction="LT", dtype=dtypes.boolean),
        inst("whole", "convert", (4,), "e", dtype=S32),
        inst("pick", "select", (4,), "less", "e", "x"),
        inst("into", "scatter", (4,), "x", "n", "u", scatter_dimensions=SCATTER, called=("add",)),
        others=(reducer("max", "maximum"), reducer("add")),
    )


DOT = ops.DotDimensions((0,), (0,))
BAD = [
    ("e", decide(BF16, float32_operands=(1,)), "e has no .* operand 1: .* are 0"),
    ("into", decide(BF16, float32_operands=(1,)), "no float32 operand 1: .* are 0, 2"),
    ("pick", decide(BF16, float32_operands=(0,)), "operand 0: .* are 1, 2"),
    ("pick", decide(BF16, float32_operands=(1, 3, 9)), "float32 operand 3, 9"),
    ("e", decide(BF16, float32_results=(1,)), "no float32 result 1"),
    ("whole", decide(BF16, S32, float32_results=(0,)), "no float32 result 0: it has none"),
    ("zero", decide(BF16, float32_results=(0,)), "a constant: no result"),
    ("e", decide(BF16, accumulate=F16), "e does not sum in float16"),
    ("top", decide(BF16, accumulate=BF16), "top does not sum in bfloat16"),
    ("into", decide(BF16, accumulate=BF16), "into does not sum in bfloat16"),
    ("plain", decide(BF16, accumulate=dtypes.float8_e4m3), "cannot sum in float8_e4m3: .* float32,"),
    ("plain", decide(BF16, accumulate=S32), "plain cannot sum in int32"),
    ("plain", decide(BF16, accumulate=float_format(6, 9)), r"plain cannot sum in float\(6,9\)"),
    ("dot", decide(BF16, accumulate=F16), "ALG_DOT_F32_F32_F32"),
    ("plain", decide(BF16, accumulate=F16, rounding="stochastic"), "plain sums in float16 under"),
    ("e", decide(float_format(6, 9), rounding="stochastic"), r"stochastically to float\(6,9\)"),
    ("e", decide(BF16, relayout=F16), r"e \(exponential\) is no transpose"),
    ("turni", decide(F32, S32, relayout=F16), "turni is a transpose that"),
    ("stay", decide(F32, relayout=F16), r"stay is no relayout: .* \(0, 1\) does not move"),
    ("turn", decide(F32, relayout=S32), "cannot be a relayout in int32"),
    ("turn", decide(F32, relayout=dtypes.float8_e4m3fn), "a relayout in float8_e4m3fn"),
    ("turn", decide(F32, relayout=float_format(6, 9)), r"relayout in float\(6,9\)"),
    ("turn", decide(F32, saturate_infinity=True), "only where"),
    ("whole", decide(BF16), "whole gives int32 and cannot give bfloat16"),
    ("e", decide(BF16, S32), "e gives float32 and cannot give int32"),
    ("e", decide(S32, BF16), "e cannot read int32"),
    ("e", decide(dtypes.float64, BF16), "e cannot read float64"),
    ("e", decide(dtypes.float8_e4m3fn), "e cannot read float8_e4m3fn"),
    ("x", decide(BF16), "x is a parameter that keeps"),
    ("plainn", decide(BF16), r"'plainn' \(did you mean 'plain'"),
]


@each_of(("name", "decision", "message"), BAD)
def test_what_cannot_be_is_an_error(steps: Module, name: str, decision: Decision, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as error:
        check_plan(plan_of(steps, {name: decision}), steps)
    assert "module 'm'" in str(error.value)
    assert "made for" not in str(error.value)
    with pytest.raises(InvalidArgument, match=message):
        apply_plan(steps, plan_of(steps, {name: decision}))


GOOD = {
    "e": decide(BF16, F16, rounding="stochastic", float32_operands=(0,), float32_results=(0,)),
    "plain": decide(BF16, F32, accumulate=F16, rounding="nearest_even"),
    "turn": decide(F32, relayout=F16, saturate_infinity=True, rounding="stochastic"),
    "stay": decide(BF16),
    "pick": decide(BF16, float32_operands=(1, 2)),
    "into": decide(float_format(6, 9), float32_operands=(0,)),
    "whole": decide(TF32, S32, float32_operands=(0,)),
    "zero": decide(F16, rounding="nearest_even"),
}


def test_what_can_be_is_none(steps: Module) -> None:
    check_plan(plan_of(steps, GOOD), steps)
    check_plan(plan_of(steps, GOOD), steps, TARGETS["trn1"])


def test_all_problems_are_listed_at_once(steps: Module) -> None:
    bad: dict[str, Decision] = {}
    messages = []
    for name, decision, message in BAD:
        if name not in bad:
            bad[name] = decision
            messages.append(message)
    plan = dataclasses.replace(plan_of(steps, GOOD | bad), fingerprint="0" * 16, module="other")
    with pytest.raises(InvalidArgument, match=r"made for 'other' \(0{16}\)") as error:
        check_plan(plan, steps)
    for message in messages:
        assert error.match(message)
    assert str(error.value).count("; ") >= len(bad)


def test_the_types_of_sums_are_those_of_products_adds_and_multiplies_R1() -> None:
    model = sums()
    for accumulate in (F32, F16, BF16):
        check_plan(plan_of(model, dict.fromkeys("dcrmv", decide(F32, accumulate=accumulate))), model)
    both = [parameter(f"p{k}", (), k) for k in range(4)]
    added = [inst(f"s{k}", "add", (), f"p{k}", f"p{k + 2}") for k in range(2)]
    pairwise = computation("two", *both, *added, tuple_of("t", *added))
    more = {"dimensions": (0,), "called": ("two",)}
    several = inst("r", "reduce", pairwise.by_name["t"].shape, "x", "x", "zero", "zero", **more)
    model = module_of(parameter("x", (4,)), constant("zero", 0.0), several, others=(pairwise,))
    with pytest.raises(InvalidArgument, match="r does not sum in float16"):
        check_plan(plan_of(model, {"r": decide(BF16, accumulate=F16)}), model)


# ---- targets -----------------------------------------------------------------------------------


def only(**engine_types: frozenset[DType]) -> Target:
    """A made-up target whose named engines and opcodes have these types, and all others float32."""
    return dataclasses.replace(
        TARGETS["trn1"], name="made-up", types=frozenset({F32}), engine_types=engine_types
    )


PRODUCTS_IN_FLOAT16 = only(dot=frozenset({F16}), tensor=frozenset({BF16}))


@pytest.mark.parametrize(
    ("name", "decision", "lacking"),
    [
        ("plain", decide(F16, F32), ""),  # M4: sums are given in float32
        ("plain", decide(F16), ""),
        ("plain", decide(BF16, F32), "bfloat16"),
        ("plain", decide(F16, BF16), "bfloat16"),
        ("plain", decide(F32), "float32"),
        ("plain", decide(F16, F32, float32_operands=(0,)), "float32"),
        ("e", decide(F16), "float16"),
        ("e", decide(F32, F16), "float16"),
        ("e", decide(float_format(6, 9)), ""),  # C9: it runs in float32
        ("plain", decide(float_format(6, 9), F32), "float(6,9)"),
        ("zero", decide(F16), "float16"),
        ("turn", decide(F32, relayout=BF16), ""),
        ("turn", decide(F32, relayout=F16), "float16"),
        ("whole", decide(F32, S32), ""),
        ("whole", decide(TF32, S32), "tfloat32"),
    ],
)
def test_types_that_the_target_lacks_are_named(
    steps: Module, name: str, decision: Decision, lacking: str
) -> None:
    plan = plan_of(steps, {name: decision})
    check_plan(plan, steps)
    if not lacking:
        check_plan(plan, steps, PRODUCTS_IN_FLOAT16)
        return
    with pytest.raises(InvalidArgument) as error:
        check_plan(plan, steps, PRODUCTS_IN_FLOAT16)
    assert f"made-up lacks {lacking} for {name}" in str(error.value)


def test_a_problem_of_many_instructions_is_told_once() -> None:
    names = [f"e{n}" for n in range(9)]
    pairs = zip(["x", *names], names, strict=False)
    body = [inst(new, "exponential", (4,), before) for before, new in pairs]
    chain = module_of(parameter("x", (4,)), *body)
    plan = plan_of(chain, {n: decide(F16) for n in names})
    with pytest.raises(InvalidArgument) as error:
        check_plan(plan, chain, PRODUCTS_IN_FLOAT16)
    (said,) = [p for p in str(error.value).split("; ") if "e0" in p]
    assert "made-up lacks float16 for e0, e1, e2, e3 and 5 more: " in said


def test_loops_that_share_a_body_round_alike() -> None:
    state = TupleShape((Shape(F32, (2,)), Shape(dtypes.boolean)))
    p, q, start = (inst(n, "parameter", state, number=0) for n in "pqt")
    stop = inst("stop", "get-tuple-element", dtypes.boolean, "q", tuple_index=1)
    called = {"called": ("body", "condition")}
    loops = [inst(n, "while", state, of, **called) for n, of in (("l", "t"), ("m", "l"))]
    others = (computation("body", p), computation("condition", q, stop))
    model = module_of(start, *loops, others=others)
    nearest = decide(BF16, rounding="nearest_even")
    check_plan(plan_of(model, {"l": nearest, "m": nearest}), model)
    with pytest.raises(InvalidArgument, match="share body and cannot round as nearest_even, the prof"):
        check_plan(plan_of(model, {"l": nearest, "m": decide(BF16)}), model)
    with pytest.raises(InvalidArgument, match="l is a while: no operand"):
        check_plan(plan_of(model, dict.fromkeys("lm", decide(BF16, float32_operands=(0,)))), model)


def test_a_plan_for_another_large_module_names_a_few_instructions() -> None:
    model = module_of(
        parameter("x", (1,)), *(inst(f"negate.{n}", "negate", (1,), "x") for n in range(3000))
    )
    plan = Plan("p", "other", "0" * 16, {f"abs.{n}": decide(BF16) for n in range(3000)})
    with pytest.raises(InvalidArgument) as error:
        check_plan(plan, model)
    told = str(error.value)
    assert "made for 'other'" in told
    assert told.count("'abs.") == 4
    assert told.endswith(" and 2996 more")


def test_long_names_in_a_plan_are_shortened() -> None:
    model = module_of(parameter("x", (1,)), inst("y", "negate", (1,), "x"))
    plan = plan_of(model, {"n" * 1_000_000: decide(BF16)})
    with pytest.raises(InvalidArgument, match="no instruction 'nnn") as error:
        check_plan(plan, model)
    assert len(str(error.value)) < 500
