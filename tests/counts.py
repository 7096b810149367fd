"""How much is checked, counted in the tests themselves: the table in docs/validation.md, which
`python -m tests.counts` writes and tests/test_repository.py compares.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

from tests.mutants.rows import all_mutants

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "validation.md"
BEGIN, END = "<!-- python -m tests.counts -->\n", "<!-- end -->\n"


def keys_of(file: str, name: str) -> int:
    """The entries of a table that a test file is parametrised by."""
    for node in ast.parse((ROOT / "tests" / file).read_text()).body:
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(target, ast.Name) and target.id == name and isinstance(node.value, ast.Dict):
            return len(node.value.keys)
    raise LookupError(f"{file} has no dictionary {name}")


def table() -> str:
    mutants = all_mutants()
    deviations = tomllib.loads((ROOT / "tests/arrays/deviations.toml").read_text())["deviation"]
    networks = list((ROOT / "tests/data/networks").glob("*.hlo.pb"))
    rows = {
        "planted bugs": len(mutants),
        "planted bugs that need the compiler": sum(m.compiled for m in mutants),
        "kinds of long kernels that a signal ends": keys_of("core/test_interrupts.py", "KERNELS"),
        "opcodes of random modules": keys_of("executor/random_modules.py", "CASES"),
        "reduced networks": len(networks),
        "entries of `deviations.toml`": len(deviations),
    }
    lines = [f"| {what} | {count} |" for what, count in rows.items()]
    return "\n".join(["| what | how many |", "|---|---|", *lines]) + "\n"


def page() -> str:
    """The page with the table as it is now."""
    before, rest = PAGE.read_text().split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page())
