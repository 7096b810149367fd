"""Pages of docs/tutorials do what they say: their blocks run, and their commands print that."""

from __future__ import annotations

import re
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import Commands

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"


def shown(text: str) -> str:
    """A text without what terminals' widths decide."""
    return re.sub(r"\s+", " ", text).strip()


def check_commands(block: str, commands: Commands) -> None:
    """A console block: each command prints what is below it, where something is."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        name, *words = shlex.split(command)
        assert name == "neuronsim"
        status, out, err = commands.run(*words)
        printed = out + err
        assert (status != 0) == expected.startswith("neuronsim:"), printed
        assert printed.strip() or "--output" in command
        if expected.strip():
            assert shown(expected) == shown(printed)


def run_page(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands
) -> Counter[str]:
    """Runs a page's blocks in a folder, and gives how many of each kind there are."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    for variable in ("NEURON_CC_FLAGS", "FORCE_BF16"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    page = TUTORIALS / name
    names: dict[str, Any] = {}
    kinds: Counter[str] = Counter()
    known = set(sys.modules)
    text = page.read_text(encoding="utf-8")
    for kind, block in re.findall(r"^```(\w+)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        kinds[kind] += 1
        if kind == "python":
            exec(compile(block, str(page), "exec"), names)
        else:
            check_commands(block, commands)
    for module in set(sys.modules) - known:
        if (folder / f"{module}.py").exists():  # which the page has written
            del sys.modules[module]
    return kinds
