"""What commands print at any width: no name is lost, nothing is cut off."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import neuronsim
from neuronsim import api, reports
from neuronsim.cli import output
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.parse import from_text
from neuronsim.tables import print_table, print_text
from neuronsim.tuning.report import print_ladder
from tests.support.commands import Commands
from tests.support.places import DATA, MODEL

FP16 = ("--auto-cast", "all", "--auto-cast-type", "fp16")
WIDTHS = (60, 80, 120)

pytestmark = [pytest.mark.isa_independent, pytest.mark.usefixtures("restored_settings")]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("inputs") / "x.npz"
    with np.load(DATA) as archive:
        np.savez(path, x=archive["x"][:64])
    return str(path)


@pytest.fixture(params=WIDTHS)
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    return int(request.param)


def whole(out: str, width: int, names: set[str]) -> None:
    """Every name is there in one piece, and only lines of one word are wider than the terminal."""
    assert "…" not in out
    assert {name for name in names if name not in out} == set()
    for line in out.splitlines():
        assert len(line) <= width or len(line.split()) <= 3 or line.startswith(("    ", "export"))


# ---- names at every width ------------------------------------------------------------------------


def test_run_names_every_instruction_that_met_something(
    inputs: str, width: int, commands: Commands, tmp_path: Path
) -> None:
    path = tmp_path / "met.json"
    words = ["run", MODEL, "--inputs", inputs, "--observe", "counts", *FP16, "--json", str(path)]
    out = commands.ok(*words)
    met = json.loads(path.read_text())["instructions"]
    counted = [x for x in met if "counts" in x]
    assert len(counted) >= 3
    whole(out, width, {x["name"] for x in counted} | {x["op_name"] for x in counted})
    whole(out, width, {c.replace("_", " ").split()[0] for x in counted for c in x["counts"]})


def test_explain_names_every_instruction_and_reason(width: int, commands: Commands) -> None:
    out = commands.ok("explain", MODEL)
    made = api.plan(MODEL)
    flat = inline_calls(api.read_model(MODEL))
    named = {i.name: i for c in flat.computations for i in c.instructions}
    names = set(made.decisions)
    whole(out, width, names | {named[n].metadata.op_name for n in names})


def test_lint_names_every_rule(width: int, commands: Commands) -> None:
    found = api.lint(MODEL, auto_cast="all", auto_cast_type="fp16")
    assert found
    whole_names = {f.label for f in found}
    out = commands.ok("lint", MODEL, *FP16)
    assert "…" not in out
    text = " ".join(out.split())
    assert {name for name in whole_names if name not in text} == set()


def test_cost_names_its_dearest_instructions(width: int, commands: Commands) -> None:
    out = commands.ok("cost", MODEL, *FP16)
    found = reports.cost(MODEL, auto_cast="all", auto_cast_type="fp16").estimate.instructions
    dearest = sorted(found, key=lambda i: -i.seconds)[:20]
    whole(out, width, {i.name for i in dearest} | {i.op_name for i in dearest})


def test_the_profile_keeps_its_names(width: int, commands: Commands) -> None:
    fields = {f["field"] for f in neuronsim.Profile().describe()}
    whole(commands.ok("explain"), width, fields)


def test_diff_names_the_policies(width: int, commands: Commands, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in "ab"]
    for path, cast_type in zip(paths, ("bf16", "fp16"), strict=True):
        made = api.plan(MODEL, auto_cast="all", auto_cast_type=cast_type)
        Path(path).write_text(made.to_json())
    status, out, _ = commands.run("diff", *paths, "--model", MODEL)
    assert status == 1
    whole(out, width, {"all/bf16", "all/fp16", "dot"})


LONG_SCOPE = "encoder/layer_with_a_long_name/attention_of_the_first_kind/sum_of_all_squares/reduce"
LONG_NAME = "encoder_layer_with_a_long_name_attention_of_the_first_kind_sum_of_all_squares"
PLACE = f'metadata={{op_name="{LONG_SCOPE}"}}'
BREAKING = f"""HloModule net
add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }}
ENTRY main {{
  x = f32[4,64] parameter(0)
  squares = f32[4,64] multiply(x, x)
  zero = f32[] constant(0)
  {LONG_NAME} = f32[4] reduce(squares, zero), dimensions={{1}}, to_apply=add, {PLACE}
  root = f32[4] sqrt({LONG_NAME})
  ROOT scaled = f32[4] divide({LONG_NAME}, root)
}}"""


@pytest.fixture(scope="module")
def breaking(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A model whose sum overflows in float16, in a folder of a long name, and data for it."""
    folder = tmp_path_factory.mktemp("a_folder_with_a_name_that_no_narrow_terminal_has_room_for")
    (folder / "net.hlo").write_text(BREAKING)
    x = np.random.default_rng(0).uniform(60, 90, (32, 64)).astype(np.float32)
    np.savez(folder / "x.npz", x=x)
    return str(folder / "net.hlo"), str(folder / "x.npz")


