"""How low types spread: each algorithm against its definition, read off paths by brute force."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from neuronsim import dtypes
from neuronsim.casting.decisions.propagation import (
    KEPT,
    Node,
    all_inputs_low,
    allow_paths,
    depth_first,
    listed_only,
)
from neuronsim.casting.policies.policy import Category

pytestmark = pytest.mark.isa_independent

F16, BF16, F32 = dtypes.float16, dtypes.bfloat16, dtypes.float32
CATEGORIES: tuple[Category, ...] = ("always", "follow", "never", "clear")


def random_nodes(seed: int) -> list[Node]:
    """Up to nine nodes, some of them sources, loops, casts, unlisted or without a low type."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 10))
    nodes: list[Node] = []
    for k in range(count):
        earlier = [n.name for n in nodes]
        inputs = tuple(rng.choice([*earlier, KEPT], size=rng.integers(0, 3))) if earlier else ()
        category = CATEGORIES[rng.integers(4)]
        source = not inputs and category != "always" and rng.random() < 0.7
        nodes.append(
            Node(
                f"n{k}",
                category,
                F32 if rng.random() < 0.1 else F16,
                inputs=tuple(str(x) for x in inputs),
                listed=bool(rng.random() < 0.8),
                source=source,
                convert=category == "never" and bool(rng.random() < 0.3),
                result=bool(rng.random() < 0.2),
            )
        )
    if count > 4 and rng.random() < 0.5:  # a loop: an early node gets a later one's value back
        early, late = sorted(rng.choice(count, 2, replace=False))
        nodes[early] = Node(**{**vars(nodes[early]), "carries": (f"n{late}",)})
    return nodes


def every_path(
    nodes: list[Node], start: str, through: Callable[[Node], bool], *, back: bool = False
) -> set[str]:
    """What paths from a node reach of which every further node is allowed, as a fixed point."""
    edges = {(x, n.name) for n in nodes for x in (*n.inputs, *n.carries) if x != KEPT}
    if back:
        edges = {(b, a) for a, b in edges}
    ok = {n.name for n in nodes if through(n)}
    reached = {start}
    while True:
        more = {b for a, b in edges if a in reached and b in ok} - reached
        if not more:
            return reached
        reached |= more


def tensorflow_by_definition(nodes: list[Node]) -> set[str]:
    """The five steps of the comment in auto_mixed_precision.cc, each as sets of paths."""
    names = [n.name for n in nodes]
    allow = {n.name for n in nodes if n.category == "always" and n.low is F16}
    if not allow:
        return set()
    deny = {n.name for n in nodes if n.category == "never" and n.listed}
    infer = {n.name for n in nodes if n.category == "follow"}
    ends = deny | infer
    # On a forward path from a denied node to a denied or inferred one, through inferred and clear ones.
    denied = set()
    for name in names:
        n = next(n for n in nodes if n.name == name)
        if n.category not in ("follow", "clear") and name not in deny:
            continue
        leads = every_path(nodes, name, lambda n: n.category in ("clear", "follow") or n.name in deny)
        from_deny = any(
            name in every_path(nodes, d, lambda n: n.category in ("clear", "follow") or n.name in deny)
            for d in deny
        )
        if from_deny and leads & ends:
            denied.add(name)

    def grey(n: Node) -> bool:
        return (
            n.category in ("follow", "clear") and n.low is F16 and not n.source and n.name not in denied
        )

    after = set().union(*(every_path(nodes, a, grey) for a in allow))
    found = set(allow)
    for a in allow:
        found |= every_path(nodes, a, lambda n: grey(n) and n.name in after, back=True) & after

    clear = [n for n in nodes if n.category == "clear" and grey(n)]
    changed = True
    while changed:
        changed = False
        for n in clear:
            around = {
                *n.inputs,
                *n.carries,
                *(m.name for m in nodes if n.name in (*m.inputs, *m.carries)),
            }
            if n.name not in found and around & found:
                found.add(n.name)
                changed = True
    return found | {
        n.name
        for n in nodes
        if n.convert and n.low is F16 and not n.result and n.name not in found
        for readers in [[m.name for m in nodes if n.name in (*m.inputs, *m.carries)]]
        if readers and set(readers) <= found
    }


