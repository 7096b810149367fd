"""docs/cost-model.md: every assumption with its source, as the command prints them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.scripts import load_script

from neuronsim.tuning.assumptions import ASSUMPTIONS

pytestmark = pytest.mark.isa_independent

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def script() -> Any:
    return load_script("docs/make_cost_model.py")


def test_the_page_is_what_its_script_makes(script: Any) -> None:
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
