"""`neuronsim cost`: what it prints and writes, at any width."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from neuronsim.tuning.assumptions import ASSUMPTIONS
from neuronsim.tuning.cost_order import SETTINGS_BY_SPEED
from tests.support.commands import Commands

pytestmark = [pytest.mark.isa_independent, pytest.mark.usefixtures("restored_settings")]

MODEL = str(Path(__file__).parents[1] / "examples" / "digits" / "model.hlo.pb")


def test_without_a_setting_every_one_of_awss_table_is_estimated(commands: Commands) -> None:
    found = json.loads(commands.ok("cost", MODEL, "--json", "-"))
    assert [s["setting"] for s in found["settings"]] == list(SETTINGS_BY_SPEED["neuronx-cc"])
    for s in found["settings"]:
        assert 0 < s["overlapped_seconds"] <= s["timeline_seconds"] <= s["seconds"]
    assert {a["subject"] for a in found["assumptions"]} == {a.subject for a in ASSUMPTIONS}
    out = commands.ok("cost", MODEL)
    assert out.startswith(MODEL)
    names = [
        "none",
        *(f"{level}/{t}" for t in ("tf32", "fp16", "bf16") for level in ("matmult", "all")),
    ]
    assert re.findall(r"^ (\S+) +[\d.]+ us", out, flags=re.MULTILINE) == names
    for told in found["disagreements"]:
        assert " ".join(told.split()) in " ".join(out.split())


def test_a_setting_is_estimated_instruction_by_instruction(commands: Commands, tmp_path: Path) -> None:
    path = tmp_path / "cost.json"
    out = commands.ok("cost", MODEL, "--auto-cast", "all", "--json", str(path))
    found = json.loads(path.read_text())
    assert found["schema"] == "neuronsim.cost/1"
    total = sum(i["seconds"] for i in found["instructions"])
    assert total == pytest.approx(sum(found["by_engine"].values()))
    dearest = max(found["instructions"], key=lambda i: i["seconds"])
    assert f"{dearest['name']} ({dearest['op_name']})" in out
    ends = [e["end"] for e in found["timeline"]]
    assert max(ends) == found["timeline_seconds"]


def test_inf1_is_estimated_by_its_rates(commands: Commands) -> None:
    settings = json.loads(commands.ok("cost", MODEL, "--target", "inf1", "--json", "-"))["settings"]
    assert [s["setting"] for s in settings] == list(SETTINGS_BY_SPEED["neuron-cc"])
    seconds = [s["seconds"] for s in settings]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[-1] < seconds[0]


def test_inf2_is_estimated_as_trn1(commands: Commands) -> None:
    found = []
    for target in ("trn1", "inf2"):
        body = json.loads(commands.ok("cost", MODEL, "--target", target, "--json", "-"))
        found.append(body["settings"])
    assert found[0] == found[1]


def test_the_assumptions_are_printed_with_their_sources(commands: Commands) -> None:
    out = " ".join(commands.ok("cost").split())
    for a in ASSUMPTIONS:
        assert f"{a.subject}: {a.text} [{a.source}]" in out


def test_a_file_of_figures_needs_a_model(commands: Commands, tmp_path: Path) -> None:
    assert "name the model" in commands.refused("cost", "--json", str(tmp_path / "a.json"))
