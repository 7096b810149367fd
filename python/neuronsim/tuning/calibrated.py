"""Runs a model on data and decides from the values that its products read how they are quantized, and
which of them are not, so that the whole loses no more than it may; and quantized plans as rungs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes
from neuronsim.casting.decisions.post_training import (
    Recipe,
    SeenArray,
    decisions_of,
    find_sites,
    seen_arrays,
    tapped,
)
from neuronsim.casting.decisions.record import Decision, without_biases
from neuronsim.casting.plans.plan import Plan
from neuronsim.casting.policies.ranges import Seen, counts_values
from neuronsim.errors import InvalidData, warn
from neuronsim.hlo.inlining import FlatModule, inline_calls
from neuronsim.hlo.module import Module
from neuronsim.targets import Target
from neuronsim.tuning.dataset import Arrays, Dataset, batches
from neuronsim.tuning.rungs import FASTEST, Rung
from neuronsim.tuning.trials import reference_plan

Progress = Callable[[int, int], None]


def calibrated_decisions(
    module: FlatModule,
    dataset: Dataset,
    recipe: Recipe,
    build: Callable[[Module], Any],
    progress: Progress | None = None,
) -> tuple[dict[str, Decision], dict[str, str]]:
    """The decisions of a recipe on a module whose values are those of a float32 run on data, and why
    other products keep their types. `build` compiles a module without casts.

    Raises InvalidData for an input that is Inf somewhere, and for an array that is finite nowhere.
    """
    sites, kept = find_sites(module, recipe)
    names = seen_arrays(sites, recipe)
    if not names:
        return {}, kept
    for name, array in dataset.inputs.items():
        if array.dtype.kind not in "biu" and np.isinf(array).any():
            raise InvalidData(
                f"{dataset.source}: {name!r} is Inf somewhere: no range holds it; remove such samples"
            )
    weights = {s.product.operands[1] for s in sites if s.known[1]}
    seen = {n: SeenArray(Seen(recipe.method, recipe.percentile, recipe.activations)) for n in names}
    program = build(tapped(module, names))
    passes = (False, True) if counts_values(recipe.method) else (False,)
    given = batches(module, dataset)
    total, done = len(given) * len(passes), 0

    def run(inputs: Arrays, see: Callable[[Seen, npt.NDArray[np.float32]], None]) -> None:
        for name, value in zip(names, program(**inputs), strict=True):
            array = np.asarray(value, np.float32)
            if name in weights:
                seen[name].weights = array
            else:
                see(seen[name].activation, array)

    for again in passes:
        for inputs, _ in given:
            run(inputs, Seen.count if again else Seen.add)
            done += 1
            if progress is not None:
                progress(done, total)
        filler = given.filler  # which widens no range
        if again and filler is not None:
            run(filler.inputs, partial(Seen.count, copies=-filler.copies, size=filler.size))
    return decisions_of(sites, seen, recipe), kept


def quantized_rungs(
    module: Module,
    calibration: Dataset,
    recipes: Sequence[Recipe],
    rungs: Sequence[Rung],
    target: Target,
    build: Callable[[Module], Any],
) -> list[Rung]:
    """For each recipe a rung whose products read bytes, as `int8/minmax`, and one whose others
    are as the compiler's fastest rung has them, with the last part of that one's name behind a plus;
    this alone where the target has no products in float32.
    """
    others = next(r for r in rungs if r.name == FASTEST[target.compiler])
    found = []
    for recipe in recipes:
        name = recipe.setting
        decisions, kept = calibrated_decisions(inline_calls(module), calibration, recipe, build)
        if not decisions:
            why = ", ".join(dict.fromkeys(kept.values())) or "there is none in float32"
            warn(f"{name} is no setting of {module.name}: no product is quantized ({why})")
            continue
        alone = Rung(name, "", combined(Plan(**vars(reference_plan(module))), name, decisions, kept))
        if target.computes_with(dtypes.float32, "tensor", "dot"):
            found.append(replace(alone, parts=(alone,)))
        name += f"+{others.name.rpartition('/')[2]}"
        plan = combined(others.plan, name, decisions, kept)
        found.append(Rung(name, "", plan, others.low, parts=(alone, others)))
    return found


def combined(rest: Plan, name: str, decisions: Mapping[str, Decision], kept: Mapping[str, str]) -> Plan:
    """A plan with these decisions, and where they say nothing those of the rest."""
    reasons = {n: why for n, why in {**rest.kept, **kept}.items() if n not in decisions}
    together = without_biases({**rest.decisions, **decisions})
    return replace(rest, policy=name, decisions=together, kept=reasons)


@dataclass(frozen=True)
class Fit:
    """What a plan loses, and how much it may."""

    loss: Callable[[Plan], float]
    tolerance: float


def fall_back(plan: Plan, rest: Plan, quantized: Sequence[str], fit: Fit) -> Plan:
    """The plan with as few of its quantized instructions as `rest` has them, those first that lose the
    most when they alone are quantized, as bring it within the tolerance; the strategy `basic`. Without
    such a plan the one without any. The kept reasons say what each lost alone.
    """
    if fit.loss(plan) <= fit.tolerance:
        return plan
    alone = {n: fit.loss(_with_alone(plan, rest, {n})) for n in quantized}
    order = sorted(quantized, key=lambda n: (-alone[n], quantized.index(n)))

    def without(count: int) -> Plan:
        gone = order[:count]
        found = _with_alone(plan, rest, set(quantized) - set(gone))
        why = {
            n: f"it falls back: quantized alone it loses {alone[n]:.3g}"
            for n in gone
            if n not in rest.decisions
        }
        return replace(found, kept={**found.kept, **why})

    fewest, enough = 0, len(order)  # that are too few, and that do
    while enough - fewest > 1:
        middle = (fewest + enough) // 2
        if fit.loss(without(middle)) <= fit.tolerance:
            enough = middle
        else:
            fewest = middle
    return without(enough)


def _with_alone(plan: Plan, rest: Plan, names: set[str]) -> Plan:
    """The plan in which of the quantized instructions only these are."""
    own = {n: d for n, d in plan.decisions.items() if n in names}
    return replace(plan, decisions=without_biases({**rest.decisions, **own}))
