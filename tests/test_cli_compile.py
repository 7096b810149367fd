"""The command `neuronsim compile` as users of neuronx-cc and neuron-cc call their compilers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import neuronsim
from neuronsim import api, dtypes
from neuronsim.casting.flags import OPTIONS
from neuronsim.errors import FlagWarning, InvalidFlag
from neuronsim.hlo import proto
from tests.support.commands import Commands
from tests.support.graphs import inst, module_of, parameter

pytestmark = pytest.mark.isa_independent  # nothing here is computed by the kernels


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model in a folder of its own, and a working directory with nothing in it."""
    path = tmp_path / "models" / "small.hlo.pb"
    path.parent.mkdir()
    x, y = parameter("x", (4,)), inst("y", "add", (4,), "x", "x")
    proto.write(module_of(x, y, name="small"), path)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv("NEURON_CC_FLAGS", raising=False)
    return path


Run = Callable[[Path, str], tuple[int, str, str]]


@pytest.fixture
def run(commands: Commands) -> Run:
    """`neuronsim compile` of a model with a line of options."""
    return lambda model, line: commands.run("compile", model, *shlex.split(line))


# ---- options -------------------------------------------------------------------------------------

NEURONX_CC_LINE = (
    "--framework XLA --target trn1 --model-type transformer --auto-cast all --auto-cast-type fp16 "
    "--distribution_strategy=llm-training -lnc 1 -O1 --enable-mixed-precision-accumulation "
    "--enable-fast-context-switch --enable-fast-loading-neuron-binaries --verbose=35 --disable-dge "
    "--internal-tensorizer-opt-level=2 --num-parallel-jobs 4 --pipeline compile SaveTemps "
    "--output out.nsim"
)
NEURON_CC_LINE = (
    "--framework XLA --target inf1 --fast-math fp32-cast-all-fp16 no-fast-relayout "
    "--neuroncore-pipeline-cores 4 --enable-fast-context-switch --verbose ERROR --output out.nsim"
)


def test_a_line_of_neuronx_cc(model: Path, run: Run) -> None:
    status, out, err = run(model, NEURONX_CC_LINE)
    assert (status, err) == (0, "")
    assert out == (
        "--auto-cast all --auto-cast-type fp16 --enable-mixed-precision-accumulation (SDK 2.26, "
        "neuronx-cc 2.21.18209.0): wrote out.nsim; without numeric effect: --framework, --model-type, "
        "--distribution-strategy, --logical-nc-config, --optlevel, --enable-fast-context-switch, "
        "--enable-fast-loading-neuron-binaries, --verbose, --disable-dge, "
        "--internal-tensorizer-opt-level, --num-parallel-jobs, --pipeline\n"
    )
    setup = api.load("out.nsim").setup
    assert (setup.settings.auto_cast, setup.settings.auto_cast_type) == ("all", "fp16")
    assert setup.profile.mixed_precision_accumulation == "on"


def test_a_line_of_neuron_cc(model: Path, run: Run) -> None:
    status, out, err = run(model, NEURON_CC_LINE)
    assert (status, err) == (0, "")
    assert out.startswith(
        "--fast-math fp32-cast-all-fp16 no-fast-relayout (SDK 2.26, neuron-cc): wrote"
    )
    program = api.load("out.nsim")
    assert program.setup.target.name == "inf1"
    assert program.setup.settings.compiler == "neuron-cc"
    x = np.full(4, 1 + 2**-11 + 2**-20, np.float32)  # above the tie: float16 rounds up
    assert np.asarray(program(x)).tolist() == [2 * (1 + 2**-10)] * 4


@pytest.mark.parametrize("compiler", OPTIONS)
def test_every_option_is_in_the_help(compiler: str, commands: Commands) -> None:
    text = commands.ok("compile", "--help")
    for option in OPTIONS[compiler]:  # type: ignore[index]
        assert f"{option.name} " in text or f"{option.name}\n" in text or f"{option.name}," in text


