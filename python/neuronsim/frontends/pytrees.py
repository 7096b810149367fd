"""Arrays in nested tuples, lists and dicts.

>>> leaves, tree = flatten({"a": (1, 2), "b": None})
>>> leaves, unflatten(tree, [3, 4])
([1, 2], {'a': (3, 4), 'b': None})
"""

from __future__ import annotations

import functools
from collections import OrderedDict, namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuronsim.errors import InvalidArgument


@dataclass(frozen=True)
class Tree:
    """How arrays lie in tuples, lists and dicts: a leaf where `kind` is None."""

    kind: type | None = None
    keys: tuple[Any, ...] = ()
    children: tuple[Tree, ...] = ()

    def __str__(self) -> str:
        return repr(unflatten(self, [_Star()] * self.size))

    @property
    def size(self) -> int:
        """How many leaves it has."""
        return 1 if self.kind is None else sum(t.size for t in self.children)


class _Star:
    def __repr__(self) -> str:
        return "*"


LEAF = Tree()


def flatten(x: Any) -> tuple[list[Any], Tree]:
    """The leaves of nested tuples, lists, dicts and None, and how they lie in them.

    >>> flatten({"a": (1, 2), "b": None})[0]
    [1, 2]
    """
    if x is None:
        return [], Tree(type(None))
    if type(x) in (dict, OrderedDict):
        keys = tuple(x)
        parts = [flatten(x[k]) for k in keys]
    elif isinstance(x, list | tuple):
        keys, parts = (), [flatten(v) for v in x]
    else:
        return [x], LEAF
    return [v for leaves, _ in parts for v in leaves], Tree(type(x), keys, tuple(t for _, t in parts))


def flatten_by_names(x: Any) -> tuple[list[Any], Tree]:
    """The same with dicts in the order of their keys, and named tuples alike that have the same names.

    >>> flatten_by_names({"b": 1, "a": 2})[0]
    [2, 1]
    """

    def ordered(x: Any) -> Any:
        if isinstance(x, dict):
            return {k: ordered(x[k]) for k in sorted(x, key=lambda k: (type(k).__name__, repr(k)))}
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return named_tuple(type(x).__name__, tuple(x._fields))(*map(ordered, x))
        return type(x)(map(ordered, x)) if type(x) in (list, tuple) else x

    return flatten(ordered(x))


def unflatten(tree: Tree, leaves: Sequence[Any]) -> Any:
    """What `flatten` took apart."""
    rest = iter(leaves)

    def build(t: Tree) -> Any:
        if t.kind is None:
            return next(rest)
        if t.kind is type(None):
            return None
        children = [build(c) for c in t.children]
        if issubclass(t.kind, dict):
            return t.kind(zip(t.keys, children, strict=True))
        kind: Any = t.kind
        return kind(*children) if hasattr(t.kind, "_fields") else kind(children)

    return build(tree)


@functools.cache
def named_tuple(name: str, fields: tuple[str, ...]) -> Any:
    """One class of named tuples for all of this name and these fields: it stands for a user's own, and
    its tuples can be pickled. Raises ValueError or TypeError for what can be no names.

    >>> named_tuple("Pair", ("low", "high"))(1, 2)
    Pair(low=1, high=2)
    """

    def reduced(found: Any) -> Any:
        return _named, (name, fields, tuple(found))

    return type(name, (namedtuple(name, fields),), {"__slots__": (), "__reduce__": reduced})


def _named(name: str, fields: tuple[str, ...], parts: tuple[Any, ...]) -> Any:
    return named_tuple(name, fields)(*parts)


def of_labels(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of leaves by their labels, as programs name their inputs: dicts, or lists where the
    labels go on with 0, 1, ... Raises InvalidArgument for a label that another goes on from.

    >>> of_labels({"params.w": 1, "params.layers.0": 2, "x": 3})
    {'params': {'w': 1, 'layers': [2]}, 'x': 3}
    """
    parts: dict[str, dict[str, Any]] = {}
    for label, leaf in leaves.items():
        root, _, rest = label.partition(".")
        parts.setdefault(root, {})[rest] = leaf
    found: dict[str, Any] = {}
    for root, own in parts.items():
        if "" not in own:
            inside = of_labels(own)
            places = [str(n) for n in range(len(inside))]
            is_list = sorted(inside) == sorted(places)
            found[root] = [inside[n] for n in places] if is_list else inside
        elif len(own) == 1:
            found[root] = own[""]
        else:
            raise InvalidArgument(
                f"{root!r} is given as an array, and {', '.join(f'{root}.{n}' for n in own if n)} in it"
            )
    return found
