"""`HloModuleProto` in and out: a protobuf wire reader and writer over tables of fields.

The field numbers are those of openxla/xla's `hlo.proto` and `xla_data.proto`. Fields of an instruction
that are not in a table are kept as they are and written back.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidModel
from neuronsim.hlo.module import (
    AnyShape,
    Computation,
    Instruction,
    Metadata,
    Module,
    Shape,
    TupleShape,
    sort_by_dependency,
)
from neuronsim.hlo.opcodes import ATTRIBUTES
from neuronsim.ops import OPCODES

Message = dict[str, Any]
Kind = Literal["int", "string", "bytes", "message", "elements"]


@dataclass(frozen=True)
class Field:
    """One field of a message: `table` for messages, `element` (a NumPy type) for packed numbers."""

    name: str
    kind: Kind
    repeated: bool = False
    table: Mapping[int, Field] | None = None
    element: str = ""


def _ints(name: str) -> Field:
    return Field(name, "int", repeated=True)


def _message(name: str, table: Mapping[int, Field], *, repeated: bool = False) -> Field:
    return Field(name, "message", repeated, table)


LAYOUT: dict[int, Field] = {1: _ints("minor_to_major")}
SHAPE: dict[int, Field] = {
    2: Field("element_type", "int"),
    3: _ints("dimensions"),
    5: _message("layout", LAYOUT),
    6: _ints("is_dynamic_dimension"),
}
SHAPE[4] = _message("tuple_shapes", SHAPE, repeated=True)
PROGRAM_SHAPE = {
    1: _message("parameters", SHAPE, repeated=True),
    2: _message("result", SHAPE),
    3: Field("parameter_names", "string", repeated=True),
}


def _elements(name: str, element: str) -> Field:
    return Field(name, "elements", element=element)


# The element type of a literal decides which of these fields holds it.
LITERAL = {
    1: _message("shape", SHAPE),
    2: _elements("preds", "varint"),
    3: _elements("u8s", "u1"),
    4: _elements("s32s", "varint"),
    5: _elements("s64s", "varint"),
    6: _elements("u32s", "varint"),
    7: _elements("u64s", "varint"),
    8: _elements("f32s", "<f4"),
    9: _elements("f64s", "<f8"),
    11: _elements("f16s", "<u2"),
    12: _elements("c64s", "<c8"),
    13: _elements("bf16s", "<u2"),
    15: _elements("s8s", "i1"),
    16: _elements("u16s", "<u2"),
    17: _elements("s16s", "<i2"),
    18: _elements("c128s", "<c16"),
    19: _elements("f8e5m2s", "u1"),
    20: _elements("f8e4m3fns", "u1"),
    28: _elements("f8e4m3s", "u1"),
    29: _elements("f8e3m4s", "u1"),
}
SLICE = {1: Field("start", "int"), 2: Field("limit", "int"), 3: Field("stride", "int")}
DOT = {
    1: _ints("lhs_contracting"),
    2: _ints("rhs_contracting"),
    3: _ints("lhs_batch"),
    4: _ints("rhs_batch"),
}
WINDOW_DIMENSION = {
    1: Field("size", "int"),
    2: Field("stride", "int"),
    3: Field("padding_low", "int"),
    4: Field("padding_high", "int"),
    5: Field("window_dilation", "int"),
    6: Field("base_dilation", "int"),
    7: Field("reversal", "int"),
}
WINDOW = {1: _message("dimensions", WINDOW_DIMENSION, repeated=True)}
CONVOLUTION = {
    3: Field("kernel_input_feature", "int"),
    4: Field("kernel_output_feature", "int"),
    6: _ints("kernel_spatial"),
    7: Field("input_batch", "int"),
    8: Field("input_feature", "int"),
    9: Field("output_batch", "int"),
    10: Field("output_feature", "int"),
    11: _ints("input_spatial"),
    12: _ints("output_spatial"),
}
METADATA = {
    1: Field("op_type", "string"),
    2: Field("op_name", "string"),
    3: Field("source_file", "string"),
    4: Field("source_line", "int"),
}
INSTRUCTION = {
    1: Field("name", "string"),
    2: Field("opcode", "string"),
    3: _message("shape", SHAPE),
    7: _message("metadata", METADATA),
    8: _message("literal", LITERAL),
    9: Field("parameter_number", "int"),
    13: Field("tuple_index", "int"),
    14: _ints("dimensions"),
    15: _message("window", WINDOW),
    16: _message("convolution_dimension_numbers", CONVOLUTION),
    17: _message("slice_dimensions", SLICE, repeated=True),
    18: Field("exponent_bits", "int"),
    19: Field("mantissa_bits", "int"),
    30: _message("dot_dimension_numbers", DOT),
    35: Field("id", "int"),
    36: _ints("operand_ids"),
    38: _ints("called_computation_ids"),
    50: Field("feature_group_count", "int"),
    58: Field("batch_group_count", "int"),
    63: Field("comparison_direction", "string"),
    72: Field("comparison_type", "string"),
}
COMPUTATION = {
    1: Field("name", "string"),
    2: _message("instructions", INSTRUCTION, repeated=True),
    4: _message("program_shape", PROGRAM_SHAPE),
    5: Field("id", "int"),
    6: Field("root_id", "int"),
}
MODULE = {
    1: Field("name", "string"),
    2: Field("entry_computation_name", "string"),
    3: _message("computations", COMPUTATION, repeated=True),
    4: _message("host_program_shape", PROGRAM_SHAPE),
    5: Field("id", "int"),
    6: Field("entry_computation_id", "int"),
}

# xla.PrimitiveType, and the field of a literal that holds the type's elements.
_TYPES: list[tuple[int, DType, str]] = [
    (1, dtypes.boolean, "preds"),
    (2, dtypes.int8, "s8s"),
    (3, dtypes.int16, "s16s"),
    (4, dtypes.int32, "s32s"),
    (5, dtypes.int64, "s64s"),
    (6, dtypes.uint8, "u8s"),
    (7, dtypes.uint16, "u16s"),
    (8, dtypes.uint32, "u32s"),
    (9, dtypes.uint64, "u64s"),
    (10, dtypes.float16, "f16s"),
    (11, dtypes.float32, "f32s"),
    (12, dtypes.float64, "f64s"),
    (15, dtypes.complex64, "c64s"),
    (16, dtypes.bfloat16, "bf16s"),
    (18, dtypes.complex128, "c128s"),
    (19, dtypes.float8_e5m2, "f8e5m2s"),
    (20, dtypes.float8_e4m3fn, "f8e4m3fns"),
    (28, dtypes.float8_e4m3, "f8e4m3s"),
    (29, dtypes.float8_e3m4, "f8e3m4s"),
]
_DTYPE = {number: dtype for number, dtype, _ in _TYPES}
_NUMBER = {dtype: number for number, dtype, _ in _TYPES}
_LITERAL_FIELD = {dtype: name for _, dtype, name in _TYPES}
_LITERAL_NUMBER = {f.name: number for number, f in LITERAL.items()}
TUPLE, TOKEN = 13, 17
_OTHER_TYPES = {14: "opaque", 21: "s4", 22: "u4", 23: "f8e4m3b11fnuz", 24: "f8e5m2fnuz",
                25: "f8e4m3fnuz", 26: "s2", 27: "u2"}  # fmt: skip

# The field of an instruction that holds each attribute.
_ATTRIBUTE_FIELDS = {
    "number": "parameter_number",
    "literal": "literal",
    "tuple_index": "tuple_index",
    "dimensions": "dimensions",
    "slice": "slice_dimensions",
    "dot_dimensions": "dot_dimension_numbers",
    "window": "window",
    "dimension_numbers": "convolution_dimension_numbers",
    **{
        name: name
        for name in (
            *("exponent_bits", "mantissa_bits", "comparison_direction", "comparison_type"),
            *("feature_group_count", "batch_group_count"),
        )
    },
}

MAX_DEPTH = 64
MAX_RANK = 64
MAX_DIMENSION = 2**62


# ---- the wire ----------------------------------------------------------------------------------


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


def _varints(data: memoryview) -> npt.NDArray[np.uint64]:
    """All the varints of a packed field at once."""
    raw = np.frombuffer(data, np.uint8)
    if raw.size == 0:
        return np.zeros(0, np.uint64)
    ends = np.flatnonzero(raw < 0x80)
    if ends.size == 0 or ends[-1] != raw.size - 1:
        raise InvalidModel("the file ends inside a packed number")
    starts = np.concatenate([[0], ends[:-1] + 1])
    if int((ends - starts).max()) >= 10:
        raise InvalidModel("a packed number is longer than ten bytes")
    places = np.arange(raw.size) - np.repeat(starts, ends - starts + 1)
    parts = (raw & 0x7F).astype(np.uint64) << (7 * places).astype(np.uint64)
    return np.bitwise_or.reduceat(parts, starts)


def _packed_ints(data: memoryview) -> list[int]:
    values, at = [], 0
    while at < len(data):
        value, at = _varint(data, at)
        values.append(_signed(value))
    return values


def _read_field(data: memoryview, at: int) -> tuple[int, int, Any, int]:
    tag, at = _varint(data, at)
    number, wire = tag >> 3, tag & 7
    if wire == 0:
        value, at = _varint(data, at)
        return number, wire, value, at
    if wire == 2:
        length, at = _varint(data, at)
    elif wire in (1, 5):
        length = 8 if wire == 1 else 4
    else:
        raise InvalidModel(f"wire type {wire} does not occur in a protobuf file of XLA")
    if length > len(data) - at:
        raise InvalidModel("the file ends inside a field")
    return number, wire, data[at : at + length], at + length


def read_message(data: memoryview, table: Mapping[int, Field], depth: int = 0) -> Message:
    """The fields of a message by name; what the table does not know is under `unread`."""
    if depth > MAX_DEPTH:
        raise InvalidModel(f"messages are nested deeper than {MAX_DEPTH}")
    message: Message = {}
    unread = bytearray()
    at = 0
    while at < len(data):
        start = at
        number, wire, value, at = _read_field(data, at)
        f = table.get(number)
        if f is None:
            unread += data[start:at]
            continue
        _store(message, f, wire, value, depth)
    if unread:
        message["unread"] = bytes(unread)
    for f in table.values():
        if f.kind == "elements" and f.name in message:
            message[f.name] = np.concatenate(message[f.name])
    return message


def _store(message: Message, f: Field, wire: int, value: Any, depth: int) -> None:
    packed = wire == 2
    if f.kind == "elements":
        message.setdefault(f.name, []).append(_read_elements(f, wire, value))
        return
    decoded: Any
    if f.kind == "int" and f.repeated and packed:
        message.setdefault(f.name, []).extend(_packed_ints(value))
        return
    if f.kind == "int" and wire == 0:
        decoded = _signed(value)
    elif f.kind == "string" and packed:
        decoded = bytes(value).decode("utf-8", errors="replace")
    elif f.kind == "bytes" and packed:
        decoded = bytes(value)
    elif f.kind == "message" and packed:
        assert f.table is not None
        decoded = read_message(value, f.table, depth + 1)
    else:
        raise InvalidModel(f"field {f.name!r} has wire type {wire}")
    if f.repeated:
        message.setdefault(f.name, []).append(decoded)
    else:
        message[f.name] = decoded


def _read_elements(f: Field, wire: int, value: Any) -> npt.NDArray[Any]:
    if f.element == "varint" and wire in (0, 2):
        return _varints(value) if wire == 2 else np.array([value], np.uint64)
    if f.element == "varint" or wire not in (1, 2, 5) or len(value) % np.dtype(f.element).itemsize:
        raise InvalidModel(f"literal field {f.name!r} does not hold whole elements")
    return np.frombuffer(value, f.element)


def _write_varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _write_length(number: int, data: bytes) -> bytes:
    return _write_varint(number << 3 | 2) + _write_varint(len(data)) + data


def write_message(message: Message, table: Mapping[int, Field]) -> bytes:
    """The wire form of a message that `read_message` gave or could give."""
    out = bytearray()
    for number, f in table.items():
        if f.name not in message:
            continue
        value = message[f.name]
        if f.kind == "elements":
            out += _write_length(number, bytes(value))
        elif f.kind == "int" and f.repeated:
            out += _write_length(number, b"".join(_write_varint(v) for v in value))
        elif f.kind == "int":
            out += _write_varint(number << 3) + _write_varint(value)
        else:
            for v in value if f.repeated else [value]:
                data = (
                    v.encode() if f.kind == "string"
                    else v if f.kind == "bytes"
                    else write_message(v, f.table or {})
                )  # fmt: skip
                out += _write_length(number, data)
    out += message.get("unread", b"")
    return bytes(out)


# ---- reading a module --------------------------------------------------------------------------


def read(path: str | Path) -> Module:
    """The module in an `.hlo.pb` file: an `HloModuleProto`, or an `HloProto` that wraps one.

    Raises InvalidModel, with the file's name, if it is not one.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InvalidModel(f"cannot read the model {str(path)!r}: {error.strerror}") from error
    try:
        return from_bytes(data)
    except InvalidModel as error:
        raise InvalidModel(f"{path}: {error}") from error


