"""The command line: what each command prints and writes, and one paragraph for every bad input."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from neuronsim import api, dtypes, processor
from neuronsim.casting.plans.plan import Plan
from neuronsim.hlo import proto
from neuronsim.targets import find_release, operators
from tests.support.commands import Commands
from tests.support.graphs import inst, module_of, parameter, unverified
from tests.support.parameters import each_of, some
from tests.support.places import DATA, MODEL

pytestmark = [pytest.mark.isa_independent, pytest.mark.usefixtures("restored_settings")]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The first 70 images: more than a batch of 64, less than two."""
    path = tmp_path_factory.mktemp("inputs") / "x.npz"
    with np.load(DATA) as archive:
        np.savez(path, x=archive["x"][:70])
    return str(path)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("program") / "digits.nsim"
    api.compile(MODEL, auto_cast="all", auto_cast_type="bf16").save(path)
    return str(path)


# ---- tune ----------------------------------------------------------------------------------------


def test_tune_prints_the_ladder_and_a_flag_line(commands: Commands) -> None:
    status, out, err = commands.run("tune", MODEL, "--data", DATA)
    assert (status, err) == (0, "")
    names = [line.strip("> ").split()[0] for line in out.splitlines() if line.rstrip()[-1:] == "x"]
    assert names == [
        *("none", "matmult/tf32", "all/tf32", "matmult/fp16", "all/fp16", "matmult/bf16", "all/bf16")
    ]
    assert out.splitlines()[-1] == (
        '    export NEURON_CC_FLAGS="--auto-cast all --auto-cast-type bf16"'
    )
    assert " > all/bf16" in out
    assert "Within 1 point of float32's accuracy" in out


def test_tune_without_labels_goes_by_the_error(inputs: str, commands: Commands) -> None:
    words = ("--tolerance", "1e-3", "--strategy", "ladder")
    out = commands.ok("tune", MODEL, "--data", inputs, *words)
    assert "accuracy" not in out
    assert "Within a relative error of 0.001, the fastest setting is all/tf32" in out


def test_the_metric_that_decides_has_a_column(inputs: str, commands: Commands) -> None:
    words = ("--metric", "ulp", "--strategy", "ladder")
    out = commands.ok("tune", MODEL, "--data", inputs, *words)
    (head,) = (line.split() for line in out.splitlines() if line.startswith(" setting"))
    assert head[1] == "ulp"
    figures = json.loads(commands.ok("tune", MODEL, "--data", inputs, *words, "--json", "-"))["rungs"]
    table = out[: out.index("errors")].splitlines()
    rows = {line.replace(">", " ").split()[0]: line for line in table if "/" in line[:20]}
    for r in figures[1:]:
        assert f"{r['scores']['ulp']:.2e}" in rows[r["name"]]


def test_too_few_data_for_an_interval_are_told(inputs: str, commands: Commands, tmp_path: Path) -> None:
    one, many = (str(tmp_path / f"{n}.npz") for n in ("one", "many"))
    with np.load(inputs) as archive:
        np.savez(one, **{n: x[:1] for n, x in archive.items()})
        np.savez(many, **{n: np.concatenate([x] * 4) for n, x in archive.items()})
    words = ("--strategy", "ladder")
    assert "1 sample does not tell how sure" in commands.ok("tune", MODEL, "--data", one, *words)
    assert "how sure" not in commands.ok("tune", MODEL, "--data", many, *words)


def test_fix_of_what_needs_none_says_so(inputs: str, commands: Commands, tmp_path: Path) -> None:
    words = ("--base", "all/bf16", "--output", tmp_path / "policy.toml")
    out = commands.ok("fix", MODEL, "--data", inputs, *words)
    answer = out[out.index("all/bf16 needs no repair") :].split("\n")
    assert "all of it may compute so within a relative error of 0.01" in answer[0]
    assert answer[2] == '    export NEURON_CC_FLAGS="--auto-cast all --auto-cast-type bf16"'
    assert answer[4:] == [f"wrote {tmp_path / 'policy.toml'}: all/bf16 as it is", ""]
    assert " > all/bf16  " in out  # the setting, and no plan that is the same
    assert not any(w in out for w in ("tuned", "fastest setting", "0 computing", "neuronsim blame"))


def test_policies_that_compare_values_are_tuned_fixed_quantized_and_blamed(
    inputs: str, commands: Commands, tmp_path: Path
) -> None:
    policy, seen, few = tmp_path / "valued.toml", tmp_path / "seen.json", tmp_path / "few.npz"
    policy.write_text(
        'schema = "neuronsim.policy/1"\nname = "valued"\nbase = "all/fp16"\n'
        '[[rule]]\nreason = "large"\ncategory = "never"\nabove = 60000.0\n'
    )
    np.savez(few, x=np.load(inputs)["x"][:64])
    commands.ok("calibrate", MODEL, "--data", few, "--output", seen)
    of, given = (MODEL, "--data", few), ("--calibration", seen)
    ladder, output = ("--strategy", "ladder"), ("--output", tmp_path / "out.json")
    assert "give a calibration (--calibration)" in commands.refused("tune", *of, "--policy", policy)
    page = ("--report", tmp_path / "page.html") if importlib.util.find_spec("jinja2") else ()
    words = ("--policy", policy, *given, "--tolerance", "1e-5", *ladder, *page)
    out = commands.ok("tune", *of, *words)
    assert f"    neuronsim fix {' '.join(map(str, of))} --calibration {seen}" in out
    figures = tmp_path / "fixed.json"
    out = commands.ok(
        *("fix", *of, "--base", policy, *given, "--max-trials", 3),
        *("--output", tmp_path / "fixed.toml", "--json", figures),
    )
    assert f"all figures are in {figures}" in out.replace("\n", " ")
    commands.ok("quantize", *of, "--others", policy, *given, *output)
    commands.ok("blame", *of, "--policy", policy, *given, "--rewrite")


