"""docs/tutorials/tune.md does what it says: its blocks run in order, and its figures are those that it
has.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import Commands
from tests.support.tutorials import TUTORIALS, run_page

pytest.importorskip("plotly")
pytest.importorskip("jinja2")
pytestmark = pytest.mark.isa_independent


def rungs(file: Path) -> dict[str, Any]:
    return {r["name"]: r for r in json.loads(file.read_text())["rungs"]}


def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands) -> None:
    kinds = run_page("tune.md", tmp_path, monkeypatch, commands)
    assert kinds == {"python": 3, "console": 5, "text": 3}
    text = (TUTORIALS / "tune.md").read_text(encoding="utf-8")

    before, after = rungs(tmp_path / "before.json"), rungs(tmp_path / "after.json")
    for name, r in before.items():  # the table of the page
        row = next(line for line in text.splitlines() if line[3:].startswith(f"{name} "))
        assert f"{100 * r['top1']:.2f} %" in row
        assert f"{100 * r['top1_agreement']:.2f} %" in row
    assert f"{100 * after['all/bf16']['top1']:.2f} %" in text
    assert before["all/bf16"]["loss"] > 0.1
    assert all((r["loss"] or 0) <= 0.01 for r in after.values())

    blame = json.loads((tmp_path / "blame.json").read_text())
    cause = blame["causes"][0]
    assert cause["instruction"] == "subtract"
    assert cause["kind"] == "cancellation"
    source = (tmp_path / "sensors.py").read_text().splitlines()
    assert "- mean * mean" in source[17]
    assert "sensors.py:18" in json.dumps(blame)
    assert "never" in (tmp_path / "sensors.toml").read_text()
    page = (tmp_path / "report.html").read_text()
    assert "variance = np.mean(x * x, axis=-1, keepdims=True) - mean * mean" in page
    pictures = re.findall(r"!\[[^]]*\]\((.*?)\)", text)
    assert pictures == ["tune_answers.png", "tune_cause.png"]
    assert all(10_000 < (TUTORIALS / name).stat().st_size < 200_000 for name in pictures)
