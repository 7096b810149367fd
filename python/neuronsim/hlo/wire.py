"""Protobuf's wire format, read and written over tables of fields.

>>> table = {1: Field("name", "string"), 2: Field("dims", "int", repeated=True)}
>>> data = write_message({"name": "x", "dims": [2, 300]}, table)
>>> read_message(memoryview(data), table)
{'name': 'x', 'dims': [2, 300]}
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from neuronsim.errors import InvalidModel

Message = dict[str, Any]
Kind = Literal["int", "float", "string", "bytes", "message", "fixed elements", "varint elements"]

MAX_DEPTH = 80  # of messages: a module's own and those of the deepest tuple's shape
CHUNK = 1 << 16  # bytes of varints that are decoded at once: the temporaries are some fifty times that
_LARGE = 1 << 16  # bytes of elements that are not copied into the message around them


@dataclass(frozen=True)
class Field:
    """One field of a message: `table` for messages, `element` (a NumPy type) for literals."""

    name: str
    kind: Kind
    repeated: bool = False
    table: Mapping[int, Field] | None = None
    element: str = ""


# ---- reading -----------------------------------------------------------------------------------


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1  # most numbers of a file are this small
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise InvalidModel("the file ends inside a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
    raise InvalidModel("a number is longer than ten bytes")


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _packed_ints(data: memoryview) -> list[int]:
    values, at = [], 0
    while at < len(data):
        value, at = _varint(data, at)
        values.append(_signed(value))
    return values


def _decode_varints(data: bytearray, element: str) -> npt.NDArray[Any]:
    """All the varints of a literal; an element is the low bits of its varint."""
    raw = np.frombuffer(data, np.uint8)
    found = np.empty(int(np.count_nonzero(raw < 0x80)), element)
    at = filled = 0
    while at < raw.size:
        chunk = raw[at : at + CHUNK]
        ends = np.flatnonzero(chunk < 0x80)
        if ends.size == 0:
            raise InvalidModel("the file ends inside a packed number")
        chunk = chunk[: ends[-1] + 1]
        starts = np.concatenate([[0], ends[:-1] + 1])
        if int((ends - starts).max()) >= 10:
            raise InvalidModel("a packed number is longer than ten bytes")
        places = np.arange(chunk.size) - np.repeat(starts, ends - starts + 1)
        parts = (chunk & 0x7F).astype(np.uint64) << (7 * places).astype(np.uint64)
        found[filled : filled + ends.size] = np.bitwise_or.reduceat(parts, starts).astype(element)
        filled += ends.size
        at += chunk.size
    return found


def field_extent(data: memoryview, at: int) -> tuple[int, int, int, int]:
    """The number and wire type of the field at a place, and where its value begins and ends, which may
    be beyond the data.
    """
    tag, at = _varint(data, at)
    number, wire = tag >> 3, tag & 7
    if number == 0:
        raise InvalidModel("a field has the number 0, which none has in protobuf")
    length = 0
    if wire == 2:
        length, at = _varint(data, at)
    elif wire in (1, 5):
        length = 8 if wire == 1 else 4
    elif wire != 0:
        raise InvalidModel(f"wire type {wire} does not occur in a protobuf file of XLA")
    return number, wire, at, at + length


def read_field(data: memoryview, at: int) -> tuple[int, int, Any, int]:
    """The number, wire type and raw value of the field at a place, and the place after it."""
    number, wire, at, end = field_extent(data, at)
    if wire == 0:
        return number, wire, *_varint(data, at)
    if end > len(data):
        raise InvalidModel("the file ends inside a field")
    return number, wire, data[at:end], end


def parts(data: memoryview, number: int) -> Iterator[memoryview]:
    """The messages of a repeated field, not read yet."""
    at = 0
    while at < len(data):
        found, wire, value, at = read_field(data, at)
        if found == number:
            if wire != 2:
                raise InvalidModel(f"field {number} has wire type {wire}")
            yield value


def read_message(
    data: memoryview, table: Mapping[int, Field], depth: int = 0, *, keep_unread: bool = True
) -> Message:
    """The fields of a message by name; what the table does not know is under `unread`, if kept."""
    if depth > MAX_DEPTH:
        raise InvalidModel(f"messages are nested deeper than {MAX_DEPTH}")
    message: Message = {}
    elements: dict[str, bytearray] = {}
    messages: dict[str, tuple[Field, list[memoryview]]] = {}
    unread = bytearray()
    at = 0
    while at < len(data):
        start = at
        number, wire, value, at = read_field(data, at)
        f = table.get(number)
        if f is None:
            if keep_unread:
                unread += data[start:at]
        elif f.element:
            elements.setdefault(f.name, bytearray()).extend(_element_bytes(f, wire, value))
        elif f.kind == "message" and not f.repeated and wire == 2:
            messages.setdefault(f.name, (f, []))[1].append(value)
        else:
            _store(message, f, wire, value, depth)
    if unread:
        message["unread"] = bytes(unread)
    for name, (f, pieces) in messages.items():  # protobuf's rule: a message that occurs twice is joined
        whole = pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))
        message[name] = read_message(whole, f.table or {}, depth + 1)
    if elements:
        kinds = {f.name: f for f in table.values() if f.element}
        for name, raw in elements.items():
            message[name] = _decode_elements(kinds[name], raw)
    return message


def _element_bytes(f: Field, wire: int, value: Any) -> bytes | memoryview:
    """One piece of a literal's elements: packed, or a single element with its own tag."""
    if f.kind == "varint elements" and wire == 0:
        return _write_varint(value)
    size = np.dtype(f.element).itemsize
    single = f.kind == "fixed elements" and wire in (1, 5)
    if (wire != 2 and not single) or (f.kind == "fixed elements" and len(value) % size):
        raise InvalidModel(f"literal field {f.name!r} does not hold whole elements")
    piece: memoryview = value
    return piece


