"""Steps in Python: those for which the core has no recorded form, and those that look into results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from neuronsim import _core, dtypes, ops
from neuronsim.errors import NeuronSimError
from neuronsim.executor.diagnostics import Diagnostics, Observe
from neuronsim.executor.steps import Call, Chain, Product, Step
from neuronsim.ops import ArrayType, Bits, BitsArray
from neuronsim.profiles import Profile


def evaluate_step(
    step: Step,
    arrays: Sequence[Bits],
    setting: ops.Setting,
    diagnostics: Diagnostics,
    trips: str = "",
    observe: Observe = "off",
) -> tuple[Bits, ...]:
    """The arrays that a chain, product or call gives. The setting's path is "call/computation/", and
    `trips` the trip counts of the loops around it (S2). `diagnostics` receives what is met, as far as
    `observe` asks for.
    """
    action = step.action
    if isinstance(action, Chain):
        program = action.program(setting.profile)
        ids = action.identifiers(setting, trips)
        looks = observe != "off" or action.is_counted
        records = ops.empty_records(len(action.links)) if looks else None
        data = ops.run_chain(
            program, [a.data for a in arrays], [step.result], setting.seed, ids, records
        )
        if records is not None:
            diagnostics.add_records(action.instructions, records, observe)
        return (Bits(data[0], step.result.dtype),)
    own = setting._replace(path=f"{setting.path}{step.name}/{trips}")
    if isinstance(action, Product):
        evaluation = action.call.evaluation(arrays[:2], own)
        fusion = ops.with_terms(action.fusion, [a.data for a in arrays[2:]])
        result = ops.evaluate_fused(evaluation, fusion)
        if observe != "off":
            diagnostics.add_events(action.name, ops.observe(evaluation, [result]))
        return (result,)
    assert isinstance(action, Call)
    evaluation = action.evaluation(arrays, own._replace(profile=action.profile))
    outside = ops.count_outside_range(action.op, arrays, action.profile)
    if outside:
        diagnostics.add_count("outside_range", step.name, outside)
    if action.profile.int64 == "keep":
        found = ops.run(evaluation)
    else:
        found, changed = ops.truncated_all(evaluation)
        if changed:
            diagnostics.add_count("int64_truncated", step.name, changed)
    if diagnostics.listener is not None:
        diagnostics.listener(step.name, trips, found)
    if observe != "off":
        diagnostics.add_events(step.name, ops.observe(evaluation, found))
    if observe == "full":
        diagnostics.describe(step.name, evaluation, found)
    return found


PythonFunction: TypeAlias = Callable[[Any, list[BitsArray], list[BitsArray]], None]


def inspect_call(
    s: Step, action: Call, types: Sequence[dtypes.DType], setting: ops.Setting
) -> PythonFunction:
    """Counts what a call met; the inputs are its result and its operands, which have these types."""
    dtype = s.result.dtype

    def run(context: Any, inputs: list[BitsArray], outputs: list[BitsArray]) -> None:
        operands = [Bits(a, t) for a, t in zip(inputs[1:], types, strict=True)]
        met = ops.observe(action.evaluation(operands, setting), [Bits(inputs[0], dtype)])
        context.diagnostics.add_events(s.name, met)

    return run


def inspect_product(action: Product, types: Sequence[dtypes.DType], profile: Profile) -> PythonFunction:
    """Counts what a product met; the inputs are its result where no epilogue took the sums, which are
    then computed again, and the operands that are not packed.
    """
    fusion = replace(action.fusion, epilogue=None, terms=())
    setting = ops.Setting(profile)

    def run(context: Any, inputs: list[BitsArray], outputs: list[BitsArray]) -> None:
        diagnostics: Diagnostics = context.diagnostics
        given = list(inputs)
        known = None if action.fusion.epilogue is not None else given.pop(0)
        operands = [Bits(a, t) for a, t in zip(given, types, strict=False)]
        if action.reads_packed:
            operands.append(ops.standin(action.rhs))
        product = action.call.evaluation(operands, setting)
        dtype = action.result.dtype
        result = ops.evaluate_fused(product, fusion) if known is None else Bits(known, dtype)
        read = [_prologue(x, f) for x, f in zip(operands, (fusion.lhs, fusion.rhs), strict=True)]
        origins = ops.find_origins(product._replace(operands=read), result, action.reads_packed)
        diagnostics.add_events(action.name, ops.of_origins(origins))
        if known is not None:  # else the epilogue saw the rounding
            diagnostics.add_events(action.name, ops.observe_rounding(product, result, fusion))

    return run


def _prologue(x: Bits, fused: tuple[_core.Chain, dtypes.DType] | None) -> Bits:
    """What a fused program makes of an operand."""
    if fused is None:
        return x
    result = ArrayType(fused[1], x.data.shape)
    return Bits(ops.run_chain(fused[0], [x.data], [result])[0], result.dtype)


def python_function(s: Step, types: Sequence[dtypes.DType], profile: Profile) -> PythonFunction:
    """A step for which the core has no recorded form."""

    def run(context: Any, inputs: list[BitsArray], outputs: list[BitsArray]) -> None:
        arrays = [Bits(a, t) for a, t in zip(inputs, types, strict=False)]
        trips = ",".join(str(int(t[()])) for t in inputs[len(types) :])
        path = f"{context.call}/{s.computation}/"
        setting = ops.Setting(profile, context.seed, path, context.replica)
        try:
            found = evaluate_step(s, arrays, setting, context.diagnostics, trips, context.observe)
        except NeuronSimError as error:
            action = s.action.call if isinstance(s.action, Product) else s.action
            label = action.op.label if isinstance(action, Call) else "chain"
            raise type(error)(f"{s.name} ({label}): {error}") from error
        for output, value in zip(outputs, found, strict=True):
            np.copyto(output, value.data)

    return run
