"""What is told of a model under settings: its estimated time, and the page of all that was found.

>>> cost("examples/digits/model.hlo.pb", auto_cast="all").estimate.bound
'vector'
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from neuronsim import processor, whole_files
from neuronsim.api import plan_of, planned
from neuronsim.casting.plans.plan import Plan
from neuronsim.frontends.inputs import ModelInputs
from neuronsim.hlo.constant_arrays import weight_bytes
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.module import Module
from neuronsim.hlo.trip_counts import Trips
from neuronsim.reading import is_traced, name_of, read_model, say
from neuronsim.report_page.graph import graph_document
from neuronsim.report_page.page import report_html
from neuronsim.setups import DEFAULT_SDK, CastRequest, CompilerSetting, find_setup, resolve
from neuronsim.targets import Target, find_target
from neuronsim.tuning.cost import estimate
from neuronsim.tuning.cost_order import SETTINGS_BY_SPEED
from neuronsim.tuning.cost_report import CostReport
from neuronsim.tuning.timeline import timeline


@processor.pinned
def cost(model: Any, *, trips: Trips = None, **setting: Any) -> CostReport:
    """The estimated time of a model on the device under a setting: see `compile` for the arguments, and
    docs/cost-model.md for what is assumed. Loops whose trips are not known take `trips`, as in `tune`.

    Raises NeuronSimError as `plan` does.
    """
    request = CastRequest(model, **setting)
    setup, decider = find_setup(request)
    say(setup.messages)
    module = read_model(model, request)
    made = plan_of(module, decider, setup, request.calibration)
    return _cost_of(name_of(model, module), module, made, made.policy, setup.target, trips)


@processor.pinned
def cost_ladder(
    model: Any, *, sdk: str = DEFAULT_SDK, target: str = "trn1", trips: Trips = None, **inputs: Any
) -> tuple[CostReport, ...]:
    """The same for every setting of the vendor's table, in AWS's order of rising speed; `inputs` are
    `input_shapes`, `input_values` and `batch`, as in `compile`.
    """
    module = read_model(model, ModelInputs(**inputs))
    name, found = name_of(model, module), []
    for setting in SETTINGS_BY_SPEED[find_target(target).compiler]:
        setup = resolve(CompilerSetting(flags=setting, sdk=sdk, target=target))
        made = plan_of(module, None, setup, None)
        found.append(_cost_of(name, module, made, setting, setup.target, trips))
    return tuple(found)


def _cost_of(
    name: str, module: Module, plan: Plan, setting: str, target: Target, trips: Trips
) -> CostReport:
    planned = plan.apply(module)
    found = estimate(planned, weight_bytes(planned), target, trips)
    times = timeline(planned, found)
    own = fingerprint(module)
    return CostReport(name, own, setting, target.name, target.description, found, times)


@processor.pinned
def write_report(
    path: str | Path,
    documents: Sequence[Mapping[str, Any]],
    *,
    model: Any = None,
    data: Any = None,
    command: str = "",
    **setting: Any,
) -> None:
    """Write one self-contained HTML page of what `tune`, `blame`, `run --observe` and `cost` found, of
    their JSON documents (extra `report`). With the `model`, and the setting as in `compile`, it shows
    each instruction with its neighbours and what is decided of it, and the estimated timeline; what the
    model leaves open of its inputs is as in `data`.

    Raises InvalidData for other documents and InaccessibleFile where the page cannot be written.
    """
    whole = list(documents)
    if model is not None:
        setup, module, _, made = planned(CastRequest(model, **setting), data)
        name = name_of(model, module)
        whole.append(graph_document(module, made, name=name, traced=is_traced(model)))
        if not any(str(d.get("schema", "")).startswith("neuronsim.cost/") for d in whole):
            found = _cost_of(name, module, made, made.policy, setup.target, None)
            whole.append(json.loads(found.to_json()))
    whole_files.write_text(path, report_html(whole, command=command))
