"""A module evaluated instruction by instruction through the op table: nothing is fused, folded or
reused, and control flow is Python's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from neuronsim import ops
from neuronsim.hlo.module import Instruction, Module
from neuronsim.hlo.opcodes import STRUCTURE, row, row_attributes
from neuronsim.ops import evaluation
from neuronsim.profiles import Profile

Value: TypeAlias = "ops.Bits | tuple[Value, ...]"


@dataclass(frozen=True)
class Applied:
    """One application of an instruction's row: the arrays that it read and gave."""

    module: Module
    instruction: Instruction
    operands: tuple[ops.Bits, ...]
    results: tuple[ops.Bits, ...]


def leaves(value: Value) -> list[ops.Bits]:
    """The arrays of a value, in order."""
    return [value] if isinstance(value, ops.Bits) else [leaf for v in value for leaf in leaves(v)]


def as_numpy(x: ops.Bits) -> np.ndarray:
    """The array with its own NumPy type in place of its storage type."""
    data = np.ascontiguousarray(x.data).reshape(x.data.shape)
    return data if x.dtype.numpy is x.dtype.storage else data.view(x.dtype.numpy)


# What gives an instruction's results from the arrays that it reads.
Apply = Callable[[Module, Instruction, tuple[ops.Bits, ...], ops.Setting], tuple[ops.Bits, ...]]


def by_row(
    module: Module, i: Instruction, operands: tuple[ops.Bits, ...], setting: ops.Setting
) -> tuple[ops.Bits, ...]:
    """The row's evaluator."""
    return ops.evaluate(row(i), operands, row_attributes(module, i), setting, i.result)


def by_row_in_32_bits(
    module: Module, i: Instruction, operands: tuple[ops.Bits, ...], setting: ops.Setting
) -> tuple[ops.Bits, ...]:
    """The same where the profile truncates 64-bit integers (C7)."""
    attributes = row_attributes(module, i)
    given = ops.Evaluation(row(i), operands, attributes, i.array.type, setting)
    return (evaluation.truncated(given)[0],)


def evaluate(
    module: Module, inputs: Sequence[ops.Bits], profile: Profile, apply: Apply = by_row, seed: int = 0
) -> tuple[Value, list[Applied]]:
    """The root's value, and every application of a row on the way, in order."""
    applied: list[Applied] = []

    def step(i: Instruction, operands: list[Value], path: str) -> Value:
        read = tuple(leaf for o in operands for leaf in leaves(o))
        given = apply(module, i, read, ops.Setting(profile, seed, path))
        applied.append(Applied(module, i, read, given))
        return given[0] if isinstance(i.result, ops.ArrayType) else given

    return walk(module, inputs, Steps(step)), applied


@dataclass(frozen=True)
class Steps:
    """What a walk through a module does with values of any kind: an instruction's result from its
    operands and its path (S2), a constant, an array of a value, and what a loop carries.
    """

    apply: Callable[[Instruction, list[Any], str], Any]
    literal: Callable[[ops.Bits], Any] = lambda x: x
    data: Callable[[Any], np.ndarray] = lambda x: x.data
    carried: Callable[[Any, Instruction], Any] = lambda state, i: state


def walk(module: Module, inputs: Sequence[Any], steps: Steps) -> Any:
    """The root's value; calls, loops and branches are Python's."""
    return _computation(module, steps, module.entry, inputs, _Place(module.entry))


@dataclass(frozen=True)
class _Place:
    """Where an instruction stands for S2 and rng: the computation that calls are inlined in, the calls
    on the way, and the trip counts of the loops around it.
    """

    computation: str
    calls: str = ""
    trips: tuple[int, ...] = ()

    def path(self, name: str) -> str:
        return f"0/{self.computation}/{self.calls}{name}/{','.join(map(str, self.trips))}"


def _computation(
    module: Module, steps: Steps, name: str, arguments: Sequence[Any], place: _Place
) -> Any:
    values: dict[str, Any] = {}
    computation = module.by_name[name]
    for i in computation.instructions:
        operands = [values[o] for o in i.operands]
        if i.opcode == "parameter":
            values[i.name] = arguments[i.attributes["number"]]
        elif i.opcode in STRUCTURE:
            values[i.name] = _structure(module, steps, i, operands, place)
        else:
            values[i.name] = steps.apply(i, operands, place.path(i.name))
    return values[computation.root]


def _structure(module: Module, steps: Steps, i: Instruction, operands: list[Any], place: _Place) -> Any:
    def run(name: str, arguments: list[Any], where: _Place) -> Any:
        return _computation(module, steps, name, arguments, where)

    match i.opcode:
        case "constant":
            return steps.literal(i.attributes["literal"])
        case "tuple":
            return tuple(operands)
        case "after-all":
            return ()
        case "get-tuple-element":
            return operands[0][i.attributes["tuple_index"]]
        case "opt-barrier" | "add-dependency":
            return operands[0]
        case "call" | "fusion":
            return run(i.called[0], operands, replace(place, calls=f"{place.calls}{i.name}."))
        case "while":
            body, condition = i.called
            state = steps.carried(operands[0], i)
            for trip in itertools.count():
                at = [_Place(name, trips=(*place.trips, trip)) for name in i.called]
                if not steps.data(run(condition, [state], at[1])):
                    break
                state = steps.carried(run(body, [state], at[0]), i)
            return state
        case "conditional":
            branch = _branch(steps.data(operands[0]), len(i.called))
            there = _Place(i.called[branch], trips=place.trips)
            return run(i.called[branch], [operands[1 + branch]], there)
    raise AssertionError(f"{i.opcode} has no evaluation here")


def _branch(selector: np.ndarray, count: int) -> int:
    """By pred the first branch is that of true; an index outside takes the last (XLA)."""
    number = int(selector)
    if selector.dtype == bool:
        return 0 if number else 1
    return number if 0 <= number < count else count - 1
