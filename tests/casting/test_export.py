"""Planned modules as files: XLA computes the same from them, and their types tell the plan again."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.casting.derivation import derive_decisions
from tests.executor.random_modules import examples
from tests.support import interpreter

import neuronsim
from neuronsim import dtypes, ops
from neuronsim.arrays.array_object import Array
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.flags import CAST_TYPES
from neuronsim.casting.plans.plan import Plan, make_plan
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.dtypes import DType
from neuronsim.hlo import parse, proto, text
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    graph_computations,
)
from neuronsim.hlo.verify import verify
from neuronsim.profiles import Profile

NETWORKS = sorted((Path(__file__).parents[1] / "data" / "networks").glob("*.hlo.pb"))
F32, BF16, F16, TF32 = dtypes.float32, dtypes.bfloat16, dtypes.float16, dtypes.tfloat32
EXPORTED = [("all", "bf16"), ("matmult", "fp16"), ("all", "tf32"), ("all", "fp16")]
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
@pytest.mark.parametrize("setting", EXPORTED, ids="/".join)
def test_types_of_a_planned_network_are_read_back(setting: Any) -> None:
    for path in NETWORKS:
        model = network(path)
        plan = make_plan(model, neuron_policy(*setting))
        assert plan.decisions
        assert_derived(model, plan)


@functools.cache
def random_models() -> tuple[Module, ...]:
    return tuple(e.module for e in examples(60)[::4])


@pytest.mark.isa_independent
@pytest.mark.parametrize("setting", EXPORTED, ids="/".join)
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
            modes = ["nearest_even"] if d.output.is_open else ["nearest_even", "stochastic"]
            own = {"rounding": str(rng.choice(modes))}
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
@pytest.mark.parametrize("low", [BF16, dtypes.float_format(6, 9)], ids=lambda t: t.name)
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
    least = {"accumulate": 15, "rounding": 50, "relayout": 2}
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

# Of the low type's step, for a whole network: where the results of sums are float32, an operand rounds
# otherwise now and then. XLA rounds each addition of a reduce in a narrow type (D3), so that under
# all/bf16 and all/fp16 its own results are steps away, and each instruction is compared alone, too.
TOLERANCE = {
    ("all", "bf16"): 2.0,
    ("matmult", "fp16"): 0.05,
    ("all", "tf32"): 0.05,
    ("all", "fp16"): 2.0,
}
RUNS = list(itertools.product([p for p in NETWORKS if name_of(p) != "data_parallel_step"], EXPORTED))
QUICK = ("vgg", "lstm", "unet")
ALONE = [("vgg", ("all", "bf16")), ("unet", ("all", "fp16"))]


def xla() -> Any:
    need_jax()
    from tests.executor import xla

    return xla


def need_jax() -> None:
    pytest.importorskip("jax", reason="the peer JAX is not installed (extra `peers`)")


def inputs_of(path: Path) -> list[ops.Bits]:
    need_jax()
    from tests.data import make_networks

    arguments = make_networks.make_network(name_of(path), reduced=True).arguments
    return [neuronsim.asarray(a).bits for a in arguments]


def relative(x: Any, y: Any) -> float:
    a, b = (np.asarray(v).astype(np.float64) for v in (x, y))
    assert np.isfinite(a).all()
    assert np.isfinite(b).all()
    return float(np.linalg.norm(a - b) / (np.linalg.norm(b) or 1.0))


def share_of_same(results: Sequence[Any], others: Sequence[Any]) -> float:
    """The mean share of equal elements."""
    pairs = zip(results, others, strict=True)
    return float(np.mean([np.mean(np.asarray(x) == np.asarray(y)) for x, y in pairs]))


def ordinary(chosen: bool, *values: Any) -> Any:
    """Values of a test that is an exhaustive one unless they are chosen."""
    marks = () if chosen else (pytest.mark.exhaustive,)
    return pytest.param(*values, marks=marks, id="-".join((name_of(values[0]), *values[1])))


@pytest.mark.parametrize(
    ("path", "setting"), [ordinary(name_of(path) in QUICK, path, setting) for path, setting in RUNS]
)
def test_xla_computes_the_same_from_an_exported_plan(path: Path, setting: tuple[str, str]) -> None:
    run = xla()
    model, inputs = network(path), inputs_of(path)
    program = neuronsim.compile(model, auto_cast=setting[0], auto_cast_type=setting[1])
    ours = program(*map(Array, inputs))
    results = ours if isinstance(ours, tuple) else (ours,)
    step = CAST_TYPES[setting[1]].eps
    theirs = run.execute(proto.from_bytes(proto.to_bytes(program.module)), inputs)
    far = [relative(x, y) for x, y in zip(results, theirs, strict=True)]
    assert max(far) <= TOLERANCE[setting] * step
    # The control: without the plan XLA's results are others. In large networks whose sums XLA rounds at
    # each addition the distances are alike, and fewer elements have our bits.
    plain = run.execute(model, inputs)
    away = [relative(x, y) for x, y in zip(results, plain, strict=True)]
    assert max(away) > 0.1 * step
    assert share_of_same(results, plain) < share_of_same(results, theirs)
    if TOLERANCE[setting] < 1 or name_of(path) in QUICK:
        assert max(away) > 3 * max(far)


def assert_alone(planned: Module, inputs: Sequence[ops.Bits]) -> None:
    """Each instruction agrees with XLA on the operands that it has in our execution."""
    run = xla()
    from tests.executor import agreement

    _, applied = interpreter.evaluate(planned, inputs, Profile(int64="keep", batch_norm="xla"))
    without = agreement.NO_CODE | agreement.NO_ORACLE
    chosen = [a for a in applied if a.instruction.opcode not in without]
    pairs = zip(chosen, run.alone(chosen), strict=True)
    assert [str(d) for a, theirs in pairs for d in agreement.differences(a, theirs)[:1]] == []


@pytest.mark.parametrize(
    ("path", "setting"),
    [ordinary((name_of(path), setting) in ALONE, path, setting) for path, setting in RUNS],
)
def test_xla_agrees_on_each_instruction_of_a_planned_network(path: Path, setting: Any) -> None:
    model = network(path)
    assert_alone(exported(model, make_plan(model, neuron_policy(*setting))), inputs_of(path))


@pytest.mark.parametrize("setting", EXPORTED, ids="/".join)
def test_xla_agrees_on_each_instruction_of_planned_random_modules(setting: Any) -> None:
    for example in examples(60)[::15]:
        planned = exported(example.module, make_plan(example.module, neuron_policy(*setting)))
        verify(planned)
        assert_alone(planned, example.inputs)
