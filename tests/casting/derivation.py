"""Decisions read back from a planned module: what a file says of types without the plan.

An instruction with a reason among its frontend attributes is a decided one. Its operand type is that of
the converts in front, its output the type that it has or that what follows under its name rounds to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from neuronsim import dtypes
from neuronsim.casting.application.commuting import commuted_operands
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.policies.policy import Rounding
from neuronsim.dtypes import DType
from neuronsim.hlo.instruction_settings import read_settings
from neuronsim.hlo.module import Computation, Instruction, Module, Shape, graph_computations
from neuronsim.hlo.opcodes import row

F32 = dtypes.float32
_ROUNDS = frozenset({"convert", "reduce-precision"})


def derive_decisions(planned: Module) -> dict[str, Decision]:
    """The decisions that the literal application of a plan (`apply_plan(..., clean=False)`) states, by
    instruction name, from the module alone.

    Where plans that differ have the same application, it is the one that says least: what reads no
    float has its output type for an operand type; a constant has the type and rounding by which its
    readers take it, float32 if none rounds it; no rounding is stated where nothing is left to round.
    Raises InvalidArgument for illegal frontend attributes.
    """
    found: dict[str, Decision] = {}
    for c in graph_computations(planned):
        found |= _Derivation(c, planned.by_name).run()
    return found


# The format of a value: of an array, or of each element of a tuple.
_Format: TypeAlias = "DType | tuple[_Format, ...]"


@dataclass(frozen=True)
class _Read:
    """An operand as an instruction reads it: its format, whether a convert in front rounded it to that,
    and how.
    """

    dtype: DType
    is_rounded: bool = False
    rounding: Rounding = ""


class _Derivation:
    """The decisions of one computation, in one pass over it."""

    def __init__(self, computation: Computation, computations: Mapping[str, Computation]) -> None:
        self.computation, self.computations = computation, computations
        self.by_name = computation.by_name
        self.users = computation.users()
        self.settings = {i.name: read_settings(i) for i in computation.instructions}
        self.formats: dict[str, _Format] = {}

    def run(self) -> dict[str, Decision]:
        found = {}
        constants = []  # of which what follows them tells
        for i in self.computation.instructions:
            self.formats[i.name] = self._format(i)
            if not self.settings[i.name].reason:
                continue
            if i.opcode == "constant":
                constants.append(i)
            else:
                found[i.name] = d = self._decision(i)
                self.formats[i.name] = _as_planned(self.formats[i.name], d)
        return found | {i.name: self._of_one_type(i, self._borders(i)) for i in constants}

    def _format(self, i: Instruction) -> _Format:
        """What the values of an instruction are, which may be less than their element type holds."""
        if i.opcode == "tuple":
            return tuple(self.formats[o] for o in i.operands)
        if i.opcode == "get-tuple-element":
            source = self.formats[i.operands[0]]
            assert isinstance(source, tuple)
            index: int = i.attributes["tuple_index"]
            return source[index]
        planned = self._is_border(i) or self._computes(i) is not i  # and not the model's own
        if planned and i.opcode == "reduce-precision":
            return dtypes.float_format(i.attributes["exponent_bits"], i.attributes["mantissa_bits"])
        return _own_format(i)

    def _decision(self, i: Instruction) -> Decision:
        if i.opcode == "while":
            return self._of_one_type(i, self._carried(i))
        computes = self._computes(i)
        reads = [self._read(o) for o in computes.operands]
        outputs = self._outputs(i)
        own, how = self.settings[i.name], self.settings[computes.name]
        operand = _operand_type(reads, outputs)
        output = _output_type(outputs, operand)
        if output is F32 and i is computes and operand is not None and self._moves_values(i, operand):
            output = operand  # nothing to round
        operand = operand or output
        return Decision(
            operand=operand,
            accumulate=how.accumulate or F32,
            output=output,
            reason=own.reason,
            rounding=own.rounding or how.rounding or self._rounding_of_parts(i) or _rounding(reads),
            float32_operands=_float32_numbers([r.dtype if r else None for r in reads], operand),
            float32_results=_float32_numbers(outputs, output),
            relayout=how.relayout,
            saturate_infinity=how.saturate_infinity,
        )

    def _moves_values(self, i: Instruction, dtype: DType) -> bool:
        """Whether an instruction gives values of this type where it reads such."""
        return row(i).cast == "movement" or bool(commuted_operands(i, self.computations, dtype))

    def _of_one_type(self, i: Instruction, reads: Sequence[_Read | None]) -> Decision:
        """The decision of a constant or a loop, by what converts its values."""
        types = [s.dtype for s in i.shape.arrays() if s.dtype.kind == "float"]
        rounded = [r.dtype for r in reads if r is not None and r.is_rounded]
        low = next((t for t in rounded if t in types or i.opcode == "constant"), types[0])
        reason = self.settings[i.name].reason
        return Decision(low, F32, low, reason, _rounding(reads))

    def _borders(self, constant: Instruction) -> list[_Read | None]:
        """What converts a constant."""
        return [self._read(u.name) for u in self.users[constant.name] if self._is_border(u)]

    def _carried(self, loop: Instruction) -> list[_Read | None]:
        """The initial values of a loop."""
        initial = self.by_name[loop.operands[0]]
        return [self._read(o) for o in initial.operands] if initial.opcode == "tuple" else []

    def _computes(self, i: Instruction) -> Instruction:
        """The instruction that computes what this one rounds, or itself."""
        source = i
        if i.opcode == "tuple":
            source = self.by_name[i.operands[0]]
            while source.opcode in (*_ROUNDS, "get-tuple-element"):
                source = self.by_name[source.operands[0]]
        elif i.opcode in _ROUNDS:
            source = self.by_name[i.operands[0]]
        return source if _is_named(source.name, i.name, "f32") else i

    def _read(self, name: str) -> _Read | None:
        """How an operand is read; None for what is no float."""
        i = self.by_name[name]
        found = self.formats[name]
        if not isinstance(found, DType) or found.kind != "float":
            return None
        if not self._is_border(i):
            return _Read(found)
        source = self.by_name[i.operands[0]]
        if found is F32:  # widened: what was there before is read
            return self._read(source.name)
        return _Read(found, self.formats[source.name] is not found, self.settings[name].rounding)

    def _is_border(self, i: Instruction) -> bool:
        """Whether the application of a plan put an instruction here to convert a value."""
        if i.opcode not in _ROUNDS or self.settings[i.name].reason:
            return False
        source = self.by_name[i.operands[0]]
        names = [source.name]
        if source.opcode == "convert":  # widened on the way
            names.append(source.operands[0])
        return any(_is_named(i.name, n, r"to_\w+(\..+)?") for n in names)

    def _outputs(self, i: Instruction) -> list[DType]:
        """The formats of the arrays that a decided instruction gives."""
        formats = self.formats[i.name]
        listed = (formats,) if isinstance(formats, DType) else formats
        return [f for f in listed if isinstance(f, DType)]

    def _rounding_of_parts(self, i: Instruction) -> Rounding:
        """How the elements of a decided tuple are rounded."""
        return _rounding([self._read(o) for o in i.operands]) if i.opcode == "tuple" else ""


def _is_named(name: str, original: str, suffix: str) -> bool:
    """Whether a name is another with a suffix, and a number where that was taken."""
    return re.fullmatch(rf"{re.escape(original)}\.{suffix}(\.\d+)?", name) is not None


def _own_format(i: Instruction) -> _Format:
    arrays = tuple(s.dtype for s in i.shape.arrays())
    return arrays[0] if isinstance(i.shape, Shape) else arrays


def _as_planned(formats: _Format, d: Decision) -> _Format:
    """The formats of a decided instruction's arrays: what carries its output type in float32, too."""
    if isinstance(formats, DType):
        return d.output if formats is F32 else formats
    return tuple(
        d.output if f is F32 and n not in d.float32_results else f for n, f in enumerate(formats)
    )


