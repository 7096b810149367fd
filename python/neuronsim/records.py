"""Records that users make: each field holds what its annotation says, or the record is refused.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Names:
...     names: tuple[str, ...]
...
...     def __post_init__(self) -> None:
...         check_fields(self)
>>> Names(["dot.1"]).names
('dot.1',)
>>> Names("y")
Traceback (most recent call last):
neuronsim.errors.InvalidArgument: Names: names is 'y', not a tuple, each element a text: write ('y',)
"""

from __future__ import annotations

import math
import reprlib
import types
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, Literal, TypeGuard, Union, get_args, get_origin, get_type_hints

from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import InvalidArgument, nearest

# Gives a field's value, a list as the tuple and a set as the frozenset that the record keeps.
_Read = Callable[[Any], Any]


def is_int(value: object, least: float = -math.inf, most: float = math.inf) -> TypeGuard[int]:
    """Whether a value is an integer from `least` to `most`; Python's True and False are none.

    >>> is_int(3, least=1), is_int(0, least=1), is_int(True), is_int(3.0)
    (True, False, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


class _Refused(Exception):
    """A value is not as its annotation says; the argument is a hint."""


def check_fields(record: Any) -> None:
    """Raises InvalidArgument for the first field of a dataclass that its annotation does not describe.

    Lists stand for tuples and sets for frozensets; texts stand neither for types nor for tuples.
    """
    for name, read, expected in _readers(type(record)):  # type: ignore[arg-type]
        value = getattr(record, name)
        try:
            found = read(value)
        except _Refused as refused:
            raise InvalidArgument(
                f"{type(record).__name__}: {name} is {reprlib.repr(value)}, not {expected}{refused}"
            ) from None
        if found is not value:
            object.__setattr__(record, name, found)


def readers(
    record: type, kinds: Mapping[Any, Callable[[Any], Any]] | None = None
) -> Mapping[str, Callable[[Any], Any]]:
    """For each field of a dataclass what reads its values from a document: of an annotation among the
    `kinds`, None beside it or not, the one there. Others give what `check_fields` keeps, and raise
    InvalidArgument that says what the annotation expects.
    """

    def strict(read: _Read, expected: str) -> Callable[[Any], Any]:
        def kind(value: Any) -> Any:
            try:
                return read(value)
            except _Refused as refused:
                raise InvalidArgument(f"{expected}{refused}") from None

        return kind

    if kinds is None:
        found: Iterable[tuple[str, _Read, str]] = _readers(record)
        return {name: strict(read, expected) for name, read, expected in found}
    hints = get_type_hints(record)
    bare = {f.name: _without_none(hints[f.name]) for f in fields(record)}
    return {n: kinds[a] if a in kinds else strict(*_reader(a)) for n, a in bare.items()}


def _without_none(annotation: Any) -> Any:
    arguments = [a for a in get_args(annotation) if a is not types.NoneType]
    union = get_origin(annotation) in (Union, types.UnionType)
    return arguments[0] if union and len(arguments) == 1 else annotation


@cache
def _readers(kind: Hashable) -> tuple[tuple[str, _Read, str], ...]:
    record: Any = kind
    hints = get_type_hints(record)
    return tuple((f.name, *_reader(hints[f.name])) for f in fields(record))


def _reader(annotation: Any) -> tuple[_Read, str]:
    """What reads a value of an annotation, and the annotation in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return lambda value: value, "anything"
    if origin is Literal:
        return _one_of(arguments), f"one of {', '.join(map(repr, arguments))}"
    if origin in (Union, types.UnionType):
        read, words = zip(*map(_reader, arguments), strict=True)
        return _any_of(read), " or ".join(words)
    if origin is tuple and arguments[-1] is not Ellipsis:
        read, words = zip(*map(_reader, arguments), strict=True)
        return _each_of(read), f"a tuple of {', '.join(words)}"
    if origin in (tuple, frozenset):
        element, word = _reader(arguments[0])
        name = "a tuple" if origin is tuple else "a set"
        return _collection(origin, element), f"{name}, each element {word}"
    if origin in (dict, Mapping):
        (key, key_word), (value, word) = map(_reader, arguments)
        return _mapping(key, value), f"a mapping from {key_word} to {word}"
    return _instance(annotation if origin is None else origin)


_PLAIN: Mapping[type, tuple[tuple[type, ...], str]] = {
    str: ((str,), "a text"),
    bool: ((bool,), "True or False"),
    int: ((int,), "an integer"),
    float: ((int, float), "a number"),
    types.NoneType: ((types.NoneType,), "None"),
    DType: ((DType,), "a type such as neuronsim.bfloat16"),
}


def _instance(kind: type) -> tuple[_Read, str]:
    classes, words = _PLAIN.get(kind, ((kind,), f"a {kind.__name__}"))

    def read(value: Any) -> Any:
        if not isinstance(value, classes) or (isinstance(value, bool) and bool not in classes):
            named = DTYPES.get(value) if kind is DType and isinstance(value, str) else None
            raise _Refused(f": write neuronsim.{named.name}" if named else "")
        if isinstance(value, float) and math.isnan(value):
            raise _Refused("")
        return value

    return read, words


def _one_of(accepted: Sequence[Any]) -> _Read:
    def read(value: Any) -> Any:
        if not any(type(value) is type(a) and value == a for a in accepted):
            raise _Refused(nearest(value[:100], accepted) if isinstance(value, str) else "")
        return value

    return read


def _any_of(alternatives: Sequence[_Read]) -> _Read:
    def read(value: Any) -> Any:
        hint = ""
        for alternative in alternatives:
            try:
                return alternative(value)
            except _Refused as refused:
                hint = hint or str(refused)
        raise _Refused(hint)

    return read


def _collection(kind: type, element: _Read) -> _Read:
    accepted = (list, tuple) if kind is tuple else (set, frozenset, list, tuple)

    def read(value: Any) -> Any:
        if not isinstance(value, accepted):
            one = f"({value!r},)" if kind is tuple else f"{{{value!r}}}"
            raise _Refused(f": write {one}" if isinstance(value, str) else "")
        found = kind(map(element, value))
        return value if isinstance(value, kind) else found

    return read


def _each_of(elements: Sequence[_Read]) -> _Read:
    def read(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(elements):
            raise _Refused("")
        return tuple(e(v) for e, v in zip(elements, value, strict=True))

    return read


def _mapping(key: _Read, value: _Read) -> _Read:
    def read(given: Any) -> Any:
        if not isinstance(given, Mapping):
            raise _Refused("")
        found = {key(k): value(v) for k, v in given.items()}
        return given if all(found[k] is v for k, v in given.items()) else found

    return read
