"""What PyTorch has of a model as a module: modules, functions of tensors, exported programs, files."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neuronsim.arrays.conversion import asarray
from neuronsim.arrays.creation import zeros
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, NeuronSimError, nearest, warn
from neuronsim.frontends.calls import ReadModel
from neuronsim.frontends.inputs import ModelInputs
from neuronsim.frontends.torch import archive
from neuronsim.frontends.torch.belonging import is_exported, is_module, is_tensor
from neuronsim.frontends.torch.exporting import decomposed, export
from neuronsim.frontends.torch.model import OpenInputs, Recorded, to_module
from neuronsim.frontends.torch.structures import leaves_of, with_defaults
from neuronsim.frontends.torch.tensors import require_torch, to_tensor


def read(model: Any, inputs: ModelInputs, samples: Mapping[str, Any] | None = None) -> ReadModel:
    """The module of a model of PyTorch, whose own inputs and results it has, called as the model is.

    `samples` are data by the inputs' names, samples first. Where nothing else says what a module takes,
    it is exported for shapes, values and data by the names of its `forward`'s parameters.
    """
    recorded = record(model, inputs, samples)
    if recorded.dropped:
        listed = ", ".join(map(repr, recorded.dropped))
        warn(
            f"the model writes {listed}: a compiled program gives its results alone, and begins each "
            "call with the values that they had; neuronsim.torch.trace keeps them",
            UserWarning,
        )
    if archive.is_archive(model) or is_exported(model):
        return ReadModel(recorded.module, recorded.calls)
    return ReadModel(recorded.module, with_defaults(recorded.calls, _parameters(model)))


def record(
    model: Any,
    inputs: ModelInputs,
    samples: Mapping[str, Any] | None = None,
    *,
    keeps_state: bool = False,
) -> Recorded:
    """The same, and what its inputs, constants and results are of the model."""
    require_torch()
    values, data = inputs.input_values or {}, samples or {}
    shapes: dict[str, Sequence[int]] = {}  # a module's are those of its examples
    dims = {name: x.shape[1:] for name, x in data.items()}
    if archive.is_archive(model) or is_exported(model):
        program, places = decomposed(archive.load(model) if archive.is_archive(model) else model)
        shapes = {**_shapes_of(program, inputs.example_args), **inputs.stated_shapes}
    else:
        args, keywords = _examples(model, inputs, data)
        try:
            program, places = export(model, args, keywords)
        except NeuronSimError as error:
            if len(args) != 1 or not isinstance(args[0], Mapping):
                raise
            raise InvalidArgument(
                f"{error}. The one example argument is a mapping: arguments by name are given as "
                "example_kwargs"
            ) from error
        dims = {}
    return to_module(
        program,
        places,
        OpenInputs(shapes, values, inputs.batch, dims),
        name=_name(model),
        composites=inputs.composites,
        keeps_state=keeps_state,
    )


def _name(model: Any) -> str:
    """What a program is called: as its class, its function or its file."""
    if is_module(model):
        return type(model).__name__
    if isinstance(model, str | os.PathLike):
        return Path(model).stem
    return str(getattr(model, "__name__", "main"))


def _shapes_of(program: Any, example_args: Sequence[Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of example arguments by the names of a program's inputs."""
    names = program.graph_signature.user_inputs
    leaves = leaves_of((tuple(example_args), {}))
    return {str(n): tuple(x.shape) for n, x in zip(names, leaves, strict=False) if hasattr(x, "shape")}


def _examples(
    model: Any, inputs: ModelInputs, data: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Example arguments: those that are given, and tensors for what is said of the parameters of a
    module's forward by name.
    """
    args = tuple(tensors_of(inputs.example_args))
    examples = inputs.example_kwargs or {}
    shapes, values = inputs.input_shapes or {}, inputs.input_values or {}
    types = inputs.stated_types
    parameters = _parameters(model, must=bool(shapes or values or types))
    open_ends = any(p.kind is p.VAR_KEYWORD for p in parameters)
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for name in (*examples, *shapes, *values, *types):
        if name not in names and not open_ends:
            raise InvalidArgument(
                f"the model takes no {name!r}{nearest(name, names)}: it takes {', '.join(names)}"
            )
    sole = len(names) == 1 and list(data) == ["x"]
    keywords: dict[str, Any] = {name: tensors_of(x) for name, x in examples.items()}
    for name in names[len(args) :]:
        of_data = data.get("x" if sole else name)
        if name in keywords:
            continue
        if name in values:
            keywords[name] = _tensor_of(values[name])
        elif name in shapes:
            like = None if of_data is None else np.asarray(of_data).dtype
            keywords[name] = _zeros(model, tuple(shapes[name]), types.get(name), like)
        elif of_data is not None:
            sample = np.asarray(of_data)
            dims = (inputs.batch, *sample.shape[1:])
            keywords[name] = _zeros(model, dims, types.get(name), sample.dtype)
    needed = [p.name for p in parameters if p.default is p.empty and p.name in names[len(args) :]]
    missing = [name for name in needed if name not in keywords]
    if missing:
        raise InvalidArgument(
            f"the model takes {', '.join(missing)}, of which nothing is said: give example arguments, "
            "neuronsim.compile(module, *example_inputs), or the shapes of arguments, "
            f"input_shapes={{{missing[0]!r}: (...)}} (--input-shape {missing[0]}=...), with "
            f"input_types={{{missing[0]!r}: 'int64'}} where they are none of its floats (--input-shape "
            f"{missing[0]}=...:int64), or data"
        )
    # In the order in which a call may give them by position.
    ordered = {name: keywords[name] for name in names if name in keywords}
    return args, ordered | keywords


def _parameters(model: Any, *, must: bool = False) -> list[inspect.Parameter]:
    """Those of a module's forward, or of a function; none where it does not tell, as PyTorch's own do
    not: InvalidArgument is raised if it `must`.
    """
    function = model.forward if is_module(model) else model
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        if must:
            raise InvalidArgument(
                f"the model does not tell its parameters ({error}): wrap it in a function"
            ) from error
        return []


def tensors_of(tree: Any) -> Any:
    """Arguments with tensors in the place of other libraries' arrays."""
    if isinstance(tree, dict):
        return {k: tensors_of(v) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        found = [tensors_of(v) for v in tree]
        return type(tree)(*found) if hasattr(tree, "_fields") else type(tree)(found)
    return _tensor_of(tree) if hasattr(tree, "__array__") and not is_tensor(tree) else tree


def _tensor_of(x: Any) -> Any:
    return x if is_tensor(x) else to_tensor(asarray(x))


def _zeros(model: Any, dims: tuple[int, ...], stated: DType | None, like: Any) -> Any:
    """An example of which the values do not matter: of the stated type, of integers as data have them,
    else of floats of the model's own type.
    """
    torch = require_torch()
    if stated is not None:
        return to_tensor(zeros(dims, dtype=stated))
    if like is not None and np.dtype(like).kind in "biu":
        return torch.from_numpy(np.zeros(dims, like))
    weights = model.parameters() if is_module(model) else ()
    dtype = next((p.dtype for p in weights if p.dtype.is_floating_point), torch.float32)
    return torch.zeros(dims, dtype=dtype)
