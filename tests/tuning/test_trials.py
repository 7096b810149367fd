"""Trials: the bits of separate programs, statistics that merge, groups within the memory."""

from __future__ import annotations

import dataclasses
import gc
import pickle
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.support.graphs import F32, computation, inst, parameter

import neuronsim
from neuronsim import api, dtypes
from neuronsim.casting.plans.plan import Plan, make_plan
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.hlo.module import Module
from neuronsim.hlo.text import to_text
from neuronsim.hlo.verify import verify
from neuronsim.processor import collector_at_rest
from neuronsim.profiles import Profile
from neuronsim.targets import find_target
from neuronsim.tuning import trials
from neuronsim.tuning.dataset import load_dataset
from neuronsim.tuning.framework_casts import with_framework_casts
from neuronsim.tuning.merging import Merger, may_merge
from neuronsim.tuning.statistics import merge_statistics
from neuronsim.tuning.trials import MetricSpec, Trial, Workload, group_trials, run_trials

MODEL = "examples/digits/model.hlo.pb"
PROFILE = Profile(int64="truncate")


def network(x: Any) -> Any:
    hidden = neuronsim.tanh(x @ W1)
    centred = hidden - hidden.mean(axis=1, keepdims=True)
    scaled = centred / neuronsim.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)
    return scaled @ W2


_rng = np.random.default_rng(0)
W1 = neuronsim.asarray(_rng.standard_normal((16, 32)).astype(np.float32))
W2 = neuronsim.asarray(_rng.standard_normal((32, 5)).astype(np.float32))
X = _rng.standard_normal((24, 16)).astype(np.float32)


@pytest.fixture(scope="module")
def workload() -> Workload:
    module = api.read_model(network, api.ModelInputs(batch=4), {"x": X})
    specs = (MetricSpec("relative_error"), MetricSpec("cosine"))
    return Workload(module, load_dataset({"x": X}), PROFILE, "trn1", specs)


def low(module: Module, setting: str = "all", dtype: str = "bf16") -> Plan:
    return make_plan(module, neuron_policy(setting, dtype), find_target("trn1"))  # type: ignore[arg-type]


def one_at_a_time(workload: Workload) -> list[Trial]:
    plan = low(workload.module)
    only = [{n: d} for n, d in plan.decisions.items()]
    return [Trial(dataclasses.replace(plan, decisions=d)) for d in only]


def test_merged_trials_have_the_bits_of_separate_ones(workload: Workload) -> None:
    alone = one_at_a_time(workload)
    groups = list(group_trials(workload, alone))
    assert max(map(len, groups)) > 10
    merged = [s for g in groups for s in run_trials(workload, g, [0, 1], sketches=True)]
    separate = [run_trials(workload, [t], [0, 1], sketches=True)[0] for t in alone]
    assert merged == separate
    assert any(s[0].outputs[0].relative_error > 0 for s in merged)


def test_trials_have_the_outputs_of_compiled_programs(workload: Workload) -> None:
    plan = low(workload.module, "all", "fp16")
    ((s,),) = run_trials(workload, [Trial(plan)], [2])
    program = api.compile(workload.module, plan=plan)
    exact = api.compile(workload.module, auto_cast="none")
    first = workload.shards[2].start * 4
    a, b = (np.asarray(p(X[first : first + 4]), np.float64) for p in (program, exact))
    expected = np.linalg.norm(a - b) / np.linalg.norm(b)
    assert s.outputs[0].relative_error == pytest.approx(expected, rel=1e-12)


def test_a_merged_module_is_valid_and_shares_what_is_equal(workload: Workload) -> None:
    plans = [low(workload.module, *p) for p in (("none", "bf16"), ("matmult", "bf16"), ("all", "bf16"))]
    parts = [trials.planned_module(workload.module, Trial(p)) for p in plans]
    twice = Merger("m", [*parts, parts[0]]).finish()
    verify(twice.module)
    count = len(twice.module.entry_computation.instructions)
    assert count < sum(len(p.entry_computation.instructions) for p in parts)
    assert twice.names[0] == twice.names[3]
    assert "tuple" in to_text(twice.module)


