"""Random modules of one instruction are refused or give the oracles' bits."""

from __future__ import annotations

import numpy as np
import pytest
from tests.executor import random_instructions, twin
from tests.support import interpreter
from tests.support.hlo_text import text_module

from neuronsim import ops
from neuronsim.profiles import Profile


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


@pytest.mark.parametrize("kind", ["f8e4m3", "f8e3m4", "f8e5m2"])
def test_the_twin_orders_nan_by_payload_E7(kind: str) -> None:
    less = (
        f"less {{ a = {kind}[] parameter(0)  b = {kind}[] parameter(1)\n"
        "  ROOT c = pred[] compare(a, b), direction=LT, type=TOTALORDER }"
    )
    sort = (
        f"  x = {kind}[256] parameter(0)\n"
        f"  ROOT s = {kind}[256] sort(x), dimensions={{0}}, to_apply=less"
    )
    module = text_module(sort, less)
    dtype = next(p.array.dtype for p in module.parameters)
    words = np.random.default_rng(7).permutation(256).astype(np.uint8)
    setting, given = ops.Setting(Profile()), (ops.Bits(words.view(dtype.storage), dtype),)
    root = module.entry_computation.by_name["s"]
    (exact,) = twin.apply(module, root, given, setting)
    (found,) = interpreter.by_row(module, root, given, setting)
    order = [*range(255, 127, -1), *range(128)]  # of the encoding
    assert exact.data.view(np.uint8).tolist() == found.data.view(np.uint8).tolist() == order