def _operand_type(reads: Sequence[_Read | None], outputs: Sequence[DType]) -> DType | None:
    """The type that a decision reads floats in: what some are rounded to; else what all have; else the
    results' type, beside operands that stay float32, or float32.
    """
    floats = [r for r in reads if r is not None]
    types = {r.dtype for r in floats}
    chosen = [r.dtype for r in floats if r.is_rounded]
    if len(types) > 1:
        chosen += [t for t in outputs if t in types and t is not F32]
        chosen += [F32] if F32 in types else []
    chosen += [r.dtype for r in floats]
    return chosen[0] if chosen else None


def _output_type(outputs: Sequence[DType], operand: DType | None) -> DType:
    """The type that a decision gives: the narrow one among floats, and of several the operand's."""
    floats = [t for t in outputs if t.kind == "float"]
    narrow = [t for t in floats if t is not F32]
    if operand in narrow:
        assert operand is not None
        return operand
    return (narrow or floats or outputs)[0]


def _float32_numbers(types: Sequence[DType | None], planned: DType) -> tuple[int, ...]:
    """The arrays that stay float32 beside others of the planned type."""
    if planned is F32 or planned not in types:
        return ()
    return tuple(n for n, t in enumerate(types) if t is F32)


def _rounding(reads: Sequence[_Read | None]) -> Rounding:
    found: list[Rounding] = [r.rounding for r in reads if r is not None and r.rounding]
    return found[0] if found else ""
