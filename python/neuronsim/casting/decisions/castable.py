"""Which instructions a plan may decide (A1, A2), and of which types they are in the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neuronsim import dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.hlo.module import CONTROL_FLOW, Computation, Instruction, Shape
from neuronsim.hlo.opcodes import row


def is_castable(computation: Computation, i: Instruction) -> bool:
    """Whether a plan may decide an instruction (A2): one that reads or gives float32 arrays on an
    engine. What has no row only passes values on and keeps the model's types; so does the host's work
    (H1).
    """
    if i.opcode == "constant":
        return isinstance(i.shape, Shape) and i.shape.dtype is dtypes.float32
    if i.opcode == "while":
        types = [s.dtype for s in i.shape.arrays()]
        return dtypes.float32 in types and not any(t.kind == "complex" for t in types)
    if i.opcode not in ops.OPCODES:
        return False
    types = [s.dtype for s in (*i.shape.arrays(), *reads(computation, i))]
    if dtypes.float32 not in types or any(t.kind == "complex" for t in types):
        return False
    return row(i).cast != "host"


def is_product(i: Instruction) -> bool:
    """Whether it runs on the tensor engine (A1)."""
    return i.opcode in ops.OPCODES and row(i).cast == "matmult"


def reads(computation: Computation, i: Instruction) -> list[Shape]:
    """The shapes of the operands that are arrays."""
    shapes = (computation.by_name[o].shape for o in i.operands)
    return [s for s in shapes if isinstance(s, Shape)]


def own_type(i: Instruction) -> DType:
    """The type that the model gives what a decision's output is about: float32 where there is any."""
    types = [s.dtype for s in i.shape.arrays()]
    return dtypes.float32 if dtypes.float32 in types or not types else types[0]


def loops_of_fixed_types(graphs: Sequence[Computation], carried: Mapping[str, DType]) -> set[str]:
    """The loops that carry the model's types because a computation of theirs has another caller: a
    branch, or a loop that does not surely carry the same (`carried` has the types of those that do).
    """
    callers: dict[str, list[Instruction]] = {}
    for i in (i for c in graphs for i in c.instructions if i.opcode in CONTROL_FLOW):
        for name in i.called:
            callers.setdefault(name, []).append(i)
    pending = [
        name
        for name, users in callers.items()
        if any(i.opcode == "conditional" for i in users)
        or (len(users) > 1 and not _agree([carried.get(i.name) for i in users]))
    ]
    fixed: set[str] = set()
    found: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in fixed:
            fixed.add(name)
            loops = [i for i in callers[name] if i.opcode == "while"]
            found.update(i.name for i in loops)
            pending += [n for i in loops for n in i.called]
    return found


def _agree(types: Sequence[DType | None]) -> bool:
    return types[0] is not None and all(t is types[0] for t in types)
