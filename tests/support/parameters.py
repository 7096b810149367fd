"""Parameters of a family of tests."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def some(values: Iterable[Any], ordinary: int | Container[Any]) -> list[Any]:
    """All values: the ordinary run takes the first ones, or these, -m exhaustive the others."""
    return [
        v
        if (n < ordinary if isinstance(ordinary, int) else v in ordinary)
        else pytest.param(*(v if isinstance(v, tuple) else (v,)), marks=pytest.mark.exhaustive)
        for n, v in enumerate(values)
    ]
