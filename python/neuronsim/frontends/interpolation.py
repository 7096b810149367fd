"""Elements between elements: interpolated at places that are not whole, as the front doors have it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.frontends.primitives import gathered_vectors, in_float, joined, moved_axis, where


def reflected(x: Array, low: float, high: float) -> Array:
    """Places outside of two borders, thrown back by them until they are inside."""
    span = high - low
    if span <= 0:
        return np.zeros_like(x)
    far = np.remainder(np.abs(x - low), 2 * span)
    return where(far > span, 2 * span - far, far) + low


def _cubic_weights(t: Array) -> list[Array]:
    a = -0.75

    def outer(d: Array) -> Array:
        return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a

    def inner(d: Array) -> Array:
        return (d * (a + 2) - (a + 3)) * d * d + 1

    return [outer(t + 1), inner(t), inner(1 - t), outer(2 - t)]


def sampled(
    x: Array,
    places: Sequence[Array],
    mode: str = "linear",
    padding: str = "zeros",
    borders: Sequence[tuple[float, float]] = (),
) -> Array:
    """Of each sample of `x` (batch, channel, spatial...) the elements at places (batch, ...) along each
    spatial axis, between which they are interpolated.
    """
    dims = x.shape[2:]
    columns = []
    for d, (at, n) in enumerate(zip(places, dims, strict=True)):
        below = np.rint(at) if mode == "nearest" else np.floor(at)
        weights: list[Any] = [None]
        if mode != "nearest":
            t = at - below
            weights = [1 - t, t] if mode == "linear" else _cubic_weights(t)
        first = -1 if mode == "cubic" else 0
        column = []
        for k, weight in enumerate(weights):
            whole = below + (first + k)
            inside = None
            if padding == "zeros":
                inside = (whole >= 0) & (whole <= n - 1)
            elif padding == "reflection":
                whole = reflected(whole, *borders[d])
            place = np.clip(whole, 0, n - 1).astype(dtypes.int64)
            column.append((np.reshape(place, (*place.shape, 1)), weight, inside))
        columns.append(column)
    last = moved_axis(in_float(x), 1, x.ndim - 1)
    found = None
    for taps in itertools.product(*columns):
        vectors = joined([place for place, _, _ in taps], taps[0][0].ndim - 1)
        term = gathered_vectors(last, vectors, 1)
        for _, weight, inside in taps:
            if weight is not None:
                term = term * np.reshape(weight, (*weight.shape, 1))
            if inside is not None:
                term = np.where(np.reshape(inside, (*inside.shape, 1)), term, asarray(0, term.dtype))
        found = term if found is None else found + term
    assert found is not None
    return moved_axis(found, found.ndim - 1, 1).astype(x.dtype)
