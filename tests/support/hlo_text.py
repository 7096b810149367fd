"""Modules written as HLO text."""

from __future__ import annotations

from neuronsim.hlo.module import Module
from neuronsim.hlo.parse import from_text
from neuronsim.hlo.verify import verify

# Computations that every module here may apply.
REDUCERS = """
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
max { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }
"""


def source_of(entry: str, others: str = "") -> str:
    """The text of a module: the lines of its entry, and computations that it applies."""
    return f"HloModule m\n{REDUCERS}\n{others}\nENTRY main {{\n{entry}\n}}\n"


def text_module(entry: str, others: str = "") -> Module:
    """The same as a verified module."""
    module = from_text(source_of(entry, others))
    verify(module)
    return module
