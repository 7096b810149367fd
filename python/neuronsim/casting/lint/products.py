"""Products whose operands an engine rounds whatever is asked for."""

from __future__ import annotations

from neuronsim import dtypes
from neuronsim.casting.lint.narrow_types import digits, is_narrow
from neuronsim.casting.lint.planned_computation import Broken, PlannedComputation


def rounded_products(scope: PlannedComputation) -> Broken:
    """A float32 dot on Inf1 under `--fast-math none`, whose operands are bfloat16 all the same."""
    if scope.target is None:
        return
    for i in scope.computation.instructions:
        if i.opcode not in ("dot", "convolution"):
            continue
        own = {scope.by_name[o].array.dtype for o in i.operands}
        low = scope.reads(i, 0)
        if own != {dtypes.float32} or low is None or not is_narrow(low):
            continue
        if not scope.target.computes_with(dtypes.float32, "tensor", i.opcode):
            message = f"{scope.target.name} has no float32 product: whatever the flags say, operands"
            yield i, f"{message} are rounded, here to {low.name}, {digits(low)} significant bits", ()
