"""Attributes that say something of each dimension: slices, padding, windows, a convolution's labels.

>>> from neuronsim.hlo.lexer import Cursor
>>> _show_padding(_padding(Cursor("1_2x0_0_3")))
'1_2_0x0_0_3'
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from neuronsim import ops
from neuronsim.hlo.attribute_kinds import REQUIRED, decode_record, one_key, rows
from neuronsim.hlo.lexer import Cursor, accept, expect, fail, integer, items, key, peek, take, word
from neuronsim.hlo.shapes import MAX_RANK
from neuronsim.hlo.wire import Message

Triples = tuple[tuple[int, int, int], ...]

_LABELS = re.compile(r"([0-9bf]+)_([0-9io]+)->([0-9bf]+)")


def _slice(c: Cursor) -> Triples:
    """`{[0:2], [1:7:3]}`: start, limit, stride."""

    def one(inner: Cursor) -> tuple[int, int, int]:
        expect(inner, "[")
        start = integer(inner)
        expect(inner, ":")
        limit = integer(inner)
        stride = integer(inner) if accept(inner, ":") else 1
        expect(inner, "]")
        return start, limit, stride

    return tuple(items(c, "{", "}", one))


def _show_slice(value: Triples) -> str:
    """As XLA prints it: the strides are left out where all are 1."""
    strided = any(s != 1 for _, _, s in value)
    ranges = (f"[{a}:{b}:{s}]" if strided else f"[{a}:{b}]" for a, b, s in value)
    return f"{{{', '.join(ranges)}}}"


def _padding(c: Cursor) -> Triples:
    """`1_2x0_0_3`: low, high and, where there is any, interior."""
    if peek(c) in (",", "") or c.text[c.at - 1 : c.at] == "\n":
        return ()
    found = _by_dimension(c, (2, 3))
    return tuple((r[0], r[1], r[2] if len(r) == 3 else 0) for r in found)


def _show_padding(value: Triples) -> str:
    """As XLA prints it: the interior is left out where it is 0 in every dimension."""
    inner = any(interior for _, _, interior in value)
    return "x".join(f"{low}_{high}_{n}" if inner else f"{low}_{high}" for low, high, n in value)


def _by_dimension(c: Cursor, counts: tuple[int, ...]) -> list[list[int]]:
    """`1_2x3_4` as integers by dimension."""
    given = word(c)
    found = [part.split("_") for part in given.split("x")]
    legal = all(re.fullmatch(r"-?[0-9]{1,19}", n) for row in found for n in row)
    if not legal or any(len(row) not in counts for row in found) or len(found) > MAX_RANK:
        fail(c, f"{given[:24]!r} is not of the form that is expected here", c.at - len(given))
    return [[int(n) for n in row] for row in found]


# The parts of a window in text, and what acts in no dimension.
_PARTS = {
    "size": [1],
    "stride": [1],
    "pad": [0, 0],
    "lhs_dilate": [1],
    "rhs_dilate": [1],
    "rhs_reversal": [0],
}


def _window(c: Cursor) -> tuple[ops.WindowDimension, ...]:
    """`{size=2x3 stride=1x2 pad=0_1x1_1 lhs_dilate=... rhs_dilate=... rhs_reversal=...}`."""
    columns: dict[str, list[list[int]]] = {}
    expect(c, "{")
    while not accept(c, "}"):
        part = key(c, "a part of a window")
        expect(c, "=")
        if part not in _PARTS:
            fail(c, f"a window has no {part!r}", c.at - len(part) - 1)
        columns[part] = _by_dimension(c, (len(_PARTS[part]),))
    rank = max(map(len, columns.values()), default=0)
    if any(len(column) != rank for column in columns.values()):
        fail(c, "the parts of the window have different numbers of dimensions")
    whole = (columns.get(part, [idle] * rank) for part, idle in _PARTS.items())
    return tuple(
        ops.WindowDimension(size, stride, (low, high), base, dilation, bool(reversal))
        for (size,), (stride,), (low, high), (base,), (dilation,), (reversal,) in zip(
            *whole, strict=True
        )
    )


def _show_window(value: Sequence[ops.WindowDimension]) -> str | None:
    """As XLA prints it: what acts in no dimension is left out, but for the sizes."""
    if not value:
        return None
    found = [
        ([d.size], [d.stride], [*d.padding], [d.base_dilation], [d.window_dilation], [int(d.reversal)])
        for d in value
    ]
    parts = (
        f"{part}={'x'.join('_'.join(map(str, row)) for row in column)}"
        for part, *column in zip(_PARTS, *found, strict=True)
        if part == "size" or any(row != _PARTS[part] for row in column)
    )
    return f"{{{' '.join(parts)}}}"


def _decode_window(message: Message) -> tuple[ops.WindowDimension, ...]:
    return tuple(
        ops.WindowDimension(
            size=d.get("size", 0),
            stride=d.get("stride", 0),
            padding=(d.get("padding_low", 0), d.get("padding_high", 0)),
            base_dilation=d.get("base_dilation", 0),
            window_dilation=d.get("window_dilation", 0),
            reversal=bool(d.get("reversal", 0)),
        )
        for d in message.get("window", {}).get("dimensions", ())
    )


def _encode_window(value: Sequence[ops.WindowDimension]) -> Message:
    found = []
    for d in value:
        low, high = d.padding
        fields = {k: int(v) for k, v in vars(d).items() if k != "padding"}
        found.append({**fields, "padding_low": low, "padding_high": high})
    return {"window": {"dimensions": found}}


def _labels(c: Cursor) -> ops.ConvolutionDimensions:
    """`b01f_01io->b01f`."""
    match = take(c, _LABELS, "dim_labels such as b01f_01io->b01f")
    sides: list[Any] = []
    for labels, letters in zip(match.groups(), ("bf", "io", "bf"), strict=True):
        spatial = "".join(str(n) for n in range(len(labels) - 2))
        if sorted(labels) != sorted(spatial + letters):
            fail(c, f"dim_labels {labels!r} do not name each dimension once", match.start())
        first, second, *rest = (labels.index(k) for k in letters + spatial)
        sides += [first, second, tuple(rest)]
    return ops.ConvolutionDimensions(*sides)


SLICE = rows("slice", _slice, _show_slice, "slice_dimensions", {"start": 0, "limit": 0, "stride": 1})
PADDING = rows(
    *("padding", _padding, _show_padding, "padding_config"),
    *({"low": 0, "high": 0, "interior": 0}, "dimensions"),
)
WINDOW = one_key("window", _window, _show_window, "window", _decode_window, _encode_window)
CONVOLUTION = one_key(
    *("dimension_numbers", _labels, str, "convolution_dimension_numbers"),
    decode_record(ops.ConvolutionDimensions, "convolution_dimension_numbers"),
    lambda v: {"convolution_dimension_numbers": vars(v)},
    key="dim_labels",
    absent=REQUIRED,
)