def from_bytes(data: bytes) -> Module:
    """The module of serialized `HloModuleProto` or `HloProto` bytes; raises InvalidModel."""
    if data[:4] == b"PK\x03\x04":
        raise InvalidModel("not an HloModuleProto but a zip file, such as .npz or .nsim")
    try:
        message = _wrapped(memoryview(data)) or read_message(memoryview(data), MODULE)
    except InvalidModel as error:
        raise InvalidModel(f"not an HloModuleProto: {error}") from error
    if not message.get("computations"):
        raise InvalidModel("not an HloModuleProto: it has no computations")
    return _module(message)


def _wrapped(view: memoryview) -> Message | None:
    """The module inside an `HloProto`, whose field 1 it is; in a module field 1 is the name."""
    try:
        number, wire, value, _ = _read_field(view, 0)
        message = read_message(value, MODULE) if (number, wire) == (1, 2) else {}
    except InvalidModel:
        return None
    return message if message.get("computations") else None


def _unique(names: list[str], what: str) -> None:
    if len(set(names)) != len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise InvalidModel(f"two {what} are named {twice!r}")


def _module(message: Message) -> Module:
    protos = {c.get("id", 0): c for c in message.get("computations", [])}
    names = {id_: c.get("name", f"computation.{id_}") for id_, c in protos.items()}
    _unique(list(names.values()), "computations")
    if len(protos) != len(message.get("computations", [])):
        raise InvalidModel("two computations have the same id")
    computations = {names[id_]: _computation(c, names[id_], names) for id_, c in protos.items()}
    entry: str = message.get("entry_computation_name", "")
    if "entry_computation_id" in message:
        entry = names.get(message["entry_computation_id"], entry)
    if entry not in computations:
        raise InvalidModel(f"the entry computation {entry!r} does not exist")
    order = sort_by_dependency(
        computations,
        lambda name: [c for i in computations[name].instructions for c in i.called],
        "computation",
    )
    shape = message.get("host_program_shape", {})
    return Module(
        name=message.get("name", "module"),
        entry=entry,
        computations=tuple(computations[name] for name in order),
        parameter_names=tuple(shape.get("parameter_names", ())),
    )


