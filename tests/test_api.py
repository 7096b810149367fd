"""compile, plan, tune and load: what they return, round trips, and every wrong argument."""

from __future__ import annotations

import contextlib
import copy
import inspect
import json
import operator
import pickle
import random
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neuronsim
from neuronsim import api, dtypes, ops, processor
from neuronsim.casting.flags import CAST_TYPES
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.dtypes import DType
from neuronsim.errors import (
    FlagWarning,
    InvalidArgument,
    InvalidData,
    InvalidFlag,
    InvalidModel,
    NeuronSimError,
    OutOfMemory,
    UnsupportedType,
)
from neuronsim.hlo import parse, proto
from neuronsim.hlo.module import Module, Shape, TupleShape
from neuronsim.profiles import Profile
from neuronsim.program import load as load_program
from neuronsim.targets import RELEASES
from tests.support.graphs import constant, inst, module_of, parameter
from tests.support.hlo_text import source_of
from tests.support.parameters import each_of
from tests.support.places import DIGITS

pytestmark = pytest.mark.isa_independent  # doors, files and settings

MODEL = DIGITS / "model.hlo.pb"
F32, S64 = dtypes.float32, dtypes.int64


def difference(dtype: DType = F32) -> Module:
    a, b = parameter("a.1", (2, 3), dtype=dtype), parameter("b.2", (2, 3), 1, dtype=dtype)
    return module_of(a, b, inst("y", "subtract", (2, 3), "a.1", "b.2", dtype=dtype))


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    with np.load(DIGITS / "test.npz") as archive:
        return archive["x"][:64]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "digits.nsim"
    api.compile(MODEL, auto_cast="all", auto_cast_type="fp16").save(path)
    return path


# ---- models --------------------------------------------------------------------------------------


def test_a_model_is_a_path_a_string_bytes_or_a_module(images: np.ndarray) -> None:
    module = api.read_model(MODEL)
    results = {
        api.compile(m, auto_cast="all")(images).tobytes()
        for m in (MODEL, str(MODEL), MODEL.read_bytes(), module)
    }
    assert len(results) == 1
    assert api.read_model(module) is module


# ---- compiled programs ---------------------------------------------------------------------------


def test_a_program_tells_its_inputs_and_outputs() -> None:
    program = api.compile(MODEL, auto_cast="all")
    assert program.inputs == {"x": ops.ArrayType(F32, (64, 8, 8))}
    assert program.outputs == (ops.ArrayType(F32, (64, 10)),)
    assert program.model.name == "jit_classify"
    assert program.plan.policy == "all/bf16"
    assert 0 < program.weight_bytes < 133823


def test_inputs_bind_by_position_and_by_name() -> None:
    program = api.compile(difference(), auto_cast="none")
    a, b = np.full((2, 3), 5.0, np.float32), np.full((2, 3), 3.0, np.float32)
    for result in (program(a, b), program(a, b=b), program(b=b, a=a)):
        assert result.tolist() == [[2.0] * 3] * 2


@pytest.mark.parametrize(
    "value",
    [
        np.ones((2, 3), np.uint8),
        np.ones((2, 3), bool),
        np.ones((2, 3), np.float64),
        np.ones((2, 3), dtypes.bfloat16.numpy),
        [[1.0, 1.0, 1.0]] * 2,
        neuronsim.ones((2, 3), dtype=neuronsim.float16),
    ],
    ids=["uint8", "bool", "float64", "bfloat16", "lists", "Array"],
)
def test_inputs_of_other_types_become_floats(value: Any) -> None:
    program = api.compile(difference(), auto_cast="none")
    assert program(value, np.zeros((2, 3))).tolist() == [[1.0] * 3] * 2


def test_finite_inputs_that_the_type_does_not_hold_are_told_of() -> None:
    program = api.compile(difference(), auto_cast="none")
    wide = np.array([[1e300, -1e300, np.inf], [np.nan, 1e38, 0]])
    with pytest.warns(RuntimeWarning, match="'a' has 2 finite values of float64 beyond float32"):
        found = program(wide, np.zeros((2, 3)))
    assert found.tolist()[0] == [np.inf, -np.inf, np.inf]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program(wide[:, 2:] * np.ones(3), np.full((2, 3), 1e38))


def test_integers_fit_other_integers_if_their_values_do() -> None:
    program = api.compile(difference(dtypes.int8), auto_cast="none")
    zeros = np.zeros((2, 3), np.int8)
    assert program(np.full((2, 3), -128, np.int64), zeros).tolist() == [[-128] * 3] * 2
    with pytest.raises(InvalidData, match="'a' has values outside int8"):
        program(np.full((2, 3), 128, np.int64), zeros)


