"""Random modules: compiled execution is op-by-op execution, bit for bit, and every instruction alone
agrees with XLA on the operands that it had here.
"""

from __future__ import annotations

import collections
import functools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from tests.executor import agreement
from tests.executor.random_modules import (
    CASES,
    ELSEWHERE,
    EXECUTED,
    HEALTH,
    PROFILE,
    Example,
    examples,
    modules,
)
from tests.support import interpreter
from tests.support.interpreter import Applied
from tests.support.running import flat, flat_bits

from neuronsim import api, ops
from neuronsim.arrays.array_object import Array
from neuronsim.errors import UnsupportedOperator
from neuronsim.executor.compile import compile_module
from neuronsim.executor.diagnostics import Diagnostics
from neuronsim.executor.run import run_schedule
from neuronsim.hlo.opcodes import STRUCTURE
from neuronsim.hlo.verify import verify
from neuronsim.profiles import Profile
from neuronsim.targets import find_target

OTHER_PROFILES = [
    {"subnormals": "flush", "mixed_precision_accumulation": "off", "batch_norm": "two_pass"},
    {"fp8_overflow": "saturate", "accumulate": "sequential", "int_dot": "via_float32"},
    {"divide": "reciprocal_multiply", "int32_elementwise": "via_float32", "float_to_int": "nearest"},
    {"rounding": "stochastic"},
]
MODULES = 300
TIMES = 8  # that every opcode comes up at least among them
QUICK = 60


@functools.cache
def applications(count: int) -> tuple[Applied, ...]:
    """Every application of a row in the op-by-op execution of these modules."""
    found: list[Applied] = []
    for e in examples(count):
        found += interpreter.evaluate(e.module, e.inputs, PROFILE)[1]
    return tuple(found)


# ---- the generator -------------------------------------------------------------------------------


def test_generator_has_a_case_for_every_opcode() -> None:
    assert sorted((ops.OPCODES | STRUCTURE) - CASES.keys() - ELSEWHERE) == []


def test_modules_cover_the_op_table(record_property: Any) -> None:
    found = examples(MODULES)
    listed = [i for e in found for c in e.module.computations for i in c.instructions]
    count = collections.Counter(i.opcode for i in listed)
    record_property("opcodes_of_random_modules", json.dumps(count))
    rows = collections.Counter(a.instruction.opcode for a in applications(MODULES))
    print(f"{len(found)} modules, {len(listed)} instructions:", end=" ")
    print(", ".join(f"{name} {count[name]}" for name in sorted(count)))
    assert {name: count[name] for name in EXECUTED if count[name] < TIMES} == {}
    assert sorted(ops.OPCODES - rows.keys() - ELSEWHERE) == []


def test_modules_have_every_type_and_many_shapes() -> None:
    listed = [
        s
        for e in examples(MODULES)
        for i in e.module.entry_computation.instructions
        for s in i.shape.arrays()
    ]
    types = {s.dtype.name for s in listed}
    assert len(types) >= 16
    assert {len(s.dims) for s in listed} == set(range(6))
    assert any(0 in s.dims for s in listed)
    assert any(max(s.dims, default=0) > 512 for s in listed)  # beyond a tile of R2
    sizes = [sum(len(c.instructions) for c in e.module.computations) for e in examples(MODULES)]
    assert min(sizes) >= 5
    assert np.median(sizes) >= 15


# ---- compiled execution --------------------------------------------------------------------------


@settings(max_examples=MODULES, suppress_health_check=HEALTH)
@given(modules())
def test_compiled_execution_is_op_by_op_execution(example: Example) -> None:
    verify(example.module)
    agrees(example, PROFILE)


