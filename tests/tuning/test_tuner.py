"""Tuning as a whole: rungs of its own and of Inf1, what cannot be measured, and the command line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tests.support.commands import Commands
from tests.support.places import DATA, MODEL
from tests.tuning.variance_network import NETWORK

import neuronsim
from neuronsim import api, cli
from neuronsim.errors import InvalidArgument, InvalidData, NeuronSimError
from neuronsim.tuning import report, tuner
from neuronsim.tuning.results import TuneResult
from neuronsim.tuning.runner import Runner

pytestmark = pytest.mark.isa_independent
_rng = np.random.default_rng(9)
W = neuronsim.asarray((_rng.standard_normal((12, 6)) / 3).astype(np.float32))
X = _rng.standard_normal((24, 12)).astype(np.float32)


def classifier(x: Any) -> Any:
    return neuronsim.tanh(x) @ W


def tokens(x: Any) -> Any:
    return neuronsim.tanh(x).reshape(x.shape[0], 3, 4) * 2.0


LABELS = np.argmax(np.tanh(X) @ np.asarray(W), axis=1)


def measured(model: Any = classifier, labels: Any = None, **options: Any) -> TuneResult:
    keywords: dict[str, Any] = {"batch": 4, "strategy": "ladder", **options}
    return api.tune(model, {"x": X}, labels, **keywords)


# ---- models without batches ----------------------------------------------------------------------

NODES, EDGES, RUNS = 5, 9, 6
GRAPHS = {
    "nodes": _rng.standard_normal((RUNS, NODES, 12)).astype(np.float32),
    "source": _rng.integers(0, NODES, (RUNS, EDGES)).astype(np.int32),
}
TYPES = {"nodes": (NODES, 12), "source": (EDGES,)}


def graph_network(nodes: Any, source: Any) -> Any:
    """The classes of nodes, and what all messages add up to."""
    messages = neuronsim.take(neuronsim.tanh(nodes), source, axis=0)
    return nodes @ W + messages.sum(0, keepdims=True) @ W


def graph_model() -> Any:
    return neuronsim.compile(
        graph_network, input_shapes=TYPES, input_types={"source": "int32"}, auto_cast="none"
    ).model


def test_runs_of_a_model_without_batches_are_samples() -> None:
    model = graph_model()
    results = {}
    for setting in ("none", "all"):
        program = api.compile(model, auto_cast=setting)
        outputs = [program(*(GRAPHS[name][n] for name in program.inputs)) for n in range(RUNS)]
        results[setting] = np.stack([np.asarray(y, np.float64) for y in outputs])
    exact, low = results["none"], results["all"]
    labels = exact.argmax(-1)
    found = api.tune(model, GRAPHS, labels, strategy="ladder", tolerance=1.0)
    rung = next(r for r in found.rungs if r.name == "all/bf16")
    error = np.linalg.norm(low - exact) / np.linalg.norm(exact)
    assert rung.relative_error == pytest.approx(error, rel=1e-6)
    assert rung.max_error == pytest.approx(np.abs(low - exact).max(), rel=1e-6)
    assert rung.scores["top1"] == pytest.approx((low.argmax(-1) == labels).mean())
    assert found.samples == RUNS
    blamed = neuronsim.blame(model, GRAPHS, labels, auto_cast="all")
    assert blamed.samples == RUNS
    sizes = np.linalg.norm((low - exact).reshape(RUNS, -1), axis=1)
    norms = np.linalg.norm(exact.reshape(RUNS, -1), axis=1)
    assert blamed.lowered.worst_sample == pytest.approx((sizes / norms).max(), rel=1e-6)
    assert neuronsim.quantize(model, GRAPHS, labels=labels, tolerance=1.0).decisions
    assert neuronsim.calibrate(model, GRAPHS).values


# ---- rungs ---------------------------------------------------------------------------------------


def test_inf1_has_the_settings_of_neuron_cc_after_float32(capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(target="inf1", tolerance=0.5)
    assert found.release == "SDK 2.26, neuron-cc"
    report.print_ladder(found, Console())
    assert "are against float32; MB" in " ".join(capsys.readouterr().out.split())  # `none` casts
    names = [r.name for r in found.rungs]
    assert names[:2] == ["float32", "none"]
    assert {"all", "fp32-cast-matmult", "fp32-cast-matmult no-fast-relayout"} <= set(names)
    rung = {r.name: r for r in found.rungs}
    assert rung["none"].relative_error == rung["fp32-cast-matmult no-fast-relayout"].relative_error
    assert 0 < (rung["none"].loss or 0) < (rung["all"].loss or 0)
    assert found.recommended == "all"
    assert found.flag_line == "--fast-math all"
    strict = measured(target="inf1", tolerance=0.0)
    assert strict.recommended != "float32"  # the device has no float32 products
    assert "no setting is within the tolerance" in strict.notes[0]


def test_policies_and_plans_are_rungs(tmp_path: Path) -> None:
    plan = api.plan(classifier, auto_cast="matmult", auto_cast_type="fp16", input_shapes={"x": (4, 12)})
    path = tmp_path / "own.json"
    path.write_text(plan.to_json())
    found = {r.name: r for r in measured(rungs=["tvm-rfc/float16", str(path)]).rungs}
    assert found[str(path)].relative_error == found["matmult/fp16"].relative_error
    assert (found["tvm-rfc/float16"].relative_error or 0) > 0


def test_each_rung_is_measured_with_inputs_and_outputs_in_its_type() -> None:
    found = {r.name: r for r in measured(low_inputs=True).rungs}
    own, cast = found["all/bf16"], found["all/bf16 in/out"]
    assert cast.framework_type == "bfloat16"
    assert (cast.relative_error or 0) >= (own.relative_error or 0) > 0
    assert cast.estimated_seconds <= own.estimated_seconds
    assert "all/tf32 in/out" not in found  # no framework has the type


# ---- metrics -------------------------------------------------------------------------------------


def test_several_metrics_are_reported_and_the_first_decides() -> None:
    found = measured(metric=["cosine", "aws_ratio", "kl", "ulp", "logit_check"], tolerance=0.5)
    assert found.metric == "cosine"
    last = found.rungs[-1]
    assert set(last.scores) >= {"cosine", "aws_ratio", "kl", "ulp", "logit_check"}
    assert sum(last.outputs[0].ulps) == 24 * 6
    assert math.isnan(found.rungs[0].scores["aws_ratio"])  # n/a for none
    assert json.loads(found.to_json())["rungs"][0]["scores"]["aws_ratio"] is None
    assert last.scores["aws_ratio"] == pytest.approx(1.0, rel=0.2)
    assert last.verdict in ("accept", "over-precision")


def test_labels_of_each_token_are_taken() -> None:
    labels = np.argmax(np.tanh(X).reshape(24, 3, 4), axis=2)
    found = measured(tokens, labels)
    assert found.metric == "top1"
    assert found.rungs[0].top1 == 1.0


def test_a_function_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_metric.py").write_text("def right(outputs, labels):\n    return 0.5\n")
    monkeypatch.chdir(tmp_path)
    found = measured(metric="own_metric:right", labels=LABELS)
    assert {r.loss for r in found.rungs} == {0.0}
    seen: list[Any] = []

    def share(outputs: Any, labels: Any) -> Any:
        seen.append(outputs.shape)
        return outputs.argmax(axis=1) == labels

    found = measured(metric=share, labels=LABELS)
    assert found.rungs[0].scores["share"] == 1.0
    assert set(seen) == {(24, 6), (20, 6)}  # whole, and without each batch for the interval


# ---- bad data, bad metrics -----------------------------------------------------------------------


def test_nan_in_the_data_is_refused() -> None:
    x = X.copy()
    x[3, 1] = math.nan
    with pytest.raises(InvalidData, match=r"NaN at \[3, 1\]"):
        api.tune(classifier, {"x": x}, batch=4)


def test_a_metric_that_raises_is_told() -> None:
    def broken(outputs: Any, labels: Any) -> float:
        raise ZeroDivisionError("no labels")

    with pytest.raises(InvalidData, match="metric broken failed: ZeroDivisionError: no labels"):
        measured(metric=broken)


def test_a_metric_that_is_nan_for_float32_is_a_bad_baseline() -> None:
    with pytest.raises(InvalidData, match=r"float32's own outputs is NaN"):
        measured(metric=lambda outputs, labels: math.nan)
    labels = np.asarray(classifier(X)).argmin(1)
    with pytest.raises(InvalidData, match=r"perplexity of float32's own outputs is inf"):
        measured(lambda x: classifier(x) * 1e5, labels, metric="perplexity")  # exp of thousands


def test_a_metric_that_is_nan_for_a_setting_loses() -> None:
    def picky(outputs: Any, labels: Any) -> float:
        exact = np.asarray(api.compile(classifier, input_shapes={"x": (24, 12)}, auto_cast="none")(X))
        return 1.0 if np.array_equal(outputs, exact.astype(np.float64)) else math.nan

    found = measured(metric=picky)
    assert found.recommended == "none"
    assert {r.loss for r in found.rungs[1:]} == {math.inf}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.full(24, 6), "labels go from 6 to 6, the model has 6 classes"),
        (np.full(24, -1), "labels go from -1"),
        (np.zeros((24, 5), int), "needs an output of class scores"),
        (np.zeros(24), "takes class numbers"),
        (np.full(24, -100), "all labels are -100"),
        (np.zeros(23, int), "24 samples have 23 labels"),
    ],
)
def test_misfitting_labels_are_told(labels: Any, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        measured(labels=labels, metric="top1")
    with pytest.raises(InvalidData, match=message):
        neuronsim.blame(classifier, {"x": X}, labels, auto_cast="all", batch=4)
    with pytest.raises(InvalidData, match=message):
        neuronsim.quantize(classifier, {"x": X}, labels=labels, tolerance=0.01, batch=4)


@pytest.mark.parametrize("metric", ["top7", "top7_agreement"])
def test_more_classes_than_there_are_are_refused(metric: str) -> None:
    own = "top1_agreement" if metric.endswith("agreement") else "top1"
    with pytest.raises(InvalidData, match=f"is of 7 classes, and the model has 6: .* as {own}$"):
        measured(labels=LABELS, metric=metric)


def test_blame_counts_the_labels_that_tune_does() -> None:
    scores = np.tanh(X).reshape(24, 3, 4)
    labels = np.where(np.arange(72).reshape(24, 3) % 5, scores.argmax(-1), -100)
    labels[:6] = (labels[:6] + 1) % 4
    found = neuronsim.blame(tokens, {"x": X}, labels, auto_cast="all", batch=4)
    expected = measured(tokens, labels, metric="top1").rungs[0].top1
    assert found.float32_top1 == pytest.approx(expected)
    assert 0.5 < found.float32_top1 < 0.9


def test_the_page_needs_no_labels_that_are_classes(files: tuple[str, str], tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    data, page = tmp_path / "labelled.npz", tmp_path / "page.html"
    np.savez(data, x=np.load(files[1])["x"], labels=np.ones(40))
    words = ["tune", files[0], "--data", str(data), "--strategy", "ladder", "--report", str(page)]
    assert cli.main([*words, "--metric", "relative_error"]) == 0
    assert f"40 samples of {data}" in page.read_text()


def test_an_unreachable_tolerance_gives_float32_and_says_so() -> None:
    found = measured(tolerance=0.0, strategy="pareto", base="all/bf16")
    assert found.recommended == "none"
    plan = found.chosen_plan
    assert plan is None or (plan.figures.loss or 0) == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "paretoo"}, "did you mean 'pareto'"),
        ({"base": "all/bf17"}, "did you mean 'all/bf16'"),
        ({"max_trials": -1}, "max_trials"),
        ({"timeout": 0}, "timeout"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"criterion": "both"}, "absolute or relative"),
        ({"types": ["bf17"]}, "bf17"),
        ({"rungs": ["none/bf17"]}, "none/bf17"),
        ({"executor": 5}, "executor is one of concurrent.futures"),
        ({"memory": True}, "an integer of at least 1"),
        ({"higher_is_better": True}, "it is known which is better"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(NeuronSimError, match=message):
        measured(**options)


def test_metrics_of_one_number_have_intervals() -> None:
    for metric in ("relative_error", "nmse", "pcc", lambda outputs, _: float(np.abs(outputs).mean())):
        last = measured(metric=metric).rungs[-1]
        assert last.interval is not None
        low, high = last.interval
        assert low <= (last.loss or 0) <= high
        assert high > low
    assert measured(metric="max_error").rungs[-1].interval is None  # the worst of all says nothing
    assert measured(batch=12).rungs[-1].interval is None  # nor do two batches


def test_few_samples_are_said_to_be_few() -> None:
    found = measured(labels=LABELS, tolerance=0.01)
    assert "too few to tell" in " ".join(found.notes)


def test_two_low_settings_are_compared_pair_by_pair() -> None:
    """The bounds of their difference are those of leaving each batch out of both."""
    found = measured(metric="relative_error", tolerance=1.0)
    rung = {r.name: r for r in found.rungs}
    best = found.recommended
    assert rung[best].difference is None
    other = "all/bf16"
    assert best != other
    names = "none", best, other
    outputs = {}
    for name in names:
        cast, _, low = name.partition("/")
        own = {"auto_cast_type": low} if low else {}
        program = api.compile(classifier, auto_cast=cast, input_shapes={"x": (4, 12)}, **own)
        batches = [np.asarray(program(X[n : n + 4]), np.float64) for n in range(0, len(X), 4)]
        outputs[name] = np.stack(batches)
    exact, count = outputs["none"], len(X) // 4

    def loss(name: str, kept: list[int]) -> float:
        return float(np.linalg.norm((outputs[name] - exact)[kept]) / np.linalg.norm(exact[kept]))

    without = [[n for n in range(count) if n != left] for left in range(count)]
    differences = np.array([loss(other, kept) - loss(best, kept) for kept in without])
    spread = np.sqrt((count - 1) * np.mean((differences - differences.mean()) ** 2))
    low_, high = rung[other].difference or (0.0, 0.0)
    assert (low_ + high) / 2 == pytest.approx(
        (rung[other].loss or 0) - (rung[best].loss or 0), rel=1e-6
    )
    assert 1.9 * spread < (high - low_) / 2 < 4.4 * spread
    assert 'difference": [' in found.to_json()


def test_settings_that_no_sample_tells_apart_are_said_to_be_so() -> None:
    found = measured(labels=LABELS, tolerance=0.5)
    other = next(r for r in found.rungs[1:] if r.name != found.recommended)
    assert other.difference == (-3 / len(X), 3 / len(X))  # the rule of three
    assert f"and {found.recommended} apart" in " ".join(found.notes)


def test_a_loss_that_is_never_negative_has_bounds_that_are_not() -> None:
    x = X.copy()
    x[:4] *= 30.0  # one batch has most of the error
    for rung in api.tune(classifier, {"x": x}, batch=4, strategy="ladder").rungs[1:]:
        assert rung.interval is not None
        assert 0 < rung.interval[0] <= (rung.loss or 0) <= rung.interval[1]


def test_a_bad_baseline_is_said() -> None:
    wrong = measured(labels=(LABELS + 1) % 5)
    assert "no better than chance of" in " ".join(wrong.notes)
    assert "no better" not in " ".join(measured(labels=LABELS).notes)

    def zero(x: Any) -> Any:
        return (x @ W) * 0.0

    assert "output_0 is 0, as that of untrained weights may be, everywhere" in " ".join(
        measured(zero).notes
    )

    def one_of_two(x: Any) -> Any:
        return x @ W, x[:, :2] + math.inf

    assert "output_1 is NaN or infinite everywhere" in " ".join(measured(one_of_two).notes)

    def index_and_infinite(x: Any) -> Any:
        return neuronsim.argmax(x @ W, axis=1), x[:, :2] + math.inf

    assert "output_1 is NaN or infinite everywhere" in " ".join(measured(index_and_infinite).notes)
    with pytest.raises(InvalidData, match="every output is NaN or infinite everywhere in float32"):
        measured(lambda x: x @ W + math.nan)


# ---- the command line ----------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    model, data = tmp_path / "network.hlo", tmp_path / "x.npz"
    model.write_text(NETWORK)
    np.savez(data, x=np.random.default_rng(0).standard_normal((40, 64)).astype(np.float32))
    return str(model), str(data)


def test_fix_writes_the_policy_and_the_recipe(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policy.toml"
    words = ["fix", files[0], "--data", files[1], "--tolerance", "2%", "--output", str(path)]
    assert cli.main(words) == 0
    printed = capsys.readouterr().out
    assert "all/bf16 tuned" in printed
    assert "torch.autocast" in printed
    own = api.tune(files[0], files[1], rungs=[str(path)], strategy="ladder").rungs[-1]
    assert (own.loss or 0) <= 0.02


def test_an_interrupted_fix_says_so_and_fails(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    measure = Runner.measure_in_time
    monkeypatch.setattr(Runner, "measure_in_time", lambda *given: (measure(*given), "interrupted")[1])
    path = tmp_path / "policy.toml"
    assert cli.main(["fix", files[0], "--data", files[1], "--output", str(path)]) == 1
    printed = capsys.readouterr()
    assert "no plan was written: the search ended before it found one" in printed.out + printed.err
    assert "no repair of" in printed.out  # not that there is none
    assert "interrupted before it began" in " ".join(printed.out.split())
    assert not path.exists()


def test_a_plan_that_is_within_but_not_recommended_is_written_with_the_true_reason(
    tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuner, "_worthy", lambda *given: None)  # nothing is so much faster than a flag
    few, path = tmp_path / "few.npz", tmp_path / "policy.toml"
    np.savez(few, x=np.load(DATA)["x"][:64])
    words = ["tune", MODEL, "--data", few, "--tolerance", "0.001", "--max-trials", 20]
    out = commands.ok(*words, "--output", path)
    assert "all/bf16 tuned is within the tolerance, but only 1." in out
    assert "x the speed of all/tf32, which is recommended since flags have no exceptions" in out
    assert "is not within the tolerance; it is the best" not in out
    assert path.exists()
    _, out, err = commands.run(*words, "--output", path, "--json", "-")
    assert json.loads(out)["chosen"] == ""
    assert "all/bf16 tuned is within the tolerance" in err


@pytest.mark.parametrize("suffix", [".json", ".hlo.pb", ".hlo"])
def test_the_better_plan_is_written_as_its_suffix_says(
    suffix: str, files: tuple[str, str], tmp_path: Path
) -> None:
    path = tmp_path / f"out{suffix}"
    words = ["fix", files[0], "--data", files[1], "--tolerance", "2%", "--output", str(path)]
    assert cli.main([*words, "--json", str(tmp_path / "all.json")]) == 0
    body = json.loads((tmp_path / "all.json").read_text())
    assert (body["schema"], body["chosen"]) == ("neuronsim.tune/2", "all/bf16 tuned")
    if suffix == ".json":
        assert api.tune(files[0], files[1], rungs=[path], strategy="ladder").rungs[-1].loss is not None
    else:
        x = np.load(files[1])["x"][:8]
        exact = np.asarray(api.compile(files[0], auto_cast="none")(x), np.float64)
        planned = np.asarray(api.compile(str(path), auto_cast="none")(x), np.float64)
        assert 0 < np.linalg.norm(planned - exact) <= 0.02 * np.linalg.norm(exact)


def test_a_failing_row_names_the_next_command(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tune", files[0], "--data", files[1], "--strategy", "ladder", "--tolerance", "2%"]
    assert cli.main(words) == 0
    assert "neuronsim fix" in capsys.readouterr().out


def test_an_unknown_suffix_is_refused_before_any_work(files: tuple[str, str]) -> None:
    assert cli.main(["fix", files[0], "--data", files[1], "--output", "plan.yaml"]) == 2


def test_exceptions_have_a_place(files: tuple[str, str]) -> None:
    with pytest.raises(InvalidArgument, match="metric"):
        api.tune(files[0], files[1], metric="top")


@pytest.mark.parametrize("base", ["all", "none", "fp32-cast-matmult-fp16"])
def test_a_fix_of_inf1s_settings_is_a_policy_of_the_same_plan(
    base: str, tmp_path: Path, commands: Commands
) -> None:
    few, path = tmp_path / "few.npz", tmp_path / "policy.toml"
    np.savez(few, x=np.load(DATA)["x"][:64])
    words = ["fix", MODEL, "--data", few, "--target", "inf1", "--base", base, "--tolerance", "3e-3"]
    words += ["--max-trials", 6, "--metric", "relative_error", "--output"]
    commands.ok(*words, path)
    commands.ok(*words, tmp_path / "plan.json")
    own = api.plan(MODEL, policy=str(path), target="inf1").decisions
    plan = json.loads((tmp_path / "plan.json").read_text())
    types = {n: (d.operand.name, d.output.name) for n, d in own.items()}
    planned = {n: (d["operand"], d["output"]) for n, d in plan["decisions"].items()}
    assert planned == types  # of products too, which Inf1 has none of in float32
    assert any(n.startswith("dot") for n in planned)
