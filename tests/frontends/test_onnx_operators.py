"""docs/onnx_operators.md is what its generator writes."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

onnx = pytest.importorskip("onnx")

pytestmark = pytest.mark.isa_independent

DOCS = Path(__file__).parents[2] / "docs"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("operators", DOCS / "make_onnx_operators.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_its_generator_writes() -> None:
    made = generator()
    text = made.PAGE.read_text(encoding="utf-8")
    version = re.search(r"for onnx ([\d.]+),", text)
    assert version is not None
    if version[1] != onnx.__version__:
        pytest.skip(f"the page is of onnx {version[1]}, here is {onnx.__version__}")
    assert text == made.page()
