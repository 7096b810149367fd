"""Inputs and outputs in a low type, as a framework casts them before and after the model: AWS says that
"additional speedup can be obtained" so.
"""

from __future__ import annotations

from neuronsim import dtypes
from neuronsim.casting.conversions import convert
from neuronsim.dtypes import DType
from neuronsim.hlo.inlining import FlatModule, inline_calls
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    Shape,
    TupleShape,
    fresh_name,
)


def with_framework_casts(module: Module, low: DType, *, outside: bool) -> FlatModule:
    """The module whose float32 parameters and results are rounded to a low type. With `outside` the
    parameters are given in it, as the device then sees them; else they are float32 and rounded here, to
    the same bits.
    """
    flat = inline_calls(module)
    entry = flat.entry_computation
    taken = {i.name for i in flat.instructions}
    renamed: dict[str, str] = {}
    body: list[Instruction] = []
    for i in entry.instructions:
        own = i.reading(renamed)
        if i.opcode != "parameter" or i.array.dtype is not dtypes.float32:
            body.append(own)
            continue
        given = own
        if outside:
            given = own.replace(shape=Shape(low, i.array.dims, i.array.layout))
        body.append(given)
        if not outside:
            given = _cast(given, low, f"{i.name}.{low.name}", taken)
            body.append(given)
        wide = _cast(given, dtypes.float32, f"{i.name}.float32", taken)
        body.append(wide)
        renamed[i.name] = wide.name
    root = renamed.get(entry.root, entry.root)
    results, root = _low_results({i.name: i for i in body}, root, low, taken)
    changed = Computation(entry.name, (*body, *results), root)
    planned = flat.replace_entry(changed)
    return FlatModule(Module(planned.name, planned.entry, planned.computations, flat.parameter_names))


def _cast(i: Instruction, wanted: DType, name: str, taken: set[str]) -> Instruction:
    return convert(fresh_name(name, taken), i.name, i.array, wanted)


def _low_results(
    by_name: dict[str, Instruction], root: str, low: DType, taken: set[str]
) -> tuple[list[Instruction], str]:
    """The converts of the results of a root, and the root that gives them."""
    last = by_name[root]
    if isinstance(last.shape, Shape):
        if last.shape.dtype is not dtypes.float32:
            return [], root
        cast = _cast(last, low, f"{root}.{low.name}", taken)
        return [cast], cast.name
    if last.opcode != "tuple":
        return [], root  # a loop's results, say, are given as they are
    casts: list[Instruction] = []
    operands: list[str] = []
    for o in last.operands:
        found, name = _low_results(by_name, o, low, taken) if o in by_name else ([], o)
        casts += found
        operands.append(name)
    made = by_name | {i.name: i for i in casts}
    shape = TupleShape(tuple(made[o].shape for o in operands))
    whole = last.replace(name=fresh_name(f"{root}.{low.name}", taken), operands=tuple(operands))
    return [*casts, whole.replace(shape=shape)], whole.name
