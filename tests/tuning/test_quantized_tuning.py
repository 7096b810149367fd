"""INT8 among what the tuner tries: schemes, rungs, prices, searches for INT8 + BF16 + FP32 plans."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tuning.test_engine_formulas import peak_flops

import neuronsim as ns
from neuronsim import api, cli, dtypes, reports
from neuronsim.casting.decisions.post_training import Recipe, find_recipe
from neuronsim.casting.plans.plan import Plan, load_plan
from neuronsim.errors import InvalidArgument
from neuronsim.hlo import proto
from neuronsim.setups import ModelInputs
from neuronsim.targets import find_target
from neuronsim.tuning.engine_formulas import FIXED_OVERHEAD
from neuronsim.tuning.results import TuneResult
from neuronsim.tuning.space import Space
from neuronsim.tuning.tuner import NAMES

pytestmark = pytest.mark.isa_independent
DIGITS = Path(__file__).parents[2] / "examples" / "digits"
RNG = np.random.default_rng(24)
WIDE = 1024  # so many columns that integers pay for what quantizes
WEIGHTS = [(RNG.standard_normal((16, WIDE)) / 4).astype(np.float32) for _ in range(2)]
BACK = [(RNG.standard_normal((WIDE, 16)) / 32).astype(np.float32) for _ in range(2)]
X = RNG.standard_normal((1280, 16)).astype(np.float32)


def network(x: Any) -> Any:
    """Two wide layers, of which integers are good for the first and bad for the second: one element of
    what it reads is a thousand times as large as the others.
    """
    x = ns.tanh(ns.tanh(x @ ns.asarray(WEIGHTS[0])) @ ns.asarray(BACK[0]))
    scale = np.ones(16, np.float32)
    scale[3] = 1000
    y = ns.tanh((x * ns.asarray(scale)) @ ns.asarray(WEIGHTS[1] / scale[:, None]))
    return y @ ns.asarray(BACK[1])


def tuned(**options: Any) -> TuneResult:
    keywords: dict[str, Any] = {"batch": 256, "target": "trn1+int8", "quantize": "minmax", **options}
    return api.tune(network, {"x": X}, **keywords)


def types_of(plan: Plan) -> dict[str, str]:
    """What each computing instruction that a plan decides reads."""
    return {n: "int8" if d.quantizes else d.operand.name for n, d in plan.decisions.items()}


# ---- schemes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "recipe"),
    [
        ("minmax", Recipe()),
        ("mse,uint8", Recipe("mse", dtypes.uint8)),
        (
            "percentile:99.9,symmetric,per-tensor",
            Recipe("percentile", symmetric=True, per_channel=False, percentile=99.9),
        ),
        ("weights,per-tensor", Recipe(weight_only=True, per_channel=False)),
        ("minmax,int32-bias", Recipe(bias=dtypes.int32)),
        ("minmax,fp8_e4m3", Recipe(activations=dtypes.float8_e4m3, weights=dtypes.float8_e4m3)),
    ],
)
def test_a_scheme_says_a_recipe_and_back(scheme: str, recipe: Recipe) -> None:
    assert find_recipe(scheme) == recipe
    assert recipe.scheme == scheme
    assert find_recipe(recipe) is recipe


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ("minmx", "did you mean 'minmax'"),
        ("percentile:high", "a number such as 99.9"),
        ("percentile:20", "above 50"),
        ("minmax:3", "says nothing of how"),
        (3, "a scheme is a text"),
        ("minmax,entropy,mse", "'minmax,entropy,mse' says minmax and entropy: give one of them"),
        ("uint8,fp8_e4m3", "says uint8 and fp8_e4m3: give"),
        ("fp8_e5m2,fp8_e4m3", "says fp8_e5m2 and fp8_e4m3: give"),
        ("percentile:99,percentile:99.9", "says percentile:99 and percentile:99.9: give"),
        ("weights,minmax", "says weights, of which alone .* and minmax, which is of activations"),
        ("weights,uint8", "and uint8, which is of activations"),
        ("symmetric,weights", "and symmetric, which is of activations"),
    ],
)
def test_other_words_are_refused_with_the_nearest(scheme: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        find_recipe(scheme)


def test_quantize_takes_a_scheme() -> None:
    plan = ns.quantize(network, {"x": X}, "mse,symmetric", batch=256)
    assert "int8 (mse, by channel)" in plan.policy
    assert all(d.quantized_operands[0].is_symmetric for d in plan.decisions.values())  # type: ignore[union-attr]


# ---- targets and prices --------------------------------------------------------------------------


def test_targets_say_whether_int8_products_run_there_and_by_what_evidence() -> None:
    trn1, inf1 = find_target("trn1"), find_target("inf1")
    assert (trn1.int8_rate, inf1.int8_rate) == (2.0, 2.0)  # neuron.md 6.2: 380 / 190, 128 / 64
    assert not trn1.runs_int8
    assert not inf1.runs_int8
    assert "NeuronCore-v2" in trn1.int8_note
    assert "planned for a future release" in trn1.int8_note
    assumed = find_target("inf2+int8")
    assert assumed is find_target("trn1+int8")
    assert (assumed.runs_int8, assumed.int8_note, assumed.compiler) == (True, "", "neuronx-cc")
    with pytest.raises(InvalidArgument, match="no table lists INT8 products of host"):
        find_target("host+int8")
    assert (
        peak_flops(assumed, dtypes.int8) == 2 * peak_flops(assumed) == 2 * peak_flops(trn1, dtypes.int8)
    )


def product(x: Any) -> Any:
    return x @ ns.asarray(WEIGHTS[0])


@pytest.mark.parametrize(("target", "rate"), [("trn1", 1), ("trn1+int8", 2)])
@pytest.mark.parametrize("scheme", ["minmax", "minmax,symmetric"])
def test_int8_products_are_priced_by_their_rate_what_quantizes_as_one_instruction(
    target: str, rate: int, scheme: str
) -> None:
    plan = ns.quantize(product, {"x": X}, scheme, batch=512)
    report = reports.cost(product, plan=plan, target=target, input_shapes={"x": (512, 16)})
    found = {i.name: i for i in report.estimate.instructions}
    # 16 deep: one tile of the contraction; 1024 columns are 8 stationary tiles of 512 moving rows.
    sums = found.pop("dot.sums")
    assert sums.by_engine["tensor"] == pytest.approx((100 + 8 * 512 / rate) / 2.8e9)
    quantized, scaled = found.pop("x.to_int8"), found.pop("dot")
    assert quantized.by_engine == {"scalar": pytest.approx((FIXED_OVERHEAD + 64) / 1.4e9)}
    assert scaled.by_engine == {"scalar": pytest.approx((FIXED_OVERHEAD + 512 * WIDE / 128) / 1.4e9)}
    assert not found
    scales = 1 + (scheme == "minmax")  # and the zero point's share of each column
    weights = 16 * WIDE + 4 * WIDE * scales
    assert report.estimate.memory_bytes == weights + 4 * (512 * 16 + 512 * WIDE)


def test_a_function_that_alone_reads_scaled_sums_scales_them() -> None:
    def activated(x: Any) -> Any:
        return ns.tanh(product(x) + 1.5)

    plan = ns.quantize(activated, {"x": X}, batch=512)
    report = reports.cost(activated, plan=plan, target="trn1+int8", input_shapes={"x": (512, 16)})
    names = {i.name for i in report.estimate.instructions}
    assert names == {"x.to_int8", "dot.sums", "tanh"}


def test_bytes_are_moved_where_a_move_is_read_quantized_alone() -> None:
    """A transpose between two products moves bytes, which the estimate counts."""

    def turned(x: Any) -> Any:
        return ns.matmul(ns.tanh(x @ ns.asarray(WEIGHTS[0])).T, ns.asarray(X[:128, :8]))

    plan = ns.quantize(turned, {"x": X}, "minmax,symmetric", batch=128)
    module = ns.compile(turned, plan=plan, input_shapes={"x": (128, 16)}).module
    moves = [i for i in module.entry_computation.instructions if i.opcode == "transpose"]
    assert [i.array.dtype for i in moves] == [dtypes.int8]


# ---- rungs and searches --------------------------------------------------------------------------


def test_schemes_are_rungs_alone_and_beside_bf16() -> None:
    found = tuned(strategy="ladder", quantize=["minmax", "mse,symmetric"])
    names = [r.name for r in found.rungs[7:]]
    assert names == ["int8/minmax", "int8/minmax+bf16", "int8/mse,symmetric", "int8/mse,symmetric+bf16"]
    by_name = {r.name: r for r in found.rungs}
    assert by_name["int8/minmax"].estimated_seconds < by_name["none"].estimated_seconds
    assert by_name["int8/minmax"].weight_bytes < by_name["all/bf16"].weight_bytes


@pytest.mark.parametrize("strategy", [n for n in NAMES if n != "ladder"])
def test_every_strategy_finds_int8_bf16_fp32_within_the_tolerance(strategy: str) -> None:
    found = tuned(strategy=strategy, tolerance=0.02, max_trials=80)
    broken = next(r for r in found.rungs if r.name == "int8/minmax+bf16")
    assert (broken.loss or 0) > 0.1
    plan = next(p for p in found.plans if p.base == "int8/minmax+bf16")
    assert plan.within
    assert (plan.figures.loss or 0) <= 0.02
    if strategy != "neural-compressor":  # which leaves all products alone where that is enough
        assert "int8" in types_of(plan.plan).values()
    assert any(k.opcode == "dot" and k.type != "int8" for k in plan.kept)


def test_a_plan_with_int8_is_faster_than_the_best_without() -> None:
    found = tuned(tolerance=0.02)
    without = tuned(tolerance=0.02, quantize=[])
    best = without.chosen_plan.figures if without.chosen_plan else without.recommended_rung
    assert found.chosen_plan is not None
    assert found.chosen_plan.base == "int8/minmax+bf16"
    assert (found.chosen_plan.figures.loss or 0) <= 0.02
    assert found.chosen_plan.figures.estimated_seconds < 0.97 * best.estimated_seconds
    assert {"int8", "bfloat16"} <= set(types_of(found.chosen_plan.plan).values())


def test_where_the_target_runs_no_int8_it_is_said_and_none_is_recommended() -> None:
    found = tuned(target="trn1", tolerance=0.5)
    assert "run in the emulator" in found.notes[0]
    assert "planned for a future release" in found.notes[0]
    assert "--target trn1+int8" in found.notes[0]
    by_name = {r.name: r for r in found.rungs}
    assert by_name["int8/minmax+bf16"].estimated_seconds > by_name["all/bf16"].estimated_seconds
    assert not found.recommended.startswith("int8")
    assert not found.plans
    asked = tuned(target="trn1", tolerance=0.02, base="int8/minmax+bf16")
    assert asked.chosen_plan is not None  # searched from, because it was asked for


def test_float8_with_scales_runs_on_the_target_as_it_is() -> None:
    found = tuned(target="trn1", tolerance=0.2, quantize="minmax,fp8_e4m3", strategy="ladder")
    assert not [note for note in found.notes if "emulator" in note]
    by_name = {r.name: r for r in found.rungs}
    scaled = by_name["fp8_e4m3/minmax"]
    assert 0 < scaled.loss < 0.1
    with pytest.raises(InvalidArgument, match="give activations and weights the same"):
        Recipe(activations=dtypes.float8_e4m3)


def test_integers_that_save_no_time_are_not_searched_from() -> None:
    def small(x: Any) -> Any:
        return ns.tanh(x @ ns.asarray(WEIGHTS[0][:, :8]))

    found = api.tune(small, {"x": X}, batch=64, target="trn1+int8", quantize="minmax", tolerance=0.05)
    assert any("INT8 saves no estimated time" in note for note in found.notes)
    assert not found.plans


def test_a_model_of_no_products_has_no_int8_setting_and_a_warning_says_why() -> None:
    with pytest.warns(match=r"no product is quantized \(there is none in float32\)"):
        found = api.tune(lambda x: ns.tanh(x), {"x": X}, batch=64, quantize="minmax", strategy="ladder")
    assert not [r.name for r in found.rungs if "int8" in r.name]


def test_what_is_held_out_is_not_calibrated_with() -> None:
    """The fifth batch of five is held out: its large values widen no range."""
    x = X.copy()
    x[1024:] *= 100
    found = api.tune(product, {"x": x}, batch=256, target="trn1", quantize="minmax", strategy="ladder")
    assert (found.rungs[-1].loss or 0) > 0.5  # they are clipped


def test_digits_have_an_int8_bf16_plan_faster_than_bf16_and_fp32() -> None:
    """Issue 24, done when 4."""
    with np.load(DIGITS / "test.npz") as data:
        given = {n: data[n] for n in data.files}
    found = api.tune(
        DIGITS / "model.hlo.pb", given, target="trn1+int8", quantize="minmax,symmetric", tolerance=0.01
    )
    plan = found.chosen_plan
    assert plan is not None
    assert plan.base == "int8/minmax,symmetric+bf16"
    assert plan.within
    own = [r for r in found.rungs if not r.name.startswith("int8") and (r.loss or 0) <= 0.01]
    assert plan.figures.estimated_seconds < 0.99 * min(r.estimated_seconds for r in own)
    assert {"int8", "bfloat16"} <= set(types_of(plan.plan).values())


def test_moves_between_integers_and_bfloat16_are_rounded_no_earlier() -> None:
    """What an INT8 product gives is float32: a move of it is bfloat16 where all who read it are."""

    def model(x: Any) -> Any:
        y = (x @ ns.asarray(WEIGHTS[0])).T
        return ns.tanh(y), y * ns.asarray(np.float32(3))

    module = api.read_model(model, ModelInputs(input_shapes={"x": (256, 16)}))
    rest = ns.plan(module, auto_cast="all", auto_cast_type="bf16")
    space = Space(module, {"int8": ns.quantize(module, {"x": X}), "all/bf16": rest})
    first = {"dot": "int8"}
    assert "transpose" not in space.plan({**first, "multiply": "all/bf16"}).decisions
    both = space.plan({**first, "multiply": "all/bf16", "tanh": "all/bf16"}).decisions
    assert both["transpose"].output is dtypes.bfloat16
    assert both["dot"].quantizes


def biased(x: Any) -> Any:
    """Two layers with biases, the second one's of INT8 bad."""
    b = np.linspace(-1, 1, WIDE, dtype=np.float32)
    x = ns.tanh(ns.tanh(x @ ns.asarray(WEIGHTS[0]) + ns.asarray(b)) @ ns.asarray(BACK[0]))
    scale = np.ones(16, np.float32)
    scale[3] = 1000
    y = ns.tanh((x * ns.asarray(scale)) @ ns.asarray(WEIGHTS[1] / scale[:, None]) + ns.asarray(b))
    return y @ ns.asarray(BACK[1])


