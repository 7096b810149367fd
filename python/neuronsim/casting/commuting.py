"""What rounding commutes with, and which formats hold all values of another: the facts that let a
convert stand elsewhere or go away without changing a bit.

>>> contains(dtypes.float32, dtypes.float16), contains(dtypes.bfloat16, dtypes.float16)
(True, False)
"""

from __future__ import annotations

from dataclasses import dataclass

from neuronsim import dtypes
from neuronsim.casting.conversions import carrier
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Instruction, Module, Shape, simple_reducer

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
# What only moves values or chooses among them and yet stays where the plan has it.
STAYS: dict[str, str] = {
    "all-gather": "its type is what travels between replicas, which the plan decides",
    "all-to-all": "its type is what travels between replicas, which the plan decides",
    "collective-broadcast": "its type is what travels between replicas, which the plan decides",
    "collective-permute": "its type is what travels between replicas, which the plan decides",
    "compare": "numbers that differ may be equal once they are rounded",
    "custom-call": "its types are those that the called operator takes",
    "map": "it applies a computation, each step of which rounds",
    "partition-id": "it reads nothing",
    "replica-id": "it reads nothing",
    "rng-bit-generator": "it makes bits",
    "rng-get-and-update-state": "it makes bits",
    "scatter": "it applies a computation, each step of which rounds (R5)",
    "select-and-scatter": "numbers that differ may be equal once they are rounded, and it adds (R5)",
    "set-dimension-size": "it states a size, which a move of its convert would separate from the value",
    "sign": "a small number may be zero once it is rounded",
    "sort": "numbers that differ may be equal once they are rounded, and in another order (E10)",
    "topk": "numbers that differ may be equal once they are rounded, with other indices (E10)",
}


def commuted_operands(i: Instruction, module: Module, dtype: DType) -> tuple[int, ...]:
    """The numbers of the operands of which holds: rounding them to `dtype` gives the result of the
    instruction, rounded. Without an element where there is no such rule.

    Of the orders all float8 formats are excluded: where overflow gives NaN (e4m3fn, and C3's
    `fp8_overflow="nan"`), the larger operand may be rounded to NaN, which every order gives on (E7).
    """
    if not isinstance(i.shape, Shape) or states_more(i):
        return ()
    if i.opcode in MOVES:
        numbers = MOVES[i.opcode]
    elif i.opcode in ORDERS and dtype.itemsize > 1 and _keeps_one(i, module):
        numbers = ORDERS[i.opcode]
    else:
        return ()
    return tuple(range(len(i.operands))) if numbers is None else numbers


def _keeps_one(i: Instruction, module: Module) -> bool:
    """Whether what it applies, if anything, gives one of two values."""
    return all(simple_reducer(module.by_name[n]) in ("maximum", "minimum") for n in i.called)


def states_more(i: Instruction) -> bool:
    """Whether `frontend_attributes` state more of an instruction than why it is as it is: its rounding,
    a relayout (M8).
    """
    return not set(i.attributes.get("frontend_attributes", ())) <= {"neuronsim.reason"}


@dataclass(frozen=True)
class Values:
    """The values of a number format: of so many bits behind the first, up to the largest, multiples of
    the smallest, and perhaps Inf. NaN is in all of them.
    """

    mantissa_bits: int
    smallest: float
    largest: float
    has_inf: bool

    def contain(self, other: Values) -> bool:
        """Whether they contain the others, which have as many bits or fewer."""
        return (
            other.mantissa_bits <= self.mantissa_bits
            and other.smallest >= self.smallest
            and other.largest <= self.largest
            and (self.has_inf or not other.has_inf)
        )


def values_of(dtype: DType) -> Values:
    """The values of a device float format (rule F), or of an open one, carried by float32 (C9)."""
    if carrier(dtype) is dtypes.float32 and dtype is not dtypes.float32:
        return values_of_reduce_precision(dtype.exponent_bits, dtype.mantissa_bits)
    exponent = 2 - 2 ** (dtype.exponent_bits - 1)
    smallest = 2.0 ** (exponent - dtype.mantissa_bits)
    return Values(dtype.mantissa_bits, smallest, dtype.max, dtype.has_inf)


def values_of_reduce_precision(exponent_bits: int, mantissa_bits: int) -> Values:
    """The values that `reduce-precision` leaves of float32: those below the least normal number of
    fewer exponent bits than 8 become zero (C9).
    """
    exponent = 2 - 2 ** (exponent_bits - 1)
    smallest = 2.0 ** (exponent - (mantissa_bits if exponent_bits == 8 else 0))
    largest = (2 - 2.0**-mantissa_bits) * 2.0 ** (1 - exponent)
    return Values(mantissa_bits, smallest, largest, has_inf=True)


def has_values(dtype: DType) -> bool:
    """Whether it is a float format of the device, of which `values_of` knows."""
    return dtype.kind == "float" and dtype.exponent_bits > 0


def contains(wide: DType, narrow: DType) -> bool:
    """Whether every value of a float format, Inf and subnormals too, is one of another, so that a
    conversion there changes nothing.
    """
    return wide is narrow or (
        has_values(wide) and has_values(narrow) and values_of(wide).contain(values_of(narrow))
    )
