"""Sorting by rule E10: the stable bottom-up merge, with any comparator.

>>> merge_order([3, 1, 2], lambda a, b: a < b)
[1, 2, 0]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def merge_order(elements: Sequence[T], comes_first: Callable[[T, T], bool]) -> list[int]:
    """The indices in sorted order: runs of 1, 2, 4, ... are merged, and a merge takes the right
    element iff comes_first(right, left).
    """
    order, run = list(range(len(elements))), 1
    while run < len(elements):
        merged: list[int] = []
        for start in range(0, len(elements), 2 * run):
            left, right = order[start : start + run], order[start + run : start + 2 * run]
            while left and right:
                takes_right = comes_first(elements[right[0]], elements[left[0]])
                merged.append((right if takes_right else left).pop(0))
            merged += left + right
        order, run = merged, 2 * run
    return order
