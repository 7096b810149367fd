"""Lines of the user's source around those that instructions come from."""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterable

AROUND = 3  # lines before and after


def excerpts(places: Iterable[tuple[str, int]]) -> dict[str, dict[str, str]]:
    """The lines around places (file, line) by file and number; of files of Python alone, and none of
    what is not there. Only for a model that was traced here: what a model's file says its sources are
    may be any file of this machine.
    """
    found: dict[str, dict[str, str]] = {}
    for file, line in sorted(set(places)):
        if not file.endswith(".py"):
            continue
        lines = linecache.getlines(file)
        near = range(max(1, line - AROUND), min(len(lines), line + AROUND) + 1)
        if near and line <= len(lines):
            own = found.setdefault(file, {})
            own |= {str(n): lines[n - 1].rstrip("\n") for n in near}
    return found


def shown(place: object) -> str:
    """A file, or a line of it, as it is called from the current folder."""
    return str(place or "").removeprefix(os.getcwd() + os.sep)
