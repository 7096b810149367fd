"""Instructions that give what an earlier one of their computation gave: what reads them reads that one.

JAX writes the mean of an array anew for its variance, and each comparison of an index with 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from neuronsim import ops
from neuronsim.executor.steps import VIEWS
from neuronsim.hlo.array_sources import literals
from neuronsim.hlo.inlining import FlatModule
from neuronsim.hlo.instruction_settings import read_settings, stated_settings
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Shape,
    live_instructions,
)
from neuronsim.hlo.opcodes import VARIES, row
from neuronsim.profiles import Profile

MAX_CONSTANT = 16  # elements of one that is compared with others
SMALL = 4096  # elements

# The opcodes whose values their operands and attributes decide.
_DECIDED = (ops.OPCODES | {"constant", "get-tuple-element"}) - VARIES
# What is no step, or is computed again as quickly as it is read.
_CHEAP = frozenset({*VIEWS, "iota"})


def merge_repeats(module: FlatModule, profile: Profile) -> tuple[FlatModule, dict[str, str]]:
    """The module with instructions that repeat an earlier one unread; and, by each that repeats one,
    the first of these, whether it is read instead or not. Under stochastic rounding each draws words of
    its own (S2), and what every run counts stays (C7, E3). So do large arrays of one step for each
    element: kept from one reader to another they would take memory, and products make them as they go.
    """
    if profile.rounding != "nearest_even":
        return module, {}
    by_name = {c.name: c for c in module.computations}
    repeats: dict[str, str] = {}
    computations: list[Computation] = []
    for c in module.computations:
        found = _repeats(c, by_name, profile)
        computations.append(_without(c, {n: of for n, of in found.items() if _saves(c.by_name[n])}))
        repeats |= found
    return FlatModule(replace(module, computations=tuple(computations))), repeats


def _repeats(c: Computation, by_name: Mapping[str, Computation], profile: Profile) -> dict[str, str]:
    live = live_instructions(c)
    firsts: dict[tuple[Any, ...], list[Instruction]] = {}
    found: dict[str, str] = {}
    for i in c.instructions:
        if i.name not in live or not _is_decided(i, profile):
            continue
        operands = tuple(found.get(o, o) for o in i.operands)
        alike = firsts.setdefault((i.opcode, operands, i.result, _stated(i)), [])
        same = next((j for j in alike if _calls_the_same(i, j, by_name)), None)
        if same is None:
            alike.append(i)
        else:
            found[i.name] = same.name
    return found


def _without(c: Computation, repeats: Mapping[str, str]) -> Computation:
    if not repeats:
        return c
    return replace(c, instructions=tuple(i.reading(repeats) for i in c.instructions))


def _is_decided(i: Instruction, profile: Profile) -> bool:
    """Whether an instruction is one that may repeat another."""
    if i.opcode not in _DECIDED or read_settings(i).rounding == "stochastic":
        return False
    if i.opcode == "constant":
        return isinstance(i.shape, Shape) and i.shape.size <= MAX_CONSTANT
    return i.opcode == "get-tuple-element" or not any(
        ops.counts(row(i), s.dtype, profile) for s in i.shape.arrays()
    )


def _saves(i: Instruction) -> bool:
    """Whether reading the first one saves more than it costs."""
    if i.opcode in ("constant", "get-tuple-element"):
        return False
    op = row(i)
    is_cheap = op.name in _CHEAP or ops.is_elementwise(op)
    return not is_cheap or sum(s.size for s in i.shape.arrays()) <= SMALL


def _stated(i: Instruction) -> object:
    """What an instruction's attributes say, but for the names of the computations that it calls."""
    stated = {k: v for k, v in i.attributes.items() if k not in ("called", "frontend_attributes")}
    stated["settings"] = tuple(stated_settings(i.attributes).items())
    if i.opcode == "constant":
        stated["literal"] = tuple(x.data.tobytes() for x in literals(stated["literal"]))
    items = tuple(sorted(stated.items()))
    try:
        hash(items)
    except TypeError:
        return repr(items)
    return items


def _calls_the_same(i: Instruction, j: Instruction, by_name: Mapping[str, Computation]) -> bool:
    return len(i.called) == len(j.called) and all(
        _are_alike(by_name[a], by_name[b], by_name) for a, b in zip(i.called, j.called, strict=True)
    )


def _are_alike(a: Computation, b: Computation, by_name: Mapping[str, Computation]) -> bool:
    """Whether computations are the same but for their names."""
    if a is b:
        return True
    if len(a.instructions) != len(b.instructions):
        return False
    names: dict[str, str] = {}
    for i, j in zip(a.instructions, b.instructions, strict=True):
        reads = tuple(names[o] for o in i.operands)
        if (i.opcode, i.result, reads) != (j.opcode, j.result, j.operands):
            return False
        if _stated(i) != _stated(j) or not _calls_the_same(i, j, by_name):
            return False
        names[i.name] = j.name
    return names[a.root] == b.root
