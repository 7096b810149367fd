"""Tables on a terminal that lose no name: columns wrap between words and never inside one; where even
that does not fit, each row is a paragraph.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from html import escape

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDE = 140  # columns where there is no terminal and COLUMNS says none
_GAP = 1  # between two columns
_EASY = 28  # the width of columns in which sentences are easily read


def output_console() -> Console:
    """Standard output: as wide as the terminal, as COLUMNS says, or WIDE."""
    return Console(width=None if _width_is_known() else WIDE, highlight=False)


def _width_is_known() -> bool:
    return sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal()


def say(text: str, *, style: str | None = None) -> None:
    """Print sentences to standard output: wrapped between words where the width is known, lines as they
    are in a pipe, and lines to paste, which are indented by four.
    """
    console = output_console()
    for line in text.split("\n"):
        if _width_is_known() and not line.startswith("    "):
            print_text(console, line, style=style)
        else:
            console.print(Text(line), style=style, soft_wrap=True, highlight=False)


def print_table(
    console: Console,
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[str] = (),
    styles: Sequence[str | None] = (),
) -> None:
    """Print rows of texts; the columns of the headers in `right` are numbers, and `styles` are those of
    the rows, if there are any. A first cell names its row.
    """
    widths = _widths(headers, rows, [h in right for h in headers], console.width)
    styles = styles or [None] * len(rows)
    if widths is None:
        _print_paragraphs(console, headers, rows, styles)
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, _GAP, 0, 0), pad_edge=False)
    for header, width in zip(headers, widths, strict=True):
        table.add_column(Text(header), justify="right" if header in right else "left", width=width)
    for row, style in zip(rows, styles, strict=True):
        table.add_row(*map(Text, row), style=style)
    print_drawn(console, table)


def print_drawn(console: Console, table: Table) -> None:
    """Print a table; a pipe or a file has no blanks at the ends of its lines."""
    if console.is_terminal:
        console.print(table, highlight=False)
        return
    with console.capture() as drawn:
        console.print(table, highlight=False)
    for line in drawn.get().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True, highlight=False)


def _widths(
    headers: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[bool], most: int
) -> list[int] | None:
    """The widths of columns that together take as many as there are: the widest give way first, the
    first column, which names the rows, after the others are as narrow as is easily read, these further
    only then, and none below its longest word, or its longest number with its unit. None where that is
    not enough.
    """
    columns = list(zip(headers, *rows, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    least = [
        max(map(cell_len, (*header.split(), *(cells if number else " ".join(cells).split()), "")))
        for (header, *cells), number in zip(columns, numbers, strict=True)
    ]
    # The box has a blank between two columns, and one at each end.
    room = most - (_GAP + 1) * len(columns) - 1
    easy = [
        few if width <= _EASY else max(few, _EASY) for few, width in zip(least, widths, strict=True)
    ]
    for floors in ([widths[0], *easy[1:]], [least[0], *easy[1:]], least):
        while sum(widths) > room:
            free = [n for n, width in enumerate(widths) if width > floors[n]]
            if not free:
                break
            widths[max(free, key=widths.__getitem__)] -= 1
    return widths if sum(widths) <= room else None


def _print_paragraphs(
    console: Console,
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    styles: Sequence[str | None],
) -> None:
    """Each row as its first cell on a line, and the others with their headers below it."""
    for row, style in zip(rows, styles, strict=True):
        console.print()
        print_text(console, row[0], style=f"bold {style or ''}".strip())
        cells = [f"{h}: {text}" for h, text in zip(headers[1:], row[1:], strict=True) if text]
        line = ""
        for cell in cells:
            if line and cell_len(line) + cell_len(cell) + 4 > console.width:
                print_text(console, line)
                line = ""
            line += f", {cell}" if line else f"  {cell}"
        if line:
            print_text(console, line)
    console.print()


def html_table(caption: str, rows: Sequence[tuple[str, str]]) -> str:
    """A small table of names and values for a notebook; every text is escaped."""
    cells = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table><caption>{escape(caption)}</caption>{cells}</table>"


def print_text(console: Console, text: str, *, style: str | None = None) -> None:
    """Print a line, wrapped between words; a word that is longer than a line stays whole."""
    indent = " " * (len(text) - len(text.lstrip(" ")))
    lines, line = [], ""
    for word in text.split():
        if line and cell_len(indent) + cell_len(line) + 1 + cell_len(word) > console.width:
            lines.append(indent + line)
            line = ""
        line += f" {word}" if line else word
    for each in (*lines, indent + line):
        console.print(Text(each), style=style, soft_wrap=True, highlight=False)
