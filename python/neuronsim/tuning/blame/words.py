"""What is said of a cause, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping

from neuronsim.dtypes import DType
from neuronsim.hlo.module import Instruction
from neuronsim.tuning.blame.causes import Loss, described
from neuronsim.tuning.blame.flow import Tally, digits_of, least_normal
from neuronsim.tuning.blame.quantized import Fault, Operand

KINDS: Mapping[str, tuple[str, str]] = {
    "overflow": (
        "values up to {largest:g} leave {type}, whose largest is {top:g}",
        "scale before the operation (divide by the largest magnitude, take a mean of scaled values), "
        "or take a constant inside the type",
    ),
    "nan": (
        "NaN begins here, from operands such as 0 * Inf or Inf - Inf",
        "keep the operands finite: mask with select and a constant inside the type",
    ),
    "underflow": (
        "values down to {smallest:.3g} vanish in {type}, whose least normal value is {least:.3g}",
        "use an epsilon that the type holds (1e-4 in float16), or scale the values up before",
    ),
    "integers": (
        "integers up to {largest:g} in {type}, which holds all only up to {exact:g}",
        "count, compare and index in integers",
    ),
    "long reduction": (
        "a sum of many terms, rounded to {type} as it grows: from {exact:g} equal ones on it rests",
        "accumulate in float32",
    ),
    "cancellation": (
        "what it adds up is {cancelled:.3g} times as large as the result, so that the roundings of the "
        "terms to {type} ({digits} significant bits) take {bits:.1f} of them",
        "take the difference before what is large: the variance about the mean, x - max(x) in float32",
    ),
    "recurrence": (
        "a state is rounded to {type} ({digits} significant bits) in each of {trips:g} steps: its "
        "relative error grows from {first:.2g} in the first to {half:.2g} half-way and {last:.2g} in "
        "the last",
        "carry the state in float32: what it is computed from may stay narrow",
    ),
    "steep function": (
        "arguments up to {largest_argument:g}, whose rounding to {type} ({digits} significant bits) "
        "the function makes {bits:.1f} bits worse",
        "compute the argument in float32",
    ),
    "discontinuity": (
        "a choice falls elsewhere because what it reads is rounded to {type}",
        "compute what decides (indices, comparisons) in integers or in float32",
    ),
    "clipping": (
        "{operand} has values from {smallest:.4g} to {largest:.4g}, and {type} holds those from "
        "{low:.4g} to {high:.4g}: {clipped:.2%} are clipped, which makes its error, most in channel "
        "{channel} of axis {axis:.0f}",
        "calibrate by the range of all values (minmax), or on data that have such values",
    ),
    "outlier channel": (
        "channel {channel} of {operand} (axis {axis:.0f}) reaches {reaches:.4g}, the others typically "
        "{typical:.3g}: in steps of {step:.3g}, made for that channel, these have {levels:.1f} of "
        "{type}'s values",
        "give each channel of weights its scale; equalise a channel of activations with the layer "
        "before it, or leave the product in a wider type",
    ),
    "zero point lost": (
        "{operand} has values from {smallest:.4g} to {largest:.4g}, on one side of 0: symmetric {type} "
        "has half of its values on the other",
        "quantize it with a zero point, or to uint8",
    ),
    "scale too coarse": (
        "{operand} has values up to {extreme:.4g}, its channels typically reach {typical:.3g}: {type} "
        "has steps of {step:.3g}",
        "clip its range (percentile, mse), or leave the product in a wider type",
    ),
    "rounding": (
        "its rounding to {type} ({digits} significant bits) is most of the outputs' error",
        "keep it in float32",
    ),
}

_PERIODS = "compute the angle in float32, and take whole periods away there"
_STEEP: Mapping[str, str] = {
    "exponential": "take the maximum away in float32 before it",
    "sine": _PERIODS,
    "cosine": _PERIODS,
    "tan": _PERIODS,
    "power": "compute the base in float32, or where it is 1 + y, near 1, exp(n * log1p(y))",
    "log": "compute the argument in float32, or where it is 1 + y, near 1, log1p(y)",
}


def advice_on(kind: str, opcode: str) -> str:
    """What to do about a cause."""
    return _STEEP.get(opcode, KINDS[kind][1]) if kind == "steep function" else KINDS[kind][1]


def evidence_of(loss: Loss, t: Tally, dtype: DType, argument: float) -> dict[str, float]:
    """The figures that prove a class."""
    given = t.given.share or 1.0
    digits = digits_of(dtype)
    return {
        "largest": t.largest,
        "smallest": t.smallest if t.smallest < float("inf") else 0.0,
        "largest_argument": argument,
        "top": dtype.max if dtype.exponent_bits else 2.0**digits - 1,
        "least": least_normal(dtype),
        "digits": digits,
        "exact": 2.0**digits,
        "cancelled": 2.0 ** min(200.0, t.cancelled / given),
        "bits": loss.bits,
        "share_overflowed": t.overflowed / given,
        "share_nan": t.nan / given,
        "share_vanished": t.vanished / given,
        "own_share": t.own / given,
    }


def said_of_quantized(o: Operand, fault: Fault) -> str:
    """The sentence on a quantization."""
    operand = f"{o.given} (operand {o.number} of {o.product.name})"
    told = {"operand": operand, "type": o.by.type.name, "channel": fault.channel}
    return KINDS[fault.kind][0].format(**told, **fault.evidence)


def said_of(loss: Loss, i: Instruction, t: Tally, dtype: DType, evidence: Mapping[str, float]) -> str:
    """The sentence on a cause."""
    text = KINDS[loss.kind][0].format(type=dtype.name, **evidence)
    worst = described(i, t.worst)
    return f"{text}; {worst}" if worst else text
