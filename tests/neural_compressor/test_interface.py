"""Neural Compressor's interface: configurations, criteria, evaluation, capability, what comes back."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neuronsim
from neuronsim import dtypes
from neuronsim.casting.policies.policy_file import parse_policy
from neuronsim.errors import FlagWarning, InvalidArgument, InvalidData, UnsupportedType
from neuronsim.neural_compressor import (
    AccuracyCriterion,
    MixedPrecisionConfig,
    PostTrainingQuantConfig,
    TuningCriterion,
    mix_precision,
    quantization,
)
from neuronsim.neural_compressor.conversion import policy_of
from neuronsim.neural_compressor.experimental import MixedPrecision, Quantization, common
from neuronsim.neural_compressor.precisions import check_capability
from neuronsim.targets import find_target

pytestmark = pytest.mark.isa_independent
MODEL = "examples/digits/model.hlo.pb"
_rng = np.random.default_rng(5)
X = _rng.standard_normal((40, 24)).astype(np.float32)
W = [neuronsim.asarray((_rng.standard_normal((24, 24)) / 5).astype(np.float32)) for _ in range(3)]


def unstable_variance(x: Any) -> Any:
    """Its variance is the difference of two large numbers: bfloat16 loses it."""
    h = neuronsim.tanh(x @ W[0]) + 20.0
    variance = (h * h).mean(axis=1, keepdims=True) - neuronsim.square(h.mean(axis=1, keepdims=True))
    return neuronsim.tanh((h - 20.0) * variance @ W[1])


def exact(model: Any = unstable_variance) -> np.ndarray:
    program = neuronsim.compile(model, auto_cast="none", input_shapes={"x": (8, 24)})
    return np.concatenate([np.asarray(program(X[n : n + 8])) for n in range(0, 40, 8)])


TRUTH = exact()


def error_of(program: Any) -> float:
    found = np.concatenate([np.asarray(program(X[n : n + 8])) for n in range(0, 40, 8)])
    return float(np.linalg.norm(found - TRUTH) / np.linalg.norm(TRUTH))


def closeness(program: Any) -> float:
    return 1.0 - error_of(program)


def config(**fields: Any) -> MixedPrecisionConfig:
    return MixedPrecisionConfig(**{"example_inputs": X[:8], **fields})


def within(tolerable_loss: float, **fields: Any) -> MixedPrecisionConfig:
    """A configuration with this absolute loss."""
    criterion = AccuracyCriterion(criterion="absolute", tolerable_loss=tolerable_loss)
    return config(accuracy_criterion=criterion, **fields)


def kept(program: Any) -> int:
    """How many computing instructions are wider than the low type."""
    result = program.tune_result
    return len(result.chosen_plan.kept) if result.chosen_plan else 10**6


# ---- criteria ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tolerable_loss", [0.5, 0.02, 0.0])
def test_eval_func_and_absolute_loss(tolerable_loss: float) -> None:
    found = mix_precision.fit(unstable_variance, within(tolerable_loss), eval_func=closeness)
    assert error_of(found) <= tolerable_loss + 1e-9
    assert found.plan.decisions or not tolerable_loss


def test_lower_is_better_and_relative_loss() -> None:
    # The baseline is 2: 0.01 of it is an error of 0.02.
    criterion = AccuracyCriterion(higher_is_better=False, criterion="relative", tolerable_loss=0.01)
    asked = config(accuracy_criterion=criterion)
    found = mix_precision.fit(unstable_variance, asked, eval_func=lambda m: 2 + error_of(m))
    whole = mix_precision.fit(unstable_variance, config())
    assert error_of(found) <= 0.02 + 1e-9 < error_of(whole)
    # With the other direction worse is better, so that nothing has to stay float32.
    wrong = dataclasses.replace(criterion, higher_is_better=True)
    asked = config(accuracy_criterion=wrong)
    found = mix_precision.fit(unstable_variance, asked, eval_func=lambda m: 2 + error_of(m))
    assert found.plan.decisions == whole.plan.decisions


def test_max_trials_and_timeout_give_the_best_so_far() -> None:
    tuning = TuningCriterion(max_trials=8)
    asked = within(0.02, tuning_criterion=tuning)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlagWarning)
        found = mix_precision.fit(unstable_variance, asked, eval_func=closeness)
        assert found.tune_result is not None
        assert found.tune_result.search is not None
        assert found.tune_result.search.stopped == "max-trials"
        assert error_of(found) <= 0.02
        tuning = TuningCriterion(timeout=1e-4)
        asked = within(0.02, tuning_criterion=tuning)
        found = mix_precision.fit(unstable_variance, asked, eval_func=closeness)
    assert error_of(found) <= 0.02


@pytest.mark.parametrize("objective", ["performance", "modelsize", "footprint"])
def test_every_objective_is_within_the_criterion(objective: str) -> None:
    tuning = TuningCriterion(objective=objective)
    asked = within(0.02, tuning_criterion=tuning)
    found = mix_precision.fit(unstable_variance, asked, eval_func=closeness)
    assert error_of(found) <= 0.02
    if objective == "modelsize":  # both weights are bfloat16: no smaller plan could be
        assert found.weight_bytes == mix_precision.fit(unstable_variance, config()).weight_bytes


def test_the_default_search_needs_no_more_float32_than_the_published_procedure() -> None:
    ours, theirs = (
        mix_precision.fit(
            unstable_variance,
            within(0.02, tuning_criterion=TuningCriterion(strategy=s)),
            eval_func=closeness,
        )
        for s in ("basic", "automixedprecision")
    )
    assert kept(ours) <= kept(theirs) < 10**6


# ---- evaluation ----------------------------------------------------------------------------------


def test_eval_func_is_given_the_values_that_the_program_has() -> None:
    seen: list[float] = []

    def evaluate(model: Any) -> float:
        seen.append(closeness(model))
        return seen[-1]

    found = mix_precision.fit(unstable_variance, within(0.02), eval_func=evaluate)
    assert closeness(found) in seen  # to the bit
    assert seen[0] == 1.0


def test_eval_func_that_shuffles_its_batches() -> None:
    rng = np.random.default_rng(0)

    def evaluate(model: Any) -> float:
        distance = sum(
            float(np.square(np.asarray(model(X[n : n + 8])) - TRUTH[n : n + 8]).sum())
            for n in rng.permutation(5) * 8
        )
        return -float(np.sqrt(distance)) / float(np.linalg.norm(TRUTH))

    asked = within(0.02)
    found = mix_precision.fit(unstable_variance, asked, eval_func=evaluate)
    ordered = mix_precision.fit(unstable_variance, asked, eval_func=closeness)
    assert found.plan.decisions == ordered.plan.decisions


def test_eval_func_that_calls_other_data_is_refused() -> None:
    calls = iter(range(100))

    def evaluate(model: Any) -> float:
        return float(np.asarray(model(X[:8] * (1 + next(calls)))).mean())

    with pytest.raises(InvalidData, match="other inputs than it did at first"):
        mix_precision.fit(unstable_variance, config(), eval_func=evaluate)
    with pytest.raises(InvalidData, match="never called the model"):
        mix_precision.fit(unstable_variance, config(), eval_func=lambda m: 1.0)
    with pytest.raises(InvalidData, match="no number"):
        mix_precision.fit(unstable_variance, config(), eval_func=lambda m: [m(X[:8])].clear())


@pytest.mark.parametrize("form", ["tuple", "mapping", "batches"])
def test_dataloader_forms_give_the_same_plan(form: str) -> None:
    labels = TRUTH
    samples: dict[str, Any] = {
        "tuple": list(zip(X, labels, strict=True)),
        "mapping": [({"x": a}, b) for a, b in zip(X, labels, strict=True)],
    }
    loader: Any = [(X[n : n + 8], labels[n : n + 8]) for n in range(0, 40, 8)]
    if form != "batches":
        loader = common.DataLoader(samples[form], batch_size=8)
    criterion = AccuracyCriterion(higher_is_better=False, criterion="absolute", tolerable_loss=1e-5)
    asked = config(accuracy_criterion=criterion)
    found = mix_precision.fit(unstable_variance, asked, eval_dataloader=loader, eval_metric={"MSE": {}})
    assert np.mean((np.asarray(found(X[:8])) - TRUTH[:8]) ** 2) <= 1e-4
    assert found.tune_result is not None
    assert found.tune_result.chosen_plan is not None
    assert (found.tune_result.chosen_plan.figures.loss or 0) <= 1e-5
    assert found.plan.decisions


def test_metric_of_two_arguments_and_common_metric() -> None:
    class Error:
        def __init__(self, scale: float = 1.0) -> None:
            self.scale = scale
            self.reset()

        def update(self, predictions: Any, labels: Any) -> None:
            self.total += self.scale * float(np.abs(predictions - labels).sum())

        def reset(self) -> None:
            self.total = 0.0

        def result(self) -> float:
            return self.total

    criterion = AccuracyCriterion(higher_is_better=False, criterion="absolute", tolerable_loss=1.0)
    converter = MixedPrecision(config(accuracy_criterion=criterion))
    converter.model = common.Model(unstable_variance)
    converter.eval_dataloader = common.DataLoader(list(zip(X, TRUTH, strict=True)), batch_size=8)
    converter.metric = common.Metric(Error, "error", scale=2.0)
    found = converter.fit()
    assert found.tune_result is not None
    figures = found.tune_result.chosen_plan.figures  # type: ignore[union-attr]
    program = np.concatenate([np.asarray(found(X[n : n + 8])) for n in range(0, 40, 8)])
    expected = 2.0 * np.abs(program.astype(np.float64) - TRUTH).sum()
    assert figures.loss == pytest.approx(expected, rel=1e-6)
    assert figures.loss <= 1.0


def test_what_is_missing_or_wrong_is_said() -> None:
    converter = MixedPrecision()
    with pytest.raises(InvalidArgument, match="there is no model"):
        converter()
    converter.model, converter.metric = MODEL, {"topk": 1}
    with pytest.raises(InvalidArgument, match="metric is given but no eval_dataloader"):
        converter()
    converter.eval_dataloader = common.DataLoader([(X[0], 1)])
    converter.metric = {"mAP": {}}
    with pytest.raises(InvalidArgument, match="built-in metrics are topk"):
        converter()
    converter.metric = object()
    with pytest.raises(InvalidArgument, match="no update, reset, result"):
        converter()
    with pytest.raises(InvalidArgument, match="did you mean 'bf16'"):
        mix_precision.fit(MODEL, MixedPrecisionConfig(precisions="bf61"))
    with pytest.raises(InvalidArgument, match="made by quantization"):
        mix_precision.fit(MODEL, MixedPrecisionConfig(precisions="int8"))
    with pytest.raises(InvalidArgument, match="criterion is one of"):
        AccuracyCriterion(criterion="both")
    with pytest.raises(InvalidArgument, match="strategy is one of"):
        mix_precision.fit(MODEL, config(tuning_criterion=TuningCriterion(strategy="best")))


def test_a_model_whose_shapes_nothing_says() -> None:
    with pytest.raises(InvalidArgument, match="example_inputs of the configuration"):
        mix_precision.fit(unstable_variance, MixedPrecisionConfig(), eval_func=closeness)


def test_models_of_torch_and_jax_take_their_shapes_from_the_data() -> None:
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    net = torch.nn.Linear(24, 5).eval()
    x = torch.from_numpy(X)
    with torch.no_grad():
        labels = net(x).argmax(-1)
    data = torch.utils.data.TensorDataset(x, labels)
    converter = MixedPrecision()
    converter.model, converter.metric = net, {"Accuracy": {}}
    converter.eval_dataloader = torch.utils.data.DataLoader(data, batch_size=8)
    weights = net.weight.detach().numpy().T, net.bias.detach().numpy()
    for model in (net, jax.jit(lambda x: jax.nn.relu(x @ weights[0] + weights[1]))):
        converter.model = model
        found = converter()
        assert found.plan.decisions
        assert found.tune_result is not None
        assert found.tune_result.metric == "top1"
        assert np.asarray(found(X[:8])).shape == (8, 5)


def test_an_onnx_model_is_saved_as_onnx(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, float32 = onnx.helper, onnx.TensorProto.FLOAT
    weights = onnx.numpy_helper.from_array(np.asarray(W[0]), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")],
        "linear",
        [helper.make_tensor_value_info("x", float32, ["batch", 24])],
        [helper.make_tensor_value_info("y", float32, ["batch", 24])],
        [weights],
    )
    file = str(tmp_path / "model.onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)]), file)
    converter = MixedPrecision()
    converter.model, converter.metric = file, {"MAE": {}}
    converter._config = dataclasses.replace(
        converter._config, accuracy_criterion=AccuracyCriterion(False, "absolute", 0.5)
    )
    truth = X @ np.asarray(W[0])
    converter.eval_dataloader = common.DataLoader(list(zip(X, truth, strict=True)), batch_size=8)
    found = converter()
    named = MixedPrecisionConfig(example_inputs={"x": X})  # a batch that the file leaves open
    assert np.asarray(mix_precision.fit(file, named)(X)).shape == (40, 24)
    found.save(tmp_path / "planned.onnx")
    nodes = onnx.load(tmp_path / "planned.onnx").graph.node
    assert [n.op_type for n in nodes].count("Cast") >= 2
    assert np.asarray(found(X[:8])).shape == (8, 24)


# ---- capability ----------------------------------------------------------------------------------


def test_missing_capability_raises_and_force_bf16_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = MixedPrecisionConfig(device="inf1", precisions="tf32")
    monkeypatch.delenv("FORCE_BF16", raising=False)
    with pytest.raises(UnsupportedType, match="FORCE_BF16=1"):
        mix_precision.fit(MODEL, asked)
    bare = dataclasses.replace(find_target("inf1"), types=frozenset({dtypes.float32}))
    with pytest.raises(UnsupportedType, match="no products in bfloat16"):
        check_capability(bare, dtypes.bfloat16)
    monkeypatch.setenv("FORCE_BF16", "1")
    with pytest.warns(FlagWarning, match="emulated as those of trn1"):
        assert check_capability(bare, dtypes.bfloat16).name == "trn1"
    with pytest.warns(FlagWarning, match="FORCE_BF16=1"):
        found = mix_precision.fit(MODEL, asked)
    assert {d.operand for d in found.plan.decisions.values()} == {dtypes.tfloat32}


# ---- policies ------------------------------------------------------------------------------------


def test_the_rule_file_and_op_wise_build_the_same_policy() -> None:
    op_wise = {
        "dot_general.*": {"activation": {"dtype": ["fp32"]}, "weight": {"dtype": ["fp32"]}},
        "*/softmax/*": {"activation": {"dtype": "fp16, fp32"}},
    }
    built = policy_of(MixedPrecisionConfig(op_name_dict=op_wise, model_name="mine"), "bf16")
    file = parse_policy(
        """
