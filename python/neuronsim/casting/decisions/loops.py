"""How loops carry values: in one type, which all callers of their computations agree on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neuronsim.casting.decisions.record import Decision
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Computation, Module, find_callers, graph_computations


def decisions_of_loops(module: Module, decisions: Mapping[str, Decision]) -> dict[str, Decision]:
    """How loops carry float32 values, by the names of their bodies and conditions: one decision for
    each, as `check_plan` made sure.
    """
    return {
        name: decisions[i.name]
        for c in graph_computations(module)
        for i in c.instructions
        if i.opcode == "while" and i.name in decisions
        for name in i.called
    }


def loops_of_fixed_types(graphs: Sequence[Computation], carried: Mapping[str, DType]) -> set[str]:
    """The loops that carry the model's types because a computation of theirs has another caller: a
    branch, or a loop that does not surely carry the same (`carried` has the types of those that do).
    """
    found = find_callers(graphs).items()
    callers = {name: [x.instruction for x in own] for name, own in found}
    pending = [
        name
        for name, users in callers.items()
        if any(i.opcode == "conditional" for i in users)
        or (len(users) > 1 and not _agree([carried.get(i.name) for i in users]))
    ]
    fixed: set[str] = set()
    loops: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in fixed:
            fixed.add(name)
            own = [i for i in callers[name] if i.opcode == "while"]
            loops.update(i.name for i in own)
            pending += [n for i in own for n in i.called]
    return loops


def _agree(types: Sequence[DType | None]) -> bool:
    return types[0] is not None and all(t is types[0] for t in types)
