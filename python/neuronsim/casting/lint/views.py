"""Views: which elements of which array an instruction gives, through what only moves them, and which
instructions compute the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from neuronsim import ops
from neuronsim.hlo.module import Instruction, Shape, simple_reducer
from neuronsim.hlo.recognition.patterns import Graph
from neuronsim.hlo.value_keys import ValueKeys

# Where an element of a dimension is: at an axis of the question's value (a number from 0), anywhere
# (`Anywhere`, which may be chosen), at an unknown place (`Somewhere`), or a function of such places.
Label: TypeAlias = Any


@dataclass(frozen=True)
class Anywhere:
    """A place that may be chosen: a maximum is above each of its elements."""

    number: int


@dataclass(frozen=True)
class Somewhere:
    """One of the places of which nothing is known: a maximum is one of its elements."""

    number: int


class View(NamedTuple):
    """Elements of an array, one label for each dimension; None where that has one element."""

    name: str
    labels: tuple[Label, ...]


_MOVES = 40  # in one chain
_DISTINCT = frozenset(
    {"parameter", "rng", "rng-bit-generator", "rng-get-and-update-state", "custom-call", "while"}
    | {"conditional", "infeed", "outfeed", "all-reduce", "recv", "send", "tuple"}
)


class Views:
    """The elements that a computation's instructions give."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.by_name = graph.by_name
        self._fresh = 0
        self._representatives: dict[str, str] = {}
        self._keys = ValueKeys(graph.module)
        self._firsts: dict[Hashable, str] = {}

    # ---- values that are one ------------------------------------------------------------------------

    def representative(self, name: str) -> str:
        """The first instruction that computes the same."""
        pending = [name]
        while pending:
            i = self.by_name[pending[-1]]
            missing = [o for o in i.operands if o not in self._representatives]
            if missing and i.opcode not in _DISTINCT:
                pending += missing
                continue
            pending.pop()
            if i.name not in self._representatives:
                key: Hashable = i.name
                if i.opcode not in _DISTINCT:
                    key = self._keys.of(i, [self._representatives[o] for o in i.operands])
                self._representatives[i.name] = self._firsts.setdefault(key, i.name)
        return self._representatives[name]

    def _reducer(self, i: Instruction) -> str | None:
        return simple_reducer(self.graph.module.by_name[i.called[-1]]) if i.called else None

    # ---- places -------------------------------------------------------------------------------------

    def _anywhere(self) -> Anywhere:
        self._fresh += 1
        return Anywhere(self._fresh)

    def _somewhere(self) -> Somewhere:
        self._fresh += 1
        return Somewhere(self._fresh)

    def _view(self, name: str) -> View:
        dims = self.by_name[name].array.dims
        return View(name, tuple(n if size != 1 else None for n, size in enumerate(dims)))

    def _source(self, view: View) -> View:
        """What a value moves: the view with which its casts and moves begin."""
        for _ in range(_MOVES):
            before = self._before(self.by_name[view.name], view.labels)
            if before is None:
                return view
            dims = self.by_name[before.name].array.dims
            labels = (x if n != 1 else None for x, n in zip(before.labels, dims, strict=True))
            view = View(before.name, tuple(labels))
        return view

    def _before(self, i: Instruction, labels: tuple[Label, ...]) -> View | None:
        if not i.operands:
            return None
        operand = self.by_name[i.operands[0]]
        if i.opcode == "get-tuple-element":
            while operand.opcode == "opt-barrier":
                operand = self.by_name[operand.operands[0]]
            held = operand.operands[i.attributes["tuple_index"]] if operand.opcode == "tuple" else None
            return View(held, labels) if held is not None else None
        if not isinstance(operand.shape, Shape) or not isinstance(i.shape, Shape):
            return None
        dims = operand.shape.dims
        match i.opcode:
            case "convert" | "copy" | "reduce-precision" | "opt-barrier":
                exact = i.shape.dtype.kind == "float" or operand.shape.dtype.kind != "float"
                return View(operand.name, labels) if exact else None
            case "broadcast":
                return View(operand.name, tuple(labels[d] for d in i.attributes["dimensions"]))
            case "transpose":
                back = dict(zip(i.attributes["dimensions"], labels, strict=True))
                return View(operand.name, tuple(back[d] for d in range(len(dims))))
            case "reshape" | "bitcast":
                same = _reshaped(labels, i.shape.dims, dims)
                return View(operand.name, same) if same is not None else None
            case "reverse":
                turned = i.attributes["dimensions"]
                found = (("reverse", x) if d in turned else x for d, x in enumerate(labels))
                return View(operand.name, tuple(found))
            case "slice":
                found = (
                    x if (start, stop, step) == (0, n, 1) else ("slice", start, step, x)
                    for x, n, (start, stop, step) in zip(
                        labels, dims, i.attributes["slice"], strict=True
                    )
                )
                return View(operand.name, tuple(found))
            case "dynamic-slice":
                starts = (self.representative(o) for o in i.operands[1:])
                found = (
                    x if size == n else ("start", start, x)
                    for x, n, size, start in zip(labels, dims, i.shape.dims, starts, strict=True)
                )
                return View(operand.name, tuple(found))
            case "gather":
                return self._gathered(i, operand, labels)
        return None

    def _gathered(self, i: Instruction, operand: Instruction, labels: tuple[Label, ...]) -> View | None:
        numbers: ops.GatherDimensions = i.attributes["gather_dimensions"]
        if numbers.operand_batching_dims or {*numbers.start_index_map} != {
            *numbers.collapsed_slice_dims
        }:
            return None
        if any(
            size != n and d not in numbers.collapsed_slice_dims
            for d, (size, n) in enumerate(
                zip(i.attributes["slice_sizes"], operand.array.dims, strict=True)
            )
        ):
            return None
        batch = tuple(x for d, x in enumerate(labels) if d not in numbers.offset_dims)
        places = self._indices(i.operands[1], batch, numbers.index_vector_dim)
        inside = iter(x for d, x in enumerate(labels) if d in numbers.offset_dims)
        found = []
        for d in range(len(operand.array.dims)):
            collapsed = d in numbers.collapsed_slice_dims
            at = ("at", places, numbers.start_index_map.index(d)) if collapsed else None
            found.append(at if collapsed else next(inside))
        return View(operand.name, tuple(found))

    def _indices(self, name: str, batch: tuple[Label, ...], axis: int) -> tuple[Label, ...]:
        """Which elements of which array are indices, without what makes negative ones positive and
        keeps them inside.
        """
        labels = [*batch]
        if axis < len(self.by_name[name].array.dims):
            labels.insert(axis, "vector")
        dims = self.by_name[name].array.dims
        view = View(name, tuple(x if n != 1 else None for x, n in zip(labels, dims, strict=True)))
        for _ in range(_MOVES):
            view = self._source(view)
            i = self.by_name[view.name]
            if i.opcode == "select":
                test, wrapped, plain = (self._source(View(o, view.labels)) for o in i.operands)
                if not self._is_wrapped(test, wrapped, plain):
                    break
                view = plain
            elif i.opcode == "clamp":
                view = View(i.operands[1], view.labels)
            else:
                break
        return (self.representative(view.name), *view.labels)

    def _is_wrapped(self, test: View, wrapped: View, plain: View) -> bool:
        """Whether a select is `where(i < 0, i + n, i)`."""
        compare, add = self.by_name[test.name], self.by_name[wrapped.name]
        if compare.attributes.get("comparison_direction") != "LT" or add.opcode != "add":
            return False
        zero = self.graph.numbers.get(compare.operands[1]) == 0
        compared = self._source(View(compare.operands[0], test.labels))
        added = [self._source(View(o, wrapped.labels)) for o in add.operands]
        return zero and self._same(compared, plain) and any(self._same(a, plain) for a in added)

    def _same(self, a: View, b: View) -> bool:
        return a.labels == b.labels and self.representative(a.name) == self.representative(b.name)

    def _reduced(self, i: Instruction, v: View, place: Callable[[], Label]) -> View:
        """An element of what a reduce reads."""
        operand = self.by_name[i.operands[0]]
        kept = iter(v.labels)
        reduced = i.attributes["dimensions"]
        found = (place() if d in reduced else next(kept) for d in range(len(operand.array.dims)))
        return View(operand.name, tuple(found))