def _decode_elements(f: Field, raw: bytearray) -> npt.NDArray[Any]:
    if f.kind == "varint elements":
        return _decode_varints(raw, f.element)
    return np.frombuffer(raw, f.element)


def _store(message: Message, f: Field, wire: int, value: Any, depth: int) -> None:
    decoded: Any
    if f.kind == "int" and f.repeated and wire == 2:
        message.setdefault(f.name, []).extend(_packed_ints(value))
        return
    if f.kind == "int" and wire == 0:
        decoded = _signed(value)
    elif f.kind == "float" and wire == 5:
        decoded = struct.unpack("<f", value)[0]
    elif f.kind == "string" and wire == 2:
        decoded = bytes(value).decode("utf-8", errors="replace")
    elif f.kind == "bytes" and wire == 2:
        decoded = bytes(value)
    elif f.kind == "message" and wire == 2:
        assert f.table is not None
        decoded = read_message(value, f.table, depth + 1)
    else:
        raise InvalidModel(f"field {f.name!r} has wire type {wire}")
    if f.repeated:
        message.setdefault(f.name, []).append(decoded)
    else:
        message[f.name] = decoded


# ---- writing -----------------------------------------------------------------------------------


def _write_varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _encode_elements(f: Field, values: npt.NDArray[Any]) -> bytes:
    if f.kind == "varint elements":
        return b"".join(map(_write_varint, map(int, values.ravel().tolist())))
    return values.astype(f.element, copy=False).tobytes()


def write_length(number: int, data: bytes) -> bytes:
    """A length-delimited field."""
    return _write_head(number, len(data)) + data


def _write_head(number: int, length: int) -> bytes:
    """What stands before that many bytes of a length-delimited field."""
    return _write_varint(number << 3 | 2) + _write_varint(length)


def write_message(message: Message, table: Mapping[int, Field]) -> bytes:
    """The wire form of a message that `read_message` gave or could give; the elements of a literal may
    be in wire form already.
    """
    return b"".join(_pieces(message, table))


def _pieces(message: Message, table: Mapping[int, Field]) -> list[bytes | bytearray]:
    """The same in pieces, one if no literal is large: a model's weights are copied once, not once for
    each message around them.
    """
    pieces: list[bytes | bytearray] = []
    out = bytearray()
    for number, f in table.items():
        value = message.get(f.name)
        if value is None:
            continue
        if f.element:
            data = value if isinstance(value, bytes) else _encode_elements(f, value)
            if len(data) > _LARGE:
                out += _write_head(number, len(data))
                pieces += (out, data)
                out = bytearray()
            else:
                out += write_length(number, data)
        elif f.kind == "int" and f.repeated:
            out += write_length(number, b"".join(map(_write_varint, value))) if value else b""
        elif f.kind == "int":
            out += _write_varint(number << 3) + _write_varint(value)
        elif f.kind == "float":
            out += _write_varint(number << 3 | 5) + struct.pack("<f", value)
        elif f.kind == "message":
            for v in value if f.repeated else [value]:
                inner = _pieces(v, f.table or {})
                out += _write_head(number, sum(map(len, inner)))
                if len(inner) == 1:
                    out += inner[0]
                else:
                    pieces += (out, *inner)
                    out = bytearray()
        else:
            for v in value if f.repeated else [value]:
                out += write_length(number, v.encode() if f.kind == "string" else v)
    out += message.get("unread", b"")
    pieces.append(out)
    return pieces
