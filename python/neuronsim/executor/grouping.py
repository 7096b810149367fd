"""Which elementwise instructions run as one chain."""

from __future__ import annotations

from neuronsim import dtypes, ops
from neuronsim.executor.compilation import Compilation
from neuronsim.executor.merging import MAX_LINKS
from neuronsim.hlo.module import Computation, Instruction, Shape
from neuronsim.hlo.opcodes import row
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
