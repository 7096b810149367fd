"""HLO text out, in the two dialects of XLA.

The long dialect marks names with `%`, gives computations their signature and operands their shapes; the
short one (XLA's ShortParsable) has none of these. `parse` reads both back, and so does XLA.

>>> from neuronsim import dtypes
>>> from neuronsim.hlo.module import Shape
>>> print(format_shape(Shape(dtypes.bfloat16, (2, 3))))
bf16[2,3]{1,0}
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.errors import InvalidModel
from neuronsim.hlo import module as ir
from neuronsim.hlo.attributes import BY_NAME, FRONTEND
from neuronsim.hlo.element_types import BY_DTYPE
from neuronsim.hlo.lexer import braces, legal_name, quoted
from neuronsim.hlo.module import AnyShape, Computation, Instruction, Metadata, Module, TupleShape
from neuronsim.hlo.parse_literal import mantissa_mask
from neuronsim.processor import pinned

Dialect = Literal["long", "short"]
LARGE = 32  # elements from which `to_text` may shorten a constant


def format_shape(shape: AnyShape) -> str:
    """A shape with its layout. Raises InvalidModel for an element type that HLO does not have."""
    if isinstance(shape, TupleShape):
        return _format_tuple(shape)
    if shape.dtype not in BY_DTYPE:
        raise InvalidModel(f"HLO has no element type for {shape.dtype.name}")
    text = f"{BY_DTYPE[shape.dtype].name}[{','.join(map(str, shape.dims))}]"
    if not shape.dims:
        return text
    layout = shape.layout or ir.row_major(len(shape.dims))
    return f"{text}{{{','.join(map(str, layout))}}}"


@lru_cache(maxsize=16)  # every reader of a tuple repeats its shape
def _format_tuple(shape: TupleShape) -> str:
    return "token[]" if shape.is_token else f"({', '.join(map(format_shape, shape.elements))})"


@pinned
def to_text(module: Module, *, dialect: Dialect = "long", print_large_constants: bool = True) -> str:
    """The module as HLO text; large constants may be shortened to `{...}` for reading."""
    header = f"HloModule {legal_name(module.name)}"
    if module.input_output_alias:
        header += f", input_output_alias={{ {', '.join(map(_alias, module.input_output_alias))} }}"
    parameters, result = module.program_shape
    given = ", ".join(map(format_shape, parameters))
    header += f", entry_computation_layout={{({given})->{format_shape(result)}}}"
    parts = [header]
    for c in module.computations:
        parts.append(_computation(c, c.name == module.entry, dialect, print_large_constants))
    return "\n\n".join(parts) + "\n"


def _alias(alias: ir.Alias) -> str:
    output, number, parameter, kind = alias
    return f"{braces(output)}: ({number}, {braces(parameter)}, {kind.lower().replace('_', '-')})"


def _computation(c: Computation, is_entry: bool, dialect: Dialect, large: bool) -> str:
    head = f"{'ENTRY ' if is_entry else ''}{_name(c.name, dialect)}"
    if dialect == "long":
        named = (f"{legal_name(p.name)}: {_without_layout(p.shape)}" for p in c.parameters)
        head += f" ({', '.join(named)}) -> {_without_layout(c.by_name[c.root].shape)}"
    lines = [f"{head} {{"]
    for i in c.instructions:
        root = "ROOT " if i.name == c.root else ""
        line = format_instruction(i, c.by_name, dialect=dialect, print_large_constants=large)
        lines.append(f"  {root}{line}")
    return "\n".join([*lines, "}"])


def _without_layout(shape: AnyShape) -> str:
    return re.sub(r"\{[0-9,]*\}", "", format_shape(shape))


def format_instruction(
    i: Instruction,
    by_name: Mapping[str, Instruction] | None = None,
    *,
    dialect: Dialect = "long",
    print_large_constants: bool = True,
) -> str:
    """One line of HLO text. The long dialect prints the shapes of operands that `by_name` has."""
    operands = by_name or {}
    if i.opcode == "parameter":
        inside = str(i.attributes["number"])
    elif i.opcode == "constant":
        inside = format_literal(i.attributes["literal"], print_large_constants)
    else:
        shapes = operands if dialect == "long" else {}
        inside = ", ".join(
            f"{format_shape(shapes[o].shape)} {_name(o, dialect)}" if o in shapes else _name(o, dialect)
            for o in i.operands
        )
    extra = "".join(f", {text}" for text in _attributes(i, operands, dialect))
    return f"{_name(i.name, dialect)} = {format_shape(i.shape)} {i.opcode}({inside}){extra}"


def _name(name: str, dialect: Dialect) -> str:
    return f"%{legal_name(name)}" if dialect == "long" else legal_name(name)


# ---- attributes ----------------------------------------------------------------------------------


def _attributes(i: Instruction, operands: Mapping[str, Instruction], dialect: Dialect) -> list[str]:
    """The attributes of an instruction, in XLA's order: the computations it calls follow its own."""
    found = []
    for name, attribute in BY_NAME.items():
        if name in i.attributes and name != "backend_config":
            found += attribute.spell(i, i.attributes[name])
    if i.called:
        found += _called(i, operands, [_name(c, dialect) for c in i.called])
    if frontend := i.attributes.get("frontend_attributes"):
        found += FRONTEND.spell(i, frontend)
    origin = _metadata(i.metadata)
    if origin:
        found.append(f"metadata={{{origin}}}")
    if "backend_config" in i.attributes:
        found += BY_NAME["backend_config"].spell(i, i.attributes["backend_config"])
    return found


