"""A module executed instruction by instruction, each by its row of the op table."""

from __future__ import annotations

from typing import Any

from neuronsim import dtypes, ops
from neuronsim.hlo.module import Computation, Instruction, Module, Shape
from neuronsim.hlo.opcodes import row, row_attributes
from neuronsim.profiles import Profile


def execute(module: Module, inputs: list[Any]) -> Any:
    """The module instruction by instruction, each by its row of the op table."""
    setting = ops.Setting(Profile())

    def run(computation: Computation, arguments: list[Any]) -> Any:
        values: dict[str, Any] = {}
        for i in computation.instructions:
            values[i.name] = one(i, [values[o] for o in i.operands], arguments)
        return values[computation.root]

    def one(i: Instruction, operands: list[Any], arguments: list[Any]) -> Any:
        called = [module.by_name[n] for n in i.called]
        match i.opcode:
            case "parameter":
                value = arguments[i.attributes["number"]]
                if isinstance(i.shape, Shape):
                    assert value.type == i.shape.type
                return value
            case "constant":
                return i.attributes["literal"]
            case "tuple":
                return tuple(operands)
            case "get-tuple-element":
                return operands[0][i.attributes["tuple_index"]]
            case "while":
                (state,) = operands
                while run(called[0], [state]).data:
                    state = run(called[1], [state])
                return state
            case "conditional":
                index = int(operands[0].data)
                index = (
                    1 - index if operands[0].dtype is dtypes.boolean else min(index, len(called) - 1)
                )
                return run(called[index], [operands[1 + index]])
        attributes = row_attributes(module, i)
        found = ops.evaluate_all(row(i), operands, attributes, setting, i.result)
        return found[0] if isinstance(i.shape, Shape) else found

    return run(module.entry_computation, inputs)
