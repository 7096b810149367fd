"""Windows of arrays (R4) and folds of any computation (R2).

>>> window_elements((3,), [WindowAxis(2, padding_low=1)], (0,))
[(0,)]
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from neuronsim.reference.indexing import Position, positions, scatter
from neuronsim.reference.sums import WindowAxis

T = TypeVar("T")
Accumulator = TypeVar("Accumulator")


def window_elements(
    dims: Sequence[int], window: Sequence[WindowAxis], output: Position
) -> list[Position]:
    """The positions of one window's elements in row-major order: padding and holes are none (R4)."""
    found = []
    for offsets in itertools.product(*(range(axis.size) for axis in window)):
        place = []
        for n, axis, at, offset in zip(dims, window, output, offsets, strict=True):
            dilated = at * axis.stride - axis.padding_low + offset * axis.window_dilation
            index, between = divmod(dilated, axis.base_dilation)
            if between or not 0 <= index < n:
                break
            place.append(index)
        else:
            found.append(tuple(place))
    return found


def reduced_elements(
    dims: Sequence[int], window: Sequence[WindowAxis], results: Sequence[int], output: Position
) -> list[Position]:
    """The positions of one window's elements in the order in which a reduction takes them: from the
    last one back where the windows run along one dimension of more than 32 elements to its end (R4).

    >>> reduced_elements((40,), [WindowAxis(40)], (40,), (37,))
    [(39,), (38,), (37,)]
    """
    longer = [i for i, axis in enumerate(window) if (axis.size, axis.padding_low) != (1, 0)]
    runs_back = len(longer) == 1 and list(dims) == list(results)
    for n, axis in zip(dims, window, strict=True):
        runs_back &= axis.stride == axis.base_dilation == 1
        if axis.size != 1:
            runs_back &= axis.padding_low == 0 and axis.size >= n > 32 and axis.window_dilation == 1
    found = window_elements(dims, window, output)
    return found[::-1] if runs_back else found


def fold(
    computation: Callable[[Accumulator, T], Accumulator], initial: Accumulator, elements: Iterable[T]
) -> Accumulator:
    """A reducer that is not simple (R2): from the initial value, element by element, untiled."""
    acc = initial
    for element in elements:
        acc = computation(acc, element)
    return acc


def select_and_scatter(
    operand: Mapping[Position, T],
    dims: Sequence[int],
    window: Sequence[WindowAxis],
    source: Mapping[Position, T],
    source_dims: Sequence[int],
    initial: T,
    select: Callable[[T, T], bool],
    computation: Callable[[T, T], T],
) -> dict[Position, T]:
    """R4: each window keeps its current element while select(current, next) holds, and the source's
    element goes there by R5.
    """
    updates: list[tuple[Position | None, T]] = []
    for output in positions(source_dims):
        kept: Position | None = None
        for place in window_elements(dims, window, output):
            if kept is None or not select(operand[kept], operand[place]):
                kept = place
        updates.append((kept, source[output]))
    return scatter(dict.fromkeys(positions(dims), initial), updates, computation)
