"""Planted bugs that the ordinary suite must catch: the rows of the tables beside this file.

A copy of the tree is built once, in build/mutants. Each row is planted in it, what it touches is
compiled again, and the tests that the row names must fail; then the copy is put back. Without a
planted bug the same tests must pass. docs/validation.md has the commands for a run in pieces.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuronsim import _core
from tests.mutants.rows import ROOT, Mutant, all_mutants, changed_since
from tests.support.parameters import each_of

pytestmark = pytest.mark.isa_independent  # nothing here is computed by the kernels

MUTANTS = all_mutants()
TREE = ("CMakeLists.txt", "pyproject.toml", "csrc", "docs", "examples", "python", "tests")
# The build tools may be those of the environment that runs the tests.
SEARCH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def call(command: list[str], tree: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=tree,
        env=os.environ | {"PATH": SEARCH} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


def build(tree: Path) -> None:
    pybind11 = call([sys.executable, "-m", "pybind11", "--cmakedir"], tree).stdout.strip()
    configure = ["cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
    # No bit depends on how far the compiler optimises (D1), and this takes a third of the time.
    configure += ["-DNEURONSIM_OPTIMIZATION=-O1", f"-DNEURONSIM_ISAS={_core.available_isas()[-1]}"]
    configure += [f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={pybind11}"]
    if shutil.which("ccache", path=SEARCH):
        configure += ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"]
    for command in (configure, ["cmake", "--build", "build"]):
        done = call(command, tree)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (extension,) = (tree / "build").glob("_core*.so")
    shutil.copy(extension, tree / "python" / "neuronsim" / Path(_core.__file__).name)


def put_back(source: Path, target: Path) -> None:
    """`target` has the files of `source`; those that were equal keep their times, so that only the
    others are compiled again.
    """
    for folder, names, files in os.walk(source):
        names[:] = [n for n in names if n not in ("__pycache__", ".hypothesis", "build")]
        there = target / Path(folder).relative_to(source)
        there.mkdir(parents=True, exist_ok=True)
        for gone in {p.name for p in there.iterdir()} - {*names, *files} - {"__pycache__", "build"}:
            path = there / gone
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name in files:
            text = (Path(folder) / name).read_bytes()
            if not name.endswith(".so") and (
                not (there / name).exists() or (there / name).read_bytes() != text
            ):
                (there / name).write_bytes(text)


def run_tests(tree: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(tree / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    where = call(
        [sys.executable, "-c", "import neuronsim; print(neuronsim.__file__)"], tree, **environment
    )
    if where.returncode == 0:
        assert where.stdout.startswith(str(tree)), f"another neuronsim is imported: {where.stdout}"
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
    return call(command, tree, **environment)


@pytest.fixture(scope="module")
def tree(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A built copy of the tree, of which this process alone has the use."""
    missing = [t for t in ("git", "cmake", "ninja", "c++") if shutil.which(t, path=SEARCH) is None]
    if importlib.util.find_spec("pybind11") is None:
        missing.append("pybind11")
    if missing:
        pytest.skip(f"mutants need {', '.join(missing)}")
    part = request.config.getoption("--part").split("/")[0]
    place = ROOT / "build" / "mutants" / part
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pytest.fail(f"another run has {place}: take --part 1/2 and --part 2/2")
        copy = place / "tree"
        copy.mkdir(exist_ok=True)
        restore_build(copy)
        for name in TREE:
            if (ROOT / name).is_dir():
                put_back(ROOT / name, copy / name)
            else:
                shutil.copyfile(ROOT / name, copy / name)
        build(copy)
        shutil.rmtree(place / "built", ignore_errors=True)
        shutil.copytree(copy / "build", place / "built")
        yield copy


def restore_build(tree: Path) -> None:
    """The build files as they were without a planted bug, times and all: they hold absolute names."""
    built = tree.parent / "built"
    if built.exists():
        shutil.rmtree(tree / "build", ignore_errors=True)
        shutil.copytree(built, tree / "build")
        (extension,) = built.glob("_core*.so")
        shutil.copy(extension, tree / "python" / "neuronsim" / Path(_core.__file__).name)


