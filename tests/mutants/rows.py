"""The planted bugs: rows of TOML tables by subject, a text that stands once in a file and what takes
its place.
"""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent.relative_to(ROOT)


@dataclass(frozen=True)
class Mutant:
    """`tests` are pytest's arguments; `rule` is a label of docs/numerics.md, or a page; `isa` is the
    one instruction set whose kernels have the line, or form of products of bytes that runs it, if only
    one does.
    """

    name: str
    rule: str
    why: str
    file: str
    tests: str
    old: str
    new: str
    isa: str = ""

    @property
    def compiled(self) -> bool:
        return self.file.startswith(("csrc/", "CMakeLists.txt"))

    @property
    def arguments(self) -> list[str]:
        return shlex.split(self.tests)

    @property
    def test_files(self) -> list[str]:
        return [word for word in self.arguments if word.startswith("tests/")]

    def plant(self, tree: Path) -> None:
        path = tree / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.name}: `old` stands {text.count(self.old)} times in {self.file}, not once"
            )
        path.write_text(text.replace(self.old, self.new))

    def digest(self) -> str:
        """Of the row, the file that it alters and the tests that it names."""
        texts = [*astuple(self), *((ROOT / f).read_text() for f in [self.file, *self.test_files])]
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def parsed(text: str) -> Iterator[Mutant]:
    for name, fields in tomllib.loads(text).items():
        yield Mutant(name, **fields)


def all_mutants() -> list[Mutant]:
    """Those that need no compiler first."""
    tables = sorted((ROOT / FOLDER).glob("*.toml"))
    return sorted((m for t in tables for m in parsed(t.read_text())), key=lambda m: m.compiled)


def changed_since(commit: str) -> list[Mutant]:
    """The rows that are new or altered since a commit, or whose file or tests are."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout

    changed = set(git("diff", "--name-only", commit).splitlines())
    tables = [
        n
        for n in git("ls-tree", "--name-only", commit, f"{FOLDER}/").splitlines()
        if n.endswith(".toml")
    ]
    before = {m for table in tables for m in parsed(git("show", f"{commit}:{table}"))}
    return [m for m in all_mutants() if m not in before or changed & {m.file, *m.test_files}]
