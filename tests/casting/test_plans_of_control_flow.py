"""Plans of loops, branches, calls in them, and what crosses their borders (A2)."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from tests.casting.border_modules import tuple_of
from tests.casting.reading import read_module
from tests.support.graphs import computation, constant, inst, unverified
from tests.support.running import execute, flat
from tests.support.words import bits

from neuronsim import dtypes
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.decisions.checks import check_plan
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.flags import CAST_TYPES
from neuronsim.casting.plans.plan import Plan, make_plan
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument
from neuronsim.hlo import proto
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.module import TOKEN, Computation, Instruction, Module, Shape, TupleShape
from neuronsim.hlo.verify import verify

pytestmark = pytest.mark.isa_independent

F32, BF16, S32, PRED = dtypes.float32, dtypes.bfloat16, dtypes.int32, dtypes.boolean
TYPES = pytest.mark.parametrize("cast_type", CAST_TYPES)
STATE = TupleShape((Shape(S32), Shape(F32, (3,)), Shape(F32, (3,))))


def planned(module: Module, auto_cast: str = "all", cast_type: str = "bf16") -> Module:
    return apply_plan(module, plan_of(module, auto_cast, cast_type))


def plan_of(module: Module, auto_cast: str = "all", cast_type: str = "bf16") -> Plan:
    return make_plan(module, neuron_policy(auto_cast, cast_type))  # type: ignore[arg-type]


def element(name: str, source: str, index: int, shape: Any = (3,)) -> Instruction:
    return inst(name, "get-tuple-element", shape, source, tuple_index=index)


def body(name: str = "body") -> Computation:
    """A trip: one is added to n, x becomes x * w + 1/3, w stays."""
    return computation(
        name,
        inst("b.s", "parameter", STATE, number=0),
        element("b.n", "b.s", 0, S32),
        element("b.x", "b.s", 1),
        element("b.w", "b.s", 2),
        constant("b.one", 1, S32),
        inst("b.n1", "add", S32, "b.n", "b.one"),
        constant("b.third", np.full(3, 1 / 3)),
        inst("b.m", "multiply", (3,), "b.x", "b.w"),
        inst("b.x1", "add", (3,), "b.m", "b.third"),
        inst("b.out", "tuple", STATE, "b.n1", "b.x1", "b.w"),
    )


def condition(trips: int = 4) -> Computation:
    return computation(
        "cond",
        inst("c.s", "parameter", STATE, number=0),
        element("c.n", "c.s", 0, S32),
        constant("c.trips", trips, S32),
        inst("c.lt", "compare", PRED, "c.n", "c.trips", comparison_direction="LT"),
    )


def loop(*before: Instruction, x: str = "x") -> tuple[Instruction, ...]:
    return (
        *before,
        constant("zero", 0, S32),
        inst("s", "tuple", STATE, "zero", x, "w"),
        inst("loop", "while", STATE, "s", called=("body", "cond")),
        element("got", "loop", 1),
        inst("y", "multiply", (3,), "got", "got"),
    )


def parameters(*names: str) -> list[Instruction]:
    return [inst(n, "parameter", (3,), number=k) for k, n in enumerate(names)]


@pytest.fixture(scope="module")
def looped() -> Module:
    """Four trips of a loop between a negation and a product."""
    entry = computation("main", *parameters("x", "w"), *loop(inst("neg", "negate", (3,), "x"), x="neg"))
    return Module("looped", "main", (condition(), body(), entry))


@pytest.fixture(scope="module")
def branched() -> Module:
    """A branch of three by an integer, each a computation of its own, in a branch of two by a pred."""

    def branch(name: str, opcode: str) -> Computation:
        return computation(
            name,
            inst(f"{name}.p", "parameter", (3,), number=0),
            inst(f"{name}.v", opcode, (3,), f"{name}.p", f"{name}.p"),
        )

    pair = TupleShape((Shape(S32), Shape(F32, (3,))))
    inner = computation(
        "inner",
        inst("i.p", "parameter", pair, number=0),
        element("i.n", "i.p", 0, S32),
        element("i.x", "i.p", 1),
        inst("i.y", "conditional", (3,), "i.n", "i.x", "i.x", "i.x", called=("b0", "b1", "b2")),
    )
    other = computation("other", inst("o.p", "parameter", (3,), number=0))
    entry = computation(
        "main",
        *parameters("x"),
        inst("n", "parameter", S32, number=1),
        inst("p", "parameter", PRED, number=2),
        inst("a", "add", (3,), "x", "x"),
        inst("t", "tuple", pair, "n", "a"),
        inst("c", "conditional", (3,), "p", "t", "x", called=("inner", "other")),
        inst("y", "multiply", (3,), "c", "c"),
    )
    computations = (branch("b0", "add"), branch("b1", "multiply"), branch("b2", "divide"), inner, other)
    return Module("branched", "main", (*computations, entry))


X = np.array([1.2345678, -0.7654321, 3.1415927], np.float32)
W = np.array([0.87654321, 1.1111111, -0.33333334], np.float32)
SETTINGS = [("none", "bf16"), *itertools.product(("matmult", "all"), CAST_TYPES)]


def check(
    model: Module, *inputs: Any, auto_cast: str = "all", cast_type: str = "bf16", **functions: Any
) -> Module:
    """The planned module, which verifies and gives what rule A2 read op by op gives, bit for bit."""
    verify(model)
    result = planned(model, auto_cast, cast_type)
    verify(result)
    kinds = {"f": F32, "i": S32, "b": PRED}
    arrays = [np.asarray(x) for x in inputs]
    expected = flat(read_module(model, arrays, CAST_TYPES[cast_type], auto_cast, **functions))
    got = flat(execute(result, [bits(x, kinds[x.dtype.kind]) for x in arrays]))
    assert [g.dtype for g in got] == [s.dtype for s in model.root.shape.arrays()]
    assert [g.data.tobytes() for g in got] == [np.asarray(e).tobytes() for e in expected]
    return result


@pytest.mark.parametrize(("auto_cast", "cast_type"), SETTINGS)
def test_a_loop_computes_A2(looped: Module, auto_cast: str, cast_type: str) -> None:
    check(looped, X, W, auto_cast=auto_cast, cast_type=cast_type)


@pytest.mark.parametrize("chosen", [(True, 0), (True, 1), (True, 2), (True, 7), (False, 0)])
@TYPES
def test_branches_compute_A2(branched: Module, cast_type: str, chosen: tuple[bool, int]) -> None:
    check(branched, X, np.array(chosen[1], np.int32), np.array(chosen[0]), cast_type=cast_type)


def test_every_graph_is_planned(looped: Module, branched: Module) -> None:
    assert list(plan_of(looped).decisions) == ["b.third", "b.m", "b.x1", "neg", "loop", "y"]
    assert list(plan_of(branched).decisions) == ["b0.v", "b1.v", "b2.v", "a", "y"]
    assert plan_of(looped, "matmult").decisions == {}


def listed(c: Computation) -> list[str]:
    """The instructions of a computation, but for parameters and elements of tuples."""
    left_out = ("parameter", "get-tuple-element")

    def types(i: Instruction) -> str:
        return "/".join(s.dtype.name for s in i.shape.arrays())

    return [
        f"{i.name} = {types(i)} {i.opcode}({', '.join(i.operands)})"
        for i in c.instructions
        if i.opcode not in left_out
    ]


def test_a_loop_carries_planned_types_A2(looped: Module) -> None:
    result = planned(looped)
    state = TupleShape((Shape(S32), Shape(BF16, (3,)), Shape(BF16, (3,))))
    assert result.by_name["cond"].parameters[0].shape == state
    assert result.by_name["body"].parameters[0].shape == state
    # In the body nothing is converted but the constant.
    assert listed(result.by_name["body"]) == [
        "b.one = int32 constant()",
        "b.n1 = int32 add(b.n, b.one)",
        "b.third = float32 constant()",
        "b.m = bfloat16 multiply(b.x, b.w)",
        "b.third.to_bf16 = bfloat16 convert(b.third)",
        "b.x1 = bfloat16 add(b.m, b.third.to_bf16)",
        "b.out = int32/bfloat16/bfloat16 tuple(b.n1, b.x1, b.w)",
    ]
    assert listed(result.entry_computation) == [
        "x.to_bf16 = bfloat16 convert(x)",
        "neg = bfloat16 negate(x.to_bf16)",
        "zero = int32 constant()",
        "w.to_bf16 = bfloat16 convert(w)",
        "s = int32/bfloat16/bfloat16 tuple(zero, neg, w.to_bf16)",
        "loop = int32/bfloat16/bfloat16 while(s)",
        "y = bfloat16 multiply(got, got)",
        "y.to_f32 = float32 convert(y)",
    ]


@pytest.mark.parametrize(("auto_cast", "cast_type"), [("matmult", "bf16"), ("all", "tf32")])
def test_a_loop_keeps_the_types_of_the_model_A2(looped: Module, auto_cast: str, cast_type: str) -> None:
    # A1 is about products alone, and HLO has no type for tfloat32.
    result = planned(looped, auto_cast, cast_type)
    assert "loop" not in plan_of(looped, auto_cast, cast_type).decisions
    assert result.by_name["cond"] is looped.by_name["cond"]
    assert result.by_name["body"].parameters == looped.by_name["body"].parameters
    assert result.entry_computation.by_name["loop"].shape == STATE


@TYPES
def test_a_planned_loop_survives_writing_and_reading(looped: Module, cast_type: str) -> None:
    result = planned(looped, "all", cast_type)
    again = proto.from_bytes(proto.to_bytes(result))
    assert fingerprint(again) == fingerprint(result)
    got, expected = (execute(m, [bits(X), bits(W)]).data for m in (again, result))
    np.testing.assert_array_equal(got, expected)
    # The plan of the model fits the model that was written and read.
    same = apply_plan(proto.from_bytes(proto.to_bytes(looped)), plan_of(looped, "all", cast_type))
    assert fingerprint(same) == fingerprint(result)


def test_borders_keep_the_types_of_the_model_A2(looped: Module, branched: Module) -> None:
    for model, cast_type in itertools.product((looped, branched), CAST_TYPES):
        result = planned(model, "all", cast_type)
        assert [c.name for c in result.computations] == [c.name for c in model.computations]
        for old, new in zip(model.computations, result.computations, strict=True):
            if old.name in ("body", "cond"):
                continue  # a loop's are the test above
            assert new.parameters == old.parameters
            assert new.by_name[new.root].shape == old.by_name[old.root].shape


def test_none_changes_nothing(looped: Module, branched: Module) -> None:
    assert planned(looped, "none") is looped
    assert planned(branched, "none") is branched
    # Nor does a plan touch a computation of which it decides nothing: its dead tuple, its order.
    dead = inst("b.dead", "tuple", TupleShape((Shape(S32),)), "b.n")
    old = looped.by_name["body"]
    new = Computation("body", (*old.instructions, dead), old.root)
    model = dataclasses.replace(looped, computations=(condition(), new, looped.entry_computation))
    assert planned(model, "none") is model
    plan = plan_of(model, "none")
    neg = plan_of(model).decisions["neg"]
    result = apply_plan(model, dataclasses.replace(plan, decisions={"neg": neg}))
    assert result.by_name["body"] is new


def test_planning_is_repeatable(looped: Module) -> None:
    plan = plan_of(looped)
    assert plan == plan_of(looped)
    assert plan.diff(plan_of(looped)) == {}
    assert Plan.from_json(plan.to_json()) == plan
    assert planned(looped) == planned(looped)
    again = planned(planned(looped))
    got, twice = (execute(m, [bits(X), bits(W)]).data for m in (planned(looped), again))
    np.testing.assert_array_equal(got, twice)


def test_explain_and_diff_name_the_instructions_of_a_loop(looped: Module) -> None:
    plan, none = plan_of(looped), plan_of(looped, "none")
    assert plan.explain("b.m").startswith("b.m reads bfloat16 and gives bfloat16 (A2")
    assert plan.explain("loop") == (
        "loop reads bfloat16 and gives bfloat16 (A2: all/bf16 carries the values of loops as bfloat16)"
    )
    assert plan.explain("b.third").endswith(
        "(A2: all/bf16 converts constants to bfloat16 once: their readers' copies are bfloat16)"
    )
    assert plan.explain("got", looped) == (
        "got gives bfloat16 in the planned module, in which loops and tuples hold what was rounded"
    )
    assert none.diff(plan)["b.m"] == (None, plan.decisions["b.m"])


def test_names_that_two_computations_share_are_told_apart(looped: Module) -> None:
    def renamed(c: Computation) -> Computation:
        new = {i.name: i.name.removeprefix("b.") for i in c.instructions}
        new |= {"b.w": "w", "b.x": "x", "b.m": "y"}
        changed = (
            i.replace(name=new[i.name], operands=tuple(new[o] for o in i.operands))
            for i in c.instructions
        )
        return Computation(c.name, tuple(changed), new[c.root])

    model = dataclasses.replace(
        looped, computations=tuple(renamed(c) if c.name == "body" else c for c in looped.computations)
    )
    plan = plan_of(model)
    assert list(plan.decisions) == ["third", "body.y", "x1", "neg", "loop", "y"]
    result = apply_plan(model, plan)
    assert result.by_name["body"].by_name["body.y"].array.dtype is BF16
    got, expected = (execute(m, [bits(X), bits(W)]).data for m in (result, planned(looped)))
    np.testing.assert_array_equal(got, expected)
    # One of the two alone.
    one = dataclasses.replace(plan, decisions={"body.y": plan.decisions["body.y"]})
    alone = apply_plan(model, one)
    assert alone.by_name["body"].by_name["body.y"].array.dtype is BF16
    assert alone.entry_computation.by_name["y"].array.dtype is F32


def test_fusions_in_a_loop_are_planned_by_their_instructions(looped: Module) -> None:
    square = computation(
        "sq", inst("q.p", "parameter", (3,), number=0), inst("q.m", "multiply", (3,), "q.p", "q.p")
    )
    fused = inst("b.m", "fusion", (3,), "b.x", called=("sq",), fusion_kind="kLoop")
    new = with_instruction(looped.by_name["body"], fused)
    model = dataclasses.replace(
        looped, computations=(square, condition(), new, looped.entry_computation)
    )
    assert set(plan_of(model).decisions) == {"b.third", "b.m.q.m", "b.x1", "neg", "loop", "y"}
    check(model, X, W)


def test_a_loop_over_one_array_carries_the_planned_type_A2() -> None:
    halve = computation(
        "halve",
        inst("h.p", "parameter", (), number=0),
        constant("h.c", 0.7),
        inst("h.m", "multiply", (), "h.p", "h.c"),
    )
    above = computation(
        "above",
        inst("a.p", "parameter", (), number=0),
        constant("a.c", 0.1),
        inst("a.gt", "compare", PRED, "a.p", "a.c", comparison_direction="GT"),
    )
    loop = inst("l", "while", (), "x", called=("halve", "above"))
    model = unverified(inst("x", "parameter", (), number=0), loop, others=(above, halve))
    x = np.float32(1.2345678)
    result = check(model, x)
    assert result.by_name["halve"].root == "h.m"
    assert result.by_name["halve"].parameters[0].array.dtype is BF16
    assert result.root.name == "l.to_f32"
    exact = read_module(model, [np.asarray(x)], F32, "none")
    assert exact != read_module(model, [np.asarray(x)], BF16, "all")


@pytest.mark.parametrize("name", ["s", "got", "b.s", "b.out", "b.n1", "x", "b.one", "c.lt"])
def test_what_keeps_its_type_cannot_be_decided_A2(looped: Module, name: str) -> None:
    low = Decision(BF16, F32, BF16, "by hand")
    plan = dataclasses.replace(plan_of(looped, "none"), decisions={name: low})
    with pytest.raises(InvalidArgument, match=rf"\b{name} is a .* keeps the types of the model"):
        check_plan(plan, looped)


@pytest.mark.parametrize(
    ("operand", "output"), [(BF16, dtypes.float16), (dtypes.tfloat32, dtypes.tfloat32), (S32, BF16)]
)
def test_a_loop_carries_one_type_of_hlo_A2(looped: Module, operand: DType, output: DType) -> None:
    plan = dataclasses.replace(
        plan_of(looped, "none"), decisions={"loop": Decision(operand, F32, output, "by hand")}
    )
    with pytest.raises(InvalidArgument, match="loop carries its values in one type"):
        check_plan(plan, looped)


# ---- states of other forms -------------------------------------------------------------------------


def in_entry(*before: Instruction, others: tuple[Computation, ...]) -> Module:
    return unverified(*parameters("x", "w"), *before, others=others)


def with_instruction(c: Computation, new: Instruction) -> Computation:
    """The computation with another instruction in the place of the one of its name."""
    return Computation(c.name, tuple(new if i.name == new.name else i for i in c.instructions), c.root)


def renamed(c: Computation, name: str) -> Computation:
    """A copy, of which every name begins with the new one."""
    return Computation(
        name,
        tuple(
            i.replace(name=f"{name}.{i.name}", operands=tuple(f"{name}.{o}" for o in i.operands))
            for i in c.instructions
        ),
        f"{name}.{c.root}",
    )


@TYPES
def test_a_loop_of_no_trips_rounds_its_initial_values_A2(cast_type: str) -> None:
    entry = [*loop(), tuple_of("out", ("got", (3,)), ("x", (3,)))]
    model = in_entry(*entry, others=(condition(trips=0), body()))
    check(model, X, W, cast_type=cast_type)
    got, x = execute(planned(model, "all", cast_type), [bits(X), bits(W)])
    assert x.data.tobytes() == X.tobytes()
    kept = cast_type == "tf32"  # HLO has no type that would carry it
    assert (got.data.tobytes() == X.tobytes()) is kept


@TYPES
def test_a_tuple_for_a_loop_is_not_rounded_for_others_A2(cast_type: str) -> None:
    # s is made for the loop; its elements, and it itself, are x as it is.
    taken = element("again", "s", 1)
    entry = [*loop(), taken, tuple_of("out", ("y", (3,)), ("again", (3,)), ("s", STATE))]
    model = in_entry(*entry, others=(condition(), body()))
    result = check(model, X, W, cast_type=cast_type)
    got = execute(result, [bits(X), bits(W)])
    assert got[1].data.tobytes() == got[2][1].data.tobytes() == X.tobytes()


NESTED = TupleShape((Shape(S32), TupleShape((STATE, TupleShape(())))))


def nested_model(*after: Instruction) -> Module:
    """The loop's state inside tuples, with an empty one beside it."""
    trip = computation(
        "body",
        inst("n.p", "parameter", NESTED, number=0),
        element("n.k", "n.p", 0, S32),
        element("n.q", "n.p", 1, NESTED.elements[1]),
        element("n.s", "n.q", 0, STATE),
        element("n.e", "n.q", 1, TupleShape(())),
        *(i.replace(operands=("n.s",)) for i in body().instructions if i.operands == ("b.s",)),
        *(i for i in body().instructions[4:]),
        tuple_of("n.i", ("b.out", STATE), ("n.e", TupleShape(()))),
        tuple_of("n.out", ("n.k", S32), ("n.i", NESTED.elements[1])),
    )
    test = computation(
        "cond",
        inst("m.p", "parameter", NESTED, number=0),
        element("m.q", "m.p", 1, NESTED.elements[1]),
        element("c.s", "m.q", 0, STATE),
        *condition().instructions[1:],
    )
    return in_entry(
        constant("zero", 0, S32),
        inst("neg", "negate", (3,), "x"),
        tuple_of("s", ("zero", S32), ("neg", (3,)), ("w", (3,))),
        inst("e", "tuple", TupleShape(())),
        tuple_of("i", ("s", STATE), ("e", TupleShape(()))),
        tuple_of("o", ("zero", S32), ("i", NESTED.elements[1])),
        inst("loop", "while", NESTED, "o", called=("body", "cond")),
        *after,
        others=(test, trip),
    )


