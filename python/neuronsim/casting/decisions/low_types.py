"""Which instructions are low, by a policy's propagation, in types that a target's engines have."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from neuronsim import dtypes, ops
from neuronsim.casting.decisions.castable import is_product, own_type, reads
from neuronsim.casting.decisions.choices import Choice, slots_of
from neuronsim.casting.decisions.float_graph import FloatGraph
from neuronsim.casting.decisions.propagation import KEPT, Node, Spread, spread
from neuronsim.casting.policies.policy import Category, Policy, Rule
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Computation, Instruction, Shape
from neuronsim.hlo.opcodes import row
from neuronsim.targets import Target

# What repeats the elements of a constant or parameter: frameworks broadcast without saying so.
_REPEATS = frozenset({"broadcast", "reshape"})
# What takes a scale, an offset or statistics beside its input.
_NORMS = frozenset({"batch_norm", "layer_norm", "rms_norm"})
# What computes in place of a type that an engine lacks, the first that it has.
_SUBSTITUTES = (dtypes.float32, dtypes.bfloat16, dtypes.float16)


def types_on_target(
    graph: FloatGraph, choices: Mapping[str, Choice], policy: Policy, target: Target | None
) -> tuple[dict[str, Choice], Spread, dict[str, str]]:
    """The choices, what is low and why, and what a target lacks, by the instructions that therefore
    have another type: their neighbours then follow that one.
    """
    chosen = dict(choices)
    lacks: dict[str, str] = {}
    while True:
        nodes = graph_nodes(graph, chosen, policy)
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
    computation: Computation, i: Instruction, choice: Choice, policy: Policy, *, low: bool
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


def graph_nodes(graph: FloatGraph, choices: Mapping[str, Choice], policy: Policy) -> list[Node]:
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
        kept = slots_of(choice, policy)[0]
        nodes.append(
            Node(
                i.name,
                category,
                choice.low if choice else dtypes.float32,
                gives=choice.output(i, policy) if choice and i.opcode in ops.OPCODES else None,
                inputs=tuple(
                    KEPT if e.result in slots_of(choices.get(e.producer), policy)[1] else e.producer
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
