"""What the executor's tests share: modules by hand, compiled for a target."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from neuronsim.executor.compile import compile_module
from neuronsim.executor.run import Program
from neuronsim.hlo.module import Computation, Instruction, Module
from neuronsim.hlo.verify import verify
from neuronsim.profiles import Profile
from neuronsim.targets import find_target


@pytest.fixture(scope="session")
def module_of() -> Callable[..., Module]:
    """A verified module whose entry has these instructions; the last is the root."""

    def build(
        *instructions: Instruction, root: str = "", others: tuple[Computation, ...] = ()
    ) -> Module:
        entry = Computation("main", instructions, root or instructions[-1].name)
        module = Module("m", "main", (*others, entry))
        verify(module)
        return module

    return build


@pytest.fixture(scope="session")
def program_of() -> Callable[..., Program]:
    """A module compiled with a value of the field int64 (C7) for a target."""

    def build(module: Module, int64: str = "truncate", target: str = "trn1") -> Program:
        return compile_module(module, Profile(int64=int64), find_target(target))

    return build
