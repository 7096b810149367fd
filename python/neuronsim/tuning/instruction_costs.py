"""What one instruction of a planned module costs on a target's engines."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuronsim import composites, dtypes, ops
from neuronsim.hlo.module import Computation, Instruction, Shape
from neuronsim.hlo.opcodes import (
    APPLIES_SCALARS,
    CONVERTS,
    STRUCTURE,
    row,
    row_attributes,
    scalar_computation,
)
from neuronsim.targets import Target
from neuronsim.tuning.engine_formulas import (
    FIXED_OVERHEAD,
    FLOAT32_PASSES,
    MINIMUM_INTERVAL,
    engine_cycles,
    product_cycles,
)
from neuronsim.tuning.loop_facts import LoopFacts
from neuronsim.tuning.value_forms import BYTES, ON_ENGINE, ValueForms


@dataclass(frozen=True)
class Part:
    """What one engine does for an instruction: its cycles, or of a DMA the bytes; and the element
    operations, by which an engine without a clock is priced. `FIXED_OVERHEAD` is not in the cycles.
    """

    engine: str
    cycles: float
    operations: float
    bytes: int = 0


@dataclass(frozen=True)
class Facts:
    """What prices an instruction: the target, what is known of loops, and how values are read."""

    target: Target
    known: LoopFacts
    forms: ValueForms


def seconds_of(part: Part, target: Target) -> float:
    """How long an engine of a target takes for its part; 0 where nothing is published of it."""
    if part.engine == "dma":
        return part.bytes / target.bandwidth if target.bandwidth else 0.0
    if part.engine in target.clocks:
        return (FIXED_OVERHEAD + part.cycles) / (target.clocks[part.engine] * 1e9)
    rate = target.rates.get(part.engine)
    return part.operations / rate if rate else 0.0


def instruction_parts(c: Computation, i: Instruction, facts: Facts) -> tuple[Part, ...]:
    """What the engines do for an instruction in one run; nothing where that costs no time."""
    known = facts.known
    if i.opcode in STRUCTURE:
        return ()
    op = row(i)
    if op.cost == "none" or known.is_free(c, i):
        return ()  # no work, or done once when the model is loaded, or the sequencer's
    if op.engine == "dma":
        moved = _moved_bytes(c, i, known)
        return (Part("dma", 0.0, 0.0, 2 * moved),) if moved else ()
    quantizing = facts.forms.quantizing(c, i)
    if quantizing:
        return (_activation(element_count(i), facts.target),) if quantizing == "last" else ()
    if i.opcode in CONVERTS and is_free_cast(c, i, facts):
        return ()
    operands = [c.by_name[o] for o in i.operands]
    if op.cost == "nc_matmul":
        product = _product(op, i, operands, _passes(operands, c, facts), facts.target.partitions)
        return (product, *_copy_out(c, i, facts))
    if op.name in composites.FORMULAS:
        return _composite_parts(op, i, operands, facts)
    reads_psum = [o for o in i.operands if facts.forms.is_read_from_psum(c, o)]
    return (_part(op, i, operands, facts, psum=len(reads_psum) == 1 < len(operands)),)


def typed_parts(
    c: Computation, i: Instruction, operands: Sequence[Instruction], passes: int, facts: Facts
) -> tuple[Part, ...]:
    """The parts of an instruction as if it and its operands were these, which other types may have;
    `passes` are those of a product.
    """
    if i.opcode in STRUCTURE:
        return ()
    op = row(i)
    if op.cost == "none" or facts.known.is_free(c, c.by_name[i.name]):
        return ()
    if op.engine == "dma":
        return (Part("dma", 0.0, 0.0, 2 * _moved_bytes(c, i, facts.known)),)
    if op.cost == "nc_matmul":
        product = _product(op, i, operands, passes, facts.target.partitions)
        return (product, *_copy_out(c, c.by_name[i.name], facts))
    if op.name in composites.FORMULAS:
        return _composite_parts(op, i, operands, facts)
    return (_part(op, i, operands, facts, psum=False),)


def copy_part(elements: int, target: Target) -> Part:
    """A copy that casts, of so many elements."""
    n = math.ceil(elements / target.partitions)
    return Part("vector", engine_cycles("tensor_copy", n), elements)


def flops_of(i: Instruction, operands: Sequence[Instruction]) -> float:
    """The floating-point operations of a product; 0 of anything else."""
    if i.opcode not in ("dot", "convolution"):
        return 0.0
    batch, rows, depth, columns = _sizes(i, operands)
    return 2.0 * batch * rows * depth * columns


def _moved_bytes(c: Computation, i: Instruction, known: LoopFacts) -> int:
    """The bytes that a movement writes. A slice at a loop's counter is an access pattern, as one at a
    constant is; an update is written where the array lies.
    """
    shapes = i.shape.arrays()
    if i.opcode == "dynamic-slice" and all(known.is_control(c, o) for o in i.operands[1:]):
        return 0
    if i.opcode == "dynamic-update-slice":
        shapes = c.by_name[i.operands[1]].shape.arrays()
    return sum(s.nbytes for s in shapes)


# ---- casts ---------------------------------------------------------------------------------------


def is_free_cast(c: Computation, i: Instruction, facts: Facts) -> bool:
    """Whether an engine casts as it stores what a cast reads or as it reads what the cast gives, or the
    cast changes nothing.
    """
    known, source = facts.known, c.by_name[i.operands[0]]
    bits = i.attributes.get("mantissa_bits")
    if bits is not None and is_rounded(c, source, bits, known):
        return True
    if facts.forms.is_cast_by_readers(c, i):
        return True
    return facts.forms.is_stored(c, i) and known.all_producers(c, i.operands[0], casts_on_store)


def casts_on_store(producer: Instruction) -> bool:
    """Engines cast without overhead as they write a result, and DMAs as they move one, such as an input
    (neuron.md 4.2).
    """
    if producer.opcode in STRUCTURE:
        return producer.opcode == "parameter"
    return row(producer).engine in ("tensor", "dma", *ON_ENGINE)


def _passes(operands: Sequence[Instruction], c: Computation, facts: Facts) -> float:
    """A float32 product takes four passes; one whose operands are tfloat32 takes one. HLO carries
    tfloat32 in float32: it comes from a reduce-precision, perhaps moved since (C9). One of bytes takes
    what the target's table lists, or one where the target does not run it: bfloat16 holds all bytes.
    """
    known, target = facts.known, facts.target
    if target.runs_int8 and all(o.array.dtype in BYTES for o in operands):
        return 1 / target.int8_rate
    wide = (o for o in operands if o.array.dtype is dtypes.float32)
    bits = dtypes.tfloat32.mantissa_bits
    return 1 if all(is_rounded(c, o, bits, known) for o in wide) else FLOAT32_PASSES


def is_rounded(c: Computation, i: Instruction, mantissa_bits: int, known: LoopFacts) -> bool:
    """Whether a reduce-precision rounded all elements of a value to so many bits, or they are a
    scalar, such as a zero, that has no more.
    """
    return known.all_origins(c, i.name, _has_no_more_than(mantissa_bits))


@functools.cache
def _has_no_more_than(mantissa_bits: int) -> Callable[[Instruction], bool]:
    """One test for each number of bits, by which what was found is kept."""
    return lambda i: (
        i.attributes["mantissa_bits"] <= mantissa_bits
        if i.opcode == "reduce-precision"
        else _has_bits(i, mantissa_bits)
    )


def _has_bits(i: Instruction, mantissa_bits: int) -> bool:
    literal = i.attributes.get("literal")
    if not isinstance(literal, ops.Bits) or literal.dtype is not dtypes.float32 or literal.data.ndim:
        return False
    dropped = dtypes.float32.mantissa_bits - mantissa_bits
    bits = int.from_bytes(literal.data.tobytes(), "little")
    return bits & ((1 << max(dropped, 0)) - 1) == 0


# ---- products ------------------------------------------------------------------------------------


def _product(
    op: ops.Op, i: Instruction, operands: Sequence[Instruction], passes: float, partitions: int
) -> Part:
    batch, rows, depth, columns = _sizes(i, operands)
    cycles = product_cycles(batch, rows, depth, columns, passes=passes, partitions=partitions)
    operations = flops_of(i, operands) * min(passes, 1)  # a rate is that of 16-bit types
    return Part(op.engine, cycles, operations)


def _copy_out(c: Computation, i: Instruction, facts: Facts) -> tuple[Part, ...]:
    """A product's sums leave PSUM by an engine's instruction that alone reads them, else by a copy."""
    if facts.forms.has_reader_of_psum(c, i):
        return ()
    return (_activation(element_count(i), facts.target),)


def _activation(elements: int, target: Target) -> Part:
    """func(x * scale + bias) of so many elements, which the scalar engine casts as it writes."""
    n = math.ceil(elements / target.partitions)
    return Part("scalar", engine_cycles("activation", n), elements)


def _sizes(i: Instruction, operands: Sequence[Instruction]) -> tuple[int, int, int, int]:
    """How many products there are, and their rows, depth and columns."""
    lhs, rhs = operands[0].array, operands[1].array
    return (_convolution_sizes if i.opcode == "convolution" else _dot_sizes)(i, lhs, rhs)


def _dot_sizes(i: Instruction, lhs: Shape, rhs: Shape) -> tuple[int, int, int, int]:
    d: ops.DotDimensions = i.attributes["dot_dimensions"]
    batch = math.prod(lhs.dims[a] for a in d.lhs_batch)
    depth = math.prod(lhs.dims[a] for a in d.lhs_contracting)
    rows = lhs.size // max(batch * depth, 1)
    columns = rhs.size // max(batch * depth, 1)
    return batch, rows, depth, columns


def _convolution_sizes(i: Instruction, lhs: Shape, rhs: Shape) -> tuple[int, int, int, int]:
    """Those of the matrix of patches and the kernel, one product for each group (M5)."""
    d: ops.ConvolutionDimensions = i.attributes["dimension_numbers"]
    groups = i.attributes["feature_group_count"] * i.attributes["batch_group_count"]
    outputs = rhs.dims[d.kernel_output_feature]
    depth = math.prod(n for axis, n in enumerate(rhs.dims) if axis != d.kernel_output_feature)
    return groups, i.array.size // max(outputs, 1), depth, outputs // groups


# ---- what works element by element ---------------------------------------------------------------


def element_count(i: Instruction) -> int:
    """The elements of all arrays that an instruction gives."""
    return sum(s.size for s in i.shape.arrays())


def _part(
    op: ops.Op, i: Instruction, operands: Sequence[Instruction], facts: Facts, *, psum: bool
) -> Part:
    partitions = facts.target.partitions
    elements = element_count(i)
    n = math.ceil(elements / partitions)
    bf16 = all(s.dtype is dtypes.bfloat16 for o in (i, *operands) for s in o.shape.arrays())
    if i.opcode in APPLIES_SCALARS:
        fast = bf16 and op.engine == "vector"
        return _applied(op, i, operands, facts, fast=fast)
    if op.cost == "tensor_tensor" and any(_is_scalar(o) for o in operands):
        return Part(op.engine, engine_cycles("tensor_scalar", n), elements)
    if op.cost == "tensor_copy" and operands and i.opcode not in CONVERTS:
        # What selects reads all of its operands.
        read = sum(element_count(o) for o in operands)
        most = max(n, math.ceil(read / partitions))
        return Part(op.engine, engine_cycles("tensor_copy", most), read)
    cycles = _elementwise_cycles(op, n, fast=bf16, psum=psum)
    return Part(op.engine, cycles, elements)


def _is_scalar(operand: Instruction) -> bool:
    return operand.opcode == "broadcast" and not operand.attributes["dimensions"]


def _elementwise_cycles(op: ops.Op, n: float, *, fast: bool, psum: bool = False) -> float:
    if op.cost == "reciprocal" and op.arity == 2:  # divide: a reciprocal, then a product
        product = engine_cycles("tensor_tensor", n, operation="multiply", psum=psum)
        return engine_cycles("reciprocal", n) + product
    cycles = engine_cycles(op.cost, n, operation=op.name, bfloat16=fast, psum=psum)
    return cycles if op.cost == "iota" else max(MINIMUM_INTERVAL, cycles)


def _applied(
    op: ops.Op, i: Instruction, operands: Sequence[Instruction], facts: Facts, *, fast: bool
) -> Part:
    """An instruction that applies computations to elements: each of their operations on as many
    elements as it is applied to. A simple reducer is one tensor_reduce.
    """
    cycles = operations = 0.0
    flat, partitions = facts.known.flat, facts.target.partitions
    for name, applications in zip(i.called, _applications(i, operands), strict=True):
        computation = scalar_computation(flat, name, i.opcode)
        n = math.ceil(applications / partitions)
        operations += applications
        if computation.reducer is not None and i.opcode in ("reduce", "reduce-window"):
            reduce = engine_cycles("tensor_reduce", n, operation=computation.reducer, bfloat16=fast)
            cycles += max(MINIMUM_INTERVAL, reduce)
            continue
        steps = [s.op for s in computation.steps if s.op is not None and s.op.cost != "tensor_copy"]
        if not steps:  # it copies
            cycles += engine_cycles("tensor_copy", n)
        for step in steps:
            cycles += _elementwise_cycles(step, n, fast=fast)
    return Part(op.engine, cycles, operations)


def _applications(i: Instruction, operands: Sequence[Instruction]) -> list[int]:
    """How often an instruction applies each of its computations."""
    match i.opcode:
        case "reduce-window" | "select-and-scatter":
            window = math.prod(d.size for d in i.attributes["window"])
            if i.opcode == "reduce-window":
                return [i.shape.arrays()[0].size * window]
            sources = element_count(operands[1])
            return [sources * window, sources]  # select in each window, then scatter
        case "sort":
            dims = operands[0].array.dims
            length = dims[i.attributes["dimensions"][0]] if dims else 1
            rounds = math.ceil(math.log2(length)) if length > 1 else 1  # of a merge sort
            return [math.prod(dims) * rounds]
        case "scatter":
            return [element_count(operands[-1])]
        case "all-reduce" | "reduce-scatter":
            return [sum(map(element_count, operands))]
        case "map":
            return [element_count(i)]
        case _:
            return [element_count(operands[0])]


# ---- composites ----------------------------------------------------------------------------------


class _Counted:
    """The steps of a composite's formula (R7), whose values are numbers of elements: what the engines
    do for them.
    """

    def __init__(self, length: int, partitions: int, *, bfloat16: bool) -> None:
        self.length, self.partitions, self.bfloat16 = max(length, 1), partitions, bfloat16
        self.parts: dict[str, tuple[float, float]] = {}

    def __call__(self, name: str, *operands: Any) -> int:
        op = ops.by_name(name)
        sizes = [o if isinstance(o, _Size) else _Size(1) for o in operands]
        size = max(sizes)
        n = math.ceil(size / self.partitions)
        same = sum(s == size for s in sizes)
        if op.cost == "tensor_tensor" and same < 2:
            cycles = engine_cycles("tensor_scalar", n)
        else:
            cycles = _elementwise_cycles(op, n, fast=self.bfloat16)
        return self._add(op.engine, cycles, size)

    def reduce(self, reducer: str, x: int) -> int:
        n = math.ceil(x / self.partitions)
        reduce = engine_cycles("tensor_reduce", n, operation=reducer, bfloat16=self.bfloat16)
        self._add("vector", max(MINIMUM_INTERVAL, reduce), x)
        return _Size(max(x // self.length, 1))

    def count(self, x: int) -> int:
        return self.length

    def _add(self, engine: str, cycles: float, operations: int) -> _Size:
        before = self.parts.get(engine, (0.0, 0.0))
        self.parts[engine] = before[0] + cycles, before[1] + operations
        return _Size(operations)


class _Size(int):
    """A number of elements, which a formula's own numbers are not."""


def _composite_parts(
    op: ops.Op, i: Instruction, operands: Sequence[Instruction], facts: Facts
) -> tuple[Part, ...]:
    """A composite as its formula's steps: one fixed overhead for each engine."""
    attributes = row_attributes(facts.known.flat, i)
    dims = operands[0].array.dims
    axes: Iterable[int] = attributes.get("dimensions", ())
    if "feature_index" in attributes:
        axes = [a for a in range(len(dims)) if a != attributes["feature_index"]]
    length = math.prod(dims[a] for a in axes)
    bf16 = all(o.array.dtype is dtypes.bfloat16 for o in operands)
    counted = _Counted(length, facts.target.partitions, bfloat16=bf16)
    terms: Mapping[str, Any] = {"terms": ("weight", "bias"), "epsilon": 0.0, "correction": 0}
    values = [_Size(o.array.size) for o in operands]
    composites.FORMULAS[op.name](counted, values, {**terms, **attributes})
    return tuple(Part(engine, *work) for engine, work in counted.parts.items())
