"""Pages of docs/tutorials do what they say: their blocks run, and their commands print that."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from neuronsim import cli

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"


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
    """A console block: each command prints what is below it, where something is."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        status, printed = run(command, capsys)
        assert (status != 0) == expected.startswith("neuronsim:"), printed
        assert printed.strip() or "--output" in command
        if expected.strip():
            assert shown(expected) == shown(printed)


def run_page(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Counter[str]:
    """Runs a page's blocks in a folder, and gives how many of each kind there are."""
    monkeypatch.chdir(folder)
    for variable in ("NEURON_CC_FLAGS", "FORCE_BF16"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    page = TUTORIALS / name
    names: dict[str, Any] = {}
    kinds: Counter[str] = Counter()
    text = page.read_text(encoding="utf-8")
    for kind, block in re.findall(r"^```(\w+)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        kinds[kind] += 1
        if kind == "python":
            exec(compile(block, str(page), "exec"), names)
        else:
            check_commands(block, capsys)
    return kinds
