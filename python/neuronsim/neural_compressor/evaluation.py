"""A user's evaluation as data and a metric of the tuner's: loaders with metrics, and functions of a
model, which are called with a stand-in that gives what trials computed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.errors import InvalidArgument, InvalidData, nearest
from neuronsim.hlo.module import Module
from neuronsim.neural_compressor.config import AccuracyCriterion
from neuronsim.neural_compressor.loaders import Metric, takes_pairs
from neuronsim.program import CompiledProgram
from neuronsim.records import is_int
from neuronsim.tuning.dataset import Dataset, outputs_of_samples
from neuronsim.tuning.trials import MAX_SHARDS, MetricSpec

Inputs = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Evaluation:
    """Data, the metric that decides, and into how many shards the data may be cut."""

    dataset: Dataset
    spec: MetricSpec
    shards: int = MAX_SHARDS


# ---- loaders -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loaded:
    """What a data loader gave: inputs by name ("x" is a sole input, numbers stand for positions), and
    the labels of the samples, whatever they are; `batch` is the largest batch.
    """

    inputs: Inputs
    labels: list[Any]
    batch: int

    @property
    def count(self) -> int:
        return len(self.labels)

    def example(self) -> tuple[Any, ...]:
        """One batch, the arguments of a model that is a function."""
        rows = np.minimum(np.arange(self.batch), self.count - 1)
        return tuple(x[rows] for x in self.inputs.values())


def load(loader: Any, most: int | None = None) -> Loaded:
    """All that a loader gives, or the first samples. It is iterable, of batches: an input and a label.

    Raises InvalidData for a loader without samples, or of inputs that are no arrays.
    """
    if not isinstance(loader, Iterable):
        raise InvalidArgument(
            f"a data loader is iterable over pairs of a batch and its labels, not {loader!r}"[:300]
        )
    parts: list[Inputs] = []
    labels: list[Any] = []
    batch = 0
    for item in loader:
        found = _inputs(item[0] if _is_pair(item) else item)
        rows = _rows(found)
        own = item[1] if _is_pair(item) else None
        parts.append(found)
        labels += _labels(own, rows)
        batch = max(batch, rows)
        if most is not None and len(labels) >= most:
            break
    if not parts:
        raise InvalidData("the data loader gave nothing: it is empty, or was used up before")
    names = parts[0].keys()
    if any(p.keys() != names for p in parts):
        raise InvalidData("the batches of the data loader do not have the same inputs")
    whole = {n: np.concatenate([p[n] for p in parts])[:most] for n in names}
    return Loaded(whole, labels[:most], batch)


def _is_pair(item: Any) -> bool:
    return isinstance(item, tuple | list) and len(item) == 2


def _inputs(value: Any) -> Inputs:
    if isinstance(value, Mapping):
        named = {str(k): v for k, v in value.items()}
    elif isinstance(value, tuple | list) and all(hasattr(v, "shape") for v in value):
        named = {"x": value[0]} if len(value) == 1 else {str(n): v for n, v in enumerate(value)}
    else:
        named = {"x": value}
    found = {}
    for name, x in named.items():
        array = np.asarray(x.detach().cpu() if hasattr(x, "detach") else x)
        if array.dtype == object or not array.ndim:
            raise InvalidData(
                f"the input {name!r} of a batch is {type(x).__name__}, no array with a leading axis of "
                "samples"
            )
        found[name] = array
    return found


def _rows(inputs: Inputs) -> int:
    rows = {len(x) for x in inputs.values()}
    if len(rows) != 1 or 0 in rows:
        shapes = {n: list(x.shape) for n, x in inputs.items()}
        raise InvalidData(f"the inputs of a batch have no common leading axis of samples: {shapes}")
    return rows.pop()


def _labels(own: Any, rows: int) -> list[Any]:
    """The label of each sample: one of a batch's, or the batch's own for the only sample."""
    if own is None:
        return [None] * rows
    if hasattr(own, "detach"):
        own = own.detach().cpu()
    try:
        if len(own) == rows and not isinstance(own, Mapping | str):
            return list(own)
    except TypeError:  # without a length
        pass
    if rows == 1:
        return [own]
    raise InvalidData(f"a batch of {rows} samples has labels of another length: {own!r}"[:300])


def by_names(inputs: Inputs, module: Module) -> Inputs:
    """The inputs by the names of a model's, where they are known by their numbers."""
    names = module.input_names()
    if inputs.keys() != {str(n) for n in range(len(names))}:
        return inputs
    return {name: inputs[str(n)] for n, name in enumerate(names)}


