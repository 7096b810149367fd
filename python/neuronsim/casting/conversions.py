"""Converts as HLO instructions: the element type that carries a planned type, and what rounds to it.

A type without an HLO name, tfloat32, travels in float32 and is `reduce-precision(8, 10)` (C9).
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


def short_name(dtype: DType) -> str:
    """The type in an instruction's name."""
    return SHORT.get(dtype, dtype.name)


def carrier(dtype: DType) -> DType:
    """The HLO element type that carries a planned type."""
    return dtypes.float32 if dtype is dtypes.tfloat32 else dtype


def convert(name: str, operand: str, source: Shape, wanted: DType) -> Instruction:
    """The instruction that converts a value of this shape to the wanted type, once (C1)."""
    shape = dataclasses.replace(source, dtype=carrier(wanted))
    if wanted is dtypes.tfloat32 and source.dtype is dtypes.float32:
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
