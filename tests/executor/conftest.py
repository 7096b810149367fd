"""What several files of programs ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from neuronsim.executor import compile as compiling


@pytest.fixture(scope="module")
def loops_stay() -> Iterator[None]:
    """The short loops of these tests stay loops: test_python_steps.py has unrolled ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "MAX_TRIPS", 0)
        yield
