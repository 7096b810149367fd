"""Plans of loops, branches, calls in them, and what crosses their borders (A2)."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from tests.casting.reading import read_module
from tests.casting.running import execute

from neuronsim import dtypes, ops
from neuronsim.casting.apply import apply_plan
from neuronsim.casting.flags import CAST_TYPES
from neuronsim.casting.plan import Decision, Plan, check_plan, fingerprint, make_plan
from neuronsim.casting.policy import neuron_policy
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument
from neuronsim.hlo import proto
from neuronsim.hlo.module import Computation, Instruction, Module, Shape, TupleShape

F32, BF16, S32, PRED = dtypes.float32, dtypes.bfloat16, dtypes.int32, dtypes.boolean
TYPES = pytest.mark.parametrize("cast_type", CAST_TYPES)
STATE = TupleShape((Shape(S32), Shape(F32, (3,)), Shape(F32, (3,))))


def planned(module: Module, auto_cast: str = "all", cast_type: str = "bf16") -> Module:
    return apply_plan(module, plan_of(module, auto_cast, cast_type))


def plan_of(module: Module, auto_cast: str = "all", cast_type: str = "bf16") -> Plan:
    return make_plan(module, neuron_policy(auto_cast, cast_type))  # type: ignore[arg-type]


def inst(name: str, opcode: str, shape: Any, *operands: str, **more: Any) -> Instruction:
    if not isinstance(shape, TupleShape):
        shape = Shape(F32, shape) if isinstance(shape, tuple) else Shape(shape)
    return Instruction(name, opcode, shape, operands, more)


def constant(name: str, value: Any, dtype: DType = F32) -> Instruction:
    data = np.asarray(value, dtype.numpy)
    return Instruction(
        name,
        "constant",
        Shape(dtype, data.shape),
        (),
        {"literal": ops.Bits(data.view(dtype.storage), dtype)},
    )


def computation(name: str, *body: Instruction) -> Computation:
    return Computation(name, body, body[-1].name)


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


def bits(x: Any, dtype: DType = F32) -> ops.Bits:
    return ops.Bits(np.asarray(x, dtype.numpy).view(dtype.storage), dtype)


X = np.array([1.2345678, -0.7654321, 3.1415927], np.float32)
W = np.array([0.87654321, 1.1111111, -0.33333334], np.float32)
SETTINGS = [("none", "bf16"), *itertools.product(("matmult", "all"), CAST_TYPES)]


@pytest.mark.parametrize(("auto_cast", "cast_type"), SETTINGS)
def test_a_loop_computes_A2(looped: Module, auto_cast: str, cast_type: str) -> None:
    expected = read_module(looped, [X, W], CAST_TYPES[cast_type], auto_cast)
    got = execute(planned(looped, auto_cast, cast_type), [bits(X), bits(W)])
    np.testing.assert_array_equal(got.data.view(np.uint32), expected.view(np.uint32))


@TYPES
def test_a_loop_differs_by_type(looped: Module, cast_type: str) -> None:
    # Else the test above could not fail.
    low = CAST_TYPES[cast_type]
    assert np.any(read_module(looped, [X, W], low, "all") != read_module(looped, [X, W], F32, "none"))


@pytest.mark.parametrize("chosen", [(True, 0), (True, 1), (True, 2), (True, 7), (False, 0)])
@TYPES
def test_branches_compute_A2(branched: Module, cast_type: str, chosen: tuple[bool, int]) -> None:
    taken, index = np.array(chosen[0]), np.array(chosen[1], np.int32)
    expected = read_module(branched, [X, index, taken], CAST_TYPES[cast_type], "all")
    inputs = [bits(X), bits(index, S32), bits(taken, PRED)]
    got = execute(planned(branched, "all", cast_type), inputs)
    np.testing.assert_array_equal(got.data.view(np.uint32), expected.view(np.uint32))


def test_every_graph_is_planned(looped: Module, branched: Module) -> None:
    assert list(plan_of(looped).decisions) == ["b.third", "b.m", "b.x1", "neg", "y"]
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


def test_converts_stand_at_the_borders_of_a_loop_A2(looped: Module) -> None:
    result = planned(looped)
    assert result.by_name["cond"] is looped.by_name["cond"]
    assert listed(result.by_name["body"]) == [
        "b.one = int32 constant()",
        "b.n1 = int32 add(b.n, b.one)",
        "b.third = float32 constant()",
        "b.x.to_bf16 = bfloat16 convert(b.x)",
        "b.w.to_bf16 = bfloat16 convert(b.w)",
        "b.m = bfloat16 multiply(b.x.to_bf16, b.w.to_bf16)",
        "b.third.to_bf16 = bfloat16 convert(b.third)",
        "b.x1 = bfloat16 add(b.m, b.third.to_bf16)",
        "b.x1.to_f32 = float32 convert(b.x1)",
        "b.out = int32/float32/float32 tuple(b.n1, b.x1.to_f32, b.w)",
    ]
    assert listed(result.entry_computation) == [
        "x.to_bf16 = bfloat16 convert(x)",
        "neg = bfloat16 negate(x.to_bf16)",
        "zero = int32 constant()",
        "neg.to_f32 = float32 convert(neg)",
        "s = int32/float32/float32 tuple(zero, neg.to_f32, w)",
        "loop = int32/float32/float32 while(s)",
        "got.to_bf16 = bfloat16 convert(got)",
        "y = bfloat16 multiply(got.to_bf16, got.to_bf16)",
        "y.to_f32 = float32 convert(y)",
    ]


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
            assert new.parameters == old.parameters
            assert new.by_name[new.root].shape == old.by_name[old.root].shape


def test_none_changes_nothing(looped: Module, branched: Module) -> None:
    assert planned(looped, "none") == looped
    assert planned(branched, "none") == branched


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
    assert plan.explain("b.m").startswith("b.m reads bfloat16, sums in float32 and gives bfloat16 (A2")
    assert plan.explain("loop") == "loop keeps the types of the model under all/bf16"
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
    assert list(plan.decisions) == ["third", "body.y", "x1", "neg", "y"]
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
    old = looped.by_name["body"]
    fused = inst("b.m", "fusion", (3,), "b.x", called=("sq",), fusion_kind="kLoop")
    new = Computation(
        "body", tuple(fused if i.name == "b.m" else i for i in old.instructions), old.root
    )
    model = dataclasses.replace(
        looped, computations=(square, condition(), new, looped.entry_computation)
    )
    assert set(plan_of(model).decisions) == {"b.third", "b.m.q.m", "b.x1", "neg", "y"}
    expected = read_module(model, [X, W], BF16, "all")
    got = execute(planned(model), [bits(X), bits(W)])
    np.testing.assert_array_equal(got.data.view(np.uint32), expected.view(np.uint32))


def test_a_loop_over_one_array_keeps_its_type_A2() -> None:
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
    entry = computation(
        "main",
        inst("x", "parameter", (), number=0),
        inst("l", "while", (), "x", called=("halve", "above")),
    )
    model = Module("m", "main", (above, halve, entry))
    result = planned(model)
    assert result.by_name["halve"].root == "h.m.to_f32"
    assert result.root.name == "l"
    x = np.float32(1.2345678)
    expected = read_module(model, [np.asarray(x)], BF16, "all")
    got = execute(result, [bits(x)])
    assert got.data.view(np.uint32) == expected.view(np.uint32)
    assert expected != read_module(model, [np.asarray(x)], F32, "none")


@pytest.mark.parametrize("name", ["loop", "s", "got", "b.s", "b.out", "b.n1", "x", "b.one", "c.lt"])
def test_what_keeps_its_type_cannot_be_decided_A2(looped: Module, name: str) -> None:
    low = Decision(BF16, F32, BF16, "by hand")
    plan = dataclasses.replace(plan_of(looped, "none"), decisions={name: low})
    with pytest.raises(InvalidArgument, match=rf"\b{name} is a .* keeps the types of the model"):
        check_plan(plan, looped)
