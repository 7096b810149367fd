"""docs/tutorials/onnx.md does what it says: its blocks run in order, and its commands print that."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from neuronsim import cli

pytest.importorskip("onnx")

pytestmark = pytest.mark.isa_independent

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "onnx.md"


def shown(text: str) -> str:
    """A text without what terminals' widths decide."""
    return re.sub(r"\s+", " ", text).strip()


def run(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The status and the output of a line that begins with neuronsim."""
    name, *arguments = shlex.split(command)
    assert name == "neuronsim"
    capsys.readouterr()
    try:
        status = int(cli.main(arguments) or 0)
    except SystemExit as end:
        status = int(end.code or 0)
    printed = capsys.readouterr()
    return status, printed.out + printed.err


def check_commands(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        status, printed = run(command, capsys)
        assert (status != 0) == expected.startswith("neuronsim:"), printed
        assert printed.strip() or "--output" in command
        if expected.strip():
            assert shown(expected) == shown(printed)


def test_the_tutorial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("NEURON_CC_FLAGS", "FORCE_BF16"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    text = PAGE.read_text(encoding="utf-8")
    assert "pip install 'neuronsim[onnx]'" in text
    names: dict[str, Any] = {}
    kinds = []
    for kind, block in re.findall(r"^```(\w+)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        kinds.append(kind)
        if kind == "python":
            exec(compile(block, str(PAGE), "exec"), names)
        else:
            check_commands(block, capsys)
    assert kinds.count("python") == 3
    assert kinds.count("console") == 4
    assert (tmp_path / "planned.onnx").stat().st_size