LINEAR = """HloModule linear
ENTRY e {
  x = f32[4,8] parameter(0)
  w = f32[8,3] parameter(1)
  ROOT y = f32[4,3] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""


def test_quantize_takes_weights_from_a_file(tmp_path: Path, commands: Commands) -> None:
    model, data, weights = (tmp_path / name for name in ("m.hlo", "x.npz", "w.npz"))
    model.write_text(LINEAR)
    np.savez(data, x=np.ones((4, 8), np.float32))
    np.savez(weights, w=np.ones((8, 3), np.float32))
    given = (model, "--weights", weights)
    commands.ok("quantize", *given, "--data", data, "--output", tmp_path / "plan.json")
    out = commands.ok("explain", *given, "--plan", tmp_path / "plan.json")
    assert "int8" in out


def test_tune_writes_its_figures_as_json(inputs: str, tmp_path: Path, commands: Commands) -> None:
    file = tmp_path / "figures.json"
    assert "export NEURON_CC_FLAGS" in commands.ok("tune", MODEL, "--data", inputs, "--json", file)
    printed = json.loads(commands.ok("tune", MODEL, "--data", inputs, "--json", "-"))
    written = json.loads(file.read_text())
    assert printed.pop("seconds").keys() == written.pop("seconds").keys()
    assert printed == written
    assert (written["samples"], written["schema"]) == (70, "neuronsim.tune/2")


def test_tune_takes_its_options(inputs: str, commands: Commands) -> None:
    wanted = {
        "--sdk": ("release", "2.27", "SDK 2.27, neuronx-cc 2.22.12471.0"),
        "--target": ("target", "host", "host"),
        "--metric": ("metric", "relative_error", "relative_error"),
        "--tolerance": ("tolerance", "0.5", 0.5),
        "--threads": ("samples", "1", 70),
    }
    given = [word for option, (_, value, _) in wanted.items() for word in (option, value)]
    found = json.loads(commands.ok("tune", MODEL, "--data", inputs, "--json", "-", *given))
    assert {key: found[key] for key, _, _ in wanted.values()} == {k: v for k, _, v in wanted.values()}


# ---- run, compile, explain -----------------------------------------------------------------------


def test_run_writes_every_sample_of_any_number(inputs: str, tmp_path: Path, commands: Commands) -> None:
    output = tmp_path / "y.npz"
    options = ["--auto-cast", "all", "--auto-cast-type", "fp16"]
    out = commands.ok("run", MODEL, "--inputs", inputs, "--output", output, *options)
    assert out.startswith("--auto-cast all --auto-cast-type fp16 (SDK 2.26")
    with np.load(output) as found, np.load(inputs) as given:
        x = given["x"]
        expected = api.compile(MODEL, auto_cast="all", auto_cast_type="fp16")(x[:64])
        assert found.files == ["output_0"]
        assert found["output_0"].shape == (70, 10)
        assert found["output_0"][:64].tobytes() == expected.tobytes()


def test_run_takes_flags_and_plans_alike(inputs: str, tmp_path: Path, commands: Commands) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(api.plan(MODEL, auto_cast="all").to_json())
    for number, setting in enumerate(
        (
            ["--auto-cast", "all", "--auto-cast-type", "bf16"],
            ["--flags", "--auto-cast all --auto-cast-type bf16"],
            ["--flags=--auto-cast=all"],
            ["--plan", str(plan)],
        )
    ):
        output = str(tmp_path / f"{number}.npz")
        words = ("run", MODEL, "--inputs", inputs, "--output", output, *setting)
        assert commands.run(*words)[::2] == (0, "")
    results = {np.load(tmp_path / f"{n}.npz")["output_0"].tobytes() for n in range(4)}
    assert len(results) == 1


def test_run_takes_a_compiled_program(inputs: str, tmp_path: Path, commands: Commands) -> None:
    program, output = str(tmp_path / "p.nsim"), str(tmp_path / "y.npz")
    assert "wrote" in commands.ok("compile", MODEL, "--output", program, "--auto-cast", "all")
    commands.ok("run", program, "--inputs", inputs, "--output", output)
    with np.load(output) as found, np.load(inputs) as given:
        assert found["output_0"][:64].tobytes() == api.load(program)(given["x"][:64]).tobytes()


@pytest.mark.parametrize("setting", [["--auto-cast", "all"], ["--policy", "tvm/float16"]])
@pytest.mark.parametrize("form", ["hlo.pb", "hlo"])
def test_compile_writes_the_model_with_its_casts(
    setting: list[str], form: str, inputs: str, tmp_path: Path, commands: Commands
) -> None:
    planned, own, again = tmp_path / f"p.{form}", tmp_path / "y.npz", tmp_path / "z.npz"
    commands.ok("compile", MODEL, "--output", planned, *setting)
    commands.ok("run", MODEL, "--inputs", inputs, "--output", own, *setting)
    commands.ok("run", planned, "--inputs", inputs, "--output", again, "--auto-cast", "none")
    with np.load(own) as expected, np.load(again) as found:
        assert found["output_0"].dtype == expected["output_0"].dtype
        assert found["output_0"].tobytes() == expected["output_0"].tobytes()


def test_what_cannot_act_on_a_program_or_a_report_is_refused(
    program: str, inputs: str, tmp_path: Path, commands: Commands
) -> None:
    said = commands.refused("run", program, "--inputs", inputs, "--timings", "--batch", 3)
    assert "--batch cannot change it" in said
    document = tmp_path / "nodes.json"  # which needs no jinja2
    words = ("--output", document, "--auto-cast", "all", "--input-shape", "x=3")
    said = commands.refused("report", "tune.json", *words)
    assert "--input-shape, --auto-cast is about a model: give it by --model" in said


@pytest.mark.parametrize("form", ["hlo.pb", "hlo"])
@pytest.mark.parametrize("command", ["compile", "fix"])
def test_files_of_hlo_have_bodies_for_rows_that_hlo_has_not(
    command: str, form: str, tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "soft.py").write_text("import neuronsim\n\ndef row(x): return neuronsim.softplus(x)\n")
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", x=np.linspace(-3, 3, 48, dtype=np.float32).reshape(16, 3))
    words = {
        "compile": ("--input-shape", "x=4,3", "--auto-cast", "all"),
        "fix": ("--data", "x.npz", "--batch", 4, "--base", "all/bf16", "--tolerance", 1e-5),
    }
    commands.ok(command, "soft:row", *words[command], "--output", f"p.{form}")
    read = Path(f"p.{form}").read_bytes()
    assert b"composite.name" in read
    assert b"custom-call" not in read


def test_run_writes_the_file_that_it_names(inputs: str, tmp_path: Path, commands: Commands) -> None:
    output = tmp_path / "logits"
    status, _, _ = commands.run("run", MODEL, "--inputs", inputs, "--output", output)
    assert status == 2 or output.exists()


def test_run_stores_bfloat16_as_float32(tmp_path: Path, commands: Commands) -> None:
    model, data, output = tmp_path / "m.hlo.pb", tmp_path / "x.npz", tmp_path / "y.npz"
    x = parameter("x", (2, 3), dtype=dtypes.bfloat16)
    proto.write(module_of(x, inst("y", "add", x.shape, "x", "x")), model)
    np.savez(data, x=np.full((2, 3), 1 / 3, np.float32))
    out = commands.ok("run", model, "--inputs", data, "--output", output)
    assert "output_0 float32[2, 3]" in out
    with np.load(output) as found:
        assert found["output_0"].tolist() == [[2 * 0.333984375] * 3] * 2


def test_run_writes_the_arrays_of_what_a_function_returns(
    tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "functions.py").write_text("def pairs(x):\n    return {'a': x + 1, 'b': [x * 2]}\n")
    monkeypatch.syspath_prepend(tmp_path)
    data, output = tmp_path / "x.npz", tmp_path / "y.npz"
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.savez(data, x=x)
    commands.ok("run", "functions:pairs", "--inputs", data, "--output", output)
    with np.load(output) as found:
        np.testing.assert_array_equal(found["output_0"], x + 1)
        np.testing.assert_array_equal(found["output_1"], x * 2)


@pytest.mark.parametrize("at", [0, 3])
def test_run_reports_64_bit_integers_in_any_batch_C7(
    at: int, tmp_path: Path, commands: Commands
) -> None:
    # C7: each instruction with a value that truncation changes is named, never silent.
    model, data, output = tmp_path / "m.hlo.pb", tmp_path / "x.npz", tmp_path / "y.npz"
    x = parameter("x", (2, 3), dtype=dtypes.int64)
    proto.write(module_of(x, inst("y", "add", x.shape, "x", "x")), model)
    values = np.ones((4, 3), np.int64)
    values[at, 0] = 2**32 + 7
    np.savez(data, x=values)
    status, _, err = commands.run("run", model, "--inputs", data, "--output", output)
    assert (status, err.count("warning: x: 1 64-bit integers lost their high 32 bits (C7)")) == (0, 1)


def test_compile_notes_flags_without_effect(tmp_path: Path, commands: Commands) -> None:
    output = str(tmp_path / "p.nsim")
    words = ("compile", MODEL, "--output", output, "--flags")
    status, out, err = commands.run(*words, "-O2 --verbose info")
    assert (status, err) == (0, "")
    assert "info: --optlevel changes no value\ninfo: --verbose changes no value\n" in out
    assert out.endswith(f"wrote {output}\n")  # which does not say it again
    status, out, err = commands.run(*words, "-O2")
    assert (status, err, out.count("\n")) == (0, "", 1)
    assert out.endswith(f"wrote {output}; without numeric effect: --optlevel\n")


def test_nan_is_refused_by_tune_and_taken_by_run(tmp_path: Path, commands: Commands) -> None:
    data = tmp_path / "nan.npz"
    np.savez(data, x=np.full((2, 8, 8), np.nan))
    assert "NaN at [0, 0, 0]" in commands.refused("tune", MODEL, "--data", data)
    output = tmp_path / "y.npz"
    commands.ok("run", MODEL, "--inputs", data, "--output", output)
    with np.load(output) as found:
        assert np.isnan(found["output_0"]).all()


def test_explain_gives_the_types_and_the_reason(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")  # a reason in one line
    out = commands.ok("explain", MODEL, "--auto-cast", "matmult", "--auto-cast-type", "fp16")
    # Once for each instruction, with the rule in words.
    said = "A1: rounds float32 operands of the tensor engine to float16"
    assert out.count(said) == out.count("A1") == len(api.plan(MODEL, auto_cast="matmult").decisions)
    assert commands.ok("explain", MODEL, "--auto-cast", "none") == "The setting casts nothing.\n"


def test_explain_without_a_model_prints_the_profile(commands: Commands) -> None:
    out = commands.ok("explain")
    assert all(word in out for word in ("fp32_matmul", "M3", "assumed", "documented", "inferred"))


# ---- bench, list-operators -----------------------------------------------------------------------


def test_bench_prints_a_row(commands: Commands) -> None:
    out = commands.ok("bench", "--op", "convert", "--shape", "9x7", "--dtype", "float32:bfloat16")
    assert "convert float32:bfloat16 9x7" in out


def test_bench_prints_json(commands: Commands) -> None:
    arguments = ["--op", "sum", "--shape", "8x9", "--axis", "1", "--isa", "x86-64", "--json"]
    before = processor.isa()
    body = json.loads(commands.ok("bench", *arguments, "--peer", "numpy"))
    assert (body["op"], body["shape"], body["isa"], body["threads"]) == ("sum", [8, 9], "x86-64", 1)
    assert body["ratio"] == pytest.approx(body["peer_seconds"] / body["seconds"])
    assert processor.isa() == before


def test_list_operators_prints_sorted_xla_names(commands: Commands) -> None:
    names = commands.ok("list-operators").split()
    assert names == sorted(set(names))
    assert {"Add", "Constant", "DotGeneral", "Exp", "Reduce", "Tanh", "Tuple"} <= set(names)


@pytest.mark.parametrize("version", ["2.1.0.76", "2.2.0.73", "2.3.0.4", "2.26"])
@pytest.mark.parametrize("framework", [[], ["--framework", "XLA"]], ids=["", "XLA"])
def test_list_operators_of_a_release_prints_the_documented_ones(
    version: str, framework: list[str], commands: Commands
) -> None:
    expected = "".join(f"{name}\n" for name in operators(find_release(version)))
    assert commands.run("list-operators", "--sdk", version, *framework) == (0, expected, "")


# ---- lint ----------------------------------------------------------------------------------------


@pytest.fixture
def broken(tmp_path: Path) -> str:
    """A power whose exponent is a parameter, on 64-bit integers made from floats."""
    y = inst("y", "power", (2,), "x", "x")
    path = tmp_path / "broken.hlo.pb"
    z = inst("z", "convert", (2,), "y", dtype=dtypes.int64)
    proto.write(unverified(parameter("x", (2,)), y, z, name="broken"), path)
    return str(path)


def test_lint_says_what_where_and_quotes_the_rule(broken: str, commands: Commands) -> None:
    out = commands.ok("lint", broken, "--sdk", "2.2.0.73")
    assert f"{broken} under SDK 2.4, neuronx-cc 2.2.0.73 on trn1: 3 warnings" in out
    for part in ("main/y", "main/z", "(power)", "note on Pow", "known issue: INT64"):
        assert part in out
    assert 'note on Pow: "Exponent argument must be a compile-time integer constant"' in out


def test_lint_prints_json(broken: str, commands: Commands) -> None:
    body = json.loads(commands.ok("lint", broken, "--json"))
    assert (body["schema"], body["target"]) == ("neuronsim.lint/1", "trn1")
    assert body["release"] == "SDK 2.26, neuronx-cc 2.21.18209.0"
    found = [(f["computation"], f["instruction"], f["rule"]) for f in body["findings"]]
    assert found == [("main", "y", "note on Pow"), ("main", "z", "known issue: INT64")]


@pytest.mark.parametrize("json_option", [[], ["--json"]], ids=["", "json"])
def test_lint_strict_exits_1_if_there_is_a_finding(
    json_option: list[str], broken: str, commands: Commands
) -> None:
    assert commands.run("lint", broken, "--strict", *json_option)[0] == 1
    commands.ok("lint", broken, *json_option)
    commands.ok("lint", MODEL, "--strict", *json_option)
    commands.ok("lint", broken, "--strict", "--target", "host", *json_option)


def test_lint_of_a_model_that_breaks_nothing_says_so(commands: Commands) -> None:
    assert commands.ok("lint", MODEL, "--sdk", "2.1.0.76").endswith("on trn1: no findings\n")


def test_compile_warns_once_and_compiles(broken: str, tmp_path: Path, commands: Commands) -> None:
    output = tmp_path / "p.nsim"
    status, _, err = commands.run("compile", broken, "--output", output)
    assert status == 0
    lines = err.splitlines()
    assert len(lines) == 1
    assert "2 warnings: note on Pow, known issue: INT64" in lines[0]
    assert "neuronsim lint" in lines[0]
    assert output.exists()


def test_compile_strict_refuses_and_writes_nothing(
    broken: str, tmp_path: Path, commands: Commands
) -> None:
    output = tmp_path / "p.nsim"
    assert "main/y (power)" in commands.refused("compile", broken, "--output", output, "--strict")
    assert not output.exists()
    commands.ok("compile", MODEL, "--output", output, "--strict")


# ---- help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["tune", "--help"]])
def test_help_and_version_succeed(arguments: list[str], commands: Commands) -> None:
    assert "neuronsim" in commands.ok(*arguments)


# ---- bad input -----------------------------------------------------------------------------------


WIDE = parameter("x", (2, 3), dtype=dtypes.float64)
UNKNOWN = inst("y", "cholesky", (2, 3), "x")
NOISE = random.Random(0).randbytes(5000)
# What stands in the place of a file: its bytes, a folder, or nothing.
MODELS: dict[str, bytes | str | None] = {
    "truncated": Path(MODEL).read_bytes()[:60_000],
    "noise": NOISE,
    "empty": b"",
    "folder": "folder",
    "missing": None,
    "an unknown operator": proto.to_bytes(unverified(parameter("x", (2, 3)), UNKNOWN)),
    "float64": proto.to_bytes(module_of(WIDE, inst("y", "add", WIDE.shape, "x", "x"))),
}


def put(content: bytes | str | None, path: Path) -> None:
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "folder":
        path.mkdir()


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("command", ["tune", "run", "compile", "plan"])
def test_models_that_cannot_be_read_or_executed_are_refused(
    kind: str, command: str, inputs: str, tmp_path: Path, commands: Commands
) -> None:
    model, output = tmp_path / "bad.hlo.pb", tmp_path / "out"
    put(MODELS[kind], model)
    rest = {
        "tune": ["--data", inputs, "--json", str(output)],
        "run": ["--inputs", inputs, "--output", f"{output}.npz"],
        "compile": ["--output", f"{output}.nsim"],
        "plan": ["--output", str(output)],
    }
    if (command, kind) == ("plan", "float64"):
        commands.ok(command, model)  # a plan needs no device that executes the model
        return
    commands.refused(command, model, *rest[command])
    assert not list(tmp_path.glob("out*"))  # nothing is left behind


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "no input arrays"),
        ({"images": np.zeros((2, 8, 8))}, "the model's inputs are x"),
        ({"x": np.zeros((2, 8, 8)), "mask": np.zeros(2)}, "'mask'"),
        ({"x": np.zeros((2, 8, 7))}, "samples of 'x' are [8, 7], the model takes [8, 8]"),
        ({"x": np.zeros((0, 8, 8))}, "leading axis"),
        ({"x": np.zeros((2, 8, 8)), "labels": np.zeros(3, int)}, "2 samples have 3 labels"),
        ({"x": np.zeros((2, 8, 8)), "labels": np.zeros(2)}, "class numbers"),
        ({"x": np.full((2, 8, 8), "a")}, "not an element type"),
        ({"x": np.zeros((2, 8, 8), complex)}, "complex"),
        ({"x": np.full((2, 8, 8), None)}, "plain arrays"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_data_that_do_not_fit_are_refused(
    arrays: dict[str, np.ndarray], message: str, tmp_path: Path, commands: Commands
) -> None:
    data = str(tmp_path / "d.npz")
    np.savez(data, **arrays)
    assert message in commands.refused("tune", MODEL, "--data", data)
    if message == "class numbers":
        return  # `run` reads no labels
    output = str(tmp_path / "y.npz")
    assert message in commands.refused("run", MODEL, "--inputs", data, "--output", output)
    assert not Path(output).exists()


def numpys(save: Callable[..., None], *changed: tuple[int, bytes]) -> bytes:
    """A file of NumPy's, some bytes of it others."""
    file = io.BytesIO()
    save(file, np.random.default_rng(0).random((2, 8, 8)))
    data = bytearray(file.getvalue())
    for at, wrong in changed:
        data[at : at + len(wrong)] = wrong
    return bytes(data)


