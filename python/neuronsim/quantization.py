"""`quantize`: a plan by which the products of a model read integers of 8 bits.

>>> import numpy as np
>>> import neuronsim as ns
>>> def model(x):
...     return ns.matmul(x, ns.asarray(np.eye(4, dtype=np.float32)))
>>> plan = ns.quantize(model, {"x": np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)})
>>> plan.explain("dot").split(",")[0]
'dot reads int8 (scale 0.00784314'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from neuronsim import api
from neuronsim.casting.decisions.post_training import Recipe, find_recipe
from neuronsim.casting.plans.plan import Plan
from neuronsim.casting.policies.calibration import Calibration
from neuronsim.casting.policies.policy import Policy
from neuronsim.errors import InvalidArgument
from neuronsim.frontends.inputs import ModelInputs
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import Module
from neuronsim.processor import pinned
from neuronsim.reading import read_model
from neuronsim.tuning.calibrated import Fit, calibrated_decisions, combined, fall_back
from neuronsim.tuning.dataset import (
    Dataset,
    batches,
    load_dataset,
    output_shapes,
    reject_nan,
    run_batches,
)
from neuronsim.tuning.metrics import accuracy, check_labels
from neuronsim.tuning.statistics import output_statistics

BF16 = "bf16"  # the others as auto_cast="all" casts them


@pinned
def quantize(
    model: Any,
    data: str | Path | Mapping[str, Any],
    recipe: Recipe | str | None = None,
    *,
    others: str | Policy | Plan | None = None,
    labels: Any = None,
    tolerance: float | None = None,
    progress: Callable[[int, int], None] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    input_values: Mapping[str, Any] | None = None,
    batch: int = 1,
    outputs: Sequence[str] = (),
    calibration: Calibration | None = None,
    **choices: Any,
) -> Plan:
    """A plan by which the products of a model read integers of 8 bits, with the ranges that their
    operands have on data (post-training static quantization): `compile(model, plan=plan)` runs it.

    `data` is as in `tune`. The `recipe` is a `Recipe` or a scheme in words, such as "mse,uint8,
    per-tensor" (`find_recipe`); `choices` are the fields of it: `method` of calibration ("minmax",
    "moving_average", "percentile", "entropy", "mse"), the types of `activations` and `weights`,
    `symmetric`, `per_channel`, `weight_only`, `operations` and `exclude`. The `others`, which are not
    quantized, are as the model has them, or as this policy or plan says, or "bf16": those of
    `auto_cast="all"`; where a policy compares values, `calibration` is what `calibrate` gives. Products
    in loops keep their types, which the plan says.

    With a `tolerance` the products that lose the most are left to the others, as few as are needed
    (the strategy `basic`): until, with labels, the accuracy lost (top-1) is within it, else the
    relative error of every output.

    Raises InvalidData for data that are NaN or Inf, or none; NeuronSimError for a model that they do
    not fit.
    """
    if progress is not None and not callable(progress):
        raise InvalidArgument(f"progress is a function that is told how far it is, not {progress!r}")
    api.refuse_unknown("quantize", choices, [f.name for f in fields(Recipe)])
    chosen = replace(Recipe() if recipe is None else find_recipe(recipe), **choices)
    inputs = ModelInputs(
        input_shapes=input_shapes, input_values=input_values, batch=batch, outputs=outputs
    )
    module = read_model(model, inputs, data)
    api.check_calibration(calibration, module)  # which no rule on values may ask for
    rest = _plan_of_others(module, others, calibration)
    dataset = load_dataset(data, labels, module.input_names())
    reject_nan(dataset)
    if tolerance is not None:
        shapes = output_shapes(module, batches(module, dataset).are_runs)
        check_labels(dataset.labels, shapes)

    def build(tapped: Module) -> Any:
        return api.compile(tapped, auto_cast="none")

    quantized, kept = calibrated_decisions(inline_calls(module), dataset, chosen, build, progress)
    plan = combined(rest, f"{chosen.name}, others {rest.policy}", quantized, kept)
    if tolerance is None or not quantized:
        return plan
    if not 0 <= tolerance < math.inf:
        raise InvalidArgument(f"the tolerance is a number of at least 0, not {tolerance!r}")
    loss = _loss_on(module, dataset)
    return fall_back(plan, rest, tuple(quantized), Fit(loss, float(tolerance)))


def _plan_of_others(
    module: Module, others: str | Policy | Plan | None, calibration: Calibration | None
) -> Plan:
    if others is None:
        return api.plan(module, auto_cast="none")
    if others == BF16:
        return api.plan(module, auto_cast="all", auto_cast_type="bf16")
    if isinstance(others, Plan):
        return api.plan(module, plan=others)
    return api.plan(module, policy=others, calibration=calibration)


def _loss_on(module: Module, dataset: Dataset) -> Callable[[Plan], float]:
    """How much a plan loses against float32: accuracy where there are labels, else the error."""
    reference = run_batches(api.compile(module, auto_cast="none"), module, dataset)
    shapes = output_shapes(module, batches(module, dataset).are_runs)

    def loss(plan: Plan) -> float:
        found = run_batches(api.compile(module, plan=plan), module, dataset)
        if dataset.labels is not None:
            exact, own = (accuracy(x, shapes, dataset.labels) for x in (reference, found))
            return exact - own
        pairs = zip(found, reference, strict=True)
        wide = (output_statistics(a.astype(np.float64), b.astype(np.float64)) for a, b in pairs)
        return max((s.relative_error for s in wide), default=0.0)

    return loss


__all__ = ["Recipe", "quantize"]