def test_int32_biases_follow_their_products_through_a_search_Q7() -> None:
    """A product that reads bytes takes its bias whatever was chosen for the addition, and leaves it to
    that choice where it falls back.
    """
    module = api.read_model(biased, ModelInputs(input_shapes={"x": (256, 16)}))
    rest = ns.plan(module, auto_cast="all", auto_cast_type="bf16")
    whole = ns.quantize(module, {"x": X}, "minmax,int32-bias")
    taken = {n: d.bias for n, d in whole.decisions.items() if d.bias}
    assert len(taken) == 2
    space = Space(module, {"int8": whole, "all/bf16": rest})
    first, second = taken
    found = space.plan({**dict.fromkeys(space.computing, "all/bf16"), first: "int8"})
    assert found.decisions[first].bias == taken[first]
    assert taken[first] not in found.decisions
    assert found.decisions[taken[second]].output is dtypes.bfloat16
    ns.compile(module, plan=found)
    plan = tuned_plan = ns.quantize(
        module, {"x": X}, "minmax,int32-bias", others="bf16", tolerance=0.02
    )
    assert plan.decisions[first].bias == taken[first]
    assert not plan.decisions[second].quantizes
    assert plan.decisions[taken[second]] == rest.decisions[taken[second]]
    keywords: dict[str, Any] = {"batch": 256, "target": "trn1+int8", "quantize": "minmax,int32-bias"}
    result = api.tune(biased, {"x": X}, tolerance=0.02, **keywords)
    assert result.chosen_plan is not None
    tuned_plan = result.chosen_plan.plan
    assert result.chosen_plan.base == "int8/minmax,int32-bias+bf16"
    assert (result.chosen_plan.figures.loss or 0) <= 0.02
    assert [d.bias for d in tuned_plan.decisions.values() if d.bias] == [taken[first]]


