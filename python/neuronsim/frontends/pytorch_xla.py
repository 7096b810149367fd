"""What PyTorch/XLA's variables do to a module as it traces one: float32 and float64 of PyTorch become
narrower floats of the module, inputs, results and weights too.

>>> acting_variable({"XLA_USE_BF16": "1"}), acting_variable({"XLA_DOWNCAST_BF16": "0"})
('XLA_USE_BF16', '')
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.casting.flags import Message
from neuronsim.dtypes import DType
from neuronsim.hlo.module import AnyShape, Computation, Instruction, Literal, Module, Shape, TupleShape
from neuronsim.ops import Bits
from neuronsim.profiles import BF16_VARIABLES, Profile, in_force, is_on

# Which float each variable makes of PyTorch's; the first that is on acts.
_TYPES: dict[str, dict[DType, DType]] = {
    "XLA_USE_BF16": {dtypes.float32: dtypes.bfloat16, dtypes.float64: dtypes.bfloat16},
    "XLA_DOWNCAST_BF16": {dtypes.float32: dtypes.bfloat16, dtypes.float64: dtypes.float32},
}
assert tuple(_TYPES) == BF16_VARIABLES
_GRAPH = re.compile(r"(SyncTensorsGraph|SyncLiveTensorsGraph|IrToHlo)(\.\d+)?")
_OPERATOR = re.compile(r"(aten|xla|prim)__\w+")


def acting_variable(environment: Mapping[str, str]) -> str:
    """The variable that decides a trace's floats, or ""."""
    return next((name for name in _TYPES if is_on(environment.get(name, ""))), "")


def as_traced(
    module: Module, environment: Mapping[str, str], *, is_pytorch: bool = False
) -> tuple[Module, tuple[Message, ...]]:
    """The module as PyTorch/XLA traces it under these variables, and what there is to say.

    They act on a module of PyTorch, `is_pytorch`, and on a file's that PyTorch/XLA has traced (its
    name, or its instructions' operators, say so) without them: it has no bfloat16. The types of any
    other are fixed.
    """
    variable = acting_variable(environment)
    floats = _floats(module) if variable else set()
    if not floats & _TYPES.get(variable, {}).keys():
        return module, ()
    if not (is_pytorch or (_is_traced(module) and dtypes.bfloat16 not in floats)):
        text = (
            f"{variable}=1 does not act on the types of {module.name!r}, which are fixed: it acts as "
            "PyTorch/XLA traces a module"
        )
        return module, (Message("info", text),)
    types = _TYPES[variable]
    changed = ", ".join(f"{a.name} is {b.name}" for a, b in types.items() if a in floats)
    text = f"{variable}=1: {changed} in {module.name!r}, as PyTorch/XLA traces it"
    return _retyped(module, types), (Message("warning", text),)


def _floats(module: Module) -> set[DType]:
    """The float types of a module's arrays."""
    shapes = (s for i in module.instructions for s in i.shape.arrays())
    return {s.dtype for s in shapes if s.dtype.kind == "float"}


def _is_traced(module: Module) -> bool:
    """Whether PyTorch/XLA has traced a module."""
    operators = (i.metadata.op_type for i in module.entry_computation.instructions)
    return bool(_GRAPH.fullmatch(module.name)) or any(map(_OPERATOR.fullmatch, operators))


def _retyped(module: Module, types: Mapping[DType, DType]) -> Module:
    def shaped(shape: AnyShape) -> AnyShape:
        if isinstance(shape, Shape):
            return replace(shape, dtype=types.get(shape.dtype, shape.dtype))
        return TupleShape(tuple(map(shaped, shape.elements)), shape.is_token)

    def instruction(i: Instruction) -> Instruction:
        attributes: dict[str, Any] = dict(i.attributes)
        if "literal" in attributes:
            attributes["literal"] = _rounded(attributes["literal"], types)
        return i.replace(shape=shaped(i.shape), attributes=attributes)

    computations = tuple(
        Computation(c.name, tuple(map(instruction, c.instructions)), c.root)
        for c in module.computations
    )
    layout = module.entry_layout
    if layout is not None:
        layout = tuple(map(shaped, layout[0])), shaped(layout[1])
    return replace(module, computations=computations, entry_layout=layout)


def _rounded(literal: Literal, types: Mapping[DType, DType]) -> Literal:
    """A constant in the narrower type, to nearest even: beyond its range it is infinite."""
    if not isinstance(literal, Bits):
        return tuple(_rounded(part, types) for part in literal)
    if literal.dtype not in types:
        return literal
    with in_force(Profile()):
        return Array(literal).astype(types[literal.dtype]).bits
