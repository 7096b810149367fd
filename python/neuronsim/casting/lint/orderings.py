"""Orderings: which differences of values are never positive, whatever the values are.

What is left of a value when a maximum that it is an element of is taken away is at most zero, through
broadcasts, guards against infinite maxima, running and segment maxima, and log(sum(exp(...))), which is
above each of its terms. The numbers are those of exact arithmetic, and finite: what a guard selects for
an infinite value or NaN is not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from neuronsim import ops
from neuronsim.casting.lint.sorted_results import place_in, place_of_maximum, sorted_result
from neuronsim.casting.lint.views import Anywhere, Label, View, Views, anywheres, place_of, unified
from neuronsim.hlo.module import Instruction, Shape
from neuronsim.hlo.recognition.patterns import Graph


@dataclass(frozen=True)
class _Goal:
    """That the sum of some values is not above that of others, with the places chosen so far and what
    predicates are assumed to be.
    """

    added: tuple[View, ...]
    taken: tuple[View, ...]
    places: Mapping[Anywhere, Label] = field(default_factory=dict)
    assumed: tuple[tuple[View, bool], ...] = ()


Bounds = Callable[[str], tuple[float, float]]
_STEPS = 120  # of one question
_TERMS = 8


class Orderings(Views):
    """The orderings of a computation's values; `bounds` has the least and the greatest, where known."""

    def __init__(self, graph: Graph, bounds: Bounds) -> None:
        super().__init__(graph)
        self.bounds = bounds
        self._steps = 0

    def is_never_positive(self, name: str, where: tuple[str, bool] | None = None) -> bool:
        """Whether no element of an instruction's array is above zero; with `where` none of those at
        which a predicate of the same shape is so.
        """
        assumed = ((self._source(self._view(where[0])), where[1]),) if where else ()
        return self._begin(_Goal((self._view(name),), (), assumed=assumed))

    def is_never_negative(self, name: str) -> bool:
        """Whether no element of an instruction's array is below zero."""
        return self._begin(_Goal((), (self._view(name),)))

    def sums_up_one(self, i: Instruction) -> bool:
        """Whether a reduce that adds exponentials up always adds one that is at least 1."""
        v = self._source(self._reduced(i, self._view(i.name), self._anywhere))
        e = self.by_name[v.name]
        exponent = View(e.operands[0], v.labels) if e.opcode == "exponential" else None
        return exponent is not None and self._begin(_Goal((), (exponent,)))

    # ---- proofs -------------------------------------------------------------------------------------

    def _begin(self, goal: _Goal) -> bool:
        self._steps = _STEPS
        return self._holds(goal)

    def _holds(self, goal: _Goal) -> bool:
        self._steps -= 1
        if self._steps < 0 or len(goal.added) + len(goal.taken) > _TERMS:
            return False
        goal = replace(
            goal,
            added=tuple(self._source(v) for v in goal.added),
            taken=tuple(self._source(v) for v in goal.taken),
        )
        for smaller, is_sure in self._cancelled(goal):
            if is_sure:
                return self._holds(smaller)
            if self._holds(smaller):
                return True
        if self._is_bounded(goal):
            return True
        linear, cases = self._linear(goal), self._cases(goal)
        if linear is not None:
            return self._holds(linear) or self._by_dropping(goal)
        if cases is not None and len(cases) == 1:
            return self._holds(cases[0]) or self._by_dropping(goal)
        # As a whole first: a maximum over what a select gives is above what it gives.
        if any(map(self._holds, self._choices(goal))):
            return True
        return (cases is not None and all(map(self._holds, cases))) or self._by_dropping(goal)

    def _by_dropping(self, goal: _Goal) -> bool:
        """Without what only helps: values taken away that are not negative, and the like."""
        if len(goal.added) + len(goal.taken) < 2:
            return False
        for n, v in enumerate(goal.added):
            if self.bounds(v.name)[1] <= 0 and self._holds(
                replace(goal, added=_without(goal.added, n))
            ):
                return True
        for n, v in enumerate(goal.taken):
            if self.bounds(v.name)[0] >= 0 and self._holds(
                replace(goal, taken=_without(goal.taken, n))
            ):
                return True
        return False

    def _cancelled(self, goal: _Goal) -> Iterator[tuple[_Goal, bool]]:
        """The goal without a value on both sides, and whether no place had to be chosen for it."""
        for m, a in enumerate(goal.added):
            for n, t in enumerate(goal.taken):
                if self.representative(a.name) != self.representative(t.name):
                    continue
                places = unified(a.labels, t.labels, goal.places)
                if places is not None:
                    smaller = replace(
                        goal,
                        added=_without(goal.added, m),
                        taken=_without(goal.taken, n),
                        places=places,
                    )
                    yield smaller, len(places) == len(goal.places)

    def _is_bounded(self, goal: _Goal) -> bool:
        highest = [self.bounds(v.name)[1] for v in goal.added]
        least = [self.bounds(v.name)[0] for v in goal.taken]
        if -math.inf in highest or math.inf in least:
            return True
        return math.inf not in highest and -math.inf not in least and sum(highest) <= sum(least)

    def _linear(self, goal: _Goal) -> _Goal | None:
        """The goal with a sum's terms in the place of the sum."""
        for side, other in (("added", "taken"), ("taken", "added")):
            views = getattr(goal, side)
            for n, v in enumerate(views):
                i = self.by_name[v.name]
                if i.opcode not in ("add", "subtract", "negate") or not _is_float(i):
                    continue
                parts = [View(o, v.labels) for o in i.operands]
                same = () if i.opcode == "negate" else parts[:1] if i.opcode == "subtract" else parts
                turned = parts if i.opcode == "negate" else parts[1:] if i.opcode == "subtract" else ()
                rest = (*_without(views, n), *same)
                return _with(_with(goal, side, rest), other, (*getattr(goal, other), *turned))
        return None

    def _cases(self, goal: _Goal) -> list[_Goal] | None:
        """Goals that must all hold for this one to hold, one alone if there is such a value."""
        found = [
            cases
            for side in ("added", "taken")
            for n in range(len(getattr(goal, side)))
            if (cases := self._cases_of(goal, side, n))
        ]
        return min(found, key=len) if found else None

    def _cases_of(self, goal: _Goal, side: str, n: int) -> list[_Goal]:
        views: tuple[View, ...] = getattr(goal, side)
        v, i = views[n], self.by_name[views[n].name]
        chosen = any(True for _ in anywheres(v.labels, goal.places))
        whole = "maximum" if side == "added" else "minimum"

        def with_(view: View) -> _Goal:
            return _with(goal, side, (*_without(views, n), view))

        if i.opcode == "reduce" and self._reducer(i) == whole and len(i.operands) == 2:
            attained = self._attained(goal, n) if side == "added" else None
            if attained is not None:
                return [attained]
            return [] if chosen else [with_(self._reduced(i, v, self._somewhere))]
        operands = [View(o, v.labels) for o in i.operands]
        if i.opcode == "select":
            cases = self._selected(goal, operands, with_)
        elif i.opcode == whole:
            cases = [with_(o) for o in operands]
        elif i.opcode == "clamp" and side == "added":
            cases = [with_(o) for o in operands[:2]]
        elif i.opcode == "clamp":
            unbounded = self.bounds(operands[2].name)[0] >= _LARGEST
            cases = [with_(o) for o in operands[1 : 2 if unbounded else 3]]
        else:
            return []
        # What is chosen would have to be chosen for all cases at once.
        return cases if len(cases) == 1 or not chosen else []

    def _selected(
        self, goal: _Goal, operands: Sequence[View], with_: Callable[[View], _Goal]
    ) -> list[_Goal]:
        """The goals of the values that a select can give, each with what its predicate then is."""
        test, *branches = operands
        test = self._source(test)
        known = next((t for p, t in goal.assumed if self._same(p, test)), None)
        if known is None:
            known = self._of_numbers(test)
        return [
            replace(with_(b), assumed=(*goal.assumed, (test, truth)))
            for b, truth in zip(branches, (True, False), strict=True)
            if known is None or known is truth
        ]

    def _of_numbers(self, test: View) -> bool | None:
        """What a predicate is for all finite numbers: a guard against infinities, or against NaN."""
        i = self.by_name[test.name]
        if i.opcode == "is-finite":
            return True
        if i.opcode == "not":
            inner = self._of_numbers(self._source(View(i.operands[0], test.labels)))
            return None if inner is None else not inner
        if i.opcode in ("and", "or"):
            both = [self._of_numbers(self._source(View(o, test.labels))) for o in i.operands]
            decides = i.opcode == "or"
            return decides if decides in both else (None if None in both else not decides)
        if i.opcode != "compare" or not _is_float(self.by_name[i.operands[0]]):
            return None
        direction = i.attributes["comparison_direction"]
        a, b = (self._source(View(o, test.labels)) for o in i.operands)
        if self._same(a, b):
            return {"EQ": True, "NE": False}.get(direction)
        for number, infinite in ((b, direction), (a, _TURNED[direction])):
            value = self.graph.numbers.get(number.name, 0.0)
            if math.isinf(value):
                return infinite == "NE" or infinite in (("LT", "LE") if value > 0 else ("GT", "GE"))
        return None

    def _attained(self, goal: _Goal, n: int) -> _Goal | None:
        """The goal without a maximum that is added, and the elements it is one of, anywhere, taken."""
        v = goal.added[n]
        element = self._source(self._reduced(self.by_name[v.name], v, self._anywhere))
        for m, t in enumerate(goal.taken):
            if self.representative(t.name) != self.representative(element.name):
                continue
            places = unified(element.labels, t.labels, goal.places)
            if places is None:
                continue
            new = {k: x for k, x in places.items() if k not in goal.places}
            chosen = {place_of(x, places) for x in new}
            rest = (*_without(goal.added, n), *_without(goal.taken, m), v)
            used = {x for view in rest for x in anywheres(view.labels, places)}
            distinct = len(chosen) == len(new) and all(isinstance(x, Anywhere) for x in chosen)
            if distinct and not chosen & used:
                added, taken = _without(goal.added, n), _without(goal.taken, m)
                return replace(goal, added=added, taken=taken, places=places)
        return None

    def _choices(self, goal: _Goal) -> Iterator[_Goal]:
        """Goals of which one that holds is enough."""
        for n, v in enumerate(goal.taken):
            rest = _without(goal.taken, n)
            for lower in self._below(v, goal):
                yield replace(goal, taken=(*rest, lower[0]), places=lower[1])
            i = self.by_name[v.name]
            if i.opcode == "select":
                yield from self._assumed(goal, n)
            if i.opcode == "abs":
                inner = View(i.operands[0], v.labels)
                yield replace(goal, taken=(*rest, inner))
                yield replace(goal, taken=rest, added=(*goal.added, inner))
        for n, v in enumerate(goal.added):
            i = self.by_name[v.name]
            if i.opcode == "minimum":
                for o in i.operands:
                    yield replace(goal, added=(*_without(goal.added, n), View(o, v.labels)))
            for higher in self._beyond_an_end(v, largest=False):
                yield replace(goal, added=(*_without(goal.added, n), higher))
            found = sorted_result(self.graph, i)
            if found is not None and not any(True for _ in anywheres(v.labels, goal.places)):
                element = self._at(found.values, v.labels, found.axis, self._somewhere)
                yield replace(goal, added=(*_without(goal.added, n), element))
        if len(goal.added) == len(goal.taken) == 1:
            yield from self._of_rising_functions(goal)

    def _assumed(self, goal: _Goal, n: int) -> Iterator[_Goal]:
        """The goal with what a select gives at the place where its predicate is assumed."""
        v = goal.taken[n]
        test, *branches = (View(o, v.labels) for o in self.by_name[v.name].operands)
        test = self._source(test)
        for predicate, truth in goal.assumed:
            if self.representative(predicate.name) == self.representative(test.name):
                places = unified(predicate.labels, test.labels, goal.places)
                if places is not None:
                    chosen = branches[0 if truth else 1]
                    yield replace(goal, taken=(*_without(goal.taken, n), chosen), places=places)

    def _below(self, v: View, goal: _Goal) -> Iterator[tuple[View, Mapping[Anywhere, Label]]]:
        """Values that a value is never below, each with the places then chosen."""
        i = self.by_name[v.name]
        for lower in (*self._beyond_an_end(v, largest=True), *self._below_an_argmax(v)):
            yield lower, goal.places
        match i.opcode:
            case "maximum":
                for o in i.operands:
                    yield View(o, v.labels), goal.places
            case "reduce" if self._reducer(i) == "maximum" and len(i.operands) == 2:
                yield self._reduced(i, v, self._anywhere), goal.places
            case "reduce-window" if self._reducer(i) == "maximum" and _holds_itself(i):
                yield View(i.operands[0], v.labels), goal.places
            case "scatter" if self._reducer(i) == "maximum" and len(i.operands) == 3:
                yield View(i.operands[0], v.labels), goal.places
                update = self._update(i, v.labels, goal.places)
                if update is not None:
                    yield update
            case "concatenate":
                axis = i.attributes["dimensions"][0]
                if isinstance(place_of(v.labels[axis], goal.places), Anywhere):
                    for o in i.operands:
                        labels = list(v.labels)
                        labels[axis] = self._anywhere()
                        yield View(o, tuple(labels)), goal.places
            case "pad":
                labels = list(v.labels)
                for d, (low, high, inner) in enumerate(i.attributes["padding"]):
                    if (low, high, inner) == (0, 0, 0):
                        continue
                    if min(low, high) < 0 or not isinstance(place_of(labels[d], goal.places), Anywhere):
                        return
                    labels[d] = self._anywhere()
                yield View(i.operands[0], tuple(labels)), goal.places
            case "log" | "log-plus-one":
                for term in self._terms(self._source(View(i.operands[0], v.labels))):
                    yield term, goal.places

    def _beyond_an_end(self, v: View, *, largest: bool) -> Iterator[View]:
        """All elements of what is sorted, where a value is the end of it that is the largest, or the
        least.
        """
        i = self.by_name[v.name]
        found = sorted_result(self.graph, i)
        if found is None:
            return
        count, whole = i.array.dims[found.axis], self.by_name[found.values].array.dims[found.axis]
        is_first = found.descending is largest
        if place_in(self.graph, v.labels[found.axis], count) == (0 if is_first else count - 1):
            yield self._at(v.name, v.labels, found.axis, self._anywhere)
            if is_first or count == whole:  # the last of a top-k is beyond no others
                yield self._at(found.values, v.labels, found.axis, self._anywhere)

    def _below_an_argmax(self, v: View) -> Iterator[View]:
        """All elements of an array of one dimension, where a value is its element at its argmax."""
        match v.labels:
            case (("start", name, None),):
                at, *labels = self._indices(name, (), 0)
                reduce = place_of_maximum(self.graph, self.by_name[at])
                if reduce is None or labels:
                    return
                element = self._source(self._reduced(reduce, View(at, ()), self._anywhere))
                if self.representative(element.name) == self.representative(v.name):
                    yield element

    def _at(self, name: str, labels: tuple[Label, ...], axis: int, place: Callable[[], Label]) -> View:
        return View(name, (*labels[:axis], place(), *labels[axis + 1 :]))

    def _terms(self, view: View) -> Iterator[View]:
        """The exponents of the exponentials of which a value is the sum."""
        i = self.by_name[view.name]
        if i.opcode == "exponential":
            yield View(i.operands[0], view.labels)
        elif i.opcode == "abs":
            yield from self._terms(self._source(View(i.operands[0], view.labels)))
        elif i.opcode == "add" and all(self.bounds(o)[0] >= 0 for o in i.operands):
            for o in i.operands:
                yield from self._terms(self._source(View(o, view.labels)))
        elif i.opcode == "reduce" and self._reducer(i) == "add" and self.bounds(i.operands[0])[0] >= 0:
            yield from self._terms(self._source(self._reduced(i, view, self._anywhere)))

    def _update(
        self, i: Instruction, labels: tuple[Label, ...], places: Mapping[Anywhere, Label]
    ) -> tuple[View, Mapping[Anywhere, Label]] | None:
        """The update that a scatter puts where one of the same indices looks."""
        numbers: ops.ScatterDimensions = i.attributes["scatter_dimensions"]
        axes = numbers.scatter_dims_to_operand_dims
        if numbers.input_batching_dims or {*axes} != {*numbers.inserted_window_dims}:
            return None
        update = self.by_name[i.operands[2]]
        windows = iter(x for d, x in enumerate(labels) if d not in axes)
        found = tuple(
            next(windows) if d in numbers.update_window_dims else self._anywhere()
            for d in range(len(update.array.dims))
        )
        batch = tuple(x for d, x in enumerate(found) if d not in numbers.update_window_dims)
        at = self._indices(i.operands[1], batch, numbers.index_vector_dim)
        new: Mapping[Anywhere, Label] | None = places
        for k, axis in enumerate(axes):
            new = unified(("at", at, k), labels[axis], new) if new is not None else None
        return (View(update.name, found), new) if new is not None else None

    def _of_rising_functions(self, goal: _Goal) -> Iterator[_Goal]:
        """The arguments of a function that rises with them, on both sides."""
        a, t = goal.added[0], goal.taken[0]
        i, j = self.by_name[a.name], self.by_name[t.name]
        if i.opcode != j.opcode:
            return
        if i.opcode in _RISING:
            smaller = (View(i.operands[0], a.labels), View(j.operands[0], t.labels))
            yield replace(goal, added=smaller[:1], taken=smaller[1:])
        elif i.opcode in ("multiply", "divide"):
            for m, n in ((0, 0), (0, 1), (1, 0), (1, 1)) if i.opcode == "multiply" else ((0, 0),):
                factor = self._source(View(i.operands[1 - m], a.labels))
                other = self._source(View(j.operands[1 - n], t.labels))
                if self._same(factor, other) and self.bounds(factor.name)[0] >= 0:
                    yield replace(
                        goal,
                        added=(View(i.operands[m], a.labels),),
                        taken=(View(j.operands[n], t.labels),),
                    )


_RISING = frozenset({"exponential", "exponential-minus-one", "log", "log-plus-one", "sqrt", "tanh"})
_TURNED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}
_LARGEST = 3e38  # where a clamp ends that only makes infinities finite


def _is_float(i: Instruction) -> bool:
    return isinstance(i.shape, Shape) and i.shape.dtype.kind == "float"


def _with(goal: _Goal, side: str, views: tuple[View, ...]) -> _Goal:
    """The goal with other values on one side."""
    return replace(goal, added=views) if side == "added" else replace(goal, taken=views)


def _without(views: tuple[View, ...], n: int) -> tuple[View, ...]:
    return (*views[:n], *views[n + 1 :])


def _holds_itself(i: Instruction) -> bool:
    """Whether each window holds the element with the number that the window has."""
    window: tuple[ops.WindowDimension, ...] = i.attributes["window"]
    return all(
        d.stride == d.base_dilation == 1
        and d.padding[0] % d.window_dilation == 0
        and 0 <= d.padding[0] // d.window_dilation < d.size
        for d in window
    )
