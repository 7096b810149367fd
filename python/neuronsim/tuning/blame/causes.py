"""Causes: the instructions at which significant bits are lost, and of which kind the loss is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from neuronsim import dtypes, ops
from neuronsim.casting.decisions.record import Decision
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Instruction
from neuronsim.hlo.opcodes import row
from neuronsim.tuning.blame.flow import Element, Tallies, Tally
from neuronsim.tuning.blame.graph import Dataflow

# Of the error that passes an instruction: from this share on a kind of loss is its class.
_MOST = 0.3
_AMPLIFIED = 2.0  # bits that a difference loses for it to be a cancellation
# Functions whose result is off by more, relatively, than their argument.
_STEEP = frozenset(
    {"exponential", "exponential-minus-one", "sine", "cosine", "tan", "power", "log", "log-plus-one"}
    | {"sqrt", "rsqrt", "tanh", "logistic", "atan2", "remainder", "floor", "ceil", "divide"}
)
_CHOOSES = frozenset({"gather", "dynamic-slice", "compare", "select", "convert", "floor", "ceil"})
_CHOOSES |= {"round-nearest-even", "round-nearest-afz", "sort", "scatter", "dynamic-update-slice"}
_MOVES = frozenset({"broadcast", "reshape", "transpose", "copy", "convert", "slice", "bitcast"})


@dataclass(frozen=True)
class Loss:
    """What an instruction loses: the share of the outputs' error that passes it, and the significant
    bits that it loses there, those of its operands not counted.
    """

    name: str
    share: float
    bits: float
    error_bits: float
    kind: str

    @property
    def score(self) -> float:
        """The bits, weighted by the share."""
        return self.share * self.bits


def unit_of(types: set[DType]) -> float:
    """Half of the last bit of 1 in the narrowest of these types."""
    digits = [t.mantissa_bits + 1 for t in types if t.kind == "float" and t.mantissa_bits]
    return 2.0 ** -min(digits, default=dtypes.float32.mantissa_bits + 1)


def narrow_types(decisions: Mapping[str, Decision]) -> set[DType]:
    """The types narrower than float32 that decisions round to."""
    types = {t for d in decisions.values() for t in (d.operand, d.output, d.accumulate)}
    return {t for t in types if t.mantissa_bits < dtypes.float32.mantissa_bits}


def losses(
    tallies: Tallies, total: float, decisions: Mapping[str, Decision], flow: Dataflow
) -> list[Loss]:
    """The losses of all instructions, the gravest first."""
    unit = unit_of(narrow_types(decisions))
    least = math.log2(unit)
    found = []
    for name, t in tallies.items():
        given = t.given.share
        if given <= 1e-6 * total:
            continue
        rest = max(0.0, given - sum(f.share for f in t.taken.values()))
        inherited = (sum(f.logarithm for f in t.taken.values()) + rest * least) / given
        i = flow.instructions[name]
        kind = classify(i, t, decisions.get(name), unit)
        found.append(Loss(name, min(1.0, given / total), t.given.bits - inherited, t.given.bits, kind))
    return sorted(found, key=lambda x: -x.score)


def classify(i: Instruction, t: Tally, d: Decision | None, unit: float) -> str:
    """Of which kind an instruction's loss is."""
    whole = t.given.share
    most = _MOST * whole
    if t.overflowed >= most:
        return "overflow"
    if t.nan >= most:
        return "nan"
    if t.vanished >= most and t.largest < 1:
        return "underflow"
    if t.whole >= 0.5 * whole and t.largest > 1 / (2 * unit) * 0.99 and whole > 0:
        return "integers"
    narrow = d is not None and d.accumulate.mantissa_bits < dtypes.float32.mantissa_bits
    if narrow and i.opcode in ("reduce", "reduce-window", "dot", "convolution") and t.own >= most:
        return "long reduction"
    if whole > 0 and t.cancelled / whole >= _AMPLIFIED:
        return "cancellation"
    if t.vanished >= most:
        return "underflow"
    if i.opcode in _CHOOSES and sum(f.share for f in t.taken.values()) >= most:
        return "discontinuity"
    inherited = sum(f.share for f in t.taken.values())
    if i.opcode in _STEEP and inherited >= most:
        return "steep function"
    if i.opcode in ("dot", "convolution", "reduce", "reduce-window") and inherited >= most:
        return "cancellation"
    return "rounding"


def carried_sum(name: str, flow: Dataflow) -> bool:
    """Whether an addition's result comes back to it in the next trip of a loop."""
    i = flow.instructions[name]
    if i.opcode not in ("add", "subtract"):
        return False
    return any(
        name in (given := flow.producers(name, n)) and bool(given[name]) for n in range(len(i.operands))
    )


def named_instruction(name: str, tallies: Tallies, flow: Dataflow) -> str:
    """The instruction to name: for the move of a constant the constant."""
    for _ in range(8):
        i = flow.instructions[name]
        if i.opcode not in _MOVES or not i.operands:
            break
        given = flow.producers(name, 0)
        if len(given) != 1:
            break
        (source,) = given
        if flow.instructions[source].opcode == "constant":
            return source
        if flow.instructions[source].opcode not in _MOVES:
            break
        name = source
    return name


def integer_source(name: str, tallies: Tallies, flow: Dataflow, unit: float) -> str | None:
    """From where an index or a comparison has integers that a narrow type rounds."""
    upstream = flow.upstream(name, lambda n, k: share_of(tallies, n, k), 0.05)
    for found in sorted(upstream, key=lambda n: -upstream[n]):
        t = tallies.get(found)
        i = flow.instructions[found]
        if t is None or found == name or i.opcode in _CHOOSES - {"convert"}:
            continue
        if i.shape.arrays()[0].dtype.kind != "float":
            continue
        if t.whole >= 0.5 * t.given.share and t.largest > 1 / (2 * unit) * 0.99:
            return found
    return None


def share_of(tallies: Tallies, name: str, operand: int) -> float:
    """Of the error that passes an instruction the share that an operand gives."""
    t = tallies.get(name)
    if t is None or operand not in t.taken or t.given.share <= 0:
        return 0.0
    return t.taken[operand].share / t.given.share


def described(i: Instruction, x: Element | None) -> str:
    """The worst element in words."""
    if x is None:
        return ""
    place = f"[{', '.join(map(str, x.index))}]" if x.index else ""
    trip = f" in trip {x.trips}" if x.trips else ""
    given = ", ".join(f"{b:g}" + (f" ({a:g})" if a != b else "") for a, b in x.operands)
    made = f" from {given}" if given else ""
    return f"{i.name}{place}{trip} is {x.lowered:g}, in float32 {x.float32:g}{made}"


def is_computed(i: Instruction) -> bool:
    """Whether an instruction computes: data movement is not counted among what stays float32."""
    if i.opcode in ("constant", "parameter", "tuple", "get-tuple-element", "while", "conditional"):
        return False
    return i.opcode in ops.OPCODES and row(i).cast not in ("movement", "host")
