"""Blame of quantized plans: the instruction, the operand and its channel, and the cure, measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neuronsim as ns
from neuronsim import api, cli, diagnosis, dtypes
from neuronsim.arrays import nn
from neuronsim.casting.decisions.post_training import Recipe
from neuronsim.casting.decisions.quantization import Quantization, quantization_of
from neuronsim.hlo import proto
from neuronsim.hlo.module import Instruction, Shape
from neuronsim.ops import DotDimensions
from neuronsim.setups import ModelInputs
from neuronsim.tuning.blame.quantized import Operand, find_fault
from neuronsim.tuning.blame.result import BlameResult, Cause

pytestmark = pytest.mark.isa_independent
DIGITS = Path(__file__).parents[2] / "examples" / "digits"
RNG = np.random.default_rng(21)
X = RNG.standard_normal((96, 16)).astype(np.float32)
W1 = (RNG.standard_normal((16, 24)) / 4).astype(np.float32)
W2 = (RNG.standard_normal((24, 12)) / 5).astype(np.float32)
SCALE = np.ones(24, np.float32)
SCALE[5] = 300


def outlier_channel(x: Any) -> Any:
    """Channel 5 of what the second product reads is 300 times as large as the others."""
    return ns.maximum(x @ ns.asarray(W1 * SCALE), 0.0) @ ns.asarray(W2 / SCALE[:, None])


def outlier_weights(x: Any) -> Any:
    """Column 5 of the weights is 300 times as large as the others."""
    return (x @ ns.asarray(W1 * SCALE)) * ns.asarray(1 / SCALE)


def attention(x: Any) -> Any:
    """Softmax of large logits: of most rows one probability is nearly 1."""
    scores = nn.softmax((x @ ns.asarray(W1)) * 6.0, axis=1)
    return scores @ ns.asarray(W2)


def spikes(x: Any) -> Any:
    """What the product reads has rare large values, in all channels, that tanh does not tell apart."""
    return ns.tanh(x @ ns.asarray(np.eye(16, dtype=np.float32))) @ ns.asarray(W1)


SPIKED = np.where(RNG.random(X.shape) < 0.004, 400, 1).astype(np.float32) * X


def blamed(model: Any, scheme: str | Recipe, x: Any = X, **options: Any) -> BlameResult:
    keywords: dict[str, Any] = {"quantize": scheme, "auto_cast": "none", "batch": 32, "rewrite": True}
    return diagnosis.blame(model, {"x": x}, **{**keywords, **options})


def first(result: BlameResult) -> Cause:
    assert result.causes, result.notes
    return result.causes[0]


def test_an_outlier_channel_is_named_with_its_cure() -> None:
    cause = first(blamed(outlier_channel, "minmax"))
    assert (cause.instruction, cause.kind, cause.operand) == ("dot.1", "outlier channel", "maximum")
    assert cause.channel == 5
    assert cause.evidence["reaches"] > 100 * cause.evidence["typical"]
    assert "channel 5 of maximum (operand 0 of dot.1)" in cause.said
    assert "equalise" in cause.advice
    assert cause.rewrite == "equalisation of neighbouring layers"
    assert cause.rewritten is not None
    assert cause.rewritten.worst_sample < 0.1 * cause.before.worst_sample
    assert "dot.1" in cause.keep_float32
    assert cause.after.worst_sample < 0.1 * cause.before.worst_sample


def test_an_outlier_channel_of_weights_asks_for_per_channel_scales() -> None:
    cause = first(blamed(outlier_weights, "minmax,per-tensor"))
    assert (cause.instruction, cause.kind, cause.channel) == ("dot", "outlier channel", 5)
    assert cause.evidence["axis"] == 1
    assert cause.rewrite == "per-channel scales"
    assert cause.rewritten is not None
    assert cause.rewritten.worst_sample < 0.1 * cause.before.worst_sample
    assert not blamed(outlier_weights, "minmax").causes


def test_a_clipped_softmax_is_named_with_its_cure() -> None:
    clipped = Recipe("percentile", percentile=75, exclude=("dot",))
    cause = first(blamed(attention, clipped))
    assert (cause.instruction, cause.kind) == ("dot.1", "clipping")
    found = ns.compile(attention, input_shapes={"x": (32, 16)}, auto_cast="none").model
    given = {i.name: i.opcode for i in found.entry_computation.instructions}
    assert given[cause.operand] == "divide"
    assert cause.evidence["largest"] > 0.9
    assert cause.evidence["high"] < 0.5
    assert cause.evidence["clipped"] > 0.02
    assert 0 <= (cause.channel or 0) < 24
    assert "minmax" in cause.advice
    assert cause.rewrite == "the range of all values"
    assert cause.rewritten is not None
    assert cause.rewritten.worst_sample < 0.1 * cause.before.worst_sample


def test_a_scale_made_for_rare_values_is_too_coarse_and_clipping_mends_it() -> None:
    cause = first(blamed(spikes, "minmax", SPIKED))
    assert (cause.instruction, cause.kind, cause.operand) == ("dot", "scale too coarse", "x")
    assert cause.rewrite.startswith("clipping by")
    assert cause.rewritten is not None
    assert cause.rewritten.worst_sample < 0.5 * cause.before.worst_sample


def test_an_outlier_channel_is_named_before_a_bias_in_the_sums() -> None:
    """The product has its own value there, though the plan's result is the addition's."""

    def biased(x: Any) -> Any:
        return outlier_channel(x) + ns.asarray(np.linspace(-1, 1, 12, dtype=np.float32))

    cause = first(blamed(biased, "minmax,int32-bias"))
    assert (cause.instruction, cause.kind, cause.channel) == ("dot.1", "outlier channel", 5)
    assert cause.rewrite == "equalisation of neighbouring layers"
    assert cause.rewritten is not None
    assert cause.rewritten.worst_sample < 0.1 * cause.before.worst_sample


def test_a_cure_by_which_a_bias_leaves_the_sums_is_measured_so() -> None:
    """By the scale of the spikes a large bias is in the sums; a clipped range has no room for it."""
    scale = float(np.ptp(SPIKED)) / 255 / 127
    bias = np.where(np.arange(16) == 3, 2.0**30 * scale, 0).astype(np.float32)

    def biased(x: Any) -> Any:
        return ns.tanh(x @ ns.asarray(np.eye(16, dtype=np.float32)) + ns.asarray(bias)) @ ns.asarray(W1)

    scheme = "minmax,int32-bias"
    assert ns.quantize(biased, {"x": SPIKED}, scheme, batch=32).decisions["dot"].bias == "add"
    cause = first(blamed(biased, scheme, SPIKED))
    assert (cause.instruction, cause.kind, cause.operand) == ("dot", "scale too coarse", "x")
    assert cause.rewrite.startswith("clipping by")


def test_rewrites_are_measured_where_they_are_asked_for() -> None:
    cause = first(blamed(outlier_channel, "minmax", rewrite=False))
    assert (cause.rewrite, cause.rewritten) == ("", None)


def test_equalising_changes_no_float32_value() -> None:
    """The factors are powers of two: the rewritten module, without its plan, gives float32's bits."""
    seen: list[Any] = []
    original = diagnosis.CompiledProgram

    class Kept(original):  # type: ignore[misc, valid-type]
        def __init__(self, module: Any, *more: Any) -> None:
            seen.append(module)
            super().__init__(module, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diagnosis, "CompiledProgram", Kept)
        blamed(outlier_channel, "minmax")
    other = [m for m in seen if any("rewritten" in i.name for i in m.entry_computation.instructions)]
    assert other
    plain = np.asarray(
        ns.compile(outlier_channel, input_shapes={"x": (32, 16)}, auto_cast="none")(X[:32])
    )
    for m in other:
        np.testing.assert_array_equal(np.asarray(ns.compile(m, auto_cast="none")(X[:32])), plain)


