"""Which elementwise instructions run as one chain, and the chain's step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.executor.compilation import Compilation
from neuronsim.executor.merging import MAX_LINKS
from neuronsim.executor.steps import Chain, Step
from neuronsim.hlo.module import Computation, Instruction, Shape
from neuronsim.hlo.opcodes import row
from neuronsim.ops import Bits
from neuronsim.profiles import Profile

# Types among which a chain moves bits.
_WORDS = (dtypes.float32, dtypes.int32, dtypes.uint32)


def find_chains(
    computation: Computation, shared: Compilation, live: set[str]
) -> dict[str, list[Instruction]]:
    """The chain of every instruction that is in one: its inner results have the dimensions of the last
    one, and no reader outside. Its last member is its root.
    """
    users = {n: [u.name for u in us if u.name in live] for n, us in computation.users().items()}
    place = {i.name: n for n, i in enumerate(computation.instructions)}
    chains: dict[str, list[Instruction]] = {}
    for i in computation.instructions:
        if i.name not in live or not _is_elementwise(i, computation, shared):
            continue
        counts = _counts(i, shared.profile)
        if shared.profile_of(i) is not shared.profile:  # a chain rounds all of its links alike
            continue
        members = {i.name: i}
        pending = [i]
        while pending:
            for o in dict.fromkeys(pending.pop().operands):
                inner = chains.get(o)
                if (
                    inner is not None
                    and o not in members
                    and o != computation.root
                    and inner[-1].name == o
                    and inner[-1].array.dims == i.array.dims
                    and _counts(inner[-1], shared.profile) == counts
                    and all(u in members for u in users[o])
                    and len(members) + len(inner) <= MAX_LINKS
                ):
                    members |= {m.name: m for m in inner}
                    pending = list(members.values())
        chain = sorted(members.values(), key=lambda m: place[m.name])
        for member in chain:
            chains[member.name] = chain
    return chains


def _counts(i: Instruction, profile: Profile) -> bool:
    return ops.counts(row(i), i.array.dtype, profile)


def _is_elementwise(i: Instruction, computation: Computation, shared: Compilation) -> bool:
    if i.opcode not in ops.OPCODES or not isinstance(i.shape, Shape):
        return False
    op = row(i)
    types = [i.shape.dtype, *(computation.by_name[o].array.dtype for o in i.operands)]
    if op.name == "bitcast_convert":
        return all(t in _WORDS for t in types)
    if shared.keeps_64_bits and not ops.TRUNCATED.keys().isdisjoint(types):
        return False  # each truncates its operands (C7)
    return ops.is_chained(op, types)


def chain_step(
    c: Computation,
    members: Sequence[Instruction],
    values: Mapping[str, tuple[str, ...]],
    shared: Compilation,
) -> Step:
    """Elementwise instructions as one chain on the arrays of `values`; what is folded is an input, or a
    constant of the chain where it is one element everywhere.
    """
    constants = shared.constants
    members = [m for m in members if values[m.name][0] not in constants]
    inside = {m.name for m in members}
    outside = dict.fromkeys(o for m in members for o in m.operands if o not in inside)
    elements = {o: x for o in outside if (x := _element(values[o][0], shared)) is not None}
    inputs = [o for o in outside if o not in elements]
    types = {o: c.by_name[o].array.dtype for o in outside} | {m.name: m.array.dtype for m in members}
    numbers = {o: n for n, o in enumerate(inputs)}
    links: list[ops.Link] = []
    paths: list[str] = []
    push = ops.pusher(links, len(inputs))
    for m in members:
        first = len(links)
        for o in dict.fromkeys(m.operands):
            if o in elements and o not in numbers:
                numbers[o] = push(ops.constant_link(elements[o]))
        operands = [(numbers[o], types[o]) for o in m.operands]
        arguments = (row(m), m.attributes, operands, m.array.dtype)
        numbers[m.name] = ops.lower_counted(*arguments, shared.profile, push)
        paths += [m.name] * (len(links) - first)
    root = members[-1]
    codes = tuple(ops.core_code(types[o], root.name) for o in inputs)
    chain = Chain(tuple(links), tuple(paths), codes, (len(codes) + len(links) - 1,))
    (name,) = values[root.name]
    arrays = tuple(values[o][0] for o in inputs)
    results, names = ((name, root.array.type),), tuple(m.name for m in members)
    return Step(root.name, c.name, chain, arrays, results, names)


def _element(name: str, shared: Compilation) -> Bits | None:
    """The element of an array that is a constant of one everywhere. Under stochastic rounding the steps
    of a chain have numbers (S2), which such a constant would change.
    """
    value = shared.constants.get(name)
    if value is None or shared.profile.rounding != "nearest_even" or not value.data.size:
        return None
    if any(s != 0 and n != 1 for n, s in zip(value.data.shape, value.data.strides, strict=True)):
        return None
    return Bits(np.asarray(value.data[(0,) * value.data.ndim]), value.dtype)
