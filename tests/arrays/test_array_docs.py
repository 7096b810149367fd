"""The Python examples of docs/arrays.md run, those of a section one after another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.parameters import each_of

pytestmark = pytest.mark.isa_independent

PAGE = Path(__file__).parents[2] / "docs" / "arrays.md"
START, *SECTIONS = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)


def examples(section: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


@each_of("section", SECTIONS, ids=lambda s: s.partition("\n")[0])
def test_examples_of_a_section_run(section: str) -> None:
    found = examples(section)
    assert found
    exec("\n".join((*examples(START), *found)), {})
