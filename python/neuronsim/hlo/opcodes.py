"""What an instruction's attributes mean to the op table, and the opcodes that have no row in it."""

from __future__ import annotations

from typing import Any

from neuronsim import ops
from neuronsim.errors import UnsupportedOperator
from neuronsim.hlo.module import Instruction, Module, Shape, simple_reducer

# Opcodes that arrange values and compute nothing.
STRUCTURE = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "call"})

# The attributes that each opcode carries, beside its shape and operands.
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "parameter": ("number",),
    "constant": ("literal",),
    "get-tuple-element": ("tuple_index",),
    "call": ("called",),
    "broadcast": ("dimensions",),
    "transpose": ("dimensions",),
    "reverse": ("dimensions",),
    "concatenate": ("dimensions",),
    "iota": ("dimensions",),
    "reduce": ("dimensions", "called"),
    "dot": ("dot_dimensions",),
    "convolution": ("window", "dimension_numbers", "feature_group_count", "batch_group_count"),
    "slice": ("slice",),
    "compare": ("comparison_direction", "comparison_type"),
    "reduce-precision": ("exponent_bits", "mantissa_bits"),
}


def row(instruction: Instruction) -> ops.Op:
    """The op table's row of an instruction; raises UnsupportedOperator where there is none."""
    return ops.by_opcode(instruction.opcode, instruction.attributes)


def row_attributes(module: Module, instruction: Instruction) -> dict[str, Any]:
    """An instruction's attributes as the row takes them: with what HLO leaves to the result's shape
    (`dims`, `dtype`) and the simple reducer that a reduce calls.
    """
    attributes = {k: v for k, v in instruction.attributes.items() if k != "called"}
    if isinstance(instruction.shape, Shape):
        attributes["dims"] = instruction.shape.dims
        attributes["dtype"] = instruction.shape.dtype
    if instruction.opcode == "reduce":
        if len(instruction.operands) > 2:
            raise UnsupportedOperator("a reduce of several arrays at once is not executed yet")
        attributes["reducer"] = simple_reducer(module.by_name[instruction.called[0]])
        if attributes["reducer"] is None:
            raise UnsupportedOperator(
                f"a reduce whose computation {instruction.called[0]!r} is not one "
                "add, multiply, maximum, minimum, and, or, xor is not executed yet"
            )
    return attributes
