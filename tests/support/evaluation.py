"""Rows of the op table, and the core's reduce, on arrays of words."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.support.words import Words

from neuronsim import Array, _core, dtypes, ops
from neuronsim.profiles import Profile, current_profile


def evaluate(
    name: str,
    *operands: tuple[str, Words],
    profile: Profile = Profile(),  # noqa: B008 (frozen)
    setting: ops.Setting | None = None,
    result: str | None = None,
    **attributes: Any,
) -> Words:
    """A row of the op table on (type name, words) operands."""
    op = ops.by_name(name)
    bits = []
    for type_name, words in operands:
        t = dtypes.DTYPES[type_name]
        bits.append(ops.Bits(np.asarray(words).view(t.storage), t))
    stated = op.infer([x.type for x in bits], attributes)
    if result is not None:
        stated = stated._replace(dtype=dtypes.DTYPES[result])
    data = ops.evaluate(op, bits, attributes, setting or ops.Setting(profile), stated).data
    assert data.dtype == stated.dtype.storage
    assert data.shape == stated.dims
    return data.view(f"u{data.itemsize}")


def evaluated(
    name: str, *operands: Array, setting: ops.Setting | None = None, **attributes: Any
) -> Array:
    """A row of the op table on arrays, as a graph evaluates it; under the profile in force."""
    setting = setting or ops.Setting(current_profile())
    return Array(ops.evaluate(ops.by_name(name), [x.bits for x in operands], attributes, setting))


def core_scatter(
    computation: _core.Chain, places: Words, updates: list[Words], targets: list[Words]
) -> None:
    """The core's scatter to single elements, of numbers in the targets; others are skipped."""
    size = targets[0].size
    indices = (places, dtypes.int64.code, [(len(places), 8, 0, 0)], [(0, size - 1, 1)])
    _core.scatter_rows(computation, *indices, 1, updates, targets).run()


def core_reduce(
    op: int,
    dtype: int,
    x: Words,
    kept: int,
    initial: Words,
    output: Words,
    tile: int = 512,
    round_tiles: bool = False,
) -> None:
    """The core's reduce with a reduction of plain rules."""
    plain = ops.numerics(Profile())
    reduction = _core.Reduction(op, dtype, 0, tile, round_tiles, plain)
    reduction.on(x, kept, initial, output).run()
