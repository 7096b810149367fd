"""Which instructions the rules of a policy match, and the fact that made each match.

>>> from neuronsim import dtypes
>>> from neuronsim.hlo.module import Computation, Shape
>>> x = Instruction("x.1", "parameter", Shape(dtypes.float32, (2,)), (), {"number": 0})
>>> y = Instruction("y.2", "exponential", Shape(dtypes.float32, (2,)), ("x.1",))
>>> module = Module("m", "main", (Computation("main", (x, y), "y.2"),))
>>> context = RuleContext(module, {"x.1": ["parameter"], "y.2": ["exponential", "compute"]})
>>> rules = (Rule("exp wants range", "never", operation=("exp*",)), Rule("dots", name=("dot*",)))
>>> matches, unmatched = match_rules(rules, context)
>>> matches["y.2"].fact, [r.reason for r in unmatched]
('it is exponential', ['dots'])
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache

from neuronsim import ops
from neuronsim.casting.policies.calibration import Calibration, share_rounded_to_zero
from neuronsim.casting.policies.policy import Rule
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument
from neuronsim.hlo.module import Instruction, Module, graph_computations, simple_reducer

# The conditions on what values are in a float32 run.
CALIBRATED = ("above", "underflow_above", "cancellation_above")
# What has its first operand's values in another place, shape or type.
_HANDS_ON = frozenset(
    {"broadcast", "reshape", "transpose", "reverse", "slice", "copy", "bitcast", "convert"}
)
# Reducers that choose an element and sum nothing.
_CHOOSES = frozenset({"maximum", "minimum"})


@dataclass(frozen=True)
class RuleContext:
    """What rules look at: a module after `inline_calls`, the names that policies have for each of its
    instructions (`operations.names_of`), the policy's low type, and a float32 run if there was one.
    """

    module: Module
    names: Mapping[str, Sequence[str]]
    low: DType | None = None
    calibration: Calibration | None = None

    @cached_property
    def instructions(self) -> Mapping[str, Instruction]:
        """What is executed instruction by instruction, by name, in order."""
        return {i.name: i for c in graph_computations(self.module) for i in c.instructions}

    @cached_property
    def bodies(self) -> frozenset[str]:
        """The computations that loops repeat."""
        return frozenset(self.loops)

    @cached_property
    def loops(self) -> Mapping[str, Sequence[tuple[str, Instruction]]]:
        """By the computation that they repeat, the loops, each with the computation where it stands."""
        found: dict[str, list[tuple[str, Instruction]]] = {}
        for c in graph_computations(self.module):
            for i in c.instructions:
                if i.opcode == "while":
                    found.setdefault(i.called[0], []).append((c.name, i))
        return found

    @cached_property
    def constants(self) -> Mapping[str, float]:
        """The largest finite magnitudes of float constants, and of what only hands them on."""
        found: dict[str, float] = {}
        for i in self.instructions.values():
            if i.opcode == "constant":
                literal = i.attributes["literal"]
                s = ops.statistics(literal) if isinstance(literal, ops.Bits) else None
                if s is not None:
                    found[i.name] = s.largest
            elif i.opcode in _HANDS_ON and i.operands[0] in found:
                found[i.name] = found[i.operands[0]]
        return found

    def values(self, name: str) -> ops.Statistics | None:
        """What an instruction's values are in a float32 run; None if it has no floats, or did not run.

        Raises InvalidArgument without a calibration.
        """
        if self.calibration is None:
            raise InvalidArgument(_NO_CALIBRATION)
        return self.calibration.values.get(name)


_NO_CALIBRATION = (
    "what values are in a float32 run is not known: give a calibration (--calibration), which "
    "`neuronsim calibrate MODEL --data DATA --output FILE` or neuronsim.calibrate(model, data) makes"
)


@dataclass(frozen=True)
class Match:
    """The rule that decides an instruction, and why it matches."""

    rule: Rule
    fact: str


def match_rules(
    rules: Sequence[Rule], context: RuleContext, *, include_wins: bool = False
) -> tuple[dict[str, Match], tuple[Rule, ...]]:
    """For each instruction that rules match, the last of them, with `include_wins` the last whose
    category is "always" before others; and the rules that match none.

    Raises InvalidArgument, with all problems, for a regex that is none and for rules that need a
    calibration if there is none. `Calibration.check` says whether it is the module's.
    """
    check_rules(rules, context.calibration)
    found: dict[str, Match] = {}
    unmatched = []
    for rule in sorted(rules, key=lambda r: include_wins and r.category == "always"):
        facts = {n: fact for n, i in context.instructions.items() if (fact := match(rule, i, context))}
        found |= {n: Match(rule, fact) for n, fact in facts.items()}
        if not facts:
            unmatched.append(rule)
    return found, tuple(unmatched)


def check_rules(rules: Sequence[Rule], calibration: Calibration | None) -> None:
    """Raises InvalidArgument, with all problems, for rules that cannot be decided."""
    problems = []
    for number, rule in enumerate(rules, start=1):
        where = f"rule {number} ({rule.reason})"
        try:
            compile_regex(rule.regex)
        except InvalidArgument as error:
            problems.append(f"{where}: regex is {rule.regex!r}, not {error}")
        needs = compared(rule)
        if needs and calibration is None:
            problems.append(f"{where} has {', '.join(needs)}; {_NO_CALIBRATION}")
    if problems:
        raise InvalidArgument("; ".join(problems))


def compared(rule: Rule) -> list[str]:
    """The conditions of a rule that are about values in a float32 run."""
    return [n for n in CALIBRATED if getattr(rule, n) is not None]


@lru_cache
def compile_regex(regex: str) -> re.Pattern[str]:
    """The pattern; raises InvalidArgument where it is none."""
    try:
        return re.compile(regex)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidArgument(f"a regular expression: {error}") from error


def match(rule: Rule, i: Instruction, context: RuleContext) -> str | None:
    """Why a rule matches an instruction, or None: all conditions that it states must hold.

    Raises InvalidArgument as `check_rules` does.
    """
    facts = []
    for name, condition in _CONDITIONS.items():
        asked = getattr(rule, name)
        if asked is None or (isinstance(asked, str | tuple) and not asked):
            continue
        fact = condition(rule, i, context)
        if fact is None:
            return None
        facts.append(fact)
    return "; ".join(facts) or "it is any instruction"


def _operation(rule: Rule, i: Instruction, context: RuleContext) -> str | None:
    names = context.names[i.name]
    found = next((n for n in names for p in rule.operation if fnmatchcase(n, p)), None)
    return found and f"it is {found}"


def _name(rule: Rule, i: Instruction, context: RuleContext) -> str | None:
    found = next((p for p in rule.name if fnmatchcase(i.name, p)), None)
    return found and f"it is named {found}"


def _regex(rule: Rule, i: Instruction, context: RuleContext) -> str | None:
    return f"its name matches {rule.regex}" if compile_regex(rule.regex).fullmatch(i.name) else None


def _scope(rule: Rule, i: Instruction, context: RuleContext) -> str | None:
    op_name = i.metadata.op_name
    return f"it comes from {op_name}" if fnmatchcase(op_name, rule.scope) else None


def _above(rule: Rule, i: Instruction, context: RuleContext) -> str | None:
    assert rule.above is not None
    largest = {n: _largest_computed(n, context) for n in (*_data_operands(i), i.name)}
    name = max(largest, key=largest.__getitem__)
    return _exceeds(f"the values of {name} are up to", largest[name], rule.above)


def _constant_above(rule: Rule, i: Instruction, context: RuleContext) -> str | None:
    assert rule.constant_above is not None
    largest = {n: context.constants[n] for n in (*_data_operands(i), i.name) if n in context.constants}
    name = max(largest, key=largest.__getitem__, default="")
    return _exceeds(f"the constant {name} is up to", largest.get(name, 0.0), rule.constant_above)


def _depth_above(rule: Rule, i: Instruction, context: RuleContext) -> str | None:
    assert rule.depth_above is not None
    return _exceeds("elements in each sum:", reduction_depth(i, context), rule.depth_above)


def _underflow_above(rule: Rule, i: Instruction, context: RuleContext) -> str | None:
    assert rule.underflow_above is not None
    low, s = rule.low or context.low, context.values(i.name)
    if low is None or s is None:
        return None
    share = share_rounded_to_zero(s, low)
    return _exceeds(f"{low.name} makes zero a share of", share, rule.underflow_above)


def _cancellation_above(rule: Rule, i: Instruction, context: RuleContext) -> str | None:
    assert rule.cancellation_above is not None
    if i.opcode not in ("add", "subtract"):
        return None
    operands = max(_largest(context.values(n)) for n in i.operands)
    if not 0 < operands < math.inf:
        return None
    result = _largest(context.values(i.name))
    factor = operands / result if result else math.inf
    return _exceeds("the operands are larger than the result by", factor, rule.cancellation_above)


_CONDITIONS: Mapping[str, Callable[[Rule, Instruction, RuleContext], str | None]] = {
    "operation": _operation,
    "name": _name,
    "regex": _regex,
    "scope": _scope,
    "above": _above,
    "constant_above": _constant_above,
    "depth_above": _depth_above,
    "underflow_above": _underflow_above,
    "cancellation_above": _cancellation_above,
}


def _exceeds(what: str, measured: float, bound: float) -> str | None:
    """The fact that a measure is above its bound."""
    return f"{what} {measured:g} > {bound:g}" if measured > bound else None


def _largest(s: ops.Statistics | None) -> float:
    """The largest magnitude, Inf included."""
    if s is None:
        return 0.0
    return math.inf if s.infinite else s.largest


def _largest_computed(name: str, context: RuleContext) -> float:
    """The largest magnitude, without the infinities of a constant: every type with Inf holds these."""
    s = context.values(name)
    return s.largest if s is not None and name in context.constants else _largest(s)


def _data_operands(i: Instruction) -> Sequence[str]:
    """Its operands without the initial values of a reduction: a maximum starts at -Inf."""
    match i.opcode:
        case "reduce" | "reduce-window":
            return i.operands[: len(i.operands) // 2]
        case "select-and-scatter":
            return i.operands[:2]
    return i.operands


def reduction_depth(i: Instruction, context: RuleContext) -> int:
    """How many elements one result of an instruction sums; 0 if it sums none, as a maximum does.

    A window counts as a whole, also where a part of it lies in the padding.
    """
    match i.opcode:
        case "dot":
            dims = _operand_dims(i, 0, context)
            return math.prod(dims[n] for n in i.attributes["dot_dimensions"].lhs_contracting)
        case "convolution":
            kernel = _operand_dims(i, 1, context)
            features: int = kernel[i.attributes["dimension_numbers"].kernel_input_feature]
            return _window_size(i) * features  # of one group
        case "reduce" | "reduce-window" | "select-and-scatter":
            reducer = simple_reducer(context.module.by_name[i.called[-1]])
            if reducer in _CHOOSES:
                return 0
            if i.opcode == "reduce":
                dims = _operand_dims(i, 0, context)
                return math.prod(dims[n] for n in i.attributes["dimensions"])
            return _window_size(i)
        case "batch-norm-training" | "batch-norm-grad":
            channel = i.attributes["feature_index"]
            dims = _operand_dims(i, 0, context)
            return math.prod(n for axis, n in enumerate(dims) if axis != channel)
    return 0


def _operand_dims(i: Instruction, number: int, context: RuleContext) -> tuple[int, ...]:
    return context.instructions[i.operands[number]].array.dims


def _window_size(i: Instruction) -> int:
    window: tuple[ops.WindowDimension, ...] = i.attributes["window"]
    return math.prod(d.size for d in window)