def test_tune_names_its_settings_files_and_next_commands(
    width: int, breaking: tuple[str, str], commands: Commands
) -> None:
    model, data = breaking
    out = commands.ok("tune", model, "--data", data, "--strategy", "ladder")
    rungs = {r.name for r in api.tune(model, data, strategy="ladder").rungs}
    whole(out, width, rungs | {model, data})
    lines = out.splitlines()
    asked = f"{model} --data {data}"
    assert f"    neuronsim blame {asked} --auto-cast all --auto-cast-type fp16" in lines
    assert f"    neuronsim fix {asked} --base all/fp16" in lines


def pasted(out: str, command: str) -> list[str]:
    """The words of the command that is printed to be pasted."""
    lines = [line for line in out.splitlines() if line.startswith(f"    neuronsim {command} ")]
    return shlex.split(lines[-1])[1:]


def overflowing(x: Any, scale: Any) -> Any:
    return neuronsim.mean(x * x * scale, axis=-1) @ neuronsim.asarray(np.eye(4, 3, dtype=np.float32))


def test_next_commands_ask_what_this_one_asked(tmp_path: Path, commands: Commands) -> None:
    data = tmp_path / "x.npz"
    np.savez(data, x=np.linspace(150, 250, 512, dtype=np.float32).reshape(8, 4, 16))
    model = "tests.test_cli_output:overflowing"
    same = ["--input-shape", "x=2,4,16", "--input-value", "scale=3.0", "--sdk", "2.25"]
    same += ["--target", "trn1n"]
    asked = ["--metric", "nmse", "--metric", "cosine", "--tolerance", "1e-05"]
    asked += ["--criterion", "relative", "--quantize", "minmax", "--timeout", "600.0"]
    out = commands.ok("tune", model, "--data", data, "--strategy", "ladder", *same, *asked)
    blame, fix = pasted(out, "blame"), pasted(out, "fix")
    assert blame == ["blame", model, "--data", str(data), *same, "--auto-cast", "all", *blame[-2:]]
    assert fix == ["fix", model, "--data", str(data), *same, *asked, "--base", fix[-1]]
    commands.ok(*blame)


