"""What the lists and rules of a policy say of each instruction, by its names: its category, and why."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neuronsim import dtypes, ops
from neuronsim.casting.conversions import travels_in_float32
from neuronsim.casting.decisions.castable import is_castable, is_product, own_type
from neuronsim.casting.decisions.float_graph import FloatGraph
from neuronsim.casting.decisions.reasons import Reason, by_policy, by_rule, stated
from neuronsim.casting.policies.calibration import Calibration
from neuronsim.casting.policies.operations import names_of, operation_name, unknown_names
from neuronsim.casting.policies.policy import Category, Policy, Rule
from neuronsim.casting.policies.rules import Match, RuleContext, match_rules
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, nearest, warn
from neuronsim.hlo.module import Computation, Instruction, Module, Shape, graph_computations
from neuronsim.hlo.recognition.composites import COMPOSITES, recognise

_KINDS = frozenset(operation_name(ops.OPS[pattern.kind]) for pattern in COMPOSITES)
# What is said of operations that no list names.
_UNLISTED: Mapping[Category, str] = {
    "always": "it lowers what its lists do not name",
    "follow": "what its lists do not name follows its inputs",
    "never": "it leaves what its lists do not name in float32",
    "clear": "what its lists do not name joins what is low beside it",
}


@dataclass(frozen=True)
class Choice:
    """What lists, rules and the target say of one instruction: its category and why, the low type, and
    the rule that states more of it. `name` is the one that the lists have for it.
    """

    names: tuple[str, ...]
    category: Category
    low: DType
    reason: Reason = Reason("")  # noqa: RUF009 (a text is frozen)
    name: str = ""
    rule: Rule | None = None
    obstacle: str = ""  # why no type changes where the policy would lower it

    @property
    def listed(self) -> bool:
        """Whether a list or a rule says its category."""
        return bool(self.name or (self.rule and self.rule.category))

    def output(self, i: Instruction, policy: Policy) -> DType:
        """The type of the result where it is low: what the rule states, a product's own, or the low."""
        if own_type(i) is not dtypes.float32:
            return own_type(i)
        product = policy.product_output if is_product(i) else None
        return (self.rule and self.rule.output) or product or self.low


def check_policy(policy: Policy) -> None:
    listed = Counter(name for names in policy.lists.values() for name in names)
    operations = {o for rule in policy.rules for o in rule.operation if not set(o) & set("*?[")}
    problems = unknown_names(sorted({*listed, *policy.float32_slots, *operations}))
    problems += [f"{name!r} is on {times} lists" for name, times in listed.items() if times > 1]
    problems += [
        f"the rule {rule.reason!r} lowers instructions to no type: give it a low, or the policy"
        for rule in policy.rules
        if rule.category in ("always", "follow", "clear") and not (rule.low or policy.low)
    ]
    if problems:
        raise InvalidArgument(f"the policy {policy.name!r} cannot decide: {'; '.join(problems)}")


def find_choices(
    module: Module, graph: FloatGraph, policy: Policy, calibration: Calibration | None
) -> dict[str, Choice]:
    """The choices of the instructions that a plan may decide."""
    composites = _composites(module) if _asks_for_composites(policy) else {}
    names = {
        i.name: names_of(i, module.by_name, composites.get(i.name, ())) for _, i in graph.instructions
    }
    matches: Mapping[str, Match] = {}
    if policy.rules:
        every = {
            i.name: names.get(i.name, (i.opcode,))
            for c in graph_computations(module)
            for i in c.instructions
        }
        context = RuleContext(module, every, policy.low, calibration)
        matches, unmatched = match_rules(policy.rules, context, include_wins=policy.include_wins)
        for rule in unmatched:
            if rule.operation or rule.name or rule.regex or rule.scope:
                warn(f"{policy.name}: {_unmatched(rule, context)}", UserWarning)
    choices = {}
    for c, i in graph.instructions:
        if is_castable(c, i):
            choices[i.name] = _choice(c, i, names[i.name], policy, matches.get(i.name))
    return choices


def _unmatched(rule: Rule, context: RuleContext) -> str:
    """What a rule that matches nothing asks for, with the nearest name of each pattern."""
    operations = {name for names in context.names.values() for name in names}
    scopes = {i.metadata.op_name for i in context.instructions.values()}
    asked = [
        f"{key} {pattern!r}" + ("" if fnmatch.filter(known, pattern) else nearest(pattern, known))
        for key, patterns, known in (
            ("operation", rule.operation, operations),
            ("name", rule.name, set(context.instructions)),
            ("scope", (rule.scope,) if rule.scope else (), scopes),
        )
        for pattern in patterns
    ]
    asked += [f"regex {rule.regex!r}"] if rule.regex else []
    return f"no instruction is what the rule {rule.reason!r} is about: {', '.join(asked)}"


