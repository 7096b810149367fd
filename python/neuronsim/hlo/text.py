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
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.errors import InvalidModel
from neuronsim.hlo import module as ir
from neuronsim.hlo.element_types import BY_DTYPE
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
    layout = shape.layout or tuple(reversed(range(len(shape.dims))))
    return f"{text}{{{','.join(map(str, layout))}}}"


@lru_cache(maxsize=16)  # every reader of a tuple repeats its shape
def _format_tuple(shape: TupleShape) -> str:
    return "token[]" if shape.is_token else f"({', '.join(map(format_shape, shape.elements))})"


@pinned
def to_text(module: Module, *, dialect: Dialect = "long", print_large_constants: bool = True) -> str:
    """The module as HLO text; large constants may be shortened to `{...}` for reading."""
    header = f"HloModule {_legal(module.name)}"
    if module.input_output_alias:
        header += f", input_output_alias={{ {', '.join(map(_alias, module.input_output_alias))} }}"
    parameters, result = module.program_shape
    header += f", entry_computation_layout={{{_signature(map(format_shape, parameters), result)}}}"
    parts = [header]
    for c in module.computations:
        parts.append(_computation(c, c.name == module.entry, dialect, print_large_constants))
    return "\n\n".join(parts) + "\n"


def _alias(alias: ir.Alias) -> str:
    output, number, parameter, kind = alias
    return f"{_braces(output)}: ({number}, {_braces(parameter)}, {kind.lower().replace('_', '-')})"


def _signature(parameters: Iterable[str], result: AnyShape) -> str:
    return f"({', '.join(parameters)})->{format_shape(result)}"


def _computation(c: Computation, is_entry: bool, dialect: Dialect, large: bool) -> str:
    head = f"{'ENTRY ' if is_entry else ''}{_name(c.name, dialect)}"
    if dialect == "long":
        named = (f"{_legal(p.name)}: {_without_layout(p.shape)}" for p in c.parameters)
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
    return f"%{_legal(name)}" if dialect == "long" else _legal(name)


def _legal(name: str) -> str:
    """A name as HLO text can have it: protobuf allows any characters."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.\-]*", name):
        return name
    coded = re.sub(r"[^A-Za-z0-9_.\-]", lambda m: f"_{ord(m[0]):x}_", name)
    return f"_{coded}"


def _braces(values: Iterable[Any]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def _quoted(text: str | bytes) -> str:
    """A string as XLA escapes it: octal for what is not printable ASCII."""
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    known = {10: "\\n", 13: "\\r", 9: "\\t", 34: '\\"', 39: "\\'", 92: "\\\\"}
    coded = (known.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in data)
    return f'"{"".join(coded)}"'


# ---- attributes ----------------------------------------------------------------------------------


def _attributes(i: Instruction, operands: Mapping[str, Instruction], dialect: Dialect) -> list[str]:
    """The attributes of an instruction, in XLA's order: the computations it calls come last."""
    found = []
    for attribute, spell in _SPELLED.items():
        if attribute in i.attributes:
            found += spell(i, i.attributes[attribute])
    if i.called:
        found += _called(i, operands, [_name(c, dialect) for c in i.called])
    if frontend := i.attributes.get("frontend_attributes"):
        listed = (f"{_legal(key)}={_quoted(value)}" for key, value in sorted(frontend.items()))
        found.append(f"frontend_attributes={_braces(listed)}")
    origin = _metadata(i.metadata)
    if origin:
        found.append(f"metadata={{{origin}}}")
    if i.attributes.get("backend_config"):
        found.append(f"backend_config={_quoted(i.attributes['backend_config'])}")
    return found


def _metadata(m: Metadata) -> str:
    texts = {"op_type": m.op_type, "op_name": m.op_name, "source_file": m.source_file}
    parts = [f"{key}={_quoted(value)}" for key, value in texts.items() if value]
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
        case "fusion", 1:
            return [f"calls={names[0]}"]
        case "custom-call", _:
            return [f"called_computations={{{', '.join(names)}}}"]
        case _, 1:
            return [f"to_apply={names[0]}"]
        case _:
            return [f"calls={{{', '.join(names)}}}"]


Spelling = Callable[[Instruction, Any], list[str]]


def _as(key: str) -> Spelling:
    return lambda i, value: [f"{key}={value}"]


def _unless(key: str, absent: Any) -> Spelling:
    return lambda i, value: [f"{key}={value}"] if value != absent else []


def _if_true(key: str) -> Spelling:
    return lambda i, value: [f"{key}=true"] if value else []


def _list(key: str) -> Spelling:
    return lambda i, value: [f"{key}={_braces(value)}"]


def _dimensions(i: Instruction, value: Sequence[int]) -> list[str]:
    if i.opcode == "iota":
        return [f"iota_dimension={d}" for d in value]
    if i.opcode == "all-to-all" and not value:
        return []  # the form that takes and gives a tuple
    return [f"dimensions={_braces(value)}"]


