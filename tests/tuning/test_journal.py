"""The journal: what is finished is not run again, also after a kill; other work is refused."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.processors import every_processor
from tests.tuning.variance_network import NETWORK

from neuronsim import api
from neuronsim.errors import InvalidArgument
from neuronsim.profiles import Profile
from neuronsim.tuning.journal import Journal, from_json, to_json
from neuronsim.tuning.results import TuneResult
from neuronsim.tuning.runner import Runner
from neuronsim.tuning.statistics import Scores, Statistics, output_statistics, sketch

pytestmark = pytest.mark.isa_independent  # one test goes through all

MODEL = NETWORK.encode()
OPTIONS: dict[str, Any] = {"metric": "relative_error", "tolerance": 0.02, "base": "all/bf16"}


def without_times(result: TuneResult) -> str:
    body = json.loads(result.to_json())
    body.pop("seconds")
    return json.dumps(body)


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)}


@pytest.fixture(scope="module")
def whole(data: dict[str, np.ndarray]) -> TuneResult:
    return api.tune(MODEL, data, **OPTIONS)


def test_statistics_come_back_from_json_with_the_same_bits() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 6, 5))
    own = output_statistics(a, b, correlates=True, mantissa_bits=23)
    scored = {"m": Scores(6, 6.0, 0.1, 0.2, 1 / 3)}
    s = Statistics(6, (own,), scored, {"i": 2}, sketch([a], [b], 3), (a,))
    again = from_json(json.loads(json.dumps(to_json(s))))
    assert again.results[0].tobytes() == a.tobytes()
    assert to_json(again) == to_json(s)


def test_a_journal_that_is_resumed_runs_nothing_again(
    data: dict[str, np.ndarray], whole: TuneResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.jsonl"
    assert without_times(api.tune(MODEL, data, journal=path, **OPTIONS)) == without_times(whole)
    before = path.read_bytes()

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a finished trial is run again")

    monkeypatch.setattr("neuronsim.tuning.runner.run_trials", refuse)
    again = api.tune(MODEL, data, journal=path, resume=True, **OPTIONS)
    assert without_times(again) == without_times(whole)
    assert path.read_bytes() == before


def test_a_kill_loses_no_finished_trial(
    data: dict[str, np.ndarray], whole: TuneResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, inputs, model = (tmp_path / n for n in ("run.jsonl", "x.npz", "network.hlo"))
    np.savez(inputs, x=data["x"])
    model.write_text(NETWORK)
    words = ["tune", str(model), "--data", str(inputs), "--metric", "relative_error"]
    words += ["--tolerance", "0.02", "--base", "all/bf16", "--journal", str(path)]
    killed = subprocess.Popen(
        [sys.executable, "-m", "neuronsim", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and killed.poll() is None:
        if path.exists() and path.read_bytes().count(b"\n") > 30:
            break
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    with path.open("ab") as file:
        file.write(b'{"trial": "half a li')
    finished = path.read_bytes().count(b"\n") - 1
    assert finished >= 30

    runs: list[int] = []
    finish = Runner._finish

    def counted(self: Runner, group: Any, shard: int, found: Any) -> None:
        runs.append(len(group))
        finish(self, group, shard, found)

    monkeypatch.setattr(Runner, "_finish", counted)
    again = api.tune(MODEL, data, journal=path, resume=True, **OPTIONS)
    assert without_times(again) == without_times(whole)
    assert sum(runs) + finished == path.read_bytes().count(b"\n") - 1  # each once
    keys = [
        (line["trial"], line["shard"]) for line in map(json.loads, path.read_text().splitlines()[1:])
    ]
    assert len(set(keys)) >= len(keys) - 40  # a sketch asks for a known trial once more


def test_a_journal_of_other_work_is_refused(data: dict[str, np.ndarray], tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    api.tune(MODEL, data, journal=path, strategy="ladder", **OPTIONS)
    with pytest.raises(InvalidArgument, match="there already"):
        api.tune(MODEL, data, journal=path, strategy="ladder", **OPTIONS)
    other = {"x": data["x"][:40]}
    with pytest.raises(InvalidArgument, match="another model, data set"):
        api.tune(MODEL, other, journal=path, resume=True, strategy="ladder", **OPTIONS)


def test_a_journal_is_of_a_seed_only_where_one_decides_bits(
    data: dict[str, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stochastic = Profile(rounding="stochastic")
    plan = api.plan(MODEL, auto_cast="all")
    draws = {n: dataclasses.replace(d, rounding="stochastic") for n, d in plan.decisions.items()}
    of_rung = {"rungs": [dataclasses.replace(plan, decisions=draws)]}
    cases: list[tuple[dict[str, Any], bool]] = [({}, True), ({"profile": stochastic}, False)]
    for n, (setting, resumes) in enumerate([*cases, (of_rung, False)]):
        own = {"journal": tmp_path / f"{n}.jsonl", "strategy": "ladder", **OPTIONS, **setting}
        monkeypatch.setenv("NEURON_RT_STOCHASTIC_ROUNDING_SEED", "3")
        first = api.tune(MODEL, data, **own)
        assert without_times(api.tune(MODEL, data, resume=True, **own)) == without_times(first)
        monkeypatch.setenv("NEURON_RT_STOCHASTIC_ROUNDING_SEED", "4")
        if resumes:
            assert without_times(api.tune(MODEL, data, resume=True, **own)) == without_times(first)
            continue
        with pytest.raises(InvalidArgument, match="or seed of stochastic rounding"):
            api.tune(MODEL, data, resume=True, **own)


@pytest.mark.parametrize("text", ["{}\n", '{"schema": "other"}\n', "no json\n"])
def test_files_that_are_no_journal_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match="journal"):
        Journal(path, "key", resume=True)
    assert path.read_text() == text


def test_figures_that_are_not_finite_are_resumed(tmp_path: Path) -> None:
    # Float16 makes logits of 70000 infinite, and then a sample's cross entropy NaN.
    model = b"HloModule m ENTRY e { x = f32[2,3] parameter(0) ROOT y = f32[2,3] add(x, x) }"
    data = {"x": np.full((4, 3), 35000, np.float32), "labels": np.arange(4) % 3}
    path = tmp_path / "run.jsonl"
    given: dict[str, Any] = {"metric": "cross_entropy", "strategy": "ladder", "journal": path}
    first = api.tune(model, data, **given)
    assert "NaN" in path.read_text()
    assert without_times(api.tune(model, data, resume=True, **given)) == without_times(first)


@pytest.mark.parametrize(
    ("part", "by"), [('"samples": 3', '"samples": 4'), ('"samples"', '"s"'), ('"trial"', '"other"')]
)
def test_a_changed_line_is_refused_with_its_number(part: str, by: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    journal = Journal(path, "key", resume=False)
    journal.add((("trial", shard), Statistics(3, ())) for shard in range(2))
    journal.close()
    *before, last = path.read_text().splitlines()
    path.write_text("\n".join([*before, last.replace(part, by, 1)]) + "\n")
    with pytest.raises(InvalidArgument, match=r"damaged at line 3.* without the line its trial runs"):
        Journal(path, "key", resume=True)


# ---- the same JSON -------------------------------------------------------------------------------


@pytest.mark.usefixtures("restored_processor")
def test_the_whole_search_has_the_same_json_on_every_isa_and_thread_count_D1(
    data: dict[str, np.ndarray], whole: TuneResult
) -> None:
    for where in every_processor((1,)):
        for threads in (1, 2):
            found = api.tune(MODEL, data, threads=threads, **OPTIONS)
            assert without_times(found) == without_times(whole), where


def test_executors_give_the_same_json_in_whatever_order_they_end(
    data: dict[str, np.ndarray], whole: TuneResult
) -> None:
    with ThreadPoolExecutor(2) as threads:
        assert without_times(api.tune(MODEL, data, executor=threads, **OPTIONS)) == without_times(whole)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        found = api.tune(MODEL, data, executor=processes, strategy="ladder", **OPTIONS)
    alone = api.tune(MODEL, data, strategy="ladder", **OPTIONS)
    assert without_times(found) == without_times(alone)
