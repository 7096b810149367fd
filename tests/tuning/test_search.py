"""Strategies against models whose answer is known, and against all sets of instructions."""

from __future__ import annotations

import dataclasses
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import neuronsim
from neuronsim import api, dtypes
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies import find_policy, with_rules
from neuronsim.casting.policies.policy import Rule
from neuronsim.casting.policies.policy_file import parse_policy
from neuronsim.errors import InvalidArgument
from neuronsim.targets import find_target
from neuronsim.tuning import runner, search, tuner
from neuronsim.tuning.recipes import policy_text, source_recipe
from neuronsim.tuning.results import PlanResult, RungResult, TuneResult
from neuronsim.tuning.space import Space
from neuronsim.tuning.strategies import STRATEGIES
from neuronsim.tuning.tuner import NAMES

pytestmark = pytest.mark.isa_independent
_rng = np.random.default_rng(5)
X = _rng.standard_normal((40, 24)).astype(np.float32)
W = [neuronsim.asarray((_rng.standard_normal((24, 24)) / 5).astype(np.float32)) for _ in range(3)]


def unstable_variance(x: Any) -> Any:
    """Its variance is the difference of two large numbers."""
    h = neuronsim.tanh(x @ W[0]) + 20.0
    variance = (h * h).mean(axis=1, keepdims=True) - neuronsim.square(h.mean(axis=1, keepdims=True))
    return neuronsim.tanh((h - 20.0) * variance @ W[1])


WIDE = _rng.standard_normal((256, 256)).astype(np.float32)
WIDE_W = [
    neuronsim.asarray((_rng.standard_normal((256, 256)) / 16).astype(np.float32)) for _ in range(2)
]


def wide(x: Any) -> Any:
    """The same of a size at which low types are faster."""
    h = neuronsim.tanh(x @ WIDE_W[0]) + 20.0
    variance = (h * h).mean(axis=1, keepdims=True) - neuronsim.square(h.mean(axis=1, keepdims=True))
    return neuronsim.tanh((h - 20.0) * variance @ WIDE_W[1])


def no_ranking(x: Any) -> Any:
    """Two paths to the same difference: either one alone hides what the other loses."""
    a, b = x * 1.001 + 7.0, x * 1.003 + 7.0
    left, right = (a - 7.0) - x, (b - 7.0) - x
    return neuronsim.maximum(neuronsim.abs(left), neuronsim.abs(right)) * 300.0


def tuned(model: Any, *, x: Any = X, **options: Any) -> TuneResult:
    return api.tune(model, {"x": x}, **{"batch": 8, **options})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_repairs_the_variance_within_the_tolerance(strategy: str) -> None:
    found = tuned(unstable_variance, tolerance=0.02, strategy=strategy, base="all/bf16", fix=True)
    plan = found.chosen_plan
    assert plan is not None
    rung = next(r for r in found.rungs if r.name == "all/bf16")
    assert (rung.loss or 0) > 0.02 >= (plan.figures.loss or 0)
    assert found.search is not None
    assert 0 < len(plan.kept) < found.search.instructions
    # What the plan says is what the program does.
    program = api.compile(unstable_variance, plan=plan.plan, input_shapes={"x": (8, 24)})
    exact = api.compile(unstable_variance, auto_cast="none", input_shapes={"x": (8, 24)})
    a, b = (
        np.concatenate([np.asarray(p(X[n : n + 8]), np.float64) for n in range(0, 40, 8)])
        for p in (program, exact)
    )
    error = np.linalg.norm(a - b) / np.linalg.norm(b)
    assert plan.figures.relative_error == pytest.approx(error, rel=1e-12)


def test_the_default_keeps_no_more_than_neural_compressor_does() -> None:
    options: dict[str, Any] = {"tolerance": 0.02, "base": "all/bf16", "fix": True}
    ours, theirs = (
        tuned(unstable_variance, strategy=s, **options).chosen_plan
        for s in ("pareto", "neural-compressor")
    )
    assert ours is not None
    assert theirs is not None
    assert len(ours.kept) <= len(theirs.kept)


def test_needless_float32_is_given_back() -> None:
    found = tuned(unstable_variance, tolerance=0.02, base="all/bf16", fix=True).chosen_plan
    assert found is not None
    base = make_plan_of(unstable_variance, "all/bf16")
    for k in found.kept:  # each one of what is left is needed
        decisions = {**found.plan.decisions, k.name: base.decisions[k.name]}
        again = tuned(
            unstable_variance,
            rungs=[neuronsim_plan(found.plan, decisions)],
            strategy="ladder",
            tolerance=0.02,
        )
        assert (again.rungs[-1].loss or 0) > 0.02 * 0.8, k.name


