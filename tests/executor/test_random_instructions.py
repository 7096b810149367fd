"""Random modules of one instruction are refused or give the oracles' bits."""

from __future__ import annotations

import pytest
from tests.executor import random_instructions


@pytest.mark.parametrize("count", [150, pytest.param(2000, marks=pytest.mark.exhaustive)])
def test_single_instructions_are_refused_or_right(count: int) -> None:
    outcome = random_instructions.run(0, count)
    assert outcome.findings == []
    assert outcome.counts["agrees"] > 0.4 * count
    assert outcome.counts["refused"] > 0.1 * count


def test_modules_have_every_opcode_and_empty_dimensions() -> None:
    drawn = [random_instructions.module(seed) for seed in range(2000)]
    assert {opcode for opcode, _ in drawn} == set(random_instructions.ONE)
    shapes = [s for _, m in drawn for i in m.entry_computation.instructions for s in i.shape.arrays()]
    assert sum(0 in s.dims for s in shapes) > 0.1 * len(shapes)


def test_drawing_is_by_the_number_alone() -> None:
    first, second = (random_instructions.listed(random_instructions.module(7)[1]) for _ in range(2))
    assert first == second
