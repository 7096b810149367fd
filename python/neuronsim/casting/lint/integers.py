"""Integers: those that lose their high halves, and those that pass narrow floats."""

from __future__ import annotations

from collections.abc import Iterator

from neuronsim import dtypes, ops
from neuronsim.casting.lint.intervals import ANY, Interval
from neuronsim.casting.lint.narrow_types import digits, is_narrow
from neuronsim.casting.lint.planned_computation import Broken, PlannedComputation
from neuronsim.hlo.module import Instruction, Shape

# The operands that hold indices: the first of them, and how many at most.
_INDEXED = {
    "gather": (1, 2),
    "scatter": (1, 2),
    "dynamic-slice": (1, None),
    "dynamic-update-slice": (2, None),
}
_LARGER = frozenset({"multiply", "shift-left", "power"})


def _indices(i: Instruction) -> tuple[str, ...]:
    if i.opcode == "scatter":
        arrays = (len(i.operands) - 1) // 2
        return (i.operands[arrays],)
    if i.opcode not in _INDEXED:
        return ()
    return i.operands[slice(*_INDEXED[i.opcode])]


def _index_chain(scope: PlannedComputation) -> Iterator[tuple[Instruction, Instruction]]:
    """The instructions from which indices are computed, each with one that reads the indices."""
    seen: set[str] = set()
    for reader in scope.computation.instructions:
        pending = list(_indices(reader))
        while pending:
            i = scope.by_name[pending.pop()]
            if i.name in seen or not isinstance(i.shape, Shape) or i.shape.dtype is dtypes.boolean:
                continue
            seen.add(i.name)
            yield i, reader
            pending += i.operands


_UNKNOWN = Interval(-(2.0**62), 2.0**62)


def truncated_indices(scope: PlannedComputation) -> Broken:
    """An s64 constant, not its type's limits, or iota beyond 32 bits; an s64 product from which a
    gather takes its indices.
    """
    if scope.target is None or not scope.target.truncates_int64:
        return
    readers = {i.name: reader for i, reader in _index_chain(scope)}
    for i in scope.computation.instructions:
        limit = _LOW_HALVES.get(i.shape.dtype) if isinstance(i.shape, Shape) else None
        if limit is None or not _exceeds(scope.intervals[i.name], limit):
            continue
        found, reader = scope.intervals[i.name], readers.get(i.name)
        if i.opcode == "constant":
            truncated = ops.truncated_elements(i.attributes["literal"])
            if not truncated.size:
                continue
            found = Interval(float(truncated.min()), float(truncated.max()))
        use = f"; {reader.name} ({reader.opcode}) indexes with it" if reader is not None else ""
        given = [scope.intervals.get(o, ANY) for o in i.operands]
        begins = not any(_exceeds(g, limit) and not _exceeds(g, _UNKNOWN) for g in given)
        if i.opcode in ("constant", "iota") or (use and begins and not _exceeds(found, _UNKNOWN)):
            message = f"from {found.low:.10g} to {found.high:.10g} lose their high 32 bits{use}"
            yield i, f"{i.array.dtype.name} values {message}", ()
        elif use and i.opcode in _LARGER:
            message = f"values that it makes can exceed 32 bits and lose the rest{use}"
            yield i, f"{i.array.dtype.name} {message}", ()


# What is left of 64-bit integers (C7).
_LOW_HALVES = {
    dtypes.int64: Interval(-(2.0**31), 2.0**31 - 1),
    dtypes.uint64: Interval(0, 2.0**32 - 1),
}


def _exceeds(x: Interval, limit: Interval) -> bool:
    return x.low < limit.low or x.high > limit.high


def integers_in_floats(scope: PlannedComputation) -> Broken:
    """An iota up to 999 in bfloat16, which holds all integers only up to 256; indices that pass
    through it.
    """
    for i in scope.computation.instructions:
        dtype = scope.gives(i)
        if dtype is None or not is_narrow(dtype) or i.opcode not in ("iota", "convert"):
            continue
        if i.opcode == "convert" and scope.by_name[i.operands[0]].array.dtype.kind not in (
            "signed",
            "unsigned",
        ):
            continue
        bound, exact = scope.intervals[i.name].magnitude, 2 ** digits(dtype)
        known = i.opcode == "iota" or bound < 2.0**31 - 1
        if known and bound > exact:
            yield (
                i,
                (f"integers up to {bound:g} in {dtype.name}, which holds all only up to {exact}"),
                (i.name,),
            )
    for i, reader in _index_chain(scope):
        dtype = scope.gives(i)
        if dtype is None or not is_narrow(dtype):
            continue
        users = [
            u for u in scope.users[i.name] if u.opcode == "convert" and u.array.dtype.kind != "float"
        ]
        size, exact = max(scope.by_name[reader.operands[0]].array.dims, default=0), 2 ** digits(dtype)
        if users and size > exact:
            yield (
                i,
                (
                    f"indices of {reader.name} ({reader.opcode}), into {size} elements, pass "
                    f"{dtype.name}, which holds all integers only up to {exact}"
                ),
                (i.name,),
            )
