"""The rules of lint: what each is called and finds, why, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neuronsim.casting.lint.constants import (
    clamp_beyond,
    constants_beyond,
    mask_constants,
    vanishing_constants,
    vanishing_epsilons,
)
from neuronsim.casting.lint.denominators import underflowing_operands
from neuronsim.casting.lint.exponentials import softmax_input, unshifted_exponential
from neuronsim.casting.lint.integers import integers_in_floats, truncated_indices
from neuronsim.casting.lint.loop_sums import narrow_sums
from neuronsim.casting.lint.observed import (
    near_differences,
    rounded_counts,
    steep_arguments,
    values_beyond,
    vanishing_values,
)
from neuronsim.casting.lint.planned_computation import Broken, PlannedComputation
from neuronsim.casting.lint.products import rounded_products
from neuronsim.casting.lint.repairs import COUNTS, DIGITS, RANGE
from neuronsim.casting.lint.statistics import fast_variance, narrow_statistics
from neuronsim.casting.lint.sums import (
    narrow_accumulators,
    narrow_reducers,
    narrow_updates,
    rounded_tiles,
    sums_beyond,
)
from neuronsim.targets import Severity


@dataclass(frozen=True)
class LintRule:
    """One rule: what it is called, how bad it is, the rule of the contract by which it happens, what
    finds it (whose docstring says of what, for the page on lint), the repair in the source, and what
    its repair in the plan is about (`repairs`).
    """

    name: str
    severity: Severity
    label: str
    check: Callable[[PlannedComputation], Broken]
    advice: str
    about: frozenset[str] = frozenset()


_RANGE, _DIGITS = frozenset({RANGE}), frozenset({DIGITS})
_COUNTS = frozenset({COUNTS, DIGITS})

RULES = (
    LintRule("float32 product is rounded", "warning", "A1", rounded_products,
         "expect it under --fast-math none too, or compile for trn1 with --auto-cast none"),
    LintRule("normalisation in a narrow type", "warning", "A2", narrow_statistics,
         "compute the mean and the variance in float32 and convert the normalised values"),
    LintRule("fast variance", "error", "A2", fast_variance,
         "take the variance about the mean, mean((x - mean(x))^2) (Flax: use_fast_variance=False)",
         _DIGITS),
    LintRule("softmax of narrow logits", "warning", "A2", softmax_input,
         "convert the logits to float32 before the softmax", _DIGITS),
    LintRule("exponential without maximum", "error", "C3", unshifted_exponential,
         "take the maximum away first: exp(x - max(x))", _RANGE),
    LintRule("mask constant becomes -Inf", "error", "C3", mask_constants,
         "mask with select and a constant inside the type, -1e4 say, not with a type's least value",
         _RANGE),
    LintRule("constant beyond the type", "error", "C3", constants_beyond,
         "scale the computation so that the constant lies inside the type", _RANGE),
    LintRule("epsilon vanishes", "error", "C2", vanishing_epsilons,
         "use an epsilon that the type holds: 1e-4 in float16, say", _RANGE),
    LintRule("constant underflows", "warning", "C2", vanishing_constants,
         "scale the computation so that the constant is a normal number of the type", _RANGE),
    LintRule("clamp beyond the type", "error", "C3", clamp_beyond,
         "clamp to what the device's type holds: 240 for float8_e4m3"),
    LintRule("sum beyond the type", "error", "R1", sums_beyond,
         "scale the elements before the sum, or take the mean of scaled values", _RANGE),
    LintRule("long sum in a narrow accumulator", "error", "R1", narrow_accumulators,
         "accumulate in float32"),
    LintRule("updates add up in a narrow type", "error", "R5", narrow_updates,
         "scatter in float32, or sort the updates by place and sum each segment with a reduce"),
    LintRule("reducer adds up in a narrow type", "error", "R2", narrow_reducers,
         "reduce each array by one add, which sums in float32"),
    LintRule("partial sums are rounded", "warning", "R3", rounded_tiles,
         "give --enable-mixed-precision-accumulation"),
    LintRule("64-bit indices are truncated", "error", "C7", truncated_indices,
         "compute indices in 32 bits: split a flat index in one for each dimension"),
    LintRule("integers in a narrow float", "error", "C1", integers_in_floats,
         "count and index in integers", _COUNTS),
    LintRule("loop carries a narrow sum", "error", "A2", narrow_sums,
         "count in integers, and carry sums in float32"),
    LintRule("zero in a denominator", "warning", "C2", underflowing_operands,
         "add an epsilon that the type holds, or take log_softmax for the log of a softmax", _RANGE),
    LintRule("values beyond the type", "error", "C3", values_beyond,
         "scale before the operation, so that its values lie inside the type", _RANGE),
    LintRule("values vanish", "error", "C2", vanishing_values,
         "scale the values up before, or add an epsilon that the type holds", _RANGE),
    LintRule("difference of near values", "error", "A2", near_differences,
         "take the difference before what makes its terms large", _DIGITS),
    LintRule("steep function of a rounded argument", "error", "A2", steep_arguments,
         "compute the argument in float32, and reduce it there: by its maximum, or whole periods",
         _DIGITS),
    LintRule("counts beyond the type", "error", "C1", rounded_counts,
         "count and compare in integers", _COUNTS),
)  # fmt: skip

# What happens by a rule of the contract.
CONTRACT = {
    "A1": "the tensor engine reads operands rounded to a type and gives float32 sums",
    "A2": "every float32 instruction reads operands rounded to the type and rounds its result to it",
    "C1": "a conversion of an integer to a float type is rounded",
    "C2": "conversions round to the nearest value; below half of the least value that is zero",
    "C3": "what lies beyond a type's largest value becomes Inf, or NaN in a type without it",
    "C7": "64-bit integers are their low 32 bits on Trn1",
    "R1": "sums are taken in float32, unless a plan says otherwise, and rounded once at their end",
    "R2": "a reducer of several operations runs as written, each step rounded to its type",
    "R5": "a scatter applies its updates one at a time, each result rounded to the operand's type",
    "R3": "without mixed-precision accumulation the result of each tile of a sum is rounded",
}
