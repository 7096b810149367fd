"""Blame: networks broken in one known way, healthy ones, and each figure against a count by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.parameters import each_of
from tests.tuning.broken_networks import BROKEN, HEALTHY, Network, module_of

import neuronsim
from neuronsim.cli import main
from neuronsim.diagnosis import BlameResult, repair
from neuronsim.errors import InvalidArgument, InvalidData, NeuronSimError
from neuronsim.hlo.parse import from_text
from neuronsim.setups import CompileRequest
from neuronsim.tuning.blame import measure
from neuronsim.tuning.blame.graph import Dataflow
from neuronsim.tuning.blame.report import print_blame
from neuronsim.tuning.blame.result import SCHEMA
from neuronsim.tuning.blame.subject import sample_errors

pytestmark = pytest.mark.isa_independent

ADD = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }"


def blamed(network: Network, front: str, **more: Any) -> BlameResult:
    given = {} if front == "jax" else {"batch": 16}
    setting = {"auto_cast": "all", "auto_cast_type": network.low}
    return neuronsim.blame(module_of(network, front), network.inputs(), **setting, **given, **more)


def check_cause(network: Network, front: str) -> None:
    result = blamed(network, front)
    first = result.causes[0]
    assert first.opcode in network.planted, (first.instruction, first.kind)
    assert first.kind in network.kinds
    left = result.causes[-1].after  # with all causes in float32
    assert not left.not_finite
    assert left.worst_sample <= max(result.usual, 0.5 * first.before.worst_sample)


def by_name(name: str) -> Network:
    return next(n for n in BROKEN if n.name == name)


@each_of("network", BROKEN, ids=lambda n: n.name)
def test_blame_names_the_planted_cause_first(network: Network) -> None:
    check_cause(network, "numpy")


@pytest.mark.parametrize("network", BROKEN[::3], ids=lambda n: n.name)
def test_blame_names_the_planted_cause_first_in_jax(network: Network) -> None:
    pytest.importorskip("jax")
    check_cause(network, "jax")


@each_of("network", HEALTHY, ids=lambda n: n.name)
def test_blame_names_nothing_in_healthy_networks(network: Network) -> None:
    assert blamed(network, "numpy").causes == ()


def overflowing_layers(x: Any) -> Any:
    """Each of eight layers takes the norm of values that are too large for their squares in float16."""
    for _ in range(8):
        h = neuronsim.tanh(x @ neuronsim.asarray(W32)) * 300.0
        x = h / neuronsim.sqrt(neuronsim.sum(h * h, axis=-1, keepdims=True)) * 6.0
        x = x / neuronsim.max(neuronsim.abs(x), axis=-1, keepdims=True)  # 0 / 0 where the sum is Inf
    return x


W32 = (np.random.default_rng(1).normal(size=(32, 32)) / 6).astype(np.float32)
LAYERED = {"x": np.random.default_rng(2).normal(size=(16, 32)).astype(np.float32)}


def test_overflows_that_hide_each_others_repair_are_repaired_together() -> None:
    result = neuronsim.blame(
        overflowing_layers, LAYERED, auto_cast="all", auto_cast_type="fp16", batch=16
    )
    (cause,) = result.causes
    assert cause.kind == "overflow"
    assert cause.before.not_finite == 512
    assert "so do those of 15 more" in cause.said  # of each layer the squares and their sum
    assert cause.computing == 8 * 3  # and the root that reads it
    assert not cause.after.not_finite
    assert cause.after.worst_sample < 0.02


def test_overflows_whose_repair_is_not_found_are_named_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measure, "_overflowing", lambda *args: set())
    options: dict[str, Any] = {"auto_cast": "all", "auto_cast_type": "fp16", "batch": 16}
    result = neuronsim.blame(overflowing_layers, LAYERED, max_causes=2, **options)
    assert [c.kind for c in result.causes] == ["overflow"] * 2
    assert any("not finite even so" in n for n in result.notes)


def test_an_infinite_quotient_of_a_vanished_divisor_is_no_overflow() -> None:
    x = np.full((16, 8), 1e-4, np.float32) * np.linspace(0.5, 1.0, 8, dtype=np.float32)
    result = neuronsim.blame(
        lambda x: 1e-6 / (x * x), {"x": x}, auto_cast="all", auto_cast_type="fp16", batch=16
    )
    assert (result.causes[0].opcode, result.causes[0].kind) == ("multiply", "underflow")
    assert next(i for i in result.instructions if i.opcode == "divide").kind != "overflow"


CODES = np.random.default_rng(0).normal(10, 1, (300, 32)).astype(np.float32)


def nearest_code(np: Any, x: Any) -> Any:
    """The number of the nearest of 300 codes, of which several are nearly as near."""
    return np.argmin(((x[:, None] - np.asarray(CODES)) ** 2).sum(-1), axis=-1)


def farthest_code(np: Any, x: Any) -> Any:
    return np.argmax(((x[:, None] - np.asarray(CODES)) ** 2).sum(-1), axis=-1)


def nearest_of_codes(np: Any, x: Any) -> Any:
    return np.asarray(CODES)[nearest_code(np, x)]


@pytest.mark.parametrize(
    "front", ["numpy", "jax"]
)  # an operation of its own, a reduction of two arrays
@pytest.mark.parametrize("function", [nearest_code, farthest_code, nearest_of_codes])
def test_an_index_of_the_least_is_a_choice(function: Any, front: str) -> None:
    pytest.importorskip("jax")
    own = Network(function.__name__, "bf16", function, lambda rng: rng.normal(10, 1, (16, 32)))
    (cause,) = blamed(own, front).causes
    assert (cause.opcode, cause.kind) in [(o, "discontinuity") for o in ("custom-call", "reduce")]
    assert cause.advice == "compute what decides (indices, comparisons) in integers or in float32"
    assert cause.after.differing == 0.0
    assert cause.after.worst_sample < 2**-8  # the rounding of the code that is read


# ---- the figures ---------------------------------------------------------------------------------


def module(body: str, more: str = "") -> Any:
    return from_text(f"HloModule m\n{ADD}\n{more}\nENTRY main {{\n{body}\n}}")


def test_own_errors_add_up_to_the_outputs_error() -> None:
    for network in (*BROKEN[:4], *HEALTHY[:4]):
        result = blamed(network, "numpy")
        assert sum(i.own for i in result.instructions) == pytest.approx(1.0, abs=1e-6)
        assert sum(result.scopes.values()) == pytest.approx(1.0, abs=1e-6)
    network = HEALTHY[0]  # of which products alone read rounded operands
    model = module_of(network, "numpy")
    result = neuronsim.blame(model, network.inputs(), auto_cast="matmult", batch=16)
    assert sum(i.own for i in result.instructions) == pytest.approx(1.0, abs=1e-6)
    assert sum(i.reading for i in result.instructions) > 0.99


def test_own_error_is_that_of_rounding_the_result_and_the_operands_as_they_are_read() -> None:
    """X + y rounded: y is an integer that bfloat16 holds, so x's reading and the result's remain."""
    text = "x = f32[64] parameter(0)\ny = f32[64] parameter(1)\nROOT s = f32[64] add(x, y)"
    rng = np.random.default_rng(0)
    data = {"x": rng.uniform(1, 2, 64).astype(np.float32), "y": np.ones(64, np.float32)}
    result = neuronsim.blame(module(text), data, auto_cast="all")
    (add,) = result.instructions
    low = data["x"].astype(neuronsim.bfloat16.numpy).astype(np.float32)
    rounded = (low + 1).astype(neuronsim.bfloat16.numpy).astype(np.float32)
    exact = (data["x"] + 1).astype(np.float64)
    reading = np.square(low + 1 - exact)
    result_ = np.square(rounded - (low + 1), dtype=np.float64)
    total = np.square(rounded - exact)
    shares = total / total.sum() * reading / (reading + result_)
    assert add.own == pytest.approx(1.0)
    assert add.reading == pytest.approx(shares.sum(), rel=1e-6)


def test_magnitudes_of_a_cause_count_what_its_type_cannot_hold() -> None:
    """Of float16, whose largest value is 65504: 65519 still rounds to it, 65520 does not (C3)."""
    text = "x = f32[8] parameter(0)\ny = f32[8] parameter(1)\nROOT s = f32[8] multiply(x, y)"
    x = np.asarray([0, 1, 1.5, 2.0**-8, 65519, 65520, 2.0**17, 3], np.float32)
    y = np.asarray([1, 1, 1, 2.0**-8, 1, 1, 1, 1], np.float32)
    result = neuronsim.blame(module(text), {"x": x, "y": y}, auto_cast="all", auto_cast_type="fp16")
    (cause,) = result.causes
    assert (cause.kind, cause.type) == ("overflow", "float16")
    of = {m.instruction: m for m in cause.magnitudes}
    assert [(m.instruction, m.operand) for m in cause.magnitudes] == [("s", None), ("x", 0), ("y", 1)]
    # 2^-16, 1 and 1.5, 3, 65519 and 65520 in [2^15, 2^16), 2^17
    counts = {-16: 1, 0: 2, 1: 1, 15: 2, 17: 1}
    assert of["s"].counts == tuple(counts.get(p, 0) for p in range(-16, 18))
    assert (of["s"].lowest, of["s"].zeros, of["s"].beyond, of["s"].vanishing) == (-16, 1, 2, 1)
    assert (of["y"].lowest, of["y"].counts[-1], of["y"].zeros, of["y"].beyond) == (-8, 7, 0, 0)


def test_a_sample_of_one_number_near_zero_is_not_off_by_its_own_size() -> None:
    """A vector of 64, of which one number is near 0, off by a thousandth: none is to blame."""
    exact = np.linspace(1.0, 2.0, 64)
    exact[7] = 1e-4
    found = exact + 1e-3
    assert sample_errors(found, exact).max() == pytest.approx(1e-3 / (0.5 * np.sqrt((exact**2).mean())))
    assert sample_errors(found[None], exact[None]).max() < 1e-3
    pairs = [np.stack([x, x], 1) for x in (found, exact)]
    assert sample_errors(*pairs)[7] > 0.05  # of two numbers it is the sample's own norm


def test_bits_lost_are_those_that_a_difference_cancels() -> None:
    """1024 + x - 1024 in bfloat16 has no bit of x: all 8 are lost."""
    text = """x = f32[4,8] parameter(0)
      c = f32[] constant(1024)
      b = f32[4,8] broadcast(c), dimensions={}
      a = f32[4,8] add(x, b)
      ROOT s = f32[4,8] subtract(a, b)"""
    x = np.random.default_rng(0).uniform(0.1, 1, (4, 8)).astype(np.float32)
    result = neuronsim.blame(module(text), {"x": x}, auto_cast="all")
    cause = result.causes[0]
    assert (cause.instruction, cause.kind) == ("s", "cancellation")
    assert cause.bits == pytest.approx(8, abs=0.3)
    assert set(cause.keep_float32) == {"a", "s"}
    assert cause.computing == 2
    assert cause.after.worst_sample < 2**-8  # the rounding of the code that is read
    assert cause.element is not None
    index = cause.element.index
    assert (cause.element.lowered, cause.element.float32) == (0.0, np.float32(1024 + x[index]) - 1024)


def test_first_bad_element_has_its_operands_and_values() -> None:
    text = "x = f32[4] parameter(0)\ny = f32[4] parameter(1)\nROOT s = f32[4] multiply(x, y)"
    data = {"x": np.asarray([1, 300, 2, 3], np.float32), "y": np.asarray([1, 400, 2, 3], np.float32)}
    result = neuronsim.blame(module(text), data, auto_cast="all", auto_cast_type="fp16")
    (cause,) = result.causes
    assert cause.kind == "overflow"
    assert cause.element is not None
    assert (cause.element.index, cause.element.lowered, cause.element.float32) == ((1,), np.inf, 120000)
    assert cause.element.operands == ((300.0, 300.0), (400.0, 400.0))
    assert "s[1] is inf, in float32 120000 from 300, 400" in cause.said
    assert cause.evidence["largest"] == 120000
    assert cause.evidence["top"] == 65504


def test_what_reads_values_beyond_the_type_stays_float32_with_them() -> None:
    """A sum that float16 does not hold, and the root that would read it."""
    result = blamed(by_name("sum_of_squares-fp16"), "numpy")
    (cause,) = result.causes
    assert {"reduce", "sqrt"} <= set(cause.keep_float32)
    assert cause.computing == 2


def test_layer_and_source_line_of_a_cause() -> None:
    place = 'metadata={op_name="net/block_1/square" source_file="net.py" source_line=7}'
    text = f"x = f32[4] parameter(0)\nROOT s = f32[4] multiply(x, x), {place}"
    data = {"x": np.full(4, 300, np.float32)}
    result = neuronsim.blame(module(text), data, auto_cast="all", auto_cast_type="fp16")
    assert result.causes[0].scope == "net/block_1/square"
    assert result.causes[0].source == "net.py:7"
    assert result.scopes == {"net/block_1": pytest.approx(1.0)}


LOOP = """
body {
  p = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = f32[4] get-tuple-element(p), index=1
  x = f32[4] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  g = f32[4] add(a, x)
  ROOT out = (s32[], f32[4], f32[4]) tuple(j, g, x)
}
condition {
  p = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(400)
  ROOT r = pred[] compare(i, n), direction=LT
}
"""


def test_a_sum_that_a_loop_carries_is_a_long_reduction() -> None:
    text = """x = f32[4] parameter(0)
      z = s32[] constant(0)
      o = f32[] constant(0)
      b = f32[4] broadcast(o), dimensions={}
      t = (s32[], f32[4], f32[4]) tuple(z, b, x)
      w = (s32[], f32[4], f32[4]) while(t), condition=condition, body=body
      ROOT y = f32[4] get-tuple-element(w), index=1"""
    data = {"x": np.asarray([1, 1.5, 2, 3], np.float32)}
    result = neuronsim.blame(module(text, LOOP), data, auto_cast="all")
    cause = result.causes[0]
    assert (cause.instruction, cause.kind) == ("g", "long reduction")
    assert {"g", "w"} <= set(cause.keep_float32)
    assert cause.after.worst_sample < 2**-8  # the rounding of the code that is read
    assert cause.element is not None
    assert cause.element.trips


ROTATION = """
body {
  p = (s32[], f32[4,2], f32[4,2]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = f32[4,2] get-tuple-element(p), index=1
  b = f32[4,2] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  c = f32[] constant(0.02)
  step = f32[4,2] broadcast(c), dimensions={}
  u = f32[4,2] multiply(step, b)
  v = f32[4,2] add(a, u)
  w = f32[4,2] multiply(step, v)
  z = f32[4,2] subtract(b, w)
  ROOT out = (s32[], f32[4,2], f32[4,2]) tuple(j, v, z)
}
condition {
  p = (s32[], f32[4,2], f32[4,2]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(300)
  ROOT r = pred[] compare(i, n), direction=LT
}
"""


def test_a_state_that_each_trip_rounds_is_a_recurrence() -> None:
    """A rotation by small steps: each of its four instructions loses a little in each trip."""
    text = """x = f32[4,2] parameter(0)
      o = s32[] constant(0)
      t = (s32[], f32[4,2], f32[4,2]) tuple(o, x, x)
      l = (s32[], f32[4,2], f32[4,2]) while(t), condition=condition, body=body
      ROOT y = f32[4,2] get-tuple-element(l), index=1"""
    data = {"x": np.random.default_rng(1).uniform(0.5, 2, (4, 2)).astype(np.float32)}
    result = neuronsim.blame(module(text, ROTATION), data, auto_cast="all")
    cause = result.causes[0]
    assert cause.kind == "recurrence"
    assert cause.instruction in ("v", "z")
    assert {"v", "z", "l"} <= set(cause.keep_float32)
    assert cause.after.worst_sample < 0.5 * cause.before.worst_sample
    e = cause.evidence
    assert e["trips"] == 300
    assert e["first"] < 2.0**-8 < e["half"] < e["last"]
    assert f"in each of 300 steps: its relative error grows from {e['first']:.2g}" in cause.said


def decay(x: Any) -> Any:
    for _ in range(64):
        x = x * 0.9973
    return x


def test_steps_that_are_written_out_are_a_recurrence() -> None:
    result = neuronsim.blame(decay, {"x": np.full((4, 3), 1.7)}, auto_cast="all", batch=4)
    cause = result.causes[0]
    assert (cause.kind, cause.opcode, cause.computing) == ("recurrence", "multiply", 64)
    assert cause.evidence["trips"] == 64
    assert cause.after.worst_sample < 2**-8  # the rounding of the code that is read


def test_a_state_that_forgets_is_not_blamed() -> None:
    body = LOOP.replace("g = f32[4] add(a, x)", "h = f32[4] multiply(a, x)\n  g = f32[4] add(h, x)")
    text = """x = f32[4] parameter(0)
      z = s32[] constant(0)
      t = (s32[], f32[4], f32[4]) tuple(z, x, x)
      w = (s32[], f32[4], f32[4]) while(t), condition=condition, body=body
      ROOT y = f32[4] get-tuple-element(w), index=1"""
    data = {"x": np.asarray([0.1, 0.3, -0.5, 0.6], np.float32)}
    assert neuronsim.blame(module(text, body), data, auto_cast="all").causes == ()


def test_the_advice_on_a_power_is_the_powers_and_helps() -> None:
    # The base 1 + y is rounded; the exponent 200 is a number of bfloat16 and loses nothing.
    def power(y: Any) -> Any:
        return neuronsim.power(1 + y, 200.0)

    def followed(y: Any) -> Any:
        return neuronsim.exp(200 * neuronsim.log1p(y))

    data = {"y": np.linspace(-0.01, 0.01, 48, dtype=np.float32).reshape(8, 6)}
    found = neuronsim.blame(power, data, batch=8, auto_cast="all")
    (cause,) = found.causes
    assert (cause.kind, cause.opcode) == ("steep function", "power")
    assert cause.advice.endswith("exp(n * log1p(y))")
    assert cause.evidence["largest_argument"] < 1.02
    mended = neuronsim.blame(followed, data, batch=8, auto_cast="all")
    assert mended.lowered.worst_sample < found.lowered.worst_sample / 20


def test_what_a_product_reads_is_repaired_with_it() -> None:
    """Squared distances by a product of what is scaled before it."""

    def distances(x: Any) -> Any:
        s = (x * x).sum(1, keepdims=True)
        return neuronsim.exp(-neuronsim.maximum(s + s.T - (2.0 * x) @ x.T, 0.0))

    x = np.random.default_rng(3).normal(3, 0.05, (16, 32)).astype(np.float32)
    result = neuronsim.blame(distances, {"x": x}, auto_cast="all", batch=16)
    assert (result.causes[0].opcode, result.causes[0].kind) == ("subtract", "cancellation")
    assert result.causes[-1].after.worst_sample <= result.usual < result.lowered.worst_sample


def test_an_error_that_does_not_arrive_is_not_blamed() -> None:
    """An overflow that 1 / x makes 0 again beside a result that it does not move."""
    text = """x = f32[4] parameter(0)
      q = f32[4] multiply(x, x)
      one = f32[] constant(1)
      b = f32[4] broadcast(one), dimensions={}
      r = f32[4] divide(b, q)
      ROOT s = f32[4] add(b, r)"""
    data = {"x": np.full(4, 1000, np.float32)}
    result = neuronsim.blame(module(text), data, auto_cast="all", auto_cast_type="fp16")
    assert result.causes == ()
    assert "nothing is to blame" in result.notes[-1]


def test_what_moves_the_outputs_and_not_the_metric_is_said() -> None:
    text = """x = f32[4,2] parameter(0)
      c = f32[] constant(1024)
      b = f32[4,2] broadcast(c), dimensions={}
      a = f32[4,2] add(x, b)
      ROOT s = f32[4,2] subtract(a, b)"""
    x = np.asarray([[1, 30], [2, 40], [50, 3], [1, 60]], np.float32)
    data = {"x": x, "labels": x.argmax(1)}
    result = neuronsim.blame(module(text), data, auto_cast="all")
    assert result.float32_top1 == result.lowered.top1 == 1.0
    assert any("the metric does not: top-1 is 100.00%" in n for n in result.notes)


def test_blame_costs_a_few_runs() -> None:
    for network in BROKEN[::5]:
        result = blamed(network, "numpy", max_causes=1)
        assert result.runs <= 12


@pytest.mark.parametrize(
    ("name", "rewrite"),
    [
        ("fast_variance-bf16", "two-pass variance"),
        ("exp_of_large_logits-fp16", "max-subtracted softmax"),
        ("log_sum_exp-fp16", "max-subtracted softmax"),
        ("sum_of_squares-fp16", "pre-scaled square"),
    ],
)
def test_rewrites_are_applied_and_measured(name: str, rewrite: str) -> None:
    cause = blamed(by_name(name), "numpy", rewrite=True).causes[0]
    assert cause.rewrite == rewrite
    assert cause.rewritten is not None
    assert not cause.rewritten.not_finite
    assert cause.rewritten.worst_sample < 0.1 * min(cause.before.worst_sample, 3.0)


def test_rewrites_compute_the_same_in_float32() -> None:
    from neuronsim.api import read_model
    from neuronsim.hlo.verify import verify
    from neuronsim.setups import ModelInputs
    from neuronsim.tuning.blame.rewrites import rewrites

    names = (
        "fast_variance-bf16",
        "exp_of_large_logits-fp16",
        "log_sum_exp-fp16",
        "sum_of_squares-fp16",
    )
    for network in map(by_name, names):
        given = network.inputs()
        model = read_model(module_of(network, "numpy"), ModelInputs(batch=16), given)
        before = np.asarray(neuronsim.compile(model, auto_cast="none")(*given.values()))
        found = list(rewrites(model))
        assert found
        for r in found:
            verify(r.module)
            after = np.asarray(neuronsim.compile(r.module, auto_cast="none")(*given.values()))
            np.testing.assert_allclose(after, before, rtol=2e-3, atol=1e-5 * np.abs(before).max())


# ---- the forms of its result -----------------------------------------------------------------------


def test_blame_as_json_has_a_schema_and_every_cause() -> None:
    result = blamed(by_name("sum_of_squares-fp16"), "numpy")
    body = json.loads(result.to_json())
    assert body["schema"] == SCHEMA
    assert [c["instruction"] for c in body["causes"]] == [c.instruction for c in result.causes]
    assert body["keep_float32"] == list(result.keep_float32)


def written(tmp_path: Path) -> tuple[str, str]:
    long_name = "a_name_of_a_layer_that_is_longer_than_any_terminal_is_wide." * 3
    text = f"x = f32[4] parameter(0)\nROOT {long_name}s = f32[4] multiply(x, x)"
    (tmp_path / "m.hlo").write_text(f"HloModule m\n\nENTRY main {{\n{text}\n}}\n")
    np.savez(tmp_path / "x.npz", x=np.full(4, 300, np.float32))
    return str(tmp_path / "m.hlo"), str(tmp_path / "x.npz")


def test_blame_prints_the_answer_first_and_whole_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = written(tmp_path)
    setting = ["--auto-cast", "all", "--auto-cast-type", "fp16"]
    target = tmp_path / "blame.json"
    assert main(["blame", model, "--data", data, *setting, "--json", str(target)]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    name = json.loads(target.read_text())["causes"][0]["instruction"]
    assert first.startswith(f"{name} is to blame (overflow): values up to 90000 leave float16")


def test_blame_under_none_and_of_wrong_data() -> None:
    network = by_name("sum_of_squares-fp16")
    model = module_of(network, "numpy")
    result = neuronsim.blame(model, network.inputs(), auto_cast="none", batch=16)
    assert result.causes == ()
    assert result.lowered.worst_sample == 0.0
    bad = network.inputs()
    bad["x"][0, 0] = np.nan
    with pytest.raises(InvalidData, match="NaN"):
        neuronsim.blame(model, bad, batch=16)
    with pytest.raises(InvalidArgument, match="max_causes"):
        neuronsim.blame(model, network.inputs(), batch=16, max_causes=0)
    with pytest.raises(NeuronSimError, match="z"):
        neuronsim.blame(module("ROOT x = f32[4] parameter(0)"), {"z": np.ones(3)})


def test_where_float32_has_no_number_nothing_is_said_to_be_right() -> None:
    model = module("x = f32[4] parameter(0)  ROOT y = f32[4] multiply(x, x)")
    x = np.full((3, 4), 1e30, np.float32)
    with pytest.raises(InvalidData, match="every output is NaN or infinite everywhere in float32"):
        neuronsim.blame(model, {"x": x}, auto_cast="all")
    with pytest.raises(InvalidData, match="every output is NaN or infinite everywhere in float32"):
        repair(CompileRequest(model, auto_cast="all"), {"x": x})
    x[0] = 1
    said = "8 values of the outputs are not finite in float32 either"
    assert any(said in note for note in neuronsim.blame(model, {"x": x}, auto_cast="all").notes)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64, np.bool_, np.float16, np.float64])
def test_data_are_converted_to_the_models_types(dtype: Any) -> None:
    weights = neuronsim.asarray(np.full((12, 4), 1 / 3, np.float32))
    x = np.random.default_rng(5).integers(0, 200, (8, 12)).astype(dtype)
    model = neuronsim.compile(lambda x: (x @ weights) ** 2, np.zeros((4, 12), np.float32)).model
    found = neuronsim.blame(model, {"x": x}, auto_cast="all", rewrite=True)
    same = neuronsim.blame(model, {"x": x.astype(np.float32)}, auto_cast="all", rewrite=True)
    assert found.instructions == same.instructions != ()


def test_data_may_be_one_array_for_each_input_in_its_own_shape() -> None:
    onnx = pytest.importorskip("onnx")
    types = {"x": (7, 4), "w": (4, 3), "y": (7, 3)}
    x, w, y = (onnx.helper.make_tensor_value_info(n, 1, dims) for n, dims in types.items())
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x, w], [y]))
    rng = np.random.default_rng(0)
    data = {n: rng.normal(size=types[n]).astype(np.float32) for n in ("x", "w")}
    result = neuronsim.blame(model, data, auto_cast="all")
    assert 0 < result.lowered.worst_sample < result.usual
    with pytest.raises(InvalidData, match="leading axis is samples, but the lengths are"):
        neuronsim.tune(model, data)


def high_power(x: Any) -> Any:
    y = 1 + x / 100
    for _ in range(8):
        y = y * y
    return y


def test_a_chain_is_repaired_as_a_whole_by_one_cause() -> None:
    """A square has all of its operand's error, half by each side."""
    x = np.random.default_rng(0).normal(size=(16, 32)).astype(np.float32) * 3
    result = neuronsim.blame(high_power, {"x": x}, auto_cast="all", batch=16)
    (cause,) = result.causes
    assert cause.opcode == "multiply"
    assert (cause.computing, cause.before.worst_sample > 0.2) == (10, True)
    assert cause.after.worst_sample < 0.1


def test_a_cause_in_what_is_kept_already_completes_the_earlier_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    x = np.random.default_rng(0).normal(size=(16, 32)).astype(np.float32) * 3
    result = neuronsim.blame(high_power, {"x": x}, auto_cast="all", batch=16)
    (cause,) = result.causes
    flow = Dataflow(neuronsim.compile(high_power, x).model)
    first = replace(cause, keep_float32=cause.keep_float32[-2:], computing=2, after=cause.before)
    others = replace(cause, instruction="add", keep_float32=("add",), computing=1)
    again = replace(cause, keep_float32=cause.keep_float32[:-2], computing=8)
    assert measure._joined([first], again, flow) == [cause]
    joined = measure._joined([first, replace(others, after=cause.before)], again, flow)
    assert joined == [replace(cause, after=cause.before), others]
    assert measure._joined([first], replace(others, keep_float32=()), flow)[1:] != []
    print_blame(replace(result, causes=(replace(cause, keep_float32=("broadcast",), computing=0),)))
    assert "or keep in float32 what only moves values: broadcast\n" in capsys.readouterr().out
    print_blame(replace(result, causes=(others,)))
    assert "or keep 1 computing instruction in float32: add\n" in capsys.readouterr().out


# ---- magika ----------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("low", "layer", "kind", "computing"),
    [("bf16", "LayerNorm_0", "cancellation", 20), ("fp16", "LayerNorm_1_Sum_1", "overflow", 3)],
)
def test_blame_of_magika(low: str, layer: str, kind: str, computing: int) -> None:
    from tests.frontends.test_onnx_models import features, model_of

    path = model_of("magika", "models", "standard_v3_3", "model.onnx")
    root = Path(__file__).parents[2]
    patterns = ("python/neuronsim/*/*.py", "docs/*.md", "csrc/*/*.cpp", "tests/mutants/*.toml")
    files = [f for p in patterns for f in sorted(root.glob(p))[:6]]
    data = {"bytes": np.stack([features(f) for f in files])}
    result = neuronsim.blame(str(path), data, auto_cast="all", auto_cast_type=low, batch=8)
    first = result.causes[0]
    assert layer in first.instruction
    assert first.kind == kind
    assert first.computing <= computing
    assert first.after.worst_sample < 0.1 < first.before.worst_sample