@TYPES
def test_a_loop_carries_tuples_of_tuples_A2(cast_type: str) -> None:
    result = check(nested_model(), X, W, cast_type=cast_type)
    taken = nested_model(
        element("q", "loop", 1, NESTED.elements[1]),
        element("t", "q", 0, STATE),
        element("got", "t", 1),
        inst("y", "multiply", (3,), "got", "got"),
        element("si", "i", 0, STATE),  # taken from what the loop's operand is made of
        tuple_of("out", ("y", (3,)), ("t", STATE), ("si", STATE), ("i", NESTED.elements[1])),
    )
    check(taken, X, W, cast_type=cast_type)
    low = F32 if cast_type == "tf32" else CAST_TYPES[cast_type]
    carried = result.entry_computation.by_name["loop"].shape.arrays()
    assert [s.dtype for s in carried] == [S32, S32, low, low]


@TYPES
def test_a_loop_in_a_loop_carries_its_types_A2(cast_type: str) -> None:
    # The outer state is the inner's; the inner counts anew.
    outer = computation(
        "outer",
        inst("o.s", "parameter", STATE, number=0),
        element("o.n", "o.s", 0, S32),
        element("o.x", "o.s", 1),
        element("o.w", "o.s", 2),
        constant("o.zero", 0, S32),
        constant("o.one", 1, S32),
        inst("o.n1", "add", S32, "o.n", "o.one"),
        tuple_of("o.t", ("o.zero", S32), ("o.x", (3,)), ("o.w", (3,))),
        inst("o.loop", "while", STATE, "o.t", called=("body", "cond")),
        element("o.x1", "o.loop", 1),
        tuple_of("o.out", ("o.n1", S32), ("o.x1", (3,)), ("o.w", (3,))),
    )
    # The condition is both loops'.
    entry = (i.replace(attributes={"called": ("outer", "cond")}) if i.called else i for i in loop())
    model = in_entry(*entry, others=(condition(), body(), outer))
    result = check(model, X, W, cast_type=cast_type)
    if cast_type != "tf32":
        converts = [i for i in result.by_name["outer"].instructions if i.opcode == "convert"]
        assert converts == []


