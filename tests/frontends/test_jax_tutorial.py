"""docs/tutorials/jax.md does what it says: its blocks run in order."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from neuronsim import cli

pytest.importorskip("jax", reason="the peer jax is not installed (extra `jax`)")

pytestmark = pytest.mark.isa_independent

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "jax.md"


def test_the_tutorial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "train", raising=False)
    for name in ("NEURON_CC_FLAGS", "FORCE_BF16"):
        monkeypatch.delenv(name, raising=False)
    text = PAGE.read_text(encoding="utf-8")
    assert "pip install 'neuronsim[jax]'" in text
    names: dict[str, Any] = {}
    kinds = []
    for kind, block in re.findall(r"^```(\w+)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        kinds.append(kind)
        if kind == "python":
            exec(compile(block, str(PAGE), "exec"), names)
        else:
            words = block.removeprefix("$ neuronsim ").split()
            assert not cli.main(words)
            assert 'NEURON_CC_FLAGS="--auto-cast' in capsys.readouterr().out
    assert kinds == ["python", "python", "console", "python", "python", "python"]
    monkeypatch.delitem(sys.modules, "train", raising=False)