@pytest.mark.parametrize(
    "line",
    ["--flags '-O2 --auto-cast all'", "--flags='--auto_cast=all'", "--auto-cast none --auto-cast all"],
)
def test_flags_and_options_say_the_same(line: str, model: Path, run: Run) -> None:
    assert run(model, line)[0] == 0
    assert api.load("small.nsim").setup.settings.auto_cast == "all"


def test_options_right_of_the_flags_win(model: Path, run: Run) -> None:
    disable = "--disable-mixed-precision-accumulation"
    enable = "--enable-mixed-precision-accumulation"
    for line, expected in ((f"{disable} {enable}", "on"), (f"{enable} {disable}", "off")):
        assert run(model, f"--sdk 2.27 --flags={line}")[0] == 0
        assert api.load("small.nsim").setup.profile.mixed_precision_accumulation == expected
    assert run(model, "--flags='--auto-cast all' --auto-cast none")[0] == 0
    assert api.load("small.nsim").setup.settings.auto_cast == "none"


# ---- output, releases, targets -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("small.hlo.pb", "small.nsim"),
        ("a.b.hlo", "a.b.nsim"),
        ("model.hlo.txt", "model.nsim"),
        ("plain", "plain.nsim"),
    ],
)
def test_the_output_has_the_models_name_by_default(
    name: str, output: str, model: Path, run: Run
) -> None:
    other = model.rename(model.with_name(name))
    assert run(other, "")[0] == 0
    assert [p.name for p in Path().iterdir()] == [output]


def test_a_folder_of_the_compile_cache_gives_its_name(
    model: Path, run: Run, commands: Commands
) -> None:
    folder = model.parent / "MODULE_1"
    folder.mkdir()
    model.rename(folder / "model.hlo_module.pb")
    (folder / "compile_flags.json").write_text('["--auto-cast=all", "--target=inf2"]')
    assert run(folder, "")[0] == 0
    assert api.load("MODULE_1.nsim").setup.settings.auto_cast == "all"
    for command in (["plan"], ["explain", "--json"]):
        told = commands.ok(*command, folder)
        flags = ("--auto-cast=all", "--target=inf2")
        assert told == commands.ok(*command, folder / "model.hlo_module.pb", *flags)
        assert "bfloat16" in told


@pytest.mark.parametrize(
    ("line", "printed"),
    [
        ("--compiler-version 2.3.0.4", "(SDK 2.6, neuronx-cc 2.3.0.4)"),
        ("--sdk 2.3.0.4", "(SDK 2.6, neuronx-cc 2.3.0.4)"),
        ("--sdk v2.27.0", "(SDK 2.27, neuronx-cc 2.22.12471.0)"),
        ("--sdk 2.6 --compiler-version 2.3.0.4", "(SDK 2.6, neuronx-cc 2.3.0.4)"),
        ("--sdk 2.28", "(SDK 2.28)"),
        ("--sdk 2.32 --target inf1", "(SDK 2.32, neuron-cc)"),
    ],
)
def test_the_release_is_printed_with_its_compiler(
    line: str, printed: str, model: Path, run: Run
) -> None:
    status, out, _ = run(model, line)
    assert (status, printed in out) == (0, True)


@pytest.mark.parametrize("target", ["trn1", "trn1n", "inf2"])
def test_instances_with_the_same_core_give_the_same_program(target: str, model: Path, run: Run) -> None:
    for line in (f"--target {target}", f"--flags='--target {target}'"):
        assert run(model, line)[0] == 0
        assert api.load("small.nsim").setup.target.name == "trn1"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--sdk 2.27 --compiler-version 2.3.0.4", "--sdk 2.27 contradicts --compiler-version 2.3.0.4"),
        ("--compiler-version 2.3.0.5", "did you mean '2.3.0.4'"),
        ("--target trn2", "neuronsim emulates NeuronCore-v2"),
        ("--framework TENSORFLOW", "--framework cannot be 'TENSORFLOW': it accepts XLA"),
        ("--target inf1 --framework TENSORFLOW", "neuronsim reads HLO"),
        ("--target inf1 --auto-cast none", "for inf1 use --fast-math"),
        ("--target inf1 -O1", "--optlevel is an option of neuronx-cc"),
        ("--fast-math none", "--fast-math is an option of neuron-cc (Inf1): for trn1 use --auto-cast"),
        ("--auto-cast none --fast-math none", "one line has flags of both compilers"),
        ("--target inf1 --fast-math all none", "cannot be all and none"),
        ("--target inf1 --io-config io.json", "cannot be read from 'io.json'"),
        ("--output x.neff", "neuronsim makes no NEFFs"),
        ("--logfile missing/log.txt", "cannot write 'missing/log.txt'"),
        ("--policy all/bf16 --target inf1 --fast-math none", "the policy all/bf16 decides the casts"),
        ("--policy all/bf16 --plan p.json", "a plan and a policy both decide the casts"),
    ],
)
def test_errors_are_one_line_with_a_status_and_write_nothing(
    line: str, message: str, model: Path, run: Run
) -> None:
    status, out, err = run(model, line)
    assert (status, out) == (2, "")
    assert err.startswith("neuronsim: ")
    assert message in err
    assert list(Path().iterdir()) == []


