"""What the repository promises about itself: rule labels, README, licence, no foreign addresses."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuronsim.profiles import Profile
from tests import counts
from tests.support.places import ROOT

pytestmark = pytest.mark.isa_independent  # documents and sources

NUMERICS = ROOT / "docs" / "numerics.md"
README = ROOT / "README.md"
LABEL = re.compile(r"\b([FCSERMAHDQ]\d{1,2})\b")
# Names that look like labels: Float8 formats and hexadecimal digits are no rules.
DEFINED = re.compile(r"\*\*([FCSERMAHDQ]\d{1,2})\*\*")


def rules() -> set[str]:
    return set(DEFINED.findall(NUMERICS.read_text()))


# A string or a comment of Python, whichever begins first: the tokenizer takes seconds for the package.
STRINGS_AND_COMMENTS = re.compile(
    r'''"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|#[^\n]*''', re.DOTALL
)


def comments_of_python(path: Path) -> Iterator[str]:
    """Comments and strings, docstrings and messages among them."""
    yield from STRINGS_AND_COMMENTS.findall(path.read_text())


def comments_of_cpp(path: Path) -> Iterator[str]:
    text = path.read_text()
    yield from re.findall(r"//[^\n]*", text)
    yield from re.findall(r"/\*.*?\*/", text, re.DOTALL)


@functools.cache
def cited() -> dict[str, set[str]]:
    """For each label cited in the sources, where."""
    found: dict[str, set[str]] = {}
    sources = [(p, comments_of_python(p)) for p in sorted((ROOT / "python").rglob("*.py"))]
    sources += [
        (p, comments_of_cpp(p))
        for p in sorted((ROOT / "csrc").rglob("*"))
        if p.suffix in (".h", ".cpp", ".def")
    ]
    for path, comments in sources:
        for comment in comments:
            for label in LABEL.findall(comment):
                found.setdefault(label, set()).add(str(path.relative_to(ROOT)))
    return found


def test_contract_is_in_the_repository() -> None:
    assert NUMERICS.is_file()
    assert {"C1", "C9", "E1", "E7", "R1", "R7", "M2", "M8", "A1", "A2", "H1", "D1", "D3"} <= rules()


def test_every_cited_rule_exists() -> None:
    unknown = {label: sorted(where) for label, where in cited().items() if label not in rules()}
    assert unknown == {}


def test_the_sources_cite_the_rules_they_follow() -> None:
    assert {"C1", "C2", "C7", "C8", "C9", "E1", "E7", "E8", "M2", "R2", "R3", "A1", "A2"} <= set(
        cited()
    )


def test_the_tests_cite_only_rules_that_exist() -> None:
    found: dict[str, str] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name in re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE):
            for label in re.findall(r"_([FCSERMAHDQ]\d{1,2})(?=_|$)", name):
                found.setdefault(label, f"{path.name}::{name}")
    assert {label: where for label, where in found.items() if label not in rules()} == {}


def test_licence_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0" in text


# ---- README --------------------------------------------------------------------------------------


def python_blocks() -> list[str]:
    if not README.is_file():
        return []
    return re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)


def test_readme_has_python_examples() -> None:
    assert README.is_file()
    assert len(python_blocks()) >= 2


def test_python_examples_of_the_readme_run(tmp_path: Path) -> None:
    # In a folder of its own, because an example may write files.
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    paths = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(Path(p).resolve()) for p in paths)}
    run = subprocess.run(
        # The example of neuron_range warns, as the text around it says.
        [
            *(sys.executable, "-W", "error", "-W", "ignore:sin:RuntimeWarning"),
            *("-c", f"for block in {python_blocks()!r}:\n    exec(block, {{'__name__': '__main__'}})"),
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""


def test_files_that_the_readme_links_to_exist() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README.read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []


# ---- the files in version control ------------------------------------------------------------------


def tracked_files() -> list[Path]:
    run = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if run.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in run.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def test_no_address_of_a_package_registry_is_in_the_repository() -> None:
    # Spelled in two parts so that this file does not hold what it looks for.
    hosts = [
        ".".join(parts)
        for parts in (
            ("pypi", "org"),
            ("files", "pythonhosted", "org"),
            ("conda", "anaconda", "org"),
            ("registry", "npmjs", "org"),
            ("proxy", "golang", "org"),
            ("ghcr", "io"),
        )
    ]
    found = {}
    for path in tracked_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if named := [h for h in hosts if h in text]:
            found[str(path.relative_to(ROOT))] = named
    assert found == {}


def test_no_test_data_of_other_projects_and_no_large_file() -> None:
    names = [str(p.relative_to(ROOT)) for p in tracked_files()]
    assert [n for n in names if n.endswith((".zip", ".so", ".nsim", ".pyc"))] == []
    assert [n for n in names if (ROOT / n).stat().st_size > 1_000_000] == []


# ---- promises of the other documents -----------------------------------------------------------------


def test_the_contract_defines_each_rule_once() -> None:
    labels = re.findall(r"^- \*\*([A-Z]\d{1,2})\*\*", NUMERICS.read_text(), re.MULTILINE)
    assert len(labels) == len(set(labels))


def test_the_profile_names_only_rules_that_exist() -> None:
    assert {f["rule"] for f in Profile().describe()} <= rules()


def test_the_array_example_prints_what_its_comment_says(capsys: pytest.CaptureFixture[str]) -> None:
    exec(python_blocks()[1], {})
    assert "1.0078125" in capsys.readouterr().out


def test_the_package_declares_the_licence() -> None:
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text()


def test_each_floor_imports_only_from_those_below() -> None:
    beside = str(Path(sys.executable).parent)
    command = shutil.which("lint-imports") or shutil.which("lint-imports", path=beside)
    if command is None:
        pytest.skip("import-linter is not installed (extra `lint`)")
    run = subprocess.run(
        [command, "--no-cache", "--config", str(ROOT / "pyproject.toml")],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr


# ---- the rooms of csrc -------------------------------------------------------------------------------

ROOMS = ["formats", "machine", "functions", "movement", "elementwise", "reductions", "products"]
ROOMS += ["graph", "bindings"]  # each includes only from itself and from those before it
INCLUDE = re.compile(r'^#include "(\w+)/', re.MULTILINE)


def wrong_in_rooms(csrc: Path) -> list[str]:
    """Includes that point upward, and Python outside of the bindings."""
    found = []
    for path in sorted(p for p in csrc.glob("*/**/*") if p.suffix in (".h", ".cpp")):
        room, text = path.relative_to(csrc).parts[0], path.read_text()
        upward = [r for r in INCLUDE.findall(text) if ROOMS.index(r) > ROOMS.index(room)]
        found += [f"{path.name} includes {r}" for r in upward]
        if room != "bindings" and re.search("pybind11|Python.h|PyObject", text):
            found.append(f"{path.name} knows Python")
    # Its parts are included into a namespace, so that only their order shows what they rely on.
    parts = INCLUDE.findall((csrc / "kernels.cpp").read_text().partition("namespace {")[2])
    if parts != sorted(parts, key=ROOMS.index):
        found.append("kernels.cpp joins the rooms out of order")
    return found


def test_rooms_of_the_core_include_only_downward() -> None:
    assert wrong_in_rooms(ROOT / "csrc") == []


def test_control_an_upward_include_is_found(tmp_path: Path) -> None:
    csrc = tmp_path / "csrc"
    shutil.copytree(ROOT / "csrc", csrc)
    with (csrc / "machine" / "tile.h").open("a") as f:
        f.write('#include "movement/view.h"\n')
    with (csrc / "graph" / "call.cpp").open("a") as f:
        f.write("#include <pybind11/pybind11.h>\n")
    kernels = csrc / "kernels.cpp"
    kernels.write_text(kernels.read_text() + '#include "formats/encoding.h"\n')
    assert wrong_in_rooms(csrc) == [
        "call.cpp knows Python",
        "tile.h includes movement",
        "kernels.cpp joins the rooms out of order",
    ]


def test_the_counts_of_the_validation_page_are_those_of_the_tests() -> None:
    assert counts.PAGE.read_text() == counts.page(), "python -m tests.counts writes them"