def _computation(message: Message, where: str, computation_names: Mapping[int, str]) -> Computation:
    protos = {i.get("id", 0): i for i in message.get("instructions", [])}
    if len(protos) != len(message.get("instructions", [])):
        raise InvalidModel(f"{where}: two instructions have the same id")
    names: dict[int, str] = {
        id_: i.get("name", f"{i.get('opcode')}.{id_}") for id_, i in protos.items()
    }
    _unique(list(names.values()), f"instructions of {where}")
    instructions = {}
    for id_, proto in protos.items():
        try:
            instructions[names[id_]] = _instruction(proto, names[id_], names, computation_names)
        except InvalidModel as error:
            raise InvalidModel(f"{where}/{names[id_]}: {error}") from error
    if message.get("root_id", 0) not in names:
        raise InvalidModel(f"{where}: its root does not exist")
    order = sort_by_dependency(instructions, lambda n: instructions[n].operands, "instruction")
    return Computation(
        where,
        tuple(instructions[n] for n in order),
        names[message.get("root_id", 0)],
    )


def _instruction(
    message: Message, name: str, names: Mapping[int, str], computations: Mapping[int, str]
) -> Instruction:
    opcode = message.get("opcode", "")
    for id_ in message.get("operand_ids", []):
        if id_ not in names:
            raise InvalidModel(f"operand {id_} is no instruction of the computation")
    for id_ in message.get("called_computation_ids", []):
        if id_ not in computations:
            raise InvalidModel(f"called computation {id_} does not exist")
    shape = _shape(message.get("shape", {}))
    attributes = {}
    if message.get("called_computation_ids"):
        attributes["called"] = tuple(computations[c] for c in message["called_computation_ids"])
    # An opcode that neuronsim does not execute keeps what the file gives, so that it can be written.
    present = tuple(a for a, name in _ATTRIBUTE_FIELDS.items() if name in message)
    for attribute in ATTRIBUTES.get(opcode, () if opcode in OPCODES else present):
        if attribute != "called":
            attributes[attribute] = _attribute(attribute, message, shape)
        elif "called" not in attributes:
            raise InvalidModel(f"{opcode} calls no computation")
    return Instruction(
        name=name,
        opcode=opcode,
        shape=shape,
        operands=tuple(names[id_] for id_ in message.get("operand_ids", [])),
        attributes=attributes,
        metadata=_metadata(message.get("metadata", {})),
        unread=message.get("unread", b""),
    )