# ---- messages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verbose", "levels"),
    [
        ("debug", ["debug", "info", "warning"]),
        ("10", ["debug", "info", "warning"]),
        ("info", ["info", "warning"]),
        ("warning", ["warning"]),
        ("", ["warning"]),  # the default
        ("35", []),
        ("error", []),
        ("critical", []),
    ],
)
def test_messages_go_to_their_streams_by_level(
    verbose: str, levels: list[str], model: Path, run: Run
) -> None:
    line = "--enable-experimental-O1 --logfile log.txt"  # deprecated, and without effect
    status, out, err = run(model, f"{line} --verbose {verbose}" if verbose else line)
    assert status == 0
    assert [text.partition(":")[0] for text in err.splitlines()] == [
        m for m in levels if m == "warning"
    ]
    streamed = [text.partition(":")[0] for text in out.splitlines()[:-1]]
    assert list(dict.fromkeys(sorted(streamed))) == [m for m in levels if m != "warning"]
    logged = Path("log.txt").read_text().splitlines()
    assert sorted(logged) == sorted([*out.splitlines()[:-1], *err.splitlines()])
    assert "wrote small.nsim" in out


def test_fp32_cast_prints_the_fast_math_line(model: Path, run: Run) -> None:
    status, _, err = run(model, "--target inf1 --fp32-cast matmult --fast-math none")
    assert status == 0
    assert err == (
        "warning: --fp32-cast is deprecated: --fast-math fp32-cast-matmult-bf16 no-fast-relayout means "
        "the same\n"
    )


@pytest.mark.parametrize(
    "line", ["--enable-saturate-infinity", "--target inf1 --enable-saturate-infinity"]
)
def test_saturate_infinity_says_where_it_has_no_effect_M8(line: str, model: Path, run: Run) -> None:
    status, _, err = run(model, line)
    assert status == 0
    assert err.startswith("warning: --enable-saturate-infinity has no effect: it acts on transposes")


# ---- NEURON_CC_FLAGS -----------------------------------------------------------------------------