def test_a_plan_of_quantize_is_blamed_as_the_scheme_is() -> None:
    plan = ns.quantize(outlier_channel, {"x": X}, batch=32)
    found = diagnosis.blame(outlier_channel, {"x": X}, plan=plan, batch=32)
    assert first(found).said == first(blamed(outlier_channel, "minmax")).said


@pytest.mark.parametrize(("scheme", "cast"), [("minmax", "none"), ("mse,symmetric", "all")])
def test_nothing_is_blamed_where_quantization_is_healthy(scheme: str, cast: str) -> None:
    with np.load(DIGITS / "test.npz") as data:
        x = data["x"][:64]
    found = diagnosis.blame(DIGITS / "model.hlo.pb", {"x": x}, quantize=scheme, auto_cast=cast)
    assert not found.causes


# ---- faults of single operands -------------------------------------------------------------------


def operand(x: Any, by: Quantization, *, is_weight: bool = False, number: int = 0) -> Operand:
    d = DotDimensions((1,), (0,))
    i = Instruction("p", "dot", Shape(dtypes.float32, (1, 1)), ("x", "w"), {"dot_dimensions": d})
    return Operand(i, number, "x", np.asarray(x, np.float32), by, is_weight)


INT8 = dtypes.int8
FAULTS = {
    "zero point lost": (np.abs(X), quantization_of(-4, 4, INT8, symmetric=True), False),
    "scale too coarse": (X, quantization_of(-400, 400, INT8, symmetric=False), False),
    "clipping": (X * 4, quantization_of(-1, 1, INT8, symmetric=False), False),
    "outlier channel": (X * SCALE[:16], quantization_of(-1500, 1500, INT8, symmetric=True), False),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_faults_by_their_proofs(kind: str) -> None:
    x, by, is_weight = FAULTS[kind]
    found = find_fault(operand(x, by, is_weight=is_weight))
    assert found.kind == kind
    if kind == "outlier channel":
        assert found.channel == 5


def test_a_channel_of_weights_with_a_scale_of_its_own_is_no_outlier() -> None:
    w = X * SCALE[:16]
    by = quantization_of(w.min(0), w.max(0), INT8, symmetric=True, axis=1)
    assert find_fault(operand(w, by, is_weight=True, number=1)).kind != "outlier channel"


@pytest.mark.parametrize("x", [np.zeros((4, 16)), np.full((4, 16), np.nan), np.zeros((0, 16))])
def test_operands_of_nothing_have_a_fault_and_no_error(x: Any) -> None:
    found = find_fault(operand(x, quantization_of(-1, 1, INT8, symmetric=False)))
    assert found.kind == "scale too coarse"
    assert np.isfinite(found.evidence["step"])


def test_blame_quantize_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = api.read_model(outlier_channel, ModelInputs(input_shapes={"x": (32, 16)}))
    proto.write(module, tmp_path / "m.hlo.pb")
    np.savez(tmp_path / "x.npz", x=X)
    out = tmp_path / "b.json"
    words = [
        "blame",
        str(tmp_path / "m.hlo.pb"),
        "--data",
        str(tmp_path / "x.npz"),
        "--quantize",
        "minmax",
    ]
    assert cli.main([*words, "--rewrite", "--auto-cast", "none", "--json", str(out)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "dot.1 is to blame (outlier channel)" in printed
    assert "rewritten (equalisation of neighbouring layers)" in printed
    cause = json.loads(out.read_text())["causes"][0]
    assert (cause["channel"], cause["operand"]) == (5, "maximum")
