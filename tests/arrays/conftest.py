"""Which way elementwise functions take; settings that a test changes and that are restored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import neuronsim as np
from neuronsim.arrays import evaluation
from neuronsim.profiles import Profile


@pytest.fixture
def fresh_profile() -> Iterator[Profile]:
    """A profile that remembers nothing."""
    with np.use_profile() as profile:
        profile.forget()
        yield profile


@pytest.fixture
def long_ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The elementwise functions that took the long way, one after the other."""
    names, run = [], evaluation.evaluate_elementwise

    def listed(name: str, *operands: Any) -> Any:
        names.append(name)
        return run(name, *operands)

    monkeypatch.setattr(evaluation, "evaluate_elementwise", listed)
    return names


@pytest.fixture
def restored_default() -> Iterator[None]:
    """The test sets the default type."""
    before = np.default_dtype()
    yield
    np.set_default_dtype(before)
