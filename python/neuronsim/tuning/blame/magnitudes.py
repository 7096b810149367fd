"""How large the values of an instruction and of its operands are: histograms by powers of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from neuronsim.casting.lint.narrow_types import least_overflow
from neuronsim.dtypes import DType
from neuronsim.ops import Bits
from neuronsim.tuning.blame.flow import least_normal, numbers
from neuronsim.tuning.blame.graph import Dataflow
from neuronsim.tuning.blame.runs import Values

_OPERANDS = 3  # that are looked at


@dataclass(frozen=True)
class Magnitudes:
    """The magnitudes of an instruction's values in float32, on a batch that was traced: `counts[n]` of
    them are at least 2**(lowest + n) and less than twice that; zeros and what is not finite are apart.
    `beyond` overflow in a type, `vanishing` are below its least normal value. `operand` is which of the
    blamed instruction's they are, None for its result.
    """

    instruction: str
    operand: int | None
    lowest: int
    counts: tuple[int, ...]
    zeros: int
    not_finite: int
    beyond: int
    vanishing: int


def magnitudes(
    instruction: str, operand: int | None, arrays: Sequence[Bits], dtype: DType
) -> Magnitudes:
    """Those of arrays of an instruction, held against a narrow type."""
    every = np.abs(np.concatenate([numbers(x).ravel() for x in arrays]))
    known = every[np.isfinite(every) & (every > 0)]
    powers = np.frexp(known)[1] - 1
    top = least_overflow(dtype) if dtype.exponent_bits else np.inf  # a scale's integers have none
    lowest = int(powers.min()) if powers.size else 0
    return Magnitudes(
        instruction=instruction,
        operand=operand,
        lowest=lowest,
        counts=tuple(np.bincount(powers - lowest).tolist()),
        zeros=int(np.count_nonzero(every == 0)),
        not_finite=int(np.count_nonzero(~np.isfinite(every))),
        beyond=int(np.count_nonzero(known >= top)),
        vanishing=int(np.count_nonzero(known < least_normal(dtype))),
    )


def magnitudes_of(flow: Dataflow, values: Values, name: str, dtype: DType) -> tuple[Magnitudes, ...]:
    """Those of an instruction's result and of what gives its operands, but for single constants."""
    asked: dict[str, int | None] = {name: None}
    for n in range(len(flow.instructions[name].operands)):
        for given in flow.producers(name, n):
            asked.setdefault(given, n)
    found = []
    for given, operand in asked.items():
        arrays = [x for x in values.every(given) if x.dtype.kind == "float"]
        single = flow.instructions[given].opcode == "constant" and sum(x.data.size for x in arrays) == 1
        if arrays and not single:
            found.append(magnitudes(given, operand, arrays, dtype))
    return tuple(found[: 1 + _OPERANDS])