def make_plan_of(model: Any, policy: str) -> Any:
    return api.plan(model, policy=policy, input_shapes={"x": (8, 24)})


def neuronsim_plan(plan: Any, decisions: Any) -> Any:
    return dataclasses.replace(plan, decisions=decisions, policy="again")


def test_a_model_where_no_additive_ranking_works_is_solved() -> None:
    for strategy in ("pareto", "bisect"):
        found = tuned(no_ranking, tolerance=0.05, strategy=strategy, base="all/bf16", fix=True)
        plan = found.chosen_plan
        assert plan is not None
        assert (plan.figures.loss or 0) <= 0.05


def test_a_search_for_speed_is_faster_than_the_ladder_within_the_tolerance() -> None:
    found = tuned(wide, x=WIDE, batch=128, tolerance=0.01)
    plan = found.chosen_plan
    assert plan is not None
    assert plan.figures.estimated_seconds < found.recommended_rung.estimated_seconds
    assert (plan.figures.loss or 0) <= 0.01
    front = [p.figures for p in found.plans]
    assert len({(f.loss, f.estimated_seconds) for f in front}) == len(front)


def test_nothing_is_searched_where_the_fastest_setting_is_within_the_tolerance() -> None:
    found = tuned(unstable_variance, tolerance=1e3)
    assert (found.chosen, found.plans, found.search) == ("", (), None)


def test_a_search_ends_at_its_number_of_trials_with_the_best_so_far() -> None:
    options: dict[str, Any] = {"tolerance": 0.02, "base": "all/bf16", "fix": True}
    whole = tuned(unstable_variance, **options)
    assert whole.search is not None
    counts = []
    for n in (0, 3, whole.search.trials - 2):
        found = tuned(unstable_variance, max_trials=n, **options)
        assert found.search is not None
        assert found.search.stopped == "max-trials"
        plan = found.chosen_plan
        notes = " ".join(found.notes)
        assert "--max-trials" in notes
        assert ("best plan so far" if plan is not None else "found none yet") in notes
        counts.append(None if plan is None else len(plan.kept))
        assert plan is None or (plan.figures.loss or 0) <= 0.02
    assert counts[0] is None
    assert counts[2] is not None


def deep(x: Any) -> Any:
    for n in range(14):
        x = neuronsim.tanh(x @ WIDE_W[n % 2]) * 0.8 + 0.2
    return x


def test_a_search_of_a_large_model_has_a_plan_after_two_trials() -> None:
    rung = tuned(deep, x=WIDE, strategy="ladder").rungs[-1]
    options: dict[str, Any] = {"tolerance": (rung.loss or 0) * 0.9, "base": "all/bf16"}
    found = tuned(deep, x=WIDE, max_trials=2, **options)
    plan = found.chosen_plan
    assert plan is not None
    assert {k.opcode for k in plan.kept} == {"tanh", "multiply", "add"}  # all but the products
    assert (plan.figures.loss or 0) <= options["tolerance"]


def test_a_search_ends_at_its_time_with_the_best_so_far() -> None:
    found = tuned(unstable_variance, tolerance=0.02, base="all/bf16", timeout=1e-6)
    assert found.search is not None
    assert found.search.stopped == "timeout"


