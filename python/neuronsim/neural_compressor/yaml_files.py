"""Configurations as yaml files with the keys of Neural Compressor 1.14 (extra `neural-compressor`)."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuronsim.casting.fields import read_text
from neuronsim.errors import FlagWarning, InvalidArgument, nearest, warn
from neuronsim.neural_compressor.config import (
    AccuracyCriterion,
    MixedPrecisionConfig,
    PostTrainingQuantConfig,
    TuningCriterion,
    listed,
)
from neuronsim.neural_compressor.data import DataLoader, Datasets

MAX_BYTES = 1 << 17
# The keys of each table.
_TOP = (
    *("version", "model", "device", "mixed_precision", "graph_optimization", "quantization"),
    *("evaluation", "tuning"),
)
_MODEL = ("name", "framework", "inputs", "outputs")
_PRECISIONS = ("precisions", "op_wise")
_QUANTIZATION = ("approach", "recipes", "calibration", "model_wise", "op_wise")
_CALIBRATION = ("sampling_size", "dataloader")
_ACCURACY = ("metric", "dataloader", "configs")
_TUNING = (
    *("strategy", "accuracy_criterion", "objective", "exit_policy", "random_seed"),
    *("tensorboard", "workspace", "diagnosis"),
)
_EXIT = ("timeout", "max_trials", "performance_only")
_CRITERION = ("relative", "absolute", "higher_is_better")


@dataclass(frozen=True)
class Document:
    """A file: its configuration, and the loaders and the metric that it states."""

    config: MixedPrecisionConfig | PostTrainingQuantConfig
    eval_dataloader: DataLoader | None = None
    metric: Mapping[str, Any] | None = None
    calib_dataloader: DataLoader | None = None


def read_yaml(path: str | Path) -> Mapping[str, Any]:
    """The tables of a file. Raises InvalidArgument where it is no yaml, or PyYAML is not there."""
    if importlib.util.find_spec("yaml") is None:
        raise InvalidArgument(
            f"{path}: yaml files are read with PyYAML, which is not installed: "
            "pip install 'neuronsim[neural-compressor]'"
        )
    yaml: Any = importlib.import_module("yaml")
    source = read_text(Path(path), "configuration", MAX_BYTES)
    try:
        body = yaml.safe_load(source)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InvalidArgument(f"{path} is no yaml: {error}") from error
    if not isinstance(body, Mapping):
        raise InvalidArgument(f"{path} is no configuration: its top is {type(body).__name__}, no table")
    return body


def mixed_precision_document(source: str | Path | Mapping[str, Any]) -> Document:
    """What `MixedPrecision` is given. Raises InvalidArgument for what is no key, or value."""
    body, where = _body(source)
    common = _common(body, where)
    stated = [k for k in ("mixed_precision", "graph_optimization") if k in body]
    table = _table(body, stated[0], where, _PRECISIONS) if stated else {}
    config = MixedPrecisionConfig(
        precisions=listed(table.get("precisions", "bf16")),
        op_name_dict=_optional(table, "op_wise", where),
        **common,
    )
    return Document(config, *_evaluation(body, where))


def quantization_document(source: str | Path | Mapping[str, Any]) -> Document:
    """The same of `Quantization`."""
    body, where = _body(source)
    common = _common(body, where)
    table = _table(body, "quantization", where, _QUANTIZATION)
    calibration = _table(table, "calibration", f"{where}quantization.", _CALIBRATION)
    sizes = calibration.get("sampling_size", 100)
    sizes = [int(s) for s in listed(sizes)] if isinstance(sizes, str) else sizes
    framework = _table(body, "model", where, _MODEL).get("framework", "")
    config = PostTrainingQuantConfig(
        approach=table.get("approach", "static"),
        calibration_sampling_size=sizes,
        model_wise=_optional(table, "model_wise", where),
        op_name_dict=_optional(table, "op_wise", where),
        recipes=table.get("recipes"),
        framework=str(framework),
        **common,
    )
    loader = _loader(calibration, f"{where}quantization.calibration.")
    return Document(config, *_evaluation(body, where), loader)


def _body(source: str | Path | Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    where = "" if isinstance(source, Mapping) else f"{source}: "
    body = source if isinstance(source, Mapping) else read_yaml(source)
    _check_keys(body, _TOP, where)
    return body, where


def _common(body: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What both configurations have."""
    model = _table(body, "model", where, _MODEL)
    tuning = _table(body, "tuning", where, _TUNING)
    strategy = tuning.get("strategy", {})
    name = strategy.get("name", "basic") if isinstance(strategy, Mapping) else strategy
    criterion = _table(tuning, "accuracy_criterion", f"{where}tuning.", _CRITERION)
    policy = _table(tuning, "exit_policy", f"{where}tuning.", _EXIT)
    ways = [k for k in ("relative", "absolute") if k in criterion]
    if len(ways) == 2:
        raise InvalidArgument(f"{where}tuning.accuracy_criterion is relative or absolute, not both")
    way = ways[0] if ways else "relative"
    unread = [k for k in ("tensorboard", "workspace", "diagnosis") if tuning.get(k)]
    if unread:
        warn(f"{where}tuning.{', '.join(unread)} have no effect here", FlagWarning)
    return {
        "model_name": str(model.get("name", "")),
        "inputs": listed(model.get("inputs")),
        "outputs": listed(model.get("outputs")),
        "device": body.get("device", "cpu"),
        "accuracy_criterion": AccuracyCriterion(
            criterion=way,
            tolerable_loss=criterion.get(way, 0.01),
            higher_is_better=criterion.get("higher_is_better", True),
        ),
        "tuning_criterion": TuningCriterion(
            strategy=name,
            timeout=policy.get("timeout", 0),
            max_trials=policy.get("max_trials"),
            objective=tuning.get("objective", "performance"),
        ),
    }


