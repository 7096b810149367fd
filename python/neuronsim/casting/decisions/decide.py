"""What a policy decides for the instructions of a module: from their names by its lists and rules to
categories (`choices`), from these to low types (`low_types`), from both to decisions.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from neuronsim import dtypes
from neuronsim.casting.decisions.castable import moves_minor_most
from neuronsim.casting.decisions.choices import (
    Choice,
    check_policy,
    find_choices,
    report_unlisted,
    slots_of,
)
from neuronsim.casting.decisions.float_graph import float_graph
from neuronsim.casting.decisions.loops import loops_of_fixed_types
from neuronsim.casting.decisions.low_types import graph_nodes, types_on_target
from neuronsim.casting.decisions.propagation import Node
from neuronsim.casting.decisions.reasons import Reason, by_policy, it, stated, told
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.policies.calibration import Calibration
from neuronsim.casting.policies.policy import Policy
from neuronsim.dtypes import DType
from neuronsim.hlo.inlining import FlatModule
from neuronsim.hlo.module import Computation, Instruction, graph_computations
from neuronsim.targets import Target

# Reducers whose accumulate type a plan states (R1).
_SUMS = frozenset(
    f"{reduce}-{reducer}"
    for reduce, reducer in itertools.product(("reduce", "reduce-window"), ("add", "multiply"))
)


def decide(
    module: FlatModule, policy: Policy, target: Target | None, calibration: Calibration | None
) -> tuple[dict[str, Decision], dict[str, Reason]]:
    """The decisions of a policy by instruction name, for a module after `inline_calls`, where each
    type is one that the target's engine has; without a target every type is. Formats that no device
    has count as present: a plan in such says what they would do. And why others keep their types, where
    a list or rule names them.

    Raises InvalidArgument with all problems of the policy, or the rules' (`rules.match_rules`).
    """
    check_policy(policy)
    graphs = graph_computations(module)
    graph = float_graph(graphs)
    choices = find_choices(module, graph, policy, calibration)
    report_unlisted(choices, policy)
    fixed = _fixed_loops(graphs, choices)
    choices = {n: c for n, c in choices.items() if n not in fixed}
    choices, found, lacks = types_on_target(graph, choices, policy, target)
    decisions = {}
    for i in (i for c in graphs for i in c.instructions):
        if i.name in found or i.name in lacks:
            decisions[i.name] = _decision(i, choices[i.name], policy, found.get(i.name), lacks)
    nodes = {n.name: n for n in graph_nodes(graph, choices, policy)}
    low = {n: nodes[n].gives or nodes[n].low for n in found}
    kept = {
        n: _why_kept(c, nodes[n], low, policy)
        for n, c in choices.items()
        if c.listed and n not in decisions
    }
    if policy.relayout is not None:
        for i in (i for c in graphs for i in c.instructions if _is_float_transpose(i)):
            if moves_minor_most(i):
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


def _fixed_loops(graphs: Sequence[Computation], choices: Mapping[str, Choice]) -> set[str]:
    loops = [i.name for c in graphs for i in c.instructions if i.opcode == "while"]
    surely = {n: choices[n].low for n in loops if n in choices and choices[n].category == "always"}
    return loops_of_fixed_types(graphs, surely)


def _decision(
    i: Instruction, choice: Choice, policy: Policy, spread_by: str | None, lacks: Mapping[str, str]
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
    operands, results = slots_of(choice, policy)
    return Decision(
        low,
        stated if low is not dtypes.float32 and _has_accumulate_type(i, choice) else dtypes.float32,
        choice.output(i, policy),
        reason,
        rule.rounding if rule else "",
        float32_operands=operands,
        float32_results=results,
    )


def _why_kept(choice: Choice, node: Node, types: Mapping[str, DType], policy: Policy) -> Reason:
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


def _has_accumulate_type(i: Instruction, choice: Choice) -> bool:
    """Whether a plan can state the type of its sums (R1, M6)."""
    sums = i.opcode in ("dot", "convolution") or not _SUMS.isdisjoint(choice.names)
    return sums and not i.attributes.get("algorithm")


_NO_RELAYOUT = "A3: it is no relayout, since its minor-most dimension stays"


def _is_float_transpose(i: Instruction) -> bool:
    return i.opcode == "transpose" and i.array.dtype.kind == "float" and i.array.dtype.device


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
