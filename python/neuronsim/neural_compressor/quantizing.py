"""Post-training quantization: INT8 products, BF16 beside them where the target has it, float32 where an
evaluation needs it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from neuronsim import api, dtypes
from neuronsim.casting.decisions.post_training import PRODUCTS
from neuronsim.casting.plans.plan import Plan
from neuronsim.casting.policies.policy import Policy
from neuronsim.errors import FlagWarning, InvalidArgument, UnsupportedType, nearest, warn
from neuronsim.neural_compressor import evaluation as evaluations
from neuronsim.neural_compressor.config import PostTrainingQuantConfig, listed
from neuronsim.neural_compressor.conversion import Given, evaluate, read_source, workload_of
from neuronsim.neural_compressor.optimized import OptimizedModel
from neuronsim.neural_compressor.precisions import (
    INTEGERS,
    LOW,
    check_capability,
    find_device,
    mixed_policy,
    not_quantized,
    op_rules,
    precision,
)
from neuronsim.quantization import Recipe, quantize
from neuronsim.records import is_int
from neuronsim.targets import Target
from neuronsim.tuning.calibrated import Fit, fall_back
from neuronsim.tuning.recipes import escaped
from neuronsim.tuning.runner import Runner, Stopped
from neuronsim.tuning.trials import Trial

APPROACHES = ("static", "post_training_static_quant", "weight_only")
# Neural Compressor's algorithms of calibration and the recipe's methods.
_METHODS = {"minmax": "minmax", "kl": "entropy", "percentile": "percentile", "mse": "mse"}
# The conversions that it has beside INT8, by the framework that a yaml file names.
_CONVERSIONS = {"tensorflow": "neural-compressor", "pytorch": "neural-compressor-modules"}


def quantized(
    model: Any, config: PostTrainingQuantConfig, calibration: Any, given: Given
) -> OptimizedModel:
    """The quantized model; products that lose the most fall back until an evaluation is within the
    criterion, first to BF16, then to float32.
    """
    _tell_unread(config)
    target, joined = _with_bfloat16(config, find_device(config.device))
    recipe = recipe_of(config)
    loader = given.loader if calibration is None else calibration
    if loader is None:
        raise InvalidArgument(
            "quantization calibrates on data: set calib_dataloader, a loader of samples such as those "
            "that the model will see"
        )
    calib = evaluations.load(loader, _sampling_size(config))
    loaded = None if given.loader is None or given.function else evaluations.load(given.loader)
    source = read_source(model, loaded or calib, config.example_inputs)
    exact = api.plan(source.module, auto_cast="none")
    rest = exact if joined is None else api.plan(source.module, policy=joined, target=target.name)
    out = not_quantized(source.module, config.op_name_dict, config.op_type_dict)
    recipe = dataclasses.replace(recipe, exclude=tuple(escaped(n) for n in out))
    data = evaluations.by_names(calib.inputs, source.module)
    plan = quantize(source.module, data, recipe, others=rest)
    if given.evaluates:
        found = evaluate(source, given, loaded, config, target)
        runner = Runner(
            workload_of(source.module, found, target, found.shards),
            max_trials=config.tuning_criterion.max_trials,
            timeout=config.tuning_criterion.timeout or None,
        )
        plan = _within(plan, (rest, exact), runner, config.accuracy_criterion.tolerable_loss)
    return OptimizedModel(model, source.compile(target, plan=plan))


def _within(plan: Plan, others: Sequence[Plan], runner: Runner, tolerance: float) -> Plan:
    """The plan with as few products fallen back as bring it within the tolerance: to the first of the
    others, else to the second, float32, which then has all that is not quantized.
    """
    budget = runner.metric.budget(tolerance)
    passed: list[Plan] = []

    def loss(tried: Plan) -> float:
        (s,) = runner.measure([Trial(tried)], runner.all_shards, "quantization")
        found = runner.loss(s, runner.all_shards)
        if found <= budget:
            passed.append(tried)
        return found

    integers = {n: d for n, d in plan.decisions.items() if d.quantizes}
    runner.limited = True
    try:
        for rest in others:
            tried = dataclasses.replace(
                plan,
                decisions={**rest.decisions, **integers},
                kept={n: why for n, why in {**rest.kept, **plan.kept}.items() if n not in integers},
            )
            loss(fall_back(tried, rest, tuple(integers), Fit(loss, budget)))
            if any(map(_integers, passed)):
                break
    except Stopped as stopped:
        warn(f"the quantization ended early ({stopped.why}): the best plan so far", FlagWarning)
    best = max(passed, key=lambda p: (_integers(p), len(p.decisions)), default=others[-1])
    if not _integers(best):
        warn(f"no INT8 plan was found that loses no more than {tolerance:g}: none is used", FlagWarning)
    return best


def _integers(plan: Plan) -> int:
    return sum(d.quantizes for d in plan.decisions.values())


def _with_bfloat16(config: PostTrainingQuantConfig, target: Target) -> tuple[Target, Policy | None]:
    """The target, and the policy of what is not quantized: BF16's, unless the configuration switches it
    off, or the target lacks it and FORCE_BF16=1 is not set.
    """
    names = [precision(n) for n in config.excluded_precisions]
    stated = [_types(config, part) for part in ("activation", "weight")]
    if "bf16" in names or any(t and "bf16" not in t for t in stated):
        return target, None
    try:
        target = check_capability(target, LOW["bf16"])
    except UnsupportedType:
        return target, None
    base = next((p for f, p in _CONVERSIONS.items() if config.framework.lower().startswith(f)), "")
    rules = op_rules(config.op_name_dict, config.op_type_dict, "bf16")
    return target, mixed_policy("bf16", rules, config.model_name, f"{base}/bfloat16" if base else "")


def _tell_unread(config: PostTrainingQuantConfig) -> None:
    """Warns of what a quantization does not act on: an operation's own scheme, say, and objectives."""
    unread = [
        f"op_wise {key!r}.{part}.{name}"
        for key, entry in {**(config.op_type_dict or {}), **(config.op_name_dict or {})}.items()
        for part, table in (entry.items() if isinstance(entry, Mapping) else ())
        for name in (table if isinstance(table, Mapping) else ())
        if name != "dtype"
    ]
    if config.tuning_criterion.objective != "performance":
        unread.append(f"the objective {config.tuning_criterion.objective}")
    if unread:
        warn(f"{', '.join(unread)} have no effect in a quantization", FlagWarning)


