"""Converts as HLO instructions: the element type that carries a planned type, and what rounds to it.

A type without an HLO name travels in float32 and is a `reduce-precision` (C9): tfloat32 that to
(8, 10), and so the open formats.

>>> [carrier(t).name for t in (dtypes.bfloat16, dtypes.tfloat32, dtypes.float_format(6, 9))]
['bfloat16', 'float32', 'float32']
"""

from __future__ import annotations

import dataclasses

from neuronsim import dtypes
from neuronsim.dtypes import DType
from neuronsim.hlo.module import AnyShape, Instruction, Shape

# What new names call a type.
SHORT = {
    dtypes.float32: "f32",
    dtypes.tfloat32: "tf32",
    dtypes.bfloat16: "bf16",
    dtypes.float16: "f16",
    dtypes.float8_e4m3: "f8e4m3",
}

# What ends the new name of an instruction whose result another one rounds under its name.
UNROUNDED = ".f32"


def short_name(dtype: DType) -> str:
    """The type in an instruction's name."""
    own = f"e{dtype.exponent_bits}m{dtype.mantissa_bits}" if dtype.is_open else dtype.name
    return SHORT.get(dtype, own)


def carrier(dtype: DType) -> DType:
    """The HLO element type that carries a planned type."""
    return dtypes.float32 if travels_in_float32(dtype) else dtype


def travels_in_float32(dtype: DType) -> bool:
    """Whether a planned type has no HLO element type of its own: its values are float32's."""
    return dtype is dtypes.tfloat32 or dtype.is_open


def convert(name: str, operand: str, source: Shape, wanted: DType) -> Instruction:
    """The instruction that converts a value of this shape to the wanted type, once (C1): to one that
    travels in float32 from there, or from a type that it holds.
    """
    shape = dataclasses.replace(source, dtype=carrier(wanted))
    if travels_in_float32(wanted) and source.dtype is dtypes.float32:
        bits = {"exponent_bits": wanted.exponent_bits, "mantissa_bits": wanted.mantissa_bits}
        return Instruction(name, "reduce-precision", shape, (operand,), bits)
    return Instruction(name, "convert", shape, (operand,))


def retyped(shape: AnyShape, dtype: DType) -> AnyShape:
    """A shape with its float32 arrays in another element type."""
    if isinstance(shape, Shape):
        return dataclasses.replace(shape, dtype=dtype) if shape.dtype is dtypes.float32 else shape
    return dataclasses.replace(shape, elements=tuple(retyped(e, dtype) for e in shape.elements))


def works_on_float32(i: Instruction) -> bool:
    """Whether an instruction's meaning hangs on float32 itself, whatever its values are rounded to:
    C9's rounding, a view of the bits, a dot that states its own algorithm.
    """
    return i.opcode in ("reduce-precision", "bitcast-convert") or bool(i.attributes.get("algorithm"))