ONES = np.ones((2, 3), np.float32)


FLOATS, INTEGERS = difference(), difference(dtypes.int32)
LINE = module_of(parameter("a", (3,)), inst("y", "negate", (3,), "a"))


@each_of(
    ("model", "arrays", "named", "message"),
    [
        (FLOATS, (ONES, ONES, ONES), {}, "takes 2 inputs, 3 were given"),
        (FLOATS, (ONES,), {}, "inputs missing: b"),
        (FLOATS, (), {}, "inputs missing: a, b"),
        (FLOATS, (ONES,), {"a": ONES}, "'a' is given twice"),
        (FLOATS, (ONES, ONES), {"c": ONES}, "no input is named 'c'.*there are a, b"),
        (FLOATS, (ONES,), {"bb": ONES}, r"did you mean 'b'\?"),
        (FLOATS, (ONES, ONES[0]), {}, r"input 'b' is .*\[3\], the model takes .*\[2,3\]"),
        (FLOATS, (ONES, np.float32(1)), {}, "input 'b'"),
        (FLOATS, (ONES, ONES[:1]), {}, r"takes float32\[2,3\]: .* compiled with batch=1$"),
        (FLOATS, (ONES, ONES[:0]), {}, r"'b' is float32\[0,3\], the model takes float32\[2,3\]$"),
        (LINE, (ONES[0], ONES[0]), {}, "takes 1 input, 2 were given"),
        (LINE, (np.float32(1),), {}, r"takes float32\[3\]$"),
        (FLOATS, (ONES, ONES.T), {}, r"\[3,2\]"),
        (FLOATS, (ONES, ONES * 1j), {}, "'b' is complex64, the model takes float32"),
        (INTEGERS, (ONES, ONES), {}, "'a' is float32, the model takes int32"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    model: Module, arrays: tuple[Any, ...], named: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidData, match=message):
        api.compile(model, auto_cast="none")(*arrays, **named)


@each_of("value", [np.array([["a"] * 3] * 2), np.full((2, 3), None), None], ids=["a", "None", "no"])
def test_inputs_that_are_no_numbers_are_refused(value: Any) -> None:
    with pytest.raises((InvalidData, UnsupportedType)):
        api.compile(FLOATS, auto_cast="none")(ONES, value)


def test_tuples_come_back_as_tuples() -> None:
    shape = Shape(F32, (2,))
    inner = inst("t", "tuple", TupleShape((shape,)), "x")
    outer = inst("r", "tuple", TupleShape((shape, inner.shape)), "x", "t")
    program = api.compile(module_of(parameter("x", shape), inner, outer))
    first, (second,) = program([1.0, 2.0])
    assert first.tolist() == second.tolist() == [1.0, 2.0]
    assert program.outputs == (shape.type, shape.type)


def test_64_bit_integers_are_truncated_and_counted_C7() -> None:
    program = api.compile(difference(S64))
    assert program.diagnostics == {"int64_truncated": {}, "outside_range": {}}
    wide = np.array([[2**32 + 5, 1, -(2**40)], [3, 4, 2**31]])
    zeros = np.zeros((2, 3), np.int64)
    # C7: the low 32 bits, sign-extended; 2^32 + 5 reads as 5 and 2^31 as -2^31.
    assert program(wide, zeros).tolist() == [[5, 1, 0], [3, 4, -(2**31)]]
    counted = program.diagnostics["int64_truncated"]
    assert counted["a.1"] == 3
    assert "b.2" not in counted
    program(zeros, zeros)
    assert program.diagnostics == {"int64_truncated": {}, "outside_range": {}}


def test_the_host_and_a_profile_keep_64_bit_integers_C7() -> None:
    wide, zeros = np.full((2, 3), 2**40), np.zeros((2, 3), np.int64)
    for program in (
        api.compile(difference(S64), target="host"),
        api.compile(difference(S64), profile=Profile(int64="keep")),
    ):
        assert program(wide, zeros).tolist() == wide.tolist()
        assert program.diagnostics == {"int64_truncated": {}, "outside_range": {}}


# ---- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sdk", "auto_cast", "mixed"),
    [("2.26", "matmult", "off"), ("2.27", "none", "on"), ("2.22.12471.0", "none", "on")],
)
def test_a_release_sets_the_defaults(sdk: str, auto_cast: str, mixed: str) -> None:
    program = api.compile(MODEL, sdk=sdk)
    settings = program.setup.settings
    assert (settings.auto_cast, settings.auto_cast_type) == (auto_cast, "bf16")
    assert program.setup.profile.mixed_precision_accumulation == mixed  # R3
    assert bool(program.plan.decisions) == (auto_cast == "matmult")


def test_without_a_release_it_is_sdk_2_26() -> None:
    assert api.compile(MODEL).setup.release.sdk == api.DEFAULT_SDK == "2.26"
    assert api.plan(MODEL).policy == "matmult/bf16"
    assert api.plan(MODEL, sdk="2.27").policy == "none"


@each_of("release", RELEASES, ids=str)
def test_every_release_compiles(release: Any) -> None:
    version = release.sdk or release.compiler
    assert api.compile(difference(), sdk=version).setup.release == release


def test_flags_and_arguments_give_the_same_program(images: np.ndarray) -> None:
    programs = [
        api.compile(MODEL, flags="--auto-cast all --auto-cast-type fp16"),
        api.compile(MODEL, flags=["--auto-cast=all", "--auto-cast-type=fp16"]),
        api.compile(MODEL, auto_cast="all", auto_cast_type="fp16"),
        api.compile(MODEL, flags="--auto-cast all", auto_cast_type="fp16"),
        api.compile(MODEL, flags="--auto-cast=all", auto_cast="all", auto_cast_type="fp16"),
        api.compile(MODEL, policy=neuron_policy("all", "fp16")),
        api.compile(MODEL, plan=api.plan(MODEL, auto_cast="all", auto_cast_type="fp16")),
    ]
    assert len({p.plan.to_json() for p in programs}) == 1
    assert len({p(images).tobytes() for p in programs}) == 1


def test_matmul_is_another_spelling_of_matmult() -> None:
    assert api.compile(MODEL, auto_cast="matmul").setup.settings.auto_cast == "matmult"
    api.compile(MODEL, auto_cast="matmul", flags="--auto-cast matmult")


@pytest.mark.parametrize(
    "flags",
    [
        "--auto-cast all",
        "--auto-cast=all",
        "--auto_cast all",
        "'--auto-cast' all",
        ["--auto-cast", "all"],
        ["--auto-cast=all"],
    ],
    ids=str,
)
def test_arguments_that_contradict_the_flags_are_refused(flags: str | list[str]) -> None:
    with pytest.raises(InvalidFlag, match="contradicts"):
        api.compile(MODEL, flags=flags, auto_cast="none")


@each_of(
    ("arguments", "error", "message"),
    [
        ({"auto_cast": "matmlt"}, InvalidFlag, r"did you mean 'matmul"),
        ({"auto_cast_type": "bf17"}, InvalidFlag, r"'bf16'.*accepts bf16, fp16, tf32, fp8_e4m3"),
        ({"flags": "--auto-kast all"}, InvalidFlag, r"did you mean '--auto-cast'"),
        ({"flags": "--auto-cast some"}, InvalidFlag, "none, matmult, matmul, all"),
        ({"flags": "--fast-math none"}, InvalidFlag, "Inf1"),
        ({"sdk": "9.9"}, InvalidArgument, "unknown release '9.9'"),
        ({"sdk": ""}, InvalidArgument, "unknown release"),
        ({"target": ""}, InvalidArgument, "unknown target"),
        ({"target": "trn9"}, InvalidArgument, r"'trn1'.*trn1, inf1, host"),
        ({"threads": 0}, InvalidArgument, "threads"),
        ({"threads": "2"}, InvalidArgument, "threads"),
    ],
    ids=str,
)
def test_wrong_settings_are_refused(
    arguments: dict[str, Any], error: type[NeuronSimError], message: str
) -> None:
    with pytest.raises(error, match=message):
        api.compile(MODEL, **arguments)


@each_of("function", [api.compile, api.plan, api.lint])
@each_of(
    ("arguments", "message"),
    [
        ({"plan": None, "policy": "tvm/float16"}, "a plan and a policy both decide the casts"),
        ({"plan": None, "flags": "--auto-cast all"}, "the plan all/fp16 decides .* --auto-cast$"),
        ({"plan": None, "auto_cast_type": "fp16"}, "the plan all/fp16 decides .* --auto-cast-type$"),
        ({"policy": "tvm/float16", "auto_cast": "all"}, "the policy tvm/float16 decides the casts"),
        (
            {"policy": "all/bf16", "target": "inf1", "flags": "--fast-math none"},
            "the policy all/bf16 decides the casts: it contradicts --fast-math",
        ),
    ],
    ids=str,
)
def test_what_decides_the_casts_is_one_thing(
    arguments: dict[str, Any], message: str, function: Callable[..., Any]
) -> None:
    if "plan" in arguments:
        arguments = arguments | {"plan": api.plan(MODEL, auto_cast="all", auto_cast_type="fp16")}
    with pytest.raises(InvalidFlag, match=message):
        function(MODEL, **arguments)


def test_a_plan_or_policy_takes_the_flags_that_cast_nothing() -> None:
    flags = "-O1 --model-type transformer --enable-mixed-precision-accumulation"
    plan = api.plan(MODEL, policy="tvm/float16", flags=flags)
    assert plan == api.plan(MODEL, policy="tvm/float16")
    for arguments in ({"plan": plan}, {"policy": "tvm/float16"}):
        setup = api.compile(MODEL, flags=flags, **arguments).setup  # type: ignore[arg-type]
        assert setup.profile.mixed_precision_accumulation == "on"
        assert setup.without_effect == ("--optlevel", "--model-type")


def test_a_plan_may_be_a_path_as_a_policy_may(tmp_path: Path) -> None:
    made = api.plan(MODEL, auto_cast="all", auto_cast_type="fp16")
    path = tmp_path / "fp16.json"
    path.write_text(made.to_json())
    for given in (path, str(path)):
        assert api.plan(MODEL, plan=given) == made
        assert api.compile(MODEL, plan=given).plan == made
        assert api.lint(MODEL, plan=given) == api.lint(MODEL, plan=made)


def test_a_setup_claims_no_cast_settings_that_were_not_used(tmp_path: Path) -> None:
    path = tmp_path / "fp16.json"
    path.write_text(api.plan(MODEL, auto_cast="all", auto_cast_type="fp16").to_json())
    for arguments, decided_by in (
        ({"policy": "tvm/float16"}, "policy tvm/float16"),
        ({"plan": path}, f"plan all/fp16 from {path}"),
        ({"plan": api.plan(MODEL, plan=path)}, "plan all/fp16"),
    ):
        program = api.compile(MODEL, **arguments)  # type: ignore[arg-type]
        program.save(tmp_path / "p.nsim")
        for setup in (program.setup, api.load(tmp_path / "p.nsim").setup):
            assert (setup.decided_by, setup.casts) == (decided_by, decided_by)
            assert (setup.settings.auto_cast, setup.settings.flag_line) == ("", "")
    by_flags = api.compile(MODEL).setup  # a control
    assert by_flags.casts == by_flags.settings.flag_line == "--auto-cast matmult --auto-cast-type bf16"


@pytest.mark.parametrize(
    ("flags", "profile"),
    [
        ("--enable-mixed-precision-accumulation", {"mixed_precision_accumulation": "off"}),
        ("--disable-mixed-precision-accumulation", {"mixed_precision_accumulation": "on"}),
        ("--implicit-integer-downcast dot", {"int_dot": "exact"}),
    ],
)
def test_a_flag_against_the_profile_is_warned_of(flags: str, profile: dict[str, Any]) -> None:
    given = Profile().replace(**profile)
    with pytest.warns(FlagWarning, match=f"the profile decides: its {next(iter(profile))} is"):
        assert api.compile(MODEL, sdk="2.32", flags=flags, profile=given).setup.profile == given
    api.compile(MODEL, sdk="2.32", profile=given)  # without the flag there is nothing to say


@pytest.mark.parametrize("target", [None, "trn1", "inf2"])
def test_the_target_in_the_flags_counts(target: str | None) -> None:
    assert api.compile(MODEL, flags="--target trn1 -O1", target=target).setup.target.name == "trn1"
    if target is not None:
        with pytest.raises(InvalidFlag, match=f"--target inf1 in the flags contradicts .* {target}"):
            api.compile(MODEL, flags=["--target=inf1"], target=target)
    else:
        setup = api.compile(MODEL, flags="--fast-math none --target inf1").setup
        assert (setup.target.name, setup.settings.relayout) == ("inf1", "")


def test_a_plan_of_another_model_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="does not fit"):
        api.compile(MODEL, plan=api.plan(difference(), auto_cast="all"))
    with pytest.raises(InvalidArgument, match="does not fit"):
        api.lint(MODEL, plan=api.plan(difference(), auto_cast="all"))