def test_the_environments_flags_act_and_are_reported(
    model: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "--auto-cast=all --auto-cast-type fp16 -O1 --cache_dir=/c"
    monkeypatch.setenv("NEURON_CC_FLAGS", line)
    status, out, err = run(model, "")
    assert (status, err) == (0, f"warning: the flags are those of NEURON_CC_FLAGS: {line}\n")
    assert out.startswith("--auto-cast all --auto-cast-type fp16 ")
    # Flags that decide no value leave it.
    for own in ("-O2", "--flags='-O2'", "--framework XLA --target trn1"):
        status, out, again = run(model, own)
        assert (status, again) == (0, err)
        assert out.startswith("--auto-cast all --auto-cast-type fp16 ")
    assert api.load("small.nsim").setup.given["--framework"] == "XLA"
    # The others displace it, which is said.
    for own, options in (
        ("--auto-cast none", "--auto-cast"),
        ("--flags='--auto-cast-type fp16 -O1'", "--auto-cast-type"),
    ):
        status, out, err = run(model, own)
        assert (status, err) == (
            0,
            f"warning: the flags of NEURON_CC_FLAGS do not act: those that are given do ({options})\n",
        )
        assert api.load("small.nsim").setup.settings.auto_cast in ("matmult", "none")


def test_beside_a_policy_or_plan_the_environments_flags_cast_nothing(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = api.plan(model, policy="tvm/float16")
    monkeypatch.setenv("NEURON_CC_FLAGS", "--auto-cast=all -O1 --enable-mixed-precision-accumulation")
    for arguments in ({"policy": "tvm/float16"}, {"plan": expected}):
        with pytest.warns(FlagWarning) as caught:
            program = neuronsim.compile(model, **arguments)  # type: ignore[arg-type]
        decider = program.setup.decided_by
        assert [str(w.message) for w in caught] == [
            f"--auto-cast of NEURON_CC_FLAGS has no effect: the {decider} decides the casts",
            "the other flags are those of NEURON_CC_FLAGS: --optlevel=1 "
            "--enable-mixed-precision-accumulation",
        ]
        assert program.plan == expected
        assert program.setup.profile.mixed_precision_accumulation == "on"
        assert "--auto-cast" not in program.setup.given


def test_wrong_flags_of_the_environment_name_it(
    model: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURON_CC_FLAGS", "--auto-cast al")
    status, _, err = run(model, "")
    assert status == 2
    assert "in NEURON_CC_FLAGS: --auto-cast cannot be 'al'" in err


def test_the_python_functions_warn_of_it(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_CC_FLAGS", "--auto-cast all")
    with pytest.warns(FlagWarning, match="those of NEURON_CC_FLAGS: --auto-cast all"):
        program = neuronsim.compile(model)
    assert program.setup.settings.auto_cast == "all"
    with pytest.warns(FlagWarning, match="NEURON_CC_FLAGS"):
        assert api.plan(model) == program.plan
    with pytest.warns(FlagWarning, match="NEURON_CC_FLAGS do not act"):
        assert neuronsim.compile(model, auto_cast="none").plan.decisions == {}
    for ask in (neuronsim.compile, neuronsim.plan, neuronsim.lint):
        with pytest.warns(FlagWarning) as told:
            ask(model)
        assert {w.filename for w in told} == {__file__}, "the user's line, not one of the package"
    monkeypatch.setenv("NEURON_CC_FLAGS", " ")
    assert neuronsim.compile(model).setup.messages == ()


def test_a_folders_flags_come_before_the_environments(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.rename(model.parent / "model.hlo_module.pb")
    flags = model.parent / "compile_flags.json"
    flags.write_text(json.dumps(["--auto-cast=none"]))
    monkeypatch.setenv("NEURON_CC_FLAGS", "--auto-cast all")
    assert neuronsim.compile(model.parent).setup.settings.auto_cast == "none"


# ---- from Python ---------------------------------------------------------------------------------


def test_auto_cast_is_no_argument_for_inf1(model: Path) -> None:
    for arguments in ({"auto_cast": "none"}, {"auto_cast_type": "fp16"}):
        with pytest.raises(InvalidFlag, match="for inf1 use --fast-math"):
            neuronsim.compile(model, target="inf1", **arguments)  # type: ignore[arg-type]


def test_inf1_refuses_types_that_it_has_not(model: Path) -> None:
    for t in (dtypes.int64, dtypes.float64, dtypes.float8_e4m3):
        with pytest.raises(neuronsim.errors.UnsupportedType, match=t.name):
            neuronsim.compile(module_of(parameter("x", (2,), dtype=t)), target="inf1")


def test_settings_of_a_saved_program_are_the_same(model: Path, tmp_path: Path) -> None:
    program = neuronsim.compile(
        model, sdk="2.32", flags="--auto-cast all --implicit-integer-downcast pow,dot"
    )
    program.save(tmp_path / "p.nsim")
    again = api.load(tmp_path / "p.nsim").setup
    assert again.settings == program.setup.settings
    assert again.settings.flag_line == program.setup.settings.flag_line
    assert again.profile.int_dot == "via_float32"
