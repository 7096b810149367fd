"""docs/tutorials/torch.md and training.md do what they say: their blocks run in order."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from tests.support.tutorials import TUTORIALS, run_page

pytest.importorskip("torch")

pytestmark = [pytest.mark.isa_independent, pytest.mark.filterwarnings("ignore")]


def test_the_tutorial_of_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "pip install 'neuronsim[torch]'" in (TUTORIALS / "torch.md").read_text(encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    kinds = run_page("torch.md", tmp_path, monkeypatch, capsys)
    assert kinds == {"python": 5, "console": 3}
    sys.modules.pop("classifier", None)


@pytest.mark.exhaustive
def test_the_tutorial_of_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its picture is drawn from what its code gives."""
    spec = importlib.util.spec_from_file_location(
        "curves", TUTORIALS.parent / "make_training_curves.py"
    )
    assert spec is not None
    assert spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
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
