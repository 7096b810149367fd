"""Softmaxes and exponentials in narrow types."""

from __future__ import annotations

import math

from neuronsim.casting.lint.intervals import interval_where
from neuronsim.casting.lint.narrow_types import has_small_range, is_narrow, overflows, range_of
from neuronsim.casting.lint.planned_computation import Broken, PlannedComputation

_SOFTMAXES = frozenset({"softmax", "log_softmax", "logsumexp"})
_LOGIT_ERROR = 0.125  # of a logit: 13 % of a probability
_USUAL_LOGIT = 64.0
_EXPONENTIALS = frozenset({"exponential", "exponential-minus-one"})


def softmax_input(scope: PlannedComputation) -> Broken:
    """A softmax that reads float16, or a type in which logits of 64 are off by more than 1/8, as in
    bfloat16; with a calibration any narrow type, where rounding moves a logit by more than 1/8.
    """
    for c in scope.composites:
        first = c.parts.get("shifted", c.parts.get("exponential")) if c.kind in _SOFTMAXES else None
        i = scope.by_name[first] if first is not None else None
        dtype = scope.reads(i, 0) if i is not None else None
        if i is None or dtype is None or not is_narrow(dtype):
            continue
        known = scope.observed(c.input)
        if known is None:
            error = _USUAL_LOGIT * dtype.eps / 2
            if has_small_range(dtype) or error > _LOGIT_ERROR:
                bounds = f"{range_of(dtype)}, and " if has_small_range(dtype) else ""
                yield (
                    i,
                    f"a {c.kind} reads {dtype.name}: {bounds}logits of {_USUAL_LOGIT:g} are off by up "
                    f"to {error:g}",
                    c.instructions,
                )
        else:
            error = known.largest * dtype.eps / 2
            if known.infinite or overflows(known.largest, dtype) or error > _LOGIT_ERROR:
                yield (
                    i,
                    f"a {c.kind} reads {dtype.name}: inputs reach {known.largest:g} on the data, where "
                    f"rounding is off by up to {error:.2g}, and {range_of(dtype)}",
                    c.instructions,
                )


def unshifted_exponential(scope: PlannedComputation) -> Broken:
    """What exp(x) or expm1(x) gives in float16 is Inf beyond 11.09, where nothing bounds x."""
    safe = {
        c.parts["exponential"]
        for c in scope.composites
        # 1 / (1 + Inf) is 0, as it should be.
        if "exponential" in c.parts and ("shifted" in c.parts or c.kind in ("sigmoid", "silu"))
    }
    for i in scope.computation.instructions:
        dtype = scope.gives(i)
        if i.opcode not in _EXPONENTIALS or i.name in safe:
            continue
        if dtype is None or not has_small_range(dtype):
            continue
        operand, bound = i.operands[0], math.log(dtype.max)

        def is_below(predicate: str, truth: bool, operand: str = operand, bound: float = bound) -> bool:
            taken, _ = interval_where(scope.orderings, scope.intervals, operand, predicate, truth)
            return taken.high <= bound or scope.orderings.is_never_positive(operand, (predicate, truth))

        known = scope.observed(i.name)
        if known is not None:  # what its values are is another rule's
            continue
        if scope.interval(operand).high > bound and not scope.is_only_selected(i, is_below):
            yield (
                i,
                f"its operand has no maximum taken away, and beyond {bound:.4g} its result is Inf: "
                f"{range_of(dtype)}",
                (i.name,),
                "warning" if scope.interval(operand).high == math.inf else "error",
            )
