"""What commands print and write: the standard streams, messages, a progress bar, files."""

from __future__ import annotations

import argparse
import io
import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from neuronsim import reports, whole_files
from neuronsim.errors import InaccessibleFile, InvalidArgument, inaccessible
from neuronsim.report_page import page


class _Stream(io.TextIOBase):
    """Standard output or standard error, whose failures are errors of ours. After one it takes no more,
    and `flush` says it again, since argparse does not hear it.
    """

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream = stream
        self._name = name
        self._failure: InaccessibleFile | None = None

    def write(self, text: str, /) -> int:
        with self._as_ours():
            try:
                return self._stream.write(text)
            except UnicodeEncodeError:
                encoded = text.encode(self.encoding, "backslashreplace")
                return self._stream.write(encoded.decode(self.encoding))

    def flush(self) -> None:
        with self._as_ours():
            self._stream.flush()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding or "utf-8"

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    @contextmanager
    def _as_ours(self) -> Iterator[None]:
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except OSError as error:
            with suppress(OSError):  # what is left must not fail again as the process ends
                os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), self._stream.fileno())
            self._failure = inaccessible(f"cannot write to {self._name}", error)
            raise self._failure from error


@contextmanager
def standard_streams() -> Iterator[None]:
    """Standard output and error as `_Stream`s; a closed one's number is taken, that no file gets it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    before = sys.stdout, sys.stderr
    null = open(os.devnull, "w")  # noqa: SIM115 (closed below)
    sys.stdout, sys.stderr = (
        _Stream(stream or null, name)
        for stream, name in zip(before, ("standard output", "standard error"), strict=True)
    )
    try:
        with null:
            yield
    finally:
        sys.stdout, sys.stderr = before


def print_error(message: str) -> None:
    """One paragraph on stderr."""
    with suppress(InaccessibleFile):  # then only the status tells
        console = Console(stderr=True, highlight=False)
        console.print(f"neuronsim: {message}", style="red", markup=False, soft_wrap=True)


def print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """One line on stderr; it can stand for `warnings.showwarning`."""
    print(f"warning: {message}", file=sys.stderr)


SECONDS_OF_SILENCE = 30.0  # of a long job that writes to no terminal


@contextmanager
def progress_bar(
    total_unknown: str, limit: float = math.inf
) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on stderr with the time left; where that is no terminal, a line now and then. With
    a limit of seconds for all of the work it says that too.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(limit)
        return
    left = "left" if math.isinf(limit) else f"of at most {limit:g} s; of this step"
    columns = (
        TextColumn("{task.description:14}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn(left),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(total_unknown, total=None)
        yield lambda name, done, total: bar.update(task, description=name, completed=done, total=total)


class _Lines:
    """Says on stderr how far a job is, once it has been silent for long."""

    def __init__(self, limit: float) -> None:
        self.start = self.said = time.monotonic()
        self.begun: tuple[str, float] = ("", self.start)  # the step, and since when
        self.limit = limit

    def __call__(self, name: str, done: int, total: int) -> None:
        now = time.monotonic()
        if name != self.begun[0]:
            self.begun = name, now
        if now - self.said < SECONDS_OF_SILENCE:
            return
        self.said = now
        own = now - self.begun[1]
        left = f", about {own * (total - done) / done:.0f} s left" if 0 < done < total else ""
        of = f" of at most {self.limit:g} s" if self.limit < math.inf else ""
        print(
            f"{name}: {done} of {total} after {now - self.start:.0f} s{of}{left}"
            f"{' of this step' if of and left else ''}",
            file=sys.stderr,
            flush=True,
        )


PAGES = (".html", ".htm")  # the suffixes of reports


def check_outputs(options: argparse.Namespace, more: Mapping[str, str | None] | None = None) -> None:
    """Before any work: raises InvalidArgument where a file that a command writes cannot be written, has
    the suffix of something else, is written twice, or is one that the command reads; `more` has files
    to write by what names them beside the options.
    """
    parser = options.parser
    written: list[tuple[str, str]] = []
    read: list[tuple[str, str]] = []
    for action in parser._actions:
        given = getattr(options, action.dest, None)
        name = action.option_strings[0] if action.option_strings else f"the {action.dest}"
        texts = [x for x in (given if isinstance(given, list) else [given]) if isinstance(x, str)]
        if action.dest not in parser.outputs:
            read += [(name, x) for x in texts if os.path.isfile(x)]
            continue
        for path in texts:
            _check_writable(path)
            _check_form(name, path, parser.outputs[action.dest])
            written.append((name, path))
    for name, asked in (more or {}).items():
        if asked is not None:
            _check_writable(asked)
            written.append((name, asked))
    files = [(name, x) for name, x in written if _is_replaced(x)]
    for n, (name, path) in enumerate(files):
        for other, same in files[:n]:
            if _is_same(path, same):
                raise InvalidArgument(f"{other} and {name} both write {path!r}: give each its own file")
        for other, same in read:
            if _is_same(path, same):
                raise InvalidArgument(
                    f"{name} {path!r} is read too, as {other}: what is written would replace it, so "
                    "name another file"
                )
    if any(path.endswith(PAGES) for _, path in written):
        page.extras()  # which refuses if they are not installed


def _is_replaced(path: str) -> bool:
    """Whether a file takes this place: none does that of standard output, a pipe or a device."""
    return path != "-" and (os.path.isfile(path) or not os.path.exists(path))


def _is_same(a: str, b: str) -> bool:
    try:
        return os.path.samefile(a, b)
    except OSError:  # one that is not there yet
        return os.path.realpath(a) == os.path.realpath(b)


def _check_form(name: str, path: str, forms: Sequence[str]) -> None:
    makes_file = path == "-" or _is_replaced(path)  # none with a form goes to standard output
    if forms and makes_file and not path.endswith(tuple(forms)):
        raise InvalidArgument(f"{name} {path!r}: its suffix says what is written: {', '.join(forms)}")


def _check_writable(path: str) -> None:
    if path == "-":
        return
    if path.endswith(".neff"):
        raise InvalidArgument(
            f"cannot write {path!r}: neuronsim makes no NEFFs, which only neuronx-cc does; use .nsim"
        )
    whole_files.check_writable(path)


def write(options: argparse.Namespace, path: str, text: str) -> None:
    """Write a file, whose name an interrupt then tells."""
    options.writing.append(path)
    whole_files.write_text(path, text)


def write_page(
    options: argparse.Namespace, documents: Sequence[Mapping[str, Any]], **setting: Any
) -> None:
    """Write the report of a command to the file of its option --report: with the model, and casts of
    `setting`, whose graph and estimated timeline it shows.
    """
    options.writing.append(options.report)
    command = command_line(options)
    reports.write_report(options.report, documents, model=options.model, command=command, **setting)


def command_line(options: argparse.Namespace) -> str:
    """The line of a command as it was given: what a page says of how it is made again."""
    return shlex.join(["neuronsim", *options.words])
