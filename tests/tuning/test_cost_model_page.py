"""docs/cost-model.md: every assumption with its source, as the command prints them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from neuronsim.tuning.assumptions import ASSUMPTIONS

pytestmark = pytest.mark.isa_independent

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_cost_model", DOCS / "make_cost_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_its_script_makes(script: ModuleType) -> None:
    text = (DOCS / "cost-model.md").read_text()
    assert script.page(text) == text
    assert script.page(text.replace("91.75", "91.76")) == text  # the lists are made from the data


def test_the_page_has_every_assumption_with_its_source() -> None:
    page = " ".join((DOCS / "cost-model.md").read_text().split())
    assert len(ASSUMPTIONS) == len({a.subject for a in ASSUMPTIONS})
    for a in ASSUMPTIONS:
        assert f"**{a.subject}.** {a.text} *({a.source})*" in page
    for subject in ("tiles", "PSUM", "SBUF", "casts", "overlap", "Inf1", "movement"):
        assert any(a.subject == subject for a in ASSUMPTIONS)