def test_a_search_whose_time_ends_among_the_sensitivities_has_a_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Time passes with each trial alone; what was not ranked stays float32, like the last product."""
    now = 0.0

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal now
        now += 1.0 if stage == "sensitivity" else 1e-6

    monkeypatch.setattr(runner.time, "monotonic", lambda: now)
    monkeypatch.setattr("neuronsim.tuning.trials.MERGED", 1)
    options: dict[str, Any] = {"tolerance": 0.02, "base": "all/bf16", "progress": progress}
    found = tuned(unstable_variance, timeout=10.0, **options)
    assert found.search is not None
    assert found.search.stopped == "timeout"
    plan = found.chosen_plan
    assert plan is not None
    unmeasured = [k for k in plan.kept if k.error is None]
    assert 0 < len(unmeasured) < found.search.instructions
    assert (plan.figures.loss or 0) <= 0.02
    whole = tuned(unstable_variance, **options).chosen_plan
    assert whole is not None
    assert len(whole.kept) < len(plan.kept)


def test_an_interrupt_gives_the_best_so_far() -> None:
    def progress(stage: str, done: int, total: int) -> None:
        if stage == "give back":
            raise KeyboardInterrupt

    found = tuned(unstable_variance, tolerance=0.02, base="all/bf16", progress=progress)
    assert found.search is not None
    assert found.search.stopped == "interrupted"
    assert found.chosen_plan is not None


def choosing(base: str, best: RungResult, *plans: PlanResult) -> Any:
    """As much of a tuning as choosing one of the plans of a base reads, with a budget of 0.01."""
    asked: Any = SimpleNamespace(base="", fix=False, rungs=[SimpleNamespace(name=base, quantizes=())])
    meter: Any = None
    return tuner._Tuning(asked, meter, [], best, 0.01, [], "", list(plans))


def test_a_flag_is_recommended_where_a_plan_is_hardly_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"x": WIDE, "batch": 128, "tolerance": 0.01}
    monkeypatch.setattr(tuner, "WORTH", 0.2)  # 5 times as fast
    found = tuned(wide, **options)
    assert (found.chosen, found.search) == ("", None)  # no setting is so fast: nothing to search for
    monkeypatch.undo()
    plan = tuned(wide, **options).chosen_plan
    assert plan is not None
    monkeypatch.setattr(tuner, "BETTER", 0.2)  # what INT8 is asked for is another matter
    assert tuned(wide, **options).chosen == plan.name
    record = found.recommended_rung
    gain = record.estimated_seconds / plan.figures.estimated_seconds
    assert gain > 1 / 0.95
    slower = dataclasses.replace(
        plan,
        figures=dataclasses.replace(plan.figures, estimated_seconds=record.estimated_seconds / 1.04),
    )
    for own, chosen in ((slower, ""), (plan, plan.name)):
        progressing = choosing(plan.base, record, own)
        assert tuner._choose(progressing) == chosen
        assert ("1.04x" in " ".join(progressing.notes)) == (not chosen)


def test_of_plans_of_one_speed_the_one_with_the_fewest_exceptions_is_chosen() -> None:
    plan = tuned(wide, x=WIDE, batch=128, tolerance=0.01).chosen_plan
    assert plan is not None
    best = tuned(wide, x=WIDE, batch=128, tolerance=0.01, strategy="ladder").recommended_rung
    figures = plan.figures
    simple = dataclasses.replace(
        plan,
        kept=plan.kept[:1],
        figures=dataclasses.replace(
            figures, name="simple", estimated_seconds=figures.estimated_seconds * 1.005
        ),
    )
    many = dataclasses.replace(plan, kept=plan.kept[:1] * 40)
    assert tuner._choose(choosing(plan.base, best, many, simple)) == "simple"


def test_a_plan_that_holds_on_the_held_out_samples_is_preferred() -> None:
    plan = tuned(wide, x=WIDE, batch=128, tolerance=0.01).chosen_plan
    best = tuned(wide, x=WIDE, batch=128, tolerance=0.01, strategy="ladder").recommended_rung
    assert plan is not None
    figures = dataclasses.replace(
        plan.figures, name="safe", estimated_seconds=plan.figures.estimated_seconds * 1.001
    )
    safe = dataclasses.replace(plan, figures=figures, held_out_loss=0.009)
    unsafe = dataclasses.replace(plan, held_out_loss=0.011)
    for plans, chosen in (([unsafe, safe], "safe"), ([unsafe], plan.name)):
        progressing = choosing(plan.base, best, *plans)
        assert tuner._choose(progressing) == chosen
        assert ("held-out" in " ".join(progressing.notes)) == (chosen != "safe")


def test_few_trials_that_end_with_no_plan_say_so() -> None:
    """Its islands are as coarse as the trials are few, so that it ends before they do."""
    options: dict[str, Any] = {"x": WIDE, "tolerance": 1e-4, "rungs": (), "base": "all/bf16"}
    for most in (4, 6):
        found = tuned(deep, max_trials=most, **options)
        assert found.search is not None
        assert found.search.stopped == "max-trials"
        assert "--max-trials" in " ".join(found.notes)


def test_the_ladder_of_many_samples_ends_at_its_time_with_evenly_spread_ones() -> None:
    x = np.tile(X, (20, 1))
    found = tuned(unstable_variance, x=x, tolerance=0.02, timeout=1e-3)
    assert 0 < found.samples < len(x)
    assert f"{found.samples} of the {len(x)} samples" in " ".join(found.notes)
    assert "--timeout inf" in " ".join(found.notes)
    whole = tuned(unstable_variance, x=x, tolerance=0.02, strategy="ladder")
    assert whole.samples == len(x)
    assert not any("--timeout" in note for note in whole.notes)


@pytest.mark.parametrize("timeout", [None, 1e4])
def test_an_interrupted_ladder_gives_what_it_has(timeout: float | None) -> None:
    def progress(stage: str, done: int, total: int) -> None:
        if done >= total / 2:
            raise KeyboardInterrupt

    monkey: dict[str, Any] = {"x": np.tile(X, (20, 1)), "tolerance": 0.02, "timeout": timeout}
    found = tuned(unstable_variance, progress=progress, **monkey)
    assert 0 < found.samples <= 800
    assert "the search was interrupted before it began" in found.notes
    assert found.search is not None
    assert (found.search.stopped, found.search.instructions, found.plans) == ("interrupted", 0, ())
    assert tuned(unstable_variance, progress=progress, strategy="ladder", **monkey).search is None


def shifts(x: Any) -> Any:
    """Each loses a digit more than the one before."""
    for n in range(5):
        x = (x + 2.0 ** (n - 1)) - 2.0 ** (n - 1)
    return x


def test_ranking_samples_that_lose_more_than_all_are_no_reason_to_find_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of small samples that rank alone every shift loses more than the tolerance."""
    small = X * 1.0
    small[:2] *= 0.2
    monkeypatch.setattr(search, "RANKING", 2)
    found = {}
    for most in (1.0, 8.0):
        monkeypatch.setattr(search, "MOST_UNLIKE", most)
        plan = tuned(shifts, x=small, batch=2, tolerance=0.01, base="all/bf16", fix=True).chosen_plan
        assert plan is not None
        assert (plan.figures.loss or 0) <= 0.01
        found[most] = len(plan.kept)
    assert found[8.0] < found[1.0]


