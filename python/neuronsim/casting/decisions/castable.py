"""Which instructions a plan may decide (A1, A2), and of which types they are in the model."""

from __future__ import annotations

from neuronsim import dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Computation, Instruction, Shape
from neuronsim.hlo.opcodes import row


def is_castable(computation: Computation, i: Instruction) -> bool:
    """Whether a plan may decide an instruction (A2): one that reads or gives float32 arrays on an
    engine. What has no row only passes values on and keeps the model's types; so does the host's work
    (H1).
    """
    if i.opcode == "constant":
        return isinstance(i.shape, Shape) and i.shape.dtype is dtypes.float32
    if i.opcode == "while":
        types = [s.dtype for s in i.shape.arrays()]
        return dtypes.float32 in types and not any(t.kind == "complex" for t in types)
    if i.opcode not in ops.OPCODES:
        return False
    types = [s.dtype for s in (*i.shape.arrays(), *reads(computation, i))]
    if dtypes.float32 not in types or any(t.kind == "complex" for t in types):
        return False
    return row(i).cast != "host"


def is_product(i: Instruction) -> bool:
    """Whether it runs on the tensor engine (A1)."""
    return i.opcode in ops.OPCODES and row(i).cast == "matmult"


def moves_minor_most(i: Instruction) -> bool:
    """Whether a transpose moves the minor-most dimension, and so may be a relayout (A3)."""
    order = i.attributes["dimensions"]
    return bool(order) and order[-1] != len(order) - 1


def reads(computation: Computation, i: Instruction) -> list[Shape]:
    """The shapes of the operands that are arrays."""
    shapes = (computation.by_name[o].shape for o in i.operands)
    return [s for s in shapes if isinstance(s, Shape)]


def own_type(i: Instruction) -> DType:
    """The type that the model gives what a decision's output is about: float32 where there is any."""
    types = [s.dtype for s in i.shape.arrays()]
    return dtypes.float32 if dtypes.float32 in types or not types else types[0]