@pytest.mark.parametrize("taken", [True, False])
@TYPES
def test_a_loop_in_a_branch_keeps_the_branchs_types_A2(cast_type: str, taken: bool) -> None:
    branch = computation(
        "branch",
        inst("r.s", "parameter", STATE, number=0),
        inst("r.loop", "while", STATE, "r.s", called=("body", "cond")),
    )
    other = computation("other", inst("k.s", "parameter", STATE, number=0))
    model = in_entry(
        inst("p", "parameter", PRED, number=2),
        constant("zero", 0, S32),
        tuple_of("s", ("zero", S32), ("x", (3,)), ("w", (3,))),
        inst("c", "conditional", STATE, "p", "s", "s", called=("branch", "other")),
        others=(condition(), body(), branch, other),
    )
    result = check(model, X, W, taken, cast_type=cast_type)
    new = result.by_name["branch"]
    assert new.parameters[0].shape == new.by_name[new.root].shape == STATE


@TYPES
def test_values_that_are_not_rounded_are_rounded_by_the_loop_A2(cast_type: str) -> None:
    """A branch in the body gives an exact value of which no decided instruction is the source."""
    exact = computation(
        "exact", inst("e.p", "parameter", (3,), number=0), constant("e.k", X + np.float32(1e-6))
    )
    same = computation("same", inst("f.p", "parameter", (3,), number=0))
    trip = computation(
        "body",
        *(i for i in body().instructions[:6]),
        constant("b.zero", 0, S32),
        inst("b.first", "compare", PRED, "b.n", "b.zero", comparison_direction="EQ"),
        inst("b.c", "conditional", (3,), "b.first", "b.x", "b.x", called=("exact", "same")),
        inst("b.out", "tuple", STATE, "b.n1", "b.c", "b.w"),
    )
    model = in_entry(*loop()[:-1], others=(exact, same, condition(), trip))
    check(model, X, W, cast_type=cast_type)


