"""The types that `choose_types` chooses convert as few bytes as any types that change no value.

The least is found by trying all types of all instructions that commute with rounding, by definitions of
this file: values are terms with their roundings at the leaves, since rounding commutes with the rest.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Mapping
from typing import Any

import pytest
from tests.casting.commuting_modules import Example, example
from tests.support.graphs import constant, inst, parameter, unverified

from neuronsim import dtypes, ops
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.application.convert_merging import converted_bytes
from neuronsim.casting.application.minimum_cut import minimum_cut
from neuronsim.casting.application.type_choice import choose_types
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.plans.plan import Plan
from neuronsim.dtypes import DType
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.module import Computation, Instruction, Module, Shape
from neuronsim.hlo.verify import verify

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
# The operands that an instruction rounds, the type in which it runs, and the one that it gives.
Types = tuple[frozenset[int], DType, DType]


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


def meaning(entry: Computation, types: Mapping[str, Types], low: DType) -> tuple[list[Term], int]:
    """What the instructions that are not free read, as terms, and the bytes that are converted."""
    terms: dict[str, Term] = {}
    given: dict[str, DType] = {}
    found: list[Term] = []
    converts: set[tuple[str, object]] = set()
    for i in entry.instructions:
        rounds, runs, gives = types.get(i.name, (frozenset(), F32, F32))
        read: list[Term] = []
        for n in VALUES[i.opcode] if is_free(i) else range(len(i.operands)):
            name = i.operands[n]
            if not is_float32(entry.by_name[name]):
                continue
            if n in rounds and given[name] is F32:
                converts.add((name, low))
            if runs is F32 and (n in rounds or given[name] is low):
                converts.add((name, F32))
            read.append(rounded(terms[name]) if n in rounds else terms[name])
        given[i.name] = F32 if i.opcode == "constant" else gives
        if not is_free(i):
            found += read
            terms[i.name] = leaf(i, given[i.name])
            continue
        terms[i.name] = (i.name, *read)
        if runs is F32 and gives is low:
            terms[i.name] = rounded(terms[i.name])
            converts.add((i.name, "result"))
    values = (entry.by_name[name] for name, _ in converts)
    elements = sum(math.prod(i.array.dims) for i in values if i.opcode != "constant")
    return found, elements * (4 + low.itemsize)


def types_of(decisions: Mapping[str, Decision], entry: Computation) -> dict[str, Types]:
    found = {}
    for name, d in decisions.items():
        i = entry.by_name[name]
        numbers = range(len(i.operands)) if d.operand is not F32 else ()
        # A product has a form with two types, what is free has not, and runs in float32 (E1).
        runs = d.output if is_free(i) and d.operand is not F32 else d.operand
        found[name] = (frozenset(numbers) - set(d.float32_operands), runs, d.output)
    return found


def choices(i: Instruction, low: DType) -> list[Types]:
    """All types of an instruction that is free."""
    numbers = VALUES[i.opcode]
    nothing, everything = frozenset[int](), frozenset(numbers)
    some = (
        frozenset(c) for k in range(1, len(numbers) + 1) for c in itertools.combinations(numbers, k)
    )
    whole = [(nothing, F32, F32), (nothing, F32, low), (everything, low, low)]
    return whole + [(s, F32, F32) for s in some]


def least(e: Example, low: DType) -> int:
    """The fewest bytes of all types that give every reader what the plan gives it."""
    entry = e.module.entry_computation
    planned = types_of(e.decisions, entry)
    expected, fewest = meaning(entry, planned, low)
    free = [i for i in entry.instructions if is_free(i)]
    names = [i.name for i in free]
    for choice in itertools.product(*(choices(i, low) for i in free)):
        found, total = meaning(entry, planned | dict(zip(names, choice, strict=True)), low)
        if total < fewest and found == expected:
            fewest = total
    return fewest


def compared(seeds: range, low: DType, limit: int) -> list[tuple[int, int]]:
    """For modules with few free instructions the bytes that are converted, and the fewest."""
    found = []
    for seed in seeds:
        e = example(seed, (low,), size=5, plain=True)
        entry = e.module.entry_computation
        tried = math.prod(len(choices(i, low)) for i in entry.instructions if is_free(i))
        if not 4 <= tried <= limit:
            continue
        chosen = types_of(choose_types(e.module, e.decisions), entry)
        terms, converted = meaning(entry, chosen, low)
        assert terms == meaning(entry, types_of(e.decisions, entry), low)[0], seed
        plan = Plan("random", e.module.name, fingerprint(e.module), e.decisions)
        assert converted_bytes(apply_plan(e.module, plan)) == converted, seed
        found.append((converted, least(e, low)))
    return found


def test_the_fewest_bytes_are_converted() -> None:
    found = compared(range(400), dtypes.bfloat16, 300)
    assert len(found) > 150
    assert sum(fewest > 0 for _, fewest in found) > 100
    assert [c for c, fewest in found if c > 1.1 * fewest] == []
    assert sum(c == fewest for c, fewest in found) >= 0.95 * len(found)


@pytest.mark.exhaustive
def test_the_fewest_bytes_are_converted_of_more_modules() -> None:
    found = compared(range(2000), dtypes.bfloat16, 4000)
    print(len(found), sum(c == fewest for c, fewest in found))
    assert [c for c, fewest in found if c > 1.1 * fewest] == []
    assert sum(c == fewest for c, fewest in found) >= 0.95 * len(found)


def test_the_plan_itself_converts_more() -> None:
    more = 0
    for seed in range(60):
        e = example(seed, (dtypes.bfloat16,), size=5, plain=True)
        entry = e.module.entry_computation
        before = meaning(entry, types_of(e.decisions, entry), dtypes.bfloat16)[1]
        chosen = types_of(choose_types(e.module, e.decisions), entry)
        more += before > meaning(entry, chosen, dtypes.bfloat16)[1]
    assert more > 20


def test_minimum_cut_is_the_least_of_all_cuts() -> None:
    rng = random.Random(1)
    for _ in range(150):
        nodes = rng.randrange(3, 9)
        arcs = [
            (rng.randrange(nodes), rng.randrange(nodes), rng.randrange(6))
            for _ in range(rng.randrange(4, 24))
        ]
        total, side = minimum_cut(nodes, arcs, 0, 1)
        cuts = {
            (sum(c for a, b, c in arcs if a in s and b not in s), len(s))
            for k in range(nodes - 1)
            for rest in itertools.combinations(range(2, nodes), k)
            for s in [{0, *rest}]
        }
        assert (total, len(side)) == min(cuts)
        assert sum(c for a, b, c in arcs if a in side and b not in side) == total


def long_chain(length: int) -> tuple[Module, dict[str, Decision]]:
    """Pieces of growing and shrinking arrays between products, each read by a later one too."""
    rng = random.Random(2)
    low = dtypes.bfloat16
    body = [parameter("x0", (4,))]
    decisions = {}
    for n in range(1, length):
        before = body[-1]
        name, size = f"x{n}", before.array.dims[0]
        if n % 5 == 0:
            other = body[max(0, n - 50)]
            read = other if other.array.dims == before.array.dims else before
            i = inst(name, "maximum", before.shape, before.name, read.name)
        elif n % 7 == 0:
            i = inst(name, "tanh", before.shape, before.name)
        elif size < 16 and rng.random() < 0.5:
            i = inst(name, "pad", (size + 1,), before.name, "z", padding=((0, 1, 0),))
        else:
            kept = max(1, size - 1)
            i = inst(name, "slice", (kept,), before.name, slice=((0, kept, 1),))
        if rng.random() < 0.5:
            decisions[name] = Decision(low, F32, low, "at random")
        body.append(i)
    return unverified(constant("z", 0.0), *body, name="long"), decisions


def test_a_long_chain_is_chosen_at_once() -> None:
    """All are held in one way, but where the plan changes."""
    opcodes = ("negate", "abs", "copy")
    steps = [inst(f"x{n}", opcodes[n % 3], (4,), f"x{n - 1}") for n in range(1, 3_001)]
    module = unverified(parameter("x0", (4,)), *steps, name="long")
    low = Decision(dtypes.bfloat16, F32, dtypes.bfloat16, "test")
    decisions = {i.name: low for i in steps}
    start = time.process_time()
    assert choose_types(module, decisions) == decisions  # as float32 no fewer bytes are converted
    assert time.process_time() - start < 1  # a node for each instruction takes much longer
    few = {n: d for n, d in decisions.items() if int(n[1:]) % 100}
    chosen = choose_types(module, few)
    plan = Plan("few", "long", fingerprint(module), few)
    assert converted_bytes(apply_plan(module, plan)) == 2 * 4 * 6
    assert all(d.output in (F32, dtypes.bfloat16) for d in chosen.values())


def test_choosing_for_many_instructions_is_not_quadratic() -> None:
    module, decisions = long_chain(3_000)
    verify(module)
    start = time.process_time()
    chosen = choose_types(module, decisions)
    assert time.process_time() - start < 3  # quadratic time is tens of seconds
    assert chosen != decisions