def _metadata(m: Metadata) -> str:
    texts = {"op_type": m.op_type, "op_name": m.op_name, "source_file": m.source_file}
    parts = [f"{key}={quoted(value)}" for key, value in texts.items() if value]
    if m.source_line > 0:
        parts.append(f"source_line={m.source_line}")
    return " ".join(parts)


def _called(i: Instruction, operands: Mapping[str, Instruction], names: list[str]) -> list[str]:
    match i.opcode, len(names):
        case "while", 2:
            return [f"condition={names[1]}, body={names[0]}"]
        case "select-and-scatter", 2:
            return [f"select={names[0]}, scatter={names[1]}"]
        case "conditional", _:
            selector = operands.get(i.operands[0]) if i.operands else None
            shapes = selector.shape.arrays() if selector is not None else ()
            is_pred = [s.dtype for s in shapes] == [dtypes.boolean]
            if is_pred and len(names) == 2:
                return [f"true_computation={names[0]}, false_computation={names[1]}"]
            return [f"branch_computations={{{', '.join(names)}}}"]
        case "fusion" | "async-start", 1:
            return [f"calls={names[0]}"]
        case "custom-call", _:
            return [f"called_computations={{{', '.join(names)}}}"]
        case _, 1:
            return [f"to_apply={names[0]}"]
        case _:
            return [f"calls={{{', '.join(names)}}}"]


# ---- constants -----------------------------------------------------------------------------------


@pinned
def format_literal(value: ir.Literal, large: bool = True) -> str:
    """A constant's value; beyond LARGE elements as `{...}` unless `large`."""
    if not isinstance(value, ops.Bits):
        return f"( {', '.join(format_literal(v, large) for v in value)} )"
    if value.data.size > LARGE and not large:
        return "{...}"
    parts = _elements(value)
    dims = value.data.shape
    for axis in reversed(range(len(dims))):
        inner = ("{", "}") if len(dims) == 1 else ("{ ", " }")
        parts = _join(parts, dims[axis], math.prod(dims[:axis]), *inner)
    return parts[0]


def _join(parts: list[str], size: int, count: int, open_: str, close: str) -> list[str]:
    rows = (parts[n * size : (n + 1) * size] for n in range(count))
    return [f"{open_}{', '.join(row)}{close}" for row in rows]


def _elements(value: ops.Bits) -> list[str]:
    """The elements in row-major order."""
    dtype = value.dtype
    words = np.ascontiguousarray(value.data).ravel()
    numbers = words.view(dtype.numpy)
    if dtype is dtypes.boolean and value.data.ndim:
        return ["1" if n else "0" for n in numbers]
    if dtype.kind == "bool":
        return ["true" if n else "false" for n in numbers]
    if dtype.kind == "complex":
        return [f"({_real(n.real, dtype)}, {_real(n.imag, dtype)})" for n in numbers.tolist()]
    if dtype.kind != "float":
        return list(map(str, numbers.tolist()))
    with np.errstate(invalid="ignore"):  # a signalling NaN is only looked at
        reals = numbers.astype(np.float64)
    texts = [_real(n, dtype) for n in reals.tolist()]
    for at in np.flatnonzero(np.isnan(reals)):
        texts[at] = _nan(words[at], dtype)
    return texts


def _real(number: float, dtype: dtypes.DType) -> str:
    """Nine digits identify a float32, seventeen a float64, and so every narrower value."""
    text = f"{number:.17g}" if dtype in (dtypes.float64, dtypes.complex128) else f"{number:.9g}"
    return "-0.0" if text == "-0" else text  # XLA takes a bare -0 for an integer


def _nan(word: Any, dtype: dtypes.DType) -> str:
    """With the bits of its mantissa where it is not the NaN that `nan` stands for."""
    bits = int(word.view(f"u{dtype.itemsize}"))
    mask = mantissa_mask(dtype)
    sign = "-" if bits >> (8 * dtype.itemsize - 1) else ""
    payload = bits & mask
    return f"{sign}nan" + (f"(0x{payload:x})" if payload != (mask + 1) // 2 else "")
