"""What a policy decides for the instructions of a module: from their names by its lists and rules to
categories, from these by its propagation to low types, and by a target's engines to decisions.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import itertools
import sys
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neuronsim import dtypes, ops
from neuronsim.casting.conversions import travels_in_float32
from neuronsim.casting.decisions.castable import (
    is_castable,
    is_product,
    own_type,
    reads,
)
from neuronsim.casting.decisions.float_graph import FloatGraph, float_graph
from neuronsim.casting.decisions.loops import loops_of_fixed_types
from neuronsim.casting.decisions.propagation import KEPT, Node, Spread, spread
from neuronsim.casting.decisions.reasons import Reason, by_policy, by_rule, it, stated, told
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.policies.calibration import Calibration
from neuronsim.casting.policies.operations import names_of, operation_name, unknown_names
from neuronsim.casting.policies.policy import Category, Policy, Rule
from neuronsim.casting.policies.rules import Match, RuleContext, match_rules
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, nearest
from neuronsim.hlo.module import Computation, Instruction, Module, Shape, graph_computations
from neuronsim.hlo.opcodes import row
from neuronsim.hlo.recognition.composites import COMPOSITES, recognise
from neuronsim.targets import Target

# What repeats the elements of a constant or parameter: frameworks broadcast without saying so.
_REPEATS = frozenset({"broadcast", "reshape"})
# Reducers whose accumulate type a plan states (R1).
_SUMS = frozenset(
    f"{reduce}-{reducer}"
    for reduce, reducer in itertools.product(("reduce", "reduce-window"), ("add", "multiply"))
)
_KINDS = frozenset(operation_name(ops.OPS[pattern.kind]) for pattern in COMPOSITES)
# What is said of operations that no list names.
_UNLISTED: Mapping[Category, str] = {
    "always": "it lowers what its lists do not name",
    "follow": "what its lists do not name follows its inputs",
    "never": "it leaves what its lists do not name in float32",
    "clear": "what its lists do not name joins what is low beside it",
}
# What takes a scale, an offset or statistics beside its input.
_NORMS = frozenset({"batch_norm", "layer_norm", "rms_norm"})
# What computes in place of a type that an engine lacks, the first that it has.
_SUBSTITUTES = (dtypes.float32, dtypes.bfloat16, dtypes.float16)


@dataclass(frozen=True)
class _Choice:
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


def decide(
    module: Module, policy: Policy, target: Target | None, calibration: Calibration | None
) -> tuple[dict[str, Decision], dict[str, Reason]]:
    """The decisions of a policy by instruction name, for a module after `inline_calls`, where each
    type is one that the target's engine has; without a target every type is. Formats that no device
    has count as present: a plan in such says what they would do. And why others keep their types, where
    a list or rule names them.

    Raises InvalidArgument with all problems of the policy, or the rules' (`rules.match_rules`).
    """
    _check(policy)
    graphs = graph_computations(module)
    graph = float_graph(graphs)
    choices = _choices(module, graph, policy, calibration)
    _report_unlisted(choices, policy)
    fixed = _fixed_loops(graphs, choices)
    choices = {n: c for n, c in choices.items() if n not in fixed}
    choices, found, lacks = _on_target(graph, choices, policy, target)
    decisions = {}
    for i in (i for c in graphs for i in c.instructions):
        if i.name in found or i.name in lacks:
            decisions[i.name] = _decision(i, choices[i.name], policy, found.get(i.name), lacks)
    nodes = {n.name: n for n in _nodes(graph, choices, policy)}
    low = {n: nodes[n].gives or nodes[n].low for n in found}
    kept = {
        n: _why_kept(c, nodes[n], low, policy)
        for n, c in choices.items()
        if c.listed and n not in decisions
    }
    if policy.relayout is not None:
        for i in (i for c in graphs for i in c.instructions if _is_float_transpose(i)):
            if _moves_minor_most(i):
                decisions[i.name] = _relaid(i, decisions.get(i.name), policy)
                kept.pop(i.name, None)
            elif i.name in decisions:
                d = decisions[i.name]
                reason = told(d.reason, policy.name).then(_NO_RELAYOUT)
                decisions[i.name] = dataclasses.replace(d, reason=reason)
            else:
                why = kept.get(i.name)
                kept[i.name] = why.then(_NO_RELAYOUT) if why else Reason(_NO_RELAYOUT)
    return decisions, kept


def _check(policy: Policy) -> None:
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


# ---- categories ----------------------------------------------------------------------------------


def _choices(
    module: Module, graph: FloatGraph, policy: Policy, calibration: Calibration | None
) -> dict[str, _Choice]:
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
                _warn(f"{policy.name}: {_unmatched(rule, context)}")
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


def _warn(text: str) -> None:
    """A warning at the line outside of this package that asked for the plan."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith("neuronsim."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


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
) -> _Choice:
    category, name = _listed_as(names, policy)
    rule = match.rule if match else None
    low = (rule and rule.low) or policy.low or dtypes.float32
    choice = _Choice(names, category, low, name=name, rule=rule)
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


