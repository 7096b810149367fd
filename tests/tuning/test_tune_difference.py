"""Two runs of tune compared: what changed, and whether it is more than noise."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from neuronsim import cli
from neuronsim.errors import InvalidData
from neuronsim.tuning.tune_difference import compare_runs

pytestmark = [pytest.mark.isa_independent, pytest.mark.usefixtures("restored_settings")]


def figures(name: str, loss: float | None, interval: list[float] | None) -> dict[str, Any]:
    return {"name": name, "loss": loss, "interval": interval, "estimated_seconds": 1e-5}


@pytest.fixture
def run() -> dict[str, Any]:
    return {
        "schema": "neuronsim.tune/2",
        "model": "net.onnx",
        "data_fingerprint": "abc",
        "samples": 100,
        "metric": "top1",
        "tolerance": 0.01,
        "recommended": "all/bf16",
        "chosen": "",
        "rungs": [
            figures("none", 0.0, [0.0, 0.0]),
            figures("all/fp16", 0.02, [0.0, 0.05]),
            figures("all/bf16", 0.01, [-0.01, 0.03]),
        ],
        "plans": [],
    }


def test_a_run_and_itself_do_not_differ(run: dict[str, Any]) -> None:
    found = compare_runs(run, run)
    assert not found.differs
    assert {s.verdict for s in found.settings} == {"same"}


@pytest.mark.parametrize(
    ("loss", "interval", "verdict"),
    [
        (0.03, [0.0, 0.06], "within noise"),
        (0.20, [0.15, 0.25], "more than noise"),
        (0.20, [0.01, 0.40], "within noise"),  # the second run cannot tell it from 0.02
        (0.20, None, "noise not known"),
        (None, None, "more than noise"),  # it is not finite any more
    ],
)
def test_a_loss_that_changed_is_judged_by_the_intervals(
    run: dict[str, Any], loss: float | None, interval: list[float] | None, verdict: str
) -> None:
    after = copy.deepcopy(run)
    after["rungs"][1] |= {"loss": loss, "interval": interval}
    found = compare_runs(run, after)
    assert [s.verdict for s in found.settings] == ["same", verdict, "same"]
    assert found.differs == (verdict != "within noise")


def test_conditions_recommendation_and_kept_instructions_are_told(
    run: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    after = copy.deepcopy(run)
    kept = [{"name": "norm/sum.1"}]
    plan = {"figures": figures("plan-1", 0.0, [0.0, 0.0]), "kept": kept}
    after |= {"data_fingerprint": "def", "chosen": "plan-1", "plans": [plan]}
    found = compare_runs(run, after)
    assert found.conditions == {"data_fingerprint": ("abc", "def")}
    assert found.recommended == ("all/bf16", "plan-1")
    assert found.kept_in_second == ("norm/sum.1",)
    assert found.settings[-1].first_loss is None
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, document in zip(paths, (run, after), strict=True):
        path.write_text(json.dumps(document))
    words = ["diff", *map(str, paths)]
    assert cli.main(words) == 1
    out = capsys.readouterr().out
    assert "data fingerprint: abc in the first run, def in the second" in out
    assert "recommended: all/bf16, then plan-1" in out
    assert "kept in float32 by the second alone: norm/sum.1" in out
    assert cli.main([*words, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["differs"] is True
    assert cli.main(["diff", str(paths[0]), str(paths[0])]) == 0


def test_a_file_cut_short_is_named(
    run: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, cut = tmp_path / "run.json", tmp_path / "cut.json"
    whole.write_text(json.dumps(run))
    cut.write_text(json.dumps(run)[:99])
    assert cli.main(["diff", str(whole), str(cut)]) != 0
    assert f"{cut} is no JSON" in capsys.readouterr().err.replace("\n", " ")


def test_a_plan_is_no_run(run: dict[str, Any]) -> None:
    with pytest.raises(InvalidData, match=r"not neuronsim\.plan/3"):
        compare_runs(run, {"schema": "neuronsim.plan/3"})


@pytest.mark.parametrize(
    "damaged",
    [
        {"rungs": None},
        {"rungs": 5},
        {"rungs": [figures("none", 0.0, [0.0])]},
        {"rungs": [figures("none", 0.0, [0.0, 0.0]) | {"name": None}]},
        {"rungs": [figures("none", 0.0, [0.0, 0.0]) | {"loss": "small"}]},
        {"plans": [{"figures": figures("plan-1", 0.0, [0.0, 0.0])}]},
    ],
    ids=["none", "number", "interval", "name", "loss", "kept"],
)
def test_a_damaged_run_is_refused(run: dict[str, Any], damaged: dict[str, Any]) -> None:
    with pytest.raises(InvalidData, match=r"neuronsim\.tune/\d+ lacks settings"):
        compare_runs(run, run | damaged)
    with pytest.raises(InvalidData, match="without a schema"):
        compare_runs(run, [])  # type: ignore[arg-type]
