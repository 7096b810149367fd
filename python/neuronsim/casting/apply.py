"""Applying a plan: the module rewritten with converts at the borders, each shared by its readers.

A type without an HLO name, tfloat32, is `reduce-precision(8, 10)` on float32 (C9).
"""

from __future__ import annotations

import dataclasses

from neuronsim import dtypes
from neuronsim.casting.plan import Decision, Plan, check_plan
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Computation, Instruction, Module, Shape, fresh_name, inline_calls
from neuronsim.hlo.opcodes import row

_SHORT = {
    dtypes.float32: "f32",
    dtypes.tfloat32: "tf32",
    dtypes.bfloat16: "bf16",
    dtypes.float16: "f16",
    dtypes.float8_e4m3: "f8e4m3",
}


def apply_plan(module: Module, plan: Plan) -> Module:
    """The module, inlined, with every decision of the plan written out. Raises InvalidArgument if the
    plan does not fit the module.
    """
    check_plan(plan, module)
    return _Rewriter(inline_calls(module), plan).run()


def _carrier(dtype: DType) -> DType:
    """The HLO element type that carries a planned type."""
    return dtypes.float32 if dtype is dtypes.tfloat32 else dtype


class _Rewriter:
    """Builds the new entry computation in one pass over the old."""

    def __init__(self, module: Module, plan: Plan) -> None:
        self.module = module
        self.plan = plan
        self.body: dict[str, Instruction] = {}
        self.types: dict[str, DType] = {}  # the planned type of every float value
        self.converted: dict[tuple[str, DType], str] = {}
        self.reducers: dict[tuple[str, DType], Computation] = {}
        self.taken = {i.name for c in module.computations for i in c.instructions}
        self.taken |= set(module.by_name)

    def run(self) -> Module:
        entry = self.module.entry_computation
        for i in entry.instructions:
            decision = self.plan.decisions.get(i.name)
            if decision is None:
                self._keep(i)
            elif i.opcode == "constant":
                self._emit(i, dtypes.float32)
                self.types[i.name] = dtypes.float32
            else:
                self._lower(i, decision)
        root = self._read(entry.root, entry.by_name[entry.root])
        others = [c for c in self.module.computations if c.name != entry.name]
        computation = Computation(entry.name, tuple(self.body.values()), root)
        return dataclasses.replace(
            self.module, computations=(*others, *self.reducers.values(), computation)
        )

    def _fresh(self, name: str) -> str:
        return fresh_name(name, self.taken)

    def _emit(self, i: Instruction, dtype: DType | None) -> None:
        self.body[i.name] = i
        if dtype is not None:
            self.types[i.name] = dtype

    def _keep(self, i: Instruction) -> None:
        """An instruction that the plan leaves alone reads its operands in the model's types."""
        by_name = self.module.entry_computation.by_name
        operands = tuple(self._read(o, by_name[o]) for o in i.operands)
        self._emit(i.replace(operands=operands), i.shape.dtype if isinstance(i.shape, Shape) else None)

    def _read(self, name: str, original: Instruction) -> str:
        if not isinstance(original.shape, Shape):
            return name
        return self._as(name, original.shape.dtype)

    def _as(self, name: str, wanted: DType) -> str:
        """The name of this value in another type, converted where it is read first."""
        have = self.types[name]
        if have is wanted or wanted.kind != "float" or have.kind != "float":
            return name
        if _carrier(wanted) is _carrier(have) and wanted is dtypes.float32:
            return name  # every tfloat32 is a float32
        key = (name, wanted)
        if key not in self.converted:
            new = self._fresh(f"{name}.to_{_SHORT.get(wanted, wanted.name)}")
            self._emit(_convert(new, name, self.body[name].array, wanted), wanted)
            self.converted[key] = new
        return self.converted[key]

    def _lower(self, i: Instruction, d: Decision) -> None:
        by_name = self.module.entry_computation.by_name
        operands = tuple(
            self._as(o, d.operand)
            if by_name[o].array.dtype is dtypes.float32
            else self._read(o, by_name[o])
            for o in i.operands
        )
        if i.opcode == "reduce-precision" and d.operand is not dtypes.float32:
            # It rounds a float32 (C9), whatever the types around it are.
            raw = i.replace(
                name=self._fresh(f"{i.name}.f32"),
                operands=tuple(self._as(o, dtypes.float32) for o in operands),
            )
            self._emit(raw, dtypes.float32)
            self._emit(_convert(i.name, raw.name, raw.array, d.output), d.output)
            return
        changes: dict[str, object] = {"operands": operands}
        carrier = _carrier(d.output) if i.array.dtype is dtypes.float32 else i.array.dtype
        changes["shape"] = dataclasses.replace(i.array, dtype=carrier)
        if i.opcode == "reduce":
            reducer = self._retyped(i.called[0], _carrier(d.operand))
            changes["attributes"] = {**i.attributes, "called": (reducer,)}
        if d.output is dtypes.tfloat32 and row(i).cast != "movement":
            # The engine rounds on store: the float32 result is rounded to tfloat32 (E1).
            raw = i.replace(**changes, name=self._fresh(f"{i.name}.f32"))
            self._emit(raw, dtypes.float32)
            rounded = _convert(i.name, raw.name, raw.array, dtypes.tfloat32)
            self._emit(rounded.replace(metadata=i.metadata), dtypes.tfloat32)
            return
        self._emit(i.replace(**changes), d.output)

    def _retyped(self, name: str, dtype: DType) -> str:
        """The reducer with its float32 parameters and instructions in another type."""
        if dtype is dtypes.float32:
            return name
        if (name, dtype) in self.reducers:
            return self.reducers[name, dtype].name
        old = self.module.by_name[name]
        suffix = _SHORT.get(dtype, dtype.name)
        names = {i.name: self._fresh(f"{i.name}.{suffix}") for i in old.instructions}
        body = tuple(
            i.replace(
                name=names[i.name],
                operands=tuple(names[o] for o in i.operands),
                shape=dataclasses.replace(
                    i.array, dtype=dtype if i.array.dtype is dtypes.float32 else i.array.dtype
                ),
            )
            for i in old.instructions
        )
        new = Computation(self._fresh(f"{name}.{suffix}"), body, names[old.root])
        self.reducers[name, dtype] = new
        return new.name


def _convert(name: str, operand: str, source: Shape, wanted: DType) -> Instruction:
    shape = dataclasses.replace(source, dtype=_carrier(wanted))
    if wanted is dtypes.tfloat32:
        bits = {"exponent_bits": wanted.exponent_bits, "mantissa_bits": wanted.mantissa_bits}
        if source.dtype is dtypes.float32:
            return Instruction(name, "reduce-precision", shape, (operand,), bits)
    return Instruction(name, "convert", shape, (operand,))
