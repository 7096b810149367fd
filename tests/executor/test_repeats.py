"""Instructions that repeat an earlier one: which run, and that values and counts stay the same."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from tests.executor.random_modules import HEALTH, PROFILE, Example, modules
from tests.support.running import contents

from neuronsim import api, ops
from neuronsim.executor.compile import compile_module
from neuronsim.executor.run import run_schedule
from neuronsim.executor.steps import all_steps
from neuronsim.hlo.module import Computation, Instruction, Module, fresh_name
from neuronsim.hlo.parse import from_text
from neuronsim.profiles import Profile
from neuronsim.targets import find_target

REDUCERS = "\n".join(
    f"{name} {{\n  x = f32[] parameter(0)\n  {y} = f32[] parameter(1)\n  ROOT {z} = f32[] {op}\n}}"
    for name, y, z, op in (
        ("sum", "y", "z", "add(x, y)"),
        ("total", "other", "both", "add(x, other)"),
        ("greatest", "y", "z", "maximum(x, y)"),
        ("of_first", "y", "z", "add(x, x)"),
    )
)
# What two instructions on x are, and whether the second one runs.
PAIRS = {
    "alike": ("f32[4] negate(x)", "f32[4] negate(x)", False),
    "of other operands": ("f32[4] negate(x)", "f32[4] negate(y)", True),
    "in another order": ("f32[4] subtract(x, y)", "f32[4] subtract(y, x)", True),
    "of another type": ("bf16[4] convert(x)", "f16[4] convert(x)", True),
    "attributes": (
        "pred[4] compare(x, y), direction=LT",
        "pred[4] compare(x, y), direction=GT",
        True,
    ),
    "layouts": ("f32[2,2]{1,0} reshape(x)", "f32[2,2]{0,1} reshape(x)", False),
    "metadata": ('f32[4] exponential(x), metadata={op_name="a"}', "f32[4] exponential(x)", False),
    "reducers of other names": (
        "f32[] reduce(x, zero), dimensions={0}, to_apply=sum",
        "f32[] reduce(x, nought), dimensions={0}, to_apply=total",
        False,
    ),
    "another initial value": (
        "f32[] reduce(x, zero), dimensions={0}, to_apply=sum",
        "f32[] reduce(x, minus), dimensions={0}, to_apply=sum",
        True,
    ),
    "another reducer": (
        "f32[] reduce(x, zero), dimensions={0}, to_apply=sum",
        "f32[] reduce(x, zero), dimensions={0}, to_apply=greatest",
        True,
    ),
    "a reducer that reads otherwise": (
        "f32[4] reduce-window(x, zero), window={size=1}, to_apply=sum",
        "f32[4] reduce-window(x, zero), window={size=1}, to_apply=of_first",
        True,
    ),
    "random numbers": (
        "f32[4] rng(zero, minus), distribution=rng_uniform",
        "f32[4] rng(zero, minus), distribution=rng_uniform",
        True,
    ),
}


def module_of(first: str, second: str) -> Module:
    types = [line.split(" ")[0] for line in (first, second)]
    text = f"""HloModule m
{REDUCERS}
ENTRY main {{
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  zero = f32[] constant(0)
  nought = f32[] constant(0)
  minus = f32[] constant(-0)
  a = {first}
  b = {second}
  ROOT both = ({types[0]}, {types[1]}) tuple(a, b)
}}
"""
    return from_text(text)


def members(module: Module, profile: Profile) -> set[str]:
    schedule = compile_module(module, profile, find_target("host"))
    return {m for s in all_steps(schedule.steps) for m in s.members}


@pytest.mark.parametrize("kind", PAIRS)
def test_repeated_instructions_run_once_D2(kind: str) -> None:
    first, second, runs = PAIRS[kind]
    assert members(module_of(first, second), Profile()) == ({"a", "b"} if runs else {"a"})


def test_each_draws_words_of_its_own_S2() -> None:
    module = module_of("bf16[4] convert(x)", "bf16[4] convert(x)")
    assert members(module, Profile(rounding="stochastic")) == {"a", "b"}
    stated = 'bf16[4] convert(x), frontend_attributes={neuronsim.rounding="stochastic"}'
    assert members(module_of(stated, stated), Profile()) == {"a", "b"}


def test_what_every_run_counts_is_counted_of_each_C7() -> None:
    twice = "s64[4] convert(x)"
    program = api.compile(module_of(twice, twice), auto_cast="none")
    x = np.array([2.0**40, 1, 2, 3], np.float32)
    program(x, x)
    assert program.diagnostics["int64_truncated"] == {"a": 1, "b": 1}


@pytest.mark.parametrize("observe", ["counts", "full"])
def test_repeats_are_counted_as_what_runs_E3(observe: ops.Observe) -> None:
    log = "f32[4] log(x)"
    program = api.compile(module_of(log, log), auto_cast="none")
    x = np.array([-1, 0, 1, 2], np.float32)
    for _ in range(2):  # not of all calls together
        program(x, x, observe=observe)
        assert program.diagnostics["nan_origin"] == {"a": 1, "b": 1}
        assert program.diagnostics["division_by_zero"] == {"a": 1, "b": 1}


def with_repeats(c: Computation) -> Computation:
    """Every instruction and then another that does the same, which all later ones read."""
    taken = {i.name for i in c.instructions}
    instructions: list[Instruction] = []
    read: dict[str, str] = {}
    for i in c.instructions:
        i = i.replace(operands=tuple(read.get(o, o) for o in i.operands))
        instructions.append(i)
        if i.opcode not in ("parameter", "rng", "rng-get-and-update-state", "custom-call"):
            read[i.name] = fresh_name(i.name, taken)
            instructions.append(i.replace(name=read[i.name]))
    return Computation(c.name, tuple(instructions), read.get(c.root, c.root))


@settings(max_examples=50, suppress_health_check=HEALTH, deadline=None)
@given(modules())
def test_modules_of_repeats_give_the_same_values_D2(example: Example) -> None:
    entry = example.module.entry
    doubled = tuple(with_repeats(c) if c.name == entry else c for c in example.module.computations)
    module = dataclasses.replace(example.module, computations=doubled)
    found = [
        [contents(run_schedule(compile_module(m, PROFILE, find_target("host")), inputs))]
        for m in (example.module, module)
        for inputs in [dict(zip((p.name for p in m.parameters), example.inputs, strict=True))]
    ]
    assert found[0] == found[1]
