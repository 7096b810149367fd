"""The constants of HLO text: numbers in nested braces."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.hlo.lexer import Cursor, fail, peek, take
from neuronsim.hlo.module import Shape

CHUNK = 1 << 16  # characters whose numbers exist as Python objects at once

_SCALAR = re.compile(r"\([^()]*\)|[^\s,{}()]+(?:\([^()]*\))?")
_NAN = re.compile(r"-?nan\(0x([0-9a-fA-F]{1,13})\)")
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_BRACE = re.compile(rf"[{{}}]|{_COMMENT.pattern}", re.DOTALL)
_COMPLEX = re.compile(r"\(([^,()]+),([^,()]+)\)")
# What a character means outside numbers; 0 inside.
_STRUCTURE = bytes(n if n in b"{}," else 32 if n in b" \t\r\n" else 0 for n in range(256))
_WORDS = {"true": True, "false": False, "1": True, "0": False}


def parse_array(c: Cursor, shape: Shape) -> ops.Bits:
    """The literal of an array constant. A decimal number is rounded by way of float64, as XLA does."""
    start, size = c.at, shape.size
    if peek(c) == "{":
        content = _braces(c)
        if content.replace(" ", "") == "{...}":
            fail(c, "the constant is elided ({...}): print the text with large constants", start)
        if not content.isascii() or "_" in content:
            fail(c, "a character that no number has", start)
        _check_nesting(c, content, shape.dims, size, start)
        flat = content.translate({ord("{"): " ", ord("}"): " "})
    else:
        flat = take(c, _SCALAR, "a constant")[0]
        if not flat.isascii() or "_" in flat or (shape.dims and size):
            fail(c, f"{flat[:24]!r} is no constant of {shape.type}", start)
    try:
        values = _numbers(flat, shape.dtype, size)
        array = _round(values, shape.dtype).view(shape.dtype.storage)
        if "nan(" in flat and size:
            _set_payloads(array, flat, shape.dtype)
        array = array.reshape(shape.dims)
    except (ValueError, OverflowError, KeyError) as error:
        fail(c, f"a number that is no element of {shape.type}: {error}"[:200], start)
    array.flags.writeable = False
    return ops.Bits(array, shape.dtype)


def _braces(c: Cursor) -> str:
    """The text of a group in braces, without its comments."""
    start, depth = c.at, 0
    for match in _BRACE.finditer(c.text, c.at):
        depth += (match[0] == "{") - (match[0] == "}")
        if depth == 0:
            c.at = match.end()
            return _COMMENT.sub(" ", c.text[start : c.at])
    return fail(c, "a brace is not closed")


def _check_nesting(c: Cursor, content: str, dims: tuple[int, ...], size: int, start: int) -> None:
    """Raises unless the braces nest as the dimensions say."""
    skeleton = _skeleton(content)
    count = skeleton.count(b"x")
    if count != size:
        fail(c, f"the literal holds {count} elements, not {size}", start)
    if size == 0:
        return
    opened = sum(math.prod(dims[:n]) for n in range(len(dims)))
    if skeleton.count(b"{") == opened:
        expected = b"x"
        for d in reversed(dims):
            expected = b"{" + ((expected + b",") * d)[:-1] + b"}"
        if skeleton == expected:
            return
    fail(c, f"the literal's braces do not nest as the dimensions {dims[:8]} do", start)


def _skeleton(content: str) -> bytes:
    """The braces and commas, with an `x` for every number."""
    data = content.encode()
    raw = np.frombuffer(data, np.uint8)
    structure = np.frombuffer(data.translate(_STRUCTURE), np.uint8)
    outside = structure != 0
    if "(" in content:  # the commas of complex numbers stand inside them
        steps = (raw == ord("(")).view(np.int8) - (raw == ord(")")).view(np.int8)
        outside &= np.cumsum(steps, dtype=np.int8) == 0
        outside &= raw != ord(")")
    starts = ~outside
    starts[1:] &= outside[:-1]
    kept = np.where(starts, np.uint8(ord("x")), np.where(outside, structure, np.uint8(ord(" "))))
    skeleton: bytes = kept[kept != ord(" ")].tobytes()
    return skeleton


def _numbers(flat: str, dtype: DType, size: int) -> npt.NDArray[Any]:
    if size == 0:
        return np.zeros(0, np.float64)
    if dtype.kind == "complex":
        parts = (float(n) for pair in _COMPLEX.finditer(flat) for n in pair.groups())
        values = np.fromiter(parts, np.float64)
        if values.size != 2 * size:
            raise ValueError("complex numbers are pairs in parentheses")
        return values.view(np.complex128)
    convert, kind = _CONVERSIONS[dtype.kind](dtype)
    return np.fromiter(_converted(flat, convert), kind, size)


def _converted(flat: str, convert: Callable[[Iterable[str]], Iterable[Any]]) -> Iterator[Any]:
    at = 0
    while at < len(flat):
        end = flat.find(",", at + CHUNK)
        end = len(flat) if end < 0 else end
        yield from convert(flat[at:end].split(","))
        at = end + 1


def _float(text: str) -> float:
    if "(" in text:
        payload = text.index("(")
        return float(text[:payload])  # of a NaN, whose bits `_set_payloads` sets
    return float.fromhex(text) if "x" in text or "X" in text else float(text)


def _set_payloads(array: npt.NDArray[Any], flat: str, dtype: DType) -> None:
    """`nan(0x1)` is the NaN whose mantissa has these bits."""
    words = array.view(f"u{array.dtype.itemsize}")
    mantissa = mantissa_mask(dtype)
    for at, text in enumerate(flat.split(",")):
        if "(" in text:
            match = _NAN.fullmatch(text.strip())
            bits = int(match[1], 16) if match else 0
            if not 0 < bits <= mantissa:
                raise ValueError(f"{text.strip()[:24]!r} is no NaN")
            words[at] = (int(words[at]) & ~mantissa) | bits


def mantissa_mask(dtype: DType) -> int:
    """The bits of a float's mantissa; none where it has a single NaN."""
    if dtype.kind != "float" or not (dtype.has_inf or dtype is dtypes.float64):
        return 0
    return (1 << (dtype.mantissa_bits or 52)) - 1


_CONVERSIONS: dict[str, Callable[[DType], tuple[Callable[[Iterable[str]], Iterable[Any]], Any]]] = {
    "float": lambda dtype: (lambda texts: map(_float, texts), np.float64),
    "signed": lambda dtype: (lambda texts: map(int, texts), dtype.numpy),
    "unsigned": lambda dtype: (lambda texts: map(int, texts), dtype.numpy),
    "bool": lambda dtype: (lambda texts: (_WORDS[t.strip()] for t in texts), np.bool_),
}


def _round(values: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    if values.dtype == dtype.numpy:
        return values
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        rounded = values.astype(dtype.numpy)
        lost = np.isnan(rounded) != np.isnan(values)
        if dtype.kind == "float":
            lost |= np.isinf(rounded) != np.isinf(values)
    if lost.any():
        raise ValueError(f"{values[lost][0]} does not fit")
    return rounded
