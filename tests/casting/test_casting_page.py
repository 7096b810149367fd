"""The page on casting: its tables are generated, its figures are right."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.support.places import DOCS
from tests.support.scripts import load_script

pytestmark = pytest.mark.isa_independent


@pytest.fixture(scope="module")
def make_casting() -> Any:
    return load_script("docs/make_casting.py")


def test_the_tables_are_those_that_the_script_makes(make_casting: Any) -> None:
    assert [p.read_text() for p in make_casting.PAGES] == [
        make_casting.page(p.read_text()) for p in make_casting.PAGES
    ]
    text = (DOCS / "casting.md").read_text()
    assert make_casting.page(text.replace("65504", "65505")) == text.replace(
        "beyond 65504", "beyond 65505"
    )


def rows_of(table: str) -> dict[str, dict[str, str]]:
    """A table's cells by the first words of their rows, and by policy."""
    title, _, *rows = ([c.strip() for c in line.strip("|").split("|")] for line in table.splitlines())
    return {
        row[0].split(" (")[0]: {
            policy.strip("`"): cell
            for policies, cell in zip(title[1:], row[1:], strict=True)
            for policy in policies.split("<br>")
        }
        for row in rows
    }


def test_the_page_says_what_origins_document(make_casting: Any) -> None:
    """Softmax stays float32 for TVM and torch on CUDA (NEVER, float32 list), sums are float16 where TVM
    ships them so, batch norms follow convolutions, and data decide for ModelOpt.
    """
    digits, resnet = (rows_of(make_casting.decisions(n)) for n in ("digits", "resnet18"))
    assert digits["softmax"]["tvm/T"] == digits["softmax"]["torch-cuda/T"] == "float32"
    assert digits["softmax"]["tensorflow/bfloat16"] == digits["softmax"]["all/T"] == "low"
    assert digits["dot"]["tvm/T"] == "low, sums low"
    assert digits["dot"]["matmult/T"] == "low, gives float32"
    assert {*digits["dot"]} == {*digits["softmax"]}
    assert {*digits["dot"]} >= {"modelopt/T", "tvm-rfc/T", "none", "neural-compressor/bfloat16"}
    assert "of" in digits["layer_norm"]["modelopt/T"]  # the sum of squares leaves the range
    assert resnet["batch_norm"]["tvm/T"] == resnet["batch_norm"]["modelopt/T"] == "low"


@pytest.mark.parametrize(
    "name",
    ["float32", "bfloat16", "float16", "float8_e5m2", "float8_e4m3", "float8_e3m4", "float8_e4m3fn"],
)
def test_the_table_of_types_is_that_of_ml_dtypes(make_casting: Any, name: str) -> None:
    info = ml_dtypes.finfo(np.float32 if name == "float32" else getattr(ml_dtypes, name, np.float16))
    (row,) = [line for line in make_casting.types().splitlines() if line.startswith(f"| `{name}` ")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    figures = (info.smallest_subnormal, info.smallest_normal, info.max, info.eps, 2.0**info.nmant)
    assert [float(c) for c in cells[2:7]] == pytest.approx([float(x) for x in figures], rel=1e-3)
