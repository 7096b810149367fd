"""Converts of a planned module that follow each other, where one does for both; and those that convert
nothing. Not for a profile of stochastic rounding, where each draws words of its own (S2).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from neuronsim import ops
from neuronsim.casting.application.commuting import MOVES, ORDERS, commuted_operands, states_more
from neuronsim.casting.value_sets import (
    ValueSet,
    contains,
    has_values,
    values_of,
    values_of_reduce_precision,
)
from neuronsim.hlo.inlining import FlatModule
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    Shape,
    graph_computations,
)
from neuronsim.hlo.opcodes import row


def merge_converts(module: FlatModule) -> FlatModule:
    """The module with fewer float converts and reduce-precisions, and the same bits under every profile
    but stochastic rounding.

    A convert reads through another that changes no value, since its type contains the operand's; one
    that thereby gives what it reads goes, and a reduce-precision of values that it would not change;
    of equal converts of a value the first stays. What nobody reads goes. An instruction with
    `frontend_attributes` stays, for it states something of its own.
    """
    merged = {c.name: _merged(c, module) for c in graph_computations(module)}
    computations = tuple(merged.get(c.name, c) for c in module.computations)
    return FlatModule(dataclasses.replace(module, computations=computations))


def _merged(computation: Computation, module: Module) -> Computation:
    body: dict[str, Instruction] = {}
    held: dict[str, ValueSet] = {}  # what a value is one of, if it is as a conversion leaves it
    same: dict[str, str] = {}  # the values that stand for merged ones
    first: dict[tuple[object, ...], str] = {}
    for old in computation.instructions:
        i = old.reading(same)
        if _rounds(i, body):
            i = _through(i, body, held)
            bits = i.attributes.get("exponent_bits"), i.attributes.get("mantissa_bits")
            key = (i.opcode, i.operands, i.shape, *bits)
            found = i.operands[0] if _is_identity(i, body, held) else first.get(key, "")
            if found and body[found].shape == i.shape and not _is_stated(i):
                same[i.name] = found
                continue
            if not states_more(i):
                first.setdefault(key, i.name)
        body[i.name] = i
        values = _held(i, body, held, module)
        if values is not None:
            held[i.name] = values
    root = same.get(computation.root, computation.root)
    instructions = _without_dead(body, root)
    if instructions == computation.instructions:
        return computation
    return Computation(computation.name, instructions, root)


def _rounds(i: Instruction, body: Mapping[str, Instruction]) -> bool:
    """Whether it is a convert between float formats, or a reduce-precision of one."""
    return i.opcode in ("convert", "reduce-precision") and all(
        isinstance(s, Shape) and has_values(s.dtype) for s in (i.shape, body[i.operands[0]].shape)
    )


def _is_stated(i: Instruction) -> bool:
    return bool(i.attributes.get("frontend_attributes"))


def _through(
    i: Instruction, body: Mapping[str, Instruction], held: Mapping[str, ValueSet]
) -> Instruction:
    """A convert that reads what the converts before it read, where these change nothing."""
    while i.opcode == "convert":
        inner = body[i.operands[0]]
        if inner.opcode != "convert" or not _rounds(inner, body) or inner.array.dtype is i.array.dtype:
            break
        if states_more(i) or states_more(inner):
            break
        source = body[inner.operands[0]]
        if not contains(inner.array.dtype, source.array.dtype):
            break
        if source.array.dtype is i.array.dtype and source.name not in held:
            break  # the conversion may flush it (C4), or change a NaN (C5) or an Inf (C3)
        i = i.replace(operands=(source.name,))
    return i


def _is_identity(i: Instruction, body: Mapping[str, Instruction], held: Mapping[str, ValueSet]) -> bool:
    """Whether it gives the bits that it reads."""
    source = body[i.operands[0]]
    if i.opcode == "convert":
        return source.array.dtype is i.array.dtype  # C5
    values = held.get(source.name)
    return values is not None and _of_reduce_precision(i).contain(values)


def _of_reduce_precision(i: Instruction) -> ValueSet:
    return values_of_reduce_precision(i.attributes["exponent_bits"], i.attributes["mantissa_bits"])


def _held(
    i: Instruction, body: Mapping[str, Instruction], held: Mapping[str, ValueSet], module: Module
) -> ValueSet | None:
    """What the values of an array are of, where a conversion or arithmetic stored them: then NaN is the
    type's own (C5, E6), and C3 and C4 have acted, so that another conversion changes nothing.
    """
    if not isinstance(i.shape, Shape) or not has_values(i.shape.dtype):
        return None
    own = values_of(i.shape.dtype)
    if i.opcode == "reduce-precision":
        rounded = _of_reduce_precision(i)
        return rounded if own.contain(rounded) else own
    if i.opcode == "convert":
        source = body[i.operands[0]].array.dtype
        if source is i.shape.dtype:
            return held.get(i.operands[0])
        return values_of(source) if has_values(source) and contains(i.shape.dtype, source) else own
    numbers = commuted_operands(i, module.by_name, i.shape.dtype)
    if numbers:
        known = {held.get(i.operands[n]) for n in numbers}
        return known.pop() if len(known) == 1 else None
    computes = i.opcode in ops.OPCODES and i.opcode not in (*MOVES, *ORDERS)
    if computes and (row(i).core is not None or i.opcode == "dot"):
        return own
    return None


def _without_dead(body: Mapping[str, Instruction], root: str) -> tuple[Instruction, ...]:
    """The instructions without the float converts that nobody reads."""
    kept: list[Instruction] = []
    read = {root}
    for i in reversed(list(body.values())):
        if i.name in read or not _rounds(i, body) or _is_stated(i):
            kept.append(i)
            read.update(i.operands)
    return tuple(reversed(kept))


def converted_before(computation: Computation) -> set[str]:
    """The names of constants and of their float converts, as elements of tuples too, which are there
    before the program runs.
    """
    found: set[str] = set()
    for i in computation.instructions:
        source = i
        if i.opcode == "get-tuple-element":
            whole = computation.by_name[i.operands[0]]
            if whole.opcode == "tuple":
                source = computation.by_name[whole.operands[i.attributes["tuple_index"]]]
        elif _rounds(i, computation.by_name):
            source = computation.by_name[i.operands[0]]
        if i.opcode == "constant" or source.name in found:
            found.add(i.name)
    return found


def converted_bytes(module: Module) -> int:
    """The bytes that the converts between float types of a module read and write, and its
    reduce-precisions: those of constants do so before the program runs, and are not counted.

    A loop's or a branch's are counted once.
    """
    total = 0
    for c in graph_computations(module):
        constants = converted_before(c)
        for i in c.instructions:
            if i.name not in constants and _rounds(i, c.by_name):
                source, wanted = c.by_name[i.operands[0]].array.dtype, i.array.dtype
                if source is not wanted or i.opcode == "reduce-precision":
                    total += i.array.size * (source.itemsize + wanted.itemsize)
    return total
