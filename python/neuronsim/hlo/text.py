"""HLO text, as XLA prints it.

>>> from neuronsim import dtypes
>>> from neuronsim.hlo.module import Shape
>>> print(format_shape(Shape(dtypes.bfloat16, (2, 3))))
bf16[2,3]{1,0}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.hlo.module import AnyShape, Computation, Instruction, Module, TupleShape

_NAMES = {
    dtypes.boolean: "pred",
    dtypes.float32: "f32",
    dtypes.float64: "f64",
    dtypes.bfloat16: "bf16",
    dtypes.float16: "f16",
    dtypes.float8_e5m2: "f8e5m2",
    dtypes.float8_e4m3: "f8e4m3",
    dtypes.float8_e3m4: "f8e3m4",
    dtypes.float8_e4m3fn: "f8e4m3fn",
    dtypes.complex64: "c64",
    dtypes.complex128: "c128",
    **{t: f"s{t.bits}" for t in (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)},
    **{t: f"u{t.bits}" for t in (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64)},
}
LARGE = 32  # elements from which `to_text` may shorten a constant


def format_shape(shape: AnyShape) -> str:
    """A shape with its layout."""
    if isinstance(shape, TupleShape):
        return f"({', '.join(format_shape(s) for s in shape.elements)})"
    text = f"{_NAMES[shape.dtype]}[{','.join(map(str, shape.dims))}]"
    if not shape.dims:
        return text
    layout = shape.layout or tuple(reversed(range(len(shape.dims))))
    return f"{text}{{{','.join(map(str, layout))}}}"


def to_text(module: Module, *, print_large_constants: bool = True) -> str:
    """The module as HLO text; large constants may be shortened to `{...}` for reading."""
    parts = [f"HloModule {module.name}, entry_computation_layout={_signature_layout(module)}"]
    for c in module.computations:
        parts.append(_computation(c, c.name == module.entry, print_large_constants))
    return "\n\n".join(parts) + "\n"


def _signature_layout(module: Module) -> str:
    parameters = ", ".join(format_shape(p.shape) for p in module.parameters)
    return f"{{({parameters})->{format_shape(module.root.shape)}}}"


def _computation(c: Computation, is_entry: bool, large: bool) -> str:
    lines = [f"{'ENTRY ' if is_entry else ''}%{c.name} {{"]
    for i in c.instructions:
        root = "ROOT " if i.name == c.root else ""
        lines.append(f"  {root}{format_instruction(i, print_large_constants=large)}")
    return "\n".join([*lines, "}"])


def format_instruction(i: Instruction, *, print_large_constants: bool = True) -> str:
    """One line of HLO text."""
    if i.opcode == "parameter":
        inside = str(i.attributes["number"])
    elif i.opcode == "constant":
        inside = _literal(i.attributes["literal"], print_large_constants)
    else:
        inside = ", ".join(f"%{o}" for o in i.operands)
    extra = "".join(f", {text}" for text in _attributes(i))
    return f"%{i.name} = {format_shape(i.shape)} {i.opcode}({inside}){extra}"


def _braces(values: Any) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def _attributes(i: Instruction) -> list[str]:
    found = []
    for name, value in i.attributes.items():
        if name == "called":
            found.append(f"to_apply=%{value[0]}")
        elif name == "dimensions" and i.opcode == "iota":
            found.append(f"iota_dimension={value[0]}")
        elif name == "dimensions":
            found.append(f"dimensions={_braces(value)}")
        elif name == "dot_dimensions":
            for side in ("lhs_batch", "lhs_contracting", "rhs_batch", "rhs_contracting"):
                if getattr(value, side):
                    found.append(f"{side}_dims={_braces(getattr(value, side))}")
        elif name == "window" and value:
            found.append(f"window={{{_window(value)}}}")
        elif name == "dimension_numbers":
            found.append(f"dim_labels={value}")
        elif name in ("feature_group_count", "batch_group_count") and value != 1:
            found.append(f"{name}={value}")
        elif name == "slice":
            ranges = (f"[{a}:{b}]" if s == 1 else f"[{a}:{b}:{s}]" for a, b, s in value)
            found.append(f"slice={{{', '.join(ranges)}}}")
        elif name == "tuple_index":
            found.append(f"index={value}")
        elif name == "comparison_direction":
            found.append(f"direction={value}")
        elif name == "comparison_type" and value not in ("", "FLOAT", "SIGNED", "UNSIGNED"):
            found.append(f"type={value}")
        elif name in ("exponent_bits", "mantissa_bits"):
            found.append(f"{name}={value}")
    if i.metadata.op_name:
        escaped = i.metadata.op_name.replace("\\", "\\\\").replace('"', '\\"')
        found.append(f'metadata={{op_name="{escaped}"}}')
    return found


def _window(window: Sequence[ops.WindowDimension]) -> str:
    """A window as XLA prints it: what acts in no dimension is left out."""
    columns: list[tuple[str, list[object], object]] = [
        ("size", [d.size for d in window], None),
        ("stride", [d.stride for d in window], 1),
        ("pad", [f"{d.padding[0]}_{d.padding[1]}" for d in window], "0_0"),
        ("lhs_dilate", [d.base_dilation for d in window], 1),
        ("rhs_dilate", [d.window_dilation for d in window], 1),
        ("rhs_reversal", [int(d.reversal) for d in window], 0),
    ]
    return " ".join(
        f"{name}={'x'.join(map(str, values))}"
        for name, values, idle in columns
        if any(v != idle for v in values)
    )


def _literal(value: ops.Bits, large: bool) -> str:
    if value.data.size > LARGE and not large:
        return "{...}"
    numbers = value.data.view(value.dtype.numpy)
    return _nested(numbers, value.dtype.kind == "float", value.dtype)


def _nested(numbers: Any, is_float: bool, dtype: dtypes.DType) -> str:
    if numbers.ndim:
        return "{ " + ", ".join(_nested(n, is_float, dtype) for n in numbers) + " }"
    if dtype is dtypes.boolean:
        return "true" if numbers else "false"
    if is_float:
        # Nine digits identify a float32, seventeen a float64, and so every narrower value.
        text = f"{float(numbers):.{17 if dtype is dtypes.float64 else 9}g}"
        return "-0.0" if text == "-0" else text  # a bare -0 is read as an integer
    if dtype.kind == "complex":
        return f"({numbers.real}, {numbers.imag})"
    return str(int(np.asarray(numbers)))
