"""Files of safetensors: 8 bytes with the length of a JSON header (little-endian), the header, which has
each tensor's type, shape and place, and the tensors' bytes in row-major order, without gaps.

>>> import json
>>> header = json.dumps({"w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
>>> found = from_bytes(len(header).to_bytes(8, "little") + header + bytes([128, 63, 0, 64]))
>>> found["w"].dtype.name, found["w"].data.tolist()
('bfloat16', [16256, 16384])
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from neuronsim import dtypes, json_documents
from neuronsim.errors import InvalidArgument, InvalidData, UnsupportedType
from neuronsim.ops import Bits, check_dims
from neuronsim.whole_files import read_bytes

# In lower case, in which none is taken for the label of a rule.
_LOWER_CASE = {
    "f64": dtypes.float64,
    "f32": dtypes.float32,
    "f16": dtypes.float16,
    "bf16": dtypes.bfloat16,
    "f8_e4m3": dtypes.float8_e4m3fn,
    "f8_e5m2": dtypes.float8_e5m2,
    "i64": dtypes.int64,
    "i32": dtypes.int32,
    "i16": dtypes.int16,
    "i8": dtypes.int8,
    "u64": dtypes.uint64,
    "u32": dtypes.uint32,
    "u16": dtypes.uint16,
    "u8": dtypes.uint8,
    "bool": dtypes.boolean,
    "c64": dtypes.complex64,
}
TYPES = {name.upper(): dtype for name, dtype in _LOWER_CASE.items()}
_PREFIX = 8
_LONGEST_HEADER = 100_000_000  # the format's own limit
_METADATA = "__metadata__"


def read(path: str | Path) -> dict[str, Bits]:
    """The tensors of a file by their names; raises InvalidData for a damaged one, and UnsupportedType
    for types that neuronsim does not have.
    """
    try:
        return from_bytes(read_bytes(path))
    except (InvalidData, UnsupportedType) as error:
        raise type(error)(f"{path}: {error}") from error


def from_bytes(data: bytes) -> dict[str, Bits]:
    """The tensors of a file's bytes, which they share. Raises as `read` does."""
    length = int.from_bytes(data[:_PREFIX], "little")
    if len(data) < _PREFIX or not 2 <= length <= min(_LONGEST_HEADER, len(data) - _PREFIX):
        raise InvalidData("not a safetensors file: it does not begin with the length of a header")
    start = _PREFIX + length
    try:
        header = json_documents.parse(data[_PREFIX:start].decode())
    except (InvalidArgument, UnicodeDecodeError) as error:
        raise InvalidData(f"the header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise InvalidData("the header is no JSON object")
    header.pop(_METADATA, None)
    places = {name: _place(name, entry, len(data) - start) for name, entry in header.items()}
    _check_gaps(places, len(data) - start)
    unknown = {n: e["dtype"] for n, e in header.items() if e["dtype"] not in TYPES}
    if unknown:
        listed = ", ".join(f"{name} ({dtype})" for name, dtype in sorted(unknown.items())[:10])
        raise UnsupportedType(
            f"tensors of types that neuronsim does not have: {listed}; it has {', '.join(TYPES)}"
        )
    return {name: _tensor(name, header[name], data, start, place) for name, place in places.items()}


def _place(name: str, entry: Any, size: int) -> tuple[int, int]:
    """Where a tensor's bytes begin and end, of an entry that says all that it must."""

    def numbers(key: str) -> list[int] | None:
        found = entry.get(key) if isinstance(entry, dict) else None
        good = isinstance(found, list) and all(type(n) is int and n >= 0 for n in found)
        return found if good else None

    shape, offsets = numbers("shape"), numbers("data_offsets")
    if shape is None or offsets is None or not isinstance(entry.get("dtype"), str):
        raise InvalidData(f"{name[:60]!r} does not say its dtype, shape and data_offsets")
    if len(offsets) != 2 or not offsets[0] <= offsets[1] <= size:
        raise InvalidData(f"{name[:60]!r} lies at {offsets[:3]}, and there are {size} bytes of tensors")
    return offsets[0], offsets[1]


def _check_gaps(places: dict[str, tuple[int, int]], size: int) -> None:
    """Raises InvalidData unless the tensors lie side by side and fill the file."""
    at = 0
    for name, (begin, end) in sorted(places.items(), key=lambda item: item[1]):
        if begin != at:
            raise InvalidData(f"{name[:60]!r} begins at byte {begin} of the tensors, not at {at}")
        at = end
    if at != size:
        raise InvalidData(f"the tensors end at byte {at} of {size}: the file is cut or torn")


def _tensor(name: str, entry: Any, data: bytes, start: int, place: tuple[int, int]) -> Bits:
    dtype, shape = TYPES[entry["dtype"]], tuple(entry["shape"])
    try:
        check_dims(f"{name[:60]!r}", shape)
    except InvalidArgument as error:
        raise InvalidData(str(error)) from error
    count = math.prod(shape)
    if count * dtype.storage.itemsize != place[1] - place[0]:
        raise InvalidData(
            f"{name[:60]!r} has {place[1] - place[0]} bytes, and {entry['dtype']}{list(shape)} takes "
            f"{count * dtype.storage.itemsize}"
        )
    little = dtype.storage.newbyteorder("<")
    found = np.frombuffer(data, little, count, start + place[0]).reshape(shape)
    if dtype is dtypes.boolean and count and found.view(np.uint8).max() > 1:
        raise InvalidData(f"{name[:60]!r} is BOOL and has bytes above 1")
    # The header may leave the tensors at any address, and the core reads whole elements.
    return Bits(np.require(found.astype(dtype.storage, copy=False), requirements="A"), dtype)