def _part(config: PostTrainingQuantConfig, part: str) -> Mapping[str, Any]:
    found = (config.model_wise or {}).get(part) or {}
    if not isinstance(found, Mapping):
        raise InvalidArgument(f"model_wise.{part} is a table, not {found!r}"[:300])
    known = ("dtype", "scheme", "granularity", "algorithm", "bit")
    for key in found:
        if key not in known:
            raise InvalidArgument(
                f"model_wise.{part}.{key} is no key{nearest(key, known)}: there are {', '.join(known)}"
            )
    return found


def _types(config: PostTrainingQuantConfig, part: str) -> list[str]:
    return [precision(n) for n in listed(_part(config, part).get("dtype"))]


def recipe_of(config: PostTrainingQuantConfig) -> Recipe:
    """The recipe of a configuration: of several values of a key the first that there is here.

    >>> weights = {"weight": {"granularity": "per_tensor"}}
    >>> recipe_of(PostTrainingQuantConfig(model_wise=weights)).per_channel
    False
    """
    if config.approach not in APPROACHES:
        raise InvalidArgument(
            f"the approach is one of {', '.join(APPROACHES)}, not {config.approach!r}: neuronsim "
            "quantizes with ranges that are known before the model runs"
        )
    unknown = [k for k in config.model_wise or {} if k not in ("activation", "weight")]
    if unknown:
        raise InvalidArgument(f"model_wise has activation and weight, not {unknown[0]!r}")
    activation, weight = _types(config, "activation"), _types(config, "weight")
    quantizes = all(not t or any(n in INTEGERS for n in t) for t in (activation, weight))
    own = next((n for n in activation if n in INTEGERS), "int8")
    if weight and quantizes and "int8" not in weight:
        raise InvalidArgument("weights are quantized to int8, symmetric (Q5): add it to their dtype")
    operations = PRODUCTS if quantizes else ()
    return Recipe(
        method=_METHODS[_first(config, "activation", "algorithm", tuple(_METHODS), "minmax")],
        activations=dtypes.uint8 if own == "uint8" else dtypes.int8,
        symmetric=_first(config, "activation", "scheme", ("sym", "asym"), "asym") == "sym",
        per_channel=_first(
            config, "weight", "granularity", ("per_channel", "per_tensor"), "per_channel"
        )
        == "per_channel",
        weight_only=config.approach == "weight_only",
        operations=operations,
    )


def _first(
    config: PostTrainingQuantConfig, part: str, key: str, known: tuple[str, ...], usual: str
) -> str:
    """The first value of a key that there is here."""
    stated = listed(_part(config, part).get(key))
    found = next((v for v in stated if v in known), None)
    if stated and found is None:
        raise InvalidArgument(
            f"model_wise.{part}.{key} is one of {', '.join(known)}, not {', '.join(stated)}"
        )
    return found or usual


def _sampling_size(config: PostTrainingQuantConfig) -> int:
    sizes = config.calibration_sampling_size
    first = sizes if isinstance(sizes, int) else next(iter(sizes), 100)
    if not is_int(first, 1):
        raise InvalidArgument(f"calibration_sampling_size is a number of samples, not {sizes!r}")
    return first