def _metadata(message: Message) -> Metadata:
    return Metadata(**{k: v for k, v in message.items() if k != "unread"})


def _attribute(attribute: str, message: Message, shape: AnyShape) -> Any:
    match attribute:
        case "number":
            return message.get("parameter_number", 0)
        case "literal":
            return _literal(message.get("literal", {}), shape)
        case "dimensions":
            return tuple(message.get("dimensions", ()))
        case "dot_dimensions":
            dot = message.get("dot_dimension_numbers", {})
            return ops.DotDimensions(**{f.name: tuple(dot.get(f.name, ())) for f in DOT.values()})
        case "window":
            return tuple(map(_window_dimension, message.get("window", {}).get("dimensions", ())))
        case "dimension_numbers":
            numbers = message.get("convolution_dimension_numbers", {})
            one = {f.name: numbers.get(f.name, 0) for f in CONVOLUTION.values() if not f.repeated}
            lists = {f.name: tuple(numbers.get(f.name, ())) for f in CONVOLUTION.values() if f.repeated}
            found: dict[str, Any] = {**one, **lists}
            return ops.ConvolutionDimensions(**found)
        case "feature_group_count" | "batch_group_count":
            return message.get(attribute, 0) or 1  # old files leave a single group out
        case "slice":
            ranges = message.get("slice_dimensions", [])
            return tuple((r.get("start", 0), r.get("limit", 0), r.get("stride", 1)) for r in ranges)
        case "comparison_direction" | "comparison_type":
            return message.get(attribute, "")
        case _:
            return message.get(attribute, 0)