def _asks_for_composites(policy: Policy) -> bool:
    """Whether what an instruction is part of can decide anything: to find it takes time."""
    patterns = [o for rule in policy.rules for o in rule.operation]
    listed = (name for names in policy.lists.values() for name in names)
    return bool(patterns) or policy.propagate != "none" or not _KINDS.isdisjoint(listed)


def _composites(module: Module) -> dict[str, tuple[str, ...]]:
    """The kinds of the composites that each instruction is a member of, the largest first."""
    found: dict[str, list[tuple[int, str]]] = {}
    for c in graph_computations(module):
        for composite in recognise(c, module):
            for member in composite.members:
                found.setdefault(member, []).append((-len(composite.members), composite.kind))
    return {name: tuple(kind for _, kind in sorted(kinds)) for name, kinds in found.items()}


def _choice(
    computation: Computation,
    i: Instruction,
    names: tuple[str, ...],
    policy: Policy,
    match: Match | None,
) -> Choice:
    category, name = _listed_as(names, policy)
    rule = match.rule if match else None
    low = (rule and rule.low) or policy.low or dtypes.float32
    choice = Choice(names, category, low, name=name, rule=rule)
    obstacle = _obstacle(computation, i, choice, policy)
    if name in policy.reasons:
        rounded = _rounded(computation, i, choice, policy)
        reason = stated(policy.reasons[name], policy.name, low=low.name, rounded=rounded)
    else:
        reason = by_policy(policy.name, f"lists {name} as {category}" if name else _UNLISTED[category])
    if match and (match.rule.category is not None or match.rule.low is dtypes.float32):
        category, reason = match.rule.category or category, by_rule(match.rule.reason, match.fact)
    elif match:
        reason = reason.then(by_rule(match.rule.reason, match.fact))
    low = dtypes.float32 if obstacle else low
    return dataclasses.replace(choice, category=category, low=low, reason=reason, obstacle=obstacle)


def _listed_as(names: Sequence[str], policy: Policy) -> tuple[Category, str]:
    """What the lists say of an instruction with these names, and the name that they have for it."""
    for name in names:
        for category, listed in policy.lists.items():
            if name in listed:
                return category, name
    return policy.default, ""


def _obstacle(computation: Computation, i: Instruction, choice: Choice, policy: Policy) -> str:
    """Why no type of an instruction changes where it is low; empty where one does."""
    if choice.low is dtypes.float32:
        return "no lower type is given"
    if i.opcode == "while" and travels_in_float32(choice.low):
        return f"a loop carries types of HLO, and {choice.low.name} is none"
    if is_product(i):
        operands, results = _float32(computation, i, choice, policy)
        if not operands and not (results and choice.output(i, policy) is not dtypes.float32):
            return "it reads no float32, and its result keeps its type"
    return ""


def _rounded(computation: Computation, i: Instruction, choice: Choice, policy: Policy) -> str:
    """Which float32 values of an instruction are rounded to its low type."""
    operands, results = _float32(computation, i, choice, policy)
    results = results and choice.output(i, policy) is choice.low
    return " and ".join(["operands"] * operands + ["result"] * results) or "nothing"


def _float32(
    computation: Computation, i: Instruction, choice: Choice, policy: Policy
) -> tuple[bool, bool]:
    """Whether it reads float32, and whether it gives it, elsewhere than where that stays."""
    shapes = ([computation.by_name[o].shape for o in i.operands], i.shape.arrays())
    reads_it, gives_it = (
        any(
            isinstance(s, Shape) and s.dtype is dtypes.float32 and n not in kept
            for n, s in enumerate(found)
        )
        for found, kept in zip(shapes, slots_of(choice, policy), strict=True)
    )
    return reads_it, gives_it


def report_unlisted(choices: Mapping[str, Choice], policy: Policy) -> None:
    """What TVM's missing operations do: nothing, a warning, or an error."""
    if policy.unlisted == "ignore":
        return
    counts = Counter(c.names[0] for c in choices.values() if not c.listed and c.names[0] != "constant")
    if not counts:
        return
    told = ", ".join(f"{name} ({times})" for name, times in sorted(counts.items()))
    text = f"{policy.name} lists these operations nowhere ({_UNLISTED[policy.default]}): {told}"
    if policy.unlisted == "error":
        raise InvalidArgument(f"{text}. List them, or set unlisted to warn or ignore")
    warn(text, UserWarning)


def slots_of(choice: Choice | None, policy: Policy) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The numbers of the operands and results that stay float32."""
    if choice is not None:
        for name in choice.names:
            if name in policy.float32_slots:
                return policy.float32_slots[name]
    return (), ()
