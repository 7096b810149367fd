"""From a verified, planned module to steps: constants folded, elementwise chains grouped.

The values are those of evaluating instruction by instruction (D2): a chain rounds every result as its
instruction is typed.
"""

from __future__ import annotations

import math
import os

from neuronsim import ops
from neuronsim.errors import OutOfMemory, UnsupportedType
from neuronsim.executor.fusion import fuse_products
from neuronsim.executor.run import (
    Call,
    Chain,
    Counts,
    MakeTuple,
    Program,
    Step,
    TakeElement,
    Value,
    is_int64,
    leaves,
    run_step,
    stored_bytes,
)
from neuronsim.hlo.module import Computation, Instruction, Module, Shape, inline_calls
from neuronsim.hlo.opcodes import row, row_attributes
from neuronsim.ops import Bits
from neuronsim.profiles import Profile
from neuronsim.targets import Target

MAX_CHAIN = 48
# A constant expression is folded if its value is this small, or not much larger than its operands.
SMALL_ELEMENTS = 1 << 16


def check_types(module: Module, target: Target) -> None:
    """Raises UnsupportedType, with AWS's code, for element types that the target does not have."""
    found: dict[str, list[str]] = {}
    for c in module.computations:
        for i in c.instructions:
            if isinstance(i.shape, Shape) and i.shape.dtype not in target.types:
                found.setdefault(i.shape.dtype.name, []).append(i.name)
    if found:
        name, where = next(iter(found.items()))
        code = {"float8_e4m3fn": "NCC_EVRF051", "complex64": "NCC_EVRF004"}.get(name, "NCC_ESPP004")
        raise UnsupportedType(
            f"[{code}] {target.name} has no {name}: instruction {where[0]}"
            f"{f' and {len(where) - 1} more' if len(where) > 1 else ''} of {module.name!r} gives it. "
            "Convert the model to a device type, or use target 'host' to run it without a device"
        )


def check_memory(module: Module, target: Target) -> None:
    """Raises OutOfMemory for an array that is larger than the target's memory, or this machine's."""
    here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = ((target.memory, target.name, "[NCC_EOOM001] "), (here, "this machine", ""))
    for i in module.entry_computation.instructions:
        if not isinstance(i.shape, Shape):
            continue
        # A zero-sized array is indexed by its other lengths all the same.
        size = math.prod(n for n in i.shape.dims if n) * i.shape.dtype.itemsize
        for limit, owner, code in limits:
            if size > limit:
                raise OutOfMemory(
                    f"{code}{i.name} is {i.shape.type}: {size >> 30} GiB do not fit in the "
                    f"{limit >> 30} GiB of {owner}"
                )


def compile_module(module: Module, profile: Profile, target: Target) -> Program:
    """The program of a verified module. Raises NeuronSimError for what the target cannot run."""
    flat = inline_calls(module)
    check_types(flat, target)
    check_memory(flat, target)
    return _Compiler(flat, profile).run()


