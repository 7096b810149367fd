"""Sums, products of many and scatters: what narrow results and accumulators do to them."""

from __future__ import annotations

import math

from neuronsim.casting.lint.narrow_types import digits, has_small_range, is_narrow, overflows, range_of
from neuronsim.casting.lint.planned_computation import Broken, PlannedComputation
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Instruction
from neuronsim.targets import Severity


def is_square(i: Instruction) -> bool:
    """Whether an instruction multiplies a value by itself."""
    return i.opcode == "multiply" and i.operands[0] == i.operands[1]


_ELEMENTS = {"scatter": 2, "select-and-scatter": 1}  # the operand with what is added up

# Magnitudes of elements that nobody would call unusual: where they suffice, a sum is a risk.
_USUAL = 32.0
_COULD = "from magnitudes of"  # of elements that nothing bounds: it could happen, not that it will


def sums_beyond(scope: PlannedComputation) -> Broken:
    """64 squares of bytes in float16: 64 · 65025; where nothing bounds the elements, sums that are
    Inf from magnitudes of 32 on (squares: of 64 on). Dots and convolutions whose result is as
    narrow count too (M4), by their products, and windows and scatters.
    """
    for i in scope.computation.instructions:
        dtype, depth = scope.gives(i), scope.depth(i)
        if i.opcode in _SCATTERS and scope.reducer(i) == "add":
            depth = scope.updates_of_one_place(i)
        if not depth or dtype is None or not has_small_range(dtype):
            continue
        known, message = scope.observed(i.name), ""
        severity: Severity = "error"
        keep: tuple[str, ...] = (i.name,)
        if known is not None:
            if known.infinite or overflows(known.largest, dtype):
                message = f"its sums of {depth} elements reach {known.largest:g} on the data"
        elif i.opcode in ("dot", "convolution"):
            message = _product_beyond(scope, i, depth, dtype)
            severity = "warning" if _COULD in message else "error"
        elif i.opcode in ("reduce", "reduce-window", *_SCATTERS) and scope.reducer(i) == "add":
            message, keep = _sum_beyond(scope, i, depth, dtype)
            severity = "warning" if _COULD in message else "error"
        if message:
            yield i, f"{message}: {range_of(dtype)}", keep, severity


def _sum_beyond(
    scope: PlannedComputation, i: Instruction, depth: int, dtype: DType
) -> tuple[str, tuple[str, ...]]:
    """How the sums of a reduction leave their type, if they can, and what is to stay float32."""
    elements = i.operands[_ELEMENTS.get(i.opcode, 0)]
    source, bound = scope.source(elements), scope.interval(elements).magnitude
    if math.isfinite(bound):
        if overflows(depth * bound, dtype):
            what = f"{depth} elements of up to {bound:g} reaches {depth * bound:g}"
            return f"a sum of {what}", (source.name, i.name)
        return "", ()
    is_of_squares = is_square(source)
    enough = math.sqrt(dtype.max / depth) if is_of_squares else dtype.max / depth
    if enough >= _USUAL * (2 if is_of_squares else 1):
        return "", ()
    what = f"{depth} {'squares' if is_of_squares else 'elements'}"
    keep = (source.name, i.name) if is_of_squares else (i.name,)
    return f"a sum of {what} is Inf from magnitudes of {enough:.3g} on", keep


def _product_beyond(scope: PlannedComputation, i: Instruction, depth: int, dtype: DType) -> str:
    """How the sums of a dot or convolution leave their type (M4), if they can."""
    bounds = [scope.interval(o).magnitude for o in i.operands]
    known = [b for b in bounds if math.isfinite(b)]
    factor = math.prod(known)
    if len(known) == len(bounds):
        reached = depth * factor
        if not overflows(reached, dtype):
            return ""
        return f"a sum of {depth} products of up to {factor:g} reaches {reached:g}"
    if factor == 0:
        return ""
    enough = dtype.max / depth / factor
    if known:
        what, usual = f"{depth} products with up to {factor:g}", _USUAL
    elif scope.source(i.operands[0]) is scope.source(i.operands[1]):
        what, usual, enough = f"{depth} squares", _USUAL * 2, math.sqrt(enough)
    else:
        what, usual = f"{depth} products", _USUAL
    if enough >= usual:
        return ""
    return f"a sum of {what} is Inf from magnitudes of {enough:.3g} on"