def of_loader(loaded: Loaded, module: Module, metric: Any, criterion: AccuracyCriterion) -> Evaluation:
    """The evaluation by a loader's samples and a metric: an object with update, reset and result, a
    common.Metric, or a table of a built-in one such as {"topk": 1}.
    """
    inputs = by_names(loaded.inputs, module)
    metric = metric.build() if isinstance(metric, Metric) else metric
    known = _built_in(metric)
    if known is not None:
        name, better = known
        if better is not None and criterion.higher_is_better != (better == "higher"):
            raise InvalidArgument(
                f"of the metric {_table_of(metric)[0]} a {better} value is better: set "
                f"higher_is_better={better == 'higher'}"
            )
        labels = _numbers(loaded.labels, str(_table_of(metric)[0]))
        own = None if isinstance(name, str) else better
        return Evaluation(
            Dataset(inputs, labels, "the data loader"), MetricSpec(name, criterion.criterion, own)
        )
    scorer = _Scorer(_user_metric(metric), tuple(loaded.labels), loaded.batch)
    # The labels are the user's own: the tuner keeps the samples' numbers, no class numbers.
    numbers = np.arange(loaded.count, dtype=np.float64)
    dataset = Dataset(inputs, numbers, "the data loader")
    return Evaluation(dataset, MetricSpec(scorer, criterion.criterion, _better(criterion)))


def _better(criterion: AccuracyCriterion) -> str:
    return "higher" if criterion.higher_is_better else "lower"


def _numbers(labels: Sequence[Any], metric: str) -> npt.NDArray[Any]:
    try:
        found = np.asarray([np.asarray(v) for v in labels])
    except ValueError:
        found = np.asarray(None)
    if found.dtype.kind not in "iufb":
        raise InvalidData(
            f"the metric {metric} needs a number, or an array of one shape, as each sample's label"
        )
    return found.astype(np.int64) if found.dtype.kind in "iub" else found


class _Scorer:
    """A user's metric object as a function of outputs and the numbers of their samples."""

    def __init__(self, metric: Any, labels: tuple[Any, ...], batch: int) -> None:
        self._metric, self._labels, self._batch = metric, labels, batch
        self._pairs = takes_pairs(metric.update)
        self.__name__ = type(metric).__name__

    def __call__(self, outputs: Any, numbers: Any) -> float:
        self._metric.reset()
        for start in range(0, len(numbers), self._batch):
            part = slice(start, start + self._batch)
            found = tuple(o[part] for o in outputs) if isinstance(outputs, tuple) else outputs[part]
            labels = _together([self._labels[int(n)] for n in numbers[part]])
            if self._pairs:
                self._metric.update((found, labels))
            else:
                self._metric.update(found, labels)
        return scalar(self._metric.result(), f"the result of the metric {self.__name__}")


def _together(labels: list[Any]) -> Any:
    try:
        found = np.asarray([np.asarray(v) for v in labels])
    except ValueError:
        return labels
    return labels if found.dtype == object else found


def _user_metric(metric: Any) -> Any:
    missing = [n for n in ("update", "reset", "result") if not callable(getattr(metric, n, None))]
    if missing:
        raise InvalidArgument(
            f"a metric is an object with update, reset and result, or a table such as {{'topk': 1}}; "
            f"{type(metric).__name__} has no {', '.join(missing)}"
        )
    return metric


def mean_squared_error(outputs: Any, labels: Any) -> float:
    """The mean of squared differences of a sole output and labels."""
    return float(np.mean(np.square(_difference(outputs, labels))))


def root_mean_squared_error(outputs: Any, labels: Any) -> float:
    """Its root."""
    return math.sqrt(mean_squared_error(outputs, labels))


def mean_absolute_error(outputs: Any, labels: Any) -> float:
    """The mean of absolute differences of a sole output and labels."""
    return float(np.mean(np.abs(_difference(outputs, labels))))


def _difference(outputs: Any, labels: Any) -> Any:
    first = outputs[0] if isinstance(outputs, tuple) else outputs
    return first - np.asarray(labels, np.float64).reshape(first.shape)


_ERRORS: Mapping[str, Callable[[Any, Any], float]] = {
    "mse": mean_squared_error,
    "rmse": root_mean_squared_error,
    "mae": mean_absolute_error,
}


BUILT_IN = ("topk", "Accuracy", "MSE", "RMSE", "MAE")


def _table_of(metric: Any) -> tuple[str, Any]:
    if len(metric) != 1:
        raise InvalidArgument(f"one metric decides, and {dict(metric)!r} has {len(metric)}")
    ((name, options),) = metric.items()
    return str(name), options