DATA_FILES: dict[str, bytes | str | None] = {
    **{kind: MODELS[kind] for kind in ("noise", "empty", "folder", "missing")},
    "garbled": numpys(np.savez_compressed, (40, bytes(40))),  # inside the deflated array
    "a single array": numpys(np.save),
}


@pytest.mark.parametrize("kind", DATA_FILES)
def test_data_files_that_cannot_be_read_are_refused(
    kind: str, tmp_path: Path, commands: Commands
) -> None:
    path = tmp_path / "d.npz"
    put(DATA_FILES[kind], path)
    assert str(path) in commands.refused("tune", MODEL, "--data", path)


@each_of(
    ("arguments", "message"),
    [
        ([], "give a command: tune, fix, quantize, blame"),
        (["tun"], "there is no command 'tun' (did you mean 'tune'?)"),
        (["plna", MODEL], "there is no command 'plna' (did you mean 'plan'?)"),
        (["neuronx-cc", "compile", MODEL], "write neuronsim in the place of neuronx-cc"),
        (["compile", "neuronx-cc", "compile", MODEL], "write neuronsim in the place of neuronx-cc"),
        (
            ["explain", MODEL, "--auto-casts", "all"],
            "has no '--auto-casts' (did you mean '--auto-cast'",
        ),
        (["explain", MODEL, "--auto-cast"], "--auto-cast needs a value: it accepts none, matmult"),
        (["explain", "--auto-cast", MODEL], "--auto-cast needs a value: it accepts none, matmult"),
        (["lint", MODEL, "--target", "inf1", "--verbose", "debug"], "did you mean 'DEBUG'?"),
        (["plan", MODEL, "--policy", "all/fp16", "--plan", "p.json"], "a plan and a policy both"),
        (["tune"], "model, --data"),
        (["tune", MODEL], "--data"),
        (["tune", MODEL, "--data", DATA, "--jsn", "-"], "did you mean '--json'?"),
        (["tune", MODEL, "--data", DATA, "--tol", "1"], "'--tol'"),
        (["tune", MODEL, "--data", DATA, "more"], "'more'"),
        (
            ["blame", MODEL, "--data", DATA, "--output", "b.json"],
            "blame has no --output: it writes the files of --json, --report",
        ),
        (["explain", MODEL, "--output=e.txt"], "explain has no --output: it prints what it finds"),
        (["tune", MODEL, "--data", DATA, "--tolerance", "x"], "invalid float value"),
        (["tune", MODEL, "--data", DATA, "--tolerance", "-1"], "at least 0"),
        (["tune", MODEL, "--data", DATA, "--tolerance", "nan"], "at least 0"),
        (["tune", MODEL, "--data", DATA, "--metric", "sqnr", "--tolerance", "5%"], "in dB, not 5%"),
        (["tune", MODEL, "--data", DATA, "--metric", "f1"], "top1, top5"),
        (["tune", MODEL, "--data", DATA, "--resume"], "say which, journal="),
        (["tune", MODEL, "--data", DATA, "--memory", "0"], "an integer of at least 1"),
        (["tune", MODEL, "--data", DATA, "--lower-is-better"], "it is known which is better"),
        (["fix", MODEL, "--data", DATA, "--output", "a.onnx"], "is no model of ONNX"),
        (["quantize", MODEL, "--data", DATA, "--output", "a.onnx"], "is no model of ONNX"),
        (["tune", MODEL, "--data", DATA, "--sdk", "2.2"], "unknown release '2.2'"),
        (["tune", MODEL, "--data", DATA, "--target", "trn7"], "unknown target 'trn7'"),
        (["tune", MODEL, "--data", DATA, "--threads", "0"], "integer from 1 to 1024"),
        (["tune", MODEL, "--data", DATA, "--threads", "two"], "invalid int value"),
        (["explain", MODEL, "--auto-cast", "al"], "did you mean 'all'?"),
        (["explain", MODEL, "--auto-cast-type", "bf61"], "bf16, fp16, tf32, fp8_e4m3"),
        (["explain", MODEL, "--flags", "--auto-kast all"], "did you mean '--auto-cast'?"),
        (["explain", MODEL, "--flags", "--auto-cast"], "needs a value: it accepts none, matmult"),
        (["explain", MODEL, "--flags"], "argument --flags: expected one argument"),
        (["explain", MODEL, "--flags=--auto-cast"], "needs a value"),
        (["explain", MODEL, "--flags", '"'], "cannot be split"),
        (["explain", MODEL, "--flags", "--fast-math all"], "Inf1"),
        (
            [*("explain", MODEL, "--flags"), "--auto-cast all --fast-math none"],
            "one line has flags of both compilers",
        ),
        (["explain", "--auto-cast", "al"], "did you mean 'all'?"),
        (["explain", "--sdk", "2.2"], "unknown release '2.2'"),
        (["explain", MODEL, "--plan", "missing.json"], "cannot read the plan"),
        (["explain", MODEL, "--plan", MODEL], "is not a plan: it is not UTF-8 text"),
        (["bench", "--op", "ad"], "did you mean 'add'?"),
        (["bench", "--op", "add", "--shape", "4y4"], "lengths such as"),
        (["bench", "--op", "add", "--shape", "0"], "positive lengths"),
        (["bench", "--op", "add", "--shape", "99999999999999999999"], "99999999999999999999"),
        (["bench", "--op", "sum", "--shape", "4x4", "--axis", "2"], "axis 2"),
        (["bench", "--op", "add", "--shape", "4", "--dtype", "float99"], "element type"),
        (["bench", "--op", "add", "--shape", "4", "--isa", "z80"], "'z80'"),
        (["bench", "--op", "add", "--shape", "4", "--peer", "matlab"], "numpy, ml_dtypes, torch"),
        (["bench", "--op", "add", "--shape", "4", "--threads", "0"], "integer from 1 to 1024"),
        (["list-operators", "--all"], "'--all'"),
        (["list-operators", "--framework", "TENSORFLOW"], "know XLA only"),
        (["list-operators", "--sdk", "2.2"], "unknown release '2.2'"),
        (["lint", "missing.hlo.pb"], "cannot read the model"),
        (["lint", MODEL, "--sdk", "9.9"], "unknown release '9.9'"),
        (["lint", MODEL, "--target", "inf3"], "unknown target"),
    ],
    ids=lambda v: " ".join(v).replace(MODEL, "M").replace(DATA, "D") if isinstance(v, list) else "",
)
def test_wrong_options_are_refused(arguments: list[str], message: str, commands: Commands) -> None:
    assert message in commands.refused(*arguments)


