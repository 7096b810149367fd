"""The literal application: a convert in front of each reader, and the bits of the shared one, but under
stochastic rounding (S2).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.casting.border_modules import tuple_of
from tests.casting.planning_by_hand import decide, plan_of, planned
from tests.executor.random_modules import Example, modules
from tests.support.graphs import computation, constant, inst, module_of, parameter
from tests.support.running import contents, result_bytes
from tests.support.running import execute as execute_by_position

from neuronsim import api, dtypes, ops
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.flags import CAST_TYPES
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies import find_policy, with_rules
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.casting.policies.policy import Rule
from neuronsim.dtypes import float_format
from neuronsim.hlo import text
from neuronsim.hlo.module import Computation, Module, Shape, TupleShape
from neuronsim.hlo.verify import verify
from neuronsim.profiles import Profile

F32, F16, BF16, TF32 = dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.tfloat32
TYPES = pytest.mark.parametrize("cast_type", CAST_TYPES)


def converts(module: Module) -> list[tuple[str, str]]:
    """Each convert of the entry with what it reads, in order."""
    opcodes = ("convert", "reduce-precision")
    body = module.entry_computation.instructions
    return [(i.name, i.operands[0]) for i in body if i.opcode in opcodes]


def squares() -> Module:
    """The product of a value with itself, and its sum with the same value."""
    dot = ops.DotDimensions((0,), (0,))
    return module_of(
        parameter("x", (64,)),
        inst("e", "negate", (64,), "x"),
        inst("d", "dot", (), "e", "e", dot_dimensions=dot),
        inst("a", "add", (64,), "e", "e"),
        tuple_of("out", ("d", ()), ("a", (64,))),
    )


def test_each_read_has_a_convert_right_in_front_of_its_reader() -> None:
    model = squares()
    low = {"d": decide(BF16, F32), "a": decide(BF16)}
    literal = planned(model, clean=False, **low)
    assert converts(literal) == [
        *((f"e.to_bf16.{place}", "e") for place in ("d.0", "d.1", "a.0", "a.1")),
        ("a.to_f32.result.1", "a"),
    ]
    order = [i.name for i in literal.entry_computation.instructions]
    assert order[order.index("d") - 2 : order.index("d")] == ["e.to_bf16.d.0", "e.to_bf16.d.1"]
    assert order[order.index("a") - 2 : order.index("a")] == ["e.to_bf16.a.0", "e.to_bf16.a.1"]
    assert literal.entry_computation.by_name["d"].operands == ("e.to_bf16.d.0", "e.to_bf16.d.1")
    assert converts(planned(model, **low)) == [("e.to_bf16", "e"), ("a.to_f32", "a")]


def test_what_is_given_is_converted_once_A2() -> None:
    model = module_of(
        parameter("x", (4,)),
        constant("k", np.full(4, 1 / 3)),
        inst("a", "add", (4,), "x", "k"),
        inst("b", "multiply", (4,), "x", "k"),
        inst("c", "divide", (4,), "a", "b"),
        inst("f", "subtract", (4,), "x", "k"),
        tuple_of("out", ("c", (4,)), ("f", (4,))),
    )
    low = dict.fromkeys("kab", decide(BF16)) | {"f": decide(F16)}
    assert converts(planned(model, clean=False, **low)) == [
        *(("x.to_bf16", "x"), ("k.to_bf16", "k")),
        *(("a.to_f32.c.0", "a"), ("b.to_f32.c.1", "b")),  # c is not decided
        *(("x.to_f16", "x"), ("k.to_f16", "k"), ("f.to_f32.result.1", "f")),
    ]


def test_tuples_are_converted_for_each_reader() -> None:
    """Two loops that carry a pair in two types, from one tuple."""
    state = TupleShape((Shape(F32, (2,)), Shape(dtypes.boolean)))

    def stays(name: str) -> tuple[Computation, Computation]:
        given = inst("p", "parameter", state, number=0)
        stop = inst("stop", "get-tuple-element", dtypes.boolean, "p", tuple_index=1)
        return computation(f"{name}.body", given), computation(f"{name}.condition", given, stop)

    model = module_of(
        parameter("x", (2,)),
        inst("e", "negate", (2,), "x"),
        constant("off", False, dtypes.boolean),
        inst("t", "tuple", state, "e", "off"),
        *(inst(n, "while", state, "t", called=(f"{n}.body", f"{n}.condition")) for n in "lm"),
        *(inst(f"{n}.x", "get-tuple-element", (2,), n, tuple_index=0) for n in "lm"),
        inst("s", "add", (2,), "l.x", "m.x"),
        others=(*stays("l"), *stays("m")),
    )
    same = {n: decide(BF16, reason=n) for n in "lm"}
    literal, shared = planned(model, clean=False, **same), planned(model, **same)
    assert [source for _, source in converts(literal)] == ["e", "e", "l.x", "m.x"]
    assert [source for _, source in converts(shared)] == ["e", "l.x", "m.x"]
    x = np.array([1.1, -2.3], np.float32)
    assert result_bytes(literal, x) == result_bytes(shared, x)


# ---- the same bits, but under stochastic rounding ----------------------------------------------


@pytest.mark.parametrize("low", [BF16, F16, TF32, dtypes.float8_e5m2], ids=lambda t: t.name)
def test_shared_converts_change_draws_S2(low: dtypes.DType) -> None:
    """dot(e, e) of two draws of e is not that of one; to nearest there are no draws."""
    model = squares()
    x = np.random.default_rng(1).uniform(1, 2, 64).astype(np.float32)
    plan = {"d": decide(low, F32)}
    literal, shared = planned(model, clean=False, **plan), planned(model, **plan)
    assert result_bytes(literal, x) == result_bytes(shared, x)
    for seed in range(3):
        drawn = [result_bytes(m, x, rounding="stochastic", seed=seed)[0] for m in (literal, shared)]
        assert drawn[0] != drawn[1]
    # A plan that itself rounds stochastically does not share either.
    plan = {"d": decide(low, F32, rounding="stochastic")}
    literal, shared = planned(model, clean=False, **plan), planned(model, **plan)
    assert result_bytes(literal, x) == result_bytes(shared, x) != result_bytes(shared, x, seed=1)


@pytest.mark.parametrize(("rounding", "count"), [("stochastic", 2), ("nearest_even", 1)])
def test_a_program_that_rounds_stochastically_is_applied_literally_S2(
    rounding: str, count: int
) -> None:
    profile = Profile(rounding=rounding)
    program = api.compile(squares(), auto_cast="matmult", auto_cast_type="bf16", profile=profile)
    assert [source for _, source in converts(program.module)] == ["e"] * count


def products() -> Module:
    """Products that share a value and a product, and the sum of the last two."""
    dot = {"dot_dimensions": ops.DotDimensions((1,), (0,))}
    return module_of(
        parameter("x", (6, 6)),
        inst("p", "tanh", (6, 6), "x"),
        inst("a", "dot", (6, 6), "p", "p", **dot),
        inst("b", "dot", (6, 6), "p", "a", **dot),
        inst("c", "dot", (6, 6), "p", "b", **dot),
        inst("s", "add", (6, 6), "c", "b"),
    )


X = np.random.default_rng(3).normal(size=(6, 6)).astype(np.float32)


def test_a_plan_that_states_stochastic_is_applied_literally_S2() -> None:
    """Of a single product, under a profile that rounds to nearest."""
    model = products()
    only = Rule("drawn", "always", rounding="stochastic", name=("c",))
    plan = make_plan(model, with_rules(find_policy("matmult/bf16"), only))
    clean, literal = (api.compile(model, plan=plan, clean=c) for c in (True, False))
    assert text.to_text(clean.module) == text.to_text(literal.module)
    drawn = [np.asarray(p(X, seed=s)).tobytes() for p in (clean, literal) for s in (1, 2)]
    assert drawn[:2] == drawn[2:]
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize("value", ["p", "x"])
@pytest.mark.parametrize("other", ["", "nearest_even"])
def test_what_a_convert_draws_hangs_on_its_own_reader_S2(value: str, other: Any) -> None:
    """Not on what the plan decides of others that read the same value before it."""
    c = inst("c", "dot", (6, 6), value, value, dot_dimensions=ops.DotDimensions((1,), (0,)))
    before = [inst(n, "sine", (6, 6), value) for n in "ef"]
    root = tuple_of("out", *((n, (6, 6)) for n in "efc"))
    model = module_of(parameter("x", (6, 6)), inst("p", "tanh", (6, 6), "x"), *before, c, root)
    drawn = {"c": decide(BF16, F32, rounding="stochastic")}
    alone = planned(model, **drawn)
    beside = planned(model, e=decide(BF16, rounding=other), f=decide(BF16), **drawn)
    results = [result_bytes(m, X, seed=1) for m in (alone, beside)]
    assert results[0][-1] == results[1][-1]
    assert results[0][0] != results[1][0]  # the other decision acts
    assert results[0][-1] != result_bytes(alone, X, seed=2)[-1]


@TYPES
@pytest.mark.parametrize("auto_cast", ["matmult", "all"])
def test_literal_and_shared_give_the_same_bits(model: Module, auto_cast: str, cast_type: str) -> None:
    plan = make_plan(model, neuron_policy(auto_cast, cast_type))  # type: ignore[arg-type]
    rng = np.random.default_rng(4)
    x, n = rng.normal(size=(3, 5)).astype(np.float32), np.array([3, -7, 257], np.int32)
    literal, shared = apply_plan(model, plan, clean=False), apply_plan(model, plan)
    verify(literal)
    assert result_bytes(literal, x, n) == result_bytes(shared, x, n)


LOWS = [BF16, F16, TF32, dtypes.float8_e4m3, float_format(6, 9), float_format(4, 3)]
MIXED = st.lists(st.sampled_from(LOWS), min_size=1, max_size=3)


@settings(max_examples=40, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(modules(), MIXED, st.integers(0, 2**32 - 1))
def test_literal_and_shared_give_the_same_bits_on_random_modules(
    example: Example, lows: list[dtypes.DType], seed: int
) -> None:
    """Of random decisions in several low types, random slots, and outputs in planned types."""
    rng = np.random.default_rng(seed)
    model = example.module
    decisions: dict[str, Any] = {}
    for low in lows:
        policy = dataclasses.replace(neuron_policy("all", "bf16"), low=low)
        for name, d in make_plan(model, policy).decisions.items():
            if rng.random() < 0.5:
                decisions[name] = d
    plan = plan_of(model, decisions, keep_output_type=bool(rng.integers(2)))
    literal, shared = apply_plan(model, plan, clean=False), apply_plan(model, plan)
    verify(literal)
    verify(shared)
    got = [execute_by_position(m, example.inputs) for m in (literal, shared)]
    assert contents(got[0]) == contents(got[1])
