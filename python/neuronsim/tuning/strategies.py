"""The strategies of a search, each a function that leaves its best choice in the search.

- sensitivity: one instruction at a time is lowered; the worst stay float32, as few as need be.
- pareto: the same with errors added as vectors, by time; then needless float32 is given back and what
  is left may have another low type.
- bisect: delta debugging without any ranking.
- greedy: the instruction that helps most goes back to float32, again and again.
- neural-compressor: Neural Compressor's published procedure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from neuronsim.tuning.search import Search, path_of
from neuronsim.tuning.space import MAX_UNITS, Choice, Unit

EXHAUSTIVE_UNITS = 10  # as many are searched by all of their sets, by predicted errors
PREDICTED = 200  # sets whose time is estimated otherwise
PLANNED = 48  # units of which each one's time is that of a plan
CHECKED = 8  # promising sets that are tried


def sensitivity(search: Search) -> None:
    """Units by the loss, then the error, that each makes alone; the shortest list that is enough."""
    if search.fits(search.without([])):
        return
    search.measure_units(search.units)
    order = sorted(search.units, key=lambda u: (not search.breaks(u), -search.error(u)))
    _shortest(search, order)


def pareto(search: Search) -> None:
    """Additive errors over estimated time; then delta debugging, and other low types."""
    if search.fits(search.without([])):
        return
    search.start_from_fallback()
    if len(search.low) > PLANNED:  # a plan soon, whenever the search has to end
        opcodes = {n: search.space.instructions[n].opcode for n in search.low}
        others = [n for n, opcode in opcodes.items() if opcode not in ("dot", "convolution")]
        search.fits(search.without([Unit("others", tuple(others))]), "products")
    search.measure_units(search.units)
    costs = _costs(search)
    kept = _shortest(search, path_of(search, costs))
    if any(len(u) > 1 for u in kept):
        kept = _split(search, kept)
    # Of few instructions the needless ones are looked for to the end.
    kept = give_back(search, kept, limited=not search.by_count or len(search.low) > MAX_UNITS)
    if not search.by_count:
        _cheaper(search, kept, costs)
    retype(search)


def bisect(search: Search) -> None:
    """Delta debugging from float32 everywhere."""
    if search.fits(search.without([])):
        return
    give_back(search, search.units)


def greedy(search: Search) -> None:
    """Round by round the unit whose return to float32 leaves the smallest loss."""
    kept: list[Unit] = []
    if search.fits(search.without([])):
        return
    while len(kept) < len(search.units):
        rest = [u for u in search.units if u not in kept]
        choices = [search.without([*kept, u]) for u in rest]
        losses = search.losses(choices, "greedy", shards=search.data.ranking)
        kept.append(rest[losses.index(min(losses))])
        if min(losses) <= search.ranking_budget and search.fits(search.without(kept)):
            return


def neural_compressor(search: Search) -> None:
    """All that can be is lowered; else each type of operation alone goes back, then each operation
    alone, then operations one after another by what each alone gained.
    """
    if search.fits(search.without([])):
        return
    units = [Unit(n, (n,)) for n in search.low]
    by_type: dict[str, list[Unit]] = {}
    for u in units:
        by_type.setdefault(search.space.instructions[u.name].opcode, []).append(u)
    for members in by_type.values():
        if search.fits(search.without(members), "types"):
            return
    alone = [search.without([u]) for u in units]
    losses = search.losses(alone, "operations", shards=search.data.deciding)
    for choice, loss in zip(alone, losses, strict=True):
        if loss <= search.budget and search.fits(choice):
            return
    order = sorted(range(len(units)), key=lambda n: losses[n])
    for count in range(2, len(order) + 1):
        if search.fits(search.without([units[n] for n in order[:count]]), "fallback"):
            return


STRATEGIES: Mapping[str, Callable[[Search], None]] = {
    "sensitivity": sensitivity,
    "pareto": pareto,
    "bisect": bisect,
    "greedy": greedy,
    "neural-compressor": neural_compressor,
}


def _costs(search: Search) -> dict[str, float]:
    """What each unit in float32 adds to the estimated time of the base, or instructions."""
    if search.by_count:
        return {u.name: float(len(u)) for u in search.units}
    base = search.seconds(search.space.plan(search.without([])))
    least = base * 1e-4
    if search.prices is not None and len(search.units) > PLANNED:
        own = {u.name: sum(search.gain(n, search.start[n]) for n in u.members) for u in search.units}
        return {name: max(gain, least) for name, gain in own.items()}
    found = {}
    for u in search.units:
        more = search.seconds(search.space.plan(search.without([u]))) - base
        found[u.name] = max(more, least)
    return found


def _shortest(search: Search, order: Sequence[Unit]) -> list[Unit]:
    """The shortest beginning of a list that is enough when it stays float32: from a guess by adding
    errors upward in doubling steps, then by halving.
    """
    fails, steps = 0, 1
    count = 1
    if search.runner.metric.name == "relative_error":
        guesses = (n for n in range(len(order)) if _guess(search, order, n) <= search.budget)
        count = max(1, next(guesses, len(order)))
    while not search.fits(search.without(order[:count])):
        fails = count
        if count == len(order):
            return list(order)
        count, steps = min(len(order), count + steps), 2 * steps
    passes = count
    if not fails and passes > 1 and not search.fits(search.without(order[: passes // 2])):
        fails = passes // 2
    elif not fails and passes > 1:
        passes = passes // 2
    while passes - fails > 1:
        middle = (passes + fails) // 2
        if search.fits(search.without(order[:middle])):
            passes = middle
        else:
            fails = middle
    return list(order[:passes])


def _guess(search: Search, order: Sequence[Unit], count: int) -> float:
    return search.predicted(order[:count], search.units)


def _split(search: Search, kept: Sequence[Unit]) -> list[Unit]:
    """Islands as the instructions that they are made of, with the sensitivity of each: those of the
    largest errors, as far as three quarters of the trials that are left go.
    """
    room = search.room * 3 // 4
    whole, names = [], list[str]()
    for u in sorted(kept, key=lambda u: (not search.breaks(u), -search.error(u))):
        if len(u) > 1 and len(names) + len(u) > room:
            whole.append(u)
        else:
            names += u.members
    single = search.space.units(names, most=len(names))
    if whole:
        search.stop_short()
    search.measure_units(single, "islands")
    return [*whole, *single]


def give_back(search: Search, kept: Sequence[Unit], *, limited: bool = False) -> list[Unit]:
    """Delta debugging: parts of what is float32, then single instructions, go back to the low type as
    long as the loss is within the budget. What is left is needed, each one of it; a `limited` one ends
    at the number of trials that a search may take.
    """
    # Those of the smallest errors first: they are the likeliest to be needless.
    left = sorted(kept, key=lambda u: (search.breaks(u), search.error(u)))
    size = max(1, len(left) // 2)
    while left:
        size = min(size, len(left))
        if limited and -(-len(left) // size) + 4 > search.room:
            search.stop_short()
            return left
        parts = [left[n : n + size] for n in range(0, len(left), size)]
        if len(left) > EXHAUSTIVE_UNITS:
            (now,) = search.losses([search.without(left)], "give back", shards=search.data.ranking)
            parts = [p for p in parts if not search.is_hopeless(p, now)]
        choices = [search.without([u for u in left if u not in part]) for part in parts]
        losses = search.losses(choices, "give back", shards=search.data.ranking)
        order = sorted(range(len(parts)), key=lambda n: losses[n])
        able = [n for n in order if losses[n] <= search.ranking_budget]
        removed = _removed_together(search, left, [parts[n] for n in able])
        if removed:
            left = [u for u in left if u not in removed]
        elif size == 1:
            return left
        else:
            size = max(1, size // 2)
    return left


def _removed_together(
    search: Search, left: Sequence[Unit], parts: Sequence[Sequence[Unit]]
) -> list[Unit]:
    """As many of the first parts as may go back together, by halving; then none."""
    count = len(parts)
    while count:
        gone = [u for part in parts[:count] for u in part]
        if search.fits(search.without([u for u in left if u not in gone]), "give back"):
            return gone
        count //= 2
    return []


def _cheaper(search: Search, kept: Sequence[Unit], costs: Mapping[str, float]) -> None:
    """Other sets of float32 units of shorter estimated time whose predicted error is not larger: all
    sets of a few units, else those that differ in one or two.
    """
    if search.best is None:
        return
    units = [u for u in search.units if u.name in search.sensitivities and len(u) == 1]
    known = search.budget if search.runner.metric.name == "relative_error" else 0.0
    limit = max(known, search.predicted(kept, units))
    likely = [own for own in _nearby(units, kept, costs) if search.predicted(own, units) <= limit]
    if len(search.units) > PLANNED:  # of so many instructions each plan's time takes long to estimate
        likely = sorted(likely, key=lambda own: _sum(costs, own))[:CHECKED]
    choices = [search.without(own) for own in likely]
    found = sorted(((search.cost(c), c) for c in choices), key=lambda pair: pair[0])
    for cost, choice in found[: max(0, min(CHECKED, search.room))]:
        if cost >= search.cost(search.best) or search.fits(choice, "cheaper"):
            return


def _sum(costs: Mapping[str, float], units: Sequence[Unit]) -> float:
    return math.fsum(costs.get(u.name, 0.0) for u in units)


def _nearby(
    units: Sequence[Unit], kept: Sequence[Unit], costs: Mapping[str, float]
) -> list[list[Unit]]:
    """Sets to look at, without the one that is kept; of many units those of smaller costs."""
    if len(units) <= EXHAUSTIVE_UNITS:
        sizes = range(len(units) + 1)
        found = [list(s) for n in sizes for s in itertools.combinations(units, n)]
        return [s for s in found if {u.name for u in s} != {u.name for u in kept}]
    inside = [u for u in kept if u in units]
    outside = [u for u in units if u not in inside]
    more = [[*inside, u] for u in outside]
    swapped = [
        [*(u for u in inside if u is not a), b]
        for a in inside
        for b in outside
        if len(units) <= PLANNED or costs.get(b.name, 0.0) < costs.get(a.name, 0.0)
    ]
    return [*(more if len(units) <= PLANNED else []), *swapped][:PREDICTED]


def retype(search: Search) -> None:
    """What is float32 in other low types, where that is enough and better: all of it, else its halves,
    quarters, ... one after the other.
    """
    for label in search.others:
        if search.best is None:
            return
        known = set(search.space.lowered_by(label))
        best = search.best if label != search.fallback else {}
        names = [n for n in search.low if best and search.is_kept(n, best) and n in known]
        names = [n for n in names if search.start.get(n) != label]
        if search.prices is not None:
            names = [n for n in names if search.gain(n, label) > 0]
        now, pending = search.best, [names] if names else []
        while pending and (search.by_count or search.room > 0):
            part = pending.pop(0)
            choice = {**now, **dict.fromkeys(part, label)}
            if not _is_cheaper(search, choice, now):
                continue
            if search.fits(choice, "types"):
                now = choice
            elif len(part) > 1:
                half = len(part) // 2
                pending[:0] = [part[:half], part[half:]]


def _is_cheaper(search: Search, choice: Choice, now: Choice) -> bool:
    """Whether a choice costs less: of equal times neither, since another type may take less."""
    costs = search.cost(choice), search.cost(now)
    return costs[0] < costs[1] if search.by_count else costs[0][0] < costs[1][0] * (1 - 1e-6)
