"""The ladder: its order, its figures on the example, its choice of a rung, and its JSON."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tests.support.processors import every_processor

from neuronsim import api, dtypes, ops
from neuronsim.errors import InvalidArgument, InvalidData
from neuronsim.hlo.module import Computation, Instruction, Module, Shape
from neuronsim.hlo.parse import from_text
from neuronsim.tuning.ladder import recommend
from neuronsim.tuning.metrics import METRICS
from neuronsim.tuning.report import print_ladder
from neuronsim.tuning.results import RungResult, TuneResult
from neuronsim.tuning.rungs import LADDER

pytestmark = pytest.mark.isa_independent  # one test goes through all

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
measured = partial(api.tune, strategy="ladder")
MODEL = DIGITS / "model.hlo.pb"
NAMES = ["none", "matmult/tf32", "all/tf32", "matmult/fp16", "all/fp16", "matmult/bf16", "all/bf16"]


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    """The first 130 samples: two full batches and a nearly empty one."""
    with np.load(DIGITS / "test.npz") as archive:
        return {name: archive[name][:130] for name in archive.files}


@pytest.fixture(scope="module")
def result(data: dict[str, np.ndarray]) -> TuneResult:
    return measured(MODEL, data)


def without_times(result: TuneResult) -> str:
    body = json.loads(result.to_json())
    assert sorted(body.pop("seconds")) == ["ladder", "search"]
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
    changed = measured(module.replace_entry(Computation(entry.name, body, entry.root)), data)
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
    found = measured(module, {"x": [[12.0, 0.0]] * 6}, tolerance=0.5)
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
    for where, threads in zip(every_processor((1,)), itertools.cycle((1, 2)), strict=False):
        assert without_times(measured(MODEL, data, threads=threads)) == expected, (where, threads)


def test_json_is_strict_and_complete(result: TuneResult) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    body = json.loads(result.to_json(), parse_constant=refuse)
    assert body["schema"] == "neuronsim.tune/2"
    assert body["flag_line"] == result.flag_line
    fields = {f.name for f in dataclasses.fields(TuneResult)}
    assert set(body) == fields | {"schema", "flag_line"}
    for rung in body["rungs"]:
        assert set(rung) == {f.name for f in dataclasses.fields(RungResult)}
    assert result.to_json() == json.dumps(body, indent=1, sort_keys=True)


# ---- progress ------------------------------------------------------------------------------------


def test_progress_rises_to_its_total(data: dict[str, np.ndarray]) -> None:
    calls: list[tuple[str, int, int]] = []
    measured(MODEL, data, progress=lambda *call: calls.append(call))
    assert {name for name, _, _ in calls} == {"ladder"}
    done = [done for _, done, _ in calls]
    assert done == sorted(done)
    assert set(done) == {0, 7, 14, 21}  # seven settings on each of three batches
    assert {total for _, _, total in calls} == {7 * 3}


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
        loss=error if top1 is None else 0.9 - top1,
    )


def test_the_fastest_rung_within_the_tolerance_is_recommended() -> None:
    rungs = [rung("none", 4, 0.90), rung("slow", 3, 0.90), rung("good", 2, 0.89), rung("bad", 1, 0.5)]
    assert recommend(rungs, METRICS["top1"].budget(0.01)).name == "good"
    assert recommend(rungs, 0.009).name == "slow"
    assert recommend(rungs, 0.4).name == "bad"


def test_a_rung_that_loses_exactly_the_tolerance_is_within_it() -> None:
    # 0.9 - 0.89 is 0.010000000000000009 in float64.
    budget = METRICS["top1"].budget(0.01)
    assert recommend([rung("none", 2, 0.9), rung("b", 1, 0.89)], budget).name == "b"


def test_a_rung_that_gains_accuracy_fits_any_tolerance() -> None:
    assert recommend([rung("none", 2, 0.9), rung("b", 1, 0.95)], 0.0).name == "b"


def test_ties_in_time_take_the_smaller_error_then_the_earlier_rung() -> None:
    rungs = [rung("none", 2, 0.9), rung("b", 1, 0.9, 0.02), rung("c", 1, 0.9, 0.01)]
    assert recommend(rungs, 0.0).name == "c"
    assert recommend([*rungs, rung("d", 1, 0.9, 0.01)], 0.0).name == "c"


def test_the_reference_is_recommended_where_nothing_else_fits() -> None:
    rungs = [rung("none", 9, 0.9), rung("b", 1, 0.1, math.inf)]
    assert recommend(rungs, 0.0).name == "none"
    assert recommend([rung("none", 9), rung("b", 1, error=math.inf)], 10.0).name == "none"


def test_relative_error_is_compared_with_the_tolerance_itself() -> None:
    rungs = [rung("none", 3), rung("b", 2, error=0.01), rung("c", 1, error=0.011)]
    assert recommend(rungs, 0.01).name == "b"
    assert recommend(rungs, 0.02).name == "c"


def test_the_tolerance_changes_the_recommendation(data: dict[str, np.ndarray]) -> None:
    found = measured(MODEL, {"x": data["x"]}, tolerance=1e-3)
    assert found.recommended == "all/tf32"
    assert [recommend(found.rungs, t).name for t in (0.0, 0.01)] == ["none", "all/bf16"]


def test_the_usual_tolerance_is_one_per_cent_in_decibels_too(data: dict[str, np.ndarray]) -> None:
    error = measured(MODEL, {"x": data["x"]})
    noise = measured(MODEL, {"x": data["x"]}, metric="sqnr")
    assert (error.tolerance, noise.tolerance) == (0.01, 40.0)
    assert error.recommended == noise.recommended
    strict = measured(MODEL, {"x": data["x"]}, metric="sqnr", tolerance=60)
    assert strict.recommended == measured(MODEL, {"x": data["x"]}, tolerance=1e-3).recommended


def test_the_metric_follows_from_the_data_unless_it_is_given(
    result: TuneResult, data: dict[str, np.ndarray]
) -> None:
    assert result.metric == "top1"
    unlabelled = measured(MODEL, {"x": data["x"]})
    assert unlabelled.metric == "relative_error"
    assert {r.top1 for r in unlabelled.rungs} == {None}
    assert measured(MODEL, data, metric="relative_error").metric == "relative_error"
    assert measured(MODEL, {"x": data["x"]}, data["labels"]).metric == "top1"


@pytest.mark.parametrize("tolerance", [-1.0, math.nan, math.inf, "0.1"])
def test_tolerances_that_are_no_number_of_at_least_zero_are_refused(
    tolerance: Any, data: dict[str, np.ndarray]
) -> None:
    with pytest.raises(InvalidArgument, match="tolerance"):
        measured(MODEL, data, tolerance=tolerance)


def test_metrics_that_do_not_exist_or_lack_labels_are_refused(data: dict[str, np.ndarray]) -> None:
    with pytest.raises(InvalidArgument, match=r"top1, top5, .*module:function"):
        measured(MODEL, data, metric="f1")
    with pytest.raises(InvalidArgument, match=r"a metric is a name or a function .*, not 3"):
        measured(MODEL, data, metric=3)
    with pytest.raises(InvalidData, match="labels"):
        measured(MODEL, {"x": data["x"]}, metric="top1")


def test_the_host_has_no_speed_up_and_takes_the_smallest_error(data: dict[str, np.ndarray]) -> None:
    found = measured(MODEL, data, target="host")
    assert {r.estimated_speedup for r in found.rungs} == {1.0}
    assert found.recommended == "none"


# ---- several outputs -----------------------------------------------------------------------------

OUTPUTS = """HloModule outputs
first {{ a = f32[] parameter(0)  c = s32[] parameter(1)  b = f32[] parameter(2)  d = s32[] parameter(3)
  e = pred[] compare(a, b), direction=GT
  f = f32[] select(e, a, b)
  g = s32[] select(e, c, d)
  ROOT t = (f32[], s32[]) tuple(f, g) }}
