"""Instructions that repeat an earlier one: which run, and that values and counts stay the same."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from tests.executor.random_modules import HEALTH, PROFILE, Example, modules
from tests.support.running import contents

from neuronsim import api, ops
from neuronsim.cli.observations import total_diagnostics
from neuronsim.executor.compile import compile_module
from neuronsim.executor.run import run_schedule
from neuronsim.executor.steps import all_steps
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    TupleShape,
    fresh_name,
)
from neuronsim.hlo.parse import from_text
from neuronsim.profiles import Profile
from neuronsim.targets import find_target


def applied(name: str, y: str, z: str, op: str, result: str = "f32") -> str:
    """A computation of two numbers."""
    return f"""{name} {{
  x = f32[] parameter(0)
  {y} = f32[] parameter(1)
  one = f32[] constant({1 if name != "two_more" else 2})
  more = f32[] add({y}, one)
  ROOT {z} = {result}[] {op}
}}"""


APPLIED = "\n".join(
    (
        applied("sum", "y", "z", "add(x, y)"),
        applied("total", "other", "both", "add(x, other)"),
        applied("greatest", "y", "z", "maximum(x, y)"),
        applied("of_first", "y", "z", "add(x, x)"),
        applied("one_more", "y", "z", "add(x, more)"),
        applied("two_more", "y", "z", "add(x, more)"),
        applied("below", "y", "z", "compare(x, y), direction=LT", "pred"),
        applied("above", "y", "z", "compare(x, y), direction=GT", "pred"),
        applied("turned", "y", "z", "compare(y, x), direction=LT", "pred"),
        applied("under", "b", "is", "compare(x, b), direction=LT", "pred"),
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
    "reducers with other constants": (
        "f32[4] reduce-window(x, zero), window={size=2 pad=0_1}, to_apply=one_more",
        "f32[4] reduce-window(x, zero), window={size=2 pad=0_1}, to_apply=two_more",
        True,
    ),
    "comparators alike": (
        "f32[4] sort(x), dimensions={0}, to_apply=below",
        "f32[4] sort(x), dimensions={0}, to_apply=under",
        False,
    ),
    "other comparators": (
        "f32[4] sort(x), dimensions={0}, to_apply=below",
        "f32[4] sort(x), dimensions={0}, to_apply=above",
        True,
    ),
    "comparators that read otherwise": (
        "f32[4] sort(x), dimensions={0}, to_apply=below",
        "f32[4] sort(x), dimensions={0}, to_apply=turned",
        True,
    ),
    "reasons": (
        'f32[4] negate(x), frontend_attributes={neuronsim.reason="one"}',
        'f32[4] negate(x), frontend_attributes={neuronsim.reason="another"}',
        False,
    ),
    "random numbers": (
        "f32[4] rng(zero, minus), distribution=rng_uniform",
        "f32[4] rng(zero, minus), distribution=rng_uniform",
        True,
    ),
}


def text_of(first: str, second: str) -> str:
    types = [line.split(" ")[0] for line in (first, second)]
    return f"""HloModule m
{APPLIED}
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


def module_of(first: str, second: str) -> Module:
    return from_text(text_of(first, second))


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
    for twice in ("s64[4] convert(x)", "s64[2] constant({1, 1099511627776})"):
        program = api.compile(module_of(twice, twice), auto_cast="none")
        x = np.array([2.0**40, 1, 2, 3], np.float32)
        program(x, x)
        assert program.diagnostics["int64_truncated"] == {"a": 1, "b": 1}


def test_large_arrays_are_computed_again_and_sums_of_them_are_not_D2() -> None:
    """A value that early and late instructions read takes no memory between them."""
    text = """HloModule m
APPLIED
ENTRY main {
  x = f32[5000] parameter(0)
  zero = f32[] constant(0)
  a = f32[5000] negate(x)
  s = f32[] reduce(a, zero), dimensions={0}, to_apply=sum
  b = f32[5000] negate(x)
  t = f32[] reduce(b, zero), dimensions={0}, to_apply=total
  ROOT y = (f32[5000], f32[5000], f32[], f32[]) tuple(a, b, s, t)
}
"""
    assert members(from_text(text.replace("APPLIED", APPLIED)), Profile()) == {"a", "b", "s"}


