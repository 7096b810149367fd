"""XLA reads the planned modules, as file and as text, with what they state; and runs them alike."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from tests.casting.border_modules import borders, network, sums, tuple_of
from tests.casting.planning_by_hand import decide, plan_of, settings
from tests.hlo.xla import through_file, through_text
from tests.support.graphs import inst, module_of, parameter, reducer
from tests.support.running import execute

from neuronsim import dtypes, ops
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.flags import CAST_TYPES
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.dtypes import float_format
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.module import Module, Shape, TupleShape
from neuronsim.hlo.verify import verify

xla = pytest.importorskip("jaxlib._hlo", reason="the peer XLA is not installed (extra `peers`)")

F32, F16, BF16, TF32 = dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.tfloat32
S32, PRED = dtypes.int32, dtypes.boolean
OPEN = float_format(6, 9)


def statements(module: Module, name: str) -> Any:
    return module.entry_computation.by_name[name].attributes.get("frontend_attributes", {})


def types(module: Module) -> list[str]:
    """What each instruction gives; XLA may number names anew."""
    return sorted(str((i.opcode, i.result)) for i in module.entry_computation.instructions)


def accepted(module: Module, *decided: str) -> None:
    """XLA gives back what was written: types, instructions, and what they state."""
    verify(module)
    for way in (through_file, through_text):
        again = way(module)
        verify(again)
        assert settings(again) == settings(module)
        assert again.program_shape == module.program_shape
        assert types(again) == types(module)
        for name in decided:
            assert statements(again, name) == statements(module, name) != {}


BORDERS: dict[str, dict[str, Decision]] = {
    "bf16": dict.fromkeys(["zero", "e", "v", "d", "r", "t", "s"], decide(BF16))
    | {"k": decide(BF16, PRED), "h": decide(BF16, F16)},
    "an open format": dict.fromkeys(["e", "v", "d", "r", "t", "s"], decide(OPEN)),
    "two types": {"e": decide(BF16, F16), "v": decide(F16, BF16), "s": decide(BF16, OPEN)},
    "open to narrow": {"e": decide(OPEN), "v": decide(BF16), "t": decide(OPEN, F16)},
    "roundings": {
        "zero": decide(BF16, rounding="stochastic"),
        "e": decide(BF16, rounding="nearest_even"),
        "d": decide(TF32, rounding="stochastic"),
        "s": decide(TF32, rounding="stochastic"),
    },
    "slots": {
        "d": decide(BF16, float32_operands=(1,)),
        "s": decide(BF16, float32_operands=(0,)),
        "v": decide(BF16, float32_results=(0,)),
    },
    "a relayout": {"t": decide(F32, relayout=F16)},
    "a low relayout": {"t": decide(BF16, relayout=BF16, saturate_infinity=True)},
    "a carried relayout": {"t": decide(TF32, relayout=F16, rounding="nearest_even")},
    "a reason": {"e": decide(BF16, reason='why "this"? {because} \\ = \N{SNOWMAN}')},
}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("kind", BORDERS)
def test_xla_reads_every_kind_of_decision(kind: str, keep: bool, clean: bool) -> None:
    model = borders()
    entry = model.entry_computation
    out = tuple_of("out", *(entry.by_name[n] for n in ("s", "t", "d", "r", "k", "h", "v")))
    model = module_of(*entry.instructions, out, others=(reducer("add"),))
    plan = plan_of(model, BORDERS[kind], keep_output_type=keep)
    accepted(apply_plan(model, plan, clean=clean), *BORDERS[kind])


@pytest.mark.parametrize("accumulate", [F16, BF16], ids=lambda t: t.name)
@pytest.mark.parametrize("operand", [F32, BF16, TF32, OPEN], ids=lambda t: t.name)
def test_xla_reads_the_types_of_sums(operand: dtypes.DType, accumulate: dtypes.DType) -> None:
    model = sums()
    decisions = dict.fromkeys("dcrmv", decide(operand, accumulate=accumulate))
    accepted(apply_plan(model, plan_of(model, decisions)), *decisions)


def test_xla_reads_mixed_results() -> None:
    shapes = tuple(Shape(F32, dims) for dims in ((4, 3), (3,), (3,)))
    given = [parameter(n, s, k) for k, (n, s) in enumerate(zip("pso", shapes, strict=True))]
    stated = {"epsilon": 0.001, "feature_index": 1}
    norm = inst("n", "batch-norm-training", TupleShape(shapes), *"pso", **stated)
    model = module_of(*given, norm)
    slots = decide(BF16, float32_operands=(1, 2), float32_results=(1, 2))
    for keep in (True, False):
        accepted(apply_plan(model, plan_of(model, {"n": slots}, keep_output_type=keep)), "n")


def test_xla_reads_outputs_in_planned_types_that_lie_in_inputs() -> None:
    x, w = parameter("x", (2, 3)), parameter("w", (2, 3), number=1)
    a, b = inst("a", "negate", (2, 3), "x"), inst("b", "negate", (2, 3), "w")
    model = module_of(x, w, a, b, tuple_of("out", a, b))
    aliases = (((0,), 0, (), "MAY_ALIAS"), ((1,), 1, (), "MAY_ALIAS"))
    model = dataclasses.replace(model, input_output_alias=aliases)
    own = apply_plan(model, plan_of(model, {"a": decide(BF16)}, keep_output_type=False))
    accepted(own, "a")
    assert through_file(own).input_output_alias == aliases[1:]


@pytest.mark.parametrize("low", [*CAST_TYPES.values(), OPEN], ids=lambda t: t.name)
@pytest.mark.parametrize("clean", [True, False])
def test_xla_runs_what_it_read_alike(low: dtypes.DType, clean: bool) -> None:
    """Its sums are in another order and narrower, so agreement is to some steps of the type."""
    execute_by_xla = pytest.importorskip("tests.executor.xla", reason="no peer XLA").execute
    model = network()
    x = np.random.default_rng(4).normal(size=(4, 6)).astype(np.float32)
    results = []
    for policy in (neuron_policy("all", "bf16"), neuron_policy("none", "bf16")):
        plan = make_plan(model, dataclasses.replace(policy, low=policy.low and low))
        planned = apply_plan(model, plan, clean=clean)
        again = through_file(planned)
        assert fingerprint(again) == fingerprint(through_file(again))
        (got,) = execute_by_xla(planned, [ops.Bits(x, F32)])
        results.append(np.asarray(got, np.float32))
    plan = make_plan(model, dataclasses.replace(neuron_policy("all", "bf16"), low=low))
    ours = execute(apply_plan(model, plan, clean=clean), [ops.Bits(x, F32)]).data
    np.testing.assert_allclose(results[0], ours, rtol=16 * low.eps, atol=4 * low.eps)
    assert np.abs(results[0] - results[1]).max() > 0  # the casts are XLA's too
