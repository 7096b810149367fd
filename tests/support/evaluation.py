"""Rows of the op table, and the core's reduce, on arrays of words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tests.support.words import Words, as_bits

from neuronsim import Array, _core, dtypes, ops
from neuronsim.profiles import Profile, current_profile

CODES = {name: n for n, (name, _, _) in enumerate(_core.OPS)}
CODES |= {"convert": _core.CONVERT, "bitcast_convert": _core.BITCAST}
PLAIN_DOT = ops.DotDimensions((1,), (0,))


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
    bits = [as_bits(type_name, words) for type_name, words in operands]
    stated = op.infer([x.type for x in bits], attributes)
    if result is not None:
        stated = stated._replace(dtype=dtypes.DTYPES[result])
    (found,) = ops.evaluate(op, bits, attributes, setting or ops.Setting(profile), stated)
    data = found.data
    assert data.dtype == stated.dtype.storage
    assert data.shape == stated.dims
    return data.view(f"u{data.itemsize}")


def evaluated(
    name: str, *operands: Array, setting: ops.Setting | None = None, **attributes: Any
) -> Array:
    """A row of the op table on arrays, as a graph evaluates it; under the profile in force."""
    setting = setting or ops.Setting(current_profile())
    return Array(*ops.evaluate(ops.by_name(name), [x.bits for x in operands], attributes, setting))


def evaluate_dot(a: str, x: Words, b: str, y: Words, result: str = "float32", **more: Any) -> Words:
    """A dot of two matrices, where `more` has no other dimensions."""
    more = {"dot_dimensions": PLAIN_DOT, "dtype": dtypes.DTYPES[result]} | more
    return evaluate("dot", (a, x), (b, y), **more)


def evaluate_fold(name: str, type_name: str, x: Words, initial: Any = 0, **more: Any) -> Words:
    """A reduce, cumulative or reduce_window of words, by adding where `more` has no reducer."""
    start = type_name, np.asarray(initial, x.dtype)
    return evaluate(name, (type_name, x), start, **{"reducer": "add"} | more)


def chain_of(
    inputs: Sequence[str],
    steps: Sequence[tuple[str, str, Sequence[int]]],
    outputs: Sequence[int],
    profile: Profile = Profile(),  # noqa: B008 (frozen)
) -> _core.Chain:
    """A chain by names: the inputs' types; each step's operation, type and operands."""
    listed = tuple((CODES[name], _core.DTYPES.index(t), tuple(given)) for name, t, given in steps)
    return ops.make_chain(tuple(map(_core.DTYPES.index, inputs)), listed, tuple(outputs), profile)


def pair_chain(name: str, type_name: str, result: str = "", **fields: Any) -> _core.Chain:
    """The chain of one operation of two values of a type."""
    step = name, result or type_name, (0, 1)
    return chain_of([type_name] * 2, [step], [2], Profile(**fields))


def core_scatter(
    computation: _core.Chain,
    places: Words,
    updates: list[Words],
    targets: list[Words],
    row: int = 1,
) -> None:
    """The core's scatter to rows of elements, of numbers in the targets; others are skipped."""
    rows = targets[0].size // row
    indices = (places, dtypes.int64.code, [(len(places), 8, 0, 0)], [(0, rows - 1, row)])
    _core.scatter_rows(computation, *indices, row, updates, targets).run()


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
