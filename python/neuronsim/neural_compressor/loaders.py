"""What models are evaluated by: data loaders, metrics and models by Neural Compressor's names.

>>> class Squares:
...     def getitem(self, index):
...         return [index, index * index], index % 2
...     def __length__(self):
...         return 3
>>> loader = DataLoader(Squares(), batch_size=2)
>>> [(x.tolist(), y.tolist()) for x, y in loader]
[([[0, 0], [1, 1]], [0, 1]), ([[2, 4]], [0])]
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from neuronsim.errors import InvalidArgument, InvalidData, nearest
from neuronsim.records import is_int


class DataLoader:
    """Batches of a dataset's samples, each an input and a label. The dataset has `__getitem__` and
    `__len__`, or `getitem` and `__length__`, or is iterable. Inputs of several arrays are tuples, lists
    or mappings by the names of the model's inputs. Options that change no batch are read and left.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        last_batch: str = "rollover",
        collate_fn: Callable[[Sequence[Any]], Any] | None = None,
        sampler: Iterable[int] | None = None,
        *,
        shuffle: bool = False,
        **more: Any,
    ) -> None:
        if shuffle:
            raise InvalidArgument("shuffle: an evaluation reads the same batches in the same order")
        for name in more:
            if name not in _SAME_BATCHES:
                raise InvalidArgument(
                    f"DataLoader has no {name}{nearest(name, _SAME_BATCHES)}: it takes a dataset, "
                    "batch_size, last_batch, collate_fn, sampler"
                )
        if not is_int(batch_size, 1):
            raise InvalidArgument(f"batch_size is an integer of at least 1, not {batch_size!r}")
        if last_batch not in ("rollover", "discard"):
            raise InvalidArgument(f"last_batch is rollover or discard, not {last_batch!r}")
        self.dataset = dataset
        self.batch_size = batch_size
        self._discards = last_batch == "discard"
        self._collate = collate_fn or collate
        self._sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        pending = []
        for sample in samples(self.dataset, self._sampler):
            pending.append(sample)
            if len(pending) == self.batch_size:
                yield self._collate(pending)
                pending = []
        if pending and not self._discards:
            yield self._collate(pending)


# Options of Neural Compressor's loaders that say how samples are fetched, not which.
_SAME_BATCHES = ("framework", "num_workers", "pin_memory", "distributed", "batch_sampler")


def samples(dataset: Any, sampler: Iterable[int] | None = None) -> Iterator[Any]:
    """The samples of a dataset in either spelling."""
    length = getattr(dataset, "__length__", None) or getattr(dataset, "__len__", None)
    item = getattr(dataset, "getitem", None) or getattr(dataset, "__getitem__", None)
    if item is not None and (length is not None or sampler is not None):
        yield from (item(n) for n in (range(length()) if sampler is None else sampler))  # type: ignore[misc]
    elif isinstance(dataset, Iterable):
        yield from dataset
    else:
        raise InvalidData(
            f"a dataset has __getitem__ and __len__ (or getitem and __length__), or can be iterated "
            f"over; {type(dataset).__name__} has neither"
        )


def collate(batch: Sequence[Any]) -> Any:
    """A batch of samples: arrays with a leading axis of samples, in the samples' own structure; what
    cannot be stacked is a list.
    """
    first = batch[0]
    if isinstance(first, tuple):
        return tuple(_stacked([s[n] for s in batch]) for n in range(len(first)))
    return _stacked(batch)


def _stacked(values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, Mapping):
        return {k: _stacked([v[k] for v in values]) for k in first}
    if isinstance(first, tuple):
        return tuple(_stacked([v[n] for v in values]) for n in range(len(first)))
    try:
        return np.stack([np.asarray(v) for v in values])
    except ValueError:
        return list(values)


class Metric:
    """A metric of a user's by its class: `update(predictions, labels)` or `update(sample)` with both as
    a tuple, `reset()` and `result()`; or without a class a built-in one by its name and options, as
    `Metric(name="topk", k=1)`.
    """

    def __init__(
        self, metric_cls: type | None = None, name: str = "user_metric", **kwargs: Any
    ) -> None:
        self.metric_cls, self.name, self.kwargs = metric_cls, name, kwargs

    def build(self) -> Any:
        """The metric object, or a built-in one's table."""
        if self.metric_cls is None:
            return {self.name: self.kwargs}
        return self.metric_cls(**self.kwargs)


class Model:
    """A model in any of the forms that `compile` takes, under Neural Compressor's name."""

    def __init__(self, root: Any, **kwargs: Any) -> None:
        self.model = root
        self.kwargs = kwargs


def unwrapped(model: Any) -> Any:
    """The model itself."""
    return model.model if isinstance(model, Model) else model


def takes_pairs(update: Callable[..., Any]) -> bool:
    """Whether a metric's `update` takes one argument: predictions and labels as a tuple."""
    try:
        found = inspect.signature(update).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return (
        not any(p.kind is p.VAR_POSITIONAL for p in found) and sum(p.kind in kinds for p in found) == 1
    )
