"""Which models are PyTorch's, by the names of their classes: nothing of it is imported to find out."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from neuronsim.frontends.torch.archive import is_archive


def is_torch(model: Any, example_args: Sequence[Any] = ()) -> bool:
    """Whether a model is PyTorch's: a module, an ExportedProgram, a `.pt2` file or its bytes, or a
    function that is given tensors.
    """
    if is_module(model) or is_exported(model) or is_archive(model):
        return True
    return inspect.isroutine(model) and has_tensors(example_args)


def is_module(x: Any) -> bool:
    """Whether an object is a torch.nn.Module."""
    names = [(c.__module__, c.__name__) for c in type(x).__mro__]
    return ("torch.nn.modules.module", "Module") in names


def is_exported(x: Any) -> bool:
    """Whether an object is a torch.export.ExportedProgram."""
    return type(x).__name__ == "ExportedProgram" and type(x).__module__.startswith("torch.export")


def has_tensors(tree: Any) -> bool:
    """Whether there is a tensor among arguments."""
    if isinstance(tree, Mapping):
        return any(map(has_tensors, tree.values()))
    if isinstance(tree, list | tuple):
        return any(map(has_tensors, tree))
    return is_tensor(tree)


def is_tensor(x: Any) -> bool:
    """Whether an object is a tensor of PyTorch's."""
    return any(c.__module__ == "torch" and c.__name__ == "Tensor" for c in type(x).__mro__)