@pytest.mark.parametrize("fields", OTHER_PROFILES, ids=lambda f: ",".join(f))
def test_compiled_execution_follows_the_profile(fields: dict[str, str]) -> None:
    profile, unsupported = PROFILE.replace(**fields), 0
    for example in examples(MODULES)[:: MODULES // QUICK]:
        try:
            interpreter.evaluate(example.module, example.inputs, profile)
        except UnsupportedOperator:  # S2 has no words for the steps of some computations
            unsupported += 1
            continue
        agrees(example, profile)
    assert unsupported <= (QUICK // 2 if "rounding" in fields else 0)


def test_compiled_execution_truncates_and_counts_as_op_by_op_C7() -> None:
    profile, counted, native = PROFILE.replace(int64="truncate"), 0, 0
    for example in examples(MODULES)[:: MODULES // QUICK]:
        program = compile_module(example.module, profile, find_target("host"))
        names = [p.name for p in example.module.entry_computation.parameters]
        inputs = dict(zip(names, example.inputs, strict=True))
        met = Diagnostics(), Diagnostics()
        schedules = program, program.op_by_op
        pairs = zip(schedules, met, strict=True)
        found = [flat_bits(run_schedule(s, inputs, counts)) for s, counts in pairs]
        for ours, theirs in zip(*found, strict=True):
            assert ours.type == theirs.type
            assert ours.data.tobytes() == theirs.data.tobytes()
        assert met[0].of("int64_truncated") == met[1].of("int64_truncated")
        counted += bool(met[0].of("int64_truncated"))
        native += bool(met[0].of("int64_truncated")) and not program.keeps_64_bits
    assert counted >= QUICK // 8
    assert native >= QUICK // 16


def agrees(example: Example, profile: Profile) -> None:
    expected, _ = interpreter.evaluate(example.module, example.inputs, profile)
    listed = [i for c in example.module.computations for i in c.instructions]
    types = {s.dtype for i in listed for s in i.shape.arrays()}
    target = "trn1" if types <= find_target("trn1").types else "host"
    program = api.compile(example.module, auto_cast="none", target=target, profile=profile)
    found = flat(program(*(Array(x) for x in example.inputs), seed=0))
    for ours, theirs in zip(found, interpreter.leaves(expected), strict=True):
        assert ours.bits.type == theirs.type
        assert ours.bits.data.tobytes() == theirs.data.tobytes()


# ---- XLA -----------------------------------------------------------------------------------------


@functools.cache
def compared(count: int) -> tuple[tuple[Applied, tuple[np.ndarray, ...]], ...]:
    """The applications that XLA has an instruction for, with its results."""
    pytest.importorskip("jax", reason="the peer XLA is not installed (extra `peers`)")
    from tests.executor import xla

    without = agreement.NO_CODE | agreement.NO_ORACLE
    chosen = [a for a in applications(count) if a.instruction.opcode not in without]
    return tuple(zip(chosen, xla.alone(chosen), strict=True))


@pytest.mark.parametrize("count", [QUICK, pytest.param(MODULES, marks=pytest.mark.exhaustive)])
def test_every_instruction_alone_agrees_with_xla(count: int) -> None:
    found = [d for a, theirs in compared(count) for d in agreement.differences(a, theirs)]
    assert [str(d) for d in found[:5]] == []


def test_functions_that_xla_lacks_are_the_twins() -> None:
    chosen = [a for a in applications(QUICK) if a.instruction.opcode in agreement.NO_CODE]
    wrong = [(a.instruction.opcode, agreement.not_the_twins(a)) for a in chosen]
    assert [w for w in wrong if w[1]] == []


def test_a_changed_word_is_a_difference() -> None:
    """The exclusions leave most words: one that is changed in its last bit is seen."""
    seen, changed = 0, 0
    for a, theirs in compared(QUICK):
        if a.instruction.opcode in agreement.SUMS | agreement.BOUNDS.keys() or not theirs[0].size:
            continue
        other = np.array(theirs[0])
        place = other.reshape(-1).view(f"u{other.itemsize}")
        place[-1] ^= 1
        seen += bool(agreement.differences(a, (other, *theirs[1:])))
        changed += 1
    assert changed > 200
    assert seen > 0.9 * changed


def test_bounds_are_of_functions_and_at_most_four_units() -> None:
    exact = {"add", "subtract", "multiply", "divide", "sqrt", "maximum", "minimum", "convert"}
    assert not exact & agreement.BOUNDS.keys()
    for opcode, by_type in agreement.BOUNDS.items():
        assert ops.by_opcode(opcode, {}).core is not None
        assert all(0 < bound <= 4 for bound in by_type.values())
