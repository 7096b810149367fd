"""Data for a model: arrays whose leading axis is samples, cut into the model's batches, or runs of a
model that has none, each with all of an input.

>>> data = load_dataset({"x": np.zeros((5, 3)), "labels": np.zeros(5, int)})
>>> data.count, sorted(data.inputs)
(5, ['x'])
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim.arrays import files
from neuronsim.dtypes import as_dtype
from neuronsim.errors import InaccessibleFile, InvalidData, UnsupportedType, nearest
from neuronsim.frontends.weights import weights_hint
from neuronsim.hlo.array_sources import array_sources
from neuronsim.hlo.module import Module, Shape

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Dataset:
    """Samples by input name, and their labels if there are any."""

    inputs: Mapping[str, npt.NDArray[Any]]
    labels: npt.NDArray[Any] | None
    source: str

    @property
    def count(self) -> int:
        """The number of samples."""
        return len(next(iter(self.inputs.values())))

    @property
    def fingerprint(self) -> str:
        """A hash of names, types, shapes and values."""
        digest = hashlib.sha256()
        arrays = dict(self.inputs) | ({} if self.labels is None else {"labels": self.labels})
        for name, array in sorted(arrays.items()):
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]


def load_dataset(
    data: str | Path | Mapping[str, Any], labels: Any = None, input_names: Sequence[str] = ()
) -> Dataset:
    """The dataset of an `.npz` file or a mapping; `labels` wins over the key of that name, which
    stands for labels unless it is one of the model's `input_names`.

    Raises InvalidData if the file cannot be read or its arrays have different lengths.
    """
    if not isinstance(data, Mapping | str | os.PathLike):
        raise InvalidData(
            f"the data are an .npz file or arrays by the names of the model's inputs, not {data!r}"[
                :200
            ]
        )
    source = "memory" if isinstance(data, Mapping) else str(data)
    arrays = _as_arrays(data) if isinstance(data, Mapping) else read_npz(Path(data))
    found = None if "labels" in input_names else arrays.pop("labels", None)
    if labels is not None:
        found = _as_arrays({"labels": labels})["labels"]
    if not arrays:
        named = f": {', '.join(input_names)}" if input_names else ""
        raise InvalidData(
            f"{source} holds no input arrays: its keys are the model's input names{named}"
        )
    for name, array in arrays.items():
        _check_values(source, name, array)
    lengths = {k: (len(v) if v.ndim else 0) for k, v in arrays.items()}
    if found is not None:
        if not found.ndim or found.dtype.kind not in "iufb":
            raise InvalidData(
                f"{source}: labels are {found.dtype}{list(found.shape)}; they must be numbers, class "
                "numbers of each sample, token or pixel or what a metric of one's own reads"
            )
        lengths["labels"] = len(found)
        found = found.astype(np.int64) if found.dtype.kind in "iu" else found
    own = {lengths[name] for name in arrays}
    if own == {0} and all(array.ndim for array in arrays.values()):
        raise InvalidData(f"{source} has no samples: the leading axis of its arrays is 0 long")
    if found is not None and len(own) == 1 and own != {len(found)}:
        raise InvalidData(
            f"{source}: {own.pop()} samples have {len(found)} labels: give each one its own"
        )
    if len(own) != 1 or 0 in own:
        single = [repr(name) for name, array in arrays.items() if not array.ndim]
        have = "has" if len(single) == 1 else "have"
        why = f"{', '.join(single)} {have} no axis" if single else f"the lengths are {lengths}"
        raise _NoSamples(
            f"{source}: the leading axis is samples, but {why}: what is the same "
            "for all samples is --input-value NAME=..., input_values=, and weights --weights FILE, "
            "weights=; the inputs of a model without batches have one axis more, of runs"
        )
    return Dataset(arrays, found, source)


class _NoSamples(InvalidData):
    """Arrays have no common leading axis."""


def sampled_inputs(data: str | Path | Mapping[str, Any]) -> Mapping[str, npt.NDArray[Any]]:
    """The inputs of a dataset, whose shapes say those of a model; of arrays that each have an input's
    own shape (`load_batches`), and no axis of samples, none.
    """
    try:
        return load_dataset(data).inputs
    except _NoSamples:
        return {}


def _as_arrays(data: Mapping[str, Any]) -> Arrays:
    arrays: Arrays = {}
    for name, values in data.items():
        try:
            arrays[name] = np.asarray(values)
        except ValueError as error:
            raise InvalidData(f"{name!r} is not an array: {error}") from error
    return arrays


def _check_values(source: str, name: str, array: npt.NDArray[Any]) -> None:
    try:
        as_dtype(array.dtype.newbyteorder("="))
    except UnsupportedType as error:
        raise InvalidData(f"{source}: {name!r} holds {array.dtype}, which is no number") from error


def reject_nan(dataset: Dataset) -> None:
    """Raises InvalidData if an input is NaN somewhere: figures over it would mean nothing."""
    for name, array in dataset.inputs.items():
        if array.dtype.kind in "biu" or not (nan := np.isnan(array)).any():
            continue
        where = [int(i) for i in np.argwhere(nan)[0]]
        raise InvalidData(
            f"{dataset.source}: {name!r} is NaN at {where}: every setting would agree on NaN, so the "
            "figures would mean nothing; remove such samples"
        )


def without_a_number() -> InvalidData:
    """The error where float32's own outputs are NaN or infinite throughout."""
    return InvalidData(
        "every output is NaN or infinite everywhere in float32: every setting would agree on that, so "
        "look at the data and the weights; `neuronsim run --auto-cast none --observe counts` names "
        "where it begins"
    )


