"""The bundled example: it is accurate, one setting is safe, one breaks it, and for the stated cause."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import neuronsim
from neuronsim import api, cli
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.hlo import proto
from neuronsim.hlo.module import Instruction, Module
from neuronsim.reference import formats, sums
from neuronsim.tuning.dataset import load_dataset, run_batches
from neuronsim.tuning.results import TuneResult
from neuronsim.tuning.rungs import LADDER
from tests.support.places import DIGITS

MODEL, DATA = DIGITS / "model.hlo.pb", DIGITS / "test.npz"


@pytest.fixture(scope="module")
def ladder() -> TuneResult:
    return api.tune(MODEL, DATA)


def accuracy(ladder: TuneResult, name: str) -> float:
    found = next(r.top1 for r in ladder.rungs if r.name == name)
    assert found is not None
    return found


def test_files_are_small() -> None:
    assert MODEL.stat().st_size + DATA.stat().st_size < 1_000_000


def test_data_are_grey_levels_as_they_come() -> None:
    with np.load(DATA) as data:
        assert data["x"].shape == (597, 8, 8)
        assert data["x"].dtype == np.uint8
        assert data["x"].max() == 255
        assert sorted(set(data["labels"].tolist())) == list(range(10))


def test_ladder_has_the_vendors_seven_settings(ladder: TuneResult) -> None:
    names = ["none", *(f"{a}/{t}" for a, t in LADDER[1:])]
    assert [r.name for r in ladder.rungs] == names
    assert names == [
        "none",
        *("matmult/tf32", "all/tf32", "matmult/fp16", "all/fp16", "matmult/bf16", "all/bf16"),
    ]
    assert ladder.samples == 597


def test_float32_is_accurate(ladder: TuneResult) -> None:
    assert accuracy(ladder, "none") >= 0.95


def test_a_casting_rung_loses_nearly_nothing(ladder: TuneResult) -> None:
    none = accuracy(ladder, "none")
    close = [r.name for r in ladder.rungs[1:] if r.top1 is not None and none - r.top1 <= 0.002]
    assert close != []
    assert ladder.recommended in close


def test_all_fp16_loses_more_than_three_points(ladder: TuneResult) -> None:
    assert accuracy(ladder, "none") - accuracy(ladder, "all/fp16") > 0.03
    assert accuracy(ladder, "none") - accuracy(ladder, "matmult/fp16") <= 0.002


def test_weights_halve_where_they_are_cast(ladder: TuneResult) -> None:
    sizes = {r.name: r.weight_bytes for r in ladder.rungs}
    assert sizes["none"] == sizes["matmult/tf32"] == sizes["all/tf32"]
    assert 0.5 <= sizes["all/bf16"] / sizes["none"] < 0.51
    assert 0.5 <= sizes["matmult/bf16"] / sizes["none"] < 0.55


# ---- the cause --------------------------------------------------------------------------------------


def sum_of_squares(module: Module) -> Instruction:
    """The first reduce of x * x: the sum of squares of the first normalisation."""
    entry = module.entry_computation
    for i in entry.instructions:
        if i.opcode == "reduce":
            summed = entry.by_name[i.operands[0]]
            if summed.opcode == "multiply" and len(set(summed.operands)) == 1:
                return i
    raise AssertionError("the example has no sum of squares")


def values_of(name: str, auto_cast: str, cast_type: str) -> np.ndarray:
    """What an instruction of the planned example gives on all data."""
    model = proto.read(MODEL)
    program = api.compile(MODEL, auto_cast=auto_cast, auto_cast_type=cast_type)
    entry = dataclasses.replace(program.module.entry_computation, root=name)
    inner = api.compile(
        program.module.replace_entry(entry), auto_cast="none", profile=program.setup.profile
    )
    (result,) = run_batches(inner, model, load_dataset(DATA))
    return result.astype(np.float64)


def test_the_cause_is_a_sum_of_squares_beyond_float16() -> None:
    reduce = sum_of_squares(proto.read(MODEL))
    squares = values_of(reduce.operands[0], "all", "fp16")
    sums_ = values_of(reduce.name, "all", "fp16")
    assert squares.max() <= 255**2 < neuronsim.float16.max  # each square fits ...
    assert np.isinf(sums_).mean() > 0.99  # ... but their sum does not
    assert not np.isinf(values_of(reduce.name, "all", "bf16")).any()
    assert not np.isinf(values_of(reduce.name, "matmult", "fp16")).any()


def test_the_cause_by_hand_with_the_twin() -> None:
    with np.load(DATA) as data:
        pixels = data["x"][0].ravel().tolist()
    squares = [formats.from_float("float16", int(p) ** 2) for p in pixels]
    exact = sum(formats.decode("float16", s).magnitude for s in squares)
    assert exact > 65504
    for round_tiles in (False, True):
        total = sums.reduce_float("add", "float16", squares, 0, round_tiles=round_tiles)
        assert formats.decode("float16", total).kind == "inf"


def test_without_that_one_sum_all_fp16_is_accurate_again(ladder: TuneResult) -> None:
    # Keeping the first normalisation's statistics in float32 repairs the model.
    model = proto.read(MODEL)
    plan = make_plan(model, neuron_policy("all", "fp16"))
    entry = model.entry_computation
    start = sum_of_squares(model).operands[0]
    kept = {start}
    for i in entry.instructions:  # what follows, up to 1/sqrt of the variance
        if kept & set(i.operands) and not any(entry.by_name[k].opcode == "rsqrt" for k in i.operands):
            kept.add(i.name)
        if i.opcode == "rsqrt" and i.name in kept:
            break
    decisions = {name: d for name, d in plan.decisions.items() if name not in kept}
    repaired = api.compile(model, plan=dataclasses.replace(plan, decisions=decisions))
    dataset = load_dataset(DATA)
    (logits,) = run_batches(repaired, model, dataset)
    right = np.argmax(logits, axis=1) == dataset.labels
    assert right.mean() >= accuracy(ladder, "none") - 0.01


# ---- against XLA ---------------------------------------------------------------------------------


def test_float32_rung_agrees_with_xla() -> None:
    jax = pytest.importorskip("jax", reason="the peer XLA is not installed (extra `peers`)")
    client = pytest.importorskip("jaxlib.xla_client")
    core = pytest.importorskip("jaxlib._jax")
    with np.load(DATA) as data:
        x = data["x"][:64].astype(np.float32)
    device = jax.devices("cpu")[0]
    stable = core.mlir.hlo_to_stablehlo(MODEL.read_bytes())
    run = device.client.compile_and_load(stable, core.DeviceList((device,)), client.CompileOptions())
    shards = run.execute_sharded([jax.device_put(x, device)])
    theirs = np.asarray(shards.disassemble_into_single_device_arrays()[0][0])
    ours = np.asarray(api.compile(MODEL, auto_cast="none")(x))
    assert np.linalg.norm(ours - theirs) <= 1e-4 * np.linalg.norm(theirs)
    assert np.array_equal(np.argmax(ours, axis=1), np.argmax(theirs, axis=1))


# ---- README --------------------------------------------------------------------------------------


def test_readme_shows_what_tune_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(DIGITS.parents[1])
    monkeypatch.setenv("COLUMNS", "80")
    arguments = ["tune", "examples/digits/model.hlo.pb", "--data", "examples/digits/test.npz"]
    assert cli.main(arguments) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    shown = Path("README.md").read_text().split("```")[1].strip("\n").splitlines()
    assert len(shown) > 10
    assert [line for line in shown if line.rstrip() not in printed] == []
