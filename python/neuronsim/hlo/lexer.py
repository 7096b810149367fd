"""The tokens of HLO text, read one after another, and written; errors name the line and the column.

>>> c = Cursor("add(x, /*index=1*/ y)")
>>> name(c), accept(c, "("), name(c), accept(c, ","), name(c)
('add', True, 'x', True, 'y')
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from neuronsim.errors import InvalidModel, NeuronSimError
from neuronsim.hlo.module import AnyShape

T = TypeVar("T")

# A comment that does not end takes all that follows: looking for its end again and again would take
# quadratic time. Possessive repeats keep no memory of where they could go back to.
_SPACE = re.compile(r"(?:\s+|/\*.*?(?:\*/|\Z)|//[^\n]*)*+", re.DOTALL)
_NAME = re.compile(r"%?([A-Za-z0-9_.\-]+)")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
_WORD = re.compile(r"[A-Za-z0-9_.+\-]+")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_STRING = re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.))", re.DOTALL)
_SKIPPED = re.compile(
    r'"(?:[^"\\]++|\\.)*+"|/\*.*?(?:\*/|\Z)|[{}()\[\],\n]|[^"{}()\[\],\n/]++|/', re.DOTALL
)
_GROUP = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}]', re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_MAX_DIGITS = 20  # of the largest 64-bit integer


@dataclass
class Cursor:
    """A text and how far it has been read."""

    text: str
    at: int = 0
    # The last tuple shapes with their text: the long dialect repeats an operand's at each reader.
    tuples: list[tuple[str, AnyShape]] = field(default_factory=list, repr=False)


def fail(c: Cursor, message: str, at: int | None = None) -> NoReturn:
    """Raise InvalidModel for the token at the cursor, or at another place."""
    raise InvalidModel(f"{position(c, at)}: {message}")


def position(c: Cursor, at: int | None = None) -> str:
    """The line and column, both from 1, of the cursor or of another place."""
    place = c.at if at is None else at
    line_start = c.text.rfind("\n", 0, place) + 1
    return f"line {c.text.count(chr(10), 0, place) + 1}, column {place - line_start + 1}"


@contextmanager
def located(c: Cursor) -> Iterator[None]:
    """Put the place where the cursor is before the message of an error."""
    at = c.at
    try:
        yield
    except NeuronSimError as error:
        raise type(error)(f"{position(c, at)}: {error}") from error


def skip_space(c: Cursor) -> None:
    """Go past white space and comments."""
    found = _SPACE.match(c.text, c.at)
    assert found is not None
    c.at = found.end()


def peek(c: Cursor) -> str:
    """The next character that is not space, or nothing at the end."""
    skip_space(c)
    return c.text[c.at : c.at + 1]


def accept(c: Cursor, token: str) -> bool:
    """Whether the next token is this one; if so, go past it."""
    skip_space(c)
    if not c.text.startswith(token, c.at):
        return False
    c.at += len(token)
    return True


def expect(c: Cursor, token: str) -> None:
    """Go past a token; raises InvalidModel if another is next."""
    if not accept(c, token):
        fail(c, f"{token!r} is expected, not {found(c)}")


def found(c: Cursor) -> str:
    """What is next, for a message."""
    rest = c.text[c.at : c.at + 24].partition("\n")[0]
    return repr(rest) if rest else "the end of the line" if c.at < len(c.text) else "the end"


def take(c: Cursor, pattern: re.Pattern[str], what: str) -> re.Match[str]:
    """Go past what a pattern matches; raises InvalidModel if it does not."""
    skip_space(c)
    match = pattern.match(c.text, c.at)
    if match is None:
        fail(c, f"{what} is expected, not {found(c)}")
    c.at = match.end()
    return match


def name(c: Cursor) -> str:
    """A name, without its `%`."""
    return take(c, _NAME, "a name")[1]


def legal_name(name: str) -> str:
    """A name as HLO text can have it: protobuf allows any characters."""
    if _KEY.fullmatch(name):
        return name
    coded = re.sub(r"[^A-Za-z0-9_.\-]", lambda m: f"_{ord(m[0]):x}_", name)
    return f"_{coded}"


def key(c: Cursor, what: str = "an attribute") -> str:
    """What stands before an `=`."""
    return take(c, _KEY, what)[0]


def word(c: Cursor, what: str = "a word") -> str:
    """A value without quotes."""
    return take(c, _WORD, what)[0]


def accept_word(c: Cursor, word: str) -> bool:
    """Whether the next name is this word; if so, go past it."""
    skip_space(c)
    match = _NAME.match(c.text, c.at)
    if match is None or match[0] != word:
        return False
    c.at = match.end()
    return True


def integer(c: Cursor) -> int:
    """An integer of at most 64 bits."""
    digits = take(c, _INTEGER, "an integer")[0]
    if len(digits) > _MAX_DIGITS or not -(2**63) <= int(digits) < 2**63:
        fail(c, f"{digits[:24]} is no 64-bit integer", c.at - len(digits))
    return int(digits)


def string(c: Cursor) -> bytes:
    """A quoted string, its escapes resolved."""
    text = take(c, _STRING, "a string")[1]
    if "\\" not in text:
        return text.encode("utf-8", "surrogateescape")
    out, at = bytearray(), 0
    for escape in _ESCAPE.finditer(text):
        out += text[at : escape.start()].encode("utf-8", "surrogateescape")
        octal, hexadecimal, other = escape.groups()
        if other is None:
            out.append((int(octal, 8) if octal else int(hexadecimal, 16)) & 0xFF)
        else:
            out += _ESCAPED.get(other, other).encode("utf-8", "surrogateescape")
        at = escape.end()
    return bytes(out + text[at:].encode("utf-8", "surrogateescape"))


def quoted(text: str | bytes) -> str:
    """A string as XLA escapes it: octal for what is not printable ASCII."""
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    known = {10: "\\n", 13: "\\r", 9: "\\t", 34: '\\"', 39: "\\'", 92: "\\\\"}
    coded = (known.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in data)
    return f'"{"".join(coded)}"'


def items(c: Cursor, open_: str, close: str, item: Callable[[Cursor], T]) -> list[T]:
    """A list between brackets, separated by commas."""
    expect(c, open_)
    values: list[T] = []
    if accept(c, close):
        return values
    while True:
        values.append(item(c))
        if accept(c, close):
            return values
        expect(c, ",")


def integers(c: Cursor) -> tuple[int, ...]:
    """`{1,2,3}`."""
    return tuple(items(c, "{", "}", integer))


def braces(values: Iterable[Any]) -> str:
    """What `integers` reads."""
    return "{" + ",".join(map(str, values)) + "}"


def skip_value(c: Cursor) -> str:
    """Go past a value of any form and give its text: brackets balance, strings are whole, and a comma
    or the end of the line ends it.
    """
    skip_space(c)
    start, depth = c.at, 0
    while c.at < len(c.text):
        match = _SKIPPED.match(c.text, c.at)
        if match is None:
            fail(c, "a string does not end")
        token = match[0]
        if depth == 0 and token in (",", "\n", "}", ")", "]"):
            break
        depth += (token in ("{", "(", "[")) - (token in ("}", ")", "]"))
        c.at = match.end()
    if depth:
        fail(c, "a bracket is not closed", start)
    return c.text[start : c.at].rstrip()


def skip_group(c: Cursor) -> None:
    """Go past a value in braces that another may follow without a comma."""
    depth = 0
    for match in _GROUP.finditer(c.text, c.at):
        depth += (match[0] == "{") - (match[0] == "}")
        if depth == 0:
            c.at = match.end()
            return
    fail(c, "a bracket is not closed")
