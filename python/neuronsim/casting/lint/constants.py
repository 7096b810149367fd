"""Constants, and bounds of clamps, that a type does not hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from neuronsim.casting.lint.denominators import POLES
from neuronsim.casting.lint.intervals import ANY
from neuronsim.casting.lint.narrow_types import overflows, range_of
from neuronsim.casting.lint.planned_computation import MOVES, Broken, PlannedComputation
from neuronsim.casting.policies.calibration import share_rounded_to_zero
from neuronsim.casting.value_sets import values_of
from neuronsim.dtypes import DType
from neuronsim.hlo.array_sources import shown_elements
from neuronsim.hlo.module import Instruction
from neuronsim.targets import Severity


def _vanishes(value: float, dtype: DType) -> str:
    """What becomes of a value below the normal ones."""
    if value <= values_of(dtype).smallest / 2:
        return f"becomes 0 in {dtype.name}, whose least value is {values_of(dtype).smallest:.3g}"
    return f"is subnormal in {dtype.name}, whose least normal value is {dtype.smallest_normal:.3g}"


_FOLLOWED = 60  # instructions between a mask and the maximum over it
_UNHARMED = frozenset({"maximum", "minimum", "compare", "clamp", "is-finite"})


def _constants(scope: PlannedComputation) -> Iterator[tuple[Instruction, np.ndarray]]:
    for i in scope.computation.instructions:
        values = shown_elements(i)
        if values is not None and i.array.dtype.kind == "float" and values.size:
            yield i, values.astype(np.float64)


def _is_mask(values: np.ndarray) -> bool:
    """Whether a constant says minus infinity with a finite number."""
    return bool(values.min() <= -1e4 and values.max() <= 0)


def _harmed(scope: PlannedComputation, i: Instruction) -> list[tuple[Instruction, int]]:
    """The readers of a constant that give something else when it is infinite: not those that only
    compare, nor a maximum that begins with it.
    """
    return [
        (u, n)
        for u, n in scope.readers(i.name)
        if u.opcode not in _UNHARMED and not (u.opcode in ("reduce", "reduce-window") and n == 1)
    ]


def _overflowing(
    scope: PlannedComputation, *, masks: bool
) -> Iterator[tuple[Instruction, DType, float, list[tuple[Instruction, int]]]]:
    for i, values in _constants(scope):
        if _is_mask(values) is not masks:
            continue
        finite = values[np.isfinite(values)]
        if finite.size == 0:
            continue
        worst = float(finite[np.argmax(np.abs(finite))])
        for _, dtype in scope.narrowest(i.name):
            if overflows(worst, dtype):
                harmed = _harmed(scope, i)
                if harmed or i.name == scope.computation.root:
                    yield i, dtype, worst, harmed
                break


def mask_constants(scope: PlannedComputation) -> Broken:
    """Float32's least value in bfloat16: (1 − mask) · c is 0 · Inf, NaN; a row that is masked
    throughout is NaN after a softmax. A maximum may begin with it.
    """
    for i, dtype, worst, harmed in _overflowing(scope, masks=True):
        severity = _mask_severity(scope, dtype, harmed)
        if severity is None:
            continue
        becomes = "-Inf" if dtype.has_inf else "NaN"
        named = ", ".join(dict.fromkeys(f"{u.name} ({u.opcode})" for u, _ in harmed[:3]))
        if any(u.opcode == "multiply" for u, _ in harmed):
            effect = f"0 * Inf in {named} is NaN"
        else:
            effect = f"a row that {named} masks throughout is -Inf - (-Inf), NaN, in a softmax"
        yield (
            i,
            f"the mask constant {worst:g} becomes {becomes} in {dtype.name}: {range_of(dtype)}; "
            f"{effect}",
            _path(scope, i, (u.name for u, _ in harmed)),
            severity,
        )


def _mask_severity(
    scope: PlannedComputation, dtype: DType, harmed: list[tuple[Instruction, int]]
) -> Severity | None:
    """Whether a mask of -Inf will do harm, could, or does none on the data: 0 · Inf where a factor is
    0, Inf - Inf where the maximum over a row is the mask.
    """
    known = [scope.observed(o) for u, _ in harmed if u.opcode == "multiply" for o in u.operands]
    if any(u.opcode == "multiply" for u, _ in harmed):
        if not any(known):
            return "error"
        return "error" if any(s is not None and s.zero for s in known) else None
    maxima = _maxima(scope, [u.name for u, _ in harmed])
    found = [s for m in maxima if (s := scope.observed(m)) is not None]
    if not found:
        return "warning"
    return "error" if any(overflows(s.largest, dtype) for s in found) else None


def _maxima(scope: PlannedComputation, names: list[str]) -> list[str]:
    """The maxima over values that begin with these."""
    found, pending, seen = [], list(names), set(names)
    while pending and len(seen) < _FOLLOWED:
        for user in scope.users[pending.pop()]:
            if user.opcode == "reduce" and scope.reducer(user) == "maximum":
                found.append(user.name)
            elif user.name not in seen and user.opcode in MOVES | {
                "add",
                "select",
                "maximum",
                "multiply",
            }:
                seen.add(user.name)
                pending.append(user.name)
    return found


def constants_beyond(scope: PlannedComputation) -> Broken:
    """1e5 in float16; 300 in float8_e4m3 (largest 240)."""
    for i, dtype, worst, harmed in _overflowing(scope, masks=False):
        yield (
            i,
            f"{worst:g} becomes {'Inf' if dtype.has_inf else 'NaN'} in {dtype.name}: {range_of(dtype)}",
            _path(scope, i, (u.name for u, _ in harmed)),
        )


def _path(scope: PlannedComputation, i: Instruction, ends: Iterable[str]) -> tuple[str, ...]:
    """A constant, what moves it, and what reads it."""
    names, pending = {i.name: None}, [i.name]
    while pending:
        for u in scope.users[pending.pop()]:
            if u.opcode in MOVES and u.name not in names:
                names[u.name] = None
                pending.append(u.name)
    return tuple(names | dict.fromkeys(ends))


_VANISHING_SHARE = 0.01  # of a constant's elements


def _poles(scope: PlannedComputation, name: str) -> list[Instruction]:
    """The instructions to which a value that is added to another is an epsilon."""
    found = []
    for u, _ in scope.readers(name):
        if u.opcode in ("add", "maximum"):
            for v, n in scope.readers(u.name):
                roots = [(v, n)] if v.opcode != "sqrt" else list(scope.readers(v.name))
                found += [p for p, n in roots if POLES.get(p.opcode) == n]
        elif u.opcode in POLES:
            found += [u] if scope.source(u.operands[POLES[u.opcode]]).name == name else []
    return found


def _small_constants(scope: PlannedComputation) -> Iterator[tuple[Instruction, str, list[Instruction]]]:
    """The constants of which a type loses elements, what becomes of them, and what they keep from 0."""
    for i, values in _constants(scope):
        nonzero = np.abs(values[(values != 0) & np.isfinite(values)])
        for _, dtype in scope.narrowest(i.name):
            lost = nonzero[nonzero < dtype.smallest_normal]
            if lost.size <= _VANISHING_SHARE * values.size:
                continue
            least = float(lost.min())
            what = f"{least:g} {_vanishes(least, dtype)}"
            if values.size > 1:
                what += f" ({lost.size} of {values.size} elements are as small)"
            yield i, what, _poles(scope, i.name) if least <= values_of(dtype).smallest / 2 else []
            break


def vanishing_epsilons(scope: PlannedComputation) -> Broken:
    """1e-12 becomes 0 in float16 in front of a rsqrt, log or divide."""
    for i, what, poles in _small_constants(scope):
        if poles:
            named = ", ".join(dict.fromkeys(f"{p.name} ({p.opcode})" for p in poles[:3]))
            read_by = (u.name for u, _ in scope.readers(i.name))
            message = f"epsilon {what}: it no longer keeps {named} from 0"
            sums = [scope.observed(u.name) for u, _ in scope.readers(i.name)]
            shares = [
                share_rounded_to_zero(s, t) for s in sums if s is not None for t in scope.narrow_types
            ]
            if shares and not any(shares):  # the data need no epsilon
                continue
            yield (
                i,
                message,
                (*_path(scope, i, read_by), *(p.name for p in poles)),
                ("error" if any(shares) else "warning"),
            )


def vanishing_constants(scope: PlannedComputation) -> Broken:
    """1e-6 is subnormal in float16; of arrays, where that holds for more than 1 % of the elements."""
    for i, what, poles in _small_constants(scope):
        if not poles:
            yield i, what, _path(scope, i, (u.name for u, _ in scope.readers(i.name)))


def clamp_beyond(scope: PlannedComputation) -> Broken:
    """A clamp to ±448 (e4m3fn) in front of float8_e4m3."""
    for i in scope.computation.instructions:
        for number in range(min(1, len(i.operands))):
            dtype = scope.gives(i) if i.opcode == "convert" else scope.reads(i, number)
            clamp = scope.source(i.operands[number])
            if clamp.opcode not in ("clamp", "minimum", "maximum"):
                continue
            if dtype is None or dtype.kind != "float" or dtype.bits != 8 or not dtype.mantissa_bits:
                continue
            bound = scope.intervals.get(clamp.name, ANY).magnitude
            if overflows(bound, dtype):
                yield (
                    i,
                    (
                        f"{clamp.name} clamps to {bound:g}, and {range_of(dtype)}: what lies between "
                        f"becomes {'Inf' if dtype.has_inf else 'NaN'}"
                    ),
                    (clamp.name, i.name),
                )
