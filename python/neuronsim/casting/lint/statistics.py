"""Means and variances in narrow types."""

from __future__ import annotations

from neuronsim.casting.lint.narrow_types import digits, is_narrow
from neuronsim.casting.lint.observed import typical_exponent
from neuronsim.casting.lint.planned_computation import Broken, PlannedComputation
from neuronsim.hlo.module import Instruction

_KEPT_BITS = 5  # of a variance
_NORMS = frozenset({"layer_norm", "batch_norm", "rms_norm", "var"})
_SUMS = ("sum", "sum_of_squares", "mean", "mean_of_squares", "variance")


def narrow_statistics(scope: PlannedComputation) -> Broken:
    """The sums of a layer norm rounded to bfloat16, 8 significant bits."""
    for c in scope.composites:
        sums = [c.parts[p] for p in _SUMS if p in c.parts] if c.kind in _NORMS else []
        for name in sums[:1]:
            i = scope.by_name[name]
            dtype = scope.gives(i)
            if dtype is not None and is_narrow(dtype) and digits(dtype) < 11:
                yield (
                    i,
                    f"the statistics of a {c.kind} over {scope.depth(i)} elements are rounded to "
                    f"{dtype.name}, {digits(dtype)} significant bits",
                    c.instructions,
                )


def _lost(scope: PlannedComputation, i: Instruction) -> int | None:
    """By which power of two the data show a difference's terms to be larger than its result."""
    terms = [s for o in i.operands if (s := scope.observed(o)) is not None]
    known = scope.observed(i.name)
    sizes = [e for s in terms if (e := typical_exponent(s)) is not None]
    result = typical_exponent(known) if known is not None else None
    return max(sizes) - result if sizes and result is not None else None


def fast_variance(scope: PlannedComputation) -> Broken:
    """E[x²] − E[x]² in any narrow type: a variance below 2^-8 of the squared mean is lost in
    bfloat16.
    """
    for c in scope.composites:
        if "mean_of_squares" in c.parts and "variance" in c.parts:
            i = scope.by_name[c.parts["variance"]]
            types = [scope.reads(i, 0), scope.reads(i, 1), scope.gives(i)]
            narrow = [t for t in types if t is not None and is_narrow(t)]
            lost = _lost(scope, i)
            if narrow and lost is not None and lost <= digits(narrow[0]) - _KEPT_BITS:
                continue  # the data show that enough is left
            if narrow:
                yield (
                    i,
                    f"E[x^2] - E[x]^2 cancels in {narrow[0].name}, {digits(narrow[0])} significant "
                    f"bits: a "
                    f"variance below {2.0 ** -digits(narrow[0]):.2g} of the squared mean is lost",
                    c.instructions,
                )