def test_loops_and_branches_are_merged_by_what_they_do() -> None:
    text = """HloModule loop
body { p = (s32[], f32[4,2]) parameter(0) n = s32[] get-tuple-element(p), index=0
  v = f32[4,2] get-tuple-element(p), index=1 one = s32[] constant(1) m = s32[] add(n, one)
  t = f32[4,2] tanh(v) u = f32[4,2] add(t, v) ROOT r = (s32[], f32[4,2]) tuple(m, u) }
cond { p = (s32[], f32[4,2]) parameter(0) n = s32[] get-tuple-element(p), index=0
  three = s32[] constant(3) ROOT c = pred[] compare(n, three), direction=LT }
ENTRY main { x = f32[4,2] parameter(0) zero = s32[] constant(0)
  init = (s32[], f32[4,2]) tuple(zero, x) w = (s32[], f32[4,2]) while(init), condition=cond, body=body
  ROOT y = f32[4,2] get-tuple-element(w), index=1 }"""
    module = api.read_model(text.encode())
    own = Workload(module, load_dataset({"x": X[:, :2]}), PROFILE, "trn1", (MetricSpec("max_error"),))
    merged = run_trials(own, one_at_a_time(own), [0])
    assert merged == [run_trials(own, [t], [0])[0] for t in one_at_a_time(own)]


def test_nothing_is_merged_under_stochastic_rounding(workload: Workload) -> None:
    own = dataclasses.replace(workload, profile=PROFILE.replace(rounding="stochastic"))
    alone = one_at_a_time(own)[:5]
    assert [len(g) for g in group_trials(own, alone)] == [1] * 5
    again = [run_trials(own, [t], [1]) for t in alone]
    assert again == [run_trials(own, [t], [1]) for t in alone]  # words hang on the data's place alone


def test_random_numbers_are_not_merged() -> None:
    x = parameter("x", (4,))
    bound = inst("b", "constant", (), literal=neuronsim.asarray(np.float32(0)).bits)
    r = inst("r", "rng", (4,), "b", "b", distribution="rng_uniform")
    y = inst("y", "add", (4,), "x", "r")
    assert not may_merge(Module("m", "main", (computation("main", x, bound, r, y),)))


def test_groups_stay_within_the_memory(workload: Workload) -> None:
    alone = one_at_a_time(workload)
    small = dataclasses.replace(workload, memory=4000)
    sizes = [len(g) for g in group_trials(small, alone)]
    assert max(sizes) < max(len(g) for g in group_trials(workload, alone))
    parts = [s for g in group_trials(small, alone) for s in run_trials(small, g, [0])]
    assert parts == [s for g in group_trials(workload, alone) for s in run_trials(workload, g, [0])]


def test_statistics_merge_in_the_order_of_shards(workload: Workload) -> None:
    trial = Trial(low(workload.module))
    (parts,) = run_trials(workload, [trial], range(len(workload.shards)))
    whole = merge_statistics(parts)
    assert whole.samples == 24
    program = api.compile(workload.module, auto_cast="all", auto_cast_type="bf16")
    exact = api.compile(workload.module, auto_cast="none")
    a, b = (
        np.concatenate([np.asarray(p(X[n : n + 4]), np.float64) for n in range(0, 24, 4)])
        for p in (program, exact)
    )
    expected = np.linalg.norm(a - b) / np.linalg.norm(b)
    assert whole.outputs[0].relative_error == pytest.approx(expected, rel=1e-12)


def test_trials_and_workloads_are_pickled(workload: Workload) -> None:
    trial = Trial(low(workload.module))
    again, other = pickle.loads(pickle.dumps((workload, trial)))
    assert (again.key, other.key) == (workload.key, trial.key)
    assert run_trials(again, [other], [0]) == run_trials(workload, [trial], [0])


def test_two_models_two_data_sets_and_two_profiles_have_keys_of_their_own(workload: Workload) -> None:
    one = parameter("x", (4,), dtype=F32)
    modules = [
        Module("m", "main", (computation("main", one, inst("y", o, (4,), "x")),))
        for o in ("tanh", "sine")
    ]
    data = [load_dataset({"x": X[:, 0]}), load_dataset({"x": X[:, 1]})]
    keys = {
        Workload(m, d, p, t, (MetricSpec(name),), seed=seed).key
        for m in modules
        for d in data
        for p in (PROFILE, PROFILE.replace(subnormals="flush"))
        for t in ("trn1", "host")
        for name in ("max_error", "cosine")
        for seed in (0, 1)
    }
    assert len(keys) == 64
    # The reason of a decision is no part of what a trial does.
    plan = low(modules[0])
    name, d = next(iter(plan.decisions.items()))
    other = dataclasses.replace(plan, decisions={name: dataclasses.replace(d, reason="other")})
    assert Trial(other).key == Trial(dataclasses.replace(plan, decisions={name: d})).key


