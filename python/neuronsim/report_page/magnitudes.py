"""The histograms of a cause: how large the values of its operands and its result are, against what its
type can hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

MOST_COLUMNS = 48
_MARGIN = 6  # powers of two between the values and an end of the range that is still shown
_LEAST_HEIGHT = 4  # per cent of a column that has a value at all


def histograms(cause: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of each histogram, all over the same powers of two; the ends of the type's range
    that lie near as `marks`, by their place in per cent; what the ends of the axis are. Empty where
    a document has none.
    """
    given = [m for m in cause.get("magnitudes") or () if m.get("counts")]
    if not given:
        return {}
    low = min(m["lowest"] for m in given)
    high = max(m["lowest"] + len(m["counts"]) for m in given)
    limits = _limits(cause, given, low, high)
    low = min([low, *(p - 1 for p, _, _ in limits)])
    high = max([high, *(p + 1 for p, _, _ in limits)])
    wide = math.ceil((high - low) / MOST_COLUMNS)
    columns = math.ceil((high - low) / wide)
    rows = [
        {
            "name": m["instruction"],
            "said": _said(m, str(cause.get("type", ""))),
            "columns": _columns(m, low, wide, columns, limits),
        }
        for m in sorted(given, key=lambda m: (m["operand"] is None, m["operand"] or 0))
    ]
    marks = [
        {"at": round(100 * (p - low) / (wide * columns), 2), "text": text} for p, _, text in limits
    ]
    return {"rows": rows, "marks": marks, "least": _size(low), "most": _size(low + wide * columns)}


def _limits(
    cause: Mapping[str, Any], given: Sequence[Mapping[str, Any]], low: int, high: int
) -> list[tuple[int, str, str]]:
    """Powers of two at which a type gives out, on which side, and what is said of it."""
    evidence, dtype = cause.get("evidence") or {}, cause.get("type") or "the type"
    found = []
    least, top = evidence.get("least"), evidence.get("top")
    if least and low - _MARGIN <= (power := math.frexp(least)[1] - 1) <= high + _MARGIN:
        found.append((power, "below", f"{least:.3g}, {dtype}'s least normal value"))
    if top and low - _MARGIN <= (power := math.frexp(top)[1]) <= high + _MARGIN:
        found.append((power, "above", f"{top:.6g}, {dtype}'s largest value"))
    operands = [m["lowest"] + len(m["counts"]) - 1 for m in given if m["operand"] is not None]
    digits = evidence.get("digits")
    if cause.get("kind") == "cancellation" and operands and digits:
        # Two terms of the largest one's size differ by a multiple of its last place.
        power = max(operands) - int(digits) + 1
        text = f"{2.0**power:.3g}, {dtype}'s step at the largest operand"
        found.append((power, "result", text))
    return sorted(found)


def _columns(
    m: Mapping[str, Any], low: int, wide: int, columns: int, limits: Sequence[tuple[int, str, str]]
) -> list[dict[str, Any]]:
    """Each column's height in per cent, and whether the type cannot hold what is in it."""
    sums = [0] * columns
    for n, count in enumerate(m["counts"]):
        sums[(m["lowest"] + n - low) // wide] += count
    most = max(sums)
    found = []
    for n, count in enumerate(sums):
        power = low + n * wide
        lost = any(
            power >= p if side == "above" else power < p and (side == "below" or m["operand"] is None)
            for p, side, _ in limits
        )
        height = max(_LEAST_HEIGHT, round(100 * count / most)) if count else 0
        text = f"{count} from {_size(power)} to {_size(power + wide)}"
        found.append({"height": height, "lost": lost, "text": text})
    return found


def _said(m: Mapping[str, Any], dtype: str) -> str:
    """What a histogram is of, and what of it no column shows."""
    whose = "result" if m["operand"] is None else f"operand {m['operand']}"
    parts = [f"{whose}, {sum(m['counts']) + m['zeros'] + m['not_finite']} values"]
    parts += [f"{m['beyond']} overflow in {dtype}"] * bool(m["beyond"])
    parts += [f"{m['vanishing']} below its normal values"] * bool(m["vanishing"])
    parts += [f"{m['zeros']} are 0"] * bool(m["zeros"])
    parts += [f"{m['not_finite']} are not finite"] * bool(m["not_finite"])
    return ", ".join(parts)


def _size(power: int) -> str:
    """A power of two as a number to read."""
    return f"{2.0**power:.3g}" if -1022 <= power <= 1023 else f"2^{power}"
