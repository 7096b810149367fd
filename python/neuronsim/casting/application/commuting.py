"""What rounding commutes with: the operations that may run on values before or after these are rounded
and give the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping

from neuronsim.dtypes import DType
from neuronsim.hlo.instruction_settings import PREFIX, REASON
from neuronsim.hlo.module import Computation, Instruction, Shape, simple_reducer

# The operands, by number, whose values an operation moves; None is all of them. Rounding these gives
# the rounded result: elements are moved, or their signs flipped, and nothing is computed (E6).
MOVES: dict[str, tuple[int, ...] | None] = {
    "abs": (0,),
    "broadcast": (0,),
    "concatenate": None,
    "copy": (0,),
    "dynamic-slice": (0,),
    "dynamic-update-slice": (0, 1),
    "gather": (0,),
    "negate": (0,),
    "pad": (0, 1),
    "reshape": (0,),
    "reverse": (0,),
    "select": (1, 2),
    "slice": (0,),
    "transpose": (0,),
}
# These give one of their operands' values, chosen by its size; rounding keeps the order (E7).
ORDERS: dict[str, tuple[int, ...] | None] = {
    "clamp": (0, 1, 2),
    "maximum": (0, 1),
    "minimum": (0, 1),
    "reduce": (0, 1),  # with a maximum or minimum as its computation
    "reduce-window": (0, 1),
}


def commuted_operands(
    i: Instruction, computations: Mapping[str, Computation], dtype: DType
) -> tuple[int, ...]:
    """The numbers of the operands of which holds: rounding them to `dtype` gives the result of the
    instruction, rounded. Without an element where there is no such rule.

    Of the orders all float8 formats are excluded: where overflow gives NaN (C3's `fp8_overflow="nan"`)
    the minimum of a large and a small number is NaN once they are rounded (E7). The device computes
    nothing in e4m3fn (rule F).
    """
    if not isinstance(i.shape, Shape) or not dtype.device or states_more(i):
        return ()
    if i.opcode in MOVES:
        numbers = MOVES[i.opcode]
    elif i.opcode in ORDERS and dtype.itemsize > 1 and _keeps_one(i, computations):
        numbers = ORDERS[i.opcode]
    else:
        return ()
    return tuple(range(len(i.operands))) if numbers is None else numbers


def _keeps_one(i: Instruction, computations: Mapping[str, Computation]) -> bool:
    """Whether what it applies, if anything, gives one of two values."""
    return all(simple_reducer(computations[n]) in ("maximum", "minimum") for n in i.called)


def states_more(i: Instruction) -> bool:
    """Whether frontend attributes state how an instruction computes: its rounding, a relayout (M8)."""
    stated = i.attributes.get("frontend_attributes", ())
    return any(key.startswith(PREFIX) and key != REASON for key in stated)