@pytest.mark.parametrize(
    "option",
    [
        ("--auto-cast", "all"),
        ("--auto-cast-type", "bf16"),
        ("--flags", "-O1"),
        ("--plan", "p.json"),
        ("--sdk", "9.9"),
        ("--target", "trn9"),
        ("--threads", "0"),
    ],
    ids=" ".join,
)
def test_options_that_cannot_apply_to_a_compiled_program_are_refused(
    option: tuple[str, str], program: str, inputs: str, tmp_path: Path, commands: Commands
) -> None:
    output = str(tmp_path / "y.npz")
    commands.refused("run", program, "--inputs", inputs, "--output", output, *option)


def test_run_prints_the_policy_or_plan_that_decided(
    inputs: str, tmp_path: Path, commands: Commands
) -> None:
    plan, program = str(tmp_path / "fp16.json"), str(tmp_path / "p.nsim")
    arguments = ["--inputs", inputs, "--output", str(tmp_path / "y.npz")]
    fp16 = ["--auto-cast", "all", "--auto-cast-type", "fp16"]
    commands.ok("plan", MODEL, *fp16, "--output", plan)
    compiled = commands.ok("compile", MODEL, "--plan", plan, "--output", program).splitlines()[-1]
    assert compiled.startswith(f"plan all/fp16 from {plan} (SDK 2.26")
    for words, decided_by in (
        ([MODEL, "--policy", "tvm/float16"], "policy tvm/float16"),
        ([MODEL, "--plan", plan], f"plan all/fp16 from {plan}"),
        ([program], f"plan all/fp16 from {plan}"),
    ):
        out = commands.ok("run", *words, *arguments)
        assert out.startswith(f"{decided_by} (SDK 2.26")
        assert "--auto-cast" not in out