def overflowing_once(x: Any) -> Any:
    """The squares of a sample with large values leave float16."""
    h = x @ W[0] * 1e-3
    for w in (*W, *W):
        h = neuronsim.tanh(h @ w)
    return h + neuronsim.log1p(neuronsim.abs((x * x).sum(axis=1, keepdims=True) / 3.0)) * 0.05


def test_the_sample_where_the_base_breaks_is_one_of_those_that_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "RANKING", 1)
    x = X[:12].copy()
    x[6] *= 300.0
    options: dict[str, Any] = {"x": x, "batch": 1, "base": "all/fp16", "fix": True}
    found = tuned(overflowing_once, tolerance=0.02, **options)
    assert found.chosen_plan is not None
    assert found.search is not None
    assert found.search.ranking_samples == 2
    kept = [k.opcode for k in found.chosen_plan.kept]
    assert set(kept) <= {"multiply", "reduce", "divide", "abs", "log-plus-one"}, kept


def test_the_policy_of_a_plan_gives_the_same_types() -> None:
    for fix in (True, False):
        options: dict[str, Any] = {"base": "all/bf16", "fix": fix, "batch": 128}
        plan = tuned(wide, x=WIDE, tolerance=0.01, **options).chosen_plan
        assert plan is not None
        module = api.read_model(wide, api.ModelInputs(batch=128), {"x": WIDE})
        base = api.plan(wide, policy=plan.base, input_shapes={"x": (128, 256)})
        policy = parse_policy(policy_text(plan, base, module), "toml")
        again = make_plan(module, policy, find_target("trn1"))
        types = [
            {n: (d.operand, d.accumulate, d.output) for n, d in p.decisions.items()}
            for p in (again, plan.plan)
        ]
        assert types[0] == types[1]


# ---- what else may be chosen ---------------------------------------------------------------------


def long_sums(x: Any) -> Any:
    return (neuronsim.abs(x) + 1.0).sum(axis=1, keepdims=True) * neuronsim.tanh(x)


NARROW_SUMS = dataclasses.replace(
    find_policy("all/bf16"), name="narrow sums", accumulate=dtypes.bfloat16
)


def with_narrow_sums(**options: Any) -> TuneResult:
    chosen: dict[str, Any] = {"rungs": NARROW_SUMS, "base": "narrow sums", "fix": True, **options}
    return tuned(long_sums, x=WIDE, **chosen)