ENTRY main {{
  x = f32[16,64] parameter(0)
  w = f32[64,8] constant({weights})
  logits = f32[16,8] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  million = f32[] constant(1000000)
  large = f32[16,8] broadcast(million), dimensions={{}}
  loss = f32[16,8] add(large, large)
  low = f32[] constant(-100)
  null = s32[] constant(0)
  number = s32[16,8] iota(), iota_dimension=1
  most = (f32[16], s32[16]) reduce(logits, number, low, null), dimensions={{1}}, to_apply=first
  class = s32[16] get-tuple-element(most), index=1
  fifty = s32[] constant(50000)
  offset = s32[16] broadcast(fifty), dimensions={{}}
  ids = s32[16] add(class, offset)
  zero = f32[] constant(0)
  zeros = f32[16,8] broadcast(zero), dimensions={{}}
  above = pred[16,8] compare(logits, zeros), direction=GT
  never = f32[16,8] multiply(zeros, zeros)
  nan = f32[16,8] divide(never, never)
  none = f32[16,0] slice(logits), slice={{[0:16],[3:3]}}
  ROOT r = {shape} tuple({names})
}}"""
SHAPES = {
    **dict.fromkeys(("logits", "loss", "never", "nan"), "f32[16,8]"),
    "ids": "s32[16]",
    "above": "pred[16,8]",
    "none": "f32[16,0]",
}


def tuned(*names: str, **options: Any) -> TuneResult:
    rng = np.random.default_rng(4)
    alike = rng.standard_normal((64, 1)) + 0.02 * rng.standard_normal((64, 8))
    rows = alike.astype(np.float32)  # so that a few classes change under bfloat16
    weights = "{ " + ", ".join("{ " + ", ".join(map(str, row)) + " }" for row in rows) + " }"
    shape = f"({', '.join(SHAPES[n] for n in names)})"
    text = OUTPUTS.format(weights=weights, shape=shape, names=", ".join(names))
    x = rng.standard_normal((200, 64)).astype(np.float32)
    return measured(from_text(text), {"x": x}, **options)


def last(result: TuneResult) -> RungResult:
    return next(r for r in result.rungs if r.name == "all/bf16")


def test_integers_beside_an_output_do_not_change_its_error() -> None:
    alone, beside = tuned("logits"), tuned("logits", "ids")
    for one, two in zip(alone.rungs, beside.rungs, strict=True):
        assert one.relative_error == two.relative_error == two.outputs[0].relative_error
        assert one.max_error == two.max_error
    assert last(beside).relative_error == pytest.approx(3e-3, rel=0.5)


def test_integers_are_compared_exactly_and_need_the_tolerance_too() -> None:
    result = tuned("logits", "ids", "above", tolerance=0.01)
    rung = last(result)
    logits, ids, above = rung.outputs
    assert (ids.index, ids.instruction, ids.type) == (1, "ids", "int32[16]")
    assert ids.relative_error is ids.max_error is logits.differing is None
    assert ids.error == ids.differing
    assert ids.differing is not None
    # Of 200 samples some have another class: each is a difference, however large the number is.
    assert ids.differing == round(200 * ids.differing) / 200 > 0
    assert 0 < above.error < 1
    assert rung.worst_error == max(o.error for o in rung.outputs)
    assert rung.loss == rung.worst_error == ids.error
    strict = tuned("logits", "ids", tolerance=ids.differing / 2)
    assert strict.recommended_rung.outputs[1].error <= ids.differing / 2
    loose = tuned("logits", "ids", tolerance=max(ids.differing, logits.error))
    assert loose.recommended == tuned("logits", tolerance=1.0).recommended


def test_a_model_of_integers_alone_has_no_relative_error() -> None:
    result = tuned("ids", tolerance=0.0)
    assert {r.relative_error for r in result.rungs} == {r.max_error for r in result.rungs} == {None}
    assert all(o.error == 0 for o in result.recommended_rung.outputs)
    assert last(result).worst_error > 0
    assert result.recommended != "all/bf16"


def test_a_large_output_does_not_drown_a_small_one() -> None:
    alone, beside = tuned("logits"), tuned("loss", "logits")
    assert last(beside).relative_error == last(alone).relative_error
    assert last(beside).outputs[0].relative_error < last(alone).relative_error
    assert beside.recommended == alone.recommended


def test_nan_zero_and_empty_outputs_that_float32_has_too_are_no_errors() -> None:
    result = tuned("nan", "never", "none", tolerance=0.0)
    for rung in result.rungs:
        assert [o.error for o in rung.outputs] == [0.0, 0.0, 0.0]
        assert [o.not_finite for o in rung.outputs] == [200 * 8, 0, 0]
        assert rung.not_finite == 200 * 8


def test_an_output_that_only_float32_has_as_zeros_is_infinitely_wrong() -> None:
    # 1 + 2^-9 - 1 - 2^-9 is 0 in float32; bfloat16 loses the second term and keeps the fourth.
    shape = Shape(dtypes.float32, (4, 2))
    x = Instruction("x", "parameter", shape, (), {"number": 0})
    low = Instruction("low", "parameter", shape, (), {"number": 1})
    up = Instruction("up", "add", shape, ("x", "low"))
    down = Instruction("down", "subtract", shape, ("up", "x"))
    y = Instruction("y", "subtract", shape, ("down", "low"))
    module = Module("zeros", "main", (Computation("main", (x, low, up, down, y), "y"),))
    ones = np.ones((4, 2), np.float32)
    found = measured(module, {"x": ones, "low": ones / 512}, tolerance=1e6)
    assert (last(found).relative_error, last(found).max_error) == (math.inf, 2.0**-9)
    assert found.recommended != "all/bf16"


def test_complex_outputs_have_errors_of_their_own() -> None:
    shape = Shape(dtypes.float32, (4, 2))
    x = Instruction("x", "parameter", shape, (), {"number": 0})
    e = Instruction("e", "exponential", shape, ("x",))
    z = Instruction("z", "complex", Shape(dtypes.complex64, (4, 2)), ("x", "e"))
    module = Module("waves", "main", (Computation("main", (x, e, z), "z"),))
    values = np.random.default_rng(1).standard_normal((8, 2)).astype(np.float32)
    found = last(measured(module, {"x": values}, target="host"))
    program = api.compile(module, auto_cast="all", auto_cast_type="bf16", target="host")
    low = np.concatenate([np.asarray(program(values[n : n + 4])) for n in (0, 4)])
    exact = np.concatenate(
        [
            np.asarray(api.compile(module, auto_cast="none", target="host")(values[n : n + 4]))
            for n in (0, 4)
        ]
    )
    error = np.linalg.norm((low - exact).astype(np.complex128)) / np.linalg.norm(exact)
    assert found.relative_error == pytest.approx(error, rel=1e-6)
    assert found.relative_error > 0


# ---- loops ---------------------------------------------------------------------------------------

SAMPLER = """HloModule sampler
body {
  p = (s32[], f32[4,2]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4,2] get-tuple-element(p), index=1
  y = f32[4,2] tanh(x)
  z = f32[4,2] exponential(y)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[4,2]) tuple(next, z)
}
condition {
  p = (s32[], f32[4,2]) parameter(0)
  x = f32[4,2] get-tuple-element(p), index=1
  s = f32[1,1] slice(x), slice={[0:1],[0:1]}
  f = f32[] reshape(s)
  n = f32[] constant(0.5)
  ROOT c = pred[] compare(f, n), direction=LT
}
ENTRY main {
  x = f32[4,2] parameter(0)
  null = s32[] constant(0)
  given = (s32[], f32[4,2]) tuple(null, x)
  loop = (s32[], f32[4,2]) while(given), condition=condition, body=body
  ROOT z = f32[4,2] get-tuple-element(loop), index=1
}"""


def test_what_is_assumed_of_loops_is_in_the_figures_and_can_be_given() -> None:
    module, x = from_text(SAMPLER), {"x": np.full((4, 2), 0.1, np.float32)}
    one, ten = (measured(module, x, trips=t) for t in (None, {"loop": 10}))
    assert json.loads(one.to_json())["loops"] == [{"evidence": "assumed", "name": "loop", "trips": 1}]
    assert json.loads(ten.to_json())["loops"] == [{"evidence": "given", "name": "loop", "trips": 10}]
    seconds = [r.rungs[0].estimated_seconds for r in (one, ten)]
    assert 4 < seconds[1] / seconds[0] < 10  # its condition runs once more than its body
    with pytest.raises(InvalidArgument, match="no loop 'lop'"):
        measured(module, x, trips={"lop": 3})


def printed(result: TuneResult) -> str:
    console = Console(width=100, file=io.StringIO())
    print_ladder(result, console)
    assert isinstance(console.file, io.StringIO)
    return " ".join(console.file.getvalue().split())


def test_the_table_says_what_it_assumes_and_lists_every_output() -> None:
    module, x = from_text(SAMPLER), {"x": np.full((4, 2), 0.1, np.float32)}
    text = printed(measured(module, x))
    assert "Trips of loops in the estimate: loop 1 assumed" in text
    assert "--trips N or NAME=N" in text
    text = printed(tuned("logits", "ids", "nan"))
    assert "differ" in text
    assert "output_1 (ids)" in text
    assert "1600 values of output_2 are not finite" in text
    assert "integers that differ" in text
    plain = printed(tuned("logits"))
    assert not any(word in plain for word in ("Trips", "differ", "worst output", "branch"))


def test_an_error_just_above_the_tolerance_looks_larger_than_it() -> None:
    found = tuned("logits")
    rungs = [dataclasses.replace(r, relative_error=0.0101) for r in found.rungs]
    assert "1.01e-02" in printed(dataclasses.replace(found, tolerance=0.01, rungs=tuple(rungs)))
