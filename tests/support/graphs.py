"""Modules written instruction by instruction."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.support.words import bits

from neuronsim import dtypes
from neuronsim.dtypes import DType
from neuronsim.hlo.module import AnyShape, Computation, Instruction, Module, Shape
from neuronsim.hlo.verify import verify

F32 = dtypes.float32


def shaped(shape: AnyShape | DType | tuple[int, ...], dtype: DType) -> AnyShape:
    """Dimensions are of an array of `dtype`, a type is that of a scalar."""
    if isinstance(shape, DType):
        return Shape(shape)
    return Shape(dtype, shape) if isinstance(shape, tuple) else shape


def inst(
    name: str, opcode: str, shape: Any, *operands: str, dtype: DType = F32, **attributes: Any
) -> Instruction:
    return Instruction(name, opcode, shaped(shape, dtype), operands, attributes)


def parameter(name: str, shape: Any, number: int = 0, dtype: DType = F32) -> Instruction:
    return inst(name, "parameter", shape, dtype=dtype, number=number)


def constant(name: str, value: Any, dtype: DType = F32) -> Instruction:
    return inst(name, "constant", np.shape(value), dtype=dtype, literal=bits(value, dtype))


def computation(name: str, *body: Instruction, root: str = "") -> Computation:
    """The last instruction is the root where none is named."""
    return Computation(name, body, root or body[-1].name)


def reducer(name: str, opcode: str = "add", dtype: DType = F32) -> Computation:
    a, b = parameter("a", dtype, 0), parameter("b", dtype, 1)
    return computation(name, a, b, inst("both", opcode, dtype, "a", "b"))


def unverified(
    *body: Instruction, others: tuple[Computation, ...] = (), name: str = "m", root: str = ""
) -> Module:
    """A module whose entry has these instructions."""
    return Module(name, "main", (*others, computation("main", *body, root=root)))


def module_of(
    *body: Instruction, others: tuple[Computation, ...] = (), name: str = "m", root: str = ""
) -> Module:
    """The same, verified."""
    module = unverified(*body, others=others, name=name, root=root)
    verify(module)
    return module
