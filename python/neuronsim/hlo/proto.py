"""`HloModuleProto` in and out.

Fields of an instruction that neuronsim does not interpret are kept as they are and written back.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from neuronsim import ops
from neuronsim.errors import InaccessibleFile, InvalidModel, NeuronSimError
from neuronsim.hlo import element_types, parse
from neuronsim.hlo.attribute_names import ATTRIBUTES
from neuronsim.hlo.attributes import BY_NAME, FRONTEND
from neuronsim.hlo.fields import (
    ALIAS_KINDS,
    COMPUTATION_HEAD,
    COMPUTATIONS,
    INSTRUCTION,
    INSTRUCTION_HEAD,
    INSTRUCTIONS,
    MODULE,
    MODULE_HEAD,
    enumerated,
)
from neuronsim.hlo.module import (
    TOKEN,
    Alias,
    AnyShape,
    Computation,
    Instruction,
    Literal,
    Metadata,
    Module,
    Shape,
    TupleShape,
    make_computation,
    make_module,
    row_major,
)
from neuronsim.hlo.opcodes import NOTED
from neuronsim.hlo.other_formats import name_format
from neuronsim.hlo.shapes import check_shape
from neuronsim.hlo.wire import (
    Field,
    Message,
    field_extent,
    parts,
    read_field,
    read_message,
    write_length,
    write_message,
)
from neuronsim.processor import pinned
from neuronsim.whole_files import open_regular, read_rest, replacing

_Origins: TypeAlias = dict[int, tuple[str, int]]  # the file and line of stack frames by number

# ---- reading a module --------------------------------------------------------------------------


@pinned
def read(path: str | Path) -> Module:
    """The module in a file: an `HloModuleProto`, an `HloProto` that wraps one, or HLO text.

    Its constants are copies: what becomes of the file later does not matter. Raises InvalidModel, with
    the file's name, if it is not one, and UnsupportedType for element types that neuronsim does not
    have.
    """
    file = Path(path)
    try:
        with open_regular(file) as opened:
            start = opened.read(parse.LONGEST_START)
            _check_start(start, os.fstat(opened.fileno()).st_size, str(file))
            opened.seek(0)
            data = read_rest(opened, file)
    except InaccessibleFile as error:
        raise InvalidModel(f"cannot read the model {str(file)!r}: {error.reason}") from error
    except InvalidModel as error:
        raise InvalidModel(f"{file}: {error}") from error
    try:
        return from_bytes(data)
    except NeuronSimError as error:
        raise type(error)(f"{file}: {error}") from error


def _check_start(start: bytes, size: int, file: str) -> None:
    """Raises InvalidModel for what cannot be a module, before all of a large file is read."""
    _refuse_other_formats(start, file)
    if start and not parse.is_text(start) and not _is_other_text(start):
        try:
            *_, end = field_extent(memoryview(start), 0)
        except InvalidModel as error:
            kind = f"of no kind that neuronsim knows, it begins with {start[:12].hex(' ')}"
            raise InvalidModel(f"not an HloModuleProto: the file is {kind}") from error
        if end > size:
            raise InvalidModel("not an HloModuleProto: the file ends inside a field")


@pinned
def from_bytes(data: bytes | memoryview) -> Module:
    """The module of serialized `HloModuleProto` or `HloProto` bytes, or of HLO text.

    Raises InvalidModel, and UnsupportedType for element types that neuronsim does not have.
    """
    _refuse_other_formats(data[: parse.LONGEST_START], content=data)
    if parse.is_text(bytes(data[: parse.LONGEST_START])):
        return parse.from_text(parse.decode(bytes(data)))
    view = memoryview(data)
    try:
        return _module(_wrapped(view) or view)
    except InvalidModel as error:
        is_text = len(view) > 0 and _is_other_text(bytes(view[: parse.LONGEST_START]))
        reason = "it is text, and text of HLO begins with HloModule" if is_text else error
        raise InvalidModel(f"not an HloModuleProto: {reason}") from error


def _is_other_text(start: bytes) -> bool:
    """Whether the beginning of a file is printable ASCII."""
    return all(c in b"\t\n\r" or 32 <= c < 127 for c in start)


_MLIR = re.compile(rb"ML\xefR|\s*(#loc|(builtin\.)?module\b[^\n]*\{|func\.func\b)")


def _refuse_other_formats(
    start: bytes | memoryview, file: str = "", content: bytes | memoryview | None = None
) -> None:
    """Raises InvalidModel for what is known to be no module."""
    if _MLIR.match(bytes(start)):
        raise InvalidModel(
            "not an HloModuleProto but MLIR, such as StableHLO: neuronsim.compile(file) takes it"
        )
    if not parse.is_text(bytes(start)) and (found := name_format(bytes(start), file, content)):
        raise InvalidModel(f"not an HloModuleProto but {found}")


def _wrapped(view: memoryview) -> memoryview | None:
    """The module inside an `HloProto`, whose field 1 it is; in a module field 1 is the name."""
    try:
        number, wire, value, _ = read_field(view, 0)
        if (number, wire) != (1, 2) or not any(parts(value, COMPUTATIONS)):
            return None
    except InvalidModel:
        return None
    module: memoryview = value
    return module


def _heads(views: Iterator[memoryview], table: Mapping[int, Field], what: str) -> dict[int, Message]:
    """What tells messages apart, by id."""
    found: dict[int, Message] = {}
    for view in views:
        head = read_message(view, table, keep_unread=False)
        id_ = head.get("id", 0)
        if id_ in found:
            raise InvalidModel(f"two {what} have the same id {id_}")
        found[id_] = head
    return found


def _module(view: memoryview) -> Module:
    message = read_message(view, MODULE_HEAD, keep_unread=False)
    heads = _heads(parts(view, COMPUTATIONS), COMPUTATION_HEAD, "computations")
    if not heads:
        raise InvalidModel("it has no computations" if len(view) else "it is empty")
    names = {id_: c.get("name", f"computation.{id_}") for id_, c in heads.items()}
    entry: str = message.get("entry_computation_name", "")
    if "entry_computation_id" in message:
        entry = names.get(message["entry_computation_id"], entry)
    shape = message.get("host_program_shape", {})
    origins = _origins(message.get("stack_frame_index", {}))
    computations = [
        _computation(part, head.get("root_id", 0), names[id_], names, origins)
        for (id_, head), part in zip(heads.items(), parts(view, COMPUTATIONS), strict=True)
    ]
    layout = None
    if "result" in shape:
        parameters = tuple(map(_shape, shape.get("parameters", ())))
        layout = parameters, _shape(shape["result"])
    return make_module(
        message.get("name", "module"),
        entry,
        computations,
        parameter_names=tuple(shape.get("parameter_names", ())),
        input_output_alias=tuple(map(_alias, message.get("input_output_alias", {}).get("entries", ()))),
        entry_layout=layout,
    )


def _origins(message: Message) -> _Origins:
    """The file and line of each stack frame; none for what points outside of its table."""
    files, lines = message.get("file_names", ()), message.get("file_locations", ())
    found: _Origins = {}
    for number, frame in enumerate(message.get("stack_frames", ()), start=1):
        location = frame.get("location", 0)
        if 0 < location <= len(lines):
            file, line = lines[location - 1].get("file", 0), lines[location - 1].get("line", 0)
            if 0 < file <= len(files):
                found[number] = files[file - 1], line
    return found


def _alias(message: Message) -> Alias:
    return (
        tuple(message.get("output_index", ())),
        message.get("parameter_number", 0),
        tuple(message.get("parameter_index", ())),
        enumerated(message.get("kind", 0), ALIAS_KINDS, "alias kind"),
    )


def _computation(
    view: memoryview,
    root: int,
    name: str,
    computation_names: Mapping[int, str],
    origins: _Origins,
) -> Computation:
    names = {
        id_: head.get("name", f"{head.get('opcode')}.{id_}")
        for id_, head in _heads(
            parts(view, INSTRUCTIONS), INSTRUCTION_HEAD, f"instructions of {name}"
        ).items()
    }
    instructions = []
    for id_, part in zip(names, parts(view, INSTRUCTIONS), strict=True):
        try:
            message = read_message(part, INSTRUCTION, depth=2)
            metadata = _metadata(message.get("metadata", {}), origins)
            instructions.append(_instruction(message, names[id_], names, computation_names, metadata))
        except NeuronSimError as error:
            raise type(error)(f"{name}/{names[id_]}: {error}") from error
    if root not in names:
        raise InvalidModel(f"{name}: its root does not exist")
    return make_computation(name, instructions, names[root])


_NO_METADATA = Metadata()
# What every instruction has. Control dependencies order instructions and change no value.
_OF_ALL = frozenset(
    {"name", "opcode", "shape", "metadata", "literal", "id", "operand_ids", "called_computation_ids"}
    | {"frontend_attributes", "control_predecessor_ids", "unread"}
)
_HELD = {
    opcode: _OF_ALL.union(*(BY_NAME[a].fields for a in names if a in BY_NAME))
    for opcode, names in ATTRIBUTES.items()
}


def _instruction(
    message: Message,
    name: str,
    names: Mapping[int, str],
    computations: Mapping[int, str],
    metadata: Metadata,
) -> Instruction:
    opcode = message.get("opcode", "")
    for id_ in message.get("operand_ids", ()):
        if id_ not in names:
            raise InvalidModel(f"operand {id_} is no instruction of the computation")
    called = message.get("called_computation_ids", ())
    for id_ in called:
        if id_ not in computations:
            raise InvalidModel(f"called computation {id_} does not exist")
    shape = _shape(message.get("shape", {}))
    attributes: dict[str, Any] = {}
    if called:
        attributes["called"] = tuple(computations[c] for c in called)
    for attribute in ATTRIBUTES.get(opcode, ()):
        if attribute == "literal":
            attributes[attribute] = _literal(message.get("literal"), shape)
        elif attribute in BY_NAME:
            value = BY_NAME[attribute].read(message)
            if value or (opcode, attribute) not in NOTED:
                attributes[attribute] = value
        elif not called:
            raise InvalidModel(f"{opcode} calls no computation")
    if frontend := FRONTEND.read(message):
        attributes["frontend_attributes"] = frontend
    return Instruction(
        name=name,
        opcode=opcode,
        shape=shape,
        operands=tuple(names[id_] for id_ in message.get("operand_ids", ())),
        attributes=attributes,
        metadata=metadata,
        unread=_unread(message, _HELD.get(opcode, _OF_ALL)),
    )


def _unread(message: Message, held: frozenset[str]) -> bytes:
    """The fields that the opcode's attributes do not hold, as protobuf."""
    rest = {name: value for name, value in message.items() if name not in held}
    if "precision_config" in message and "precision_config" in held:
        precision = {k: v for k, v in message["precision_config"].items() if k != "algorithm"}
        if precision:  # two parts of a message are joined when they are read
            rest["precision_config"] = precision
    known = write_message(rest, INSTRUCTION) if rest else b""
    unread: bytes = message.get("unread", b"")
    return known + unread