def _evaluation(
    body: Mapping[str, Any], where: str
) -> tuple[DataLoader | None, Mapping[str, Any] | None]:
    evaluation = _table(body, "evaluation", where, ("accuracy", "performance"))
    accuracy = _table(evaluation, "accuracy", f"{where}evaluation.", _ACCURACY)
    metric = _optional(accuracy, "metric", f"{where}evaluation.accuracy.")
    return _loader(accuracy, f"{where}evaluation.accuracy."), metric


def _loader(table: Mapping[str, Any], where: str) -> DataLoader | None:
    """The data loader of a table, whose data set is one of `Datasets`."""
    found = _optional(table, "dataloader", where)
    if found is None:
        return None
    place = f"{where}dataloader."
    _check_keys(found, ("batch_size", "dataset", "transform", "last_batch", "filter"), place)
    if found.get("transform") or found.get("filter"):
        raise InvalidArgument(
            f"{place}transform: neuronsim reads samples as they are: transform them before, or give "
            "the converter a data loader in code"
        )
    dataset = _optional(found, "dataset", place) or {}
    if len(dataset) != 1:
        raise InvalidArgument(f"{place}dataset is a table of one data set, not {dict(dataset)!r}"[:300])
    (name,) = dataset
    try:
        samples = Datasets()[name](**(_optional(dataset, name, f"{place}dataset.") or {}))
    except (InvalidArgument, TypeError) as error:
        raise InvalidArgument(f"{place}dataset: {error}") from error
    return DataLoader(
        samples,
        batch_size=found.get("batch_size", 1),
        last_batch=found.get("last_batch", "rollover"),
    )


def _optional(table: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any] | None:
    found = table.get(key)
    if found is None:
        return None
    if not isinstance(found, Mapping):
        raise InvalidArgument(f"{where}{key} is a table, not {found!r}"[:300])
    return found


def _table(body: Mapping[str, Any], key: str, where: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    found = _optional(body, key, where) or {}
    _check_keys(found, known, f"{where}{key}.")
    return found


def _check_keys(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise InvalidArgument(
                f"{where}{key} is no key of a configuration{nearest(key, known)}: there are "
                f"{', '.join(known)}"
            )