schema = "neuronsim.policy/1"
name = "mine"
base = "all/bf16"
[[rule]]
reason = "op_wise allows dot_general.* fp32"
category = "never"
name = ["dot_general.*"]
[[rule]]
reason = "op_wise allows */softmax/* fp16, fp32"
category = "always"
low = "float16"
scope = "*/softmax/*"
""",
        "toml",
    )
    assert built == file


def test_a_weight_alone_switches_bfloat16_off() -> None:
    entry = {"activation": {"dtype": ["bf16", "fp32"]}, "weight": {"dtype": ["fp32"]}}
    found = mix_precision.fit(MODEL, MixedPrecisionConfig(op_name_dict={"dot_general.10": entry})).plan
    assert "dot_general.10" not in found.decisions
    assert "dot_general.11" in found.decisions


def test_operations_and_default_qconfig() -> None:
    off = {"activation": {"dtype": ["fp32"]}, "weight": {"dtype": ["fp32"]}}
    whole = mix_precision.fit(MODEL, MixedPrecisionConfig()).plan
    found = mix_precision.fit(MODEL, MixedPrecisionConfig(op_type_dict={"MatMul": off})).plan
    products = {n for n in whole.decisions if n.startswith("dot_general")}
    assert products
    assert set(found.decisions) == set(whole.decisions) - products
    one = min(products)
    low = {"activation": {"dtype": ["bf16"]}, "weight": {"dtype": ["bf16"]}}
    only = MixedPrecisionConfig(op_name_dict={"default_qconfig": off, one: low})
    decided = mix_precision.fit(MODEL, only).plan.decisions
    assert set(decided) == {one}
    assert not mix_precision.fit(MODEL, MixedPrecisionConfig(precisions="fp32")).plan.decisions


# ---- what comes back -----------------------------------------------------------------------------


def test_the_program_saves_the_planned_model(tmp_path: Path) -> None:
    found = mix_precision.fit(MODEL, MixedPrecisionConfig())
    with np.load("examples/digits/test.npz") as data:
        x = data["x"][:64]
    expected = np.asarray(found(x)).tobytes()
    for name in ("planned.hlo.pb", "planned.hlo"):
        found.save(tmp_path / name)
        again = neuronsim.compile(str(tmp_path / name), auto_cast="none")
        assert np.asarray(again(x)).tobytes() == expected
    found.save(tmp_path / "program.nsim")
    program: Any = neuronsim.load(tmp_path / "program.nsim")
    assert np.asarray(program(x)).tobytes() == expected
    found.save(tmp_path / "plan.json")
    planned = neuronsim.compile(MODEL, plan=str(tmp_path / "plan.json"))
    assert np.asarray(planned(x)).tobytes() == expected
    with pytest.raises(InvalidArgument, match="ONNX"):
        found.save(tmp_path / "planned.onnx")


# ---- yaml ----------------------------------------------------------------------------------------


def test_yaml_criteria_and_exit_policy(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    conf = tmp_path / "conf.yaml"
    conf.write_text(
        "device: trn1\n"
        "mixed_precision: {precisions: 'fp16, fp32'}\n"
        "tuning:\n  accuracy_criterion: {absolute: 0.02, higher_is_better: false}\n"
        "  objective: modelsize\n  exit_policy: {timeout: 60, max_trials: 7}\n"
    )
    found = MixedPrecision(conf)._config
    assert found.precisions == ("fp16", "fp32")
    assert found.accuracy_criterion == AccuracyCriterion(False, "absolute", 0.02)
    assert found.tuning_criterion == TuningCriterion("basic", None, 60, 7, "modelsize")
    for text, message in (
        ("mixed_precission: {}", "did you mean 'mixed_precision'"),
        ("tuning: {accuracy_criterion: {absolute: 1, relative: 1}}", "not both"),
        ("evaluation: {accuracy: {dataloader: {dataset: {ImageFolder: {}}}}}", "in code"),
        ("[1, 2", "no yaml"),
        ("[1, 2]", "no table"),
    ):
        conf.write_text(text)
        with pytest.raises(InvalidArgument, match=message):
            MixedPrecision(conf)


# ---- quantization --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits() -> dict[str, np.ndarray]:
    with np.load("examples/digits/test.npz") as data:
        return {n: data[n][:128] for n in data.files}


def accuracy(program: Any, data: dict[str, np.ndarray]) -> float:
    parts = [np.asarray(program(data["x"][n : n + 64])) for n in (0, 64)]
    return float((np.concatenate(parts).argmax(-1) == data["labels"]).mean())


def counts(plan: Any) -> tuple[int, int]:
    """How many instructions read INT8, and how many give bfloat16."""
    decided = plan.decisions.values()
    return sum(d.quantizes for d in decided), sum(d.output is dtypes.bfloat16 for d in decided)


def test_quantization_by_yaml_and_bf16_beside_it(tmp_path: Path, digits: Any) -> None:
    pytest.importorskip("yaml")
    data = tmp_path / "data.npz"
    np.savez(data, **digits)
    conf = tmp_path / "conf.yaml"
    text = f"""
