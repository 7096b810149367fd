"""What has to stay in float32 together, for a repair to be one: a sum kept in float32 whose squares
leave the type repairs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from neuronsim.casting.lint.narrow_types import digits, is_narrow, overflows
from neuronsim.casting.lint.planned_computation import MOVES, PlannedComputation
from neuronsim.casting.policies.calibration import share_rounded_to_zero
from neuronsim.hlo.module import Instruction, Shape

_UNKEPT = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "while", "conditional"})
_PRODUCTS = frozenset({"dot", "convolution"})
# What brings large values back to where a type has them.
_TAMES = frozenset({"sqrt", "rsqrt", "cbrt", "log", "log-plus-one", "divide", "tanh", "logistic"})
_TAMES |= {"compare", "is-finite", "clamp", "minimum", "sign"}
_STEPS_AWAY = 6  # computing instructions
_MOST = 32  # instructions that a repair follows each way
RANGE, DIGITS, COUNTS = "range", "digits", "counts"  # what a repair is about


def closed(scope: PlannedComputation, names: Iterable[str], about: frozenset[str]) -> tuple[str, ...]:
    """These instructions with the producers and consumers without which they repair nothing, in the
    order of the computation: what moves their operands; for `DIGITS` what computes these, up to
    products; for `RANGE` what gives, and for it and `COUNTS` what reads, values that no type of the
    plan holds.
    """
    stated = tuple(names)  # some are of loops around the computation
    outside = [n for n in stated if n not in scope.by_name or scope.by_name[n].opcode in _UNKEPT]
    kept = dict.fromkeys(n for n in stated if n not in outside)
    if DIGITS in about:
        for name in list(kept):
            kept |= dict.fromkeys(_upstream(scope, name))
    if RANGE in about:
        for name in list(kept):
            kept |= dict.fromkeys(_lost_before(scope, name))
    if RANGE in about or COUNTS in about:
        for name in list(kept):
            kept |= dict.fromkeys(_downstream(scope, name, COUNTS in about))
    for name in list(kept):
        kept |= dict.fromkeys(_moves_to(scope, name))
    return (*outside, *sorted(kept, key=scope.graph.places.__getitem__))


def _moves_to(scope: PlannedComputation, name: str) -> list[str]:
    """What only moves an instruction's operands to it: it would round them."""
    found: dict[str, None] = {}
    pending = [scope.by_name[name]]
    while pending and len(found) < _MOST:
        for o in pending.pop().operands:
            i = scope.by_name[o]
            if i.opcode in MOVES and i.name not in found:
                found[i.name] = None
                pending.append(i)
    return list(found)


def _upstream(scope: PlannedComputation, name: str) -> list[str]:
    """What computes an instruction's operands, up to products and a few steps away."""
    found = {name: 0}
    pending = [(scope.by_name[name], 0)]
    while pending and len(found) < _MOST:
        i, distance = pending.pop(0)
        if i.opcode in _PRODUCTS and distance:
            continue
        for o in i.operands:
            given = scope.by_name[o]
            away = distance + (given.opcode not in MOVES)
            if given.opcode in _UNKEPT or away > _STEPS_AWAY or found.get(o, away + 1) <= away:
                continue
            if given.opcode == "reduce" and scope.depth(given) == 0 and distance > 1:
                continue
            found[o] = away
            pending.append((given, away))
    return list(found)


def _lost_before(scope: PlannedComputation, name: str) -> list[str]:
    """What gives an instruction values that the data show to leave the type before it has them."""
    found: dict[str, None] = {}
    pending = [name]
    while pending and len(found) < _MOST:
        for o in scope.by_name[pending.pop()].operands:
            i = scope.by_name[o]
            known = scope.observed(o) is not None and i.opcode not in _UNKEPT
            if known and o not in found and _leaves(scope, o, False):
                found[o] = None
                pending.append(o)
    return list(found)


def _downstream(scope: PlannedComputation, name: str, counts: bool) -> list[str]:
    """What reads values that leave a type, up to where they no longer do."""
    found: dict[str, None] = {}
    pending = [(name, 0)]
    while pending and len(found) < _MOST:
        given, away = pending.pop()
        if away and not _leaves(scope, given, counts):
            continue
        for user in scope.users[given][:_MOST]:
            if user.name in found or user.opcode in _UNKEPT or away > _STEPS_AWAY:
                continue
            if not any(
                _is_read_narrow(scope, user, n) for n, o in enumerate(user.operands) if o == given
            ):
                continue
            if not away and not _leaves(scope, given, counts):
                continue
            found[user.name] = None
            if not (user.opcode in _TAMES and scope.observed(user.name) is None):
                pending.append((user.name, away + (user.opcode not in MOVES)))
    return list(found)


def _is_read_narrow(scope: PlannedComputation, user: Instruction, number: int) -> bool:
    dtype = scope.reads(user, number)
    return dtype is not None and is_narrow(dtype)


def _leaves(scope: PlannedComputation, name: str, counts: bool) -> bool:
    """Whether a narrow type that the computation's plan reads does not hold an array's values."""
    known, types = scope.observed(name), scope.narrow_types
    shape = scope.by_name[name].shape
    if not isinstance(shape, Shape) or shape.dtype.kind != "float" or not types:
        return False
    if known is not None:
        return any(
            overflows(known.largest, t)
            or bool(known.infinite)
            or share_rounded_to_zero(known, t) > 0
            or (counts and known.largest > 2 ** digits(t))
            for t in types
        )
    bound = scope.interval(name).magnitude
    return bound == float("inf") or any(overflows(bound, t) for t in types)
