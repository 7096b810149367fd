"""CONTRIBUTING.md's example: a function of one variable is added by its steps, built and tested."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mutants.rows import ROOT
from tests.mutants.test_mutants import TREE, build, call, put_back

pytestmark = pytest.mark.isa_independent  # the copy is tested on every instruction set
MOST_PLACES = 8


@dataclass(frozen=True)
class Step:
    """One edit: lines that go after or before the line that holds `anchor`, indented as it is."""

    file: str
    where: str
    anchor: str
    lines: str

    def apply(self, tree: Path) -> None:
        path = tree / self.file
        lines = path.read_text().splitlines(keepends=True)
        (at,) = (n for n, line in enumerate(lines) if self.anchor in line)
        indent = re.match(" *", lines[at])[0]  # type: ignore[index]
        lines.insert(at + (self.where == "after"), textwrap.indent(self.lines, indent))
        path.write_text("".join(lines))


def chapter() -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    found = re.search(r"^## Adding a function of one variable\n(.*?)^## ", text, re.M | re.S)
    assert found is not None
    return found[1]


def steps() -> list[Step]:
    place = (
        r"^\d+\. In `([^`]+)` (after|before) `([^`]+)`, [^\n]*\n(?:   \S[^\n]*\n)*\n((?:       .*\n)+)"
    )
    found = re.findall(place, chapter(), re.M)
    return [Step(*where, textwrap.dedent(lines)) for *where, lines in found]


def commands() -> list[list[str]]:
    """What writes the generated files."""
    return [line.split()[1:] for line in re.findall(r"^    (python .*)$", chapter(), re.M)]


def copied(place: Path) -> Path:
    for name in (*TREE, "CONTRIBUTING.md"):
        if (ROOT / name).is_dir():
            put_back(ROOT / name, place / name)
        else:
            shutil.copyfile(ROOT / name, place / name)
    return place


def test_every_step_is_read_and_there_are_few() -> None:
    assert len(steps()) == len(re.findall(r"^\d+\. ", chapter(), re.M)) <= MOST_PLACES
    assert len(commands()) == 2


@pytest.mark.parametrize("step", steps(), ids=lambda s: s.file)
def test_each_step_has_its_place(step: Step) -> None:
    lines = (ROOT / step.file).read_text().splitlines()
    assert sum(step.anchor in line for line in lines) == 1


@pytest.mark.exhaustive
def test_the_steps_add_a_function(tmp_path: Path) -> None:
    """A quarter of an hour: the core is built, unoptimised."""
    pytest.importorskip("gmpy2", reason="the hardest inputs are decided by MPFR (extra `peers`)")
    pytest.importorskip("pybind11", reason="the core is built (extra `mutants`)")
    tree = copied(tmp_path)
    for step in steps():
        step.apply(tree)
    build(tree)
    environment = {"PYTHONPATH": str(tree / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    for arguments in commands():
        done = call([sys.executable, *arguments], tree, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
    everywhere = ["tests/test_ops_table.py", "tests/test_stub.py", "tests/test_contributing.py"]
    of_functions = ["core/test_functions.py", "core/test_function_edges.py", "core/test_math_tables.py"]
    of_functions += ["core/test_function_tables.py", "core/test_elementwise.py"]
    of_functions += ["reference/test_functions.py"]
    for selected in (everywhere, [*(f"tests/{f}" for f in of_functions), "-k", "sech"]):
        done = call([sys.executable, "-m", "pytest", "-q", *selected], tree, **environment)
        assert done.returncode == 0, done.stdout[-3000:]
        print(done.stdout.splitlines()[-1])
