"""What may be zero in a denominator."""

from __future__ import annotations

import math

from neuronsim.casting.lint.intervals import interval_where
from neuronsim.casting.lint.narrow_types import has_small_range
from neuronsim.casting.lint.planned_computation import Broken, PlannedComputation
from neuronsim.casting.lint.sums import is_square
from neuronsim.casting.value_sets import values_of

# What becomes Inf or NaN when its operand with this number is zero.
POLES = {"rsqrt": 0, "log": 0, "divide": 1}
_UNDERFLOWING = {
    "softmax": "a softmax",
    "sigmoid": "a sigmoid",
    "var": "a variance",
}


def underflowing_operands(scope: PlannedComputation) -> Broken:
    """The log of a softmax, the rsqrt of a variance in float16: below 3e-8 these are 0, unless a
    select does not take the quotient there.
    """
    kinds = {c.root: _UNDERFLOWING[c.kind] for c in scope.composites if c.kind in _UNDERFLOWING}
    for c in scope.composites:
        kinds |= {
            c.parts[p]: f"the {p.replace('_', ' ')} of a {c.kind}"
            for p in ("variance", "mean_of_squares")
            if p in c.parts
        }
    for i in scope.computation.instructions:
        if i.opcode not in POLES or not i.operands:
            continue
        operand = scope.source(i.operands[POLES[i.opcode]])
        if operand.opcode == "sqrt":
            operand = scope.source(operand.operands[0])
        dtype = scope.gives(operand)
        if operand.opcode == "exponential" and scope.intervals[operand.name].low < math.log(2.0**-24):
            what = "an exponential"
        elif is_square(operand):
            what = "a square"
        else:
            what = kinds.get(operand.name, "")
        if not what or dtype is None or not has_small_range(dtype):
            continue
        least = values_of(dtype).smallest
        name, bound = operand.name, least / 2

        def is_apart(predicate: str, truth: bool, name: str = name, bound: float = bound) -> bool:
            taken, nonzero = interval_where(scope.orderings, scope.intervals, name, predicate, truth)
            return nonzero or taken.low > bound

        if scope.interval(name).low > bound or scope.is_only_selected(i, is_apart):
            continue
        yield (
            i,
            (
                f"{operand.name} is {what} in {dtype.name}: below {least / 2:.2g} it is 0, where "
                f"{i.opcode} gives Inf or NaN"
            ),
            (operand.name, i.name),
        )
