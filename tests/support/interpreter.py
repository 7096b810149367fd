"""A module evaluated instruction by instruction through the op table: nothing is fused, folded or
reused, and control flow is Python's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from neuronsim import ops
from neuronsim.hlo.module import Instruction, Module
from neuronsim.hlo.opcodes import STRUCTURE, row, row_attributes
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
    return ops.evaluate_all(row(i), operands, row_attributes(module, i), setting, i.result)


def evaluate(
    module: Module, inputs: Sequence[ops.Bits], profile: Profile, apply: Apply = by_row
) -> tuple[Value, list[Applied]]:
    """The root's value, and every application of a row on the way, in order."""
    run = _Run(module, ops.Setting(profile), apply)
    return _computation(run, module.entry, inputs, _Place(module.entry)), run.applied


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


@dataclass
class _Run:
    module: Module
    setting: ops.Setting
    apply: Apply
    applied: list[Applied] = field(default_factory=list)


def _computation(run: _Run, name: str, arguments: Sequence[Value], place: _Place) -> Value:
    values: dict[str, Value] = {}
    computation = run.module.by_name[name]
    for i in computation.instructions:
        operands = [values[o] for o in i.operands]
        if i.opcode == "parameter":
            values[i.name] = arguments[i.attributes["number"]]
        elif i.opcode in STRUCTURE:
            values[i.name] = _structure(run, i, operands, place)
        else:
            read = tuple(leaf for o in operands for leaf in leaves(o))
            setting = run.setting._replace(path=place.path(i.name))
            given = run.apply(run.module, i, read, setting)
            run.applied.append(Applied(run.module, i, read, given))
            values[i.name] = given[0] if isinstance(i.result, ops.ArrayType) else given
    return values[computation.root]


def _structure(run: _Run, i: Instruction, operands: list[Value], place: _Place) -> Value:
    match i.opcode:
        case "constant":
            literal: Value = i.attributes["literal"]
            return literal
        case "tuple":
            return tuple(operands)
        case "after-all":
            return ()
        case "get-tuple-element":
            (source,) = operands
            assert isinstance(source, tuple)
            return source[i.attributes["tuple_index"]]
        case "opt-barrier" | "add-dependency":
            return operands[0]
        case "call" | "fusion":
            inlined = replace(place, calls=f"{place.calls}{i.name}.")
            return _computation(run, i.called[0], operands, inlined)
        case "while":
            body, condition = i.called
            (state,) = operands
            for trip in itertools.count():
                at = [_Place(name, trips=(*place.trips, trip)) for name in i.called]
                if not _scalar(_computation(run, condition, [state], at[1])):
                    break
                state = _computation(run, body, [state], at[0])
            return state
        case "conditional":
            branch = _branch(operands[0], len(i.called))
            there = _Place(i.called[branch], trips=place.trips)
            return _computation(run, i.called[branch], [operands[1 + branch]], there)
    raise AssertionError(f"{i.opcode} has no evaluation here")


def _scalar(value: Value) -> int:
    assert isinstance(value, ops.Bits)
    return int(value.data)


def _branch(selector: Value, count: int) -> int:
    """By pred the first branch is that of true; an index outside takes the last (XLA)."""
    assert isinstance(selector, ops.Bits)
    number = _scalar(selector)
    if selector.data.dtype == bool:
        return 0 if number else 1
    return number if 0 <= number < count else count - 1
