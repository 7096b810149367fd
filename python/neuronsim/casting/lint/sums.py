"""Sums, products of many and scatters: what narrow results and accumulators do to them."""

from __future__ import annotations

import math

from neuronsim.casting.lint.narrow_types import digits, has_small_range, is_narrow, overflows, range_of
from neuronsim.casting.lint.planned_computation import Broken, PlannedComputation
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Instruction


def is_square(i: Instruction) -> bool:
    """Whether an instruction multiplies a value by itself."""
    return i.opcode == "multiply" and i.operands[0] == i.operands[1]


_ELEMENTS = {"scatter": 2, "select-and-scatter": 1}  # the operand with what is added up

# Magnitudes of elements that nobody would call unusual: where they suffice, a sum is a risk.
_USUAL = 32.0


def sums_beyond(scope: PlannedComputation) -> Broken:
    """Sums that leave the range of their type."""
    for i in scope.computation.instructions:
        dtype, depth = scope.gives(i), scope.depth(i)
        if i.opcode in _SCATTERS and scope.reducer(i) == "add":
            depth = scope.updates_of_one_place(i)
        if not depth or dtype is None or not has_small_range(dtype):
            continue
        known = scope.observed(i.name)
        if known is not None:
            if known.infinite or overflows(known.largest, dtype):
                yield (
                    i,
                    (
                        f"its sums of {depth} elements reach {known.largest:g} on the data: "
                        f"{range_of(dtype)}"
                    ),
                    (i.name,),
                )
            continue
        if i.opcode in ("dot", "convolution"):
            message = _product_beyond(scope, i, depth, dtype)
            if message:
                yield i, message, (i.name,)
        if i.opcode not in ("reduce", "reduce-window", *_SCATTERS) or scope.reducer(i) != "add":
            continue
        elements = i.operands[_ELEMENTS.get(i.opcode, 0)]
        squares = scope.source(elements)
        bound = scope.interval(elements).magnitude
        if math.isfinite(bound):
            if overflows(depth * bound, dtype):
                yield (
                    i,
                    (
                        f"a sum of {depth} elements of up to {bound:g} reaches {depth * bound:g}: "
                        f"{range_of(dtype)}"
                    ),
                    (squares.name, i.name),
                )
        elif is_square(squares):
            enough = math.sqrt(dtype.max / depth)
            if enough < _USUAL * 2:
                yield (
                    i,
                    (
                        f"a sum of {depth} squares is Inf from magnitudes of {enough:.3g} on: "
                        f"{range_of(dtype)}"
                    ),
                    (squares.name, i.name),
                )
        elif dtype.max / depth < _USUAL:
            yield (
                i,
                (
                    f"a sum of {depth} elements is Inf from magnitudes of {dtype.max / depth:.3g} on: "
                    f"{range_of(dtype)}"
                ),
                (i.name,),
            )


def _product_beyond(scope: PlannedComputation, i: Instruction, depth: int, dtype: DType) -> str:
    """How the sums of a dot or convolution leave their type (M4), if they can."""
    bounds = [scope.interval(o).magnitude for o in i.operands]
    known = [b for b in bounds if math.isfinite(b)]
    factor = math.prod(known)
    if len(known) == len(bounds):
        reached = depth * factor
        if not overflows(reached, dtype):
            return ""
        return f"a sum of {depth} products of up to {factor:g} reaches {reached:g}: {range_of(dtype)}"
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
    return f"a sum of {what} is Inf from magnitudes of {enough:.3g} on: {range_of(dtype)}"


def narrow_accumulators(scope: PlannedComputation) -> Broken:
    """Sums that a plan accumulates in a narrow type."""
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
    """Scatters, and gradients of gathers and of pooling: each update is rounded (R5)."""
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
    """Reductions by another computation than one operation, which run as written (R2)."""
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
    """Sums whose partial sums are rounded (R3)."""
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
