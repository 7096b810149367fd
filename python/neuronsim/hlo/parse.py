"""HLO text in: both dialects of XLA, with and without sigils, operand shapes, layouts and metadata.

>>> module = from_text("HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }")
>>> module.root.opcode, module.root.operands
('negate', ('x',))
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from neuronsim import ops
from neuronsim.errors import InvalidModel, nearest
from neuronsim.hlo import element_types, lexer
from neuronsim.hlo.asynchronous import wrapped, written_half
from neuronsim.hlo.attribute_kinds import REQUIRED
from neuronsim.hlo.attribute_names import ATTRIBUTES
from neuronsim.hlo.attributes import BY_NAME, FRONTEND, KEYS
from neuronsim.hlo.lexer import (
    Cursor,
    accept,
    accept_word,
    expect,
    fail,
    found,
    integer,
    integers,
    items,
    located,
    name,
    peek,
    skip_group,
    skip_space,
    skip_value,
    string,
    take,
)
from neuronsim.hlo.module import (
    MAX_TUPLE_DEPTH,
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
    fresh_name,
    make_computation,
    make_module,
)
from neuronsim.hlo.opcodes import NOTED
from neuronsim.hlo.parse_literal import parse_array
from neuronsim.hlo.shapes import check_shape
from neuronsim.processor import pinned

MAX_DEPTH = 64
KNOWN_TUPLES = 4  # tuple shapes that are recognised by their text
_NO_METADATA = Metadata()

_TYPE = re.compile(r"([a-z][a-z0-9]*)\[")
_OPCODE = re.compile(r"[a-z][a-z0-9\-]*")
_BOUND = re.compile(r"<=|\?")
_LAYOUT = re.compile(r"\{[\s]*[0-9:}]")
_ROW = re.compile(r"[0-9]+[ \t]")
# Tables of where instructions come from, which XLA prints before the computations.
_ORIGIN_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")

# What changes no value, or repeats what the operands and the shape say.
_IGNORED = frozenset(
    {"sharding", "control-predecessors", "statistics", "original_value", "origin", "operand_precision"}
    | {"parameter_replication", "backend_config", "constrain_layout", "result_accuracy"}
    | {"operand_layout_constraints", "custom_call_has_side_effect", "api_version", "padding_type"}
    | {"output_to_operand_aliasing", "schedule", "custom_call_schedule", "mesh"}
    | {"async_execution_thread", "execution_thread"}
)


@dataclass
class _Reading:
    """The computations found so far: an attribute may hold one in place of its name."""

    computations: list[Computation] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    depth: int = 0


LONGEST_START = 4096  # bytes in which a file of text shows itself


def is_text(data: bytes) -> bool:
    """Whether a file is HLO text rather than protobuf."""
    return data[:LONGEST_START].lstrip().startswith((b"HloModule", b"//", b"/*"))


def decode(data: bytes) -> str:
    """The text of a file; bytes that are not UTF-8 can only stand in strings and are kept."""
    return data.decode("utf-8", "surrogateescape")


@pinned
def from_text(text: str) -> Module:
    """The module of HLO text as XLA prints it, in any dialect that keeps names and constants.

    Raises InvalidModel with the line and column, and UnsupportedType for element types that neuronsim
    does not have.
    """
    c, reading = Cursor(text), _Reading()
    expect(c, "HloModule")
    module_name = "" if peek(c) == "," else name(c)
    aliases: tuple[Alias, ...] = ()
    layout = None
    while accept(c, ","):
        key = lexer.key(c)
        expect(c, "=")
        if key == "input_output_alias":
            aliases = tuple(items(c, "{", "}", _alias))
        elif key == "entry_computation_layout":
            expect(c, "{")
            layout = _signature(c)
            expect(c, "}")
        else:
            skip_value(c)
    entry = _computations(c, reading)
    return make_module(
        module_name,
        entry,
        _with_unique_names(reading.computations, entry),
        input_output_alias=aliases,
        entry_layout=layout,
    )


def _computations(c: Cursor, reading: _Reading) -> str:
    """All computations of a module; gives the entry's name."""
    entries: list[str] = []
    while peek(c):
        if any(accept_word(c, table) for table in _ORIGIN_TABLES):
            _skip_rows(c)
            continue
        is_entry = accept_word(c, "ENTRY")
        found_name = _computation(c, reading)
        if is_entry:
            entries.append(found_name)
    if not entries and len(reading.computations) == 1:
        return reading.computations[0].name
    if len(entries) != 1:
        fail(c, f"the module has {len(entries)} computations marked ENTRY, one is expected")
    return entries[0]


