"""How a program of a function is called, as a JSON document that a saved program holds.

>>> from neuronsim.frontends.calls import Argument, Calls
>>> from neuronsim.frontends.pytrees import flatten, unflatten
>>> leaves, tree = flatten({"w": 1, "b": 2})
>>> argument = Argument("params", tree, (0, 1), ("params.w", "params.b"))
>>> document = to_document(Calls((argument,), flatten, lambda found: tuple(found), unflatten), 2)
>>> document["arguments"]
[['params', {'dict': [['w', 0], ['b', 1]]}]]
>>> from_document(document, 2, 2).bind(({"b": 3.0, "w": 4.0},), {})[0] == {0: 4.0, 1: 3.0}
True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from neuronsim.errors import InvalidModel
from neuronsim.frontends.calls import Argument, Calls
from neuronsim.frontends.pytrees import flatten, flatten_by_names, named_tuple, unflatten


@dataclass(frozen=True)
class _Leaf:
    """A leaf of an argument or a result: the number of an input or a result, or a value that the
    program knows (`number` is None), or of an argument one that nothing reads (`is_read` is False).
    """

    number: int | None = None
    value: Any = None
    label: str = ""
    is_read: bool = True


class _NotPlainError(Exception):
    """A structure of other things than tuples, lists, dicts, numbers and texts."""


def to_document(calls: Calls, results: int) -> dict[str, Any] | None:
    """The calls of a program of so many results; None where a structure is another than tuples, named
    ones too, lists and dicts with keys that are texts or integers.
    """
    try:
        arguments = [[a.name, _document(calls.unflatten(a.tree, _leaves(a)))] for a in calls.arguments]
        found = _document(calls.rebuild([_Leaf(n) for n in range(results)]))
    except _NotPlainError:
        return None
    return {"arguments": arguments, "results": found, "constants": list(calls.constants)}


def _leaves(a: Argument) -> list[_Leaf]:
    return [
        _Leaf(n, a.known.get(place), label, n is not None or place in a.known)
        for place, (n, label) in enumerate(zip(a.inputs, a.labels, strict=True))
    ]


def _document(x: Any) -> Any:
    if isinstance(x, _Leaf):
        if x.number is not None:
            return x.number
        return {"is": _value(x.value), "label": x.label} if x.is_read else {"unread": x.label}
    if x is None:
        return None
    if type(x) is dict and all(type(k) in (str, int) for k in x):
        return {"dict": [[k, _document(v)] for k, v in x.items()]}
    if type(x) in (list, tuple):
        return {type(x).__name__: [_document(v) for v in x]}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        parts = [[name, _document(v)] for name, v in zip(x._fields, x, strict=True)]
        return {"namedtuple": [type(x).__name__, parts]}
    return {"is": _value(x), "label": ""}


def _value(x: Any) -> Any:
    if x is None or type(x) in (bool, int, str):
        return x
    if type(x) is float:
        return x if math.isfinite(x) else {"float": repr(x)}  # JSON has neither NaN nor infinities
    raise _NotPlainError


def from_document(document: Any, inputs: int, results: int) -> Calls:
    """What `to_document` wrote of a program of so many inputs and results. Dicts are then the same in
    whatever order their keys stand. Raises InvalidModel for anything else.
    """
    try:
        arguments = tuple(_argument(name, x) for name, x in document["arguments"])
        found, constants = _structure(document["results"]), document["constants"]
        numbers = sorted(n for a in arguments for n in a.inputs if n is not None)
        of_results = [leaf.number for leaf in flatten(found)[0] if leaf.number is not None]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidModel(f"how it is called is no document of a function: {error}") from error
    texts = [
        *constants,
        *(a.name for a in arguments),
        *(label for a in arguments for label in a.labels),
    ]
    if numbers != list(range(inputs)) or sorted(of_results) != list(range(results)):
        raise InvalidModel("how it is called names other inputs and results than it has")
    if not all(type(t) is str for t in texts):
        raise InvalidModel("how it is called has names that are no texts")
    return Calls(arguments, flatten_by_names, _rebuilding(found), unflatten, tuple(constants))


def _argument(name: str, document: Any) -> Argument:
    leaves, tree = flatten_by_names(_structure(document))
    known = {at: leaf.value for at, leaf in enumerate(leaves) if leaf.number is None and leaf.is_read}
    labels = tuple(leaf.label for leaf in leaves)
    return Argument(name, tree, tuple(leaf.number for leaf in leaves), labels, known)


def _structure(document: Any) -> Any:
    """Tuples, lists and dicts with leaves."""
    if document is None:
        return None
    if type(document) is int:
        return _Leaf(document)
    if "is" in document:
        value = document["is"]
        value = float(value["float"]) if type(value) is dict else value
        return _Leaf(value=value, label=document["label"])
    if "unread" in document:
        return _Leaf(label=document["unread"], is_read=False)
    ((kind, parts),) = document.items()
    if kind == "dict":
        found = {k: _structure(v) for k, v in parts}
        if len(found) != len(parts) or not all(type(k) in (str, int) for k in found):
            raise ValueError("a dict has a key twice, or one that is neither a text nor an integer")
        return found
    if kind == "namedtuple":
        name, named = parts
        return named_tuple(name, tuple(f for f, _ in named))(*(_structure(v) for _, v in named))
    return {"list": list, "tuple": tuple}[kind](map(_structure, parts))


def _rebuilding(structure: Any) -> Callable[[Sequence[Any]], Any]:
    def build(x: Any, results: Sequence[Any]) -> Any:
        if isinstance(x, _Leaf):
            return x.value if x.number is None else results[x.number]
        if type(x) is dict:
            return {k: build(v, results) for k, v in x.items()}
        if x is None:
            return None
        parts = [build(v, results) for v in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)

    return lambda results: build(structure, results)