@pytest.mark.usefixtures("restored_settings")
def test_threads_are_set_and_change_no_bit_D1(images: np.ndarray) -> None:
    results = set()
    for threads in (1, 2, 3):
        results.add(api.compile(MODEL, auto_cast="all", threads=threads)(images).tobytes())
        assert processor.num_threads() == threads
    assert len(results) == 1


def test_the_public_names_are_those_of_the_package() -> None:
    for name in ("compile", "plan", "tune", "load", "CompiledProgram", "TuneResult"):
        assert getattr(neuronsim, name) is getattr(api, name)
    for space in ("fft", "lax", "lib", "lib.stride_tricks", "linalg", "nn", "random"):
        module = operator.attrgetter(space)(neuronsim)
        assert dir(module) == sorted(module.__all__)  # and not what it imports


# ---- saved programs ------------------------------------------------------------------------------


@pytest.mark.parametrize("cast_type", ["bf16", "fp16", "tf32", "fp8_e4m3"])
def test_a_saved_program_gives_the_same_bits(
    cast_type: str, tmp_path: Path, images: np.ndarray
) -> None:
    program = api.compile(MODEL, auto_cast="all", auto_cast_type=cast_type, sdk="2.27")
    program.save(tmp_path / "p.nsim")
    again = api.load(tmp_path / "p.nsim")
    assert again(images).tobytes() == program(images).tobytes()
    assert again.setup == program.setup
    assert again.plan == program.plan
    assert again.model.name == program.model.name