@pytest.mark.parametrize("command", ["compile", "run", "plan", "explain", "lint"])
def test_every_command_that_casts_takes_every_option(
    command: str, inputs: str, tmp_path: Path, commands: Commands
) -> None:
    written = {"compile": "p.nsim", "plan": "p.json"}
    output = str(tmp_path / written.get(command, "y.npz"))
    words = [command, MODEL, "--framework", "XLA", "--model-type=transformer", "--auto-cast=all", "-O1"]
    words += ["--inputs", inputs] if command == "run" else []
    words += ["--output", output] if command in ("compile", "run", "plan") else []
    commands.ok(*words)
    commands.ok(*words, "--flags", "-O1")
    commands.ok(*words, "--flags", "--target inf2")
    wrong = ["--auto-cast", "al", "--auto-cast-type", "fp6", "--optlevel", "7", "--lnc", "2"]
    assert commands.refused(*words, *wrong).count("cannot be") == 4
    contradicting = ["--target", "trn1", "--flags", "--target inf1"]
    assert "--target inf1 in the flags contradicts the target trn1" in commands.refused(
        *words[:2], *words[6:], *contradicting
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--batch", "5", "--batch", "7"), "--batch says 5 and 7: give one of them"),
        (
            ("--policy", "a.toml", "--policy=b.toml"),
            "--policy says a.toml and b.toml: give one of them",
        ),
        (("--sdk", "2.25", "--sdk", "2.26"), "--sdk says 2.25 and 2.26: give one of them"),
        (("--batch", "5", "--batch", "5"), "cannot read 'missing.onnx'"),
    ],
)
def test_an_option_that_is_given_twice_says_the_same(
    words: tuple[str, ...], said: str, commands: Commands
) -> None:
    assert said in commands.refused("compile", "missing.onnx", *words)


