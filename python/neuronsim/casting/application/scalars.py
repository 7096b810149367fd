"""Computations of scalars in another type: what an operation applies to elements that are rounded."""

from __future__ import annotations

from collections.abc import Callable

from neuronsim import dtypes
from neuronsim.casting.conversions import (
    carrier,
    convert,
    retyped,
    short_name,
    travels_in_float32,
    works_on_float32,
)
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Computation, Instruction, Shape, simple_reducer

# Operations that give one of their operands' values, but for its sign.
_EXACT = frozenset({"maximum", "minimum", "clamp", "select", "negate", "abs"}) | frozenset(
    {"parameter", "tuple", "get-tuple-element", "copy", "reshape", "broadcast"}
)
# Operations that round after each application (R5), not once at their end (R2).
_ROUNDS_EACH = frozenset({"scatter", "select-and-scatter"})


def retype_scalars(
    computation: Computation, opcode: str, dtype: DType, fresh: Callable[[str], str]
) -> Computation:
    """The computation with its float32 parameters, instructions and results in another type, for an
    instruction with this opcode. It is the same where no value changes; `fresh` makes new names.
    """
    if travels_in_float32(dtype):
        once = opcode not in _ROUNDS_EACH and simple_reducer(computation) is not None
        if once or not any(_rounds(i) for i in computation.instructions):
            return computation
    elif not any(s.dtype is dtypes.float32 for i in computation.instructions for s in i.shape.arrays()):
        return computation
    body: list[Instruction] = []
    names: dict[str, str] = {}
    arrays = {i.name: i.shape for i in computation.instructions}
    for i in computation.instructions:
        names[i.name] = name = fresh(f"{i.name}.{short_name(dtype)}")
        operands = tuple(names[o] for o in i.operands)
        wide = works_on_float32(i) or i.opcode == "constant"
        if wide and carrier(dtype) is not dtypes.float32:
            operands = tuple(
                _widened(new, arrays[old], body, fresh)
                for new, old in zip(operands, i.operands, strict=True)
            )
        gives_float32 = isinstance(i.shape, Shape) and i.shape.dtype is dtypes.float32
        if gives_float32 and (wide or (travels_in_float32(dtype) and _rounds(i))):
            raw = i.replace(name=fresh(f"{i.name}.f32"), operands=operands)
            body += [raw, convert(name, raw.name, raw.array, dtype)]
        else:
            shape = retyped(i.shape, carrier(dtype))
            body.append(i.replace(name=name, operands=operands, shape=shape))
    new_name = fresh(f"{computation.name}.{short_name(dtype)}")
    return Computation(new_name, tuple(body), names[computation.root])


def _rounds(i: Instruction) -> bool:
    """Whether its float32 result may need rounding though its operands do not."""
    return i.opcode not in _EXACT and isinstance(i.shape, Shape) and i.shape.dtype is dtypes.float32


def _widened(name: str, original: object, body: list[Instruction], fresh: Callable[[str], str]) -> str:
    """The value in float32, if the original is."""
    if not isinstance(original, Shape) or original.dtype is not dtypes.float32:
        return name
    wide = fresh(f"{name}.to_f32")
    body.append(Instruction(wide, "convert", original, (name,)))
    return wide