def _metadata(message: Message, origins: _Origins) -> Metadata:
    if not message:
        return _NO_METADATA
    known = {k: v for k, v in message.items() if k not in ("unread", "stack_frame_id")}
    file, line = origins.get(message.get("stack_frame_id", 0), ("", 0))
    if file and not known.get("source_file"):
        known |= {"source_file": file, "source_line": line}
    return Metadata(**known)


def _shape(message: Message) -> AnyShape:
    number = message.get("element_type", 0)
    if number == element_types.TOKEN:
        return TOKEN
    if number == element_types.TUPLE:
        return TupleShape(tuple(_shape(s) for s in message.get("tuple_shapes", ())))
    return check_shape(
        element_types.by_number(number).dtype,
        tuple(message.get("dimensions", ())),
        is_dynamic=any(message.get("is_dynamic_dimension", ())),
        layout=tuple(message.get("layout", {}).get("minor_to_major", ())),
    )


def _literal(message: Message | None, shape: AnyShape) -> Literal:
    if message is None:
        raise InvalidModel("it has no literal")
    if isinstance(shape, TupleShape):
        literals = message.get("tuple_literals", ())
        if len(literals) != len(shape.elements):
            raise InvalidModel(
                f"its literal is a tuple of {len(literals)} elements, not {len(shape.elements)}"
            )
        return tuple(_literal(m, s) for m, s in zip(literals, shape.elements, strict=True))
    own = _shape(message["shape"]) if "shape" in message else shape
    if not isinstance(own, Shape) or own.type != shape.type:
        raise InvalidModel("its literal has another shape than the constant")
    field = element_types.BY_DTYPE[shape.dtype].literal_field
    data = message.get(field, np.zeros(0, shape.dtype.storage))
    if data.size != shape.size:
        raise InvalidModel(f"its literal holds {data.size} elements, {shape.type} has another count")
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


