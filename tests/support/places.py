"""Where the repository has what tests read."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DIGITS = ROOT / "examples" / "digits"
MODEL, DATA = str(DIGITS / "model.hlo.pb"), str(DIGITS / "test.npz")
NETWORKS = ROOT / "tests" / "data" / "networks"
