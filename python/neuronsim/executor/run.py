"""Running a compiled program: the steps, the values that they pass, and rule C7's accounting."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.errors import NeuronSimError, OutOfMemory
from neuronsim.ops import ArrayType, Attributes, Bits, BitsArray
from neuronsim.profiles import Profile


@dataclass(frozen=True)
class TupleValue:
    """A tuple while it is being executed."""

    elements: tuple[Value, ...]


Value = Bits | TupleValue


@dataclass(frozen=True)
class Chain:
    """Elementwise instructions run as one tile program. Inputs are the step's operands;
    `instructions` names the one that each step belongs to.
    """

    steps: tuple[ops.ProgramStep, ...]
    instructions: tuple[str, ...]
    inputs: tuple[int, ...]  # the core's codes of the operands' types

    def identifiers(self, setting: ops.Setting) -> list[int]:
        """The ids of the steps' random words (S2): an instruction's last rounding has the tile ""."""
        if setting.profile.rounding != "stochastic":
            return []
        found = []
        for name in dict.fromkeys(self.instructions):
            own = setting._replace(path=f"{setting.path}{name}/")
            pairs = zip(self.steps, self.instructions, strict=True)
            steps = [step for step, instruction in pairs if instruction == name]
            found += [own.identifier(tile) for tile in ops.step_tiles(steps)]
        return found


@dataclass(frozen=True)
class Call:
    """One instruction run by its row of the op table."""

    op: ops.Op
    attributes: Attributes


@dataclass(frozen=True)
class Product:
    """A dot or convolution with what is fused into it. The step's operands are the product's two and
    then the epilogue's others; `result` is the product's own type.
    """

    op: ops.Op
    attributes: Attributes
    result: ArrayType
    fusion: ops.Fusion


@dataclass
class Counts:
    """What a run met, by instruction: 64-bit integers that C7 changed, and elements outside the
    documented input range of a function (E3).
    """

    int64_truncated: dict[str, int] = field(default_factory=dict)
    outside_range: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class MakeTuple:
    """The instruction `tuple`."""


@dataclass(frozen=True)
class TakeElement:
    """The instruction `get-tuple-element`."""

    index: int


@dataclass(frozen=True)
class Step:
    """What to run on which values. `frees` are the values that nothing reads afterwards."""

    name: str
    action: Chain | Call | Product | MakeTuple | TakeElement
    operands: tuple[str, ...]
    result: ops.Result | None
    members: tuple[str, ...]
    frees: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """The compiled form: inputs by name, constants with their values, steps, the root's name."""

    inputs: tuple[tuple[str, ArrayType], ...]
    constants: Mapping[str, Value]
    steps: tuple[Step, ...]
    root: str
    profile: Profile
    computation: str
    of_constants: Counts = field(default_factory=Counts)

    @property
    def constant_bytes(self) -> int:
        """Bytes of the constants, each stored once in its own type."""
        return sum(stored_bytes(v) for v in self.constants.values())


def stored_bytes(value: Value) -> int:
    """Bytes that a value takes; what a broadcast repeats counts once."""
    if isinstance(value, TupleValue):
        return sum(stored_bytes(v) for v in value.elements)
    data = value.data
    distinct = math.prod(n for n, s in zip(data.shape, data.strides, strict=True) if s != 0)
    return int(distinct * data.itemsize)


def run_step(step: Step, operands: list[Value], setting: ops.Setting, counts: Counts) -> Value:
    """The value of a step; what it met goes to `counts`. The setting's path is "call/computation/"."""
    action = step.action
    if isinstance(action, MakeTuple):
        return TupleValue(tuple(operands))
    if isinstance(action, TakeElement):
        (source,) = operands
        assert isinstance(source, TupleValue)
        return source.elements[action.index]
    arrays = [o for o in operands if isinstance(o, Bits)]
    assert step.result is not None
    try:
        return _run_arrays(step, step.result, arrays, setting, counts)
    except MemoryError as error:
        raise OutOfMemory(
            f"{step.name}: {step.result} does not fit in this machine's memory: {error}"
        ) from error