def test_a_program_is_pickled_and_copied_as_it_is_saved(images: np.ndarray) -> None:
    program = api.compile(MODEL, auto_cast="all")
    expected = program(images)  # after which its weights are packed
    for again in (pickle.loads(pickle.dumps(program)), copy.copy(program), copy.deepcopy(program)):
        assert again(images).tobytes() == expected.tobytes()
        assert (again.setup, again.plan) == (program.setup, program.plan)
    function = api.compile(lambda d: {"y": d["x"] + 1}, {"x": np.ones(2, np.float32)})
    assert copy.deepcopy(function)({"x": np.ones(2)})["y"].tolist() == [2.0, 2.0]


def test_saving_is_reproducible(saved: Path, tmp_path: Path) -> None:
    api.load(str(saved)).save(str(tmp_path / "again.nsim"))
    assert (tmp_path / "again.nsim").read_bytes() == saved.read_bytes()


def test_a_program_keeps_its_profile(tmp_path: Path) -> None:
    program = api.compile(difference(S64), profile=Profile(accumulate="sequential"))
    program.save(tmp_path / "p.nsim")
    assert api.load(tmp_path / "p.nsim").setup.profile == Profile(accumulate="sequential")


def test_save_names_a_path_that_cannot_be_written(saved: Path, tmp_path: Path) -> None:
    program = api.load(saved)
    for path in (tmp_path, tmp_path / "missing" / "p.nsim"):
        with pytest.raises(InvalidArgument, match="cannot write"):
            program.save(path)


