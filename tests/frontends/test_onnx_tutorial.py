"""docs/tutorials/onnx.md does what it says: its blocks run in order, and its commands print that."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.tutorials import TUTORIALS, run_page

pytest.importorskip("onnx")

pytestmark = pytest.mark.isa_independent


def test_the_tutorial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "pip install 'neuronsim[onnx]'" in (TUTORIALS / "onnx.md").read_text(encoding="utf-8")
    kinds = run_page("onnx.md", tmp_path, monkeypatch, capsys)
    assert kinds == {"python": 3, "console": 4}
    assert (tmp_path / "planned.onnx").stat().st_size