def test_sums_in_float32_are_enough_where_the_accumulator_is_narrow() -> None:
    found = with_narrow_sums(tolerance=0.01)
    plan = found.chosen_plan
    assert plan is not None
    assert (found.rungs[-1].loss or 0) > 0.01 >= (plan.figures.loss or 0)
    assert {(k.opcode, k.type) for k in plan.kept} == {("reduce", "bfloat16")}
    d = plan.plan.decisions[plan.kept[0].name]
    assert (d.operand, d.accumulate, d.output) == (dtypes.bfloat16, dtypes.float32, dtypes.bfloat16)
    text = policy_text(plan, api.plan(long_sums, policy=NARROW_SUMS, input_shapes={"x": (8, 256)}),
                       api.read_model(long_sums, api.ModelInputs(batch=8), {"x": WIDE}))  # fmt: skip
    assert 'accumulate = "float32"' in text


def test_aws_ratio_steers_a_search() -> None:
    found = with_narrow_sums(tolerance=0.2, metric="aws_ratio")
    plan = found.chosen_plan
    assert plan is not None
    assert found.rungs[-1].scores["aws_ratio"] > 1.2 >= plan.figures.scores["aws_ratio"]
    assert plan.figures.verdict in ("accept", "over-precision")


def test_a_search_has_the_types_that_it_is_given() -> None:
    options: dict[str, Any] = {"types": ["fp8_e4m3", "bf16"], "base": "all/fp8_e4m3"}
    found = tuned(wide, x=WIDE, batch=128, tolerance=0.05, **options)
    assert {"all/fp8_e4m3", "matmult/fp8_e4m3"} <= {r.name for r in found.rungs}
    plan = found.chosen_plan
    assert plan is not None
    assert (plan.figures.loss or 0) <= 0.05
    types = {d.operand.name for d in plan.plan.decisions.values()}
    assert types <= {"float8_e4m3", "bfloat16"}
    assert "bfloat16" in types
    with pytest.raises(InvalidArgument, match="inf1"):
        tuned(wide, x=WIDE, batch=128, target="inf1", types=["bf16"])


def test_ones_own_policies_are_types_of_what_is_kept() -> None:
    stochastic = Rule("drawn", rounding="stochastic", operation=("*",))
    policy = with_rules(dataclasses.replace(find_policy("all/fp16"), name="drawn"), stochastic)
    found = tuned(unstable_variance, tolerance=0.02, base="all/bf16", fix=True, rungs=policy)
    plan = found.chosen_plan
    assert plan is not None
    assert "float16, stochastic" in {k.type for k in plan.kept}
    assert "rounding" in {f.name for f in dataclasses.fields(next(iter(plan.plan.decisions.values())))}


# ---- islands -------------------------------------------------------------------------------------


def islands_of(text: str, most: int) -> list[tuple[str, ...]]:
    from neuronsim.hlo.parse import from_text

    module = from_text(f"HloModule m\nENTRY main {{\n{text}\n}}")
    plan = make_plan(module, find_policy("all/bf16"), find_target("trn1"))
    space = Space(module, {"all/bf16": plan})
    return [u.members for u in space.units(space.lowered_by("all/bf16"), most)]


def test_islands_are_scopes_of_the_source() -> None:
    lines = ["x = f32[4] parameter(0)"]
    for n in range(8):
        given = "x" if not n else f"i{n - 1}"
        place = f'metadata={{op_name="net/block_{n // 4}/step_{n}"}}'
        lines.append(f"{'ROOT ' if n == 7 else ''}i{n} = f32[4] tanh({given}), {place}")
    assert islands_of("\n".join(lines), 2) == [("i0", "i1", "i2", "i3"), ("i4", "i5", "i6", "i7")]


def test_islands_without_scopes_leave_by_one_value() -> None:
    """Two branches of three, which meet: a part of the order would take from both."""
    found = islands_of(
        """x = f32[4] parameter(0)
        a0 = f32[4] tanh(x)
        b0 = f32[4] sine(x)
        a1 = f32[4] tanh(a0)
        b1 = f32[4] sine(b0)
        a2 = f32[4] tanh(a1)
        b2 = f32[4] sine(b1)
        ROOT s = f32[4] add(a2, b2)""",
        3,
    )
    assert sorted(found) == [("a0", "a1", "a2"), ("b0", "b1", "b2"), ("s",)]