@pytest.fixture(scope="module")
def chosen(request: pytest.FixtureRequest) -> set[str]:
    """The names of the rows of this run: its part of those that changed."""
    commit = request.config.getoption("--changed-since")
    rows = changed_since(commit) if commit else MUTANTS
    part, parts = map(int, request.config.getoption("--part").split("/"))
    return {m.name for m in rows[part - 1 :: parts]}


@pytest.fixture(scope="module")
def journal(request: pytest.FixtureRequest) -> Path | None:
    given = request.config.getoption("--journal")
    return Path(given) if given else None


@pytest.fixture(scope="module")
def deadline(request: pytest.FixtureRequest) -> float:
    minutes = request.config.getoption("--minutes")
    return time.monotonic() + 60 * minutes


@each_of("mutant", MUTANTS, ids=lambda m: m.name)
def test_mutant_applies(mutant: Mutant) -> None:
    """Cheap enough for every run, so that an edit of a planted line is seen at once."""
    assert mutant.old != mutant.new
    assert (ROOT / mutant.file).read_text().count(mutant.old) == 1, f"of {mutant.file}: {mutant.old}"
    assert mutant.test_files
    for named in mutant.test_files:
        assert (ROOT / named.split("::")[0]).is_file()  # whose text is part of the digest


def test_names_and_rules_of_mutants() -> None:
    names = [m.name for m in MUTANTS]
    assert len(names) == len(set(names))
    contract = (ROOT / "docs/numerics.md").read_text()
    for mutant in MUTANTS:
        if mutant.rule.startswith("docs/"):
            assert (ROOT / mutant.rule).exists(), mutant
        else:
            assert re.search(rf"\*\*{mutant.rule}\b", contract), mutant


@pytest.mark.mutants
def test_control_the_tree_without_planted_bugs_passes(tree: Path, chosen: set[str]) -> None:
    expressions = defaultdict(set)
    for mutant in MUTANTS:
        if mutant.name in chosen:
            words = mutant.arguments
            k = words.index("-k") if "-k" in words else len(words)
            expressions[tuple(words[:k] + words[k + 2 :])].add(" ".join(words[k + 1 : k + 2]))
    for words, wanted in sorted(expressions.items()):
        k = [] if "" in wanted else ["-k", " or ".join(f"({w})" for w in sorted(wanted))]
        done = run_tests(tree, [*words, *k])
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


@pytest.mark.mutants
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_mutant_is_caught(
    tree: Path, mutant: Mutant, chosen: set[str], journal: Path | None, deadline: float
) -> None:
    if mutant.name not in chosen:
        pytest.skip("not in this part, or unchanged")
    if mutant.isa not in ("", _core.available_isas()[-1], _core.byte_products()):
        pytest.skip(f"this processor runs the kernels of its widest set, not those of {mutant.isa}")
    digest = mutant.digest()
    if journal and journal.exists():
        for line in journal.read_text().splitlines():
            entry = json.loads(line)
            if entry["digest"] == digest and entry["caught"]:
                pytest.skip(f"caught before, in {entry['seconds']} s")
    if time.monotonic() > deadline:
        pytest.skip("the minutes are over: the same command goes on here")
    begun = time.monotonic()
    original, times = (tree / mutant.file).read_bytes(), (tree / mutant.file).stat()
    try:
        mutant.plant(tree)
        if mutant.compiled:
            build(tree)
        done = run_tests(tree, mutant.arguments)
    finally:
        (tree / mutant.file).write_bytes(original)
        os.utime(tree / mutant.file, ns=(times.st_atime_ns, times.st_mtime_ns))
        if mutant.compiled:
            restore_build(tree)
    # 1 is failed tests, a signal their process's end; 2 and above are errors of collection or usage, 5
    # is no tests at all.
    caught = done.returncode == 1 or done.returncode < 0
    if journal:
        entry = {"name": mutant.name, "caught": caught, "seconds": round(time.monotonic() - begun, 1)}
        with journal.open("a") as file:
            file.write(json.dumps(entry | {"digest": digest}) + "\n")
    assert caught, done.stdout[-3000:] + done.stderr[-1000:]