@pinned
def to_bytes(module: Module, *, wrap: bool = False) -> bytes:
    """The module as a serialized `HloModuleProto`, with fresh ids; `wrap` puts it into an `HloProto`.

    Raises InvalidModel for element types that HLO does not have (tfloat32 travels as
    `reduce-precision`, C9).
    """
    computation_ids = {c.name: n for n, c in enumerate(module.computations, start=1)}
    next_id = 1
    computations = []
    for c in module.computations:
        ids = {i.name: next_id + n for n, i in enumerate(c.instructions)}
        next_id += len(ids)
        own = [p.shape for p in c.parameters], c.by_name[c.root].shape
        computations.append(
            {
                "name": c.name,
                "instructions": [_instruction_message(i, ids, computation_ids) for i in c.instructions],
                "program_shape": _program_shape(*own, [p.name for p in c.parameters]),
                "id": computation_ids[c.name],
                "root_id": ids[c.root],
            }
        )
    names = module.parameter_names or tuple(p.name for p in module.parameters)
    parameters, result = module.program_shape
    message = {
        "name": module.name,
        "entry_computation_name": module.entry,
        "computations": computations,
        "host_program_shape": _program_shape(list(parameters), result, list(names)),
        "id": 0,
        "entry_computation_id": computation_ids[module.entry],
    }
    if module.input_output_alias:
        entries = [_alias_message(alias) for alias in module.input_output_alias]
        message["input_output_alias"] = {"entries": entries}
    data = write_message(message, MODULE)
    return write_length(1, data) if wrap else data


