"""Mixed precision: a model in the low type wherever it may be, or as far as an evaluation allows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from neuronsim import api
from neuronsim.casting.policies.policy import Policy
from neuronsim.errors import FlagWarning, InvalidArgument, InvalidModel, nearest, warn
from neuronsim.frontends.inputs import ModelInputs
from neuronsim.frontends.onnx.files import is_onnx
from neuronsim.hlo.module import Module
from neuronsim.neural_compressor import evaluation as evaluations
from neuronsim.neural_compressor.config import (
    MixedPrecisionConfig,
    PostTrainingQuantConfig,
    TuningCriterion,
    listed,
)
from neuronsim.neural_compressor.evaluation import Evaluation, Loaded
from neuronsim.neural_compressor.loaders import unwrapped
from neuronsim.neural_compressor.optimized import OptimizedModel
from neuronsim.neural_compressor.precisions import (
    LOW,
    check_capability,
    find_device,
    low_precisions,
    mixed_policy,
    op_rules,
)
from neuronsim.program import CompiledProgram
from neuronsim.reading import read_model
from neuronsim.setups import DEFAULT_SDK, tuning_profile
from neuronsim.targets import Target, find_release
from neuronsim.tuning.ladder import Objective
from neuronsim.tuning.results import TuneResult
from neuronsim.tuning.rungs import Rung, own_rung
from neuronsim.tuning.strategies import STRATEGIES
from neuronsim.tuning.trials import Workload
from neuronsim.tuning.tuner import Question, tune_workload

DEFAULT_STRATEGY = "pareto"
PUBLISHED = "neural-compressor"  # Neural Compressor's procedure
# Neural Compressor's names of strategies that stand for the default search, or for its own procedure.
_STAND_FOR = {
    **dict.fromkeys(("basic", "auto", "conservative"), DEFAULT_STRATEGY),
    **dict.fromkeys(("automixedprecision", "auto_mixed_precision"), PUBLISHED),
}
_OTHERS = ("mse", "mse_v2", "hawq_v2", "bayesian", "exhaustive", "random", "sigopt", "tpe")
STRATEGY_NAMES = (*_STAND_FOR, *STRATEGIES)


@dataclass(frozen=True)
class Given:
    """What a call evaluates by: a function of the model, or a data loader and a metric; or nothing."""

    function: Callable[[Any], Any] | None = None
    loader: Any = None
    metric: Any = None

    def __post_init__(self) -> None:
        if self.function is not None and not callable(self.function):
            raise InvalidArgument(f"eval_func is a function of a model, not {self.function!r}")
        if self.function is None and (self.loader is None) != (self.metric is None):
            have, lack = (
                ("metric", "eval_dataloader") if self.loader is None else ("eval_dataloader", "metric")
            )
            raise InvalidArgument(
                f"{have} is given but no {lack}: an evaluation needs both, or an eval_func"
            )

    @property
    def evaluates(self) -> bool:
        return self.function is not None or self.loader is not None


@dataclass(frozen=True)
class Source:
    """A model and what states its open inputs: `arguments` are those of `compile`."""

    model: Any
    module: Module
    examples: tuple[Any, ...]
    arguments: Mapping[str, Any]

    def compile(self, target: Target, **setting: Any) -> CompiledProgram:
        """The model under a plan, a policy or flags."""
        return api.compile(self.model, *self.examples, target=target.name, **self.arguments, **setting)


def read_source(model: Any, loaded: Loaded | None, example_inputs: Any) -> Source:
    """The model of a call. What it leaves open is as in the example inputs, else as in a batch of the
    loader. Raises InvalidModel and others.
    """
    found = unwrapped(model)
    if found is None:
        raise InvalidArgument("there is no model: set .model to a file, or to a model")
    found = str(found) if isinstance(found, Path) else found
    examples: tuple[Any, ...] = ()
    arguments: dict[str, Any] = {}
    is_file = isinstance(found, str | bytes | Module)
    if example_inputs is not None:
        given = example_inputs
        if is_onnx(found) and isinstance(given, Mapping):
            arguments["input_shapes"] = {n: np.shape(x) for n, x in given.items()}
            given = ()
        examples = tuple(given) if isinstance(given, tuple | list) else (given,)
    elif loaded is not None and is_onnx(found):
        arguments["batch"] = loaded.batch
    elif loaded is not None and not is_file:
        examples = loaded.example()
    inputs = ModelInputs(example_args=examples, **arguments)
    try:
        module = read_model(found, inputs)
    except (InvalidArgument, InvalidModel) as error:
        if examples or is_file:
            raise
        raise InvalidArgument(
            f"{error}; here by example_inputs of the configuration, or by an eval_dataloader"
        ) from error
    return Source(found, module, examples, arguments)


def strategy_of(criterion: TuningCriterion) -> str:
    """The tuner's strategy of a name; raises InvalidArgument for one that is nobody's."""
    name = criterion.strategy
    if name in _OTHERS:
        warn(f"the strategy {name} is not here: the default search runs instead", FlagWarning)
        return DEFAULT_STRATEGY
    found = _STAND_FOR.get(name, name)
    if found not in STRATEGIES:
        raise InvalidArgument(
            f"a strategy is one of {', '.join(STRATEGY_NAMES)}, not {name!r}"
            f"{nearest(str(name), STRATEGY_NAMES)}"
        )
    return found


# ---- mixed precision -----------------------------------------------------------------------------


def convert(
    model: Any, config: MixedPrecisionConfig, given: Given, executor: Executor | None = None
) -> OptimizedModel:
    """The model in the low precision wherever it may be, or as far as the evaluation allows."""
    target, lows = find_device(config.device), _lows(config)
    if lows:
        target = check_capability(target, LOW[lows[0]])
    strategy = strategy_of(config.tuning_criterion)
    loaded = None if given.loader is None or given.function else evaluations.load(given.loader)
    source = read_source(model, loaded, config.example_inputs)
    if not (lows and given.evaluates):
        setting = {"policy": policy_of(config, lows[0])} if lows else {"auto_cast": "none"}
        return OptimizedModel(model, source.compile(target, **setting))
    found = evaluate(source, given, loaded, config, target)
    asked = own_rung(policy_of(config, lows[0]), source.module, target)
    result = _tuned(source.module, found, config, target, asked, strategy, executor)
    chosen = result.chosen_plan
    plan = chosen.plan if chosen is not None else api.plan(source.module, auto_cast="none")
    if chosen is None:
        warn(
            f"no plan in {lows[0]} was found that loses no more than "
            f"{config.accuracy_criterion.tolerable_loss:g}: the model stays float32 "
            f"({'; '.join(result.notes) or 'nothing was within it'})",
            FlagWarning,
        )
    return OptimizedModel(model, source.compile(target, plan=plan), result)


def _lows(config: MixedPrecisionConfig) -> list[str]:
    return low_precisions(listed(config.precisions), config.excluded_precisions)


def policy_of(config: MixedPrecisionConfig, low: str) -> Policy:
    """The policy of a low type that a search starts from."""
    rules = op_rules(config.op_name_dict, config.op_type_dict, low)
    return mixed_policy(low, rules, config.model_name)


def evaluate(
    source: Source,
    given: Given,
    loaded: Loaded | None,
    config: MixedPrecisionConfig | PostTrainingQuantConfig,
    target: Target,
) -> Evaluation:
    """The evaluation of a call as data and a metric."""
    if given.function is not None:
        exact = source.compile(target, plan=api.plan(source.module, auto_cast="none"))
        return evaluations.of_function(given.function, exact, config.accuracy_criterion)
    assert loaded is not None
    return evaluations.of_loader(loaded, source.module, given.metric, config.accuracy_criterion)


def workload_of(module: Module, found: Evaluation, target: Target, shards: int) -> Workload:
    """What the trials of an evaluation run on."""
    profile = tuning_profile(None, DEFAULT_SDK, target.name)
    return Workload(module, found.dataset, profile, target.name, (found.spec,), most_shards=shards)


def _tuned(
    module: Module,
    found: Evaluation,
    config: MixedPrecisionConfig,
    target: Target,
    asked: Rung,
    strategy: str,
    executor: Executor | None,
) -> TuneResult:
    """The search; where what it found on most of the data is not within the criterion on all, once more
    by all.
    """
    release = find_release(DEFAULT_SDK)
    criterion, budget = config.accuracy_criterion, config.tuning_criterion
    objective = cast(Objective, budget.objective)
    exact = Rung("none", "", api.plan(module, auto_cast="none"))
    started = time.monotonic()
    for shards in (found.shards, 1):
        left = None if not budget.timeout else budget.timeout - (time.monotonic() - started)
        question = Question(
            workload=workload_of(module, found, target, shards),
            rungs=[exact, asked],
            target=target,
            release=str(release),
            tolerance=criterion.tolerable_loss,
            strategy=strategy,
            base=asked.name,
            fix=objective == "performance",
            max_trials=budget.max_trials,
            timeout=None if left is None else max(left, 1e-3),
            objective=objective,
        )
        result = tune_workload(question, executor=executor)
        if result.chosen_plan is not None or not result.plans or shards == 1:
            break
    return result