def _with_unique_names(computations: list[Computation], entry: str) -> list[Computation]:
    """Text may use a name once in each computation, a file only once; the entry keeps its names."""
    taken: set[str] = set()
    found = {}
    for computation in sorted(computations, key=lambda x: x.name != entry):
        new = {i.name: fresh_name(i.name, taken) for i in computation.instructions}
        found[computation.name] = computation.renamed(new)
    return [found[computation.name] for computation in computations]


def _skip_rows(c: Cursor) -> None:
    skip_space(c)
    while _ROW.match(c.text, c.at):
        end = c.text.find("\n", c.at)
        c.at = len(c.text) if end < 0 else end
        skip_space(c)


# ---- shapes --------------------------------------------------------------------------------------


def parse_shape(c: Cursor, depth: int = 0) -> AnyShape:
    """A shape with or without a layout."""
    if depth > MAX_TUPLE_DEPTH:
        fail(c, f"tuples are nested deeper than {MAX_TUPLE_DEPTH}: put their arrays into one tuple")
    is_tuple = peek(c) == "("
    start = c.at
    if is_tuple:
        for text, known in c.tuples if depth == 0 else ():
            if c.text.startswith(text, start):
                c.at += len(text)
                return known
        elements = items(c, "(", ")", lambda inner: parse_shape(inner, depth + 1))
        with located(Cursor(c.text, start)):
            shape = TupleShape(tuple(elements))
        if depth == 0:
            c.tuples[:] = [(c.text[start : c.at], shape), *c.tuples[: KNOWN_TUPLES - 1]]
        return shape
    kind = take(c, _TYPE, "a shape")[1]
    if kind == "token":
        expect(c, "]")
        return TOKEN
    is_dynamic = False
    dims: list[int] = []
    while not accept(c, "]"):
        if dims:
            expect(c, ",")
        skip_space(c)
        bound = _BOUND.match(c.text, c.at)
        if bound:
            is_dynamic = True
            c.at = bound.end()
        dims.append(0 if bound and bound[0] == "?" else integer(c))
    layout = _layout(c)
    with located(Cursor(c.text, start)):
        row = element_types.by_name(kind)
        return check_shape(row.dtype, tuple(dims), is_dynamic=is_dynamic, layout=layout)


def _layout(c: Cursor) -> tuple[int, ...]:
    """`{1,0}`, perhaps with tiles or a memory space after a colon, which change no value."""
    at = c.at
    skip_space(c)
    if not _LAYOUT.match(c.text, c.at):  # it is the brace of a body
        c.at = at
        return ()
    expect(c, "{")
    order: list[int] = []
    while peek(c) not in (":", "}"):
        if order:
            expect(c, ",")
        order.append(integer(c))
    if accept(c, ":"):
        while peek(c) != "}":
            if not skip_value(c) and not accept(c, ","):
                fail(c, f"'}}' is expected, not {found(c)}")
    expect(c, "}")
    return tuple(order)


def _signature(c: Cursor) -> tuple[tuple[AnyShape, ...], AnyShape]:
    """`(f32[2], s32[])->f32[2]`."""
    parameters = tuple(items(c, "(", ")", parse_shape))
    expect(c, "->")
    return parameters, parse_shape(c)


def _alias(c: Cursor) -> Alias:
    """`{0}: (1, {}, may-alias)`."""
    output = integers(c)
    expect(c, ":")
    expect(c, "(")
    number = integer(c)
    expect(c, ",")
    index = integers(c)
    kind = "may-alias"
    if accept(c, ","):
        kind = name(c)
    expect(c, ")")
    if kind not in ("may-alias", "must-alias"):
        fail(c, f"{kind!r} is neither may-alias nor must-alias")
    return output, number, index, kind.upper().replace("-", "_")


# ---- computations and instructions ---------------------------------------------------------------


def _computation(c: Cursor, reading: _Reading) -> str:
    given = "computation" if peek(c) in ("{", "(") else name(c)
    if peek(c) == "(":
        items(c, "(", ")", _declared_parameter)
        expect(c, "->")
        parse_shape(c)
    found_name = _body(c, reading, given)
    while accept(c, ","):
        lexer.key(c)
        expect(c, "=")
        skip_value(c)
    return found_name