def _built_in(metric: Any) -> tuple[str | Callable[..., Any], str | None] | None:
    """A built-in metric's name or function, and which values are better; None for a user's."""
    if not isinstance(metric, Mapping):
        return None
    name, options = _table_of(metric)
    word = str(name).lower()
    if word == "topk":
        k = options.get("k", 1) if isinstance(options, Mapping) else options
        if not is_int(k, 1):
            raise InvalidArgument(f"topk is a number of classes of at least 1, not {k!r}")
        return f"top{k}", "higher"
    if word == "accuracy":
        return "top1", "higher"
    if word in _ERRORS:
        if isinstance(options, Mapping) and options.get("compare_label") is False:
            raise InvalidArgument(
                f"{name} compares outputs and labels: for float32's outputs (compare_label: False) "
                "give an eval_func, or take `neuronsim tune --metric nmse`"
            )
        return _ERRORS[word], "lower"
    raise InvalidArgument(
        f"built-in metrics are {', '.join(BUILT_IN)}, not {name!r}{nearest(word, BUILT_IN)}: for "
        "others give the converter a metric object, or an eval_func"
    )


def scalar(value: Any, what: str) -> float:
    """A user's figure as a number; raises InvalidData for anything else."""
    if value is None:  # which NumPy takes for NaN
        raise InvalidData(f"{what} is None, no number")
    try:
        found = np.asarray(value, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidData(f"{what} is {value!r}, no number"[:300]) from error
    if found.size != 1:
        raise InvalidData(f"{what} has {found.size} numbers, and one decides")
    return float(found.reshape(()))


# ---- functions of a model ------------------------------------------------------------------------


class _StandIn:
    """What an evaluation function is given in a program's place: it is called as the program is."""

    def __init__(self, program: CompiledProgram) -> None:
        self._program = program

    def _bound(self, arrays: Any, named: Any) -> dict[str, npt.NDArray[Any]]:
        (bound,) = self._program._bind(arrays, named)
        names = list(self._program.inputs)
        return {n: np.asarray(Array(x)) for n, x in zip(names, bound.values(), strict=True)}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)


class _Recorder(_StandIn):
    """The float32 program, which keeps every batch that it is called with once."""

    def __init__(self, program: CompiledProgram) -> None:
        super().__init__(program)
        self.batches: dict[str, dict[str, npt.NDArray[Any]]] = {}

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        bound = self._bound(arrays, named)
        self.batches.setdefault(_hash(bound), bound)
        return self._program(*arrays, **named)


class _Replay(_StandIn):
    """A stand-in that gives the outputs that a trial has for the recorded batches."""

    def __init__(self, program: CompiledProgram, numbers: Mapping[str, int], outputs: Any) -> None:
        super().__init__(program)
        self._numbers = numbers
        self._outputs = outputs if isinstance(outputs, tuple) else (outputs,)

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        number = self._numbers.get(_hash(self._bound(arrays, named)))
        if number is None:
            raise InvalidData(
                "eval_func calls the model with other inputs than it did at first: let it evaluate the "
                "same data each time, or give eval_dataloader and a metric"
            )
        program = self._program
        size = program.model.parameters[0].array.dims[0]
        sampled = outputs_of_samples(program.model)
        found = []
        for x, of_samples, t in zip(self._outputs, sampled, program.outputs, strict=True):
            rows = x[number * size : (number + 1) * size] if of_samples else x[number]
            found.append(asarray(rows, dtype=t.dtype))
        if program._calls is not None:
            return program._calls.rebuild(tuple(found))
        return found[0] if len(found) == 1 else tuple(found)


def _hash(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name, x in arrays.items():
        digest.update(f"{name} {x.dtype} {x.shape}".encode())
        digest.update(np.ascontiguousarray(x).tobytes())
    return digest.hexdigest()


class _Evaluated:
    """An evaluation function as a metric of outputs on the recorded batches."""

    def __init__(
        self, function: Callable[[Any], Any], program: CompiledProgram, numbers: Mapping[str, int]
    ) -> None:
        self._function, self._program, self._numbers = function, program, numbers
        self.__name__ = getattr(function, "__name__", "eval_func")

    def __call__(self, outputs: Any, _: Any) -> float:
        return evaluated(self._function, _Replay(self._program, self._numbers, outputs))


def evaluated(function: Callable[[Any], Any], model: Any) -> float:
    """What an evaluation function says of a model. Raises InvalidData where it gives no number."""
    return scalar(function(model), "what eval_func returns")


def of_function(
    function: Callable[[Any], Any], program: CompiledProgram, criterion: AccuracyCriterion
) -> Evaluation:
    """The evaluation by a function of a model; `program` is float32's. Its calls of the model say what
    the data are: they have to be the same whenever it is called.

    Raises InvalidData for a function that never calls the model, or gives no number.
    """
    recorder = _Recorder(program)
    evaluated(function, recorder)
    if not recorder.batches:
        raise InvalidData("eval_func never called the model that it was given")
    parts = list(recorder.batches.values())
    inputs = {n: np.concatenate([p[n] for p in parts]) for n in parts[0]}
    numbers = {key: n for n, key in enumerate(recorder.batches)}
    metric = _Evaluated(function, program, numbers)
    return Evaluation(
        Dataset(inputs, None, "eval_func"),
        MetricSpec(metric, criterion.criterion, _better(criterion)),
        shards=1,  # the function evaluates all of its data
    )