def test_allow_paths_against_the_definition() -> None:
    """1500 random graphs; in some of each kind of step something joins or is denied."""
    met = 0
    for seed in range(1500):
        nodes = random_nodes(seed)
        assert set(allow_paths(nodes)) == tensorflow_by_definition(nodes), seed
        met += len(allow_paths(nodes)) > len(listed_only(nodes))
    assert met > 100


def test_all_inputs_low_is_the_one_solution_of_its_rule() -> None:
    """Of all sets of nodes only one fulfils: always is in, never is out, the others are in where all
    inputs are.
    """

    def fulfils(nodes: list[Node], low: set[str], *, follow: bool) -> bool:
        sources = {n.name for n in nodes if n.source} if follow else set()
        for n in nodes:
            can = n.low is F16 and not n.source and n.category != "never"
            all_low = all(x in low or x in sources for x in n.inputs)
            some = bool(low.intersection(n.inputs)) or follow
            if (n.name in low) != (can and (n.category == "always" or (all_low and some))):
                return False
        return True

    for seed, follow in itertools.product(range(150), (False, True)):
        nodes = random_nodes(seed)
        names = [n.name for n in nodes]
        sets = (
            {name for name, bit in zip(names, bits, strict=True) if bit}
            for bits in itertools.product((False, True), repeat=len(names))
        )
        solutions = [s for s in sets if fulfils(nodes, s, follow=follow)]
        assert solutions == [set(all_inputs_low(nodes, sources_follow=follow))], seed


def test_depth_first_converts_what_is_listed_and_casts_of_one_reader() -> None:
    for seed in range(500):
        nodes = random_nodes(seed)
        listed = {n.name for n in nodes if n.category == "always" and n.low is F16}
        casts = set()
        for n in nodes:
            readers = [m.name for m in nodes if n.name in (*m.inputs, *m.carries)]
            if (
                n.convert
                and n.low is F16
                and not n.result
                and len(readers) == 1
                and readers[0] in listed
            ):
                casts.add(n.name)
        assert set(depth_first(nodes)) == listed | casts, seed


def test_follow_needs_its_own_type() -> None:
    """Two low types meet: what follows is neither."""
    nodes = [
        Node("a", "always", F16),
        Node("b", "always", BF16),
        Node("c", "follow", F16, inputs=("a",)),
        Node("d", "follow", F16, inputs=("a", "b")),
        Node("e", "follow", BF16, inputs=("b",)),
    ]
    assert set(all_inputs_low(nodes)) == {"a", "b", "c", "e"}


def test_a_product_that_gives_float32_is_followed_by_nothing() -> None:
    nodes = [Node("a", "always", F16, gives=F32), Node("b", "follow", F16, inputs=("a",))]
    assert set(all_inputs_low(nodes)) == {"a"}


def test_each_reason_names_the_neighbour_that_decided() -> None:
    nodes = [
        Node("x", "never", F32, source=True),
        Node("dot.1", "always", F16, inputs=("x",), listed=True),
        Node("add.2", "follow", F16, inputs=("dot.1", "x")),
        Node("dot.3", "always", F16, inputs=("add.2",), listed=True),
        Node("abs.4", "clear", F16, inputs=("dot.3",)),
    ]
    assert all_inputs_low(nodes, sources_follow=True)["add.2"] == "follows dot.1"
    assert allow_paths(nodes) == {
        "dot.1": "",
        "dot.3": "",
        "add.2": "is between dot.1 and dot.3",
        "abs.4": "leads to or from dot.3 through what only moves or selects values",
    }


def chain(count: int) -> Iterator[Node]:
    for k in range(count):
        category: Category = ("always", "clear", "follow", "clear")[k % 4]
        yield Node(f"n{k}", category, F16, inputs=(f"n{k - 1}",) if k else (), listed=True)


@pytest.mark.parametrize("algorithm", [listed_only, all_inputs_low, allow_paths, depth_first])
def test_long_chains_take_no_recursion(algorithm: Callable[[list[Node]], dict[str, str]]) -> None:
    assert algorithm(list(chain(20_000)))