def _window_dimension(message: Message) -> ops.WindowDimension:
    return ops.WindowDimension(
        size=message.get("size", 0),
        stride=message.get("stride", 0),
        padding=(message.get("padding_low", 0), message.get("padding_high", 0)),
        base_dilation=message.get("base_dilation", 0),
        window_dilation=message.get("window_dilation", 0),
        reversal=bool(message.get("reversal", 0)),
    )


def _window_dimension_message(d: ops.WindowDimension) -> Message:
    low, high = d.padding
    fields = {k: int(v) for k, v in vars(d).items() if k != "padding"}
    return {**fields, "padding_low": low, "padding_high": high}


def _shape(message: Message, depth: int = 0) -> AnyShape:
    number = message.get("element_type", 0)
    if number in (TUPLE, TOKEN):
        return TupleShape(tuple(_shape(s) for s in message.get("tuple_shapes", [])))
    if number not in _DTYPE:
        name = _OTHER_TYPES.get(number, f"number {number}")
        raise InvalidModel(
            f"[NCC_ESPP047] element type {name} is not one that neuronsim reads: convert the model "
            "to a device type first"
        )
    dims = tuple(message.get("dimensions", ()))
    if len(dims) > MAX_RANK or any(not 0 <= d <= MAX_DIMENSION for d in dims):
        raise InvalidModel(f"{dims[:8]} are not dimensions of an array")
    if any(message.get("is_dynamic_dimension", ())):
        raise InvalidModel(
            f"[NCC_EMOD025] dynamic shape {dims} is not supported: export the model with fixed sizes"
        )
    layout = tuple(message.get("layout", {}).get("minor_to_major", ()))
    if layout and sorted(layout) != list(range(len(dims))):
        raise InvalidModel(f"layout {layout} does not order {len(dims)} dimensions")
    row_major = tuple(reversed(range(len(dims))))
    return Shape(_DTYPE[number], dims, layout if layout and layout != row_major else None)


def _literal(message: Message, shape: AnyShape) -> ops.Bits:
    if not isinstance(shape, Shape):
        raise InvalidModel("constants that are tuples are not read yet")
    own = _shape(message["shape"]) if "shape" in message else shape
    if not isinstance(own, Shape) or own.type != shape.type:
        raise InvalidModel("its literal has another shape than the constant")
    data = message.get(_LITERAL_FIELD[shape.dtype], np.zeros(0, np.uint8))
    if data.size != math.prod(shape.dims):
        raise InvalidModel(f"its literal holds {data.size} elements, {shape.type} has another count")
    if data.dtype == np.uint64:
        data = data.astype(shape.dtype.numpy)  # a varint is the low bits of the element
    words = np.ascontiguousarray(data).view(shape.dtype.storage)
    if own.layout is None:
        array = words.reshape(shape.dims)
    else:
        axes = tuple(reversed(own.layout))  # the order in which the words lie in memory
        stored = words.reshape([shape.dims[a] for a in axes])
        array = np.ascontiguousarray(stored.transpose(np.argsort(axes)))
    array.flags.writeable = False
    return ops.Bits(array, shape.dtype)


