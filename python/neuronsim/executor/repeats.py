"""Instructions that give what an earlier one of their computation gave: what reads them reads that one.

JAX writes the mean of an array anew for its variance, and each comparison of an index with 0.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

from neuronsim import ops
from neuronsim.executor.steps import VIEWS
from neuronsim.hlo.inlining import FlatModule
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Shape,
    live_instructions,
)
from neuronsim.hlo.opcodes import row
from neuronsim.hlo.value_keys import ValueKeys, is_decided
from neuronsim.profiles import Profile

MAX_CONSTANT = 16  # elements of one that is compared with others
SMALL = 4096  # elements

_COMPARED = ops.OPCODES | {"constant", "get-tuple-element"}
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
    keys = ValueKeys(module)
    repeats: dict[str, str] = {}
    computations: list[Computation] = []
    for c in module.computations:
        found = _repeats(c, keys, profile)
        computations.append(_without(c, {n: of for n, of in found.items() if _saves(c.by_name[n])}))
        repeats |= found
    return FlatModule(replace(module, computations=tuple(computations))), repeats


def _repeats(c: Computation, keys: ValueKeys, profile: Profile) -> dict[str, str]:
    live = live_instructions(c)
    firsts: dict[Hashable, str] = {}
    found: dict[str, str] = {}
    for i in c.instructions:
        if i.name in live and _may_repeat(i, profile):
            operands = [found.get(o, o) for o in i.operands]
            first = firsts.setdefault(keys.of(i, operands), i.name)
            if first != i.name:
                found[i.name] = first
    return found


def _without(c: Computation, repeats: Mapping[str, str]) -> Computation:
    if not repeats:
        return c
    return replace(c, instructions=tuple(i.reading(repeats) for i in c.instructions))


def _may_repeat(i: Instruction, profile: Profile) -> bool:
    """Whether an instruction is one that may repeat another."""
    if i.opcode not in _COMPARED or not is_decided(i):
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