def test_files_that_are_no_program_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.nsim", tmp_path, MODEL, DIGITS / "test.npz"):
        with pytest.raises(InvalidModel):
            load_program(path)  # api.load reads arrays too


def header(**changes: Any) -> Callable[[dict[str, bytes]], None]:
    def edit(parts: dict[str, bytes]) -> None:
        body = json.loads(parts["program.json"]) | changes
        parts["program.json"] = json.dumps(body).encode()

    return edit


def part(name: str, data: bytes | None) -> Callable[[dict[str, bytes]], None]:
    def edit(parts: dict[str, bytes]) -> None:
        del parts[name]
        if data is not None:
            parts[name] = data

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (header(version=1), "version 1, this neuronsim reads 3: compile the model again"),
        (header(settings=[]), "not a program"),
        (header(target="mars"), "not a program"),
        (header(release={"sdk": "2.26"}), "not a program"),
        (header(profile={"reduce_tile": 7}), "not a program"),
        (header(profile={"colour": 1}), "not a program"),
        (part("program.json", b"[1]"), "not a program"),
        (part("program.json", b"{"), "not a program"),
        (part("program.json", None), "not a program"),
        (part("program.json", b"[" * 100_000), "not a program"),
        (part("plan.json", None), "not a program"),
        (part("plan.json", b"\xff"), "not a program"),
        (part("plan.json", b"{}"), "not a plan"),
        (part("plan.json", b"[" * 100_000), "not a plan"),
        (part("model.hlo.pb", None), "not a program"),
        (part("model.hlo.pb", b"\xff\xff"), "not an HloModuleProto"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_programs_of_other_versions_or_with_wrong_parts_are_refused(
    edit: Callable[[dict[str, bytes]], None], message: str, saved: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(saved) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    edit(parts)
    path = tmp_path / "edited.nsim"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    with pytest.raises(InvalidModel, match=message):
        api.load(path)


def test_damaged_programs_are_loaded_or_refused_but_never_crash(tmp_path: Path) -> None:
    path = tmp_path / "p.nsim"
    api.compile(difference(), auto_cast="all").save(path)
    whole, rng = path.read_bytes(), random.Random(3)
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged)
        with contextlib.suppress(NeuronSimError):  # some mutations leave a good file
            api.load(path)


def weights_of(path: Path, dtype: dtypes.DType, product: bool) -> None:
    """A model whose weights are those of a file: an addend, or packed for a product."""
    t = {"float32": "f32", "bfloat16": "bf16", "int32": "s32"}[dtype.name] + "[32,32]"
    rows = ", ".join(["{" + ", ".join(map(str, range(1, 33))) + "}"] * 32)
    root = "dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}" if product else "add(x, w)"
    lines = (f"x = {t} parameter(0)", f"w = {t} constant({{{rows}}})", f"ROOT y = {t} {root}")
    proto.write(parse.from_text(source_of("\n".join(lines))), path)


@pytest.mark.parametrize("change", ["rewritten", "truncated"])
@pytest.mark.parametrize("product", [False, True], ids=["addend", "packed"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize("kind", ["hlo.pb", "nsim"])
def test_what_becomes_of_a_file_that_was_read_changes_no_program(
    kind: str, dtype: str, product: bool, change: str, tmp_path: Path
) -> None:
    model, path = tmp_path / "m.hlo.pb", tmp_path / f"m.{kind}"
    weights_of(model, dtypes.DTYPES[dtype], product)
    if kind == "nsim":
        api.compile(model, auto_cast="all").save(path)
    program = load_program(path) if kind == "nsim" else api.compile(path, auto_cast="all")
    x = neuronsim.ones((32, 32), dtype=dtype)
    before = program(x).tobytes()
    program.save(tmp_path / "before.nsim")
    with open(path, "r+b") as file:  # in place
        if change == "truncated":
            file.truncate(10)
        else:
            file.write(b"\1" * path.stat().st_size)
    assert program(x).tobytes() == before
    assert program(x, observe="full").tobytes() == before
    program.save(tmp_path / "after.nsim")
    assert (tmp_path / "after.nsim").read_bytes() == (tmp_path / "before.nsim").read_bytes()
    isa = processor.isa()
    try:
        processor.set_isa("x86-64")  # for which what is packed is made again
        assert program(x).tobytes() == before
    finally:
        processor.set_isa(isa)


def test_a_file_that_shrinks_while_it_is_read_ends_no_process(tmp_path: Path) -> None:
    model, saved = tmp_path / "m.hlo.pb", tmp_path / "m.nsim"
    api.compile(MODEL, auto_cast="none").save(saved)
    model.write_bytes(MODEL.read_bytes())
    code = """
import os, sys, neuronsim
from neuronsim.hlo import proto
read = proto.from_bytes
def shrunk(data):
    os.truncate(sys.argv[1], 10)
    return read(data)
proto.from_bytes = shrunk
neuronsim.load(sys.argv[1]) if sys.argv[1].endswith(".nsim") else neuronsim.compile(sys.argv[1])
"""
    for path in (model, saved):
        found = subprocess.run([sys.executable, "-c", code, path], capture_output=True, check=False)
        assert (found.returncode, found.stderr) == (0, b"")


@pytest.mark.parametrize("product", [False, True], ids=["addend", "packed"])
@pytest.mark.parametrize("auto_cast", ["none", "all"])
def test_memory_counts_the_models_literals_once(product: bool, auto_cast: str, tmp_path: Path) -> None:
    weights_of(tmp_path / "m.hlo.pb", dtypes.float32, product)
    memory = api.compile(tmp_path / "m.hlo.pb", auto_cast=auto_cast).memory
    literal = 32 * 32 * 4
    assert memory.keys() == {"temporaries", "constants", "packed", "model"}
    if product:
        assert (memory["constants"], memory["model"]) == (0, literal)
        assert memory["packed"] >= literal // 2
    elif auto_cast == "none":
        assert (memory["constants"], memory["packed"], memory["model"]) == (literal, 0, 0)
    else:
        assert (memory["constants"], memory["packed"], memory["model"]) == (literal // 2, 0, literal)


# ---- whole programs at their edges -------------------------------------------------------------------


def test_results_are_the_callers_own() -> None:
    c = constant("c", [1.0, 2.0])
    for module in (module_of(c, inst("r", "negate", (2,), "c")), module_of(c)):
        program = api.compile(module, auto_cast="none")
        first = np.asarray(program())
        before = first.copy()
        first[:] = 99
        np.testing.assert_array_equal(np.asarray(program()), before)
    x = np.ones(2, np.float32)
    result = np.asarray(api.compile(module_of(parameter("x", (2,))), auto_cast="none")(x))
    x[:] = 5
    np.testing.assert_array_equal(result, [1.0, 1.0])


@pytest.mark.parametrize("bits", [(8, 10), (8, 7)])
@pytest.mark.parametrize("auto_cast_type", ["bf16", "fp16", "tf32"])
def test_reduce_precision_C9_runs_under_every_cast(bits: tuple[int, int], auto_cast_type: str) -> None:
    stated = {"exponent_bits": bits[0], "mantissa_bits": bits[1]}
    module = module_of(parameter("x", (3,)), inst("r", "reduce-precision", (3,), "x", **stated))
    x = neuronsim.asarray([1 / 3, 3.3, -1e-3])
    found = api.compile(module, auto_cast="all", auto_cast_type=auto_cast_type)(x)
    low, between = CAST_TYPES[auto_cast_type], "tfloat32" if bits == (8, 10) else "bfloat16"
    expected = x.astype(low).astype(between).astype(low).astype("float32")
    assert found.tobytes() == expected.tobytes()  # type: ignore[union-attr]


def test_float64_H1_is_the_hosts() -> None:
    x = parameter("x", (2,), dtype=dtypes.float64)
    module = module_of(x, inst("y", "add", x.shape, "x", "x"))
    with pytest.raises(UnsupportedType, match=r"NCC_ESPP004.*trn1 has no float64.*the example of x: "):
        api.compile(module)
    found = api.compile(module, target="host", auto_cast="none")(np.array([0.1, 1e300]))
    np.testing.assert_array_equal(np.asarray(found), [0.2, 2e300])


@pytest.mark.parametrize("dims", [(0, 2**62), (2**44, 0)])
def test_zero_sized_arrays_do_not_hide_a_huge_axis(dims: tuple[int, int]) -> None:
    axis = dims.index(max(dims))
    with pytest.raises(OutOfMemory, match="NCC_EOOM001"):
        api.compile(module_of(inst("i", "iota", dims, dtype=dtypes.int32, dimensions=(axis,))))


def test_tune_reports_int64_C7_once_for_a_constant() -> None:
    body = (
        parameter("x", (2, 3)),
        constant("k", [2**40 + 3, 1], S64),
        inst("kf", "convert", (2,), "k"),
        inst("kb", "broadcast", (2, 3), "kf", dimensions=(0,)),
        inst("y", "add", (2, 3), "x", "kb"),
    )
    result = api.tune(module_of(*body), {"x": np.ones((5, 3))})
    assert all(r.int64_truncated == {"k": 1} for r in result.rungs)


def test_top1_needs_one_row_of_classes_and_labels_in_range() -> None:
    x = parameter("x", (2, 3))
    data = {"x": np.eye(3)[[0, 1, 2, 0]]}
    both = inst("t", "tuple", TupleShape((Shape(F32, (2, 3)),) * 2), "x", "x")
    assert api.tune(module_of(x, both), data, labels=[0, 1, 2, 0]).rungs[0].top1 == 1.0
    assert api.tune(module_of(x, both), data).rungs[0].top1_agreement is None
    y = inst("y", "add", (2, 3), "x", "x")
    with pytest.raises(InvalidData, match="labels go from 0 to 3"):
        api.tune(module_of(x, y), data, labels=[0, 1, 3, 0])
    assert api.tune(module_of(x, y), data, labels=[0, 1, 2, 0]).rungs[0].top1 == 1.0


def test_an_input_may_be_called_labels() -> None:
    x, y = parameter("labels", (2, 3)), inst("y", "add", (2, 3), "labels", "labels")
    assert api.tune(module_of(x, y), {"labels": np.ones((4, 3))}).metric == "relative_error"


def test_tune_puts_the_number_of_threads_back() -> None:
    before = neuronsim.num_threads()
    api.tune(module_of(parameter("x", (2, 3))), {"x": np.ones((4, 3))}, threads=before + 1)
    assert neuronsim.num_threads() == before


# ---- what is no model ------------------------------------------------------------------------------

ONE = b"""HloModule one
ENTRY e { x = f32[4,3] parameter(0)  ROOT y = f32[4,3] negate(x) }
"""
SAMPLES = {"x": np.ones((4, 3), np.float32)}
DOORS_TO_MODELS: dict[str, Callable[[Any], Any]] = {
    "compile": api.compile,
    "plan": api.plan,
    "lint": api.lint,
    "calibrate": lambda model: api.calibrate(model, SAMPLES),
    "tune": lambda model: api.tune(model, SAMPLES),
}
MLIR = "module @jit_f attributes {mhlo.num_partitions = 1 : i32} {\n  func.func public @main() {\n"


def no_models(folder: Path) -> Iterator[tuple[Any, str]]:
    """What people give in the place of a model, and what the error says of it."""
    yield None, "None"
    yield 5, "5, builtins.int"
    yield {"x": 1}, "builtins.dict"
    yield (lambda x: x), "neuronsim.compile(model, *example_arguments)"
    yield api.compile(ONE), "compiled already"
    yield b"", "it is empty"
    yield b"hello", "not an HloModuleProto"
    yield folder, "holds no model.hlo_module.pb"
    yield str(folder / "nothing.pb"), "No such file"
    yield ONE.decode() + "\n" * 5000, "text.encode()"
    files = {
        "net.onnx": (b"\x08\x08\x12\x07pytorch", "ONNX"),
        "net.zip": (b"PK\x03\x04", "a zip file"),
        "old.pt": (b"\x80\x02\x8a\n", "a pickle"),
        "net.neff": (b"\0\0\0\x02", "NEFF"),
        "net.mlir": (MLIR.encode(), "StableHLO"),
        "net.mlirbc": (b"ML\xefR\x0dStableHLO", "StableHLO"),
        "net.h5": (b"\x89HDF\r\n", "HDF5"),
    }
    for name, (data, said) in files.items():
        (folder / name).write_bytes(data)
        yield folder / name, said


@pytest.mark.parametrize("door", DOORS_TO_MODELS)
def test_what_is_no_model_is_named_with_what_to_do(door: str, tmp_path: Path) -> None:
    for given, said in no_models(tmp_path):
        if door in ("tune", "calibrate") and callable(given):
            continue  # whose arguments are then those of the data
        with pytest.raises(NeuronSimError) as caught:
            DOORS_TO_MODELS[door](given)
        assert said in str(caught.value), given


@each_of(
    "arguments",
    [
        *({"policy": 5}, {"policy": ["a"]}, {"plan": 5}, {"calibration": 5}, {"profile": "exact"}),
        *({"flags": 5}, {"flags": [5]}, {"flags": None}, {"sdk": 2.26}, {"target": 5}),
        *({"target": ["trn1"]}, {"threads": "2"}, {"replicas": "2"}, {"auto_cast": True}),
        *({"auto_cast_type": dtypes.bfloat16}, {"clean": "no"}, {"strict": "yes"}),
    ],
    ids=str,
)
def test_arguments_of_wrong_types_are_named(arguments: dict[str, Any]) -> None:
    with pytest.raises(NeuronSimError):
        api.compile(ONE, **arguments)


@pytest.mark.parametrize("data", [None, 5, [1], {"x": None}, {"x": "a"}, {}, "nothing.npz"], ids=str)
def test_data_of_wrong_types_are_named(data: Any) -> None:
    for door in (api.tune, api.calibrate):
        with pytest.raises(InvalidData):
            door(ONE, data)


def test_other_wrong_types_are_named(tmp_path: Path) -> None:
    program = api.compile(ONE)
    for call in (
        lambda: api.tune(ONE, SAMPLES, progress=5),  # type: ignore[arg-type]
        lambda: api.calibrate(ONE, SAMPLES, progress=5),  # type: ignore[arg-type]
        lambda: program.save(5),  # type: ignore[arg-type]
        lambda: program.timings(SAMPLES["x"], repeats="3"),  # type: ignore[arg-type]
        lambda: api.load(5),  # type: ignore[call-overload]
        lambda: api.load(str(tmp_path)),
        lambda: api.load("a\0b"),
        lambda: api.load(str(tmp_path / "nothing.npz")),
    ):
        with pytest.raises(NeuronSimError):
            call()
    with pytest.raises(FileNotFoundError):  # NumPy's class too
        api.load(str(tmp_path / "nothing.npz"))


def test_an_argument_that_compile_does_not_have_is_told_where_it_belongs() -> None:
    """A model of Hugging Face is called with keywords."""
    with pytest.raises(
        TypeError, match=r"'attention_mask'\. Arguments of the model's own .*example_kwargs"
    ):
        neuronsim.compile(lambda x: x, attention_mask=1)
    with pytest.raises(TypeError, match=r"'auto_casts' \(did you mean 'auto_cast'\?\)\."):
        neuronsim.compile(lambda x: x, auto_casts="all")


@pytest.mark.parametrize(
    ("name", "meant", "function"),
    [
        ("tolerence", "tolerance", neuronsim.tune),
        ("max_cause", "max_causes", neuronsim.blame),
        ("wieghts", "weights", neuronsim.calibrate),
    ],
)
def test_a_mistyped_keyword_names_the_one_that_was_meant(
    name: str, meant: str, function: Callable[..., Any]
) -> None:
    text = rf"{function.__name__}\(\) .* argument '{name}' \(did you mean '{meant}'\?\)$"
    with pytest.raises(TypeError, match=text):
        function(MODEL, {}, **{name: 1})
    assert meant in inspect.signature(function).parameters