def _declared_parameter(c: Cursor) -> None:
    name(c)
    expect(c, ":")
    parse_shape(c)


def _body(c: Cursor, reading: _Reading, given: str) -> str:
    """`{ instructions }`; gives the computation's name."""
    reading.depth += 1
    if reading.depth > MAX_DEPTH:
        fail(c, f"computations are nested deeper than {MAX_DEPTH}")
    start = c.at
    expect(c, "{")
    instructions: dict[str, Instruction] = {}
    root = ""
    while not accept(c, "}"):
        is_root = accept_word(c, "ROOT")
        at = c.at
        i = _instruction(c, reading, instructions)
        if i.name in instructions:
            fail(c, f"two instructions of {given} are named {i.name!r}", at)
        if is_root and root:
            fail(c, f"{given} has two roots, {root!r} and {i.name!r}", at)
        root = i.name if is_root else root
        instructions[i.name] = i
    if not instructions:
        fail(c, f"the computation {given!r} is empty", start)
    if reading.depth == 1 and given != "computation":
        if given in reading.taken:
            fail(c, f"two computations are named {given!r}", start)
        reading.taken.add(given)
    else:
        given = fresh_name(given, reading.taken)
    with located(Cursor(c.text, start)):
        body = make_computation(given, instructions.values(), root or next(reversed(instructions)))
    reading.computations.append(body)
    reading.depth -= 1
    return given


def _instruction(c: Cursor, reading: _Reading, earlier: Mapping[str, Instruction]) -> Instruction:
    own_name = name(c)
    expect(c, "=")
    shape = parse_shape(c)
    start = c.at
    written = take(c, _OPCODE, "an opcode")[0]
    base, half = written_half(written) if written not in ops.OPCODES else ("", "")
    opcode = base if half == "async-start" else half or written
    raw: dict[str, Any] = {}
    operands: tuple[str, ...] = ()
    if opcode == "parameter":
        expect(c, "(")
        raw["number"] = integer(c)
        expect(c, ")")
    elif opcode == "constant":
        expect(c, "(")
        raw["literal"] = _literal(c, shape)
        expect(c, ")")
    else:
        given = items(c, "(", ")", _operand)
        operands = tuple(earlier[o].name if o in earlier else o for o in given)  # one string each
    metadata = _NO_METADATA
    frontend: dict[str, str] = {}
    is_known = opcode in ATTRIBUTES or opcode in ops.OPCODES
    while accept(c, ","):
        at = c.at
        key = lexer.key(c)
        expect(c, "=")
        if key == "metadata":
            metadata = _metadata(c)
        elif key in FRONTEND.keys:
            frontend = FRONTEND.keys[key](c)
        elif key in _CALLED:
            value = _called(c, reading, f"{own_name}.{key}")
            raw.setdefault("called", {})[key] = value
        elif key in _IGNORED and key not in ATTRIBUTES.get(opcode, ()):
            skip_value(c)
        elif key in KEYS and is_known:
            raw[key] = KEYS[key](c)
        elif is_known and opcode != "custom-call":
            fail(c, f"{opcode} has no attribute {key!r}{nearest(key, KEYS)}", at)
        else:
            skip_value(c)
    with located(Cursor(c.text, start)):
        attributes = _attributes(opcode, raw, operands, earlier)
    if frontend:
        attributes["frontend_attributes"] = frontend
    found = Instruction(own_name, opcode, shape, operands, attributes, metadata)
    return _wrapped(found, base, reading) if half == "async-start" else found


def _wrapped(i: Instruction, base: str, reading: _Reading) -> Instruction:
    """An async-start whose computation text leaves out."""
    given = fresh_name("async_wrapped", reading.taken)
    reading.computations.append(wrapped(i, base, given))
    return i.replace(opcode="async-start", attributes={"called": (given,)})


def _operand(c: Cursor) -> str:
    """A name, perhaps after its shape."""
    if accept(c, "..."):
        fail(c, "the text leaves operands out (`...`): print it with all of them")
    if peek(c) == "(" or _TYPE.match(c.text, c.at):
        parse_shape(c)
        if peek(c) in (",", ")"):
            fail(c, "the text has no names of operands: print it with them")
    return name(c)


