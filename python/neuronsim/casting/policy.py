"""Policy: which cast classes of operations run in which type. Data, not code.

>>> neuron_policy("matmult", "bf16").low["matmult"].operand
neuronsim.bfloat16
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from neuronsim import dtypes
from neuronsim.casting.flags import CAST_TYPES
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidFlag
from neuronsim.ops import CastClass
from neuronsim.targets import AutoCast


@dataclass(frozen=True)
class Lowering:
    """The types of a lowered operation and the rule that says so."""

    operand: DType
    accumulate: DType
    output: DType
    reason: str


@dataclass(frozen=True)
class Policy:
    """For each cast class the lowering of its float32 instructions; the others stay as they are."""

    name: str
    low: Mapping[CastClass, Lowering] = field(default_factory=dict)


def neuron_policy(
    auto_cast: AutoCast, auto_cast_type: str, auto_cast_all: str = "documented"
) -> Policy:
    """The policy of `--auto-cast` and `--auto-cast-type` (A1, A2). Raises InvalidFlag.

    `auto_cast_all` is the profile's field: under `observed`, `all` acts as `matmult`.
    """
    if auto_cast_type not in CAST_TYPES:
        raise InvalidFlag(f"--auto-cast-type accepts {', '.join(CAST_TYPES)}, not {auto_cast_type!r}")
    low = CAST_TYPES[auto_cast_type]
    name = f"{auto_cast}/{auto_cast_type}"
    if auto_cast == "none":
        return Policy("none")
    if auto_cast == "matmult" or auto_cast_all == "observed":
        reason = f"A1: {name} rounds the operands of the tensor engine to {low.name}"
        return Policy(name, {"matmult": Lowering(low, dtypes.float32, dtypes.float32, reason)})
    compute = Lowering(low, dtypes.float32, low, f"A2: {name} rounds operands and result to {low.name}")
    movement = Lowering(
        low,
        dtypes.float32,
        low,
        f"A2: {name} moves values as {low.name}: parameters and constants are converted once",
    )
    return Policy(name, {"matmult": compute, "compute": compute, "movement": movement})