def _dot_dimensions(i: Instruction, value: ops.DotDimensions) -> list[str]:
    sides = ("lhs_batch", "lhs_contracting", "rhs_batch", "rhs_contracting")
    return [f"{s}_dims={_braces(getattr(value, s))}" for s in sides if getattr(value, s)]


def _record(optional: Sequence[str]) -> Spelling:
    """The lists of a gather or scatter and its index_vector_dim, in XLA's order."""

    def spell(i: Instruction, value: Any) -> list[str]:
        lists = {k: v for k, v in vars(value).items() if k != "index_vector_dim"}
        found = [f"{k}={_braces(v)}" for k, v in lists.items() if v or k not in optional]
        return [*found, f"index_vector_dim={value.index_vector_dim}"]

    return spell


def _slice(i: Instruction, value: Sequence[tuple[int, int, int]]) -> list[str]:
    """As XLA prints it: the strides are left out where all are 1."""
    strided = any(s != 1 for _, _, s in value)
    ranges = (f"[{a}:{b}:{s}]" if strided else f"[{a}:{b}]" for a, b, s in value)
    return [f"slice={{{', '.join(ranges)}}}"]


def _padding(i: Instruction, value: Sequence[tuple[int, int, int]]) -> list[str]:
    """As XLA prints it: the interior is left out where it is 0 in every dimension."""
    inner = any(interior for _, _, interior in value)
    rows = (f"{low}_{high}_{n}" if inner else f"{low}_{high}" for low, high, n in value)
    return [f"padding={'x'.join(rows)}"]


def _window(i: Instruction, window: Sequence[ops.WindowDimension]) -> list[str]:
    """As XLA prints it: what acts in no dimension is left out."""
    if not window:
        return []
    columns: list[tuple[str, list[object], object]] = [
        ("size", [d.size for d in window], None),
        ("stride", [d.stride for d in window], 1),
        ("pad", [f"{d.padding[0]}_{d.padding[1]}" for d in window], "0_0"),
        ("lhs_dilate", [d.base_dilation for d in window], 1),
        ("rhs_dilate", [d.window_dilation for d in window], 1),
        ("rhs_reversal", [int(d.reversal) for d in window], 0),
    ]
    parts = (
        f"{name}={'x'.join(map(str, values))}"
        for name, values, idle in columns
        if any(v != idle for v in values)
    )
    return [f"window={{{' '.join(parts)}}}"]


def _groups(i: Instruction, value: Sequence[Sequence[int]]) -> list[str]:
    return [f"replica_groups={{{','.join(map(_braces, value))}}}"]


def _pairs(i: Instruction, value: Sequence[Sequence[int]]) -> list[str]:
    return [f"source_target_pairs={{{','.join(map(_braces, value))}}}"]


def _comparison_type(i: Instruction, value: str) -> list[str]:
    """Printed where it is not what the operands' type implies."""
    return [f"type={value}"] if value not in ("", "FLOAT", "SIGNED", "UNSIGNED") else []


def _epsilon(i: Instruction, value: float) -> list[str]:
    """In the fewest digits that give the float32 back."""
    texts = (f"{value:.{digits}g}" for digits in range(6, 10))
    shortest = next((t for t in texts if np.float32(t) == np.float32(value)), str(value))
    return [f"epsilon={shortest}"]


_SPELLED: dict[str, Spelling] = {
    "custom_call_target": lambda i, value: [f"custom_call_target={_quoted(value)}"],
    "tuple_index": _as("index"),
    "channel_id": _unless("channel_id", 0),
    "replica_groups": _groups,
    "source_target_pairs": _pairs,
    "window": _window,
    "dimension_numbers": _as("dim_labels"),
    "feature_group_count": _unless("feature_group_count", 1),
    "batch_group_count": _unless("batch_group_count", 1),
    "dimensions": _dimensions,
    "use_global_device_ids": _if_true("use_global_device_ids"),
    "is_stable": _if_true("is_stable"),
    "slice": _slice,
    "padding": _padding,
    "dynamic_slice_sizes": _list("dynamic_slice_sizes"),
    "gather_dimensions": _record(("operand_batching_dims", "start_indices_batching_dims")),
    "scatter_dimensions": _record(("input_batching_dims", "scatter_indices_batching_dims")),
    "slice_sizes": _list("slice_sizes"),
    "indices_are_sorted": _if_true("indices_are_sorted"),
    "unique_indices": _if_true("unique_indices"),
    "dot_dimensions": _dot_dimensions,
    "algorithm": lambda i, v: [f"algorithm={v.removeprefix('ALG_').lower()}"] if v else [],
    "comparison_direction": _as("direction"),
    "comparison_type": _comparison_type,
    "exponent_bits": _as("exponent_bits"),
    "mantissa_bits": _as("mantissa_bits"),
    "k": _as("k"),
    "largest": lambda i, value: [f"largest={str(value).lower()}"],
    "epsilon": _epsilon,
    "feature_index": _as("feature_index"),
    "distribution": lambda i, value: [f"distribution={value.lower()}"],
    "rng_algorithm": lambda i, value: [f"algorithm={value.lower()}"],
    "delta": _as("delta"),
    "fusion_kind": _unless("kind", ""),
}


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