def _literal(c: Cursor, shape: AnyShape) -> Literal:
    if isinstance(shape, Shape):
        if peek(c) and _TYPE.match(c.text, c.at):
            parse_shape(c)  # older XLA repeats it here
        return parse_array(c, shape)
    if peek(c) == "{":
        return parse_array(c, Shape(element_types.BY_NAME["f32"].dtype))  # can only be elided
    elements = iter(shape.elements)

    def element(inner: Cursor) -> Literal:
        following = next(elements, None)
        if following is None:
            fail(inner, f"the literal has more than {len(shape.elements)} elements")
        return _literal(inner, following)

    found_elements = tuple(items(c, "(", ")", element))
    if len(found_elements) != len(shape.elements):
        fail(c, f"the literal has {len(found_elements)} elements, not {len(shape.elements)}")
    return found_elements


def _metadata(c: Cursor) -> Metadata:
    values: dict[str, Any] = {}
    expect(c, "{")
    while not accept(c, "}"):
        key = lexer.key(c, "a field of metadata")
        expect(c, "=")
        if peek(c) == '"':
            values[key] = string(c).decode("utf-8", "replace")
        elif peek(c) == "{":
            skip_group(c)
        else:
            word = lexer.word(c, "a value")
            values[key] = int(word) if word.isascii() and word.isdecimal() and len(word) < 10 else 0
        accept(c, ",")
    texts = {
        k: values[k] for k in ("op_type", "op_name", "source_file") if isinstance(values.get(k), str)
    }
    line = values.get("source_line", 0)
    return Metadata(**texts, source_line=line if isinstance(line, int) else 0)


# ---- attributes ------------------------------------------------------------------------

# What names computations, in the order in which the file's list of them has it.
_CALLED = (
    *("to_apply", "calls", "body", "condition", "select", "scatter", "true_computation"),
    *("false_computation", "branch_computations", "called_computations"),
)


def _called(c: Cursor, reading: _Reading, own: str) -> tuple[str, ...]:
    """A computation's name, a computation in place of its name, or a list of them in braces."""

    def one(inner: Cursor) -> str:
        return _body(inner, reading, own) if peek(inner) == "{" else name(inner)

    if peek(c) != "{":
        return (name(c),)
    # A list holds names or bodies; a body holds instructions, `name = ...` or `ROOT name = ...`.
    ahead = Cursor(c.text, c.at + 1)
    is_body = peek(ahead) not in ("{", "}") and (
        accept_word(ahead, "ROOT") or (bool(name(ahead)) and peek(ahead) == "=")
    )
    return (one(c),) if is_body else tuple(items(c, "{", "}", one))


_IN_BRACKETS = ("number", "literal")  # of a parameter and a constant


def _attributes(
    opcode: str, raw: dict[str, Any], operands: tuple[str, ...], earlier: Mapping[str, Instruction]
) -> dict[str, Any]:
    """The attributes that an opcode carries, from what its line of text says."""
    attributes: dict[str, Any] = {}
    called = raw.pop("called", {})
    if called:
        attributes["called"] = tuple(n for key in _CALLED for n in called.get(key, ()))
    for attribute in ATTRIBUTES.get(opcode, ()):
        if attribute == "called":
            if not called:
                raise InvalidModel(f"{opcode} calls no computation")
            continue
        if attribute in _IN_BRACKETS:
            attributes[attribute] = raw.pop(attribute)
            continue
        row = BY_NAME[attribute]
        if not raw.keys().isdisjoint(row.keys):
            attributes[attribute] = row.take(raw)
        elif attribute == "comparison_type":
            attributes[attribute] = _comparison_type(operands, earlier)
        elif row.absent is REQUIRED:
            raise InvalidModel(f"{opcode} needs the attribute {next(iter(row.keys))!r}")
        elif (opcode, attribute) not in NOTED:
            attributes[attribute] = row.absent
    for key in raw:
        if opcode != "custom-call":
            raise InvalidModel(f"{opcode} has no attribute {key!r}")
    return attributes


def _comparison_type(operands: tuple[str, ...], earlier: Mapping[str, Instruction]) -> str:
    """What XLA does not print: the comparison that the operands' type implies."""
    operand = earlier.get(operands[0]) if operands else None
    if operand is None or not isinstance(operand.shape, Shape):
        return ""
    kind = operand.shape.dtype.kind
    return {"signed": "SIGNED", "unsigned": "UNSIGNED", "bool": "UNSIGNED"}.get(kind, "FLOAT")