def read_npz(path: Path) -> Arrays:
    """The arrays of an `.npz` file, NumPy's or `neuronsim.savez`'s; else raises InvalidData."""
    try:
        archive = files.load(path)
        if isinstance(archive, files.NpzFile):
            with archive:
                return {name: np.asarray(archive[name]) for name in archive.files}
    except InaccessibleFile as error:
        raise InvalidData(f"cannot read the data {str(path)!r}: {error.reason}") from error
    except (InvalidData, UnsupportedType) as error:
        raise InvalidData(
            f"{path} is not an .npz file of plain arrays: save the arrays with numpy.savez; {error}"
        ) from error
    raise InvalidData(f"{path} is a single array; save a named one with numpy.savez")


def bind_inputs(module: Module, inputs: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The arrays under the model's input names; a sole parameter's may be called `x`.

    Raises InvalidData that lists names that are missing or too many.
    """
    names = module.input_names()
    known = module.known_inputs()
    if len(names) == 1 and set(inputs) == {"x"}:
        return {names[0]: inputs["x"]}
    bound: Arrays = {}
    for key, array in inputs.items():
        name = known.get(key)
        if name is None:
            raise InvalidData(
                f"the data have an array {key!r}{nearest(key, names)}; the model's inputs are "
                f"{', '.join(names) or 'none'}"
            )
        if name in bound:
            raise InvalidData(f"the data have the input {name!r} twice, once as {key!r}")
        bound[name] = array
    missing = [n for n in names if n not in bound]
    if missing:
        raise InvalidData(
            f"the data lack the model's inputs {', '.join(missing)}{weights_hint(module, missing)}; "
            f"a value for all samples is --input-value {missing[0]}=..., input_values="
        )
    return bound


@dataclass(frozen=True)
class Filler:
    """What fills a batch up: its last sample, of which `copies` do not count. `inputs` are a batch of
    nothing else, whose `size` times as many counts say what to leave out of the filled one's.
    """

    inputs: Arrays
    copies: int
    size: int


@dataclass(frozen=True)
class Batches(Sequence[tuple[Arrays, int]]):
    """The inputs of each batch and how many of its samples count; the last one is filled up with its
    last sample. Where `are_runs`, each sample is the inputs of a run, whole.
    """

    inputs: Arrays
    size: int
    samples: int
    are_runs: bool = False

    def __len__(self) -> int:
        return math.ceil(self.samples / self.size)

    def __getitem__(self, number: Any) -> Any:
        start = range(0, self.samples, self.size)[number]
        if self.are_runs:
            return {name: array[start] for name, array in self.inputs.items()}, 1
        rows = np.minimum(np.arange(start, start + self.size), self.samples - 1)
        counted = min(self.size, self.samples - start)
        return {name: array[rows] for name, array in self.inputs.items()}, counted

    @property
    def filler(self) -> Filler | None:
        """What the last batch is filled up with, if it is."""
        copies = -self.samples % self.size
        rows = np.full(self.size, self.samples - 1)
        inputs = {name: array[rows] for name, array in self.inputs.items()}
        return Filler(inputs, copies, self.size) if copies else None


def batches(module: Module, dataset: Dataset) -> Batches:
    """The batches of a dataset. Raises InvalidData for shapes that do not fit."""
    inputs = bind_inputs(module, dataset.inputs)
    shapes = {n: p.array.dims for n, p in zip(module.input_names(), module.parameters, strict=True)}
    if all(array.shape[1:] == shapes[name] for name, array in inputs.items()):
        return Batches(inputs, 1, dataset.count, are_runs=True)
    sizes = {dims[0] if dims else 0 for dims in shapes.values()}
    if len(sizes) != 1 or 0 in sizes:
        few = min(shapes, key=lambda n: (bool(shapes[n]), math.prod(shapes[n])))
        raise InvalidData(
            f"the model's inputs {shapes} have no common leading axis of samples: what is the same for "
            f"all of them, such as a state at its start, is not in the data but --input-value {few}=0, "
            f"input_values={{{few!r}: 0}}; or give each input an axis more, of runs"
        )
    (size,) = sizes
    for name, array in inputs.items():
        if array.shape[1:] != shapes[name][1:]:
            raise InvalidData(
                f"samples of {name!r} are {list(array.shape[1:])}, the model takes "
                f"{list(shapes[name][1:])}, or {list(shapes[name])} where each is a run of its own"
            )
    return Batches(inputs, size, dataset.count)


_ALL = 1 << 62  # rows of outputs


@dataclass(frozen=True)
class BatchedData:
    """Data of which all batches are there: a model's inputs batch by batch, each in the order of its
    parameters, and how many rows of the outputs count: the last batch is filled up. Where `are_runs`, a
    batch's outputs are one sample.
    """

    inputs: tuple[tuple[Arrays, int], ...]
    labels: npt.NDArray[np.int64] | None
    source: str
    count: int
    are_runs: bool = False


def load_batches(
    module: Module, data: str | Path | Mapping[str, Any], labels: Any = None
) -> BatchedData:
    """The batches of data as `load_dataset` takes them. Without labels one array for each input in its
    own shape, with or without an axis of samples, is one batch.

    Raises InvalidData for data that do not fit, and where they are NaN.
    """
    names = module.input_names()
    if labels is None and isinstance(data, Mapping | str | os.PathLike):
        arrays = _as_arrays(data) if isinstance(data, Mapping) else read_npz(Path(data))
        if "labels" in names or "labels" not in arrays:
            bound = bind_inputs(module, arrays)
            shapes = {n: p.array.dims for n, p in zip(names, module.parameters, strict=True)}
            if all(bound[n].shape == shapes[n] for n in names):
                whole = Dataset(bound, None, "memory" if isinstance(data, Mapping) else str(data))
                reject_nan(whole)
                count = max((x.shape[0] for x in bound.values() if x.ndim), default=1)
                part = ({n: bound[n] for n in names}, _ALL)
                return BatchedData((part,), None, whole.source, count)
    dataset = load_dataset(data, labels, names)
    reject_nan(dataset)
    given = batches(module, dataset)
    parts = [({n: inputs[n] for n in names}, _ALL if given.are_runs else k) for inputs, k in given]
    return BatchedData(tuple(parts), dataset.labels, dataset.source, dataset.count, given.are_runs)


def run_batches(
    program: Callable[..., Any],
    module: Module,
    dataset: Dataset,
    report: Callable[[int], None] = lambda done: None,
) -> list[npt.NDArray[Any]]:
    """Run a program on every sample: each of its outputs as an array [samples, ...], or [batches,
    ...] of one without samples (a loss).

    Raises InvalidData for such an output where the last batch is padded: it could not be told from it.
    """
    bind_inputs(module, dataset.inputs)  # a weight that is missing says nothing of the outputs
    check_outputs(module, dataset)
    given, collected = batches(module, dataset), list[list[npt.NDArray[Any]]]()
    of_samples = outputs_of_samples(module, given)
    for done, (inputs, counted) in enumerate(given, start=1):
        parts = map(np.asarray, flat_results(program(**inputs)))
        collected.append(counted_rows(parts, of_samples, counted))
        report(done)
    return [np.concatenate(parts) for parts in zip(*collected, strict=True)]


def outputs_of_samples(module: Module, given: Batches | None = None) -> list[bool]:
    """Of each output whether its leading axis is that of the model's samples, on batches of them."""
    size = () if given is not None and given.are_runs else _batch_size(module)
    return [bool(size) and s.dims[:1] == size for s in module.root.shape.arrays()]


def output_shapes(module: Module, are_runs: bool) -> tuple[Shape, ...]:
    """The shapes of a model's outputs with their axis of samples, which runs add."""
    shapes = module.root.shape.arrays()
    return tuple(Shape(s.dtype, (1, *s.dims)) for s in shapes) if are_runs else shapes


def counted_rows(
    outputs: Iterable[npt.NDArray[Any]], of_samples: Sequence[bool], counted: int
) -> list[npt.NDArray[Any]]:
    """The rows of a batch's outputs that count: an output without samples is one row."""
    pairs = zip(outputs, of_samples, strict=True)
    return [x[:counted] if sampled else x[None] for x, sampled in pairs]


def _batch_size(module: Module) -> tuple[int, ...]:
    return module.parameters[0].array.dims[:1] if module.parameters else ()


def check_outputs(module: Module, dataset: Dataset) -> None:
    """Raises InvalidData if an output has no axis of samples and the last batch of them is padded."""
    size = _batch_size(module)
    if (size and size[0] and dataset.count % size[0] == 0) or batches(module, dataset).are_runs:
        return
    root = module.entry_computation.root
    sources = array_sources(module.entry_computation)[root]
    shapes = module.root.shape.arrays()
    for n, (shape, (source, _)) in enumerate(zip(shapes, sources, strict=True)):
        if not shape.dims or shape.dims[:1] != size:
            advice = (
                f"leave it out of the model's root ({root})"
                if len(shapes) > 1
                else "give the model an output of one row for each sample"
            )
            raise InvalidData(
                f"output {n} of the model, {source.name} ({shape.type}), does not have the samples of "
                f"its input {list(size)} along its leading axis, so that padding could not be told "
                f"from results: give samples for whole batches, or {advice}"
            )


def flat_results(value: Any) -> list[Any]:
    """The arrays of a program's result: one, or those of a tuple, which may be nested."""
    return [x for v in value for x in flat_results(v)] if isinstance(value, tuple) else [value]
