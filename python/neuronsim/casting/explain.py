"""Why a plan casts what it casts: the converts that it puts into a module, and what decided on each."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from neuronsim.casting.convert_merging import converted_before
from neuronsim.casting.plan import Plan
from neuronsim.casting.policy import Decision
from neuronsim.errors import InvalidArgument, nearest
from neuronsim.hlo.module import Instruction, Module, graph_computations, inline_calls

CONVERTS = frozenset({"convert", "reduce-precision"})


@dataclass(frozen=True)
class Cast:
    """A convert that a plan put into a module: of whose value, from which type to which, how many bytes
    it reads and writes, for which readers, and why. A constant's is done once, at compilation.
    """

    name: str
    source: str
    from_type: str
    to_type: str
    bytes: int
    readers: tuple[str, ...]
    reason: str
    of_constant: bool


def casts(model: Module, planned: Module, plan: Plan) -> tuple[Cast, ...]:
    """The converts of a planned module that its model does not have, in the order of execution."""
    own = {i.name: i for c in graph_computations(inline_calls(model)) for i in c.instructions}
    found = []
    for c in graph_computations(planned):
        users, constants = c.users(), converted_before(c)
        for i in c.instructions:
            known = own.get(i.name)
            if i.opcode not in CONVERTS or (known is not None and known.opcode == i.opcode):
                continue
            source = c.by_name[i.operands[0]]
            sizes = source.array.dtype.itemsize + i.array.dtype.itemsize
            readers = tuple(u.name for u in users[i.name])
            found.append(
                Cast(
                    name=i.name,
                    source=source.name,
                    from_type=_type(source),
                    to_type=_type(i),
                    bytes=math.prod(i.array.dims) * sizes,
                    readers=readers or (c.root,),
                    reason=_reason(i, readers, plan),
                    of_constant=i.name in constants,
                )
            )
    return tuple(found)


def _type(i: Instruction) -> str:
    """The type of a value, where a reduce-precision made it, the format that it rounded to."""
    if i.opcode != "reduce-precision":
        return i.array.dtype.name
    bits = i.attributes["exponent_bits"], i.attributes["mantissa_bits"]
    return "tfloat32" if bits == (8, 10) else f"float({bits[0]},{bits[1]})"


def _reason(i: Instruction, readers: Sequence[str], plan: Plan) -> str:
    if i.name in plan.decisions:
        return f"its result is rounded: {plan.decisions[i.name].reason}"
    low = _type(i)
    if low != "float32":
        for reader in readers:
            if reader in plan.decisions:
                return f"{reader} reads {low}: {plan.decisions[reader].reason}"
    if readers:
        decision = plan.decisions.get(readers[0])
        kept = decision.reason if decision else plan.kept.get(readers[0], "the model's type")
        return f"{readers[0]} reads {low}: {kept}"
    return f"the result keeps the model's type {low} (A2)"


@dataclass(frozen=True)
class Line:
    """One line of an explanation: an instruction and its decision, or None."""

    instruction: Instruction
    decision: Decision | None


def lines(model: Module, plan: Plan, patterns: Sequence[str] = ()) -> tuple[Line, ...]:
    """The instructions that a plan decides; with `patterns` those whose name, opcode, metadata or types
    match one of them (shell wildcards), decided or not.

    Raises InvalidArgument for a pattern that matches nothing, with the nearest name.
    """
    every = [i for c in graph_computations(inline_calls(model)) for i in c.instructions]
    if not patterns:
        return tuple(Line(i, plan.decisions[i.name]) for i in every if i.name in plan.decisions)
    chosen: dict[str, Line] = {}
    for pattern in patterns:
        found = [i for i in every if _matches(i, plan.decisions.get(i.name), pattern)]
        if not found:
            hint = nearest(pattern, (i.name for i in every))
            raise InvalidArgument(f"no instruction matches {pattern!r}{hint}")
        chosen |= {i.name: Line(i, plan.decisions.get(i.name)) for i in found}
    return tuple(chosen.values())


def _matches(i: Instruction, d: Decision | None, pattern: str) -> bool:
    types = (d.operand.name, d.accumulate.name, d.output.name) if d else ()
    texts = (i.name, i.opcode, i.metadata.op_name, *types)
    return any(fnmatch.fnmatchcase(text, pattern) for text in texts if text)


def group(found: Iterable[Line]) -> tuple[tuple[Line, ...], ...]:
    """Lines with the same opcode, types and rule together, in the order of the first."""
    groups: dict[tuple[object, ...], list[Line]] = {}
    for line in found:
        d = line.decision
        key = (line.instruction.opcode, d and (*types_of(d).values(), d.reason.partition(":")[0]))
        groups.setdefault(key, []).append(line)
    return tuple(tuple(g) for g in groups.values())


def types_of(d: Decision) -> Mapping[str, str]:
    """A decision's types as the columns of a table."""
    operands = d.operand.name
    if d.float32_operands:
        operands += f" (float32: {', '.join(map(str, d.float32_operands))})"
    output = d.output.name
    if d.float32_results:
        output += f" (float32: {', '.join(map(str, d.float32_results))})"
    if d.relayout is not None:
        output += f", transposed in {d.relayout.name}"
    if d.rounding:
        output += f", rounded {d.rounding}"
    return {"operands": operands, "sums": d.accumulate.name, "result": output}


def describe(line: Line, found: Sequence[Cast], plan: Plan) -> list[str]:
    """What a plan does to one instruction and why, with the casts around it, as sentences."""
    i, d = line.instruction, line.decision
    texts = [f"{i.name} ({i.opcode}): {plan.explain(i.name).removeprefix(i.name).strip()}"]
    if i.metadata.op_name:
        texts.append(f"it comes from {i.metadata.op_name}")
    for c in found:
        size = f"{c.bytes} bytes{' at compilation' if c.of_constant else ''}"
        if i.name in c.readers:
            texts.append(f"{c.name} casts {c.source} for it, {c.from_type} to {c.to_type}, {size}")
        elif c.source == i.name or (c.name == i.name and d is not None):
            texts.append(f"{c.name} casts its value, {c.from_type} to {c.to_type}, {size}: {c.reason}")
    return texts
