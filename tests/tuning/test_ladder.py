"""The ladder: its order, its figures on the example, its choice of a rung, and its JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuronsim import api, dtypes, ops, processor
from neuronsim.errors import InvalidArgument, InvalidData
from neuronsim.hlo.module import Computation, Instruction, Module, Shape
from neuronsim.tuning.ladder import LADDER, RungResult, TuneResult, recommend

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODEL = DIGITS / "model.hlo.pb"
NAMES = [
    "none",
    "matmult/tf32",
    "all/tf32",
    "matmult/fp16",
    "all/fp16",
    "matmult/bf16",
    "all/bf16",
]


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    """The first 130 samples: two full batches and a nearly empty one."""
    with np.load(DIGITS / "test.npz") as archive:
        return {name: archive[name][:130] for name in archive.files}


@pytest.fixture(scope="module")
def result(data: dict[str, np.ndarray]) -> TuneResult:
    return api.tune(MODEL, data)


def without_times(result: TuneResult) -> str:
    body = json.loads(result.to_json())
    assert sorted(body.pop("seconds")) == sorted(NAMES)
    return json.dumps(body)


# ---- the order -----------------------------------------------------------------------------------


def test_the_seven_settings_are_in_awss_order(result: TuneResult) -> None:
    assert [r.name for r in result.rungs] == NAMES
    assert [f"{a}/{t}" if a != "none" else a for a, t in LADDER] == NAMES


def test_every_rung_has_its_flag_line(result: TuneResult) -> None:
    expected = ["--auto-cast none"]
    for name in NAMES[1:]:
        auto_cast, cast_type = name.split("/")
        expected.append(f"--auto-cast {auto_cast} --auto-cast-type {cast_type}")
    assert [r.flags for r in result.rungs] == expected


# ---- the figures ---------------------------------------------------------------------------------


def test_the_first_rung_is_the_reference(result: TuneResult) -> None:
    first = result.rungs[0]
    assert (first.relative_error, first.max_error, first.not_finite) == (0.0, 0.0, 0)
    assert (first.top1_agreement, first.estimated_speedup) == (1.0, 1.0)


def test_the_figures_are_those_of_the_compiled_programs(
    result: TuneResult, data: dict[str, np.ndarray]
) -> None:
    x = np.concatenate([data["x"], np.repeat(data["x"][-1:], 62, axis=0)])

    def logits(**setting: str) -> np.ndarray:
        program = api.compile(MODEL, **setting)
        parts = [np.asarray(program(x[i : i + 64])) for i in (0, 64, 128)]
        return np.concatenate(parts)[:130].astype(np.float64)

    reference = logits(auto_cast="none")
    for rung in result.rungs[1:]:
        auto_cast, cast_type = rung.name.split("/")
        found = logits(auto_cast=auto_cast, auto_cast_type=cast_type)
        relative = np.linalg.norm(found - reference) / np.linalg.norm(reference)
        assert rung.relative_error == pytest.approx(relative, rel=1e-12)
        assert rung.max_error == np.abs(found - reference).max()
        assert rung.top1 == np.mean(found.argmax(axis=1) == data["labels"])
        assert rung.top1_agreement == np.mean(found.argmax(axis=1) == reference.argmax(axis=1))


def test_changing_one_weight_changes_the_figures(
    result: TuneResult, data: dict[str, np.ndarray]
) -> None:
    module = api.read_model(MODEL)
    entry = module.entry_computation
    floats = [i for i in entry.instructions if i.opcode == "constant"]
    largest = max(floats, key=lambda i: math.prod(i.array.dims))
    weights = largest.attributes["literal"].data.copy()
    weights.flat[5] += np.float32(0.25)
    literal = ops.Bits(weights, dtypes.float32)
    edited = largest.replace(attributes={**largest.attributes, "literal": literal})
    body = tuple(edited if i is largest else i for i in entry.instructions)
    changed = api.tune(module.replace_entry(Computation(entry.name, body, entry.root)), data)
    for before, after in zip(result.rungs[1:], changed.rungs[1:], strict=True):
        assert before.relative_error != after.relative_error


def test_weights_of_matmult_and_all_are_those_of_the_cast_constants(result: TuneResult) -> None:
    size = {r.name: r.weight_bytes for r in result.rungs}
    assert size["none"] == size["matmult/tf32"] == size["all/tf32"]
    assert size["all/bf16"] == size["all/fp16"]
    assert 2 * size["all/bf16"] == size["none"]  # every constant is halved by A2
    assert size["all/bf16"] <= size["matmult/bf16"] < size["none"]


def test_outputs_that_are_not_finite_are_counted_and_lose() -> None:
    # exp(12) fits float32 and bfloat16 but not float16 (C3).
    shape = Shape(dtypes.float32, (4, 2))
    x = Instruction("x", "parameter", shape, (), {"number": 0})
    y = Instruction("y", "exponential", shape, ("x",))
    module = Module("exp", "main", (Computation("main", (x, y), "y"),))
    found = api.tune(module, {"x": [[12.0, 0.0]] * 6}, tolerance=0.5)
    half = next(r for r in found.rungs if r.name == "all/fp16")
    assert (half.relative_error, half.max_error, half.not_finite) == (math.inf, math.inf, 6)
    assert found.recommended != "all/fp16"
    rung = next(r for r in json.loads(found.to_json())["rungs"] if r["name"] == "all/fp16")
    assert (rung["relative_error"], rung["max_error"], rung["not_finite"]) == (None, None, 6)


# ---- determinism ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("restored_processor")
def test_json_has_the_same_bytes_on_every_isa_and_thread_count_D1(
    result: TuneResult, data: dict[str, np.ndarray]
) -> None:
    expected = without_times(result)
    for isa in processor.available_isas():
        processor.set_isa(isa)
        for threads in (1, 2):
            assert without_times(api.tune(MODEL, data, threads=threads)) == expected, (isa, threads)


def test_two_runs_give_the_same_bytes_of_json(result: TuneResult, data: dict[str, np.ndarray]) -> None:
    assert without_times(api.tune(MODEL, data)) == without_times(result)


def test_json_is_strict_and_complete(result: TuneResult) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    body = json.loads(result.to_json(), parse_constant=refuse)
    assert body["schema"] == "neuronsim.tune/1"
    assert body["flag_line"] == result.flag_line
    fields = {f.name for f in dataclasses.fields(TuneResult)}
    assert set(body) == fields | {"schema", "flag_line"}
    for rung in body["rungs"]:
        assert set(rung) == {f.name for f in dataclasses.fields(RungResult)}
    assert result.to_json() == json.dumps(body, indent=1, sort_keys=True)


# ---- progress ------------------------------------------------------------------------------------


def test_progress_rises_to_its_total(data: dict[str, np.ndarray]) -> None:
    calls: list[tuple[str, int, int]] = []
    api.tune(MODEL, data, progress=lambda *call: calls.append(call))
    assert list(dict.fromkeys(name for name, _, _ in calls)) == NAMES
    done = [d for _, d, _ in calls]
    assert done == sorted(done)
    assert {total for _, _, total in calls} == {7 * 3}
    assert (done[0], done[-1]) == (0, 21)


# ---- the choice ----------------------------------------------------------------------------------


def rung(name: str, seconds: float, top1: float | None = None, error: float = 0.0) -> RungResult:
    return RungResult(
        name=name,
        flags="",
        top1=top1,
        relative_error=error,
        max_error=error,
        not_finite=0,
        top1_agreement=1.0,
        weight_bytes=0,
        estimated_seconds=seconds,
        estimated_speedup=1.0,
    )


def test_the_fastest_rung_within_the_tolerance_is_recommended() -> None:
    rungs = [rung("none", 4, 0.90), rung("slow", 3, 0.90), rung("good", 2, 0.89), rung("bad", 1, 0.5)]
    assert recommend(rungs, "top1", 0.01).name == "good"
    assert recommend(rungs, "top1", 0.009).name == "slow"
    assert recommend(rungs, "top1", 0.4).name == "bad"


def test_a_rung_that_loses_exactly_the_tolerance_is_within_it() -> None:
    # 0.97 - 0.96 is 0.010000000000000009 in float64.
    assert recommend([rung("none", 2, 0.97), rung("b", 1, 0.96)], "top1", 0.01).name == "b"


def test_a_rung_that_gains_accuracy_fits_any_tolerance() -> None:
    assert recommend([rung("none", 2, 0.9), rung("b", 1, 0.95)], "top1", 0.0).name == "b"


def test_ties_in_time_take_the_smaller_error_then_the_earlier_rung() -> None:
    rungs = [rung("none", 2, 0.9), rung("b", 1, 0.9, 0.02), rung("c", 1, 0.9, 0.01)]
    assert recommend(rungs, "top1", 0.0).name == "c"
    assert recommend([*rungs, rung("d", 1, 0.9, 0.01)], "top1", 0.0).name == "c"


def test_the_reference_is_recommended_where_nothing_else_fits() -> None:
    rungs = [rung("none", 9, 0.9), rung("b", 1, 0.1, math.inf)]
    assert recommend(rungs, "top1", 0.0).name == "none"
    assert recommend(rungs, "relative_error", 10.0).name == "none"


def test_relative_error_is_compared_with_the_tolerance_itself() -> None:
    rungs = [rung("none", 3), rung("b", 2, error=0.01), rung("c", 1, error=0.011)]
    assert recommend(rungs, "relative_error", 0.01).name == "b"
    assert recommend(rungs, "relative_error", 0.02).name == "c"


def test_the_tolerance_changes_the_recommendation(data: dict[str, np.ndarray]) -> None:
    chosen = {t: api.tune(MODEL, {"x": data["x"]}, tolerance=t).recommended for t in (0.0, 1e-3, 0.01)}
    assert chosen == {0.0: "none", 1e-3: "all/tf32", 0.01: "all/bf16"}


def test_the_metric_follows_from_the_data_unless_it_is_given(data: dict[str, np.ndarray]) -> None:
    assert api.tune(MODEL, data).metric == "top1"
    unlabelled = api.tune(MODEL, {"x": data["x"]})
    assert unlabelled.metric == "relative_error"
    assert {r.top1 for r in unlabelled.rungs} == {None}
    assert api.tune(MODEL, data, metric="relative_error").metric == "relative_error"
    assert api.tune(MODEL, {"x": data["x"]}, data["labels"]).metric == "top1"


@pytest.mark.parametrize("tolerance", [-1.0, math.nan, math.inf, "0.1", None])
def test_tolerances_that_are_no_number_of_at_least_zero_are_refused(
    tolerance: Any, data: dict[str, np.ndarray]
) -> None:
    with pytest.raises(InvalidArgument, match="tolerance"):
        api.tune(MODEL, data, tolerance=tolerance)


def test_metrics_that_do_not_exist_or_lack_labels_are_refused(data: dict[str, np.ndarray]) -> None:
    with pytest.raises(InvalidArgument, match="top1, relative_error"):
        api.tune(MODEL, data, metric="f1")
    with pytest.raises(InvalidData, match="labels"):
        api.tune(MODEL, {"x": data["x"]}, metric="top1")


def test_the_host_has_no_speed_up_and_takes_the_smallest_error(data: dict[str, np.ndarray]) -> None:
    found = api.tune(MODEL, data, target="host")
    assert {r.estimated_speedup for r in found.rungs} == {1.0}
    assert found.recommended == "none"
