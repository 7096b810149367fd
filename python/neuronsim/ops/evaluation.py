"""`apply`, the one door to every evaluation, and what it does about 64-bit integers (C7) and random
words (S2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neuronsim import dtypes
from neuronsim.errors import warn
from neuronsim.ops.chains import (
    CORE_KINDS,
    TRUNCATED,
    as_32_bits,
    count_outside_range,
    elementwise_chain,
    outside_range_warning,
    truncate_int64,
)
from neuronsim.ops.exceptions import handle_exceptions
from neuronsim.ops.products import Fusion, evaluate_product
from neuronsim.ops.rows import ArrayType, Attributes, Bits, Evaluation, Op, Result, Setting, by_name
from neuronsim.processor import check_environment
from neuronsim.profiles import Profile, current_profile, kept_with_profile, next_rounding


def evaluate(
    op: Op,
    operands: Sequence[Bits],
    attributes: Attributes,
    setting: Setting,
    result: Result | None = None,
) -> tuple[Bits, ...]:
    """Evaluate a row on bits: each of the arrays that it gives. `result` are the types that a graph
    states; else they are inferred.
    """
    if result is None:
        result = op.infer([x.type for x in operands], attributes)
    return run(Evaluation(op, operands, attributes, result, setting))


def run(e: Evaluation) -> tuple[Bits, ...]:
    """The arrays that an evaluation gives."""
    check_environment()
    data, result = e.op.evaluate(e), e.result
    arrays = data if isinstance(data, tuple) else (data,)
    # Of an array without dimensions NumPy's indexing makes a scalar.
    if isinstance(result, ArrayType):
        (array,) = arrays
        return (Bits(np.asarray(array), result.dtype),)
    return tuple(Bits(np.asarray(a), t.dtype) for a, t in zip(arrays, result, strict=True))


def evaluate_fused(e: Evaluation, fusion: Fusion) -> Bits:
    """A dot or a convolution with what is fused into it; its result is the product's own type."""
    check_environment()
    return Bits(evaluate_product(e, fusion), fusion.result(e.result).dtype)


def apply(name: str, operands: Sequence[Bits], **attributes: Any) -> Any:
    """Evaluate an operation on bits, or record it: data that are no ndarray take over by their method
    `__neuronsim_apply__(op, operands, attributes)`, as a tracer's do.
    """
    op = by_name(name)
    for x in operands:
        if not isinstance(x.data, np.ndarray):
            return x.data.__neuronsim_apply__(op, operands, attributes)
    profile = current_profile()
    if profile.activation == "neuron_range":
        outside = count_outside_range(op, operands, profile)
        if outside:
            warn(outside_range_warning(name, outside))
    setting = plain_setting(profile)
    result = attributes.get("result")
    if result is None:
        result = op.infer_array([x.type for x in operands], attributes)
    evaluation = Evaluation(op, operands, attributes, result, setting)
    if profile.rounding == "nearest_even" and profile.int64 == "keep":
        (value,) = run(evaluation)
    else:
        value, setting = _drawn_or_truncated(evaluation)
    if profile.handling is not None:
        handle_exceptions(evaluation._replace(setting=setting), value)
    return value


@kept_with_profile
def plain_setting(profile: Profile) -> Setting:
    return Setting(profile)


def _drawn_or_truncated(e: Evaluation) -> tuple[Bits, Setting]:
    """Evaluate where random words may round (S2) or 64-bit integers are truncated (C7); the setting has
    the operation's place among those that draw.
    """
    profile = e.setting.profile
    if profile.rounding == "stochastic" and draws(e):
        # S2: the place of this rounding operation in the sequence of the context's.
        state = next_rounding()
        place = f"{state.calls}/eager/{e.op.name}/"
        e = e._replace(setting=Setting(profile, state.seed, place))
    if profile.int64 == "keep":
        return run(e)[0], e.setting
    pairs = [truncate_int64(x) for x in e.operands]
    value, changed = truncated(e._replace(operands=[x for x, _ in pairs]))
    changed += sum(n for _, n in pairs)
    if changed:
        warn(
            f"{e.op.name}: {changed} 64-bit integers are others than in 64 bits (C7, int64='truncate')"
        )
    return value, e.setting


def moves_bits(op: Op) -> bool:
    """Whether an operation moves or flips bits and nothing else (E6)."""
    kind = None if op.core is None else CORE_KINDS[op.core]
    return op.cast == "movement" or kind in ("bitwise", "sign", "selection") or op.name == "nextafter"


def draws(e: Evaluation) -> bool:
    """Whether an operation rounds float32 values to a narrower float under this profile (S1)."""
    op, t = e.op, e.result.dtype
    if t is dtypes.float32 or not t.exponent_bits or moves_bits(op):
        return False
    if op.core is None and op.name not in ("convert", "reduce_precision"):
        return True
    types = tuple(x.dtype for x in e.operands)
    if (op.name == "convert" and types[0] is t) or any(x.code is None for x in types):
        return False
    program, _ = elementwise_chain(op, e.attributes, types, t, current_profile())
    return program.draws


def truncated(e: Evaluation) -> tuple[Bits, int]:
    """C7: the 32-bit instruction for a 64-bit one, its result extended, and how many elements that
    changes. The operands are truncated already (`truncate_int64`).
    """
    op, setting = e.op, e.setting
    arrays = [as_32_bits(x) for x in e.operands] if op.name == "convert" else list(e.operands)
    (value,) = run(e._replace(operands=arrays))
    if value.dtype not in TRUNCATED:
        return value, 0
    # The 32-bit instruction gives the low half of the 64-bit one, but for conversions from floats and
    # products through floats (M7), which saturate in 32 bits, and for shifts and counts of bits, whose
    # width is 32.
    saturates = (op.name == "convert" and arrays[0].dtype.kind == "float") or (
        op.name in ("dot", "convolution") and setting.profile.int_dot == "via_float32"
    )
    if saturates or (op.core is not None and op.name != "select"):
        narrow = TRUNCATED[value.dtype]
        own = {**e.attributes, "dtype": narrow} if saturates else e.attributes
        (small,) = evaluate(op, [as_32_bits(a) for a in arrays], own, setting)
        wide = small.data.astype(value.dtype.storage)
        return Bits(wide, value.dtype), int(np.count_nonzero(wide != value.data))
    return truncate_int64(value)


# C7: what gives 64-bit words that are no numbers.
KEEPS_64_BITS = frozenset({"bitcast", "bitcast_convert", "rng_bit_generator", "rng_state"})


def truncated_all(e: Evaluation) -> tuple[tuple[Bits, ...], int]:
    """`truncated` for a row of any number of results."""
    if e.op.name in KEEPS_64_BITS:
        return run(e), 0
    e = e._replace(operands=[truncate_int64(x)[0] for x in e.operands])
    if isinstance(e.result, ArrayType):
        value, changed = truncated(e)
        return (value,), changed
    pairs = [truncate_int64(x) for x in run(e)]
    return tuple(x for x, _ in pairs), sum(n for _, n in pairs)