def _obstacle(computation: Computation, i: Instruction, choice: _Choice, policy: Policy) -> str:
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


def _rounded(computation: Computation, i: Instruction, choice: _Choice, policy: Policy) -> str:
    """Which float32 values of an instruction are rounded to its low type."""
    operands, results = _float32(computation, i, choice, policy)
    results = results and choice.output(i, policy) is choice.low
    return " and ".join(["operands"] * operands + ["result"] * results) or "nothing"


def _float32(
    computation: Computation, i: Instruction, choice: _Choice, policy: Policy
) -> tuple[bool, bool]:
    """Whether it reads float32, and whether it gives it, elsewhere than where that stays."""
    shapes = ([computation.by_name[o].shape for o in i.operands], i.shape.arrays())
    reads_it, gives_it = (
        any(
            isinstance(s, Shape) and s.dtype is dtypes.float32 and n not in kept
            for n, s in enumerate(found)
        )
        for found, kept in zip(shapes, _slots(choice, policy), strict=True)
    )
    return reads_it, gives_it


def _report_unlisted(choices: Mapping[str, _Choice], policy: Policy) -> None:
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
    _warn(text)


def _fixed_loops(graphs: Sequence[Computation], choices: Mapping[str, _Choice]) -> set[str]:
    loops = [i.name for c in graphs for i in c.instructions if i.opcode == "while"]
    surely = {n: choices[n].low for n in loops if n in choices and choices[n].category == "always"}
    return loops_of_fixed_types(graphs, surely)


# ---- low types -----------------------------------------------------------------------------------


def _on_target(
    graph: FloatGraph, choices: Mapping[str, _Choice], policy: Policy, target: Target | None
) -> tuple[dict[str, _Choice], Spread, dict[str, str]]:
    """The choices, what is low and why, and what a target lacks, by the instructions that therefore
    have another type: their neighbours then follow that one.
    """
    chosen = dict(choices)
    lacks: dict[str, str] = {}
    while True:
        nodes = _nodes(graph, chosen, policy)
        found = spread(nodes, policy.propagate, sources_follow=policy.sources_follow)
        new = {}
        for c, i in graph.instructions if target is not None else ():
            assert target is not None
            if i.name in chosen and i.name not in lacks:
                types = _types(c, i, chosen[i.name], policy, low=i.name in found)
                lacking = next((t for t in types if not _has(target, i, t)), None)
                have = next((t for t in _SUBSTITUTES if _has(target, i, t)), None)
                if lacking is not None and have is not None:
                    new[i.name] = have
                    lacks[i.name] = _lack(target, i, lacking, have)
        if not new:
            return chosen, found, lacks
        for name, have in new.items():
            # What the policy leaves alone gives float32 still: a product's sums are (M2, M4).
            rule = None if name in found else Rule(lacks[name], output=dtypes.float32)
            chosen[name] = dataclasses.replace(chosen[name], category="always", low=have, rule=rule)


def _types(
    computation: Computation, i: Instruction, choice: _Choice, policy: Policy, *, low: bool
) -> list[DType]:
    """The types that its engine must have: of float32 operands, and of a float32 result other than a
    product's sums.
    """
    operand = choice.low if low else dtypes.float32
    output = choice.output(i, policy) if low else dtypes.float32
    has_row = i.opcode in ops.OPCODES
    read = [operand for s in reads(computation, i) if s.dtype is dtypes.float32][:1]
    given = own_type(i) is dtypes.float32 and not (is_product(i) and output is dtypes.float32)
    return (read if has_row else [operand]) + [output] * given


def _has(target: Target, i: Instruction, dtype: DType) -> bool:
    """Whether the engine that runs an instruction computes with a type."""
    if dtype.is_open:
        return True
    return target.computes_with(dtype, row(i).engine if i.opcode in ops.OPCODES else "", i.opcode)


def _lack(target: Target, i: Instruction, lacking: DType, have: DType) -> str:
    engine = row(i).engine if i.opcode in ops.OPCODES else "none"
    where = f"the {engine} engine" if engine != "none" else "the device"
    return f"{target.name}: {where} has no {lacking.name} for {i.opcode}, so it runs in {have.name}"


