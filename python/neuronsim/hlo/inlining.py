"""Calls replaced by what they call, and how much a module may have of calls, loops and branches."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping
from typing import NewType

from neuronsim.errors import InvalidModel
from neuronsim.hlo.module import (
    CONTROL_FLOW,
    INLINED,
    Computation,
    Instruction,
    Module,
    fresh_name,
    graph_computations,
)

MAX_INSTRUCTIONS = 1_000_000
MAX_REPEATED_INSTRUCTIONS = 20_000  # of loops and branches that run one computation: 1 to 2 s
MAX_CALL_DEPTH = 100
MAX_CONTROL_FLOW_DEPTH = 100

FlatModule = NewType("FlatModule", Module)  # one without calls


def inline_calls(module: Module) -> FlatModule:
    """The module with every `call` and `fusion` replaced by the callee's instructions, in all of its
    computations; those that are then not reachable are left out.

    An inlined instruction is named `call.instruction`, so that its origin stays visible. What is
    executed instruction by instruction has names that are unique in the result: where a module built in
    Python repeats one (readers of text number them), the entry computation keeps it and another becomes
    `computation.instruction`. Raises InvalidModel as `check_size` does.
    """
    kept = vars(module)  # found once, as a cached property is; None where it is the module itself
    if "flat" not in kept:
        kept["flat"] = found = _inline_calls(module)
        vars(found)["flat"] = None
    return FlatModule(kept["flat"] or module)


def _inline_calls(module: Module) -> Module:
    check_size(module)
    reachable = _reachable(module.entry, module.by_name)
    computations = [c for c in module.computations if c.name in reachable]  # callees come first
    taken = {i.name for c in computations for i in c.instructions}
    inlined: dict[str, Computation] = {}
    for c in computations:
        calls = any(i.opcode in INLINED for i in c.instructions)
        inlined[c.name] = _with_inlined(c, inlined, taken) if calls else c
    reachable = _reachable(module.entry, inlined)
    kept = tuple(c for c in inlined.values() if c.name in reachable)
    kept = _with_unique_names(dataclasses.replace(module, computations=kept), taken)
    same = len(kept) == len(module.computations) and all(map(operator.is_, kept, module.computations))
    return module if same else dataclasses.replace(module, computations=kept)


def _with_inlined(
    computation: Computation, inlined: Mapping[str, Computation], taken: set[str]
) -> Computation:
    body: list[Instruction] = []
    renamed: dict[str, str] = {}
    for i in computation.instructions:
        i = i.reading(renamed)
        if i.opcode not in INLINED:
            body.append(i)
            continue
        callee = inlined[i.called[0]]
        local: dict[str, str] = {}
        for inner in callee.instructions:
            if inner.opcode == "parameter":
                local[inner.name] = i.operands[int(inner.attributes["number"])]
                continue
            local[inner.name] = fresh_name(f"{i.name}.{inner.name}", taken)
            body.append(
                inner.replace(name=local[inner.name], operands=tuple(local[o] for o in inner.operands))
            )
        renamed[i.name] = local[callee.root]
    root = renamed.get(computation.root, computation.root)
    return Computation(computation.name, tuple(body), root)


def _with_unique_names(module: Module, taken: set[str]) -> tuple[Computation, ...]:
    """The computations, with the names that occur in two graphs changed in one of them."""
    seen: set[str] = set()
    changed: dict[str, Computation] = {}
    for c in reversed(graph_computations(module)):  # the entry is last
        new = {i.name: i.name for i in c.instructions}
        twice = seen.intersection(new)
        seen.update(new)
        if twice:
            new |= {n: fresh_name(f"{c.name}.{n}", taken) for n in new if n in twice}
            changed[c.name] = c.renamed(new)
    return tuple(changed.get(c.name, c) for c in module.computations)


def check_size(module: Module) -> None:
    """Raises InvalidModel for a module whose computations call each other too deeply or too often: if
    it nests calls deeper than MAX_CALL_DEPTH, or loops and conditionals deeper than
    MAX_CONTROL_FLOW_DEPTH; if it has more than MAX_INSTRUCTIONS where calls are inlined and what each
    loop and conditional runs is its own; if what they run beyond the first time that it is named has
    more than MAX_REPEATED_INSTRUCTIONS, and more than all has where each is compiled once.
    """
    sizes: dict[str, int] = {}  # with what loops and conditionals run; beyond the limit, just above it
    inlined_sizes: dict[str, int] = {}  # without that
    calls: dict[str, int] = {}  # how deeply each computation nests calls
    control: dict[str, int] = {}  # and loops and conditionals
    for c in module.computations:  # callees come first
        size = inlined_size = len(c.instructions)
        call_depth, control_depth = 0, 0
        for i in c.instructions:
            if i.opcode not in INLINED | CONTROL_FLOW:
                continue
            inlined = i.opcode in INLINED
            for name in i.called[:1] if inlined else i.called:
                if name not in sizes:
                    raise InvalidModel(
                        f"{c.name}: called computation {name!r} does not stand before it"
                    )
                size += sizes[name]
                inlined_size += inlined_sizes[name] if inlined else 0
                control_depth = max(control_depth, control[name] + (not inlined))
                call_depth = max(call_depth, calls[name] + 1) if inlined else call_depth
        sizes[c.name] = min(size, MAX_INSTRUCTIONS + 1)
        inlined_sizes[c.name] = min(inlined_size, MAX_INSTRUCTIONS + 1)
        calls[c.name], control[c.name] = call_depth, control_depth
    for depth, limit, what, verb in (
        (max(calls.values()), MAX_CALL_DEPTH, "calls", "inlines"),
        (max(control.values()), MAX_CONTROL_FLOW_DEPTH, "loops and conditionals", "executes"),
    ):
        if depth > limit:
            raise InvalidModel(
                f"[NCC_EVRF007] {module.name!r} nests {what} {depth} deep: neuronsim {verb} up to "
                f"{limit} levels. Export the model with fewer of them inside each other"
            )
    whole, regions = _compiled(module)
    total = sum(sizes[n] for n in whole)
    if max(total, *sizes.values()) > MAX_INSTRUCTIONS:
        raise InvalidModel(
            f"[NCC_EVRF007] {module.name!r} has more than {MAX_INSTRUCTIONS} instructions when its "
            "calls are inlined and each loop and conditional runs computations of its own: neuronsim "
            f"executes up to {MAX_INSTRUCTIONS}. Export a part of the model"
        )
    once = sum(inlined_sizes[n] for n in whole | regions)
    limit = max(MAX_REPEATED_INSTRUCTIONS, once)
    if total - once > limit:
        raise InvalidModel(
            f"[NCC_EVRF007] {module.name!r} repeats {total - once} instructions in loops and branches "
            "that run one computation: neuronsim compiles it for each of them, up to "
            f"{limit} instructions beyond the first time. Nest fewer of them, or select between results"
        )


def _compiled(module: Module) -> tuple[set[str], set[str]]:
    """What is compiled, or applied to elements, on its own and no part of another: the entry and what
    other instructions than calls, loops and conditionals name; and what loops and conditionals run.
    """
    whole, regions, inlined = {module.entry}, set[str](), set[str]()
    for c in reversed(module.computations):  # callers first
        if c.name not in whole | regions | inlined:
            continue
        for i in c.instructions:
            if i.opcode in INLINED:
                inlined.update(i.called[:1])
            elif i.called:
                (regions if i.opcode in CONTROL_FLOW else whole).update(i.called)
    return whole, regions


def _reachable(entry: str, by_name: Mapping[str, Computation]) -> set[str]:
    found, pending = {entry}, [entry]
    while pending:
        for i in by_name[pending.pop()].instructions:
            for name in i.called:
                if name not in found:
                    found.add(name)
                    pending.append(name)
    return found