class _Compiler:
    def __init__(self, module: Module, profile: Profile) -> None:
        self.module = module
        self.profile = profile
        self.entry: Computation = module.entry_computation
        self.constants: dict[str, Value] = {}
        self.counts = Counts()  # of the constants

    def run(self) -> Program:
        entry = self.entry
        live = _needed(entry)
        steps: list[Step] = []
        chains = _chains(entry, self.profile)
        for i in entry.instructions:
            if i.name not in live or i.opcode == "parameter":
                continue
            if i.opcode == "constant":
                self._add_constant(i)
            elif self._folds(i):
                self._fold(i)
            elif i.name in chains:
                if chains[i.name][-1] is i:
                    steps.append(self._chain(chains[i.name]))
            else:
                steps.append(self._step(i))
        inputs = tuple((p.name, p.array.type) for p in entry.parameters)
        held = {n: v.type for n, v in self.constants.items() if isinstance(v, Bits)}
        steps = fuse_products(steps, dict(inputs) | held, self.constants, self.profile)
        read = {o for s in steps for o in s.operands} | {entry.root}
        constants = {name: value for name, value in self.constants.items() if name in read}
        return Program(
            inputs=inputs,
            constants=constants,
            steps=_with_frees(steps, entry.root),
            root=entry.root,
            profile=self.profile,
            computation=self.entry.name,
            of_constants=self.counts,
        )

    def _add_constant(self, i: Instruction) -> None:
        value: Bits = i.attributes["literal"]
        if self.profile.int64 == "truncate":
            value, changed = ops.truncate_int64(value)
            if changed:
                self.counts.int64_truncated[i.name] = changed
        self.constants[i.name] = value

    def _folds(self, i: Instruction) -> bool:
        if any(o not in self.constants for o in i.operands):
            return False
        if not isinstance(i.shape, Shape):
            return True
        if i.opcode == "broadcast":
            return True  # a view
        if self.profile.rounding == "stochastic":
            return False  # each call draws its own words (S2)
        held = sum(stored_bytes(self.constants[o]) for o in i.operands)
        size = math.prod(i.shape.dims)
        return size <= SMALL_ELEMENTS or size * i.shape.dtype.itemsize <= 2 * held

    def _fold(self, i: Instruction) -> None:
        step = self._step(i)
        setting = ops.Setting(self.profile)
        value = run_step(step, [self.constants[o] for o in i.operands], setting, self.counts)
        for array in leaves(value):
            array.data.flags.writeable = False
        self.constants[i.name] = value

    def _step(self, i: Instruction) -> Step:
        action: Call | MakeTuple | TakeElement
        if i.opcode == "tuple":
            action = MakeTuple()
        elif i.opcode == "get-tuple-element":
            action = TakeElement(i.attributes["tuple_index"])
        else:
            action = Call(row(i), row_attributes(self.module, i))
        result = i.result if isinstance(action, Call) else None
        return Step(i.name, action, i.operands, result, (i.name,))

    def _chain(self, members: list[Instruction]) -> Step:
        """A tree of elementwise instructions as one tile program; what is folded is an input."""
        members = [m for m in members if m.name not in self.constants]
        inside = {m.name for m in members}
        inputs: dict[str, int] = {}
        for m in members:
            for o in m.operands:
                if o not in inside:
                    inputs.setdefault(o, len(inputs))
        numbers = dict(inputs)
        steps: list[ops.ProgramStep] = []
        paths: list[str] = []

        def push(step: ops.ProgramStep) -> int:
            steps.append(step)
            return len(inputs) + len(steps) - 1

        for m in members:
            operands = [(numbers[o], self.entry.by_name[o].array.dtype) for o in m.operands]
            arguments = (row(m), m.attributes, operands, m.array.dtype)
            first = len(steps)
            numbers[m.name] = ops.lower(*arguments, self.profile, push)
            paths += [m.name] * (len(steps) - first)
        root = members[-1]
        names = tuple(m.name for m in members)
        codes = tuple(ops.core_code(self.entry.by_name[o].array.dtype, root.name) for o in inputs)
        chain = Chain(tuple(steps), tuple(paths), codes)
        return Step(root.name, chain, tuple(inputs), root.array.type, names)


def _needed(entry: Computation) -> set[str]:
    """The instructions that the root depends on."""
    found, pending = {entry.root}, [entry.root]
    while pending:
        for o in entry.by_name[pending.pop()].operands:
            if o not in found:
                found.add(o)
                pending.append(o)
    return found


def _chains(entry: Computation, profile: Profile) -> dict[str, list[Instruction]]:
    """The chain of every instruction that is in one: a tree whose inner results have one reader of
    the same dimensions. Its last member is its root.
    """
    users = entry.users()
    chains: dict[str, list[Instruction]] = {}
    for i in entry.instructions:
        if not _is_elementwise(i, entry, profile):
            continue
        chain: list[Instruction] = []
        for o in dict.fromkeys(i.operands):
            inner = chains.get(o)
            if (
                inner is not None
                and o != entry.root
                and len(users[o]) == 1
                and inner[-1].name == o
                and inner[-1].array.dims == i.array.dims
                and len(chain) + len(inner) < MAX_CHAIN
            ):
                chain += inner
        chain.append(i)
        for member in chain:
            chains[member.name] = chain
    return chains


def _is_elementwise(i: Instruction, entry: Computation, profile: Profile) -> bool:
    if i.opcode not in ops.OPCODES or not isinstance(i.shape, Shape):
        return False
    op = row(i)
    types = [i.shape.dtype, *(entry.by_name[o].array.dtype for o in i.operands)]
    if profile.int64 == "truncate" and any(is_int64(t) for t in types):
        return False  # each is counted on its own (C7)
    if ops.has_input_range(op, profile):
        return False  # counted likewise (E3)
    if any(t.code is None or (op.core is not None and ops.is_host(t)) for t in types):
        return False
    return op.core is not None or op.name in ("convert", "reduce_precision")


def _with_frees(steps: list[Step], root: str) -> tuple[Step, ...]:
    last: dict[str, int] = {}
    for n, step in enumerate(steps):
        for o in step.operands:
            last[o] = n
    freed = [
        tuple(dict.fromkeys(o for o in step.operands if last[o] == n and o != root))
        for n, step in enumerate(steps)
    ]
    return tuple(
        Step(s.name, s.action, s.operands, s.result, s.members, f)
        for s, f in zip(steps, freed, strict=True)
    )
