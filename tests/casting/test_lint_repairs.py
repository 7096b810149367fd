"""Lint with a calibration, what it judges by the data, and the repairs that close over producers and
consumers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.commands import Commands
from tests.support.hlo_text import source_of, text_module
from tests.support.parameters import each_of
from tests.tuning.broken_networks import BROKEN, FP16, HEALTHY, Network, module_of

import neuronsim
from neuronsim.diagnosis import Repair, repair
from neuronsim.errors import InvalidArgument
from neuronsim.hlo.findings import Finding
from neuronsim.setups import CastRequest

pytestmark = pytest.mark.isa_independent


def repaired(network: Network) -> Repair:
    given = network.inputs()
    shapes = {name: x.shape for name, x in given.items()}
    setting = {"auto_cast": "all", "auto_cast_type": network.low, "input_shapes": shapes}
    return repair(CastRequest(module_of(network, "numpy"), **setting), given)[1]


def right(found: Any, exact: Any) -> float:
    """The share of samples whose answer is float32's: the highest score is the same, or what is given
    lies within a fiftieth of it.
    """
    a, b = (np.asarray(x, np.float64) for x in (found, exact))
    a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
    same = np.isfinite(a).all(1) & (a.argmax(1) == b.argmax(1)) & (b.shape[1] > 1)
    size = np.maximum(np.linalg.norm(b, axis=1), 1e-2 * np.linalg.norm(b) / np.sqrt(len(b)))
    with np.errstate(invalid="ignore"):
        near = np.linalg.norm(a - b, axis=1) <= size / 50
    return float(np.mean(same | near))


def test_fix_restores_the_accuracy_of_broken_networks() -> None:
    """At least 27 of 30; of those that it does not, it says so."""
    restored, unsaid = 0, []
    for network in BROKEN:
        found = repaired(network)
        model, given = module_of(network, "numpy"), network.inputs()
        shapes = {name: x.shape for name, x in given.items()}
        exact = neuronsim.compile(model, auto_cast="none", input_shapes=shapes)(**given)
        plan = neuronsim.compile(
            model,
            policy=found.policy,
            calibration=neuronsim.calibrate(model, given, input_shapes=shapes),
            input_shapes=shapes,
        )
        if right(plan(**given), exact) >= 0.99:
            restored += 1
        elif not (found.left or found.unmended):
            unsaid.append(network.name)
    assert restored >= 0.9 * len(BROKEN)
    assert unsaid == []


def test_what_lint_cannot_see_is_repaired_by_blame() -> None:
    """A state that loses a little in each of many steps; its shape is that of the data."""

    def decay(x: Any) -> Any:
        for _ in range(64):
            x = x * 0.9973
        return x

    given = {"x": np.full((4, 3), 1.7, np.float32)}
    found = repair(CastRequest(decay, auto_cast="all", batch=4), given)[1]
    assert found.findings == ()
    assert len(found.blamed) >= 64
    assert set(found.blamed) <= set(found.kept)
    assert found.before is not None
    assert found.after is not None
    assert found.after.worst_sample <= found.usual < found.before.worst_sample
    assert found.unmended == ""
    policy = {"policy": found.policy, "input_shapes": {"x": (4, 3)}}
    exact, mended = (neuronsim.compile(decay, **o)(given["x"]) for o in (
        {"auto_cast": "none", "input_shapes": {"x": (4, 3)}}, policy))  # fmt: skip
    np.testing.assert_array_equal(np.asarray(mended), np.asarray(exact))


@each_of("network", HEALTHY, ids=lambda n: n.name)
def test_lint_with_a_calibration_finds_no_error_in_healthy_networks(network: Network) -> None:
    found = repaired(network)
    assert [f for f in found.findings if f.severity == "error"] == []


# ---- the rules that judge by data ------------------------------------------------------------------


def found_in(body: str, low: str, *x: Any) -> tuple[Finding, ...]:
    """Lint under `all` with a calibration of these inputs, or without one."""
    model = text_module(body)
    names = model.input_names()
    calibration = None
    if x:
        arrays = {n: np.asarray(v, np.float32) for n, v in zip(names, x, strict=True)}
        calibration = neuronsim.calibrate(model, arrays)
    return neuronsim.lint(model, auto_cast="all", auto_cast_type=low, calibration=calibration)


POWER = """x = f32[4,8] parameter(0)
q = f32[4,8] multiply(x, x)
c = f32[4,8] multiply(q, q)
ROOT t = f32[4,8] tanh(c)"""
LOGARITHM = """x = f32[4] parameter(0)
e = f32[4] exponential(x)
ROOT l = f32[4] log(e)"""
DIFFERENCE = """x = f32[4] parameter(0)
y = f32[4] parameter(1)
a = f32[4] negate(x)
ROOT d = f32[4] add(a, y)"""
STEEP = """x = f32[4] parameter(0)
n = f32[4] negate(x)
ROOT s = f32[4] OPCODE(n)"""
COUNTS = """x = f32[4] parameter(0)
f = f32[4] floor(x)
ROOT s = f32[4] negate(f)"""
# Inputs of which nothing is found and others of which the rule is, and what to keep in float32.
JUDGED = [
    ("values beyond the type", POWER, FP16, [10], [20], ("c", "t")),  # tanh would read Inf
    ("values vanish", LOGARITHM, FP16, [-1], [-30], ("e", "l")),
    ("difference of near values", DIFFERENCE, "bf16", [100, 50], [100, 101], ("a", "d")),
    *(
        (
            "steep function of a rounded argument",
            STEEP.replace("OPCODE", opcode),
            *("bf16", [-3], [wrong], ("n", "s")),
        )
        for opcode, wrong in (("sine", -500), ("exponential", -60))
    ),
    ("counts beyond the type", COUNTS, "bf16", [200], [301], ("f", "s")),
]


@pytest.mark.parametrize(
    ("rule", "text", "low", "fine", "wrong", "kept"),
    JUDGED,
    ids=[r[0].replace(" ", "_") for r in JUDGED],
)
def test_rules_that_judge_by_data(
    rule: str, text: str, low: str, fine: list[float], wrong: list[float], kept: tuple[str, str]
) -> None:
    dims = (4, 8) if text is POWER else (4,)
    assert found_in(text, low, *(np.full(dims, v) for v in fine)) == ()
    found = found_in(text, low, *(np.full(dims, v) for v in wrong))
    (finding,) = found if rule != "values vanish" else (f for f in found if f.rule == rule)
    assert (finding.rule, finding.keep_float32) == (rule, kept)


def test_values_beyond_the_type_are_found_where_the_data_show_them() -> None:
    assert found_in(POWER, FP16) == ()
    (finding,) = found_in(POWER, FP16, np.full((4, 8), 20))
    assert (finding.instruction, finding.severity) == ("c", "error")
    assert "reach 160000 on the data" in finding.message


# ---- could and will ----------------------------------------------------------------------------------

NORM = """x = f32[4,4096] parameter(0)
q = f32[4,4096] multiply(x, x)
zero = f32[] constant(0)
t = f32[4] reduce(q, zero), dimensions={1}, to_apply=add
r = f32[4] sqrt(t)
b = f32[4,4096] broadcast(r), dimensions={0}
ROOT y = f32[4,4096] divide(x, b)"""


def test_what_could_happen_is_a_warning_and_what_will_an_error() -> None:
    def of_rule(*x: Any) -> list[Finding]:
        return [f for f in found_in(NORM, FP16, *x) if f.rule == "sum beyond the type"]

    (could,) = of_rule()
    assert could.severity == "warning"
    assert of_rule(np.full((4, 4096), 0.5)) == []
    (will,) = of_rule(np.full((4, 4096), 10))
    assert will.severity == "error"
    assert will.keep_float32 == ("t", "r")
    assert could.keep_float32 == ("q", "t", "r")  # the squares too: nobody knows how large they are


MASK = """s = f32[4,16] parameter(0)
m = pred[4,16] parameter(1)
c = f32[] constant(-1e9)
b = f32[4,16] broadcast(c), dimensions={}
x = f32[4,16] select(m, s, b)
low = f32[] constant(-inf)
t = f32[4] reduce(x, low), dimensions={1}, to_apply=max
tb = f32[4,16] broadcast(t), dimensions={0}
d = f32[4,16] subtract(x, tb)
ROOT e = f32[4,16] exponential(d)"""


def test_a_mask_does_harm_where_a_row_is_masked_throughout() -> None:
    model = text_module(MASK)
    scores = np.zeros((4, 16), np.float32)

    def severities(mask: np.ndarray | None) -> list[str]:
        calibration = None if mask is None else neuronsim.calibrate(model, {"s": scores, "m": mask})
        found = neuronsim.lint(model, auto_cast="all", auto_cast_type=FP16, calibration=calibration)
        return [f.severity for f in found if f.rule == "mask constant becomes -Inf"]

    some = np.tri(4, 16, dtype=bool)
    none = some.copy()
    none[2] = False
    assert severities(None) == ["warning"]
    assert severities(some) == []
    assert severities(none) == ["error"]


def masked_attention(x: Any) -> Any:
    """A causal mask that is added, as exporters write it."""
    mask = neuronsim.asarray((np.triu(np.ones((16, 16)), 1) * -1e9).astype(np.float32))
    scores = x @ x.T / 4 + mask
    e = neuronsim.exp(scores - neuronsim.max(scores, axis=1, keepdims=True))
    return (e / neuronsim.sum(e, axis=1, keepdims=True)) @ x


@pytest.mark.parametrize("low", [FP16, "bf16"])
def test_a_mask_that_is_added_is_no_error_where_it_does_no_harm(low: str) -> None:
    x = np.random.default_rng(3).normal(size=(16, 16)).astype(np.float32)
    exact = neuronsim.compile(masked_attention, x, auto_cast="none")
    calibration = neuronsim.calibrate(exact.model, {"x": x})
    setting: dict[str, Any] = {"auto_cast": "all", "auto_cast_type": low}
    found = neuronsim.lint(exact.model, calibration=calibration, **setting)
    assert [f.rule for f in found if f.severity == "error"] == []
    narrow = neuronsim.compile(exact.model, **setting)(x)
    np.testing.assert_allclose(np.asarray(narrow), np.asarray(exact(x)), rtol=0.05, atol=0.05)


def test_an_epsilon_vanishes_where_the_data_need_it() -> None:
    text = """x = f32[4] parameter(0)
      q = f32[4] multiply(x, x)
      eps = f32[] constant(1e-12)
      b = f32[4] broadcast(eps), dimensions={}
      a = f32[4] add(q, b)
      ROOT r = f32[4] rsqrt(a)"""

    def severities(*x: Any) -> list[str]:
        return [f.severity for f in found_in(text, FP16, *x) if f.rule == "epsilon vanishes"]

    assert severities() == ["warning"]
    assert severities(np.ones(4)) == []
    assert severities(np.asarray([1, 0, 1, 1])) == ["error"]


# ---- the command -----------------------------------------------------------------------------------


def test_lint_fix_writes_a_policy_that_repairs(tmp_path: Path, commands: Commands) -> None:
    (tmp_path / "m.hlo").write_text(source_of(NORM))
    np.savez(tmp_path / "x.npz", x=np.full((4, 4096), 10, np.float32))
    model, data, fix = (str(tmp_path / n) for n in ("m.hlo", "x.npz", "fix.json"))
    setting = ["--auto-cast", "all", "--auto-cast-type", "fp16"]
    said = commands.ok("lint", model, *setting, "--data", data, "--fix", fix)
    assert "wrote" in said
    assert "t r" in said
    assert "lint finds nothing under it" in said
    body = json.loads(commands.ok("lint", model, "--policy", fix, "--data", data, "--json"))
    assert body["findings"] == []
    assert body["repair"]["after"]["not_finite"] == 0


def test_lint_fix_says_what_it_cannot_repair(tmp_path: Path, commands: Commands) -> None:
    """64-bit indices are no float that could be kept; a plan has no rules."""
    text = "x = s64[4] parameter(0)\nc = s64[] constant(4294967296)\n"
    text += "b = s64[4] broadcast(c), dimensions={}\nROOT y = s64[4] add(x, b)"
    (tmp_path / "m.hlo").write_text(source_of(text))
    model, fix = str(tmp_path / "m.hlo"), str(tmp_path / "fix.json")
    said = commands.ok("lint", model, "--auto-cast", "all", "--fix", fix)
    assert "not repaired: c, 64-bit indices are truncated (error)" in said
    with pytest.raises(InvalidArgument, match="a plan has no rules"):
        repair(CastRequest(model, plan=neuronsim.plan(model, auto_cast="none")))


def test_lint_fix_does_not_say_that_it_repairs_operators(tmp_path: Path, commands: Commands) -> None:
    """What the release does not list stays a finding under any policy."""
    text = "x = f32[4] parameter(0)\nROOT y = f32[4] cbrt(x)"
    (tmp_path / "m.hlo").write_text(source_of(text))
    model, fix = str(tmp_path / "m.hlo"), str(tmp_path / "fix.json")
    said = commands.ok("lint", model, "--auto-cast", "all", "--fix", fix)
    assert "not repaired: y, supported operators (warning)" in said
    assert "lint finds nothing under it" not in said