def _nodes(graph: FloatGraph, choices: Mapping[str, _Choice], policy: Policy) -> list[Node]:
    """The float graph as propagation takes it. Two kinds of inputs decide no type: numbers of the
    program (scalar constants), and the terms that frameworks hand to an operation: the bias of a
    product; the scale, offset and statistics of a norm.
    """
    numbers: set[str] = set()
    sources: set[str] = set()
    biases: set[str] = set()  # sources that can be one: constants, and what is broadcast
    derived: set[str] = set()  # sources, and what is computed from these without a product
    products: set[str] = set()
    nodes = []
    for _, i in graph.instructions:
        choice = choices.get(i.name)
        category: Category = choice.category if choice else "never"
        read = graph.reads[i.name]
        made_by = {e.producer for e in read}
        source = i.opcode == "parameter"
        if category != "always":
            source |= i.opcode == "constant" or (
                i.opcode in _REPEATS and not sources.isdisjoint(made_by)
            )
        if source:
            sources.add(i.name)
            if i.opcode != "parameter":
                biases.add(i.name)
            is_number = i.opcode == "constant" and isinstance(i.shape, Shape) and not i.shape.dims
            if is_number or not numbers.isdisjoint(made_by):
                numbers.add(i.name)
        if is_product(i):
            products.add(i.name)
        elif source or (made_by and made_by <= derived):
            derived.add(i.name)
        terms = numbers
        if choice is not None and not _NORMS.isdisjoint(choice.names):
            terms = derived
        elif i.opcode == "add" and not products.isdisjoint(made_by):
            terms = biases
        kept = _slots(choice, policy)[0]
        nodes.append(
            Node(
                i.name,
                category,
                choice.low if choice else dtypes.float32,
                gives=choice.output(i, policy) if choice and i.opcode in ops.OPCODES else None,
                inputs=tuple(
                    KEPT if e.result in _slots(choices.get(e.producer), policy)[1] else e.producer
                    for e in read
                    if e.operand not in kept and e.producer not in terms
                ),
                carries=tuple(e.producer for e in graph.carries.get(i.name, ())),
                listed=choice is not None and choice.listed,
                source=source,
                convert=i.opcode == "convert" and own_type(i) is dtypes.float32,
                result=i.name in graph.results,
            )
        )
    return nodes


def _slots(choice: _Choice | None, policy: Policy) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The numbers of the operands and results that stay float32."""
    if choice is not None:
        for name in choice.names:
            if name in policy.float32_slots:
                return policy.float32_slots[name]
    return (), ()


# ---- decisions -----------------------------------------------------------------------------------


def _decision(
    i: Instruction, choice: _Choice, policy: Policy, spread_by: str | None, lacks: Mapping[str, str]
) -> Decision:
    reason = choice.reason
    if choice.category != "always":
        reason = by_policy(policy.name, it(spread_by or ""))
        if choice.rule is not None:
            reason = reason.then(choice.rule.reason)
    elif spread_by:
        reason = reason.then(it(spread_by))
    if i.name in lacks:
        reason = Reason(lacks[i.name])
    low, rule = choice.low, choice.rule
    if i.opcode in ("constant", "while"):
        return Decision(low, dtypes.float32, low, reason)
    stated = (rule and rule.accumulate) or policy.accumulate
    operands, results = _slots(choice, policy)
    return Decision(
        low,
        stated if low is not dtypes.float32 and _has_accumulate_type(i, choice) else dtypes.float32,
        choice.output(i, policy),
        reason,
        rule.rounding if rule else "",
        float32_operands=operands,
        float32_results=results,
    )


def _why_kept(choice: _Choice, node: Node, types: Mapping[str, DType], policy: Policy) -> Reason:
    """Why an instruction that a list or rule names is not low; `types` has those of what is."""
    if choice.category == "never" or (choice.rule and choice.rule.low is dtypes.float32):
        return choice.reason
    if choice.obstacle:
        return choice.reason.then(f"but {choice.obstacle}", ", ")
    match policy.propagate:
        case "none":
            why = "and {policy} spreads no types"
        case "all_inputs_low":
            read = [types.get(x) is choice.low for x in node.inputs]
            some = "not all of the inputs that decide its type are"
            none = "none of the inputs that decide its type is"
            why = f"and {some if any(read) else none} given as {choice.low.name}"
        case "allow_paths":
            between = "lies between" if choice.category == "follow" else "leads to or from"
            why = f"and no path that it could join {between} what is low"
        case "depth_first":
            why = "and {policy} lowers what it lists as always alone"
    return choice.reason.then(stated(why, policy.name), ", ")


def _has_accumulate_type(i: Instruction, choice: _Choice) -> bool:
    """Whether a plan can state the type of its sums (R1, M6)."""
    sums = i.opcode in ("dot", "convolution") or not _SUMS.isdisjoint(choice.names)
    return sums and not i.attributes.get("algorithm")


_NO_RELAYOUT = "A3: it is no relayout, since its minor-most dimension stays"


def _is_float_transpose(i: Instruction) -> bool:
    return i.opcode == "transpose" and i.array.dtype.kind == "float" and i.array.dtype.device


def _moves_minor_most(i: Instruction) -> bool:
    """Whether a transpose moves the minor-most dimension, and so is a relayout (A3)."""
    order = i.attributes["dimensions"]
    return bool(order) and order[-1] != len(order) - 1


def _relaid(i: Instruction, decision: Decision | None, policy: Policy) -> Decision:
    assert policy.relayout is not None
    transposes = "A3: {policy} transposes on the tensor engine in {type}"
    reason = stated(transposes, policy.name, type=policy.relayout.name)
    if decision is None:
        decision = Decision(i.array.dtype, dtypes.float32, i.array.dtype, reason)
    else:
        reason = told(decision.reason, policy.name).then(reason)
    return dataclasses.replace(
        decision,
        reason=reason,
        relayout=policy.relayout,
        saturate_infinity=policy.saturate_infinity,
    )
