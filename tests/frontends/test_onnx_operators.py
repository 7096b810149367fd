"""docs/onnx_operators.md is what its generator writes."""

from __future__ import annotations

import re

import pytest
from tests.support.scripts import load_script

onnx = pytest.importorskip("onnx")

pytestmark = pytest.mark.isa_independent


def test_the_page_is_what_its_generator_writes() -> None:
    made = load_script("docs/make_onnx_operators.py")
    text = made.PAGE.read_text(encoding="utf-8")
    version = re.search(r"for onnx ([\d.]+),", text)
    assert version is not None
    if version[1] != onnx.__version__:
        pytest.skip(f"the page is of onnx {version[1]}, here is {onnx.__version__}")
    assert text == made.page()