@TYPES
def test_barriers_and_tokens_pass_values_on_A2(cast_type: str) -> None:
    entry = [
        inst("neg", "negate", (3,), "x"),
        *loop(x="neg"),
        inst("b", "opt-barrier", STATE, "loop"),
        element("bx", "b", 1),
        inst("z", "add", (3,), "bx", "y"),
        Instruction("after", "after-all", TOKEN, ()),
        Instruction("kt", "tuple", TupleShape((TOKEN, Shape(F32, (3,)))), ("after", "z")),
        element("kz", "kt", 1),
        Instruction("d", "add-dependency", Shape(F32, (3,)), ("kz", "after")),
        inst("dead", "tuple", STATE, "zero", "z", "w"),
        inst("none", "tuple", TupleShape(())),
        tuple_of("out", ("d", (3,)), ("none", TupleShape(())), ("b", STATE)),
    ]
    check(in_entry(*entry, others=(condition(), body())), X, W, cast_type=cast_type)


@TYPES
def test_views_read_a_loops_result_in_float32_A2(cast_type: str) -> None:
    view = inst("v", "bitcast-convert", (3,), "got", dtype=S32)
    model = in_entry(*loop(), view, others=(condition(), body()))
    views = {"bitcast_convert": lambda i, v: v[0].view(np.int32)}
    check(model, X, W, cast_type=cast_type, **views)


