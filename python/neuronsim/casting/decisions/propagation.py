"""How low types spread from the operations that a policy lists: one function for each `Propagate`.

Each takes the float32 arrays of a module as nodes in an order where a node follows its inputs, and
says which nodes are low and what decided it. Sources: TVM's `to_mixed_precision.cc`, TensorFlow's
`auto_mixed_precision.cc`, Neural Compressor's `bf16_convert.py` and the reference notes on these.

>>> low = dtypes.float16
>>> nodes = [
...     Node("x", "never", low, source=True),
...     Node("dot.1", "always", low, inputs=("x",), listed=True),
...     Node("add.2", "follow", low, inputs=("dot.1", "dot.1")),
...     Node("exp.3", "never", low, inputs=("add.2",), listed=True),
...     Node("add.4", "follow", low, inputs=("add.2", "exp.3")),
... ]
>>> all_inputs_low(nodes)
{'dot.1': '', 'add.2': 'follows dot.1'}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from neuronsim import dtypes
from neuronsim.casting.decisions.reasons import spread as spread_by
from neuronsim.casting.policies.policy import Category, Propagate
from neuronsim.dtypes import DType

KEPT = ""  # the input that stays float32 whatever is decided: a statistic of a batch norm, say


@dataclass(frozen=True)
class Node:
    """One instruction that makes or reads float32 arrays.

    `low` is the type that it would get, float32 where it can get none, and `gives` that of its result
    where this is another. `inputs` are the nodes whose
    values it reads as its low type would be read; `carries` what the body of a loop gives back to it.
    `listed` nodes have their category from a list or rule, the others are what the policy says of the
    rest. A `source` holds a value of the model: parameters, constants, and these broadcast. A
    `convert` makes float32 of another type. A `result` is given by the program or a branch.
    """

    name: str
    category: Category
    low: DType
    gives: DType | None = None
    inputs: tuple[str, ...] = ()
    carries: tuple[str, ...] = ()
    listed: bool = False
    source: bool = False
    convert: bool = False
    result: bool = False

    @property
    def changes(self) -> bool:
        """Whether it can be low at all."""
        return self.low is not dtypes.float32


# Which nodes are low, and why where that is more than their own category.
Spread = dict[str, str]


def listed_only(nodes: Sequence[Node]) -> Spread:
    """The nodes of the category always, and no others."""
    return {n.name: "" for n in nodes if n.category == "always" and n.changes}


def all_inputs_low(nodes: Sequence[Node], *, sources_follow: bool = False) -> Spread:
    """TVM's pass, forward and once: what follows is low where each of its inputs is low in its type.

    Sources count as low with `sources_follow`, and what reads nothing else is low too, as TVM has it;
    torch's promotion is the same without.
    """
    found: Spread = {}
    types: dict[str, DType] = {}
    sources = {n.name for n in nodes if n.source} if sources_follow else set()
    for n in nodes:
        if n.source or not n.changes or n.category == "never":
            continue
        if n.category == "always":
            reason = ""
        else:
            same = [x for x in n.inputs if types.get(x) is n.low]
            if not all(types.get(x) is n.low or x in sources for x in n.inputs):
                continue
            if not same and not sources_follow:
                continue
            reason = spread_by("follows", _named(same)) if same else "reads only what can be converted"
        found[n.name] = reason
        types[n.name] = n.gives or n.low
    return found


def allow_paths(nodes: Sequence[Node]) -> Spread:
    """TensorFlow's colouring: what lies between products, and what moves values next to them, joins
    them; what a denied operation affects does not.

    Always, follow, never and clear are its allow, infer, deny and clear list; other nodes end paths. A
    loop's arrays have one colour, since the loop is one node.
    """
    by_name = {n.name: n for n in nodes}
    readers, inputs = _edges(nodes)
    allowed = [n.name for n in nodes if n.category == "always" and n.changes]
    found: Spread = dict.fromkeys(allowed, "")
    if not allowed:
        return found

    denied = _denied(nodes, readers, inputs)

    def joins(name: str, *categories: Category) -> bool:
        n = by_name[name]
        return n.category in categories and n.changes and not n.source and name not in denied

    after = _reached(allowed, readers, lambda name: joins(name, "follow", "clear"))
    before = _reached(allowed, inputs, lambda name: name in after and joins(name, "follow", "clear"))
    for name, root in before.items():
        found.setdefault(name, spread_by("is between", f"{after[name]} and {root}"))

    both = {name: [*inputs[name], *readers[name]] for name in by_name}
    near = _reached(list(found), both, lambda name: joins(name, "clear"))
    for name, root in near.items():
        found.setdefault(
            name, spread_by("leads to or from", f"{root} through what only moves or selects values")
        )
    return found | _converts_for(nodes, readers, found)


def _denied(
    nodes: Sequence[Node], readers: Mapping[str, list[str]], inputs: Mapping[str, list[str]]
) -> Mapping[str, str]:
    """The denied nodes, and those on a path from one to a denied or inferred one."""
    by_name = {n.name: n for n in nodes}
    deny = [n.name for n in nodes if n.category == "never" and n.listed]
    infer = [n.name for n in nodes if n.category == "follow"]
    dangerous = _reached([*deny, *infer], inputs, lambda name: by_name[name].category == "clear")
    return _reached(deny, readers, lambda name: name in dangerous)


def depth_first(nodes: Sequence[Node]) -> Spread:
    """Neural Compressor's conversion: what is listed, by name, each after those of its inputs that are
    listed, and converts whose only reader is low.
    """
    by_name = {n.name: n for n in nodes}
    found: Spread = {}
    for start in sorted(listed_only(nodes)):
        pending = [(start, "")]
        while pending:
            name, reason = pending.pop()
            if name not in found:
                found[name] = reason
                pending += [
                    (x, spread_by("is read by", name))
                    for x in reversed(by_name[name].inputs)
                    if x in by_name and by_name[x].category == "always" and by_name[x].changes
                ]
    readers, _ = _edges(nodes)
    single = {name: r for name, r in readers.items() if len(r) == 1}
    return found | _converts_for(nodes, single, found)


def _converts_for(
    nodes: Sequence[Node], readers: Mapping[str, list[str]], found: Mapping[str, str]
) -> Spread:
    """The converts of the model that give the low type at once: all of their readers are low."""
    return {
        n.name: spread_by("is read only by", _named(users))
        for n in nodes
        if n.convert and n.changes and not n.result and n.name not in found
        for users in [readers.get(n.name, [])]
        if users and all(u in found for u in users)
    }


def _edges(nodes: Sequence[Node]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """For each node its readers, and what it reads: each once."""
    readers: dict[str, list[str]] = {n.name: [] for n in nodes}
    inputs: dict[str, list[str]] = {}
    for n in nodes:
        inputs[n.name] = [x for x in dict.fromkeys((*n.inputs, *n.carries)) if x != KEPT]
        for x in inputs[n.name]:
            readers[x].append(n.name)
    return readers, inputs


def _reached(
    roots: Sequence[str], edges: Mapping[str, list[str]], enters: Callable[[str], bool]
) -> dict[str, str]:
    """What is reached from the roots through nodes that `enters` allows, the roots included, with the
    nearest root of each.
    """
    found = {root: root for root in roots}
    wave: Iterable[str] = roots
    while wave:
        following = []
        for name in wave:
            for other in edges[name]:
                if other not in found and enters(other):
                    found[other] = found[name]
                    following.append(other)
        wave = following
    return found


def _named(names: Sequence[str]) -> str:
    first, *more = dict.fromkeys(names)
    return f"{first} and {len(more)} more" if len(more) > 1 else " and ".join((first, *more))


def spread(nodes: Sequence[Node], propagate: Propagate, *, sources_follow: bool = False) -> Spread:
    """The low nodes as a policy propagates (`Policy.propagate`, `Policy.sources_follow`)."""
    match propagate:
        case "none":
            return listed_only(nodes)
        case "all_inputs_low":
            return all_inputs_low(nodes, sources_follow=sources_follow)
        case "allow_paths":
            return allow_paths(nodes)
        case "depth_first":
            return depth_first(nodes)