def test_what_is_not_read_is_no_first_E3() -> None:
    module = module_of("f32[4] log(x)", "f32[4] log(x)")
    entry = module.entry_computation
    both = entry.by_name["both"].replace(operands=("b",), shape=TupleShape((entry.by_name["b"].array,)))
    instructions = (*entry.instructions[:-1], both)
    module = dataclasses.replace(
        module,
        computations=(*module.computations[:-1], dataclasses.replace(entry, instructions=instructions)),
    )
    assert members(module, Profile()) == {"b"}


def test_constants_of_other_tuples_are_others_D2() -> None:
    text = """HloModule m
ENTRY main {
  p = ((f32[], f32[]), f32[]) constant(((1, 2), 3))
  q = (f32[], (f32[], f32[])) constant((1, (2, 3)))
  a = (f32[], f32[]) get-tuple-element(p), index=0
  b = (f32[], f32[]) get-tuple-element(q), index=1
  c = f32[] get-tuple-element(a), index=0
  d = f32[] get-tuple-element(b), index=0
  ROOT r = f32[2] concatenate(e, f), dimensions={0}
  e = f32[1] reshape(c)
  f = f32[1] reshape(d)
}
"""
    assert np.asarray(api.compile(from_text(text), auto_cast="none")()).tolist() == [1, 2]


def test_constants_that_repeat_count_once_E3() -> None:
    """What their folding met is known of each, and added up over calls once."""
    log = "f32[4] log(c)"
    text = text_of(log, log).replace("  a = ", "  c = f32[4] constant({-1, 0, 1, 2})\n  a = ")
    program = api.compile(from_text(text), auto_cast="none")
    x = np.ones(4, np.float32)
    met = []
    for _ in range(3):
        program(x, x, observe="counts")
        met.append(program.diagnostics)
    assert program.constant_diagnostics["nan_origin"] == {"a": 1, "b": 1}
    total = total_diagnostics(met, program.constant_diagnostics)
    assert total.of("nan_origin") == {"a": 1, "b": 1}


@pytest.mark.parametrize("observe", ["counts", "full"])
def test_repeats_are_counted_as_what_runs_E3(observe: ops.Observe) -> None:
    for n in (4, 5000):  # small, and computed again
        log = f"f32[{n}] log(x)"
        module = from_text(text_of(log, log).replace("f32[4] param", f"f32[{n}] param"))
        program = api.compile(module, auto_cast="none")
        x = np.ones(n, np.float32)
        x[:2] = -1, 0
        for _ in range(2):  # not of all calls together
            program(x, x, observe=observe)
            assert program.diagnostics["nan_origin"] == {"a": 1, "b": 1}
            assert program.diagnostics["division_by_zero"] == {"a": 1, "b": 1}


def with_repeats(c: Computation) -> Computation:
    """Every instruction and then another that does the same; others read the one or the other, and a
    root that is a tuple has both of all.
    """
    taken = {i.name for i in c.instructions}
    instructions: list[Instruction] = []
    twice: dict[str, tuple[str, str]] = {}
    for n, i in enumerate(c.instructions):
        read = [twice.get(o, (o, o)) for o in i.operands]
        one, other = (tuple(r[(n + k + m) % 2] for k, r in enumerate(read)) for m in (0, 1))
        if i.name == c.root and isinstance(i.shape, TupleShape) and i.opcode == "tuple":
            both = TupleShape((*i.shape.elements, *i.shape.elements))
            instructions.append(i.replace(operands=(*one, *other), shape=both))
            continue
        instructions.append(i.replace(operands=one))
        if i.opcode not in ("parameter", "rng", "rng-get-and-update-state"):
            twice[i.name] = (i.name, fresh_name(i.name, taken))
            instructions.append(i.replace(name=twice[i.name][1], operands=other))
    return Computation(c.name, tuple(instructions), c.root)


@settings(max_examples=50, suppress_health_check=HEALTH, deadline=None)
@given(modules())
def test_modules_of_repeats_give_the_same_values_D2(example: Example) -> None:
    entry = example.module.entry
    doubled = tuple(with_repeats(c) if c.name == entry else c for c in example.module.computations)
    module = dataclasses.replace(example.module, computations=doubled)
    once, twice = (compile_module(m, PROFILE, find_target("host")) for m in (example.module, module))
    assert len(twice.repeats) > len(once.repeats)
    inputs = dict(zip((p.name for p in module.parameters), example.inputs, strict=True))
    assert contents(run_schedule(twice, inputs)) == 2 * contents(run_schedule(once, inputs))
