"""Options of a command line as a table, and the reading of words by it, under a named release.

>>> from neuronsim.targets import find_release
>>> table = (Option("--level", ("low", "high"), short=("-l",), later={"high": "2.9"}), Option("--fast"))
>>> [(o.name, v) for o, v in read_options(["-l=high", "--fast"], table, find_release("2.26"))]
[('--level', ('high',)), ('--fast', ())]
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from neuronsim.errors import InvalidFlag, nearest
from neuronsim.targets import Release, at_least, find_release


@dataclass(frozen=True)
class Option:
    """One option: the values that it takes (None for a bare flag) and the releases that have it.

    Beside `values` it may take `numbers`, a comma-separated list of `members`, or any text, which
    `text` names; with `several` one or more values. `refused` gives reasons against values that a
    compiler takes and neuronsim does not. `since` is the SDK that brought it, `until` the one that
    dropped it; `later` and `dropped` say the same of single values. `effect` is "values" where it can
    change a result; "ignored" is what AWS does not document. `note` says more, and `instead` what to
    use where `deprecated` names the SDK that deprecates it.
    """

    name: str
    values: tuple[str, ...] | None = None
    effect: Literal["values", "none", "ignored"] = "none"
    short: tuple[str, ...] = ()
    numbers: range = range(0)
    members: tuple[str, ...] = ()
    text: str = ""
    several: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)
    since: str = "2.3"
    until: str = ""
    later: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    deprecated: str = ""
    instead: str = ""

    @property
    def accepted(self) -> str:
        """The values that it accepts, in words.

        >>> Option("--jobs", ("auto",), numbers=range(1, 9)).accepted
        'auto, a number from 1 to 8'
        """
        parts = list(self.values or ())
        if self.numbers:
            parts.append(f"a number from {self.numbers[0]} to {self.numbers[-1]}")
        if self.members:
            parts.append(f"a comma-separated list of {', '.join(self.members)}")
        if self.text:
            parts.append(self.text)
        return ", ".join(parts) or "no value"

    def takes(self, value: str) -> bool:
        """Whether it accepts a value, in some release."""
        return (
            (bool(self.text) and value != "")
            or value in (self.values or ())
            or (re.fullmatch(r"[0-9]{1,9}", value) is not None and int(value) in self.numbers)
            or (bool(self.members) and set(value.split(",")) <= set(self.members))
        )


GivenOption: TypeAlias = tuple[Option, tuple[str, ...]]  # with its values


def split_flags(flags: str | Sequence[str]) -> list[str]:
    """The words of a flag line; a sequence has them already. Raises InvalidFlag."""
    is_list = isinstance(flags, list | tuple) and all(isinstance(f, str) for f in flags)
    if not (is_list or isinstance(flags, str)):
        raise InvalidFlag(f"the flags are one text or a list of texts, not {flags!r}")
    try:
        return shlex.split(flags) if isinstance(flags, str) else list(flags)
    except ValueError as error:
        raise InvalidFlag(f"the flags {flags!r} cannot be split into words: {error}") from error


def option_name(word: str) -> str:
    """The name of a word that begins an option, without its value; underscores are dashes.

    >>> option_name("--auto_cast_type=bf16")
    '--auto-cast-type'
    """
    name = word.partition("=")[0]
    return name.replace("_", "-") if name.startswith("--") else name


def find_option(word: str, table: Iterable[Option]) -> Option | None:
    """The option of a table that a word begins."""
    name = option_name(word)
    for o in table:
        if name == o.name or name in o.short:
            return o
    glued = (o for o in table for s in o.short if len(s) == 2 and word.startswith(s))  # -O1
    return None if word.startswith("--") else next(glued, None)


def right_most(options: Sequence[GivenOption]) -> list[GivenOption]:
    """Each option as it was given last, in the order of these."""
    found: dict[str, GivenOption] = {}
    for given in options:
        found.pop(given[0].name, None)
        found[given[0].name] = given
    return list(found.values())


def read_options(words: Sequence[str], table: Sequence[Option], release: Release) -> list[GivenOption]:
    """The options of a line with their values, in its order.

    Raises InvalidFlag with all problems: each names the flag, the accepted values and the nearest
    match, or the release that has what this one has not.
    """
    rest, found, problems = list(words), [], []
    while rest:
        word = rest.pop(0)
        option = find_option(word, table)
        try:
            if option is None:
                while word.startswith("-") and rest and not rest[0].startswith("-"):
                    rest.pop(0)  # values of an unknown option
                raise _unknown(word, table)
            values = _take_values(option, word, rest)
            _check_values(option, values, release)
            found.append((option, values))
        except InvalidFlag as error:
            problems.append(str(error))
    if problems:
        raise InvalidFlag("; ".join(problems))
    return found


def _check_values(option: Option, values: Sequence[str], release: Release) -> None:
    _check_release(option.name, option.since, option.until, release)
    wrong = [f"{v!r}{_hint(option, v)}" for v in values if not option.takes(v)]
    if wrong:
        problems = "; ".join(f"{option.name} cannot be {w}" for w in wrong)
        raise InvalidFlag(f"{problems}: it accepts {option.accepted}")
    for value in values:
        since, until = option.later.get(value, ""), option.dropped.get(value, "")
        _check_release(f"{option.name} {value}", since, until, release)


def _hint(option: Option, value: str) -> str:
    """Why a value is wrong, or the nearest right one; of a list, to its first wrong member."""
    if value in option.refused:
        return f": {option.refused[value]}"
    wrong = next((m for m in value.split(",") if m not in option.members), value)
    return nearest(wrong if option.members else value, (*(option.values or ()), *option.members))


def _take_values(option: Option, word: str, rest: list[str]) -> tuple[str, ...]:
    name, equals, attached = word.partition("=")
    if option_name(name) != option.name and name not in option.short:
        equals, attached = "=", word[2:]  # -O1
    if option.values is None:
        if equals:
            raise InvalidFlag(f"{option.name} takes no value, but {attached!r} was given")
        return ()
    values = [attached] if equals else []
    while rest and (not values or option.several):
        if rest[0].startswith("-"):
            break
        values.append(rest.pop(0))
    if option.several:
        values = [v for value in values for v in value.split()]
    if not values:
        followed = f", not {rest[0]!r}" if rest else ""
        raise InvalidFlag(f"{option.name} needs a value{followed}: it accepts {option.accepted}")
    return tuple(values)


def _check_release(what: str, since: str, until: str, release: Release) -> None:
    if since and not at_least(release, since):
        raise InvalidFlag(
            f"{release} does not have {what}: the first that has it is {find_release(since)} (name "
            "that or a later release, or leave it out)"
        )
    if until and at_least(release, until):
        raise InvalidFlag(
            f"{release} does not have {what}: {find_release(until)} dropped it (name an earlier "
            "release, or leave it out)"
        )


def _unknown(word: str, table: Sequence[Option]) -> InvalidFlag:
    names = [o.name for o in table]
    listed = ", ".join(names)
    if not word.startswith("-"):
        return InvalidFlag(f"{word!r} is not an option{nearest(word, names)}: options begin with --")
    name = option_name(word)
    return InvalidFlag(f"unknown flag {name}{nearest(name, names) or f': it is one of {listed}'}")