# ---- computations with several callers -------------------------------------------------------------


def two_loops() -> Module:
    """Two loops with one body and a condition each, and a third with the second's condition."""
    conditions = [renamed(condition(), name) for name in ("c1", "c2")]
    entry = [
        constant("zero", 0, S32),
        tuple_of("s", ("zero", S32), ("x", (3,)), ("w", (3,))),
        inst("l1", "while", STATE, "s", called=("body", "c1")),
        inst("l2", "while", STATE, "s", called=("body", "c2")),
        inst("l3", "while", STATE, "s", called=("other", "c2")),
        tuple_of("out", ("l1", STATE), ("l2", STATE), ("l3", STATE)),
    ]
    return in_entry(*entry, others=(*conditions, body(), renamed(body(), "other")))


@TYPES
def test_loops_share_computations_A2(cast_type: str) -> None:
    check(two_loops(), X, W, cast_type=cast_type)


@pytest.mark.parametrize(
    ("left", "message"),
    [
        (("l1",), "l1 and l2 share body and cannot carry bfloat16 and float32"),
        (("l1", "l2"), "l2 and l3 share c2 and cannot carry bfloat16 and float32"),
        (("l2", "l3"), "l1 and l2 share body and cannot carry float32 and bfloat16"),
    ],
)
def test_loops_that_share_a_computation_carry_one_type(left: tuple[str, ...], message: str) -> None:
    plan = plan_of(two_loops())
    decisions = {n: d for n, d in plan.decisions.items() if n in left}
    with pytest.raises(InvalidArgument, match=message):
        apply_plan(two_loops(), dataclasses.replace(plan, decisions=decisions))


