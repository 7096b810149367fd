"""What several files ask of numbers of inputs that the twin would take hours for."""

from __future__ import annotations

import pytest

from tests.core.screening import Screening, compiler


@pytest.fixture(scope="session")
def screening(tmp_path_factory: pytest.TempPathFactory) -> Screening:
    if compiler() is None:
        pytest.skip("no C++ compiler is installed")
    return Screening(tmp_path_factory.mktemp("screen"))