model: {{name: digits}}
quantization:
  calibration:
    sampling_size: 64
    dataloader: {{batch_size: 64, dataset: {{npz: {{root: {data}}}}}}}
  model_wise:
    weight: {{granularity: per_tensor, scheme: sym, dtype: int8, algorithm: minmax}}
    activation: {{scheme: asym, dtype: [uint8, bf16, fp32], algorithm: [kl, minmax]}}
  op_wise: {{
    'dot_general.10': {{activation: {{dtype: [fp32]}}, weight: {{dtype: [fp32]}}}}
  }}
evaluation:
  accuracy:
    metric: {{topk: 1}}
    dataloader: {{batch_size: 64, dataset: {{npz: {{root: {data}}}}}}}
tuning:
  accuracy_criterion: {{relative: 0.01}}
  exit_policy: {{timeout: 0, max_trials: 50}}
"""
    conf.write_text(text.replace("dtype: int8,", "dtype: [int8, bf16],"))
    quantizer = Quantization(str(conf))
    quantizer.model = MODEL
    q_model = quantizer()
    integers, low = counts(q_model.plan)
    assert integers == 9
    assert low > 20
    assert "dot_general.10" not in q_model.plan.decisions
    decided = q_model.plan.decisions["dot_general.11"].quantized_operands
    assert [d.type for d in decided if d] == [dtypes.uint8, dtypes.int8]
    assert "entropy" in q_model.plan.policy
    exact = neuronsim.compile(MODEL, auto_cast="none")
    assert accuracy(q_model, digits) >= 0.99 * accuracy(exact, digits) - 1e-9

    conf.write_text(text.replace("[uint8, bf16, fp32]", "[uint8, fp32]"))  # BF16 is switched off
    quantizer = Quantization(str(conf))
    quantizer.model = MODEL
    assert counts(quantizer.fit().plan) == (9, 0)


def test_quantization_fit_falls_back_until_the_criterion_holds(digits: Any) -> None:
    loader = common.DataLoader(list(zip(digits["x"], digits["labels"], strict=True)), batch_size=64)
    whole = quantization.fit(MODEL, PostTrainingQuantConfig(), calib_dataloader=loader)
    assert counts(whole.plan)[0] == 10
    reference = neuronsim.compile(MODEL, auto_cast="none")

    def closeness(program: Any) -> float:
        pairs = [(np.asarray(p(digits["x"][:64])), 0) for p in (program, reference)]
        (a, _), (b, _) = pairs
        return 1 - float(np.linalg.norm(a - b) / np.linalg.norm(b))

    lost = 1 - closeness(whole)
    criterion = AccuracyCriterion(criterion="absolute", tolerable_loss=lost * 0.8)
    found = quantization.fit(
        MODEL,
        PostTrainingQuantConfig(accuracy_criterion=criterion),
        calib_dataloader=loader,
        eval_func=closeness,
    )
    assert 1 - closeness(found) <= lost * 0.8
    assert 0 < counts(found.plan)[0] < 10
    strict = PostTrainingQuantConfig(
        accuracy_criterion=dataclasses.replace(criterion, tolerable_loss=0)
    )
    with pytest.warns(FlagWarning, match="no INT8 plan"):
        none = quantization.fit(MODEL, strict, calib_dataloader=loader, eval_func=closeness)
    assert not none.plan.decisions


def test_quantization_tells_what_it_does_not_act_on(digits: Any) -> None:
    loader = [(digits["x"][:64], digits["labels"][:64])]
    own = {"dot_general.10": {"weight": {"dtype": ["int8"], "scheme": ["asym"]}}}
    config = PostTrainingQuantConfig(
        op_name_dict=own, tuning_criterion=TuningCriterion(objective="modelsize")
    )
    with pytest.warns(FlagWarning, match=r"'dot_general.10'.weight.scheme, the objective modelsize"):
        quantization.fit(MODEL, config, calib_dataloader=loader)


def test_excluded_precisions_and_frameworks(digits: Any) -> None:
    loader = [(digits["x"][:64], digits["labels"][:64])]
    for fields, expected in (
        ({"excluded_precisions": ["bf16"]}, None),
        ({"framework": "tensorflow"}, "neural-compressor/bfloat16"),
        ({"framework": "pytorch_fx"}, "neural-compressor-modules/bfloat16"),
        ({}, "all/bf16"),
    ):
        found = quantization.fit(MODEL, PostTrainingQuantConfig(**fields), calib_dataloader=loader).plan
        assert found.policy.endswith(f"others {expected or 'none'}")
        assert (counts(found)[1] > 0) == (expected is not None)
    with pytest.raises(InvalidArgument, match="calib_dataloader"):
        quantization.fit(MODEL, PostTrainingQuantConfig())
    with pytest.raises(InvalidArgument, match="approach"):
        quantization.fit(MODEL, PostTrainingQuantConfig(approach="dynamic"), calib_dataloader=loader)


# ---- other spellings of both versions --------------------------------------------------------------


def test_the_configuration_of_2_0_is_called_config_and_its_precision_has_one() -> None:
    asked = MixedPrecisionConfig(precision="fp16", model_name="net", example_inputs=X[:8])
    assert asked.precisions == ("fp16",)
    found = mix_precision.fit(model=unstable_variance, config=asked)
    assert (
        found.plan.decisions == mix_precision.fit(unstable_variance, config_of("fp16")).plan.decisions
    )
    for fit in (mix_precision.fit, quantization.fit):
        with pytest.raises(InvalidArgument, match=r"conf is a \w+Config, not None"):
            fit(unstable_variance)


def config_of(precisions: str) -> MixedPrecisionConfig:
    return MixedPrecisionConfig(precisions=precisions, example_inputs=X[:8])


@pytest.mark.parametrize("device", ["gpu", "npu", "xpu"])
def test_other_devices_of_neural_compressor_are_emulated_with_a_word(device: str) -> None:
    with pytest.warns(FlagWarning, match=f"no device '{device}' here: trn1 is emulated"):
        found = mix_precision.fit(unstable_variance, config(device=device))
    assert found.setup.target.name == "trn1"
    with pytest.raises(InvalidArgument, match="unknown target 'tpu'"):
        mix_precision.fit(unstable_variance, config(device="tpu"))


def test_the_loader_and_the_metric_of_2_6() -> None:
    from neuronsim.neural_compressor import Metric
    from neuronsim.neural_compressor.data import DataLoader

    labels = TRUTH.argmax(-1)
    samples = list(zip(X, labels, strict=True))
    loader = DataLoader(framework="pytorch", dataset=samples, batch_size=8, num_workers=2)
    found = mix_precision.fit(
        unstable_variance,
        MixedPrecisionConfig(),
        eval_dataloader=loader,
        eval_metric=Metric(name="topk", k=1),
    )
    assert found.tune_result is not None
    assert found.tune_result.metric == "top1"
    assert len(list(DataLoader("pytorch", samples, batch_size=8))) == 5  # as 2.6 places them
    with pytest.raises(InvalidArgument, match="DataLoader has no batchsize"):
        DataLoader(samples, batchsize=8)
    with pytest.raises(InvalidArgument, match="shuffle: an evaluation reads the same batches"):
        DataLoader(samples, shuffle=True)
    unknown = {"eval_dataloader": loader, "eval_metric": Metric(name="coco_map")}
    with pytest.raises(InvalidArgument, match="built-in metrics are topk"):
        mix_precision.fit(unstable_variance, MixedPrecisionConfig(), **unknown)


def test_a_loader_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    data = torch.utils.data
    labels = torch.from_numpy(TRUTH.argmax(-1))
    loader = data.DataLoader(data.TensorDataset(torch.from_numpy(X), labels), batch_size=8)
    converter = MixedPrecision()
    converter.model = unstable_variance
    converter.eval_dataloader = loader
    converter.metric = common.Metric(name="topk", k=1)
    assert converter.fit().tune_result.samples == 40


def test_conf_of_1_14_is_a_configuration_in_python() -> None:
    from neuronsim.neural_compressor.conf.config import Settings

    conf = Settings()  # as `from neural_compressor import conf`, of which there is one
    conf.model.framework = "tensorflow"
    conf.tuning.exit_policy.max_trials = 3
    conf.tuning.accuracy_criterion.absolute = 0.02
    converter = MixedPrecision(conf)
    converter.precisions = "bf16"
    converter.model = common.Model(MODEL)
    converter.eval_func = lambda model: float(np.asarray(model(np.zeros((64, 8, 8), np.float32))).size)
    found = converter.fit()
    assert found.tune_result is not None
    assert found.tune_result.tolerance == 0.02
    with pytest.raises(InvalidArgument, match=r"tuning\.exit_polcy is no key"):
        MixedPrecision({"tuning": {"exit_polcy": {}}})


def test_conf_of_a_file_is_changed_before_it_is_used(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    from neuronsim.neural_compressor.conf.config import MixedPrecision_Conf, Quantization_Conf

    path = tmp_path / "conf.yaml"
    path.write_text("model: {name: m}\ntuning: {exit_policy: {max_trials: 5}}\n")
    conf = MixedPrecision_Conf(path)
    assert conf.usr_cfg.tuning.exit_policy.max_trials == 5
    conf.usr_cfg.mixed_precision.precisions = "fp16"
    converter = MixedPrecision(conf)
    converter.model = MODEL
    assert converter.precisions == ("fp16",)
    assert dtypes.float16 in {d.output for d in converter().plan.decisions.values()}
    conf.usr_cfg.tuning.exit_policy.max_trial = 3
    with pytest.raises(InvalidArgument, match=r"tuning\.exit_policy\.max_trial is no key"):
        MixedPrecision(conf)
    quantization_conf = Quantization_Conf(path)
    quantization_conf.usr_cfg.quantization.calibration.sampling_size = 7
    assert Quantization(quantization_conf)._config.calibration_sampling_size == 7


def test_datasets_dataloaders_and_metrics_by_their_names(tmp_path: Path) -> None:
    from neuronsim.neural_compressor.data import DATALOADERS, DATASETS, Datasets
    from neuronsim.neural_compressor.metric import METRICS

    assert DATASETS is Datasets
    dataset = Datasets("tensorflow")["dummy"](shape=(40, 24), low=-1.0, high=1.0)
    assert len(dataset) == 40
    found = mix_precision.fit(
        unstable_variance,
        MixedPrecisionConfig(),
        eval_dataloader=DATALOADERS["tensorflow"](dataset, batch_size=8),
        eval_metric=METRICS("tensorflow")["topk"](k=24),
    )
    assert found.tune_result is not None
    assert found.tune_result.metric == "top24"  # of 24 classes: all are right, and all is lowered
    assert found.tune_result.recommended == "all/bf16"

    images, numbers = Datasets()["dummy"](
        shape=[(3, 2, 2), (3, 5)], low=[0, 1], high=[1, 9], dtype=["float16", "int32"], label=False
    )[1]
    assert images.shape == (2, 2)
    assert images.dtype == np.float16
    assert ((numbers >= 1) & (numbers < 9)).all()
    np.savez(tmp_path / "x.npz", x=X, labels=np.arange(40))
    sample, label = Datasets()["npz"](root=tmp_path / "x.npz")[3]
    assert np.array_equal(sample["x"], X[3])
    assert label == 3
    with pytest.raises(InvalidArgument, match="there is no data set ImageRecord"):
        Datasets("tensorflow")["ImageRecord"](root="images")
    with pytest.raises(InvalidArgument, match="there is no metric F1: built in are topk"):
        METRICS("tensorflow")["F1"]()
    for wrong in (
        {"shape": (-1, 3)},
        {"shape": (4, 2), "dtype": "float7"},
        {"shape": [(4, 2), (5, 2)]},
    ):
        with pytest.raises(InvalidArgument, match="dummy"):
            Datasets()["dummy"](**wrong)
    unlabelled = {"MSE": {"compare_label": False}}
    with pytest.raises(InvalidArgument, match="MSE compares outputs and labels"):
        mix_precision.fit(
            unstable_variance,
            MixedPrecisionConfig(accuracy_criterion=AccuracyCriterion(higher_is_better=False)),
            eval_dataloader=DATALOADERS["pytorch"](dataset, batch_size=8),
            eval_metric=unlabelled,
        )


def test_a_dummy_data_set_of_yaml(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    path = tmp_path / "conf.yaml"
    path.write_text(
        "model: {name: m}\nevaluation: {accuracy: {metric: {topk: 1}, dataloader: {batch_size: 64, "
        "dataset: {dummy: {shape: [64, 8, 8], low: 0.0, high: 16.0}}}}}\n"
    )
    converter = MixedPrecision(path)
    converter.model = MODEL
    assert converter().tune_result.samples == 64
    path.write_text(path.read_text().replace("shape", "shapes"))
    with pytest.raises(InvalidArgument, match=r"dataloader\.dataset: .*shapes"):
        MixedPrecision(path)


def test_an_attribute_that_a_converter_has_not_is_an_error() -> None:
    converter = MixedPrecision()
    with pytest.raises(InvalidArgument, match=r"has no precision \(did you mean 'precisions'\?\)"):
        converter.precision = "bf16"
    with pytest.warns(FlagWarning, match="input of MixedPrecision has no effect here"):
        converter.input = "x"
    Quantization().calib_dataloader = []
    with pytest.raises(InvalidArgument, match="has no calib_dataloader"):
        converter.calib_dataloader = []


def test_save_goes_by_the_suffix_or_into_a_folder(tmp_path: Path) -> None:
    found = mix_precision.fit(unstable_variance, config())
    x = X[:8]
    expected = np.asarray(found(x)).tobytes()
    found.save(tmp_path / "net.pb")
    found.save(f"{tmp_path}/saved/")
    for path in ("net.pb", "saved/best_model.hlo.pb"):
        again = neuronsim.compile(str(tmp_path / path), auto_cast="none")
        assert np.asarray(again(x)).tobytes() == expected
    found.save(tmp_path / "net.nsim")
    assert np.asarray(neuronsim.load(tmp_path / "net.nsim")(x)).tobytes() == expected
    with pytest.raises(InvalidArgument, match=r"net\.pt.*saved as \.pb, \.hlo, \.onnx"):
        found.save(tmp_path / "net.pt")


def test_an_onnx_model_is_saved_into_a_folder_as_onnx(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node("Tanh", ["x"], ["y"], name="tanh")
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 4]) for n in "xy")
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y]))
    found = mix_precision.fit(model, MixedPrecisionConfig(precisions="fp16"))
    found.save(tmp_path / "saved")
    saved = onnx.load(tmp_path / "saved" / "best_model.onnx")
    assert "Cast" in {n.op_type for n in saved.graph.node}