def test_the_recipe_names_what_stays_in_float32() -> None:
    plan = tuned(unstable_variance, tolerance=0.02, base="all/bf16", fix=True).chosen_plan
    assert plan is not None
    text = source_recipe(plan.kept)
    assert "torch.autocast" in text
    assert all(k.opcode in text for k in plan.kept)
    assert "flags alone" in source_recipe([])
    other = dataclasses.replace(plan.kept[0], type="float16")
    text = source_recipe([other])
    assert "keep in float32, or the type that is named:" in text
    assert f"{other.opcode} in float16" in text


def test_the_strategies_are_those_of_the_command_line() -> None:
    assert NAMES == ("ladder", "sensitivity", "pareto", "bisect", "greedy", "neural-compressor")


# ---- against all sets ----------------------------------------------------------------------------


def random_model(seed: int) -> Any:
    """A network of some steps, of which some lose much in a low type."""
    rng = np.random.default_rng(seed)
    weights = [
        neuronsim.asarray((rng.standard_normal((16, 16)) / 4).astype(np.float32)) for _ in range(3)
    ]
    steps = rng.choice(
        ["product", "tanh", "shift", "square", "exp", "add", "scale"], size=int(rng.integers(5, 8))
    )

    def model(x: Any) -> Any:
        first = h = x
        for n, step in enumerate(steps):
            match step:
                case "product":
                    h = h @ weights[n % 3]
                case "tanh":
                    h = neuronsim.tanh(h)
                case "shift":
                    h = (h + 30.0) - 29.5
                case "square":
                    h = h * h
                case "exp":
                    h = neuronsim.exp(neuronsim.minimum(h, 3.0))
                case "add":
                    h = h + first
                case "scale":
                    h = h * 0.37
        return h

    return model


def exhaustive(model: Any, x: Any, tolerance: float) -> tuple[float, int]:
    """The shortest estimated time of all sets of float32 instructions within the tolerance, and how
    many instructions there are.
    """
    base = api.plan(model, policy="all/bf16", input_shapes={"x": (8, 16)})
    module = api.read_model(model, api.ModelInputs(batch=8), {"x": x})
    space = Space(module, {"all/bf16": base})
    names = space.lowered_by("all/bf16")
    plans = []
    for count in range(len(names) + 1):
        for low in itertools.combinations(names, count):
            plans.append(space.plan(dict.fromkeys(low, "all/bf16"), f"set {len(plans)}"))
    found = api.tune(model, {"x": x}, batch=8, rungs=plans, strategy="ladder", tolerance=tolerance)
    able = [r.estimated_seconds for r in found.rungs[7:] if (r.loss or 0) <= tolerance + 1e-12]
    return min(able), len(names)


def compare(seed: int) -> tuple[float, float, float]:
    """The plan's time over the best one's, trials for each instruction, and the float32 instructions
    beyond those of Neural Compressor's procedure.
    """
    x = np.random.default_rng(100 + seed).standard_normal((32, 16)).astype(np.float32)
    model = random_model(seed)
    rung = api.tune(model, {"x": x}, batch=8, strategy="ladder").rungs[-1]
    tolerance = (rung.loss or 0.0) * 0.4
    options: dict[str, Any] = {"batch": 8, "tolerance": tolerance, "base": "all/bf16"}
    ours = api.tune(model, {"x": x}, **options)
    best, count = exhaustive(model, x, tolerance)
    plan = ours.chosen_plan
    assert plan is not None
    assert ours.search is not None
    fewest, theirs = (
        api.tune(model, {"x": x}, fix=True, strategy=s, **options).chosen_plan
        for s in ("pareto", "neural-compressor")
    )
    assert fewest is not None
    more = len(fewest.kept) - (len(theirs.kept) if theirs is not None else count)
    return plan.figures.estimated_seconds / best, ours.search.trials / count, more


def test_plans_of_small_models_are_near_the_best_of_all_sets() -> None:
    times, trials, more = zip(*map(compare, (17, 20)), strict=True)
    assert max(times) <= 1.05
    assert max(trials) <= 2
    assert max(more) <= 0


@pytest.mark.exhaustive
def test_plans_of_thirty_small_models_are_near_the_best_of_all_sets() -> None:
    times, trials, more = zip(*map(compare, range(30)), strict=True)
    assert sum(t <= 1.05 for t in times) >= 27
    assert max(trials) <= 2
    assert max(more) <= 0
    assert sum(m < 0 for m in more) >= 15