def narrow_accumulators(scope: PlannedComputation) -> Broken:
    """257 elements accumulated in bfloat16, where 256 + 1 is 256."""
    for i in scope.computation.instructions:
        d, depth = scope.decision(i), scope.depth(i)
        if d is None or not is_narrow(d.accumulate):
            continue
        longest = 2 ** digits(d.accumulate)
        if depth <= longest:
            continue
        yield (
            i,
            (
                f"it adds {depth} elements in {d.accumulate.name}: from {longest} equal ones on the "
                f"sum "
                "no longer changes"
            ),
            (i.name,),
        )


def narrow_updates(scope: PlannedComputation) -> Broken:
    """A scatter-add, a segment sum or the gradient of a gather or an embedding of more than 256
    updates in bfloat16, each rounded (R5): 2,000 ones in one place are 256; products, and the
    gradient of pooling in as many windows. Not where the indices are known to differ
    (`unique_indices`, constants, an iota).
    """
    for i in scope.computation.instructions:
        dtype, reducer = scope.gives(i), scope.reducer(i)
        if i.opcode not in _SCATTERS or reducer not in _FOLDS or dtype is None or not is_narrow(dtype):
            continue
        count = scope.updates_of_one_place(i)
        if count > 2 ** digits(dtype):
            yield (
                i,
                f"up to {count} updates meet in one place, and each {_FOLDS[reducer]} is rounded to "
                f"{dtype.name}, {digits(dtype)} significant bits: "
                f"{_stands_still(reducer, count, dtype)}",
                (i.name,),
            )


def _stands_still(reducer: str, count: int, dtype: DType) -> str:
    """What becomes of this many steps, each of which is rounded."""
    if reducer == "multiply":
        return f"the product is off by up to {count * dtype.eps / 2:.2g} of its value"
    return f"from {2 ** digits(dtype)} equal ones on the sum no longer changes"


_SCATTERS = frozenset({"scatter", "select-and-scatter"})
_FOLDS = {"add": "sum", "multiply": "product"}


def narrow_reducers(scope: PlannedComputation) -> Broken:
    """A reduce by a computation of several operations (a sum and a count at once), which runs as
    written, each step rounded (R2).
    """
    for i in scope.computation.instructions:
        if i.opcode not in ("reduce", "reduce-window") or scope.reducer(i) is not None:
            continue
        types = [t for t in scope.arrays_given(i) if is_narrow(t)]
        depth = scope.depth(i)
        if not types or depth <= 2 ** digits(types[0]) or not scope.folds_sums(i):
            continue
        yield (
            i,
            f"its computation adds {depth} elements one after the other, each sum rounded to "
            f"{types[0].name}, {digits(types[0])} significant bits: "
            f"{_stands_still('add', depth, types[0])}",
            (i.name,),
        )


def rounded_tiles(scope: PlannedComputation) -> Broken:
    """A sum, or window of a sum, of more than 512 elements in a 16-bit type without mixed-precision
    accumulation (with `profile=`).
    """
    if scope.profile is None or scope.profile.mixed_precision_accumulation == "on":
        return
    tile = scope.profile.reduce_tile
    for i in scope.computation.instructions:
        dtype, depth = scope.gives(i), scope.depth(i)
        if (
            i.opcode in ("reduce", "reduce-window")
            and scope.reducer(i) in _FOLDS
            and dtype is not None
            and is_narrow(dtype)
            and dtype.bits <= 16
            and depth > tile
        ):
            yield (
                i,
                (
                    f"each of the {-(-depth // tile)} partial sums of {tile} elements is rounded to "
                    f"{dtype.name}, {digits(dtype)} significant bits"
                ),
                (i.name,),
            )
