"""Counts of n-grams in rows of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.errors import InvalidModel
from neuronsim.frontends.onnx.table import Node, operator
from neuronsim.frontends.primitives import joined, part, taken


@operator("TfIdfVectorizer", since=9)
def _weighted_counts(node: Node, x: Array) -> Array:
    """How often each n-gram of a pool is in each row, by the mode as 0 or 1 and times its weight; those
    of several numbers also with equal gaps in between.
    """
    if "pool_strings" in node.attributes:
        raise node.refuse("of strings: neuronsim has no arrays of them")
    if x.ndim not in (1, 2):
        raise InvalidModel(f"counts n-grams in {x.bits.type}: rows are one or two axes")
    places = [int(i) for i in node.require("ngram_indexes")]
    if sorted(places) != sorted(set(places)) or min(places, default=0) < 0:
        raise node.refuse("whose ngram_indexes are not all different and from 0 on")
    weights = node.get("weights") or [1.0] * len(places)
    lines = np.reshape(x, (-1, x.shape[-1]))
    counts = [np.zeros((lines.shape[0], 1), dtype=dtypes.int32), *_counts(node, lines)]
    of_place = numpy.zeros(max(places, default=-1) + 1, numpy.int64)  # 0: no n-gram's, which is never
    of_place[places] = numpy.arange(1, len(places) + 1)
    weight = asarray(numpy.concatenate([[0.0], weights]).astype(numpy.float32)[of_place])
    times = taken(joined(counts, 1), of_place, 1)
    match mode := node.require("mode"):
        case "TF":
            found = times.astype(dtypes.float32)
        case "IDF":
            found = np.multiply((times > 0).astype(dtypes.float32), weight)
        case "TFIDF":
            found = np.multiply(times.astype(dtypes.float32), weight)
        case _:
            raise InvalidModel(f"the mode {mode!r}: it is TF, IDF or TFIDF")
    return np.reshape(found, (*x.shape[:-1], len(of_place)))


def _counts(node: Node, lines: Array) -> Iterator[Array]:
    """For each length the counts [row, n-gram], in the order of the pool."""
    pool, starts = node.require("pool_int64s"), node.require("ngram_counts")
    least, most = node.require("min_gram_length"), node.require("max_gram_length")
    for n, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        grams = numpy.asarray(pool[start:end], numpy.int64).reshape(-1, n)
        found = np.zeros((lines.shape[0], len(grams)), dtype=dtypes.int32)
        for gap in range(node.require("max_skip_count") + 1 if n > 1 else 1):
            count = lines.shape[1] - (n - 1) * (gap + 1)
            if least <= n <= most and count > 0 and len(grams):
                found = np.add(found, _matches(lines, grams, gap + 1, count))
        yield found


def _matches(lines: Array, grams: Any, step: int, count: int) -> Array:
    """How many of `count` places of each row begin each n-gram, whose numbers are `step` apart."""
    limits = numpy.iinfo(lines.dtype.numpy)
    is_there = asarray(((grams >= limits.min) & (grams <= limits.max)).all(axis=1))
    for k in range(grams.shape[1]):
        here = np.expand_dims(part(lines, 1, k * step, k * step + count), 2)
        is_there = np.logical_and(is_there, here == asarray(grams[:, k]).astype(lines.dtype))
    return np.sum(is_there.astype(dtypes.int32), axis=1, dtype=dtypes.int32)
