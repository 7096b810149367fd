"""Planned modules as files: XLA computes the same from them, and their types tell the plan again."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.executor import op_by_op
from tests.executor.test_random_modules import examples

import neuronsim
from neuronsim import dtypes
from neuronsim.casting.apply import apply_plan
from neuronsim.casting.derive import derive_decisions
from neuronsim.casting.flags import CAST_TYPES
from neuronsim.casting.plan import Plan, make_plan
from neuronsim.casting.policy import Decision, neuron_policy
from neuronsim.dtypes import DType
from neuronsim.hlo import parse, proto, text
from neuronsim.hlo.module import Computation, Instruction, Module, graph_computations, inline_calls
from neuronsim.hlo.verify import verify
from neuronsim.profiles import Profile

NETWORKS = sorted((Path(__file__).parents[1] / "data" / "networks").glob("*.hlo.pb"))
F32, BF16, F16, TF32 = dtypes.float32, dtypes.bfloat16, dtypes.float16, dtypes.tfloat32
ALL = [("all", t) for t in CAST_TYPES]
SETTINGS = [*(("matmult", t) for t in CAST_TYPES), *ALL]
SUMS = ("dot", "convolution", "reduce", "reduce-window")


def network(path: Path) -> Module:
    return proto.read(path)


def name_of(path: Path) -> str:
    return path.name.partition(".")[0]


# ---- the types from the file alone ---------------------------------------------------------------


def exported(model: Module, plan: Plan) -> Module:
    """The literal application of a plan, by way of a file."""
    return proto.from_bytes(proto.to_bytes(apply_plan(model, plan, clean=False)))


def instructions(module: Module) -> dict[str, tuple[Computation, Instruction]]:
    return {i.name: (c, i) for c in graph_computations(module) for i in c.instructions}


def assert_derived(model: Module, plan: Plan) -> None:
    """Every decision is read back from the file, but for what changes nothing: an operand type where
    the model's instruction reads no float32, and the types of a constant that no decided one reads. A
    constant is rounded as its readers state.
    """
    derived = derive_decisions(exported(model, plan))
    assert derived.keys() == plan.decisions.keys()
    found = instructions(inline_calls(model))
    for name, d in plan.decisions.items():
        c, i = found[name]
        read = {s.dtype for o in i.operands for s in c.by_name[o].shape.arrays()}
        if i.opcode == "constant":
            unread = all(u.name not in plan.decisions for u in c.users()[name])
            known = [d, *([dataclasses.replace(d, operand=F32, output=F32)] if unread else [])]
            assert dataclasses.replace(derived[name], rounding="") in known
        elif F32 not in read:
            assert dataclasses.replace(derived[name], operand=d.operand) == d
        else:
            assert derived[name] == d


@pytest.mark.isa_independent
@pytest.mark.parametrize("setting", SETTINGS, ids="/".join)
def test_types_of_a_planned_network_are_read_back(setting: Any) -> None:
    for path in NETWORKS:
        model = network(path)
        plan = make_plan(model, neuron_policy(*setting))
        assert plan.decisions
        assert_derived(model, plan)


@functools.cache
def random_models() -> tuple[Module, ...]:
    return tuple(e.module for e in examples(60)[::2])


@pytest.mark.isa_independent
@pytest.mark.parametrize("setting", SETTINGS, ids="/".join)
def test_types_of_a_planned_random_module_are_read_back(setting: Any) -> None:
    for model in random_models():
        assert_derived(model, make_plan(model, neuron_policy(*setting)))


def with_settings(model: Module, plan: Plan, rng: np.random.Generator) -> Plan:
    """The plan without a few decisions, and with accumulate types, roundings and relayouts where these
    say something.
    """
    decisions: dict[str, Decision] = {}
    found = instructions(inline_calls(model))
    for name, d in plan.decisions.items():
        _, i = found[name]
        if rng.random() < 0.15 and i.opcode != "while":
            continue
        own: dict[str, Any] = {}
        is_float = len(i.shape.arrays()) == 1 and i.shape.arrays()[0].dtype is F32
        if i.opcode in SUMS and is_float and rng.random() < 0.5:
            simple = i.opcode in ("dot", "convolution") or "reducer" in _reducer(model, i)
            own = {"accumulate": (F16, BF16)[rng.integers(2)]} if simple else {}
        elif i.opcode in ("add", "multiply", "exponential", "divide") and rng.random() < 0.5:
            own = {"rounding": str(rng.choice(["nearest_even", "stochastic"]))}
        elif i.opcode == "transpose" and _moves_minor_most(i) and is_float:
            own = {"relayout": F16, "saturate_infinity": bool(rng.integers(2))}
        decisions[name] = dataclasses.replace(d, **own)
    return dataclasses.replace(plan, decisions=decisions)


def _reducer(model: Module, i: Instruction) -> tuple[str, ...]:
    opcodes = [j.opcode for j in model.by_name[i.called[0]].instructions]
    return ("reducer",) if sorted(opcodes) == ["add", "parameter", "parameter"] else ()


def _moves_minor_most(i: Instruction) -> bool:
    axes = i.attributes["dimensions"]
    return bool(axes) and axes[-1] != len(axes) - 1


@pytest.mark.isa_independent
@pytest.mark.parametrize("low", [BF16, F16, TF32, dtypes.float_format(6, 9)], ids=lambda t: t.name)
def test_accumulate_types_roundings_and_relayouts_are_read_back(low: DType) -> None:
    rng = np.random.default_rng(3)
    policy = dataclasses.replace(neuron_policy("all", "bf16"), low=low)
    stated = {"accumulate": 0, "rounding": 0, "relayout": 0}
    for model in (*map(network, NETWORKS), *random_models()):
        plan = with_settings(model, make_plan(model, policy), rng)
        assert_derived(model, plan)
        for d in plan.decisions.values():
            stated["accumulate"] += d.accumulate is not F32
            stated["rounding"] += d.rounding != ""
            stated["relayout"] += d.relayout is not None
    least = {"accumulate": 20, "rounding": 50, "relayout": 3}
    assert [k for k, n in least.items() if stated[k] < n] == []


STATISTICS = """HloModule m
ENTRY e {
  x = f32[4,3] parameter(0)  s = f32[3] parameter(1)  b = f32[3] parameter(2)
  h = f32[4,3] exponential(x)
  n = (f32[4,3], f32[3], f32[3]) batch-norm-training(h, s, b), epsilon=0.001, feature_index=1
  y = f32[4,3] get-tuple-element(n), index=0
  m = f32[3] get-tuple-element(n), index=1
  t = f32[4,3] tanh(y)
  l = f32[3] logistic(m)
  ROOT r = (f32[4,3], f32[3]) tuple(t, l)
}
"""


@pytest.mark.isa_independent
@pytest.mark.parametrize("low", [BF16, TF32], ids=lambda t: t.name)
def test_slots_that_stay_float32_and_several_types_are_read_back(low: DType) -> None:
    model = parse.from_text(STATISTICS)
    policy = dataclasses.replace(neuron_policy("all", "bf16"), low=low)
    plan = make_plan(model, policy)
    mixed = dataclasses.replace(plan.decisions["n"], float32_operands=(1, 2), float32_results=(1, 2))
    half = dataclasses.replace(plan.decisions["t"], operand=F16, output=F16, rounding="stochastic")
    decisions = {**plan.decisions, "n": mixed, "t": half}
    assert_derived(model, dataclasses.replace(plan, decisions=decisions))


@pytest.mark.isa_independent
def test_another_convert_is_another_decision() -> None:
    """The control: what is read back follows the file."""
    model = parse.from_text(STATISTICS)
    plan = make_plan(model, neuron_policy("all", "bf16"))
    source = text.to_text(apply_plan(model, plan, clean=False))
    changed = source.replace("bf16", "f16")
    assert {d.operand for d in derive_decisions(parse.from_text(source)).values()} == {BF16}
    assert {d.operand for d in derive_decisions(parse.from_text(changed)).values()} == {F16}
    dropped = source.replace("neuronsim.reason", "reason")
    assert derive_decisions(parse.from_text(dropped)) == {}


# ---- XLA -----------------------------------------------------------------------------------------

EXPORTED = [("all", "bf16"), ("matmult", "fp16"), ("all", "tf32"), ("all", "fp16")]
# What a step of the low type makes of a result, twice: sums in another order round otherwise now and
# then. The products of `matmult` differ by float32's sums, and by few operands that round otherwise.
TOLERANCE = {"all": 2.0, "matmult": 0.1}


def xla() -> Any:
    pytest.importorskip("jax", reason="the peer JAX is not installed (extra `peers`)")
    from tests.executor import xla

    return xla


def of_xla_and_ours(path: Path, setting: tuple[str, str]) -> Iterator[tuple[Any, Any, Any]]:
    """For each result of a network: ours, XLA's of the planned module, and XLA's of the model."""
    run = xla()
    from tests.data import make_networks

    arguments = make_networks.make_network(name_of(path), reduced=True).arguments
    model = network(path)
    program = neuronsim.compile(model, auto_cast=setting[0], auto_cast_type=setting[1])
    ours = program(*arguments)
    inputs = [neuronsim.asarray(a).bits for a in arguments]
    results = [
        run.execute(proto.from_bytes(proto.to_bytes(m)), inputs) for m in (program.module, model)
    ]
    yield from zip(ours if isinstance(ours, tuple) else (ours,), *results, strict=True)


def relative(x: Any, y: Any) -> float:
    a, b = (np.asarray(v).astype(np.float64) for v in (x, y))
    assert np.isfinite(a).all()
    assert np.isfinite(b).all()
    return float(np.linalg.norm(a - b) / (np.linalg.norm(b) or 1.0))


RUNS = list(itertools.product([p for p in NETWORKS if name_of(p) != "data_parallel_step"], EXPORTED))
QUICK = [RUNS[n] for n in range(0, len(RUNS), 3)]  # every network, under one or two settings


def runs() -> Iterator[Any]:
    for path, setting in RUNS:
        marks = () if (path, setting) in QUICK else (pytest.mark.exhaustive,)
        yield pytest.param(path, setting, marks=marks, id="-".join((name_of(path), *setting)))


@pytest.mark.parametrize(("path", "setting"), list(runs()))
def test_xla_agrees_on_a_planned_network(path: Path, setting: tuple[str, str]) -> None:
    tolerance = TOLERANCE[setting[0]] * CAST_TYPES[setting[1]].eps
    rows = list(of_xla_and_ours(path, setting))
    far = [relative(ours, theirs) for ours, theirs, _ in rows]
    control = [relative(ours, model) for ours, _, model in rows]
    print(
        name_of(path),
        setting,
        max(far) / CAST_TYPES[setting[1]].eps,
        max(control) / CAST_TYPES[setting[1]].eps,
    )
    assert max(far) <= tolerance


@pytest.mark.parametrize("setting", EXPORTED, ids="/".join)
def test_xla_agrees_on_each_instruction_of_planned_random_modules(setting: Any) -> None:
    """On the operands that it had here; our execution of the module is that of its instructions."""
    run = xla()
    from tests.executor import agreement

    profile = Profile(int64="keep", batch_norm="xla")
    applied: list[op_by_op.Applied] = []
    for example in examples(60)[::6]:
        planned = exported(example.module, make_plan(example.module, neuron_policy(*setting)))
        verify(planned)
        _, steps = op_by_op.evaluate(planned, example.inputs, profile)
        applied += steps
    chosen = [a for a in applied if a.instruction.opcode not in agreement.NO_CODE | agreement.NO_ORACLE]
    found = [
        d
        for a, theirs in zip(chosen, run.alone(chosen), strict=True)
        for d in agreement.differences(a, theirs)
    ]
    assert [str(d) for d in found[:5]] == []