def test_a_model_may_follow_an_option_of_several_values(tmp_path: Path, commands: Commands) -> None:
    for values in (["none"], ["fp32-cast-matmult", "no-fast-relayout"]):
        path = tmp_path / "plan.json"
        words = ["plan", "--target", "inf1", "--output", str(path)]
        commands.ok(*words, "--fast-math", *values, MODEL)
        flags = " ".join(["--fast-math", *values])
        assert Plan.from_json(path.read_text()) == api.plan(MODEL, target="inf1", flags=flags)
    assert "--fast-math needs a value" in commands.refused(*words, "--fast-math", MODEL)
    wrong = commands.refused(*words, "--fast-math", "fp32-cast-matmul", "no-fast-relayut", MODEL)
    assert wrong.count("did you mean") == 2


def test_commands_say_what_they_wrote(tmp_path: Path, commands: Commands) -> None:
    model, data, output = (str(tmp_path / n) for n in ("m.hlo.pb", "x.npz", "out.json"))
    proto.write(module_of(parameter("x", (2, 3)), inst("y", "add", (2, 3), "x", "x")), model)
    np.savez(data, x=np.ones((4, 3), np.float32))
    for command, said in (
        (["calibrate", model, "--data", data], f"instructions of {model}: wrote {output}\n"),
        (["plan", model, "--auto-cast", "all"], f"instructions: wrote {output}\n"),
    ):
        assert commands.ok(*command, "--output", output).endswith(said)


def test_lint_on_inf1_names_neuron_cc(commands: Commands) -> None:
    assert "under SDK 2.26, neuron-cc on inf1" in commands.ok("lint", MODEL, "--target", "inf1")


def test_a_plan_and_a_setting_contradict_each_other(tmp_path: Path, commands: Commands) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(api.plan(MODEL, auto_cast="none").to_json())
    commands.refused("explain", MODEL, "--plan", plan, "--auto-cast", "all")