@TYPES
def test_a_body_that_is_a_branch_too_keeps_the_types_of_the_model(cast_type: str) -> None:
    model = two_loops()
    old = model.entry_computation.instructions
    other = computation("keep", inst("k.p", "parameter", STATE, number=0))
    branch = (
        inst("p", "parameter", PRED, number=2),
        inst("c", "conditional", STATE, "p", "s", "s", called=("body", "keep")),
        tuple_of("out", ("c", STATE), ("l1", STATE), ("l2", STATE), ("l3", STATE)),
    )
    entry = Computation("main", (*old[:-1], *branch), "out")
    model = dataclasses.replace(model, computations=(*model.computations[:-1], other, entry))
    plan = plan_of(model, "all", cast_type)
    # So does a loop that shares a condition with one that shares the body.
    assert not {"l1", "l2", "l3"} & plan.decisions.keys()
    verify(model)
    result = apply_plan(model, plan)
    verify(result)
    assert result.by_name["other"].parameters[0].shape == STATE
    if cast_type != "tf32":
        decision = plan.decisions["b.m"]
        by_hand = dataclasses.replace(plan, decisions={"l1": decision, "l2": decision, "l3": decision})
        with pytest.raises(InvalidArgument, match=r"l\d and c share body and cannot carry"):
            apply_plan(model, by_hand)
