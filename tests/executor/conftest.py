"""What the executor's tests share: modules compiled for a target."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from neuronsim.executor.compile import compile_module
from neuronsim.executor.run import Program
from neuronsim.hlo.module import Module
from neuronsim.profiles import Profile
from neuronsim.targets import find_target


@pytest.fixture(scope="session")
def program_of() -> Callable[..., Program]:
    """A module compiled with a value of the field int64 (C7) for a target."""

    def build(module: Module, int64: str = "truncate", target: str = "trn1") -> Program:
        return compile_module(module, Profile(int64=int64), find_target(target))

    return build
