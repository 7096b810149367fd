"""Rule M2's order revealed from outside: which sums of a product contain which others.

The method is that of FPRev (Xie et al., "FPRev: revealing floating-point accumulation order"): among
ones, put M and -M at two places. M absorbs each one that joins it before -M does, so that the result
counts the ones outside the smallest sum that holds both places. From these counts the tree follows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from neuronsim.profiles import Profile
from tests.support.evaluation import evaluate_dot

# Sums of a row [rows, depth] with as many ones, [rows]
Product = Callable[[np.ndarray], np.ndarray]
# A sum as the tree of its additions: leaves are places, the child with the least place stands first.
Tree = int | tuple["Tree", "Tree"]
BIG = 2.0**60


def leaves(tree: Tree) -> int:
    return 1 if isinstance(tree, int) else leaves(tree[0]) + leaves(tree[1])


def revealed(product: Product, places: list[int], depth: int) -> Tree:
    """The tree over places that form one sum; raises ValueError where it is not a tree of pairs."""
    first, *others = places
    tree: Tree = first
    if not others:
        return tree
    rows = np.ones((len(others), depth), np.float32)
    rows[:, first] = BIG
    rows[np.arange(len(others)), others] = -BIG
    sizes = depth - product(rows)
    count = 1
    for size in sorted(set(sizes.tolist())):
        joined = [place for place, s in zip(others, sizes.tolist(), strict=True) if s == size]
        count += len(joined)
        if size != count:
            raise ValueError(f"{joined} join {first} in a sum of {size}, not {count}")
        tree = (tree, revealed(product, joined, depth))
    return tree


def chain(places: list[int]) -> Tree:
    tree: Tree = places[0]
    for place in places[1:]:
        tree = (tree, place)
    return tree


def m2_tree(depth: int, tile: int = 128) -> Tree:
    """Each tile is a chain, and so are the tiles."""
    tiles = [chain(list(range(i, min(i + tile, depth)))) for i in range(0, depth, tile)]
    tree = tiles[0]
    for t in tiles[1:]:
        tree = (tree, t)
    return tree


def pairs_tree(depth: int) -> Tree:
    """VDPBF16PS: 1, 0, 3, 2, ... in one chain; the first two are one sum either way."""
    order = [k ^ 1 for k in range(depth + depth % 2) if k ^ 1 < depth]
    return chain([min(order[:2]), *([max(order[:2])] if depth > 1 else []), *order[2:]])


def our_product(type_name: str, columns: int, profile: Profile) -> Product:
    def run(rows: np.ndarray) -> np.ndarray:
        words = rows.view(np.uint32)
        one = 0x3F800000
        if type_name == "bfloat16":
            words, one = (words >> 16).astype(np.uint16), 0x3F80
        ones = np.full((rows.shape[1], columns), one, words.dtype)
        found = evaluate_dot(type_name, words, type_name, ones, profile=profile)
        values = found.view(np.float32)
        assert (values == values[:, :1]).all()
        return values[:, -1]

    return run


@pytest.mark.parametrize("columns", [1, 37])
@pytest.mark.parametrize("type_name", ["float32", "bfloat16"])
def test_dot_order_probing_M2(isa: str, type_name: str, columns: int) -> None:
    product = our_product(type_name, columns, Profile())
    for depth in range(1, 301):
        if columns > 1 and depth % 7 > 1:
            continue
        assert revealed(product, list(range(depth)), depth) == m2_tree(depth), depth


@pytest.mark.parametrize("accumulate", ["sequential", "pairs"])
def test_dot_order_probing_M6(isa: str, accumulate: str) -> None:
    product = our_product("bfloat16", 1, Profile(accumulate=accumulate))
    for depth in [*range(1, 20), *range(125, 132), 255, 256, 257, 300]:
        expected = pairs_tree(depth) if accumulate == "pairs" else m2_tree(depth, tile=depth)
        assert revealed(product, list(range(depth)), depth) == expected, depth


def test_control_order_probing_reveals_known_trees() -> None:
    """A sum by halves, a sum from the back and M2 with another tile."""

    def halves(rows: np.ndarray) -> np.ndarray:
        n = rows.shape[1]
        return rows[:, 0] if n == 1 else halves(rows[:, : n // 2]) + halves(rows[:, n // 2 :])

    def backwards(rows: np.ndarray) -> np.ndarray:
        total = rows[:, -1]
        for k in range(rows.shape[1] - 2, -1, -1):
            total = total + rows[:, k]
        return total

    assert revealed(halves, list(range(8)), 8) == (((0, 1), (2, 3)), ((4, 5), (6, 7)))
    assert revealed(backwards, list(range(4)), 4) == (0, (1, (2, 3)))
    assert m2_tree(5, tile=2) == (((0, 1), (2, 3)), 4)
    assert pairs_tree(5) == ((((0, 1), 3), 2), 4)
