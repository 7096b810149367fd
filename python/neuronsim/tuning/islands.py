"""Islands: instructions that a search keeps in one type together, since there are too many to try each.

>>> from neuronsim.hlo.parse import from_text
>>> module = from_text('''HloModule m
... ENTRY main { x = f32[4] parameter(0)  a = f32[4] tanh(x)  b = f32[4] add(a, a)
...   c = f32[4] sine(b)  d = f32[4] cosine(b)  ROOT e = f32[4] add(c, d) }''')
>>> by_dominance(module.entry_computation, ["a", "b", "c", "d", "e"], 2)
[['a', 'b'], ['c', 'd', 'e']]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neuronsim.hlo.module import Computation, Instruction


def by_scope(
    instructions: Mapping[str, Instruction], names: Sequence[str], level: int
) -> list[list[str]]:
    """Those that follow each other in one scope of the source's names, which has so many parts."""
    found: list[tuple[str, list[str]]] = []
    for name in names:
        scope = "/".join(instructions[name].metadata.op_name.split("/")[:level])
        if not found or found[-1][0] != scope:
            found.append((scope, []))
        found[-1][1].append(name)
    return [members for _, members in found]


def by_dominance(c: Computation, names: Sequence[str], most: int) -> list[list[str]]:
    """Instructions of a computation, in its order, whose values leave an island by its last one alone:
    all ways from the others to the result lead through it. They are as small as `most` islands allow;
    where too many end at one instruction, these are put together in order.
    """
    parents = _parents(c, names)
    size = -(-len(names) // most)
    while size < len(names):
        found = _cut(names, parents, size)
        if len(found) <= most:
            return found
        size += max(1, size // 4)
    return [list(names)] if names else []


def _parents(c: Computation, names: Sequence[str]) -> dict[str, str]:
    """For each of these the next of them that all ways from it to the result lead through."""
    users, wanted = c.users(), set(names)
    after: dict[str, str] = {}  # the immediate post-dominator of every instruction
    depth = {c.root: 0}
    for i in reversed(c.instructions):
        met = ""
        for u in users[i.name]:
            if u.name not in depth:  # no result hangs on it
                continue
            at = u.name
            while met and at != met:
                if depth[at] >= depth[met]:
                    at = after[at]
                else:
                    met = after[met]
            met = at
        if i.name != c.root and met:
            after[i.name], depth[i.name] = met, depth[met] + 1
    found = {}
    for name in names:
        at = after.get(name, "")
        while at and at not in wanted:
            at = after.get(at, "")
        if at:
            found[name] = at
    return found


def _cut(names: Sequence[str], parents: Mapping[str, str], size: int) -> list[list[str]]:
    """The parts of the tree of dominators, none larger than `size`."""
    place = {name: n for n, name in enumerate(names)}
    parts: dict[str, list[str]] = {}  # by their last instruction
    open_: dict[str, list[str]] = {}  # of each, the parts that end at it
    for name in names:
        parts[name] = [name]
        for child in sorted(open_.pop(name, []), key=lambda n: len(parts[n])):
            if len(parts[name]) + len(parts[child]) <= size:
                parts[name] += parts.pop(child)
        if name in parents:
            open_.setdefault(parents[name], []).append(name)
    return [sorted(part, key=place.__getitem__) for part in parts.values()]