def place_of(label: Label, places: Mapping[Anywhere, Label]) -> Label:
    while isinstance(label, Anywhere) and label in places:
        label = places[label]
    return label


def anywheres(label: Label, places: Mapping[Anywhere, Label]) -> Iterator[Anywhere]:
    label = place_of(label, places)
    if isinstance(label, Anywhere):
        yield label
    elif isinstance(label, tuple):
        for part in label:
            yield from anywheres(part, places)


def unified(a: Label, b: Label, places: Mapping[Anywhere, Label]) -> Mapping[Anywhere, Label] | None:
    """The places with which two labels are one, or None."""
    a, b = place_of(a, places), place_of(b, places)
    if a == b:
        return places
    if isinstance(a, Anywhere) or isinstance(b, Anywhere):
        chosen, place = (a, b) if isinstance(a, Anywhere) else (b, a)
        return None if chosen in anywheres(place, places) else {**places, chosen: place}
    for joined, other in ((a, b), (b, a)):
        if _is_joined(joined) and not _is_joined(other):
            parts = tuple(("part", joined[1], other, k) for k in range(len(joined[2])))
            return unified(joined[2], parts, places)
    if not isinstance(a, tuple) or not isinstance(b, tuple) or len(a) != len(b):
        return None
    found: Mapping[Anywhere, Label] | None = places
    for x, y in zip(a, b, strict=True):
        found = unified(x, y, found) if found is not None else None
    return found


def _is_joined(label: Label) -> bool:
    return isinstance(label, tuple) and label[:1] == ("joined",)


def _reshaped(
    labels: tuple[Label, ...], dims: tuple[int, ...], before: tuple[int, ...]
) -> tuple[Label, ...] | None:
    """The labels of what a reshape reads: dimensions that it joins or parts are told by each other."""
    if 0 in dims:
        return None
    found: list[Label] = []
    rest = [(x, n) for x, n in zip(labels, dims, strict=True) if n != 1]
    old = [n for n in before if n != 1]
    while old or rest:
        group, sizes = [rest.pop(0)] if rest else [], [old.pop(0)] if old else []
        while math.prod(n for _, n in group) != math.prod(sizes):
            if math.prod(n for _, n in group) < math.prod(sizes):
                if not rest:
                    return None
                group.append(rest.pop(0))
            else:
                if not old:
                    return None
                sizes.append(old.pop(0))
        places, widths = tuple(x for x, _ in group), tuple(n for _, n in group)
        if len(places) == 1:
            whole = places[0]
        else:
            whole = ("joined", widths, places)
            first = places[0]
            if isinstance(first, tuple) and first[:2] == ("part", widths):
                parts = tuple(("part", widths, first[2], k) for k in range(len(places)))
                whole = first[2] if places == parts else whole
        if len(sizes) == 1:
            found.append(whole)
        elif isinstance(whole, tuple) and whole[:2] == ("joined", tuple(sizes)):
            found += whole[2]
        else:
            found += [("part", tuple(sizes), whole, k) for k in range(len(sizes))]
    numbers = iter(found)
    return tuple(next(numbers) if n != 1 else None for n in before)
