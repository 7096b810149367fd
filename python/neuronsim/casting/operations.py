"""The names that policies have for an instruction.

>>> from neuronsim.dtypes import float32
>>> from neuronsim.hlo.module import Shape
>>> names_of(Instruction("y", "exponential", Shape(float32), ("x",)), {})
('exponential', 'compute')
"""

from __future__ import annotations

from collections.abc import Mapping

from neuronsim import ops
from neuronsim.hlo.module import Computation, Instruction, simple_reducer
from neuronsim.hlo.opcodes import row


def names_of(
    i: Instruction, computations: Mapping[str, Computation], composites: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """An instruction's names, the most specific first: the composites that it is part of, the reducer
    of a reduce or reduce-window (`reduce-add`), the composite that a custom call is, its opcode, and
    the cast class of its row.
    """
    names = list(composites)
    if i.opcode in ("reduce", "reduce-window"):
        reducer = simple_reducer(computations[i.called[0]])
        if reducer is not None:
            names.append(f"{i.opcode}-{reducer}")
    if i.opcode in ops.OPCODES:
        op = row(i)
        if i.opcode == "custom-call":
            names.append(op.name)
        return (*names, i.opcode, op.cast)
    return (*names, i.opcode)
