"""The names that policies have for an instruction.

>>> from neuronsim.dtypes import float32
>>> from neuronsim.hlo.module import Shape
>>> names_of(Instruction("y", "exponential", Shape(float32), ("x",)), {})
('exponential', 'compute')
>>> sorted(name for name in NAMES if name.startswith("reduce-window-m"))
['reduce-window-maximum', 'reduce-window-minimum', 'reduce-window-multiply']
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from neuronsim import ops
from neuronsim.errors import nearest
from neuronsim.hlo.module import Computation, Instruction, simple_reducer
from neuronsim.hlo.opcodes import row

_REDUCES = ("reduce", "reduce-window")
_REDUCERS = ("add", "multiply", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor")


def operation_name(op: ops.Op) -> str:
    """What lists call a row of the op table: its HLO opcode, or where it has none the row's name."""
    return op.opcode or op.name


# Every name that a list can have.
NAMES = frozenset(
    {operation_name(op) for op in ops.OPS.values()}
    | {f"{reduce}-{reducer}" for reduce, reducer in itertools.product(_REDUCES, _REDUCERS)}
    | {"constant", "while", "custom-call", *get_args(ops.CastClass)}
)


def unknown_names(names: Iterable[str]) -> list[str]:
    """A problem for each name that no instruction can have, with the nearest that one can.

    >>> unknown_names(["dot", "expp"])
    ["'expp' is no operation (did you mean 'exp2'?)"]
    """
    return [f"{n!r} is no operation{nearest(n, NAMES)}" for n in names if n not in NAMES]


def names_of(
    i: Instruction, computations: Mapping[str, Computation], composites: Sequence[str] = ()
) -> tuple[str, ...]:
    """An instruction's names, the most specific first: the composites that it is part of (op table
    rows, the largest first), the reducer of a reduce or reduce-window (`reduce-add`), the operation
    that a custom call is, its opcode, and the cast class of its row.
    """
    names = [operation_name(ops.OPS[kind]) for kind in composites]
    if i.opcode in _REDUCES:
        reducer = simple_reducer(computations[i.called[0]])
        if reducer is not None:
            names.append(f"{i.opcode}-{reducer}")
    if i.opcode in ops.OPCODES:
        op = row(i)
        if i.opcode == "custom-call":
            names.append(operation_name(op))
        return (*names, i.opcode, op.cast)
    return (*names, i.opcode)
