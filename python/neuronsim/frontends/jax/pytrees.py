"""JAX's pytrees: the names of leaves, and which of them are arrays."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuronsim.arrays.array_object import Array


@dataclass(frozen=True)
class Given:
    """The arguments of a function: by position those of `positional`, then by name, each with its
    leaves, their tree and what the leaves are called.
    """

    names: tuple[str, ...]
    positional: int
    leaves: tuple[tuple[Any, ...], ...]
    trees: tuple[Any, ...]
    labels: tuple[tuple[str, ...], ...]

    def after(self, first: Given) -> Given:
        """These arguments after others by position."""
        return Given(
            first.names + self.names,
            first.positional + self.positional,
            first.leaves + self.leaves,
            first.trees + self.trees,
            first.labels + self.labels,
        )

    def rebuild(self, leaves: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments with other leaves, one after the other."""
        rest, made = iter(leaves), []
        for tree, own in zip(self.trees, self.leaves, strict=True):
            made.append(tree.unflatten([next(rest) for _ in own]))
        n = self.positional
        return made[:n], dict(zip(self.names[n:], made[n:], strict=True))


def take_apart(
    jax: Any, names: Sequence[str], args: Sequence[Any], keywords: Mapping[str, Any]
) -> Given:
    """The arguments of a call, of which the positional ones have these names."""
    named = (*names, *keywords)
    parts = [jax.tree_util.tree_flatten_with_path(x) for x in (*args, *keywords.values())]
    return Given(
        named,
        len(args),
        tuple(tuple(leaf for _, leaf in found) for found, _ in parts),
        tuple(tree for _, tree in parts),
        tuple(
            tuple(label(name, path) for path, _ in found)
            for name, (found, _) in zip(named, parts, strict=True)
        ),
    )


def label(name: str, path: Sequence[Any]) -> str:
    """The name of a leaf: its argument's, with its place inside it."""
    return ".".join([name, *map(_step, path)])


def _step(key: Any) -> str:
    """A step of a path into a pytree: a key of a dict, a place in a sequence, an attribute."""
    for name in ("key", "idx", "name"):
        if hasattr(key, name):
            return str(getattr(key, name))
    return str(key).strip(".[]'\"")


def label_of_origin(origin: str) -> str:
    """The label of an argument as JAX writes it: params['layers'][0] is params.layers.0.

    >>> label_of_origin("params['layers'][0].w")
    'params.layers.0.w'
    """
    return re.sub(r"\[<?(?:flat index )?['\"]?([^\]'\">]*)['\"]?>?\]", r".\1", origin)


def is_array(x: Any) -> bool:
    """Whether a leaf is an array, or stands for one (jax.ShapeDtypeStruct)."""
    return isinstance(x, np.ndarray | np.generic | Array) or (
        hasattr(x, "shape") and hasattr(x, "dtype") and not callable(x)
    )


def is_scalar(x: Any) -> bool:
    """Whether a leaf is one of Python's numbers, which `jax.jit` traces too."""
    return isinstance(x, bool | int | float | complex)


def as_input(jax: Any, x: Any) -> Any:
    """A leaf as a program takes it: random keys as their words."""
    dtype = getattr(x, "dtype", None)
    if dtype is not None and not isinstance(dtype, np.dtype) and is_key(jax, dtype):
        return np.asarray(jax.random.key_data(x))
    return x


def is_key(jax: Any, dtype: Any) -> bool:
    """Whether a type is that of random keys, whose words are their own secret."""
    try:
        return bool(jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))
    except TypeError:
        return False
