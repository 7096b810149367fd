"""Planted bugs that the ordinary suite must catch: one patch file each, with the tests that catch it.

The tree is copied and built once. For each patch a copy of that is patched, what the patch touches
is rebuilt, and the tests named in the patch must fail. On the unpatched copy they must pass.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuronsim import _core

pytestmark = pytest.mark.isa_independent  # nothing here is computed by the kernels

ROOT = Path(__file__).parents[2]
PATCHES = sorted(Path(__file__).parent.glob("*.patch"))
TREE = ("CMakeLists.txt", "pyproject.toml", "csrc", "docs", "python", "tests")
# The build tools may be those of the environment that runs the tests.
SEARCH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def named_tests(patch: Path) -> list[str]:
    """The arguments of pytest in the patch's second line."""
    marker, _, arguments = patch.read_text().splitlines()[1].partition(" ")
    assert marker == "Tests:", patch
    return shlex.split(arguments)


def copy_tree(target: Path) -> None:
    for name in TREE:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.so", ".hypothesis")
            shutil.copytree(source, target / name, ignore=ignored)
        else:
            shutil.copy(source, target / name)


def build(tree: Path) -> None:
    pybind11 = subprocess.run(
        [sys.executable, "-m", "pybind11", "--cmakedir"], capture_output=True, text=True, check=True
    ).stdout.strip()
    configure = ["cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
    configure += [f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={pybind11}"]
    for command in (configure, ["cmake", "--build", "build"]):
        done = subprocess.run(
            command,
            cwd=tree,
            env=os.environ | {"PATH": SEARCH},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (extension,) = (tree / "build").glob("_core*.so")
    shutil.copy(extension, tree / "python" / "neuronsim" / Path(_core.__file__).name)


def run_tests(tree: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(tree / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    where = subprocess.run(
        [sys.executable, "-c", "import neuronsim._core as c; print(c.__file__)"],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert where.startswith(str(tree)), f"another neuronsim is imported: {where}"
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A built copy of the tree, and the place where it was built and patched copies of it go: build
    files hold absolute names, and in that place only what a patch touches is compiled again.
    """
    missing = [t for t in ("git", "cmake", "ninja", "c++") if shutil.which(t, path=SEARCH) is None]
    if importlib.util.find_spec("pybind11") is None:
        missing.append("pybind11")
    if missing:
        pytest.skip(f"mutants need {', '.join(missing)}")
    base = tmp_path_factory.mktemp("mutants")
    place = base / "tree"
    place.mkdir()
    copy_tree(place)
    build(place)
    place.rename(base / "built")
    return base / "built", place


@pytest.fixture
def tree(places: tuple[Path, Path]) -> Iterator[Path]:
    built, place = places
    shutil.copytree(built, place)
    yield place
    shutil.rmtree(place)


@pytest.mark.parametrize("patch", PATCHES, ids=lambda p: p.stem)
def test_patch_still_applies(patch: Path) -> None:
    """Cheap enough for every run, so that an edit of a patched line is seen at once."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not installed")
    done = subprocess.run(
        [git, "apply", "--check", str(patch)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for argument in named_tests(patch):
        assert not argument.startswith("tests/") or (ROOT / argument).exists()


@pytest.mark.mutants
def test_control_the_unpatched_tree_passes(tree: Path) -> None:
    for arguments in sorted({tuple(named_tests(p)) for p in PATCHES}):
        done = run_tests(tree, list(arguments))
        assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.mutants
@pytest.mark.parametrize("patch", PATCHES, ids=lambda p: p.stem)
def test_mutant_is_caught(tree: Path, patch: Path) -> None:
    subprocess.run(["git", "apply", str(patch)], cwd=tree, check=True)
    if any(f"+++ b/{name}" in patch.read_text() for name in ("csrc/", "CMakeLists.txt")):
        build(tree)
    done = run_tests(tree, named_tests(patch))
    # 1 is failed tests; 2 and above are errors of collection or usage, 5 is no tests at all.
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-1000:]
