"""The environment variables of AWS's tools: what each does, and that it says so when it acts."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from neuronsim import api, dtypes
from neuronsim.errors import FlagWarning, InvalidArgument
from neuronsim.frontends.pytorch_xla import as_traced
from neuronsim.hlo import parse
from neuronsim.profiles import Profile, is_on
from tests.support.commands import Commands

EN, SEED = "NEURON_RT_STOCHASTIC_ROUNDING_EN", "NEURON_RT_STOCHASTIC_ROUNDING_SEED"
USE, DOWNCAST = "XLA_USE_BF16", "XLA_DOWNCAST_BF16"
FLAGS = "NEURON_CC_FLAGS"

# As PyTorch/XLA traces it: its graph's name, and its operators.
TEXT = """\
HloModule SyncTensorsGraph.9

larger {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b)
}

ENTRY main {
  p0.1 = f32[2,3] parameter(0), metadata={op_type="xla__device_data" op_name="xla__device_data"}
  p1.2 = f64[3] parameter(1), metadata={op_type="xla__device_data" op_name="xla__device_data"}
  least = f32[] constant(-3.40282347e+38)
  top = f32[2] reduce(p0.1, least), dimensions={1}, to_apply=larger
  mask = f32[2] broadcast(least), dimensions={}
  i = s32[2] constant({1, 2})
  w = f64[] constant(0.1)
  ws = f64[3] broadcast(w), dimensions={}
  y = f64[3] multiply(p1.2, ws), metadata={op_type="aten__mul" op_name="aten__mul"}
  ROOT r = (f32[2], f64[3], f32[2], s32[2]) tuple(top, y, mask, i)
}
"""
X = np.array([[1.0, 2.5, 1.0 + 2**-9], [3, -4, 0]], np.float32)
NARROWED = "HloModule m\nENTRY e { x = f32[4000] parameter(0)\n ROOT y = bf16[4000] convert(x) }\n"


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (EN, SEED, USE, DOWNCAST, FLAGS):
        monkeypatch.delenv(name, raising=False)


def told(call: Any) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = call()
    return found, [str(w.message) for w in caught if w.category is FlagWarning]


@pytest.mark.parametrize(
    ("value", "on"),
    [("1", True), ("true", True), ("2", True), ("0", False), ("", False), ("no", False)],
)
def test_switches_are_read_as_pytorch_xla_reads_them(value: str, on: bool) -> None:
    assert is_on(value) is on


# ---- the types of PyTorch/XLA --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "types"),
    [
        (USE, ("bfloat16", "bfloat16", "bfloat16", "int32")),
        (DOWNCAST, ("bfloat16", "float32", "bfloat16", "int32")),
    ],
)
def test_bf16_variables_narrow_what_pytorch_xla_traces(
    variable: str, types: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert api.compile(TEXT.encode(), target="host").outputs[0].dtype is dtypes.float32
    monkeypatch.setenv(variable, "1")
    monkeypatch.setenv(EN, "0")
    program, said = told(lambda: api.compile(TEXT.encode()))
    assert tuple(t.dtype.name for t in program.outputs) == types
    assert [t.dtype.name for t in program.inputs.values()] == list(types[:2])
    narrow = {"XLA_USE_BF16": "bfloat16", "XLA_DOWNCAST_BF16": "float32"}[variable]
    assert said == [
        f"{variable}=1: float32 is bfloat16, float64 is {narrow} in 'SyncTensorsGraph.9', as "
        "PyTorch/XLA traces it"
    ]
    top, _, mask, _ = map(np.asarray, program(X, np.ones(3)))
    np.testing.assert_array_equal(top.astype(np.float32), [2.5, 3])
    # "float32.min or float32.max gets downcasted to Inf": a mask's constant, as AWS documents it.
    assert np.isneginf(mask.astype(np.float32)).all()


def test_the_first_variable_decides_where_both_are_on(monkeypatch: pytest.MonkeyPatch) -> None:
    module, said = as_traced(parse.from_text(TEXT), {USE: "1", DOWNCAST: "1"})
    assert {t.dtype for t in module.root.shape.arrays()} == {dtypes.bfloat16, dtypes.int32}
    assert said[0].text.startswith(USE)


def test_constants_are_rounded_to_nearest_even() -> None:
    module, _ = as_traced(parse.from_text(TEXT), {USE: "1"})
    literal = module.entry_computation.by_name["w"].attributes["literal"]
    assert literal.type == (dtypes.bfloat16, ())
    assert literal.data.tobytes() == np.array(0.1, ml_dtypes.bfloat16).tobytes()


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("SyncTensorsGraph.9", "jit_f").replace("aten__mul", "mul").replace("xla__", "x"),
        TEXT.replace(
            "i = s32[2] constant({1, 2})", "i = s32[2] constant({1, 2})\n  h = bf16[] constant(1)"
        ),
    ],
    ids=["of another framework", "traced under a variable already"],
)
def test_types_that_are_fixed_stay(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, said = as_traced(parse.from_text(text), {USE: "1"})
    assert module.root.shape.arrays()[0].dtype is dtypes.float32
    assert [(m.level, m.text[:38]) for m in said] == [
        ("info", "XLA_USE_BF16=1 does not act on the typ")
    ]


def test_a_module_without_such_floats_is_not_told_of() -> None:
    text = "HloModule m\nENTRY e { x = s32[2] parameter(0)\n ROOT y = s32[2] negate(x) }"
    assert as_traced(parse.from_text(text), {USE: "1"}) == (parse.from_text(text), ())
    assert as_traced(parse.from_text(TEXT), {USE: "0", DOWNCAST: "false"})[1] == ()


def test_every_function_reads_under_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, commands: Commands
) -> None:
    monkeypatch.setenv(USE, "1")
    monkeypatch.setenv(EN, "0")
    text = """HloModule IrToHlo.4
    ENTRY e { x = f32[2,3] parameter(0)
      w = f32[3,2] parameter(1)
      ROOT y = f32[2,2] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"""
    weights = {"w": np.ones((3, 2), np.float32)}
    for call in (
        lambda: api.plan(text.encode()),
        lambda: api.lint(text.encode()),
        lambda: api.compile(text.encode()),
        lambda: api.tune(text.encode(), {"x": X}, weights=weights),
        lambda: api.calibrate(text.encode(), {"x": X}, weights=weights),
    ):
        assert len([s for s in told(call)[1] if "float32 is bfloat16 in 'IrToHlo.4'" in s]) == 1
    (tmp_path / "m.hlo").write_text(text)
    status, _, err = commands.run("compile", tmp_path / "m.hlo", "--output", tmp_path / "m.nsim")
    assert (status, err.count("float32 is bfloat16 in 'IrToHlo.4'")) == (0, 1)
    program = api.load(tmp_path / "m.nsim")
    assert isinstance(program, api.CompiledProgram)
    assert [t.dtype.name for t in program.inputs.values()] == ["bfloat16", "bfloat16"]


# ---- stochastic rounding -------------------------------------------------------------------------


def narrowed(**more: Any) -> tuple[Any, list[str]]:
    program, said = told(lambda: api.compile(NARROWED.encode(), auto_cast="none", **more))
    x = np.linspace(1, 2, 4000, dtype=np.float32)
    return np.asarray(program(x)).astype(np.float32), said


def test_stochastic_rounding_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    nearest, said = narrowed()
    assert said == []
    monkeypatch.setenv(EN, "1")
    first, said = narrowed()
    assert said == [
        f"{EN}=1: results in narrower floats round stochastically, from the seed 0 ({SEED})"
    ]
    assert (first != nearest).any()
    assert abs(first.mean() - 1.5) < 1e-3
    np.testing.assert_array_equal(first, narrowed(profile=Profile(rounding="stochastic"))[0])
    monkeypatch.setenv(SEED, "7")
    second, said = narrowed()
    assert "from the seed 7" in said[0]
    assert (second != first).any()
    monkeypatch.setenv(EN, "0")
    np.testing.assert_array_equal(narrowed()[0], nearest)


@pytest.mark.parametrize("seed", ["seven", "-1", "18446744073709551616"])
def test_a_seed_that_is_none(seed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEED, seed)
    narrowed()  # nothing draws
    monkeypatch.setenv(EN, "1")
    with pytest.raises(InvalidArgument, match=SEED):
        narrowed()


@pytest.mark.parametrize("variable", [USE, DOWNCAST])
def test_bf16_variables_turn_stochastic_rounding_on(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nearest, _ = narrowed()
    monkeypatch.setenv(variable, "1")
    found, said = narrowed()
    assert (found != nearest).any()
    assert said == [
        f"{variable}=1: results in narrower floats round stochastically, as torch-neuronx has it "
        f"({EN}=0 not), from the seed 0 ({SEED})"
    ]
    monkeypatch.setenv(EN, "0")
    np.testing.assert_array_equal(narrowed()[0], nearest)


def test_where_stochastic_rounding_does_not_act(monkeypatch: pytest.MonkeyPatch) -> None:
    nearest, _ = narrowed()
    monkeypatch.setenv(EN, "1")
    found, said = narrowed(profile=Profile())
    np.testing.assert_array_equal(found, nearest)
    assert said == [f"the profile decides: its rounding is 'nearest_even', and {EN} does not act"]
    assert narrowed(profile=Profile(rounding="stochastic"))[1] == []
    program, said = told(lambda: api.compile(NARROWED.encode(), target="inf1"))
    assert program.setup.profile.rounding == "nearest_even"
    assert said == [f"{EN} does not act: inf1 does not round stochastically"]


def test_tune_says_once_that_it_rounds_stochastically(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EN, "1")
    text = NARROWED.replace("f32[4000]", "f32[4,2]").replace("bf16[4000]", "bf16[4,2]")
    _, said = told(lambda: api.tune(text.encode(), {"x": np.ones((4, 2), np.float32)}))
    assert len(said) == 1
    assert "round stochastically" in said[0]


# ---- PyTorch's own modules -----------------------------------------------------------------------


def test_a_module_of_pytorch_is_narrowed(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("neuronsim.frontends.torch", reason="PyTorch's door is not there yet")
    monkeypatch.setenv(USE, "1")
    monkeypatch.setenv(EN, "0")
    program, said = told(lambda: api.compile(torch.nn.Linear(3, 2), torch.ones(2, 3)))
    assert [t.dtype for t in program.outputs] == [dtypes.bfloat16]
    assert "float32 is bfloat16" in said[0]


def test_cc_flags_act_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FLAGS, "--auto-cast all --auto-cast-type fp16")
    monkeypatch.setenv(EN, "1")
    program, said = told(lambda: api.compile(NARROWED.encode()))
    assert program.setup.settings.auto_cast_type == "fp16"
    assert len(said) == 2
    assert any("the flags are those of NEURON_CC_FLAGS" in s for s in said)


@pytest.mark.parametrize("value", ["yes", "on", "-1"])
def test_a_value_that_is_no_switch_is_said_not_to_act(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(EN, value)
    _, said = told(lambda: api.compile(NARROWED.encode(), auto_cast="none"))
    assert said == [f"{EN}={value} does not act: 1 turns stochastic rounding on, 0 off"]
    for off in ("0", "00", "false", ""):
        monkeypatch.setenv(EN, off)
        assert told(lambda: api.compile(NARROWED.encode(), auto_cast="none"))[1] == []


@pytest.mark.filterwarnings("ignore::neuronsim.errors.FlagWarning")
def test_what_was_tuned_says_its_seed_and_a_journal_is_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(EN, "1")
    monkeypatch.setenv(SEED, "3")
    text = NARROWED.replace("4000", "2,40").encode()
    data, journal = {"x": np.ones((4, 40), np.float32) / 3}, tmp_path / "journal"
    asked: dict[str, Any] = {"strategy": "ladder", "journal": journal}
    notes = api.tune(text, data, **asked).notes
    assert notes[0] == "results in narrower floats round stochastically, from the seed 3"
    monkeypatch.setenv(SEED, "4")
    with pytest.raises(InvalidArgument, match="is of another model"):
        api.tune(text, data, **asked, resume=True)