def test_a_worker_rounds_from_the_callers_seed(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    stochastic = PROFILE.replace(rounding="stochastic")
    found = []
    for asked, there in ((3, "3"), (3, "4"), (4, "4")):
        own = dataclasses.replace(workload, profile=stochastic, seed=asked)
        monkeypatch.setenv("NEURON_RT_STOCHASTIC_ROUNDING_SEED", there)
        sent = pickle.loads(pickle.dumps(own))
        found.append(run_trials(sent, [Trial(low(workload.module))], [0]))
    assert found[0] == found[1] != found[2]


def test_the_framework_casts_inputs_and_outputs_to_the_same_bits_on_both_sides(
    workload: Workload,
) -> None:
    inside = with_framework_casts(workload.module, dtypes.bfloat16, outside=False)
    outside = with_framework_casts(workload.module, dtypes.bfloat16, outside=True)
    assert outside.parameters[0].array.dtype is outside.root.array.dtype is dtypes.bfloat16
    one, two = (api.compile(m, auto_cast="none") for m in (inside, outside))
    x = neuronsim.asarray(X[:4])
    a, b = one(x), two(x.astype(dtypes.bfloat16))
    assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_trials_of_other_scales_are_others(workload: Workload) -> None:
    plans = [
        neuronsim.quantize(workload.module, {"x": X}, method="percentile", percentile=p)
        for p in (90.0, 100.0)
    ]
    assert plans[0].decisions.keys() == plans[1].decisions.keys()
    assert Trial(plans[0]).key != Trial(plans[1]).key
    ((a,), (b,)) = (run_trials(workload, [Trial(p)], [0])[0] for p in plans)
    assert a != b


# ---- what trials cost beside their kernels -------------------------------------------------------


def test_the_collector_rests_only_while_trials_are_compiled_and_run() -> None:
    assert gc.isenabled()
    with collector_at_rest(), collector_at_rest():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), collector_at_rest():
        1 / 0  # noqa: B018
    assert gc.isenabled()
    gc.disable()
    try:
        with collector_at_rest():
            pass
        assert not gc.isenabled()  # it was off before
    finally:
        gc.enable()


def blocks(count: int) -> tuple[Workload, list[Trial]]:
    """Blocks of attention and of GELU by turns, each with a norm, on few numbers; and trials that lower
    one instruction each.
    """
    rng = np.random.default_rng(1)
    weights = [
        [neuronsim.asarray((rng.standard_normal((16, 16)) / 4).astype(np.float32)) for _ in range(4)]
        for _ in range(count)
    ]

    def norm(x: Any) -> Any:
        d = x - x.mean(axis=1, keepdims=True)
        return d / neuronsim.sqrt((d * d).mean(axis=1, keepdims=True) + 1e-5)

    def model(x: Any) -> Any:
        for n, (q, k, v, o) in enumerate(weights):
            if n % 2:
                h = x @ q
                x = norm(x + (0.5 * h * (1.0 + neuronsim.erf(h * 0.7071))) @ k)
                continue
            s = (x @ q) @ (x @ k).T * 0.25
            e = neuronsim.exp(s - s.max(axis=1, keepdims=True))
            x = norm(x + (e / e.sum(axis=1, keepdims=True)) @ (x @ v) @ o)
        return x

    module = api.read_model(model, api.ModelInputs(batch=8), {"x": X})
    own = Workload(module, load_dataset({"x": X}), PROFILE, "trn1", (MetricSpec("relative_error"),))
    return own, one_at_a_time(own)


def seconds(own: Workload, groups: Iterable[Sequence[Trial]]) -> tuple[float, list[Any]]:
    """The processor time of trials from nothing, planning and grouping too, and their statistics."""
    for kept in (trials._modules, trials._programs, trials._references):
        kept.clear()  # type: ignore[attr-defined]
    trials._constants.clear()
    started = time.process_time()
    found = [s for g in groups for s in run_trials(own, g, [0])]
    return time.process_time() - started, found


@pytest.mark.exhaustive
def test_a_trial_of_300_instructions_takes_20_ms_beside_its_kernels() -> None:
    """Its kernels take microseconds here, so that all of its time counts: planning, merging, compiling
    and recording.
    """
    own, found = blocks(8)
    assert 280 <= len(own.module.entry_computation.instructions) <= 310
    took = min(seconds(own, group_trials(own, found[:96]))[0] for _ in range(3)) / 96
    assert took <= 20e-3, f"{1e3 * took:.1f} ms a trial"


@pytest.mark.exhaustive
def test_a_sweep_of_100_instructions_takes_six_tenths_of_separate_trials() -> None:
    own, found = blocks(3)
    assert 90 <= len(own.module.entry_computation.instructions) <= 120
    shares = []
    for _ in range(3):  # by turns
        together, a = seconds(own, group_trials(own, found))
        apart, b = seconds(own, [[t] for t in found])
        assert a == b
        shares.append(together / apart)
    assert min(shares) <= 0.6, f"{shares}"
