"""Causes: the instructions at which significant bits are lost, and of which kind the loss is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from neuronsim import dtypes, ops
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.lint.narrow_types import overflows
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Instruction
from neuronsim.hlo.opcodes import row
from neuronsim.tuning.blame.flow import Element, Tallies, Tally, unit_of
from neuronsim.tuning.blame.graph import Dataflow

# Of the error that passes an instruction: from this share on a kind of loss is its class.
_MOST = 0.3
_LEAST_OF_CHAIN = 0.4  # bits that each instruction of a chain loses
_STEPS = 16  # equal ones that are a recurrence
_OF_STATES = frozenset({"rounding", "cancellation", "long reduction", "steep function"})
_AMPLIFIED = 2.0  # bits that a difference loses for it to be a cancellation
# Functions whose result is off by more, relatively, than their argument.
_STEEP = frozenset(
    {"exponential", "exponential-minus-one", "sine", "cosine", "tan", "power", "log", "log-plus-one"}
    | {"sqrt", "rsqrt", "tanh", "logistic", "atan2", "remainder", "floor", "ceil", "divide"}
)
_CHOOSES = frozenset({"gather", "dynamic-slice", "compare", "select", "convert", "floor", "ceil"})
_CHOOSES |= {
    "topk",
    "round-nearest-even",
    "round-nearest-afz",
    "sort",
    "scatter",
    "dynamic-update-slice",
}
_COUNTS = frozenset({"convert", "floor", "ceil", "round-nearest-even", "round-nearest-afz"})
_MOVES = frozenset({"broadcast", "reshape", "transpose", "copy", "convert", "slice", "bitcast"})


QUANTIZED = "scale too coarse"  # until the values of the operand say more


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
    together: frozenset[str] = frozenset()  # of a recurrence: what stays float32 with it

    @property
    def score(self) -> float:
        """The bits, weighted by the share."""
        return self.share * self.bits


def narrow_types(decisions: Mapping[str, Decision]) -> set[DType]:
    """The types narrower than float32 that decisions round to, and those that they quantize to."""
    types = {t for d in decisions.values() for t in (d.operand, d.output, d.accumulate)}
    found = {t for t in types if t.kind == "float" and t.mantissa_bits < dtypes.float32.mantissa_bits}
    given = (q for d in decisions.values() for q in (*d.quantized_operands, d.quantized_result))
    return found | {q.type for q in given if q is not None}


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
        inherited = sum(f.logarithm for f in t.taken.values()) + rest * least
        share = min(1.0, given / total)  # what passes in each trip of a loop counts as often
        bits = (t.given.logarithm - inherited) / total / share
        i = flow.instructions[name]
        kind = classify(i, t, decisions.get(name), unit, is_choice=is_choice(i, flow))
        if kind in ("rounding", "integers", "cancellation") and carried_sum(name, flow):
            kind = "long reduction"
        found.append(Loss(name, share, bits, t.given.bits, kind))
    return sorted(found, key=lambda x: -x.score)


def recurrences(found: Sequence[Loss], flow: Dataflow) -> list[Loss]:
    """Losses of recurrences: what gives a state back to itself, by a loop or in many equal steps, loses
    a little each time. Each is that of its gravest instruction, with the bits of all.
    """
    by_name = {x.name: x for x in found}
    result = []
    for members in (*flow.cycles, *_equal_steps(flow)):
        own = [by_name[n] for n in members if n in by_name]
        gravest = max(own, key=lambda x: x.score, default=None)
        if gravest is None or gravest.kind not in _OF_STATES or gravest.score <= 0:
            continue
        rounds = sum(is_computed(flow.instructions[n]) for n in members)
        if gravest.kind == "long reduction" and rounds == 1:
            continue
        bits = sum(max(0.0, x.score) for x in own) / gravest.share
        together = members | flow.constants_of(members)  # whose rounding each step repeats
        result.append(replace(gravest, bits=bits, kind="recurrence", together=together))
    return sorted(result, key=lambda x: -x.score)


def _equal_steps(flow: Dataflow) -> list[frozenset[str]]:
    """Elementwise instructions of which there are many alike, a way through all of which leads on: the
    steps of a loop that a framework has written out.
    """
    kinds: dict[tuple[object, ...], list[str]] = {}
    for name, i in flow.instructions.items():
        if is_computed(i) and ops.is_elementwise(row(i)):
            kinds.setdefault((i.opcode, i.shape, stem_of(name)), []).append(name)
    repeated = {n: len(names) for names in kinds.values() if len(names) >= _STEPS for n in names}
    length: dict[str, int] = {}
    for n in (n for n in flow.instructions if n in repeated):
        operands = range(len(flow.instructions[n].operands))
        given = {p for k in operands for p in flow.producers(n, k)}
        length[n] = 1 + max((length[p] for p in given if p in length), default=0)
    # One in each step, at least, waits for the step before.
    enough = [n for n, long in length.items() if long >= _STEPS]
    return [frozenset(repeated)] if enough else []


def stem_of(name: str) -> str:
    """An instruction's name without the number that tells it from others alike.

    >>> stem_of("multiply.12"), stem_of("add_3"), stem_of("multiply")
    ('multiply', 'add', 'multiply')
    """
    return name.rstrip("0123456789").rstrip("._")


def powers(found: Sequence[Loss], flow: Dataflow) -> list[Loss]:
    """Losses of chains: of instructions that give each other what they lose a little of each, as the
    multiplications of a high power do, the last one's with the bits of all.
    """
    lossy = {x.name: x for x in found if x.score >= _LEAST_OF_CHAIN}
    bits: dict[str, float] = {}
    for name in (n for n in flow.instructions if n in lossy):
        given = {
            p for k in range(len(flow.instructions[name].operands)) for p in flow.producers(name, k)
        }
        bits[name] = lossy[name].bits + max((bits[p] for p in given if p in bits), default=0.0)
    chains = [replace(lossy[n], bits=b, kind="steep function") for n, b in bits.items()]
    return sorted(chains, key=lambda x: -x.score)


def is_choice(i: Instruction, flow: Dataflow) -> bool:
    """Whether an instruction makes of floats what is none: an index (argmax, top-k), a truth value."""
    given = (s for o in i.operands for s in flow.instructions[o].shape.arrays())
    of_floats = any(s.dtype.kind == "float" for s in given)
    return of_floats and any(s.dtype.kind not in ("float", "complex") for s in i.shape.arrays())


def classify(
    i: Instruction, t: Tally, d: Decision | None, unit: float, *, is_choice: bool = False
) -> str:
    """Of which kind an instruction's loss is."""
    whole = t.given.share
    most = _MOST * whole
    if d is not None and any(d.quantized_operands) and sum(t.reading.values()) >= most:
        return QUANTIZED
    own_types = narrow_types({i.name: d}) if d is not None else set()
    # Inf that an operand has, or a divisor of 0, is of no value too large for a type.
    if t.overflowed >= most and any(overflows(t.largest, x) for x in own_types if x.exponent_bits):
        return "overflow"
    if t.nan >= most:
        return "nan"
    if t.vanished >= most:
        return "underflow"
    inherited = sum(f.share for f in t.taken.values())
    if is_choice and i.opcode not in _CHOOSES and inherited >= most:  # whose integers are none of sums
        return "discontinuity"
    if t.whole >= 0.5 * whole and t.largest > 1 / (2 * unit) * 0.99 and whole > 0:
        return "integers"
    narrow = d is not None and d.accumulate.mantissa_bits < dtypes.float32.mantissa_bits
    if narrow and i.opcode in ("reduce", "reduce-window", "dot", "convolution") and t.own >= most:
        return "long reduction"
    if whole > 0 and t.cancelled / whole >= _AMPLIFIED:
        return "cancellation"
    if i.opcode in _CHOOSES and inherited >= most:
        return "discontinuity"
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
    for n in range(len(i.operands)):
        for given, loops in flow.producers(name, n).items():
            scaled = flow.instructions[given]
            factors = scaled.opcode in ("multiply", "subtract") and not loops
            again = [flow.producers(given, k) for k in range(len(scaled.operands))] if factors else []
            if (given == name and loops) or any(name in a and a[name] for a in again):
                return True
    return False


def named_instruction(name: str, flow: Dataflow) -> str:
    """The instruction to name: for what only moves a value what gives it, but for what is given."""
    i = flow.instructions[name]
    while i.opcode in _MOVES and i.operands:
        given = flow.producers(i.name, 0)
        if len(given) != 1:
            break
        source = flow.instructions[next(iter(given))]
        if source.opcode == "parameter":
            break
        i = source
    return i.name


def integer_source(name: str, tallies: Tallies, flow: Dataflow, unit: float) -> str | None:
    """From where an index or a comparison has integers that a narrow type rounds."""
    upstream = flow.upstream(name, lambda n, k: share_of(tallies, n, k), 0.05)
    for found in sorted(upstream, key=lambda n: -upstream[n]):
        t = tallies.get(found)
        i = flow.instructions[found]
        if t is None or found == name or i.opcode in _CHOOSES - _COUNTS:
            continue
        if i.shape.arrays()[0].dtype.kind != "float" and i.opcode != "convert":
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
