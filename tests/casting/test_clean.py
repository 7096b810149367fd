"""A cleaned application computes the bits of the literal one, and converts no more bytes."""

from __future__ import annotations

import itertools

import pytest
from tests.casting.commuting_modules import Example, example
from tests.casting.rounding_cases import OPEN
from tests.executor import op_by_op

from neuronsim import dtypes, ops
from neuronsim.casting.apply import apply_plan
from neuronsim.casting.clean import converted_bytes
from neuronsim.casting.plan import Plan, fingerprint
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Module
from neuronsim.hlo.verify import verify
from neuronsim.profiles import Profile

F32, BF16, F16 = dtypes.float32, dtypes.bfloat16, dtypes.float16
LOWS: tuple[tuple[DType, ...], ...] = (
    *(((t,)) for t in (BF16, F16, dtypes.float8_e4m3, dtypes.float8_e5m2, *OPEN[:2])),
    *((BF16, F16), (F16, dtypes.float8_e3m4), (dtypes.tfloat32, BF16)),
)
PROFILES = [
    Profile(subnormals=s, fp8_overflow=o)
    for s, o in itertools.product(("keep", "flush"), ("inf", "nan", "saturate"))
]


def planned(e: Example, *, clean: bool, keep: bool = True) -> Module:
    plan = Plan("random", e.module.name, fingerprint(e.module), e.decisions, keep_output_type=keep)
    return apply_plan(e.module, plan, clean=clean)


def results(module: Module, inputs: tuple[ops.Bits, ...], profile: Profile) -> list[bytes]:
    value, _ = op_by_op.evaluate(module, inputs, profile)
    return [x.data.tobytes() for x in op_by_op.leaves(value)]


@pytest.mark.parametrize("lows", LOWS, ids=lambda lows: "-".join(t.name for t in lows))
def test_clean_and_literal_application_agree(lows: tuple[DType, ...]) -> None:
    fewer = 0
    for seed in range(60):
        e = example(seed, lows)
        verify(e.module)
        keep = seed % 4 != 3
        literal, clean = (planned(e, clean=c, keep=keep) for c in (False, True))
        verify(clean)
        assert clean.program_shape == literal.program_shape
        profile = PROFILES[seed % len(PROFILES)]
        assert results(clean, e.inputs, profile) == results(literal, e.inputs, profile), seed
        assert converted_bytes(clean) <= converted_bytes(literal), seed
        fewer += converted_bytes(clean) < converted_bytes(literal)
    assert fewer > 20