@pytest.mark.parametrize("scheme", ["minmax,int32-bias", "minmax,symmetric,int32-bias"])
def test_a_bias_in_the_sums_costs_no_instruction_Q7(scheme: str) -> None:
    def layer(x: Any) -> Any:
        return product(x) + ns.asarray(np.arange(WIDE, dtype=np.float32))

    plan = ns.quantize(layer, {"x": X}, scheme, batch=512)
    report = reports.cost(layer, plan=plan, target="trn1+int8", input_shapes={"x": (512, 16)})
    assert {i.name for i in report.estimate.instructions} == {"x.to_int8", "dot.sums", "add"}
    assert report.estimate.memory_bytes == 16 * WIDE + 8 * WIDE + 4 * (512 * 16 + 512 * WIDE)


# ---- the command line ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("quantized")
    module = api.read_model(network, ModelInputs(input_shapes={"x": (256, 16)}))
    proto.write(module, folder / "m.hlo.pb")
    np.savez(folder / "x.npz", x=X)
    return str(folder / "m.hlo.pb"), str(folder / "x.npz")


def test_tune_quantize_prints_and_writes_the_plan(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, plan = tmp_path / "t.json", tmp_path / "p.json"
    model, data = files
    words = ["tune", model, "--data", data, "--quantize", "minmax", "--target", "trn1+int8"]
    assert cli.main([*words, "--tolerance", "2%", "--json", str(out), "--output", str(plan)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "int8/minmax+bf16 tuned" in printed
    assert "with the INT8 products of its table" in printed
    assert "…" not in printed  # long names are folded, figures are whole
    assert "keep in float32" not in printed  # what is kept is kept from INT8
    found = json.loads(out.read_text())
    assert found["target"] == "trn1+int8"
    assert not math.isnan(found["plans"][0]["figures"]["loss"])
    assert "int8" in types_of(load_plan(plan)).values()
    assert cli.main([*words, "--tolerance", "2%", "--output", str(tmp_path / "p.toml")]) == 2
    assert "a policy has no scales" in capsys.readouterr().err


def test_fix_repairs_a_quantized_base(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = files
    out = tmp_path / "fixed.json"
    words = ["fix", model, "--data", data, "--base", "int8/minmax+bf16", "--tolerance", "2%"]
    assert cli.main([*words, "--output", str(out)]) == 0
    assert "run in the emulator" in capsys.readouterr().out.replace("\n", " ")
    types = list(types_of(load_plan(out)).values())
    assert types.count("int8") == 3  # of four products


def test_quantize_writes_a_plan_and_says_what_it_left_out_and_where_it_runs(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = files
    out = tmp_path / "p.json"
    words = ["quantize", model, "--data", data, "--output", str(out), "--exclude", "dot.1"]
    assert cli.main([*words, "--scheme", "mse,symmetric", "--others", "bf16"]) == 0
    printed = capsys.readouterr().out
    assert "3 instructions quantized" in printed
    assert "not quantized: dot.1: excluded by 'dot.1'" in printed
    assert "run in the emulator" in printed
    types = list(types_of(load_plan(out)).values())
    assert (types.count("int8"), "bfloat16" in types) == (3, True)
    assert cli.main([*words, "--target", "trn1+int8"]) == 0
    assert "emulator" not in capsys.readouterr().out
    assert cli.main(["explain", model, "--plan", str(out)]) == 0
    assert "run in the emulator" in capsys.readouterr().out
    assert cli.main(["quantize", model, "--data", data, "--output", str(tmp_path / "p.toml")]) == 2
    assert "its suffix says what is written: .json" in capsys.readouterr().err


def test_an_int8_rung_that_is_the_fastest_is_a_plan_to_write() -> None:
    """No flag says it."""

    def wide(x: Any) -> Any:
        return ns.tanh(x @ ns.asarray(WEIGHTS[0]))

    found = api.tune(wide, {"x": X}, batch=256, target="trn1+int8", quantize="minmax", tolerance=0.05)
    assert found.recommended.startswith("int8/minmax")
    assert found.chosen_plan is not None
    assert "int8" in types_of(found.chosen_plan.plan).values()


def test_the_page_blames_a_setting_of_bytes_that_fails(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    data, page = tmp_path / "x.npz", tmp_path / "page.html"
    np.savez(data, x=np.load(DIGITS / "test.npz")["x"][:64])
    words = ["tune", str(DIGITS / "model.hlo.pb"), "--data", str(data), "--strategy", "ladder"]
    words += ["--quantize", "minmax", "--target", "trn1+int8", "--tolerance", "0.008"]
    assert cli.main([*words, "--report", str(page)]) == 0
    assert "int8/minmax and --auto-cast all --auto-cast-type bf16" in page.read_text()