def _run_arrays(
    step: Step,
    result: ops.Result,
    arrays: list[Bits],
    setting: ops.Setting,
    counts: Counts,
) -> Value:
    action, profile = step.action, setting.profile
    if isinstance(action, Chain):
        assert isinstance(result, ArrayType)
        outputs = (len(action.inputs) + len(action.steps) - 1,)
        program = ops.tile_program(action.inputs, action.steps, outputs, profile)
        ids = action.identifiers(setting)
        data = ops.run_tile_program(program, [a.data for a in arrays], [result], setting.seed, ids)
        return Bits(data[0], result.dtype)
    own = setting._replace(path=f"{setting.path}{step.name}/")
    if isinstance(action, Product):
        fusion = replace(action.fusion, terms=tuple(a.data for a in arrays[2:]))
        try:
            return ops.evaluate_product(
                action.op, arrays[:2], action.attributes, own, action.result, fusion
            )
        except NeuronSimError as error:
            raise type(error)(f"{step.name} ({action.op.opcode}): {error}") from error
    assert isinstance(action, Call)
    outside = ops.count_outside_range(action.op, arrays, profile)
    if outside:
        counts.outside_range[step.name] = outside
    try:
        if not isinstance(result, ArrayType):
            found = ops.evaluate_all(action.op, arrays, action.attributes, own, result)
            return TupleValue(found)
        if profile.int64 == "keep":
            return ops.evaluate(action.op, arrays, action.attributes, own, result)
        value, changed = ops.truncated(action.op, arrays, action.attributes, own, result)
    except NeuronSimError as error:
        raise type(error)(f"{step.name} ({action.op.opcode}): {error}") from error
    if changed:
        counts.int64_truncated[step.name] = changed
    return value


def is_int64(dtype: dtypes.DType) -> bool:
    return dtype in (dtypes.int64, dtypes.uint64)


def run_program(
    program: Program,
    inputs: Mapping[str, Bits],
    counts: Counts | None = None,
    *,
    seed: int = 0,
    call: int = 0,
) -> Value:
    """The root's value for these inputs, which have the program's types. `seed` and `call`, the number
    of earlier calls since seeding, choose the words of stochastic rounding (S2).

    `counts` receives what the run met, that of constants included. The value shares no memory with the
    inputs or the program.
    """
    counts = Counts() if counts is None else counts
    counts.int64_truncated.update(program.of_constants.int64_truncated)
    counts.outside_range.update(program.of_constants.outside_range)
    values: dict[str, Any] = dict(program.constants)
    for name, _ in program.inputs:
        value = inputs[name]
        if program.profile.int64 == "truncate":
            value, changed = ops.truncate_int64(value)
            if changed:
                counts.int64_truncated[name] = changed
        values[name] = value
    setting = ops.Setting(program.profile, seed, f"{call}/{program.computation}/")
    for step in program.steps:
        operands = [values[o] for o in step.operands]
        values[step.name] = run_step(step, operands, setting, counts)
        for name in step.frees:
            if name not in program.constants:
                del values[name]
    root: Value = values[program.root]
    owned = [*program.constants.values(), *inputs.values()]
    return _copied(root, [o.data for v in owned for o in leaves(v)])


def leaves(value: Value) -> list[Bits]:
    """The arrays of a value, in order."""
    if isinstance(value, TupleValue):
        return [leaf for v in value.elements for leaf in leaves(v)]
    return [value]


def _copied(value: Value, owned: list[BitsArray]) -> Value:
    """The value with copies of the arrays that are views of `owned` ones."""
    if isinstance(value, TupleValue):
        return TupleValue(tuple(_copied(v, owned) for v in value.elements))
    if any(np.may_share_memory(value.data, o) for o in owned):
        return Bits(value.data.copy(), value.dtype)
    return value
