"""The stubs are what their generator writes, have every public name and no other, and type checkers
read users' programs by them.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import neuronsim as np
from tests.support.places import ROOT
from tests.support.scripts import load_script

pytestmark = pytest.mark.isa_independent

PROGRAM = ROOT / "tests" / "data" / "typed_program.py"


STUBS = load_script("python/make_stub.py").STUBS


@pytest.mark.parametrize("path", STUBS, ids=lambda p: p.name)
def test_the_stub_is_what_its_generator_writes(path: Path) -> None:
    """`python python/make_stub.py` writes it anew."""
    assert path.read_text(encoding="utf-8") == STUBS[path]()


def exported(text: str) -> set[str]:
    """The names that a stub lets others see."""
    names: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom | ast.Import):
            names |= {a.asname for a in node.names if a.asname is not None and a.asname == a.name}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Assign):
            names |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    return names


def test_the_stub_has_every_public_name_and_no_other() -> None:
    texts = [path.read_text(encoding="utf-8") for path in STUBS]
    of_package, of_arrays, of_nn = map(exported, texts)
    assert of_arrays == {*np.arrays.__all__, "Array"}
    assert "from neuronsim.arrays import *\n" in texts[0]
    of_package |= {n for n in of_arrays if not n.startswith("_")}
    assert of_package == {*np.__all__, "bench", "__version__"}
    assert of_nn == set(np.nn.__all__)
    assert exported("import sys\nfrom a import b, c as d\nfrom a import e as e") == {"e"}  # the control


def test_calls_of_ufuncs_are_those_at_run_time() -> None:
    stub = ast.parse((ROOT / "python/neuronsim/arrays/__init__.pyi").read_text(encoding="utf-8"))
    classes = {
        n.name: n.body[0].args
        for n in stub.body
        if isinstance(n, ast.ClassDef) and isinstance(n.body[0], ast.FunctionDef)
    }
    (more,) = (
        [a.target.id for a in n.body if isinstance(a, ast.AnnAssign) and isinstance(a.target, ast.Name)]
        for n in stub.body
        if isinstance(n, ast.ClassDef) and n.name == "_More"
    )
    for name, function, kind in (
        ("exp", np.exp, "_Unary"),
        ("add", np.add, "_Binary"),
        ("clamp", np.clamp, "_Ternary"),
        ("modf", np.modf, "_UnaryOfTwo"),
        ("divmod", np.divmod, "_BinaryOfTwo"),
    ):
        arguments = classes[kind]
        taken = list(function.__signature__.parameters)
        given = [a.arg for a in (*arguments.posonlyargs[1:], *arguments.args)] + more
        assert given[function.nin :] == taken[function.nin :], name
        assert len(given) == len(taken), name


def test_a_users_program_has_the_types_that_it_says(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    lines = ["import neuronsim as np", "np.add(1)", "np.exp(1, to=2)", "np.sofmax", "np.nn.sofmax(1)"]
    wrong.write_text("\n".join(lines))
    pytest.importorskip("mypy", reason="mypy is not installed (extra `lint`)")
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", "", str(PROGRAM), str(wrong)],
        cwd=ROOT,
        env={"MYPYPATH": str(ROOT / "python"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    told = [line.partition(": error")[0] for line in run.stdout.splitlines() if ": error: " in line]
    assert [Path(t).name for t in told] == [f"wrong.py:{n}" for n in range(2, 6)], run.stdout


def test_the_typed_program_runs() -> None:
    exec(PROGRAM.read_text(encoding="utf-8"), {"__name__": "typed_program"})