# ---- writing a module --------------------------------------------------------------------------


def to_bytes(module: Module) -> bytes:
    """The module as a serialized `HloModuleProto`, with fresh ids.

    Raises InvalidModel for element types that HLO does not have (tfloat32 travels as
    `reduce-precision`, C9).
    """
    computation_ids = {c.name: n for n, c in enumerate(module.computations, start=1)}
    next_id = 1
    computations = []
    for c in module.computations:
        ids = {i.name: next_id + n for n, i in enumerate(c.instructions)}
        next_id += len(ids)
        computations.append(
            {
                "name": c.name,
                "instructions": [_instruction_message(i, ids, computation_ids) for i in c.instructions],
                "program_shape": _program_shape(c, ()),
                "id": computation_ids[c.name],
                "root_id": ids[c.root],
            }
        )
    message = {
        "name": module.name,
        "entry_computation_name": module.entry,
        "computations": computations,
        "host_program_shape": _program_shape(module.entry_computation, module.parameter_names),
        "id": 0,
        "entry_computation_id": computation_ids[module.entry],
    }
    return write_message(message, MODULE)


def write(module: Module, path: str | Path) -> None:
    """Write the module as an `.hlo.pb` file."""
    Path(path).write_bytes(to_bytes(module))


def _program_shape(computation: Computation, names: tuple[str, ...]) -> Message:
    return {
        "parameters": [_shape_message(p.shape) for p in computation.parameters],
        "result": _shape_message(computation.by_name[computation.root].shape),
        "parameter_names": list(names) or [p.name for p in computation.parameters],
    }


def _shape_message(shape: AnyShape) -> Message:
    if isinstance(shape, TupleShape):
        return {"element_type": TUPLE, "tuple_shapes": [_shape_message(s) for s in shape.elements]}
    if shape.dtype not in _NUMBER:
        raise InvalidModel(f"HLO has no element type for {shape.dtype.name}")
    layout = shape.layout or tuple(reversed(range(len(shape.dims))))
    return {
        "element_type": _NUMBER[shape.dtype],
        "dimensions": list(shape.dims),
        "layout": {"minor_to_major": list(layout)},
        "is_dynamic_dimension": [0] * len(shape.dims),
    }


def _instruction_message(
    i: Instruction, ids: Mapping[str, int], computations: Mapping[str, int]
) -> Message:
    message: Message = {
        "name": i.name,
        "opcode": i.opcode,
        "shape": _shape_message(i.shape),
        "metadata": {k: v for k, v in vars(i.metadata).items() if v},
        "id": ids[i.name],
        "operand_ids": [ids[o] for o in i.operands],
        "called_computation_ids": [computations[c] for c in i.called],
        "unread": i.unread,
    }
    for attribute, value in i.attributes.items():
        match attribute:
            case "number":
                message["parameter_number"] = value
            case "literal":
                message["literal"] = _literal_message(value, i.array)
            case "dot_dimensions":
                message["dot_dimension_numbers"] = {k: list(v) for k, v in vars(value).items()}
            case "window":
                message["window"] = {"dimensions": [_window_dimension_message(d) for d in value]}
            case "dimension_numbers":
                message["convolution_dimension_numbers"] = vars(value)
            case "slice":
                keys = ("start", "limit", "stride")
                message["slice_dimensions"] = [dict(zip(keys, r, strict=True)) for r in value]
            case "dimensions":
                message["dimensions"] = list(value)
            case "called" | "comparison_type" if not value or attribute == "called":
                pass
            case _:
                message[attribute] = value
    return message


def _literal_message(value: ops.Bits, shape: Shape) -> Message:
    name = _LITERAL_FIELD[value.dtype]
    words = value.data
    if LITERAL[_LITERAL_NUMBER[name]].element == "varint":
        numbers = words.view(value.dtype.numpy).ravel().tolist()
        data = b"".join(_write_varint(int(v)) for v in numbers)
    else:
        data = words.astype(words.dtype.newbyteorder("<")).tobytes()
    # Elements are row-major whatever the instruction's layout is, and the literal says so.
    return {"shape": _shape_message(Shape(value.dtype, shape.dims)), name: data}
