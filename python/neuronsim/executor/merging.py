"""Chains over arrays of one shape as one: what each reads is loaded once, and steps are fewer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from neuronsim.executor.steps import Chain, Step, is_view
from neuronsim.profiles import Profile

MAX_LINKS = 256
NEAR = 24  # how many steps further up a chain is looked for


def merge_chains(
    steps: Sequence[Step], results: Sequence[str], profile: Profile, changing: Sequence[str] = ()
) -> list[Step]:
    """The steps with chains that run as part of an earlier one; the values stay the same (D2). Under
    stochastic rounding each keeps the words of its own (S2). Of a loop's body, whose trips change the
    arrays `changing`, what these go into stays apart from what can run before the loop.
    """
    if profile.rounding != "nearest_even":
        return list(steps)
    uses = Counter([*(o for s in steps for o in (*s.operands, *s.inner_reads)), *results])
    merged: list[Step] = []
    makers: dict[str, int] = {}  # the place in `merged` of what gives an array
    changed = set(changing)
    for s in _early(steps):
        changes = not changed.isdisjoint(s.reads)
        changed |= {name for name, _ in s.results if changes}
        at = _place(s, merged, makers, changed)
        if at is None:
            makers |= {name: len(merged) for name, _ in s.results}
            merged.append(s)
            continue
        own = {name for name, _ in merged[at].results} & set(s.operands)
        uses.subtract(own)
        dropped = {name for name in own if uses[name] == 0}
        merged[at] = _joined(merged[at], s, dropped)
        makers |= {name: at for name, _ in s.results}
    return merged


def _early(steps: Sequence[Step]) -> list[Step]:
    """The steps with views and chains of one element right behind what they read, so that they do not
    lie between chains.
    """
    made: dict[str, int] = {}
    order: list[int] = []
    for n, s in enumerate(steps):
        one = isinstance(s.action, Chain) and not any(d > 1 for d in s.results[0][1].dims)
        at = max([made.get(o, -1) for o in s.operands], default=-1) if one or is_view(s) else n
        made |= {name: at for name, _ in s.results}
        order.append(at)
    return [steps[n] for n in sorted(range(len(steps)), key=order.__getitem__)]


def _place(
    s: Step, merged: Sequence[Step], makers: dict[str, int], changed: Collection[str]
) -> int | None:
    """Where the chain lies that a step may join: behind all that it reads, and no less changed."""
    if not isinstance(s.action, Chain):
        return None
    dims = s.results[0][1].dims
    first = max([makers.get(o, -1) for o in s.operands], default=-1)
    for at in range(len(merged) - 1, max(first, len(merged) - 1 - NEAR, 0) - 1, -1):
        other = merged[at]
        if not isinstance(other.action, Chain) or other.results[0][1].dims != dims:
            continue
        if (other.results[0][0] in changed) != (s.results[0][0] in changed):
            continue
        if other.action.is_counted != s.action.is_counted:
            continue
        if len(other.action.links) + len(s.action.links) <= MAX_LINKS:
            return at
    return None


def _joined(one: Step, other: Step, dropped: set[str]) -> Step:
    """Two chains as one, without the results that nothing else reads."""
    a, b = one.action, other.action
    assert isinstance(a, Chain)
    assert isinstance(b, Chain)
    given = {name: v for (name, _), v in zip(one.results, a.outputs, strict=True)}
    operands = list(one.operands)
    inputs = list(a.inputs)
    for o, code in zip(other.operands, b.inputs, strict=True):
        if o not in operands and o not in given:
            operands.append(o)
            inputs.append(code)
    shift = len(inputs) - len(a.inputs)
    numbers = {n: n + shift if n >= len(a.inputs) else n for n in range(len(a.inputs) + len(a.links))}
    first = len(inputs) + len(a.links)
    own = {
        n: numbers[given[o]] if o in given else operands.index(o) for n, o in enumerate(other.operands)
    }
    own |= {len(b.inputs) + n: first + n for n in range(len(b.links))}
    results = [(r, numbers[v]) for r, v in zip(one.results, a.outputs, strict=True)]
    results = [(r, v) for r, v in results if r[0] not in dropped]
    results += [(r, own[v]) for r, v in zip(other.results, b.outputs, strict=True)]
    links = (*a.renumbered(numbers), *b.renumbered(own))
    outputs = tuple(v for _, v in results)
    return replace(
        one,
        action=Chain(links, (*a.instructions, *b.instructions), tuple(inputs), outputs),
        operands=tuple(operands),
        results=tuple(r for r, _ in results),
        members=(*one.members, *other.members),
    )
