"""What an attribute's row is, and the kinds that rows are of: plain values, enumerations, records."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from neuronsim.errors import InvalidModel
from neuronsim.hlo.fields import enumerated
from neuronsim.hlo.lexer import Cursor, braces, fail, integer, integers, word
from neuronsim.hlo.module import Instruction
from neuronsim.hlo.wire import Message

REQUIRED: Any = object()

Parse = Callable[[Cursor], Any]
Show = Callable[[Any], str | None]  # a value as text; None where it is left out
Spell = Callable[[Instruction, Any], list[str]]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One row. HLO text has the value under `keys`, each with what reads it; `take` makes it of what
    was read, `absent` is it where there is none of them. `spell` writes it as text, with its keys.
    Protobuf has it in the instruction's `fields`, which `read` and `write` know.
    """

    name: str
    keys: Mapping[str, Parse]
    absent: Any
    take: Callable[[dict[str, Any]], Any]
    spell: Spell
    fields: tuple[str, ...]
    read: Callable[[Message], Any]
    write: Callable[[Any], Message]


def one_key(
    name: str,
    parse: Parse,
    show: Show,
    fields: str,
    read: Callable[[Message], Any],
    write: Callable[[Any], Message],
    *,
    key: str = "",
    absent: Any = (),
) -> Attribute:
    """A value under one key of text; `fields` is a list with blanks between."""
    key = key or name

    def spell(i: Instruction, value: Any) -> list[str]:
        text = show(value)
        return [] if text is None else [f"{key}={text}"]

    held = tuple(fields.split())
    return Attribute(name, {key: parse}, absent, lambda raw: raw.pop(key), spell, held, read, write)


def unless(idle: Any) -> Show:
    return lambda value: None if value == idle else str(value)


def plain(
    name: str, parse: Parse, zero: Any, show: Show = str, *, key: str = "", absent: Any = REQUIRED
) -> Attribute:
    """A value as it is; protobuf leaves out what is zero or empty."""

    def write(value: Any) -> Message:
        return {name: value} if value != zero else {}

    return one_key(name, parse, show, name, lambda m: m.get(name, zero), write, key=key, absent=absent)


def number(name: str, show: Show = str) -> Attribute:
    return plain(name, integer, 0, show, absent=0)


def group_count(name: str) -> Attribute:
    """Old files have 0 for 1."""
    read, write = lambda m: m.get(name, 0) or 1, lambda v: {name: v}
    return one_key(name, integer, unless(1), name, read, write, absent=1)


def truth(c: Cursor) -> bool:
    given = word(c, "true or false")
    if given not in ("true", "false"):
        fail(c, f"true or false is expected, not {given!r}", c.at - len(given))
    return given == "true"


def flag(name: str, show: Show = lambda value: "true" if value else None) -> Attribute:
    read, write = lambda m: bool(m.get(name, 0)), lambda v: {name: 1} if v else {}
    return one_key(name, truth, show, name, read, write, absent=False)


def axes(name: str, field: str = "") -> Attribute:
    """A list of integers."""
    field = field or name
    read, write = lambda m: tuple(m.get(field, ())), lambda v: {field: list(v)}
    return one_key(name, integers, braces, field, read, write)


def enumeration(
    name: str, names: Mapping[int, str], *, key: str = "", prefix: str = "", absent: Any = REQUIRED
) -> Attribute:
    """A name of an enumeration: text has it in lower case and without the prefix, files its number."""
    key = key or name
    numbers = {n: number for number, n in names.items()}

    def take(raw: dict[str, Any]) -> str:
        given: str = raw.pop(key)
        value = (prefix + given).upper()
        if value not in numbers:
            known = ", ".join(n.lower() for n in numbers if n)
            raise InvalidModel(f"{given[:40]!r} is not one of {known}")
        return value

    def spell(i: Instruction, value: str) -> list[str]:
        return [f"{key}={value.removeprefix(prefix.upper()).lower()}"] if value else []

    def read(message: Message) -> str:
        return enumerated(message.get(name, 0), names, name)

    def write(value: str) -> Message:
        return {name: numbers[value]} if numbers[value] else {}

    return Attribute(name, {key: word}, absent, take, spell, (name,), read, write)


def decode_record(kind: type, field: str) -> Callable[[Message], Any]:
    """Of a message of integers and lists of integers: a dataclass with the same names."""

    def read(message: Message) -> Any:
        numbers = message.get(field, {})
        values: dict[str, Any] = {}
        for f in dataclasses.fields(kind):
            is_int = f.type == "int"
            values[f.name] = numbers.get(f.name, 0) if is_int else tuple(numbers.get(f.name, ()))
        return kind(**values)

    return read


def record(name: str, none: Any, field: str, spell: Spell, suffix: str = "") -> Attribute:
    """A dataclass of integers and lists of integers, which text has under a key each."""
    fields = vars(none)

    def take(raw: dict[str, Any]) -> Any:
        return type(none)(**{n: raw.pop(n + suffix, idle) for n, idle in fields.items()})

    keys = {n + suffix: integer if idle == 0 else integers for n, idle in fields.items()}
    read = decode_record(type(none), field)
    return Attribute(name, keys, none, take, spell, (field,), read, lambda v: {field: vars(v)})


def rows(
    name: str, parse: Parse, show: Show, field: str, parts: Mapping[str, int], within: str = ""
) -> Attribute:
    """Repeated messages of integers, as tuples: their parts, and what each is where it is absent. They
    are a field, or the field `within` it.
    """

    def read(message: Message) -> tuple[tuple[int, ...], ...]:
        found = message.get(field, {}).get(within, ()) if within else message.get(field, ())
        return tuple(tuple(row.get(part, idle) for part, idle in parts.items()) for row in found)

    def write(value: Any) -> Message:
        found = [dict(zip(parts, row, strict=True)) for row in value]
        return {field: {within: found} if within else found}

    return one_key(name, parse, show, field, read, write)