@pytest.mark.parametrize(
    "name", [".", "missing/y", "f" * 300, "y.neff"], ids=["folder", "no folder", "too long", "NEFF"]
)
def test_outputs_that_cannot_be_written_are_refused_before_any_work(
    name: str, inputs: str, tmp_path: Path, commands: Commands
) -> None:
    path = str(tmp_path / name)
    assert "cannot write" in commands.refused("tune", MODEL, "--data", inputs, "--json", path)
    assert "cannot write" in commands.refused("run", MODEL, "--inputs", inputs, "--output", path)
    suffix = "" if name == "y.neff" else ".nsim" if name != "." else "/.nsim/.nsim"
    assert "cannot write" in commands.refused("compile", MODEL, "--output", path + suffix)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def folder(inputs: str, tmp_path: Path) -> dict[str, str]:
    """A model, data, and what is made of them, in files of their own."""
    found = {"m": tmp_path / "m.hlo.pb", "x": tmp_path / "x.npz", "policy": tmp_path / "policy.toml"}
    found["m"].write_bytes(Path(MODEL).read_bytes())
    found["x"].write_bytes(Path(inputs).read_bytes())
    found["policy"].write_text('name = "mine"\ndefault = "never"\n')
    found["cost"] = tmp_path / "cost.json"
    found["cost"].write_text("{}")
    (tmp_path / "link.npz").symlink_to("x.npz")
    return {name: str(path) for name, path in found.items()} | {"link": str(tmp_path / "link.npz")}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run {m} --inputs {x} --output {x}", "--output {x!r} is read too, as --inputs"),
        ("run {m} --inputs {x} --output {link}", "--output {link!r} is read too, as --inputs"),
        (
            "run {m} --inputs {link} --observe counts --json {x}",
            "--json {x!r} is read too, as --inputs",
        ),
        ("run {m} --inputs {x} --observe counts --json {m}", "is read too, as the model"),
        ("compile {m} --output {new}.nsim --logfile {m}", "--logfile {m!r} is read too, as the model"),
        ("quantize {m} --data {x} --output {m}", "--output {m!r} is read too, as the model"),
        ("fix {m} --data {x} --base {policy} --output {policy}", "is read too, as --base"),
        ("fix {m} --data {x} --journal {x}", "--journal {x!r} is read too, as --data"),
        ("tune {m} --data {x} --json {x}", "--json {x!r} is read too, as --data"),
        ("tune {m} --data {x} --rung {policy} --output {policy}", "is read too, as --rung"),
        ("blame {m} --data {x} --json {m}", "--json {m!r} is read too, as the model"),
        ("calibrate {m} --data {x} --output {x}", "--output {x!r} is read too, as --data"),
        ("plan {m} --plan {cost} --output {cost}", "is read too, as --plan"),
        ("plan {m} --policy {policy} --output {policy}", "its suffix says what is written: .json"),
        ("plan {m} --output -", "'-': its suffix says what is written: .json"),
        ("cost {m} --json {m}", "--json {m!r} is read too, as the model"),
        ("lint {m} --data {x} --fix {x}", "--fix {x!r} is read too, as --data"),
        ("report {cost} --output {cost}", "--output {cost!r} is read too, as the documents"),
        (
            "blame {m} --data {x} --json {new}.html --report {new}.html",
            "--json and --report both write",
        ),
        ("compile {m} --output {new}.nsim --logfile {new}.nsim", "--output and --logfile both write"),
        ("report {cost} --output {new}.pdf", "'{new}.pdf': its suffix says what is written: .html, "),
        (
            "run {m} --inputs {x} --output {new}.txt",
            "'{new}.txt': its suffix says what is written: .npz",
        ),
        ("plan {m} --output {new}.hlo", "'{new}.hlo': its suffix says what is written: .json"),
        ("blame {m} --data {x} --report {new}.md", "its suffix says what is written: .html"),
        ("blame {m} --data {x} --report -", "'-': its suffix says what is written: .html"),
        ("run {m} --inputs {x} --output -", "'-': its suffix says what is written: .npz"),
        ("quantize {m} --data {x} --output -", "'-': its suffix says what is written"),
        ("fix {m} --data {x} --output -", "'-': its suffix says what is written"),
    ],
)
def test_no_file_is_written_over_what_is_read_or_written(
    line: str, said: str, folder: dict[str, str], tmp_path: Path, commands: Commands
) -> None:
    files = folder | {"new": str(tmp_path / "new")}
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert said.format(**files) in commands.refused(*(w.format(**files) for w in line.split()))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_fix_writes_unasked_replaces_no_base_of_that_name(
    folder: dict[str, str], tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = commands.refused("fix", folder["m"], "--data", folder["x"], "--base", "policy.toml")
    assert "--output 'policy.toml' is read too, as --base" in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_disk_that_is_full_is_an_error(inputs: str, commands: Commands) -> None:
    status, _, err = commands.run("tune", MODEL, "--data", inputs, "--json", "/dev/full")
    assert status == 2
    assert err.startswith("neuronsim: ")
    assert "/dev/full" in err


def test_an_existing_output_survives_a_failed_command(tmp_path: Path, commands: Commands) -> None:
    output = tmp_path / "y.npz"
    output.write_bytes(b"precious")
    commands.refused("run", MODEL, "--inputs", "missing.npz", "--output", output)
    assert output.read_bytes() == b"precious"


def test_a_program_must_be_named_nsim(tmp_path: Path, commands: Commands) -> None:
    assert "must end in .nsim" in commands.refused("compile", MODEL, "--output", tmp_path / "p.bin")


# ---- as a process --------------------------------------------------------------------------------


def run_process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "neuronsim", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_process_ends_with_the_status_and_no_traceback() -> None:
    found = run_process("tune", "missing.pb", "--data", DATA)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr == "neuronsim: cannot read the model 'missing.pb': No such file or directory\n"


def test_a_wrong_environment_is_one_paragraph() -> None:
    found = run_process("list-operators", NEURONSIM_ISA="z80")
    assert found.returncode == 2
    assert "NEURONSIM_ISA" in found.stderr
    assert "Traceback" not in found.stderr


# Every command that prints, and its options, with files of a folder.
PRINTING = {
    "tune": ["tune", MODEL, "--data", DATA],
    "tune --json -": ["tune", MODEL, "--data", DATA, "--json", "-"],
    "run": ["run", MODEL, "--inputs", DATA, "--output", "{}/y.npz"],
    "run to it": ["run", MODEL, "--inputs", DATA, "--output", "/dev/stdout"],
    "compile": ["compile", MODEL, "--output", "{}/p.nsim", "--verbose", "info"],
    "calibrate": ["calibrate", MODEL, "--data", DATA, "--output", "{}/c.json"],
    "plan": ["plan", MODEL, "--auto-cast", "all"],
    "plan --output": ["plan", MODEL, "--output", "{}/p.json"],
    "explain": ["explain", MODEL, "--auto-cast", "all"],
    "explain --json": ["explain", MODEL, "--json"],
    "explain profile": ["explain"],
    "diff": ["diff", "{}/none.json", "{}/none.json"],
    "bench": ["bench", "--op", "add", "--shape", "8x8"],
    "bench --json": ["bench", "--op", "add", "--shape", "8x8", "--json"],
    "lint": ["lint", MODEL],
    "lint --json": ["lint", MODEL, "--json"],
    "list-operators": ["list-operators"],
    "--help": ["--help"],
    "explain --help": ["explain", "--help"],
    "--version": ["--version"],
}
OFTEN = ("run to it", "lint", "--help")  # a file, a table and a text; the others: `exhaustive`


def shell(command: str, arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """A line of bash in which `$@` is a command of neuronsim."""
    words = [word.replace("{}", str(folder)) for word in arguments]
    return subprocess.run(
        ["bash", "-c", command, "-", sys.executable, "-m", "neuronsim", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def plans(tmp_path: Path) -> Path:
    for auto_cast in ("none", "all"):
        plan = api.plan(MODEL, auto_cast=auto_cast)
        (tmp_path / f"{auto_cast}.json").write_text(plan.to_json())
    return tmp_path


@pytest.mark.parametrize("name", some(PRINTING, OFTEN))
def test_a_full_device_is_one_line_and_a_closed_pipe_is_no_error(name: str, plans: Path) -> None:
    for unbuffered in ("", "1") if name in ("--version", "list-operators") else ("",):
        full = shell(f'PYTHONUNBUFFERED={unbuffered} "$@" > /dev/full', PRINTING[name], plans)
        assert (full.returncode, full.stderr.count("\n")) == (2, 1), full.stderr
        assert full.stderr.startswith("neuronsim: cannot write ")
        assert full.stderr.endswith(": No space left on device\n")
        line = f'PYTHONUNBUFFERED={unbuffered} "$@" | head -n 1 > /dev/null; exit ${{PIPESTATUS[0]}}'
        piped = shell(line, PRINTING[name], plans)
        assert (piped.returncode, piped.stderr) == (0, "")


def test_a_status_of_a_result_is_that_with_a_closed_pipe_too(broken: str, tmp_path: Path) -> None:
    line = '"$@" | true; exit ${PIPESTATUS[0]}'
    assert shell(line, ["lint", broken, "--strict"], tmp_path).returncode == 1


def test_files_are_written_though_nobody_reads_what_is_printed(inputs: str, tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    shell('"$@" | true', ["tune", MODEL, "--data", inputs, "--json", str(file)], tmp_path)
    assert json.loads(file.read_text())["schema"] == "neuronsim.tune/2"


def test_a_closed_output_is_told(tmp_path: Path) -> None:
    closed = shell('"$@" >&-', PRINTING["plan --output"], tmp_path)
    assert (closed.returncode, closed.stderr.count("\n")) == (2, 1)
    assert "standard output is closed" in closed.stderr
    assert not list(tmp_path.iterdir())
    assert shell('"$@" 2>/dev/full', ["plan", "missing.pb"], tmp_path).returncode == 2


@pytest.mark.parametrize("line", some(['"$@" <&- 2>&-', '"$@" <&-', '"$@" 2>&-'], 1))
def test_other_closed_streams_are_harmless(line: str, tmp_path: Path) -> None:
    found = shell(line, PRINTING["plan --output"], tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.endswith(f"wrote {tmp_path}/p.json\n")
    json.loads((tmp_path / "p.json").read_text())
    refused = shell(line, ["plan", "missing.pb"], tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")


def test_what_an_encoding_lacks_is_escaped(tmp_path: Path) -> None:
    model = tmp_path / "m.hlo.pb"
    proto.write(module_of(parameter("x", (2,)), inst("y\u00e9", "exponential", (2,), "x")), model)
    found = run_process("explain", str(model), "--auto-cast", "all", PYTHONIOENCODING="ascii")
    assert (found.returncode, found.stderr) == (0, "")
    assert "y\\xe9" in found.stdout


CONSOLE_SCRIPT = "import sys\nfrom neuronsim.__main__ import main\nsys.exit(main())\n"


def interrupted_in_import(of: str, folder: Path, *words: str) -> tuple[int, str, str]:
    """How Python with these words ends when Ctrl-C comes while it imports a package."""
    interrupting = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n"
    stub = folder / "stub"
    stub.mkdir(exist_ok=True)
    stub.joinpath(f"{of}.py").write_text(interrupting)
    path = os.pathsep.join([str(stub), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUSERBASE": str(folder)}
    ended = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, env=environment
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize("of", ["numpy", "rich"])  # with the package, and with its commands
@pytest.mark.parametrize(
    "words",
    ["-m neuronsim", "-u -m neuronsim", "-X dev -um neuronsim", "-mneuronsim", "{}/bin/neuronsim"],
)
def test_ctrl_c_while_the_command_is_imported_is_one_line(words: str, of: str, tmp_path: Path) -> None:
    script = tmp_path / "bin" / "neuronsim"  # where `pip install --user` has it
    script.parent.mkdir()
    script.write_text(CONSOLE_SCRIPT)
    line = words.format(tmp_path).split()
    ended = interrupted_in_import(of, tmp_path, *line, "lint", MODEL)
    assert ended == (130, "", "neuronsim: interrupted; nothing was written\n")


@pytest.mark.parametrize("words", ["{}/neuronsim", "{}/mine.py -m neuronsim", "-m mine -m neuronsim"])
def test_ctrl_c_while_a_program_imports_the_library_is_its_own(words: str, tmp_path: Path) -> None:
    for name in ("neuronsim", "mine.py", "stub/mine.py"):
        tmp_path.joinpath(name).parent.mkdir(exist_ok=True)
        tmp_path.joinpath(name).write_text("import neuronsim\n")
    _, _, said = interrupted_in_import("numpy", tmp_path, *words.format(tmp_path).split())
    assert "KeyboardInterrupt" in said


def test_the_unit_of_memory_on_the_command_line_is_told(commands: Commands, inputs: Path) -> None:
    said = commands.refused("tune", MODEL, "--data", inputs, "--memory", 0)
    assert "memory is bytes (--memory MiB of them)" in said
