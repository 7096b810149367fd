"""Reading files and the fields of a JSON or TOML object, with all problems at once.

>>> problems = []
>>> read_fields({"depth": -1, "naem": "x"}, {"depth": count, "name": text}, "rule 1: ", problems)
{}
>>> print("; ".join(problems))
rule 1: depth is -1, not an integer from 0 on; rule 1: 'naem' is unknown (did you mean 'name'?)
"""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from neuronsim.dtypes import DType, as_dtype
from neuronsim.errors import InaccessibleFile, InvalidArgument, MissingFile, UnsupportedType, nearest
from neuronsim.records import is_int
from neuronsim.whole_files import open_regular

# Gives what a value of a document stands for; raises InvalidArgument that says what it must be.
Kind: TypeAlias = Callable[[Any], Any]
_SHORT = reprlib.Repr()
_SHORT.maxstring = 60
MAX_BYTES = 1 << 30  # of plans and calibrations, which say something of each instruction
# Of the problems that an error lists: how many, and how long each.
_MOST_LISTED = 30
_LONGEST_LISTED = 400


def read_text(path: str | Path, what: str, most_bytes: int) -> str:
    """The text of a regular file, which holds a `what`; raises InvalidArgument for anything else, and
    for a file of more bytes.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(most_bytes + 1) if size <= most_bytes else b""
    except InaccessibleFile as error:
        reason = "there is no such file" if isinstance(error, MissingFile) else error.reason
        raise InvalidArgument(f"cannot read the {what} {shown(str(path))}: {reason}") from error
    if max(size, len(data)) > most_bytes:
        raise InvalidArgument(f"{path} is not a {what}: it has more than {most_bytes} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        why = f"it is not UTF-8 text ({error.reason})"
        raise InvalidArgument(f"{path} is not a {what}: {why}") from error


def joined(problems: Sequence[str]) -> str:
    """Problems as an error lists them: the first of many, long ones shortened.

    >>> joined([f"x{n} is unknown" for n in range(20_000)]).endswith("; x29 is unknown; and 19970 more")
    True
    """
    told = [_shortened(p) for p in problems[:_MOST_LISTED]]
    more = len(problems) - len(told)
    return "; ".join([*told, f"and {more} more"] if more else told)


def _shortened(problem: str) -> str:
    if len(problem) <= _LONGEST_LISTED:
        return problem
    half = _LONGEST_LISTED // 2
    return f"{problem[:half]}...{problem[-half:]}"


def read_fields(
    body: Any, kinds: Mapping[str, Kind], where: str, problems: list[str], required: Iterable[str] = ()
) -> dict[str, Any]:
    """The fields of an object that are there and as they must be; the others are problems."""
    if not isinstance(body, dict):
        problems.append(f"{where.rstrip(': .') or 'it'} is {shown(body)}, not an object")
        return {}
    found = {}
    for name, value in body.items():
        if name not in kinds:
            known = nearest(str(name)[:100], kinds) or f": known are {', '.join(kinds)}"
            problems.append(f"{where}{shown(name)} is unknown{known}")
            continue
        try:
            found[name] = kinds[name](value)
        except InvalidArgument as error:
            problems.append(f"{where}{name} is {shown(value)}, not {error}")
    problems += [f"{where}{name} is missing" for name in required if name not in body]
    return found


def shown(value: Any) -> str:
    """A value as a message shows it: shortened."""
    if isinstance(value, int) and value.bit_length() > 1000:
        return f"a number of {value.bit_length()} bits"
    return _SHORT.repr(value)


def text(value: Any) -> str:
    """A text."""
    if not isinstance(value, str) or any("\ud800" <= c <= "\udfff" for c in value):
        raise InvalidArgument("a text of Unicode characters")
    return value


def truth(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise InvalidArgument("true or false")
    return value


def count(value: Any) -> int:
    """A whole number that is not negative."""
    if not is_int(value, 0):
        raise InvalidArgument("an integer from 0 on")
    return value


def magnitude(value: Any) -> float:
    """A finite number that is not negative."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < math.inf or (isinstance(value, int) and value >= 2**1023):
        raise InvalidArgument("a finite number from 0 on")
    return float(value)


def texts(value: Any) -> tuple[str, ...]:
    """A list of texts, or one of them."""
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list):
        raise InvalidArgument("a text or a list of texts")
    return tuple(map(text, listed))


def one_of(*accepted: str) -> Kind:
    """One of these texts."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in accepted:
            hint = nearest(str(value)[:100], accepted)
            raise InvalidArgument(f"one of {', '.join(map(repr, accepted))}{hint}")
        return value

    return read


def float_type(value: Any) -> DType:
    """The name of a float type that the device, or `reduce-precision` (C9), rounds to."""
    try:
        found = as_dtype(text(value))
    except UnsupportedType as error:
        raise InvalidArgument(f"a float type such as 'bfloat16': {error}") from error
    if found.kind != "float" or not found.device:
        raise InvalidArgument("a float type of the device, such as 'bfloat16'")
    return found


def any_type(value: Any) -> DType:
    """The name of a type."""
    try:
        return as_dtype(text(value))
    except UnsupportedType as error:
        raise InvalidArgument(f"a type: {error}") from error


def counts(value: Any) -> tuple[int, ...]:
    """A list of whole numbers that are not negative."""
    if not isinstance(value, list):
        raise InvalidArgument("a list of integers")
    return tuple(map(count, value))


def mapping(value: Any) -> dict[str, Any]:
    """An object."""
    if not isinstance(value, dict):
        raise InvalidArgument("an object")
    return value


def texts_by_name(value: Any) -> dict[str, str]:
    """An object of texts."""
    return {name: text(x) for name, x in mapping(value).items()}


# How documents state the fields of records, by their annotations (`records.readers`).
KINDS: Mapping[Any, Kind] = {
    str: text,
    bool: truth,
    int: count,
    float: magnitude,
    DType: float_type,
    tuple[str, ...]: texts,
    tuple[int, ...]: counts,
    Mapping[str, str]: texts_by_name,
}
