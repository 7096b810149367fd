"""The types that `choose_types` chooses convert as few bytes as any types that change no value.

The least is found by trying all types of all instructions that commute with rounding, by definitions of
this file: values are terms with their roundings at the leaves, since rounding commutes with the rest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import pytest
from tests.casting.commuting_modules import Example, example

from neuronsim import dtypes, ops
from neuronsim.casting.apply import apply_plan
from neuronsim.casting.clean import choose_types, converted_bytes
from neuronsim.casting.plan import Plan, fingerprint
from neuronsim.casting.policy import Decision
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Computation, Instruction, Shape

pytestmark = pytest.mark.isa_independent
F32 = dtypes.float32
# Of each opcode the operands that commute with rounding, written down once more.
ONE = "abs broadcast copy dynamic-slice negate reshape reverse slice transpose"
TWO = "maximum minimum concatenate dynamic-update-slice pad reduce reduce-window"
VALUES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(ONE.split(), (0,)),
    **dict.fromkeys(TWO.split(), (0, 1)),
    "select": (1, 2),
    "clamp": (0, 1, 2),
}
Term = Any
Types = Mapping[str, tuple[DType, DType]]  # that an instruction reads and gives


def is_free(i: Instruction) -> bool:
    reducer = i.attributes.get("called", ("maximum",))[0]
    return i.opcode in VALUES and reducer in ("maximum", "minimum")


def is_float32(i: Instruction) -> bool:
    return isinstance(i.shape, Shape) and i.shape.dtype is F32


def rounded(term: Term) -> Term:
    """The term with a rounding at each of its leaves that may change."""
    if term[0] == "leaf":
        return ("leaf", term[1], "rounded" if term[2] == "free" else term[2])
    return (term[0], *map(rounded, term[1:]))


def leaf(i: Instruction, given: DType) -> Term:
    """A value that is computed: "free" if rounding changes it."""
    if i.opcode == "constant":
        literal: ops.Bits = i.attributes["literal"]
        same = literal.data.astype(dtypes.bfloat16.numpy).astype("f4") == literal.data
        return ("leaf", i.name, "low" if same.all() else "free")
    return ("leaf", i.name, "free" if given is F32 else "low")


def meaning(entry: Computation, types: Types, low: DType) -> tuple[list[Term], int]:
    """What the instructions that are not free read, as terms, and the bytes that are converted."""
    terms: dict[str, Term] = {}
    given: dict[str, DType] = {}
    found: list[Term] = []
    converts: set[tuple[str, object]] = set()
    for i in entry.instructions:
        reads, gives = types.get(i.name, (F32, F32))
        free = is_free(i)
        read: list[Term] = []
        for name in (i.operands[n] for n in VALUES[i.opcode]) if free else i.operands:
            if is_float32(entry.by_name[name]):
                if reads is low and given[name] is F32:
                    converts.add((name, low))
                in_float32 = reads is F32 or (free and gives is F32)
                if in_float32 and (given[name] is low or reads is low):
                    converts.add((name, F32))
                read.append(rounded(terms[name]) if reads is low else terms[name])
        given[i.name] = F32 if i.opcode == "constant" else gives
        if not free:
            found += read
            terms[i.name] = leaf(i, given[i.name])
            continue
        terms[i.name] = (i.name, *read)
        if reads is F32 and gives is low:
            terms[i.name] = rounded(terms[i.name])
            converts.add((i.name, "result"))
    sizes = (entry.by_name[name] for name, _ in converts)
    elements = sum(math.prod(i.array.dims) for i in sizes if i.opcode != "constant")
    return found, elements * (4 + low.itemsize)


def types_of(decisions: Mapping[str, Decision]) -> dict[str, tuple[DType, DType]]:
    return {name: (d.operand, d.output) for name, d in decisions.items()}


def least(e: Example, low: DType) -> int:
    """The fewest bytes of all types that give every reader what the plan gives it."""
    entry = e.module.entry_computation
    planned = types_of(e.decisions)
    expected, fewest = meaning(entry, planned, low)
    free = [i.name for i in entry.instructions if is_free(i)]
    for choice in itertools.product(itertools.product((F32, low), repeat=2), repeat=len(free)):
        found, total = meaning(entry, planned | dict(zip(free, choice, strict=True)), low)
        if total < fewest and found == expected:
            fewest = total
    return fewest


def test_the_fewest_bytes_are_converted() -> None:
    low = dtypes.bfloat16
    equal = total = seed = 0
    while total < 120:
        seed += 1
        e = example(seed, (low,), size=5, plain=True)
        entry = e.module.entry_computation
        if not 1 <= sum(map(is_free, entry.instructions)) <= 4:
            continue
        before = meaning(entry, types_of(e.decisions), low)
        chosen = types_of(choose_types(e.module, e.decisions))
        terms, converted = meaning(entry, chosen, low)
        assert terms == before[0], seed
        plan = Plan("random", e.module.name, fingerprint(e.module), e.decisions)
        assert converted_bytes(apply_plan(e.module, plan)) == converted, seed
        fewest = least(e, low)
        if fewest:
            assert converted <= 1.1 * fewest, (seed, converted, fewest)
            equal += converted == fewest
            total += 1
    assert equal >= 0.95 * total
    print(equal, total)
