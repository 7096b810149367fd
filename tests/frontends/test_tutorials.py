"""The pages of docs/tutorials on front doors do what they say: their blocks run in order, and their
commands print that. tests/tuning has the page on tuning.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.commands import Commands
from tests.support.scripts import load_script
from tests.support.tutorials import TUTORIALS, run_page

pytestmark = [pytest.mark.isa_independent, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize(
    ("peer", "kinds"),
    [
        ("onnx", {"python": 3, "console": 4}),
        ("jax", {"python": 5, "console": 1}),
        ("torch", {"python": 5, "console": 3}),
    ],
)
def test_the_tutorial_of_a_front_door(
    peer: str,
    kinds: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commands: Commands,
) -> None:
    pytest.importorskip(peer)
    text = (TUTORIALS / f"{peer}.md").read_text(encoding="utf-8")
    assert f"pip install 'neuronsim[{peer}]'" in text
    assert run_page(f"{peer}.md", tmp_path, monkeypatch, commands) == kinds


@pytest.mark.exhaustive
def test_the_tutorial_of_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its picture is drawn from what its code gives."""
    pytest.importorskip("torch")
    maker = load_script("docs/make_training_curves.py")
    monkeypatch.chdir(tmp_path)
    runs = maker.curves()
    assert {len(losses) for losses in runs.values()} == {300}
    drawn = [re.findall(r"[\d.]+,[\d.]+", line) for line in maker.picture(runs).splitlines()]
    kept = [re.findall(r"[\d.]+,[\d.]+", line) for line in maker.PICTURE.read_text().splitlines()]
    for mine, theirs in zip(drawn, kept, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            pairs = zip(map(float, a.split(",")), map(float, b.split(",")), strict=True)
            assert all(abs(x - y) <= 0.2 for x, y in pairs)
    assert "stochastic" in capsys.readouterr().out