@pytest.mark.parametrize(
    ("more", "decides"),
    [
        (["--policy", "tvm/float16"], ["--policy", "tvm/float16"]),
        (["--quantize", "mse,uint8"], ["--quantize", "mse,uint8", "--auto-cast", "none"]),
    ],
)
def test_next_commands_say_what_no_flag_means(
    more: list[str], decides: list[str], breaking: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = api.tune(*breaking, strategy="ladder", rungs=more[1::2] if "--policy" in more else ())
    own = "tvm/float16" if "--policy" in more else "int8/mse,uint8"
    failing = replace(result.rungs[-1], name=own, flags="", loss=1.0, estimated_seconds=0.0)
    file = io.StringIO()
    console = Console(width=200, file=file)
    print_ladder(replace(result, rungs=(*result.rungs, failing)), console, "m", ["--batch", "8"])
    assert pasted(file.getvalue(), "blame")[-len(decides) - 2 :] == ["--batch", "8", *decides]


def test_fix_names_what_it_keeps(
    width: int, breaking: tuple[str, str], commands: Commands, tmp_path: Path
) -> None:
    model, data = breaking
    output = str(tmp_path / "policy.toml")
    words = ("fix", model, "--data", data, "--base", "all/fp16", "--output", output)
    out = commands.ok(*words, "--tolerance", "0.01")
    whole(out, width, {LONG_NAME, LONG_SCOPE, model, data, output, "all/fp16"})
    pasted = '    with torch.autocast("xla", enabled=False): y = module(x.float())'
    assert pasted in out.splitlines()  # what is to paste is not wrapped


def test_blame_names_the_cause_and_its_place(
    width: int, breaking: tuple[str, str], commands: Commands
) -> None:
    model, data = breaking
    out = commands.ok("blame", model, "--data", data, *FP16)
    whole(out, width, {LONG_NAME, LONG_SCOPE, data, "overflow", "65504"})


def test_what_is_written_is_named(
    width: int, breaking: tuple[str, str], commands: Commands, tmp_path: Path
) -> None:
    """calibrate, plan, compile, cost and report say the file's name in one piece."""
    model, data = breaking
    folder = tmp_path / "one_more_folder_with_a_name_that_is_longer_than_a_narrow_terminal"
    folder.mkdir()
    blame = str(folder / "blame.json")
    for words, name in (
        (("calibrate", model, "--data", data, "--output"), "values.json"),
        (("plan", model, *FP16, "--output"), "plan.json"),
        (("compile", model, *FP16, "--output"), "net.nsim"),
        (("cost", model, "--json"), "cost.json"),
        (("blame", model, "--data", data, *FP16, "--json"), "blame.json"),
        (("report", blame, "--output"), "nodes.json"),
    ):
        path = str(folder / name)
        out = commands.ok(*words, path)
        assert Path(path).exists()
        if words[0] != "cost":
            whole(out, width, {path})


def test_bench_and_list_operators_keep_names_whole(width: int, commands: Commands) -> None:
    out = commands.ok("bench", "--op", "add", "--shape", "64x64")
    whole(out, width, {"add float32 64x64", "ns/element", "GFLOP/s"})
    whole(commands.ok("list-operators"), width, {"BatchNormInference", "BitcastConvertType"})


def test_a_pipe_has_each_sentence_on_one_line(breaking: tuple[str, str], commands: Commands) -> None:
    model, data = breaking
    out = commands.ok("blame", model, "--data", data, *FP16)
    assert "\x1b" not in out
    first = out.splitlines()[0]
    assert first.startswith(f"{LONG_NAME} is to blame (overflow)")
    assert first.endswith("]") or " in float32 " in first


def test_help_keeps_names_whole(width: int, commands: Commands) -> None:
    for command in ("run", "compile", "lint", "cost", "explain"):
        out = commands.ok(command, "--help")
        for name in ("fp32-cast-matmult-bf16", "no-fast-relayout", "--auto-cast-type"):
            assert name in out
        assert "neural-compressor/bfloat16" in out
        assert "examples:" in out
        assert "release and target:" in out
        assert "what decides the casts:" in out


@pytest.mark.parametrize("command", ["tune", "fix"])
def test_help_of_a_search_has_groups_examples_and_metrics(command: str, commands: Commands) -> None:
    out = commands.ok(command, "--help")
    for title in ("what is measured", "the search", "what is written", "examples"):
        assert f"\n{title}:\n" in out
    assert "\nthe model's inputs and outputs:\n" in out
    assert f"  neuronsim {command} model.onnx --data x.npz" in out
    assert "relative_error" in out[out.index("metrics (--metric):") :]


def test_help_of_bench_lists_kernels_and_peers(commands: Commands) -> None:
    text = " ".join(commands.ok("bench", "--help").split())
    for name in (*neuronsim.bench.kernel_names(), *neuronsim.bench.PEERS):
        assert name in text


# ---- where it goes -------------------------------------------------------------------------------


def test_the_report_of_run_is_on_standard_output_and_needs_no_output_file(
    inputs: str, commands: Commands
) -> None:
    words = ("run", MODEL, "--inputs", inputs, "--observe", "full", *FP16)
    status, out, err = commands.run(*words)
    assert (status, err) == (0, "")
    assert f"{MODEL} under --auto-cast all --auto-cast-type fp16, 64 samples of {inputs}" in " ".join(
        out.split()
    )
    assert "it is the first that is not finite" in out


def test_the_report_is_in_order_of_execution_with_constants_and_movement_folded(
    inputs: str, commands: Commands
) -> None:
    words = ["run", MODEL, "--inputs", inputs, "--observe", "full", *FP16]
    found = json.loads(commands.ok(*words, "--json", "-"))["instructions"]
    program = api.compile(MODEL, auto_cast="all", auto_cast_type="fp16")
    order = [i.name for i in inline_calls(program.module).entry_computation.instructions]
    places = [order.index(x["name"]) for x in found]
    assert places == sorted(places)
    out = commands.ok(*words)
    table = out[out.index("subnormal") :]
    folded = [x for x in found if "folded" in x]
    assert {"constant", "movement"} == {x["folded"] for x in folded}
    for x in folded:
        assert not re.search(rf"^ {re.escape(x['name'])} ", table, re.MULTILINE)
    assert "that only move values have no row; --json has them" in out


def test_the_json_of_a_run_has_statistics_operands_and_origins(inputs: str, commands: Commands) -> None:
    found = json.loads(
        commands.ok("run", MODEL, "--inputs", inputs, "--observe", "full", *FP16, "--json", "-")
    )
    assert found["schema"] == "neuronsim.observation/1"
    assert (found["model"], found["data"]) == (MODEL, inputs)
    of_name = {x["name"]: x for x in found["instructions"]}
    first = next(x for x in found["instructions"] if "origin" in x)
    assert first["opcode"] == "reduce"
    assert first["origin"]["value"] == "inf"
    assert set(first["operands"]) & set(of_name)
    program = api.compile(MODEL, auto_cast="all", auto_cast_type="fp16")
    with np.load(inputs) as archive:
        program(archive["x"], observe="full")
    for name, s in program.diagnostics["statistics"].items():
        assert of_name[name]["statistics"]["elements"] == s["elements"]
        assert of_name[name]["statistics"]["infinite"] == s["infinite"]


def test_what_fills_the_last_batch_up_is_not_counted(
    inputs: str, commands: Commands, tmp_path: Path
) -> None:
    with np.load(inputs) as archive:
        x = archive["x"]
    some = str(tmp_path / "some.npz")
    np.savez(some, x=np.concatenate([x, x[:3]]))
    words = ("--observe", "full", *FP16, "--json", "-")
    whole, more = (
        {
            i["name"]: i
            for i in json.loads(commands.ok("run", MODEL, "--inputs", p, *words))["instructions"]
        }
        for p in (inputs, some)
    )
    overflows = [n for n, i in whole.items() if "overflow" in i.get("counts", {})]
    assert overflows
    for name in overflows:
        assert whole[name]["counts"]["overflow"] == 64
        assert more[name]["counts"]["overflow"] == 67
    order = [n for n, i in whole.items() if i["opcode"] in ("dot", "reduce", "exponential", "divide")]
    assert len(order) > 10
    for name in order:
        one, both = whole[name]["statistics"], more[name]["statistics"]
        assert both["elements"] * 64 == one["elements"] * 67
        kinds = sum(both[kind] for kind in ("nan", "infinite", "zero"))
        assert sum(both["exponents"].values()) + kinds == both["elements"]


@pytest.mark.parametrize(
    ("words", "message"), [([], "run needs --output FILE"), (["--json", "a.json"], "give one")]
)
def test_a_run_for_nothing_is_refused(
    words: list[str], message: str, inputs: str, commands: Commands
) -> None:
    assert message in commands.refused("run", MODEL, "--inputs", inputs, *words)


def test_a_pipe_has_no_colour_and_whole_names(inputs: str, commands: Commands) -> None:
    out = commands.ok("run", MODEL, "--inputs", inputs, "--observe", "counts", *FP16)
    assert "\x1b" not in out
    assert "reduce_sum.64 (jit(classify)/reduce_sum)" in out


def test_a_pipe_has_no_blanks_at_the_ends_of_lines(
    breaking: tuple[str, str], commands: Commands
) -> None:
    model, data = breaking
    setting = ("--auto-cast", "all", "--auto-cast-type", "fp16")
    for arguments in (("tune", model, "--data", data), ("explain", model, *setting), ("cost", model)):
        lines = commands.ok(*arguments).split("\n")
        assert len(lines) > 9
        assert not [line for line in lines if line != line.rstrip()]


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_terminal_has_colours_unless_NO_COLOR_says_otherwise(
    environment: dict[str, str], coloured: bool
) -> None:
    leader, follower = pty.openpty()
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
    script = "from neuronsim import cli; cli.main(['cost', 'missing.pb']); print(flush=True); cli.main"
    with subprocess.Popen(
        [sys.executable, "-c", f"{script}({['lint', MODEL, *FP16]})"],
        stdout=follower,
        stderr=follower,
        env={**kept, "TERM": "xterm-256color", **environment},
    ) as running:
        os.close(follower)
        seen = b""
        with io.FileIO(leader) as reader, contextlib.suppress(OSError):
            while part := reader.read(4096):
                seen += part
        running.wait()
    error, _, table = seen.partition(b"\r\n\r\n")
    for text, said in ((error, b"neuronsim:"), (table, b"fast variance")):
        assert said in text
        assert bool(re.search(rb"\x1b\[(1;)?31m", text)) == coloured


# ---- long jobs -----------------------------------------------------------------------------------


def lines_of(
    steps: tuple[str, ...],
    count: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *limit: float,
) -> list[str]:
    """What a job writes, each part of each step of which takes a second."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with output.progress_bar("reading", *limit) as progress:
        for step in steps:
            for done in range(count + 1):
                progress(step, done, count)
                now[0] += 1.0
    return capsys.readouterr().err.splitlines()


def test_a_long_job_writes_a_line_now_and_then_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lines_of(("all/bf16",), 100, capsys, monkeypatch) == [
        "all/bf16: 30 of 100 after 30 s, about 70 s left",
        "all/bf16: 60 of 100 after 60 s, about 40 s left",
        "all/bf16: 90 of 100 after 90 s, about 10 s left",
    ]
    assert lines_of(("all/bf16",), 1, capsys, monkeypatch) == []


def test_a_job_with_a_limit_of_time_says_it_and_what_is_left_of_each_step(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lines_of(("ladder", "sensitivity"), 40, capsys, monkeypatch, 300.0) == [
        "ladder: 30 of 40 after 30 s of at most 300 s, about 10 s left of this step",
        "sensitivity: 19 of 40 after 60 s of at most 300 s, about 21 s left of this step",
    ]


# ---- tables --------------------------------------------------------------------------------------

LONG = "encoder/layer_with_a_long_name/attention/softmax/reduce_maximum_of_the_row"


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 200])
def test_a_table_loses_no_word_at_any_width(columns: int) -> None:
    file = io.StringIO()
    rows = [(LONG, "reduce", "1234567"), ("short", "exponential", "1")]
    print_table(Console(width=columns, file=file), ("instruction", "opcode", "overflow"), rows)
    text = file.getvalue()
    for word in (LONG, "reduce", "1234567", "short", "exponential", "overflow"):
        assert word in text
    assert "…" not in text
    for line in text.splitlines():
        assert len(line) <= columns or LONG in line


def test_a_cell_wraps_between_words_where_it_must() -> None:
    file = io.StringIO()
    rows = [("a", "one two three four five six seven")]
    print_table(Console(width=24, file=file), ("name", "what"), rows)
    assert file.getvalue().splitlines()[3].split()[0] == "a"
    assert max(map(len, file.getvalue().splitlines())) <= 24


def test_markup_in_names_is_text() -> None:
    file = io.StringIO()
    print_table(Console(width=80, file=file), ("name", "n"), [("[bold]x[/bold]", "1")])
    print_text(Console(width=80, file=file), "[red]y[/red]")
    assert "[bold]x[/bold]" in file.getvalue()
    assert "[red]y[/red]" in file.getvalue()


# ---- notebooks -----------------------------------------------------------------------------------


def test_programs_plans_and_results_have_short_names_and_html() -> None:
    program = api.compile(MODEL, auto_cast="all")
    with np.load(DATA) as archive:
        data = {name: archive[name][:64] for name in archive.files}
    result = api.tune(MODEL, data, strategy="ladder")
    blamed = neuronsim.blame(MODEL, data, auto_cast="all", auto_cast_type="fp16")
    for value, words in (
        (program, ("CompiledProgram", "x float32[64,8,8] ", "--auto-cast all", "298 instructions")),
        (program.plan, ("Plan all/bf16", "205 give bfloat16")),
        (result, ("TuneResult", "all/bf16: accuracy", "64 samples")),
        (blamed, ("BlameResult", MODEL, "reduce_sum.64", "overflow; scale before")),
    ):
        assert len(repr(value)) < 400
        for word in words:
            assert word in repr(value)
            assert word in value._repr_html_()


def test_hostile_names_are_escaped_in_notebooks() -> None:
    text = "HloModule m\nENTRY main {\n  ROOT x = f32[2,2] parameter(0)\n}"
    module = from_text(text)
    object.__setattr__(module, "name", "<script>alert(1)</script>")
    program = api.compile(module)
    assert "<script>" not in program._repr_html_()
    assert "<script>" not in program.plan._repr_html_()


@pytest.mark.parametrize(
    ("short", "name"),
    [("bf16", "bfloat16"), ("fp16", "float16"), ("tf32", "tfloat32"), ("fp8", "float8_e4m3")],
)
def test_short_names_of_types_are_accepted(short: str, name: str) -> None:
    x = neuronsim.array([1.0, 2.5], dtype=short)
    assert x.dtype == name
    assert x.dtype == short
    assert neuronsim.zeros(3, dtype=short).dtype is x.dtype
