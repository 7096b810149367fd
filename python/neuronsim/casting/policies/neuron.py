"""The policies of the Neuron compilers' settings (A1, A2, A3).

>>> policy = neuron_policy("matmult", "bf16")
>>> policy.low, sorted(policy.lists["always"]), policy.product_output
(neuronsim.bfloat16, ['matmult'], neuronsim.float32)
"""

from __future__ import annotations

from dataclasses import replace

from neuronsim import dtypes
from neuronsim.casting.flags import CAST_TYPES, CastSettings
from neuronsim.casting.policies.policy import Policy
from neuronsim.errors import InvalidFlag
from neuronsim.targets import AutoCast


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
        reason = "A1: {policy} rounds float32 operands of the tensor engine to {low}"
        return Policy(
            name,
            low,
            {"always": frozenset({"matmult"})},
            product_output=dtypes.float32,
            reasons={"matmult": reason},
        )
    compute = "A2: {policy} rounds {rounded} to {low}"
    reasons = {
        "matmult": compute,
        "compute": compute,
        "movement": "A2: {policy} moves values as {low}: what is given is converted once",
        "constant": "A2: {policy} converts constants to {low} once: their readers' copies are {low}",
        "while": "A2: {policy} carries the values of loops as {low}",
    }
    return Policy(name, low, {"always": frozenset(reasons)}, reasons=reasons)


def policy_of(settings: CastSettings, auto_cast_all: str = "documented") -> Policy:
    """The policy of the settings of either compiler: `neuron_policy`'s, and neuron-cc's fast relayouts
    (A3), which are part of its name. `auto_cast_all` is the profile's field.

    >>> policy = policy_of(CastSettings("matmult", "bf16", False, "neuron-cc", relayout="fp16"))
    >>> policy.name, policy.relayout
    ('matmult/bf16+fp16-relayout', neuronsim.float16)
    """
    policy = neuron_policy(settings.auto_cast, settings.auto_cast_type, auto_cast_all)
    return replace(
        policy,
        name=policy.name + (f"+{settings.relayout}-relayout" if settings.relayout else ""),
        relayout=CAST_TYPES[settings.relayout] if settings.relayout else None,
        saturate_infinity=settings.saturate_infinity,
    )
