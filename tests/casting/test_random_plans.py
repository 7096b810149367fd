"""Plans of random modules: they verify, stand where A2 says, and compute it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from tests.casting.reading import by_rows, read_module
from tests.executor.random_modules import EXECUTED, Example, modules
from tests.support.running import execute, flat

from neuronsim import dtypes, ops
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.flags import CAST_TYPES
from neuronsim.casting.plans.plan import Plan, make_plan
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.hlo import proto
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    graph_computations,
    simple_reducer,
)
from neuronsim.hlo.opcodes import row
from neuronsim.hlo.verify import verify

pytestmark = pytest.mark.isa_independent

F32 = dtypes.float32
SETTINGS = [("none", "bf16"), *itertools.product(("matmult", "all"), CAST_TYPES)]
# R5 and R2's general computations round each step; random numbers depend on names.
ROUND_EACH_STEP = {"scatter", "select-and-scatter", "map"}
RANDOM = {"rng", "rng-get-and-update-state"}
HEALTH = list(HealthCheck)


@settings(max_examples=50, phases=[Phase.generate], suppress_health_check=HEALTH)
@given(modules(), st.sampled_from(SETTINGS))
def test_a_planned_module_is_a_module_A2(example: Example, setting: tuple[str, str]) -> None:
    model, policy = example.module, neuron_policy(*setting)  # type: ignore[arg-type]
    plan = make_plan(model, policy)
    result = apply_plan(model, plan)
    verify(result)
    flat = inline_calls(model)
    assert plan == make_plan(model, policy) == Plan.from_json(plan.to_json())
    assert result.parameters == model.parameters
    old = {c.name: c for c in flat.computations}
    carried = in_loops(flat) if setting[0] == "all" and setting[1] != "tf32" else set()
    low = CAST_TYPES[setting[1]]
    for c in graph_computations(result):
        was = old[c.name]
        for new, model_s in zip(
            [*c.parameters, c.by_name[c.root]], [*was.parameters, was.by_name[was.root]], strict=True
        ):
            types = [s.type for s in model_s.shape.arrays()]
            if c.name in carried:
                types = [ops.ArrayType(low, t.dims) if t.dtype is F32 else t for t in types]
            assert [s.type for s in new.shape.arrays()] == types
    if setting[0] == "none":
        assert fingerprint(result) == fingerprint(flat)
    again = proto.from_bytes(proto.to_bytes(model))
    assert fingerprint(apply_plan(again, plan)) == fingerprint(result)
    written = proto.from_bytes(proto.to_bytes(result))
    assert fingerprint(written) == fingerprint(result)
    if setting[0] == "all" and setting[1] != "tf32":
        for c in graph_computations(apply_plan(model, plan, clean=False)):
            assert [i.name for i in c.instructions if is_on_float32(c, i)] == []


def in_loops(model: Module) -> set[str]:
    """The bodies and conditions of loops that carry no complex value."""
    return {
        name
        for c in graph_computations(model)
        for i in c.instructions
        if i.opcode == "while" and all(s.dtype.kind != "complex" for s in i.shape.arrays())
        for name in i.called
    }


def is_on_float32(c: Computation, i: Instruction) -> bool:
    """Whether an instruction on an engine reads or gives float32 though it is no convert."""
    if i.opcode not in ops.OPCODES or i.opcode in ("convert", "reduce-precision"):
        return False
    reads = {s.dtype for o in i.operands for s in c.by_name[o].shape.arrays()}
    types = reads | {s.dtype for s in i.shape.arrays()}
    if row(i).cast == "host" or any(t.kind == "complex" for t in types):
        return False
    return F32 in (reads if row(i).cast == "matmult" else types)  # narrow products may give float32


@settings(max_examples=50, phases=[Phase.generate], suppress_health_check=HEALTH)
@given(modules(tuple(sorted(set(EXECUTED) - ROUND_EACH_STEP - RANDOM))), st.sampled_from(SETTINGS))
def test_a_planned_module_computes_A1_A2(example: Example, setting: tuple[str, str]) -> None:
    model = example.module
    assume(not any(rounds_otherwise(model, c, i) for c in model.computations for i in c.instructions))
    plan = make_plan(model, neuron_policy(*setting))  # type: ignore[arg-type]
    got = execute(apply_plan(model, plan), example.inputs)
    inputs = [typed(x) for x in example.inputs]
    expected = read_module(model, inputs, CAST_TYPES[setting[1]], setting[0], **by_rows(model))
    assert [x.tobytes() for x in flat(expected)] == [x.data.tobytes() for x in flat(got)]


def rounds_otherwise(model: Module, c: Computation, i: Instruction) -> bool:
    """Whether an instruction does more than one rounding of float32 arrays, or rounds a wider value."""
    if i.opcode in ("reduce", "reduce-window"):
        return simple_reducer(model.by_name[i.called[0]]) is None
    sources = [s.dtype for o in i.operands for s in c.by_name[o].shape.arrays()]
    return i.opcode == "convert" and (sources[0].bits > 32 or sources[0].kind == "complex")


def typed(x: ops.Bits) -> np.ndarray:
    return x.data.view(x.dtype.numpy)
