"""When two instructions give one value: they have one key, whatever their names are (D2).

>>> from neuronsim import dtypes
>>> from neuronsim.hlo.module import Computation, Shape
>>> shape = Shape(dtypes.float32, (2,))
>>> x = Instruction("x", "parameter", shape, (), {"number": 0})
>>> a, b = (Instruction(name, "exponential", shape, ("x",)) for name in "ab")
>>> keys = ValueKeys(Module("m", "main", (Computation("main", (x, a, b), "b"),)))
>>> keys.of(a, ("x",)) == keys.of(b, ("x",)), keys.of(a, ("x",)) == keys.of(b, ("a",))
(True, False)
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from neuronsim import ops
from neuronsim.hlo.instruction_settings import read_settings, stated_settings
from neuronsim.hlo.module import Instruction, Module, without_layouts
from neuronsim.hlo.opcodes import VARIES

_SMALL = 4096  # bytes of a constant that is compared by its bits


def is_decided(i: Instruction) -> bool:
    """Whether what an instruction reads and states decides its value: random words hang on its name
    (S2).
    """
    return i.opcode not in VARIES and read_settings(i).rounding != "stochastic"


@dataclass(frozen=True)
class ValueKeys:
    """The keys of a module's values. Those of modules that share their `numbers`, of computations by
    what these do, are comparable while the modules' constants live.
    """

    module: Module
    numbers: dict[Hashable, int] = field(default_factory=dict)
    _known: dict[str, int] = field(default_factory=dict)

    def of(self, i: Instruction, operands: Sequence[Hashable]) -> Hashable:
        """The key of an instruction that is decided, by those of what it reads."""
        stated = i.attributes.keys() - {"called", "frontend_attributes"}
        own = tuple((k, _frozen(i.attributes[k])) for k in sorted(stated))
        settings = tuple(stated_settings(i.attributes).items())
        called = tuple(map(self.of_computation, i.called))
        return i.opcode, without_layouts(i.shape), tuple(operands), own, settings, called

    def of_computation(self, name: str) -> int:
        """The number of what a computation does."""
        if name not in self._known:
            c = self.module.by_name[name]
            places = {i.name: n for n, i in enumerate(c.instructions)}
            steps = (self.of(i, [places[o] for o in i.operands]) for i in c.instructions)
            contents = (*steps, places[c.root])
            self._known[name] = self.numbers.setdefault(contents, len(self.numbers))
        return self._known[name]


def _frozen(value: Any) -> Hashable:
    if type(value) in (list, tuple):
        return tuple(map(_frozen, value))
    if isinstance(value, Mapping):
        return tuple(sorted((k, _frozen(v)) for k, v in value.items()))
    if isinstance(value, float):
        return value.hex()  # -0.0 is not 0.0
    if isinstance(value, ops.Bits):
        data = value.data
        if data.nbytes <= _SMALL:
            return value.dtype, data.shape, data.tobytes()
        return value.dtype, data.shape, data.strides, data.__array_interface__["data"][0]
    return value  # type: ignore[no-any-return]