def write(module: Module, path: str | Path) -> None:
    """Write the module as an `.hlo.pb` file. Raises InaccessibleFile if it cannot be written."""
    data = to_bytes(module)
    with replacing(path) as file:
        file.write(data)


def _alias_message(alias: Alias) -> Message:
    output, number, parameter, kind = alias
    kinds = {name: number for number, name in ALIAS_KINDS.items()}
    return {
        "output_index": list(output),
        "parameter_number": number,
        "parameter_index": list(parameter),
        "kind": kinds[kind],
    }


def _program_shape(parameters: list[AnyShape], result: AnyShape, names: list[str]) -> Message:
    return {
        "parameters": [_shape_message(s) for s in parameters],
        "result": _shape_message(result),
        "parameter_names": names,
    }


def _shape_message(shape: AnyShape) -> Message:
    if isinstance(shape, TupleShape):
        if shape.is_token:
            return {"element_type": element_types.TOKEN}
        elements = [_shape_message(s) for s in shape.elements]
        return {"element_type": element_types.TUPLE, "tuple_shapes": elements}
    if shape.dtype not in element_types.BY_DTYPE:
        raise InvalidModel(f"HLO has no element type for {shape.dtype.name}")
    layout = shape.layout or row_major(len(shape.dims))
    return {
        "element_type": element_types.BY_DTYPE[shape.dtype].number,
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
        "metadata": {k: v for k, v in dataclasses.asdict(i.metadata).items() if v},
        "id": ids[i.name],
        "operand_ids": [ids[o] for o in i.operands],
        "called_computation_ids": [computations[c] for c in i.called],
        "unread": i.unread,
    }
    for attribute, value in i.attributes.items():
        if attribute == "literal":
            message["literal"] = _literal_message(value)
        elif attribute == FRONTEND.name:
            message |= FRONTEND.write(value)
        elif attribute != "called":
            message |= BY_NAME[attribute].write(value)
    return message


def _literal_message(value: Literal) -> Message:
    if not isinstance(value, ops.Bits):
        literals = [_literal_message(v) for v in value]
        shape = {"element_type": element_types.TUPLE, "tuple_shapes": [m["shape"] for m in literals]}
        return {"shape": shape, "tuple_literals": literals}
    row = element_types.BY_DTYPE.get(value.dtype)
    if row is None:
        raise InvalidModel(f"HLO has no element type for {value.dtype.name}")
    # Elements are row-major whatever the instruction's layout is, and the literal says so.
    return {
        "shape": _shape_message(Shape(value.dtype, value.data.shape)),
        row.literal_field: np.ascontiguousarray(value.data),
    }
