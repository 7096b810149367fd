"""Data sets and loaders under the names of Neural Compressor 2.6.

>>> images = Datasets("tensorflow")["dummy"](shape=(3, 2, 2), low=0.0, high=1.0)
>>> [(x.shape, label) for x, label in DATALOADERS["tensorflow"](images, batch_size=2)][0][0]
(2, 2, 2)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim.errors import InvalidArgument, nearest
from neuronsim.neural_compressor import loaders
from neuronsim.tuning.dataset import read_npz

__all__ = ["DATALOADERS", "DATASETS", "DataLoader", "Datasets"]

_SEED = 0  # the same samples in every run


class DataLoader(loaders.DataLoader):
    """The loader of 2.6, whose first argument may be the name of a framework."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*(given[1:] if given and isinstance(given[0], str) else given), **options)


class NpzData:
    """The samples of an `.npz` file: an input, or several by name, and the label under `labels`."""

    def __init__(self, root: str | Path) -> None:
        if not isinstance(root, str | Path):
            raise InvalidArgument(f"npz.root is the name of a file, not {root!r}")
        arrays = read_npz(Path(root))
        self._labels = arrays.pop("labels", None)
        if not arrays:
            raise InvalidArgument(f"{root} holds no inputs: its keys are the model's input names")
        self._arrays = arrays
        lengths = {len(a) if a.ndim else 0 for a in arrays.values()}
        if len(lengths) != 1:
            raise InvalidArgument(f"{root}: the arrays do not have one number of samples")
        (self._count,) = lengths

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, n: int) -> tuple[dict[str, npt.NDArray[Any]], Any]:
        label = 0 if self._labels is None else self._labels[n]
        return {k: a[n] for k, a in self._arrays.items()}, label


class DummyData:
    """Drawn samples, uniform from `low` to `high`: `shape` is (samples, ...), or a list of such for
    models of several inputs, and then `low`, `high` and `dtype` may be lists too. With `label` each
    sample has the label 0. They show that a script runs; an accuracy of them says nothing.
    """

    def __init__(
        self,
        shape: Sequence[Any],
        low: float | Sequence[float] = -128.0,
        high: float | Sequence[float] = 127.0,
        dtype: str | Sequence[str] = "float32",
        label: bool = True,
    ) -> None:
        several = bool(shape) and isinstance(shape[0], list | tuple)
        shapes = list(shape) if several else [shape]
        random = np.random.default_rng(_SEED)
        try:
            given = zip(shapes, *(_each(x, len(shapes)) for x in (low, high, dtype)), strict=True)
            self._inputs = [random.uniform(a, b, s).astype(np.dtype(t)) for s, a, b, t in given]
        except (TypeError, ValueError, OverflowError, MemoryError) as error:
            raise InvalidArgument(
                f"dummy draws (samples, ...) numbers from low to high, or of each input in a list: "
                f"shape={shape!r}, low={low!r}, high={high!r}, dtype={dtype!r}: {error}"[:400]
            ) from error
        if len({x.shape[:1] for x in self._inputs}) != 1 or not self._inputs[0].ndim:
            raise InvalidArgument(f"dummy: the shapes begin with one number of samples, not {shape!r}")
        self._several, self._label = several, label

    def __len__(self) -> int:
        return len(self._inputs[0])

    def __getitem__(self, n: int) -> Any:
        drawn = tuple(x[n] for x in self._inputs) if self._several else self._inputs[0][n]
        return (drawn, 0) if self._label else drawn


def _each(value: Any, count: int) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value] * count


class Datasets(dict[str, Callable[..., Any]]):
    """The data sets that are built in, by name: `Datasets("tensorflow")["dummy"](shape=...)`; samples
    do not depend on the framework. Raises InvalidArgument for one that there is not.
    """

    def __init__(self, framework: str = "") -> None:
        super().__init__(dummy=DummyData, npz=NpzData)

    def __missing__(self, name: str) -> Callable[..., Any]:
        raise InvalidArgument(
            f"there is no data set {name}{nearest(name, self)}: neuronsim has `dummy` and "
            "`npz: {root: FILE}`, the inputs by name and `labels`; for others give the converter a "
            "data loader of your own data set, in code"
        )


DATASETS = Datasets  # its name before 2.0


class _Loaders(dict[str, type[DataLoader]]):
    """A loader for every framework: the same."""

    def __missing__(self, framework: str) -> type[DataLoader]:
        return DataLoader


DATALOADERS = _Loaders()
